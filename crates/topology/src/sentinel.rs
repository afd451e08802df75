//! What a Sentinel says of a primary: where it is, who copies it, who else
//! watches it.

mod instance;
mod switch;

pub use instance::{
    InstanceState, OtherSentinel, SentinelView, WatchedPrimary, WatchedReplica, primary_address,
};
pub use switch::SwitchPrimary;
