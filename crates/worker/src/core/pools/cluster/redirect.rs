//! Handles requests that a server of a cluster did not take.
//!
//! `MOVED`: the slot is another server's, from now on for all requests. `ASK`: this
//! request is another server's, behind `ASKING`. Both are in the order in which the
//! servers answered, which is the client's own; for slots that move again meanwhile see
//! `sent_on`. `TRYAGAIN`, `CLUSTERDOWN`,
//! `LOADING`: the request goes out again a little later, where nothing of its client
//! has been sent behind it, so that nothing overtakes it.
//!
//! A reply to a request that runs scripts may be in a client's own words. Such a request is sent on
//! only by its own slot, never changes the map, never goes back to the server that sent it on, and
//! is not sent again for any other reason. For servers that no view has named, see `named`.

use crate::Upstream;
use crate::core::pending::wait::REPLIES_BEFORE_WAIT;
use crate::core::pools::cluster::state::Onward;
use crate::core::pools::cluster::state::Retry;
use crate::core::pools::cluster::state::Waits;
use crate::core::upstream::leases::asked_to_end;
use crate::core::{Connection, ConnectionKey, Connections, Core, Plane};
use keyway_base::{BackendFault, Fault, Key, Sent, Time};
use keyway_command::{Args, Request, Verb};
use keyway_proxy::local::UnblockReason;
use keyway_proxy::memcached::MemcachedJoin;
use keyway_proxy::{ASKING, Digest, Join, LinkState, Owner, Redirected, Redirection, Session};
use keyway_resp::{Kind, ParseLimits, Parsed, parse_request};
use keyway_route::place;
use keyway_topology::{Endpoint, FailureReason, KnownRole, Redirect, RedirectKind, ServerId};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The pause before a request is sent again that no server could take. It doubles with each try.
const RETRY_MIN: Duration = Duration::from_millis(10);

impl Core {
    /// Sends on the requests that the server of a link did not take.
    #[cold]
    pub(in crate::core) fn redirect_all(&mut self, from: ConnectionKey, all: Vec<Redirected>) {
        for one in all {
            self.redirect(from, one);
        }
    }

    fn redirect(&mut self, from: ConnectionKey, mut one: Redirected) {
        let server = self.links[from].server_id;
        let pool = server.pool;
        let is_moving =
            self.links[from].link.is_moving() && !self.plane.is_wait(one.exchange.owner);
        if is_moving && one.reply.starts_with(b"-UNBLOCKED") {
            return self.wait_on(from, one);
        }
        let Some(state) = self.plane.cluster_state(pool) else {
            return self.give_up(from, &one);
        };
        let shared = Arc::clone(&state.shared);
        match self.plane.settle_hedge(&one.exchange, false) {
            Some(exchange) => one.exchange = exchange,
            None => return self.plane.note_not_taken(&mut self.links[from], &one),
        }
        let is_last = one.exchange.redirections >= shared.settings().redirections_max;
        let is_wait = self.plane.is_wait(one.exchange.owner);
        let redirect = Redirect::parse(&one.reply).filter(|_| !is_wait);
        let runs_scripts = one.runs_scripts();
        let Some(redirect) = redirect else {
            if self.is_ended(from, &one) {
                return;
            }
            let is_held = self.plane.primary_wait(pool).is_some();
            if (is_last && !is_held) || runs_scripts {
                // A script may have returned this error, and would run again.
                shared.ask_soon();
                return self.give_up(from, &one);
            }
            return self.retry_later(from, one);
        };
        // Where there are no slots no server returns this error, but a script may.
        if is_last || !self.plane.has_slots(pool) {
            return self.give_up(from, &one);
        }
        let Some(endpoint) = self.plane.endpoint_of(server, &redirect) else {
            return self.give_up(from, &one);
        };
        let is_its_slot = self.plane.slot_of_request(pool, &one.request) == Some(redirect.slot);
        if runs_scripts && !is_its_slot {
            return self.give_up(from, &one);
        }
        let slot = (is_its_slot && !runs_scripts).then_some(redirect.slot);
        let is_moved = redirect.kind == RedirectKind::Moved;
        if is_moved {
            shared.ask_soon();
        }
        let mut onward = Onward { to: endpoint, slot, is_moved };
        if is_its_slot && !self.links[from].is_private {
            onward = self.in_order(from, &one.exchange, redirect.slot, onward);
        }
        match shared.index_of(&onward.to) {
            // Requests that came before have to go there first. On a link of its own there were
            // none.
            Some(_)
                if !self.links[from].is_private
                    && self.plane.cluster.is_held_for(pool, &onward.to) =>
            {
                self.hold_back(from, one, onward);
            }
            Some(to) => self.send_on(to, from, one, &onward),
            None if self.links[from].is_private => self.seek_private(from, one, onward),
            None => self.hold_back(from, one, onward),
        }
    }

