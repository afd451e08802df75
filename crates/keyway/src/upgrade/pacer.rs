//! Keeps writers of a store from being faster than the next process, to which the store is fed.
//!
//! ```text
//!  writes that wait:  0 ────── an eighth ────────── three eighths ────── the room
//!                               requests go on ◄──    requests are held    workers execute none
//! ```
//! A hold lasts for milliseconds while the next process takes what there is. If it takes nothing,
//! the hold ends and the store is fed no longer: the upgrade fails, and clients are served on.
//!
//! The copy never loses its place for want of room (`Keeping::All`). At the room's end workers leave
//! requests unexecuted, however long this thread is kept from its look.

use keyway_replica::feed::Feed;
use keyway_standby::TwinProgress;
use keyway_store::Store;
use keyway_worker::Plan;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks. A longer one lets more be written in between.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long requests are held while the next process takes nothing.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// A store that is fed.
pub struct Pace {
    /// The name of its pool.
    pub name: String,
    pub store: Arc<Store>,
    /// The index of its pool.
    pub pool: usize,
    /// Bytes of writes that may wait.
    pub room: usize,
    /// What was fetched for the next process.
    pub progress: Arc<TwinProgress>,
    /// Feeds it.
    pub feed: Arc<Feed>,
}

/// The orders to the thread.
#[derive(Default)]
struct Orders {
    is_over: AtomicBool,
    holds: AtomicBool,
}

/// The thread that looks at all stores.
pub struct Pacer {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Starts the thread.
    pub fn begin(paces: Vec<Pace>, plan: Arc<Plan>) -> io::Result<Self> {
        let orders: Arc<Orders> = Arc::default();
        let told = Arc::clone(&orders);
        let thread = std::thread::Builder::new().name("keyway-pacer".into());
        let thread = thread.spawn(move || {
            let mut states: Vec<State> = paces.into_iter().map(State::new).collect();
            while !told.is_over.load(Ordering::Relaxed) {
                let holds = told.holds.load(Ordering::Relaxed);
                states.iter_mut().for_each(|state| state.look(&plan, holds));
                std::thread::park_timeout(LOOK_EVERY);
            }
            states.iter_mut().for_each(|state| state.set_held(&plan, false));
        })?;
        Ok(Self { orders, thread: Some(thread) })
    }

    /// Holds requests of all stores from the next look on, however little waits.
    pub fn hold(&self) {
        self.orders.holds.store(true, Ordering::Relaxed);
    }
}

impl Drop for Pacer {
    /// Requests are held no more when this returns.
    fn drop(&mut self) {
        self.orders.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct State {
    pace: Pace,
    is_held: bool,
    /// It is given up.
    is_stuck: bool,
    /// The progress at the last look that found some, and when that was.
    progress: (u64, Instant),
}

impl State {
    fn new(pace: Pace) -> Self {
        Self { pace, is_held: false, is_stuck: false, progress: (0, now()) }
    }

    /// Bytes that wait for the next process.
    fn waiting(&self) -> usize {
        let Some(fetched) = self.pace.progress.fetched() else { return 0 };
        // Items that change before the snapshot has them wait as well. The store may make another
        // snapshot, for a replica or a log, before this one and after it.
        let items = match self.pace.progress.is_snapshotting() {
            true => usize::try_from(self.pace.store.snapshot_status().buffered),
            false => Ok(0),
        };
        // Bytes that replicas lack, and bytes kept for them, do not belong to the copy.
        let lacking = usize::try_from(self.pace.store.effects_offset().saturating_sub(fetched));
        lacking.unwrap_or(usize::MAX).max(items.unwrap_or(usize::MAX))
    }

    fn look(&mut self, plan: &Plan, holds: bool) {
        if self.is_stuck {
            return;
        }
        let (waiting, progress) = (self.waiting(), self.pace.progress.taken());
        let (few, many) = (self.pace.room / 8, self.pace.room / 8 * 3);
        // Workers wait by themselves then, for the copy or for a log.
        let is_full = self.pace.store.effects_are_full();
        let is_waited_for = waiting >= few && (self.is_held || is_full);
        if progress != self.progress.0 || !is_waited_for {
            self.progress = (progress, now());
        }
        if self.progress.1.elapsed() > STUCK_AFTER {
            self.give_up(plan);
        } else if holds || waiting > many {
            self.set_held(plan, true);
        } else if waiting < few {
            self.set_held(plan, false);
        }
    }

    /// Feeds the store no longer, so that nobody waits for the next process.
    fn give_up(&mut self, plan: &Plan) {
        tracing::warn!(
            pool = self.pace.name,
            "upgrade: requests have waited for {STUCK_AFTER:?} while the next process took nothing"
        );
        self.is_stuck = true;
        self.pace.feed.end();
        self.set_held(plan, false);
    }

    fn set_held(&mut self, plan: &Plan, is_held: bool) {
        if std::mem::replace(&mut self.is_held, is_held) != is_held
            && let Some(pool) = plan.pools.get(self.pace.pool)
        {
            pool.pause.set_held(is_held);
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
fn now() -> Instant {
    Instant::now()
}
