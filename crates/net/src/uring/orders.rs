//! The orders that the kernel gets, and the completions that it reports.

use super::buffers::GROUP;
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::time::Duration;

/// Most orders that wait for the next call. With more, they are submitted at once.
const ORDERS_MAX: u32 = 512;

/// Most completions that wait to be read; the kernel keeps further ones.
const DONE_MAX: u32 = 4096;

/// Most completions handled in a turn; more wait for the next.
const TURN_LEN: usize = 512;

/// Most calls for one turn.
const CALLS_MAX: usize = 24;

/// Number of times that an order is offered to a kernel without memory for it, a millisecond each.
const OFFERS_MAX: usize = 200;

/// Pause after the kernel had no memory for a call.
const REST: Duration = Duration::from_millis(1);

/// Largest generation, which fits into the name of an order beside its kind and a descriptor.
pub(super) const GENERATION_MAX: u32 = (1 << 29) - 1;

const KIND_SHIFT: u32 = 61;

/// The kind of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Receive for a socket, until cancelled.
    Receive,
    /// Report when a socket has room again.
    Room,
    /// Report when the peer of a socket is gone.
    Hangup,
    /// Report when the driver below has events.
    Base,
    /// Accept from a listener, until cancelled.
    Accept,
    /// Cancel another order.
    Cancel,
}

impl Kind {
    fn of(bits: u64) -> Kind {
        match bits {
            0 => Kind::Receive,
            1 => Kind::Room,
            2 => Kind::Hangup,
            3 => Kind::Base,
            4 => Kind::Accept,
            _ => Kind::Cancel,
        }
    }
}

/// The name of an order: its kind, and the generation and number of its socket.
pub(super) type Name = (Kind, u32, i32);

fn bits((kind, generation, number): Name) -> u64 {
    (kind as u64) << KIND_SHIFT | u64::from(generation) << 32 | u64::from(number as u32)
}

/// A completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) kind: Kind,
    pub(super) generation: u32,
    pub(super) number: i32,
    /// Bytes, events, or an error below zero.
    pub(super) result: i32,
    pub(super) flags: u32,
}

/// The ring.
pub(super) struct Orders {
    ring: IoUring,
    submitted: u32,
    /// True if the kernel has dropped completions, or takes no more orders.
    is_lost: bool,
    /// Errors with which the next calls end.
    #[cfg(test)]
    pub(super) faults: Vec<Errno>,
    /// Number of next completions that are dropped.
    #[cfg(test)]
    pub(super) swallowed: usize,
}

