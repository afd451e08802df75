//! Requests and replies, without sockets: bytes of clients and backends go in, dirty sessions and
//! links come out.
//!
//! | room | what happens there |
//! | --- | --- |
//! | `clients` | which clients a turn is to look at |
//! | `front` | bytes of a client become requests, which go to a pool |
//! | `pools` | what each kind of pool does with a request |
//! | `pubsub` | clients subscribe and publish, at servers or in the store |
//! | `pending` | requests that take several exchanges |
//! | `upstream` | connections to servers, and the servers' health |
//! | `observe` | what is counted, logged and shown |
//! | `sessions` | clients come and leave, and their waits end |
//! | `follow` | the settings change: pools come and go |
//! | `leftovers` | counts of what is held for clients: zero once they have left |

mod clients;
mod connection;
mod follow;
mod front;
pub(crate) mod leftovers;
mod observe;
mod pending;
mod pools;
mod pubsub;
mod request;
mod rooms;
mod sessions;
mod upstream;

use crate::core::pools::store::state::Looked;
use crate::core::request::RequestBuffers;
pub use front::cut_off::CutOff;
pub use observe::figures::Figures;
pub(crate) use pools::store::Departing;
pub use pools::store::repeat_function_command;

use crate::Plan;
pub(crate) use connection::{Connection, Connections};
pub(crate) use front::rights::Loss;
use keyway_base::{Clock, Key, Slab, Time};
use keyway_command::Verb;
use keyway_metrics::WorkerCells;
pub(crate) use keyway_proxy::ConnectionKey;
use keyway_proxy::Session;
use pools::PoolState;
use pools::{cluster, memcached, routed};
pub(crate) use pubsub::SubscriberIndex;
use std::sync::Arc;

/// Number of unsent bytes from which a link does not wait for the end of the turn. A larger batch
/// saves nothing (the kernel cuts it into segments of 64 KiB or less), and its buffer would leave
/// the processor's cache and the allocator's heap.
const SEND_EARLY_LEN: usize = 64 << 10;

/// A worker without its sockets.
pub struct Core {
    pub(crate) sessions: Slab<Session>,
    pub(crate) links: Connections,
    pub(crate) plane: Plane,
}

/// The state that requests and replies need, besides sessions and links.
pub(crate) struct Plane {
    pub(crate) plan: Arc<Plan>,
    /// The retired pools of which nothing is left here.
    ended: Vec<u16>,
    pub(crate) cells: WorkerCells,
    pub(crate) clock: Clock,
    pools: Vec<PoolState>,
    /// The earliest time at which [`Core::handle_timeouts`] has to act.
    pub(crate) next_deadline: Option<Time>,
    /// Number of requests parsed in this turn.
    pub(crate) batch: u64,
    /// The last request in the bytes that are being parsed.
    last_verb: Option<Verb>,
    /// `None` while a request is read with them.
    buffers: Option<Box<RequestBuffers>>,
    keys: Vec<u32>,
    scratch: Vec<u8>,
    /// True while a client of another process is brought into its state: no hold concerns that.
    is_restoring: bool,
    memcached: memcached::State,
    cluster: cluster::State,
    pub(crate) routes: routed::State,
    random: u64,
    /// Clients that must be handled.
    pub(crate) clients: clients::State,
    /// Connections to servers.
    pub(crate) upstream: upstream::State,
    /// Requests that take several exchanges.
    pending: pending::State,
    /// The embedded stores.
    pub(crate) store: pools::store::State,
    /// The state that pools with servers have in common.
    pub(crate) servers: pools::servers::State,
    /// Subscriptions.
    pub(crate) pubsub: pubsub::PubSub,
    /// Requests that are counted, logged and shown.
    pub(crate) observe: observe::State,
}

impl Core {
    /// Creates the core of a worker. `seed` is for random choices.
    pub(crate) fn new(plan: Arc<Plan>, cells: WorkerCells, seed: u64) -> Self {
        let mut links = Connections::default();
        let mut pools = Vec::new();
        for index in 0..plan.pools.len() {
            pools.push(PoolState::new(&plan, index, &mut links));
        }
        let cluster = cluster::State::new(&plan);
        let upstream = upstream::State::new(&plan);
        let pubsub = pubsub::PubSub::new(&plan);
        let observe = observe::State::new(&plan);
        let plane = Plane {
            ended: plan.retired.iter().map(|retired| retired.pool).collect(),
            plan,
            cells,
            clock: Clock::default(),
            pools,
            next_deadline: None,
            batch: 0,
            last_verb: None,
            buffers: None,
            keys: Vec::new(),
            scratch: Vec::new(),
            is_restoring: false,
            memcached: memcached::State::default(),
            cluster,
            clients: clients::State::default(),
            upstream,
            pending: pending::State::default(),
            store: pools::store::State::default(),
            servers: pools::servers::State::default(),
            pubsub,
            observe,
            routes: routed::State::default(),
            random: seed | 1,
        };
        let mut core = Self { sessions: Slab::new(), links, plane };
        core.plane.store.logs.follow(&core.plane.plan);
        let all: Vec<ConnectionKey> = core.links.with_keys().map(|(key, _)| key).collect();
        core.preconnect(all);
        core
    }

