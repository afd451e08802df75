use crate::{Address, Away, Peer, RingFault};
use keyway_base::{Block, Clock};
use keyway_tls::{ClientTls, TlsFault};
use std::io::IoSlice;
use std::time::Duration;

/// A connected stream socket owned by an [`Io`]: a file descriptor, or a
/// simulated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Socket(pub i32);

/// The worker's own name for a socket, handed back in its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

/// Position of a listener among those the [`Io`] was built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerIndex(pub u16);

/// Why a connection was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFault {
    /// The host name has no address now.
    Resolve,
    /// Nothing listens there.
    Refused,
    /// There is no file of a unix socket at the path.
    NoSocket,
    /// This process may not use that socket, or go through the directories of its path.
    Denied,
    /// No route to the host or network.
    Unreachable,
    /// The system's own time for connecting ran out.
    TimedOut,
    /// No file descriptor or port left on this side.
    Exhausted,
    /// The connection stood, and was not secured.
    Tls(TlsFault),
    /// The connection stood, and no memory was shared over it.
    Rings(RingFault),
    /// Anything else the system says.
    Other,
}

impl ConnectFault {
    /// What it says in logs and error replies.
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

/// What happened since the last poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A listener has connections to accept: accept until it has none.
    Incoming(ListenerIndex),
    /// A socket changed: read until it is drained, write if output waits.
    Ready {
        /// Whose socket.
        token: Token,
        /// Bytes, or the peer's end, can be read.
        readable: bool,
        /// Bytes can be written again.
        writable: bool,
        /// The peer closed or reset: read until the end is seen.
        hangup: bool,
    },
    /// A connection asked for by [`Io::connect`] stands.
    Connected {
        /// As given to `connect`.
        token: Token,
        /// Now the worker's to use and to close.
        socket: Socket,
    },
    /// A connection asked for by [`Io::connect`] was not made.
    ConnectFailed {
        /// As given to `connect`.
        token: Token,
        /// Why.
        fault: ConnectFault,
    },
    /// A name that [`Io::resolve`] was asked for was looked up.
    Resolved {
        /// As given to `resolve`.
        number: u32,
        /// Where it leads, if it does.
        address: Option<std::net::IpAddr>,
    },
    /// Another thread posted mail for this worker.
    Mail,
}

/// Outcome of [`Io::recv`].
#[derive(Debug)]
pub enum Recv<'a> {
    /// Bytes, in a buffer that is reused at the next call.
    Data {
        /// What was read; never empty.
        bytes: &'a [u8],
        /// Whether this read emptied the socket, so that another would only
        /// be told to wait.
        drained: bool,
        /// The buffer, if parts of it may be held: the next call reads into another then.
        block: Option<&'a Block>,
    },
    /// Nothing to read now.
    Empty,
    /// The peer sends no more.
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
    /// A client; its socket must be given a token by [`Io::watch`].
    Client {
        /// Its socket.
        socket: Socket,
        /// Its address.
        peer: Peer,
    },
    /// A client that has yet to say whose it is, or to be secured: the listener is told of
    /// again when that is over.
    Entering,
    /// A client that was turned away.
    Turned {
        /// Its address, as far as it is known.
        peer: Peer,
        /// Why.
        away: Away,
    },
    /// Nobody waits.
    Empty,
    /// Out of file descriptors or memory: clients wait in the backlog. Ask
    /// again after a pause.
    Exhausted,
    /// The system refuses for the reason given, one it seldom has. Ask again
    /// after a pause.
    Failed(String),
}

/// All that a worker can do to the outside world, and its only clock. One
/// implementation drives real sockets, another a simulated network.
///
/// Readiness is edge-triggered: an event is told once, and the worker reads
/// or writes until there is no more before it expects another.
pub trait Io {
    /// Both clocks; read once a turn.
    fn clock(&mut self) -> Clock;

    /// Waits up to `wait` (`None`: for ever; zero: not at all) and appends
    /// what happened. Returns whether the call had to sleep.
    fn poll(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) -> bool;

    /// Takes the next client of a listener.
    fn accept(&mut self, listener: ListenerIndex) -> Accept;

    /// Takes clients that wait at other workers' sockets of a listener's address. [`Io::accept`]
    /// returns these first. Returns whether there are any.
    fn accept_beside(&mut self, _listener: ListenerIndex) -> bool {
        false
    }

    /// The address of ours that an accepted client has connected to; `None` where
    /// there is none to tell.
    fn local_address(&self, _socket: Socket) -> Option<std::net::SocketAddr> {
        None
    }

