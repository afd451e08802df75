//! Types of values, which are the first byte of a value, and opcodes, which occur in place of a
//! type in a file.

/// A string.
pub const STRING: u8 = 0;
/// A list, element by element.
pub const LIST: u8 = 1;
/// A set, member by member.
pub const SET: u8 = 2;
/// A sorted set with scores as text.
pub const SORTED_TEXT: u8 = 3;
/// A hash, pair by pair.
pub const HASH: u8 = 4;
/// A sorted set with scores in eight bytes.
pub const SORTED: u8 = 5;
/// A value of a module, as a release candidate of Redis 4.0 writes it.
pub const MODULE_EARLY: u8 = 6;
/// A value of a module.
pub const MODULE: u8 = 7;
/// A hash in a zipmap.
pub const HASH_ZIPMAP: u8 = 9;
/// A list in a ziplist.
pub const LIST_ZIPLIST: u8 = 10;
/// A set of integers.
pub const SET_INTEGERS: u8 = 11;
/// A sorted set in a ziplist.
pub const SORTED_ZIPLIST: u8 = 12;
/// A hash in a ziplist.
pub const HASH_ZIPLIST: u8 = 13;
/// A list of ziplists.
pub const LIST_ZIPLISTS: u8 = 14;
/// A hash in a listpack.
pub const HASH_LISTPACK: u8 = 16;
/// A sorted set in a listpack.
pub const SORTED_LISTPACK: u8 = 17;
/// A list of listpacks.
pub const LIST_LISTPACKS: u8 = 18;
/// A set in a listpack.
pub const SET_LISTPACK: u8 = 20;
/// A stream as Redis 5.0 writes it.
pub const STREAM_5: u8 = 15;
/// A stream as Redis 7.0 writes it.
pub const STREAM: u8 = 19;
/// A stream as Redis 7.2 writes it.
pub const STREAM_72: u8 = 21;
/// A hash with expiring fields, in the form that was published first: without a time in front to
/// which the others are relative.
pub const HASH_TIMES_EARLY: u8 = 22;
/// The same in a listpack.
pub const HASH_TIMES_LISTPACK_EARLY: u8 = 23;
/// A hash with expiring fields.
pub const HASH_TIMES: u8 = 24;
/// The same in a listpack.
pub const HASH_TIMES_LISTPACK: u8 = 25;

/// A command among the keys (Valkey 9.2).
pub(crate) const OPCODE_COMMAND: u8 = 242;
/// Slots being imported (Valkey 9.0), or metadata of a key (newer Redis).
pub(crate) const OPCODE_SLOT_IMPORT: u8 = 243;
/// The size of a slot (Redis 7.4).
pub(crate) const OPCODE_SLOT_SIZES: u8 = 244;
/// A library of functions.
pub const OPCODE_LIBRARY: u8 = 245;
/// The same, as a release candidate of Redis 7.0 writes it.
pub(crate) const OPCODE_LIBRARY_EARLY: u8 = 246;
/// Data of a module.
pub(crate) const OPCODE_MODULE: u8 = 247;
/// The idle time of the next key, in seconds.
pub(crate) const OPCODE_IDLE: u8 = 248;
/// How often the next key is used.
pub(crate) const OPCODE_FREQUENCY: u8 = 249;
/// An auxiliary field.
pub(crate) const OPCODE_AUX: u8 = 250;
/// The size of a database.
pub(crate) const OPCODE_SIZES: u8 = 251;
/// When the next key expires, in milliseconds.
pub(crate) const OPCODE_EXPIRES_MS: u8 = 252;
/// When the next key expires, in seconds.
pub(crate) const OPCODE_EXPIRES: u8 = 253;
/// The database of the keys that follow.
pub(crate) const OPCODE_DATABASE: u8 = 254;
/// The end of the file.
pub(crate) const OPCODE_END: u8 = 255;
/// The smallest opcode: types count up, opcodes count down.
pub(crate) const OPCODE_LEAST: u8 = 128;
