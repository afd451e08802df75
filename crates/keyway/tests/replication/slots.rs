//! Groups of servers that share slots.

use keyway_testkit::conformance::{Family, Target, differential, run, whole};
use keyway_testkit::{
    CheckedLoad, Client, Keyway, KeywayConfig, LoadShape, Pool, RedisServer, Replicated, Value,
    wait_until, watchdog,
};
use std::net::SocketAddr;
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(15);

fn list(addresses: &[SocketAddr]) -> String {
    let quoted: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

/// Returns a pool in which each of the groups has an equal share of the slots. They are named `g0`
/// and so on.
fn pool(slots: usize, groups: &[Vec<SocketAddr>]) -> Pool {
    let share = slots / groups.len();
    let group = |(number, servers): (usize, &Vec<SocketAddr>)| {
        let end = if number + 1 == groups.len() { slots } else { (number + 1) * share };
        let (first, last) = (number * share, end - 1);
        let servers = list(servers);
        format!("{{ name = \"g{number}\", servers = {servers}, slots = \"{first}-{last}\" }}")
    };
    let groups: Vec<String> = groups.iter().enumerate().map(group).collect();
    Pool::of_kind("main", "slots")
        .with("slots", &slots.to_string())
        .with("groups", &format!("[{}]", groups.join(", ")))
        .with("refresh", "\"200ms\"")
}

fn over(slots: usize, servers: &[RedisServer]) -> Pool {
    let groups: Vec<Vec<SocketAddr>> = servers.iter().map(|it| vec![it.address()]).collect();
    pool(slots, &groups)
}

fn ok(client: &mut Client, key: &str) -> bool {
    client.command(&["SET", key, "v"]) == Value::simple("OK")
}

#[test]
fn groups_answer_as_one_server_does() {
    let _watch = watchdog(Duration::from_secs(120), "conformance of groups");
    let servers = RedisServer::start_many(3);
    let reference = RedisServer::start();
    let pools = vec![
        Pool::over("plain", &servers[..1]),
        over(1024, &servers).with("timeout", "\"60s\"").with("allow_flush", "true"),
    ];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let families = ["types", "streams", "scripts", "keyway"];
    let target = Target::new("slots pool", keyway.address(1), &families);
    run(&target).assert_clean(&target);
    whole(&target);
    for seed in 0..3 {
        let bare = Target::new("redis", reference.address(), &[]);
        differential(&target, &bare, Family::Strings, seed, 5_000);
    }
}

#[test]
fn a_key_is_at_the_group_of_its_slot() {
    let _watch = watchdog(Duration::from_secs(60), "slots of keys");
    // Slots of Codis are CRC-32 modulo 1024, and an empty tag is one. Those of Redis Cluster are
    // CRC-16 modulo 16384, as CLUSTER KEYSLOT says, and an empty tag is none.
    let codis = [("a", 579), ("foo", 289), ("x{foo}y", 289), ("x{}y", 0), ("bar", 170)];
    let cluster =
        [("a", 15495), ("foo", 12182), ("x{foo}y", 12182), ("bar", 5061), ("x{}y", 16116)];
    for (slots, keys) in [(1024, codis), (16384, cluster)] {
        let servers = RedisServer::start_many(4);
        let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![over(slots, &servers)]));
        let mut client = keyway.client(0);
        for (key, slot) in keys {
            assert!(ok(&mut client, key));
            let group = slot * 4 / slots;
            let has = |at: usize| servers[at].client().command(&["EXISTS", key]);
            let found: Vec<usize> = (0..4).filter(|&at| has(at) == Value::Integer(1)).collect();
            assert_eq!(found, [group], "{key} of {slots} slots");
        }
    }
}

