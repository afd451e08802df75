//! The place where workers wait for the log.

use crate::settings::Fsync;
use keyway_store::{Compaction, EffectLog, LogStatus};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a worker waits before it asks again whether there is room.
const ROOM_PATIENCE: Duration = Duration::from_millis(10);

/// State that the thread of the log and the workers share.
pub(crate) struct Gate {
    is_always: bool,
    /// Units below this number are where they are to be: on the disk, or written.
    done: AtomicU64,
    /// How often units were lost that a worker may have waited for.
    losses: AtomicU64,
    /// The thread sleeps until it is woken.
    is_idle: AtomicBool,
    state: Mutex<State>,
    /// Locked behind `state`, where both are.
    status: Mutex<LogStatus>,
    /// Workers wait here.
    has_done: Condvar,
    /// The thread of the log waits here.
    has_work: Condvar,
    /// Whoever pauses the log waits here.
    has_paused: Condvar,
}

#[derive(Default)]
struct State {
    /// Units below this number are waited for.
    wanted: u64,
    is_open: bool,
    is_ending: bool,
    is_compaction_asked: bool,
    /// The data is being replaced: the log is to take nothing.
    is_pause_asked: bool,
    /// The log takes nothing until it is to begin anew.
    is_paused: bool,
    /// The thread has ended.
    is_over: bool,
}

/// Work of the log's thread besides writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    pub(crate) is_ending: bool,
    pub(crate) compacts: bool,
    /// Nothing is to be taken, as the data is being replaced.
    pub(crate) pauses: bool,
}

impl Gate {
    pub(crate) fn new(fsync: Fsync) -> Self {
        Self {
            is_always: fsync == Fsync::Always,
            done: AtomicU64::new(0),
            losses: AtomicU64::new(0),
            is_idle: AtomicBool::new(false),
            state: Mutex::new(State::default()),
            status: Mutex::default(),
            has_done: Condvar::new(),
            has_work: Condvar::new(),
            has_paused: Condvar::new(),
        }
    }

    /// Lets workers go that wait for units below `told`.
    pub(crate) fn note_done(&self, told: u64) {
        let state = self.state.lock();
        // ORDER: Release pairs with the Acquire in `before_replies`.
        self.done.store(told, Ordering::Release);
        drop(state);
        self.has_done.notify_all();
    }

    /// Lets workers look whether there is room.
    pub(crate) fn note_room(&self) {
        self.has_done.notify_all();
    }

    /// From now on the log takes units; those below `told` are where they are to be.
    pub(crate) fn open(&self, told: u64) {
        self.state.lock().is_open = true;
        self.note_done(told);
    }

    /// The log takes no units, and may have lost some.
    pub(crate) fn lose(&self) {
        let mut state = self.state.lock();
        // Nobody has waited for a log that takes nothing, such as one that fails to begin anew.
        if std::mem::take(&mut state.is_open) {
            // ORDER: Release pairs with the Acquire in `before_replies`.
            self.losses.fetch_add(1, Ordering::Release);
        }
        drop(state);
        self.has_done.notify_all();
    }

    /// The log takes nothing from here on, and has lost nothing; or it may begin anew.
    pub(crate) fn set_paused(&self, is_paused: bool) {
        let mut state = self.state.lock();
        state.is_paused = is_paused;
        state.is_open &= !is_paused;
        drop(state);
        self.has_paused.notify_all();
        self.has_done.notify_all();
    }

    /// The thread has ended: nobody waits for it any more.
    pub(crate) fn close(&self) {
        self.state.lock().is_over = true;
        self.has_paused.notify_all();
    }

    pub(crate) fn end(&self) {
        self.state.lock().is_ending = true;
        self.has_work.notify_all();
    }

    /// Notes the state of compaction, unless the thread does not know yet what was asked for.
    pub(crate) fn note_compaction(&self, compaction: Compaction) {
        let state = self.state.lock();
        if !state.is_compaction_asked {
            self.status.lock().compaction = compaction;
        }
    }

    /// Another process has the log: nobody waits for it any more, and nothing was lost.
    pub(crate) fn shut(&self) {
        self.state.lock().is_open = false;
        self.has_done.notify_all();
    }

    /// Lets another thread of the log begin.
    pub(crate) fn begin_again(&self) {
        let mut state = self.state.lock();
        (state.is_ending, state.is_over) = (false, false);
    }

