//! Clients of memcached: their bytes become requests, which the store or the
//! servers of a pool answer.

mod access;
mod admission;
mod ahead;
mod local;
mod pool;
mod redis;
mod returns;
mod routes;
mod store;
mod warm;

pub(in crate::core) use access::was_let;
use keyway_proxy::WaitFor;

use crate::core::front::input::{NextRequest, Step, waited_for_room};
use crate::core::{Connections, Plane};
use crate::{Plan, PoolKind, PoolPlan, ShardedPlan};
use keyway_base::{Fault, Key, Time};
use keyway_command::{Class, Counted};
use keyway_memcache::{
    Asker, Dialect, ErrorKind, Head, Outcome, ParseLimits, Parsed, Request, RequestFault, Verb,
    Wire, compose_request, parse_request, write_reply,
};
use keyway_proxy::memcached::MemcachedJoinPool;
use keyway_proxy::{Busy, ReplyTo, Session};
use std::sync::Arc;

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
    /// Starts the requests in `bytes`, as many as there is room for. Returns
    /// how many bytes they took.
    #[inline(never)]
    pub(in crate::core) fn parse_memcached(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        bytes: &[u8],
    ) -> usize {
        let mut requests = std::mem::take(&mut self.memcached.ahead);
        requests.forget();
        let was_paused = std::mem::replace(&mut session.paused, false);
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[usize::from(session.pool)];
        self.choose_lane(links, (key, session), busy);
        let mut pos = 0;
        let mut next = NextRequest::of(session, self.clients.rereading == Some(key));
        let may_have_waited = next.was_full || self.cluster.has_waiting();
        let (mut is_full, mut is_held_up, mut since) = (false, false, None);
        let waited = self.waited_in_vain(key);
        let led_from = std::mem::replace(&mut self.cluster.waited, waited);
        busy.input_needed = 0;
        while pos < bytes.len() {
            if session.closing {
                pos = bytes.len();
                break;
            }
            let is_held = session.is_fenced(busy);
            if is_held || !busy.has_room(&plan.limits, session.reply_size) {
                // The client itself holds its request up now, for as long as it likes, unless the
                // worker keeps it from overtaking those before it.
                is_held_up = !is_held || !self.waits_in_order(session);
                if is_held_up {
                    next.is_new = true;
                } else if std::mem::take(&mut next.is_new) {
                    (session.full_since, is_full) = (Some(self.clock.now), true);
                }
                session.paused = true;
                break;
            }
            session.lift_fence();
            let rest = &bytes[pos..];
            let Some(client) = &mut session.memcached else { break };
            if client.skip > 0 {
                let dropped =
                    usize::try_from(client.skip).map_or(rest.len(), |skip| skip.min(rest.len()));
                client.skip -= dropped as u64;
                pos += dropped;
                continue;
            }
            let wire = *client.wire.get_or_insert_with(|| Wire::of(rest[0]));
            let len_max = match session.identity.authenticated {
                true => client.item_len_max,
                false => client.item_len_max.min(UNAUTHENTICATED_LEN_MAX),
            };
            let limits = ParseLimits::of(&plan.limits, len_max);
            if pos > 0
                && session.identity.authenticated
                && let Some(store) = pool.kind.store()
            {
                requests.look_ahead(store, rest, (wire, &limits));
            }
            let parsed = requests.next(rest, wire, &limits);
            let request = requests.request();
            let consumed = match parsed {
                Parsed::Ready { consumed } => consumed,
                Parsed::NeedMore { at_least } => {
                    busy.input_needed = at_least;
                    break;
                }
                Parsed::Refused { consumed, skip, fault } => {
                    if fault == RequestFault::ValueTooLarge {
                        let whose = (key, &mut *session, &mut *busy);
                        let step = self.forget_refused(
                            links,
                            (&plan, pool),
                            whose,
                            (request, rest, &mut next),
                        );
                        is_full = matches!(step, Step::Full(_) | Step::Crowded);
                        if self.has_to_wait(links, (key, session), step) {
                            break;
                        }
                    }
                    if let Some(client) = &mut session.memcached {
                        client.skip = skip;
                    }
                    pos += consumed;
                    self.refuse_memcached(session, busy, request, fault);
                    continue;
                }
            };
            let bytes = &rest[..consumed];
            let mut call = Call { key, session, busy, request, bytes, warm: None };
            let step = self.dispatch_memcached(links, (&plan, pool), &mut call);
            if self.is_refused_late(links, &mut call, (&step, &mut next)) {
                pos += consumed;
                if matches!(step, Step::Full(_)) {
                    next = NextRequest::BEHIND_REFUSED;
                }
                continue;
            }
            is_full = matches!(step, Step::Full(_) | Step::Crowded);
            if self.has_to_wait(links, (key, session), step) {
                break;
            }
            if pos == 0 && may_have_waited {
                since = self.waited_since((key, &*session));
                if self.cluster.waited.is_some() {
                    self.end_wait_in_vain(key);
                }
            } else if next.was_full && since.is_none() {
                since = waited_for_room(session);
            }
            next.is_new = true;
            pos += consumed;
            if self.observe.hot_keys.is_due(consumed) {
                self.note_memcached(pool, session, request, bytes);
            }
        }
        if let Some(since) = since {
            self.bring_waited(links, key, since);
        }
        // The first request has waited, also if it was refused and the next one has started.
        let has_waited = since.is_some() || !next.is_new || (next.was_full && pos > 0);
        let is_over = next.is_new || (pos > 0 && !is_full);
        self.settle_wait((key, session), is_over, has_waited && !is_held_up);
        session.identity.live.note_request(None, self.clock.now);
        if session.paused && !was_paused {
            self.cells.pool(usize::from(session.pool)).clients.pauses.add(1);
        }
        self.memcached.ahead = requests;
        self.cluster.waited = led_from;
        pos
    }

    /// Refuses a request that has found no room on a link within `timeout`. Returns whether it did.
    #[inline]
    fn is_refused_late(
        &mut self,
        links: &mut Connections,
        call: &mut Call<'_>,
        (step, next): (&Step, &mut NextRequest),
    ) -> bool {
        let link = match *step {
            Step::Full(link) => link,
            Step::Crowded => return self.is_refused_crowded(call, next),
            Step::Started | Step::Wait => return false,
        };
        if self.is_gone(&links[link]) {
            return false;
        }
        self.note_no_room(&links[link], call.session, next);
        let connection = &mut links[link];
        let Some(fault) = self.lateness(connection, call.session) else { return false };
        self.retract_shown(call.key);
        let backend = self.describe_backend(connection.pool, connection.backend);
        self.tell_failure(call, fault, &backend);
        true
    }

    /// The same for one that finds no room among those on their way over other pools.
    #[cold]
    fn is_refused_crowded(&mut self, call: &mut Call<'_>, next: &mut NextRequest) -> bool {
        if std::mem::take(&mut next.is_new) {
            call.session.full_since = Some(self.clock.now);
        }
        let Some(text) = self.crowded_too_long(call.session) else { return false };
        self.retract_shown(call.key);
        self.cells.pool(usize::from(call.session.pool)).refused.of(Fault::Denied).add(1);
        let words = text.strip_prefix("ERR ").unwrap_or(&text);
        let error = Outcome::Error { kind: ErrorKind::Server, text: words.as_bytes() };
        self.tell_memcached(call, &error);
        true
    }

    /// Whether a request could not be started; its session is resumed when it can.
    #[inline]
    fn has_to_wait(
        &mut self,
        links: &mut Connections,
        (key, session): (Key<Session>, &mut Session),
        step: Step,
    ) -> bool {
        match step {
            Step::Started => return false,
            Step::Wait => {}
            Step::Crowded => self.wait_among_routed_requests(key, session),
            Step::Full(link) if self.waits_for_primary(links, link, (key, session)) => {}
            Step::Full(link) => {
                if session.waits_for.is_none() {
                    session.waits_for = Some(WaitFor::Connection);
                    links[link].waiting.push(key);
                }
            }
        }
        self.retract_shown(key);
        session.paused = true;
        true
    }

    /// Deletes what was to be replaced by a value that is refused for its length, as memcached
    /// does: nobody is to go on reading what is out of date.
    #[cold]
    fn forget_refused(
        &mut self,
        links: &mut Connections,
        (plan, pool): (&Plan, &PoolPlan),
        (key, session, busy): (Key<Session>, &mut Session, &mut Busy),
        (refused, bytes, next): (&Request, &[u8], &mut NextRequest),
    ) -> Step {
        let is_wanted = refused.head.verb == Verb::Set && !refused.keys.is_empty();
        if !is_wanted || !session.identity.authenticated {
            return Step::Started;
        }
        let (mut request, mut line) = (Request::default(), Vec::new());
        let name = refused.key(bytes, 0);
        if !write_quiet_delete(&mut line, name) {
            return Step::Started;
        }
        let limits = ParseLimits::of(&plan.limits, 0);
        let parsed = parse_request(&line, Wire::Text, &limits, &mut request);
        let is_whole = parsed == Parsed::Ready { consumed: line.len() };
        if !is_whole || !request.keys(&line).eq([name]) {
            return Step::Started;
        }
        let mut call = Call { key, session, busy, request: &request, bytes: &line, warm: None };
        // It is a part of what the client asks for.
        if !call.session.identity.is_free
            && let Some(step) = self.look_at_memcached(links, &mut call, &refused.head)
        {
            return step;
        }
        let step = self.start_memcached(links, (plan, pool), &mut call);
        // It is not answered by itself: the value is refused all the same.
        match self.is_refused_late(links, &mut call, (&step, next)) {
            true => Step::Started,
            false => step,
        }
    }

    /// Answers what is no request.
    #[cold]
    fn refuse_memcached(
        &mut self,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
        fault: RequestFault,
    ) {
        let cells = self.cells.pool(usize::from(session.pool));
        let place = busy.order.reserve();
        busy.order.complete(place, &mut busy.output, |out| fault.write(&request.head, out));
        if fault.closes() {
            cells.refused.of(Fault::Client).add(1);
            session.closing = true;
            session.broken = true;
        } else {
            cells.refused.of(Fault::Denied).add(1);
        }
    }

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
