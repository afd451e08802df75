//! Which servers are in use, as clients, `/readyz` and an operator see it.

use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, MemcachedServer, Pool, RedisServer, TempDir, Value, encode,
    free_port, has_memcached, http_get, http_post, run_tool, skipped, wait_for, wait_until,
    watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(10);
const STATE: &str = "keyway_backend_health_state";

/// Returns a pool over servers named `s0`, `s1`, … that are ejected after two failures.
fn pool(servers: &[RedisServer], rejoin: &str) -> Pool {
    let named = |(nth, server): (usize, &RedisServer)| format!("{}:1 s{nth}", server.address());
    let lines: Vec<String> = servers.iter().enumerate().map(named).collect();
    let ejection = format!("{{ after_failures = 2, for = \"200ms\", rejoin = \"{rejoin}\" }}");
    Pool::sharded("main", &lines).with("timeout", "\"2s\"").with("ejection", &ejection)
}

/// Returns a key that lives on this server, written with the value `old`.
fn key_on(client: &mut Client, server: &RedisServer) -> String {
    let mut direct = server.client();
    let found = (0..200).map(|nth| format!("key:{nth}")).find(|key| {
        assert_eq!(client.command(&["SET", key, "old"]), Value::simple("OK"));
        direct.command(&["EXISTS", key]) == Value::Integer(1)
    });
    found.expect("one key in 200 lives there")
}

/// Returns the worst state of the named server: 0 up, 2 ejected, 3 quarantined.
fn state(keyway: &Keyway, backend: &str) -> f64 {
    keyway.metrics().sum(STATE, &[&format!("backend=\"{backend}\"")])
}

#[test]
fn a_replica_without_its_primary_is_ejected_until_it_serves_again() {
    let _watch = watchdog(Duration::from_secs(60), "-MASTERDOWN");
    let servers = RedisServer::start_many(2);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool(&servers, "serve")]));
    let mut client = keyway.client(0);
    let key = key_on(&mut client, &servers[0]);
    let mut direct = servers[0].client();
    assert_eq!(direct.words("CONFIG SET replica-serve-stale-data no"), Value::simple("OK"));
    let nobody = free_port();
    assert_eq!(direct.words(&format!("REPLICAOF 127.0.0.1 {nobody}")), Value::simple("OK"));
    let text = client.command(&["GET", &key]).error_text();
    assert!(text.starts_with("MASTERDOWN "), "the server's own words: {text}");
    wait_until("its keys go to the other", SOON, || client.command(&["GET", &key]) == Value::Nil);
    let log = keyway.process().log();
    assert!(log.contains("masterdown"), "the log says why:\n{log}");
    // The server answers probes with an error, which does not bring it back.
    wait_until("several probes have failed", SOON, || {
        assert_eq!(client.command(&["GET", &key]), Value::Nil);
        keyway.process().log().matches("from=\"rejoining\" to=\"ejected\"").count() >= 3
    });
    assert_eq!(state(&keyway, "s0"), 2.0, "{}", keyway.process().log());
    assert_eq!(direct.words("REPLICAOF NO ONE"), Value::simple("OK"));
    wait_until("it serves again", SOON, || client.command(&["GET", &key]) == Value::bulk("old"));
    wait_until("and counts as up", SOON, || state(&keyway, "s0") == 0.0);
}

