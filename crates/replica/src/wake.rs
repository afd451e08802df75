//! How a thread that waits for a socket is told to look up.

use crate::system::{System, Watch};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A flag to stop, and a descriptor that becomes readable.
pub(crate) struct Wake {
    system: Arc<dyn System>,
    is_stopping: AtomicBool,
    fd: OwnedFd,
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wake").field("is_stopping", &self.is_stopping).finish_non_exhaustive()
    }
}

/// What [`Wake::wait`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The socket has something.
    Ready,
    /// Somebody called [`Wake::nudge`].
    Nudged,
    /// Time is up.
    Late,
    /// The thread is to stop.
    Stop,
}

impl Wake {
    pub(crate) fn new(system: &Arc<dyn System>) -> std::io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { system: Arc::clone(system), is_stopping: AtomicBool::new(false), fd })
    }

    /// The system that the thread runs on.
    pub(crate) fn system(&self) -> &Arc<dyn System> {
        &self.system
    }

    /// The time now.
    pub(crate) fn now(&self) -> Instant {
        self.system.now()
    }

    /// Has the thread stop.
    pub(crate) fn stop(&self) {
        // ORDER: pairs with is_stopping; the flag is there before the thread wakes.
        self.is_stopping.store(true, Ordering::Release);
        self.nudge();
    }

    /// Has the thread look around.
    pub(crate) fn nudge(&self) {
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Returns whether the thread is to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        // ORDER: pairs with stop.
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Waits for a socket and its events, if there is one, until a time.
    pub(crate) fn wait(
        &self,
        socket: Option<(BorrowedFd<'_>, PollFlags)>,
        until: Instant,
    ) -> Waited {
        loop {
            if self.is_stopping() {
                return Waited::Stop;
            }
            if self.now() >= until {
                return Waited::Late;
            }
            // The wake's own descriptor stands in where there is no socket.
            let (fd, events) = socket.unwrap_or((self.fd.as_fd(), PollFlags::IN));
            let mut watches = [Watch::new(&self.fd, PollFlags::IN), Watch::new(&fd, events)];
            match self.system.wait(&mut watches, until) {
                Ok(0) | Err(Errno::INTR) => continue,
                // Nothing is known of the socket: its next read or write tells.
                Err(_) => return Waited::Ready,
                Ok(_) => {}
            }
            let [woken, ready] = watches.map(|watch| !watch.found.is_empty());
            if woken {
                let _ = rustix::io::read(&self.fd, &mut [0; 8]);
                return if self.is_stopping() { Waited::Stop } else { Waited::Nudged };
            }
            if ready {
                return Waited::Ready;
            }
        }
    }

    /// Waits for a time to pass; whether the thread goes on.
    pub(crate) fn sleep_until(&self, until: Instant) -> bool {
        loop {
            match self.wait(None, until) {
                Waited::Stop => return false,
                Waited::Late => return true,
                Waited::Ready | Waited::Nudged => {}
            }
        }
    }
}
