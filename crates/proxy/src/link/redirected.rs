//! Redirections by servers of a cluster. The request is put aside with the redirection, and sent
//! again. So sent requests are kept until they are answered.
//!
//! In a transaction, which is sent whole, the first redirection inside counts if the server then
//! refuses `EXEC`: nothing of it was executed.

use super::{Exchange, Internal, Link, Owner};
use keyway_base::{BackendFault, Key, Time};
use keyway_command::Counted;
use keyway_resp::{Kind, reply};
use keyway_topology::Redirect;

/// The request that is sent before one that a server must accept in place of another server.
pub const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// The reply of a replica to `WAIT`.
const WAIT_OF_REPLICA: &[u8] = b"-ERR WAIT cannot be used with replica";

/// The end of commands that wait at a primary which becomes a replica. The end by `CLIENT UNBLOCK`
/// has another text.
const ENDED: &[u8] = b"-UNBLOCKED force unblock";

/// Why a server of a cluster does not accept a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirection {
    /// `MOVED` or `ASK`: another server does. [`Redirect`] names it.
    Elsewhere,
    /// `TRYAGAIN`: its keys are on two servers until the slot has moved completely.
    TryAgain,
    /// `CLUSTERDOWN`: the cluster does not serve the slot now.
    Down,
    /// `LOADING`, `MASTERDOWN`: the server does not have all of its data. `READONLY`: it is no
    /// longer a primary.
    NotReady,
    /// The server is no longer a primary, and has ended the commands that waited there, or refuses
    /// `WAIT`.
    Demoted,
}

impl Redirection {
    /// Parses an error reply. Returns `None` if it is of another kind.
    pub fn of(reply: &[u8]) -> Option<Redirection> {
        let code = reply.strip_prefix(b"-")?;
        let code = &code[..code.iter().position(|&byte| matches!(byte, b' ' | b'\r'))?];
        match code {
            b"MOVED" | b"ASK" => Redirect::parse(reply).map(|_| Redirection::Elsewhere),
            b"TRYAGAIN" => Some(Redirection::TryAgain),
            b"CLUSTERDOWN" => Some(Redirection::Down),
            b"LOADING" | b"MASTERDOWN" | b"READONLY" => Some(Redirection::NotReady),
            b"ERR" if reply.starts_with(WAIT_OF_REPLICA) => Some(Redirection::Demoted),
            b"UNBLOCKED" if reply.starts_with(ENDED) => Some(Redirection::Demoted),
            _ => None,
        }
    }
}

/// A request that a server did not accept.
#[derive(Debug)]
pub struct Redirected {
    /// The exchange, with its owner.
    pub exchange: Exchange,
    /// The server's reply, for [`Redirection::of`].
    pub reply: Box<[u8]>,
    /// The request as it was sent, without a preceding `ASKING`.
    pub request: Box<[u8]>,
}

impl Redirected {
    /// Returns whether it runs a client's own code, which may reply with any error: such a reply
    /// cannot be distinguished from one of the server itself.
    pub fn runs_scripts(&self) -> bool {
        const LOADING: [&[u8]; 2] = [b"SCRIPT", b"FUNCTION"];
        let name = self.request.split(|&byte| byte == b'\n').nth(2).map(<[u8]>::trim_ascii_end);
        let loads = |name: &[u8]| LOADING.iter().any(|it| it.eq_ignore_ascii_case(name));
        self.exchange.is_of_scripts() && !name.is_some_and(loads)
    }

    /// Returns a request that was not even sent to its server.
    pub(super) fn unsent(exchange: &Exchange, request: &[u8]) -> Redirected {
        let request = request.strip_prefix(ASKING).unwrap_or(request);
        Redirected { exchange: *exchange, reply: Box::default(), request: request.into() }
    }
}

/// The exchanges that a link has put aside.
#[derive(Debug, Default)]
pub(super) struct Aside {
    ready: Vec<Redirected>,
    /// The first redirection inside the transaction that is being answered.
    inner: Vec<u8>,
    /// True if a command that waits here must wait elsewhere if the server ends it: see
    /// [`Link::set_moving`].
    is_moving: bool,
}

/// The reply of a server to a command that waited and was ended.
const UNBLOCKED: &[u8] = b"-UNBLOCKED ";

impl Aside {
    /// Notes an error before the reply for which an owner waits.
    #[cold]
    pub(super) fn note_inner(&mut self, reply: &[u8]) {
        if self.inner.is_empty() && Redirection::of(reply).is_some() {
            self.inner.extend_from_slice(reply);
        }
    }

