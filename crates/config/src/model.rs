use crate::address::ListenAddr;
use crate::error::ConfigError;
use crate::operators::OperatorConfig;
use crate::register::RegisterConfig;
use keyway_base::{KeyspaceEvents, Limits, Network};
use keyway_bus::{NodeId, Url};
use keyway_tls::{ClientSettings, ClientTls, PeerSettings, ServerSettings, ServerTls};
use keyway_topology::{
    ClusterPool, Endpoint, Epoch, MemcachedPool, Password, Pool, PoolKind, PrimarySource, ReadFrom,
    ReplicatedPool, RoutedPool, ServerSet, SlotsPool, Topology,
};
use keyway_users::{User, Users};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A whole configuration, checked: every reference resolves, every value is within its range, and
/// every default is filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `[server]`.
    pub server: ServerConfig,
    /// Every `[[operator]]`, in file order.
    pub operators: Vec<OperatorConfig>,
    /// `[limits]`.
    pub limits: Limits,
    /// `[control]`.
    pub control: Option<ControlConfig>,
    /// Every `[[listener]]`, in file order; at least one.
    pub listeners: Vec<ListenerConfig>,
    /// Every `[[user]]`, in file order.
    pub users: Vec<UserConfig>,
    /// Every `[pool.NAME]`, in file order; at least one.
    pub pools: Vec<PoolConfig>,
    /// The document of the control plane, if there is one.
    pub document: Option<DocumentConfig>,
    /// Warnings, in line order. To be logged at the start.
    pub warnings: Vec<ConfigError>,
}

/// A document of the control plane that stands in place of a part of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentConfig {
    /// Its name, for people.
    pub name: String,
    /// The pools that are from it.
    pub pools: Vec<String>,
    /// True if all users are from it.
    pub users: bool,
    /// True if `[limits]` is from it.
    pub limits: bool,
}

/// `[control]`: the control plane that the process joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlConfig {
    /// The name of the cluster.
    pub cluster: String,
    /// The id of the process on the bus.
    pub id: NodeId,
    /// Addresses of control nodes.
    pub urls: Vec<Url>,
    /// The file with the token of the bus.
    pub token_file: Option<PathBuf>,
    /// The files for TLS.
    pub tls: Option<PeerSettings>,
    /// The file in which the process keeps documents.
    pub state_file: PathBuf,
    /// The host under which clients reach listeners at every address of the machine.
    pub host: Option<String>,
    /// The pools that documents replace.
    pub pools: Vec<String>,
    /// True if documents replace the users.
    pub users: bool,
    /// True if documents replace `[limits]`.
    pub limits: bool,
    /// The control node that runs in the process.
    pub inside: Option<InsideConfig>,
}

/// `coordinator` and what belongs to it in `[control]`: a control node in a process that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsideConfig {
    /// The id of the control node on the bus.
    pub id: NodeId,
    /// The directory of the coordinator's files.
    pub dir: PathBuf,
    /// The lease of the control node's session.
    pub lease: Duration,
    /// The addresses at which other processes reach it, besides [`OWN_URL`].
    pub listen: Vec<Url>,
}

/// The address at which a process reaches the control node that runs in it.
pub const OWN_URL: &str = "mem://keyway-control";

impl Config {
    /// Returns whether the listener at `bind`, or the admin address, must leave IPv4 clients to
    /// another socket of this file. `[::]` accepts them otherwise.
    pub fn only_v6(&self, bind: &ListenAddr) -> bool {
        let mut all =
            self.listeners.iter().map(|listener| &listener.bind).chain(&self.server.admin);
        all.any(|other| bind.leaves_ipv4_to(other))
    }

    /// Returns the pool a listener sends its requests to.
    pub fn pool_of(&self, listener: &ListenerConfig) -> &PoolConfig {
        &self.pools[listener.pool_index]
    }

