use keyway_base::Part;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Bytes on their way to a socket: appended at the end, taken from the front
/// as the socket has room.
#[derive(Debug)]
pub struct Output {
    bytes: Vec<u8>,
    /// What goes between them, by where it goes.
    parts: VecDeque<Inserted>,
    /// How many bytes the parts have.
    parts_len: usize,
    sent: usize,
    /// Bytes at the front that are needed no more; all that were sent, unless
    /// it `keeps_sent`.
    released: usize,
    /// What was sent stays until [`Output::release`].
    keeps_sent: bool,
    capacity_kept_max: u32,
}

/// Bytes that lie elsewhere.
#[derive(Debug)]
struct Inserted {
    /// In front of which of the output's own bytes they go.
    at: usize,
    part: Part,
}

/// Room for parts that an emptied output keeps, in parts.
const PARTS_KEPT_MAX: usize = 64;

/// Sent bytes are kept in front of unsent ones up to this many, then the rest
/// is moved down. Smaller moves memory often; larger holds it longer.
const SENT_KEPT_MAX: usize = 64 << 10;

/// Capacity kept by an emptied output unless told otherwise. Larger makes a
/// burst's memory stay; smaller allocates again in every turn of a deep
/// pipeline.
const CAPACITY_KEPT_MAX: u32 = 64 << 10;

impl Default for Output {
    fn default() -> Self {
        Self::keeping(CAPACITY_KEPT_MAX)
    }
}

impl Output {
    /// An output that keeps up to this many bytes of capacity when it is empty.
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

    /// Number of bytes not released yet, sent or not: of an output that keeps what
    /// was sent.
    #[inline]
    pub(crate) fn held_len(&self) -> usize {
        self.bytes.len() - self.released
    }

    /// The oldest `len` bytes that were not released.
    ///
    /// # Panics
    /// When there are less.
    pub(crate) fn oldest(&self, len: usize) -> &[u8] {
        self.held(0, len)
    }

    /// `len` of the bytes that were not released, from the one at `start` on.
    ///
    /// # Panics
    /// When there are less.
    pub(crate) fn held(&self, start: usize, len: usize) -> &[u8] {
        &self.bytes[self.released + start..][..len]
    }

    /// Whether what is sent is kept until it is released.
    pub(crate) fn keeps_sent(&self) -> bool {
        self.keeps_sent
    }

    /// Whether the oldest `len` bytes that were not released were sent.
    #[inline]
    pub(crate) fn has_sent(&self, len: usize) -> bool {
        self.sent - self.released >= len
    }

    /// Lets the oldest `len` bytes go, all of them sent.
    ///
    /// # Panics
    /// When not so many were sent.
    #[inline]
    pub(crate) fn release(&mut self, len: usize) {
        assert!(self.has_sent(len), "released before it was sent");
        self.released += len;
        self.tidy();
    }

    /// What has not been sent yet, of an output without parts.
    #[inline]
    pub fn unsent(&self) -> &[u8] {
        assert!(!self.has_parts(), "there are pieces");
        &self.bytes[self.sent..]
    }

    /// Whether what has not been sent is in pieces.
    #[inline]
    pub fn has_parts(&self) -> bool {
        self.parts_len > 0
    }

    /// The pieces of the first `len_max` bytes of what has not been sent, as many as `into`
    /// takes, and how many they are.
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

    /// Puts bytes in front of that one of its own, without copying them: of those that
    /// were appended behind its last part, and not sent.
    pub fn insert(&mut self, at: usize, part: Part) {
        assert!(!self.keeps_sent, "what is kept is not in pieces");
        let from = self.parts.back().map_or(self.sent, |last| last.at);
        assert!((from..=self.bytes.len()).contains(&at), "it is sent, or not there yet");
        self.parts_len += part.len();
        self.parts.push_back(Inserted { at, part });
    }

    /// How many parts have not been sent.
    pub fn parts_count(&self) -> usize {
        self.parts.len()
    }

    /// Number of bytes not sent yet.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent + self.parts_len
    }

    /// Whether everything was sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is something to send of which not a byte was sent yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.sent == 0 && !self.bytes.is_empty()
    }

    /// Where to append.
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

    /// The same where there are parts.
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

    /// Makes room where much at the front was released, of an output without parts.
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

    /// Whether less is moved down than is gained by it.
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

    /// Drops everything up to `len` unsent bytes from the end, of an output without parts.
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

    /// Bytes of memory held.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() + self.parts.capacity() * size_of::<Inserted>()
    }
}
