//! RESP, the Redis protocol, versions 2 and 3: requests and replies are framed over `&[u8]` and
//! composed into a `Vec<u8>`.
//!
//! Never does I/O, never keeps a byte: a frame is ranges into the caller's
//! buffer, and an incomplete one is no error but a count of bytes still
//! needed, so that a large value is not scanned again at every read. Read
//! first: [`parse_request`], [`frame_reply`] and the module [`reply`].
//!
//! Source of the protocol facts: the RESP specification at redis.io and the
//! behaviour of redis-server 7.0.
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
