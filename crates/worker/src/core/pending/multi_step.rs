//! Requests that concern a pool's servers together: scans of all keys, flushes, scripts and
//! functions.
//!
//! A request that goes to every server and is joined is sent by `fan_out`. One that visits one
//! server after the other, or may have to be sent again, is a [`MultiStep`]. If a reply requires
//! another question, this is only noted ([`Due::Next`]): the link of the reply is in use, and the
//! question is sent at the end of the turn.

use super::Due;
use crate::Upstream;
use crate::core::observe::counting::Outcome;
use crate::core::pools::scripts::give_script;
use crate::core::pools::servers::scripts::Preload;
use crate::core::pools::servers::tracking::caching_request;
use crate::core::request::RequestContext;
use crate::core::request::Step;
use crate::core::upstream::bypass::late_apart;
use crate::core::{Connection, ConnectionKey, Connections, Plane};
use keyway_base::{Fault, Key, Slab};
use keyway_command::{Across, Join as Rule, Verb};
use keyway_metrics::Latency;
use keyway_proxy::{
    MultiStep, Next, Operation, Owner, ReplyTo, ScriptStep, Session, Work, write_fault,
};
use keyway_resp::{Kind, reply};
use keyway_route::{CursorFault, ServersInUse, Walk};
use keyway_topology::ServerId;
use std::sync::Arc;

/// How often each server is asked for a random key, where it may have keys of other groups.
const ROUNDS: usize = 8;

impl Plane {
    /// Starts a request that concerns the servers together.
    pub(in crate::core) fn across(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        across: Across,
    ) -> Step {
        match across {
            Across::Scan => self.scan(links, incoming),
            Across::RandomKey => self.random_key(links, incoming),
            Across::Flush => self.flush(links, incoming),
            Across::Load(what) => self.load(links, incoming, what),
            Across::ScriptExists => self.script_exists(links, incoming),
            Across::Unload(what) => self.unload(links, incoming, what),
            Across::Run => self.run_script(links, incoming),
            Across::First => self.ask_first(links, incoming),
        }
    }

    /// Forwards a request about libraries to the first server in use.
    fn ask_first(&mut self, links: &mut Connections, incoming: &mut RequestContext) -> Step {
        let pool = incoming.session.pool;
        let first = self.in_use(pool).first_from(0);
        let (Some(server), Some(shared)) = (first, self.pools[usize::from(pool)].shared()) else {
            return self.answer_unrouted(incoming);
        };
        let link = self.link_of(&shared, incoming.session, server);
        // A server that was restarted gets the known libraries before it lists its own.
        self.give_libraries(link, &mut links[link]);
        self.forward(links, incoming, link)
    }

    fn scan(&mut self, links: &mut Connections, incoming: &mut RequestContext) -> Step {
        let (pool, args) = (incoming.session.pool, incoming.request.args);
        if self.leaves_out(pool) {
            return self.answer_unrouted(incoming);
        }
        let walk = match self.cluster_state(pool) {
            Some(state) => Walk::Found(Arc::clone(&state.parts)),
            None => Walk::Listed(self.in_use(pool)),
        };
        let text = match walk.decode(&args[1]) {
            Ok(Some(at)) => {
                let mut multi_step = self.pending.take_multi_step(Work::Scan(walk));
                multi_step.server = at.server;
                let out = &mut multi_step.request;
                reply::array(out, args.len());
                reply::bulk(out, b"SCAN");
                reply::bulk(out, at.inner.to_string().as_bytes());
                args.from(2).for_each(|arg| reply::bulk(out, arg));
                return self.start_multi_step(links, incoming, multi_step, None);
            }
            Ok(None) => return self.answer_unrouted(incoming),
            Err(CursorFault::NoNumber) => "ERR invalid cursor",
            Err(CursorFault::Stale) => {
                "ERR invalid cursor: no SCAN over the servers now in use gave it out; a server has \
                 left or come back since: begin again with cursor 0"
            }
        };
        self.refuse_request(incoming, text)
    }