#[test]
fn a_replica_that_refuses_writes_is_ejected_until_it_can_be_emptied() {
    let _watch = watchdog(Duration::from_secs(60), "-READONLY");
    let primary = RedisServer::start();
    let servers = RedisServer::start_many(2);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool(&servers, "flush")]));
    let mut client = keyway.client(0);
    let key = key_on(&mut client, &servers[0]);
    assert_eq!(primary.client().command(&["SET", &key, "replicated"]), Value::simple("OK"));
    let mut direct = servers[0].client();
    let replicate = format!("REPLICAOF 127.0.0.1 {}", primary.port());
    assert_eq!(direct.words(&replicate), Value::simple("OK"));
    wait_until("the replica is in step", Duration::from_secs(30), || {
        direct.words("INFO replication").text().contains("master_link_status:up")
    });
    assert_eq!(client.command(&["GET", &key]), Value::bulk("replicated"), "reads do no harm");
    let replies = client.pipeline(&[&format!("SET {key} new"), &format!("SET {key} new")]);
    for reply in replies {
        assert!(reply.error_text().starts_with("READONLY "), "{reply:?}");
    }
    wait_until("its keys go to the other", SOON, || {
        client.command(&["SET", &key, "new"]) == Value::simple("OK")
    });
    assert_eq!(servers[1].client().command(&["GET", &key]), Value::bulk("new"));
    let log = keyway.process().log();
    assert!(log.contains("readonly"), "the log says why:\n{log}");
    // The server cannot be emptied, so it does not come back, although it answers.
    wait_until("it was asked to empty itself", SOON, || {
        let stats = direct.words("INFO errorstats").text();
        let refused = stats.split("errorstat_READONLY:count=").nth(1);
        let count = refused.and_then(|text| text.split(['\r', '\n']).next()?.parse().ok());
        count.unwrap_or(0) >= 4
    });
    assert_eq!(client.command(&["GET", &key]), Value::bulk("new"));
    assert_eq!(direct.command(&["GET", &key]), Value::bulk("replicated"));
    assert_eq!(direct.words("REPLICAOF NO ONE"), Value::simple("OK"));
    wait_until("it is back, empty", SOON, || client.command(&["GET", &key]) == Value::Nil);
    assert_eq!(direct.words("DBSIZE"), Value::Integer(0));
    let log = keyway.process().log();
    let emptied = log.lines().find(|line| line.contains("emptied with FLUSHDB"));
    let line = emptied.unwrap_or_else(|| panic!("the log tells what was emptied:\n{log}"));
    assert!(line.contains("WARN") && line.contains("pool=\"main\" backend=\"s0\""), "{line}");
}

/// The pool's only server is down, answers again, is kept out, and is put back by an operator.
/// Clients of both workers see all of this.
#[test]
fn an_operator_ends_a_quarantine_and_readyz_tells() {
    let _watch = watchdog(Duration::from_secs(90), "restore and readyz");
    let mut servers = [RedisServer::start()];
    let spread =
        Pool::of_kind("spread", "prefix").with("routes", "[{ prefix = \"u\", pool = \"main\" }]");
    let pools = vec![pool(&servers, "quarantine"), Pool::store("local"), spread];
    let config = KeywayConfig::new(pools).with_server("workers", "2");
    let keyway = Keyway::start(KEYWAY, config);
    let ask = |path: &str| http_get(keyway.admin(), path);
    let restore = |query: &str| http_post(keyway.admin(), &format!("/backends/restore?{query}"));
    assert_eq!((ask("/readyz").status, ask("/healthz").status), (200, 200));
    let mut clients: Vec<Client> = (0..20).map(|_| keyway.client(0)).collect();
    servers[0].kill();
    wait_until("the server is ejected", SOON, || {
        assert!(clients[0].words("GET a").is_error());
        ask("/readyz").status == 503 && state(&keyway, "s0") == 2.0
    });
    let body = ask("/readyz").body;
    assert!(body.contains("main") && !body.contains("local"), "the pool in question: {body}");
    assert_eq!(ask("/healthz").status, 200, "a process whose servers are down is not to be killed");
    assert_eq!(keyway.client(1).words("SET a 1"), Value::simple("OK"), "other pools are served");
    servers[0].restart();
    wait_until("it answers and is kept out", SOON, || {
        keyway.process().log().contains("quarantined") && ask("/readyz").status == 503
    });
    for client in &mut clients {
        assert!(client.words("GET a").is_error(), "kept out for the clients of every worker");
    }
    for (query, status, wanted) in [
        ("pool=mian&backend=s0", 404, "main"),
        ("pool=main&backend=s1", 404, "s0"),
        ("pool=main", 400, "backend"),
    ] {
        let reply = restore(query);
        assert_eq!(reply.status, status, "{query}: {}", reply.body);
        assert!(reply.body.contains(wanted), "{query}: {}", reply.body);
    }
    assert_eq!(ask("/backends/restore?pool=main&backend=s0").status, 405, "never by a GET");
    assert_eq!(ask("/readyz").status, 503, "nothing of that restored it");
    let store = restore("pool=local&backend=s0").body;
    assert!(store.contains("is an embedded store: it has no servers"), "{store}");
    let spread = restore("pool=spread&backend=s0").body;
    assert!(spread.contains("leads to other pools"), "{spread}");
    let listed = ask("/backends").body;
    assert!(
        listed.contains("\"backend\":\"s0\"") && listed.contains("\"quarantined\""),
        "{listed}"
    );
    assert!(restore("pool=main&backend=s0").body.contains("in use again"));
    assert_eq!(ask("/readyz").status, 200);
    for client in &mut clients {
        wait_until("it is served again", SOON, || client.words("GET a") == Value::Nil);
    }
    let again = restore("pool=main&backend=s0");
    assert_eq!(again.status, 200, "once more changes nothing");
    assert!(again.body.contains("in use already"), "{}", again.body);
    let log = keyway.process().log();
    assert_eq!(log.matches("operator's word").count(), 1, "{log}");
}

