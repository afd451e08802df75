use crate::core::clients::WaitOn;
use crate::core::front::access::{is_failed_login, local_context};
use crate::core::pools::SharedLinks;
use crate::core::pools::cluster::{FENCE_LOOK, Fenced, Reader};
use crate::core::pools::servers::tracking::forget_caching;
use crate::core::pools::store::transactions::unserved;
use crate::core::request::PoolInPlan;
use crate::core::request::Step;
use crate::core::request::{BusyClient, ClientMut, ClientRef, RequestContext};
use crate::core::upstream::bypass::late_apart;
use crate::core::{ConnectionKey, Connections, Plane};
use crate::{MemcachedPlan, PoolKind, PoolPlan, ShardedPlan};
use keyway_base::{ByteRange, Fault};
use keyway_command::{Args, Handling, Refusal, Request, Verb};
use keyway_proxy::local::{self, After};
use keyway_proxy::{Busy, Owner, Session, Translation, write_fault};
use keyway_resp::{Protocol, reply};
use keyway_route::{Route, route};
use keyway_store::Store;
use keyway_topology::{Distribution, ServerSet};
use std::time::Duration;

impl Plane {
    /// Starts one request in the session's pool. `frame` is its wire form, `ranges` are its
    /// arguments.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "once per request; one of its two callers is cold")]
    pub(in crate::core) fn dispatch(
        &mut self,
        links: &mut Connections,
        PoolInPlan { plan, pool }: PoolInPlan<'_>,
        ClientMut { key, session }: ClientMut<'_>,
        busy: &mut Busy,
        frame: &[u8],
        ranges: &[ByteRange],
    ) -> Step {
        if ranges.is_empty() {
            return Step::Started;
        }
        let args = Args::new(frame, ranges);
        let request = match Request::resolve(args) {
            Ok(request) => request,
            Err(_) if is_http(&args) => {
                self.end_http(session);
                return Step::Started;
            }
            Err(refusal) => {
                let client = BusyClient { key, session, busy };
                self.refuse_unresolved(links, client, args, refusal);
                return Step::Started;
            }
        };
        if !session.identity.is_free
            && !session.identity.passes(&request)
            && let Some(step) = self.look_at(links, ClientMut { key, session }, busy, &request)
        {
            return step;
        }
        let mut incoming = RequestContext { key, session, busy, request: &request };
        if incoming.session.subscriptions.is_some()
            && let Some(step) = self.check_subscriber(&mut incoming)
        {
            return step;
        }
        if !pool.pause.is_unused() {
            if self.refuses_fenced(pool, &mut incoming) {
                return Step::Started;
            }
            if self.holds_back(pool, &mut incoming) {
                return Step::Wait;
            }
        }
        self.batch += 1;
        self.last_verb = Some(request.command.verb);
        let (upstream, finds_servers) = match &pool.kind {
            PoolKind::Store(store) => return self.serve(links, pool, store, &mut incoming),
            PoolKind::Routed(routes) => {
                return self.dispatch_routed(links, plan, pool, routes, &mut incoming);
            }
            PoolKind::Sharded(ShardedPlan { upstream, .. })
            | PoolKind::Memcached(MemcachedPlan { upstream, .. })
            | PoolKind::Sentinels(upstream) => (upstream, false),
            PoolKind::Cluster(plan) | PoolKind::Replicated(plan) | PoolKind::Slots(plan) => {
                (&plan.upstream, true)
            }
        };
        if finds_servers && self.awaits_map(&mut incoming) {
            return Step::Wait;
        }
        if incoming.session.is_special() {
            return self.dispatch_special(links, pool, &upstream.servers, &mut incoming);
        }
        self.send_on::<false>(links, pool, &upstream.servers, &mut incoming)
    }

    /// Starts a request in a pool to which others led it.
    #[inline(never)]
    pub(in crate::core) fn dispatch_led(
        &mut self,
        links: &mut Connections,
        pool: &PoolPlan,
        incoming: &mut RequestContext,
    ) -> Step {
        // The lines that other pools hold for this request are shown when it starts, and not before.
        if !pool.pause.is_unused() {
            if self.refuses_fenced(pool, incoming) {
                return Step::Started;
            }
            if self.holds_back_led(pool, incoming) {
                return Step::Wait;
            }
        }
        let (upstream, finds_servers) = match &pool.kind {
            PoolKind::Store(store) => return self.serve(links, pool, store, incoming),
            // Pools that lead on are followed to their ends.
            PoolKind::Routed(_) => return self.answer_unrouted(incoming),
            PoolKind::Sharded(ShardedPlan { upstream, .. })
            | PoolKind::Memcached(MemcachedPlan { upstream, .. })
            | PoolKind::Sentinels(upstream) => (upstream, false),
            PoolKind::Cluster(plan) | PoolKind::Replicated(plan) | PoolKind::Slots(plan) => {
                (&plan.upstream, true)
            }
        };
        if finds_servers && self.awaits_map(incoming) {
            return Step::Wait;
        }
        self.send_on::<false>(links, pool, &upstream.servers, incoming)
    }

