use crate::{
    Channels, Cluster, Entrance, ErrorStats, Handouts, Invalidations, Mail, Monitors, Notices,
    Pause, PoolNotices, Redirects,
};
use keyway_base::{Limits, Time};
use keyway_net::{Address, ClientTls, Mailer};
use keyway_proxy::course::{Bucket, RouteTotals};
use keyway_proxy::local::{ClientRegistry, EmulatedCluster, Facts, Unblock};
use keyway_proxy::memcached::{Terms, WarmUpTotals, dialect_of};
use keyway_proxy::noted::NotedKeys;
use keyway_proxy::{LinkOptions, MemcachedOptions, QueueBudget, ScriptCache, SlowLog};
use keyway_store::Store;
use keyway_topology::{
    Endpoint, HealthBoard, Pool, PoolKind as TopologyKind, ReadFrom, ReadWriteSplitPool,
    RoutedPool, Server, ShardedPool, Topology, WarmUp,
};
use keyway_users::Users;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// What all workers of the process share: one version of the settings, and the few things
/// they meet in, which all versions have together.
pub struct Plan {
    /// Which version of the settings it is; 1 are those of the start.
    pub generation: u64,
    /// Pools of earlier versions that are here until what they have begun is over.
    pub retired: Vec<Retired>,
    /// How many workers have changed over to this version.
    pub followers: AtomicUsize,
    /// Every bound.
    pub limits: Limits,
    /// Listening sockets, in the order given to each worker's `Io`.
    pub listeners: Vec<ListenerPlan>,
    /// Which servers the reads of users go to that say so: [`keyway_users::User::reads`].
    pub user_reads: Vec<ReadFrom>,
    /// Pools, by their position in the topology.
    pub pools: Vec<Arc<PoolPlan>>,
    /// Pools and servers as configured.
    pub topology: Arc<Topology>,
    /// Which servers may be used; shared by all workers.
    pub health: Arc<HealthBoard>,
    /// Every client of the process.
    pub clients: Arc<ClientRegistry>,
    /// What the process knows about itself.
    pub facts: Arc<dyn Facts>,
    /// The next client's id.
    pub next_client_id: Arc<AtomicU64>,
    /// Mail to every worker, by index; filled as workers start.
    pub mailers: Arc<Mutex<Vec<Mailer<Mail>>>>,
    /// Asks workers to accept the clients of busy workers.
    pub relief: Arc<Relief>,
    /// How long a stopping worker waits for replies that are still to come.
    pub drain_timeout: Duration,
    /// How long a worker looks at shared memory before it sleeps.
    pub spin: Duration,
    /// Lines of the log of which there are few.
    pub notices: Arc<Notices>,
    /// What the commands may take that wait for `EXEC`.
    pub transactions: Arc<QueueBudget>,
    /// Who listens to the channels of the embedded stores.
    pub channels: Arc<Channels>,
    /// Who is to be told when keys of the embedded stores change.
    pub invalidations: Arc<Invalidations>,
    /// What is answered clients that waited on an embedded store.
    pub handouts: Arc<Handouts>,
    /// Who watches the requests.
    pub monitors: Arc<Monitors>,
    /// What is to be told clients of other workers about their keys.
    pub redirects: Arc<Redirects>,
}

/// A pool that is not among the settings any more, or has others there.
#[derive(Clone, Debug)]
pub struct Retired {
    /// Its position.
    pub pool: u16,
    /// The version that it is not in.
    pub generation: u64,
    /// Its name is another's now, to which its clients go.
    pub is_replaced: bool,
    /// When clients that have begun something in it are made to end it.
    pub until: Time,
    /// How many workers have still to end what it has begun.
    pub left: Arc<AtomicUsize>,
}

/// Asks workers to accept the clients that wait at the sockets of busy workers.
#[derive(Debug, Default)]
pub struct Relief {
    /// Number of times that a worker was asked.
    turn: AtomicUsize,
    /// A bit for each worker that was asked and has not read it yet.
    asked: AtomicU64,
}

