//! Primaries with replicas, found through Sentinel or listed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use keyway_testkit::{
    CheckedLoad, Client, Keyway, KeywayConfig, LoadShape, Pool, RedisServer, Replicated, Sentinels,
    TempDir, Value, encode, free_address, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(15);

fn list(addresses: &[SocketAddr]) -> String {
    let quoted: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

fn through(sentinels: &Sentinels, names: &[&str]) -> Pool {
    let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    Pool::of_kind("main", "replicated")
        .with("sentinels", &list(&sentinels.addresses()))
        .with("primaries", &format!("[{}]", names.join(", ")))
        .with("refresh", "\"200ms\"")
}

fn listed(servers: &Replicated) -> Pool {
    Pool::of_kind("main", "replicated")
        .with("servers", &list(&servers.addresses()))
        .with("refresh", "\"200ms\"")
}

/// Returns the number of requests that Keyway has sent to a server.
fn asked(keyway: &Keyway, address: SocketAddr) -> f64 {
    keyway.metrics().sum("keyway_backend_requests_total", &[&format!("backend=\"{address}\"")])
}

fn set(client: &mut Client, key: &str) -> bool {
    client.command(&["SET", key, "v"]) == Value::simple("OK")
}

#[test]
fn a_fail_over_by_sentinel_is_followed_and_what_a_client_reads_is_right() {
    let _watch = watchdog(Duration::from_secs(90), "a fail-over by sentinel");
    let mut servers = Replicated::start(2);
    let mut sentinels = Sentinels::start(3, 2, &[("mymaster", &servers)]);
    let pool = through(&sentinels, &["mymaster"]);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    assert!(set(&mut client, "before"));
    // A new replica is sent nothing for a second.
    let has = |server: usize| servers.client(server).command(&["GET", "before"]) != Value::Nil;
    wait_until("it is copied", SOON, || has(1) && has(2));

    servers.kill(0);
    let promoted = sentinels.wait_primary("mymaster", |address| address != servers.address(0));
    // This is a second, and more for a busy machine.
    let within = Duration::from_secs(3);
    wait_until("soon behind the sentinels", within, || set(&mut client, "after"));
    assert_eq!(client.command(&["GET", "before"]), Value::bulk("v"));
    let new = servers.server_at(promoted).expect("one of ours");
    assert_eq!(servers.client(new).command(&["GET", "after"]), Value::bulk("v"));

    // All sentinels restart at once, and a former primary comes back as a replica.
    sentinels.restart_all();
    servers.restart(0);
    wait_until("the old primary is a replica", SOON, || servers.primaries() == [new]);
    for nth in 0..50 {
        assert!(set(&mut client, &format!("k{nth}")), "nobody else was the primary meanwhile");
    }
    let log = keyway.process().log();
    assert_eq!(log.matches("a server is the primary now").count(), 2, "{log}");
}

#[test]
fn a_manual_fail_over_under_load_loses_nothing_that_redis_does_not() {
    let _watch = watchdog(Duration::from_secs(90), "a manual fail-over");
    let servers = Replicated::start(2);
    let sentinels = Sentinels::start(3, 2, &[("mymaster", &servers)]);
    let pool = through(&sentinels, &["mymaster"]).with("timeout", "\"3s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let load = CheckedLoad::start(keyway.address(0), LoadShape::default());
    load.wait_replies(2_000);
    let promoted = sentinels.failover("mymaster");
    wait_until("the new primary serves", SOON, || asked(&keyway, promoted) > 1000.0);
    let report = load.stop();
    // Sentinel does not stop the old primary before the new one takes over, so writes in between
    // are lost with any client. But nothing is mixed up.
    assert!(report.wrong.is_empty() && report.doubled.is_empty(), "{report}");
}

#[test]
fn several_primaries_share_the_keys_by_their_names() {
    let _watch = watchdog(Duration::from_secs(60), "several primaries");
    let groups = [Replicated::start(1), Replicated::start(1), Replicated::start(1)];
    let names = ["alpha", "beta", "gamma"];
    let watched: Vec<(&str, &Replicated)> = names.into_iter().zip(&groups).collect();
    let sentinels = Sentinels::start(1, 1, &watched);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![through(&sentinels, &names)]));
    let mut client = keyway.client(0);
    let keys: Vec<String> = (0..300).map(|nth| format!("key:{nth}")).collect();
    let pairs = keys.iter().flat_map(|key| [key.as_str(), "v"]);
    let request: Vec<&str> = ["MSET"].into_iter().chain(pairs).collect();
    assert_eq!(client.command(&request), Value::simple("OK"));
    let held: Vec<i64> = groups
        .iter()
        .map(|group| match group.ask(0, "DBSIZE") {
            Value::Integer(count) => count,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(held.iter().sum::<i64>(), 300, "{held:?}");
    assert!(held.iter().all(|&count| count > 40), "{held:?}");
    let request: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(client.command(&request), Value::Array(vec![Value::bulk("v"); 300]));
    assert_eq!(client.words("DBSIZE"), Value::Integer(300));
    // Messages published at any of the primaries arrive, although the primaries do not exchange
    // messages.
    let mut ear = keyway.client(0);
    ear.words("PSUBSCRIBE news:*");
    for nth in 0..20 {
        assert_eq!(client.words(&format!("PUBLISH news:{nth} text")), Value::Integer(1));
        assert_eq!(ear.reply().array()[2], Value::bulk(format!("news:{nth}")));
    }
}

#[test]
fn servers_that_are_listed_are_asked_which_is_the_primary() {
    let _watch = watchdog(Duration::from_secs(60), "listed servers");
    let mut servers = Replicated::start(2);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![listed(&servers)]));
    let mut client = keyway.client(0);
    assert!(set(&mut client, "a"));
    servers.promote(1);
    // A write that the demoted server refuses goes to the new primary.
    for nth in 0..50 {
        let reply = client.command(&["SET", &format!("k{nth}"), "v"]);
        assert_eq!(reply, Value::simple("OK"), "the {nth}th");
    }
    assert_eq!(servers.client(1).command(&["GET", "k49"]), Value::bulk("v"));
    servers.kill(1);
    servers.promote(2);
    wait_until("the last one is the primary", SOON, || set(&mut client, "b"));
    assert_eq!(servers.client(2).command(&["GET", "b"]), Value::bulk("v"));
}

