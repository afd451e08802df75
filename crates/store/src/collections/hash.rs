//! Hashes: fields with values. Hashes with fields that expire are in `timed.rs`.

use super::blob::{self, HEADER_LEN, Strings, string_at};
use super::boxed::Boxed;
use super::fields::Fields;
use super::means::{Means, View};
use super::timed::{self, FieldRange, FieldRanges, Timed};
use crate::items::{Encoding, Item, Kind, Owned};
use std::ops::Range;

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

    /// Returns whether it has fields that have expired and were not removed yet.
    pub(crate) fn hides(&self) -> bool {
        matches!(self, Self::Hiding(..))
    }

    /// Some of the fields that are not hidden, with their values: `wanted` of them,
    /// or all there are. They are those from a random start on, among all fields when
    /// these are few. Goes on until it has found as many as are wanted.
    pub(crate) fn some_shown(&self, wanted: usize, start: u64) -> Vec<(&'a [u8], &'a [u8])> {
        let mut shown = Vec::new();
        let Self::Hiding(timed, means) = self else {
            self.visit(|field, value| shown.push((field, value)));
            return shown;
        };
        let looked_at = wanted.saturating_mul(LOOKED_AT_PER_WANTED).saturating_add(LOOKED_AT);
        for (count, item) in timed.fields().iter_from(start).enumerate() {
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
                for FieldRange { field, value, .. } in FieldRanges::of(bytes) {
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
                let found = FieldRanges::of(bytes).nth(nth)?;
                Some((&bytes[found.field], &bytes[found.value]))
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
        self.scan_timed(cursor, count, |field, value, _| visit(field, value))
    }

    /// The same with when each field expires.
    pub(crate) fn scan_timed(
        &self,
        cursor: u64,
        count: u64,
        mut visit: impl FnMut(&'a [u8], &'a [u8], Option<u64>),
    ) -> u64 {
        match self {
            Self::Blob(_) | Self::Timed(_) => {
                self.visit_timed(visit);
                0
            }
            Self::Boxed(fields, _) => {
                fields.scan(cursor, count, |item| visit(item.key(), item.value(), item.expiry()))
            }
            Self::Hiding(timed, means) => timed.fields().scan(cursor, count, |item| {
                if !means.has_passed(item.expiry()) {
                    visit(item.key(), item.value(), item.expiry());
                }
            }),
        }
    }
}

/// Where a field is in a blob.
pub(crate) struct Found {
    /// Its start, length included.
    pub(crate) start: usize,
    /// The value's start, length included.
    pub(crate) value_start: usize,
    /// The bytes of the value, up to the next field.
    pub(crate) value: Range<usize>,
}

#[inline]
pub(crate) fn find(bytes: &[u8], field: &[u8]) -> Option<Found> {
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
