//! The replies that many connections get for a key at the same time could have come from some
//! sequential order of the requests. Tested on the embedded store with several workers.

#![allow(clippy::disallowed_methods, reason = "operations are timed from outside")]

use std::collections::VecDeque;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use keyway_testkit::{
    Client, Event, Keyway, KeywayConfig, Pool, Random, Sequential, Value, is_linearizable, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const CLIENTS: usize = 8;
const ROUNDS: usize = 400;
/// Operations of a client in a round, over keys of three kinds. No key gets more than a history may
/// have.
const EACH: usize = 16;

/// The value of a key: nothing, a string, or a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    text: Option<i64>,
    list: VecDeque<i64>,
}

/// A request and its answer.
#[derive(Clone, Debug)]
enum Operation {
    Set(i64),
    Get(Option<i64>),
    Exchange(i64, Option<i64>),
    SetNew(i64, bool),
    Remove(bool),
    Increment(i64),
    Push { left: bool, value: i64, len: i64 },
    Pop { left: bool, value: Option<i64> },
    Len(i64),
}

impl Sequential for Key {
    type Operation = Operation;

    fn apply(&mut self, operation: &Operation) -> bool {
        match *operation {
            Operation::Set(value) => {
                self.text = Some(value);
                true
            }
            Operation::Get(value) => self.text == value,
            Operation::Exchange(value, old) => self.text.replace(value) == old,
            Operation::SetNew(value, done) => {
                let is_free = self.text.is_none();
                self.text.get_or_insert(value);
                is_free == done
            }
            Operation::Remove(done) => self.text.take().is_some() == done,
            Operation::Increment(sum) => {
                let found = self.text.unwrap_or(0) + 1;
                self.text = Some(found);
                found == sum
            }
            Operation::Push { left, value, len } => {
                if left {
                    self.list.push_front(value)
                } else {
                    self.list.push_back(value)
                }
                self.list.len() as i64 == len
            }
            Operation::Pop { left, value } => {
                let found = if left { self.list.pop_front() } else { self.list.pop_back() };
                found == value
            }
            Operation::Len(len) => self.list.len() as i64 == len,
        }
    }
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Bulk(_) => Some(value.text().parse().expect("a number")),
        Value::Array(pair) => number(&pair[1]),
        Value::Nil | Value::NilArray => None,
        other => panic!("no number: {other:?}"),
    }
}

/// Sends a request about one of the keys of a round. Returns the key and the outcome.
fn ask(client: &mut Client, round: usize, random: &mut Random, value: i64) -> (usize, Operation) {
    let kind = random.below(3);
    let key = format!("{kind}:{round}");
    let operation = match kind {
        0 => match random.below(5) {
            0 => {
                client.words(&format!("SET {key} {value}"));
                Operation::Set(value)
            }
            1 => {
                Operation::Exchange(value, number(&client.words(&format!("GETSET {key} {value}"))))
            }
            2 => {
                let done = client.words(&format!("SETNX {key} {value}")).integer() == 1;
                Operation::SetNew(value, done)
            }
            3 => Operation::Remove(client.words(&format!("DEL {key}")).integer() == 1),
            _ => Operation::Get(number(&client.words(&format!("GET {key}")))),
        },
        1 => match random.below(3) {
            0 => Operation::Get(number(&client.words(&format!("GET {key}")))),
            1 => {
                // A transaction is one operation on each of its keys.
                let lines = ["MULTI", &format!("INCR {key}"), "PING", "EXEC"];
                let replies = client.pipeline(&lines);
                Operation::Increment(replies[3].array()[0].integer())
            }
            _ => Operation::Increment(client.words(&format!("INCR {key}")).integer()),
        },
        _ => {
            let left = random.below(2) == 0;
            let side = if left { "L" } else { "R" };
            match random.below(5) {
                0 | 1 => {
                    let len = client.words(&format!("{side}PUSH {key} {value}")).integer();
                    Operation::Push { left, value, len }
                }
                2 => {
                    let value = number(&client.words(&format!("{side}POP {key}")));
                    Operation::Pop { left, value }
                }
                3 => {
                    let line = format!("B{side}POP {key} 0.0005");
                    Operation::Pop { left, value: number(&client.words(&line)) }
                }
                _ => Operation::Len(client.words(&format!("LLEN {key}")).integer()),
            }
        }
    };
    (kind, operation)
}

/// The operations of a client in a round: the key and the event of each.
type Seen = Vec<(usize, Event<Operation>)>;

#[test]
fn each_key_has_one_order_that_all_clients_saw() {
    let _watch = watchdog(Duration::from_secs(300), "orders");
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("workers", "2");
    let keyway = Keyway::start(KEYWAY, config);
    let (start, barrier) = (Instant::now(), Barrier::new(CLIENTS));
    let now = || start.elapsed().as_nanos() as u64;
    let seen: Vec<Vec<Seen>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS)
            .map(|nth| {
                let (keyway, barrier) = (&keyway, &barrier);
                scope.spawn(move || {
                    let mut client = keyway.client(0);
                    let mut random = Random::new(nth as u64);
                    let mut next = 1000 * (nth as i64 + 1) * (ROUNDS * EACH) as i64;
                    let mut round_of = |round| {
                        barrier.wait();
                        let mut one = || {
                            next += 1;
                            let called = now();
                            let (kind, operation) = ask(&mut client, round, &mut random, next);
                            (kind, Event { operation, called, returned: now() })
                        };
                        (0..EACH).map(|_| one()).collect()
                    };
                    (0..ROUNDS).map(&mut round_of).collect()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a client")).collect()
    });
    for round in 0..ROUNDS {
        for kind in 0..3 {
            let mut history: Vec<Event<Operation>> = Vec::new();
            for client in &seen {
                let own = client[round].iter().filter(|(one, _)| *one == kind);
                history.extend(own.map(|(_, event)| event.clone()));
            }
            history.sort_by_key(|event| event.called);
            let is_fine = is_linearizable(&Key::default(), &history);
            assert!(is_fine, "round {round}, kind {kind}: {history:#?}");
        }
    }
}
