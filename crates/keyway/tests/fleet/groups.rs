//! Groups of servers: primaries that are killed, come back, and are handed over, under load.

use crate::stage::{Coordinator, Fleet, SOON};
use keyway_testkit::{
    CheckedLoad, Client, Keyway, KeywayConfig, LoadShape, Pool, Replicated, Value, wait_for,
    wait_until, watchdog,
};
use parking_lot::{RwLock, RwLockReadGuard};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const DOWN_AFTER: Duration = Duration::from_secs(2);

/// Longest time from the end of a primary to the last failed write, beyond [`DOWN_AFTER`].
const REPLACED_WITHIN: Duration = Duration::from_secs(1);

/// A test that measures how long writes fail has the machine to itself, and others run beside each other.
static MACHINE: RwLock<()> = RwLock::new(());

fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read()
}

/// The state of the pool `main`, as the node that leads tells it.
fn group(fleet: &Fleet) -> Option<serde_json::Value> {
    let leader = fleet.controls.iter().find(|control| control.leads())?;
    leader.group("main")
}

fn wait_healthy(fleet: &Fleet) -> serde_json::Value {
    let is_healthy = |group: &serde_json::Value| group["state"] == "healthy";
    wait_for("the group is healthy", SOON, || group(fleet).filter(is_healthy))
}

/// Returns the document of a group of these servers.
fn document(servers: &[SocketAddr], more: &str) -> String {
    let listed: Vec<String> = servers.iter().map(|at| format!("\"{at}\"")).collect();
    format!(
        "[pool.main]\nkind = \"replicated\"\nservers = [{}]\ntimeout = \"1s\"\nfailover = {{ \
         down_after = \"{}ms\" }}\n{more}",
        listed.join(", "),
        DOWN_AFTER.as_millis()
    )
}

/// Groups of one pool that share slots: one fails over and the other is handed over, each by itself.
#[test]
fn groups_that_share_slots_fail_over_one_by_one() {
    let _beside = beside_others();
    let _watchdog = watchdog(Duration::from_secs(120), "groups that share slots");
    let mut first = Replicated::start(1);
    let second = Replicated::start(1);
    let fleet = Fleet::start(Coordinator::Files);
    fleet.wait_current(&[0, 1, 2], 0);
    let quoted = |servers: &Replicated| {
        let all = servers.addresses().into_iter().map(|at| format!("\"{at}\""));
        all.collect::<Vec<_>>().join(", ")
    };
    let (one, other) = (quoted(&first), quoted(&second));
    let text = format!(
        "[pool.main]\nkind = \"slots\"\nslots = 1024\ntimeout = \"1s\"\nfailover = {{ down_after = \
         \"2s\" }}\ngroups = [{{ name = \"a\", servers = [{one}], slots = \"0-511\" }}, {{ name = \
         \"b\", servers = [{other}], slots = \"512-1023\" }}]\n"
    );
    fleet.store(&text, 0);
    fleet.wait_current(&[0, 1, 2], 1);
    let group = |name: &str| fleet.controls[fleet.leader()].group(name);
    let wait = |name: &str, state: &str, primary: SocketAddr| {
        wait_until("the group is as it should be", SOON, || {
            group(name).is_some_and(|found| {
                found["state"] == state && found["primary"] == primary.to_string()
            })
        });
    };
    wait("main:a", "healthy", first.address(0));
    wait("main:b", "healthy", second.address(0));
    // The slot of `a` is 579, so these keys are of the second group, and that of `foo` is 289.
    let shape = LoadShape { prefix: "{a}".to_owned(), ..LoadShape::default() };
    let load = CheckedLoad::start(fleet.proxies[1].client, shape);
    load.wait_replies(100);
    let mut client = Client::connect(fleet.proxies[0].client);
    assert_eq!(client.words("SET foo v"), Value::simple("OK"));
    wait_until("it is copied", SOON, || first.ask(1, "GET foo") == Value::bulk("v"));
    first.kill(0);
    wait("main:a", "no-replica", first.address(1));
    wait_until("its keys are served", SOON, || client.words("SET foo w") == Value::simple("OK"));
    assert_eq!(first.ask(1, "GET foo"), Value::bulk("w"));
    load.wait_replies(100);
    let told = fleet.controls[fleet.leader()].ctl(&["failover", "main:b"]);
    assert!(told.expect_success("keyway ctl failover").stdout.contains("main:b"));
    wait("main:b", "healthy", second.address(1));
    load.wait_replies(100);
    load.stop().assert_clean();
    let none = fleet.controls[fleet.leader()].ctl(&["failover", "main"]);
    assert!(none.text.contains("the document has no pool main"), "{}", none.text);
}

