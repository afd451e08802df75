//! The command table: every command of Redis with its arity, flags and key specs, and what Keyway
//! does with each. Also [`Request`], a command with its arguments.
//!
//! The crate contains only data and functions over bytes. It does no I/O, and writes no replies
//! except the error line of an invalid request. Read first: [`Command`], [`Handling`] and
//! [`Request`].

#![forbid(unsafe_code)]

mod bitset;
mod class;
mod command;
mod counted;
mod handling;
mod keys;
mod long;
mod lookup;
mod request;
#[rustfmt::skip]
mod table;

pub use bitset::{Categories, Flags, KeyFlags};
pub use class::Class;
pub use command::{Argument, BeginSearch, Command, Docs, FindKeys, KeySpec};
pub use counted::{COUNTED_NAMES, Counted};
pub use handling::{
    Across, Condition, Handling, Join, Loaded, Split, store_replicates, store_saves, store_scripts,
    store_serves,
};
pub use keys::KeysFault;
pub use lookup::lookup;
pub use request::{Args, Refusal, Request};
pub use table::{COMMANDS, Verb};
