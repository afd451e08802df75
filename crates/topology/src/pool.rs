use std::fmt;
use std::ops::Range;
use std::time::Duration;

use keyway_base::Limits;

use crate::{
    Circuit, Distribution, Endpoint, Hash, HashTag, Outliers, Ring, RoutedPool, Server, SlotOwners,
};

/// Version of a [`Topology`]: grows with every one that is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Names one backend of one [`Topology`], which alone hands ids out. A server listed in two pools
/// is two backends.
///
/// The low 24 bits are the backend's place in the row of all servers of all pools, from 0. The
/// high 8 bits are the generation of the topology in which its pool began. A later topology
/// refuses the id of a pool that it does not keep, also where another server has the place. An
/// id that outlives 256 topologies may be taken for another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendId(pub(crate) u32);

impl BackendId {
    /// Bits of the place. Fewer bound the servers of a process; more leave fewer generations.
    const INDEX_BITS: u32 = 24;

    fn new(index: usize, generation: u8) -> BackendId {
        BackendId(index as u32 | u32::from(generation) << BackendId::INDEX_BITS)
    }

    /// The id of the server that is so many places behind this one in its pool.
    #[inline]
    fn nth(self, server_index: usize) -> BackendId {
        BackendId(self.0 + server_index as u32)
    }

    /// The place, as an array position in what is kept of one topology.
    #[inline]
    pub fn index(self) -> usize {
        (self.0 & ((1 << BackendId::INDEX_BITS) - 1)) as usize
    }
}

/// A secret sent to backends or expected from clients. Printing it shows
/// nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Box<str>);

impl Password {
    /// Wraps the secret.
    pub fn new(secret: &str) -> Password {
        Password(secret.into())
    }

    /// The secret itself, for the wire only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(hidden)")
    }
}

/// What happens with an ejected server that answers again. Meanwhile its keys
/// were written elsewhere, so whatever it still holds may be stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejoin {
    /// It serves at once, stale values included (as in twemproxy).
    Serve,
    /// It is emptied first, then serves.
    Flush,
    /// It stays out of use for this long after it answered, or, with `None`,
    /// until an operator restores it.
    Quarantine(Option<Duration>),
}

/// When a failing server is taken out of the ring and how it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Failures in a row that eject it, 1 or more (twemproxy:
    /// `server_failure_limit`, 2 by default). Counted up to 100,000.
    pub after_failures: u32,
    /// How long it stays out before it is tried again (twemproxy:
    /// `server_retry_timeout`, 30 s by default).
    pub for_: Duration,
    /// What happens when it answers again.
    pub rejoin: Rejoin,
}

/// What the servers of a pool speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerProtocol {
    /// RESP.
    #[default]
    Redis,
    /// memcached's text protocol without meta commands.
    MemcachedText,
    /// memcached's text protocol with meta commands, of 1.6 and later.
    MemcachedMeta,
    /// memcached's binary protocol.
    MemcachedBinary,
}

impl ServerProtocol {
    /// Whether it is one of memcached's.
    pub fn is_memcached(self) -> bool {
        self != ServerProtocol::Redis
    }
}

/// Where a pool of memcached gets the items that it does not have yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmUp {
    /// The name of the pool that has them.
    pub from: String,
    /// Expiry of items of which the old servers cannot tell the time left.
    pub ttl_max: Duration,
    /// How long after the start it goes on; without end when `None`.
    pub lasts: Option<Duration>,
}

/// How the servers of a cluster are asked who owns which slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discovery {
    /// `CLUSTER SLOTS`, which every version has.
    #[default]
    Slots,
    /// `CLUSTER SHARDS`, of Redis 7 and later: it tells how replicas are.
    Shards,
    /// `CLUSTER NODES`: it has the epochs by which an old view is known.
    Nodes,
    /// Sentinels, which are in a pool of their own.
    Sentinel,
    /// `INFO replication`, of every server listed: one of them is the primary.
    Roles,
}

impl ClusterPool {
    /// The word for it in configuration files.
    pub fn kind(&self) -> &'static str {
        if self.discovery.has_slots() { "cluster" } else { "replicated" }
    }
}

