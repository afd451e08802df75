//! The RAM of the process keeps to the bound on memory, however the sizes of values change. A test
//! binary of its own: it is about the whole process.

mod common;

use common::{Random, clock_at, execute, is_sanitized, resident};
use keyway_store::{Store, StoreConfig, give_back_freed_memory};

const START: u64 = 1_700_000_000_000;
/// The factor by which everything is less under a sanitizer.
const LESS: u64 = 20;
/// RAM beyond the bound and the allowance, in percent of the bound.
const OVER_MAX: f64 = 2.0;
/// The process may take so many bytes for itself.
const ALLOWANCE: u64 = 4 << 20;

/// The bound on memory.
fn bound() -> u64 {
    (128 << 20) / if is_sanitized() { LESS } else { 1 }
}

struct Bench {
    store: Store,
    random: Random,
    out: Vec<u8>,
    millis: u64,
    commands: u64,
    value: Vec<u8>,
    /// Of the process without a store.
    base: u64,
}

impl Bench {
    fn run(&mut self, words: &[&[u8]]) {
        self.out.clear();
        execute(&self.store, 0, clock_at(self.millis), words, &mut self.out);
        self.commands += 1;
        // As many commands as a busy worker runs between two rounds of upkeep.
        if self.commands.is_multiple_of(20_000) {
            self.millis += 100;
            while self.store.tick(clock_at(self.millis)) {}
        }
    }

    fn set(&mut self, key: usize, len: usize) {
        let value = std::mem::take(&mut self.value);
        self.run(&[b"SET", format!("key:{key:012}").as_bytes(), &value[..len]]);
        self.value = value;
    }

    /// Prints what is used after a phase, and asserts that it is at most
    /// `over_max` percent more than the bound.
    fn report(&mut self, phase: &str, over_max: f64) {
        let stats = self.store.stats();
        let resident = resident() - self.base;
        let over = (resident.saturating_sub(ALLOWANCE) as f64 / bound() as f64 - 1.0) * 100.0;
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "{phase:44} {:8.1} MiB resident ({over:+5.1} %), {:6.1} used, {:6.1} idle, {:6.1} in pages, {:8} items",
            mebibytes(resident),
            mebibytes(stats.memory_used),
            mebibytes(stats.memory_idle),
            mebibytes(stats.memory_pages),
            stats.databases[0].items
        );
        assert!(over <= over_max || is_sanitized(), "{phase}: {over:.1} % above the bound");
    }
}

#[test]
fn ram_keeps_to_the_bound_however_sizes_change() {
    let base = resident();
    give_back_freed_memory();
    let less = if is_sanitized() { LESS as usize } else { 1 };
    let config = StoreConfig {
        memory_max: bound(),
        // A sanitizer's own memory would have everything evicted.
        heeds_resident: !is_sanitized(),
        ..StoreConfig::default()
    };
    let value = vec![b'v'; 200_000];
    let mut bench = Bench {
        store: Store::new(config),
        random: Random::new(5),
        out: Vec::new(),
        millis: START,
        commands: 0,
        value,
        base,
    };
    for key in 0..2_500_000 / less {
        bench.set(key, 64);
    }
    bench.report("2.5 M new keys of 64 B", OVER_MAX);
    for _ in 0..300_000 / less {
        let key = 1_200_000 / less + bench.random.below(1_300_000 / less);
        bench.set(key, 1024);
    }
    bench.report("300 k of these set to 1 KiB, at random", OVER_MAX);
    for _ in 0..1_500_000 / less {
        let key = bench.random.below(2_500_000 / less);
        bench.set(key, 100);
    }
    bench.report("1.5 M set to 100 B, at random", OVER_MAX);
    for _ in 0..20_000 / less {
        let key = bench.random.below(2_500_000 / less);
        bench.set(key, 5000);
    }
    bench.report("20 k set to 5 kB, at random", OVER_MAX);
    for step in 0..600_000 / less {
        let key = format!("hash:{}", bench.random.below(20_000 / less));
        let (field, len) = (bench.random.below(60).to_string(), bench.random.below(80));
        let value = vec![b'h'; len];
        match step % 4 {
            0 => bench.run(&[b"HSET", key.as_bytes(), field.as_bytes(), &value]),
            1 => bench.run(&[b"RPUSH", format!("list:{key}").as_bytes(), &value]),
            2 => bench.run(&[b"ZADD", format!("zset:{key}").as_bytes(), b"1", field.as_bytes()]),
            _ => bench.run(&[b"SADD", format!("set:{key}").as_bytes(), &value]),
        }
    }
    bench.report("600 k to collections that grow", OVER_MAX);
    for _ in 0..600_000 / less {
        let key = bench.random.below(2_500_000 / less);
        let len = *bench.random.pick(&[10, 64, 100, 40, 300, 1000, 3000, 64, 40, 100, 20_000]);
        bench.set(key, len);
    }
    bench.report("600 k set to any length", OVER_MAX);
    for key in 0..2_500_000 / less {
        if !key.is_multiple_of(10) {
            bench.run(&[b"DEL", format!("key:{key:012}").as_bytes()]);
        }
    }
    for _ in 0..50 {
        bench.millis += 100;
        while bench.store.tick(clock_at(bench.millis)) {}
    }
    bench.report("nine in ten deleted", -50.0);
    let stats = bench.store.stats();
    let ratio = (resident() - base) as f64 / stats.memory_used as f64;
    assert!(ratio < 2.5 || is_sanitized(), "{ratio:.2} times what is used is resident");
    for key in 0..2_500_000 / less {
        bench.set(key, 64);
    }
    bench.report("2.5 M keys of 64 B again", OVER_MAX);
}
