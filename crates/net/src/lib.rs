//! Sockets, and the one interface by which the worker uses them: [`Io`].
//!
//! Never parses a byte and never knows what a session or a link is: a socket is a [`Socket`] handle
//! and a [`Token`] that the worker chooses. Read first: [`Io`], [`Event`] and [`EpollIo`].
//! [`UringIo`] may lie over [`EpollIo`]; [`Ringed`] adds shared memory; [`Secured`] adds TLS over
//! both, and applies an [`AcceptFilter`] to clients.

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
pub use handover::{
    FinalStore, Followed, HANDED_AT_ONCE, HELD_AT_ONCE, Handed, HandedStore, Handover, Message,
    Parcels, Place,
};
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
