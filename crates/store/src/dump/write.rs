use super::stream;
use crate::collections::hash::Hash;
use crate::collections::list::List;
use crate::collections::set::Set;
use crate::collections::sorted::Sorted;
use crate::collections::stream::Stream;
use crate::collections::{Means, View, integers as stored_integers, score};
use crate::items::{Item, Kind};
use keyway_rdb::format::{write_bytes, write_len, write_text};
use keyway_rdb::listpack::Listpack;
use keyway_rdb::{integers, kind};
use std::ops::ControlFlow;

/// Bytes of a list's listpack before the next one begins, as Redis has it by
/// default, and what it puts down for an element besides its bytes.
const NODE_LEN_MAX: usize = 8 << 10;
const ELEMENT_OVERHEAD: usize = 8;
/// The number that marks a node of a list as a listpack.
const LISTPACK: u64 = 2;

/// Appends the value of an item. Its type comes first. DUMP's footer is not part of it.
pub(crate) fn write(item: Item<'_>, means: Means<'_>, out: &mut Vec<u8>) {
    match item.encoding().kind() {
        Kind::Text => {
            out.push(kind::STRING);
            write_text(item.value(), out);
        }
        Kind::Hash => write_hash(&Hash::of(item, means), out),
        Kind::List => write_list(&List::of(item, means), out),
        Kind::Set => write_set(&Set::of(item, means), out),
        Kind::Sorted => write_sorted(&Sorted::of(item, means), out),
        Kind::Stream => stream::write(<&Stream>::of(item, means), out),
    }
}

fn write_hash(hash: &Hash<'_>, out: &mut Vec<u8>) {
    let mut earliest = None;
    hash.visit_timed(|_, _, time| earliest = [earliest, time].into_iter().flatten().min());
    if let Some(earliest) = earliest {
        return write_timed(hash, earliest, out);
    }
    if let Hash::Blob(_) | Hash::Timed(_) = hash {
        let mut listpack = Listpack::new();
        hash.visit(|field, value| {
            listpack.push(field);
            listpack.push(value);
        });
        out.push(kind::HASH_LISTPACK);
        return write_bytes(&listpack.finish(), out);
    }
    out.push(kind::HASH);
    write_len(hash.len() as u64, out);
    hash.visit(|field, value| {
        write_text(field, out);
        write_text(value, out);
    });
}

/// A hash of which fields expire, the first at `earliest`.
fn write_timed(hash: &Hash<'_>, earliest: u64, out: &mut Vec<u8>) {
    if let Hash::Timed(_) = hash {
        let mut fields = Vec::new();
        hash.visit_timed(|field, value, time| fields.push((time, field, value)));
        // In the order of their times, those without one last, as Redis has them.
        fields.sort_by_key(|(time, ..)| time.unwrap_or(u64::MAX));
        let mut listpack = Listpack::new();
        for (time, field, value) in fields {
            listpack.push(field);
            listpack.push(value);
            listpack.push_integer(time.unwrap_or(0) as i64);
        }
        out.push(kind::HASH_TIMES_LISTPACK);
        out.extend_from_slice(&earliest.to_le_bytes());
        return write_bytes(&listpack.finish(), out);
    }
    out.push(kind::HASH_TIMES);
    out.extend_from_slice(&earliest.to_le_bytes());
    write_len(hash.len() as u64, out);
    hash.visit_timed(|field, value, time| {
        write_len(time.map_or(0, |time| time - earliest + 1), out);
        write_text(field, out);
        write_text(value, out);
    });
}

fn write_list(list: &List<'_>, out: &mut Vec<u8>) {
    let (mut nodes, mut count) = (Vec::new(), 0);
    let mut add = |listpack: Listpack| {
        write_len(LISTPACK, &mut nodes);
        write_bytes(&listpack.finish(), &mut nodes);
        count += 1;
    };
    let mut listpack = Listpack::new();
    for element in list.from(0) {
        let is_full = listpack.len() + element.len() + ELEMENT_OVERHEAD > NODE_LEN_MAX;
        if is_full && !listpack.is_empty() {
            add(std::mem::replace(&mut listpack, Listpack::new()));
        }
        listpack.push(element);
    }
    add(listpack);
    out.push(kind::LIST_LISTPACKS);
    write_len(count, out);
    out.append(&mut nodes);
}

fn write_set(set: &Set<'_>, out: &mut Vec<u8>) {
    if let Set::Integers(stored) = set {
        out.push(kind::SET_INTEGERS);
        // The form of a set as it is stored has the same values in the same
        // order and of the same width.
        let (at, width) = stored_integers::offset_of(stored, 0);
        let values = stored.get(at..).unwrap_or_default();
        return write_bytes(&integers::compose(width, values), out);
    }
    out.push(kind::SET);
    write_len(set.len() as u64, out);
    set.visit(|member| member.with_text(|text| write_text(text, out)));
}

fn write_sorted(sorted: &Sorted<'_>, out: &mut Vec<u8>) {
    if sorted.is_small() {
        let mut listpack = Listpack::new();
        sorted.visit(|member, score| {
            listpack.push(member);
            score::with_all_digits(score, |text| listpack.push(text));
        });
        out.push(kind::SORTED_LISTPACK);
        return write_bytes(&listpack.finish(), out);
    }
    out.push(kind::SORTED);
    write_len(sorted.len() as u64, out);
    sorted.visit_ranks(0..sorted.len(), true, |member, score| {
        write_text(member, out);
        out.extend_from_slice(&score.to_le_bytes());
        ControlFlow::Continue(())
    });
}
