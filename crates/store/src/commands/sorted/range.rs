//! Ranges of sorted sets, by rank, score or bytes: read, stored, counted and
//! removed.

use super::super::call::{Call, Fault, NOT_AN_INTEGER, Outcome, SYNTAX};
use super::{stored_len, write_score};
use crate::algorithms::number::parse_integer;
use crate::collections::score::Bound;
use crate::collections::sorted::{LexBound, LexRange, ScoreRange, Sorted};
use crate::edits::sorted;
use crate::items::Kind;
use keyway_resp::{Protocol, reply};
use std::ops::{ControlFlow, Range};

/// The meaning of the ends of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum By {
    Rank,
    Score,
    Bytes,
}

/// A range as it was asked for.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    Ranks(i64, i64),
    Scores(ScoreRange),
    Bytes(LexRange<'a>),
}

impl<'a> Wanted<'a> {
    fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Self, Fault> {
        match by {
            By::Rank => {
                let rank = |text| parse_integer(text).ok_or(NOT_AN_INTEGER);
                Ok(Self::Ranks(rank(min)?, rank(max)?))
            }
            By::Score => {
                let bound =
                    |text| Bound::parse(text).ok_or(Fault::Text("ERR min or max is not a float"));
                Ok(Self::Scores(ScoreRange { min: bound(min)?, max: bound(max)? }))
            }
            By::Bytes => {
                let bound = |text| {
                    LexBound::parse(text)
                        .ok_or(Fault::Text("ERR min or max not valid string range item"))
                };
                Ok(Self::Bytes(LexRange { min: bound(min)?, max: bound(max)? }))
            }
        }
    }

    /// The ranks that this comes to; given ones are counted from the end if
    /// `reverse`.
    fn ranks(&self, set: &Sorted<'_>, reverse: bool) -> Range<usize> {
        let len = set.len();
        match self {
            Self::Scores(range) => set.ranks_of(range),
            Self::Bytes(range) => set.ranks_of_bytes(range),
            Self::Ranks(start, end) => {
                let resolve =
                    |rank: i64| if rank < 0 { rank.saturating_add(len as i64) } else { rank };
                let (start, end) = (resolve(*start).max(0), resolve(*end).min(len as i64 - 1));
                if start > end {
                    return 0..0;
                }
                let (start, end) = (start as usize, end as usize + 1);
                if reverse { len - end..len - start } else { start..end }
            }
        }
    }
}

/// A request for a range.
struct Query<'a> {
    wanted: Wanted<'a>,
    reverse: bool,
    with_scores: bool,
    offset: i64,
    limit: i64,
}

/// The options that the name of a command implies.
#[derive(Clone, Copy)]
pub(in super::super) struct Form {
    pub(in super::super) by: Option<By>,
    pub(in super::super) reverse: Option<bool>,
}

