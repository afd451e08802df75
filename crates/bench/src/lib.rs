//! Measures Keyway against its peers, side by side in one run.
//!
//! The unit is *requests per CPU-second of the process under test* (user and
//! system time, from `/proc`), because that is what stays comparable on a
//! machine shared with others; every figure is a median over interleaved
//! rounds, and every claim a median of ratios taken within the same round.
//!
//! This crate must never share code with what it measures: it frames replies
//! with a parser of its own, and knows Keyway only as a program with a
//! configuration file. Read first: [`load::Loader`] (who sends the work),
//! [`plan::Row`] (what work there is) and [`systems::System`] (who is measured).
#![forbid(unsafe_code)]

pub mod callgrind;
pub mod clock;
mod cluster;
pub mod comparison;
pub mod error;
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
pub mod process;
pub mod report;
pub mod rounds;
pub mod session;
pub mod syscalls;
pub mod systems;

pub use error::Error;
