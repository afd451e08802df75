//! Links that only one session uses for a while: to watch keys, or to wait in a blocking command.
//!
//! ```text
//!            lease                       release (nothing left on it)
//!   idle ───────────► leased to a session ───────────► idle, a few per server
//!    ▲                      │ connection lost, or the client left
//!    └── new connection     ▼
//!                      its key is free for another
//! ```

use crate::core::upstream::reply::release_all;
use crate::core::{Connection, ConnectionKey, Connections, Core, Plane};
use keyway_base::{BackendFault, Fault, Key, Sent, Slab};
use keyway_net::Socket;
use keyway_proxy::local::UnblockReason;
use keyway_proxy::{Internal, Link, LinkState, Owner, Session};
use keyway_resp::Protocol;
use keyway_topology::ServerId;

/// Number of idle private links that are kept for each server. With fewer, blocking commands would
/// often need a new connection. More would be connections that the server counts.
const IDLE_MAX: usize = 32;

/// Number of private links of a worker. Each is a connection with a client behind it, so only
/// clients without limits ask for more.
const PRIVATE_MAX: usize = 50_000;

/// Number of those that tracked sessions may keep. A tracked client has one to every server, and
/// must leave some for clients that watch keys or wait. With fewer, tracking would be refused to
/// applications with many clients.
const OWN_MAX: usize = PRIVATE_MAX / 2;

impl Plane {
    /// Returns a link to `server` that only `session` uses, with `protocol`, connected or about to
    /// be. Returns `None` if there are too many. [`Plane::prepare_link`] must follow.
    pub(in crate::core) fn lease(
        &mut self,
        links: &mut Connections,
        session: Key<Session>,
        server: ServerId,
        protocol: Protocol,
    ) -> Option<ConnectionKey> {
        let state = self.pools[usize::from(server.pool)].servers_mut()?;
        let idle = state.idle_mut(server.server);
        let is_fit = |&index: &ConnectionKey| {
            let link = &links[index].link;
            link.in_flight() == 0 && link.protocol() == protocol
        };
        if let Some(position) = idle.iter().rposition(is_fit) {
            let index = idle.swap_remove(position);
            let connection = &mut links[index];
            connection.lease = Some(session);
            // Its last request may have been a large one that timed out.
            (connection.link.blocks_until, connection.link.stays_when_late) = (None, false);
            return Some(index);
        }
        if !self.has_private(1) {
            return None;
        }
        let index = self.add_private(links, session, server, protocol);
        let owner = Owner::Internal(Internal::ClientId);
        links[index].link.enqueue_own(owner, &[b"CLIENT", b"ID"], self.clock.now);
        Some(index)
    }

    /// Returns whether there may be `count` more private links.
    fn has_private(&self, count: usize) -> bool {
        self.upstream.leases.count + count <= PRIVATE_MAX
    }

    /// Returns whether tracked sessions may have `count` more.
    pub(in crate::core) fn has_own(&self, count: usize) -> bool {
        self.upstream.leases.own + count <= OWN_MAX && self.has_private(count)
    }

    /// Adds a link that a session keeps for as long as it is tracked.
    pub(in crate::core) fn add_own(
        &mut self,
        links: &mut Connections,
        session: Key<Session>,
        server: ServerId,
        protocol: Protocol,
    ) -> ConnectionKey {
        self.upstream.leases.own += 1;
        self.add_private(links, session, server, protocol)
    }

    /// Adds another link that only `session` uses, on which nothing was sent.
    fn add_private(
        &mut self,
        links: &mut Connections,
        session: Key<Session>,
        server: ServerId,
        protocol: Protocol,
    ) -> ConnectionKey {
        self.upstream.leases.count += 1;
        let gone = self.upstream.leases.free.pop();
        let id = self.plan.topology.id_of(server);
        let follows = self.has_moving_homes(server.pool);
        let mut connection = Connection::new(server, id, protocol)
            .following(follows)
            .watched(self.plan.health.watches(id));
        connection.is_private = true;
        connection.lease = Some(session);
        links.add(connection, gone)
    }

