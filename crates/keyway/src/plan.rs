//! Builds what the workers share from the configuration.

mod sockets;

use crate::facts::{ProcessFacts, Shared};
use crate::memory;
use crate::reload::{Merge, ReloadTally};
use keyway_base::{Clock, Time};
use keyway_command::Class;
use keyway_config::{AccessConfig, Config, ListenerConfig, PoolKindConfig, Protocol, StoreConfig};
use keyway_metrics::{
    FrontFigures, Layout, LoginFigures, PoolLayout, Registry, StoreFigures, TransactionFigures,
};
use keyway_net::AcceptFilter;
use keyway_proxy::local::{ClientRegistry, EmulatedCluster};
use keyway_proxy::{QueueBudget, SlowLog};
use keyway_script::ScriptLimits;
use keyway_store::{
    AfterRead, EvictionPolicy, LogState, LogStatus, QuotaConfig, QuotaStats, SnapshotStatus, Store,
    StoreStats,
};
use keyway_topology::{BackendId, Epoch, FailureReason, HealthBoard, Topology};
use keyway_users::{LoginFault, Verifier};
use keyway_worker::{
    FeedFigures, ListenerAccess, ListenerPlan, Pause, Plan, PoolKind, PoolPlan, ReplicaFigures,
    Retired,
};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
pub use sockets::{NewSocketFiles, bind, options, unusable_path};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Returns the metrics of a process with this topology.
pub fn registry(topology: &Topology, workers_max: usize, clock: Clock) -> Arc<Registry> {
    Registry::new(layout(topology, &[], workers_max, clock))
}

/// Returns the layout of metrics for this topology, in which some pools are retired.
fn layout(topology: &Topology, retired: &[Retired], workers_max: usize, clock: Clock) -> Layout {
    const CLASSES: [&str; Class::ALL.len()] = {
        let mut labels = [""; Class::ALL.len()];
        let mut index = 0;
        while index < labels.len() {
            labels[index] = Class::ALL[index].label();
            index += 1;
        }
        labels
    };
    let pools = topology.pools().iter().enumerate().map(|(index, pool)| PoolLayout {
        name: pool.name.clone(),
        backends: pool.servers().iter().map(|server| server.label().into_owned()).collect(),
        is_retired: retired.iter().any(|retired| usize::from(retired.pool) == index),
    });
    Layout {
        classes: &CLASSES,
        commands: &keyway_command::COUNTED_NAMES,
        pools: pools.collect(),
        workers_max,
        version: env!("CARGO_PKG_VERSION"),
        start_unix_micros: clock.unix_micros,
    }
}

/// Returns whether a server does not serve, as far as this process knows. One closed connection is
/// not enough, because servers close idle connections.
fn is_failing(health: &HealthBoard, id: BackendId) -> bool {
    let is_closed_once =
        health.reason(id) == Some(FailureReason::Closed) && health.failures(id) == 1;
    !health.state(id).is_sound() && !is_closed_once
}

/// The inputs of a plan.
pub struct Sources<'s> {
    /// The configuration, with every pool and listener at its position.
    pub config: &'s Config,
    /// The address at which each listener listens, if by TCP.
    pub addresses: &'s [Option<SocketAddr>],
    /// The clock at the start of the process.
    pub clock: Clock,
    /// A random number that an attacker cannot guess.
    pub seed: u64,
    /// Counts of reloads.
    pub reloads: &'s Arc<ReloadTally>,
    /// The verifier of slow password hashes.
    pub verifier: &'s Arc<Verifier>,
}

/// One version of the settings, and its counts.
#[derive(Clone)]
pub struct Version {
    /// The state that all workers share.
    pub plan: Arc<Plan>,
    /// Its metrics.
    pub registry: Arc<Registry>,
    /// The facts that the process shows about itself.
    pub facts: Arc<ProcessFacts>,
}

