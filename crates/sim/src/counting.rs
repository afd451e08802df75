//! Tells a counting allocator which allocations belong to the worker. The simulated network may
//! allocate freely while a worker calls it.

use std::cell::Cell;

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// Restores the earlier state when it is dropped.
#[must_use = "counting goes on when this is dropped"]
pub struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        COUNTED.set(self.0);
    }
}

/// Returns whether the code that runs on this thread belongs to a worker.
pub fn is_counted() -> bool {
    COUNTED.get()
}

/// Marks that this thread runs a worker's code from here on.
pub fn begin() -> Restore {
    Restore(COUNTED.replace(true))
}

/// Marks that this thread runs the simulation's code from here on.
pub fn pause() -> Restore {
    Restore(COUNTED.replace(false))
}
