//! The state of a cluster in files: entries, and the changes that watches may still ask for. Its
//! bytes are one file.
//!
//! ```text
//! "KWCOORD1"  cluster u64  revision u64
//! entries u32, each: key, created u64, modified u64, session u64, value
//! batches u32, each: revision u64, changes u32, each: 1 and an entry, or 2 and a key
//! crc32c u32 of all before
//! ```

use crate::codec::{Reader, batch_len, put_batch, put_entry};
use crate::limits::{ENTRIES_MAX, HISTORY_LEN_MAX, LIST_LEN_MAX};
use crate::txn::Operation;
use crate::{Batch, Change, Entry, Key, Mark, Prefix, Revision, SessionId, Txn};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const MAGIC: &[u8; 8] = b"KWCOORD1";

/// Bytes of [`header`].
pub(crate) const HEADER_LEN: usize = 24;

/// Bytes of a file that are read. The largest state has fewer.
pub(crate) const STATE_LEN_MAX: usize = LIST_LEN_MAX + 2 * HISTORY_LEN_MAX + ENTRIES_MAX * 300;

/// Everything that a cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) mark: Mark,
    entries: BTreeMap<Key, Entry>,
    /// Bytes of keys and values.
    entries_len: usize,
    /// The latest batches, of consecutive revisions up to the current one.
    history: VecDeque<Batch>,
    history_len: usize,
}

