//! Facts about the process itself, for INFO and CONFIG GET.
//!
//! A field has Redis's name if it has Redis's meaning, because exporters and client libraries look
//! for these names. All other fields are in the section `Keyway`. On a sharded pool the worker
//! replaces the fields about data by the servers' numbers. Counts are those of the asking client's
//! pool. Memory in RAM, CPU and uptime are the process's. Values that Keyway does not measure are
//! left out, never shown as zero.

mod latencies;
mod persistence;
mod rate;
mod replica;
mod reset;
mod settings;

use crate::memory;
use keyway_base::Clock;
use keyway_config::{Config, ListenAddr};
use keyway_metrics::{MemcachedTotals, PoolTotals, Registry};
use keyway_proxy::hot_keys::KeyStats;
use keyway_proxy::local::{ClassLatencies, ClientRegistry, Facts, REDIS_VERSION};
use keyway_proxy::pubsub::SubscriptionKind;
use keyway_proxy::{Human, SlowLog};
use keyway_store::{LogStatus, SnapshotStatus, StoreStats};
use keyway_worker::{Channels, ErrorStats, Invalidations, PoolPlan, RoleDoor};
use latencies::Window;
use rate::Rates;
use std::cell::OnceCell;
use std::fmt::{Display, Write};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The listeners of a pool.
#[derive(Clone, Debug, Default)]
struct Listening {
    /// TCP addresses, with the ports that are in use.
    tcp: Vec<SocketAddr>,
    /// Unix sockets.
    unix: Vec<PathBuf>,
    backlog: u32,
    keepalive: Option<Duration>,
}

impl Listening {
    fn port(&self) -> u16 {
        self.tcp.first().map_or(0, SocketAddr::port)
    }
}

/// The facts about an embedded store.
struct StoreFacts {
    policy: &'static str,
    notify: String,
    read: Box<dyn Fn() -> StoreStats + Send + Sync>,
    snapshot: Box<dyn Fn() -> SnapshotStatus + Send + Sync>,
    log: Box<dyn Fn() -> Option<LogStatus> + Send + Sync>,
    scripts: Arc<keyway_script::Registry>,
}

/// One pool.
struct PoolFacts {
    name: String,
    kind: &'static str,
    /// `None` if servers hold the keys.
    store: Option<StoreFacts>,
    databases: u32,
    clients_max: u32,
    bulk_len_max: u32,
    request_len_max: u32,
    output_limits: String,
    tracking_keys_max: u32,
    listening: Listening,
    past: Arc<Past>,
    /// `None` if there are no servers.
    slow_log: Option<Arc<SlowLog>>,
    errors: Arc<ErrorStats>,
    key_stats: Arc<KeyStats>,
    role: RoleDoor,
}

/// Earlier figures of a pool, which survive a change of settings.
#[derive(Default)]
struct Past {
    rates: Rates,
    latencies: Window,
    at_reset: reset::AtReset,
}

/// Shared state of all workers, for INFO.
pub struct Shared<'a> {
    /// The connected clients.
    pub clients: &'a Arc<ClientRegistry>,
    /// The channels of the store.
    pub channels: &'a Arc<Channels>,
    /// The keys that clients cache.
    pub invalidations: &'a Arc<Invalidations>,
}

/// The facts about the process that INFO and CONFIG GET show.
pub struct ProcessFacts {
    start_unix_micros: u64,
    /// 40 hexadecimal digits that no other run has.
    run_id: String,
    wall_clock: fn() -> Clock,
    pools: Vec<PoolFacts>,
    registry: Arc<Registry>,
    clients: Arc<ClientRegistry>,
    channels: Arc<Channels>,
    invalidations: Arc<Invalidations>,
}