#[test]
fn a_transaction_may_begin_at_one_primary_and_end_at_the_next() {
    let _watch = watchdog(Duration::from_secs(60), "a transaction and a fail-over");
    let servers = Replicated::start(1);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![listed(&servers)]));
    let (mut client, mut guarded) = (keyway.client(0), keyway.client(0));
    let (ok, queued) = (Value::simple("OK"), Value::simple("QUEUED"));
    assert_eq!(guarded.words("WATCH a"), ok);
    assert_eq!(client.words("MULTI"), ok);
    assert_eq!(client.words("INCR a"), queued);
    assert_eq!(client.words("PUBLISH channel text"), queued);
    servers.promote(1);
    assert!(set(&mut keyway.client(0), "known"));
    assert_eq!(client.words("INCR b"), queued);
    let one = Value::Integer(1);
    assert_eq!(client.words("EXEC"), Value::Array(vec![one.clone(), Value::Integer(0), one]));
    assert_eq!(servers.client(1).command(&["GET", "b"]), Value::bulk("1"));
    // The key is not watched on the server where it is now.
    assert_eq!(guarded.words("MULTI"), ok);
    assert_eq!(guarded.words("GET a"), queued);
    assert!(matches!(guarded.words("EXEC"), Value::Nil | Value::NilArray));
}

