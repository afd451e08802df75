//! Transactions and blocking commands of sharded pools; what they have in
//! common with those of the embedded store.
//!
//! A transaction is held in the session until `EXEC` and goes out whole, on
//! the shared link of its server, or on the private link that watches its
//! keys. A blocking command waits on a private link. Whenever a session
//! changes from one link to another, a fence holds its next request back
//! until every reply is here: its requests are executed in their order. What
//! goes by a private link also waits, within the timeout, while the server owes
//! the reply to a write of the client that has timed out.

use crate::Upstream;
use crate::core::request::{RequestContext, Step};
use crate::core::upstream::bypass::late_link;
use crate::core::{ConnectionKey, Connections, Plane};
use keyway_base::{Fault, Time};
use keyway_command::Verb;
use keyway_proxy::{Owner, Translation, write_fault};
use keyway_resp::reply;
use keyway_route::{Route, route_whole};
use keyway_topology::{Distribution, ServerId};
use std::sync::Arc;
use std::time::Duration;

impl Plane {
    /// Takes a request that belongs to an open transaction; `None` when it is
    /// to be handled as any other.
    #[cold]
    pub(in crate::core) fn dispatch_stateful(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
    ) -> Option<Step> {
        let stateful = asked.session.stateful.as_ref()?;
        match asked.request.command.verb {
            Verb::Reset => {
                self.end_stateful(links, asked.key, asked.session);
                None
            }
            Verb::Multi | Verb::Exec | Verb::Discard | Verb::Watch | Verb::Quit => None,
            _ if stateful.transaction.is_none() => None,
            _ => {
                self.queue(asked);
                Some(Step::Started)
            }
        }
    }

    /// Answers a request that may change the protocol and so the links of its
    /// session, once those before it are answered.
    #[cold]
    pub(in crate::core) fn greet(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
    ) -> Step {
        if !asked.session.is_quiet(asked.busy) {
            asked.session.fence();
            return Step::Wait;
        }
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[asked.session.pool as usize];
        let before = asked.session.identity.protocol;
        self.answer_without_server(asked.session, asked.busy, pool, asked.request);
        let has_changed = asked.session.identity.protocol != before;
        if has_changed {
            self.lose_watch(links, asked.key, asked.session);
        }
        if has_changed || asked.request.command.verb == Verb::Reset {
            self.change_tracking(links, asked);
        }
        Step::Started
    }

    /// Sends a command that may wait to the server of its keys.
    pub(in crate::core) fn block(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
        server: u16,
    ) -> Step {
        if let Some(step) = self.check_blocking(asked) {
            return step;
        }
        let shared = self.link_of(asked.session, server);
        if self.holds_private(&links[shared]) {
            return Step::Full(shared);
        }
        let server_id = ServerId { pool: asked.session.pool, server };
        if let Some(late) = late_link(links, asked.client(), server_id) {
            return Step::Full(late);
        }
        let Some(index) = self.lease_for(links, asked, server) else { return Step::Started };
        let until = self.answered_by(asked);
        self.note_write(asked.session, asked.busy);
        links[index].link.is_blocking = true;
        links[index].link.blocks_until = until;
        links[index].awaited_keys = self.hashes_of(asked);
        self.send_private(links, asked, index);
        self.note_deadline(until);
        asked.session.stateful.get_or_insert_default().blocked_on.push(index);
        asked.session.fence();
        self.plan.clients.set_blocked(asked.session.identity.id, true);
        Step::Started
    }

    /// When a server must have answered a command that blocks: it keeps the
    /// time, and one that is silent far beyond it is gone.
    pub(in crate::core) fn answered_by(&self, asked: &RequestContext) -> Option<Time> {
        self.answered_within(asked.session.pool, asked.request.wait_max())
    }

    /// The same of one that waits so long.
    pub(in crate::core) fn answered_within(
        &self,
        pool: u16,
        wait: Option<Duration>,
    ) -> Option<Time> {
        let options = self.link_options(pool);
        let grace = options.timeout.unwrap_or(options.connect_timeout);
        wait.map(|wait| self.clock.now + wait + grace)
    }

