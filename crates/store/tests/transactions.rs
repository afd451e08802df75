//! Every other thread sees the requests that are executed while shards are held as a whole, and no
//! two transactions wait for each other.

mod common;

use common::{Random, Reply, clock_at, context_of, run, with_request};
use keyway_store::{Busy, Context, EvictionPolicy, Footprint, Mark, Refused, Store, StoreConfig};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const START: u64 = 1_700_000_000_000;

fn context(worker: u16) -> Context {
    context_of(worker, START)
}

/// Executes lines as one; the replies.
fn transact(store: &Store, worker: u16, lines: &[String]) -> Result<Vec<Reply>, Refused> {
    let mut footprint = Footprint::default();
    lines.iter().for_each(|line| with_request(line, |request| footprint.add(store, request)));
    let held = store.hold(footprint, context(worker))?;
    let mut out = Vec::new();
    for line in lines {
        with_request(line, |request| held.execute(request, context(worker), &mut out));
    }
    let mut rest = &out[..];
    let replies = lines.iter().map(|_| Reply::read(&mut rest)).collect();
    assert!(rest.is_empty());
    Ok(replies)
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn whatever_commands_are_executed_as_one_they_find_all_they_need() {
    let store = Store::new(StoreConfig { shards: Some(64), ..StoreConfig::default() });
    let all = lines(&[
        "SET a 1",
        "MSET a 1 b 2 c 3",
        "BITOP AND d a b",
        "LCS a b",
        "RENAME a e",
        "COPY e f",
        "COPY e f DB 1",
        "MOVE f 1",
        "RPUSH l 1 2 3",
        "LMOVE l m LEFT RIGHT",
        "LMPOP 2 l m LEFT",
        "SADD s x y",
        "SADD t y z",
        "SINTERSTORE u s t",
        "SMOVE s t x",
        "ZADD z 1 a 2 b",
        "ZUNIONSTORE w 2 z s",
        "ZRANGESTORE v z 0 -1",
        "ZMPOP 2 z w MIN",
        "SINTERCARD 2 s t",
        "SETRANGE big 100000 x",
        "OBJECT ENCODING s",
        "ZUNIONSTORE w 0 z",
    ]);
    for line in &all {
        transact(&store, 0, std::slice::from_ref(line)).expect("room");
    }
    transact(&store, 0, &all).expect("room");
    for line in ["KEYS *", "SCAN 0", "DBSIZE", "RANDOMKEY", "SWAPDB 0 1", "FLUSHALL", "FLUSHDB"] {
        transact(&store, 0, &lines(&["SET a 0", line, "MSET a 1 b 2"])).expect("room");
    }
    assert_eq!(run(&store, START, "MGET a b").strings(), [b"1", b"2"]);
}

#[test]
fn money_is_neither_made_nor_lost_in_anybody_s_eyes() {
    const ACCOUNTS: usize = 8;
    const ROUNDS: usize = 3_000;
    let store = Store::new(StoreConfig { shards: Some(8), ..StoreConfig::default() });
    let accounts: Vec<String> = (0..ACCOUNTS).map(|nth| format!("account:{nth}")).collect();
    for account in &accounts {
        run(&store, START, &format!("SET {account} 100"));
    }
    let look = format!("MGET {}", accounts.join(" "));
    let number = |text: &Vec<u8>| -> i64 { String::from_utf8_lossy(text).parse().expect("one") };
    let sum = |reply: &Reply| -> i64 { reply.strings().iter().map(number).sum() };
    std::thread::scope(|scope| {
        for worker in 0..4u16 {
            let (store, look) = (&store, &look);
            scope.spawn(move || {
                let mut random = Random::new(u64::from(worker) + 1);
                for round in 0..ROUNDS {
                    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
                    let mut moved =
                        vec![format!("DECR account:{from}"), format!("INCR account:{to}")];
                    if round % 64 == 0 {
                        moved.push("DBSIZE".to_owned());
                    }
                    transact(store, worker, &moved).expect("room");
                    let seen = match round % 2 {
                        0 => transact(store, worker, std::slice::from_ref(look))
                            .expect("room")
                            .remove(0),
                        _ => run(store, START, look),
                    };
                    assert_eq!(sum(&seen), 100 * ACCOUNTS as i64);
                    let _ = store.tick(clock_at(START));
                }
            });
        }
    });
}

#[test]
fn transactions_in_want_of_room_evict_and_never_wait_for_each_other() {
    let config = StoreConfig {
        shards: Some(16),
        memory_max: 8 << 20,
        policy: EvictionPolicy::AllKeysLru,
        ..StoreConfig::default()
    };
    let store = Store::new(config);
    std::thread::scope(|scope| {
        for worker in 0..4u16 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..300 {
                    let line = |nth: usize| format!("SETRANGE k:{worker}:{round}:{nth} 20000 x");
                    let all: Vec<String> = (0..8).map(line).collect();
                    transact(store, worker, &all).expect("others are evicted");
                }
            });
        }
    });
    assert!(store.stats().memory_used <= 9 << 20, "{}", store.stats().memory_used);
}

