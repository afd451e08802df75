//! The state that a worker holds about pools that find their servers while they serve.

use super::replicas::USERS;
use crate::cluster::SlotsFollower;
use crate::core::pools::cluster::hedging::HedgesState;
use crate::core::pools::cluster::hedging::Hedging;
use crate::core::pools::cluster::replicas::Readers;
use crate::{Cluster, Plan};
use keyway_base::{Key, Slab, Time};
use keyway_proxy::ConnectionKey;
use keyway_proxy::{Budget, Internal, Redirected, Session};
use keyway_resp::Protocol;
use keyway_route::ScanParts;
use keyway_topology::{
    ClusterMap, Discovery, Endpoint, InfoReplication, Ring, SLOT_COUNT, ServerId, SlotQuery,
    WatchedPrimary,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub(super) const NO_FRAGMENT: u16 = u16::MAX;

pub(super) const NO_KEY: u32 = u32::MAX;

/// The cluster-related state of a worker.
#[derive(Default)]
pub(in crate::core) struct State {
    /// How long the client whose requests are being started has waited for a primary in vain. Its
    /// requests do not wait any longer.
    pub(in crate::core) waited: Option<Duration>,
    /// Set when a request of that client was refused.
    pub(in crate::core) refused_in_vain: Cell<bool>,
    /// Indices of the pools that find their servers themselves.
    pub(super) pools: Vec<u16>,
    /// Replies of servers to the questions about their cluster, not yet looked at.
    pub(super) heard: Vec<Heard>,
    /// Indices of the pools of sentinels, each with the pool that the sentinels are asked about.
    pub(super) sentinels: BTreeMap<u16, u16>,
    /// The questions that servers have not answered yet, by the pool that they are about.
    pub(super) rounds: BTreeMap<u16, Round>,
    /// The servers that did not answer during a round, by pool and server index, each with the time
    /// until which this is remembered.
    pub(super) silent: BTreeMap<(u16, u16), Time>,
    /// The number of the latest question.
    pub(super) next_question: u32,
    /// Servers that have not answered a question, with the number of the question.
    pub(super) unanswered: Vec<(ServerId, u32)>,
    /// Requests to send again, in the order in which they were refused.
    pub(super) retries: Vec<Retry>,
    /// When the first of the retries is due, if there are any.
    pub(super) retries_due: Time,
    /// Requests for servers that are not known yet.
    pub(super) named: HeldBack,
    /// The servers that clients' requests were sent on to.
    pub(super) sent_on: SentOnOrder,
    /// Sessions that wait for the first map of their pool, or for a map in which their slot has a
    /// server.
    pub(super) waiting: Vec<Key<Session>>,
    /// When the wait of the first of these sessions ends.
    pub(super) waiting_due: Option<Time>,
    /// The waits of sessions for a slot to have a server or for a primary that is gone, including
    /// waits that ended in vain, by session. A session has at most one entry, which is removed with
    /// the session.
    pub(super) unowned: BTreeMap<u64, Wait>,
    /// The times since when refused requests are sent again, by session.
    pub(super) aside: BTreeMap<u64, Aside>,
    /// Set when the worker is ending. No client waits for a primary then.
    pub(super) is_draining: bool,
    /// Pools about which sentinels have sent messages.
    pub(super) told_about: Vec<u16>,
    /// When the worker next makes sure that it is subscribed at every sentinel.
    pub(super) next_listen: Time,
    /// Links to servers that have left, each with its generation: by the time the entry is looked
    /// at, another link may be at the same index.
    pub(super) leaving: Vec<(ConnectionKey, u32)>,
    /// Links with a blocking command that must wait at another server, each with its generation and
    /// the time at which its server has had long enough to end the command.
    pub(super) displaced: Vec<(Time, ConnectionKey, u32)>,
    /// The fences of slots that are not drained yet.
    pub(super) fences: Vec<super::fence::Draining>,
    pub(super) hedges: HedgesState,
    /// Host names that are being looked up.
    pub(super) names: Names,
    pub(in crate::core) split: Scratch,
}

impl State {
    /// Returns whether replies or missed questions wait to be looked at.
    #[inline]
    pub(in crate::core) fn has_heard(&self) -> bool {
        !self.heard.is_empty()
            || !self.unanswered.is_empty()
            || !self.told_about.is_empty()
            || self.named.has_missed()
    }

    /// Returns the number of reads that two servers were sent and neither has answered.
    pub(in crate::core) fn hedges(&self) -> usize {
        self.hedges.hedges.len()
    }

    pub(in crate::core) fn new(plan: &Plan) -> State {
        let is_cluster = |&index: &usize| {
            plan.retired(index as u16).is_none() && plan.pools[index].kind.cluster().is_some()
        };
        let pools = (0..plan.pools.len()).filter(is_cluster).map(|index| index as u16).collect();
        State { pools, sentinels: sentinels(plan), ..State::default() }
    }

    /// Frees memory that one huge request needed: lists keep at most `kept_max` elements.
    pub(in crate::core) fn trim_requests(&mut self, kept_max: usize) {
        self.split.trim(kept_max);
        self.hedges.trim(kept_max);
    }

    /// Takes on the pools of another version of the settings. Pools that are being ended are looked
    /// after until they have ended.
    pub(in crate::core) fn follow(&mut self, plan: &Plan) {
        let State { pools, sentinels, .. } = State::new(plan);
        let ending = self.pools.iter().filter(|&&pool| plan.retired(pool).is_some());
        let ending: Vec<u16> = ending.copied().collect();
        self.pools = [pools, ending].concat();
        self.sentinels = sentinels;
        self.told_about.retain(|pool| self.pools.contains(pool));
    }

    /// Returns the number of requests that are to be sent again or whose server is looked for, and
    /// of sessions that wait for a map.
    pub(in crate::core) fn held(&self) -> usize {
        self.retries.len()
            + self.named.held()
            + self.waiting.len()
            + self.unowned.len()
            + self.aside.len()
            + self.sent_on.len()
            + self.displaced.len()
            + self.fences.len()
    }

    /// Forgets a pool that has ended: the questions to its servers and what they answered. Another
    /// pool may take its index.
    pub(super) fn forget(&mut self, pool: u16) {
        self.pools.retain(|&other| other != pool);
        self.heard.retain(|heard| heard.server.pool != pool);
        self.rounds.remove(&pool);
        self.silent.retain(|&(other, _), _| other != pool);
        self.unanswered.retain(|(server, _)| server.pool != pool);
        self.told_about.retain(|&other| other != pool);
        self.named.forget(pool);
        self.sent_on.forget(pool);
        self.names.forget(pool);
        self.fences.retain(|draining| draining.pool != pool);
    }
}

/// A worker's state of one cluster.
pub(in crate::core) struct ClusterState {
    pub(in crate::core) shared: Arc<Cluster>,
    pub(in crate::core) map: Arc<ClusterMap>,
    /// The map of slots that this worker follows, for groups that share slots.
    pub(super) slots: Option<SlotsFollower>,
    /// The parts that a SCAN visits, by the map.
    pub(in crate::core) parts: Arc<ScanParts>,
    /// Indices of servers that gave no useful answer since another server last did. They may have
    /// left the cluster and still run.
    pub(super) misleading: Vec<u16>,
}

impl ClusterState {
    pub(in crate::core::pools) fn new(shared: &Arc<Cluster>) -> ClusterState {
        let map = shared.map();
        let parts = Arc::new(parts_of(&map));
        let slots = shared.moving().map(|moving| moving.follow());
        ClusterState { shared: Arc::clone(shared), map, slots, parts, misleading: Vec::new() }
    }

    /// Returns whether the keys have slots, so that a request's keys must share one.
    pub(in crate::core) fn has_slots(&self) -> bool {
        self.shared.has_slots()
    }

    /// Returns the servers that are read from, by the settings of the pool at `index`, of its
    /// listeners and of the users.
    pub(in crate::core) fn readers(&self, plan: &Plan, index: usize) -> Option<Box<Readers>> {
        let listeners = (0..).zip(&plan.listeners);
        let of_pool = listeners.filter(|(_, listener)| usize::from(listener.pool) == index);
        let own = of_pool.filter_map(|(at, listener)| Some((at, listener.read_from.as_ref()?)));
        let users = (USERS..).zip(&plan.user_reads);
        Readers::new(&self.shared, &self.map, own.chain(users))
    }

    pub(in crate::core::pools) fn hedging(&self) -> Option<Box<Hedging>> {
        Hedging::new(self.shared.settings().reads.hedge.as_ref()?)
    }

    pub(in crate::core::pools) fn retries(&self) -> Option<Box<Budget>> {
        budget(self.shared.settings())
    }

    pub(in crate::core::pools) fn ring(&self) -> Ring {
        self.shared.ring(&self.map, self.slots.as_ref().map(|slots| &slots.now().map))
    }
}

pub(super) fn parts_of(map: &ClusterMap) -> ScanParts {
    let name = |server: u16| {
        map.node(usize::from(server)).map_or_else(String::new, |node| node.endpoint.to_string())
    };
    match map.primaries().is_empty() {
        true => ScanParts::of_slots(map.owners(), name),
        false => ScanParts::of_primaries(map.primaries(), name),
    }
}

/// A server's reply to a question about its cluster.
pub(super) struct Heard {
    pub(super) what: Internal,
    /// The server that was asked.
    pub(super) server: ServerId,
    pub(super) reply: Vec<u8>,
}

/// A refused request is taken for another one when the last time that its client's request was put
/// aside is longer ago than this.
pub(super) const ASIDE_KEPT: Duration = Duration::from_secs(2);

/// After a request was refused, the next requests of its client are refused at once for this long.
/// So a pipeline waits once and not once for each of its requests.
pub(super) const REFUSED_FOR: Duration = Duration::from_millis(100);

/// The wait of a client that waits for a server, or that waited in vain a moment ago.
pub(super) struct Wait {
    pub(super) until: Time,
    pub(super) since: Time,
    pub(super) pool: u16,
    /// The cluster whose `wait_for_primary` sets the length of the wait.
    pub(super) of: Option<Arc<Cluster>>,
    /// Set when the wait is counted among those that ended in vain.
    pub(super) is_over: bool,
    /// When the worker saw that the wait's time was up.
    pub(super) ended: Option<Time>,
}

impl Wait {
    /// Starts a wait of `timeout` or, where `wait_for_primary` bounds it, of that and no less than
    /// `least`.
    pub(super) fn new(
        since: Time,
        pool: u16,
        timeout: Duration,
        least: Duration,
        of: Option<&Arc<Cluster>>,
    ) -> Wait {
        let wait = of.and_then(|of| of.settings().wait_for_primary);
        let of = of.filter(|_| wait.is_some());
        if let Some(of) = of {
            of.totals.primary_waiting.fetch_add(1, Relaxed);
            of.totals.primary_waits.fetch_add(1, Relaxed);
        }
        let until = since + wait.map_or(timeout, |wait| wait.max(least));
        Wait { until, since, pool, of: of.cloned(), is_over: false, ended: None }
    }

    /// Returns whether `wait_for_primary` bounds the wait.
    pub(super) fn is_for_primary(&self) -> bool {
        self.of.is_some()
    }

    /// Returns whether the wait has to be remembered. A wait whose time is up is remembered until
    /// its client was told; otherwise the client would wait as long again.
    pub(super) fn is_remembered(&mut self, now: Time) -> bool {
        now < self.until || now < *self.ended.get_or_insert(now) + REFUSED_FOR
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(of) = &self.of {
            of.totals.primary_waiting.fetch_sub(1, Relaxed);
        }
    }
}

/// The times at which a client's request was put aside.
pub(super) struct Aside {
    pub(super) first: Time,
    pub(super) last: Time,
}

/// The answers of one round so far.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// By the sentinel that told the address.
    pub(super) addresses: BTreeMap<u16, Endpoint>,
    pub(super) primaries: BTreeMap<u16, WatchedPrimary>,
    pub(super) roles: BTreeMap<u16, InfoReplication>,
    /// The time at which each server has told its role.
    pub(super) answered: BTreeMap<u16, Time>,
    /// Primaries about which a sentinel has answered all questions.
    pub(super) known: BTreeSet<u16>,
    /// Primaries that a sentinel does not watch.
    pub(super) unwatched: BTreeSet<u16>,
    /// How many answers were older than what is known.
    pub(super) stale: usize,
}

