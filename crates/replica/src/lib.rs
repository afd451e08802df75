//! A replica's side of replication with sockets and a thread: it follows a
//! primary (redis-server 5 to 7, Valkey, Keyway) and feeds a [`Target`].
//!
//! ```text
//!  primary ──► Wire (socket, TLS) ──► handshake ──► snapshot ──► stream of commands
//!                                         │             │              │
//!                 Follower's thread       ▼             ▼              ▼
//!                                       Status     Target::take   Target::apply
//! ```
//! [`Follower`] has one thread. The thread reads from its socket only what the
//! target has taken, so a slow target slows the primary and not the memory of
//! this process. Every byte of the stream is handed to the target once and in
//! order, across any number of lost connections: the offset counts what the
//! target has applied, and a transaction is one [`Unit`].
//!
//! Time, waiting and threads are those of a [`System`], the real one unless another is given.
//!
//! The protocol's machines are in `keyway_rdb::replication`. Knows no store and
//! never interprets a command. Read first: [`Target`], [`Follower`], [`Status`].
//!
//! [`feed`] is the other side: a primary's.

#![forbid(unsafe_code)]

mod dial;
mod fault;
pub mod feed;
mod follower;
mod link;
mod pause;
mod settings;
mod status;
mod system;
mod target;
mod unit;
mod wake;
mod wire;

pub use fault::{Cause, LinkFault, Stage};
pub use follower::Follower;
pub use settings::{FollowerSettings, Lookups};
pub use status::{State, Status};
pub use system::{System, Thread, Watch, Work, real};
pub use target::{Origin, Position, Recovery, Remains, Target, TargetError};
pub use unit::{Unit, UnitCommand};
