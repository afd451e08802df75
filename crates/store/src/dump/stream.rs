//! Streams, between the store's own form and the parts that RDB has them in.

use super::read::{Refusal, Source};
use super::strings::Strings;
use crate::collections::stream::block::Entry;
use crate::collections::stream::group::{ConsumerIndex, Delivery, Group};
use crate::collections::stream::id::Id;
use crate::collections::stream::{Log, Restored, Stream};
use keyway_rdb::{
    History, Kind, Opened, Part, StreamBlock, Totals, ValueWriter, Version, WriteFault,
};
use std::ops::ControlFlow;

/// The version that streams are written in: that of Redis 7.0, which knows
/// all that the store knows of them.
const VERSION: Version = Version::Redis10;

fn foreign(id: Id) -> keyway_rdb::Id {
    keyway_rdb::Id { ms: id.ms, seq: id.seq }
}

fn own(id: keyway_rdb::Id) -> Id {
    Id { ms: id.ms, seq: id.seq }
}

/// Appends a stream, its type first.
pub(super) fn write(stream: &Stream, out: &mut Vec<u8>) {
    let written = write_parts(stream, out);
    written.expect("a stream has as many of everything as it counts");
}

fn write_parts(stream: &Stream, out: &mut Vec<u8>) -> Result<(), WriteFault> {
    let log = stream.log();
    let opened = Opened::new(Kind::Stream, log.block_count() as u64);
    out.push(ValueWriter::kind_of(VERSION, &opened)?);
    let mut writer = ValueWriter::open(VERSION, &opened, out)?;
    for (first, block) in log.blocks() {
        let names = block.name_texts();
        let header = StreamBlock {
            first: foreign(first),
            entries: block.live().into(),
            deleted: 0,
            fields: names.len() as u64,
            len: 0,
        };
        writer.part(&Part::Block(header), out)?;
        for name in names {
            name.with_bytes(|name| writer.part(&Part::BlockField(name), out))?;
        }
        for entry in block.entries(first) {
            write_entry(&entry, &mut writer, out)?;
        }
    }
    let history = History {
        first: foreign(log.first()),
        deleted: foreign(log.deleted()),
        added: log.added(),
    };
    let totals = Totals {
        len: log.len(),
        newest: foreign(log.newest()),
        history: Some(history),
        groups: stream.groups().len() as u64,
    };
    writer.part(&Part::Totals(totals), out)?;
    for (name, group) in stream.groups() {
        write_group(name, group, &mut writer, out)?;
    }
    writer.finish()
}

fn write_entry(
    entry: &Entry<'_>,
    writer: &mut ValueWriter,
    out: &mut Vec<u8>,
) -> Result<(), WriteFault> {
    let fields = entry.pairs.len() as u64;
    let shares_fields = entry.pairs.have_names_of_block();
    writer.part(&Part::Entry { id: foreign(entry.id), fields, shares_fields }, out)?;
    for (name, value) in entry.pairs {
        name.with_bytes(|name| {
            value.with_bytes(|value| writer.part(&Part::EntryField { name, value }, out))
        })?;
    }
    Ok(())
}

fn write_group(
    name: &[u8],
    group: &Group,
    writer: &mut ValueWriter,
    out: &mut Vec<u8>,
) -> Result<(), WriteFault> {
    let head = Part::Group {
        name,
        last: foreign(group.last),
        entries_read: Some(group.entries_read),
        pending: group.pending() as u64,
    };
    writer.part(&head, out)?;
    let mut written = Ok(());
    group.visit((Id::ZERO, Id::MAX), |delivery| {
        let part = Part::Pending {
            id: foreign(delivery.id),
            delivered_ms: delivery.millis,
            deliveries: delivery.count,
        };
        written = written.and_then(|()| writer.part(&part, out));
        ControlFlow::Continue(())
    });
    written?;
    writer.part(&Part::Consumers(group.consumer_count() as u64), out)?;
    for consumer in group.consumers() {
        let head = Part::Consumer {
            name: &consumer.name,
            seen_ms: consumer.seen_millis,
            active_ms: None,
            pending: consumer.pending() as u64,
        };
        writer.part(&head, out)?;
        let mut written = Ok(());
        consumer.visit_ids(|id| {
            written = written.and_then(|()| writer.part(&Part::Owned(foreign(id)), out));
        });
        written?;
    }
    Ok(())
}

