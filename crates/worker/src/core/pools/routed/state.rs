//! The state that a worker holds about requests that lead to other pools.

use crate::{Plan, PoolKind, RoutePlan};
use keyway_base::{Key, Time};
use keyway_command::{Across, Flags, Handling, Request, Verb};
use keyway_memcache::{Dialect, Head, RequestFlags, Wire};
use keyway_proxy::route_policy::{
    Nature, Part, RoutedRequest, Speech, SubRequest, SubRequestFor, memcached,
};
use keyway_proxy::{Identity, Operation, Session};
use keyway_resp::Protocol;
use keyway_topology::{DEPTH_MAX, ReadWriteSplitPool};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of requests that stalled sub-requests of one level keep before others wait.
pub(super) const STALLED_MAX: usize = 64 << 20;

/// Sub-requests of one level before others wait. Larger lets nested pools take more memory;
/// smaller has requests wait that slow nobody.
pub(super) const SUB_REQUESTS_MAX: u32 = 32 << 10;

/// Bytes of requests that routed requests of one worker hold before clients wait. Larger lets
/// slow children hold more memory; smaller stops clients of fast ones.
pub(in crate::core::pools::routed) const HELD_MAX: usize = 64 << 20;

/// Routed requests of one worker before clients wait.
pub(in crate::core::pools::routed) const ROUTED_REQUESTS_MAX: usize = 32 << 10;

/// Bytes of copies on their way to shadows before more are dropped.
pub(in crate::core::pools::routed) const SHADOWS_HELD_MAX: usize = 16 << 20;

/// The state that a worker needs for pools that lead to others.
#[derive(Default)]
pub(crate) struct State {
    /// Bytes that routed requests hold.
    pub(in crate::core::pools::routed) held: usize,
    /// Requests that are to be sent once they may be.
    pub(in crate::core::pools::routed) queues: Queues,
    /// Sub-requests that may have their reply.
    pub(in crate::core::pools::routed) dirty: VecDeque<Key<Session>>,
    /// Sub-requests at rest.
    pub(in crate::core::pools::routed) free: Vec<Session>,
    /// Sub-requests on their way.
    pub(in crate::core::pools::routed) sub_requests: usize,
    /// Clients that wait for routed requests to end, and until when; each is there once at most.
    pub(in crate::core::pools::routed) waiting: Vec<(Key<Session>, Time)>,
    /// Copies that are to be sent.
    pub(in crate::core::pools::routed) copies: VecDeque<UnsentSubRequest>,
    /// Copies of each pool on their way, by its position.
    pub(in crate::core::pools::routed) shadows: Vec<u32>,
    pub(in crate::core::pools::routed) shadows_held: usize,
    /// Pools on the way of the request that is looked at.
    pub(in crate::core::pools::routed) passed: Vec<u16>,
    /// The pools among `passed` that are to copy the request.
    pub(in crate::core::pools::routed) copying: Vec<u16>,
    /// Positions of the request's keys.
    pub(in crate::core::pools::routed) keys: Vec<u32>,
}

impl State {
    /// A sub-request has output or is at its end.
    pub(in crate::core) fn on_sub_request_dirty(&mut self, key: Key<Session>) {
        self.dirty.push_back(key);
    }

    /// Returns whether [`Core::continue_routes`] has something to do.
    pub(crate) fn has_steps(&self) -> bool {
        !self.dirty.is_empty() || !self.copies.is_empty() || self.queues.have_work()
    }

    /// Bytes that routed requests and copies hold.
    pub(in crate::core) fn held(&self) -> usize {
        self.held + self.shadows_held + self.shadows.iter().sum::<u32>() as usize
    }

    /// Number of questions that are still to be asked, and of clients that wait for room.
    pub(in crate::core) fn queued(&self) -> usize {
        self.queues.len() + self.dirty.len() + self.copies.len() + self.waiting.len()
    }

    /// Number of sub-requests on their way.
    pub(in crate::core) fn sub_requests(&self) -> usize {
        self.sub_requests
    }

    /// Counts what a routed request holds now.
    pub(in crate::core::pools::routed) fn count_held(
        &mut self,
        routed_request: &mut RoutedRequest,
    ) {
        let held = routed_request.held();
        self.held = self.held + held - std::mem::replace(&mut routed_request.counted, held);
    }
}

/// The parts of a request. For each key there is its part and its index in that part. A request
/// that is not divided has none of these.
pub(in crate::core::pools::routed) type Lots = (Vec<Part>, Vec<(u16, u32)>);

