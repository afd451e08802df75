//! Replies to writers wait until clients of other workers were told what has changed.
//!
//! ```text
//!  worker 0: SET k ──► message for worker 1 ──► its reply is held ······► sent
//!  worker 1:                └──► output of a client that caches k ──► acknowledged
//! ```
//! The writers of one turn share a ticket: what was left for other workers in that turn.
//! Tickets end in their order, when those workers have delivered and sent it, or when
//! they have not for [`WITHIN`].

use super::Plane;
use keyway_base::Time;
use keyway_proxy::Session;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::time::Duration;

/// How long replies wait at most for a worker that does not get round to it, such as one
/// that runs a script. Longer holds up its writers, shorter lets a busy worker's clients
/// be told late.
const WITHIN: Duration = Duration::from_millis(250);

/// The last message in the inbox of each worker, by number.
type Places = SmallVec<[(u16, u64); 2]>;

/// What the writers of this worker wait for.
#[derive(Default)]
pub(crate) struct Awaited {
    /// Messages that were left in this turn.
    sent: Places,
    /// Messages that were ever left.
    sent_count: u64,
    /// Somebody has written in this turn what others may have to be told of.
    has_writers: bool,
    /// The number of the last ticket.
    last: u64,
    /// Tickets that have not ended, in their order.
    open: VecDeque<Ticket>,
}

struct Ticket {
    number: u64,
    places: Places,
    until: Time,
}

impl Awaited {
    /// Whether there is something to do at the end of a turn.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.has_writers | !self.open.is_empty() | !self.sent.is_empty()
    }

    /// Notes a message for another worker.
    pub(super) fn note_sent(&mut self, worker: u16, number: u64) {
        self.sent_count += 1;
        match self.sent.iter_mut().find(|(of, _)| *of == worker) {
            Some((_, last)) => *last = number,
            None => self.sent.push((worker, number)),
        }
    }

    /// Messages that were ever left for others.
    pub(super) fn sent_count(&self) -> u64 {
        self.sent_count
    }

    /// Notes a client that has changed what others may have to be told of.
    pub(super) fn note_writer(&mut self, session: &mut Session) {
        self.has_writers = true;
        session.awaited = self.last + 1;
    }

    /// Until when the replies of a session wait for others to be told.
    #[cold]
    fn until(&self, number: u64) -> Option<Time> {
        // It may wait for an earlier one than its last, and they end in their order.
        let first = self.open.front().filter(|ticket| ticket.number <= number);
        first.map(|ticket| ticket.until)
    }

    /// Ends a turn: what was left for others in it is a ticket.
    fn close(&mut self, now: Time) {
        let places = std::mem::take(&mut self.sent);
        if std::mem::take(&mut self.has_writers) {
            self.last += 1;
            if !places.is_empty() {
                self.open.push_back(Ticket { number: self.last, places, until: now + WITHIN });
            }
        }
    }
}

impl Plane {
    /// Until when the output of a session waits.
    #[inline]
    pub(crate) fn held_until(&self, session: &mut Session, now: Time) -> Option<Time> {
        if session.awaited != 0 {
            if let Some(until) = self.awaited.until(session.awaited) {
                return Some(until);
            }
            session.awaited = 0;
        }
        session.held_until(now)
    }

    /// Begins to wait for what this turn has left for others, and looks what has become of
    /// it.
    #[cold]
    pub(crate) fn settle_awaited(&mut self) {
        let now = self.clock.now;
        self.awaited.close(now);
        let invalidations = &self.plan.invalidations;
        while let Some(first) = self.awaited.open.front_mut() {
            first.places.retain(|(worker, number)| !invalidations.is_delivered(*worker, *number));
            if !first.places.is_empty() && now < first.until {
                return;
            }
            self.awaited.open.pop_front();
        }
    }

    /// Tells those who wait for it that what was left for this worker is sent.
    #[cold]
    pub(crate) fn acknowledge_told(&mut self) {
        self.store_tracking.owes_word = false;
        for worker in self.plan.invalidations.acknowledge(self.worker()) {
            self.plan.post_published(worker);
        }
    }
}
