//! Measures how fast snapshots are written and loaded, and the time of the longest step.
//!
//! `cargo run --release -p keyway-store --example snapshot -- ITEMS [FILE]`: items of 16 + 64 bytes,
//! and a hash with as many fields as a tenth of them. Times are of the processor; FILE keeps the
//! snapshot, for another server to load.
#![allow(clippy::print_stdout, reason = "an example prints what it measures")]
#![allow(clippy::disallowed_methods, reason = "an example that measures")]
#![allow(clippy::disallowed_types, reason = "an example that measures")]

use keyway_base::{ByteRange, Clock, Time};
use keyway_command::{Args, Request};
use keyway_resp::Protocol;
use keyway_store::{Context, Loading, Progress, Store, StoreConfig};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

fn execute(store: &Store, words: &[&[u8]]) {
    let (mut buf, mut ranges) = (Vec::new(), Vec::new());
    for word in words {
        ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
        buf.extend_from_slice(word);
    }
    let request = Request::resolve(Args::new(&buf, &ranges)).expect("a request");
    let context = Context { database: 0, clock: clock(), protocol: Protocol::default(), worker: 0 };
    store.execute(&request, context, &mut Vec::new());
}

fn key(nth: usize) -> String {
    format!("key:{nth:012}")
}

/// Writes a snapshot; `beside` is done between its steps. Its bytes, and the longest step.
fn save(
    store: &Arc<Store>,
    mut sink: impl FnMut(&[u8]),
    mut beside: impl FnMut(),
) -> (u64, Duration, Duration) {
    let began = Instant::now();
    store.begin_snapshot(clock().unix_millis(), false).expect("no other snapshot");
    let cut = began.elapsed();
    let mut saving = store.take_snapshot(clock()).expect("a snapshot");
    let mut longest = Duration::ZERO;
    loop {
        let began = Instant::now();
        let progress = saving.next(clock(), &mut Vec::new).expect("room");
        longest = longest.max(began.elapsed());
        match progress {
            Some(Progress::Batch(batch)) => batch.parts().for_each(&mut sink),
            Some(Progress::Wait) => {}
            None => break,
        }
        beside();
    }
    let len = saving.len();
    saving.commit(clock());
    (len, longest, cut)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let items: usize = args.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let file = args.next();
    let store = Arc::new(Store::new(StoreConfig::default()));
    store.enable_snapshots(4 << 30, clock(), || {});
    for nth in 0..items {
        execute(&store, &[b"SET", key(nth).as_bytes(), &[b'v'; 64]]);
    }
    let per_second = |count: usize, seconds: f64| count as f64 / seconds / 1e6;
    let began = cpu();
    let (len, longest, cut) = save(&store, |_| {}, || {});
    let seconds = cpu() - began;
    println!(
        "save: {:.2} M items per CPU second, {len} bytes, longest step {longest:?}, cut {cut:?}",
        per_second(items, seconds)
    );
    let mut bytes = Vec::with_capacity(len as usize);
    let mut nth = 0_usize;
    let mut slowest = Duration::ZERO;
    save(
        &store,
        |part| bytes.extend_from_slice(part),
        || {
            for _ in 0..16 {
                nth += 1;
                let key = key(nth.wrapping_mul(2_654_435_761) % items);
                let began = Instant::now();
                execute(&store, &[b"SET", key.as_bytes(), &[b'w'; 64]]);
                slowest = slowest.max(began.elapsed());
            }
        },
    );
    let peak = store.snapshot_status().buffered_peak;
    println!("save beside {nth} writes: slowest write {slowest:?}, {peak} bytes held at most");
    let copy = Arc::new(Store::new(StoreConfig::default()));
    let began = cpu();
    let mut loading = Loading::new(&copy);
    for piece in bytes.chunks(1 << 20) {
        loading.feed(piece, clock(), &mut |_| Ok(())).expect("a whole file");
    }
    let (loaded, _) = loading.finish().expect("a whole file");
    println!("load: {:.2} M items per CPU second", per_second(loaded as usize, cpu() - began));
    if let Some(path) = file {
        let mut file = std::fs::File::create(path).expect("a file");
        file.write_all(&bytes).expect("room on the disk");
    }
    drop((copy, bytes));
    let fields = items / 10;
    for nth in 0..fields {
        execute(&store, &[b"HSET", b"hash", key(nth).as_bytes(), b"value"]);
    }
    let (_, longest, _) = save(&store, |_| {}, || {});
    store.begin_snapshot(clock().unix_millis(), false).expect("no other snapshot");
    let began = Instant::now();
    execute(&store, &[b"HSET", b"hash", b"another", b"value"]);
    let first = began.elapsed();
    let each = first.as_nanos() / fields.max(1) as u128;
    println!(
        "a hash of {fields} fields: longest step {longest:?}; first change {first:?}, {each} ns a field"
    );
}
