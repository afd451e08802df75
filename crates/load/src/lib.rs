//! A load generator for caches that speak Redis's or memcached's protocols.
//!
//! [`run`] puts a [`Target`] (where it is, what it speaks) under the load of a [`Workload`]
//! (commands, keys, values) as a [`Plan`] says (threads, connections, pipeline, time, rate), and
//! returns an [`Outcome`]: totals, errors, latencies as HDR histograms, seconds, what verification
//! found, and what the processes under test used ([`Watch`]). An outcome is JSON by serde, its
//! form has a version ([`outcome::SCHEMA`]).
//!
//! It costs less than what it measures: one thread serves many connections, requests are rendered
//! into buffers that stay, replies are framed and not parsed. It knows nothing of Keyway's own
//! proxy, workers or store, and treats them as any other server.
//!
#![doc = concat!("```no_run\n", include_str!("../examples/mixed.rs"), "```")]
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "who measures reads the clock")]

mod draw;
mod engine;
mod error;
mod greeting;
pub mod outcome;
mod plan;
mod program;
mod random;
mod record;
mod reply;
mod run;
mod series;
mod setup;
mod shape;
mod table;
mod talk;
mod target;
mod usage;
mod verify;
mod workload;

pub use error::Error;
pub use outcome::{Ended, Latency, Outcome};
pub use plan::{CONNECTIONS_MAX, DURATION_MAX, PIPELINE_MAX, Pace, Plan, THREADS_MAX, Until};
pub use random::Random;
pub use run::{Flow, Progress, run};
pub use table::table;
pub use target::{Protocol, Target};
pub use usage::{Watch, cpu_time, resident_bytes};
pub use verify::STAMP_LEN;
pub use workload::{
    Command, CommandKind, FIELDS, KEYS_PER_REQUEST_MAX, KeyForm, Keys, Pattern, Piece, SUITE,
    Sizes, TemplateError, VALUE_LEN_MAX, VERIFIED_KEYS_MAX, Word, Workload, parse_mix,
    parse_template, suite, ycsb,
};