    /// Resets the state when the connection is lost.
    pub(super) fn restart(&mut self) {
        self.inner.clear();
    }
}

impl Link {
    /// Puts requests aside from now on that the server redirects, for [`Link::take_redirected`].
    pub fn follow_redirections(&mut self) {
        self.redirected = Some(Box::default());
        self.output.keep_sent();
    }

    /// Makes a server of a cluster answer the reads that are enqueued from now on although it is a
    /// replica, or ends that.
    #[inline]
    pub fn read_replica(&mut self, reads: bool, now: Time) {
        if self.reads_replica != reads {
            self.send_mode(reads, now);
        }
    }

    #[cold]
    fn send_mode(&mut self, reads: bool, now: Time) {
        self.reads_replica = reads;
        let word: &[u8] = if reads { b"READONLY" } else { b"READWRITE" };
        let out = self.request_buf();
        let start = out.len();
        reply::array(out, 1);
        reply::bulk(out, word);
        let len = out.len() - start;
        self.enqueue(Owner::Internal(Internal::Mode), Counted::OWN, len, now);
    }

    /// Notes that the server was asked to end the command that waits here, so that it is put aside
    /// like a redirected one, or that this no longer applies.
    pub fn set_moving(&mut self, is_moving: bool) {
        if let Some(aside) = &mut self.redirected {
            aside.is_moving = is_moving;
        }
    }

    /// Returns whether the command that waits here must move.
    pub fn is_moving(&self) -> bool {
        self.redirected.as_ref().is_some_and(|aside| aside.is_moving)
    }

    /// Takes the command that waits here, to wait elsewhere. Later bytes of the server have no
    /// owner. The connection must be closed.
    pub fn take_waiting(&mut self) -> Option<Redirected> {
        self.redirected.as_ref()?;
        let (mut at, mut found) = (0, None);
        for exchange in &mut self.fifo {
            let len = exchange.len as usize;
            if matches!(exchange.owner, Owner::Session { .. }) {
                let request = self.output.held(at, len);
                found = Some(Redirected::unsent(exchange, request));
                exchange.owner = Owner::None;
            }
            at += len;
        }
        self.abandoned = self.fifo.len();
        found
    }

    /// Takes the redirected requests, in their order. There are almost never any.
    #[inline]
    pub fn take_redirected(&mut self) -> Vec<Redirected> {
        match &mut self.redirected {
            Some(aside) if !aside.ready.is_empty() => std::mem::take(&mut aside.ready),
            _ => Vec::new(),
        }
    }

    /// Enqueues a request again, for this server. [`Link::precede_last`] may follow.
    pub fn enqueue_redirected(&mut self, exchange: &Exchange, request: &[u8], now: Time) {
        let len = request.len();
        self.request_buf().extend_from_slice(request);
        // Only a transaction is sent whole.
        self.enqueue_batch(exchange.owner, exchange.counted, len, exchange.transaction, now);
        if let Some(last) = self.fifo.back_mut() {
            last.transaction = exchange.transaction;
            last.translation = exchange.translation;
            last.expect = exchange.expect;
            last.redirections = exchange.redirections.saturating_add(1);
            last.sent_on_by = exchange.sent_on_by;
            // A blocking command may wait long at each server. Its time at this one begins now.
            last.waited = if self.is_blocking { 0 } else { exchange.waited_until(now) };
            self.is_uneven |= last.waited > 0;
        }
    }

    /// Releases the bytes of an answered request. Returns whether the request was put aside instead
    /// of being answered.
    ///
    /// # Errors
    /// Returns an error if the server answers a request that was not sent completely.
    #[inline]
    pub(super) fn release_answered(
        &mut self,
        exchange: &Exchange,
        kind: Kind,
        reply: &[u8],
    ) -> Result<bool, BackendFault> {
        if !self.output.has_sent(exchange.len as usize) {
            // The owner is told when the connection is closed.
            self.fifo.push_front(*exchange);
            self.answered_count -= 1;
            return Err(BackendFault::Protocol);
        }
        let is_error = kind == Kind::Error || self.refuses_once;
        let is_aside = is_error && self.put_aside(exchange, reply);
        self.output.release(exchange.len as usize);
        Ok(is_aside)
    }

