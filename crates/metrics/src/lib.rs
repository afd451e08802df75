//! Keyway's metrics: one catalogue, cells that cost a load and a store, and the Prometheus text
//! made from them.
//!
//! Each worker owns its cells and is their only writer. A scrape reads them from another thread and
//! sums over the workers. So counting is a relaxed load and a relaxed store, never a locked
//! instruction. After a worker has its cells, nothing here allocates until a scrape.
//!
//! Read first: [`Registry`] (built once from a [`Layout`]), [`WorkerCells`] (the cells that a
//! worker writes) and [`CATALOGUE`] (every metric, declared once).
//!
//! Architecture invariant: no label ever holds a key, a client address or any other text that
//! clients choose. The configuration fixes the number of series.

#![forbid(unsafe_code)]

mod bus;
mod catalogue;
mod cell;
mod cells;
mod exposition;
mod fleet;
mod histogram;
mod layout;
mod process;
mod recent;
mod registry;
mod scrape;

pub use bus::{BusFigures, BusLink, BusMetrics};
pub use catalogue::{CATALOGUE, Kind, Label, Metric, catalogue_markdown};
pub use cell::{Counter, Gauge};
pub use cells::{
    BackendCells, BackendFaultCounters, ClientCells, CloseCounters, CloseReason, FaultCounters,
    HealthLevel, MemcachedCells, PoolCells, PubSubCells, RequestCells, TurnCells,
};
pub use fleet::{FleetFigures, GroupFigures, write_fleet};
pub use histogram::{Latency, LatencyHistogram, SizeHistogram, Snapshot};
pub use layout::{Layout, PoolLayout};
pub use recent::Recent;
pub use registry::{
    AccessFigures, BackendRole, BackendTotals, ClusterFigures, CommandTotals, DatabaseFigures,
    FeedFigures, FrontFigures, LatencyShares, LogFigures, LoginFigures, MemcachedTotals,
    PoolTotals, PoolsTotals, QuotaFigures, Registry, ReloadFigures, ReplicaFigures, RouteFigures,
    ScriptFigures, SnapshotFigures, StoreFigures, TransactionFigures, WarmUpFigures, WorkerCells,
};
