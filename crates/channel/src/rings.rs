//! A pair of rings that never waits, for a poller to use besides its sockets.

use crate::within::{Left, Pair};
use keyway_ring::{Bell, Consumer, Ended, Mapping, Memory, Private, Producer, Shared, Wait};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// A connection over rings, and the socket by which the other side wakes this one or ends.
pub(crate) struct Rings<M: Memory> {
    producer: Producer<M>,
    consumer: Consumer<M>,
    bell: Bell,
    socket: Arc<OwnedFd>,
    is_reader_parked: bool,
    is_writer_parked: bool,
    is_gone: bool,
    /// The rings left for the other end, until they are taken.
    _left: Option<Left>,
}

fn fault(ended: Ended) -> io::Error {
    match ended {
        Ended::Closed => ErrorKind::BrokenPipe.into(),
        Ended::Broken => io::Error::new(ErrorKind::InvalidData, Ended::Broken),
    }
}

impl Rings<Mapping> {
    /// Uses rings that were handed over through `socket`.
    pub fn shared(shared: Shared, socket: UnixStream) -> Self {
        Self::new(shared.out, shared.back, None, socket)
    }
}

impl Rings<Private> {
    /// Uses rings in memory of this process.
    pub fn within(pair: Pair, left: Option<Left>, socket: UnixStream) -> Self {
        Self::new(pair.out, pair.back, left, socket)
    }
}

impl<M: Memory> Rings<M> {
    fn new(out: M, back: M, left: Option<Left>, socket: UnixStream) -> Self {
        let socket = Arc::new(OwnedFd::from(socket));
        Self {
            producer: Producer::new(out),
            consumer: Consumer::new(back),
            bell: Bell::new(Arc::clone(&socket)),
            socket,
            is_reader_parked: false,
            is_writer_parked: false,
            is_gone: false,
            _left: left,
        }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Handles an event of the socket: a wake-up, or the end, which `is_over` tells too.
    pub fn on_socket(&mut self, is_over: bool) {
        self.is_gone |= is_over || !self.bell.hear();
    }

    /// Reads what there is. Returns `WouldBlock` once the bell will ring for more, and 0 at the
    /// end.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if std::mem::take(&mut self.is_reader_parked) {
            self.consumer.unpark();
        }
        loop {
            match self.consumer.read(into) {
                Ok(0) if self.is_gone => return Ok(0),
                Ok(0) => {}
                Ok(len) => {
                    self.consumer.give_back(&self.bell);
                    return Ok(len);
                }
                Err(Ended::Closed) => return Ok(0),
                Err(Ended::Broken) => return Err(fault(Ended::Broken)),
            }
            match self.consumer.park(Wait::Descriptor) {
                Ok(Some(_)) => {
                    self.is_reader_parked = true;
                    return Err(ErrorKind::WouldBlock.into());
                }
                Ok(None) | Err(Ended::Closed) => {}
                Err(Ended::Broken) => return Err(fault(Ended::Broken)),
            }
        }
    }

    /// Writes what fits and publishes it. Returns `WouldBlock` once the bell will ring for room.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if std::mem::take(&mut self.is_writer_parked) {
            self.producer.unpark();
        }
        loop {
            if self.is_gone {
                return Err(ErrorKind::BrokenPipe.into());
            }
            match self.producer.write(bytes).map_err(fault)? {
                0 if !bytes.is_empty() => {}
                len => {
                    self.producer.flush(&self.bell);
                    return Ok(len);
                }
            }
            if self.producer.park(Wait::Descriptor, 1).map_err(fault)?.is_some() {
                self.is_writer_parked = true;
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }

    /// Tells that nothing more will be written.
    pub fn finish(&mut self) {
        self.producer.finish(&self.bell);
    }
}

impl<M: Memory> Drop for Rings<M> {
    fn drop(&mut self) {
        self.producer.finish(&self.bell);
        self.consumer.finish(&self.bell);
    }
}
