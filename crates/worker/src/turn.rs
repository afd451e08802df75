//! The turn of a worker. One straight list:
//!
//! ```text
//!  poll ─► events ─► resumed sessions ─► timeouts, upkeep ─► connects
//!       ─► links' output, or it is held for the next turn's ─► sessions' output
//! ```
//! Output is written once a turn, never per event: at one request per client
//! most of the cost is segments and wake-ups, and batching saves both.

mod accepting;
mod ending;
mod flush;
mod following;
mod leaving;
mod lingering;
mod reading;
mod subscribers;

use crate::core::{ConnectionKey, Core, Leftovers, SubscriberIndex};
use crate::{Adopted, Mail, Plan};
use ending::Ending;
use keyway_base::{BackendFault, Key, Time};
use keyway_metrics::{CloseReason, WorkerCells};
use keyway_net::{Address, Event, Io, ListenerIndex, Mailbox, Peer, Recv, Socket, Token};
use keyway_proxy::{LinkState, Session};
use leaving::Leaving;
use lingering::{LINGER, Lingering};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Marks a token as a link's; the others are sessions'.
const LINK: u64 = 1 << 62;

/// Between two rounds of upkeep: expiry, health, gauges.
const UPKEEP_EVERY: Duration = Duration::from_millis(100);

/// What the driver knows of a client besides its session.
#[derive(Clone, Copy)]
struct Client {
    key: Key<Session>,
    socket: Socket,
    peer: Peer,
    /// It has said that it sends no more, and all that it had sent was read.
    has_ended: bool,
}

/// One worker: a [`Core`] and its sockets.
pub struct Worker<I: Io> {
    io: I,
    core: Core,
    mailbox: Mailbox<Mail>,
    plan: Arc<Plan>,
    index: u16,
    /// By the index of the session's key.
    clients: Vec<Option<Client>>,
    events: Vec<Event>,
    /// Sessions whose output waits for more replies, and until when.
    held: Vec<Key<Session>>,
    held_until: Time,
    /// Until when the links' output may wait for more of it.
    links_held_until: Option<Time>,
    /// Sessions whose socket holds bytes that were not read yet.
    rereads: Vec<Key<Session>>,
    /// Links to read on in the next turn, to be fair to others.
    link_rereads: Vec<ConnectionKey>,
    /// The same for the links that messages come on.
    subscriber_rereads: Vec<SubscriberIndex>,
    dead_links: Vec<(ConnectionKey, BackendFault)>,
    accept_paused_until: Option<Time>,
    next_upkeep: Time,
    /// Who was looked at last for having asked nothing for long.
    idle_cursor: usize,
    /// The stores have more to tidy than one turn should do.
    tick_again: bool,
    /// When a stopping worker gives up waiting.
    drain_deadline: Option<Time>,
    /// When those who are still coming in then are turned away.
    arrivals_until: Option<Time>,
    /// Clients that are to be ended when what they have sent is answered.
    ending: Ending,
    /// Clients that have their last reply, and may still be sending.
    lingering: Lingering,
    /// Another process accepts clients now.
    leaving: Option<Leaving>,
}

impl<I: Io> Worker<I> {
    /// A worker over `io`, whose listeners are those of `plan` in order.
    /// `seed` is for choices by chance.
    pub fn new(
        io: I,
        plan: Arc<Plan>,
        cells: WorkerCells,
        mailbox: Mailbox<Mail>,
        seed: u64,
    ) -> Self {
        let index = cells.index() as u16;
        Self {
            io,
            core: Core::new(Arc::clone(&plan), cells, seed),
            mailbox,
            plan,
            index,
            clients: Vec::new(),
            events: Vec::with_capacity(256),
            held: Vec::new(),
            held_until: Time(0),
            links_held_until: None,
            rereads: Vec::new(),
            link_rereads: Vec::new(),
            subscriber_rereads: Vec::new(),
            dead_links: Vec::new(),
            accept_paused_until: None,
            next_upkeep: Time(0),
            idle_cursor: 0,
            tick_again: false,
            drain_deadline: None,
            arrivals_until: None,
            ending: Ending::default(),
            lingering: Lingering::default(),
            leaving: None,
        }
    }

    /// Takes turns until told to drain and drained.
    pub fn run(&mut self) {
        while self.turn(true) {}
    }

    /// The worker's core, for tests that look inside.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Counts what is held for clients, for tests in which all clients have left.
    pub fn leftovers(&self) -> Leftovers {
        let core = self.core.leftovers();
        let lists = self.held.len() + self.rereads.len() + self.ending.len();
        let sockets = self.clients.iter().flatten().count() + self.lingering.len();
        Leftovers { sockets, listed: core.listed + lists, ..core }
    }

