//! The cost of connections at rest for their node: wake-ups and processor time.
//!
//! `cargo test -p keyway-channel --test idle -- --ignored --nocapture`

// Measures, and waits under a watchdog.
#![allow(clippy::disallowed_methods)]

use keyway_bus::{NodeId, Place, Settings, Upstream, Url};
use keyway_channel::{Driver, DriverSettings, here};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 1000;

fn id(instance: u64) -> NodeId {
    NodeId::of(1, 3, 1, instance).unwrap()
}

/// `is_here` decides whether the node says that it is on this host. Otherwise it is treated as if
/// it were on another.
fn settings(instance: u64, is_here: bool) -> Settings {
    let mut settings = Settings::of(id(instance));
    settings.tokens.add(b"a token for these tests").unwrap();
    settings.place = if is_here { here() } else { Place { host: [9; 16], process: 0 } };
    settings.peers_max = 4 * CONNECTIONS;
    settings
}

fn allow_descriptors() {
    let max = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: max, maximum: max }).unwrap();
}

/// This is not a test, but the process with the other ends, which serves them in turn.
#[test]
#[ignore = "a process of the other one"]
fn other_ends() {
    allow_descriptors();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let (at, is_here) = line.trim().split_once(' ').unwrap();
    let (at, is_here): (Url, bool) = (at.parse().unwrap(), is_here.parse().unwrap());
    let mut all: Vec<Driver> = Vec::new();
    loop {
        for _ in 0..20.min(CONNECTIONS - all.len()) {
            let mut one = settings(all.len() as u64 + 2, is_here);
            one.upstreams = vec![Upstream { id: id(1), urls: vec![at.clone()] }];
            all.push(Driver::new(one, DriverSettings::default()).unwrap());
        }
        for driver in &mut all {
            driver.turn(Duration::ZERO).unwrap();
            while driver.poll_event().is_some() {}
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Others(Child);

impl Drop for Others {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(at: &Url, is_here: bool) -> Others {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["other_ends", "--exact", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{at} {is_here}").unwrap();
    Others(child)
}

fn turn(driver: &mut Driver, wait: Duration) {
    driver.turn(wait).unwrap();
    while driver.poll_event().is_some() {}
}

fn cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

fn measure(url: &str, is_here: bool) {
    let mut root = settings(1, true);
    root.urls = vec![url.parse().unwrap()];
    let mut root = Driver::new(root, DriverSettings::default()).unwrap();
    let _others = start(&root.urls()[0], is_here);
    let begin = Instant::now();
    while root.node().nodes_below().count() < CONNECTIONS {
        assert!(begin.elapsed() < Duration::from_secs(60), "they do not come");
        turn(&mut root, Duration::from_millis(100));
    }
    for (what, settle, span) in [("fresh", 1, 6), ("at rest", 15, 60)] {
        let until = Instant::now() + Duration::from_secs(settle);
        while Instant::now() < until {
            turn(&mut root, Duration::from_millis(100));
        }
        let (before, start, mut turns) = (cpu(), Instant::now(), 0u32);
        let span = Duration::from_secs(span);
        while let Some(left) = span.checked_sub(start.elapsed()) {
            turn(&mut root, left);
            turns += 1;
        }
        let (used, took) = (cpu() - before, start.elapsed().as_secs_f64());
        println!(
            "{url}, on this host: {is_here}: {CONNECTIONS} connections {what}: {:.2} wake-ups a second, {:.4} % of a core",
            f64::from(turns) / took,
            used.as_secs_f64() / took * 100.0
        );
    }
    assert_eq!(root.node().nodes_below().count(), CONNECTIONS);
}

#[test]
#[ignore = "measures, for six minutes"]
fn a_thousand_connections_at_rest() {
    allow_descriptors();
    let path = std::env::temp_dir().join(format!("keyway-idle-{}", std::process::id()));
    measure("tcp://127.0.0.1:0", false);
    measure("tcp://127.0.0.1:0", true);
    measure(&format!("unix://{}.unix", path.display()), true);
    measure(&format!("shm://{}.shm?ring=64k", path.display()), true);
}