/// Returns the indices of the pools of sentinels, each with the index of the pool that the
/// sentinels are asked about.
fn sentinels(plan: &Plan) -> BTreeMap<u16, u16> {
    let is_live = |index: usize| plan.retired(index as u16).is_none();
    let position = |name: &str| {
        (0..plan.pools.len()).find(|&index| plan.pools[index].name == name && is_live(index))
    };
    let of_pool = |(index, pool): (usize, &std::sync::Arc<crate::PoolPlan>)| {
        let name = pool.kind.cluster().filter(|_| is_live(index))?.sentinels()?;
        Some((position(name)? as u16, index as u16))
    };
    plan.pools.iter().enumerate().filter_map(of_pool).collect()
}

/// Host names to look up, and host names that are being looked up by the number of the question,
/// each with its pool. A pool has a bounded number of them.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) due: Vec<(u16, String)>,
    pub(super) asked: BTreeMap<u32, (u16, String)>,
    /// The number of the latest question.
    pub(super) latest: u32,
}

impl Names {
    /// Forgets a pool that has ended.
    fn forget(&mut self, pool: u16) {
        self.due.retain(|&(other, _)| other != pool);
        self.asked.retain(|_, (other, _)| *other != pool);
    }
}

/// Requests that are held back until their server is known, and the servers that were asked.
#[derive(Default)]
pub(super) struct HeldBack {
    /// In the order in which they were sent on.
    pub(super) held: Vec<Held>,
    /// When each server was last asked, and whether its answer is still owed.
    pub(super) asked: BTreeMap<ServerId, (Time, bool)>,
    /// Servers that have not answered.
    pub(super) missed: Vec<ServerId>,
}