    /// Returns the users that may log in at a listener.
    pub fn users_of(&self, listener: &ListenerConfig) -> Users {
        let password = listener.password.as_ref().map(Password::expose);
        let users = match listener.users.is_empty() {
            true => Users::plain(password),
            false => {
                let named = listener.users.iter().map(|&at| Arc::new(self.users[at].user.clone()));
                let default = password.map(|_| Arc::new(User::free("default", password)));
                Users::new(named.chain(default).collect())
            }
        };
        users.limited(self.limits.failed_logins_max)
    }

    /// Returns the pools as the data plane takes them. Indices of pools are the same as in
    /// [`Config::pools`].
    pub fn topology(&self, epoch: Epoch) -> Topology {
        let pools = self.pools.iter().enumerate().map(|(index, pool)| Pool {
            name: pool.name.clone(),
            kind: match &pool.kind {
                PoolKindConfig::Store(_) => PoolKind::Store,
                PoolKindConfig::Sharded(set, _) => PoolKind::Sharded(set.clone()),
                PoolKindConfig::Memcached(pool, _) => PoolKind::Memcached(pool.clone()),
                PoolKindConfig::Cluster(pool, _) => {
                    let mut pool = pool.clone();
                    pool.discovery.reads.is_nearest_for_some = self.reads_nearest(index);
                    PoolKind::Cluster(pool)
                }
                PoolKindConfig::Replicated(pool, _) => {
                    let mut pool = pool.clone();
                    pool.discovery.reads.is_nearest_for_some = self.reads_nearest(index);
                    PoolKind::Replicated(pool)
                }
                PoolKindConfig::Slots(pool, _) => {
                    let mut pool = pool.clone();
                    pool.discovery.reads.is_nearest_for_some = self.reads_nearest(index);
                    PoolKind::Slots(pool)
                }
                PoolKindConfig::Sentinels(set, _) => PoolKind::Sentinels(set.clone()),
                PoolKindConfig::Routed(routed) => PoolKind::Routed(routed.pool.clone()),
            },
        });
        Topology::new(epoch, pools.collect())
    }

    /// Returns whether a listener of the pool at `index`, or a user, reads from the nearest server.
    fn reads_nearest(&self, index: usize) -> bool {
        let mut own = self.listeners.iter().filter(|listener| listener.pool_index == index);
        own.any(|listener| listener.read_from == Some(ReadFrom::Nearest))
            || self.users.iter().any(|user| user.read_from == Some(ReadFrom::Nearest))
    }
}

/// The source of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// A file that holds only the password.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserConfig {
    /// Its name, its rights, and the hashes of its passwords.
    pub user: User,
    /// Its password in clear. `None` until it was read, which [`Config::load`] does.
    pub password: Option<Password>,
    /// The source of `password`, if not the file itself.
    pub password_from: Option<SecretSource>,
    /// Index in [`Config::pools`] of the pool that serves it. `None`: the listener's pool.
    pub pool_index: Option<usize>,
    /// The servers from which it reads. `None`: as the listener or the pool says.
    pub read_from: Option<ReadFrom>,
}

/// Settings of the process itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Number of threads that serve requests.
    pub workers: Workers,
    /// Address at which metrics and health are served (always TCP). `None`: they are not served.
    pub admin: Option<ListenAddr>,
    /// Token that requests to it must have. `None` until it was read, which [`Config::load`] does.
    pub admin_token: Option<Password>,
    /// The source of `admin_token`, if there is one.
    pub admin_token_from: Option<SecretSource>,
    /// TLS settings of the admin address.
    pub admin_tls: Option<ListenerTlsConfig>,
    /// Settings of the log.
    pub log: LogConfig,
    /// Time that requests in flight have to finish after SIGTERM.
    pub drain_timeout: Duration,
    /// Time for which clients are still accepted after draining was asked for.
    pub drain_notice: Duration,
    /// The interface to the kernel that workers use.
    pub io: IoDriver,
    /// Time that a process that is to replace this one has until it can serve.
    pub upgrade_timeout: Duration,
    /// Time for which the clients of this process are served after another process has taken over.
    pub upgrade_grace: Duration,
    /// Time for which a worker polls shared memory before it sleeps; zero: not at all.
    pub spin: Duration,
}

