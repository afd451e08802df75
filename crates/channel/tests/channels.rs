//! Nodes on real channels: the same conversation over each of them, and the death of a process.

// Tests wait under a watchdog.
#![allow(clippy::disallowed_methods)]

use keyway_bus::{Event, NodeId, Reason, SendOptions, Settings, Stamp, Upstream, Url};
use keyway_channel::{Driver, DriverSettings, clock, here};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn id(instance: u64) -> NodeId {
    NodeId::of(1, 3, 1, instance).unwrap()
}

fn settings(instance: u64, upstreams: &[(u64, &Url)]) -> Settings {
    let mut settings = Settings::of(id(instance));
    settings.tokens.add(b"a token for these tests").unwrap();
    settings.place = here();
    settings.upstreams = upstreams
        .iter()
        .map(|(instance, url)| Upstream { id: id(*instance), urls: vec![(*url).clone()] })
        .collect();
    settings
}

fn driver(settings: Settings) -> Driver {
    Driver::new(settings, DriverSettings::default()).unwrap()
}

fn listening(instance: u64, url: &str) -> Driver {
    let mut settings = settings(instance, &[]);
    settings.urls = vec![url.parse().unwrap()];
    driver(settings)
}

/// Runs all drivers until `is_so` holds for their events. Panics after ten seconds.
fn turn_until(
    drivers: &mut [Driver],
    what: &str,
    mut is_so: impl FnMut(&mut [Driver], &[Vec<Event>]) -> bool,
) {
    let start = Instant::now();
    let mut heard: Vec<Vec<Event>> = drivers.iter().map(|_| Vec::new()).collect();
    while !is_so(drivers, &heard) {
        assert!(start.elapsed() < 10 * SECOND, "not within ten seconds: {what}");
        for (driver, heard) in drivers.iter_mut().zip(&mut heard) {
            driver.turn(Duration::from_millis(1)).unwrap();
            heard.extend(std::iter::from_fn(|| driver.poll_event()));
        }
    }
}

fn scratch(name: &str) -> String {
    let path = std::env::temp_dir().join(format!("keyway-channel-{}-{name}", std::process::id()));
    path.to_str().unwrap().to_owned()
}

/// Tests a root, two nodes below it, and a conversation between the two: small, large, and a push.
fn converse(url: &str, binding_is: &str) {
    let root = listening(1, url);
    let at = root.urls()[0].clone();
    let mut all = [root, driver(settings(2, &[(1, &at)])), driver(settings(3, &[(1, &at)]))];
    turn_until(&mut all, "both joined", |all, _| all[0].node().nodes_below().count() == 2);
    let body: Vec<u8> =
        (0..9_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let options = SendOptions { ack_within: Some(10 * SECOND), no_upstream: false };
    let mut seqs = Vec::new();
    for number in 0..1000u32 {
        let small = number.to_le_bytes();
        seqs.push(all[1].node().send(id(3), &small, options, clock()).unwrap());
    }
    seqs.push(all[1].node().send(id(3), &body, options, clock()).unwrap());
    all[0].node().publish("topic", Stamp { epoch: 1, version: 1 }, body.clone()).unwrap();
    let mut got = (0u32, false, 0);
    turn_until(&mut all, "all acked and pushed", |_, heard| {
        let is_acked = |event: &Event| matches!(event, Event::Acked { .. });
        let is_push =
            |event: &Event| matches!(event, Event::Push { body: pushed, .. } if **pushed == body);
        let pushes = heard[1..].iter().flatten().filter(|event| is_push(event)).count();
        got.2 = pushes;
        heard[1].iter().filter(|event| is_acked(event)).count() == seqs.len() && pushes == 2 && {
            for event in &heard[2] {
                if let Event::Message { from, body: message, .. } = event {
                    assert_eq!(*from, id(2));
                    match message.len() {
                        4 => {
                            assert_eq!(message[..], got.0.to_le_bytes());
                            got.0 += 1;
                        }
                        _ => got.1 = *message == body,
                    }
                }
            }
            true
        }
    });
    assert_eq!((got.0, got.1), (1000, true), "over {binding_is}");
}

#[test]
fn tcp_of_both_versions_and_names() {
    converse("tcp://127.0.0.1:0", "tcp4");
    converse("tcp://[::1]:0", "tcp6");
    converse("dns://localhost:0", "dns");
}

#[test]
fn unix_sockets_with_and_without_a_file() {
    let path = scratch("unix");
    converse(&format!("unix://{path}"), "unix");
    assert!(!std::path::Path::new(&path).exists(), "the file is left");
    converse(&format!("unix://@keyway-channel-{}", std::process::id()), "abstract");
}

#[test]
fn shared_memory_and_one_process() {
    converse(&format!("shm://{}", scratch("shm")), "shm");
    converse("mem://here", "mem");
}

#[test]
fn one_that_shares_no_memory_is_spoken_to_over_its_socket() {
    let name = format!("@keyway-channel-plain-{}", std::process::id());
    let root = listening(1, &format!("shm://{name}"));
    let at: Url = format!("unix://{name}").parse().unwrap();
    let mut all = [root, driver(settings(2, &[(1, &at)]))];
    turn_until(&mut all, "joined", |all, _| all[0].node().nodes_below().count() == 1);
}

#[test]
fn a_socket_s_file_of_a_dead_process_is_replaced_and_another_is_not() {
    let path = scratch("stale");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let first = listening(1, &format!("unix://{path}"));
    let mut second = settings(2, &[]);
    second.urls = vec![format!("unix://{path}").parse().unwrap()];
    let refused = Driver::new(second, DriverSettings::default());
    assert!(refused.is_err_and(|error| error.to_string().contains(&path)));
    drop(first);
}

#[test]
fn the_standby_is_used_when_the_upstream_leaves() {
    let (first, second) = (listening(1, "tcp://127.0.0.1:0"), listening(2, "mem://standby"));
    let (one, two) = (first.urls()[0].clone(), second.urls()[0].clone());
    let child = driver(settings(3, &[(1, &one), (2, &two)]));
    let mut all = [first, second, child];
    turn_until(&mut all, "both upstreams", |all, _| {
        all[2].node().peers().filter(|peer| peer.is_open).count() == 2
            && all[2].node().upstream() == Some(id(1))
    });
    all[0].node().leave(clock());
    turn_until(&mut all, "standby", |all, heard| {
        heard[0].contains(&Event::Gone) && all[2].node().upstream() == Some(id(2))
    });
}

/// This is not a test, but the process that the next tests kill. It joins the address on its
/// standard input.
#[test]
#[ignore = "a process of other tests"]
fn child_process() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let at: Url = line.trim().parse().unwrap();
    let mut driver = driver(settings(7, &[(1, &at)]));
    loop {
        driver.turn(SECOND).unwrap();
        while let Some(event) = driver.poll_event() {
            if let Event::Upstream(Some(_)) = event {
                println!("joined");
            }
        }
    }
}

