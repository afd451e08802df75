//! The nodes of a cluster, and what stands in them.
//!
//! ```text
//! ROOT/CLUSTER/rev        the head: cluster, revision, number of entries, lengths of the log's nodes
//!              k/KEY      an entry, with "!" for "/" in its key
//!              log/N      the changes of revision N
//!              o/ID       a session that was begun, until its keys are deleted
//!              s/ID       the same as an ephemeral node, while the session lasts
//! ```
//! Each transaction is a multi that changes `rev`, if it still has the version that was read.

use crate::codec::{Reader, put_batch, put_entry_of};
use crate::{Batch, Change, Entry, Key, Mark, Revision, SessionId};
use std::collections::VecDeque;

const MAGIC: &[u8; 4] = b"KWZ1";

/// The paths of a cluster's nodes.
#[derive(Debug)]
pub(super) struct Paths {
    pub(super) base: String,
}

impl Paths {
    pub(super) fn new(root: &str, cluster: &str) -> Paths {
        Paths { base: format!("{root}/{cluster}") }
    }

    /// The nodes above the cluster's own, from the top.
    pub(super) fn parents(&self) -> Vec<String> {
        let slashes = self.base.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        slashes.filter_map(|at| self.base.get(..at).map(str::to_owned)).collect()
    }

    pub(super) fn head(&self) -> String {
        format!("{}/rev", self.base)
    }

    pub(super) fn folder(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    pub(super) fn key(&self, key: &Key) -> String {
        format!("{}/k/{}", self.base, key.as_str().replace('/', "!"))
    }

    pub(super) fn log(&self, revision: u64) -> String {
        format!("{}/log/{revision:020}", self.base)
    }

    /// The node of a session that was begun, and the ephemeral one.
    pub(super) fn session(&self, id: SessionId) -> [String; 2] {
        ["o", "s"].map(|folder| format!("{}/{folder}/{id}", self.base))
    }
}

/// Returns the key of a node below `k`.
pub(super) fn key_of(name: &str) -> Option<Key> {
    Key::new(&name.replace('!', "/")).ok()
}

/// Returns the session of a node below `o` or `s`.
pub(super) fn session_of(name: &str) -> Option<SessionId> {
    let id = u64::from_str_radix(name, 16).ok()?;
    (name.len() == 16).then_some(SessionId(id))
}

/// What the node `rev` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) mark: Mark,
    /// Nodes below `k`.
    pub(super) entries: u32,
    /// Lengths of the nodes of the log, which end with the current revision.
    lens: VecDeque<u32>,
}

impl Head {
    pub(super) fn new(cluster: u64) -> Head {
        Head { mark: Mark { cluster, revision: Revision(1) }, entries: 0, lens: VecDeque::new() }
    }

    /// The newest revision that the log does not have.
    pub(super) fn compacted(&self) -> u64 {
        self.mark.revision.0.saturating_sub(u64::try_from(self.lens.len()).unwrap_or(0))
    }

    /// Returns the head behind these changes and their node of the log, and the nodes that have to
    /// go.
    pub(super) fn next(
        &self,
        changes: &[Change],
        log_len: usize,
        count_max: usize,
        len_max: usize,
    ) -> (Head, Vec<u64>) {
        let mut next = self.clone();
        for change in changes {
            next.entries = match change {
                Change::Deleted(_) => next.entries.saturating_sub(1),
                Change::Put(entry) if entry.created == entry.modified => {
                    next.entries.saturating_add(1)
                }
                Change::Put(_) => next.entries,
            };
        }
        next.mark.revision.0 += 1;
        next.lens.push_back(u32::try_from(log_len).unwrap_or(u32::MAX));
        let mut len: u64 = next.lens.iter().map(|len| u64::from(*len)).sum();
        let mut gone = Vec::new();
        let len_max = u64::try_from(len_max).unwrap_or(u64::MAX);
        while next.lens.len() > count_max || len > len_max {
            let oldest = next.compacted() + 1;
            let Some(first) = next.lens.pop_front() else { break };
            len -= u64::from(first);
            // The newest one was not made yet.
            if oldest < next.mark.revision.0 {
                gone.push(oldest);
            }
        }
        (next, gone)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.mark.cluster.to_be_bytes());
        out.extend_from_slice(&self.mark.revision.0.to_be_bytes());
        out.extend_from_slice(&self.entries.to_be_bytes());
        self.lens.iter().for_each(|len| out.extend_from_slice(&len.to_be_bytes()));
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Head> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len())? != MAGIC {
            return None;
        }
        let cluster = reader.u64()?;
        let revision = Revision(reader.u64()?);
        let entries = reader.u32()?;
        let mut lens = VecDeque::new();
        while !reader.is_empty() {
            lens.push_back(reader.u32()?);
        }
        let is_fine = revision.0 < u64::MAX / 2
            && u64::try_from(lens.len()).is_ok_and(|count| count < revision.0);
        is_fine.then_some(Head { mark: Mark { cluster, revision }, entries, lens })
    }
}

pub(super) fn encode_entry(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::with_capacity(entry.value.len() + 32);
    put_entry_of(&mut out, entry);
    out
}

pub(super) fn decode_entry(key: Key, data: &[u8]) -> Option<Entry> {
    let mut reader = Reader::new(data);
    let entry = reader.entry_of(key)?;
    reader.is_empty().then_some(entry)
}

pub(super) fn encode_batch(batch: &Batch) -> Vec<u8> {
    let mut out = Vec::new();
    put_batch(&mut out, batch);
    out
}

pub(super) fn decode_batch(data: &[u8], revision: u64) -> Option<Batch> {
    let mut reader = Reader::new(data);
    let batch = reader.batch()?;
    (reader.is_empty() && batch.revision.0 == revision).then_some(batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_head_remembers_within_its_bounds(
            lens in proptest::collection::vec(1usize..400, 1..60),
            count_max in 1usize..20,
        ) {
            let mut head = Head::new(7);
            let mut there = std::collections::BTreeSet::new();
            for len in lens {
                let (next, gone) = head.next(&[], len, count_max, 1000);
                there.insert(next.mark.revision.0);
                for revision in gone {
                    prop_assert!(there.remove(&revision));
                }
                prop_assert_eq!(Head::decode(&next.encode()), Some(next.clone()));
                // The log is exactly what the head says.
                let expected: Vec<u64> = (next.compacted() + 1..=next.mark.revision.0).collect();
                prop_assert_eq!(there.iter().copied().collect::<Vec<_>>(), expected);
                prop_assert!(next.lens.len() <= count_max);
                prop_assert!(next.lens.iter().sum::<u32>() <= 1000);
                head = next;
            }
        }

        #[test]
        fn no_bytes_make_the_readers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Head::decode(&bytes);
            let _ = Head::decode(&[&MAGIC[..], &bytes].concat());
            let _ = decode_entry(Key::new("a").unwrap(), &bytes);
            let _ = decode_batch(&bytes, 3);
        }
    }

    #[test]
    fn parents_are_made_from_the_top() {
        assert_eq!(Paths::new("/a/b", "c").parents(), ["/a", "/a/b"]);
        assert_eq!(Paths::new("/kw", "c").parents(), ["/kw"]);
    }

    #[test]
    fn names_of_nodes_are_keys_again() {
        let key = Key::new("groups/7/x").unwrap();
        let path = Paths::new("/kw", "c").key(&key);
        assert_eq!(path, "/kw/c/k/groups!7!x");
        assert_eq!(key_of("groups!7!x"), Some(key));
    }
}
