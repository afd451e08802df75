//! Turns cells into text: for each declared metric, the place from which its numbers are read.

use crate::catalogue::{self as c, Metric};
use crate::cells::{
    BACKEND_FAULTS, BackendCells, ClientCells, CloseReason, HealthLevel, PubSubCells, REFUSALS,
    REQUEST_FAULTS, TurnCells, backend_fault,
};
use crate::exposition::family;
use crate::histogram::Snapshot;
use crate::process::{self, TICKS_PER_SECOND};
use crate::registry::{
    ClusterFigures, CommandTotals, FeedFigures, FrontFigures, LatencyShares, LogFigures,
    QuotaFigures, Registry, ReplicaFigures, RouteFigures, SnapshotFigures, StoreFigures,
    WarmUpFigures,
};

type Reader<T> = (&'static Metric, fn(&T) -> u64);

const OF_CLIENTS: &[Reader<ClientCells>] = &[
    (&c::CLIENT_CONNECTIONS, |clients| clients.connected.get()),
    (&c::CLIENT_ACCEPTED, |clients| clients.accepted.get()),
    (&c::CLIENT_RECEIVED, |clients| clients.received_bytes.get()),
    (&c::CLIENT_SENT, |clients| clients.sent_bytes.get()),
    (&c::CLIENT_PAUSES, |clients| clients.pauses.get()),
];

const OF_PUBSUB: &[Reader<PubSubCells>] = &[
    (&c::PUBSUB_CHANNELS, |pubsub| pubsub.channels.get()),
    (&c::PUBSUB_PATTERNS, |pubsub| pubsub.patterns.get()),
    (&c::PUBSUB_CLIENTS, |pubsub| pubsub.clients.get()),
    (&c::PUBSUB_UPSTREAM, |pubsub| pubsub.upstream.get()),
    (&c::PUBSUB_DELIVERED, |pubsub| pubsub.delivered.get()),
    (&c::PUBSUB_DROPPED, |pubsub| pubsub.dropped.get()),
];

/// Metrics that are summed over workers.
const OF_BACKENDS: &[Reader<BackendCells>] = &[
    (&c::BACKEND_REQUESTS, |backend| backend.requests.get()),
    (&c::BACKEND_ERROR_REPLIES, |backend| backend.error_replies.get()),
    (&c::BACKEND_SENT, |backend| backend.sent_bytes.get()),
    (&c::BACKEND_RECEIVED, |backend| backend.received_bytes.get()),
    (&c::BACKEND_IN_FLIGHT, |backend| backend.in_flight.get()),
    (&c::BACKEND_UNSENT, |backend| backend.unsent_bytes.get()),
    (&c::BACKEND_CONNECTING, |backend| backend.links_connecting.get()),
    (&c::BACKEND_READY, |backend| backend.links_ready.get()),
    (&c::BACKEND_CONNECTS, |backend| backend.connects.get()),
    (&c::BACKEND_RECONNECTS, |backend| backend.reconnects.get()),
    (&c::BACKEND_LATE, |backend| backend.late_replies.get()),
    (&c::BACKEND_UNCLAIMED, |backend| backend.unclaimed_replies.get()),
    (&c::BACKEND_UNASKED, |backend| backend.unasked_pushes.get()),
    (&c::BACKEND_EJECTIONS, |backend| backend.ejections.get()),
    (&c::BACKEND_CIRCUIT_OPENS, |backend| backend.circuit_opens.get()),
    (&c::BACKEND_OUTLIERS, |backend| backend.outliers.get()),
    (&c::BACKEND_READS_CHOSEN, |backend| backend.reads_chosen.get()),
];

/// Metrics that have the same value for all workers.
const SHARED_OF_BACKENDS: &[Reader<BackendCells>] = &[
    (&c::BACKEND_CIRCUIT, |backend| backend.circuit.get()),
    (&c::BACKEND_OUTLIER, |backend| backend.outlier.get()),
];

const OF_WORKERS: &[Reader<TurnCells>] = &[
    (&c::WORKER_TURNS, |turn| turn.turns.get()),
    (&c::WORKER_EVENTS, |turn| turn.events.get()),
    (&c::WORKER_WAKEUPS, |turn| turn.wakeups.get()),
    (&c::WORKER_RECV_CALLS, |turn| turn.recv_calls.get()),
    (&c::WORKER_SEND_CALLS, |turn| turn.send_calls.get()),
    (&c::WORKER_POLL_CALLS, |turn| turn.poll_calls.get()),
    (&c::WORKER_LINGERING, |turn| turn.lingering.get()),
];

const OF_STORES: &[Reader<StoreFigures>] = &[
    (&c::STORE_MEMORY, |store| store.memory_bytes),
    (&c::STORE_HITS, |store| store.hits),
    (&c::STORE_MISSES, |store| store.misses),
    (&c::STORE_EVICTIONS, |store| store.evictions),
    (&c::STORE_EXPIRATIONS, |store| store.expirations),
    (&c::STORE_EXPIRED_FIELDS, |store| store.expired_fields),
    (&c::SCRIPT_RUNS, |store| store.scripts.runs),
    (&c::SCRIPT_ERRORS, |store| store.scripts.errors),
    (&c::SCRIPT_ENDED, |store| store.scripts.ended),
    (&c::SCRIPT_CACHED, |store| store.scripts.cached),
    (&c::SCRIPT_MEMORY, |store| store.scripts.memory_bytes),
];

const OF_SNAPSHOTS: &[Reader<SnapshotFigures>] = &[
    (&c::SNAPSHOTS, |it| it.saved),
    (&c::SNAPSHOT_FAILURES, |it| it.failures),
    (&c::SNAPSHOT_FAILED, |it| it.has_failed),
    (&c::SNAPSHOT_RUNNING, |it| it.running),
    (&c::SNAPSHOT_SAVED, |it| it.saved_unix_seconds),
    (&c::SNAPSHOT_BYTES, |it| it.bytes),
    (&c::SNAPSHOT_BUFFER, |it| it.buffer_bytes),
];

const OF_LOGS: &[Reader<LogFigures>] = &[
    (&c::LOG_FAILED, |it| it.has_failed),
    (&c::LOG_LOSSES, |it| it.losses),
    (&c::LOG_FAILED_ATTEMPTS, |it| it.failed_attempts),
    (&c::LOG_WRITTEN, |it| it.written_bytes),
    (&c::LOG_BYTES, |it| it.bytes),
    (&c::LOG_FSYNCS, |it| it.fsyncs),
    (&c::LOG_COMPACTIONS, |it| it.compactions),
    (&c::LOG_COMPACTION_FAILURES, |it| it.compaction_failures),
];

const OF_REPLICAS: &[Reader<ReplicaFigures>] = &[
    (&c::REPLICA_LINK_UP, |it| it.is_up),
    (&c::REPLICA_LAST_IO, |it| it.last_io_seconds),
    (&c::REPLICA_OFFSET, |it| it.offset_bytes),
    (&c::REPLICA_FULL_RESYNCS, |it| it.full_resyncs),
    (&c::REPLICA_PARTIAL_RESYNCS, |it| it.partial_resyncs),
    (&c::REPLICA_FAILURES, |it| it.failures),
    (&c::REPLICA_COMMANDS, |it| it.commands),
    (&c::REPLICA_FAILED_COMMANDS, |it| it.failed_commands),
];

const OF_FEEDS: &[Reader<FeedFigures>] = &[
    (&c::FEED_REPLICAS, |it| it.replicas),
    (&c::FEED_GOOD_REPLICAS, |it| it.good),
    (&c::FEED_OFFSET, |it| it.offset_bytes),
    (&c::FEED_LAG, |it| it.lag_bytes),
    (&c::FEED_STREAM, |it| it.stream_bytes),
    (&c::FEED_UNSENT, |it| it.unsent_bytes),
    (&c::FEED_ATTACHED, |it| it.attached),
    (&c::FEED_CUT_OFF, |it| it.cut_off),
];

const OF_CLUSTERS: &[Reader<ClusterFigures>] = &[
    (&c::CLUSTER_MOVED, |cluster| cluster.moved),
    (&c::CLUSTER_ASKED, |cluster| cluster.asked),
    (&c::CLUSTER_RETRIED, |cluster| cluster.retried),
    (&c::CLUSTER_RETRIES_REFUSED, |cluster| cluster.retries_refused),
    (&c::CLUSTER_HEDGED, |cluster| cluster.hedged),
    (&c::CLUSTER_HEDGES_WON, |cluster| cluster.hedges_won),
    (&c::CLUSTER_HEDGES_REFUSED, |cluster| cluster.hedges_refused),
    (&c::CLUSTER_GIVEN_UP, |cluster| cluster.given_up),
    (&c::CLUSTER_WAITING, |cluster| cluster.primary_waiting),
    (&c::CLUSTER_WAITS, |cluster| cluster.primary_waits),
    (&c::CLUSTER_WAITS_OVER, |cluster| cluster.primary_waits_over),
    (&c::CLUSTER_VIEWS, |cluster| cluster.views),
    (&c::CLUSTER_UNANSWERED, |cluster| cluster.unanswered),
    (&c::CLUSTER_NOTICES, |cluster| cluster.notices),
    (&c::CLUSTER_STALE, |cluster| cluster.stale),
    (&c::CLUSTER_REACHABLE_PRIMARIES, |cluster| cluster.reachable_primaries),
    (&c::CLUSTER_UNREPLICATED, |cluster| cluster.unreplicated_shards),
];

/// A metric that not every pool has, and its reader.
type SlotsReader = (&'static Metric, fn(&ClusterFigures) -> Option<u64>);

/// Metrics of clusters only, not of pools that discover their primaries.
const OF_SLOTS: &[SlotsReader] = &[
    (&c::CLUSTER_SLOTS, |cluster| cluster.slots),
    (&c::CLUSTER_REACHABLE_SLOTS, |cluster| cluster.reachable_slots),
];

/// A metric of commands, and its reader.
type CommandReader = (&'static Metric, fn(&CommandTotals) -> f64);

const OF_COMMANDS: &[CommandReader] = &[
    (&c::COMMAND_CALLS, |totals| totals.calls as f64),
    (&c::COMMAND_ERRORS, |totals| totals.errors as f64),
    (&c::COMMAND_SECONDS, |totals| totals.reply_seconds),
];

const OF_WARM_UPS: &[Reader<WarmUpFigures>] = &[
    (&c::WARM_NEW_HITS, |warm_up| warm_up.new_hits),
    (&c::WARM_LOOKUPS, |warm_up| warm_up.lookups),
    (&c::WARM_OLD_HITS, |warm_up| warm_up.old_hits),
    (&c::WARM_FILLS, |warm_up| warm_up.fills),
    (&c::WARM_FAILED, |warm_up| warm_up.failed_fills),
    (&c::WARM_WITHDRAWN, |warm_up| warm_up.withdrawn_fills),
    (&c::WARM_STRANDED, |warm_up| warm_up.stranded_fills),
    (&c::WARM_OLD_ERRORS, |warm_up| warm_up.old_errors),
    (&c::WARM_ACTIVE, |warm_up| u64::from(warm_up.is_active)),
];

const OF_ROUTES: &[Reader<RouteFigures>] = &[
    (&c::ROUTE_FAILOVERS, |routes| routes.failovers),
    (&c::ROUTE_CHILD_FAILURES, |routes| routes.child_failures),
    (&c::ROUTE_LOOKUPS, |routes| routes.lookups),
    (&c::ROUTE_FILLS, |routes| routes.fills),
    (&c::ROUTE_FAILED_FILLS, |routes| routes.failed_fills),
    (&c::ROUTE_SHADOWED, |routes| routes.shadowed),
    (&c::ROUTE_SHADOW_DROPS, |routes| routes.shadow_drops),
    (&c::ROUTE_RATE_LIMITED, |routes| routes.rate_limited),
];

const OF_QUOTAS: &[Reader<QuotaFigures>] = &[
    (&c::STORE_QUOTA_MEMORY, |quota| quota.memory_bytes),
    (&c::STORE_QUOTA_ITEMS, |quota| quota.items),
    (&c::STORE_QUOTA_EVICTIONS, |quota| quota.evictions),
    (&c::STORE_QUOTA_REFUSALS, |quota| quota.refusals),
];

/// The state of a backend that is reported as down.
const TOLD_DOWN: i64 = 4;

impl Registry {
    /// Appends every metric in the Prometheus text format, version 0.0.4. Takes no lock and
    /// disturbs no worker. Numbers of one scrape may be some requests apart.
    pub fn write_prometheus(&self, out: &mut String) {
        self.write_pools(out);
        self.write_clients(out);
        let front = self.front_figures().unwrap_or_default();
        write_listeners(&front, out);
        self.write_pubsub(out);
        let clusters = self.cluster_figures();
        self.write_backends(&clusters, out);
        self.write_clusters(&clusters, out);
        self.write_workers(out);
        self.write_stores(out);
        self.write_transactions(out);
        self.write_logins(out);
        self.write_warm_ups(out);
        self.write_routes(out);
        let mut expiry = family(out, &c::TLS_EXPIRY);
        for (file, seconds) in &front.certificates {
            expiry.sample(&[file], seconds);
        }
        self.write_reloads(out);
        self.write_process(out);
    }

    fn write_reloads(&self, out: &mut String) {
        let figures = self.reload_figures();
        let mut results = family(out, &c::CONFIG_RELOADS);
        for (result, count) in figures.iter().flat_map(|figures| &figures.results) {
            results.sample(&[result], *count);
        }
        let Some(figures) = figures else { return };
        family(out, &c::CONFIG_GENERATION).sample(&[], figures.generation);
        family(out, &c::CONFIG_RELOADED).sample(&[], figures.last_unix_seconds);
        family(out, &c::CONFIG_ENDING).sample(&[], figures.ending_pools);
    }

    /// Calls `each` with every pool's index and name.
    fn each_pool(&self, mut each: impl FnMut(usize, &str)) {
        let pools = self.layout().pools.iter().enumerate();
        let told = pools.filter(|(_, pool)| !pool.is_retired);
        told.for_each(|(index, pool)| each(index, &pool.name));
    }

    /// Calls `each` with every class: the pool's index and name, then the class's.
    fn each_class(&self, mut each: impl FnMut((usize, usize), (&str, &str))) {
        self.each_pool(|pool, name| {
            for (class, class_name) in self.layout().classes.iter().enumerate() {
                each((pool, class), (name, class_name));
            }
        });
    }

    /// Calls `each` with every backend: the pool's index and name, then the backend's. In a cluster
    /// it is the server that has the index now.
    fn each_backend(
        &self,
        clusters: &[Option<ClusterFigures>],
        mut each: impl FnMut((usize, usize), (&str, &str)),
    ) {
        let pools = self.layout().pools.iter().enumerate();
        for (pool, layout) in pools.filter(|(_, pool)| !pool.is_retired) {
            for (backend, name) in layout.backends.iter().enumerate() {
                let name = match &clusters[pool] {
                    Some(cluster) => cluster.backends.get(backend).and_then(Option::as_deref),
                    None => Some(name.as_str()),
                };
                if let Some(name) = name {
                    each((pool, backend), (&layout.name, name));
                }
            }
        }
    }

    fn write_clusters(&self, clusters: &[Option<ClusterFigures>], out: &mut String) {
        for (metric, read) in OF_CLUSTERS {
            let mut samples = family(out, metric);
            self.each_pool(|pool, name| {
                if let Some(cluster) = &clusters[pool] {
                    samples.sample(&[name], read(cluster));
                }
            });
        }
        for (metric, read) in OF_SLOTS {
            let mut samples = family(out, metric);
            self.each_pool(|pool, name| {
                if let Some(slots) = clusters[pool].as_ref().and_then(read) {
                    samples.sample(&[name], slots);
                }
            });
        }
        let mut roles = family(out, &c::BACKEND_ROLE);
        self.each_backend(clusters, |(pool, backend), (pool_name, name)| {
            let known = clusters[pool].as_ref().and_then(|it| it.roles.get(backend)?.as_ref());
            if let Some(known) = known {
                roles.sample(&[pool_name, name, known.role, &known.of], 1_u64);
            }
        });
    }

    fn write_pools(&self, out: &mut String) {
        let of = |(pool, class): (usize, usize)| {
            self.cells().map(move |cells| cells.pools[pool].class(class))
        };
        let mut requests = family(out, &c::POOL_REQUESTS);
        self.each_class(|at, (pool, class)| {
            let sum: u64 = of(at).map(|cells| cells.requests.get()).sum();
            requests.sample(&[pool, class], sum);
        });
        let mut latency = family(out, &c::POOL_LATENCY);
        self.each_class(|at, (pool, class)| {
            let snapshot = Snapshot::of_latencies(of(at).map(|cells| &cells.latency));
            latency.histogram(&[pool, class], &snapshot);
        });
        let mut slow = family(out, &c::POOL_SLOW);
        self.each_pool(|pool, name| {
            for (class, shares) in self.layout().classes.iter().zip(self.latency_shares(pool)) {
                for (millis, over) in LatencyShares::OVER_MILLIS.iter().zip(shares.over) {
                    slow.sample(&[name, class, &format!("{millis}ms")], over);
                }
            }
        });
        let mut errors = family(out, &c::POOL_ERRORS);
        self.each_class(|at, (pool, class)| {
            for fault in REQUEST_FAULTS {
                let sum: u64 = of(at).map(|cells| cells.errors.of(fault).get()).sum();
                errors.sample(&[pool, class, fault.label()], sum);
            }
        });
        self.write_commands(out);
        let mut refused = family(out, &c::POOL_REFUSED);
        self.each_pool(|pool, name| {
            for fault in REFUSALS {
                let of_fault = self.cells().map(|cells| cells.pools[pool].refused.of(fault).get());
                refused.sample(&[name, fault.label()], of_fault.sum::<u64>());
            }
        });
    }

    fn write_commands(&self, out: &mut String) {
        let mut pools = Vec::new();
        self.each_pool(|pool, name| pools.push((name.to_owned(), self.command_totals(pool))));
        for (metric, read) in OF_COMMANDS {
            let mut samples = family(out, metric);
            for (pool, totals) in &pools {
                for (command, totals) in totals {
                    samples.sample(&[pool, self.layout().commands[*command]], read(totals));
                }
            }
        }
    }

    fn write_clients(&self, out: &mut String) {
        for (metric, read) in OF_CLIENTS {
            let mut samples = family(out, metric);
            self.each_pool(|pool, name| {
                let sum: u64 = self.cells().map(|cells| read(&cells.pools[pool].clients)).sum();
                samples.sample(&[name], sum);
            });
        }
        let mut closed = family(out, &c::CLIENT_CLOSED);
        self.each_pool(|pool, name| {
            for reason in CloseReason::ALL {
                let of_reason =
                    self.cells().map(|cells| cells.pools[pool].clients.closed.of(reason).get());
                closed.sample(&[name, reason.label()], of_reason.sum::<u64>());
            }
        });
    }

    fn write_pubsub(&self, out: &mut String) {
        for (metric, read) in OF_PUBSUB {
            let mut samples = family(out, metric);
            self.each_pool(|pool, name| {
                let sum: u64 = self.cells().map(|cells| read(&cells.pools[pool].pubsub)).sum();
                samples.sample(&[name], sum);
            });
        }
    }

    fn write_backends(&self, clusters: &[Option<ClusterFigures>], out: &mut String) {
        let of = |(pool, backend): (usize, usize)| {
            self.cells().map(move |cells| cells.pools[pool].backend(backend))
        };
        for (metric, read) in OF_BACKENDS {
            let mut samples = family(out, metric);
            self.each_backend(clusters, |at, (pool, backend)| {
                samples.sample(&[pool, backend], of(at).map(read).sum::<u64>());
            });
        }
        let mut latency = family(out, &c::BACKEND_LATENCY);
        self.each_backend(clusters, |at, (pool, backend)| {
            let snapshot = Snapshot::of_latencies(of(at).map(|cells| &cells.latency));
            latency.histogram(&[pool, backend], &snapshot);
        });
        let mut errors = family(out, &c::BACKEND_ERRORS);
        self.each_backend(clusters, |at, (pool, backend)| {
            for fault in BACKEND_FAULTS {
                let sum: u64 = of(at).map(|cells| cells.errors.of(fault).get()).sum();
                errors.sample(&[pool, backend, backend_fault(fault).label()], sum);
            }
        });
        let mut health = family(out, &c::BACKEND_HEALTH);
        self.each_backend(clusters, |at, (pool, backend)| {
            let worst = of(at).map(BackendCells::health_level).max().unwrap_or_default();
            let told = clusters[at.0].as_ref().and_then(|it| *it.down.get(at.1)?);
            let is_told_down = told.is_some() && worst < HealthLevel::Ejected;
            health.sample(&[pool, backend], if is_told_down { TOLD_DOWN } else { worst.value() });
        });
        // All workers share these states. Each shows the state it saw last.
        for (metric, read) in SHARED_OF_BACKENDS {
            let mut samples = family(out, metric);
            self.each_backend(clusters, |at, (pool, backend)| {
                samples.sample(&[pool, backend], of(at).map(read).max().unwrap_or(0));
            });
        }
        let mut estimates = family(out, &c::BACKEND_READ_ESTIMATE);
        self.each_backend(clusters, |at, (pool, backend)| {
            let micros = of(at).map(|backend| backend.read_micros.get()).max().unwrap_or(0);
            estimates.sample(&[pool, backend], micros as f64 / 1e6);
        });
    }

    fn write_workers(&self, out: &mut String) {
        let workers = || {
            let numbered = self.slots().iter().enumerate();
            numbered.filter_map(|(index, slot)| Some((index.to_string(), slot, slot.cells()?)))
        };
        for (metric, read) in OF_WORKERS {
            let mut samples = family(out, metric);
            for (worker, _, cells) in workers() {
                samples.sample(&[&worker], read(&cells.turn));
            }
        }
        let mut batch = family(out, &c::WORKER_BATCH);
        for (worker, _, cells) in workers() {
            let snapshot = Snapshot::of_sizes([&cells.turn.batch].into_iter());
            batch.histogram(&[&worker], &snapshot);
        }
        let mut looked = family(out, &c::WORKER_LOOKED);
        for (worker, _, cells) in workers() {
            looked.sample(&[&worker], cells.turn.looked_nanos.get() as f64 / 1e9);
        }
        let mut busy = family(out, &c::WORKER_BUSY);
        for (worker, slot, _) in workers() {
            busy.sample(&[&worker], slot.busy_seconds());
        }
    }

    fn write_stores(&self, out: &mut String) {
        let stores = self.store_figures();
        for (metric, read) in OF_STORES {
            let mut samples = family(out, metric);
            for (pool, figures) in &stores {
                samples.sample(&[pool], read(figures));
            }
        }
        let mut seconds = family(out, &c::SCRIPT_SECONDS);
        for (pool, figures) in &stores {
            seconds.sample(&[pool], figures.scripts.seconds);
        }
        let mut items = family(out, &c::STORE_ITEMS);
        for (pool, figures) in &stores {
            for of in &figures.databases {
                items.sample(&[pool, &of.database.to_string()], of.items);
            }
        }
        let mut expiring = family(out, &c::STORE_EXPIRING);
        for (pool, figures) in &stores {
            for of in &figures.databases {
                expiring.sample(&[pool, &of.database.to_string()], of.expiring_items);
            }
        }
        for (metric, read) in OF_SNAPSHOTS {
            let mut samples = family(out, metric);
            for (pool, figures) in &stores {
                if let Some(snapshots) = &figures.snapshots {
                    samples.sample(&[pool], read(snapshots));
                }
            }
        }
        for (metric, read) in OF_REPLICAS {
            let mut samples = family(out, metric);
            for (pool, figures) in &stores {
                if let Some(replica) = &figures.replica {
                    samples.sample(&[pool], read(replica));
                }
            }
        }
        for (metric, read) in OF_FEEDS {
            let mut samples = family(out, metric);
            for (pool, figures) in &stores {
                if let Some(feed) = &figures.feed {
                    samples.sample(&[pool], read(feed));
                }
            }
        }
        let mut seconds = family(out, &c::SNAPSHOT_SECONDS);
        for (pool, figures) in &stores {
            if let Some(snapshots) = &figures.snapshots {
                seconds.sample(&[pool], snapshots.seconds);
            }
        }
        self.write_logs(&stores, out);
        for (metric, read) in OF_QUOTAS {
            let mut samples = family(out, metric);
            for (pool, figures) in &stores {
                for quota in &figures.quotas {
                    samples.sample(&[pool, &quota.prefix], read(quota));
                }
            }
        }
    }

    /// Writes the figures of stores that have a log, and of those that can be loaded.
    fn write_logs(&self, stores: &[(&str, StoreFigures)], out: &mut String) {
        let mut loading = family(out, &c::STORE_LOADING);
        for (pool, figures) in stores {
            if let Some(is_loading) = figures.loading {
                loading.sample(&[pool], is_loading);
            }
        }
        for (metric, read) in OF_LOGS {
            let mut samples = family(out, metric);
            for (pool, figures) in stores {
                if let Some(log) = &figures.log {
                    samples.sample(&[pool], read(log));
                }
            }
        }
        let mut seconds = family(out, &c::LOG_FSYNC_SECONDS);
        for (pool, figures) in stores {
            if let Some(log) = &figures.log {
                seconds.sample(&[pool], log.fsync_seconds);
            }
        }
    }

    fn write_transactions(&self, out: &mut String) {
        let Some(figures) = self.transaction_figures() else { return };
        family(out, &c::TRANSACTION_HELD).sample(&[], figures.held_bytes);
        family(out, &c::TRANSACTION_LIMIT).sample(&[], figures.limit_bytes);
        family(out, &c::TRANSACTION_REFUSED).sample(&[], figures.refused_commands);
    }

    fn write_logins(&self, out: &mut String) {
        let mut samples = family(out, &c::LOGIN_FAILURES);
        for figures in self.login_figures() {
            for (fault, count) in &figures.failures {
                samples.sample(&[&figures.listener, fault], *count);
            }
        }
    }

    fn write_warm_ups(&self, out: &mut String) {
        let warm_ups = self.warm_up_figures();
        for (metric, read) in OF_WARM_UPS {
            let mut samples = family(out, metric);
            for (pool, figures) in &warm_ups {
                samples.sample(&[pool], read(figures));
            }
        }
    }

    fn write_routes(&self, out: &mut String) {
        let routes = self.route_figures();
        for (metric, read) in OF_ROUTES {
            let mut samples = family(out, metric);
            for (pool, figures) in &routes {
                samples.sample(&[pool], read(figures));
            }
        }
    }

    fn write_process(&self, out: &mut String) {
        let running = self.slots().iter().filter(|slot| slot.is_running()).count();
        let start_seconds = self.layout().start_unix_micros as f64 / 1e6;
        family(out, &c::PROCESS_BUILD).sample(&[self.layout().version], 1);
        family(out, &c::PROCESS_WORKERS).sample(&[], running);
        family(out, &c::PROCESS_START).sample(&[], start_seconds);
        let cpu_seconds =
            process::process_cpu_ticks().map(|ticks| ticks as f64 / TICKS_PER_SECOND as f64);
        if let Some(seconds) = cpu_seconds {
            family(out, &c::PROCESS_CPU).sample(&[], seconds);
        }
        if let Some(bytes) = process::resident_bytes() {
            family(out, &c::PROCESS_RESIDENT).sample(&[], bytes);
        }
        if let Some(count) = process::open_fds() {
            family(out, &c::PROCESS_FDS).sample(&[], count);
        }
    }
}

fn write_listeners(front: &FrontFigures, out: &mut String) {
    let mut connected = family(out, &c::LISTENER_CONNECTIONS);
    for (listener, figures) in &front.listeners {
        connected.sample(&[listener], figures.connected);
    }
    let mut secured = family(out, &c::LISTENER_SECURED);
    for (listener, figures) in &front.listeners {
        secured.sample(&[listener], figures.secured);
    }
    let mut refused = family(out, &c::LISTENER_REFUSED);
    for (listener, figures) in &front.listeners {
        for (why, count) in &figures.turned_away {
            refused.sample(&[listener, why], count);
        }
    }
}
