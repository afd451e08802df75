//! A request of a memcached client, and the state that a worker holds about such requests.

use super::ahead::Ahead;
use crate::PoolPlan;
use crate::core::pools::SharedLinks;
use crate::core::request::ClientMut;
use keyway_base::{Key, Time};
use keyway_command::{Class, Counted};
use keyway_memcache::{
    Asker, Dialect, Head, Outcome, Request, Verb, Wire, compose_request, write_end, write_reply,
};
use keyway_proxy::ConnectionKey;
use keyway_proxy::memcached::{Answer, Cleaned, MemcachedJoin, MemcachedJoinPool, Returning};
use keyway_proxy::{Busy, Internal, Operation, ReplyTo, Session};
use keyway_resp::Protocol;
use keyway_topology::{BackendId, ServerSet};
use std::collections::VecDeque;

/// Longest item that a client may send before it has authenticated, in bytes.
pub(super) const UNAUTHENTICATED_LEN_MAX: u32 = 4 << 10;

/// The state that a worker holds for memcached clients.
#[derive(Default)]
pub(in crate::core) struct State {
    pub(super) copying: Copying,
    pub(super) joins_free: MemcachedJoinPool,
    pub(super) scratch: Scratch,
    pub(super) ahead: Ahead,
    pub(super) returns: Returns,
}

impl State {
    /// Returns the number of items in flight from one pool to another, and of requests that wait to
    /// bring more.
    pub(in crate::core) fn item_copies(&self) -> usize {
        self.copying.len()
    }
}

/// A pool that memcached clients use, and its servers.
#[derive(Clone, Copy)]
pub(super) struct PoolServers<'a> {
    pub(super) pool: &'a PoolPlan,
    pub(super) servers: &'a ServerSet,
    /// The links that clients share to the servers.
    pub(super) shared: SharedLinks,
}

impl PoolServers<'_> {
    /// Returns the link to a server for a client of a lane.
    #[inline]
    pub(super) fn link(&self, server: u16, lane: u32) -> ConnectionKey {
        memcached_link(&self.shared, server, lane)
    }
}

/// Returns the link to a server for a memcached client of a lane.
#[inline]
pub(super) fn memcached_link(shared: &SharedLinks, server: u16, lane: u32) -> ConnectionKey {
    shared.link(server, lane, Protocol::Resp2)
}

/// A request of a memcached client, with that client.
pub(super) struct Call<'a> {
    pub(super) key: Key<Session>,
    pub(super) session: &'a mut Session,
    pub(super) busy: &'a mut Busy,
    pub(super) request: &'a Request,
    /// The bytes of the request and nothing else.
    pub(super) bytes: &'a [u8],
    /// The part of the old pool in the request, if any.
    pub(super) warm: Option<Warm>,
}

impl Call<'_> {
    /// Returns the client that sent the request.
    #[inline]
    pub(super) fn client(&mut self) -> ClientMut<'_> {
        ClientMut { key: self.key, session: self.session }
    }

    /// Reserves a reply index for the request.
    #[inline]
    pub(super) fn reserve(&mut self) -> u32 {
        match self.warm {
            Some(Warm::Resumed { to_client: ReplyTo { reply: Some(reply), .. }, .. }) => reply,
            _ => self.busy.order.reserve(),
        }
    }

    /// Returns where the reply goes. A request that was not taken before counts as parsed at `now`.
    #[inline]
    pub(super) fn reply_to(&mut self, now: Time) -> ReplyTo {
        match self.warm {
            Some(Warm::Resumed { to_client, .. }) => to_client,
            _ => ReplyTo {
                session: self.key,
                reply: Some(self.busy.order.reserve()),
                started: now,
                counted: self.counted(),
                pool: self.session.pool,
            },
        }
    }

    /// Returns whether the request was taken before, so that it has been counted and goes on
    /// whatever queues there are.
    #[inline]
    pub(super) fn is_resumed(&self) -> bool {
        matches!(self.warm, Some(Warm::Resumed { .. }))
    }

    pub(super) fn head(&self) -> &Head {
        &self.request.head
    }

    pub(super) fn counted(&self) -> Counted {
        counted_as(self.request)
    }

    /// Answers `stats` with these figures.
    #[cold]
    pub(super) fn tell_stats(&mut self, figures: &[(&str, String)]) {
        let asker = self.asker();
        let mut told = Vec::new();
        for (name, value) in figures {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            write_reply(&mut told, &asker, &Outcome::Stat { name, value });
        }
        write_end(&mut told, self.head());
        self.tell(&told);
    }

    /// Answers the request with these bytes.
    pub(super) fn tell(&mut self, told: &[u8]) {
        let reply_index = self.reserve();
        let Busy { order, output, .. } = &mut *self.busy;
        order.complete(reply_index, output, |out| out.extend_from_slice(told));
    }

    pub(super) fn asker(&self) -> Asker<'_> {
        let key = if self.request.keys.is_empty() { b"" } else { self.request.key(self.bytes, 0) };
        Asker { head: self.head(), key, meta: self.request.meta.of(self.bytes) }
    }
}

/// Returns whether a request changes or may change stored data.
pub(in crate::core) fn writes(verb: Verb) -> bool {
    use Verb::*;
    verb.stores() || matches!(verb, Delete | Incr | Decr | Touch | GetTouch | FlushAll)
}

