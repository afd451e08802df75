//! Threads on virtual time, of which one runs at a time.
//!
//! ```text
//!  a thread waits ──► Stage: moves the links' bytes, picks a thread that is ready by chance,
//!                            or lets time pass up to the next thing that is due
//!                                  └──► that thread goes on; all others stand still
//! ```
//! A thread gives way only where it waits: for descriptors, for time, or for the end of another
//! thread. Descriptors are real ones, looked at without waiting. No thread may wait with a lock held
//! that another one takes: the director would hear no more of that other one, and says so.

use super::links::Links;
use crate::random::Random;
use keyway_base::{Clock, Time};
use keyway_replica::{System, Thread, Watch, Work};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::PollFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The wall clock at the beginning, in microseconds.
const EPOCH_MICROS: u64 = 1_700_000_000_000_000;
/// Longest real time for which the director waits for the other threads. Only a thread that waits
/// for a lock takes so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most steps at the same time: more are a thread that turns without waiting.
const STEPS_AT_ONCE_MAX: u32 = 200_000;

/// The stage of one run.
pub(super) struct Stage {
    begun: Instant,
    /// Nanoseconds since then.
    now: AtomicU64,
    state: Mutex<State>,
}

struct State {
    random: Random,
    /// The first is the director.
    actors: Vec<Actor>,
    running: usize,
    links: Links,
    /// Nanoseconds by which a thread may wake too late.
    lateness: u64,
    steps: u64,
    steps_at_once: u32,
    fault: Option<String>,
    /// The events so far, if they are recorded.
    story: Option<Vec<String>>,
}

struct Actor {
    name: String,
    does: Does,
    called: Arc<Condvar>,
}

/// The state of an actor.
enum Does {
    Run,
    Wait { fds: Vec<(OwnedFd, PollFlags)>, until: u64 },
    Join(usize),
    End,
}

thread_local! {
    static STAGE: RefCell<Option<(Arc<Stage>, usize)>> = const { RefCell::new(None) };
}

/// The time of this thread's stage.
pub(super) fn clock() -> Clock {
    let now = STAGE.with_borrow(|stage| stage.as_ref().map_or(0, |(stage, _)| stage.nanos()));
    Clock { now: Time(now), unix_micros: EPOCH_MICROS + now / 1000 }
}

fn me() -> usize {
    STAGE.with_borrow(|stage| stage.as_ref().map_or(0, |(_, me)| *me))
}

impl Stage {
    /// Makes the calling thread the director of a new stage.
    #[allow(clippy::disallowed_methods, reason = "virtual times are counted from a real one")]
    pub(super) fn open(
        mut random: Random,
        lateness: Duration,
        links: Links,
        has_story: bool,
    ) -> Arc<Self> {
        let director =
            Actor { name: "director".to_owned(), does: Does::Run, called: Arc::default() };
        let state = State {
            random: random.fork(),
            actors: vec![director],
            running: 0,
            links,
            lateness: lateness.as_nanos() as u64,
            steps: 0,
            steps_at_once: 0,
            fault: None,
            story: has_story.then(Vec::new),
        };
        let (begun, now) = (Instant::now(), AtomicU64::new(0));
        let stage = Arc::new(Self { begun, now, state: Mutex::new(state) });
        STAGE.set(Some((Arc::clone(&stage), 0)));
        stage
    }

    /// Frees the calling thread from its stage.
    pub(super) fn close() {
        STAGE.set(None);
    }