    /// Sends a request to a server of the cluster that another server has named.
    pub(super) fn send_on(
        &mut self,
        to: u16,
        from: ConnectionKey,
        mut one: Redirected,
        onward: &Onward,
    ) {
        let connection = &self.links[from];
        let (pool, backend, is_private) =
            (connection.server_id.pool, connection.server_id.server, connection.is_private);
        let Some(state) = self.plane.cluster_state(pool) else { return };
        let shared = Arc::clone(&state.shared);
        // A script that comes back to a server that it was at has returned the redirection itself,
        // and would run again.
        let is_back = to == backend || to == one.exchange.sent_on_by;
        if one.runs_scripts() && is_back {
            return self.give_up(from, &one);
        }
        one.exchange.sent_on_by = backend;
        if self
            .plane
            .session_of(one.exchange.owner)
            .is_some_and(|it| self.sessions.get(it).is_some())
        {
            let totals = &shared.totals;
            let count = if onward.is_moved { &totals.moved } else { &totals.asked };
            count.fetch_add(1, Relaxed);
        }
        if let (true, Some(connection)) = (onward.is_moved, onward.slot) {
            shared.note_moved(connection, to);
        }
        self.follow_clusters();
        if is_private {
            self.redirect_private(to, from, &one, !onward.is_moved);
        } else {
            self.send_to(to, from, &one, !onward.is_moved);
        }
    }

    /// Handles a request that a session sent on a link of its own, when the named server is not
    /// known. The server is looked for; a blocking command is sent again later.
    fn seek_private(&mut self, from: ConnectionKey, one: Redirected, onward: Onward) {
        if one.exchange.is_transaction() || !self.links[from].link.is_blocking {
            let to = self.links[from].server_id.server;
            return self.redirect_private(to, from, &one, false);
        }
        self.seek(from, onward);
        if !self.is_ended(from, &one) {
            self.retry_later(from, one);
        }
    }

    /// Ends a command that blocks and that no server took, if it is to end. Returns whether it did.
    fn is_ended(&mut self, from: ConnectionKey, one: &Redirected) -> bool {
        let connection = &self.links[from];
        let is_session = matches!(one.exchange.owner, Owner::Session { .. });
        let why = asked_to_end(connection).filter(|_| is_session && connection.link.is_blocking);
        why.into_iter().for_each(|why| self.end_refused(from, one, why));
        why.is_some()
    }

    /// Ends the commands of a client that wait for their next try.
    pub(in crate::core::pools) fn end_retries_of(&mut self, key: Key<Session>, why: UnblockReason) {
        let is_its = |retry: &mut Retry| {
            let owner = retry.redirected.exchange.owner;
            retry.waits.is_some()
                && matches!(owner, Owner::Session { session, .. } if session == key)
        };
        let retries = &mut self.plane.cluster.retries;
        let ended: Vec<Retry> = retries.extract_if(.., is_its).collect();
        for retry in ended {
            let from = self.standing_in(retry.from, retry.server);
            self.end_refused(from, &retry.redirected, why);
            self.end_try(from, Some(key));
        }
    }

