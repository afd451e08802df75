//! Measures Keyway against its peers, side by side in one run.
//!
//! The unit is *requests per CPU-second of the process under test* (user and
//! system time, from `/proc`), because that is what stays comparable on a
//! machine shared with others; every figure is a median over interleaved
//! rounds, and every claim a median of ratios taken within the same round.
//!
//! It knows Keyway only as a program with a configuration file. The load comes
//! from `keyway-load`, processes and servers are started by `keyway-scenario`,
//! and figures are compared and printed by `keyway-report`. Read first:
//! [`load::Served`] (the load), [`plan::Row`] (what work there is) and
//! [`systems::System`] (who is measured).
#![forbid(unsafe_code)]

pub mod callgrind;
pub mod clock;
pub mod comparison;
pub mod error;
pub mod features;
pub mod figures;
pub mod floor;
pub mod interrupt;
mod items;
pub mod load;
pub mod measure;
pub mod memory;
pub mod misses;
pub mod options;
pub mod plan;
pub mod report;
pub mod rounds;
pub mod session;
pub mod syscalls;
pub mod systems;

pub use error::Error;