/// Why a transaction does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl State {
    /// A cluster without entries, at revision 1.
    pub(crate) fn empty(cluster: u64) -> State {
        State {
            mark: Mark { cluster, revision: Revision(1) },
            entries: BTreeMap::new(),
            entries_len: 0,
            history: VecDeque::new(),
            history_len: 0,
        }
    }

    pub(crate) fn entry(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The entries below a prefix.
    pub(crate) fn below(&self, prefix: &Prefix) -> Vec<Entry> {
        self.entries.values().filter(|entry| prefix.holds(&entry.key)).cloned().collect()
    }

    /// The sessions that entries are bound to.
    pub(crate) fn sessions(&self) -> BTreeSet<SessionId> {
        self.entries.values().filter_map(|entry| entry.session).collect()
    }

    /// The keys that are bound to one of these sessions.
    pub(crate) fn keys_of(&self, sessions: &BTreeSet<SessionId>) -> Vec<Key> {
        let is_theirs =
            |entry: &&Entry| entry.session.is_some_and(|session| sessions.contains(&session));
        self.entries.values().filter(is_theirs).map(|entry| entry.key.clone()).collect()
    }

    /// The batches after a revision. `None` if some of them are not remembered.
    pub(crate) fn since(&self, after: Revision) -> Option<impl Iterator<Item = &Batch>> {
        let remembered = u64::try_from(self.history.len()).unwrap_or(0);
        let from = self.mark.revision.0.checked_sub(remembered)?;
        let skipped = usize::try_from(after.0.checked_sub(from)?).unwrap_or(usize::MAX);
        Some(self.history.iter().skip(skipped))
    }

    /// Executes the operations of a transaction whose comparisons hold. Returns whether something
    /// changed.
    pub(crate) fn apply(&mut self, txn: &Txn, history_max: usize) -> Result<bool, Full> {
        let revision = Revision(self.mark.revision.0 + 1);
        let mut changes = Vec::new();
        for operation in txn.operations() {
            match operation {
                Operation::Put { key, value, .. } => {
                    let created = self.entries.get(key).map_or(revision, |entry| entry.created);
                    let session = operation.session();
                    let (key, value) = (key.clone(), value.clone());
                    changes.push(Change::Put(Entry {
                        key,
                        value,
                        created,
                        modified: revision,
                        session,
                    }));
                }
                Operation::Delete(key) if self.entries.contains_key(key) => {
                    changes.push(Change::Deleted(key.clone()));
                }
                Operation::Delete(_) => {}
            }
        }
        self.commit(changes, history_max)
    }

    /// Deletes keys that exist. Returns whether something changed.
    pub(crate) fn delete(&mut self, keys: Vec<Key>, history_max: usize) -> bool {
        let changes = keys.into_iter().map(Change::Deleted).collect();
        self.commit(changes, history_max).unwrap_or(false)
    }

    fn commit(&mut self, changes: Vec<Change>, history_max: usize) -> Result<bool, Full> {
        if changes.is_empty() {
            return Ok(false);
        }
        let revision = Revision(self.mark.revision.0 + 1);
        for change in &changes {
            self.set(change);
        }
        if self.entries.len() > ENTRIES_MAX || self.entries_len > LIST_LEN_MAX {
            return Err(Full);
        }
        self.mark.revision = revision;
        let batch = Batch { revision, changes };
        self.history_len += batch_len(&batch);
        self.history.push_back(batch);
        while self.history.len() > history_max || self.history_len > HISTORY_LEN_MAX {
            let Some(oldest) = self.history.pop_front() else { break };
            self.history_len -= batch_len(&oldest);
        }
        Ok(true)
    }

    fn set(&mut self, change: &Change) {
        let before = match change {
            Change::Put(entry) => {
                self.entries_len += entry_len(entry);
                self.entries.insert(entry.key.clone(), entry.clone())
            }
            Change::Deleted(key) => self.entries.remove(key),
        };
        self.entries_len -= before.as_ref().map_or(0, entry_len);
    }

    /// Returns the bytes of the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.entries_len + self.history_len + 4096);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.mark.cluster.to_be_bytes());
        out.extend_from_slice(&self.mark.revision.0.to_be_bytes());
        out.extend_from_slice(&count(self.entries.len()));
        self.entries.values().for_each(|entry| put_entry(&mut out, entry));
        out.extend_from_slice(&count(self.history.len()));
        self.history.iter().for_each(|batch| put_batch(&mut out, batch));
        let sum = crc32c::crc32c(&out);
        out.extend_from_slice(&sum.to_be_bytes());
        out
    }

    /// Returns the state of a file's bytes. `None` if they are not what [`State::encode`] makes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<State> {
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(body) != u32::from_be_bytes(*sum) {
            return None;
        }
        State::decode_body(body)
    }

    /// The same without the checksum.
    pub(crate) fn decode_body(body: &[u8]) -> Option<State> {
        let mut state = State::empty(0);
        state.mark = header(body)?;
        let mut reader = Reader::new(body.get(HEADER_LEN..)?);
        for _ in 0..reader.u32()? {
            let entry = reader.entry()?;
            if entry.modified > state.mark.revision || entry.created > entry.modified {
                return None;
            }
            state.set(&Change::Put(entry));
        }
        for _ in 0..reader.u32()? {
            let batch = reader.batch()?;
            state.history_len += batch_len(&batch);
            state.history.push_back(batch);
        }
        let remembered = u64::try_from(state.history.len()).ok()?;
        let from = state.mark.revision.0.checked_sub(remembered)?;
        let are_consecutive = (from..).zip(&state.history).all(|(n, b)| b.revision.0 == n + 1);
        (reader.is_empty() && are_consecutive).then_some(state)
    }
}

/// Returns which state a file has, by its beginning.
pub(crate) fn header(bytes: &[u8]) -> Option<Mark> {
    let mut reader = Reader::new(bytes);
    if reader.take(MAGIC.len())? != MAGIC {
        return None;
    }
    let cluster = reader.u64()?;
    let revision = Revision(reader.u64()?);
    // A revision near the end of its numbers cannot be counted up, and no cluster gets there.
    (cluster != 0 && revision.0 < u64::MAX / 2).then_some(Mark { cluster, revision })
}

fn entry_len(entry: &Entry) -> usize {
    entry.key.as_str().len() + entry.value.len()
}

fn count(count: usize) -> [u8; 4] {
    u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