    /// Handles a request that a session sent on a link of its own and that the server did not take.
    pub(super) fn redirect_private(
        &mut self,
        to: u16,
        from: ConnectionKey,
        one: &Redirected,
        asking: bool,
    ) {
        let Core { sessions, links, plane } = self;
        let connection = &links[from];
        let (pool, protocol) = (connection.server_id.pool, connection.link.protocol());
        let owner = connection.lease;
        let session = owner.and_then(|owner| sessions.get_mut(owner));
        if one.exchange.is_transaction() {
            // The keys that it watches have moved, which counts as a change.
            let mut null = Vec::new();
            protocol.null_array(&mut null);
            let server = connection.server_id;
            return plane.deliver_aside(sessions, server, &one.exchange, Kind::Null, &null);
        }
        let Some((owner, session)) = owner.zip(session) else { return self.give_up(from, one) };
        if !connection.link.is_blocking {
            // The watch did not begin at any server, so EXEC will fail.
            plane.lose_watch(links, owner, session);
            let server = links[from].server_id;
            return plane.deliver_aside(sessions, server, &one.exchange, Kind::Simple, b"+OK\r\n");
        }
        let Some(index) = plane.lease(links, owner, ServerId { pool, server: to }, protocol) else {
            links[from].awaits_retry = true;
            return self.give_up_private(from, one);
        };
        links[index].link.is_blocking = true;
        links[index].link.blocks_until = plane.answered_again_by(pool, &one.request);
        links[index].awaited_keys = std::mem::take(&mut links[from].awaited_keys);
        let stateful = session.stateful.get_or_insert_default();
        stateful.blocked_on.retain(|&link| link != from);
        stateful.blocked_on.push(index);
        let why = asked_to_end(&links[from]);
        plane.end_there(index, &mut links[index], why);
        plane.release(links, from);
        plane.enqueue_again(links, index, one, asking);
    }

    /// Sends a request to the server with the index `to`, which no other server has named for it.
    fn send_unnamed(&mut self, to: u16, from: ConnectionKey, one: &Redirected) {
        let pool = self.links[from].server_id.pool;
        self.plane.note_sent_again(
            &self.sessions,
            ServerId { pool, server: to },
            one.exchange.owner,
        );
        self.send_to(to, from, one, false);
    }

    /// Sends a request to the server with the index `to`.
    fn send_to(&mut self, to: u16, from: ConnectionKey, one: &Redirected, asking: bool) {
        let Core { sessions, links, plane } = self;
        let connection = &links[from];
        let (pool, protocol) = (connection.server_id.pool, connection.link.protocol());
        let owner = plane.session_of(one.exchange.owner);
        let Some(session) = owner.and_then(|owner| sessions.get(owner)) else {
            // Its client has left. The connection that was made for the request ends with a reply.
            return self.give_up(from, one);
        };
        let Some(state) = plane.pools[usize::from(pool)].servers() else { return };
        let index = state.link(to, session.lane, protocol);
        let connection = &mut links[index];
        // On the link of a primary that is gone, the request waits for the primary.
        let is_held = plane.is_gone(connection);
        if let Some(fault) = if is_held { None } else { plane.refused(connection) } {
            let server = connection.server_id;
            return plane.fail(sessions, server, &one.exchange, false, fault);
        }
        plane.enqueue_again(links, index, one, asking);
        let is_sent = links[index].link.state() == LinkState::Ready;
        if one.reply.is_empty() && is_sent && plane.primary_wait(pool).is_some() {
            // The request has waited for a primary, so its timeout starts now.
            links[index].link.begin_last_anew(plane.clock.now);
        }
        if let Owner::Operation { operation, .. } = one.exchange.owner {
            plane.pending.note_moved(operation, to, index);
        }
    }

