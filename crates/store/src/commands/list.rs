//! Lists.

use super::call::{Call, Fault, Outcome, SYNTAX, begin_pair};
use super::key::NO_SUCH_KEY;
use crate::algorithms::number::parse_integer;
use crate::collections::WrongType;
use crate::collections::list::List;
use crate::edits::list;
use crate::entry::Entry;
use crate::items::Kind;
use keyway_resp::reply;

const NOT_POSITIVE: Fault = Fault::Text("ERR value is out of range, must be positive");

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

impl End {
    pub(super) fn parse(call: &Call<'_>, index: usize) -> Result<Self, Fault> {
        match () {
            () if call.is(index, "left") => Ok(Self::Left),
            () if call.is(index, "right") => Ok(Self::Right),
            () => Err(SYNTAX),
        }
    }

    fn pushed(self) -> &'static str {
        if self == Self::Left { "lpush" } else { "rpush" }
    }

    fn popped(self) -> &'static str {
        if self == Self::Left { "lpop" } else { "rpop" }
    }

    /// The index before which a pushed element goes.
    fn push_index(self) -> usize {
        if self == Self::Left { 0 } else { usize::MAX }
    }
}

/// Where `index`, which counts from the end when negative, is in a list.
fn resolve(index: i64, len: usize) -> i64 {
    if index < 0 { (len as i64).saturating_add(index) } else { index }
}

/// The elements from `start` to `end`, both inclusive and counting from the
/// end when negative: the first one's index, and how many there are.
fn range_of(start: i64, end: i64, len: usize) -> (usize, usize) {
    let start = resolve(start, len).max(0);
    let end = resolve(end, len).min(len as i64 - 1);
    if start > end { (0, 0) } else { (start as usize, (end - start + 1) as usize) }
}

fn read<R>(call: &Call<'_>, work: impl FnOnce(Option<List<'_>>) -> R) -> Result<R, Fault> {
    call.with_key(|mut entry| Ok(work(entry.read_as()?)))
}

/// LPUSH and RPUSH, and with `if_present` LPUSHX and RPUSHX.
pub(super) fn push(call: &Call<'_>, end: End, if_present: bool, out: &mut Vec<u8>) -> Outcome {
    let len = call.with_key(|mut entry| {
        entry.edit(Kind::List, end.pushed(), |editor| {
            if !if_present || editor.exists() {
                call.args_from(2, 1)
                    .for_each(|value| list::insert(editor, end.push_index(), value));
            }
            list::len(editor)
        })
    })?;
    reply::integer(out, len as i64);
    Ok(())
}

/// Takes `count` elements off an end, of which there are as many, and appends
/// them one by one.
fn take(entry: &mut Entry<'_>, end: End, count: usize, out: &mut Vec<u8>) -> Result<(), WrongType> {
    entry.edit(Kind::List, end.popped(), |editor| {
        let Some(list) = editor.view::<List<'_>>() else { return };
        let len = list.len();
        match end {
            End::Left => list.from(0).take(count).for_each(|value| reply::bulk(out, value)),
            End::Right => list.back_from(len).take(count).for_each(|value| reply::bulk(out, value)),
        }
        list::remove(editor, if end == End::Left { 0 } else { len - count }, count);
    })?;
    Ok(())
}

/// Argument `index` as a number of elements.
pub(super) fn parse_count(call: &Call<'_>, index: usize) -> Result<usize, Fault> {
    let count = parse_integer(call.arg(index)).ok_or(NOT_POSITIVE)?;
    usize::try_from(count).map_err(|_| NOT_POSITIVE)
}

