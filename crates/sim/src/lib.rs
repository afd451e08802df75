//! Runs whole workers on virtual time: a seed goes in, a verdict comes out.
//!
//! ```text
//!   seed ─► Scenario ─► clients ◄─► network ◄─► SimIo ◄─► Worker (under test)
//!                       servers ◄─►    │ clock, pieces, edges, resets
//!                          └────► Ledger: what really happened ─► verdict
//! ```
//! The workers, sessions, links, routes and the embedded store are the ones that ship. Sockets,
//! clock, clients and servers are simulated, and everything that could vary is drawn from one seed.
//! The simulation never reads a real clock, never sleeps, and keeps no state between runs: the same
//! seed gives the same run to the byte ([`run_seed`] names an exception). For half of the seeds,
//! sockets behave as with epoll; for the other half, as with io_uring ([`Driver`]). Read first:
//! [`run_seed`], [`Scenario`] (what a seed decides) and [`SimIo`] (what a worker sees of it).
//!
//! Stores that replicate to each other are another kind of seeds ([`run_replicas`]). Their threads
//! run one at a time, on virtual time as well. Fleets are a third kind ([`run_fleet`]): control
//! nodes, members and a coordinator.
#![forbid(unsafe_code)]

mod client;
mod cluster;
pub mod counting;
mod fleet;
mod io;
mod large;
mod ledger;
mod many;
mod memcached;
mod model;
mod network;
mod random;
mod replicas;
mod run;
mod scenario;
mod server;
mod value;
mod visitor;
mod wire;
mod world;

pub use client::{Habits, Hoard, Mix, Mute, Wanted};
pub use fleet::{FleetReport, run_fleet, run_many_fleets};
pub use io::SimIo;
pub use many::{Summary, run_many, run_many_of};
pub use network::RingFigures;
pub use random::Random;
pub use replicas::{ReplicaReport, run_many_replicas, run_replicas};
pub use run::{Report, Sim, Violation, run_seed};
pub use scenario::{Driver, Options, Scenario};
pub use server::Defect;