/// The interface to the kernel that workers use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoDriver {
    /// Readiness (epoll).
    #[default]
    Epoll,
    /// Completion (io_uring). The start fails if the system does not offer it.
    IoUring,
    /// Completion if the system offers it, else readiness.
    Auto,
}

impl IoDriver {
    /// Returns the word in the file.
    pub fn text(self) -> &'static str {
        match self {
            IoDriver::Epoll => "epoll",
            IoDriver::IoUring => "io_uring",
            IoDriver::Auto => "auto",
        }
    }
}

/// The number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// Starts with one, and adds more while busy, up to the number of cores.
    Auto,
    /// Starts with `min`, and adds more while busy, up to `max`. `1 <= min <= max`; if both are the
    /// same, the number is fixed.
    Between {
        /// Workers at start.
        min: u16,
        /// Workers at most.
        max: u16,
    },
}

impl Workers {
    /// Returns the first and the largest number of workers on a machine with this many cores.
    pub fn bounds(self, cores: u16) -> (u16, u16) {
        match self {
            Workers::Auto => (1, cores.max(1)),
            Workers::Between { min, max } => (min, max),
        }
    }
}

/// Settings of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Form of a line.
    pub format: LogFormat,
    /// The least important messages that are written.
    pub level: LogLevel,
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Human,
    /// One JSON object per line.
    Json,
}

/// The importance of a message, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something does not work.
    Error,
    /// Something may soon not work.
    Warn,
    /// State changes.
    Info,
    /// Details of connections.
    Debug,
    /// Everything.
    Trace,
}

/// One accepting socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Its address.
    pub bind: ListenAddr,
    /// The protocol of its clients.
    pub protocol: Protocol,
    /// Index in [`Config::pools`] of the pool that serves it.
    pub pool_index: usize,
    /// Most connections that the kernel holds until they are accepted.
    pub backlog: u32,
    /// The password that clients must send with AUTH: the listener's own, else the pool's
    /// `client_password`. With `password_file` it is `None` until the file was read, which
    /// [`Config::load`] does.
    pub password: Option<Password>,
    /// The source of `password`, if not the file itself.
    pub password_from: Option<SecretSource>,
    /// Indices in [`Config::users`] of the users that may log in here.
    pub users: Vec<usize>,
    /// Permission bits of a unix socket. `None`: as the umask says.
    pub mode: Option<u32>,
    /// User and group that own a unix socket. `None`: those of the process.
    pub owner: (Option<u32>, Option<u32>),
    /// Settings of shared memory; `None` unless it listens at `shm://`.
    pub shm: Option<ShmConfig>,
    /// Silence after which the kernel probes a client. `None`: never.
    pub tcp_keepalive: Option<Duration>,
    /// The cluster as which it poses to its clients. `None`: it does not.
    pub cluster: Option<ClusterModeConfig>,
    /// The servers from which its clients read. `None`: as the pool says.
    pub read_from: Option<ReadFrom>,
    /// Its access settings, and the bounds on its clients.
    pub access: AccessConfig,
    /// The entry by which clients find it. `None`: there is none.
    pub register: Option<RegisterConfig>,
}

/// Access settings of a listener, and the bounds on its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessConfig {
    /// TLS settings. `None`: connections are not secured.
    pub tls: Option<ListenerTlsConfig>,
    /// The proxies that announce their clients' addresses by the PROXY protocol (any proxy if the
    /// list is empty). `None`: clients connect directly.
    pub proxies: Option<Vec<Network>>,
    /// Addresses from which clients are accepted; empty: all.
    pub allow: Vec<Network>,
    /// Addresses from which clients are refused.
    pub deny: Vec<Network>,
    /// Longest time of a client's handshake.
    pub handshake_timeout: Duration,
    /// Most clients of each worker in a handshake at once.
    pub handshakes_max: u32,
    /// Most clients connected at once, over all workers. `None`: no bound but that of
    /// [`Config::limits`].
    pub clients_max: Option<u32>,
    /// Longest time for which a client may send no request. `None`: no bound.
    pub idle_timeout: Option<Duration>,
}