    /// Starts a request of a session that has begun something.
    #[cold]
    fn dispatch_special(
        &mut self,
        links: &mut Connections,
        pool: &PoolPlan,
        sharded: &ServerSet,
        incoming: &mut RequestContext,
    ) -> Step {
        if incoming.session.tracking.is_some() {
            return self.dispatch_tracked(links, pool, sharded, incoming);
        }
        if let Some(step) = self.dispatch_at_writer(links, incoming) {
            return step;
        }
        match self.dispatch_stateful(links, incoming) {
            Some(step) => step,
            None => self.send_on::<false>(links, pool, sharded, incoming),
        }
    }

    /// Starts a request of a session that has begun something, in a pool that is a store. Returns
    /// `None` if the store executes the request like any other.
    #[cold]
    pub(in crate::core) fn dispatch_special_on_store(
        &mut self,
        links: &mut Connections,
        store: &Store,
        incoming: &mut RequestContext,
    ) -> Option<Step> {
        match self.dispatch_at_writer(links, incoming) {
            Some(step) => Some(step),
            None => self.serve_special(links, store, incoming),
        }
    }

    /// Forwards a request to the servers of its pool, or answers it. `TRACKED` is for a session
    /// that is tracked, so that no other has to look for links of its own.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "once per request, called from few places")]
    pub(in crate::core) fn send_on<const TRACKED: bool>(
        &mut self,
        links: &mut Connections,
        pool: &PoolPlan,
        sharded: &ServerSet,
        incoming: &mut RequestContext,
    ) -> Step {
        let random = match sharded.distribution {
            Distribution::Random => self.next_random() as u32,
            _ => 0,
        };
        let own = &self.pools[usize::from(incoming.session.pool)];
        let Some(state) = own.servers() else { return self.answer_unrouted(incoming) };
        let route = route(incoming.request, sharded, state.ring(), random, &mut self.keys);
        if let (Route::One(server), true) = (route, own.readers().is_some()) {
            let shared = *state.shared();
            return self.send_to_reader(links, incoming, &shared, server);
        }
        if let Route::One(server) = route {
            let link = match TRACKED {
                true => self.link_of(state.shared(), incoming.session, server),
                false => {
                    state.link(server, incoming.session.lane, incoming.session.identity.protocol)
                }
            };
            return self.forward(links, incoming, link);
        }
        self.send_elsewhere(links, pool, incoming, route)
    }

    /// Sends a request to a server that may answer it, in a pool whose replicas are read.
    #[inline(never)]
    fn send_to_reader(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        shared: &SharedLinks,
        primary: u16,
    ) -> Step {
        let reads = self.reads_replicas(incoming);
        let server = match reads.then(|| self.reader_of(links, incoming.session, primary)) {
            None | Some(Reader::Primary) => primary,
            Some(Reader::At(server)) => server,
            Some(Reader::None) => return self.answer_unrouted(incoming),
        };
        let link = self.link_of(shared, incoming.session, server);
        self.set_reading(links, link, server != primary);
        let before = links[link].link.in_flight();
        let step = self.forward(links, incoming, link);
        if reads && links[link].link.in_flight() > before {
            self.note_read(&mut links[link]);
        }
        step
    }

    /// Does the same for requests that do not go whole to one server.
    #[inline(never)]
    fn send_elsewhere(
        &mut self,
        links: &mut Connections,
        pool: &PoolPlan,
        incoming: &mut RequestContext,
        route: Route,
    ) -> Step {
        match route {
            Route::Block(server) => self.block(links, incoming, server),
            Route::Transaction => self.transact(links, incoming),
            Route::Tracking => self.track(links, incoming),
            Route::Local if is_operation(incoming.request) => self.operate(links, incoming),
            Route::Local if is_greeting(incoming.session, incoming.request) => {
                self.greet(links, incoming)
            }
            Route::Split(split) => self.split(links, incoming, split),
            Route::Everywhere(join) => self.send_everywhere(links, incoming, join),
            Route::Across(across) => self.across(links, incoming, across),
            Route::PubSub => self.pubsub(links, incoming),
            Route::Local => self.answer_without_server(incoming, pool),
            Route::Unrouted if self.awaits_owner(incoming) => Step::Wait,
            refused => self.refuse_route(incoming, pool, refused),
        }
    }

