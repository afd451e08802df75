//! Groups of consumers, with the entries that were delivered to each consumer and are not
//! acknowledged yet.

use super::id::Id;
use super::log::{Log, UNKNOWN};
use crate::collections::ranks::Ranks;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Bytes of a consumer without its name and deliveries: its own, and its entry in the tree of
/// names, which is half full at worst.
const CONSUMER_BYTES: usize =
    size_of::<Option<Consumer>>() + 2 * size_of::<(Box<[u8]>, ConsumerIndex)>();

/// The index of a consumer in its group.
pub(crate) type ConsumerIndex = u32;

/// The delivery of an entry to a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) id: Id,
    /// When the consumer last got the entry, in milliseconds since the Unix epoch.
    pub(crate) millis: u64,
    /// The number of times that the entry was delivered.
    pub(crate) count: u64,
    pub(crate) consumer: ConsumerIndex,
}

impl Delivery {
    /// Returns the milliseconds since the consumer last got the entry.
    pub(crate) fn idle(&self, now_millis: u64) -> u64 {
        now_millis.saturating_sub(self.millis)
    }
}

/// A consumer of a group.
pub(crate) struct Consumer {
    pub(crate) name: Box<[u8]>,
    /// When the consumer last sent a command, in milliseconds since the Unix epoch.
    pub(crate) seen_millis: u64,
    /// The ids of its deliveries.
    ids: Ranks<Id>,
}

impl Consumer {
    /// Returns the number of deliveries that the consumer has not acknowledged.
    pub(crate) fn pending(&self) -> usize {
        self.ids.len()
    }

    /// Visits the ids of the deliveries that the consumer has not acknowledged.
    pub(crate) fn visit_ids(&self, mut visit: impl FnMut(Id)) {
        let _ = self.ids.visit(0..usize::MAX, false, |id| {
            visit(*id);
            ControlFlow::Continue(())
        });
    }
}

/// The consumers that share the entries of a stream.
pub(crate) struct Group {
    /// Entries up to this one were delivered.
    pub(crate) last: Id,
    /// The number of entries of the stream up to `last`, or `UNKNOWN`.
    pub(crate) entries_read: i64,
    /// The deliveries that are not acknowledged, ordered by id.
    deliveries: Ranks<Delivery>,
    /// The greatest id that `deliveries` ever had. Most new ids are greater.
    greatest: Id,
    names: BTreeMap<Box<[u8]>, ConsumerIndex>,
    /// The consumers by index. The index of a removed consumer is free.
    consumers: Vec<Option<Consumer>>,
    free: Vec<ConsumerIndex>,
    /// Bytes of the consumers.
    consumer_bytes: usize,
}

impl Clone for Group {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.last, self.entries_read);
        for consumer in self.consumers() {
            copy.add_consumer(&consumer.name, consumer.seen_millis);
        }
        self.visit((Id::ZERO, Id::MAX), |delivery| {
            let consumer = self.consumer(delivery.consumer);
            let index = consumer.and_then(|consumer| copy.find_consumer(&consumer.name));
            if let Some(index) = index {
                copy.assign(Delivery { consumer: index, ..*delivery });
            }
            ControlFlow::Continue(())
        });
        copy
    }
}

impl Group {
    pub(super) fn new(last: Id, entries_read: i64) -> Self {
        Self {
            last,
            entries_read,
            deliveries: Ranks::new(),
            greatest: Id::ZERO,
            names: BTreeMap::new(),
            consumers: Vec::new(),
            free: Vec::new(),
            consumer_bytes: 0,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.deliveries.bytes() + self.consumer_bytes
    }

    /// Moves nodes of deliveries from sparse pages, see `Boxed::compact`.
    pub(super) fn compact(&mut self, visits: &mut u32, moved: &mut u64) {
        self.deliveries.compact(visits, moved);
        for consumer in self.consumers.iter_mut().flatten() {
            consumer.ids.compact(visits, moved);
        }
    }

    /// Returns the number of deliveries that are not acknowledged.
    pub(crate) fn pending(&self) -> usize {
        self.deliveries.len()
    }

    /// Returns the first and the last id of the deliveries that are not acknowledged.
    pub(crate) fn pending_ends(&self) -> Option<(Id, Id)> {
        let last = self.deliveries.len().checked_sub(1)?;
        Some((self.deliveries.get(0)?.id, self.deliveries.get(last)?.id))
    }

    pub(crate) fn consumer_count(&self) -> usize {
        self.names.len()
    }

    /// Returns the consumers in the order of their names.
    pub(crate) fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.names.values().filter_map(|index| self.consumer(*index))
    }

