//! Blocking commands whose keys have left their server: they wait on at the new server of the keys.
//!
//! A server that still answers is asked to end them (`CLIENT UNBLOCK`). If the server has given out
//! an element before, the reply with it reaches the client. Otherwise the server says so, and
//! nothing was taken. A deposed primary that was stopped or cut off may not answer. Its connection
//! is ended after a while. An element that it gives out then is lost, as is every write to it after
//! the election of another primary.

use crate::core::{Connection, ConnectionKey, Core, Plane};
use keyway_base::{BackendFault, Fault, Sent};
use keyway_proxy::local::UnblockReason;
use keyway_proxy::{LinkState, Redirected};
use keyway_resp::reply;
use keyway_topology::ServerId;
use std::time::Duration;

/// Time that a deposed primary may take to end the commands that wait there. A longer time leaves
/// clients waiting at a dead server. With a shorter time, an element that a slow server has just
/// given out may be lost.
const GRACE_MAX: Duration = Duration::from_secs(1);

impl Core {
    /// Moves the commands that wait at servers of a pool which no longer have their keys.
    #[cold]
    pub(super) fn move_waiting(&mut self, pool: u16) {
        for position in 0..self.links.len() {
            let index = self.links.key_at(position);
            if !self.plane.waits_astray(&self.links[index], pool) {
                continue;
            }
            if self.links[index].link.state() != LinkState::Ready {
                let unsent = self.links[index].link.take_unsent();
                unsent.into_iter().for_each(|one| self.wait_on(index, one));
                continue;
            }
            let Core { links, plane, .. } = self;
            let connection = &mut links[index];
            if connection.unblock.is_none() {
                connection.unblock = Some(UnblockReason::Displaced);
                connection.link.set_moving(true);
                plane.upstream.unblocking.push((index, connection.generation));
            }
            if !plane.is_serving(connection.server_id) {
                let options = plane.link_options(pool);
                let grace = options.timeout.unwrap_or(options.connect_timeout).min(GRACE_MAX);
                let until = plane.clock.now + grace;
                plane.cluster.displaced.push((until, index, connection.generation));
                plane.note_cluster_deadline(until);
            }
            self.send_unblock(index);
        }
    }

    /// Ends the connections to servers that had enough time to end the commands themselves.
    pub(super) fn leave_silent(&mut self) {
        let now = self.plane.clock.now;
        let mut at = 0;
        while let Some(&(until, index, generation)) = self.plane.cluster.displaced.get(at) {
            if until > now {
                self.plane.note_cluster_deadline(until);
                at += 1;
                continue;
            }
            self.plane.cluster.displaced.swap_remove(at);
            let Some(connection) = self.links.get(index) else { continue };
            let goes_on = connection.generation == generation && connection.unblock.is_some();
            if goes_on && self.plane.waits_astray(connection, connection.server_id.pool) {
                self.leave(index);
            }
        }
    }

    fn leave(&mut self, index: ConnectionKey) {
        let connection = &mut self.links[index];
        if connection.link.is_moving()
            && let Some(one) = connection.link.take_waiting()
        {
            return self.wait_on(index, one);
        }
        let Core { sessions, links, plane } = self;
        let connection = &mut links[index];
        let fault = Fault::Backend { fault: BackendFault::Closed, sent: Sent::Maybe };
        let server = connection.server_id;
        connection.link.abandon(|exchange| plane.fail(sessions, server, exchange, true, fault));
        plane.end_lease(sessions, index, connection);
        plane.upstream.discards.push(index);
    }

    /// Has a command that was not executed wait at the current server of its keys, for its
    /// remaining time.
    pub(super) fn wait_on(&mut self, from: ConnectionKey, mut one: Redirected) {
        let connection = &self.links[from];
        let (sent_to, owner) = (connection.server_id, connection.lease);
        let waited = self.plane.clock.now.since(one.exchange.started);
        if let Some(request) = self.plane.with_time_left(&one.request, waited) {
            one.request = request;
        }
        // The command begins anew, however often it was redirected.
        one.exchange.redirections = 0;
        one.exchange.begin_anew(self.plane.clock.now);
        let mut refusal = Vec::new();
        let text = UnblockReason::Displaced.text().unwrap_or_default();
        reply::error(&mut refusal, text);
        one.reply = refusal.into();
        if self.plane.is_fenced_command(sent_to.pool, &one.request) && owner.is_some() {
            return self.wait_behind_fence(from, one);
        }
        match self.plane.server_of_request(sent_to, &one) {
            Some(to) => self.redirect_private(to, from, &one, false),
            None => self.give_up(from, &one),
        }
        let Core { sessions, links, plane } = self;
        let connection = &mut links[from];
        if owner.is_some() && connection.lease == owner {
            // No server has the keys, and the client was told.
            plane.end_lease(sessions, from, connection);
            plane.upstream.discards.push(from);
        }
    }
}

impl Plane {
    /// Returns whether a command waits on a link to a server of `pool` that no longer has its keys.
    fn waits_astray(&self, connection: &Connection, pool: u16) -> bool {
        let is_waiting = connection.server_id.pool == pool
            && connection.is_private
            && connection.link.is_blocking
            && connection.lease.is_some()
            && !connection.awaits_retry;
        is_waiting
            && (self.is_displaced(connection)
                || !self.is_serving(connection.server_id)
                || self.waits_behind_fence(connection))
    }

    fn is_serving(&self, server: ServerId) -> bool {
        self.cluster_state(server.pool)
            .is_some_and(|state| state.map.is_serving(usize::from(server.server)))
    }

    /// Returns a blocking command with its remaining time, or `None` if it waits without a limit.
    fn with_time_left(&self, sent: &[u8], waited: Duration) -> Option<Box<[u8]>> {
        let mut out = Vec::new();
        self.each_command(sent, |request| {
            let left = request.wait_max().map(|wait| wait.saturating_sub(waited));
            let Some((position, words)) = left.and_then(|left| request.wait_words(left)) else {
                return;
            };
            reply::array(&mut out, request.args.len());
            for (index, arg) in request.args.from(0).enumerate() {
                reply::bulk(&mut out, if index == position { words.as_bytes() } else { arg });
            }
        });
        (!out.is_empty()).then(|| out.into())
    }
}