#[test]
fn a_request_has_keys_of_one_slot_or_is_split() {
    let _watch = watchdog(Duration::from_secs(60), "keys of several slots");
    let servers = RedisServer::start_many(2);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![over(1024, &servers)]));
    let mut client = keyway.client(0);
    // The slots 289 and 170 belong to one group.
    for request in
        ["SINTER foo bar", "RENAME foo bar", "LMOVE foo bar LEFT LEFT", "BLPOP foo bar 0"]
    {
        let refused = client.words(request).error_text();
        assert!(refused.starts_with("CROSSSLOT") && refused.contains("2 slots"), "{refused}");
    }
    assert_eq!(client.words("MSET a 1 bar 2 foo 3 {foo}2 4"), Value::simple("OK"));
    let all = ["1", "2", "3", "4"].map(Value::bulk);
    assert_eq!(client.words("MGET a bar foo {foo}2"), Value::Array(all.to_vec()));
    assert_eq!(client.words("DBSIZE"), Value::Integer(4));
    assert_eq!(client.words("EVAL return{redis.call('GET',KEYS[1])} 1 foo"), {
        Value::Array(vec![Value::bulk("3")])
    });
    let refused = client.words("EVAL return{} 2 foo bar");
    assert!(refused.error_text().starts_with("CROSSSLOT"), "{refused:?}");
    // A transaction has keys of one slot.
    assert_eq!(client.words("WATCH foo"), Value::simple("OK"));
    assert_eq!(client.words("MULTI"), Value::simple("OK"));
    assert_eq!(client.words("INCR foo"), Value::simple("QUEUED"));
    assert_eq!(client.words("INCR {foo}2"), Value::simple("QUEUED"));
    assert_eq!(client.words("EXEC"), Value::Array([4, 5].map(Value::Integer).to_vec()));
    assert_eq!(client.words("MULTI"), Value::simple("OK"));
    assert_eq!(client.words("INCR foo"), Value::simple("QUEUED"));
    let refused = client.words("INCR bar");
    assert!(refused.error_text().starts_with("CROSSSLOT"), "{refused:?}");
    assert!(client.words("EXEC").error_text().starts_with("EXECABORT"));
    // Messages arrive whichever group has the channel.
    let mut ear = keyway.client(0);
    ear.words("PSUBSCRIBE news:*");
    for nth in 0..20 {
        assert_eq!(client.words(&format!("PUBLISH news:{nth} text")), Value::Integer(1));
        assert_eq!(ear.reply().array()[2], Value::bulk(format!("news:{nth}")));
    }
}

#[test]
fn a_fail_over_in_one_group_concerns_no_other() {
    let _watch = watchdog(Duration::from_secs(90), "a fail-over in one of two groups");
    let mut failing = Replicated::start(1);
    let steady = Replicated::start(1);
    let groups = [failing.addresses(), steady.addresses()];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool(1024, &groups)]));
    let mut client = keyway.client(0);
    // The slots 289 and 579.
    assert!(ok(&mut client, "foo") && ok(&mut client, "a"));
    let shape = LoadShape { prefix: "{a}".to_owned(), ..LoadShape::default() };
    let load = CheckedLoad::start(keyway.address(0), shape);
    load.wait_replies(500);
    failing.kill(0);
    failing.promote(1);
    wait_until("the replica is the primary", SOON, || ok(&mut client, "foo"));
    assert_eq!(failing.client(1).command(&["GET", "foo"]), Value::bulk("v"));
    load.wait_replies(500);
    let report = load.stop();
    report.assert_clean();
}

#[test]
fn a_group_that_is_down_is_named_and_the_others_serve() {
    let _watch = watchdog(Duration::from_secs(60), "a group that is down");
    let mut down = RedisServer::start();
    let up = RedisServer::start();
    let groups = [vec![down.address()], vec![up.address()]];
    down.kill();
    let pool = pool(1024, &groups).with("timeout", "\"300ms\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    assert!(ok(&mut client, "a"));
    let text = client.words("SET foo v").error_text();
    assert!(text.contains("group g0"), "{text}");
    assert!(ok(&mut client, "a"));
    down.restart();
    wait_until("the group is back", SOON, || ok(&mut client, "foo"));
}
