//! Scripts on the embedded store.
//!
//! ```text
//!  EVAL ──► ScriptHost: what the script reaches ──► the engine runs it
//!       redis.call ──► ScriptHold: the shards of each command, held until the end
//!       ◄── the reply; then what was changed is told, as of a transaction
//! ```
//! A worker has an engine for each store, made when the first script comes. The
//! texts of scripts are shared by all workers (`keyway_script::Registry`).

use crate::core::Plane;
use crate::core::front::input::Step;
use crate::core::pools::servers::stateful::RequestContext;
use crate::core::pools::store::slow::is_timed;
use crate::core::pools::store::tracking::{Settlement, is_of_everything};
use crate::core::pools::store::transactions::{is_executed, unserved};
use crate::{Plan, PoolPlan};
use indexmap::IndexMap;
use keyway_base::{Clock, Time, glob};
use keyway_command::{Flags, Handling, Request, Verb};
use keyway_proxy::local::{self, LocalContext, refuse_denied};
use keyway_proxy::pubsub::SubscriptionKind;
use keyway_proxy::{Identity, Session, dumped_libraries, is_shown, write_line};
use keyway_rdb::payload;
use keyway_resp::{Protocol, reply};
use keyway_script::{Engine, Host, Kill, Policy, Registry, Run, ScriptFlags, Words};
use keyway_store::{Busy, Context, Footprint, Held, Refused, ScriptHold, Store};
use keyway_users::Place;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// What stands before each library of a dump.
const DUMPED_LIBRARY: u8 = 245;

/// Words of a function's request that FUNCTION STATS shows.
const COMMAND_WORDS_MAX: usize = 32;

/// What a key or a message that is kept takes besides its bytes, about.
const KEPT_OVERHEAD: usize = 64;

/// Lines that one run of a script may write to the log.
const LOG_LINES_MAX: u32 = 100;

/// The engines of a worker, by pool.
#[derive(Default)]
pub(crate) struct StoreScripts {
    engines: IndexMap<u16, Engine, foldhash::fast::RandomState>,
    /// The reply of the last script, if an error, was counted when a command of it
    /// was answered so.
    is_counted: bool,
}

/// What a run has left to be told once it is over.
#[derive(Default)]
struct Effects {
    /// Keys that were read, where the client is to hear of their changes.
    reads: BTreeSet<Box<[u8]>>,
    /// Bytes of those, and of messages to subscribers of this worker.
    kept_len: usize,
    is_of_everything: bool,
    has_own_messages: bool,
    /// Number of calls that monitors could see. `monitor_every` shows one call in many.
    monitored: u64,
    /// Monitors of this worker have been shown a line.
    has_own_lines: bool,
}

/// What a script reaches of its worker.
struct ScriptHost {
    hold: ScriptHold,
    plan: Arc<Plan>,
    pool: u16,
    listener: u16,
    worker: u16,
    clock: Clock,
    identity: RefCell<Identity>,
    /// Whether its client may do everything.
    is_free: bool,
    /// Whether it runs for FCALL.
    is_function: bool,
    /// Whether reads are to be told.
    tracks: bool,
    effects: RefCell<Effects>,
    log_lines: Cell<u32>,
    /// See [`StoreScripts`].
    is_counted: Cell<bool>,
}

impl Host for ScriptHost {
    fn execute(
        &self,
        request: &Request<'_>,
        protocol: Protocol,
        has_written: bool,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        self.execute_uncounted(request, protocol, has_written, out);
        if out.get(start) == Some(&b'-') {
            self.plan.pools[usize::from(self.pool)].errors.note(&out[start..]);
        }
    }

    fn count_error(&self, text: &[u8]) {
        let reply = [b"-", text].concat();
        self.plan.pools[usize::from(self.pool)].errors.note(&reply);
    }

    fn note_counted(&self) {
        self.is_counted.set(true);
    }

    fn note_busy(&self) {
        self.hold.note_busy(if self.is_function { Busy::Function } else { Busy::Script });
    }

    fn kept_len(&self) -> usize {
        self.effects.borrow().kept_len + self.hold.store().untaken_len(self.worker)
    }