impl HeldBack {
    /// Returns the number of requests that are held back.
    fn held(&self) -> usize {
        self.held.iter().filter(|held| held.redirected.is_some()).count()
    }

    fn has_missed(&self) -> bool {
        !self.missed.is_empty()
    }

    /// Forgets a pool that has ended.
    fn forget(&mut self, pool: u16) {
        self.asked.retain(|server, _| server.pool != pool);
        self.missed.retain(|server| server.pool != pool);
    }
}

/// A request that is held back. There are at most as many as clients may have on their way.
pub(super) struct Held {
    pub(super) from: ConnectionKey,
    /// The server that the connection leads to.
    pub(super) server: ServerId,
    pub(super) onward: Onward,
    /// Set when the server was asked since.
    pub(super) is_asked: bool,
    /// The request, or `None` where only the server is to be found.
    pub(super) redirected: Option<Redirected>,
}

/// The destination of a request that is sent on.
#[derive(Clone)]
pub(super) struct Onward {
    /// The server.
    pub(super) to: Endpoint,
    /// The slot that the request is for, if it is known.
    pub(super) slot: Option<u16>,
    /// Set when the server has the slot for good. Otherwise it is asked only this once.
    pub(super) is_moved: bool,
}

/// The latest request that was sent on, for each client and slot.
#[derive(Default)]
pub(super) struct SentOnOrder {
    pub(super) latest: BTreeMap<SentOnKey, SentOn>,
    /// The number of entries at which entries that no longer count are removed.
    pub(super) check_at: usize,
}

