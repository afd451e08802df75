mod figures;
mod totals;

pub use figures::{
    AccessFigures, BackendRole, ClusterFigures, DatabaseFigures, FeedFigures, FrontFigures,
    LogFigures, LoginFigures, QuotaFigures, ReloadFigures, ReplicaFigures, RouteFigures,
    ScriptFigures, SnapshotFigures, StoreFigures, TransactionFigures, WarmUpFigures,
};
pub use totals::{
    BackendTotals, CommandTotals, LatencyShares, MemcachedTotals, PoolTotals, PoolsTotals,
};

use std::cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock};

use crate::cells::{BackendCells, Cells, PoolCells, TurnCells};
use crate::histogram::Snapshot;
use crate::layout::{Layout, PoolLayout};
use crate::process;

type ReloadReader = Box<dyn Fn() -> ReloadFigures + Send + Sync>;
type LoginReader = Box<dyn Fn() -> Vec<LoginFigures> + Send + Sync>;
type TransactionReader = Box<dyn Fn() -> TransactionFigures + Send + Sync>;
type FrontReader = Box<dyn Fn() -> FrontFigures + Send + Sync>;
type WarmUpReader = Box<dyn Fn() -> WarmUpFigures + Send + Sync>;
type RouteReader = Box<dyn Fn() -> RouteFigures + Send + Sync>;
type ClusterReader = Box<dyn Fn() -> ClusterFigures + Send + Sync>;
type StoreReader = Arc<dyn Fn() -> StoreFigures + Send + Sync>;

/// All cells of the process. Workers take their cells from it, and a scrape reads all of them
/// through it.
pub struct Registry {
    layout: Layout,
    slots: Box<[WorkerSlot]>,
    stores: Box<[OnceLock<StoreReader>]>,
    warm_ups: Box<[OnceLock<WarmUpReader>]>,
    routes: Box<[OnceLock<RouteReader>]>,
    clusters: Box<[OnceLock<ClusterReader>]>,
    transactions: OnceLock<TransactionReader>,
    front: OnceLock<FrontReader>,
    logins: OnceLock<LoginReader>,
    reloads: OnceLock<ReloadReader>,
}

/// The slot of one worker. Its cells outlive the worker, so that counters never go back. They pass
/// to the next worker that takes the slot.
#[derive(Default)]
pub(crate) struct WorkerSlot {
    /// The seat, which the registries that succeed this one share.
    seat: Arc<Seat>,
    cells: OnceLock<Arc<Cells>>,
}

/// The part of a worker's slot that stays when the layout changes.
#[derive(Default)]
struct Seat {
    taken: AtomicBool,
    busy: BusyTime,
}

/// CPU time of the threads that have run a worker, one after another.
#[derive(Default)]
struct BusyTime {
    /// The thread's id, 0 for none.
    thread: AtomicU64,
    /// Ticks of the earlier threads.
    earlier_ticks: AtomicU64,
    /// The largest value ever read. It is the one that is shown, so that it never falls.
    seen_ticks: AtomicU64,
}

impl BusyTime {
    fn attach(&self, thread: u64) {
        self.read_ticks();
        self.earlier_ticks.store(self.seen_ticks.load(Relaxed), Relaxed);
        // ORDER: pairs with read_ticks: a reader that sees this thread sees the ticks of those
        // before it
        self.thread.store(thread, Release);
    }

    fn detach(&self) {
        self.read_ticks();
        self.thread.store(0, Relaxed);
    }

    /// CPU time of all threads so far, in ticks.
    fn read_ticks(&self) -> u64 {
        // ORDER: pairs with attach.
        let thread = self.thread.load(Acquire);
        if thread != 0
            && let Some(ticks) = process::thread_cpu_ticks(thread)
        {
            let total = self.earlier_ticks.load(Relaxed) + ticks;
            // The sum is dropped if another thread took over meanwhile, because it may mix both.
            if self.thread.load(Relaxed) == thread {
                self.seen_ticks.fetch_max(total, Relaxed);
            }
        }
        self.seen_ticks.load(Relaxed)
    }
}

impl WorkerSlot {
    pub(crate) fn cells(&self) -> Option<&Cells> {
        self.cells.get().map(Arc::as_ref)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.seat.taken.load(Relaxed)
    }

    pub(crate) fn busy_seconds(&self) -> f64 {
        self.seat.busy.read_ticks() as f64 / process::TICKS_PER_SECOND as f64
    }
}

