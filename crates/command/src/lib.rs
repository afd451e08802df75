//! The command table: every command of Redis with its arity, flags and key
//! specs, and what Keyway does with each; and [`Request`], a command with its
//! arguments.
//!
//! Pure data and functions over bytes: never does I/O, never composes a reply.
//! Read first: [`Command`], [`Handling`] and [`Request`].

mod request;

pub use request::Args;
