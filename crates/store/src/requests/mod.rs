//! Requests executed on the store: one by one or several as one, within the bound
//! on memory and the quotas of their keys; and the upkeep between them.

mod admission;
mod apply;
mod execute;
mod flushing;
mod quotas;
mod scripted;
mod transaction;
mod upkeep;
mod waiting;
mod watching;

pub use scripted::ScriptHold;
pub use transaction::{Footprint, Held, OutOfMemory, Refused};
pub use waiting::Waited;
