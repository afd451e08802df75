//! Requests to pools that lead to other pools: which pools they ask, one after the other or all at
//! once, and the client's reply.
//!
//! ```text
//!            start            on_verdict
//!  Route policy ──► Ask(child) … ──► Wait | Ask(next child) | Answer ──► over
//! ```
//! A [`RoutePolicy`] decides and does not know the bytes. [`redis`] and [`memcached`] decide what
//! replies mean. A [`RoutedRequest`] is a request with a route policy for each of its parts.

mod bucket;
pub mod memcached;
mod part;
pub mod redis;
mod routed_request;
mod totals;

pub use bucket::Bucket;
pub use part::{KeyOwner, Part};
pub use routed_request::{RoutedRequest, Speech, SubRequest, SubRequestFor};
pub use totals::RouteTotals;

use keyway_base::{Fault, Sent};
use keyway_topology::{CHILDREN_MAX, Wait};

/// Largest number of pools of a route policy: children, and a gutter.
const STATIONS_MAX: usize = CHILDREN_MAX + 1;

/// The effect of repeating a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// None: it only reads.
    Read,
    /// None beyond the first time: the result is the same.
    Repeatable,
    /// Another result: it must not be executed twice.
    Once,
}

/// The order in which a request asks children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskOrder {
    /// One child after the other until one does not fail.
    InTurn,
    /// One child after the other until one has the item.
    UntilFound,
    /// All children.
    All {
        /// The children for which the client waits.
        wait: Wait,
        /// True if a reply with an item is better than one without.
        prefers_found: bool,
    },
}

/// The outcome of asking a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was done, or the client's request is wrong.
    Good,
    /// There is no such item.
    Missed,
    /// The child cannot serve it now.
    Failed {
        /// True if it may have been executed all the same.
        maybe: bool,
    },
}

impl Verdict {
    /// Returns the verdict for a fault of Keyway.
    pub fn of(fault: Fault) -> Verdict {
        Verdict::Failed { maybe: matches!(fault, Fault::Backend { sent: Sent::Maybe, .. }) }
    }

    /// Returns whether the child could not serve it.
    pub fn is_failed(self) -> bool {
        matches!(self, Verdict::Failed { .. })
    }
}

/// The next action of a route policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Wait until another reply arrives, if one is still missing.
    Wait,
    /// Ask the child at this station.
    Ask(u8),
    /// Answer the client with the best reply so far.
    Answer,
}

/// The path of one request over the children of a pool.
#[derive(Clone, Debug)]
pub struct RoutePolicy {
    order: AskOrder,
    nature: Nature,
    /// The children in the order in which they are asked, or count.
    stations: [u16; STATIONS_MAX],
    len: u8,
    /// The first one that was not asked yet.
    next: u8,
    /// A bit for each that was asked and has not answered.
    waiting: u32,
    /// The rank of the best reply so far, and its station.
    best: Option<(u8, u8)>,
    is_answered: bool,
    is_abandoned: bool,
}

impl RoutePolicy {
    /// A route policy over `children`, the most trusted first.
    ///
    /// # Panics
    /// When there are more than a pool may have.
    pub fn new(
        order: AskOrder,
        nature: Nature,
        children: impl IntoIterator<Item = u16>,
    ) -> RoutePolicy {
        let (mut stations, mut len) = ([0; STATIONS_MAX], 0u8);
        for child in children {
            stations[usize::from(len)] = child;
            len += 1;
        }
        RoutePolicy {
            order,
            nature,
            stations,
            len,
            next: 0,
            waiting: 0,
            best: None,
            is_answered: false,
            is_abandoned: false,
        }
    }

    /// Returns the policy for an item that other children have already missed. A failure then
    /// counts less than that miss.
    #[must_use]
    pub fn after_miss(mut self) -> RoutePolicy {
        self.best = Some((self.rank(Verdict::Missed), u8::MAX));
        self
    }

    /// Returns the stations to ask at once.
    pub fn start(&mut self) -> std::ops::Range<u8> {
        let count =
            if matches!(self.order, AskOrder::All { .. }) { self.len } else { self.len.min(1) };
        (0..count).for_each(|station| self.waiting |= 1 << station);
        self.next = count;
        0..count
    }

    /// Returns the pool at a station.
    pub fn child(&self, station: u8) -> u16 {
        self.stations[usize::from(station)]
    }

    /// Returns the order in which it asks children.
    pub fn order(&self) -> AskOrder {
        self.order
    }

    /// Returns the effect of repeating its request.
    pub fn nature(&self) -> Nature {
        self.nature
    }

