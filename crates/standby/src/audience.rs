//! Who hears of what comes from the primary.

/// Tells clients of a replica what the primary has changed. All calls come from the follower's
/// thread, with nothing of the store held.
pub trait Audience: Send + Sync + 'static {
    /// Keys have changed: `Store::take_events` of `NO_WORKER` has events, or somebody who waits
    /// may be served. It does not wait.
    fn changed(&self);

    /// The primary has published a message.
    fn publish(&self, is_sharded: bool, channel: &[u8], message: &[u8]);

    /// A command of the stream has failed. The stream goes on.
    fn failed(&self, command: &str, error: &str);
}
