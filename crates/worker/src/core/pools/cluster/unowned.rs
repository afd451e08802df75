//! Handles requests for slots that no known server has. The cluster is asked, and the requests wait
//! for its answer, no longer than any request may take.
//!
//! ```text
//!   dispatched ──no server──► waits ──next map, or its time is up──► dispatched again
//! ```
//! No other request of the client is started meanwhile, so that their order is kept.

use crate::core::clients::WaitOn;
use crate::core::pools::cluster::state::ASIDE_KEPT;
use crate::core::pools::cluster::state::Wait;
use crate::core::request::{ClientMut, RequestContext};
use crate::core::{Core, Plane};
use keyway_base::{Key, Time};
use keyway_command::Request;
use keyway_proxy::Session;
use keyway_topology::ClusterMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long a request waits in a pool whose requests have no timeout.
const UNTIMED_MAX: Duration = Duration::from_secs(5);

impl super::State {
    /// Returns whether clients wait for a map or a server.
    pub(in crate::core) fn has_waiting(&self) -> bool {
        !self.unowned.is_empty()
    }
}

impl Plane {
    /// Returns whether a request waits for its slot to have a server. It is started anew then.
    #[cold]
    pub(in crate::core) fn awaits_owner(&mut self, incoming: &mut RequestContext) -> bool {
        let pool = incoming.session.pool;
        (self.is_unowned(pool, incoming.request) || self.lacks_primary(pool))
            && self.wait_for_owner(incoming.client())
    }

    /// Does the same as [`Self::awaits_owner`] for a slot.
    #[cold]
    pub(in crate::core) fn awaits_owner_of(
        &mut self,
        ClientMut { key, session }: ClientMut<'_>,
        home: u16,
    ) -> bool {
        if self.lacks_primary(session.pool) {
            return self.wait_for_owner(ClientMut { key, session });
        }
        let state = self.cluster_state(session.pool).filter(|state| state.has_slots());
        let is_hole = state.is_some_and(|it| {
            it.map.is_known()
                && it.map.owners().of(home).is_none()
                && !it.map.owner_lacks_index(home)
        });
        is_hole && self.wait_for_owner(ClientMut { key, session })
    }

    fn wait_for_owner(&mut self, ClientMut { key, session }: ClientMut<'_>) -> bool {
        let now = self.clock.now;
        let until = match self.cluster.unowned.get(&key.to_bits()).map(|wait| wait.until) {
            Some(until) => until,
            None if self.primary_wait(session.pool).is_some() => {
                self.waits_until(key, session.pool)
            }
            None if !self.may_retry(session.pool) => return false,
            None => self.begin_wait(key, session.pool),
        };
        let Some(state) = self.cluster_state(session.pool) else { return false };
        if until <= now || self.cluster.waited.is_some() {
            state.shared.totals.given_up.fetch_add(1, Relaxed);
            return false;
        }
        state.shared.ask_about_unowned(now);
        self.wait_for(ClientMut { key, session }, WaitOn::Owner(until));
        true
    }

    /// Adds a client to those that wait for a map or a server.
    pub(in crate::core) fn await_owner(&mut self, key: Key<Session>, until: Time) {
        self.cluster.waiting.push(key);
        self.note_waiting_until(until);
    }

    fn note_waiting_until(&mut self, until: Time) {
        let due = &mut self.cluster.waiting_due;
        *due = Some(due.map_or(until, |first| first.min(until)));
        self.note_cluster_deadline(until);
    }

    /// Forgets the wait of a client that has left.
    pub(in crate::core) fn forget_wait(&mut self, key: Key<Session>) {
        if !self.cluster.unowned.is_empty() {
            self.cluster.unowned.remove(&key.to_bits());
        }
        if !self.cluster.aside.is_empty() {
            self.cluster.aside.remove(&key.to_bits());
        }
        self.cluster.sent_on.forget_client(key);
    }

    /// Moves the wait of a client whose pool was replaced by another. The client then waits for the
    /// servers of the new pool, and no longer than it would have.
    pub(in crate::core) fn bring_wait(&mut self, key: Key<Session>, pool: u16) {
        let is_for_primary = self.primary_wait(pool).is_some();
        let Some(wait) = self.cluster.unowned.get_mut(&key.to_bits()) else { return };
        if wait.is_for_primary() == is_for_primary {
            wait.pool = pool;
        } else {
            self.forget_wait(key);
        }
    }

    /// Returns the time until which a request may wait for a map or a server, and notes that it
    /// waits.
    pub(super) fn waits_until(&mut self, key: Key<Session>, pool: u16) -> Time {
        let timeout = self.link_options(pool).timeout.unwrap_or(UNTIMED_MAX);
        let since = self.clock.now;
        if let Some(wait) = self.cluster.unowned.get(&key.to_bits()) {
            return wait.until;
        }
        let state = self.primary_wait(pool).and_then(|_| self.cluster_state(pool));
        // Before the first map arrives, a missing server is no fault yet.
        let is_first =
            state.is_some_and(|it| !it.map.is_known() && it.shared.may_be_known_soon(since));
        let least = if is_first { timeout } else { Duration::ZERO };
        let wait = Wait::new(since, pool, timeout, least, state.map(|state| &state.shared));
        let until = wait.until;
        self.cluster.unowned.insert(key.to_bits(), wait);
        until
    }

