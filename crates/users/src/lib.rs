//! Users with their passwords, and the commands, keys and channels that each of them may use, in
//! the words and with the meaning of Redis's access control lists.
//!
//! Sets and patterns are computed when a user is read. A request is judged without an allocation.
//! The crate does no I/O and writes no replies. It never shows a password and keeps only hashes,
//! except while a login waits for a slow hash ([`Verifier`]). Operators of the admin address are in
//! [`Operator`]. Read first: [`User`], [`Users`] and [`Denied`].

#![forbid(unsafe_code)]

mod attempts;
mod commands;
#[cfg(test)]
mod invariants;
mod log;
mod operator;
mod password;
mod pattern;
mod rules;
mod selector;
mod slow;
mod user;
mod users;

pub use log::{AccessLog, Entry, Happened, Place, Reason};
pub use operator::{Operator, Role};
pub use password::{Digest, digest_text};
pub use rules::RuleFault;
pub use selector::{Access, Denied};
pub use slow::{Job, Prepared, SlowHash, Verifier, slow_text};
pub use user::User;
pub use users::{LoginFault, Users};
