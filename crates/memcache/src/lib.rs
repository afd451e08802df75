//! memcached's protocols: classic text, meta and binary. Requests and replies are parsed over
//! `&[u8]` into one form common to the three, and written from it into a `Vec<u8>`. So a client
//! with one protocol can be served by a server with another.
//!
//! The crate does no I/O and keeps no bytes. A parsed request is ranges into the caller's buffer
//! (except for a key in base64, which has to be decoded). An incomplete request is no error but a
//! number of bytes that are still needed. Read first: [`parse_request`] with [`Request`],
//! [`parse_reply`] with [`Outcome`], and [`compose_request`] and [`translate_reply`], which write the wire
//! format.
//!
//! A connection uses text or binary for its whole life, as its first byte says ([`Wire::of`]).
//! Classic and meta commands share text connections.
//!
//! Sources of the protocol facts: memcached's own description of its protocols and the behaviour of
//! memcached 1.6, with which the tests compare.
#![forbid(unsafe_code)]

mod base64;
mod binary;
mod compose;
mod fault;
mod framer;
mod meta;
mod numbers;
mod outcome;
mod packet;
mod reply;
mod reply_binary;
mod reply_text;
mod request;
mod request_flags;
mod respond;
mod sasl;
mod text;
mod translate;
mod usual;

pub use compose::{Untranslatable, compose_request, compose_share};
pub use fault::RequestFault;
pub use framer::{Expect, Framer, Framing};
pub use outcome::{ErrorKind, Item, Outcome, Reply, ReplyFault, ReplyLimits, ReplyParsed};
pub use reply::parse_reply;
pub use request::{Dialect, Head, ParseLimits, Parsed, Request, Verb, Wire, parse_request};
pub use request_flags::RequestFlags;
pub use respond::{Asker, value_end_len, write_end, write_reply, write_stored};
pub use sasl::{Plain, sasl_plain};
pub use translate::{Answer, Translated, translate_elements, translate_reply};
pub use usual::text_item_len;

/// Length of the longest key, in bytes. This is memcached's own limit, which no option changes.
pub const KEY_LEN_MAX: usize = 250;
