use super::{SubscriberIndex, SubscriberSlot};
use crate::Upstream;
use crate::core::{Core, Plane};
use keyway_base::{BackendFault, Fault, Key, Sent, Slab, Time};
use keyway_net::{ConnectFault, Socket, TlsFault};
use keyway_proxy::pubsub::{Heard, Name, Outcome, SubscriptionKind};
use keyway_proxy::{Session, write_fault};
use keyway_route::place;
use keyway_topology::{FailureReason, FailureTimes, ServerId};
use std::sync::Arc;

/// Prefix of channels of events. Each server sends its own events.
const KEYEVENT: &[u8] = b"__keyevent@";
/// Common prefix of channels of events and of keys. A pattern with this prefix is about them.
const KEY_EVENTS: &[u8] = b"__key";
/// Prefix of channels of keys. The messages come from the server of the key.
const KEYSPACE: &[u8] = b"__keyspace@";

/// The servers from which the messages to a name come.
enum Home {
    Server(u16),
    /// Every server in use.
    Everywhere,
}

/// Returns the text that decides which server a channel belongs to, or `None` if no single server
/// does.
fn placing_text(kind: SubscriptionKind, name: &[u8]) -> Option<&[u8]> {
    match kind {
        SubscriptionKind::Pattern => None,
        SubscriptionKind::Shard => Some(name),
        SubscriptionKind::Channel if name.starts_with(KEYEVENT) => None,
        SubscriptionKind::Channel if name.starts_with(KEYSPACE) => {
            let key = name.windows(3).position(|bytes| bytes == b"__:");
            Some(key.map_or(name, |at| &name[at + 3..]))
        }
        SubscriptionKind::Channel => Some(name),
    }
}

impl Core {
    /// Takes bytes that a server sent to its subscriber.
    ///
    /// # Errors
    /// Returns an error if the connection must end.
    pub(crate) fn on_subscriber_bytes(
        &mut self,
        index: SubscriberIndex,
        bytes: &[u8],
    ) -> Result<(), BackendFault> {
        let Core { sessions, plane, .. } = self;
        let connection = &mut plane.pubsub.slots[index];
        let (server, id) = (connection.server_id, connection.id);
        let pool = server.pool;
        let is_sentinel = connection.is_sentinel;
        let cells = plane.cells.backend(pool, server.server);
        cells.received_bytes.add(bytes.len() as u64);
        let (limits, now) = (plane.plan.limits, plane.clock.now);
        // The link is taken out while it handles its input, because its listeners are in `plane`.
        let mut link = std::mem::take(&mut connection.link);
        let mut has_confirmed = false;
        let outcome = link.handle_input(bytes, &limits, now, |heard| match heard {
            Heard::Message { frame, .. } if is_sentinel => plane.hear_notice(pool, frame),
            Heard::Confirmed { name, .. } if is_sentinel => plane.note_listening(pool, name),
            Heard::Message { kind, name, frame } => {
                plane.fan_out(sessions, pool, kind, name, frame);
            }
            Heard::Confirmed { kind, name } => {
                has_confirmed = true;
                plane.on_active(sessions, pool, kind, name);
            }
            Heard::Astray { name, said } => plane.on_name_astray(server, name, said),
            Heard::Refused { kind, name, reply } => {
                plane.drop_refused(sessions, pool, kind, name);
                plane.settle_name(sessions, pool, kind, name, &Outcome::Failed(reply.to_vec()));
            }
        });
        let connection = &mut plane.pubsub.slots[index];
        connection.link = link;
        if has_confirmed {
            plane.upstream.failures.get_mut(id).lost = 0;
            if let Some(change) = plane.plan.health.note_success(id) {
                plane.log_change(&change);
            }
        }
        if !plane.pubsub.slots[index].link.unsent().is_empty() {
            plane.pubsub.touch(index);
        }
        outcome
    }

    /// Notes that a subscriber's connection is being made.
    pub(crate) fn on_subscriber_connecting(&mut self, index: SubscriberIndex) {
        let options =
            Arc::clone(self.plane.link_options(self.plane.pubsub.slots[index].server_id.pool));
        let now = self.plane.clock.now;
        let connection = &mut self.plane.pubsub.slots[index];
        connection.attempted = now;
        connection.link.on_connecting(&options, now);
    }

