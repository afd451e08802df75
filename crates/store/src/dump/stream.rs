//! Streams, between the store's own form and the parts that RDB has them in.

use super::read::{Refusal, Source};
use super::strings::Strings;
use crate::collections::stream::block::{Block, Entry};
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
    let mut writer = Written::begin(stream, out);
    while !writer.step(stream, out) {}
}

/// A stream that is being written, block by block and group by group. It must not change
/// meanwhile.
pub(super) struct Written {
    writer: ValueWriter,
    next: Next,
}

/// The part of a stream that is written next.
enum Next {
    /// The blocks from this one on.
    Block(Id),
    Totals,
    /// The group of this number.
    Group(usize),
}

impl Written {
    /// Appends the type of a stream, and its length.
    pub(super) fn begin(stream: &Stream, out: &mut Vec<u8>) -> Self {
        let opened = Opened::new(Kind::Stream, stream.log().block_count() as u64);
        let mut open = || {
            out.push(ValueWriter::kind_of(VERSION, &opened)?);
            ValueWriter::open(VERSION, &opened, out)
        };
        let writer = open().expect("the version has streams");
        Self { writer, next: Next::Block(Id::ZERO) }
    }

    /// Appends the next block or group; returns whether the stream is whole.
    pub(super) fn step(&mut self, stream: &Stream, out: &mut Vec<u8>) -> bool {
        let written = self.try_step(stream, out);
        written.expect("a stream has as many of everything as it counts")
    }

    fn try_step(&mut self, stream: &Stream, out: &mut Vec<u8>) -> Result<bool, WriteFault> {
        let (writer, log) = (&mut self.writer, stream.log());
        self.next = match self.next {
            Next::Block(from) => {
                let mut blocks = log.blocks_from(from);
                if let Some((first, block)) = blocks.next() {
                    write_block(first, block, writer, out)?;
                }
                blocks.next().map_or(Next::Totals, |(next, _)| Next::Block(next))
            }
            Next::Totals => {
                write_totals(stream, writer, out)?;
                Next::Group(0)
            }
            Next::Group(index) => match stream.groups().nth(index) {
                Some((name, group)) => {
                    write_group(name, group, writer, out)?;
                    Next::Group(index + 1)
                }
                None => return writer.finish().map(|()| true),
            },
        };
        Ok(false)
    }
}

fn write_block(
    first: Id,
    block: &Block,
    writer: &mut ValueWriter,
    out: &mut Vec<u8>,
) -> Result<(), WriteFault> {
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
        write_entry(&entry, writer, out)?;
    }
    Ok(())
}

fn write_totals(
    stream: &Stream,
    writer: &mut ValueWriter,
    out: &mut Vec<u8>,
) -> Result<(), WriteFault> {
    let log = stream.log();
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
    writer.part(&Part::Totals(totals), out)
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
    let mut builder = Builder::new(source.room);
    while let Some(part) = source.part()? {
        builder.part(part)?;
    }
    builder.finish()
}

/// A stream that is built from its parts, as they come.
pub(crate) struct Builder {
    stream: Stream,
    /// Bytes that it may take.
    room: usize,
    block: Option<ReadBlock>,
    /// Groups that have not begun, once the entries are over.
    groups_left: Option<u64>,
    group: Option<ReadGroup>,
}

impl Builder {
    /// A stream that may take up to `room` bytes.
    pub(crate) fn new(room: usize) -> Self {
        Self { stream: Stream::new(), room, block: None, groups_left: None, group: None }
    }

    /// Adds the next part.
    pub(crate) fn part(&mut self, part: Part<'_>) -> Result<(), Refusal> {
        match part {
            Part::Block(head) if self.groups_left.is_none() => {
                let next = ReadBlock::new(head, self.room);
                let block = self.block.replace(next);
                close(block, &mut self.stream, self.room)
            }
            Part::Totals(totals) if self.groups_left.is_none() => self.totals(&totals),
            Part::Group { name, last, entries_read, pending } => {
                self.end_group()?;
                let left = self.groups_left.ok_or(Refusal::Form)?;
                self.groups_left = Some(left.checked_sub(1).ok_or(Refusal::Form)?);
                let last = own(last);
                let read = entries_read.unwrap_or_else(|| self.stream.log().added_up_to(last));
                if !self.stream.add_group(name, last, read) {
                    return Err(Refusal::Form);
                }
                let room = self.room.saturating_sub(self.stream.bytes());
                self.group = Some(ReadGroup::new(name, pending, room));
                Ok(())
            }
            part => match (&mut self.block, &mut self.group) {
                (Some(block), _) => block.part(part),
                (None, Some(group)) => group.part(part),
                (None, None) => Err(Refusal::Form),
            },
        }
    }

