//! A replica that remembers its place in the history of the primary, by a log or a snapshot.

use crate::common::Reply;
use crate::cutter::Cutter;
use crate::place::{BOUND, Place, clock, info};
use crate::writer::{Writer, play};
use keyway_base::Clock;
use keyway_log::{Fsync, Functions, Log, Notice, Settings};
use keyway_replica::State;
use keyway_store::{Loading, Progress, StoreConfig};
use keyway_testkit::{Client, Random, RedisServer, TempDir, wait_until, watchdog};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const DIRECTORY: &str = "KEYWAY_TEST_LOG_DIRECTORY";
const PRIMARY: &str = "KEYWAY_TEST_PRIMARY";
/// Longest life of a process that is killed.
const LIFE_MICROS: u64 = 250_000;
const BACKLOG: [&str; 4] = ["--repl-backlog-size", "64mb", "--repl-diskless-sync-delay", "0"];

/// A pool without functions.
struct NoFunctions;

impl Functions for NoFunctions {
    fn libraries(&self) -> Vec<Arc<[u8]>> {
        Vec::new()
    }

    fn load(&self, _code: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn execute(&self, _words: &[&[u8]]) {}
}

/// A replica with a log.
struct Logged {
    place: Place,
    log: Log,
    notices: Arc<Mutex<Vec<String>>>,
}

impl Logged {
    /// Loads what the log has.
    fn open(directory: &Path, fsync: Fsync) -> Self {
        let place = Place::new();
        let mut settings = Settings::new(directory.into(), fsync, Arc::new(NoFunctions));
        // Compactions and segments come often.
        (settings.segment_len, settings.compact_from) = (64 << 10, 256 << 10);
        settings.wall_clock = clock;
        let notices: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&notices);
        settings.notify = Arc::new(move |notice: Notice| told.lock().push(format!("{notice:?}")));
        let mut log = Log::open(&place.store, settings).expect("a log");
        log.begin().expect("a log");
        place.store.set_replica(true);
        log.start().expect("a thread");
        let has_failed = || notices.lock().iter().any(|it| it.starts_with("CannotLoad"));
        wait_until("the log is loaded", BOUND, || !place.store.is_loading() || has_failed());
        assert!(!has_failed(), "{:?}", notices.lock());
        Self { place, log, notices }
    }

    fn has_noticed(&self, what: &str) -> bool {
        self.notices.lock().iter().any(|notice| notice.starts_with(what))
    }

    fn end(mut self) {
        self.place.standby.end();
        self.log.end();
    }
}

fn full_resyncs(client: &mut Client) -> u64 {
    let text = client.words("INFO stats").text();
    let found = text.lines().find_map(|line| line.strip_prefix("sync_full:"));
    found.and_then(|text| text.trim().parse().ok()).expect("a number")
}

fn bulk(reply: Reply) -> Vec<u8> {
    let Reply::Bulk(Some(bytes)) = reply else { panic!("{reply:?}") };
    bytes
}

/// A replica with a log that is there until it is killed.
#[test]
#[ignore = "the process that the other tests kill"]
#[allow(clippy::disallowed_methods, reason = "the parent says by the environment where")]
fn child() {
    let (Ok(directory), Ok(primary)) = (std::env::var(DIRECTORY), std::env::var(PRIMARY)) else {
        return;
    };
    let logged = Logged::open(Path::new(&directory), Fsync::No);
    logged.place.follow(primary.parse().expect("an address"));
    wait_until("the kill", Duration::from_secs(600), || false);
}

fn start(directory: &Path, primary: SocketAddr) -> Child {
    Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "logged::child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(PRIMARY, primary.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("this program")
}

/// Kills a process after a time by chance, which is often before it has come far.
#[allow(clippy::disallowed_methods, reason = "the process is killed at a moment by chance")]
fn kill(mut child: Child, random: &mut Random) {
    std::thread::sleep(Duration::from_micros(random.next_u64() % LIFE_MICROS));
    child.kill().expect("a process");
    child.wait().expect("a process");
}

