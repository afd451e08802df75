//! The last message of each sender. A message that is not later is not delivered, so nothing comes
//! twice or out of order, whatever the ways.

use crate::id::NodeId;
use keyway_base::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Most senders whose last message is remembered.
const SEEN_MAX: usize = 65_536;
/// Time for which it is remembered. A sender that was silent for longer may be accepted with an
/// older number.
const SEEN_FOR: Duration = Duration::from_secs(600);
/// Senders that are checked at once: for each message, and each time that time has passed.
const STEPS: usize = 8;
const STEPS_OF_TIME: usize = 512;

#[derive(Default)]
pub(in crate::node) struct Seen {
    last: BTreeMap<NodeId, (u64, Time)>,
    /// Each sender once, with the time at which it was heard when it was put here.
    order: VecDeque<(Time, NodeId)>,
}

impl Seen {
    /// Returns whether `seq` is later than all before. If so, it is the last one from now on.
    pub fn is_next(&mut self, src: NodeId, seq: u64, now: Time) -> bool {
        if let Some(last) = self.last.get_mut(&src) {
            let is_next = seq > last.0;
            if is_next {
                *last = (seq, now);
            }
            return is_next;
        }
        if self.last.len() >= SEEN_MAX {
            self.make_room();
        }
        self.last.insert(src, (seq, now));
        self.order.push_back((now, src));
        true
    }

    /// Forgets one sender: of the first few one that was silent since it was put there, else the
    /// next.
    fn make_room(&mut self) {
        for step in 0..=STEPS {
            let Some((put, id)) = self.order.pop_front() else { return };
            let Some((_, at)) = self.last.get(&id).copied() else { return };
            if at > put && step < STEPS {
                self.order.push_back((at, id));
                continue;
            }
            self.last.remove(&id);
            return;
        }
    }

    /// Forgets senders that were silent for long. Checks a bounded number at once.
    pub fn forget(&mut self, now: Time) {
        for _ in 0..STEPS_OF_TIME {
            let Some((put, id)) = self.order.front().copied() else { return };
            if now.since(put) < SEEN_FOR {
                return;
            }
            self.order.pop_front();
            match self.last.get(&id).copied() {
                Some((_, at)) if now.since(at) < SEEN_FOR => self.order.push_back((at, id)),
                _ => drop(self.last.remove(&id)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_later_is_next() {
        let mut seen = Seen::default();
        assert!(seen.is_next(NodeId(1), 5, Time(0)));
        assert!(!seen.is_next(NodeId(1), 5, Time(0)) && !seen.is_next(NodeId(1), 4, Time(0)));
        assert!(seen.is_next(NodeId(1), 7, Time(0)) && seen.is_next(NodeId(2), 1, Time(0)));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_who_speaks_stays() {
        let mut seen = Seen::default();
        for id in 0..3 * SEEN_MAX as u64 {
            // One sender sends all the time, among many that send once.
            assert!(seen.is_next(NodeId(u64::MAX), id + 1, Time(id)));
            assert!(seen.is_next(NodeId(id), 5, Time(id)));
            assert!(seen.last.len() <= SEEN_MAX && seen.order.len() == seen.last.len());
        }
        assert!(!seen.is_next(NodeId(u64::MAX), 1, Time(0)));
        assert!(!seen.last.contains_key(&NodeId(0)));
    }

    #[test]
    fn few_senders_are_forgotten_by_time_too() {
        let mut seen = Seen::default();
        for id in 0..3 {
            seen.is_next(NodeId(id), 5, Time(0));
        }
        let later = Time(0) + SEEN_FOR / 2;
        assert!(seen.is_next(NodeId(1), 6, later));
        seen.forget(Time(0) + SEEN_FOR);
        assert_eq!(seen.last.keys().copied().collect::<Vec<_>>(), [NodeId(1)]);
        seen.forget(later + SEEN_FOR);
        assert!(seen.last.is_empty() && seen.order.is_empty());
    }
}
