//! Why bytes are not RDB, and at which offset.

use std::fmt;

/// What is wrong, and at which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    offset: u64,
    what: What,
}

impl Fault {
    pub(crate) fn new(offset: u64, what: What) -> Self {
        Self { offset, what }
    }

    /// Returns the number of bytes before the part that is wrong. A part inside a listpack, a
    /// ziplist or similar has the offset of the whole block.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns what is wrong there.
    pub fn what(&self) -> What {
        self.what
    }
}

/// What is wrong with bytes that should be RDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The bytes end before the file or the value does.
    Early,
    /// The file begins with neither `REDIS` nor `VALKEY`.
    Signature,
    /// The version of the format is unknown.
    Version(u16),
    /// The first byte of a length is invalid.
    LengthEncoding(u8),
    /// The first byte of a string is invalid.
    StringEncoding(u8),
    /// A string is longer than the reader may hold.
    StringLong {
        /// Its announced length.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// A block (a listpack or similar) is longer than the reader may hold.
    BlockLong {
        /// Its announced length.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// A string packed with LZF does not unpack to its announced length.
    Packed,
    /// A block is incomplete, or contains more or less than it announces.
    Block(Form),
    /// A node of a list is in a container that is neither an element nor a listpack.
    Container(u64),
    /// A score is no number.
    Score,
    /// No server can have written the time of a key or a field.
    Time,
    /// A stream contradicts itself.
    Stream(StreamPart),
    /// An opcode is unknown.
    Opcode(u8),
    /// A type of value is unknown.
    Type(u8),
    /// A value belongs to a module. Only that module can read it.
    ModuleValue(ModuleName),
    /// Data of a module is among the keys.
    ModuleData(ModuleName),
    /// A library of functions has the form of a release candidate of Redis 7.0.
    EarlyLibrary,
    /// Slots of a cluster of Valkey are being imported by the server: some of the file's keys do
    /// not belong to it yet.
    SlotImport,
    /// Metadata of modules is attached to keys, as in newer versions of Redis.
    KeyMetadata,
    /// A command is among the keys, as Valkey 9.2 writes it while it saves without a fork.
    InlineCommand,
    /// The checksum at the end is not that of the bytes before it.
    Checksum {
        /// The checksum in the file.
        found: u64,
        /// The checksum of the bytes.
        computed: u64,
    },
}

/// The forms of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A listpack, of Redis 5.0 and later.
    Listpack,
    /// A ziplist, up to Redis 6.2.
    Ziplist,
    /// A zipmap, up to Redis 2.4.
    Zipmap,
    /// A set of integers.
    Integers,
}

/// The parts of a stream that can contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPart {
    /// The key of a block is no id, or not greater than the entries before it.
    BlockId,
    /// A block's counts do not match its entries.
    Block,
    /// An entry's id is not greater than the one before it.
    EntryId,
    /// There are more or fewer entries than the stream announces, or entries newer than its newest
    /// id.
    Length,
    /// A group has read a negative number of entries.
    Group,
    /// Pending entries are not in the order of their ids.
    Pending,
}

/// The name of a module's type, as in RDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleName([u8; 9]);

impl ModuleName {
    /// Converts the number of a type: nine characters of 6 bits each, and a version in the lowest
    /// ten bits.
    pub(crate) fn of(number: u64) -> Self {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let letter = |at: usize| LETTERS[(number >> (58 - 6 * at)) as usize & 63];
        Self(std::array::from_fn(letter))
    }
}

impl fmt::Display for ModuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listpack => "listpack",
            Self::Ziplist => "ziplist",
            Self::Zipmap => "zipmap",
            Self::Integers => "set of integers",
        })
    }
}

impl fmt::Display for StreamPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BlockId => "the id of a block is not above the entries before it",
            Self::Block => "a block does not hold the entries it counts",
            Self::EntryId => "an entry's id is not above the one before it",
            Self::Length => "the stream does not hold the entries it counts",
            Self::Group => "a group has read a negative number of entries",
            Self::Pending => "pending entries are not in the order of their ids",
        })
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Early => f.write_str("the data ends early"),
            Self::Signature => {
                f.write_str("this is no RDB file: it begins with neither REDIS nor VALKEY")
            }
            Self::Version(version) => write!(f, "RDB version {version} is not supported"),
            Self::LengthEncoding(byte) => write!(f, "a length cannot begin with byte {byte}"),
            Self::StringEncoding(byte) => write!(f, "a string cannot begin with byte {byte}"),
            Self::StringLong { len, max } => {
                write!(f, "a string of {len} bytes is longer than the limit of {max}")
            }
            Self::BlockLong { len, max } => {
                write!(f, "a block of {len} bytes is longer than the limit of {max}")
            }
            Self::Packed => f.write_str("a compressed string is damaged"),
            Self::Block(form) => write!(f, "a {form} is damaged"),
            Self::Container(number) => write!(f, "a list has no nodes of kind {number}"),
            Self::Score => f.write_str("a score is not a number"),
            Self::Time => f.write_str("an expiry is out of range"),
            Self::Stream(part) => write!(f, "a stream is damaged: {part}"),
            Self::Opcode(byte) => write!(f, "opcode {byte} is not supported"),
            Self::Type(byte) => write!(f, "values of type {byte} are not supported"),
            Self::ModuleValue(name) => {
                write!(f, "a value belongs to module type {name}; modules are not supported")
            }
            Self::ModuleData(name) => {
                write!(f, "data belongs to module type {name}; modules are not supported")
            }
            Self::EarlyLibrary => {
                f.write_str("functions of a release candidate of Redis 7.0 are not supported")
            }
            Self::SlotImport => {
                f.write_str("the server was importing slots; wait for the end of the import")
            }
            Self::KeyMetadata => f.write_str("metadata of modules on keys is not supported"),
            Self::InlineCommand => {
                f.write_str("commands among the keys of a save without a fork are not supported")
            }
            Self::Checksum { found, computed } => {
                write!(f, "the checksum is {found:016x} and should be {computed:016x}")
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RDB, byte {}: {}", self.offset, self.what)
    }
}

impl std::error::Error for Fault {}