/// There is no descriptor for a connection to a server. The request fails with an error that says
/// that it was not sent. The server is not to blame, so it is not ejected (and, with this policy,
/// not emptied).
#[test]
fn a_process_without_descriptors_for_a_link_does_not_blame_the_server() {
    let _watch = watchdog(Duration::from_secs(60), "no descriptor for a link");
    let servers = RedisServer::start_many(2);
    for server in &servers {
        assert_eq!(server.client().words("SET precious 1"), Value::simple("OK"));
    }
    let config = KeywayConfig::new(vec![pool(&servers, "flush")])
        .with_server("workers", "1")
        .with_descriptors(60);
    let keyway = Keyway::start(KEYWAY, config);
    let mut first = keyway.client(0);
    assert_eq!(first.words("PING"), Value::simple("PONG"), "no link is needed for that");
    let clients: Vec<Client> =
        (0..200).filter_map(|_| Client::try_connect(keyway.address(0)).ok()).collect();
    wait_until("the descriptors are used up", SOON, || {
        keyway.process().log().contains("no file descriptor left")
    });
    for _ in 0..20 {
        first.send(&encode(&["GET", "precious"]));
        let text = first.reply().error_text();
        assert!(text.contains("was not sent"), "{text}");
    }
    drop(clients);
    wait_until("requests are sent again", SOON, || first.words("GET precious") == Value::bulk("1"));
    let log = keyway.process().log();
    assert!(!log.contains("ejected"), "{log}");
    for server in &servers {
        assert_eq!(server.client().words("GET precious"), Value::bulk("1"));
    }
}

/// A server known by a host name moves to another address.
#[test]
fn a_host_name_is_resolved_anew_when_its_server_moved() {
    let _watch = watchdog(Duration::from_secs(60), "a host name that moves");
    let may =
        run_tool("unshare", &["-Urm", "mount", "--bind", "/etc/hosts", "/etc/hosts"], b"", SOON);
    if !may.status.success() {
        return skipped("a host name that moves: no mount namespace for a hosts file of its own");
    }
    let port = free_port();
    let at = |host: &str| format!("{host}:{port}").parse().expect("an address");
    let mut old = RedisServer::start_at(at("127.0.0.1"), &[]);
    let new = RedisServer::start_at(at("127.0.0.2"), &[]);
    for (server, place) in [(&old, "old"), (&new, "new")] {
        assert_eq!(server.client().words(&format!("SET place {place}")), Value::simple("OK"));
    }
    let directory = TempDir::new();
    let hosts = directory.write("hosts", "127.0.0.1 localhost moving.keyway.test\n");
    let pool = Pool::sharded("main", &[format!("moving.keyway.test:{port}:1")]);
    let config = KeywayConfig::new(vec![pool]).with_hosts_file(&hosts);
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.client(0);
    let place = wait_for("the name resolves", SOON, || {
        Some(client.words("GET place")).filter(|reply| !reply.is_error())
    });
    assert_eq!(place, Value::bulk("old"));
    // The file is written in place, because the process sees this very file.
    std::fs::write(&hosts, "127.0.0.1 localhost\n127.0.0.2 moving.keyway.test\n").expect("written");
    assert_eq!(client.words("GET place"), Value::bulk("old"), "a live connection is kept");
    old.kill();
    wait_until("the new address is found", SOON, || {
        let reply = client.words("GET place");
        assert!(reply == Value::bulk("new") || reply.is_error(), "{reply:?}");
        !reply.is_error()
    });
}