    /// Returns the pools after a station.
    pub fn behind(&self, station: u8) -> &[u16] {
        &self.stations[usize::from(station) + 1..usize::from(self.len)]
    }

    /// Handles the outcome of asking a station. If it is the best so far, for which
    /// [`RoutePolicy::is_best`] then returns true, its reply must be kept.
    pub fn on_verdict(&mut self, station: u8, verdict: Verdict) -> Move {
        let bit = 1u32 << station;
        if self.waiting & bit == 0 {
            return Move::Wait;
        }
        self.waiting &= !bit;
        let rank = (self.rank(verdict), station);
        if self.best.is_none_or(|best| rank < best) {
            self.best = Some(rank);
        }
        let is_answer = match (self.order, verdict) {
            (AskOrder::All { wait: Wait::First, .. }, Verdict::Good | Verdict::Missed) => true,
            (AskOrder::All { .. }, _) => self.waiting == 0,
            (AskOrder::InTurn, Verdict::Failed { maybe }) => {
                if self.may_go_on(maybe) {
                    return self.ask_next();
                }
                true
            }
            (AskOrder::UntilFound, Verdict::Missed | Verdict::Failed { .. }) => {
                if self.may_go_on(false) {
                    return self.ask_next();
                }
                true
            }
            _ => true,
        };
        if is_answer && !std::mem::replace(&mut self.is_answered, true) {
            Move::Answer
        } else {
            Move::Wait
        }
    }

    fn rank(&self, verdict: Verdict) -> u8 {
        let prefers_found =
            matches!(self.order, AskOrder::UntilFound | AskOrder::All { prefers_found: true, .. });
        match verdict {
            Verdict::Missed if prefers_found => 1,
            Verdict::Good | Verdict::Missed => 0,
            // A client that is told that nothing was sent may send it again.
            Verdict::Failed { maybe: true } => 2,
            Verdict::Failed { maybe: false } => 3,
        }
    }

    /// Returns whether the next child may be asked what the last one may have executed.
    fn may_go_on(&self, maybe: bool) -> bool {
        let is_allowed = !maybe || self.nature != Nature::Once;
        self.next < self.len && !self.is_abandoned && is_allowed
    }

    fn ask_next(&mut self) -> Move {
        let station = self.next;
        self.next += 1;
        self.waiting |= 1 << station;
        Move::Ask(station)
    }

    /// Returns whether no reply so far is better than that of this station.
    pub fn is_best(&self, station: u8) -> bool {
        self.best.is_some_and(|(_, best)| best == station)
    }

    /// Notes that the client has left: no other child is asked.
    pub fn abandon(&mut self) {
        self.is_abandoned = true;
    }

    /// Returns whether no reply is missing any more.
    pub fn is_over(&self) -> bool {
        self.waiting == 0
    }
}

#[cfg(test)]
mod invariants {
    use super::*;
    use proptest::prelude::*;

    fn orders() -> impl Strategy<Value = AskOrder> {
        let waits = prop_oneof![Just(Wait::All), Just(Wait::First)];
        prop_oneof![
            Just(AskOrder::InTurn),
            Just(AskOrder::UntilFound),
            (waits, any::<bool>())
                .prop_map(|(wait, prefers_found)| AskOrder::All { wait, prefers_found }),
        ]
    }

    fn natures() -> impl Strategy<Value = Nature> {
        prop_oneof![Just(Nature::Read), Just(Nature::Repeatable), Just(Nature::Once)]
    }

    fn verdicts() -> impl Strategy<Value = Verdict> {
        prop_oneof![
            Just(Verdict::Good),
            Just(Verdict::Missed),
            any::<bool>().prop_map(|maybe| Verdict::Failed { maybe }),
        ]
    }

