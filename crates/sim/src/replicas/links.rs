//! The links between stores: sockets whose other ends the simulator has.
//!
//! ```text
//!  Follower ◄──► socket pair ◄──► Wire: delay, pieces, silence, cuts ◄──► socket pair ◄──► feed
//! ```

use crate::random::Random;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};
use std::collections::VecDeque;

const MILLI: u64 = 1_000_000;
/// Connections that wait for a store that does not take them.
const WAITING_MAX: usize = 8;
/// How soon bytes are tried again that a socket has no room for.
const RETRY: u64 = MILLI;

/// The settings of the links of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkOptions {
    /// Longest delay of a piece.
    pub(super) delay_max: u64,
    /// Bytes on their way in one direction.
    pub(super) window: usize,
    /// Longest piece.
    pub(super) piece_max: usize,
    /// Bytes that a socket takes before they are read, about.
    pub(super) buffer: usize,
}

/// All links.
pub(super) struct Links {
    options: LinkOptions,
    doors: Vec<Door>,
    wires: Vec<Wire>,
    /// Bytes that were delivered.
    pub(super) delivered: u64,
    /// Connections that were cut.
    pub(super) cuts: u64,
}

/// The place where a store takes connections.
struct Door {
    is_open: bool,
    waiting: VecDeque<OwnedFd>,
}

/// One connection.
struct Wire {
    ends: [OwnedFd; 2],
    /// From the first end to the second, and back.
    ways: [Way; 2],
    silent_until: u64,
    /// The bytes after which it is cut.
    cut_in: Option<u64>,
    is_over: bool,
}

#[derive(Default)]
struct Way {
    pieces: VecDeque<(u64, Vec<u8>)>,
    held: usize,
    last_at: u64,
    has_ended: bool,
    retry_at: u64,
}

impl Links {
    pub(super) fn new(options: LinkOptions, stores: usize) -> Self {
        let door = || Door { is_open: true, waiting: VecDeque::new() };
        let doors = (0..stores).map(|_| door()).collect();
        Self { options, doors, wires: Vec::new(), delivered: 0, cuts: 0 }
    }

    /// The address of a store.
    pub(super) fn path(index: usize) -> String {
        format!("/{index}")
    }

    /// Connects to a store. Returns the end of who connects.
    pub(super) fn connect(
        &mut self,
        path: &str,
        now: u64,
        random: &mut Random,
    ) -> Result<OwnedFd, Errno> {
        let index: Option<usize> = path.strip_prefix('/').and_then(|number| number.parse().ok());
        let door = index.and_then(|index| self.doors.get_mut(index)).ok_or(Errno::NOENT)?;
        if !door.is_open {
            return Err(Errno::CONNREFUSED);
        }
        if door.waiting.len() >= WAITING_MAX {
            return Err(Errno::AGAIN);
        }
        let (near, one) = pair(self.options.buffer)?;
        let (other, far) = pair(self.options.buffer)?;
        door.waiting.push_back(far);
        let silent_until = now + random.below(self.options.delay_max + 1);
        self.wires.push(Wire {
            ends: [one, other],
            ways: Default::default(),
            silent_until,
            cut_in: None,
            is_over: false,
        });
        Ok(near)
    }

    /// Takes a connection to a store.
    pub(super) fn accept(&mut self, index: usize) -> Option<OwnedFd> {
        self.doors.get_mut(index)?.waiting.pop_front()
    }

    /// Opens or closes the door of a store. Connections that waited are refused.
    pub(super) fn open(&mut self, index: usize, is_open: bool) {
        if let Some(door) = self.doors.get_mut(index) {
            door.is_open = is_open;
            door.waiting.clear();
        }
    }

    /// The number of connections.
    pub(super) fn len(&self) -> usize {
        self.wires.len()
    }

    /// Cuts a connection once so many more bytes have passed.
    pub(super) fn cut(&mut self, index: usize, bytes: u64) {
        if let Some(wire) = self.wires.get_mut(index) {
            wire.cut_in = Some(bytes);
        }
    }

