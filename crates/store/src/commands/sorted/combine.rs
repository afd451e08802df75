//! ZUNION, ZINTER, ZDIFF and their forms.

use super::super::call::{Call, Fault, Outcome, SYNTAX};
use super::super::set::{Operation, parse_limit};
use super::{stored_len, write_score};
use crate::collections::set::Set;
use crate::collections::sorted::Sorted;
use crate::collections::{WrongType, score};
use crate::edits::sorted;
use crate::items::Kind;
use crate::store::Locked;
use keyway_resp::{Protocol, reply};
use std::borrow::Cow;
use std::ops::ControlFlow;

/// A value that is combined: a sorted set, or a set, whose members all score 1.
#[derive(Clone, Copy)]
enum Source<'a> {
    Missing,
    Set(Set<'a>),
    Sorted(Sorted<'a>),
}

impl<'a> Source<'a> {
    fn find(locked: &'a Locked<'_>, call: &Call<'_>, key: &[u8]) -> Result<Self, WrongType> {
        match locked.look_at::<Sorted<'a>>(call.turn, key) {
            Ok(sorted) => Ok(sorted.map_or(Self::Missing, Self::Sorted)),
            Err(WrongType) => {
                let set = locked.look_at::<Set<'a>>(call.turn, key)?;
                Ok(set.map_or(Self::Missing, Self::Set))
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Missing => 0,
            Self::Set(set) => set.len(),
            Self::Sorted(set) => set.len(),
        }
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Missing => None,
            Self::Set(set) => set.contains(member).then_some(1.0),
            Self::Sorted(set) => set.score(member),
        }
    }

    /// Visits members with their scores until `visit` breaks off.
    fn visit(&self, mut visit: impl FnMut(Cow<'a, [u8]>, f64) -> ControlFlow<()>) {
        match self {
            Self::Missing => {}
            Self::Set(set) => {
                set.visit_while(|member| visit(member.into_text(), 1.0).is_continue())
            }
            Self::Sorted(set) => set.visit_ranks(0..set.len(), false, |member, score| {
                visit(Cow::Borrowed(member), score)
            }),
        }
    }
}

/// The rule that makes one score of those that a member has in several sets.
#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Sum => number(one + other),
            Self::Min => {
                if other < one {
                    other
                } else {
                    one
                }
            }
            Self::Max => {
                if other > one {
                    other
                } else {
                    one
                }
            }
        }
    }
}

/// 0 in the place of what is no number: infinity less infinity.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// Where the arguments of a command are, and what it answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The members.
    Reply,
    /// Their number.
    Count,
    /// The same, having stored them under argument 1.
    Store,
}

struct Query {
    operation: Operation,
    form: Form,
    /// Argument with the number of keys.
    count_at: usize,
}

/// The options behind the keys.
struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    limit: usize,
}

impl Query {
    fn key_count(&self, call: &Call<'_>, name: &str) -> Result<usize, Fault> {
        let count = call.integer(self.count_at)?;
        if count < 1 {
            return Err(Fault::NoInputKey(name.to_owned()));
        }
        let left = call.args.len() - self.count_at - 1;
        usize::try_from(count).ok().filter(|count| *count <= left).ok_or(SYNTAX)
    }

    /// Reads what follows `count` keys.
    fn options(&self, call: &Call<'_>, count: usize) -> Result<Options, Fault> {
        let mut options = Options {
            weights: vec![1.0; count],
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: usize::MAX,
        };
        let mut index = self.count_at + 1 + count;
        if self.form == Form::Count {
            options.limit = parse_limit(call, index)?;
            return Ok(options);
        }
        let weighs = self.operation != Operation::Difference;
        while index < call.args.len() {
            let left = call.args.len() - index;
            if weighs && left > count && call.is(index, "weights") {
                for (weight, text) in options.weights.iter_mut().zip(call.args_from(index + 1, 1)) {
                    *weight =
                        score::parse(text).ok_or(Fault::Text("ERR weight value is not a float"))?;
                }
                index += 1 + count;
            } else if weighs && left >= 2 && call.is(index, "aggregate") {
                options.aggregate = match () {
                    () if call.is(index + 1, "sum") => Aggregate::Sum,
                    () if call.is(index + 1, "min") => Aggregate::Min,
                    () if call.is(index + 1, "max") => Aggregate::Max,
                    () => return Err(SYNTAX),
                };
                index += 2;
            } else if self.form == Form::Reply && call.is(index, "withscores") {
                options.with_scores = true;
                index += 1;
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }
}

type Scored<'a> = (Cow<'a, [u8]>, f64);

fn union<'a>(sources: &[(Source<'a>, f64)], aggregate: Aggregate) -> Vec<Scored<'a>> {
    let mut all: Vec<Scored<'a>> = Vec::new();
    for (source, weight) in sources {
        source.visit(|member, score| {
            all.push((member, number(score * weight)));
            ControlFlow::Continue(())
        });
    }
    // Stable: the scores of a member stay in the order of their sets.
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all.dedup_by(|(member, score), (kept, sum)| {
        let is_same = member == kept;
        if is_same {
            *sum = aggregate.of(*sum, *score);
        }
        is_same
    });
    all
}