/// The protocol of a sub-request.
#[derive(Clone, Copy)]
pub(in crate::core) enum Language {
    Redis(Protocol),
    Memcached { wire: Wire, item_len_max: u32 },
}

impl Language {
    pub(in crate::core::pools::routed) fn of_routed_request(
        routed_request: &RoutedRequest,
    ) -> Language {
        match routed_request.speech {
            Speech::Redis { protocol, .. } => Language::Redis(protocol),
            Speech::Memcached { wire, item_len_max, .. } => {
                Language::Memcached { wire, item_len_max }
            }
        }
    }
}

/// On whose behalf is asked.
#[derive(Clone, Copy)]
pub(in crate::core) struct Whose {
    /// The client.
    pub(in crate::core::pools::routed) client: Key<Session>,
    /// How many routed requests are above.
    pub(in crate::core::pools::routed) level: u8,
    /// Which of the connections to a server it takes.
    pub(in crate::core::pools::routed) lane: u32,
    pub(in crate::core::pools::routed) language: Language,
}

impl Whose {
    /// Returns the owner for the requests of a session, which may be a sub-request itself.
    pub(in crate::core) fn of(key: Key<Session>, session: &Session, language: Language) -> Whose {
        let (client, level) = above(key, session);
        Whose { client, level, lane: session.lane, language }
    }

    pub(in crate::core::pools::routed) fn of_routed_request(
        routed_request: &RoutedRequest,
    ) -> Whose {
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
    /// To a store or servers, at once.
    Leaf(u16),
    /// Over the children of this pool.
    Over(u16),
    /// Nowhere: this pool has no prefix for its key.
    NoPrefix(u16),
    /// Nowhere: too many come to this pool.
    Limited(u16),
}

/// Returns the key that stands for a client where its copies are sent. The copies keep their order
/// among each other, and no request waits for them.
pub(in crate::core::pools::routed) fn shadow_of(client: Key<Session>) -> Key<Session> {
    // No slab hands out a key with this bit.
    Key::from_bits(client.to_bits() | 1 << 63)
}

/// The client that one that may stand for it does stand for.
pub(in crate::core) fn client_behind(client: Key<Session>) -> Key<Session> {
    Key::from_bits(client.to_bits() & !(1 << 63))
}

/// The client on whose behalf a session asks, and the routed requests above.
pub(in crate::core) fn above(key: Key<Session>, session: &Session) -> (Key<Session>, u8) {
    session.sub_request.map_or((key, 0), |sub_request| (sub_request.client, sub_request.level + 1))
}

/// The plan of a pool that leads to others.
pub(in crate::core::pools::routed) fn routes_of(plan: &Plan, pool: u16) -> Option<&RoutePlan> {
    match &plan.pools[usize::from(pool)].kind {
        PoolKind::Routed(routes) => Some(routes),
        _ => None,
    }
}

/// What a pool that separates reads from writes has to know of a request and its client.
pub(in crate::core) struct Wants<'s> {
    pub(in crate::core::pools::routed) reads: bool,
    /// It is right only where is written.
    pub(in crate::core::pools::routed) is_bound: bool,
    /// Its command, of Redis.
    pub(in crate::core::pools::routed) name: &'static str,
    pub(in crate::core::pools::routed) identity: &'s mut Identity,
    /// Index that its reply is to have.
    pub(in crate::core::pools::routed) reply_index: u32,
}

impl<'s> Wants<'s> {
    pub(in crate::core::pools::routed) fn of(
        request: &Request,
        identity: &'s mut Identity,
        reply_index: u32,
    ) -> Wants<'s> {
        // Cursors are about the table of one server.
        let is_bound = matches!(request.command.verb, Verb::Hscan | Verb::Sscan | Verb::Zscan);
        let reads = request.command.flags.contains(Flags::READONLY);
        Wants { reads, is_bound, name: request.command.name, identity, reply_index }
    }

    pub(in crate::core) fn of_memcached(
        head: Head,
        identity: &'s mut Identity,
        reply_index: u32,
    ) -> Wants<'s> {
        // A number for cas is of the server that gave it; packets always have one.
        let is_bound = head.asked.has(RequestFlags::CAS) || head.dialect == Dialect::Binary;
        let reads = memcached::nature_of(&head) == Nature::Read;
        Wants { reads, is_bound, name: "", identity, reply_index }
    }

    /// Returns whether the request goes to the pool that is read. Notes a request that writes.
    pub(in crate::core::pools::routed) fn is_read_by(
        &mut self,
        split: &ReadWriteSplitPool,
        now: Time,
    ) -> bool {
        if !self.reads {
            self.note_write(split, now);
            return false;
        }
        let is_pinned = split.pin_after_write.is_some() && now < self.identity.reads_primary_until;
        let is_named = || split.write_commands.iter().any(|name| **name == *self.name);
        !is_pinned && !self.is_bound && !is_named()
    }

    pub(in crate::core::pools::routed) fn note_write(
        &mut self,
        split: &ReadWriteSplitPool,
        now: Time,
    ) {
        if let Some(pin) = split.pin_after_write {
            self.identity.pin_for(pin, self.reply_index, now);
        }
    }
}

