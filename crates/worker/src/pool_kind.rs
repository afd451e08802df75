//! The part of the worker's plan that serves a pool, with one variant for each kind.

use crate::{Cluster, PoolPlan};
use keyway_base::Time;
use keyway_memcache::Dialect;
use keyway_net::{Address, ClientTls};
use keyway_proxy::memcached::{Terms, WarmUpTotals};
use keyway_proxy::route_policy::{Bucket, RouteTotals};
use keyway_proxy::{LinkOptions, MemcachedOptions, ScriptCache};
use keyway_store::Store;
use keyway_topology::{
    Endpoint, MemcachedPool, Pool, PoolKind as TopologyKind, ReadWriteSplitPool, RoutedPool,
    Server, ServerSet, WarmUp,
};
use std::sync::Arc;
use std::time::Duration;

/// The store, servers or pools that serve a pool.
#[allow(clippy::large_enum_variant, reason = "there are a few, made once at the start")]
pub enum PoolKind {
    /// The embedded store.
    Store(Arc<Store>),
    /// Servers of Redis that each hold a part of the keys.
    Sharded(ShardedPlan),
    /// Servers of memcached that each hold a part of the keys.
    Memcached(MemcachedPlan),
    /// A Redis Cluster.
    Cluster(DiscoveredPlan),
    /// Primaries with their replicas.
    Replicated(DiscoveredPlan),
    /// Groups of servers that share slots.
    Slots(DiscoveredPlan),
    /// Sentinels, which only this process asks.
    Sentinels(Upstream),
    /// Other pools.
    Routed(Box<RoutePlan>),
}

/// The servers of a pool, and how links connect to them.
pub struct Upstream {
    /// Servers, hash and distribution.
    pub servers: ServerSet,
    /// Address of each server.
    pub addresses: Vec<Address>,
    /// How links connect and wait.
    pub options: Arc<LinkOptions>,
    /// The TLS state of its links.
    pub tls: Option<ClientTls>,
}

/// See [`PoolKind::Sharded`].
pub struct ShardedPlan {
    /// The servers.
    pub upstream: Upstream,
    /// The scripts that its clients have loaded.
    pub scripts: Arc<ScriptCache>,
}

/// See [`PoolKind::Memcached`].
pub struct MemcachedPlan {
    /// The servers.
    pub upstream: Upstream,
    /// The protocol of the servers.
    pub dialect: Dialect,
    /// How missing items are copied from an old pool.
    pub warm_up: Option<Box<WarmUpPlan>>,
}

/// A pool that discovers its servers while it serves.
pub struct DiscoveredPlan {
    /// Indices for its servers.
    pub upstream: Upstream,
    /// The scripts that its clients have loaded.
    pub scripts: Arc<ScriptCache>,
    /// The known servers.
    pub cluster: Arc<Cluster>,
}

impl Upstream {
    fn new(
        servers: &ServerSet,
        memcached: Option<MemcachedOptions>,
        tls: Option<ClientTls>,
    ) -> Self {
        let addresses = servers.servers.iter().map(|it| address_of(&it.endpoint)).collect();
        let settings = &servers.options;
        let options = Arc::new(LinkOptions {
            password: settings.password.as_ref().map(|password| password.expose().to_owned()),
            memcached,
            database: settings.database,
            databases: settings.databases_allowed,
            timeout: (settings.timeout != Duration::MAX).then_some(settings.timeout),
            connect_timeout: settings.connect_timeout,
            backoff_min: settings.reconnect_min,
            backoff_max: settings.reconnect_max,
            in_flight_max: settings.link_in_flight_max,
            output_len_max: settings.link_output_len_max,
            slower_than: settings.slower_than,
        });
        Upstream { servers: servers.clone(), addresses, options, tls }
    }
}

impl DiscoveredPlan {
    fn new(servers: &ServerSet, cluster: Cluster, tls: Option<ClientTls>) -> Self {
        let upstream = Upstream::new(servers, None, tls);
        DiscoveredPlan { upstream, scripts: Arc::default(), cluster: Arc::new(cluster) }
    }
}

