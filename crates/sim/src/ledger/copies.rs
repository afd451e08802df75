//! Values that clients cache: which client changed them and when, and which clients must be told.

use super::*;
use crate::network::SECOND;

/// How long a client that has cached the value may not know of a change, while nothing is wrong.
const UNTOLD_MAX: Nanos = SECOND * 3 / 10;

/// A client's copy of a value.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// The write that it came from. `None`: the key did not exist.
    pub write: Option<u64>,
    /// When it was read.
    pub read_at: Nanos,
}

/// A change of a value that may be cached.
pub(super) struct CopyChange {
    write: u64,
    client: usize,
    asked_at: Nanos,
    /// The server that made it, when, and how many others were made before.
    executed: Option<(usize, Nanos, u64)>,
    acknowledged_at: Option<Nanos>,
}

/// Changes by pool and key.
pub(super) type Copies = BTreeMap<(usize, Vec<u8>), Vec<CopyChange>>;

impl Ledger {
    fn copy_change(&mut self, pool: usize, key: &[u8], write: u64) -> Option<&mut CopyChange> {
        let changes = self.copies.get_mut(&(pool, key.to_vec()))?;
        changes.iter_mut().find(|change| change.write == write)
    }

    /// Notes that a client asks for a change.
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

    /// Notes that a server made the change.
    pub fn on_copy_executed(&mut self, (pool, server): (usize, usize), key: &[u8], write: u64) {
        self.copies_executed += 1;
        let executed = Some((server, self.now, self.copies_executed));
        if let Some(change) = self.copy_change(pool, key, write) {
            change.executed = executed;
        }
    }

    /// Notes that a client was told that its change was made.
    pub fn on_copy_acknowledged(&mut self, pool: usize, key: &[u8], write: u64, now: Nanos) {
        if let Some(change) = self.copy_change(pool, key, write) {
            change.acknowledged_at = Some(now);
        }
    }

    /// Returns whether a value is one that was written to this key.
    pub fn is_copy(&self, pool: usize, key: &[u8], write: u64) -> bool {
        let changes = self.copies.get(&(pool, key.to_vec()));
        changes.is_some_and(|changes| changes.iter().any(|change| change.write == write))
    }

    /// Checks that only `own` has changed a value that a client still holds at `until`, apart from
    /// changes of which it may not know yet.
    ///
    /// # Errors
    /// Returns the change of which it should know.
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
            // Only the server that made the change can report it late. If the keys have moved since
            // they were read, this is reported at once.
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
