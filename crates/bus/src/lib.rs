//! The bus: a tree of nodes that exchange messages. Frames, registration, credit, routes, pushes.
//!
//! Knows neither sockets nor clocks nor threads: bytes, time and randomness are arguments. The
//! owner of a transport gives a [`Node`] the bytes that arrived on each connection, sends the bytes
//! it returns, and takes its events. The wire format is docs/protocol/bus.md. Read first: [`Node`]
//! (all connections of a process), [`Event`] (what its user receives) and [`frame`] (the bytes).

#![forbid(unsafe_code)]

pub mod frame;

mod compress;
mod event;
mod fault;
mod id;
mod labels;
mod node;
mod peer;
mod push;
mod settings;
mod token;
mod url;
mod wire;

pub use compress::{COMPRESS_LEN_MAX, COMPRESS_LEN_MIN};
pub use event::{Action, DialKey, Event};
pub use fault::{Reason, SendFault};
pub use frame::MESSAGE_LEN_MAX;
pub use id::{IdFault, IdRange, NodeId};
pub use labels::{LABEL_LEN_MAX, LABELS_MAX, LabelFault, Labels};
pub use node::{Counts, LinkKind, Node, PeerView, SendOptions};
pub use peer::{Body, Identity, Line, Peer, PeerKey, Relation, Traffic, Vouch, certificate_name};
pub use push::{AppliedAt, Stamp, TOPIC_BODY_MAX, TOPIC_LEN_MAX};
pub use settings::{Rest, Settings, UPSTREAMS_MAX, URLS_MAX, Upstream};
pub use token::{PROOF_LEN, TOKEN_LEN_MAX, TOKEN_LEN_MIN, TOKENS_MAX, TokenFault, Tokens};
pub use url::{Host, Place, SocketName, URL_LEN_MAX, Url, UrlFault, by_nearness};
