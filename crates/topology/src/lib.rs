//! Pools and their backends as pure data, as the data plane knows them: the servers of a pool, the
//! server of a key, and the servers that are fit for use.
//!
//! Never does I/O, never reads a clock, never draws a random number: time and randomness are
//! arguments. Key placement is bit-exact with twemproxy 0.5.0 on x86-64, and with libmemcached and
//! PHP's memcache if their distributions are chosen, so a pool can move to Keyway without moving a
//! key. Read first: [`Topology`] (everything configured, immutable), [`Ring`] (from a key's hash to
//! a server) and [`HealthBoard`] (servers out of use, shared by all workers).

#![forbid(unsafe_code)]

mod circuit;
mod cluster;
mod discovery;
mod distribution;
mod endpoint;
mod failure;
mod first_look;
mod generation;
mod hash;
mod hash_tag;
mod health;
mod history;
mod info_replication;
mod outlier;
mod per_server;
mod pool;
mod reads;
mod reply_reader;
mod ring;
mod routed;
mod sentinel;
mod server;
mod server_id;
mod server_set;
mod slots;
mod strangers;
mod topology;
mod view_error;

pub use circuit::{Circuit, CircuitBoard, CircuitChange, CircuitState};
pub use cluster::{
    Applied, ClusterMap, ClusterNode, ClusterView, GroupView, KnownNode, KnownRole, LeftOut, Move,
    MovingSlot, NodeHealth, NodeRole, Redirect, RedirectKind, SLOT_COUNT, SlotOwners, ViewSource,
    key_slot,
};
pub use discovery::{
    ClusterPool, Discovery, FailoverPolicy, PrimarySource, ReplicatedPool, SlotQuery,
};
pub use distribution::Distribution;
pub use endpoint::{Endpoint, EndpointError};
pub use failure::{FailureReason, FailureTimes};
pub use first_look::LookStep;
pub use generation::{Generation, GenerationCell, Remembered, Seen};
pub use hash::Hash;
pub use hash_tag::HashTag;
pub use health::{HealthBoard, HealthState, RejoinClaim, StateChange};
pub use history::OffsetHistory;
pub use info_replication::{ConnectedReplica, InfoReplication, PrimaryLink};
pub use outlier::{OUTLIER_PERIOD, OutlierChange, OutlierReason, Outliers, ReadBoard, ReadPeriod};
pub use per_server::PerServer;
pub use pool::{MemcachedPool, Pool, PoolKind, WarmUp};
pub use reads::{HedgeAfter, HedgePolicy, ReadFrom, ReadPolicy};
pub use ring::Ring;
pub use routed::{
    ASKED_MAX, CHILDREN_MAX, DEPTH_MAX, FailoverPool, Gutter, MirrorPool, MissThenPool, PrefixPool,
    RateLimitedPool, ReadWriteSplitPool, RoutedPool, ShadowBy, ShadowPool, Wait,
};
pub use sentinel::{
    InstanceState, OtherSentinel, SentinelView, SwitchPrimary, WatchedPrimary, WatchedReplica,
    primary_address,
};
pub use server::{Server, ServerError};
pub use server_id::ServerId;
pub use server_set::{Ejection, Password, Rejoin, ServerOptions, ServerSet};
pub use slots::{ServerGroup, SlotMap, SlotRangeError, SlotSpace, SlotsPool};
pub use topology::{Backend, BackendId, Epoch, Topology};
pub use view_error::{NODES_MAX, VIEW_LEN_MAX, ViewError};