    /// Takes a link back from its session. At most replies that no one needs are missing on it.
    pub(in crate::core) fn release(&mut self, links: &mut Connections, index: ConnectionKey) {
        let connection = &mut links[index];
        if connection.role.is_some() {
            // The session keeps it for as long as it is tracked.
            return;
        }
        connection.lease = None;
        connection.takes_large = false;
        // A server that answers half of a request treats the rest as another one.
        let is_cut =
            std::mem::take(&mut connection.link.is_blocking) && connection.link.unsent_len() > 0;
        (connection.link.blocks_until, connection.link.stays_when_late) = (None, false);
        connection.awaits_retry = false;
        connection.awaited_keys.clear();
        // A request to the server about the client of this connection may be in flight, and must
        // not affect another's command.
        let is_spoilt = connection.unblock.take().is_some() || connection.is_streamed || is_cut;
        if is_spoilt || connection.link.state() != LinkState::Ready {
            return self.upstream.discards.push(index);
        }
        self.give_back(index, connection);
    }

    /// Keeps an unused link for the next session.
    fn give_back(&mut self, index: ConnectionKey, connection: &Connection) {
        let Some(state) = self.pools[usize::from(connection.server_id.pool)].servers_mut() else {
            return;
        };
        state.idle_mut(connection.server_id.server).push(index);
        self.trim_idle(index, connection);
    }

    /// Ends an idle link if there are too many for its server, and nothing is in flight on it: that
    /// may be an `EXEC`.
    fn trim_idle(&mut self, index: ConnectionKey, connection: &Connection) {
        let Some(state) = self.pools[usize::from(connection.server_id.pool)].servers_mut() else {
            return;
        };
        let idle = state.idle_mut(connection.server_id.server);
        if idle.len() > IDLE_MAX && connection.link.in_flight() == 0 {
            idle.retain(|&one| one != index);
            self.upstream.discards.push(index);
        }
    }

    /// Ends what a session has begun on its connection, when it leaves or resets.
    pub(in crate::core) fn end_stateful(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        session: &mut Session,
    ) {
        let Some(stateful) = session.take_stateful() else { return };
        if let Some(watched) = stateful.watched {
            self.unwatch_keys(session.pool, *watched);
        }
        if stateful.waits_on_store {
            self.forget_waiting(session);
        }
        if let Some(index) = stateful.watch.and_then(|watch| watch.link) {
            self.unwatch(links, key, index);
        }
        let was_waiting = stateful.unsent > 0 || !stateful.blocked_on.is_empty();
        for &index in &stateful.blocked_on {
            // Only the end of the connection ends the command on the server.
            if links[index].lease.take_if(|owner| *owner == key).is_some() {
                self.upstream.discards.push(index);
            }
        }
        if was_waiting {
            self.plan.clients.set_blocked(session.identity.id, false);
        }
    }

    /// Ends the watch on a link, and the lease, if the session still has it.
    pub(in crate::core) fn unwatch(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        index: ConnectionKey,
    ) {
        let connection = &mut links[index];
        if connection.lease != Some(key) {
            return;
        }
        if connection.link.state() == LinkState::Ready {
            let owner = Owner::Unheard(Key::NONE);
            connection.link.enqueue_own(owner, &[b"UNWATCH"], self.clock.now);
            self.mark_link_dirty(index, connection);
            self.note_deadline(
                connection.link.deadline(self.link_options(connection.server_id.pool)),
            );
        }
        self.release(links, index);
    }

    /// Ends the watch of a session whose links are replaced. That counts as a change of the keys.
    pub(in crate::core) fn lose_watch(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        session: &mut Session,
    ) {
        let watch = session.stateful.as_mut().and_then(|stateful| stateful.watch.as_mut());
        if let Some(index) = watch.and_then(|watch| watch.link.take()) {
            self.unwatch(links, key, index);
        }
    }

