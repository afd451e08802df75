//! Scripts on the embedded store.
//!
//! ```text
//!  EVAL ──► ScriptHost: what the script reaches ──► the engine runs it
//!       redis.call ──► ScriptHold: the shards of each command, held until the end
//!       ◄── the reply; then what was changed is told, as of a transaction
//! ```
//! A worker has an engine for each store. It is made for the first script. All workers share the
//! texts of scripts (`keyway_script::Registry`).

use crate::PoolPlan;
use crate::core::Plane;
use crate::core::pools::store::script_commands::{
    changes_libraries, control, write_list, write_stats,
};
use crate::core::pools::store::script_host::ScriptHost;
use crate::core::pools::store::slow::is_timed;
use crate::core::pools::store::state::StorePool;
use crate::core::pools::store::tracking::Settlement;
use crate::core::request::Step;
use crate::core::request::{ClientMut, RequestContext};
use keyway_command::{Request, Verb};
use keyway_proxy::{Identity, Session};
use keyway_resp::reply;
use keyway_script::{Engine, Host, Run, ScriptFlags, Words};
use keyway_store::{Busy, Context, Footprint, Held, Refused, Store};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Number of words of a function's request that FUNCTION STATS shows.
const COMMAND_WORDS_MAX: usize = 32;

impl Plane {
    /// Holds the shards that a request needs while a script of another worker runs, so that the
    /// request does not wait for shards that the script takes later. Returns `None` if the script
    /// holds one of these shards already: then the request is answered with an error.
    #[cold]
    pub(super) fn hold_beside_script<'a>(
        &mut self,
        store: &'a Store,
        incoming: &mut RequestContext,
    ) -> Option<Held<'a>> {
        let context = self.context_of(incoming);
        let mut footprint = Footprint::default();
        match incoming.request.command.verb {
            Verb::Info => footprint.add_all(),
            _ => footprint.add(store, incoming.request),
        }
        match store.hold(footprint, context) {
            Ok(held) => Some(held),
            Err(refused) => {
                let is_full = refused == Refused::OutOfMemory;
                self.started(incoming.session.pool, incoming.request.command.counted());
                self.note_store_error(
                    incoming.session.pool,
                    incoming.request.command.counted(),
                    is_full,
                );
                self.answer_locally(incoming, |out| reply::error(out, refused.text()));
                None
            }
        }
    }

    /// Waits until the shards that a request needs are free of a script of another worker, if one
    /// runs. Returns whether the request must still be answered. If another script begins now and
    /// takes shards, the request waits once more.
    pub(super) fn passes_script(&mut self, store: &Store, incoming: &mut RequestContext) -> bool {
        !store.has_script() || self.hold_beside_script(store, incoming).is_some()
    }

    /// Starts a command about scripts.
    #[cold]
    pub(super) fn script_on_store(
        &mut self,
        StorePool { pool, store }: StorePool<'_>,
        incoming: &mut RequestContext,
    ) -> Step {
        let work = match is_timed(&pool.slow_log, incoming.request) {
            true => self.begin_work(&pool.slow_log, incoming.session, incoming.busy),
            false => None,
        };
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let settlement = self.compose_script(pool, incoming.session, incoming.request, &mut out);
        let errors = (!self.takes_counted()).then_some(&pool.errors);
        self.served(incoming.session.pool, incoming.request.command.counted());
        self.answer_noted(incoming.session, incoming.busy, |dest| {
            dest.extend_from_slice(&out);
            errors.filter(|_| out.first() == Some(&b'-')).inspect(|errors| errors.note(&out));
        });
        if out.first() == Some(&b'-') {
            let is_full = out.starts_with(b"-OOM ");
            self.note_store_error(
                incoming.session.pool,
                incoming.request.command.counted(),
                is_full,
            );
        }
        self.scratch = out;
        if let Some(work) = work {
            self.end_work(
                pool,
                ClientMut { key: incoming.key, session: incoming.session },
                incoming.request,
                work,
            );
        }
        if let Some(settlement) = settlement {
            self.tell_changes(incoming.session, incoming.busy, settlement);
        }
        if store.notifies() {
            self.serve_waiters(incoming.session.pool, store);
        }
        Step::Started
    }

    /// Returns whether the reply just composed, if it is an error of a script, was counted when
    /// a command of the script was answered so.
    pub(super) fn takes_counted(&mut self) -> bool {
        std::mem::take(&mut self.store.scripts.is_counted)
    }

    /// Appends the reply to a command about scripts. Returns the script's changes that other
    /// clients must be told of.
    pub(super) fn compose_script(
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
        // The engine is taken out, so that a script can run beside the rest of the plane.
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
                let (now, start) = (self.clock.now, out.len());
                let mut work = || {
                    control(&mut engine, request, now, out);
                    out.get(start) != Some(&b'-')
                };
                match pool.kind.store() {
                    Some(store) if changes_libraries(request.command.verb) => {
                        let words: Vec<&[u8]> = request.args.from(0).collect();
                        store.tell_beside(&words, work);
                    }
                    _ => _ = work(),
                }
                None
            }
        };
        self.store.scripts.engines.insert(index, engine);
        settlement
    }

    /// Executes EVAL, EVALSHA and their read-only forms.
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
        self.run(pool, session, run, out, |host, run, out| {
            let words = Words { keys, args };
            engine.run(&script, &words, (host, run), is_read_only, client, out);
        })
    }

    /// Executes FCALL and FCALL_RO.
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
        self.run(pool, session, run, out, |host, run, out| {
            let words = Words { keys, args };
            engine.call(name, &words, (host, run), is_read_only, client, out);
        })
    }

    /// Returns whether the flags of a script allow it to run now.
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

    /// Runs a script, unless another script is busy. Returns the changes that other clients must be
    /// told of.
    fn run(
        &mut self,
        pool: &PoolPlan,
        session: &Session,
        run: Arc<Run>,
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
        // The time spent waiting for another script belongs to no request.
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
        self.pubsub.has_mail |= effects.has_own_messages;
        self.observe.monitoring.has_mail |= effects.has_own_lines;
        // The changes are collected now, before another client can change what was read.
        let settlement = (store.notifies() || effects.is_of_everything || tracks).then(|| {
            self.settlement_of_script(session, store, effects.reads, effects.is_of_everything)
        });
        drop(host);
        settlement
    }
}

fn store_busy(pool: &PoolPlan) -> Option<Busy> {
    pool.kind.store()?.busy()
}
