/// Whether any byte of a request had been sent to the backend when it failed. A request of which
/// nothing was sent can be repeated without harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// No byte was given to the kernel.
    No,
    /// Some bytes were given to the kernel, so the backend may have executed it.
    Maybe,
}

/// A fault on the way to a backend or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendFault {
    /// The connection was refused, unreachable or not established in time.
    Connect,
    /// No reply within the pool's timeout.
    Timeout,
    /// The backend closed or reset the connection.
    Closed,
    /// The backend sent bytes that violate its protocol.
    Protocol,
    /// The backend refused the password or the database.
    Handshake,
    /// The backend was loading its data or busy with a script during the handshake.
    NotReady,
    /// The backend has as many connections as it accepts: it said so on the new connection and
    /// closed it. It read nothing that was sent there.
    Full,
    /// The backend was not asked, because too many requests to it have failed lately.
    CircuitOpen,
    /// The backend was not asked, because an operator has taken it out of use and no other server
    /// has its data.
    Ejected,
    /// The backend's reply exceeds a bound of Keyway's. The backend did nothing wrong: a client
    /// asked for too much at once.
    Reply(ReplyBound),
}

/// The bound that a reply exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyBound {
    /// `reply_len_max`.
    Len,
    /// `reply_depth_max`.
    Depth,
}

/// The bound of [`crate::Limits`] that a client was told of with an error. The parser has the
/// bounds on one request. A client that does not read its replies could not read an error either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitFault {
    /// There are more clients than `clients_max`.
    Clients,
}

/// The reason why a request was not served, by the party at fault. Small and `Copy`: it travels the
/// data plane. Its text is added once, when it becomes a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer violated the protocol: answer, then close.
    Client,
    /// The request was understood and refused: answer, keep the connection.
    Denied,
    /// No backend may take the request now.
    Unrouted,
    /// A backend failed.
    Backend {
        /// The fault of the backend.
        fault: BackendFault,
        /// Whether the backend may have received the request.
        sent: Sent,
    },
    /// The embedded store is at its `memory_max` and must not evict.
    StoreFull,
    /// A bound was reached.
    Limit(LimitFault),
}

impl Fault {
    /// Returns the metric label of this fault.
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
