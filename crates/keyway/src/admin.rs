//! The process, as the admin listener uses it.

mod key_stats;
mod readiness;

use crate::cli::LogFormat;
use crate::control_node::Asking;
use crate::log::Filter;
use crate::operators::RequestLog;
use crate::reload::{Diff, Reload, Wake};
use crate::serve::{Started, wall_clock};
use crate::upgrade;
use keyway_config::{Config, IoDriver};
use keyway_control::{
    AWAY, AdminState, AfterDrain, Api, BackendRoleStatus, BackendStatus, ClientStatus, Connections,
    EffectiveConfig, FleetApi, KeyStatsList, LogLevel, NotedRequest, PoolStatus, ProcessStatus,
    Reloaded, ScriptKill, SlowRequest,
};
use keyway_metrics::{BackendTotals, Registry};
use keyway_script::Kill;
use keyway_topology::{BackendId, FailureReason, HealthState};
use keyway_worker::{Plan, PoolKind, ServerStatus, backend_state};
use parking_lot::{Mutex, RwLock};
use readiness::Readiness;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// The process, as the admin listener sees it.
pub struct Process {
    /// The settings in force. They are exchanged when the settings change.
    current: RwLock<Current>,
    draining: AtomicBool,
    /// The state of each backend at the latest look, and since when it has that state.
    seen: Mutex<Vec<Seen>>,
    /// Servers that an operator holds out of use and that are not in their pool, by pool and
    /// address, and since when.
    away: Mutex<BTreeMap<(String, String), u64>>,
    started_unix_seconds: u64,
    controls: AdminControls,
    settings: Settings,
    /// The control node that runs in this process.
    control: Option<Arc<Asking>>,
    requests: RequestLog,
}

/// The configuration of the process.
pub struct Settings {
    file: Option<String>,
    /// Options of the command line, which override the file.
    options: (Option<IoDriver>, Option<LogFormat>),
    config: Mutex<Config>,
}

impl Settings {
    /// Settings of `config`, and of the command line that the process was started with.
    pub fn new(started: &Started<'_>, config: &Config) -> Settings {
        let file = started.file.map(|file| file.display().to_string());
        let options = (started.io, started.format);
        Settings { file, options, config: Mutex::new(config.clone()) }
    }

    /// Returns the settings in force, with the log level `level`.
    fn effective(&self, level: LogLevel) -> EffectiveConfig {
        let mut config = self.config.lock().clone();
        let (io, format) = self.options;
        let server = &mut config.server;
        server.io = io.unwrap_or(server.io);
        server.log.format = match format {
            Some(LogFormat::Human) => keyway_config::LogFormat::Human,
            Some(LogFormat::Json) => keyway_config::LogFormat::Json,
            None => server.log.format,
        };
        server.log.level = match level {
            LogLevel::Error => keyway_config::LogLevel::Error,
            LogLevel::Warn => keyway_config::LogLevel::Warn,
            LogLevel::Info => keyway_config::LogLevel::Info,
            LogLevel::Debug => keyway_config::LogLevel::Debug,
            LogLevel::Trace => keyway_config::LogLevel::Trace,
        };
        let document = config.document.as_ref();
        EffectiveConfig {
            file: self.file.clone(),
            toml: keyway_config::describe(&config),
            document: document.map(|document| document.name.clone()),
            document_pools: document.map(|document| document.pools.clone()).unwrap_or_default(),
            document_users: document.is_some_and(|document| document.users),
            document_limits: document.is_some_and(|document| document.limits),
        }
    }
}

/// The controls of the process that an operator may use.
pub struct AdminControls {
    /// The filter of log lines.
    pub log: Filter,
    /// The main thread, which is told to drain.
    pub wake: Sender<Wake>,
    /// Reads the configuration again.
    pub reload: Reload,
    /// The status of upgrades.
    pub upgraded: upgrade::Told,
}

/// The settings in force, and the counts kept by them.
#[derive(Clone)]
pub struct Current {
    plan: Arc<Plan>,
    registry: Arc<Registry>,
}

/// A backend's state, and when the state began.
#[derive(Clone, Copy)]
pub struct Seen {
    state: &'static str,
    /// The number of the server that has the backend's index, of all servers that had it one after
    /// the other.
    tenure: Option<u64>,
    since_unix_seconds: u64,
}

