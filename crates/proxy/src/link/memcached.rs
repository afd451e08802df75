//! A link to a server of memcached: its handshake, and where replies end, which depends on the
//! requests.

use super::{Exchange, Internal, Link, LinkOptions, LinkState, MemcachedOptions, Owner};
use crate::memcached::{NO_ROOM, is_error, is_welcome, wire_of, write_login, write_own};
use keyway_base::{BackendFault, Foreign, Limits, ReplyBound, Time};
use keyway_command::Counted;
use keyway_memcache::{Expect, Framer, Framing as Framed, ReplyFault, ReplyLimits, Verb, Wire};
use keyway_resp::Kind;

/// Finds the ends of the replies on a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Framing {
    wire: Wire,
    /// The position in an incomplete reply.
    framer: Option<Framer>,
    /// True if the handshake sends a password. Without a password it asks for the version, which a
    /// server that requires a password refuses to tell: the server would take the first `set` for a
    /// password, and a client must not be able to log in a connection that others share.
    logs_in: bool,
}

impl Framing {
    /// Returns whether replies are lines, with values after some.
    pub(super) fn is_in_text(&self) -> bool {
        self.wire == Wire::Text
    }

    /// Notes that the next element of the reply follows.
    pub(super) fn restart(&mut self) {
        self.framer = None;
    }
}

/// A cut between two TLS records in the unsent bytes of a link.
#[derive(Clone, Copy, Debug)]
pub struct RecordCut {
    /// Index in the FIFO of the exchange whose request contains the cut.
    exchange: usize,
    /// Number of bytes of that request after the cut.
    left: usize,
}

impl Link {
    /// The size of memcached's read buffer. memcached leaves the end of a longer record inside
    /// OpenSSL and does not read it.
    pub const RECORD_LEN_MAX: usize = 16 << 10;

    /// The longest part of a longer exchange of several requests, or of a long `get`. Such an
    /// exchange is cut inside a request, and memcached keeps the first part of that request in its
    /// read buffer, so the next record must fit behind it. For a long `get` memcached doubles the
    /// buffer whenever it is full, so the parts must fill it exactly.
    const PART_LEN_MAX: usize = Self::RECORD_LEN_MAX / 2;

    /// Returns whether the server is a memcached server.
    #[inline]
    pub fn is_of_memcached(&self) -> bool {
        self.memcached.is_some()
    }

    /// Returns the cut at the start of [`Link::unsent`].
    pub fn first_record(&self) -> RecordCut {
        let unsent = self.unsent().len();
        let none = RecordCut { exchange: self.fifo.len(), left: unsent };
        if self.state != LinkState::Ready {
            return none;
        }
        let mut behind = 0;
        for (exchange, one) in self.fifo.iter().enumerate().rev() {
            let len = one.len as usize;
            behind += len;
            if behind >= unsent && len > 0 {
                return RecordCut { exchange, left: len - (behind - unsent).min(len) };
            }
        }
        none
    }

    /// Returns the length of the record that begins at `cut`, or 0 at the end. It moves `cut`
    /// behind the record.
    ///
    /// memcached, at least up to 1.6.18, reads again if the socket has more bytes, but not if
    /// OpenSSL has more of a record. So one read must take a whole record. A read takes
    /// [`Link::RECORD_LEN_MAX`] bytes while memcached waits for a request. While it waits for the
    /// rest of a value, a read takes only that rest. So requests that fit share a record, and the
    /// records of a longer request contain nothing else.
    pub fn next_record(&self, cut: &mut RecordCut) -> usize {
        let Some(first) = self.fifo.get(cut.exchange) else {
            return std::mem::take(&mut cut.left);
        };
        let whole = first.len as usize;
        if cut.left < whole || whole > Self::RECORD_LEN_MAX {
            let len = match first.expect {
                // For a long value, the end of the value is the end of its last record.
                Expect::One => cut.left,
                _ => cut.left.min(Self::PART_LEN_MAX),
            };
            cut.left -= len;
            if cut.left == 0 {
                self.cut_behind(cut, 1);
            }
            return len;
        }
        let (mut count, mut len) = (0, 0);
        for exchange in self.fifo.range(cut.exchange..) {
            let longer = len + exchange.len as usize;
            if longer > Self::RECORD_LEN_MAX {
                break;
            }
            (count, len) = (count + 1, longer);
        }
        self.cut_behind(cut, count);
        len
    }

    fn cut_behind(&self, cut: &mut RecordCut, exchanges: usize) {
        cut.exchange += exchanges;
        cut.left = self.fifo.get(cut.exchange).map_or(0, |next| next.len as usize);
    }