impl SentOnOrder {
    /// Forgets a pool that has ended.
    fn forget(&mut self, pool: u16) {
        self.latest.retain(|key, _| key.pool != pool);
    }

    /// Forgets a client that has left.
    pub(super) fn forget_client(&mut self, client: Key<Session>) {
        let of_client = SentOnKey::of_client(client);
        while let Some((&key, _)) = self.latest.range(of_client.clone()).next() {
            self.latest.remove(&key);
        }
    }

    /// Forgets the requests of a client that has had all its replies.
    pub(super) fn forget_answered(&mut self, client: Key<Session>) {
        let of_client = SentOnKey::of_client(client);
        let answered = |(&key, it): (&_, &SentOn)| it.reply.is_some().then_some(key);
        while let Some(key) = self.latest.range(of_client.clone()).find_map(answered) {
            self.latest.remove(&key);
        }
    }

    /// Returns the number of requests that are remembered.
    pub(super) fn len(&self) -> usize {
        self.latest.len()
    }
}

/// The client, the pool and the slot of requests that were sent on. They are in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SentOnKey {
    /// The session's key, as bits, because keys have no order.
    pub(super) client: u64,
    pub(super) pool: u16,
    pub(super) slot: u16,
}

impl SentOnKey {
    /// Returns the keys of a client.
    fn of_client(client: Key<Session>) -> RangeInclusive<SentOnKey> {
        let client = client.to_bits();
        SentOnKey { client, pool: 0, slot: 0 }..=SentOnKey {
            client,
            pool: u16::MAX,
            slot: u16::MAX,
        }
    }

