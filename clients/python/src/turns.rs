//! Threads that share a connection take turns, none of which holds up who asks or closes. A process
//! that was forked off has none.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often this process was forked off, from the first on.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Tells, in a child, that it was forked off.
pub fn is_forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Something that one thread has at a time, until it is closed.
pub struct Turns<T> {
    /// Of the process that it belongs to.
    forks: u32,
    place: Mutex<Place<T>>,
    is_back: Condvar,
    waiting: AtomicUsize,
}

enum Place<T> {
    Here(T),
    /// Somebody has it.
    Taken,
    /// Somebody may have it still, who drops it.
    Closed,
}

/// What came of [`Turns::take`].
pub enum Taken<'a, T> {
    Turn(Turn<'a, T>),
    /// Another thread still has it.
    Busy,
    Closed,
    /// It belongs to the process that this one was forked off.
    Inherited,
}

/// A thread's turn, which ends when this is dropped.
pub struct Turn<'a, T> {
    turns: &'a Turns<T>,
    /// Here until the end.
    own: Option<T>,
}

impl<T> Turns<T> {
    pub fn new(own: T) -> Turns<T> {
        Turns {
            forks: FORKS.load(Ordering::Relaxed),
            place: Mutex::new(Place::Here(own)),
            is_back: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Never held for longer than it takes to look.
    fn place(&self) -> MutexGuard<'_, Place<T>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it, when no other thread has it or gives it back within `wait`.
    pub fn take(&self, wait: Duration) -> Taken<'_, T> {
        if self.is_inherited() {
            return Taken::Inherited;
        }
        let mut place = self.place();
        if matches!(*place, Place::Taken) {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let is_taken = |place: &mut Place<T>| matches!(place, Place::Taken);
            let waited = self.is_back.wait_timeout_while(place, wait, is_taken);
            place = waited.unwrap_or_else(PoisonError::into_inner).0;
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Here(own) => Taken::Turn(Turn { turns: self, own: Some(own) }),
            Place::Taken => Taken::Busy,
            Place::Closed => {
                *place = Place::Closed;
                Taken::Closed
            }
        }
    }

    fn is_inherited(&self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }

    /// Closes it. Who has it sees so.
    pub fn close(&self) {
        if self.is_inherited() {
            return self.drop_inherited();
        }
        // What it is dropped with may take its time: not under the lock.
        let before = std::mem::replace(&mut *self.place(), Place::Closed);
        self.is_back.notify_all();
        drop(before);
    }

    /// Gives up this process's share of it, unless a thread of the parent held the lock as it forked.
    fn drop_inherited(&self) {
        let place = self.place.try_lock();
        let before = place.map(|mut place| std::mem::replace(&mut *place, Place::Closed));
        drop(before);
    }

    pub fn is_closed(&self) -> bool {
        matches!(*self.place(), Place::Closed)
    }

    /// Whether another thread wants it.
    pub fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.own.as_ref().expect("it is here until the end")
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.own.as_mut().expect("it is here until the end")
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut place = self.turns.place();
        if matches!(*place, Place::Taken)
            && let Some(own) = self.own.take()
        {
            *place = Place::Here(own);
            drop(place);
            self.turns.is_back.notify_one();
        }
    }
}
