//! Snapshots: what is written is what the store held at one moment, and is read back as that.

#[path = "../common/mod.rs"]
mod common;

mod forms;
mod moment;
mod threads;

/// Milliseconds since the Unix epoch at which tests begin.
const START: u64 = 1_700_000_000_000;
