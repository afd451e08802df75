//! Sorted sets: members with scores, in order of score and then of bytes.

use super::blob::{self, HEADER_LEN, string_at};
use super::boxed::Boxed;
use super::means::{Means, View};
use super::score::Bound;
use super::scores::{Rank, SCORE_LEN, Scores, read_score};
use crate::items::{Item, Kind};
use smallvec::SmallVec;
use std::ops::{ControlFlow, Range};

/// A sorted set to read.
#[derive(Clone, Copy)]
pub(crate) enum Sorted<'a> {
    Blob(&'a [u8]),
    Boxed(&'a Scores, Means<'a>),
}

impl<'a> View<'a> for Sorted<'a> {
    const KIND: Kind = Kind::Sorted;

    fn of(item: Item<'a>, means: Means<'a>) -> Self {
        match item.boxed() {
            Some(Boxed::Sorted(scores)) => Self::Boxed(scores, means),
            _ => Self::Blob(item.value()),
        }
    }
}

/// A member of a blob, and where it is.
pub(crate) struct Element<'a> {
    pub(crate) member: &'a [u8],
    pub(crate) score: f64,
    pub(crate) range: Range<usize>,
}

/// The members of a blob, in order.
pub(crate) fn elements(bytes: &[u8]) -> impl Iterator<Item = Element<'_>> + Clone {
    let mut at = HEADER_LEN;
    std::iter::from_fn(move || {
        if at >= bytes.len() {
            return None;
        }
        let (start, member) = (at, string_at(bytes, at));
        at = member.end + SCORE_LEN;
        let score = read_score(&bytes[member.end..at]);
        Some(Element { member: &bytes[member], score, range: start..at })
    })
}

impl<'a> Sorted<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Blob(bytes) => blob::count(bytes),
            Self::Boxed(scores, _) => scores.len(),
        }
    }

    /// Returns whether it is kept in one block.
    pub(crate) fn is_small(&self) -> bool {
        matches!(self, Self::Blob(_))
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Blob(bytes) => {
                elements(bytes).find(|element| element.member == member).map(|found| found.score)
            }
            Self::Boxed(scores, means) => {
                scores.fields.get(*means, member).map(|item| read_score(item.value()))
            }
        }
    }

    /// The rank of a member.
    pub(crate) fn rank(&self, member: &[u8]) -> Option<Rank> {
        match self {
            Self::Blob(bytes) => elements(bytes).position(|element| element.member == member),
            Self::Boxed(scores, _) => {
                self.score(member).map(|score| scores.rank_of((score, member)))
            }
        }
    }

    /// Returns the rank of the first member, from rank `from` on, for which `before` is false.
    fn skip(&self, from: Rank, before: impl Fn(f64, &[u8]) -> bool) -> Rank {
        match self {
            Self::Blob(bytes) => {
                let behind = elements(bytes).skip(from);
                from + behind.take_while(|element| before(element.score, element.member)).count()
            }
            Self::Boxed(scores, _) => {
                let count = scores.ranks.count_before(|entry| {
                    let (score, member) = entry.key();
                    before(score, member)
                });
                count.max(from)
            }
        }
    }

    /// The ranks of the members in a range of scores.
    pub(crate) fn ranks_of(&self, range: &ScoreRange) -> Range<Rank> {
        let ScoreRange { min, max } = *range;
        let from =
            self.skip(0, |score, _| score < min.score || (min.excluded && score == min.score));
        let is_in = |score, _: &[u8]| score < max.score || (!max.excluded && score == max.score);
        from..self.skip(from, is_in)
    }

    /// The ranks of the members in a range of bytes, of a set with one score.
    pub(crate) fn ranks_of_bytes(&self, range: &LexRange<'_>) -> Range<Rank> {
        let from = self.skip(0, |_, member| range.min.is_behind(member, true));
        from..self.skip(from, |_, member| range.max.is_behind(member, false))
    }

    /// Visits the members of some ranks, the last one first if `reverse`, until
    /// `visit` breaks off.
    pub(crate) fn visit_ranks(
        &self,
        ranks: Range<Rank>,
        reverse: bool,
        mut visit: impl FnMut(&'a [u8], f64) -> ControlFlow<()>,
    ) {
        let _ = match self {
            Self::Blob(bytes) => {
                let found = elements(bytes).skip(ranks.start).take(ranks.len());
                let mut found: SmallVec<[(&'a [u8], f64); 16]> =
                    found.map(|element| (element.member, element.score)).collect();
                if reverse {
                    found.reverse();
                }
                found.into_iter().try_for_each(|(member, score)| visit(member, score))
            }
            Self::Boxed(scores, _) => scores.ranks.visit(ranks, reverse, |entry| {
                let (score, member) = entry.key();
                visit(member, score)
            }),
        };
    }

    /// Visits every member, in order.
    pub(crate) fn visit(&self, mut visit: impl FnMut(&'a [u8], f64)) {
        self.visit_ranks(0..self.len(), false, |member, score| {
            visit(member, score);
            ControlFlow::Continue(())
        });
    }

    /// Any member, of a set that has one.
    pub(crate) fn random(&self, mut random: impl FnMut() -> u64) -> Option<(&'a [u8], f64)> {
        let rank = random() as usize % self.len().max(1);
        match self {
            Self::Blob(bytes) => {
                elements(bytes).nth(rank).map(|element| (element.member, element.score))
            }
            Self::Boxed(scores, _) => scores.ranks.get(rank).map(|entry| {
                let (score, member) = entry.key();
                (member, score)
            }),
        }
    }

    /// Visits some members from the cursor on: see [`super::fields::Fields::scan`].
    pub(crate) fn scan(
        &self,
        cursor: u64,
        count: u64,
        mut visit: impl FnMut(&'a [u8], f64),
    ) -> u64 {
        match self {
            Self::Blob(_) => {
                self.visit(visit);
                0
            }
            Self::Boxed(scores, _) => scores
                .fields
                .scan(cursor, count, |item| visit(item.key(), read_score(item.value()))),
        }
    }
}

/// Scores from `min` to `max`.
#[derive(Clone, Copy)]
pub(crate) struct ScoreRange {
    pub(crate) min: Bound,
    pub(crate) max: Bound,
}

/// One end of a range of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LexBound<'a> {
    /// Before every member.
    Lowest,
    /// Behind every member.
    Highest,
    Included(&'a [u8]),
    Excluded(&'a [u8]),
}

impl<'a> LexBound<'a> {
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        match text {
            b"-" => Some(Self::Lowest),
            b"+" => Some(Self::Highest),
            [b'[', member @ ..] => Some(Self::Included(member)),
            [b'(', member @ ..] => Some(Self::Excluded(member)),
            _ => None,
        }
    }

    /// Returns whether this end is behind a member: as the start of a range, which
    /// begins later, or as its end, which the member is within.
    fn is_behind(&self, member: &[u8], is_start: bool) -> bool {
        match self {
            Self::Lowest => false,
            Self::Highest => true,
            Self::Included(bound) => member < *bound || (!is_start && member == *bound),
            Self::Excluded(bound) => member < *bound || (is_start && member == *bound),
        }
    }
}

/// Members from `min` to `max`.
#[derive(Clone, Copy)]
pub(crate) struct LexRange<'a> {
    pub(crate) min: LexBound<'a>,
    pub(crate) max: LexBound<'a>,
}
