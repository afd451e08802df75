//! The turn of a worker. It is one straight list:
//!
//! ```text
//!  poll ─► events ─► resumed sessions ─► timeouts, upkeep ─► connects
//!       ─► links' output, or it is held for the next turn's ─► sessions' output
//! ```
//! Output is written once a turn, and never for each event: at one request for each client, most of
//! the cost is segments and wake-ups, and batching saves both.

mod accepting;
mod departures;
mod ending;
mod flush;
mod following;
mod handing_on;
mod handing_over;
mod leaving;
mod lingering;
mod logging;
mod reading;
mod relaying;
mod replicas;
mod servers;
mod subscribers;

use crate::core::leftovers::Leftovers;
use crate::core::{ConnectionKey, Core, CutOff, SubscriberIndex};
use crate::turn::departures::Ending;
use crate::turn::departures::Leaving;
use crate::turn::departures::Lingering;
use crate::turn::departures::is_in_order;
use crate::turn::relaying::Relays;
use crate::{Adopted, Heir, Mail, Plan};
use keyway_base::{BackendFault, Key, Time};
use keyway_metrics::{CloseReason, WorkerCells};
use keyway_net::{Event, Io, Mailbox, Socket, Token};
use keyway_proxy::{Output, Session};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Marks a token as a link's. The others are sessions'.
const LINK: u64 = 1 << 62;

/// Time between two rounds of upkeep: expiry, health, gauges.
const UPKEEP_EVERY: Duration = Duration::from_millis(100);

/// The driver's state of a client, besides its session.
#[derive(Clone, Copy)]
struct Client {
    key: Key<Session>,
    socket: Socket,
    /// True if it has ended its side, and everything that it had sent was read.
    has_ended: bool,
}

/// Each client has one, even an idle one.
const _: () = assert!(size_of::<Option<Client>>() <= 16, "a client takes more than 16 bytes");

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
    /// Until when the links' output may wait for more.
    links_held_until: Option<Time>,
    /// Sessions whose socket has unread bytes.
    rereads: Vec<Key<Session>>,
    /// Links that are read again in the next turn, for fairness.
    link_rereads: Vec<ConnectionKey>,
    /// The same for subscriber links.
    subscriber_rereads: Vec<SubscriberIndex>,
    dead_links: Vec<(ConnectionKey, BackendFault)>,
    accept_paused_until: Option<Time>,
    next_upkeep: Time,
    /// Index of the client that was last checked for being idle.
    idle_cursor: usize,
    /// True if the stores have more upkeep than one turn should do.
    tick_again: bool,
    /// When a stopping worker stops waiting.
    drain_deadline: Option<Time>,
    /// When clients that are then still being accepted are refused.
    arrivals_until: Option<Time>,
    /// Clients that must be ended when their requests are answered.
    ending: Ending,
    /// Clients that have their last reply, and may still be sending.
    lingering: Lingering,
    /// Set if another process accepts clients now.
    leaving: Option<Leaving>,
    /// Clients of another process whose connections end here.
    relays: Relays,
    /// Set if another process takes the clients of embedded stores.
    heir: Option<Arc<dyn Heir>>,
}