/// Builds the first version, at the start.
pub fn plan(sources: &Sources, registry: &Arc<Registry>) -> Version {
    let config = sources.config;
    let topology = Arc::new(config.topology(Epoch(1)));
    let mut pools: Vec<PoolPlan> = (0..config.pools.len())
        .map(|index| pool_plan(index, config, &topology, sources.seed))
        .collect();
    keyway_worker::share_scripts(&mut pools);
    let pools: Vec<Arc<PoolPlan>> = pools.into_iter().map(Arc::new).collect();
    let listeners: Vec<ListenerPlan> =
        (0..config.listeners.len()).map(|index| listener_plan(sources, index, None)).collect();
    let clients = Arc::new(ClientRegistry::default());
    let channels = Arc::<keyway_worker::Channels>::default();
    let invalidations = Arc::<keyway_worker::Invalidations>::default();
    let shared = Shared { clients: &clients, channels: &channels, invalidations: &invalidations };
    let facts =
        ProcessFacts::new(config, &pools, sources.addresses, registry, shared, sources.clock);
    let facts = Arc::new(facts);
    let plan = Arc::new(Plan {
        generation: 1,
        retired: Vec::new(),
        followers: AtomicUsize::default(),
        limits: config.limits,
        listeners,
        user_reads: config.users.iter().filter_map(|user| user.read_from.clone()).collect(),
        pools,
        health: Arc::new(HealthBoard::new(&topology)),
        topology,
        clients,
        facts: Arc::clone(&facts) as Arc<dyn keyway_proxy::local::Facts>,
        next_client_id: Arc::new(AtomicU64::new(1)),
        mailers: Arc::default(),
        relief: Arc::default(),
        drain_timeout: config.server.drain_timeout,
        spin: config.server.spin,
        notices: Arc::default(),
        transactions: Arc::new(QueueBudget::new(config.limits.transactions_len_max)),
        channels,
        handouts: Arc::default(),
        invalidations,
        monitors: Arc::default(),
        redirects: Arc::default(),
    });
    watch(sources, &plan, registry, None);
    Version { plan, registry: Arc::clone(registry), facts }
}

/// Builds the version that succeeds `old`. `merge` tells what is the same.
pub fn next_plan(sources: &Sources, old: &Version, merge: &Merge) -> Version {
    let Sources { config, clock, seed, .. } = *sources;
    let Version { plan: before, registry, facts } = old;
    let is_same = |index: usize| merge.is_same[index];
    let pools_of = config.topology(Epoch(merge.generation)).pools().to_vec();
    let epoch = Epoch(merge.generation);
    let topology = Arc::new(before.topology.succeeded_by(epoch, pools_of, is_same));
    let heir_of = |index: usize| merge.heir_of[index];
    let from = &before.topology;
    let health = Arc::new(before.health.succeeded_by(from, &topology, is_same, heir_of));
    let lineage = |index: usize| if is_same(index) { Some(index) } else { heir_of(index) };
    let new: Vec<usize> = (0..config.pools.len()).filter(|&index| !is_same(index)).collect();
    let mut made: Vec<PoolPlan> = new
        .iter()
        .map(|&index| {
            let mut pool = pool_plan(index, config, &topology, seed);
            if let Some(old) = heir_of(index) {
                inherit(&mut pool, &before.pools[old]);
            }
            pool
        })
        .collect();
    share_new_scripts(&new, &mut made);
    let mut made = made.into_iter().map(Arc::new);
    let pools: Vec<Arc<PoolPlan>> = (0..config.pools.len())
        .map(|index| match is_same(index) {
            true => Arc::clone(&before.pools[index]),
            false => made.next().expect("one was made for each that is new"),
        })
        .collect();
    let workers_max = registry.layout().workers_max;
    let counted = registry;
    let registry =
        registry.succeeded_by(layout(&topology, &merge.retired, workers_max, clock), lineage);
    let listeners = (0..config.listeners.len())
        .map(|index| listener_plan(sources, index, Some((before, merge))))
        .collect();
    let shared = Shared {
        clients: &before.clients,
        channels: &before.channels,
        invalidations: &before.invalidations,
    };
    let facts = ProcessFacts::new(config, &pools, sources.addresses, &registry, shared, clock)
        .following(facts, lineage);
    let facts = Arc::new(facts);
    let plan = Arc::new(Plan {
        generation: merge.generation,
        retired: merge.retired.clone(),
        followers: AtomicUsize::default(),
        limits: config.limits,
        listeners,
        user_reads: config.users.iter().filter_map(|user| user.read_from.clone()).collect(),
        pools,
        health,
        topology,
        clients: Arc::clone(&before.clients),
        facts: Arc::clone(&facts) as Arc<dyn keyway_proxy::local::Facts>,
        next_client_id: Arc::clone(&before.next_client_id),
        mailers: Arc::clone(&before.mailers),
        relief: Arc::clone(&before.relief),
        drain_timeout: config.server.drain_timeout,
        spin: before.spin,
        notices: Arc::clone(&before.notices),
        transactions: Arc::clone(&before.transactions),
        channels: Arc::clone(&before.channels),
        handouts: Arc::clone(&before.handouts),
        invalidations: Arc::clone(&before.invalidations),
        monitors: Arc::clone(&before.monitors),
        redirects: Arc::clone(&before.redirects),
    });
    plan.follow_maps(before, heir_of);
    plan.follow_holds(before, heir_of);
    watch(sources, &plan, &registry, Some((before, counted)));
    Version { plan, registry, facts }
}

