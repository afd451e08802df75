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

/// How long it sleeps on the futex before it sleeps on descriptors: the one costs a call fewer, and
/// the others tell that the other side is gone.
const NAP: Duration = Duration::from_millis(20);

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
        let mut has_napped = self.is_gone;
        loop {
            let is_gone = self.is_gone;
            let spun = self.spin.look(|| Ok(self.consumer.available(1)? > 0));
            match spun.and_then(|_| self.consumer.read(into)) {
                Ok(0) if is_gone => return Ok(0),
                Ok(0) => {}
                Ok(len) => {
                    self.consumer.give_back(&self.other_bell);
                    return Ok(len);
                }
                Err(Ended::Closed) => return Ok(0),
                Err(Ended::Broken) => return Err(broken()),
            }
            let how = if has_napped { Wait::Descriptor } else { Wait::Futex };
            match self.consumer.park(how) {
                Ok(Some(sequence)) if how == Wait::Futex => {
                    has_napped = true;
                    self.consumer.nap(sequence, self.timeout.map_or(NAP, |most| most.min(NAP)));
                    self.consumer.unpark();
                }
                Ok(Some(_)) => {
                    let slept = self.sleep();
                    self.consumer.unpark();
                    slept?;
                }
                Ok(None) | Err(Ended::Closed) => {}
                Err(Ended::Broken) => return Err(broken()),
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