impl ProcessFacts {
    /// Creates the facts of a process that starts now.
    pub fn new(
        config: &Config,
        pools: &[Arc<PoolPlan>],
        addresses: &[Option<SocketAddr>],
        registry: &Arc<Registry>,
        shared: Shared<'_>,
        start: Clock,
    ) -> Self {
        let facts = pools.iter().enumerate().map(|(index, pool)| PoolFacts {
            name: pool.name.clone(),
            kind: pool.kind.name(),
            store: pool.kind.store().map(|store| {
                let notify = store.config().notify.to_string();
                let (policy, store) = (store.config().policy.name(), Arc::clone(store));
                let scripts = Arc::clone(&pool.scripts);
                let of_snapshots = Arc::clone(&store);
                let snapshot = Box::new(move || of_snapshots.snapshot_status());
                let of_log = Arc::clone(&store);
                let log = Box::new(move || of_log.log_status());
                let read = Box::new(move || store.stats());
                StoreFacts { policy, notify, read, snapshot, log, scripts }
            }),
            databases: pool.databases,
            clients_max: match pool.clients_max {
                0 => config.limits.clients_max,
                max => max.min(config.limits.clients_max),
            },
            bulk_len_max: config.limits.bulk_len_max,
            request_len_max: config.limits.request_len_max,
            output_limits: settings::output_limits(&config.limits),
            tracking_keys_max: config.limits.tracking_keys_max,
            listening: listening(config, addresses, index),
            past: Arc::default(),
            slow_log: pool.kind.executes().then(|| Arc::clone(&pool.slow_log)),
            errors: Arc::clone(&pool.errors),
            key_stats: Arc::clone(&pool.key_stats),
            role: pool.role.clone(),
        });
        Self {
            start_unix_micros: start.unix_micros,
            run_id: run_id(start),
            wall_clock: crate::serve::wall_clock,
            pools: facts.collect(),
            registry: Arc::clone(registry),
            clients: Arc::clone(shared.clients),
            channels: Arc::clone(shared.channels),
            invalidations: Arc::clone(shared.invalidations),
        }
    }

    /// Returns the facts with other settings. Each pool keeps the earlier figures of the pool that
    /// it replaces, or is the same as, whose position `heir_of` returns.
    #[must_use]
    pub fn following(
        mut self,
        old: &ProcessFacts,
        heir_of: impl Fn(usize) -> Option<usize>,
    ) -> Self {
        self.start_unix_micros = old.start_unix_micros;
        self.run_id.clone_from(&old.run_id);
        for (index, pool) in self.pools.iter_mut().enumerate() {
            if let Some(old) = heir_of(index).and_then(|at| old.pools.get(at)) {
                pool.past = Arc::clone(&old.past);
            }
        }
        self
    }
}

/// Returns the listeners of the pool at `pool_index`.
fn listening(config: &Config, addresses: &[Option<SocketAddr>], pool_index: usize) -> Listening {
    let mut listening = Listening::default();
    let pairs = config.listeners.iter().zip(addresses);
    for (settings, address) in pairs.filter(|(settings, _)| settings.pool_index == pool_index) {
        match &settings.bind {
            ListenAddr::Tcp(addr) => {
                listening.tcp.push(address.unwrap_or(*addr));
            }
            ListenAddr::Unix(path) | ListenAddr::Shm(path) => listening.unix.push(path.clone()),
        }
        listening.backlog = settings.backlog;
        // A unix socket has no keep-alive, and does not change that of other listeners.
        listening.keepalive = settings.tcp_keepalive.or(listening.keepalive);
    }
    listening
}

/// Returns 160 bits from the process's random seeds.
fn run_id(start: Clock) -> String {
    let part = || RandomState::new().hash_one(start.unix_micros);
    format!("{:016x}{:016x}{:08x}", part(), part(), part() as u32)
}

/// The sections, in Redis's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Server,
    Clients,
    Memory,
    Persistence,
    Stats,
    Replication,
    Cpu,
    Commandstats,
    Errorstats,
    Latencystats,
    Latencies,
    Cluster,
    Keyspace,
    Quotas,
    Keyway,
}

