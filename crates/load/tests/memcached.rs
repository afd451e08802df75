//! The generator against a real memcached, in its three protocols.

mod support;

use keyway_load::{
    CommandKind, Flow, Protocol, Sizes, Target, Workload, parse_template, run, ycsb,
};
use keyway_testkit::{MemcachedServer, TempDir, has_memcached};
use std::time::Duration;
use support::{expect_clean, fill, go, plan, target, workload};

const PROTOCOLS: [Protocol; 3] =
    [Protocol::MemcachedText, Protocol::MemcachedMeta, Protocol::MemcachedBinary];

#[test]
fn each_protocol_reads_what_it_wrote() {
    if !has_memcached("load in memcached's protocols") {
        return;
    }
    for protocol in PROTOCOLS {
        let server = MemcachedServer::start();
        let to = target(server.address(), protocol);
        let mut load = workload("set:1,get:3,mget_20:1,del:0", 400);
        load.sizes = Sizes::Range(1, 3000);
        fill(&load, &to);
        let outcome = go(&load, &to, &plan(10_000));
        expect_clean(&outcome, 10_000);
        assert_eq!(outcome.totals.misses, 0, "{protocol}");
        let mget = outcome.classes.iter().find(|class| class.name == "mget_20").unwrap();
        assert_eq!(mget.hits, mget.requests * 20, "{protocol}");
        let none = go(&workload("get", 1_000_000_000), &to, &plan(1000));
        assert!(none.totals.misses > 990, "{protocol}");
        let few = go(&workload("mget_5", 1_000_000_000), &to, &plan(1000));
        assert!(
            few.totals.misses > 4990 && few.totals.hits + few.totals.misses == 5000,
            "{protocol}"
        );
    }
}

#[test]
fn each_protocol_is_verified() {
    if !has_memcached("verification in memcached's protocols") {
        return;
    }
    for protocol in PROTOCOLS {
        let server = MemcachedServer::start();
        let mut load = workload("set:2,get:1,mget_10:1", 300);
        load.is_verified = true;
        load.sizes = Sizes::Range(48, 400);
        let outcome = go(&load, &target(server.address(), protocol), &plan(10_000));
        expect_clean(&outcome, 10_000);
        let found = outcome.verification.unwrap();
        assert!(found.is_clean() && found.checked > 20_000, "{protocol}: {found:?}");
    }
}

#[test]
fn the_other_commands_are_understood() {
    if !has_memcached("other commands in memcached's protocols") {
        return;
    }
    for protocol in PROTOCOLS {
        let server = MemcachedServer::start();
        let to = target(server.address(), protocol);
        let mut load = workload("set:1,setex:1,touch:1,del:1", 100);
        load.expiry = Some((50, 50));
        expect_clean(&go(&load, &to, &plan(2000)), 2000);
        let mut counters = workload("incr", 10);
        counters.keys.prefix = "counter:".to_owned();
        let outcome = go(&counters, &to, &plan(500));
        assert_eq!((outcome.totals.requests, outcome.totals.errors), (500, 0), "{protocol}");
    }
}

#[test]
fn several_keys_are_written_in_pieces_and_records_as_values() {
    if !has_memcached("writes of several keys, and YCSB") {
        return;
    }
    for protocol in PROTOCOLS {
        let server = MemcachedServer::start();
        let to = target(server.address(), protocol);
        let mut load = workload("mset_7:1,mget_3:1", 300);
        load.is_verified = true;
        let outcome = go(&load, &to, &plan(2000));
        expect_clean(&outcome, 2000);
        assert!(outcome.verification.unwrap().is_clean(), "{protocol}");
        let stored = |server: &MemcachedServer| {
            let stats = server.client().say("stats\r\n");
            let number = stats.lines().find_map(|line| line.strip_prefix("STAT cmd_set "));
            number.unwrap().trim().parse::<u64>().unwrap()
        };
        assert_eq!(stored(&server), outcome.classes[0].requests * 7, "{protocol}");
        for letter in ['a', 'b', 'c', 'd', 'f'] {
            let load = ycsb(letter, 200).unwrap();
            fill(&load, &to);
            let outcome = go(&load, &to, &plan(1000));
            expect_clean(&outcome, 1000);
            // Of D what is newest is read, though it may not be acknowledged.
            let inserts = outcome.classes.iter().find(|class| class.name == "insert");
            let misses_max = inserts.map_or(0, |class| class.requests);
            assert!(outcome.totals.misses <= misses_max, "{protocol} {letter}");
        }
        let key = "user6284781860667377211";
        let reply = server.client().say(&format!("get {key}\r\n"));
        let value = reply.lines().nth(1).unwrap();
        let record: serde_json::Value = serde_json::from_str(value).unwrap();
        let fields = record.as_object().unwrap();
        assert!(fields.len() == 10 && fields["field9"].as_str().unwrap().len() == 100, "{value}");
        let scans = ycsb('e', 200).unwrap();
        let refused = run(&scans, &to, &plan(10), &[], &mut |_| Flow::Continue).unwrap_err();
        assert!(refused.to_string().contains("cannot be said in memcached"), "{refused}");
    }
}

#[test]
fn a_password_is_said_in_each_protocol() {
    if !has_memcached("passwords of memcached") {
        return;
    }
    let directory = TempDir::new();
    let file = directory.path().join("users");
    std::fs::write(&file, "alice:secret\n").unwrap();
    let server = MemcachedServer::start_with(&["-Y", file.to_str().unwrap()]);
    let load = workload("set:1,get:1", 100);
    let check = |to: &mut Target| {
        to.patience = Duration::from_secs(3);
        let error = |to: &Target| {
            run(&load, to, &plan(10), &[], &mut |_| Flow::Continue).unwrap_err().to_string()
        };
        let none = error(to);
        assert!(none.contains("refuses") || none.contains("closes"), "{none}");
        (to.user, to.password) = (Some("alice".to_owned()), Some("wrong".to_owned()));
        assert!(error(to).contains("refuses"), "{}", error(to));
        to.password = Some("secret".to_owned());
        expect_clean(&go(&load, to, &plan(1000)), 1000);
    };
    check(&mut target(server.address(), Protocol::MemcachedText));
    if let Some(server) = MemcachedServer::start_with_sasl("alice", "secret") {
        check(&mut target(server.address(), Protocol::MemcachedBinary));
    }
}

#[test]
fn lines_of_text_are_templates_too() {
    if !has_memcached("templates in memcached's protocol") {
        return;
    }
    let server = MemcachedServer::start();
    let to = target(server.address(), Protocol::MemcachedText);
    let command = |text: &str| {
        let kind = CommandKind::Words(parse_template(text).unwrap());
        (keyway_load::Command { name: text.to_owned(), kind }, 1)
    };
    let commands = vec![command("set x-__key__ 0 0 __data__"), command("gets x-__key__")];
    let mut load = Workload::new("lines", commands);
    load.keys.count = 10;
    let outcome = go(&load, &to, &plan(1000));
    expect_clean(&outcome, 1000);
    assert!(outcome.totals.hits > 300);
    let mut large = workload("set", 10);
    large.sizes = Sizes::Fixed(1_100_000);
    let outcome = go(&large, &to, &plan(20));
    assert_eq!((outcome.totals.requests, outcome.totals.errors), (20, 20));
    assert_eq!(outcome.errors[0].kind, "SERVER_ERROR");
    assert_eq!((outcome.totals.per_second, outcome.totals.good()), (0.0, 0));
    assert_eq!((outcome.latency.count, outcome.failed_latency.count), (0, 20));
}
