//! One connection over any kind of channel.

use crate::rings::Rings;
use crate::secure::Secured;
use crate::sockets::is_within_host;
use keyway_bus::Vouch;
use keyway_ring::{Mapping, Private};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Rings(Box<Rings<Mapping>>),
    Within(Box<Rings<Private>>),
    Tls(Box<Secured>),
}

impl Stream {
    /// Returns the name that both ends include in their proofs.
    pub fn binding(&self) -> Vec<u8> {
        match self {
            Stream::Tcp(_) => b"tcp".to_vec(),
            Stream::Unix(_) => b"unix".to_vec(),
            Stream::Rings(_) => b"shm".to_vec(),
            Stream::Within(_) => b"mem".to_vec(),
            Stream::Tls(secured) => secured.binding(),
        }
    }

    /// Returns a check of the other side's certificate, if there are certificates.
    pub fn vouch(&self) -> Option<Vouch> {
        match self {
            Stream::Tls(secured) => Some(secured.vouch()),
            _ => None,
        }
    }

    /// Returns the address of the other side, for people: an address, or a process and its user.
    pub fn from(&self) -> Option<Box<str>> {
        let of_tcp = |tcp: &TcpStream| {
            let there = tcp.peer_addr().ok()?;
            Some(SocketAddr::new(there.ip().to_canonical(), there.port()).to_string().into())
        };
        match self {
            Stream::Tcp(tcp) => of_tcp(tcp),
            Stream::Tls(secured) => of_tcp(secured.tcp()),
            _ => {
                let who = sockopt::socket_peercred(self.fd()).ok()?;
                Some(format!("process {} of user {}", who.pid, who.uid.as_raw()).into())
            }
        }
    }

    /// Returns whether it stays within the host.
    pub fn is_within_host(&self) -> bool {
        match self {
            Stream::Tcp(tcp) => is_within_host(tcp),
            Stream::Tls(secured) => is_within_host(secured.tcp()),
            Stream::Unix(_) | Stream::Rings(_) | Stream::Within(_) => true,
        }
    }

    /// Returns whether a read of fewer bytes than there was room for is the last one for now.
    pub fn is_empty_after(&self, is_short: bool) -> bool {
        is_short && matches!(self, Stream::Tcp(_) | Stream::Unix(_))
    }

    /// Returns the descriptor to poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Rings(rings) => rings.socket(),
            Stream::Within(rings) => rings.socket(),
            Stream::Tls(secured) => secured.fd(),
        }
    }

    /// Returns whether its descriptor does not report room to write.
    pub fn is_rings(&self) -> bool {
        matches!(self, Stream::Rings(_) | Stream::Within(_))
    }

    /// Handles an event of its socket. `is_over` tells that it is the end.
    pub fn on_socket(&mut self, is_over: bool) {
        match self {
            Stream::Rings(rings) => rings.on_socket(is_over),
            Stream::Within(rings) => rings.on_socket(is_over),
            _ => {}
        }
    }

    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
            Stream::Rings(rings) => rings.read(into),
            Stream::Within(rings) => rings.read(into),
            Stream::Tls(secured) => secured.read(into),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Rings(rings) => rings.write(bytes),
            Stream::Within(rings) => rings.write(bytes),
            Stream::Tls(secured) => secured.write(bytes),
        }
    }

    /// Returns whether written bytes wait here for the system.
    pub fn holds_back(&mut self) -> bool {
        match self {
            Stream::Tls(secured) => secured.flush().is_err(),
            _ => false,
        }
    }

    /// Tells that nothing more will be written. Earlier bytes still arrive.
    pub fn finish(&mut self) {
        // A peer that is gone already need not be told.
        match self {
            Stream::Tcp(stream) => drop(stream.shutdown(Shutdown::Write)),
            Stream::Unix(stream) => drop(stream.shutdown(Shutdown::Write)),
            Stream::Rings(rings) => rings.finish(),
            Stream::Within(rings) => rings.finish(),
            Stream::Tls(secured) => secured.finish(),
        }
    }
}
