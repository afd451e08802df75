//! Clients that wait for a key are served in the order of coming, once, by the worker that changes
//! the key, and leave nothing.

mod common;

use common::{clock_at, context_of, execute_in, run, with_request};
use keyway_command::Request;
use keyway_store::{Context, Store, StoreConfig, Waited, Waiter, Who};
use std::collections::BTreeSet;
use std::sync::Arc;

const START: u64 = 1_700_000_000_000;

fn store() -> Store {
    Store::new(StoreConfig { shards: Some(8), ..StoreConfig::default() })
}

fn context(worker: u16) -> Context {
    context_of(worker, START)
}

/// As [`begin`], where nothing is there.
fn wait(store: &Store, client: u64, worker: u16, line: &str) -> Result<Arc<Waiter>, String> {
    let begun = begin(store, client, worker, line);
    // Others may have waited before it: it looks what is there for it.
    store.serve_ready(worker, clock_at(START), |_, _| panic!("nothing is there"));
    begun
}

/// Lets a client wait with a command; its waiter, or the reply it got at once.
fn begin(store: &Store, client: u64, worker: u16, line: &str) -> Result<Arc<Waiter>, String> {
    let who = Who { client, worker, is_noloop: false };
    let mut out = Vec::new();
    let attempt =
        |request: &Request<'_>| store.attempt_or_wait(request, context(worker), who, &mut out);
    match with_request(line, attempt) {
        Waited::Waits(waiter, _) => Ok(waiter),
        Waited::Answered => Err(String::from_utf8(out).expect("text")),
    }
}

/// Returns the clients that are served after a line, with their replies.
fn served(store: &Store, worker: u16, line: &str) -> Vec<(u64, String)> {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    execute_in(store, context(worker), &words, &mut Vec::new());
    let mut all = Vec::new();
    store.serve_ready(worker, clock_at(START), |waiter, reply| {
        all.push((waiter.who.client, String::from_utf8(reply).expect("text")));
    });
    all
}

#[test]
fn the_first_who_came_is_the_first_to_be_served() {
    let store = store();
    let mut waiters = Vec::new();
    for client in 1..=4 {
        waiters.push(wait(&store, client, 0, "BLPOP k other 0").expect("nothing is there"));
    }
    assert!(store.cancel(&waiters[1]) && !store.cancel(&waiters[1]));
    let told = served(&store, 1, "RPUSH k a b");
    let pair = |value: &str| format!("*2\r\n$1\r\nk\r\n$1\r\n{value}\r\n");
    assert_eq!(told, [(1, pair("a")), (3, pair("b"))]);
    assert!(!store.cancel(&waiters[0]), "it is served");
    assert_eq!(served(&store, 1, "RPUSH k c d"), [(4, pair("c"))]);
    assert_eq!(run(&store, START, "LRANGE k 0 -1").strings(), [b"d"]);
    assert_eq!(store.waiting_len(), 0);
    assert!(!store.notifies());
}

#[test]
fn a_waiter_is_served_only_from_the_key_that_is_ready_and_of_its_type() {
    let store = store();
    let first = wait(&store, 1, 0, "BZPOPMIN k 0").expect("nothing");
    let second = wait(&store, 2, 0, "BLMPOP 0 2 wrong k LEFT COUNT 9").expect("nothing");
    assert_eq!(served(&store, 0, "SET wrong x"), []);
    let told = served(&store, 0, "RPUSH k a b");
    assert_eq!(told, [(2, "*2\r\n$1\r\nk\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n".to_owned())]);
    assert!(!store.cancel(&second) && store.cancel(&first));
}

