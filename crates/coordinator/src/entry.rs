use crate::{Key, SessionId};
use std::fmt;
use std::sync::Arc;

/// The number of a state. Each transaction that changes something makes the next one; numbers of
/// etcd also grow with changes of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key with its value, as of one revision.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// The value.
    pub value: Arc<[u8]>,
    /// The revision that made the key.
    pub created: Revision,
    /// The revision that changed it last.
    pub modified: Revision,
    /// The session whose end deletes it.
    pub session: Option<SessionId>,
}

// The value may be a secret.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key)
            .field("value_len", &self.value.len())
            .field("created", &self.created)
            .field("modified", &self.modified)
            .field("session", &self.session)
            .finish()
    }
}

/// All entries below a prefix, as they were together at one revision, in the order of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The revision. A watch from here misses nothing.
    pub revision: Revision,
    /// The entries.
    pub entries: Vec<Entry>,
}

/// One change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key has this value now.
    Put(Entry),
    /// The key is gone.
    Deleted(Key),
}

impl Change {
    /// Returns the key.
    pub fn key(&self) -> &Key {
        match self {
            Change::Put(entry) => &entry.key,
            Change::Deleted(key) => key,
        }
    }
}

/// All changes of one revision, of those keys that are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The revision.
    pub revision: Revision,
    /// The changes, at most one for each key.
    pub changes: Vec<Change>,
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The next revision that changed a watched key.
    Changes(Batch),
    /// The backend does not remember the changes since the watch's revision. List again, and watch
    /// from there. The watch tells nothing else from now on.
    ListAgain,
}

/// What identifies a state over restarts of the caller: kept by the caller, it makes an older
/// state, or another cluster's, be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Which cluster it is: drawn by chance when it was made.
    pub cluster: u64,
    /// The newest revision that was seen.
    pub revision: Revision,
}
