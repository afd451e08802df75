//! Hashes: fields with values. Those of which fields expire are in
//! `timed.rs`.

use super::blob::{self, HEADER_LEN, Prefix, Strings, string_at};
use super::fields::Fields;
use super::timed::{self, Place, Places, Timed};
use super::{BLOB_STRING_LEN_MAX, Boxed, Means};
use crate::entry::{Editor, View};
use crate::items::{Encoding, Item, Kind, Owned};
use keyway_memory::nodes;
use smallvec::SmallVec;
use std::ops::Range;

/// Most fields of a hash in a blob, Redis's `hash-max-listpack-entries`.
const BLOB_FIELDS_MAX: usize = 512;
/// Random fields drawn from a hash that hides some, before many are looked at.
const DRAWN_MAX: usize = 64;
/// Fields that are looked at for some that are shown, and how many more for each
/// of those that are wanted: tenths of a millisecond. With fewer, the same ones are
/// chosen again sooner while nearly all are hidden.
const LOOKED_AT: usize = 1 << 10;
const LOOKED_AT_PER_WANTED: usize = 16;

/// A hash to read.
#[derive(Clone, Copy)]
pub(crate) enum Hash<'a> {
    Blob(&'a [u8]),
    /// A blob with times.
    Timed(&'a [u8]),
    /// Fields whose items know when they expire, if they do. None has.
    Boxed(&'a Fields, Means<'a>),
    /// Fields some of which have expired, and are hidden.
    Hiding(&'a Timed, Means<'a>),
}

impl<'a> View<'a> for Hash<'a> {
    const KIND: Kind = Kind::Hash;

    #[inline]
    fn of(item: Item<'a>, means: Means<'a>) -> Self {
        match item.boxed() {
            Some(Boxed::Fields(fields)) => Self::Boxed(fields, means),
            Some(Boxed::Timed(timed)) if timed.hides(means.now_millis) => {
                Self::Hiding(timed, means)
            }
            Some(Boxed::Timed(timed)) => Self::Boxed(timed.fields(), means),
            _ if item.encoding().is_timed() => Self::Timed(item.value()),
            _ => Self::Blob(item.value()),
        }
    }
}

