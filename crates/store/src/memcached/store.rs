//! Storing values.

use super::call::{Call, Done, forget_replaced};
use super::expiry::Deadline;
use crate::entry::Entry;
use crate::items::{Encoding, Kind, Meta};
use crate::store::reserved_len;
use keyway_base::KeyspaceEvents;
use keyway_memcache::{ErrorKind, Item, Outcome, RequestFlags, Verb, write_stored};

/// Returns whether the call is a usual `set`: of the text protocol, answered, without expiry, and
/// not too long.
#[inline]
pub(super) fn is_usual(call: &Call<'_>) -> bool {
    let head = call.head();
    let is_set = call.request.is_canonical && head.verb == Verb::Set && head.expiry == 0;
    is_set && call.fits(head.flags, call.value().len())
}

/// Such a `set`.
#[inline]
pub(super) fn set_usual(call: &Call<'_>, out: &mut Vec<u8>) {
    call.store.set(call.turn, call.key(), call.value(), call.head().flags);
    write_stored(out);
}

/// `set`, `add`, `replace`, `append`, `prepend`, `cas` and what means the same.
pub(super) fn store(call: &Call<'_>, out: &mut Vec<u8>) {
    let (head, key, value) = (call.head(), call.key(), call.value());
    if !call.fits(head.flags, value.len()) {
        forget_replaced(call);
        return call.fail(ErrorKind::TooLarge, b"", out);
    }
    let joins = matches!(head.verb, Verb::Append | Verb::Prepend);
    let seconds = if joins { head.vivify.unwrap_or(0) } else { head.expiry };
    let deadline = Deadline::of(seconds, call.turn.now_millis);
    let is_numbered = head.asked.has(RequestFlags::CAS) || head.cas_new.is_some();
    if head.verb == Verb::Set && deadline == Deadline::Never && !is_numbered {
        call.store.set(call.turn, key, value, head.flags);
        return call.tell(key, &stored(0, value.len()), out);
    }
    if joins && !has_room_to_join(call) {
        return call.fail(ErrorKind::OutOfMemory, b"", out);
    }
    call.change(out, |entry| match head.verb {
        Verb::Add if entry.exists() => {
            entry.touch();
            Ok(Outcome::NotStored)
        }
        Verb::Replace if !entry.exists() => Ok(Outcome::NotStored),
        Verb::Append | Verb::Prepend => join(call, entry, deadline),
        Verb::Cas => Ok(compare_and_set(call, entry, deadline)),
        _ => Ok(set(call, entry, deadline, 0)),
    });
}

/// Makes room for what `append` and `prepend` make of a long value: that may be copied.
fn has_room_to_join(call: &Call<'_>) -> bool {
    let store = call.store;
    if store.config().memory_max == 0 {
        return true;
    }
    let long_len = store.with_key(call.turn, call.key(), |mut entry| {
        entry.look().filter(|item| item.has_own_block()).map(|item| item.value().len())
    });
    long_len.is_none_or(|len| {
        let len = (len + call.value().len()) as u64;
        store.make_room_beside(len, reserved_len(call.bytes_written()), call.turn)
    })
}

fn stored(cas: u64, value_len: usize) -> Outcome<'static> {
    let cas = (cas != 0).then_some(cas);
    Outcome::Done(Item { cas, size: Some(value_len as u64), ..Item::default() })
}

/// Sets the value with marks.
fn set(call: &Call<'_>, entry: &mut Entry<'_>, deadline: Deadline, marks: u8) -> Outcome<'static> {
    let (head, value) = (call.head(), call.value());
    let cas = match call.number(entry) {
        0 if marks != 0 => entry.next_cas(),
        cas => cas,
    };
    if deadline == Deadline::Past {
        entry.remove();
    } else {
        let (expiry, flags) = (deadline.expiry(), head.flags);
        entry.put(value, &Meta { flags, cas, marks, ..Meta::new(Encoding::Text, expiry) });
    }
    entry.notify(KeyspaceEvents::STRING, "set");
    match deadline {
        Deadline::Never => {}
        Deadline::At(_) => entry.notify(KeyspaceEvents::GENERIC, "expire"),
        Deadline::Past => entry.notify(KeyspaceEvents::EXPIRED, "expired"),
    }
    stored(cas, value.len())
}

/// Sets the value if the one that is there has the number given.
fn compare_and_set(call: &Call<'_>, entry: &mut Entry<'_>, deadline: Deadline) -> Outcome<'static> {
    let Some(item) = entry.look() else { return Outcome::NotFound };
    let (meta, is_text) = (item.meta(), item.encoding().is_text());
    let wanted = call.head().cas.unwrap_or(0);
    if wanted == 0 || !is_text {
        return Outcome::Exists;
    }
    if wanted == meta.cas {
        return set(call, entry, deadline, 0);
    }
    if !call.head().asked.has(RequestFlags::INVALIDATE) || wanted >= entry.cas() {
        return Outcome::Exists;
    }
    // The value is taken, but it is older than what was there.
    let marks = meta.marks & Meta::SENT | Meta::STALE;
    set(call, entry, Deadline::of_item(meta.expiry), marks)
}

/// `append` and `prepend`.
fn join(call: &Call<'_>, entry: &mut Entry<'_>, deadline: Deadline) -> Done {
    let (head, value) = (call.head(), call.value());
    let Some(item) = entry.look() else {
        return Ok(match head.vivify {
            Some(_) => set(call, entry, deadline, 0),
            None => Outcome::NotStored,
        });
    };
    let (meta, old_len, kind) = (item.meta(), item.value().len(), item.encoding().kind());
    if kind != Kind::Text {
        return Err(kind);
    }
    if head.cas.is_some_and(|cas| cas != 0 && cas != meta.cas) {
        return Ok(Outcome::Exists);
    }
    let len = old_len + value.len();
    if !call.fits(meta.flags, len) {
        return Ok(Outcome::NotStored);
    }
    let joined = entry.change_value(len, |bytes| match head.verb {
        Verb::Append => bytes[old_len..].copy_from_slice(value),
        _ => {
            bytes.copy_within(..old_len, value.len());
            bytes[..value.len()].copy_from_slice(value);
        }
    });
    if joined.is_err() {
        return Err(kind);
    }
    let cas = call.number(entry);
    entry.set_meta(&Meta { cas, marks: 0, fresh: true, encoding: Encoding::Raw, ..meta });
    let event = if head.verb == Verb::Append { "append" } else { "set" };
    entry.notify(KeyspaceEvents::STRING, event);
    Ok(stored(cas, len))
}
