//! Why bytes are not RDB, and where.

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

    /// Bytes in front of the part that is wrong. A part inside of a listpack,
    /// a ziplist or their like has the offset of the whole block.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What is wrong there.
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
    /// A version of the format that is not known here.
    Version(u16),
    /// The first byte of a length that is none.
    LengthEncoding(u8),
    /// The first byte of a string that is none.
    StringEncoding(u8),
    /// A string longer than the reader may hold.
    StringLong {
        /// Its length, as it says.
        len: u64,
        /// The bound.
        max: u64,
    },
    /// A block (a listpack or its like) longer than the reader may hold.
    BlockLong {
        /// Its length, as it says.
        len: u64,
        /// The bound.
        max: u64,
    },
    /// A string packed with LZF that does not unpack to the length it says.
    Packed,
    /// A block that is not whole, or holds more or less than it says.
    Block(Form),
    /// A node of a list in a container that is neither an element nor a
    /// listpack.
    Container(u64),
    /// A score that is no number.
    Score,
    /// The time of a key or a field that no server can have written.
    Time,
    /// A stream that contradicts itself.
    Stream(StreamPart),
    /// An opcode that is not known here.
    Opcode(u8),
    /// A type of value that is not known here.
    Type(u8),
    /// A value of a module, which only that module can read.
    ModuleValue(ModuleName),
    /// Data of a module beside the keys.
    ModuleData(ModuleName),
    /// A library of functions in the form of a release candidate of Redis 7.0.
    EarlyLibrary,
    /// Slots of a cluster of Valkey that are on their way to the server: some
    /// of the file's keys are not its own yet.
    SlotImport,
    /// Metadata that modules of newer versions of Redis attach to keys.
    KeyMetadata,
    /// A command among the keys, as Valkey 9.2 writes it while it saves
    /// without a fork.
    InlineCommand,
    /// The checksum at the end is not that of the bytes before it.
    Checksum {
        /// The file's.
        found: u64,
        /// That of the bytes.
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
    /// The key of a block is no id, or not above the entries before it.
    BlockId,
    /// A block's counts are not those of its entries.
    Block,
    /// An entry's id is not above the one before it.
    EntryId,
    /// Entries are more or fewer than the stream says, or newer than its
    /// newest id.
    Length,
    /// A group has read a negative number of entries.
    Group,
    /// Pending entries are not in the order of their ids.
    Pending,
}

/// The name of a module's type, as RDB spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleName([u8; 9]);

impl ModuleName {
    /// Of the number that stands for it: nine characters of 6 bits each, and a
    /// version in the lowest ten.
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
