//! One worker: a thread that owns sockets, sessions, links and its share of the clients, and
//! connects them with the router and the embedded store.
//!
//! A turn is a straight list of bounded phases: poll, inputs, resumed sessions, timers, outputs. It
//! blocks only in poll, locks only a store shard, and allocates nothing for a request in steady
//! state. Read first: [`Worker`] (the turn), [`Core`] (requests and replies, without sockets) and
//! [`Plan`] (what all workers share).
#![forbid(unsafe_code)]

mod access;
mod advice;
mod channels;
mod cluster;
mod core;
mod error_stats;
mod flaps;
mod handed;
mod handouts;
mod held_servers;
mod holds;
mod invalidations;
mod mail;
mod monitors;
mod notices;
mod pause;
mod plan;
mod pool_kind;
mod pool_worker;
mod readers;
mod redirects;
mod replication;
mod server_status;
mod turn;

pub use crate::core::leftovers::Leftovers;
pub use crate::core::{Core, Figures, repeat_function_command};
pub use access::{ListenerAccess, Tally};
pub use channels::Channels;
pub use cluster::{
    Cluster, ClusterTotals, DecidedPrimary, DrainedHook, MapSource, ObeyedSlots, SeenServer,
};
pub use error_stats::ErrorStats;
pub use handed::{HandedClient, Heir};
pub use handouts::Handouts;
pub use invalidations::{Invalidations, Tracked};
pub use mail::{Adopted, Follow, Mail};
pub use monitors::Monitors;
pub use notices::{Notice, Notices, PoolNotices};
pub use pause::Pause;
pub use plan::{ListenerPlan, Plan, PoolPlan, Retired};
pub use pool_kind::{
    DiscoveredPlan, MemcachedPlan, PoolKind, RoutePlan, ShardedPlan, Upstream, WarmUpPlan,
    share_scripts,
};
pub use redirects::Redirects;
pub use replication::{
    Failover, FedReplica, FeedFigures, ReplicaFigures, ReplicaLink, ReplicaWait, Replication,
    RoleDoor, RoleReply, Wish,
};
pub use server_status::{ServerStatus, backend_state};
pub use turn::Worker;