    /// Answers an invalid request, or one with a wrong number of arguments. That invalidates an
    /// open transaction, and an `EXEC` ends it.
    #[cold]
    fn refuse_unresolved(
        &mut self,
        links: &mut Connections,
        BusyClient { key, session, busy }: BusyClient<'_>,
        args: Args,
        refusal: Refusal,
    ) {
        let is_exec = matches!(refusal, Refusal::Arity(command) if command.verb == Verb::Exec);
        let is_open =
            session.stateful.as_mut().is_some_and(|stateful| stateful.transaction.is_some());
        if is_exec && is_open {
            self.end_transaction(links, key, session);
            let text = "EXECABORT Transaction discarded because of: wrong number of arguments for \
                        'exec' command";
            return self.refuse(session, busy, |out| reply::error(out, text));
        }
        if let Some(stateful) = &mut session.stateful {
            stateful.refuse();
        }
        forget_caching(session);
        self.refuse(session, busy, |out| refusal.write_error(args, out));
    }

    /// Returns whether a pause of the pool holds a request back. The session is then resumed at its
    /// end.
    #[cold]
    fn holds_back(&mut self, pool: &PoolPlan, incoming: &mut RequestContext) -> bool {
        self.commit_shown();
        self.holds_back_led(pool, incoming)
    }

    /// Refuses a request for slots that move, if it has waited for long enough. Returns whether it did.
    #[cold]
    fn refuses_fenced(&mut self, pool: &PoolPlan, incoming: &mut RequestContext) -> bool {
        let is_over = self.is_fenced(pool, incoming) == Some(Fenced::IsOver);
        if is_over {
            let text = "TRYAGAIN the slot of the key moves to another group, and that is not over \
                        yet; try again";
            if incoming.request.command.verb != Verb::Exec
                && let Some(stateful) = &mut incoming.session.stateful
            {
                stateful.refuse();
            }
            let _ = self.refuse_request(incoming, text);
        }
        is_over
    }

    /// Does the same for a pool to which others led it.
    #[cold]
    pub(in crate::core) fn holds_back_led(
        &mut self,
        pool: &PoolPlan,
        incoming: &mut RequestContext,
    ) -> bool {
        let until = pool.pause.holds(incoming.request, self.clock.now);
        let until = until.filter(|_| !self.is_restoring && !self.spares(pool, incoming));
        let until = until.or_else(|| {
            let is_fenced = !self.is_restoring && self.is_fenced(pool, incoming).is_some();
            is_fenced.then(|| self.clock.now + FENCE_LOOK)
        });
        let RequestContext { key, session, request, .. } = incoming;
        let key = *key;
        if let Some(until) = until {
            self.wait_for(ClientMut { key, session }, WaitOn::pause_of(pool, until));
        } else if session.is_monitor && request.command.verb == Verb::Reset {
            self.end_monitor(key, session);
        } else if pool.pause.is_monitored() && !self.is_restoring {
            self.show_request(ClientRef { key, session }, request);
        }
        until.is_some()
    }

    /// Sends a complete request through a link.
    #[inline]
    pub(in crate::core) fn forward(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        index: ConnectionKey,
    ) -> Step {
        if let Some(late) = late_apart(links, incoming, index) {
            return Step::Full(late);
        }
        let RequestContext { key, session, busy, request } = incoming;
        let key = *key;
        let connection = &mut links[index];
        if self.is_full(connection) {
            return Step::Full(index);
        }
        self.started(session.pool, request.command.counted());
        if let Some(fault) = self.refused(connection) {
            let backend = self.describe_backend(connection.server_id);
            session.note_fault(fault);
            self.count_fault(session.pool, request.command.counted(), fault);
            self.executed(session.pool, request.command.counted());
            self.answer(session, busy, |out| write_fault(fault, &backend, out));
            return Step::Started;
        }
        self.prepare_link(index, connection, session.identity.database);
        let frame = request.args.buf();
        connection.link.request_buf().extend_from_slice(frame);
        let owner = match Self::is_silent(session) {
            false => Owner::Session { session: key, sequence: busy.order.reserve() },
            true => Self::unheard(key, session, busy),
        };
        Self::end_skip(session);
        connection.link.enqueue(owner, request.command.counted(), frame.len(), self.clock.now);
        if connection.link.protocol() == Protocol::Resp3 {
            connection.link.set_translation(Translation::of(request));
        }
        self.note_unsent(index, connection);
        Step::Started
    }