impl<'a> Hash<'a> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Blob(bytes) | Self::Timed(bytes) => blob::count(bytes),
            Self::Boxed(fields, _) => fields.len(),
            Self::Hiding(timed, means) => timed.len_at(means.now_millis),
        }
    }

    /// Whether it has fields that have expired and were not removed yet.
    pub(crate) fn hides(&self) -> bool {
        matches!(self, Self::Hiding(..))
    }

    /// Some of the fields that are not hidden, with their values: `wanted` of them,
    /// or all there are. They are those from a random place on, among all fields when
    /// these are few. Goes on until it has found as many as are wanted.
    pub(crate) fn some_shown(&self, wanted: usize, place: u64) -> Vec<(&'a [u8], &'a [u8])> {
        let mut shown = Vec::new();
        let Self::Hiding(timed, means) = self else {
            self.visit(|field, value| shown.push((field, value)));
            return shown;
        };
        let looked_at = wanted.saturating_mul(LOOKED_AT_PER_WANTED).saturating_add(LOOKED_AT);
        for (count, item) in timed.fields().iter_from(place).enumerate() {
            if count >= looked_at && shown.len() >= wanted {
                break;
            }
            if !means.has_passed(item.expiry()) {
                shown.push((item.key(), item.value()));
            }
        }
        shown
    }

    /// The fields of a hash that hides some, with their values.
    fn shown(timed: &'a Timed, means: Means<'a>) -> impl Iterator<Item = Item<'a>> {
        timed.fields().iter().filter(move |item| !means.has_passed(item.expiry()))
    }

    /// The value of a field.
    #[inline]
    pub(crate) fn get(&self, field: &[u8]) -> Option<&'a [u8]> {
        match self {
            Self::Blob(bytes) => find(bytes, field).map(|found| &bytes[found.value]),
            Self::Boxed(fields, means) => fields.get(*means, field).map(|item| item.value()),
            Self::Timed(_) | Self::Hiding(..) => self.get_timed(field).map(|(value, _)| value),
        }
    }

    /// The value of a field, and when it expires.
    #[inline(never)]
    pub(crate) fn get_timed(&self, field: &[u8]) -> Option<(&'a [u8], Option<u64>)> {
        match self {
            Self::Blob(_) => self.get(field).map(|value| (value, None)),
            Self::Timed(bytes) => {
                let found = timed::find(bytes, field)?;
                let time = found.time(bytes);
                Some((&bytes[found.value], time))
            }
            Self::Boxed(fields, means) => {
                fields.get(*means, field).map(|item| (item.value(), item.expiry()))
            }
            Self::Hiding(timed, means) => {
                let item = timed.fields().get(*means, field);
                let item = item.filter(|item| !means.has_passed(item.expiry()));
                item.map(|item| (item.value(), item.expiry()))
            }
        }
    }

    /// The value of a field if it has not expired, of a hash that may still
    /// have fields that did.
    pub(crate) fn get_at(&self, field: &[u8], now_millis: u64) -> Option<&'a [u8]> {
        let (value, time) = self.get_timed(field)?;
        time.is_none_or(|time| time > now_millis).then_some(value)
    }

    /// Visits every field with its value.
    #[inline]
    pub(crate) fn visit(&self, mut visit: impl FnMut(&'a [u8], &'a [u8])) {
        match self {
            Self::Blob(bytes) => {
                let mut strings = Strings::of(bytes);
                while let (Some(field), Some(value)) = (strings.next(), strings.next()) {
                    visit(field, value);
                }
            }
            Self::Timed(bytes) => timed::visit(bytes, &mut visit),
            Self::Boxed(fields, _) => {
                fields.visit(|item| visit(item.key(), item.value()));
            }
            Self::Hiding(timed, means) => {
                Self::shown(timed, *means).for_each(|item| visit(item.key(), item.value()));
            }
        }
    }

    /// Visits every field with its value, and when it expires.
    pub(crate) fn visit_timed(&self, mut visit: impl FnMut(&'a [u8], &'a [u8], Option<u64>)) {
        match self {
            Self::Blob(_) => self.visit(|field, value| visit(field, value, None)),
            Self::Timed(bytes) => {
                for Place { field, value, .. } in Places::of(bytes) {
                    let time = timed::read_time(bytes, value.end);
                    visit(&bytes[field], &bytes[value], time);
                }
            }
            Self::Boxed(fields, _) => {
                fields.visit(|item| visit(item.key(), item.value(), item.expiry()));
            }
            Self::Hiding(timed, means) => Self::shown(timed, *means)
                .for_each(|item| visit(item.key(), item.value(), item.expiry())),
        }
    }

    /// Any field with its value, of a hash that has one.
    pub(crate) fn random(&self, mut random: impl FnMut() -> u64) -> Option<(&'a [u8], &'a [u8])> {
        match self {
            Self::Blob(bytes) => {
                let nth = random() as usize % self.len().max(1);
                let mut strings = Strings::of(bytes).skip(2 * nth);
                Some((strings.next()?, strings.next()?))
            }
            Self::Timed(bytes) => {
                let nth = random() as usize % self.len().max(1);
                let place = Places::of(bytes).nth(nth)?;
                Some((&bytes[place.field], &bytes[place.value]))
            }
            Self::Boxed(fields, _) => fields.random(random).map(|item| (item.key(), item.value())),
            Self::Hiding(timed, means) => {
                let is_shown = |item: &Item<'_>| !means.has_passed(item.expiry());
                let drawn = (0..DRAWN_MAX).filter_map(|_| timed.fields().random(&mut random));
                match drawn.into_iter().find(is_shown) {
                    Some(item) => Some((item.key(), item.value())),
                    None => {
                        let shown = self.some_shown(1, random());
                        shown.get(random() as usize % shown.len().max(1)).copied()
                    }
                }
            }
        }
    }

    /// Visits some fields from the cursor on: see [`Fields::scan`].
    pub(crate) fn scan(
        &self,
        cursor: u64,
        count: u64,
        mut visit: impl FnMut(&'a [u8], &'a [u8]),
    ) -> u64 {
        match self {
            Self::Blob(_) | Self::Timed(_) => {
                self.visit(visit);
                0
            }
            Self::Boxed(fields, _) => {
                fields.scan(cursor, count, |item| visit(item.key(), item.value()))
            }
            Self::Hiding(timed, means) => timed.fields().scan(cursor, count, |item| {
                if !means.has_passed(item.expiry()) {
                    visit(item.key(), item.value());
                }
            }),
        }
    }
}

/// Where a field is in a blob.
struct Found {
    /// Its start, length included.
    start: usize,
    /// The value's start, length included.
    value_start: usize,
    /// The bytes of the value, up to the next field.
    value: Range<usize>,
}

