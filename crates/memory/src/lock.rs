use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

/// The word of a free lock: no guard, and no holder in its upper bits.
const FREE: u32 = 0;
/// Set while there is a guard.
const GUARDED: u32 = 1;

/// Number of spins before the thread yields. A critical section takes tens of nanoseconds. With
/// fewer spins, threads would yield too early. With more, they would waste processor time when the
/// holder does not run.
const SPINS_MAX: u32 = 64;

/// A one-word lock around `T`. A thread with the lock waits for nothing but memory, so there is no
/// queue of sleepers: a waiter spins, and then yields. Unlocking is a plain load and store, which
/// takes half as long as in a lock with sleepers.
///
/// A thread may also *hold* a lock, for several requests whose intermediate states must not be
/// visible. Meanwhile it gets guards as if the lock were free, and no other thread gets one. A
/// thread that locks a free lock pays nothing for that.
pub struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and there is at most one
// guard at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Creates a free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits until the lock is free, and locks it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    /// Locks it if it is free now.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // ORDER: Acquire pairs with the Release in `Guard::drop`.
        self.word
            .compare_exchange(FREE, GUARDED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| Guard { lock: self })
    }

    /// Locks it if it is free now or held by this thread.
    pub fn try_lock_or_held(&self) -> Option<Guard<'_, T>> {
        self.try_lock().or_else(|| self.try_held(Holder::of_thread()))
    }

    /// Locks it if `holder` holds it and has no guard.
    fn try_held(&self, holder: Holder) -> Option<Guard<'_, T>> {
        let guarded = holder.0 | GUARDED;
        // Only this thread changes the word while it is the holder.
        self.word
            .compare_exchange(holder.0, guarded, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
            .then(|| Guard { lock: self })
    }

    /// Waits until the lock is free, and holds it until [`Lock::release`].
    pub fn hold(&self, holder: Holder) {
        self.keep(self.lock(), holder);
    }

    /// Turns a guard of this lock into a hold, until [`Lock::release`].
    ///
    /// # Panics
    /// Panics if the guard belongs to another lock.
    pub fn keep(&self, guard: Guard<'_, T>, holder: Holder) {
        assert!(std::ptr::eq(guard.lock, self), "a guard of this lock");
        self.word.store(holder.0 | GUARDED, Ordering::Relaxed);
        drop(guard);
    }

    /// Ends what [`Lock::hold`] began.
    ///
    /// # Panics
    /// Panics if `holder` does not hold the lock, or if there is a guard.
    pub fn release(&self, holder: Holder) {
        assert_eq!(self.word.load(Ordering::Relaxed), holder.0, "held by who releases it");
        // ORDER: Release pairs with the Acquire in `Lock::try_lock`.
        self.word.store(FREE, Ordering::Release);
    }

    /// Returns whether there is a guard.
    pub fn is_guarded(&self) -> bool {
        self.word.load(Ordering::Relaxed) & GUARDED != 0
    }

    /// Like [`Lock::lock`], but does not wait for another thread that holds the lock.
    pub fn lock_unless_held(&self) -> Option<Guard<'_, T>> {
        let mut spins = 0;
        loop {
            if let Some(guard) = self.try_lock_or_held() {
                return Some(guard);
            }
            if self.has_holder() {
                return None;
            }
            pause(&mut spins);
        }
    }

    /// Like [`Lock::hold`], but does not wait for another thread that holds the lock. Returns
    /// whether it is held now.
    pub fn hold_unless_held(&self, holder: Holder) -> bool {
        let guard = self.lock_unless_held();
        if guard.is_some() {
            self.word.store(holder.0 | GUARDED, Ordering::Relaxed);
        }
        guard.is_some()
    }

    /// Waits until no thread holds the lock.
    pub fn wait_until_released(&self) {
        let mut spins = 0;
        while self.has_holder() {
            pause(&mut spins);
        }
    }

    fn has_holder(&self) -> bool {
        self.holder().is_some()
    }

    /// Returns the holder of the lock.
    pub fn holder(&self) -> Option<u32> {
        let holder = self.word.load(Ordering::Relaxed) & !GUARDED;
        (holder != FREE).then_some(holder)
    }

    /// Returns whether a thread has a guard of the lock, or holds it.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.word.load(Ordering::Relaxed) != FREE
    }

    /// Returns whether this thread holds the lock.
    pub fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !GUARDED == Holder::of_thread().0
    }

    #[cold]
    fn lock_contended(&self) -> Guard<'_, T> {
        let mut spins = 0;
        let holder = Holder::of_thread();
        if let Some(guard) = self.try_held(holder) {
            return guard;
        }
        loop {
            while self.word.load(Ordering::Relaxed) != FREE {
                pause(&mut spins);
            }
            if let Some(guard) = self.try_lock() {
                return guard;
            }
        }
    }

    /// Returns the value mutably. No other thread can reach it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Waits for a moment. It is the `spins`th wait.
pub fn pause(spins: &mut u32) {
    if *spins < SPINS_MAX {
        *spins += 1;
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// The right to use the value of a [`Lock`] until it is dropped.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one of its lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one of its lock, and borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Only this thread changes the word while it has a guard. What is left is the holder, if
        // there is one.
        let holder = self.lock.word.load(Ordering::Relaxed) & !GUARDED;
        // ORDER: Release pairs with the Acquire in `Lock::try_lock`.
        self.lock.word.store(holder, Ordering::Release);
    }
}

/// A thread that can hold locks. The value stays on its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(u32, PhantomData<*const ()>);