/// TLS settings of clients' connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTlsConfig {
    /// The settings of the file.
    pub settings: ServerSettings,
    /// The content of the files it names. `None` until they were read, which [`Config::load`] does.
    pub loaded: Option<ServerTls>,
}

/// Users that may share memory with a listener, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmConfig {
    /// Users that are allowed, beside root and the user of this process.
    pub allow_uids: Vec<u32>,
    /// Largest ring in each direction, in bytes: a power of two.
    pub ring_max: u64,
}

/// The cluster as which a listener poses to its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterModeConfig {
    /// Host and port of every Keyway that is one of its nodes. Empty: only this listener.
    pub announce: Vec<(String, u16)>,
}

/// The protocol of a listener's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP, with inline commands.
    Redis,
    /// memcached's protocols: text, meta and binary.
    Memcached {
        /// Longest item a client may store, in bytes.
        item_len_max: u32,
    },
}

/// A named set of backends, or the embedded store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// `NAME` of `[pool.NAME]`: letters, digits, `_`, `-`, `.`.
    pub name: String,
    /// Its kind, with its settings.
    pub kind: PoolKindConfig,
}

/// The kind of a pool, with its settings.
#[allow(clippy::large_enum_variant, reason = "there are a few, made once at the start")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolKindConfig {
    /// Kind `"store"`.
    Store(StoreConfig),
    /// Kind `"sharded"`.
    Sharded(ServerSet, ServersConfig),
    /// Kind `"memcached"`.
    Memcached(MemcachedPool, ServersConfig),
    /// Kind `"cluster"`.
    Cluster(ClusterPool, ServersConfig),
    /// Kind `"replicated"`.
    Replicated(ReplicatedPool, ServersConfig),
    /// Kind `"slots"`.
    Slots(SlotsPool, ServersConfig),
    /// The sentinels of a pool of kind `"replicated"`.
    Sentinels(ServerSet, ServersConfig),
    /// A kind that leads to other pools.
    Routed(RoutedConfig),
}

impl PoolKindConfig {
    /// Returns the servers, if the kind has servers of its own. With `password_file` their password
    /// is `None` until the file was read, which [`Config::load`] does.
    pub fn servers(&self) -> Option<(&ServerSet, &ServersConfig)> {
        match self {
            PoolKindConfig::Sharded(set, config) | PoolKindConfig::Sentinels(set, config) => {
                Some((set, config))
            }
            PoolKindConfig::Memcached(pool, config) => Some((&pool.servers, config)),
            PoolKindConfig::Cluster(pool, config) => Some((&pool.servers, config)),
            PoolKindConfig::Replicated(pool, config) => Some((&pool.servers, config)),
            PoolKindConfig::Slots(pool, config) => Some((&pool.servers, config)),
            PoolKindConfig::Store(_) | PoolKindConfig::Routed(_) => None,
        }
    }

    /// Returns the positions of the pools that a pool of this kind relies on. `position` tells that
    /// of a name.
    pub fn relies_on(&self, position: impl Fn(&str) -> Option<usize>) -> Vec<usize> {
        match self {
            PoolKindConfig::Routed(routed) => {
                routed.pool.children().into_iter().map(usize::from).collect()
            }
            PoolKindConfig::Memcached(pool, _) => {
                let from = pool.warm_up.as_ref().map(|warm_up| &warm_up.from);
                from.and_then(|name| position(name)).into_iter().collect()
            }
            PoolKindConfig::Replicated(pool, _) => match &pool.source {
                PrimarySource::Servers | PrimarySource::Groups(_) => Vec::new(),
                PrimarySource::Sentinels { pool, .. } => position(pool).into_iter().collect(),
            },
            PoolKindConfig::Store(_)
            | PoolKindConfig::Sharded(..)
            | PoolKindConfig::Cluster(..)
            | PoolKindConfig::Slots(..)
            | PoolKindConfig::Sentinels(..) => Vec::new(),
        }
    }

