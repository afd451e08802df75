//! How a side goes to sleep and is woken, without ever missing what it waits for.
//!
//! Whoever waits announces it, and then looks once more; whoever has something to tell says it, and
//! then asks whether somebody waits. Both steps are one exchange of the same word, and of two
//! exchanges one comes first: if the announcement does, the other side learns that it is to wake;
//! if the question does, the announcement sees what was said before it. No exchange may become a
//! plain store, not even the one that takes an announcement back: the next one would see nothing
//! through it.

use crate::sync::{AtomicU32, Ordering};

const RUNNING: u32 = 0;
const ON_FUTEX: u32 = 1;
const ON_DESCRIPTOR: u32 = 2;

/// How somebody waits, and so how to wake him.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// On the futex word.
    Futex,
    /// On a descriptor that is polled along with others.
    Descriptor,
}

/// Where one side sleeps.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Parking {
    state: AtomicU32,
    /// Grows with each waking: the futex word.
    sequence: AtomicU32,
}

impl Parking {
    /// Announces that its side is about to sleep; what the futex word is then. Look once more
    /// behind this.
    pub(crate) fn announce(&self, how: Wait) -> u32 {
        let sequence = self.sequence.load(Ordering::Relaxed);
        let state = match how {
            Wait::Futex => ON_FUTEX,
            Wait::Descriptor => ON_DESCRIPTOR,
        };
        self.state.swap(state, Ordering::AcqRel);
        sequence
    }

    /// It does not sleep after all, or is awake again.
    pub(crate) fn cancel(&self) {
        self.state.swap(RUNNING, Ordering::AcqRel);
    }

    /// Who has told something asks whether to wake the other side, and how: once for each
    /// announcement. A state that there is not is a lie, and harms who told it.
    pub(crate) fn wake(&self) -> Option<Wait> {
        let how = match self.state.swap(RUNNING, Ordering::AcqRel) {
            ON_FUTEX => Wait::Futex,
            ON_DESCRIPTOR => Wait::Descriptor,
            _ => return None,
        };
        self.sequence.fetch_add(1, Ordering::Release);
        Some(how)
    }

    /// The futex word.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.sequence
    }
}
