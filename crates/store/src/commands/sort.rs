//! SORT.
//!
//! Patterns of BY and GET name keys that only the elements tell, which may be
//! in any shard: a SORT with such patterns holds the locks of all shards until
//! it is done, and takes them one by one before. All other requests wait that
//! long. Without them it holds those of its own keys.

use super::call::{Call, Fault, Outcome, SYNTAX};
use crate::collections::hash::Hash;
use crate::collections::list::List;
use crate::collections::score;
use crate::collections::set::Set;
use crate::collections::sorted::Sorted;
use crate::edits::list;
use crate::items::Kind;
use crate::store::{Locked, Mode};
use keyway_resp::reply;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

const NO_NUMBER: Fault = Fault::Text("ERR One or more scores can't be converted into double");

/// A pattern, which gives a value for an element.
#[derive(Clone, Copy)]
enum Pattern<'a> {
    /// The element itself.
    Element,
    /// Nothing: it names no key.
    Nothing,
    /// The value of a key that has the element between these, or of a field of
    /// the hash there.
    Key { before: &'a [u8], behind: &'a [u8], field: Option<&'a [u8]> },
}

/// Where `part` is in the text before the first zero byte, from `start` on.
fn find(text: &[u8], start: usize, part: &[u8]) -> Option<usize> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let found = text.get(start..end)?.windows(part.len()).position(|window| window == part);
    found.map(|at| start + at)
}

impl<'a> Pattern<'a> {
    fn parse(text: &'a [u8]) -> Self {
        if matches!(text, b"#" | [b'#', 0, ..]) {
            return Self::Element;
        }
        let Some(star) = find(text, 0, b"*") else { return Self::Nothing };
        let (before, behind) = (&text[..star], &text[star + 1..]);
        match find(text, star + 1, b"->") {
            Some(arrow) if !matches!(&text[arrow + 2..], [] | [0, ..]) => Self::Key {
                before,
                behind: &text[star + 1..arrow],
                field: Some(&text[arrow + 2..]),
            },
            _ => Self::Key { before, behind, field: None },
        }
    }

    fn names_keys(&self) -> bool {
        matches!(self, Self::Key { .. })
    }

    /// Returns the value that the pattern gives for `element`.
    fn value<'s>(
        &self,
        call: &Call<'_>,
        locked: &'s Locked<'_>,
        element: &Cow<'s, [u8]>,
    ) -> Option<Cow<'s, [u8]>> {
        let (before, behind, field) = match self {
            Self::Element => return Some(element.clone()),
            Self::Nothing => return None,
            Self::Key { before, behind, field } => (before, behind, field),
        };
        let key = [*before, element, *behind].concat();
        let value = match field {
            None => locked.text(call.turn, &key),
            Some(field) => {
                let hash = locked.look_at::<Hash<'_>>(call.turn, &key).ok().flatten();
                hash.and_then(|hash| hash.get_at(field, call.turn.now_millis))
            }
        };
        value.map(Cow::Borrowed)
    }
}

/// The options of a SORT.
struct Query<'a> {
    descending: bool,
    by_text: bool,
    /// Elements to be left out at the start, and to be kept then; negative for
    /// all.
    limit: (i64, i64),
    /// The pattern whose values are compared. `None` if the elements are compared.
    by: Option<Pattern<'a>>,
    keeps_order: bool,
    get: Vec<Pattern<'a>>,
    target: Option<&'a [u8]>,
}

impl<'a> Query<'a> {
    fn parse(call: &Call<'a>, may_store: bool) -> Result<Self, Fault> {
        let mut query = Self {
            descending: false,
            by_text: false,
            limit: (0, -1),
            by: None,
            keeps_order: false,
            get: Vec::new(),
            target: None,
        };
        let mut index = 2;
        while index < call.args.len() {
            let left = call.args.len() - index - 1;
            match () {
                () if call.is(index, "asc") => query.descending = false,
                () if call.is(index, "desc") => query.descending = true,
                () if call.is(index, "alpha") => query.by_text = true,
                () if call.is(index, "limit") && left >= 2 => {
                    query.limit = (call.integer(index + 1)?, call.integer(index + 2)?);
                    index += 2;
                }
                () if may_store && call.is(index, "store") && left >= 1 => {
                    query.target = Some(call.arg(index + 1));
                    index += 1;
                }
                () if call.is(index, "by") && left >= 1 => {
                    let text = call.arg(index + 1);
                    query.by = Some(Pattern::parse(text));
                    // Said once, it holds whatever is said behind.
                    query.keeps_order |= find(text, 0, b"*").is_none();
                    index += 1;
                }
                () if call.is(index, "get") && left >= 1 => {
                    query.get.push(Pattern::parse(call.arg(index + 1)));
                    index += 1;
                }
                () => return Err(SYNTAX),
            }
            index += 1;
        }
        Ok(query)
    }

