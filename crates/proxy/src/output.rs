/// Bytes on their way to a socket: appended at the end, taken from the front
/// as the socket has room.
#[derive(Debug)]
pub struct Output {
    bytes: Vec<u8>,
    sent: usize,
    /// Bytes at the front that are needed no more; all that were sent, unless
    /// it `keeps_sent`.
    released: usize,
    /// What was sent stays until [`Output::release`].
    keeps_sent: bool,
    capacity_kept_max: u32,
}

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
        Self { bytes: Vec::new(), sent: 0, released: 0, keeps_sent: false, capacity_kept_max }
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

    /// What has not been sent yet.
    #[inline]
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Number of bytes not sent yet.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether everything was sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == self.sent
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
        self.sent += len;
        assert!(self.sent <= self.bytes.len(), "more bytes sent than there were");
        if !self.keeps_sent {
            self.released = self.sent;
            self.tidy();
        }
    }

    /// Makes room where much at the front was released.
    #[inline]
    fn tidy(&mut self) {
        if self.released == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
            self.released = 0;
            if self.bytes.capacity() > self.capacity_kept_max as usize {
                self.bytes = Vec::new();
            }
        } else if self.released > SENT_KEPT_MAX && self.released > self.bytes.len() / 2 {
            self.bytes.drain(..self.released);
            self.sent -= self.released;
            self.released = 0;
        }
    }

    /// Drops everything up to `len` unsent bytes from the end.
    pub fn keep_last(&mut self, len: usize) {
        let start = self.bytes.len() - len.min(self.len());
        self.bytes.drain(..start);
        self.sent = 0;
        self.released = 0;
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.bytes = Vec::new();
        self.sent = 0;
        self.released = 0;
    }

    /// Bytes of memory held.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}
