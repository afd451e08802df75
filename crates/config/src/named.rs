//! The pools of a file by name, and the pools that each of them leads to.
//!
//! Everything is computed once, in time proportional to the file. A file may have tens of thousands
//! of pools, or a chain of thousands.

use crate::error::nearest;
use crate::routes::{self, Named};
use crate::section::{NamedPool, Section};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Deref;

/// The protocols of the servers behind a pool. Both are false for an embedded store, which speaks
/// both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Speaks {
    pub(crate) redis: bool,
    pub(crate) memcached: bool,
}

impl Speaks {
    fn or(self, other: Speaks) -> Speaks {
        Speaks { redis: self.redis || other.redis, memcached: self.memcached || other.memcached }
    }
}

/// Facts about a pool and the pools that it leads to.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    speaks: Speaks,
    /// Length of the longest chain of pools from this one on. Meaningless if `leads_round`.
    depth: usize,
    /// Largest number of requests that one request for one key becomes. Meaningless if
    /// `leads_round`.
    asked: u64,
    /// True if the pool, or one that it leads to, leads back to itself.
    leads_round: bool,
    /// A number that pools have in common if they lead to each other. Other pools have other
    /// numbers.
    circle: usize,
}

/// Most unknown names for which a similar name is looked for. Each is compared with every pool. A
/// file with more of them has another fault.
const SUGGESTIONS_MAX: usize = 100;

/// Largest number of pool names in an error.
const LISTED_MAX: usize = 20;

/// All pools of a file.
pub(crate) struct NamedPools<'s> {
    all: &'s [NamedPool],
    by_name: BTreeMap<&'s str, usize>,
    named: Vec<Vec<Named<'s>>>,
    facts: Vec<Facts>,
    suggestions_left: Cell<usize>,
}

impl Deref for NamedPools<'_> {
    type Target = [NamedPool];

    fn deref(&self) -> &[NamedPool] {
        self.all
    }
}

impl<'s> NamedPools<'s> {
    pub(crate) fn new(all: &'s [NamedPool]) -> NamedPools<'s> {
        let mut by_name = BTreeMap::new();
        for (index, pool) in all.iter().enumerate() {
            by_name.entry(pool.name.as_str()).or_insert(index);
        }
        let named: Vec<Vec<Named<'s>>> =
            all.iter().map(|pool| routes::named_in(pool, &by_name)).collect();
        let suggestions_left = Cell::new(SUGGESTIONS_MAX);
        let mut pools = NamedPools { all, by_name, named, facts: Vec::new(), suggestions_left };
        pools.facts = pools.work_out();
        pools
    }

    /// Returns the position of the pool of that name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Returns the pool of that name.
    pub(crate) fn of_name(&self, name: &str) -> Option<&'s NamedPool> {
        self.position(name).map(|index| &self.all[index])
    }

    /// Returns the kind and the keys of the pool of that name, if they can be read.
    pub(crate) fn section(&self, name: &str) -> Option<&'s (&'static str, Section)> {
        self.of_name(name)?.section.as_ref()
    }

    /// Returns every pool that the pool at `index` names, in the order of the file's keys.
    pub(crate) fn named(&self, index: usize) -> &[Named<'s>] {
        &self.named[index]
    }

    /// Returns the protocols of the servers behind the pool of that name.
    pub(crate) fn speaks(&self, name: &str) -> Speaks {
        self.position(name).map_or(Speaks::default(), |index| self.facts[index].speaks)
    }

    pub(crate) fn depth(&self, index: usize) -> usize {
        self.facts[index].depth
    }

    pub(crate) fn asked(&self, index: usize) -> u64 {
        self.facts[index].asked
    }

    pub(crate) fn leads_round(&self, index: usize) -> bool {
        self.facts[index].leads_round
    }

    /// Returns a number that pools have in common if they lead to each other.
    pub(crate) fn circle(&self, index: usize) -> usize {
        self.facts[index].circle
    }

    /// Returns the name of the pool that is most similar to an unknown name.
    pub(crate) fn suggest(&self, name: &str) -> Option<&'s str> {
        let left = self.suggestions_left.get();
        self.suggestions_left.set(left.saturating_sub(1));
        if left == 0 {
            return None;
        }
        nearest(name, self.all.iter().map(|pool| pool.name.as_str()))
    }

    /// Returns the names of the first pools, for an error.
    pub(crate) fn listed(&self) -> String {
        let first = self.all.iter().take(LISTED_MAX).map(|pool| pool.name.as_str());
        let mut text = first.collect::<Vec<_>>().join(", ");
        if self.all.len() > LISTED_MAX {
            text.push_str(&format!(" and {} more", self.all.len() - LISTED_MAX));
        }
        text
    }

    /// Returns the positions of the pools that the pool at `index` names.
    fn next(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        self.named[index].iter().filter_map(|named| named.index)
    }

    /// Returns the shortest way from one pool to another of the same circle, with both ends.
    pub(crate) fn way(&self, from: usize, to: usize) -> Vec<usize> {
        let mut came_from = BTreeMap::from([(from, from)]);
        let mut left = std::collections::VecDeque::from([from]);
        while let Some(index) = left.pop_front() {
            if index == to {
                let mut way = vec![to];
                let mut at = to;
                while at != from {
                    at = came_from[&at];
                    way.push(at);
                }
                way.reverse();
                return way;
            }
            for next in self.next(index).filter(|next| self.circle(*next) == self.circle(to)) {
                came_from.entry(next).or_insert_with(|| {
                    left.push_back(next);
                    index
                });
            }
        }
        Vec::new()
    }

    fn work_out(&self) -> Vec<Facts> {
        let mut facts = vec![Facts::default(); self.all.len()];
        for (circle, members) in
            circles(self.all.len(), |index| &self.named[index]).into_iter().enumerate()
        {
            let is_member = |index: usize| members.contains(&index);
            let is_round = match members[..] {
                [only] => self.next(only).any(|next| next == only),
                _ => true,
            };
            let mut speaks = Speaks::default();
            let mut leads_round = is_round;
            for &member in &members {
                speaks = speaks.or(routes::speaks_itself(&self.all[member]));
                // The facts of the circle's members are written after this loop; until then they
                // are empty.
                for next in self.next(member) {
                    speaks = speaks.or(facts[next].speaks);
                    leads_round |= facts[next].leads_round;
                }
            }
            for &member in &members {
                facts[member] = Facts { speaks, leads_round, circle, ..Facts::default() };
            }
            if let ([only], false) = (&members[..], leads_round) {
                debug_assert!(is_member(*only));
                let depths = self.next(*only).map(|next| facts[next].depth);
                let deepest = depths.max().unwrap_or(0);
                let asked = |next: usize| facts[next].asked;
                facts[*only].asked = routes::asked_by(&self.all[*only], &self.named[*only], asked);
                facts[*only].depth = 1 + deepest;
            }
        }
        facts
    }
}

