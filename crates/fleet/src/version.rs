use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of a published document. It is written `EPOCH.REVISION`.
///
/// The coordinator counts both up: the epoch with each election, the revision with each stored
/// document. A leader publishes what is stored, so neither goes back from one leader to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The epoch of the leader that published it.
    pub epoch: u64,
    /// The number of the document. Revision 0 is the document that nobody has stored yet.
    pub revision: u64,
}

impl Version {
    /// Returns whether neither number is smaller than that of `other`. Of two versions it may be
    /// that neither covers the other: then one of them is of a coordinator that was restored from a
    /// backup, or of a leader that was replaced.
    pub fn covers(self, other: Version) -> bool {
        self.epoch >= other.epoch && self.revision >= other.revision
    }

    /// Returns the larger of both epochs with the larger of both revisions.
    #[must_use]
    pub fn join(self, other: Version) -> Version {
        Version { epoch: self.epoch.max(other.epoch), revision: self.revision.max(other.revision) }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.revision)
    }
}
