//! Records what really happened, which only the simulation can know: which writes a server
//! executed, where a key belongs, and when a fault may excuse an error.

mod bounds;
mod channels;
mod clusters;
mod copies;
mod entries;
mod holds;
mod routes;
mod stateful;

use crate::network::Nanos;
use crate::wire::clip;
use keyway_topology::{BackendId, HealthBoard, Pool, PoolKind, Rejoin, Ring, ServerSet};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use channels::{ChannelKind, Subscription};
pub use clusters::Refused;
pub use copies::Copy;
pub use entries::{EntryId, StreamAtRest, StreamRead};
pub use routes::Reach;

/// A pool of servers, as the oracles know it.
pub struct KnownPool {
    /// Its servers, as configured.
    pub pool: ServerSet,
    /// True if its servers use memcached's protocol.
    is_memcached: bool,
    /// True if its servers are sentinels.
    pub is_of_sentinels: bool,
    /// The ring over all its servers.
    ring: Ring,
    /// The index of its first server among those of all pools.
    pub first_server: usize,
    /// True if every key stays on its server, because no server is ejected.
    pub is_static: bool,
    /// How often a server lost its data.
    pub losses: u64,
}

/// Everything that could make a read differ from the last acknowledged write. While it stays the
/// same, nothing may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    epoch: u64,
    losses: u64,
    stragglers: u64,
}

/// The writes of one transaction.
#[derive(Default)]
struct Group {
    writes: Vec<u64>,
    /// True if `EXEC` was asked.
    is_closed: bool,
}

/// An element of a list, and its fate.
struct Element {
    list: Vec<u8>,
    is_pushed: bool,
    /// Which server popped it, and when.
    popped: Option<(usize, Nanos)>,
    /// True if it has reached its client, or can not have.
    is_settled: bool,
    /// Set when a client was told that it is in a list of an embedded store: the pool, and when the
    /// client had asked.
    told: Option<(usize, Nanos)>,
}

/// The record into which servers enter what they did. From it clients read what they may be told.
pub struct Ledger {
    /// The pools. `None` for the embedded store.
    pub pools: Vec<Option<KnownPool>>,
    health: Arc<HealthBoard>,
    /// By the number of the write: a bit for each pool that has executed it.
    executed: Vec<u8>,
    /// By the number of the write: whether a client was told that it was not executed.
    denied: Vec<bool>,
    /// Number of writes that were executed on connections that the worker had given up, by key.
    stragglers: BTreeMap<Vec<u8>, u64>,
    /// By server: how often a worker had it flushed.
    flushes: Vec<u64>,
    /// By server: when it last became empty where that matters.
    emptied: Vec<Nanos>,
    /// By server: how often it was ejected, and when that was last seen.
    ejected: Vec<(u64, Nanos)>,
    /// By server: number of returns that were checked.
    returns: Vec<u64>,
    /// By server: the times in which a fault may excuse an error.
    troubles: Vec<Vec<(Nanos, Nanos)>>,
    /// By the number of the write: its transaction.
    group_of: BTreeMap<u64, usize>,
    groups: Vec<Group>,
    /// Writes that the current request has executed.
    recent: Vec<u64>,
    elements: Vec<Element>,
    /// Shared counters of embedded stores, and the values to which they were raised.
    raised: BTreeSet<(Vec<u8>, i64)>,
    /// Clients that left while they waited for elements: their lists, the time since which they
    /// waited, and the time until which an element may have been meant for them.
    departures: Vec<(Vec<Vec<u8>>, Nanos, Nanos)>,
    /// By client: number of requests in flight to unblock it, and when the last one was over.
    unblocks: BTreeMap<i64, (u32, Nanos)>,
    /// By client: the time from which it was certainly blocked and had to be unblocked, and when
    /// that was known.
    must_end: BTreeMap<i64, (Nanos, Nanos)>,
    streams: entries::Streams,
    messages: channels::Messages,
    copies: copies::Copies,
    copies_executed: u64,
    /// The current time.
    pub now: Nanos,
    /// Number of transactions that were executed while the keys that they watched were unchanged.
    pub commits: u64,
    /// Number of cached values that clients were told to drop.
    pub invalidations: u64,
    /// Number of elements that reached their clients.
    pub deliveries: u64,
    /// Number of entries of streams that reached clients which may have waited for them.
    pub entries: u64,
    /// The first violation.
    pub violation: Option<String>,
    /// Number of replies checked.
    pub replies: u64,
    /// Number of error replies that a fault excused.
    pub excused: u64,
    /// Number of items that were copied from one server to another.
    pub moves: u64,
    /// By the number of the write: when it was asked.
    asked_at: Vec<Nanos>,
    /// The record of the cluster, if the pool is one.
    cluster: Option<clusters::ClusterBook>,
    /// By pool: the pools to which it leads.
    reaches: Vec<Option<Reach>>,
    /// Counts differences that cannot be judged.
    uncertain: Cell<u64>,
    /// By pool: the old pool from which it gets its missing items.
    old_pools: Vec<Option<usize>>,
    /// The values that servers have had from the beginning and no client has read yet, by pool and key.
    heirlooms: BTreeMap<(usize, Vec<u8>), Vec<u8>>,
    bounded: Option<bounds::BoundedStore>,
    held: holds::Held,
    /// Number of writes that a store refused because it had no room.
    pub refused_for_room: u64,
    /// Number of reads that missed keys which were evicted.
    pub gone: u64,
}