impl Process {
    /// Creates the state for a process that serves.
    pub fn new(
        plan: Arc<Plan>,
        registry: Arc<Registry>,
        controls: AdminControls,
        (settings, control): (Settings, Option<Arc<Asking>>),
    ) -> Self {
        let now = Seen {
            state: HealthState::Unknown.label(),
            tenure: None,
            since_unix_seconds: unix_seconds(),
        };
        let seen = Mutex::new(vec![now; plan.health.backend_count()]);
        let current = RwLock::new(Current { plan, registry });
        let draining = AtomicBool::new(false);
        let away = Mutex::default();
        Self {
            current,
            draining,
            seen,
            away,
            started_unix_seconds: unix_seconds(),
            controls,
            settings,
            control,
            requests: RequestLog::default(),
        }
    }

    /// Replaces the configuration that the admin address shows.
    pub fn set_config(&self, config: &Config) {
        self.settings.config.lock().clone_from(config);
    }

    /// Changes to other settings. Backends of pools that are the same keep their noted states.
    ///
    /// Orders of an operator for servers since `plan` was made are repeated there, also for pools that
    /// replace others as `heir_of` says.
    pub fn follow(
        &self,
        plan: &Arc<Plan>,
        registry: &Arc<Registry>,
        heir_of: impl Fn(usize) -> Option<usize>,
    ) {
        let mut seen = self.seen.lock();
        let mut current = self.current.write();
        plan.follow_holds(&current.plan, heir_of);
        let now = Seen {
            state: HealthState::Unknown.label(),
            tenure: None,
            since_unix_seconds: unix_seconds(),
        };
        let mut next = vec![now; plan.health.backend_count()];
        let pools = plan.pools.iter().zip(&current.plan.pools).enumerate();
        for (index, _) in pools.filter(|(_, (new, old))| Arc::ptr_eq(new, old)) {
            for id in plan.topology.backend_ids(index) {
                next[id.index()] = seen[id.index()];
            }
        }
        *seen = next;
        *current = Current { plan: Arc::clone(plan), registry: Arc::clone(registry) };
    }

    fn current(&self) -> Current {
        self.current.read().clone()
    }

    /// Notes which backends have changed their state. Returns the state of each by its id, with the
    /// settings that the ids belong to. A change that begins and ends between two calls is not
    /// noted here; the log has it.
    pub fn observe(&self) -> (Current, Vec<Seen>) {
        let mut seen = self.seen.lock();
        let current = self.current();
        for id in current.live_pools().flat_map(|pool| current.plan.topology.backend_ids(pool)) {
            let (state, tenure) = (current.state(id).0, current.status(id).map(|it| it.tenure));
            let known = &mut seen[id.index()];
            if known.state != state || known.tenure != tenure {
                *known = Seen { state, tenure, since_unix_seconds: unix_seconds() };
            }
        }
        let seen = seen.clone();
        let held = current.live_pools().flat_map(|pool| {
            let name = &current.plan.pools[pool].name;
            current.plan.held_away(pool).into_iter().map(move |address| (name.clone(), address))
        });
        let mut away = self.away.lock();
        let since = |one: &_| away.get(one).copied().unwrap_or_else(unix_seconds);
        let now: BTreeMap<_, _> = held.map(|one| (one.clone(), since(&one))).collect();
        *away = now;
        (current, seen)
    }

    /// Returns the servers of a pool that an operator holds out of use and that are not in the
    /// pool.
    fn away(&self, pool: &str) -> Vec<BackendStatus> {
        let away = self.away.lock();
        let of_pool = away.iter().filter(|((of, _), _)| of == pool);
        let status = |((_, address), since): (&(String, String), &u64)| BackendStatus {
            name: address.clone(),
            address: address.clone(),
            state: AWAY,
            reason: Some(FailureReason::Operator.label()),
            since_unix_seconds: *since,
            by_hand: true,
            links: 0,
            in_flight: 0,
            status: None,
        };
        of_pool.map(status).collect()
    }

    /// Notes the states of backends and the latencies of the last seconds. `elapsed` is the time
    /// since the last call, about half a second.
    pub fn note_elapsed(&self, elapsed: Duration) {
        self.observe();
        self.current().plan.facts.observe(elapsed);
    }

    /// Notes that the process is draining.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

impl Current {
    /// Returns the positions of the pools that no reload has removed or replaced.
    fn live_pools(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.plan.pools.len()).filter(|&pool| self.plan.retired(pool as u16).is_none())
    }

    fn pool_index(&self, name: &str) -> Option<usize> {
        self.live_pools().find(|&pool| self.plan.pools[pool].name == name)
    }

    fn names(&self) -> String {
        let names: Vec<_> =
            self.live_pools().map(|pool| self.plan.pools[pool].name.as_str()).collect();
        names.join(", ")
    }

