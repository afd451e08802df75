//! Problems that operators had with a proxy in front of memcached, one test for each finding: over
//! real servers that are stopped, killed and started again, and over several proxies at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use keyway_testkit::{
    Keyway, KeywayConfig, MemcachedClient, MemcachedServer, Pool, Random, has_memcached, http_get,
    http_post, python, run_tool, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(20);
const MARKER: &str = "keyway:generation:main";

/// Returns a pool over servers named `s0`, `s1`, ….
fn named(servers: &[MemcachedServer]) -> Pool {
    let line =
        |(nth, server): (usize, &MemcachedServer)| format!("\"{}:1 s{nth}\"", server.address());
    let lines: Vec<String> = servers.iter().enumerate().map(line).collect();
    Pool::memcached("main", servers)
        .with("servers", &format!("[{}]", lines.join(", ")))
        .with("timeout", "\"250ms\"")
}

fn start(pool: Pool) -> Keyway {
    Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]))
}

/// Starts a proxy that ejects servers after two failures for half a second.
fn ejecting(servers: &[MemcachedServer], rejoin: &str) -> Keyway {
    let ejection = format!("{{ after_failures = 2, for = \"500ms\", rejoin = \"{rejoin}\" }}");
    start(named(servers).with("ejection", &ejection))
}

fn set(client: &mut MemcachedClient, key: &str, value: &str) -> String {
    client.say(&format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()))
}

/// Returns the value of a key; `None` also if the request fails.
fn get(client: &mut MemcachedClient, key: &str) -> Option<String> {
    let said = client.say(&format!("get {key}\r\n"));
    let mut lines = said.lines();
    lines.next().is_some_and(|line| line.starts_with("VALUE ")).then_some(())?;
    lines.next().map(str::to_owned)
}

/// Returns a figure of the server itself.
fn figure(server: &MemcachedServer, name: &str) -> u64 {
    let stats = server.client().say("stats\r\n");
    let prefix = format!("STAT {name} ");
    let line = stats.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned);
    line.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("no {name} in {stats}"))
}

/// Returns a key that lives on this server, written through the proxy with the value `old`.
fn key_on(client: &mut MemcachedClient, server: &MemcachedServer) -> String {
    let mut direct = server.client();
    let found = (0..200).map(|nth| format!("key:{nth}")).find(|key| {
        assert_eq!(set(client, key, "old"), "STORED\r\n");
        get(&mut direct, key).is_some()
    });
    found.expect("one key in 200 lives there")
}

/// Returns the state of the first server: 0 up, 2 ejected, 3 quarantined.
fn state(keyway: &Keyway) -> f64 {
    keyway.metrics().sum("keyway_backend_health_state", &["backend=\"s0\""])
}

/// Asks for a key of the first server until that server is ejected, and writes the key to the
/// other. Nothing is written earlier, because the stopped server would still execute it when it
/// goes on.
fn divert(client: &mut MemcachedClient, key: &str) {
    wait_until("the other server is asked", SOON, || {
        !client.say(&format!("get {key}\r\n")).starts_with("SERVER_ERROR")
    });
    assert_eq!(set(client, key, "new"), "STORED\r\n");
}

/// Waits until the metrics show that the first server is out of use.
fn await_ejection(proxies: &[Keyway]) {
    wait_until("the server is ejected by every proxy", SOON, || {
        proxies.iter().all(|proxy| state(proxy) == 2.0)
    });
}

/// Waits until the first server is back for each of these proxies. Meanwhile no proxy may serve the
/// old value.
fn come_back(proxies: &[Keyway], clients: &mut [MemcachedClient], key: &str) {
    wait_until("the server is back for every proxy", SOON, || {
        for client in clients.iter_mut() {
            assert_ne!(get(client, key).as_deref(), Some("old"), "a stale value is served");
        }
        proxies.iter().all(|proxy| state(proxy) == 0.0)
    });
    for client in clients {
        assert_ne!(get(client, key).as_deref(), Some("old"), "a stale value is served");
    }
}

fn marker(server: &MemcachedServer) -> Option<String> {
    get(&mut server.client(), MARKER)
}