    /// Ends what a session had on a private link whose connection is lost.
    pub(in crate::core) fn end_lease(
        &mut self,
        sessions: &mut Slab<Session>,
        index: ConnectionKey,
        connection: &mut Connection,
    ) {
        let Some(session) = connection.lease.take().and_then(|key| sessions.get_mut(key)) else {
            return;
        };
        let Some(stateful) = &mut session.stateful else { return };
        if let Some(watch) = stateful.watch.as_mut().filter(|watch| watch.link == Some(index)) {
            watch.link = None;
        }
        if let Some(position) = stateful.blocked_on.iter().position(|&link| link == index) {
            stateful.blocked_on.swap_remove(position);
            if connection.awaits_retry {
                // The command is sent again on another link: its client still waits.
                stateful.unsent += 1;
                stateful.unsent_end = stateful.unsent_end.or(asked_to_end(connection));
            }
            if !stateful.is_blocked() {
                self.plan.clients.set_blocked(session.identity.id, false);
            }
        }
        session.tidy();
    }

    /// Notes that a command which had lost its private link is sent again, or is over.
    pub(in crate::core) fn end_unsent(&self, session: &mut Session) {
        let Some(stateful) = session.stateful.as_mut().filter(|it| it.unsent > 0) else { return };
        stateful.unsent -= 1;
        if stateful.unsent == 0 {
            stateful.unsent_end = None;
        }
        if !stateful.is_blocked() {
            self.plan.clients.set_blocked(session.identity.id, false);
            session.tidy();
        }
    }

    /// Ends a command that was just sent on a link, if it must end.
    pub(in crate::core) fn end_there(
        &mut self,
        index: ConnectionKey,
        connection: &mut Connection,
        why: Option<UnblockReason>,
    ) {
        if why.is_some() {
            connection.unblock = why;
            self.upstream.unblocking.push((index, connection.generation));
        }
    }

    /// Returns whether a command waits on this link for keys that are elsewhere now.
    pub(in crate::core) fn is_displaced(&self, connection: &Connection) -> bool {
        let Some(state) = self.pools[usize::from(connection.server_id.pool)].servers() else {
            return false;
        };
        let server = |hash: &u32| state.ring().pick(*hash, 0);
        connection.awaited_keys.iter().any(|hash| server(hash) != Some(connection.server_id.server))
    }

    /// Handles the reply to a blocking command: the session continues.
    pub(in crate::core) fn after_private_reply(
        &mut self,
        sessions: &mut Slab<Session>,
        links: &mut Connections,
        index: ConnectionKey,
    ) {
        let connection = &mut links[index];
        if connection.link.in_flight() > 0 || connection.awaits_retry {
            return;
        }
        if connection.role.is_some() {
            return self.discard_unused(connection, index);
        }
        if connection.lease.is_none() {
            return self.trim_idle(index, connection);
        }
        if connection.link.is_blocking {
            self.end_lease(sessions, index, connection);
            self.release(links, index);
        }
    }

    /// Handles a request of a session on a private link that has expired before it was sent: what
    /// the session had there never began, or counts as ended.
    pub(super) fn on_private_expired(
        &mut self,
        sessions: &mut Slab<Session>,
        index: ConnectionKey,
        connection: &mut Connection,
        was_blocking: bool,
    ) {
        if connection.role.is_some() {
            let session = connection.lease.and_then(|key| sessions.get_mut(key));
            if let Some(session) = session.filter(|_| connection.link.state() != LinkState::Ready) {
                crate::core::pools::servers::tracking::lose_watch_on(session, index);
            }
            return self.discard_unused(connection, index);
        }
        if connection.lease.is_none() {
            return;
        }
        if connection.link.state() != LinkState::Ready {
            self.end_lease(sessions, index, connection);
            self.upstream.discards.push(index);
        } else if was_blocking && !connection.link.is_blocking {
            // The server owes a reply that no one needs.
            connection.takes_large = false;
            self.end_lease(sessions, index, connection);
            self.give_back(index, connection);
        }
    }
}

/// Returns why the command on a link must end, wherever it waits.
pub(in crate::core) fn asked_to_end(connection: &Connection) -> Option<UnblockReason> {
    connection.unblock.filter(|&why| why != UnblockReason::Displaced)
}

