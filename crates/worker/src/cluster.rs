//! The state of a cluster that the workers of a process share: the latest map, and which worker asks
//! for the next one.

mod decided;
mod hosts;
mod inherited;
mod moving;
mod redundancy;
mod stale_views;
mod unanswered;

use crate::advice::advice;
use crate::held_servers::Holds;
use crate::notices::Notice;
use decided::Decision;
use hosts::Hosts;
use keyway_base::Time;
use keyway_topology::{
    Applied, ClusterMap, ClusterPool, ClusterView, ConnectedReplica, Discovery, Endpoint,
    GroupView, InfoReplication, LeftOut, OffsetHistory, PrimarySource, ReplicatedPool, Ring,
    ServerGroup, ServerSet, SlotMap, SlotQuery, SlotsPool,
};
use parking_lot::{Mutex, MutexGuard};
use redundancy::{Redundancy, ShardChange};
use stale_views::{StaleViews, Verdict};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;
use unanswered::UnansweredReason;

pub use decided::{DecidedPrimary, SeenServer};
use moving::MovingSlots;
pub use moving::{DrainedHook, ObeyedSlots};
pub(crate) use moving::{SlotsFollower, SlotsNow};
pub(crate) use stale_views::Speaker;
pub(crate) use unanswered::Telling;

/// Pause between two questions, however many requests were redirected in between. If it were
/// shorter, servers would return all their slots again for each slot that moves. If it were longer,
/// more requests would be redirected.
const ASK_PAUSE: Duration = Duration::from_millis(100);

/// Pause between two questions because of keys whose server is unknown.
const UNOWNED_PAUSE: Duration = Duration::from_millis(500);

/// Time between two questions about the lag of replicas. They report to their primaries once a
/// second.
const LAGS_EVERY: Duration = Duration::from_millis(500);

/// Number of questions about the lag of replicas that may stay unanswered. After that the lag is
/// unknown.
const LAGS_MISSED_MAX: u64 = 6;

/// Number of consecutive rounds in which several servers of a list must claim to be primaries
/// before that is reported. With fewer, a change of primaries would be reported. With more, the
/// report would be late.
const RIVAL_ROUNDS: u64 = 3;

/// How long clients wait for the first map, from the first client on. After that all get errors
/// until there is a map.
const FIRST_MAP_MAX: Duration = Duration::from_secs(5);

/// Number of consecutive unanswered questions after which the seeds are asked again.
const UNANSWERED_MAX: u64 = 3;

/// Counts of requests for servers of a cluster, by what happened to them.
#[derive(Debug, Default)]
pub struct ClusterTotals {
    /// Requests redirected by `MOVED`.
    pub moved: AtomicU64,
    /// Requests redirected by `ASK`.
    pub asked: AtomicU64,
    /// Requests retried after `TRYAGAIN` or `CLUSTERDOWN`, and reads whose connection was lost.
    pub retried: AtomicU64,
    /// Requests that were not retried, because of the budget.
    pub retries_refused: AtomicU64,
    /// Reads that were also sent to a second server.
    pub hedged: AtomicU64,
    /// Reads that the second server answered first.
    pub hedges_won: AtomicU64,
    /// Reads that were not sent to a second server, because of the budget.
    pub hedges_refused: AtomicU64,
    /// Requests whose client got such an error.
    pub given_up: AtomicU64,
    /// Clients that now have a request that waits for a primary.
    pub primary_waiting: AtomicU64,
    /// Requests that have waited for a primary.
    pub primary_waits: AtomicU64,
    /// Requests that waited for a primary and were refused in the end.
    pub primary_waits_over: AtomicU64,
    /// Answers to questions about the cluster.
    pub views: AtomicU64,
    /// Unanswered questions about the cluster.
    pub unanswered: AtomicU64,
    /// Messages of sentinels about its primaries that were not asked for.
    pub notices: AtomicU64,
    /// Answers that were older than what was known.
    pub stale: AtomicU64,
}

/// The effect of a server's report.
#[derive(Debug)]
pub(crate) enum ViewUpdate {
    /// It was known.
    Same,
    /// It is older than what is known, and is not believed.
    Stale,
    /// It is new.
    New(Learned),
}