    pub(crate) fn consumer(&self, index: ConsumerIndex) -> Option<&Consumer> {
        self.consumers.get(index as usize)?.as_ref()
    }

    pub(crate) fn find_consumer(&self, name: &[u8]) -> Option<ConsumerIndex> {
        self.names.get(name).copied()
    }

    /// Adds a consumer. The group must have none of this name.
    pub(crate) fn add_consumer(&mut self, name: &[u8], now_millis: u64) -> ConsumerIndex {
        let ids = Ranks::new();
        let consumer = Some(Consumer { name: name.into(), seen_millis: now_millis, ids });
        let index = match self.free.pop() {
            Some(index) => {
                self.consumers[index as usize] = consumer;
                index
            }
            None => {
                self.consumers.push(consumer);
                self.consumers.len() as ConsumerIndex - 1
            }
        };
        self.names.insert(name.into(), index);
        self.consumer_bytes += CONSUMER_BYTES + 2 * name.len();
        index
    }

    /// Returns the consumer of a name, and whether it is new. The consumer counts as heard of now.
    pub(crate) fn hear_of(&mut self, name: &[u8], now_millis: u64) -> (ConsumerIndex, bool) {
        let Some(index) = self.find_consumer(name) else {
            return (self.add_consumer(name, now_millis), true);
        };
        if let Some(Some(consumer)) = self.consumers.get_mut(index as usize) {
            consumer.seen_millis = now_millis;
        }
        (index, false)
    }

