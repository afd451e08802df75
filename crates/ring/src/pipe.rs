//! A pair of rings as a connection: bytes in both directions, and the socket that reports wake-ups
//! and the end of the other side.

#![allow(clippy::disallowed_methods, reason = "a side that waits looks at the time itself")]

use crate::ends::{Consumer, Ended, Producer};
use crate::handover::Shared;
use crate::park::Wait;
use crate::segment::Mapping;
use crate::sleep::{Bell, Spin};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, getpid};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time of rest after which the memory that this side writes is freed.
const REST: Duration = Duration::from_secs(1);

/// Longest sleep on the futex before it sleeps on the socket. The futex costs one call fewer; the
/// socket shows that the other side is gone.
const NAP: Duration = Duration::from_millis(20);

/// A connection through shared memory, whose reads and writes block.
///
/// It belongs to the process that has made it. A child that inherits it must not use it, but
/// dropping it does no harm.
#[derive(Debug)]
pub struct Pipe {
    producer: Producer<Mapping>,
    consumer: Consumer<Mapping>,
    socket: Arc<OwnedFd>,
    bell: Bell,
    spin: Spin,
    /// Longest wait of a read or a write; `None`: no bound.
    timeout: Option<Duration>,
    is_gone: bool,
    /// True if anything was written since the memory was freed.
    is_warm: bool,
    owner: Pid,
}

/// A wait: its start, once it sleeps.
#[derive(Default)]
struct Waiting {
    until: Option<Instant>,
    has_napped: bool,
}

impl Pipe {
    /// Creates a connection over rings that were handed over through `socket`. From now on both
    /// sides wake each other through the socket.
    pub fn new(shared: Shared, socket: UnixStream, spin: Spin) -> Pipe {
        let socket = Arc::new(OwnedFd::from(socket));
        Pipe {
            producer: Producer::new(shared.out),
            consumer: Consumer::new(shared.back),
            bell: Bell::new(Arc::clone(&socket)),
            socket,
            spin,
            timeout: None,
            is_gone: false,
            is_warm: false,
            owner: getpid(),
        }
    }

    /// Bounds the wait of a read or a write; `None`: no bound. With zero it does not wait.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Tells that nothing more will be written. Incoming bytes can still be read.
    pub fn finish(&mut self) {
        if self.is_own() {
            self.producer.finish(&self.bell);
        }
    }

