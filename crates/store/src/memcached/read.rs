//! Reading items.

use super::call::{Call, wrong_kind};
use super::expiry::{Deadline, Walk, set_deadline};
use super::told;
use crate::entry::Entry;
use crate::items::{ACCESS_MASK, Encoding, Item as StoredItem, Kind, Meta};
use crate::store::{KeyHint, Transfer};
use keyway_base::KeyspaceEvents;
use keyway_memcache::{
    Dialect, Item, Outcome, Request, RequestFlags, Verb, value_end_len, write_end,
};
use smallvec::SmallVec;

/// Keys whose memory is fetched in one go: enough to overlap, few enough to
/// still be in the first cache when their turn comes.
const KEYS_AHEAD: usize = 16;

/// The flags of a read that changes nothing and needs no earlier state of the item.
const PLAIN: RequestFlags = RequestFlags::VALUE
    .with(RequestFlags::FLAGS)
    .with(RequestFlags::CAS)
    .with(RequestFlags::KEY)
    .with(RequestFlags::SIZE)
    .with(RequestFlags::KEY_BASE64)
    .with(RequestFlags::OPAQUE);

/// Returns whether it only reads values, with flags and perhaps numbers: `get`, `gets`,
/// binary gets, and most of `mg`.
#[inline]
pub(super) fn is_plain(request: &Request) -> bool {
    let head = &request.head;
    let is_plain_meta = || {
        let asks_for_more = head.asked.without(PLAIN) != RequestFlags::NONE;
        !asks_for_more && head.vivify.is_none() && head.recache.is_none()
    };
    head.verb == Verb::Get && (head.dialect != Dialect::Meta || is_plain_meta())
}

/// Such a request of one key.
#[inline]
pub(super) fn get_one(call: &Call<'_>, out: &mut Vec<u8>) {
    let key = call.key();
    let start = out.len();
    match get(call, key, out) {
        Ok(()) => write_end(out, call.head()),
        Err(kind) => fail(call, key, kind, start, out),
    }
}

/// Appends what is to be told of a key.
#[inline]
fn get(call: &Call<'_>, key: &[u8], out: &mut Vec<u8>) -> Result<(), Kind> {
    let head = call.head();
    let wants_cas = head.asked.has(RequestFlags::CAS);
    let mut is_told = true;
    let read = call.store.read(call.turn, key, |item| {
        let Some(item) = item else { return call.tell(key, &Outcome::NotFound, out) };
        let (cas, marks) = item.cas_and_marks();
        is_told = !(wants_cas && cas == 0 || marks != 0 && head.dialect == Dialect::Meta);
        if is_told {
            tell_item(call, key, item, wants_cas.then_some(cas), out);
        }
    });
    match read {
        Ok(()) if is_told => Ok(()),
        Ok(()) => get_with_state(call, key, out),
        Err(_) => Err(kind_of(call, key)),
    }
}

/// The same of a key that was counted as read, but has no number yet, or is out
/// of date.
#[cold]
fn get_with_state(call: &Call<'_>, key: &[u8], out: &mut Vec<u8>) -> Result<(), Kind> {
    match call.store.effects.is_on() && call.head().dialect == Dialect::Meta {
        // It may be marked as sent.
        true => told::tell(call, out, |call, out| read_state(call, key, out)),
        false => read_state(call, key, out),
    }
}

fn read_state(call: &Call<'_>, key: &[u8], out: &mut Vec<u8>) -> Result<(), Kind> {
    call.store.with_key(call.turn, key, |mut entry| {
        if call.head().dialect == Dialect::Meta {
            return read_meta(call, entry, Counted::Yes, key, out);
        }
        let cas = entry.cas();
        // Its lock was free for a moment.
        match entry.look().filter(|item| item.encoding().is_text()) {
            Some(item) => tell_item(call, key, item, Some(cas), out),
            None => call.tell(key, &Outcome::NotFound, out),
        }
        Ok(())
    })
}

#[inline]
fn tell_item(
    call: &Call<'_>,
    key: &[u8],
    item: StoredItem<'_>,
    cas: Option<u64>,
    out: &mut Vec<u8>,
) {
    let (flags, value) = (item.flags(), item.value());
    let told = Item { flags, value, cas, ..Item::default() };
    match call.transfer.filter(|transfer| transfer.is_for(&item, value)) {
        None => call.tell(key, &Outcome::Hit(told), out),
        Some(transfer) => tell_apart(call, transfer, key, &item, told, out),
    }
}

/// The same of a value that is not copied, if it is asked for.
#[cold]
fn tell_apart(
    call: &Call<'_>,
    transfer: &Transfer<'_>,
    key: &[u8],
    item: &StoredItem<'_>,
    told: Item<'_>,
    out: &mut Vec<u8>,
) {
    let dialect = call.head().dialect;
    let is_asked = dialect != Dialect::Meta || call.head().asked.has(RequestFlags::VALUE);
    if !is_asked {
        return call.tell(key, &Outcome::Hit(told), out);
    }
    call.tell(key, &Outcome::Hit(Item { is_apart: true, ..told }), out);
    transfer.insert(item, told.value, out.len() - value_end_len(dialect));
}

#[cold]
fn kind_of(call: &Call<'_>, key: &[u8]) -> Kind {
    let kind = |mut entry: Entry<'_>| entry.item().map(|item| item.kind());
    call.store.with_key(call.turn, key, kind).unwrap_or(Kind::Text)
}

/// An error is all that is told of a request.
#[cold]
fn fail(call: &Call<'_>, key: &[u8], kind: Kind, start: usize, out: &mut Vec<u8>) {
    if let Some(transfer) = call.transfer {
        transfer.withdraw(start);
    }
    out.truncate(start);
    call.tell(key, &wrong_kind(kind), out);
}

