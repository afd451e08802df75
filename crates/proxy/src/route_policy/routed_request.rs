use super::part::{KeyOwner, Part};
use super::{memcached, redis};
use crate::{Operation, Session};
use keyway_base::{ByteRange, Fault, Key};
use keyway_command::{Command, Join};
use keyway_memcache::{Asker, Expect, Wire};
use keyway_resp::Protocol;

/// A request that is led to other pools, from when it was parsed to the last reply to its
/// sub-requests.
#[derive(Debug)]
pub struct RoutedRequest {
    /// The client for which it asks: the one that gets its reply, unless that is a sub-request.
    pub client: Key<Session>,
    /// Number of routed requests above this one.
    pub level: u8,
    /// Number of the connection to a server that it uses.
    pub lane: u32,
    /// Its protocol.
    pub speech: Speech,
    /// The request as received.
    pub bytes: Vec<u8>,
    /// The whole request, or its keys in several parts.
    pub parts: Vec<Part>,
    /// The owner of each key. Empty if the request is whole.
    pub owners: Vec<KeyOwner>,
    /// Number of parts without a reply.
    pub parts_left: u16,
    /// Number of sub-requests in flight, or about to be sent.
    pub sub_requests: u32,
    /// The bytes that it was last counted to hold.
    pub counted: usize,
    /// True if its client has its reply.
    pub is_told: bool,
}

/// The protocol of a request.
#[derive(Debug)]
pub enum Speech {
    /// RESP.
    Redis {
        /// The version.
        protocol: Protocol,
        /// The command.
        command: &'static Command,
        /// The arguments, as ranges of the request's bytes.
        args: Vec<ByteRange>,
        /// Number of arguments for each key, and how replies are joined, if it can be split.
        cut: Option<(usize, Join)>,
    },
    /// One of memcached's protocols.
    Memcached {
        /// The framing.
        wire: Wire,
        /// Length of the longest item that its client may store, in bytes.
        item_len_max: u32,
        /// The parsed request.
        request: Box<keyway_memcache::Request>,
    },
}

/// The purpose of a session without a client: one request to another pool.
#[derive(Clone, Copy, Debug)]
pub struct SubRequest {
    /// The receiver of the reply.
    pub purpose: SubRequestFor,
    /// The client for which it asks.
    pub client: Key<Session>,
    /// Number of routed requests above its own.
    pub level: u8,
    /// Number of bytes of its request that could not be sent at once, until they are sent. `None`
    /// if all were. Later requests of its client to the same pool wait until it has ended.
    pub stalled: Option<u32>,
    /// True if other sub-requests ask for it, so that it has nothing at servers itself.
    pub has_routed_request: bool,
    /// True if nothing of its client was sent after it to the same pool, nor will be before it
    /// ends. Then its request may be tried again.
    pub is_last: bool,
    /// The fault that the reply reports.
    pub fault: Option<Fault>,
}

impl SubRequest {
    /// Creates a sub-request that has not asked yet.
    pub fn new(purpose: SubRequestFor, client: Key<Session>, level: u8) -> SubRequest {
        let (stalled, has_routed_request, is_last, fault) = (None, false, false, None);
        SubRequest { purpose, client, level, stalled, has_routed_request, is_last, fault }
    }
}

/// The receiver of the reply of a [`SubRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubRequestFor {
    /// A part of a routed request, which has asked a station.
    Ask {
        /// The routed request.
        routed_request: Key<Operation>,
        /// Index of the part.
        part: u16,
        /// The station of its route policy.
        station: u8,
        /// The end by which the reply is recognised, if it is not the client's reply unchanged.
        expect: Option<Expect>,
    },
    /// A part of a routed request, which asks for the remaining time of a key to be filled in.
    TimeLeft {
        /// The routed request.
        routed_request: Key<Operation>,
        /// Index of the part.
        part: u16,
        /// Index of the key in the request.
        key: u32,
    },
    /// No receiver. A fill of this pool is counted.
    Fill(u16),
    /// No receiver. A pool has one copy less in flight.
    Shadow {
        /// The pool.
        pool: u16,
        /// Length of the copy, in bytes.
        len: u32,
    },
    /// No receiver.
    Nobody,
}

impl RoutedRequest {
    /// Appends the client's reply, once every part has one.
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

    /// Returns the first fault among its parts.
    pub fn fault(&self) -> Option<Fault> {
        self.parts.iter().find_map(|part| part.fault)
    }

    /// Returns the bytes that it holds, except for replies.
    pub fn held(&self) -> usize {
        let keys = size_of_val(&self.owners[..]) + self.owners.len() * size_of::<u32>();
        self.bytes.len() + size_of_val(&self.parts[..]) + keys
    }
}
