//! Keys, whatever their values.

use super::call::{Call, Fault, Outcome, SYNTAX};
use crate::entry::Entry;
use crate::store::Turn;
use keyway_base::KeyspaceEvents;
use keyway_resp::reply;

pub(super) const NO_SUCH_KEY: Fault = Fault::Text("ERR no such key");
const SAME_OBJECT: Fault = Fault::Text("ERR source and destination objects are the same");

/// Counts for how many of the keys `holds`.
fn count(call: &Call<'_>, out: &mut Vec<u8>, holds: impl Fn(&mut Entry<'_>) -> bool) -> Outcome {
    let total = if call.args.len() == 2 {
        usize::from(call.with_key(|mut entry| holds(&mut entry)))
    } else {
        let keys = call.args_from(1, 1);
        let mut locked = call.store.lock_keys(keys.clone());
        locked.prefetch(call.turn, keys.clone());
        keys.filter(|key| holds(&mut locked.entry(call.turn, key))).count()
    };
    reply::integer(out, total as i64);
    Ok(())
}

/// DEL and UNLINK.
pub(super) fn del(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    count(call, out, |entry| {
        let was_there = entry.remove();
        if was_there {
            entry.notify(KeyspaceEvents::GENERIC, "del");
        }
        was_there
    })
}

/// EXISTS.
pub(super) fn exists(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    count(call, out, |entry| entry.peek().is_some())
}

/// TOUCH.
pub(super) fn touch(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    count(call, out, |entry| entry.read().is_some())
}

/// TYPE.
pub(super) fn key_type(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let name = call.with_key(|mut entry| entry.peek().map(|item| item.kind().name()));
    reply::simple(out, name.unwrap_or("none"));
    Ok(())
}

/// RENAME.
pub(super) fn rename(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    rename_unless(call, false)?;
    out.extend_from_slice(b"+OK\r\n");
    Ok(())
}

/// RENAMENX.
pub(super) fn renamenx(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let done = rename_unless(call, true)?;
    reply::integer(out, i64::from(done));
    Ok(())
}

/// Renames, unless with `if_missing` there is such a key; whether it did.
fn rename_unless(call: &Call<'_>, if_missing: bool) -> Result<bool, Fault> {
    let (source, target) = (call.arg(1), call.arg(2));
    let mut locked = call.store.lock_keys([source, target].into_iter());
    if !locked.entry(call.turn, source).exists() {
        return Err(NO_SUCH_KEY);
    }
    if source == target {
        return Ok(!if_missing);
    }
    if if_missing && locked.entry(call.turn, target).exists() {
        return Ok(false);
    }
    let item = locked.entry(call.turn, source).take_as(target);
    if let Some(item) = item {
        locked.entry(call.turn, target).adopt(item);
    }
    call.notify(KeyspaceEvents::GENERIC, "rename_from", source);
    call.notify(KeyspaceEvents::GENERIC, "rename_to", target);
    Ok(true)
}

/// COPY.
pub(super) fn copy(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let (source, target) = (call.arg(1), call.arg(2));
    let mut there = call.turn;
    let mut replace = false;
    let mut index = 3;
    while index < call.args.len() {
        if call.is(index, "replace") {
            replace = true;
        } else if call.is(index, "db") && index + 1 < call.args.len() {
            index += 1;
            there = Turn { database: call.database(index)?, ..call.turn };
        } else {
            return Err(SYNTAX);
        }
        index += 1;
    }
    if call.turn.database == there.database && source == target {
        return Err(SAME_OBJECT);
    }
    let len = call.store.with_key(call.turn, source, |mut entry| entry.bytes());
    let _room = call.reserve_room_for(len.unwrap_or_default() as u64)?;
    let mut locked = call.store.lock_keys([source, target].into_iter());
    let found = locked.entry(call.turn, source).read().is_some();
    let done = found && (replace || !locked.entry(there, target).exists());
    if done {
        let copy = locked.entry(call.turn, source).duplicate(target);
        if let Some(copy) = copy {
            locked.entry(there, target).adopt(copy);
        }
        call.store.note_event(there, KeyspaceEvents::GENERIC, "copy_to", target);
    }
    reply::integer(out, i64::from(done));
    Ok(())
}

/// MOVE.
pub(super) fn move_key(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let key = call.arg(1);
    let there = Turn { database: call.database(2)?, ..call.turn };
    if there.database == call.turn.database {
        return Err(SAME_OBJECT);
    }
    let mut locked = call.store.lock_keys(std::iter::once(key));
    let mut item = None;
    if !locked.entry(there, key).exists() {
        item = locked.entry(call.turn, key).take();
    }
    let done = item.is_some();
    if let Some(item) = item {
        locked.entry(there, key).adopt(item);
        call.notify(KeyspaceEvents::GENERIC, "move_from", key);
        call.store.note_event(there, KeyspaceEvents::GENERIC, "move_to", key);
    }
    reply::integer(out, i64::from(done));
    Ok(())
}