    /// Returns the servers, to be changed.
    pub fn servers_mut(&mut self) -> Option<(&mut ServerSet, &mut ServersConfig)> {
        match self {
            PoolKindConfig::Sharded(set, config) | PoolKindConfig::Sentinels(set, config) => {
                Some((set, config))
            }
            PoolKindConfig::Memcached(pool, config) => Some((&mut pool.servers, config)),
            PoolKindConfig::Cluster(pool, config) => Some((&mut pool.servers, config)),
            PoolKindConfig::Replicated(pool, config) => Some((&mut pool.servers, config)),
            PoolKindConfig::Slots(pool, config) => Some((&mut pool.servers, config)),
            PoolKindConfig::Store(_) | PoolKindConfig::Routed(_) => None,
        }
    }
}

/// Settings of the embedded store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Memory for data, in bytes. `None`: a share of the machine's memory, which the caller that
    /// starts the store computes.
    pub memory_max: Option<u64>,
    /// The keys that are evicted when memory is full.
    pub eviction: Eviction,
    /// Number of databases that clients may SELECT, from 0 on.
    pub databases: u32,
    /// The changes of keys that are published.
    pub notify_keyspace_events: KeyspaceEvents,
    /// Longest run time of a script.
    pub script_time_max: Duration,
    /// Time for which other clients wait for a script.
    pub script_busy_after: Duration,
    /// Least time after which a request counts as slow. `Duration::MAX`: no request does.
    pub slower_than: Duration,
    /// Number of slow requests kept.
    pub slow_log_len_max: u32,
    /// Memory for scripts in each worker, in bytes.
    pub script_memory_max: u64,
    /// Time after a read at which a key with an expiry expires. `None`: reads do not change
    /// expiries.
    pub expire_after_read: Option<Duration>,
    /// Percentage of that time. A read changes the expiry only if less than this is left.
    pub expire_after_read_percent: u8,
    /// Bounds on the keys of some prefixes.
    pub quotas: Vec<QuotaConfig>,
    /// Where it is saved.
    pub snapshot: Option<SnapshotConfig>,
    /// The log of its writes.
    pub log: Option<StoreLogConfig>,
    /// The primary that it follows, or the settings for REPLICAOF.
    pub replica: ReplicaConfig,
}

/// The log of a store's writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLogConfig {
    /// The directory.
    pub dir: PathBuf,
    /// When a write is to be on the disk.
    pub fsync: LogFsync,
    /// Most bytes of writes in memory that wait for the disk.
    pub buffer: u64,
}

/// When a write is to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFsync {
    /// Before its reply.
    Always,
    /// A second later.
    EverySecond,
    /// When the system puts it there.
    No,
}

impl LogFsync {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Always, Self::EverySecond, Self::No];

    /// The word in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::EverySecond => "1s",
            Self::No => "no",
        }
    }
}

/// A store as a replica of another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaConfig {
    /// The primary. `None`: the store is a primary itself.
    pub primary: Option<Endpoint>,
    /// The user's name at a primary.
    pub username: Option<String>,
    /// The password there.
    pub password: Option<Password>,
    /// The source of the password, if not the file itself.
    pub password_from: Option<SecretSource>,
    /// TLS settings of the connection to a primary. `None`: it is not secured.
    pub tls: Option<TlsConfig>,
    /// True if a replica answers with what it has while the link is down.
    pub serves_stale: bool,
    /// Bounds of the store as a primary.
    pub feed: ReplicationConfig,
}

/// A store as the primary of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicationConfig {
    /// Bytes of the stream that are kept for replicas that come back.
    pub backlog: u64,
    /// Most bytes of the stream in memory.
    pub buffer: u64,
    /// Replicas at a time.
    pub replicas_max: u32,
    /// Longest silence of a replica.
    pub timeout: Duration,
    /// Time between two signs of life.
    pub ping_every: Duration,
    /// Replicas without which no write is served.
    pub replicas_min: u32,
    /// Longest silence of a replica that counts for that.
    pub lag_max: Duration,
    /// The word for sentinels on whether to promote this store.
    pub priority: u32,
}

