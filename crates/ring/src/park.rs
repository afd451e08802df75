//! How a side sleeps and is woken, without ever missing an event.
//!
//! The waiting side announces its sleep, and then checks once more. The side with news publishes
//! it, and then asks whether the other side waits. Both steps are one exchange of the same word,
//! and of two exchanges one comes first. If the announcement does, the other side learns that it
//! must wake. If the question does, the announcement sees what was published before it. No exchange
//! may become a plain store, not even the one that takes an announcement back: the next exchange
//! would see nothing through it.

use crate::sync::{AtomicU32, Ordering};

const RUNNING: u32 = 0;
const ON_FUTEX: u32 = 1;
const ON_DESCRIPTOR: u32 = 2;

/// How a side waits, and so how to wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// On the futex word.
    Futex,
    /// On a descriptor that is polled together with others.
    Descriptor,
}

/// The word on which one side sleeps.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Parking {
    state: AtomicU32,
    /// The futex word, which grows with each wake-up.
    sequence: AtomicU32,
}

impl Parking {
    /// Announces that its side is about to sleep. Returns the futex word. Check once more after
    /// this.
    pub(crate) fn announce(&self, how: Wait) -> u32 {
        let sequence = self.sequence.load(Ordering::Relaxed);
        let state = match how {
            Wait::Futex => ON_FUTEX,
            Wait::Descriptor => ON_DESCRIPTOR,
        };
        self.state.swap(state, Ordering::AcqRel);
        sequence
    }

    /// Notes that it does not sleep after all, or is awake again.
    pub(crate) fn cancel(&self) {
        self.state.swap(RUNNING, Ordering::AcqRel);
    }

    /// Asks, after publishing news, whether to wake the other side, and how. Returns a value once
    /// for each announcement. An invalid state is a lie that harms only the side that stored it.
    pub(crate) fn wake(&self) -> Option<Wait> {
        let how = match self.state.swap(RUNNING, Ordering::AcqRel) {
            ON_FUTEX => Wait::Futex,
            ON_DESCRIPTOR => Wait::Descriptor,
            _ => return None,
        };
        self.sequence.fetch_add(1, Ordering::Release);
        Some(how)
    }

    /// Returns the futex word.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.sequence
    }
}
