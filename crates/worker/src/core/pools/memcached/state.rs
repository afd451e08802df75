//! A request of a client of memcached, and what a worker remembers of such requests.

use super::ahead::Ahead;
use crate::PoolPlan;
use crate::core::request::ClientMut;
use keyway_base::{Key, Time};
use keyway_command::{Class, Counted};
use keyway_memcache::{Asker, Dialect, Head, Request, Verb, Wire, compose_request};
use keyway_proxy::memcached::{Answer, Cleaned, MemcachedJoin, MemcachedJoinPool, Returning};
use keyway_proxy::{Busy, Internal, Operation, ReplyTo, Session};
use keyway_topology::{BackendId, ServerSet};
use std::collections::VecDeque;

/// Longest item of a client that has not said its password yet, in bytes.
pub(in crate::core::pools::memcached) const UNAUTHENTICATED_LEN_MAX: u32 = 4 << 10;

/// What a worker needs for clients of memcached.
#[derive(Default)]
pub(in crate::core) struct State {
    pub(in crate::core::pools::memcached) copying: Copying,
    pub(in crate::core::pools::memcached) joins_free: MemcachedJoinPool,
    pub(in crate::core::pools::memcached) scratch: Scratch,
    pub(in crate::core::pools::memcached) ahead: Ahead,
    pub(in crate::core::pools::memcached) returns: Returns,
}

impl State {
    /// Number of items on their way from one pool to another, and of requests that wait to bring
    /// more.
    pub(in crate::core) fn item_copies(&self) -> usize {
        self.copying.len()
    }
}

/// A pool that clients of memcached use, and its servers.
#[derive(Clone, Copy)]
pub(in crate::core::pools::memcached) struct PoolServers<'a> {
    pub(in crate::core::pools::memcached) pool: &'a PoolPlan,
    pub(in crate::core::pools::memcached) servers: &'a ServerSet,
}

/// A request of a client of memcached, with that client.
pub(in crate::core::pools::memcached) struct Call<'a> {
    pub(in crate::core::pools::memcached) key: Key<Session>,
    pub(in crate::core::pools::memcached) session: &'a mut Session,
    pub(in crate::core::pools::memcached) busy: &'a mut Busy,
    pub(in crate::core::pools::memcached) request: &'a Request,
    /// What it was parsed from, and nothing else.
    pub(in crate::core::pools::memcached) bytes: &'a [u8],
    /// What an old pool has to do with it.
    pub(in crate::core::pools::memcached) warm: Option<Warm>,
}

impl Call<'_> {
    /// The client that has sent it.
    #[inline]
    pub(in crate::core::pools::memcached) fn client(&mut self) -> ClientMut<'_> {
        ClientMut { key: self.key, session: self.session }
    }

    /// Reserves the index of its reply.
    #[inline]
    pub(in crate::core::pools::memcached) fn reserve(&mut self) -> u32 {
        match self.warm {
            Some(Warm::Resumed { to_client: ReplyTo { reply: Some(reply), .. }, .. }) => reply,
            _ => self.busy.order.reserve(),
        }
    }

    /// Whose reply it gets; of a request that was not taken before, parsed at `now`.
    #[inline]
    pub(in crate::core::pools::memcached) fn reply_to(&mut self, now: Time) -> ReplyTo {
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

    /// Whether it was taken before, so that it is counted and goes on whatever
    /// queues there are.
    #[inline]
    pub(in crate::core::pools::memcached) fn is_resumed(&self) -> bool {
        matches!(self.warm, Some(Warm::Resumed { .. }))
    }

    pub(in crate::core::pools::memcached) fn head(&self) -> &Head {
        &self.request.head
    }

    pub(in crate::core::pools::memcached) fn counted(&self) -> Counted {
        counted_as(self.request)
    }

    pub(in crate::core::pools::memcached) fn asker(&self) -> Asker<'_> {
        let key = if self.request.keys.is_empty() { b"" } else { self.request.key(self.bytes, 0) };
        Asker { head: self.head(), key, meta: self.request.meta.of(self.bytes) }
    }
}

/// Whether it changes or may change what is stored.
pub(in crate::core) fn writes(verb: Verb) -> bool {
    use Verb::*;
    verb.stores() || matches!(verb, Delete | Incr | Decr | Touch | GetTouch | FlushAll)
}

/// The protocol that a request is said in, whatever its client speaks: what is asked in
/// its name is in text.
pub(in crate::core::pools::memcached) fn wire_of(head: &Head) -> Wire {
    if head.dialect == Dialect::Binary { Wire::Binary } else { Wire::Text }
}

/// Appends a line that deletes an item and is not answered; whether there is one.
#[cold]
pub(in crate::core::pools::memcached) fn write_quiet_delete(out: &mut Vec<u8>, key: &[u8]) -> bool {
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

/// What the metrics count it as.
pub(in crate::core::pools::memcached) fn counted_as(request: &Request) -> Counted {
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

/// Room for splitting one request.
#[derive(Default)]
pub(in crate::core) struct Scratch {
    /// Fragment of each key.
    pub(in crate::core::pools::memcached) owners: Vec<u16>,
    /// Fragment of each server, in a cluster of each slot, or [`NO_FRAGMENT`].
    pub(in crate::core::pools::memcached) fragments: Vec<u16>,
    /// Server of each fragment.
    pub(in crate::core::pools::memcached) servers: Vec<u16>,
    /// Keys of one fragment, as positions.
    pub(in crate::core::pools::memcached) positions: Vec<u32>,
}

/// What a worker knows of servers on their way back.
#[derive(Default)]
pub(super) struct Returns {
    pub(in crate::core::pools::memcached) under_way: Vec<(BackendId, Returning)>,
    /// What was heard from the server whose bytes are being read.
    pub(in crate::core::pools::memcached) heard: Vec<(Internal, Answer)>,
    /// Why the server is clean whose return is being told.
    pub(in crate::core::pools::memcached) cleaned: Option<Cleaned>,
}

/// How many items a worker brings over now, and which requests wait to bring more.
#[derive(Default)]
pub(super) struct Copying {
    pub(in crate::core::pools::memcached) begun: usize,
    pub(in crate::core::pools::memcached) held_up: VecDeque<Key<Operation>>,
}

impl Copying {
    /// Number of items on their way, and of requests that wait to bring more.
    pub(super) fn len(&self) -> usize {
        self.begun + self.held_up.len()
    }
}

/// What an old pool has to do with a request on its way to the new one.
pub(super) enum Warm {
    /// What it misses is brought over.
    Watched,
    /// The old pool was seen to.
    Resumed {
        /// Whose reply it gets.
        to_client: ReplyTo,
        /// The old pool had what it deletes.
        is_deleted: bool,
    },
}

impl Warm {
    /// Tells the memcached join that answers the request.
    pub(super) fn mark(&self, memcached_join: &mut MemcachedJoin, bytes: &[u8]) {
        match self {
            Warm::Watched => memcached_join.watched = Some(bytes.to_vec()),
            Warm::Resumed { is_deleted, .. } => memcached_join.is_deleted = *is_deleted,
        }
    }
}