    /// Returns the keys of a client in a pool.
    pub(super) fn of_pool(client: Key<Session>, pool: u16) -> RangeInclusive<SentOnKey> {
        let client = client.to_bits();
        SentOnKey { client, pool, slot: 0 }..=SentOnKey { client, pool, slot: u16::MAX }
    }
}

/// A request that was sent on.
pub(super) struct SentOn {
    /// The session of the request, which is a sub-request's in a pool of pools.
    pub(super) session: Key<Session>,
    /// The index of its reply; `None` where the client has asked for none.
    pub(super) reply: Option<u32>,
    pub(super) to: Endpoint,
    /// When the request was sent to a server that no other server had named for it. It is behind
    /// all requests that were sent there before.
    pub(super) again_at: Option<Time>,
}

impl SentOn {
    /// Returns whether the reply is awaited.
    pub(super) fn is_awaited(&self, sessions: &Slab<Session>) -> bool {
        let Some(session) = sessions.get(self.session) else { return false };
        match self.reply {
            Some(reply) => session
                .busy
                .as_ref()
                .is_some_and(|busy| !busy.order.has_passed(reply.wrapping_add(1))),
            None => session.unheard > 0,
        }
    }

    /// Returns whether a request of the same client, with its reply at `reply` of `session`, came
    /// before this one or is this one.
    pub(super) fn is_behind(&self, session: Key<Session>, reply: Option<u32>) -> bool {
        let (Some(own), Some(other)) = (self.reply, reply) else { return false };
        self.session == session && other.wrapping_sub(own).cast_signed() <= 0
    }
}

/// A question that one server was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) number: u32,
    /// The index of the server that was asked: a sentinel, or a server of the pool.
    pub(super) server: u16,
    pub(super) about: About,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// The servers of all slots, asked by this command.
    Slots(SlotQuery),
    /// `SENTINEL GET-MASTER-ADDR-BY-NAME`, for the primary with this number. While a sentinel leads
    /// a fail-over, its other answers are still about the old primary.
    Address(u16),
    /// `SENTINEL MASTER`, for that primary.
    Primary(u16),
    /// `SENTINEL SLAVES`, for that primary.
    Replicas(u16),
    /// `INFO replication`, for the server itself.
    Role,
}

impl About {
    /// Returns the number of the primary that the question is about.
    pub(super) fn group(self) -> Option<u16> {
        match self {
            About::Address(group) | About::Primary(group) | About::Replicas(group) => Some(group),
            About::Slots(_) | About::Role => None,
        }
    }
}

