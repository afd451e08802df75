//! Sub-requests: their order, and their number at once.
//!
//! ```text
//!  ask ──► later (a level is full) ──► behind (a stalled one) ──► sub-request ──► reply
//!                                                                   │
//!                                                stalled: its link is full, or paused
//! ```
//! One request may become many sub-requests. Each of these may become many more in a pool that
//! leads to others. So sub-requests are counted by *level*, which is the number of routed requests
//! above, and a level has a bound. Sub-requests wait only for those of deeper levels, and the
//! deepest wait for servers, so one can always go on.
//!
//! A request that a sub-request could not put on its link yet must not be overtaken by a later
//! request of the same client to the same pool. The later request waits *behind* it.

use super::client_behind;
use crate::core::pools::routed::state::Question;
use crate::core::pools::routed::state::Queued;
use crate::core::pools::routed::state::UnsentSubRequest;
use crate::core::pools::routed::state::Whose;
use crate::core::pools::routed::state::{Language, Path};
use crate::core::{Connections, Core, Plane};
use keyway_base::{Key, Time};
use keyway_proxy::memcached::MemcachedClient;
use keyway_proxy::route_policy::{RoutedRequest, SubRequest, SubRequestFor};
use keyway_proxy::{Busy, Identity, Session};
use keyway_topology::DEPTH_MAX;

/// Number of sub-requests at rest that are kept, which a busy turn needs.
const SUB_REQUESTS_KEPT_MAX: usize = 1024;

impl Plane {
    /// Notes that a stalled sub-request has sent its request.
    #[cold]
    pub(in crate::core) fn note_unstalled(&mut self, session: &mut Session) {
        let pool = session.pool;
        let Some(sub_request) = &mut session.sub_request else { return };
        if let Some(len) = sub_request.stalled.take() {
            let path = Path::new(sub_request.client, pool);
            self.routes.queues.on_freed(path, sub_request.level, len);
        }
    }

    /// Parses the one request of a sub-request. Returns the number of bytes that wait.
    fn feed_sub_request(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        bytes: &[u8],
    ) -> usize {
        let parsed = self.parse(links, key, session, busy, bytes);
        if parsed < bytes.len() {
            busy.keep_input(&bytes[parsed..]);
            session.paused = true;
        }
        bytes.len() - parsed
    }
}

impl Core {
    /// Lets routed requests begin and go on, until all wait for servers.
    #[cold]
    pub(in crate::core) fn continue_routes(&mut self) {
        self.resume_sub_requests();
        while self.plane.routes.has_steps() {
            while let Some(path) = self.plane.routes.queues.freed.pop() {
                while let Some(queued) = self.plane.routes.queues.next_behind(path) {
                    self.put(queued);
                }
            }
            (0..DEPTH_MAX as u8).for_each(|level| self.continue_level(level));
            while let Some(copy) = self.plane.routes.copies.pop_front() {
                let since = self.plane.clock.now;
                self.put_in_order(Queued { since, question: Question::Own(copy) });
            }
            if let Some(key) = self.plane.routes.dirty.pop_front() {
                self.finish_sub_request(key);
            }
        }
        if !self.plane.routes.waiting.is_empty() && self.plane.has_drained() {
            for (key, _) in std::mem::take(&mut self.plane.routes.waiting) {
                if let Some(session) = self.sessions.get_mut(key) {
                    self.plane.wake(key, session);
                }
            }
        }
    }

    /// Sends the questions that waited for room on a level, then lets other routed requests begin.
    fn continue_level(&mut self, at: u8) {
        loop {
            let level = self.plane.routes.queues.level(at);
            if !level.has_room() {
                return;
            }
            if let Some(queued) = level.later.pop_front() {
                level.sub_requests += 1;
                self.plane.routes.queues.queued -= 1;
                if let Question::Own(purpose) = &queued.question {
                    self.plane.routes.held -= purpose.bytes.len();
                }
                self.put_in_order(queued);
            } else if let Some(routed_request) = level.due.pop_front() {
                self.plane.routes.queues.queued -= 1;
                self.begin_routed_request(routed_request);
            } else {
                return;
            }
        }
    }

    /// Resumes sub-requests before clients, because the later requests of their clients are behind
    /// them.
    fn resume_sub_requests(&mut self) {
        if self.plane.routes.sub_requests == 0 || self.plane.clients.resuming.is_empty() {
            return;
        }
        let (sessions, plane) = (&self.sessions, &mut self.plane);
        let is_sub_request = |key: &Key<Session>| {
            sessions.get(*key).is_some_and(|session| session.sub_request.is_some())
        };
        let resumes = std::mem::take(&mut plane.clients.resuming);
        let (sub_requests, clients): (Vec<_>, Vec<_>) =
            resumes.into_iter().partition(is_sub_request);
        plane.clients.resuming = sub_requests;
        self.resume_sessions(&mut Vec::new());
        self.plane.clients.resuming.extend(clients);
    }

