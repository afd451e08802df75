//! What the channels of the bus carry: senders and a receiver in processes of their own, on a core
//! each, every message filled, copied in, copied out and looked at byte by byte.
//!
//! The work is that of libatbus's own tools (`docs/performance.md`, the bus), so that the figures
//! can be laid beside theirs. [`run`] is the one that starts the others by running this program
//! again; they enter by [`end`].
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "time is what is measured")]

mod case;
mod ends;
mod message;
mod processes;
mod round;
mod run;
mod shared;
mod stream;
mod table;

pub use case::{Case, Channel, Sizes};
pub use ends::end;
pub use round::{Transport, Trips, round_trips};
pub use run::{Fault, Options, Outcome, SENDERS_MAX, run};
pub use table::{json, table, trips_table};
