//! The table of waiting clients, by key: see `requests/waiting.rs`.
//!
//! A client that takes elements waits in one lane, a reader of streams in another, and a reader of
//! streams in a group in a third. A change of a key serves one lane only. An element serves one
//! waiter. An entry of a stream serves all readers, and one reader of each group.

use super::mortal::Mortal;
use keyway_base::ByteRange;
use keyway_command::{Args, Command, Counted, Flags, Request, Verb};
use keyway_memory::Lock;
use keyway_resp::{Protocol, reply};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Parts of the table, each with its own lock. Fewer let workers wait for each
/// other.
const STRIPES: usize = 64;

/// The time that a command may wait, in milliseconds. 0: without a limit.
pub type Patience = u64;

/// A command that waits.
pub struct Waiter {
    /// The client.
    pub who: Who,
    /// When it came, among all.
    pub(crate) ticket: u64,
    pub(crate) database: u32,
    pub(crate) protocol: Protocol,
    pub(crate) command: &'static Command,
    pub(crate) lane: Lane,
    /// The group it reads for.
    pub(crate) group: Option<Box<[u8]>>,
    pub(crate) frame: Box<[u8]>,
    pub(crate) ranges: Box<[ByteRange]>,
    /// The keys that it waits for.
    pub(crate) keys: Box<[Box<[u8]>]>,
    /// True if it is served or cancelled. Held while it is being served.
    pub(crate) is_over: Lock<bool>,
}

/// A client that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// Its id.
    pub client: u64,
    /// Its worker.
    pub worker: u16,
    /// It is told nothing of the keys that it changes itself.
    pub is_noloop: bool,
}

/// The kind of thing that a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Elements, each of which is taken by one waiter.
    Elements,
    /// Entries of streams, which all who wait get.
    Entries,
    /// Entries for a group, or the end of it.
    Group,
}

impl Lane {
    pub(crate) const ALL: [Self; 3] = [Self::Elements, Self::Entries, Self::Group];
}

/// The position of a waiter among those of a key: the database, the lane and the ticket.
type QueuePosition = (u32, Lane, u64);

/// By key: who waits.
type Stripe = BTreeMap<Box<[u8]>, BTreeMap<QueuePosition, Arc<Waiter>>>;

pub(crate) struct Waiters {
    stripes: Box<[Lock<Stripe>]>,
    pub(crate) next_ticket: AtomicU64,
    /// Streams that are read for groups and may expire.
    pub(crate) mortal: Mortal,
}

impl Waiter {
    pub(crate) fn with_request<R>(&self, work: impl FnOnce(&Request<'_>) -> R) -> R {
        let args = Args::new(&self.frame, &self.ranges);
        work(&Request { command: self.command, args })
    }

    fn position(&self) -> QueuePosition {
        (self.database, self.lane, self.ticket)
    }

    /// The words of its request. What it reads of a stream's end is named by an id.
    pub fn words(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.ranges.iter().map(|range| range.of(&self.frame))
    }

    /// Returns whether it waits for keys, and not for the end of a snapshot.
    pub fn is_for_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Returns whether it waits for replicas, by WAIT.
    pub fn is_for_replicas(&self) -> bool {
        self.command.verb == Verb::Wait
    }

    /// Its place among all that wait: those with a lower one came earlier.
    pub fn place(&self) -> u64 {
        self.ticket
    }

    /// The class and the command that metrics count it under.
    pub fn counted(&self) -> Counted {
        self.command.counted()
    }

    /// The flags of the command.
    pub(crate) fn flags(&self) -> Flags {
        self.command.flags
    }

    /// Appends the reply for a command whose time is up.
    pub fn write_timeout(&self, out: &mut Vec<u8>) {
        if self.command.verb == Verb::Save {
            return reply::error(out, "ERR the snapshot goes on; LASTSAVE tells when it has ended");
        }
        match self.command.verb {
            Verb::Wait => reply::integer(out, 0),
            _ => self.protocol.null_array(out),
        }
    }
}

impl Waiters {
    pub(crate) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Lock::new(Stripe::new())).collect();
        Self { stripes, next_ticket: AtomicU64::new(1), mortal: Mortal::new() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.stripes.len() * size_of::<Lock<Stripe>>()
    }

    fn stripe(&self, key: &[u8]) -> &Lock<Stripe> {
        let sum = key.iter().fold(key.len(), |sum, byte| sum.wrapping_mul(31) + usize::from(*byte));
        &self.stripes[sum % self.stripes.len()]
    }

