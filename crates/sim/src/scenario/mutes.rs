//! Many clients that do not read or stop in the middle of a request, and a few others that must
//! still get their replies, or an error, in time.

use super::{Options, START, Scenario, aftermath, nanos};
use crate::client::{Habits, Mute, Wanted};
use crate::network::{MICRO, MILLI, Nanos, SECOND};
use crate::random::Random;
use crate::world::{Fault, FaultKind};
use keyway_topology::{Pool, PoolKind, RoutedPool};

/// How long after the timeout an error may arrive, with the delay of the network.
const LATE_MAX: Nanos = 110 * MILLI;

/// When the mutes leave.
pub const LEAVE_AT: Nanos = START + 4 * SECOND;

impl Scenario {
    /// Replaces the clients of the scenario with these.
    pub(super) fn beside_mutes(&mut self, random: &mut Random) {
        self.faults.clear();
        self.handovers.clear();
        self.exhaustions.clear();
        (self.drain_at, self.has_mutes) = (None, true);
        let like = self.clients.first().cloned();
        let Some(like) = like else { return };
        self.clients.clear();
        self.starts.clear();
        let plain = self.prompt_habits(like);
        for _ in 0..random.between(1, 4) {
            self.clients.push(plain.clone());
            self.starts.push(START + random.below(SECOND));
        }
        self.add_mutes(&plain, random);
        for habits in &mut self.last_clients {
            habits.prompt = None;
        }
        if random.percent(25) {
            self.have_one_silent(random);
        }
        if random.percent(30) {
            for habits in self.clients.iter_mut().filter(|habits| habits.prompt.is_some()) {
                (habits.depth, habits.batch) = (4, 4);
                if begins_anew(&self.topology.pools()[habits.pool].kind) {
                    habits.prompt = habits.prompt.map(|prompt| 2 * prompt);
                }
            }
        }
    }

    /// Returns the habits of a client that reads its replies and must get them in time.
    fn prompt_habits(&self, like: Habits) -> Habits {
        Habits {
            requests: 80,
            connections: 1,
            depth: 1,
            batch: 1,
            pause: 40 * MILLI,
            read_len: 1 << 40,
            write_len: 1 << 40,
            value_len: 64,
            large_len: 64,
            cut_percent: 0,
            local_commands: false,
            may_move: false,
            may_be_killed: false,
            silences: false,
            stateful: false,
            channels: false,
            greets: false,
            tracks: false,
            // Its own servers do all else that it waits for.
            prompt: longest(self.topology.pools(), like.pool),
            ..like
        }
    }

    /// Adds clients that do not read, or that stop in the middle of a request.
    fn add_mutes(&mut self, plain: &Habits, random: &mut Random) {
        let is_memcached = match &self.topology.pools()[plain.pool].kind {
            PoolKind::Memcached(_) | PoolKind::Routed(_) => true,
            PoolKind::Store
            | PoolKind::Sharded(_)
            | PoolKind::Cluster(_)
            | PoolKind::Replicated(_)
            | PoolKind::Slots(_)
            | PoolKind::Sentinels(_) => false,
        };
        let window = self.limits.pass_len() as u64;
        let largest = self.value_len_max as u64 - 128;
        let asks_many = random.percent(30);
        for _ in 0..random.scaled(1, 40) {
            let mute = Mute {
                wanted: Wanted::Values,
                value_len: random.scaled((window / 2).min(largest), largest) as usize,
                asks: random.scaled(1, 80) as usize,
                at_once: if asks_many { random.pick(&[1, 3]) } else { 1 },
                stops_midway: random.percent(30),
                reads: random.pick(&[0, 0, 1, 2, 5]) * random.scaled(1, largest) as usize,
                until: LEAVE_AT,
                is_memcached,
            };
            let write_len = random.scaled(1 << 10, 1 << 20) as usize;
            let read_len = random.scaled(64, 64 << 10) as usize;
            let mute = Some(mute);
            self.clients.push(Habits { mute, prompt: None, write_len, read_len, ..plain.clone() });
            self.starts.push(START + random.below(2 * SECOND) / MICRO * MICRO);
        }
    }