    /// Removes a consumer with its deliveries. Returns the number of those, or `None` if there is
    /// no such consumer.
    pub(crate) fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let index = self.names.remove(name)?;
        let consumer = self.consumers[index as usize].take()?;
        self.free.push(index);
        self.consumer_bytes -= CONSUMER_BYTES + 2 * name.len() + consumer.ids.bytes();
        let _ = consumer.ids.visit(0..usize::MAX, false, |id| {
            if let Ok(rank) = self.rank(*id) {
                self.deliveries.remove(rank);
            }
            ControlFlow::Continue(())
        });
        Some(consumer.ids.len())
    }

    /// Returns the rank of the delivery of an id, or `Err` with the rank of the next delivery.
    fn rank(&self, id: Id) -> Result<usize, usize> {
        let rank = self.deliveries.count_before(|delivery| delivery.id < id);
        match self.deliveries.get(rank) {
            Some(delivery) if delivery.id == id => Ok(rank),
            _ => Err(rank),
        }
    }

    /// Returns the delivery of an id, if there is one that is not acknowledged.
    pub(crate) fn delivery(&self, id: Id) -> Option<Delivery> {
        self.rank(id).ok().and_then(|rank| self.deliveries.get(rank)).copied()
    }

    /// Returns the first delivery from an id on.
    pub(crate) fn delivery_from(&self, id: Id) -> Option<Delivery> {
        let rank = match self.rank(id) {
            Ok(rank) | Err(rank) => rank,
        };
        self.deliveries.get(rank).copied()
    }

    /// Visits the deliveries between two ids, both included, until `visit`
    /// breaks off.
    pub(crate) fn visit(
        &self,
        (from, to): (Id, Id),
        mut visit: impl FnMut(&Delivery) -> ControlFlow<()>,
    ) {
        let (Ok(rank) | Err(rank)) = self.rank(from);
        let _ = self.deliveries.visit(rank..usize::MAX, false, |delivery| {
            if delivery.id > to { ControlFlow::Break(()) } else { visit(delivery) }
        });
    }

    /// Visits the deliveries of one consumer between two ids, both included, until `visit` breaks
    /// off.
    pub(crate) fn visit_of(
        &self,
        index: ConsumerIndex,
        (from, to): (Id, Id),
        mut visit: impl FnMut(&Delivery) -> ControlFlow<()>,
    ) {
        let Some(consumer) = self.consumer(index) else { return };
        let rank = consumer.ids.count_before(|id| *id < from);
        let _ = consumer.ids.visit(rank..usize::MAX, false, |id| match self.delivery(*id) {
            Some(delivery) if delivery.id <= to => visit(&delivery),
            _ => ControlFlow::Break(()),
        });
    }

    /// Lets `change` change the list of a consumer's ids, and accounts for its memory.
    fn change_ids(&mut self, index: ConsumerIndex, change: impl FnOnce(&mut Ranks<Id>)) {
        if let Some(Some(consumer)) = self.consumers.get_mut(index as usize) {
            let before = consumer.ids.bytes();
            change(&mut consumer.ids);
            self.consumer_bytes = self.consumer_bytes + consumer.ids.bytes() - before;
        }
    }

    /// Notes a delivery. It replaces an earlier delivery of the same id.
    pub(crate) fn assign(&mut self, delivery: Delivery) {
        let id = delivery.id;
        let found = if id > self.greatest { Err(0) } else { self.rank(id) };
        self.greatest = self.greatest.max(id);
        match found {
            Ok(rank) => {
                let Some(old) = self.deliveries.get_mut(rank) else { return };
                let owner = std::mem::replace(old, delivery).consumer;
                if owner == delivery.consumer {
                    return;
                }
                self.change_ids(owner, |ids| remove_id(ids, id));
            }
            Err(_) => self.deliveries.insert(delivery, |other| other.id < id),
        }
        self.change_ids(delivery.consumer, |ids| ids.insert(id, |other| *other < id));
    }

    /// Acknowledges the delivery of an id. Returns whether there was one.
    pub(crate) fn acknowledge(&mut self, id: Id) -> bool {
        let Some(delivery) = self.rank(id).ok().and_then(|rank| self.deliveries.remove(rank))
        else {
            return false;
        };
        self.change_ids(delivery.consumer, |ids| remove_id(ids, id));
        true
    }

    /// Notes that an entry of `log` is being delivered. Nothing happens if a later entry was
    /// delivered before.
    pub(crate) fn advance(&mut self, log: &Log, id: Id) {
        if id <= self.last {
            return;
        }
        if self.entries_read != UNKNOWN && !log.has_gap_from(id) {
            self.entries_read = self.entries_read.wrapping_add(1);
        } else if log.added() > 0 {
            self.entries_read = log.added_up_to(id);
        }
        self.last = id;
    }

    /// Returns the number of entries of `log` that are still to be delivered, if it is known.
    pub(crate) fn lag(&self, log: &Log) -> Option<i64> {
        let added = log.added() as i64;
        if added == 0 {
            return Some(0);
        }
        let read = match self.entries_read {
            UNKNOWN => log.added_up_to(self.last),
            _ if log.has_gap_from(self.last) => log.added_up_to(self.last),
            known => known,
        };
        (read != UNKNOWN).then(|| added.wrapping_sub(read))
    }

    /// Frees up to `steps` leaves and consumers. Returns whether nothing is left.
    pub(super) fn free_some(&mut self, steps: &mut u32) -> bool {
        if !self.deliveries.free_some(steps) {
            return false;
        }
        while *steps > 0 {
            let Some(last) = self.consumers.last_mut() else { return true };
            if let Some(consumer) = last {
                let before = consumer.ids.bytes();
                let done = consumer.ids.free_some(steps);
                self.consumer_bytes = self.consumer_bytes + consumer.ids.bytes() - before;
                if !done {
                    return false;
                }
                self.names.remove(&consumer.name);
                self.consumer_bytes -=
                    CONSUMER_BYTES + 2 * consumer.name.len() + consumer.ids.bytes();
            }
            self.consumers.pop();
            *steps = steps.saturating_sub(1);
        }
        false
    }
}

