//! Tells an allocator that counts which allocations are the worker's own: the
//! simulated network allocates as it likes while a worker calls it.

use std::cell::Cell;

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// Restores what was when it is dropped.
#[must_use = "counting goes on when this is dropped"]
pub struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        COUNTED.set(self.0);
    }
}

/// Whether the code running on this thread is a worker's.
pub fn is_counted() -> bool {
    COUNTED.get()
}

/// From here on this thread runs a worker's code.
pub fn begin() -> Restore {
    Restore(COUNTED.replace(true))
}

/// From here on this thread runs the simulation's code.
pub fn pause() -> Restore {
    Restore(COUNTED.replace(false))
}
