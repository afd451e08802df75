//! Bytes that the kernel has already received for sockets on their way between two workers.
//!
//! A driver that receives in advance leaves the bytes here when it releases a socket. The driver
//! that watches the socket next takes them, whichever kind of driver it is.

use crate::Socket;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The end of a socket's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    End,
    Failed,
}

/// The data that goes with a socket to another worker.
pub(crate) struct Come {
    pub(crate) held: Vec<u8>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) awaits_room: bool,
}

/// The data by descriptor.
static MOVING: Mutex<BTreeMap<i32, Come>> = Mutex::new(BTreeMap::new());

/// Number of entries of [`MOVING`]: nearly always none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Leaves the data that goes with a socket.
pub(crate) fn leave(number: i32, come: Come) {
    // ORDER: pairs with `take`; the socket itself goes by a mailbox, later
    COUNT.fetch_add(1, Ordering::AcqRel);
    MOVING.lock().insert(number, come);
}

/// Makes a socket that was released a descriptor for another process. Returns what the kernel has
/// received for it as well.
pub(crate) fn give_up(socket: Socket) -> (OwnedFd, Vec<u8>) {
    let held = take(socket.0).map(|come| come.held).unwrap_or_default();
    // SAFETY: the handle owns its descriptor, and the caller gives it up here.
    (unsafe { OwnedFd::from_raw_fd(socket.0) }, held)
}

/// Makes a descriptor of another process a socket to be watched.
pub(crate) fn take_over(descriptor: OwnedFd, unread: Vec<u8>) -> Socket {
    let number = descriptor.into_raw_fd();
    if !unread.is_empty() {
        leave(number, Come { held: unread, outcome: None, awaits_room: false });
    }
    Socket(number)
}

/// Takes the data that came with a socket, if there is any.
#[inline]
pub(crate) fn take(number: i32) -> Option<Come> {
    // ORDER: pairs with `leave`
    if COUNT.load(Ordering::Acquire) == 0 { None } else { take_there(number) }
}

#[cold]
fn take_there(number: i32) -> Option<Come> {
    let taken = MOVING.lock().remove(&number);
    if taken.is_some() {
        // ORDER: pairs with the load of `take`
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
    taken
}
