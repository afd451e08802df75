//! The pieces of a file. The reader returns them, the writer takes them.

use crate::version::Version;

/// A piece of a file.
///
/// A file is a [`Event::Start`], then any number of auxiliary fields, libraries and keys, then an
/// [`Event::End`]. A key is an [`Event::Key`], then the parts of its value, then an
/// [`Event::KeyEnd`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The start of the file, with its version.
    Start(Version),
    /// A property of the file. Unknown properties are to be ignored.
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
    /// The size of the database, as a hint.
    Sizes {
        /// Number of keys.
        keys: u64,
        /// Number of keys that expire.
        expiring: u64,
    },
    /// The size of a slot of a cluster, as a hint.
    SlotSizes {
        /// The slot.
        slot: u64,
        /// Number of keys.
        keys: u64,
        /// Number of keys that expire.
        expiring: u64,
    },
    /// A key. Its value follows in parts.
    Key(Key<'a>),
    /// A part of the value.
    Part(Part<'a>),
    /// The end of the value.
    KeyEnd,
    /// The end of the file. `checked` says whether it has a checksum, which was then right. With
    /// `rdbchecksum no` a server writes none.
    End {
        /// True if there was a checksum.
        checked: bool,
    },
}

/// A key, with what is known of its value in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// Number of seconds since it was last used, if the server evicts by that.
    pub idle_seconds: Option<u64>,
    /// How often it is used, on the logarithmic scale of servers that evict by that.
    pub frequency: Option<u8>,
    /// Its value.
    pub value: Opened,
}

impl<'a> Key<'a> {
    /// Creates a key that does not expire.
    pub fn new(name: &'a [u8], value: Opened) -> Self {
        Self { name, expires_ms: None, idle_seconds: None, frequency: None, value }
    }
}

/// A value whose parts follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its kind.
    pub kind: Kind,
    /// Number of its elements, or of its blocks if it is a stream. `None` for a string, and for a
    /// list in nodes, whose elements have not been counted.
    pub count: Option<u64>,
    /// When the first field of a hash expires, if the form of the hash contains it. This is a hint:
    /// the field may have been changed or removed since.
    pub earliest_ms: Option<u64>,
}

impl Opened {
    /// Creates a value with this number of elements.
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
    /// A stream. For each block there is a [`Part::Block`] with its fields and entries. Then there
    /// is [`Part::Totals`]. Then there is for each group a [`Part::Group`], its [`Part::Pending`],
    /// [`Part::Consumers`] and the consumers, each with its [`Part::Owned`].
    Stream,
}

/// The id of an entry of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Milliseconds since 1970, usually.
    pub ms: u64,
    /// Distinguishes entries of the same millisecond.
    pub seq: u64,
}

impl Id {
    /// Returns the form in blocks and pending entries: 16 bytes, the highest first.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// Returns the id of such bytes.
    pub fn of_bytes(bytes: [u8; 16]) -> Self {
        let value = u128::from_be_bytes(bytes);
        Self { ms: (value >> 64) as u64, seq: value as u64 }
    }
}

/// A part of a value.
///
/// The reader does not detect duplicate elements, or pending entries without a consumer: both
/// checks need the whole collection in memory. The caller makes them if it needs them. The reader
/// accepts an empty collection.
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
        /// Its score, which is never NaN.
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
    /// An entry, with this number of fields. Deleted entries are left out.
    Entry {
        /// Its id.
        id: Id,
        /// Number of [`Part::EntryField`]s that follow.
        fields: u64,
        /// True if the fields are those of the block, in their order.
        shares_fields: bool,
    },
    /// A field of an entry.
    EntryField {
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// What a stream records about all its entries.
    Totals(Totals),
    /// A group of consumers.
    Group {
        /// Its name.
        name: &'a [u8],
        /// The newest entry that was delivered.
        last: Id,
        /// Number of delivered entries, of those ever added. -1 if unknown, and `None` before Redis
        /// 7.0.
        entries_read: Option<i64>,
        /// Number of [`Part::Pending`] that follow.
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
    /// Number of [`Part::Consumer`]s that follow.
    Consumers(u64),
    /// A consumer of the group.
    Consumer {
        /// Its name.
        name: &'a [u8],
        /// When it last tried to read, in milliseconds since 1970.
        seen_ms: u64,
        /// When it last received something. -1 if never, and `None` before Redis 7.2.
        active_ms: Option<i64>,
        /// Number of [`Part::Owned`] that follow.
        pending: u64,
    },
    /// A pending entry of the group that belongs to the consumer.
    Owned(Id),
}

/// A block of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBlock {
    /// The id to which the ids of its entries are relative.
    pub first: Id,
    /// Number of entries.
    pub entries: u64,
    /// Number of deleted entries that are still in it.
    pub deleted: u64,
    /// Number of [`Part::BlockField`]s that follow.
    pub fields: u64,
    /// Length of the block as it was read, in bytes. The writer does not need it.
    pub len: u64,
}

/// What a stream records about all its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Number of entries.
    pub len: u64,
    /// The newest id that it ever had.
    pub newest: Id,
    /// Additional data of Redis 7.0 and later.
    pub history: Option<History>,
    /// Number of groups that follow.
    pub groups: u64,
}

/// What a stream records about deleted entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// The id of the oldest entry.
    pub first: Id,
    /// The greatest id that was ever deleted.
    pub deleted: Id,
    /// Number of entries ever added.
    pub added: u64,
}
