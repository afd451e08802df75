//! The state that a worker holds about requests that lead to other pools.

use crate::{Plan, PoolKind, RoutePlan};
use keyway_base::{Key, Time};
use keyway_command::{Across, Flags, Handling, Request, Verb};
use keyway_memcache::{Dialect, Head, RequestFlags, Wire};
use keyway_proxy::route_policy::{
    KeyOwner, Nature, Part, RoutedRequest, Speech, SubRequest, SubRequestFor, memcached,
};
use keyway_proxy::{Identity, Operation, Session};
use keyway_resp::Protocol;
use keyway_topology::{DEPTH_MAX, ReadWriteSplitPool};
use std::collections::{BTreeMap, VecDeque};

/// Number of bytes that stalled sub-requests of one level keep before others wait.
pub(super) const STALLED_MAX: usize = 64 << 20;

/// Number of sub-requests of one level before others wait. With more, nested pools could take more
/// memory. With fewer, requests would wait although no server is slow.
pub(super) const SUB_REQUESTS_MAX: u32 = 32 << 10;

/// Number of bytes that routed requests of one worker hold before clients wait. With more, slow
/// children could hold more memory. With fewer, clients of fast children would stop.
pub(super) const HELD_MAX: usize = 64 << 20;

/// Number of routed requests of one worker before clients wait.
pub(super) const ROUTED_REQUESTS_MAX: usize = 32 << 10;

/// Number of bytes of copies in flight to shadows before more copies are dropped.
pub(super) const SHADOWS_HELD_MAX: usize = 16 << 20;

/// The state that a worker needs for pools that lead to others.
#[derive(Default)]
pub(crate) struct State {
    /// Number of bytes that routed requests hold.
    pub(super) held: usize,
    /// Questions that wait to be sent.
    pub(super) queues: Queues,
    /// Sub-requests that may have their reply.
    pub(super) dirty: VecDeque<Key<Session>>,
    /// Sub-requests at rest.
    pub(super) free: Vec<Session>,
    /// Number of sub-requests in flight.
    pub(super) sub_requests: usize,
    /// Clients that wait for routed requests to end, with the end of their wait. Each client occurs
    /// at most once.
    pub(super) waiting: Vec<(Key<Session>, Time)>,
    /// Copies that wait to be sent.
    pub(super) copies: VecDeque<UnsentSubRequest>,
    /// Number of copies in flight of each pool, by its index.
    pub(super) shadows: Vec<u32>,
    pub(super) shadows_held: usize,
    /// Pools that the current request has passed.
    pub(super) passed: Vec<u16>,
    /// The pools among `passed` that copy the request.
    pub(super) copying: Vec<u16>,
    /// Indices of the arguments that are the request's keys.
    pub(super) keys: Vec<u32>,
}

impl State {
    /// Notes that a sub-request has output or has ended.
    pub(in crate::core) fn on_sub_request_dirty(&mut self, key: Key<Session>) {
        self.dirty.push_back(key);
    }

    /// Returns whether [`Core::continue_routes`] has something to do.
    pub(in crate::core) fn has_steps(&self) -> bool {
        !self.dirty.is_empty() || !self.copies.is_empty() || self.queues.have_work()
    }

    /// Returns the number of bytes that routed requests and copies hold.
    pub(in crate::core) fn held(&self) -> usize {
        self.held + self.shadows_held + self.shadows.iter().sum::<u32>() as usize
    }

    /// Adds a client to those that wait for room, at most until a time.
    pub(in crate::core) fn await_room(&mut self, key: Key<Session>, until: Option<Time>) {
        self.waiting.push((key, until.unwrap_or(Time(u64::MAX))));
    }

    /// Returns the number of waiting questions, and of clients that wait for room.
    pub(in crate::core) fn queued(&self) -> usize {
        self.queues.len() + self.dirty.len() + self.copies.len() + self.waiting.len()
    }

    /// Returns the number of sub-requests in flight.
    pub(in crate::core) fn sub_requests(&self) -> usize {
        self.sub_requests
    }

    /// Counts the bytes that a routed request holds now.
    pub(super) fn count_held(&mut self, routed_request: &mut RoutedRequest) {
        let held = routed_request.held();
        self.held = self.held + held - std::mem::replace(&mut routed_request.counted, held);
    }
}

