//! A counter of lookups of servers that a board does not have.

use crate::BackendId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts lookups of ids that a board does not have. Such an id belongs to another topology: some
/// code has kept it across a reload, which is a bug. The board still answers, so that the bug does
/// not end the process. The simulator checks this count. All boards of a process share it, also
/// those of later topologies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strangers(Arc<AtomicU64>);

impl Strangers {
    /// Returns the cell of a server. Each cell has the id of its server beside it, because an id of
    /// another topology may have the index of another server.
    #[inline]
    pub(crate) fn find<'c, T>(&self, cells: &'c [(BackendId, T)], id: BackendId) -> Option<&'c T> {
        match cells.get(id.index()) {
            Some((own, cell)) if *own == id => Some(cell),
            _ => {
                self.note();
                None
            }
        }
    }

    #[cold]
    fn note(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
