//! The commands of a replica in front of its PSYNC, answered on a socket that nobody else reads.

use super::Candidate;
use crate::system::{System, Watch, real};
use keyway_base::Limits;
use keyway_rdb::replication::{CommandStep, CommandStream, ReplicaProfile, Request};
use keyway_resp::ParseLimits;
use rustix::event::PollFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Bytes in front of a PSYNC at most. A replica says some hundred.
const SAID_LEN_MAX: usize = 16 << 10;

impl Candidate {
    /// Answers a replica up to its PSYNC. `socket` must not block. Waits for each of its commands
    /// for `patience` at most.
    ///
    /// # Errors
    /// The replica leaves, is silent, or says what no replica says.
    pub fn introduced(socket: OwnedFd, peer: &str, patience: Duration) -> io::Result<Self> {
        Self::introduced_in(&real(), socket, peer, patience)
    }

    /// As [`Candidate::introduced`], on another system.
    ///
    /// # Errors
    /// As there.
    pub fn introduced_in(
        system: &Arc<dyn System>,
        socket: OwnedFd,
        peer: &str,
        patience: Duration,
    ) -> io::Result<Self> {
        let mut profile = ReplicaProfile::default();
        let mut said = Vec::new();
        loop {
            let mut stream = CommandStream::new(0, None, ParseLimits::of(&Limits::default()));
            let (consumed, words) = match stream.read(&said).map_err(|_| nonsense())? {
                CommandStep::Command { consumed, command } => {
                    (consumed, command.words().map(<[u8]>::to_vec).collect::<Vec<_>>())
                }
                CommandStep::More { .. } => {
                    receive(&**system, &socket, &mut said, patience)?;
                    continue;
                }
            };
            said.drain(..consumed);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let Some((name, rest)) = words.split_first() else { return Err(nonsense()) };
            match name.to_ascii_lowercase().as_slice() {
                b"ping" => answer(&socket, b"+PONG\r\n")?,
                b"replconf" => {
                    // An unknown option may be ignored.
                    let _ = profile.replconf(rest);
                    answer(&socket, b"+OK\r\n")?;
                }
                b"psync" => {
                    let request = Request::parse(rest).map_err(|_| nonsense())?;
                    return Ok(Self { socket, peer: peer.to_owned(), profile, request });
                }
                _ => return Err(nonsense()),
            }
        }
    }
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the replica says what no replica says")
}

/// Appends what the replica says next.
fn receive(
    system: &dyn System,
    socket: &OwnedFd,
    said: &mut Vec<u8>,
    patience: Duration,
) -> io::Result<()> {
    if said.len() >= SAID_LEN_MAX {
        return Err(nonsense());
    }
    let mut bytes = [0; 1024];
    loop {
        match recv(socket, &mut bytes[..], RecvFlags::empty()) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((len, _)) => {
                said.extend_from_slice(bytes.get(..len).unwrap_or_default());
                return Ok(());
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let until = system.now() + patience;
                match system.wait(&mut [Watch::new(socket, PollFlags::IN)], until) {
                    Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends a short answer: the buffer of a new socket has room for it.
fn answer(socket: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    match send(socket, bytes, SendFlags::NOSIGNAL) {
        Ok(len) if len == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(error) => Err(error.into()),
    }
}