    /// The driver, for tests that steer it.
    pub fn io_mut(&mut self) -> &mut I {
        &mut self.io
    }

    /// One turn; with `may_sleep` it waits for something to do. Returns
    /// whether there is to be another.
    pub fn turn(&mut self, may_sleep: bool) -> bool {
        let wait = if may_sleep { self.wait() } else { Some(Duration::ZERO) };
        self.poll(wait);
        let ready = self.handle_events();
        self.read_again();
        self.resume();
        self.tend_ending();
        self.settle_private();
        self.handle_timeouts();
        if self.core.has_operations_due() {
            self.core.continue_operations();
        }
        if self.core.plane.routes.has_work() {
            self.core.continue_routes();
        }
        if self.core.plane.servers.pubsub.has_work() {
            self.serve_subscribers();
        }
        if self.core.plane.store.blocking.has_work() {
            self.core.deliver_handouts();
        }
        if self.core.plane.store.tracking.has_work() {
            self.core.deliver_invalidations();
        }
        if self.core.plane.store.awaited.is_in_use() {
            self.core.plane.settle_awaited();
        }
        if self.core.plane.observe.monitoring.has_work() {
            self.core.deliver_monitored();
        }
        self.start_connecting();
        if !self.holds_links(ready) {
            self.flush_links();
        }
        self.flush_sessions();
        if self.core.plane.store.tracking.owes_word {
            self.core.plane.acknowledge_told();
        }
        if self.core.plane.observe.served.has_any() {
            // The one other look at the clock: with the turn's own, all of
            // them would have taken no time.
            let now = self.io.clock().now;
            self.core.plane.observe.served.record(&self.core.plane.cells, now);
        }
        if !self.core.plane.clients.kills.is_empty() {
            let kills = std::mem::take(&mut self.core.plane.clients.kills);
            self.kill(&Vec::from_iter(kills));
        }
        let cells = &self.core.plane.cells;
        cells.turns.add(1);
        let batch = std::mem::take(&mut self.core.plane.batch);
        if batch > 0 {
            cells.batch.record(batch);
        }
        !self.is_drained()
    }

    fn poll(&mut self, wait: Option<Duration>) {
        let slept = self.io.poll(wait, &mut self.events);
        let clock = self.io.clock();
        self.core.set_clock(clock);
        self.core.refresh_health();
        self.core.follow_clusters();
        let cells = &self.core.plane.cells;
        cells.poll_calls.add(1);
        cells.wakeups.add(u64::from(slept));
        let looked = self.io.take_looked();
        if looked > 0 {
            cells.looked_nanos.add(looked);
        }
        cells.events.add(self.events.len() as u64);
    }

    fn wait(&self) -> Option<Duration> {
        let plane = &self.core.plane;
        let work = !plane.clients.resuming.is_empty()
            || !self.rereads.is_empty()
            || !self.link_rereads.is_empty()
            || !self.subscriber_rereads.is_empty()
            || plane.servers.pubsub.has_work()
            || plane.store.tracking.has_work()
            || plane.store.blocking.has_work()
            || plane.observe.monitoring.has_work()
            || plane.routes.has_work()
            || plane.servers.tracking.has_work()
            || !plane.clients.dirty.is_empty()
            || !plane.upstream.dirty_links.is_empty()
            || !plane.upstream.connects.is_empty()
            || !plane.upstream.discards.is_empty()
            || self.core.has_operations_due()
            || self.core.has_heard_of_clusters()
            || self.core.has_freed()
            || self.lingering.has_work()
            || self.tick_again;
        if work {
            return Some(Duration::ZERO);
        }
        let next = plane.next_deadline.map_or(self.next_upkeep, |next| next.min(self.next_upkeep));
        let next = plane.next_hedge().map_or(next, |due| due.min(next));
        let next = if self.held.is_empty() { next } else { next.min(self.held_until) };
        Some(next.since(plane.clock.now))
    }