    /// Returns whether values of other keys are needed.
    fn names_keys(&self) -> bool {
        let compares = !self.keeps_order && self.by.is_some_and(|by| by.names_keys());
        compares || self.get.iter().any(Pattern::names_keys)
    }

    /// The elements that are kept, of `len`.
    fn range(&self, len: usize) -> Range<usize> {
        let clip = |number: i64| usize::try_from(number).unwrap_or(0).min(len);
        let start = clip(self.limit.0);
        let end = if self.limit.1 < 0 { len } else { start + clip(self.limit.1) };
        start..end.min(len)
    }
}

/// The value by which an element is compared.
enum Weight<'a> {
    Number(f64),
    Text(Option<Cow<'a, [u8]>>),
}

/// An element, with what it is compared by.
struct Ranked<'a> {
    element: Cow<'a, [u8]>,
    weight: Weight<'a>,
}

/// The bytes that the C library's comparison sees.
fn terminated(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

impl Ranked<'_> {
    /// Numbers, and then elements by bytes; or texts, where nothing comes
    /// first.
    fn order(&self, other: &Self, stores: bool) -> Ordering {
        match (&self.weight, &other.weight) {
            (Weight::Number(one), Weight::Number(another)) => {
                let by_number = one.partial_cmp(another).unwrap_or(Ordering::Equal);
                by_number.then_with(|| self.element.cmp(&other.element))
            }
            (Weight::Text(Some(one)), Weight::Text(Some(another))) if !stores => {
                terminated(one).cmp(terminated(another))
            }
            (Weight::Text(one), Weight::Text(another)) => one.cmp(another),
            _ => Ordering::Equal,
        }
    }
}

type Elements<'a> = Vec<Cow<'a, [u8]>>;

/// The elements of a key, in the order they have; a set's have none.
fn elements<'s>(
    call: &Call<'_>,
    locked: &'s Locked<'_>,
    kind: Kind,
    reverse: bool,
) -> Result<Elements<'s>, Fault> {
    let mut all = Elements::new();
    let key = call.arg(1);
    match kind {
        Kind::List => {
            if let Some(list) = locked.look_at::<List<'_>>(call.turn, key)? {
                match reverse {
                    true => all.extend(list.back_from(list.len()).map(Cow::Borrowed)),
                    false => all.extend(list.from(0).map(Cow::Borrowed)),
                }
            }
        }
        Kind::Set => {
            if let Some(set) = locked.look_at::<Set<'_>>(call.turn, key)? {
                set.visit(|member| all.push(member.into_text()));
            }
        }
        _ => {
            if let Some(sorted) = locked.look_at::<Sorted<'_>>(call.turn, key)? {
                sorted.visit_ranks(0..sorted.len(), reverse, |member, _| {
                    all.push(Cow::Borrowed(member));
                    ControlFlow::Continue(())
                });
            }
        }
    }
    Ok(all)
}

/// Puts elements in order.
fn sort<'s>(
    call: &Call<'_>,
    locked: &'s Locked<'_>,
    query: &Query<'_>,
    all: Elements<'s>,
) -> Result<Elements<'s>, Fault> {
    let weigh = |element: &Cow<'s, [u8]>| {
        let text = match &query.by {
            Some(by) => by.value(call, locked, element),
            None => Some(element.clone()),
        };
        match (query.by_text, text) {
            (true, text) => Ok(Weight::Text(text)),
            (false, None) => Ok(Weight::Number(0.0)),
            (false, Some(text)) => score::parse_weight(&text).map(Weight::Number).ok_or(NO_NUMBER),
        }
    };
    let ranked: Result<Vec<_>, Fault> =
        all.into_iter().map(|element| Ok(Ranked { weight: weigh(&element)?, element })).collect();
    let (mut ranked, stores) = (ranked?, query.target.is_some());
    // Stable: what is equal either way stays as it is.
    ranked.sort_by(|one, other| {
        let order = one.order(other, stores);
        if query.descending { order.reverse() } else { order }
    });
    Ok(ranked.into_iter().map(|ranked| ranked.element).collect())
}