    /// Returns the state of a backend and its reason. If several states apply, it is the one that
    /// keeps most requests away.
    fn state(&self, id: BackendId) -> (&'static str, Option<&'static str>) {
        backend_state(&self.plan, id)
    }

    /// Returns the role of a backend, if its pool discovers its servers.
    fn status(&self, id: BackendId) -> Option<ServerStatus> {
        let backend = self.plan.topology.backend(id)?;
        let cluster = self.plan.pools[backend.pool_index].kind.cluster()?;
        cluster.status(backend.server_index)
    }

    /// Returns the label of a backend, and its address where the two differ.
    fn named(&self, id: BackendId) -> (String, Option<String>) {
        let Some(backend) = self.plan.topology.backend(id) else { return Default::default() };
        let kind = &self.plan.pools[backend.pool_index].kind;
        let label = kind.label(backend.server_index);
        let address = kind.address(backend.server_index).map(|address| address.to_string());
        let address = address.filter(|address| *address != label);
        (label, address)
    }

    fn server_status(
        &self,
        name: String,
        id: BackendId,
        seen: &[Seen],
        totals: &[BackendTotals],
    ) -> BackendStatus {
        let backend = self.plan.topology.backend(id);
        let address = backend.and_then(|backend| {
            self.plan.pools[backend.pool_index].kind.address(backend.server_index)
        });
        let totals = backend.and_then(|backend| totals.get(backend.server_index));
        let seen = seen[id.index()];
        BackendStatus {
            name,
            address: address.map(|address| address.to_string()).unwrap_or_default(),
            state: seen.state,
            reason: self.state(id).1,
            since_unix_seconds: seen.since_unix_seconds,
            by_hand: self.plan.health.is_held(id),
            links: totals.map_or(0, |totals| totals.links_ready),
            in_flight: totals.map_or(0, |totals| totals.in_flight),
            status: self.status(id).map(|status| BackendRoleStatus {
                role: status.role,
                of: status.of,
                slots: status.slots,
                zone: status.zone,
                lag_millis: status.lag_millis,
            }),
        }
    }

    /// Returns whether requests for a backend fail at once: it is out of use, or it failed and no
    /// link leads to it. A failing state alone is not enough, because the next request may succeed.
    /// Nor is one closed connection, because servers close idle connections.
    fn is_down(&self, backend: BackendId, links_ready: u64) -> bool {
        let health = &self.plan.health;
        let is_closed_once =
            health.reason(backend) == Some(FailureReason::Closed) && health.failures(backend) == 1;
        match health.state(backend) {
            HealthState::Up | HealthState::Unknown => false,
            // A server that wants another password accepts connections and refuses every request.
            HealthState::Failing if health.reason(backend) == Some(FailureReason::Handshake) => {
                true
            }
            HealthState::Failing => links_ready == 0 && !is_closed_once,
            HealthState::Ejected | HealthState::Rejoining | HealthState::Quarantined => true,
        }
    }

    /// Returns the backends of a pool with their names.
    fn backends(&self, pool: usize) -> Vec<(String, BackendId)> {
        let kind = &self.plan.pools[pool].kind;
        let numbered = self.plan.topology.backend_ids(pool).enumerate();
        let there = numbered.filter(|(server, _)| kind.has_server(*server));
        there.map(|(server, id)| (kind.label(server), id)).collect()
    }
}

impl AdminState for Process {
    fn metrics(&self, out: &mut String) {
        self.current().registry.write_prometheus(out);
        if let Some(control) = &self.control {
            control.write_metrics(out);
        }
    }

    fn note_request(&self, request: &NotedRequest<'_>) {
        self.requests.note(request);
        if let Some(control) = &self.control {
            control.note_refused(request);
        }
    }

    fn fleet(&self) -> Option<&dyn FleetApi> {
        self.control.as_deref().map(|control| control as &dyn FleetApi)
    }

    fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn not_ready(&self) -> Vec<String> {
        Readiness::of(&self.current()).reasons()
    }

    fn failing(&self) -> Vec<String> {
        Readiness::of(&self.current()).failing()
    }

