//! Large collections, written in pieces, so that no piece takes long.
//!
//! A collection must not change between its pieces. It may be moved in memory: places in it are
//! kept as cursors, ranks and ids.

use super::stream;
use crate::collections::hash::Hash;
use crate::collections::list::List;
use crate::collections::set::Set;
use crate::collections::sorted::Sorted;
use crate::collections::stream::Stream;
use crate::collections::{Boxed, Means, View};
use crate::items::{Item, Kind};
use keyway_rdb::format::{write_len, write_text};
use keyway_rdb::kind;
use std::ops::ControlFlow;

/// Bytes and elements up to which a collection is written at once: some ten microseconds.
const WHOLE_LEN_MAX: usize = 64 << 10;
const WHOLE_ELEMENTS_MAX: usize = 512;
/// Bytes and elements of a piece, or a few more: some ten microseconds.
const PIECE_LEN: usize = 32 << 10;
const PIECE_ELEMENTS: usize = 256;
/// Elements between two looks at how long a piece is. More passes the bound further where elements
/// are long.
const ELEMENTS_AT_ONCE: usize = 16;

/// Returns whether an item's value is to be written in pieces.
pub(crate) fn is_large(item: &Item<'_>) -> bool {
    let is_large =
        |boxed: &Boxed| boxed.len() > WHOLE_ELEMENTS_MAX || boxed.bytes() > WHOLE_LEN_MAX;
    item.boxed().is_some_and(is_large)
}

/// A large collection that is being written.
pub(crate) struct Large {
    place: Place,
    /// The time at which it was begun: fields that had expired by then are left out.
    now_millis: u64,
}

/// Where in a collection the next piece begins.
enum Place {
    /// Fields of a hash, whose times count from `earliest` if some have one; or members of a set.
    Cursor {
        cursor: u64,
        earliest: Option<u64>,
    },
    /// A run of a list.
    Run(usize),
    /// The members of lower ranks.
    Below(usize),
    Stream(stream::Written),
}

impl Large {
    /// Appends the type of an item's collection, and its length.
    pub(crate) fn begin(item: Item<'_>, means: Means<'_>, out: &mut Vec<u8>) -> Self {
        let place = match item.encoding().kind() {
            Kind::Text | Kind::Stream => {
                Place::Stream(stream::Written::begin(<&Stream>::of(item, means), out))
            }
            Kind::Hash => {
                let earliest = match item.boxed() {
                    Some(Boxed::Timed(timed)) => timed.earliest_after(means.now_millis),
                    _ => None,
                };
                out.push(if earliest.is_some() { kind::HASH_TIMES } else { kind::HASH });
                if let Some(earliest) = earliest {
                    out.extend_from_slice(&earliest.to_le_bytes());
                }
                write_len(Hash::of(item, means).len() as u64, out);
                Place::Cursor { cursor: 0, earliest }
            }
            Kind::Set => {
                out.push(kind::SET);
                write_len(Set::of(item, means).len() as u64, out);
                Place::Cursor { cursor: 0, earliest: None }
            }
            Kind::List => {
                out.push(kind::LIST);
                write_len(List::of(item, means).len() as u64, out);
                Place::Run(0)
            }
            Kind::Sorted => {
                let len = Sorted::of(item, means).len();
                out.push(kind::SORTED);
                write_len(len as u64, out);
                Place::Below(len)
            }
        };
        Self { place, now_millis: means.now_millis }
    }

    /// Appends the next piece; returns whether the collection is whole.
    pub(crate) fn go_on(&mut self, item: Item<'_>, means: Means<'_>, out: &mut Vec<u8>) -> bool {
        let means = Means { now_millis: self.now_millis, ..means };
        let (end, mut elements) = (out.len() + PIECE_LEN, 0);
        loop {
            elements += ELEMENTS_AT_ONCE;
            if self.step(item, means, out) {
                return true;
            }
            if out.len() >= end || elements >= PIECE_ELEMENTS {
                return false;
            }
        }
    }

    fn step(&mut self, item: Item<'_>, means: Means<'_>, out: &mut Vec<u8>) -> bool {
        match &mut self.place {
            Place::Cursor { cursor, earliest } if item.encoding().kind() == Kind::Hash => {
                *cursor = scan_hash(&Hash::of(item, means), *cursor, *earliest, out);
                *cursor == 0
            }
            Place::Cursor { cursor, .. } => {
                let set = Set::of(item, means);
                *cursor = set.scan(*cursor, ELEMENTS_AT_ONCE as u64, |member| {
                    member.with_text(|text| write_text(text, out));
                });
                *cursor == 0
            }
            Place::Run(index) => match List::of(item, means).elements_of_run(*index) {
                Some(elements) => {
                    elements.for_each(|element| write_text(element, out));
                    *index += 1;
                    false
                }
                None => true,
            },
            Place::Below(rank) => {
                let start = rank.saturating_sub(ELEMENTS_AT_ONCE);
                Sorted::of(item, means).visit_ranks(start..*rank, true, |member, score| {
                    write_text(member, out);
                    out.extend_from_slice(&score.to_le_bytes());
                    ControlFlow::Continue(())
                });
                *rank = start;
                start == 0
            }
            Place::Stream(written) => written.step(<&Stream>::of(item, means), out),
        }
    }
}

/// Appends some fields from a cursor on; the next cursor.
fn scan_hash(hash: &Hash<'_>, cursor: u64, earliest: Option<u64>, out: &mut Vec<u8>) -> u64 {
    hash.scan_timed(cursor, ELEMENTS_AT_ONCE as u64, |field, value, time| {
        if let Some(earliest) = earliest {
            write_len(time.map_or(0, |time| time.saturating_sub(earliest) + 1), out);
        }
        write_text(field, out);
        write_text(value, out);
    })
}