/// Any request that reads items.
pub(super) fn read(call: &Call<'_>, out: &mut Vec<u8>) {
    let (start, count) = (out.len(), call.request.keys.len());
    let is_plain = is_plain(call.request);
    for first in (0..count).step_by(KEYS_AHEAD) {
        let some = first..count.min(first + KEYS_AHEAD);
        let keys = some.map(|index| call.request.key(call.bytes, index));
        if count > 1 {
            let hints: SmallVec<[KeyHint; KEYS_AHEAD]> =
                keys.clone().map(|key| call.store.hint(key)).collect();
            call.store.prefetch(call.turn.database, &hints);
        }
        for key in keys {
            let read = match (is_plain, call.head().dialect) {
                (true, _) => get(call, key, out),
                (_, Dialect::Meta) => call.store.with_key(call.turn, key, |entry| {
                    read_meta(call, entry, Counted::No, key, out)
                }),
                _ => call
                    .store
                    .with_key(call.turn, key, |entry| read_and_touch(call, entry, key, out)),
            };
            if let Err(kind) = read {
                return fail(call, key, kind, start, out);
            }
        }
    }
    write_end(out, call.head());
}

/// Returns the type of a key's value if it is not a string.
fn other_kind(entry: &mut Entry<'_>) -> Option<Kind> {
    entry.item().map(|item| item.kind()).filter(|kind| *kind != Kind::Text)
}

/// `gat`, `gats`, and binary gats.
fn read_and_touch(
    call: &Call<'_>,
    mut entry: Entry<'_>,
    key: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Kind> {
    let head = call.head();
    if let Some(kind) = other_kind(&mut entry) {
        return Err(kind);
    }
    if entry.read().is_none() {
        call.tell(key, &Outcome::NotFound, out);
        return Ok(());
    }
    let cas = head.asked.has(RequestFlags::CAS).then(|| entry.cas());
    if let Some(item) = entry.look() {
        tell_item(call, key, item, cas, out);
    }
    set_deadline(&mut entry, Deadline::of(head.expiry, call.turn.now_millis));
    Ok(())
}

/// Says whether a read was counted already.
#[derive(Clone, Copy)]
enum Counted {
    Yes,
    No,
}

/// `mg`.
fn read_meta(
    call: &Call<'_>,
    mut entry: Entry<'_>,
    counted: Counted,
    key: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Kind> {
    let head = call.head();
    if let Some(kind) = other_kind(&mut entry) {
        return Err(kind);
    }
    let last_use = entry.look().map(|item| (item.meta().fresh, item.access()));
    let uses = !head.asked.has(RequestFlags::NO_BUMP);
    let is_new = match counted {
        Counted::Yes => !entry.exists(),
        Counted::No if uses => entry.read().is_none(),
        Counted::No => entry.peek().is_none(),
    };
    if is_new && head.vivify.is_none() {
        call.tell(key, &Outcome::NotFound, out);
        return Ok(());
    }
    if is_new {
        let cas = head.cas_new.unwrap_or(0);
        entry.put(b"", &Meta { cas, ..Meta::new(Encoding::Text, None) });
        entry.notify(KeyspaceEvents::STRING, "set");
    }
    let Some(meta) = entry.look().map(|item| item.meta()) else { return Ok(()) };
    let (stale, sent) = (meta.marks & Meta::STALE != 0, meta.marks & Meta::SENT != 0);
    let deadline = Deadline::of_item(meta.expiry);
    let walk = Walk::of(call, deadline, is_new, sent);
    let won = walk.won || stale && !sent;
    let cas = (won || head.asked.has(RequestFlags::CAS)).then(|| entry.cas());
    if won {
        let (cas, marks) = (cas.unwrap_or(meta.cas), meta.marks | Meta::SENT);
        entry.set_meta(&Meta { cas, marks, ..meta });
    }
    if is_new && uses {
        entry.mark_read();
    }
    let now = call.turn.access();
    let (fresh, access) = last_use.unwrap_or((true, now));
    let last_access = Some(u64::from(now.wrapping_sub(access) & ACCESS_MASK));
    let (ttl, hit) = (walk.seconds_left, Some(!fresh));
    let told = Item { cas, ttl, last_access, hit, won, stale, sent, ..Item::default() };
    if let Some(item) = entry.look() {
        let (flags, value) = (item.flags(), item.value());
        call.tell(key, &Outcome::Hit(Item { flags, value, ..told }), out);
    }
    if walk.deadline != deadline || head.verb == Verb::GetTouch {
        set_deadline(&mut entry, walk.deadline);
    }
    Ok(())
}

/// `me`: of a value of any type.
pub(super) fn debug(call: &Call<'_>, out: &mut Vec<u8>) {
    let key = call.key();
    let text = call.store.with_key(call.turn, key, |mut entry| {
        let is_text = entry.look()?.encoding().is_text();
        let cas = if is_text { entry.cas() } else { 0 };
        let size = entry.bytes()?;
        let item = entry.look()?;
        let left = Deadline::of_item(item.expiry()).seconds_left(call.turn.now_millis);
        let idle = call.turn.access().wrapping_sub(item.access()) & ACCESS_MASK;
        let fetched = if item.meta().fresh { "no" } else { "yes" };
        Some(format!("exp={left} la={idle} cas={cas} fetch={fetched} cls=1 size={size}"))
    });
    let outcome = match &text {
        Some(text) => Outcome::Debug(text.as_bytes()),
        None => Outcome::NotFound,
    };
    call.tell(key, &outcome, out);
}
