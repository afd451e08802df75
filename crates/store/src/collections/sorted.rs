//! Sorted sets: members with scores, in order of score and then of bytes.

use super::blob::{self, HEADER_LEN, Prefix, string_at};
use super::fields::Fields;
use super::ranks::Ranks;
use super::score::Bound;
use super::{BLOB_ELEMENTS_MAX, BLOB_STRING_LEN_MAX, Boxed, Means};
use crate::entry::{Editor, View};
use crate::items::{Address, Encoding, Item, Kind};
use keyway_memory::Memory;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

const SCORE_LEN: usize = size_of::<f64>();

/// Where a member is in the order.
type Rank = usize;

fn order((score, member): (f64, &[u8]), (other_score, other): (f64, &[u8])) -> Ordering {
    // No score is NaN, and both zeros are the same.
    score.partial_cmp(&other_score).unwrap_or(Ordering::Equal).then_with(|| member.cmp(other))
}

fn read_score(bytes: &[u8]) -> f64 {
    f64::from_le_bytes(bytes.try_into().unwrap_or_default())
}

/// A member in the order. Its item belongs to the same set's fields.
#[derive(Clone, Copy)]
struct Ranked {
    score: f64,
    item: Address,
}

impl Ranked {
    /// Of a set that has not changed since.
    fn key<'a>(&self) -> (f64, &'a [u8]) {
        // SAFETY: `Scores` takes entries out before it frees their items, and
        // an item stays where it is meanwhile. Callers hold on to the set.
        (self.score, unsafe { self.item.item() }.key())
    }
}

/// A large sorted set: a table from member to score, and the members in order.
pub(crate) struct Scores {
    fields: Fields,
    ranks: Ranks<Ranked>,
}

impl Scores {
    fn new() -> Self {
        Self { fields: Fields::new(), ranks: Ranks::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.ranks.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.fields.bytes() + self.ranks.bytes()
    }

    fn rank_of(&self, key: (f64, &[u8])) -> Rank {
        self.ranks.count_before(|entry| order(entry.key(), key) == Ordering::Less)
    }

    /// Gives a member a score; `old` is the one it has.
    fn put(&mut self, means: Means<'_>, (score, member): (f64, &[u8]), old: Option<f64>) {
        if let Some(old) = old {
            let rank = self.rank_of((old, member));
            self.ranks.remove(rank);
        }
        let item = self.fields.place(means, member, &score.to_le_bytes()).1;
        let entry = Ranked { score, item: item.address() };
        let is_before = |other: &Ranked| order(other.key(), (score, member)) == Ordering::Less;
        self.ranks.insert(entry, is_before);
    }

    fn remove(&mut self, means: Means<'_>, member: &[u8]) -> bool {
        let Some(score) = self.fields.get(means, member).map(|item| read_score(item.value()))
        else {
            return false;
        };
        let rank = self.rank_of((score, member));
        self.ranks.remove(rank);
        self.fields.remove(means, member)
    }

    fn remove_ranks(&mut self, means: Means<'_>, ranks: Range<Rank>) {
        for _ in ranks.clone() {
            let Some(entry) = self.ranks.remove(ranks.start) else { return };
            // Its bytes go with the item.
            let member: SmallVec<[u8; 64]> = SmallVec::from_slice(entry.key().1);
            self.fields.remove(means, &member);
        }
    }

    pub(crate) fn duplicate(&self, means: Means<'_>) -> Self {
        let mut copy = Self::new();
        let _ = self.ranks.visit((0, usize::MAX), false, |entry| {
            copy.put(means, entry.key(), None);
            ControlFlow::Continue(())
        });
        copy
    }

    /// Moves members from sparse pages, see [`super::Boxed::compact`].
    pub(crate) fn compact(&mut self, memory: Memory<'_>, visits: &mut u32, moved: &mut u64) {
        let ranks = &mut self.ranks;
        self.fields.compact(memory, visits, moved, |item| {
            // The order knows members by their address: out of it meanwhile.
            let score = read_score(item.item().value());
            let key = (score, item.item().key());
            let is_before = |other: &Ranked| order(other.key(), key) == Ordering::Less;
            let rank = ranks.count_before(is_before);
            ranks.remove(rank);
            item.relocate(memory.heap, memory.arena);
            let entry = Ranked { score, item: item.item().address() };
            let key = (score, item.item().key());
            ranks.insert(entry, |other| order(other.key(), key) == Ordering::Less);
        });
        self.ranks.compact(visits, moved);
    }

    /// Frees up to `steps` pieces; whether none is left.
    pub(crate) fn free_some(&mut self, memory: Memory<'_>, steps: &mut u32) -> bool {
        self.ranks.free_some(steps) && self.fields.free_some(memory, steps)
    }
}

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
struct Element<'a> {
    member: &'a [u8],
    score: f64,
    range: Range<usize>,
}

