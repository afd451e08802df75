//! TLS as a value: certificates that were read and checked, and connections
//! that take bytes and give bytes.
//!
//! Knows neither sockets nor threads: who has a socket feeds a [`Channel`] what
//! arrived, and sends what it has to say. The records, the handshake and the
//! checking of certificates are rustls's. Read first: [`ClientSettings`],
//! [`ClientTls`] and [`Channel`].

#![forbid(unsafe_code)]

mod channel;
mod client;
mod fault;
mod files;
mod peers;
mod settings;
mod validity;

pub use channel::{Channel, PeerCertificate};
pub use client::{ClientTls, Loaded};
pub use fault::{Refusal, TlsFault};
pub use files::{FileFault, ReadFile};
pub use peers::{LoadedPeer, PeerSettings, PeerTls};
pub use settings::{ClientSettings, Identity, MinVersion, Setting, Trust, parse_name};