#[test]
fn a_pool_whose_servers_cannot_be_reached_is_not_ready_until_they_can() {
    let _watch = watchdog(Duration::from_secs(60), "readyz without ejection");
    let mut servers = RedisServer::start_many(2);
    let pools = vec![Pool::over("main", &servers), Pool::store("local")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let ready = || http_get(keyway.admin(), "/readyz");
    let mut client = keyway.client(0);
    for nth in 0..20 {
        assert_eq!(client.words(&format!("SET key:{nth} 1")), Value::simple("OK"));
    }
    servers[0].kill();
    wait_until("one is down", SOON, || keyway.metrics().sum(STATE, &[]) >= 1.0);
    assert_eq!(ready().status, 200, "the other serves");
    let refused = format!("{} (connection refused)", servers[0].address());
    wait_until("readyz names the one", SOON, || ready().body.contains(&refused));
    let body = ready().body;
    assert!(body.contains("pool \"main\": 1 of 2 servers failing or out of use: "), "{body}");
    assert!(body.starts_with("ready\n"), "{body}");
    servers[1].kill();
    wait_until("both are down, and nobody asks for them", SOON, || ready().status == 503);
    let down = "pool \"main\": every server is out of use or down: ";
    wait_until("readyz says why", SOON, || {
        let body = ready().body;
        body.contains(down) && body.matches("(connection refused)").count() == 2
    });
    let body = ready().body;
    assert!(body.contains("main") && !body.contains("local"), "the pool in question: {body}");
    let log = keyway.process().log();
    for server in &servers {
        let at = format!("backend=\"{}\"", server.address());
        let is_told = |line: &str| line.contains("connection lost") && line.contains(&at);
        assert!(log.lines().any(|line| is_told(line) && line.contains("WARN")), "{at}:\n{log}");
    }
    servers[1].restart();
    wait_until("one is back, without a request", SOON, || ready().status == 200);
    // Metrics, /backends and INFO show this too.
    wait_until("and healthy", SOON, || state(&keyway, &servers[1].address().to_string()) == 0.0);
    let backends = http_get(keyway.admin(), "/backends").body;
    assert_eq!(backends.matches("\"up\"").count(), 1, "{backends}");
}

/// Returns the states of the servers of a pool, in order, as `/backends` shows them.
fn states(keyway: &Keyway, pool: &str) -> Vec<String> {
    let told = http_get(keyway.admin(), "/backends").body;
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let pools = told["pools"].as_array().expect("pools");
    let of = pools.iter().find(|one| one["pool"] == pool).expect("the pool");
    let state =
        |server: &serde_json::Value| server["state"].as_str().unwrap_or_default().to_owned();
    of["backends"].as_array().expect("servers").iter().map(state).collect()
}

#[test]
fn servers_are_unknown_until_one_worker_has_asked_them_and_no_client_has_to() {
    let _watch = watchdog(Duration::from_secs(60), "the first look");
    let servers = RedisServer::start_many(3);
    assert_eq!(servers[0].client().words("CONFIG RESETSTAT"), Value::simple("OK"));
    servers[1].process().pause();
    let dead = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}:1"));
    let of = |at: usize| format!("{}:1", servers[at].address());
    let lazy = |name: &str, lines: &[String]| {
        Pool::sharded(name, lines).with("preconnect", "false").with("timeout", "\"1s\"")
    };
    let ejecting = "{ after_failures = 1, for = \"60s\", rejoin = \"serve\" }";
    let pools = vec![
        lazy("mixed", &[of(0), of(1), dead[0].clone()]),
        lazy("dead", &dead),
        lazy("gone", &dead[..1]).with("ejection", ejecting),
        Pool::memcached("other", &[])
            .with("servers", &format!("[{:?}]", dead[1]))
            .with("preconnect", "false"),
    ];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let first = http_get(keyway.admin(), "/readyz");
    let is_known = first.status == 503;
    assert!(is_known || first.body.contains("of 3 servers not reached yet"), "{}", first.body);
    wait_until("the live one is up, and the others fail", SOON, || {
        states(&keyway, "mixed") == ["up", "failing", "failing"]
            && states(&keyway, "dead") == ["failing", "failing"]
            && states(&keyway, "gone") == ["ejected"]
            && states(&keyway, "other") == ["failing"]
    });
    let ready = http_get(keyway.admin(), "/readyz");
    assert_eq!(ready.status, 503, "{}", ready.body);
    for pool in ["dead", "gone", "other"] {
        assert!(ready.body.contains(&format!("pool {pool:?}: every server")), "{}", ready.body);
    }
    assert!(ready.body.contains("pool \"mixed\": 2 of 3 servers failing or out of use: "));
    assert!(ready.body.contains("(no answer in time)"), "{}", ready.body);
    assert!(!ready.body.contains("not reached"), "{}", ready.body);
    let log = keyway.process().log();
    assert!(log.contains("from=\"unknown\" to=\"failing\" reason=\"timeout\""), "{log}");
    assert!(!log.contains("to=\"up\""), "what is expected is not told:\n{log}");
    // There is one connection and one PING, whatever the number of workers.
    let stats = servers[0].client().words("INFO commandstats").text();
    assert!(stats.contains("cmdstat_ping:calls=1,"), "{stats}");
    // A server that a reload adds is asked as well.
    let file = keyway.directory().join("keyway.toml");
    let text = std::fs::read_to_string(&file).expect("its file");
    std::fs::write(&file, text.replace(&dead[0], &of(2))).expect("its file");
    keyway.process().signal(keyway_testkit::Signal::HUP);
    wait_until("the added one is up", SOON, || {
        states(&keyway, "dead") == ["up", "failing"] && states(&keyway, "gone") == ["up"]
    });
    servers[1].process().resume();
    wait_until("who answers again is up", SOON, || states(&keyway, "mixed") == ["up"; 3]);
}