/// Returns the protocol that a request is written in, whatever its client speaks. Requests that
/// Keyway makes on the client's behalf are in text.
pub(super) fn wire_of(head: &Head) -> Wire {
    if head.dialect == Dialect::Binary { Wire::Binary } else { Wire::Text }
}

/// Appends a request that deletes an item without a reply. Returns whether the key can be written
/// so.
#[cold]
pub(super) fn write_quiet_delete(out: &mut Vec<u8>, key: &[u8]) -> bool {
    let head = Head { verb: Verb::Delete, ..Head::default() };
    let name = std::iter::once(key);
    let quiet: &[u8] = if compose_request(out, Dialect::Text, &head, name.clone(), b"").is_ok() {
        b" noreply\r\n"
    } else if compose_request(out, Dialect::Meta, &head, name, b"").is_ok() {
        b" q\r\n"
    } else {
        return false;
    };
    out.truncate(out.len() - b"\r\n".len());
    out.extend_from_slice(quiet);
    true
}

/// Returns the class in which the metrics count a request.
fn counted_as(request: &Request) -> Counted {
    use Class::{Admin as Operator, Connection, Read, ReadMany, Write, WriteMany};
    use Verb::*;
    macro_rules! counted {
        ($class:expr, $name:literal) => {
            const { Counted::of_memcached($class, $name) }
        };
    }
    let is_many = request.keys.len() > 1;
    match request.head.verb {
        Get if is_many => counted!(ReadMany, "get"),
        Get => counted!(Read, "get"),
        Debug if is_many => counted!(ReadMany, "me"),
        Debug => counted!(Read, "me"),
        GetTouch if is_many => counted!(WriteMany, "gat"),
        GetTouch => counted!(Write, "gat"),
        Set => counted!(Write, "set"),
        Add => counted!(Write, "add"),
        Replace => counted!(Write, "replace"),
        Append => counted!(Write, "append"),
        Prepend => counted!(Write, "prepend"),
        Cas => counted!(Write, "cas"),
        Delete => counted!(Write, "delete"),
        Incr => counted!(Write, "incr"),
        Decr => counted!(Write, "decr"),
        Touch => counted!(Write, "touch"),
        Quit => counted!(Connection, "quit"),
        Noop => counted!(Connection, "noop"),
        Version => counted!(Connection, "version"),
        Verbosity => counted!(Connection, "verbosity"),
        SaslList => counted!(Connection, "sasl_list"),
        SaslStart => counted!(Connection, "sasl_start"),
        SaslStep => counted!(Connection, "sasl_step"),
        FlushAll => counted!(Operator, "flush_all"),
        Stats => counted!(Operator, "stats"),
        CacheMemlimit => counted!(Operator, "cache_memlimit"),
        Shutdown => counted!(Operator, "shutdown"),
        Verb::Admin => counted!(Operator, "admin"),
    }
}

/// Memory for splitting one request, reused by the next.
#[derive(Default)]
pub(in crate::core) struct Scratch {
    /// The fragment of each key.
    pub(super) owners: Vec<u16>,
    /// The fragment of each server, or in a cluster of each slot, or [`NO_FRAGMENT`].
    pub(super) fragments: Vec<u16>,
    /// The server of each fragment.
    pub(super) servers: Vec<u16>,
    /// The keys of one fragment, as positions in the request.
    pub(super) positions: Vec<u32>,
}

/// The return of a server that this worker has begun.
pub(super) struct UnderWay {
    pub(super) id: BackendId,
    /// The connection on which the server is asked. The usual one may be blocked when a return
    /// begins, and free later.
    pub(super) asked_on: ConnectionKey,
    pub(super) returning: Returning,
}

/// The state of a worker for servers that return after an ejection.
#[derive(Default)]
pub(super) struct Returns {
    pub(super) under_way: Vec<UnderWay>,
    /// The answers of the server whose bytes are being read.
    pub(super) heard: Vec<(Internal, Answer)>,
    /// The reason why the returning server is clean, while its return is being logged.
    pub(super) cleaned: Option<Cleaned>,
}

/// The number of items that a worker copies now, and the requests that wait to copy more.
#[derive(Default)]
pub(super) struct Copying {
    pub(super) begun: usize,
    pub(super) held_up: VecDeque<Key<Operation>>,
}

impl Copying {
    /// Returns the number of items in flight, and of requests that wait to bring more.
    fn len(&self) -> usize {
        self.begun + self.held_up.len()
    }
}

/// The part of an old pool in a request for the new one.
pub(super) enum Warm {
    /// Items that the new pool misses are brought over.
    Watched,
    /// The old pool has been dealt with.
    Resumed {
        /// The destination of the reply.
        to_client: ReplyTo,
        /// Set when the old pool had the item that the request deletes.
        is_deleted: bool,
    },
}

impl Warm {
    /// Notes this in the memcached join that answers the request.
    pub(super) fn mark(&self, memcached_join: &mut MemcachedJoin, bytes: &[u8]) {
        match self {
            Warm::Watched => memcached_join.watched = Some(bytes.to_vec()),
            Warm::Resumed { is_deleted, .. } => memcached_join.is_deleted = *is_deleted,
        }
    }
}
