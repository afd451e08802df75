//! Sets: members, each once.

use super::blob::{self, HEADER_LEN, Strings, string_at};
use super::boxed::Boxed;
use super::fields::Fields;
use super::integers;
use super::means::{Means, View};
use crate::algorithms::number::{INTEGER_LEN_MAX, format_integer, parse_integer};
use crate::items::{Encoding, Item, Kind};
use std::borrow::Cow;
use std::ops::Range;

/// A member, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Member<'a> {
    Integer(i64),
    Text(&'a [u8]),
}

impl<'a> Member<'a> {
    /// The one form of this member that compares equal to any other.
    pub(crate) fn canonical(self) -> Self {
        match self {
            Self::Text(text) => parse_integer(text).map_or(self, Self::Integer),
            Self::Integer(_) => self,
        }
    }

    /// Lets `work` see the member's text.
    #[inline]
    pub(crate) fn with_text<R>(&self, work: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Text(text) => work(text),
            Self::Integer(value) => work(format_integer(*value, &mut [0; INTEGER_LEN_MAX])),
        }
    }
}

impl<'a> Member<'a> {
    /// The member's text.
    pub(crate) fn into_text(self) -> Cow<'a, [u8]> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Integer(_) => Cow::Owned(self.with_text(<[u8]>::to_vec)),
        }
    }
}

/// A set to read.
#[derive(Clone, Copy)]
pub(crate) enum Set<'a> {
    Integers(&'a [u8]),
    Blob(&'a [u8]),
    Boxed(&'a Fields, Means<'a>),
}

impl<'a> View<'a> for Set<'a> {
    const KIND: Kind = Kind::Set;

    fn of(item: Item<'a>, means: Means<'a>) -> Self {
        match (item.boxed(), item.encoding()) {
            (Some(Boxed::Fields(fields)), _) => Self::Boxed(fields, means),
            (_, Encoding::Integers) => Self::Integers(item.value()),
            _ => Self::Blob(item.value()),
        }
    }
}

pub(crate) fn find(bytes: &[u8], member: &[u8]) -> Option<Range<usize>> {
    let mut start = HEADER_LEN;
    while start < bytes.len() {
        let text = string_at(bytes, start);
        let end = text.end;
        if bytes[text] == *member {
            return Some(start..end);
        }
        start = end;
    }
    None
}

impl<'a> Set<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Integers(bytes) => integers::len(bytes),
            Self::Blob(bytes) => blob::count(bytes),
            Self::Boxed(fields, _) => fields.len(),
        }
    }

    pub(crate) fn is_integers(&self) -> bool {
        matches!(self, Self::Integers(_))
    }

    pub(crate) fn contains(&self, member: &[u8]) -> bool {
        match self {
            Self::Integers(bytes) => {
                parse_integer(member).is_some_and(|value| integers::find(bytes, value).is_ok())
            }
            Self::Blob(bytes) => find(bytes, member).is_some(),
            Self::Boxed(fields, means) => fields.get(*means, member).is_some(),
        }
    }

    /// As [`Set::contains`].
    pub(crate) fn contains_member(&self, member: Member<'_>) -> bool {
        match (self, member) {
            (Self::Integers(bytes), Member::Integer(value)) => integers::find(bytes, value).is_ok(),
            _ => member.with_text(|text| self.contains(text)),
        }
    }

    /// Visits members until `visit` says no.
    pub(crate) fn visit_while(&self, mut visit: impl FnMut(Member<'a>) -> bool) {
        match self {
            Self::Integers(bytes) => {
                integers::iter(bytes).all(|value| visit(Member::Integer(value)));
            }
            Self::Blob(bytes) => {
                Strings::of(bytes).all(|text| visit(Member::Text(text)));
            }
            Self::Boxed(fields, _) => {
                fields.iter().all(|item| visit(Member::Text(item.key())));
            }
        }
    }

    /// Visits every member.
    pub(crate) fn visit(&self, mut visit: impl FnMut(Member<'a>)) {
        self.visit_while(|member| {
            visit(member);
            true
        });
    }

    /// Any member, of a set that has one.
    pub(crate) fn random(&self, mut random: impl FnMut() -> u64) -> Option<Member<'a>> {
        let len = self.len().max(1);
        match self {
            Self::Integers(bytes) => {
                Some(Member::Integer(integers::get(bytes, random() as usize % len)))
            }
            Self::Blob(bytes) => Strings::of(bytes).nth(random() as usize % len).map(Member::Text),
            Self::Boxed(fields, _) => fields.random(random).map(|item| Member::Text(item.key())),
        }
    }

    /// Visits some members from the cursor on: see [`Fields::scan`].
    pub(crate) fn scan(&self, cursor: u64, count: u64, mut visit: impl FnMut(Member<'a>)) -> u64 {
        match self {
            Self::Boxed(fields, _) => {
                fields.scan(cursor, count, |item| visit(Member::Text(item.key())))
            }
            _ => {
                self.visit(visit);
                0
            }
        }
    }
}
