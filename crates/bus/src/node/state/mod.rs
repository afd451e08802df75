//! The state of a node, each part by itself. The files beside this folder contain what the node
//! does with it.

mod askers;
mod below;
mod contest;
mod dial;
mod early;
mod events;
mod parked;
mod seen;
mod strangers;
mod uplinks;
mod waiting;

pub(super) use askers::Askers;
pub(super) use below::{Below, Change, Known};
pub(super) use contest::Contest;
pub(super) use dial::Dial;
pub(super) use early::Early;
pub(super) use events::{Events, Waits};
pub(super) use parked::{Kept, Parked};
pub(super) use seen::Seen;
pub(super) use strangers::Strangers;
pub(super) use uplinks::{State, Uplinks};
pub(super) use waiting::{Awaited, Waiting};
