use crate::{Address, Away, Peer, RingFault};
use keyway_base::{Block, Clock};
use keyway_tls::{ClientTls, TlsFault};
use rustix::fd::OwnedFd;
use std::io::IoSlice;
use std::time::Duration;

/// A connected stream socket owned by an [`Io`]: a file descriptor, or a simulated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Socket(pub i32);

/// The worker's own name for a socket. The socket's events carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

/// Position of a listener among those of the [`Io`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerIndex(pub u16);

/// The reason why a connection was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFault {
    /// The host name has no address now.
    Resolve,
    /// No process listens there.
    Refused,
    /// There is no file of a unix socket at the path.
    NoSocket,
    /// This process may not use that socket, or may not enter the directories of its path.
    Denied,
    /// No route to the host or network.
    Unreachable,
    /// The system's own time for connecting ran out.
    TimedOut,
    /// No file descriptor or port left on this side.
    Exhausted,
    /// The connection was made, but its TLS handshake failed.
    Tls(TlsFault),
    /// The connection was made, but no memory was shared over it.
    Rings(RingFault),
    /// Any other error of the system.
    Other,
}

impl ConnectFault {
    /// Returns its text for logs and error replies.
    pub fn text(self) -> &'static str {
        match self {
            ConnectFault::Resolve => "host name does not resolve",
            ConnectFault::Refused => "connection refused",
            ConnectFault::NoSocket => "there is no socket at this path",
            ConnectFault::Denied => {
                "this user may not use the socket: its mode or that of a directory forbids it"
            }
            ConnectFault::Unreachable => "host unreachable",
            ConnectFault::TimedOut => "connecting timed out",
            ConnectFault::Exhausted => "no file descriptor or local port left",
            ConnectFault::Tls(fault) => fault.text(),
            ConnectFault::Rings(fault) => fault.text(),
            ConnectFault::Other => "connecting failed",
        }
    }
}

/// An event since the last poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A listener has waiting clients: accept until it has none.
    Incoming(ListenerIndex),
    /// A socket has changed: read until it is drained, write if output waits.
    Ready {
        /// The token of the socket.
        token: Token,
        /// True if bytes, or the peer's end, can be read.
        readable: bool,
        /// True if bytes can be written again.
        writable: bool,
        /// True if the peer closed or reset: read until the end is seen.
        hangup: bool,
    },
    /// A connection that [`Io::connect`] began was made.
    Connected {
        /// The token given to `connect`.
        token: Token,
        /// Its socket. The worker uses it from now on, and closes it.
        socket: Socket,
    },
    /// A connection that [`Io::connect`] began was not made.
    ConnectFailed {
        /// The token given to `connect`.
        token: Token,
        /// The reason.
        fault: ConnectFault,
    },
    /// [`Io::resolve`] has resolved a name.
    Resolved {
        /// The number given to `resolve`.
        number: u32,
        /// The address of the name, if it has one.
        address: Option<std::net::IpAddr>,
    },
    /// Another thread posted mail for this worker.
    Mail,
}

/// Outcome of [`Io::recv`].
#[derive(Debug)]
pub enum Recv<'a> {
    /// Bytes, in a buffer that is reused by the next call.
    Data {
        /// The bytes; never empty.
        bytes: &'a [u8],
        /// True if this read emptied the socket, so that another read would return nothing.
        drained: bool,
        /// The buffer, if parts of it may be held. The next call then reads into another buffer.
        block: Option<&'a Block>,
    },
    /// Nothing to read now.
    Empty,
    /// The peer will send no more.
    End,
    /// The connection broke.
    Failed,
}

/// Outcome of [`Io::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Send {
    /// This many bytes were taken: all, or as many as there was room for.
    Taken(usize),
    /// The connection broke.
    Failed,
}

/// Outcome of [`Io::accept`].
#[derive(Clone, Debug)]
pub enum Accept {
    /// A client. Its socket must be given a token by [`Io::watch`].
    Client {
        /// Its socket.
        socket: Socket,
        /// Its address.
        peer: Peer,
    },
    /// A client that must first announce its address or do a TLS handshake. The listener is
    /// reported again when that is over.
    Entering,
    /// A client that was refused.
    Turned {
        /// Its address, as far as it is known.
        peer: Peer,
        /// The reason.
        away: Away,
    },
    /// No client waits.
    Empty,
    /// There are no file descriptors or no memory: clients wait in the backlog. Ask again after a
    /// pause.
    Exhausted,
    /// The system refuses for an unusual reason, which is given. Ask again after a pause.
    Failed(String),
}

/// Everything that a worker can do to the outside world, and its only clock. One implementation
/// drives real sockets, another a simulated network.
///
/// Readiness is edge-triggered: an event is reported once, and the worker reads or writes until
/// there is no more before it expects another.
pub trait Io {
    /// Returns both clocks. Called once a turn.
    fn clock(&mut self) -> Clock;

    /// Waits up to `wait` (`None`: for ever; zero: not at all) and appends the events. Returns
    /// whether the call had to sleep.
    fn poll(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) -> bool;

    /// Accepts the next client of a listener.
    fn accept(&mut self, listener: ListenerIndex) -> Accept;

    /// Accepts clients that wait at other workers' sockets of a listener's address. [`Io::accept`]
    /// returns these first. Returns whether there are any.
    fn accept_beside(&mut self, _listener: ListenerIndex) -> bool {
        false
    }

    /// Returns the local address that an accepted client has connected to; `None` if it is not
    /// known.
    fn local_address(&self, _socket: Socket) -> Option<std::net::SocketAddr> {
        None
    }