#[test]
fn without_room_nothing_of_it_is_executed() {
    let config = StoreConfig {
        shards: Some(4),
        memory_max: 1 << 20,
        policy: EvictionPolicy::NoEviction,
        ..StoreConfig::default()
    };
    let store = Store::new(config);
    let huge = format!("SET huge {}", "x".repeat(2 << 20));
    assert_eq!(transact(&store, 0, &[huge, "SET small 1".to_owned()]), Err(Refused::OutOfMemory));
    assert_eq!(run(&store, START, "EXISTS huge small").integer(), 0);
}

#[test]
fn a_watch_sees_every_change_of_its_keys_and_leaves_nothing() {
    let store = Store::new(StoreConfig { shards: Some(8), ..StoreConfig::default() });
    run(&store, START, "SET a 1");
    let watch = |keys: &[&str]| {
        let mark = Mark::default();
        keys.iter().for_each(|key| store.watch(key.as_bytes(), context(0), &mark));
        mark
    };
    let has_changed = |mark: &Mark| mark.load(Ordering::Relaxed);
    let (first, second) = (watch(&["a", "b"]), watch(&["b"]));
    run(&store, START, "GET a");
    run(&store, START, "SET c 1");
    assert!(!has_changed(&first) && !has_changed(&second));
    run(&store, START, "SET a 1");
    assert!(has_changed(&first) && !has_changed(&second));
    assert!(!store.notifies(), "nothing is kept for anybody");
    run(&store, START, "FLUSHALL");
    assert!(!has_changed(&second), "there was no such key");
    run(&store, START, "PSETEX b 10 x");
    assert!(has_changed(&second));
    for (mark, keys) in [(&first, &["a", "b"][..]), (&second, &["b"])] {
        keys.iter().for_each(|key| store.unwatch(0, key.as_bytes(), mark));
    }
    // It expires by itself.
    let third = watch(&["b"]);
    (0..10).for_each(|_| while store.tick(clock_at(START + 5_000)) {});
    assert!(has_changed(&third));
    store.unwatch(0, b"b", &third);
    assert_eq!(store.watched_len(), 0);
}

/// Executes lines as one script, which holds their shards one after the other;
/// the last reply.
fn run_script(store: &Arc<Store>, worker: u16, lines: &[String]) -> Reply {
    let script = store.begin_script().expect("none is busy");
    let mut out = Vec::new();
    for line in lines {
        out.clear();
        with_request(line, |request| script.execute(request, context(worker), false, &mut out));
    }
    Reply::read(&mut &out[..])
}

#[test]
fn scripts_in_any_order_commands_of_many_keys_and_transactions_never_wait_in_a_circle() {
    let config = StoreConfig { shards: Some(16), ..StoreConfig::default() };
    let store = Arc::new(Store::new(config));
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let store = &store;
            scope.spawn(move || {
                let mut keys: Vec<_> = (0..12).map(|nth| format!("INCR n{nth}")).collect();
                if worker == 1 {
                    keys.reverse();
                }
                for _ in 0..500 {
                    // Nobody sees some of the counters raised and others not.
                    let Reply::Integer(last) = run_script(store, worker, &keys) else {
                        panic!("no number");
                    };
                    assert!(last > 0);
                }
            });
            scope.spawn(move || {
                for nth in 0..500 {
                    with_request("MSET n-a 1 n-b 2 n-c 3 n-d 4 n-e 5", |request| {
                        store.execute(request, context(2 + worker), &mut Vec::new());
                    });
                    transact(store, 2 + worker, &lines(&["INCR n0", "DECR n0", "SET x 1"]))
                        .expect("room");
                    if nth % 50 == 0 {
                        for line in ["SWAPDB 3 4", "DBSIZE", "SCAN 0", "FLUSHDB"] {
                            let context = Context { database: 5, ..context(2 + worker) };
                            with_request(line, |request| {
                                store.execute(request, context, &mut Vec::new());
                            });
                        }
                    }
                }
            });
        }
    });
    for nth in 0..12 {
        let got = run(&store, START, &format!("GET n{nth}"));
        assert_eq!(got, Reply::Bulk(Some(b"1000".to_vec())));
    }
}