    /// Handles that a subscriber's connection is established.
    pub(crate) fn on_subscriber_connected(&mut self, index: SubscriberIndex, socket: Socket) {
        let options =
            Arc::clone(self.plane.link_options(self.plane.pubsub.slots[index].server_id.pool));
        let now = self.plane.clock.now;
        let connection = &mut self.plane.pubsub.slots[index];
        connection.socket = Some(socket);
        connection.link.on_connected(&options, now);
        self.plane.pubsub.touch(index);
    }

    /// Handles that a subscriber's connection could not be made.
    pub(crate) fn on_subscriber_connect_failed(
        &mut self,
        index: SubscriberIndex,
        fault: ConnectFault,
    ) {
        if let ConnectFault::Tls(fault) = fault {
            self.on_subscriber_tls_fault(index, fault);
        }
        let connection = &self.plane.pubsub.slots[index];
        let (id, began) = (
            connection.id,
            self.plane.began_attempt(
                connection.server_id.pool,
                connection.id,
                connection.attempted,
            ),
        );
        if fault != ConnectFault::Exhausted {
            let (reason, now) = (FailureReason::Connect, self.plane.clock.now);
            if let Some(change) =
                self.plane.plan.health.note_failure(id, reason, FailureTimes { began, now })
            {
                self.plane.log_change(&change);
            }
        }
        self.on_subscriber_lost(index, BackendFault::Connect);
    }

    /// Handles that TLS failed on a subscriber's connection.
    #[cold]
    pub(crate) fn on_subscriber_tls_fault(&mut self, index: SubscriberIndex, fault: TlsFault) {
        let connection = &self.plane.pubsub.slots[index];
        let server = connection.server_id;
        self.plane.on_tls_fault(server, fault);
    }

    /// Handles that a subscriber's connection has ended. It is made again while anything is wanted,
    /// and the clients that wait for it are told. Returns its socket, which must be closed.
    pub(crate) fn on_subscriber_lost(
        &mut self,
        index: SubscriberIndex,
        fault: BackendFault,
    ) -> Option<Socket> {
        let Core { sessions, plane, .. } = self;
        let jitter = plane.next_random();
        let pool = plane.pubsub.slots[index].server_id.pool;
        let options = Arc::clone(plane.link_options(pool));
        let now = plane.clock.now;
        let connection = &mut plane.pubsub.slots[index];
        connection.generation = crate::core::connection::next_generation(connection.generation);
        let is_needed = connection.link.is_needed();
        connection.link.on_lost(&options, now, jitter);
        let socket = connection.socket.take();
        if is_needed {
            plane.log_subscriber_lost(index, fault);
            plane.avoid(index);
            plane.fail_waiting(sessions, index, fault);
        }
        plane.pubsub.touch(index);
        socket
    }

    /// Upkeep, a few times a second: operations that take too long fail. Adds connections that are
    /// dead to `dead`.
    pub(crate) fn tend_pubsub(&mut self, dead: &mut Vec<(SubscriberIndex, BackendFault)>) {
        let Core { sessions, plane, .. } = self;
        let now = plane.clock.now;
        // Messages may have come while this worker could not be woken.
        plane.pubsub.has_mail = true;
        plane.tend_lagging(sessions, now);
        plane.tend_pending(sessions, now);
        for index in 0..plane.pubsub.slots.len() {
            let link = &mut plane.pubsub.slots[index].link;
            link.ask_again(now);
            match link.handle_timeout(now) {
                Err(fault) => dead.push((index, fault)),
                Ok(()) if link.wants_connection(now) || !link.unsent().is_empty() => {
                    plane.pubsub.touch(index);
                }
                Ok(()) => {}
            }
        }
    }

    /// Ends the subscriptions that no client wants any more, and moves those whose server has
    /// changed.
    pub(crate) fn settle_upstream(&mut self) {
        let Core { sessions, plane, .. } = self;
        for (pool, kind, name) in std::mem::take(&mut plane.pubsub.releases) {
            if !plane.is_used(pool, kind, &name) {
                for index in plane.pubsub.pools[pool as usize].slots.clone() {
                    plane.unwant(index, kind, &name);
                }
            }
        }
        if std::mem::take(&mut plane.pubsub.is_moving) {
            for pool in 0..plane.pubsub.pools.len() as u16 {
                plane.move_names(sessions, pool);
            }
        }
    }
}

impl Plane {
    /// Returns the server of a channel. For a channel of all servers, it returns any.
    pub(super) fn server_of_channel(
        &self,
        pool: u16,
        kind: SubscriptionKind,
        name: &[u8],
    ) -> Option<u16> {
        let Upstream { servers: sharded, .. } = self.plan.pools[pool as usize].kind.upstream()?;
        let state = self.pools[pool as usize].servers()?;
        let text = placing_text(kind, name).unwrap_or(name);
        // A channel has one fixed server even in pools that place keys at random.
        let chance = sharded.hash_key(text);
        place(sharded, state.ring(), text, chance)
    }

