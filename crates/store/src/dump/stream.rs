//! Streams (`rdbSaveObject`, `src/t_stream.c` of Redis 7.0).
//!
//! ```text
//!  stream:   blocks, each an id of 16 bytes and a listpack │ entries │ newest id
//!            │ first id │ greatest deleted id │ entries ever added │ groups
//!  group:    name │ last id │ entries read │ deliveries: id, time, count
//!            │ consumers: name, time, ids of deliveries
//!  listpack: live, deleted, names, name ..., 0 │ entry ...
//!  entry:    marks, id past the block's, seq past the block's
//!            │ value ...  or  pairs, name, value ... │ elements
//! ```
//! First id, deleted id, entries added and entries read came with Redis 7.0, a
//! second time of consumers with 7.2. What was deleted in a block is written no
//! more.

use super::source::{Refusal, Source};
use super::strings::Strings;
use crate::algorithms::number::parse_integer;
use crate::collections::stream::block::Entry;
use crate::collections::stream::group::{ConsumerIndex, Delivery, Group};
use crate::collections::stream::id::Id;
use crate::collections::stream::{Log, Restored, Stream, UNKNOWN};
use keyway_rdb::format::{write_bytes, write_len};
use keyway_rdb::kind;
use keyway_rdb::listpack::{self, Listpack};
use std::ops::ControlFlow;

/// Marks of an entry.
const DELETED: i64 = 1;
const SAME_NAMES: i64 = 2;
/// Elements of an entry besides names and values, with the block's names, or
/// with its own, whose number is one more.
const AROUND_SAME: i64 = 3;
const AROUND_OWN: i64 = 4;

/// Bytes of an id as it is.
const ID_LEN: usize = 16;

/// What the forms of three versions have.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// Counters of entries.
    counts: bool,
    /// When a consumer was last given something.
    active: bool,
}

impl Form {
    /// The form that a kind of value has.
    pub(super) fn of(kind: u8) -> Self {
        Self { counts: kind != kind::STREAM_5, active: kind == kind::STREAM_72 }
    }
}

/// Appends a stream.
pub(super) fn write(stream: &Stream, out: &mut Vec<u8>) {
    let log = stream.log();
    out.push(kind::STREAM);
    write_len(log.block_count(), out);
    for (first, block) in log.blocks() {
        write_bytes(&raw(first), out);
        let mut listpack = Listpack::new();
        let names = block.name_texts();
        for value in [i64::from(block.live()), 0, names.len() as i64] {
            listpack.push_integer(value);
        }
        names.for_each(|name| name.with_bytes(|bytes| listpack.push(bytes)));
        listpack.push_integer(0);
        block.entries(first).for_each(|entry| write_entry(first, &entry, &mut listpack));
        write_bytes(&listpack.finish(), out);
    }
    write_len(log.len() as usize, out);
    [log.newest(), log.first(), log.deleted()].into_iter().for_each(|id| write_id(id, out));
    write_len(log.added() as usize, out);
    write_len(stream.groups().len(), out);
    for (name, group) in stream.groups() {
        write_bytes(name, out);
        write_group(group, out);
    }
}

fn write_entry(first: Id, entry: &Entry<'_>, listpack: &mut Listpack) {
    let same = entry.pairs.have_names_of_block();
    let count = entry.pairs.len() as i64;
    listpack.push_integer(if same { SAME_NAMES } else { 0 });
    listpack.push_integer(entry.id.ms.wrapping_sub(first.ms) as i64);
    listpack.push_integer(entry.id.seq.wrapping_sub(first.seq) as i64);
    if !same {
        listpack.push_integer(count);
    }
    for (name, value) in entry.pairs {
        if !same {
            name.with_bytes(|bytes| listpack.push(bytes));
        }
        value.with_bytes(|bytes| listpack.push(bytes));
    }
    listpack.push_integer(if same { AROUND_SAME + count } else { AROUND_OWN + 2 * count });
}

