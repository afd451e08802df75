//! What the kernel has received already for sockets on their way between two workers.
//!
//! A driver that receives ahead leaves it here when it lets go of a socket, and the one that names
//! the socket next takes it, whichever kind of driver that is.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How a socket's bytes have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    End,
    Failed,
}

/// What goes with a socket to another worker.
pub(crate) struct Come {
    pub(crate) held: Vec<u8>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) awaits_room: bool,
}

/// By descriptor.
static MOVING: Mutex<BTreeMap<i32, Come>> = Mutex::new(BTreeMap::new());

/// How many those are: nearly always none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Leaves what goes with a socket.
pub(crate) fn leave(number: i32, come: Come) {
    // ORDER: pairs with `take`; the socket itself goes by a mailbox, later.
    COUNT.fetch_add(1, Ordering::AcqRel);
    MOVING.lock().insert(number, come);
}

/// Takes what came with a socket, if anything did.
#[inline]
pub(crate) fn take(number: i32) -> Option<Come> {
    // ORDER: pairs with `leave`.
    if COUNT.load(Ordering::Acquire) == 0 { None } else { take_there(number) }
}

#[cold]
fn take_there(number: i32) -> Option<Come> {
    let taken = MOVING.lock().remove(&number);
    if taken.is_some() {
        // ORDER: pairs with the load of `take`.
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
    taken
}
