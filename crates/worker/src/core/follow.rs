//! The settings change while clients are served.
//!
//! ```text
//!  mail ─► follow: the new plan is in force ─► sessions at rest go over at once
//!             │                                 others before their next request
//!             ▼
//!          tend_retired, ten times a second ─► nobody is left ─► links end ─► the index is free
//! ```
//! A pool whose settings differ is another pool with another index, and the old one is *retired*:
//! what was begun in it ends in it. So nothing changes under a request, and the only moment at
//! which keys are placed differently is the exchange of the plan, between two requests. A session
//! moves from one to the other when it waits for no reply, as after a login that leads to another
//! pool ([`super::access`]).

use super::pools::PoolState;
use super::{Connection, ConnectionKey, Connections, Core, Plane, SubscriberIndex};
use crate::core::front::rights::Loss;
use crate::core::pools::routed::reports_to;
use crate::core::request::ClientMut;
use crate::core::upstream::bypass::owes_late_write;
use crate::{Plan, Retired};
use keyway_base::Key;
use keyway_metrics::Registry;
use keyway_proxy::local::{Unblock, UnblockReason};
use keyway_proxy::{LinkState, Session};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a pool waits, after its time is up, for clients that still get errors.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The clients and links that a retired pool still has.
pub(crate) struct Leftover {
    /// Clients that do not leave by themselves.
    pub(crate) overdue: Vec<Key<Session>>,
    /// Links on which no reply is expected.
    pub(crate) links: Vec<ConnectionKey>,
    /// The same for subscriber links.
    pub(crate) subscribers: Vec<SubscriberIndex>,
}

impl Core {
    /// Uses another version of the settings from here on.
    ///
    /// Returns whose connections must end, and why.
    pub(crate) fn follow(
        &mut self,
        plan: &Arc<Plan>,
        registry: &Arc<Registry>,
    ) -> Vec<(Key<Session>, Loss)> {
        let old = std::mem::replace(&mut self.plane.plan, Arc::clone(plan));
        self.plane.cells.follow(registry);
        self.plane.store.logs.follow(plan);
        self.plane.ended.retain(|&pool| plan.retired(pool).is_some());
        self.plane.upstream.failures.follow(&plan.topology);
        for index in 0..plan.pools.len() {
            let is_same =
                old.pools.get(index).is_some_and(|was| Arc::ptr_eq(was, &plan.pools[index]));
            match is_same {
                true => self.plane.follow_readers(index),
                false => self.begin_pool(index),
            }
        }
        self.plane.observe.served = crate::core::observe::served::Served::new();
        self.plane.observe.served.on_poll(self.plane.clock.now);
        self.plane.cluster.follow(plan);
        self.plane.observe.hot_keys = crate::core::observe::state::Noting::new(&plan.limits);
        let keys = self.sessions.keys();
        keys.into_iter().filter_map(|key| Some((key, self.bring_over(&old, key)?))).collect()
    }

    /// Begins a pool at a new index, or one that another has left.
    fn begin_pool(&mut self, index: usize) {
        let Core { links, plane, .. } = self;
        let plan = Arc::clone(&plane.plan);
        for id in plan.topology.backend_ids(index) {
            *plane.upstream.failures.get_mut(id) = Default::default();
            plane.end_return(id);
        }
        let state = PoolState::new(&plan, index, links);
        let own = state.links(plan.topology.pools()[index].servers().len());
        match plane.pools.get_mut(index) {
            Some(ended) => *ended = state,
            None => plane.pools.push(state),
        }
        plane.pubsub.begin_pool(&plan, index);
        if plan.retired(index as u16).is_some() {
            // This worker has not seen that version, so it has no clients in the pool.
            plane.ended.push(index as u16);
        } else {
            self.preconnect(own);
        }
    }

    /// Gives a client its current rights, and moves it to its pool if it is at rest. Returns why
    /// its connection must end, if it must.
    fn bring_over(&mut self, old: &Plan, key: Key<Session>) -> Option<Loss> {
        let Core { sessions, links, plane } = self;
        let session = sessions.get_mut(key).filter(|session| session.sub_request.is_none())?;
        let listener = usize::from(session.listener);
        let users = &plane.plan.listeners[listener].users;
        if !Arc::ptr_eq(users, &old.listeners[listener].users)
            && let Some(loss) = plane.renew_rights(session)
        {
            return Some(loss);
        }
        plane.take_over(links, ClientMut { key, session });
        None
    }