    proptest! {
        /// Children answer anything, in any order. Each is asked at most once, there is one answer,
        /// it is the best one known, and nothing is left over.
        #[test]
        fn every_route_policy_ends_with_one_answer(
            order in orders(),
            nature in natures(),
            count in 1usize..=STATIONS_MAX,
            said in prop::collection::vec((verdicts(), any::<u8>()), STATIONS_MAX),
            leaves_after in 0usize..40,
        ) {
            let mut route_policy = RoutePolicy::new(order, nature, 10..10 + count as u16);
            let mut open: Vec<u8> = route_policy.start().collect();
            let mut asked = open.clone();
            let mut heard: Vec<(u8, Verdict)> = Vec::new();
            let mut answers = 0;
            for (verdict, which) in said {
                if open.is_empty() {
                    break;
                }
                let is_gone = heard.len() >= leaves_after;
                if is_gone {
                    route_policy.abandon();
                }
                let station = open.swap_remove(usize::from(which) % open.len());
                heard.push((station, verdict));
                match route_policy.on_verdict(station, verdict) {
                    Move::Ask(next) => {
                        prop_assert!(!is_gone && !asked.contains(&next));
                        if order == AskOrder::InTurn && nature == Nature::Once {
                            prop_assert_eq!(verdict, Verdict::Failed { maybe: false });
                        }
                        prop_assert!(verdict != Verdict::Good);
                        asked.push(next);
                        open.push(next);
                    }
                    Move::Answer => {
                        answers += 1;
                        let is_good = |station| {
                            heard.iter().any(|(other, said)| *other == station && !said.is_failed())
                        };
                        let best = heard.iter().find(|(station, _)| route_policy.is_best(*station));
                        let best = best.expect("somebody is best").0;
                        let any_good = heard.iter().any(|(_, said)| !said.is_failed());
                        prop_assert_eq!(is_good(best), any_good);
                        if (order, any_good) == (AskOrder::InTurn, false) {
                            prop_assert!(asked.len() == count || is_gone || nature == Nature::Once);
                        }
                    }
                    Move::Wait => {}
                }
                prop_assert_eq!(route_policy.is_over(), open.is_empty());
                // A second verdict of the same station has no effect.
                prop_assert_eq!(route_policy.on_verdict(station, verdict), Move::Wait);
            }
            prop_assert!(route_policy.is_over());
            prop_assert_eq!(answers, 1);
            if matches!(order, AskOrder::All { .. }) {
                prop_assert_eq!(asked.len(), count);
            }
        }
    }

    #[test]
    fn what_may_have_been_executed_is_not_asked_elsewhere() {
        for (nature, expected) in [
            (Nature::Read, Move::Ask(1)),
            (Nature::Repeatable, Move::Ask(1)),
            (Nature::Once, Move::Answer),
        ] {
            let mut route_policy = RoutePolicy::new(AskOrder::InTurn, nature, [3, 4]);
            assert_eq!(route_policy.start(), 0..1);
            assert_eq!(route_policy.on_verdict(0, Verdict::Failed { maybe: true }), expected);
        }
    }

    #[test]
    fn of_failures_those_tell_that_may_have_been_executed() {
        let mut route_policy = RoutePolicy::new(AskOrder::InTurn, Nature::Repeatable, [3, 4, 5]);
        assert_eq!(route_policy.start(), 0..1);
        assert_eq!(route_policy.on_verdict(0, Verdict::Failed { maybe: false }), Move::Ask(1));
        assert_eq!(route_policy.on_verdict(1, Verdict::Failed { maybe: true }), Move::Ask(2));
        assert_eq!(route_policy.on_verdict(2, Verdict::Failed { maybe: true }), Move::Answer);
        assert!(route_policy.is_best(1));
    }

    #[test]
    fn what_was_missed_and_cannot_be_looked_up_is_a_miss() {
        let route_policy =
            || RoutePolicy::new(AskOrder::UntilFound, Nature::Read, [3, 4]).after_miss();
        let failed = Verdict::Failed { maybe: true };
        let mut lost = route_policy();
        assert_eq!(lost.start(), 0..1);
        assert_eq!(lost.on_verdict(0, failed), Move::Ask(1));
        assert_eq!(lost.on_verdict(1, failed), Move::Answer);
        assert!(!lost.is_best(0) && !lost.is_best(1));
        let mut found = route_policy();
        assert_eq!(found.start(), 0..1);
        assert_eq!(found.on_verdict(0, Verdict::Missed), Move::Ask(1));
        assert_eq!(found.on_verdict(1, Verdict::Good), Move::Answer);
        assert!(found.is_best(1));
    }

    #[test]
    fn a_mirror_tells_what_the_first_said_and_misses_tell_less_than_finds() {
        let wait = Wait::All;
        for (prefers_found, best) in [(false, 0), (true, 1)] {
            let order = AskOrder::All { wait, prefers_found };
            let mut route_policy = RoutePolicy::new(order, Nature::Once, [3, 4]);
            assert_eq!(route_policy.start(), 0..2);
            assert_eq!(route_policy.on_verdict(1, Verdict::Good), Move::Wait);
            assert_eq!(route_policy.on_verdict(0, Verdict::Missed), Move::Answer);
            assert!(route_policy.is_best(best));
        }
    }
}