impl Relief {
    /// Returns the worker to ask next on behalf of `from`, out of `count`; none if that worker has
    /// not read an earlier one yet. Each call asks another worker: the last one may be busy too.
    fn next(&self, from: u16, count: usize) -> Option<usize> {
        let others = count.checked_sub(1).filter(|others| *others > 0)?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let worker = (usize::from(from) + 1 + turn % others) % count;
        let bit = 1 << (worker % 64);
        (self.asked.fetch_or(bit, Ordering::Relaxed) & bit == 0).then_some(worker)
    }

    /// Asks another worker to accept the clients that wait at the sockets of the busy worker
    /// `from`.
    pub(crate) fn ask(&self, from: u16, mailers: &Mutex<Vec<Mailer<Mail>>>) {
        let mailers = mailers.lock();
        if let Some(worker) = self.next(from, mailers.len())
            && mailers[worker].post(Mail::Relieve).is_err()
        {
            self.note_read(worker as u16);
        }
    }

    /// Notes that a worker has read the mail that asks it.
    pub(crate) fn note_read(&self, worker: u16) {
        self.asked.fetch_and(!(1 << (worker % 64)), Ordering::Relaxed);
    }
}

impl Plan {
    /// The pool at this position, where it is one of an earlier version.
    pub fn retired(&self, pool: u16) -> Option<&Retired> {
        self.retired.iter().find(|retired| retired.pool == pool)
    }

    /// Tells a worker that something waits in an inbox of its clients. Where its mailbox
    /// is full it wakes anyway, and looks after reading its mail.
    pub(crate) fn post_published(&self, worker: u16) {
        if let Some(mailer) = self.mailers.lock().get(usize::from(worker)) {
            let _ = mailer.post(Mail::Published);
        }
    }

    /// Asks every worker but `from` to close these clients. A mailbox that is
    /// full misses it: `CLIENT KILL` is best effort across workers then.
    pub(crate) fn post_kill(&self, from: u16, ids: &[u64]) {
        for (index, mailer) in self.mailers.lock().iter().enumerate() {
            if index != usize::from(from) {
                let _ = mailer.post(Mail::Kill(ids.to_vec()));
            }
        }
    }

    /// Asks every worker but `from` to end a client's blocking command. A
    /// mailbox that is full misses it.
    pub(crate) fn post_unblock(&self, from: u16, unblock: Unblock) {
        for (index, mailer) in self.mailers.lock().iter().enumerate() {
            if index != usize::from(from) {
                let _ = mailer.post(Mail::Unblock(unblock));
            }
        }
    }
}

/// A listening socket.
pub struct ListenerPlan {
    /// Nobody listens there any more: its clients are answered and leave.
    pub is_ended: bool,
    /// Position of the pool its clients talk to.
    pub pool: u16,
    /// Its address, as `CLIENT LIST` shows it.
    pub name: String,
    /// Who may come in.
    pub users: Arc<Users>,
    /// Its clients are those of memcached, and store items of so many bytes at
    /// most.
    pub memcached: Option<u32>,
    /// The cluster that its clients are told of.
    pub cluster: Option<Arc<EmulatedCluster>>,
    /// Which servers its clients read from, where that is not as the pool says.
    pub read_from: Option<ReadFrom>,
    /// How its clients come in.
    pub entrance: Entrance,
}

/// A pool.
pub struct PoolPlan {
    /// Its name in the configuration.
    pub name: String,
    /// Databases a client may select.
    pub databases: u32,
    /// Clients at once, over all workers; 0 for no bound but [`Limits::clients_max`].
    pub clients_max: u32,
    /// Set by `CLIENT PAUSE`.
    pub pause: Pause,
    /// Error replies to its clients.
    pub errors: Arc<ErrorStats>,
    /// Its keys that are asked for most, and those with the largest values.
    pub noted: Arc<NotedKeys>,
    /// What its servers, or the store, took long for.
    pub slow_log: Arc<SlowLog>,
    /// What its clients have loaded, where it is a store.
    pub scripts: Arc<keyway_script::Registry>,
    /// The log lines about this pool that are limited in rate.
    pub notices: PoolNotices,
    /// What serves it.
    pub kind: PoolKind,
}