    /// Nanoseconds since the beginning.
    pub(super) fn nanos(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// The number of times that a thread has gone on.
    pub(super) fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// The first thing that went wrong.
    pub(super) fn fault(&self) -> Option<String> {
        self.state.lock().fault.clone()
    }

    /// Notes what has happened, if that is recorded.
    pub(super) fn tell(&self, line: impl FnOnce() -> String) {
        let now = self.nanos();
        if let Some(story) = &mut self.state.lock().story {
            story.push(format!("{:>10.3} ms  {}", now as f64 / 1e6, line()));
        }
    }

    /// Takes what was recorded.
    pub(super) fn take_story(&self) -> Vec<String> {
        self.state.lock().story.take().unwrap_or_default()
    }

    /// Notes that a law is broken. The run ends.
    pub(super) fn fail(&self, text: String) {
        self.state.lock().fault.get_or_insert(text);
    }

    /// Lets time pass for the director. Returns whether nothing is wrong.
    pub(super) fn pass(&self, pause: Duration) -> bool {
        let until = self.nanos() + pause.as_nanos() as u64;
        self.give_way(0, Does::Wait { fds: Vec::new(), until });
        self.state.lock().fault.is_none()
    }

    /// Does something with the links.
    pub(super) fn with_links<R>(&self, work: impl FnOnce(&mut Links, u64) -> R) -> R {
        work(&mut self.state.lock().links, self.nanos())
    }

    /// The names of the threads that have not ended, without the director.
    pub(super) fn cast(&self) -> Vec<String> {
        let state = self.state.lock();
        let others = state.actors.iter().skip(1);
        let lives = others.filter(|actor| !matches!(actor.does, Does::End));
        lives.map(|actor| actor.name.clone()).collect()
    }

    /// Gives way to other threads until this one is called again.
    fn give_way(&self, me: usize, does: Does) {
        let mut state = self.state.lock();
        state.actors[me].does = does;
        let next = state.pick(&self.now);
        state.running = next;
        state.actors[next].does = Does::Run;
        if next == me {
            return;
        }
        state.actors[next].called.notify_one();
        let ended = matches!(state.actors[me].does, Does::End);
        if !ended {
            self.await_call(me, state);
        }
    }

    fn await_call(&self, me: usize, mut state: MutexGuard<'_, State>) {
        let called = Arc::clone(&state.actors[me].called);
        while state.running != me {
            if me > 0 {
                called.wait(&mut state);
            } else if called.wait_for(&mut state, PATIENCE).timed_out() && state.running != me {
                let text = format!("{} does not come back", state.actors[state.running].name);
                state.fault.get_or_insert(text);
                return;
            }
        }
    }

    fn start(self: &Arc<Self>, name: String, work: Work) -> io::Result<Thread> {
        let mut state = self.state.lock();
        let me = state.actors.len();
        let waits = Does::Wait { fds: Vec::new(), until: 0 };
        state.actors.push(Actor { name: name.clone(), does: waits, called: Arc::default() });
        drop(state);
        let stage = Arc::clone(self);
        let body = move || {
            STAGE.set(Some((Arc::clone(&stage), me)));
            stage.await_call(me, stage.state.lock());
            let outcome = catch_unwind(AssertUnwindSafe(work));
            if let Err(panic) = &outcome {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
                let name = stage.state.lock().actors[me].name.clone();
                stage.fail(format!("{name} panicked: {}", text.unwrap_or_default()));
            }
            STAGE.set(None);
            stage.give_way(me, Does::End);
            outcome.map_err(drop)
        };
        let thread = std::thread::Builder::new().name(name).spawn(body)?;
        let stage = Arc::clone(self);
        Ok(Thread::new(move || {
            stage.give_way(self::me(), Does::Join(me));
            thread.join().unwrap_or(Err(())).map_err(|()| Box::new(()) as _)
        }))
    }
}

impl State {
    /// The thread that goes on.
    fn pick(&mut self, now: &AtomicU64) -> usize {
        self.steps += 1;
        loop {
            if self.fault.is_some() {
                return 0;
            }
            let time = now.load(Ordering::Relaxed);
            self.links.pump(time, &mut self.random);
            let ready = self.ready(time);
            if !ready.is_empty() {
                self.steps_at_once += 1;
                if self.steps_at_once > STEPS_AT_ONCE_MAX {
                    let names = ready.iter().map(|index| self.actors[*index].name.as_str());
                    let names: Vec<&str> = names.collect();
                    self.fault = Some(format!("{} turn without waiting", names.join(", ")));
                    return 0;
                }
                return ready[self.random.index(ready.len())];
            }
            let due = self.actors.iter().filter_map(|actor| match actor.does {
                Does::Wait { until, .. } => Some(until),
                _ => None,
            });
            let Some(next) = due.chain(self.links.due(time)).min() else {
                self.fault = Some("all threads wait for each other".to_owned());
                return 0;
            };
            self.steps_at_once = 0;
            now.store(next.max(time + 1), Ordering::Relaxed);
        }
    }

    /// The threads that can go on.
    fn ready(&self, now: u64) -> Vec<usize> {
        let mut watches = Vec::new();
        for actor in &self.actors {
            if let Does::Wait { fds, .. } = &actor.does {
                watches.extend(fds.iter().map(|(fd, wanted)| Watch::new(fd, *wanted)));
            }
        }
        // Without an answer of the system only time wakes threads.
        let _ = Watch::look(&mut watches, Duration::ZERO);
        let mut looked = watches.iter().map(|watch| !watch.found.is_empty());
        let mut ready = Vec::new();
        for (index, actor) in self.actors.iter().enumerate() {
            let is_ready = match &actor.does {
                Does::Run | Does::End => false,
                Does::Join(other) => matches!(self.actors[*other].does, Does::End),
                Does::Wait { fds, until } => {
                    let found = looked.by_ref().take(fds.len()).filter(|found| *found).count();
                    found > 0 || *until <= now
                }
            };
            if is_ready {
                ready.push(index);
            }
        }
        ready
    }
}

/// The system of the threads on a stage.
pub(super) struct Virtual(pub(super) Arc<Stage>);

impl System for Virtual {
    fn now(&self) -> Instant {
        self.0.begun + Duration::from_nanos(self.0.nanos())
    }

    fn wait(&self, watches: &mut [Watch<'_>], until: Instant) -> Result<usize, Errno> {
        let stage = &self.0;
        let me = me();
        let until = until.saturating_duration_since(stage.begun).as_nanos() as u64;
        let late = {
            let mut state = stage.state.lock();
            let lateness = state.lateness;
            if me == 0 { 0 } else { state.random.below(lateness + 1) }
        };
        let copy = |watch: &Watch<'_>| Some((watch.fd.try_clone_to_owned().ok()?, watch.wanted));
        let fds = watches.iter().filter_map(copy).collect();
        stage.give_way(me, Does::Wait { fds, until: until.saturating_add(late) });
        Watch::look(watches, Duration::ZERO)
    }

    fn spawn(&self, name: String, work: Work) -> io::Result<Thread> {
        self.0.start(name, work)
    }

    fn connect_unix(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let name = path.to_str().unwrap_or_default();
        let mut state = self.0.state.lock();
        let State { links, random, .. } = &mut *state;
        links.connect(name, self.0.nanos(), random)
    }

    fn chance(&self) -> u32 {
        self.0.state.lock().random.bits() as u32
    }
}
