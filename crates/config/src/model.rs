use crate::address::ListenAddr;
use crate::error::ConfigError;
use keyway_base::{KeyspaceEvents, Limits, Network};
use keyway_tls::{ClientSettings, ClientTls, ServerSettings, ServerTls};
use keyway_topology::{
    ClusterPool, Epoch, MemcachedPool, Password, Pool, PoolKind, ReadFrom, ReplicatedPool,
    RoutedPool, ServerSet, Topology,
};
use keyway_users::{User, Users};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A whole configuration, checked: every reference resolves, every value is
/// within its range, every default is filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `[server]`.
    pub server: ServerConfig,
    /// `[limits]`.
    pub limits: Limits,
    /// Every `[[listener]]`, in file order; at least one.
    pub listeners: Vec<ListenerConfig>,
    /// Every `[[user]]`, in file order.
    pub users: Vec<UserConfig>,
    /// Every `[pool.NAME]`, in file order; at least one.
    pub pools: Vec<PoolConfig>,
    /// What is suspicious but usable, in line order. To be logged at start.
    pub warnings: Vec<ConfigError>,
}

impl Config {
    /// Returns whether the listener at `bind`, or the admin address, must leave IPv4 clients to
    /// another socket of this file. `[::]` accepts them otherwise.
    pub fn only_v6(&self, bind: &ListenAddr) -> bool {
        let mut all =
            self.listeners.iter().map(|listener| &listener.bind).chain(&self.server.admin);
        all.any(|other| bind.leaves_ipv4_to(other))
    }

    /// The pool a listener sends its requests to.
    pub fn pool_of(&self, listener: &ListenerConfig) -> &PoolConfig {
        &self.pools[listener.pool_index]
    }

    /// Who may come in at a listener.
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

    /// The pools as the data plane takes them; indices of pools are the same
    /// as in [`Config::pools`].
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
                PoolKindConfig::Sentinels(set, _) => PoolKind::Sentinels(set.clone()),
                PoolKindConfig::Routed(routed) => PoolKind::Routed(routed.pool.clone()),
            },
        });
        Topology::new(epoch, pools.collect())
    }

    /// Whether a listener of the pool at `index`, or a user, has the nearest server read.
    fn reads_nearest(&self, index: usize) -> bool {
        let mut own = self.listeners.iter().filter(|listener| listener.pool_index == index);
        own.any(|listener| listener.read_from == Some(ReadFrom::Nearest))
            || self.users.iter().any(|user| user.read_from == Some(ReadFrom::Nearest))
    }
}

/// Where a password comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// A file that holds nothing else.
    File(PathBuf),
    /// A variable of the environment.
    Variable(String),
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserConfig {
    /// Its name, what it may do, and the hashes of its passwords.
    pub user: User,
    /// The password that stands in clear, here or elsewhere. `None` until that was read,
    /// which [`Config::load`] does.
    pub password: Option<Password>,
    /// Where `password` comes from, if not the file itself.
    pub password_from: Option<SecretSource>,
    /// Which of [`Config::pools`] answers it; that of the listener when `None`.
    pub pool_index: Option<usize>,
    /// Which servers its reads go to; as the listener or the pool says when `None`.
    pub read_from: Option<ReadFrom>,
}

/// The process itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// How many threads serve requests.
    pub workers: Workers,
    /// Where metrics and health are served (always TCP); nowhere when `None`.
    pub admin: Option<ListenAddr>,
    /// What requests there have to show. `None` until it was read, which [`Config::load`] does.
    pub admin_token: Option<Password>,
    /// Where `admin_token` comes from, if there is one.
    pub admin_token_from: Option<SecretSource>,
    /// With what it is secured.
    pub admin_tls: Option<ListenerTlsConfig>,
    /// What is logged, and how.
    pub log: LogConfig,
    /// How long requests in flight may take to finish after SIGTERM.
    pub drain_timeout: Duration,
    /// How long clients are still accepted once draining was asked for.
    pub drain_notice: Duration,
    /// How workers talk to the kernel.
    pub io: IoDriver,
    /// How long a process that is to take this one's place may take until it can serve.
    pub upgrade_timeout: Duration,
    /// How long clients that were there are served when another process has taken over.
    pub upgrade_grace: Duration,
    /// How long a worker looks at shared memory before it sleeps; zero for not at all.
    pub spin: Duration,
}

