//! Requests that concern a pool's servers together: walks over all keys,
//! emptying, scripts and functions.
//!
//! What goes to every server and is joined is sent by `fan_out`; what takes one
//! server after the other, or may have to be asked again, is an [`Errand`].
//! A reply that asks for another question only notes so (`errands_due`): the
//! link it came from is in use just then, and goes on at the end of the turn.

use crate::Upstream;
use crate::core::front::input::Step;
use crate::core::pools::servers::info::Report;
use crate::core::pools::servers::scripts::{Given, Loads, Preload, Shown, give_script};
use crate::core::pools::servers::stateful::RequestContext;
use crate::core::pools::servers::tracking::caching_request;
use crate::core::{Connection, Core, LinkIndex, Plane};
use keyway_base::{Fault, Key, Slab, Time};
use keyway_command::{Across, Counted, Join as Rule, Request, Verb};
use keyway_proxy::memcached::Warming;
use keyway_proxy::{Busy, Errand, Join, Next, Owner, ScriptStep, Session, Work, write_fault};
use keyway_resp::{Kind, Protocol, reply};
use keyway_route::{CursorFault, ServersInUse, Walk};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Requests in several steps, and what is to be remembered of those on every
/// server.
pub(in crate::core) struct State {
    errands: Slab<Box<Errand>>,
    #[allow(clippy::vec_box, reason = "the boxes are what is reused")]
    errands_free: Vec<Box<Errand>>,
    /// What replies have asked for.
    pub(in crate::core) due: Vec<Due>,
    /// What is about to be sent everywhere.
    pub(in crate::core) lesson: Option<Conclusion>,
    /// What to do once a join is complete, by the join.
    lessons: BTreeMap<u64, Conclusion>,
    /// Scripts that EVAL has shown to the cache already.
    pub(in crate::core) shown: Shown,
}

impl State {
    /// Number of requests in several steps, and of next steps that are due for them or for joins.
    pub(in crate::core) fn len(&self) -> usize {
        self.errands.len()
            + self.due.len()
            + self.lessons.len()
            + usize::from(self.lesson.is_some())
    }
}

/// What a reply has asked for, to be done when no link is borrowed.
pub(in crate::core) enum Due {
    /// The next question of an errand.
    Ask(Key<Box<Errand>>),
    /// Scripts that were loaded through this connection are not there.
    Scripts(LinkIndex),
    /// What was to be loaded through this connection was refused for now.
    Loads(LinkIndex),
    /// The next question about an item that is brought over.
    Warm(Key<Warming>),
    /// A server that a WAIT asks is lost: whatever the others say, it fails.
    EndWait(Key<Box<Join>>),
}

/// Errands at rest whose room is kept: as many as a deep pipeline has.
const ERRANDS_KEPT_MAX: usize = 256;

/// Room for a request that an errand at rest keeps, in bytes.
const REQUEST_KEPT_MAX: usize = 2 << 10;

/// What follows when every server has answered.
pub(in crate::core) enum Conclusion {
    /// What was to be loaded or forgotten.
    Loads(Loads),
    /// Elements that are one whatever they say.
    Certain(Vec<bool>),
    /// Make one text of them.
    Report(Box<Report>),
}

impl Default for State {
    fn default() -> Self {
        Self {
            errands: Slab::new(),
            errands_free: Vec::new(),
            due: Vec::new(),
            lesson: None,
            lessons: BTreeMap::new(),
            shown: Shown::default(),
        }
    }
}

impl State {
    /// An errand to fill in.
    pub(in crate::core) fn take(&mut self, work: Work) -> Box<Errand> {
        if let Some(mut errand) = self.errands_free.pop() {
            errand.work = work;
            return errand;
        }
        Box::new(Errand {
            session: Key::NONE,
            is_unheard: false,
            sequence: 0,
            started: Time(0),
            counted: Counted::OWN,
            caching: None,
            pool: 0,
            database: 0,
            protocol: Protocol::Resp2,
            server: 0,
            link: 0,
            request: Vec::new(),
            said: Vec::new(),
            work,
        })
    }

    /// Who waits for an errand.
    pub(in crate::core) fn session_of(&self, key: Key<Box<Errand>>) -> Option<Key<Session>> {
        Some(self.errands.get(key)?.session)
    }

    /// The place of its reply.
    pub(in crate::core) fn place_of(&self, key: Key<Box<Errand>>) -> Option<(Key<Session>, u32)> {
        let errand = self.errands.get(key).filter(|errand| !errand.is_unheard)?;
        Some((errand.session, errand.sequence))
    }