#[test]
fn a_replica_that_is_killed_at_any_point_goes_on_where_its_log_ends() {
    const KILLS: usize = 30;
    let _watchdog = watchdog(Duration::from_secs(180), "a replica that is killed");
    let folder = TempDir::new();
    let from = RedisServer::start_with(&BACKLOG);
    (0..10).for_each(|seed| play(from.address(), seed));
    // The first one takes the snapshot, and has it in its log.
    let first = Logged::open(folder.path(), Fsync::Always);
    first.place.follow(from.address());
    wait_until("the snapshot is in the log", BOUND, || first.has_noticed("Replaced"));
    first.end();
    let writer = Writer::start(from.address(), 3000, || {});
    let mut random = Random::new(20_270_611);
    for _ in 0..KILLS {
        kill(start(folder.path(), from.address()), &mut random);
    }
    writer.end();
    let last = Logged::open(folder.path(), Fsync::EverySecond);
    last.place.follow(from.address());
    last.place.assert_same(&from);
    assert_eq!(full_resyncs(&mut from.client()), 1, "the backlog holds all that was missed");
    let link = last.place.status().link;
    assert_eq!((link.full_resyncs, link.partial_resyncs), (0, 1), "{link:?}");
    // What it has at the end is what the next one finds, which then becomes a primary.
    last.end();
    let next = Logged::open(folder.path(), Fsync::EverySecond);
    assert!(next.place.store.history_place().is_some());
    assert!(next.place.standby.promote());
    assert_eq!(next.place.store.history_place(), None);
    next.place.ask("set own write");
    next.end();
    let after = Logged::open(folder.path(), Fsync::EverySecond);
    assert_eq!(after.place.store.history_place(), None, "it has writes of its own");
    after.place.follow(from.address());
    after.place.assert_same(&from);
    assert_eq!(full_resyncs(&mut from.client()), 2);
    after.end();
}

/// Fills a server with one generation of data.
fn generation(server: &RedisServer, name: &str) {
    let mut client = server.client();
    client.words("FLUSHALL");
    for nth in 0..3000 {
        client.words(&format!("SET key:{nth} {name}"));
    }
    client.words(&format!("SET {name} whole"));
}

#[test]
fn a_kill_during_a_full_resync_leaves_the_old_data_or_the_new_and_never_a_mix() {
    const KILLS: usize = 30;
    let _watchdog = watchdog(Duration::from_secs(180), "resyncs that are killed");
    let folder = TempDir::new();
    let options = [&BACKLOG[..], &["--key-load-delay", "0"]].concat();
    let servers = [RedisServer::start_with(&options), RedisServer::start_with(&options)];
    let names = ["one", "two"];
    servers.iter().zip(names).for_each(|(server, name)| generation(server, name));
    let first = Logged::open(folder.path(), Fsync::Always);
    first.place.follow(servers[0].address());
    wait_until("the snapshot is in the log", BOUND, || first.has_noticed("Replaced"));
    first.end();
    let (mut random, mut seen) = (Random::new(20_270_612), [0, 0]);
    let mut held = 0;
    for _ in 0..KILLS {
        // Always the server whose data the log has not, so that the resync is a full one.
        kill(start(folder.path(), servers[1 - held].address()), &mut random);
        let found = Logged::open(folder.path(), Fsync::No);
        let items = found.place.store.stats().databases[0].items;
        held = usize::from(found.place.ask("exists two").integer() == 1);
        assert_eq!(items, 3001, "a whole data set");
        for nth in (0..3000).step_by(7) {
            let value = found.place.ask_in(0, &[b"GET", format!("key:{nth}").as_bytes()]);
            assert_eq!(bulk(value), names[held].as_bytes(), "key {nth}");
        }
        seen[held] += 1;
        found.end();
    }
    assert!(
        seen.iter().all(|count| *count > 0),
        "the time of the kills is not by chance: {seen:?}"
    );
}

