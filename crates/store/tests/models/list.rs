use super::{Model, Words, any_text, array, bulk, many, words};
use crate::common::Reply;
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Debug, Default)]
pub(crate) struct List(VecDeque<Vec<u8>>);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Push { left: bool, text: Vec<u8> },
    PushMany { left: bool, from: u16, count: u16 },
    Pop { left: bool, count: u16 },
    At(i64),
    Set(i64, Vec<u8>),
    Insert { before: bool, pivot: Vec<u8>, text: Vec<u8> },
    Remove(i64, Vec<u8>),
    Trim(i64, i64),
    Range(i64, i64),
    Len,
}

impl List {
    /// The places that a range names.
    fn range(&self, from: i64, to: i64) -> std::ops::Range<usize> {
        let len = self.0.len() as i64;
        let at = |index: i64| if index < 0 { index + len } else { index };
        let (from, to) = (at(from).max(0), at(to).min(len - 1));
        if from > to { 0..0 } else { from as usize..to as usize + 1 }
    }

    fn at(&self, index: i64) -> Option<usize> {
        let at = if index < 0 { index + self.0.len() as i64 } else { index };
        usize::try_from(at).ok().filter(|at| *at < self.0.len())
    }
}

impl Model for List {
    type Op = Op;
    const UNORDERED: Option<usize> = None;

    fn any_op() -> BoxedStrategy<Op> {
        let index = || prop_oneof![3 => -5..5i64, 1 => -400..400i64];
        prop_oneof![
            8 => (any::<bool>(), any_text()).prop_map(|(left, text)| Op::Push { left, text }),
            3 => (any::<bool>(), 0..40u16, 1..400u16)
                .prop_map(|(left, from, count)| Op::PushMany { left, from, count }),
            4 => (any::<bool>(), prop_oneof![3 => 1..4u16, 1 => 1..300u16])
                .prop_map(|(left, count)| Op::Pop { left, count }),
            3 => index().prop_map(Op::At),
            3 => (index(), any_text()).prop_map(|(at, text)| Op::Set(at, text)),
            3 => (any::<bool>(), any_text(), any_text())
                .prop_map(|(before, pivot, text)| Op::Insert { before, pivot, text }),
            2 => (-3..4i64, any_text()).prop_map(|(count, text)| Op::Remove(count, text)),
            2 => (index(), index()).prop_map(|(from, to)| Op::Trim(from, to)),
            2 => (index(), index()).prop_map(|(from, to)| Op::Range(from, to)),
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
        match op {
            Op::Push { left, text } => {
                if *left {
                    self.0.push_front(text.clone())
                } else {
                    self.0.push_back(text.clone())
                }
                let name = if *left { "lpush" } else { "rpush" };
                (line(name, &[text]), Reply::Integer(self.0.len() as i64))
            }
            Op::PushMany { left, from, count } => {
                let mut line = words(if *left { "lpush" } else { "rpush" });
                for text in many(*from, *count) {
                    line.push(text.clone());
                    if *left { self.0.push_front(text) } else { self.0.push_back(text) }
                }
                (line, Reply::Integer(self.0.len() as i64))
            }
            Op::Pop { left, count } => {
                let line = words(&format!("{} {count}", if *left { "lpop" } else { "rpop" }));
                if self.0.is_empty() {
                    return (line, Reply::Array(None));
                }
                let count = usize::from(*count).min(self.0.len());
                let mut pop = || if *left { self.0.pop_front() } else { self.0.pop_back() };
                (line, array((0..count).filter_map(|_| pop()).map(bulk)))
            }
            Op::At(index) => {
                let found = self.at(*index).map(|at| self.0[at].clone());
                (words(&format!("lindex {index}")), Reply::Bulk(found))
            }
            Op::Set(index, text) => {
                let line = line("lset", &[index.to_string().as_bytes(), text]);
                let reply = match self.at(*index) {
                    _ if self.0.is_empty() => Reply::Error("ERR no such key".to_owned()),
                    None => Reply::Error("ERR index out of range".to_owned()),
                    Some(at) => {
                        self.0[at] = text.clone();
                        Reply::Simple("OK".to_owned())
                    }
                };
                (line, reply)
            }
            Op::Insert { before, pivot, text } => {
                let place = if *before { "before" } else { "after" };
                let line = line("linsert", &[place.as_bytes(), pivot, text]);
                let found = self.0.iter().position(|one| one == pivot);
                let reply = match found {
                    _ if self.0.is_empty() => 0,
                    None => -1,
                    Some(at) => {
                        self.0.insert(at + usize::from(!before), text.clone());
                        self.0.len() as i64
                    }
                };
                (line, Reply::Integer(reply))
            }
            Op::Remove(count, text) => {
                let limit = if *count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
                let places = self.0.iter().enumerate().filter(|(_, one)| *one == text);
                let mut places: Vec<usize> = places.map(|(at, _)| at).collect();
                if *count < 0 {
                    places.reverse();
                }
                places.truncate(limit);
                places.sort_unstable();
                places.iter().rev().for_each(|at| drop(self.0.remove(*at)));
                let line = line("lrem", &[count.to_string().as_bytes(), text]);
                (line, Reply::Integer(places.len() as i64))
            }
            Op::Trim(from, to) => {
                let range = self.range(*from, *to);
                self.0.truncate(range.end);
                self.0.drain(..range.start.min(self.0.len()));
                (words(&format!("ltrim {from} {to}")), Reply::Simple("OK".to_owned()))
            }
            Op::Range(from, to) => {
                let elements: Vec<Reply> = self.0.range(self.range(*from, *to)).map(bulk).collect();
                (words(&format!("lrange {from} {to}")), array(elements))
            }
            Op::Len => (words("llen"), Reply::Integer(self.0.len() as i64)),
        }
    }

    fn is_gone(&self) -> bool {
        self.0.is_empty()
    }

    fn whole(&self) -> (Words, Reply) {
        (words("lrange 0 -1"), array(self.0.iter().map(bulk)))
    }
}
