//! The receivers of news from the primary.

use keyway_replica::feed::Parting;
use keyway_store::Store;

/// Tells clients of a replica what the primary has changed. Nothing of the store is held during a
/// call.
pub trait Audience: Send + Sync + 'static {
    /// Keys have changed: `Store::take_events` of `NO_WORKER` has events, or somebody who waits
    /// may be served. It does not wait.
    fn changed(&self);

    /// The store takes no more writes of clients. Ends the waiting of those that may write, and
    /// returns when no request of a client that was begun before is under way.
    fn became_replica(&self, store: &Store);

    /// The primary has published a message.
    fn publish(&self, is_sharded: bool, channel: &[u8], message: &[u8]);

    /// A command of the stream has failed. The stream goes on.
    fn failed(&self, command: &str, error: &str);

    /// A replica of this store has acknowledged a later offset.
    fn acknowledged(&self) {}

    /// A replica of this store from this address is fed no longer.
    fn parted(&self, address: &str, parting: &Parting) {
        let _ = (address, parting);
    }

    /// Returns when no request of a client that was begun before is under way.
    fn settle(&self) {}
}