#[test]
fn a_server_that_wants_a_password_is_failing_until_it_wants_none() {
    let _watch = watchdog(Duration::from_secs(60), "NOAUTH");
    let servers = [
        RedisServer::start_with(&["--requirepass", "geheim"]),
        RedisServer::start_with(&["--requirepass", "geheim"]),
    ];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::over("main", &servers)]));
    wait_until("no server is up, and nobody asked", SOON, || {
        states(&keyway, "main") == ["failing"; 2]
    });
    let told = http_get(keyway.admin(), "/backends").body;
    assert_eq!(told.matches("\"handshake\"").count(), 2, "{told}");
    wait_until("not ready", SOON, || http_get(keyway.admin(), "/readyz").status == 503);
    let body = http_get(keyway.admin(), "/readyz").body;
    assert_eq!(body.matches("(NOAUTH: wants a password)").count(), 2, "{body}");
    let mut client = keyway.client(0);
    for nth in 0..20 {
        let text = client.words(&format!("GET key:{nth}")).error_text();
        assert_eq!(text, "NOAUTH Authentication required.", "the server's own words");
    }
    assert_eq!(states(&keyway, "main"), ["failing"; 2], "an error is no success");
    let log = keyway.process().log();
    let wants = "set password in [pool.main]";
    assert_eq!(
        log.lines().filter(|it| it.contains("WARN") && it.contains(wants)).count(),
        1,
        "{log}"
    );
    for server in &servers {
        let mut direct = server.client();
        assert_eq!(direct.words("AUTH geheim"), Value::simple("OK"));
        let none = ["CONFIG", "SET", "requirepass", ""];
        assert_eq!(direct.command(&none), Value::simple("OK"));
    }
    wait_until("up without a request", SOON, || states(&keyway, "main") == ["up"; 2]);
    assert_eq!(client.words("GET key:1"), Value::Nil);
    assert_eq!(http_get(keyway.admin(), "/readyz").status, 200);
}

