//! Sends a read to a second server when the first has not answered for long. The first answer
//! counts. An error that is about the server does not count while the other server may still
//! answer.
//!
//! The session that waits is kept in a [`Hedge`] as long as both requests are out. The reply that
//! comes first takes the entry away. The other reply then finds none, and is treated as an ordinary
//! late reply.

use super::readers::LookOf;
use super::readers::chooser_of;
use super::replicas::Look;
use crate::Upstream;
use crate::core::observe::counting::Outcome;
use crate::core::pools::FoundState;
use crate::core::pools::cluster::hedging::Hedging;
use crate::core::pools::cluster::replicas::ReplicaStatus;
use crate::core::request::RequestBuffers;
use crate::core::{Connection, ConnectionKey, Connections, Core, Plane};
use keyway_base::{Key, Slab, Time};
use keyway_command::{Args, Request};
use keyway_metrics::Latency;
use keyway_proxy::OperationPart;
use keyway_proxy::{Exchange, Hedge, LinkState, Owner, Redirected, Redirection, Session};
use keyway_resp::{Kind, ParseLimits, Parsed, parse_request};
use keyway_route::place;
use keyway_topology::{FailureReason, HedgeAfter, ServerId};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How often the worker measures how long requests take.
const MEASURE_EVERY: Duration = Duration::from_millis(500);

impl super::State {
    /// Returns the owner that waits for a read that was sent twice.
    pub(in crate::core) fn owner_of(&self, hedge: Key<Hedge>) -> Option<Owner> {
        Some(self.hedges.hedges.get(hedge)?.owner)
    }
}

/// A link to another server that may answer a read.
#[derive(Clone, Copy)]
pub(super) struct OtherReader {
    link: ConnectionKey,
    /// True if that server is a replica.
    is_replica: bool,
}

impl Core {
    /// Sends a second server the reads that have waited long enough.
    #[cold]
    pub(crate) fn send_hedges(&mut self) {
        let now = self.plane.clock.now;
        self.plane.cluster.hedges.next = None;
        for position in 0..self.links.len() {
            let index = self.links.key_at(position);
            let connection = &self.links[index];
            if connection.is_private || connection.link.live() == 0 {
                continue;
            }
            let Some(hedging) = self.plane.hedging(connection.server_id.pool) else { continue };
            let wait = hedging.wait;
            self.hedge_link(index, wait, now);
        }
    }

    /// Does the same as [`Self::send_hedges`] for the reads of one link.
    fn hedge_link(&mut self, from: ConnectionKey, wait: Duration, now: Time) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let connection = &mut self.links[from];
        let seen = connection.hedged_until;
        let until = Time(now.0.saturating_sub(nanos)).max(seen);
        connection.hedged_until = until;
        let mut next = connection.link.first_overdue(seen, until);
        let (mut position, mut before) = (0, 0);
        while let Some(at) = next {
            before += self.links[from].link.requests_len(position..at);
            position = at;
            self.hedge(from, at, before);
            next = self.links[from].link.next_overdue(at + 1, until);
        }
        if let Some(sent) = self.links[from].link.overdue_next(until) {
            self.plane.cluster.hedges.note_due(sent + wait);
        }
    }

    /// Sends the request at position `at` of a link, behind `before` bytes of other requests, to
    /// another server as well, if there is one and the budget allows it.
    fn hedge(&mut self, from: ConnectionKey, at: usize, before: usize) {
        let Core { sessions, links, plane } = self;
        let first = *links[from].link.exchange(at);
        let Some((lane, listener)) = plane.reader_session(sessions, &first) else { return };
        let pool = links[from].server_id.pool;
        let mut request = std::mem::take(&mut plane.cluster.hedges.request);
        request.clear();
        request.extend_from_slice(links[from].link.request(at, before));
        if let Some(to) = plane.other_reader(links, from, lane, listener, &request, true)
            && plane.may_hedge(pool)
        {
            let hedge = Hedge { owner: first.owner, started: first.started, has_failed: false };
            let hedge = plane.cluster.hedges.hedges.insert(hedge);
            links[from].link.hedge(at, hedge);
            let owner = Owner::Hedged { hedge, is_second: true };
            plane.send_second(links, to, &first, owner, &request);
        }
        plane.cluster.hedges.request = request;
    }
}

impl Plane {
    /// Returns when the worker next looks for reads to send to a second server.
    #[inline]
    pub(crate) fn next_hedge(&self) -> Option<Time> {
        self.cluster.hedges.next
    }

