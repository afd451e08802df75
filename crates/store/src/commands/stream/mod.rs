//! Streams.

pub(super) mod claim;
pub(super) mod group;
pub(super) mod info;
pub(super) mod read;

use super::call::{Call, Fault, NOT_AN_INTEGER, Outcome, SYNTAX};
use super::key::NO_SUCH_KEY;
use crate::algorithms::number::parse_integer;
use crate::collections::stream::block::Entry;
use crate::collections::stream::id::{ID_LEN_MAX, Id, Wanted};
use crate::collections::stream::{Keep, Log, SetFault, Stream, Trim};
use crate::edits::stream;
use crate::items::Kind;
use keyway_base::KeyspaceEvents;
use keyway_resp::reply;
use std::ops::ControlFlow;

const INVALID_ID: Fault = Fault::Text("ERR Invalid stream ID specified as stream command argument");
/// Most bytes of an entry's strings together.
const ENTRY_LEN_MAX: usize = 1 << 30;
/// Most entries that approximate trimming removes unless told otherwise: those
/// of a hundred blocks.
const LIMIT_DEFAULT: u64 = 10_000;

fn look<R>(call: &Call<'_>, work: impl FnOnce(Option<&Stream>) -> R) -> Result<R, Fault> {
    call.with_key(|mut entry| Ok(work(entry.read_as()?)))
}

/// Argument `index` as an id; `-` and `+` are none.
fn parse_id(call: &Call<'_>, index: usize) -> Result<Id, Fault> {
    Id::parse(call.arg(index), 0).ok_or(INVALID_ID)
}

/// Arguments from `index` on as ids.
fn parse_ids(call: &Call<'_>, index: usize) -> Result<Vec<Id>, Fault> {
    (index..call.args.len()).map(|index| parse_id(call, index)).collect()
}

/// An end of a range of ids: the first or the last one that is in it.
fn parse_end(text: &[u8], is_last: bool) -> Result<Id, Fault> {
    let missing_seq = if is_last { u64::MAX } else { 0 };
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => {
            let id = Id::parse(rest, missing_seq).ok_or(INVALID_ID)?;
            let (id, fault) = match is_last {
                false => (id.next(), "ERR invalid start ID for the interval"),
                true => (id.previous(), "ERR invalid end ID for the interval"),
            };
            id.ok_or(Fault::Text(fault))
        }
        _ => parse_open_id(text, missing_seq),
    }
}

/// An id, or `-` or `+` for the ends of all.
fn parse_open_id(text: &[u8], missing_seq: u64) -> Result<Id, Fault> {
    // To Redis a zero ends the text.
    match text {
        b"-" | [b'-', 0, ..] => Ok(Id::ZERO),
        b"+" | [b'+', 0, ..] => Ok(Id::MAX),
        _ => Id::parse(text, missing_seq).ok_or(INVALID_ID),
    }
}

fn write_id(id: Id, out: &mut Vec<u8>) {
    reply::bulk(out, id.format(&mut [0; ID_LEN_MAX]));
}

fn write_entry(entry: &Entry<'_>, out: &mut Vec<u8>) {
    reply::array(out, 2);
    write_id(entry.id, out);
    reply::array(out, 2 * entry.pairs.len());
    for (name, value) in entry.pairs {
        name.with_bytes(|bytes| reply::bulk(out, bytes));
        value.with_bytes(|bytes| reply::bulk(out, bytes));
    }
}

/// Lets `write` append elements and tell their number, and puts before them
/// what `head` makes of it.
fn counted(
    out: &mut Vec<u8>,
    head: impl FnOnce(&mut Vec<u8>, usize),
    write: impl FnOnce(&mut Vec<u8>) -> usize,
) {
    let start = out.len();
    let count = write(out);
    let end = out.len();
    head(out, count);
    let head_len = out.len() - end;
    out[start..].rotate_right(head_len);
}