    /// Returns how many clients were ready.
    fn handle_events(&mut self) -> usize {
        let mut events = std::mem::take(&mut self.events);
        let mut ready = 0;
        for event in events.drain(..) {
            match event {
                Event::Ready { token, readable, writable, hangup } if token.0 & LINK == 0 => {
                    ready += 1;
                    let key = Key::from_bits(token.0);
                    if writable {
                        self.on_client_writable(key);
                    }
                    if hangup && self.core.note_hangup(key) {
                        self.part_with(key);
                    } else if (readable || hangup) && !self.core.is_reread(key) {
                        // Who is read on anyway has no second share of the turn.
                        self.read_client(key, hangup);
                    }
                }
                Event::Ready { token, readable, writable, hangup } => {
                    let Some(index) = self.link_of(token) else {
                        self.on_subscriber_ready(token, writable, readable || hangup);
                        continue;
                    };
                    let connection = &mut self.core.links[index];
                    if writable && connection.link.send_blocked {
                        connection.link.send_blocked = false;
                        // The server has taken what was sent before.
                        connection.link.note_progress(self.core.plane.clock.now);
                        self.core.mark_link_dirty(index);
                    }
                    if (readable || hangup) && !self.link_rereads.contains(&index) {
                        self.read_link(index, hangup);
                    }
                }
                Event::Incoming(listener) => self.accept(listener),
                Event::Connected { token, socket } => self.on_connected(token, socket),
                Event::ConnectFailed { token, fault } => {
                    if let Some(index) = self.link_of(token) {
                        self.core.fail_connecting(index, fault);
                    } else {
                        self.on_subscriber_connect_failed(token, fault);
                    }
                }
                Event::Resolved { number, address } => self.core.note_resolved(number, address),
                Event::Mail => self.read_mail(),
            }
        }
        self.events = events;
        ready
    }

    /// Makes a client this worker's.
    fn install(&mut self, client: Adopted) {
        let Adopted { socket, peer, pool, listener, identity } = client;
        let id = identity.id;
        let key = self.core.add_session(pool, listener, identity);
        let index = key.index() as usize;
        if self.clients.len() <= index {
            self.clients.resize(index + 1, None);
        }
        self.clients[index] = Some(Client { key, socket, peer, has_ended: false });
        self.plan.clients.update(id, |entry| entry.worker = self.index);
        if self.core.bring_in(key).is_some() {
            return self.close_client(key, CloseReason::Killed);
        }
        if self.plan.clients.is_killed(id) {
            return self.close_client(key, CloseReason::Killed);
        }
        if self.io.watch(socket, Token(key.to_bits())) {
            // Bytes may have come before the socket was watched.
            if self.core.set_unread(key) {
                self.rereads.push(key);
            }
        } else {
            return self.close_client(key, CloseReason::Reset);
        }
        if self.drain_deadline.is_some() || self.plan.listeners[usize::from(listener)].is_ended {
            // It was on its way here when the others were told to end.
            self.end_soon(key);
        }
    }

    fn client(&self, key: Key<Session>) -> Option<Client> {
        self.core.session(key)?;
        *self.clients.get(key.index() as usize)?
    }

    fn close_client(&mut self, key: Key<Session>, reason: CloseReason) {
        let Some(client) = self.client(key) else { return };
        let session = self.core.session(key);
        let id = session.map(|session| session.identity.id);
        if let Some(session) = session {
            self.plan.listeners[usize::from(session.listener)].entrance.tally.note_out();
        }
        self.core.remove_session(key, Some(reason));
        self.clients[key.index() as usize] = None;
        if let Some(id) = id {
            self.plan.clients.remove(id);
        }
        match lingering::is_in_order(reason) && !client.has_ended {
            true => self.linger(client.socket, Token(key.to_bits())),
            false => self.io.close(client.socket),
        }
    }

    /// Closes a client whose connection is of no more use.
    #[cold]
    fn close_broken(&mut self, key: Key<Session>, socket: Socket) {
        let has_broken_rules = self.io.has_broken_rules(socket);
        if has_broken_rules && self.plan.notices.broken.is_due(self.core.clock().now) {
            let client = self.core.session(key).map(|session| Arc::clone(&session.identity.addr));
            let client = client.as_deref().unwrap_or_default();
            tracing::warn!(
                client,
                reason = "protocol",
                "client disconnected: it has broken the rules of shared memory; told at most once a \
                 minute, and counted in keyway_client_closed_connections_total"
            );
        }
        let reason = if has_broken_rules { CloseReason::Client } else { CloseReason::Reset };
        self.close_client(key, reason);
    }

    fn on_client_writable(&mut self, key: Key<Session>) {
        self.core.on_client_writable(key);
    }

