//! The bound on memory holds, by every policy, and the right keys stay.

mod common;

use common::{Random, Reply, clock_at, run};
use keyway_store::{EvictionPolicy, Store, StoreConfig};

const START: u64 = 1_700_000_000_000;
const BOUND: u64 = 4 << 20;

fn store(policy: EvictionPolicy) -> Store {
    Store::new(StoreConfig {
        memory_max: BOUND,
        policy,
        shards: Some(16),
        ..StoreConfig::default()
    })
}

fn is_out_of_memory(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("OOM command not allowed"))
}

#[test]
fn memory_stays_below_the_bound_whatever_is_written() {
    for name in [
        "allkeys-s3fifo",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
    ] {
        let store = store(EvictionPolicy::from_name(name).expect("a policy"));
        let mut random = Random::new(7);
        let mut refused = 0;
        for step in 0..30_000 {
            let key = random.below(20_000);
            let len = [10, 60, 300, 2000, 20_000][random.below(5)];
            let line = match random.below(4) {
                0 => format!("append key:{key} {}", "a".repeat(len)),
                1 => format!("setrange key:{key} {len} abc"),
                _ => {
                    format!("set key:{key} {} ex {}", "v".repeat(len), 100 + random.below(100_000))
                }
            };
            refused += usize::from(is_out_of_memory(&run(&store, START, &line)));
            if step % 100 == 0 {
                let used = store.stats().memory_used;
                assert!(used <= BOUND, "{name}: {used} bytes after {step} commands");
            }
        }
        let stats = store.stats();
        assert!(stats.evicted > 500, "{name}: {} evicted", stats.evicted);
        // An eighth may be idle in pages, and no more is taken off for it.
        assert!(stats.memory_used > BOUND * 17 / 20, "{name}: only {} used", stats.memory_used);
        assert!(refused == 0 || name.starts_with("volatile"), "{name}: {refused} refused");
    }
}

#[test]
fn without_eviction_writes_are_refused_and_all_else_works() {
    let store = store(EvictionPolicy::NoEviction);
    let value = "v".repeat(1000);
    let written = (0..100_000)
        .take_while(|key| !is_out_of_memory(&run(&store, START, &format!("set key:{key} {value}"))))
        .count();
    assert!((2700..4300).contains(&written), "{written} written");
    // There may be room for a byte, but not for more than was refused.
    assert!(is_out_of_memory(&run(&store, START, &format!("append key:1 {value}{value}"))));
    assert_eq!(run(&store, START, "strlen key:1").integer(), 1000);
    assert_eq!(run(&store, START, "dbsize").integer(), written as i64);
    for key in 0..200 {
        assert_eq!(run(&store, START, &format!("del key:{key}")).integer(), 1);
    }
    assert_eq!(run(&store, START, "append key:300 x").integer(), 1001);
    run(&store, START, "flushall");
    assert_eq!(run(&store, START, &format!("set key {value}")), Reply::Simple("OK".into()));
}

#[test]
fn a_value_that_can_never_fit_evicts_nothing() {
    let store = store(EvictionPolicy::AllKeysS3Fifo);
    (0..1000).for_each(|key| drop(run(&store, START, &format!("set key:{key} value"))));
    assert!(is_out_of_memory(&run(&store, START, &format!("set big {}", "v".repeat(5 << 20)))));
    assert!(is_out_of_memory(&run(&store, START, "setrange big 99999999 x")));
    assert!(is_out_of_memory(&run(&store, START, "setbit big 99999999 1")));
    assert_eq!(run(&store, START, "dbsize").integer(), 1000);
}

#[test]
fn volatile_policies_keep_keys_without_expiry() {
    for policy in [
        EvictionPolicy::VolatileLru,
        EvictionPolicy::VolatileLfu,
        EvictionPolicy::VolatileRandom,
        EvictionPolicy::VolatileTtl,
    ] {
        let store = store(policy);
        let value = "v".repeat(100);
        (0..2000).for_each(|key| drop(run(&store, START, &format!("set keep:{key} {value}"))));
        for key in 0..40_000 {
            let reply = run(&store, START, &format!("set go:{key} {value} ex 1000"));
            assert_eq!(reply, Reply::Simple("OK".into()));
        }
        let kept = (0..2000)
            .filter(|key| run(&store, START, &format!("exists keep:{key}")).integer() == 1);
        assert_eq!(kept.count(), 2000, "{}", policy.name());
        assert!(store.stats().evicted > 1000);
    }
}

#[test]
fn volatile_ttl_evicts_what_expires_first() {
    let store = store(EvictionPolicy::VolatileTtl);
    let value = "v".repeat(100);
    for key in 0..40_000 {
        let seconds = if key % 2 == 0 { 100 } else { 100_000 };
        run(&store, START, &format!("set key:{key} {value} ex {seconds}"));
    }
    let count = |parity| {
        let here = |key: &usize| run(&store, START, &format!("exists key:{key}")).integer() == 1;
        (0..40_000).filter(|key| key % 2 == parity).filter(here).count()
    };
    let (soon, late) = (count(0), count(1));
    assert!(soon < 15_000 && late == 20_000, "{soon} that expire soon, {late} that expire late");
}

/// Hits per hundred reads of a skewed working set through which scans pass.
fn hit_share(policy: EvictionPolicy) -> u64 {
    let store = store(policy);
    let value = "v".repeat(100);
    let mut random = Random::new(3);
    let mut scanned = 0;
    for step in 0..400_000 {
        let key = if step % 4 == 0 {
            scanned += 1;
            format!("scan:{scanned}")
        } else {
            // The product of two is skewed towards small numbers.
            format!("key:{}", random.below(300) * random.below(300))
        };
        if run(&store, START, &format!("get {key}")) == Reply::Bulk(None) {
            run(&store, START, &format!("set {key} {value}"));
        }
    }
    let stats = store.stats();
    stats.hits * 100 / (stats.hits + stats.misses)
}

#[test]
fn s3_fifo_keeps_the_working_set_through_scans_better_than_chance() {
    let [s3_fifo, lru, lfu, chance] = [
        EvictionPolicy::AllKeysS3Fifo,
        EvictionPolicy::AllKeysLru,
        EvictionPolicy::AllKeysLfu,
        EvictionPolicy::AllKeysRandom,
    ]
    .map(hit_share);
    println!("hits per 100 reads: s3fifo {s3_fifo}, lru {lru}, lfu {lfu}, random {chance}");
    assert!(s3_fifo > lru && s3_fifo > chance, "{s3_fifo} {lru} {lfu} {chance}");
    assert!(lru >= chance && lfu >= chance, "{s3_fifo} {lru} {lfu} {chance}");
}

#[test]
fn memory_of_a_flushed_database_is_used_again_before_anything_is_evicted() {
    let store = store(EvictionPolicy::AllKeysS3Fifo);
    let value = "v".repeat(1000);
    for round in 0..5 {
        (0..3000).for_each(|key| drop(run(&store, START, &format!("set {round}:{key} {value}"))));
        assert_eq!(run(&store, START, "dbsize").integer(), 3000);
        run(&store, START, "flushall");
    }
    assert_eq!(store.stats().evicted, 0);
    while store.tick(clock_at(START)) {}
}