/// Finding a.
#[test]
fn keys_of_a_client_that_hashed_for_itself_are_found() {
    let _watch = watchdog(Duration::from_secs(200), "keys of pylibmc");
    if !has_memcached("keys of a client that hashed for itself") {
        return;
    }
    let servers = MemcachedServer::start_many(3);
    let addresses: Vec<String> =
        servers.iter().map(|server| format!("{:?}", server.address().to_string())).collect();
    let script = format!(
        "import pylibmc\n\
         client = pylibmc.Client([{}], behaviors={{'ketama': True}})\n\
         for nth in range(500): client.set('user:%d' % nth, b'v%d' % nth)\n",
        addresses.join(", ")
    );
    let output = run_tool(&python(), &["-c", &script], b"", Duration::from_secs(60));
    let _ = output.expect_success("pylibmc");
    // The names are the addresses that pylibmc knows.
    let keyway =
        start(Pool::memcached("main", &servers).with("distribution", "\"ketama-libmemcached\""));
    let mut client = keyway.memcached_client(0);
    for nth in 0..500 {
        let found = get(&mut client, &format!("user:{nth}"));
        assert_eq!(found, Some(format!("v{nth}")));
    }
}

const WRITERS: usize = 4;
const KEYS_OF_WRITER: usize = 500;

/// A client that knows two proxies, and uses the other when one fails.
struct FailingOver<'a> {
    addresses: &'a [std::net::SocketAddr; 2],
    current: usize,
    connection: Option<MemcachedClient>,
    failures: usize,
}

impl FailingOver<'_> {
    /// Stores a value through whichever proxy works.
    fn set(&mut self, key: &str) {
        for _ in 0..50 {
            if self.try_set(key).is_some() {
                return;
            }
            self.failures += 1;
            self.connection = None;
            self.current = 1 - self.current;
        }
        panic!("neither proxy stores {key}");
    }

    fn try_set(&mut self, key: &str) -> Option<()> {
        if self.connection.is_none() {
            self.connection = MemcachedClient::try_connect(self.addresses[self.current]).ok();
        }
        let connection = self.connection.as_mut()?;
        let request = format!("set {key} 0 0 {}\r\n{key}\r\n", key.len());
        connection.try_send(request.as_bytes()).ok()?;
        (connection.try_line()? == b"STORED").then_some(())
    }
}

/// Finding b.
#[test]
fn clients_with_two_proxies_lose_nothing_when_one_is_killed() {
    let _watch = watchdog(Duration::from_secs(120), "one of two proxies dies");
    if !has_memcached("clients with two proxies") {
        return;
    }
    let servers = MemcachedServer::start_many(3);
    let mut dying = start(named(&servers));
    let staying = start(named(&servers));
    let addresses = [dying.address(0), staying.address(0)];
    let stored = AtomicUsize::new(0);
    let failures: usize = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (addresses, stored) = (&addresses, &stored);
                scope.spawn(move || {
                    let mut client =
                        FailingOver { addresses, current: 0, connection: None, failures: 0 };
                    for nth in 0..KEYS_OF_WRITER {
                        client.set(&format!("w{writer}:{nth}"));
                        stored.fetch_add(1, Ordering::Relaxed);
                    }
                    client.failures
                })
            })
            .collect();
        wait_until("the clients are at work", SOON, || stored.load(Ordering::Relaxed) > 200);
        dying.process_mut().kill();
        writers.into_iter().map(|writer| writer.join().expect("a writer ends")).sum()
    });
    assert!(failures >= WRITERS, "each client lost its proxy: {failures}");
    let mut client = staying.memcached_client(0);
    for writer in 0..WRITERS {
        for nth in 0..KEYS_OF_WRITER {
            let key = format!("w{writer}:{nth}");
            assert_eq!(get(&mut client, &key).as_ref(), Some(&key));
        }
    }
}

