//! Servers that fail are not asked for a while. Servers that are much slower than the others with
//! the same data are not read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, MemcachedServer, Pool, RedisCluster, RedisServer, Replicated,
    Value, encode, has_memcached, http_get, http_post, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(20);
const CIRCUIT: &str = "{ requests_min = 10, window = \"10s\", open_for = \"300ms\", open_for_max = \"1s\", probes = 2 }";
const STATE: &str = "keyway_backend_circuit_state";
const OPENS: &str = "keyway_backend_circuit_opens_total";
const REFUSED: &str = "its circuit is open";

fn of(backend: impl std::fmt::Display) -> String {
    format!("backend=\"{backend}\"")
}

fn metric(keyway: &Keyway, name: &str, backend: impl std::fmt::Display) -> f64 {
    keyway.metrics().sum(name, &[&of(backend)])
}

/// Returns a pool of servers named `s0`, `s1`, … that have circuits.
fn pool(servers: &[RedisServer]) -> Pool {
    let named = |(nth, server): (usize, &RedisServer)| format!("{}:1 s{nth}", server.address());
    let lines: Vec<String> = servers.iter().enumerate().map(named).collect();
    Pool::sharded("main", &lines).with("timeout", "\"150ms\"").with("circuit", CIRCUIT)
}

/// Returns a key that lives on this server, with the value `v`.
fn key_on(client: &mut Client, server: &RedisServer) -> String {
    let mut direct = server.client();
    let found = (0..200).map(|nth| format!("key:{nth}")).find(|key| {
        assert_eq!(client.command(&["SET", key, "v"]), Value::simple("OK"));
        direct.command(&["EXISTS", key]) == Value::Integer(1)
    });
    found.expect("one key in 200 lives there")
}

/// Sends a request for a key by each of the clients at once, and returns the replies.
fn ask_all(clients: &mut [Client], key: &str) -> Vec<Value> {
    clients.iter_mut().for_each(|client| client.send(&encode(&["GET", key])));
    clients.iter_mut().map(Client::reply).collect()
}

fn backends(keyway: &Keyway) -> String {
    http_get(keyway.admin(), "/backends").body
}

