//! A unit: the effects of what nobody is to see half of.

use keyway_resp::reply;

/// Bytes that a thread keeps for its next unit. They are not counted: a process has few
/// threads.
const KEPT_LEN: usize = 4 << 10;

/// Longest line with the number of words or the length of a word.
const NUMBER_LEN_MAX: usize = 1 + 20 + 2;

/// Commands that are told as one.
pub(crate) struct Unit {
    /// The store's effects, and how often reading was begun: a unit of another store, or of
    /// readers that are gone, is left over.
    owner: (usize, u64),
    bytes: Vec<u8>,
    len: usize,
    /// The database of the first command, and that of the last.
    first: u32,
    last: u32,
    /// True if the request that is being executed has changed anything.
    is_changed: bool,
    /// It was longer than all the room.
    is_lost: bool,
}

impl Unit {
    pub(crate) const fn new() -> Self {
        Self {
            owner: (0, 0),
            bytes: Vec::new(),
            len: 0,
            first: 0,
            last: 0,
            is_changed: false,
            is_lost: false,
        }
    }

    /// Returns whether it belongs to a store, or is left over from readers of that store.
    pub(super) fn is_of(&self, store: usize) -> bool {
        self.owner.0 == store
    }

    /// Forgets what belongs to another owner.
    pub(super) fn belong_to(&mut self, owner: (usize, u64)) {
        if self.owner != owner {
            self.bytes = Vec::new();
            self.clear();
            self.owner = owner;
        }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.len, self.is_lost) = (0, false);
        if self.bytes.capacity() > KEPT_LEN {
            self.bytes = Vec::new();
        }
    }

    /// Forgets its commands, which are more than there is room for.
    pub(super) fn lose(&mut self) {
        (self.bytes, self.is_lost) = (Vec::new(), true);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Bytes of its buffer, if they are counted.
    pub(super) fn counted(&self) -> usize {
        let capacity = self.bytes.capacity();
        if capacity > KEPT_LEN { capacity } else { 0 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of commands, not counting SELECT.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn databases(&self) -> (u32, u32) {
        (self.first, self.last)
    }

    /// Notes whether the request that is being executed has changed anything; returns what
    /// was noted before.
    pub(crate) fn set_changed(&mut self, is_changed: bool) -> bool {
        std::mem::replace(&mut self.is_changed, is_changed)
    }

    /// Adds a command that is for no database.
    pub(crate) fn push_beside<'a>(&mut self, words: impl ExactSizeIterator<Item = &'a [u8]>) {
        let database = if self.len == 0 { 0 } else { self.last };
        self.push(database, words);
    }

    /// Adds a command.
    pub(crate) fn push<'a>(
        &mut self,
        database: u32,
        words: impl ExactSizeIterator<Item = &'a [u8]>,
    ) {
        if self.len == 0 {
            self.first = database;
        } else if self.last != database {
            write_select(database, &mut self.bytes);
        }
        self.last = database;
        self.len += 1;
        if self.is_lost {
            return;
        }
        reply::array(&mut self.bytes, words.len());
        words.for_each(|word| reply::bulk(&mut self.bytes, word));
    }
}

/// Appends a command.
pub(super) fn write_command(words: &[&[u8]], out: &mut Vec<u8>) {
    reply::array(out, words.len());
    words.iter().for_each(|word| reply::bulk(out, word));
}

/// The most bytes that [`write_command`] appends.
pub(super) fn command_len_max(words: &[&[u8]]) -> usize {
    words.iter().fold(NUMBER_LEN_MAX, |len, word| len + NUMBER_LEN_MAX + word.len() + 2)
}

/// Appends a SELECT.
pub(super) fn write_select(database: u32, out: &mut Vec<u8>) {
    reply::array(out, 2);
    reply::bulk(out, b"SELECT");
    reply::bulk(out, database.to_string().as_bytes());
}
