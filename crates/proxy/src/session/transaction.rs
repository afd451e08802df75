//! Commands that wait for `EXEC`, and the limit on the bytes of all clients' transactions.

use crate::Digest;
use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest number of commands of one transaction. With preceding `MULTI` and `CLIENT CACHING`,
/// their replies can still be counted in 16 bits.
pub(crate) const QUEUED_MAX: u16 = u16::MAX - 2;

/// Number of bytes that a transaction takes at first. More would waste memory for the many short
/// ones. With less, they would have to grow more than once.
const ROOM_MIN: usize = 512;

/// The limit on the bytes of the transactions of all clients, with what they watch and wait for on
/// the embedded store. All workers share it. It is touched when a transaction needs more memory,
/// and not for each command.
#[derive(Debug)]
pub struct QueueBudget {
    len_max: AtomicU64,
    taken: AtomicU64,
    refused: AtomicU64,
}

/// Why a command is not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFault {
    /// This transaction has too many commands or bytes.
    TooLong,
    /// The transactions of all clients together have too many bytes.
    NoBudget,
}

/// A share of the budget. It is returned when it is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<QueueBudget>,
    len: u64,
}

/// Commands that wait for `EXEC`. They are held here and sent together, so that an open transaction
/// holds no connection.
#[derive(Debug)]
pub struct Transaction {
    requests: Vec<u8>,
    queued: u16,
    /// The home of its keys, as in [`crate::Watch`], and the ring by which it was found.
    settled_on: Option<(u16, u64)>,
    /// Scripts it calls by their digests, each once.
    scripts: Vec<Digest>,
    /// True if it calls functions.
    pub calls_functions: bool,
    /// True if a command was refused, so that `EXEC` will be as well.
    is_refused: bool,
    share: Share,
}

