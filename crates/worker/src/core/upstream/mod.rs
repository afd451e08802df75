//! Connections to servers: their lifecycle, what is sent and answered on them, and the servers'
//! health.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `connections` | connecting, losing and retrying; timeouts |
//! | `probes` | how healthy a server is, by its replies and by probes |
//! | `leases` | connections that one client has for itself |
//! | `bypass` | ways around a large reply, and when a client may change connections |
//! | `streamed_replies` | large replies go to their clients as they come |
//! | `streamed_requests` | large requests go to their servers as they come |
//! | `waking` | a link is prepared for a request |
//! | `reply` | bytes of a server become replies in their order |
//! | `heard` | what replies tell of their server, put together |
//! | `circuits` | what is refused without asking, and how requests went |
//! | `failures` | what the log and clients are told of lost and refused connections |
//! | `first_look` | servers that nobody has asked yet |
//! | `foreign` | servers that speak another protocol than their pool's |
//! | `locked` | servers that refuse whoever asks |
//! | `unreached` | servers that cannot be connected to |
//! | `health_log` | what the log says of the servers' health |

pub(super) mod bypass;
mod circuits;
pub(super) mod connections;
pub(super) mod failures;
mod first_look;
mod foreign;
mod health_log;
mod heard;
pub(super) mod leases;
mod locked;
mod probes;
pub(super) mod reply;
mod state;
pub(super) mod streamed_replies;
pub(super) mod streamed_requests;
mod unreached;
mod waking;

pub(crate) use state::State;
