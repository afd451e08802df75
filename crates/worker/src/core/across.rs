//! Requests that concern a pool's servers together: walks over all keys,
//! emptying, scripts and functions.
//!
//! What goes to every server and is joined is sent by `split`; what takes one
//! server after the other, or may have to be asked again, is an [`Errand`].
//! A reply that asks for another question only notes so (`errands_due`): the
//! link it came from is in use just then, and goes on at the end of the turn.

use super::info::Report;
use super::input::Step;
use super::pools::PoolState;
use super::tracking::caching_request;
use super::{Core, LinkSlot, Plane};
use crate::PoolKind;
use keyway_base::{BackendFault, Fault, Key, Sent, Slab, Time};
use keyway_command::{Across, Join as Rule, Loaded, Request, Verb};
use keyway_proxy::{
    Busy, CacheFull, Digest, Errand, Internal, Join, Next, Owner, ScriptCache, Session, Work,
    write_fault,
};
use keyway_resp::{Kind, Protocol, reply};
use keyway_route::{CursorFault, Route, ServersInUse, route_script};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// Requests in several steps, and what is to be remembered of those on every
/// server.
pub(super) struct State {
    errands: Slab<Box<Errand>>,
    #[allow(clippy::vec_box, reason = "the boxes are what is reused")]
    errands_free: Vec<Box<Errand>>,
    /// Those that have another question to ask.
    pub(super) due: Vec<Key<Box<Errand>>>,
    /// What is about to be sent everywhere.
    lesson: Option<Lesson>,
    /// What to do once a join is complete, by the join.
    lessons: BTreeMap<u64, Lesson>,
    /// Hashes of scripts that EVAL has shown to the cache already; each at the
    /// place its low bits say.
    seen: Box<[u64; SEEN]>,
}

/// Scripts a worker knows it has shown to the cache. More only saves hashing
/// for applications with more scripts in turn.
const SEEN: usize = 256;

/// Errands at rest whose room is kept: as many as a deep pipeline has.
const ERRANDS_KEPT_MAX: usize = 256;

/// Room for a request that an errand at rest keeps, in bytes.
const REQUEST_KEPT_MAX: usize = 2 << 10;

/// Scripts a connection is known to have, above which it is asked anew.
const LINK_SCRIPTS_MAX: usize = 16 << 10;

/// A script to be loaded before the request that needs it.
type Preload = (Digest, Arc<[u8]>);

/// What follows when every server has answered.
enum Lesson {
    /// Keep this script, if they took it.
    Script(Vec<u8>),
    /// Keep this library, if they took it.
    Library(Vec<u8>),
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
            seen: Box::new([0; SEEN]),
        }
    }
}

impl State {
    /// An errand to fill in.
    fn take(&mut self, work: Work) -> Box<Errand> {
        if let Some(mut errand) = self.errands_free.pop() {
            errand.work = work;
            return errand;
        }
        Box::new(Errand {
            session: Key::NONE,
            is_unheard: false,
            sequence: 0,
            started: Time(0),
            class: 0,
            caching: None,
            pool: 0,
            database: 0,
            protocol: Protocol::Resp2,
            server: 0,
            request: Vec::new(),
            work,
        })
    }

    /// Who waits for an errand.
    pub(super) fn session_of(&self, key: Key<Box<Errand>>) -> Option<Key<Session>> {
        Some(self.errands.get(key)?.session)
    }

    fn give(&mut self, mut errand: Box<Errand>) {
        errand.request.clear();
        let is_small = errand.request.capacity() <= REQUEST_KEPT_MAX;
        if is_small && self.errands_free.len() < ERRANDS_KEPT_MAX {
            errand.work = Work::RandomKey { left: 0 };
            self.errands_free.push(errand);
        }
    }
}

impl Core {
    /// Asks the next question of the errands that have one; once a turn,
    /// before the links' output is sent.
    pub(crate) fn continue_errands(&mut self) {
        let mut due = std::mem::take(&mut self.plane.across.due);
        for key in due.drain(..) {
            let Core { sessions, links, plane } = self;
            plane.ask_again(sessions, links, key);
        }
        if self.plane.across.due.is_empty() {
            self.plane.across.due = due;
        }
    }

    /// Whether an errand waits for [`Core::continue_errands`].
    #[inline]
    pub(crate) fn has_errands_due(&self) -> bool {
        !self.plane.across.due.is_empty()
    }
}