#[test]
fn a_server_that_stops_is_not_asked_until_it_answers_again() {
    let _watch = watchdog(Duration::from_secs(120), "a server that stops");
    let servers = RedisServer::start_many(2);
    let config = KeywayConfig::new(vec![pool(&servers)]).with_server("workers", "2");
    let keyway = Keyway::start(KEYWAY, config);
    let mut clients: Vec<Client> = (0..16).map(|_| keyway.client(0)).collect();
    let keys = [0, 1].map(|server| key_on(&mut clients[0], &servers[server]));
    servers[0].process().pause();
    let mut timeouts = 0;
    wait_until("the circuit opens", SOON, || {
        let replies = ask_all(&mut clients, &keys[0]);
        timeouts += replies.iter().filter(|reply| reply.error_text().contains("in time")).count();
        replies.iter().any(|reply| reply.error_text().contains(REFUSED))
    });
    assert!((10..=160).contains(&timeouts), "after a few timeouts: {timeouts}");
    assert_eq!(metric(&keyway, OPENS, "s1"), 0.0);

    // While the server is stopped, all requests but an occasional probe fail at once, and no other
    // server is affected.
    let asked_before = metric(&keyway, "keyway_backend_requests_total", "s0");
    let opens_before = metric(&keyway, OPENS, "s0");
    let mut refused = 0;
    for _ in 0..200 {
        for reply in ask_all(&mut clients, &keys[0]) {
            let text = reply.error_text().to_owned();
            if text.contains(REFUSED) {
                let is_whole = text.starts_with("ERR backend s0 (")
                    && text.ends_with("; the request was not sent");
                assert!(is_whole, "{text}");
                refused += 1;
            }
        }
        assert_eq!(clients[0].command(&["GET", &keys[1]]), Value::bulk("v"));
    }
    let probes = metric(&keyway, "keyway_backend_requests_total", "s0") - asked_before;
    let opens = metric(&keyway, OPENS, "s0") - opens_before;
    assert_eq!(refused as f64 + probes, 3200.0, "each is refused or a probe");
    assert!(probes <= 2.0 * (opens + 1.0), "{probes} probes, opened {opens} times");
    let fault = "fault=\"backend_circuit_open\"";
    let counted = keyway.metrics().sum("keyway_backend_errors_total", &[&of("s0"), fault]);
    assert!(counted >= refused as f64, "{counted} {refused}");
    wait_until("the list tells", SOON, || {
        let line = backends(&keyway).lines().find(|line| line.contains("s0")).map(str::to_owned);
        line.is_some_and(|line| line.contains("\"state\":\"circuit-open\",\"reason\":\"timeout\""))
    });
    assert!(metric(&keyway, STATE, "s0") >= 1.0 && metric(&keyway, STATE, "s1") == 0.0);
    let info = clients[0].words("INFO keyway").text();
    assert!(info.contains("name=s0,state=circuit-open"), "{info}");
    let info = clients[1].words("INFO backends").text();
    let line = info.lines().find(|line| line.contains("name=s0,")).unwrap_or_default();
    assert!(line.contains("health=circuit-"), "{info}");
    // A request for several keys fails with a clear error if it needs that server.
    let reply = clients[0].command(&["MGET", &keys[0], &keys[1]]);
    assert!(reply.is_error(), "{reply:?}");

    servers[0].process().resume();
    wait_until("the circuit closes", SOON, || {
        ask_all(&mut clients, &keys[0]).iter().all(|reply| *reply == Value::bulk("v"))
    });
    let opens = metric(&keyway, OPENS, "s0");
    for _ in 0..200 {
        for reply in ask_all(&mut clients, &keys[0]) {
            assert_eq!(reply, Value::bulk("v"), "it stays closed");
        }
    }
    assert_eq!(metric(&keyway, OPENS, "s0"), opens);
    wait_until("metrics tell", SOON, || metric(&keyway, STATE, "s0") == 0.0);
    let log = keyway.process().log();
    assert_eq!(log.matches("circuit opened: ").count(), 1, "{log}");
    assert_eq!(log.matches("circuit closed: ").count(), 1, "{log}");
    assert_eq!(log.matches("circuit opened again: ").count() as f64, opens - 1.0, "{log}");
    assert!(log.contains("pool=\"main\" backend=\"s0\""), "{log}");
}

/// Two hundred requests are in flight to a server that stops for a moment. However many fail, it is
/// one event, and the server is still asked.
#[test]
fn one_stall_opens_nothing() {
    let _watch = watchdog(Duration::from_secs(60), "one stall");
    let servers = RedisServer::start_many(1);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool(&servers)]));
    let mut clients: Vec<Client> = (0..200).map(|_| keyway.client(0)).collect();
    let key = key_on(&mut clients[0], &servers[0]);
    for round in 0..3 {
        servers[0].process().pause();
        let replies = ask_all(&mut clients, &key);
        servers[0].process().resume();
        let failed = replies.iter().filter(|reply| reply.is_error()).count();
        assert!(failed >= 100, "round {round}: {failed} failed");
        assert!(replies.iter().all(|reply| !reply.error_text().contains(REFUSED)));
        // Requests that came later are in the window as well; otherwise the share of failures would
        // be 100 %.
        wait_until("it answers", SOON, || ask_all(&mut clients[..1], &key)[0] == Value::bulk("v"));
        for _ in 0..5 * (round + 1) {
            for reply in ask_all(&mut clients, &key) {
                assert_eq!(reply, Value::bulk("v"));
            }
        }
    }
    assert_eq!(metric(&keyway, OPENS, "s0"), 0.0);
}

