//! Questions about servers that a board does not have.

use crate::BackendId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts the questions about ids that a board does not have. Such an id belongs to another
/// topology: something has kept it across a reload, which is a fault. A board answers all the same,
/// so that the fault ends no process; the simulator looks at this count. All boards of a process
/// share it, those of later topologies as well.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strangers(Arc<AtomicU64>);

impl Strangers {
    /// The cell of a server, of those of a board. Each has the id of its server beside it: an id
    /// of another topology may name the place of another server.
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
