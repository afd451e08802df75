//! A pair of rings as a connection: bytes both ways, and the socket that tells when the other side
//! is gone.

use crate::ends::{Consumer, Ended, Producer};
use crate::handover::Shared;
use crate::park::Wait;
use crate::segment::Mapping;
use crate::sleep::{Bell, Spin};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Which side of a handover it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// That which connected.
    Client,
    /// That which was connected to.
    Server,
}

/// How long nothing happens before the memory that this side writes is given back.
const REST: Duration = Duration::from_secs(1);

/// A connection through shared memory, whose reads and writes wait.
#[derive(Debug)]
pub struct Pipe {
    producer: Producer<Mapping>,
    consumer: Consumer<Mapping>,
    own_bell: OwnedFd,
    other_bell: Bell,
    socket: UnixStream,
    spin: Spin,
    /// How long a read or a write waits; for ever when `None`.
    timeout: Option<Duration>,
    is_gone: bool,
    /// Whether anything was written since the memory was given back.
    is_warm: bool,
}

impl Pipe {
    /// Over rings that were handed over through `socket`, where nothing more is said.
    ///
    /// # Errors
    /// Of the system, when the memory cannot be mapped; `InvalidData` when it holds no rings.
    pub fn new(shared: Shared, side: Side, socket: UnixStream, spin: Spin) -> io::Result<Pipe> {
        let (out, back) = match side {
            Side::Client => (0, 1),
            Side::Server => (1, 0),
        };
        let (out, back) = (shared.segment.ring(out)?, shared.segment.ring(back)?);
        if !(out.is_ring() && back.is_ring()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "memory without rings"));
        }
        Ok(Pipe {
            producer: Producer::new(out),
            consumer: Consumer::new(back),
            own_bell: shared.own_bell,
            other_bell: Bell::new(shared.other_bell),
            socket,
            spin,
            timeout: None,
            is_gone: false,
            is_warm: false,
        })
    }

    /// Bounds how long a read or a write waits; without a bound it waits for ever.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Says that nothing more will be written; what comes can still be read.
    pub fn finish(&mut self) {
        self.producer.finish(&self.other_bell);
    }

    /// Writes what fits of `out`, tells the other side, and reads what there is into `into`; waits
    /// until one of both can be done. How much was written, and read: `(0, 0)` when the other side
    /// has ended or is gone and everything was read. Who writes much and is answered much does
    /// both at once by this; two sides that both only write would wait for each other.
    ///
    /// # Errors
    /// As of reads and writes; but that nobody reads any more is no error while there is something
    /// to read.
    pub fn exchange(&mut self, out: &[u8], into: &mut [u8]) -> io::Result<(usize, usize)> {
        loop {
            let is_gone = self.is_gone;
            let written = match self.producer.write(out) {
                Ok(len) => len,
                Err(Ended::Closed) => 0,
                Err(Ended::Broken) => return Err(broken()),
            };
            self.is_warm |= written > 0;
            self.producer.flush(&self.other_bell);
            match self.try_read(into, out.is_empty())? {
                Some(read) => return Ok((written, read)),
                None if written > 0 => return Ok((written, 0)),
                None if is_gone => return Ok((0, 0)),
                None => self.wait_for_either(!out.is_empty())?,
            }
        }
    }

    /// Reads what there is: `None` when that is nothing yet, 0 when nothing will come. It looks
    /// for a while first where that `may_spin`.
    fn try_read(&mut self, into: &mut [u8], may_spin: bool) -> io::Result<Option<usize>> {
        let spun = match may_spin {
            true => self.spin.look(|| Ok(self.consumer.available(1)? > 0)),
            false => Ok(false),
        };
        match spun.and_then(|_| self.consumer.read(into)) {
            Ok(0) => Ok(None),
            Ok(len) => {
                self.consumer.give_back(&self.other_bell);
                Ok(Some(len))
            }
            Err(Ended::Closed) => Ok(Some(0)),
            Err(Ended::Broken) => Err(broken()),
        }
    }

    /// Sleeps until there is something to read, or room to write if that is wanted.
    fn wait_for_either(&mut self, wants_room: bool) -> io::Result<()> {
        let nothing = matches!(self.consumer.park(Wait::Descriptor), Ok(Some(_)));
        let is_full = match wants_room && nothing {
            true => !matches!(self.producer.park(Wait::Descriptor, 1), Ok(None)),
            false => true,
        };
        let slept = if nothing && is_full { self.sleep() } else { Ok(()) };
        self.consumer.unpark();
        self.producer.unpark();
        slept
    }

    /// Sleeps until the other side has rung or is gone.
    fn sleep(&mut self) -> io::Result<()> {
        if !self.is_warm || self.timeout.is_some_and(|timeout| timeout <= REST) {
            return self.sleep_for(self.timeout);
        }
        match self.sleep_for(Some(REST)) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                self.is_warm = !self.producer.discard();
                self.sleep_for(self.timeout.map(|timeout| timeout - REST))
            }
            outcome => outcome,
        }
    }

    fn sleep_for(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let (bell, gone) = (PollFlags::IN, PollFlags::IN | PollFlags::RDHUP);
        let mut both = [PollFd::new(&self.own_bell, bell), PollFd::new(&self.socket, gone)];
        let ready = match poll(&mut both, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            other => other?,
        };
        // Nothing is said on the socket any more: whatever it tells, it is over.
        self.is_gone |= !both[1].revents().is_empty();
        if ready == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Empty already when it was the socket.
        let _ = rustix::io::read(self.own_bell.as_fd(), &mut [0; 8]);
        Ok(())
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Ended::Broken)
}

impl Read for Pipe {
    /// Reads what there is, waiting for the first byte; 0 when the other side has ended or is gone
    /// and everything was read.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            let is_gone = self.is_gone;
            match self.try_read(into, true)? {
                Some(len) => return Ok(len),
                None if is_gone => return Ok(0),
                None => self.wait_for_either(false)?,
            }
        }
    }
}

impl Write for Pipe {
    /// Writes what fits, waiting for room for the first byte. The other side is told with
    /// [`Write::flush`], or when it is full.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            if self.is_gone {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            match self.producer.write(bytes) {
                Ok(0) if !bytes.is_empty() => {}
                Ok(len) => {
                    self.is_warm = true;
                    return Ok(len);
                }
                Err(Ended::Closed) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(Ended::Broken) => return Err(broken()),
            }
            self.producer.flush(&self.other_bell);
            match self.producer.park(Wait::Descriptor, 1) {
                Ok(Some(_)) => {
                    let slept = self.sleep();
                    self.producer.unpark();
                    slept?;
                }
                Ok(None) | Err(Ended::Closed) => {}
                Err(Ended::Broken) => return Err(broken()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.producer.flush(&self.other_bell);
        Ok(())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.producer.finish(&self.other_bell);
        self.consumer.finish(&self.other_bell);
    }
}
