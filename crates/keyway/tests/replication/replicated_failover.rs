//! Primaries behind sentinels that change often, and sentinels that are gone or know nothing.

use std::net::SocketAddr;
use std::time::Duration;

use keyway_testkit::{
    Action, CheckedLoad, Client, Keyway, KeywayConfig, LoadShape, Pool, Replicated,
    ScriptedBackend, Sentinels, Value, encode, handshake_reply, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(15);
/// This is a second, and more for a busy machine.
const FOLLOWED: Duration = Duration::from_secs(3);

fn start(sentinels: &Sentinels) -> Keyway {
    start_with(sentinels, &[])
}

fn start_with(sentinels: &Sentinels, others: &[SocketAddr]) -> Keyway {
    let all = [&sentinels.addresses(), others].concat();
    let listed: Vec<String> = all.iter().map(|address| format!("\"{address}\"")).collect();
    let pool = Pool::of_kind("main", "replicated")
        .with("sentinels", &format!("[{}]", listed.join(", ")))
        .with("primaries", "[\"mymaster\"]")
        .with("refresh", "\"200ms\"")
        .with("timeout", "\"2s\"");
    Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]))
}

fn set(client: &mut Client, key: &str) -> bool {
    client.command(&["SET", key, "v"]) == Value::simple("OK")
}

fn has(servers: &Replicated, address: SocketAddr, key: &str) -> bool {
    let server = servers.server_at(address).expect("one of ours");
    servers.client(server).command(&["GET", key]) == Value::bulk("v")
}

/// Returns whether a sentinel has seen that both servers are replicas. Until then it may demote a
/// server that another sentinel is about to promote.
fn sees_two_replicas(sentinels: &Sentinels, sentinel: usize) -> bool {
    let replicas = sentinels.ask(sentinel, "SENTINEL REPLICAS mymaster");
    let is_one = |replica: &Value| {
        let words: Vec<String> = replica.array().iter().map(Value::text).collect();
        let is = |name: &str, value: &str| words.windows(2).any(|pair| pair == [name, value]);
        is("role-reported", "slave") && is("master-link-status", "ok") && is("flags", "slave")
    };
    replicas.array().iter().filter(|replica| is_one(replica)).count() == 2
}

/// Returns how often the log has reported a new primary.
fn changes(keyway: &Keyway) -> usize {
    keyway.process().log().matches("a server is the primary now").count()
}

#[test]
fn without_sentinels_it_goes_on_as_it_was_and_follows_again_when_they_are_back() {
    let _watch = watchdog(Duration::from_secs(90), "all sentinels are gone");
    let servers = Replicated::start(2);
    let mut sentinels = Sentinels::start(3, 2, &[("mymaster", &servers)]);
    let keyway = start(&sentinels);
    let load = CheckedLoad::start(keyway.address(0), LoadShape::default());
    load.wait_replies(1_000);
    (0..3).for_each(|sentinel| sentinels.kill(sentinel));
    let unanswered = || keyway.metrics().sum("keyway_cluster_unanswered_questions_total", &[]);
    wait_until("nobody answers", SOON, || unanswered() > 3.0);
    let mut client = keyway.client(0);
    for nth in 0..200 {
        assert!(set(&mut client, &format!("alone:{nth}")), "the {nth}th");
    }
    let report = load.stop();
    assert!(report.wrong.is_empty() && report.doubled.is_empty(), "{report}");
    assert_eq!(changes(&keyway), 1);
    (0..3).for_each(|sentinel| sentinels.restart(sentinel));
    sentinels.wait_primary("mymaster", |_| true);
    let promoted = sentinels.failover("mymaster");
    wait_until("the new primary is followed", FOLLOWED, || {
        set(&mut client, "after") && has(&servers, promoted, "after")
    });
    assert!(has(&servers, promoted, "alone:199"));
    assert_eq!(changes(&keyway), 2);
}

