//! The allowed fates of keys of a cluster: the writes that fail-overs lose, the servers that may claim
//! the same slot, and the errors that servers have really sent.

use super::*;
use crate::cluster::{SLOTS, slot_of};

/// How long requests may still reach a server after it has redirected one.
const LEARNT: Nanos = 250 * crate::network::MILLI;

/// How often a request is redirected at most while nothing changes: by a server that has not heard
/// who owns the slot, by the earlier owner, and by a server from which the slot moves.
const HOPS: usize = 3;

/// Why a server has refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `MOVED` or `ASK`.
    Elsewhere,
    /// `TRYAGAIN`.
    TryAgain,
    /// `CLUSTERDOWN`.
    Down,
    /// `CROSSSLOT`.
    Crossing,
    /// `READONLY`, or the end of a command that waited at a primary.
    Demoted,
}

/// The record of a cluster.
pub(super) struct ClusterBook {
    /// Number of primaries if this is no cluster, else 0.
    groups: usize,
    /// True if these primaries share slots, so that keys of several slots are refused.
    shares_slots: bool,
    redirections_max: usize,
    /// The address that the workers use for each of these primaries.
    followed: Vec<Option<String>>,
    /// By slot: the number of servers that claim it besides its owner, and how often that has
    /// changed.
    disputes: Vec<(u32, u64)>,
    /// Keys that a fail-over has changed, and how often.
    lost: BTreeMap<Vec<u8>, u64>,
    /// The refusals of servers.
    refused: Vec<(Nanos, u16, Refused)>,
    /// When slots came to other servers, or were moving.
    changes: Vec<(Nanos, u16)>,
    /// The time by which every server has heard of a change.
    settles: Nanos,
    /// The time of the first redirection of a slot's request by a server since every server has
    /// known the slot's owner.
    sent_on: BTreeMap<(usize, u16), Nanos>,
    /// The last write to each key.
    last: BTreeMap<Vec<u8>, u64>,
    /// Until this time, a server with slots may have no index.
    crowded_until: Nanos,
}

impl Ledger {
    /// Notes that the pool is a cluster.
    pub fn know_cluster(
        &mut self,
        redirections_max: u8,
        settles: Nanos,
        groups: usize,
        shares_slots: bool,
    ) {
        self.cluster = Some(ClusterBook {
            groups,
            shares_slots,
            followed: vec![None; groups],
            redirections_max: usize::from(redirections_max),
            disputes: vec![(0, 0); SLOTS],
            lost: BTreeMap::new(),
            refused: Vec::new(),
            changes: Vec::new(),
            settles,
            sent_on: BTreeMap::new(),
            last: BTreeMap::new(),
            crowded_until: 0,
        });
    }

    /// Returns whether there is a cluster.
    pub fn is_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// Returns what the keys have in common that a server takes together: their slot, or the number
    /// of their primary.
    pub(super) fn cluster_home(&self, key: &[u8]) -> Option<usize> {
        let slot = usize::from(slot_of(key));
        let book = self.cluster.as_ref()?;
        Some(if book.groups > 0 && !book.shares_slots { slot % book.groups } else { slot })
    }

    /// Returns whether keys of several slots must be refused, whoever has the slots.
    pub fn refuses_several_slots(&self) -> bool {
        self.cluster.as_ref().is_some_and(|book| book.shares_slots)
    }

    /// Notes that two servers claim a slot from now on, or no longer do.
    pub fn on_dispute(&mut self, slot: u16, begins: bool) {
        let Some(book) = &mut self.cluster else { return };
        let (open, count) = &mut book.disputes[usize::from(slot)];
        *open = if begins { *open + 1 } else { open.saturating_sub(1) };
        *count += 1;
    }

    /// Returns whether two servers claim the slot of a key, or have claimed it.
    pub fn was_disputed(&self, key: &[u8]) -> bool {
        let book = self.cluster.as_ref();
        book.is_some_and(|book| {
            book.disputes[usize::from(slot_of(key))].1 > 0 || book.lost.contains_key(key)
        })
    }

    /// Notes that a fail-over has changed a key, because its copy was behind.
    pub fn on_lost_key(&mut self, key: &[u8]) {
        if let Some(book) = &mut self.cluster {
            *book.lost.entry(key.to_vec()).or_default() += 1;
        }
    }

    /// Sets the address that the workers use for each primary outside a cluster.
    pub fn note_followed(&mut self, followed: Vec<Option<String>>) {
        if let Some(book) = &mut self.cluster {
            book.followed = followed;
        }
    }

    /// Notes that a primary has changed a key. If the workers no longer use it, or do not use it
    /// yet, the other primary has the change only once it has copied it.
    pub fn check_followed(&mut self, key: &[u8], primary: &str) {
        let Some(home) = self.cluster_home(key) else { return };
        let Some(book) = &self.cluster else { return };
        let followed = book.followed.get(home).map(Option::as_deref);
        if followed.is_some_and(|followed| followed != Some(primary)) {
            self.on_lost_key(key);
        }
    }

