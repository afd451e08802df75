//! Requests, executed within the quotas of their keys.

use crate::commands;
use crate::shards::{Demand, EvictionPolicy, VICTIMS_MAX};
use crate::store::{Search, Store, Transfer, Turn, args_len};
use keyway_base::KeyspaceEvents;
use keyway_command::{Flags, Request};
use keyway_resp::reply;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

/// The quotas that a request's keys are of.
type Concerned = SmallVec<[usize; 4]>;

impl Store {
    /// Executes a request, keeping the quotas of its keys: room is made, or it
    /// is refused, before; and what it took beyond the estimate is evicted
    /// after.
    pub(crate) fn execute_within_quotas(
        &self,
        request: &Request<'_>,
        turn: Turn,
        transfer: Option<&Transfer<'_>>,
        out: &mut Vec<u8>,
    ) {
        if !request.command.flags.contains(Flags::WRITE) {
            return commands::execute(self, request, turn, transfer, out);
        }
        let mut keys = Vec::new();
        if request.keys(&mut keys).is_err() {
            keys.clear();
        }
        let keys = keys.iter().map(|index| &request.args[*index as usize]);
        let mut concerned: Concerned =
            keys.clone().map(|key| self.quotas.of(key)).filter(|index| *index > 0).collect();
        concerned.sort_unstable();
        concerned.dedup();
        if request.command.flags.contains(Flags::DENYOOM) {
            let streamed = transfer.map_or(0, Transfer::streamed_len) as u64;
            let bytes = args_len(request) + streamed;
            for index in &concerned {
                let of_quota = keys.clone().filter(|key| self.quotas.of(key) == *index);
                if let Err(text) = self.admit(*index, of_quota, bytes, turn) {
                    return reply::error(out, &text);
                }
            }
        }
        commands::execute(self, request, turn, transfer, out);
        for index in concerned {
            self.evict_of_quota(index, Demand::default(), turn);
        }
    }

    /// Evicts what a request took beyond the quotas of its keys.
    pub(crate) fn settle_quotas(&self, request: &Request<'_>, turn: Turn) {
        if self.quotas.is_empty() {
            return;
        }
        let mut keys = Vec::new();
        if request.keys(&mut keys).is_ok() {
            for index in keys {
                self.evict_of_quota(
                    self.quotas.of(&request.args[index as usize]),
                    Demand::default(),
                    turn,
                );
            }
        }
    }

    /// Makes room in a quota for a write of one key of its; whether there is.
    pub(crate) fn admit_one(&self, index: usize, key: &[u8], bytes: u64, turn: Turn) -> bool {
        self.admit(index, std::iter::once(key), bytes, turn).is_ok()
    }

    /// Makes room in a quota for a request with these keys of its; if there is
    /// none, says so.
    fn admit<'k>(
        &self,
        index: usize,
        keys: impl Iterator<Item = &'k [u8]>,
        bytes: u64,
        turn: Turn,
    ) -> Result<(), String> {
        let Some(quota) = self.quotas.at(index) else { return Ok(()) };
        // Most requests find room whatever there is of their keys already.
        let keys: SmallVec<[&[u8]; 8]> = keys.collect();
        if quota.fits(Demand { bytes, items: keys.len() as u64 }) {
            return Ok(());
        }
        let is_new = |key: &&&[u8]| !self.with_key(turn, key, |entry| entry.exists());
        let more = Demand { bytes, items: keys.iter().filter(is_new).count() as u64 };
        if quota.may_hold(more) && self.evict_of_quota(index, more, turn) {
            return Ok(());
        }
        quota.refused.fetch_add(1, Ordering::Relaxed);
        let prefix = String::from_utf8_lossy(&quota.config.prefix).replace(['\r', '\n'], " ");
        Err(format!("OOM command not allowed when the quota of keys '{prefix}*' is used up."))
    }

    /// Evicts keys of a quota until so much more fits into it; whether it
    /// does.
    pub(crate) fn evict_of_quota(&self, index: usize, more: Demand, turn: Turn) -> bool {
        let Some(quota) = self.quotas.at(index) else { return true };
        let mut search = Search::default();
        while !quota.fits(more) {
            if self.policy() == EvictionPolicy::NoEviction || !self.searches_on(&mut search) {
                return false;
            }
            let shard_index = quota.turn.fetch_add(1, Ordering::Relaxed) & (self.shard_count() - 1);
            match self.evict_in_shard(shard_index, index, more, turn) {
                Some(evicted) => {
                    quota.evicted.fetch_add(evicted, Ordering::Relaxed);
                    search.note(evicted);
                }
                None => search.note_held(shard_index),
            }
        }
        true
    }

    /// Evicts keys of every quota that is above its bounds.
    pub(crate) fn settle_all_quotas(&self, turn: Turn) {
        for index in 1..self.quotas.width() {
            self.evict_of_quota(index, Demand::default(), turn);
        }
    }

    /// Evicts some keys of a quota from one shard; how many, `None` when the
    /// shard could not be had.
    fn evict_in_shard(
        &self,
        shard_index: usize,
        index: usize,
        more: Demand,
        turn: Turn,
    ) -> Option<u64> {
        let mut shard = self.shard_to_evict(shard_index)?;
        let quota = self.quotas.at(index)?;
        let upkeep = self.upkeep(shard_index, turn);
        let gone = |space_index: usize, key: &[u8]| {
            self.note_event_at(turn, space_index, KeyspaceEvents::EVICTED, "evicted", key);
        };
        let (mut evicted, mut freed) = (0, 0);
        for database in 0..self.database_count() {
            let space_index = self.first_space(database) + index;
            while evicted < VICTIMS_MAX as u64 && !quota.fits(more) {
                let Some(bytes) = shard.evict_from(space_index, &upkeep, self.policy(), gone)
                else {
                    break;
                };
                (evicted, freed) = (evicted + 1, freed + bytes);
            }
        }
        self.charge(&mut shard, -freed);
        Some(evicted)
    }
}

impl Store {
    /// Holds what is counted of every quota against what there is.
    ///
    /// # Panics
    /// When they differ: for tests, of a store that nobody else uses.
    #[doc(hidden)]
    pub fn recount_quotas(&self) {
        for index in 1..self.quotas.width() {
            let (mut bytes, mut items) = (0, 0);
            for shard in 0..self.shard_count() {
                let mut shard = self.shard(shard);
                for database in 0..self.database_count() {
                    let space_index = self.first_space(database) + index;
                    let Some(space) = shard.existing_space(space_index) else { continue };
                    let recount = space.recount() as i64;
                    assert_eq!(space.used, recount);
                    bytes += space.used;
                    items += space.table.len() as i64;
                }
            }
            let Some(quota) = self.quotas.at(index) else { continue };
            let counted = (&quota.used, &quota.items);
            let counted = (counted.0.load(Ordering::Relaxed), counted.1.load(Ordering::Relaxed));
            assert_eq!(counted, (bytes, items), "{:?}", quota.config);
        }
    }
}