impl QueueBudget {
    /// Creates a budget of `len_max` bytes.
    pub fn new(len_max: u64) -> Self {
        Self {
            len_max: AtomicU64::new(len_max),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Returns its size in bytes.
    pub fn len_max(&self) -> u64 {
        self.len_max.load(Ordering::Relaxed)
    }

    /// Sets its size. Clients that already have more keep it.
    pub fn set_len_max(&self, len_max: u64) {
        self.len_max.store(len_max, Ordering::Relaxed);
    }

    /// Returns the bytes that are taken now.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns the number of commands that were refused because of the budget, since the start.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    #[cold]
    fn note_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn take(&self, len: u64) -> bool {
        let fits = |taken: u64| taken.checked_add(len).filter(|sum| *sum <= self.len_max());
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

impl Share {
    /// Creates an empty share of `budget`.
    pub fn new(budget: &Arc<QueueBudget>) -> Self {
        Self { budget: Arc::clone(budget), len: 0 }
    }

    /// Takes `len` more bytes for a command. Returns whether there are as many. If not, the command
    /// counts as refused.
    pub fn grow(&mut self, len: usize) -> bool {
        let has_room = self.try_grow(len);
        if !has_room {
            self.budget.note_refusal();
        }
        has_room
    }

    fn try_grow(&mut self, len: usize) -> bool {
        let has_room = self.budget.take(len as u64);
        if has_room {
            self.len += len as u64;
        }
        has_room
    }

    fn give_back(&mut self) {
        self.budget.taken.fetch_sub(std::mem::take(&mut self.len), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Transaction {
    /// Creates an empty transaction. Its commands will be counted against `budget`.
    pub fn new(budget: &Arc<QueueBudget>) -> Self {
        Self {
            requests: Vec::new(),
            queued: 0,
            settled_on: None,
            scripts: Vec::new(),
            calls_functions: false,
            is_refused: false,
            share: Share::new(budget),
        }
    }

    /// Adds a command in its wire form, with the script that it calls by its digest. A transaction
    /// that was already refused keeps nothing.
    ///
    /// # Errors
    /// Returns an error if there is no room within `len_max` bytes, or within the budget.
    pub fn queue(
        &mut self,
        frame: &[u8],
        script: Option<Digest>,
        len_max: usize,
    ) -> Result<(), QueueFault> {
        if self.is_refused {
            return Ok(());
        }
        let len = self.requests.len() + frame.len();
        if self.queued >= QUEUED_MAX || len > len_max {
            return Err(QueueFault::TooLong);
        }
        let script = script.filter(|script| !self.scripts.contains(script));
        // The capacity of the list doubles, so each may take twice its size.
        let script_len = 2 * size_of::<Digest>() * usize::from(script.is_some());
        if !self.make_room(len, len_max, script_len) {
            return Err(QueueFault::NoBudget);
        }
        self.requests.extend_from_slice(frame);
        self.scripts.extend(script);
        self.queued += 1;
        Ok(())
    }

    /// Reserves memory for `len` bytes of requests, and takes `more` for what belongs to them.
    /// Returns whether the budget allows it.
    fn make_room(&mut self, len: usize, len_max: usize, more: usize) -> bool {
        let held = self.requests.capacity();
        if len <= held {
            return more == 0 || self.share.grow(more);
        }
        // With doubling, bytes are rarely moved. If that is not available, it grows by an eighth.
        for wanted in [(2 * held).max(ROOM_MIN), len + len / 8] {
            let room = wanted.min(len_max).max(len);
            if self.share.try_grow(room - held + more) {
                self.requests.reserve_exact(room - self.requests.len());
                return true;
            }
        }
        self.share.budget.note_refusal();
        false
    }

    /// Notes that a command was refused. Nothing will be executed, so nothing is kept.
    pub fn refuse(&mut self) {
        self.is_refused = true;
        self.requests = Vec::new();
        self.scripts = Vec::new();
        self.share.give_back();
    }

    /// Returns whether a command was refused, so that `EXEC` will be as well.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Returns the home of its keys, once a key has come: their server, or slot.
    pub fn home(&self) -> Option<u16> {
        self.settled_on.map(|(server, _)| server)
    }

    /// Returns whether its keys may live elsewhere by now: another ring is in use.
    pub fn is_outdated(&self, ring: u64) -> bool {
        self.settled_on.is_some_and(|(_, settled)| settled != ring)
    }

    /// Takes a command whose keys are on `server`, as `ring` says. Returns
    /// whether those of the others are there as well.
    pub fn settle_on(&mut self, server: u16, ring: u64) -> bool {
        self.settled_on.get_or_insert((server, ring)).0 == server
    }

    /// Returns the commands in their wire form.
    pub fn requests(&self) -> &[u8] {
        &self.requests
    }

    /// Returns the scripts that they call by their digests, each once.
    pub fn scripts(&self) -> &[Digest] {
        &self.scripts
    }

    /// Returns the number of commands.
    pub fn queued(&self) -> u16 {
        self.queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(len_max: u64) -> (Transaction, Arc<QueueBudget>) {
        let budget = Arc::new(QueueBudget::new(len_max));
        (Transaction::new(&budget), budget)
    }

    #[test]
    fn a_transaction_stays_on_the_server_of_its_first_key() {
        let (mut transaction, _) = open(0);
        assert_eq!(transaction.home(), None);
        assert!(transaction.settle_on(3, 1) && transaction.settle_on(3, 2));
        assert!(!transaction.settle_on(4, 1));
        assert_eq!(transaction.home(), Some(3));
        assert!(transaction.is_outdated(2) && !transaction.is_outdated(1));
    }

    #[test]
    fn a_transaction_is_bounded_in_bytes_and_commands() {
        let (mut transaction, _) = open(1 << 20);
        assert_eq!(transaction.queue(b"12345", None, 8), Ok(()));
        assert_eq!(transaction.queue(b"6789", None, 8), Err(QueueFault::TooLong));
        assert_eq!((transaction.requests(), transaction.queued()), (&b"12345"[..], 1));
        while transaction.queue(b"", None, 8).is_ok() {}
        assert_eq!(transaction.queued(), QUEUED_MAX);
    }

    #[test]
    fn what_transactions_hold_is_what_they_have_taken() {
        let (mut first, budget) = open(1 << 20);
        let mut second = Transaction::new(&budget);
        for nth in 0..2_000_u32 {
            let script = Digest::of(&nth.to_le_bytes());
            for transaction in [&mut first, &mut second] {
                for _ in 0..2 {
                    transaction.queue(&[b'x'; 40], Some(script), 1 << 20).unwrap();
                }
            }
            let held = |it: &Transaction| {
                it.requests.capacity() + it.scripts.capacity() * size_of::<Digest>()
            };
            // A list of a few scripts has room for four.
            let held = (held(&first) + held(&second)) as u64;
            assert!(held <= budget.taken() + 2 * 4 * 20, "{held} of {}", budget.taken());
        }
        drop(first);
        assert!(budget.taken() > 2_000 * 80);
        drop(second);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn clients_share_one_budget_and_what_is_refused_gives_its_share_back() {
        let (mut first, budget) = open(1000);
        let mut second = Transaction::new(&budget);
        assert_eq!(first.queue(&[b'x'; 700], None, 800), Ok(()));
        assert_eq!(second.queue(&[b'x'; 400], None, 800), Err(QueueFault::NoBudget));
        assert_eq!((second.queued(), budget.taken()), (0, 700));
        first.refuse();
        assert_eq!((budget.taken(), first.requests()), (0, &b""[..]));
        assert_eq!(first.queue(&[b'x'; 700], None, 800), Ok(()), "what it does not keep");
        assert_eq!(budget.taken(), 0);
        assert_eq!(second.queue(&[b'x'; 400], None, 800), Ok(()));
    }

    #[test]
    fn a_transaction_takes_frames_up_to_its_bound_and_each_script_once() {
        let (mut transaction, _) = open(1 << 20);
        let scripts = [b"a", b"b"].map(|text| Digest::of(text));
        for script in [scripts[0], scripts[1], scripts[0]] {
            assert_eq!(transaction.queue(b"1234", Some(script), 12), Ok(()));
        }
        assert_eq!(transaction.queue(b"5", None, 12), Err(QueueFault::TooLong));
        assert_eq!((transaction.scripts(), transaction.queued()), (&scripts[..], 3));
        assert!(!transaction.is_refused());
        transaction.refuse();
        assert!(transaction.is_refused() && transaction.scripts().is_empty());
    }

    #[test]
    fn nearly_all_of_a_budget_can_be_used_and_room_grows_in_few_steps() {
        let (mut transaction, budget) = open(100_000);
        let mut steps = Vec::new();
        while transaction.queue(&[b'x'; 50], None, 1 << 20).is_ok() {
            if steps.last() != Some(&budget.taken()) {
                steps.push(budget.taken());
            }
        }
        assert!(transaction.requests().len() >= 100_000 / 9 * 8, "{steps:?}");
        // It doubles while there is enough, and then grows by an eighth.
        assert!(steps.len() < 16, "{steps:?}");
        let doubled = steps.windows(2).take_while(|pair| pair[1] == 2 * pair[0]).count();
        assert!(doubled >= 5, "{steps:?}");
    }
}
