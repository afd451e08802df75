//! Sets.

use super::call::{Call, Fault, Outcome, SYNTAX};
use super::list::parse_count;
use super::sample::{Walk, Wanted, sample, sample_len, walk_reply};
use super::scan;
use crate::algorithms::number::parse_integer;
use crate::collections::set::{Member, Set};
use crate::edits::set;
use crate::items::Kind;
use keyway_resp::reply;

/// Bytes that a member of a large set takes beside its text, or a little less.
const MEMBER_LEN: usize = 16;

fn read<R>(call: &Call<'_>, work: impl FnOnce(Option<Set<'_>>) -> R) -> Result<R, Fault> {
    call.with_key(|mut entry| Ok(work(entry.read_as()?)))
}

fn write_member(member: Member<'_>, out: &mut Vec<u8>) {
    member.with_text(|text| reply::bulk(out, text));
}

/// SADD.
pub(super) fn sadd(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let added = call.with_key(|mut entry| {
        entry.edit(Kind::Set, "sadd", |editor| {
            call.args_from(2, 1).filter(|member| set::add(editor, member)).count()
        })
    })?;
    reply::integer(out, added as i64);
    Ok(())
}

/// SREM.
pub(super) fn srem(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let removed = call.with_key(|mut entry| {
        entry.edit(Kind::Set, "srem", |editor| {
            call.args_from(2, 1).filter(|member| set::remove(editor, member)).count()
        })
    })?;
    reply::integer(out, removed as i64);
    Ok(())
}

/// SISMEMBER.
pub(super) fn sismember(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let there = read(call, |set| set.is_some_and(|set| set.contains(call.arg(2))))?;
    reply::integer(out, i64::from(there));
    Ok(())
}

/// SMISMEMBER.
pub(super) fn smismember(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    read(call, |set| {
        reply::array(out, call.args.len() - 2);
        for member in call.args_from(2, 1) {
            reply::integer(out, i64::from(set.is_some_and(|set| set.contains(member))));
        }
    })
}

/// SMEMBERS.
pub(super) fn smembers(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    read(call, |set| {
        call.turn.protocol.set(out, set.map_or(0, |set| set.len()));
        if let Some(set) = set {
            set.visit(|member| write_member(member, out));
        }
    })
}

/// SCARD.
pub(super) fn scard(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let len = read(call, |set| set.map_or(0, |set| set.len()))?;
    reply::integer(out, len as i64);
    Ok(())
}

/// SMOVE.
pub(super) fn smove(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let (source, target, member) = (call.arg(1), call.arg(2), call.arg(3));
    let mut locked = call.store.lock_keys([source, target].into_iter());
    let mut entry = locked.entry(call.turn, source);
    let Some(found) = entry.look_at::<Set<'_>>()? else {
        reply::integer(out, 0);
        return Ok(());
    };
    let there = found.contains(member);
    locked.entry(call.turn, target).look_at::<Set<'_>>()?;
    if there && source != target {
        let mut entry = locked.entry(call.turn, source);
        entry.edit(Kind::Set, "srem", |editor| set::remove(editor, member))?;
        let mut entry = locked.entry(call.turn, target);
        entry.edit(Kind::Set, "sadd", |editor| set::add(editor, member))?;
    }
    reply::integer(out, i64::from(there));
    Ok(())
}

/// SPOP.
pub(super) fn spop(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let random = || call.store.random();
    let count = match call.args.len() {
        2 => None,
        3 => Some(parse_count(call, 2)?),
        _ => return Err(SYNTAX),
    };
    call.with_key(|mut entry| {
        let len = entry.look_at::<Set<'_>>()?.map_or(0, |set| set.len());
        let taken = count.unwrap_or(1).min(len);
        match count {
            Some(_) => call.turn.protocol.set(out, taken),
            None if taken == 0 => call.turn.protocol.null(out),
            None => {}
        }
        if taken == 0 {
            return Ok(());
        }
        entry.edit(Kind::Set, "spop", |editor| {
            let mut chosen: Vec<Vec<u8>> = Vec::new();
            if let Some(set) = editor.view::<Set<'_>>() {
                let visit = |each: &mut dyn FnMut(_)| set.visit(each);
                let mut names = Vec::new();
                sample(
                    call,
                    Wanted::Distinct(taken),
                    len,
                    || set.random(random),
                    visit,
                    &mut names,
                    |member, _| {
                        chosen.push(member.with_text(<[u8]>::to_vec));
                    },
                )?;
            }
            for member in &chosen {
                reply::bulk(out, member);
                set::remove(editor, member);
            }
            Ok(())
        })?
    })
}

