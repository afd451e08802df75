use super::{Model, Words, array, bulk, words};
use crate::common::Reply;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// An entry's number is all of its id that differs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    exists: bool,
    entries: BTreeMap<u64, u64>,
    newest: u64,
    group: Option<Group>,
}

/// The one group, which began at the first entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    last: u64,
    /// By entry, whose it is.
    pending: BTreeMap<u64, u8>,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Add(u64),
    Remove(u64),
    Trim(u64),
    TrimFrom(u64),
    Range { from: u64, to: u64, reverse: bool, limit: u8 },
    Len,
    MakeGroup,
    DropGroup,
    Read { consumer: u8, limit: u8 },
    Acknowledge(u64),
    Pending,
    DropConsumer(u8),
}

fn entry((number, value): (u64, u64)) -> Reply {
    array([bulk(format!("{number}-1")), array([bulk("f"), bulk(text(value))])])
}

/// Some are long, so that a few fill a block.
fn text(value: u64) -> String {
    format!("{value}{}", "v".repeat(60 * value as usize))
}

const NO_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE \
     you may want to use the MKSTREAM option to create an empty stream automatically.";

fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

impl Stream {
    fn read(&mut self, consumer: u8, limit: u8) -> Option<Reply> {
        let group = self.group.as_mut()?;
        let limit = usize::from(limit);
        let new: Vec<(u64, u64)> = self
            .entries
            .range(group.last + 1..)
            .take(limit)
            .map(|(number, value)| (*number, *value))
            .collect();
        for (number, _) in &new {
            group.last = *number;
            group.pending.insert(*number, consumer);
        }
        (!new.is_empty()).then(|| array(new.into_iter().map(entry)))
    }
}

impl Model for Stream {
    type Op = Op;
    const UNORDERED: Option<usize> = None;

    fn any_op() -> BoxedStrategy<Op> {
        let number = || prop_oneof![3 => 0..40u64, 1 => 0..2000u64];
        prop_oneof![
            20 => prop_oneof![4 => 1..5u64, 1 => 1..1000u64].prop_map(Op::Add),
            4 => number().prop_map(Op::Remove),
            1 => (0..150u64).prop_map(Op::Trim),
            1 => number().prop_map(Op::TrimFrom),
            2 => (number(), number(), any::<bool>(), 1..50u8)
                .prop_map(|(from, to, reverse, limit)| Op::Range { from, to, reverse, limit }),
            1 => Just(Op::Len),
            2 => Just(Op::MakeGroup),
            1 => Just(Op::DropGroup),
            4 => (0..3u8, 1..60u8).prop_map(|(consumer, limit)| Op::Read { consumer, limit }),
            3 => number().prop_map(Op::Acknowledge),
            2 => Just(Op::Pending),
            1 => (0..3u8).prop_map(Op::DropConsumer),
        ]
        .boxed()
    }

