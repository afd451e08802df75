//! What a worker remembers of its connections and of the servers behind them.

use crate::Plan;
use crate::core::ConnectionKey;
use keyway_base::{BackendFault, ByteRange, Key, Time};
use keyway_command::Counted;
use keyway_net::{ConnectFault, TlsFault};
use keyway_proxy::{Exchange, Owner, Session};
use keyway_store::{Context, StreamedSet};
use keyway_topology::PerServer;
use std::collections::BTreeMap;

/// What a worker knows of its connections, besides what each has for itself.
pub(crate) struct State {
    /// What is known of each server's failures, by its place on the board.
    pub(in crate::core) failures: PerServer<ConnectionFailures>,
    /// Links with requests to send.
    pub(crate) dirty_links: Vec<ConnectionKey>,
    /// Of these, the ones with so much to send that waiting for the end of the
    /// turn gains nothing.
    pub(crate) full_links: Vec<ConnectionKey>,
    /// Private links to be ended.
    pub(crate) discards: Vec<ConnectionKey>,
    /// Private links whose command is to be ended, with their generation: they
    /// are seen to again until it has.
    pub(in crate::core) unblocking: Vec<(ConnectionKey, u32)>,
    /// Links that need a connection.
    pub(crate) connects: Vec<ConnectionKey>,
    /// The health board's epoch that the pools' rings are of.
    pub(in crate::core::upstream) health_epoch: u64,
    /// The same of the circuits.
    pub(in crate::core::upstream) circuit_epoch: u64,
    /// Links that clients share by which a large reply comes: see `upstream::bypass`.
    pub(in crate::core::upstream) blocked: Vec<ConnectionKey>,
    /// Links on which large requests are sent as they come.
    pub(in crate::core::upstream) streamed: Vec<ConnectionKey>,
    pub(in crate::core) streamed_replies: StreamedReplies,
    /// Large values that go into stores as they come.
    pub(in crate::core) landings: Landings,
    /// Room for the sums that gauges are of, by server.
    pub(in crate::core::upstream) gauge_sums: Vec<(u64, u64)>,
    pub(in crate::core) leases: PrivateLinks,
}

impl State {
    /// The state of a worker that has made no connection yet.
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
            landings: Landings::default(),
            gauge_sums: Vec::new(),
        }
    }
}

/// What a worker knows of the failures of one server.
#[derive(Clone, Debug, Default)]
pub(in crate::core) struct ConnectionFailures {
    /// Connections lost, or not made, since the server last answered.
    pub(in crate::core) lost: u32,
    /// How, and in which words, it refused the latest connection, if it did.
    pub(in crate::core) refusal: Option<(BackendFault, String)>,
    /// Whether it ends plain connections before it answers.
    pub(in crate::core::upstream) mute: Mute,
    /// It has answered since it came to its place.
    pub(in crate::core::upstream) has_spoken: bool,
    /// Why the latest attempt to connect has failed, unless one has succeeded since.
    pub(in crate::core::upstream) unreached: Option<ConnectFault>,
    /// Why the latest connection was not secured, if that is what it failed for.
    pub(in crate::core) tls: Option<TlsFault>,
    /// What the log was told last of that.
    pub(in crate::core::upstream) tls_told: Option<TlsFault>,
}

impl ConnectionFailures {
    /// Whether it ends plain connections as a server does that speaks TLS.
    pub(in crate::core) fn is_mute(&self) -> bool {
        self.mute == Mute::Always
    }

    /// It has answered a request.
    #[inline]
    pub(in crate::core::upstream) fn note_spoken(&mut self) {
        (self.lost, self.mute, self.has_spoken) = (0, Mute::No, true);
    }

    /// Notes one more; whether it is the first of a row.
    pub(in crate::core) fn is_first(&mut self) -> bool {
        self.lost = self.lost.saturating_add(1);
        self.lost == 1
    }
}

/// What a server does with plain connections. One that speaks TLS ends each after the first
/// request on it; one that dies does so once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::core::upstream) enum Mute {
    #[default]
    No,
    /// It ended one before it had answered, at this time.
    Once(Time),
    /// It has ended another one that was begun later.
    Always,
}