/// A new report of a server.
#[derive(Debug)]
pub(crate) struct Learned {
    /// The earlier map.
    pub(crate) before: Arc<ClusterMap>,
    /// The current map.
    pub(crate) map: Arc<ClusterMap>,
    /// Servers for which there was no index.
    pub(crate) left_out: Vec<LeftOut>,
    /// True if it is older than what was known, and most servers agree.
    pub(crate) is_earlier: bool,
}

/// A cluster, as the process knows it.
#[derive(Debug)]
pub struct Cluster {
    settings: Discovery,
    source: MapSource,
    primaries: Vec<String>,
    placement: Placement,
    map: Mutex<Arc<ClusterMap>>,
    /// The latest map that the log describes.
    logged: Mutex<Arc<ClusterMap>>,
    /// The servers that reported earlier epochs, by primary, or for the cluster.
    stale_views: Mutex<BTreeMap<Option<u16>, StaleViews>>,
    /// When it may next be asked because of a slot without an owner, in nanoseconds.
    next_unowned: AtomicU64,
    /// The version of `map`. A worker notices a newer one without a lock.
    version: AtomicU64,
    /// When it must be asked, in nanoseconds.
    next_ask: AtomicU64,
    /// Until when the worker that has asked may wait. No other worker asks before.
    asking_until: AtomicU64,
    /// Counts reasons to ask that answers to earlier questions do not settle.
    reasons: AtomicU64,
    /// That count when the latest question was asked.
    reasons_asked: AtomicU64,
    /// Number of consecutive unanswered questions.
    unanswered: AtomicU64,
    /// Time of the latest answered question, in nanoseconds.
    answered_at: AtomicU64,
    /// Until when clients wait for the first map, in nanoseconds. 0 before the first of them.
    waits_until: AtomicU64,
    /// When servers must be asked for the lag of replicas, in nanoseconds.
    next_lags: AtomicU64,
    /// The lag of each server behind its primary, in milliseconds, by index. The largest value
    /// means that it is unknown.
    lags: Box<[AtomicU64]>,
    /// The number of such questions, and by index their number when the lag was last reported.
    lags_asked: AtomicU64,
    /// The offsets of primaries over time, by index.
    histories: Mutex<BTreeMap<u16, OffsetHistory>>,
    lags_told: Box<[AtomicU64]>,
    /// For each index the version of the map that added or removed the server there, and for which
    /// everything that workers share was reset.
    settled: Box<[AtomicU64]>,
    /// The addresses of host names in reports about replicas.
    hosts: Mutex<Hosts>,
    /// Why questions are not answered.
    reason: Mutex<UnansweredReason>,
    /// Limits a log line to one a minute.
    pub(crate) notice: Notice,
    /// The same for addresses that cannot be reached.
    pub(crate) notice_unreached: Notice,
    /// The same for several primaries in a list of servers.
    pub(crate) notice_rivals: Notice,
    /// Number of consecutive rounds with several primaries, by group.
    rivals: Box<[AtomicU64]>,
    /// The shards that have lost their replicas.
    redundancy: Mutex<Redundancy>,
    /// The primaries that the control plane has decided.
    decision: Decision,
    /// Servers that an operator has taken out of use.
    pub(crate) holds: Holds,
    /// The totals.
    pub totals: ClusterTotals,
}

/// The source of the map from keys to the servers of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapSource {
    /// The servers of a Redis Cluster, which report the owners of slots.
    Slots(SlotQuery),
    /// Servers, or sentinels, that report the primaries.
    Primaries(PrimarySource),
}

/// The rule that gives a key its server.
#[derive(Debug)]
enum Placement {
    /// The owners of slots that a Redis Cluster reports.
    Owners,
    /// A ring over the names of the primaries.
    Names(Arc<Ring>),
    /// The group of each slot.
    Groups(Arc<MovingSlots>),
}

impl MapSource {
    fn primaries(&self) -> Vec<String> {
        match self {
            MapSource::Slots(_) => Vec::new(),
            MapSource::Primaries(source) => source.primaries(),
        }
    }
}

impl Cluster {
    /// Creates a Redis Cluster of which only the seeds are known.
    pub fn of_slots(pool: &ClusterPool) -> Cluster {
        let source = MapSource::Slots(pool.query);
        Cluster::new(&pool.servers, pool.discovery.clone(), source, Placement::Owners)
    }

