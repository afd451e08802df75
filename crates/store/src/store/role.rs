//! The role of a store, what keeps its clients from being served, and the place of a replica's data
//! in the history of its primary.

use super::core::Store;
use super::gate::{ALONE, HELD, LOADING, REPLICA, Restrictions, STALE, UNLOGGED};
use super::history::{HISTORY_COMMAND, HistoryPlace, NO_DATABASE};
use keyway_memory::Holder;

impl Store {
    /// Returns whether a request has to pass [`Store::restrictions`].
    #[inline]
    pub fn is_restricted(&self) -> bool {
        !self.gate.restrictions().is_none()
    }

    /// Returns what restricts requests of clients now.
    pub fn restrictions(&self) -> Restrictions {
        self.gate.restrictions()
    }

    /// Returns whether the store is being loaded: nobody is to be served.
    #[inline]
    pub fn is_loading(&self) -> bool {
        self.gate.has(LOADING)
    }

    /// Has workers refuse writes as the log cannot take them, or take them again.
    pub fn refuse_writes(&self, is_refused: bool) {
        self.gate.set(UNLOGGED, is_refused);
    }

    /// Returns whether writes are refused, as the log cannot take them.
    #[inline]
    pub fn refuses_writes(&self) -> bool {
        self.gate.has(UNLOGGED)
    }

    /// Has workers refuse writes as too few replicas follow, or take them again.
    pub fn set_alone(&self, is_alone: bool) {
        self.gate.set(ALONE, is_alone);
    }

    /// Has nothing change by itself, or things change again: nothing expires by upkeep, and nothing
    /// is evicted by it. Clients are held by others.
    pub fn set_held(&self, is_held: bool) {
        self.gate.set(HELD, is_held);
    }

    /// Returns whether nothing is to change by itself.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.gate.has(HELD)
    }

    /// Returns whether the store is a replica.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.gate.has(REPLICA)
    }

    /// Makes the store a replica, or a primary.
    ///
    /// A write that is under way ends as it began. All shards are locked once, so that every
    /// later one sees the change. A replica does none of the flushes that memcached clients have asked
    /// for at a time to come: its primary does its own. Returns those that it would have done, as
    /// [`Store::flushes_to_come`] gives them.
    pub fn set_replica(&self, is_replica: bool) -> Vec<(u32, u64)> {
        let _locked = self.lock_all();
        self.gate.set(REPLICA, is_replica);
        if is_replica {
            let flushes = self.flushes_to_come();
            self.set_flushes_to_come(&[]);
            return flushes;
        }
        self.gate.set(STALE, false);
        // In front of the first write of a client.
        self.leave_history();
        Vec::new()
    }

    /// Has clients of a replica be refused, or served with what there is.
    pub fn set_stale(&self, is_stale: bool) {
        self.gate.set(STALE, is_stale);
    }

    /// The flushes of databases that memcached clients have asked for at a time to come: the
    /// database, and when, in milliseconds since the Unix epoch.
    pub fn flushes_to_come(&self) -> Vec<(u32, u64)> {
        self.flushes.all()
    }

    /// Puts such flushes in the place of those that there are.
    pub fn set_flushes_to_come(&self, flushes: &[(u32, u64)]) {
        for database in 0..self.database_count() {
            let flush = flushes.iter().find(|(of, _)| *of == database);
            self.flushes.set(database, flush.map(|(_, at)| *at));
        }
    }
}

impl Store {
    /// Returns whether something is to remember the place of a replica's data: a log or a
    /// snapshot.
    pub fn keeps_history(&self) -> bool {
        self.log().is_some() || self.has_snapshots()
    }

    /// The place of a replica's data in the history of its primary. `None` for a primary, and for
    /// data that is no state of a history.
    pub fn history_place(&self) -> Option<HistoryPlace> {
        self.history.get()
    }

    /// Moves the place behind a unit of the primary, with the shards of the unit held: the move is
    /// part of the unit. If nothing is held, the move is told alone.
    pub fn set_history_place(&self, place: HistoryPlace) {
        let before = self.history.set(Some(place));
        if !self.effects.is_on() || self.log().is_none() {
            return;
        }
        let (offset, database) =
            (place.offset.to_string(), place.database.map(|it| it.to_string()));
        let database = database.as_deref().map_or(NO_DATABASE, str::as_bytes);
        let words = [HISTORY_COMMAND, offset.as_bytes(), database, place.id.as_bytes()];
        let is_same = before.is_some_and(|before| before.id == place.id);
        self.tell_history(&words[..if is_same { 3 } else { 4 }]);
    }

    /// Notes that the data is no state of a primary's history any more.
    pub fn leave_history(&self) {
        if self.history.set(None).is_some() && self.effects.is_on() && self.log().is_some() {
            self.tell_history(&[HISTORY_COMMAND]);
        }
    }

    /// Notes that the data is no state of a history any more, whatever the log has told before this
    /// process went on with it.
    pub fn end_history(&self) {
        self.history.set(None);
        if self.effects.is_on() && self.log().is_some() {
            self.tell_history(&[HISTORY_COMMAND]);
        }
    }

    fn tell_history(&self, words: &[&[u8]]) {
        if Holder::is_holding() {
            self.effects.with_unit(|unit| unit.push_beside(words.iter().copied()));
        } else {
            self.effects.tell_alone(0, words.iter().copied());
        }
    }
}
