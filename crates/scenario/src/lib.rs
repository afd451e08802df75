//! Benchmarks as files: a [`Scenario`] says which servers are started, which systems are compared
//! and by which work; [`run()`] starts them on free ports, measures them in turns, round by round,
//! ends them, and returns a [`keyway_report::Run`].
//!
//! It knows systems by their commands and addresses only, Keyway among them. A system that is not
//! there is a row that says so. Read first: [`Scenario`] (what a file says), [`run()`] (the order
//! of things) and the files in `scenarios/`.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "who measures reads the clock, and waits")]

mod builtin;
mod bus;
mod convert;
mod error;
mod file;
mod machine;
mod measure;
mod model;
mod places;
pub mod ports;
pub mod process;
mod reader;
mod run;
pub mod start;
mod works;

pub use builtin::{BUILT_IN, load, text};
pub use convert::{read, time};
pub use error::{Error, FileError};
pub use machine::{Scale, load_average, machine};
pub use model::{
    Item, Scaled, Scenario, ServerKind, Servers, Share, System, SystemKind, Timing, Work,
};
pub use run::{Finished, Given, Options, Status, run};