impl Registry {
    /// Creates a registry for `layout`, without any worker.
    pub fn new(layout: Layout) -> Arc<Self> {
        let slots = (0..layout.workers_max).map(|_| WorkerSlot::default()).collect();
        let stores = layout.pools.iter().map(|_| OnceLock::new()).collect();
        let warm_ups = layout.pools.iter().map(|_| OnceLock::new()).collect();
        let routes = layout.pools.iter().map(|_| OnceLock::new()).collect();
        let clusters = layout.pools.iter().map(|_| OnceLock::new()).collect();
        Arc::new(Self {
            layout,
            slots,
            stores,
            warm_ups,
            routes,
            clusters,
            transactions: OnceLock::new(),
            front: OnceLock::new(),
            logins: OnceLock::new(),
            reloads: OnceLock::new(),
        })
    }

    /// Returns the registry that succeeds this one when pools change. Each pool continues the
    /// counts of the pool here whose index `heir_of` returns, so counts never go back. Each worker
    /// changes over by [`WorkerCells::follow`]; no worker may start meanwhile.
    pub fn succeeded_by(
        &self,
        layout: Layout,
        heir_of: impl Fn(usize) -> Option<usize>,
    ) -> Arc<Self> {
        let next = Registry::new(layout);
        let next = Arc::try_unwrap(next).unwrap_or_else(|_| unreachable!("nobody has it yet"));
        let slot = |slot: &WorkerSlot| {
            let cells = OnceLock::new();
            if let Some(old) = slot.cells.get() {
                let new = old.succeeded_by((&self.layout, &next.layout), &heir_of);
                let _ = cells.set(Arc::new(new));
            }
            WorkerSlot { seat: Arc::clone(&slot.seat), cells }
        };
        Arc::new(Self { slots: self.slots.iter().map(slot).collect(), ..next })
    }

    /// Returns the layout given to [`Registry::new`].
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the cells for a worker that is about to start: those of the lowest free number,
    /// allocated when first needed. Returns `None` if `workers_max` workers run.
    pub fn start_worker(self: &Arc<Self>) -> Option<WorkerCells> {
        let index = self.slots.iter().position(|slot| {
            // ORDER: pairs with the release in WorkerCells::drop: this worker continues the counts
            // of the last one
            slot.seat.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok()
        })?;
        let cells = self.slots[index].cells.get_or_init(|| Arc::new(Cells::new(&self.layout)));
        Some(WorkerCells {
            cells: Arc::clone(cells),
            registry: Arc::clone(self),
            index,
            one_writer: PhantomData,
        })
    }

    /// Calls `read` at every scrape for the figures of the embedded store behind the pool at index
    /// `pool`. It runs on the scraping thread and must not wait for a worker. Returns whether
    /// `read` was accepted: a pool has at most one reader, for good.
    ///
    /// # Panics
    /// Panics if there is no such pool.
    pub fn watch_store(
        &self,
        pool: usize,
        read: impl Fn() -> StoreFigures + Send + Sync + 'static,
    ) -> bool {
        self.stores[pool].set(Arc::new(read)).is_ok()
    }

    /// Takes over the reader of `before`, if the store at this position is the same: its last
    /// figures remain visible. Returns whether there was a reader.
    ///
    /// # Panics
    /// Panics if there is no such pool here.
    pub fn watch_store_as(&self, before: &Registry, pool: usize) -> bool {
        let read = before.stores.get(pool).and_then(OnceLock::get);
        read.is_some_and(|read| self.stores[pool].set(Arc::clone(read)).is_ok())
    }

    /// Reads the figures of a pool's warm-up by `read` at every scrape, like
    /// [`Registry::watch_store`].
    ///
    /// # Panics
    /// Panics if there is no such pool.
    pub fn watch_warm_up(
        &self,
        pool: usize,
        read: impl Fn() -> WarmUpFigures + Send + Sync + 'static,
    ) -> bool {
        self.warm_ups[pool].set(Box::new(read)).is_ok()
    }

    /// Reads the figures of a cluster, and the names of its backends, by `read` at every scrape,
    /// like [`Registry::watch_store`].
    ///
    /// # Panics
    /// Panics if there is no such pool.
    pub fn watch_cluster(
        &self,
        pool: usize,
        read: impl Fn() -> ClusterFigures + Send + Sync + 'static,
    ) -> bool {
        self.clusters[pool].set(Box::new(read)).is_ok()
    }

