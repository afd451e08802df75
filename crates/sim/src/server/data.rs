//! The data of a Redis server: its strings and counters, and which commands use them.

use super::{Defect, Server};
use crate::ledger::Ledger;
use crate::value;
use crate::wire::{clip, write_bulk};

impl Server {
    /// Executes a command about data. A command that changes a key touches it for those who watch
    /// it or cache it.
    pub(super) fn execute_data(
        &mut self,
        position: usize,
        name: &[u8],
        args: &[Vec<u8>],
        is_straggler: bool,
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) {
        let database = self.conns[position].database;
        let keys = &args[1..];
        if let Some(count) = self.execute_counted(database, name, args, is_straggler, ledger) {
            return reply.extend_from_slice(format!(":{count}\r\n").as_bytes());
        }
        match name {
            b"SET" if args.len() == 3 => {
                self.set(database, &args[1], &args[2], is_straggler, ledger);
                reply.extend_from_slice(b"+OK\r\n");
            }
            b"MSET" => {
                for pair in keys.chunks(2) {
                    self.set(database, &pair[0], &pair[1], is_straggler, ledger);
                }
                reply.extend_from_slice(b"+OK\r\n");
            }
            b"GET" if args.len() == 2 => {
                self.note_read(position, keys);
                self.get(database, &args[1], ledger, reply);
            }
            b"MGET" => {
                self.note_read(position, keys);
                reply.extend_from_slice(format!("*{}\r\n", keys.len()).as_bytes());
                for key in keys {
                    self.get(database, key, ledger, reply);
                }
            }
            b"SDIFF" => {
                for key in keys {
                    self.check_place(database, key, ledger);
                }
                reply.extend_from_slice(b"-WRONGTYPE these are strings\r\n");
            }
            b"XADD" => {
                let len = self.push_rolls(database, (&args[1], &args[4..]), ledger);
                write_bulk(reply, format!("{len}-0").as_bytes());
            }
            b"LRANGE" => self.write_rolls(database, &args[1], reply),
            b"XRANGE" => self.write_entries(database, &args[1], reply),
            b"SCAN" => self.write_keys(database, reply),
            b"FLUSHDB" => {
                self.databases.remove(&database);
                self.lists.retain(|(at, _), _| *at != database);
                self.on_flush(is_straggler, ledger);
                reply.extend_from_slice(b"+OK\r\n");
            }
            b"FLUSHALL" => {
                self.databases.clear();
                self.lists.clear();
                self.on_flush(is_straggler, ledger);
                reply.extend_from_slice(b"+OK\r\n");
            }
            _ => ledger.fail(|| format!("a server was sent {}", clip(name))),
        }
    }

    /// Executes a command whose reply is an integer, and returns that. Returns `None` for any other
    /// command.
    fn execute_counted(
        &mut self,
        database: u32,
        name: &[u8],
        args: &[Vec<u8>],
        is_straggler: bool,
        ledger: &mut Ledger,
    ) -> Option<i64> {
        let keys = &args[1..];
        Some(match name {
            b"INCR" => self.increment(database, &args[1], is_straggler, ledger),
            b"EXISTS" | b"TOUCH" => self.count(database, keys, ledger),
            b"DEL" | b"UNLINK" => self.remove(database, keys, is_straggler, ledger),
            b"RPUSH" if args[1].starts_with(b"r") => {
                self.push_rolls(database, (&args[1], &args[2..]), ledger) as i64
            }
            b"RPUSH" if args.len() == 3 => self.push(database, (&args[1], &args[2]), ledger) as i64,
            b"LLEN" => self.list_len(database, &args[1]) as i64,
            _ => return None,
        })
    }

    /// Adds one to a counter and returns what it is then.
    fn increment(
        &mut self,
        database: u32,
        key: &[u8],
        is_straggler: bool,
        ledger: &mut Ledger,
    ) -> i64 {
        self.check_place(database, key, ledger);
        let data = self.databases.entry(database).or_default();
        let entry = data.entry(key.to_vec()).or_insert_with(|| b"0".to_vec());
        let count: i64 = String::from_utf8_lossy(entry).parse().expect("a counter is a number");
        *entry = (count + 1).to_string().into_bytes();
        if is_straggler {
            ledger.on_straggler(key);
        }
        self.touch(database, key);
        count + 1
    }

