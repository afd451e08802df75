//! The harness's own replicas and sentinels: they come up, and fail over.

#![allow(clippy::disallowed_methods, reason = "says how long they take to come up")]

use keyway_testkit::{Client, Replicated, Sentinels, Value, wait_until, watchdog};
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(60);

#[test]
fn replicas_follow_their_primary_and_another_by_hand() {
    let _watchdog = watchdog(WITHIN, "replicas follow");
    let mut replicated = Replicated::start(2);
    assert_eq!((replicated.server_count(), replicated.primaries()), (3, vec![0]));
    let replies = replicated.client(0).pipeline(&["SET a 1", "WAIT 2 10000"]);
    assert_eq!(replies, [Value::simple("OK"), Value::Integer(2)]);
    assert_eq!(replicated.ask(2, "GET a"), Value::bulk("1"));
    assert!(replicated.ask(1, "SET a 2").error_text().starts_with("READONLY"));
    replicated.promote(1);
    assert_eq!(replicated.primaries(), [1]);
    assert_eq!(replicated.ask(0, "GET a"), Value::bulk("1"));
    replicated.kill(1);
    assert!(replicated.primaries().is_empty());
    replicated.restart(1);
    // It is what it was at first, a replica of the first, which is its own.
    assert!(replicated.primaries().is_empty());
    replicated.promote(0);
    assert_eq!(replicated.primaries(), [0]);
}

#[test]
fn sentinels_replace_a_dead_primary() {
    let _watchdog = watchdog(WITHIN, "a primary dies");
    let mut replicated = Replicated::start(2);
    let started = Instant::now();
    let mut sentinels = Sentinels::start(3, 2, &[("main", &replicated)]);
    println!("3 sentinels took {:.1} s", started.elapsed().as_secs_f32());
    let first = replicated.address(0);
    assert_eq!(sentinels.addresses().len(), 3);
    assert_eq!(sentinels.wait_primary("main", |_| true), first);
    assert_eq!(sentinels.primary_seen_by(0, "nobody"), None);
    replicated.kill(0);
    let killed = Instant::now();
    let second = sentinels.wait_primary("main", |address| address != first);
    println!("another primary after {:.1} s", killed.elapsed().as_secs_f32());
    let second = replicated.server_at(second).unwrap();
    wait_until("it is one", WITHIN, || replicated.primaries() == [second]);
    // The old one comes back as a primary, and is made a replica.
    replicated.restart(0);
    replicated.wait_linked(second);
    // All sentinels are gone at once and remember what they knew.
    sentinels.restart_all();
    assert_eq!(sentinels.wait_primary("main", |_| true), replicated.address(second));
    let third = sentinels.failover("main");
    assert_ne!(third, replicated.address(second));
    replicated.wait_linked(replicated.server_at(third).unwrap());
}

#[test]
fn sentinels_watch_several_primaries_with_passwords() {
    let _watchdog = watchdog(WITHIN, "passwords");
    let mut sets = [0, 1].map(|_| Replicated::start_with(1, &[], Some("s3cret")));
    let primaries = [("one", &sets[0]), ("two", &sets[1])];
    let mut sentinels = Sentinels::start_with(3, 2, &primaries, Some("other"));
    assert_eq!(sentinels.names(), ["one", "two"]);
    let refused = Client::connect(sentinels.addresses()[0]).words("SENTINEL MASTERS");
    assert!(refused.error_text().starts_with("NOAUTH"), "{refused:?}");
    assert_eq!(sentinels.ask(0, "SENTINEL MASTERS").array().len(), 2);
    // One that is stopped holds the others up no longer than it must.
    sentinels.pause(2);
    assert_eq!(sentinels.primary_seen_by(2, "one"), None);
    sets[1].pause(0);
    let paused = sets[1].address(0);
    assert_eq!(sentinels.wait_primary("two", |address| address != paused), sets[1].address(1));
    assert_eq!(sentinels.wait_primary("one", |_| true), sets[0].address(0));
    sentinels.resume(2);
    sets[1].resume(0);
    sets[1].wait_linked(1);
    sentinels.kill(0);
    assert_eq!(sentinels.wait_primary("two", |_| true), sets[1].address(1));
}
