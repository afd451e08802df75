//! Subscriptions of this worker's clients, and the subscriptions at servers for them.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `request` | the commands: SUBSCRIBE and its like, PUBLISH, PUBSUB |
//! | `deliver` | messages go to every subscriber; slow subscribers are closed |
//! | `upstream` | subscriptions at servers: confirmed, lost, made again |
//!
//! A request to subscribe is a fence: it starts when every request before it was answered, and the
//! next request starts when it was answered. So a confirmation is always the next reply to leave,
//! and no message overtakes it.
//!
//! The doors, which code outside of the room calls, by file:
//!
//! - `deliver`: `deliver_published`, `take_dropped`, `publish`, `publish_events`
//! - `mod`: `publish_pubsub_gauges`
//! - `request`: `check_subscriber`, `pubsub`, `server_of_published`, `forget_subscriber`
//! - `upstream`: `on_subscriber_bytes`, `on_subscriber_connecting`, `on_subscriber_connected`,
//!   `on_subscriber_connect_failed`, `on_subscriber_tls_fault`, `on_subscriber_lost`,
//!   `tend_pubsub`, `settle_upstream`, `avoid_no_more`

mod deliver;
mod request;
mod upstream;

use crate::Plan;
use crate::channels::Published;
use crate::core::Plane;
use indexmap::IndexSet;
use keyway_base::{Key, Time};
use keyway_net::Socket;
use keyway_proxy::Session;
use keyway_proxy::pubsub::{Name, PushShape, Registry, SubscriberLink, SubscriptionKind};
use keyway_resp::Protocol;
use keyway_topology::{BackendId, ServerId};
use std::ops::Range;
use std::sync::Arc;

/// Index of a subscriber link in the worker.
pub(crate) type SubscriberIndex = usize;

/// Subscriptions of one worker.
pub(crate) struct PubSub {
    pools: Vec<PoolChannels>,
    pub(crate) slots: Vec<SubscriberSlot>,
    /// Slots with something to connect, send or close.
    pub(crate) busy_slots: Vec<SubscriberIndex>,
    /// True if this worker's inbox is not empty.
    pub(crate) has_mail: bool,
    /// Buffer for the messages that are taken out of the inbox.
    inbox: Vec<Arc<Published>>,
    /// Names that may have lost their last subscriber.
    releases: Vec<(u16, SubscriptionKind, Name)>,
    /// True if the set of usable servers has changed, so that names may belong to other servers.
    pub(crate) is_moving: bool,
    /// Clients whose subscriptions wait for a server.
    pending: IndexSet<Key<Session>, foldhash::fast::RandomState>,
    /// Subscribers above the soft bound.
    over_soft: Vec<Key<Session>>,
    /// Subscribers to close, each with the reason.
    pub(crate) dropped: Vec<(Key<Session>, &'static str)>,
    /// Buffer for composing a message.
    frame: Vec<u8>,
}

/// Subscriptions of one pool.
struct PoolChannels {
    /// The subscribers of each name.
    registry: Registry<Key<Session>>,
    /// The clients that wait for a name's subscription to be confirmed.
    waiters: Registry<Key<Session>>,
    /// Clients with subscriptions.
    clients: u64,
    /// The links to the pool's servers, in the order of the servers.
    slots: Range<SubscriberIndex>,
}

/// A subscriber link with the worker's state of it.
pub(crate) struct SubscriberSlot {
    pub(crate) link: SubscriberLink,
    /// The server that it leads to.
    pub(crate) server_id: ServerId,
    id: BackendId,
    pub(crate) socket: Option<Socket>,
    /// Number of connections that were lost. It tells an event of an earlier connection apart.
    pub(crate) generation: u32,
    /// True if it is in `PubSub::busy_slots`.
    is_busy: bool,
    /// When the latest attempt to connect began.
    attempted: Time,
    /// True if its connection was lost. Subscriptions that any server of the cluster may have then
    /// go to another server.
    is_avoided: bool,
    /// True if its pool has ended. Its index may then be used for another pool.
    is_spare: bool,
    /// True if it leads to a sentinel, whose messages are for the worker and for no client.
    is_sentinel: bool,
}

impl PubSub {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut pubsub = Self {
            pools: Vec::new(),
            slots: Vec::new(),
            busy_slots: Vec::new(),
            has_mail: false,
            inbox: Vec::new(),
            releases: Vec::new(),
            is_moving: false,
            pending: IndexSet::default(),
            over_soft: Vec::new(),
            dropped: Vec::new(),
            frame: Vec::new(),
        };
        for index in 0..plan.pools.len() {
            pubsub.begin_pool(plan, index);
        }
        pubsub
    }

    /// Makes the slots of a pool that begins at an index.
    pub(super) fn begin_pool(&mut self, plan: &Plan, index: usize) {
        let mut own = Vec::new();
        let kind = &plan.pools[index].kind;
        if let Some(upstream) = kind.upstream()
            && plan.retired(index as u16).is_none()
        {
            let link = || match kind.cluster() {
                Some(_) => SubscriberLink::of_cluster(),
                None => SubscriberLink::default(),
            };
            own.extend((0..upstream.servers.servers.len()).map(|server| SubscriberSlot {
                link: link(),
                server_id: ServerId { pool: index as u16, server: server as u16 },
                id: plan.topology.backend_id(index, server),
                socket: None,
                generation: 1,
                is_busy: false,
                attempted: Time(0),
                is_avoided: false,
                is_sentinel: kind.is_sentinels(),
                is_spare: false,
            }));
        }
        let channels = PoolChannels {
            registry: Registry::default(),
            waiters: Registry::default(),
            clients: 0,
            slots: self.room_for(own),
        };
        match self.pools.get_mut(index) {
            Some(old) => *old = channels,
            None => self.pools.push(channels),
        }
    }