fn start_child(at: &Url) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_process", "--exact", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{at}").unwrap();
    child
}

/// Returns how long it takes to notice that a process was killed.
fn death(url: &str) -> Duration {
    let root = listening(1, url);
    let at = root.urls()[0].clone();
    let mut child = start_child(&at);
    let mut all = [root];
    turn_until(&mut all, "the process joined", |all, _| all[0].node().nodes_below().count() == 1);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("joined")));
    let start = Instant::now();
    child.kill().unwrap();
    turn_until(&mut all, "its death", |_, heard| {
        heard[0].contains(&Event::PeerDown { id: id(7), reason: Reason::Closed })
    });
    let took = start.elapsed();
    child.wait().unwrap();
    took
}

#[test]
fn a_killed_process_is_missed_by_the_end_of_its_channel() {
    for url in ["tcp://127.0.0.1:0".to_owned(), format!("shm://{}", scratch("death"))] {
        let took = death(&url);
        println!("{url}: its death was heard of after {took:?}");
        // The heartbeat would take three seconds.
        assert!(took < SECOND, "{url}: {took:?}");
    }
}

#[test]
fn a_hundred_connections_leave_no_descriptor() {
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut root = [listening(1, "mem://leaks")];
    let at = root[0].urls()[0].clone();
    let mut before = 0;
    for round in 0..100 {
        if round == 3 {
            before = count();
        }
        let mut child = [driver(settings(2, &[(1, &at)]))];
        let start = Instant::now();
        while root[0].node().nodes_below().count() == 0 {
            assert!(start.elapsed() < 10 * SECOND);
            child[0].turn(Duration::from_millis(1)).unwrap();
            root[0].turn(Duration::from_millis(1)).unwrap();
        }
        drop(child);
        turn_until(&mut root, "it is gone", |root, _| root[0].node().peers().count() == 0);
    }
    // Other tests of this process open and close descriptors meanwhile; a leak would add some in
    // each round.
    assert!(count() < before + 90, "{before}, then {}", count());
}

#[test]
fn a_node_without_peers_is_gone_as_soon_as_it_leaves() {
    for url in ["tcp://127.0.0.1:0".to_owned(), format!("shm://{}", scratch("alone"))] {
        let mut alone = listening(1, &url);
        alone.turn(Duration::ZERO).unwrap();
        while alone.poll_event().is_some() {}
        let start = Instant::now();
        alone.node().leave(clock());
        alone.turn(60 * SECOND).unwrap();
        assert_eq!(alone.poll_event(), Some(Event::Gone), "{url}");
        assert!(start.elapsed() < SECOND, "{url}: {:?}", start.elapsed());
    }
}
