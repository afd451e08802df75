//! RDB, Redis's own form of values: what DUMP gives, RESTORE takes and
//! snapshots are made of.
//!
//! Never does I/O and never reads a clock. Nothing here panics on what it
//! reads, or reserves memory because a length says so.
#![forbid(unsafe_code)]

pub mod format;
pub mod integers;
pub mod kind;
pub mod listpack;
pub mod older;
#[cfg(test)]
mod testing;

/// Bytes that have not the form they should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What is done with each string of a block; the block may be refused with
/// another error than [`Malformed`].
pub type Visit<'a, E> = dyn FnMut(format::Text<'_>) -> Result<(), E> + 'a;