/// Returns whether a request needs a connection, or a state, of the client's own.
pub(in crate::core::pools::routed) fn needs_connection(request: &Request) -> bool {
    match request.handling() {
        Handling::Transaction | Handling::Block | Handling::PubSub => true,
        Handling::Local => request.command.verb == Verb::Wait,
        _ => false,
    }
}

/// Returns whether a request that names no key, or runs a script, may write.
pub(in crate::core::pools::routed) fn may_write(request: &Request) -> bool {
    let is_script = matches!(request.handling(), Handling::Across(Across::Run));
    let only_reads = matches!(request.command.verb, Verb::EvalRo | Verb::EvalshaRo | Verb::FcallRo);
    (is_script && !only_reads) || request.command.flags.contains(Flags::WRITE)
}

/// What a sub-request is to ask, in words of its own.
pub(in crate::core::pools::routed) struct UnsentSubRequest {
    pub(in crate::core::pools::routed) sub_request: SubRequestFor,
    pub(in crate::core::pools::routed) whose: Whose,
    /// The pool that is asked.
    pub(in crate::core::pools::routed) pool: u16,
    pub(in crate::core::pools::routed) bytes: Vec<u8>,
}

/// What is to be asked.
pub(in crate::core::pools::routed) enum Question {
    /// A part of a routed request, of a station: it has the words.
    OfRoutedRequest {
        routed_request: Key<Operation>,
        part: u16,
        station: u8,
    },
    Own(UnsentSubRequest),
}

/// A question that waits.
pub(in crate::core::pools::routed) struct Queued {
    /// The time since which it waits.
    pub(in crate::core::pools::routed) since: Time,
    pub(in crate::core::pools::routed) question: Question,
}

#[derive(Default)]
pub(in crate::core::pools::routed) struct Level {
    pub(in crate::core::pools::routed) sub_requests: u32,
    /// Bytes that stalled sub-requests keep.
    pub(in crate::core::pools::routed) stalled: usize,
    /// Routed requests that are to begin.
    pub(in crate::core::pools::routed) due: VecDeque<Key<Operation>>,
    /// Requests of routed requests that have already begun.
    pub(in crate::core::pools::routed) later: VecDeque<Queued>,
}

impl Level {
    pub(in crate::core::pools::routed) fn has_room(&self) -> bool {
        self.sub_requests < SUB_REQUESTS_MAX && self.stalled < STALLED_MAX
    }

    pub(in crate::core::pools::routed) fn has_work(&self) -> bool {
        let has_any = !self.due.is_empty() || !self.later.is_empty();
        has_any && self.has_room()
    }
}

/// A client, and a pool that is asked on its behalf.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core::pools::routed) struct Path {
    /// The session's key, as bits, because keys have no order.
    client: u64,
    pool: u16,
}

impl Path {
    pub(in crate::core::pools::routed) fn new(client: Key<Session>, pool: u16) -> Path {
        Path { client: client.to_bits(), pool }
    }
}

/// The requests that wait behind stalled sub-requests.
#[derive(Default)]
pub(in crate::core::pools::routed) struct Stall {
    pub(in crate::core::pools::routed) sub_requests: u32,
    /// How many of these sub-requests have sent their request.
    pub(in crate::core::pools::routed) sent: u32,
    pub(in crate::core::pools::routed) behind: VecDeque<Queued>,
}

/// Requests that are to be sent once they may be.
#[derive(Default)]
pub(in crate::core::pools::routed) struct Queues {
    pub(in crate::core::pools::routed) levels: [Level; DEPTH_MAX],
    /// Routed requests that are due and questions for later, of all levels.
    pub(in crate::core::pools::routed) queued: usize,
    pub(in crate::core::pools::routed) stalls: BTreeMap<Path, Stall>,
    /// Paths whose stalls may be over.
    pub(in crate::core::pools::routed) freed: Vec<Path>,
}

