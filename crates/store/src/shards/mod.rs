//! The parts that the key space is cut into, each with its own lock: what they
//! hold, when it expires, and what is evicted when memory is short.

mod cut;
mod evict;
mod expiry;
mod policy;
mod queue;
mod quotas;
mod shard;
mod space;

pub(crate) use cut::{CutDoor, CutStep};
pub(crate) use expiry::{Entry as WheelEntry, due_second};
pub use policy::EvictionPolicy;
pub(crate) use quotas::{Demand, Quotas};
pub use quotas::{QUOTAS_MAX, QuotaConfig, QuotaStats};
pub(crate) use shard::{Gone, Shard, VICTIMS_MAX};
pub(crate) use space::{Space, Upkeep};
