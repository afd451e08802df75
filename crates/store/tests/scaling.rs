//! Two workers do at least 1.8 times the work of one: threads on one store, by
//! the processor time that a request costs each, so that what else the machine
//! does is left out. A test binary of its own, to be built for speed:
//! `make scaling`.
#![allow(clippy::disallowed_types, reason = "tests in threads, not workers")]

mod common;

use common::{Random, clock_at};
use keyway_base::ByteRange;
use keyway_command::{Args, Request};
use keyway_resp::Protocol;
use keyway_store::{Context, Store, StoreConfig};
use std::sync::Barrier;
use std::time::Duration;

const START: u64 = 1_700_000_000_000;
const KEYS: usize = 200_000;
const ROUNDS: usize = 5;
const REQUESTS: usize = 1_000_000;

/// Processor time this thread has taken.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// One request, written into `buf`.
fn send(store: &Store, context: Context, words: &[&[u8]], buf: &mut Vec<u8>, out: &mut Vec<u8>) {
    buf.clear();
    out.clear();
    let mut ranges = [ByteRange::new(0, 0); 3];
    for (range, word) in ranges.iter_mut().zip(words) {
        *range = ByteRange::new(buf.len(), buf.len() + word.len());
        buf.extend_from_slice(word);
    }
    let request = Request::resolve(Args::new(buf, &ranges[..words.len()])).expect("a request");
    store.execute(&request, context, out);
}

/// Requests per second of processor time of each of `threads`; `sets` of ten
/// are SET, the others GET.
fn rate(store: &Store, threads: usize, sets: usize) -> f64 {
    let start = Barrier::new(threads);
    let spent: Duration = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let start = &start;
                scope.spawn(move || {
                    let context = Context {
                        database: 0,
                        clock: clock_at(START),
                        protocol: Protocol::Resp2,
                        worker: worker as u16,
                    };
                    let mut random = Random::new(worker as u64 + 1);
                    let (mut buf, mut out, value) = (Vec::new(), Vec::new(), [b'v'; 64]);
                    start.wait();
                    let before = thread_time();
                    for _ in 0..REQUESTS {
                        let key = format!("itm:{:012}", random.below(KEYS));
                        if random.below(10) < sets {
                            let words: [&[u8]; 3] = [b"SET", key.as_bytes(), &value];
                            send(store, context, &words, &mut buf, &mut out);
                        } else {
                            send(store, context, &[b"GET", key.as_bytes()], &mut buf, &mut out);
                        }
                    }
                    thread_time() - before
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("it ends")).sum()
    });
    (threads * REQUESTS) as f64 / spent.as_secs_f64()
}

#[test]
#[cfg_attr(debug_assertions, ignore = "a build for debugging measures something else")]
fn two_threads_do_nearly_twice_the_work_of_one() {
    let store = Store::new(StoreConfig::default());
    let context =
        Context { database: 0, clock: clock_at(START), protocol: Protocol::Resp2, worker: 0 };
    for key in 0..KEYS {
        let key = format!("itm:{key:012}");
        let words: [&[u8]; 3] = [b"SET", key.as_bytes(), &[b'v'; 64]];
        send(&store, context, &words, &mut Vec::new(), &mut Vec::new());
    }
    for (mix, sets) in [("GET", 0), ("GET and SET 1:1", 5), ("SET", 10)] {
        let mut ratios: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let one = rate(&store, 1, sets);
                2.0 * rate(&store, 2, sets) / one
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        let median = ratios[ROUNDS / 2];
        println!(
            "{mix}: two threads {median:.2} times one ({:.2}-{:.2})",
            ratios[0],
            ratios[ROUNDS - 1]
        );
        assert!(median >= 1.8, "{mix}: {median:.2}");
    }
}