    /// Returns the slot of a name, or `None` if the pool or the name has no slot.
    pub(super) fn slot_of_channel(
        &self,
        pool: u16,
        kind: SubscriptionKind,
        name: &[u8],
    ) -> Option<u16> {
        self.slot_of(pool, placing_text(kind, name).unwrap_or(name))
    }

    /// Returns whether any server of a cluster sends the messages to a name, because a message that
    /// is published to one server reaches all.
    fn is_heard_anywhere(&self, pool: u16, kind: SubscriptionKind, name: &[u8]) -> bool {
        kind != SubscriptionKind::Shard && self.has_slots(pool) && !name.starts_with(KEY_EVENTS)
    }

    /// Returns the link that is subscribed to a name already, if its server is still in the
    /// cluster, whichever server has the slot by now.
    fn telling(&self, pool: u16, kind: SubscriptionKind, name: &[u8]) -> Option<SubscriberIndex> {
        if !self.is_heard_anywhere(pool, kind, name) {
            return None;
        }
        let mut slots = self.pubsub.pools[usize::from(pool)].slots.clone();
        slots.find(|&index| {
            let connection = &self.pubsub.slots[index];
            connection.link.is_active(kind, name)
                && !connection.is_avoided
                && self.is_member(connection.server_id)
        })
    }

    fn home(&self, pool: u16, kind: SubscriptionKind, name: &[u8]) -> Option<Home> {
        let is_heard_anywhere = self.is_heard_anywhere(pool, kind, name);
        let server = || self.server_of_channel(pool, kind, name);
        match placing_text(kind, name) {
            _ if is_heard_anywhere => {
                server().map(|server| Home::Server(self.one_that_tells(ServerId { pool, server })))
            }
            None => Some(Home::Everywhere),
            Some(_) => server().map(Home::Server),
        }
    }

    /// Returns the server to subscribe at for names that all servers of a cluster send: this one,
    /// or the next one whose connection was not lost.
    fn one_that_tells(&self, server: ServerId) -> u16 {
        let slots = &self.pubsub.slots[self.pubsub.pools[usize::from(server.pool)].slots.clone()];
        let fits = |&index: &usize| {
            !slots[index].is_avoided
                && (index == usize::from(server.server) || self.is_server_used(server.pool, index))
        };
        let first = usize::from(server.server);
        let mut turned = (first..slots.len()).chain(0..first);
        turned.find(fits).map_or(server.server, |index| index as u16)
    }

    /// Moves the subscriptions that any server of a cluster may have to other servers than this.
    fn avoid(&mut self, index: SubscriberIndex) {
        let pool = self.pubsub.slots[index].server_id.pool;
        if !self.has_slots(pool) {
            return;
        }
        self.pubsub.slots[index].is_avoided = true;
        let slots = self.pubsub.pools[usize::from(pool)].slots.clone();
        let is_left = |connection: &SubscriberSlot| {
            !connection.is_avoided
                && self.is_server_used(pool, usize::from(connection.server_id.server))
        };
        if !self.pubsub.slots[slots.clone()].iter().any(is_left) {
            // All connections were lost once, so all may be used again.
            self.pubsub.slots[slots]
                .iter_mut()
                .for_each(|connection| connection.is_avoided = false);
        }
        self.pubsub.is_moving = true;
    }

    /// Uses the servers that work again, because slots have moved.
    pub(in crate::core) fn avoid_no_more(&mut self, pool: u16, working: &[u16]) {
        let slots = self.pubsub.pools[usize::from(pool)].slots.clone();
        for connection in &mut self.pubsub.slots[slots] {
            connection.is_avoided &= !working.contains(&connection.server_id.server);
        }
    }

    /// Returns the links on which `name` must be subscribed.
    fn slots_of(&self, pool: u16, kind: SubscriptionKind, name: &[u8]) -> Vec<SubscriberIndex> {
        if let Some(index) = self.telling(pool, kind, name) {
            return vec![index];
        }
        let slots = self.pubsub.pools[pool as usize].slots.clone();
        match self.home(pool, kind, name) {
            None => Vec::new(),
            Some(Home::Server(server)) => vec![slots.start + usize::from(server)],
            Some(Home::Everywhere) => slots
                .filter(|&index| {
                    self.is_server_used(
                        pool,
                        usize::from(self.pubsub.slots[index].server_id.server),
                    )
                })
                .collect(),
        }
    }

