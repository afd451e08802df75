//! Whether what clients saw at the same time could have happened one after the
//! other.
//!
//! Each operation took effect at some moment between its call and its reply, if
//! the history is *linearizable*. The search tries every order that the times
//! allow, and remembers where it has been (Wing and Gong's algorithm with
//! Lowe's memory). It is exponential in how many operations overlap, so
//! histories are to be short.

use std::collections::BTreeSet;

/// Most operations of a history.
pub const HISTORY_MAX: usize = 128;

/// What operations are to do when they come one after the other.
pub trait Sequential: Clone + Ord {
    /// An operation with what it was answered.
    type Operation;

    /// Does `operation`; whether the answer is the right one.
    fn apply(&mut self, operation: &Self::Operation) -> bool;
}

/// An operation that a client has seen through.
#[derive(Clone, Debug)]
pub struct Event<O> {
    /// What was asked and answered.
    pub operation: O,
    /// When it was sent, on any one clock.
    pub called: u64,
    /// When its reply was there, on the same.
    pub returned: u64,
}

/// Whether some order of the events, each at a moment between its call and its
/// return, has all these answers.
///
/// # Panics
/// When there are more than [`HISTORY_MAX`].
pub fn is_linearizable<S: Sequential>(initial: &S, history: &[Event<S::Operation>]) -> bool {
    assert!(history.len() <= HISTORY_MAX, "a history of {} events", history.len());
    let all = if history.len() == HISTORY_MAX { u128::MAX } else { (1 << history.len()) - 1 };
    let mut seen = BTreeSet::from([(0u128, initial.clone())]);
    let mut open = vec![(0u128, initial.clone())];
    while let Some((done, state)) = open.pop() {
        if done == all {
            return true;
        }
        let left = || history.iter().enumerate().filter(|(nth, _)| done & (1 << nth) == 0);
        // Whatever returned before another was called came before it.
        let first_return = left().map(|(_, event)| event.returned).min().unwrap_or_default();
        for (nth, event) in left().filter(|(_, event)| event.called <= first_return) {
            let mut next = state.clone();
            if next.apply(&event.operation) {
                let place = (done | 1 << nth, next);
                if seen.insert(place.clone()) {
                    open.push(place);
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Register(u8);

    enum Op {
        Write(u8),
        Read(u8),
    }

    impl Sequential for Register {
        type Operation = Op;
        fn apply(&mut self, operation: &Op) -> bool {
            match operation {
                Op::Write(value) => self.0 = *value,
                Op::Read(value) => return self.0 == *value,
            }
            true
        }
    }

    fn check(history: Vec<(u64, Op, u64)>) -> bool {
        let event = |(called, operation, returned)| Event { operation, called, returned };
        let history: Vec<_> = history.into_iter().map(event).collect();
        is_linearizable(&Register(0), &history)
    }

    #[test]
    fn what_overlaps_may_come_in_any_order() {
        assert!(check(vec![]));
        for seen in [0, 1] {
            assert!(check(vec![(1, Op::Write(1), 4), (2, Op::Read(seen), 3)]));
        }
        let writes = || vec![(1, Op::Write(1), 9), (1, Op::Write(2), 9), (1, Op::Write(3), 9)];
        let mut history = writes();
        history.extend([(2, Op::Read(2), 3), (4, Op::Read(1), 5), (6, Op::Read(3), 7)]);
        assert!(check(history));
    }

    #[test]
    fn a_broken_history_is_found() {
        // A write that is not seen afterwards.
        assert!(!check(vec![(1, Op::Write(1), 2), (3, Op::Read(0), 4)]));
        // What nobody wrote.
        assert!(!check(vec![(1, Op::Write(1), 4), (2, Op::Read(2), 3)]));
        // Back to the old value, though the new one was seen.
        let back = [(1, Op::Write(1), 9), (2, Op::Read(1), 3), (4, Op::Read(0), 5)];
        assert!(!check(back.into()));
        // Two writers, and readers who do not agree on their order.
        let mut history = vec![(1, Op::Write(1), 3), (1, Op::Write(2), 3)];
        history.extend([(4, Op::Read(1), 5), (6, Op::Read(2), 7)]);
        assert!(!check(history));
    }

    #[test]
    fn a_long_history_with_little_overlap_is_checked_quickly() {
        let mut history = Vec::new();
        for nth in 0..32u8 {
            let at = 10 * u64::from(nth);
            history.extend([
                (at, Op::Write(nth), at + 12),
                (at, Op::Write(100 + nth), at + 11),
                (at + 5, Op::Read(nth), at + 9),
            ]);
        }
        assert!(check(history));
    }
}
