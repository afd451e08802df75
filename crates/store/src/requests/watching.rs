//! WATCH: keys that a client's transaction depends on.

use super::transaction::Held;
use crate::store::{Context, Mark, Store, Turn};

impl Store {
    /// Has `mark` set when `key` of the client's database changes. To be called
    /// once for a key, and followed by [`Store::unwatch`].
    pub fn watch(&self, key: &[u8], context: Context, mark: &Mark) {
        // Before the shard is locked: who changes the key later locks it later,
        // and knows that it is watched.
        self.events.count_watched(1);
        // A key that has expired is gone from here on.
        self.with_key(Turn::of(context), key, |_| {
            self.watches.enter(context.database, key, mark);
        });
    }

    /// Ends what [`Store::watch`] began.
    pub fn unwatch(&self, database: u32, key: &[u8], mark: &Mark) {
        self.watches.remove(database, key, mark);
        self.events.count_watched(-1);
    }

    /// Keys that are watched now and have not changed, each once for every
    /// client.
    pub fn watched_len(&self) -> usize {
        self.watches.len()
    }
}

impl Held<'_> {
    /// Lets a watched key, which was added to the footprint, expire if it is
    /// time: that is a change as any other.
    pub fn expire(&self, key: &[u8], context: Context) {
        self.store().with_key(Turn::of(context), key, |_| ());
    }
}