    fn log(&self, level: u8, text: &str) {
        let lines = self.log_lines.get();
        self.log_lines.set(lines.saturating_add(1));
        if lines >= LOG_LINES_MAX {
            return;
        }
        let pool = &*self.plan.pools[usize::from(self.pool)].name;
        match level {
            0 => tracing::trace!(pool, text, "a script tells"),
            1 => tracing::debug!(pool, text, "a script tells"),
            2 => tracing::info!(pool, text, "a script tells"),
            _ => tracing::warn!(pool, text, "a script tells"),
        }
    }
}

impl ScriptHost {
    fn execute_uncounted(
        &self,
        request: &Request<'_>,
        protocol: Protocol,
        has_written: bool,
        out: &mut Vec<u8>,
    ) {
        if !self.may(request, out) {
            return;
        }
        if self.plan.pools[usize::from(self.pool)].pause.is_monitored() {
            self.show(request);
        }
        if !is_executed(request) {
            return self.answer(request, protocol, out);
        }
        let database = self.identity.borrow().database;
        let context = Context { database, clock: self.clock, protocol, worker: self.worker };
        if self.tracks && request.command.flags.contains(Flags::READONLY) {
            self.note_reads(request);
        }
        let start = out.len();
        self.hold.execute(request, context, has_written, out);
        if is_of_everything(request.command.verb) && out.get(start) != Some(&b'-') {
            self.effects.borrow_mut().is_of_everything = true;
        }
    }

    /// Whether the client's user may do what its script does; answers where not.
    #[inline]
    fn may(&self, request: &Request<'_>, out: &mut Vec<u8>) -> bool {
        if self.is_free {
            return true;
        }
        let mut identity = self.identity.borrow_mut();
        let judged = identity.user.as_ref().map_or(Ok(()), |user| user.judge(request));
        if let Err(denied) = judged {
            let context = self.local_context(&mut identity);
            refuse_denied(request, denied, Place::Script, &context, out);
        }
        judged.is_ok()
    }

    fn local_context<'a>(&'a self, identity: &'a mut Identity) -> LocalContext<'a> {
        LocalContext {
            identity,
            clock: self.clock,
            users: &self.plan.listeners[usize::from(self.listener)].users,
            databases: self.plan.pools[usize::from(self.pool)].databases,
            clients: &self.plan.clients,
            facts: &*self.plan.facts,
            pool: self.pool,
            reply_len_max: self.plan.limits.session_output_len_hard as usize,
            cluster: None,
        }
    }

    /// Shows a call to the pool's monitors at once, because a script may run for long.
    #[cold]
    fn show(&self, request: &Request<'_>) {
        let mut effects = self.effects.borrow_mut();
        effects.monitored += 1;
        let every = u64::from(self.plan.limits.monitor_every.max(1));
        if !is_shown(request) || !effects.monitored.is_multiple_of(every) {
            return;
        }
        let mut line = Vec::new();
        write_line(request, self.clock, self.identity.borrow().database, "lua", &mut line);
        for worker in self.plan.monitors.show(vec![(self.pool, line.into())]) {
            match worker == self.worker {
                true => effects.has_own_lines = true,
                false => self.plan.post_published(worker),
            }
        }
    }

    fn note_reads(&self, request: &Request<'_>) {
        let mut keys = Vec::new();
        if request.keys(&mut keys).is_ok() {
            let mut effects = self.effects.borrow_mut();
            for key in keys.iter().map(|key| &request.args[*key as usize]) {
                if !effects.reads.contains(key) {
                    effects.reads.insert(key.into());
                    effects.kept_len += key.len() + KEPT_OVERHEAD;
                }
            }
        }
    }