    /// Reads the figures of a pool that leads to others by `read` at every scrape, like
    /// [`Registry::watch_store`].
    ///
    /// # Panics
    /// Panics if there is no such pool.
    pub fn watch_routes(
        &self,
        pool: usize,
        read: impl Fn() -> RouteFigures + Send + Sync + 'static,
    ) -> bool {
        self.routes[pool].set(Box::new(read)).is_ok()
    }

    /// Reads the transactions' figures by `read` at every scrape. `read` must not block. Returns
    /// whether it is the first such reader: a second one is not accepted.
    pub fn watch_transactions(
        &self,
        read: impl Fn() -> TransactionFigures + Send + Sync + 'static,
    ) -> bool {
        self.transactions.set(Box::new(read)).is_ok()
    }

    /// Reads the failed logins by `read` at every scrape, like [`Registry::watch_transactions`].
    pub fn watch_logins(
        &self,
        read: impl Fn() -> Vec<LoginFigures> + Send + Sync + 'static,
    ) -> bool {
        self.logins.set(Box::new(read)).is_ok()
    }

    /// Reads the reloads by `read` at every scrape, like [`Registry::watch_transactions`].
    pub fn watch_reloads(&self, read: impl Fn() -> ReloadFigures + Send + Sync + 'static) -> bool {
        self.reloads.set(Box::new(read)).is_ok()
    }

    /// Returns the figures of reloads; `None` without a reader.
    pub fn reload_figures(&self) -> Option<ReloadFigures> {
        self.reloads.get().map(|read| read())
    }

    /// Returns the failed logins, by listener.
    pub(crate) fn login_figures(&self) -> Vec<LoginFigures> {
        self.logins.get().map(|read| read()).unwrap_or_default()
    }

    /// Returns the figures of transactions; `None` without a reader.
    pub(crate) fn transaction_figures(&self) -> Option<TransactionFigures> {
        self.transactions.get().map(|read| read())
    }

    /// Reads the figures of arriving clients by `read` at every scrape. `read` must not block.
    /// Returns whether it is the first such reader: a second one is not accepted.
    pub fn watch_front(&self, read: impl Fn() -> FrontFigures + Send + Sync + 'static) -> bool {
        self.front.set(Box::new(read)).is_ok()
    }

    /// Returns the figures of arriving clients; `None` without a reader.
    pub(crate) fn front_figures(&self) -> Option<FrontFigures> {
        self.front.get().map(|read| read())
    }

    /// Returns the totals of all workers for the pool at index `pool`.
    ///
    /// # Panics
    /// Panics if there is no such pool.
    pub fn pool_totals(&self, pool: usize) -> PoolTotals {
        assert!(pool < self.layout.pools.len(), "there is no pool {pool}");
        let pools = || self.cells().map(|cells| &cells.pools[pool]);
        let classes = || pools().flat_map(|pool| pool.classes());
        let sum = |read: fn(&PoolCells) -> u64| pools().map(read).sum();
        PoolTotals {
            requests: classes().map(|class| class.requests.get()).sum(),
            errors: classes().map(|class| class.errors.sum()).sum(),
            refused: sum(|pool| pool.refused.sum()),
            clients_connected: sum(|pool| pool.clients.connected.get()),
            clients_accepted: sum(|pool| pool.clients.accepted.get()),
            received_bytes: sum(|pool| pool.clients.received_bytes.get()),
            sent_bytes: sum(|pool| pool.clients.sent_bytes.get()),
            memcached: MemcachedTotals {
                sets: sum(|pool| pool.memcached.sets.get()),
                stored: sum(|pool| pool.memcached.stored.get()),
                touches: sum(|pool| pool.memcached.touches.get()),
                flushes: sum(|pool| pool.memcached.flushes.get()),
            },
            reply_latency: Snapshot::of_latencies(classes().map(|class| &class.latency)),
        }
    }

    /// Returns the totals of all workers over the pools for which `is_wanted` returns true.
    pub fn totals_of(&self, is_wanted: impl Fn(&PoolLayout) -> bool) -> PoolsTotals {
        let pools = self.layout.pools.iter().enumerate().filter(|(_, pool)| is_wanted(pool));
        let wanted: Vec<usize> = pools.map(|(index, _)| index).collect();
        let classes = || {
            let pools = self.cells().flat_map(|cells| wanted.iter().map(|at| &cells.pools[*at]));
            pools.flat_map(|pool| pool.classes())
        };
        PoolsTotals {
            requests: classes().map(|class| class.requests.get()).sum(),
            errors: classes().map(|class| class.errors.sum()).sum(),
            reply_latency: Snapshot::of_latencies(classes().map(|class| &class.latency)),
        }
    }

