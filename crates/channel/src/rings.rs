//! A pair of rings that never waits: what a poller can have beside its sockets.

use keyway_ring::{Bell, Consumer, Ended, Mapping, Producer, Shared, Wait};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// A connection over rings, and the socket at which the other side rings or ends.
pub(crate) struct Rings {
    producer: Producer<Mapping>,
    consumer: Consumer<Mapping>,
    bell: Bell,
    socket: Arc<OwnedFd>,
    is_reader_parked: bool,
    is_writer_parked: bool,
    is_gone: bool,
}

fn fault(ended: Ended) -> io::Error {
    match ended {
        Ended::Closed => ErrorKind::BrokenPipe.into(),
        Ended::Broken => io::Error::new(ErrorKind::InvalidData, Ended::Broken),
    }
}

impl Rings {
    /// Over rings that were handed over through `socket`.
    pub fn new(shared: Shared, socket: UnixStream) -> Self {
        let socket = Arc::new(OwnedFd::from(socket));
        Self {
            producer: Producer::new(shared.out),
            consumer: Consumer::new(shared.back),
            bell: Bell::new(Arc::clone(&socket)),
            socket,
            is_reader_parked: false,
            is_writer_parked: false,
            is_gone: false,
        }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The socket has something: rings, or the end, which `is_over` tells too.
    pub fn on_socket(&mut self, is_over: bool) {
        self.is_gone |= is_over || !self.bell.hear();
    }

    /// What there is; `WouldBlock` once the bell will ring for more, 0 at the end.
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

    /// Writes what fits and lets the other side see it; `WouldBlock` once the bell will ring for room.
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

    /// Says that nothing more is written.
    pub fn finish(&mut self) {
        self.producer.finish(&self.bell);
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        self.producer.finish(&self.bell);
        self.consumer.finish(&self.bell);
    }
}