    /// Looks up where a host name leads, which ends in [`Event::Resolved`] with the same number.
    /// Returns whether it was begun.
    fn resolve(&mut self, _host: &str, _number: u32) -> bool {
        false
    }

    /// Stops telling of waiting clients, or tells of them again: for a while
    /// there is no descriptor for another one.
    fn pause_accepting(&mut self, paused: bool);

    /// Stops telling of who waits at one listener, or tells of them again, as far as accepting
    /// is not paused: there is no room for one more to come in.
    fn hold_listener(&mut self, _listener: ListenerIndex, _held: bool) {}
    /// Listens there as well from here on, as the listener of that position: a new one, or
    /// that of one that was ended. Returns whether it does.
    fn listen(&mut self, _index: ListenerIndex, _listener: crate::Listener) -> bool {
        false
    }

    /// From here on [`Io::accept`] asks the system for who waits at a listener, behind those that
    /// were accepted before they were asked for: it is about to end, and nobody is to be missed.
    fn empty_listener(&mut self, _index: ListenerIndex) {}

    /// Ends one listener; its position may be another's later.
    fn end_listening(&mut self, _index: ListenerIndex) {}

    /// Lets the clients of a listener in by another gate from here on.
    fn let_in_by(
        &mut self,
        _index: ListenerIndex,
        _gate: Option<std::sync::Arc<crate::AcceptFilter>>,
    ) {
    }

    /// Stops listening: new clients are refused by the system from here on.
    fn stop_listening(&mut self);

    /// The same, but who has begun to come in may do so still.
    fn leave_listening(&mut self) {
        self.stop_listening();
    }

    /// What the operator is to be told of the driver, once.
    fn take_notice(&mut self) -> Option<&'static str> {
        None
    }

    /// Whether anybody has begun to come in, of whom nobody was told yet.
    fn has_arrivals(&self) -> bool {
        false
    }

    /// Names an accepted or adopted socket; its events start here.
    fn watch(&mut self, socket: Socket, token: Token) -> bool;

    /// Begins a connection; ends in `Connected` or `ConnectFailed` with the
    /// same token. A host name is resolved anew each time.
    fn connect(&mut self, address: &Address, token: Token);

    /// Begins a connection whose bytes are encrypted, as [`Io::connect`] does; it
    /// stands when the handshake is over, and takes and gives plain bytes.
    fn connect_secured(&mut self, _address: &Address, _tls: &ClientTls, _token: Token) {
        unreachable!("this driver has no TLS: lay a `Secured` over it");
    }

    /// Why a secured connection has ended, if TLS is why: told after
    /// [`Recv::Failed`] or [`Recv::End`], before it is closed.
    fn tls_fault(&mut self, _socket: Socket) -> Option<TlsFault> {
        None
    }

    /// Whether the other side of a connection has broken the rules by which memory is shared: told
    /// after [`Recv::Failed`] or [`Send::Failed`], before it is closed.
    fn has_broken_rules(&mut self, _socket: Socket) -> bool {
        false
    }

    /// How long polls have looked for bytes instead of sleeping, since this was asked last, in
    /// nanoseconds.
    fn take_looked(&mut self) -> u64 {
        0
    }

    /// Gives up a connection that [`Io::connect`] or [`Io::connect_secured`] began: nothing is left of it
    /// in the system. What is known of it already may still be told; a socket
    /// that comes with it is the worker's to close.
    fn cancel_connect(&mut self, token: Token);

    /// Reads what has arrived, up to the size of the shared read buffer.
    fn recv(&mut self, socket: Socket) -> Recv<'_>;

    /// Writes `bytes`.
    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Send;

    /// Writes `pieces`, one behind the other.
    fn send_pieces(&mut self, socket: Socket, pieces: &[IoSlice<'_>]) -> Send {
        send_each(self, socket, pieces)
    }

    /// Forgets a socket's events without closing it, to hand it to another
    /// worker, which is to [`Io::adopt`] what is returned here.
    fn release(&mut self, socket: Socket) -> Socket;

    /// Takes a socket over that another worker has released; its name here.
    fn adopt(&mut self, socket: Socket) -> Socket {
        socket
    }

    /// Says that nothing more is sent on a socket, behind all that was; it may be read on, and is
    /// still to be closed. Returns whether that was said: where not, closing at once loses
    /// nothing more.
    fn finish(&mut self, _socket: Socket) -> bool {
        false
    }

    /// Closes a socket. Its token never appears in a later `poll`.
    fn close(&mut self, socket: Socket);
}

/// Writes `pieces` by a call for each.
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
