//! Clients: they write to the primaries, try to write to replicas, and read what must hold at any time.

use super::node::{DATABASES, Life, Node};
use super::stage::Stage;
use crate::random::Random;
use crate::wire::Value;
use keyway_replica::System;
use keyway_store::Refused;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Keys of each kind.
const KEYS: u64 = 12;
/// How long a client waits for replicas.
const WAIT: u64 = 3_000_000_000;
/// Clients that wait at a time.
const WAITS_MAX: usize = 16;

/// Counts of the requests of all clients.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) writes: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) waits: AtomicU64,
}

/// The clients of a run, which have one thread.
pub(super) struct Clients {
    pub(super) stage: Arc<Stage>,
    pub(super) system: Arc<dyn System>,
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) random: Random,
    /// Longest pause between two rounds.
    pub(super) pause_max: u64,
    /// Longest value.
    pub(super) long_max: u64,
    pub(super) is_resting: Arc<AtomicBool>,
    pub(super) is_ending: Arc<AtomicBool>,
    pub(super) counts: Arc<Counts>,
}

/// A client that waits for a replica.
struct Wait {
    node: usize,
    /// The role of the store at that time.
    turn: u64,
    id: keyway_rdb::replication::ReplicationId,
    offset: u64,
    until: u64,
}

impl Clients {
    pub(super) fn run(mut self) {
        let mut waits = Vec::new();
        while !self.is_ending.load(Ordering::Relaxed) {
            if !self.is_resting.load(Ordering::Relaxed) {
                self.round(&mut waits);
            }
            self.look(&mut waits);
            let pause = Duration::from_nanos(self.random.between(500_000, self.pause_max));
            self.system.sleep(pause);
        }
    }

    fn round(&mut self, waits: &mut Vec<Wait>) {
        let node = Arc::clone(&self.nodes[self.random.index(self.nodes.len())]);
        let life = node.life();
        if let Err(text) = check_keys(node.index, &life, self.random.below(KEYS)) {
            return self.stage.fail(text);
        }
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        if node.is_paused.load(Ordering::Relaxed) {
            return;
        }
        for _ in 0..self.random.between(1, 20) {
            let database = self.random.below(DATABASES.into()) as u32;
            match self.write(&life, database) {
                Ok(()) if life.store.is_replica() => {
                    return self.stage.fail(format!("replica {} takes a write", node.index));
                }
                Ok(()) => drop(self.counts.writes.fetch_add(1, Ordering::Relaxed)),
                Err(_) => {
                    self.counts.refused.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
        let Some((id, offset)) = node.histories.mark(&life) else { return };
        if waits.len() < WAITS_MAX && self.random.percent(30) {
            let turn = node.turns.load(Ordering::Relaxed);
            let until = self.stage.nanos() + WAIT;
            waits.push(Wait { node: node.index, turn, id, offset, until });
            life.standby.ask_for_offsets();
        }
    }

    /// Ends the waits that are over. A replica that has acknowledged an offset has it.
    fn look(&mut self, waits: &mut Vec<Wait>) {
        let now = self.stage.nanos();
        waits.retain(|wait| {
            let node = &self.nodes[wait.node];
            let life = node.life();
            let is_same = node.turns.load(Ordering::Relaxed) == wait.turn
                && life.standby.replication_id() == wait.id;
            let is_over = !is_same || wait.until <= now;
            let is_done = is_same && life.standby.acknowledged(wait.offset) > 0;
            if is_done {
                self.counts.waits.fetch_add(1, Ordering::Relaxed);
            }
            !is_over && !is_done
        });
    }

    fn write(&mut self, life: &Life, database: u32) -> Result<(), Refused> {
        let random = &mut self.random;
        let (key, other, number) = (random.below(KEYS), random.below(KEYS), random.below(1000));
        let line = match random.below(26) {
            0..=3 => return push_next(life, &format!("m{key}")),
            4..=6 => return push_counted(life, key, number),
            7 => {
                let value = vec![b'v'; random.scaled(1, self.long_max) as usize];
                let key = format!("b{}", key % 4);
                return life.ask(database, &[b"SET", key.as_bytes(), &value]).map(drop);
            }
            8..=9 => format!("SET s{key} {number}"),
            10 => format!("SET s{key} {number} PX {}", 1 + random.below(1500)),
            11 => format!("PEXPIRE q{key} {}", 1 + random.below(2000)),
            12 => format!("INCRBYFLOAT f{key} 0.{number}"),
            13 => format!("APPEND a{key} {}", "x".repeat(number as usize)),
            14 => format!("RPUSH q{key} {number} {other}"),
            15 => format!("LPOP q{key}"),
            16 => format!("SADD t{key} {number} {other}"),
            17 => format!("SPOP t{key}"),
            18 => format!("ZADD z{key} {number} {other}"),
            19 => format!("ZPOPMIN z{key}"),
            20 => format!("HSET h{key} {other} {number}"),
            21 => format!("HINCRBYFLOAT h{key} {other} 1.5"),
            22 => format!("XADD x{key} MAXLEN 20 * f {number}"),
            23 => format!("SUNIONSTORE t{key} t{other} t{}", number % KEYS),
            24 => format!("RENAME s{key} s{other}"),
            _ => format!("DEL s{key} q{other} t{key} h{other} x{key}"),
        };
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        life.ask(database, &words).map(drop)
    }
}

/// Appends the length of a list to it: the list has each number once, in order, whatever happens.
fn push_next(life: &Life, key: &str) -> Result<(), Refused> {
    let len = match life.ask(0, &[b"LLEN", key.as_bytes()])? {
        Value::Integer(len) => len,
        other => panic!("LLEN answers {}", other.show()),
    };
    life.ask(0, &[b"RPUSH", key.as_bytes(), len.to_string().as_bytes()]).map(drop)
}

/// Counts the elements of a list in the transaction that adds one.
fn push_counted(life: &Life, key: u64, number: u64) -> Result<(), Refused> {
    let (counter, list, number) = (format!("c{key}"), format!("n{key}"), number.to_string());
    let (counter, list, number) = (counter.as_bytes(), list.as_bytes(), number.as_bytes());
    life.ask_all(0, &[&[b"INCR", counter], &[b"RPUSH", list, number]]).map(drop)
}

/// Checks what holds in every store at any time, whoever is the primary.
pub(super) fn check_keys(index: usize, life: &Life, key: u64) -> Result<(), String> {
    let (list, counter, counted) = (format!("m{key}"), format!("c{key}"), format!("n{key}"));
    let wrong = |what: String| Err(format!("store {index}: {what}"));
    match life.ask(0, &[b"LRANGE", list.as_bytes(), b"0", b"-1"]) {
        Ok(Value::Array(Some(items))) => {
            for (position, item) in items.iter().enumerate() {
                if *item != Value::Bulk(Some(position.to_string().into_bytes())) {
                    return wrong(format!("{list} has {} at {position}", item.show()));
                }
            }
        }
        Ok(other) => return wrong(format!("{list} is {}", other.show())),
        // It is being loaded.
        Err(_) => return Ok(()),
    }
    let count = life.ask(0, &[b"GET", counter.as_bytes()]);
    let len = life.ask(0, &[b"LLEN", counted.as_bytes()]);
    let (Ok(count), Ok(Value::Integer(len))) = (count, len) else { return Ok(()) };
    let expected = if len == 0 { None } else { Some(len.to_string().into_bytes()) };
    if count != Value::Bulk(expected) {
        return wrong(format!("{counter} is {}, and {counted} has {len} elements", count.show()));
    }
    Ok(())
}