/// LPOP and RPOP.
pub(super) fn pop(call: &Call<'_>, end: End, out: &mut Vec<u8>) -> Outcome {
    let count = match call.args.len() {
        2 => None,
        3 => Some(parse_count(call, 2)?),
        _ if end == End::Left => {
            return Err(Fault::Text("ERR wrong number of arguments for 'lpop' command"));
        }
        _ => return Err(Fault::Text("ERR wrong number of arguments for 'rpop' command")),
    };
    call.with_key(|mut entry| {
        let len = entry.look_at::<List<'_>>()?.map(|list| list.len());
        match (count, len) {
            (None, None) => call.turn.protocol.null(out),
            (Some(_), None) => call.turn.protocol.null_array(out),
            (None, Some(_)) => take(&mut entry, end, 1, out)?,
            (Some(count), Some(len)) => {
                let count = count.min(len);
                reply::array(out, count);
                if count > 0 {
                    take(&mut entry, end, count, out)?;
                }
            }
        }
        Ok(())
    })
}

/// LLEN.
pub(super) fn llen(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let len = read(call, |list| list.map_or(0, |list| list.len()))?;
    reply::integer(out, len as i64);
    Ok(())
}

/// LRANGE.
pub(super) fn lrange(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    read(call, |list| {
        let Some(list) = list else { return reply::array(out, 0) };
        let (start, count) = range_of(start, end, list.len());
        reply::array(out, count);
        list.from(start).take(count).for_each(|value| reply::bulk(out, value));
    })
}

/// LINDEX.
pub(super) fn lindex(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    read(call, |list| {
        let Some(list) = list else {
            call.turn.protocol.null(out);
            return Ok(());
        };
        let index = usize::try_from(resolve(call.integer(2)?, list.len())).ok();
        match index.filter(|index| *index < list.len()).and_then(|index| list.get(index)) {
            Some(value) => reply::bulk(out, value),
            None => call.turn.protocol.null(out),
        }
        Ok(())
    })?
}

/// LSET.
pub(super) fn lset(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    call.with_key(|mut entry| {
        let len = entry.look_at::<List<'_>>()?.ok_or(NO_SUCH_KEY)?.len();
        let index = usize::try_from(resolve(call.integer(2)?, len)).ok();
        let index = index.filter(|index| *index < len);
        let index = index.ok_or(Fault::Text("ERR index out of range"))?;
        entry.edit(Kind::List, "lset", |editor| list::set(editor, index, call.arg(3)))?;
        out.extend_from_slice(b"+OK\r\n");
        Ok(())
    })
}

/// LINSERT.
pub(super) fn linsert(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let behind = match () {
        () if call.is(2, "after") => 1,
        () if call.is(2, "before") => 0,
        () => return Err(SYNTAX),
    };
    let (pivot, value) = (call.arg(3), call.arg(4));
    let len = call.with_key(|mut entry| {
        let Some(list) = entry.look_at::<List<'_>>()? else { return Ok(0) };
        let Some(index) = list.from(0).position(|element| element == pivot) else {
            return Ok(-1);
        };
        entry.edit(Kind::List, "linsert", |editor| {
            list::insert(editor, index + behind, value);
            list::len(editor) as i64
        })
    })?;
    reply::integer(out, len);
    Ok(())
}

/// LREM.
pub(super) fn lrem(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let count = call.integer(2)?;
    let limit = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let removed = call.with_key(|mut entry| {
        entry.edit(Kind::List, "lrem", |editor| {
            list::remove_equal(editor, call.arg(3), limit, count < 0)
        })
    })?;
    reply::integer(out, removed as i64);
    Ok(())
}

/// LTRIM.
pub(super) fn ltrim(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    call.with_key(|mut entry| {
        entry.edit(Kind::List, "ltrim", |editor| {
            if !editor.exists() {
                return;
            }
            let len = list::len(editor);
            let (start, count) = range_of(start, end, len);
            editor.touch();
            if start + count < len {
                list::remove(editor, start + count, len - start - count);
            }
            if start > 0 && count > 0 {
                list::remove(editor, 0, start);
            }
        })
    })?;
    out.extend_from_slice(b"+OK\r\n");
    Ok(())
}

