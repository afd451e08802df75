//! A follower comes to the data of its primary, whatever happens to the link.

use crate::cutter::Cutter;
use crate::replayer::{Replayer, Seen};
use crate::servers::{
    BOUND, assert_same, await_reason, await_same_offset, await_state, id, settings, words,
};
use crate::writer::{Writer, play};
use keyway_replica::{Follower, FollowerSettings, State};
use keyway_testkit::{Random, RedisServer, wait_until, watchdog};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

const DISKLESS: [&str; 4] = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
const BY_FILE: [&str; 2] = ["--repl-diskless-sync", "no"];

/// A follower and the server that it fills.
struct Copy {
    to: RedisServer,
    seen: Arc<Mutex<Seen>>,
    follower: Follower,
}

impl Copy {
    fn start(settings: FollowerSettings) -> Self {
        Self::start_with(settings, Replayer::new)
    }

    fn start_with(settings: FollowerSettings, replayer: fn(&RedisServer) -> Replayer) -> Self {
        let to = RedisServer::start();
        let replayer = replayer(&to);
        let seen = replayer.seen();
        let follower = Follower::start(settings, Box::new(replayer)).expect("a thread");
        Self { to, seen, follower }
    }

    fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    fn assert_same(&self, from: &RedisServer) {
        assert_same(&self.follower, &self.seen, &mut from.client(), &mut self.to.client());
    }
}

fn follows_under_writes(options: &[&str], is_diskless: bool) {
    let _watchdog = watchdog(Duration::from_secs(60), "a primary under writes");
    let from = RedisServer::start_with(options);
    (0..20).for_each(|seed| play(from.address(), seed));
    words(&mut from.client(), "DEBUG POPULATE 1000 filler 200");
    let writer = Writer::start(from.address(), 1000, || {});
    let copy = Copy::start(settings(from.address()));
    wait_until("units of the stream", BOUND, || copy.seen().units > 3000);
    writer.end();
    from.client().pipeline(&["MULTI", "SET in a", "SELECT 3", "APPEND in b", "EXEC"]);
    copy.assert_same(&from);
    let (seen, status) = (copy.seen(), copy.follower.status());
    // FLUSHALL ends a snapshot that is under way, and its link with it: there may be several.
    assert_eq!(seen.snapshots as u64, status.full_resyncs);
    assert_eq!(status.down_for, None);
    assert!(seen.transactions > 0, "{seen:?}");
    assert_eq!(seen.origins[0].len.is_none(), is_diskless);
    let position = copy.follower.stop();
    assert_eq!(position.map(|position| position.offset), Some(status.offset));
}

#[test]
fn a_primary_without_a_disk_is_followed_under_writes() {
    follows_under_writes(&DISKLESS, true);
}

#[test]
fn a_primary_with_a_file_is_followed_under_writes() {
    follows_under_writes(&BY_FILE, false);
}

#[test]
fn a_link_that_is_cut_at_any_byte_loses_nothing_and_repeats_nothing() {
    const CUTS: usize = 100;
    let _watchdog = watchdog(Duration::from_secs(90), "a link that is cut");
    let from = RedisServer::start_with(&[&DISKLESS[..], &["--repl-backlog-size", "64mb"]].concat());
    play(from.address(), 1);
    let cutter = Cutter::new(from.address());
    let copy = Copy::start(settings(cutter.address()));
    await_state(&copy.follower, State::Online);
    let writer = Writer::start(from.address(), 2000, || {});
    let mut random = Random::new(17);
    while cutter.cuts() < CUTS {
        let before = cutter.cuts();
        // A few in the handshake, most in the stream.
        let budget =
            if random.below(5) == 0 { 1 + random.below(90) } else { 90 + random.below(8000) };
        cutter.set_budget(Some(budget));
        if before == 0 {
            cutter.cut();
        }
        wait_until("a cut", BOUND, || cutter.cuts() > before);
    }
    writer.end();
    cutter.set_budget(None);
    cutter.cut();
    copy.assert_same(&from);
    let status = copy.follower.status();
    let (full, partial) = (status.full_resyncs, status.partial_resyncs);
    assert_eq!(full, 1, "the backlog has everything");
    assert!(partial > CUTS as u64 / 2, "{partial} partial resyncs");
    assert!(status.failures >= CUTS as u64, "{status:?}");
    println!("{full} full and {partial} partial resyncs, {} failures", status.failures);
}

#[test]
fn a_snapshot_that_is_cut_is_taken_anew() {
    for options in [&DISKLESS[..], &BY_FILE] {
        let _watchdog = watchdog(Duration::from_secs(60), "a snapshot that is cut");
        let from = RedisServer::start_with(&[options, &["--rdbcompression", "no"]].concat());
        words(&mut from.client(), "DEBUG POPULATE 1000 filler 100");
        let cutter = Cutter::new(from.address());
        let mut random = Random::new(3);
        cutter.set_budget(Some(40_000));
        let copy = Copy::start(settings(cutter.address()));
        for cuts in 1..5 {
            wait_until("a cut", BOUND, || cutter.cuts() >= cuts);
            cutter.set_budget(Some(200 + random.below(100_000)));
        }
        cutter.set_budget(None);
        copy.assert_same(&from);
        let (seen, status) = (copy.seen(), copy.follower.status());
        assert!(seen.aborted > 0 && status.partial_resyncs == 0, "{seen:?}");
        assert_eq!((seen.snapshots, status.full_resyncs), (1, 1));
    }
}

