//! Strings as wholes and in ranges.

use super::call::{Call, Fault, Outcome, SYNTAX, TOO_LONG};
use super::expire::{Base, Deadline};
use crate::entry::Entry;
use crate::items::{Encoding, STRING_LEN_MAX};
use keyway_base::KeyspaceEvents;
use keyway_resp::reply;

pub(super) use super::expire::Unit;

/// GET.
#[inline]
pub(super) fn get(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    call.store.read(call.turn, call.arg(1), |item| match item {
        Some(item) => call.write_bulk(&item, item.value(), out),
        None => call.turn.protocol.null(out),
    })?;
    Ok(())
}

/// Reads the entry and appends its value, or null.
#[inline]
fn write_value(call: &Call<'_>, entry: &mut Entry<'_>, out: &mut Vec<u8>) -> Outcome {
    match entry.read_text()? {
        Some(item) => call.write_bulk(&item, item.value(), out),
        None => call.turn.protocol.null(out),
    }
    Ok(())
}

/// The option of SET and GETEX about the expiry.
#[derive(Clone, Copy, Default)]
enum Keep<'a> {
    /// SET drops it, GETEX keeps it.
    #[default]
    Default,
    Set(Deadline<'a>),
    /// KEEPTTL of SET.
    Retain,
    /// PERSIST of GETEX.
    Drop,
}

/// The options of SET.
#[derive(Clone, Copy, Default)]
struct SetOptions<'a> {
    if_missing: bool,
    if_present: bool,
    get: bool,
    keep: Keep<'a>,
}

/// Reads the time that the option at `index` sets, if it is such an option and
/// may stand there behind the options before it: EX twice is allowed, EX and
/// PX is not.
fn parse_deadline<'a>(call: &Call<'a>, index: usize, keep: &Keep<'a>) -> Option<Deadline<'a>> {
    let (unit, base) = match () {
        () if call.is(index, "ex") => (Unit::Seconds, Base::Now),
        () if call.is(index, "px") => (Unit::Millis, Base::Now),
        () if call.is(index, "exat") => (Unit::Seconds, Base::Epoch),
        () if call.is(index, "pxat") => (Unit::Millis, Base::Epoch),
        () => return None,
    };
    let allowed = match keep {
        Keep::Default => true,
        Keep::Set(before) => before.unit == unit && before.base == base,
        Keep::Retain | Keep::Drop => false,
    };
    let text = call.args.get(index + 1)?;
    allowed.then_some(Deadline { text, unit, base })
}

impl<'a> SetOptions<'a> {
    fn parse(call: &Call<'a>) -> Result<Self, Fault> {
        let mut options = Self::default();
        let mut index = 3;
        while index < call.args.len() {
            let keeps = matches!(options.keep, Keep::Default | Keep::Retain);
            if let Some(deadline) = parse_deadline(call, index, &options.keep) {
                options.keep = Keep::Set(deadline);
                index += 1;
            } else if call.is(index, "nx") && !options.if_present {
                options.if_missing = true;
            } else if call.is(index, "xx") && !options.if_missing {
                options.if_present = true;
            } else if call.is(index, "get") {
                options.get = true;
            } else if call.is(index, "keepttl") && keeps {
                options.keep = Keep::Retain;
            } else {
                return Err(SYNTAX);
            }
            index += 1;
        }
        Ok(options)
    }
}

/// SET.
#[inline]
pub(super) fn set(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    if call.args.len() == 3 && !call.has_streamed() {
        call.store.set(call.turn, call.arg(1), call.arg(2), 0);
        out.extend_from_slice(b"+OK\r\n");
        return Ok(());
    }
    set_with_options(call, out)
}

fn set_with_options(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let options = SetOptions::parse(call)?;
    let expiry = match options.keep {
        Keep::Set(deadline) => Some(deadline.positive_millis(call)?),
        _ => None,
    };
    call.with_key(|mut entry| {
        if options.get {
            write_value(call, &mut entry, out)?;
        }
        let exists = entry.exists();
        let refused = options.if_missing && exists || options.if_present && !exists;
        if !refused {
            let expiry = match options.keep {
                Keep::Retain => entry.item().and_then(|item| item.expiry()),
                _ => expiry,
            };
            let sets_expiry = matches!(options.keep, Keep::Set(_));
            set_until(call, &mut entry, call.arg(2), expiry, sets_expiry);
        }
        match (options.get, refused) {
            (true, _) => {}
            (false, true) => call.turn.protocol.null(out),
            (false, false) => out.extend_from_slice(b"+OK\r\n"),
        }
        Ok(())
    })
}

