//! Values that were read in RDB's form.

use super::hash::{self, Until};
use super::{list, set, sorted};
use crate::collections::Boxed;
use crate::dump::Value;
use crate::entry::Editor;
use crate::items::Encoding;

/// Adds what was read, which is no string, to a collection that has none of it yet. Fields that
/// have expired are left out.
pub(crate) fn fill(editor: &mut Editor<'_, '_>, value: Value<'_>, now_millis: u64) {
    match value {
        Value::Text(_) => {}
        Value::Stream(stream) => editor.store_boxed(Encoding::StreamBoxed, Boxed::Stream(stream)),
        Value::List(elements) => {
            elements.iter().for_each(|element| list::insert(editor, usize::MAX, element));
        }
        Value::Set(members) => members.iter().for_each(|member| _ = set::add(editor, member)),
        Value::Hash(strings) => {
            for field in (0..strings.len()).step_by(2) {
                hash::set(editor, strings.get(field), strings.get(field + 1), Until::Ever);
            }
        }
        Value::Timed(strings, times) => {
            for (index, time) in times.iter().enumerate() {
                let (field, value) = (strings.get(2 * index), strings.get(2 * index + 1));
                let until = if *time == 0 { Until::Ever } else { Until::Time(*time) };
                // Of one that has expired already, nobody needs to be told.
                if *time == 0 || *time > now_millis {
                    hash::set(editor, field, value, until);
                }
            }
        }
        Value::Sorted(members, scores) => {
            // In order, nodes of a tree come to be full.
            let mut all: Vec<(&[u8], f64)> = members.iter().zip(scores.iter().copied()).collect();
            all.sort_by(|(one, score), (other, other_score)| {
                let by_score = score.partial_cmp(other_score);
                by_score.unwrap_or(std::cmp::Ordering::Equal).then_with(|| one.cmp(other))
            });
            let longest = all.iter().map(|(member, _)| member.len()).max().unwrap_or(0);
            sorted::prepare(editor, all.len(), longest);
            all.into_iter().for_each(|(member, score)| sorted::put(editor, member, score, None));
        }
    }
}
