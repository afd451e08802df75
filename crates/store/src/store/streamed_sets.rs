use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Streamed SETs that a store has at a time. The value of a further one is kept elsewhere until it
/// is whole. More take address space that nobody may ever fill.
const STREAMED_SETS_MAX: usize = 64;

/// Streamed SETs of a store, and how many bytes they have announced.
#[derive(Default)]
pub(crate) struct StreamedSets {
    count: AtomicUsize,
    announced: AtomicU64,
}

impl StreamedSets {
    /// Counts another streamed SET, if one more may begin. Returns the bytes that all of them have
    /// announced.
    pub(super) fn admit(&self, len: usize, announced_max: u64) -> Option<u64> {
        let announced = self.announced.fetch_add(len as u64, Ordering::Relaxed) + len as u64;
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let may = count < STREAMED_SETS_MAX && announced <= announced_max;
        if !may {
            self.leave(len);
        }
        may.then_some(announced)
    }

    pub(super) fn leave(&self, len: usize) {
        self.announced.fetch_sub(len as u64, Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