#[test]
fn a_script_sees_and_changes_the_whole_store_beside_others() {
    let config = StoreConfig { shards: Some(16), ..StoreConfig::default() };
    let store = Arc::new(Store::new(config));
    let all = lines(&["SET a 1", "SET b 2", "RENAME a c", "SCAN 0", "FLUSHALL", "DBSIZE"]);
    assert_eq!(run_script(&store, 0, &all), Reply::Integer(0));
    let mut footprint = Footprint::default();
    footprint.add_all();
    let held = store.hold(footprint, context(0)).expect("room");
    let inner = run_script(&store, 0, &lines(&["SET d 1", "DBSIZE"]));
    drop(held);
    assert_eq!(inner, Reply::Integer(1), "inside a transaction");
    assert_eq!(run_script(&store, 0, &lines(&["DBSIZE"])), Reply::Integer(1));
}

#[test]
fn beside_a_transaction_that_holds_everything_no_script_begins() {
    let store = Arc::new(Store::new(StoreConfig { shards: Some(4), ..StoreConfig::default() }));
    let begun = std::sync::atomic::AtomicBool::new(false);
    let mut footprint = Footprint::default();
    footprint.add_all();
    let held = store.hold(footprint, context(0)).expect("room");
    std::thread::scope(|scope| {
        let (other, begun) = (Arc::clone(&store), &begun);
        let started = Arc::new(std::sync::Barrier::new(2));
        let ready = Arc::clone(&started);
        scope.spawn(move || {
            ready.wait();
            let script = other.begin_script().expect("none is busy");
            begun.store(true, Ordering::SeqCst);
            drop(script);
        });
        started.wait();
        // Long enough for a thread that does not wait to be done.
        (0..1000).for_each(|_| std::thread::yield_now());
        let inner = store.begin_script().expect("none is busy");
        drop(inner);
        (0..1000).for_each(|_| std::thread::yield_now());
        assert!(!begun.load(Ordering::SeqCst), "one script at a time");
        drop(held);
    });
    assert!(begun.load(Ordering::SeqCst));
}

#[test]
fn nobody_waits_for_a_script_that_is_busy_and_nobody_is_refused_what_it_does_not_hold() {
    let config = StoreConfig { shards: Some(16), ..StoreConfig::default() };
    let store = Arc::new(Store::new(config));
    let script = store.begin_script().expect("none is busy");
    with_request("SET held 1", |it| script.execute(it, context(0), false, &mut Vec::new()));
    let is_noted = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let (other, is_noted) = (Arc::clone(&store), &is_noted);
        let waited = scope.spawn(move || {
            let waits = |work: &dyn Fn() -> Option<Refused>| work().map(Refused::text);
            is_noted.wait();
            let busy = Some(Busy::Script.text());
            let all = |line: &str| waits(&|| transact(&other, 1, &lines(&[line])).err());
            // The first waits until it is noted; the others not at all.
            assert_eq!(all("GET held"), busy);
            assert_eq!(all("MGET held a b c d e f g h"), busy);
            assert_eq!(all("DBSIZE"), busy);
            assert_eq!(other.begin_script().err(), Some(Busy::Script));
            let is_elsewhere = |key: &&String| all(&format!("SET {key} 1")).is_none();
            let keys: Vec<String> = (0..64).map(|nth| format!("key{nth}")).collect();
            keys.iter().filter(is_elsewhere).count()
        });
        is_noted.wait();
        assert!(store.has_script() && store.busy().is_none());
        script.note_busy(Busy::Script);
        let elsewhere = waited.join().expect("it waits for nothing");
        assert!((40..64).contains(&elsewhere), "{elsewhere} of 64 keys in 15 of 16 shards");
    });
    drop(script);
    assert!(!store.has_script() && store.busy().is_none());
    assert_eq!(run_script(&store, 0, &lines(&["DBSIZE"])), Reply::Integer(run_dbsize(&store)));
}

fn run_dbsize(store: &Store) -> i64 {
    match run(store, START, "DBSIZE") {
        Reply::Integer(count) => count,
        other => panic!("{other:?}"),
    }
}
