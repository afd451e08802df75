//! A replica's socket: bytes on their way out, and what the replica says.

use crate::wake::{Waited, Wake};
use keyway_base::REPLICA_UNSENT_LEN_MAX;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::time::Instant;

/// Longest part of a command that a replica may leave incomplete. It says nothing but REPLCONF.
const SAID_LEN_MAX: usize = 4 << 10;

/// A socket that does not block.
pub(super) struct Outlet {
    socket: OwnedFd,
    /// Bytes for the system. It has taken those before `sent`.
    out: Vec<u8>,
    sent: usize,
    /// Bytes that came and were not understood yet.
    said: Vec<u8>,
}

/// The reason why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The replica has closed it.
    Closed,
    /// The system's word.
    System(String),
    /// The replica says more than a replica does.
    TooMuchSaid,
}

impl From<Errno> for Ended {
    fn from(error: Errno) -> Self {
        match error {
            Errno::CONNRESET | Errno::PIPE => Self::Closed,
            other => Self::System(std::io::Error::from(other).to_string()),
        }
    }
}

impl Drop for Outlet {
    /// Ends the connection, also where the descriptor has copies.
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

impl Outlet {
    pub(super) fn new(socket: OwnedFd, said: Vec<u8>) -> Self {
        Self { socket, out: Vec::new(), sent: 0, said }
    }

    /// The buffer to append to.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Returns whether more is to be fetched.
    pub(super) fn has_room(&self) -> bool {
        self.unsent() < REPLICA_UNSENT_LEN_MAX
    }

    /// Number of bytes that the system has not taken.
    pub(super) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Bytes that the buffer takes in memory.
    pub(super) fn buffered(&self) -> usize {
        self.out.capacity()
    }

    /// Returns the words of the replica that were not understood yet.
    pub(super) fn said(&mut self) -> &mut Vec<u8> {
        &mut self.said
    }

    /// Sends as much as the system takes. Returns the number of bytes.
    pub(super) fn flush(&mut self) -> Result<usize, Ended> {
        let before = self.sent;
        while self.sent < self.out.len() {
            match send(&self.socket, &self.out[self.sent..], SendFlags::NOSIGNAL) {
                Ok(len) => self.sent = (self.sent + len).min(self.out.len()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let taken = self.sent - before;
        if self.sent == self.out.len() {
            self.out.clear();
            self.out.shrink_to(2 * REPLICA_UNSENT_LEN_MAX);
            self.sent = 0;
        } else if self.sent > REPLICA_UNSENT_LEN_MAX {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        Ok(taken)
    }

    /// Reads what the replica has said. Returns whether it has said anything.
    pub(super) fn receive(&mut self) -> Result<bool, Ended> {
        let mut scratch = [0; SAID_LEN_MAX];
        let mut has_more = false;
        loop {
            match recv(&self.socket, &mut scratch[..], RecvFlags::empty()) {
                Ok((0, _)) => return Err(Ended::Closed),
                Ok((len, _)) => self.said.extend_from_slice(&scratch[..len.min(SAID_LEN_MAX)]),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(has_more),
                Err(error) => return Err(error.into()),
            }
            has_more = true;
            if self.said.len() > SAID_LEN_MAX {
                // The caller takes whole commands out before it reads on.
                return Ok(true);
            }
        }
    }

    /// Checks that what is left of the replica's words, with whole commands taken out, is short.
    pub(super) fn check_said(&self) -> Result<(), Ended> {
        if self.said.len() > SAID_LEN_MAX { Err(Ended::TooMuchSaid) } else { Ok(()) }
    }

    /// Waits until the replica says something, takes something, or a time has come.
    pub(super) fn wait(&self, wake: &Wake, until: Instant) -> Waited {
        let events = match self.unsent() {
            0 => PollFlags::IN,
            _ => PollFlags::IN | PollFlags::OUT,
        };
        wake.wait(Some((self.socket.as_fd(), events)), until)
    }
}
