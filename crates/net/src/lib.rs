//! Sockets, and the one interface the worker knows them by: [`Io`].
//!
//! Never parses a byte and never knows what a session or a link is: a socket
//! is a [`Socket`] handle and a [`Token`] of the worker's choosing. Read
//! first: [`Io`], [`Event`] and [`EpollIo`], and [`UringIo`] that
//! may lie over it; [`Ringed`] adds shared memory, and
//! [`Secured`] lays TLS over both, and lets clients in by a [`AcceptFilter`].

mod accept_filter;
mod address;
mod blocks;
mod epoll;
mod handover;
mod io;
mod listener;
mod mailbox;
mod moving;
mod resolver;
mod ringed;
mod secured;
mod sockets;
mod tune;
mod uring;

pub use accept_filter::{
    AWAY_LABELS, AcceptFilter, Announced, Away, HEADER_LEN_MAX, Header, HeaderFault, parse_header,
};
pub use address::{Address, AddressError, Peer};
pub use epoll::EpollIo;
pub use handover::{HANDED_AT_ONCE, HELD_AT_ONCE, Handed, Handover, Message, Place};
pub use io::{Accept, ConnectFault, Event, Io, ListenerIndex, Recv, Send, Socket, Token};
pub use keyway_tls::{ClientTls, ServerTls, TlsFault};
pub use listener::{
    BindError, Ipv4Amiss, Listener, ListenerHold, ListenerOptions, ListenerTemplate, listen_tcp,
};
pub use mailbox::{Mailbox, Mailer};
pub use ringed::{Door, RingFault, Ringed};
pub use secured::Secured;
pub use sockets::Sockets;
pub use uring::{Ring, UringIo};