/// The key that a SORT stores to.
pub(super) fn target_of<'a>(call: &Call<'a>) -> Option<&'a [u8]> {
    Query::parse(call, true).ok()?.target
}

/// SORT, and without `may_store` SORT_RO.
pub(super) fn sort_key(call: &Call<'_>, may_store: bool, out: &mut Vec<u8>) -> Outcome {
    let mut query = Query::parse(call, may_store)?;
    let mut locked = match query.names_keys() {
        true => call.store.lock_all(),
        false => call.store.lock_keys(std::iter::once(call.arg(1)).chain(query.target)),
    };
    let kind = match locked.entry(call.turn, call.arg(1)).read().map(|found| found.kind()) {
        None => Kind::List,
        Some(kind @ (Kind::List | Kind::Set | Kind::Sorted)) => kind,
        Some(_) => return Err(crate::collections::WrongType.into()),
    };
    let is_ordered = query.target.is_some() || call.turn.is(Mode::SCRIPTED);
    if query.keeps_order && kind == Kind::Set && is_ordered {
        // A stored result, and a result for a script, must not depend on the inner order of a set.
        (query.keeps_order, query.by_text, query.by) = (false, true, None);
    }
    let mut found = elements(call, &locked, kind, query.keeps_order && query.descending)?;
    if !query.keeps_order {
        found = sort(call, &locked, &query, found)?;
    }
    let range = query.range(found.len());
    let element = [Pattern::Element];
    let get = if query.get.is_empty() { &element[..] } else { &query.get };
    let values = found[range.clone()]
        .iter()
        .flat_map(|element| get.iter().map(|pattern| pattern.value(call, &locked, element)));
    let count = range.len() * get.len();
    let Some(target) = query.target else {
        reply::array(out, count);
        for value in values {
            match value {
                Some(value) => reply::bulk(out, &value),
                None => call.turn.protocol.null(out),
            }
        }
        return Ok(());
    };
    // The target may be among what is read.
    let values: Vec<Vec<u8>> =
        values.map(|value| value.map_or_else(Vec::new, Cow::into_owned)).collect();
    let len = values.iter().map(Vec::len).sum();
    let _room = call.reserve_for_made(&mut locked, target, len)?;
    locked.entry(call.turn, target).replace(Kind::List, "sortstore", |editor| {
        values.iter().for_each(|value| list::insert(editor, usize::MAX, value));
    });
    reply::integer(out, count as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_what_stands_around_its_first_star() {
        type Parts<'a> = Option<(&'a [u8], &'a [u8], Option<&'a [u8]>)>;
        let cases: [(&[u8], Parts<'_>); 9] = [
            (b"w*", Some((b"w", b"", None))),
            (b"*", Some((b"", b"", None))),
            (b"a*b*c", Some((b"a", b"b*c", None))),
            (b"h*->f", Some((b"h", b"", Some(b"f")))),
            (b"h*x->f->g", Some((b"h", b"x", Some(b"f->g")))),
            (b"h*->", Some((b"h", b"->", None))),
            (b"h->*", Some((b"h->", b"", None))),
            (b"h->f", None),
            (b"w\0*", None),
        ];
        for (text, expected) in cases {
            let parts = match Pattern::parse(text) {
                Pattern::Key { before, behind, field } => Some((before, behind, field)),
                Pattern::Element | Pattern::Nothing => None,
            };
            assert_eq!(parts, expected, "{:?}", String::from_utf8_lossy(text));
        }
        assert!(matches!(Pattern::parse(b"#"), Pattern::Element));
        assert!(matches!(Pattern::parse(b"##"), Pattern::Nothing));
    }
}
