//! Publish and subscribe, without sockets.
//!
//! ```text
//!                 want / unwant                      fan out
//!  session ──► Subscriptions ──► Registry ◄── names ── SubscriberLink ◄── server
//!                 its names      who hears what        one SUBSCRIBE per name
//! ```
//! A name (channel, pattern or shard channel) is subscribed once upstream, however many clients
//! want it. A [`SubscriberLink`] is no [`crate::Link`]: it receives messages at any time, and not
//! replies to requests.

mod kind;
mod registry;
mod subscriber_link;
mod subscriptions;
mod wire;

pub use kind::SubscriptionKind;
pub use registry::{Name, Registry};
pub use subscriber_link::{Heard, SubscriberLink, SubscriberState};
pub use subscriptions::{Outcome, Pending, Subscriptions};
pub use wire::{PushShape, append_frame, payload_of, write_change, write_message, write_pong};

/// The hasher for maps of names.
pub(crate) type Hashing = foldhash::fast::RandomState;