impl PoolKind {
    /// Returns what serves a configured pool, one of `pools`. It begins `now`. Its links are
    /// secured by `tls`. `store` opens the embedded store of a pool that is one.
    pub fn new(
        kind: &TopologyKind,
        pools: &[Pool],
        now: Time,
        tls: Option<ClientTls>,
        store: impl FnOnce() -> Arc<Store>,
    ) -> Self {
        match kind {
            TopologyKind::Store => PoolKind::Store(store()),
            TopologyKind::Sharded(set) => PoolKind::Sharded(ShardedPlan {
                upstream: Upstream::new(set, None, tls),
                scripts: Arc::default(),
            }),
            TopologyKind::Memcached(pool) => {
                let user = pool.user.clone().unwrap_or_default();
                let options = MemcachedOptions { dialect: pool.dialect, user };
                PoolKind::Memcached(MemcachedPlan {
                    upstream: Upstream::new(&pool.servers, Some(options), tls),
                    dialect: pool.dialect,
                    warm_up: WarmUpPlan::new(pool, pools, now).map(Box::new),
                })
            }
            TopologyKind::Cluster(pool) => {
                PoolKind::Cluster(DiscoveredPlan::new(&pool.servers, Cluster::of_slots(pool), tls))
            }
            TopologyKind::Replicated(pool) => {
                let cluster = Cluster::of_primaries(pool);
                PoolKind::Replicated(DiscoveredPlan::new(&pool.servers, cluster, tls))
            }
            TopologyKind::Slots(pool) => {
                PoolKind::Slots(DiscoveredPlan::new(&pool.servers, Cluster::of_groups(pool), tls))
            }
            TopologyKind::Sentinels(set) => PoolKind::Sentinels(Upstream::new(set, None, tls)),
            TopologyKind::Routed(pool) => {
                PoolKind::Routed(Box::new(RoutePlan::new(pool.clone(), pools, now)))
            }
        }
    }

