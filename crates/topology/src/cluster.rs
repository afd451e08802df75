//! A Redis Cluster's description of itself: its nodes, and the owner of each slot.

mod map;
mod nodes;
mod redirect;
mod shards;
mod slot;
mod slots;
mod view;

pub use map::{Applied, ClusterMap, GroupView, KnownNode, KnownRole, LeftOut};
pub use redirect::{Redirect, RedirectKind};
pub use slot::{SLOT_COUNT, SlotOwners, key_slot};
pub use view::{ClusterNode, ClusterView, Move, MovingSlot, NodeHealth, NodeRole, ViewSource};
