//! Requests and replies, without sockets: bytes of clients and backends go in, dirty sessions and
//! links come out.
//!
//! | room | what happens there |
//! | --- | --- |
//! | `clients` | which clients a turn is to look at |
//! | `front` | bytes of a client become requests, which go to a pool |
//! | `pools` | what each kind of pool does with a request |
//! | `pubsub` | clients subscribe and publish, at servers or in the store |
//! | `pending` | requests that take several exchanges |
//! | `upstream` | connections to servers, and the servers' health |
//! | `observe` | what is counted, logged and shown |
//! | `follow` | the settings change: pools come and go |
//! | `leftovers` | counts of what is held for clients: zero once they have left |

mod clients;
mod connection;
mod follow;
mod front;
pub(crate) mod leftovers;
mod observe;
mod pending;
mod pools;
mod pubsub;
mod request;
mod rooms;
mod upstream;

use crate::core::pools::store::state::Looked;
use crate::core::request::{ClientMut, ClientRef};
pub use front::cut_off::CutOff;
pub use observe::figures::Figures;
pub(crate) use pools::store::Departing;
pub use pools::store::repeat_function_command;

use crate::Plan;
pub(crate) use connection::{Connection, Connections};
pub(crate) use front::rights::Loss;
use keyway_base::{ByteRange, Clock, Key, Slab, Time};
use keyway_command::Verb;
use keyway_metrics::{CloseReason, WorkerCells};
pub(crate) use keyway_proxy::ConnectionKey;
use keyway_proxy::local::Unblock;
use keyway_proxy::memcached::MemcachedClient;
use keyway_proxy::{Busy, Identity, Session};
use pools::PoolState;
use pools::{cluster, memcached, routed};
pub(crate) use pubsub::SubscriberIndex;
use std::sync::Arc;
use upstream::streamed_replies;

/// Number of unsent bytes from which a link does not wait for the end of the turn. A larger batch
/// saves nothing (the kernel cuts it into segments of 64 KiB or less), and its buffer would leave
/// the processor's cache and the allocator's heap.
const SEND_EARLY_LEN: usize = 64 << 10;

/// A worker without its sockets.
pub struct Core {
    pub(crate) sessions: Slab<Session>,
    pub(crate) links: Connections,
    pub(crate) plane: Plane,
}

/// What requests and replies need besides sessions and links.
pub(crate) struct Plane {
    pub(crate) plan: Arc<Plan>,
    /// The retired pools of which nothing is left here.
    ended: Vec<u16>,
    pub(crate) cells: WorkerCells,
    pub(crate) clock: Clock,
    pools: Vec<PoolState>,
    /// The earliest time at which [`Core::handle_timeouts`] has to act.
    pub(crate) next_deadline: Option<Time>,
    /// Number of requests parsed in this turn.
    pub(crate) batch: u64,
    /// The last request in the bytes that are being parsed.
    last_verb: Option<Verb>,
    args: Vec<ByteRange>,
    inline: Vec<u8>,
    keys: Vec<u32>,
    scratch: Vec<u8>,
    /// True while a client of another process is brought into its state: no hold concerns that.
    is_restoring: bool,
    memcached: memcached::State,
    cluster: cluster::State,
    pub(crate) routes: routed::State,
    random: u64,
    /// Clients that must be handled.
    pub(crate) clients: clients::State,
    /// Connections to servers.
    pub(crate) upstream: upstream::State,
    /// Requests that take several exchanges.
    pending: pending::State,
    /// The embedded stores.
    pub(crate) store: pools::store::State,
    /// What pools with servers have in common.
    pub(crate) servers: pools::servers::State,
    /// Subscriptions.
    pub(crate) pubsub: pubsub::PubSub,
    /// What is counted, logged and shown.
    pub(crate) observe: observe::State,
}

/// Number of bytes that are kept of what a client sends after a blocking command. A client with
/// more is disconnected. With less, clients that send large requests there would be disconnected.
/// Redis keeps 1 GB.
pub(crate) const BEHIND_BLOCKED_MAX: usize = 16 << 20;

/// Returns whether a session that starts no requests now is read all the same. The end of a client
/// that waits for others arrives after everything that it has sent, so it is only noticed by
/// reading on.
#[cold]
fn reads_on(session: &Session, busy: Option<&Busy>) -> bool {
    session.awaits_others() && busy.is_none_or(|busy| busy.unparsed().len() < BEHIND_BLOCKED_MAX)
}

