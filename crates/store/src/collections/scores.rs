//! Large sorted sets: members with scores, in order of score and then of bytes.

use super::fields::Fields;
use super::means::Means;
use super::ranks::Ranks;
use crate::items::Address;
use keyway_memory::Memory;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

pub(super) const SCORE_LEN: usize = size_of::<f64>();

/// Where a member is in the order.
pub(crate) type Rank = usize;

pub(crate) fn order((score, member): (f64, &[u8]), (other_score, other): (f64, &[u8])) -> Ordering {
    // No score is NaN, and both zeros are the same.
    score.partial_cmp(&other_score).unwrap_or(Ordering::Equal).then_with(|| member.cmp(other))
}

pub(super) fn read_score(bytes: &[u8]) -> f64 {
    f64::from_le_bytes(bytes.try_into().unwrap_or_default())
}

/// A member in the order. Its item belongs to the same set's fields.
#[derive(Clone, Copy)]
pub(super) struct Ranked {
    score: f64,
    item: Address,
}

impl Ranked {
    /// Of a set that has not changed since.
    pub(super) fn key<'a>(&self) -> (f64, &'a [u8]) {
        // SAFETY: `Scores` takes entries out before it frees their items, and
        // an item stays where it is meanwhile. Callers hold on to the set.
        (self.score, unsafe { self.item.item() }.key())
    }
}

/// A large sorted set: a table from member to score, and the members in order.
pub(crate) struct Scores {
    pub(super) fields: Fields,
    pub(super) ranks: Ranks<Ranked>,
}

impl Scores {
    pub(crate) fn new() -> Self {
        Self { fields: Fields::new(), ranks: Ranks::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.ranks.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.fields.bytes() + self.ranks.bytes()
    }

    pub(super) fn rank_of(&self, key: (f64, &[u8])) -> Rank {
        self.ranks.count_before(|entry| order(entry.key(), key) == Ordering::Less)
    }

    /// Gives a member a score; `old` is the one it has.
    pub(crate) fn put(&mut self, means: Means<'_>, score: f64, member: &[u8], old: Option<f64>) {
        if let Some(old) = old {
            let rank = self.rank_of((old, member));
            self.ranks.remove(rank);
        }
        let item = self.fields.put(means, member, &score.to_le_bytes()).1;
        let entry = Ranked { score, item: item.address() };
        let is_before = |other: &Ranked| order(other.key(), (score, member)) == Ordering::Less;
        self.ranks.insert(entry, is_before);
    }

    pub(crate) fn remove(&mut self, means: Means<'_>, member: &[u8]) -> bool {
        let Some(score) = self.fields.get(means, member).map(|item| read_score(item.value()))
        else {
            return false;
        };
        let rank = self.rank_of((score, member));
        self.ranks.remove(rank);
        self.fields.remove(means, member)
    }

    pub(crate) fn remove_ranks(&mut self, means: Means<'_>, ranks: Range<Rank>) {
        for _ in ranks.clone() {
            let Some(entry) = self.ranks.remove(ranks.start) else { return };
            // Its bytes go with the item.
            let member: SmallVec<[u8; 64]> = SmallVec::from_slice(entry.key().1);
            self.fields.remove(means, &member);
        }
    }

    pub(crate) fn duplicate(&self, means: Means<'_>) -> Self {
        let mut copy = Self::new();
        let _ = self.ranks.visit(0..usize::MAX, false, |entry| {
            let (score, member) = entry.key();
            copy.put(means, score, member, None);
            ControlFlow::Continue(())
        });
        copy
    }

    /// Moves members from sparse pages, see [`super::Boxed::compact`].
    pub(crate) fn compact(&mut self, memory: Memory<'_>, visits: &mut u32, moved: &mut u64) {
        let ranks = &mut self.ranks;
        self.fields.compact(memory, visits, moved, |item| {
            // The order knows members by their address: out of it meanwhile.
            let score = read_score(item.item().value());
            let key = (score, item.item().key());
            let is_before = |other: &Ranked| order(other.key(), key) == Ordering::Less;
            let rank = ranks.count_before(is_before);
            ranks.remove(rank);
            item.relocate(memory);
            let entry = Ranked { score, item: item.item().address() };
            let key = (score, item.item().key());
            ranks.insert(entry, |other| order(other.key(), key) == Ordering::Less);
        });
        self.ranks.compact(visits, moved);
    }

    /// Frees up to `steps` pieces; whether none is left.
    pub(crate) fn free_some(&mut self, memory: Memory<'_>, steps: &mut u32) -> bool {
        self.ranks.free_some(steps) && self.fields.free_some(memory, steps)
    }
}