    /// Returns the totals of each called command of the pool at index `pool`, with the command's
    /// index in [`Layout::commands`].
    ///
    /// # Panics
    /// Panics if there is no such pool.
    pub fn command_totals(&self, pool: usize) -> Vec<(usize, CommandTotals)> {
        assert!(pool < self.layout.pools.len(), "there is no pool {pool}");
        let mut totals = vec![CommandTotals::default(); self.layout.commands.len()];
        for cells in self.cells() {
            for (command, cells) in cells.pools[pool].commands() {
                // The last block may have room for more commands than there are.
                let Some(total) = totals.get_mut(command) else { break };
                total.calls += cells.calls.get();
                total.errors += cells.errors.get();
                total.replies += cells.replies.get();
                total.reply_seconds += cells.nanos.get() as f64 / 1e9;
                total.worked_seconds += cells.worked.get() as f64 / 1e9;
            }
        }
        totals.into_iter().enumerate().filter(|(_, total)| total.calls > 0).collect()
    }

    /// Returns the latencies of each command class of the pool at index `pool`, over all workers,
    /// in the order of [`Layout::classes`].
    ///
    /// # Panics
    /// Panics if there is no such pool.
    pub fn class_latencies(&self, pool: usize) -> Vec<Snapshot> {
        assert!(pool < self.layout.pools.len(), "there is no pool {pool}");
        let of = |class| {
            let cells = self.cells().map(|cells| cells.pools[pool].class(class));
            Snapshot::of_latencies(cells.map(|class| &class.latency))
        };
        (0..self.layout.classes.len()).map(of).collect()
    }

    /// Returns the numbers of slow requests of each command class of the pool at index `pool`, in
    /// the order of [`Layout::classes`].
    ///
    /// # Panics
    /// Panics if there is no such pool.
    pub fn latency_shares(&self, pool: usize) -> Vec<LatencyShares> {
        self.class_latencies(pool).iter().map(LatencyShares::of).collect()
    }

    /// Returns the totals of all workers for each backend of the pool at index `pool`, in the order
    /// of [`PoolLayout::backends`].
    ///
    /// # Panics
    /// Panics if there is no such pool.
    pub fn backend_totals(&self, pool: usize) -> Vec<BackendTotals> {
        let cluster = self.clusters[pool].get().map(|read| read());
        let told_down = |backend: usize| *cluster.as_ref()?.down.get(backend)?;
        let total = |backend: usize| {
            let cells = || self.cells().map(move |cells| cells.pools[pool].backend(backend));
            let sum = |read: fn(&BackendCells) -> u64| cells().map(read).sum();
            let latency = Snapshot::of_latencies(cells().map(|backend| &backend.latency));
            BackendTotals {
                replies: latency.count(),
                reply_seconds: latency.sum(),
                requests: sum(|backend| backend.requests.get()),
                errors: sum(|backend| backend.errors.sum()),
                error_replies: sum(|backend| backend.error_replies.get()),
                in_flight: sum(|backend| backend.in_flight.get()),
                links_ready: sum(|backend| backend.links_ready.get()),
                ejections: sum(|backend| backend.ejections.get()),
                health: cells().map(BackendCells::health_level).max().unwrap_or_default(),
                has_open_circuit: cells().any(|backend| backend.circuit.get() > 0),
                is_outlier: cells().any(|backend| backend.outlier.get() > 0),
                told_down: told_down(backend),
            }
        };
        (0..self.layout.pools[pool].backends.len()).map(total).collect()
    }

    /// Returns the names of the backends of the pool at index `pool`, by index; `None` for an index
    /// without a backend now.
    ///
    /// # Panics
    /// Panics if there is no such pool.
    pub fn backend_names(&self, pool: usize) -> Vec<Option<String>> {
        match self.clusters[pool].get() {
            Some(read) => read().backends,
            None => self.layout.pools[pool].backends.iter().cloned().map(Some).collect(),
        }
    }

    /// Returns the number of connected clients of the pool at index `pool`, over all workers.
    ///
    /// # Panics
    /// Panics if there is no such pool.
    pub fn clients_connected(&self, pool: usize) -> u64 {
        self.cells().map(|cells| cells.pools[pool].clients.connected.get()).sum()
    }

    /// Returns the number of connections of former clients that are being closed, over all workers.
    pub fn lingering(&self) -> u64 {
        self.cells().map(|cells| cells.turn.lingering.get()).sum()
    }

