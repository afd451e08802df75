//! The checked load finds what is to be found, and nothing where all is well.

use keyway_testkit::{CheckedLoad, LoadShape, RedisServer, Value, wait_until, watchdog};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);

fn shape() -> LoadShape {
    LoadShape { reply_within: Duration::from_millis(500), ..LoadShape::default() }
}

#[test]
fn a_server_that_is_well_is_found_well() {
    let _watchdog = watchdog(WITHIN, "a load without faults");
    let server = RedisServer::start();
    let load = CheckedLoad::start(server.address(), shape());
    load.wait_replies(20_000);
    let report = load.stop();
    report.assert_clean();
    assert!(report.writes > 2000 && report.reads > 2000 && report.late == 0, "{report}");
}

#[test]
fn a_server_that_forgets_is_found_out() {
    let _watchdog = watchdog(WITHIN, "a load on a server that restarts empty");
    let mut server = RedisServer::start();
    let load = CheckedLoad::start(server.address(), shape());
    load.wait_replies(5000);
    server.restart();
    load.wait_replies(100);
    let report = load.stop();
    // What was acknowledged before is gone, and counters began anew.
    assert!(!report.stale.is_empty() && !report.lost.is_empty(), "{report}");
    assert!(report.wrong.is_empty() && report.doubled.is_empty(), "{report}");
    assert!(report.errors.contains_key("(closed)"), "{report}");
}

#[test]
fn what_was_meant_for_another_is_found_out() {
    let _watchdog = watchdog(WITHIN, "a load whose keys are tampered with");
    let server = RedisServer::start();
    let load = CheckedLoad::start(server.address(), shape());
    load.wait_replies(1000);
    let mut client = server.client();
    for _ in 0..300 {
        let value = client.words("GET load:0");
        if let Value::Bulk(value) = value {
            client.command(&[&b"SET"[..], b"load:1", &value]);
        }
        client.words("INCR load:count:0");
    }
    load.wait_replies(1000);
    let report = load.stop();
    assert!(!report.wrong.is_empty() && !report.doubled.is_empty(), "{report}");
    assert!(report.errors.is_empty(), "{report}");
}

#[test]
fn a_pause_is_measured_and_what_fails_in_it_is_not_held_against_the_server() {
    let _watchdog = watchdog(WITHIN, "a load on a server that pauses");
    let server = RedisServer::start();
    let load = CheckedLoad::start(server.address(), shape());
    load.wait_replies(1000);
    server.process().pause();
    wait_until("all clients have given up", WITHIN, || load.error_count() >= 4);
    server.process().resume();
    load.wait_replies(1000);
    let report = load.stop();
    report.assert_right();
    assert!(report.errors["(late)"] >= 4, "{report}");
    assert!(report.longest_pause >= Duration::from_millis(500), "{report}");
}

#[test]
fn errors_are_told_by_their_codes() {
    let _watchdog = watchdog(WITHIN, "a load that is refused");
    let server = RedisServer::start_with(&["--maxmemory", "1mb", "--requirepass", "s3cret"]);
    let load = CheckedLoad::start(
        server.address(),
        LoadShape { password: Some("s3cret".into()), ..shape() },
    );
    wait_until("there is an error", WITHIN, || load.reply_count() > 100);
    let report = load.stop();
    report.assert_right();
    assert!(report.errors.contains_key("OOM"), "{report}");
}