    /// Creates primaries with replicas of which only the seeds are known.
    pub fn of_primaries(pool: &ReplicatedPool) -> Cluster {
        let source = MapSource::Primaries(pool.source.clone());
        let names = Placement::Names(Arc::new(pool.ring_of_primaries()));
        Cluster::new(&pool.servers, pool.discovery.clone(), source, names)
    }

    /// Creates groups of servers whose roles are not known yet.
    pub fn of_groups(pool: &SlotsPool) -> Cluster {
        let source = MapSource::Primaries(PrimarySource::Groups(pool.groups.clone()));
        let placement = Placement::Groups(MovingSlots::new(Arc::clone(&pool.map)));
        Cluster::new(&pool.servers, pool.discovery.clone(), source, placement)
    }

    fn new(
        servers: &ServerSet,
        settings: Discovery,
        source: MapSource,
        placement: Placement,
    ) -> Cluster {
        let primaries = source.primaries();
        let (server_count, primary_count) = (servers.servers.len(), primaries.len());
        let map = ClusterMap::of_seeds(&settings.seeds, server_count as u16, primary_count);
        let map = Arc::new(map.of_nodes(settings.nodes_max));
        Cluster {
            placement,
            settings,
            source,
            primaries,
            version: AtomicU64::new(map.version()),
            logged: Mutex::new(Arc::clone(&map)),
            map: Mutex::new(map),
            stale_views: Mutex::default(),
            next_unowned: AtomicU64::new(0),
            notice: Notice::default(),
            notice_unreached: Notice::default(),
            notice_rivals: Notice::default(),
            rivals: (0..primary_count).map(|_| AtomicU64::new(0)).collect(),
            next_ask: AtomicU64::new(0),
            asking_until: AtomicU64::new(0),
            reasons: AtomicU64::new(0),
            reasons_asked: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            answered_at: AtomicU64::new(0),
            waits_until: AtomicU64::new(0),
            next_lags: AtomicU64::new(0),
            lags: (0..server_count).map(|_| AtomicU64::new(u64::MAX)).collect(),
            histories: Mutex::default(),
            lags_asked: AtomicU64::new(0),
            lags_told: (0..server_count).map(|_| AtomicU64::new(0)).collect(),
            settled: (0..server_count).map(|_| AtomicU64::new(0)).collect(),
            hosts: Mutex::default(),
            reason: Mutex::new(UnansweredReason::new("none was asked yet")),
            redundancy: Mutex::new(Redundancy::new(primary_count)),
            decision: Decision::default(),
            holds: Holds::default(),
            totals: ClusterTotals::default(),
        }
    }

    /// Returns the shards that have lost their last replica or regained one. Each change is
    /// returned once.
    pub(crate) fn redundancy_changes(&self, now: Time) -> Vec<ShardChange> {
        let Some(mut redundancy) = self.redundancy.try_lock() else { return Vec::new() };
        let heard = Time(self.answered_at.load(Relaxed));
        let followed = redundancy.follow(&self.map(), heard, now);
        if followed.asks_again {
            self.ask_again();
        }
        followed.changes
    }

    /// Returns whether the server at an index is the primary of a shard that has lost its replicas.
    pub(crate) fn has_lost_replicas(&self, server: usize) -> bool {
        let map = self.map();
        let redundancy = self.redundancy.lock();
        map.node(server).is_some_and(|node| redundancy.is_lost(server, node.tenure))
    }

    /// Returns the primaries of the shards that have lost their replicas, including those that are
    /// about to be reported.
    pub(crate) fn unreplicated_primaries(&self) -> Vec<Endpoint> {
        self.redundancy.lock().lost_primaries(&self.map())
    }

    /// Notes that the shard of the primary at this address has had a replica.
    pub(crate) fn expect_replicas(&self, primary: Endpoint) {
        self.redundancy.lock().expect_replicas(primary);
    }

    /// Returns the number of shards that have lost their replicas.
    pub(crate) fn unreplicated_count(&self) -> u64 {
        self.redundancy.lock().lost_count() as u64
    }