impl ReplicationConfig {
    /// Redis's defaults.
    pub const DEFAULT: Self = Self {
        backlog: 1 << 20,
        buffer: 256 << 20,
        replicas_max: 64,
        timeout: Duration::from_secs(60),
        ping_every: Duration::from_secs(10),
        replicas_min: 0,
        lag_max: Duration::from_secs(10),
        priority: 100,
    };
}

impl ReplicaConfig {
    /// The settings of a store that is a primary.
    pub const NONE: Self = Self {
        primary: None,
        username: None,
        password: None,
        password_from: None,
        tls: None,
        serves_stale: true,
        feed: ReplicationConfig::DEFAULT,
    };
}

/// Where a store is saved, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotConfig {
    /// The file.
    pub file: PathBuf,
    /// How often; `None` for only when asked for.
    pub every: Option<Duration>,
    /// True if also when the process stops.
    pub on_shutdown: bool,
    /// Most bytes written in a second; `None` for no bound.
    pub rate_max: Option<u64>,
    /// Most bytes of memory above the data.
    pub buffer: u64,
}

/// Bounds on the keys that begin with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaConfig {
    /// The prefix.
    pub prefix: String,
    /// Memory, in bytes. `None`: no bound.
    pub memory_max: Option<u64>,
    /// Number of keys. `None`: no bound.
    pub items_max: Option<u64>,
}

/// The keys that the embedded store evicts when it is full, by Redis's `maxmemory-policy` names and
/// one of Keyway's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is its name in the file, explained by Eviction::name")]
pub enum Eviction {
    AllKeysS3Fifo,
    AllKeysLru,
    AllKeysLfu,
    AllKeysRandom,
    VolatileLru,
    VolatileLfu,
    VolatileRandom,
    VolatileTtl,
    NoEviction,
}

impl Eviction {
    /// Every policy, in the order of the documentation.
    pub const ALL: [Eviction; 9] = [
        Eviction::AllKeysS3Fifo,
        Eviction::AllKeysLru,
        Eviction::AllKeysLfu,
        Eviction::AllKeysRandom,
        Eviction::VolatileLru,
        Eviction::VolatileLfu,
        Eviction::VolatileRandom,
        Eviction::VolatileTtl,
        Eviction::NoEviction,
    ];

    /// Returns the name in the file and in CONFIG GET.
    pub const fn name(self) -> &'static str {
        match self {
            Eviction::AllKeysS3Fifo => "allkeys-s3fifo",
            Eviction::AllKeysLru => "allkeys-lru",
            Eviction::AllKeysLfu => "allkeys-lfu",
            Eviction::AllKeysRandom => "allkeys-random",
            Eviction::VolatileLru => "volatile-lru",
            Eviction::VolatileLfu => "volatile-lfu",
            Eviction::VolatileRandom => "volatile-random",
            Eviction::VolatileTtl => "volatile-ttl",
            Eviction::NoEviction => "noeviction",
        }
    }
}

/// Settings of a pool of servers that the data plane does not need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServersConfig {
    /// The source of the servers' password, if not the file itself.
    pub password_from: Option<SecretSource>,
    /// Most clients of this pool connected at once, over all workers.
    pub clients_max: u32,
    /// TLS settings of connections to its servers. `None`: they are not secured.
    pub tls: Option<TlsConfig>,
}

/// TLS settings of connections to the servers of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The settings of the file.
    pub settings: ClientSettings,
    /// The content of the files it names. `None` until they were read, which [`Config::load`] does.
    pub loaded: Option<ClientTls>,
}

/// A pool that leads to others, which are identified by their index in [`Config::pools`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedConfig {
    /// Its settings.
    pub pool: RoutedPool,
    /// Most clients of this pool connected at once, over all workers.
    pub clients_max: u32,
}