    /// Notes that there are more servers than indices, including those that have left. Workers that
    /// learn of two newcomers together give the last index to either. The other has none until the
    /// index of a server that has left is free, which takes longer than all faults. Until then the
    /// requests for its slots are refused. This excuses nothing else.
    pub fn on_crowded(&mut self, until: Nanos) {
        if let Some(book) = &mut self.cluster {
            book.crowded_until = book.crowded_until.max(until);
        }
    }

    /// Notes that a slot has come to another server, or is moving to one.
    pub fn on_slot_changed(&mut self, slot: u16) {
        let now = self.now;
        if let Some(book) = &mut self.cluster {
            book.changes.push((now, slot));
            book.sent_on.clear();
        }
    }

    /// Notes that a server has refused a request.
    pub fn on_refused(&mut self, server: usize, (slot, kind): (u16, Refused), now: Nanos) {
        let is_excused = self.is_excused(&self.servers_of(0), now.saturating_sub(LEARNT), now);
        let Some(book) = &mut self.cluster else { return };
        book.refused.push((now, slot, kind));
        let last = book.changes.last().map_or(0, |&(at, _)| at);
        if kind != Refused::Elsewhere || now < last + book.settles {
            return;
        }
        let first = *book.sent_on.entry((server, slot)).or_insert(now);
        if now >= first + LEARNT && !is_excused {
            self.fail(|| format!("server {server} is asked for slot {slot} after it said MOVED"));
        }
    }

    /// Notes that a server redirects a command that waited there for a slot which another server
    /// owns now.
    pub fn on_sent_elsewhere(&mut self, slot: u16) {
        let now = self.now;
        if let Some(book) = &mut self.cluster {
            book.refused.push((now, slot, Refused::Elsewhere));
        }
    }

    /// Returns how many requests servers have redirected, and how many no server could take.
    pub fn refused(&self) -> (u64, u64) {
        let all = self.cluster.iter().flat_map(|book| &book.refused);
        all.fold((0, 0), |(elsewhere, others), (_, _, kind)| match kind {
            Refused::Elsewhere => (elsewhere + 1, others),
            _ => (elsewhere, others + 1),
        })
    }

    /// Returns everything that could excuse a difference.
    pub(super) fn cluster_circumstances(&self, key: &[u8]) -> Option<Circumstances> {
        let book = self.cluster.as_ref()?;
        let (open, count) = book.disputes[usize::from(slot_of(key))];
        let mut all = Circumstances {
            epoch: count,
            losses: book.lost.get(key).copied().unwrap_or(0),
            stragglers: self.stragglers.get(key).copied().unwrap_or(0),
        };
        if open > 0 {
            self.uncertain.set(self.uncertain.get() + 1);
            all.epoch = self.uncertain.get() << 32;
        }
        Some(all)
    }

    /// Returns whether an error repeats what a server has really answered for these keys since
    /// `from`.
    pub fn is_forced(&self, text: &str, keys: &[Vec<u8>], from: Nanos) -> bool {
        let Some(book) = &self.cluster else { return false };
        if text.starts_with("ERR nodes_max in [pool.") {
            return from <= book.crowded_until;
        }
        let kind = match () {
            () if text.contains("TRYAGAIN") => Refused::TryAgain,
            () if text.contains("CLUSTERDOWN") => Refused::Down,
            () if text.contains("READONLY ") || text.starts_with("UNBLOCKED force") => {
                Refused::Demoted
            }
            () if text.contains("MOVED ") || text.contains("ASK ") => Refused::Elsewhere,
            () => return false,
        };
        let slots: BTreeSet<u16> = keys.iter().map(|key| slot_of(key)).collect();
        let since = book.refused.iter().rev().take_while(|(at, ..)| *at >= from);
        let count = since.filter(|(_, slot, why)| *why == kind && slots.contains(slot)).count();
        if kind != Refused::Elsewhere {
            return count > 0;
        }
        // A request that is retried is redirected again each time. Both count.
        let since = book.refused.iter().rev().take_while(|(at, ..)| *at >= from);
        let is_again = |kind: Refused| matches!(kind, Refused::TryAgain | Refused::Down);
        let again = since.filter(|(_, slot, why)| is_again(*why) && slots.contains(slot)).count();
        // A server that knows less redirects to one that knows more. That ends unless slots move
        // again meanwhile.
        let from = from.saturating_sub(book.settles);
        let changes = book.changes.iter().rev().take_while(|(at, _)| *at >= from);
        let changes = changes.filter(|(_, slot)| slots.contains(slot)).count();
        count + again >= book.redirections_max
            && changes + HOPS + 2 * again >= book.redirections_max
    }

    /// Checks that writes to a key arrive in the order in which they were asked. Only one client
    /// writes the key, and it does not wait for replies.
    pub(super) fn check_order(&mut self, pool: usize, write: u64, key: &[u8], is_late: bool) {
        let asked_at = self.asked_at[write as usize];
        let is_excused = is_late
            || self.was_disputed(key)
            || self.is_excused(&self.servers_of(pool), asked_at, self.now);
        let Some(book) = &mut self.cluster else { return };
        let last = book.last.entry(key.to_vec()).or_insert(write);
        let before = std::mem::replace(last, (*last).max(write));
        if before > write && !is_excused {
            self.fail(|| format!("write {write} of {} was executed after {before}", clip(key)));
        }
    }
}
