//! The early end of a blocking command: a client asks for it, a pool or a listener ends, or the
//! client itself leaves.

use crate::core::{ConnectionKey, Core};
use keyway_base::Key;
use keyway_proxy::local::{Unblock, UnblockReason};
use keyway_proxy::{Owner, Redirected, Session};
use keyway_resp::{Kind, Protocol};

impl Core {
    /// Ends the blocking command of a client that waits at servers.
    pub(in crate::core) fn unblock_at_servers(&mut self, key: Key<Session>, reason: UnblockReason) {
        self.end_retries_of(key, reason);
        let session = self.sessions.get_mut(key);
        let Some(stateful) = session.and_then(|it| it.stateful.as_mut()) else { return };
        if stateful.unsent > 0 {
            stateful.unsent_end = Some(reason);
        }
        let waiting = stateful.blocked_on.clone();
        for index in waiting {
            let connection = &mut self.links[index];
            connection.link.set_moving(false);
            if connection.unblock.replace(reason).is_none() {
                self.plane.upstream.unblocking.push((index, connection.generation));
            }
            self.send_unblock(index);
        }
    }

    /// Asks the servers again to end commands that go on although they were to end. The first
    /// request may have overtaken the command, or got lost.
    pub(crate) fn retry_unblocks(&mut self) {
        let mut unblocking = std::mem::take(&mut self.plane.upstream.unblocking);
        unblocking.retain(|&(index, generation)| {
            let Some(connection) = self.links.get(index) else { return false };
            let goes_on = connection.generation == generation && connection.lease.is_some();
            if goes_on && connection.unblock.is_some() {
                self.send_unblock(index);
            }
            goes_on
        });
        self.plane.upstream.unblocking = unblocking;
    }

    /// Asks the server to end the command that waits on a private link. So a reply that is on its
    /// way already is not lost.
    pub(in crate::core) fn send_unblock(&mut self, index: ConnectionKey) {
        let Core { links, plane, .. } = self;
        let connection = &mut links[index];
        let (Some(id), Some(session)) = (connection.client_id, connection.lease) else { return };
        let Some(reason) = connection.unblock else { return };
        let Some(state) = plane.pools[usize::from(connection.server_id.pool)].servers() else {
            return;
        };
        let index = state.link(connection.server_id.server, session.index(), Protocol::default());
        let connection = &mut links[index];
        if !connection.link.has_room(plane.link_options(connection.server_id.pool)) {
            return;
        }
        plane.prepare_link(index, connection, 0);
        let how: &[u8] = match reason {
            UnblockReason::Timeout => b"TIMEOUT",
            _ => b"ERROR",
        };
        let id = id.to_string();
        let words: [&[u8]; 4] = [b"CLIENT", b"UNBLOCK", id.as_bytes(), how];
        connection.link.enqueue_own(Owner::Unheard(Key::NONE), &words, plane.clock.now);
    }

    /// Ends a command that a server has refused. No server can have given out an element for it. A
    /// server would end it only after the pause before the next try, and many servers may refuse it
    /// one after the other.
    pub(in crate::core::pools) fn end_refused(
        &mut self,
        from: ConnectionKey,
        one: &Redirected,
        why: UnblockReason,
    ) {
        let Core { sessions, links, plane } = self;
        let session = plane.session_of(one.exchange.owner).and_then(|key| sessions.get(key));
        let protocol = session.map_or(Protocol::default(), |session| session.identity.protocol);
        let mut out = Vec::new();
        why.write_end(&mut out, |out| protocol.null_array(out));
        let kind = if why == UnblockReason::Timeout { Kind::Null } else { Kind::Error };
        let server = links[from].server_id;
        plane.deliver_aside(sessions, server, &one.exchange, kind, &out);
    }

    /// Ends the wait of a client that is to leave a blocking command.
    pub(crate) fn let_go(&mut self, key: Key<Session>) {
        let Some(session) = self.sessions.get(key).filter(|session| session.is_blocked()) else {
            return;
        };
        let on = session.stateful.iter().flat_map(|stateful| &stateful.blocked_on);
        let on = on.map(|&index| self.links[index].unblock.is_some());
        let unsent = session.stateful.iter().filter(|stateful| stateful.unsent > 0);
        let unsent = unsent.map(|stateful| stateful.unsent_end.is_some());
        let mut on = on.chain(unsent).peekable();
        // A server that was asked once is asked again in time.
        let is_asked = on.peek().is_some() && on.all(|is_asked| is_asked);
        if !is_asked {
            let id = session.identity.id;
            self.plane.clients.unblocks.push(Unblock { id, reason: UnblockReason::Stopping });
        }
    }

    /// Notes that a client closed its side. Returns whether the client has ended: nobody would
    /// answer a client that waits in a blocking command, or for the end of a pause.
    pub(crate) fn note_hangup(&mut self, key: Key<Session>) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        session.hung_up = true;
        session.awaits_others()
    }
}
