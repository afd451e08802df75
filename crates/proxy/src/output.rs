use keyway_base::Part;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Bytes on their way to a socket. They are appended at the end, and taken from the front when the
/// socket has room.
#[derive(Debug)]
pub struct Output {
    bytes: Vec<u8>,
    /// Parts that are inserted between them, by their offsets.
    parts: VecDeque<Inserted>,
    /// Number of bytes of the parts.
    parts_len: usize,
    sent: usize,
    /// Number of bytes at the front that are no longer needed: all that were sent, unless it
    /// `keeps_sent`.
    released: usize,
    /// True if sent bytes stay until [`Output::release`].
    keeps_sent: bool,
    capacity_kept_max: u32,
}

/// Bytes that are stored elsewhere.
#[derive(Debug)]
struct Inserted {
    /// The index of the output's own byte before which they are inserted.
    at: usize,
    part: Part,
}

/// Capacity for parts that an emptied output keeps, in parts.
const PARTS_KEPT_MAX: usize = 64;

/// Number of sent bytes that are kept before unsent ones. With more, the rest is moved down. If it
/// were smaller, memory would be moved often. If it were larger, memory would be held longer.
const SENT_KEPT_MAX: usize = 64 << 10;

/// Default capacity that an emptied output keeps. If it were larger, a burst's memory would stay.
/// If it were smaller, a deep pipeline would allocate again in every turn.
const CAPACITY_KEPT_MAX: u32 = 64 << 10;

impl Default for Output {
    fn default() -> Self {
        Self::keeping(CAPACITY_KEPT_MAX)
    }
}

impl Output {
    /// Creates an output that keeps up to this many bytes of capacity when it is empty.
    pub fn keeping(capacity_kept_max: u32) -> Self {
        Self {
            bytes: Vec::new(),
            parts: VecDeque::new(),
            parts_len: 0,
            sent: 0,
            released: 0,
            keeps_sent: false,
            capacity_kept_max,
        }
    }

    /// Keeps what is sent from here on until it is released.
    pub(crate) fn keep_sent(&mut self) {
        self.keeps_sent = true;
    }

    /// Returns the number of unreleased bytes, sent or not, of an output that keeps what was sent.
    #[inline]
    pub(crate) fn held_len(&self) -> usize {
        self.bytes.len() - self.released
    }

    /// Returns the oldest `len` unreleased bytes.
    ///
    /// # Panics
    /// Panics if there are fewer.
    pub(crate) fn oldest(&self, len: usize) -> &[u8] {
        self.held(0, len)
    }

    /// Returns `len` of the unreleased bytes, from the one at `start` on.
    ///
    /// # Panics
    /// Panics if there are fewer.
    pub(crate) fn held(&self, start: usize, len: usize) -> &[u8] {
        &self.bytes[self.released + start..][..len]
    }

    /// Returns whether sent bytes are kept until they are released.
    pub(crate) fn keeps_sent(&self) -> bool {
        self.keeps_sent
    }

    /// Returns whether the oldest `len` unreleased bytes were sent.
    #[inline]
    pub(crate) fn has_sent(&self, len: usize) -> bool {
        self.sent - self.released >= len
    }

    /// Releases the oldest `len` bytes, which must all have been sent.
    ///
    /// # Panics
    /// Panics if fewer were sent.
    #[inline]
    pub(crate) fn release(&mut self, len: usize) {
        assert!(self.has_sent(len), "released before it was sent");
        self.released += len;
        self.tidy();
    }

    /// Returns the unsent bytes of an output without parts.
    #[inline]
    pub fn unsent(&self) -> &[u8] {
        assert!(!self.has_parts(), "there are pieces");
        &self.bytes[self.sent..]
    }

    /// Returns whether the unsent bytes are in pieces.
    #[inline]
    pub fn has_parts(&self) -> bool {
        self.parts_len > 0
    }

    /// Fills `into` with the pieces of the first `len_max` unsent bytes, and returns their number.
    pub fn pieces<'o>(&'o self, into: &mut [IoSlice<'o>], mut len_max: usize) -> usize {
        let mut at = self.sent;
        let last = &self.bytes[self.parts.back().map_or(at, |last| last.at)..];
        let between = self.parts.iter().flat_map(|inserted| {
            let own = &self.bytes[at..inserted.at];
            at = inserted.at;
            [own, inserted.part.bytes()]
        });
        let mut count = 0;
        for piece in between.chain([last]).filter(|piece| !piece.is_empty()) {
            let Some(slice) = into.get_mut(count).filter(|_| len_max > 0) else { break };
            let piece = &piece[..piece.len().min(len_max)];
            *slice = IoSlice::new(piece);
            len_max -= piece.len();
            count += 1;
        }
        count
    }

