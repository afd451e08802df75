//! The first byte of a value.

pub(super) const STRING: u8 = 0;
pub(super) const LIST: u8 = 1;
pub(super) const SET: u8 = 2;
pub(super) const SORTED_TEXT: u8 = 3;
pub(super) const HASH: u8 = 4;
pub(super) const SORTED: u8 = 5;
pub(super) const HASH_ZIPMAP: u8 = 9;
pub(super) const LIST_ZIPLIST: u8 = 10;
pub(super) const SET_INTEGERS: u8 = 11;
pub(super) const SORTED_ZIPLIST: u8 = 12;
pub(super) const HASH_ZIPLIST: u8 = 13;
pub(super) const LIST_ZIPLISTS: u8 = 14;
pub(super) const HASH_LISTPACK: u8 = 16;
pub(super) const SORTED_LISTPACK: u8 = 17;
pub(super) const LIST_LISTPACKS: u8 = 18;
pub(super) const SET_LISTPACK: u8 = 20;
/// As Redis 5.0, 7.0 and 7.2 write them.
pub(super) const STREAM_5: u8 = 15;
pub(super) const STREAM: u8 = 19;
pub(super) const STREAM_72: u8 = 21;
/// Hashes of which fields expire, as first published: with no time in
/// front, from which the others count.
pub(super) const HASH_TIMES_EARLY: u8 = 22;
pub(super) const HASH_TIMES_LISTPACK_EARLY: u8 = 23;
pub(super) const HASH_TIMES: u8 = 24;
pub(super) const HASH_TIMES_LISTPACK: u8 = 25;
