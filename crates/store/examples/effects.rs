//! Processor time of a SET within the store with nobody that follows it, and with a reader
//! that throws away what it reads after every turn of 16 requests.
//!
//! `cargo run --release -p keyway-store --example effects [requests]`
#![allow(clippy::print_stdout, reason = "an example prints what it measures")]

use keyway_base::{ByteRange, Clock, Time};
use keyway_command::{Args, Request};
use keyway_resp::Protocol;
use keyway_store::{Context, EffectLimits, EffectReader, Keeping, Store, StoreConfig};
use std::sync::Arc;

const CLOCK: Clock = Clock { now: Time(0), unix_micros: 1_700_000_000_000_000 };
const TURN: u64 = 16;
const KEYS: u64 = 100_000;

/// Nanoseconds of processor time this thread has taken.
fn thread_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds that a request takes.
fn measure(
    store: &Store,
    tail: &[&[u8]],
    requests: u64,
    mut reader: Option<&mut EffectReader>,
) -> f64 {
    let (mut buf, mut ranges) = (Vec::new(), Vec::new());
    for word in [tail[0], b"key:000000"].iter().chain(&tail[1..]) {
        ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
        buf.extend_from_slice(word);
    }
    let key = ranges[1].start as usize..ranges[1].end as usize;
    let context = Context { database: 0, clock: CLOCK, protocol: Protocol::Resp2, worker: 0 };
    let (mut out, mut effects) = (Vec::new(), Vec::new());
    let start = thread_nanos();
    for nth in 0..requests {
        let mut number = nth.wrapping_mul(0x9E37_79B9_7F4A_7C15) % KEYS;
        for digit in buf[key.clone()].iter_mut().rev().take(6) {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        let request = Request::resolve(Args::new(&buf, &ranges)).expect("a request");
        out.clear();
        store.execute(&request, context, &mut out);
        if nth % TURN == TURN - 1
            && let Some(reader) = &mut reader
        {
            while reader.read(&mut effects).expect("it reads in time") > 0 {
                effects.clear();
            }
        }
    }
    (thread_nanos() - start) as f64 / requests as f64
}

fn main() {
    let requests = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3_000_000);
    let limits = EffectLimits { room: 16 << 20, history: 0 };
    let commands: [(&str, &[&[u8]]); 4] = [
        ("get", &[b"get"]),
        ("set", &[b"set", &[b'v'; 16]]),
        ("set ex", &[b"set", &[b'v'; 16], b"ex", b"100"]),
        ("incr", &[b"incr"]),
    ];
    for (name, tail) in commands {
        let store = Arc::new(Store::new(StoreConfig::default()));
        measure(&store, tail, KEYS, None);
        for round in 1..=3 {
            let alone = measure(&store, tail, requests, None);
            let mut reader = store.follow(limits, Keeping::All, |_| ());
            let followed = measure(&store, tail, requests, Some(&mut reader));
            let more = followed - alone;
            println!("{name} {round}: {alone:.0} ns, followed {followed:.0} ns, {more:.0} ns more");
        }
    }
}
