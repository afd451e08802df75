//! Keeps writers of a store from being faster than the next process, to which the store is fed.
//!
//! ```text
//!  writes that wait:  0 ────── an eighth ────────── three eighths ────── half of the room
//!                               requests go on ◄──    requests are held    the feed is lost
//! ```
//! A hold lasts for milliseconds while the next process takes what there is. If it takes nothing,
//! the hold ends and the feed is lost: the upgrade fails, and clients are served on.

use keyway_store::Store;
use keyway_worker::Plan;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks. A longer one lets more be written in between.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long requests are held while the next process takes nothing.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// A store that is fed.
pub struct Pace {
    pub store: Arc<Store>,
    /// The index of its pool.
    pub pool: usize,
    /// Bytes of writes that may wait.
    pub room: usize,
    /// Counts what was fetched for the next process.
    pub progress: Arc<AtomicU64>,
    /// The offset up to which the stream was fetched for it; 0 before the snapshot has begun.
    pub fetched: Arc<AtomicU64>,
}

/// The thread that looks at all stores.
pub struct Pacer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Starts the thread.
    pub fn begin(paces: Vec<Pace>, plan: Arc<Plan>) -> io::Result<Self> {
        let is_over: Arc<AtomicBool> = Arc::default();
        let told = Arc::clone(&is_over);
        let thread = std::thread::Builder::new().name("keyway-pacer".into());
        let thread = thread.spawn(move || {
            let mut states: Vec<State> = paces.into_iter().map(State::new).collect();
            while !told.load(Ordering::Relaxed) {
                states.iter_mut().for_each(|state| state.look(&plan));
                std::thread::park_timeout(LOOK_EVERY);
            }
            states.iter_mut().for_each(|state| state.set_held(&plan, false));
        })?;
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for Pacer {
    /// Requests are held no more when this returns.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
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

    fn look(&mut self, plan: &Plan) {
        if self.is_stuck {
            return;
        }
        let progress = self.pace.progress.load(Ordering::Relaxed);
        if progress != self.progress.0 || !self.is_held {
            self.progress = (progress, now());
        }
        // Items that change before the snapshot has them wait as well.
        let items = usize::try_from(self.pace.store.snapshot_status().buffered);
        // Bytes that replicas lack, and bytes kept for them, do not belong to the copy.
        let lacking = match self.pace.fetched.load(Ordering::Relaxed) {
            0 => Ok(0),
            fetched => usize::try_from(self.pace.store.effects_offset().saturating_sub(fetched)),
        };
        let waiting = lacking.unwrap_or(usize::MAX).max(items.unwrap_or(usize::MAX));
        let (few, many) = (self.pace.room / 8, self.pace.room / 8 * 3);
        if self.progress.1.elapsed() > STUCK_AFTER {
            self.is_stuck = true;
            self.set_held(plan, false);
        } else if waiting > many {
            self.set_held(plan, true);
        } else if waiting < few {
            self.set_held(plan, false);
        }
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
