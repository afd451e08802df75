//! A script that runs for long: who needs what it holds is refused instead of
//! waiting for its end.
//!
//! While nobody runs a script, a request pays one load of a word that nobody
//! writes. While somebody does, a request holds its shards before it is executed
//! ([`crate::Store::hold`]): so it never waits for one that the script takes in the
//! moment between. Only who found no script just before one began may meet a shard
//! that it has taken since, and waits for its end.

use keyway_memory::{Guard, Lock};
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, Ordering};

/// The kind of script that has been running for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// A script.
    Script,
    /// A function of a library.
    Function,
}

impl Busy {
    /// Redis's words for it, error code included.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Script => {
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN \
                 NOSAVE."
            }
            Self::Function => {
                "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN \
                 NOSAVE."
            }
        }
    }
}

const NOBODY: u8 = 0;
const SCRIPT: u8 = 1;
const FUNCTION: u8 = 2;

/// The lock of scripts, with a word that says whether the one that has it runs
/// for long. Apart from what requests write: each reads it.
#[repr(align(128))]
pub(crate) struct Scripting {
    lock: Lock<()>,
    busy: AtomicU8,
}

impl Scripting {
    pub(crate) const fn new() -> Self {
        Self { lock: Lock::new(()), busy: AtomicU8::new(NOBODY) }
    }

    /// Returns the kind of script that has been running for long, if one has.
    pub(crate) fn busy(&self) -> Option<Busy> {
        match self.busy.load(Ordering::Relaxed) {
            NOBODY => None,
            SCRIPT => Some(Busy::Script),
            _ => Some(Busy::Function),
        }
    }

    /// Notes that others are not to wait for the script that runs any more, or
    /// that it has ended.
    pub(crate) fn note_busy(&self, busy: Option<Busy>) {
        let word = match busy {
            None => NOBODY,
            Some(Busy::Script) => SCRIPT,
            Some(Busy::Function) => FUNCTION,
        };
        self.busy.store(word, Ordering::Relaxed);
    }

    /// Waits for the lock of scripts, unless who has it is busy.
    pub(crate) fn lock_unless_busy(&self) -> Result<Guard<'_, ()>, Busy> {
        let mut spins = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return Ok(guard);
            }
            match self.busy() {
                Some(busy) => return Err(busy),
                None => keyway_memory::pause(&mut spins),
            }
        }
    }

    /// Waits until nobody holds `lock`, unless that is a script that is busy.
    pub(crate) fn wait_for_holder<T>(&self, lock: &Lock<T>) -> Result<(), Busy> {
        let mut spins = 0;
        while let Some(holder) = lock.holder() {
            // One within a transaction has the guard of the lock of scripts.
            let is_script = self.holder().is_none_or(|script| script == holder);
            match self.busy() {
                Some(busy) if is_script => return Err(busy),
                _ => keyway_memory::pause(&mut spins),
            }
        }
        Ok(())
    }
}

impl Deref for Scripting {
    type Target = Lock<()>;

    fn deref(&self) -> &Lock<()> {
        &self.lock
    }
}