    /// Puts a request aside to be sent again later to the server that then has its keys, if it may
    /// be.
    fn retry_later(&mut self, from: ConnectionKey, mut one: Redirected) {
        let pool = self.links[from].server_id.pool;
        let Some(state) = self.plane.cluster_state(pool) else { return };
        let shared = Arc::clone(&state.shared);
        let why = Redirection::of(&one.reply);
        if why != Some(Redirection::TryAgain) {
            shared.ask_soon();
        }
        if why == Some(Redirection::NotReady) {
            let began = one.exchange.started;
            self.plane.note_failure(&mut self.links[from], FailureReason::Loading, began);
            let is_read = one.exchange.is_plain_read();
            if is_read && self.repeat(from, &one.exchange, &one.request, BackendFault::NotReady) {
                return;
            }
        }
        let Core { links, plane, .. } = self;
        let timeout = plane.link_options(pool).timeout.unwrap_or(Duration::MAX);
        let mut pause = RETRY_MIN * (1 << one.exchange.redirections.min(16));
        if links[from].is_private {
            // A blocking command may have been sent on often, each time after a wait. Only the
            // number of redirections ends that.
            pause = pause.min(timeout / 2);
        }
        let mut at = plane.clock.now + pause;
        // The sum of all pauses so far and this one is less than twice this one. A request on a
        // link of its own gets its timeout anew.
        let is_late = !links[from].is_private && at.since(one.exchange.asked()) >= timeout;
        // A worker that drains may end before the pause does.
        let is_last = one.exchange.redirections >= shared.settings().redirections_max
            || plane.cluster.is_draining;
        let mut is_in_time = pause * 2 <= timeout && !is_late && !is_last;
        let held = plane.sent_again_until(pool, &one);
        if let Some((until, next)) = held {
            (at, is_in_time) = (next, plane.clock.now < until);
            one.exchange.redirections = 0;
        }
        let owner = plane.session_of(one.exchange.owner);
        // The server has forgotten the keys that were watched for it.
        let is_guarded = links[from].is_private && one.exchange.is_transaction();
        let is_alone = !is_guarded && owner.is_some_and(|owner| self.is_alone(owner));
        let Core { links, plane, .. } = self;
        if !is_in_time || !is_alone || (held.is_none() && !plane.may_retry(pool)) {
            plane.end_aside(pool, &one);
            return self.give_up(from, &one);
        }
        shared.totals.retried.fetch_add(1, Relaxed);
        plane.note_cluster_deadline(at);
        let connection = &mut links[from];
        connection.awaits_retry = connection.is_private;
        let server = connection.server_id;
        let waits = (connection.is_private && connection.link.is_blocking).then(|| Waits {
            pool: connection.server_id.pool,
            protocol: connection.link.protocol(),
            keys: connection.awaited_keys.clone(),
        });
        let cluster = &mut plane.cluster;
        cluster.retries_due = match cluster.retries.is_empty() {
            true => at,
            false => cluster.retries_due.min(at),
        };
        let is_held = held.is_some();
        let is_private = connection.is_private;
        cluster.retries.push(Retry {
            at,
            from,
            server,
            is_private,
            redirected: one,
            waits,
            is_held,
        });
    }

    /// Sends the requests whose pause is over again.
    pub(in crate::core) fn send_retries(&mut self) {
        self.leave_silent();
        if self.plane.cluster.retries.is_empty() {
            return;
        }
        let now = self.plane.clock.now;
        if self.plane.cluster.retries_due > now {
            let next = self.plane.cluster.retries_due;
            return self.plane.note_cluster_deadline(next);
        }
        let all = std::mem::take(&mut self.plane.cluster.retries);
        let (due, later): (Vec<Retry>, Vec<Retry>) = all.into_iter().partition(|it| it.at <= now);
        if let Some(next) = later.iter().map(|retry| retry.at).min() {
            self.plane.cluster.retries_due = next;
            self.plane.note_cluster_deadline(next);
        }
        self.plane.cluster.retries = later;
        for retry in due {
            let Some(retry) = self.plane.past_fence(retry) else { continue };
            let Retry { from, server, is_private, mut redirected, waits, is_held, .. } = retry;
            let from = self.standing_in(from, server);
            if is_held {
                redirected.exchange.begin_anew(now);
            }
            if self.plane.is_wait(redirected.exchange.owner) {
                self.wait_again(from, server, redirected, waits);
                continue;
            }
            // Another server may have the slot now.
            let to = self.plane.server_of_request(server, &redirected);
            match to {
                Some(to) if waits.is_some() || is_private => {
                    self.retry_private(to, from, &redirected, waits);
                }
                Some(to) => self.send_unnamed(to, from, &redirected),
                None => self.retry_without_owner(from, is_private, redirected),
            }
        }
    }

    /// Returns the connection that a request was sent on or, if it is gone, a shared connection to
    /// the same server, so that errors about the request name the right server.
    fn standing_in(&self, from: ConnectionKey, server: ServerId) -> ConnectionKey {
        match self.plane.pools[usize::from(server.pool)].servers() {
            Some(state) if self.links.get(from).is_none() => {
                state.shared().probe_link(server.server.into())
            }
            _ => from,
        }
    }

