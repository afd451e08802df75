//! Keeps a client's next requests behind its requests in flight, when servers of a pool change
//! indices or one of them did not take a request.
//!
//! A client of the pool itself, and of pools that only choose, waits at its fence. The requests of
//! routed requests are those of sub-requests. A later request of the same client to the same pool
//! waits until the sub-request has ended, as it does behind a stalled sub-request. This also holds
//! for copies, although their client does not wait for them.

use super::State;
use super::client_behind;
use super::state::Path;
use crate::core::{Core, Plane};
use keyway_base::{Key, Slab};
use keyway_proxy::Session;
use keyway_proxy::route_policy::{RoutedRequest, SubRequest, SubRequestFor};

#[cfg(test)]
mod invariants;

impl Core {
    /// Holds back later requests of the clients that have requests on their way to `pool`. Those
    /// requests go to the servers where their keys were, and later ones must not overtake them on
    /// another link.
    pub(in crate::core::pools) fn hold_in_flight(&mut self, pool: u16) {
        let Core { sessions, plane, .. } = self;
        let mut asked_for = Vec::new();
        for (_, session) in sessions.iter_mut() {
            if !is_in_flight(session) || !plane.may_be_at(session, pool) {
                continue;
            }
            match session.sub_request {
                None => session.keep_order(),
                // The sub-requests below this one are held. They must not wait for a session that
                // waits for them.
                Some(sub_request) if sub_request.has_routed_request => {}
                Some(sub_request) => {
                    plane.routes.keep_behind(session);
                    asked_for.push(sub_request.client);
                }
            }
        }
        asked_for.into_iter().for_each(|client| self.hold_client(client));
        self.withdraw_unsent();
    }

    /// Withdraws the requests that sub-requests could not send yet. They are sent once the requests
    /// before them have ended. If they were sent now, they would arrive before those.
    fn withdraw_unsent(&mut self) {
        let queues = &self.plane.routes.queues;
        if !queues.are_stalled() {
            return;
        }
        let is_behind = |session: &Session| {
            session.sub_request.is_some_and(|sub_request| {
                sub_request.stalled > Some(0)
                    && queues.has_sent(Path::new(sub_request.client, session.pool))
            })
        };
        let unsent: Vec<Key<Session>> =
            self.sessions.iter().filter(|(_, it)| is_behind(it)).map(|(key, _)| key).collect();
        unsent.into_iter().for_each(|key| self.withdraw(key));
    }

    /// Returns whether no request of the client was sent behind the one request of a session. If
    /// so, makes later requests wait for it.
    pub(in crate::core::pools) fn is_alone(&mut self, key: Key<Session>) -> bool {
        let Core { sessions, plane, .. } = self;
        let Some(sub_request) = sessions.get(key).and_then(|session| session.sub_request) else {
            return sessions.get_mut(key).is_some_and(holds_one);
        };
        // Later requests wait for this one.
        if sub_request.is_last {
            return true;
        }
        let is_alone = match plane.is_awaited(sessions, &sub_request) {
            true => sessions.get_mut(sub_request.client).is_some_and(holds_one),
            // The client does not wait for the copy, and later copies may have been sent.
            false => {
                let own = plane.sub_requests_above(sessions, &sub_request) + 1;
                let client = sessions.get(client_behind(sub_request.client));
                client.is_some_and(|client| client.sub_requests == own)
            }
        };
        if let (true, Some(session)) = (is_alone, sessions.get_mut(key)) {
            plane.routes.keep_behind(session);
            session.sub_request.iter_mut().for_each(|sub_request| sub_request.is_last = true);
        }
        is_alone
    }
}

impl Core {
    /// Returns the clients that have requests on their way to `pool`, or may have.
    pub(in crate::core::pools) fn in_flight_to(&self, pool: u16) -> Vec<Key<Session>> {
        let sessions = self.sessions.iter();
        let is_it =
            |session: &Session| is_in_flight(session) && self.plane.may_be_at(session, pool);
        sessions.filter(|(_, session)| is_it(session)).map(|(key, _)| key).collect()
    }

    /// Returns whether a client waits for a reply.
    pub(in crate::core::pools) fn has_requests_in_flight(session: &Session) -> bool {
        is_in_flight(session)
    }
}

fn is_in_flight(session: &Session) -> bool {
    session.unheard > 0 || session.busy.as_ref().is_some_and(|busy| !busy.order.is_empty())
}

/// Returns whether a client has exactly one request in flight and has sent nothing after it. If so,
/// makes the next one wait for it.
fn holds_one(client: &mut Session) -> bool {
    let unheard = client.unheard;
    let is_one = client.busy.as_ref().is_some_and(|busy| busy.order.is_only_one(unheard));
    if is_one {
        client.keep_order();
    }
    is_one
}

impl Plane {
    /// Returns whether a request in flight of a session may be at a server of `pool`.
    fn may_be_at(&self, session: &Session, pool: u16) -> bool {
        let is_at_writer =
            session.stateful.as_ref().is_some_and(|stateful| stateful.home.is_some());
        let kind = &self.plan.pools[usize::from(session.pool)].kind;
        session.pool == pool || is_at_writer || !kind.executes()
    }

    /// Returns the number of sub-requests that wait for the request of this one.
    fn sub_requests_above(&self, sessions: &Slab<Session>, sub_request: &SubRequest) -> u32 {
        let above = self.asker_of(sub_request).and_then(|asker| sessions.get(asker));
        let above = above.and_then(|above| above.sub_request.as_ref());
        above.map_or(0, |above| self.sub_requests_above(sessions, above) + 1)
    }

    /// Returns whether the client waits for the reply to a sub-request.
    fn is_awaited(&self, sessions: &Slab<Session>, sub_request: &SubRequest) -> bool {
        let Some(asker) = self.asker_of(sub_request) else { return false };
        let above = sessions.get(asker).and_then(|session| session.sub_request.as_ref());
        above.is_none_or(|above| self.is_awaited(sessions, above))
    }

    /// Returns the session of the routed request that a sub-request belongs to, while that waits
    /// for it.
    fn asker_of(&self, sub_request: &SubRequest) -> Option<Key<Session>> {
        let SubRequestFor::Ask { routed_request: key, .. } = sub_request.purpose else {
            return None;
        };
        let is_told = self.pending.get::<RoutedRequest>(key)?.is_told;
        if is_told { None } else { self.pending.session_of(key) }
    }
}

impl State {
    /// Makes later requests of the client to the same pool wait until this sub-request has ended.
    fn keep_behind(&mut self, session: &mut Session) {
        let pool = session.pool;
        let Some(sub_request) = &mut session.sub_request else { return };
        if sub_request.stalled.is_none() {
            sub_request.stalled = Some(0);
            self.queues.on_stalled(Path::new(sub_request.client, pool), sub_request.level, 0);
        }
    }
}
