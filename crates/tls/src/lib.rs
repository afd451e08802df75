//! TLS as a value: certificates that were read and checked, and connections
//! that take bytes and give bytes.
//!
//! Knows neither sockets nor threads: who has a socket feeds a [`Channel`] what
//! arrived, and sends what it has to say. The records, the handshake and the
//! checking of certificates are rustls's. Read first: [`ClientSettings`],
//! [`ClientTls`], [`ServerTls`] and [`Channel`].

#![forbid(unsafe_code)]

mod channel;
mod client;
mod fault;
mod files;
mod peers;
mod server;
mod settings;
mod validity;

pub use channel::{Channel, PeerCertificate};
pub use client::{ClientTls, Loaded};
pub use fault::{Refusal, TlsFault};
pub use files::{Dated, FileFault, ReadFile};
pub use peers::{LoadedPeer, PeerSettings, PeerTls};
pub use server::{LoadedServer, ServerTls};
pub use settings::{
    ClientCertificates, ClientSettings, Identity, MinVersion, ServerSettings, Setting, Trust,
    parse_name,
};