    /// Answers a command that is not the store's.
    fn answer(&self, request: &Request<'_>, protocol: Protocol, out: &mut Vec<u8>) {
        let command = request.command;
        let kind = match command.verb {
            Verb::Publish => Some(SubscriptionKind::Channel),
            Verb::Spublish => Some(SubscriptionKind::Shard),
            _ => None,
        };
        if let Some(kind) = kind {
            let place = (self.pool, self.worker);
            let (channel, message) = (&request.args[1], &request.args[2]);
            let receivers = self.plan.channels.publish(place, kind, channel, message);
            receivers.wake.iter().for_each(|worker| self.plan.post_published(*worker));
            if receivers.has_own {
                let mut effects = self.effects.borrow_mut();
                effects.has_own_messages = true;
                effects.kept_len += channel.len() + message.len() + KEPT_OVERHEAD;
            }
            return reply::integer(out, receivers.count as i64);
        }
        if command.handling != Handling::Local {
            let name = command.name.replace('|', " ");
            return reply::error(out, &unserved(&name, command.handling));
        }
        if command.verb == Verb::Info {
            // It looks at every shard, one after the other.
            self.hold.hold_everything();
        }
        let mut identity = self.identity.borrow_mut();
        identity.protocol = protocol;
        let mut context = self.local_context(&mut identity);
        // What would be done to the connection is refused in scripts.
        let _ = local::answer(request, &mut context, out);
    }
}

