//! Waiting: looking again for as long as something is likely to come, and sleeping then.

#![allow(clippy::disallowed_methods, reason = "a side that waits looks at the time itself")]

use crate::ends::{Consumer, Ended, Producer};
use crate::inbox::{Doorbell, Inbox, Lane};
use crate::memory::Memory;
use crate::park::{Parking, Wait};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::thread::futex;
use std::convert::Infallible;
use std::hint::spin_loop;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How to wake the other side.
#[derive(Debug, Default)]
pub struct Bell {
    socket: Option<Arc<OwnedFd>>,
}

/// What is said on a socket to ring.
const RING: [u8; 1] = [1];

/// Rings that are heard at once.
const HEARD_AT_ONCE: usize = 64;

impl Bell {
    /// The other side has the other end of a unix stream socket, and polls it when it does not
    /// sleep on the futex.
    ///
    /// A byte is a ring. A call that never waits tells the kernel so by itself: a descriptor that
    /// both sides have, an eventfd's say, is made to wait by either.
    pub fn new(socket: Arc<OwnedFd>) -> Bell {
        Bell { socket: Some(socket) }
    }

    /// Wakes the other side, however it sleeps.
    fn ring_socket(&self) {
        if let Some(socket) = &self.socket {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            // Fails when the other side is gone, or has not heard many rings: one more is no news.
            let _ = send(socket, &RING, flags);
        }
    }

    /// Takes what the other side has rung, not more than so much at once; whether it is still
    /// there.
    pub fn hear(&self) -> bool {
        let Some(socket) = &self.socket else { return true };
        match recv(socket, &mut [0; HEARD_AT_ONCE], RecvFlags::DONTWAIT) {
            Ok((len, _)) => len > 0,
            Err(why) => matches!(why, Errno::AGAIN | Errno::INTR),
        }
    }

    /// Wakes the producer of a ring as [`Consumer::release`] or [`Inbox::next`] has told.
    pub fn wake_writer(&self, memory: &impl Memory, how: Wait) {
        self.ring(&memory.header().writer.0, Some(how));
    }

    fn ring(&self, parking: &Parking, how: Option<Wait>) {
        match how {
            None => {}
            Some(Wait::Futex) => {
                // There is at most one who sleeps; that nobody does is no error.
                let _ = futex::wake(parking.word(), futex::Flags::empty(), 1);
            }
            Some(Wait::Descriptor) => self.ring_socket(),
        }
    }
}

/// Sleeps until `parking` is woken, or `until`.
fn sleep(parking: &Parking, sequence: u32, until: Option<Instant>) {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let left = left.map(|left| futex::Timespec {
        tv_sec: left.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: left.subsec_nanos().into(),
    });
    // Whatever ends it (a waking, a signal, the time): who called looks again.
    let _ = futex::wait(parking.word(), futex::Flags::empty(), sequence, left.as_ref());
}

/// How long it looks again before it sleeps. A sleeper is woken some 50 us late, so looking is worth
/// it where the next message comes sooner than that; where it does not, it is wasted.
#[derive(Clone, Debug)]
pub struct Spin {
    budget: Duration,
    /// How long it took lately until something came, in nanoseconds.
    gap: f64,
    waits: u32,
}

/// Weight of the newest gap.
const NEWEST: f64 = 0.25;

/// One wait of so many is spent looking all the same, to see whether things have changed.
const PROBE_EVERY: u32 = 64;

/// How often the clock is read: once in so many looks.
const LOOKS_PER_CLOCK: u32 = 32;

impl Spin {
    /// Looks for up to `budget`, where that has been enough lately. Never where this process may
    /// use one processor only: the other side would wait for it.
    pub fn adaptive(budget: Duration) -> Spin {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let budget = if processors > 1 { budget } else { Duration::ZERO };
        Spin { budget, gap: 0.0, waits: 0 }
    }

    /// Sleeps at once.
    pub fn never() -> Spin {
        Spin { budget: Duration::ZERO, gap: 0.0, waits: 0 }
    }

    /// Looks until `is_done`, or no longer than is worth it; whether it was done.
    pub(crate) fn look<E>(
        &mut self,
        mut is_done: impl FnMut() -> Result<bool, E>,
    ) -> Result<bool, E> {
        self.waits = self.waits.wrapping_add(1);
        let is_worth_it =
            self.gap <= self.budget.as_nanos() as f64 || self.waits.is_multiple_of(PROBE_EVERY);
        if self.budget.is_zero() || !is_worth_it {
            return Ok(false);
        }
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                if is_done()? {
                    self.note(start.elapsed());
                    return Ok(true);
                }
                spin_loop();
            }
            if start.elapsed() > self.budget {
                self.note(self.budget * 4);
                return Ok(false);
            }
        }
    }

    fn note(&mut self, gap: Duration) {
        self.gap += (gap.as_nanos() as f64 - self.gap) * NEWEST;
    }
}