    /// Makes some of them ask for other things than values, in a part of the seeds, and makes other
    /// clients publish large messages. The draws have a sequence of their own: everything else that
    /// a seed decides is the same without them.
    pub(super) fn widen_mutes(&mut self, seed: u64, options: &Options) {
        let mut random = Random::new(seed ^ 0x0077_6964_656e);
        let is_drawn = random.percent(60);
        let Some(like) = self.clients.first().cloned() else { return };
        let wanted = self.wanted_of(like.pool);
        if wanted.len() == 1 || !options.wide_mutes.unwrap_or(is_drawn) {
            return;
        }
        for mute in self.clients.iter_mut().filter_map(|habits| habits.mute.as_mut()) {
            if random.percent(70) {
                mute.wanted = random.pick(&wanted);
            }
        }
        let hard = random.scaled(256 << 10, 4 << 20);
        (self.limits.pubsub_output_len_hard, self.limits.pubsub_output_len_soft) = (hard, hard);
        let value_len = random.scaled(1 << 10, 48 << 10) as usize;
        self.unread_max = hard as usize + 2 * value_len + (64 << 10);
        let is_heard = wanted.contains(&Wanted::Messages { by_pattern: true });
        for _ in 0..random.between(1, 3) {
            self.clients.push(Habits {
                is_loud: is_heard,
                value_len,
                large_len: value_len,
                requests: random.scaled(100, 600) as u32,
                pause: random.scaled(2 * MILLI, 10 * MILLI),
                // One at a time, or a request would wait to be sent after the one before it. Each
                // takes some time to be sent, in addition to the wait for others.
                depth: 1,
                batch: 1,
                prompt: like.prompt.map(|prompt| prompt + 100 * MILLI),
                ..like.clone()
            });
            self.starts.push(START + random.below(SECOND));
        }
    }

    /// Returns the requests that clients may send to a pool, as far as its servers and their
    /// ledgers support them.
    fn wanted_of(&self, pool: usize) -> Vec<Wanted> {
        let is_store = match &self.topology.pools()[pool].kind {
            PoolKind::Memcached(_) | PoolKind::Routed(_) => return vec![Wanted::Values],
            PoolKind::Store => true,
            PoolKind::Sharded(_)
            | PoolKind::Cluster(_)
            | PoolKind::Replicated(_)
            | PoolKind::Slots(_)
            | PoolKind::Sentinels(_) => false,
        };
        let mut wanted = vec![Wanted::Values, Wanted::Requests];
        wanted.extend([Wanted::Keys, Wanted::List, Wanted::Stream]);
        if self.cluster.is_none() {
            wanted.extend([true, false].map(|by_pattern| Wanted::Messages { by_pattern }));
            if is_store || self.knows_hello[pool] {
                wanted.extend([true, false].map(|is_broadcast| Wanted::Changes { is_broadcast }));
            }
        }
        wanted
    }

    /// Makes a server silent for a while. Requests to it then get an error in time.
    fn have_one_silent(&mut self, random: &mut Random) {
        let count = self.server_count();
        let server = if count > 0 { random.index(count) } else { 0 };
        let Some(pool) = self.pool_of(server) else { return };
        let aftermath = aftermath(&pool.kind);
        let (at, lasts) =
            (START + random.below(2 * SECOND), random.scaled(100 * MILLI, 3 * SECOND));
        self.faults.push(Fault { at, lasts, server, kind: FaultKind::Stall, aftermath });
    }
}

/// Returns whether the time of a request may begin when an earlier one of its client is answered.
/// In pools that lead to others, and in those that wait for a primary, the earlier one may take
/// longer than `timeout`.
fn begins_anew(kind: &PoolKind) -> bool {
    let wait = kind.discovery().and_then(|discovery| discovery.wait_for_primary);
    matches!(kind, PoolKind::Routed(_)) || wait.is_some()
}

/// Returns the longest time that a request may take in a pool that leads to others: that of each
/// child that is asked after another. A store answers at once, so it has none.
fn longest(pools: &[Pool], pool: usize) -> Option<Nanos> {
    let of = |child: &u16| longest(pools, usize::from(*child));
    match &pools[pool].kind {
        PoolKind::Routed(routed) => {
            let children = routed.children();
            let times = || children.iter().filter_map(of);
            match routed {
                // The keys of a failed read are asked again separately, of the first child again.
                RoutedPool::Failover(_) => {
                    Some(times().sum::<Nanos>() + times().next().unwrap_or(0))
                }
                RoutedPool::Mirror(_) => Some(times().sum()),
                RoutedPool::MissThen(miss_then) => {
                    // The remaining time of an item is asked of the child that has it.
                    let asks = miss_then.fill_ttl_max.and_then(|_| times().max());
                    Some(times().sum::<Nanos>() + asks.unwrap_or(0))
                }
                _ => times().max(),
            }
        }
        PoolKind::Store => Some(LATE_MAX),
        kind => {
            let wait = kind.discovery().and_then(|discovery| discovery.wait_for_primary);
            let timeout = nanos(kind.servers()?.options.timeout);
            Some(timeout + wait.map_or(0, nanos) + LATE_MAX)
        }
    }
}
