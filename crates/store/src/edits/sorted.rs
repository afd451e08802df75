//! Changes of sorted sets.

use crate::collections::blob::{self, BLOB_ELEMENTS_MAX, BLOB_STRING_LEN_MAX, HEADER_LEN, Prefix};
use crate::collections::scores::{Rank, Scores, order};
use crate::collections::sorted::{Element, Sorted, elements};
use crate::collections::{Boxed, Means};
use crate::entry::Editor;
use crate::items::Encoding;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::Range;

/// Gives a member a score; `old` is the one it has.
pub(crate) fn put(editor: &mut Editor<'_, '_>, member: &[u8], score: f64, old: Option<f64>) {
    let is_full = old.is_none() && blob::count(editor.blob()) == BLOB_ELEMENTS_MAX;
    if is_full || member.len() > BLOB_STRING_LEN_MAX {
        box_up(editor);
    }
    let put = |scores: &mut Scores, means: Means<'_>| scores.put(means, score, member, old);
    if editor.with(Boxed::scores_mut, put).is_some() {
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
    let remove = |scores: &mut Scores, means: Means<'_>| scores.remove(means, member);
    let was_there = editor.change(Boxed::scores_mut, remove);
    was_there.unwrap_or_else(|| cut(editor, member))
}

/// Removes the members of some ranks, which are there.
pub(crate) fn remove_ranks(editor: &mut Editor<'_, '_>, ranks: Range<Rank>) {
    if ranks.is_empty() {
        return;
    }
    let remove = |scores: &mut Scores, means: Means<'_>| scores.remove_ranks(means, ranks.clone());
    if editor.with(Boxed::scores_mut, remove).is_some() {
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
        set.visit(|member, score| scores.put(means, score, member, None));
    }
    editor.store_boxed(Encoding::SortedBoxed, Boxed::Sorted(scores));
}
