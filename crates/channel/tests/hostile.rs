//! Strangers and dead peers on real sockets: they keep no other node out, and hold no descriptor
//! for long.

// Tests wait under a watchdog.
#![allow(clippy::disallowed_methods)]

use keyway_bus::{Event, NodeId, Reason, Settings, Upstream, Url};
use keyway_channel::{Driver, DriverSettings, clock, here};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn id(instance: u64) -> NodeId {
    NodeId::of(1, 3, 1, instance).unwrap()
}

fn settings(instance: u64, upstream: Option<&Url>) -> Settings {
    let mut settings = Settings::of(id(instance));
    settings.tokens.add(b"a token for these tests").unwrap();
    settings.place = here();
    let above = |url: &Url| Upstream { id: id(1), urls: vec![url.clone()] };
    settings.upstreams = upstream.map(above).into_iter().collect();
    settings
}

/// Creates the root, which accepts 64 connections: 16 of strangers.
fn root(url: &str) -> Driver {
    let mut settings = settings(1, None);
    settings.urls = vec![url.parse().unwrap()];
    settings.peers_max = 64;
    Driver::new(settings, DriverSettings::default()).unwrap()
}

fn child(instance: u64, root: &Driver) -> Driver {
    let settings = settings(instance, Some(&root.urls()[0]));
    Driver::new(settings, DriverSettings::default()).unwrap()
}

/// Runs all drivers until `is_so` holds for their events.
fn turn_until(
    drivers: &mut [&mut Driver],
    what: &str,
    mut is_so: impl FnMut(&mut [&mut Driver], &[Vec<Event>]) -> bool,
) {
    let start = Instant::now();
    let mut heard: Vec<Vec<Event>> = drivers.iter().map(|_| Vec::new()).collect();
    while !is_so(drivers, &heard) {
        assert!(start.elapsed() < 15 * SECOND, "not within 15 seconds: {what}");
        for (driver, heard) in drivers.iter_mut().zip(&mut heard) {
            driver.turn(Duration::from_millis(1)).unwrap();
            heard.extend(std::iter::from_fn(|| driver.poll_event()));
        }
    }
}

fn port(root: &Driver) -> u16 {
    root.urls()[0].to_string().rsplit(':').next().unwrap().parse().unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn silent_strangers_keep_no_child_out() {
    let mut root = root("tcp://127.0.0.1:0");
    let at = port(&root);
    let mut silent = Vec::new();
    for number in 0..200 {
        silent.push(TcpStream::connect(("127.0.0.1", at)).unwrap());
        if number % 20 == 19 {
            root.turn(Duration::from_millis(1)).unwrap();
        }
    }
    let mut child = child(2, &root);
    let start = Instant::now();
    turn_until(&mut [&mut root, &mut child], "the child joined", |all, _| {
        all[0].node().nodes_below().count() == 1
    });
    assert!(start.elapsed() < 4 * SECOND, "before the strangers' time was up");
    assert!(root.node().peers().count() <= 17);
    turn_until(&mut [&mut root, &mut child], "the strangers are gone", |all, _| {
        all[0].node().peers().count() == 1
    });
    drop(silent);
}

#[test]
fn those_who_do_not_say_whether_memory_is_shared_keep_no_child_out() {
    let name = format!("keyway-channel-hostile-{}", std::process::id());
    let mut root = root(&format!("shm://@{name}"));
    use std::os::linux::net::SocketAddrExt;
    let addr = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let mut silent = Vec::new();
    for number in 0..200 {
        silent.push(UnixStream::connect_addr(&addr).unwrap());
        if number % 20 == 19 {
            root.turn(Duration::from_millis(1)).unwrap();
        }
    }
    let mut child = child(2, &root);
    let start = Instant::now();
    turn_until(&mut [&mut root, &mut child], "the child joined", |all, _| {
        all[0].node().nodes_below().count() == 1
    });
    assert!(start.elapsed() < 4 * SECOND, "before the strangers' time was up");
    drop(silent);
}

#[test]
fn connections_that_are_being_closed_are_bounded() {
    let mut root = root("tcp://127.0.0.1:0");
    let at = port(&root);
    let before = descriptors();
    let mut liars = Vec::new();
    for number in 0..700 {
        let mut liar = TcpStream::connect(("127.0.0.1", at)).unwrap();
        liar.write_all(&[0xff; 100]).unwrap();
        liars.push(liar);
        if number % 10 == 9 {
            root.turn(Duration::from_millis(1)).unwrap();
            root.turn(Duration::ZERO).unwrap();
        }
    }
    // There are their own ends, connections being closed, and those of other tests of this process.
    let now = descriptors();
    assert!(now < before + 700 + 256 + 16 + 300, "{before}, then {now}");
    let start = Instant::now();
    while descriptors() > before + 700 + 290 {
        assert!(start.elapsed() < 10 * SECOND, "they are not closed");
        root.turn(Duration::from_millis(10)).unwrap();
    }
}

#[test]
fn a_node_whose_old_connection_is_dead_comes_back_and_one_that_is_alive_stays() {
    let mut root = root("tcp://127.0.0.1:0");
    let mut first = child(2, &root);
    turn_until(&mut [&mut root, &mut first], "joined", |all, _| {
        all[0].node().nodes_below().count() == 1
    });
    // Another process has its id, while it is alive.
    let mut double = child(2, &root);
    turn_until(&mut [&mut root, &mut first, &mut double], "the double is refused", |_, heard| {
        // Only the node that was dialled can tell the address of the other one.
        let told = |of: usize| {
            heard[of].iter().find_map(|event| match event {
                Event::Refused { id, from, reason: Reason::IdInUse } => Some((*id, from.clone())),
                _ => None,
            })
        };
        let is_place = |from: Option<Box<str>>| from.is_some_and(|at| at.starts_with("127.0.0.1:"));
        told(0).is_some_and(|(of, from)| of == id(2) && is_place(from))
            && told(2) == Some((id(1), None))
    });
    assert_eq!(first.node().upstream(), Some(id(1)));
    drop(double);
    // This looks as if its host had died: its socket exists, and does not answer.
    let start = clock();
    let mut again = child(2, &root);
    turn_until(&mut [&mut root, &mut again], "it came back", |all, _| {
        all[1].node().upstream() == Some(id(1))
    });
    let took = clock().since(start);
    assert!(took < 3500 * Duration::from_millis(1), "{took:?}");
    turn_until(&mut [&mut root, &mut again, &mut first], "the old one is told", |_, heard| {
        heard[2].contains(&Event::Refused { id: id(1), from: None, reason: Reason::IdInUse })
    });
    assert_eq!(again.node().upstream(), Some(id(1)));
}