    fn read_link(&mut self, index: ConnectionKey, hangup: bool) {
        let mut budget = self.plan.limits.read_len_per_turn as usize * 4;
        loop {
            let Some(socket) = self.core.links[index].socket else { return };
            if self.core.is_held(index) {
                return;
            }
            self.core.plane.cells.recv_calls.add(1);
            let fault = match self.io.recv(socket) {
                Recv::Data { bytes, drained, block } => {
                    let len = bytes.len();
                    match self.core.on_backend_block(index, bytes, block) {
                        Ok(()) if drained && !hangup => return,
                        Ok(()) => {
                            budget = budget.saturating_sub(len);
                            if budget == 0 {
                                if !self.link_rereads.contains(&index) {
                                    self.link_rereads.push(index);
                                }
                                return;
                            }
                            continue;
                        }
                        Err(fault) => fault,
                    }
                }
                Recv::Empty => return,
                Recv::End | Recv::Failed => {
                    self.note_tls_fault(index, socket);
                    match self.io.has_broken_rules(socket) {
                        true => BackendFault::Protocol,
                        false => BackendFault::Closed,
                    }
                }
            };
            return self.lose_link(index, fault);
        }
    }

    /// Tells why a connection ends, where the server's word on our certificate has
    /// come behind the handshake.
    #[cold]
    fn note_tls_fault(&mut self, index: ConnectionKey, socket: Socket) {
        if let Some(fault) = self.io.tls_fault(socket) {
            self.core.on_tls_fault(index, fault);
        }
    }

    fn lose_link(&mut self, index: ConnectionKey, fault: BackendFault) {
        let connection = &self.core.links[index];
        if matches!(connection.link.state(), LinkState::Connecting { .. }) {
            self.io.cancel_connect(link_token(index, connection.generation));
        }
        if let Some(socket) = self.core.end_link(index, fault) {
            self.io.close(socket);
        }
    }

    fn on_connected(&mut self, token: Token, socket: Socket) {
        match self.link_of(token) {
            Some(index) => self.core.on_connected(index, socket),
            None if self.on_subscriber_connected(token, socket) => {}
            // Given up in the meantime.
            None => self.io.close(socket),
        }
    }

    fn link_of(&self, token: Token) -> Option<ConnectionKey> {
        if token.0 & LINK == 0 {
            return None;
        }
        let index = token.0 as u32 as usize;
        let connection = self.core.links.get(index)?;
        (link_token(index, connection.generation) == token).then_some(index)
    }

    /// Reads on where reading stopped for fairness or for want of room.
    fn read_again(&mut self) {
        let mut links = std::mem::take(&mut self.link_rereads);
        // A server's end may have been told of before all was read, or while nothing was.
        for index in links.drain(..) {
            self.read_link(index, true);
        }
        while let Some(index) = self.core.next_freed() {
            self.read_link(index, true);
        }
        if self.link_rereads.is_empty() {
            self.link_rereads = links;
        }
        if !self.subscriber_rereads.is_empty() {
            self.read_subscribers_again();
        }
        let mut keys = std::mem::take(&mut self.rereads);
        for key in keys.drain(..) {
            self.core.clear_unread(key);
            // The peer's end may have been told of while nothing was read.
            self.read_client(key, true);
            self.core.end_reread(key);
        }
        if self.rereads.is_empty() {
            self.rereads = keys;
        }
        if self.lingering.has_work() {
            self.throw_away_more();
        }
    }

    fn resume(&mut self) {
        if !self.core.plane.clients.resuming.is_empty() {
            self.core.resume_sessions(&mut self.rereads);
        }
    }

    /// What the turn's requests and replies left to do about private links.
    fn settle_private(&mut self) {
        while let Some(unblock) = self.core.plane.clients.unblocks.pop() {
            if !self.core.unblock(unblock) {
                self.plan.post_unblock(self.index, unblock);
            }
        }
        if self.core.plane.servers.tracking.has_work() {
            self.settle_tracking();
        }
        while let Some(index) = self.core.plane.upstream.discards.pop() {
            if self.core.is_to_be_discarded(index) {
                self.lose_link(index, BackendFault::Closed);
            }
        }
    }

    /// Ends what goes with a link that was lost, and tells the clients that are
    /// to forget everything.
    #[cold]
    fn settle_tracking(&mut self) {
        while let Some((index, fault)) = self.core.next_loss() {
            self.lose_link(index, fault);
        }
        self.core.deliver_redirected();
        self.core.tell_forgetful();
    }