impl Queues {
    pub(in crate::core::pools::routed) fn have_work(&self) -> bool {
        !self.freed.is_empty() || (self.queued > 0 && self.levels.iter().any(Level::has_work))
    }

    pub(in crate::core::pools::routed) fn add_due(
        &mut self,
        level: u8,
        routed_request: Key<Operation>,
    ) {
        self.queued += 1;
        self.level(level).due.push_back(routed_request);
    }

    pub(in crate::core::pools::routed) fn level(&mut self, level: u8) -> &mut Level {
        // No pool leads over more than there are levels.
        &mut self.levels[usize::from(level).min(DEPTH_MAX - 1)]
    }

    pub(in crate::core::pools::routed) fn end_sub_request(&mut self, sub_request: &SubRequest) {
        // Copies have bounds of their own.
        if !matches!(sub_request.purpose, SubRequestFor::Shadow { .. }) {
            let level = self.level(sub_request.level);
            level.sub_requests = level.sub_requests.saturating_sub(1);
        }
    }

    pub(in crate::core::pools::routed) fn on_stalled(&mut self, path: Path, level: u8, len: u32) {
        self.level(level).stalled += len as usize;
        let stall = self.stalls.entry(path).or_default();
        stall.sub_requests += 1;
        stall.sent += u32::from(len == 0);
    }

    /// Returns whether a stalled sub-request on the path has sent its request, so that the next one
    /// has to wait for it.
    pub(in crate::core::pools::routed) fn has_sent(&self, path: Path) -> bool {
        self.stalls.get(&path).is_some_and(|stall| stall.sent > 0)
    }

    pub(in crate::core::pools::routed) fn are_stalled(&self) -> bool {
        !self.stalls.is_empty()
    }

    /// A sub-request's request is on its way, or it has ended.
    pub(in crate::core::pools::routed) fn on_freed(&mut self, path: Path, level: u8, len: u32) {
        let level = self.level(level);
        level.stalled = level.stalled.saturating_sub(len as usize);
        let Some(stall) = self.stalls.get_mut(&path) else { return };
        stall.sub_requests -= 1;
        stall.sent -= u32::from(len == 0);
        if stall.sub_requests == 0 {
            self.freed.push(path);
        }
    }

    /// The waiting questions that have words of their own.
    pub(in crate::core::pools::routed) fn unsent(&self) -> impl Iterator<Item = &UnsentSubRequest> {
        let later = self.levels.iter().flat_map(|level| &level.later);
        let behind = self.stalls.values().flat_map(|stall| &stall.behind);
        later.chain(behind).filter_map(|queued| match &queued.question {
            Question::Own(purpose) => Some(purpose),
            Question::OfRoutedRequest { .. } => None,
        })
    }

    /// Number of waiting questions, stalled paths and sub-requests.
    pub(in crate::core::pools::routed) fn len(&self) -> usize {
        let of_level = |level: &Level| level.sub_requests as usize + level.stalled;
        self.queued + self.stalls.len() + self.levels.iter().map(of_level).sum::<usize>()
    }

    /// Takes the next request on a path on which nothing is stalled.
    pub(in crate::core::pools::routed) fn next_behind(&mut self, path: Path) -> Option<Queued> {
        let stall = self.stalls.get_mut(&path).filter(|stall| stall.sub_requests == 0)?;
        let next = stall.behind.pop_front();
        if next.is_none() {
            self.stalls.remove(&path);
        }
        next
    }
}

/// Returns whether a session brings a request on whose end something of this pool depends.
pub(in crate::core) fn reports_to(session: &Session, pool: u16) -> bool {
    session.sub_request.as_ref().is_some_and(|sub_request| is_for(sub_request.purpose, pool))
}

/// Returns whether the reply of such a sub-request is counted by this pool.
pub(in crate::core::pools::routed) fn is_for(sub_request: SubRequestFor, pool: u16) -> bool {
    match sub_request {
        SubRequestFor::Fill(own) | SubRequestFor::Shadow { pool: own, .. } => own == pool,
        // A routed request names its pool itself.
        SubRequestFor::Ask { .. } | SubRequestFor::TimeLeft { .. } | SubRequestFor::Nobody => false,
    }
}

impl UnsentSubRequest {
    pub(in crate::core::pools::routed) fn names(&self, pool: u16) -> bool {
        self.pool == pool || is_for(self.sub_request, pool)
    }
}
