//! A worker's state of its connections and of their servers.

use crate::Plan;
use keyway_base::{BackendFault, ByteRange, Key, Time};
use keyway_command::Counted;
use keyway_net::{ConnectFault, TlsFault};
use keyway_proxy::ConnectionKey;
use keyway_proxy::{Exchange, Owner, Session};
use keyway_store::{Context, StreamedSet};
use keyway_topology::PerServer;
use std::collections::BTreeMap;

/// A worker's state of its connections, besides the state of each one.
pub(crate) struct State {
    /// The failures of each server, by its index on the board.
    pub(in crate::core) failures: PerServer<ConnectionFailures>,
    /// Links with requests to send.
    pub(crate) dirty_links: Vec<ConnectionKey>,
    /// Of these, the ones with so much to send that waiting for the end of the turn gains nothing.
    pub(crate) full_links: Vec<ConnectionKey>,
    /// Private links that must be ended.
    pub(crate) discards: Vec<ConnectionKey>,
    /// Private links whose command must be ended, with their generation. They are handled again
    /// until it has ended.
    pub(in crate::core) unblocking: Vec<(ConnectionKey, u32)>,
    /// Links that need a connection.
    pub(crate) connects: Vec<ConnectionKey>,
    /// The epoch of the health board to which the pools' rings belong.
    pub(super) health_epoch: u64,
    /// The same for the circuits.
    pub(super) circuit_epoch: u64,
    /// Links that clients share and on which a large reply arrives: see `upstream::bypass`.
    pub(super) blocked: Vec<ConnectionKey>,
    /// Links on which large requests are streamed.
    pub(super) streamed: Vec<ConnectionKey>,
    pub(in crate::core) streamed_replies: StreamedReplies,
    /// Large values that are streamed into stores.
    pub(in crate::core) partial_sets: PartialSets,
    /// A buffer for the sums of the gauges, by server.
    pub(super) gauge_sums: Vec<(u64, u64)>,
    pub(in crate::core) leases: PrivateLinks,
}

impl State {
    /// Creates the state of a worker that has opened no connection yet.
    pub(in crate::core) fn new(plan: &Plan) -> State {
        State {
            failures: PerServer::new(&plan.topology, &plan.health),
            leases: PrivateLinks::default(),
            dirty_links: Vec::new(),
            full_links: Vec::new(),
            discards: Vec::new(),
            unblocking: Vec::new(),
            connects: Vec::new(),
            health_epoch: 0,
            circuit_epoch: 0,
            blocked: Vec::new(),
            streamed: Vec::new(),
            streamed_replies: StreamedReplies::default(),
            partial_sets: PartialSets::default(),
            gauge_sums: Vec::new(),
        }
    }
}

/// The failures of one server that a worker has seen.
#[derive(Clone, Debug, Default)]
pub(in crate::core) struct ConnectionFailures {
    /// Number of connections that were lost, or could not be opened, since the server last
    /// answered.
    pub(in crate::core) lost: u32,
    /// How it refused the latest connection, with its text, if it did.
    pub(in crate::core) refusal: Option<(BackendFault, String)>,
    /// How it ends plain connections before it answers, if it does.
    pub(super) mute: Mute,
    /// True if it has answered since it got its index.
    pub(super) has_spoken: bool,
    /// Why the latest attempt to connect has failed, unless one has succeeded since.
    pub(super) unreached: Option<ConnectFault>,
    /// Why the latest connection was not secured, if that is why it failed.
    pub(in crate::core) tls: Option<TlsFault>,
    /// The reason that was logged last.
    pub(super) tls_told: Option<TlsFault>,
}

impl ConnectionFailures {
    /// Returns whether it ends plain connections like a server that uses TLS.
    pub(super) fn is_mute(&self) -> bool {
        self.mute == Mute::Always
    }

    /// Notes that it has answered a request.
    #[inline]
    pub(super) fn note_spoken(&mut self) {
        (self.lost, self.mute, self.has_spoken) = (0, Mute::No, true);
    }

    /// Notes one more. Returns whether it is the first of a series.
    pub(in crate::core) fn is_first(&mut self) -> bool {
        self.lost = self.lost.saturating_add(1);
        self.lost == 1
    }
}

