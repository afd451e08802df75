//! XINFO.

use super::{counted, no_group, write_entry, write_id, write_range};
use crate::collections::stream::group::{Consumer, Delivery, Group};
use crate::collections::stream::id::Id;
use crate::collections::stream::{Log, Stream, UNKNOWN};
use crate::commands::call::{Call, Fault, Outcome};
use crate::commands::key::NO_SUCH_KEY;
use keyway_resp::reply;
use std::ops::ControlFlow;

/// Entries and deliveries that FULL tells unless told otherwise.
const COUNT_DEFAULT: u64 = 10;
const ALL: (Id, Id) = (Id::ZERO, Id::MAX);

/// Lets `work` read the stream of argument 2, which must be there.
fn look(call: &Call<'_>, work: impl FnOnce(&Stream) -> Outcome) -> Outcome {
    call.store.with_key(call.turn, call.arg(2), |mut entry| {
        work(entry.read_as::<&Stream>()?.ok_or(NO_SUCH_KEY)?)
    })
}

fn write_integer(name: &str, value: i64, out: &mut Vec<u8>) {
    reply::bulk(out, name.as_bytes());
    reply::integer(out, value);
}

fn write_name(name: &[u8], out: &mut Vec<u8>) {
    reply::bulk(out, b"name");
    reply::bulk(out, name);
}

fn write_known(call: &Call<'_>, name: &str, value: Option<i64>, out: &mut Vec<u8>) {
    match value {
        Some(value) => write_integer(name, value, out),
        None => {
            reply::bulk(out, name.as_bytes());
            call.turn.protocol.null(out);
        }
    }
}

/// Writes how far a group has read.
fn write_progress(call: &Call<'_>, log: &Log, group: &Group, out: &mut Vec<u8>) {
    reply::bulk(out, b"last-delivered-id");
    write_id(group.last, out);
    let read = Some(group.entries_read).filter(|read| *read != UNKNOWN);
    write_known(call, "entries-read", read, out);
    write_known(call, "lag", group.lag(log), out);
}

/// XINFO CONSUMERS.
pub(in crate::commands) fn consumers(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    look(call, |stream| {
        let (key, name) = (call.arg(2), call.arg(3));
        let fault = || no_group("No such consumer group '{}' for key name '{}'", [name, key]);
        let group = stream.group(name).ok_or_else(fault)?;
        reply::array(out, group.consumer_count());
        for consumer in group.consumers() {
            call.turn.protocol.map(out, 3);
            write_name(&consumer.name, out);
            write_integer("pending", consumer.pending() as i64, out);
            let idle = call.turn.now_millis.saturating_sub(consumer.seen_millis);
            write_integer("idle", idle as i64, out);
        }
        Ok(())
    })
}

/// XINFO GROUPS.
pub(in crate::commands) fn groups(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    look(call, |stream| {
        let groups = stream.groups();
        reply::array(out, groups.len());
        for (name, group) in groups {
            call.turn.protocol.map(out, 6);
            write_name(name, out);
            write_integer("consumers", group.consumer_count() as i64, out);
            write_integer("pending", group.pending() as i64, out);
            write_progress(call, stream.log(), group, out);
        }
        Ok(())
    })
}

/// The COUNT of FULL; none without FULL.
fn parse_full(call: &Call<'_>) -> Result<Option<u64>, Fault> {
    let count = call.args.len();
    let is_full = matches!(count, 4 | 6) && call.is(3, "full");
    match count {
        3 => Ok(None),
        4 if is_full => Ok(Some(COUNT_DEFAULT)),
        6 if is_full && call.is(4, "count") => {
            Ok(Some(u64::try_from(call.integer(5)?).unwrap_or(COUNT_DEFAULT)))
        }
        _ => Err(super::subcommand_fault(call)),
    }
}

