//! What the kernel is asked to do, and what it says was done.

use super::buffers::GROUP;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::time::Duration;

/// Orders that can wait for the next call; more are told at once.
const ORDERS_MAX: u32 = 512;

/// What is done that can wait to be read; the kernel keeps what is beyond.
const DONE_MAX: u32 = 4096;

/// What is done that makes a turn; more waits for the next.
const TURN_LEN: usize = 512;

/// Calls for one turn.
const CALLS_MAX: usize = 24;

/// Generations fit into the name of an order beside its kind and a descriptor.
pub(super) const GENERATION_MAX: u32 = (1 << 29) - 1;

const KIND_SHIFT: u32 = 61;

/// What an order is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Receive for a socket, until told otherwise.
    Receive,
    /// Tell when a socket has room again.
    Room,
    /// Tell when the other side of a socket is gone.
    Hangup,
    /// Tell when the driver below has something.
    Base,
    /// Forget another order.
    Cancel,
}

impl Kind {
    fn of(bits: u64) -> Kind {
        match bits {
            0 => Kind::Receive,
            1 => Kind::Room,
            2 => Kind::Hangup,
            3 => Kind::Base,
            _ => Kind::Cancel,
        }
    }
}

/// Which order: its kind, the generation and the number of its socket.
pub(super) type Name = (Kind, u32, i32);

fn bits((kind, generation, number): Name) -> u64 {
    (kind as u64) << KIND_SHIFT | u64::from(generation) << 32 | u64::from(number as u32)
}

/// What the kernel says of an order.
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
}

impl Orders {
    /// A ring for this thread alone.
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
        Ok(Orders { ring, submitted: 0 })
    }

    pub(super) fn ring(&self) -> &IoUring {
        &self.ring
    }

    /// Counts the calls that have told the kernel of all orders before.
    pub(super) fn submitted(&self) -> u32 {
        self.submitted
    }

    pub(super) fn receive(&mut self, name: Name) {
        self.push(opcode::RecvMulti::new(Fd(name.2), GROUP).build().user_data(bits(name)));
    }

    pub(super) fn poll(&mut self, name: Name, events: PollFlags) {
        let entry = opcode::PollAdd::new(Fd(name.2), u32::from(events.bits()));
        self.push(entry.build().user_data(bits(name)));
    }

    pub(super) fn cancel(&mut self, name: Name) {
        let entry = opcode::AsyncCancel::new(bits(name)).build();
        // Only of those to receive it matters whether they were found.
        let generation = if name.0 == Kind::Receive { name.1 } else { 0 };
        self.push(entry.user_data(bits((Kind::Cancel, generation, name.2))));
    }

    fn push(&mut self, entry: squeue::Entry) {
        loop {
            // SAFETY: no order of ours points to memory: what is received goes to buffers that
            // outlive the ring.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            self.submit();
        }
    }

    /// Tells the kernel of all orders now, and has it do what it has put off.
    pub(super) fn submit(&mut self) {
        /// `IORING_ENTER_GETEVENTS`: without it, what follows from the orders waits for the next call.
        const GET_EVENTS: u32 = 1;
        let count = self.ring.submission().len() as u32;
        // SAFETY: the orders point to no memory (see `push`), and no argument is given.
        check(unsafe { self.ring.submitter().enter::<()>(count, 0, GET_EVENTS, None) });
        self.note_submitted();
    }

    /// Orders that the kernel had no memory for are still to be told.
    fn note_submitted(&mut self) {
        if self.ring.submission().is_empty() {
            self.submitted = self.submitted.wrapping_add(1);
        }
    }

    /// Whether the kernel has more to say than it had room for.
    pub(super) fn has_overflown(&mut self) -> bool {
        self.ring.submission().cq_overflow()
    }

    /// Has the kernel do one thing, to see whether it lets us.
    ///
    /// # Errors
    /// When it does not.
    pub(super) fn try_one(&mut self) -> io::Result<()> {
        self.push(opcode::Nop::new().build().user_data(bits((Kind::Cancel, 0, 0))));
        self.ring.submit_and_wait(1).map(drop)
    }

    /// Tells the kernel of all orders, and waits up to `wait` (`None`: for ever; zero: not at all)
    /// until something is done. Returns whether it had to sleep.
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
        check(match wait {
            None => self.ring.submit_and_wait(1),
            Some(wait) => {
                let timespec = Timespec::from(wait.min(Duration::from_secs(1 << 30)));
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timespec))
            }
        });
        // The kernel does not say whether it put us to sleep.
        let slept = crate::epoll::has_slept(start);
        self.note_submitted();
        self.catch_up();
        slept
    }

    /// Since Linux 6.13 a call does twenty of the things that it has put off: has it do the others,
    /// as far as they make one turn.
    fn catch_up(&mut self) {
        for _ in 0..CALLS_MAX {
            if !self.ring.submission().taskrun() || self.ring.completion().len() >= TURN_LEN {
                return;
            }
            self.submit();
        }
    }

    /// Takes what the kernel has said.
    #[inline]
    pub(super) fn take_done(&mut self, done: &mut Vec<Done>) {
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

    /// Ends the loan of buffers: none is written to from here on.
    pub(super) fn end_buffers(&mut self) {
        // Fails only where there are none.
        let _ = self.ring.submitter().unregister_buf_ring(GROUP);
    }
}

fn check(outcome: io::Result<usize>) {
    let Err(error) = outcome else { return };
    match Errno::from_io_error(&error) {
        // The last two: what is done is to be read first.
        Some(Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY) => {}
        // Any other error means a descriptor we own is not what we think.
        _ => panic!("io_uring_enter failed: {error}"),
    }
}
