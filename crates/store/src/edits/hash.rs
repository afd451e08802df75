//! Changes of hashes, also of those of which fields expire.

use crate::collections::blob::{self, BLOB_STRING_LEN_MAX, HEADER_LEN, Prefix};
use crate::collections::fields::Fields;
use crate::collections::hash::{self, Hash, find};
use crate::collections::timed::{self, Timed};
use crate::collections::{Boxed, Means, WrongType};
use crate::entry::{Editor, Entry, Event};
use crate::items::{Encoding, Kind, Owned};
use crate::store::{Store, Turn};
use keyway_base::KeyspaceEvents;
use keyway_memory::nodes;
use smallvec::SmallVec;

/// Most fields of a hash in a blob, Redis's `hash-max-listpack-entries`.
const BLOB_FIELDS_MAX: usize = 512;

/// When a field that is set expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Never, whatever it did before.
    Ever,
    /// As before.
    Before,
    /// At a time, in milliseconds since the Unix epoch.
    Time(u64),
}

impl Store {
    /// Sets a field of the hash of `key`; whether the field is new.
    #[inline]
    pub(crate) fn set_field(
        &self,
        turn: Turn,
        key: &[u8],
        field: &[u8],
        value: &[u8],
    ) -> Result<bool, WrongType> {
        let event = Event { class: KeyspaceEvents::HASH, name: "hset" };
        let overwrite = |item: &mut Owned, shard_index| {
            let means = self.means(shard_index, turn.now_millis);
            hash::overwrite(item, means, field, value)
        };
        let set = |mut entry: Entry<'_>| {
            entry.edit(Kind::Hash, event.name, |editor| set(editor, field, value, Until::Ever))
        };
        self.overwrite(turn, key, event, overwrite, set).unwrap_or(Ok(false))
    }
}

/// Sets a field; whether it is new.
pub(crate) fn set(editor: &mut Editor<'_, '_>, field: &[u8], value: &[u8], until: Until) -> bool {
    if matches!(until, Until::Time(_)) {
        make_timed(editor);
    }
    match editor.item().map(|item| item.encoding()) {
        Some(Encoding::HashBoxed) => return set_boxed(editor, field, value).unwrap_or(false),
        Some(encoding) if encoding.is_timed() => {
            return editor.with_times(|editor| set_timed(editor, field, value, until));
        }
        _ => {}
    }
    if field.len().max(value.len()) > BLOB_STRING_LEN_MAX {
        box_up(editor);
        return set_boxed(editor, field, value).unwrap_or(false);
    }
    let (field_prefix, value_prefix) = (Prefix::of(field.len()), Prefix::of(value.len()));
    if !editor.exists() {
        let mut bytes: SmallVec<[u8; 256]> = SmallVec::from_slice(&blob::header(1));
        for part in [field_prefix.bytes(), field, value_prefix.bytes(), value] {
            bytes.extend_from_slice(part);
        }
        editor.store(Encoding::HashBlob, &bytes);
        return true;
    }
    let bytes = editor.blob();
    let (count, end) = (blob::count(bytes), bytes.len());
    match find(bytes, field) {
        Some(found) if found.value.len() == value.len() => editor.write(found.value.start, value),
        Some(found) => {
            let range = found.value_start..found.value.end;
            editor.splice(range, &[value_prefix.bytes(), value], count);
        }
        None => {
            let parts = [field_prefix.bytes(), field, value_prefix.bytes(), value];
            editor.splice(end..end, &parts, count + 1);
            if count + 1 > BLOB_FIELDS_MAX {
                box_up(editor);
            }
            return true;
        }
    }
    false
}

/// Sets a field of a table of fields that do not expire; whether it is new.
#[inline]
fn set_boxed(editor: &mut Editor<'_, '_>, field: &[u8], value: &[u8]) -> Option<bool> {
    let set = |fields: &mut Fields, means: Means<'_>| fields.set(means, field, value);
    let is_new = editor.with(Boxed::fields_mut, set)?;
    editor.touch();
    Some(is_new)
}