impl Discovery {
    /// Whether it is of a Redis Cluster, whose keys have slots.
    pub fn has_slots(self) -> bool {
        matches!(self, Discovery::Slots | Discovery::Shards | Discovery::Nodes)
    }
}

/// Which servers of a primary's data are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// The primary.
    #[default]
    Primary,
    /// A replica, or the primary while none can be read.
    PreferReplica,
    /// A replica; an error while none can be read.
    Replica,
    /// Whichever answers fastest.
    Nearest,
    /// One of this availability zone, else as with `PreferReplica`.
    Zone(Box<str>),
}

/// What is read from replicas, and from which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadPolicy {
    /// Which servers.
    pub from: ReadFrom,
    /// How long after a write of its own a client reads from the primary.
    pub pin_after_write: Option<Duration>,
    /// How far behind its primary a replica may be; it is not read otherwise.
    pub lag_max: Option<Duration>,
    /// Shares of servers that get more, or less, than others' 1; 0 for none.
    pub weights: Vec<(Endpoint, u32)>,
    /// Commands that go to the primary whatever they are, in lower case.
    pub primary_commands: Vec<Box<str>>,
    /// Clients of some listeners read from the nearest, whatever `from` is.
    pub is_nearest_for_some: bool,
    /// When a server is left out for being worse than the others; never when `None`.
    pub outliers: Option<Outliers>,
    /// When a read is sent to a second server as well.
    pub hedge: Option<HedgePolicy>,
}

/// When a read that has no answer yet is sent to a second server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HedgePolicy {
    /// How long after it was sent to the first.
    pub after: HedgeAfter,
    /// Of a hundred reads, so many may be sent twice.
    pub budget_percent: u8,
}

/// How long a read waits for its first server alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeAfter {
    /// As long as 99 of 100 requests of the pool took of late, within bounds.
    P99 {
        /// At least so long.
        min: Duration,
        /// At most so long, and while nothing is known.
        max: Duration,
    },
    /// Always so long.
    Fixed(Duration),
}

/// What makes a pool of servers a Redis Cluster, or primaries with their replicas: who
/// its servers are is found out while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterPool {
    /// Servers to ask first, and again when no other answers.
    pub seeds: Vec<Endpoint>,
    /// Most servers at once: [`ShardedPool::servers`] has a place for each.
    pub nodes_max: u16,
    /// How they are asked.
    pub discovery: Discovery,
    /// How long after it was told a view is asked for again.
    pub refresh: Duration,
    /// How often one request is sent elsewhere before its client gets the error.
    pub redirections_max: u8,
    /// For a hundred requests of clients, so many may be sent again; `None`: any number.
    pub retry_percent: Option<u8>,
    /// Longest wait of an unsent request for a primary that is gone. `None`: it
    /// fails at once.
    pub wait_for_primary: Option<Duration>,
    /// What is read from replicas.
    pub reads: ReadPolicy,
    /// Names of the primaries that keys are placed on, as Sentinel calls them; none in a
    /// cluster.
    pub primaries: Vec<String>,
    /// The pool of the sentinels.
    pub sentinels: Option<String>,
}