impl Ledger {
    /// Creates an empty ledger for these pools.
    pub fn new(pools: &[Pool], servers: usize, health: Arc<HealthBoard>) -> Self {
        let mut first_server = 0;
        let mut know = |pool: &Pool| {
            let set = pool.kind.servers()?.clone();
            let first = first_server;
            first_server += set.servers.len();
            Some(KnownPool {
                ring: set.ring(|_| true),
                first_server: first,
                is_static: set.options.ejection.is_none(),
                is_memcached: matches!(pool.kind, PoolKind::Memcached(_)),
                is_of_sentinels: matches!(pool.kind, PoolKind::Sentinels(_)),
                losses: 0,
                pool: set,
            })
        };
        Self {
            pools: pools.iter().map(&mut know).collect(),
            health,
            executed: Vec::new(),
            denied: Vec::new(),
            stragglers: BTreeMap::new(),
            flushes: vec![0; servers],
            emptied: vec![0; servers],
            ejected: vec![(0, 0); servers],
            returns: vec![0; servers],
            troubles: vec![Vec::new(); servers],
            group_of: BTreeMap::new(),
            groups: Vec::new(),
            recent: Vec::new(),
            elements: Vec::new(),
            raised: BTreeSet::new(),
            departures: Vec::new(),
            unblocks: BTreeMap::new(),
            must_end: BTreeMap::new(),
            streams: entries::Streams::default(),
            messages: channels::Messages::default(),
            copies: copies::Copies::new(),
            copies_executed: 0,
            now: 0,
            commits: 0,
            invalidations: 0,
            deliveries: 0,
            entries: 0,
            violation: None,
            replies: 0,
            excused: 0,
            moves: 0,
            asked_at: Vec::new(),
            cluster: None,
            reaches: Vec::new(),
            uncertain: Cell::new(0),
            old_pools: Vec::new(),
            heirlooms: BTreeMap::new(),
            bounded: None,
            held: holds::Held::default(),
            refused_for_room: 0,
            gone: 0,
        }
    }

    /// Notes a violation. The first one counts.
    pub fn fail(&mut self, text: impl FnOnce() -> String) {
        self.violation.get_or_insert_with(text);
    }

    /// Returns a number for a write that is about to be asked.
    pub fn new_write(&mut self) -> u64 {
        self.executed.push(0);
        self.denied.push(false);
        self.asked_at.push(self.now);
        self.executed.len() as u64 - 1
    }

    /// Notes that a server of a pool executed a write.
    pub fn on_executed(&mut self, pool: usize, write: u64, key: &[u8], is_straggler: bool) {
        let (index, own) = (write as usize, 1u8 << pool);
        let Some(executed) = self.executed.get_mut(index) else {
            return self.fail(|| format!("write {write} of {} was never asked for", clip(key)));
        };
        let was_executed = *executed & own != 0;
        *executed |= own;
        self.recent.push(write);
        if was_executed {
            self.fail(|| format!("write {write} of {} was executed twice", clip(key)));
        }
        if self.denied[index] && own & self.shadows() == 0 {
            self.fail(|| {
                format!(
                    "write {write} of {} was executed although its client was told that it was not",
                    clip(key)
                )
            });
        }
        if is_straggler {
            self.on_straggler(key);
        }
        self.check_order(pool, write, key, is_straggler);
    }

    /// Notes that a server changed a key for a connection that the worker had given up.
    pub fn on_straggler(&mut self, key: &[u8]) {
        *self.stragglers.entry(key.to_vec()).or_default() += 1;
    }

    /// Sets the old pool from which each pool gets its missing items.
    pub fn know_old_pools(&mut self, old_pools: Vec<Option<usize>>) {
        self.old_pools = old_pools;
    }

    fn old_pool(&self, pool: usize) -> Option<usize> {
        self.old_pools.get(pool).copied().flatten()
    }