    /// Returns whether the calling worker is the first one to notice a change of the server at an
    /// index: that of this version of the map.
    pub(crate) fn is_first_at(&self, server: usize, version: u64) -> bool {
        self.settled.get(server).is_some_and(|last| last.fetch_max(version, Relaxed) < version)
    }

    /// Returns the settings of its discovery.
    pub fn settings(&self) -> &Discovery {
        &self.settings
    }

    /// Returns the source of its map.
    pub(crate) fn source(&self) -> &MapSource {
        &self.source
    }

    /// Returns whether it is a Redis Cluster, whose keys have slots.
    pub(crate) fn has_slots(&self) -> bool {
        matches!(self.source, MapSource::Slots(_))
    }

    /// Returns the names of the primaries on which keys are placed. It is empty if keys have slots.
    pub(crate) fn primaries(&self) -> &[String] {
        &self.primaries
    }

    /// Returns the name of the pool of its sentinels, if it has some.
    pub(crate) fn sentinels(&self) -> Option<&str> {
        match &self.source {
            MapSource::Primaries(PrimarySource::Sentinels { pool, .. }) => Some(pool),
            MapSource::Primaries(PrimarySource::Servers | PrimarySource::Groups(_))
            | MapSource::Slots(_) => None,
        }
    }

    /// Returns the number of the group that lists a server. Returns `None` where servers or
    /// sentinels tell who belongs together.
    pub(crate) fn group_of(&self, server: &Endpoint) -> Option<u16> {
        match &self.source {
            MapSource::Primaries(PrimarySource::Servers) => Some(0),
            MapSource::Primaries(PrimarySource::Groups(groups)) => {
                let lists = |group: &ServerGroup| group.servers.contains(server);
                groups.iter().position(lists).map(|group| group as u16)
            }
            MapSource::Primaries(PrimarySource::Sentinels { .. }) | MapSource::Slots(_) => None,
        }
    }

    /// Returns the group of each slot, for groups that share slots.
    pub fn slot_map(&self) -> Option<Arc<SlotMap>> {
        Some(Arc::clone(&self.moving()?.now().map))
    }

    /// Returns the map that slots have now, and the fence, for groups that share slots.
    pub(crate) fn moving(&self) -> Option<&Arc<MovingSlots>> {
        match &self.placement {
            Placement::Groups(slots) => Some(slots),
            Placement::Owners | Placement::Names(_) => None,
        }
    }

    /// Obeys another map of slots from now on. Workers follow at their next turn. Returns whether it
    /// is another one, and all of its groups are of the pool.
    pub fn obey_slots(&self, slots: &ObeyedSlots, now: Time) -> bool {
        let Some(moving) = self.moving() else { return false };
        let is_new = moving.obey(slots, &self.primaries, now);
        if is_new {
            self.update(|map| Some(map.renewed()));
        }
        is_new
    }

    /// Has this called, by a worker, when every worker has drained a fence.
    pub fn on_drained(&self, hook: DrainedHook) {
        if let Some(moving) = self.moving() {
            moving.set_hook(hook);
        }
    }

    /// Returns the epoch of the map of slots, and whether every worker has drained its fence. Returns
    /// `None` for pools without groups that share slots.
    pub fn slots_epoch(&self) -> Option<(u64, bool)> {
        let moving = self.moving()?;
        Some((moving.now().epoch, moving.is_drained()))
    }

    /// Returns whether there is a fence, or a worker may still hold commands because of one.
    pub fn may_hold_slots(&self) -> bool {
        let moving = self.moving();
        moving.is_some_and(|moving| moving.now().fence.is_some() || !moving.is_followed())
    }

    /// Returns the ring of a map. `slots` is the map of slots that a worker follows.
    pub(crate) fn ring(&self, map: &ClusterMap, slots: Option<&Arc<SlotMap>>) -> Ring {
        match &self.placement {
            Placement::Owners => Ring::of_slots(Arc::clone(map.owners())),
            Placement::Names(names) => {
                Ring::of_primaries(Arc::clone(names), Arc::clone(map.primaries()))
            }
            Placement::Groups(moving) => {
                let slots = slots.map_or_else(|| Arc::clone(&moving.now().map), Arc::clone);
                Ring::of_groups(slots, Arc::clone(map.primaries()))
            }
        }
    }