    /// Returns the number of running workers.
    pub fn workers_running(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_running()).count()
    }

    /// Returns how long the worker with this number has polled shared memory instead of sleeping,
    /// in nanoseconds; 0 if there is no such worker.
    pub fn looked_nanos(&self, worker: usize) -> u64 {
        let cells = self.slots.get(worker).and_then(WorkerSlot::cells);
        cells.map_or(0, |cells| cells.turn.looked_nanos.get())
    }

    pub(crate) fn slots(&self) -> &[WorkerSlot] {
        &self.slots
    }

    /// Returns the cells of every worker that ever ran.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &Cells> {
        self.slots.iter().filter_map(WorkerSlot::cells)
    }

    /// Returns the figures of each warm-up with its pool's name.
    pub(crate) fn warm_up_figures(&self) -> Vec<(&str, WarmUpFigures)> {
        let pools = self.layout.pools.iter().zip(&self.warm_ups);
        let pools = pools.filter(|(pool, _)| !pool.is_retired);
        pools.filter_map(|(pool, read)| Some((pool.name.as_str(), read.get()?()))).collect()
    }

    /// Returns the figures of each cluster, by the position of its pool.
    pub(crate) fn cluster_figures(&self) -> Vec<Option<ClusterFigures>> {
        self.clusters.iter().map(|read| Some(read.get()?())).collect()
    }

    /// Returns the figures of each pool that leads to others with its name.
    pub(crate) fn route_figures(&self) -> Vec<(&str, RouteFigures)> {
        let pools = self.layout.pools.iter().zip(&self.routes);
        let pools = pools.filter(|(pool, _)| !pool.is_retired);
        pools.filter_map(|(pool, read)| Some((pool.name.as_str(), read.get()?()))).collect()
    }

    /// Returns the figures of each store with its pool's name.
    pub(crate) fn store_figures(&self) -> Vec<(&str, StoreFigures)> {
        let pools = self.layout.pools.iter().zip(&self.stores);
        let pools = pools.filter(|(pool, _)| !pool.is_retired);
        pools.filter_map(|(pool, read)| Some((pool.name.as_str(), read.get()?()))).collect()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// The cells of one worker. They may move to the worker's thread, and are then used only there.
/// Dropping them frees the worker's number: counts stay, levels fall to zero.
pub struct WorkerCells {
    cells: Arc<Cells>,
    registry: Arc<Registry>,
    index: usize,
    /// Makes it neither `Sync` nor `Clone`: a cell has one writer.
    one_writer: PhantomData<cell::Cell<()>>,
}

impl WorkerCells {
    /// Returns the worker's number: the value of the `worker` label.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the cells of the pool at `index` of [`Layout::pools`].
    ///
    /// # Panics
    /// Panics if there is no such pool.
    #[inline]
    pub fn pool(&self, index: usize) -> &PoolCells {
        &self.cells.pools[index]
    }

    /// Returns the cells of the server at the index `server` of the pool at the index `pool`.
    ///
    /// # Panics
    /// Panics if there is no such pool or server.
    #[inline]
    pub fn backend(&self, pool: u16, server: u16) -> &BackendCells {
        self.pool(usize::from(pool)).backend(usize::from(server))
    }

    /// Counts into the cells of a registry that succeeds the current one.
    ///
    /// # Panics
    /// Panics if it does not succeed it.
    pub fn follow(&mut self, registry: &Arc<Registry>) {
        let cells = registry.slots[self.index].cells.get().expect("it succeeds this worker's");
        self.cells = Arc::clone(cells);
        self.registry = Arc::clone(registry);
    }

    /// Shows the calling thread's CPU time as this worker's busy time from now on. The worker calls
    /// it once on its own thread. Nothing is measured on the worker's path: the kernel is asked at
    /// each scrape.
    pub fn attach_thread(&self) {
        if let Some(thread) = process::thread_id() {
            self.registry.slots[self.index].seat.busy.attach(thread);
        }
    }

    /// Returns all cells of the process, for totals such as INFO shows.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
}

/// Gives access to the cells of the worker's own loop.
impl Deref for WorkerCells {
    type Target = TurnCells;

    #[inline]
    fn deref(&self) -> &TurnCells {
        &self.cells.turn
    }
}

impl Drop for WorkerCells {
    fn drop(&mut self) {
        self.cells.clear_levels();
        let seat = &self.registry.slots[self.index].seat;
        seat.busy.detach();
        // ORDER: pairs with the acquire in start_worker.
        seat.taken.store(false, Release);
    }
}

impl fmt::Debug for WorkerCells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerCells").field("index", &self.index).finish_non_exhaustive()
    }
}
