//! Large replies, which are forwarded to their owners while they arrive.
//!
//! ```text
//!   begin_streamed_reply        pass, pass, …            its last byte
//!  ───────────────► bytes go on, none stay ───────────────────► answered
//! ```
//! The bytes that a framer has announced certainly belong to the reply. They are forwarded without
//! being parsed, except for the line end. The exchange stays at the front of the FIFO meanwhile:
//! loss and timeouts treat it like any other.

use super::big::LargestElement;
use super::{Exchange, Link, LinkState, Owner, TRANSFER_LEN};
use keyway_base::{BackendFault, Time};
use keyway_memcache::Expect;
use keyway_resp::Kind;
use std::time::Duration;

/// A reply that is being streamed.
#[derive(Debug)]
pub(super) struct Streaming {
    /// Number of its certain bytes.
    len: usize,
    /// Number of certain bytes that are still missing.
    left: usize,
    /// True if the reply is complete with these bytes. If not, the framer parses what follows.
    ends: bool,
    /// True if it is read however little its client takes.
    is_released: bool,
}

/// The stalled time is reduced by one part in this many of the time in which the link is read. With
/// a smaller number, clients that take nothing would delay others more. With a larger one, clients
/// that read slowly would have less time.
const FORGIVEN: u32 = 8;

/// Time in which a link was not read because its clients took nothing. It is counted for the link
/// and not for a reply, so many clients delay others no longer than one.
#[derive(Debug, Default)]
pub(super) struct Stall {
    /// Stalled time until `at`, less the forgiven part.
    used: Duration,
    at: Time,
    /// Start of the current stall, if the link is stalled.
    since: Option<Time>,
}

impl Stall {
    fn used(&self, now: Time) -> Duration {
        let until = self.since.unwrap_or(now);
        let left = self.used.saturating_sub(until.since(self.at) / FORGIVEN);
        left + now.since(until)
    }

    /// Ends the stall: the link is read again at a time, or on another connection. At most `most`
    /// of a long stall is kept.
    pub(super) fn end(&mut self, at: Option<(Time, Duration)>) {
        if let Some((now, most)) = at {
            (self.used, self.at) = (self.used(now).min(most), now);
        }
        self.since = None;
    }
}

/// The bounds on the time for which a link may be held.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Longest time for which others may wait, over all replies.
    pub most: Duration,
    /// Longest time from when another client asked until the link is read again, if requests have a
    /// timeout. The rest of the timeout is for the server: a request may have waited elsewhere.
    pub others_within: Option<Duration>,
    /// Since when others have waited for room on the link, if any do.
    pub others_since: Option<Time>,
}

/// The result of a check of a held link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The link stays held, until this time if others wait.
    On(Option<Time>),
    /// The link is read again: others have waited for long enough.
    Over,
    /// The link is not held.
    None,
}

/// The received part of a streamed reply.
#[derive(Debug)]
pub struct Passed<'b> {
    /// The bytes to forward.
    pub part: &'b [u8],
    /// The bytes after it.
    pub rest: &'b [u8],
    /// The exchange, if it is answered with this.
    pub answered: Option<Exchange>,
}

impl Link {
    /// Returns whether a reply is being streamed.
    #[inline]
    pub fn is_streaming_reply(&self) -> bool {
        self.streamed_reply.is_some()
    }

    /// Returns whether a part of a reply is kept.
    #[inline]
    pub fn has_part(&self) -> bool {
        !self.input.is_empty()
    }

    /// Returns whether a part of a reply of at least this length is kept, as far as is known.
    pub fn has_part_of(&self, len_min: usize) -> bool {
        self.has_part() && self.input.len().max(self.input_needed) >= len_min
    }