    /// All who wait, each once or more.
    pub(crate) fn all(&self) -> Vec<Arc<Waiter>> {
        let mut all = Vec::new();
        for stripe in &self.stripes {
            let stripe = stripe.lock();
            all.extend(stripe.values().flat_map(BTreeMap::values).map(Arc::clone));
        }
        all
    }

    /// Returns whether anybody waits for a key.
    pub(crate) fn has(&self, database: u32, key: &[u8]) -> bool {
        Lane::ALL.into_iter().any(|lane| self.has_in(database, lane, key))
    }

    /// Returns whether anybody waits for a key in a lane.
    pub(crate) fn has_in(&self, database: u32, lane: Lane, key: &[u8]) -> bool {
        self.next((database, lane, 0), key).is_some()
    }

    /// Returns whether anybody waits for a key as part of a group.
    pub(crate) fn has_of_group(&self, database: u32, key: &[u8], group: &[u8]) -> bool {
        let stripe = self.stripe(key).lock();
        let Some(waiters) = stripe.get(key) else { return false };
        let (from, to) = ((database, Lane::Group, 0), (database, Lane::Group, u64::MAX));
        waiters.range(from..=to).any(|(_, waiter)| waiter.group.as_deref() == Some(group))
    }

    /// Returns the first waiter for a key at a position, or at a later one of its lane.
    pub(crate) fn next(&self, from: QueuePosition, key: &[u8]) -> Option<Arc<Waiter>> {
        let stripe = self.stripe(key).lock();
        let waiters = stripe.get(key)?;
        let mut waiters = waiters.range(from..=(from.0, from.1, u64::MAX));
        waiters.next().map(|(_, waiter)| Arc::clone(waiter))
    }

    pub(crate) fn enter(&self, waiter: &Arc<Waiter>) {
        for key in &waiter.keys {
            let mut stripe = self.stripe(key).lock();
            stripe.entry(key.clone()).or_default().insert(waiter.position(), Arc::clone(waiter));
            if waiter.lane == Lane::Group {
                self.mortal.set(waiter.database, key, Some(0));
            }
        }
    }

    /// Sees to it that who reads a key for a group hears of its end: it is to be
    /// looked at `due`, in milliseconds since the Unix epoch.
    pub(crate) fn expect_end(&self, database: u32, key: &[u8], due: Option<u64>) {
        let stripe = self.stripe(key).lock();
        if stripe.get(key).is_some_and(|waiters| has_group(waiters, database)) {
            self.mortal.set(database, key, due);
        }
    }

    /// Notes that a key may have got another expiry. Its shard is locked.
    pub(crate) fn note_expiry(&self, database: u32, key: &[u8]) {
        if self.has_in(database, Lane::Group, key) {
            self.expect_end(database, key, Some(0));
        }
    }

    pub(crate) fn remove(&self, waiter: &Waiter) {
        for key in &waiter.keys {
            let mut stripe = self.stripe(key).lock();
            let Some(waiters) = stripe.get_mut(key) else { continue };
            waiters.remove(&waiter.position());
            if waiter.lane == Lane::Group && !has_group(waiters, waiter.database) {
                self.mortal.set(waiter.database, key, None);
            }
            if waiters.is_empty() {
                stripe.remove(key);
            }
        }
    }

    /// Keys of a database that somebody waits for.
    pub(crate) fn keys_of(&self, database: u32) -> Vec<Box<[u8]>> {
        let mut keys = Vec::new();
        for stripe in &self.stripes {
            let stripe = stripe.lock();
            let is_there = |waiters: &BTreeMap<QueuePosition, Arc<Waiter>>| {
                let (from, to) = (Lane::Elements, Lane::Group);
                waiters.range((database, from, 0)..=(database, to, u64::MAX)).next().is_some()
            };
            keys.extend(
                stripe.iter().filter(|(_, them)| is_there(them)).map(|(key, _)| key.clone()),
            );
        }
        keys
    }
}

/// Returns whether any of them reads a key of this database for a group.
fn has_group(waiters: &BTreeMap<QueuePosition, Arc<Waiter>>, database: u32) -> bool {
    let (from, to) = ((database, Lane::Group, 0), (database, Lane::Group, u64::MAX));
    waiters.range(from..=to).next().is_some()
}
