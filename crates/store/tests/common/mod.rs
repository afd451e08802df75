//! Helpers of the store's tests: requests from words, and replies read back.
#![allow(dead_code, reason = "each test uses its part")]

pub mod memcached;
pub mod payloads;
pub mod redis;
pub mod snapshots;

use keyway_base::{ByteRange, Clock, Time};
use keyway_command::{Args, Request};
use keyway_resp::Protocol;
use keyway_store::{Context, Store};
use std::sync::Barrier;

/// A reply as a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Option<Vec<u8>>),
    Array(Option<Vec<Reply>>),
    /// RESP3's null.
    Null,
    /// RESP3's map: keys and values in turn.
    Map(Vec<Reply>),
    /// RESP3's set.
    Set(Vec<Reply>),
    /// RESP3's double, as it is written.
    Double(String),
}

impl Reply {
    /// Reads one reply off the front of `bytes`; panics on anything else.
    pub fn read(bytes: &mut &[u8]) -> Reply {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n").expect("a line");
        let line = String::from_utf8_lossy(&bytes[1..end]).into_owned();
        let kind = bytes[0];
        *bytes = &bytes[end + 2..];
        let number = || line.parse::<i64>().expect("a number");
        match kind {
            b'+' => Reply::Simple(line),
            b'-' => Reply::Error(line),
            b':' => Reply::Integer(number()),
            b'$' if number() < 0 => Reply::Bulk(None),
            b'$' => {
                let len = number() as usize;
                let bulk = bytes[..len].to_vec();
                assert_eq!(&bytes[len..len + 2], b"\r\n");
                *bytes = &bytes[len + 2..];
                Reply::Bulk(Some(bulk))
            }
            b'*' if number() < 0 => Reply::Array(None),
            b'*' => Reply::Array(Some((0..number()).map(|_| Reply::read(bytes)).collect())),
            b'_' => Reply::Null,
            b'%' => Reply::Map((0..2 * number()).map(|_| Reply::read(bytes)).collect()),
            b'~' => Reply::Set((0..number()).map(|_| Reply::read(bytes)).collect()),
            b',' => Reply::Double(line),
            other => panic!("not a reply: {other}"),
        }
    }

    /// The elements of an array of strings.
    pub fn strings(&self) -> Vec<Vec<u8>> {
        let Reply::Array(Some(elements)) = self else { panic!("no array: {self:?}") };
        let string = |reply: &Reply| match reply {
            Reply::Bulk(Some(bytes)) => bytes.clone(),
            other => panic!("no string: {other:?}"),
        };
        elements.iter().map(string).collect()
    }

    pub fn integer(&self) -> i64 {
        let Reply::Integer(value) = self else { panic!("no integer: {self:?}") };
        *value
    }
}

/// Both clocks at `millis` since the epoch.
pub fn clock_at(millis: u64) -> Clock {
    Clock { now: Time(millis * 1_000_000), unix_micros: millis * 1000 }
}

/// Appends the RESP2 reply to `words` to `out`.
pub fn execute(store: &Store, database: u32, clock: Clock, words: &[&[u8]], out: &mut Vec<u8>) {
    execute_in(store, Context { database, clock, ..context_of(0, 0) }, words, out);
}

/// Returns the context of a request of a worker in database 0, at `millis`.
pub fn context_of(worker: u16, millis: u64) -> Context {
    Context { database: 0, clock: clock_at(millis), protocol: Protocol::Resp2, worker }
}

/// The arguments that `words` make.
pub fn with_args<R>(words: &[&[u8]], work: impl FnOnce(Args<'_>) -> R) -> R {
    let (mut buf, mut ranges) = (Vec::new(), Vec::new());
    for word in words {
        ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
        buf.extend_from_slice(word);
    }
    work(Args::new(&buf, &ranges))
}

/// Appends the reply to `words`, asked in `context`, to `out`.
pub fn execute_in(store: &Store, context: Context, words: &[&[u8]], out: &mut Vec<u8>) {
    with_args(words, |args| match Request::resolve(args) {
        Ok(request) => store.execute(&request, context, out),
        Err(refusal) => refusal.write_error(args, out),
    });
}

/// The reply to `line`, cut at blanks, in database 0 at `millis`.
pub fn run(store: &Store, millis: u64, line: &str) -> Reply {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    run_words(store, millis, &words)
}

/// The reply to `words`, in database 0 at `millis`.
pub fn run_words(store: &Store, millis: u64, words: &[&[u8]]) -> Reply {
    let mut out = Vec::new();
    execute(store, 0, clock_at(millis), words, &mut out);
    let mut rest = &out[..];
    let reply = Reply::read(&mut rest);
    assert!(rest.is_empty(), "more than one reply to {words:?}");
    reply
}

/// Returns whether `make asan` or `make valgrind` runs this: tests of time and of the
/// process's memory then do the same with less, and have no opinion of figures.
#[allow(clippy::disallowed_methods, reason = "the scripts say so by the environment")]
pub fn is_sanitized() -> bool {
    std::env::var_os("KEYWAY_SANITIZED").is_some()
}

/// A small generator of numbers, alike on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True once in `one_in` times.
    pub fn once_in(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// A request made of a line's words.
pub fn with_request<R>(line: &str, work: impl FnOnce(&Request<'_>) -> R) -> R {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    with_args(&words, |args| work(&Request::resolve(args).expect("a request")))
}

/// Runs `work` on so many threads at once, each with its number. Returns the results.
pub fn at_once<R: Send>(threads: u16, work: impl Fn(u16) -> R + Sync) -> Vec<R> {
    let start = Barrier::new(usize::from(threads));
    let begin = |index: u16| {
        start.wait();
        work(index)
    };
    std::thread::scope(|scope| {
        let begin = &begin;
        let all: Vec<_> = (0..threads).map(|index| scope.spawn(move || begin(index))).collect();
        all.into_iter().map(|thread| thread.join().expect("a worker")).collect()
    })
}

/// Resident memory of this process, in bytes.
pub fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a number of pages") * 4096
}