    /// Returns its word in configuration files.
    pub fn name(&self) -> &'static str {
        match self {
            PoolKind::Store(_) => "store",
            PoolKind::Sharded(_) => "sharded",
            PoolKind::Memcached(_) => "memcached",
            PoolKind::Cluster(_) => "cluster",
            PoolKind::Replicated(_) => "replicated",
            PoolKind::Slots(_) => "slots",
            PoolKind::Sentinels(_) => "sentinels",
            PoolKind::Routed(routes) => routes.pool.kind(),
        }
    }

    /// Returns whether requests end here, in a store or at servers, and not in other pools.
    pub fn executes(&self) -> bool {
        match self {
            PoolKind::Store(_)
            | PoolKind::Sharded(_)
            | PoolKind::Memcached(_)
            | PoolKind::Cluster(_)
            | PoolKind::Replicated(_)
            | PoolKind::Slots(_)
            | PoolKind::Sentinels(_) => true,
            PoolKind::Routed(_) => false,
        }
    }

    /// Returns the servers to which large requests are streamed.
    pub(crate) fn streams_to(&self) -> Option<&ServerSet> {
        match self {
            PoolKind::Sharded(plan) => Some(&plan.upstream.servers),
            PoolKind::Store(_)
            | PoolKind::Memcached(_)
            | PoolKind::Cluster(_)
            | PoolKind::Replicated(_)
            | PoolKind::Slots(_)
            | PoolKind::Sentinels(_)
            | PoolKind::Routed(_) => None,
        }
    }

    /// Returns the embedded store, if it is one.
    #[inline]
    pub fn store(&self) -> Option<&Arc<Store>> {
        match self {
            PoolKind::Store(store) => Some(store),
            PoolKind::Sharded(_)
            | PoolKind::Memcached(_)
            | PoolKind::Cluster(_)
            | PoolKind::Replicated(_)
            | PoolKind::Slots(_)
            | PoolKind::Sentinels(_)
            | PoolKind::Routed(_) => None,
        }
    }

    /// Returns the servers, for kinds that have their own.
    #[inline]
    pub fn upstream(&self) -> Option<&Upstream> {
        match self {
            PoolKind::Sharded(ShardedPlan { upstream, .. })
            | PoolKind::Memcached(MemcachedPlan { upstream, .. })
            | PoolKind::Cluster(DiscoveredPlan { upstream, .. })
            | PoolKind::Replicated(DiscoveredPlan { upstream, .. })
            | PoolKind::Slots(DiscoveredPlan { upstream, .. })
            | PoolKind::Sentinels(upstream) => Some(upstream),
            PoolKind::Store(_) | PoolKind::Routed(_) => None,
        }
    }

    /// Returns the servers, if they are those of the configuration.
    pub fn listed(&self) -> Option<&ServerSet> {
        match self {
            PoolKind::Sharded(ShardedPlan { upstream, .. })
            | PoolKind::Memcached(MemcachedPlan { upstream, .. })
            | PoolKind::Sentinels(upstream) => Some(&upstream.servers),
            PoolKind::Store(_)
            | PoolKind::Cluster(_)
            | PoolKind::Replicated(_)
            | PoolKind::Slots(_)
            | PoolKind::Routed(_) => None,
        }
    }

    /// Returns whether it discovers its servers, which may send a request on to another one.
    pub(crate) fn finds_servers(&self) -> bool {
        self.cluster().is_some()
    }

    /// Returns the known servers, for kinds that discover them.
    #[inline]
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        match self {
            PoolKind::Cluster(plan) | PoolKind::Replicated(plan) | PoolKind::Slots(plan) => {
                Some(&plan.cluster)
            }
            PoolKind::Store(_)
            | PoolKind::Sharded(_)
            | PoolKind::Memcached(_)
            | PoolKind::Sentinels(_)
            | PoolKind::Routed(_) => None,
        }
    }

    /// Returns the scripts that clients have loaded, for kinds whose servers run some.
    pub fn scripts(&self) -> Option<&Arc<ScriptCache>> {
        match self {
            PoolKind::Sharded(plan) => Some(&plan.scripts),
            PoolKind::Cluster(plan) | PoolKind::Replicated(plan) | PoolKind::Slots(plan) => {
                Some(&plan.scripts)
            }
            PoolKind::Store(_)
            | PoolKind::Memcached(_)
            | PoolKind::Sentinels(_)
            | PoolKind::Routed(_) => None,
        }
    }

    /// Like [`PoolKind::scripts`], mutably.
    pub fn scripts_mut(&mut self) -> Option<&mut Arc<ScriptCache>> {
        match self {
            PoolKind::Sharded(plan) => Some(&mut plan.scripts),
            PoolKind::Cluster(plan) | PoolKind::Replicated(plan) | PoolKind::Slots(plan) => {
                Some(&mut plan.scripts)
            }
            PoolKind::Store(_)
            | PoolKind::Memcached(_)
            | PoolKind::Sentinels(_)
            | PoolKind::Routed(_) => None,
        }
    }

    /// Returns whether its servers are those of memcached.
    pub(crate) fn is_memcached(&self) -> bool {
        match self {
            PoolKind::Memcached(_) => true,
            PoolKind::Store(_)
            | PoolKind::Sharded(_)
            | PoolKind::Cluster(_)
            | PoolKind::Replicated(_)
            | PoolKind::Slots(_)
            | PoolKind::Sentinels(_)
            | PoolKind::Routed(_) => false,
        }
    }

    /// Returns whether it is the embedded store.
    pub(crate) fn is_store(&self) -> bool {
        self.store().is_some()
    }

    /// Returns whether its servers are sentinels, whose messages are for this process.
    pub(crate) fn is_sentinels(&self) -> bool {
        match self {
            PoolKind::Sentinels(_) => true,
            PoolKind::Store(_)
            | PoolKind::Sharded(_)
            | PoolKind::Memcached(_)
            | PoolKind::Cluster(_)
            | PoolKind::Replicated(_)
            | PoolKind::Slots(_)
            | PoolKind::Routed(_) => false,
        }
    }

    /// Returns whether a reply may acknowledge a write that is in a log. A pool that leads to others
    /// may lead to a store that has one.
    pub(crate) fn may_be_logged(&self) -> bool {
        match self {
            PoolKind::Store(store) => store.log().is_some(),
            PoolKind::Routed(_) => true,
            PoolKind::Sharded(_)
            | PoolKind::Memcached(_)
            | PoolKind::Cluster(_)
            | PoolKind::Replicated(_)
            | PoolKind::Slots(_)
            | PoolKind::Sentinels(_) => false,
        }
    }

    /// Returns how missing items are copied from an old pool.
    pub fn warm_up(&self) -> Option<&WarmUpPlan> {
        match self {
            PoolKind::Memcached(plan) => plan.warm_up.as_deref(),
            PoolKind::Store(_)
            | PoolKind::Sharded(_)
            | PoolKind::Cluster(_)
            | PoolKind::Replicated(_)
            | PoolKind::Slots(_)
            | PoolKind::Sentinels(_)
            | PoolKind::Routed(_) => None,
        }
    }

    /// Continues with what clients and this process have learned about `old`, the pool that this
    /// one replaces.
    pub fn inherit(&mut self, old: &PoolKind) {
        if let (Some(scripts), Some(old)) = (self.scripts_mut(), old.scripts()) {
            *scripts = Arc::clone(old);
        }
        match (self, old) {
            (PoolKind::Routed(routes), PoolKind::Routed(old)) => {
                routes.totals = Arc::clone(&old.totals);
            }
            (PoolKind::Memcached(plan), PoolKind::Memcached(old)) => {
                if let (Some(new), Some(old)) = (&mut plan.warm_up, &old.warm_up) {
                    new.inherit(old);
                }
            }
            _ => {}
        }
    }

    /// Returns the name of a server in logs, metrics and for clients: its name, or its address. For
    /// an index without a server in a cluster, it is the index.
    pub fn label(&self, server: usize) -> String {
        let Some(upstream) = self.upstream() else { return String::new() };
        let found = self.cluster().and_then(|cluster| cluster.label(server));
        found.unwrap_or_else(|| upstream.servers.servers[server].label().into_owned())
    }

    /// Returns the address of a server, or `None` for an index without a server in a cluster.
    pub fn address(&self, server: usize) -> Option<Address> {
        match self.cluster() {
            Some(cluster) => Some(address_of(&cluster.map().node(server)?.endpoint)),
            None => self.upstream()?.addresses.get(server).cloned(),
        }
    }

    /// Returns whether there is a server at this index.
    pub fn has_server(&self, server: usize) -> bool {
        self.cluster().is_none_or(|cluster| cluster.map().node(server).is_some())
    }

    /// Returns the longest wait of a request for its reply. `None`: without a limit, or the pool
    /// asks no server.
    pub fn timeout(&self) -> Option<Duration> {
        self.upstream()?.options.timeout
    }

    /// Returns the TLS state of its links, if they are secured.
    pub fn tls(&self) -> Option<&ClientTls> {
        self.upstream()?.tls.as_ref()
    }
}

