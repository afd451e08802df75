//! The embedded store as a replica of a primary, redis-server 5 to 7, Valkey or Keyway, and as a
//! primary itself.
//!
//! ```text
//!  primary ──► keyway_replica::Follower ──► StoreTarget ──► Store, scripts, Audience
//!                       ▲
//!  REPLICAOF, replica_of ──► Standby: which primary, or none
//! ```
//! [`Standby`] is one store's role. As a replica it has a [`Follower`](keyway_replica::Follower),
//! whose thread feeds the store. The snapshot of a full resync replaces the data: the store is
//! emptied first, so that it never holds two data sets, and answers LOADING until all is there.
//!
//! [`StoreSource`] is the other side: a store as the primary of replicas, which a
//! [`Feed`](keyway_replica::feed::Feed) serves. `lineage.rs` has the feed, and the ids and offsets
//! by which replicas go on when a role has changed.
//!
//! Knows no worker and no client: an [`Audience`] is told what clients are to hear of. Read
//! first: [`Standby`], `target.rs`, `absolute.rs`.

#![forbid(unsafe_code)]

mod absolute;
mod audience;
mod beside;
mod lineage;
mod source;
mod standby;
mod target;

pub use audience::Audience;
pub use lineage::{FeedConfig, FeedStatus};
pub use source::{Parted, SourceParts, StoreSource, Twin, TwinProgress};
pub use standby::{Parts, Primary, Standby, StandbyStatus};
