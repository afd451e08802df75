//! Hashes: fields with values.

use super::blob::{self, HEADER_LEN, Prefix, Strings, string_at};
use super::fields::Fields;
use super::{BLOB_STRING_LEN_MAX, Boxed, Means};
use crate::entry::{Editor, View};
use crate::item::{Encoding, Item, Kind};
use smallvec::SmallVec;
use std::ops::Range;

/// Most fields of a hash in a blob, Redis's `hash-max-listpack-entries`.
const BLOB_FIELDS_MAX: usize = 512;

/// A hash to read.
#[derive(Clone, Copy)]
pub(crate) enum Hash<'a> {
    Blob(&'a [u8]),
    Boxed(&'a Fields, Means<'a>),
}

impl<'a> View<'a> for Hash<'a> {
    const KIND: Kind = Kind::Hash;

    #[inline]
    fn of(item: Item<'a>, means: Means<'a>) -> Self {
        match item.boxed() {
            Some(Boxed::Fields(fields)) => Self::Boxed(fields, means),
            _ => Self::Blob(item.value()),
        }
    }
}

impl<'a> Hash<'a> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Blob(bytes) => blob::count(bytes),
            Self::Boxed(fields, _) => fields.len(),
        }
    }

    /// The value of a field.
    #[inline]
    pub(crate) fn get(&self, field: &[u8]) -> Option<&'a [u8]> {
        match self {
            Self::Blob(bytes) => find(bytes, field).map(|found| &bytes[found.value]),
            Self::Boxed(fields, means) => fields.get(*means, field).map(|item| item.value()),
        }
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
            Self::Boxed(fields, _) => {
                fields.iter().for_each(|item| visit(item.key(), item.value()));
            }
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
            Self::Boxed(fields, _) => fields.random(random).map(|item| (item.key(), item.value())),
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
            Self::Blob(_) => {
                self.visit(visit);
                0
            }
            Self::Boxed(fields, _) => {
                fields.scan(cursor, count, |item| visit(item.key(), item.value()))
            }
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

/// Sets a field; whether it is new.
pub(crate) fn set(editor: &mut Editor<'_, '_>, field: &[u8], value: &[u8]) -> bool {
    if field.len().max(value.len()) > BLOB_STRING_LEN_MAX {
        box_up(editor);
    }
    let set = |boxed: &mut Boxed, means: Means<'_>| match boxed {
        Boxed::Fields(fields) => Some(fields.set(means, field, value)),
        _ => None,
    };
    if let Some(is_new) = editor.boxed(set).flatten() {
        editor.touch();
        return is_new;
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

/// Removes a field; whether it was there.
pub(crate) fn remove(editor: &mut Editor<'_, '_>, field: &[u8]) -> bool {
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

/// Makes the hash a table of fields, if it is none.
fn box_up(editor: &mut Editor<'_, '_>) {
    if editor.is_boxed() {
        return;
    }
    let means = editor.means();
    let mut fields = Fields::new();
    if let Some(hash) = editor.view::<Hash<'_>>() {
        hash.visit(|field, value| {
            fields.set(means, field, value);
        });
    }
    editor.store_boxed(Encoding::HashBoxed, Boxed::Fields(fields));
}