    /// Returns the latest map.
    pub fn map(&self) -> Arc<ClusterMap> {
        Arc::clone(&self.map.lock())
    }

    /// Returns the version of the latest map.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// Returns the address of the server at an index, for labels.
    pub fn label(&self, server: usize) -> Option<String> {
        Some(self.map.lock().node(server)?.endpoint.to_string())
    }

    /// Replaces the map by the result of `make`, if there is one. Returns the latest map.
    fn update(&self, make: impl FnOnce(&ClusterMap) -> Option<ClusterMap>) -> Arc<ClusterMap> {
        let mut map = self.map.lock();
        if let Some(next) = make(&map) {
            self.version.store(next.version(), Release);
            *map = Arc::new(next);
        }
        Arc::clone(&map)
    }

    /// Handles a server's report.
    pub(crate) fn learn(&self, view: &ClusterView, by: Speaker, now: Time) -> ViewUpdate {
        self.learn_by(None, view.epoch, by, |map| map.apply(view, now))
    }

    /// Does the same for one primary and its replicas.
    pub(crate) fn learn_group(&self, told: &GroupView, by: Speaker, now: Time) -> ViewUpdate {
        self.learn_by(Some(told.group), told.epoch, by, |map| map.apply_group(told, now))
    }

    /// Does the same for a primary that was chosen while this decision counted. Returns `None` if
    /// another one counts by now: nothing has changed then.
    pub(crate) fn learn_chosen(
        &self,
        told: &GroupView,
        decided: Option<&DecidedPrimary>,
        by: Speaker,
        now: Time,
    ) -> Option<ViewUpdate> {
        let map = self.map.lock();
        // A later decision changes the map after this, as that needs the same lock.
        if self.decided(told.group).as_ref() != decided {
            return None;
        }
        let apply = |map: &ClusterMap| map.apply_group(told, now);
        Some(self.learn_locked(map, Some(told.group), told.epoch, by, apply))
    }

    fn learn_by(
        &self,
        group: Option<u16>,
        epoch: Option<u64>,
        by: Speaker,
        apply: impl FnOnce(&ClusterMap) -> Applied,
    ) -> ViewUpdate {
        self.learn_locked(self.map.lock(), group, epoch, by, apply)
    }

    fn learn_locked(
        &self,
        mut map: MutexGuard<'_, Arc<ClusterMap>>,
        group: Option<u16>,
        epoch: Option<u64>,
        by: Speaker,
        apply: impl FnOnce(&ClusterMap) -> Applied,
    ) -> ViewUpdate {
        let known = map.epoch(group);
        let verdict = self.stale_views.lock().entry(group).or_default().weigh(by, epoch, known);
        let applied = match verdict {
            Verdict::Stale => Applied::Stale,
            Verdict::Current => apply(&map),
            Verdict::Earlier => apply(&map.without_epoch(group)),
        };
        let left_out = match applied {
            Applied::Stale => {
                self.totals.stale.fetch_add(1, Relaxed);
                return ViewUpdate::Stale;
            }
            Applied::Same if self.logged.lock().places_keys_as(&map) => return ViewUpdate::Same,
            // A server has reported it before, with MOVED.
            Applied::Same => Vec::new(),
            Applied::Next(next, left_out) => {
                self.version.store(next.version(), Release);
                *map = Arc::new(next);
                left_out
            }
        };
        let before = std::mem::replace(&mut *self.logged.lock(), Arc::clone(&map));
        let is_earlier = verdict == Verdict::Earlier;
        ViewUpdate::New(Learned { before, map: Arc::clone(&map), left_out, is_earlier })
    }

    /// Returns whether the server at an index reported an earlier epoch of the cluster than the
    /// known one.
    pub(crate) fn is_behind(&self, server: u16, known: Option<u64>) -> bool {
        let stale_views = self.stale_views.lock();
        stale_views.get(&None).is_some_and(|stale_views| stale_views.is_behind(server, known))
    }

    /// Notes that a slot belongs to the server at this index.
    pub(crate) fn note_moved(&self, slot: u16, server: u16) {
        self.update(|map| map.moved(slot, server));
    }

    /// Returns the index of a server that a view or the file has named.
    pub(crate) fn index_of(&self, endpoint: &Endpoint) -> Option<u16> {
        self.map.lock().index_of(endpoint)
    }