/// Gives a pool the lasting state of the pool that it replaces.
fn inherit(pool: &mut PoolPlan, old: &PoolPlan) {
    pool.errors = Arc::clone(&old.errors);
    pool.key_stats = Arc::clone(&old.key_stats);
    pool.inherit_notices(old);
    if pool.slow_log.is_like(&old.slow_log) {
        pool.slow_log = Arc::clone(&old.slow_log);
    }
    pool.kind.inherit(&old.kind);
}

/// Makes a pool that reads for others share their scripts, if both are new.
fn share_new_scripts(new: &[usize], made: &mut [PoolPlan]) {
    let index_of = |position: u16| new.iter().position(|&other| other == usize::from(position));
    let split = |pool: &PoolPlan| match &pool.kind {
        PoolKind::Routed(routes) => match &routes.pool {
            keyway_topology::RoutedPool::ReadWriteSplit(split) => Some((split.write, split.read)),
            _ => None,
        },
        _ => None,
    };
    for index in 0..made.len() {
        let end = |reads: bool| {
            let mut at = Some(index);
            while let Some((write, read)) = at.and_then(|at| split(&made[at])) {
                at = index_of(if reads { read } else { write });
            }
            at
        };
        if split(&made[index]).is_none() {
            continue;
        }
        let (Some(writer), Some(reader)) = (end(false), end(true)) else { continue };
        let Some(known) = made[writer].kind.scripts().map(Arc::clone) else { continue };
        if let Some(scripts) = made[reader].kind.scripts_mut() {
            *scripts = known;
        }
    }
}