impl Core {
    /// Ends the connection of a private link. Returns its socket, to be closed.
    pub(in crate::core) fn on_private_lost(
        &mut self,
        index: ConnectionKey,
        fault: BackendFault,
    ) -> Option<Socket> {
        let Core { sessions, links, plane } = self;
        let connection = &mut links[index];
        let server = connection.server_id;
        let state = connection.link.state();
        let (worked, in_flight) = (connection.link.has_answered(), connection.link.in_flight());
        connection.generation = crate::core::connection::next_generation(connection.generation);
        // A server may close idle connections. That is not reported.
        let is_failure = connection.lease.is_some() && (in_flight > 0 || !worked);
        plane.end_counts(connection, state);
        if is_failure {
            plane.note_refusal(connection, fault);
            plane.log_link_end(connection, state, fault);
        }
        // A server without room for another connection serves the existing ones.
        let is_blameless = matches!(fault, BackendFault::Reply(_) | BackendFault::Full);
        let (is_blocking, mut lost) = (connection.link.is_blocking, Vec::new());
        connection.link.on_lost(false, |one| lost.push((one.exchange, one.sent)));
        // A request of a client that has left is no failure.
        if is_failure && !is_blameless {
            plane.note_lost(connection, lost.iter().map(|(exchange, _)| exchange), fault);
        }
        for (exchange, sent) in lost {
            let why = crate::core::upstream::connections::lost_with(fault, sent);
            plane.fail(sessions, server, &exchange, is_blocking, why);
        }
        if is_failure && !is_blameless {
            let began = plane.began(connection, worked);
            plane.note_failure(connection, fault.into(), began);
        }
        plane.end_lease(sessions, index, connection);
        release_all(sessions, plane, connection);
        let socket = connection.socket.take();
        connection.link = Link::default();
        connection.is_connecting = false;
        if connection.role.take().is_some() {
            plane.upstream.leases.own -= 1;
        }
        connection.client_id = None;
        connection.unblock = None;
        connection.awaits_retry = false;
        if let Some(state) = plane.pools[usize::from(server.pool)].servers_mut() {
            state.idle_mut(server.server).retain(|&idle| idle != index);
        }
        connection.is_free = true;
        plane.upstream.leases.free.push(index);
        plane.upstream.leases.count -= 1;
        socket
    }

    /// Handles that other servers of a pool are in use: commands that wait where their keys no
    /// longer are would wait for ever.
    #[cold]
    pub(super) fn end_displaced(&mut self, pool: u16) {
        let is_blocked = |connection: &Connection| {
            connection.server_id.pool == pool
                && connection.link.is_blocking
                && connection.lease.is_some()
        };
        for position in 0..self.links.len() {
            let index = self.links.key_at(position);
            if !is_blocked(&self.links[index]) {
                continue;
            }
            let Core { sessions, links, plane } = self;
            let connection = &mut links[index];
            let is_astray = plane.is_displaced(connection);
            if !plane.plan.health.is_usable(connection.id) || (connection.is_streamed && is_astray)
            {
                // It may never answer, not even that the command has ended, or it may have half of
                // one.
                let fault = Fault::Backend { fault: BackendFault::Closed, sent: Sent::Maybe };
                let server = connection.server_id;
                connection
                    .link
                    .abandon(|exchange| plane.fail(sessions, server, exchange, true, fault));
                plane.end_lease(sessions, index, connection);
                plane.upstream.discards.push(index);
            } else if is_astray && connection.unblock.replace(UnblockReason::Displaced).is_none() {
                plane.upstream.unblocking.push((index, connection.generation));
                self.send_unblock(index);
            }
        }
    }

    /// Returns whether a connection that was to be ended still must be: it may have ended by
    /// itself.
    pub(crate) fn is_to_be_discarded(&self, index: ConnectionKey) -> bool {
        self.links.get(index).is_some_and(|it| !it.is_free && it.lease.is_none())
    }

    /// Returns the number of private links of sessions, for tests.
    pub(in crate::core) fn leases(&self) -> usize {
        self.links.iter().filter(|connection| connection.lease.is_some()).count()
    }

    /// Returns the number of private links in use or idle, for tests.
    pub(in crate::core) fn private_links(&self) -> usize {
        self.plane.upstream.leases.count
    }
}

#[cfg(test)]
mod invariants;