impl Plane {
    /// Holds what a request needs while a script of another worker runs, so that
    /// it does not have to wait for what the script takes meanwhile. `None` when
    /// the request is answered already: the script holds that, and is busy.
    #[cold]
    pub(in crate::core) fn hold_beside_script<'a>(
        &mut self,
        store: &'a Store,
        asked: &mut RequestContext,
    ) -> Option<Held<'a>> {
        let context = self.context_of(asked);
        let mut footprint = Footprint::default();
        match asked.request.command.verb {
            Verb::Info => footprint.add_all(),
            _ => footprint.add(store, asked.request),
        }
        match store.hold(footprint, context) {
            Ok(held) => Some(held),
            Err(refused) => {
                let is_full = refused == Refused::OutOfMemory;
                self.count(asked.session, asked.request);
                self.note_store_error(asked.session.pool, asked.request.command.counted(), is_full);
                self.answer_locally(asked, |out| reply::error(out, refused.text()));
                None
            }
        }
    }

    /// Waits until a request has what it needs of a script of another worker, if
    /// one runs; whether the request is still to be answered. What a script that
    /// begins now takes is waited for once more.
    pub(in crate::core) fn passes_script(
        &mut self,
        store: &Store,
        asked: &mut RequestContext,
    ) -> bool {
        !store.has_script() || self.hold_beside_script(store, asked).is_some()
    }

    /// Starts a command about scripts.
    #[cold]
    pub(in crate::core) fn script_on_store(
        &mut self,
        (pool, store): (&PoolPlan, &Store),
        asked: &mut RequestContext,
    ) -> Step {
        let work = match is_timed(&pool.slow_log, asked.request) {
            true => self.begin_work(&pool.slow_log, asked.session, asked.busy),
            false => None,
        };
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let settlement = self.compose_script(pool, asked.session, asked.request, &mut out);
        let errors = (!self.takes_counted()).then_some(&pool.errors);
        self.count(asked.session, asked.request);
        self.note_served(asked.session.pool, asked.request.command.counted());
        self.answer_noted(asked.session, asked.busy, |dest| {
            dest.extend_from_slice(&out);
            errors.filter(|_| out.first() == Some(&b'-')).inspect(|errors| errors.note(&out));
        });
        if out.first() == Some(&b'-') {
            let is_full = out.starts_with(b"-OOM ");
            self.note_store_error(asked.session.pool, asked.request.command.counted(), is_full);
        }
        self.scratch = out;
        if let Some(work) = work {
            self.end_work(pool, (asked.key, asked.session), asked.request, work);
        }
        if let Some(settlement) = settlement {
            self.tell_changes(asked.session, asked.busy, settlement);
        }
        if store.notifies() {
            self.serve_waiters(asked.session.pool, store);
        }
        Step::Started
    }

    /// Whether the reply just composed, if it is an error of a script, was counted when
    /// a command of the script was answered so.
    pub(in crate::core::pools::store) fn takes_counted(&mut self) -> bool {
        std::mem::take(&mut self.store.scripts.is_counted)
    }

    /// Appends the reply to a command about scripts; what remains to be told of
    /// what a script has done.
    pub(in crate::core::pools::store) fn compose_script(
        &mut self,
        pool: &PoolPlan,
        session: &mut Session,
        request: &Request,
        out: &mut Vec<u8>,
    ) -> Option<Settlement> {
        let index = session.pool;
        let engines = &mut self.store.scripts.engines;
        let (relief, mailers, worker) = (&self.plan.relief, &self.plan.mailers, self.cells.index());
        let new = || {
            let (relief, mailers) = (Arc::clone(relief), Arc::clone(mailers));
            let on_long = Rc::new(move || relief.ask(worker as u16, &mailers));
            Engine::new(Arc::clone(&pool.scripts)).with_long(on_long)
        };
        // Taken out, so that a script can be run beside the rest of the plane.
        let mut engine = engines.swap_remove(&index).unwrap_or_else(new);
        let settlement = match request.command.verb {
            Verb::Eval | Verb::EvalRo | Verb::Evalsha | Verb::EvalshaRo => {
                self.eval(&mut engine, pool, session, request, out)
            }
            Verb::Fcall | Verb::FcallRo => self.fcall(&mut engine, pool, session, request, out),
            Verb::FunctionStats if store_busy(pool) == Some(Busy::Script) => {
                reply::error(out, Busy::Script.text());
                None
            }
            Verb::FunctionStats => {
                let running = pool.scripts.running_function();
                let now = self.clock.now;
                write_stats(&pool.scripts, running.as_deref(), now, session, out);
                None
            }
            Verb::FunctionList => {
                write_list(&pool.scripts, request, session.identity.protocol, out);
                None
            }
            _ => {
                control(&mut engine, request, self.clock.now, out);
                None
            }
        };
        self.store.scripts.engines.insert(index, engine);
        settlement
    }

    /// EVAL and its like.
    fn eval(
        &mut self,
        engine: &mut Engine,
        pool: &PoolPlan,
        session: &mut Session,
        request: &Request,
        out: &mut Vec<u8>,
    ) -> Option<Settlement> {
        let mut keys = std::mem::take(&mut self.keys);
        let found = request.keys(&mut keys);
        let key_count = keys.len();
        self.keys = keys;
        if let Err(fault) = found {
            reply::error(out, &request.keys_error(fault));
            return None;
        }
        let verb = request.command.verb;
        let script = match verb {
            Verb::Eval | Verb::EvalRo => engine.load(&request.args[1], false),
            _ => engine
                .find(&request.args[1])
                .ok_or_else(|| "NOSCRIPT No matching script. Please use EVAL.".to_owned()),
        };
        let is_read_only = matches!(verb, Verb::EvalRo | Verb::EvalshaRo);
        let script = script.and_then(|script| {
            self.admit(pool, session, request, script.flags, is_read_only).map(|()| script)
        });
        let script = match script {
            Ok(script) => script,
            Err(text) => {
                reply::error(out, &text);
                return None;
            }
        };
        let name = String::from_utf8_lossy(&script.name).into_owned();
        let run = Run::new(false, name, Vec::new(), self.clock.now);
        let run = Arc::new(run.for_client(session.identity.id));
        let words: Vec<&[u8]> = request.args.from(3).collect();
        let (keys, args) = words.split_at(key_count.min(words.len()));
        let client = session.identity.protocol;
        self.run(pool, (session, run), out, |host, run, out| {
            let words = Words { keys, args };
            engine.run(&script, &words, (host, run), is_read_only, client, out);
        })
    }

    /// FCALL and FCALL_RO.
    fn fcall(
        &mut self,
        engine: &mut Engine,
        pool: &PoolPlan,
        session: &mut Session,
        request: &Request,
        out: &mut Vec<u8>,
    ) -> Option<Settlement> {
        let name = &request.args[1];
        let is_read_only = request.command.verb == Verb::FcallRo;
        let mut keys = std::mem::take(&mut self.keys);
        let found = request.keys(&mut keys);
        let key_count = keys.len();
        self.keys = keys;
        let info = engine.find_function(name).ok_or_else(|| "ERR Function not found".to_owned());
        let admitted = info.and_then(|info| {
            found.map_err(|fault| request.keys_error(fault))?;
            self.admit(pool, session, request, info.flags, is_read_only)?;
            Ok(info)
        });
        let info = match admitted {
            Ok(info) => info,
            Err(text) => {
                reply::error(out, &text);
                return None;
            }
        };
        let is_read_only = is_read_only || info.flags.no_writes;
        let command = request.args.from(0).take(COMMAND_WORDS_MAX).map(<[u8]>::to_vec).collect();
        let shown = String::from_utf8_lossy(name).into_owned();
        let run = Run::new(true, shown, command, self.clock.now);
        let run = Arc::new(run.for_client(session.identity.id));
        let words: Vec<&[u8]> = request.args.from(3).collect();
        let (keys, args) = words.split_at(key_count.min(words.len()));
        let client = session.identity.protocol;
        self.run(pool, (session, run), out, |host, run, out| {
            let words = Words { keys, args };
            engine.call(name, &words, (host, run), is_read_only, client, out);
        })
    }

    /// Whether what a script says of itself allows it to run now.
    fn admit(
        &self,
        pool: &PoolPlan,
        session: &Session,
        request: &Request,
        flags: ScriptFlags,
        is_read_only: bool,
    ) -> Result<(), String> {
        if !flags.is_declared {
            return Ok(());
        }
        if is_read_only && !flags.no_writes {
            return Err("ERR Can not execute a script with write flag using *_ro command.".into());
        }
        let Some(store) = pool.kind.store() else { return Ok(()) };
        let Identity { database, protocol, .. } = session.identity;
        let context = Context { database, clock: self.clock, protocol, worker: self.worker() };
        if !flags.allow_oom && !flags.no_writes && !store.has_room_for(request, context) {
            return Err("OOM allow-oom flag is not set on the script, can not run it when used \
                        memory > 'maxmemory'"
                .into());
        }
        Ok(())
    }

    /// Runs a script with what it reaches, unless another is busy; what is to be
    /// told of it.
    fn run(
        &mut self,
        pool: &PoolPlan,
        (session, run): (&Session, Arc<Run>),
        out: &mut Vec<u8>,
        work: impl FnOnce(Rc<dyn Host>, Arc<Run>, &mut Vec<u8>),
    ) -> Option<Settlement> {
        let store = pool.kind.store()?;
        let hold = match store.begin_script() {
            Ok(hold) => hold,
            Err(busy) => {
                reply::error(out, busy.text());
                return None;
            }
        };
        // Waiting for another script is nobody's work.
        self.look(&pool.slow_log);
        let tracks = session.tracking.as_deref().is_some_and(|tracking| tracking.tracks_next());
        let host = Rc::new(ScriptHost {
            hold,
            plan: Arc::clone(&self.plan),
            pool: session.pool,
            listener: session.listener,
            worker: self.worker(),
            clock: self.clock,
            identity: RefCell::new(session.identity.clone()),
            is_free: session.identity.is_free,
            is_function: run.is_function(),
            tracks,
            effects: RefCell::default(),
            log_lines: Cell::new(0),
            is_counted: Cell::new(false),
        });
        if pool.pause.is_monitored() {
            // Monitors see the script's own request before its calls.
            self.show_started();
        }
        work(Rc::clone(&host) as Rc<dyn Host>, run, out);
        self.store.scripts.is_counted = host.is_counted.get();
        let effects = host.effects.take();
        self.servers.pubsub.has_mail |= effects.has_own_messages;
        self.observe.monitoring.has_mail |= effects.has_own_lines;
        // As long as nothing that was read can change.
        let settlement = (store.notifies() || effects.is_of_everything || tracks)
            .then(|| self.gather_script(session, store, effects.reads, effects.is_of_everything));
        drop(host);
        settlement
    }
}

