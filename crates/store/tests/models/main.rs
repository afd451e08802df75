//! Each type against a plain collection of the standard library, on virtual
//! time: random commands over a few keys, small and large, with expiry, copies
//! and payloads between.

#[path = "../common/mod.rs"]
mod common;

mod geo;
mod hash;
mod list;
mod set;
mod sketch;
mod sorted;
mod stream;

use common::{Reply, run_words};
use keyway_store::{Store, StoreConfig};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Debug;

const START: u64 = 1_700_000_000_000;

type Words = Vec<Vec<u8>>;

/// A command's name, and what comes behind its key.
fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn bulk(text: impl AsRef<[u8]>) -> Reply {
    Reply::Bulk(Some(text.as_ref().to_vec()))
}

fn array(elements: impl IntoIterator<Item = Reply>) -> Reply {
    Reply::Array(Some(elements.into_iter().collect()))
}

/// Short and long strings, among them some that read as integers.
fn any_text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..60u16).prop_map(|nth| format!("t{nth}").into_bytes()),
        3 => (-300..300i64).prop_map(|value| value.to_string().into_bytes()),
        1 => any::<i64>().prop_map(|value| value.to_string().into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
        1 => (60..70usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        1 => Just(vec![b'l'; 5000]),
    ]
}

/// Elements by the hundred: enough to leave the small form.
fn many(from: u16, count: u16) -> impl Iterator<Item = Vec<u8>> + Clone {
    (from..from + count).map(|nth| format!("m{nth}").into_bytes())
}

/// The behaviour of a type, in the plainest way there is.
trait Model: Clone + Default + Debug {
    /// A command.
    type Op: Clone + Debug + 'static;

    /// Any command.
    fn any_op() -> BoxedStrategy<Self::Op>;

    /// Does `op`; the command without its key, and its reply.
    fn apply(&mut self, op: &Self::Op) -> (Words, Reply);

    /// Returns whether the key goes.
    fn is_gone(&self) -> bool;

    /// A command that reads everything, and its reply.
    fn whole(&self) -> (Words, Reply);

    /// Number of elements of an array that belong together, if they have no order.
    const UNORDERED: Option<usize>;
}

#[derive(Clone, Debug)]
enum Op<M: Model> {
    Own(u8, M::Op),
    Delete(u8),
    Expire(u8, u64),
    Persist(u8),
    Rename(u8, u8),
    Copy(u8, u8),
    /// By DUMP and RESTORE.
    Carry(u8, u8),
    Wait(u64),
    Tick,
}

fn any_op<M: Model + 'static>() -> impl Strategy<Value = Op<M>> {
    let key = || 0..3u8;
    prop_oneof![
        30 => (key(), M::any_op()).prop_map(|(key, op)| Op::Own(key, op)),
        1 => key().prop_map(Op::Delete),
        1 => (key(), 1..3000u64).prop_map(|(key, millis)| Op::Expire(key, millis)),
        1 => key().prop_map(Op::Persist),
        1 => (key(), key()).prop_map(|(one, other)| Op::Rename(one, other)),
        1 => (key(), key()).prop_map(|(one, other)| Op::Copy(one, other)),
        1 => (key(), key()).prop_map(|(one, other)| Op::Carry(one, other)),
        1 => (1..2000u64).prop_map(Op::Wait),
        1 => Just(Op::Tick),
    ]
}

struct World<M> {
    store: Store,
    now: u64,
    items: BTreeMap<u8, (M, Option<u64>)>,
}

fn with_key(key: u8, mut words: Words) -> Words {
    // Of a command of two words the second comes before the key.
    let at = if words[0].eq_ignore_ascii_case(b"xgroup") { 2 } else { 1 };
    words.insert(at, name(key));
    words
}

fn name(key: u8) -> Vec<u8> {
    format!("k{key}").into_bytes()
}