fn remove_id(ids: &mut Ranks<Id>, id: Id) {
    let rank = ids.count_before(|other| *other < id);
    if ids.get(rank) == Some(&id) {
        ids.remove(rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&[u8]; 4] = [b"a", b"b", b"", b"d"];

    #[derive(Clone, Debug)]
    enum Op {
        Assign { ms: u64, count: u64, name: usize },
        Acknowledge(u64),
        Leave(usize),
    }

    fn any_op() -> impl Strategy<Value = Op> {
        prop_oneof![
            8 => (0..300u64, 0..9u64, 0..4usize)
                .prop_map(|(ms, count, name)| Op::Assign { ms, count, name }),
            3 => (0..300u64).prop_map(Op::Acknowledge),
            1 => (0..4usize).prop_map(Op::Leave),
        ]
    }

    type Model = BTreeMap<u64, (u64, usize)>;

    fn check(group: &Group, model: &Model) {
        let everything = (Id::ZERO, Id::MAX);
        let mut all = Model::new();
        group.visit(everything, |delivery| {
            let name = &group.consumer(delivery.consumer).expect("a consumer").name;
            let name = NAMES.iter().position(|known| **known == **name).expect("a known name");
            all.insert(delivery.id.ms, (delivery.count, name));
            ControlFlow::Continue(())
        });
        assert_eq!(&all, model);
        assert_eq!(group.pending(), model.len());
        for (index, name) in NAMES.iter().enumerate() {
            let of_name = model.iter().filter(|(_, (_, owner))| *owner == index);
            let ids: Vec<u64> = of_name.map(|(ms, _)| *ms).collect();
            let Some(consumer) = group.find_consumer(name) else {
                assert!(ids.is_empty());
                continue;
            };
            let mut found = Vec::new();
            group.visit_of(consumer, everything, |delivery| {
                found.push(delivery.id.ms);
                ControlFlow::Continue(())
            });
            assert_eq!(found, ids);
        }
        let bytes =
            |consumer: &Consumer| CONSUMER_BYTES + 2 * consumer.name.len() + consumer.ids.bytes();
        assert_eq!(group.consumer_bytes, group.consumers().map(bytes).sum::<usize>());
    }

    proptest! {
        #[test]
        fn each_delivery_is_of_one_consumer(ops in proptest::collection::vec(any_op(), 1..400)) {
            let (mut group, mut model) = (Group::new(Id::ZERO, UNKNOWN), Model::new());
            for op in ops {
                match op {
                    Op::Assign { ms, count, name } => {
                        let (consumer, _) = group.hear_of(NAMES[name], 7);
                        group.assign(Delivery { id: Id { ms, seq: 0 }, millis: 7, count, consumer });
                        model.insert(ms, (count, name));
                    }
                    Op::Acknowledge(ms) => {
                        let was_there = group.acknowledge(Id { ms, seq: 0 });
                        prop_assert_eq!(was_there, model.remove(&ms).is_some());
                    }
                    Op::Leave(name) => {
                        let before = model.len();
                        model.retain(|_, (_, owner)| *owner != name);
                        let removed = group.remove_consumer(NAMES[name]).unwrap_or(0);
                        prop_assert_eq!(removed, before - model.len());
                    }
                }
            }
            check(&group, &model);
            check(&group.clone(), &model);
            while !group.free_some(&mut 2) {}
            prop_assert_eq!(group.consumer_bytes, 0);
        }
    }
}
