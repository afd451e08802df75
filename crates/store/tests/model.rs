//! The store against a plain map, on virtual time.

mod common;

use common::{Reply, run_words};
use keyway_store::{Store, StoreConfig};
use proptest::prelude::*;
use std::collections::BTreeMap;

const START: u64 = 1_700_000_000_000;

#[derive(Clone, Debug)]
enum Op {
    Get(u8),
    Set { key: u8, value: Vec<u8>, millis: Option<u64> },
    Append(u8, Vec<u8>),
    SetRange(u8, usize, Vec<u8>),
    Delete(u8),
    Expire(u8, u64),
    Persist(u8),
    Remaining(u8),
    Rename(u8, u8),
    Increment(u8, i32),
    Wait(u64),
    Tick,
    Flush,
    Walk,
}

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![6 => 0..40usize, 2 => 40..300usize, 1 => 6000..20_000usize];
    prop_oneof![
        4 => (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        1 => any::<i32>().prop_map(|value| value.to_string().into_bytes()),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    let key = || 0..24u8;
    let millis = || prop_oneof![1..3000u64, 1..200_000u64];
    prop_oneof![
        6 => key().prop_map(Op::Get),
        8 => (key(), any_value(), proptest::option::of(millis()))
            .prop_map(|(key, value, millis)| Op::Set { key, value, millis }),
        3 => (key(), any_value()).prop_map(|(key, value)| Op::Append(key, value)),
        2 => (key(), 0..400usize, any_value()).prop_map(|(key, at, value)| Op::SetRange(key, at, value)),
        3 => key().prop_map(Op::Delete),
        3 => (key(), millis()).prop_map(|(key, millis)| Op::Expire(key, millis)),
        2 => key().prop_map(Op::Persist),
        2 => key().prop_map(Op::Remaining),
        2 => (key(), key()).prop_map(|(one, other)| Op::Rename(one, other)),
        2 => (key(), any::<i32>()).prop_map(|(key, by)| Op::Increment(key, by)),
        3 => millis().prop_map(Op::Wait),
        2 => Just(Op::Tick),
        1 => Just(Op::Flush),
        1 => Just(Op::Walk),
    ]
}

#[derive(Default)]
struct Model {
    now: u64,
    items: BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>,
}

impl Model {
    fn drop_expired(&mut self) {
        let now = self.now;
        self.items.retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > now));
    }

    /// Returns the words of the request, and the expected reply.
    fn apply(&mut self, op: &Op) -> (Vec<Vec<u8>>, Reply) {
        let name = |key: &u8| format!("key {key}").into_bytes();
        let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
        let now = self.now;
        match op {
            Op::Get(key) => {
                let value = self.items.get(&name(key)).map(|(value, _)| value.clone());
                (words(&[b"get", &name(key)]), Reply::Bulk(value))
            }
            Op::Set { key, value, millis } => {
                self.items.insert(name(key), (value.clone(), millis.map(|millis| now + millis)));
                let mut asked = words(&[b"set", &name(key), value]);
                if let Some(millis) = millis {
                    asked.extend(words(&[b"px", millis.to_string().as_bytes()]));
                }
                (asked, Reply::Simple("OK".into()))
            }
            Op::Append(key, tail) => {
                let (value, _) = self.items.entry(name(key)).or_default();
                value.extend_from_slice(tail);
                (words(&[b"append", &name(key), tail]), Reply::Integer(value.len() as i64))
            }
            Op::SetRange(key, at, patch) => {
                let asked = words(&[b"setrange", &name(key), at.to_string().as_bytes(), patch]);
                if patch.is_empty() {
                    let len = self.items.get(&name(key)).map_or(0, |(value, _)| value.len());
                    return (asked, Reply::Integer(len as i64));
                }
                let (value, _) = self.items.entry(name(key)).or_default();
                let end = at + patch.len();
                value.resize(value.len().max(end), 0);
                value[*at..end].copy_from_slice(patch);
                (asked, Reply::Integer(value.len() as i64))
            }
            Op::Delete(key) => {
                let gone = self.items.remove(&name(key)).is_some();
                (words(&[b"del", &name(key)]), Reply::Integer(i64::from(gone)))
            }
            Op::Expire(key, millis) => {
                let item = self.items.get_mut(&name(key));
                let found = item.map(|(_, expiry)| *expiry = Some(now + millis)).is_some();
                let asked = words(&[b"pexpire", &name(key), millis.to_string().as_bytes()]);
                (asked, Reply::Integer(i64::from(found)))
            }
            Op::Persist(key) => {
                let item = self.items.get_mut(&name(key));
                let had = item.is_some_and(|(_, expiry)| expiry.take().is_some());
                (words(&[b"persist", &name(key)]), Reply::Integer(i64::from(had)))
            }
            Op::Remaining(key) => {
                let left = match self.items.get(&name(key)) {
                    None => -2,
                    Some((_, None)) => -1,
                    Some((_, Some(expiry))) => (expiry - now) as i64,
                };
                (words(&[b"pttl", &name(key)]), Reply::Integer(left))
            }
            Op::Rename(one, other) => {
                let asked = words(&[b"rename", &name(one), &name(other)]);
                match self.items.remove(&name(one)) {
                    None => (asked, Reply::Error("ERR no such key".into())),
                    Some(item) => {
                        self.items.insert(name(other), item);
                        (asked, Reply::Simple("OK".into()))
                    }
                }
            }
            Op::Increment(key, by) => (
                words(&[b"incrby", &name(key), by.to_string().as_bytes()]),
                self.increment(name(key), i64::from(*by)),
            ),
            Op::Walk => {
                let keys = self.items.keys().map(|key| Reply::Bulk(Some(key.clone()))).collect();
                (words(&[b"keys", b"*"]), Reply::Array(Some(keys)))
            }
            Op::Flush => {
                self.items.clear();
                (words(&[b"flushdb"]), Reply::Simple("OK".into()))
            }
            Op::Wait(_) | Op::Tick => (words(&[b"exists", b"nothing"]), Reply::Integer(0)),
        }
    }

    fn increment(&mut self, key: Vec<u8>, by: i64) -> Reply {
        let not_an_integer = Reply::Error("ERR value is not an integer or out of range".into());
        let zero = || (b"0".to_vec(), None);
        let missing = !self.items.contains_key(&key);
        let (value, _) = self.items.entry(key.clone()).or_insert_with(zero);
        let text = String::from_utf8_lossy(value).into_owned();
        let parsed = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
        let Some(old) = parsed else {
            assert!(!missing);
            return not_an_integer;
        };
        match old.checked_add(by) {
            Some(sum) => {
                *value = sum.to_string().into_bytes();
                Reply::Integer(sum)
            }
            None => Reply::Error("ERR increment or decrement would overflow".into()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 300 }, ..ProptestConfig::default() })]
    #[test]
    fn the_store_agrees_with_a_map(
        ops in proptest::collection::vec(any_op(), 1..250),
        shards in prop_oneof![Just(1), Just(4)],
        seed: u64,
    ) {
        let store = Store::new(StoreConfig { shards: Some(shards), seed, ..StoreConfig::default() });
        let empty = store.stats().memory_used;
        let mut model = Model { now: START, ..Model::default() };
        for op in &ops {
            if let Op::Wait(millis) = op {
                model.now += millis;
            }
            model.drop_expired();
            if let Op::Tick = op {
                let _ = store.tick(common::clock_at(model.now));
            }
            let (words, expected) = model.apply(op);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let mut reply = run_words(&store, model.now, &words);
            if let (Op::Walk, Reply::Array(Some(keys))) = (op, &mut reply) {
                keys.sort();
            }
            prop_assert_eq!(reply, expected, "{:?}", op);
        }
        // Nothing is lost: without keys, the store is as small as it was.
        run_words(&store, model.now, &[b"flushall"]);
        (0..100).for_each(|_| _ = store.tick(common::clock_at(model.now)));
        prop_assert_eq!(store.stats().memory_used, empty);
    }
}
