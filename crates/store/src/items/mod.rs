//! Items, each a key with its value in one block of memory, and the tables that
//! find them. Nothing here knows what collections are.

mod hasher;
mod head;
mod item;
mod shared;
mod table;

pub(crate) use hasher::Hasher;
pub(crate) use head::{ACCESS_MASK, Encoding, Kind, Meta, Times};
pub(crate) use item::{Address, Item, Owned};
pub(crate) use table::{FREQUENCY_MAX, Marks, Position, SlotMut, Table, prefetch};

/// Longest string, Redis's `proto-max-bulk-len`.
pub(crate) const STRING_LEN_MAX: u64 = 512 << 20;