/// A pool that spreads keys over servers by hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardedPool {
    /// What the servers speak.
    pub protocol: ServerProtocol,
    /// Hash of the key.
    pub hash: Hash,
    /// From the hash to a server.
    pub distribution: Distribution,
    /// Which part of the key is hashed; the whole key when `None`.
    pub hash_tag: Option<HashTag>,
    /// The servers, 1 to 65,535, in the order configured, which affects
    /// placement with the distributions of libmemcached and PHP's memcache only.
    pub servers: Vec<Server>,
    /// How long a request may wait for its reply once sent; `Duration::MAX`
    /// for ever.
    pub timeout: Duration,
    /// How long a connection and its handshake may take to be established.
    pub connect_timeout: Duration,
    /// Connections a worker keeps to each server, 1 or more. With more than
    /// one, requests of different keys may overtake each other.
    pub server_connections: u16,
    /// Connect to every server at start rather than at the first request.
    pub preconnect: bool,
    /// The name sent with the password, where servers of memcached want one.
    pub user: Option<String>,
    /// Sent to servers with `AUTH`, or with SASL PLAIN.
    pub password: Option<Password>,
    /// Database selected on every server connection, from 0.
    pub database: u32,
    /// How many databases a client may `SELECT`, from 0 on; 1 allows only
    /// database 0.
    pub databases_allowed: u32,
    /// Whether clients may empty every server with `FLUSHDB` and `FLUSHALL`.
    pub allow_flush: bool,
    /// How long a server may take for a request that is not slow;
    /// `Duration::MAX` when none is.
    pub slower_than: Duration,
    /// Slow requests kept.
    pub slow_log_len_max: u32,
    /// When servers are ejected; never when `None`.
    pub ejection: Option<Ejection>,
    /// When servers are not asked for a while; always asked when `None`.
    pub circuit: Option<Circuit>,
    /// Wait before the first attempt to reconnect; doubles with each failure.
    pub reconnect_min: Duration,
    /// Longest wait between attempts to reconnect.
    pub reconnect_max: Duration,
    /// Requests queued on one connection, sent or not, before clients that
    /// need it are left unread.
    pub link_in_flight_max: u32,
    /// Unsent bytes on one connection before clients that need it are left
    /// unread.
    pub link_output_len_max: u32,
    /// Where missing items come from.
    pub warm_up: Option<WarmUp>,
    /// Its servers are found out. They, and in a cluster hash and tag, are as
    /// [`ShardedPool::of_cluster`] makes them.
    pub cluster: Option<Box<ClusterPool>>,
    /// Its servers are sentinels, asked by Keyway alone.
    pub is_sentinels: bool,
}

impl ShardedPool {
    /// The word for it in configuration files.
    pub fn kind(&self) -> &'static str {
        match self.protocol.is_memcached() {
            true => "memcached",
            false if self.is_sentinels => "sentinels",
            false => self.cluster.as_ref().map_or("sharded", |cluster| cluster.kind()),
        }
    }

    /// The ring over the primaries of a pool that is no cluster, by their names.
    pub fn ring_of_primaries(&self) -> Option<Ring> {
        let primaries = &self.cluster.as_ref()?.primaries;
        let named = |name: &String| {
            let endpoint = Endpoint::Tcp { host: name.clone(), port: 1 };
            Server { endpoint, name: Some(name.clone()), weight: 1 }
        };
        let servers: Vec<Server> = primaries.iter().map(named).collect();
        let is_replicated = !servers.is_empty();
        is_replicated.then(|| Ring::build(self.distribution, self.hash, &servers, |_| true))
    }

    /// A pool with every setting at its default: twemproxy's placement
    /// (`fnv1a_64`, `ketama`, no tag), no ejection, and times that suit a
    /// local network.
    pub fn with_servers(servers: Vec<Server>) -> ShardedPool {
        let limits = Limits::default();
        ShardedPool {
            protocol: ServerProtocol::Redis,
            hash: Hash::Fnv1a64,
            distribution: Distribution::Ketama,
            hash_tag: None,
            servers,
            timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_millis(500),
            server_connections: 1,
            preconnect: false,
            user: None,
            password: None,
            database: 0,
            databases_allowed: 1,
            allow_flush: false,
            slower_than: Duration::from_millis(10),
            slow_log_len_max: 128,
            ejection: None,
            circuit: None,
            reconnect_min: Duration::from_millis(50),
            reconnect_max: Duration::from_secs(5),
            link_in_flight_max: limits.link_in_flight_max,
            link_output_len_max: limits.link_output_len_max,
            warm_up: None,
            cluster: None,
            is_sentinels: false,
        }
    }

    /// Servers that are found out, a Redis Cluster's by default: its servers are places, of which those that are taken are
    /// told by a [`ClusterMap`](crate::ClusterMap).
    pub fn of_cluster(cluster: ClusterPool) -> ShardedPool {
        // Seeds by other names than the servers' own take no room from these. Of one
        // server nothing would be hashed.
        let count = (usize::from(cluster.nodes_max) + cluster.seeds.len()).max(2);
        let count = count.min(usize::from(SlotOwners::NONE));
        let place = |number: usize| Server {
            endpoint: Endpoint::Tcp { host: "cluster.invalid".to_owned(), port: 1 },
            name: Some(format!("place-{number}")),
            weight: 1,
        };
        let mut pool = ShardedPool::with_servers((0..count).map(place).collect());
        pool.hash = Hash::Crc16Xmodem;
        pool.hash_tag = Some(HashTag::BRACES);
        pool.cluster = Some(Box::new(cluster));
        pool
    }

    /// The hash that decides where `key` goes: of its tag, if it has one. As in
    /// twemproxy, an empty key hashes to 0 under every function, and in a pool
    /// of one server nothing is hashed.
    #[inline]
    pub fn hash_key(&self, key: &[u8]) -> u32 {
        if self.servers.len() == 1 {
            return 0;
        }
        let hashed = match self.hash_tag {
            Some(tag) => tag.of(key),
            None => key,
        };
        if hashed.is_empty() { 0 } else { self.hash.hash(hashed) }
    }

    /// The ring over the servers for which `live` holds, by index.
    pub fn ring(&self, live: impl Fn(usize) -> bool) -> Ring {
        Ring::build(self.distribution, self.hash, &self.servers, live)
    }
}

