//! One connection, whatever it goes over.

use crate::rings::Rings;
use rustix::fd::{AsFd, BorrowedFd};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Rings(Box<Rings>),
}

impl Stream {
    /// The name that both ends put into what they prove.
    pub fn binding(&self) -> &'static [u8] {
        match self {
            Stream::Tcp(_) => b"tcp",
            Stream::Unix(_) => b"unix",
            Stream::Rings(_) => b"shm",
        }
    }

    /// What a poller waits for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Rings(rings) => rings.socket(),
        }
    }

    /// Whether its descriptor tells nothing of room to write.
    pub fn is_rings(&self) -> bool {
        matches!(self, Stream::Rings(_))
    }

    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
            Stream::Rings(rings) => rings.read(into),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Rings(rings) => rings.write(bytes),
        }
    }

    /// Says that nothing more is written. What was written before still arrives.
    pub fn finish(&mut self) {
        // One that is gone already needs not be told.
        match self {
            Stream::Tcp(stream) => drop(stream.shutdown(Shutdown::Write)),
            Stream::Unix(stream) => drop(stream.shutdown(Shutdown::Write)),
            Stream::Rings(rings) => rings.finish(),
        }
    }
}