/// Reads a stream, which will take no more than the source has room for.
pub(super) fn read(source: &mut Source<'_>) -> Result<Stream, Refusal> {
    let mut stream = Stream::new();
    let mut block: Option<ReadBlock> = None;
    let totals = loop {
        let room = source.room;
        match source.part()?.ok_or(Refusal::Form)? {
            Part::Block(head) => {
                close(block.replace(ReadBlock::new(head, room)), &mut stream, room)?;
            }
            Part::Totals(totals) => {
                close(block.take(), &mut stream, room)?;
                break totals;
            }
            part => block.as_mut().ok_or(Refusal::Form)?.part(part)?,
        }
    };
    let log = stream.log_mut();
    let newest = own(totals.newest);
    let (deleted, added) = match totals.history {
        // The first id is known from the entries.
        Some(history) => (own(history.deleted), history.added),
        None => (Id::ZERO, totals.len),
    };
    if totals.len != log.len() || newest < log.last() {
        return Err(Refusal::Form);
    }
    log.set_newest(newest, None, Some(deleted)).map_err(|_| Refusal::Form)?;
    log.set_added(added);
    for _ in 0..totals.groups {
        let Some(Part::Group { name, last, entries_read, pending }) = source.part()? else {
            return Err(Refusal::Form);
        };
        let name = name.to_vec();
        let last = own(last);
        let entries_read = entries_read.unwrap_or_else(|| stream.log().added_up_to(last));
        if !stream.add_group(&name, last, entries_read) {
            return Err(Refusal::Form);
        }
        let room = source.room.saturating_sub(stream.bytes());
        let read = |_: &Log, group: &mut Group| read_group(group, pending, source, room);
        stream.change_group(&name, read).ok_or(Refusal::Form)??;
        check_room(&stream, source.room)?;
    }
    // Nothing but the end is left.
    match source.part()? {
        None => Ok(stream),
        Some(_) => Err(Refusal::Form),
    }
}

fn check_room(stream: &Stream, room: usize) -> Result<(), Refusal> {
    if stream.bytes() <= room { Ok(()) } else { Err(Refusal::Room) }
}

/// A block that is being read.
struct ReadBlock {
    restored: Restored,
    /// The block's names, then names and values of its entries.
    strings: Strings,
    name_count: usize,
    /// Entries, each with how many names and values it has.
    entries: Vec<(Id, usize)>,
}

impl ReadBlock {
    fn new(head: StreamBlock, room: usize) -> Self {
        let restored = Restored {
            first: own(head.first),
            len: head.len as usize,
            entries: head.entries.saturating_add(head.deleted),
        };
        Self { restored, strings: Strings::new(room), name_count: 0, entries: Vec::new() }
    }

    fn part(&mut self, part: Part<'_>) -> Result<(), Refusal> {
        match part {
            Part::BlockField(name) => {
                self.strings.push(name)?;
                self.name_count += 1;
            }
            Part::Entry { id, fields, .. } => self.entries.push((own(id), fields as usize)),
            Part::EntryField { name, value } => {
                self.strings.push(name)?;
                self.strings.push(value)?;
            }
            _ => return Err(Refusal::Form),
        }
        Ok(())
    }
}

/// Puts a block that was read into the stream.
fn close(block: Option<ReadBlock>, stream: &mut Stream, room: usize) -> Result<(), Refusal> {
    let Some(ReadBlock { restored, strings, name_count, entries }) = block else { return Ok(()) };
    let names = (0..name_count).map(|at| strings.get(at));
    let mut start = name_count;
    let entries = entries.iter().map(|(id, count)| {
        let pairs_at = start;
        start += 2 * count;
        let strings = &strings;
        let pair = move |nth: usize| {
            let at = pairs_at + 2 * nth;
            (strings.get(at), strings.get(at + 1))
        };
        (*id, (0..*count).map(pair))
    });
    stream.log_mut().restore(restored, names, entries);
    check_room(stream, room)
}

/// Reads what follows a group's counters; it may take so many bytes.
fn read_group(
    group: &mut Group,
    pending: u64,
    source: &mut Source<'_>,
    room: usize,
) -> Result<(), Refusal> {
    /// Whose a delivery is that nobody has claimed yet.
    const NOBODY: ConsumerIndex = ConsumerIndex::MAX;
    let mut deliveries: Vec<Delivery> = Vec::new();
    for _ in 0..pending {
        let Some(Part::Pending { id, delivered_ms, deliveries: count }) = source.part()? else {
            return Err(Refusal::Form);
        };
        let id = own(id);
        deliveries.push(Delivery { id, millis: delivered_ms, count, consumer: NOBODY });
        if size_of_val(&deliveries[..]) > room {
            return Err(Refusal::Room);
        }
    }
    let Some(Part::Consumers(consumers)) = source.part()? else { return Err(Refusal::Form) };
    for _ in 0..consumers {
        let Some(Part::Consumer { name, seen_ms, pending, .. }) = source.part()? else {
            return Err(Refusal::Form);
        };
        if group.find_consumer(name).is_some() {
            return Err(Refusal::Form);
        }
        let consumer = group.add_consumer(name, seen_ms);
        for _ in 0..pending {
            let Some(Part::Owned(id)) = source.part()? else { return Err(Refusal::Form) };
            let at = deliveries.binary_search_by_key(&own(id), |delivery| delivery.id);
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
