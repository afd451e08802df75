//! TLS as a value: certificates that were read and checked, and connections that take bytes and
//! return bytes.
//!
//! The crate knows neither sockets nor threads: the owner of a socket passes received bytes to a
//! [`Channel`] and sends what it returns. rustls implements the records, the handshake and the
//! checks of certificates. Read first: [`ClientSettings`], [`ClientTls`], [`ServerTls`] and
//! [`Channel`].

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
