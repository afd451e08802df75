//! A lane: units of some threads that wait to be merged.

use super::account::Account;
use super::unit::{Unit, write_command};
use keyway_memory::{Guard, Lock};

/// Bytes of buffers that a lane keeps once they are merged.
const KEPT_LEN: usize = 64 << 10;
/// Smallest buffer.
const LEN_MIN: usize = 1 << 10;

/// Bytes of idle buffers that are kept at present.
fn kept_len(account: &Account) -> usize {
    if account.is_short() { 0 } else { KEPT_LEN }
}

/// The head of a unit: everything about it but its bytes.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) ticket: u64,
    len: usize,
    /// The database of its first command, and that of its last.
    pub(super) first: u32,
    pub(super) last: u32,
    /// True if it has several commands.
    pub(super) is_many: bool,
}

impl Head {
    pub(super) fn new(ticket: u64, unit: &Unit) -> Self {
        let (first, last) = unit.databases();
        Self { ticket, len: unit.bytes().len(), first, last, is_many: unit.len() > 1 }
    }
}

/// Units in the order of their tickets.
#[derive(Default)]
pub(super) struct Units {
    bytes: Vec<u8>,
    heads: Vec<Head>,
}

impl Units {
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.heads.capacity() * size_of::<Head>()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that buffers grow by for a unit of so many bytes.
    pub(super) fn growth(&self, len: usize) -> usize {
        let missing = (self.bytes.len() + len).saturating_sub(self.bytes.capacity());
        let of_bytes =
            if missing > 0 { missing.max(self.bytes.capacity()).max(LEN_MIN) } else { 0 };
        let is_full = self.heads.len() == self.heads.capacity();
        let of_heads = if is_full { self.heads.capacity().max(16) * size_of::<Head>() } else { 0 };
        of_bytes + of_heads
    }

    pub(super) fn push(&mut self, head: Head, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.heads.push(head);
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds one command of a database. `len` bytes were said to be what it takes at most.
    pub(super) fn push_command(&mut self, ticket: u64, database: u32, words: &[&[u8]], len: usize) {
        self.reserve(len);
        let start = self.bytes.len();
        write_command(words, &mut self.bytes);
        let len = self.bytes.len() - start;
        self.heads.push(Head { ticket, len, first: database, last: database, is_many: false });
    }

    fn reserve(&mut self, len: usize) {
        let missing = (self.bytes.len() + len).saturating_sub(self.bytes.capacity());
        if missing > 0 {
            let more = missing.max(self.bytes.capacity()).max(LEN_MIN);
            let free = self.bytes.capacity() - self.bytes.len();
            self.bytes.reserve_exact(free + more);
        }
        if self.heads.len() == self.heads.capacity() {
            self.heads.reserve_exact(self.heads.capacity().max(16));
        }
    }

    pub(super) fn free(&mut self, account: &Account) {
        account.give(self.capacity());
        *self = Self::default();
    }
}

/// A lane, which is locked for the copy of one unit.
#[derive(Default)]
pub(super) struct Lane(LaneLock);

struct LaneLock(Lock<Units>);

impl Default for LaneLock {
    fn default() -> Self {
        Self(Lock::new(Units::default()))
    }
}

impl Lane {
    pub(super) fn lock(&self) -> Guard<'_, Units> {
        self.0.0.lock()
    }
}

/// Units of a lane that are being merged.
#[derive(Default)]
pub(super) struct Staged {
    units: Units,
    /// Units that are merged, and their bytes.
    heads_done: usize,
    bytes_done: usize,
}

impl Staged {
    pub(super) fn free(&mut self, account: &Account) {
        self.units.free(account);
    }

    /// Takes all units of a lane, which gets the buffers of those that are merged. Frees the
    /// buffers of an empty lane if they are long, or memory is short.
    pub(super) fn take_from(&mut self, lane: &mut Units, account: &Account) {
        self.release(account);
        if lane.heads.is_empty() {
            if lane.capacity() > kept_len(account) {
                lane.free(account);
            }
            return;
        }
        if self.next().is_none() {
            return std::mem::swap(&mut self.units, lane);
        }
        self.forget_merged();
        let (mut at, before) = (0, self.units.capacity());
        for head in lane.heads.drain(..) {
            self.units.push(head, &lane.bytes[at..at + head.len]);
            at += head.len;
        }
        lane.bytes.clear();
        account.change(before, self.units.capacity());
    }

    /// Empties the buffers if all units are merged, and frees them if they are long, or memory
    /// is short.
    pub(super) fn release(&mut self, account: &Account) {
        if self.next().is_some() {
            return;
        }
        self.units.bytes.clear();
        self.units.heads.clear();
        (self.heads_done, self.bytes_done) = (0, 0);
        if self.units.capacity() > kept_len(account) {
            self.units.free(account);
        }
    }

    /// Moves the units that are not merged to the front once they are the smaller part.
    fn forget_merged(&mut self) {
        if self.bytes_done > self.units.bytes.len() / 2 {
            self.units.bytes.drain(..self.bytes_done);
            self.units.heads.drain(..self.heads_done);
            (self.heads_done, self.bytes_done) = (0, 0);
        }
    }

    /// The first unit that is not merged.
    pub(super) fn next(&self) -> Option<(Head, &[u8])> {
        let head = *self.units.heads.get(self.heads_done)?;
        Some((head, &self.units.bytes[self.bytes_done..self.bytes_done + head.len]))
    }

    /// Goes on to the next unit.
    pub(super) fn advance(&mut self) {
        if let Some(head) = self.units.heads.get(self.heads_done) {
            self.bytes_done += head.len;
            self.heads_done += 1;
        }
    }
}
