//! The role of a store: a primary, or the replica of another server.

use crate::audience::Audience;
use crate::lineage::{FeedConfig, FeedStatus, Lineage};
use crate::target::{Counts, Place, StoreTarget, place_of};
use keyway_base::Clock;
use keyway_rdb::replication::ReplicationId;
use keyway_replica::feed::Candidate;
use keyway_replica::{Follower, FollowerSettings, Lookups, Position, State, Status, System};
use keyway_script::Registry;
use keyway_store::{HistoryPlace, Store};
use parking_lot::Mutex;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The parts of a [`Standby`].
pub struct Parts {
    /// The store.
    pub store: Arc<Store>,
    /// The scripts and functions of its pool.
    pub scripts: Arc<Registry>,
    /// The receiver of news about changes.
    pub audience: Arc<dyn Audience>,
    /// Both clocks.
    pub clock: fn() -> Clock,
}

/// A primary, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primary {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// A replica at one moment.
#[derive(Clone, Debug)]
pub struct StandbyStatus {
    /// The primary.
    pub primary: Primary,
    /// The link to it.
    pub link: Status,
    /// Commands of the stream that were executed since the process started.
    pub applied: u64,
    /// Of these, the ones that failed.
    pub failed: u64,
}

/// Pause between two looks at what a replica has acknowledged that is to take over.
const HAND_OVER_PAUSE: Duration = Duration::from_millis(5);

/// The role of one store.
///
/// Changes of the role wait for one another, and for the unit of the stream that is executed:
/// they are for a thread that may wait. [`Standby::status`] never waits for them.
pub struct Standby {
    place: Place,
    /// Held while the role changes.
    order: Mutex<()>,
    following: Mutex<Option<Following>>,
    serves_stale: AtomicBool,
    /// Resyncs and failures of followers that have ended.
    past: [AtomicU64; 3],
    lookups: Lookups,
    /// Flushes that were to come when the store was handed over: databases, and when.
    put_off: Mutex<Vec<(u32, u64)>>,
}

struct Following {
    primary: Primary,
    follower: Follower,
}

impl Standby {
    /// The role of a store that is a primary. With `serves_stale` a replica answers with what it
    /// has while the link to its primary is down.
    pub fn new(parts: Parts, serves_stale: bool) -> Self {
        Self::with_feed(parts, serves_stale, FeedConfig::default())
    }

    /// The same with other bounds for the replicas of this store.
    pub fn with_feed(parts: Parts, serves_stale: bool, feed: FeedConfig) -> Self {
        Self::on_system(keyway_replica::real(), parts, serves_stale, feed)
    }

