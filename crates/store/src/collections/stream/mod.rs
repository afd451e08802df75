//! Streams: entries in the order of their ids, and groups of consumers that
//! they are delivered to.
//!
//! ```text
//!  Stream ── Log: a tree of blocks by the id of their first entry
//!    └── groups by name ── Group ── deliveries by id, each with its consumer
//!                                └── consumers by name, each with its ids
//! ```
//! Always boxed, and there though without entries.

pub(crate) mod block;
mod code;
pub(crate) mod group;
pub(crate) mod id;
mod log;
mod weight;

use group::Group;
use id::Id;
use keyway_memory::nodes;
pub(crate) use log::{Keep, Log, Restored, SetFault, Trim, UNKNOWN};
use std::collections::BTreeMap;

/// Bytes of a group in the tree of them, which is half full at worst.
const GROUP_BYTES: usize = 2 * size_of::<(Box<[u8]>, Group)>();

/// The value of a stream.
pub(crate) struct Stream {
    log: Log,
    groups: BTreeMap<Box<[u8]>, Group>,
    /// Bytes that the groups take.
    group_bytes: usize,
}

impl Clone for Stream {
    fn clone(&self) -> Self {
        let groups: BTreeMap<_, _> = self.groups.clone();
        let mut copy = Self { log: self.log.clone(), groups, group_bytes: 0 };
        copy.group_bytes =
            copy.groups().map(|(name, group)| GROUP_BYTES + name.len() + group.bytes()).sum();
        copy
    }
}

impl Stream {
    pub(crate) const fn new() -> Self {
        Self { log: Log::new(), groups: BTreeMap::new(), group_bytes: 0 }
    }

    /// Its entries.
    #[inline]
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    #[inline]
    pub(crate) fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    pub(crate) fn bytes(&self) -> usize {
        nodes::boxed_len::<Self>() + self.log.bytes() + self.group_bytes
    }

    /// Groups with their names, in the order of those.
    pub(crate) fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.groups.iter().map(|(name, group)| (&**name, group))
    }

    pub(crate) fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    /// Lets `work` change a group, with the entries to read; nothing without
    /// the group.
    pub(crate) fn change_group<R>(
        &mut self,
        name: &[u8],
        work: impl FnOnce(&Log, &mut Group) -> R,
    ) -> Option<R> {
        let group = self.groups.get_mut(name)?;
        let before = group.bytes();
        let result = work(&self.log, group);
        self.group_bytes = self.group_bytes + group.bytes() - before;
        Some(result)
    }

    /// Adds a group that has read up to `last`; whether there was none of the
    /// name.
    pub(crate) fn add_group(&mut self, name: &[u8], last: Id, entries_read: i64) -> bool {
        if self.groups.contains_key(name) {
            return false;
        }
        let group = Group::new(last, entries_read);
        self.group_bytes += GROUP_BYTES + name.len() + group.bytes();
        self.groups.insert(name.into(), group);
        true
    }

    /// Takes a group out, as a stream of its own to be freed in steps; nothing
    /// without the group.
    pub(crate) fn remove_group(&mut self, name: &[u8]) -> Option<Self> {
        let (name, group) = self.groups.remove_entry(name)?;
        let bytes = GROUP_BYTES + name.len() + group.bytes();
        self.group_bytes -= bytes;
        let mut removed = Self::new();
        removed.group_bytes = bytes;
        removed.groups.insert(name, group);
        Some(removed)
    }

    /// Moves nodes from sparse pages, see [`super::Boxed::compact`].
    pub(crate) fn compact(&mut self, visits: &mut u32, moved: &mut u64) {
        self.log.compact(visits, moved);
        for group in self.groups.values_mut() {
            if *visits == 0 {
                return;
            }
            group.compact(visits, moved);
        }
    }

    /// Frees up to `steps` blocks of entries or of deliveries, and consumers;
    /// whether nothing is left.
    pub(crate) fn free_some(&mut self, steps: &mut u32) -> bool {
        if !self.log.free_some(steps) {
            return false;
        }
        while *steps > 0 {
            let Some(mut last) = self.groups.last_entry() else { return true };
            let before = last.get().bytes();
            if !last.get_mut().free_some(steps) {
                self.group_bytes = self.group_bytes + last.get().bytes() - before;
                return false;
            }
            self.group_bytes -= before + GROUP_BYTES + last.key().len();
            last.remove();
            *steps = steps.saturating_sub(1);
        }
        false
    }
}
