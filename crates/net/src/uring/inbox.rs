//! What has come for each socket and is not read yet.

use super::buffers::Piece;
use crate::Token;
use crate::moving::Outcome;

/// No piece.
const NONE: u32 = u32::MAX;

/// What the ring does for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Nothing: the worker reads for itself.
    Idle,
    /// It receives what comes.
    Armed,
    /// It has been told to stop, and has not said that it did.
    Stopping,
}

/// One socket.
pub(super) struct Conn {
    pub(super) token: Token,
    /// Tells it from those that had its number before.
    pub(super) generation: u32,
    head: u32,
    tail: u32,
    /// Bytes of it that are in the buffers.
    pub(super) waiting: u32,
    pub(super) reading: Reading,
    pub(super) outcome: Option<Outcome>,
    /// The worker has read all there was while the ring was stopping.
    pub(super) is_awaited: bool,
    /// The system is asked to tell of room.
    pub(super) polls_room: bool,
    /// The system is asked to tell of the other side's end.
    pub(super) polls_hangup: bool,
    /// It is among those with something to read.
    pub(super) is_listed: bool,
    /// When it was told of last.
    pub(super) told_at: u32,
    /// How often the kernel had been called when something was ordered last.
    pub(super) ordered_at: u32,
    /// Taken out of the buffers, since the worker did not read for a while; comes first.
    pub(super) held: Vec<u8>,
}

impl Conn {
    pub(super) fn new(token: Token, generation: u32) -> Self {
        Conn {
            token,
            generation,
            head: NONE,
            tail: NONE,
            waiting: 0,
            reading: Reading::Idle,
            outcome: None,
            is_awaited: false,
            polls_room: false,
            polls_hangup: false,
            is_listed: false,
            told_at: 0,
            ordered_at: 0,
            held: Vec::new(),
        }
    }

    /// Whether something that came is still in the buffers.
    pub(super) fn has_pieces(&self) -> bool {
        self.head != NONE
    }
}

struct Entry {
    piece: Piece,
    next: u32,
}

/// Pieces of all sockets, each a chain of its own.
#[derive(Default)]
pub(super) struct Pieces {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl Pieces {
    /// Appends; returns whether it became one with the last.
    pub(super) fn push(&mut self, conn: &mut Conn, piece: Piece) -> bool {
        conn.waiting += piece.len;
        if conn.tail != NONE {
            let last = &mut self.entries[conn.tail as usize].piece;
            if let Some(joined) = last.joined(piece) {
                *last = joined;
                return true;
            }
        }
        let entry = Entry { piece, next: NONE };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        match conn.tail {
            NONE => conn.head = index,
            tail => self.entries[tail as usize].next = index,
        }
        conn.tail = index;
        false
    }

    pub(super) fn pop(&mut self, conn: &mut Conn) -> Option<Piece> {
        if conn.head == NONE {
            return None;
        }
        let index = conn.head;
        let Entry { piece, next } = self.entries[index as usize];
        conn.head = next;
        conn.waiting -= piece.len;
        if next == NONE {
            conn.tail = NONE;
        }
        self.free.push(index);
        Some(piece)
    }
}
