//! The role of a store: a primary, or the replica of another server.

use crate::audience::Audience;
use crate::target::{Counts, Place, StoreTarget};
use keyway_base::Clock;
use keyway_replica::{Follower, FollowerSettings, Position, State, Status};
use keyway_script::Registry;
use keyway_store::Store;
use parking_lot::Mutex;
use std::fmt;
use std::os::fd::OwnedFd;
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
        write!(f, "{}:{}", self.host, self.port)
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

    /// Makes the store the replica of a primary. A replica of another one goes on from where it
    /// is, if the new primary has the same history; else a full resync replaces its data.
    ///
    /// # Errors
    /// The system has no thread or descriptor for it. The store is a replica without a primary
    /// then.
    pub fn follow(&self, primary: Primary, settings: FollowerSettings) -> std::io::Result<()> {
        let _order = self.order.lock();
        let resume = self.stop();
        if !self.place.store.is_replica() {
            self.place.store.set_replica(true);
            self.place.audience.became_replica(&self.place.store);
        }
        self.place.counts.is_ending.store(false, Ordering::Relaxed);
        let settings = FollowerSettings { resume: settings.resume.or(resume), ..settings };
        let target = StoreTarget::new(self.place.clone());
        let follower = Follower::start(settings, Box::new(target))?;
        *self.following.lock() = Some(Following { primary, follower });
        self.look();
        Ok(())
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
        if self.place.counts.is_filling.swap(false, Ordering::Relaxed) {
            self.place.store.clear((self.place.clock)());
            self.place.store.end_loading();
        }
        self.place.store.set_replica(false);
        was_replica
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