    /// Notes that the request enqueued last on a link is a read that another server could answer as
    /// well.
    #[inline]
    pub(in crate::core) fn note_read(&mut self, connection: &mut Connection) {
        connection.link.note_read();
        if let Some(FoundState { hedging: Some(hedging), .. }) =
            self.pools[usize::from(connection.server_id.pool)].found_mut()
        {
            hedging.reads += 1;
            self.cluster.hedges.note_due(self.clock.now + hedging.wait);
        }
    }

    fn hedging(&mut self, pool: u16) -> Option<&mut Hedging> {
        self.pools[usize::from(pool)].found_mut()?.hedging.as_deref_mut()
    }

    /// Updates the counts of requests and the time that they take. Runs a few times a second.
    pub(super) fn tend_hedging(&mut self, pool: u16) {
        let now = self.clock.now;
        let Plane { pools, cells, .. } = self;
        let Some(FoundState { hedging: Some(hedging), cluster, .. }) =
            pools[usize::from(pool)].found_mut()
        else {
            return;
        };
        hedging.budget.note_asked(hedging.reads, now);
        let HedgeAfter::P99 { min, max } = hedging.after else { return };
        if now < hedging.measured + MEASURE_EVERY {
            return;
        }
        hedging.measured = now;
        let of_pool = cells.pool(usize::from(pool));
        let indices = 0..cluster.map.index_count();
        hedging.recent.follow(indices.map(|server| &of_pool.backend(server).latency));
        let p99 = hedging.recent.quantile(0.99).unwrap_or(max);
        hedging.wait = p99.clamp(min, max);
    }

    /// Returns whether one more read of a pool may be sent twice. Counts it if so.
    fn may_hedge(&mut self, pool: u16) -> bool {
        let now = self.clock.now;
        let Some(hedging) = self.hedging(pool) else { return false };
        hedging.budget.note_asked(hedging.reads, now);
        let may = hedging.budget.try_spend(now);
        if let Some(state) = self.cluster_state(pool) {
            let totals = &state.shared.totals;
            let count = if may { &totals.hedged } else { &totals.hedges_refused };
            count.fetch_add(1, Relaxed);
        }
        may
    }

    /// Returns the lane and the listener of the session that waits for a read, if the read may be
    /// sent again. It may not when its client sent a write behind it, because the other server
    /// could then show the effect of that write.
    pub(super) fn reader_session(
        &self,
        sessions: &Slab<Session>,
        exchange: &Exchange,
    ) -> Option<(u32, u16)> {
        let session = sessions.get(self.session_of(exchange.owner)?)?;
        // Another sub-request of the same client may have written.
        let client =
            session.sub_request.as_ref().and_then(|sub_request| sessions.get(sub_request.client));
        let wrote = client.map_or(session.identity.wrote_at, |client| client.identity.wrote_at);
        let is_alone = wrote.max(session.identity.wrote_at) < exchange.started;
        is_alone.then(|| (session.lane, chooser_of(session)))
    }

    /// Returns the link to another server than that of `from` that may answer a read. With
    /// `is_ready`, the link is connected and takes requests.
    pub(super) fn other_reader(
        &mut self,
        links: &Connections,
        from: ConnectionKey,
        lane: u32,
        listener: u16,
        request: &[u8],
        is_ready: bool,
    ) -> Option<OtherReader> {
        let connection = &links[from];
        let (pool, protocol) = (connection.server_id.pool, connection.link.protocol());
        let primary = self.primary_of(pool, request)?;
        let (now, options) = (self.clock.now, std::sync::Arc::clone(self.link_options(pool)));
        let Plane { pools, plan, .. } = self;
        let state = pools[usize::from(pool)].found_mut()?;
        let mut readers = state.readers.take()?;
        let lag_max = readers.policy().lag_max;
        let unready = readers.of_mut(listener).unready();
        let look = LookOf { plan, state, links, pool, primary, lane, now, lag_max, unready };
        let link = |server| &links[state.servers.link(server, lane, protocol)];
        let is_fit = |server| {
            let to = &link(server).link;
            let is_there = to.state() == LinkState::Ready || !(is_ready || to.is_down(now));
            let is_free =
                server != connection.server_id.server && is_there && to.has_room(&options);
            // A server that is left out is good enough for a read that has lost its own server.
            is_free
                && match look.status(server) {
                    ReplicaStatus::In => true,
                    ReplicaStatus::Out => !is_ready,
                    ReplicaStatus::Unfit => false,
                }
        };
        let found =
            readers.of_mut(listener).pick_other(primary, is_fit, |server| look.cost(server));
        let found = found.map(|server| OtherReader {
            link: state.servers.link(server, lane, protocol),
            is_replica: server != primary,
        });
        state.readers = Some(readers);
        found
    }