    /// What becomes of a command that blocks if it is not to be sent now.
    pub(in crate::core) fn check_blocking(&mut self, asked: &mut RequestContext) -> Option<Step> {
        if Self::is_silent(asked.session) {
            let text = "ERR a command that blocks is refused while CLIENT REPLY is OFF or SKIP";
            self.refuse(asked.session, asked.busy, |out| reply::error(out, text));
            return Some(Step::Started);
        }
        if !asked.session.is_quiet(asked.busy) {
            asked.session.fence();
            return Some(Step::Wait);
        }
        if asked.session.hung_up || asked.session.ended {
            // Nobody may be there to take what it would be given.
            let text = "UNBLOCKED a command that blocks is not begun for a client that sends no \
                        more, or while Keyway stops";
            self.refuse(asked.session, asked.busy, |out| reply::error(out, text));
            return Some(Step::Started);
        }
        None
    }

    /// Hashes of the request's keys, where a pool has several servers and keys
    /// have places.
    pub(in crate::core) fn hashes_of(&mut self, asked: &RequestContext) -> Vec<u32> {
        let Some(Upstream { servers: pool, .. }) =
            self.plan.pools[usize::from(asked.session.pool)].kind.upstream()
        else {
            return Vec::new();
        };
        if pool.servers.len() == 1 || matches!(pool.distribution, Distribution::Random) {
            return Vec::new();
        }
        self.keys.clear();
        let _ = asked.request.keys(&mut self.keys);
        let keys = self.keys.iter().filter_map(|&index| asked.request.args.get(index as usize));
        keys.map(|key| pool.hash_key(key)).collect()
    }

    /// A private link to `server`, unless that cannot be reached or there are
    /// too many: then the request is answered.
    pub(in crate::core) fn lease_for(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
        server: u16,
    ) -> Option<ConnectionKey> {
        let pool = asked.session.pool;
        let state = self.pools[pool as usize].servers()?;
        let protocol = asked.session.identity.protocol;
        let shared = state.link(server, asked.session.lane, protocol);
        if let Some(fault) = self.refused(&links[shared]) {
            self.answer_down(asked, server, fault);
            return None;
        }
        let leased = self.lease(links, asked.key, ServerId { pool, server }, protocol);
        if leased.is_none() {
            let text = "ERR too many clients watch keys or wait in blocking commands";
            self.refuse(asked.session, asked.busy, |out| reply::error(out, text));
        }
        leased
    }

    pub(in crate::core) fn send_private(
        &mut self,
        links: &mut Connections,
        asked: &mut RequestContext,
        index: ConnectionKey,
    ) {
        self.count(asked.session, asked.request);
        let connection = &mut links[index];
        self.prepare_link(index, connection, asked.session.identity.database);
        let frame = asked.request.args.buf();
        connection.link.request_buf().extend_from_slice(frame);
        let owner = Self::owner(asked);
        let counted = asked.request.command.counted();
        connection.link.enqueue(owner, counted, frame.len(), self.clock.now);
        connection.link.set_translation(Translation::of(asked.request));
    }

    /// Who waits for the reply to the request.
    pub(super) fn owner(asked: &mut RequestContext) -> Owner {
        let owner = match Self::is_silent(asked.session) {
            true => Self::unheard(asked.key, asked.session),
            false => Owner::Session { session: asked.key, sequence: asked.busy.order.reserve() },
        };
        Self::end_skip(asked.session);
        owner
    }

    pub(super) fn server_of_keys(&mut self, asked: &RequestContext) -> Result<u16, Route> {
        let random = self.next_random() as u32;
        let pool = asked.session.pool as usize;
        let (Some(Upstream { servers, .. }), Some(state)) =
            (self.plan.pools[pool].kind.upstream(), self.pools[pool].servers())
        else {
            return Err(Route::Unrouted);
        };
        match route_whole(asked.request, servers, state.ring(), random, &mut self.keys) {
            Route::One(server) => Ok(server),
            other => Err(other),
        }
    }

    pub(super) fn refuse_route_of(&mut self, asked: &mut RequestContext, route: Route) {
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[asked.session.pool as usize];
        self.refuse_route(asked.session, asked.busy, pool, asked.request, route);
    }

    pub(in crate::core) fn answer_locally(
        &mut self,
        asked: &mut RequestContext,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.count(asked.session, asked.request);
        self.note_served(asked.session.pool, asked.request.command.counted());
        self.answer(asked.session, asked.busy, write);
    }

    pub(super) fn answer_down(&mut self, asked: &mut RequestContext, server: u16, fault: Fault) {
        let pool = asked.session.pool;
        let backend = self.describe_backend(ServerId { pool, server });
        self.count_fault(pool, asked.request.command.counted(), fault);
        self.answer_locally(asked, |out| write_fault(fault, &backend, out));
    }
}