fn write_group(group: &Group, out: &mut Vec<u8>) {
    write_id(group.last, out);
    write_len(group.entries_read as usize, out);
    write_len(group.pending(), out);
    let all = (Id::ZERO, Id::MAX);
    group.visit(all, |delivery| {
        out.extend_from_slice(&raw(delivery.id));
        out.extend_from_slice(&delivery.millis.to_le_bytes());
        write_len(delivery.count as usize, out);
        ControlFlow::Continue(())
    });
    write_len(group.consumer_count(), out);
    for consumer in group.consumers() {
        write_bytes(&consumer.name, out);
        out.extend_from_slice(&consumer.seen_millis.to_le_bytes());
        write_len(consumer.pending(), out);
        consumer.visit_ids(|id| out.extend_from_slice(&raw(id)));
    }
}

fn raw(id: Id) -> [u8; ID_LEN] {
    let mut bytes = [0; ID_LEN];
    bytes[..8].copy_from_slice(&id.ms.to_be_bytes());
    bytes[8..].copy_from_slice(&id.seq.to_be_bytes());
    bytes
}

fn of_raw(bytes: [u8; ID_LEN]) -> Id {
    let value = u128::from_be_bytes(bytes);
    Id { ms: (value >> 64) as u64, seq: value as u64 }
}

fn write_id(id: Id, out: &mut Vec<u8>) {
    write_len(id.ms as usize, out);
    write_len(id.seq as usize, out);
}

/// Reads a stream, which will take no more than the source has room for.
pub(super) fn read(source: &mut Source<'_>, form: Form) -> Result<Stream, Refusal> {
    let mut stream = Stream::new();
    let blocks = source.len()?;
    for _ in 0..blocks {
        let first: [u8; ID_LEN] = (&*source.bytes()?).try_into().map_err(|_| Refusal::Form)?;
        read_block(of_raw(first), source, stream.log_mut())?;
        check_room(&stream, source)?;
    }
    let log = stream.log_mut();
    let len = source.len()? as u64;
    let newest = source.id()?;
    let (mut deleted, mut added) = (Id::ZERO, len);
    if form.counts {
        // The first id is known from the entries.
        source.id()?;
        deleted = source.id()?;
        added = source.len()? as u64;
    }
    if len != log.len() || newest < log.last() {
        return Err(Refusal::Form);
    }
    log.set_newest(newest, None, Some(deleted)).map_err(|_| Refusal::Form)?;
    log.set_added(added);
    let groups = source.len()?;
    for _ in 0..groups {
        let name = source.bytes()?;
        let last = source.id()?;
        let entries_read = match form.counts {
            true => source.len()? as i64,
            false => stream.log().added_up_to(last),
        };
        if entries_read < UNKNOWN || !stream.add_group(&name, last, entries_read) {
            return Err(Refusal::Form);
        }
        let room = source.room.saturating_sub(stream.bytes());
        let read = |_: &Log, group: &mut Group| read_group(group, source, form, room);
        stream.change_group(&name, read).ok_or(Refusal::Form)??;
        check_room(&stream, source)?;
    }
    Ok(stream)
}

fn check_room(stream: &Stream, source: &Source<'_>) -> Result<(), Refusal> {
    if stream.bytes() <= source.room { Ok(()) } else { Err(Refusal::Room) }
}

/// The elements of a block, read one after the other.
struct Elements<'s> {
    strings: &'s Strings,
    at: usize,
}

impl<'s> Elements<'s> {
    /// The place of the next `count` elements.
    fn take(&mut self, count: i64) -> Result<usize, Refusal> {
        let start = self.at;
        let left = self.strings.len() - start;
        let count = usize::try_from(count).ok().filter(|count| *count <= left);
        self.at += count.ok_or(Refusal::Form)?;
        Ok(start)
    }

    fn integer(&mut self) -> Result<i64, Refusal> {
        let at = self.take(1)?;
        parse_integer(self.strings.get(at)).ok_or(Refusal::Form)
    }

    fn range(&self, start: usize, count: usize) -> impl Iterator<Item = &'s [u8]> + Clone + 's {
        let strings = self.strings;
        (start..start + count).map(|at| strings.get(at))
    }
}

/// An entry of a block that is being read.
struct Found {
    id: Id,
    /// Where its values are, or its names and values.
    start: usize,
    count: usize,
    same: bool,
}

