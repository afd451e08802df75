use super::{Model, Words, any_text, array, bulk, many, words};
use crate::common::Reply;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct Hash(BTreeMap<Vec<u8>, Vec<u8>>);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Set(Vec<u8>, Vec<u8>),
    SetMany(u16, u16),
    SetNew(Vec<u8>, Vec<u8>),
    Get(Vec<u8>),
    Has(Vec<u8>),
    Len,
    Delete(Vec<u8>),
    DeleteMany(u16, u16),
    Increment(Vec<u8>, i32),
    ValueLen(Vec<u8>),
    All,
    Fields,
}

impl Model for Hash {
    type Op = Op;
    const UNORDERED: Option<usize> = Some(2);

    fn any_op() -> BoxedStrategy<Op> {
        let pair = || (any_text(), any_text());
        let range = || (0..200u16, 1..200u16);
        prop_oneof![
            8 => pair().prop_map(|(field, value)| Op::Set(field, value)),
            2 => range().prop_map(|(from, count)| Op::SetMany(from, count)),
            2 => pair().prop_map(|(field, value)| Op::SetNew(field, value)),
            4 => any_text().prop_map(Op::Get),
            2 => any_text().prop_map(Op::Has),
            1 => Just(Op::Len),
            6 => any_text().prop_map(Op::Delete),
            2 => range().prop_map(|(from, count)| Op::DeleteMany(from, count)),
            2 => (any_text(), any::<i32>()).prop_map(|(field, by)| Op::Increment(field, by)),
            1 => any_text().prop_map(Op::ValueLen),
            1 => Just(Op::All),
            1 => Just(Op::Fields),
        ]
        .boxed()
    }

    fn apply(&mut self, op: &Op) -> (Words, Reply) {
        let map = &mut self.0;
        let line = |name: &str, rest: &[&[u8]]| {
            let mut line = words(name);
            line.extend(rest.iter().map(|word| word.to_vec()));
            line
        };
        match op {
            Op::Set(field, value) => {
                let is_new = map.insert(field.clone(), value.clone()).is_none();
                (line("hset", &[field, value]), Reply::Integer(is_new.into()))
            }
            Op::SetMany(from, count) => {
                let mut line = words("hset");
                let mut added = 0;
                for field in many(*from, *count) {
                    added += i64::from(map.insert(field.clone(), field.clone()).is_none());
                    line.extend([field.clone(), field]);
                }
                (line, Reply::Integer(added))
            }
            Op::SetNew(field, value) => {
                let is_new = !map.contains_key(field);
                map.entry(field.clone()).or_insert_with(|| value.clone());
                (line("hsetnx", &[field, value]), Reply::Integer(is_new.into()))
            }
            Op::Get(field) => (line("hget", &[field]), Reply::Bulk(map.get(field).cloned())),
            Op::Has(field) => {
                (line("hexists", &[field]), Reply::Integer(map.contains_key(field).into()))
            }
            Op::Len => (words("hlen"), Reply::Integer(map.len() as i64)),
            Op::Delete(field) => {
                let was_there = map.remove(field).is_some();
                (line("hdel", &[field]), Reply::Integer(was_there.into()))
            }
            Op::DeleteMany(from, count) => {
                let mut line = words("hdel");
                line.extend(many(*from, *count));
                let removed = many(*from, *count).filter(|field| map.remove(field).is_some());
                (line, Reply::Integer(removed.count() as i64))
            }
            Op::Increment(field, by) => {
                let line = line("hincrby", &[field, by.to_string().as_bytes()]);
                let plain = |text: &Vec<u8>| {
                    let value: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
                    (value.to_string().as_bytes() == &text[..]).then_some(value)
                };
                let reply = match map.get(field).map_or(Some(0), plain) {
                    None => Reply::Error("ERR hash value is not an integer".to_owned()),
                    Some(value) => match value.checked_add((*by).into()) {
                        None => {
                            Reply::Error("ERR increment or decrement would overflow".to_owned())
                        }
                        Some(sum) => {
                            map.insert(field.clone(), sum.to_string().into_bytes());
                            Reply::Integer(sum)
                        }
                    },
                };
                (line, reply)
            }
            Op::ValueLen(field) => {
                let len = map.get(field).map_or(0, Vec::len);
                (line("hstrlen", &[field]), Reply::Integer(len as i64))
            }
            Op::All => self.whole(),
            Op::Fields => {
                // In the order of the values, which come in the same one.
                let mut names: Vec<Vec<u8>> = map.keys().cloned().collect();
                names.truncate(1);
                let reply = names.first().map(|name| Reply::Bulk(map.get(name).cloned()));
                let name = names.pop().unwrap_or_default();
                (line("hmget", &[&name]), array([reply.unwrap_or(Reply::Bulk(None))]))
            }
        }
    }

    fn is_gone(&self) -> bool {
        self.0.is_empty()
    }

    fn whole(&self) -> (Words, Reply) {
        let pairs = self.0.iter().flat_map(|(field, value)| [bulk(field), bulk(value)]);
        (words("hgetall"), array(pairs))
    }
}