#[test]
fn a_move_serves_who_waits_for_its_target() {
    let store = store();
    let _first = wait(&store, 1, 0, "BLMOVE a b LEFT LEFT 0").expect("nothing");
    let _second = wait(&store, 2, 0, "BLMOVE b text LEFT LEFT 0").expect("nothing");
    let _third = wait(&store, 3, 0, "BLPOP b 0").expect("nothing");
    run(&store, START, "SET text x");
    let told = served(&store, 0, "RPUSH a v");
    assert_eq!(told[0], (1, "$1\r\nv\r\n".to_owned()));
    assert!(told[1].0 == 2 && told[1].1.starts_with("-WRONGTYPE "));
    assert_eq!(told[2], (3, "*2\r\n$1\r\nb\r\n$1\r\nv\r\n".to_owned()));
    assert_eq!(store.waiting_len(), 0);
}

#[test]
fn whatever_brings_a_list_wakes_who_waits_for_it() {
    for line in ["RENAME l k", "COPY l k", "LMOVE l k LEFT LEFT", "LPUSH k x", "SWAPDB 0 1"] {
        let store = store();
        run(&store, START, "RPUSH l x");
        run(&store, START, "RPUSH m x");
        run(&store, START, "MOVE m 1");
        let in_one = Context { database: 1, ..context(0) };
        execute_in(&store, in_one, &[b"RENAME", b"m", b"k"], &mut Vec::new());
        let _waiter = wait(&store, 1, 0, "BLPOP k 0").expect("nothing");
        assert_eq!(served(&store, 0, line).len(), 1, "{line}");
    }
}

#[test]
fn an_entry_comes_to_all_readers_and_to_the_first_of_each_group() {
    let store = store();
    for line in ["XADD s 1-1 a b", "XGROUP CREATE s g $", "XGROUP CREATE s h $"] {
        run(&store, START, line);
    }
    let reads = ["XREAD BLOCK 0 STREAMS s $", "XREAD BLOCK 0 STREAMS other s 0 1-1"];
    let group = |name: &str| format!("XREADGROUP GROUP {name} c BLOCK 0 STREAMS s >");
    let (g, h) = (group("g"), group("h"));
    let lines = [&g, reads[0], &h, &g, reads[1]];
    let waiters: Vec<_> = lines
        .iter()
        .zip(1..)
        .map(|(line, client)| wait(&store, client, 0, line).expect("nothing"))
        .collect();
    let told = served(&store, 1, "XADD s 2-1 c d");
    let mut clients: Vec<u64> = told.iter().map(|(client, _)| *client).collect();
    clients.sort_unstable();
    assert_eq!(clients, [1, 2, 3, 5]);
    assert!(told.iter().all(|(_, reply)| reply == &told[0].1), "{told:?}");
    // An entry that comes while a consumer of the group waits is that consumer's.
    execute_in(&store, context(0), &[b"XADD", b"s", b"3-1", b"e", b"f"], &mut Vec::new());
    let newcomer = begin(&store, 6, 0, &g).expect("another waits");
    let of_another = begin(&store, 7, 0, &h).err().expect("nobody of its group waits");
    assert!(of_another.contains("3-1"));
    let mut clients = Vec::new();
    store.serve_ready(0, clock_at(START), |waiter, _| clients.push(waiter.who.client));
    assert_eq!(clients, [4]);
    assert!(store.cancel(&newcomer) && !store.cancel(&waiters[3]));
    assert_eq!(store.waiting_len(), 0);
    assert!(!store.notifies());
}

