//! Servers that refuse `MULTI` itself, for example if the user may not run it.
//!
//! A transaction is sent whole, so the commands of the first one on such a connection are run
//! separately. The client is told that instead of the server's reply to the final `EXEC`. No other
//! transaction is sent to the server while it refuses.

use super::{Internal, Link, Owner, REFUSAL_LEN_MAX};
use keyway_base::Time;
use keyway_command::Counted;
use keyway_resp::Kind;

/// An empty transaction, to find out how a server answers `MULTI` and `EXEC`.
const EMPTY: &[u8] = b"*1\r\n$5\r\nMULTI\r\n*1\r\n$4\r\nEXEC\r\n";

const NOT_TO_EXEC: &[u8] =
    b" (said to MULTI; the commands may have been executed without a transaction)\r\n";

const NOTHING_SENT: &str =
    " (said to MULTI of an earlier transaction; nothing of this one was sent)";

impl Link {
    /// Notes that what was enqueued last is a transaction: the first of the replies before its own
    /// is that to `MULTI`.
    pub fn set_transaction(&mut self) {
        if let Some(exchange) = self.fifo.back_mut() {
            exchange.transaction = exchange.replies_before;
        }
    }

    /// Returns the error for a transaction while the server refuses `MULTI`, or `None` if it may be
    /// sent. The server is asked again, for later ones.
    pub fn refuse_transaction(&mut self, now: Time) -> Option<String> {
        let said = self.multi_refused.as_deref()?;
        let text = String::from_utf8_lossy(said).into_owned() + NOTHING_SENT;
        self.request_buf().extend_from_slice(EMPTY);
        self.enqueue_batch(Owner::Internal(Internal::Multi), Counted::OWN, EMPTY.len(), 1, now);
        self.set_transaction();
        Some(text)
    }

    /// Handles a reply before the one for which an owner waits.
    pub(super) fn skip_reply(&mut self, kind: Kind, reply: &[u8]) {
        let exchange = &mut self.fifo[0];
        let is_to_multi = exchange.replies_before == exchange.transaction;
        exchange.replies_before -= 1;
        if kind == Kind::Error
            && let Some(aside) = &mut self.redirected
        {
            aside.note_inner(reply);
        }
        if is_to_multi {
            self.multi_refused = None;
            if kind == Kind::Error {
                self.on_multi_refused(&reply[1..reply.len() - 2]);
            }
        } else if kind == Kind::Error && self.is_blocking {
            self.on_refused_before(reply);
        }
    }

    #[cold]
    fn on_multi_refused(&mut self, said: &[u8]) {
        let said = &said[..said.len().min(REFUSAL_LEN_MAX)];
        self.multi_refused = Some(said.into());
        // After a refused SELECT, its refusal is the reply.
        if self.refusal.is_empty() {
            self.refusal.push(b'-');
            self.refusal.extend_from_slice(said);
            self.refusal.extend_from_slice(NOT_TO_EXEC);
            self.refuses_once = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkState;
    use keyway_base::{Key, Limits};
    use keyway_resp::Protocol;

    fn owner(sequence: u32) -> Owner {
        Owner::Session { session: Key::NONE, sequence }
    }

    fn transaction(link: &mut Link, sequence: u32) {
        link.request_buf().extend_from_slice(b"MULTI SET EXEC");
        link.enqueue_batch(owner(sequence), Counted::OWN, 14, 2, Time(0));
        link.set_transaction();
    }

    fn replies(link: &mut Link, bytes: &[u8]) -> Vec<(Owner, String)> {
        let mut got = Vec::new();
        link.advance(link.unsent().len());
        link.handle_input(bytes, &Limits::default(), Time(0), |exchange, _, reply| {
            got.push((exchange.owner, String::from_utf8_lossy(reply).into_owned()));
        })
        .unwrap();
        got
    }

    const REFUSAL: &str = "-NOPERM no 'multi' (said to MULTI; the commands may have been executed \
                           without a transaction)\r\n";

    #[test]
    fn a_refused_multi_is_told_in_place_of_exec_and_to_nobody_else() {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut link = Link { state: LinkState::Ready, ..Link::new(protocol) };
            link.translates = protocol == Protocol::Resp3;
            transaction(&mut link, 1);
            link.request_buf().extend_from_slice(b"GET");
            link.enqueue(owner(2), Counted::OWN, 3, Time(0));
            let bytes = b"-NOPERM no 'multi'\r\n+OK\r\n-ERR EXEC without MULTI\r\n$1\r\nv\r\n";
            let got = replies(&mut link, bytes);
            assert_eq!(got[0], (owner(1), REFUSAL.to_owned()));
            assert_eq!(got[1], (owner(2), "$1\r\nv\r\n".to_owned()));
        }
    }

    #[test]
    fn no_transaction_is_sent_while_multi_is_refused_and_the_server_is_asked_again() {
        let mut link = Link { state: LinkState::Ready, ..Link::default() };
        assert_eq!(link.refuse_transaction(Time(0)), None);
        transaction(&mut link, 1);
        replies(&mut link, b"-NOPERM no 'multi'\r\n+OK\r\n-ERR EXEC without MULTI\r\n");
        for _ in 0..2 {
            let text = link.refuse_transaction(Time(0)).unwrap();
            assert!(text.starts_with("NOPERM no 'multi' (said to MULTI of"), "{text}");
            assert_eq!(link.unsent(), EMPTY);
            let got = replies(&mut link, b"-NOPERM no 'multi'\r\n-ERR EXEC without MULTI\r\n");
            assert_eq!(got[0].0, Owner::Internal(Internal::Multi));
        }
        assert!(link.refuse_transaction(Time(0)).is_some());
        replies(&mut link, b"+OK\r\n*0\r\n");
        assert_eq!(link.refuse_transaction(Time(0)), None, "it may by now");
        // Another connection may belong to another user.
        transaction(&mut link, 2);
        replies(&mut link, b"-NOPERM no 'multi'\r\n");
        link.on_lost(false, |_| ());
        assert_eq!(link.refuse_transaction(Time(0)), None);
    }

    #[test]
    fn what_is_refused_inside_a_transaction_is_not_multi() {
        let mut link = Link { state: LinkState::Ready, ..Link::default() };
        transaction(&mut link, 1);
        // As of a client that has sent CLIENT CACHING.
        link.precede_last(b"CACHING");
        let got = replies(&mut link, b"+OK\r\n+OK\r\n-ERR no\r\n-EXECABORT\r\n");
        assert_eq!(got, [(owner(1), "-EXECABORT\r\n".to_owned())]);
        assert_eq!(link.refuse_transaction(Time(0)), None);
    }
}
