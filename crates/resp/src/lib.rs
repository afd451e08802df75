//! RESP, the Redis protocol, versions 2 and 3. Requests and replies are framed over `&[u8]` and
//! written into a `Vec<u8>`.
//!
//! The crate does no I/O and keeps no bytes: a frame is ranges into the caller's buffer. An
//! incomplete frame is no error but a number of bytes that are still needed, so that a large value
//! is not scanned again at every read. Read first: [`parse_request`], [`frame_reply`] and the
//! module [`reply`].
//!
//! Sources of the protocol facts: the RESP specification at redis.io and the behaviour of
//! redis-server 7.0.
#![forbid(unsafe_code)]

mod digits;
mod frame;
mod inline;
mod protocol;
pub mod reply;
mod request;

pub use digits::{head_number, parse_integer};
pub use frame::{Framer, Framing, FramingFault, Kind, frame_reply};
pub use protocol::Protocol;
pub use request::{ParseLimits, Parsed, RequestFault, parse_request};
