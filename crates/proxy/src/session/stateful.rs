//! What a client has begun on its connection and not ended: a transaction, a
//! watch, a command that blocks.

use crate::Digest;
use std::mem::size_of;

/// Position of a private link in its worker.
pub type PrivateLink = usize;

/// Most commands of one transaction: with `MULTI` and `CLIENT CACHING` before
/// them, their replies are still counted in 16 bits.
pub(crate) const QUEUED_MAX: u16 = u16::MAX - 2;

/// State that few sessions have, and those that have it not for long.
#[derive(Debug, Default)]
pub struct Stateful {
    /// Between `MULTI` and `EXEC`.
    pub transaction: Option<Transaction>,
    /// Between `WATCH` and the end of the transaction.
    pub watch: Option<Watch>,
    /// The private links on which a blocking command waits: one, or of WAIT one
    /// for each server that has not answered.
    pub blocked_on: Vec<PrivateLink>,
}

/// Keys watched on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Position of the server in its pool.
    pub server: u16,
    /// Which servers were in use then, by the number of their ring.
    pub ring: u64,
    /// The link that watches; `None` after its connection was lost, which
    /// counts as a change to the keys.
    pub link: Option<PrivateLink>,
}

/// Commands that wait for `EXEC`. They are held here and go out whole, so that
/// a transaction left open holds no connection.
#[derive(Debug, Default)]
pub struct Transaction {
    requests: Vec<u8>,
    queued: u16,
    /// The server of its keys, and the ring that said so.
    place: Option<(u16, u64)>,
    /// Scripts it calls by their digests, each once.
    pub scripts: Vec<Digest>,
    /// A command was refused: `EXEC` will be as well.
    pub is_refused: bool,
}

impl Stateful {
    /// Whether nothing is left of it.
    pub fn is_over(&self) -> bool {
        self.transaction.is_none() && self.watch.is_none() && self.blocked_on.is_empty()
    }

    /// Notes that a command of the transaction, if there is one, was refused.
    pub fn refuse(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.is_refused = true;
        }
    }
}

impl Transaction {
    /// Adds a command in its wire form. Returns whether there was room within
    /// `len_max` bytes.
    pub fn queue(&mut self, frame: &[u8], len_max: usize) -> bool {
        let has_room = self.queued < QUEUED_MAX && self.requests.len() + frame.len() <= len_max;
        if has_room {
            self.requests.extend_from_slice(frame);
            self.queued += 1;
        }
        has_room
    }

    /// The server its keys are on, once a key has come.
    pub fn server(&self) -> Option<u16> {
        self.place.map(|(server, _)| server)
    }

    /// Whether its keys may live elsewhere by now: another ring is in use.
    pub fn is_outdated(&self, ring: u64) -> bool {
        self.place.is_some_and(|(_, settled)| settled != ring)
    }

    /// Takes a command whose keys are on `server`, as `ring` says. Returns
    /// whether those of the others are there as well.
    pub fn settle_on(&mut self, server: u16, ring: u64) -> bool {
        self.place.get_or_insert((server, ring)).0 == server
    }

    /// Commands in their wire form.
    pub fn requests(&self) -> &[u8] {
        &self.requests
    }

    /// How many.
    pub fn queued(&self) -> u16 {
        self.queued
    }

    /// Bytes of memory held.
    pub fn capacity(&self) -> usize {
        let scripts = self.scripts.capacity() * size_of::<Digest>();
        self.requests.capacity() + scripts + size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_stays_on_the_server_of_its_first_key() {
        let mut transaction = Transaction::default();
        assert_eq!(transaction.server(), None);
        assert!(transaction.settle_on(3, 1) && transaction.settle_on(3, 2));
        assert!(!transaction.settle_on(4, 1));
        assert_eq!(transaction.server(), Some(3));
        assert!(transaction.is_outdated(2) && !transaction.is_outdated(1));
    }

    #[test]
    fn a_transaction_is_bounded_in_bytes_and_commands() {
        let mut transaction = Transaction::default();
        assert!(transaction.queue(b"12345", 8));
        assert!(!transaction.queue(b"6789", 8));
        assert_eq!((transaction.requests(), transaction.queued()), (&b"12345"[..], 1));
        while transaction.queue(b"", 8) {}
        assert_eq!(transaction.queued(), QUEUED_MAX);
    }
}
