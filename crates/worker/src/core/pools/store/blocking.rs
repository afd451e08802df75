//! Commands that wait on the embedded store.
//!
//! ```text
//!  BLPOP ──► nothing there: a waiter of the store, a reserved reply index
//!  a request of any worker changes the key ──► that worker serves the waiter
//!         ──► the reply, by the inbox of the client's worker ──► its reply index
//!  its time is up, CLIENT UNBLOCK, the client leaves ──► the waiter is cancelled,
//!         unless it has been served: then its reply is on its way
//! ```
//! A session that waits starts no other request, and stays with its worker.

use crate::core::pools::store::state::Waiting;
use crate::core::request::RequestContext;
use crate::core::request::Step;
use crate::core::{Core, Plane};
use crate::handouts::Handout;
use keyway_base::{Key, Slab};
use keyway_proxy::local::UnblockReason;
use keyway_proxy::{Session, Share};
use keyway_resp::reply;
use keyway_store::{Patience, Store, Waited, Waiter, Who};
use std::sync::Arc;
use std::time::Duration;

/// Number of bytes that a waiting command takes here and in the store, besides its own.
const WAITER_OVERHEAD: usize = 512;

impl Plane {
    /// Starts a command that may wait.
    #[cold]
    pub(super) fn block_on_store(&mut self, store: &Store, incoming: &mut RequestContext) -> Step {
        if !incoming.busy.order.is_empty() {
            incoming.session.fence();
            return Step::Wait;
        }
        let context = self.context_of(incoming);
        let mut out = Vec::new();
        if !self.passes_script(store, incoming) {
            return Step::Started;
        }
        if store.attempt(incoming.request, context, &mut out) {
            self.answer_waited(store, incoming, &out);
            return Step::Started;
        }
        let mut share = Share::new(&self.plan.transactions);
        if let Some(text) = self.refusal_to_wait(incoming, &mut share) {
            self.refuse(incoming.session, incoming.busy, |out| reply::error(out, &text));
            return Step::Started;
        }
        let who = Who {
            client: incoming.session.identity.id,
            worker: self.worker(),
            is_noloop: incoming.session.tracking.as_deref().is_some_and(|it| it.noloop),
        };
        match store.attempt_or_wait(incoming.request, context, who, &mut out) {
            Waited::Answered => self.answer_waited(store, incoming, &out),
            Waited::Waits(waiter, patience) => {
                self.begin_to_wait(incoming, waiter, patience, share);
                self.settle_changes(
                    incoming.session,
                    incoming.busy,
                    store,
                    incoming.request,
                    false,
                );
            }
        }
        Step::Started
    }

    /// Starts SAVE, which waits for the end of the snapshot. Others are served meanwhile.
    #[cold]
    pub(super) fn save_store(&mut self, store: &Store, incoming: &mut RequestContext) -> Step {
        if !incoming.busy.order.is_empty() {
            incoming.session.fence();
            return Step::Wait;
        }
        let mut share = Share::new(&self.plan.transactions);
        if let Some(text) = self.refusal_to_wait(incoming, &mut share) {
            self.refuse(incoming.session, incoming.busy, |out| reply::error(out, &text));
            return Step::Started;
        }
        let (client, worker) = (incoming.session.identity.id, self.worker());
        let who = Who { client, worker, is_noloop: false };
        let mut out = Vec::new();
        match store.save_or_wait(incoming.request, self.context_of(incoming), who, &mut out) {
            Waited::Answered => self.answer_waited(store, incoming, &out),
            Waited::Waits(waiter, patience) => {
                self.begin_to_wait(incoming, waiter, patience, share);
            }
        }
        Step::Started
    }

    fn answer_waited(&mut self, store: &Store, incoming: &mut RequestContext, out: &[u8]) {
        self.answer_locally(incoming, |dest| dest.extend_from_slice(out));
        let is_error = out.first() == Some(&b'-');
        if store.notifies() {
            let RequestContext { session, busy, request, .. } = incoming;
            self.settle_changes(session, busy, store, request, is_error);
        }
        if is_error {
            let is_full = out.starts_with(b"-OOM ");
            self.note_store_error(
                incoming.session.pool,
                incoming.request.command.counted(),
                is_full,
            );
        }
    }

    /// Returns why a command may not wait, although it would have to.
    pub(super) fn refusal_to_wait(
        &self,
        incoming: &RequestContext,
        share: &mut Share,
    ) -> Option<String> {
        if Self::is_silent(incoming.session) {
            let text = "ERR a command that blocks is refused while CLIENT REPLY is OFF or SKIP";
            return Some(text.to_owned());
        }
        if incoming.session.hung_up || incoming.session.ended {
            let text = "UNBLOCKED a command that blocks is not begun for a client that sends no \
                        more, or while Keyway stops";
            return Some(text.to_owned());
        }
        let args = &incoming.request.args;
        let len = 3 * args.buf().len() + 2 * size_of_val(args.ranges()) + WAITER_OVERHEAD;
        (!share.grow(len)).then(|| {
            format!(
                "OOM the commands of all clients that wait would take more than \
                 transactions_len_max ({} bytes); ask again when others have ended",
                self.plan.transactions.len_max()
            )
        })
    }