    /// Resolves a host name, which ends in [`Event::Resolved`] with the same number. Returns
    /// whether it was begun.
    fn resolve(&mut self, _host: &str, _number: u32) -> bool {
        false
    }

    /// Stops or resumes the reports of waiting clients. Used while there is no descriptor for
    /// another client.
    fn pause_accepting(&mut self, paused: bool);

    /// Stops or resumes the reports of clients that wait at one listener. Used while no more
    /// clients may arrive. Reports are resumed only if accepting is not paused.
    fn hold_listener(&mut self, _listener: ListenerIndex, _held: bool) {}
    /// Adds a listener at that position: a new one, or one in the place of a listener that has
    /// ended. Returns whether it listens.
    fn listen(&mut self, _index: ListenerIndex, _listener: crate::Listener) -> bool {
        false
    }

    /// Makes [`Io::accept`] ask the system for clients that wait at a listener, after those that
    /// were accepted in advance. Used when the listener is about to end, so that no client is
    /// missed.
    fn empty_listener(&mut self, _index: ListenerIndex) {}

    /// Ends one listener. Its position may be used again later.
    fn end_listening(&mut self, _index: ListenerIndex) {}

    /// Applies another access filter to the clients of a listener from now on.
    fn let_in_by(
        &mut self,
        _index: ListenerIndex,
        _gate: Option<std::sync::Arc<crate::AcceptFilter>>,
    ) {
    }

    /// Stops listening: the system refuses new clients from now on.
    fn stop_listening(&mut self);

    /// Stops listening, but clients that are arriving may finish.
    fn leave_listening(&mut self) {
        self.stop_listening();
    }

    /// Returns a notice about the driver for the operator, once.
    fn take_notice(&mut self) -> Option<&'static str> {
        None
    }

    /// Returns whether any client is arriving that was not reported yet.
    fn has_arrivals(&self) -> bool {
        false
    }

    /// Gives a token to an accepted or adopted socket. Its events start now.
    fn watch(&mut self, socket: Socket, token: Token) -> bool;

    /// Begins a connection, which ends in `Connected` or `ConnectFailed` with the same token. A
    /// host name is resolved anew each time.
    fn connect(&mut self, address: &Address, token: Token);

    /// Begins a connection with TLS, like [`Io::connect`]. It is connected when the handshake is
    /// over, and its bytes are plain for the worker.
    fn connect_secured(&mut self, _address: &Address, _tls: &ClientTls, _token: Token) {
        unreachable!("this driver has no TLS: lay a `Secured` over it");
    }

    /// Returns the TLS fault that has ended a connection, if there was one. Available after
    /// [`Recv::Failed`] or [`Recv::End`], before it is closed.
    fn tls_fault(&mut self, _socket: Socket) -> Option<TlsFault> {
        None
    }

    /// Returns whether the peer has violated the rules of shared memory. Available after
    /// [`Recv::Failed`] or [`Send::Failed`], before the connection is closed.
    fn has_broken_rules(&mut self, _socket: Socket) -> bool {
        false
    }

    /// Returns how long polls have polled for bytes instead of sleeping since the last call, in
    /// nanoseconds.
    fn take_looked(&mut self) -> u64 {
        0
    }

    /// Gives up a connection that [`Io::connect`] or [`Io::connect_secured`] began: nothing of it
    /// is left in the system. An outcome that is known already may still be reported; the worker
    /// closes a socket that comes with it.
    fn cancel_connect(&mut self, token: Token);

    /// Reads received bytes, at most as many as the shared read buffer holds.
    fn recv(&mut self, socket: Socket) -> Recv<'_>;

    /// Writes `bytes`.
    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Send;

    /// Writes `pieces`, one after the other.
    fn send_pieces(&mut self, socket: Socket, pieces: &[IoSlice<'_>]) -> Send {
        send_each(self, socket, pieces)
    }

    /// Stops the events of a socket without closing it, to hand it to another worker. The other
    /// worker gives the returned socket to [`Io::adopt`].
    fn release(&mut self, socket: Socket) -> Socket;

    /// Gives a socket up for another process, or a thread of its own. Returns its descriptor, and bytes that were received
    /// and not read. Returns `None`, and changes nothing, if its connection has state in this
    /// process: TLS, or rings in shared memory.
    fn give_up(&mut self, _socket: Socket) -> Option<(OwnedFd, Vec<u8>)> {
        None
    }

    /// Takes over a descriptor of another process, with bytes that were received and not read.
    fn take_over(&mut self, _descriptor: OwnedFd, _unread: Vec<u8>) -> Option<Socket> {
        None
    }

    /// Takes over a socket that another worker has released. Returns its handle here.
    fn adopt(&mut self, socket: Socket) -> Socket {
        socket
    }

    /// Ends the sending direction of a socket after everything sent before. The socket may still be
    /// read, and must be closed. Returns whether that was possible. If not, closing at once loses
    /// nothing more.
    fn finish(&mut self, _socket: Socket) -> bool {
        false
    }

    /// Closes a socket. Its token never appears in a later `poll`.
    fn close(&mut self, socket: Socket);
}

/// Writes `pieces` with a call for each.
pub(crate) fn send_each<I: Io + ?Sized>(
    io: &mut I,
    socket: Socket,
    pieces: &[IoSlice<'_>],
) -> Send {
    let mut taken = 0;
    for piece in pieces {
        match io.send(socket, piece) {
            Send::Taken(len) if len == piece.len() => taken += len,
            Send::Taken(len) => return Send::Taken(taken + len),
            Send::Failed => return Send::Failed,
        }
    }
    Send::Taken(taken)
}