    /// Sends a question, or keeps it until its level has room.
    pub(super) fn send(&mut self, level: u8, question: Question) {
        let now = self.plane.clock.now;
        let state = &mut self.plane.routes;
        let at = state.queues.level(level);
        if at.later.is_empty() && at.has_room() {
            at.sub_requests += 1;
            return self.put_in_order(Queued { since: now, question });
        }
        if let Question::Own(purpose) = &question {
            state.held += purpose.bytes.len();
        }
        at.later.push_back(Queued { since: now, question });
        state.queues.queued += 1;
    }

    /// Sends a question behind the earlier requests of its client to the same pool.
    fn put_in_order(&mut self, queued: Queued) {
        let Plane { routes: state, pending, .. } = &mut self.plane;
        if state.queues.stalls.is_empty() {
            return self.put(queued);
        }
        let path = match &queued.question {
            Question::Own(purpose) => Some(Path::new(purpose.whose.client, purpose.pool)),
            Question::OfRoutedRequest { routed_request, part, station } => {
                pending.get::<RoutedRequest>(*routed_request).map(|routed_request| {
                    let route_policy = &routed_request.parts[usize::from(*part)].route_policy;
                    Path::new(routed_request.client, route_policy.child(*station))
                })
            }
        };
        match path.and_then(|path| state.queues.stalls.get_mut(&path)) {
            Some(stall) => stall.behind.push_back(queued),
            None => self.put(queued),
        }
    }

    fn put(&mut self, Queued { since, question }: Queued) {
        match question {
            Question::OfRoutedRequest { routed_request, part, station } => {
                self.ask_now(routed_request, part, station, since);
            }
            Question::Own(UnsentSubRequest { sub_request, whose, pool, bytes }) => {
                self.sub_request(sub_request, pool, whose, since, &bytes);
            }
        }
    }

    /// Sends a request to a pool, as a client of it would. If the request finds no room at once, its
    /// time counts from `since`, so it is refused together with the stalled sub-request before it.
    pub(super) fn sub_request(
        &mut self,
        purpose: SubRequestFor,
        pool: u16,
        whose: Whose,
        since: Time,
        bytes: &[u8],
    ) {
        let mut session = self.plane.routes.free.pop().unwrap_or_else(|| {
            let identity = Identity { addr: "keyway".into(), ..Identity::new(0, true, Time(0)) };
            Session::new(0, 0, identity)
        });
        let Whose { client, level, lane, language } = whose;
        session.pool = pool;
        session.lane = lane;
        session.sub_request = Some(SubRequest::new(purpose, client, level));
        session.full_since = (since < self.plane.clock.now).then_some(since);
        let behind = self.sessions.get(client_behind(client));
        session.has_late_write = behind.is_some_and(|it| it.has_late_write);
        let of_client = self.sessions.get(client).map(|it| it.identity.reads_primary_until);
        session.identity.reads_primary_until = of_client.unwrap_or_default();
        (session.identity.wrote_at, session.identity.pin_due) = (Time::default(), None);
        if let Some(behind) = self.sessions.get_mut(client_behind(client)) {
            behind.sub_requests += 1;
        }
        match language {
            Language::Redis(protocol) => {
                session.identity.protocol = protocol;
                session.memcached = None;
            }
            Language::Memcached { wire, item_len_max } => {
                let client = MemcachedClient { wire: Some(wire), skip: 0, item_len_max };
                session.memcached = Some(client);
            }
        }
        self.plane.routes.sub_requests += 1;
        let key = self.sessions.insert(session);
        let Core { sessions, links, plane } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let mut busy = plane.clients.busy_pool.take();
        let left = plane.feed_sub_request(links, key, session, &mut busy, bytes);
        session.busy = Some(busy);
        plane.mark_session_dirty(key, session);
        let (pinned_until, wrote_at) =
            (session.identity.reads_primary_until, session.identity.wrote_at);
        if left > 0 {
            if let Some(sub_request) = &mut session.sub_request {
                sub_request.stalled = Some(left as u32);
            }
            let path = Path::new(client, pool);
            plane.routes.queues.on_stalled(path, level, left as u32);
            // The client's next request may need no sub-request. It must not arrive before this
            // one.
            self.hold_client(client);
        }
        self.note_written(client, pinned_until, wrote_at);
    }