/// Finding c, with a server that kept its data. It is emptied once, by whichever proxy comes first,
/// and again after the next failure.
#[test]
fn a_server_that_stalled_is_emptied_once_between_three_proxies() {
    let _watch = watchdog(Duration::from_secs(150), "several proxies empty a server");
    if !has_memcached("several proxies before the same servers") {
        return;
    }
    let servers = MemcachedServer::start_many(2);
    let proxies: Vec<Keyway> = (0..3).map(|_| ejecting(&servers, "flush")).collect();
    let mut clients: Vec<MemcachedClient> =
        proxies.iter().map(|proxy| proxy.memcached_client(0)).collect();
    let mut generation = None;
    for outage in 1..=2 {
        let key = key_on(&mut clients[0], &servers[0]);
        for client in &mut clients {
            assert_eq!(get(client, &key).as_deref(), Some("old"));
        }
        // Each proxy knows by now what another proxy did to the server since it came back.
        let looked = figure(&servers[0], "cmd_get") + 9;
        wait_until("every proxy has looked at the marker", SOON, || {
            figure(&servers[0], "cmd_get") >= looked
        });
        servers[0].process().pause();
        clients.iter_mut().for_each(|client| divert(client, &key));
        await_ejection(&proxies);
        servers[0].process().resume();
        come_back(&proxies, &mut clients, &key);
        assert_eq!(figure(&servers[0], "cmd_flush"), outage, "emptied once each time");
        let found = marker(&servers[0]);
        assert!(found.is_some() && found != generation, "{found:?} after {generation:?}");
        generation = found;
    }
    let logs: Vec<String> = proxies.iter().map(|proxy| proxy.process().log()).collect();
    let count = |text: &str| logs.iter().map(|log| log.matches(text).count()).sum::<usize>();
    assert_eq!(count("emptied with flush_all"), 2, "{logs:?}");
    assert_eq!(count("another proxy has seen to"), 4, "{logs:?}");
}

/// Finding c, with a server that lost its data: it need not be emptied.
#[test]
fn a_server_that_was_started_again_is_not_emptied_and_gets_the_marker() {
    let _watch = watchdog(Duration::from_secs(90), "a server is killed and started");
    if !has_memcached("a server that is started again") {
        return;
    }
    let mut servers = MemcachedServer::start_many(2);
    let proxies: Vec<Keyway> = (0..2).map(|_| ejecting(&servers, "flush")).collect();
    let mut clients: Vec<MemcachedClient> =
        proxies.iter().map(|proxy| proxy.memcached_client(0)).collect();
    let key = key_on(&mut clients[0], &servers[0]);
    assert_eq!(get(&mut clients[1], &key).as_deref(), Some("old"));
    // A proxy that has never looked for the marker trusts no marker that it finds.
    wait_until("both proxies have looked for the marker", SOON, || {
        figure(&servers[0], "get_misses") >= 2
    });
    servers[0].kill();
    clients.iter_mut().for_each(|client| divert(client, &key));
    await_ejection(&proxies);
    servers[0].restart();
    come_back(&proxies, &mut clients, &key);
    assert_eq!(figure(&servers[0], "cmd_flush"), 0);
    assert!(marker(&servers[0]).is_some());
    let found_empty = |proxy: &Keyway| proxy.process().log().contains("it was found empty");
    assert!(proxies.iter().any(found_empty), "{}", proxies[0].process().log());
}

/// A proxy that started after the outage began knows no generation, and trusts none.
#[test]
fn a_proxy_started_during_the_outage_serves_nothing_stale() {
    let _watch = watchdog(Duration::from_secs(90), "a proxy starts in an outage");
    if !has_memcached("a proxy that starts during an outage") {
        return;
    }
    let servers = MemcachedServer::start_many(2);
    let mut first = ejecting(&servers, "flush");
    let key = key_on(&mut first.memcached_client(0), &servers[0]);
    servers[0].process().pause();
    divert(&mut first.memcached_client(0), &key);
    first.process_mut().kill();
    let proxies = [ejecting(&servers, "flush")];
    let mut clients = [proxies[0].memcached_client(0)];
    divert(&mut clients[0], &key);
    await_ejection(&proxies);
    servers[0].process().resume();
    come_back(&proxies, &mut clients, &key);
    assert_eq!(figure(&servers[0], "cmd_flush"), 1);
}

/// The same holds for servers that are asked in the binary protocol.
#[test]
fn a_server_asked_in_the_binary_protocol_is_emptied_too() {
    let _watch = watchdog(Duration::from_secs(90), "emptied in the binary protocol");
    if !has_memcached("emptying in the binary protocol") {
        return;
    }
    let servers = MemcachedServer::start_many(2);
    let ejection = "{ after_failures = 2, for = \"500ms\", rejoin = \"flush\" }";
    let pool = named(&servers).with("ejection", ejection).with("server_protocol", "\"binary\"");
    let proxies = [start(pool)];
    let mut clients = [proxies[0].memcached_client(0)];
    let key = key_on(&mut clients[0], &servers[0]);
    servers[0].process().pause();
    divert(&mut clients[0], &key);
    await_ejection(&proxies);
    servers[0].process().resume();
    come_back(&proxies, &mut clients, &key);
    assert_eq!(figure(&servers[0], "cmd_flush"), 1);
    assert!(marker(&servers[0]).is_some());
}

