//! The proxy's machines: a [`Session`] for each client, a [`Link`] for each
//! connection to a backend, and the [`Exchange`] that ties a request on the
//! one to its reply on the other.
//!
//! Sans-IO: bytes, times and keys in, bytes out. Never sees a socket, reads a
//! clock, or knows the embedded store; the worker joins them. Read first:
//! [`Session`] (who owns which buffer, and when it stops reading),
//! [`ReplyOrder`] (replies leave in the order of their requests) and [`Link`]
//! (first in, first out, and what happens when the backend does not answer).
#![forbid(unsafe_code)]

mod fault_reply;
mod join;
mod link;
pub mod local;
mod order;
mod output;
mod session;

pub use fault_reply::{write_crossslot, write_fault};
pub use join::{Fragment, Join, JoinPool};
pub use link::{Exchange, Internal, Link, LinkOptions, LinkState, Lost, Owner, Translation};
pub use order::ReplyOrder;
pub use output::Output;
pub use session::{Busy, BusyPool, Identity, ReplyMode, ReplySize, Session};
pub use session::{PrivateLink, Stateful, Transaction, Watch};
