//! A client of Keyway, and of any server that speaks Redis's protocol: over shared memory where
//! the server is on the same machine, else over a unix socket or TCP.
//!
#![doc = concat!("```no_run\n", include_str!("../examples/greeting.rs"), "```")]
//!
//! - [`Endpoint`] is where to connect to, as a URL says it: `shm:///path`, `unix:///path`,
//!   `tcp://host:port`.
//! - [`Connection`] sends commands and reads replies; [`Pipeline`] sends many at once.
//! - [`Stream`] is the bytes alone, for who speaks another protocol over them.
//!
//! Everything waits: a connection belongs to one thread at a time. Where a server does not share
//! memory, a connection to `shm://` goes on over the unix socket of that path, which is told once: [`on_fallback`].
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "who waits reads the clock")]

mod connect;
mod connection;
mod endpoint;
mod error;
mod fallback;
mod stream;
mod value;

pub use connection::{Connection, Options, Pipeline};
pub use endpoint::{Endpoint, EndpointError};
pub use error::Error;
pub use fallback::{on_fallback, text as fallback_text};
pub use keyway_ring::Refusal;
pub use stream::{Stream, Transport};
pub use value::Value;
