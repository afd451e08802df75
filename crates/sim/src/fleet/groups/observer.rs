//! A proxy: it sees the servers, reports, and obeys what is decided.

use crate::fleet::people::CLUSTER;
use keyway_base::Time;
use keyway_bus::NodeId;
use keyway_fleet::{About, Decided, Decisions, GroupSeen, PublishedGroups, Report, Version};

/// A proxy that uses the group.
#[derive(Debug)]
pub(super) struct Observer {
    id: NodeId,
    decisions: Decisions,
    disk: Option<Vec<u8>>,
    hangs_until: Time,
}

impl Observer {
    pub fn start(id: NodeId, disk: Option<Vec<u8>>) -> Observer {
        let decisions = disk.as_deref().and_then(Decisions::decode);
        let decisions = decisions.unwrap_or_else(|| Decisions::new(CLUSTER));
        Observer { id, decisions, disk, hangs_until: Time(0) }
    }

    /// Its process is killed, and begins anew with its disk.
    pub fn restart(&mut self) {
        *self = Observer::start(self.id, self.disk.take());
    }

    pub fn id(&self) -> NodeId {
        self.id
    }

    pub fn hangs(&self, now: Time) -> bool {
        self.hangs_until > now
    }

    pub fn hang(&mut self, until: Time) {
        self.hangs_until = until;
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
            events: None,
        }
    }
}
