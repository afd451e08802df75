//! The received bytes of each socket that are unread.

use super::buffers::Piece;
use crate::Token;
use crate::moving::Outcome;

/// Means "no piece".
const NONE: u32 = u32::MAX;

/// What the ring does for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Nothing: the worker reads for itself.
    Idle,
    /// It receives.
    Armed,
    /// It has been told to stop, and has not confirmed it.
    Stopping,
}

/// One socket.
pub(super) struct Conn {
    pub(super) token: Token,
    /// Distinguishes it from earlier lines with the same number.
    pub(super) generation: u32,
    head: u32,
    tail: u32,
    /// Number of its bytes in the buffers.
    pub(super) waiting: u32,
    pub(super) reading: Reading,
    pub(super) outcome: Option<Outcome>,
    /// True if the worker has read everything while the ring was stopping.
    pub(super) is_awaited: bool,
    /// True if the kernel was asked to report room.
    pub(super) polls_room: bool,
    /// True if the kernel was asked to report the peer's end.
    pub(super) polls_hangup: bool,
    /// True if it is listed among sockets with unread bytes.
    pub(super) is_listed: bool,
    /// The time it was last reported, as a count of checks.
    pub(super) told_at: u32,
    /// Number of calls of the kernel at its latest order.
    pub(super) ordered_at: u32,
    /// Bytes moved out of the buffers, because the worker did not read for a while. They come
    /// first. Most sockets never have any.
    #[allow(clippy::box_collection, reason = "a socket at rest pays one word, not three")]
    held: Option<Box<Vec<u8>>>,
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
            held: None,
        }
    }

    /// Returns whether bytes were taken out of the buffers.
    pub(super) fn has_held(&self) -> bool {
        self.held.is_some()
    }

    /// Takes the bytes that were taken out of the buffers.
    pub(super) fn take_held(&mut self) -> Vec<u8> {
        self.held.take().map_or_else(Vec::new, |held| *held)
    }

    /// Appends to the bytes that were taken out of the buffers before.
    pub(super) fn hold(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.held.get_or_insert_default().extend_from_slice(bytes);
        }
    }

    /// Returns whether received bytes are still in the buffers.
    pub(super) fn has_pieces(&self) -> bool {
        self.head != NONE
    }
}

struct Entry {
    piece: Piece,
    next: u32,
}

/// The pieces of all sockets, as one chain for each.
#[derive(Default)]
pub(super) struct Pieces {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl Pieces {
    /// Appends a piece. Returns whether it was joined to the last one.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker has one for each descriptor.
    #[test]
    fn a_socket_at_rest_is_small() {
        assert!(size_of::<Option<Conn>>() <= 48, "{} bytes", size_of::<Option<Conn>>());
    }

    #[test]
    fn held_bytes_come_out_once_and_in_order() {
        let mut conn = Conn::new(Token(1), 1);
        conn.hold(b"");
        assert!(!conn.has_held() && conn.take_held().is_empty());
        conn.hold(b"ab");
        conn.hold(b"c");
        assert!(conn.has_held());
        assert_eq!(conn.take_held(), b"abc");
        assert!(!conn.has_held());
    }
}
