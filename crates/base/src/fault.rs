/// Whether any byte of a request had left for the backend when it failed. A
/// request of which nothing was sent can be repeated without harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Not a byte was handed to the kernel.
    No,
    /// Some bytes were; the backend may have executed it.
    Maybe,
}

/// What went wrong on the way to a backend and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendFault {
    /// The connection was refused, unreachable or not established in time.
    Connect,
    /// No reply within the pool's timeout.
    Timeout,
    /// The backend closed or reset the connection.
    Closed,
    /// The backend sent bytes that are not its protocol.
    Protocol,
    /// The backend refused our password or database.
    Handshake,
    /// The backend was loading its data or busy with a script when we
    /// introduced ourselves.
    NotReady,
    /// The backend has as many connections as it takes: it said so on the new
    /// one and closed it. Nothing that was sent there was read.
    Full,
    /// It was not asked: too many requests to it have failed of late.
    CircuitOpen,
    /// It was not asked: an operator has taken it out of use, and no other server has what it
    /// has.
    Ejected,
    /// The backend's reply is beyond a bound of ours. It did nothing wrong:
    /// some client asked for too much at once.
    Reply(ReplyBound),
}

/// Which bound a reply goes beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyBound {
    /// `reply_len_max`.
    Len,
    /// `reply_depth_max`.
    Depth,
}

/// Which bound of [`crate::Limits`] a client was told of with an error of ours.
/// Bounds on one request are the parser's; a client that does not read its
/// replies could not read an error either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitFault {
    /// More clients than `clients_max`.
    Clients,
}

/// Why a request was not served, by who misbehaved. Small and `Copy`: it
/// travels the data plane; text is added once, where it becomes a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer broke the protocol: answer, then close.
    Client,
    /// Understood and refused: answer, keep the connection.
    Denied,
    /// No backend may take the request now.
    Unrouted,
    /// A backend failed.
    Backend {
        /// How.
        fault: BackendFault,
        /// Whether it may have seen the request.
        sent: Sent,
    },
    /// The embedded store is at its `memory_max` and must not evict.
    StoreFull,
    /// A bound was met.
    Limit(LimitFault),
}

impl Fault {
    /// The metric label for this fault.
    pub fn label(self) -> &'static str {
        match self {
            Fault::Client => "client",
            Fault::Denied => "denied",
            Fault::Unrouted => "unrouted",
            Fault::Backend { fault: BackendFault::Connect, .. } => "backend_connect",
            Fault::Backend { fault: BackendFault::Timeout, .. } => "backend_timeout",
            Fault::Backend { fault: BackendFault::Closed, .. } => "backend_closed",
            Fault::Backend { fault: BackendFault::Protocol, .. } => "backend_protocol",
            Fault::Backend { fault: BackendFault::Handshake, .. } => "backend_handshake",
            Fault::Backend { fault: BackendFault::NotReady, .. } => "backend_not_ready",
            Fault::Backend { fault: BackendFault::Full, .. } => "backend_full",
            Fault::Backend { fault: BackendFault::CircuitOpen, .. } => "backend_circuit_open",
            Fault::Backend { fault: BackendFault::Ejected, .. } => "backend_ejected",
            Fault::Backend { fault: BackendFault::Reply(_), .. } => "backend_reply_limit",
            Fault::StoreFull => "store_full",
            Fault::Limit(_) => "limit",
        }
    }
}
