//! The requests of a client that fills a store with a memory bound.

use super::*;

/// The kind of keys that have an expiry. The expiry is longer than any run.
pub(super) const EXPIRING: char = 'y';

impl Client {
    pub(super) fn ask_hoard(&mut self, now: Nanos, ledger: &mut Ledger) {
        match self.random.below(100) {
            0..62 => self.ask_hoarding(now, ledger),
            62..88 => self.ask_get(now, ledger),
            88..92 => self.ask_many(now, ledger, "EXISTS"),
            92..95 => self.ask_many(now, ledger, "DEL"),
            _ => self.ask_increment(now, ledger),
        }
    }

    fn ask_hoarding(&mut self, now: Nanos, ledger: &mut Ledger) {
        self.tags += 1;
        // The client takes keys one after the other, so that most are written.
        let key = match self.random.percent(80) {
            true => self.tags as usize % self.habits.keys,
            false => self.pick_key(),
        };
        let circumstances = self.circumstances(ledger, &[key]);
        let (write, bytes) = self.new_value(key, ledger);
        let name = self.name(key);
        match name.starts_with(&[EXPIRING as u8]) {
            true => write_request(&mut self.output, &[b"SET", &name, &bytes, b"EX", b"100000"]),
            false => write_request(&mut self.output, &[b"SET", &name, &bytes]),
        }
        self.expect(now, Ask::Set { key, write }, circumstances);
    }

    /// Returns the length of its next value. Most values are large, so that a store is filled soon.
    pub(super) fn hoarded_len(&mut self) -> usize {
        let longest = self.habits.value_len as u64;
        match self.random.below(20) {
            0 => self.random.scaled(1, longest) as usize,
            _ => self.random.between(longest / 8, longest) as usize,
        }
    }
}