    /// Handles a request whose pause is over while no server has its slot.
    fn retry_without_owner(&mut self, from: ConnectionKey, is_private: bool, mut one: Redirected) {
        let pool = self.links[from].server_id.pool;
        let redirections_max = self.plane.cluster_state(pool).map_or(0, |state| {
            state.shared.ask_about_unowned(self.plane.clock.now);
            state.shared.settings().redirections_max
        });
        one.exchange.redirections = one.exchange.redirections.saturating_add(1);
        let is_last = (one.exchange.redirections >= redirections_max
            && self.plane.primary_wait(pool).is_none())
            || self.plane.cluster.is_draining;
        match is_private || is_last {
            true => self.give_up_private(from, &one),
            false => self.retry_later(from, one),
        }
    }

    /// Answers the request with what the server has said, and takes back the link that was kept for
    /// the next try.
    pub(in crate::core) fn give_up_private(&mut self, from: ConnectionKey, one: &Redirected) {
        // The owner of a WAIT is no longer known once the WAIT is answered.
        let owner = self.plane.session_of(one.exchange.owner);
        self.give_up(from, one);
        self.end_try(from, owner);
    }

    /// Takes back the link that was kept for the next try.
    fn end_try(&mut self, from: ConnectionKey, owner: Option<Key<Session>>) {
        let Core { sessions, links, plane } = self;
        let connection = &mut links[from];
        let is_its = owner.is_some() && connection.lease == owner;
        if is_its && std::mem::take(&mut connection.awaits_retry) {
            plane.after_private_reply(sessions, links, from);
        } else if let Some(session) = owner.and_then(|owner| sessions.get_mut(owner)) {
            plane.end_unsent(session);
        }
    }

    /// Sends requests to the servers that have their keys now.
    pub(super) fn send_again(&mut self, from: ConnectionKey, all: Vec<Redirected>) {
        for mut one in all {
            let sent_to = self.links[from].server_id;
            // No server has sent the request on, so the count of redirections, which is raised
            // below, must not grow.
            one.exchange.redirections = one.exchange.redirections.saturating_sub(1);
            match self.plane.server_of_request(sent_to, &one) {
                Some(to) => self.send_unnamed(to, from, &one),
                None => {
                    let Core { sessions, links, plane } = self;
                    let server = links[from].server_id;
                    let fault = Fault::Backend { fault: BackendFault::Closed, sent: Sent::No };
                    plane.fail(sessions, server, &one.exchange, false, fault);
                }
            }
        }
    }

    /// Sends again a request that a session sent on a link of its own. A blocking command waits on
    /// another link if that one is gone.
    pub(in crate::core) fn retry_private(
        &mut self,
        to: u16,
        from: ConnectionKey,
        one: &Redirected,
        waits: Option<Waits>,
    ) {
        let Core { links, plane, .. } = self;
        let connection = &mut links[from];
        let owner = plane.session_of(one.exchange.owner);
        if owner.is_none()
            || connection.lease != owner
            || !std::mem::take(&mut connection.awaits_retry)
        {
            return match waits {
                Some(waits) => self.wait_elsewhere(to, from, one, waits),
                None => self.give_up(from, one),
            };
        }
        if to == connection.server_id.server && connection.link.state() == LinkState::Ready {
            if connection.link.is_blocking {
                connection.link.blocks_until =
                    plane.answered_again_by(connection.server_id.pool, &one.request);
            }
            return plane.enqueue_again(links, from, one, false);
        }
        self.redirect_private(to, from, one, false);
    }