impl Plane {
    /// Starts a request that concerns the servers together.
    pub(super) fn across(
        &mut self,
        links: &mut [LinkSlot],
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
            Across::Load(what) => self.load(links, key, session, busy, request, what),
            Across::ScriptExists => self.script_exists(links, key, session, busy, request),
            Across::Unload(_) if !busy.order.is_empty() => {
                // What was loaded before is remembered once its reply is here,
                // and must not be after it was forgotten.
                session.barrier = true;
                Step::Wait
            }
            Across::Unload(what) => {
                let scripts = Arc::clone(self.scripts(session.pool));
                forget(&scripts, request, what);
                self.send_everywhere(links, key, session, busy, request, Rule::AllOk)
            }
            Across::Run => self.run_script(links, key, session, busy, request),
            Across::First => match self.in_use(session.pool).first_from(0) {
                Some(server) => {
                    let link = self.link_of(session, server, key);
                    self.forward(links, key, session, busy, request, link)
                }
                None => self.no_server(session, busy, request),
            },
        }
    }

    fn scan(
        &mut self,
        links: &mut [LinkSlot],
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
    ) -> Step {
        let in_use = self.in_use(session.pool);
        let text = match in_use.decode(&request.args[1]) {
            Ok(Some(at)) => {
                let mut errand = self.across.take(Work::Scan(in_use));
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
        links: &mut [LinkSlot],
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
        let nth = (self.next_random() >> 33) as usize % count;
        let servers = std::iter::successors(in_use.first_from(0), |&server| {
            in_use.first_from(usize::from(server) + 1)
        });
        let server = servers.into_iter().nth(nth).unwrap_or_default();
        let mut errand = self.across.take(Work::RandomKey { left: count as u16 - 1 });
        errand.server = server;
        errand.request.extend_from_slice(request.args.buf());
        self.start_errand(links, key, session, busy, request, (errand, None))
    }

    /// FLUSHALL of a pool with one database empties that one alone: the others
    /// of its servers may be other pools'.
    fn flush(
        &mut self,
        links: &mut [LinkSlot],
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
    ) -> Step {
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[session.pool as usize];
        let PoolKind::Sharded { pool: sharded, .. } = &pool.kind else { return Step::Started };
        if !sharded.allow_flush {
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
        if request.command.verb == Verb::Flushall && sharded.databases_allowed <= 1 {
            reply::array(&mut narrowed, request.args.len());
            reply::bulk(&mut narrowed, b"FLUSHDB");
            request.args.from(1).for_each(|arg| reply::bulk(&mut narrowed, arg));
            request.args = keyway_command::Args::new(&narrowed, &[]);
        }
        self.send_everywhere(links, key, session, busy, &request, Rule::AllOk)
    }

    fn load(
        &mut self,
        links: &mut [LinkSlot],
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
        what: Loaded,
    ) -> Step {
        let body = request.args.from(2).last().unwrap_or_default();
        if self.scripts(session.pool).try_room(body.len()).is_err() {
            self.refuse(session, busy, |out| reply::error(out, CacheFull::TEXT));
            return Step::Started;
        }
        self.across.lesson = Some(match what {
            Loaded::Scripts => Lesson::Script(body.to_vec()),
            Loaded::Functions => Lesson::Library(body.to_vec()),
        });
        let step = self.send_everywhere(links, key, session, busy, request, Rule::Same);
        self.across.lesson = None;
        step
    }

    fn script_exists(
        &mut self,
        links: &mut [LinkSlot],
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
    ) -> Step {
        let scripts = self.scripts(session.pool);
        let is_known = |text: &[u8]| {
            Digest::parse(text).is_some_and(|digest| scripts.script(&digest).is_some())
        };
        let certain: Vec<bool> = request.args.from(2).map(is_known).collect();
        self.across.lesson = Some(Lesson::Certain(certain));
        let step = self.send_everywhere(links, key, session, busy, request, Rule::AllOnes);
        self.across.lesson = None;
        step
    }

    fn run_script(
        &mut self,
        links: &mut [LinkSlot],
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
    ) -> Step {
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[session.pool as usize];
        let PoolKind::Sharded { pool: sharded, scripts, .. } = &pool.kind else {
            return Step::Started;
        };
        let first = match request.args.get(2) {
            Some(b"0") => self.in_use(session.pool).first_from(0),
            _ => None,
        };
        let PoolState::Sharded(state) = &self.pools[session.pool as usize] else {
            unreachable!("the state of a pool is of its kind");
        };
        let server = match route_script(request, sharded, &state.ring, first, &mut self.keys) {
            Route::One(server) => server,
            refused => {
                self.refuse_route(session, busy, pool, request, refused);
                return Step::Started;
            }
        };
        let index = self.link_of(session, server, key);
        let (work, preload) = match request.command.verb {
            Verb::Evalsha | Verb::EvalshaRo => {
                let Some(digest) = Digest::parse(&request.args[1]) else {
                    return self.forward(links, key, session, busy, request, index);
                };
                let preload = match links[index].scripts.contains(&digest) {
                    true => None,
                    false => match scripts.script(&digest) {
                        Some(body) => Some((digest, body)),
                        // Not of our clients: the server may have it.
                        None => return self.forward(links, key, session, busy, request, index),
                    },
                };
                (Work::Script { digest, is_again: false }, preload)
            }
            Verb::Fcall | Verb::FcallRo if scripts.has_libraries() => {
                (Work::Function { is_again: false }, None)
            }
            verb => {
                if matches!(verb, Verb::Eval | Verb::EvalRo) {
                    self.show(session.pool, scripts, &request.args[1]);
                }
                return self.forward(links, key, session, busy, request, index);
            }
        };
        let mut errand = self.across.take(work);
        errand.server = server;
        errand.request.extend_from_slice(request.args.buf());
        self.start_errand(links, key, session, busy, request, (errand, preload))
    }

    /// Shows a script to the cache, unless that was done lately.
    fn show(&mut self, pool: u16, scripts: &ScriptCache, body: &[u8]) {
        let mut hasher = DefaultHasher::new();
        hasher.write_u16(pool);
        // What the cache has forgotten since is shown again.
        hasher.write_u64(scripts.losses());
        hasher.write(body);
        let hash = hasher.finish();
        let place = &mut self.across.seen[hash as usize % SEEN];
        if *place != hash {
            *place = hash;
            scripts.see(body);
        }
    }

    /// Sends an errand's first question, after the script its server lacks.
    fn start_errand(
        &mut self,
        links: &mut [LinkSlot],
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        request: &Request,
        (mut errand, preload): (Box<Errand>, Option<Preload>),
    ) -> Step {
        let index = self.link_of(session, errand.server, key);
        let slot = &mut links[index];
        if !slot.link.has_room(self.link_options(slot.pool)) || slot.link.is_down(self.clock.now) {
            self.across.give(errand);
            // Both end as for any other request, before a byte of it is sent.
            return self.forward(links, key, session, busy, request, index);
        }
        self.count(session, request);
        errand.session = key;
        errand.is_unheard = Self::is_silent(session);
        session.unheard += u32::from(errand.is_unheard);
        errand.sequence = if errand.is_unheard { 0 } else { busy.order.reserve() };
        errand.started = self.clock.now;
        errand.class = request.command.class as u8;
        errand.pool = session.pool;
        errand.database = session.identity.database;
        errand.protocol = session.identity.protocol;
        errand.caching = self.tracking.caching;
        Self::end_skip(session);
        self.prepare_link(index, slot, errand.database);
        if let Some((digest, body)) = preload {
            send_load(slot, [b"SCRIPT", b"LOAD"], &[&body], self.clock.now);
            note_loaded(slot, digest);
        }
        self.ask(links, index, errand);
        Step::Started
    }

    /// Appends an errand's question to a link that is ready to take it.
    fn ask(&mut self, links: &mut [LinkSlot], index: usize, errand: Box<Errand>) {
        let slot = &mut links[index];
        slot.link.request_buf().extend_from_slice(&errand.request);
        let (class, len) = (errand.class, errand.request.len());
        let owner = Owner::Errand(self.across.errands.insert(errand));
        slot.link.enqueue(owner, class, len, self.clock.now);
        self.note_unsent(index, slot);
    }

    /// The next question of an errand.
    #[cold]
    fn ask_again(
        &mut self,
        sessions: &mut Slab<Session>,
        links: &mut [LinkSlot],
        key: Key<Box<Errand>>,
    ) {
        let Some(mut errand) = self.across.errands.remove(key) else { return };
        if let Work::RandomKey { .. } = errand.work {
            let in_use = self.in_use(errand.pool);
            let next = in_use.first_from(usize::from(errand.server) + 1);
            errand.server = next.or_else(|| in_use.first_from(0)).unwrap_or(errand.server);
        }
        let PoolState::Sharded(state) = &self.pools[errand.pool as usize] else { return };
        let own = sessions.get(errand.session).and_then(|it| self.own_link(it, errand.server));
        let shared = || state.link(errand.server, errand.session, errand.protocol);
        let index = own.unwrap_or_else(shared);
        let slot = &mut links[index];
        if slot.link.is_down(self.clock.now) {
            self.note_refused(index, slot);
            let fault = Fault::Backend { fault: BackendFault::Connect, sent: Sent::No };
            let (pool, backend) = (slot.pool, slot.backend);
            return self.fail_errand(sessions, (pool, backend), errand, fault);
        }
        self.prepare_link(index, slot, errand.database);
        let scripts = Arc::clone(self.scripts(errand.pool));
        match errand.work {
            Work::Script { digest, .. } => {
                if let Some(body) = scripts.script(&digest) {
                    send_load(slot, [b"SCRIPT", b"LOAD"], &[&body], self.clock.now);
                    note_loaded(slot, digest);
                }
            }
            Work::Function { .. } => {
                for code in scripts.libraries() {
                    let words: [&[u8]; 2] = [b"REPLACE", &code];
                    send_load(slot, [b"FUNCTION", b"LOAD"], &words, self.clock.now);
                }
            }
            Work::Scan(_) | Work::RandomKey { .. } => {}
        }
        let caching = errand.caching.filter(|_| own.is_some());
        self.ask(links, index, errand);
        if let Some(word) = caching {
            links[index].link.precede_last(&caching_request(word));
        }
    }

    /// Takes a server's reply to an errand.
    pub(super) fn on_errand_reply(
        &mut self,
        sessions: &mut Slab<Session>,
        key: Key<Box<Errand>>,
        kind: Kind,
        bytes: &[u8],
    ) {
        let Some(errand) = self.across.errands.get_mut(key) else { return };
        let next = errand.on_reply(kind, bytes);
        if next == Next::Again {
            self.across.due.push(key);
            return;
        }
        let Some(errand) = self.across.errands.remove(key) else { return };
        let class = self.cells.pool(errand.pool as usize).class(errand.class as usize);
        if kind == Kind::Error || matches!(next, Next::Error(_)) {
            class.error_replies.add(1);
        }
        class.latency.record(errand.started, self.clock.now);
        if errand.is_unheard {
            self.end_unheard(sessions, errand.session);
        } else if let Some(session) = sessions.get_mut(errand.session) {
            self.complete(errand.session, session, errand.sequence, |out| match next {
                Next::Pass | Next::Again => out.extend_from_slice(bytes),
                Next::Error(text) => reply::error(out, text),
                Next::Cursor { cursor, rest } => {
                    reply::array(out, 2);
                    reply::bulk(out, cursor.to_string().as_bytes());
                    out.extend_from_slice(&bytes[rest..]);
                }
            });
        }
        self.across.give(errand);
    }

    /// Answers an errand that gets no reply from its server.
    #[cold]
    pub(super) fn on_errand_fault(
        &mut self,
        sessions: &mut Slab<Session>,
        place: (u16, u16),
        key: Key<Box<Errand>>,
        fault: Fault,
    ) {
        if let Some(errand) = self.across.errands.remove(key) {
            self.fail_errand(sessions, place, errand, fault);
        }
    }

    #[cold]
    fn fail_errand(
        &mut self,
        sessions: &mut Slab<Session>,
        (pool, backend): (u16, u16),
        errand: Box<Errand>,
        fault: Fault,
    ) {
        self.count_fault(pool, errand.class, fault);
        let class = self.cells.pool(pool as usize).class(errand.class as usize);
        class.latency.record(errand.started, self.clock.now);
        if errand.is_unheard {
            self.end_unheard(sessions, errand.session);
        } else if let Some(session) = sessions.get_mut(errand.session) {
            let text = self.describe_backend(pool, backend);
            self.complete(errand.session, session, errand.sequence, |out| {
                write_fault(fault, &text, out);
            });
        }
        self.across.give(errand);
    }

    /// To be called when a request is sent everywhere: what is to follow from
    /// the replies.
    pub(super) fn keep_lesson(&mut self, key: Key<Box<Join>>) {
        match (self.across.lesson.take(), self.joins.get_mut(key)) {
            (Some(Lesson::Certain(certain)), Some(join)) => join.certain = certain,
            (Some(Lesson::Report(report)), Some(join)) => join.report = Some(report),
            (Some(lesson), Some(_)) => {
                self.across.lessons.insert(key.to_bits(), lesson);
            }
            _ => {}
        }
    }

    /// Sends the scripts that a connection is not known to have, ahead of the
    /// transaction that calls them.
    pub(super) fn preload(&self, slot: &mut LinkSlot, scripts: &[Digest]) {
        for digest in scripts {
            if slot.scripts.contains(digest) {
                continue;
            }
            if let Some(body) = self.scripts(slot.pool).script(digest) {
                send_load(slot, [b"SCRIPT", b"LOAD"], &[&body], self.clock.now);
                note_loaded(slot, *digest);
            }
        }
    }

    /// What is sent everywhere next is to become one text.
    pub(super) fn expect_report(&mut self, report: Report) {
        self.across.lesson = Some(Lesson::Report(Box::new(report)));
    }

    /// Nothing more follows from what is sent everywhere.
    pub(super) fn expect_nothing(&mut self) {
        self.across.lesson = None;
    }

    /// To be called when a join is complete.
    #[inline]
    pub(super) fn learn(&mut self, key: Key<Box<Join>>, join: &Join) {
        if !self.across.lessons.is_empty() {
            self.learn_from(key, join);
        }
    }

    #[cold]
    fn learn_from(&mut self, key: Key<Box<Join>>, join: &Join) {
        let lesson = self.across.lessons.remove(&key.to_bits());
        let (Some(lesson), Some(said)) = (lesson, join.agreed()) else { return };
        let scripts = self.scripts(join.pool);
        match lesson {
            Lesson::Script(body) => {
                scripts.load(&body);
            }
            Lesson::Library(code) => scripts.load_library(said, &code),
            Lesson::Certain(_) | Lesson::Report(_) => {}
        }
    }

    /// The scripts of a sharded pool.
    fn scripts(&self, pool: u16) -> &Arc<ScriptCache> {
        let PoolKind::Sharded { scripts, .. } = &self.plan.pools[pool as usize].kind else {
            unreachable!("only sharded pools run scripts");
        };
        scripts
    }

    /// The servers of a pool that are in use.
    pub(super) fn in_use(&self, pool: u16) -> ServersInUse {
        let index = usize::from(pool);
        let is_used =
            |server| self.plan.health.is_usable(self.plan.topology.backend_id(index, server));
        ServersInUse::new(self.plan.topology.pools()[index].servers(), is_used)
    }

    fn no_server(&mut self, session: &mut Session, busy: &mut Busy, request: &Request) -> Step {
        let plan = Arc::clone(&self.plan);
        self.answer_unrouted(session, busy, &plan.pools[session.pool as usize], request);
        Step::Started
    }
}

fn note_loaded(slot: &mut LinkSlot, digest: Digest) {
    if slot.scripts.len() >= LINK_SCRIPTS_MAX {
        slot.scripts.clear();
    }
    slot.scripts.insert(digest);
}

/// Sends a load ahead of the request that needs it.
fn send_load(slot: &mut LinkSlot, name: [&[u8]; 2], words: &[&[u8]], now: Time) {
    let out = slot.link.request_buf();
    let start = out.len();
    reply::array(out, name.len() + words.len());
    name.iter().chain(words).for_each(|word| reply::bulk(out, word));
    let len = out.len() - start;
    slot.link.enqueue(Owner::Internal(Internal::Load), 0, len, now);
}

/// Forgets what a request unloads, if the servers will take its arguments.
fn forget(scripts: &ScriptCache, request: &Request, what: Loaded) {
    let option = request.args.get(2);
    if request.command.verb == Verb::FunctionDelete {
        return scripts.forget_libraries(option);
    }
    let is_mode =
        |word: &[u8]| word.eq_ignore_ascii_case(b"async") || word.eq_ignore_ascii_case(b"sync");
    if request.args.len() <= 3 && option.is_none_or(is_mode) {
        match what {
            Loaded::Scripts => scripts.forget_scripts(),
            Loaded::Functions => scripts.forget_libraries(None),
        }
    }
}
