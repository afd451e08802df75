//! The conditions under which memory is shared.

use super::line::{Line, Rings, Stage};
use keyway_base::Time;
use keyway_ring::{Hello, Refusal};
use std::io;

/// Settings of shared memory at a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    /// Users whose processes may share memory, beside root and the user of this process.
    pub allow_uids: Vec<u32>,
    /// Largest ring, in bytes. A client has two.
    pub ring_max: usize,
}

impl Door {
    fn admits(&self, uid: u32) -> bool {
        uid == 0 || uid == rustix::process::geteuid().as_raw() || self.allow_uids.contains(&uid)
    }
}

/// Answers a hello. Returns whether rings were given.
pub(super) fn open(line: &mut Line, hello: Option<Hello>, now: Time) -> io::Result<bool> {
    let door = line.door.as_deref().ok_or(io::ErrorKind::InvalidInput)?;
    let refusal = match hello {
        None => Some(Refusal::Version),
        Some(_) if !door.admits(keyway_ring::peer_uid(&line.socket)?) => Some(Refusal::User),
        Some(hello) if hello.up.max(hello.down) > door.ring_max => Some(Refusal::Capacity),
        Some(_) => None,
    };
    if let Some(why) = refusal {
        return keyway_ring::refuse(&line.socket, why).map(|()| false);
    }
    let Some(hello) = hello else { return Ok(false) };
    match keyway_ring::answer(&line.socket, &hello, usize::MAX)? {
        Err(_) => Ok(false),
        Ok(shared) => {
            line.stage = Stage::Open(Rings::new(shared, &line.socket, now));
            Ok(true)
        }
    }
}

/// The reason why a connection through shared memory was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingFault {
    /// The server does not share memory with the user of this process.
    User,
    /// The server gives no rings, of any size.
    Refused,
    /// The server does not know `shm://`, or has an error to report.
    NoAnswer,
    /// The memory that was handed over cannot be trusted or mapped.
    Memory,
}

impl RingFault {
    pub(super) fn of(why: Refusal) -> RingFault {
        match why {
            Refusal::User => RingFault::User,
            _ => RingFault::Refused,
        }
    }

    /// Returns its text for logs and error replies.
    pub fn text(self) -> &'static str {
        match self {
            RingFault::User => {
                "the server does not share memory with this process's user; see allow_uids there"
            }
            RingFault::Refused => "the server refuses to share memory",
            RingFault::NoAnswer => {
                "no answer to a hello: too many clients there, or it speaks unix:// only"
            }
            RingFault::Memory => "the shared memory that was handed over cannot be used",
        }
    }
}