impl PoolPlan {
    /// Takes over the notices of `old`, the pool that this one replaces, for servers at the same
    /// addresses.
    pub fn inherit_notices(&mut self, old: &PoolPlan) {
        let (PoolKind::Sharded { pool: new, .. }, PoolKind::Sharded { pool: was, .. }) =
            (&self.kind, &old.kind)
        else {
            return;
        };
        // The places of discovered servers have no meaning in another pool.
        if new.cluster.is_some() || was.cluster.is_some() {
            return;
        }
        let heir_of = |server: u16| {
            let endpoint = &was.servers.get(usize::from(server))?.endpoint;
            let at = new.servers.iter().position(|server| server.endpoint == *endpoint)?;
            Some(at as u16)
        };
        self.notices.health.inherit(&old.notices.health, heir_of);
    }
}

/// Where a pool of memcached gets the items that it does not have yet.
pub struct WarmUpPlan {
    /// Position of the pool that has them.
    pub from: u16,
    /// Of each of its servers, by position, which of the new pool's is the same.
    pub same: Vec<Option<u16>>,
    /// What both are asked in.
    pub terms: Terms,
    /// When it ends.
    pub until: Option<Time>,
    /// What it came to.
    pub totals: Arc<WarmUpTotals>,
}

impl WarmUpPlan {
    /// That of `pool`, as configured, among `pools`; it begins `now`. `None` without one.
    pub fn new(pool: &ShardedPool, pools: &[Pool], now: Time) -> Option<WarmUpPlan> {
        let WarmUp { from, ttl_max, lasts } = pool.warm_up.as_ref()?;
        let from = pools.iter().position(|other| other.name == *from)?;
        let TopologyKind::Sharded(old) = &pools[from].kind else { return None };
        let same = old.servers.iter().map(|server| {
            let is_same = |other: &Server| other.endpoint == server.endpoint;
            pool.servers.iter().position(is_same).map(|position| position as u16)
        });
        let terms = Terms {
            old: dialect_of(old.protocol)?,
            new: dialect_of(pool.protocol)?,
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

    /// Whether it goes on.
    pub fn is_active(&self, now: Time) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// What serves a pool.
#[allow(clippy::large_enum_variant, reason = "there are a few, made once at the start")]
pub enum PoolKind {
    /// The embedded store.
    Store(Arc<Store>),
    /// Other pools.
    Routed(Box<RoutePlan>),
    /// Servers that each hold a part of the keys.
    Sharded {
        /// Servers, hash and distribution.
        pool: ShardedPool,
        /// Address of each server.
        addresses: Vec<Address>,
        /// How links connect and wait.
        options: Arc<LinkOptions>,
        /// What its clients have loaded.
        scripts: Arc<ScriptCache>,
        /// Where missing items come from.
        warm_up: Option<Box<WarmUpPlan>>,
        /// Who its servers are, where that is found out while it runs.
        cluster: Option<Arc<Cluster>>,
        /// What its links are secured with.
        tls: Option<ClientTls>,
    },
}

/// Where to connect to.
pub(crate) fn address_of(endpoint: &Endpoint) -> Address {
    match endpoint {
        Endpoint::Tcp { host, port } => Address::Tcp { host: host.clone(), port: *port },
        Endpoint::Unix { path } => Address::Unix(path.clone()),
        Endpoint::Shm { path } => Address::Shm(path.clone()),
    }
}

/// A pool that leads to others.
pub struct RoutePlan {
    /// What goes where.
    pub pool: RoutedPool,
    /// What it came to.
    pub totals: Arc<RouteTotals>,
    /// How many requests may come, where that is bounded.
    pub bucket: Option<Bucket>,
    /// A pool it leads to is warmed up: writes to it take several steps there.
    pub has_warm_up: bool,
    /// It, or a pool it leads to, looks up in one child what another misses: what is
    /// written meanwhile is not to be there first.
    pub looks_up: bool,
    /// When the log last told of a child that fails.
    pub(crate) trouble: crate::Notice,
}

impl RoutePlan {
    /// `pool`, which is one of `pools`, as configured; it begins `now`.
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
            |kind| matches!(kind, TopologyKind::Sharded(sharded) if sharded.warm_up.is_some()),
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
            trouble: crate::Notice::default(),
        }
    }
}

/// Has pools that read for others run the scripts that these were told of: a client that
/// loads one and calls it by its digest knows of one pool only.
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
        let PoolKind::Sharded { scripts, .. } = &pools[writer].kind else { continue };
        let known = Arc::clone(scripts);
        if let PoolKind::Sharded { scripts, .. } = &mut pools[reader].kind {
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

/// Whether any pool that it leads to is such a one.
fn leads_to(pool: &RoutedPool, pools: &[Pool], is_it: impl Fn(&TopologyKind) -> bool) -> bool {
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

impl PoolKind {
    /// What it is called in the file.
    pub fn name(&self) -> &'static str {
        match self {
            PoolKind::Store(_) => "store",
            PoolKind::Sharded { pool, .. } => pool.kind(),
            PoolKind::Routed(routes) => routes.pool.kind(),
        }
    }

    /// What logs, metrics and clients call a server: its name, or its address. Of a
    /// place in a cluster that nobody has, that.
    pub fn label(&self, server: usize) -> String {
        match self {
            PoolKind::Sharded { pool, cluster: Some(cluster), .. } => {
                let of_place = || pool.servers[server].label().into_owned();
                cluster.label(server).unwrap_or_else(of_place)
            }
            PoolKind::Sharded { pool, .. } => pool.servers[server].label().into_owned(),
            PoolKind::Store(_) | PoolKind::Routed(_) => String::new(),
        }
    }

    /// Where a server is; of a place in a cluster that nobody has, nothing.
    pub fn address(&self, server: usize) -> Option<Address> {
        match self {
            PoolKind::Sharded { cluster: Some(cluster), .. } => {
                Some(address_of(&cluster.map().node(server)?.endpoint))
            }
            PoolKind::Sharded { addresses, .. } => addresses.get(server).cloned(),
            PoolKind::Store(_) | PoolKind::Routed(_) => None,
        }
    }

    /// Whether there is a server at this place.
    pub fn has_server(&self, server: usize) -> bool {
        match self {
            PoolKind::Sharded { cluster: Some(cluster), .. } => {
                cluster.map().node(server).is_some()
            }
            _ => true,
        }
    }

    /// The same pool, warmed up as the plan says.
    #[must_use]
    pub fn warmed_up(mut self, plan: Option<WarmUpPlan>) -> Self {
        if let PoolKind::Sharded { warm_up, .. } = &mut self {
            *warm_up = plan.map(Box::new);
        }
        self
    }

    /// The same pool, its links secured.
    #[must_use]
    pub fn secured(mut self, with: Option<ClientTls>) -> Self {
        if let PoolKind::Sharded { tls, .. } = &mut self {
            *tls = with;
        }
        self
    }

    /// Longest wait of a request for its reply. `None`: without end, or the pool asks no server.
    pub fn timeout(&self) -> Option<Duration> {
        match self {
            PoolKind::Sharded { options, .. } => options.timeout,
            PoolKind::Store(_) | PoolKind::Routed(_) => None,
        }
    }

    /// What its links are secured with, if they are.
    pub fn tls(&self) -> Option<&ClientTls> {
        match self {
            PoolKind::Sharded { tls, .. } => tls.as_ref(),
            PoolKind::Store(_) | PoolKind::Routed(_) => None,
        }
    }

    /// A pool of servers, with what its links need to know.
    pub fn sharded(pool: ShardedPool) -> Self {
        let addresses = pool.servers.iter().map(|server| address_of(&server.endpoint)).collect();
        let options = Arc::new(LinkOptions {
            password: pool.password.as_ref().map(|password| password.expose().to_owned()),
            memcached: dialect_of(pool.protocol).map(|dialect| MemcachedOptions {
                dialect,
                user: pool.user.clone().unwrap_or_default(),
            }),
            database: pool.database,
            databases: pool.databases_allowed,
            timeout: (pool.timeout != Duration::MAX).then_some(pool.timeout),
            connect_timeout: pool.connect_timeout,
            backoff_min: pool.reconnect_min,
            backoff_max: pool.reconnect_max,
            in_flight_max: pool.link_in_flight_max,
            output_len_max: pool.link_output_len_max,
            slower_than: pool.slower_than,
        });
        let cluster = Cluster::new(&pool).map(Arc::new);
        PoolKind::Sharded {
            pool,
            addresses,
            options,
            scripts: Arc::default(),
            warm_up: None,
            cluster,
            tls: None,
        }
    }
}
