//! XGROUP, XACK and XPENDING.

use super::{counted, no_group, parse_end, parse_id, parse_ids, parse_open_id, write_id};
use crate::algorithms::number::{INTEGER_LEN_MAX, format_integer};
use crate::collections::Boxed;
use crate::collections::stream::group::{Delivery, Group};
use crate::collections::stream::id::Id;
use crate::collections::stream::{Log, Stream, UNKNOWN};
use crate::commands::call::{Call, Fault, Outcome, SYNTAX};
use crate::edits::stream;
use crate::entry::{Editor, Entry};
use crate::items::Kind;
use keyway_command::lookup;
use keyway_memory::nodes;
use keyway_resp::reply;
use std::ops::ControlFlow;

/// The options of CREATE and SETID behind the id.
struct Options {
    makes_stream: bool,
    entries_read: i64,
}

impl Options {
    fn parse(call: &Call<'_>, creates: bool) -> Result<Self, Fault> {
        let mut options = Self { makes_stream: false, entries_read: UNKNOWN };
        let mut index = 5;
        while index < call.args.len() {
            if creates && call.is(index, "mkstream") {
                options.makes_stream = true;
                index += 1;
            } else if call.is(index, "entriesread") && index + 1 < call.args.len() {
                options.entries_read = call.integer(index + 1)?;
                if options.entries_read < UNKNOWN {
                    return Err(Fault::Text("ERR value for ENTRIESREAD must be positive or -1"));
                }
                index += 2;
            } else {
                return Err(super::subcommand_fault(call));
            }
        }
        Ok(options)
    }
}

/// The id that a group begins behind: `$` for the stream's newest one.
fn parse_start(call: &Call<'_>, newest: Id, strict: bool) -> Result<Id, Fault> {
    match call.arg(4) {
        b"$" => Ok(newest),
        _ if strict => parse_id(call, 4),
        text => parse_open_id(text, 0),
    }
}

/// Works on the stream of argument 2, which must be there.
fn with_stream(call: &Call<'_>, work: impl FnOnce(&mut Entry<'_>) -> Outcome) -> Outcome {
    call.store.with_key(call.turn, call.arg(2), |mut entry| {
        if entry.look_at::<&Stream>()?.is_none() {
            return Err(Fault::Text(
                "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you \
                 may want to use the MKSTREAM option to create an empty stream automatically.",
            ));
        }
        work(&mut entry)
    })
}

/// Works on the group of argument 3 of the stream of argument 2, which must be there. A change, as
/// `work` counts it, becomes `event`.
fn change_group<R>(
    call: &Call<'_>,
    event: &'static str,
    work: impl FnOnce(&Log, &mut Group) -> Result<(R, bool), Fault>,
) -> Result<R, Fault> {
    let (key, name) = (call.arg(2), call.arg(3));
    let mut result = None;
    with_stream(call, |entry| {
        entry.edit(Kind::Stream, event, |editor| {
            let changed = stream::edit(editor, |stream| stream.change_group(name, work)).flatten();
            let fault = || no_group("No such consumer group '{}' for key name '{}'", [name, key]);
            let (value, changed) = changed.ok_or_else(fault)??;
            result = Some(value);
            if changed {
                editor.touch();
            }
            Ok(())
        })?
    })?;
    result.ok_or(SYNTAX)
}

/// XGROUP CREATE.
pub(in crate::commands) fn create(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let options = Options::parse(call, true)?;
    let work = |entry: &mut Entry<'_>| {
        let stream: Option<&Stream> = entry.look_at()?;
        let newest = stream.map_or(Id::ZERO, |stream| stream.log().newest());
        if call.args.len() > 8 {
            return Err(super::subcommand_fault(call));
        }
        let start = parse_start(call, newest, true)?;
        let added = entry.edit(Kind::Stream, "xgroup-create", |editor| {
            stream::make(editor);
            let add =
                |stream: &mut Stream| stream.add_group(call.arg(3), start, options.entries_read);
            let added = stream::edit(editor, add).unwrap_or(false);
            if added {
                editor.touch();
            }
            added
        })?;
        match added {
            true => Ok(()),
            false => Err(Fault::Text("BUSYGROUP Consumer Group name already exists")),
        }
    };
    match options.makes_stream {
        true => call.store.with_key(call.turn, call.arg(2), |mut entry| work(&mut entry))?,
        false => with_stream(call, work)?,
    }
    out.extend_from_slice(b"+OK\r\n");
    Ok(())
}

/// XGROUP SETID.
pub(in crate::commands) fn setid(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let options = Options::parse(call, false)?;
    change_group(call, "xgroup-setid", |log, group| {
        if !matches!(call.args.len(), 5 | 7) {
            return Err(super::subcommand_fault(call));
        }
        group.last = parse_start(call, log.newest(), false)?;
        group.entries_read = options.entries_read;
        Ok(((), true))
    })?;
    out.extend_from_slice(b"+OK\r\n");
    Ok(())
}

/// Takes the group of argument 3 out; whether there was one.
fn remove_group(call: &Call<'_>, editor: &mut Editor<'_, '_>) -> bool {
    let removed = stream::edit(editor, |stream| stream.remove_group(call.arg(3))).flatten();
    let Some(removed) = removed else { return false };
    editor.touch();
    editor.discard(Boxed::Stream(nodes::boxed(removed)));
    true
}

/// XGROUP DESTROY.
pub(in crate::commands) fn destroy(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let mut removed = false;
    with_stream(call, |entry| {
        removed =
            entry.edit(Kind::Stream, "xgroup-destroy", |editor| remove_group(call, editor))?;
        Ok(())
    })?;
    reply::integer(out, i64::from(removed));
    Ok(())
}