impl Section {
    const ALL: [(Section, &'static str); 15] = [
        (Section::Server, "Server"),
        (Section::Clients, "Clients"),
        (Section::Memory, "Memory"),
        (Section::Persistence, "Persistence"),
        (Section::Stats, "Stats"),
        (Section::Replication, "Replication"),
        (Section::Cpu, "CPU"),
        (Section::Commandstats, "Commandstats"),
        (Section::Errorstats, "Errorstats"),
        (Section::Latencystats, "Latencystats"),
        (Section::Latencies, "Latencies"),
        (Section::Cluster, "Cluster"),
        (Section::Keyspace, "Keyspace"),
        (Section::Quotas, "Quotas"),
        (Section::Keyway, "Keyway"),
    ];

    /// Returns whether any of the words asks for this section, whose name is `name`.
    fn is_asked_for(self, name: &str, words: &[&str]) -> bool {
        words.iter().any(|word| {
            word.eq_ignore_ascii_case(name)
                || word.eq_ignore_ascii_case("all")
                || word.eq_ignore_ascii_case("everything")
                || (word.eq_ignore_ascii_case("default") && self.is_shown_by_default())
        })
    }

    fn is_shown_by_default(self) -> bool {
        !matches!(self, Section::Commandstats | Section::Latencystats | Section::Latencies)
    }
}

impl Facts for ProcessFacts {
    fn info(&self, pool: u16, is_cluster: bool, sections: &[&str], out: &mut String) {
        let Some(facts) = self.pools.get(usize::from(pool)) else { return };
        let report = Report {
            process: self,
            index: usize::from(pool),
            is_cluster,
            pool: facts,
            unix_micros: (self.wall_clock)().unix_micros,
            store: OnceCell::new(),
        };
        for (section, name) in Section::ALL {
            if section.is_asked_for(name, sections) {
                if !out.is_empty() {
                    out.push_str("\r\n");
                }
                let _ = write!(out, "# {name}\r\n");
                report.write(section, &mut Fields(out));
            }
        }
    }

    fn backend_latency_micros(&self, pool: u16, backend: usize) -> Option<f64> {
        let totals = self.registry.backend_totals(usize::from(pool));
        let backend = totals.get(backend).filter(|backend| backend.replies > 0)?;
        Some(backend.reply_seconds * 1e6 / backend.replies as f64)
    }

    fn latencies(&self, pool: u16) -> Vec<ClassLatencies> {
        latencies::histograms(&self.registry, usize::from(pool))
    }

    fn observe(&self, elapsed: Duration) {
        for (index, pool) in self.pools.iter().enumerate() {
            pool.past.latencies.pass(elapsed, || self.registry.latency_shares(index));
        }
    }

    fn memcached_totals(&self, pool: u16) -> MemcachedTotals {
        self.registry.pool_totals(usize::from(pool)).memcached
    }

    fn reset(&self, pool: u16) {
        if let Some(facts) = self.pools.get(usize::from(pool)) {
            facts.errors.reset();
            facts.past.at_reset.set(self, usize::from(pool));
        }
    }

    fn key_stats(&self, pool: u16) -> Option<&KeyStats> {
        self.pools.get(usize::from(pool)).map(|facts| &*facts.key_stats)
    }

    fn slow_log(&self, pool: u16) -> Option<&SlowLog> {
        self.pools.get(usize::from(pool))?.slow_log.as_deref()
    }

    fn settings(&self, pool: u16) -> Vec<(&'static str, String)> {
        self.pools.get(usize::from(pool)).map(settings::of).unwrap_or_default()
    }
}

/// Writes lines of `name:value`.
struct Fields<'a>(&'a mut String);

impl Fields<'_> {
    fn put(&mut self, name: &str, value: impl Display) -> &mut Self {
        let _ = write!(self.0, "{name}:{value}\r\n");
        self
    }

    /// Writes a size in bytes, and the same in words under `name_human`.
    fn put_size(&mut self, name: &str, bytes: u64) -> &mut Self {
        self.put(name, bytes).put(&format!("{name}_human"), Human(bytes))
    }
}