    /// Does the same for one that its cluster has just named. Returns `None` if there is no room.
    pub(crate) fn admit(&self, endpoint: &Endpoint, now: Time) -> Option<u16> {
        self.update(|map| map.with_member(endpoint, now)).index_of(endpoint)
    }

    /// Notes whether several servers of a group claim to be its primary. Returns whether that has
    /// lasted longer than it takes to make one of them a replica.
    pub(crate) fn note_rivals(&self, group: u16, are_several: bool) -> bool {
        let Some(rivals) = self.rivals.get(usize::from(group)) else { return false };
        match are_several {
            true => rivals.fetch_add(1, Relaxed) + 1 >= RIVAL_ROUNDS,
            false => {
                rivals.store(0, Relaxed);
                false
            }
        }
    }

    /// Returns whether two endpoints are the same port of the same host, as far as the addresses of
    /// their names are known.
    pub(crate) fn are_same(&self, one: &Endpoint, other: &Endpoint) -> bool {
        let (Endpoint::Tcp { host, port }, Endpoint::Tcp { host: other, port: its }) = (one, other)
        else {
            return one == other;
        };
        let hosts = self.hosts.lock();
        let is_there = || {
            let address = hosts.address(host);
            address.is_some() && address == hosts.address(other)
        };
        port == its && (host == other || is_there())
    }

    /// Returns whether the caller must look up the address of a host.
    pub(crate) fn try_claim_host(&self, host: &str, now: Time) -> bool {
        self.hosts.lock().try_claim(host, now)
    }

    /// Notes the address of a host.
    pub(crate) fn note_host(&self, host: &str, address: Option<IpAddr>) {
        self.hosts.lock().note(host, address);
    }

    /// Notes why a question was not answered.
    pub(crate) fn note_reason(&self, text: String, telling: Telling, now: Time) {
        self.reason.lock().note(text, telling, now);
    }

    /// Returns why questions are not answered.
    pub(crate) fn reason(&self) -> String {
        self.reason.lock().text().to_owned()
    }

    /// Returns the same with what to change in the configuration, if that is known, for the pool of
    /// this name.
    pub(crate) fn reason_in(&self, pool: &str) -> String {
        let reason = self.reason();
        let asked = self.sentinels().unwrap_or(pool);
        match advice(asked, &reason).filter(|_| !reason.contains(" [pool.")) {
            Some(advice) => format!("{reason}; {advice}"),
            None => reason,
        }
    }

    /// Returns whether clients may wait for the first map: for a limited time after the first
    /// client did.
    pub(crate) fn may_be_known_soon(&self, now: Time) -> bool {
        let until = (now + FIRST_MAP_MAX).0;
        let begun = self.waits_until.compare_exchange(0, until, Relaxed, Relaxed);
        now.0 < begun.map_or_else(|begun| begun, |_| until)
    }

    /// Returns whether a replica is at most `max` behind its primary, as far as is known.
    pub(crate) fn is_within(&self, server: u16, max: Duration) -> bool {
        let lag = self.lags.get(usize::from(server)).map_or(u64::MAX, |lag| lag.load(Relaxed));
        let told = self.lags_told.get(usize::from(server)).map_or(0, |told| told.load(Relaxed));
        let is_old = self.lags_asked.load(Relaxed).saturating_sub(told) > LAGS_MISSED_MAX;
        u128::from(lag) <= max.as_millis() && !is_old
    }

    /// Returns how far a replica is behind its primary, in milliseconds, if that is known.
    pub fn lag_millis(&self, server: usize) -> Option<u64> {
        let millis = self.lags.get(server)?.load(Relaxed);
        (millis != u64::MAX).then_some(millis)
    }

    /// Returns whether the caller must ask for the lag of replicas.
    pub(crate) fn try_claim_lags(&self, now: Time) -> bool {
        let next = (now + LAGS_EVERY).0;
        let is_due = |due: u64| (due <= now.0).then_some(next);
        let is_claimed = self.next_lags.fetch_update(Relaxed, Relaxed, is_due).is_ok();
        self.lags_asked.fetch_add(u64::from(is_claimed), Relaxed);
        is_claimed
    }

