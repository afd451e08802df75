//! Waiting: polling as long as something is likely to come, and then sleeping.

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

/// The way to wake the other side.
#[derive(Debug, Default)]
pub struct Bell {
    socket: Option<Arc<OwnedFd>>,
}

/// The byte that is sent on a socket as a wake-up.
const RING: [u8; 1] = [1];

/// Most wake-ups read at once.
const HEARD_AT_ONCE: usize = 64;

impl Bell {
    /// Creates a bell over a unix stream socket. The other side has the other end, and polls it
    /// when it does not sleep on the futex.
    ///
    /// Each byte is a wake-up. Calls on it are non-blocking by flag. A descriptor that both sides
    /// share, such as an eventfd, could be made blocking by either.
    pub fn new(socket: Arc<OwnedFd>) -> Bell {
        Bell { socket: Some(socket) }
    }

    /// Wakes the other side, however it sleeps.
    fn ring_socket(&self) {
        if let Some(socket) = &self.socket {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            // This fails if the other side is gone, or has not read many wake-ups: one more tells
            // nothing new.
            let _ = send(socket, &RING, flags);
        }
    }

    /// Reads the wake-ups of the other side, a bounded number at once. Returns whether it is still
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
                // At most one thread sleeps there; it is not an error if none does.
                let _ = futex::wake(parking.word(), futex::Flags::empty(), 1);
            }
            Some(Wait::Descriptor) => self.ring_socket(),
        }
    }
}

/// Sleeps until `parking` is woken, or until the time `until`.
fn sleep(parking: &Parking, sequence: u32, until: Option<Instant>) {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let left = left.map(|left| futex::Timespec {
        tv_sec: left.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: left.subsec_nanos().into(),
    });
    // Whatever ends it (a wake-up, a signal, the time): the caller checks again.
    let _ = futex::wait(parking.word(), futex::Flags::empty(), sequence, left.as_ref());
}

/// How long a side polls before it sleeps. A sleeping side is woken some 50 us late, so polling is
/// worth it if the next message comes sooner than that. Otherwise it is wasted.
#[derive(Clone, Debug)]
pub struct Spin {
    budget: Duration,
    /// Recent time until something came, in nanoseconds.
    gap: f64,
    waits: u32,
}

/// Weight of the newest gap.
const NEWEST: f64 = 0.25;

/// One in this many waits is spent polling all the same, to see whether things have changed.
const PROBE_EVERY: u32 = 64;

/// Number of polls for each read of the clock.
const LOOKS_PER_CLOCK: u32 = 32;

impl Spin {
    /// Creates one that polls for up to `budget`, if that has been enough lately. It never polls if
    /// this process may use only one processor: the other side would wait for it.
    pub fn adaptive(budget: Duration) -> Spin {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let budget = if processors > 1 { budget } else { Duration::ZERO };
        Spin { budget, gap: 0.0, waits: 0 }
    }

    /// Creates one that sleeps at once.
    pub fn never() -> Spin {
        Spin { budget: Duration::ZERO, gap: 0.0, waits: 0 }
    }

    /// Polls until `is_done`, or as long as is worth it. Returns whether it was done.
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
    /// Publishes the written bytes and wakes the consumer if it sleeps.
    pub fn flush(&mut self, bell: &Bell) {
        let how = self.publish();
        bell.ring(&self.memory().header().reader.0, how);
    }

    /// Publishes and closes, and wakes the consumer if it sleeps.
    pub fn finish(&mut self, bell: &Bell) {
        let how = self.close();
        bell.ring(&self.memory().header().reader.0, how);
    }

    /// Publishes the written bytes and waits until `wanted` bytes fit, or until the time `until`.
    /// Returns whether they do.
    ///
    /// # Errors
    /// Returns errors as [`Producer::free`] does.
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
    /// Publishes the written records and wakes the reader if it sleeps.
    pub fn flush(&mut self, bell: &Bell) {
        let how = self.publish();
        bell.ring(&self.doorbell().reader.0, how);
    }

    /// Publishes and closes, and wakes the reader if it sleeps.
    pub fn finish(&mut self, bell: &Bell) {
        let how = self.close();
        bell.ring(&self.doorbell().reader.0, how);
    }

    /// Waits for room like [`Producer::wait_for_room`].
    ///
    /// # Errors
    /// Returns errors as [`Producer::free`] does.
    pub fn wait_for_room(
        &mut self,
        wanted: usize,
        (spin, bell): (&mut Spin, &Bell),
        until: Option<Instant>,
    ) -> Result<bool, Ended> {
        // The reader is told at the doorbell, so nothing is left to be published below.
        self.flush(bell);
        self.records().end().wait_for_room(wanted, (spin, bell), until)
    }
}

impl<M: Memory, D: Deref<Target = Doorbell>> Inbox<M, D> {
    /// Waits, after [`Inbox::next`] has found nothing, until there may be something, or until the
    /// time `until`. Returns whether anything but the time has ended it.
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
    /// Gives the room of read bytes back and wakes the producer if it waits for that.
    pub fn give_back(&mut self, bell: &Bell) {
        let how = self.release();
        bell.ring(&self.memory().header().writer.0, how);
    }

    /// Sleeps until it is woken, after an announcement to sleep on the futex, at most for `most`.
    pub(crate) fn nap(&self, sequence: u32, most: Duration) {
        sleep(&self.memory().header().reader.0, sequence, Some(Instant::now() + most));
    }

    /// Tells that nothing more will be read, and wakes the producer if it sleeps.
    pub fn finish(&mut self, bell: &Bell) {
        let how = self.close();
        bell.ring(&self.memory().header().writer.0, how);
    }

    /// Gives the room of read bytes back and waits until there is something to read, or until the
    /// time `until`. Returns whether there is.
    ///
    /// # Errors
    /// Returns errors as [`Consumer::available`] does.
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
