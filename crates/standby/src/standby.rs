//! The role of a store: a primary, or the replica of another server.

use crate::audience::Audience;
use crate::target::{Counts, Place, StoreTarget};
use keyway_base::Clock;
use keyway_replica::{Follower, FollowerSettings, Lookups, Position, State, Status};
use keyway_script::Registry;
use keyway_store::{HistoryPlace, Store};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
}

struct Following {
    primary: Primary,
    follower: Follower,
}

impl Standby {
    /// The role of a store that is a primary. With `serves_stale` a replica answers with what it
    /// has while the link to its primary is down.
    pub fn new(parts: Parts, serves_stale: bool) -> Self {
        let Parts { store, scripts, audience, clock } = parts;
        let place = Place { store, scripts, audience, clock, counts: Arc::new(Counts::default()) };
        Self {
            place,
            order: Mutex::new(()),
            following: Mutex::new(None),
            serves_stale: AtomicBool::new(serves_stale),
            past: Default::default(),
            lookups: Lookups::default(),
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
        let resume = match is_following {
            true => self.stop(),
            false => self.place.store.history_place().map(position_of),
        };
        if !self.place.store.is_replica() {
            self.place.store.set_replica(true);
            self.place.audience.became_replica(&self.place.store);
        }
        self.place.counts.is_ending.store(false, Ordering::Relaxed);
        let settings = FollowerSettings {
            resume: settings.resume.or(resume),
            lookups: self.lookups.clone(),
            ..settings
        };
        let target = StoreTarget::new(self.place.clone());
        let follower = Follower::start(settings, Box::new(target))?;
        *self.following.lock() = Some(Following { primary, follower });
        self.look();
        Ok(())
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

    /// Ends the link of a replica, which stays one.
    pub fn end(&self) {
        let _order = self.order.lock();
        self.stop();
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