    /// Notes that the connection is established. Sends the password, or asks whether one is
    /// required.
    pub(super) fn on_memcached_connected(
        &mut self,
        memcached: &MemcachedOptions,
        options: &LinkOptions,
        deadline: Time,
        now: Time,
    ) {
        self.trace.slower_than = options.slower_than;
        self.progress = now;
        self.answered = false;
        let (wire, logs_in) = (wire_of(memcached.dialect), options.password.is_some());
        self.memcached = Some(Framing { wire, framer: None, logs_in });
        let out = self.handshake.buf();
        match &options.password {
            Some(password) => write_login(out, memcached.dialect, &memcached.user, password),
            // Packets of clients that log in are answered by Keyway.
            None if wire == Wire::Binary => {
                self.state = LinkState::Ready;
                return;
            }
            None => {
                write_own(out, memcached.dialect, Verb::Version);
            }
        }
        self.state = LinkState::Handshaking { left: 1, deadline };
    }

    pub(super) fn take_memcached_replies(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        deliver: &mut impl FnMut(&Exchange, Kind, &[u8]),
    ) -> Result<usize, BackendFault> {
        let big_from = limits.big_reply_len();
        let limits = ReplyLimits { reply_len_max: limits.reply_len_max };
        let Some(Framing { wire, mut framer, logs_in }) = self.memcached else { return Ok(0) };
        let mut pos = 0;
        while pos < bytes.len() {
            let rest = &bytes[pos..];
            // The handshake's reply does not belong to the exchanges in the queue.
            let expect = match (self.state, self.fifo.front()) {
                (LinkState::Ready, Some(exchange)) => exchange.expect,
                _ => Expect::One,
            };
            let mut one = framer.unwrap_or_else(|| Framer::new(wire, expect));
            match one.frame(rest, &limits) {
                Ok(Framed::Ready { len }) => {
                    pos += len;
                    framer = None;
                    self.take_memcached_reply(&rest[..len], wire, logs_in, big_from, deliver)?;
                }
                Ok(Framed::NeedMore { at_least }) => {
                    framer = Some(one);
                    self.input_needed = at_least;
                    break;
                }
                Err(ReplyFault::Protocol) => return Err(BackendFault::Protocol),
                Err(ReplyFault::TooLong) => {
                    self.note_too_long();
                    return Err(BackendFault::Reply(ReplyBound::Len));
                }
            }
        }
        self.memcached = Some(Framing { wire, framer, logs_in });
        Ok(pos)
    }

    fn take_memcached_reply(
        &mut self,
        reply: &[u8],
        wire: Wire,
        logs_in: bool,
        big_from: usize,
        deliver: &mut impl FnMut(&Exchange, Kind, &[u8]),
    ) -> Result<(), BackendFault> {
        if !self.answered && reply.starts_with(NO_ROOM) {
            self.note_handshake_refusal(reply);
            return Err(BackendFault::Full);
        }
        if let LinkState::Handshaking { .. } = self.state {
            let is_right = match logs_in {
                true => is_welcome(reply, wire),
                // A server that does not know the question does not reject the connection.
                false => reply.starts_with(b"VERSION ") || reply == b"ERROR\r\n",
            };
            if !is_right {
                self.note_handshake_refusal(reply);
                let is_foreign =
                    Foreign::of(reply).is_some_and(|foreign| foreign != Foreign::Memcached);
                return Err(match is_foreign {
                    true => BackendFault::Protocol,
                    false => BackendFault::Handshake,
                });
            }
            // A request that was not sent completely cannot be answered: the rest would be read as
            // a request.
            if !self.handshake.is_empty() {
                return Err(BackendFault::Protocol);
            }
            self.state = LinkState::Ready;
            return Ok(());
        }
        let exchange = self.take_answered()?;
        if reply.len() >= big_from {
            self.note_big(&exchange, reply);
        }
        self.answered = true;
        self.failures = 0;
        let kind = if is_error(reply, wire) { Kind::Error } else { Kind::Simple };
        deliver(&exchange, kind, reply);
        Ok(())
    }

    /// Sends the worker's own question to a server of memcached.
    pub fn ask_memcached(
        &mut self,
        dialect: keyway_memcache::Dialect,
        verb: keyway_memcache::Verb,
        which: Internal,
        now: Time,
    ) {
        self.ask_memcached_with(which, now, |out| crate::memcached::write_own(out, dialect, verb));
    }

