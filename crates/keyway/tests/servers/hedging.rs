//! Reads that are sent to a second server, and requests that are sent again after one was lost.

use std::net::SocketAddr;
use std::time::Duration;

use keyway_testkit::{
    CheckedLoad, Client, Keyway, KeywayConfig, LoadReport, LoadShape, Pool, RedisCluster,
    Replicated, Value, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(15);

/// Time for which a request waits in a pool. Hedged reads take far less.
const TIMEOUT: Duration = Duration::from_secs(8);

fn pool(kind: &str, addresses: &[SocketAddr]) -> Pool {
    let quoted: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    Pool::of_kind("main", kind)
        .with("servers", &format!("[{}]", quoted.join(", ")))
        .with("refresh", "\"200ms\"")
        .with("read_from", "\"prefer-replica\"")
        .with("timeout", "\"8s\"")
}

/// Starts Keyway with one worker, so that replicas are read in turns over all clients.
fn start(pool: Pool) -> Keyway {
    Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "1"))
}

fn counted(keyway: &Keyway, what: &str) -> f64 {
    keyway.metrics().sum(&format!("keyway_cluster_{what}_total"), &["pool=\"main\""])
}

/// Returns the number of requests that Keyway has sent to a server.
fn asked(keyway: &Keyway, address: SocketAddr) -> f64 {
    keyway.metrics().sum("keyway_backend_requests_total", &[&format!("backend=\"{address}\"")])
}

/// Returns how many times a server has executed a command.
fn executed(servers: &Replicated, server: usize, command: &str) -> u64 {
    let stats = servers.ask(server, "INFO commandstats").text();
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
    let calls = line.and_then(|line| line.strip_prefix("calls=")?.split(',').next()?.parse().ok());
    calls.unwrap_or(0)
}

/// Sets `k`, and waits until both replicas have it and are read.
fn prepare(servers: &Replicated, keyway: &Keyway) {
    let mut client = keyway.client(0);
    assert_eq!(client.command(&["SET", "k", "v"]), Value::simple("OK"));
    let has = |server: usize| servers.client(server).command(&["GET", "k"]) == Value::bulk("v");
    wait_until("it is copied", SOON, || has(1) && has(2));
    wait_until("replicas are read", SOON, || {
        assert_eq!(client.command(&["GET", "k"]), Value::bulk("v"));
        (1..3).all(|server| asked(keyway, servers.address(server)) > 3.0)
    });
}

fn reads_alone(clients: usize) -> LoadShape {
    LoadShape {
        clients,
        depth_max: 1,
        may_read_old: true,
        reply_within: TIMEOUT,
        ..LoadShape::default()
    }
}

/// Starts clients that each send one read. Some of the reads go to the server that does not answer.
fn send_reads(keyway: &Keyway, count: usize) -> Vec<Client> {
    (0..count)
        .map(|_| {
            let mut client = keyway.client(0);
            client.send(b"GET k\r\n");
            client
        })
        .collect()
}

fn in_flight(keyway: &Keyway, address: SocketAddr) -> f64 {
    keyway.metrics().sum("keyway_backend_in_flight_requests", &[&format!("backend=\"{address}\"")])
}

/// Stops a replica under load for a while. Returns what the clients saw.
fn load_with_a_stopped_replica(
    keyway: &Keyway,
    pause: impl FnOnce(),
    resume: impl FnOnce(),
) -> LoadReport {
    let load = CheckedLoad::start(keyway.address(0), reads_alone(6));
    load.wait_replies(500);
    pause();
    load.wait_replies(1000);
    resume();
    load.wait_replies(500);
    load.stop()
}

#[test]
fn a_replica_that_stops_is_answered_for_and_no_reply_is_wrong() {
    let _watch = watchdog(Duration::from_secs(90), "a stopped replica");
    let servers = std::cell::RefCell::new(Replicated::start(2));
    let pool = pool("replicated", &servers.borrow().addresses())
        .with("hedge_after", "\"10ms\"")
        .with("hedge_budget", "\"100%\"");
    let keyway = start(pool);
    prepare(&servers.borrow(), &keyway);
    let report = load_with_a_stopped_replica(
        &keyway,
        || servers.borrow_mut().pause(1),
        || servers.borrow_mut().resume(1),
    );
    report.assert_clean();
    assert!(report.longest_pause < TIMEOUT / 4, "{report}");
    let (hedged, won) = (counted(&keyway, "hedged_reads"), counted(&keyway, "won_hedges"));
    assert!(won > 100.0 && won <= hedged, "{won} of {hedged}");
}

#[test]
fn the_same_in_a_cluster_by_what_most_reads_take() {
    let _watch = watchdog(Duration::from_secs(120), "a stopped replica of a cluster");
    let cluster = std::cell::RefCell::new(RedisCluster::start(3, 1));
    let pool = pool("cluster", &cluster.borrow().addresses())
        .with("hedge_after", "\"p99\"")
        .with("hedge_budget", "\"100%\"");
    let keyway = start(pool);
    let replica = cluster.borrow().replicas_of(0)[0];
    wait_until("replicas are read", SOON, || {
        keyway.client(0).command(&["GET", "k"]);
        asked(&keyway, cluster.borrow().address(replica)) > 0.0
            || keyway.client(0).command(&["MGET", "a", "b", "c", "d", "e"]).array().is_empty()
    });
    let report = load_with_a_stopped_replica(
        &keyway,
        || cluster.borrow_mut().pause(replica),
        || cluster.borrow_mut().resume(replica),
    );
    report.assert_clean();
    assert!(report.longest_pause < TIMEOUT / 4, "{report}");
    assert!(counted(&keyway, "won_hedges") > 20.0, "{report}");
}

