//! Memory bounds of embedded stores, and clients that fill these stores.

use super::{START, Scenario};
use crate::client::{Habits, Hoard, Mix, Mute, Wanted};
use crate::network::{MICRO, SECOND};
use crate::random::Random;
use crate::scenario::Options;
use keyway_store::EvictionPolicy;
use keyway_topology::PoolKind;

/// Of a hundred seeds with a store, the number that bound its memory. Such a seed takes as long as
/// thirty others.
const SHARE: u64 = 12;
/// The smallest bound that Keyway promises to keep.
pub const BOUND_KEPT: u64 = 32 << 20;
/// Length of the longest value of clients that fill a store.
const VALUE_LEN_MAX: u64 = 1500 << 10;
/// Length of the longest item that a listener for memcached accepts.
pub const MEMCACHED_ITEM_MAX: u32 = 4 << 20;
/// Smallest capacity of connections. With less, values of megabytes would take a whole run.
const CAPACITY_MIN: usize = 32 << 10;
/// Policies to pick from. The more likely one is listed more than once.
const POLICIES: [EvictionPolicy; 12] = [
    EvictionPolicy::NoEviction,
    EvictionPolicy::NoEviction,
    EvictionPolicy::NoEviction,
    EvictionPolicy::NoEviction,
    EvictionPolicy::AllKeysLru,
    EvictionPolicy::AllKeysLfu,
    EvictionPolicy::AllKeysRandom,
    EvictionPolicy::AllKeysS3Fifo,
    EvictionPolicy::VolatileLru,
    EvictionPolicy::VolatileLfu,
    EvictionPolicy::VolatileRandom,
    EvictionPolicy::VolatileTtl,
];

/// The memory bound of an embedded store.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// The store's pool.
    pub pool: usize,
    /// The bound in bytes.
    pub memory_max: u64,
    /// The eviction policy.
    pub policy: EvictionPolicy,
    /// Length of the longest item, with its name.
    pub item_len_max: u64,
    /// True if the store also has a listener for memcached.
    pub has_memcached: bool,
}

impl Bound {
    /// Returns the largest number of bytes that the store may count, whatever is in flight.
    pub fn most(&self) -> u64 {
        match self.memory_max >= BOUND_KEPT {
            true => self.memory_max + self.memory_max / 50 + self.item_len_max,
            // The smallest stores have been seen to take twice the bound.
            false => 2 * self.memory_max + self.item_len_max,
        }
    }

    /// Returns whether keys with an expiry may be evicted.
    pub fn may_expiring_go(&self) -> bool {
        self.policy != EvictionPolicy::NoEviction
    }

    /// Returns whether every key may be evicted.
    pub fn may_all_go(&self) -> bool {
        matches!(
            self.policy,
            EvictionPolicy::AllKeysLru
                | EvictionPolicy::AllKeysLfu
                | EvictionPolicy::AllKeysRandom
                | EvictionPolicy::AllKeysS3Fifo
        )
    }
}

impl Scenario {
    /// Returns the pool of the additional listener, if there is one.
    pub fn second_listener(&self) -> Option<usize> {
        self.bound.filter(|bound| bound.has_memcached).map(|bound| bound.pool)
    }