impl<'a> Query<'a> {
    /// Reads a query whose key is argument `key_at`.
    fn parse(call: &Call<'a>, key_at: usize, form: Form, stores: bool) -> Result<Self, Fault> {
        let (mut by, mut reverse) = (form.by, form.reverse);
        let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
        let mut index = key_at + 3;
        while index < call.args.len() {
            let left = call.args.len() - index - 1;
            match () {
                () if !stores && call.is(index, "withscores") => with_scores = true,
                () if call.is(index, "limit") && left >= 2 => {
                    offset = call.integer(index + 1)?;
                    limit = call.integer(index + 2)?;
                    index += 2;
                }
                () if reverse.is_none() && call.is(index, "rev") => reverse = Some(true),
                () if by.is_none() && call.is(index, "bylex") => by = Some(By::Bytes),
                () if by.is_none() && call.is(index, "byscore") => by = Some(By::Score),
                () => return Err(SYNTAX),
            }
            index += 1;
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if limit != -1 && by == By::Rank {
            return Err(Fault::Text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Bytes {
            return Err(Fault::Text(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let (min, max) = match reverse && by != By::Rank {
            true => (call.arg(key_at + 2), call.arg(key_at + 1)),
            false => (call.arg(key_at + 1), call.arg(key_at + 2)),
        };
        let wanted = Wanted::parse(by, min, max)?;
        Ok(Self { wanted, reverse, with_scores, offset, limit })
    }

    /// The ranks to answer with.
    fn ranks(&self, set: &Sorted<'_>) -> Range<usize> {
        let ranks = self.wanted.ranks(set, self.reverse);
        if matches!(self.wanted, Wanted::Ranks(..)) {
            return ranks;
        }
        let Ok(offset) = usize::try_from(self.offset) else { return 0..0 };
        let offset = offset.min(ranks.len());
        let left = ranks.len() - offset;
        let count = usize::try_from(self.limit).map_or(left, |limit| limit.min(left));
        match self.reverse {
            true => ranks.end - offset - count..ranks.end - offset,
            false => ranks.start + offset..ranks.start + offset + count,
        }
    }
}

/// ZRANGE and its forms.
pub(in super::super) fn zrange(call: &Call<'_>, form: Form, out: &mut Vec<u8>) -> Outcome {
    let query = Query::parse(call, 1, form, false)?;
    super::read(call, |set| {
        let Some(set) = set else { return reply::array(out, 0) };
        let ranks = query.ranks(&set);
        let nests = query.with_scores && call.turn.protocol == Protocol::Resp3;
        reply::array(out, if query.with_scores && !nests { 2 } else { 1 } * ranks.len());
        set.visit_ranks(ranks, query.reverse, |member, score| {
            if nests {
                reply::array(out, 2);
            }
            reply::bulk(out, member);
            if query.with_scores {
                write_score(call, score, out);
            }
            ControlFlow::Continue(())
        });
    })
}

/// ZRANGESTORE.
pub(in super::super) fn zrangestore(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let query = Query::parse(call, 2, Form { by: None, reverse: None }, true)?;
    let (target, source) = (call.arg(1), call.arg(2));
    let mut locked = call.store.lock_keys([target, source].into_iter());
    let mut found = Vec::new();
    let mut entry = locked.entry(call.turn, source);
    if let Some(set) = entry.read_as::<Sorted<'_>>()? {
        set.visit_ranks(query.ranks(&set), query.reverse, |member, score| {
            found.push((member.to_vec(), score));
            ControlFlow::Continue(())
        });
    }
    let len = stored_len(found.iter().map(|(member, _)| &member[..]));
    let _room = call.reserve_for_made(&mut locked, target, len)?;
    locked.entry(call.turn, target).replace(Kind::Sorted, "zrangestore", |editor| {
        if matches!(query.wanted, Wanted::Ranks(..)) {
            sorted::prepare(editor, found.len(), 0);
        }
        found.iter().for_each(|(member, score)| sorted::put(editor, member, *score, None));
    });
    reply::integer(out, found.len() as i64);
    Ok(())
}

/// ZCOUNT and ZLEXCOUNT.
pub(in super::super) fn count(call: &Call<'_>, by: By, out: &mut Vec<u8>) -> Outcome {
    let wanted = Wanted::parse(by, call.arg(2), call.arg(3))?;
    let count = super::read(call, |set| set.map_or(0, |set| wanted.ranks(&set, false).len()))?;
    reply::integer(out, count as i64);
    Ok(())
}

/// ZREMRANGEBYRANK, ZREMRANGEBYSCORE and ZREMRANGEBYLEX.
pub(in super::super) fn remove(call: &Call<'_>, by: By, out: &mut Vec<u8>) -> Outcome {
    let wanted = Wanted::parse(by, call.arg(2), call.arg(3))?;
    let event = match by {
        By::Rank => "zremrangebyrank",
        By::Score => "zremrangebyscore",
        By::Bytes => "zremrangebylex",
    };
    let removed = call.with_key(|mut entry| {
        entry.edit(Kind::Sorted, event, |editor| {
            let ranks = editor.view::<Sorted<'_>>().map(|set| wanted.ranks(&set, false));
            let ranks = ranks.unwrap_or_default();
            sorted::remove_ranks(editor, ranks.clone());
            ranks.len()
        })
    })?;
    reply::integer(out, removed as i64);
    Ok(())
}
