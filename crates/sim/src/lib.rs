//! Whole workers on virtual time: a seed in, a verdict out.
//!
//! ```text
//!   seed ─► Scenario ─► clients ◄─► network ◄─► SimIo ◄─► Worker (under test)
//!                       servers ◄─►    │ clock, pieces, edges, resets
//!                          └────► Ledger: what really happened ─► verdict
//! ```
//! Workers, sessions, links, routes and the embedded store are the ones that
//! ship; sockets, clock, clients and servers are simulated, and everything
//! that could be otherwise is drawn from one seed. Never reads a real clock,
//! never sleeps, keeps no state between runs: the same seed gives the same
//! run to the byte ([`run_seed`] names an exception). Half of the seeds have workers whose sockets are driven as by
//! epoll, half as by io_uring ([`Driver`]). Read first: [`run_seed`], [`Scenario`] (what a seed
//! decides) and [`SimIo`] (what a worker sees of it).
#![forbid(unsafe_code)]

mod client;
mod cluster;
pub mod counting;
mod io;
mod large;
mod ledger;
mod many;
mod memcached;
mod model;
mod network;
mod random;
mod run;
mod scenario;
mod server;
mod value;
mod visitor;
mod wire;
mod world;

pub use client::{Habits, Hoard, Mix, Mute, Wanted};
pub use io::SimIo;
pub use many::{Summary, run_many, run_many_of};
pub use network::RingFigures;
pub use random::Random;
pub use run::{Report, Sim, Violation, run_seed};
pub use scenario::{Driver, Options, Scenario};
pub use server::Defect;
