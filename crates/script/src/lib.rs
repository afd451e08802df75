//! Scripts and functions in Lua 5.1 for the embedded store, as Redis 7.0 runs them.
//!
//! ```text
//!  Registry (a pool's, shared) ── scripts by digest, libraries, the one that runs
//!      │
//!  Engine (a worker's) ── Lua state ── prelude.lua: what scripts see
//!      │                     └── redis.call ──► Host: the worker, and its store
//!      └── reply to the client
//! ```
//! The crate does no I/O, reads no clock and knows neither sessions nor sockets: all of this goes
//! through [`Host`]. Read first: [`Engine`], [`Registry`] and `prelude.lua`.
//!
//! Architecture invariants: a script ends at its limits of time and memory, and cannot catch that.
//! It changes no table that another script sees. Lua never loads bytecode.

#![forbid(unsafe_code)]

mod answer;
mod api;
mod call;
mod ends;
mod engine;
mod flags;
mod functions;
mod host;
mod json_settings;
mod libraries;
mod modules;
mod number;
mod raised;
mod random;
mod registry;
mod sandbox;
mod scratch;
mod state;
mod totals;

pub use ends::{Kill, Run};
pub use engine::{Engine, Script, Words};
pub use flags::ScriptFlags;
pub use host::Host;
pub use libraries::{FunctionInfo, Library, Policy};
pub use registry::{CacheFull, Registry, ScriptLimits, digest_of};
pub use totals::ScriptTotals;