    /// The stream, whose last part was added.
    pub(crate) fn finish(mut self) -> Result<Stream, Refusal> {
        self.end_group()?;
        if self.groups_left != Some(0) {
            return Err(Refusal::Form);
        }
        Ok(self.stream)
    }

    /// Adds what the stream knows of all its entries.
    fn totals(&mut self, totals: &Totals) -> Result<(), Refusal> {
        close(self.block.take(), &mut self.stream, self.room)?;
        let log = self.stream.log_mut();
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
        self.groups_left = Some(totals.groups);
        Ok(())
    }

    /// Gives the group that is over what was read of it.
    fn end_group(&mut self) -> Result<(), Refusal> {
        let Some(read) = self.group.take() else { return Ok(()) };
        let name = read.name.clone();
        let fill = |_: &Log, group: &mut Group| read.fill(group);
        self.stream.change_group(&name, fill).ok_or(Refusal::Form)??;
        check_room(&self.stream, self.room)
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

/// A group that is being read.
struct ReadGroup {
    name: Vec<u8>,
    /// Bytes that it may take.
    room: usize,
    pending_left: u64,
    consumers_left: Option<u64>,
    owned_left: u64,
    /// In the order of their ids.
    deliveries: Vec<Delivery>,
    /// Names, and when each was seen.
    consumers: Vec<(Vec<u8>, u64)>,
    /// Bytes of the names.
    names_len: usize,
}

impl ReadGroup {
    /// The consumer index of a delivery that no consumer has claimed yet.
    const NOBODY: ConsumerIndex = ConsumerIndex::MAX;

    fn new(name: &[u8], pending: u64, room: usize) -> Self {
        Self {
            name: name.to_vec(),
            room,
            pending_left: pending,
            consumers_left: None,
            owned_left: 0,
            deliveries: Vec::new(),
            consumers: Vec::new(),
            names_len: 0,
        }
    }

    fn part(&mut self, part: Part<'_>) -> Result<(), Refusal> {
        match part {
            Part::Pending { id, delivered_ms, deliveries: count } => {
                take_one(&mut self.pending_left)?;
                let consumer = Self::NOBODY;
                let id = own(id);
                self.deliveries.push(Delivery { id, millis: delivered_ms, count, consumer });
            }
            Part::Consumers(count) if self.pending_left == 0 && self.consumers_left.is_none() => {
                self.consumers_left = Some(count);
            }
            Part::Consumer { name, seen_ms, pending, .. } if self.owned_left == 0 => {
                take_one(self.consumers_left.as_mut().ok_or(Refusal::Form)?)?;
                self.owned_left = pending;
                self.names_len += name.len();
                self.consumers.push((name.to_vec(), seen_ms));
            }
            Part::Owned(id) => {
                take_one(&mut self.owned_left)?;
                let at = self.deliveries.binary_search_by_key(&own(id), |delivery| delivery.id);
                let delivery = &mut self.deliveries[at.map_err(|_| Refusal::Form)?];
                let consumer = ConsumerIndex::try_from(self.consumers.len() - 1);
                let consumer = consumer.map_err(|_| Refusal::Form)?;
                if std::mem::replace(&mut delivery.consumer, consumer) != Self::NOBODY {
                    return Err(Refusal::Form);
                }
            }
            _ => return Err(Refusal::Form),
        }
        let bytes = size_of_val(&self.deliveries[..]) + size_of_val(&self.consumers[..]);
        if bytes + self.names_len <= self.room { Ok(()) } else { Err(Refusal::Room) }
    }

    /// Gives the group its consumers and what they have.
    fn fill(self, group: &mut Group) -> Result<(), Refusal> {
        if self.pending_left > 0 || self.owned_left > 0 || self.consumers_left != Some(0) {
            return Err(Refusal::Form);
        }
        let mut indices = Vec::with_capacity(self.consumers.len());
        for (name, seen_ms) in &self.consumers {
            if group.find_consumer(name).is_some() {
                return Err(Refusal::Form);
            }
            indices.push(group.add_consumer(name, *seen_ms));
        }
        for delivery in self.deliveries {
            let index = indices.get(delivery.consumer as usize).ok_or(Refusal::Form)?;
            group.assign(Delivery { consumer: *index, ..delivery });
        }
        Ok(())
    }
}

fn take_one(left: &mut u64) -> Result<(), Refusal> {
    *left = left.checked_sub(1).ok_or(Refusal::Form)?;
    Ok(())
}