/// Where a pool of memcached gets the items that it does not have yet.
pub struct WarmUpPlan {
    /// Index of the pool that has them.
    pub from: u16,
    /// For each of its servers, by index, which of the new pool's servers is the same.
    pub same: Vec<Option<u16>>,
    /// The protocols of both pools.
    pub terms: Terms,
    /// When it ends.
    pub until: Option<Time>,
    /// Its totals.
    pub totals: Arc<WarmUpTotals>,
}

impl WarmUpPlan {
    /// Returns the warm-up of `pool`, as configured, among `pools`. It begins `now`. Returns `None`
    /// without one.
    pub fn new(pool: &MemcachedPool, pools: &[Pool], now: Time) -> Option<WarmUpPlan> {
        let WarmUp { from, ttl_max, lasts } = pool.warm_up.as_ref()?;
        let from = pools.iter().position(|other| other.name == *from)?;
        let TopologyKind::Memcached(old) = &pools[from].kind else { return None };
        let same = old.servers.servers.iter().map(|server| {
            let is_same = |other: &Server| other.endpoint == server.endpoint;
            pool.servers.servers.iter().position(is_same).map(|position| position as u16)
        });
        let terms = Terms {
            old: old.dialect,
            new: pool.dialect,
            ttl_max: i64::try_from(ttl_max.as_secs()).unwrap_or(i64::MAX).max(1),
        };
        Some(WarmUpPlan {
            from: from as u16,
            same: same.collect(),
            terms,
            until: lasts.map(|lasts| now + lasts),
            totals: Arc::default(),
        })
    }

