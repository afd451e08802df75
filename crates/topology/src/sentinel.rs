//! A Sentinel's description of a primary: its address, its replicas, and the other sentinels that
//! watch it.

mod instance;
mod switch;

pub use instance::{
    InstanceState, OtherSentinel, SentinelView, WatchedPrimary, WatchedReplica, primary_address,
};
pub use switch::SwitchPrimary;