/// Sets a value that may have expired already: then it is gone at once.
fn set_until(
    call: &Call<'_>,
    entry: &mut Entry<'_>,
    value: &[u8],
    expiry: Option<u64>,
    sets_expiry: bool,
) {
    let is_past = expiry.is_some_and(|expiry| expiry <= call.turn.now_millis);
    if is_past {
        entry.remove();
    } else {
        call.set_text(entry, value, expiry);
    }
    entry.notify(KeyspaceEvents::STRING, "set");
    if sets_expiry {
        entry.notify(KeyspaceEvents::GENERIC, "expire");
    }
    if is_past {
        entry.notify(KeyspaceEvents::EXPIRED, "expired");
    }
}

/// SETEX and PSETEX.
pub(super) fn setex(call: &Call<'_>, unit: Unit, out: &mut Vec<u8>) -> Outcome {
    let deadline = Deadline { text: call.arg(2), unit, base: Base::Now };
    let expiry = deadline.positive_millis(call)?;
    call.with_key(|mut entry| {
        call.set_text(&mut entry, call.arg(3), Some(expiry));
        entry.notify(KeyspaceEvents::STRING, "set");
        entry.notify(KeyspaceEvents::GENERIC, "expire");
    });
    out.extend_from_slice(b"+OK\r\n");
    Ok(())
}

/// SETNX.
pub(super) fn setnx(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let done = call.with_key(|mut entry| {
        let missing = !entry.exists();
        if missing {
            call.set_text(&mut entry, call.arg(2), None);
            entry.notify(KeyspaceEvents::STRING, "set");
        }
        missing
    });
    reply::integer(out, i64::from(done));
    Ok(())
}

/// GETSET.
pub(super) fn getset(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    call.with_key(|mut entry| {
        write_value(call, &mut entry, out)?;
        entry.set(call.arg(2), Encoding::Text, None);
        entry.notify(KeyspaceEvents::STRING, "set");
        Ok(())
    })
}

/// GETDEL.
pub(super) fn getdel(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    call.with_key(|mut entry| {
        write_value(call, &mut entry, out)?;
        if entry.remove() {
            entry.notify(KeyspaceEvents::GENERIC, "del");
        }
        Ok(())
    })
}

/// GETEX.
pub(super) fn getex(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let mut keep = Keep::Default;
    let mut index = 2;
    while index < call.args.len() {
        if let Some(deadline) = parse_deadline(call, index, &keep) {
            keep = Keep::Set(deadline);
            index += 1;
        } else if call.is(index, "persist") && !matches!(keep, Keep::Set(_)) {
            keep = Keep::Drop;
        } else {
            return Err(SYNTAX);
        }
        index += 1;
    }
    call.with_key(|mut entry| {
        write_value(call, &mut entry, out)?;
        if !entry.exists() {
            return Ok(());
        }
        match keep {
            Keep::Default | Keep::Retain => {}
            Keep::Drop => {
                let was_volatile = entry.item().is_some_and(|item| item.expiry().is_some());
                entry.set_expiry(None);
                if was_volatile {
                    entry.notify(KeyspaceEvents::GENERIC, "persist");
                }
            }
            Keep::Set(deadline) => {
                let expiry = deadline.positive_millis(call)?;
                if expiry <= call.turn.now_millis {
                    entry.remove();
                    entry.notify(KeyspaceEvents::GENERIC, "del");
                } else {
                    entry.set_expiry(Some(expiry));
                    entry.notify(KeyspaceEvents::GENERIC, "expire");
                }
            }
        }
        Ok(())
    })
}

/// GETRANGE and SUBSTR.
pub(super) fn getrange(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    call.with_key(|mut entry| {
        match entry.read_text()? {
            Some(item) => call.write_bulk(&item, range_of(item.value(), start, end), out),
            None => reply::bulk(out, b""),
        }
        Ok(())
    })
}

/// The bytes from `start` to `end`, both inclusive; negative ones count from
/// the end.
fn range_of(value: &[u8], start: i64, end: i64) -> &[u8] {
    let len = value.len() as i64;
    if len == 0 || start < 0 && end < 0 && start > end {
        return b"";
    }
    let clip = |index: i64| if index < 0 { (len + index.max(-len)).max(0) } else { index };
    let (start, end) = (clip(start), clip(end).min(len - 1));
    if start > end { b"" } else { &value[start as usize..=end as usize] }
}

