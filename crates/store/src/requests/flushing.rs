//! Emptying a database, at once or at a time to come.
//!
//! A flush to come is a time kept per database. The first memcached request
//! from then on does it before anything else, else the next tick: whatever was
//! stored before that time is gone for whoever asks later.

use crate::store::{Context, Locked, NO_WORKER, Store, Turn};
use keyway_base::Clock;
use keyway_resp::Protocol;
use std::sync::atomic::Ordering;

/// Items that are freed with a shard locked, when all are: some hundred microseconds of work.
const CLEAR_STEPS: u32 = 2048;

impl Store {
    /// Returns whether a flush is to be done before a request of this turn.
    #[inline]
    pub(crate) fn flush_is_due(&self, turn: Turn) -> bool {
        // Relaxed: who stored it has answered since, and whoever heard that
        // may only ask through a socket.
        turn.now_millis >= self.flushes.first.load(Ordering::Relaxed)
    }

    /// Does what flushes are due. The caller holds no shard, or all.
    #[cold]
    pub(crate) fn flush_due(&self, turn: Turn) {
        let mut locked = self.lock_all();
        // With all shards locked, nobody sees it taken and not done.
        while let Some(database) = self.flushes.take_due(turn.now_millis) {
            self.flush(&mut locked, database, turn);
            self.flushes.is_done.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether a `flush_all` with a delay has emptied a database since this was
    /// last asked: who tells clients of changes is to tell all of them. To be
    /// asked after each tick.
    pub fn take_delayed_flush(&self) -> bool {
        let is_done = &self.flushes.is_done;
        is_done.load(Ordering::Relaxed) && is_done.swap(false, Ordering::Relaxed)
    }

    /// Empties all databases, for a snapshot that replaces what is there. All watched keys count as
    /// changed. Clients that cache keys must be told that all keys have changed.
    ///
    /// Readers of effects are lost: what is loaded is not told. The memory is free when this
    /// returns, which takes long where there was much.
    pub fn clear(&self, clock: Clock) {
        let context =
            Context { database: 0, clock, protocol: Protocol::default(), worker: NO_WORKER };
        self.clear_databases(context);
        let turn = Turn::of_effect(context);
        for index in 0..self.shard_count() {
            // A shard is due at once as long as it has memory of what was flushed.
            while self.due_of(index).load(Ordering::Relaxed) == 0 {
                self.tidy(&mut self.shard(index), index, turn, &mut { CLEAR_STEPS });
            }
            while self.free_discarded(&mut { CLEAR_STEPS }) {}
        }
    }

    fn clear_databases(&self, context: Context) {
        let mut locked = self.lock_all();
        for database in 0..self.database_count() {
            let turn = Turn { database, ..Turn::of_effect(context) };
            self.watches.mark_database(database, |_| true);
            locked.flush(database, turn);
            self.flushes.set(database, None);
            self.note_all_ready(turn, database);
        }
        self.flushes.is_done.store(true, Ordering::Relaxed);
        self.lose_followers_if_cut();
    }

    /// Empties a database.
    pub(crate) fn flush(&self, locked: &mut Locked<'_>, database: u32, turn: Turn) {
        locked.mark_emptied(database, None, turn);
        locked.flush(database, turn);
        self.note_all_ready(turn, database);
        if self.effects.is_on() {
            self.tell_of_all(database, &[b"FLUSHDB"]);
        }
    }
}