#[test]
fn a_resync_that_is_cut_off_leaves_the_log_with_the_data_before() {
    let _watchdog = watchdog(Duration::from_secs(60), "a resync that is cut off");
    let folder = TempDir::new();
    let from = RedisServer::start_with(&BACKLOG);
    from.client().words("SET old v");
    let logged = Logged::open(folder.path(), Fsync::Always);
    logged.place.follow(from.address());
    wait_until("the snapshot is in the log", BOUND, || logged.has_noticed("Replaced"));
    let other = RedisServer::start_with(&BACKLOG);
    other.client().words("DEBUG POPULATE 20000 key 500");
    let cutter = Cutter::new(other.address());
    cutter.set_budget(Some(200_000));
    logged.place.follow(cutter.address());
    wait_until("snapshots that are cut", BOUND, || cutter.cuts() >= 2);
    assert!(logged.place.store.is_loading());
    logged.end();
    let logged = Logged::open(folder.path(), Fsync::Always);
    assert_eq!(bulk(logged.place.ask("get old")), b"v");
    assert_eq!(logged.place.store.stats().databases[0].items, 1);
    logged.place.follow(from.address());
    logged.place.assert_same(&from);
    assert_eq!(logged.place.status().link.full_resyncs, 0);
    // A store that becomes a primary with half a snapshot is empty, and so is its log.
    logged.place.follow(cutter.address());
    wait_until("a snapshot that is cut", BOUND, || cutter.cuts() >= 4);
    assert!(logged.place.standby.promote());
    logged.place.ask("set new v");
    wait_until("the log has begun anew", BOUND, || {
        logged.notices.lock().iter().filter(|it| it.starts_with("Replaced")).count() == 1
    });
    logged.end();
    let logged = Logged::open(folder.path(), Fsync::Always);
    assert_eq!(logged.place.store.stats().databases[0].items, 1);
    assert_eq!(bulk(logged.place.ask("get new")), b"v");
    logged.end();
}

/// The bytes of a snapshot of a replica, made now.
fn snapshot(place: &Place) -> Vec<u8> {
    let now = || -> Clock { clock() };
    place.store.begin_snapshot(now().unix_millis(), false).expect("no other");
    let mut saving = place.store.take_snapshot(now()).expect("a cut");
    let mut bytes = Vec::new();
    loop {
        match saving.next(now(), &mut Vec::new).expect("room") {
            Some(Progress::Batch(batch)) => batch.parts().for_each(|part| bytes.extend(part)),
            Some(Progress::Wait) => std::thread::yield_now(),
            None => break,
        }
    }
    saving.commit(now());
    bytes
}

#[test]
fn a_snapshot_of_a_replica_has_its_place_and_keyway_and_redis_go_on_from_there() {
    let _watchdog = watchdog(Duration::from_secs(120), "snapshots of a replica");
    let from = RedisServer::start_with(&BACKLOG);
    (0..10).for_each(|seed| play(from.address(), seed));
    let place = Place::new();
    place.store.enable_snapshots(64 << 20, clock(), || {});
    place.follow(from.address());
    wait_until("the first snapshot", BOUND, || place.status().link.state == State::Online);
    let writer = Writer::start(from.address(), 4000, || {});
    let mut files = Vec::new();
    for _ in 0..8 {
        let applied = place.status().applied;
        wait_until("commands of the stream", BOUND, || place.status().applied > applied + 300);
        files.push(snapshot(&place));
    }
    writer.end();
    place.assert_same(&from);
    for bytes in &files {
        let next = Place::with(StoreConfig::default());
        next.store.set_replica(true);
        let mut loading = Loading::new(&next.store);
        loading.feed(bytes, clock(), &mut |_| Ok(())).expect("a whole file");
        loading.finish().expect("a whole file");
        next.follow(from.address());
        next.assert_same(&from);
        let link = next.status().link;
        assert_eq!((link.full_resyncs, link.partial_resyncs), (0, 1), "{link:?}");
    }
    // A redis-server that is loaded from the same file does the same.
    let folder = TempDir::new();
    std::fs::write(folder.path().join("dump.rdb"), &files[3]).expect("a file");
    let (directory, port) = (folder.path().display().to_string(), from.port().to_string());
    let options = ["--dir", &directory, "--replicaof", "127.0.0.1", &port];
    let redis = RedisServer::start_with(&options);
    wait_until("a link", BOUND, || info(&mut redis.client(), "master_link_status") == "up");
    place.await_same_offset(&mut redis.client());
    place.assert_equal(&redis);
    assert!(redis.process().log().contains("Successful partial resynchronization"));
    assert_eq!(full_resyncs(&mut from.client()), 1);
    // A primary remembers no place.
    assert!(place.standby.promote());
    let bytes = snapshot(&place);
    assert!(!bytes.windows(7).any(|window| window == b"repl-id"));
}
