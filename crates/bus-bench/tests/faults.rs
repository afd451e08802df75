//! A benchmark whose processes die, or say what is none of it, ends with an error that tells so.
//!
//! The benchmark starts this program again for its processes, so that it has a `main` of its own.
#![allow(clippy::disallowed_methods, reason = "waiting is measured")]

use keyway_bus_bench::{Channel, Options, Outcome, Sizes, Transport, end, round_trips, run};
use keyway_ring::{Bell, Lane, Producer, Segment, SharedDoorbell};
use keyway_testkit::watchdog;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv6Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// An end as it should be, and one whose senders send what is no message.
const RIGHT: &str = "bench-end";
const WRONG: &str = "wrong-bench-end";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1..3) {
        Some([how, task]) if how == RIGHT => right_end(task),
        Some([how, task]) if how == WRONG => wrong_end(task),
        _ => {
            let _watch = watchdog(Duration::from_secs(120), "benchmarks that fail");
            all();
        }
    }
}

fn all() {
    for channel in Channel::ALL {
        for senders in [1, 3] {
            who_is_killed_is_told_of(channel, senders, RECEIVER, "the receiver has failed");
            who_is_killed_is_told_of(channel, senders, SENDER, "a sender has failed");
            what_is_no_message_is_told_of(channel, senders);
            what_is_interrupted_ends(channel, senders);
            what_is_whole_is_counted(channel, senders);
        }
    }
    trips_are_measured();
    println!("benchmarks that fail: ok");
}

fn options(channel: Channel, senders: usize, how: &str, length: Duration) -> Options {
    let program = std::env::current_exe().unwrap().display().to_string();
    Options {
        channels: vec![channel],
        sizes: vec![Sizes { min: 8, max: 2000 }],
        senders: vec![senders],
        length,
        rounds: 1,
        ring_len: 256 << 10,
        again: vec![program, how.to_owned()],
    }
}

/// The error of a benchmark, which comes long before it is over.
fn error(options: &Options) -> String {
    let start = Instant::now();
    let error = run(options, &AtomicBool::new(false), |_, _| {}).unwrap_err().to_string();
    assert!(start.elapsed() < options.length / 2, "{error}, after {:?}", start.elapsed());
    assert_eq!(children(""), [], "no process is left");
    error
}

const RECEIVER: &str = r#""sender":null"#;
const SENDER: &str = r#""sender":0"#;

/// Processes that this one has started, with these words in what they are to do.
fn children(words: &str) -> Vec<Pid> {
    let own = std::process::id().to_string();
    let is_child = |number: &str| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        // Behind the name: the state, and the parent.
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        let line = fs::read_to_string(format!("/proc/{number}/cmdline")).unwrap_or_default();
        parent == Some(&own) && line.contains(words)
    };
    let names = fs::read_dir("/proc").unwrap().flatten();
    let numbers = names.filter_map(|entry| entry.file_name().into_string().ok());
    let children = numbers.filter(|name| name.parse::<i32>().is_ok() && is_child(name));
    children.filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
}

fn who_is_killed_is_told_of(channel: Channel, senders: usize, who: &'static str, told: &str) {
    let long = options(channel, senders, RIGHT, Duration::from_secs(40));
    let killing = thread::spawn(move || {
        // Until all are there and something is on its way.
        while children("").len() <= senders {
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(Duration::from_millis(200));
        kill_process(children(who)[0], Signal::KILL).unwrap();
    });
    let error = error(&long);
    killing.join().unwrap();
    assert!(error.starts_with(told) && error.contains('9'), "{channel}, {senders}: {error}");
}

fn what_is_no_message_is_told_of(channel: Channel, senders: usize) {
    let error = error(&options(channel, senders, WRONG, Duration::from_secs(40)));
    assert!(error.starts_with("the receiver has failed"), "{channel}, {senders}: {error}");
}

fn what_is_interrupted_ends(channel: Channel, senders: usize) {
    let long = options(channel, senders, RIGHT, Duration::from_secs(40));
    let (start, is_stopped) = (Instant::now(), AtomicBool::new(false));
    let error = thread::scope(|scope| {
        scope.spawn(|| {
            while children("").len() <= senders {
                thread::sleep(Duration::from_millis(10));
            }
            is_stopped.store(true, Ordering::Relaxed);
        });
        run(&long, &is_stopped, |_, _| {}).unwrap_err().to_string()
    });
    assert_eq!(error, "interrupted", "{channel}, {senders}");
    assert!(start.elapsed() < long.length / 2, "{channel}, {senders}");
    assert_eq!(children(""), [], "no process is left");
    let socket = format!("keyway-bus-bench-{}.sock", std::process::id());
    assert!(!std::env::temp_dir().join(socket).exists(), "no socket is left");
}

fn what_is_whole_is_counted(channel: Channel, senders: usize) {
    let short = options(channel, senders, RIGHT, Duration::from_millis(100));
    let outcomes = run(&short, &AtomicBool::new(false), |_, _| {});
    let [Outcome { messages_per_second, lost: 0, wrong: 0, .. }] = outcomes.unwrap()[..] else {
        panic!("{channel}, {senders}: something is lost or wrong");
    };
    assert!(messages_per_second > 100.0);
}

fn trips_are_measured() {
    let trips = round_trips(&options(Channel::Shm, 1, RIGHT, Duration::from_millis(100))).unwrap();
    println!("{}", keyway_bus_bench::trips_table(&trips));
    assert_eq!(trips.iter().map(|one| one.way).collect::<Vec<Transport>>(), Transport::ALL);
}

fn right_end(task: &str) {
    if let Err(why) = end(task) {
        eprintln!("{why}");
        std::process::exit(1);
    }
}

/// Sends what is no message, and then neither goes on nor ends, as its receiver's end.
fn wrong_end(task: &str) {
    let order: Value = serde_json::from_str(task).unwrap();
    let order = &order["Flow"];
    let Some(sender) = order["sender"].as_u64() else {
        return right_end(task);
    };
    let place = |nth: u64| order["places"][nth as usize].as_str().unwrap().to_owned();
    let garbage = [0xff; 64];
    let kept: Box<dyn std::any::Any> = match order["case"]["channel"].as_str().unwrap() {
        "Unix" => Box::new(write(UnixStream::connect(place(0)).unwrap(), &garbage)),
        "Tcp6" => {
            let port = order["port"].as_u64().unwrap() as u16;
            Box::new(write(TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap(), &garbage))
        }
        _ => {
            let file = File::options().read(true).write(true).open(place(sender)).unwrap();
            let ring_len = order["ring_len"].as_u64().unwrap() as usize;
            let segment = Segment::open(file.into(), &[ring_len]).unwrap();
            let mut producer = Producer::new(segment.ring(0).unwrap());
            producer.write(&garbage).unwrap();
            match order["case"]["senders"].as_u64().unwrap() {
                1 => {
                    producer.flush(&Bell::default());
                    Box::new(producer)
                }
                // A receiver of several sleeps at their doorbell, and hears of no ring.
                senders => {
                    let file = File::options().read(true).write(true).open(place(senders)).unwrap();
                    let doorbell = SharedDoorbell::open(file.into()).unwrap();
                    let mut lane = Lane::new(producer, doorbell, sender as usize);
                    lane.flush(&Bell::default());
                    Box::new(lane)
                }
            }
        }
    };
    thread::sleep(Duration::from_secs(60));
    drop(kept);
}

fn write<S: Write>(mut socket: S, bytes: &[u8]) -> S {
    // The receiver may be gone by now, because of another sender.
    let _ = socket.write_all(bytes);
    socket
}