    /// Returns the owner of the reply of which a part is kept, if the reply has at least `len_min`
    /// bytes and may be streamed: nothing of it has to be parsed or changed.
    pub fn large_reply(&self, len_min: usize) -> Option<Owner> {
        // The line end is forwarded whole, and checked then.
        let is_large = self.input_needed >= len_min.max(self.input.len() + 2);
        let is_plain = match self.memcached {
            Some(framing) => framing.is_in_text(),
            None => !self.translates && matches!(self.input.first(), Some(b'$' | b'=')),
        };
        let is_clear = self.refusal.is_empty() && !self.refuses_once;
        let is_ready = self.state == LinkState::Ready && self.streamed_reply.is_none();
        if !(is_large && is_plain && is_clear && is_ready && !self.is_blocking) {
            return None;
        }
        let exchange = self.fifo.front()?;
        let was_sent = self.redirected.is_none() || self.output.has_sent(exchange.len as usize);
        (exchange.replies_before == 0 && was_sent).then_some(exchange.owner)
    }

    /// Starts to stream the reply that [`Link::large_reply`] reported. Returns its received part,
    /// and its length as far as is known.
    pub fn begin_streamed_reply(&mut self) -> (Vec<u8>, usize) {
        let input = std::mem::take(&mut self.input);
        let len = std::mem::take(&mut self.input_needed);
        self.framer.reset();
        self.answered = true;
        self.failures = 0;
        let mut ends = true;
        if let Some(exchange) = self.fifo.front_mut() {
            // Another server's reply would follow the half of this one's.
            exchange.may_repeat = false;
            ends = self.memcached.is_none() || exchange.expect == Expect::One;
        }
        if let Some(framing) = &mut self.memcached {
            framing.restart();
        }
        let left = len - input.len();
        self.streamed_reply = Some(Box::new(Streaming { len, left, ends, is_released: false }));
        self.note_large_reply();
        (input, len)
    }