/// A request of a client that leaves while it waits is not a failure of the server.
#[test]
fn clients_that_leave_while_they_wait_open_nothing() {
    let _watch = watchdog(Duration::from_secs(60), "clients that leave");
    let servers = RedisServer::start_many(1);
    let circuit =
        "{ failures_percent = 1, requests_min = 1, open_for = \"10m\", open_for_max = \"10m\" }";
    let pool = pool(&servers).with("circuit", circuit).with("timeout", "\"5s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut direct = servers[0].client();
    let mut blocked = |count: usize| {
        let wanted = format!("blocked_clients:{count}\r");
        wait_until("so many wait", SOON, || direct.words("INFO clients").text().contains(&wanted));
    };
    let mut client = keyway.client(0);
    for _ in 0..3 {
        let mut waiting: Vec<Client> = (0..10).map(|_| keyway.client(0)).collect();
        waiting.iter_mut().for_each(|client| client.send(&encode(&["BLPOP", "empty", "0"])));
        blocked(10);
        drop(waiting);
        blocked(0);
        // This takes longer than one stall.
        assert_eq!(client.words("BLPOP empty 0.3"), Value::NilArray);
    }
    assert_eq!(client.words("SET a 1"), Value::simple("OK"));
    assert_eq!(metric(&keyway, OPENS, "s0"), 0.0);
}

/// The only server of the pool has a circuit too, and an operator can close it at once.
#[test]
fn the_last_server_has_a_circuit_too_and_an_operator_closes_it() {
    let _watch = watchdog(Duration::from_secs(60), "the last server");
    let servers = RedisServer::start_many(1);
    let circuit = "{ requests_min = 10, open_for = \"10m\", open_for_max = \"10m\" }";
    let pool = pool(&servers).with("circuit", circuit);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut clients: Vec<Client> = (0..8).map(|_| keyway.client(0)).collect();
    let key = key_on(&mut clients[0], &servers[0]);
    servers[0].process().pause();
    wait_until("the circuit opens", SOON, || {
        let replies = ask_all(&mut clients, &key);
        replies.iter().all(|reply| reply.error_text().contains(REFUSED))
    });
    // The kind of request does not matter.
    for words in ["SET a 1", "DEL a b", "SCAN 0", "DBSIZE", "BLPOP a 1", "EVAL return(1) 1 a"] {
        let reply = clients[0].words(words);
        assert!(reply.error_text().contains(REFUSED), "{words}: {reply:?}");
    }
    let replies = clients[0].pipeline(&["MULTI", "SET a 1", "EXEC"]);
    assert!(replies[2].error_text().contains(REFUSED), "{replies:?}");
    servers[0].process().resume();
    assert!(ask_all(&mut clients, &key).iter().all(Value::is_error), "for ten minutes");
    let path = "/backends/restore?pool=main&backend=s0";
    assert_eq!(http_post(keyway.admin(), path).status, 200);
    assert!(ask_all(&mut clients, &key).iter().all(|reply| *reply == Value::bulk("v")));
    assert!(keyway.process().log().contains("asked again on an operator's word"));
}

#[test]
fn servers_of_memcached_have_circuits_too() {
    if !has_memcached("circuits of memcached servers") {
        return;
    }
    let _watch = watchdog(Duration::from_secs(60), "memcached");
    let servers = MemcachedServer::start_many(1);
    let pool =
        Pool::memcached("main", &servers).with("timeout", "\"150ms\"").with("circuit", CIRCUIT);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.memcached_client(0);
    assert_eq!(client.say("set a 0 0 1\r\nv\r\n"), "STORED\r\n");
    servers[0].process().pause();
    wait_until("the circuit opens", SOON, || {
        let mut clients: Vec<_> = (0..16).map(|_| keyway.memcached_client(0)).collect();
        clients.iter_mut().for_each(|client| client.send(b"get a\r\n"));
        clients.iter_mut().any(|client| client.line().contains(REFUSED))
    });
    client.send(b"get a\r\n");
    let line = client.line();
    assert!(line.starts_with("SERVER_ERROR "), "{line}");
    servers[0].process().resume();
    wait_until("it closes", SOON, || {
        client.send(b"get a\r\n");
        let line = client.line();
        if line.starts_with("VALUE") {
            assert_eq!((client.line(), client.line()), ("v".to_owned(), "END".to_owned()));
        }
        line.starts_with("VALUE")
    });
}

fn listed(servers: &Replicated) -> Pool {
    let quoted: Vec<String> =
        servers.addresses().iter().map(|address| format!("\"{address}\"")).collect();
    Pool::of_kind("main", "replicated")
        .with("servers", &format!("[{}]", quoted.join(", ")))
        .with("refresh", "\"200ms\"")
}

/// Waits until all servers have the value that a client has written.
fn set_everywhere(client: &mut Client, servers: &Replicated) {
    assert_eq!(client.command(&["SET", "k", "v"]), Value::simple("OK"));
    let has = |server| servers.client(server).command(&["GET", "k"]) == Value::bulk("v");
    wait_until("it is copied", SOON, || (0..servers.server_count()).all(has));
}

fn chosen(keyway: &Keyway, address: SocketAddr) -> f64 {
    metric(keyway, "keyway_backend_chosen_reads_total", address)
}

#[test]
fn reads_go_elsewhere_while_the_circuit_of_a_replica_is_open() {
    const SLOT: u16 = 7;
    let _watch = watchdog(Duration::from_secs(120), "a replica that stops");
    let mut cluster = RedisCluster::start(3, 1);
    let settings =
        [("read_from", "\"prefer-replica\""), ("timeout", "\"150ms\""), ("circuit", CIRCUIT)];
    let keyway = crate::cluster_setup::serve(&cluster, &settings, 1);
    let mut clients: Vec<Client> = (0..16).map(|_| keyway.client(0)).collect();
    let key = crate::cluster_setup::key_of(SLOT, "k");
    assert_eq!(clients[0].command(&["SET", &key, "v"]), Value::simple("OK"));
    let replica = cluster.replicas_of(cluster.primary_of_slot(SLOT).expect("it has the slot"))[0];
    let stopped = cluster.address(replica);
    wait_until("it is copied and read", SOON, || {
        let replies = ask_all(&mut clients, &key);
        chosen(&keyway, stopped) > 0.0 && replies.iter().all(|reply| *reply == Value::bulk("v"))
    });
    cluster.pause(replica);
    wait_until("the circuit opens", SOON, || {
        ask_all(&mut clients, &key);
        metric(&keyway, OPENS, stopped) >= 1.0
    });
    let opened = || keyway.process().log().matches("circuit opened").count();
    let (mut errors, before) = (0, opened());
    for _ in 0..200 {
        let replies = ask_all(&mut clients, &key);
        errors += replies.iter().filter(|reply| reply.is_error()).count();
        assert!(replies.iter().all(|reply| !reply.error_text().contains(REFUSED)), "{replies:?}");
    }
    let rounds = opened() - before + 1;
    assert!(errors <= 2 * rounds, "probes alone: {errors} errors in {rounds} rounds");
    cluster.resume(replica);
    wait_until("it is read again", SOON, || {
        let before = chosen(&keyway, stopped);
        (0..20).for_each(|_| drop(ask_all(&mut clients, &key)));
        chosen(&keyway, stopped) > before + 200.0
    });
}

/// Keeps a server busy most of the time until it is dropped.
struct Busy {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    fn make(servers: &Replicated, server: usize) -> Busy {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, mut direct) = (Arc::clone(&is_over), servers.client(server));
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                assert_eq!(direct.words("DEBUG SLEEP 0.03"), Value::simple("OK"));
            }
        });
        Busy { is_over, thread: Some(thread) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking());
    }
}