/// SRANDMEMBER.
pub(super) fn srandmember(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let random = || call.store.random();
    if call.args.len() == 2 {
        return read(call, |set| match set.and_then(|set| set.random(random)) {
            Some(member) => write_member(member, out),
            None => call.turn.protocol.null(out),
        });
    }
    if call.args.len() > 3 {
        return Err(SYNTAX);
    }
    let wanted = Wanted::parse(call, 2, i64::MAX)?;
    read(call, |set| {
        let Some(set) = set else {
            reply::array(out, 0);
            return Ok(());
        };
        reply::array(out, sample_len(wanted, set.len()));
        let visit = |each: &mut dyn FnMut(_)| set.visit(each);
        let pick = || set.random(random);
        sample(call, wanted, set.len(), pick, visit, out, write_member)
    })?
}

/// SSCAN.
pub(super) fn sscan(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let cursor = scan::parse_cursor(call.arg(2))?;
    read(call, |set| {
        let Some(set) = set else {
            walk_reply(out, 0, 0, b"");
            return Ok(());
        };
        let walk = Walk::parse(call)?;
        let (mut strings, mut count) = (Vec::new(), 0);
        let next = set.scan(cursor, walk.count, |member| {
            if member.with_text(|text| walk.wants(text)) {
                write_member(member, &mut strings);
                count += 1;
            }
        });
        walk_reply(out, next, count, &strings);
        Ok(())
    })?
}

/// The operation that combines sets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Union,
    Intersection,
    Difference,
}

impl Operation {
    fn stored(self) -> &'static str {
        match self {
            Self::Union => "sunionstore",
            Self::Intersection => "sinterstore",
            Self::Difference => "sdiffstore",
        }
    }
}

/// The members that the sets of a command come to, each once, and whether
/// Redis would have stored all of them as integers on its way.
struct Combined<'a> {
    members: Vec<Member<'a>>,
    keeps_integers: bool,
}

/// Combines sets, in the order of their keys.
fn combine<'a>(operation: Operation, sets: &[Option<Set<'a>>]) -> Combined<'a> {
    let mut members: Vec<Member<'a>> = Vec::new();
    let mut keeps_integers = true;
    match operation {
        Operation::Union => {
            for set in sets.iter().flatten() {
                set.visit(|member| members.push(member.canonical()));
            }
            members.sort_unstable();
            members.dedup();
        }
        Operation::Intersection => intersect(sets, &mut |member| {
            members.push(member);
            true
        }),
        Operation::Difference => {
            let Some((Some(first), others)) = sets.split_first() else {
                return Combined { members, keeps_integers };
            };
            first.visit(|member| {
                if !others.iter().flatten().any(|other| other.contains_member(member)) {
                    members.push(member);
                }
            });
            keeps_integers = first.is_integers() || !subtracts(sets);
        }
    }
    Combined { members, keeps_integers }
}

/// Returns whether Redis computes a difference by taking members off a copy of the
/// first set, which shows in how the result is stored.
fn subtracts(sets: &[Option<Set<'_>>]) -> bool {
    let lens = || sets.iter().flatten().map(Set::len);
    let first = lens().next().unwrap_or(0);
    first * lens().count() / 2 > lens().sum()
}

/// Visits the members that are in all sets, until `visit` says no.
fn intersect<'a>(sets: &[Option<Set<'a>>], visit: &mut dyn FnMut(Member<'a>) -> bool) {
    let Some(sets) = sets.iter().copied().collect::<Option<Vec<Set<'a>>>>() else { return };
    let smallest = sets.iter().enumerate().min_by_key(|(_, set)| set.len());
    let Some((smallest, set)) = smallest else { return };
    set.visit_while(|member| {
        let others = sets.iter().enumerate().filter(|(index, _)| *index != smallest);
        let in_all = others.map(|(_, other)| other).all(|other| other.contains_member(member));
        !in_all || visit(member)
    });
}

