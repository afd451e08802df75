//! A server that is memcached.

use super::Server;
use crate::ledger::Ledger;
use crate::memcached::{RESERVED, write_item};
use crate::network::{Nanos, SECOND};
use std::collections::BTreeMap;

/// What a server of memcached has besides its clients' items.
#[derive(Default)]
pub(super) struct Memcached {
    /// Keyway's own items, with when they expire.
    reserved: BTreeMap<Vec<u8>, (Vec<u8>, Nanos)>,
}

impl Server {
    /// Makes it one.
    pub fn speak_memcached(&mut self) {
        self.memcached = Some(Memcached::default());
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
        let is_reserved = args.get(1).is_some_and(|key| key.starts_with(RESERVED));
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
            (b"get", [_, key]) if is_reserved => {
                if let Some((value, _)) = memcached.reserved.get(key) {
                    write_item(reply, key, value);
                }
                reply.extend_from_slice(b"END\r\n");
            }
            (b"add", [_, key, _, expiry, _, value]) if is_reserved => {
                let seconds = String::from_utf8_lossy(expiry).parse().unwrap_or(0);
                self.add_reserved(key, value, (now, seconds), ledger, reply);
            }
            (b"delete", [_, key]) if is_reserved => {
                let had = memcached.reserved.remove(key).is_some();
                reply.extend_from_slice(if had { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" });
            }
            (b"get", [_, keys @ ..]) => {
                for key in keys {
                    self.check_place(0, key, ledger);
                    let found = self.databases.get(&0).and_then(|data| data.get(key));
                    if let Some(value) = found {
                        write_item(reply, key, value);
                    }
                }
                reply.extend_from_slice(b"END\r\n");
            }
            (b"set", [_, key, _, _, _, value]) => {
                self.set(0, key, value, is_straggler, ledger);
                reply.extend_from_slice(b"STORED\r\n");
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
            return reply.extend_from_slice(b"NOT_STORED\r\n");
        }
        let until = if seconds == 0 { Nanos::MAX } else { now + seconds * SECOND };
        memcached.reserved.insert(key.to_vec(), (value.to_vec(), until));
        if self.databases.values().all(BTreeMap::is_empty) {
            ledger.on_found_empty(self.index);
        }
        reply.extend_from_slice(b"STORED\r\n");
    }

    pub(super) fn forget_reserved(&mut self) {
        if let Some(memcached) = &mut self.memcached {
            memcached.reserved.clear();
        }
    }
}
