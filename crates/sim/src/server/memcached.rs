//! A memcached server.

use super::Server;
use crate::ledger::Ledger;
use crate::memcached::{RESERVED, write_item};
use crate::network::{Nanos, SECOND};
use crate::value;
use std::collections::BTreeMap;

/// The beginning of the keys of locks. A worker takes a lock before it empties a server.
const LOCK: &[u8] = b"keyway:emptying:";

/// Within this time a worker asks again for a lock that it did not get, and empties the server once
/// it has the lock.
const ASKED_AGAIN: Nanos = SECOND;

/// The state of a memcached server besides its clients' items.
#[derive(Default)]
pub(super) struct Memcached {
    /// Keyway's own items, with their expiries.
    reserved: BTreeMap<Vec<u8>, (Vec<u8>, Nanos)>,
    /// The number of each client's item. Each store of an item gives it a new one.
    numbers: BTreeMap<Vec<u8>, u64>,
    next_number: u64,
}

impl Server {
    /// Makes the server a memcached server.
    pub fn speak_memcached(&mut self) {
        self.memcached = Some(Memcached::default());
    }

    /// Returns clients' items in a database.
    pub fn items(&self, database: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.databases.get(&database).cloned().unwrap_or_default()
    }

    pub(super) fn execute_memcached(
        &mut self,
        args: &[Vec<u8>],
        (now, is_straggler): (Nanos, bool),
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) {
        let Some(memcached) = &mut self.memcached else { return };
        memcached.reserved.retain(|_, (_, until)| *until > now);
        match (args[0].as_slice(), args) {
            (b"version", [_]) => reply.extend_from_slice(b"VERSION 1.6.18\r\n"),
            (b"stats", [_]) => {
                let items = self.databases.values().map(BTreeMap::len).sum::<usize>()
                    + memcached.reserved.len();
                let text = format!("STAT pid 1\r\nSTAT curr_items {items}\r\nEND\r\n");
                reply.extend_from_slice(text.as_bytes());
            }
            (b"flush_all", [_]) => {
                memcached.reserved.clear();
                self.databases.clear();
                ledger.on_flush(self.pool, self.index, is_straggler);
                reply.extend_from_slice(b"OK\r\n");
            }
            _ if args.get(1).is_some_and(|key| key.starts_with(RESERVED)) => {
                self.execute_reserved(args, (now, is_straggler), ledger, reply);
            }
            _ => self.execute_items(args, is_straggler, ledger, reply),
        }
    }

