//! Numbers of messages whose outcome is waited for.

use crate::id::NodeId;
use keyway_base::Time;
use std::collections::{BTreeMap, BTreeSet};

/// A message or command whose outcome is waited for.
pub(in crate::node) struct Awaited {
    pub(in crate::node) dst: NodeId,
    pub(in crate::node) deadline: Time,
    /// True if the node itself has asked, because it wants to dial the other.
    pub(in crate::node) is_own: bool,
}

/// Numbers of messages whose outcome is waited for.
#[derive(Default)]
pub(in crate::node) struct Waiting {
    pub(in crate::node) by_seq: BTreeMap<u64, Awaited>,
    pub(in crate::node) by_time: BTreeSet<(Time, u64)>,
}

impl Waiting {
    pub fn deadline(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }

    pub fn has(&self, seq: u64) -> bool {
        self.by_seq.contains_key(&seq)
    }

    pub(in crate::node) fn take(&mut self, seq: u64, dst: NodeId) -> Option<Awaited> {
        let awaited = self.by_seq.get(&seq).filter(|awaited| awaited.dst == dst)?;
        self.by_time.remove(&(awaited.deadline, seq));
        self.by_seq.remove(&seq)
    }
}
