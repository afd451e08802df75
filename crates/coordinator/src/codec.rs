//! The bytes of entries and changes, in the file of a cluster and in ZooKeeper's nodes. Numbers
//! are big-endian, and texts and values have their length in front.

use crate::{Batch, Change, Entry, Key, Revision, SessionId};
use std::sync::Arc;

const PUT: u8 = 1;
const DELETED: u8 = 2;

/// Bytes that are taken from the front.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(len)?;
        self.0 = left;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_be_bytes)
    }

    /// Bytes behind their length.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(usize::try_from(len).ok()?)
    }

    fn key(&mut self) -> Option<Key> {
        Key::new(std::str::from_utf8(self.bytes()?).ok()?).ok()
    }

    pub(crate) fn entry(&mut self) -> Option<Entry> {
        let key = self.key()?;
        self.entry_of(key)
    }

    /// The rest of an entry whose key is known otherwise.
    pub(crate) fn entry_of(&mut self, key: Key) -> Option<Entry> {
        let created = Revision(self.u64()?);
        let modified = Revision(self.u64()?);
        let session = Some(SessionId(self.u64()?)).filter(|id| id.0 != 0);
        let value = Arc::from(self.bytes()?);
        Some(Entry { key, value, created, modified, session })
    }

    pub(crate) fn batch(&mut self) -> Option<Batch> {
        let revision = Revision(self.u64()?);
        let count = self.u32()?;
        let mut changes = Vec::new();
        for _ in 0..count {
            changes.push(match self.u8()? {
                PUT => Change::Put(self.entry()?),
                DELETED => Change::Deleted(self.key()?),
                _ => return None,
            });
        }
        Some(Batch { revision, changes })
    }
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // Bounds of keys, values and transactions are far below 4 GiB.
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(bytes);
}

pub(crate) fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    put_bytes(out, entry.key.as_str().as_bytes());
    put_entry_of(out, entry);
}

/// An entry without its key.
pub(crate) fn put_entry_of(out: &mut Vec<u8>, entry: &Entry) {
    out.extend_from_slice(&entry.created.0.to_be_bytes());
    out.extend_from_slice(&entry.modified.0.to_be_bytes());
    out.extend_from_slice(&entry.session.map_or(0, |id| id.0).to_be_bytes());
    put_bytes(out, &entry.value);
}

pub(crate) fn put_batch(out: &mut Vec<u8>, batch: &Batch) {
    out.extend_from_slice(&batch.revision.0.to_be_bytes());
    let count = u32::try_from(batch.changes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&count.to_be_bytes());
    for change in &batch.changes {
        match change {
            Change::Put(entry) => {
                out.push(PUT);
                put_entry(out, entry);
            }
            Change::Deleted(key) => {
                out.push(DELETED);
                put_bytes(out, key.as_str().as_bytes());
            }
        }
    }
}

/// Bytes that a batch counts for in a history.
pub(crate) fn batch_len(batch: &Batch) -> usize {
    let of_change = |change: &Change| match change {
        Change::Put(entry) => entry.value.len() + entry.key.as_str().len() + 40,
        Change::Deleted(key) => key.as_str().len() + 8,
    };
    16 + batch.changes.iter().map(of_change).sum::<usize>()
}