    /// Appends bytes without copying them.
    pub fn append(&mut self, part: Part) {
        assert!(!self.keeps_sent, "what is kept is not in pieces");
        if part.is_empty() {
            return;
        }
        self.parts_len += part.len();
        self.parts.push_back(Inserted { at: self.bytes.len(), part });
    }

    /// Inserts bytes before that one of its own, without copying them. It must be one of those that
    /// were appended after its last part, and not sent.
    pub fn insert(&mut self, at: usize, part: Part) {
        assert!(!self.keeps_sent, "what is kept is not in pieces");
        let from = self.parts.back().map_or(self.sent, |last| last.at);
        assert!((from..=self.bytes.len()).contains(&at), "it is sent, or not there yet");
        self.parts_len += part.len();
        self.parts.push_back(Inserted { at, part });
    }

    /// Returns the number of parts that have not been sent.
    pub fn parts_count(&self) -> usize {
        self.parts.len()
    }

    /// Returns the number of unsent bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent + self.parts_len
    }

    /// Returns whether everything was sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether there is something to send of which no byte was sent yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.sent == 0 && !self.bytes.is_empty()
    }

    /// Returns the buffer to which bytes are appended.
    #[inline]
    pub fn buf(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Notes that the socket took `len` bytes.
    #[inline]
    pub fn advance(&mut self, len: usize) {
        if self.has_parts() {
            return self.advance_pieces(len);
        }
        self.sent += len;
        assert!(self.sent <= self.bytes.len(), "more bytes sent than there were");
        if !self.keeps_sent {
            self.released = self.sent;
            self.tidy();
        }
    }

    /// Does the same if there are parts.
    #[cold]
    fn advance_pieces(&mut self, mut len: usize) {
        while let Some(first) = self.parts.front_mut() {
            let before = first.at - self.sent;
            if len <= before {
                break;
            }
            self.sent = first.at;
            len -= before;
            let of_part = len.min(first.part.len());
            first.part.advance(of_part);
            self.parts_len -= of_part;
            len -= of_part;
            if !first.part.is_empty() {
                break;
            }
            self.parts.pop_front();
        }
        self.sent += len;
        assert!(self.sent <= self.bytes.len(), "more bytes sent than there were");
        self.released = self.sent;
        if !self.has_parts() {
            if self.parts.capacity() > PARTS_KEPT_MAX {
                self.parts = VecDeque::new();
            }
            self.tidy();
        } else if self.released == self.bytes.len() || self.is_mostly_released() {
            self.parts.iter_mut().for_each(|inserted| inserted.at -= self.released);
            self.move_down();
            if self.bytes.is_empty() && self.bytes.capacity() > self.capacity_kept_max as usize {
                self.bytes = Vec::new();
            }
        }
    }

    /// Frees space if much at the front was released, for an output without parts.
    #[inline]
    fn tidy(&mut self) {
        if self.released == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
            self.released = 0;
            if self.bytes.capacity() > self.capacity_kept_max as usize {
                self.bytes = Vec::new();
            }
        } else if self.is_mostly_released() {
            self.move_down();
        }
    }

    /// Returns whether less is moved down than is gained.
    #[inline]
    fn is_mostly_released(&self) -> bool {
        self.released > SENT_KEPT_MAX && self.released > self.bytes.len() / 2
    }

    #[cold]
    fn move_down(&mut self) {
        self.bytes.drain(..self.released);
        self.sent -= self.released;
        self.released = 0;
    }

    /// Drops everything except the last `len` unsent bytes, for an output without parts.
    pub fn keep_last(&mut self, len: usize) {
        debug_assert!(!self.has_parts(), "there are pieces");
        let start = self.bytes.len() - len.min(self.len());
        self.bytes.drain(..start);
        self.sent = 0;
        self.released = 0;
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.bytes = Vec::new();
        self.parts = VecDeque::new();
        self.parts_len = 0;
        self.sent = 0;
        self.released = 0;
    }

    /// Returns the bytes of memory held.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() + self.parts.capacity() * size_of::<Inserted>()
    }
}
