use super::{Internal, Link, Owner, REFUSAL_LEN_MAX, Redirection};

impl Link {
    /// Inserts one more request before the one that was enqueued last, to be sent with it or not at
    /// all. Its reply has no owner. It must be called before anything of that request was sent.
    ///
    /// # Panics
    /// Panics if nothing was enqueued, or if a part of it was sent.
    pub fn precede_last(&mut self, request: &[u8]) {
        let last = self.fifo.back_mut().expect("a request was enqueued");
        debug_assert!(!matches!(last.owner, Owner::Internal(Internal::Select)));
        let unsent_len = self.output.len();
        assert!(last.len as usize <= unsent_len, "a part of the request was sent");
        let out = self.output.buf();
        let at = out.len() - last.len as usize;
        out.splice(at..at, request.iter().copied());
        last.len += request.len() as u32;
        last.replies_before += 1;
    }

    /// Notes that replies to `count` more requests precede that to what was enqueued last, which
    /// contains them.
    pub fn note_before_last(&mut self, count: u16) {
        if let Some(last) = self.fifo.back_mut() {
            last.replies_before += count;
        }
    }

    /// Handles the refusal of a request before a blocking one. For WAIT the count would be wrong. A
    /// command that the server does not know is not needed.
    #[cold]
    pub(super) fn on_refused_before(&mut self, reply: &[u8]) {
        if !self.refusal.is_empty() || reply.starts_with(b"-ERR unknown command") {
            return;
        }
        self.refuses_once = true;
        if self.redirected.is_some() && Redirection::of(reply).is_some() {
            self.refusal.extend_from_slice(reply);
            return;
        }
        let line = reply.trim_ascii_end();
        self.refusal.extend_from_slice(&line[..line.len().min(REFUSAL_LEN_MAX)]);
        self.refusal.extend_from_slice(b" (said to what must be sent before the command)\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkState;
    use keyway_base::{Key, Limits, Time};
    use keyway_command::Counted;

    #[test]
    fn what_is_refused_before_a_command_that_blocks_answers_it_and_no_other() {
        let noperm = "-NOPERM this user has no permissions\r\n";
        for (said, expected) in [(noperm, "-NOPERM"), ("-ERR unknown command 'SPUBLISH'\r\n", ":1")]
        {
            let mut link = Link { state: LinkState::Ready, is_blocking: true, ..Link::default() };
            let mut got = Vec::new();
            for replies in [format!("+PONG\r\n{said}:1\r\n"), "+PONG\r\n:0\r\n:2\r\n".to_owned()] {
                link.request_buf().extend_from_slice(b"WAIT");
                let owner = Owner::Session { session: Key::NONE, sequence: 0 };
                link.enqueue_batch(owner, Counted::OWN, 4, 2, Time(0));
                link.handle_input(
                    replies.as_bytes(),
                    &Limits::default(),
                    Time(0),
                    |_, _, reply| {
                        got.push(String::from_utf8(reply.to_vec()).unwrap());
                    },
                )
                .unwrap();
            }
            assert!(got[0].starts_with(expected), "{got:?}");
            assert_eq!(got[1], ":2\r\n");
        }
    }

    #[test]
    fn the_longest_transaction_may_be_preceded() {
        let mut link = Link { state: LinkState::Ready, ..Link::default() };
        let owner = Owner::Session { session: Key::NONE, sequence: 0 };
        link.request_buf().extend_from_slice(b"EXEC");
        link.enqueue_batch(owner, Counted::OWN, 4, crate::session::QUEUED_MAX + 1, Time(0));
        link.precede_last(b"FIRST");
        let replies = b"+OK\r\n".repeat(usize::from(u16::MAX) + 1);
        let mut got = 0;
        link.handle_input(&replies, &Limits::default(), Time(0), |_, _, _| got += 1).unwrap();
        assert_eq!((got, link.in_flight()), (1, 0));
    }

    #[test]
    fn what_precedes_a_request_is_sent_in_front_of_it_and_its_reply_is_skipped() {
        let mut link = Link { state: LinkState::Ready, ..Link::default() };
        let owner = |sequence| Owner::Session { session: Key::NONE, sequence };
        link.request_buf().extend_from_slice(b"ONE");
        link.enqueue(owner(1), Counted::OWN, 3, Time(0));
        link.request_buf().extend_from_slice(b"TWO");
        link.enqueue(owner(2), Counted::OWN, 3, Time(0));
        link.precede_last(b"FIRST");
        assert_eq!(link.unsent(), b"ONEFIRSTTWO");
        link.advance(11);
        let mut got = Vec::new();
        let replies = b"+1\r\n+OK\r\n+2\r\n";
        link.handle_input(replies, &Limits::default(), Time(0), |exchange, _, reply| {
            got.push((exchange.owner, reply.to_vec()));
        })
        .unwrap();
        assert_eq!(got, [(owner(1), b"+1\r\n".to_vec()), (owner(2), b"+2\r\n".to_vec())]);
        assert_eq!(link.in_flight(), 0);
    }
}