/// STRLEN.
pub(super) fn strlen(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let len = call.with_key(|mut entry| {
        entry.read_text().map(|item| item.map_or(0, |item| item.value().len()))
    })?;
    reply::integer(out, len as i64);
    Ok(())
}

/// APPEND.
pub(super) fn append(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let mut room = None;
    loop {
        let has_room = room.is_some() || call.store.config().memory_max == 0;
        match append_to(call, has_room)? {
            Appended::Now(len) => {
                reply::integer(out, len as i64);
                return Ok(());
            }
            Appended::NeedsRoom(len) => room = Some(call.reserve_room_for(len as u64)?),
        }
    }
}

enum Appended {
    /// The new length of the value.
    Now(usize),
    /// The length of a long value that may have to be copied: it needs room.
    NeedsRoom(usize),
}

fn append_to(call: &Call<'_>, has_room: bool) -> Result<Appended, Fault> {
    let tail = call.arg(2);
    call.with_key(|mut entry| {
        let Some(item) = entry.text()? else {
            entry.set(tail, Encoding::Text, None);
            entry.notify(KeyspaceEvents::STRING, "append");
            return Ok(Appended::Now(tail.len()));
        };
        let old_len = item.value().len();
        let len = old_len + tail.len();
        if len as u64 > STRING_LEN_MAX {
            return Err(TOO_LONG);
        }
        if item.has_own_block() && !has_room {
            return Ok(Appended::NeedsRoom(len));
        }
        entry.change_value(len, |value| value[old_len..].copy_from_slice(tail))?;
        entry.notify(KeyspaceEvents::STRING, "append");
        Ok(Appended::Now(len))
    })
}

/// SETRANGE.
pub(super) fn setrange(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let offset = call.integer(2)?;
    let patch = call.arg(3);
    let Ok(offset) = u64::try_from(offset) else {
        return Err(Fault::Text("ERR offset is out of range"));
    };
    let end = offset.saturating_add(patch.len() as u64);
    let changes = !patch.is_empty();
    if changes && end > STRING_LEN_MAX {
        // Another type is the first fault.
        call.with_key(|mut entry| entry.text().map(drop))?;
        return Err(TOO_LONG);
    }
    let _room = call.reserve_room_for(if changes { end } else { 0 })?;
    let len = call.with_key(|mut entry| {
        let old_len = entry.text()?.map_or(0, |item| item.value().len());
        if !changes {
            return Ok(old_len);
        }
        let len = old_len.max(end as usize);
        let range = offset as usize..end as usize;
        entry.change_value(len, |value| value[range].copy_from_slice(patch))?;
        entry.notify(KeyspaceEvents::STRING, "setrange");
        Ok::<_, Fault>(len)
    })?;
    reply::integer(out, len as i64);
    Ok(())
}

/// MGET.
pub(super) fn mget(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let keys = call.args_from(1, 1);
    let mut locked = call.store.lock_keys(keys.clone());
    locked.prefetch(call.turn, keys.clone());
    reply::array(out, call.args.len() - 1);
    for key in keys {
        let mut entry = locked.entry(call.turn, key);
        if write_value(call, &mut entry, out).is_err() {
            call.turn.protocol.null(out);
        }
    }
    Ok(())
}

/// MSET.
pub(super) fn mset(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    set_many(call, false)?;
    out.extend_from_slice(b"+OK\r\n");
    Ok(())
}

/// MSETNX.
pub(super) fn msetnx(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let done = set_many(call, true)?;
    reply::integer(out, i64::from(done));
    Ok(())
}

/// Sets all pairs, or with `if_missing` all or none; whether it did.
fn set_many(call: &Call<'_>, if_missing: bool) -> Result<bool, Fault> {
    if call.args.len().is_multiple_of(2) {
        return Err(Fault::Text(match if_missing {
            false => "ERR wrong number of arguments for 'mset' command",
            true => "ERR wrong number of arguments for 'msetnx' command",
        }));
    }
    let keys = call.args_from(1, 2);
    let mut locked = call.store.lock_keys(keys.clone());
    locked.prefetch(call.turn, keys.clone());
    if if_missing && keys.clone().any(|key| locked.entry(call.turn, key).exists()) {
        return Ok(false);
    }
    for (key, value) in keys.zip(call.args_from(2, 2)) {
        let mut entry = locked.entry(call.turn, key);
        entry.set(value, Encoding::Text, None);
        entry.notify(KeyspaceEvents::STRING, "set");
    }
    Ok(true)
}
