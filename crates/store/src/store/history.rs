//! The place of a replica's data in the history of its primary.
//!
//! A snapshot and a log remember the place, so that the next process goes on with a partial
//! resync. The place moves with the shards of a unit held, and a cut is made with all shards
//! locked: what a snapshot has is therefore exactly the data of the place that it names.

use super::core::Store;
use keyway_memory::{Holder, Lock};
use keyway_rdb::replication::ReplicationId;

/// The command that tells the place to a log: `KEYWAY.HISTORY offset database [id]`. Without an
/// id the history is the one before; with no words the data is no replica's any more.
pub const HISTORY_COMMAND: &[u8] = b"KEYWAY.HISTORY";
/// Stands for a database that the stream has not named.
const NO_DATABASE: &[u8] = b"-";

/// A place in the history of a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryPlace {
    /// The id of the history.
    pub id: ReplicationId,
    /// Bytes of the primary's stream in front of the place.
    pub offset: u64,
    /// The database of the next command; `None` if the stream has not named one.
    pub database: Option<u64>,
}

/// The place of a store's data, if the data is a replica's.
pub(crate) struct History(Lock<Option<HistoryPlace>>);

impl History {
    pub(crate) const fn new() -> Self {
        Self(Lock::new(None))
    }

    pub(crate) fn get(&self) -> Option<HistoryPlace> {
        *self.0.lock()
    }

    pub(crate) fn set(&self, place: Option<HistoryPlace>) -> Option<HistoryPlace> {
        std::mem::replace(&mut *self.0.lock(), place)
    }

    /// Follows the words of the command behind its name; whether they are in order.
    pub(crate) fn follow(&self, words: &[&[u8]]) -> bool {
        let mut place = self.0.lock();
        let (offset, database, id) = match *words {
            [] => {
                *place = None;
                return true;
            }
            [offset, database] => (offset, database, place.map(|place| place.id)),
            [offset, database, id] => (offset, database, ReplicationId::parse(id)),
            _ => return false,
        };
        let database = match database {
            NO_DATABASE => Some(None),
            number => number_of(number).map(Some),
        };
        let (Some(id), Some(offset), Some(database)) = (id, number_of(offset), database) else {
            return false;
        };
        *place = Some(HistoryPlace { id, offset, database });
        true
    }
}

fn number_of(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
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