    /// The question of an errand was sent on to another server, through this link.
    pub(in crate::core) fn note_moved(
        &mut self,
        key: Key<Box<Errand>>,
        server: u16,
        link: LinkIndex,
    ) {
        if let Some(errand) = self.errands.get_mut(key) {
            errand.server = server;
            errand.link = link;
        }
    }

    fn give(&mut self, mut errand: Box<Errand>) {
        errand.request.clear();
        errand.said = Vec::new();
        let is_small = errand.request.capacity() <= REQUEST_KEPT_MAX;
        if is_small && self.errands_free.len() < ERRANDS_KEPT_MAX {
            errand.work = Work::RandomKey { left: 0, is_empty: false };
            self.errands_free.push(errand);
        }
    }
}

impl Core {
    /// Asks the next question of the errands that have one; once a turn,
    /// before the links' output is sent.
    pub(crate) fn continue_errands(&mut self) {
        let mut due = std::mem::take(&mut self.plane.pending.multi_step.due);
        for due in due.drain(..) {
            let Core { sessions, links, plane } = self;
            match due {
                Due::Ask(key) => plane.ask_again(sessions, links, key),
                Due::Scripts(index) => links[index].given.forget_scripts(),
                Due::Loads(index) => links[index].given = Given::default(),
                Due::Warm(key) => plane.continue_warming(sessions, links, key),
                Due::EndWait(join) => plane.end_wait(sessions, links, join),
            }
        }
        if self.plane.pending.multi_step.due.is_empty() {
            self.plane.pending.multi_step.due = due;
        }
    }

    /// Whether an errand waits for [`Core::continue_errands`].
    #[inline]
    pub(crate) fn has_errands_due(&self) -> bool {
        !self.plane.pending.multi_step.due.is_empty()
    }
}

impl Plane {
    /// Starts a request that concerns the servers together.
    pub(in crate::core) fn across(
        &mut self,
        links: &mut [Connection],
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
        across: Across,
    ) -> Step {
        match across {
            Across::Scan => self.scan(links, key, session, busy, request),
            Across::RandomKey => self.random_key(links, key, session, busy, request),
            Across::Flush => self.flush(links, key, session, busy, request),
            Across::Load(what) => {
                let mut asked = RequestContext { key, session, busy, request };
                self.load(links, &mut asked, what)
            }
            Across::ScriptExists => self.script_exists(links, key, session, busy, request),
            Across::Unload(what) => {
                let mut asked = RequestContext { key, session, busy, request };
                self.unload(links, &mut asked, what)
            }
            Across::Run => self.run_script(links, key, session, busy, request),
            Across::First => match self.in_use(session.pool).first_from(0) {
                Some(server) => {
                    let link = self.link_of(session, server);
                    // It is about libraries: a server that was restarted has
                    // those that are known before it tells of them.
                    self.give_libraries(link, &mut links[link]);
                    self.forward(links, key, session, busy, request, link)
                }
                None => self.no_server(session, busy, request),
            },
        }
    }

    fn scan(
        &mut self,
        links: &mut [Connection],
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
    ) -> Step {
        if self.leaves_out(session.pool) {
            return self.no_server(session, busy, request);
        }
        let walk = match self.cluster_state(session.pool) {
            Some(state) => Walk::Found(Arc::clone(&state.parts)),
            None => Walk::Listed(self.in_use(session.pool)),
        };
        let text = match walk.decode(&request.args[1]) {
            Ok(Some(at)) => {
                let mut errand = self.pending.multi_step.take(Work::Scan(walk));
                errand.server = at.server;
                let out = &mut errand.request;
                reply::array(out, request.args.len());
                reply::bulk(out, b"SCAN");
                reply::bulk(out, at.inner.to_string().as_bytes());
                request.args.from(2).for_each(|arg| reply::bulk(out, arg));
                return self.start_errand(links, key, session, busy, request, (errand, None));
            }
            Ok(None) => return self.no_server(session, busy, request),
            Err(CursorFault::NoNumber) => "ERR invalid cursor",
            Err(CursorFault::Stale) => {
                "ERR invalid cursor: no SCAN over the servers now in use gave it out; a server has \
                 left or come back since: begin again with cursor 0"
            }
        };
        self.refuse(session, busy, |out| reply::error(out, text));
        Step::Started
    }