impl<M: Memory> Producer<M> {
    /// Publishes what was written and wakes the consumer if it sleeps.
    pub fn flush(&mut self, bell: &Bell) {
        let how = self.publish();
        bell.ring(&self.memory().header().reader.0, how);
    }

    /// Publishes and closes, and wakes the consumer if it sleeps.
    pub fn finish(&mut self, bell: &Bell) {
        let how = self.close();
        bell.ring(&self.memory().header().reader.0, how);
    }

    /// Publishes what was written and waits until `wanted` bytes fit, or `until`; whether they do.
    ///
    /// # Errors
    /// As [`Producer::free`].
    pub fn wait_for_room(
        &mut self,
        wanted: usize,
        (spin, bell): (&mut Spin, &Bell),
        until: Option<Instant>,
    ) -> Result<bool, Ended> {
        self.flush(bell);
        loop {
            if self.free(wanted)? >= wanted || spin.look(|| Ok(self.free(wanted)? >= wanted))? {
                return Ok(true);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(false);
            }
            if let Some(sequence) = self.park(Wait::Futex, wanted)? {
                sleep(&self.memory().header().writer.0, sequence, until);
                self.unpark();
            }
        }
    }
}

impl<M: Memory, D: Deref<Target = Doorbell>> Lane<M, D> {
    /// Publishes what was written and wakes the reader if it sleeps.
    pub fn flush(&mut self, bell: &Bell) {
        let how = self.publish();
        bell.ring(&self.doorbell().reader.0, how);
    }

    /// Publishes and closes, and wakes the reader if it sleeps.
    pub fn finish(&mut self, bell: &Bell) {
        let how = self.close();
        bell.ring(&self.doorbell().reader.0, how);
    }

    /// As [`Producer::wait_for_room`].
    ///
    /// # Errors
    /// As [`Producer::free`].
    pub fn wait_for_room(
        &mut self,
        wanted: usize,
        (spin, bell): (&mut Spin, &Bell),
        until: Option<Instant>,
    ) -> Result<bool, Ended> {
        // The reader is told at the doorbell, so that nothing is left to be published below.
        self.flush(bell);
        self.records().end().wait_for_room(wanted, (spin, bell), until)
    }
}

impl<M: Memory, D: Deref<Target = Doorbell>> Inbox<M, D> {
    /// After [`Inbox::next`] has found nothing: waits until there may be something, or `until`;
    /// whether it was not the time that ended it.
    pub fn wait(&mut self, spin: &mut Spin, until: Option<Instant>) -> bool {
        let look = || Ok::<_, Infallible>(self.is_told());
        if matches!(spin.look(look), Ok(true)) {
            return true;
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            return false;
        }
        if let Some(sequence) = self.park(Wait::Futex) {
            sleep(&self.doorbell().reader.0, sequence, until);
            self.unpark();
        }
        true
    }
}

impl<M: Memory> Consumer<M> {
    /// Gives the room of what was read back and wakes the producer if it waits for that.
    pub fn give_back(&mut self, bell: &Bell) {
        let how = self.release();
        bell.ring(&self.memory().header().writer.0, how);
    }

    /// Sleeps until it is woken, behind an announcement to sleep on the futex, or for so long.
    pub(crate) fn nap(&self, sequence: u32, most: Duration) {
        sleep(&self.memory().header().reader.0, sequence, Some(Instant::now() + most));
    }

    /// Says that nothing more will be read, and wakes the producer if it sleeps.
    pub fn finish(&mut self, bell: &Bell) {
        let how = self.close();
        bell.ring(&self.memory().header().writer.0, how);
    }

    /// Gives the room of what was read back and waits until there is something to be read, or
    /// `until`; whether there is.
    ///
    /// # Errors
    /// As [`Consumer::available`].
    pub fn wait(
        &mut self,
        (spin, bell): (&mut Spin, &Bell),
        until: Option<Instant>,
    ) -> Result<bool, Ended> {
        self.give_back(bell);
        loop {
            if self.available(1)? > 0 || spin.look(|| Ok(self.available(1)? > 0))? {
                return Ok(true);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(false);
            }
            if let Some(sequence) = self.park(Wait::Futex)? {
                sleep(&self.memory().header().reader.0, sequence, until);
                self.unpark();
            }
        }
    }
}
