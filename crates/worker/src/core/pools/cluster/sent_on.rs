//! The order of a client's requests for one slot while servers send them on.
//!
//! A slot may move again while requests of a pipeline are on their way. The servers then name one
//! server to the first request and another to the next:
//!
//! ```text
//!   SET a 1 ──► A: MOVED B ──► B: MOVED C ──► C
//!   SET a 2 ──► A: MOVED C ──────────────────► C     overtakes "SET a 1"
//! ```
//! So a request follows the earlier request of its client for the same slot, as long as that one's
//! reply is awaited. The server there sends both on, in their order.

use super::state::SentOnOrder;
use crate::core::pools::cluster::state::Onward;
use crate::core::pools::cluster::state::{SentOn, SentOnKey};
use crate::core::pools::routed::{above, client_behind};
use crate::core::request::ReplyIndex;
use crate::core::{ConnectionKey, Core, Plane};
use keyway_base::{Key, Slab};
use keyway_proxy::{Exchange, Owner, Session};
use keyway_topology::{Endpoint, ServerId};

/// Number of entries that are kept without a check whether they still count. More would take memory
/// at rest. With fewer, each request that is sent on would check all of them.
const UNCHECKED_MAX: usize = 32;

impl Core {
    /// Returns the destination of a request for `slot` that was sent by the connection `from`, and
    /// that its server sends to `onward`. Remembers the destination for the next request of its
    /// client.
    pub(super) fn in_order(
        &mut self,
        from: ConnectionKey,
        exchange: &Exchange,
        slot: u16,
        mut onward: Onward,
    ) -> Onward {
        let Core { sessions, links, plane } = self;
        let (owner, from) = (exchange.owner, &links[from]);
        let server = from.server_id;
        let Some(session) = plane.session_of(owner) else { return onward };
        let client = sessions.get(session).map(|it| client_behind(above(session, it).0));
        let Some(client) = client else { return onward };
        let reply = plane.reply_index(owner).map(|index| index.reply);
        let key = SentOnKey { client: client.to_bits(), pool: server.pool, slot };
        let earlier = plane.cluster.sent_on.latest.get(&key).filter(|it| it.is_awaited(sessions));
        if let Some(earlier) = earlier {
            if earlier.is_behind(session, reply) && earlier.reply != reply {
                return onward;
            }
            let is_own = earlier.session == session && earlier.reply == reply && reply.is_some();
            // If the earlier request was sent to this very server again, it is behind this one.
            let is_later =
                earlier.again_at.is_some_and(|at| !from.link.was_enqueued_after(exchange, at));
            let is_ahead = plane.is_at(server, &earlier.to) && !is_later;
            if !is_own && !is_ahead {
                onward.to = earlier.to.clone();
            }
        }
        let is_back = plane.is_at(server, &onward.to);
        let again_at = is_back.then_some(plane.clock.now);
        let sent_on = SentOn { session, reply, to: onward.to.clone(), again_at };
        plane.note_sent_on(sessions, key, sent_on);
        onward
    }
}

impl Plane {
    fn is_at(&self, server: ServerId, endpoint: &Endpoint) -> bool {
        self.cluster_state(server.pool)
            .is_some_and(|state| state.shared.index_of(endpoint) == Some(server.server))
    }

    /// Notes that a request is sent again to a server that no other server has named for it. The
    /// server that was named may have left before the request could be sent.
    pub(super) fn note_sent_again(
        &mut self,
        sessions: &Slab<Session>,
        server: ServerId,
        owner: Owner,
    ) {
        if self.cluster.sent_on.latest.is_empty() {
            return;
        }
        let Some(ReplyIndex { session, reply }) = self.reply_index(owner) else { return };
        let Some(client) = sessions.get(session).map(|it| client_behind(above(session, it).0))
        else {
            return;
        };
        let Some(state) = self.cluster_state(server.pool) else { return };
        let Some(node) = state.map.node(usize::from(server.server)) else { return };
        let to = node.endpoint.clone();
        let of_client = SentOnKey::of_pool(client, server.pool);
        for (_, latest) in self.cluster.sent_on.latest.range_mut(of_client) {
            if (latest.session, latest.reply) == (session, Some(reply)) {
                (latest.to, latest.again_at) = (to.clone(), Some(self.clock.now));
            }
        }
    }

    /// Forgets the order of a client that has had all its replies. The indices of its next replies
    /// begin anew, so an earlier request would seem to be behind a later one.
    #[inline]
    pub(in crate::core) fn forget_order(&mut self, client: Key<Session>) {
        if !self.cluster.sent_on.latest.is_empty() {
            self.cluster.sent_on.forget_answered(client);
        }
    }

    fn note_sent_on(&mut self, sessions: &Slab<Session>, key: SentOnKey, sent_on: SentOn) {
        let SentOnOrder { latest, check_at } = &mut self.cluster.sent_on;
        latest.insert(key, sent_on);
        if latest.len() > (*check_at).max(UNCHECKED_MAX) {
            latest.retain(|_, it| it.is_awaited(sessions));
            *check_at = latest.len() * 2;
        }
    }
}
