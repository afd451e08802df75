//! Whom to follow, and how.

use crate::target::Position;
use keyway_base::Limits;
use keyway_rdb::ReadLimits;
use keyway_rdb::replication::{ReplicaSettings, ReplicationId, Resume};
use keyway_resp::ParseLimits;
use keyway_tls::ClientTls;
use keyway_topology::Endpoint;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whom to follow, and how.
#[derive(Clone)]
pub struct FollowerSettings {
    /// Where the primary listens.
    pub primary: Endpoint,
    /// The user's name; without it the password is the server's own.
    pub username: Option<String>,
    /// The password, if the primary wants one.
    pub password: Option<String>,
    /// What TLS needs, if the primary speaks it.
    pub tls: Option<ClientTls>,
    /// The port that the primary shows in INFO and that sentinels connect to.
    pub listening_port: Option<u16>,
    /// The address for the same, where it is not that of the connection.
    pub announced_address: Option<String>,
    /// The version of Valkey that the follower claims. Valkey 9 sends RDB 80 to
    /// a replica of 9.0 or later; any other gets RDB 11, which cannot hold all of
    /// its data. Redis ignores it.
    pub valkey_version: Option<String>,
    /// Where to go on; without it a full resync is asked for.
    pub resume: Option<Position>,
    /// True if the target knows the command KEYWAY.FLAGS of a Keyway primary. Others get empty
    /// lines in its place.
    pub knows_flags: bool,
    /// The id of this server, if a Keyway primary is to refuse a follower of its own.
    pub node: Option<ReplicationId>,
    /// True if the server is a replica of this one, which is to take over and feed it. Once it
    /// does, later links ask as usual.
    pub hands_over: bool,
    /// False if the primary is not to count this follower among the replicas that have its writes,
    /// as WAIT and `min-replicas-to-write` do. It then acknowledges nothing, and says seldom that it is
    /// alive.
    pub is_counted: bool,
    /// Longest time for the connection to be made.
    pub connect_timeout: Duration,
    /// Longest silence of the primary. It must be longer than the primary's
    /// `repl-ping-replica-period`, which is 10 s by default.
    pub timeout: Duration,
    /// Pause in front of the second try. Later pauses double.
    pub pause_min: Duration,
    /// Longest pause.
    pub pause_max: Duration,
    /// Bounds on one command of the stream, which is held in memory as a whole.
    pub command_limits: ParseLimits,
    /// Bounds on one string of the snapshot, which is held in memory as a whole.
    pub snapshot_limits: ReadLimits,
    /// Longest transaction, in bytes of the stream. It is held in memory as a
    /// whole. A longer one makes the follower take a full resync instead.
    pub transaction_len_max: usize,
    /// Bounds look-ups of hosts: one at a time for all followers with the same value.
    pub lookups: Lookups,
}

/// Look-ups that followers have begun. One that the system's resolver does not answer goes on when
/// its follower has stopped, and the next one waits for its end.
#[derive(Clone, Default)]
pub struct Lookups(Arc<AtomicBool>);

impl Lookups {
    /// Begins a look-up, unless another goes on. It ends when the value is dropped.
    pub(crate) fn begin(&self) -> Option<Lookup> {
        let was_running = self.0.swap(true, Ordering::Relaxed);
        (!was_running).then(|| Lookup(Arc::clone(&self.0)))
    }
}

/// A look-up that goes on.
pub(crate) struct Lookup(Arc<AtomicBool>);

impl Drop for Lookup {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl FollowerSettings {
    /// The usual settings for a primary.
    pub fn new(primary: Endpoint) -> Self {
        Self {
            primary,
            username: None,
            password: None,
            tls: None,
            listening_port: None,
            announced_address: None,
            valkey_version: Some("9.0.0".to_owned()),
            resume: None,
            knows_flags: false,
            node: None,
            hands_over: false,
            is_counted: true,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(60),
            pause_min: Duration::from_millis(100),
            pause_max: Duration::from_secs(5),
            command_limits: ParseLimits::of(&Limits::default()),
            snapshot_limits: ReadLimits::default(),
            transaction_len_max: 1 << 30,
            lookups: Lookups::default(),
        }
    }

    /// What the handshake tells of the replica.
    pub(crate) fn handshake(
        &self,
        position: Option<Position>,
        hands_over: bool,
    ) -> ReplicaSettings {
        ReplicaSettings {
            username: self.username.clone(),
            password: self.password.clone(),
            listening_port: self.listening_port,
            address: self.announced_address.clone(),
            version: self.valkey_version.clone(),
            resume: position.map(|Position { id, offset, .. }| Resume { id, offset }),
            knows_flags: self.knows_flags,
            node: self.node,
            hands_over,
        }
    }
}

/// The password is left out.
impl fmt::Debug for FollowerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowerSettings")
            .field("primary", &self.primary)
            .field("username", &self.username)
            .field("has_password", &self.password.is_some())
            .field("has_tls", &self.tls.is_some())
            .field("resume", &self.resume)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_look_up_at_a_time() {
        let lookups = Lookups::default();
        let other = lookups.clone();
        let lookup = lookups.begin().expect("none goes on");
        assert!(other.begin().is_none() && lookups.begin().is_none());
        drop(lookup);
        assert!(other.begin().is_some());
        assert!(lookups.begin().is_some(), "a value that was dropped has ended");
    }
}
