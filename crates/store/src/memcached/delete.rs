//! Deleting items, or only saying that they are out of date.

use super::call::{Call, Done};
use super::expiry::Deadline;
use crate::entry::Entry;
use crate::items::{Encoding, Kind, Meta};
use keyway_base::KeyspaceEvents;
use keyway_memcache::{Item, Outcome, RequestFlags};

/// `delete` and `md`: of a value of any type.
pub(super) fn delete(call: &Call<'_>, out: &mut Vec<u8>) {
    let head = call.head();
    let keeps = head.asked.any(RequestFlags::INVALIDATE | RequestFlags::REMOVE_VALUE);
    call.change(out, |entry| {
        let Some(item) = entry.look() else { return Ok(Outcome::NotFound) };
        if head.cas.is_some_and(|cas| cas == 0 || cas != item.meta().cas) {
            return Ok(Outcome::Exists);
        }
        if keeps {
            return invalidate(call, entry);
        }
        entry.remove();
        entry.notify(KeyspaceEvents::GENERIC, "del");
        Ok(Outcome::Done(Item::default()))
    });
}

/// Empties an item, marks it as stale, or both.
fn invalidate(call: &Call<'_>, entry: &mut Entry<'_>) -> Done {
    let (head, now) = (call.head(), call.turn.now_millis);
    let empties = head.asked.has(RequestFlags::REMOVE_VALUE);
    let Some(item) = entry.look() else { return Ok(Outcome::NotFound) };
    let (old, kind) = (item.meta(), item.encoding().kind());
    if kind != Kind::Text && !empties {
        return Err(kind);
    }
    let has_deadline = head.asked.has(RequestFlags::EXPIRY);
    let deadline = match (has_deadline, empties) {
        (true, _) => Deadline::of(head.expiry, now),
        (false, true) => Deadline::Never,
        (false, false) => Deadline::of_item(old.expiry),
    };
    let is_stale = head.asked.has(RequestFlags::INVALIDATE);
    let cas = match head.cas_new {
        Some(cas) if cas != 0 => cas,
        _ if is_stale => entry.next_cas(),
        _ => old.cas,
    };
    let marks = if is_stale { Meta::STALE } else { 0 };
    let kept =
        if empties { Meta { flags: head.flags, ..Meta::new(Encoding::Text, None) } } else { old };
    let meta = Meta { cas, marks, expiry: deadline.expiry(), ..kept };
    if deadline == Deadline::Past {
        entry.remove();
        entry.notify(KeyspaceEvents::GENERIC, "del");
        return Ok(Outcome::Done(Item::default()));
    }
    if empties {
        entry.put(b"", &meta);
        entry.notify(KeyspaceEvents::STRING, "set");
    } else {
        entry.set_meta(&meta);
    }
    if has_deadline && meta.expiry.is_some() {
        entry.notify(KeyspaceEvents::GENERIC, "expire");
    }
    Ok(Outcome::Done(Item::default()))
}