/// A client that sends one command after the other.
struct Steady {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(Instant, Value)>>,
}

impl Steady {
    /// Returns what the thread notes: the replies that are not `expected`.
    fn start(at: SocketAddr, words: &'static str, expected: Value) -> Steady {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut client = Client::connect(at);
            let mut others = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let reply = client.words(words);
                if reply != expected {
                    others.push((Instant::now(), reply));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            others
        });
        Steady { is_over, thread }
    }

    fn stop(self) -> Vec<(Instant, Value)> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ends")
    }
}

/// Starts a fleet that serves by a group.
fn start(servers: &[SocketAddr], more: &str) -> Fleet {
    let fleet = Fleet::start(Coordinator::Files);
    fleet.wait_current(&[0, 1, 2], 0);
    fleet.store(&document(servers, more), 0);
    fleet.wait_current(&[0, 1, 2], 1);
    let found = wait_healthy(&fleet);
    assert_eq!(found["primary"], servers[0].to_string());
    fleet
}

fn others(fleet: &Fleet) -> Vec<CheckedLoad> {
    let load = |(nth, proxy): (usize, &crate::stage::Proxy)| {
        let prefix = format!("other{nth}");
        CheckedLoad::start(proxy.other, LoadShape { clients: 1, prefix, ..LoadShape::default() })
    };
    fleet.proxies.iter().enumerate().map(load).collect()
}

/// The end of a primary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// kill -9.
    Killed,
    /// The same, and the leader with it.
    KilledWithTheLeader,
    /// It hangs, and goes on later with what has come meanwhile.
    Hangs,
}

/// The primary ends: another server is the primary in time, and the first one is a replica before
/// anybody reads it.
fn ended_primary(end: End) {
    let _alone = MACHINE.write();
    let _watchdog = watchdog(Duration::from_secs(120), "a primary that ends");
    let mut servers = Replicated::start(2);
    let addresses = servers.addresses();
    let mut fleet = start(&addresses, "read_from = \"prefer-replica\"\n");
    let mut client = Client::connect(fleet.proxies[0].client);
    assert_eq!(client.words("SET kept v"), Value::simple("OK"));
    wait_until("replicas have it", SOON, || {
        (1..3).all(|nth| servers.ask(nth, "GET kept") == Value::bulk("v"))
    });
    let at = |nth: usize| fleet.proxies[nth].client;
    let writers = [0, 1, 2].map(|nth| Steady::start(at(nth), "SET w v", Value::simple("OK")));
    let readers = [0, 1, 2].map(|nth| Steady::start(at(nth), "GET kept", Value::bulk("v")));
    let loads = others(&fleet);
    loads.iter().for_each(|load| load.wait_replies(50));
    let leader = fleet.leader();
    let with_leader = end == End::KilledWithTheLeader;
    if with_leader && let Some(mut process) = fleet.controls[leader].process.take() {
        process.kill();
    }
    let since = Instant::now();
    match end {
        End::Hangs => servers.pause(0),
        End::Killed | End::KilledWithTheLeader => servers.kill(0),
    }
    wait_until("another one is the primary", SOON, || {
        group(&fleet).is_some_and(|found| {
            found["primary"] != addresses[0].to_string() && found["state"] != "failing-over"
        })
    });
    wait_until("writes are served", SOON, || {
        (0..3).all(|nth| {
            let mut client = Client::connect(fleet.proxies[nth].client);
            client.words("SET w v") == Value::simple("OK")
        })
    });
    let mut client = Client::connect(fleet.proxies[0].client);
    assert_eq!(client.words("SET later v"), Value::simple("OK"));
    match end {
        End::Hangs => servers.resume(0),
        // It comes back empty, and as a primary.
        End::Killed | End::KilledWithTheLeader => servers.restart(0),
    }
    wait_until("the first one is a replica", SOON, || {
        let found = group(&fleet).unwrap_or_default();
        let of = found["servers"].as_array().cloned().unwrap_or_default();
        of.iter().any(|one| one["server"] == addresses[0].to_string() && one["linked"] == true)
    });
    wait_until("it has everything", SOON, || {
        ["GET kept", "GET later"].iter().all(|get| servers.ask(0, get) == Value::bulk("v"))
    });
    std::thread::sleep(Duration::from_secs(1));
    let failed: Vec<(Instant, Value)> = writers.into_iter().flat_map(Steady::stop).collect();
    let last = failed.iter().map(|(at, _)| at.duration_since(since)).max().unwrap_or_default();
    let more = match end {
        End::Killed => Duration::ZERO,
        End::KilledWithTheLeader => DOWN_AFTER,
        // A request that it has not answered fails after the timeout of the pool.
        End::Hangs => Duration::from_secs(1),
    };
    let bound = DOWN_AFTER + REPLACED_WITHIN + more;
    println!("{} failed writes, the last one after {last:?}", failed.len());
    assert!(last <= bound, "{last:?}: {:?}", failed.last());
    for reader in readers {
        let wrong: Vec<_> = reader.stop().into_iter().filter(|(_, it)| !it.is_error()).collect();
        assert!(wrong.is_empty(), "somebody has read the server that came back: {wrong:?}");
    }
    for load in loads {
        load.stop().assert_clean();
    }
}

