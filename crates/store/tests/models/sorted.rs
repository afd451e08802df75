use super::{Model, Words, any_text, array, bulk, many, words};
use crate::common::Reply;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Scores are whole numbers here: how others are written is another matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorted(BTreeMap<Vec<u8>, i64>);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Add(Vec<u8>, i64),
    AddMany(u16, u16, i64),
    Increment(Vec<u8>, i64),
    Remove(Vec<u8>),
    RemoveRanks(i64, i64),
    RemoveScores(i64, i64),
    Score(Vec<u8>),
    Rank(Vec<u8>, bool),
    Count(i64, i64),
    Between(i64, i64),
    PopMin(u16),
    PopMax(u16),
    Ranks(i64, i64),
    Len,
}

impl Sorted {
    /// The members in order.
    fn order(&self) -> Vec<(i64, Vec<u8>)> {
        let mut all: Vec<_> =
            self.0.iter().map(|(member, score)| (*score, member.clone())).collect();
        all.sort();
        all
    }

    fn range(&self, from: i64, to: i64) -> std::ops::Range<usize> {
        let len = self.0.len() as i64;
        let at = |index: i64| if index < 0 { index + len } else { index };
        let (from, to) = (at(from).max(0), at(to).min(len - 1));
        if from > to { 0..0 } else { from as usize..to as usize + 1 }
    }

    fn remove(&mut self, gone: &[(i64, Vec<u8>)]) {
        gone.iter().for_each(|(_, member)| _ = self.0.remove(member));
    }
}

fn told(members: &[(i64, Vec<u8>)]) -> Reply {
    array(members.iter().flat_map(|(score, member)| [bulk(member), bulk(score.to_string())]))
}

impl Model for Sorted {
    type Op = Op;
    const UNORDERED: Option<usize> = None;

    fn any_op() -> BoxedStrategy<Op> {
        let score = || prop_oneof![4 => -5..6i64, 1 => -1000..1000i64];
        let index = || prop_oneof![3 => -5..5i64, 1 => -200..200i64];
        prop_oneof![
            8 => (any_text(), score()).prop_map(|(member, score)| Op::Add(member, score)),
            2 => (0..200u16, 1..200u16, score()).prop_map(|(from, len, by)| Op::AddMany(from, len, by)),
            3 => (any_text(), score()).prop_map(|(member, by)| Op::Increment(member, by)),
            4 => any_text().prop_map(Op::Remove),
            1 => (index(), index()).prop_map(|(from, to)| Op::RemoveRanks(from, to)),
            1 => (score(), score()).prop_map(|(from, to)| Op::RemoveScores(from, to)),
            2 => any_text().prop_map(Op::Score),
            3 => (any_text(), any::<bool>()).prop_map(|(member, last)| Op::Rank(member, last)),
            2 => (score(), score()).prop_map(|(from, to)| Op::Count(from, to)),
            2 => (score(), score()).prop_map(|(from, to)| Op::Between(from, to)),
            1 => (1..20u16).prop_map(Op::PopMin),
            1 => (1..20u16).prop_map(Op::PopMax),
            2 => (index(), index()).prop_map(|(from, to)| Op::Ranks(from, to)),
            1 => Just(Op::Len),
        ]
        .boxed()
    }

    fn apply(&mut self, op: &Op) -> (Words, Reply) {
        let line = |name: &str, rest: &[&[u8]]| {
            let mut line = words(name);
            line.extend(rest.iter().map(|word| word.to_vec()));
            line
        };
        let count = |count: usize| Reply::Integer(count as i64);
        let order = self.order();
        let within = |from: i64, to: i64| -> Vec<(i64, Vec<u8>)> {
            order.iter().filter(|(score, _)| (from..=to).contains(score)).cloned().collect()
        };
        match op {
            Op::Add(member, score) => {
                let is_new = self.0.insert(member.clone(), *score).is_none();
                (line("zadd", &[score.to_string().as_bytes(), member]), count(is_new.into()))
            }
            Op::AddMany(from, len, by) => {
                let mut line = words("zadd");
                let mut added = 0;
                for (member, nth) in many(*from, *len).zip(0..) {
                    let score = by * nth % 37;
                    line.extend([score.to_string().into_bytes(), member.clone()]);
                    added += usize::from(self.0.insert(member, score).is_none());
                }
                (line, count(added))
            }
            Op::Increment(member, by) => {
                let score = self.0.entry(member.clone()).or_default();
                *score += by;
                let reply = bulk(score.to_string());
                (line("zincrby", &[by.to_string().as_bytes(), member]), reply)
            }
            Op::Remove(member) => {
                let was_there = self.0.remove(member).is_some();
                (line("zrem", &[member]), count(was_there.into()))
            }
            Op::RemoveRanks(from, to) => {
                let gone = &order[self.range(*from, *to)];
                self.remove(gone);
                (words(&format!("zremrangebyrank {from} {to}")), count(gone.len()))
            }
            Op::RemoveScores(from, to) => {
                let gone = within(*from, *to);
                self.remove(&gone);
                (words(&format!("zremrangebyscore {from} {to}")), count(gone.len()))
            }
            Op::Score(member) => {
                let score = self.0.get(member).map(|score| score.to_string().into_bytes());
                (line("zscore", &[member]), Reply::Bulk(score))
            }
            Op::Rank(member, from_last) => {
                let rank = order.iter().position(|(_, one)| one == member);
                let rank = rank.map(|at| if *from_last { order.len() - 1 - at } else { at });
                let name = if *from_last { "zrevrank" } else { "zrank" };
                (line(name, &[member]), rank.map_or(Reply::Bulk(None), count))
            }
            Op::Count(from, to) => {
                (words(&format!("zcount {from} {to}")), count(within(*from, *to).len()))
            }
            Op::Between(from, to) => {
                let line = words(&format!("zrangebyscore {from} {to} withscores"));
                (line, told(&within(*from, *to)))
            }
            Op::PopMin(len) => {
                let gone = &order[..order.len().min((*len).into())];
                self.remove(gone);
                (words(&format!("zpopmin {len}")), told(gone))
            }
            Op::PopMax(len) => {
                let mut gone = order[order.len().saturating_sub((*len).into())..].to_vec();
                gone.reverse();
                self.remove(&gone);
                (words(&format!("zpopmax {len}")), told(&gone))
            }
            Op::Ranks(from, to) => {
                let line = words(&format!("zrange {from} {to} withscores"));
                (line, told(&order[self.range(*from, *to)]))
            }
            Op::Len => (words("zcard"), count(order.len())),
        }
    }

    fn is_gone(&self) -> bool {
        self.0.is_empty()
    }

    fn whole(&self) -> (Words, Reply) {
        (words("zrange 0 -1 withscores"), told(&self.order()))
    }
}