/// The options of LPOS.
struct Search {
    rank: i64,
    count: Option<usize>,
    len_max: usize,
}

impl Search {
    fn parse(call: &Call<'_>) -> Result<Self, Fault> {
        let mut search = Self { rank: 1, count: None, len_max: 0 };
        let positive = |index: usize, fault: &'static str| {
            let number = parse_integer(call.arg(index)).and_then(|number| number.try_into().ok());
            number.ok_or(Fault::Text(fault))
        };
        let mut index = 3;
        while index < call.args.len() {
            if index + 1 == call.args.len() {
                return Err(SYNTAX);
            }
            match () {
                () if call.is(index, "rank") => {
                    search.rank = call.integer(index + 1)?;
                    if search.rank == 0 {
                        return Err(Fault::Text(
                            "ERR RANK can't be zero: use 1 to start from the first match, 2 from \
                             the second ... or use negative to start from the end of the list",
                        ));
                    }
                }
                () if call.is(index, "count") => {
                    search.count = Some(positive(index + 1, "ERR COUNT can't be negative")?);
                }
                () if call.is(index, "maxlen") => {
                    search.len_max = positive(index + 1, "ERR MAXLEN can't be negative")?;
                }
                () => return Err(SYNTAX),
            }
            index += 2;
        }
        Ok(search)
    }

    /// The indices of `value` among `elements`, in the order they come in.
    fn matches<'a>(&self, elements: impl Iterator<Item = &'a [u8]>, value: &[u8]) -> Vec<usize> {
        let limit = if self.len_max == 0 { usize::MAX } else { self.len_max };
        let wanted = match self.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count,
        };
        let skipped = usize::try_from(self.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
        let elements = elements.take(limit).enumerate();
        let matches = elements.filter(|(_, element)| *element == value).map(|(index, _)| index);
        matches.skip(skipped).take(wanted).collect()
    }
}

/// LPOS.
pub(super) fn lpos(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let search = Search::parse(call)?;
    let found = read(call, |list| {
        let Some(list) = list else { return Vec::new() };
        if search.rank > 0 {
            return search.matches(list.from(0), call.arg(2));
        }
        let last = list.len() - 1;
        let found = search.matches(list.back_from(list.len()), call.arg(2));
        found.into_iter().map(|index| last - index).collect()
    })?;
    match (search.count, found.first()) {
        (Some(_), _) => {
            reply::array(out, found.len());
            found.iter().for_each(|index| reply::integer(out, *index as i64));
        }
        (None, Some(index)) => reply::integer(out, *index as i64),
        (None, None) => call.turn.protocol.null(out),
    }
    Ok(())
}

/// RPOPLPUSH.
pub(super) fn rpoplpush(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    move_element(call, End::Right, End::Left, out)
}

/// LMOVE.
pub(super) fn lmove(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let (from, to) = (End::parse(call, 3)?, End::parse(call, 4)?);
    move_element(call, from, to, out)
}

fn move_element(call: &Call<'_>, from: End, to: End, out: &mut Vec<u8>) -> Outcome {
    match try_move(call, from, to, out) {
        Ok(true) => {}
        Ok(false) => call.turn.protocol.null(out),
        Err(_) => return Err(WrongType.into()),
    }
    Ok(())
}

/// The key of a move that holds another type than a list.
pub(super) enum MoveFault {
    Source,
    Target,
}