    fn random_key(
        &mut self,
        links: &mut [Connection],
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
    ) -> Step {
        let in_use = self.in_use(session.pool);
        let count = in_use.count();
        if count == 0 {
            return self.no_server(session, busy, request);
        }
        let servers = || {
            std::iter::successors(in_use.first_from(0), |&server| {
                in_use.first_from(usize::from(server) + 1)
            })
        };
        // Those that fail are asked if all do: each takes as long as a timeout.
        let (health, topology) = (&self.plan.health, &self.plan.topology);
        let is_up = |&server: &u16| {
            let id = topology.backend_id(usize::from(session.pool), usize::from(server));
            let connection = &links[self.link_of(session, server)];
            let is_down = connection.link.is_down(self.clock.now) || !self.admits(connection);
            health.state(id).is_sound() && !is_down
        };
        let up: Vec<u16> = servers().filter(is_up).collect();
        let drawn = (self.next_random() >> 33) as usize;
        let server = match up.len() {
            0 => servers().nth(drawn % count).unwrap_or_default(),
            sound => up[drawn % sound],
        };
        let mut errand = self
            .pending
            .multi_step
            .take(Work::RandomKey { left: count as u16 - 1, is_empty: false });
        errand.server = server;
        errand.request.extend_from_slice(request.args.buf());
        self.start_errand(links, key, session, busy, request, (errand, None))
    }

