//! The RAM of the process keeps to the bound on memory under any mix of types and sizes, while
//! values grow and shrink, come, go and are evicted. A test binary of its own: it is about the
//! whole process. With the feature `large` it runs for minutes, with bounds up to 1 GiB;
//! `KEYWAY_MIX_MIB=512` has it run with one of them.

#![allow(clippy::disallowed_methods, reason = "an environment variable chooses a bound")]

mod common;

use common::{Random, clock_at, execute, is_sanitized, resident};
use keyway_store::{Store, StoreConfig, give_back_freed_memory};

const START: u64 = 1_700_000_000_000;
const MIB: u64 = 1 << 20;
/// Bounds in mebibytes, and what is written in a phase, in bounds.
const BOUNDS: &[(u64, u64)] =
    if cfg!(feature = "large") { &[(256, 4), (512, 2), (1024, 1)] } else { &[(128, 1)] };
/// MiB that are written in a phase with a bound that the environment chooses.
const WRITTEN_MIB: u64 = 1024;
/// Bytes that an element takes beside what is written, about.
const OVERHEAD: u64 = 60;
/// Bytes that the process may take for itself.
const ALLOWANCE: u64 = 4 * MIB;
/// RAM that the process may use beyond that and the bound, in percent.
const OVER_MAX: f64 = 2.0;
/// Commands between two rounds of upkeep: what a busy worker runs in a tenth of
/// a second.
const COMMANDS_PER_TICK: u64 = 10_000;

/// The writes: the frequency of each type (strings, hashes, lists, sets, sorted sets, streams), the
/// lengths of values, and the number of elements of a collection.
struct Mix {
    name: &'static str,
    weights: [usize; 6],
    lengths: &'static [usize],
    elements: usize,
}

const MIXES: &[Mix] = &[
    Mix {
        name: "strings to 100 kB",
        weights: [1, 0, 0, 0, 0, 0],
        lengths: &[10, 64, 100, 300, 1000, 3000, 8000, 20_000, 100_000],
        elements: 1,
    },
    Mix { name: "lists", weights: [0, 0, 1, 0, 0, 0], lengths: &[8, 40, 90, 400], elements: 400 },
    Mix { name: "all types", weights: [4; 6], lengths: &[8, 20, 70, 200, 900], elements: 300 },
    Mix { name: "small hashes", weights: [0, 1, 0, 0, 0, 0], lengths: &[70, 90], elements: 30 },
    Mix { name: "sorted sets", weights: [0, 0, 0, 0, 1, 0], lengths: &[8], elements: 1000 },
    Mix { name: "sets", weights: [0, 0, 0, 1, 0, 0], lengths: &[10, 70, 200], elements: 2000 },
    Mix { name: "streams", weights: [0, 0, 0, 0, 0, 1], lengths: &[5, 50, 500], elements: 500 },
    Mix {
        name: "all types, mostly large",
        weights: [1, 1, 3, 1, 1, 3],
        lengths: &[100, 1000, 5000, 30_000],
        elements: 200,
    },
    Mix { name: "strings of 64 B", weights: [1, 0, 0, 0, 0, 0], lengths: &[64], elements: 1 },
    Mix { name: "all types again", weights: [4; 6], lengths: &[1, 30, 64, 90], elements: 800 },
];

struct Bench {
    store: Store,
    random: Random,
    out: Vec<u8>,
    millis: u64,
    commands: u64,
    value: Vec<u8>,
    written: u64,
    /// Most bytes that were resident in this phase.
    most: u64,
}

impl Bench {
    fn run(&mut self, words: &[&[u8]]) {
        self.out.clear();
        execute(&self.store, 0, clock_at(self.millis), words, &mut self.out);
        assert!(!self.out.starts_with(b"-"), "{}", String::from_utf8_lossy(&self.out));
        self.written += OVERHEAD + words.iter().map(|word| word.len() as u64).sum::<u64>();
        self.commands += 1;
        if self.commands.is_multiple_of(COMMANDS_PER_TICK / 10) {
            self.most = self.most.max(resident());
        }
        if self.commands.is_multiple_of(COMMANDS_PER_TICK) {
            self.millis += 100;
            while self.store.tick(clock_at(self.millis)) {}
        }
    }