/// Finding c as it was reported, for an operator who wants it so: with a warning.
#[test]
fn serving_what_a_server_held_is_warned_of_once_a_return() {
    let _watch = watchdog(Duration::from_secs(90), "rejoin serve");
    if !has_memcached("a server that serves what it held") {
        return;
    }
    let servers = MemcachedServer::start_many(2);
    let keyway = ejecting(&servers, "serve");
    let mut client = keyway.memcached_client(0);
    let key = key_on(&mut client, &servers[0]);
    for returns in 1..=2 {
        servers[0].process().pause();
        divert(&mut client, &key);
        await_ejection(std::slice::from_ref(&keyway));
        servers[0].process().resume();
        wait_until("the server is back", SOON, || {
            state(&keyway) == 0.0 && get(&mut client, &key).as_deref() == Some("old")
        });
        let log = keyway.process().log();
        let warned = log.lines().filter(|line| {
            line.contains("WARN") && line.contains("it may serve values from before its ejection")
        });
        assert_eq!(warned.count(), returns, "{log}");
    }
    assert_eq!((figure(&servers[0], "cmd_flush"), marker(&servers[0])), (0, None));
}

/// A server that refuses to be emptied serves nothing stale: it stays out, and the log says why.
#[test]
fn a_server_that_refuses_to_be_emptied_stays_out_and_is_told_of() {
    let _watch = watchdog(Duration::from_secs(90), "flush_all refused");
    if !has_memcached("a server that refuses flush_all") {
        return;
    }
    let mut servers = vec![MemcachedServer::start_with(&["-F"]), MemcachedServer::start()];
    let keyway = ejecting(&servers, "flush");
    let mut client = keyway.memcached_client(0);
    let key = key_on(&mut client, &servers[0]);
    servers[0].process().pause();
    divert(&mut client, &key);
    await_ejection(std::slice::from_ref(&keyway));
    servers[0].process().resume();
    let refused = "the backend refuses flush_all and is kept out";
    wait_until("the log says why it stays out", SOON, || {
        assert_eq!(
            get(&mut client, &key).as_deref(),
            Some("new"),
            "it is asked at once, elsewhere"
        );
        keyway.process().log().contains(refused)
    });
    assert!(state(&keyway) != 0.0);
    let stats = client.say("stats\r\n");
    assert!(stats.contains("STAT servers 1\r\n"), "{stats}");
    assert!(stats.contains("STAT servers_ejected 1\r\n"), "{stats}");
    assert!(stats.contains("STAT servers_quarantined 0\r\n"), "{stats}");
    let each = client.say("stats servers\r\n");
    assert!(each.contains("STAT s0:state ") && each.contains("STAT s1:pid "), "{each}");
    assert!(get(&mut servers[0].client(), &key).is_some(), "it holds the old value still");
    // After a restart it is empty, and needs no flush.
    servers[0].restart();
    wait_until("it is back", SOON, || {
        assert_ne!(get(&mut client, &key).as_deref(), Some("old"));
        state(&keyway) == 0.0
    });
}

/// A client that could write the marker could make proxies serve stale values.
#[test]
fn clients_cannot_write_the_marker() {
    let _watch = watchdog(Duration::from_secs(60), "writes of the marker");
    if !has_memcached("writes of the marker") {
        return;
    }
    let servers = MemcachedServer::start_many(1);
    let keyway = ejecting(&servers, "flush");
    let mut client = keyway.memcached_client(0);
    for key in [MARKER, "keyway:emptying:main"] {
        for request in [
            format!("set {key} 0 0 1\r\nx\r\n"),
            format!("delete {key}\r\n"),
            format!("touch {key} 9\r\n"),
            format!("ms {key} 1\r\nx\r\n"),
        ] {
            let told = client.say(&request);
            assert!(told.starts_with("CLIENT_ERROR this key is Keyway's own"), "{request}: {told}");
        }
    }
    assert_eq!(set(&mut client, "keyway:generation:other", "x"), "STORED\r\n");
    assert_eq!(get(&mut client, "keyway:emptying:main"), None);
}