/// What kind of pool, with what that kind needs.
#[allow(clippy::large_enum_variant, reason = "there are a few, made once at the start")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// The embedded store of this process.
    Store,
    /// Servers that share the keys by hash.
    Sharded(ShardedPool),
    /// Other pools.
    Routed(RoutedPool),
}

/// A set of backends under one routing policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// As configured: label of metrics, name in logs and listeners.
    pub name: String,
    /// How requests are routed.
    pub kind: PoolKind,
}

impl Pool {
    /// The servers of the pool itself; none for the embedded store and for pools of
    /// pools.
    pub fn servers(&self) -> &[Server] {
        match &self.kind {
            PoolKind::Store | PoolKind::Routed(_) => &[],
            PoolKind::Sharded(sharded) => &sharded.servers,
        }
    }

    /// When the pool does not ask a server for a while.
    pub fn circuit(&self) -> Option<Circuit> {
        match &self.kind {
            PoolKind::Store | PoolKind::Routed(_) => None,
            PoolKind::Sharded(sharded) => sharded.circuit,
        }
    }

    /// What is read from replicas, if anything is.
    pub fn reads(&self) -> Option<&ReadPolicy> {
        let PoolKind::Sharded(sharded) = &self.kind else { return None };
        let reads = &sharded.cluster.as_ref()?.reads;
        (reads.from != ReadFrom::Primary).then_some(reads)
    }

    /// When the pool ejects servers.
    pub fn ejection(&self) -> Option<Ejection> {
        match &self.kind {
            PoolKind::Store | PoolKind::Routed(_) => None,
            PoolKind::Sharded(sharded) => sharded.ejection,
        }
    }
}

/// One backend and where it belongs, as found by [`Topology::backend`].
#[derive(Clone, Copy, Debug)]
pub struct Backend<'a> {
    /// Index of its pool in [`Topology::pools`].
    pub pool_index: usize,
    /// Its pool.
    pub pool: &'a Pool,
    /// Index of the server in its pool, as [`Ring::pick`] returns it.
    pub server_index: usize,
    /// The server.
    pub server: &'a Server,
}

/// Every pool, immutable and stamped with an epoch; replaced whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    epoch: Epoch,
    pools: Vec<Pool>,
    /// Of each pool the id of its first server.
    first_backends: Vec<BackendId>,
    /// One past the last place of a backend.
    backend_count: u32,
    /// The generation of the ids of pools that begin here.
    generation: u8,
}

impl Topology {
    /// Puts pools together and numbers their backends.
    ///
    /// # Panics
    /// When there are 2^24 servers or more: the configuration bounds them far
    /// below.
    pub fn new(epoch: Epoch, pools: Vec<Pool>) -> Topology {
        Topology {
            epoch: Epoch(0),
            pools: Vec::new(),
            first_backends: Vec::new(),
            backend_count: 0,
            generation: u8::MAX,
        }
        .succeeded_by(epoch, pools, |_| false)
    }