fn store_busy(pool: &PoolPlan) -> Option<Busy> {
    pool.kind.store()?.busy()
}

/// SCRIPT and FUNCTION with their subcommands.
fn control(engine: &mut Engine, request: &Request, now: Time, out: &mut Vec<u8>) {
    let registry = Arc::clone(engine.registry());
    match request.command.verb {
        Verb::ScriptLoad => match engine.load(&request.args[1 + 1], true) {
            Ok(script) => reply::bulk(out, &script.name),
            Err(text) => reply::error(out, &text),
        },
        Verb::ScriptExists => {
            let names = request.args.from(2);
            reply::array(out, request.args.len() - 2);
            names.for_each(|name| reply::integer(out, i64::from(registry.has(name))));
        }
        Verb::ScriptFlush => match flush_option(request) {
            true => {
                registry.flush();
                reply::simple(out, "OK");
            }
            false => reply::error(out, "ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        },
        Verb::ScriptKill => write_kill(registry.kill(false), "FUNCTION KILL", out),
        Verb::FunctionKill => write_kill(registry.kill(true), "SCRIPT KILL", out),
        Verb::FunctionLoad => match load_library(engine, request, now) {
            Ok(name) => reply::bulk(out, &name),
            Err(text) => reply::error(out, &text),
        },
        Verb::FunctionDelete => match registry.delete_library(&request.args[2]) {
            true => reply::simple(out, "OK"),
            false => reply::error(out, "ERR Library not found"),
        },
        Verb::FunctionFlush => match flush_option(request) {
            true => {
                registry.flush_libraries();
                reply::simple(out, "OK");
            }
            false => reply::error(out, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
        },
        Verb::FunctionDump => {
            let mut dump = Vec::new();
            for library in registry.libraries() {
                dump.push(DUMPED_LIBRARY);
                keyway_rdb::format::write_bytes(&library.code, &mut dump);
            }
            payload::seal(&mut dump);
            reply::bulk(out, &dump);
        }
        Verb::FunctionRestore => match restore(engine, request, now) {
            Ok(()) => reply::simple(out, "OK"),
            Err(text) => reply::error(out, &text),
        },
        Verb::ScriptDebug => {
            let text = "ERR 'script debug' is refused: a script that waits for its debugger would \
                        hold up the store; debug it on a redis-server of its own";
            reply::error(out, text);
        }
        _ => {
            let name = request.command.name.replace('|', " ");
            reply::error(out, &unserved(&name, request.command.handling));
        }
    }
}

/// FUNCTION LOAD; the library's name.
fn load_library(engine: &mut Engine, request: &Request, now: Time) -> Result<Vec<u8>, String> {
    let code = request.args.len() - 1;
    let mut policy = Policy::Append;
    for option in request.args.from(2).take(code - 2) {
        if !option.eq_ignore_ascii_case(b"replace") {
            let option = String::from_utf8_lossy(option);
            return Err(format!("ERR Unknown option given: {option}"));
        }
        policy = Policy::Replace;
    }
    let library = engine.load_library(&request.args[code], policy, &loading(request, now))?;
    let name = library.name.clone();
    engine.registry().keep_libraries(vec![library], policy)?;
    Ok(name)
}

/// What FUNCTION KILL ends while libraries are loaded.
fn loading(request: &Request, now: Time) -> Arc<Run> {
    let name = request.command.name.replace('|', " ").to_uppercase();
    Arc::new(Run::new(true, name, Vec::new(), now))
}

/// FUNCTION RESTORE.
fn restore(engine: &mut Engine, request: &Request, now: Time) -> Result<(), String> {
    let payload = &request.args[2];
    let is = |word: &str| request.args[3].eq_ignore_ascii_case(word.as_bytes());
    let policy = match request.args.len() {
        3 => Policy::Append,
        4 if is("append") => Policy::Append,
        4 if is("replace") => Policy::Replace,
        4 if is("flush") => Policy::Flush,
        _ => {
            let text = "ERR Wrong restore policy given, value should be either FLUSH, APPEND or \
                        REPLACE.";
            return Err(text.to_owned());
        }
    };
    if payload::open(payload).is_none() {
        return Err("ERR DUMP payload version or checksum are wrong".to_owned());
    }
    let codes =
        dumped_libraries(payload).map_err(|_| "ERR failed loading functions payload".to_owned())?;
    // Whether their names are free is found out when they are kept.
    let codes: Vec<&[u8]> = codes.iter().map(Vec::as_slice).collect();
    let libraries = engine.load_libraries(&codes, &loading(request, now))?;
    engine.registry().keep_libraries(libraries, policy)
}

/// FUNCTION LIST.
fn write_list(registry: &Registry, request: &Request, protocol: Protocol, out: &mut Vec<u8>) {
    let (mut pattern, mut with_code) = (None, false);
    let mut index = 2;
    while let Some(word) = request.args.get(index) {
        if !with_code && word.eq_ignore_ascii_case(b"withcode") {
            with_code = true;
        } else if pattern.is_none() && word.eq_ignore_ascii_case(b"libraryname") {
            index += 1;
            let Some(name) = request.args.get(index) else {
                return reply::error(out, "ERR library name argument was not given");
            };
            pattern = Some(name);
        } else {
            let word = String::from_utf8_lossy(word);
            return reply::error(out, &format!("ERR Unknown argument {word}"));
        }
        index += 1;
    }
    let mut libraries = registry.libraries();
    libraries.retain(|it| pattern.is_none_or(|like| glob::matches_ignoring_case(like, &it.name)));
    reply::array(out, libraries.len());
    for library in libraries {
        protocol.map(out, if with_code { 4 } else { 3 });
        reply::bulk(out, b"library_name");
        reply::bulk(out, &library.name);
        reply::bulk(out, b"engine");
        reply::bulk(out, b"LUA");
        reply::bulk(out, b"functions");
        reply::array(out, library.functions.len());
        for function in &library.functions {
            protocol.map(out, 3);
            reply::bulk(out, b"name");
            reply::bulk(out, &function.name);
            reply::bulk(out, b"description");
            match &function.description {
                Some(text) => reply::bulk(out, text),
                None => protocol.null(out),
            }
            reply::bulk(out, b"flags");
            protocol.set(out, function.flag_names.len());
            function.flag_names.iter().for_each(|flag| reply::simple(out, flag));
        }
        if with_code {
            reply::bulk(out, b"library_code");
            reply::bulk(out, &library.code);
        }
    }
}

/// FUNCTION STATS.
fn write_stats(
    registry: &Registry,
    running: Option<&Run>,
    now: Time,
    session: &Session,
    out: &mut Vec<u8>,
) {
    let protocol = session.identity.protocol;
    protocol.map(out, 2);
    reply::bulk(out, b"running_script");
    match running {
        None => protocol.null(out),
        Some(run) => {
            protocol.map(out, 3);
            reply::bulk(out, b"name");
            reply::bulk(out, run.name.as_bytes());
            reply::bulk(out, b"command");
            reply::array(out, run.command.len());
            run.command.iter().for_each(|word| reply::bulk(out, word));
            reply::bulk(out, b"duration_ms");
            reply::integer(out, now.since(run.began).as_millis() as i64);
        }
    }
    let (libraries, functions, _) = registry.library_counts();
    reply::bulk(out, b"engines");
    protocol.map(out, 1);
    reply::bulk(out, b"LUA");
    protocol.map(out, 2);
    reply::bulk(out, b"libraries_count");
    reply::integer(out, libraries as i64);
    reply::bulk(out, b"functions_count");
    reply::integer(out, functions as i64);
}

/// Whether the option of a flush is one: it makes no difference.
fn flush_option(request: &Request) -> bool {
    let is =
        |word: &[u8]| word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async");
    match request.args.len() {
        2 => true,
        3 => is(&request.args[2]),
        _ => false,
    }
}

fn write_kill(kill: Kill, other: &str, out: &mut Vec<u8>) {
    match kill {
        Kill::Killed => reply::simple(out, "OK"),
        Kill::NotBusy => reply::error(out, "NOTBUSY No scripts in execution right now."),
        Kill::Unkillable => reply::error(
            out,
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You \
             can either wait the script termination or kill the server in a hard way using the \
             SHUTDOWN NOSAVE command.",
        ),
        Kill::OtherKind => reply::error(
            out,
            &format!(
                "BUSY Redis is busy running a script. You can only call {other} or SHUTDOWN NOSAVE."
            ),
        ),
    }
}