    /// Makes a command wait on a new link of its session, because the link that it had is gone.
    fn wait_elsewhere(&mut self, to: u16, from: ConnectionKey, one: &Redirected, waits: Waits) {
        let Core { sessions, links, plane } = self;
        let owner = plane.session_of(one.exchange.owner);
        let session = owner.and_then(|owner| sessions.get_mut(owner));
        let Some((owner, session)) = owner.zip(session) else { return self.give_up(from, one) };
        let Some(index) =
            plane.lease(links, owner, ServerId { pool: waits.pool, server: to }, waits.protocol)
        else {
            plane.end_unsent(session);
            return self.give_up(from, one);
        };
        links[index].link.is_blocking = true;
        links[index].link.blocks_until = plane.answered_again_by(waits.pool, &one.request);
        links[index].awaited_keys = waits.keys;
        let stateful = session.stateful.get_or_insert_default();
        stateful.blocked_on.push(index);
        plane.end_there(index, &mut links[index], stateful.unsent_end);
        plane.end_unsent(session);
        plane.plan.clients.set_blocked(session.identity.id, true);
        plane.enqueue_again(links, index, one, false);
    }

    /// Refuses the requests that were to be sent again in a pool that ends.
    pub(super) fn give_up_retries(&mut self, pool: u16) {
        let retries = &mut self.plane.cluster.retries;
        let refused: Vec<Retry> = retries.extract_if(.., |it| it.server.pool == pool).collect();
        for retry in refused {
            let from = self.standing_in(retry.from, retry.server);
            self.give_up_private(from, &retry.redirected);
        }
    }

    /// Answers the request with what the server has said.
    pub(super) fn give_up(&mut self, from: ConnectionKey, one: &Redirected) {
        let Core { sessions, links, plane } = self;
        let server = links[from].server_id;
        if one.reply.is_empty() {
            // The request was taken back before it was sent, so there is no server's reply.
            let fault = Fault::Backend { fault: BackendFault::Closed, sent: Sent::No };
            return plane.fail(sessions, server, &one.exchange, false, fault);
        }
        let is_there =
            plane.session_of(one.exchange.owner).is_some_and(|it| sessions.get(it).is_some());
        if let (true, Some(state)) = (is_there, plane.cluster_state(server.pool)) {
            state.shared.totals.given_up.fetch_add(1, Relaxed);
        }
        plane.deliver_aside(sessions, server, &one.exchange, Kind::Error, &one.reply);
    }
}

impl Plane {
    /// Puts a request on a link, behind `ASKING` where another server still has the slot.
    fn enqueue_again(
        &mut self,
        links: &mut Connections,
        index: ConnectionKey,
        one: &Redirected,
        asking: bool,
    ) {
        self.set_reading(links, index, false);
        let connection = &mut links[index];
        self.prepare_link(index, connection, 0);
        self.give_what_it_calls(index, connection, one);
        let exchange = self.renewed(connection.server_id.pool, &one.exchange);
        connection.link.enqueue_redirected(&exchange, &one.request, self.clock.now);
        if self.is_wait(one.exchange.owner) {
            connection.link.note_before_last(REPLIES_BEFORE_WAIT);
        }
        if asking {
            connection.link.precede_last(ASKING);
        }
        self.note_unsent(index, connection);
        let deadline = connection.link.deadline(self.link_options(connection.server_id.pool));
        self.note_deadline(deadline);
    }

    /// Handles that a server does not have a channel that it was thought to have. The server says
    /// which server has it, or the cluster is asked.
    #[cold]
    pub(in crate::core) fn on_name_astray(&self, server: ServerId, name: &[u8], said: &[u8]) {
        let Some(state) = self.cluster_state(server.pool) else { return };
        state.shared.ask_soon();
        let redirect = Redirect::parse(said).filter(|it| it.kind == RedirectKind::Moved);
        let Some(redirect) = redirect else { return };
        let endpoint = self.endpoint_of(server, &redirect);
        let to = endpoint.and_then(|endpoint| state.shared.index_of(&endpoint));
        if let Some(to) = to.filter(|_| self.slot_of(server.pool, name) == Some(redirect.slot)) {
            state.shared.note_moved(redirect.slot, to);
        }
    }

    /// Returns the server that has the keys of a request, or of the first command with keys in a
    /// transaction, or `None` if no server has them. Without keys, returns the server that the
    /// request was sent to, or its successor.
    pub(super) fn server_of_request(&self, server: ServerId, one: &Redirected) -> Option<u16> {
        let Upstream { servers: pool, .. } =
            self.plan.pools[usize::from(server.pool)].kind.upstream()?;
        let state = self.pools[usize::from(server.pool)].servers()?;
        let found = self.with_first_key(&one.request, |key| place(pool, state.ring(), key, 0));
        found.unwrap_or_else(|| Some(self.server_without_keys(server, one)))
    }