/// Builds a listener. It keeps the state it had before.
fn listener_plan(sources: &Sources, index: usize, before: Option<(&Plan, &Merge)>) -> ListenerPlan {
    let (settings, address) = (&sources.config.listeners[index], sources.addresses[index]);
    let is_opened = |merge: &Merge| merge.opened.contains(&index);
    let old = before
        .filter(|(_, merge)| !is_opened(merge))
        .and_then(|(plan, merge)| Some((plan.listeners.get(index)?, merge)));
    let is_ended = old.is_some_and(|(_, merge)| merge.ended[index]);
    let users = match old {
        Some((old, merge)) if merge.same_users[index] => Arc::clone(&old.users),
        _ => {
            let users = sources.config.users_of(settings).verified_by(sources.verifier);
            Arc::new(match old {
                Some((old, _)) => users.following(&old.users),
                None => users,
            })
        }
    };
    let mut cluster = emulated(settings, address);
    if !is_ended
        && let (Some(new), Some(before)) = (&cluster, old.and_then(|(old, _)| old.cluster.as_ref()))
        && has_same_members(new, before)
    {
        // The thread that watches the other members goes on to update it.
        cluster = Some(Arc::clone(before));
    }
    let has_filter = old.is_some_and(|(old, _)| old.access.filter.is_some());
    let mut access = access(&settings.access, has_filter);
    if let Some((old, _)) = old {
        access.tally = Arc::clone(&old.access.tally);
    }
    ListenerPlan {
        is_ended,
        pool: match old {
            Some((old, _)) if is_ended => old.pool,
            _ => settings.pool_index as u16,
        },
        name: address.map_or_else(|| settings.bind.to_string(), |addr| addr.to_string()).into(),
        users,
        cluster,
        access,
        read_from: settings.read_from.clone(),
        memcached: match settings.protocol {
            Protocol::Redis => None,
            Protocol::Memcached { item_len_max } => Some(item_len_max),
        },
    }
}

/// Makes metrics show the pools and listeners of a plan. For stores that `before` has too, the
/// figures noted there are the first ones, so that nothing waits for a script here.
fn watch(
    sources: &Sources,
    plan: &Arc<Plan>,
    registry: &Arc<Registry>,
    before: Option<(&Plan, &Registry)>,
) {
    for (index, pool) in plan.pools.iter().enumerate() {
        let was_there = before.filter(|(before, _)| {
            before.pools.get(index).is_some_and(|other| Arc::ptr_eq(other, pool))
        });
        if !was_there.is_some_and(|(_, before)| registry.watch_store_as(before, index)) {
            watch_pool(index, pool, plan, registry);
        }
    }
    let budget = Arc::clone(&plan.transactions);
    registry.watch_transactions(move || TransactionFigures {
        held_bytes: budget.taken(),
        limit_bytes: budget.len_max(),
        refused_commands: budget.refused(),
    });
    let live: Vec<&ListenerPlan> =
        plan.listeners.iter().filter(|listener| !listener.is_ended).collect();
    watch_front(sources.config, plan, &live, registry);
    watch_logins(registry, &live);
    let (tally, generation) = (Arc::clone(sources.reloads), plan.generation);
    let retired = plan.retired.clone();
    registry.watch_reloads(move || tally.figures(generation, &retired));
}

fn watch_pool(index: usize, pool: &PoolPlan, plan: &Plan, registry: &Registry) {
    if let PoolKind::Store(store) = &pool.kind {
        let store = Arc::clone(store);
        let (scripts, role) = (Arc::clone(&pool.scripts), pool.role.clone());
        // These figures are shown while a script runs for which reading all of them would wait.
        let last = Mutex::new(store.stats());
        registry.watch_store(index, move || {
            let mut last = last.lock();
            if let Some(stats) = store.stats_beside_script() {
                *last = stats;
            }
            let role = role.get();
            let replica = role.as_ref().and_then(|role| role.figures());
            let replica = replica.as_ref().map(replica_figures);
            let feed = role.map(|role| feed_figures(&role.feed()));
            StoreFigures { replica, feed, ..figures(&last, &store, &scripts) }
        });
    }
    if let PoolKind::Routed(routes) = &pool.kind {
        let totals = Arc::clone(&routes.totals);
        registry.watch_routes(index, move || totals.figures());
    }
    if let Some(cluster) = pool.kind.cluster() {
        let (cluster, health) = (Arc::clone(cluster), Arc::clone(&plan.health));
        let topology = Arc::clone(&plan.topology);
        registry.watch_cluster(index, move || {
            cluster.figures(|server| is_failing(&health, topology.backend_id(index, server)))
        });
    }
    if let Some(warm_up) = pool.kind.warm_up() {
        let (totals, until) = (Arc::clone(&warm_up.totals), warm_up.until);
        let is_active = move || until.is_none_or(|until| monotonic() < until);
        registry.watch_warm_up(index, move || totals.figures(is_active()));
    }
}