#[test]
fn a_killed_primary_is_replaced_in_time_and_is_a_replica_before_it_is_read() {
    ended_primary(End::Killed);
}

#[test]
fn a_primary_that_is_killed_with_the_leader_is_replaced_by_the_next_leader() {
    ended_primary(End::KilledWithTheLeader);
}

#[test]
fn a_primary_that_hangs_is_replaced_and_is_a_replica_when_it_goes_on() {
    ended_primary(End::Hangs);
}

/// The primary hangs, and then the server that took its place. Servers that hang hold up no order to
/// others, so the third one is the primary as soon.
#[test]
fn a_promoted_server_that_hangs_is_replaced_in_time_while_another_one_hangs() {
    let _alone = MACHINE.write();
    let _watchdog = watchdog(Duration::from_secs(120), "a promoted server that hangs");
    let mut servers = Replicated::start(2);
    let addresses = servers.addresses();
    let fleet = start(&addresses, "");
    let leads = |servers: &Replicated, nth: usize| {
        servers.ask(nth, "INFO replication").text().contains("role:master")
    };
    servers.pause(0);
    wait_until("another one is the primary", SOON, || (1..3).any(|nth| leads(&servers, nth)));
    let (second, third) = if leads(&servers, 1) { (1, 2) } else { (2, 1) };
    servers.pause(second);
    let since = Instant::now();
    let told = addresses[third].to_string();
    let is_told = |found: serde_json::Value| {
        found["primary"] == told && ["healthy", "no-replica"].iter().any(|it| found["state"] == *it)
    };
    wait_until("the third one is the primary", SOON, || group(&fleet).is_some_and(is_told));
    let took = since.elapsed();
    println!("replaced after {took:?}");
    assert!(leads(&servers, third));
    (0..3).filter(|nth| *nth != third).for_each(|nth| servers.resume(nth));
    wait_healthy(&fleet);
    // A proxy waits for an answer as long as for that of a request, which is a second.
    assert!(took <= DOWN_AFTER + REPLACED_WITHIN + Duration::from_secs(1), "{took:?}");
}

/// A group whose last replica is gone has a state of its own, and an event.
#[test]
fn a_primary_without_a_replica_is_told_of() {
    let _beside = beside_others();
    let _watchdog = watchdog(Duration::from_secs(120), "a primary without a replica");
    let mut servers = Replicated::start(1);
    let fleet = start(&servers.addresses(), "");
    servers.kill(1);
    wait_until("it is told", SOON, || {
        group(&fleet).is_some_and(|found| found["state"] == "no-replica")
    });
    let events = |words: &str| {
        let told = fleet.controls[fleet.leader()].ctl(&["events", "--since", "1h"]).text;
        told.lines().any(|line| line.contains("group-state") && line.contains(words))
    };
    wait_until("it is an event", SOON, || events("has no replica"));
    servers.restart(1);
    wait_healthy(&fleet);
}

