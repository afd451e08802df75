//! The speed of the bus over real channels: messages relayed per second, and the time of a ping
//! during a push of 64 MiB. Prints figures and asserts no times: `cargo test --release --package
//! keyway-channel --test speed -- --ignored --nocapture --test-threads 1`.

// It measures, so it reads the clock.
#![allow(clippy::disallowed_methods)]

use keyway_bus::{Event, NodeId, SendOptions, Settings, Stamp, Upstream, Url};
use keyway_channel::{Driver, DriverSettings, clock, here};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Most messages of a sender in flight. A relay that gets more than its receiver reads gives them
/// back.
const UNDERWAY_MAX: u64 = 20_000;
const SECOND: Duration = Duration::from_secs(1);

fn settings(id: u64, upstream: Option<&Url>) -> Settings {
    let mut settings = Settings::of(NodeId(id));
    settings.place = here();
    settings.upstreams = upstream
        .map(|url| Upstream { id: NodeId(1), urls: vec![url.clone()] })
        .into_iter()
        .collect();
    settings
}

fn driver(settings: Settings) -> Driver {
    Driver::new(settings, DriverSettings::default()).unwrap()
}

fn root(url: &str) -> Driver {
    let mut settings = settings(1, None);
    settings.urls = vec![url.parse().unwrap()];
    driver(settings)
}

fn urls() -> [String; 3] {
    let scratch = |name: &str| {
        let path = std::env::temp_dir().join(format!("keyway-speed-{}-{name}", std::process::id()));
        path.to_str().unwrap().to_owned()
    };
    [
        "tcp://[::1]:0".to_owned(),
        format!("unix://{}", scratch("unix")),
        format!("shm://{}", scratch("shm")),
    ]
}

fn noise(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 37) as u8).collect()
}

/// Runs a node below `at` on a thread of its own, which applies pushes and counts messages.
fn below(id: u64, at: &Url, count: Arc<AtomicU64>) {
    let at = at.clone();
    std::thread::spawn(move || {
        let mut driver = driver(settings(id, Some(&at)));
        loop {
            driver.turn(SECOND).unwrap();
            while let Some(event) = driver.poll_event() {
                match event {
                    Event::Message { .. } => drop(count.fetch_add(1, Ordering::Relaxed)),
                    Event::Push { topic, epoch, version, .. } => {
                        driver.node().applied(&topic, Stamp { epoch, version }, true, clock());
                    }
                    // Its root is gone: the measurement is over.
                    Event::PeerDown { reason, .. } => {
                        return println!("node {id} is done: {reason}");
                    }
                    _ => {}
                }
            }
        }
    });
}

fn join(root: &mut Driver, count: usize) {
    let start = Instant::now();
    while root.node().nodes_below().count() < count {
        assert!(start.elapsed() < 10 * SECOND);
        root.turn(Duration::from_millis(5)).unwrap();
    }
}

#[test]
#[ignore = "measures"]
fn pings_beside_a_push() {
    for url in urls() {
        let mut root = root(&url);
        let at = root.urls()[0].clone();
        below(2, &at, Arc::default());
        join(&mut root, 1);
        let mut body = noise((64 << 20) - 4096);
        let mut took = Vec::new();
        for version in 1..=10 {
            // Every byte changes, so the delta is the whole body.
            body.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
            root.node().publish("large", Stamp { epoch: 1, version }, body.clone()).unwrap();
            let start = Instant::now();
            let mut is_applied = false;
            while !is_applied {
                let begin = Instant::now();
                let sent =
                    root.node().command(NodeId(2), &["bus.ping"], 10 * SECOND, clock()).unwrap();
                let mut is_there = false;
                while !is_there {
                    assert!(start.elapsed() < 30 * SECOND, "version {version} is not applied");
                    root.turn(Duration::from_millis(5)).unwrap();
                    while let Some(event) = root.poll_event() {
                        is_there |= matches!(event, Event::Result { seq, .. } if seq == sent);
                        is_applied |= matches!(event, Event::Applied { .. });
                    }
                }
                took.push(begin.elapsed());
            }
        }
        took.sort();
        let at = |share: usize| took[(took.len() - 1) * share / 100];
        println!(
            "{url}: {} pings beside 10 pushes: p50 {:?}, p99 {:?}, max {:?}",
            took.len(),
            at(50),
            at(99),
            at(100)
        );
    }
}

#[test]
#[ignore = "measures"]
fn a_relay_of_small_messages() {
    for url in urls() {
        let mut root = root(&url);
        let at = root.urls()[0].clone();
        let count = Arc::new(AtomicU64::new(0));
        below(3, &at, Arc::clone(&count));
        let sender = at.clone();
        let arrived = Arc::clone(&count);
        std::thread::spawn(move || {
            let mut settings = settings(2, Some(&sender));
            settings.queue_len_max = 1 << 20;
            let mut driver = driver(settings);
            let body = noise(128);
            let (mut sent_count, mut failed) = (0, 0);
            loop {
                driver.turn(Duration::from_millis(1)).unwrap();
                while let Some(event) = driver.poll_event() {
                    match event {
                        Event::PeerDown { .. } => return,
                        Event::Failed { .. } => failed += 1,
                        _ => {}
                    }
                }
                let underway = sent_count - failed - arrived.load(Ordering::Relaxed);
                if driver.node().upstream().is_some() {
                    for _ in 0..2000.min(UNDERWAY_MAX.saturating_sub(underway)) {
                        let sent =
                            driver.node().send(NodeId(3), &body, SendOptions::default(), clock());
                        if sent.is_err() {
                            break;
                        }
                        sent_count += 1;
                    }
                }
            }
        });
        join(&mut root, 2);
        let turn_for = |root: &mut Driver, span: Duration| {
            let start = Instant::now();
            while start.elapsed() < span {
                root.turn(Duration::from_millis(1)).unwrap();
                while root.poll_event().is_some() {}
            }
        };
        turn_for(&mut root, SECOND);
        let (begin, before) = (Instant::now(), count.load(Ordering::Relaxed));
        turn_for(&mut root, 5 * SECOND);
        let rate = (count.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64();
        println!(
            "{url}: {:.0} K messages of 128 bytes a second through a relay, three threads",
            rate / 1e3
        );
    }
}