    /// One change of a key: mostly it grows, sometimes it shrinks or goes.
    fn change(&mut self, mix: &Mix, keys: usize) {
        let total = mix.weights.iter().sum();
        let (mut pick, mut kind) = (self.random.below(total), 0);
        while pick >= mix.weights[kind] {
            pick -= mix.weights[kind];
            kind += 1;
        }
        let mut number = self.random.below(keys);
        // Some keys get much more than others.
        if self.random.below(4) == 0 {
            number /= 50;
        }
        let key = format!("{kind}:{number}");
        let key = key.as_bytes();
        let len = *self.random.pick(mix.lengths);
        let len = len / 2 + self.random.below(len / 2 + 1) + 1;
        let value = std::mem::take(&mut self.value);
        let value_part = &value[..len];
        let field = format!("{:01$}", self.random.below(mix.elements), len.min(100));
        let field = field.as_bytes();
        let score = self.random.below(1000).to_string();
        let shrinks = self.random.below(5) == 0;
        if self.random.below(400) == 0 {
            self.run(&[b"DEL", key]);
        }
        match (kind, shrinks) {
            (0, _) => self.run(&[b"SET", key, value_part]),
            (1, false) => self.run(&[b"HSET", key, field, value_part]),
            (1, true) => self.run(&[b"HDEL", key, field]),
            (2, false) => self.run(&[b"RPUSH", key, value_part, field]),
            (2, true) => self.run(&[b"LTRIM", key, b"0", mix.elements.to_string().as_bytes()]),
            (3, false) => self.run(&[b"SADD", key, field]),
            (3, true) => self.run(&[b"SPOP", key]),
            (4, false) => self.run(&[b"ZADD", key, score.as_bytes(), field]),
            (4, true) => self.run(&[b"ZPOPMIN", key, b"2"]),
            (_, false) => self.run(&[b"XADD", key, b"*", b"field", value_part]),
            (_, true) => {
                self.run(&[b"XTRIM", key, b"MAXLEN", mix.elements.to_string().as_bytes()]);
            }
        }
        self.value = value;
    }
}

#[test]
fn ram_keeps_to_the_bound_under_any_mix() {
    give_back_freed_memory();
    let value = vec![b'v'; 200_000];
    // Less under a sanitizer, whose own memory is not looked at.
    let bounds = if is_sanitized() { &[(8, 1)] } else { BOUNDS };
    let only = std::env::var("KEYWAY_MIX_MIB").map(|it| it.parse::<u64>().expect("a number"));
    // As much is written in a phase as with the other bounds.
    let only = only.map(|bound| [(bound, (WRITTEN_MIB / bound).max(1))]);
    for (bound, written) in only.as_ref().map_or(bounds, |only| only) {
        let bound = bound * MIB;
        let base = resident();
        let config = StoreConfig {
            memory_max: bound,
            heeds_resident: !is_sanitized(),
            ..StoreConfig::default()
        };
        let mut bench = Bench {
            store: Store::new(config),
            random: Random::new(bound),
            out: Vec::new(),
            millis: START,
            commands: 0,
            value: value.clone(),
            written: 0,
            most: 0,
        };
        let mut overs = Vec::new();
        for mix in MIXES {
            let mean = mix.lengths.iter().sum::<usize>() / mix.lengths.len();
            // Three times what fits, so that keys are evicted all the time.
            let keys = 3 * bound as usize / (mean + 60) / mix.elements.div_ceil(3) + 60;
            let until = bench.written + written * bound;
            bench.most = 0;
            while bench.written < until {
                bench.change(mix, keys);
            }
            let stats = bench.store.stats();
            let percent = |bytes: u64| {
                (bytes.saturating_sub(base + ALLOWANCE) as f64 / bound as f64 - 1.0) * 100.0
            };
            let mebibytes = |bytes: u64| bytes as f64 / MIB as f64;
            let over = percent(bench.most);
            println!(
                "{:5} MiB, {:24} {over:+5.1} % at most, {:+5.1} % at the end: {:7.1} MiB used, {:6.1} idle, {:8} items, {:9} commands",
                bound / MIB,
                mix.name,
                percent(resident()),
                mebibytes(stats.memory_used),
                mebibytes(stats.memory_idle),
                stats.databases[0].items,
                bench.commands,
            );
            overs.push((mix.name, over));
        }
        let missed: Vec<_> = overs.iter().filter(|(_, over)| *over > OVER_MAX).collect();
        assert!(
            missed.is_empty() || is_sanitized(),
            "above the bound by more than {OVER_MAX} %: {missed:?}"
        );
    }
}