impl Core {
    /// Creates the core of a worker. `seed` is for random choices.
    pub(crate) fn new(plan: Arc<Plan>, cells: WorkerCells, seed: u64) -> Self {
        let mut links = Connections::default();
        let mut pools = Vec::new();
        for index in 0..plan.pools.len() {
            pools.push(PoolState::new(&plan, index, &mut links));
        }
        let cluster = cluster::State::new(&plan);
        let upstream = upstream::State::new(&plan);
        let pubsub = pubsub::PubSub::new(&plan);
        let observe = observe::State::new(&plan);
        let plane = Plane {
            ended: plan.retired.iter().map(|retired| retired.pool).collect(),
            plan,
            cells,
            clock: Clock::default(),
            pools,
            next_deadline: None,
            batch: 0,
            last_verb: None,
            args: Vec::new(),
            inline: Vec::new(),
            keys: Vec::new(),
            scratch: Vec::new(),
            is_restoring: false,
            memcached: memcached::State::default(),
            cluster,
            clients: clients::State::default(),
            upstream,
            pending: pending::State::default(),
            store: pools::store::State::default(),
            servers: pools::servers::State::default(),
            pubsub,
            observe,
            routes: routed::State::default(),
            random: seed | 1,
        };
        let mut core = Self { sessions: Slab::new(), links, plane };
        core.plane.store.logs.follow(&core.plane.plan);
        let all: Vec<ConnectionKey> = core.links.with_keys().map(|(key, _)| key).collect();
        core.preconnect(all);
        core
    }

    /// Sets the time. It must be called after each poll, before anything else.
    pub(crate) fn set_clock(&mut self, clock: Clock) {
        self.plane.observe.served.on_poll(clock.now);
        self.plane.store.looked = Looked { at: clock.now, requests: self.plane.batch };
        self.plane.clock = clock;
    }

    /// Returns both clocks of this turn.
    pub fn clock(&self) -> Clock {
        self.plane.clock
    }

    /// Adds a client of a pool.
    pub(crate) fn add_session(
        &mut self,
        pool: u16,
        listener: u16,
        identity: Identity,
    ) -> Key<Session> {
        let clients = &self.plane.cells.pool(pool as usize).clients;
        clients.connected.raise(1);
        let mut session = Session::new(pool, listener, identity);
        let item_len_max = self.plane.plan.listeners[usize::from(listener)].memcached;
        session.memcached =
            item_len_max.map(|item_len_max| MemcachedClient { item_len_max, ..Default::default() });
        self.sessions.insert_with(|key| {
            session.lane = key.index();
            session
        })
    }

    /// Removes a client. Replies that are still missing are dropped.
    pub(crate) fn remove_session(&mut self, key: Key<Session>, reason: Option<CloseReason>) {
        let Some(mut session) = self.sessions.remove(key) else { return };
        self.forget(ClientMut { key, session: &mut session });
        session.go_home();
        let clients = &self.plane.cells.pool(session.pool as usize).clients;
        clients.connected.lower(1);
        if let Some(reason) = reason {
            clients.closed.of(reason).add(1);
        }
        if let Some(busy) = session.busy.filter(|busy| busy.is_empty()) {
            self.plane.clients.busy_pool.give(busy);
        }
    }

    /// Returns a session, unless its client is gone.
    pub(crate) fn session(&self, key: Key<Session>) -> Option<&Session> {
        self.sessions.get(key)
    }

