//! Measures Keyway against its peers, side by side in one run.
//!
//! The unit is *requests per CPU-second of the process under test* (user and system time, from
//! `/proc`), because that stays comparable on a machine that is shared with others. Every figure is
//! a median over interleaved rounds, and every claim is a median of ratios within the same round.
//!
//! The crate knows Keyway only as a program with a configuration file. `keyway-load` sends the
//! load, `keyway-scenario` starts processes and servers, and `keyway-report` compares and prints
//! figures. Read first: [`load::Served`] (the load), [`plan::Row`] (the kinds of work) and
//! [`systems::System`] (the systems that are measured).
#![forbid(unsafe_code)]

pub mod callgrind;
pub mod clock;
pub mod comparison;
pub mod error;
pub mod features;
pub mod figures;
pub mod fleet;
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
