//! Measures how fast a file of another server is loaded.
//!
//! `cargo run --release -p keyway-store --example loading -- FILE`: the time of the processor for
//! each key, and the items loaded per second of it.
#![allow(clippy::print_stdout, reason = "an example prints what it measures")]

use keyway_base::{Clock, Time};
use keyway_store::{Loading, Store, StoreConfig};
use std::io::Read;
use std::sync::Arc;

fn clock() -> Clock {
    Clock { now: Time(0), unix_micros: 1_700_000_000_000_000 }
}

/// Seconds of the processor that the process has used.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
    (ticks(11) + ticks(12)) as f64 / 100.0
}

fn main() {
    let path = std::env::args().nth(1).expect("a file");
    let mut file = std::fs::File::open(path).expect("a file to read");
    let store = Arc::new(Store::new(StoreConfig::default()));
    let mut loading = Loading::new(&store);
    let mut buffer = vec![0; 1 << 20];
    let began = cpu();
    loop {
        let len = file.read(&mut buffer).expect("a disk");
        if len == 0 {
            break;
        }
        loading.feed(&buffer[..len], clock(), &mut |_| Ok(())).expect("a whole file");
    }
    let (keys, expired) = loading.finish().expect("a whole file");
    let seconds = cpu() - began;
    let each = seconds * 1e9 / (keys + expired).max(1) as f64;
    println!(
        "{keys} keys in {seconds:.2} s of the processor: {each:.0} ns each, {:.2} M per second",
        keys as f64 / seconds / 1e6
    );
}