    pub(super) fn begin_to_wait(
        &mut self,
        incoming: &mut RequestContext,
        waiter: Arc<Waiter>,
        patience: Patience,
        share: Share,
    ) {
        self.started(incoming.session.pool, incoming.request.command.counted());
        let client = incoming.session.identity.id;
        let deadline = (patience > 0).then(|| self.clock.now + Duration::from_millis(patience));
        let sequence = incoming.busy.order.reserve();
        let (session, since) = (incoming.key, self.clock.now);
        let waiting = Waiting { session, sequence, waiter, since, deadline, _share: share };
        self.store.blocking.waiting.insert(client, waiting);
        if let Some(deadline) = deadline {
            self.store.blocking.deadlines.insert((deadline, client));
            self.note_deadline(Some(deadline));
        }
        incoming.session.stateful.get_or_insert_default().waits_on_store = true;
        incoming.session.fence();
        self.plan.clients.set_blocked(client, true);
    }

    /// Serves the clients that wait for what this worker's requests have changed.
    pub(in crate::core::pools) fn serve_waiters(&mut self, pool: u16, store: &Store) {
        let (worker, clock) = (self.worker(), self.clock);
        store.serve_ready(worker, clock, |waiter, reply| {
            self.tell_served(pool, store, waiter);
            let Who { client, worker: its, .. } = waiter.who;
            if reply.first() == Some(&b'-') {
                self.note_store_error(pool, waiter.counted(), false);
            }
            let handout = Handout { client, reply };
            if its == worker {
                self.store.blocking.outbox.push(handout);
            } else if self.plan.handouts.post(its, handout) {
                self.plan.post_published(its);
            }
        });
    }

    /// Removes a client from those that wait. Returns its session and the index of its reply.
    pub(super) fn end_waiting(&mut self, client: u64) -> Option<(Key<Session>, u32)> {
        let waiting = self.store.blocking.waiting.swap_remove(&client)?;
        if let Some(deadline) = waiting.deadline {
            self.store.blocking.deadlines.remove(&(deadline, client));
        }
        self.plan.clients.set_blocked(client, false);
        Some((waiting.session, waiting.sequence))
    }

    /// Ends the waiting of a client that leaves.
    pub(in crate::core) fn forget_waiting(&mut self, session: &Session) {
        let client = session.identity.id;
        let Some(waiting) = self.store.blocking.waiting.get(&client) else { return };
        if let Some(store) = self.plan.pools[usize::from(session.pool)].kind.store() {
            store.cancel(&waiting.waiter);
        }
        self.end_waiting(client);
    }

    /// Answers a client that waited.
    fn hand_out(&mut self, sessions: &mut Slab<Session>, handout: &Handout) {
        let Some((key, sequence)) = self.end_waiting(handout.client) else { return };
        let Some(session) = sessions.get_mut(key) else { return };
        if let Some(stateful) = &mut session.stateful {
            stateful.waits_on_store = false;
        }
        session.tidy();
        session.note_state();
        self.complete(key, session, sequence, |out| out.extend_from_slice(&handout.reply));
    }

    /// Ends the waiting of a client with the reply that `write` appends, unless the client has been
    /// served.
    fn cut_waiting(
        &mut self,
        sessions: &mut Slab<Session>,
        client: u64,
        write: impl FnOnce(&Waiter, &mut Vec<u8>),
    ) {
        let Some(waiting) = self.store.blocking.waiting.get(&client) else { return };
        let Some(session) = sessions.get(waiting.session) else { return };
        let Some(store) = self.plan.pools[usize::from(session.pool)].kind.store() else {
            return;
        };
        if store.cancel(&waiting.waiter) {
            let mut reply = Vec::new();
            write(&waiting.waiter, &mut reply);
            self.hand_out(sessions, &Handout { client, reply });
        }
    }
}

impl Core {
    /// Answers the clients of this worker that were served.
    #[cold]
    pub(in crate::core) fn deliver_handouts(&mut self) {
        let Core { sessions, plane, .. } = self;
        let mut outbox = std::mem::take(&mut plane.store.blocking.outbox);
        if std::mem::take(&mut plane.store.blocking.has_mail) {
            plane.plan.handouts.take(plane.worker(), &mut outbox);
        }
        outbox.drain(..).for_each(|handout| plane.hand_out(sessions, &handout));
        plane.store.blocking.outbox = outbox;
    }

    /// Ends the waits whose time is up.
    pub(in crate::core) fn end_overdue_waits(&mut self) {
        let Core { sessions, plane, .. } = self;
        while let Some(&(deadline, client)) = plane.store.blocking.deadlines.first() {
            if deadline > plane.clock.now {
                return plane.note_deadline(Some(deadline));
            }
            plane.store.blocking.deadlines.pop_first();
            plane.cut_waiting(sessions, client, |waiter, out| waiter.write_timeout(out));
        }
    }

    /// Ends the waiting of a client of this worker early, because another client asks for it or its
    /// pool ends.
    pub(in crate::core) fn unblock_on_store(&mut self, client: u64, reason: UnblockReason) {
        let Core { sessions, plane, .. } = self;
        plane.cut_waiting(sessions, client, |waiter, out| {
            reason.write_end(out, |out| waiter.write_timeout(out));
        });
    }
}