    /// Ends the wait of a client whose request starts. Returns when the wait began, if there was
    /// one.
    pub(in crate::core) fn end_wait_for_server(&mut self, key: Key<Session>) -> Option<Time> {
        let wait = self.cluster.unowned.get(&key.to_bits())?;
        if wait.until <= self.clock.now {
            // The request was refused, and the next ones are refused as well.
            return None;
        }
        let wait = self.cluster.unowned.remove(&key.to_bits())?;
        // The timeout of a request that has waited for a primary starts when the request is sent.
        (!wait.is_for_primary()).then_some(wait.since)
    }

    /// Returns whether clients wait for an unknown primary of a pool without slots.
    fn lacks_primary(&self, pool: u16) -> bool {
        self.primary_wait(pool).is_some()
            && !self.leaves_out(pool)
            && self.cluster_state(pool).is_some_and(|state| {
                let mut primaries = 0..state.map.primaries().len() as u16;
                !state.has_slots() && primaries.any(|it| state.map.primary(it).is_none())
            })
    }

    fn begin_wait(&mut self, key: Key<Session>, pool: u16) -> Time {
        let until = self.waits_until(key, pool);
        if let Some(state) = self.cluster_state(pool) {
            state.shared.totals.retried.fetch_add(1, Relaxed);
        }
        until
    }

    /// Returns whether a request is for a slot that no server has. A request for a server that was
    /// left out for want of room does not wait, because waiting would not help it.
    fn is_unowned(&mut self, pool: u16, request: &Request) -> bool {
        let is_hole = |map: &ClusterMap, slot| map.owners().of(slot).is_none();
        self.any_slot(pool, request, is_hole) && !self.is_left_out(pool, request)
    }

    /// Returns whether a key of a request is at a server that was left out for want of room.
    pub(super) fn is_left_out(&mut self, pool: u16, request: &Request) -> bool {
        self.any_slot(pool, request, ClusterMap::owner_lacks_index)
    }

    /// Returns whether a request has keys that have slots.
    pub(super) fn has_slotted_keys(&mut self, pool: u16, request: &Request) -> bool {
        self.any_slot(pool, request, |_, _| true)
    }

    fn any_slot(
        &mut self,
        pool: u16,
        request: &Request,
        is_it: impl Fn(&ClusterMap, u16) -> bool,
    ) -> bool {
        if !self.has_slots(pool) {
            return false;
        }
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        let is_known = request.keys(&mut keys).is_ok();
        let found = is_known
            && keys.iter().filter_map(|&at| request.args.get(at as usize)).any(|key| {
                let slot = self.slot_of(pool, key);
                let map = self.cluster_state(pool).map(|state| &state.map);
                map.zip(slot).is_some_and(|(map, slot)| map.is_known() && is_it(map, slot))
            });
        self.keys = keys;
        found
    }
}

impl Core {
    /// Does what [`Core::end_waits_for_maps`] does once the time of the first client is up.
    #[inline]
    pub(in crate::core) fn end_overdue_waits_for_maps(&mut self) {
        match self.plane.cluster.waiting_due {
            Some(due) if due <= self.plane.clock.now => self.end_waits_for_maps(),
            due => self.plane.note_deadline(due),
        }
    }

    /// Answers with errors the clients that wait for a map, or for a slot to have a server, once
    /// neither is to be expected.
    pub(super) fn end_waits_for_maps(&mut self) {
        let now = self.plane.clock.now;
        self.plane.cluster.waiting_due = None;
        self.plane.cluster.unowned.retain(|_, wait| wait.is_remembered(now));
        self.plane.cluster.aside.retain(|_, aside| now.since(aside.last) <= ASIDE_KEPT);
        if self.plane.cluster.waiting.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut self.plane.cluster.waiting);
        let Core { sessions, plane, .. } = self;
        for key in waiting {
            let Some(session) = sessions.get_mut(key) else { continue };
            if plane.may_wait_on(key, session.pool) {
                plane.cluster.waiting.push(key);
            } else {
                plane.wake(key, session);
            }
        }
    }
}

impl Plane {
    fn may_wait_on(&mut self, key: Key<Session>, pool: u16) -> bool {
        let now = self.clock.now;
        let wait = self.cluster.unowned.get(&key.to_bits()).filter(|wait| now < wait.until);
        let until = wait.map(|wait| wait.until);
        let may = self.is_worth_waiting(wait, pool);
        until.filter(|_| may).into_iter().for_each(|until| self.note_waiting_until(until));
        may
    }

    fn is_worth_waiting(&self, wait: Option<&Wait>, pool: u16) -> bool {
        let now = self.clock.now;
        let Some(state) = self.cluster_state(pool) else { return false };
        let may = wait
            .is_some_and(|wait| !wait.is_for_primary() || self.primary_wait(wait.pool).is_some());
        if !state.map.is_known() {
            let is_for_primary = wait.is_some_and(Wait::is_for_primary);
            return may && (is_for_primary || state.shared.may_be_known_soon(now));
        }
        if may {
            state.shared.ask_about_unowned(now);
        }
        may
    }
}