/// SUNION, SINTER and SDIFF.
pub(super) fn combination(call: &Call<'_>, operation: Operation, out: &mut Vec<u8>) -> Outcome {
    let keys = call.args_from(1, 1);
    let mut locked = call.store.lock_keys(keys.clone());
    for key in keys.clone() {
        locked.entry(call.turn, key).read_as::<Set<'_>>()?;
    }
    let sets: Result<Vec<_>, _> =
        keys.map(|key| locked.look_at::<Set<'_>>(call.turn, key)).collect();
    let combined = combine(operation, &sets?);
    call.turn.protocol.set(out, combined.members.len());
    combined.members.into_iter().for_each(|member| write_member(member, out));
    Ok(())
}

/// SUNIONSTORE, SINTERSTORE and SDIFFSTORE.
pub(super) fn store(call: &Call<'_>, operation: Operation, out: &mut Vec<u8>) -> Outcome {
    let keys = call.args_from(2, 1);
    let mut locked = call.store.lock_keys(call.args_from(1, 1));
    for key in keys.clone() {
        locked.entry(call.turn, key).read_as::<Set<'_>>()?;
    }
    let sets: Result<Vec<_>, _> =
        keys.map(|key| locked.look_at::<Set<'_>>(call.turn, key)).collect();
    let Combined { members, keeps_integers } = combine(operation, &sets?);
    // The target may be one of the sets.
    let members: Vec<Vec<u8>> =
        members.into_iter().map(|member| member.with_text(<[u8]>::to_vec)).collect();
    let len = members.iter().map(|member| member.len() + MEMBER_LEN).sum();
    let _room = call.reserve_for_made(&mut locked, call.arg(1), len)?;
    locked.entry(call.turn, call.arg(1)).replace(Kind::Set, operation.stored(), |editor| {
        members.iter().for_each(|member| _ = set::add(editor, member));
        if !keeps_integers {
            set::widen(editor);
        }
    });
    reply::integer(out, members.len() as i64);
    Ok(())
}

/// The LIMIT of SINTERCARD and ZINTERCARD, from `index` on.
pub(super) fn parse_limit(call: &Call<'_>, mut index: usize) -> Result<usize, Fault> {
    let mut limit = 0;
    while index < call.args.len() {
        if !call.is(index, "limit") || index + 1 == call.args.len() {
            return Err(SYNTAX);
        }
        let number = parse_integer(call.arg(index + 1)).and_then(|number| number.try_into().ok());
        limit = number.ok_or(Fault::Text("ERR LIMIT can't be negative"))?;
        index += 2;
    }
    Ok(if limit == 0 { usize::MAX } else { limit })
}

/// SINTERCARD.
pub(super) fn sintercard(call: &Call<'_>, out: &mut Vec<u8>) -> Outcome {
    let count = parse_integer(call.arg(1)).filter(|count| *count > 0);
    let count = count.ok_or(Fault::Text("ERR numkeys should be greater than 0"))?;
    let count = usize::try_from(count)
        .ok()
        .filter(|count| *count <= call.args.len() - 2)
        .ok_or(Fault::Text("ERR Number of keys can't be greater than number of args"))?;
    let limit = parse_limit(call, 2 + count)?;
    let keys = call.args_from(2, 1).take(count);
    let mut locked = call.store.lock_keys(keys.clone());
    for key in keys.clone() {
        locked.entry(call.turn, key).read_as::<Set<'_>>()?;
    }
    let sets: Result<Vec<_>, _> =
        keys.map(|key| locked.look_at::<Set<'_>>(call.turn, key)).collect();
    let mut found = 0;
    intersect(&sets?, &mut |_| {
        found += 1;
        found < limit
    });
    reply::integer(out, found as i64);
    Ok(())
}
