//! The sessions of a worker: clients come and leave, their sockets are read and written, and their
//! waits end.

use super::upstream::{reply, streamed_replies};
use super::{ConnectionKey, Core};
use crate::core::request::{ClientMut, ClientRef};
use keyway_base::Key;
use keyway_metrics::CloseReason;
use keyway_proxy::local::Unblock;
use keyway_proxy::memcached::MemcachedClient;
use keyway_proxy::{Busy, Identity, Session};
use std::sync::Arc;

/// Number of bytes that are kept of what a client sends after a blocking command. A client with
/// more is disconnected. With less, clients that send large requests there would be disconnected.
/// Redis keeps 1 GB.
const BEHIND_BLOCKED_MAX: usize = 16 << 20;

/// Returns whether a session that starts no requests now is read all the same. The end of a client
/// that waits for others arrives after everything that it has sent, so it is only noticed by
/// reading on.
#[cold]
pub(super) fn reads_on(session: &Session, busy: Option<&Busy>) -> bool {
    session.awaits_others() && busy.is_none_or(|busy| busy.unparsed().len() < BEHIND_BLOCKED_MAX)
}

impl Core {
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

    /// Notes that the client's socket has room again. Returns `false` if there is no such client.
    pub(crate) fn on_client_writable(&mut self, key: Key<Session>) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        if session.send_blocked {
            session.send_blocked = false;
            self.plane.mark_session_dirty(key, session);
        }
        true
    }

    /// Resumes sessions that waited for room on a link.
    #[inline]
    pub(crate) fn release_waiting(&mut self, index: ConnectionKey) {
        let Core { sessions, links, plane } = self;
        reply::release_waiting(sessions, plane, &mut links[index]);
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
            // Its buffers know what came behind a request without a reply.
            if session.unheard == 0
                && let Some(busy) = session.busy.take()
            {
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

    /// Lets clients go on that wait for a pause of a pool, whatever it was for. A request that is still
    /// held waits again.
    pub(crate) fn end_pauses_of(&mut self, pool: u16) {
        let plan = Arc::clone(&self.plane.plan);
        let is_its = |held: &mut (_, u16)| held.1 == pool;
        let held: Vec<_> = self.plane.clients.held_back.extract_if(.., is_its).collect();
        for (key, _) in held {
            let Some(session) = self.sessions.get_mut(key) else { continue };
            plan.clients.set_paused(session.identity.id, false);
            self.plane.wake(key, session);
        }
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
}
