//! A proxy: it sees the servers of its pools, reports, and obeys what is decided.

use crate::fleet::clock::Clocks;
use crate::fleet::people::CLUSTER;
use keyway_base::Time;
use keyway_bus::NodeId;
use keyway_fleet::{About, Decided, Decisions, GroupSeen, PublishedGroups, Report, Version};

/// A proxy.
#[derive(Debug)]
pub(super) struct Observer {
    id: NodeId,
    clocks: Clocks,
    decisions: Decisions,
    disk: Option<Vec<u8>>,
    hangs_until: Time,
    /// The pools that it uses if the document has them.
    wants: Vec<bool>,
    /// The pools of the document that it has taken.
    listed: Vec<bool>,
}

impl Observer {
    pub fn start(id: NodeId, clocks: Clocks, wants: Vec<bool>) -> Observer {
        let (decisions, listed) = (Decisions::new(CLUSTER), vec![false; wants.len()]);
        Observer { id, clocks, decisions, disk: None, hangs_until: Time(0), wants, listed }
    }

    /// Its process is killed, and begins anew with its disk and other clocks.
    pub fn restart(&mut self, clocks: Clocks) {
        self.clocks = clocks;
        let saved = self.disk.as_deref().and_then(Decisions::decode);
        self.decisions = saved.unwrap_or_else(|| Decisions::new(CLUSTER));
        self.hangs_until = Time(0);
    }

    pub fn id(&self) -> NodeId {
        self.id
    }

    pub fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    pub fn hangs(&self, now: Time) -> bool {
        self.hangs_until > now
    }

    pub fn hang(&mut self, until: Time) {
        self.hangs_until = until;
    }

    /// Takes the pools of the document.
    pub fn take_document(&mut self, listed: &[bool]) {
        self.listed = listed.to_vec();
    }

    pub fn uses(&self, pool: usize) -> bool {
        self.wants[pool] && self.listed[pool]
    }

    /// Returns the decision about a pool that it obeys.
    pub fn obeyed(&self, pool: &str) -> Option<&Decided> {
        self.decisions.of(pool)
    }

    /// Returns the epoch of the decision about a pool that it obeys; 0 without one.
    pub fn epoch(&self, pool: &str) -> u64 {
        self.obeyed(pool).map_or(0, |decided| decided.epoch)
    }

    /// Takes published decisions. Returns false if it refuses them.
    pub fn take(&mut self, published: &PublishedGroups) -> bool {
        let outcome = self.decisions.take(published);
        if outcome == Ok(true) {
            self.disk = Some(self.decisions.encode());
        }
        outcome.is_ok()
    }

    /// Returns its report with these views.
    pub fn report(&self, groups: Vec<GroupSeen>) -> Report {
        let saved = self.decisions.version();
        let pools = groups.iter().map(|seen| seen.pool.clone()).collect();
        Report {
            cluster: CLUSTER.to_owned(),
            about: About { pools, ..About::default() },
            saved: (saved.epoch > 0).then_some(Version { epoch: saved.epoch, revision: 0 }),
            running: None,
            refused: None,
            measured: None,
            groups,
            decisions: saved.revision,
            slots: Vec::new(),
            events: None,
        }
    }
}