/// XGROUP CREATECONSUMER.
pub(in crate::commands) fn createconsumer(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let created = change_group(call, "xgroup-createconsumer", |_, group| {
        let is_new = group.find_consumer(call.arg(4)).is_none();
        if is_new {
            group.add_consumer(call.arg(4), call.turn.seen_millis());
        }
        Ok((is_new, is_new))
    })?;
    reply::integer(out, i64::from(created));
    Ok(())
}

/// XGROUP DELCONSUMER.
pub(in crate::commands) fn delconsumer(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let pending = change_group(call, "xgroup-delconsumer", |_, group| {
        let removed = group.remove_consumer(call.arg(4));
        Ok((removed.unwrap_or(0), removed.is_some()))
    })?;
    reply::integer(out, pending as i64);
    Ok(())
}

/// XGROUP HELP and XINFO HELP.
pub(in crate::commands) fn help(container: &str, out: &mut Vec<u8>) -> Outcome {
    let lines = lookup(container.as_bytes()).map_or(&[][..], |command| command.docs.help);
    reply::array(out, lines.len());
    lines.iter().for_each(|line| reply::simple(out, line));
    Ok(())
}

/// XACK.
pub(in crate::commands) fn xack(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let acknowledged = call.with_key(|mut entry| {
        let stream: Option<&Stream> = entry.read_as()?;
        if stream.and_then(|stream| stream.group(call.arg(2))).is_none() {
            return Ok(0);
        }
        let ids = parse_ids(call, 3)?;
        Ok::<_, Fault>(entry.edit(Kind::Stream, "xack", |editor| {
            stream::edit(editor, |stream| {
                stream.change_group(call.arg(2), |_, group| {
                    call.note_silent_change();
                    ids.iter().filter(|id| group.acknowledge(**id)).count()
                })
            })
        })?)
        .map(|count| count.flatten().unwrap_or(0))
    })?;
    reply::integer(out, acknowledged as i64);
    Ok(())
}

/// The part of its pending entries that XPENDING asks for.
struct Part<'a> {
    idle_min: u64,
    range: (Id, Id),
    limit: u64,
    consumer: Option<&'a [u8]>,
}

impl<'a> Part<'a> {
    /// None when only a summary is asked for.
    fn parse(call: &Call<'a>) -> Result<Option<Self>, Fault> {
        let count = call.args.len();
        if count == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&count) {
            return Err(SYNTAX);
        }
        let (mut at, mut idle_min) = (3, 0);
        if call.is(3, "idle") {
            idle_min = super::parse_limit(call, 4)?;
            if count < 8 {
                return Err(SYNTAX);
            }
            at = 5;
        }
        let limit = super::parse_limit(call, at + 2)?;
        let range = (parse_end(call.arg(at), false)?, parse_end(call.arg(at + 1), true)?);
        let consumer = (at + 3 < count).then(|| call.arg(at + 3));
        Ok(Some(Self { idle_min, range, limit, consumer }))
    }

    fn write(&self, call: &Call<'_>, group: &Group, out: &mut Vec<u8>) {
        let Some(consumer) = self.consumer.map(|name| group.find_consumer(name)) else {
            return self.write_from(call, group, |visit| group.visit(self.range, visit), out);
        };
        match consumer {
            Some(index) => {
                let visit_all = |visit: Visit<'_>| group.visit_of(index, self.range, visit);
                self.write_from(call, group, visit_all, out);
            }
            None => reply::array(out, 0),
        }
    }

    fn write_from(
        &self,
        call: &Call<'_>,
        group: &Group,
        visit_all: impl FnOnce(Visit<'_>),
        out: &mut Vec<u8>,
    ) {
        if self.limit == 0 {
            return reply::array(out, 0);
        }
        counted(out, reply::array, |out| {
            let mut count = 0;
            visit_all(&mut |delivery| {
                let idle = delivery.idle(call.turn.now_millis);
                if idle < self.idle_min {
                    return ControlFlow::Continue(());
                }
                reply::array(out, 4);
                write_id(delivery.id, out);
                let consumer = group.consumer(delivery.consumer);
                reply::bulk(out, consumer.map_or(b"", |consumer| &consumer.name));
                reply::integer(out, idle as i64);
                reply::integer(out, delivery.count as i64);
                count += 1;
                match count == self.limit {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            count as usize
        });
    }
}

type Visit<'v> = &'v mut dyn FnMut(&Delivery) -> ControlFlow<()>;

/// Writes the number of pending entries, the first and the last, and the number of each consumer.
fn write_summary(call: &Call<'_>, group: &Group, out: &mut Vec<u8>) {
    reply::array(out, 4);
    reply::integer(out, group.pending() as i64);
    let Some((first, last)) = group.pending_ends() else {
        call.turn.protocol.null(out);
        call.turn.protocol.null(out);
        return call.turn.protocol.null_array(out);
    };
    write_id(first, out);
    write_id(last, out);
    counted(out, reply::array, |out| {
        let busy = group.consumers().filter(|consumer| consumer.pending() > 0);
        busy.map(|consumer| {
            reply::array(out, 2);
            reply::bulk(out, &consumer.name);
            let digits = &mut [0; INTEGER_LEN_MAX];
            reply::bulk(out, format_integer(consumer.pending() as i64, digits));
        })
        .count()
    });
}

/// XPENDING.
pub(in crate::commands) fn xpending(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let part = Part::parse(call)?;
    let (key, name) = (call.arg(1), call.arg(2));
    super::look(call, |stream| {
        let group = stream.and_then(|stream| stream.group(name));
        let fault = || no_group("No such key '{}' or consumer group '{}'", [key, name]);
        let group = group.ok_or_else(fault)?;
        match &part {
            Some(part) => part.write(call, group, out),
            None => write_summary(call, group, out),
        }
        Ok(())
    })?
}