    /// Handles bytes of a backend while a reply is being streamed.
    ///
    /// # Errors
    /// Returns an error if the reply does not end as it should. The connection must then be closed.
    pub fn pass<'b>(&mut self, bytes: &'b [u8], now: Time) -> Result<Passed<'b>, BackendFault> {
        let Some(streamed) = &mut self.streamed_reply else {
            return Ok(Passed { part: &[], rest: bytes, answered: None });
        };
        self.progress = now;
        self.moved = now;
        let (part, rest) = bytes.split_at(bytes.len().min(streamed.left));
        let end_before = streamed.left.min(2);
        streamed.left -= part.len();
        let end_left = streamed.left.min(2);
        if part[part.len() - (end_before - end_left)..] != b"\r\n"[2 - end_before..2 - end_left] {
            return Err(BackendFault::Protocol);
        }
        if streamed.left > 0 {
            return Ok(Passed { part, rest, answered: None });
        }
        let (ends, len) = (streamed.ends, streamed.len);
        self.streamed_reply = None;
        let mut answered = None;
        if ends {
            let exchange = self.take_answered()?;
            self.note_big_element(&exchange, LargestElement::whole(len), len);
            if self.redirected.is_some() {
                self.release_answered(&exchange, Kind::Bulk, b"")?;
            }
            answered = Some(exchange);
        }
        Ok(Passed { part, rest, answered })
    }

    /// Appends more of the request that was enqueued last.
    pub fn extend_last(&mut self, part: &[u8]) {
        if let Some(exchange) = self.fifo.back_mut() {
            exchange.len += part.len() as u32;
            self.is_uneven |= exchange.len as usize >= TRANSFER_LEN;
            self.output.buf().extend_from_slice(part);
        }
    }

    /// Returns whether it has drained enough to let waiting clients continue: far below the limit,
    /// so that they do not stop again at once.
    pub fn has_drained(&self, options: &super::LinkOptions) -> bool {
        self.fifo.len() <= options.in_flight_max as usize / 2
            && self.output.held_len() <= options.output_len_max as usize / 2
    }

    /// Returns the owner of the reply that is being streamed.
    pub fn streamed_owner(&self) -> Option<Owner> {
        self.streamed_reply.as_ref().and(self.fifo.front()).map(|exchange| exchange.owner)
    }

    /// Stops reading the reply that is being streamed, unless others have waited for long enough.
    /// The little time that is forgiven between two replies does not justify another pause.
    pub fn hold(&mut self, patience: Patience, now: Time) -> Held {
        if self.streamed_reply.as_ref().is_none_or(|streamed| streamed.is_released) {
            return Held::None;
        }
        let is_new = self.stall.since.is_none();
        self.stall.since.get_or_insert(now);
        match self.look_at_hold(patience, now) {
            Held::On(Some(until)) if is_new && until < now + patience.most / FORGIVEN => {
                self.release(patience, now)
            }
            held => held,
        }
    }

    fn release(&mut self, patience: Patience, now: Time) -> Held {
        if let Some(streamed) = &mut self.streamed_reply {
            streamed.is_released = true;
        }
        self.stall.end(Some((now, patience.most)));
        Held::Over
    }

    /// Returns whether the streamed reply is not being read.
    pub fn is_held(&self) -> bool {
        self.streamed_reply.is_some() && self.stall.since.is_some()
    }

    /// Notes that the streamed reply is read again. The server is not responsible for the time
    /// until then.
    pub fn let_go(&mut self, most: Duration, now: Time) {
        if self.is_held() {
            self.stall.end(Some((now, most)));
            self.progress = now;
            self.moved = now;
        }
    }

    /// Returns the earliest time from which the timeout of a request counts that waits behind the
    /// streamed reply and belongs to another client. Returns `None` if there is no such request.
    fn others_since(&self) -> Option<Time> {
        let own = match self.fifo.front().map(|exchange| exchange.owner) {
            Some(Owner::Session { session, .. }) => Some(session),
            _ => None,
        };
        let is_others = |exchange: &Exchange| match exchange.owner {
            Owner::Session { session, .. } => Some(session) != own,
            Owner::None | Owner::Internal(_) => false,
            _ => true,
        };
        let behind = self.fifo.iter().enumerate().skip(1);
        let others = behind.filter(|(_, exchange)| is_others(exchange));
        others.map(|(index, exchange)| self.counts_from(index, exchange)).min()
    }

    /// Releases the streamed reply once others have waited long enough behind this reply and those
    /// before it, or one of them has little time left. The link is then read however little the
    /// client takes.
    pub fn look_at_hold(&mut self, patience: Patience, now: Time) -> Held {
        if !self.is_held() {
            return Held::None;
        }
        if self.streamed_owner() == Some(Owner::None) {
            // The request was given up, so no client takes the reply, and nothing else would read
            // it.
            return self.release(patience, now);
        }
        // The server does not cause the wait.
        self.progress = now;
        self.moved = now;
        let others_since = self.others_since().into_iter().chain(patience.others_since).min();
        let Some(since) = others_since else { return Held::On(None) };
        let until = now + patience.most.saturating_sub(self.stall.used(now));
        let until = patience.others_within.map_or(until, |within| until.min(since + within));
        if now < until {
            return Held::On(Some(until));
        }
        self.release(patience, now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Translation;
    use super::*;
    use crate::link::tests::options;
    use keyway_base::{Key, Limits};
    use keyway_command::Counted;
    use keyway_resp::Protocol;

    fn asked(count: u32) -> Link {
        let mut link = Link::new(Protocol::Resp2);
        link.on_connecting(&options(), Time(0));
        link.on_connected(&options(), Time(0));
        for sequence in 0..count {
            link.request_buf().extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
            let owner = Owner::Session { session: Key::NONE, sequence };
            link.enqueue(owner, Counted::OWN, 14, Time(0));
            link.set_translation(Translation::Nulls);
        }
        link.advance(link.unsent().len());
        link
    }

    fn hear(link: &mut Link, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        let deliver = |_: &Exchange, _, reply: &[u8]| got.push(reply.to_vec());
        link.handle_input(bytes, &Limits::default(), Time(0), deliver).unwrap();
        got
    }

    #[test]
    fn what_passes_is_the_reply_and_no_byte_more_however_it_is_cut() {
        let mut all = b"$100\r\n".to_vec();
        all.extend_from_slice(&[b'x'; 100]);
        all.extend_from_slice(b"\r\n+OK\r\n");
        let reply_len = all.len() - 5;
        for first in 7..reply_len - 1 {
            for second in 1..=all.len() - first {
                let mut link = asked(2);
                assert!(hear(&mut link, &all[..first]).is_empty());
                assert!(link.large_reply(200).is_none() && link.large_reply(100).is_some());
                let (mut got, len) = link.begin_streamed_reply();
                assert_eq!((len, link.input_len(), link.in_flight()), (reply_len, 0, 2));
                let (mut later, mut answered) = (Vec::new(), 0);
                for piece in [&all[first..first + second], &all[first + second..]] {
                    let passed = link.pass(piece, Time(1)).unwrap();
                    got.extend_from_slice(passed.part);
                    answered += passed.answered.iter().count();
                    later.extend(hear(&mut link, passed.rest));
                }
                assert_eq!(got, &all[..reply_len]);
                assert_eq!((answered, later), (1, vec![b"+OK\r\n".to_vec()]));
                assert!(!link.is_streaming_reply() && link.in_flight() == 0);
            }
        }
    }

    #[test]
    fn a_reply_that_does_not_end_in_its_line_end_ends_the_connection() {
        for (end, cut) in [(&b"x\n"[..], 0), (b"\rx", 0), (b"x\n", 1), (b"\rx", 1)] {
            let mut link = asked(1);
            assert!(hear(&mut link, b"$100\r\nabc").is_empty());
            link.begin_streamed_reply();
            let mut bytes = vec![b'a'; 97];
            bytes.extend_from_slice(end);
            let (first, second) = bytes.split_at(bytes.len() - cut);
            let outcome = link.pass(first, Time(1)).and_then(|_| link.pass(second, Time(1)));
            assert_eq!(outcome.err(), Some(BackendFault::Protocol), "{end:?} {cut}");
        }
    }

    #[test]
    fn small_replies_and_those_that_are_to_be_looked_at_do_not_pass() {
        let mut link = asked(1);
        hear(&mut link, b"*2\r\n$1000\r\nabc");
        assert!(link.large_reply(100).is_none());
        let mut link = asked(1);
        hear(&mut link, b"$99\r\nabc");
        assert!(link.large_reply(1000).is_none());
        let mut link = asked(1);
        link.fifo[0].replies_before = 1;
        hear(&mut link, b"$1000\r\nabc");
        assert!(link.large_reply(100).is_none());
    }

    const MOST: Duration = Duration::from_millis(100);
    const ALONE: Patience = Patience { most: MOST, others_within: None, others_since: None };

    fn is_on(held: Held) -> bool {
        matches!(held, Held::On(_))
    }

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    fn ask(link: &mut Link, session: Key<crate::Session>, now: Time) {
        link.request_buf().extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
        link.enqueue(Owner::Session { session, sequence: 1 }, Counted::OWN, 14, now);
        link.advance(link.unsent().len());
    }

    /// Returns a link whose front is a large reply for one session, held since 10 ms.
    fn held() -> Link {
        let mut link = asked(1);
        hear(&mut link, b"$1000\r\nabc");
        link.begin_streamed_reply();
        assert!(is_on(link.hold(ALONE, at(10))) && link.is_held());
        link
    }

    #[test]
    fn a_reply_that_no_client_takes_any_more_is_read_on_though_nobody_waits() {
        let mut link = held();
        link.fifo[0].owner = Owner::None;
        assert_eq!(link.look_at_hold(ALONE, at(20)), Held::Over);
        assert!(!link.is_held());
    }

    #[test]
    fn what_is_held_back_does_not_time_out_and_gives_way_to_others() {
        let mut link = held();
        for now in (10..5000).step_by(100) {
            assert_eq!(link.look_at_hold(ALONE, at(now)), Held::On(None), "nobody waits");
            link.handle_timeout(&options(), at(now), |_| panic!("timed out")).unwrap();
        }
        link.let_go(MOST, at(5000));
        link.handle_timeout(&options(), at(5300), |_| panic!("timed out")).unwrap();
        // The session's own next request waits for it. Another session's request does not wait
        // long.
        ask(&mut link, Key::NONE, at(5700));
        assert!(is_on(link.hold(ALONE, at(5700))));
        assert!(matches!(link.look_at_hold(ALONE, at(5790)), Held::On(None)));
        ask(&mut link, Key::from_bits(1), at(5790));
        assert_eq!(link.look_at_hold(ALONE, at(5791)), Held::Over);
        assert!(!link.is_held() && !is_on(link.hold(ALONE, at(5792))));
        // The server is silent. The timeout of the session that gets the reply counts from the last
        // byte, and the other session's from when it asked.
        let mut expired = 0;
        link.handle_timeout(&options(), at(6189), |_| expired += 1).unwrap();
        assert_eq!(expired, 0);
        link.handle_timeout(&options(), at(6200), |_| expired += 1).unwrap();
        assert_eq!(expired, 3);
        assert_eq!(link.streamed_owner(), Some(Owner::None));
    }

    #[test]
    fn who_waits_behind_a_large_reply_is_told_in_time_whatever_moves() {
        let mut link = held();
        ask(&mut link, Key::from_bits(1), at(20));
        let mut over = Vec::new();
        for now in (20..2000).step_by(5) {
            link.let_go(Duration::MAX, at(now));
            link.pass(b"x", at(now)).unwrap();
            link.hold(Patience { most: Duration::MAX, ..ALONE }, at(now));
            link.handle_timeout(&options(), at(now), |exchange| over.push((now, exchange.owner)))
                .unwrap();
            assert!(link.deadline(&options()).is_none_or(|due| due >= at(now)));
        }
        let other = Owner::Session { session: Key::from_bits(1), sequence: 1 };
        assert_eq!(over, [(420, other)]);
        assert_eq!((link.in_flight(), link.live()), (2, 1));
        // The late reply has no owner.
        let rest = link.pass(&[b'x'; 1000], at(2000)).unwrap_err();
        assert_eq!(rest, BackendFault::Protocol, "the line end is missing");
    }

    #[test]
    fn a_link_is_read_on_sooner_for_others_who_have_waited_elsewhere() {
        let others = |asked, room| {
            let mut link = held();
            if let Some(asked) = asked {
                ask(&mut link, Key::from_bits(1), at(20));
                let is_its = |owner| matches!(owner, Owner::Session { .. });
                assert!(link.backdate_last(is_its, asked, at(20)));
            }
            let others_within = Some(Duration::from_millis(350));
            (link, Patience { others_within, others_since: room, ..ALONE })
        };
        let (now, most) = (at(400), at(480));
        for (asked, room, until) in [
            (Some(at(0)), None, at(350)),
            (None, Some(at(0)), at(350)),
            (Some(at(15)), Some(at(0)), at(350)),
            (Some(at(0)), Some(at(15)), at(350)),
        ] {
            let (mut link, patience) = others(asked, room);
            let patience = Patience { most: most.since(at(10)), ..patience };
            assert_eq!(link.look_at_hold(patience, at(30)), Held::On(Some(until)));
            assert_eq!(link.look_at_hold(patience, now), Held::Over);
            let patience = Patience { others_within: None, ..patience };
            let (mut link, _) = others(asked, room);
            assert_eq!(link.look_at_hold(patience, at(30)), Held::On(Some(most)));
        }
        let (mut link, patience) = others(None, None);
        assert_eq!(link.look_at_hold(patience, now), Held::On(None));
    }

    #[test]
    fn many_that_take_nothing_hold_others_up_no_longer_than_one() {
        let mut link = asked(0);
        for session in 1..=20 {
            ask(&mut link, Key::from_bits(session), at(0));
        }
        ask(&mut link, Key::from_bits(100), at(0));
        let (mut now, mut held_for) = (10, 0);
        for _ in 1..=20 {
            hear(&mut link, b"$1000\r\nabc");
            link.begin_streamed_reply();
            while is_on(link.hold(ALONE, at(now))) {
                (now, held_for) = (now + 1, held_for + 1);
            }
            let end = [[b'x'; 997].as_slice(), b"\r\n"].concat();
            let passed = link.pass(&end, at(now)).unwrap();
            assert!(passed.answered.is_some());
        }
        assert_eq!(held_for, 100);
        // The time in which the link is read makes up for the stall.
        hear(&mut link, b"$1000\r\nabc");
        link.begin_streamed_reply();
        ask(&mut link, Key::from_bits(101), at(now + 400));
        let holds = [400, 440, 451].map(|later| is_on(link.hold(ALONE, at(now + later))));
        assert_eq!(holds, [true, true, false]);
    }
}