#[test]
fn no_more_reads_are_sent_twice_than_the_budget_allows() {
    let _watch = watchdog(Duration::from_secs(60), "a budget of hedges");
    let mut servers = Replicated::start(2);
    let pool = pool("replicated", &servers.addresses())
        .with("hedge_after", "\"20ms\"")
        .with("hedge_budget", "\"10%\"");
    let keyway = start(pool);
    prepare(&servers, &keyway);
    let reads = || {
        keyway.metrics().sum("keyway_pool_requests_total", &["pool=\"main\"", "command=\"read\""])
    };
    servers.pause(1);
    let mut clients = send_reads(&keyway, 300);
    wait_until("time has passed for half of them", SOON, || {
        counted(&keyway, "hedged_reads") + counted(&keyway, "refused_hedges") >= 149.0
    });
    servers.resume(1);
    for client in &mut clients {
        assert_eq!(client.reply(), Value::bulk("v"));
    }
    let hedged = counted(&keyway, "hedged_reads");
    // One hedge in a second is always allowed.
    let least = SOON.as_secs_f64();
    assert!(hedged >= 1.0 && counted(&keyway, "refused_hedges") > 50.0);
    assert!(hedged <= reads() * 0.1 + least, "{hedged} of {}", reads());
}

#[test]
fn writes_are_never_sent_twice_and_reads_only_where_that_is_asked_for() {
    let _watch = watchdog(Duration::from_secs(60), "what is not hedged");
    let mut servers = Replicated::start(2);
    let hedged = pool("replicated", &servers.addresses())
        .with("hedge_after", "\"5ms\"")
        .with("hedge_budget", "\"100%\"");
    let keyway = start(hedged);
    prepare(&servers, &keyway);
    let before = executed(&servers, 0, "incr");
    let sent = 40;
    let mut clients: Vec<Client> = (0..sent).map(|_| keyway.client(0)).collect();
    servers.pause(0);
    clients.iter_mut().for_each(|client| client.send(b"INCR n\r\n"));
    wait_until("they are on their way", SOON, || {
        in_flight(&keyway, servers.address(0)) >= f64::from(sent)
    });
    // A read that is sent twice shows that time has passed.
    servers.pause(1);
    let reads = send_reads(&keyway, 4);
    for mut client in reads {
        assert_eq!(client.reply(), Value::bulk("v"));
    }
    servers.resume(0);
    servers.resume(1);
    let mut counted_up: Vec<i64> = clients
        .iter_mut()
        .map(|client| match client.reply() {
            Value::Integer(n) => n,
            other => panic!("{other:?}"),
        })
        .collect();
    counted_up.sort_unstable();
    assert!(counted_up.into_iter().eq(1..=i64::from(sent)));
    assert_eq!(executed(&servers, 0, "incr") - before, u64::from(sent as u32));
    let hedges = counted(&keyway, "hedged_reads");
    assert_eq!(hedges, 2.0, "of the reads alone");

    let plain = start(pool("replicated", &servers.addresses()));
    prepare(&servers, &plain);
    servers.pause(1);
    let mut waiting = send_reads(&plain, 4);
    wait_until("some wait", SOON, || in_flight(&plain, servers.address(1)) > 0.0);
    // This lets time pass.
    assert_eq!(servers.client(0).command(&["BLPOP", "nothing", "0.3"]), Value::NilArray);
    assert!(in_flight(&plain, servers.address(1)) > 0.0, "they wait for their server");
    servers.resume(1);
    for client in &mut waiting {
        assert_eq!(client.reply(), Value::bulk("v"));
    }
    assert_eq!(counted(&plain, "hedged_reads"), 0.0);
}

/// Kills a replica that many reads wait for. Returns the number of reads that got an error.
fn lose_reads(servers: &mut Replicated, keyway: &Keyway, count: usize) -> usize {
    servers.pause(1);
    let mut clients = send_reads(keyway, count);
    wait_until("many wait", SOON, || {
        in_flight(keyway, servers.address(1)) >= count as f64 / 2.0 - 1.0
    });
    servers.kill(1);
    let replies: Vec<Value> = clients.iter_mut().map(Client::reply).collect();
    replies
        .iter()
        .filter(|reply| match reply {
            Value::Error(_) => true,
            reply => {
                assert_eq!(**reply, Value::bulk("v"));
                false
            }
        })
        .count()
}

#[test]
fn a_read_whose_replica_is_lost_is_answered_by_another() {
    let _watch = watchdog(Duration::from_secs(60), "a lost replica");
    let mut servers = Replicated::start(2);
    let keyway = start(pool("replicated", &servers.addresses()));
    prepare(&servers, &keyway);
    assert_eq!(lose_reads(&mut servers, &keyway, 40), 0);
    assert!(counted(&keyway, "retried_requests") >= 19.0);
    assert_eq!(counted(&keyway, "refused_retries"), 0.0);
}

#[test]
fn no_more_is_sent_again_than_the_budget_allows() {
    let _watch = watchdog(Duration::from_secs(60), "a budget of retries");
    let mut servers = Replicated::start(2);
    let pool = pool("replicated", &servers.addresses()).with("retry_budget", "\"1%\"");
    let keyway = start(pool);
    prepare(&servers, &keyway);
    let failed = lose_reads(&mut servers, &keyway, 60);
    let (retried, refused) =
        (counted(&keyway, "retried_requests"), counted(&keyway, "refused_retries"));
    assert!(failed > 0 && failed as f64 == refused, "{failed} failed, {refused} refused");
    let requests = keyway.metrics().sum("keyway_pool_requests_total", &["pool=\"main\""]);
    assert!((1.0..=f64::max(10.0, requests * 0.01)).contains(&retried), "{retried}");
}