/// Moves an element, if there is one, and writes it; whether there is.
pub(super) fn try_move(
    call: &Call<'_>,
    from: End,
    to: End,
    out: &mut Vec<u8>,
) -> Result<bool, MoveFault> {
    let (source, target) = (call.arg(1), call.arg(2));
    let mut locked = call.store.lock_keys([source, target].into_iter());
    let mut entry = locked.entry(call.turn, source);
    let list = entry.look_at::<List<'_>>().map_err(|WrongType| MoveFault::Source)?;
    let Some(list) = list else { return Ok(false) };
    let len = list.len();
    let value = match from {
        End::Left => list.get(0),
        End::Right => list.back_from(len).next(),
    };
    let value = value.unwrap_or_default().to_vec();
    let pushed = locked.entry(call.turn, target).edit(Kind::List, to.pushed(), |editor| {
        list::insert(editor, to.push_index(), &value);
    });
    pushed.map_err(|WrongType| MoveFault::Target)?;
    let popped = locked.entry(call.turn, source).edit(Kind::List, from.popped(), |editor| {
        let index = if from == End::Left { 0 } else { list::len(editor) - 1 };
        list::remove(editor, index, 1);
    });
    popped.map_err(|WrongType| MoveFault::Source)?;
    reply::bulk(out, &value);
    Ok(true)
}

/// A number of keys at `index`, of which at least one more word must follow;
/// where that word is.
pub(super) fn parse_key_count(call: &Call<'_>, index: usize) -> Result<usize, Fault> {
    const FAULT: Fault = Fault::Text("ERR numkeys should be greater than 0");
    let count = parse_integer(call.arg(index)).filter(|count| *count > 0).ok_or(FAULT)?;
    let next = usize::try_from(count).ok().and_then(|count| count.checked_add(index + 1));
    next.filter(|next| *next < call.args.len()).ok_or(SYNTAX)
}

/// The COUNT of LMPOP and ZMPOP, from `index` on; 1 when there is none.
pub(super) fn parse_pop_count(call: &Call<'_>, index: usize) -> Result<usize, Fault> {
    const FAULT: Fault = Fault::Text("ERR count should be greater than 0");
    match call.args.len() - index {
        0 => Ok(1),
        1 => Err(SYNTAX),
        rest if call.is(index, "count") => {
            let count = parse_integer(call.arg(index + 1)).filter(|count| *count > 0);
            let count = count.ok_or(FAULT)?;
            if rest > 2 { Err(SYNTAX) } else { Ok(count as usize) }
        }
        _ => Err(SYNTAX),
    }
}

/// The keys' number, at `index`, the end and the COUNT of LMPOP and BLMPOP.
pub(super) fn parse_multi_pop(call: &Call<'_>, index: usize) -> Result<(usize, End, usize), Fault> {
    let end_at = parse_key_count(call, index)?;
    let end = End::parse(call, end_at)?;
    Ok((end_at - index - 1, end, parse_pop_count(call, end_at + 1)?))
}

/// Writes the key and up to `count` elements taken off it, if it has any;
/// whether it has.
pub(super) fn take_some(
    entry: &mut Entry<'_>,
    key: &[u8],
    end: End,
    count: usize,
    out: &mut Vec<u8>,
) -> Result<bool, WrongType> {
    let Some(list) = entry.look_at::<List<'_>>()? else { return Ok(false) };
    let count = count.min(list.len());
    begin_pair(key, 2, out);
    reply::array(out, count);
    take(entry, end, count, out)?;
    Ok(true)
}

/// The same with one element, as BLPOP has it.
pub(super) fn take_one(
    entry: &mut Entry<'_>,
    key: &[u8],
    end: End,
    out: &mut Vec<u8>,
) -> Result<bool, WrongType> {
    if entry.look_at::<List<'_>>()?.is_none() {
        return Ok(false);
    }
    begin_pair(key, 2, out);
    take(entry, end, 1, out)?;
    Ok(true)
}

/// LMPOP.
pub(super) fn lmpop(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let (keys, end, count) = parse_multi_pop(call, 1)?;
    let keys = call.args_from(2, 1).take(keys);
    let mut locked = call.store.lock_keys(keys.clone());
    for key in keys {
        if take_some(&mut locked.entry(call.turn, key), key, end, count, out)? {
            return Ok(());
        }
    }
    call.turn.protocol.null_array(out);
    Ok(())
}