    /// Returns what is left of a retired pool, or `None` if it has ended here.
    pub(crate) fn leftover(&mut self, retired: &Retired) -> Option<Leftover> {
        let now = self.plane.clock.now;
        let pool = retired.pool;
        let mut left = Leftover { overdue: Vec::new(), links: Vec::new(), subscribers: Vec::new() };
        let mut is_used = false;
        for key in self.sessions.keys() {
            let Core { sessions, links, plane } = self;
            let Some(session) = sessions.get_mut(key) else { continue };
            if is_of(session, pool) && session.sub_request.is_none() {
                plane.take_over(links, ClientMut { key, session });
            }
            if !is_of(session, pool) {
                continue;
            }
            is_used = true;
            if session.sub_request.is_some() {
                continue;
            }
            let is_over = now >= retired.until;
            if session.is_blocked() && (is_over || !retired.is_replaced) {
                let (id, reason) = (session.identity.id, UnblockReason::Displaced);
                plane.clients.unblocks.push(Unblock { id, reason });
            } else if now > retired.until + LAST_WORDS || (is_over && plane.has_begun(session)) {
                left.overdue.push(key);
            }
        }
        let gives_up = now > retired.until + LAST_WORDS;
        // A request through other pools may be in flight although no client waits for it.
        let is_led_to = || self.plane.is_led_to(pool);
        // The links of a pool from which items are copied are needed even while they are idle. When
        // the last clients are told, every client of the pool that is warmed up has left.
        let is_warming_up =
            || self.plane.is_warming_up(pool) || !gives_up && self.plane.warms_up(pool);
        if is_used || is_led_to() || is_warming_up() {
            return Some(left);
        }
        for (index, connection) in self.links.with_keys() {
            if connection.server_id.pool == pool && !connection.is_free && !is_at_end(connection) {
                match gives_up || connection.link.live() == 0 {
                    true => left.links.push(index),
                    false => is_used = true,
                }
            }
        }
        let slots = self.plane.pubsub.slots_of(pool);
        left.subscribers.extend(slots.filter(|&at| self.plane.pubsub.slots[at].link.is_standing()));
        if is_used || !left.links.is_empty() || !left.subscribers.is_empty() {
            return Some(left);
        }
        self.end_pool(retired);
        None
    }

    /// Notes that nothing of a pool is left in this worker.
    fn end_pool(&mut self, retired: &Retired) {
        let pool = retired.pool;
        self.end_cluster(pool);
        let Core { links, plane, .. } = self;
        links.end_pool(pool);
        plane.pools[usize::from(pool)] = PoolState::Ended;
        plane.pubsub.end_pool(pool);
        plane.ended.push(pool);
        // ORDER: pairs with the load in the code that reuses its index.
        retired.left.fetch_sub(1, Ordering::Release);
    }

    /// Handles a client that has arrived, perhaps from a worker with another version of the
    /// settings. Returns why its connection must end, if it must.
    pub(crate) fn bring_in(&mut self, key: Key<Session>) -> Option<Loss> {
        let Core { sessions, links, plane } = self;
        let session = sessions.get_mut(key)?;
        let has_old_rights = plane.has_old_rights(session);
        if has_old_rights && let Some(loss) = plane.renew_rights(session) {
            return Some(loss);
        }
        if has_old_rights || plane.plan.retired(session.pool).is_some() {
            plane.take_over(links, ClientMut { key, session });
        }
        None
    }

    /// Returns whether anything is left of any retired pool here.
    #[inline]
    pub(crate) fn is_retiring(&self) -> bool {
        self.plane.plan.retired.len() > self.plane.ended.len()
    }

    /// Returns whether nothing is left of a retired pool here.
    pub(crate) fn has_ended(&self, pool: u16) -> bool {
        self.plane.ended.contains(&pool)
    }
}

fn is_of(session: &Session, pool: u16) -> bool {
    let home = session.stateful.as_ref().and_then(|stateful| stateful.home);
    session.pool == pool || home == Some(pool) || reports_to(session, pool)
}

/// Returns whether a link has no connection and needs none.
fn is_at_end(connection: &Connection) -> bool {
    let is_down = matches!(connection.link.state(), LinkState::Idle | LinkState::Backoff { .. });
    is_down && connection.socket.is_none() && connection.link.in_flight() == 0
}

