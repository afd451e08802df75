//! Values that clients cache: who changed them when, and who should know.

use super::*;
use crate::network::SECOND;

/// How long a change may stay unknown to who has cached the value, while
/// nothing is wrong.
const UNTOLD_MAX: Nanos = SECOND * 3 / 10;

/// A value as a client has it.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// The write it came from; `None`: there was none.
    pub write: Option<u64>,
    /// When it was read.
    pub read_at: Nanos,
}

/// A change of a value that may be cached.
pub(super) struct CopyChange {
    write: u64,
    client: usize,
    asked_at: Nanos,
    /// Which server did it, when, and after how many others.
    executed: Option<(usize, Nanos, u64)>,
    acknowledged_at: Option<Nanos>,
}

/// By pool and key.
pub(super) type Copies = BTreeMap<(usize, Vec<u8>), Vec<CopyChange>>;

impl Ledger {
    fn copy_change(&mut self, pool: usize, key: &[u8], write: u64) -> Option<&mut CopyChange> {
        let changes = self.copies.get_mut(&(pool, key.to_vec()))?;
        changes.iter_mut().find(|change| change.write == write)
    }

    /// A client asks for a change.
    pub fn on_copy_asked(
        &mut self,
        pool: usize,
        key: &[u8],
        write: u64,
        (client, asked_at): (usize, Nanos),
    ) {
        let executed = None;
        let change = CopyChange { write, client, asked_at, executed, acknowledged_at: None };
        self.copies.entry((pool, key.to_vec())).or_default().push(change);
    }

    /// A server made the change.
    pub fn on_copy_executed(&mut self, (pool, server): (usize, usize), key: &[u8], write: u64) {
        self.copies_executed += 1;
        let executed = Some((server, self.now, self.copies_executed));
        if let Some(change) = self.copy_change(pool, key, write) {
            change.executed = executed;
        }
    }

    /// A client was told that its change was made.
    pub fn on_copy_acknowledged(&mut self, pool: usize, key: &[u8], write: u64, now: Nanos) {
        if let Some(change) = self.copy_change(pool, key, write) {
            change.acknowledged_at = Some(now);
        }
    }

    /// Whether a value is one that was written to this key.
    pub fn is_copy(&self, pool: usize, key: &[u8], write: u64) -> bool {
        let changes = self.copies.get(&(pool, key.to_vec()));
        changes.is_some_and(|changes| changes.iter().any(|change| change.write == write))
    }

    /// Checks that a value that a client still has at `until`, but for what it
    /// may not know yet, was not changed by others than `own`.
    ///
    /// # Errors
    /// Which change it should know of.
    pub fn check_copy(
        &self,
        pool: usize,
        key: &[u8],
        copy: &Copy,
        own: Option<usize>,
        until: Nanos,
    ) -> Result<(), String> {
        let Some(changes) = self.copies.get(&(pool, key.to_vec())) else { return Ok(()) };
        let order = changes.iter().find(|change| Some(change.write) == copy.write);
        let order = order.and_then(|change| change.executed).map(|(.., order)| order);
        let is_static = self.pools[pool].as_ref().is_some_and(|known| known.is_static);
        let is_later = |change: &CopyChange| {
            let is_after = is_static
                && order.is_some_and(|order| change.executed.is_some_and(|(.., at)| at > order));
            Some(change.write) != copy.write && (is_after || change.asked_at > copy.read_at)
        };
        let since = until.saturating_sub(UNTOLD_MAX);
        for change in changes.iter().filter(|change| Some(change.client) != own && is_later(change))
        {
            let at = change.executed.map(|(_, at, _)| at).or(change.acknowledged_at);
            let is_due = at.is_some_and(|at| at < since);
            // Only who made the change can be late to tell of it: where keys
            // live elsewhere than when they were read, it is told at once.
            let server: Vec<_> = change.executed.iter().map(|&(server, ..)| server).collect();
            if is_due && !self.is_excused(&server, since, until) {
                let write = change.write;
                return Err(format!(
                    "nobody told of write {write} to {}, which it caches as of {:?}",
                    clip(key),
                    copy.write
                ));
            }
        }
        Ok(())
    }
}