#[test]
fn a_server_that_denies_ping_only_is_up_and_the_log_tells() {
    let _watch = watchdog(Duration::from_secs(60), "NOPERM to PING");
    let server = RedisServer::start();
    let denied = server.client().words("ACL SETUSER default -ping");
    assert_eq!(denied, Value::simple("OK"));
    let pool = Pool::over("main", std::slice::from_ref(&server));
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    wait_until("it is up", SOON, || states(&keyway, "main") == ["up"]);
    assert_eq!(keyway.client(0).words("SET k v"), Value::simple("OK"));
    let log = keyway.process().log();
    assert!(log.contains("denies PING to the user of this pool"), "{log}");
    assert_eq!(http_get(keyway.admin(), "/readyz").status, 200);
}

/// Starts a server that sends these bytes to every client, and reads nothing.
fn greets_with(banner: &'static [u8]) -> String {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("its address");
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for client in socket.incoming() {
            let mut client = client.expect("a client");
            let _ = client.write_all(banner);
            kept.push(client);
        }
    });
    format!("{address}:1")
}

#[test]
fn a_server_of_another_protocol_is_named_with_what_it_said() {
    let _watch = watchdog(Duration::from_secs(60), "servers of other protocols");
    let redis = RedisServer::start();
    let mut pools = vec![
        Pool::sharded("ssh", &[greets_with(b"SSH-2.0-OpenSSH_9.6\r\n")]),
        Pool::sharded("odd", &[greets_with(b"220 mail\x1b[2J.example ESMTP\r\n")]),
        Pool::memcached("redis", &[])
            .with("servers", &format!("[\"{}:1\"]", redis.address()))
            .with("server_protocol", "\"text\""),
    ];
    let memcached = has_memcached("a pool of Redis over memcached").then(MemcachedServer::start);
    if let Some(memcached) = &memcached {
        pools.push(Pool::sharded("memcached", &[format!("{}:1", memcached.address())]));
    }
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let mut expected = vec![
        (0, "ssh", "it speaks SSH: it said 'SSH-2.0-OpenSSH_9.6'; check its address"),
        (1, "odd", "it said '220 mail\\x1b[2J.example ESMTP'; check its address"),
    ];
    if memcached.is_some() {
        let said = "it speaks the protocol of memcached: it said 'ERROR'; use kind = \"memcached\" \
                    in [pool.memcached]";
        expected.push((3, "memcached", said));
    }
    for (at, pool, said) in &expected {
        wait_until("its client is told", SOON, || {
            let text = keyway.client(*at).words("GET a").error_text();
            assert!(!text.contains("ends connections before"), "{text}");
            text.contains(said)
        });
        wait_until("readyz tells", SOON, || {
            let body = http_get(keyway.admin(), "/readyz").body;
            body.lines().any(|line| line.contains(&format!("pool {pool:?}")) && line.contains(said))
        });
    }
    let told = "it speaks RESP, the protocol of Redis: it said '-ERR unknown command";
    wait_until("a client of memcached is told", SOON, || {
        keyway.memcached_client(2).say("get a\r\n").contains(told)
    });
    let log = keyway.process().log();
    assert!(log.contains("said=\"SSH-2.0-OpenSSH_9.6\""), "{log}");
}

