//! How two processes get a shared pair of rings: through a unix socket, which then stays open and
//! shows each that the other is there. The accepting side makes the memory.

use crate::segment::{CAPACITY_MAX, CAPACITY_MIN, Mapping, Segment};
use rustix::cmsg_space;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Length of a [`Hello`] and of its answer, in bytes.
pub const HELLO_LEN: usize = 32;

/// The beginning of a hello. No client of any other protocol sends it first.
pub const HELLO_MAGIC: [u8; 8] = *b"\0KWSHM1\n";

/// The beginning of every version's hello.
const HELLO_START: &[u8] = b"\0KWSHM";

const ANSWER_MAGIC: [u8; 8] = *b"\0KWSHM1!";

/// Descriptors that come with an answer: the memory.
const HANDED: usize = 1;

/// The request of the connecting side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Capacity of the ring to the accepting side, in bytes.
    pub up: usize,
    /// Capacity of the ring back, in bytes.
    pub down: usize,
}

/// The reason why rings are not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The process's user is not allowed.
    User,
    /// The capacities are invalid, or more than is permitted.
    Capacity,
    /// The system has no memory or no descriptors.
    System,
    /// Shared memory is not used here; only the socket is.
    Unwanted,
    /// The version of the hello is not supported, or it is not a hello.
    Version,
    /// A reason that this version does not know.
    Other(u16),
}

impl Refusal {
    fn code(self) -> u16 {
        match self {
            Refusal::User => 1,
            Refusal::Capacity => 2,
            Refusal::System => 3,
            Refusal::Unwanted => 4,
            Refusal::Version => 5,
            Refusal::Other(code) => code,
        }
    }

    fn of(code: u16) -> Refusal {
        match code {
            1 => Refusal::User,
            2 => Refusal::Capacity,
            3 => Refusal::System,
            4 => Refusal::Unwanted,
            5 => Refusal::Version,
            other => Refusal::Other(other),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::User => f.write_str("the user of this process may not share memory there"),
            Refusal::Capacity => f.write_str("rings of these capacities are not given"),
            Refusal::System => f.write_str("there was no memory for rings"),
            Refusal::Unwanted => f.write_str("no memory is shared there"),
            Refusal::Version => f.write_str("this version of rings is not spoken there"),
            Refusal::Other(code) => write!(f, "memory was refused for reason {code}"),
        }
    }
}

impl Hello {
    /// Creates a hello. The capacities are rounded up to valid ones.
    pub fn new(up: usize, down: usize) -> Hello {
        let round = |len: usize| len.clamp(CAPACITY_MIN, CAPACITY_MAX).next_power_of_two();
        Hello { up: round(up), down: round(down) }
    }

    /// Returns it as bytes.
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        encode(HELLO_MAGIC, 0, self)
    }

    /// Returns whether a connection's first bytes may be the beginning of a hello, of this version
    /// or another. No other protocol begins like that.
    pub fn may_begin(bytes: &[u8]) -> bool {
        let len = bytes.len().min(HELLO_START.len());
        bytes[..len] == HELLO_START[..len]
    }

    /// Reads the first bytes of a connection. Returns `None` if they are not a hello, so that the
    /// connection uses another protocol.
    pub fn decode(bytes: &[u8; HELLO_LEN]) -> Option<Hello> {
        let (code, hello) = decode(bytes, HELLO_MAGIC)?;
        (code == 0).then_some(hello)
    }
}

/// Returns `magic | code u16 | 6 zeros | up u64 | down u64`.
fn encode(magic: [u8; 8], code: u16, hello: &Hello) -> [u8; HELLO_LEN] {
    let mut bytes = [0; HELLO_LEN];
    bytes[..8].copy_from_slice(&magic);
    bytes[8..10].copy_from_slice(&code.to_le_bytes());
    bytes[16..24].copy_from_slice(&(hello.up as u64).to_le_bytes());
    bytes[24..].copy_from_slice(&(hello.down as u64).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; HELLO_LEN], magic: [u8; 8]) -> Option<(u16, Hello)> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let capacity = |at: usize| usize::try_from(number(at)).ok();
    let code = u16::from_le_bytes([bytes[8], bytes[9]]);
    (bytes[..8] == magic).then_some((code, Hello { up: capacity(16)?, down: capacity(24)? }))
}

/// The rings that a process shares.
#[derive(Debug)]
pub struct Shared {
    /// The memory of both.
    pub segment: Segment,
    /// The ring that it writes.
    pub out: Mapping,
    /// The ring that it reads.
    pub back: Mapping,
}

/// Returns the user of the other end of a unix socket, as the system knows it.
///
/// # Errors
/// Returns an error of the system.
pub fn peer_uid(socket: impl AsFd) -> io::Result<u32> {
    Ok(sockopt::socket_peercred(socket)?.uid.as_raw())
}