const OUTLIERS: &str =
    "{ bad_for = \"2s\", times_slower = 4, out_for = \"2s\", out_for_max = \"4s\" }";

#[test]
fn a_replica_that_is_slow_is_left_out_and_comes_back() {
    let _watch = watchdog(Duration::from_secs(120), "a slow replica");
    let servers = Replicated::start_with(3, &["--enable-debug-command", "yes"], None);
    let pool = listed(&servers).with("read_from", "\"replica\"").with("outliers", OUTLIERS);
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "2");
    let keyway = Keyway::start(KEYWAY, config);
    let mut clients: Vec<Client> = (0..8).map(|_| keyway.client(0)).collect();
    set_everywhere(&mut clients[0], &servers);
    let slow = servers.address(2);
    let is_out = |address: SocketAddr| metric(&keyway, "keyway_backend_outlier_state", address);
    let busy = Busy::make(&servers, 2);
    wait_until("it is left out", SOON, || {
        assert!(ask_all(&mut clients, "k").iter().all(|reply| *reply == Value::bulk("v")));
        is_out(slow) == 1.0
    });
    let before = chosen(&keyway, slow);
    (0..10).for_each(|_| drop(ask_all(&mut clients, "k")));
    assert_eq!(chosen(&keyway, slow), before, "nothing is read from it");
    let body = backends(&keyway);
    let line = body.lines().find(|line| line.contains(&slow.to_string())).unwrap_or_default();
    assert!(line.contains("\"state\":\"outlier\",\"reason\":\"slow\""), "{body}");
    let info = clients[0].words("INFO keyway").text();
    assert!(info.contains(",state=outlier,"), "{info}");
    // It is tried again, is found too slow, and is left out again. The others never are.
    let outs = |address: SocketAddr| metric(&keyway, "keyway_backend_outliers_total", address);
    wait_until("again", SOON, || {
        assert!(ask_all(&mut clients, "k").iter().all(|reply| *reply == Value::bulk("v")));
        outs(slow) >= 2.0
    });
    drop(busy);
    wait_until("it is back for good", SOON, || {
        let before = chosen(&keyway, slow);
        (0..20).for_each(|_| drop(ask_all(&mut clients, "k")));
        is_out(slow) == 0.0 && chosen(&keyway, slow) > before + 30.0
    });
    assert_eq!([1, 3].map(|server| outs(servers.address(server))), [0.0, 0.0]);
    let log = keyway.process().log();
    assert!(log.contains("an outlier: no reads go to it for 2 s"), "{log}");
    assert!(log.contains("reads may go to it again"), "{log}");
}