/// How a server handles plain connections. One that uses TLS ends each after the first request on
/// it. One that dies does so once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mute {
    #[default]
    No,
    /// It ended one before it had answered, at this time.
    Once(Time),
    /// It has ended another one that was begun later.
    Always,
}

impl Mute {
    /// Returns the state after one more connection that was begun at `began` has ended.
    pub(super) fn after(self, began: Time, now: Time) -> Mute {
        match self {
            Mute::No => Mute::Once(now),
            Mute::Once(at) if began < at => self,
            Mute::Once(_) | Mute::Always => Mute::Always,
        }
    }
}

/// The state of large replies in a worker.
#[derive(Default)]
pub(in crate::core) struct StreamedReplies {
    /// Links that are not read, because their clients take no more.
    pub(super) held: Vec<ConnectionKey>,
    /// Links that must be read again.
    pub(super) freed: Vec<ConnectionKey>,
    /// Sessions whose requests use connections for large values.
    pub(super) bulk: Vec<Key<Session>>,
    /// Messages to clients that were not asked for. They follow the replies that are being
    /// streamed.
    pub(super) behind: Vec<(Key<Session>, Vec<u8>)>,
    /// Approximate number of bytes that wait beyond the windows of clients.
    pub(super) beyond: u64,
    /// Earliest time of the next sum.
    pub(super) next_sum: Time,
}

impl StreamedReplies {
    /// Returns whether a held connection must be read again.
    #[inline]
    pub(in crate::core) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// Returns the number of links and sessions with a large reply in progress.
    pub(in crate::core) fn len(&self) -> usize {
        self.held.len() + self.freed.len() + self.bulk.len() + self.behind.len()
    }
}

/// A request whose value is streamed into a store.
pub(super) struct PartialSet {
    pub(super) set: Box<StreamedSet>,
    /// The request up to its value.
    pub(super) head: Vec<u8>,
    /// The arguments in it.
    pub(super) args: Vec<ByteRange>,
    /// The received part of the line end after the value.
    pub(super) line_end: Vec<u8>,
    /// The class and the command under which metrics count it.
    pub(super) counted: Counted,
}

/// The requests that are streamed into stores, at most one of a session. A request is removed when
/// it is executed, is invalid or loses its client.
#[derive(Default)]
pub(in crate::core) struct PartialSets(BTreeMap<u64, Box<PartialSet>>);

impl PartialSets {
    pub(super) fn insert(&mut self, key: Key<Session>, partial: PartialSet) {
        self.0.insert(key.to_bits(), Box::new(partial));
    }

    /// Adds a part of a client's request to its value. Returns whether the bytes after the value
    /// are the start of a line end.
    pub(super) fn take_part(&mut self, key: Key<Session>, part: &[u8], context: Context) -> bool {
        let Some(partial) = self.0.get_mut(&key.to_bits()) else { return false };
        let rest = partial.set.extend(part, context);
        partial.line_end.extend_from_slice(rest);
        b"\r\n".starts_with(&partial.line_end)
    }

    /// Removes the request of a session. What a store has of it is freed with it.
    pub(super) fn remove(&mut self, key: Key<Session>) -> Option<Box<PartialSet>> {
        self.0.remove(&key.to_bits())
    }

    /// Returns the number of requests.
    pub(in crate::core) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The unused private links of a worker.
#[derive(Default)]
pub(in crate::core) struct PrivateLinks {
    /// Indices among the links that are free for any server.
    pub(super) free: Vec<ConnectionKey>,
    /// Number of links in use or idle.
    pub(super) count: usize,
    /// Number of those that belong to tracked sessions.
    pub(in crate::core) own: usize,
}

/// Requests to one server that failed together.
#[derive(Clone, Copy, Default)]
pub(super) struct Failed {
    pub(super) count: u32,
    /// When the latest of them began.
    pub(super) began: Time,
}

impl Failed {
    /// Notes one more, unless only the worker asked.
    pub(super) fn add(&mut self, exchange: &Exchange) {
        if !matches!(exchange.owner, Owner::None | Owner::Internal(_)) {
            self.count += 1;
            self.began = self.began.max(exchange.started);
        }
    }
}