#[test]
fn a_target_that_takes_a_snapshot_slowly_keeps_its_link() {
    for options in [&DISKLESS[..], &BY_FILE] {
        let _watchdog = watchdog(Duration::from_secs(60), "a slow target");
        // More than the sockets hold, so that the rest comes behind the sign of life.
        let from = RedisServer::start_with(&[options, &["--rdbcompression", "no"]].concat());
        words(&mut from.client(), "DEBUG POPULATE 1000 filler 10000");
        let copy = Copy::start_with(settings(from.address()), Replayer::slow);
        wait_until("the transfer", BOUND, || {
            matches!(copy.follower.status().state, State::Transfer { .. })
        });
        let mut client = from.client();
        (0..100).for_each(|at| drop(words(&mut client, &format!("SET meanwhile:{at} {at}"))));
        copy.assert_same(&from);
        assert_eq!((copy.seen().snapshots, copy.follower.status().failures), (1, 0));
    }
}

#[test]
fn a_backlog_that_is_too_small_makes_a_full_resync() {
    let _watchdog = watchdog(Duration::from_secs(60), "a small backlog");
    let from = RedisServer::start_with(&[&DISKLESS[..], &["--repl-backlog-size", "16kb"]].concat());
    let cutter = Cutter::new(from.address());
    let copy = Copy::start(settings(cutter.address()));
    await_state(&copy.follower, State::Online);
    words(&mut from.client(), "SET before 1");
    await_same_offset(&copy.follower, &mut from.client());
    cutter.close();
    let status = await_reason(&copy.follower, "the primary closed the connection");
    assert!(status.down_for.is_some() && status.state != State::Online);
    let mut client = from.client();
    (0..200).for_each(|at| drop(client.words(&format!("SET long:{at} {}", "x".repeat(500)))));
    cutter.open();
    copy.assert_same(&from);
    let status = copy.follower.status();
    assert_eq!((status.full_resyncs, status.partial_resyncs), (2, 0));
    assert_eq!(copy.seen().snapshots, 2);
}

#[test]
fn a_primary_that_restarts_is_followed_with_the_data_it_has_then() {
    let _watchdog = watchdog(Duration::from_secs(60), "a primary that restarts");
    let mut from = RedisServer::start_with(&DISKLESS);
    play(from.address(), 5);
    let copy = Copy::start(settings(from.address()));
    copy.assert_same(&from);
    from.kill();
    await_reason(&copy.follower, "nobody listens there");
    assert_eq!(copy.follower.status().full_resyncs, 1);
    from.restart();
    words(&mut from.client(), "SET only this");
    copy.assert_same(&from);
    assert_eq!(words(&mut copy.to.client(), "DBSIZE").integer(), 1);
    assert_eq!(copy.follower.status().full_resyncs, 2);
}

#[test]
fn a_replica_is_followed_and_goes_on_under_another_id_when_it_takes_over() {
    let _watchdog = watchdog(Duration::from_secs(60), "a chain of replicas");
    let mut first = RedisServer::start_with(&DISKLESS);
    let second = RedisServer::start_with(&DISKLESS);
    let mut client = second.client();
    words(&mut client, &format!("REPLICAOF 127.0.0.1 {}", first.port()));
    let copy = Copy::start(settings(second.address()));
    (50..70).for_each(|seed| play(first.address(), seed));
    words(&mut first.client(), "SELECT 2");
    wait_until("the middle has caught up", BOUND, || {
        let ids = (id(&mut first.client()), id(&mut client));
        ids.0 == ids.1
    });
    copy.assert_same(&first);
    copy.assert_same(&second);
    let before = copy.follower.status();
    first.kill();
    words(&mut client, "REPLICAOF NO ONE");
    words(&mut client, "SET taken over");
    copy.assert_same(&second);
    let (seen, status) = (copy.seen(), copy.follower.status());
    assert_eq!(status.full_resyncs, before.full_resyncs, "the history goes on");
    assert!(status.partial_resyncs > before.partial_resyncs);
    let (old, position) = *seen.renamed.last().expect("another id");
    assert_eq!(Some(old), before.id);
    assert_eq!(position.id.to_string(), id(&mut client));
    assert_eq!(status.id, Some(position.id));
}

#[test]
fn another_follower_goes_on_where_one_was_stopped() {
    let _watchdog = watchdog(Duration::from_secs(60), "two followers, one after the other");
    let from = RedisServer::start_with(&DISKLESS);
    let copy = Copy::start(settings(from.address()));
    await_state(&copy.follower, State::Online);
    let mut client = from.client();
    words(&mut client, "SELECT 7");
    words(&mut client, "SET counter 1");
    await_same_offset(&copy.follower, &mut client);
    let Copy { to, seen, follower } = copy;
    let position = follower.stop();
    assert_eq!(position.and_then(|position| position.database), Some(7));
    words(&mut client, "INCR counter");
    let replayer = Replayer::new(&to);
    let goes_on = replayer.seen();
    goes_on.lock().position = seen.lock().position;
    let settings = FollowerSettings { resume: position, ..settings(from.address()) };
    let follower = Follower::start(settings, Box::new(replayer)).expect("a thread");
    assert_same(&follower, &goes_on, &mut client, &mut to.client());
    let status = follower.status();
    assert_eq!((status.full_resyncs, status.partial_resyncs), (0, 1));
}