    /// Has a connection stand still up to a time.
    pub(super) fn silence(&mut self, index: usize, until: u64) {
        if let Some(wire) = self.wires.get_mut(index) {
            wire.silent_until = until;
        }
    }

    /// Cuts all connections.
    pub(super) fn cut_all(&mut self) {
        self.cuts += self.wires.len() as u64;
        self.wires.clear();
    }

    /// Has everything work.
    pub(super) fn heal(&mut self) {
        for wire in &mut self.wires {
            (wire.silent_until, wire.cut_in) = (0, None);
        }
        for door in &mut self.doors {
            door.is_open = true;
        }
    }

    /// Moves the bytes that are due.
    pub(super) fn pump(&mut self, now: u64, random: &mut Random) {
        let Self { options, wires, delivered, cuts, .. } = self;
        for wire in wires.iter_mut() {
            if wire.silent_until <= now {
                *delivered += wire.pump(now, options, random);
                *cuts += u64::from(wire.cut_in == Some(0));
            }
        }
        wires.retain(|wire| !wire.is_over);
    }

    /// The times at which something is to be done.
    pub(super) fn due(&self, now: u64) -> impl Iterator<Item = u64> + '_ {
        self.wires.iter().filter_map(move |wire| {
            if wire.silent_until > now {
                return Some(wire.silent_until);
            }
            let due = |way: &Way| way.pieces.front().map(|(at, _)| (*at).max(way.retry_at));
            wire.ways.iter().filter_map(due).min()
        })
    }
}

impl Wire {
    fn pump(&mut self, now: u64, options: &LinkOptions, random: &mut Random) -> u64 {
        let mut delivered = 0;
        for index in 0..2 {
            let (from, to) = (&self.ends[index], &self.ends[1 - index]);
            let way = &mut self.ways[index];
            way.take(from, now, options, random);
            match way.give(to, now, &mut self.cut_in) {
                Ok(len) => delivered += len,
                Err(_) => self.is_over = true,
            }
            self.is_over |= way.has_ended && way.pieces.is_empty() || self.cut_in == Some(0);
        }
        delivered
    }
}

impl Way {
    fn take(&mut self, from: &OwnedFd, now: u64, options: &LinkOptions, random: &mut Random) {
        while !self.has_ended && self.held < options.window {
            let room = options.piece_max.min(options.window - self.held);
            let mut piece = vec![0; random.between(1, room as u64) as usize];
            match recv(from, &mut piece[..], RecvFlags::empty()) {
                Ok((0, _)) => self.has_ended = true,
                Ok((len, _)) => {
                    piece.truncate(len);
                    self.held += len;
                    self.last_at = self.last_at.max(now + random.below(options.delay_max + 1));
                    self.pieces.push_back((self.last_at, piece));
                }
                Err(Errno::AGAIN) => return,
                Err(_) => self.has_ended = true,
            }
        }
    }

    /// Delivers what is due. Returns the number of bytes.
    fn give(&mut self, to: &OwnedFd, now: u64, cut_in: &mut Option<u64>) -> Result<u64, Errno> {
        let mut given = 0;
        while let Some((at, piece)) = self.pieces.front_mut()
            && *at <= now
            && self.retry_at <= now
        {
            let len = cut_in.map_or(piece.len(), |left| piece.len().min(left as usize));
            if len == 0 {
                break;
            }
            match send(to, &piece[..len], SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    piece.drain(..sent);
                    if piece.is_empty() {
                        self.pieces.pop_front();
                    }
                    self.held -= sent;
                    given += sent as u64;
                    if let Some(left) = cut_in {
                        *left -= sent as u64;
                    }
                }
                Err(Errno::AGAIN) => self.retry_at = now + RETRY,
                Err(error) => return Err(error),
            }
        }
        Ok(given)
    }
}

/// Two connected sockets that do not block.
fn pair(buffer: usize) -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    for end in [&one, &other] {
        sockopt::set_socket_send_buffer_size(end, buffer)?;
    }
    Ok((one, other))
}