    /// Bounds a store in a part of the seeds, and adds clients that fill it. The draws have a
    /// sequence of their own: everything else that a seed decides is the same without them.
    pub(super) fn bound_a_store(&mut self, seed: u64, options: &Options) {
        let mut random = Random::new(seed ^ 0x6d65_6d6f_7279);
        let is_drawn = random.percent(SHARE);
        if options.is_defective() || !options.bounds.unwrap_or(is_drawn) {
            return;
        }
        let pools = self.topology.pools().iter().enumerate();
        let stores = pools.filter(|(_, pool)| matches!(pool.kind, PoolKind::Store));
        let stores: Vec<usize> = stores.map(|(index, _)| index).collect();
        if stores.is_empty() {
            return;
        }
        let pool = random.pick(&stores);
        let memory_max = match random.percent(25) {
            true => random.scaled(4 << 20, 24 << 20),
            false => random.scaled(BOUND_KEPT, 48 << 20),
        };
        let longest = VALUE_LEN_MAX.min(memory_max / 8);
        let value_len = random.scaled(longest / 10, longest);
        let bound = Bound {
            pool,
            memory_max,
            policy: random.pick(&POLICIES),
            item_len_max: value_len.max(self.value_len_max as u64) + 1024,
            has_memcached: random.percent(30),
        };
        self.bound = Some(bound);
        self.network.capacity = self.network.capacity.max(CAPACITY_MIN);
        self.network.read_len = self.network.read_len.max(CAPACITY_MIN / 2);
        self.limits.read_len_per_turn = self.limits.read_len_per_turn.max(CAPACITY_MIN as u32);
        self.value_len_max = self.value_len_max.max(value_len as usize + 128);
        if bound.may_all_go() {
            // The content of a list or a stream is known only if it is never evicted.
            let all = self.clients.iter_mut().chain(&mut self.last_clients);
            all.filter(|habits| habits.pool == pool).for_each(|habits| habits.lists = false);
        }
        let may_be_killed = self.clients.iter().any(|habits| habits.may_be_killed);
        let count = random.scaled(2, 16);
        // Some stores stay below their bound, and some are filled several times.
        let filled = random.scaled(memory_max * 8 / 10, memory_max * 2);
        let keys = (filled / count / (value_len * 9 / 16)).clamp(3, 400);
        for number in 0..count {
            let mut habits = self.hoarder(&mut random, &bound, (value_len, keys));
            (habits.may_move, habits.may_be_killed) = (!self.handovers.is_empty(), may_be_killed);
            if bound.has_memcached && number % 2 == 1 {
                (habits.mix, habits.databases) = (Mix::Memcached, 1);
                habits.hoard = Some(Hoard { expires: false });
                habits.listener = self.topology.pools().len() as u16;
            }
            self.clients.push(habits);
            self.starts.push(START + random.below(SECOND));
        }
        // Values that are half sent, or lent to clients that do not read, count as well.
        for _ in 0..random.below(12) {
            let mute = Mute {
                wanted: Wanted::Values,
                value_len: random.between(value_len / 2, value_len) as usize,
                asks: random.pick(&[0, 0, 1, 3]),
                at_once: 1,
                stops_midway: true,
                reads: 0,
                until: START + random.between(1, 5) * SECOND,
                is_memcached: false,
            };
            let habits = self.hoarder(&mut random, &bound, (value_len, keys));
            self.clients.push(Habits { mute: Some(mute), prompt: None, ..habits });
            self.starts.push(START + random.below(3 * SECOND));
        }
    }

    fn hoarder(&self, random: &mut Random, bound: &Bound, (value_len, keys): (u64, u64)) -> Habits {
        // This many requests are asked at once, and their values wait to be sent.
        let batch = ((1 << 20) / value_len).clamp(1, 8) as usize;
        Habits {
            mix: Mix::Hoard,
            requests: (keys * random.between(13, 24) / 10) as u32,
            connections: 1,
            depth: random.scaled(2, 40) as usize,
            batch,
            pause: random.scaled(10 * MICRO, 500 * MICRO),
            read_len: random.scaled(16 << 10, 1 << 20) as usize,
            write_len: 128 << 10,
            value_len: value_len as usize,
            large_len: value_len as usize,
            keys: keys as usize,
            databases: random.pick(&[1, 1, 4]),
            cut_percent: random.pick(&[0, 0, 30]),
            local_commands: false,
            silences: false,
            stateful: false,
            channels: false,
            greets: false,
            tracks: false,
            lists: false,
            may_be_ended: true,
            mute: None,
            hoard: Some(Hoard { expires: bound.may_expiring_go() && random.percent(70) }),
            ..self.habits(random, bound.pool, value_len as usize)
        }
    }
}