    /// The same on another system.
    pub fn on_system(
        system: Arc<dyn System>,
        parts: Parts,
        serves_stale: bool,
        feed: FeedConfig,
    ) -> Self {
        let Parts { store, scripts, audience, clock } = parts;
        let lineage = Arc::new(Lineage::new(&store, &scripts, &audience, clock, feed, &system));
        let counts = Arc::new(Counts::default());
        let place = Place { store, scripts, audience, clock, counts, lineage, system };
        Self {
            place,
            order: Mutex::new(()),
            following: Mutex::new(None),
            serves_stale: AtomicBool::new(serves_stale),
            past: Default::default(),
            lookups: Lookups::default(),
            put_off: Mutex::default(),
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.place.store
    }

    /// Sets whether a replica answers while the link to its primary is down.
    pub fn set_serves_stale(&self, serves_stale: bool) {
        self.serves_stale.store(serves_stale, Ordering::Relaxed);
        self.look();
    }

    /// Makes the store the replica of a primary. A replica goes on from where it is, or from where
    /// the log or snapshot that it was loaded from ends, if the primary has the same history. Else a
    /// full resync replaces its data.
    ///
    /// # Errors
    /// The system has no thread or descriptor for it. The store is a replica without a primary
    /// then.
    pub fn follow(&self, primary: Primary, settings: FollowerSettings) -> std::io::Result<()> {
        let _order = self.order.lock();
        let is_following = self.following.lock().is_some();
        let mut resume = match is_following {
            true => self.stop(),
            false => self.place.store.history_place().map(position_of),
        };
        if let (false, Some(position)) = (is_following, resume) {
            self.place.lineage.resumed(position);
        }
        if !self.place.store.is_replica() {
            self.place.store.set_replica(true);
            self.place.audience.became_replica(&self.place.store);
            resume = self.place.lineage.demoted().or(resume);
        }
        if let Some(position) = settings.resume {
            self.place.lineage.resumed(position);
            if self.place.store.keeps_history() {
                self.place.store.set_history_place(place_of(position));
            }
        }
        let resume = settings.resume.or(resume);
        let node = Some(self.place.lineage.node());
        self.start(primary, FollowerSettings { resume, knows_flags: true, node, ..settings })
    }

    fn start(&self, primary: Primary, settings: FollowerSettings) -> std::io::Result<()> {
        self.place.counts.is_ending.store(false, Ordering::Relaxed);
        let settings = FollowerSettings { lookups: self.lookups.clone(), ..settings };
        let target = StoreTarget::new(self.place.clone());
        let follower = Follower::start_in(&self.place.system, settings, Box::new(target))?;
        *self.following.lock() = Some(Following { primary, follower });
        self.look();
        Ok(())
    }

    /// Makes the store the replica of one of its replicas, which takes over once it has everything.
    /// `acknowledged` returns the offset that the replica has acknowledged. Clients write no more
    /// meanwhile. With no `patience` the replica takes over in any case.
    ///
    /// Returns false if the replica did not have everything in time: the store is a primary then.
    ///
    /// # Errors
    /// As of [`Standby::follow`].
    pub fn hand_over(
        &self,
        primary: Primary,
        settings: FollowerSettings,
        acknowledged: &dyn Fn() -> u64,
        patience: Duration,
    ) -> std::io::Result<bool> {
        let _order = self.order.lock();
        let Place { store, audience, lineage, .. } = &self.place;
        *self.put_off.lock() = store.set_replica(true);
        audience.became_replica(store);
        let mut left = patience;
        // Keys expire until the store is a replica, and a sign of life may be told even then.
        while !patience.is_zero() && acknowledged() < store.effects_offset() {
            if left.is_zero() {
                store.set_replica(false);
                self.restore_flushes();
                return Ok(false);
            }
            let pause = left.min(HAND_OVER_PAUSE);
            self.place.system.sleep(pause);
            left -= pause;
        }
        let settings = FollowerSettings {
            resume: lineage.demoted(),
            knows_flags: true,
            node: Some(lineage.node()),
            hands_over: true,
            ..settings
        };
        self.start(primary, settings).map(|()| true)
    }

    /// Has the flushes that memcached clients had asked for when [`Standby::hand_over`] began be done at
    /// their times, as the store is the primary again.
    pub fn restore_flushes(&self) {
        let flushes = std::mem::take(&mut *self.put_off.lock());
        if !flushes.is_empty() {
            self.place.store.set_flushes_to_come(&flushes);
        }
    }

    /// Makes the store a copy of that of the process which this one replaces: its data comes by a
    /// connected socket, which must not block, and the follower ends with that. Nobody uses the
    /// store yet. [`Standby::promote`] or [`Standby::follow`] ends this.
    ///
    /// # Errors
    /// The system has no thread or descriptor for it.
    pub fn take_over(&self, socket: OwnedFd, settings: FollowerSettings) -> std::io::Result<()> {
        let _order = self.order.lock();
        self.place.store.set_replica(true);
        self.place.counts.is_ending.store(false, Ordering::Relaxed);
        let target = StoreTarget::of_twin(self.place.clone());
        let follower = Follower::start_on(socket, settings, Box::new(target))?;
        let primary = Primary { host: "the process before".to_owned(), port: 0 };
        *self.following.lock() = Some(Following { primary, follower });
        Ok(())
    }

    /// Makes a copy of [`Standby::take_over`] the primary in the place of the store that it is a copy of.
    /// `history` is what that one's [`Standby::told_id`] was: its replicas go on here where they were.
    /// Without it they take a snapshot.
    pub fn succeed(&self, history: Option<ReplicationId>) {
        let _order = self.order.lock();
        self.stop();
        self.place.lineage.succeeded(history);
        self.place.store.set_replica(false);
    }

    /// The id by which replicas of this store know the history of its data. None if there are none
    /// that may go on.
    pub fn told_id(&self) -> Option<ReplicationId> {
        self.place.lineage.told_id()
    }

    /// Ends the link of a replica, which stays one. Returns its primary, and the position of the
    /// data in the history of that. None if it follows nobody.
    pub fn rest(&self) -> Option<(Primary, Option<Position>)> {
        let _order = self.order.lock();
        let primary = self.following.lock().as_ref()?.primary.clone();
        Some((primary, self.stop()))
    }

    /// Makes the store a primary; whether it was none. Data of a snapshot that is not whole is
    /// removed.
    pub fn promote(&self) -> bool {
        let _order = self.order.lock();
        let was_replica = self.place.store.is_replica();
        self.stop();
        let store = &self.place.store;
        let was_filling = self.place.counts.is_filling.swap(false, Ordering::Relaxed);
        if was_filling {
            store.clear((self.place.clock)());
            store.end_loading();
        }
        if was_replica {
            self.place.lineage.promoted();
        }
        store.set_replica(false);
        if was_filling {
            store.log().into_iter().for_each(|log| log.begin_anew());
        }
        was_replica
    }

    /// Returns whether a snapshot of the primary replaces the data, and is not whole.
    pub fn is_filling(&self) -> bool {
        self.place.counts.is_filling.load(Ordering::Relaxed)
    }

    /// Takes a replica of this store in. `said` was read behind its PSYNC.
    ///
    /// # Errors
    /// The text of the reply, with its code. The connection is closed then.
    pub fn attach(&self, candidate: Candidate, said: Vec<u8>) -> Result<(), String> {
        self.place.lineage.attach(candidate, said)
    }

    /// The store as the primary of its replicas. A replica has replicas, too.
    pub fn feed_status(&self) -> FeedStatus {
        self.place.lineage.status()
    }

    /// The number of replicas that have acknowledged an offset.
    pub fn acknowledged(&self, offset: u64) -> usize {
        self.place.lineage.acknowledged(offset)
    }

    /// The number of replicas that follow, and were heard within a time.
    pub fn following(&self, lag: Duration) -> usize {
        self.place.lineage.following(lag)
    }

    /// Asks all replicas for their offsets.
    pub fn ask_for_offsets(&self) {
        self.place.lineage.ask_for_offsets();
    }

    /// The id of the history that the data is of.
    pub fn replication_id(&self) -> ReplicationId {
        self.place.lineage.id()
    }

    /// Ends the link of a replica, which stays one, and the feed of its own replicas, which take a
    /// snapshot when they come back.
    pub fn end(&self) {
        let _order = self.order.lock();
        self.stop();
        self.place.lineage.end();
    }

    /// Ends the follower. The position is that of the store's data.
    fn stop(&self) -> Option<Position> {
        let following = self.following.lock().take()?;
        let link = following.follower.status();
        let ended = [link.full_resyncs, link.partial_resyncs, link.failures];
        for (sum, count) in self.past.iter().zip(ended) {
            sum.fetch_add(count, Ordering::Relaxed);
        }
        self.place.counts.is_ending.store(true, Ordering::Relaxed);
        following.follower.stop()
    }

    /// The replica as it is now; `None` for a primary.
    pub fn status(&self) -> Option<StandbyStatus> {
        let following = self.following.lock();
        let Following { primary, follower } = following.as_ref()?;
        let mut link = follower.status();
        let sums = [&mut link.full_resyncs, &mut link.partial_resyncs, &mut link.failures];
        for (sum, past) in sums.into_iter().zip(&self.past) {
            *sum += past.load(Ordering::Relaxed);
        }
        let counts = &self.place.counts;
        Some(StandbyStatus {
            primary: primary.clone(),
            link,
            applied: counts.applied.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
        })
    }

    /// Looks at the link, so that clients are refused while it is down if they are to be. To be
    /// called now and then.
    pub fn look(&self) {
        let Some(status) = self.status() else { return };
        let is_stale =
            !self.serves_stale.load(Ordering::Relaxed) && status.link.state != State::Online;
        self.place.store.set_stale(is_stale);
    }
}

/// A place that the store remembers, as a position of the stream.
fn position_of(place: HistoryPlace) -> Position {
    let HistoryPlace { id, offset, database } = place;
    Position { id, offset, database }
}