    /// Subscribes to `name` at its server, if that was not done yet.
    pub(super) fn want(&mut self, pool: u16, kind: SubscriptionKind, name: &Name) -> Outcome {
        let slots = self.slots_of(pool, kind, name);
        if slots.is_empty() {
            let mut error = Vec::new();
            self.write_unrouted(pool, None, &mut error);
            return Outcome::Failed(error);
        }
        let now = self.clock.now;
        let down = slots.iter().find(|&&index| self.pubsub.slots[index].link.is_down(now));
        if let Some(&index) = down {
            return Outcome::Failed(self.fault_text(index, BackendFault::Connect));
        }
        let mut is_active = true;
        for index in slots {
            let link = &mut self.pubsub.slots[index].link;
            link.want(kind, name, now);
            is_active &= link.is_active(kind, name);
            self.pubsub.touch(index);
        }
        if is_active { Outcome::Fine } else { Outcome::Waiting }
    }

    fn unwant(&mut self, index: SubscriberIndex, kind: SubscriptionKind, name: &Name) {
        let now = self.clock.now;
        let link = &mut self.pubsub.slots[index].link;
        if link.wants(kind, name) {
            link.unwant(kind, name, now);
            self.pubsub.touch(index);
        }
    }

    fn fault_text(&self, index: SubscriberIndex, fault: BackendFault) -> Vec<u8> {
        let connection = &self.pubsub.slots[index];
        let mut error = Vec::new();
        let backend = self.describe_backend(connection.server_id);
        write_fault(Fault::Backend { fault, sent: Sent::No }, &backend, &mut error);
        error
    }

    fn is_used(&self, pool: u16, kind: SubscriptionKind, name: &[u8]) -> bool {
        let channels = &self.pubsub.pools[pool as usize];
        channels.registry.contains(kind, name) || channels.waiters.contains(kind, name)
    }

    /// Notes that `name` may have lost its last subscriber.
    pub(super) fn release_name(&mut self, pool: u16, kind: SubscriptionKind, name: &Name) {
        if !self.is_store(pool) {
            self.pubsub.releases.push((pool, kind, Name::clone(name)));
        }
    }

    /// Handles that a server has confirmed `name`. The clients that wait for it are answered once
    /// all servers have.
    fn on_active(
        &mut self,
        sessions: &mut Slab<Session>,
        pool: u16,
        kind: SubscriptionKind,
        name: &Name,
    ) {
        let channels = &self.pubsub.pools[pool as usize];
        let mut slots = self.pubsub.slots[channels.slots.clone()].iter();
        let is_waiting = |link: &keyway_proxy::pubsub::SubscriberLink| {
            link.wants(kind, name) && !link.is_active(kind, name)
        };
        if channels.waiters.contains(kind, name)
            && !slots.any(|connection| is_waiting(&connection.link))
        {
            self.settle_name(sessions, pool, kind, name, &Outcome::Fine);
        }
    }

    /// Tells all clients that wait for `name` the outcome.
    fn settle_name(
        &mut self,
        sessions: &mut Slab<Session>,
        pool: u16,
        kind: SubscriptionKind,
        name: &Name,
        outcome: &Outcome,
    ) {
        let waiters: Vec<Key<Session>> =
            self.pubsub.pools[pool as usize].waiters.subscribers(kind, name).collect();
        for key in waiters {
            let pending = sessions
                .get_mut(key)
                .and_then(|session| session.subscriptions.as_mut())
                .and_then(|subscriptions| subscriptions.pending.as_mut());
            if pending.is_some_and(|pending| pending.settle(name, outcome.clone())) {
                self.finish_pending(sessions, key);
            }
        }
    }

    /// Answers a request to subscribe all of whose names are settled.
    fn finish_pending(&mut self, sessions: &mut Slab<Session>, key: Key<Session>) {
        let Some(session) = sessions.get_mut(key) else { return };
        let Some(mut subscriptions) = session.subscriptions.take() else { return };
        if let Some(pending) = subscriptions.pending.take() {
            self.pubsub.pending.swap_remove(&key);
            let was_subscriber = subscriptions.is_subscriber();
            let sequence = pending.sequence;
            let mut out = Vec::new();
            self.finish(session, key, &mut subscriptions, &pending, &mut out);
            self.note_subscriber(session.pool, was_subscriber, subscriptions.is_subscriber());
            self.complete(key, session, sequence, |dest| dest.extend_from_slice(&out));
        }
        session.subscriptions = Some(subscriptions).filter(|them| !them.is_idle());
        session.note_state();
    }