    fn not_known(&self) -> Vec<String> {
        let current = self.current();
        let health = &current.plan.health;
        current
            .live_pools()
            .filter_map(|index| {
                let ids = current.plan.topology.backend_ids(index).enumerate();
                let kind = &current.plan.pools[index].kind;
                let there = ids.filter(|(server, _)| kind.has_server(*server));
                let states: Vec<HealthState> = there.map(|(_, id)| health.state(id)).collect();
                let is_unknown = |state: &&HealthState| **state == HealthState::Unknown;
                let (unknown, all) = (states.iter().filter(is_unknown).count(), states.len());
                let name = &current.plan.pools[index].name;
                (unknown > 0)
                    .then(|| format!("pool {name:?}: {unknown} of {all} servers not reached yet"))
            })
            .collect()
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let (current, seen) = self.observe();
        let told = |index: usize| {
            let totals: Vec<_> = current.registry.backend_totals(index).into_iter().collect();
            let status = |(name, id)| current.server_status(name, id, &seen, &totals);
            let pool = &current.plan.pools[index];
            let there = current.backends(index).into_iter().map(status);
            let backends = there.chain(self.away(&pool.name)).collect();
            PoolStatus { name: pool.name.clone(), kind: pool.kind.name(), backends }
        };
        current.live_pools().map(told).collect()
    }

    fn kill_script(&self, pool: &str) -> Result<ScriptKill, String> {
        let current = self.current();
        let plan = &current.plan;
        let is_store = |index: usize| matches!(plan.pools[index].kind, PoolKind::Store(_));
        let Some(index) = current.pool_index(pool).filter(|index| is_store(*index)) else {
            let stores = current.live_pools().filter(|&index| is_store(index));
            let names: Vec<_> = stores.map(|index| plan.pools[index].name.as_str()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(format!("no embedded store {pool:?}; there are: {names}"));
        };
        let killed = plan.pools[index].scripts.kill_any();
        if killed == Kill::Killed {
            tracing::info!(pool, "a script ends on an operator's word");
        }
        Ok(match killed {
            Kill::Killed => ScriptKill::Ends,
            Kill::Unkillable => ScriptKill::HasWritten,
            Kill::NotBusy | Kill::OtherKind => ScriptKill::NoneRuns,
        })
    }

    fn restore_backend(&self, pool: &str, backend: &str) -> Result<bool, String> {
        // The lock is held, so that a reload that follows knows of the change.
        let current = self.current.read();
        let id = match current.find(pool, backend) {
            Ok(id) => id,
            // A server that has left its cluster has no server index, but may be held all the same.
            Err(why) => {
                let index = current.find_pool(pool)?;
                if !current.plan.restore_absent(index, backend) {
                    return Err(why);
                }
                tracing::info!(pool, backend, "in use when it comes back, on an operator's word");
                return Ok(true);
            }
        };
        let health = &current.plan.health;
        let (backend, address) = current.named(id);
        let was_open = health.circuits().restart(id);
        if was_open {
            tracing::info!(pool, backend, address, "asked again on an operator's word");
        }
        if health.is_usable(id) {
            return Ok(was_open);
        }
        let was_out = current.plan.restore(id);
        if was_out {
            tracing::info!(pool, backend, address, "back in use on an operator's word");
        }
        Ok(was_out)
    }

    fn api(&self) -> Option<&dyn Api> {
        Some(self)
    }
}

impl Current {
    /// Returns the position of a pool.
    fn find_pool(&self, pool: &str) -> Result<usize, String> {
        self.pool_index(pool)
            .ok_or_else(|| format!("no pool {pool:?}; there are: {}", self.names()))
    }

    /// Returns the backend with this name, else the one at this address.
    fn find(&self, pool: &str, backend: &str) -> Result<BackendId, String> {
        let index = self.find_pool(pool)?;
        let kind = &self.plan.pools[index].kind;
        let backends = self.backends(index);
        if backends.is_empty() {
            let why = match kind {
                PoolKind::Routed(_) => "leads to other pools: name one with servers".to_owned(),
                PoolKind::Store(_) => "is an embedded store: it has no servers".to_owned(),
                _ => {
                    let why = kind.cluster().and_then(|cluster| cluster.unserved(pool));
                    format!("knows no server yet: {}", why.as_deref().unwrap_or("ask again"))
                }
            };
            return Err(format!("pool {pool:?} {why}"));
        }
        let is_at = |id: BackendId| {
            let server_index = self.plan.topology.backend(id).map(|backend| backend.server_index);
            let address = server_index.and_then(|index| kind.address(index));
            address.is_some_and(|address| address.to_string() == backend)
        };
        let named = backends.iter().find(|(name, _)| name == backend);
        match named.or_else(|| backends.iter().find(|(_, id)| is_at(*id))) {
            Some((_, id)) => Ok(*id),
            None => {
                let names: Vec<_> = backends.iter().map(|(name, _)| name.as_str()).collect();
                Err(format!("no server {backend:?}; there are: {}", names.join(", ")))
            }
        }
    }
}

impl Api for Process {
    fn status(&self) -> ProcessStatus {
        let plan = self.current().plan;
        ProcessStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_unix_seconds: self.started_unix_seconds,
            uptime_seconds: unix_seconds().saturating_sub(self.started_unix_seconds),
            draining: self.draining(),
            workers: plan.mailers.lock().len() as u64,
            clients: plan.clients.len() as u64,
            upgrade: self.controls.upgraded.lock().clone(),
        }
    }