    /// Returns the number of `keys` that exist.
    fn count(&mut self, database: u32, keys: &[Vec<u8>], ledger: &mut Ledger) -> i64 {
        let mut count = 0;
        for key in keys {
            self.check_place(database, key, ledger);
            let data = self.databases.entry(database).or_default();
            count += i64::from(data.contains_key(key));
        }
        count
    }

    /// Removes keys and returns the number of those that existed.
    fn remove(
        &mut self,
        database: u32,
        keys: &[Vec<u8>],
        is_straggler: bool,
        ledger: &mut Ledger,
    ) -> i64 {
        let mut count = 0;
        for key in keys {
            self.check_place(database, key, ledger);
            let data = self.databases.entry(database).or_default();
            count += i64::from(data.remove(key).is_some());
            self.touch(database, key);
            if is_straggler {
                ledger.on_straggler(key);
            }
        }
        count
    }

    /// Tells clients and the ledger that a database, or all, was emptied.
    fn on_flush(&mut self, is_straggler: bool, ledger: &mut Ledger) {
        self.touch_all();
        self.tell_of_everything();
        ledger.on_flush(self.pool, self.index, is_straggler);
    }

    pub(super) fn set(
        &mut self,
        database: u32,
        key: &[u8],
        bytes: &[u8],
        is_straggler: bool,
        ledger: &mut Ledger,
    ) {
        self.check_place(database, key, ledger);
        self.touch(database, key);
        if is_shared_counter(key) {
            return self.raise_shared(database, key, bytes, ledger);
        }
        match value::check(key, bytes) {
            Ok(write) => {
                ledger.on_executed(self.pool, write, key, is_straggler);
                ledger.on_copy_executed((self.pool, self.index), key, write);
                if self.defect == Some(Defect::DoubledWrite) && self.served >= self.defect_after {
                    ledger.on_executed(self.pool, write, key, is_straggler);
                }
            }
            Err(fault) => ledger.fail(|| format!("a server was told to store: {fault}")),
        }
        let data = self.databases.entry(database).or_default();
        if let Some(old) = data.get(key) {
            self.older.insert(key.to_vec(), old.clone());
        }
        if self.defect == Some(Defect::ForgottenWrite) && self.served >= self.defect_after {
            self.defect = None;
            return;
        }
        data.insert(key.to_vec(), bytes.to_vec());
    }

    fn get(&mut self, database: u32, key: &[u8], ledger: &mut Ledger, reply: &mut Vec<u8>) {
        self.check_place(database, key, ledger);
        let data = self.databases.entry(database).or_default();
        let is_due = self.served >= self.defect_after;
        let mut found = data.get(key);
        match self.defect {
            Some(Defect::WrongValue) if is_due => {
                if let Some((_, other)) = data.iter().find(|(name, _)| *name != key) {
                    found = Some(other);
                    self.defect = None;
                }
            }
            Some(Defect::OldValue) if is_due && self.older.contains_key(key) => {
                found = self.older.get(key);
                self.defect = None;
            }
            _ => {}
        }
        match found {
            Some(bytes) => write_bulk(reply, bytes),
            None => reply.extend_from_slice(b"$-1\r\n"),
        }
    }

    /// Checks that a shared counter is raised by one from what its client has read while it was
    /// watched. No other change may have come in between.
    fn raise_shared(&mut self, database: u32, key: &[u8], bytes: &[u8], ledger: &mut Ledger) {
        let data = self.databases.entry(database).or_default();
        let before = data.insert(key.to_vec(), bytes.to_vec());
        let number = |bytes: &[u8]| String::from_utf8_lossy(bytes).parse::<i64>().unwrap_or(-1);
        let (before, after) = (before.map_or(0, |bytes| number(&bytes)), number(bytes));
        // A watch does not guard a key that moves between servers.
        let is_static = ledger.pools[self.pool].as_ref().is_some_and(|known| known.is_static);
        let is_known = is_static && !ledger.was_disputed(key);
        if is_known && after != before + 1 {
            ledger.fail(|| format!("lost update: {} goes from {before} to {after}", clip(key)));
        }
    }
}

fn is_shared_counter(key: &[u8]) -> bool {
    key.starts_with(b"w")
}