#[test]
fn a_primary_that_flaps_is_followed_and_nothing_is_mixed_up() {
    let _watch = watchdog(Duration::from_secs(120), "a flapping primary");
    let mut servers = Replicated::start(2);
    let sentinels = Sentinels::start(3, 2, &[("mymaster", &servers)]);
    let keyway = start(&sentinels);
    let load = CheckedLoad::start(keyway.address(0), LoadShape::default());
    load.wait_replies(1_000);
    let mut client = keyway.client(0);
    let (mut primary, mut count) = (servers.address(0), 1);
    for round in 0..3 {
        // It answers no requests for a moment, too short for any sentinel to act.
        let now = servers.server_at(primary).expect("one of ours");
        servers.pause(now);
        assert_eq!(keyway.client(0).words("PING"), Value::simple("PONG"));
        servers.resume(now);
        let promoted = match round {
            0 => {
                servers.kill(now);
                sentinels.wait_primary("mymaster", |address| address != primary)
            }
            _ => sentinels.failover("mymaster"),
        };
        let key = format!("round:{round}");
        wait_until("it is followed", SOON, || {
            set(&mut client, &key) && has(&servers, promoted, &key)
        });
        if round == 0 {
            // It comes back as an empty primary, until the sentinels notice it.
            servers.restart(now);
            for nth in 0..300 {
                assert!(set(&mut client, &format!("kept:{nth}")), "the {nth}th");
            }
        }
        servers.wait_linked(servers.server_at(promoted).expect("one of ours"));
        wait_until("the sentinels have seen it", SOON, || {
            (0..3).all(|sentinel| sees_two_replicas(&sentinels, sentinel))
        });
        (primary, count) = (promoted, count + 1);
    }
    for nth in 0..300 {
        assert!(has(&servers, primary, &format!("kept:{nth}")), "the {nth}th");
    }
    let report = load.stop();
    // Writes that only the first primary had are lost, as they are without Keyway.
    assert!(report.wrong.is_empty() && report.doubled.is_empty(), "{report}");
    assert_eq!(changes(&keyway), count, "each once");
}

/// Starts a sentinel that always tells the first state.
fn stale_sentinel(servers: &Replicated) -> ScriptedBackend {
    let listed = servers.addresses();
    let flat = |words: &[(&str, String)]| {
        let words: Vec<String> =
            words.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        encode(&words)
    };
    let instance = |at: SocketAddr, flags: &str| {
        let (ip, port) = (at.ip().to_string(), at.port().to_string());
        let known = [("name", "mymaster".to_owned()), ("ip", ip), ("port", port)];
        let told = [("flags", flags.to_owned()), ("config-epoch", "0".to_owned())];
        flat(&[&known[..], &told[..], &[("master-link-status", "ok".to_owned())]].concat())
    };
    let first = listed[0];
    let address = encode(&[&first.ip().to_string(), &first.port().to_string()]);
    let primary = instance(first, "master");
    let replicas: Vec<u8> = listed[1..].iter().flat_map(|&at| instance(at, "slave")).collect();
    let replicas = [format!("*{}\r\n", listed.len() - 1).into_bytes(), replicas].concat();
    ScriptedBackend::start(move |request| {
        let word = request.get(1).map(|word| word.to_ascii_uppercase()).unwrap_or_default();
        match (handshake_reply(request), &word[..]) {
            (Some(reply), _) => Action::Reply(reply),
            (None, b"GET-MASTER-ADDR-BY-NAME") => Action::Reply(address.clone()),
            (None, b"MASTER") => Action::Reply(primary.clone()),
            (None, b"SLAVES") => Action::Reply(replicas.clone()),
            (None, _) => Action::Reply(b"+PONG\r\n".to_vec()),
        }
    })
}

#[test]
fn a_sentinel_that_has_missed_a_fail_over_is_not_believed() {
    let _watch = watchdog(Duration::from_secs(90), "a stale sentinel");
    let servers = Replicated::start(2);
    let mut sentinels = Sentinels::start(3, 2, &[("mymaster", &servers)]);
    let stale = stale_sentinel(&servers);
    let keyway = start_with(&sentinels, &[stale.address()]);
    let mut client = keyway.client(0);
    assert!(set(&mut client, "before"));
    let promoted = sentinels.failover("mymaster");
    wait_until("it is followed", FOLLOWED, || {
        set(&mut client, "after") && has(&servers, promoted, "after")
    });
    servers.wait_linked(servers.server_at(promoted).expect("one of ours"));
    // Then there is no other sentinel.
    (0..3).for_each(|sentinel| sentinels.kill(sentinel));
    let before = stale.requests();
    wait_until("it has been asked", SOON, || stale.requests() >= before + 20);
    for nth in 0..100 {
        let key = format!("stale:{nth}");
        assert!(set(&mut client, &key), "the {nth}th");
        assert!(has(&servers, promoted, &key), "the {nth}th");
    }
    assert_eq!(changes(&keyway), 2, "nobody went back");
}
