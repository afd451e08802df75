//! The first byte of a value.

/// A string.
pub const STRING: u8 = 0;
/// A list, element by element.
pub const LIST: u8 = 1;
/// A set, member by member.
pub const SET: u8 = 2;
/// A sorted set, its scores as text.
pub const SORTED_TEXT: u8 = 3;
/// A hash, pair by pair.
pub const HASH: u8 = 4;
/// A sorted set, its scores in eight bytes.
pub const SORTED: u8 = 5;
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
/// Hashes of which fields expire, as first published: with no time in
/// front, from which the others count.
pub const HASH_TIMES_EARLY: u8 = 22;
/// The same in a listpack.
pub const HASH_TIMES_LISTPACK_EARLY: u8 = 23;
/// A hash of which fields expire.
pub const HASH_TIMES: u8 = 24;
/// The same in a listpack.
pub const HASH_TIMES_LISTPACK: u8 = 25;