#[test]
fn a_quarantined_server_is_kept_out_until_an_operator_restores_it() {
    let _watch = watchdog(Duration::from_secs(90), "rejoin quarantine");
    if !has_memcached("a server in quarantine") {
        return;
    }
    let servers = MemcachedServer::start_many(2);
    let keyway = ejecting(&servers, "quarantine");
    let mut client = keyway.memcached_client(0);
    let key = key_on(&mut client, &servers[0]);
    servers[0].process().pause();
    divert(&mut client, &key);
    servers[0].process().resume();
    wait_until("it answers and is kept out", SOON, || state(&keyway) == 3.0);
    assert!(client.say("stats\r\n").contains("STAT servers_quarantined 1\r\n"));
    assert_eq!(get(&mut client, &key).as_deref(), Some("new"));
    let told = http_get(keyway.admin(), "/backends").body;
    assert!(told.contains("quarantined"), "{told}");
    assert!(told.contains("\"kind\":\"memcached\""), "{told}");
    let reply = http_post(keyway.admin(), "/backends/restore?pool=main&backend=s0");
    assert_eq!(reply.status, 200, "{}", reply.body);
    wait_until("it serves again", SOON, || get(&mut client, &key).as_deref() == Some("old"));
    wait_until("which the metrics tell", SOON, || state(&keyway) == 0.0);
}

/// Returns how many of a thousand keys keep their server between a proxy over `before` servers and
/// one over `after`.
fn kept_per_mille(servers: &[MemcachedServer], before: usize, after: usize) -> usize {
    let first = start(named(&servers[..before]));
    let mut client = first.memcached_client(0);
    let mut random = Random::new(before as u64);
    let keys: Vec<String> = (0..2000).map(|_| format!("{:x}", random.next_u64())).collect();
    for key in &keys {
        assert_eq!(set(&mut client, key, "v"), "STORED\r\n");
    }
    assert!(first.stop(SOON).0.success());
    let second = start(named(&servers[..after]));
    let mut client = second.memcached_client(0);
    keys.iter().filter(|key| get(&mut client, key).is_some()).count() / 2
}

/// Finding d.
#[test]
fn a_server_more_or_less_moves_its_share_of_the_keys() {
    let _watch = watchdog(Duration::from_secs(120), "keys move");
    if !has_memcached("a server more or less") {
        return;
    }
    let servers = MemcachedServer::start_many(5);
    for (before, after) in [(4, 5), (5, 4)] {
        let moved = 1000 - kept_per_mille(&servers, before, after);
        assert!((160..=240).contains(&moved), "{before} to {after} servers: {moved} of 1000 moved");
    }
}

/// memcached 1.6.18 repeats a key that a client gave in base64 as raw bytes, with line ends. On a
/// connection that clients share, the rest would be another client's reply.
#[test]
fn a_key_in_base64_never_becomes_another_clients_reply() {
    let _watch = watchdog(Duration::from_secs(60), "keys in base64");
    if !has_memcached("keys in base64") {
        return;
    }
    // It decodes to "x", a value of the victim's key and the beginning of one more reply.
    const KEY: &str = "eA0KVkFMVUUgdmljIDAgNA0KRVZJTA0KRU5EDQpIRA==";
    let servers = MemcachedServer::start_many(1);
    let keyway = start(named(&servers));
    let (mut attacker, mut victim) = (keyway.memcached_client(0), keyway.memcached_client(0));
    assert_eq!(set(&mut victim, "vic", "GOOD"), "STORED\r\n");
    for round in 0..40 {
        attacker.send(format!("mg {KEY} b N30 k\r\n").as_bytes());
        assert_eq!(get(&mut victim, "vic").as_deref(), Some("GOOD"), "round {round}");
        let reply = attacker.line();
        assert!(reply.contains(&format!("k{KEY} b")), "round {round}: {reply}");
        attacker.send(format!("me {KEY} b\r\n").as_bytes());
        assert_eq!(get(&mut victim, "vic").as_deref(), Some("GOOD"), "round {round}");
        let refused = attacker.line();
        assert!(refused.starts_with("CLIENT_ERROR"), "round {round}: {refused}");
    }
}
