//! Tickets of writers whose replies wait until clients of other workers have been told.

use keyway_base::Time;
use keyway_proxy::Session;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::time::Duration;

/// Longest time that a reply waits for another worker, for example one that runs a script. A longer
/// time holds the writers up. A shorter time sends the reply before clients of a busy worker are
/// told.
pub(in crate::core::pools::store) const WITHIN: Duration = Duration::from_millis(250);

/// The messages that the writers of this worker wait for.
#[derive(Default)]
pub(crate) struct Awaited {
    /// Messages left for other workers in this turn.
    pub(in crate::core::pools::store) sent: Deliveries,
    /// Number of messages left since the start.
    pub(in crate::core::pools::store) sent_count: u64,
    /// True if a client has written in this turn, and other clients may have to be told.
    pub(in crate::core::pools::store) has_writers: bool,
    /// The number of the last ticket.
    pub(in crate::core::pools::store) last: u64,
    /// Tickets that have not ended, in order.
    pub(in crate::core::pools::store) open: VecDeque<Ticket>,
}

impl Awaited {
    /// Returns whether the end of a turn has work to do.
    #[inline]
    pub(in crate::core) fn is_in_use(&self) -> bool {
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

    /// Returns the number of messages left for other workers since the start.
    pub(super) fn sent_count(&self) -> u64 {
        self.sent_count
    }

    /// Notes a client whose write other clients may have to be told of.
    pub(super) fn note_writer(&mut self, session: &mut Session) {
        self.has_writers = true;
        session.awaited = self.last + 1;
    }

    /// Returns the time until which the replies of a session wait for other clients to be told.
    #[cold]
    pub(super) fn until(&self, number: u64) -> Option<Time> {
        // A session waits while any ticket up to its own is open: tickets end in order.
        let first = self.open.front().filter(|ticket| ticket.number <= number);
        first.map(|ticket| ticket.until)
    }

    /// Ends a turn: the messages that it left for other workers become a ticket.
    pub(super) fn close(&mut self, now: Time) {
        let deliveries = std::mem::take(&mut self.sent);
        if std::mem::take(&mut self.has_writers) {
            self.last += 1;
            if !deliveries.is_empty() {
                self.open.push_back(Ticket { number: self.last, deliveries, until: now + WITHIN });
            }
        }
    }
}

pub(in crate::core::pools::store) struct Ticket {
    pub(in crate::core::pools::store) number: u64,
    pub(in crate::core::pools::store) deliveries: Deliveries,
    pub(in crate::core::pools::store) until: Time,
}

/// The last message in the inbox of each worker, by number.
pub(in crate::core::pools::store) type Deliveries = SmallVec<[(u16, u64); 2]>;
