//! The memory and time of a stream, and its replies where Redis would wait.

mod common;

use common::{Random, Reply, clock_at, run, run_words};
use keyway_store::{Store, StoreConfig};

const START: u64 = 1_700_000_000_000;

fn store() -> Store {
    Store::new(StoreConfig { shards: Some(1), ..StoreConfig::default() })
}

fn used(store: &Store) -> u64 {
    store.stats().memory_used
}

/// Lets upkeep free all there is to free.
fn settle(store: &Store, millis: u64) {
    while store.tick(clock_at(millis)) {}
}

#[test]
fn all_memory_comes_back_whichever_way_a_stream_goes() {
    let ends: [&[&str]; 4] = [
        &["DEL s"],
        &["XTRIM s MAXLEN 0", "DEL s"],
        &["XGROUP DESTROY s g", "XGROUP DESTROY s h", "UNLINK s"],
        &["COPY s t", "SET s x", "DEL s t"],
    ];
    for end in ends {
        let store = store();
        run(&store, START, "SET other 1");
        run(&store, START, "DEL other");
        let before = used(&store);
        let mut random = Random::new(5);
        for nth in 0..20_000u64 {
            run(&store, START + nth / 3, &format!("XADD s * source s{} value {nth}", nth % 9));
        }
        for group in ["g", "h"] {
            run(&store, START, &format!("XGROUP CREATE s {group} 0"));
            for nth in 0..200 {
                let consumer = random.below(50);
                let line = format!("XREADGROUP GROUP {group} c{consumer} COUNT {nth} STREAMS s >");
                run(&store, START, &line);
            }
            run(&store, START, &format!("XGROUP DELCONSUMER s {group} c7"));
            run(&store, START, &format!("XAUTOCLAIM s {group} c8 0 0 COUNT 500"));
        }
        assert!(used(&store) > before + 300_000);
        end.iter().for_each(|line| drop(run(&store, START, line)));
        settle(&store, START);
        assert_eq!(used(&store), before, "{end:?}");
    }
}

#[test]
fn a_large_stream_is_freed_bit_by_bit() {
    let store = store();
    let value = "x".repeat(3000);
    for nth in 0..20_000u64 {
        run(&store, START, &format!("XADD s {}-0 f {value}", nth + 1));
    }
    let before = used(&store);
    run(&store, START, "DEL s");
    assert!(used(&store) > before / 2, "not all at once");
    settle(&store, START);
    assert!(used(&store) < before / 50);
}

#[test]
fn short_entries_take_less_than_thirty_bytes() {
    let store = store();
    let before = used(&store);
    for nth in 0..50_000u64 {
        run(&store, START + 2 * nth, &format!("XADD s * source s{} value {nth}", nth % 9));
    }
    let each = (used(&store) - before) / 50_000;
    assert!(each < 30, "{each}");
}

#[test]
fn a_reader_that_may_not_wait_is_told_that_there_is_nothing() {
    let store = store();
    let waits = "XREAD BLOCK 0 STREAMS s t 0 0";
    for line in ["XREAD STREAMS s 0", "XREAD STREAMS s $", waits] {
        assert_eq!(run(&store, START, line), Reply::Array(None));
    }
    run(&store, START, "XADD t 1-1 a b");
    assert!(matches!(run(&store, START, waits), Reply::Array(Some(streams)) if streams.len() == 1));
    run(&store, START, "XGROUP CREATE t g $");
    let waits = "XREADGROUP GROUP g c BLOCK 5 STREAMS t >";
    assert_eq!(run(&store, START, waits), Reply::Array(None));
    let consumers = run(&store, START, "XINFO CONSUMERS t g");
    assert_eq!(consumers, Reply::Array(Some(Vec::new())), "nobody was served");
}

#[test]
fn times_are_those_of_the_clock() {
    let store = store();
    run(&store, START, "XADD s * a b");
    run(&store, START, "XGROUP CREATE s g 0");
    run(&store, START + 10, "XREADGROUP GROUP g alice STREAMS s >");
    let pending = |millis, line| {
        let Reply::Array(Some(entries)) = run(&store, millis, line) else { panic!("no array") };
        let times = entries.iter().map(|entry| match entry {
            Reply::Array(Some(parts)) => (parts[2].integer(), parts[3].integer()),
            other => panic!("{other:?}"),
        });
        times.collect::<Vec<_>>()
    };
    assert_eq!(pending(START + 25, "XPENDING s g - + 10"), [(15, 1)]);
    assert_eq!(pending(START + 25, "XPENDING s g IDLE 16 - + 10"), []);
    let id = format!("{START}-0");
    let claim = |millis, line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let Reply::Array(Some(claimed)) = run_words(&store, millis, &words) else {
            panic!("no array")
        };
        claimed.len()
    };
    assert_eq!(claim(START + 30, &format!("XCLAIM s g bob 21 {id}")), 0);
    assert_eq!(claim(START + 30, &format!("XCLAIM s g bob 20 {id} IDLE 5")), 1);
    assert_eq!(pending(START + 30, "XPENDING s g - + 10 bob"), [(5, 2)]);
    assert_eq!(claim(START + 31, &format!("XCLAIM s g bob 0 {id} TIME {} JUSTID", START + 1)), 1);
    assert_eq!(pending(START + 31, "XPENDING s g - + 10 bob"), [(30, 2)]);
    run(&store, START + 40, "XREADGROUP GROUP g bob STREAMS s 0");
    assert_eq!(pending(START + 41, "XPENDING s g - + 10 bob"), [(1, 3)]);
}