    /// Does the same with a request that `write` appends. `write` returns how the reply ends.
    pub fn ask_memcached_with(
        &mut self,
        which: Internal,
        now: Time,
        write: impl FnOnce(&mut Vec<u8>) -> Expect,
    ) {
        let out = self.request_buf();
        let start = out.len();
        let expect = write(out);
        let len = out.len() - start;
        self.enqueue(Owner::Internal(which), Counted::OWN, len, now);
        self.set_expect(expect);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::tests;
    use keyway_base::Key;
    use keyway_memcache::Dialect;

    fn options(dialect: Dialect, password: Option<&str>) -> LinkOptions {
        LinkOptions {
            password: password.map(str::to_owned),
            memcached: Some(MemcachedOptions { dialect, user: "me".to_owned() }),
            ..tests::options()
        }
    }

    fn connected(dialect: Dialect, password: Option<&str>) -> Link {
        let mut link = Link::default();
        link.on_connecting(&options(dialect, password), Time(0));
        link.on_connected(&options(dialect, password), Time(0));
        if password.is_none() && dialect != Dialect::Binary {
            assert_eq!(link.unsent(), b"version\r\n");
            link.advance(link.unsent().len());
            assert_eq!(hear(&mut link, b"VERSION 1.6.38\r\n").unwrap(), []);
        }
        link
    }

    fn ask(link: &mut Link, request: &[u8], expect: Expect) {
        link.request_buf().extend_from_slice(request);
        let owner = Owner::Session { session: Key::NONE, sequence: 0 };
        link.enqueue(owner, Counted::OWN, request.len(), Time(0));
        link.set_expect(expect);
    }

    fn hear(link: &mut Link, bytes: &[u8]) -> Result<Vec<(Kind, String)>, BackendFault> {
        let mut got = Vec::new();
        link.handle_input(bytes, &Limits::default(), Time(0), |_, kind, reply| {
            got.push((kind, String::from_utf8_lossy(reply).into_owned()));
        })?;
        Ok(got)
    }

    /// Sends `taken` bytes of a link, and returns the lengths of the records of the rest.
    fn records(link: &mut Link, taken: usize) -> Vec<usize> {
        link.advance(taken);
        let mut cut = link.first_record();
        let lens = std::iter::repeat_with(|| link.next_record(&mut cut));
        lens.take_while(|&len| len > 0).collect()
    }

    #[test]
    fn the_records_of_a_longer_request_hold_nothing_else() {
        const MAX: usize = Link::RECORD_LEN_MAX;
        let lens = [7, MAX + 1, 30, MAX - 30, 1, MAX, 5];
        let all: usize = lens.iter().sum();
        for (taken, expected) in [
            (0, &[7, MAX + 1, MAX, 1, MAX, 5][..]),
            (7, &[MAX + 1, MAX, 1, MAX, 5]),
            (8, &[MAX, MAX, 1, MAX, 5]),
            (7 + MAX, &[1, MAX, 1, MAX, 5]),
            (8 + MAX, &[MAX, 1, MAX, 5]),
            (all - 5, &[5]),
            (all, &[]),
        ] {
            let mut link = connected(Dialect::Text, None);
            for len in lens {
                ask(&mut link, &vec![b'x'; len], Expect::One);
            }
            assert_eq!(records(&mut link, taken), expected, "{taken}");
        }
        let mut link = connected(Dialect::Meta, None);
        ask(&mut link, &vec![b'x'; MAX + 1], Expect::UntilNoop);
        ask(&mut link, b"mn\r\n", Expect::One);
        assert_eq!(records(&mut link, 0), [MAX / 2, MAX / 2, 1, 4]);
        assert_eq!(records(&mut link, MAX), [1, 4]);
        let mut greeting = Link::default();
        greeting.on_connecting(&options(Dialect::Text, None), Time(0));
        greeting.on_connected(&options(Dialect::Text, None), Time(0));
        ask(&mut greeting, b"mn\r\n", Expect::One);
        assert_eq!(records(&mut greeting, 0), [b"version\r\n".len()]);
    }

    #[test]
    fn records_are_all_that_is_unsent_whatever_was_answered() {
        let mut random = 7u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % bound
        };
        for _ in 0..300 {
            let mut link = connected(Dialect::Text, None);
            for _ in 0..below(40) {
                let len = [1, 300, 9000, 40_000][below(4) as usize];
                ask(&mut link, &vec![b'x'; 1 + below(len) as usize], Expect::One);
            }
            let all = link.unsent().len();
            let taken = below(all as u64 + 1) as usize;
            assert_eq!(records(&mut link, taken).iter().sum::<usize>(), all - taken);
        }
    }

    #[test]
    fn replies_end_as_their_requests_say_however_they_are_split() {
        let bytes = b"VALUE a 0 5\r\nEND\r\n\r\nEND\r\nSTORED\r\nSERVER_ERROR x\r\n";
        for split in 0..=bytes.len() {
            let mut link = connected(Dialect::Text, None);
            ask(&mut link, b"get a\r\n", Expect::List);
            ask(&mut link, b"set a 0 0 1\r\nA\r\n", Expect::One);
            ask(&mut link, b"set b 0 0 1\r\nB\r\n", Expect::One);
            let mut got = hear(&mut link, &bytes[..split]).unwrap();
            got.extend(hear(&mut link, &bytes[split..]).unwrap());
            let told: Vec<_> = got.iter().map(|(kind, text)| (*kind, &**text)).collect();
            assert_eq!(
                told,
                [
                    (Kind::Simple, "VALUE a 0 5\r\nEND\r\n\r\nEND\r\n"),
                    (Kind::Simple, "STORED\r\n"),
                    (Kind::Error, "SERVER_ERROR x\r\n"),
                ],
                "split at {split}"
            );
        }
    }