    #[cold]
    fn put_aside(&mut self, exchange: &Exchange, reply: &[u8]) -> bool {
        let Some(aside) = &mut self.redirected else { return false };
        // The redirection answered a preceding request, so its own reply has no meaning.
        let is_refused_before = self.refuses_once && Redirection::of(&self.refusal).is_some();
        let before = match is_refused_before {
            true => std::mem::take(&mut self.refusal),
            false => Vec::new(),
        };
        self.refuses_once &= !is_refused_before;
        let reply = if is_refused_before { &before[..] } else { reply };
        let inner = std::mem::take(&mut aside.inner);
        // Nothing of the transaction was executed.
        let is_refused = !inner.is_empty() && reply.starts_with(b"-EXECABORT");
        let reply = if is_refused { &inner[..] } else { reply };
        let is_waited_for = match exchange.owner {
            Owner::None | Owner::Internal(_) => false,
            Owner::Unheard(session) => session != Key::NONE,
            _ => true,
        };
        let is_ended = aside.is_moving && reply.starts_with(UNBLOCKED);
        if !is_waited_for || !(is_ended || Redirection::of(reply).is_some()) {
            return false;
        }
        let request = self.output.oldest(exchange.len as usize);
        let request = request.strip_prefix(ASKING).unwrap_or(request);
        aside.ready.push(Redirected {
            exchange: *exchange,
            reply: reply.into(),
            request: request.into(),
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkState;
    use keyway_base::Limits;

    fn link() -> Link {
        let mut link = Link { state: LinkState::Ready, ..Link::default() };
        link.follow_redirections();
        link
    }

    fn owner(sequence: u32) -> Owner {
        Owner::Session { session: Key::NONE, sequence }
    }

    fn ask(link: &mut Link, sequence: u32, request: &[u8]) {
        link.request_buf().extend_from_slice(request);
        link.enqueue(owner(sequence), Counted::OWN, request.len(), Time(0));
    }

    fn hear(link: &mut Link, replies: &[u8]) -> Vec<(Owner, Vec<u8>)> {
        let mut got = Vec::new();
        link.advance(link.unsent().len());
        link.handle_input(replies, &Limits::default(), Time(0), |exchange, _, reply| {
            got.push((exchange.owner, reply.to_vec()));
        })
        .unwrap();
        got
    }

    #[test]
    fn redirections_are_known_and_nothing_else_is() {
        for (reply, redirection) in [
            ("-MOVED 3999 10.0.0.1:6381", Redirection::Elsewhere),
            ("-ASK 16383 ::1:7000", Redirection::Elsewhere),
            ("-TRYAGAIN Multiple keys request during rehashing of slot", Redirection::TryAgain),
            ("-CLUSTERDOWN Hash slot not served", Redirection::Down),
            ("-LOADING Redis is loading the dataset in memory", Redirection::NotReady),
            ("-ERR WAIT cannot be used with replica instances.", Redirection::Demoted),
            ("-UNBLOCKED force unblock from blocking operation, x", Redirection::Demoted),
        ] {
            assert_eq!(Redirection::of(format!("{reply}\r\n").as_bytes()), Some(redirection));
        }
        for other in [
            &b"-MOVED 16384 a:1\r\n"[..],
            b"-MOVED 1\r\n",
            b"-MOVED\r\n",
            b"-MOVEDX 1 a:1\r\n",
            b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n",
            b"-ERR WAIT failed\r\n",
            b"-ERR MOVED 1 a:1\r\n",
            b"+MOVED 1 a:1\r\n",
            b"-\r\n",
            b"",
        ] {
            assert_eq!(Redirection::of(other), None, "{other:?}");
        }
    }

    #[test]
    fn what_is_sent_elsewhere_is_put_aside_with_its_request() {
        let mut link = link();
        ask(&mut link, 1, b"FIRST");
        ask(&mut link, 2, b"SECOND");
        ask(&mut link, 3, b"THIRD");
        let got = hear(&mut link, b"+1\r\n-MOVED 7 h:1\r\n");
        assert_eq!(got, [(owner(1), b"+1\r\n".to_vec())]);
        let aside = link.take_redirected();
        assert_eq!(aside.len(), 1);
        assert_eq!((aside[0].exchange.owner, &*aside[0].request), (owner(2), &b"SECOND"[..]));
        assert_eq!(&*aside[0].reply, b"-MOVED 7 h:1\r\n");
        assert!(link.take_redirected().is_empty());
        let got = hear(&mut link, b"-ERR no\r\n");
        assert_eq!(got, [(owner(3), b"-ERR no\r\n".to_vec())]);
        assert_eq!((link.in_flight(), link.output.held_len()), (0, 0));
    }

    #[test]
    fn an_answer_to_what_was_not_sent_ends_the_connection_and_the_request_is_told() {
        let mut link = link();
        ask(&mut link, 1, b"FIRST");
        link.advance(3);
        let early = link.handle_input(b"+1\r\n", &Limits::default(), Time(0), |_, _, _| panic!());
        assert_eq!(early, Err(BackendFault::Protocol));
        let mut lost = Vec::new();
        link.on_lost(true, |one| lost.push(one.exchange.owner));
        assert_eq!(lost, [owner(1)]);
    }

    #[test]
    fn a_server_is_told_once_that_replicas_are_read_and_again_on_another_connection() {
        let mut link = link();
        for reads in [true, true, false, true] {
            link.read_replica(reads, Time(0));
            ask(&mut link, 1, b"GET");
        }
        let sent = "*1\r\n$8\r\nREADONLY\r\nGETGET*1\r\n$9\r\nREADWRITE\r\nGET*1\r\n$8\r\n\
                    READONLY\r\nGET";
        assert_eq!(link.unsent(), sent.as_bytes());
        link.on_lost(false, |_| ());
        link.state = LinkState::Ready;
        link.read_replica(true, Time(1));
        assert_eq!(link.unsent(), b"*1\r\n$8\r\nREADONLY\r\n");
    }

    #[test]
    fn what_nobody_waits_for_goes_nowhere_else() {
        let mut link = link();
        link.request_buf().extend_from_slice(b"LATE");
        link.enqueue(Owner::None, Counted::OWN, 4, Time(0));
        assert_eq!(hear(&mut link, b"-MOVED 7 h:1\r\n").len(), 1);
        assert!(link.take_redirected().is_empty());
    }

    #[test]
    fn of_a_transaction_the_first_redirection_inside_counts_if_nothing_was_executed() {
        for (last, is_aside) in [("-EXECABORT x\r\n", true), ("*1\r\n+OK\r\n", false)] {
            let mut link = link();
            link.request_buf().extend_from_slice(b"MULTI SET SET EXEC");
            link.enqueue_batch(owner(1), Counted::OWN, 18, 3, Time(0));
            link.set_transaction();
            ask(&mut link, 2, b"GET");
            let inner = "+OK\r\n-ERR other\r\n-ASK 7 h:2\r\n";
            let got = hear(&mut link, format!("{inner}{last}+1\r\n").as_bytes());
            assert_eq!(got.len(), if is_aside { 1 } else { 2 });
            let aside = link.take_redirected();
            assert_eq!(aside.len(), usize::from(is_aside));
            if let Some(one) = aside.first() {
                assert_eq!(&*one.request, b"MULTI SET SET EXEC");
                assert_eq!(&*one.reply, b"-ASK 7 h:2\r\n");
                link.enqueue_redirected(&one.exchange, &one.request, Time(0));
                link.precede_last(ASKING);
                assert_eq!(link.unsent(), [ASKING, b"MULTI SET SET EXEC"].concat());
                let again = "+OK\r\n+OK\r\n-MOVED 7 h:3\r\n+QUEUED\r\n-EXECABORT\r\n";
                assert!(hear(&mut link, again.as_bytes()).is_empty());
                let aside = link.take_redirected();
                assert_eq!(&*aside[0].request, b"MULTI SET SET EXEC");
                link.enqueue_redirected(&aside[0].exchange, &aside[0].request, Time(0));
                let got = hear(&mut link, b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*0\r\n");
                assert_eq!(got, [(owner(1), b"*0\r\n".to_vec())]);
            }
        }
    }

    #[test]
    fn what_is_in_flight_counts_as_room_taken_and_a_lost_connection_drops_it() {
        let mut link = link();
        for sequence in 0..100 {
            ask(&mut link, sequence, &[b'x'; 2000]);
        }
        link.advance(link.unsent().len());
        assert_eq!((link.unsent_len(), link.output.held_len()), (0, 200_000));
        hear(&mut link, &b"+1\r\n".repeat(60));
        assert_eq!(link.output.held_len(), 80_000);
        ask(&mut link, 100, b"NEW");
        link.on_lost(true, |_| ());
        assert_eq!((link.in_flight(), link.output.held_len()), (1, 3));
    }
}