thread_local! {
    static IS_HOLDING: Cell<bool> = const { Cell::new(false) };
}

impl Holder {
    /// Returns whether the thread holds any lock. It must then not wait for another one.
    pub fn is_holding() -> bool {
        IS_HOLDING.get()
    }

    /// Notes that the thread begins, or ends, to hold locks.
    pub fn set_holding(self, is_holding: bool) {
        IS_HOLDING.set(is_holding);
    }

    /// A small number that no other thread has.
    pub fn number(self) -> u32 {
        self.0 >> 1
    }

    /// The thread that asks.
    pub fn of_thread() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        thread_local! {
            static OWN: u32 = NEXT.fetch_add(1, Ordering::Relaxed) << 1;
        }
        Self(OWN.with(|own| *own), PhantomData)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_increment_is_lost_under_contention() {
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 40_000);
    }

    #[test]
    fn who_holds_a_lock_gets_its_guards_one_at_a_time_and_nobody_else_does() {
        let lock = Lock::new(1);
        let holder = Holder::of_thread();
        lock.hold(holder);
        *lock.lock() += 1;
        let guard = lock.try_lock_or_held().expect("held here");
        assert!(lock.try_lock_or_held().is_none(), "there is a guard");
        drop(guard);
        let own = holder.0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(lock.try_lock().is_none() && lock.try_lock_or_held().is_none());
                assert_ne!(Holder::of_thread().0, own);
            });
        });
        lock.release(holder);
        assert_eq!(lock.try_lock().as_deref(), Some(&2));
    }

    #[test]
    fn what_is_done_while_a_lock_is_held_is_seen_whole() {
        let lock = Lock::new((0u64, 0u64));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let holder = Holder::of_thread();
                    for _ in 0..2_000 {
                        lock.hold(holder);
                        lock.lock().0 += 1;
                        lock.lock().1 += 1;
                        lock.release(holder);
                    }
                });
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let both = *lock.lock();
                        assert_eq!(both.0, both.1);
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (4_000, 4_000));
    }

    #[test]
    fn who_must_not_wait_for_a_holder_waits_for_a_guard_and_for_itself_only() {
        let lock = Lock::new(0);
        let holder = Holder::of_thread();
        assert!(lock.hold_unless_held(holder) && lock.is_held());
        assert!(lock.lock_unless_held().is_some(), "held here");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(lock.lock_unless_held().is_none() && !lock.is_held());
                assert!(!lock.hold_unless_held(Holder::of_thread()));
            });
        });
        lock.release(holder);
        lock.wait_until_released();
        assert!(lock.lock_unless_held().is_some());
    }

    #[test]
    fn a_held_lock_refuses_a_second_holder() {
        let lock = Lock::new(());
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_lock_tells_its_guard_and_its_holder() {
        let lock = Lock::new(());
        let holder = Holder::of_thread();
        let state = || (lock.is_taken(), lock.is_guarded(), lock.holder(), lock.is_held());
        assert_eq!(state(), (false, false, None, false));
        let guard = lock.lock();
        assert_eq!(state(), (true, true, None, false));
        lock.keep(guard, holder);
        assert_eq!(state(), (true, false, Some(holder.0), true));
        let guard = lock.lock();
        assert_eq!(state(), (true, true, Some(holder.0), true));
        drop(guard);
        assert_eq!(state(), (true, false, Some(holder.0), true));
        lock.release(holder);
        assert_eq!(state(), (false, false, None, false));
        assert_eq!(Holder::of_thread(), holder);
    }

    #[test]
    fn a_thread_that_begins_to_hold_locks_is_holding_until_it_ends() {
        let holder = Holder::of_thread();
        assert!(!Holder::is_holding());
        holder.set_holding(true);
        assert!(Holder::is_holding());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!Holder::is_holding(), "another thread"));
        });
        holder.set_holding(false);
        assert!(!Holder::is_holding());
    }

    #[test]
    fn a_thread_that_waits_for_the_release_of_a_lock_returns_after_it() {
        let (lock, is_over) = (Lock::new(()), AtomicU32::new(0));
        let holder = Holder::of_thread();
        for round in 1..=20 {
            lock.hold(holder);
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    lock.wait_until_released();
                    is_over.load(Ordering::Relaxed)
                });
                std::thread::yield_now();
                is_over.store(round, Ordering::Relaxed);
                lock.release(holder);
                assert_eq!(waiter.join().ok(), Some(round));
            });
        }
    }

    #[test]
    fn a_thread_that_waits_gets_the_lock_once_it_is_free_though_nobody_else_comes() {
        let (lock, turn) = (Lock::new(0), AtomicU32::new(0));
        let rounds = if cfg!(miri) { 5 } else { 300 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    while turn.load(Ordering::Acquire) != 2 * round - 1 {
                        std::thread::yield_now();
                    }
                    *lock.lock() += 1;
                    turn.store(2 * round, Ordering::Release);
                }
            });
            for round in 1..=rounds {
                let guard = lock.lock();
                turn.store(2 * round - 1, Ordering::Release);
                std::thread::yield_now();
                drop(guard);
                while turn.load(Ordering::Acquire) != 2 * round {
                    std::thread::yield_now();
                }
            }
        });
        assert_eq!(*lock.lock(), rounds);
    }

    #[test]
    fn a_waiter_spins_a_bounded_number_of_times() {
        let mut spins = 0;
        for count in 1..=2 * SPINS_MAX {
            pause(&mut spins);
            assert_eq!(spins, count.min(SPINS_MAX));
        }
    }
}