    /// Answers the clients that wait for a connection that is lost.
    fn fail_waiting(
        &mut self,
        sessions: &mut Slab<Session>,
        index: SubscriberIndex,
        fault: BackendFault,
    ) {
        let connection = &self.pubsub.slots[index];
        let pool = connection.server_id.pool;
        let waiters = &self.pubsub.pools[pool as usize].waiters;
        if waiters.is_empty() {
            return;
        }
        let failed = Outcome::Failed(self.fault_text(index, fault));
        for kind in SubscriptionKind::ALL {
            let mut of_link = waiters_of(self, pool, index, kind);
            // The other names are subscribed at another server in this turn.
            of_link.retain(|name| self.slots_of(pool, kind, name).contains(&index));
            of_link.iter().for_each(|name| self.settle_name(sessions, pool, kind, name, &failed));
        }
    }

    /// Answers requests to subscribe whose time is up.
    fn tend_pending(&mut self, sessions: &mut Slab<Session>, now: Time) {
        if self.pubsub.pending.is_empty() {
            return;
        }
        let waiting: Vec<Key<Session>> = self.pubsub.pending.iter().copied().collect();
        for key in waiting {
            let Some(session) = sessions.get_mut(key) else { continue };
            let pool = session.pool;
            let pending = session.subscriptions.as_mut().and_then(|them| them.pending.as_mut());
            let Some(pending) = pending.filter(|pending| now >= pending.deadline) else { continue };
            let kind = pending.kind;
            for name in pending.waited_for().cloned().collect::<Vec<_>>() {
                let slots = self.pubsub.pools[pool as usize].slots.clone();
                let silent = slots.clone().find(|&index| {
                    let link = &self.pubsub.slots[index].link;
                    link.wants(kind, &name) && !link.is_active(kind, &name)
                });
                let at = silent.unwrap_or(slots.start);
                let failed = Outcome::Failed(self.fault_text(at, BackendFault::Timeout));
                pending.settle(&name, failed);
            }
            self.finish_pending(sessions, key);
        }
    }

    /// Moves the names of a pool to their current servers.
    fn move_names(&mut self, sessions: &mut Slab<Session>, pool: u16) {
        let all = self.pubsub.pools[pool as usize].slots.clone();
        if all.is_empty() {
            return;
        }
        for kind in SubscriptionKind::ALL {
            let channels = &self.pubsub.pools[pool as usize];
            let mut names: Vec<Name> = channels.registry.names(kind).cloned().collect();
            names.extend(channels.waiters.names(kind).cloned());
            for name in names {
                let homes = self.slots_of(pool, kind, &name);
                if homes.is_empty() {
                    // No server may be used, so the subscription stays.
                    continue;
                }
                for index in all.clone() {
                    if homes.contains(&index) {
                        let now = self.clock.now;
                        self.pubsub.slots[index].link.want(kind, &name, now);
                        self.pubsub.touch(index);
                    } else {
                        self.unwant(index, kind, &name);
                    }
                }
                self.on_active(sessions, pool, kind, &name);
            }
        }
    }

    #[cold]
    fn log_subscriber_lost(&mut self, index: SubscriberIndex, fault: BackendFault) {
        let connection = &self.pubsub.slots[index];
        let is_first = self.upstream.failures.get_mut(connection.id).is_first();
        let (server, names) = (connection.server_id, connection.link.wanted());
        let name = self.name_backend(server);
        crate::core::upstream::failures::log_at!(
            is_first,
            pool = name.pool,
            backend = &*name.label,
            address = name.address,
            names,
            reason = Fault::Backend { fault, sent: Sent::No }.label(),
            "the connection for subscriptions is lost: no messages until it, or that to another \
             server of a cluster, stands again; trying"
        );
    }
}

/// Returns the names that clients wait for on a link.
fn waiters_of(
    plane: &Plane,
    pool: u16,
    index: SubscriberIndex,
    kind: SubscriptionKind,
) -> Vec<Name> {
    let link = &plane.pubsub.slots[index].link;
    let waiters = &plane.pubsub.pools[pool as usize].waiters;
    let is_waited_for = |name: &&Name| link.wants(kind, name) && !link.is_active(kind, name);
    waiters.names(kind).filter(is_waited_for).cloned().collect()
}
