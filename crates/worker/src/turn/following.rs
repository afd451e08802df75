//! The settings change: sockets that are added, and those that end.

use super::Worker;
use crate::Follow;
use crate::core::{CutOff, Loss};
use keyway_base::{BackendFault, Key};
use keyway_metrics::CloseReason;
use keyway_net::{Io, ListenerIndex};
use keyway_proxy::Session;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl<I: Io> Worker<I> {
    /// Uses other settings from here on.
    #[cold]
    pub(super) fn follow(&mut self, follow: Follow) {
        let Follow { plan, registry, listeners } = follow;
        // The indices are those of the pools so far.
        self.record_served();
        for (index, listener) in listeners {
            if self.drain_deadline.is_none() && !self.io.listen(ListenerIndex(index), listener) {
                let name = &*plan.listeners[usize::from(index)].name;
                tracing::warn!(listener = name, "a worker has no descriptor left to listen there");
            }
        }
        for (index, listener) in (0..).zip(&plan.listeners) {
            match listener.is_ended {
                true => self.end_listener(ListenerIndex(index)),
                false => self.io.let_in_by(ListenerIndex(index), listener.access.filter.clone()),
            }
        }
        self.plan = Arc::clone(&plan);
        for (key, loss) in self.core.follow(&plan, &registry) {
            self.end_unwelcome(key, loss);
        }
        // ORDER: pairs with the load in the code that waits for all of them.
        plan.followers.fetch_add(1, Ordering::Release);
        for key in self.core.sessions.keys() {
            let session = self.core.session(key).filter(|session| session.sub_request.is_none());
            let listener_plan =
                session.map(|session| &plan.listeners[usize::from(session.listener)]);
            if listener_plan.is_some_and(|it| it.is_ended) {
                self.end_soon(key);
            }
        }
    }

    /// Ends a listener when all clients that wait there are accepted.
    fn end_listener(&mut self, listener: ListenerIndex) {
        let listener_plan = self.plan.listeners.get(usize::from(listener.0));
        if self.drain_deadline.is_none() && listener_plan.is_some_and(|it| !it.is_ended) {
            self.accept_waiting(listener);
        }
        self.io.end_listening(listener);
    }

    /// Closes a client that may not continue.
    fn end_unwelcome(&mut self, key: Key<Session>, loss: Loss) {
        if let Some(session) = self.core.session(key) {
            let identity = &session.identity;
            let (client, user) = (&*identity.addr, identity.user_name());
            tracing::info!(client, user, "{}", loss.text());
        }
        self.close_client(key, CloseReason::Killed);
    }

    /// Ends what is left of pools that are no longer in the settings, a few times a second.
    pub(super) fn tend_retired(&mut self) {
        if !self.core.is_retiring() {
            return;
        }
        let plan = Arc::clone(&self.plan);
        for retired in &plan.retired {
            if self.core.has_ended(retired.pool) {
                continue;
            }
            let Some(left) = self.core.leftover(retired) else { continue };
            for key in left.overdue {
                let client = self.core.session(key).map(|it| Arc::clone(&it.identity.addr));
                let client = client.as_deref().unwrap_or_default();
                let pool = &plan.pools[usize::from(retired.pool)].name;
                tracing::info!(
                    pool,
                    client,
                    "client disconnected: it has subscribed, watches or waits in a pool that a \
                     reload has replaced, and drain_timeout is over"
                );
                self.core.answer_unanswered(key, CutOff::Retired);
                self.flush_session(key);
                self.close_client(key, CloseReason::Drained);
            }
            for index in left.links {
                self.lose_link(index, BackendFault::Closed);
            }
            for index in left.subscribers {
                self.lose_subscriber(index, BackendFault::Closed);
            }
        }
    }
}