/// The parts of a request, and the owner of each key. A request that is not divided has no owners.
pub(super) type Lots = (Vec<Part>, Vec<KeyOwner>);

/// The protocol of a sub-request.
#[derive(Clone, Copy)]
pub(in crate::core) enum Language {
    Redis(Protocol),
    Memcached { wire: Wire, item_len_max: u32 },
}

impl Language {
    fn of_routed_request(routed_request: &RoutedRequest) -> Language {
        match routed_request.speech {
            Speech::Redis { protocol, .. } => Language::Redis(protocol),
            Speech::Memcached { wire, item_len_max, .. } => {
                Language::Memcached { wire, item_len_max }
            }
        }
    }
}

/// The client for which a sub-request asks.
#[derive(Clone, Copy)]
pub(in crate::core) struct Whose {
    /// The client.
    pub(super) client: Key<Session>,
    /// Number of routed requests above.
    pub(super) level: u8,
    /// The lane of the connection to a server.
    pub(super) lane: u32,
    pub(super) language: Language,
}

impl Whose {
    /// Returns the owner for the requests of a session, which may be a sub-request itself.
    pub(in crate::core::pools) fn of(
        key: Key<Session>,
        session: &Session,
        language: Language,
    ) -> Whose {
        let (client, level) = above(key, session);
        Whose { client, level, lane: session.lane, language }
    }

    pub(super) fn of_routed_request(routed_request: &RoutedRequest) -> Whose {
        let language = Language::of_routed_request(routed_request);
        Whose {
            client: routed_request.client,
            level: routed_request.level,
            lane: routed_request.lane,
            language,
        }
    }
}

/// The pool that a request goes to.
pub(in crate::core) enum Destination {
    /// A store or servers.
    Leaf(u16),
    /// The children of this pool.
    Over(u16),
    /// No pool, because this pool has no prefix for the key.
    NoPrefix(u16),
    /// No pool, because too many requests come to this pool.
    Limited(u16),
}

/// Returns the key under which copies of a client's requests are sent. The copies keep their order
/// among each other, and no request waits for them.
pub(super) fn shadow_of(client: Key<Session>) -> Key<Session> {
    // No slab hands out a key with this bit.
    Key::from_bits(client.to_bits() | 1 << 63)
}

/// Returns the client behind a key, which may be a key for copies.
pub(in crate::core) fn client_behind(client: Key<Session>) -> Key<Session> {
    Key::from_bits(client.to_bits() & !(1 << 63))
}

/// Returns the client for which a session asks, and the number of routed requests above.
pub(in crate::core) fn above(key: Key<Session>, session: &Session) -> (Key<Session>, u8) {
    session.sub_request.map_or((key, 0), |sub_request| (sub_request.client, sub_request.level + 1))
}

/// Returns the plan of a pool that leads to others.
pub(super) fn routes_of(plan: &Plan, pool: u16) -> Option<&RoutePlan> {
    match &plan.pools[usize::from(pool)].kind {
        PoolKind::Routed(routes) => Some(routes),
        _ => None,
    }
}

/// Facts about a request and its client that a pool needs to separate reads from writes.
pub(in crate::core) struct Wants<'s> {
    pub(super) reads: bool,
    /// True if the request is right only in the pool that writes.
    pub(super) is_bound: bool,
    /// The name of its Redis command.
    pub(super) name: &'static str,
    pub(super) identity: &'s mut Identity,
    /// Index that its reply is to have.
    pub(super) reply_index: u32,
}

impl<'s> Wants<'s> {
    pub(super) fn of(request: &Request, identity: &'s mut Identity, reply_index: u32) -> Wants<'s> {
        // Cursors refer to the table of one server.
        let is_bound = matches!(request.command.verb, Verb::Hscan | Verb::Sscan | Verb::Zscan);
        let reads = request.command.flags.contains(Flags::READONLY);
        Wants { reads, is_bound, name: request.command.name, identity, reply_index }
    }

    pub(in crate::core::pools) fn of_memcached(
        head: Head,
        identity: &'s mut Identity,
        reply_index: u32,
    ) -> Wants<'s> {
        // A cas number is valid at the server that gave it. Binary requests always have one.
        let is_bound = head.asked.has(RequestFlags::CAS) || head.dialect == Dialect::Binary;
        let reads = memcached::nature_of(&head) == Nature::Read;
        Wants { reads, is_bound, name: "", identity, reply_index }
    }

