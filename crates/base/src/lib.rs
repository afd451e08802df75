//! Types that all other crates use: slab keys, byte ranges, the clock value, limits, faults and
//! glob patterns.
//!
//! Never does I/O, never reads a clock, depends on nothing. Read first: [`Key`] and [`Slab`] (how a
//! worker's objects are named), [`Limits`] (every bound of the data plane) and [`Fault`] (the party
//! at fault).

pub mod glob;

mod copies;
mod events;
mod fault;
mod foreign;
mod limits;
mod network;
mod part;
mod printable;
mod range;
mod slab;
mod time;

pub use copies::{CopyBounds, REPLICA_UNSENT_LEN_MAX};
pub use events::{KeyspaceEvents, UnknownLetter};
pub use fault::{BackendFault, Fault, LimitFault, ReplyBound, Sent};
pub use foreign::{Foreign, quoted};
pub use limits::Limits;
pub use network::{Network, NotNetwork};
pub use part::{Block, Lent, Part};
pub use printable::printable;
pub use range::ByteRange;
pub use slab::{Key, Slab};
pub use time::{Clock, Time};
