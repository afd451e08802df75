//! Keyspace events: what became of keys, for whoever publishes it.
//!
//! A class that is not asked for costs one branch. Events are kept until the
//! worker that made them takes them, right after the request.

use crate::entry::Turn;
use crate::store::Store;
use keyway_base::KeyspaceEvents;

/// Something that became of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    /// The key's database, as clients number it.
    pub database: u32,
    /// Redis's name for it, such as `set` or `expired`.
    pub name: &'static str,
    /// The key.
    pub key: Box<[u8]>,
}

impl Store {
    /// Whether there ever are events.
    #[inline]
    pub fn notifies(&self) -> bool {
        self.notify != KeyspaceEvents::NONE
    }

    /// Takes the events there are, in the order in which they happened to each
    /// key. To be called after each request and each [`Store::tick`] while
    /// [`Store::notifies`]: nothing bounds them otherwise.
    pub fn take_events(&self) -> Vec<KeyEvent> {
        std::mem::take(&mut *self.events.lock())
    }

    /// Notes an event of a class, if it is asked for.
    #[inline]
    pub(crate) fn note_event(
        &self,
        turn: Turn,
        class: KeyspaceEvents,
        name: &'static str,
        key: &[u8],
    ) {
        if self.notify.contains(class) {
            self.keep_event(KeyEvent { database: turn.database, name, key: key.into() });
        }
    }

    /// The same for a key whose database is known by its place in shards.
    #[inline]
    pub(crate) fn note_event_at(
        &self,
        place: usize,
        class: KeyspaceEvents,
        name: &'static str,
        key: &[u8],
    ) {
        if self.notify.contains(class) {
            let database = (0..self.database_count()).find(|index| self.place_of(*index) == place);
            let database = database.unwrap_or_default();
            self.keep_event(KeyEvent { database, name, key: key.into() });
        }
    }

    #[cold]
    fn keep_event(&self, event: KeyEvent) {
        self.events.lock().push(event);
    }
}