    fn connections(&self, pool: Option<&str>, limit: usize) -> Result<Connections, String> {
        let current = self.current();
        let only = pool.map(|pool| current.find_pool(pool)).transpose()?;
        let mut connections = Connections::default();
        current.plan.clients.for_each(|id, entry| {
            let index = usize::from(entry.pool);
            if only.is_some_and(|only| only != index) {
                return;
            }
            connections.total += 1;
            if connections.clients.len() < limit {
                connections.clients.push(ClientStatus {
                    id,
                    address: entry.addr.to_string(),
                    listener: entry.laddr.to_string(),
                    // Workers may already use a version that is not noted here yet.
                    pool: current
                        .plan
                        .pools
                        .get(index)
                        .map(|pool| pool.name.clone())
                        .unwrap_or_default(),
                    user: entry.user.to_string(),
                    name: entry.name().to_owned(),
                    since_unix_seconds: entry.connected_unix,
                    worker: entry.worker,
                });
            }
        });
        Ok(connections)
    }

    fn slow_log(&self, pool: Option<&str>, limit: usize) -> Result<Vec<SlowRequest>, String> {
        let current = self.current();
        let only = pool.map(|pool| current.find_pool(pool)).transpose()?;
        let mut requests = Vec::new();
        // A pool that replaced another one shares its log.
        for index in current.live_pools().filter(|index| only.is_none_or(|only| only == *index)) {
            let pool = &current.plan.pools[index];
            let shown = |arg: &Vec<u8>| String::from_utf8_lossy(arg).into_owned();
            requests.extend(pool.slow_log.latest(limit).into_iter().map(|entry| SlowRequest {
                total_us: entry.total_micros(),
                trace: format!("{:016x}", entry.trace),
                at_unix_seconds: entry.unix_seconds,
                pool: pool.name.clone(),
                server: entry.server,
                queue_us: entry.queue_micros,
                server_us: entry.micros,
                receive_us: entry.receive_micros,
                write_us: entry.write_micros,
                client: entry.addr,
                name: entry.name,
                arguments: entry.args.iter().map(shown).collect(),
            }));
        }
        requests.sort_by_key(|request| std::cmp::Reverse(request.at_unix_seconds));
        requests.truncate(limit);
        Ok(requests)
    }

    fn key_stats(&self, pool: Option<&str>, limit: usize) -> Result<KeyStatsList, String> {
        let current = self.current();
        let only = pool.map(|pool| current.find_pool(pool)).transpose()?;
        Ok(current.key_stats(only, limit))
    }

    fn eject(&self, pool: &str, server: &str) -> Result<bool, String> {
        let current = self.current.read();
        let id = current.find(pool, server)?;
        let has_changed = current.plan.eject(id);
        if has_changed {
            let (backend, address) = current.named(id);
            tracing::warn!(
                pool,
                backend,
                address,
                "ejected on an operator's word, until it is restored"
            );
        }
        Ok(has_changed)
    }

    fn config(&self) -> EffectiveConfig {
        self.settings.effective(self.controls.log.level())
    }

    fn log_level(&self) -> LogLevel {
        self.controls.log.level()
    }

    fn set_log_level(&self, level: LogLevel) {
        let from = self.log_level();
        if from == level {
            return;
        }
        // The line is logged at the more verbose of the two levels.
        if from < level {
            self.controls.log.set_level(level);
        }
        tracing::info!(?from, to = ?level, "log level changed on an operator's word");
        self.controls.log.set_level(level);
    }

    fn drain(&self, then: AfterDrain) {
        self.set_draining();
        // The channel is gone only when the process ends anyway.
        let _ = self.controls.wake.send(Wake::Drain(then));
    }

    fn reload(&self) -> Result<Reloaded, Vec<String>> {
        match self.controls.reload.request() {
            Ok(diff) => {
                let rereads = diff.told_rereads();
                let Diff { mut changes, warnings, .. } = diff;
                changes.extend(rereads);
                Ok(Reloaded { changed: changes, warnings })
            }
            Err(refusal) => Err(refusal.reasons),
        }
    }

    fn upgrade(&self) -> Result<(), Vec<String>> {
        upgrade::request(&self.controls.wake)
    }
}

fn unix_seconds() -> u64 {
    wall_clock().unix_micros / 1_000_000
}