#[test]
fn a_server_that_stood_still_is_healthy_again_without_a_request() {
    let _watch = watchdog(Duration::from_secs(60), "resumed server");
    let server = RedisServer::start();
    let pool = Pool::over("main", std::slice::from_ref(&server)).with("timeout", "\"200ms\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    assert_eq!(client.words("SET k v"), Value::simple("OK"));
    server.process().pause();
    assert!(client.words("GET k").is_error());
    wait_until("failing", SOON, || state(&keyway, &server.address().to_string()) == 1.0);
    server.process().resume();
    wait_until("healthy", SOON, || state(&keyway, &server.address().to_string()) == 0.0);
}

/// Returns a pool over one server that is ejected after three failures, and emptied.
fn pool_of_three(server: &RedisServer) -> Pool {
    Pool::over("main", std::slice::from_ref(server))
        .with("timeout", "\"200ms\"")
        .with("ejection", "{ after_failures = 3, for = \"3s\", rejoin = \"flush\" }")
}

#[test]
fn one_stall_ejects_nobody_however_many_clients_and_workers_it_hits() {
    let _watch = watchdog(Duration::from_secs(60), "a stall, four workers");
    let server = RedisServer::start();
    let config = KeywayConfig::new(vec![pool_of_three(&server)]).with_server("workers", "4");
    let keyway = Keyway::start(KEYWAY, config);
    let mut clients: Vec<Client> = (0..16).map(|_| keyway.client(0)).collect();
    for client in &mut clients {
        assert_eq!(client.words("SET precious 1"), Value::simple("OK"));
    }
    server.process().pause();
    clients.iter_mut().for_each(|client| client.send(&encode(&["GET", "precious"])));
    for client in &mut clients {
        let text = client.reply().error_text();
        assert!(text.contains("did not answer in time"), "{text}");
    }
    server.process().resume();
    for client in &mut clients {
        assert_eq!(client.words("GET precious"), Value::bulk("1"));
    }
    let log = keyway.process().log();
    assert!(log.contains("to=\"failing\"") && !log.contains("ejected"), "{log}");
    // A longer failure ejects it.
    server.process().pause();
    let client = &mut clients[0];
    for _ in 0..3 {
        let text = client.words("GET precious").error_text();
        assert!(text.contains("did not answer in time"), "{text}");
    }
    wait_until("it is ejected", SOON, || {
        client.words("GET precious").error_text().contains("may be used now")
    });
    server.process().resume();
}

#[test]
fn connections_that_a_server_ends_together_eject_nobody() {
    let _watch = watchdog(Duration::from_secs(60), "connections killed together");
    let mut server = RedisServer::start();
    let config = KeywayConfig::new(vec![pool_of_three(&server)]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config);
    let mut clients: Vec<Client> = (0..50).map(|_| keyway.client(0)).collect();
    let mut direct = server.client();
    assert_eq!(clients[0].words("SET precious 1"), Value::simple("OK"));
    for client in &mut clients {
        client.send(&encode(&["BLPOP", "list", "0"]));
    }
    wait_until("they wait", SOON, || {
        direct.words("INFO clients").text().contains("blocked_clients:50")
    });
    direct.words("CLIENT KILL TYPE normal");
    for client in &mut clients {
        let text = client.reply().error_text();
        assert!(text.contains("closed the connection"), "{text}");
    }
    // The connection that clients share was ended too, which may be noticed later.
    wait_until("it serves", SOON, || clients[0].words("GET precious") == Value::bulk("1"));
    let log = keyway.process().log();
    assert!(!log.contains("ejected"), "{log}");
    assert!(log.matches("connection lost").count() <= 2, "the first of a row only:\n{log}");
    // A server that is gone is ejected, although only one client asks for it.
    server.kill();
    wait_until("it is ejected", SOON, || {
        clients[0].words("GET precious").error_text().contains("may be used now")
    });
}

#[test]
fn connections_that_end_behind_unread_replies_eject_nobody() {
    let _watch = watchdog(Duration::from_secs(60), "connections killed behind replies");
    let server = RedisServer::start();
    let pool = pool_of_three(&server).with("timeout", "\"5s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "1"));
    let mut clients: Vec<Client> = (0..50).map(|_| keyway.client(0)).collect();
    assert_eq!(clients[0].words("SET precious 1"), Value::simple("OK"));
    let mut direct = server.client();
    server.process().pause();
    for client in &mut clients {
        client.send(&encode(&["BLPOP", "list", "0"]));
    }
    // Each has a connection of its own, on which Keyway has asked for its number.
    wait_until("they are sent", SOON, || {
        keyway.metrics().sum("keyway_backend_in_flight_requests", &[]) >= 50.0
    });
    keyway.process().pause();
    server.process().resume();
    wait_until("they wait", SOON, || {
        direct.words("INFO clients").text().contains("blocked_clients:50")
    });
    direct.words("CLIENT KILL TYPE normal");
    keyway.process().resume();
    for client in &mut clients {
        let text = client.reply().error_text();
        assert!(text.contains("closed the connection"), "{text}");
    }
    wait_until("it serves", SOON, || clients[0].words("GET precious") == Value::bulk("1"));
    let log = keyway.process().log();
    assert!(!log.contains("ejected"), "{log}");
}
