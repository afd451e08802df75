//! Transactions on the embedded store.
//!
//! ```text
//!  MULTI ──► the session keeps the commands ──► EXEC: the shards of all their
//!            keys are held, each command is executed, the shards are released
//!        ──► the reply, and behind it what the client is told of its own changes
//! ```
//! WATCH enters keys in the store's table of watches. A change sets the marks of the watches of its
//! key. EXEC looks at the mark while it holds the shards of the keys.
//!
//! A command that the store cannot run, or for which there is no room, is refused when it comes.
//! Then EXEC is refused as well, as with Redis.

use crate::core::front::queued::ForKeys;
use crate::core::pools::store::roles::{is_served_at_once, write_at_once};
use crate::core::pools::store::slow::is_timed;
use crate::core::pools::store::state::StorePool;
use crate::core::pools::store::tracking::Settlement;
use crate::core::request::{RequestContext, Step};
use crate::core::{Connections, Plane};
use keyway_base::ByteRange;
use keyway_command::{Args, Flags, Handling, Request, Verb, store_scripts, store_serves};
use keyway_proxy::pubsub::SubscriptionKind;
use keyway_proxy::{Transaction, WatchedKeys};
use keyway_resp::{ParseLimits, Parsed, parse_request, reply};
use keyway_store::{Context, Footprint, Held, OutOfMemory, Store};

/// The effects of a transaction's commands that are told once all are executed.
#[derive(Default)]
struct Executed {
    replies: Vec<u8>,
    settlements: Vec<Settlement>,
}

impl Plane {
    /// Handles a request of a session that has a transaction, a watch or tracking. Returns `None`
    /// if the request is handled like any other.
    #[cold]
    pub(in crate::core) fn serve_special(
        &mut self,
        links: &mut Connections,
        store: &Store,
        incoming: &mut RequestContext,
    ) -> Option<Step> {
        let stateful = incoming.session.stateful.as_ref();
        let is_open = stateful.is_some_and(|stateful| stateful.transaction.is_some());
        match incoming.request.command.verb {
            Verb::Reset => self.end_stateful(links, incoming.key, incoming.session),
            Verb::Multi | Verb::Exec | Verb::Discard | Verb::Watch | Verb::Quit => {}
            _ if is_open => {
                self.queue_on_store(store, incoming);
                return Some(Step::Started);
            }
            _ => {}
        }
        if incoming.session.tracking.is_some() {
            self.begin_tracked(store, incoming);
        }
        None
    }

    /// Queues a command of the open transaction.
    fn queue_on_store(&mut self, store: &Store, incoming: &mut RequestContext) {
        let context = self.context_of(incoming);
        let is_queued = match () {
            () if !store.has_room_for(incoming.request, context) => {
                Err(OutOfMemory::TEXT.to_owned())
            }
            () => check_queued(incoming.request).and_then(|()| self.keep_queued(incoming, None)),
        };
        match is_queued {
            Ok(()) => self.answer_locally(incoming, |out| reply::simple(out, "QUEUED")),
            Err(text) => self.refuse_queued(incoming, &text),
        }
    }

    /// Executes MULTI, EXEC, DISCARD, WATCH and UNWATCH.
    #[cold]
    pub(super) fn transact_on_store(
        &mut self,
        links: &mut Connections,
        StorePool { pool, store }: StorePool<'_>,
        incoming: &mut RequestContext,
    ) -> Step {
        match self.begin_or_drop(links, incoming) {
            None => {}
            Some(ForKeys::Exec) => self.exec_on_store(StorePool { pool, store }, incoming),
            Some(ForKeys::Watch) => self.watch_on_store(store, incoming),
        }
        Step::Started
    }

    /// Watches the keys of a request.
    fn watch_on_store(&mut self, store: &Store, incoming: &mut RequestContext) {
        let context = self.context_of(incoming);
        if !self.passes_script(store, incoming) {
            return;
        }
        let stateful = incoming.session.stateful.get_or_insert_default();
        let watched = stateful
            .watched
            .get_or_insert_with(|| Box::new(WatchedKeys::new(&self.plan.transactions)));
        for key in incoming.request.args.from(1) {
            // EXEC fails once one key has changed, whatever becomes of the others.
            if watched.has_changed() {
                break;
            }
            match watched.add(context.database, key) {
                Some(true) => store.watch(key, context, &watched.mark),
                Some(false) => {}
                None => {
                    let text = format!(
                        "OOM the keys that clients watch, with what waits for EXEC, would take more \
                         than transactions_len_max ({} bytes); watch fewer, or ask again when others \
                         have ended",
                        self.plan.transactions.len_max()
                    );
                    return self
                        .refuse(incoming.session, incoming.busy, |out| reply::error(out, &text));
                }
            }
        }
        self.answer_locally(incoming, |out| reply::simple(out, "OK"));
    }

    /// Ends the watch of keys.
    pub(in crate::core) fn unwatch_keys(&mut self, pool: u16, watched: WatchedKeys) {
        let Some(store) = self.plan.pools[usize::from(pool)].kind.store() else { return };
        watched.keys().for_each(|(database, key)| store.unwatch(database, key, &watched.mark));
    }