/// The members of a blob, in order.
fn elements(bytes: &[u8]) -> impl Iterator<Item = Element<'_>> + Clone {
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

    /// Whether it is kept in one block.
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

    /// How many members from rank `from` on `before` holds for, one after the
    /// other; `from` with these.
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
            Self::Boxed(scores, _) => {
                scores.ranks.visit((ranks.start, ranks.end), reverse, |entry| {
                    let (score, member) = entry.key();
                    visit(member, score)
                })
            }
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

    /// Visits some members from the cursor on: see [`Fields::scan`].
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

    /// Whether this end is behind a member: as the start of a range, which
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

/// Gives a member a score; `old` is the one it has.
pub(crate) fn put(editor: &mut Editor<'_, '_>, member: &[u8], score: f64, old: Option<f64>) {
    let is_full = old.is_none() && blob::count(editor.blob()) == BLOB_ELEMENTS_MAX;
    if is_full || member.len() > BLOB_STRING_LEN_MAX {
        box_up(editor);
    }
    let put = |boxed: &mut Boxed, means: Means<'_>| {
        if let Boxed::Sorted(scores) = boxed {
            scores.put(means, (score, member), old);
        }
    };
    if editor.boxed(put).is_some() {
        editor.touch();
        return;
    }
    // Redis keeps integers as such here, which have no negative zero.
    let score = score + 0.0;
    let prefix = Prefix::of(member.len());
    let parts = [prefix.bytes(), member, &score.to_le_bytes()];
    if !editor.exists() {
        let mut bytes: SmallVec<[u8; 128]> = SmallVec::from_slice(&blob::header(1));
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        editor.store(Encoding::SortedBlob, &bytes);
        return;
    }
    if old.is_some() {
        cut(editor, member);
    }
    let bytes = editor.blob();
    let is_before = |element: &Element<'_>| {
        order((element.score, element.member), (score, member)) == Ordering::Less
    };
    let at = elements(bytes).take_while(is_before).last().map_or(HEADER_LEN, |last| last.range.end);
    let count = blob::count(bytes) + 1;
    editor.splice(at..at, &parts, count);
}

/// Makes a set that is to get `count` members at once what it will be then.
pub(crate) fn prepare(editor: &mut Editor<'_, '_>, count: usize, longest: usize) {
    if count > BLOB_ELEMENTS_MAX || longest > BLOB_STRING_LEN_MAX {
        box_up(editor);
    }
}

/// Takes a member out of a blob; whether it was there.
fn cut(editor: &mut Editor<'_, '_>, member: &[u8]) -> bool {
    let bytes = editor.blob();
    let count = blob::count(bytes);
    let found = elements(bytes).find(|element| element.member == member);
    let Some(range) = found.map(|element| element.range) else { return false };
    editor.splice(range, &[], count - 1);
    true
}

/// Removes a member; whether it was there.
pub(crate) fn remove(editor: &mut Editor<'_, '_>, member: &[u8]) -> bool {
    let remove = |boxed: &mut Boxed, means: Means<'_>| match boxed {
        Boxed::Sorted(scores) => scores.remove(means, member),
        _ => false,
    };
    match editor.boxed(remove) {
        Some(was_there) => {
            if was_there {
                editor.touch();
            }
            was_there
        }
        None => cut(editor, member),
    }
}

/// Removes the members of some ranks, which are there.
pub(crate) fn remove_ranks(editor: &mut Editor<'_, '_>, ranks: Range<Rank>) {
    if ranks.is_empty() {
        return;
    }
    let remove = |boxed: &mut Boxed, means: Means<'_>| {
        if let Boxed::Sorted(scores) = boxed {
            scores.remove_ranks(means, ranks.clone());
        }
    };
    if editor.boxed(remove).is_some() {
        editor.touch();
        return;
    }
    let bytes = editor.blob();
    let count = blob::count(bytes);
    let mut found = elements(bytes).skip(ranks.start).take(ranks.len());
    let Some(first) = found.next() else { return };
    let range = first.range.start..found.last().map_or(first.range.end, |last| last.range.end);
    editor.splice(range, &[], count - ranks.len());
}

/// Makes the set a table and a tree, if it is none.
fn box_up(editor: &mut Editor<'_, '_>) {
    if editor.is_boxed() {
        return;
    }
    let means = editor.means();
    let mut scores = Scores::new();
    if let Some(set) = editor.view::<Sorted<'_>>() {
        set.visit(|member, score| scores.put(means, (score, member), None));
    }
    editor.store_boxed(Encoding::SortedBoxed, Boxed::Sorted(scores));
}
