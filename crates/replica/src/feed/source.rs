//! The source that replicas are fed from.

use super::session::Parting;
use keyway_rdb::Version;
use keyway_rdb::replication::ReplicaProfile;

/// The data of a primary: a snapshot, and the stream of commands that fits it.
pub trait Source: Send + Sync {
    /// Begins a snapshot for a replica that reads `version`, and the stream of everything that is
    /// executed behind the snapshot's moment.
    ///
    /// # Errors
    /// [`SourceError`].
    fn begin(&self, version: Version) -> Result<Beginning, SourceError>;

    /// Returns the stream from an offset on, if all of it is still kept.
    fn resume(&self, offset: u64) -> Option<Box<dyn Stream>>;

    /// Returns the stream from its end on, if it has begun.
    fn anchor(&self) -> Option<Box<dyn Stream>>;

    /// Adds a command that changes nothing to the stream, such as PING.
    fn tell(&self, words: &[&[u8]]);

    /// Replaces commands that a replica does not know by others of the same length. `commands` are
    /// whole ones.
    fn adapt(&self, replica: &ReplicaProfile, commands: &mut [u8]) {
        let _ = (replica, commands);
    }

    /// Notes that a replica has acknowledged a later offset.
    fn on_acknowledged(&self) {}

    /// Notes that a replica from this address is fed no longer.
    fn on_parting(&self, address: &str, parting: &Parting) {
        let _ = (address, parting);
    }
}

/// A snapshot and its stream.
pub struct Beginning {
    /// The snapshot.
    pub snapshot: Box<dyn Snapshot>,
    /// The commands that follow it. Its position is the offset of the snapshot.
    pub stream: Box<dyn Stream>,
}

/// The reason why there is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// Another snapshot is being made: ask again a little later.
    Busy,
    /// There will be none. The text says why.
    Failed(String),
}

/// A snapshot on its way. Dropping it gives it up.
pub trait Snapshot: Send {
    /// Appends the next bytes to `out`.
    ///
    /// # Errors
    /// The text says why the snapshot has failed.
    fn read(&mut self, out: &mut Vec<u8>) -> Result<SnapshotStep, String>;
}

/// The result of [`Snapshot::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotStep {
    /// There may be more.
    More,
    /// Nothing can be had at the moment: ask again a little later.
    Wait,
    /// That was all.
    End,
}

/// A stream of commands. Every reader has its own.
pub trait Stream: Send {
    /// Appends whole commands that were not read yet to `out`, at most some tens of kilobytes or
    /// one transaction. Returns the number of bytes, 0 if there are none.
    ///
    /// # Errors
    /// [`StreamLost`].
    fn read(&mut self, out: &mut Vec<u8>) -> Result<usize, StreamLost>;

    /// Passes over everything there is.
    ///
    /// # Errors
    /// [`StreamLost`].
    fn skip(&mut self) -> Result<(), StreamLost>;

    /// Returns the offset behind what was read.
    ///
    /// # Errors
    /// [`StreamLost`].
    fn position(&self) -> Result<u64, StreamLost>;
}

/// The reader was too slow: commands that it has not read are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLost;