    /// Executes the queued commands as one, unless a watched key has changed.
    fn exec_on_store(
        &mut self,
        StorePool { pool, store }: StorePool<'_>,
        incoming: &mut RequestContext,
    ) {
        let Some(stateful) = incoming.session.stateful.as_mut() else { return };
        let Some(transaction) = stateful.transaction.take() else { return };
        let watched = stateful.watched.take();
        incoming.session.tidy();
        let executed = match transaction.is_refused() {
            true => Err(" previous errors.".to_owned()),
            false => self.execute_queued(
                StorePool { pool, store },
                incoming,
                &transaction,
                watched.as_deref(),
            ),
        };
        if let Some(watched) = watched {
            self.unwatch_keys(incoming.session.pool, *watched);
        }
        match executed {
            Err(reason) => {
                let text = format!("EXECABORT Transaction discarded because of{reason}");
                self.refuse(incoming.session, incoming.busy, |out| reply::error(out, &text));
            }
            Ok(Executed { replies, settlements }) => {
                self.answer_locally(incoming, |out| out.extend_from_slice(&replies));
                for settlement in settlements {
                    self.tell_changes(incoming.session, incoming.busy, settlement);
                }
                if store.notifies() {
                    self.serve_waiters(incoming.session.pool, store);
                }
            }
        }
        if let Some(tracking) = incoming.session.tracking.as_deref_mut() {
            tracking.take_caching();
        }
    }

    /// Executes the queued commands. Returns the end of an error's text if it cannot.
    fn execute_queued(
        &mut self,
        StorePool { pool, store }: StorePool<'_>,
        incoming: &mut RequestContext,
        transaction: &Transaction,
        watched: Option<&WatchedKeys>,
    ) -> Result<Executed, String> {
        let context = self.context_of(incoming);
        let limits = ParseLimits::of(&self.plan.limits);
        if store.is_restricted() {
            refusal_of_queued(store, transaction, &limits)?;
        }
        let mut footprint = Footprint::default();
        each_request(transaction.requests(), &limits, |request| {
            match is_executed(request) {
                true => footprint.add(store, request),
                // The command, or a script, may look at every shard, one after the other.
                false if looks_at_all(request.command.verb) => footprint.add_all(),
                false => {}
            }
        });
        let watched_keys = || watched.into_iter().flat_map(WatchedKeys::keys);
        watched_keys().for_each(|(_, key)| footprint.add_key(store, key));
        let held =
            store.hold(footprint, context).map_err(|refused| format!(": {}", refused.text()))?;
        let mut executed = Executed::default();
        for (database, key) in watched_keys() {
            held.expire(key, Context { database, ..context });
        }
        if watched.is_some_and(WatchedKeys::has_changed) {
            incoming.session.identity.protocol.null_array(&mut executed.replies);
            if store.notifies() {
                let settlement =
                    self.settlement_of(incoming.session.pool, store, incoming.request, true);
                executed.settlements.push(settlement);
            }
            return Ok(executed);
        }
        reply::array(&mut executed.replies, usize::from(transaction.queued()));
        each_request(transaction.requests(), &limits, |request| {
            self.run_queued(StorePool { pool, store }, &held, incoming, request, &mut executed);
        });
        Ok(executed)
    }

    /// Executes one command of a transaction.
    fn run_queued(
        &mut self,
        StorePool { pool, store }: StorePool<'_>,
        held: &Held<'_>,
        incoming: &mut RequestContext,
        request: &Request,
        executed: &mut Executed,
    ) {
        // A command that the store does not execute may have a password in it.
        let is_work = is_executed(request) || store_scripts(request.command.verb);
        let work = match is_work && is_timed(&pool.slow_log, request) {
            // The commands before it in the transaction were no requests of their own.
            true => self
                .look(&pool.slow_log)
                .and_then(|_| self.begin_work(&pool.slow_log, incoming.session, incoming.busy)),
            false => None,
        };
        let out = &mut executed.replies;
        let start = out.len();
        let verb = request.command.verb;
        if is_executed(request) {
            if incoming.session.tracking.is_some() {
                self.enter_reads(incoming.session, request);
            }
            held.execute(request, self.context_of(incoming), out);
            let is_error = out.get(start) == Some(&b'-');
            if store.notifies() {
                let settlement =
                    self.settlement_of(incoming.session.pool, store, request, is_error);
                executed.settlements.push(settlement);
            }
        } else if store_scripts(verb) {
            let settlement = self.compose_script(pool, incoming.session, request, out);
            executed.settlements.extend(settlement);
        } else {
            match verb {
                Verb::Publish | Verb::Spublish => {
                    let kind = match verb {
                        Verb::Publish => SubscriptionKind::Channel,
                        _ => SubscriptionKind::Shard,
                    };
                    let (channel, message) = (&request.args[1], &request.args[2]);
                    let count = self.publish(incoming.session.pool, kind, channel, message);
                    reply::integer(out, count as i64);
                }
                Verb::Unwatch => reply::simple(out, "OK"),
                _ if is_served_at_once(verb) => write_at_once(pool, request, out),
                _ => {
                    self.observe.served.count_calls(&self.cells);
                    let after = self.compose_local(incoming.session, pool, request, out);
                    self.follow(incoming.session, pool, after);
                }
            }
        }
        if let Some(work) = work {
            self.end_work(pool, incoming.client(), request, work);
        }
        let is_counted = self.takes_counted();
        if out.get(start) == Some(&b'-') {
            if !is_counted {
                self.plan.pools[usize::from(incoming.session.pool)].errors.note(&out[start..]);
            }
            self.note_store_error(incoming.session.pool, request.command.counted(), false);
        }
        if out.len() as u64 > self.plan.limits.session_output_len_hard {
            // The client will be disconnected for this, so no more is kept.
            out.truncate(start);
            out.resize(self.plan.limits.session_output_len_hard as usize + 1, b'\n');
        }
    }