/// Builds the access settings of a listener's clients.
fn access(settings: &AccessConfig, had_filter: bool) -> ListenerAccess {
    // The configuration was loaded with its files.
    let tls = settings.tls.as_ref().map(|tls| tls.loaded.clone().expect("it was loaded"));
    // If the listener had TLS or the like before, clients may still be in a handshake.
    let has_filter = had_filter
        || tls.is_some()
        || settings.proxies.is_some()
        || !settings.allow.is_empty()
        || !settings.deny.is_empty();
    let filter = AcceptFilter {
        allow: settings.allow.clone(),
        deny: settings.deny.clone(),
        proxies: settings.proxies.clone(),
        tls,
        timeout: settings.handshake_timeout,
        arrivals_max: settings.handshakes_max as usize,
    };
    ListenerAccess {
        filter: has_filter.then(|| Arc::new(filter)),
        clients_max: settings.clients_max.unwrap_or(0),
        idle_timeout: settings.idle_timeout,
        tally: Arc::default(),
    }
}

/// Makes metrics show connections of clients and their handshakes.
fn watch_front(config: &Config, plan: &Plan, listeners: &[&ListenerPlan], registry: &Registry) {
    let is_retired = |pool: usize| plan.retired.iter().any(|it| usize::from(it.pool) == pool);
    let expiries = crate::certificates::expiries(
        config,
        |listener| !plan.listeners[listener].is_ended,
        |pool| !is_retired(pool),
    );
    let of =
        |listener: &&ListenerPlan| (listener.name.to_string(), Arc::clone(&listener.access.tally));
    let tallies: Vec<_> = listeners.iter().map(of).collect();
    registry.watch_front(move || FrontFigures {
        listeners: tallies.iter().map(|(name, tally)| (name.clone(), tally.figures())).collect(),
        certificates: expiries(),
    });
}

/// Makes metrics count failed logins by listener.
fn watch_logins(registry: &Registry, listeners: &[&ListenerPlan]) {
    let all: Vec<_> =
        listeners.iter().map(|one| (one.name.to_string(), Arc::clone(&one.users))).collect();
    registry.watch_logins(move || {
        let figures = all.iter().map(|(name, users)| LoginFigures {
            listener: name.clone(),
            failures: LoginFault::ALL
                .map(LoginFault::label)
                .into_iter()
                .zip(users.failed())
                .collect(),
        });
        figures.collect()
    });
}

/// Returns the cluster as which a listener poses to its clients, if it does.
fn emulated(settings: &ListenerConfig, bound: Option<SocketAddr>) -> Option<Arc<EmulatedCluster>> {
    let cluster = settings.cluster.as_ref()?;
    let own = own_index(&cluster.announce, bound);
    Some(Arc::new(EmulatedCluster::new(cluster.announce.iter().cloned(), own)))
}

fn has_same_members(one: &EmulatedCluster, other: &EmulatedCluster) -> bool {
    let addresses = |cluster: &EmulatedCluster| -> Vec<(String, u16)> {
        let all = (0..).map_while(|index| cluster.address(index));
        all.map(|(host, port)| (host.to_owned(), port)).collect()
    };
    addresses(one) == addresses(other)
}