    /// FLUSHALL of a pool with one database empties that one alone: the others
    /// of its servers may be other pools'.
    fn flush(
        &mut self,
        links: &mut [Connection],
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
    ) -> Step {
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
            self.refuse(session, busy, |out| reply::error(out, &text));
            return Step::Started;
        }
        let mut narrowed = Vec::new();
        let mut request = *request;
        if request.command.verb == Verb::Flushall && sharded.options.databases_allowed <= 1 {
            reply::array(&mut narrowed, request.args.len());
            reply::bulk(&mut narrowed, b"FLUSHDB");
            request.args.from(1).for_each(|arg| reply::bulk(&mut narrowed, arg));
            request.args = keyway_command::Args::new(&narrowed, &[]);
        }
        self.note_write(session, busy);
        self.send_everywhere(links, key, session, busy, &request, Rule::AllOk)
    }

    /// Sends an errand's first question, after the script its server lacks.
    pub(in crate::core) fn start_errand(
        &mut self,
        links: &mut [Connection],
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
        (mut errand, preload): (Box<Errand>, Option<Preload>),
    ) -> Step {
        let index = self.link_of(session, errand.server);
        let connection = &mut links[index];
        let has_room = connection.link.has_room(self.link_options(connection.pool));
        let is_down = connection.link.is_down(self.clock.now) || !self.admits(connection);
        if !has_room || is_down || self.is_full(connection) || !self.lets_through(connection) {
            self.pending.multi_step.give(errand);
            // Both end as for any other request, before a byte of it is sent.
            return self.forward(links, key, session, busy, request, index);
        }
        self.count(session, request);
        errand.session = key;
        errand.is_unheard = Self::is_silent(session);
        session.unheard += u32::from(errand.is_unheard);
        errand.sequence = if errand.is_unheard { 0 } else { busy.order.reserve() };
        errand.started = self.clock.now;
        errand.counted = request.command.counted();
        errand.pool = session.pool;
        errand.database = session.identity.database;
        errand.protocol = session.identity.protocol;
        errand.caching = self.servers.tracking.caching;
        Self::end_skip(session);
        self.prepare_link(index, connection, errand.database);
        if let Some((digest, body)) = preload {
            give_script(connection, digest, &body, self.clock.now);
        }
        self.ask(links, index, errand);
        Step::Started
    }

    /// Makes an errand of what was appended to a link and has this owner; its
    /// question is not kept.
    pub(in crate::core) fn own_as_errand(
        &mut self,
        (connection, index): (&Connection, LinkIndex),
        (asked, owner): (&RequestContext, Owner),
        work: Work,
    ) -> Owner {
        let mut errand = self.pending.multi_step.take(work);
        errand.session = asked.key;
        errand.is_unheard = matches!(owner, Owner::Unheard(_));
        errand.sequence = match owner {
            Owner::Session { sequence, .. } => sequence,
            _ => 0,
        };
        errand.started = self.clock.now;
        errand.counted = asked.request.command.counted();
        errand.caching = None;
        errand.pool = asked.session.pool;
        errand.database = asked.session.identity.database;
        errand.protocol = asked.session.identity.protocol;
        errand.server = connection.backend;
        errand.link = index;
        Owner::Errand(self.pending.multi_step.errands.insert(errand))
    }

    /// Appends an errand's question to a link that is ready to take it.
    fn ask(&mut self, links: &mut [Connection], index: LinkIndex, mut errand: Box<Errand>) {
        errand.link = index;
        let connection = &mut links[index];
        let out = connection.link.request_buf();
        let start = out.len();
        match errand.work {
            Work::Script { digest, step: ScriptStep::Look } => digest.ask_whether_known(out),
            _ => out.extend_from_slice(&errand.request),
        }
        let (counted, len) = (errand.counted, out.len() - start);
        let owner = Owner::Errand(self.pending.multi_step.errands.insert(errand));
        connection.link.enqueue(owner, counted, len, self.clock.now);
        self.note_unsent(index, connection);
    }

    /// The next question of an errand.
    #[cold]
    fn ask_again(
        &mut self,
        sessions: &mut Slab<Session>,
        links: &mut [Connection],
        key: Key<Box<Errand>>,
    ) {
        let Some(mut errand) = self.pending.multi_step.errands.remove(key) else { return };
        if let Work::RandomKey { .. } = errand.work {
            let in_use = self.in_use(errand.pool);
            let next = in_use.first_from(usize::from(errand.server) + 1);
            errand.server = next.or_else(|| in_use.first_from(0)).unwrap_or(errand.server);
        }
        let Some(state) = self.pools[errand.pool as usize].servers() else { return };
        let session = sessions.get(errand.session);
        let own = session.and_then(|it| self.own_link(it, errand.server));
        let lane = session.map_or(errand.session.index(), |it| it.lane);
        let shared = || state.link(errand.server, lane, errand.protocol);
        let index = own.unwrap_or_else(shared);
        let connection = &mut links[index];
        if let Some(fault) = self.refused(connection) {
            let (pool, backend) = (connection.pool, connection.backend);
            let key = self.pending.multi_step.errands.insert(errand);
            return self.on_errand_fault(sessions, (pool, backend), key, fault);
        }
        self.prepare_link(index, connection, errand.database);
        if let Work::Script { digest, step: ScriptStep::Again } = errand.work
            && let Some(body) = self.scripts(errand.pool).script(&digest)
        {
            give_script(connection, digest, &body, self.clock.now);
        }
        let caching = errand.caching.filter(|_| own.is_some());
        self.ask(links, index, errand);
        if let Some(word) = caching {
            links[index].link.precede_last(&caching_request(word));
        }
    }

    /// Takes a server's reply to an errand.
    pub(in crate::core) fn on_errand_reply(
        &mut self,
        sessions: &mut Slab<Session>,
        key: Key<Box<Errand>>,
        kind: Kind,
        bytes: &[u8],
    ) {
        let Some(errand) = self.pending.multi_step.errands.get_mut(key) else { return };
        let next = errand.on_reply(kind, bytes);
        if next == Next::Again && self.may_ask_again(sessions, key) {
            self.pending.multi_step.due.push(Due::Ask(key));
            return;
        }
        self.end_errand(sessions, key, (kind, bytes), next);
    }

    /// Answers who asked.
    fn end_errand(
        &mut self,
        sessions: &mut Slab<Session>,
        key: Key<Box<Errand>>,
        (kind, bytes): (Kind, &[u8]),
        next: Next,
    ) {
        let Some(errand) = self.pending.multi_step.errands.remove(key) else { return };
        let cells = self.request_cells(errand.pool, errand.counted);
        if kind == Kind::Error || matches!(next, Next::Error(_) | Next::Said) {
            cells.error_reply();
        }
        cells.latency(errand.started, self.clock.now);
        if errand.is_unheard {
            self.end_unheard(sessions, errand.session);
        } else if let Some(session) = sessions.get_mut(errand.session) {
            self.complete(errand.session, session, errand.sequence, |out| match next {
                Next::Said | Next::Again if !errand.said.is_empty() => {
                    out.extend_from_slice(&errand.said);
                }
                Next::Pass | Next::Said | Next::Again => out.extend_from_slice(bytes),
                Next::Error(text) => reply::error(out, text),
                Next::Cursor { cursor, rest } => {
                    reply::array(out, 2);
                    reply::bulk(out, cursor.to_string().as_bytes());
                    out.extend_from_slice(&bytes[rest..]);
                }
            });
        } else if errand.session != Key::NONE {
            let pool = self.cells.pool(errand.pool as usize);
            pool.backend(errand.server as usize).unclaimed_replies.add(1);
        }
        self.pending.multi_step.give(errand);
    }

    /// Whether another question is to be asked. A script is not run again
    /// behind what its client sent later and a server may have run by now; while
    /// it is, nothing later is sent.
    #[cold]
    fn may_ask_again(&mut self, sessions: &mut Slab<Session>, key: Key<Box<Errand>>) -> bool {
        let Some(errand) = self.pending.multi_step.errands.get(key) else { return false };
        if !matches!(errand.work, Work::Script { .. } | Work::Transaction) {
            return true;
        }
        // Whoever lacks one lacks all.
        self.pending.multi_step.due.push(Due::Scripts(errand.link));
        let Work::Script { digest, .. } = errand.work else { return false };
        if errand.is_unheard {
            return false;
        }
        let Some(session) = sessions.get_mut(errand.session) else { return false };
        let next = session.busy.as_ref().map(|busy| busy.order.next_place());
        let is_last = next == Some(errand.sequence.wrapping_add(1));
        if !is_last || self.scripts(errand.pool).script(&digest).is_none() {
            return false;
        }
        session.fence();
        true
    }

    /// Answers an errand that gets no reply from its server.
    #[cold]
    pub(in crate::core) fn on_errand_fault(
        &mut self,
        sessions: &mut Slab<Session>,
        place: (u16, u16),
        key: Key<Box<Errand>>,
        fault: Fault,
    ) {
        let Some(errand) = self.pending.multi_step.errands.get_mut(key) else { return };
        match errand.on_fault() {
            Next::Again => return self.pending.multi_step.due.push(Due::Ask(key)),
            Next::Said => return self.end_errand(sessions, key, (Kind::Error, &[]), Next::Said),
            _ => {}
        }
        let Some(errand) = self.pending.multi_step.errands.remove(key) else { return };
        self.fail_errand(sessions, place, errand, fault);
    }

    #[cold]
    fn fail_errand(
        &mut self,
        sessions: &mut Slab<Session>,
        (pool, backend): (u16, u16),
        errand: Box<Errand>,
        fault: Fault,
    ) {
        self.count_fault(pool, errand.counted, fault);
        self.request_cells(pool, errand.counted).latency(errand.started, self.clock.now);
        if errand.is_unheard {
            self.end_unheard(sessions, errand.session);
        } else if let Some(session) = sessions.get_mut(errand.session) {
            let text = self.describe_backend(pool, backend);
            let is_null = matches!(errand.work, Work::RandomKey { is_empty: true, .. });
            self.complete(errand.session, session, errand.sequence, |out| match is_null {
                true => errand.protocol.null(out),
                false => write_fault(fault, &text, out),
            });
        }
        self.pending.multi_step.give(errand);
    }

    /// To be called when a request is sent everywhere: what is to follow from
    /// the replies.
    pub(in crate::core) fn keep_lesson(&mut self, key: Key<Box<Join>>) {
        match (self.pending.multi_step.lesson.take(), self.pending.joins.get_mut(key)) {
            (Some(Conclusion::Certain(certain)), Some(join)) => join.certain = certain,
            (Some(Conclusion::Report(report)), Some(join)) => join.report = Some(report),
            (Some(lesson), Some(_)) => {
                self.pending.multi_step.lessons.insert(key.to_bits(), lesson);
            }
            _ => {}
        }
    }

    /// What is sent everywhere next is to become one text.
    pub(in crate::core) fn expect_report(&mut self, report: Report) {
        self.pending.multi_step.lesson = Some(Conclusion::Report(Box::new(report)));
    }

    /// Nothing more follows from what is sent everywhere.
    pub(in crate::core) fn expect_nothing(&mut self) {
        self.pending.multi_step.lesson = None;
    }

    /// To be called when a join is complete.
    #[inline]
    pub(in crate::core) fn learn(&mut self, key: Key<Box<Join>>, join: &Join) {
        if !self.pending.multi_step.lessons.is_empty()
            && let Some(Conclusion::Loads(loads)) =
                self.pending.multi_step.lessons.remove(&key.to_bits())
        {
            self.learn_loads(join, loads);
        }
    }

    /// The servers of a pool that are in use.
    pub(in crate::core) fn in_use(&self, pool: u16) -> ServersInUse {
        let index = usize::from(pool);
        let is_used = |server| self.is_server_used(pool, server);
        ServersInUse::new(self.plan.topology.pools()[index].servers(), is_used)
    }

    pub(in crate::core::pending) fn no_server(
        &mut self,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
    ) -> Step {
        self.answer_unrouted(session, busy, request);
        Step::Started
    }
}
