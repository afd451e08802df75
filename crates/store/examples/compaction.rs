//! Writes to a full store, for callgrind to say what moving items costs of them:
//!
//! ```text
//! cargo build --release -p keyway-store --example compaction
//! valgrind --tool=callgrind target/release/examples/compaction sizes 400000
//! callgrind_annotate --inclusive=yes callgrind.out.* | grep -E 'execute|Store::compact'
//! ```
//! The first word is the work: `same` (values of 64 bytes), `sizes` (of 10 to 3,000 bytes, in any
//! order), `shift` (of one length, another one every so often) or `hashes` (that grow, and lose
//! fields). The cost of `Store::compact_in_upkeep` is upkeep's part: it runs every 20,000 writes
//! here.
#![allow(clippy::print_stdout, reason = "an example prints what it measures")]

use keyway_base::{ByteRange, Clock, Time};
use keyway_command::{Args, Request, lookup};
use keyway_resp::Protocol;
use keyway_store::{Context, Store, StoreConfig};

const BOUND: u64 = 48 << 20;
/// Number of writes of a busy worker between two rounds of upkeep.
const WRITES_PER_TICK: u64 = 20_000;
const LENGTHS: [usize; 8] = [10, 40, 64, 100, 300, 700, 1000, 3000];

fn run(store: &Store, words: &[&[u8]], out: &mut Vec<u8>) {
    let mut buf = Vec::new();
    let mut ranges = Vec::new();
    for word in words {
        ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
        buf.extend_from_slice(word);
    }
    let command = lookup(words[0]).expect("a command");
    let clock = Clock { now: Time(0), unix_micros: 1_700_000_000_000_000 };
    let context = Context { database: 0, clock, protocol: Protocol::Resp2, worker: 0 };
    out.clear();
    store.execute(&Request { command, args: Args::new(&buf, &ranges) }, context, out);
    assert!(!out.starts_with(b"-"), "{}", String::from_utf8_lossy(out));
}

fn main() {
    let work = std::env::args().nth(1).unwrap_or_else(|| "sizes".to_owned());
    let writes = std::env::args().nth(2).and_then(|count| count.parse().ok()).unwrap_or(2_000_000);
    let config = StoreConfig { memory_max: BOUND, ..StoreConfig::default() };
    let (store, value, mut out) = (Store::new(config), [b'v'; 4096], Vec::new());
    let mut random = 88_172_645_463_325_252u64;
    let mut below = |max: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % max
    };
    for write in 0..writes {
        let (key, pick) = (format!("key:{:012}", below(1_000_000)), below(8) as usize);
        let field = format!("field:{}", below(30));
        match work.as_str() {
            "same" => run(&store, &[b"set", key.as_bytes(), &value[..64]], &mut out),
            "shift" => {
                let len = LENGTHS[write as usize / 100_000 % LENGTHS.len()];
                run(&store, &[b"set", key.as_bytes(), &value[..len]], &mut out);
            }
            "hashes" if pick == 0 => {
                run(&store, &[&b"hdel"[..], &key.as_bytes()[..14], field.as_bytes()], &mut out);
            }
            "hashes" => {
                let words = [&b"hset"[..], &key.as_bytes()[..14], field.as_bytes(), &value[..90]];
                run(&store, &words, &mut out);
            }
            _ => run(&store, &[b"set", key.as_bytes(), &value[..LENGTHS[pick]]], &mut out),
        }
        if (write + 1) % WRITES_PER_TICK == 0 {
            let clock = Clock {
                now: Time(0),
                unix_micros: 1_700_000_000_000_000 + write / WRITES_PER_TICK * 100_000,
            };
            while store.tick(clock) {}
        }
    }
    let stats = store.stats();
    println!(
        "{writes} writes, {} evicted; {} MiB used, {} MiB idle of {} MiB",
        stats.evicted,
        stats.memory_used >> 20,
        stats.memory_idle >> 20,
        stats.memory_max >> 20,
    );
}
