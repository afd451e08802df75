//! Requests for a primary that is gone wait for it or its successor, in pools with
//! `wait_for_primary`. Only what no server has executed waits:
//!
//! ```text
//!   not sent yet ─────────────► its client is left unread ──reached, or another map──► dispatched
//!   unsent on a lost link ────► it stays on the link ───────reached, or another map──► sent
//!   answered: CLUSTERDOWN ────► it is put aside ────────────a pause─────────────────► sent again
//! ```
//! A client that is left unread waits in the list of its link, like one for which the link has
//! no room: so no bytes are queued, and its order stays. Its deadline is in `State::unowned`.
//!
//! A request that takes a connection of its own, such as BLPOP or WATCH, also waits while the shared
//! link has not been connected yet. Its own connection would fail, and the request with it.

use crate::core::clients::WaitOn;
use crate::core::pools::cluster::state::{ASIDE_KEPT, Aside};
use crate::core::request::ClientMut;
use crate::core::{Connection, ConnectionKey, Connections, Core, Plane};
use keyway_base::{Key, Slab, Time};
use keyway_proxy::{LinkState, Redirected, Redirection, Session};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Time between two checks of a primary for which requests wait. A longer time delays requests when
/// the circuit lets them through again. A shorter time wakes a worker that has nothing to do.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Pause before a refused request is sent again, which grows with the time it has waited.
const AGAIN_MIN: Duration = Duration::from_millis(10);
/// Longest such pause. A longer one delays requests when the cluster is up again.
const AGAIN_MAX: Duration = Duration::from_millis(200);

/// Longest wait for a connection in a pool whose requests have no timeout. The attempt to connect
/// ends long before.
const UNMET_UNTIMED: Duration = Duration::from_secs(24 * 60 * 60);

impl Plane {
    /// Returns how long requests of a pool wait for a primary, if they wait now.
    pub(in crate::core) fn primary_wait(&self, pool: u16) -> Option<Duration> {
        let wait = self.cluster_state(pool)?.shared.settings().wait_for_primary?;
        let has_ended = self.cluster.is_draining || self.plan.retired(pool).is_some();
        (!has_ended).then_some(wait)
    }

    /// Returns whether requests to the server of a link wait, as it is a primary that cannot be
    /// reached, or is not asked for now.
    #[cold]
    pub(in crate::core) fn is_gone(&self, connection: &Connection) -> bool {
        self.cluster.waited.is_none()
            && self.holds_unsent(connection)
            && !self.is_kept_from(connection)
            && (connection.is_lost || !self.admits(connection))
    }

    /// Returns whether a request that takes a connection of its own waits. It waits for the
    /// primary, or until the shared link to the same server has shown whether that can be reached.
    #[cold]
    pub(in crate::core) fn holds_private(&self, connection: &Connection) -> bool {
        self.is_gone(connection) || self.is_unmet(connection)
    }

    /// Returns whether no connection of a shared link has shown yet whether its primary, for which
    /// requests wait, can be reached.
    fn is_unmet(&self, connection: &Connection) -> bool {
        self.cluster.waited.is_none()
            && matches!(connection.link.state(), LinkState::Idle | LinkState::Connecting { .. })
            && self.holds_unsent(connection)
            && !self.is_kept_from(connection)
    }

    /// Returns whether unsent requests stay on a link while its server cannot be
    /// reached.
    #[cold]
    pub(in crate::core) fn holds_unsent(&self, connection: &Connection) -> bool {
        !connection.is_private
            && self.primary_wait(connection.server_id.pool).is_some()
            && self.is_primary(connection)
    }

    fn is_primary(&self, connection: &Connection) -> bool {
        let server = usize::from(connection.server_id.server);
        self.cluster_state(connection.server_id.pool)
            .is_some_and(|state| state.map.is_serving(server))
    }

