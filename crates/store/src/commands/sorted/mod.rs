//! Sorted sets.

pub(super) mod combine;
pub(super) mod range;

use super::call::{Call, Fault, Outcome, SYNTAX, begin_pair};
use super::list::{parse_count, parse_key_count, parse_pop_count};
use super::sample::{Walk, Wanted, sample, sample_len, walk_reply};
use super::scan;
use crate::collections::sorted::Sorted;
use crate::collections::{WrongType, score};
use crate::edits::sorted;
use crate::entry::{Editor, Entry};
use crate::items::Kind;
use keyway_resp::{Protocol, reply};
use std::ops::ControlFlow;

pub(super) const NOT_A_FLOAT: Fault = Fault::Text("ERR value is not a valid float");
const NAN: Fault = Fault::Text("ERR resulting score is not a number (NaN)");

pub(super) fn read<R>(
    call: &Call<'_>,
    work: impl FnOnce(Option<Sorted<'_>>) -> R,
) -> Result<R, Fault> {
    call.with_key(|mut entry| Ok(work(entry.read_as()?)))
}

/// Bytes that a member of a large sorted set takes beside its text, or a little less.
const MEMBER_LEN: usize = 32;

/// About what a sorted set of these members takes in bytes.
pub(super) fn stored_len<'m>(members: impl Iterator<Item = &'m [u8]>) -> usize {
    members.map(|member| member.len() + MEMBER_LEN).sum()
}

fn write_score(call: &Call<'_>, score: f64, out: &mut Vec<u8>) {
    score::with_text(score, |digits| call.turn.protocol.double(out, digits));
}

/// The options of ZADD: the scores that it changes, and its reply.
#[derive(Clone, Copy, Default)]
pub(super) struct Options {
    pub(super) only_new: bool,
    pub(super) only_old: bool,
    only_greater: bool,
    only_less: bool,
    pub(super) counts_changes: bool,
    increments: bool,
}

