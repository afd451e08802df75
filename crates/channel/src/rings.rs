//! A pair of rings that never waits: what a poller can have beside its sockets.

use keyway_ring::{Bell, Consumer, Ended, Mapping, Producer, Shared, Side, Wait};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;

/// A connection over rings. It has two descriptors: the bell, which rings when there is something to do,
/// and the socket, on which nothing comes but the end of the other side.
pub(crate) struct Rings {
    producer: Producer<Mapping>,
    consumer: Consumer<Mapping>,
    own_bell: OwnedFd,
    other_bell: Bell,
    socket: UnixStream,
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
    pub fn new(shared: Shared, side: Side, socket: UnixStream) -> io::Result<Self> {
        let (out, back) = match side {
            Side::Client => (0, 1),
            Side::Server => (1, 0),
        };
        let (out, back) = (shared.segment.ring(out)?, shared.segment.ring(back)?);
        if !(out.is_ring() && back.is_ring()) {
            return Err(io::Error::new(ErrorKind::InvalidData, "memory without rings"));
        }
        Ok(Self {
            producer: Producer::new(out),
            consumer: Consumer::new(back),
            own_bell: shared.own_bell,
            other_bell: Bell::new(shared.other_bell),
            socket,
            is_reader_parked: false,
            is_writer_parked: false,
            is_gone: false,
        })
    }

    pub fn bell(&self) -> BorrowedFd<'_> {
        self.own_bell.as_fd()
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The bell has rung.
    pub fn on_bell(&mut self) {
        // Empty if it was read before.
        let _ = rustix::io::read(&self.own_bell, &mut [0; 8]);
    }

    /// The socket has something: on it only the end is told.
    pub fn on_socket(&mut self) {
        self.is_gone = true;
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
                    self.consumer.give_back(&self.other_bell);
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
                    self.producer.flush(&self.other_bell);
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
        self.producer.finish(&self.other_bell);
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        self.producer.finish(&self.other_bell);
        self.consumer.finish(&self.other_bell);
    }
}
