//! Measures the cost of the cells for a worker, beside the locked instruction that they avoid:
//! `cargo run --release -p keyway-metrics --example cell_cost`.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use keyway_base::Time;
use keyway_metrics::{Layout, PoolLayout, Registry};

const ROUNDS: u64 = 50_000_000;

#[allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn measure(what: &str, mut step: impl FnMut(u64)) {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        (0..ROUNDS).for_each(&mut step);
        best = best.min(start.elapsed().as_nanos() as f64 / ROUNDS as f64);
    }
    println!("{what:<58} {best:6.2} ns");
}

fn main() {
    let pool = |name: &str| PoolLayout {
        name: name.into(),
        backends: (0..4).map(|n| format!("backend{n}")).collect(),
        is_retired: false,
    };
    let registry = Registry::new(Layout {
        classes: &["read", "write", "multi", "other"],
        commands: &["get", "set", "mget", "ping"],
        pools: vec![pool("one"), pool("two")],
        workers_max: 2,
        version: "0.0.0",
        start_unix_micros: 0,
    });
    let Some(cells) = registry.start_worker() else { return };

    measure("empty loop", |n| {
        black_box(n);
    });
    measure("a call, looked up by pool, class and command", |n| {
        let class = black_box(n as usize & 3);
        cells.pool(black_box(1)).requests(class, class).call();
    });
    let requests = &cells.pool(1).backend(0).requests;
    measure("counter, already at hand", |n| {
        black_box(n);
        black_box(requests).add(1);
    });
    let shared = AtomicU64::new(0);
    measure("the same with a locked fetch_add", |n| {
        black_box(n);
        black_box(&shared).fetch_add(1, Relaxed);
    });
    measure("latency, looked up by pool, class and command, spread values", |n| {
        let start = Time(black_box(n));
        let nanos = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 42;
        let of = n as usize & 3;
        cells.pool(black_box(1)).requests(of, of).latency(start, Time(n + nanos));
    });
    let latency = &cells.pool(1).backend(0).latency;
    measure("latency, already at hand, spread values", |n| {
        let nanos = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 42;
        latency.record(Time(black_box(n)), Time(n + nanos));
    });
    measure("latency, already at hand, one value", |n| {
        latency.record(Time(black_box(n)), Time(n + 40_000));
    });
    measure("a proxied request: 8 counters, 2 gauges, 2 latencies", |n| {
        let pool = cells.pool(black_box(1));
        let of_request = pool.requests(n as usize & 3, n as usize & 3);
        let backend = pool.backend(n as usize & 3);
        of_request.call();
        pool.clients.received_bytes.add(40);
        backend.requests.add(1);
        backend.in_flight.raise(1);
        backend.sent_bytes.add(40);
        backend.received_bytes.add(100);
        backend.in_flight.lower(1);
        backend.latency.record(Time(n), Time(n + 30_000 + (n & 0xffff)));
        of_request.latency(Time(n), Time(n + 40_000 + (n & 0xffff)));
        pool.clients.sent_bytes.add(100);
        cells.events.add(1);
        cells.recv_calls.add(1);
    });
    println!("p50 of all of it: {:?} s", registry.pool_totals(1).reply_latency.quantile(0.5));
}