impl Options {
    /// Reads the options; where the scores begin.
    fn parse(call: &Call<'_>, increments: bool) -> Result<(Self, usize), Fault> {
        let mut options = Self { increments, ..Self::default() };
        let mut index = 2;
        loop {
            let flag = match call.arg(index).to_ascii_lowercase().as_slice() {
                b"nx" => &mut options.only_new,
                b"xx" => &mut options.only_old,
                b"gt" => &mut options.only_greater,
                b"lt" => &mut options.only_less,
                b"ch" => &mut options.counts_changes,
                b"incr" => &mut options.increments,
                _ => break,
            };
            *flag = true;
            index += 1;
        }
        let count = call.args.len().saturating_sub(index);
        let Self { only_new, only_old, only_greater, only_less, .. } = options;
        if count == 0 || !count.is_multiple_of(2) {
            return Err(SYNTAX);
        }
        if only_new && only_old {
            return Err(Fault::Text("ERR XX and NX options at the same time are not compatible"));
        }
        if (only_new && (only_greater || only_less)) || (only_greater && only_less) {
            return Err(Fault::Text(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if options.increments && count > 2 {
            return Err(Fault::Text("ERR INCR option supports a single increment-element pair"));
        }
        Ok((options, index))
    }
}

/// The result for a member.
enum Change {
    Added(f64),
    Updated(f64),
    Same(f64),
    /// The options forbade it.
    Refused,
}

fn add(
    editor: &mut Editor<'_, '_>,
    options: Options,
    given: f64,
    member: &[u8],
) -> Result<Change, Fault> {
    let old = editor.view::<Sorted<'_>>().and_then(|set| set.score(member));
    let Some(old) = old else {
        if options.only_old {
            return Ok(Change::Refused);
        }
        sorted::put(editor, member, given, None);
        return Ok(Change::Added(given));
    };
    if options.only_new {
        return Ok(Change::Refused);
    }
    let score = if options.increments { old + given } else { given };
    if score.is_nan() {
        return Err(NAN);
    }
    if (options.only_less && score >= old) || (options.only_greater && score <= old) {
        return Ok(Change::Refused);
    }
    if score == old {
        return Ok(Change::Same(score));
    }
    sorted::put(editor, member, score, Some(old));
    Ok(Change::Updated(score))
}

/// Gives a member a score, whether it has one or not.
pub(super) fn set_score(editor: &mut Editor<'_, '_>, member: &[u8], score: f64) {
    let old = editor.view::<Sorted<'_>>().and_then(|set| set.score(member));
    sorted::put(editor, member, score, old);
}

/// ZADD, and with `increments` ZINCRBY.
pub(super) fn zadd(call: &Call<'_>, increments: bool, out: &mut Vec<u8>) -> Outcome {
    let (options, index) = Options::parse(call, increments)?;
    let scores: Option<Vec<f64>> = call.args_from(index, 2).map(score::parse).collect();
    let scores = scores.ok_or(NOT_A_FLOAT)?;
    add_all(call, options, scores, call.args_from(index + 1, 2), out)
}

/// Adds scores with their members, and answers as ZADD does.
pub(super) fn add_all<'a>(
    call: &Call<'a>,
    options: Options,
    scores: Vec<f64>,
    members: impl Iterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) -> Outcome {
    let event = if options.increments { "zincr" } else { "zadd" };
    let (mut added, mut updated, mut last) = (0, 0, None);
    call.with_key(|mut entry| {
        entry.edit(Kind::Sorted, event, |editor| {
            for (score, member) in scores.into_iter().zip(members) {
                last = match add(editor, options, score, member)? {
                    Change::Added(score) => {
                        added += 1;
                        Some(score)
                    }
                    Change::Updated(score) => {
                        updated += 1;
                        Some(score)
                    }
                    Change::Same(score) => Some(score),
                    Change::Refused => None,
                };
            }
            Ok::<_, Fault>(())
        })?
    })?;
    match (options.increments, last) {
        (true, Some(score)) => write_score(call, score, out),
        (true, None) => call.turn.protocol.null(out),
        (false, _) => {
            reply::integer(out, added + if options.counts_changes { updated } else { 0 });
        }
    }
    Ok(())
}

/// ZREM.
pub(super) fn zrem(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let removed = call.with_key(|mut entry| {
        entry.edit(Kind::Sorted, "zrem", |editor| {
            call.args_from(2, 1).filter(|member| sorted::remove(editor, member)).count()
        })
    })?;
    reply::integer(out, removed as i64);
    Ok(())
}

/// ZCARD.
pub(super) fn zcard(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let len = read(call, |set| set.map_or(0, |set| set.len()))?;
    reply::integer(out, len as i64);
    Ok(())
}

fn write_found(call: &Call<'_>, score: Option<f64>, out: &mut Vec<u8>) {
    match score {
        Some(score) => write_score(call, score, out),
        None => call.turn.protocol.null(out),
    }
}

/// ZSCORE.
pub(super) fn zscore(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    read(call, |set| write_found(call, set.and_then(|set| set.score(call.arg(2))), out))
}

/// ZMSCORE.
pub(super) fn zmscore(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    read(call, |set| {
        reply::array(out, call.args.len() - 2);
        for member in call.args_from(2, 1) {
            write_found(call, set.and_then(|set| set.score(member)), out);
        }
    })
}

/// ZRANK, and with `reverse` ZREVRANK.
pub(super) fn zrank(call: &Call<'_>, reverse: bool, out: &mut Vec<u8>) -> Outcome {
    read(call, |set| {
        let found = set.and_then(|set| Some((set.rank(call.arg(2))?, set.len())));
        match found {
            Some((rank, len)) => {
                reply::integer(out, if reverse { len - 1 - rank } else { rank } as i64);
            }
            None => call.turn.protocol.null(out),
        }
    })
}

/// The end from which ZPOPMIN, ZPOPMAX and ZMPOP take members.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Min,
    Max,
}

/// Takes `count` members, which are there, and writes each with its score, as
/// a pair of their own if `nests`.
fn take(
    call: &Call<'_>,
    entry: &mut Entry<'_>,
    end: End,
    count: usize,
    nests: bool,
    out: &mut Vec<u8>,
) -> Result<(), WrongType> {
    let event = if end == End::Min { "zpopmin" } else { "zpopmax" };
    entry.edit(Kind::Sorted, event, |editor| {
        let Some(set) = editor.view::<Sorted<'_>>() else { return };
        let ranks = match end {
            End::Min => 0..count,
            End::Max => set.len() - count..set.len(),
        };
        set.visit_ranks(ranks.clone(), end == End::Max, |member, score| {
            if nests {
                reply::array(out, 2);
            }
            reply::bulk(out, member);
            write_score(call, score, out);
            ControlFlow::Continue(())
        });
        sorted::remove_ranks(editor, ranks);
    })?;
    Ok(())
}

/// ZPOPMIN and ZPOPMAX.
pub(super) fn pop(call: &Call<'_>, end: End, out: &mut Vec<u8>) -> Outcome {
    let count = match call.args.len() {
        2 => None,
        3 => Some(parse_count(call, 2)?),
        _ => return Err(SYNTAX),
    };
    call.with_key(|mut entry| {
        let len = entry.look_at::<Sorted<'_>>()?.map_or(0, |set| set.len());
        let taken = count.unwrap_or(1).min(len);
        let nests = count.is_some() && call.turn.protocol == Protocol::Resp3;
        reply::array(out, if nests { taken } else { 2 * taken });
        if taken == 0 {
            return Ok(());
        }
        take(call, &mut entry, end, taken, nests, out)?;
        Ok(())
    })
}

/// The keys' number, at `index`, the end and the COUNT of ZMPOP and BZMPOP.
pub(super) fn parse_multi_pop(call: &Call<'_>, index: usize) -> Result<(usize, End, usize), Fault> {
    let end_at = parse_key_count(call, index)?;
    let end = match () {
        () if call.is(end_at, "min") => End::Min,
        () if call.is(end_at, "max") => End::Max,
        () => return Err(SYNTAX),
    };
    Ok((end_at - index - 1, end, parse_pop_count(call, end_at + 1)?))
}

/// Writes the key and up to `count` members taken off it, if it has any;
/// whether it has.
pub(super) fn take_some(
    call: &Call<'_>,
    entry: &mut Entry<'_>,
    key: &[u8],
    end: End,
    count: usize,
    out: &mut Vec<u8>,
) -> Result<bool, WrongType> {
    let Some(set) = entry.look_at::<Sorted<'_>>()? else { return Ok(false) };
    let taken = count.min(set.len());
    begin_pair(key, 2, out);
    reply::array(out, taken);
    take(call, entry, end, taken, true, out)?;
    Ok(true)
}

/// The same with one member, as BZPOPMIN has it.
pub(super) fn take_one(
    call: &Call<'_>,
    entry: &mut Entry<'_>,
    key: &[u8],
    end: End,
    out: &mut Vec<u8>,
) -> Result<bool, WrongType> {
    if entry.look_at::<Sorted<'_>>()?.is_none() {
        return Ok(false);
    }
    begin_pair(key, 3, out);
    take(call, entry, end, 1, false, out)?;
    Ok(true)
}

