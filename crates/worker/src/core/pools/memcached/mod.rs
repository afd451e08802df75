//! Clients of memcached: their bytes become requests, which the store or the
//! servers of a pool answer.

mod access;
mod admission;
mod ahead;
mod codec;
mod local;
mod pool;
mod redis;
mod returns;
mod routes;
mod store;
mod warm;

pub(in crate::core) use access::was_let;
use keyway_proxy::WaitFor;

use crate::core::request::Step;
use crate::core::{Connections, Plane};
use crate::{Plan, PoolKind, PoolPlan, ShardedPlan};
use keyway_base::{Fault, Key, Time};
use keyway_command::{Class, Counted};
use keyway_memcache::{
    Asker, Dialect, ErrorKind, Head, Outcome, Request, Verb, Wire, compose_request, write_reply,
};
use keyway_proxy::memcached::MemcachedJoinPool;
use keyway_proxy::{Busy, ReplyTo, Session};

/// Longest item of a client that has not said its password yet, in bytes.
const UNAUTHENTICATED_LEN_MAX: u32 = 4 << 10;

/// What a worker needs for clients of memcached.
#[derive(Default)]
pub(in crate::core) struct State {
    copying: warm::Copying,
    joins_free: MemcachedJoinPool,
    scratch: pool::Scratch,
    ahead: ahead::Ahead,
    returns: returns::Returns,
}

impl State {
    /// Number of items on their way from one pool to another, and of requests that wait to bring
    /// more.
    pub(in crate::core) fn item_copies(&self) -> usize {
        self.copying.len()
    }
}

/// A request with who has sent it.
struct Call<'a> {
    key: Key<Session>,
    session: &'a mut Session,
    busy: &'a mut Busy,
    request: &'a Request,
    /// What it was parsed from, and nothing else.
    bytes: &'a [u8],
    /// What an old pool has to do with it.
    warm: Option<warm::Warm>,
}

impl Call<'_> {
    /// Reserves the index of its reply.
    #[inline]
    fn reserve(&mut self) -> u32 {
        match self.warm {
            Some(warm::Warm::Resumed { to_client: ReplyTo { reply: Some(reply), .. }, .. }) => {
                reply
            }
            _ => self.busy.order.reserve(),
        }
    }

    /// Whose reply it gets; of a request that was not taken before, parsed at `now`.
    #[inline]
    fn reply_to(&mut self, now: Time) -> ReplyTo {
        match self.warm {
            Some(warm::Warm::Resumed { to_client, .. }) => to_client,
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
    fn is_resumed(&self) -> bool {
        matches!(self.warm, Some(warm::Warm::Resumed { .. }))
    }

    fn head(&self) -> &Head {
        &self.request.head
    }

    fn counted(&self) -> Counted {
        counted_as(self.request)
    }

    fn asker(&self) -> Asker<'_> {
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
fn wire_of(head: &Head) -> Wire {
    if head.dialect == Dialect::Binary { Wire::Binary } else { Wire::Text }
}

/// Appends a line that deletes an item and is not answered; whether there is one.
#[cold]
fn write_quiet_delete(out: &mut Vec<u8>, key: &[u8]) -> bool {
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

impl Plane {
    /// Starts one request.
    #[inline]
    fn dispatch_memcached(
        &mut self,
        links: &mut Connections,
        (plan, pool): (&Plan, &PoolPlan),
        call: &mut Call<'_>,
    ) -> Step {
        let request = call.request;
        if !call.session.identity.is_free
            && let Some(step) = self.look_at_memcached(links, call, &request.head)
        {
            return step;
        }
        self.start_memcached(links, (plan, pool), call)
    }

    /// The same with one that its client may make.
    #[inline]
    fn start_memcached(
        &mut self,
        links: &mut Connections,
        (plan, pool): (&Plan, &PoolPlan),
        call: &mut Call<'_>,
    ) -> Step {
        if !pool.pause.is_unused() && self.holds_back_memcached(pool, call) {
            return Step::Wait;
        }
        self.batch += 1;
        if let Some(step) = self.answer_memcached_locally(pool, call) {
            return step;
        }
        if let PoolKind::Routed(routes) = &pool.kind {
            return self.route_memcached(links, plan, (pool, routes), call);
        }
        self.dispatch_to(links, pool, call)
    }

    /// Starts a request to a store or to servers.
    #[inline]
    fn dispatch_to(
        &mut self,
        links: &mut Connections,
        pool: &PoolPlan,
        call: &mut Call<'_>,
    ) -> Step {
        match &pool.kind {
            PoolKind::Store(store) => self.serve_memcached((pool, store), call),
            PoolKind::Sharded(ShardedPlan { upstream, .. }) | PoolKind::Sentinels(upstream) => {
                self.send_to_redis(links, (pool, &upstream.servers), call)
            }
            PoolKind::Memcached(plan) => {
                let servers = &plan.upstream.servers;
                if let Some(warm_up) = &plan.warm_up {
                    return self.warm_memcached(
                        links,
                        (pool, servers, warm_up),
                        plan.dialect,
                        call,
                    );
                }
                self.send_memcached(links, (pool, servers), plan.dialect, call)
            }
            PoolKind::Cluster(plan) | PoolKind::Replicated(plan) => {
                if self.awaits_map_for((call.key, call.session)) {
                    return Step::Wait;
                }
                self.send_to_redis(links, (pool, &plan.upstream.servers), call)
            }
            // Pools that lead on are followed to their ends.
            PoolKind::Routed(_) => self.tell_unrouted(pool, call),
        }
    }

    /// Whether a pause of the pool holds a request back; the session is then
    /// resumed at its end.
    #[cold]
    fn holds_back_memcached(&mut self, pool: &PoolPlan, call: &mut Call<'_>) -> bool {
        self.commit_shown();
        self.holds_back_led_memcached(pool, call)
    }

    /// The same for a pool that others led it to.
    #[cold]
    fn holds_back_led_memcached(&mut self, pool: &PoolPlan, call: &mut Call<'_>) -> bool {
        let verb = call.request.head.verb;
        let Some(until) = pool.pause.holds_plain(writes(verb), self.clock.now) else {
            if pool.pause.is_monitored() {
                self.show_memcached((call.key, call.session), call.request, call.bytes);
            }
            return false;
        };
        self.clients.held_back.push((call.key, call.session.pool));
        self.plan.clients.set_paused(call.session.identity.id, true);
        call.session.waits_for = Some(WaitFor::Pause);
        self.note_deadline(Some(until));
        true
    }

    fn count_memcached(&self, call: &Call<'_>) {
        if !call.is_resumed() {
            self.request_cells(call.session.pool, call.counted()).call();
        }
    }

    /// Puts a reply that is known now into its place.
    fn tell_memcached(&mut self, call: &mut Call<'_>, outcome: &Outcome<'_>) {
        let place = call.reserve();
        let asker = Asker {
            head: &call.request.head,
            key: if call.request.keys.is_empty() { b"" } else { call.request.key(call.bytes, 0) },
            meta: call.request.meta.of(call.bytes),
        };
        call.busy.order.complete(place, &mut call.busy.output, |out| {
            write_reply(out, &asker, outcome);
        });
    }

    /// Answers with an error that is the client's own doing.
    #[cold]
    fn deny_memcached(&mut self, call: &mut Call<'_>, text: &str) {
        self.cells.pool(usize::from(call.session.pool)).refused.of(Fault::Denied).add(1);
        let error = Outcome::Error { kind: ErrorKind::Client, text: text.as_bytes() };
        self.tell_memcached(call, &error);
    }
}