#[inline]
fn find(bytes: &[u8], field: &[u8]) -> Option<Found> {
    let mut start = HEADER_LEN;
    while start < bytes.len() {
        let name = string_at(bytes, start);
        let value_start = name.end;
        let value = string_at(bytes, value_start);
        if bytes[name] == *field {
            return Some(Found { start, value_start, value });
        }
        start = value.end;
    }
    None
}

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

/// Writes the value of a field over the one it has, if it fits there and no field
/// expires; whether that was done. The bytes that the hash takes stay as they were.
#[inline]
pub(crate) fn overwrite(hash: &mut Owned, means: Means<'_>, field: &[u8], value: &[u8]) -> bool {
    match hash.item().encoding() {
        Encoding::HashBlob => match find(hash.item().value(), field) {
            Some(found) if found.value.len() == value.len() => {
                hash.value_mut()[found.value].copy_from_slice(value);
                true
            }
            _ => false,
        },
        Encoding::HashBoxed => match hash.boxed_mut() {
            Some(Boxed::Fields(fields)) => fields.overwrite(means, field, value),
            _ => false,
        },
        _ => false,
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
    let set = |boxed: &mut Boxed, means: Means<'_>| match boxed {
        Boxed::Fields(fields) => Some(fields.set(means, field, value)),
        _ => None,
    };
    let is_new = editor.boxed(set).flatten()?;
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
    let set = |boxed: &mut Boxed, means: Means<'_>| match boxed {
        Boxed::Timed(timed) => Some(timed.set(means, (field, value), time)),
        _ => None,
    };
    if let Some(is_new) = editor.boxed(set).flatten() {
        editor.touch();
        return is_new;
    }
    let bytes = editor.blob();
    let (count, end) = (blob::count(bytes), bytes.len());
    let found = timed::find(bytes, field);
    let is_new = found.is_none();
    let range = found.map_or(end..end, |place| place.start..place.end());
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
            editor.boxed(|boxed, means| {
                if let Boxed::Timed(timed) = boxed {
                    timed.set_time(means, field, time);
                }
            });
            if let Some(place) = timed::find(editor.blob(), field) {
                editor.write(place.value.end, &timed::time_bytes(time));
                settle(editor);
            }
        });
    }
}

/// Removes the fields that have expired, while `steps` are left; how many.
pub(crate) fn drop_expired(editor: &mut Editor<'_, '_>, now_millis: u64, steps: &mut u32) -> usize {
    editor.with_times(|editor| {
        let drop_boxed = |boxed: &mut Boxed, means: Means<'_>| match boxed {
            Boxed::Timed(timed) => timed.drop_expired(means, now_millis, steps),
            _ => 0,
        };
        if let Some(removed) = editor.boxed(drop_boxed) {
            return removed;
        }
        let (kept, removed) = timed::without_expired(editor.blob(), now_millis);
        *steps = steps.saturating_sub(blob::count(editor.blob()) as u32);
        if removed > 0 {
            editor.store(Encoding::HashTimed, &kept);
        }
        removed
    })
}

/// Removes a field; whether it was there.
pub(crate) fn remove(editor: &mut Editor<'_, '_>, field: &[u8]) -> bool {
    if editor.is_timed() {
        return editor.with_times(|editor| remove_timed(editor, field));
    }
    let remove = |boxed: &mut Boxed, means: Means<'_>| match boxed {
        Boxed::Fields(fields) => Some(fields.remove(means, field)),
        _ => None,
    };
    if let Some(was_there) = editor.boxed(remove).flatten() {
        if was_there {
            editor.touch();
        }
        return was_there;
    }
    let bytes = editor.blob();
    let count = blob::count(bytes);
    let Some(found) = find(bytes, field) else { return false };
    editor.splice(found.start..found.value.end, &[], count - 1);
    true
}

fn remove_timed(editor: &mut Editor<'_, '_>, field: &[u8]) -> bool {
    let remove = |boxed: &mut Boxed, means: Means<'_>| match boxed {
        Boxed::Timed(timed) => Some(timed.remove(means, field)),
        _ => None,
    };
    if let Some(was_there) = editor.boxed(remove).flatten() {
        if was_there {
            editor.touch();
        }
        return was_there;
    }
    let bytes = editor.blob();
    let count = blob::count(bytes);
    let Some(place) = timed::find(bytes, field) else { return false };
    editor.splice(place.start..place.end(), &[], count - 1);
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
            hash.visit_timed(|field, value, time| _ = timed.set(means, (field, value), time));
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
