//! Replies to writers wait until clients of other workers have been sent the invalidations.
//!
//! ```text
//!  worker 0: SET k ──► message for worker 1 ──► its reply is held ······► sent
//!  worker 1:                └──► output of a client that caches k ──► acknowledged
//! ```
//! The writers of one turn share a ticket: the messages that this turn left for other workers.
//! Tickets end in order. A ticket ends when those workers have delivered and sent its messages, or
//! after [`WITHIN`].

use crate::core::Plane;
use keyway_base::Time;
use keyway_proxy::Session;

impl Plane {
    /// Time until which the output of a session waits.
    #[inline]
    pub(crate) fn held_until(&self, session: &mut Session, now: Time) -> Option<Time> {
        if session.awaited != 0 {
            if let Some(until) = self.store.awaited.until(session.awaited) {
                return Some(until);
            }
            session.awaited = 0;
        }
        session.held_until(now)
    }

    /// Makes a ticket of the messages that this turn has left for other workers, and ends the
    /// tickets whose messages were delivered.
    #[cold]
    pub(in crate::core) fn settle_awaited(&mut self) {
        let now = self.clock.now;
        self.store.awaited.close(now);
        let invalidations = &self.plan.invalidations;
        while let Some(first) = self.store.awaited.open.front_mut() {
            first
                .deliveries
                .retain(|(worker, number)| !invalidations.is_delivered(*worker, *number));
            if !first.deliveries.is_empty() && now < first.until {
                return;
            }
            self.store.awaited.open.pop_front();
        }
    }

    /// Tells the waiting workers that the messages for this worker were sent.
    #[cold]
    pub(crate) fn acknowledge_told(&mut self) {
        self.store.tracking.owes_word = false;
        for worker in self.plan.invalidations.acknowledge(self.worker()) {
            self.plan.post_published(worker);
        }
    }
}
