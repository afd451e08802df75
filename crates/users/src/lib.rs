//! Who may do what: users with their passwords, and the commands, keys and
//! channels each of them may use, in the words and with the meaning of Redis's
//! access control lists.
//!
//! Sets and patterns are worked out when a user is read; a request is judged
//! without an allocation. Never does I/O, never composes a reply, never shows
//! or keeps a password: hashes of it alone, but while somebody waits for one to be
//! worked out that takes long ([`Verifier`]). Read first: [`User`], [`Users`] and
//! [`Denied`].

#![forbid(unsafe_code)]

mod attempts;
mod commands;
#[cfg(test)]
mod invariants;
mod log;
mod password;
mod pattern;
mod rules;
mod selector;
mod slow;
mod user;
mod users;

pub use log::{AccessLog, Entry, Happened, Place, Reason};
pub use password::{Digest, digest_text};
pub use rules::RuleFault;
pub use selector::{Access, Denied};
pub use slow::{Job, Prepared, SlowHash, Verifier, slow_text};
pub use user::User;
pub use users::{LoginFault, Users};