/// How workers talk to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoDriver {
    /// By readiness.
    #[default]
    Epoll,
    /// By completion; refused where the system has none for us.
    IoUring,
    /// By completion where that can be had.
    Auto,
}

impl IoDriver {
    /// As it is written in a file.
    pub fn text(self) -> &'static str {
        match self {
            IoDriver::Epoll => "epoll",
            IoDriver::IoUring => "io_uring",
            IoDriver::Auto => "auto",
        }
    }
}

/// How many workers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// Start with one, add while busy, up to the cores.
    Auto,
    /// From `min` to `max`, added while busy; a fixed number when both are the
    /// same. `1 <= min <= max`.
    Between {
        /// Workers at start.
        min: u16,
        /// Workers at most.
        max: u16,
    },
}

impl Workers {
    /// First and largest number of workers on a machine with that many cores.
    pub fn bounds(self, cores: u16) -> (u16, u16) {
        match self {
            Workers::Auto => (1, cores.max(1)),
            Workers::Between { min, max } => (min, max),
        }
    }
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Form of a line.
    pub format: LogFormat,
    /// The least important messages still written.
    pub level: LogLevel,
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object per line.
    Json,
}

/// How important a message is, the most important first.
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
    /// Where it accepts.
    pub bind: ListenAddr,
    /// What clients speak there.
    pub protocol: Protocol,
    /// Which of [`Config::pools`] answers.
    pub pool_index: usize,
    /// Connections the kernel holds until they are accepted.
    pub backlog: u32,
    /// What clients must send with AUTH: the listener's own, else the pool's
    /// `client_password`. With `password_file` it is `None` until the file
    /// was read, which [`Config::load`] does.
    pub password: Option<Password>,
    /// Where `password` comes from, if not the file itself.
    pub password_from: Option<SecretSource>,
    /// Which of [`Config::users`] may log in here.
    pub users: Vec<usize>,
    /// Permission bits of a unix socket; as the umask says when `None`.
    pub mode: Option<u32>,
    /// User and group that a unix socket is given to; those of the process when `None`.
    pub owner: (Option<u32>, Option<u32>),
    /// Who gets shared memory; `None` unless it listens at `shm://`.
    pub shm: Option<ShmConfig>,
    /// Silence after which the kernel probes a client; never when `None`.
    pub tcp_keepalive: Option<Duration>,
    /// The cluster that its clients are told of; none when `None`.
    pub cluster: Option<ClusterModeConfig>,
    /// Which servers its clients read from; as the pool says when `None`.
    pub read_from: Option<ReadFrom>,
    /// How clients come in, and how long they may stay.
    pub entrance: EntranceConfig,
}

/// How clients of a listener come in, and how long they may stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntranceConfig {
    /// How connections are secured; not at all when `None`.
    pub tls: Option<ListenerTlsConfig>,
    /// The proxies that say whose connections they bring (any if the list is empty), where
    /// clients come through proxies.
    pub proxies: Option<Vec<Network>>,
    /// Whose connections are taken; of all addresses when empty.
    pub allow: Vec<Network>,
    /// Whose are not.
    pub deny: Vec<Network>,
    /// How long coming in may take.
    pub handshake_timeout: Duration,
    /// Clients of each worker that come in at once.
    pub handshakes_max: u32,
    /// Clients connected at once, over all workers; `None` for no bound but that of
    /// [`Config::limits`].
    pub clients_max: Option<u32>,
    /// How long a client may ask nothing; for ever when `None`.
    pub idle_timeout: Option<Duration>,
}

/// How connections of clients are secured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTlsConfig {
    /// As the file says.
    pub settings: ServerSettings,
    /// What the files it names came to; `None` until they were read, which
    /// [`Config::load`] does.
    pub loaded: Option<ServerTls>,
}

/// Who gets shared memory at a listener, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmConfig {
    /// Users beside root and that of this process.
    pub allow_uids: Vec<u32>,
    /// Largest ring in each direction, in bytes: a power of two.
    pub ring_max: u64,
}

/// The cluster that clients of a listener are told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterModeConfig {
    /// Host and port of every Keyway that is one of its nodes; empty for this
    /// listener alone.
    pub announce: Vec<(String, u16)>,
}

/// What clients of a listener speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP, and inline commands.
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
    /// What it is.
    pub kind: PoolKindConfig,
}

