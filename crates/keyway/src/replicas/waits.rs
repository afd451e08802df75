//! Clients that wait for replicas, by WAIT.

use keyway_standby::Standby;
use keyway_worker::ReplicaWait;
use std::time::Instant;

/// The reply to a client that waits when the store becomes a replica, in Redis's words.
const UNBLOCKED: &str = "UNBLOCKED force unblocked, instance state changed (master -> replica?)";

struct Wait {
    offset: u64,
    until: Option<Instant>,
    asked: ReplicaWait,
}

/// The clients that wait: at most one entry for each.
#[derive(Default)]
pub(super) struct Waits(Vec<Wait>);

impl Waits {
    /// Has a client wait until replicas have acknowledged everything that was executed so far.
    pub(super) fn add(&mut self, asked: ReplicaWait, standby: &Standby, now: Instant) {
        let until = asked.timeout.and_then(|timeout| now.checked_add(timeout));
        self.0.push(Wait { offset: standby.store().effects_offset(), until, asked });
        standby.ask_for_offsets();
        self.look(standby, now);
    }

    /// Answers clients whose replicas have acknowledged, and those whose time is up.
    pub(super) fn look(&mut self, standby: &Standby, now: Instant) {
        if self.0.is_empty() {
            return;
        }
        let is_replica = standby.store().is_replica();
        for wait in std::mem::take(&mut self.0) {
            let count = standby.acknowledged(wait.offset) as u64;
            let is_late = wait.until.is_some_and(|until| until <= now);
            match () {
                () if (wait.asked.is_over)() => {}
                () if is_replica => (wait.asked.done)(Err(UNBLOCKED.to_owned())),
                () if is_late || count >= wait.asked.count => (wait.asked.done)(Ok(count)),
                () => self.0.push(wait),
            }
        }
    }

    /// Answers all clients, with what has been acknowledged: nobody looks any more.
    pub(super) fn end(&mut self, standby: &Standby) {
        for wait in std::mem::take(&mut self.0) {
            (wait.asked.done)(Ok(standby.acknowledged(wait.offset) as u64));
        }
    }

    /// The time at which the next one is to be answered.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|wait| wait.until).min()
    }
}
