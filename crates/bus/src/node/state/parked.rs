//! Failures that are kept because their sender cannot be reached.

use crate::id::NodeId;
use crate::peer::outbox::Routed;
use keyway_base::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Most failures that are kept.
const PARKED_MAX: usize = 4096;

/// Time for which a failure is kept. A sender that is away for longer has been restarted, or has
/// given up.
const PARKED_FOR: Duration = Duration::from_secs(60);

/// Kept failures, by the order in which they came.
#[derive(Default)]
pub(in crate::node) struct Parked {
    pub(in crate::node) all: BTreeMap<u64, Kept>,
    next: u64,
    by_origin: BTreeMap<NodeId, BTreeSet<u64>>,
    /// Origins by the number of their kept failures.
    by_count: BTreeSet<(usize, NodeId)>,
}

/// A kept failure.
pub(in crate::node) struct Kept {
    pub(in crate::node) since: Time,
    pub(in crate::node) origin: NodeId,
    pub(in crate::node) routed: Routed,
}

impl Parked {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Keeps one more failure. If there is no room, the oldest of the origin with most is given up.
    /// Returns how many were given up.
    pub(in crate::node) fn keep(&mut self, origin: NodeId, routed: Routed, since: Time) -> u64 {
        let mut given_up = 0;
        if self.all.len() >= PARKED_MAX
            && let Some(&(_, most)) = self.by_count.last()
            && let Some(oldest) = self.by_origin.get(&most).and_then(BTreeSet::first).copied()
        {
            self.remove(oldest);
            given_up = 1;
        }
        self.next += 1;
        self.count(origin, BTreeSet::insert, self.next);
        self.all.insert(self.next, Kept { since, origin, routed });
        given_up
    }

    pub(in crate::node) fn remove(&mut self, number: u64) -> Option<Kept> {
        let kept = self.all.remove(&number)?;
        self.count(kept.origin, |numbers, number| numbers.remove(&number), number);
        Some(kept)
    }

    /// Changes the numbers of an origin.
    fn count(&mut self, origin: NodeId, change: fn(&mut BTreeSet<u64>, u64) -> bool, number: u64) {
        let numbers = self.by_origin.entry(origin).or_default();
        self.by_count.remove(&(numbers.len(), origin));
        change(numbers, number);
        match numbers.len() {
            0 => drop(self.by_origin.remove(&origin)),
            len => drop(self.by_count.insert((len, origin))),
        }
    }

    /// Gives up failures that were kept for long. Returns how many.
    pub(in crate::node) fn expire(&mut self, now: Time) -> u64 {
        let mut given_up = 0;
        while let Some((number, kept)) = self.all.first_key_value()
            && now.since(kept.since) >= PARKED_FOR
        {
            let number = *number;
            self.remove(number);
            given_up += 1;
        }
        given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Head;
    use crate::frame::Kind;
    use std::sync::Arc;

    fn keep(parked: &mut Parked, origin: u64, at: u64) -> u64 {
        let head = Head::plain(Kind::Failure, NodeId(1), NodeId(origin));
        let routed = Routed { head, path: Vec::new(), body: Arc::new(Vec::new()) };
        parked.keep(NodeId(origin), routed, Time(at))
    }

    fn of(parked: &Parked, origin: u64) -> usize {
        parked.all.values().filter(|kept| kept.origin == NodeId(origin)).count()
    }

    #[test]
    fn who_floods_displaces_its_own_and_leaves_others_theirs() {
        let mut parked = Parked::default();
        for at in 0..100 {
            assert_eq!(keep(&mut parked, 1, at), 0);
        }
        let given_up: u64 = (0..10 * PARKED_MAX as u64).map(|at| keep(&mut parked, 2, at)).sum();
        assert_eq!(given_up, 9 * PARKED_MAX as u64 + 100);
        assert_eq!((of(&parked, 1), of(&parked, 2)), (100, PARKED_MAX - 100));
        // A second origin that floods gets as much as the first.
        for at in 0..10 * PARKED_MAX as u64 {
            keep(&mut parked, 3, at);
        }
        let (second, third) = (of(&parked, 2), of(&parked, 3));
        assert!(of(&parked, 1) == 100 && second.abs_diff(third) <= 1, "{second}, {third}");
        assert_eq!(parked.len(), PARKED_MAX);
    }

    #[test]
    fn what_is_old_is_given_up_and_nothing_of_it_is_left() {
        let mut parked = Parked::default();
        let second = 1_000_000_000;
        for at in 0..50 {
            keep(&mut parked, at % 7, at * second);
        }
        assert_eq!(parked.expire(Time(59 * second)), 0);
        assert_eq!(parked.expire(Time(69 * second)), 10);
        assert_eq!((parked.len(), of(&parked, 3)), (40, 6));
        assert_eq!(parked.expire(Time(200 * second)), 40);
        assert!(parked.is_empty() && parked.by_origin.is_empty() && parked.by_count.is_empty());
    }
}