    /// Figures, to be changed.
    pub(crate) fn status_mut(&self) -> MutexGuard<'_, LogStatus> {
        self.status.lock()
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.state.lock().is_ending
    }

    /// Lets the thread of the log wait, unless a worker waits for units from `done` on.
    pub(crate) fn await_work(&self, done: u64, time: Duration, is_idle: bool) -> Orders {
        let mut state = self.state.lock();
        let is_asked = |state: &State| {
            state.is_ending
                || state.is_compaction_asked
                || state.is_pause_asked != state.is_paused
                || state.wanted > done
        };
        if !is_asked(&state) && !time.is_zero() {
            self.is_idle.store(is_idle, Ordering::Relaxed);
            self.has_work.wait_for(&mut state, time);
            self.is_idle.store(false, Ordering::Relaxed);
        }
        Orders {
            is_ending: state.is_ending,
            compacts: std::mem::take(&mut state.is_compaction_asked),
            pauses: state.is_pause_asked,
        }
    }

    #[cold]
    fn wake(&self) {
        // A holder of the lock is about to sleep, or awake.
        drop(self.state.lock());
        self.has_work.notify_all();
    }

    #[cold]
    fn await_done(&self, told: u64) {
        let mut state = self.state.lock();
        if !state.is_open {
            return;
        }
        let losses = self.losses.load(Ordering::Relaxed);
        state.wanted = state.wanted.max(told);
        self.has_work.notify_all();
        while self.done.load(Ordering::Relaxed) < told
            && self.losses.load(Ordering::Relaxed) == losses
        {
            self.has_done.wait(&mut state);
        }
    }
}

impl EffectLog for Gate {
    fn before_replies(&self, told: u64) -> u64 {
        if self.done.load(Ordering::Acquire) < told {
            if self.is_always {
                self.await_done(told);
            } else if self.is_idle.load(Ordering::Relaxed) {
                self.wake();
            }
        }
        match self.is_always {
            true => self.losses.load(Ordering::Acquire),
            false => 0,
        }
    }

    fn await_room(&self, is_full: &dyn Fn() -> bool) {
        let mut state = self.state.lock();
        while is_full() {
            self.has_work.notify_all();
            self.has_done.wait_for(&mut state, ROOM_PATIENCE);
        }
    }

    fn ask_compaction(&self, may_begin: bool) -> Option<Compaction> {
        let mut state = self.state.lock();
        let mut status = self.status.lock();
        match status.compaction {
            Compaction::Running => return None,
            Compaction::Scheduled => return Some(Compaction::Scheduled),
            Compaction::Idle => {}
        }
        state.is_compaction_asked = true;
        status.compaction_began = 0;
        status.compaction = match may_begin && state.is_open {
            true => Compaction::Running,
            false => Compaction::Scheduled,
        };
        self.has_work.notify_all();
        Some(status.compaction)
    }

    fn pause(&self) {
        let mut state = self.state.lock();
        state.is_pause_asked = true;
        self.has_work.notify_all();
        while !state.is_paused && !state.is_over {
            self.has_paused.wait(&mut state);
        }
    }

    fn begin_anew(&self) {
        self.state.lock().is_pause_asked = false;
        self.has_work.notify_all();
    }

    fn status(&self) -> LogStatus {
        self.status.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_worker_waits_until_its_units_are_done_or_lost() {
        let gate = Arc::new(Gate::new(Fsync::Always));
        gate.open(5);
        assert_eq!(gate.before_replies(5), 0);
        let waiting = {
            let gate = Arc::clone(&gate);
            std::thread::spawn(move || gate.before_replies(8))
        };
        while gate.state.lock().wanted < 8 {
            std::thread::yield_now();
        }
        gate.note_done(7);
        assert!(!waiting.is_finished());
        gate.note_done(8);
        assert_eq!(waiting.join().unwrap(), 0);
        let waiting = {
            let gate = Arc::clone(&gate);
            std::thread::spawn(move || gate.before_replies(9))
        };
        while gate.state.lock().wanted < 9 {
            std::thread::yield_now();
        }
        gate.lose();
        assert_eq!(waiting.join().unwrap(), 1);
        // Nobody waits for a log that takes nothing.
        assert_eq!(gate.before_replies(10), 1);
    }

    #[test]
    fn a_compaction_that_was_asked_for_is_told_until_the_thread_says_how_it_is() {
        let gate = Gate::new(Fsync::EverySecond);
        let status = || EffectLog::status(&gate).compaction;
        // A log that is not open yet begins anew first.
        assert_eq!(gate.ask_compaction(true), Some(Compaction::Scheduled));
        gate.note_compaction(Compaction::Idle);
        assert_eq!(status(), Compaction::Scheduled, "the thread does not know of it");
        assert!(gate.await_work(0, Duration::ZERO, false).compacts);
        gate.open(0);
        gate.note_compaction(Compaction::Idle);
        assert_eq!(gate.ask_compaction(false), Some(Compaction::Scheduled));
        assert_eq!(gate.ask_compaction(true), Some(Compaction::Scheduled));
        assert!(gate.await_work(0, Duration::ZERO, false).compacts);
        gate.note_compaction(Compaction::Running);
        assert_eq!(gate.ask_compaction(true), None);
        gate.note_compaction(Compaction::Idle);
        assert_eq!(gate.ask_compaction(true), Some(Compaction::Running));
        assert_eq!((gate.ask_compaction(true), status()), (None, Compaction::Running));
    }

    #[test]
    fn without_fsync_for_each_reply_nobody_waits() {
        let gate = Gate::new(Fsync::EverySecond);
        gate.open(0);
        assert_eq!(gate.before_replies(u64::MAX), 0);
        gate.lose();
        assert_eq!(gate.before_replies(u64::MAX), 0);
    }
}