    /// Answers what needs no server.
    pub(in crate::core) fn answer_without_server(
        &mut self,
        incoming: &mut RequestContext,
        pool: &PoolPlan,
    ) -> Step {
        let RequestContext { session, busy, request, .. } = &mut *incoming;
        if request.command.handling != Handling::Local {
            let name = request.command.name.replace('|', " ");
            let text = unserved(&name, request.command.handling);
            return self.refuse_request(incoming, &text);
        }
        let listener = &self.plan.listeners[usize::from(session.listener)];
        if listener.cluster.is_none() && local::is_about_cluster(request.command.verb) {
            return self.refuse_request(incoming, local::NO_CLUSTER);
        }
        self.served(session.pool, request.command.counted());
        self.observe.served.count_calls(&self.cells);
        let was_silent = Self::is_silent(session);
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let after = self.compose_local(session, pool, request, &mut out);
        // CLIENT REPLY ON is itself answered; OFF and SKIP are not, and SKIP is
        // about the request behind it.
        if !Self::is_silent(session) {
            let reply_index = busy.order.reserve();
            busy.order.complete(reply_index, &mut busy.output, |dest| {
                pool.errors.watch(dest, |dest| dest.extend_from_slice(&out));
            });
        } else {
            let is_error = out.first() == Some(&b'-');
            if is_error {
                pool.errors.note(&out);
            }
            if was_silent && (request.command.verb != Verb::ClientReply || is_error) {
                Self::end_skip(session);
            }
        }
        self.scratch = out;
        self.follow(session, pool, after);
        Step::Started
    }

    /// Appends the reply to a request that needs no server.
    pub(in crate::core) fn compose_local(
        &self,
        session: &mut Session,
        pool: &PoolPlan,
        request: &Request,
        out: &mut Vec<u8>,
    ) -> After {
        let start = out.len();
        let mut context = local_context(&self.plan, self.clock, pool, session);
        let after = local::answer(request, &mut context, out);
        if is_failed_login(request, &out[start..]) {
            self.tell_failed_login(session);
        }
        if matches!(request.command.verb, Verb::Auth | Verb::Hello | Verb::Reset) {
            self.note_stranger(session);
        }
        after
    }

    /// Does what a request that the worker answered requires.
    pub(in crate::core) fn follow(&mut self, session: &mut Session, pool: &PoolPlan, after: After) {
        match after {
            After::Continue => {}
            After::Close => session.closing = true,
            After::Kill(mut ids) => {
                if let Some(own) = ids.iter().position(|&id| id == session.identity.id) {
                    ids.swap_remove(own);
                    session.closing = true;
                }
                self.clients.kills.extend(ids);
            }
            After::Unblock(unblock) => self.clients.unblocks.push(unblock),
            After::Pause { millis, writes_only } => {
                let now = self.clock.now;
                pool.pause.extend(now + Duration::from_millis(millis), writes_only, now);
            }
            After::Unpause => pool.pause.stop(),
        }
    }

    /// Ends a client that uses HTTP, without a reply: a web page can make a browser send requests
    /// to any port, with commands in the body.
    #[cold]
    fn end_http(&mut self, session: &mut Session) {
        let pool = &self.plan.pools[session.pool as usize].name;
        self.cells.pool(session.pool as usize).refused.of(Fault::Client).add(1);
        session.closing = true;
        session.broken = true;
        if self.plan.notices.http.is_due(self.clock.now) {
            let client = &*session.identity.addr;
            tracing::warn!(
                pool,
                client,
                "a client spoke HTTP (POST or Host:) and was disconnected; what it sent after that \
                 was not executed; a web page may be sending commands through a browser; logged at \
                 most once a minute"
            );
        }
    }
}

/// Returns whether a request that is otherwise local asks servers or shows requests.
fn is_operation(request: &Request) -> bool {
    matches!(request.command.verb, Verb::Info | Verb::Wait | Verb::Monitor)
}

/// Returns whether a request may change the protocol of its session, or its reply mode.
fn is_greeting(session: &Session, request: &Request) -> bool {
    match request.command.verb {
        Verb::Hello => request.args.len() > 1,
        // A reply that is not sent has no index after a script that may have to be run again.
        Verb::ClientReply => true,
        Verb::Reset => {
            session.identity.protocol != Protocol::default() || session.tracking.is_some()
        }
        _ => false,
    }
}

/// Returns whether a request is the first or a later line of an HTTP request, whatever its framing.
#[cold]
fn is_http(args: &Args) -> bool {
    args.get(0).is_some_and(|word| {
        word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
    })
}
