//! The calls that a script on the store may make while it runs: commands, and its log.

use crate::Plan;
use crate::core::pools::store::tracking::is_of_everything;
use crate::core::pools::store::transactions::{is_executed, unserved};
use crate::monitors::Line;
use crate::pool_worker::PoolWorker;
use keyway_base::Clock;
use keyway_command::{Flags, Handling, Request, Verb};
use keyway_proxy::local::{self, LocalContext, refuse_denied};
use keyway_proxy::pubsub::SubscriptionKind;
use keyway_proxy::{Identity, is_shown, write_line};
use keyway_resp::{Protocol, reply};
use keyway_script::Host;
use keyway_store::{Busy, Context, ScriptHold};
use keyway_users::Place;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Approximate number of bytes that a kept key or message takes besides its own.
const KEPT_OVERHEAD: usize = 64;

/// Lines that one run of a script may write to the log.
const LOG_LINES_MAX: u32 = 100;

/// The answer to a script whose effects are longer than the buffers of a log.
const LONG_UNIT: &str = "OOM this script has written more at once than the buffer of the pool's log \
                         holds: write less at once, or raise `buffer`";

/// The effects of a run that are told to other clients once it is over.
#[derive(Default)]
pub(super) struct Effects {
    /// Keys that were read, if the client tracks them.
    pub(super) reads: BTreeSet<Box<[u8]>>,
    /// Number of bytes of those keys, and of messages to subscribers of this worker.
    pub(super) kept_len: usize,
    pub(super) is_of_everything: bool,
    pub(super) has_own_messages: bool,
    /// Number of calls that monitors could see. `monitor_every` shows one call in many.
    pub(super) monitored: u64,
    /// True if monitors of this worker were shown a line.
    pub(super) has_own_lines: bool,
}

/// The part of a worker that a script reaches.
pub(super) struct ScriptHost {
    pub(super) hold: ScriptHold,
    pub(super) plan: Arc<Plan>,
    pub(super) pool: u16,
    pub(super) listener: u16,
    pub(super) worker: u16,
    pub(super) clock: Clock,
    pub(super) identity: RefCell<Identity>,
    /// True if its client may do everything.
    pub(super) is_free: bool,
    /// True if the run is for FCALL.
    pub(super) is_function: bool,
    /// True if the keys that the script reads are tracked.
    pub(super) tracks: bool,
    pub(super) effects: RefCell<Effects>,
    pub(super) log_lines: Cell<u32>,
    /// See [`StoreScripts`].
    pub(super) is_counted: Cell<bool>,
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
        let store = self.hold.store();
        if store.is_restricted()
            && let Some(refused) = store.refusal(request.command.flags)
        {
            return reply::error(out, refused.text());
        }
        if !is_executed(request) {
            return self.answer(request, protocol, out);
        }
        // Without a log the copy for the next process takes it all the same.
        let is_logged = store.log().is_some();
        if is_logged && request.command.flags.contains(Flags::WRITE) && store.effects_are_long() {
            return reply::error(out, LONG_UNIT);
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

    /// Returns whether the client's user may run a command that its script calls. If not, appends
    /// the error.
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
        for worker in self.plan.monitors.show(vec![Line { pool: self.pool, text: line.into() }]) {
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

    /// Answers a command that the store does not execute.
    fn answer(&self, request: &Request<'_>, protocol: Protocol, out: &mut Vec<u8>) {
        let command = request.command;
        let kind = match command.verb {
            Verb::Publish => Some(SubscriptionKind::Channel),
            Verb::Spublish => Some(SubscriptionKind::Shard),
            _ => None,
        };
        if let Some(kind) = kind {
            let of = PoolWorker { pool: self.pool, worker: self.worker };
            let (channel, message) = (&request.args[1], &request.args[2]);
            let receivers = self.plan.channels.publish(of, kind, channel, message);
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
            // The command looks at every shard, one after the other.
            self.hold.hold_everything();
        }
        let mut identity = self.identity.borrow_mut();
        identity.protocol = protocol;
        let mut context = self.local_context(&mut identity);
        // Commands that change the connection are refused in scripts.
        let _ = local::answer(request, &mut context, out);
    }
}