    /// Sets the time. It must be called after each poll, before anything else.
    pub(crate) fn set_clock(&mut self, clock: Clock) {
        self.plane.observe.served.on_poll(clock.now);
        self.plane.store.looked = Looked { at: clock.now, requests: self.plane.batch };
        self.plane.clock = clock;
    }

    /// Returns both clocks of this turn.
    pub fn clock(&self) -> Clock {
        self.plane.clock
    }

    /// Notes that a link has something to send.
    pub(crate) fn mark_link_dirty(&mut self, index: ConnectionKey) {
        let Core { links, plane, .. } = self;
        plane.mark_link_dirty(index, &mut links[index]);
    }

    /// Frees memory that one huge request needed.
    pub(crate) fn trim(&mut self) {
        /// Number of elements that are kept. A request with more is rare.
        const KEPT_MAX: usize = 16 << 10;
        let plane = &mut self.plane;
        if let Some(buffers) = &mut plane.buffers {
            buffers.trim(KEPT_MAX);
        }
        if plane.keys.capacity() > KEPT_MAX {
            plane.keys = Vec::new();
        }
        if plane.scratch.capacity() > KEPT_MAX {
            plane.scratch = Vec::new();
        }
        self.trim_rooms(KEPT_MAX);
        if self.sessions.is_empty() {
            self.give_back();
            self.links.iter_mut().for_each(|it| it.link.give_back_memory());
        }
    }

    /// Tells clients of what was changed in a pool's store by no worker.
    pub(crate) fn tell_changed(&mut self, pool: u16) {
        let plan = Arc::clone(&self.plane.plan);
        let store = plan.pools.get(usize::from(pool)).and_then(|pool| pool.kind.store());
        if let Some(store) = store
            && store.notifies()
        {
            self.plane.settle_upkeep(pool, store);
        }
    }

    /// Runs the upkeep of the embedded stores, such as expiry. A call does a bounded part of it.
    /// Returns whether there is more to do at once.
    #[must_use = "there may be more to do at once"]
    pub(crate) fn tick(&mut self) -> bool {
        let mut more = false;
        let plan = Arc::clone(&self.plane.plan);
        for (index, pool) in plan.pools.iter().enumerate() {
            if let Some(store) = pool.kind.store() {
                more |= store.tick(self.plane.clock);
                if store.notifies() {
                    self.plane.settle_upkeep(index as u16, store);
                    more |= self.plane.sweep_trackers(index as u16);
                }
            }
        }
        self.tell_late();
        more
    }
}

impl Plane {
    /// Returns the index of this worker.
    fn worker(&self) -> u16 {
        self.cells.index() as u16
    }

    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    #[inline]
    pub(crate) fn mark_session_dirty(&mut self, key: Key<Session>, session: &mut Session) {
        if !session.is_dirty {
            session.is_dirty = true;
            match session.sub_request {
                None => self.clients.dirty.push(key),
                Some(_) => self.routes.on_sub_request_dirty(key),
            }
        }
    }

    #[inline]
    fn mark_session_resuming(&mut self, key: Key<Session>, session: &mut Session) {
        if !session.is_resuming {
            session.is_resuming = true;
            self.clients.resuming.push(key);
        }
    }

    #[inline]
    fn mark_link_dirty(&mut self, index: ConnectionKey, connection: &mut Connection) {
        if !connection.link.is_dirty {
            connection.link.is_dirty = true;
            self.upstream.dirty_links.push(index);
        }
    }

    /// Handles a request that was appended to a link's output. It must be called after that.
    #[inline]
    fn note_unsent(&mut self, index: ConnectionKey, connection: &Connection) {
        if connection.link.unsent_len() >= SEND_EARLY_LEN
            && self.upstream.full_links.last() != Some(&index)
        {
            self.upstream.full_links.push(index);
        }
    }

    fn note_deadline(&mut self, deadline: Option<Time>) {
        if let Some(deadline) = deadline {
            self.next_deadline =
                Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