    /// Tells a link that is not connected how long requests wait on it for the connection.
    #[cold]
    pub(in crate::core) fn note_patience(&mut self, connection: &mut Connection) {
        let wait =
            self.primary_wait(connection.server_id.pool).filter(|_| self.holds_unsent(connection));
        let wait = wait.map(|wait| match connection.is_lost {
            true => wait,
            false => wait.max(self.unmet_wait(connection.server_id.pool)),
        });
        connection.link.hold_unsent(wait);
        // The next request waits for this time, which may be less than `timeout`.
        self.note_deadline(wait.map(|wait| self.clock.now + wait));
        // If the server is no primary any more, unsent requests may wait for a shorter time.
        self.note_deadline(connection.link.deadline(self.link_options(connection.server_id.pool)));
    }

    /// Returns how long requests wait for a connection without faults. `wait_for_primary` does not
    /// shorten this time, because requests would also wait without it.
    fn unmet_wait(&self, pool: u16) -> Duration {
        self.link_options(pool).timeout.unwrap_or(UNMET_UNTIMED)
    }

    /// Notes that the connection of a link is lost, or could not be made.
    pub(in crate::core) fn note_gone(&mut self, index: ConnectionKey, connection: &mut Connection) {
        connection.is_lost = self.primary_wait(connection.server_id.pool).is_some();
        if connection.is_lost && connection.link.in_flight() > 0 {
            self.note_patience(connection);
            if let Some(state) = self.cluster_state(connection.server_id.pool) {
                let held = connection.link.owned() as u64;
                state.shared.totals.primary_waits.fetch_add(held, Relaxed);
            }
            self.tend_gone(index, connection);
        }
    }

    /// Makes a client wait for the primary at the other end of a link, if that is gone. Returns
    /// whether it waits.
    #[cold]
    pub(in crate::core) fn waits_for_primary(
        &mut self,
        links: &mut Connections,
        index: ConnectionKey,
        ClientMut { key, session }: ClientMut<'_>,
    ) -> bool {
        let connection = &mut links[index];
        let is_unmet = self.is_unmet(connection);
        if !is_unmet && !self.is_gone(connection) {
            return false;
        }
        if is_unmet && connection.link.wants_connection(self.clock.now) && !connection.is_connecting
        {
            connection.is_connecting = true;
            self.upstream.connects.push(index);
        }
        let until = self.waits_until(key, connection.server_id.pool);
        self.wait_for(ClientMut { key, session }, WaitOn::Connection(connection));
        connection.waiting_due =
            Some(connection.waiting_due.map_or(until, |first| first.min(until)));
        self.note_cluster_deadline(until);
        self.tend_gone(index, connection);
        true
    }

    /// Looks after a primary that is gone: it is tried as often as pauses allow, and its pool's
    /// servers are asked for its successor.
    fn tend_gone(&mut self, index: ConnectionKey, connection: &mut Connection) {
        let now = self.clock.now;
        if connection.is_lost && connection.link.wants_connection(now) && !connection.is_connecting
        {
            connection.is_connecting = true;
            self.upstream.connects.push(index);
        }
        if let Some(state) = self.cluster_state(connection.server_id.pool) {
            state.shared.ask_about_unowned(now);
        }
        self.note_deadline(Some(now + LOOK_EVERY));
    }

    /// Looks after a link whose server cannot be reached, or is not asked for now.
    #[inline]
    pub(in crate::core) fn look_after_gone(
        &mut self,
        sessions: &Slab<Session>,
        index: ConnectionKey,
        connection: &mut Connection,
    ) {
        let is_waited_for =
            !connection.waiting.is_empty() || (connection.is_lost && connection.link.owned() > 0);
        if is_waited_for && (connection.is_lost || self.is_gone(connection)) {
            connection.waiting.retain(|&key| sessions.get(key).is_some());
            self.tend_gone(index, connection);
        }
    }

    /// Returns how long a client has waited for a primary in vain, if the client is to be told.
    #[inline]
    pub(in crate::core) fn waited_in_vain(&self, key: Key<Session>) -> Option<Duration> {
        self.cluster.refused_in_vain.set(false);
        match self.cluster.unowned.is_empty() {
            true => None,
            false => self.looks_in_vain(key),
        }
    }