#[test]
fn a_stream_that_expires_ends_the_waiting_of_its_groups() {
    let store = store();
    for line in ["XADD s 1-1 a b", "XGROUP CREATE s g $", "PEXPIRE s 1500"] {
        run(&store, START, line);
    }
    let _waiter = wait(&store, 1, 0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >").expect("nothing");
    let reader = wait(&store, 2, 0, "XREAD BLOCK 0 STREAMS s $").expect("nothing");
    let later = clock_at(START + 5000);
    // Often enough to come by every shard.
    (0..1000).for_each(|_| while store.tick(later) {});
    let mut told = Vec::new();
    store.serve_ready(3, later, |waiter, reply| told.push((waiter.who.client, reply)));
    let text = b"-UNBLOCKED the stream key no longer exists\r\n";
    assert_eq!(told, [(1, text.to_vec())]);
    assert!(store.cancel(&reader));
    assert!(!store.notifies());
}

/// Every call of upkeep looks at the streams that are read for groups, at no others.
#[test]
fn the_end_of_a_stream_is_told_by_the_next_upkeep_however_it_came_by_its_expiry() {
    let cases: [(&[&str], &[&str]); 6] = [
        (&["PEXPIRE s 150"], &[]),
        (&[], &["PEXPIRE s 150"]),
        (&["PEXPIRE s 90000"], &["PEXPIRE s 150"]),
        (&["PEXPIRE t 150"], &["RENAME t s"]),
        (&["PEXPIRE t 150"], &["COPY t s REPLACE"]),
        (&["PEXPIRE t 150", "MOVE t 1", "SWAPDB 0 1", "RENAME t s", "SWAPDB 0 1"], &["SWAPDB 0 1"]),
    ];
    for (before, meanwhile) in cases {
        let store = store();
        for key in ["s", "t"] {
            run(&store, START, &format!("XADD {key} 1-1 a b"));
            run(&store, START, &format!("XGROUP CREATE {key} g $"));
        }
        before.iter().for_each(|line| drop(run(&store, START, line)));
        let begun = begin(&store, 1, 0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
        let _waiter = begun.expect("nothing is there");
        let told = |at: u64| {
            let mut told = Vec::new();
            let _ = store.tick(clock_at(START + at));
            store.serve_ready(3, clock_at(START + at), |waiter, _| told.push(waiter.who.client));
            told
        };
        assert_eq!(told(10), [], "{before:?}, {meanwhile:?}");
        for line in meanwhile {
            assert_eq!(served(&store, 0, line), [], "{before:?}, {meanwhile:?}");
        }
        assert_eq!(told(100), [], "{before:?}, {meanwhile:?}");
        assert_eq!(told(151), [1], "{before:?}, {meanwhile:?}");
        assert!(!store.notifies());
    }
    let store = store();
    for line in ["XADD s 1-1 a b", "XGROUP CREATE s g $", "PEXPIRE s 150"] {
        run(&store, START, line);
    }
    let waiter = wait(&store, 1, 0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >").expect("nothing");
    assert_eq!(served(&store, 0, "PERSIST s"), []);
    let _ = store.tick(clock_at(START + 1000));
    store.serve_ready(3, clock_at(START + 1000), |_, _| panic!("it is there for good"));
    assert!(store.cancel(&waiter));
}

#[test]
fn elements_of_many_threads_come_to_one_waiter_each() {
    const THREADS: u16 = 4;
    const EACH: u64 = 2_000;
    let store = store();
    let work = |worker: u16| {
        let (mut taken, mut waiting) = (Vec::new(), Vec::new());
        for nth in 0..EACH {
            let client = u64::from(worker) * EACH + nth;
            match begin(&store, client, worker, "BRPOP k l 0") {
                Ok(waiter) => waiting.push(waiter),
                Err(reply) => taken.push(reply),
            }
            let told = served(&store, worker, &format!("LPUSH k {client}"));
            taken.extend(told.into_iter().map(|(_, reply)| reply));
        }
        (taken, waiting)
    };
    let (taken, waiting): (Vec<_>, Vec<_>) = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..THREADS).map(|worker| scope.spawn(move || work(worker))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker")).unzip()
    });
    let taken = taken.concat();
    let waiting = waiting.concat();
    let left = run(&store, START, "LLEN k").integer() as usize;
    assert_eq!(taken.len(), BTreeSet::from_iter(&taken).len(), "none twice");
    assert_eq!(taken.len() + left, usize::from(THREADS) * EACH as usize);
    let cancelled = waiting.iter().filter(|waiter| store.cancel(waiter)).count();
    assert_eq!(cancelled, left, "as many wait as are left, for nothing");
    assert_eq!((store.waiting_len(), left), (0, 0));
}
