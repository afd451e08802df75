//! The load: prebuilt requests sent by one thread over many connections, each
//! with a fixed number of requests in flight, and replies counted by framing.
//!
//! The loader shares the machine with what it measures, so it does as little
//! as possible per request: nothing is formatted, hashed or allocated once a
//! run has started, and a reply is looked at only as far as its length, its
//! kind (error, missing value) and its end.

mod engine;
mod memcached;
mod reply;
mod requests;

pub use engine::{Limit, Loader, Totals};
pub use memcached::TextCounter;
pub use reply::{Framing, ReplyCounter};
pub use requests::{Dataset, Dialect, Requests, Shape, Work};