/// Answers a hello: makes the rings and hands them over. `bytes_max` bounds both together.
///
/// # Errors
/// Returns an error of the system if the answer cannot be sent; then nothing is shared. `Ok(Err)`
/// is a refusal that was sent, after which the socket can be used as before.
pub fn answer(
    socket: impl AsFd,
    hello: &Hello,
    bytes_max: usize,
) -> io::Result<Result<Shared, Refusal>> {
    let is_given = hello.up.saturating_add(hello.down) <= bytes_max;
    let made = match is_given {
        true => make(hello),
        false => Err(Refusal::Capacity),
    };
    match made {
        Err(why) => refuse(socket, why).map(|()| Err(why)),
        // They are mapped by now: a client that is told that it has rings does have them.
        Ok(shared) => {
            let memory = shared.segment.descriptor();
            send(socket.as_fd(), &encode(ANSWER_MAGIC, 0, hello), &[memory])?;
            Ok(Ok(shared))
        }
    }
}

/// Refuses a hello. The client may go on over the socket.
///
/// # Errors
/// Returns an error of the system.
pub fn refuse(socket: impl AsFd, why: Refusal) -> io::Result<()> {
    send(socket.as_fd(), &encode(ANSWER_MAGIC, why.code(), &Hello { up: 0, down: 0 }), &[])
}

fn make(hello: &Hello) -> Result<Shared, Refusal> {
    let why = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidInput => Refusal::Capacity,
        _ => Refusal::System,
    };
    let segment = Segment::create(&[hello.up, hello.down]).map_err(why)?;
    let (out, back) = (segment.ring(1).map_err(why)?, segment.ring(0).map_err(why)?);
    Ok(Shared { segment, out, back })
}

/// Asks the other end of a socket for rings, and waits for the answer.
///
/// # Errors
/// Returns an error of the system, or `InvalidData` if the answer is not one. `Ok(Err)` is a
/// refusal, after which the socket can be used as before.
pub fn ask(socket: impl AsFd, hello: &Hello) -> io::Result<Result<Shared, Refusal>> {
    let socket = socket.as_fd();
    say(socket, hello)?;
    hear(socket, hello)
}

/// Sends the hello, without waiting: the first half of [`ask`].
///
/// # Errors
/// Returns an error of the system.
pub fn say(socket: impl AsFd, hello: &Hello) -> io::Result<()> {
    send(socket.as_fd(), &hello.encode(), &[])
}

/// Receives the answer to `hello`: the second half of [`ask`]. On a non-blocking socket it may be
/// called again after `WouldBlock`: an answer is sent, and arrives, in one piece.
///
/// # Errors
/// Returns errors as [`ask`] does.
pub fn hear(socket: impl AsFd, hello: &Hello) -> io::Result<Result<Shared, Refusal>> {
    let (bytes, handed) = receive(socket.as_fd())?;
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    let (code, given) =
        decode(&bytes, ANSWER_MAGIC).ok_or_else(|| wrong("no answer to a hello"))?;
    if code != 0 {
        return Ok(Err(Refusal::of(code)));
    }
    if given != *hello {
        return Err(wrong("rings of other capacities than were asked for"));
    }
    let [memory]: [OwnedFd; HANDED] =
        handed.try_into().map_err(|_| wrong("an answer without its descriptor"))?;
    let segment = Segment::open(memory, &[given.up, given.down])?;
    let (out, back) = (segment.ring(0)?, segment.ring(1)?);
    if !(out.is_ring() && back.is_ring()) {
        return Err(wrong("memory without rings"));
    }
    Ok(Ok(Shared { segment, out, back }))
}

fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8; HELLO_LEN],
    handed: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(HANDED))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !handed.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(handed));
        debug_assert!(fits, "the buffer is for as many descriptors as there are");
    }
    // It is the first message, or the first after a hello: there is room for it.
    match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)? {
        HELLO_LEN => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives the answer, and the descriptors that came with its first byte.
fn receive(socket: BorrowedFd<'_>) -> io::Result<([u8; HELLO_LEN], Vec<OwnedFd>)> {
    let (mut bytes, mut len, mut handed) = ([0; HELLO_LEN], 0, Vec::new());
    while len < HELLO_LEN {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(HANDED))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut rest = [IoSliceMut::new(&mut bytes[len..])];
        let got = match recvmsg(socket, &mut rest, &mut control, RecvFlags::CMSG_CLOEXEC) {
            // The rest does not come: the other side sends all of it at once.
            Err(Errno::AGAIN) if len > 0 => return Err(io::ErrorKind::InvalidData.into()),
            Err(Errno::INTR) => continue,
            outcome => outcome?.bytes,
        };
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        len += got;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                handed.extend(descriptors);
            }
        }
    }
    Ok((bytes, handed))
}