    /// Executes a command about one of Keyway's own items.
    fn execute_reserved(
        &mut self,
        args: &[Vec<u8>],
        (now, is_straggler): (Nanos, bool),
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) {
        let Some(memcached) = &mut self.memcached else { return };
        match (args[0].as_slice(), args) {
            (b"get", [_, key]) => {
                if let Some((value, _)) = memcached.reserved.get(key) {
                    write_item(reply, key, value, None);
                }
                reply.extend_from_slice(b"END\r\n");
            }
            (b"add", [_, key, _, expiry, _, value]) => {
                let seconds = String::from_utf8_lossy(expiry).parse().unwrap_or(0);
                self.add_reserved(key, value, (now, seconds), ledger, reply);
            }
            (b"delete", [_, key]) => {
                let had = memcached.reserved.remove(key).is_some();
                reply.extend_from_slice(if had { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" });
            }
            _ => self.execute_items(args, is_straggler, ledger, reply),
        }
    }

    /// Executes a command about the items of clients.
    fn execute_items(
        &mut self,
        args: &[Vec<u8>],
        is_straggler: bool,
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) {
        match (args[0].as_slice(), args) {
            (b"get" | b"gets", [verb, keys @ ..]) => {
                for key in keys {
                    self.check_place(0, key, ledger);
                    let number = self.number_of(key, ledger).filter(|_| verb == b"gets");
                    let found = self.databases.get(&0).and_then(|data| data.get(key));
                    if let Some(value) = found {
                        write_item(reply, key, value, number);
                    }
                }
                reply.extend_from_slice(b"END\r\n");
            }
            (b"set", [_, key, _, _, _, value]) => {
                self.number_of(key, ledger);
                self.set(0, key, value, is_straggler, ledger);
                self.renumber(key);
                reply.extend_from_slice(b"STORED\r\n");
            }
            (b"add", [_, key, _, _, _, value]) => {
                let is_there = self.number_of(key, ledger).is_some();
                if !is_there {
                    self.bring(key, value, is_straggler, ledger);
                }
                reply.extend_from_slice(if is_there { b"NOT_STORED\r\n" } else { b"STORED\r\n" });
            }
            (b"cas", [_, key, _, expiry, _, number, _]) if expiry.starts_with(b"-") => {
                let text = match self.number_of(key, ledger) {
                    None => "NOT_FOUND\r\n",
                    Some(own) if own.to_string().as_bytes() != number => "EXISTS\r\n",
                    Some(_) => {
                        self.forget(key, is_straggler, ledger);
                        "STORED\r\n"
                    }
                };
                reply.extend_from_slice(text.as_bytes());
            }
            (b"delete", [_, key]) => {
                let had = self.number_of(key, ledger).is_some();
                self.forget(key, is_straggler, ledger);
                reply.extend_from_slice(if had { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" });
            }
            _ => ledger
                .fail(|| format!("a server was sent {}", String::from_utf8_lossy(&args.concat()))),
        }
    }

    fn add_reserved(
        &mut self,
        key: &[u8],
        value: &[u8],
        (now, seconds): (Nanos, u64),
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) {
        let Some(memcached) = &mut self.memcached else { return };
        if memcached.reserved.contains_key(key) {
            if key.starts_with(LOCK) {
                // The connection of the worker that has the lock may be lost. No worker then knows
                // whether its `flush_all` is still in flight, so all wait until the lock expires.
                ledger.on_trouble(self.index, now, now + ASKED_AGAIN);
            }
            return reply.extend_from_slice(b"NOT_STORED\r\n");
        }
        let until = if seconds == 0 { Nanos::MAX } else { now + seconds * SECOND };
        memcached.reserved.insert(key.to_vec(), (value.to_vec(), until));
        if self.databases.values().all(BTreeMap::is_empty) {
            ledger.on_found_empty(self.index);
        }
        reply.extend_from_slice(b"STORED\r\n");
    }

    /// Returns the number of a client's item, if there is one. The item may have been there from
    /// the beginning.
    fn number_of(&mut self, key: &[u8], ledger: &mut Ledger) -> Option<u64> {
        if let Some(value) = ledger.take_heirloom(self.pool, key) {
            self.databases.entry(0).or_default().insert(key.to_vec(), value);
            self.renumber(key);
        }
        let memcached = self.memcached.as_ref()?;
        let is_there = self.databases.get(&0).is_some_and(|data| data.contains_key(key));
        if is_there { memcached.numbers.get(key).copied() } else { None }
    }

    fn renumber(&mut self, key: &[u8]) {
        if let Some(memcached) = &mut self.memcached {
            memcached.next_number += 1;
            memcached.numbers.insert(key.to_vec(), memcached.next_number);
        }
    }

    /// Stores an item that another server had.
    fn bring(&mut self, key: &[u8], value: &[u8], is_straggler: bool, ledger: &mut Ledger) {
        self.check_place(0, key, ledger);
        if let Err(fault) = value::check(key, value) {
            ledger.fail(|| format!("a server was told to add: {fault}"));
        }
        if is_straggler {
            ledger.on_straggler(key);
        }
        ledger.moves += 1;
        self.databases.entry(0).or_default().insert(key.to_vec(), value.to_vec());
        self.renumber(key);
    }

    fn forget(&mut self, key: &[u8], is_straggler: bool, ledger: &mut Ledger) {
        self.check_place(0, key, ledger);
        if is_straggler {
            ledger.on_straggler(key);
        }
        self.databases.entry(0).or_default().remove(key);
    }

    pub(super) fn forget_reserved(&mut self) {
        if let Some(memcached) = &mut self.memcached {
            memcached.reserved.clear();
        }
    }
}