    /// Returns the facts about a client that the store needs for its request.
    pub(super) fn context_of(&self, incoming: &RequestContext) -> Context {
        let identity = &incoming.session.identity;
        Context {
            database: identity.database,
            clock: self.clock,
            protocol: identity.protocol,
            worker: self.worker(),
        }
    }
}

/// Returns whether the store executes a command of a transaction. A command that may wait does not
/// wait there.
pub(super) fn is_executed(request: &Request) -> bool {
    store_serves(request.command.verb) || request.command.handling == Handling::Block
}

/// Returns whether a command that the store does not execute itself needs all of it.
fn looks_at_all(verb: Verb) -> bool {
    use Verb::{Eval, EvalRo, Evalsha, EvalshaRo, Fcall, FcallRo};
    tells_of_all(verb) || matches!(verb, Eval | EvalRo | Evalsha | EvalshaRo | Fcall | FcallRo)
}

/// Returns whether the answer to a command consists of figures of all shards, each of which is
/// locked for it.
pub(super) fn tells_of_all(verb: Verb) -> bool {
    matches!(verb, Verb::Info | Verb::ConfigGet | Verb::ConfigResetstat)
}

/// Refuses a transaction of which a command is not served any more: the store has become a
/// replica since it was queued.
#[cold]
fn refusal_of_queued(
    store: &Store,
    transaction: &Transaction,
    limits: &ParseLimits,
) -> Result<(), String> {
    let mut refused = None;
    each_request(transaction.requests(), limits, |request| {
        let is_of_role = is_served_at_once(request.command.verb) && store.is_replica();
        refused = refused.or_else(|| store.refusal(request.command.flags).filter(|_| !is_of_role));
    });
    refused.map_or(Ok(()), |refused| Err(format!(": {}", refused.text())))
}

/// Calls `each` with the requests in `frames`, which holds their wire forms.
fn each_request(frames: &[u8], limits: &ParseLimits, mut each: impl FnMut(&Request)) {
    let (mut ranges, mut inline): (Vec<ByteRange>, Vec<u8>) = (Vec::new(), Vec::new());
    let mut rest = frames;
    while let Ok(Parsed::Ready { consumed }) = parse_request(rest, limits, &mut ranges, &mut inline)
    {
        let frame;
        (frame, rest) = rest.split_at(consumed);
        if let Ok(request) = Request::resolve(Args::new(frame, &ranges)) {
            each(&request);
        }
        if rest.is_empty() {
            break;
        }
    }
}

/// Checks that a command may be part of a transaction. The error is the reply.
fn check_queued(request: &Request) -> Result<(), String> {
    let command = request.command;
    let name = command.name.replace('|', " ");
    // A FAILOVER would wait for writes that the transaction itself holds up.
    if command.flags.contains(Flags::NO_MULTI) || command.verb == Verb::Failover {
        return Err("ERR Command not allowed inside a transaction".to_owned());
    }
    match (command.handling, command.verb) {
        _ if is_executed(request) || store_scripts(command.verb) => Ok(()),
        (Handling::PubSub, Verb::Publish | Verb::Spublish) => Ok(()),
        (_, verb) if is_served_at_once(verb) => Ok(()),
        (Handling::PubSub | Handling::Tracking, _) | (_, Verb::ClientReply) => Err(format!(
            "ERR '{name}' is refused inside MULTI: it changes or tells what the client is sent; \
             send it before MULTI or after EXEC"
        )),
        (Handling::Transaction | Handling::Local, _) => Ok(()),
        (handling, _) => Err(unserved(&name, handling)),
    }
}

/// Returns the error for a command that the embedded store does not have.
pub(in crate::core) fn unserved(name: &str, handling: Handling) -> String {
    match handling.refused_everywhere() {
        Some(reason) => format!("ERR '{name}' is refused: {reason}"),
        None => format!(
            "ERR '{name}' is not supported by the embedded store yet; docs/commands.md lists what is"
        ),
    }
}