fn set_timed(editor: &mut Editor<'_, '_>, field: &[u8], value: &[u8], until: Until) -> bool {
    if field.len().max(value.len()) > BLOB_STRING_LEN_MAX {
        box_up(editor);
    }
    let time = match until {
        Until::Ever => None,
        Until::Time(time) => Some(time),
        Until::Before => {
            let found = editor.view::<Hash<'_>>().and_then(|hash| hash.get_timed(field));
            found.and_then(|(_, time)| time)
        }
    };
    let set = |timed: &mut Timed, means: Means<'_>| timed.set(means, field, value, time);
    if let Some(is_new) = editor.with(Boxed::timed_mut, set) {
        editor.touch();
        return is_new;
    }
    let bytes = editor.blob();
    let (count, end) = (blob::count(bytes), bytes.len());
    let found = timed::find(bytes, field);
    let is_new = found.is_none();
    let range = found.map_or(end..end, |range| range.start..range.end());
    let prefixes = [field, value].map(|text| Prefix::of(text.len()));
    let time = timed::time_bytes(time);
    let parts = [prefixes[0].bytes(), field, prefixes[1].bytes(), value, &time];
    let count = count + usize::from(is_new);
    editor.splice(range, &parts, count);
    settle(editor);
    if count > BLOB_FIELDS_MAX {
        box_up(editor);
    }
    is_new
}

/// Notes in a timed blob when its first field expires.
fn settle(editor: &mut Editor<'_, '_>) {
    let earliest = timed::earliest_of(editor.blob());
    editor.write(HEADER_LEN, &timed::time_bytes(earliest));
}

/// Sets when a field that is there expires, `None` for never.
pub(crate) fn set_time(editor: &mut Editor<'_, '_>, field: &[u8], time: Option<u64>) {
    if time.is_some() {
        make_timed(editor);
    }
    if editor.is_timed() {
        editor.with_times(|editor| {
            editor.touch();
            editor.with(Boxed::timed_mut, |timed, means| timed.set_time(means, field, time));
            if let Some(range) = timed::find(editor.blob(), field) {
                editor.write(range.value.end, &timed::time_bytes(time));
                settle(editor);
            }
        });
    }
}

/// Removes a field; whether it was there.
pub(crate) fn remove(editor: &mut Editor<'_, '_>, field: &[u8]) -> bool {
    if editor.is_timed() {
        return editor.with_times(|editor| remove_timed(editor, field));
    }
    let remove = |fields: &mut Fields, means: Means<'_>| fields.remove(means, field);
    if let Some(was_there) = editor.change(Boxed::fields_mut, remove) {
        return was_there;
    }
    let bytes = editor.blob();
    let count = blob::count(bytes);
    let Some(found) = find(bytes, field) else { return false };
    editor.splice(found.start..found.value.end, &[], count - 1);
    true
}

fn remove_timed(editor: &mut Editor<'_, '_>, field: &[u8]) -> bool {
    let remove = |timed: &mut Timed, means: Means<'_>| timed.remove(means, field);
    if let Some(was_there) = editor.change(Boxed::timed_mut, remove) {
        return was_there;
    }
    let bytes = editor.blob();
    let count = blob::count(bytes);
    let Some(range) = timed::find(bytes, field) else { return false };
    editor.splice(range.start..range.end(), &[], count - 1);
    settle(editor);
    true
}

/// Gives the hash, which may not be there yet, the form that has times.
fn make_timed(editor: &mut Editor<'_, '_>) {
    if editor.is_timed() {
        return;
    }
    let with_times = |boxed: &mut Boxed, _: Means<'_>| {
        if let Boxed::Fields(fields) = boxed {
            let fields = std::mem::replace(fields, Fields::new());
            *boxed = Boxed::Timed(nodes::boxed(Timed::new(fields)));
        }
    };
    if editor.boxed(with_times).is_some() {
        return editor.set_encoding(Encoding::HashTimedBoxed);
    }
    let mut bytes = timed::Writer::new();
    if let Some(hash) = editor.view::<Hash<'_>>() {
        hash.visit(|field, value| bytes.push(field, value, None));
    }
    editor.store(Encoding::HashTimed, &bytes.finish());
}

/// Makes the hash a table of fields, if it is none.
fn box_up(editor: &mut Editor<'_, '_>) {
    if editor.is_boxed() {
        return;
    }
    let (means, is_timed) = (editor.means(), editor.is_timed());
    if is_timed {
        let mut timed = Timed::new(Fields::new());
        if let Some(hash) = editor.view::<Hash<'_>>() {
            hash.visit_timed(|field, value, time| _ = timed.set(means, field, value, time));
        }
        return editor.store_boxed(Encoding::HashTimedBoxed, Boxed::Timed(nodes::boxed(timed)));
    }
    let mut fields = Fields::new();
    if let Some(hash) = editor.view::<Hash<'_>>() {
        hash.visit(|field, value| {
            fields.set(means, field, value);
        });
    }
    editor.store_boxed(Encoding::HashBoxed, Boxed::Fields(fields));
}