    /// Returns the socket through which both sides wake each other.
    pub fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.socket)
    }

    /// Returns whether this is the process that has made it.
    fn is_own(&self) -> bool {
        self.owner == getpid()
    }

    /// Writes what fits of `out`, tells the other side, and reads what there is into `into`. Waits
    /// until one of both can be done. Returns how many bytes were written, and how many read: `(0,
    /// 0)` if the other side has ended or is gone and everything was read. A client that sends much
    /// and receives much does both at once by this; two sides that both only write would wait for
    /// each other.
    ///
    /// # Errors
    /// Returns errors as reads and writes do. But a peer that reads no more is not an error while
    /// there is something to read.
    pub fn exchange(&mut self, out: &[u8], into: &mut [u8]) -> io::Result<(usize, usize)> {
        let mut waiting = Waiting::default();
        loop {
            let is_gone = self.is_gone;
            let written = match self.producer.write(out) {
                Ok(len) => len,
                Err(Ended::Closed) => 0,
                Err(Ended::Broken) => return Err(broken()),
            };
            self.is_warm |= written > 0;
            self.producer.flush(&self.bell);
            match self.try_read(into, out.is_empty())? {
                Some(read) => return Ok((written, read)),
                None if written > 0 => return Ok((written, 0)),
                None if is_gone => return Ok((0, 0)),
                None => self.wait_for_bytes(!out.is_empty(), &mut waiting)?,
            }
        }
    }

    /// Reads what there is. Returns `None` if there is nothing yet, and 0 if nothing will come.
    /// With `may_spin` it polls for a while first.
    fn try_read(&mut self, into: &mut [u8], may_spin: bool) -> io::Result<Option<usize>> {
        let spun = match may_spin && self.timeout != Some(Duration::ZERO) {
            true => self.spin.look(|| Ok(self.consumer.available(1)? > 0)),
            false => Ok(false),
        };
        match spun.and_then(|_| self.consumer.read(into)) {
            Ok(0) => Ok(None),
            Ok(len) => {
                self.consumer.give_back(&self.bell);
                Ok(Some(len))
            }
            Err(Ended::Closed) => Ok(Some(0)),
            Err(Ended::Broken) => Err(broken()),
        }
    }

    /// Sleeps until there is something to read, or room to write if that is wanted.
    fn wait_for_bytes(&mut self, wants_room: bool, waiting: &mut Waiting) -> io::Result<()> {
        let left = self.left(waiting)?;
        let naps = !(wants_room || waiting.has_napped);
        let how = if naps { Wait::Futex } else { Wait::Descriptor };
        let Ok(Some(sequence)) = self.consumer.park(how) else { return Ok(()) };
        let is_full = match wants_room {
            true => matches!(self.producer.park(Wait::Descriptor, 1), Ok(Some(_)) | Err(_)),
            false => true,
        };
        let slept = match (naps, is_full) {
            (true, _) => {
                waiting.has_napped = true;
                self.consumer.nap(sequence, left.map_or(NAP, |left| left.min(NAP)));
                Ok(())
            }
            (false, true) => self.sleep(left),
            (false, false) => Ok(()),
        };
        self.consumer.unpark();
        if wants_room {
            self.producer.unpark();
        }
        slept
    }

    /// Returns the remaining time of a wait.
    fn left(&self, waiting: &mut Waiting) -> io::Result<Option<Duration>> {
        let Some(timeout) = self.timeout else { return Ok(None) };
        if timeout.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let now = Instant::now();
        // A time that cannot be represented means no bound.
        let Some(until) = waiting.until.or_else(|| now.checked_add(timeout)) else {
            return Ok(None);
        };
        waiting.until = Some(until);
        match until.saturating_duration_since(now) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }

    /// Sleeps until the other side sends a wake-up or is gone, or `most` is over.
    fn sleep(&mut self, most: Option<Duration>) -> io::Result<()> {
        if self.is_warm && most.is_none_or(|most| most > REST) {
            if !self.sleep_at_socket(Some(REST))? {
                self.is_warm = !self.producer.discard();
            }
            return Ok(());
        }
        self.sleep_at_socket(most).map(drop)
    }

    /// Returns whether anything but the time has ended the sleep.
    fn sleep_at_socket(&mut self, most: Option<Duration>) -> io::Result<bool> {
        let most = most.map(|most| Timespec {
            tv_sec: most.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: most.subsec_nanos().into(),
        });
        let mut socket = [PollFd::new(&*self.socket, PollFlags::IN | PollFlags::RDHUP)];
        match poll(&mut socket, most.as_ref()) {
            Ok(0) => return Ok(false),
            Err(rustix::io::Errno::INTR) => return Ok(true),
            other => other?,
        };
        let is_over = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        self.is_gone |= socket[0].revents().intersects(is_over) || !self.bell.hear();
        Ok(true)
    }
}

fn broken() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, Ended::Broken)
}

impl Read for Pipe {
    /// Reads what there is, and waits for the first byte. Returns 0 if the other side has ended or
    /// is gone and everything was read.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let mut waiting = Waiting { has_napped: self.is_gone, ..Waiting::default() };
        loop {
            let is_gone = self.is_gone;
            match self.try_read(into, true)? {
                Some(len) => return Ok(len),
                None if is_gone => return Ok(0),
                None => self.wait_for_bytes(false, &mut waiting)?,
            }
        }
    }
}

impl Write for Pipe {
    /// Writes what fits, and waits for room for the first byte. The other side is told by
    /// [`Write::flush`], or when the ring is full.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = Waiting::default();
        loop {
            if self.is_gone {
                return Err(ErrorKind::BrokenPipe.into());
            }
            match self.producer.write(bytes) {
                Ok(0) if !bytes.is_empty() => {}
                Ok(len) => {
                    self.is_warm = true;
                    return Ok(len);
                }
                Err(Ended::Closed) => return Err(ErrorKind::BrokenPipe.into()),
                Err(Ended::Broken) => return Err(broken()),
            }
            self.producer.flush(&self.bell);
            let left = self.left(&mut waiting)?;
            match self.producer.park(Wait::Descriptor, 1) {
                Ok(Some(_)) => {
                    let slept = self.sleep_at_socket(left);
                    self.producer.unpark();
                    slept?;
                }
                Ok(None) | Err(Ended::Closed) => {}
                Err(Ended::Broken) => return Err(broken()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.producer.flush(&self.bell);
        Ok(())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if self.is_own() {
            self.producer.finish(&self.bell);
            self.consumer.finish(&self.bell);
        }
    }
}