    fn handle_timeouts(&mut self) {
        let now = self.core.clock().now;
        if self.core.plane.next_deadline.is_some_and(|deadline| deadline <= now) {
            let mut dead = std::mem::take(&mut self.dead_links);
            self.core.handle_timeouts(&mut dead);
            for (index, fault) in dead.drain(..) {
                self.lose_link(index, fault);
            }
            self.dead_links = dead;
            self.core.end_pauses();
            self.core.send_retries();
            self.core.end_overdue_waits_for_maps();
            self.core.release_crowded();
        }
        if self.core.plane.next_hedge().is_some_and(|due| due <= now) {
            self.core.send_hedges();
        }
        let is_due = now >= self.next_upkeep;
        if is_due || self.tick_again {
            self.tick_again = self.core.tick();
        }
        if is_due {
            self.next_upkeep = now + UPKEEP_EVERY;
            self.upkeep(now);
        }
    }

    fn upkeep(&mut self, now: Time) {
        self.core.tend_health();
        self.core.tend_clusters();
        while let Some((number, host)) = self.core.next_name() {
            if !self.io.resolve(&host, number) {
                self.core.note_resolved(number, None);
            }
        }
        while let Some(index) = self.core.next_left() {
            self.lose_link(index, BackendFault::Closed);
        }
        self.tend_subscribers();
        self.tend_retired();
        self.tend_leaving(now);
        self.tend_lingering(now);
        self.core.end_pauses();
        self.core.tend_large();
        self.core.resume_logins();
        self.core.retry_unblocks();
        self.core.tend_tracking();
        self.core.publish_gauges();
        self.core.trim();
        self.close_idle();
        if self.accept_paused_until.is_some_and(|until| until <= now) {
            self.accept_paused_until = None;
            self.io.pause_accepting(false);
        }
        if self.arrivals_until.is_some_and(|until| until <= now) {
            self.arrivals_until = None;
            self.io.stop_listening();
        }
        if self.drain_deadline.is_some_and(|deadline| deadline <= now) {
            self.cut_off();
        }
        if let Some(notice) = self.io.take_notice() {
            tracing::warn!(worker = self.index, "{notice}");
        }
    }

    /// Closes the clients that are still there when draining takes too long.
    fn cut_off(&mut self) {
        for key in self.core.client_keys() {
            let busy = self.core.session(key).and_then(|session| session.busy.as_ref());
            let requests = busy.map_or(0, |busy| busy.order.len());
            let notices = &self.plan.notices;
            notices.clients_cut.fetch_add(1, Ordering::Relaxed);
            notices.requests_cut.fetch_add(requests as u64, Ordering::Relaxed);
            self.close_client(key, CloseReason::Drained);
        }
    }

    fn start_connecting(&mut self) {
        let mut connects = std::mem::take(&mut self.core.plane.upstream.connects);
        for index in connects.drain(..) {
            if !self.core.wants_connection(index) {
                // Given up, or asked for twice.
                continue;
            }
            self.core.on_connecting(index);
            let connection = &self.core.links[index];
            let token = link_token(index, connection.generation);
            match self.core.address_of(index) {
                Some(address) => self.connect(connection.pool, &address, token),
                // The server has left its cluster.
                None => self.lose_link(index, BackendFault::Closed),
            }
        }
        self.core.plane.upstream.connects = connects;
    }

    /// Connects to a server of a pool, as the pool says.
    fn connect(&mut self, pool: u16, address: &Address, token: Token) {
        match self.plan.pools[usize::from(pool)].kind.tls() {
            None => self.io.connect(address, token),
            Some(tls) => self.io.connect_secured(address, tls, token),
        }
    }

    fn read_mail(&mut self) {
        while let Some(mail) = self.mailbox.take() {
            match mail {
                Mail::Drain => self.drain(),
                Mail::Leave(grace) => self.leave(grace),
                Mail::Adopt(mut client) => {
                    client.socket = self.io.adopt(client.socket);
                    self.install(*client);
                }
                Mail::GiveAway { count, to } => self.give_away(count, &to),
                Mail::Kill(ids) => self.kill_own(&ids),
                Mail::Published => {}
                Mail::Relieve => self.relieve(),
                Mail::Follow(follow) => self.follow(*follow),
                Mail::Unblock(unblock) => {
                    self.core.unblock(unblock);
                }
            }
        }
        // Who found this mailbox full has told nothing.
        self.core.plane.servers.pubsub.has_mail = true;
        self.core.plane.store.tracking.has_mail = true;
        self.core.plane.store.blocking.has_mail = true;
        self.core.plane.observe.monitoring.has_mail = true;
        self.core.plane.servers.tracking.has_mail = true;
    }