/// Hands over several times under load through each proxy, without an error.
fn handed_over(addresses: &[SocketAddr]) {
    let fleet = start(addresses, "");
    let load = |(nth, proxy): (usize, &crate::stage::Proxy)| {
        let prefix = format!("load{nth}");
        let shape = LoadShape { clients: 2, prefix, seed: nth as u64 + 1, ..LoadShape::default() };
        CheckedLoad::start(proxy.client, shape)
    };
    let loads: Vec<CheckedLoad> = fleet.proxies.iter().enumerate().map(load).collect();
    loads.iter().for_each(|load| load.wait_replies(100));
    let ctl = |arguments: &[&str]| fleet.controls[fleet.leader()].ctl(arguments);
    let mut primary = addresses[0].to_string();
    for round in 0..3 {
        let to = addresses[(round + 1) % addresses.len()].to_string();
        let words = ["failover", "main", "--to", &to];
        let told = ctl(&words).expect_success("keyway ctl failover");
        assert!(told.stdout.contains(&to), "{}", told.text);
        let found = wait_healthy(&fleet);
        assert_eq!(found["primary"], to, "{found}");
        assert_ne!(found["primary"], primary);
        wait_until("all others follow it", SOON, || {
            let found = group(&fleet).unwrap_or_default();
            let of = found["servers"].as_array().cloned().unwrap_or_default();
            let follow =
                |one: &&serde_json::Value| one["follows"] == to.as_str() && one["linked"] == true;
            of.iter().filter(follow).count() + 1 == addresses.len()
        });
        primary = to;
        loads.iter().for_each(|load| load.wait_replies(100));
    }
    let own = ctl(&["failover", "main", "--to", &primary]);
    assert!(own.text.contains("is the primary of pool main already"), "{}", own.text);
    let stranger = ctl(&["failover", "main", "--to", "192.0.2.1:1"]);
    assert!(stranger.text.contains("is not of pool main"), "{}", stranger.text);
    let none = ctl(&["failover", "other"]);
    assert!(none.text.contains("the document has no pool other"), "{}", none.text);
    for load in loads {
        load.stop().assert_clean();
    }
}

#[test]
fn redis_servers_are_handed_over_by_hand_without_a_failed_request() {
    let _beside = beside_others();
    let _watchdog = watchdog(Duration::from_secs(120), "a fail-over by hand");
    let servers = Replicated::start(2);
    handed_over(&servers.addresses());
}

#[test]
fn keyways_are_handed_over_by_hand_without_a_failed_request() {
    let _beside = beside_others();
    let _watchdog = watchdog(Duration::from_secs(120), "a fail-over by hand of Keyways");
    let start = |pool| Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let first = start(Pool::store("main"));
    let of = format!("\"redis://{}\"", first.address(0));
    let second = start(Pool::store("main").with("replica_of", &of));
    let is_up = || second.client(0).words("INFO replication").text().contains("link_status:up");
    wait_until("it follows", SOON, is_up);
    handed_over(&[first.address(0), second.address(0)]);
}

/// A proxy that starts without control uses the decided primary, whatever the servers say.
#[test]
fn a_proxy_that_starts_without_control_obeys_the_decision_of_its_disk() {
    let _beside = beside_others();
    let _watchdog = watchdog(Duration::from_secs(120), "a decision on the disk");
    let servers = Replicated::start(1);
    let addresses = servers.addresses();
    let mut fleet = start(&addresses, "");
    let to = addresses[1].to_string();
    let told = fleet.controls[fleet.leader()].ctl(&["failover", "main", "--to", &to]);
    let _ = told.expect_success("keyway ctl failover");
    let found = wait_healthy(&fleet);
    assert_eq!(found["primary"], to);
    // A document without the primary would leave a group that takes no writes.
    let told = fleet.apply(&document(&addresses[..1], ""), 1);
    assert_eq!(told.status.code(), Some(1), "{}", told.text);
    assert!(told.text.contains(&format!("{to} is its primary, and the document lacks it")));
    fleet.wait_current(&[0, 1, 2], 1);
    for control in &mut fleet.controls {
        control.process.take().expect("it runs").kill();
    }
    // Somebody makes the first server a primary again, and it has another value.
    assert_eq!(servers.ask(0, "REPLICAOF NO ONE"), Value::simple("OK"));
    assert_eq!(servers.ask(0, "SET whose first"), Value::simple("OK"));
    assert_eq!(servers.ask(1, "SET whose second"), Value::simple("OK"));
    fleet.proxies[0].stop();
    fleet.proxies[0].start(&fleet.directory);
    let mut client = Client::connect(fleet.proxies[0].client);
    for _ in 0..500 {
        assert_eq!(client.words("GET whose"), Value::bulk("second"));
        std::thread::sleep(Duration::from_millis(2));
    }
}