    /// Returns the server that a request without keys is sent to again. A part of a request for all
    /// servers goes to the same server or its successor; any other request may go to any server
    /// that serves.
    fn server_without_keys(&self, server: ServerId, one: &Redirected) -> u16 {
        let Some(state) = self.cluster_state(server.pool) else { return server.server };
        let is_serving = |server: &u16| state.map.is_serving(usize::from(*server));
        if is_serving(&server.server) {
            return server.server;
        }
        let node = state.map.node(usize::from(server.server));
        let heir = node.and_then(|node| match (node.group, node.role) {
            (Some(group), _) => state.map.primary(group),
            (None, KnownRole::Replica { of }) => of,
            (None, _) => None,
        });
        let heir = heir.filter(is_serving);
        let any = || (0..state.map.index_count() as u16).find(is_serving);
        let is_part = self.pending.is_part_of::<Join>(one.exchange.owner);
        heir.or_else(|| if is_part { None } else { any() }).unwrap_or(server.server)
    }

    /// Returns the slot of a request, or of the first command with a key in a transaction.
    fn slot_of_request(&self, pool: u16, request: &[u8]) -> Option<u16> {
        self.with_first_key(request, |key| self.slot_of(pool, key)).flatten()
    }

    fn with_first_key<T>(&self, sent: &[u8], look: impl Fn(&[u8]) -> T) -> Option<T> {
        let (mut keys, mut found) = (Vec::new(), None);
        self.each_command(sent, |request| {
            keys.clear();
            if found.is_none() && request.keys(&mut keys).is_ok() {
                let key = keys.first().and_then(|&key| request.args.get(key as usize));
                found = key.map(&look);
            }
        });
        found
    }

    /// Sends the scripts that a request calls ahead of it, because this server may not have them:
    /// another server was given them.
    fn give_what_it_calls(
        &mut self,
        index: ConnectionKey,
        connection: &mut Connection,
        one: &Redirected,
    ) {
        if self.pending.is_part_of::<MemcachedJoin>(one.exchange.owner) {
            return self.give_item_script(connection);
        }
        let (mut scripts, mut calls_functions) = (Vec::new(), false);
        self.each_command(&one.request, |request| match request.command.verb {
            Verb::Evalsha | Verb::EvalshaRo => scripts.extend(Digest::parse(&request.args[1])),
            Verb::Fcall | Verb::FcallRo => calls_functions = true,
            _ => {}
        });
        self.give_scripts(connection, &scripts);
        if calls_functions {
            self.give_libraries(index, connection);
        }
    }

    /// Returns when a server must have answered a blocking command that is sent again. The server
    /// counts the command's time anew.
    fn answered_again_by(&self, pool: u16, sent: &[u8]) -> Option<Time> {
        let mut wait = None;
        self.each_command(sent, |request| wait = request.wait_max());
        self.answered_within(pool, wait)
    }

    /// Calls `look` with the commands of what was sent: one command, or those of a transaction.
    pub(in crate::core) fn each_command(&self, sent: &[u8], mut look: impl FnMut(&Request)) {
        let limits = ParseLimits::of(&self.plan.limits);
        let (mut args, mut inline, mut rest) = (Vec::new(), Vec::new(), sent);
        while let Ok(Parsed::Ready { consumed }) =
            parse_request(rest, &limits, &mut args, &mut inline)
        {
            if let Ok(request) = Request::resolve(Args::new(&rest[..consumed], &args)) {
                look(&request);
            }
            rest = &rest[consumed..];
        }
    }

    /// Returns the address that a server redirects a request to. Without a host it is on the
    /// server's own host.
    fn endpoint_of(&self, server: ServerId, redirect: &Redirect) -> Option<Endpoint> {
        match (redirect.host, || self.asked_endpoint(server)) {
            (Some(host), _) => Endpoint::tcp(host, redirect.port).ok(),
            (None, asked) => match asked()? {
                Endpoint::Tcp { host, .. } => Endpoint::tcp(&host, redirect.port).ok(),
                Endpoint::Unix { .. } | Endpoint::Shm { .. } => None,
            },
        }
    }
}
