//! Copies the keys of some slots from one server to another, and then the writes to them, until it is
//! told where to end.
//!
//! ```text
//!  source ──► Follower ──► Copier ──► Pipe ──► target
//!             (PSYNC)        │ keys and commands of other slots end here
//!                            ▼
//!                          Board ◄── Mover::status, Mover::finish
//! ```
//! A [`Mover`] follows the source as a replica does, so the source does nothing for it that it would not
//! do for a replica. It sends the target plain commands, in the source's order, each of them once. If
//! either connection is lost at a point after which that is not certain, the mover fails, and a copy
//! begins anew.
//!
//! [`look`] and [`objections`] say in front of a copy whether it can work. [`count_keys`] and [`purge`]
//! visit the keys of slots at one server.
//!
//! A mover knows nothing of plans and fences: `keyway-fleet` decides, and the control node carries it
//! out. Nothing that a server sends makes it panic, and all its buffers have bounds.

#![forbid(unsafe_code)]

mod access;
mod board;
mod commands;
mod copier;
mod filter;
mod keys;
mod look;
mod mover;
mod pace;
mod pipe;
mod replies;
mod slots;
mod value;
mod wire;

pub use access::{Access, Failure};
pub use board::{Stage, Status};
pub use keys::{Counted, count_keys, end_others, purge};
pub use look::{Look, Objection, look, objections, position};
pub use mover::{Mover, MoverSettings};
pub use pace::Pace;
pub use slots::SlotSet;