impl Mute {
    /// One more that was begun at `began` has ended.
    pub(in crate::core::upstream) fn after(self, began: Time, now: Time) -> Mute {
        match self {
            Mute::No => Mute::Once(now),
            Mute::Once(at) if began < at => self,
            Mute::Once(_) | Mute::Always => Mute::Always,
        }
    }
}

/// What is about large replies in a worker.
#[derive(Default)]
pub(in crate::core) struct StreamedReplies {
    /// Links that are not read, as their clients take no more.
    pub(in crate::core::upstream) held: Vec<ConnectionKey>,
    /// Links to be read on.
    pub(in crate::core::upstream) freed: Vec<ConnectionKey>,
    /// Sessions whose requests go by connections for large values.
    pub(in crate::core::upstream) bulk: Vec<Key<Session>>,
    /// What clients are told unasked, behind the replies that pass to them.
    pub(in crate::core::upstream) behind: Vec<(Key<Session>, Vec<u8>)>,
    /// Bytes that wait beyond the windows of clients, about.
    pub(in crate::core::upstream) beyond: u64,
    /// Earliest time of the next sum.
    pub(in crate::core::upstream) next_sum: Time,
}

impl StreamedReplies {
    /// Whether a connection that was held is to be read on.
    #[inline]
    pub(in crate::core) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// Number of links and sessions with a large reply under way.
    pub(in crate::core) fn len(&self) -> usize {
        self.held.len() + self.freed.len() + self.bulk.len() + self.behind.len()
    }
}

/// A request of which the value lands in a store.
pub(super) struct Landing {
    pub(in crate::core::upstream) draft: Box<StreamedSet>,
    /// The request up to its value.
    pub(in crate::core::upstream) head: Vec<u8>,
    /// The arguments in there.
    pub(in crate::core::upstream) args: Vec<ByteRange>,
    /// What has come of the line end behind the value.
    pub(in crate::core::upstream) line_end: Vec<u8>,
    /// The class and the command that metrics count it under.
    pub(in crate::core::upstream) counted: Counted,
}

/// The requests that land in stores, one of a session at most. A request leaves when it is executed,
/// is broken or loses its client.
#[derive(Default)]
pub(in crate::core) struct Landings(BTreeMap<u64, Box<Landing>>);

impl Landings {
    pub(in crate::core::upstream) fn insert(&mut self, key: Key<Session>, landing: Landing) {
        self.0.insert(key.to_bits(), Box::new(landing));
    }

    /// Adds a part of a client's request to its value. Returns whether the bytes behind the value are
    /// the start of a line end.
    pub(super) fn take_part(&mut self, key: Key<Session>, part: &[u8], context: Context) -> bool {
        let Some(landing) = self.0.get_mut(&key.to_bits()) else { return false };
        let rest = landing.draft.extend(part, context);
        landing.line_end.extend_from_slice(rest);
        b"\r\n".starts_with(&landing.line_end)
    }

    /// Takes the request of a session out. What a store has of it is freed with it.
    pub(super) fn remove(&mut self, key: Key<Session>) -> Option<Box<Landing>> {
        self.0.remove(&key.to_bits())
    }

    /// Number of requests.
    pub(in crate::core) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The private links of a worker that nobody has.
#[derive(Default)]
pub(in crate::core) struct PrivateLinks {
    /// Places among the links that are free for any server.
    pub(in crate::core::upstream) places: Vec<ConnectionKey>,
    /// How many are in use or idle.
    pub(in crate::core::upstream) count: usize,
    /// Of these, the ones of tracked sessions.
    pub(in crate::core) own: usize,
}

/// Requests to one server that failed together.
#[derive(Clone, Copy, Default)]
pub(in crate::core::upstream) struct Failed {
    pub(in crate::core::upstream) count: u32,
    /// When the latest of them began.
    pub(in crate::core::upstream) began: Time,
}

impl Failed {
    /// Notes one more, unless nobody asked but the worker.
    pub(in crate::core::upstream) fn add(&mut self, exchange: &Exchange) {
        if !matches!(exchange.owner, Owner::None | Owner::Internal(_)) {
            self.count += 1;
            self.began = self.began.max(exchange.started);
        }
    }
}