    /// Makes the old pool of this one, if it has one, hold this value. Returns whether it has one.
    pub fn bequeath(&mut self, pool: usize, key: &[u8], value: Vec<u8>, write: u64) -> bool {
        let Some(old) = self.old_pool(pool) else { return false };
        self.on_executed(old, write, key, false);
        self.heirlooms.insert((old, key.to_vec()), value);
        true
    }

    /// Returns the value of this key that a server of `pool` has had from the beginning, when the
    /// key is first asked.
    pub fn take_heirloom(&mut self, pool: usize, key: &[u8]) -> Option<Vec<u8>> {
        self.heirlooms.remove(&(pool, key.to_vec()))
    }

    /// Returns whether a pool gets its missing items from another.
    pub fn is_warmed_up(&self, pool: usize) -> bool {
        self.old_pool(pool).is_some()
    }

    /// Notes that a server of a pool lost its data.
    pub fn on_loss(&mut self, pool: usize) {
        // If one server has lost something, nothing is known of the others' data either.
        self.heirlooms.retain(|(owner, _), _| *owner != pool);
        if let Some(known) = &mut self.pools[pool] {
            known.losses += 1;
        }
    }

    /// Notes that a worker had a server flushed. That is allowed only while the server is out of
    /// use, and only if that is the policy.
    pub fn on_flush(&mut self, pool: usize, server: usize, is_straggler: bool) {
        self.on_loss(pool);
        self.flushes[server] += 1;
        self.emptied[server] = self.now;
        let is_policy = self.pools[pool].as_ref().is_some_and(is_flushed);
        if !is_policy || (!is_straggler && self.health.is_usable(self.id_of(server))) {
            self.fail(|| format!("server {server} was emptied while in use"));
        }
    }

    fn id_of(&self, server: usize) -> BackendId {
        self.health.backends().nth(server).expect("a server of the scenario")
    }

    /// Notes that an empty server of memcached got its marker.
    pub fn on_found_empty(&mut self, server: usize) {
        self.emptied[server] = self.now;
    }

    /// Checks that a server of memcached that comes back was empty at some time since its ejection.
    fn check_emptied(&mut self, server: usize) {
        let backend = self.id_of(server);
        let ejections = self.health.ejections(backend);
        if ejections > self.ejected[server].0 {
            self.ejected[server] = (ejections, self.now);
        }
        let rejoins = self.health.rejoins(backend);
        if rejoins > self.returns[server] {
            self.returns[server] = rejoins;
            if self.emptied[server] < self.ejected[server].1 {
                self.fail(|| format!("server {server} is back in use with what it held before"));
            }
        }
    }

    /// Checks that servers whose policy demands it were flushed before each return.
    pub fn check_rejoins(&mut self) {
        let of_memcached = self.pools.iter().flatten().filter(|known| is_flushed(known));
        let of_memcached = of_memcached.filter(|known| known.is_memcached);
        let servers = of_memcached.map(|known| (known.first_server, known.pool.servers.len()));
        for (first, count) in servers.collect::<Vec<_>>() {
            (first..first + count).for_each(|server| self.check_emptied(server));
        }
        for known in self.pools.iter().flatten().filter(|known| is_flushed(known)) {
            if known.is_memcached {
                continue;
            }
            for server in known.first_server..known.first_server + known.pool.servers.len() {
                let rejoins = self.health.rejoins(self.id_of(server));
                if rejoins > self.flushes[server] {
                    let text = format!("server {server} is back in use with what it held before");
                    self.violation.get_or_insert(text);
                }
            }
        }
    }

    /// Notes that a client was told that a write was not executed.
    pub fn on_denied(&mut self, write: u64) {
        self.denied[write as usize] = true;
        if self.executed[write as usize] & !self.shadows() != 0 {
            self.fail(|| format!("write {write} was executed, yet its client is told it was not"));
        }
    }

    /// Notes that a client was told that a write was executed.
    pub fn on_acknowledged(&mut self, pool: usize, write: u64) {
        // The changes of the embedded store can be seen only by reading it.
        let is_seen = self.pools[pool].is_some() || self.is_routed(pool);
        if is_seen && self.executed[write as usize] == 0 {
            self.fail(|| format!("write {write} was acknowledged and never executed"));
        }
    }

    /// Returns everything that could excuse a difference, as of now.
    pub fn circumstances(&self, pool: usize, key: &[u8]) -> Circumstances {
        self.circumstances_since(pool, key, None)
    }