    #[test]
    fn requests_wait_until_the_password_was_taken() {
        let mut link = connected(Dialect::Meta, Some("secret"));
        ask(&mut link, b"mn\r\n", Expect::One);
        assert_eq!(link.unsent(), b"set keyway 0 0 9\r\nme secret\r\n");
        link.advance(link.unsent().len());
        assert!(link.unsent().is_empty());
        assert_eq!(hear(&mut link, b"STORED\r\n").unwrap(), []);
        assert_eq!((link.state(), link.unsent()), (LinkState::Ready, &b"mn\r\n"[..]));
        let mut refused = connected(Dialect::Meta, Some("wrong"));
        let said = hear(&mut refused, b"CLIENT_ERROR authentication failure\r\n");
        assert_eq!(said, Err(BackendFault::Handshake));
        assert_eq!(refused.handshake_refusal(), b"CLIENT_ERROR authentication failure");
    }

    #[test]
    fn no_request_is_taken_for_a_password_that_is_not_configured() {
        let mut link = Link::default();
        link.on_connecting(&options(Dialect::Text, None), Time(0));
        link.on_connected(&options(Dialect::Text, None), Time(0));
        ask(&mut link, b"set k 0 0 9\r\nme secret\r\n", Expect::One);
        assert_eq!(link.unsent(), b"version\r\n");
        link.advance(link.unsent().len());
        assert!(link.unsent().is_empty());
        let said = hear(&mut link, b"CLIENT_ERROR unauthenticated\r\n");
        assert_eq!(said, Err(BackendFault::Handshake));
        assert_eq!(link.handshake_refusal(), b"CLIENT_ERROR unauthenticated");
        let mut other = Link::default();
        other.on_connecting(&options(Dialect::Text, None), Time(0));
        other.on_connected(&options(Dialect::Text, None), Time(0));
        other.advance(other.unsent().len());
        assert_eq!(hear(&mut other, b"ERROR\r\n").unwrap(), []);
        assert_eq!(other.state(), LinkState::Ready);
    }

    #[test]
    fn the_reply_to_the_password_ends_by_itself_whatever_waits_behind() {
        let mut link = connected(Dialect::Binary, Some("secret"));
        ask(&mut link, b"request", Expect::UntilNoop);
        link.advance(link.unsent().len());
        let mut reply = vec![0x81, 0x21];
        reply.resize(24, 0);
        assert_eq!(hear(&mut link, &reply).unwrap(), []);
        assert_eq!((link.state(), link.unsent()), (LinkState::Ready, &b"request"[..]));
    }

    #[test]
    fn what_nobody_waits_for_ends_the_connection() {
        let mut link = connected(Dialect::Text, None);
        assert_eq!(hear(&mut link, b"STORED\r\n"), Err(BackendFault::Protocol));
        let mut full = Link::default();
        full.on_connecting(&options(Dialect::Text, None), Time(0));
        full.on_connected(&options(Dialect::Text, None), Time(0));
        ask(&mut full, b"get a\r\n", Expect::List);
        full.advance(full.unsent().len());
        let said = hear(&mut full, b"ERROR Too many open connections\r\n");
        assert_eq!(said, Err(BackendFault::Full));
        let mut other = connected(Dialect::Text, None);
        ask(&mut other, b"get a\r\n", Expect::List);
        assert_eq!(hear(&mut other, b"+OK\r\n"), Err(BackendFault::Protocol));
    }

    #[test]
    fn a_late_reply_of_many_items_is_skipped_as_one() {
        let mut link = connected(Dialect::Text, None);
        ask(&mut link, b"get a b\r\n", Expect::List);
        let late = Time(400_000_000);
        link.handle_timeout(&options(Dialect::Text, None), late, |_| ()).unwrap();
        ask(&mut link, b"delete a\r\n", Expect::One);
        let mut owners = Vec::new();
        let bytes = b"VALUE a 0 1\r\nA\r\nEND\r\nDELETED\r\n";
        link.handle_input(bytes, &Limits::default(), late, |exchange, _, _| {
            owners.push(exchange.owner == Owner::None);
        })
        .unwrap();
        assert_eq!(owners, [true, false]);
    }

    #[test]
    fn its_own_questions_are_in_the_servers_words() {
        let mut link = connected(Dialect::Binary, None);
        link.ask_memcached(Dialect::Binary, Verb::Version, Internal::Probe, Time(0));
        assert_eq!(link.unsent()[..2], [0x80, 0x0b]);
    }
}