    fn apply(&mut self, op: &Op) -> (Words, Reply) {
        let count = |count: usize| Reply::Integer(count as i64);
        match op {
            Op::Add(step) => {
                let number = self.newest + step;
                self.exists = true;
                self.newest = number;
                self.entries.insert(number, number % 17);
                let line = words(&format!("xadd {number}-1 f {}", text(number % 17)));
                (line, bulk(format!("{number}-1")))
            }
            Op::Remove(number) => {
                let removed = self.entries.remove(number).is_some();
                (words(&format!("xdel {number}-1")), count(removed.into()))
            }
            Op::Trim(len) => {
                let gone = self.entries.len().saturating_sub(*len as usize);
                (0..gone).for_each(|_| _ = self.entries.pop_first());
                (words(&format!("xtrim maxlen {len}")), count(gone))
            }
            Op::TrimFrom(from) => {
                let kept = self.entries.split_off(from);
                let gone = std::mem::replace(&mut self.entries, kept).len();
                (words(&format!("xtrim minid {from}")), count(gone))
            }
            Op::Range { from, to, reverse, limit } => {
                let name = if *reverse { "xrevrange" } else { "xrange" };
                let (first, last) = if *reverse { (to, from) } else { (from, to) };
                let line = words(&format!("{name} {first} {last} count {limit}"));
                if from > to {
                    return (line, array([]));
                }
                let found = self.entries.range(from..=to).map(|(number, value)| (*number, *value));
                let limit = usize::from(*limit);
                let found: Vec<_> = match reverse {
                    true => found.rev().take(limit).collect(),
                    false => found.take(limit).collect(),
                };
                (line, array(found.into_iter().map(entry)))
            }
            Op::Len => (words("xlen"), count(self.entries.len())),
            Op::MakeGroup => {
                let line = words("xgroup create g 0 mkstream");
                self.exists = true;
                match self.group {
                    Some(_) => (line, error("BUSYGROUP Consumer Group name already exists")),
                    None => {
                        self.group = Some(Group::default());
                        (line, Reply::Simple("OK".to_owned()))
                    }
                }
            }
            Op::DropGroup => {
                let line = words("xgroup destroy g");
                match self.exists {
                    true => (line, count(self.group.take().is_some().into())),
                    false => (line, error(NO_KEY)),
                }
            }
            Op::Read { consumer, limit } => self.reply_to_read(*consumer, *limit),
            Op::Acknowledge(number) => {
                let group = self.group.as_mut();
                let found = group.and_then(|group| group.pending.remove(number)).is_some();
                (words(&format!("xack g {number}-1")), count(found.into()))
            }
            Op::Pending => self.pending(),
            Op::DropConsumer(consumer) => {
                let line = words(&format!("xgroup delconsumer g c{consumer}"));
                match &mut self.group {
                    _ if !self.exists => (line, error(NO_KEY)),
                    // Which key it is is told, and not known here.
                    None => (words("xlen"), count(self.entries.len())),
                    Some(group) => {
                        let before = group.pending.len();
                        group.pending.retain(|_, whose| whose != consumer);
                        (line, count(before - group.pending.len()))
                    }
                }
            }
        }
    }

    fn is_gone(&self) -> bool {
        !self.exists
    }

    fn whole(&self) -> (Words, Reply) {
        let entries = self.entries.iter().map(|(number, value)| entry((*number, *value)));
        (words("xrange - +"), array(entries))
    }
}

impl Stream {
    /// The key of XREADGROUP is not its first argument: what has been read is
    /// asked of XPENDING, once XCLAIM has done the same here as there.
    fn reply_to_read(&mut self, consumer: u8, limit: u8) -> (Words, Reply) {
        let last = self.group.as_ref().map_or(0, |group| group.last);
        let new: Vec<u64> =
            self.entries.range(last + 1..).take(limit.into()).map(|(number, _)| *number).collect();
        if self.group.is_none() || new.is_empty() {
            return (words("xlen"), Reply::Integer(self.entries.len() as i64));
        }
        let mut line = words(&format!("xclaim g c{consumer} 0"));
        line.extend(new.iter().map(|number| format!("{number}-1").into_bytes()));
        let lastid = new.last().copied().unwrap_or_default();
        line.extend(words(&format!("force justid lastid {lastid}-1")));
        self.read(consumer, limit);
        (line, array(new.iter().map(|number| bulk(format!("{number}-1")))))
    }

    fn pending(&self) -> (Words, Reply) {
        let Some(group) = &self.group else {
            return (words("xlen"), Reply::Integer(self.entries.len() as i64));
        };
        let line = words("xpending g");
        let Some((first, last)) = group.pending.keys().next().zip(group.pending.keys().last())
        else {
            let nothing = || Reply::Bulk(None);
            let all = [Reply::Integer(0), nothing(), nothing(), Reply::Array(None)];
            return (line, array(all));
        };
        let mut whose: BTreeMap<u8, usize> = BTreeMap::new();
        group.pending.values().for_each(|one| *whose.entry(*one).or_default() += 1);
        let consumers = whose.into_iter().map(|(consumer, count)| {
            array([bulk(format!("c{consumer}")), bulk(count.to_string())])
        });
        let reply = [
            Reply::Integer(group.pending.len() as i64),
            bulk(format!("{first}-1")),
            bulk(format!("{last}-1")),
            array(consumers),
        ];
        (line, array(reply))
    }
}
