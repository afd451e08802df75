//! Connections to servers: their life, what is sent and answered on them, and the servers' health.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `connections` | connecting, losing and retrying; timeouts |
//! | `probes` | how healthy a server is, by its replies and by probes |
//! | `leases` | connections that one client has for itself |
//! | `bypass` | ways around a large reply, and when a client may change connections |
//! | `streamed_replies` | large replies go to their clients as they come |
//! | `streamed_requests` | large requests go to their servers as they come |
//! | `reply` | bytes of a server become replies in their places |
//! | `heard` | what replies tell of their server, put together |
//! | `circuits` | what is refused without asking, and how requests went |
//! | `failures` | what the log and clients are told of lost and refused connections |
//! | `first_look` | servers that nobody has asked yet |
//! | `foreign` | servers that speak another protocol than their pool's |
//! | `locked` | servers that refuse whoever asks |
//! | `unreached` | servers that cannot be connected to |
//! | `health_log` | what the log says of the servers' health |

pub(in crate::core) mod bypass;
pub(in crate::core) mod circuits;
pub(in crate::core) mod connections;
pub(in crate::core) mod failures;
pub(in crate::core) mod first_look;
pub(in crate::core) mod foreign;
pub(in crate::core) mod health_log;
mod heard;
pub(in crate::core) mod leases;
pub(in crate::core) mod locked;
pub(in crate::core) mod probes;
pub(in crate::core) mod reply;
pub(in crate::core) mod streamed_replies;
pub(in crate::core) mod streamed_requests;
pub(in crate::core) mod unreached;

use super::ConnectionKey;
use crate::Plan;
use failures::ConnectionFailures;
use keyway_topology::PerServer;
use leases::PrivateLinks;
use streamed_requests::Landings;

/// What a worker knows of its connections, besides what each has for itself.
pub(crate) struct State {
    /// What is known of each server's failures, by its place on the board.
    pub(in crate::core) failures: PerServer<ConnectionFailures>,
    /// Links with requests to send.
    pub(crate) dirty_links: Vec<ConnectionKey>,
    /// Of these, the ones with so much to send that waiting for the end of the
    /// turn gains nothing.
    pub(crate) full_links: Vec<ConnectionKey>,
    /// Private links to be ended.
    pub(crate) discards: Vec<ConnectionKey>,
    /// Private links whose command is to be ended, with their generation: they
    /// are seen to again until it has.
    pub(in crate::core) unblocking: Vec<(ConnectionKey, u32)>,
    /// Links that need a connection.
    pub(crate) connects: Vec<ConnectionKey>,
    /// The health board's epoch that the pools' rings are of.
    pub(in crate::core::upstream) health_epoch: u64,
    /// The same of the circuits.
    pub(in crate::core::upstream) circuit_epoch: u64,
    /// Links that clients share by which a large reply comes: see `upstream::bypass`.
    pub(in crate::core::upstream) obstructed: Vec<ConnectionKey>,
    /// Links on which large requests are sent as they come.
    pub(in crate::core::upstream) streamed: Vec<ConnectionKey>,
    pub(in crate::core) passing: streamed_replies::State,
    /// Large values that go into stores as they come.
    pub(in crate::core) landings: Landings,
    /// Room for the sums that gauges are of, by server.
    pub(in crate::core::upstream) gauge_sums: Vec<(u64, u64)>,
    pub(in crate::core) leases: PrivateLinks,
}

impl State {
    /// The state of a worker that has made no connection yet.
    pub(in crate::core) fn new(plan: &Plan) -> State {
        State {
            failures: PerServer::new(&plan.topology, &plan.health),
            leases: PrivateLinks::default(),
            dirty_links: Vec::new(),
            full_links: Vec::new(),
            discards: Vec::new(),
            unblocking: Vec::new(),
            connects: Vec::new(),
            health_epoch: 0,
            circuit_epoch: 0,
            obstructed: Vec::new(),
            streamed: Vec::new(),
            passing: streamed_replies::State::default(),
            landings: Landings::default(),
            gauge_sums: Vec::new(),
        }
    }
}