#[test]
fn when_all_replicas_are_slow_they_are_read_all_the_same() {
    let _watch = watchdog(Duration::from_secs(90), "slow replicas");
    let mut servers = Replicated::start_with(2, &["--enable-debug-command", "yes"], None);
    let outliers = "{ bad_for = \"1s\", times_slower = 2, out_for = \"10m\", out_for_max = \"10m\", out_percent_max = 99 }";
    let pool = listed(&servers).with("read_from", "\"replica\"").with("outliers", outliers);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut clients: Vec<Client> = (0..8).map(|_| keyway.client(0)).collect();
    set_everywhere(&mut clients[0], &servers);
    let out_now = || keyway.metrics().sum("keyway_backend_outlier_state", &[]);
    let _one = Busy::make(&servers, 1);
    wait_until("one is left out", SOON, || {
        assert!(ask_all(&mut clients, "k").iter().all(|reply| *reply == Value::bulk("v")));
        out_now() == 1.0
    });
    let other = Busy::make(&servers, 2);
    for _ in 0..150 {
        assert!(ask_all(&mut clients, "k").iter().all(|reply| *reply == Value::bulk("v")));
        assert!(out_now() <= 1.0);
    }
    // The server that is left out is better than none.
    drop(other);
    servers.kill(2);
    wait_until("it is read", SOON, || ask_all(&mut clients[..1], "k")[0] == Value::bulk("v"));
}

#[test]
fn the_nearest_is_not_one_that_is_slow_and_is_again_when_it_is_fast() {
    let _watch = watchdog(Duration::from_secs(90), "the nearest");
    let servers = Replicated::start_with(2, &["--enable-debug-command", "yes"], None);
    let pool = listed(&servers).with("read_from", "\"nearest\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut clients: Vec<Client> = (0..8).map(|_| keyway.client(0)).collect();
    set_everywhere(&mut clients[0], &servers);
    let all = servers.addresses();
    let estimate = |address: SocketAddr| {
        metric(&keyway, "keyway_backend_read_latency_estimate_seconds", address)
    };
    let mut read = |rounds: usize| {
        let before: Vec<f64> = all.iter().map(|&address| chosen(&keyway, address)).collect();
        for _ in 0..rounds {
            assert!(ask_all(&mut clients, "k").iter().all(|reply| *reply == Value::bulk("v")));
        }
        all.iter().zip(before).map(|(&at, before)| chosen(&keyway, at) - before).collect::<Vec<_>>()
    };
    wait_until("all are read", SOON, || read(200).iter().all(|&count| count > 20.0));
    let busy = Busy::make(&servers, 1);
    wait_until("its estimate is high", SOON, || {
        read(50);
        estimate(all[1]) > 0.01
    });
    let counts = read(1000);
    assert_eq!(counts.iter().sum::<f64>(), 8000.0);
    assert!((1.0..=8000.0 / 32.0).contains(&counts[1]), "tried now and then: {counts:?}");
    drop(busy);
    wait_until("it is as good as the others", SOON, || read(200)[1] > 100.0);
    assert!(estimate(all[1]) > 0.0 && estimate(all[1]) < 0.05);
}