    /// The next version, in which the backends of the pools that are kept, at the same
    /// positions as here, have the ids that they have here. Others get ids that no backend
    /// has here.
    ///
    /// # Panics
    /// As [`Topology::new`], and when a pool that is kept is not here.
    #[must_use]
    pub fn succeeded_by(
        &self,
        epoch: Epoch,
        pools: Vec<Pool>,
        is_kept: impl Fn(usize) -> bool,
    ) -> Topology {
        let kept = (0..pools.len()).filter(|&index| is_kept(index));
        let generation = self.generation.wrapping_add(1);
        let span =
            |first: BackendId, pool: &Pool| first.index()..first.index() + pool.servers().len();
        let mut taken: Vec<Range<usize>> =
            kept.map(|index| span(self.first_backends[index], &pools[index])).collect();
        taken.sort_by_key(|span| span.start);
        let mut first_backends = Vec::with_capacity(pools.len());
        for (index, pool) in pools.iter().enumerate() {
            if is_kept(index) {
                first_backends.push(self.first_backends[index]);
                continue;
            }
            let (mut first, len) = (0, pool.servers().len());
            let mut place = 0;
            while place < taken.len() && taken[place].start < first + len {
                first = first.max(taken[place].end);
                place += 1;
            }
            first_backends.push(BackendId::new(first, generation));
            if len > 0 {
                taken.insert(place, first..first + len);
            }
        }
        let backend_count = taken.iter().map(|span| span.end).max().unwrap_or(0);
        assert!(
            backend_count < 1 << BackendId::INDEX_BITS,
            "more servers than a BackendId can name"
        );
        let backend_count = backend_count as u32;
        Topology { epoch, pools, first_backends, backend_count, generation }
    }

    /// Which version this is.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The pools in the order configured.
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// Index in [`Topology::pools`] of the pool called `name`.
    pub fn pool_index(&self, name: &str) -> Option<usize> {
        self.pools.iter().position(|pool| pool.name == name)
    }

    /// One more than the last place of a backend. In a version that succeeds another there
    /// may be places below it that are nobody's.
    pub fn backend_count(&self) -> usize {
        self.backend_count as usize
    }

    /// The id of a pool's server.
    ///
    /// # Panics
    /// When there is no such pool.
    #[inline]
    pub fn backend_id(&self, pool_index: usize, server_index: usize) -> BackendId {
        debug_assert!(server_index < self.pools[pool_index].servers().len());
        self.first_backends[pool_index].nth(server_index)
    }

    /// The ids of a pool's servers, in order.
    ///
    /// # Panics
    /// When there is no such pool.
    pub fn backend_ids(&self, pool_index: usize) -> impl Iterator<Item = BackendId> + use<> {
        let first = self.first_backends[pool_index];
        (0..self.pools[pool_index].servers().len()).map(move |server| first.nth(server))
    }

    /// An id for each place below [`Topology::backend_count`], in order. That of a place that is
    /// nobody's is of this topology's generation, so no earlier id equals it.
    pub fn all_ids(&self) -> impl Iterator<Item = BackendId> + use<> {
        let free = |index| BackendId::new(index, self.generation);
        let mut ids: Vec<BackendId> = (0..self.backend_count()).map(free).collect();
        for id in (0..self.pools.len()).flat_map(|pool| self.backend_ids(pool)) {
            ids[id.index()] = id;
        }
        ids.into_iter()
    }

