//! One set of servers for the tests of a file.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A value built by the first test that wants it and dropped after the last:
/// a plain `static` would never be dropped, and its servers would outlive the
/// test binary.
#[derive(Debug)]
pub struct Shared<T> {
    current: Mutex<Weak<T>>,
}

impl<T> Shared<T> {
    /// Holds nothing yet.
    pub const fn new() -> Shared<T> {
        Shared { current: Mutex::new(Weak::new()) }
    }

    /// The value in use, or a new one from `build`.
    pub fn get(&self, build: impl FnOnce() -> T) -> Arc<T> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = current.upgrade() {
            return value;
        }
        let value = Arc::new(build());
        *current = Arc::downgrade(&value);
        value
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Shared::new()
    }
}