/// Writes the entries of a range, up to `limit`, which 0 does not set.
fn write_range(log: &Log, range: (Id, Id), reverse: bool, limit: u64, out: &mut Vec<u8>) {
    counted(out, reply::array, |out| {
        let mut count = 0;
        let _ = log.visit(range, reverse, |entry| {
            write_entry(&entry, out);
            count += 1;
            if count == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        count as usize
    });
}

/// The options of XADD and XTRIM.
struct Options {
    trim: Option<Trim>,
    /// Only an existing stream is added to.
    if_present: bool,
    /// Of XADD.
    wanted: Wanted,
    /// Where the options, or XADD's id, end.
    end: usize,
}

impl Options {
    fn parse(call: &Call<'_>, adds: bool) -> Result<Self, Fault> {
        let mut options = Self { trim: None, if_present: false, wanted: Wanted::Next, end: 2 };
        let mut limit = None;
        let count = call.args.len();
        while options.end < count {
            let index = options.end;
            let has_value = index + 1 < count;
            match () {
                () if adds && call.arg(index) == b"*" => {
                    options.end += 1;
                    return options.with_limit(limit, adds);
                }
                () if has_value && (call.is(index, "maxlen") || call.is(index, "minid")) => {
                    options.parse_trim(call)?;
                }
                () if has_value && call.is(index, "limit") => {
                    let value = call.integer(index + 1)?;
                    let fault = Fault::Text("ERR The LIMIT argument must be >= 0.");
                    limit = Some(u64::try_from(value).map_err(|_| fault)?);
                    options.end += 2;
                }
                () if adds && call.is(index, "nomkstream") => {
                    options.if_present = true;
                    options.end += 1;
                }
                () if adds => {
                    options.wanted = Wanted::parse(call.arg(index)).ok_or(INVALID_ID)?;
                    options.end += 1;
                    return options.with_limit(limit, adds);
                }
                () => return Err(SYNTAX),
            }
        }
        options.with_limit(limit, adds)
    }

    fn parse_trim(&mut self, call: &Call<'_>) -> Result<(), Fault> {
        if self.trim.is_some() {
            return Err(Fault::Text(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        let by_len = call.is(self.end, "maxlen");
        self.end += 1;
        let mut approximate = false;
        if self.end + 1 < call.args.len() && matches!(call.arg(self.end), b"~" | b"=") {
            approximate = call.arg(self.end) == b"~";
            self.end += 1;
        }
        let keep = if by_len {
            let fault = Fault::Text("ERR The MAXLEN argument must be >= 0.");
            Keep::Len(u64::try_from(call.integer(self.end)?).map_err(|_| fault)?)
        } else {
            Keep::From(parse_id(call, self.end)?)
        };
        self.end += 1;
        self.trim = Some(Trim { keep, approximate, limit: 0 });
        Ok(())
    }

    fn with_limit(mut self, limit: Option<u64>, adds: bool) -> Result<Self, Fault> {
        let approximate = self.trim.is_some_and(|trim| trim.approximate);
        let fault = match (self.trim, limit) {
            (None, Some(1..)) => {
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
            }
            (None, _) if !adds => "ERR syntax error, XTRIM must be called with a trimming strategy",
            (_, Some(_)) if !approximate => {
                "ERR syntax error, LIMIT cannot be used without the special ~ option"
            }
            _ => {
                if let Some(trim) = &mut self.trim
                    && approximate
                {
                    trim.limit = limit.unwrap_or(LIMIT_DEFAULT);
                }
                return Ok(self);
            }
        };
        Err(Fault::Text(fault))
    }
}

/// XADD.
pub(super) fn xadd(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    const NOT_BEHIND: Fault = Fault::Text(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    );
    let options = Options::parse(call, true)?;
    let words = call.args.len().saturating_sub(options.end);
    if words < 2 || !words.is_multiple_of(2) {
        return Err(Fault::Text("ERR wrong number of arguments for 'xadd' command"));
    }
    if options.wanted == Wanted::This(Id::ZERO) {
        return Err(Fault::Text("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let pairs = call.args_from(options.end, 2).zip(call.args_from(options.end + 1, 2));
    let len: usize = pairs.clone().map(|(name, value)| name.len() + value.len()).sum();
    let added = call.with_key(|mut entry| {
        let newest = match entry.look_at::<&Stream>()? {
            None if options.if_present => return Ok(None),
            found => found.map_or(Id::ZERO, |stream| stream.log().newest()),
        };
        if newest == Id::MAX {
            return Err(Fault::Text(
                "ERR The stream has exhausted the last possible ID, unable to add more items",
            ));
        }
        let mut trimmed = 0;
        let id = entry.edit(Kind::Stream, "xadd", |editor| {
            let log = editor.view::<&Stream>().map(Stream::log);
            let id = match log {
                Some(log) => log.choose(options.wanted, call.turn.now_millis),
                None => Log::new().choose(options.wanted, call.turn.now_millis),
            };
            let id = id.ok_or(NOT_BEHIND)?;
            if len > ENTRY_LEN_MAX {
                return Err(Fault::Text("ERR Elements are too large to be stored"));
            }
            stream::make(editor);
            editor.touch();
            stream::edit(editor, |stream| {
                stream.log_mut().push(id, pairs);
                trimmed = options.trim.map_or(0, |trim| stream.log_mut().trim(trim));
            });
            Ok(id)
        })??;
        if trimmed > 0 {
            entry.notify(KeyspaceEvents::STREAM, "xtrim");
        }
        Ok(Some(id))
    })?;
    match added {
        Some(id) => write_id(id, out),
        None => call.turn.protocol.null(out),
    }
    Ok(())
}

/// XLEN.
pub(super) fn xlen(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let len = look(call, |stream| stream.map_or(0, |stream| stream.log().len()))?;
    reply::integer(out, len as i64);
    Ok(())
}

/// XRANGE, and with `reverse` XREVRANGE.
pub(super) fn xrange(call: &Call<'_>, reverse: bool, out: &mut Vec<u8>) -> Outcome {
    let (start, end) = if reverse { (3, 2) } else { (2, 3) };
    let range = (parse_end(call.arg(start), false)?, parse_end(call.arg(end), true)?);
    let mut limit = None;
    let mut index = 4;
    while index < call.args.len() {
        if !call.is(index, "count") || index + 1 == call.args.len() {
            return Err(SYNTAX);
        }
        limit = Some(u64::try_from(call.integer(index + 1)?).unwrap_or(0));
        index += 2;
    }
    look(call, |stream| match (stream, limit) {
        (None, _) => reply::array(out, 0),
        (Some(_), Some(0)) => call.turn.protocol.null_array(out),
        (Some(stream), limit) => {
            write_range(stream.log(), range, reverse, limit.unwrap_or(0), out);
        }
    })
}

/// XDEL.
pub(super) fn xdel(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let removed = call.with_key(|mut entry| {
        if entry.look_at::<&Stream>()?.is_none() {
            return Ok(0);
        }
        let ids = parse_ids(call, 2)?;
        Ok::<_, Fault>(entry.edit(Kind::Stream, "xdel", |editor| {
            let removed = stream::edit(editor, |stream| {
                ids.iter().filter(|id| stream.log_mut().remove(**id)).count()
            });
            let removed = removed.unwrap_or(0);
            if removed > 0 {
                editor.touch();
            }
            removed
        })?)
    })?;
    reply::integer(out, removed as i64);
    Ok(())
}

/// XTRIM.
pub(super) fn xtrim(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let trim = Options::parse(call, false)?.trim.ok_or(SYNTAX)?;
    let removed = call.with_key(|mut entry| {
        entry.edit(Kind::Stream, "xtrim", |editor| {
            let removed = stream::edit(editor, |stream| stream.log_mut().trim(trim)).unwrap_or(0);
            if removed > 0 {
                editor.touch();
            }
            removed
        })
    })?;
    reply::integer(out, removed as i64);
    Ok(())
}

/// XSETID.
pub(super) fn xsetid(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let newest = parse_id(call, 2)?;
    let (mut added, mut deleted) = (None, None);
    let mut index = 3;
    while index < call.args.len() {
        let has_value = index + 1 < call.args.len();
        if has_value && call.is(index, "entriesadded") {
            let fault = Fault::Text("ERR entries_added must be positive");
            added = Some(u64::try_from(call.integer(index + 1)?).map_err(|_| fault)?);
        } else if has_value && call.is(index, "maxdeletedid") {
            let id = parse_id(call, index + 1)?;
            if newest < id {
                return Err(Fault::Text(
                    "ERR The ID specified in XSETID is smaller than the provided \
                     max_deleted_entry_id",
                ));
            }
            deleted = Some(id).filter(|id| *id != Id::ZERO);
        } else {
            return Err(SYNTAX);
        }
        index += 2;
    }
    call.with_key(|mut entry| {
        entry.look_at::<&Stream>()?.ok_or(NO_SUCH_KEY)?;
        entry.edit(Kind::Stream, "xsetid", |editor| {
            let set = |stream: &mut Stream| stream.log_mut().set_newest(newest, added, deleted);
            match stream::edit(editor, set) {
                Some(Err(SetFault::BehindLast)) => Err(Fault::Text(
                    "ERR The ID specified in XSETID is smaller than the target stream top item",
                )),
                Some(Err(SetFault::AddedBelowLen)) => Err(Fault::Text(
                    "ERR The entries_added specified in XSETID is smaller than the target stream \
                     length",
                )),
                _ => {
                    editor.touch();
                    Ok(())
                }
            }
        })?
    })?;
    out.extend_from_slice(b"+OK\r\n");
    Ok(())
}

/// A number that is told with words of its own when it is none; negative ones
/// count as 0.
fn parse_millis(call: &Call<'_>, index: usize, fault: &'static str) -> Result<u64, Fault> {
    let value = parse_integer(call.arg(index)).ok_or(Fault::Text(fault))?;
    Ok(u64::try_from(value).unwrap_or(0))
}

/// The COUNT of readers: negative ones count as 0, which sets no limit.
fn parse_limit(call: &Call<'_>, index: usize) -> Result<u64, Fault> {
    let value = parse_integer(call.arg(index)).ok_or(NOT_AN_INTEGER)?;
    Ok(u64::try_from(value).unwrap_or(0))
}

/// The error of a group that is not there: `text` with the names in the place
/// of its braces.
fn no_group(text: &str, names: [&[u8]; 2]) -> Fault {
    let mut parts = text.split("{}");
    let mut line = b"NOGROUP ".to_vec();
    line.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for (name, part) in names.into_iter().zip(parts) {
        push_text(name, &mut line);
        line.extend_from_slice(part.as_bytes());
    }
    Fault::Line(line)
}

/// Appends `text` up to its first zero, where Redis's error takes it to end.
fn push_text(text: &[u8], line: &mut Vec<u8>) {
    line.extend(text.iter().take_while(|byte| **byte != 0));
}

/// The error of a subcommand with arguments it has not.
fn subcommand_fault(call: &Call<'_>) -> Fault {
    let mut line = b"ERR unknown subcommand or wrong number of arguments for '".to_vec();
    let name = call.arg(1);
    push_text(&name[..name.len().min(128)], &mut line);
    line.extend_from_slice(b"'. Try ");
    line.extend(call.arg(0).to_ascii_uppercase());
    line.extend_from_slice(b" HELP.");
    Fault::Line(line)
}
