//! Bounds of a feed.

use std::time::Duration;

/// Bounds of a [`Feed`](super::Feed).
#[derive(Clone, Copy, Debug)]
pub struct FeedSettings {
    /// Largest number of replicas at a time. Each takes a thread.
    pub replicas_max: usize,
    /// Longest silence of a replica, and longest time for which it takes no byte of a snapshot.
    /// Redis calls it `repl-timeout`.
    pub timeout: Duration,
    /// Time between two PINGs in the stream. Replicas take a longer silence for a lost connection.
    pub ping_period: Duration,
    /// How long the stream is kept for replicas that may come back when the last one has left.
    pub backlog_ttl: Duration,
}

impl Default for FeedSettings {
    /// Redis's defaults, and 64 replicas.
    fn default() -> Self {
        Self {
            replicas_max: 64,
            timeout: Duration::from_secs(60),
            ping_period: Duration::from_secs(10),
            backlog_ttl: Duration::from_secs(3600),
        }
    }
}
