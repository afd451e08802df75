//! Thousands of programs connect to a node of the bus and leave, in every way there is. Nothing of
//! them is left: no descriptors, no mappings, no memory.

#![allow(clippy::disallowed_methods, reason = "the time that a guest has")]

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use keyway_bus::{Event, NodeId, Settings, Upstream};
use keyway_channel::{Driver, DriverSettings, clock, here};
use keyway_ring::{HELLO_MAGIC, Hello, ask};
use keyway_testkit::{
    Process, TempDir, fd_count, free_address, resident_bytes, thread_count, wait_until, watchdog,
};

const TOKEN: &str = "a token for these processes";

/// Number of connections; a multiple of ten.
const CONNECTS: usize = 10_000;

/// One connection in this many is a guest that is accepted.
const GUEST_EVERY: usize = 20;

const SOON: Duration = Duration::from_secs(20);

/// Most memory that the node keeps for later connections, in bytes. It does not grow with their
/// number.
const KEPT_LEN_MAX: u64 = 4 << 20;

struct Node {
    process: Process,
    shm: String,
    tcp: String,
    scratch: TempDir,
}

impl Node {
    fn start() -> Node {
        let scratch = TempDir::new();
        let shm = scratch.path().join("bus").display().to_string();
        let tcp = free_address().to_string();
        let token = scratch.write("token", TOKEN);
        let text = format!(
            "id = \"z1.control.0.1\"\nlisten = [\"shm://{shm}\", \"tcp://{tcp}\"]\n\
             token_files = [\"{}\"]\n",
            token.display()
        );
        let file = scratch.write("node.toml", text);
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyway"));
        command.args(["bus", "node"]).arg(file);
        let process = Process::spawn("node", &mut command, scratch.path());
        wait_until("it is ready", SOON, || process.log().contains("ready "));
        Node { process, shm, tcp, scratch }
    }

    fn mapped(&self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.process.pid()));
        maps.expect("it runs").lines().filter(|line| line.contains("keyway-ring")).count()
    }

    /// Connects in one of the ways, and leaves.
    fn connect(&self, nth: usize) {
        match nth % 5 {
            0 => drop(self.rings()),
            // The connection gets bytes that are not a frame.
            1 => drop(self.rings().map(|shared| {
                let mut end = keyway_ring::Producer::new(shared.out);
                let _ = end.write(&[0xee; 100]);
                end.finish(&keyway_ring::Bell::default());
            })),
            2 => drop(UnixStream::connect(&self.shm)),
            // The connection gets the beginning of a hello.
            3 => drop(UnixStream::connect(&self.shm).map(|mut socket| {
                let _ = socket.write_all(&HELLO_MAGIC[..5]);
            })),
            _ => drop(TcpStream::connect(&self.tcp).map(|mut socket| socket.write_all(&[7; 50]))),
        }
    }

    /// Asks for rings. The node may refuse, because it bounds the number of connections that are
    /// not identified yet.
    fn rings(&self) -> Option<keyway_ring::Shared> {
        let socket = UnixStream::connect(&self.shm).ok()?;
        socket.set_read_timeout(Some(SOON)).unwrap();
        ask(&socket, &Hello::new(0, 0)).ok()?.ok()
    }

    /// Joins as a guest. Leaves in order, or closes the connection without a word.
    fn guest(&self, url: &str, leaves: bool) {
        let mut settings = Settings::of(NodeId::NONE);
        settings.tokens.add(TOKEN.as_bytes()).unwrap();
        (settings.place, settings.incarnation) = (here(), clock().0);
        settings.upstreams = vec![Upstream { id: NodeId::NONE, urls: vec![url.parse().unwrap()] }];
        let mut driver = Driver::new(settings, DriverSettings::default()).unwrap();
        wait_for(&mut driver, |event| matches!(event, Event::Upstream(Some(_))));
        if leaves {
            driver.node().leave(clock());
            wait_for(&mut driver, |event| *event == Event::Gone);
        }
    }
}

fn wait_for(driver: &mut Driver, is_it: impl Fn(&Event) -> bool) {
    let begun = Instant::now();
    loop {
        while let Some(event) = driver.poll_event() {
            if is_it(&event) {
                return;
            }
        }
        assert!(begun.elapsed() < SOON, "it does not happen");
        driver.turn(Duration::from_millis(100)).unwrap();
    }
}

fn connect_all(node: &Node, count: usize) {
    let urls = [format!("shm://{}", node.shm), format!("tcp://{}", node.tcp)];
    for nth in 0..count {
        match nth % GUEST_EVERY {
            0 => node.guest(&urls[nth / GUEST_EVERY % 2], nth / GUEST_EVERY % 4 < 2),
            _ => node.connect(nth),
        }
    }
}

#[test]
fn thousands_who_connect_and_go_leave_nothing() {
    let _watch = watchdog(Duration::from_secs(180), "thousands of connections");
    let node = Node::start();
    let pid = node.process.pid();
    let (descriptors, threads) = (fd_count(pid), thread_count(pid));
    // Memory that the process takes only once does not count.
    connect_all(&node, CONNECTS / 10);
    wait_until("the first are gone", SOON, || fd_count(pid) <= descriptors);
    let before = resident_bytes(pid);
    let begun = Instant::now();
    connect_all(&node, CONNECTS);
    wait_until("their descriptors are gone", SOON, || fd_count(pid) <= descriptors);
    wait_until("their memory is unmapped", SOON, || node.mapped() == 0);
    let grown = resident_bytes(pid).saturating_sub(before);
    println!("{CONNECTS} in {:?}; {grown} bytes more are resident", begun.elapsed());
    assert!(grown < KEPT_LEN_MAX, "{grown} bytes more");
    assert_eq!(thread_count(pid), threads);
    node.guest(&format!("shm://{}", node.shm), true);
    assert!(Path::new(&node.shm).exists());
    let Node { mut process, shm, scratch: _scratch, .. } = node;
    process.terminate();
    assert!(process.wait_exit(SOON).success(), "{}", process.log());
    assert!(!Path::new(&shm).exists(), "its socket is removed");
}