/// An INFO reply that is being written.
struct Report<'a> {
    process: &'a ProcessFacts,
    index: usize,
    is_cluster: bool,
    pool: &'a PoolFacts,
    unix_micros: u64,
    /// The store's figures. They are read at most once, because that locks every shard of the store
    /// in turn.
    store: OnceCell<Option<StoreStats>>,
}

impl Report<'_> {
    fn write(&self, section: Section, fields: &mut Fields) {
        match section {
            Section::Server => self.server(fields),
            Section::Clients => self.clients(fields),
            Section::Memory => self.memory(fields),
            Section::Persistence => self.persistence(fields),
            Section::Stats => self.stats(fields),
            Section::Replication => self.replication(fields),
            Section::Cpu => cpu(fields),
            Section::Commandstats => self.command_stats(fields),
            Section::Errorstats => self.error_stats(fields),
            Section::Latencystats => latencies::write_quantiles(self, fields),
            Section::Latencies => latencies::write_shares(self, fields),
            Section::Cluster => {
                fields.put("cluster_enabled", u8::from(self.is_cluster));
            }
            Section::Keyspace => self.keyspace(fields),
            Section::Quotas => self.quotas(fields),
            Section::Keyway => self.keyway(fields),
        }
    }

    fn store(&self) -> Option<&StoreStats> {
        let read = || self.pool.store.as_ref().map(|store| (store.read)());
        self.store.get_or_init(read).as_ref()
    }

    fn totals(&self) -> PoolTotals {
        self.pool.past.at_reset.pool(self.process.registry.pool_totals(self.index))
    }

    fn uptime_seconds(&self) -> u64 {
        self.unix_micros.saturating_sub(self.process.start_unix_micros) / 1_000_000
    }

    fn server(&self, fields: &mut Fields) {
        let system = rustix::system::uname();
        let name = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let os = [name(system.sysname()), name(system.release()), name(system.machine())];
        fields
            .put("redis_version", REDIS_VERSION)
            .put("keyway_version", self.process.registry.layout().version)
            .put("redis_mode", if self.is_cluster { "cluster" } else { "standalone" })
            .put("os", os.join(" "))
            .put("arch_bits", usize::BITS)
            .put("monotonic_clock", "POSIX clock_gettime")
            .put("multiplexing_api", crate::driver::name())
            .put("process_id", std::process::id())
            .put("run_id", &self.process.run_id)
            .put("tcp_port", self.pool.listening.port())
            .put("server_time_usec", self.unix_micros)
            .put("uptime_in_seconds", self.uptime_seconds())
            .put("uptime_in_days", self.uptime_seconds() / 86_400);
        if let Ok(path) = std::env::current_exe() {
            fields.put("executable", path.display());
        }
    }

    fn clients(&self, fields: &mut Fields) {
        let (blocked, tracking) = self.process.clients.waiting_and_tracking(self.index as u16);
        fields
            .put("connected_clients", self.totals().clients_connected)
            .put("cluster_connections", 0)
            .put("maxclients", self.pool.clients_max)
            .put("blocked_clients", blocked)
            .put("tracking_clients", tracking);
    }

    /// Writes the section Memory. `used_memory` is what `maxmemory` bounds: the memory of the
    /// store's data, and idle memory in its pages. Without a store it is the memory of the process.
    fn memory(&self, fields: &mut Fields) {
        let resident = memory::resident();
        let used = self.store().map_or(resident, |stats| stats.memory_used + stats.memory_idle);
        let max = self.store().map_or(0, |stats| stats.memory_max);
        fields.put_size("used_memory", used).put_size("used_memory_rss", resident);
        let peak = match self.store() {
            Some(stats) => stats.memory_peak.max(used),
            None => memory::resident_peak().max(resident),
        };
        fields
            .put_size("used_memory_peak", peak)
            .put("used_memory_dataset", self.store().map_or(0, |stats| stats.memory_used))
            .put_size("total_system_memory", memory::available())
            .put_size("maxmemory", max)
            .put("maxmemory_policy", settings::policy(self.pool))
            .put("mem_fragmentation_ratio", format_args!("{:.2}", ratio(resident, used)))
            .put("mem_allocator", "libc");
        if let Some(role) = self.pool.role.get() {
            let feed = role.feed();
            fields
                .put("mem_replication_backlog", feed.stream_bytes)
                .put("mem_clients_slaves", feed.unsent_bytes);
        }
        if let Some(store) = &self.pool.store {
            let (scripts, scripts_len) = store.scripts.kept();
            let (libraries, functions, libraries_len) = store.scripts.library_counts();
            fields
                .put("used_memory_scripts_eval", scripts_len)
                .put("number_of_cached_scripts", scripts)
                .put("number_of_functions", functions)
                .put("number_of_libraries", libraries)
                .put("used_memory_functions", libraries_len)
                .put_size("used_memory_scripts", (scripts_len + libraries_len) as u64);
        }
    }

    fn stats(&self, fields: &mut Fields) {
        let totals = self.process.registry.pool_totals(self.index);
        let counts = [totals.requests, totals.received_bytes, totals.sent_bytes];
        let totals = self.pool.past.at_reset.pool(totals);
        let since = self.process.start_unix_micros;
        let [requests, received, sent] =
            self.pool.past.rates.per_second(self.unix_micros, since, counts);
        fields
            .put("total_connections_received", totals.clients_accepted)
            .put("total_commands_processed", totals.requests)
            .put("instantaneous_ops_per_sec", requests.round() as u64)
            .put("total_net_input_bytes", totals.received_bytes)
            .put("total_net_output_bytes", totals.sent_bytes)
            .put("instantaneous_input_kbps", format_args!("{:.2}", received / 1024.0))
            .put("instantaneous_output_kbps", format_args!("{:.2}", sent / 1024.0))
            .put("sync_full", 0)
            .put("sync_partial_ok", 0)
            .put("sync_partial_err", 0)
            .put("total_error_replies", totals.errors + totals.refused);
        if let Some(stats) = self.store() {
            let since = |read| self.pool.past.at_reset.store(stats, read);
            fields
                .put("expired_subkeys", since(|stats| stats.expired_fields))
                .put("expired_keys", since(|stats| stats.expired))
                .put("evicted_keys", since(|stats| stats.evicted))
                .put("keyspace_hits", since(|stats| stats.hits))
                .put("keyspace_misses", since(|stats| stats.misses));
            let count = |kind| self.process.channels.count(self.index as u16, kind);
            fields
                .put("pubsub_channels", count(SubscriptionKind::Channel))
                .put("pubsub_patterns", count(SubscriptionKind::Pattern));
            let tracked = self.process.invalidations.tracked(self.index as u16);
            fields
                .put("tracking_total_keys", tracked.keys)
                .put("tracking_total_items", tracked.items)
                .put("tracking_total_prefixes", tracked.prefixes);
        }
        fields.put("latest_fork_usec", 0);
    }

    /// Writes the section Persistence.
    fn persistence(&self, fields: &mut Fields) {
        match (&self.pool.store, self.store()) {
            (Some(facts), Some(stats)) => {
                let now = self.unix_micros / 1_000_000;
                let (snapshot, log) = ((facts.snapshot)(), (facts.log)());
                persistence::saved(&snapshot, log.as_ref(), stats.changes, now, fields);
            }
            _ => persistence::nothing(fields),
        }
    }

    fn replication(&self, fields: &mut Fields) {
        if let Some(role) = self.pool.role.get() {
            return replica::of_store(role.figures().as_ref(), &role.feed(), fields);
        }
        fields
            .put("role", "master")
            .put("connected_slaves", 0)
            .put("master_failover_state", "no-failover")
            .put("master_replid", &self.process.run_id)
            .put("master_replid2", "0".repeat(40))
            .put("master_repl_offset", 0)
            .put("second_repl_offset", -1)
            .put("repl_backlog_active", 0)
            .put("repl_backlog_size", 0)
            .put("repl_backlog_first_byte_offset", 0)
            .put("repl_backlog_histlen", 0);
    }

    /// Writes the section Commandstats. Refused calls have no command, so there is no
    /// `rejected_calls`. On a store the time is that of the turns, divided evenly among their
    /// requests. If servers hold the keys, it is the whole time from request to reply.
    fn command_stats(&self, fields: &mut Fields) {
        for (command, totals) in self.command_totals() {
            if totals.calls == 0 {
                continue;
            }
            let seconds = match self.pool.store {
                Some(_) => totals.worked_seconds,
                None => totals.reply_seconds,
            };
            let micros = seconds * 1e6;
            let per_call = if totals.replies == 0 { 0.0 } else { micros / totals.replies as f64 };
            let value = format_args!(
                "calls={},usec={micros:.0},usec_per_call={per_call:.2},failed_calls={}",
                totals.calls, totals.errors
            );
            fields.put(&format!("cmdstat_{command}"), value);
        }
    }

    /// Writes the error replies to clients of the pool, counted by their first word.
    fn error_stats(&self, fields: &mut Fields) {
        for (word, count) in self.pool.errors.counts() {
            fields.put(&format!("errorstat_{word}"), format_args!("count={count}"));
        }
    }

    fn keyspace(&self, fields: &mut Fields) {
        let databases = self.store().map_or(&[][..], |stats| &stats.databases);
        for (database, stats) in databases.iter().enumerate().filter(|(_, stats)| stats.items > 0) {
            let value = format_args!("keys={},expires={},avg_ttl=0", stats.items, stats.volatile);
            fields.put(&format!("db{database}"), value);
        }
    }

    /// Writes a line for each quota. The prefix comes last, because it may contain any bytes except
    /// those that would end the line.
    fn quotas(&self, fields: &mut Fields) {
        let quotas = self.store().map_or(&[][..], |stats| &stats.quotas);
        for (index, quota) in quotas.iter().enumerate() {
            let prefix = String::from_utf8_lossy(&quota.config.prefix).replace(['\r', '\n'], " ");
            let value = format_args!(
                "memory={},memory_max={},keys={},keys_max={},evicted={},refused={},prefix={prefix}",
                quota.memory_used,
                quota.config.memory_max,
                quota.items,
                quota.config.items_max,
                quota.evicted,
                quota.refused,
            );
            fields.put(&format!("quota{index}"), value);
        }
    }

    fn keyway(&self, fields: &mut Fields) {
        let registry = &self.process.registry;
        let backends = registry.backend_names(self.index);
        fields
            .put("keyway_pool", &self.pool.name)
            .put("keyway_pool_kind", self.pool.kind)
            .put("keyway_pools", registry.layout().pools.iter().filter(|it| !it.is_retired).count())
            .put("keyway_workers", registry.workers_running())
            .put("keyway_workers_max", registry.layout().workers_max)
            .put("keyway_backends", backends.iter().flatten().count())
            .put_size("keyway_used_memory", memory::resident())
            .put("keyway_commands_processed", self.totals().requests);
        if let Some(reloads) = registry.reload_figures() {
            fields
                .put("keyway_config_generation", reloads.generation)
                .put("keyway_config_last_reload", reloads.last_unix_seconds)
                .put("keyway_config_ending_pools", reloads.ending_pools);
        }
        let totals = registry.backend_totals(self.index);
        let there = backends.iter().zip(totals).filter_map(|(name, it)| Some((name.as_ref()?, it)));
        for (index, (name, backend)) in there.enumerate() {
            let value = format_args!(
                "name={name},state={},links={},in_flight={},requests={},errors={},\
                 error_replies={},ejections={}",
                backend.state(),
                backend.links_ready,
                backend.in_flight,
                backend.requests,
                backend.errors,
                backend.error_replies,
                backend.ejections,
            );
            fields.put(&format!("backend{index}"), value);
        }
    }
}

fn cpu(fields: &mut Fields) {
    let (user, system) = memory::cpu_seconds();
    fields
        .put("used_cpu_sys", format_args!("{system:.6}"))
        .put("used_cpu_user", format_args!("{user:.6}"));
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests;