impl<M: Model + 'static> World<M> {
    fn ask(&self, words: &[Vec<u8>]) -> Reply {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        run_words(&self.store, self.now, &words)
    }

    fn ask_line(&self, line: &str) -> Reply {
        self.ask(&words(line))
    }

    fn agree(&self, words: &[Vec<u8>], expected: Reply) {
        let found = self.ask(words);
        let sorted = |reply: Reply| match (reply, M::UNORDERED) {
            (Reply::Array(Some(elements)), Some(group)) => {
                let mut groups: Vec<Vec<Reply>> =
                    elements.chunks(group).map(<[Reply]>::to_vec).collect();
                groups.sort_by_key(|group| format!("{group:?}"));
                Reply::Array(Some(groups.concat()))
            }
            (reply, _) => reply,
        };
        let line = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
        let line: String = line.chars().take(200).collect();
        assert_eq!(sorted(found), sorted(expected), "{line}");
    }

    fn step(&mut self, op: &Op<M>) {
        let now = self.now;
        self.items.retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > now));
        match op {
            Op::Own(key, op) => {
                let (mut model, expiry) = self.items.remove(key).unwrap_or_default();
                let (words, reply) = model.apply(op);
                self.agree(&with_key(*key, words), reply);
                if !model.is_gone() {
                    self.items.insert(*key, (model, expiry));
                }
            }
            Op::Delete(key) => {
                let was_there = self.items.remove(key).is_some();
                self.agree(&words(&format!("del k{key}")), Reply::Integer(was_there.into()));
            }
            Op::Expire(key, millis) => {
                let found = self.items.get_mut(key);
                let was_there = found.map(|(_, expiry)| *expiry = Some(now + millis)).is_some();
                let line = words(&format!("pexpire k{key} {millis}"));
                self.agree(&line, Reply::Integer(was_there.into()));
            }
            Op::Persist(key) => {
                let had = self.items.get_mut(key).and_then(|(_, expiry)| expiry.take()).is_some();
                self.agree(&words(&format!("persist k{key}")), Reply::Integer(had.into()));
            }
            Op::Rename(one, other) => {
                let found = self.items.remove(one);
                let reply = match &found {
                    Some(_) => Reply::Simple("OK".to_owned()),
                    None => Reply::Error("ERR no such key".to_owned()),
                };
                self.items.extend(found.map(|found| (*other, found)));
                self.agree(&words(&format!("rename k{one} k{other}")), reply);
            }
            Op::Copy(one, other) if one != other => {
                let copy = self.items.get(one).cloned();
                let line = words(&format!("copy k{one} k{other} replace"));
                self.agree(&line, Reply::Integer(copy.is_some().into()));
                self.items.extend(copy.map(|copy| (*other, copy)));
            }
            Op::Carry(one, other) => {
                let Reply::Bulk(payload) = self.ask_line(&format!("dump k{one}")) else {
                    panic!("no bulk");
                };
                let there = self.items.get(one).map(|(model, _)| model.clone());
                assert_eq!(payload.is_some(), there.is_some());
                let (Some(payload), Some(model)) = (payload, there) else { return };
                let mut line = words(&format!("restore k{other} 0 P replace"));
                line[3] = payload;
                self.agree(&line, Reply::Simple("OK".to_owned()));
                self.items.insert(*other, (model, None));
            }
            Op::Copy(..) => {}
            Op::Wait(millis) => self.now += millis,
            Op::Tick => _ = self.store.tick(common::clock_at(now)),
        }
    }

    fn check(&mut self) {
        let now = self.now;
        self.items.retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > now));
        for key in 0..3 {
            let there = self.items.get(&key);
            self.agree(&words(&format!("exists k{key}")), Reply::Integer(there.is_some().into()));
            let left =
                there.map_or(-2, |(_, expiry)| expiry.map_or(-1, |expiry| (expiry - now) as i64));
            self.agree(&words(&format!("pttl k{key}")), Reply::Integer(left));
            if let Some((model, _)) = there {
                let (words, reply) = model.whole();
                self.agree(&with_key(key, words), reply);
            }
        }
    }
}

/// Any commands are answered as the model says, and leave what it says; once
/// all is removed no memory is left in use.
fn agrees<M: Model + 'static>(ops: &[Op<M>]) {
    let store = Store::new(StoreConfig { shards: Some(2), ..StoreConfig::default() });
    let empty = store.stats().memory_used;
    let mut world: World<M> = World { store, now: START, items: BTreeMap::new() };
    for op in ops {
        world.step(op);
    }
    world.check();
    world.ask_line("flushall");
    (0..20_000).for_each(|_| _ = world.store.tick(common::clock_at(world.now)));
    assert_eq!(world.store.stats().memory_used, empty);
}

macro_rules! invariants {
    ($($law:ident: $model:ty),+ $(,)?) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(96))]
            $(
                #[test]
                fn $law(ops in proptest::collection::vec(any_op::<$model>(), 1..200)) {
                    agrees(&ops);
                }
            )+
        }
    };
}

invariants! {
    a_hash_is_a_map: hash::Hash,
    a_list_is_a_deque: list::List,
    a_set_is_a_set: set::Set,
    a_sorted_set_is_a_map_and_an_order: sorted::Sorted,
    a_stream_is_a_map_of_entries_with_groups: stream::Stream,
}