/// What kind of pool, with the settings of that kind.
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
    /// The sentinels of a pool of kind `"replicated"`.
    Sentinels(ServerSet, ServersConfig),
    /// The kinds that lead to other pools.
    Routed(RoutedConfig),
}

impl PoolKindConfig {
    /// The servers, of kinds that have some of their own. With `password_file` their password
    /// is `None` until the file was read, which [`Config::load`] does.
    pub fn servers(&self) -> Option<(&ServerSet, &ServersConfig)> {
        match self {
            PoolKindConfig::Sharded(set, config) | PoolKindConfig::Sentinels(set, config) => {
                Some((set, config))
            }
            PoolKindConfig::Memcached(pool, config) => Some((&pool.servers, config)),
            PoolKindConfig::Cluster(pool, config) => Some((&pool.servers, config)),
            PoolKindConfig::Replicated(pool, config) => Some((&pool.servers, config)),
            PoolKindConfig::Store(_) | PoolKindConfig::Routed(_) => None,
        }
    }

    /// As [`PoolKindConfig::servers`], to be changed.
    pub fn servers_mut(&mut self) -> Option<(&mut ServerSet, &mut ServersConfig)> {
        match self {
            PoolKindConfig::Sharded(set, config) | PoolKindConfig::Sentinels(set, config) => {
                Some((set, config))
            }
            PoolKindConfig::Memcached(pool, config) => Some((&mut pool.servers, config)),
            PoolKindConfig::Cluster(pool, config) => Some((&mut pool.servers, config)),
            PoolKindConfig::Replicated(pool, config) => Some((&mut pool.servers, config)),
            PoolKindConfig::Store(_) | PoolKindConfig::Routed(_) => None,
        }
    }
}

/// The embedded store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Memory for data, in bytes; `None` for a share of the machine's, which
    /// whoever starts the store works out.
    pub memory_max: Option<u64>,
    /// What gives way when memory is full.
    pub eviction: Eviction,
    /// Databases clients may SELECT, from 0.
    pub databases: u32,
    /// Which changes of keys are published.
    pub notify_keyspace_events: KeyspaceEvents,
    /// How long a script may run.
    pub script_time_max: Duration,
    /// How long others wait for a script.
    pub script_busy_after: Duration,
    /// From which time on a request is slow; `Duration::MAX` when none is.
    pub slower_than: Duration,
    /// Slow requests kept.
    pub slow_log_len_max: u32,
    /// Bytes of memory for scripts in each worker.
    pub script_memory_max: u64,
    /// How long after a read a key expires that has an expiry; `None`: reads
    /// move none.
    pub expire_after_read: Option<Duration>,
    /// Percent of that below which the time left must be for it to be moved.
    pub expire_after_read_percent: u8,
    /// What keys of some prefixes may take.
    pub quotas: Vec<QuotaConfig>,
    /// Where it is saved.
    pub snapshot: Option<SnapshotConfig>,
}

/// Where a store is saved, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotConfig {
    /// The file.
    pub file: PathBuf,
    /// How often; `None` for only when asked for.
    pub every: Option<Duration>,
    /// Whether also when the process stops.
    pub on_shutdown: bool,
    /// Most bytes written in a second; `None` for no bound.
    pub rate_max: Option<u64>,
    /// Most bytes of memory above the data.
    pub buffer: u64,
}

/// What the keys that begin with a prefix may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaConfig {
    /// What they begin with.
    pub prefix: String,
    /// Memory, in bytes; `None` for no bound.
    pub memory_max: Option<u64>,
    /// Keys; `None` for no bound.
    pub items_max: Option<u64>,
}

/// What gives way when the embedded store is full, by Redis's
/// `maxmemory-policy` names and one of our own.
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

    /// The name in the file and in CONFIG GET.
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
    /// Clients of this pool connected at once, over all workers.
    pub clients_max: u32,
    /// How connections to its servers are secured; not at all when `None`.
    pub tls: Option<TlsConfig>,
}

/// How connections to the servers of a pool are secured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// As the file says.
    pub settings: ClientSettings,
    /// What the files it names came to; `None` until they were read, which
    /// [`Config::load`] does.
    pub loaded: Option<ClientTls>,
}

/// Other pools, which are named by their position in [`Config::pools`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedConfig {
    /// What goes where.
    pub pool: RoutedPool,
    /// Clients of this pool connected at once, over all workers.
    pub clients_max: u32,
}