    /// Puts the slots of a pool in a row. It uses the slots of an ended pool if they fit.
    fn room_for(&mut self, own: Vec<SubscriberSlot>) -> Range<SubscriberIndex> {
        let (slots, len) = (&mut self.slots, own.len());
        let fits = |first: &usize| slots[*first..*first + len].iter().all(|slot| slot.is_spare);
        let last = slots.len().checked_sub(len);
        let first = last.and_then(|last| (0..=last).find(fits)).unwrap_or(slots.len());
        for (index, slot) in (first..).zip(own) {
            match slots.get_mut(index) {
                Some(old) => {
                    let generation = crate::core::connection::next_generation(old.generation);
                    *old = SubscriberSlot { generation, is_busy: old.is_busy, ..slot };
                }
                None => slots.push(slot),
            }
        }
        first..first + len
    }

    /// Returns the slots of a pool that is to end.
    pub(super) fn slots_of(&self, pool: u16) -> Range<SubscriberIndex> {
        self.pools[usize::from(pool)].slots.clone()
    }

    /// Ends a pool without subscriptions. Another pool may use its slots.
    pub(super) fn end_pool(&mut self, pool: u16) {
        let channels = &mut self.pools[usize::from(pool)];
        let slots = std::mem::replace(&mut channels.slots, 0..0);
        for connection in &mut self.slots[slots] {
            connection.link = SubscriberLink::default();
            (connection.is_spare, connection.is_sentinel) = (true, false);
        }
    }

    /// Returns whether there is something to do before the worker sleeps.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.has_mail
            || !self.busy_slots.is_empty()
            || !self.releases.is_empty()
            || !self.dropped.is_empty()
            || self.is_moving
    }

    /// Returns the number of names that clients subscribe to or wait for, and of names wanted of
    /// servers.
    pub(super) fn subscriptions(&self) -> usize {
        let tables = self.pools.iter().flat_map(|pool| [&pool.registry, &pool.waiters]);
        let kinds =
            tables.flat_map(|table| SubscriptionKind::ALL.map(|kind| table.names(kind).len()));
        let of_clients = self.slots.iter().filter(|connection| !connection.is_sentinel);
        kinds.sum::<usize>() + of_clients.map(|connection| connection.link.wanted()).sum::<usize>()
    }

    /// Returns the number of clients whose subscriptions wait or that are to be closed, and of
    /// names to be released.
    pub(super) fn waiting(&self) -> usize {
        self.pending.len() + self.dropped.len() + self.over_soft.len() + self.releases.len()
    }

    /// Returns the number of established connections to servers for clients.
    pub(super) fn connections(&self) -> usize {
        let is_open =
            |connection: &&SubscriberSlot| connection.socket.is_some() && !connection.is_sentinel;
        self.slots.iter().filter(is_open).count()
    }

    /// Subscribes to these channels at every sentinel.
    pub(super) fn want_of_sentinels(&mut self, names: &[Name], now: Time) {
        for index in 0..self.slots.len() {
            let connection = &mut self.slots[index];
            if connection.is_sentinel {
                let kind = SubscriptionKind::Channel;
                names.iter().for_each(|name| connection.link.want(kind, name, now));
                self.touch(index);
            }
        }
    }

    /// Marks a slot to be looked at in this turn.
    fn touch(&mut self, index: SubscriberIndex) {
        let slot = &mut self.slots[index];
        if !slot.is_busy {
            slot.is_busy = true;
            self.busy_slots.push(index);
        }
    }

    /// Notes that a slot is being looked at.
    pub(crate) fn untouch(&mut self, index: SubscriberIndex) {
        self.slots[index].is_busy = false;
    }
}

/// Returns the form of pushes to this client.
#[inline]
fn shape_of(session: &Session) -> PushShape {
    match session.identity.protocol {
        Protocol::Resp2 => PushShape::Array,
        Protocol::Resp3 => PushShape::Push,
    }
}

impl Plane {
    /// Updates the gauges of subscriptions.
    pub(super) fn publish_pubsub_gauges(&self) {
        use SubscriptionKind::{Channel, Pattern, Shard};
        for (index, pool) in self.pubsub.pools.iter().enumerate() {
            if self.plan.retired(index as u16).is_some() {
                continue;
            }
            let cells = &self.cells.pool(index).pubsub;
            let names = |kind| pool.registry.names(kind).len() as u64;
            cells.channels.set(names(Channel) + names(Shard));
            cells.patterns.set(names(Pattern));
            cells.clients.set(pool.clients);
            let slots = &self.pubsub.slots[pool.slots.clone()];
            cells
                .upstream
                .set(slots.iter().map(|connection| connection.link.wanted() as u64).sum());
        }
    }
}

#[cfg(test)]
mod invariants;