    /// The backend of an id; `None` for an id of another topology that does
    /// not exist in this one.
    pub fn backend(&self, id: BackendId) -> Option<Backend<'_>> {
        // Ids of two generations are never so close: no pool ends behind the last place.
        let has_it = |(first, pool): (&BackendId, &Pool)| {
            id.0.checked_sub(first.0).is_some_and(|at| (at as usize) < pool.servers().len())
        };
        let pool_index = self.first_backends.iter().zip(&self.pools).position(has_it)?;
        let pool = &self.pools[pool_index];
        let server_index = (id.0 - self.first_backends[pool_index].0) as usize;
        Some(Backend { pool_index, pool, server_index, server: &pool.servers()[server_index] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, servers: &[&str]) -> Pool {
        let servers = servers.iter().map(|text| Server::parse(text).unwrap()).collect();
        Pool { name: name.into(), kind: PoolKind::Sharded(ShardedPool::with_servers(servers)) }
    }

    #[test]
    fn backends_of_pools_that_are_kept_keep_their_ids_and_gaps_are_used_again() {
        let before = Topology::new(
            Epoch(1),
            vec![pool("a", &["h:1", "h:2"]), pool("b", &["h:3", "h:4"]), pool("c", &["h:5"])],
        );
        let pools = vec![pool("d", &["h:1"]), pool("b", &["h:3", "h:4"]), pool("c", &["h:5"])];
        let ids = |topology: &Topology, pool| -> Vec<u32> {
            topology.backend_ids(pool).map(|id| id.index() as u32).collect()
        };
        let after = before.succeeded_by(Epoch(2), pools.clone(), |index| index > 0);
        assert_eq!(
            (ids(&after, 0), ids(&after, 1), ids(&after, 2)),
            (vec![0], vec![2, 3], vec![4])
        );
        assert!(after.backend(BackendId(1)).is_none(), "nobody's");
        assert_eq!(after.backend(BackendId(3)).unwrap().pool_index, 1);
        assert_eq!(after.backend_id(1, 1), before.backend_id(1, 1), "its pool is kept");
        let (gone, new) = (before.backend_id(0, 0), after.backend_id(0, 0));
        assert_eq!(gone.index(), new.index());
        assert!(gone != new && after.backend(gone).is_none() && before.backend(new).is_none());
        assert_eq!(after.backend(new).unwrap().pool_index, 0);
        assert_eq!(size_of::<BackendId>(), 4);
        let more = [pools, vec![pool("e", &["h:6", "h:7"]), pool("f", &["h:8"])]].concat();
        let after = after.succeeded_by(Epoch(3), more, |index| index < 3);
        assert_eq!((ids(&after, 3), ids(&after, 4)), (vec![5, 6], vec![1]));
        assert_eq!(after.backend_count(), 7);
    }

    #[test]
    fn backend_ids_and_servers_name_each_other() {
        let store = Pool { name: "store".into(), kind: PoolKind::Store };
        let topology = Topology::new(
            Epoch(3),
            vec![store.clone(), pool("a", &["h:1", "h:2"]), store.clone(), pool("b", &["h:1"])],
        );
        assert_eq!(topology.epoch(), Epoch(3));
        assert_eq!(topology.backend_count(), 3);
        for pool_index in 0..4 {
            let ids: Vec<_> = topology.backend_ids(pool_index).collect();
            assert_eq!(ids.len(), topology.pools()[pool_index].servers().len());
            for (server_index, id) in ids.into_iter().enumerate() {
                assert_eq!(topology.backend_id(pool_index, server_index), id);
                let backend = topology.backend(id).unwrap();
                assert_eq!((backend.pool_index, backend.server_index), (pool_index, server_index));
                assert_eq!(backend.server, &backend.pool.servers()[server_index]);
            }
        }
        assert!(topology.backend(BackendId(3)).is_none());
        assert_eq!(topology.pool_index("b"), Some(3));
        assert_eq!(topology.pool_index("c"), None);
        assert_eq!(Topology::new(Epoch(0), vec![]).backend_count(), 0);
    }

    #[test]
    fn password_is_never_printed() {
        let mut sharded = ShardedPool::with_servers(vec![Server::parse("h:1").unwrap()]);
        sharded.password = Some(Password::new("open sesame"));
        assert!(!format!("{sharded:?}").contains("sesame"));
        let password = sharded.password.unwrap();
        assert_eq!(password.expose(), "open sesame");
    }

    #[test]
    fn empty_keys_and_pools_of_one_server_are_not_hashed() {
        let mut sharded = ShardedPool::with_servers(vec![Server::parse("h:1").unwrap()]);
        sharded.hash = Hash::Md5;
        assert_eq!(sharded.hash_key(b"key"), 0);
        sharded.servers.push(Server::parse("h:2").unwrap());
        assert_eq!(sharded.hash_key(b""), 0);
        assert_eq!(sharded.hash_key(b"a{b}"), Hash::Md5.hash(b"a{b}"));
        sharded.hash_tag = Some(HashTag::BRACES);
        assert_eq!(sharded.hash_key(b"a{b}"), Hash::Md5.hash(b"b"));
    }
}