    fn random_key(&mut self, links: &mut Connections, incoming: &mut RequestContext) -> Step {
        let RequestContext { session, request, .. } = &*incoming;
        let in_use = self.in_use(session.pool);
        let count = in_use.count();
        let shared = self.pools[usize::from(session.pool)].shared();
        let Some(shared) = shared.filter(|_| count > 0) else {
            return self.answer_unrouted(incoming);
        };
        let servers = || {
            std::iter::successors(in_use.first_from(0), |&server| {
                in_use.first_from(usize::from(server) + 1)
            })
        };
        // Failed servers are asked if all have failed: each takes as long as a timeout.
        let (health, topology) = (&self.plan.health, &self.plan.topology);
        let is_up = |&server: &u16| {
            let id = topology.backend_id(usize::from(session.pool), usize::from(server));
            let connection = &links[self.link_of(&shared, session, server)];
            let is_down = connection.link.is_down(self.clock.now) || !self.admits(connection);
            health.state(id).is_sound() && !is_down
        };
        let up: Vec<u16> = servers().filter(is_up).collect();
        let drawn = (self.next_random() >> 33) as usize;
        let server = match up.len() {
            0 => servers().nth(drawn % count).unwrap_or_default(),
            sound => up[drawn % sound],
        };
        // A server that has many keys of other groups is asked several times.
        let rounds = if self.shares_slots(session.pool) { ROUNDS } else { 1 };
        let left = (count * rounds - 1).min(usize::from(u16::MAX)) as u16;
        let mut multi_step =
            self.pending.multi_steps_free.take(Work::RandomKey { left, is_empty: false });
        multi_step.server = server;
        multi_step.request.extend_from_slice(request.args.buf());
        self.start_multi_step(links, incoming, multi_step, None)
    }

    /// Executes FLUSHALL. With one database, it empties only that one: other databases of its
    /// servers may belong to other pools.
    fn flush(&mut self, links: &mut Connections, incoming: &mut RequestContext) -> Step {
        let RequestContext { session, busy, request, .. } = &mut *incoming;
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[session.pool as usize];
        let Some(Upstream { servers: sharded, .. }) = pool.kind.upstream() else {
            return Step::Started;
        };
        if !sharded.options.allow_flush {
            let text = format!(
                "ERR '{}' is refused: it would empty every server of the pool; set allow_flush = \
                 true in [pool.{}] to let clients do so",
                request.command.name, pool.name
            );
            return self.refuse_request(incoming, &text);
        }
        let mut narrowed = Vec::new();
        let mut request = **request;
        if request.command.verb == Verb::Flushall && sharded.options.databases_allowed <= 1 {
            reply::array(&mut narrowed, request.args.len());
            reply::bulk(&mut narrowed, b"FLUSHDB");
            request.args.from(1).for_each(|arg| reply::bulk(&mut narrowed, arg));
            request.args = keyway_command::Args::new(&narrowed, &[]);
        }
        self.note_write(session, busy);
        self.send_everywhere(links, &mut incoming.with(&request), Rule::AllOk)
    }

    /// Sends a multi-step request's first question, after the script that its server lacks.
    pub(in crate::core) fn start_multi_step(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        mut multi_step: Box<MultiStep>,
        preload: Option<Preload>,
    ) -> Step {
        let Some(shared) = self.pools[usize::from(incoming.session.pool)].shared() else {
            self.pending.multi_steps_free.give(multi_step);
            return self.answer_unrouted(incoming);
        };
        let index = self.link_of(&shared, incoming.session, multi_step.server);
        let waits = late_apart(links, incoming, index).is_some();
        let connection = &mut links[index];
        let has_room =
            !waits && connection.link.has_room(self.link_options(connection.server_id.pool));
        let is_down = connection.link.is_down(self.clock.now) || !self.admits(connection);
        if !has_room || is_down || self.is_full(connection) || !self.lets_through(connection) {
            self.pending.multi_steps_free.give(multi_step);
            // Both end like any other request, before a byte of it is sent.
            return self.forward(links, incoming, index);
        }
        self.started(incoming.session.pool, incoming.request.command.counted());
        let to = self.reply_to_request(incoming);
        multi_step.database = incoming.session.identity.database;
        multi_step.protocol = incoming.session.identity.protocol;
        multi_step.caching = self.servers.tracking.caching;
        self.prepare_link(index, connection, multi_step.database);
        if let Some(Preload { digest, body }) = preload {
            give_script(connection, digest, &body, self.clock.now);
        }
        self.ask(links, index, to, multi_step);
        Step::Started
    }

