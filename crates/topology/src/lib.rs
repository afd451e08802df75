//! What the data plane knows of pools and their backends, as pure data: which
//! servers a pool has, which of them a key belongs to, and which are fit for
//! use.
//!
//! Never does I/O, never reads a clock, never draws a random number: time and
//! randomness are arguments. Key placement is bit-exact with twemproxy 0.5.0 on
//! x86-64, and with libmemcached and PHP's memcache where their distributions are
//! chosen, so a pool can change hands without moving a key. Read first:
//! [`Topology`] (everything configured, immutable), [`Ring`] (from a key's hash
//! to a server) and [`HealthBoard`] (who is out of use, shared by all workers).

#![forbid(unsafe_code)]

mod distribution;
mod endpoint;
mod generation;
mod hash;
mod hash_tag;
mod health;
mod pool;
mod ring;
mod routed;
mod server;

pub use distribution::Distribution;
pub use endpoint::{Endpoint, EndpointError};
pub use generation::{Generation, GenerationCell, Remembered, Seen};
pub use hash::Hash;
pub use hash_tag::HashTag;
pub use health::{FailureReason, HealthBoard, HealthState, RejoinClaim, StateChange};
pub use pool::{
    Backend, BackendId, Ejection, Epoch, Password, Pool, PoolKind, Rejoin, ServerProtocol,
    ShardedPool, Topology, WarmUp,
};
pub use ring::Ring;
pub use routed::{
    ASKED_MAX, CHILDREN_MAX, DEPTH_MAX, FailoverPool, Gutter, MirrorPool, MissThenPool, PrefixPool,
    RateLimitedPool, RoutedPool, ShadowBy, ShadowPool, Wait,
};
pub use server::{Server, ServerError};