/// Finds Tarjan's strongly connected components, without recursion. Each set has the pools that
/// lead to each other, and comes after all sets that it leads to.
fn circles<'n, 's: 'n>(count: usize, named: impl Fn(usize) -> &'n [Named<'s>]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let mut order = vec![UNSEEN; count];
    let mut lowest = vec![UNSEEN; count];
    let mut is_open = vec![false; count];
    let (mut open, mut found) = (Vec::new(), Vec::new());
    let mut seen = 0;
    // The pools on the current path, and for each how many of the pools that it names were
    // followed.
    let mut way: Vec<(usize, usize)> = Vec::new();
    for start in 0..count {
        if order[start] != UNSEEN {
            continue;
        }
        way.push((start, 0));
        while let Some((index, followed)) = way.last_mut() {
            let index = *index;
            if *followed == 0 && order[index] == UNSEEN {
                (order[index], lowest[index], is_open[index]) = (seen, seen, true);
                seen += 1;
                open.push(index);
            }
            if let Some(child) = named(index).get(*followed) {
                *followed += 1;
                match child.index {
                    Some(next) if order[next] == UNSEEN => way.push((next, 0)),
                    Some(next) if is_open[next] => {
                        lowest[index] = lowest[index].min(order[next]);
                    }
                    _ => {}
                }
                continue;
            }
            way.pop();
            if let Some((above, _)) = way.last() {
                lowest[*above] = lowest[*above].min(lowest[index]);
            }
            if lowest[index] == order[index] {
                let at = open.iter().rposition(|&member| member == index).unwrap_or(0);
                let members = open.split_off(at);
                members.iter().for_each(|&member| is_open[member] = false);
                found.push(members);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edges(of: &[Vec<usize>]) -> Vec<Vec<Named<'static>>> {
        let named = |&index: &usize| Named { key: "children", at: 0, name: "", index: Some(index) };
        of.iter().map(|next| next.iter().map(named).collect()).collect()
    }

    proptest! {
        /// Compares the circles with the reach of every pool, computed naively.
        #[test]
        fn circles_are_the_pools_that_reach_each_other(
            graph in prop::collection::vec(prop::collection::vec(0usize..8, 0..3), 8),
        ) {
            let reach = |from: usize| {
                let mut seen = [false; 8];
                let mut left = graph[from].clone();
                while let Some(at) = left.pop() {
                    if !std::mem::replace(&mut seen[at], true) {
                        left.extend(&graph[at]);
                    }
                }
                seen
            };
            let named = edges(&graph);
            let found = circles(8, |index| &named[index]);
            let mut of = [usize::MAX; 8];
            for (number, members) in found.iter().enumerate() {
                members.iter().for_each(|&member| of[member] = number);
            }
            for one in 0..8 {
                for other in 0..8 {
                    let together = one == other || (reach(one)[other] && reach(other)[one]);
                    prop_assert_eq!(of[one] == of[other], together, "{} {}", one, other);
                    // A set comes after all sets that it leads to.
                    prop_assert!(!reach(one)[other] || of[other] <= of[one]);
                }
            }
        }
    }

    #[test]
    fn a_chain_of_a_million_pools_is_followed_without_recursion() {
        let named =
            edges(&(0..1_000_000usize).map(|at| vec![(at + 1) % 1_000_000]).collect::<Vec<_>>());
        assert_eq!(circles(1_000_000, |index| &named[index]).len(), 1);
    }
}