    /// Notes the offset of a primary.
    pub(crate) fn note_offset(&self, primary: u16, told: &InfoReplication, now: Time) {
        let span = self.settings.reads.lag_max.unwrap_or_default();
        let mut histories = self.histories.lock();
        let history = histories.entry(primary).or_default();
        history.note(now, told.replication_id.as_deref(), told.replication_offset, span);
    }

    /// Returns for how many milliseconds a replica has not reported its offset, or lacked something
    /// when it did, whichever is more.
    pub(crate) fn lag_of(&self, primary: u16, replica: &ConnectedReplica, now: Time) -> u64 {
        let silence = Duration::from_secs(replica.lag_seconds);
        let histories = self.histories.lock();
        let behind = histories.get(&primary).map_or(Duration::ZERO, |history| {
            history.behind(now, replica.replication_offset, silence)
        });
        silence.max(behind).as_millis() as u64
    }

    /// Notes how far a replica is behind its primary.
    pub(crate) fn note_lag(&self, server: u16, millis: u64) {
        if let Some(lag) = self.lags.get(usize::from(server)) {
            lag.store(millis, Relaxed);
            let asked = self.lags_asked.load(Relaxed);
            self.lags_told[usize::from(server)].store(asked, Relaxed);
        }
    }

    /// Requests that the cluster is asked soon, because something contradicts the map.
    pub(crate) fn ask_soon(&self) {
        self.next_ask.store(0, Relaxed);
    }

    /// Does the same because of a key whose server is unknown, at most twice a second, because that
    /// may last.
    #[cold]
    pub(crate) fn ask_about_unowned(&self, now: Time) {
        let next = (now + UNOWNED_PAUSE).0;
        let is_due = |due: u64| (due <= now.0).then_some(next);
        if self.next_unowned.fetch_update(Relaxed, Relaxed, is_due).is_ok() {
            self.ask_soon();
        }
    }

    /// Does the same for something that may have happened since the last question, even if that has
    /// not been answered yet.
    pub(crate) fn ask_again(&self) {
        // ORDER: pairs with `note_answered`, which postpones the next question and then looks.
        self.reasons.fetch_add(1, SeqCst);
        self.next_ask.store(0, SeqCst);
    }

    /// Notes a message of a sentinel that was not asked for.
    pub(crate) fn note_notice(&self) {
        self.totals.notices.fetch_add(1, Relaxed);
    }

    /// Returns whether the caller must ask now. No other worker asks before `until`.
    pub(crate) fn try_claim(&self, now: Time, until: Time) -> bool {
        if self.next_ask.load(Relaxed) > now.0 {
            return false;
        }
        let is_free = |asking: u64| (asking <= now.0).then_some(until.0);
        let reasons = self.reasons.load(Relaxed);
        let is_claimed = self.asking_until.fetch_update(Relaxed, Relaxed, is_free).is_ok();
        if is_claimed {
            self.reasons_asked.store(reasons, Relaxed);
        }
        is_claimed
    }

    /// Notes that the question was answered. The next one is due after `refresh`, or as soon as
    /// allowed.
    pub(crate) fn note_answered(&self, now: Time, refresh: Duration) {
        self.totals.views.fetch_add(1, Relaxed);
        self.unanswered.store(0, Relaxed);
        self.answered_at.store(now.0, Relaxed);
        // ORDER: pairs with `ask_again`: a reason in between is seen here, or sets the time back.
        self.next_ask.store((now + refresh).0, SeqCst);
        if self.reasons.load(SeqCst) != self.reasons_asked.load(Relaxed) {
            self.next_ask.store(0, Relaxed);
        }
        self.asking_until.store((now + ASK_PAUSE).0, Relaxed);
    }

    /// Notes that the question was not answered. Returns whether the seeds must be asked.
    pub(crate) fn note_unanswered(&self, now: Time) -> bool {
        self.totals.unanswered.fetch_add(1, Relaxed);
        let before = self.unanswered.fetch_add(1, Relaxed);
        self.asking_until.store((now + ASK_PAUSE).0, Relaxed);
        let wants_seeds = before + 1 >= UNANSWERED_MAX;
        if wants_seeds {
            self.unanswered.store(0, Relaxed);
            self.update(|map| map.with_seeds(&self.settings.seeds, now));
        }
        wants_seeds
    }
}