    /// Notes on the client's session that one of its sub-requests has written.
    fn note_written(&mut self, client: Key<Session>, until: Time, wrote_at: Time) {
        if until.max(wrote_at) > Time::default()
            && let Some(session) = self.sessions.get_mut(client)
        {
            session.identity.pin(until);
            session.identity.wrote_at = session.identity.wrote_at.max(wrote_at);
        }
    }

    /// Makes a client's next request wait until its earlier requests are answered.
    #[cold]
    pub(super) fn hold_client(&mut self, client: Key<Session>) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.fence();
        }
    }

    /// Ends a sub-request that has nothing to send.
    pub(super) fn end_unasked(&mut self, level: u8) {
        let level = self.plane.routes.queues.level(level);
        level.sub_requests = level.sub_requests.saturating_sub(1);
    }

    /// Hands over the reply of a sub-request, if it is complete.
    fn finish_sub_request(&mut self, key: Key<Session>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.is_dirty = false;
        let is_waiting = session.busy.as_ref().is_some_and(|busy| {
            !busy.order.is_empty() || (!session.closing && !busy.unparsed().is_empty())
        });
        if is_waiting || session.unheard > 0 {
            return;
        }
        let Some(mut session) = self.sessions.remove(key) else { return };
        self.plane.note_unstalled(&mut session);
        self.plane.forget_wait(key);
        self.plane.routes.sub_requests -= 1;
        let mut busy = session.busy.take().unwrap_or_default();
        if let Some(sub_request) = session.sub_request.take() {
            self.plane.routes.queues.end_sub_request(&sub_request);
            self.note_sub_request_over(sub_request.client);
            let Identity { reads_primary_until, wrote_at, .. } = session.identity;
            self.note_written(sub_request.client, reads_primary_until, wrote_at);
            self.on_sub_request_over(&sub_request, busy.output.unsent());
        }
        let len = busy.output.len();
        busy.output.advance(len);
        if busy.is_empty() {
            self.plane.clients.busy_pool.give(busy);
        }
        self.keep_sub_request(session);
    }

    /// Withdraws the unsent request of a sub-request. It is asked again before all that wait behind
    /// it.
    pub(super) fn withdraw(&mut self, key: Key<Session>) {
        let Some(mut session) = self.sessions.remove(key) else { return };
        self.plane.note_unstalled(&mut session);
        self.plane.forget_wait(key);
        let Some(SubRequest { purpose, client, level, .. }) = session.sub_request.take() else {
            return;
        };
        self.plane.routes.sub_requests -= 1;
        self.note_sub_request_over(client);
        let language = match session.memcached {
            Some(MemcachedClient { wire: Some(wire), item_len_max, .. }) => {
                Language::Memcached { wire, item_len_max }
            }
            _ => Language::Redis(session.identity.protocol),
        };
        let bytes = session.busy.take().unwrap_or_default().unparsed().to_vec();
        let whose = Whose { client, level, lane: session.lane, language };
        let since = session.full_since.unwrap_or(self.plane.clock.now);
        let unsent = UnsentSubRequest { sub_request: purpose, whose, pool: session.pool, bytes };
        let again = Queued { since, question: Question::Own(unsent) };
        let path = Path::new(client, session.pool);
        self.plane.routes.queues.stalls.entry(path).or_default().behind.push_front(again);
        self.keep_sub_request(session);
    }

    fn note_sub_request_over(&mut self, client: Key<Session>) {
        if let Some(behind) = self.sessions.get_mut(client_behind(client)) {
            behind.sub_requests = behind.sub_requests.saturating_sub(1);
        }
    }

    fn keep_sub_request(&mut self, session: Session) {
        if self.plane.routes.free.len() < SUB_REQUESTS_KEPT_MAX {
            let fresh = Session::new(0, 0, session.identity);
            self.plane.routes.free.push(fresh);
        }
    }

    fn on_sub_request_over(&mut self, sub_request: &SubRequest, reply: &[u8]) {
        match sub_request.purpose {
            SubRequestFor::Ask { routed_request, part, station, expect } => {
                self.on_asked(routed_request, part, station, expect, reply, sub_request.fault);
            }
            SubRequestFor::TimeLeft { routed_request, part, key } => {
                self.on_time_left(routed_request, part, key, reply, sub_request.fault);
            }
            SubRequestFor::Fill(pool) => self.plane.note_fill(pool, reply, sub_request.fault),
            SubRequestFor::Shadow { pool, len } => {
                let state = &mut self.plane.routes;
                state.shadows_held = state.shadows_held.saturating_sub(len as usize);
                if let Some(in_flight) = state.shadows.get_mut(usize::from(pool)) {
                    *in_flight = in_flight.saturating_sub(1);
                }
            }
            SubRequestFor::Nobody => {}
        }
    }
}

#[cfg(test)]
mod invariants;