    /// Makes a multi-step request of what was appended to a link and has this owner. Its question
    /// is not kept.
    pub(in crate::core) fn own_as_multi_step(
        &mut self,
        connection: &Connection,
        index: ConnectionKey,
        incoming: &RequestContext,
        owner: Owner,
        work: Work,
    ) -> Owner {
        let to = ReplyTo {
            session: incoming.key,
            reply: match owner {
                Owner::Session { sequence, .. } => Some(sequence),
                _ => None,
            },
            started: self.clock.now,
            counted: incoming.request.command.counted(),
            pool: incoming.session.pool,
        };
        let mut multi_step = self.pending.take_multi_step(work);
        multi_step.caching = None;
        multi_step.database = incoming.session.identity.database;
        multi_step.protocol = incoming.session.identity.protocol;
        multi_step.server = connection.server_id.server;
        multi_step.link = index;
        Owner::Operation { operation: self.pending.begin(to, multi_step), part: 0 }
    }

    /// Appends a multi-step request's question to a link that is ready for it.
    fn ask(
        &mut self,
        links: &mut Connections,
        index: ConnectionKey,
        to: ReplyTo,
        mut multi_step: Box<MultiStep>,
    ) {
        multi_step.link = index;
        let connection = &mut links[index];
        let out = connection.link.request_buf();
        let start = out.len();
        match multi_step.work {
            Work::Script { digest, step: ScriptStep::Look } => digest.ask_whether_known(out),
            _ => out.extend_from_slice(&multi_step.request),
        }
        let len = out.len() - start;
        let owner = Owner::Operation { operation: self.pending.begin(to, multi_step), part: 0 };
        connection.link.enqueue(owner, to.counted, len, self.clock.now);
        self.note_unsent(index, connection);
    }

    /// Sends the next question of a multi-step request.
    #[cold]
    pub(super) fn ask_again(
        &mut self,
        sessions: &mut Slab<Session>,
        links: &mut Connections,
        key: Key<Operation>,
    ) {
        let Some((to, mut multi_step)) = self.pending.end::<MultiStep>(key) else { return };
        if let Work::RandomKey { .. } = multi_step.work {
            let in_use = self.in_use(to.pool);
            let next = in_use.first_from(usize::from(multi_step.server) + 1);
            multi_step.server = next.or_else(|| in_use.first_from(0)).unwrap_or(multi_step.server);
        }
        let Some(state) = self.pools[to.pool as usize].servers() else { return };
        let session = sessions.get(to.session);
        let own = session.and_then(|it| self.own_link(it, multi_step.server));
        let lane = session.map_or(to.session.index(), |it| it.lane);
        let shared = || state.link(multi_step.server, lane, multi_step.protocol);
        let index = own.unwrap_or_else(shared);
        let connection = &mut links[index];
        if let Some(fault) = self.refused(connection) {
            let server = connection.server_id;
            let key = self.pending.begin(to, multi_step);
            return self.on_multi_step_fault(sessions, server, key, fault);
        }
        self.prepare_link(index, connection, multi_step.database);
        if let Work::Script { digest, step: ScriptStep::Again } = multi_step.work
            && let Some(body) = self.scripts(to.pool).script(&digest)
        {
            give_script(connection, digest, &body, self.clock.now);
        }
        let caching = multi_step.caching.filter(|_| own.is_some());
        self.ask(links, index, to, multi_step);
        if let Some(word) = caching {
            links[index].link.precede_last(&caching_request(word));
        }
    }

    /// Decides what follows from a server's reply to a multi-step request.
    pub(super) fn after_multi_step_reply(
        &mut self,
        sessions: &mut Slab<Session>,
        key: Key<Operation>,
        kind: Kind,
        bytes: &[u8],
        next: Next,
    ) {
        let next = self.without_foreign_key(key, bytes, next);
        if next == Next::Again && self.may_ask_again(sessions, key) {
            return self.pending.add_due(Due::Next(key));
        }
        self.end_multi_step(sessions, key, kind, bytes, next);
    }

    /// Has another server asked if a random key is one that moves to another group, or has moved.
    fn without_foreign_key(&mut self, key: Key<Operation>, bytes: &[u8], next: Next) -> Next {
        let pool = self.pending.reply_to(key).map_or(0, |to| to.pool);
        let Some(multi_step) = self.pending.get::<MultiStep>(key) else { return next };
        let is_key = next == Next::Pass && matches!(multi_step.work, Work::RandomKey { .. });
        if !is_key || !self.is_foreign_key(pool, multi_step.server, bytes) {
            return next;
        }
        let Some(multi_step) = self.pending.get_mut::<MultiStep>(key) else { return next };
        multi_step.on_foreign_key()
    }

