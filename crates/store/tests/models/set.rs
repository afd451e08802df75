use super::{Model, Words, any_text, array, bulk, many, words};
use crate::common::Reply;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default)]
pub(crate) struct Set(BTreeSet<Vec<u8>>);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Add(Vec<Vec<u8>>),
    AddMany(u16, u16),
    /// Integers around the number up to which they are kept as such.
    AddIntegers(i64, u16),
    Remove(Vec<Vec<u8>>),
    RemoveMany(u16, u16),
    Has(Vec<u8>),
    Len,
}

impl Model for Set {
    type Op = Op;
    const UNORDERED: Option<usize> = Some(1);

    fn any_op() -> BoxedStrategy<Op> {
        let some = || proptest::collection::vec(any_text(), 1..5);
        let start = prop_oneof![-10..10i64, -40_000..40_000i64, any::<i32>().prop_map(i64::from)];
        prop_oneof![
            6 => some().prop_map(Op::Add),
            2 => (0..200u16, 1..200u16).prop_map(|(from, count)| Op::AddMany(from, count)),
            3 => (start, prop_oneof![4 => 1..10u16, 1 => 400..600u16])
                .prop_map(|(from, count)| Op::AddIntegers(from, count)),
            5 => some().prop_map(Op::Remove),
            2 => (0..200u16, 1..200u16).prop_map(|(from, count)| Op::RemoveMany(from, count)),
            3 => any_text().prop_map(Op::Has),
            1 => Just(Op::Len),
        ]
        .boxed()
    }

    fn apply(&mut self, op: &Op) -> (Words, Reply) {
        let members: Vec<Vec<u8>> = match op {
            Op::Add(members) | Op::Remove(members) => members.clone(),
            Op::AddMany(from, count) | Op::RemoveMany(from, count) => many(*from, *count).collect(),
            Op::AddIntegers(from, count) => {
                (*from..from + i64::from(*count)).map(|at| at.to_string().into_bytes()).collect()
            }
            Op::Has(member) => vec![member.clone()],
            Op::Len => return (words("scard"), Reply::Integer(self.0.len() as i64)),
        };
        let (name, count) = match op {
            Op::Has(member) => ("sismember", usize::from(self.0.contains(member))),
            Op::Remove(_) | Op::RemoveMany(..) => {
                ("srem", members.iter().filter(|member| self.0.remove(*member)).count())
            }
            _ => ("sadd", members.iter().filter(|member| self.0.insert(member.to_vec())).count()),
        };
        let mut line = words(name);
        line.extend(members);
        (line, Reply::Integer(count as i64))
    }

    fn is_gone(&self) -> bool {
        self.0.is_empty()
    }

    fn whole(&self) -> (Words, Reply) {
        (words("smembers"), array(self.0.iter().map(bulk)))
    }
}
