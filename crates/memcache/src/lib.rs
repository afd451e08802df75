//! memcached's protocols: classic text, meta and binary. Requests and replies are parsed over
//! `&[u8]` into one form common to the three, and composed from it into a `Vec<u8>`, so that a
//! client of one protocol can be served by a server of another.
//!
//! Never does I/O and never keeps a byte: a parsed request is ranges into the caller's buffer (but
//! for a key in base64, which has to be decoded), an incomplete one is no error but a count of
//! bytes still needed. Read first: [`parse_request`] with [`Request`], [`parse_reply`] with
//! [`Outcome`], and [`compose_request`] and [`relay`], which lead back to the wire.
//!
//! A connection speaks text or binary, which its first byte tells ([`Wire::of`]) for good. Classic
//! and meta commands share text connections.
//!
//! Source of the protocol facts: memcached's own description of its protocols and the behaviour of
//! memcached 1.6, which the tests compare with.
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
mod relay;
mod reply;
mod reply_binary;
mod reply_text;
mod request;
mod request_flags;
mod respond;
mod sasl;
mod text;
mod usual;

pub use compose::{Untranslatable, compose_request, compose_share};
pub use fault::RequestFault;
pub use framer::{Expect, Framer, Framing};
pub use outcome::{ErrorKind, Item, Outcome, Reply, ReplyFault, ReplyLimits, ReplyParsed};
pub use relay::{Answer, Relayed, relay, relay_elements};
pub use reply::parse_reply;
pub use request::{Dialect, Head, ParseLimits, Parsed, Request, Verb, Wire, parse_request};
pub use request_flags::RequestFlags;
pub use respond::{Asker, value_end_len, write_end, write_reply, write_stored};
pub use sasl::{Plain, sasl_plain};
pub use usual::text_item_len;

/// Longest key, in bytes: memcached's own bound, which no option changes.
pub const KEY_LEN_MAX: usize = 250;