    /// Returns the primary that has the first key of a request, by its server index.
    fn primary_of(&mut self, pool: u16, request: &[u8]) -> Option<u16> {
        let Upstream { servers: sharded, .. } =
            self.plan.pools[usize::from(pool)].kind.upstream()?;
        let state = self.pools[usize::from(pool)].servers()?;
        let limits = ParseLimits::of(&self.plan.limits);
        let RequestBuffers { args, inline } = &mut **self.buffers.get_or_insert_default();
        let keys = &mut self.keys;
        let parsed = parse_request(request, &limits, args, inline).ok()?;
        let Parsed::Ready { consumed } = parsed else { return None };
        let request = Request::resolve(Args::new(&request[..consumed], args)).ok()?;
        keys.clear();
        request.keys(keys).ok()?;
        place(sharded, state.ring(), request.args.get(*keys.first()? as usize)?, 0)
    }

    /// Sends a read to a second server.
    pub(super) fn send_second(
        &mut self,
        links: &mut Connections,
        OtherReader { link: to, is_replica }: OtherReader,
        first: &Exchange,
        owner: Owner,
        request: &[u8],
    ) {
        self.set_reading(links, to, is_replica);
        let connection = &mut links[to];
        self.prepare_link(to, connection, 0);
        let first = self.renewed(connection.server_id.pool, first);
        connection.link.enqueue_second(&first, owner, request, self.clock.now);
        self.note_unsent(to, connection);
        let deadline = connection.link.deadline(self.link_options(connection.server_id.pool));
        self.note_deadline(deadline);
    }

    /// Handles a reply of one of two servers, or of the only one that is left.
    #[cold]
    pub(in crate::core) fn on_hedged_reply(
        &mut self,
        sessions: &mut Slab<Session>,
        server: ServerId,
        exchange: &Exchange,
        kind: Kind,
        reply: &[u8],
    ) {
        let Owner::Hedged { hedge, is_second } = exchange.owner else { return };
        let cells = self.cells.backend(server.pool, server.server);
        cells.latency.record(exchange.started, self.clock.now);
        let Some(waiting) = self.cluster.hedges.hedges.get_mut(hedge) else { return };
        if kind == Kind::Error && !waiting.has_failed && !is_of_request(reply) {
            waiting.has_failed = true;
            return;
        }
        let Hedge { owner, started, .. } = *waiting;
        self.cluster.hedges.hedges.remove(hedge);
        if let (true, Some(state)) = (is_second, self.cluster_state(server.pool)) {
            state.shared.totals.hedges_won.fetch_add(1, Relaxed);
        }
        match owner {
            Owner::Session { session: key, sequence } => {
                let Some(session) = sessions.get_mut(key) else { return };
                let latency = Latency::between(started, self.clock.now);
                self.replied(server.pool, exchange.counted, Some(latency), Outcome::of_reply(kind));
                self.complete(key, session, sequence, |out| out.extend_from_slice(reply));
            }
            Owner::Operation { operation, part } => {
                self.on_operation_reply(sessions, OperationPart { operation, part }, kind, reply);
            }
            _ => {}
        }
    }

    /// Handles that one of two servers does not answer. Returns the exchange with the owner that
    /// waits for it, or `None` while the other server may answer or when it has. With `ends`, the
    /// time of the whole read is up when that of the first request is. Exchanges that are not
    /// hedged are returned unchanged.
    pub(in crate::core) fn settle_hedge(
        &mut self,
        exchange: &Exchange,
        ends: bool,
    ) -> Option<Exchange> {
        let Owner::Hedged { hedge, is_second } = exchange.owner else { return Some(*exchange) };
        let waiting = self.cluster.hedges.hedges.get_mut(hedge)?;
        let is_over = waiting.has_failed || (ends && !is_second);
        waiting.has_failed = true;
        if !is_over {
            return None;
        }
        let Hedge { owner, started, .. } = self.cluster.hedges.hedges.remove(hedge)?;
        let mut told = *exchange;
        (told.owner, told.started) = (owner, started);
        Some(told)
    }

    /// Notes that a server did not take a read that another server answers or has answered.
    #[cold]
    pub(super) fn note_not_taken(&mut self, connection: &mut Connection, one: &Redirected) {
        if let Some(state) = self.cluster_state(connection.server_id.pool) {
            state.shared.ask_soon();
        }
        let is_not_ready = Redirection::of(&one.reply) == Some(Redirection::NotReady);
        if is_not_ready && !one.runs_scripts() {
            self.note_failure(connection, FailureReason::Loading, one.exchange.started);
        }
    }
}

/// Returns whether any server would have answered a request with this error.
fn is_of_request(error: &[u8]) -> bool {
    error.starts_with(b"-WRONGTYPE ") || error.starts_with(b"-ERR ")
}

#[cfg(test)]
mod invariants;