/// XINFO STREAM.
pub(in crate::commands) fn stream(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    look(call, |stream| {
        let full = parse_full(call)?;
        let log = stream.log();
        call.turn.protocol.map(out, if full.is_some() { 9 } else { 10 });
        write_integer("length", log.len() as i64, out);
        write_integer("radix-tree-keys", log.block_count() as i64, out);
        // A tree of ours has no such nodes: one for each block, and the root.
        write_integer("radix-tree-nodes", log.block_count() as i64 + 1, out);
        reply::bulk(out, b"last-generated-id");
        write_id(log.newest(), out);
        reply::bulk(out, b"max-deleted-entry-id");
        write_id(log.deleted(), out);
        write_integer("entries-added", log.added() as i64, out);
        reply::bulk(out, b"recorded-first-entry-id");
        write_id(log.first(), out);
        match full {
            Some(limit) => write_full(call, stream, limit, out),
            None => {
                write_integer("groups", stream.groups().len() as i64, out);
                for (name, reverse) in [("first-entry", false), ("last-entry", true)] {
                    reply::bulk(out, name.as_bytes());
                    write_edge(call, log, reverse, out);
                }
            }
        }
        Ok(())
    })
}

fn write_edge(call: &Call<'_>, log: &Log, reverse: bool, out: &mut Vec<u8>) {
    let found = log.visit(ALL, reverse, |entry| {
        write_entry(&entry, out);
        ControlFlow::Break(())
    });
    if found.is_continue() {
        call.turn.protocol.null(out);
    }
}

/// Writes what `visit` visits, up to `limit`, which 0 does not set.
fn write_deliveries(
    limit: u64,
    visit: impl FnOnce(&mut dyn FnMut(&Delivery) -> ControlFlow<()>),
    out: &mut Vec<u8>,
    write: impl Fn(&Delivery, &mut Vec<u8>),
) {
    counted(out, reply::array, |out| {
        let mut count = 0;
        visit(&mut |delivery| {
            write(delivery, out);
            count += 1;
            if count == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        count as usize
    });
}

fn write_full(call: &Call<'_>, stream: &Stream, limit: u64, out: &mut Vec<u8>) {
    reply::bulk(out, b"entries");
    write_range(stream.log(), ALL, false, limit, out);
    reply::bulk(out, b"groups");
    reply::array(out, stream.groups().len());
    for (name, group) in stream.groups() {
        call.turn.protocol.map(out, 7);
        write_name(name, out);
        write_progress(call, stream.log(), group, out);
        write_integer("pel-count", group.pending() as i64, out);
        reply::bulk(out, b"pending");
        let visit = |visit: &mut dyn FnMut(&Delivery) -> _| group.visit(ALL, visit);
        write_deliveries(limit, visit, out, |delivery, out| {
            reply::array(out, 4);
            write_id(delivery.id, out);
            let consumer = group.consumer(delivery.consumer);
            reply::bulk(out, consumer.map_or(b"", |consumer| &consumer.name));
            reply::integer(out, delivery.millis as i64);
            reply::integer(out, delivery.count as i64);
        });
        reply::bulk(out, b"consumers");
        reply::array(out, group.consumer_count());
        for consumer in group.consumers() {
            write_consumer(call, group, consumer, limit, out);
        }
    }
}

fn write_consumer(
    call: &Call<'_>,
    group: &Group,
    consumer: &Consumer,
    limit: u64,
    out: &mut Vec<u8>,
) {
    call.turn.protocol.map(out, 4);
    write_name(&consumer.name, out);
    write_integer("seen-time", consumer.seen_millis as i64, out);
    write_integer("pel-count", consumer.pending() as i64, out);
    reply::bulk(out, b"pending");
    let index = group.find_consumer(&consumer.name);
    let visit = |visit: &mut dyn FnMut(&Delivery) -> _| {
        if let Some(index) = index {
            group.visit_of(index, ALL, visit);
        }
    };
    write_deliveries(limit, visit, out, |delivery, out| {
        reply::array(out, 3);
        write_id(delivery.id, out);
        reply::integer(out, delivery.millis as i64);
        reply::integer(out, delivery.count as i64);
    });
}