#[test]
fn reads_go_to_replicas_in_turns_and_to_the_primary_behind_a_write() {
    let _watch = watchdog(Duration::from_secs(60), "reads from replicas");
    let mut servers = Replicated::start(2);
    let pool = listed(&servers)
        .with("read_from", "\"prefer-replica\"")
        .with("pin_after_write", "\"400ms\"")
        .with("read_from_primary", "[\"ttl\"]");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    assert!(set(&mut client, "k"));
    let at: Vec<SocketAddr> = servers.addresses();
    let counts = |keyway: &Keyway| [0, 1, 2].map(|server| asked(keyway, at[server]));
    let before = counts(&keyway);
    for _ in 0..10 {
        assert_eq!(client.command(&["GET", "k"]), Value::bulk("v"), "its own write is read");
    }
    let pinned = counts(&keyway);
    assert_eq!(pinned[0] - before[0], 10.0, "{before:?} {pinned:?}");
    // A new replica is sent nothing for a second.
    let has = |server: usize| servers.client(server).command(&["GET", "k"]) == Value::bulk("v");
    wait_until("it is copied", SOON, || has(1) && has(2));
    wait_until("the write was long ago", SOON, || {
        client.command(&["GET", "k"]);
        counts(&keyway)[1] > pinned[1]
    });
    let pinned = counts(&keyway);
    for _ in 0..40 {
        assert_eq!(client.command(&["GET", "k"]), Value::bulk("v"));
        assert!(client.command(&["TTL", "k"]) == Value::Integer(-1));
    }
    assert_eq!(client.command(&["MGET", "k", "none"]).array().len(), 2);
    let spread = counts(&keyway);
    let grown = [0, 1, 2].map(|server| spread[server] - pinned[server]);
    assert_eq!(grown[0], 40.0, "TTL alone: {grown:?}");
    assert!(grown[1] >= 20.0 && grown[2] >= 20.0, "in turns: {grown:?}");
    // Without replicas the primary is read.
    servers.kill(1);
    servers.kill(2);
    wait_until("the primary is read", SOON, || client.command(&["GET", "k"]) == Value::bulk("v"));
}

#[test]
fn a_replica_that_loads_its_data_is_not_waited_for() {
    let _watch = watchdog(Duration::from_secs(60), "a replica that loads");
    let servers = Replicated::start(1);
    let pool = listed(&servers).with("read_from", "\"prefer-replica\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    for server in 0..2 {
        // No replica gets these keys.
        let populated = servers.client(server).words("DEBUG POPULATE 2500");
        assert_eq!(populated, Value::simple("OK"));
    }
    let at = servers.addresses()[1];
    let before = asked(&keyway, at);
    wait_until("the replica has it, and is read", SOON, || {
        client.words("GET key:1") == Value::bulk("value:1") && asked(&keyway, at) > before
    });
    let (mut loading, mut replica) = (servers.client(1), servers.client(1));
    // Loading takes 4 ms a key, and other requests are answered after every few keys.
    for setting in ["key-load-delay 4000", "loading-process-events-interval-bytes 1024"] {
        assert_eq!(loading.words(&format!("CONFIG SET {setting}")), Value::simple("OK"));
    }
    loading.send(b"DEBUG RELOAD\r\n");
    let mut is_loading = || {
        let reply = replica.words("GET key:1");
        matches!(&reply, Value::Error(_)) && reply.error_text().starts_with("LOADING")
    };
    wait_until("it loads", SOON, &mut is_loading);
    let asked_before = asked(&keyway, at);
    for _ in 0..20 {
        for key in 0..10 {
            client.send(&encode(&["GET", &format!("key:{key}")]));
        }
        for key in 0..10 {
            assert_eq!(client.reply(), Value::bulk(format!("value:{key}")));
        }
    }
    assert!(is_loading(), "all of it was read meanwhile");
    let more = asked(&keyway, at) - asked_before;
    assert!(more < 100.0, "{more} of 200 reads went to the replica first");
}