/// The questions that were asked about one pool at one time.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) open: Vec<Question>,
    /// The indices of the servers that were asked in the round, whether they have answered or not.
    pub(super) asked: Vec<u16>,
    /// When the worker next acts on servers that have not answered.
    pub(super) next: Time,
    /// When the round ends, even if servers have not answered.
    pub(super) end: Time,
    /// Set when a server told of slots that no server has, so that another server is asked.
    pub(super) is_doubted: bool,
    pub(super) told: Told,
}

/// A request that is to be sent again.
pub(super) struct Retry {
    pub(super) at: Time,
    pub(super) from: ConnectionKey,
    /// The server that `from` leads to. The connection may be gone when the request is sent again.
    pub(super) server: ServerId,
    /// Set when the connection belonged to one session alone.
    pub(super) is_private: bool,
    pub(super) redirected: Redirected,
    pub(super) waits: Option<Waits>,
    /// Set when the request waits for a primary. Its timeout then starts when it is sent again.
    pub(super) is_held: bool,
}

/// The facts kept about a command that waits on a private link, as the connection may end.
pub(in crate::core) struct Waits {
    pub(super) pool: u16,
    pub(super) protocol: Protocol,
    pub(super) keys: Vec<u32>,
}

/// Memory for splitting one request, reused by the next.
#[derive(Default)]
pub(in crate::core) struct Scratch {
    /// The index of each slot's fragment. Between two requests all are [`NO_FRAGMENT`].
    pub(super) of_slot: Vec<u16>,
    pub(super) fragments: Vec<Fragment>,
    /// For each key, the index of the next key in the same fragment.
    pub(super) next: Vec<u32>,
    /// The index of each key's fragment.
    pub(super) of_key: Vec<u16>,
    /// Set when the fragments may be answered by replicas.
    pub(super) reads: bool,
}

impl Scratch {
    pub(super) fn clear(&mut self) {
        self.of_slot.resize(SLOT_COUNT, NO_FRAGMENT);
        for fragment in self.fragments.drain(..) {
            self.of_slot[usize::from(fragment.slot)] = NO_FRAGMENT;
        }
        self.next.clear();
        self.of_key.clear();
    }

    /// Adds the next key, with its slot and the server that has it.
    #[inline]
    pub(super) fn add(&mut self, slot: u16, server: u16) {
        let key = self.next.len() as u32;
        let at = &mut self.of_slot[usize::from(slot)];
        if *at == NO_FRAGMENT {
            *at = self.fragments.len() as u16;
            self.fragments.push(Fragment { slot, server, keys: 1, first: key, last: key });
        } else {
            let fragment = &mut self.fragments[usize::from(*at)];
            self.next[fragment.last as usize] = key;
            fragment.last = key;
            fragment.keys += 1;
        }
        self.next.push(NO_KEY);
        self.of_key.push(*at);
    }

    /// Frees memory for more than `kept_max` keys.
    fn trim(&mut self, kept_max: usize) {
        if self.next.capacity() > kept_max {
            self.next = Vec::new();
            self.of_key = Vec::new();
        }
    }
}

/// The keys of one slot.
pub(super) struct Fragment {
    pub(super) slot: u16,
    pub(super) server: u16,
    pub(super) keys: u32,
    pub(super) first: u32,
    pub(super) last: u32,
}

/// The time over which requests are counted for the share that may be sent again. A shorter time
/// would end the repeats in the middle of a slot's move. A longer time lets a server that comes
/// back receive more repeats.
pub(super) const WINDOW: Duration = Duration::from_secs(10);

/// How many requests may be sent again in that time, however few requests there are.
pub(super) const LEAST: u64 = 10;

/// The bound of a pool, if it has one.
fn budget(settings: &Discovery) -> Option<Box<Budget>> {
    Some(Box::new(Budget::new(settings.retry_percent?, WINDOW, LEAST)))
}
