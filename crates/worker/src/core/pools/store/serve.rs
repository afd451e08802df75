//! Requests that the embedded store executes.

use crate::PoolPlan;
use crate::core::clients::WaitOn;
use crate::core::pools::store::slow::is_timed;
use crate::core::pools::store::state::StorePool;
use crate::core::pools::store::transactions::tells_of_all;
use crate::core::request::{ClientMut, RequestContext, Step};
use crate::core::{Connections, Plane};
use crate::pause::HELD_LOOK;
use keyway_base::Part;
use keyway_command::{
    Condition, Handling, Verb, store_replicates, store_saves, store_scripts, store_serves,
};
use keyway_proxy::{Identity, Output};
use keyway_store::{Context, Held, Insertions, Store, Transfer};
use std::sync::Arc;

impl Plane {
    /// Starts a request to an embedded store.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "once per request, called from one place")]
    pub(in crate::core) fn serve(
        &mut self,
        links: &mut Connections,
        pool: &PoolPlan,
        store: &Arc<Store>,
        incoming: &mut RequestContext,
    ) -> Step {
        if store.is_restricted() && self.refuses_restricted(store, incoming) {
            return Step::Started;
        }
        if store.effects_are_full()
            && self
                .awaits_effects(store, ClientMut { key: incoming.key, session: incoming.session })
        {
            return Step::Wait;
        }
        if incoming.session.is_special()
            && let Some(step) = self.dispatch_special_on_store(links, store, incoming)
        {
            return step;
        }
        let command = incoming.request.command;
        let may_wait = command.condition == Some(Condition::NotBlocking);
        if !store_serves(command.verb) || (may_wait && incoming.request.blocks()) {
            return self.serve_apart(links, StorePool { pool, store }, incoming);
        }
        let beside = match store.has_script() {
            false => None,
            // The request is handled again with its whole value.
            true if self.store.streamed_set.is_some() => return Step::Wait,
            true => match self.hold_beside_script(store, incoming) {
                Some(held) => {
                    // The time spent waiting for a script belongs to no request.
                    self.look(&pool.slow_log);
                    Some(held)
                }
                None => return Step::Started,
            },
        };
        self.execute(StorePool { pool, store }, incoming, beside);
        Step::Started
    }

    /// Waits until the effects of a store have room again, in front of a request. A worker waits for a
    /// log itself: it holds no shard, and the log's thread waits for no worker. For the copy for
    /// the next process the client waits, and this returns true: it asks again in a moment.
    #[cold]
    pub(in crate::core::pools) fn awaits_effects(
        &mut self,
        store: &Store,
        client: ClientMut<'_>,
    ) -> bool {
        if let Some(log) = store.log() {
            log.await_room(&|| store.effects_are_full());
            return false;
        }
        // What a client had begun in the process before is not executed again.
        let waits = !self.is_restoring;
        if waits {
            let until = self.clock.now + HELD_LOOK;
            self.wait_for(client, WaitOn::Hold(until));
        }
        waits
    }

    /// Executes a request on the store, beside a script that runs if the shards are `beside` it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "once per request, called from one place")]
    fn execute(
        &mut self,
        StorePool { pool, store }: StorePool<'_>,
        incoming: &mut RequestContext,
        mut beside: Option<Held>,
    ) {
        let mut work = None;
        let mut streamed = None;
        if self.store.streamed_set.is_some() || is_timed(&pool.slow_log, incoming.request) {
            work = self.begin_work(&pool.slow_log, incoming.session, incoming.busy);
            streamed = self.store.streamed_set.take();
        }
        let RequestContext { key, session, busy, request } = incoming;
        let Identity { database, protocol, .. } = session.identity;
        let context = Context { database, clock: self.clock, protocol, worker: self.worker() };
        self.served(session.pool, request.command.counted());
        let (mut error, mut len) = (None, 0);
        // A long value is inserted by its position, which is known only if nothing precedes the
        // reply. Replies to sub-requests become parts of other replies.
        let has_client = session.sub_request.is_none() && !Self::is_silent(session);
        let lends = has_client && busy.order.is_empty();
        assert!(
            lends || streamed.is_none(),
            "a streamed SET is for a client that waits for nothing else"
        );
        let transfer = Transfer::new(store, streamed);
        self.answer_noted(session, busy, |out| {
            let start = out.len();
            // `take` borrows it. The closure would copy the whole of it for each request otherwise.
            match beside.take() {
                None => store.execute_with(request, context, lends.then_some(&transfer), out),
                Some(held) => held.execute(request, context, out),
            }
            if out.get(start) == Some(&b'-') {
                pool.errors.note(&out[start..]);
                error = Some(out[start..].starts_with(b"-OOM "));
            }
            len = out.len() - start;
        });
        if let Some(lent) = transfer.into_zero_copy() {
            len += insert_lent(&mut busy.output, *lent);
        }
        if len >= self.observe.hot_keys.look_from {
            self.note_stored_reply(&pool.key_stats, request, len);
            work = work.or_else(|| self.began_lately(&pool.slow_log, session, busy));
        }
        if let Some(work) = work {
            self.end_work(pool, ClientMut { key: *key, session }, request, work);
        }
        if store.notifies() {
            self.settle_changes(session, busy, store, request, error.is_some());
        }
        if let Some(is_full) = error {
            self.note_refused_write(session.pool, request, is_full);
        }
    }

    /// Refuses a request that a store does not serve while it is loaded, a replica, or without a
    /// log, as redis-server does. Returns whether it was refused.
    ///
    /// A command that ends a replica is served while a snapshot of the primary replaces its data:
    /// that may take for ever.
    #[cold]
    fn refuses_restricted(&mut self, store: &Store, asked: &mut RequestContext) -> bool {
        let command = asked.request.command;
        if store_replicates(command.verb) && store.is_replica() {
            return false;
        }
        let Some(refused) = store.refusal(command.flags) else { return false };
        self.refuse_queued(asked, refused.text());
        true
    }

    /// Starts a request that the store does not execute by itself.
    fn serve_apart(
        &mut self,
        links: &mut Connections,
        StorePool { pool, store }: StorePool<'_>,
        incoming: &mut RequestContext,
    ) -> Step {
        let verb = incoming.request.command.verb;
        match incoming.request.handling() {
            Handling::PubSub => self.pubsub(links, incoming),
            Handling::Tracking => self.track_on_store(store, incoming),
            Handling::Block => self.block_on_store(store, incoming),
            Handling::Transaction => {
                self.transact_on_store(links, StorePool { pool, store }, incoming)
            }
            _ if verb == Verb::Monitor => self.start_monitor(incoming),
            _ if store_saves(verb) => self.save_store(store, incoming),
            _ if store_replicates(verb) => self.serve_role(StorePool { pool, store }, incoming),
            _ if store_scripts(verb) => self.script_on_store(StorePool { pool, store }, incoming),
            _ => {
                // The command looks at every shard, one after the other.
                if !tells_of_all(verb) || self.passes_script(store, incoming) {
                    return self.answer_without_server(incoming, pool);
                }
                Step::Started
            }
        }
    }
}

/// Inserts values into an output that were not copied there. Returns their number of bytes.
#[cold]
pub(in crate::core::pools) fn insert_lent(output: &mut Output, lent: Insertions) -> usize {
    let insert = |(at, part): (usize, Part)| {
        let len = part.len();
        output.insert(at, part);
        len
    };
    lent.into_iter().map(insert).sum()
}