/// ZMPOP.
pub(super) fn zmpop(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let (keys, end, count) = parse_multi_pop(call, 1)?;
    let keys = call.args_from(2, 1).take(keys);
    let mut locked = call.store.lock_keys(keys.clone());
    for key in keys {
        if take_some(call, &mut locked.entry(call.turn, key), key, end, count, out)? {
            return Ok(());
        }
    }
    call.turn.protocol.null_array(out);
    Ok(())
}

/// A member with its score, to be compared by its bytes.
#[derive(Clone, Copy)]
struct Pick<'a>(&'a [u8], f64);

impl PartialEq for Pick<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Pick<'_> {}

impl PartialOrd for Pick<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pick<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(other.0)
    }
}

/// ZRANDMEMBER.
pub(super) fn zrandmember(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let random = || call.store.random();
    if call.args.len() == 2 {
        return read(call, |set| match set.and_then(|set| set.random(random)) {
            Some((member, _)) => reply::bulk(out, member),
            None => call.turn.protocol.null(out),
        });
    }
    let with_scores = call.args.len() == 4 && call.is(3, "withscores");
    let mut wanted = Wanted::parse(call, 2, i64::MAX)?;
    if call.args.len() > 3 && !with_scores {
        return Err(SYNTAX);
    }
    if with_scores {
        wanted = Wanted::parse(call, 2, i64::MAX / 2)?;
    }
    read(call, |set| {
        let Some(set) = set else {
            reply::array(out, 0);
            return Ok(());
        };
        let nests = with_scores && call.turn.protocol == Protocol::Resp3;
        let len = sample_len(wanted, set.len());
        reply::array(out, if with_scores && !nests { 2 * len } else { len });
        let visit = |each: &mut dyn FnMut(_)| set.visit(|member, score| each(Pick(member, score)));
        let pick = || set.random(random).map(|(member, score)| Pick(member, score));
        sample(call, wanted, set.len(), pick, visit, out, |Pick(member, score), out| {
            if nests {
                reply::array(out, 2);
            }
            reply::bulk(out, member);
            if with_scores {
                write_score(call, score, out);
            }
        })
    })?
}

/// ZSCAN.
pub(super) fn zscan(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let cursor = scan::parse_cursor(call.arg(2))?;
    read(call, |set| {
        let Some(set) = set else {
            walk_reply(out, 0, 0, b"");
            return Ok(());
        };
        let walk = Walk::parse(call)?;
        let (mut strings, mut count) = (Vec::new(), 0);
        let next = set.scan(cursor, walk.count, |member, score| {
            if walk.wants(member) {
                reply::bulk(&mut strings, member);
                let write = |digits: &[u8]| reply::bulk(&mut strings, digits);
                match set.is_small() {
                    true => score::with_all_digits(score, write),
                    false => score::with_text(score, write),
                }
                count += 2;
            }
        });
        walk_reply(out, next, count, &strings);
        Ok(())
    })?
}