    /// Stops accepting, when all who wait are in; what was received is answered,
    /// then clients are closed.
    fn drain(&mut self) {
        if self.drain_deadline.is_some() {
            return;
        }
        for listener in 0..self.plan.listeners.len() {
            self.accept_waiting(ListenerIndex(listener as u16));
        }
        if self.accept_paused_until.take().is_some() {
            self.io.pause_accepting(false);
        }
        let now = self.core.clock().now;
        // Who has begun to come in is to be told of its end as others are.
        self.io.leave_listening();
        self.arrivals_until = Some(now + LINGER.min(self.plan.drain_timeout));
        self.drain_deadline = Some(now + self.plan.drain_timeout);
        self.core.end_waits_for_primaries();
        for key in self.core.client_keys() {
            self.end_soon(key);
        }
    }

    fn is_drained(&self) -> bool {
        let is_over = self.drain_deadline.is_some() && !self.core.has_clients();
        is_over && self.lingering.is_empty() && !self.io.has_arrivals()
    }

    /// Closes clients of all workers; `ids` ascend.
    fn kill(&mut self, ids: &[u64]) {
        // Before the mail: who took a client over before reading it has the
        // client, who takes it over later sees the mark.
        self.plan.clients.mark_killed(ids);
        // Their workers read no mail until the scripts are over.
        self.plan.pools.iter().for_each(|pool| pool.scripts.kill_of_clients(ids));
        self.kill_own(ids);
        self.plan.post_kill(self.index, ids);
    }

    /// Closes those of this worker's; `ids` ascend.
    fn kill_own(&mut self, ids: &[u64]) {
        for key in self.core.sessions.keys() {
            let id = self.core.session(key).map(|session| session.identity.id);
            if id.is_some_and(|id| ids.binary_search(&id).is_ok()) {
                self.close_client(key, CloseReason::Killed);
            }
        }
    }

    /// Hands clients at rest to another worker.
    fn give_away(&mut self, count: usize, to: &keyway_net::Mailer<Mail>) {
        let mut left = count;
        for key in self.core.sessions.keys() {
            if left == 0 {
                return;
            }
            let Some(session) = self.core.session(key) else { continue };
            let Some(client) = self.client(key) else { continue };
            let has_state = session.is_special()
                || session.subscriptions.is_some()
                || session.is_monitor
                || session.streaming.is_some()
                || session.memcached.is_some_and(|client| client.skip > 0)
                || self.core.plane.store.tracking.is_tracker(session.identity.id);
            let is_bound = session.closing || session.unread || has_state;
            if is_bound || !session.is_at_rest() || !self.core.may_change_links(key) {
                continue;
            }
            let Some(session) = self.core.session(key) else { continue };
            let identity = session.identity.clone();
            let pool = session.pool;
            let Client { socket, peer, .. } = client;
            let listener = session.listener;
            let released = self.io.release(socket);
            let adopted = Adopted { socket: released, peer, pool, listener, identity };
            match to.post(Mail::Adopt(Box::new(adopted))) {
                Ok(()) => {
                    self.core.remove_session(key, None);
                    self.clients[key.index() as usize] = None;
                    left -= 1;
                }
                Err(_) => {
                    // No room in the other's mailbox: keep the client.
                    let socket = self.io.adopt(released);
                    let kept = Client { socket, ..client };
                    self.clients[key.index() as usize] = Some(kept);
                    if !self.io.watch(socket, Token(key.to_bits())) {
                        self.close_client(key, CloseReason::Reset);
                    }
                    return;
                }
            }
        }
    }
}