    #[cold]
    fn looks_in_vain(&self, key: Key<Session>) -> Option<Duration> {
        let wait = self.cluster.unowned.get(&key.to_bits()).filter(|it| it.is_for_primary())?;
        let now = self.clock.now;
        let is_over = wait.until <= now || self.primary_wait(wait.pool).is_none();
        is_over.then(|| now.since(wait.since))
    }

    /// Handles that a request of a client was started after waiting as long as it may. If a server
    /// was sent the request after all, the next one has a wait of its own.
    #[cold]
    pub(in crate::core) fn end_wait_in_vain(&mut self, key: Key<Session>) {
        let Some(wait) = self.cluster.unowned.get_mut(&key.to_bits()) else { return };
        if !self.cluster.refused_in_vain.get() {
            if !wait.is_over {
                self.cluster.unowned.remove(&key.to_bits());
                self.cluster.waited = None;
            }
            return;
        }
        if let (Some(of), false) = (&wait.of, std::mem::replace(&mut wait.is_over, true)) {
            of.totals.primary_waits_over.fetch_add(1, Relaxed);
        }
    }

    /// Notes that the client of a request that servers refused again and again gets the servers'
    /// error.
    pub(super) fn end_aside(&mut self, pool: u16, one: &Redirected) {
        let owner = self.session_of(one.exchange.owner);
        let aside = owner.and_then(|owner| self.cluster.aside.remove(&owner.to_bits()));
        if aside.is_some_and(|aside| self.clock.now.since(aside.first) > AGAIN_MIN) {
            self.note_in_vain(pool);
        }
    }

    /// Notes that a request was refused after waiting for a primary.
    #[cold]
    pub(in crate::core) fn note_in_vain(&self, pool: u16) {
        if let Some(state) = self.cluster_state(pool) {
            state.shared.totals.primary_waits_over.fetch_add(1, Relaxed);
        }
    }

    /// Returns until when, and after which pause, a request is sent again that a server refused
    /// with an error saying that it was not executed. Returns `None` if `wait_for_primary` does not
    /// apply.
    pub(super) fn sent_again_until(&mut self, pool: u16, one: &Redirected) -> Option<(Time, Time)> {
        let is_refusal =
            matches!(Redirection::of(&one.reply), Some(Redirection::Down | Redirection::NotReady));
        let wait = self.primary_wait(pool).filter(|_| is_refusal && !one.runs_scripts())?;
        let owner = self.session_of(one.exchange.owner)?;
        let now = self.clock.now;
        let new = Aside { first: now, last: Time(0) };
        let aside = self.cluster.aside.entry(owner.to_bits()).or_insert(new);
        if now.since(aside.last) > ASIDE_KEPT {
            aside.first = now;
            if let Some(state) = self.cluster_state(pool) {
                state.shared.totals.primary_waits.fetch_add(1, Relaxed);
            }
        }
        let aside = self.cluster.aside.get_mut(&owner.to_bits())?;
        aside.last = now;
        let until = aside.first + wait;
        let pause = (now.since(aside.first) / 4).clamp(AGAIN_MIN, AGAIN_MAX);
        Some((until, (now + pause).min(until)))
    }

    /// Returns the text that tells a client how long it has waited.
    pub(in crate::core) fn waited_words(waited: Duration) -> String {
        format!("waited {:.1} s for a primary", waited.as_secs_f64())
    }
}

impl Core {
    /// Ends all waits for primaries, because the worker drains. Requests that were put aside are
    /// sent again now, for the last time.
    #[cold]
    pub(crate) fn end_waits_for_primaries(&mut self) {
        let now = self.plane.clock.now;
        let cluster = &mut self.plane.cluster;
        cluster.is_draining = true;
        cluster.retries_due = now;
        cluster.retries.iter_mut().for_each(|retry| retry.at = now);
        for connection in self.links.iter_mut().filter(|connection| connection.is_lost) {
            connection.link.hold_unsent(None);
        }
        self.plane.note_deadline(Some(self.plane.clock.now));
    }
}