    /// As [`Ledger::circumstances`], for a client that has waited for a reply since that time. Its
    /// next request may use up its time behind the earlier ones.
    pub fn circumstances_since(
        &self,
        pool: usize,
        key: &[u8],
        since: Option<Nanos>,
    ) -> Circumstances {
        let led = self.routed_circumstances(pool, key, since);
        if let Some(all) = led.or_else(|| self.cluster_circumstances(key)) {
            return all;
        }
        let Some(known) = &self.pools[pool] else {
            return Circumstances { epoch: 0, losses: 0, stragglers: 0 };
        };
        let old = self.old_pool(pool).and_then(|old| Some((old, self.pools[old].as_ref()?)));
        Circumstances {
            epoch: self.held.moves.get(&pool).copied().unwrap_or(0)
                + self.health.pool_epoch(pool)
                + old.map_or(0, |(old, _)| self.health.pool_epoch(old)),
            losses: known.losses + old.map_or(0, |(_, old)| old.losses),
            stragglers: self.stragglers.get(key).copied().unwrap_or(0),
        }
    }

    /// Returns the index among all pools of the server to which a key belongs while none is
    /// ejected. In a cluster this is the key's slot, and for the embedded store `None`.
    pub fn home(&self, pool: usize, key: &[u8]) -> Option<usize> {
        if let Some(home) = self.cluster_home(key) {
            return Some(home);
        }
        let known = self.pools[pool].as_ref()?;
        let index = known.ring.pick(known.pool.hash_key(key), 0)?;
        Some(known.first_server + usize::from(index))
    }

    /// Returns the servers where requests for a key may fail: its home, or every server of a pool
    /// in which keys move.
    pub fn possible_homes(&self, pool: usize, key: &[u8]) -> Vec<usize> {
        let mut homes = self.own_homes(pool, key);
        if let Some(old) = self.old_pool(pool) {
            homes.extend(self.own_homes(old, key));
        }
        homes
    }

    /// Returns whether a read asked at `since` may miss what is there. Failures of the old pool
    /// fail no read. A circuit of the new pool that probes its server admits only a few requests:
    /// it may admit the read and refuse the item that is copied over. It does so after a fault of
    /// any age, because it waits for requests.
    pub fn may_miss(&self, pool: usize, key: &[u8], since: Nanos) -> bool {
        let Some(old) = self.old_pool(pool) else { return false };
        let has_circuit = |known: &KnownPool| known.pool.options.circuit.is_some();
        self.is_excused(&self.own_homes(old, key), since, self.now)
            || (self.pools[pool].as_ref().is_some_and(has_circuit)
                && self.is_excused(&self.own_homes(pool, key), 0, self.now))
    }

    /// Returns whether a read asked at `since` may find that an item was removed again: the new
    /// pool's server lost a connection while the item was copied over. Then it is unknown whether a
    /// client has deleted the item in the old pool, and a copy of a deleted item must not stay.
    pub fn may_be_taken_back(&self, pool: usize, key: &[u8], since: Nanos) -> bool {
        self.old_pool(pool).is_some()
            && self.is_excused(&self.own_homes(pool, key), since, self.now)
    }

    fn own_homes(&self, pool: usize, key: &[u8]) -> Vec<usize> {
        match &self.pools[pool] {
            None => Vec::new(),
            Some(_) if self.is_cluster() => self.servers_of(pool),
            Some(known) if known.is_static => self.home(pool, key).into_iter().collect(),
            Some(known) => {
                (known.first_server..known.first_server + known.pool.servers.len()).collect()
            }
        }
    }

    /// Returns every server of a pool.
    pub fn servers_of(&self, pool: usize) -> Vec<usize> {
        if self.is_cluster() {
            return (0..self.troubles.len()).collect();
        }
        self.pools.get(pool).and_then(Option::as_ref).map_or(Vec::new(), |known| {
            (known.first_server..known.first_server + known.pool.servers.len()).collect()
        })
    }

    /// Notes that a server's misbehaviour may cause errors from `from` to `until`.
    pub fn on_trouble(&mut self, server: usize, from: Nanos, until: Nanos) {
        self.troubles[server].push((from, until));
    }

    /// Returns whether one of these servers may have failed between two times.
    pub fn is_excused(&self, servers: &[usize], from: Nanos, until: Nanos) -> bool {
        servers.iter().any(|&server| {
            self.troubles[server].iter().any(|&(start, end)| start <= until && from <= end)
        })
    }

    /// Returns when the last fault stops to excuse errors.
    pub fn calm_from(&self) -> Nanos {
        self.troubles.iter().flatten().map(|&(_, end)| end).max().unwrap_or(0)
    }
}

/// Returns whether servers of a pool are flushed before they return.
fn is_flushed(known: &KnownPool) -> bool {
    known.pool.options.ejection.is_some_and(|ejection| ejection.rejoin == Rejoin::Flush)
}