impl Plane {
    /// Returns the pool to which a session must belong: that of its user, or of its listener.
    pub(super) fn own_pool(&self, session: &Session) -> u16 {
        let of_user = session.identity.user.as_ref().and_then(|user| user.pool());
        of_user.unwrap_or(self.plan.listeners[usize::from(session.listener)].pool)
    }

    /// Moves a session to its pool if it may move now. Otherwise it moves before its next request.
    fn take_over(&mut self, links: &Connections, ClientMut { key, session }: ClientMut<'_>) {
        let home = session.stateful.as_ref().and_then(|stateful| stateful.home);
        let own = self.own_pool(session);
        if home.unwrap_or(session.pool) == own {
            return;
        }
        (session.identity.is_free, session.identity.is_bound) = (false, true);
        if self.stays_for_order(links, ClientMut { key, session }) {
            return;
        }
        let is_quiet = session.busy.as_deref().is_none_or(|busy| session.is_quiet(busy));
        if is_quiet && session.unheard == 0 && !self.has_begun(session) {
            // The write for which it was lent is over.
            session.go_home();
            if !self.move_to(session, own) {
                return self.end_astray(key, session);
            }
            self.bring_wait(key, own);
            if session.waits_for.take().is_some() {
                // This was for the old pool: the client asks again in the new one.
                self.plan.clients.set_paused(session.identity.id, false);
                self.mark_session_resuming(key, session);
            }
        }
    }

    /// Returns whether a client stays in a pool that a reload has replaced, because copies of its
    /// requests are in flight, or a server may still execute a write of the client that has timed
    /// out. The next write uses the same connections, so that it is executed later.
    pub(super) fn stays_for_order(
        &self,
        links: &Connections,
        ClientMut { key, session }: ClientMut<'_>,
    ) -> bool {
        let is_open = self.plan.retired(session.pool).is_some_and(|it| self.clock.now < it.until);
        is_open && (session.sub_requests > 0 || owes_late_write(links, ClientMut { key, session }))
    }

    /// Ensures that a client that has logged in again moves to its pool before its next request.
    pub(super) fn note_stranger(&self, session: &mut Session) {
        let home = session.stateful.as_ref().and_then(|stateful| stateful.home);
        if home.unwrap_or(session.pool) != self.own_pool(session) {
            (session.identity.is_free, session.identity.is_bound) = (false, true);
        }
    }

    /// Moves a session to another pool, with its database if that pool has it. Returns whether it
    /// is in the same database as before.
    pub(super) fn move_to(&mut self, session: &mut Session, own: u16) -> bool {
        self.cells.pool(usize::from(session.pool)).clients.connected.lower(1);
        self.cells.pool(usize::from(own)).clients.connected.raise(1);
        let is_replaced = self.plan.retired(session.pool).is_some_and(|it| it.is_replaced);
        let database = match is_replaced {
            true => session.identity.database,
            false => 0,
        };
        let databases = self.plan.pools[usize::from(own)].databases;
        let selected = session.identity.database;
        session.identity.database = if database < databases.max(1) { database } else { 0 };
        session.pool = own;
        let database = session.identity.database;
        self.plan.clients.update(session.identity.id, |entry| {
            entry.pool = own;
            entry.database = database;
        });
        let users = &self.plan.listeners[usize::from(session.listener)].users;
        let identity = &mut session.identity;
        let is_free = identity.user.as_ref().is_none_or(|user| user.is_free());
        identity.is_bound = users.have_pools() || users.are_slow();
        identity.is_free = identity.authenticated && is_free && !identity.is_bound;
        database == selected
    }

    /// Ends a client that has selected a database which its pool no longer has: in another database
    /// it would read and write foreign data.
    pub(super) fn end_astray(&mut self, key: Key<Session>, session: &mut Session) {
        let (client, user) = (&*session.identity.addr, session.identity.user_name());
        tracing::info!(client, user, "{}", Loss::Database.text());
        session.closing = true;
        self.mark_session_dirty(key, session);
    }

    /// Follows changes of the read policies of listeners and users.
    fn follow_readers(&mut self, index: usize) {
        if let Some(state) = self.pools[index].found_mut() {
            state.readers = state.cluster.readers(&self.plan, index);
        }
    }
}