fn read_block(first: Id, source: &mut Source<'_>, log: &mut Log) -> Result<(), Refusal> {
    let bytes = source.bytes()?;
    let mut strings = Strings::new(source.room);
    listpack::visit(&bytes, &mut |text| strings.push(text))?;
    let mut elements = Elements { strings: &strings, at: 0 };
    let (live, deleted) = (elements.integer()?, elements.integer()?);
    let name_count = elements.integer()?;
    let names_at = elements.take(name_count)?;
    let all = live.checked_add(deleted).ok_or(Refusal::Form)?;
    if live < 0 || deleted < 0 || elements.integer()? != 0 {
        return Err(Refusal::Form);
    }
    // The last id before, which all are behind.
    let mut before = (log.len() > 0).then(|| log.last());
    if before.is_some_and(|before| first <= before) {
        return Err(Refusal::Form);
    }
    let mut found = Vec::new();
    for _ in 0..all {
        let (entry, is_deleted) = read_entry(first, name_count, &mut elements)?;
        if is_deleted {
            continue;
        }
        if entry.id < first || before.is_some_and(|before| entry.id <= before) {
            return Err(Refusal::Form);
        }
        before = Some(entry.id);
        found.push(entry);
    }
    if elements.at != strings.len() || found.len() as i64 != live {
        return Err(Refusal::Form);
    }
    let names = elements.range(names_at, name_count as usize);
    let entries = found.iter().map(|entry| {
        let pair = |nth: usize| match entry.same {
            true => (strings.get(names_at + nth), strings.get(entry.start + nth)),
            false => (strings.get(entry.start + 2 * nth), strings.get(entry.start + 2 * nth + 1)),
        };
        (entry.id, (0..entry.count).map(pair))
    });
    log.restore(Restored { first, len: bytes.len(), entries: all as u64 }, names, entries);
    Ok(())
}

/// The next entry, and whether it has been deleted.
fn read_entry(
    first: Id,
    name_count: i64,
    elements: &mut Elements<'_>,
) -> Result<(Found, bool), Refusal> {
    let marks = elements.integer()?;
    let id = Id {
        ms: first.ms.wrapping_add_signed(elements.integer()?),
        seq: first.seq.wrapping_add_signed(elements.integer()?),
    };
    let same = marks & SAME_NAMES != 0;
    let count = if same { name_count } else { elements.integer()? };
    let parts = if same { count } else { count.checked_mul(2).ok_or(Refusal::Form)? };
    let start = elements.take(parts)?;
    let around = if same { AROUND_SAME } else { AROUND_OWN };
    if elements.integer()? != parts + around {
        return Err(Refusal::Form);
    }
    Ok((Found { id, start, count: count as usize, same }, marks & DELETED != 0))
}

/// Reads what follows a group's counters; it may take so many bytes.
fn read_group(
    group: &mut Group,
    source: &mut Source<'_>,
    form: Form,
    room: usize,
) -> Result<(), Refusal> {
    /// Whose a delivery is that nobody has claimed yet.
    const NOBODY: ConsumerIndex = ConsumerIndex::MAX;
    let mut deliveries: Vec<Delivery> = Vec::new();
    let count = source.len()?;
    for _ in 0..count {
        let id = of_raw(source.array()?);
        if deliveries.last().is_some_and(|last| id <= last.id) {
            return Err(Refusal::Form);
        }
        let millis = u64::from_le_bytes(source.array()?);
        let count = source.len()? as u64;
        deliveries.push(Delivery { id, millis, count, consumer: NOBODY });
        if size_of_val(&deliveries[..]) > room {
            return Err(Refusal::Room);
        }
    }
    let consumers = source.len()?;
    for _ in 0..consumers {
        let name = source.bytes()?;
        let seen_millis = u64::from_le_bytes(source.array()?);
        if form.active {
            let _: [u8; 8] = source.array()?;
        }
        if group.find_consumer(&name).is_some() {
            return Err(Refusal::Form);
        }
        let consumer = group.add_consumer(&name, seen_millis);
        let count = source.len()?;
        for _ in 0..count {
            let id = of_raw(source.array()?);
            let at = deliveries.binary_search_by_key(&id, |delivery| delivery.id);
            let delivery = &mut deliveries[at.map_err(|_| Refusal::Form)?];
            if std::mem::replace(&mut delivery.consumer, consumer) != NOBODY {
                return Err(Refusal::Form);
            }
        }
        if group.bytes() > room {
            return Err(Refusal::Room);
        }
    }
    for delivery in deliveries {
        if delivery.consumer == NOBODY {
            return Err(Refusal::Form);
        }
        group.assign(delivery);
    }
    Ok(())
}
