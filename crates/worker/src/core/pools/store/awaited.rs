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
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::time::Duration;

/// Longest time that a reply waits for another worker, for example one that runs a script. A longer
/// time holds the writers up. A shorter time sends the reply before clients of a busy worker are
/// told.
const WITHIN: Duration = Duration::from_millis(250);

/// The last message in the inbox of each worker, by number.
type Places = SmallVec<[(u16, u64); 2]>;

/// The messages that the writers of this worker wait for.
#[derive(Default)]
pub(crate) struct Awaited {
    /// Messages left for other workers in this turn.
    sent: Places,
    /// Number of messages left since the start.
    sent_count: u64,
    /// A client has written in this turn, and other clients may have to be told.
    has_writers: bool,
    /// The number of the last ticket.
    last: u64,
    /// Tickets that have not ended, in order.
    open: VecDeque<Ticket>,
}

struct Ticket {
    number: u64,
    places: Places,
    until: Time,
}

impl Awaited {
    /// Returns whether the end of a turn has work to do.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        self.has_writers | !self.open.is_empty() | !self.sent.is_empty()
    }

    /// Notes a message for another worker.
    pub(in crate::core::pools::store) fn note_sent(&mut self, worker: u16, number: u64) {
        self.sent_count += 1;
        match self.sent.iter_mut().find(|(of, _)| *of == worker) {
            Some((_, last)) => *last = number,
            None => self.sent.push((worker, number)),
        }
    }

    /// Number of messages left for other workers since the start.
    pub(in crate::core::pools::store) fn sent_count(&self) -> u64 {
        self.sent_count
    }

    /// Notes a client whose write other clients may have to be told of.
    pub(in crate::core) fn note_writer(&mut self, session: &mut Session) {
        self.has_writers = true;
        session.awaited = self.last + 1;
    }

    /// Time until which the replies of a session wait for other clients to be told.
    #[cold]
    fn until(&self, number: u64) -> Option<Time> {
        // A session waits while any ticket up to its own is open: tickets end in order.
        let first = self.open.front().filter(|ticket| ticket.number <= number);
        first.map(|ticket| ticket.until)
    }

    /// Ends a turn: the messages that it left for other workers become a ticket.
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
    pub(crate) fn settle_awaited(&mut self) {
        let now = self.clock.now;
        self.store.awaited.close(now);
        let invalidations = &self.plan.invalidations;
        while let Some(first) = self.store.awaited.open.front_mut() {
            first.places.retain(|(worker, number)| !invalidations.is_delivered(*worker, *number));
            if !first.places.is_empty() && now < first.until {
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