impl<I: Io> Worker<I> {
    /// Creates a worker over `io`, whose listeners are those of `plan` in order. `seed` is for
    /// random choices.
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
            relays: Relays::default(),
            heir: None,
        }
    }

    /// Takes turns until it was told to drain and has drained.
    pub fn run(&mut self) {
        while self.turn(true) {}
    }

    /// Returns the worker's core, for tests.
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

    /// Returns the driver, for tests that steer it.
    pub fn io_mut(&mut self) -> &mut I {
        &mut self.io
    }

    /// Takes one turn. With `may_sleep` it waits for something to do. Returns whether there must be
    /// another one.
    pub fn turn(&mut self, may_sleep: bool) -> bool {
        let wait = if may_sleep { self.wait() } else { Some(Duration::ZERO) };
        self.poll(wait);
        if self.core.plane.store.logs.has_any() {
            self.look_at_logs();
        }
        self.core.tell_late();
        let ready = self.handle_events();
        self.read_again();
        self.resume();
        self.tend_ending();
        self.settle_private();
        self.handle_timeouts();
        self.core.work_in_rooms();
        if self.core.plane.pubsub.has_work() {
            self.serve_subscribers();
        }
        self.start_connecting();
        if !self.holds_links(ready) {
            self.flush_links();
        }
        // A client that has its reply finds its request counted.
        let plane = &mut self.core.plane;
        plane.observe.served.count_calls(&plane.cells);
        self.flush_sessions();
        if self.core.plane.store.introduced.has_departing() {
            self.hand_over_replicas();
        }
        if self.core.plane.store.tracking.owes_word {
            self.core.plane.acknowledge_told();
        }
        self.record_served();
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
        let work = plane.has_work()
            || !self.rereads.is_empty()
            || !self.link_rereads.is_empty()
            || !self.subscriber_rereads.is_empty()
            || self.lingering.has_work()
            || self.relays.has_work()
            || self.tick_again;
        if work {
            return Some(Duration::ZERO);
        }
        let next = plane.next_deadline.map_or(self.next_upkeep, |next| next.min(self.next_upkeep));
        let next = plane.next_hedge().map_or(next, |due| due.min(next));
        let next = if self.held.is_empty() { next } else { next.min(self.held_until) };
        Some(next.since(plane.clock.now))
    }

    /// Handles events. Returns how many clients were ready.
    fn handle_events(&mut self) -> usize {
        let mut events = std::mem::take(&mut self.events);
        let mut ready = 0;
        for event in events.drain(..) {
            match event {
                Event::Ready { token, writable, .. } if self.relays.has(token) => {
                    self.on_relay_ready(token, writable);
                }
                Event::Ready { token, readable, writable, hangup } if token.0 & LINK == 0 => {
                    ready += 1;
                    let key = Key::from_bits(token.0);
                    if writable && !self.core.on_client_writable(key) {
                        self.send_tail(token);
                    }
                    if hangup && self.core.note_hangup(key) {
                        self.part_with(key);
                    } else if (readable || hangup) && !self.core.is_reread(key) {
                        // A client that is read again anyway has no second share of the turn.
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

    /// Makes a client one of this worker.
    fn install(&mut self, client: Adopted) {
        let Adopted { socket, pool, listener, identity } = client;
        let id = identity.id;
        let key = self.core.add_session(pool, listener, identity);
        let index = key.index() as usize;
        if self.clients.len() <= index {
            self.clients.resize(index + 1, None);
        }
        self.clients[index] = Some(Client { key, socket, has_ended: false });
        self.plan.clients.update(id, |entry| entry.worker = self.index);
        if self.core.bring_in(key).is_some() {
            return self.close_client(key, CloseReason::Killed);
        }
        if self.plan.clients.is_killed(id) {
            return self.close_client(key, CloseReason::Killed);
        }
        if self.io.watch(socket, Token(key.to_bits())) {
            // Bytes may have arrived before the socket was watched.
            if self.core.set_unread(key) {
                self.rereads.push(key);
            }
        } else {
            return self.close_client(key, CloseReason::Reset);
        }
        if self.drain_deadline.is_some() || self.plan.listeners[usize::from(listener)].is_ended {
            // It was being handed over when the others were told to end.
            self.end_soon(key);
        }
    }

    /// Counts the requests that were noted, whose replies have been sent.
    fn record_served(&mut self) {
        let (plane, io) = (&mut self.core.plane, &mut self.io);
        // This is the only other reading of the clock.
        plane.observe.served.record(&plane.cells, || io.clock().now);
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
            self.plan.listeners[usize::from(session.listener)].access.tally.note_out();
        }
        let tail = self.tail_of(key, reason);
        self.core.remove_session(key, Some(reason));
        self.clients[key.index() as usize] = None;
        if let Some(id) = id {
            self.plan.clients.remove(id);
        }
        match is_in_order(reason) && !client.has_ended || !tail.is_empty() {
            true => {
                self.linger_with(client.socket, Token(key.to_bits()), tail, client.has_ended);
            }
            false => self.io.close(client.socket),
        }
    }

    /// Takes what a client has not taken yet, if it gets that although it is closed.
    fn tail_of(&mut self, key: Key<Session>, reason: CloseReason) -> Output {
        let session = self.core.sessions.get_mut(key).filter(|_| reason == CloseReason::Drained);
        let busy = session.and_then(|session| session.busy.as_deref_mut());
        busy.map(|busy| std::mem::take(&mut busy.output)).unwrap_or_default()
    }

    /// Closes a client whose connection can no longer be used.
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

    /// Continues reading where it stopped for fairness or for lack of room.
    fn read_again(&mut self) {
        let mut links = std::mem::take(&mut self.link_rereads);
        // A server's end may have been reported before everything was read, or while nothing was.
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
            // The peer's end may have been reported while nothing was read.
            self.read_client(key, true);
            self.core.end_reread(key);
        }
        if self.rereads.is_empty() {
            self.rereads = keys;
        }
        if self.lingering.has_work() {
            self.throw_away_more();
        }
        if self.relays.has_work() {
            self.read_relays_again();
        }
    }

    fn resume(&mut self) {
        if !self.core.plane.clients.resuming.is_empty() {
            self.core.resume_sessions(&mut self.rereads);
        }
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
            self.core.handle_overdue();
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
        self.hand_on();
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

    /// Closes the clients that still exist when draining takes too long. Their requests are
    /// answered with an error first.
    fn cut_off(&mut self) {
        self.drain_relays(true);
        for key in self.core.client_keys() {
            let busy = self.core.session(key).and_then(|session| session.busy.as_ref());
            let requests = busy.map_or(0, |busy| busy.order.len());
            let notices = &self.plan.notices;
            notices.clients_cut.fetch_add(1, Ordering::Relaxed);
            notices.requests_cut.fetch_add(requests as u64, Ordering::Relaxed);
            // One by one, so that the errors of one client alone are in memory.
            self.core.answer_unanswered(key, CutOff::Drained);
            self.flush_session(key);
            self.close_client(key, CloseReason::Drained);
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
                Mail::HandOn { heir, done } => {
                    self.heir = Some(heir);
                    self.hand_on();
                    drop(done);
                }
                Mail::TakeIn(client, socket) => self.take_in(&client, socket),
                Mail::GiveAway { count, to } => self.give_away(count, &to),
                Mail::Kill(ids) => self.kill_own(&ids),
                Mail::Published => {}
                Mail::Changed { pool, is_asked } => {
                    is_asked.store(false, Ordering::Release);
                    self.core.tell_changed(pool);
                }
                Mail::Pass(waiting) => drop(waiting),
                Mail::Relieve => self.relieve(),
                Mail::Follow(follow) => self.follow(*follow),
                Mail::Unblock(unblock) => {
                    self.core.unblock(unblock);
                }
            }
        }
        // A worker that found this mailbox full has sent no mail.
        self.core.plane.on_mail();
    }
}

#[cfg(test)]
mod tests;
