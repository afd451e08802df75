//! The place of a replica's data in the history of its primary.
//!
//! A snapshot and a log remember the place, so that the next process goes on with a partial
//! resync. The place moves with the shards of a unit held, and a cut is made with all shards
//! locked: what a snapshot has is therefore exactly the data of the place that it names.

use keyway_memory::Lock;
use keyway_rdb::replication::ReplicationId;

/// The command that tells the place to a log: `KEYWAY.HISTORY offset database [id]`. Without an
/// id the history is the one before; with no words the data is no replica's any more.
pub const HISTORY_COMMAND: &[u8] = b"KEYWAY.HISTORY";
/// Stands for a database that the stream has not named.
pub(super) const NO_DATABASE: &[u8] = b"-";

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