/// Returns the index of the address at which this Keyway listens (`bound`), as far as can be told:
/// the same address, else this machine's name with the same port, else the first with the same
/// port.
fn own_index(announced: &[(String, u16)], bound: Option<SocketAddr>) -> usize {
    let system = rustix::system::uname();
    let machine = system.nodename().to_string_lossy().into_owned();
    let has_port = |port: u16| bound.is_none_or(|bound| bound.port() == port);
    let is_bound = |host: &str| bound.is_some_and(|bound| host.parse() == Ok(bound.ip()));
    let is_named = |host: &str| {
        let rest = host.strip_prefix(machine.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let find = |is_own: &dyn Fn(&str) -> bool| {
        announced.iter().position(|(host, port)| has_port(*port) && is_own(host))
    };
    find(&is_bound).or_else(|| find(&is_named)).or_else(|| find(&|_| true)).unwrap_or(0)
}

/// Builds the pool at a position, which is the same in `config` and `topology`.
fn pool_plan(index: usize, config: &Config, topology: &Topology, seed: u64) -> PoolPlan {
    let pool = &config.pools[index];
    let of_store = match &pool.kind {
        PoolKindConfig::Store(store) => Some(store),
        _ => None,
    };
    let of_servers = pool.kind.servers();
    let (databases, clients_max) = match (&pool.kind, of_servers) {
        (_, Some((set, servers))) => (set.options.databases_allowed, servers.clients_max),
        (PoolKindConfig::Routed(routed), None) => (1, routed.clients_max),
        // Clients of a store are bounded by `[limits]` alone, which may change.
        (_, None) => (of_store.map_or(1, |store| store.databases), 0),
    };
    let tls = of_servers.and_then(|(_, servers)| servers.tls.as_ref());
    // The configuration was loaded with its files.
    let tls = tls.map(|tls| tls.loaded.clone().expect("it was loaded"));
    let open_store = || {
        let store = of_store.expect("the topology has stores where the configuration does");
        let memory_max = store
            .memory_max
            .unwrap_or_else(|| memory::default_store_bytes(config.memory_bound().stores_auto));
        Arc::new(open(store, memory_max, seed))
    };
    let pools = topology.pools();
    let kind = PoolKind::new(&pools[index].kind, pools, monotonic(), tls, open_store);
    let limits = of_store.map_or_else(ScriptLimits::default, |store| ScriptLimits {
        time_max: store.script_time_max,
        busy_after: store.script_busy_after,
        memory_max: usize::try_from(store.script_memory_max).unwrap_or(usize::MAX),
        reply_len_max: config.limits.session_output_len_hard as usize,
    });
    let slow_log = match (of_store, of_servers) {
        (Some(store), _) => SlowLog::timed(store.slower_than, store.slow_log_len_max, monotonic),
        (None, Some((set, _))) => {
            SlowLog::new(set.options.slower_than, set.options.slow_log_len_max)
        }
        (None, None) => SlowLog::default(),
    };
    PoolPlan {
        name: pool.name.clone(),
        databases,
        clients_max,
        pause: Pause::default(),
        errors: Arc::default(),
        key_stats: Arc::default(),
        slow_log: Arc::new(slow_log),
        scripts: Arc::new(keyway_script::Registry::new(limits, monotonic)),
        role: keyway_worker::RoleDoor::default(),
        notices: Default::default(),
        kind,
    }
}

/// Returns the time by which scripts and slow requests are measured.
pub fn monotonic() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
}

fn open(config: &StoreConfig, memory_max: u64, seed: u64) -> Store {
    let policy = EvictionPolicy::from_name(config.eviction.name())
        .expect("the configuration knows the store's policies only");
    let after_read = config.expire_after_read.map(|span| AfterRead {
        span_millis: span.as_millis() as u64,
        below_percent: config.expire_after_read_percent,
    });
    let quotas = config.quotas.iter().map(|quota| QuotaConfig {
        prefix: quota.prefix.as_bytes().into(),
        memory_max: quota.memory_max.unwrap_or(0),
        items_max: quota.items_max.unwrap_or(0),
    });
    let store = keyway_store::StoreConfig {
        memory_max,
        policy,
        databases: config.databases,
        shards: None,
        seed,
        notify: config.notify_keyspace_events,
        after_read,
        heeds_resident: true,
    };
    Store::with_quotas(store, quotas.collect())
}

fn figures(stats: &StoreStats, store: &Store, scripts: &keyway_script::Registry) -> StoreFigures {
    let databases = stats.databases.iter().enumerate();
    StoreFigures {
        databases: databases
            .map(|(database, stats)| keyway_metrics::DatabaseFigures {
                database: database as u32,
                items: stats.items,
                expiring_items: stats.volatile,
            })
            .collect(),
        memory_bytes: stats.memory_used,
        hits: stats.hits,
        misses: stats.misses,
        evictions: stats.evicted,
        expirations: stats.expired,
        expired_fields: stats.expired_fields,
        quotas: stats.quotas.iter().map(quota_figures).collect(),
        scripts: script_figures(scripts),
        snapshots: snapshot_figures(&store.snapshot_status()),
        log: store.log_status().map(|status| log_figures(&status)),
        loading: loading_figure(store),
        replica: None,
        feed: None,
    }
}

fn feed_figures(feed: &FeedFigures) -> keyway_metrics::FeedFigures {
    let online = feed.replicas.iter().filter(|replica| replica.is_online());
    let lags = online.map(|replica| feed.offset.saturating_sub(replica.offset));
    keyway_metrics::FeedFigures {
        replicas: feed.replicas.len() as u64,
        good: feed.replicas_good,
        offset_bytes: feed.offset,
        lag_bytes: lags.max().unwrap_or(0),
        stream_bytes: feed.stream_bytes,
        unsent_bytes: feed.unsent_bytes,
        attached: feed.attached,
        cut_off: feed.cut_off,
    }
}

fn replica_figures(replica: &ReplicaFigures) -> keyway_metrics::ReplicaFigures {
    keyway_metrics::ReplicaFigures {
        is_up: u64::from(replica.is_up()),
        last_io_seconds: replica.last_io_seconds.unwrap_or(0),
        offset_bytes: replica.offset,
        full_resyncs: replica.full_resyncs,
        partial_resyncs: replica.partial_resyncs,
        failures: replica.failures,
        commands: replica.applied,
        failed_commands: replica.failed,
    }
}

/// Of a store that has a file.
fn snapshot_figures(status: &SnapshotStatus) -> Option<keyway_metrics::SnapshotFigures> {
    status.is_on.then(|| keyway_metrics::SnapshotFigures {
        saved: status.saves,
        failures: status.failures,
        has_failed: u64::from(status.last_failed),
        running: u64::from(status.is_saving),
        saved_unix_seconds: status.saved_at,
        bytes: status.saved_len,
        seconds: status.saved_millis.max(0) as f64 / 1e3,
        buffer_bytes: status.buffered_peak,
    })
}

/// Returns the figure of a store that may be loaded from a file.
fn loading_figure(store: &Store) -> Option<u64> {
    let may_load = store.snapshot_status().is_on || store.log().is_some();
    may_load.then(|| u64::from(store.is_loading()))
}

/// Returns the figures of a store that has a log.
fn log_figures(status: &LogStatus) -> keyway_metrics::LogFigures {
    keyway_metrics::LogFigures {
        has_failed: u64::from(status.state == LogState::Lost),
        losses: status.losses,
        failed_attempts: status.failed_attempts,
        written_bytes: status.written,
        bytes: status.base_len + status.segments_len,
        fsyncs: status.fsyncs,
        fsync_seconds: status.fsync_micros as f64 / 1e6,
        compactions: status.compactions,
        compaction_failures: status.compactions_failed,
    }
}

fn script_figures(scripts: &keyway_script::Registry) -> keyway_metrics::ScriptFigures {
    let totals = scripts.totals();
    keyway_metrics::ScriptFigures {
        runs: totals.runs,
        errors: totals.errors,
        ended: totals.ended,
        seconds: totals.duration.as_secs_f64(),
        cached: scripts.kept().0 as u64,
        memory_bytes: totals.memory_len,
    }
}

fn quota_figures(stats: &QuotaStats) -> keyway_metrics::QuotaFigures {
    keyway_metrics::QuotaFigures {
        prefix: String::from_utf8_lossy(&stats.config.prefix).into_owned(),
        memory_bytes: stats.memory_used,
        items: stats.items,
        evictions: stats.evicted,
        refusals: stats.refused,
    }
}
