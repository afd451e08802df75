use super::{RoutePolicy, memcached, redis};
use crate::{Operation, Session};
use keyway_base::{ByteRange, Fault, Key};
use keyway_command::{Command, Join};
use keyway_memcache::{Asker, Expect, Wire};
use keyway_resp::Protocol;

/// A request that goes over other pools, from the moment it was parsed to the last reply
/// of anybody it asked.
#[derive(Debug)]
pub struct RoutedRequest {
    /// The client on whose behalf it asks: that of its reply, unless that is a sub-request.
    pub client: Key<Session>,
    /// How many routed requests are above this one.
    pub level: u8,
    /// Which of the connections to a server it takes.
    pub lane: u32,
    /// What it is said in.
    pub speech: Speech,
    /// The request as it came.
    pub bytes: Vec<u8>,
    /// It, or its keys in several lots.
    pub parts: Vec<Part>,
    /// Of each key its part, and its place there; empty where the request is whole.
    pub owners: Vec<(u16, u32)>,
    /// Parts that have no reply yet.
    pub parts_left: u16,
    /// Sub-requests on their way, or about to be.
    pub sub_requests: u32,
    /// What it was last counted to hold, in bytes.
    pub counted: usize,
    /// Its client was told.
    pub is_told: bool,
}

/// What a request is said in.
#[derive(Debug)]
pub enum Speech {
    /// RESP.
    Redis {
        /// The version.
        protocol: Protocol,
        /// Its command.
        command: &'static Command,
        /// Its arguments in the request's bytes.
        args: Vec<ByteRange>,
        /// Arguments of each key and how replies are joined, where it can be cut.
        cut: Option<(usize, Join)>,
    },
    /// One of memcached's protocols.
    Memcached {
        /// How it is framed.
        wire: Wire,
        /// Longest item its client may store, in bytes.
        item_len_max: u32,
        /// It, parsed.
        request: Box<keyway_memcache::Request>,
    },
}

/// A part of a request: the keys that go the same way.
#[derive(Debug)]
pub struct Part {
    /// The way.
    pub route_policy: RoutePolicy,
    /// Which keys of the request; empty for all of it.
    pub keys: Vec<u32>,
    /// The best reply so far, and how it ends if it is not what the client is told as
    /// it is.
    pub reply: Vec<u8>,
    /// See `reply`.
    pub expect: Option<Expect>,
    /// The reply tells of this.
    pub fault: Option<Fault>,
    /// Questions about what is to be filled in that are still open.
    pub asking: u32,
}

impl Part {
    /// A part that nobody was asked about.
    pub fn new(route_policy: RoutePolicy, keys: Vec<u32>) -> Part {
        Part { route_policy, keys, reply: Vec::new(), expect: None, fault: None, asking: 0 }
    }
}

/// What a session without a client is for: one request to another pool.
#[derive(Clone, Copy, Debug)]
pub struct SubRequest {
    /// Who is told the reply.
    pub purpose: SubRequestFor,
    /// The client on whose behalf it asks.
    pub client: Key<Session>,
    /// How many routed requests are above the one it asks for.
    pub level: u8,
    /// Bytes of its request that were not on their way at once, until they are; none where
    /// all are, and what its client asks the same pool later waits until it has ended.
    pub stalled: Option<u32>,
    /// Others ask for it: nothing of its own is at servers.
    pub has_routed_request: bool,
    /// Nothing of its client was sent behind it to the same pool, nor will be before it
    /// ends: its request may be tried again.
    pub is_last: bool,
    /// The reply tells of this.
    pub fault: Option<Fault>,
}

impl SubRequest {
    /// One that has not asked yet.
    pub fn new(purpose: SubRequestFor, client: Key<Session>, level: u8) -> SubRequest {
        let (stalled, has_routed_request, is_last, fault) = (None, false, false, None);
        SubRequest { purpose, client, level, stalled, has_routed_request, is_last, fault }
    }
}

/// Who is told the reply of a [`SubRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubRequestFor {
    /// A part of a routed request has asked a station.
    Ask {
        /// The routed request.
        routed_request: Key<Operation>,
        /// Which of its parts.
        part: u16,
        /// The station of its route policy.
        station: u8,
        /// How the reply ends, where it is not what the client is told as it is.
        expect: Option<Expect>,
    },
    /// A part of a routed request asks how much time a key has left that is to be filled in.
    TimeLeft {
        /// The routed request.
        routed_request: Key<Operation>,
        /// Which of its parts.
        part: u16,
        /// Which key of the request.
        key: u32,
    },
    /// Nobody; a fill of this pool is counted.
    Fill(u16),
    /// Nobody; a pool has one copy less on its way.
    Shadow {
        /// The pool.
        pool: u16,
        /// The length of the copy, in bytes.
        len: u32,
    },
    /// Nobody.
    Nobody,
}

impl RoutedRequest {
    /// Appends what the client is told, once every part has a reply.
    pub fn write(&self, out: &mut Vec<u8>) {
        match (&self.speech, self.owners.is_empty()) {
            (Speech::Redis { .. }, true) => out.extend_from_slice(&self.parts[0].reply),
            (Speech::Redis { cut, .. }, false) => {
                let rule = cut.map_or(Join::Array, |(_, rule)| rule);
                redis::join(rule, &self.parts, &self.owners, out);
            }
            (Speech::Memcached { request, wire, .. }, true) => {
                let key = match request.keys.is_empty() {
                    true => b"",
                    false => request.key(&self.bytes, 0),
                };
                let asker = Asker { head: &request.head, key, meta: request.meta.of(&self.bytes) };
                memcached::tell(&self.parts[0], *wire, &asker, out);
            }
            (Speech::Memcached { request, .. }, false) => {
                memcached::join(&self.parts, &self.owners, request.keys(&self.bytes), out);
            }
        }
    }

    /// The first fault among its parts.
    pub fn fault(&self) -> Option<Fault> {
        self.parts.iter().find_map(|part| part.fault)
    }

    /// Bytes it holds, but for replies.
    pub fn held(&self) -> usize {
        let keys = size_of_val(&self.owners[..]) + self.owners.len() * size_of::<u32>();
        self.bytes.len() + size_of_val(&self.parts[..]) + keys
    }
}