fn intersection<'a>(
    sources: &[(Source<'a>, f64)],
    aggregate: Aggregate,
    limit: usize,
) -> Vec<Scored<'a>> {
    let mut found = Vec::new();
    let Some(((first, weight), others)) = sources.split_first() else { return found };
    first.visit(|member, score| {
        let first = Some(number(score * weight));
        let score = others.iter().fold(first, |sum, (other, weight)| {
            Some(aggregate.of(sum?, number(other.score(&member)? * weight)))
        });
        if let Some(score) = score {
            found.push((member, score));
        }
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    found
}

fn difference<'a>(sources: &[(Source<'a>, f64)]) -> Vec<Scored<'a>> {
    let mut found = Vec::new();
    let Some(((first, _), others)) = sources.split_first() else { return found };
    first.visit(|member, score| {
        if !others.iter().any(|(other, _)| other.score(&member).is_some()) {
            found.push((member, score));
        }
        ControlFlow::Continue(())
    });
    found
}

/// Any of them; `name` is the command's.
fn combine(call: &Call<'_>, name: &str, query: &Query, out: &mut Vec<u8>) -> Outcome {
    let count = query.key_count(call, name)?;
    let keys = call.args_from(query.count_at + 1, 1).take(count);
    let target = (query.form == Form::Store).then(|| call.arg(1));
    let mut locked = call.store.lock_keys(keys.clone().chain(target));
    for key in keys.clone() {
        locked.entry(call.turn, key).read();
    }
    let sources: Result<Vec<_>, WrongType> =
        keys.map(|key| Source::find(&locked, call, key)).collect();
    let sources = sources?;
    let options = query.options(call, count)?;
    let mut sources: Vec<_> = sources.into_iter().zip(options.weights).collect();
    if query.operation != Operation::Difference {
        sources.sort_by_key(|(source, _)| source.len());
    }
    let mut found = match query.operation {
        Operation::Union => union(&sources, options.aggregate),
        Operation::Intersection => intersection(&sources, options.aggregate, options.limit),
        Operation::Difference => difference(&sources),
    };
    if query.form == Form::Count {
        reply::integer(out, found.len() as i64);
        return Ok(());
    }
    found.sort_by(|(one, score), (other, other_score)| {
        score.partial_cmp(other_score).unwrap_or(std::cmp::Ordering::Equal).then(one.cmp(other))
    });
    let Some(target) = target else {
        write(call, &found, options.with_scores, out);
        return Ok(());
    };
    // The target may be one of the sets.
    let found: Vec<(Vec<u8>, f64)> =
        found.into_iter().map(|(member, score)| (member.into_owned(), score)).collect();
    let event = match query.operation {
        Operation::Union => "zunionstore",
        Operation::Intersection => "zinterstore",
        Operation::Difference => "zdiffstore",
    };
    let longest = found.iter().map(|(member, _)| member.len()).max().unwrap_or(0);
    let len = stored_len(found.iter().map(|(member, _)| &member[..]));
    let _room = call.reserve_for_made(&mut locked, target, len)?;
    locked.entry(call.turn, target).replace(Kind::Sorted, event, |editor| {
        sorted::prepare(editor, found.len(), longest);
        found.iter().for_each(|(member, score)| sorted::put(editor, member, *score, None));
    });
    reply::integer(out, found.len() as i64);
    Ok(())
}

fn write(call: &Call<'_>, found: &[Scored<'_>], with_scores: bool, out: &mut Vec<u8>) {
    let nests = with_scores && call.turn.protocol == Protocol::Resp3;
    reply::array(out, if with_scores && !nests { 2 } else { 1 } * found.len());
    for (member, score) in found {
        if nests {
            reply::array(out, 2);
        }
        reply::bulk(out, member);
        if with_scores {
            write_score(call, *score, out);
        }
    }
}

/// ZUNION, ZINTER and ZDIFF.
pub(in super::super) fn reply_with(
    call: &Call<'_>,
    name: &str,
    operation: Operation,
    out: &mut Vec<u8>,
) -> Outcome {
    combine(call, name, &Query { operation, form: Form::Reply, count_at: 1 }, out)
}

/// ZUNIONSTORE, ZINTERSTORE and ZDIFFSTORE.
pub(in super::super) fn store(
    call: &Call<'_>,
    name: &str,
    operation: Operation,
    out: &mut Vec<u8>,
) -> Outcome {
    combine(call, name, &Query { operation, form: Form::Store, count_at: 2 }, out)
}

/// ZINTERCARD.
pub(in super::super) fn zintercard(call: &Call<'_>, name: &str, out: &mut Vec<u8>) -> Outcome {
    let operation = Operation::Intersection;
    combine(call, name, &Query { operation, form: Form::Count, count_at: 1 }, out)
}
