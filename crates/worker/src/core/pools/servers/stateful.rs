//! Transactions and blocking commands of sharded pools, and the parts that they share with those of
//! the embedded store.
//!
//! A transaction is held in the session until `EXEC`. Then it is sent whole, on the shared link of
//! its server, or on the private link that watches its keys. A blocking command waits on a private
//! link. When a session changes from one link to another, a fence holds its next request until
//! every reply has arrived, so that its requests are executed in their order. A request for a
//! private link also waits, within the timeout, while the server owes the reply to one of the
//! client's writes that has timed out.

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
    /// Takes a request that belongs to an open transaction. Returns `None` if it is handled like
    /// any other.
    #[cold]
    pub(in crate::core) fn dispatch_stateful(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
    ) -> Option<Step> {
        let stateful = incoming.session.stateful.as_ref()?;
        match incoming.request.command.verb {
            Verb::Reset => {
                self.end_stateful(links, incoming.key, incoming.session);
                None
            }
            Verb::Multi | Verb::Exec | Verb::Discard | Verb::Watch | Verb::Quit => None,
            _ if stateful.transaction.is_none() => None,
            _ => {
                self.queue(incoming);
                Some(Step::Started)
            }
        }
    }

    /// Answers a request that may change the protocol, and so the links of its session, once the
    /// requests before it are answered.
    #[cold]
    pub(in crate::core) fn greet(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
    ) -> Step {
        if !incoming.session.is_quiet(incoming.busy) {
            incoming.session.fence();
            return Step::Wait;
        }
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[incoming.session.pool as usize];
        let before = incoming.session.identity.protocol;
        self.answer_without_server(incoming, pool);
        let has_changed = incoming.session.identity.protocol != before;
        if has_changed {
            self.lose_watch(links, incoming.key, incoming.session);
        }
        if has_changed || incoming.request.command.verb == Verb::Reset {
            self.change_tracking(links, incoming);
        }
        Step::Started
    }

    /// Sends a command that may wait to the server of its keys.
    pub(in crate::core) fn block(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        server: u16,
    ) -> Step {
        if let Some(step) = self.check_blocking(incoming) {
            return step;
        }
        let Some(shared) = self.pools[usize::from(incoming.session.pool)].shared() else {
            return self.answer_unrouted(incoming);
        };
        let link = self.link_of(&shared, incoming.session, server);
        if self.holds_private(&links[link]) {
            return Step::Full(link);
        }
        let server_id = ServerId { pool: incoming.session.pool, server };
        if let Some(late) = late_link(links, incoming.client(), server_id) {
            return Step::Full(late);
        }
        let Some(index) = self.lease_for(links, incoming, server) else { return Step::Started };
        let until = self.answered_by(incoming);
        self.note_write(incoming.session, incoming.busy);
        links[index].link.is_blocking = true;
        links[index].link.blocks_until = until;
        links[index].awaited_keys = self.hashes_of(incoming);
        self.send_private(links, incoming, index);
        self.note_deadline(until);
        incoming.session.stateful.get_or_insert_default().blocked_on.push(index);
        incoming.session.fence();
        self.plan.clients.set_blocked(incoming.session.identity.id, true);
        Step::Started
    }

    /// Returns the time by which a server must have answered a blocking command. The server keeps
    /// the time of the command. A server that is silent long after that is gone.
    pub(in crate::core) fn answered_by(&self, incoming: &RequestContext) -> Option<Time> {
        self.answered_within(incoming.session.pool, incoming.request.wait_max())
    }

    /// Does the same for a command that waits for `wait`.
    pub(in crate::core) fn answered_within(
        &self,
        pool: u16,
        wait: Option<Duration>,
    ) -> Option<Time> {
        let options = self.link_options(pool);
        let grace = options.timeout.unwrap_or(options.connect_timeout);
        wait.map(|wait| self.clock.now + wait + grace)
    }

    /// Checks whether a blocking command may be sent now. Otherwise it is answered or waits.
    pub(in crate::core) fn check_blocking(
        &mut self,
        incoming: &mut RequestContext,
    ) -> Option<Step> {
        if Self::is_silent(incoming.session) {
            let text = "ERR a command that blocks is refused while CLIENT REPLY is OFF or SKIP";
            return Some(self.refuse_request(incoming, text));
        }
        if !incoming.session.is_quiet(incoming.busy) {
            incoming.session.fence();
            return Some(Step::Wait);
        }
        if incoming.session.hung_up || incoming.session.ended {
            // The client may no longer be there to take the element that the command would pop.
            let text = "UNBLOCKED a command that blocks is not begun for a client that sends no \
                        more, or while Keyway stops";
            return Some(self.refuse_request(incoming, text));
        }
        None
    }

    /// Returns the hashes of a request's keys. Returns none if the pool has one server, or if any
    /// server may have a key.
    pub(in crate::core) fn hashes_of(&mut self, incoming: &RequestContext) -> Vec<u32> {
        let Some(Upstream { servers: pool, .. }) =
            self.plan.pools[usize::from(incoming.session.pool)].kind.upstream()
        else {
            return Vec::new();
        };
        if pool.servers.len() == 1 || matches!(pool.distribution, Distribution::Random) {
            return Vec::new();
        }
        self.keys.clear();
        let _ = incoming.request.keys(&mut self.keys);
        let keys = self.keys.iter().filter_map(|&index| incoming.request.args.get(index as usize));
        keys.map(|key| pool.hash_key(key)).collect()
    }

    /// Returns a private link to `server`. If the server cannot be reached, or there are too many
    /// private links, it answers the request and returns `None`.
    pub(in crate::core) fn lease_for(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        server: u16,
    ) -> Option<ConnectionKey> {
        let pool = incoming.session.pool;
        let state = self.pools[pool as usize].servers()?;
        let protocol = incoming.session.identity.protocol;
        let shared = state.link(server, incoming.session.lane, protocol);
        if let Some(fault) = self.refused(&links[shared]) {
            self.answer_down(incoming, server, fault);
            return None;
        }
        let leased = self.lease(links, incoming.key, ServerId { pool, server }, protocol);
        if leased.is_none() {
            let text = "ERR too many clients watch keys or wait in blocking commands";
            self.refuse(incoming.session, incoming.busy, |out| reply::error(out, text));
        }
        leased
    }

    pub(in crate::core) fn send_private(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        index: ConnectionKey,
    ) {
        self.started(incoming.session.pool, incoming.request.command.counted());
        let connection = &mut links[index];
        self.prepare_link(index, connection, incoming.session.identity.database);
        let frame = incoming.request.args.buf();
        connection.link.request_buf().extend_from_slice(frame);
        let owner = Self::owner(incoming);
        let counted = incoming.request.command.counted();
        connection.link.enqueue(owner, counted, frame.len(), self.clock.now);
        connection.link.set_translation(Translation::of(incoming.request));
    }

    /// Returns the owner that waits for the reply to the request.
    pub(super) fn owner(incoming: &mut RequestContext) -> Owner {
        let owner = match Self::is_silent(incoming.session) {
            true => Self::unheard(incoming.key, incoming.session, incoming.busy),
            false => {
                Owner::Session { session: incoming.key, sequence: incoming.busy.order.reserve() }
            }
        };
        Self::end_skip(incoming.session);
        owner
    }

    pub(super) fn server_of_keys(&mut self, incoming: &RequestContext) -> Result<u16, Route> {
        let random = self.next_random() as u32;
        let pool = incoming.session.pool as usize;
        let (Some(Upstream { servers, .. }), Some(state)) =
            (self.plan.pools[pool].kind.upstream(), self.pools[pool].servers())
        else {
            return Err(Route::Unrouted);
        };
        match route_whole(incoming.request, servers, state.ring(), random, &mut self.keys) {
            Route::One(server) => Ok(server),
            other => Err(other),
        }
    }

    pub(super) fn refuse_route_of(&mut self, incoming: &mut RequestContext, route: Route) -> Step {
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[incoming.session.pool as usize];
        self.refuse_route(incoming, pool, route)
    }

    pub(super) fn answer_down(&mut self, incoming: &mut RequestContext, server: u16, fault: Fault) {
        let pool = incoming.session.pool;
        let backend = self.describe_backend(ServerId { pool, server });
        self.count_fault(pool, incoming.request.command.counted(), fault);
        self.answer_locally(incoming, |out| write_fault(fault, &backend, out));
    }
}
