//! A log goes on with another store that holds the same data, as at an upgrade.

mod common;

use common::{Logged, contents, now, run_in, settings};
use keyway_base::ByteRange;
use keyway_command::{Args, Request};
use keyway_log::{Fsync, Log, LogState};
use keyway_resp::Protocol;
use keyway_store::{Context, Store, StoreConfig};
use keyway_testkit::TempDir;
use std::sync::Arc;

const LINES: [&str; 5] =
    ["SET a 1", "RPUSH list a b c", "HSET hash f v", "ZADD zset 1 m", "SADD set m"];

fn execute(store: &Store, line: &str) {
    let (mut buf, mut ranges) = (Vec::new(), Vec::new());
    for word in line.split(' ') {
        ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
        buf.extend_from_slice(word.as_bytes());
    }
    let request = Request::resolve(Args::new(&buf, &ranges)).expect("a command");
    let context = Context { database: 0, clock: now(), protocol: Protocol::Resp2, worker: 0 };
    store.execute(&request, context, &mut Vec::new());
}

#[test]
fn a_log_that_is_handed_on_has_all_of_both_and_can_be_taken_back() {
    for fsync in [Fsync::Always, Fsync::EverySecond, Fsync::No] {
        let folder = TempDir::new();
        let mut logged = Logged::open(settings(folder.path(), fsync)).unwrap();
        LINES.iter().for_each(|line| drop(logged.run(line)));
        logged.log.hand_on().unwrap();
        // Nobody waits for a log that another process has.
        logged.settle();
        // The other process does not serve: this one goes on, more than once.
        for round in 0..2 {
            logged.log.take_back().unwrap();
            logged.run(&format!("SET back {round}"));
            logged.log.hand_on().unwrap();
        }
        let store = Arc::new(Store::new(StoreConfig {
            databases: 3,
            shards: Some(16),
            ..StoreConfig::default()
        }));
        LINES.iter().for_each(|line| execute(&store, line));
        execute(&store, "SET back 1");
        assert_eq!(contents(&store), contents(&logged.store));
        let mut next = Log::resume(&store, settings(folder.path(), fsync)).unwrap();
        next.start().unwrap();
        assert_eq!(next.status().state, LogState::Open);
        run_in(&store, 0, "INCR a");
        run_in(&store, 1, "SET other 1");
        let log = store.log().unwrap();
        log.before_replies(store.told());
        next.end();
        let held = contents(&store);
        let again = Logged::open(settings(folder.path(), fsync)).unwrap();
        assert_eq!(contents(&again.store), held, "{fsync:?}");
    }
}

#[test]
fn a_log_that_was_not_handed_on_is_not_gone_on_with() {
    let folder = TempDir::new();
    let settings = settings(folder.path(), Fsync::Always);
    let store = Arc::new(Store::new(StoreConfig::default()));
    assert!(Log::resume(&store, settings.clone()).is_err(), "there is none");
    let logged = Logged::open(settings.clone()).unwrap();
    assert!(Log::resume(&store, settings.clone()).is_err(), "another has it");
    logged.run("SET a 1");
    logged.end();
    let refused = Log::resume(&store, settings).err().expect("it was not handed on").to_string();
    assert!(refused.contains("has not ended its log"), "{refused}");
}
