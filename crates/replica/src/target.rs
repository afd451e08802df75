//! Where the data goes.

use crate::unit::Unit;
use keyway_rdb::Event;
use keyway_rdb::replication::ReplicationId;
use std::fmt;

/// A point in the history of a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The history's id.
    pub id: ReplicationId,
    /// Bytes of the stream in front of this point.
    pub offset: u64,
    /// The database of the next command. A primary does not repeat it after a
    /// partial resync. `None` if the stream has not named one yet; that is
    /// database 0.
    pub database: Option<u64>,
}

/// Where a snapshot comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The id of the primary's history.
    pub id: ReplicationId,
    /// The offset of the snapshot.
    pub offset: u64,
    /// Bytes of the snapshot, if the primary has announced them.
    pub len: Option<u64>,
}

/// What a target has after a snapshot that ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// The data from before the snapshot, unchanged. The follower may go on with
    /// a partial resync.
    Before,
    /// Anything else. The next resync is a full one.
    Nothing,
}

/// How to go on after a target has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The follower ends the link, and asks for a full resync after a pause.
    Resync,
    /// The follower stops.
    Stop,
}

/// Why a target refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetError {
    text: String,
    recovery: Recovery,
}

/// Bytes of a target's reason that are kept for the log.
const TEXT_LEN_MAX: usize = 500;

impl TargetError {
    /// A refusal after which a full resync is tried.
    pub fn resync(text: &str) -> Self {
        Self::new(text, Recovery::Resync)
    }

    /// A refusal that stops the follower.
    pub fn stop(text: &str) -> Self {
        Self::new(text, Recovery::Stop)
    }

    fn new(text: &str, recovery: Recovery) -> Self {
        let text = text.as_bytes();
        let text = keyway_base::printable(&text[..text.len().min(TEXT_LEN_MAX)]);
        Self { text, recovery }
    }

    /// How the follower goes on.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for TargetError {}

/// What a follower feeds.
///
/// All calls come from the follower's thread, in this order:
///
/// ```text
///  begin_snapshot ─► take … ─► end_snapshot ─┐   ┌──────────────┐
///        ▲             │                     ├─► │ apply …      │
///        │             └─► abort_snapshot    │   │ renamed      │
///        └───────────────────────────────────┘   └──────────────┘
/// ```
/// The follower reads nothing from its socket during a call. A call that takes
/// long also delays the acknowledgement of the offset, which the primary wants
/// within its `repl-timeout`, and [`Follower::stop`](crate::Follower::stop).
pub trait Target: Send + 'static {
    /// A snapshot begins, which replaces all data.
    ///
    /// # Errors
    /// The target does not take the snapshot, and has changed nothing.
    fn begin_snapshot(&mut self, origin: &Origin) -> Result<(), TargetError>;

    /// The next piece of the snapshot.
    ///
    /// # Errors
    /// The target does not take the piece; [`Target::abort_snapshot`] follows.
    fn take(&mut self, event: Event<'_>) -> Result<(), TargetError>;

    /// The snapshot is whole and its checksum is right. The stream goes on at
    /// this position.
    ///
    /// # Errors
    /// The target does not take the snapshot; [`Target::abort_snapshot`] follows.
    fn end_snapshot(&mut self, position: Position) -> Result<(), TargetError>;

    /// The snapshot ends early, for whatever reason.
    fn abort_snapshot(&mut self) -> Remains;

    /// The history has another id from this position on; `before` is good for
    /// everything up to there. A primary that was a replica does this when it
    /// takes over.
    fn renamed(&mut self, _before: ReplicationId, _position: Position) {}

    /// A unit of which `len` bytes have come is incomplete, and is held in memory: a long command,
    /// or a transaction that is open.
    ///
    /// # Errors
    /// [`TargetError`]: there is no room for it.
    fn pending(&mut self, _len: usize) -> Result<(), TargetError> {
        Ok(())
    }

    /// The next unit of the stream. The follower acknowledges the unit once this
    /// has returned, and never hands it over again.
    ///
    /// A command of the stream may fail. Redis 7.0 does not replicate a key that
    /// `BITFIELD … OVERFLOW FAIL` makes, for instance, so a later RENAME of it
    /// fails on a replica. Redis's replicas log such an error and go on.
    ///
    /// # Errors
    /// The target has not applied the unit.
    fn apply(&mut self, unit: &Unit<'_>) -> Result<(), TargetError>;
}