impl Orders {
    /// Creates a ring for this thread alone.
    pub(super) fn new() -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(DONE_MAX)
            .build(ORDERS_MAX)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Orders {
            ring,
            submitted: 0,
            is_lost: false,
            #[cfg(test)]
            faults: Vec::new(),
            #[cfg(test)]
            swallowed: 0,
        })
    }

    pub(super) fn ring(&self) -> &IoUring {
        &self.ring
    }

    /// Returns the number of calls that have submitted all earlier orders.
    pub(super) fn submitted(&self) -> u32 {
        self.submitted
    }

    pub(super) fn receive(&mut self, name: Name) {
        self.push(opcode::RecvMulti::new(Fd(name.2), GROUP).build().user_data(bits(name)));
    }

    /// Orders the kernel to accept clients. Only for TCP: where several workers share one listening
    /// socket, it would wake one of them for each client, however busy that one is.
    pub(super) fn accept(&mut self, name: Name) {
        let flags = (SocketFlags::NONBLOCK | SocketFlags::CLOEXEC).bits() as i32;
        let entry = opcode::AcceptMulti::new(Fd(name.2)).flags(flags).build();
        self.push(entry.user_data(bits(name)));
    }

    pub(super) fn poll(&mut self, name: Name, events: PollFlags) {
        let entry = opcode::PollAdd::new(Fd(name.2), u32::from(events.bits()));
        self.push(entry.build().user_data(bits(name)));
    }

    pub(super) fn cancel(&mut self, name: Name) {
        let entry = opcode::AsyncCancel::new(bits(name)).build();
        // Only for standing orders it matters whether they were found.
        let stands = matches!(name.0, Kind::Receive | Kind::Accept);
        let generation = if stands { name.1 } else { 0 };
        self.push(entry.user_data(bits((Kind::Cancel, generation, name.2))));
    }

    /// Cancels all orders.
    pub(super) fn cancel_all(&mut self) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::any()).build();
        self.push(entry.user_data(bits((Kind::Cancel, 0, 0))));
    }

    fn push(&mut self, entry: squeue::Entry) {
        for _ in 0..OFFERS_MAX {
            // SAFETY: no order points to memory: bytes are received into buffers that outlive the
            // ring.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            if !self.submit() {
                rest(REST);
            }
        }
        self.is_lost = true;
    }

    /// Returns whether a completion was lost: from then on it is unknown which orders stand.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Submits all orders now, and makes the kernel do its postponed work. Returns whether it had
    /// the memory for that.
    pub(super) fn submit(&mut self) -> bool {
        /// `IORING_ENTER_GETEVENTS`: without it, the results of the orders wait for the next call.
        const GET_EVENTS: u32 = 1;
        #[cfg(test)]
        if !self.faults.is_empty() {
            return self.check(Ok(0));
        }
        let count = self.ring.submission().len() as u32;
        // SAFETY: the orders point to no memory (see `push`), and no argument is given.
        let outcome = unsafe { self.ring.submitter().enter::<()>(count, 0, GET_EVENTS, None) };
        let is_heard = self.check(outcome);
        self.note_submitted();
        is_heard
    }

    /// Notes whether all orders are submitted. Orders that the kernel had no memory for remain.
    fn note_submitted(&mut self) {
        if self.ring.submission().is_empty() {
            self.submitted = self.submitted.wrapping_add(1);
        }
    }

    /// Returns whether the kernel has more completions than it had room for.
    pub(super) fn has_overflown(&mut self) -> bool {
        self.ring.submission().cq_overflow()
    }

    /// Makes the kernel do one thing, to see whether it permits that.
    ///
    /// # Errors
    /// Returns an error if it does not.
    pub(super) fn try_one(&mut self) -> io::Result<()> {
        self.push(opcode::Nop::new().build().user_data(bits((Kind::Cancel, 0, 0))));
        self.ring.submit_and_wait(1).map(drop)
    }

    /// Submits all orders, and waits up to `wait` (`None`: for ever; zero: not at all) until
    /// something is done. Returns whether it had to sleep.
    #[inline]
    pub(super) fn enter(&mut self, wait: Option<Duration>) -> bool {
        let queue = self.ring.submission();
        let has_work = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
        drop(queue);
        let is_done = !self.ring.completion().is_empty();
        if is_done || wait == Some(Duration::ZERO) {
            if has_work {
                self.submit();
                self.catch_up();
            }
            return false;
        }
        let start = clock_gettime(ClockId::Monotonic);
        let outcome = match wait {
            None => self.ring.submit_and_wait(1),
            Some(wait) => {
                let timespec = Timespec::from(wait.min(Duration::from_secs(1 << 30)));
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timespec))
            }
        };
        if !self.check(outcome) && self.ring.completion().is_empty() {
            // If it was called again at once, it would fail again.
            rest(REST.min(wait.unwrap_or(REST)));
        }
        // The kernel does not tell whether the call slept.
        let slept = crate::epoll::has_slept(start);
        self.note_submitted();
        self.catch_up();
        slept
    }

    /// Since Linux 6.13 a call does twenty of the postponed things. This makes the kernel do the
    /// others, as far as they fit into one turn.
    fn catch_up(&mut self) {
        for _ in 0..CALLS_MAX {
            if !self.ring.submission().taskrun() || self.ring.completion().len() >= TURN_LEN {
                return;
            }
            self.submit();
        }
    }

    /// Takes the completions that the kernel has reported.
    #[inline]
    pub(super) fn take_done(&mut self, done: &mut Vec<Done>) {
        #[cfg(test)]
        self.swallow();
        done.extend(self.ring.completion().map(|entry| {
            let name = entry.user_data();
            Done {
                kind: Kind::of(name >> KIND_SHIFT),
                generation: (name >> 32) as u32 & GENERATION_MAX,
                number: name as u32 as i32,
                result: entry.result(),
                flags: entry.flags(),
            }
        }));
    }

    #[cfg(test)]
    fn swallow(&mut self) {
        let there = self.ring.completion().take(self.swallowed).count();
        self.swallowed -= there;
        self.is_lost |= there > 0;
    }

    /// Returns whether the kernel had the memory for a call.
    fn check(&mut self, outcome: io::Result<usize>) -> bool {
        #[cfg(test)]
        let outcome = match self.faults.pop() {
            Some(fault) => Err(fault.into()),
            None => outcome,
        };
        let Err(error) = outcome else { return true };
        match Errno::from_io_error(&error) {
            // In the last case completions are to be read first.
            Some(Errno::INTR | Errno::TIME | Errno::BUSY) => true,
            Some(Errno::NOMEM | Errno::NOBUFS | Errno::AGAIN) => false,
            // It had no memory to keep what there was no room for. It reports that once.
            Some(Errno::BADR) => {
                self.is_lost = true;
                true
            }
            // Any other error means that one of the driver's descriptors is not what it should be.
            _ => panic!("io_uring_enter failed: {error}"),
        }
    }

    /// Ends the loan of buffers: the kernel writes to none of them from now on.
    pub(super) fn end_buffers(&mut self) {
        // This fails only if there are none.
        let _ = self.ring.submitter().unregister_buf_ring(GROUP);
    }
}

/// Sleeps for a while.
fn rest(time: Duration) {
    let time = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
    // This polls no descriptor at all.
    let _ = rustix::event::poll(&mut [], Some(&time));
}