    /// Continues with the totals of an earlier version, and ends when that would have.
    fn inherit(&mut self, old: &WarmUpPlan) {
        self.totals = Arc::clone(&old.totals);
        if self.until.is_some() {
            self.until = old.until.or(self.until);
        }
    }

    /// Returns whether it is still running.
    pub fn is_active(&self, now: Time) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// Returns the address to which to connect.
pub(crate) fn address_of(endpoint: &Endpoint) -> Address {
    match endpoint {
        Endpoint::Tcp { host, port } => Address::Tcp { host: host.clone(), port: *port },
        Endpoint::Unix { path } => Address::Unix(path.clone()),
        Endpoint::Shm { path } => Address::Shm(path.clone()),
    }
}

/// A pool that leads to others.
pub struct RoutePlan {
    /// The policy.
    pub pool: RoutedPool,
    /// Its totals.
    pub totals: Arc<RouteTotals>,
    /// Limits the rate of requests, if that is bounded.
    pub bucket: Option<Bucket>,
    /// True if a pool to which it leads is warmed up: writes to it take several steps there.
    pub has_warm_up: bool,
    /// True if it, or a pool to which it leads, looks up in one child what another one misses: a
    /// value that is written meanwhile must not be there first.
    pub looks_up: bool,
    /// Limits the log lines about a failing child.
    pub(crate) failure_notice: crate::Notice,
}

impl RoutePlan {
    /// Creates the plan of `pool`, which is one of `pools`, as configured. It begins `now`.
    pub fn new(pool: RoutedPool, pools: &[Pool], now: Time) -> RoutePlan {
        let bucket = match &pool {
            RoutedPool::RateLimited(limited) => {
                Some(Bucket::new(limited.requests_per_second, limited.burst, now))
            }
            _ => None,
        };
        let has_warm_up = leads_to(
            &pool,
            pools,
            |kind| matches!(kind, TopologyKind::Memcached(pool) if pool.warm_up.is_some()),
        );
        let looks_up = matches!(pool, RoutedPool::MissThen(_))
            || leads_to(&pool, pools, |kind| {
                matches!(kind, TopologyKind::Routed(RoutedPool::MissThen(_)))
            });
        RoutePlan {
            pool,
            totals: Arc::default(),
            bucket,
            has_warm_up,
            looks_up,
            failure_notice: crate::Notice::default(),
        }
    }
}

/// Lets pools that serve reads for others run the scripts that were loaded into these: a client
/// that loads one and calls it by its digest knows only one pool.
pub fn share_scripts(pools: &mut [PoolPlan]) {
    for index in 0..pools.len() {
        if split_of(&pools[index]).is_none() {
            continue;
        }
        let end = |reads: bool| {
            let mut at = index;
            while let Some(split) = split_of(&pools[at]) {
                at = usize::from(if reads { split.read } else { split.write });
            }
            at
        };
        let (writer, reader) = (end(false), end(true));
        let Some(known) = pools[writer].kind.scripts().map(Arc::clone) else { continue };
        if let Some(scripts) = pools[reader].kind.scripts_mut() {
            *scripts = known;
        }
    }
}

fn split_of(pool: &PoolPlan) -> Option<&ReadWriteSplitPool> {
    match &pool.kind {
        PoolKind::Routed(routes) => match &routes.pool {
            RoutedPool::ReadWriteSplit(split) => Some(split),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether any pool to which it leads fulfils `is_it`.
pub(crate) fn leads_to(
    pool: &RoutedPool,
    pools: &[Pool],
    is_it: impl Fn(&TopologyKind) -> bool,
) -> bool {
    let mut left = pool.children();
    let mut seen = vec![false; pools.len()];
    while let Some(child) = left.pop() {
        if std::mem::replace(&mut seen[usize::from(child)], true) {
            continue;
        }
        let kind = &pools[usize::from(child)].kind;
        if is_it(kind) {
            return true;
        }
        if let TopologyKind::Routed(routed) = kind {
            left.extend(routed.children());
        }
    }
    false
}