    /// Returns whether bytes of this client are to be read now. If not, the socket is noted as
    /// unread and checked again when there is room.
    #[inline]
    pub(crate) fn may_read(&mut self, key: Key<Session>) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        if session.paused && !reads_on(session, session.busy.as_deref()) {
            if !std::mem::replace(&mut session.unread, true) {
                session.unread_since = session.full_since.map(|_| self.plane.clock.now);
            }
            return false;
        }
        !session.closing
    }

    /// Returns whether a client has sent more after a blocking command than is kept.
    #[cold]
    pub(crate) fn has_sent_too_much(&self, key: Key<Session>) -> bool {
        let Some(session) = self.sessions.get(key) else { return false };
        let kept = session.busy.as_ref().map_or(0, |busy| busy.unparsed().len());
        session.awaits_others() && kept >= BEHIND_BLOCKED_MAX
    }

    /// Notes that bytes were read, and others stay in the socket. They may have been there as long
    /// as the request that waits now, if that was read from there as well.
    pub(crate) fn note_left_unread(&mut self, key: Key<Session>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.unread_since = session.full_since.min(session.unread_since);
    }

    /// Notes that the client's socket may have unread bytes. Returns whether it must be read again
    /// and was not noted before.
    pub(crate) fn set_unread(&mut self, key: Key<Session>) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        session.unread = true;
        !std::mem::replace(&mut session.is_reread, true)
    }

    /// Returns whether the client's socket will be read in this turn, or at the beginning of the
    /// next one, without an event.
    pub(crate) fn is_reread(&self, key: Key<Session>) -> bool {
        self.sessions.get(key).is_some_and(|session| session.is_reread)
    }

    /// Notes that the client's socket is about to be read.
    pub(crate) fn clear_unread(&mut self, key: Key<Session>) {
        self.plane.clients.rereading = Some(key);
        if let Some(session) = self.sessions.get_mut(key) {
            session.unread = false;
            session.is_reread = false;
        }
    }

    /// Notes that the client's socket was read again. If nothing was left there, the next request
    /// is a new one.
    pub(crate) fn end_reread(&mut self, key: Key<Session>) {
        self.plane.clients.rereading = None;
        let Some(session) = self.sessions.get_mut(key) else { return };
        if !session.paused && !session.unread {
            (session.full_since, session.unread_since) = (None, None);
        }
    }

    /// Notes that the client's socket has room again.
    pub(crate) fn on_client_writable(&mut self, key: Key<Session>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.send_blocked {
            session.send_blocked = false;
            self.plane.mark_session_dirty(key, session);
        }
    }

    /// Notes that a link has something to send.
    pub(crate) fn mark_link_dirty(&mut self, index: ConnectionKey) {
        let Core { links, plane, .. } = self;
        plane.mark_link_dirty(index, &mut links[index]);
    }

    /// Resumes sessions that waited for room on a link.
    #[inline]
    pub(crate) fn release_waiting(&mut self, index: ConnectionKey) {
        let Core { sessions, links, plane } = self;
        upstream::reply::release_waiting(sessions, plane, &mut links[index]);
    }

    /// Handles the state of a session after its output was offered to its socket: buffers of a
    /// session at rest are returned to the pool, one with room again is resumed, and one at its end
    /// must be closed for the returned reason.
    #[inline]
    pub(crate) fn after_flush(&mut self, key: Key<Session>) -> Option<CloseReason> {
        let session = self.sessions.get_mut(key)?;
        if session.is_overgrown(&self.plane.plan.limits) {
            return Some(CloseReason::Limit);
        }
        let at_rest = session.is_at_rest();
        if session.closing {
            if streamed_replies::is_at_cut(session, self.plane.clock.now) {
                return Some(CloseReason::Backend);
            }
            if at_rest || session.has_delivered() {
                let reason = if session.broken { CloseReason::Client } else { CloseReason::Left };
                return Some(reason);
            }
        }
        if at_rest {
            if let Some(busy) = session.busy.take() {
                self.plane.clients.busy_pool.give(busy);
                // Other buffers count its replies from the beginning.
                self.plane.forget_order(key);
            }
            return None;
        }
        if session.streamed_reply.is_some() {
            self.plane.read_on(&mut self.links, ClientRef { key, session });
        }
        if session.paused
            && session.waits_for.is_none()
            && session.is_waiting_for_itself(&self.plane.plan.limits)
        {
            self.plane.mark_session_resuming(key, session);
        }
        if streamed_replies::gets_large_replies(session) && session.send_blocked {
            self.count_untaken(key);
        }
        None
    }

    /// Frees memory that one huge request needed.
    pub(crate) fn trim(&mut self) {
        /// Number of elements that are kept. A request with more is rare.
        const KEPT_MAX: usize = 16 << 10;
        let plane = &mut self.plane;
        if plane.args.capacity() > KEPT_MAX {
            plane.args = Vec::new();
        }
        if plane.keys.capacity() > KEPT_MAX {
            plane.keys = Vec::new();
        }
        if plane.scratch.capacity() > KEPT_MAX {
            plane.scratch = Vec::new();
        }
        if plane.inline.capacity() > KEPT_MAX {
            plane.inline = Vec::new();
        }
        self.trim_rooms(KEPT_MAX);
        if self.sessions.is_empty() {
            self.give_back();
            self.links.iter_mut().for_each(|it| it.link.give_back_memory());
        }
    }

    /// Resumes clients whose pause is over.
    pub(crate) fn end_pauses(&mut self) {
        if self.plane.clients.held_back.is_empty() {
            return;
        }
        let plan = Arc::clone(&self.plane.plan);
        let now = self.plane.clock.now;
        let mut held = std::mem::take(&mut self.plane.clients.held_back);
        held.retain(|&(key, pool)| {
            let Some(session) = self.sessions.get_mut(key) else { return false };
            let end = plan.pools[usize::from(pool)].pause.end(now);
            match end {
                Some(end) => self.plane.note_deadline(Some(end)),
                None => {
                    plan.clients.set_paused(session.identity.id, false);
                    self.plane.wake(key, session);
                }
            }
            end.is_some()
        });
        self.plane.clients.held_back.append(&mut held);
    }

    /// Lets clients whose logins were being checked ask again.
    pub(crate) fn resume_logins(&mut self) {
        for key in std::mem::take(&mut self.plane.clients.logins) {
            if let Some(session) = self.sessions.get_mut(key) {
                self.plane.wake(key, session);
            }
        }
    }

    /// Ends the blocking command of a client of this worker. Returns whether the client is here.
    pub(crate) fn unblock(&mut self, unblock: Unblock) -> bool {
        let is_it = |key: &Key<Session>| {
            self.sessions.get(*key).is_some_and(|session| session.identity.id == unblock.id)
        };
        let Some(key) = self.sessions.keys().into_iter().find(is_it) else { return false };
        let stateful = self.sessions.get(key).and_then(|session| session.stateful.as_ref());
        match stateful.is_some_and(|stateful| stateful.waits_on_store) {
            true => self.unblock_on_store(unblock.id, unblock.reason),
            false => self.unblock_at_servers(key, unblock.reason),
        }
        true
    }

    /// Tells clients of what was changed in a pool's store by no worker.
    pub(crate) fn tell_changed(&mut self, pool: u16) {
        let plan = Arc::clone(&self.plane.plan);
        let store = plan.pools.get(usize::from(pool)).and_then(|pool| pool.kind.store());
        if let Some(store) = store
            && store.notifies()
        {
            self.plane.settle_upkeep(pool, store);
        }
    }

    /// Runs the upkeep of the embedded stores, such as expiry. A call does a bounded part of it.
    /// Returns whether there is more to do at once.
    #[must_use = "there may be more to do at once"]
    pub(crate) fn tick(&mut self) -> bool {
        let mut more = false;
        let plan = Arc::clone(&self.plane.plan);
        for (index, pool) in plan.pools.iter().enumerate() {
            if let Some(store) = pool.kind.store() {
                more |= store.tick(self.plane.clock);
                if store.notifies() {
                    self.plane.settle_upkeep(index as u16, store);
                    more |= self.plane.sweep_trackers(index as u16);
                }
            }
        }
        self.tell_late();
        more
    }
}

