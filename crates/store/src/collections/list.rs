//! Lists: elements in a row.

use super::blob::{self, HEADER_LEN};
use super::boxed::Boxed;
use super::chunks::{Chunks, element_at, element_before, seek};
use super::means::{Means, View};
use crate::items::{Item, Kind};

/// A list to read.
#[derive(Clone, Copy)]
pub(crate) enum List<'a> {
    Blob(&'a [u8]),
    Boxed(&'a Chunks),
}

impl<'a> View<'a> for List<'a> {
    const KIND: Kind = Kind::List;

    fn of(item: Item<'a>, _means: Means<'a>) -> Self {
        match item.boxed() {
            Some(Boxed::List(chunks)) => Self::Boxed(chunks),
            _ => Self::Blob(item.value()),
        }
    }
}

impl<'a> List<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Blob(bytes) => blob::count(bytes),
            Self::Boxed(chunks) => chunks.len(),
        }
    }

    /// The bytes of a run of elements, and their number.
    fn run(&self, index: usize) -> Option<(&'a [u8], usize)> {
        match self {
            Self::Blob(bytes) if index == 0 => Some((&bytes[HEADER_LEN..], blob::count(bytes))),
            Self::Blob(_) => None,
            Self::Boxed(chunks) => chunks.run(index).map(|run| (&run.bytes[..], run.count)),
        }
    }

    /// The elements of run `index`; none behind the last run.
    pub(crate) fn elements_of_run(
        &self,
        index: usize,
    ) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
        let (bytes, _) = self.run(index)?;
        let mut at = 0;
        Some(std::iter::from_fn(move || {
            let (body, next) = (at < bytes.len()).then(|| element_at(bytes, at))?;
            at = next;
            Some(&bytes[body])
        }))
    }

    fn locate(&self, index: usize) -> (usize, usize) {
        match self {
            Self::Blob(_) => (0, index.min(self.len())),
            Self::Boxed(chunks) => chunks.locate(index),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.from(index).next()
    }

    /// The elements from `index` on.
    pub(crate) fn from(&self, index: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let list = *self;
        let (mut number, before) = self.locate(index);
        let mut run = self.run(number);
        let mut at = run.map_or(0, |(bytes, count)| seek(bytes, count, before));
        std::iter::from_fn(move || {
            loop {
                let (bytes, _) = run?;
                if at < bytes.len() {
                    let (body, next) = element_at(bytes, at);
                    at = next;
                    return Some(&bytes[body]);
                }
                number += 1;
                (run, at) = (list.run(number), 0);
            }
        })
    }

    /// The elements from the last one before `end` back to the first.
    pub(crate) fn back_from(&self, end: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let list = *self;
        let (mut number, before) = self.locate(end);
        let mut run = self.run(number);
        let mut at = run.map_or(0, |(bytes, count)| seek(bytes, count, before));
        std::iter::from_fn(move || {
            loop {
                let (bytes, _) = run?;
                if at > 0 {
                    at = element_before(bytes, at);
                    return Some(&bytes[element_at(bytes, at).0]);
                }
                number = number.checked_sub(1)?;
                run = list.run(number);
                at = run.map_or(0, |(bytes, _)| bytes.len());
            }
        })
    }
}