    /// Returns whether the request goes to the pool that is read. Notes a request that writes.
    pub(super) fn is_read_by(&mut self, split: &ReadWriteSplitPool, now: Time) -> bool {
        if !self.reads {
            self.note_write(split, now);
            return false;
        }
        let is_pinned = split.pin_after_write.is_some() && now < self.identity.reads_primary_until;
        let is_named = || split.write_commands.iter().any(|name| **name == *self.name);
        !is_pinned && !self.is_bound && !is_named()
    }

    pub(super) fn note_write(&mut self, split: &ReadWriteSplitPool, now: Time) {
        if let Some(pin) = split.pin_after_write {
            self.identity.pin_for(pin, self.reply_index, now);
        }
    }
}

/// Returns whether a request needs a connection, or a state, of the client's own.
pub(super) fn needs_connection(request: &Request) -> bool {
    match request.handling() {
        Handling::Transaction | Handling::Block | Handling::PubSub => true,
        Handling::Local => request.command.verb == Verb::Wait,
        _ => false,
    }
}

/// Returns whether a request that names no key, or runs a script, may write.
pub(super) fn may_write(request: &Request) -> bool {
    let is_script = matches!(request.handling(), Handling::Across(Across::Run));
    let only_reads = matches!(request.command.verb, Verb::EvalRo | Verb::EvalshaRo | Verb::FcallRo);
    (is_script && !only_reads) || request.command.flags.contains(Flags::WRITE)
}

/// A request of a sub-request, with its own bytes.
pub(super) struct UnsentSubRequest {
    pub(super) sub_request: SubRequestFor,
    pub(super) whose: Whose,
    /// The pool that is asked.
    pub(super) pool: u16,
    pub(super) bytes: Vec<u8>,
}

/// A question to a pool.
pub(super) enum Question {
    /// A part of a routed request asks a child, which `station` counts. The routed request has the
    /// bytes.
    OfRoutedRequest {
        routed_request: Key<Operation>,
        part: u16,
        station: u8,
    },
    Own(UnsentSubRequest),
}

/// A question that waits.
pub(super) struct Queued {
    /// The time since which it waits.
    pub(super) since: Time,
    pub(super) question: Question,
}

#[derive(Default)]
pub(super) struct Level {
    pub(super) sub_requests: u32,
    /// Number of bytes that stalled sub-requests keep.
    pub(super) stalled: usize,
    /// Routed requests that are to begin.
    pub(super) due: VecDeque<Key<Operation>>,
    /// Requests of routed requests that have already begun.
    pub(super) later: VecDeque<Queued>,
}

impl Level {
    pub(super) fn has_room(&self) -> bool {
        self.sub_requests < SUB_REQUESTS_MAX && self.stalled < STALLED_MAX
    }

    fn has_work(&self) -> bool {
        let has_any = !self.due.is_empty() || !self.later.is_empty();
        has_any && self.has_room()
    }
}

/// A client, and a pool that is asked on its behalf.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path {
    /// The session's key, as bits, because keys have no order.
    client: u64,
    pool: u16,
}

impl Path {
    pub(super) fn new(client: Key<Session>, pool: u16) -> Path {
        Path { client: client.to_bits(), pool }
    }
}

/// The requests that wait behind stalled sub-requests.
#[derive(Default)]
pub(super) struct Stall {
    pub(super) sub_requests: u32,
    /// Number of these sub-requests that have sent their request.
    pub(super) sent: u32,
    pub(super) behind: VecDeque<Queued>,
}

/// Questions that wait to be sent.
#[derive(Default)]
pub(super) struct Queues {
    pub(super) levels: [Level; DEPTH_MAX],
    /// Number of due routed requests and of questions for later, of all levels.
    pub(super) queued: usize,
    pub(super) stalls: BTreeMap<Path, Stall>,
    /// Paths whose stalls may be over.
    pub(super) freed: Vec<Path>,
}