impl Plane {
    /// Returns the index of this worker.
    fn worker(&self) -> u16 {
        self.cells.index() as u16
    }

    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    #[inline]
    pub(crate) fn mark_session_dirty(&mut self, key: Key<Session>, session: &mut Session) {
        if !session.is_dirty {
            session.is_dirty = true;
            match session.sub_request {
                None => self.clients.dirty.push(key),
                Some(_) => self.routes.on_sub_request_dirty(key),
            }
        }
    }

    #[inline]
    fn mark_session_resuming(&mut self, key: Key<Session>, session: &mut Session) {
        if !session.is_resuming {
            session.is_resuming = true;
            self.clients.resuming.push(key);
        }
    }

    #[inline]
    fn mark_link_dirty(&mut self, index: ConnectionKey, connection: &mut Connection) {
        if !connection.link.is_dirty {
            connection.link.is_dirty = true;
            self.upstream.dirty_links.push(index);
        }
    }

    /// Handles a request that was appended to a link's output. It must be called after that.
    #[inline]
    fn note_unsent(&mut self, index: ConnectionKey, connection: &Connection) {
        if connection.link.unsent_len() >= SEND_EARLY_LEN
            && self.upstream.full_links.last() != Some(&index)
        {
            self.upstream.full_links.push(index);
        }
    }

    fn note_deadline(&mut self, deadline: Option<Time>) {
        if let Some(deadline) = deadline {
            self.next_deadline =
                Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