fn link_token(index: ConnectionKey, generation: u32) -> Token {
    Token(LINK | u64::from(generation) << 32 | index as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Clock;
    use keyway_net::{Accept, Send};
    use keyway_proxy::Identity;
    use keyway_proxy::local::ClientEntry;
    use keyway_resp::Protocol;
    use keyway_users::{User, Users};

    /// Sockets on which nothing ever comes; mail is at hand once.
    #[derive(Default)]
    struct Silence {
        has_mail: bool,
        closed: Vec<Socket>,
        now: Time,
        /// Whether an end can be said without closing.
        finishes: bool,
    }

    impl Io for Silence {
        fn clock(&mut self) -> Clock {
            Clock { now: self.now, unix_micros: 0 }
        }
        fn poll(&mut self, _wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
            if std::mem::take(&mut self.has_mail) {
                events.push(Event::Mail);
            }
            false
        }
        fn accept(&mut self, _listener: ListenerIndex) -> Accept {
            Accept::Empty
        }
        fn pause_accepting(&mut self, _paused: bool) {}
        fn stop_listening(&mut self) {}
        fn watch(&mut self, _socket: Socket, _token: Token) -> bool {
            true
        }
        fn connect(&mut self, _address: &Address, _token: Token) {}
        fn cancel_connect(&mut self, _token: Token) {}
        fn recv(&mut self, _socket: Socket) -> Recv<'_> {
            Recv::Empty
        }
        fn send(&mut self, _socket: Socket, bytes: &[u8]) -> Send {
            Send::Taken(bytes.len())
        }
        fn release(&mut self, socket: Socket) -> Socket {
            socket
        }
        fn finish(&mut self, _socket: Socket) -> bool {
            self.finishes
        }
        fn close(&mut self, socket: Socket) {
            self.closed.push(socket);
        }
    }

    #[test]
    fn a_client_killed_while_it_is_handed_over_is_closed_by_who_adopts_it() {
        let (plan, cells) = crate::core::tests::plan_with(|_| ());
        let mailbox = Mailbox::new(4).unwrap();
        let mailer = mailbox.mailer();
        let entry = |id: u64| ClientEntry {
            addr: Arc::default(),
            laddr: String::new(),
            worker: 1,
            pool: 0,
            connected_unix: id,
            user: "default".into(),
            name: String::new(),
            lib_name: String::new(),
            lib_ver: String::new(),
            database: 0,
            protocol: Protocol::Resp2,
            live: Arc::default(),
            tracking: None,
        };
        [1, 2].into_iter().for_each(|id| plan.clients.insert(id, entry(id)));
        let mut worker = Worker::new(Silence::default(), Arc::clone(&plan), cells, mailbox, 1);
        // Nobody has the client when all workers are told.
        worker.kill(&[1]);
        for id in [1, 2] {
            let adopted = Adopted {
                socket: Socket(id as _),
                peer: Peer::Unix,
                pool: 0,
                listener: 0,
                identity: Identity::new(id, true, Time(0)),
            };
            assert!(mailer.post(Mail::Adopt(Box::new(adopted))).is_ok());
        }
        worker.io_mut().has_mail = true;
        assert!(worker.turn(true));
        assert_eq!(worker.io_mut().closed, [Socket(1)]);
        assert!(plan.clients.get(1).is_none() && !plan.clients.is_killed(1));
    }

    #[test]
    fn a_client_adopted_by_a_draining_worker_does_not_hold_it_up() {
        let (plan, cells) = crate::core::tests::plan_with(|_| ());
        let mailbox = Mailbox::new(4).unwrap();
        let mailer = mailbox.mailer();
        let mut worker = Worker::new(Silence::default(), plan, cells, mailbox, 1);
        let adopted = Adopted {
            socket: Socket(7),
            peer: Peer::Unix,
            pool: 0,
            listener: 0,
            identity: Identity::new(1, true, Time(0)),
        };
        assert!(mailer.post(Mail::Drain).is_ok());
        assert!(mailer.post(Mail::Adopt(Box::new(adopted))).is_ok());
        worker.io_mut().has_mail = true;
        assert!(!worker.turn(true), "there is no further turn");
        assert_eq!(worker.io_mut().closed, [Socket(7)]);
    }

    /// A worker that has adopted these, and then was told to drain.
    fn draining(
        plan: &Arc<Plan>,
        cells: WorkerCells,
        ids: std::ops::Range<u64>,
    ) -> Worker<Silence> {
        let mailbox = Mailbox::new(64).unwrap();
        let mailer = mailbox.mailer();
        let mut worker = Worker::new(Silence::default(), Arc::clone(plan), cells, mailbox, 1);
        for id in ids {
            let identity = Identity::new(id, true, Time(0));
            let (socket, peer) = (Socket(id as _), Peer::Unix);
            let adopted = Adopted { socket, peer, pool: 0, listener: 0, identity };
            assert!(mailer.post(Mail::Adopt(Box::new(adopted))).is_ok());
        }
        assert!(mailer.post(Mail::Drain).is_ok());
        worker.io_mut().has_mail = true;
        worker.io_mut().finishes = true;
        worker
    }

    #[test]
    fn a_worker_is_drained_when_nobody_lingers() {
        let (plan, cells) = crate::core::tests::plan_with(|_| ());
        let mut worker = draining(&plan, cells, 1..4);
        assert!(worker.turn(true), "they may be sending");
        assert!(!worker.core.has_clients() && worker.io_mut().closed.is_empty());
        assert_eq!(worker.core.plane.cells.lingering.get(), 3);
        worker.io_mut().now = Time(0) + (LINGER - Duration::from_millis(1));
        assert!(worker.turn(true));
        assert!(worker.io_mut().closed.is_empty());
        worker.io_mut().now = Time(0) + LINGER + UPKEEP_EVERY;
        assert!(!worker.turn(true), "that is over");
        assert_eq!(worker.io_mut().closed, [1, 2, 3].map(Socket));
        assert_eq!(worker.core.plane.cells.lingering.get(), 0);
    }

    #[test]
    fn an_idle_client_is_closed_whatever_state_its_session_is_in() {
        let (mut plan, cells) = crate::core::tests::plan_with(|_| ());
        let own = Arc::get_mut(&mut plan).expect("nobody else has it");
        own.listeners[0].entrance.idle_timeout = Some(Duration::from_secs(1));
        let mailbox = Mailbox::new(8).unwrap();
        let mailer = mailbox.mailer();
        let mut worker = Worker::new(Silence::default(), plan, cells, mailbox, 1);
        for id in 1..=5 {
            let identity = Identity::new(id, true, Time(0));
            let (socket, peer) = (Socket(id as _), Peer::Unix);
            let adopted = Adopted { socket, peer, pool: 0, listener: 0, identity };
            assert!(mailer.post(Mail::Adopt(Box::new(adopted))).is_ok());
        }
        worker.io_mut().has_mail = true;
        assert!(worker.turn(true));
        for key in worker.core.sessions.keys() {
            let session = worker.core.sessions.get_mut(key).expect("it is there");
            match session.identity.id {
                1 => session.closing = true,
                2 => session.ended = true,
                3 => session.hung_up = true,
                4 => session.send_blocked = true,
                _ => {}
            }
            // A reply that never comes.
            session.busy.insert(Box::default()).order.reserve();
        }
        worker.io_mut().now = Time(0) + Duration::from_secs(2);
        assert!(worker.turn(true));
        let mut closed = worker.io_mut().closed.clone();
        closed.sort_by_key(|socket| socket.0);
        assert_eq!(closed, [1, 2, 3, 4].map(Socket), "a reply may still come to the last");
        worker.io_mut().now = Time(0) + Duration::from_secs(3600);
        assert!(worker.turn(true));
        assert_eq!(worker.io_mut().closed.last(), Some(&Socket(5)), "none takes so long");
        assert!(worker.leftovers().is_empty());
    }

    #[test]
    fn who_has_lingered_longest_makes_room() {
        let (mut plan, cells) = crate::core::tests::plan_with(|_| ());
        Arc::get_mut(&mut plan).expect("nobody else has it").limits.clients_max = 1;
        let mut worker = draining(&plan, cells, 1..21);
        assert!(worker.turn(true));
        let lingering = worker.core.plane.cells.lingering.get();
        let closed = worker.io_mut().closed.clone();
        assert_eq!((closed.len(), lingering), (3, 17), "one client, and sixteen more");
        assert_eq!(closed, [1, 2, 3].map(Socket));
    }

    #[test]
    fn a_client_handed_over_while_users_change_has_the_rights_of_now() {
        let users = |all: &[(&str, &str)]| {
            let user = |(name, rules): &(&str, &str)| User::new(name, rules).expect("rules");
            Arc::new(Users::new(all.iter().map(|it| Arc::new(user(it))).collect()))
        };
        let before = users(&[("less", "nopass +@all ~*"), ("gone", "nopass +@all ~*")]);
        let (mut plan, cells) = crate::core::tests::plan_with(|_| ());
        let own = Arc::get_mut(&mut plan).expect("nobody else has it");
        own.listeners[0].users = users(&[("less", "nopass +get ~a")]);
        let mailbox = Mailbox::new(4).unwrap();
        let mailer = mailbox.mailer();
        let mut worker = Worker::new(Silence::default(), plan, cells, mailbox, 1);
        for (id, name) in [(1, "less"), (2, "gone")] {
            let mut identity = Identity::new(id, false, Time(0));
            identity.admit(before.get(name.as_bytes()).expect("it was there"), &before);
            assert!(!identity.is_free);
            let adopted = Adopted {
                socket: Socket(id as _),
                peer: Peer::Unix,
                pool: 0,
                listener: 0,
                identity,
            };
            assert!(mailer.post(Mail::Adopt(Box::new(adopted))).is_ok());
        }
        worker.io_mut().has_mail = true;
        assert!(worker.turn(true));
        assert_eq!(worker.io_mut().closed, [Socket(2)], "its user is gone");
        let keys = worker.core.sessions.keys();
        let user = worker.core.session(keys[0]).and_then(|it| it.identity.user.clone());
        assert!(user.is_some_and(|user| user.rules().ends_with("+get")));
    }
}