impl Queues {
    fn have_work(&self) -> bool {
        !self.freed.is_empty() || (self.queued > 0 && self.levels.iter().any(Level::has_work))
    }

    pub(super) fn add_due(&mut self, level: u8, routed_request: Key<Operation>) {
        self.queued += 1;
        self.level(level).due.push_back(routed_request);
    }

    pub(super) fn level(&mut self, level: u8) -> &mut Level {
        // No pool leads to others through more pools than there are levels.
        &mut self.levels[usize::from(level).min(DEPTH_MAX - 1)]
    }

    pub(super) fn end_sub_request(&mut self, sub_request: &SubRequest) {
        // Copies have bounds of their own.
        if !matches!(sub_request.purpose, SubRequestFor::Shadow { .. }) {
            let level = self.level(sub_request.level);
            level.sub_requests = level.sub_requests.saturating_sub(1);
        }
    }

    pub(super) fn on_stalled(&mut self, path: Path, level: u8, len: u32) {
        self.level(level).stalled += len as usize;
        let stall = self.stalls.entry(path).or_default();
        stall.sub_requests += 1;
        stall.sent += u32::from(len == 0);
    }

    /// Returns whether a stalled sub-request on the path has sent its request, so that the next one
    /// has to wait for it.
    pub(super) fn has_sent(&self, path: Path) -> bool {
        self.stalls.get(&path).is_some_and(|stall| stall.sent > 0)
    }

    pub(super) fn are_stalled(&self) -> bool {
        !self.stalls.is_empty()
    }

    /// Handles that a stalled sub-request has sent its request, or has ended.
    pub(super) fn on_freed(&mut self, path: Path, level: u8, len: u32) {
        let level = self.level(level);
        level.stalled = level.stalled.saturating_sub(len as usize);
        let Some(stall) = self.stalls.get_mut(&path) else { return };
        stall.sub_requests -= 1;
        stall.sent -= u32::from(len == 0);
        if stall.sub_requests == 0 {
            self.freed.push(path);
        }
    }

    /// Returns the waiting questions that have bytes of their own.
    pub(super) fn unsent(&self) -> impl Iterator<Item = &UnsentSubRequest> {
        let later = self.levels.iter().flat_map(|level| &level.later);
        let behind = self.stalls.values().flat_map(|stall| &stall.behind);
        later.chain(behind).filter_map(|queued| match &queued.question {
            Question::Own(purpose) => Some(purpose),
            Question::OfRoutedRequest { .. } => None,
        })
    }

    /// Returns the number of waiting questions, stalled paths and sub-requests.
    pub(super) fn len(&self) -> usize {
        let of_level = |level: &Level| level.sub_requests as usize + level.stalled;
        self.queued + self.stalls.len() + self.levels.iter().map(of_level).sum::<usize>()
    }

    /// Takes the next request on a path without stalled sub-requests.
    pub(super) fn next_behind(&mut self, path: Path) -> Option<Queued> {
        let stall = self.stalls.get_mut(&path).filter(|stall| stall.sub_requests == 0)?;
        let next = stall.behind.pop_front();
        if next.is_none() {
            self.stalls.remove(&path);
        }
        next
    }
}

/// Returns whether this pool waits for the end of a session's request.
pub(in crate::core) fn reports_to(session: &Session, pool: u16) -> bool {
    session.sub_request.as_ref().is_some_and(|sub_request| is_for(sub_request.purpose, pool))
}

/// Returns whether this pool counts the reply of a sub-request.
fn is_for(sub_request: SubRequestFor, pool: u16) -> bool {
    match sub_request {
        SubRequestFor::Fill(own) | SubRequestFor::Shadow { pool: own, .. } => own == pool,
        // A routed request names its pool itself.
        SubRequestFor::Ask { .. } | SubRequestFor::TimeLeft { .. } | SubRequestFor::Nobody => false,
    }
}

impl UnsentSubRequest {
    pub(super) fn names(&self, pool: u16) -> bool {
        self.pool == pool || is_for(self.sub_request, pool)
    }
}