#[test]
fn who_empties_everything_reads_from_the_primary_then() {
    let _watch = watchdog(Duration::from_secs(60), "FLUSHALL");
    let servers = Replicated::start(1);
    let pool = listed(&servers)
        .with("read_from", "\"replica\"")
        .with("allow_flush", "true")
        .with("pin_after_write", "\"30s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    assert_eq!(servers.client(0).words("SET a 1"), Value::simple("OK"));
    wait_until("it is copied", SOON, || client.words("GET a") == Value::bulk("1"));
    let at = servers.addresses()[1];
    let before = asked(&keyway, at);
    assert_eq!(client.words("FLUSHALL"), Value::simple("OK"));
    for _ in 0..10 {
        assert_eq!(client.words("GET a"), Value::Nil);
    }
    assert!(asked(&keyway, at) <= before, "the primary has answered");
}

#[test]
fn replicas_alone_are_read_where_that_is_asked_for_and_an_error_says_that_none_is_there() {
    let _watch = watchdog(Duration::from_secs(60), "replicas alone");
    let mut servers = Replicated::start(1);
    let pool = listed(&servers).with("read_from", "\"replica\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    assert!(set(&mut client, "k"));
    wait_until("it is copied", SOON, || client.command(&["GET", "k"]) == Value::bulk("v"));
    servers.kill(1);
    let mut said = BTreeSet::new();
    wait_until("no replica is there", SOON, || {
        let text = client.command(&["GET", "k"]).error_text();
        said.insert(text.clone());
        text.contains("no replica of it may be read now")
    });
    assert!(set(&mut client, "k"), "writes go on: {said:?}");
}

#[test]
fn a_listener_may_read_otherwise_than_its_pool() {
    let _watch = watchdog(Duration::from_secs(60), "reads by listener");
    let servers = Replicated::start(1);
    let pool = listed(&servers).with("read_from_primary", "[\"ttl\"]");
    let keyway = Keyway::start(
        KEYWAY,
        KeywayConfig::new(vec![
            pool.clone().with_listener("read_from", "\"replica\""),
            pool.clone(),
            pool.clone().with_listener("read_from", "\"primary\""),
            Pool::of_kind("guarded", "rate-limited")
                .with("child", "\"main\"")
                .with("requests_per_second", "1000000"),
            Pool::of_kind("spare", "failover").with("children", "[\"main\", \"local\"]"),
            Pool::store("local"),
        ]),
    );
    assert!(set(&mut keyway.client(1), "k"));
    let copied = || servers.client(1).command(&["GET", "k"]) == Value::bulk("v");
    wait_until("it is copied", SOON, copied);
    let gets = |server: usize| {
        let text = servers.ask(server, "INFO commandstats").text();
        let line = text.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls="));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    // A client that comes through other pools is not a client of any of its listeners.
    for (listener, reads) in [(0, [0, 20]), (1, [20, 0]), (2, [20, 0]), (3, [20, 0]), (4, [20, 0])]
    {
        let mut client = keyway.client(listener);
        let before = [gets(0), gets(1)];
        for _ in 0..20 {
            assert_eq!(client.command(&["GET", "k"]), Value::bulk("v"));
            assert_eq!(client.words("MGET k k").array().len(), 2);
            assert_eq!(client.words("TTL k"), Value::Integer(-1));
        }
        let grown = [gets(0) - before[0], gets(1) - before[1]];
        assert_eq!(grown, reads, "listener {listener}");
        assert!(set(&mut client, "other"));
    }
}

#[test]
fn a_user_may_read_otherwise_than_its_listener() {
    let _watch = watchdog(Duration::from_secs(60), "reads by user");
    let servers = Replicated::start(1);
    let user = |name: &str, more: &str| {
        format!("[[user]]\nname = {name:?}\nrules = \"nopass ~* &* +@all\"\n{more}\n")
    };
    let users = [
        user("latest", "read_from = \"primary\""),
        user("light", "read_from = \"replica\""),
        user("default", ""),
    ];
    let pool = listed(&servers);
    let keyway = Keyway::start(
        KEYWAY,
        KeywayConfig::new(vec![pool.clone(), pool.with_listener("read_from", "\"replica\"")])
            .with_tables(&users.concat()),
    );
    assert!(set(&mut keyway.client(0), "k"));
    let copied = || servers.client(1).command(&["GET", "k"]) == Value::bulk("v");
    wait_until("it is copied", SOON, copied);
    let gets = |server: usize| {
        let text = servers.ask(server, "INFO commandstats").text();
        let line = text.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls="));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    let cases = [(0, "default", [20, 0]), (0, "light", [0, 20]), (0, "latest", [20, 0])];
    let others = [(1, "default", [0, 20]), (1, "light", [0, 20]), (1, "latest", [20, 0])];
    for (listener, name, reads) in cases.into_iter().chain(others) {
        let mut client = keyway.client(listener);
        assert_eq!(client.command(&["AUTH", name, "x"]), Value::simple("OK"));
        let before = [gets(0), gets(1)];
        for _ in 0..20 {
            assert_eq!(client.command(&["GET", "k"]), Value::bulk("v"));
        }
        assert_eq!([gets(0) - before[0], gets(1) - before[1]], reads, "{name} at {listener}");
    }
    // A connection may change its user.
    let mut client = keyway.client(0);
    for (name, reads) in [("light", [0, 5]), ("latest", [5, 0]), ("light", [0, 5])] {
        assert_eq!(client.command(&["AUTH", name, "x"]), Value::simple("OK"));
        let before = [gets(0), gets(1)];
        (0..5).for_each(|_| assert_eq!(client.command(&["GET", "k"]), Value::bulk("v")));
        assert_eq!([gets(0) - before[0], gets(1) - before[1]], reads, "{name}");
    }
}

#[test]
fn the_password_of_sentinels_may_be_in_a_file() {
    let _watch = watchdog(Duration::from_secs(60), "a password of sentinels");
    let servers = Replicated::start(1);
    let sentinels = Sentinels::start_with(1, 1, &[("mymaster", &servers)], Some("sesame"));
    let directory = TempDir::new();
    let file = directory.write("secret", "sesame\n");
    let pool = through(&sentinels, &["mymaster"])
        .with("sentinel_password_file", &format!("{:?}", file.to_str().unwrap()));
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    assert!(set(&mut keyway.client(0), "k"));
    assert!(!keyway.process().log().contains("sesame"));
}

/// Primaries list their replicas by the names that these announce.
#[test]
fn replicas_that_announce_host_names_are_found_in_what_their_primary_says() {
    let _watch = watchdog(Duration::from_secs(60), "announced names");
    let servers = Replicated::start_with(2, &["--replica-announce-ip", "localhost"], None);
    let told = servers.ask(0, "INFO replication").text();
    assert!(told.contains("ip=localhost"), "{told}");
    let pool = listed(&servers).with("read_from", "\"replica\"").with("replica_lag_max", "\"10s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    assert!(set(&mut client, "k"));
    let at = [1, 2].map(|server| servers.address(server));
    wait_until("both replicas are read", SOON, || {
        client.command(&["GET", "k"]) == Value::bulk("v")
            && at.iter().all(|&address| asked(&keyway, address) > 5.0)
    });
    let log = keyway.process().log();
    assert!(!log.contains("none by an address that is known here"), "{log}");
    let info = client.words("INFO backends").text();
    assert_eq!(info.matches("lag_ms=").count(), 2, "{info}");
}

/// Returns addresses of this machine that share a port, each with a name that resolves to it and is
/// not itself written as an address.
fn on_one_port(count: u8) -> Vec<(SocketAddr, String)> {
    let port = free_address().port();
    let own = |number: u8| SocketAddr::from(([127, 0, 0, number], port));
    (2..2 + count).map(|number| (own(number), format!("127.0.{number}"))).collect()
}

/// Replicas on other hosts have the same port, and their names are known on one side only.
#[test]
fn replicas_with_one_port_are_told_apart_by_where_their_names_lead() {
    let _watch = watchdog(Duration::from_secs(120), "names on one port");
    for announces_names in [true, false] {
        let hosts = on_one_port(3);
        let (host, port) = (hosts[0].0.ip().to_string(), hosts[0].0.port().to_string());
        let servers: Vec<RedisServer> = hosts
            .iter()
            .enumerate()
            .map(|(nth, (address, name))| {
                let ip = address.ip().to_string();
                let own = if announces_names { name } else { &ip };
                let announce = ["--replica-announce-ip", own, "--repl-diskless-sync-delay", "0"];
                let of = ["--replicaof", &host, &port];
                let of = if nth == 0 { &of[..0] } else { &of[..] };
                RedisServer::start_at(*address, &[&announce[..], of].concat())
            })
            .collect();
        let told = || servers[0].client().words("INFO replication").text();
        wait_until("replicas are linked", SOON, || told().matches("state=online").count() == 2);
        let name = &hosts[1].1;
        assert_eq!(told().contains(&format!("ip={name},")), announces_names, "{}", told());
        let known = |(address, name): &(SocketAddr, String)| match announces_names {
            true => format!("\"{address}\""),
            false => format!("\"{name}:{port}\""),
        };
        let known: Vec<String> = hosts.iter().map(known).collect();
        let pool = Pool::of_kind("main", "replicated")
            .with("servers", &format!("[{}]", known.join(", ")))
            .with("refresh", "\"200ms\"")
            .with("read_from", "\"replica\"")
            .with("replica_lag_max", "\"10s\"");
        let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
        let mut client = keyway.client(0);
        wait_until("the primary is known", SOON, || set(&mut client, "k"));
        let reads = |name: &str| {
            let label = format!("backend={name}");
            keyway.metrics().sum("keyway_backend_requests_total", &[&label])
        };
        wait_until("both replicas are read", SOON, || {
            client.command(&["GET", "k"]) == Value::bulk("v")
                && known[1..].iter().all(|name| reads(name) > 5.0)
        });
        let info = client.words("INFO backends").text();
        assert_eq!(info.matches("lag_ms=").count(), 2, "{info}");
        let log = keyway.process().log();
        assert!(!log.contains("none by an address that is known here"), "{log}");
    }
}

#[test]
fn two_primaries_in_one_list_are_warned_of_and_a_change_of_primaries_is_not() {
    let _watch = watchdog(Duration::from_secs(60), "two primaries");
    let (mut servers, other) = (Replicated::start(1), Replicated::start(0));
    let config = KeywayConfig::new(vec![listed(&servers)]);
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.client(0);
    assert!(set(&mut client, "a"));
    servers.promote(1);
    wait_until("the other is the primary", SOON, || {
        set(&mut client, "b") && asked(&keyway, servers.address(1)) > 20.0
    });
    let warning = "several servers of the list say that they are primaries";
    assert!(!keyway.process().log().contains(warning));
    let addresses = [servers.addresses(), other.addresses()].concat();
    let pool = Pool::of_kind("main", "replicated")
        .with("servers", &list(&addresses))
        .with("refresh", "\"200ms\"");
    let mixed = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    wait_until("it is warned of", SOON, || mixed.process().log().contains(warning));
    let log = mixed.process().log();
    let line = log.lines().find(|line| line.contains(warning)).unwrap_or_default();
    let both = [servers.address(1), other.address(0)].map(|address| address.to_string());
    assert!(line.contains("WARN") && both.iter().all(|name| line.contains(name)), "{line}");
    assert_eq!(log.matches(warning).count(), 1, "once a minute");
    servers.kill(0);
}

#[test]
fn a_replica_that_is_known_dead_is_not_told_of_as_one_that_is_up() {
    let _watch = watchdog(Duration::from_secs(60), "a dead replica");
    let mut servers = Replicated::start(1);
    let pool = listed(&servers).with("read_from", "\"prefer-replica\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    assert!(set(&mut client, "k"));
    let (primary, replica) = (servers.address(0), servers.address(1));
    let state = |address: SocketAddr| {
        let of = format!("backend=\"{address}\"");
        keyway.metrics().sum("keyway_backend_health_state", &[&of])
    };
    let listed = |client: &mut Client, words: &str, start: &str| {
        let text = client.words(words).text();
        let line = text.lines().find(|line| line.contains(start)).map(str::to_owned);
        line.unwrap_or_default()
    };
    let ours = format!("name={replica},");
    wait_until("it is up", SOON, || {
        listed(&mut client, "INFO backends", &ours).contains("health=up") && state(replica) == 0.0
    });
    servers.kill(1);
    wait_until("it is told of as dead", SOON, || {
        listed(&mut client, "INFO backends", &ours).contains("health=failed")
    });
    assert!(listed(&mut client, "INFO keyway", &ours).contains("state=failed"));
    assert_eq!((state(replica), state(primary)), (4.0, 0.0));
    let body = keyway_testkit::http_get(keyway.admin(), "/backends").body;
    let line = body.lines().find(|line| line.contains(&replica.to_string())).unwrap_or_default();
    assert!(line.contains("\"state\":\"failed\""), "{line}");
    assert_eq!(client.command(&["GET", "k"]), Value::bulk("v"), "the primary is read");
    servers.restart(1);
    wait_until("it is up again", SOON, || {
        listed(&mut client, "INFO backends", &ours).contains("health=up") && state(replica) == 0.0
    });
}
