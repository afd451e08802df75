//! Resident bytes per item: keys of 16 bytes, values of 64, plain and with an
//! expiry; and of an empty store.
//!
//! `cargo run --release -p keyway-store --example memory [items]`
#![allow(clippy::print_stdout, reason = "an example prints what it measures")]

use keyway_base::{ByteRange, Clock, Time};
use keyway_command::{Args, Request};
use keyway_resp::Protocol;
use keyway_store::{Context, Store, StoreConfig};

/// Resident set of this process, in bytes.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<i64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

fn fill(store: &Store, items: u64, expiry: bool, millis: u64) {
    let clock = Clock { now: Time(0), unix_micros: millis * 1000 };
    let mut out = Vec::new();
    for item in 0..items {
        let seconds = (100 + item % 86_400).to_string();
        let words: &[&[u8]] = if expiry {
            &[b"SETEX", &format!("key:{item:012}").into_bytes(), seconds.as_bytes(), &[b'v'; 64]]
        } else {
            &[b"SET", &format!("key:{item:012}").into_bytes(), &[b'v'; 64]]
        };
        let mut buf = Vec::new();
        let mut ranges = Vec::new();
        for word in words {
            ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
            buf.extend_from_slice(word);
        }
        if let Ok(request) = Request::resolve(Args::new(&buf, &ranges)) {
            store.execute(
                &request,
                Context { database: 0, clock, protocol: Protocol::Resp2, worker: 0 },
                &mut out,
            );
        }
        out.clear();
    }
}

fn main() {
    let items = std::env::args().nth(1).and_then(|items| items.parse().ok()).unwrap_or(1_000_000);
    let before = resident();
    println!("process before a store: {} KiB", before >> 10);
    let empty = Store::new(StoreConfig::default());
    println!("an empty store adds:    {} KiB", (resident() - before) >> 10);
    drop(empty);
    for expiry in [false, true] {
        let base = resident();
        let store = Store::new(StoreConfig::default());
        fill(&store, items, expiry, 1_700_000_000_000);
        let per_item = (resident() - base) as f64 / items as f64;
        let stats = store.stats();
        let accounted = stats.memory_used as f64 / items as f64;
        let with = if expiry { "with an expiry" } else { "plain" };
        println!(
            "{items} items of 16 + 64 bytes, {with}: {per_item:.1} resident bytes each, {accounted:.1} accounted"
        );
        drop(store);
        println!("  left resident after dropping it: {} KiB", (resident() - base) >> 10);
    }
}
