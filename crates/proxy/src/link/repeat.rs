//! Reads that may be sent to another server as well, or instead. Their bytes are kept until they
//! are answered, like those of all requests to servers of a cluster.

use super::{Exchange, Link, Owner};
use keyway_base::{Key, Time};
use std::ops::Range;

impl Exchange {
    /// Returns whether it is a read that may go to another server unchanged.
    pub fn is_plain_read(&self) -> bool {
        self.may_repeat && self.replies_before == 0
    }
}

impl Link {
    /// Notes that another server may be sent what was enqueued last. This has no effect for a
    /// client that wants no reply.
    #[inline]
    pub fn note_read(&mut self) {
        if let Some(last) = self.fifo.back_mut() {
            let is_heard = matches!(last.owner, Owner::Session { .. } | Owner::Operation { .. });
            last.may_repeat = is_heard && self.redirected.is_some();
        }
    }

    /// Returns the index of the first read that was enqueued after `seen` and not after `until`,
    /// and that only its owner still waits for.
    pub fn first_overdue(&self, seen: Time, until: Time) -> Option<usize> {
        let from = self.fifo.partition_point(|exchange| exchange.started <= seen);
        self.next_overdue(from, until)
    }

    /// Returns the next one, from the index `from` on.
    pub fn next_overdue(&self, from: usize, until: Time) -> Option<usize> {
        let from = from.max(self.abandoned);
        let mut waiting = self.fifo.range(from.min(self.fifo.len())..);
        let at = waiting.position(|one| one.started > until || one.is_plain_read())?;
        (self.fifo[from + at].started <= until).then_some(from + at)
    }

    /// Returns when the first read was enqueued after `seen` that only its owner still waits for.
    pub fn overdue_next(&self, seen: Time) -> Option<Time> {
        let at = self.first_overdue(seen, Time(u64::MAX))?;
        Some(self.fifo[at].started)
    }

    /// Returns the exchange at an index.
    pub fn exchange(&self, at: usize) -> &Exchange {
        &self.fifo[at]
    }

    /// Returns the number of bytes of the requests at these indices.
    pub fn requests_len(&self, positions: Range<usize>) -> usize {
        self.fifo.range(positions).map(|exchange| exchange.len as usize).sum()
    }

    /// Returns the request of the exchange at an index. `before` bytes of other requests precede
    /// it.
    pub fn request(&self, at: usize, before: usize) -> &[u8] {
        debug_assert!(self.output.keeps_sent());
        self.output.held(before, self.fifo[at].len as usize)
    }

    /// Makes the exchange at an index one of two.
    pub fn hedge(&mut self, at: usize, hedge: Key<super::Hedge>) {
        let exchange = &mut self.fifo[at];
        exchange.owner = Owner::Hedged { hedge, is_second: false };
        exchange.may_repeat = false;
    }

    /// Enqueues the same request as `first`, of another server, for `owner`.
    pub fn enqueue_second(&mut self, first: &Exchange, owner: Owner, request: &[u8], now: Time) {
        self.request_buf().extend_from_slice(request);
        self.enqueue(owner, first.counted, request.len(), now);
        self.set_translation(first.translation);
        if let Some(last) = self.fifo.back_mut() {
            last.waited = first.waited_until(now);
            self.is_uneven |= last.waited > 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkState;
    use keyway_base::Limits;
    use keyway_command::Counted;

    fn link() -> Link {
        let mut link = Link { state: LinkState::Ready, ..Link::default() };
        link.follow_redirections();
        link
    }

    fn ask(link: &mut Link, request: &[u8], at: u64, is_read: bool) {
        link.request_buf().extend_from_slice(request);
        let owner = Owner::Session { session: Key::NONE, sequence: at as u32 };
        link.enqueue(owner, Counted::OWN, request.len(), Time(at));
        if is_read {
            link.note_read();
        }
    }

    #[test]
    fn reads_are_overdue_in_their_order_and_each_once() {
        let mut link = link();
        ask(&mut link, b"GET1", 10, true);
        ask(&mut link, b"SET22", 10, false);
        ask(&mut link, b"GET333", 20, true);
        ask(&mut link, b"GET4444", 30, true);
        link.advance(link.unsent().len());
        assert_eq!(link.first_overdue(Time(0), Time(9)), None);
        assert_eq!(link.first_overdue(Time(0), Time(25)), Some(0));
        assert_eq!(link.next_overdue(1, Time(25)), Some(2));
        assert_eq!(link.next_overdue(3, Time(25)), None);
        assert_eq!(link.request(2, link.requests_len(0..2)), b"GET333");
        assert_eq!(
            (link.overdue_next(Time(25)), link.overdue_next(Time(30))),
            (Some(Time(30)), None)
        );
        link.hedge(2, Key::NONE);
        assert_eq!(link.next_overdue(1, Time(40)), Some(3));
        // The answered ones are gone, with their bytes.
        link.handle_input(b"+1\r\n+2\r\n", &Limits::default(), Time(40), |_, _, _| ()).unwrap();
        assert_eq!(link.first_overdue(Time(0), Time(40)), Some(1));
        assert_eq!(link.request(1, link.requests_len(0..1)), b"GET4444");
    }

    #[test]
    fn a_lost_connection_hands_its_reads_over_and_nothing_else() {
        let mut link = link();
        ask(&mut link, b"OLD", 1, true);
        ask(&mut link, b"GET1", 2, true);
        ask(&mut link, b"SET", 3, false);
        ask(&mut link, b"GET22", 4, true);
        link.advance(8);
        link.handle_input(b"+OK\r\n", &Limits::default(), Time(5), |_, _, _| ()).unwrap();
        let mut reads = Vec::new();
        link.on_lost(false, |one| reads.push(one.read.map(<[u8]>::to_vec)));
        assert_eq!(reads, [Some(b"GET1".to_vec()), None, Some(b"GET22".to_vec())]);
    }

    #[test]
    fn what_nobody_hears_or_is_not_kept_is_sent_once() {
        let mut link = link();
        link.request_buf().extend_from_slice(b"GET");
        link.enqueue(Owner::Unheard(Key::NONE), Counted::OWN, 3, Time(1));
        link.note_read();
        assert_eq!(link.first_overdue(Time(0), Time(9)), None);
        let mut plain = Link { state: LinkState::Ready, ..Link::default() };
        ask(&mut plain, b"GET", 1, true);
        assert_eq!(plain.first_overdue(Time(0), Time(9)), None);
    }
}