    /// Answers the client.
    fn end_multi_step(
        &mut self,
        sessions: &mut Slab<Session>,
        key: Key<Operation>,
        kind: Kind,
        bytes: &[u8],
        next: Next,
    ) {
        let Some((to, multi_step)) = self.pending.end::<MultiStep>(key) else { return };
        let says_error = next == Next::Said
            && multi_step.said.first() != Some(&b'_')
            && !multi_step.said.starts_with(b"$-1");
        let is_error = kind == Kind::Error || matches!(next, Next::Error(_)) || says_error;
        let outcome = if is_error { Outcome::Error } else { Outcome::Reply };
        let latency = Latency::between(to.started, self.clock.now);
        self.replied(to.pool, to.counted, Some(latency), outcome);
        let keys = match next {
            Next::Cursor { rest, .. } => self.own_keys(to.pool, multi_step.server, &bytes[rest..]),
            _ => bytes.into(),
        };
        let is_answered = self.answer_operation(sessions, to, None, |out| match next {
            Next::Said | Next::Again if !multi_step.said.is_empty() => {
                out.extend_from_slice(&multi_step.said);
            }
            Next::Pass | Next::Said | Next::Again => out.extend_from_slice(bytes),
            Next::Error(text) => reply::error(out, text),
            Next::Cursor { cursor, .. } => {
                reply::array(out, 2);
                reply::bulk(out, cursor.to_string().as_bytes());
                out.extend_from_slice(&keys);
            }
        });
        if !is_answered && to.reply.is_some() && to.session != Key::NONE {
            let pool = self.cells.pool(to.pool as usize);
            pool.backend(multi_step.server as usize).unclaimed_replies.add(1);
        }
        self.pending.multi_steps_free.give(multi_step);
    }

    /// Returns whether another question may be sent. A script is not run again after later requests
    /// of its client that a server may have executed. While it is run again, no later request is
    /// sent.
    #[cold]
    fn may_ask_again(&mut self, sessions: &mut Slab<Session>, key: Key<Operation>) -> bool {
        let Some(multi_step) = self.pending.get::<MultiStep>(key) else { return false };
        if !matches!(multi_step.work, Work::Script { .. } | Work::Transaction) {
            return true;
        }
        let (link, work) = (multi_step.link, multi_step.work.clone());
        // A server that lacks one script lacks all.
        self.pending.add_due(Due::Scripts(link));
        let Work::Script { digest, .. } = work else { return false };
        let Some(to) = self.pending.reply_to(key) else { return false };
        let Some(reply) = to.reply else { return false };
        let Some(session) = sessions.get_mut(to.session) else { return false };
        let next = session.busy.as_ref().map(|busy| busy.order.next_index());
        let is_last = next == Some(reply.wrapping_add(1));
        if !is_last || self.scripts(to.pool).script(&digest).is_none() {
            return false;
        }
        session.fence();
        true
    }

    /// Answers a multi-step request that gets no reply from its server.
    #[cold]
    pub(super) fn on_multi_step_fault(
        &mut self,
        sessions: &mut Slab<Session>,
        server: ServerId,
        key: Key<Operation>,
        fault: Fault,
    ) {
        let Some(multi_step) = self.pending.get_mut::<MultiStep>(key) else { return };
        match multi_step.on_fault() {
            Next::Again => return self.pending.add_due(Due::Next(key)),
            Next::Said => {
                return self.end_multi_step(sessions, key, Kind::Error, &[], Next::Said);
            }
            _ => {}
        }
        let Some((to, multi_step)) = self.pending.end::<MultiStep>(key) else { return };
        let latency = Latency::between(to.started, self.clock.now);
        self.replied(to.pool, to.counted, Some(latency), Outcome::Fault(fault));
        let text = self.describe_backend(server);
        let is_null = matches!(multi_step.work, Work::RandomKey { is_empty: true, .. });
        self.answer_operation(sessions, to, None, |out| match is_null {
            true => multi_step.protocol.null(out),
            false => write_fault(fault, &text, out),
        });
        self.pending.multi_steps_free.give(multi_step);
    }

    /// Returns the servers of a pool that are in use.
    pub(in crate::core) fn in_use(&self, pool: u16) -> ServersInUse {
        let index = usize::from(pool);
        let is_used = |server| self.is_server_used(pool, server);
        ServersInUse::new(self.plan.topology.pools()[index].servers(), is_used)
    }
}
