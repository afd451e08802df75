//! The pieces of a file. The reader returns them, the writer takes them.

use crate::version::Version;

/// A piece of a file.
///
/// A file is a [`Event::Start`], then any number of auxiliary fields, libraries
/// and keys, then an [`Event::End`]. A key is an [`Event::Key`], then the parts
/// of its value, then an [`Event::KeyEnd`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The file begins, in this version.
    Start(Version),
    /// A property of the file. Unknown ones mean nothing.
    Aux {
        /// Its name, such as `repl-stream-db`.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The source code of a library of functions.
    Library(&'a [u8]),
    /// The database of the keys that follow.
    Database(u64),
    /// How large the database is: a hint.
    Sizes {
        /// Keys there are.
        keys: u64,
        /// Keys of them that expire.
        expiring: u64,
    },
    /// How large a slot of a cluster is: a hint.
    SlotSizes {
        /// The slot.
        slot: u64,
        /// Keys there are.
        keys: u64,
        /// Keys of them that expire.
        expiring: u64,
    },
    /// A key, whose value follows in parts.
    Key(Key<'a>),
    /// A part of the value.
    Part(Part<'a>),
    /// The value is whole.
    KeyEnd,
    /// The file is whole; whether it has a checksum, which then was right. A
    /// server writes none with `rdbchecksum no`.
    End {
        /// Whether there was one.
        checked: bool,
    },
}

/// A key, and what is known of its value beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// Seconds since it was last used, if the server evicts by that.
    pub idle_seconds: Option<u64>,
    /// How often it is used, on the logarithmic scale of servers that evict by
    /// that.
    pub frequency: Option<u8>,
    /// Its value.
    pub value: Opened,
}

impl<'a> Key<'a> {
    /// A key that does not expire.
    pub fn new(name: &'a [u8], value: Opened) -> Self {
        Self { name, expires_ms: None, idle_seconds: None, frequency: None, value }
    }
}

/// A value whose parts follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What it is.
    pub kind: Kind,
    /// How many elements it has, or blocks if it is a stream; `None` for a
    /// string, and for a list in nodes, whose elements nobody has counted.
    pub count: Option<u64>,
    /// When the first field of a hash expires, if the form of the hash says.
    /// That is a hint: it may have been changed or removed since.
    pub earliest_ms: Option<u64>,
}

impl Opened {
    /// A value of so many elements.
    pub fn new(kind: Kind, count: u64) -> Self {
        Self { kind, count: Some(count), earliest_ms: None }
    }
}

/// The kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string: one [`Part::Text`].
    Text,
    /// A list: [`Part::Element`]s from its head on.
    List,
    /// A set: [`Part::Member`]s.
    Set,
    /// A sorted set: [`Part::Scored`], in any order.
    Sorted,
    /// A hash: [`Part::Field`]s.
    Hash,
    /// A hash of which fields may expire: [`Part::Field`]s.
    ExpiringHash,
    /// A stream: for each block a [`Part::Block`] with its fields and entries;
    /// then [`Part::Totals`]; then for each group a [`Part::Group`], its
    /// [`Part::Pending`], [`Part::Consumers`] and the consumers, each with
    /// its [`Part::Owned`].
    Stream,
}

/// The id of an entry of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Milliseconds since 1970, usually.
    pub ms: u64,
    /// What tells apart entries of the same millisecond.
    pub seq: u64,
}

impl Id {
    /// As blocks and pending entries have it: 16 bytes, the highest first.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// Of such bytes.
    pub fn of_bytes(bytes: [u8; 16]) -> Self {
        let value = u128::from_be_bytes(bytes);
        Self { ms: (value >> 64) as u64, seq: value as u64 }
    }
}

/// A part of a value.
///
/// The reader does not find duplicate elements, or pending entries without a
/// consumer: both checks need the whole collection in memory. The caller makes
/// them if it needs them. The reader accepts an empty collection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'a> {
    /// The string.
    Text(&'a [u8]),
    /// An element of a list.
    Element(&'a [u8]),
    /// A member of a set.
    Member(&'a [u8]),
    /// A member of a sorted set.
    Scored {
        /// The member.
        member: &'a [u8],
        /// Its score, which is a number.
        score: f64,
    },
    /// A field of a hash.
    Field {
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// When it expires, in milliseconds since 1970.
        expires_ms: Option<u64>,
    },
    /// A block of entries of a stream.
    Block(StreamBlock),
    /// The name of a field that entries of the block may share.
    BlockField(&'a [u8]),
    /// An entry, with so many fields. Deleted entries are left out.
    Entry {
        /// Its id.
        id: Id,
        /// How many [`Part::EntryField`]s follow.
        fields: u64,
        /// Whether they are those of the block, in their order.
        shares_fields: bool,
    },
    /// A field of an entry.
    EntryField {
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// What a stream knows of all its entries.
    Totals(Totals),
    /// A group of consumers.
    Group {
        /// Its name.
        name: &'a [u8],
        /// The newest entry that was delivered.
        last: Id,
        /// How many entries were delivered, of those ever added: -1 if nobody
        /// knows, `None` before Redis 7.0.
        entries_read: Option<i64>,
        /// How many [`Part::Pending`] follow.
        pending: u64,
    },
    /// An entry that was delivered and not acknowledged.
    Pending {
        /// The entry, which may be deleted by now.
        id: Id,
        /// When it was last delivered, in milliseconds since 1970.
        delivered_ms: u64,
        /// How often it was delivered.
        deliveries: u64,
    },
    /// How many [`Part::Consumer`]s follow.
    Consumers(u64),
    /// A consumer of the group.
    Consumer {
        /// Its name.
        name: &'a [u8],
        /// When it last tried to read, in milliseconds since 1970.
        seen_ms: u64,
        /// When it last was given something: -1 if never, `None` before
        /// Redis 7.2.
        active_ms: Option<i64>,
        /// How many [`Part::Owned`] follow.
        pending: u64,
    },
    /// A pending entry of the group that the consumer has.
    Owned(Id),
}

/// A block of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBlock {
    /// The id that those of its entries count from.
    pub first: Id,
    /// Entries it has.
    pub entries: u64,
    /// Deleted entries that were still in it.
    pub deleted: u64,
    /// How many [`Part::BlockField`]s follow.
    pub fields: u64,
    /// Bytes of the block as it was read, which the writer does not need.
    pub len: u64,
}

/// What a stream knows of all its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Entries it has.
    pub len: u64,
    /// The newest id it ever had.
    pub newest: Id,
    /// What Redis 7.0 and later know besides.
    pub history: Option<History>,
    /// Groups that follow.
    pub groups: u64,
}

/// What a stream remembers of entries that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// The oldest entry.
    pub first: Id,
    /// The greatest id that was ever deleted.
    pub deleted: Id,
    /// Entries ever added.
    pub added: u64,
}
