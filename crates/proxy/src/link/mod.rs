//! ```text
//!   enqueue ──► output ──► backend ──► input ──► front of the FIFO ──► owner
//!                            FIFO  [ abandoned | abandoned | live | live ]
//! ```
//! A backend answers in the order in which it was asked, so a FIFO of exchanges is all that is
//! needed. If the time of a request is up, the request is answered with an error and its exchange
//! stays in the FIFO, abandoned. The late reply is recognised by its position and skipped, without
//! an effect on others. The exchanges of one link have one timeout, so the abandoned ones are in
//! front, unless the link is *uneven*: the timeout of a large transfer counts from its last
//! movement.
//!
//! Legal order: `Idle -> Connecting -> (Handshaking ->) Ready -> Idle`, or `-> Backoff ->
//! Connecting` after a failure. Requests may be enqueued while connecting. They are held until the
//! handshake is over.

mod big;
mod database;
mod exchange;
mod framing;
mod greeting;
mod loss;
mod memcached;
mod multi;
mod precede;
mod redirected;
mod repeat;
mod streamed_reply;
mod time;
mod trace;
mod translate;

pub use big::BigReply;
pub use exchange::{Exchange, Hedge, Internal, Owner};
pub use greeting::Announcement;
pub use loss::Lost;
pub use memcached::RecordCut;
pub use redirected::{ASKING, Redirected, Redirection};
pub use streamed_reply::{Held, Passed, Patience};
pub use trace::Slow;
pub use translate::Translation;

use crate::{Output, Session};
use database::Database;
use keyway_base::{BackendFault, Key, Limits, ReplyBound, Time};
use keyway_command::Counted;
use keyway_memcache::{Dialect, Expect};
use keyway_resp::{Framer, FramingFault, Kind, Protocol, reply};
use std::collections::VecDeque;
use std::time::Duration;
use trace::Trace;

/// The settings of a pool that a link needs.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// The password for the backend.
    pub password: Option<String>,
    /// The protocol of the backend, if it is memcached.
    pub memcached: Option<MemcachedOptions>,
    /// Database selected after connecting.
    pub database: u32,
    /// Number of databases that clients may select, starting with that one. With more than one, the
    /// handshake checks that the last one exists: a request must never run in another database
    /// because its `SELECT` was refused.
    pub databases: u32,
    /// Longest time that a request may wait for its reply. `None`: without a limit.
    pub timeout: Option<Duration>,
    /// Longest time that connecting and the handshake may take together.
    pub connect_timeout: Duration,
    /// First pause after a failed connection.
    pub backoff_min: Duration,
    /// Longest pause after failed connections.
    pub backoff_max: Duration,
    /// Number of requests in flight from which a link accepts no more.
    pub in_flight_max: u32,
    /// Number of unsent bytes from which a link accepts no more requests.
    pub output_len_max: u32,
    /// Silence of a server after which the current request counts as slow. `Duration::MAX`: none
    /// does.
    pub slower_than: Duration,
}

/// The settings of a link to a server of memcached.
#[derive(Clone, Debug)]
pub struct MemcachedOptions {
    /// The protocol.
    pub dialect: Dialect,
    /// The user for the password.
    pub user: String,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Not connected. It connects when it is first needed.
    Idle,
    /// The system is connecting.
    Connecting {
        /// When it must be done, including the handshake.
        deadline: Time,
    },
    /// Connected. The link waits for the handshake's replies.
    Handshaking {
        /// Number of missing replies.
        left: u8,
        /// When it must be done.
        deadline: Time,
    },
    /// The link sends requests.
    Ready,
    /// The last attempt failed. The next one is made after `until`.
    Backoff {
        /// When another attempt is allowed.
        until: Time,
    },
}

/// One connection to a backend.
#[derive(Debug)]
pub struct Link {
    state: LinkState,
    /// The protocol of its replies.
    protocol: Protocol,
    /// True if the server uses another protocol.
    translates: bool,
    /// A buffer for a translated reply.
    translated: Vec<u8>,
    /// The requests that are sent after the handshake on a connection that one client uses alone.
    /// Pushes are then delivered.
    announcement: Option<Announcement>,
    /// The requests that follow the reply to `HELLO`, until it arrives.
    greeting: Option<Box<greeting::Greeting>>,
    /// True if the last connection ended in place of that reply. This server may be one that closes
    /// at an unknown command.
    was_lost_greeting: bool,
    fifo: VecDeque<Exchange>,
    /// Number of exchanges that were answered, on all connections.
    answered_count: u64,
    /// Number of exchanges at the front of the FIFO that were answered with a timeout.
    abandoned: usize,
    /// True if timeouts may end in another order than that of the FIFO: see `time.rs`.
    is_uneven: bool,
    /// The session that got the latest large reply. Its next requests have waited for that reply.
    served: Option<Key<Session>>,
    /// True if a deadline may have become earlier since the last call of `take_sooner`.
    is_sooner: bool,
    /// When bytes of a large request were last taken.
    sent: Time,
    /// Time in which the link was not read, because its clients did not take their replies.
    stall: streamed_reply::Stall,
    handshake: Output,
    /// The reply with which the backend refused the handshake.
    handshake_refusal: Vec<u8>,
    output: Output,
    input: Vec<u8>,
    input_needed: usize,
    framer: Framer,
    /// The framing of replies of a server of memcached.
    memcached: Option<memcached::Framing>,
    /// A large reply of which a part has arrived, and was forwarded.
    streamed_reply: Option<Box<streamed_reply::Streaming>>,
    /// The database in which the last request in `output` runs.
    database: Database,
    /// The error for the requests in flight, because the `SELECT` before them was refused. Empty if
    /// it was not.
    refusal: Vec<u8>,
    /// True if the error applies to one request. It is cleared once that is answered.
    refuses_once: bool,
    /// The server's error for `MULTI`, if it refused the last one.
    multi_refused: Option<Box<[u8]>>,
    /// True if the server of a cluster was told that replicas are to be read on it.
    reads_replica: bool,
    /// Handles redirections, if they are followed.
    redirected: Option<Box<redirected::Aside>>,
    trace: Trace,
    /// The largest of the last replies, if it is large.
    big: Option<Box<BigReply>>,
    /// When bytes last arrived, or when the first request was sent after silence.
    progress: Time,
    /// When bytes of a large transfer last moved.
    moved: Time,
    /// Longest wait of a request for the connection. `None`: as long as for its reply.
    held_for: Option<Duration>,
    /// When the time of requests that were held for the connection began to count.
    held_until: Option<Time>,
    /// Number of attempts to connect since the backend last answered a request.
    failures: u32,
    /// True if the backend has answered a request on this connection.
    answered: bool,
    /// True if the socket took less than was offered.
    pub send_blocked: bool,
    /// True if it is in the worker's list of links with output.
    pub is_dirty: bool,
    /// True if its one request may wait as long as it asked to, once it was sent.
    pub is_blocking: bool,
    /// True if a request that was streamed is complete. The connection then stays open when its
    /// time is up, so that what its client sends next can wait until the server has executed it.
    pub stays_when_late: bool,
    /// When the server must have answered a blocking command with a timeout.
    pub blocks_until: Option<Time>,
}

/// The reply of a server at its `maxclients` to one more client.
pub(crate) const NO_ROOM: &[u8] = b"-ERR max number of clients";

/// Number of bytes that are kept of a server's refusal.
const REFUSAL_LEN_MAX: usize = 512;

/// Length of a request or reply from which the time of its transfer does not count as waiting, in
/// bytes.
const TRANSFER_LEN: usize = 64 << 10;

/// Number of exchanges for which the FIFO keeps memory when it becomes empty.
const FIFO_KEPT_MAX: usize = 4096;

/// Capacity that an empty output keeps, in bytes. The requests of many clients in a turn share it,
/// including values of 16 KiB.
const OUTPUT_KEPT_MAX: u32 = 160 << 10;

impl Default for Link {
    fn default() -> Self {
        Self {
            state: LinkState::Idle,
            protocol: Protocol::Resp2,
            translates: false,
            translated: Vec::new(),
            announcement: None,
            greeting: None,
            was_lost_greeting: false,
            fifo: VecDeque::new(),
            answered_count: 0,
            abandoned: 0,
            is_uneven: false,
            served: None,
            is_sooner: false,
            sent: Time(0),
            stall: streamed_reply::Stall::default(),
            handshake: Output::default(),
            handshake_refusal: Vec::new(),
            output: Output::keeping(OUTPUT_KEPT_MAX),
            input: Vec::new(),
            input_needed: 0,
            framer: Framer::default(),
            memcached: None,
            streamed_reply: None,
            database: Database::Own,
            refusal: Vec::new(),
            refuses_once: false,
            multi_refused: None,
            reads_replica: false,
            redirected: None,
            trace: Trace::default(),
            big: None,
            progress: Time(0),
            moved: Time(0),
            held_for: None,
            held_until: None,
            failures: 0,
            answered: false,
            send_blocked: false,
            is_dirty: false,
            is_blocking: false,
            stays_when_late: false,
            blocks_until: None,
        }
    }
}

impl Link {
    /// Returns the state of the link.
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// Returns the number of exchanges that wait for a reply, including late ones.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.fifo.len()
    }

    /// Returns whether the connection is established and someone waits for a reply that is not
    /// overdue yet. If not, the next request may need a connection, and has the earliest timeout,
    /// even after requests that only prepare the connection for it.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        let first = self.fifo.get(self.abandoned);
        first.is_some_and(Exchange::is_timed) && self.state == LinkState::Ready && !self.is_uneven
    }

    /// Returns the number of exchanges for whose reply someone other than the worker waits.
    pub fn owned(&self) -> usize {
        let is_owned = |owner: Owner| !matches!(owner, Owner::None | Owner::Internal(_));
        self.fifo.iter().filter(|one| is_owned(one.owner)).count()
    }

    /// Returns the number of exchanges for whose reply someone still waits.
    pub fn live(&self) -> usize {
        match self.is_uneven {
            false => self.fifo.len() - self.abandoned,
            true => self.fifo.iter().filter(|exchange| exchange.owner != Owner::None).count(),
        }
    }

    /// Returns the number of unsent bytes.
    #[inline]
    pub fn unsent_len(&self) -> usize {
        self.output.len()
    }

    /// Frees the memory that an empty output keeps.
    pub fn give_back_memory(&mut self) {
        if self.output.held_len() == 0 {
            self.output.clear();
        }
    }

    /// Returns the number of bytes of an incomplete reply.
    pub fn input_len(&self) -> usize {
        self.input.len()
    }

    /// Returns whether it accepts another request. If not, clients that need it wait.
    #[inline]
    pub fn has_room(&self, options: &LinkOptions) -> bool {
        self.fifo.len() < options.in_flight_max as usize
            && self.output.held_len() < options.output_len_max as usize
    }

    /// Returns whether the server has not answered a question of the worker yet, or a request whose
    /// time was up. Another question would only add to those. It checks every exchange, so it is
    /// for questions that are asked a few times a second at most.
    pub fn owes(&self, which: Internal) -> bool {
        let is_owed =
            |owner: Owner| matches!(owner, Owner::None) || owner == Owner::Internal(which);
        self.fifo.iter().any(|exchange| is_owed(exchange.owner))
    }

    /// Returns the number of replies that have ever arrived.
    pub fn answered_count(&self) -> u64 {
        self.answered_count
    }

    /// Returns the value of [`Link::answered_count`] once the server has answered all writes that
    /// have timed out so far.
    pub fn late_writes_end(&self) -> u64 {
        let is_late = |it: &Exchange| it.owner == Owner::None && it.counted.class().may_write();
        let last = self.fifo.iter().rposition(is_late);
        self.answered_count + last.map_or(0, |index| index as u64 + 1)
    }

    /// Returns whether the server has not answered a write yet whose time is up, and may still
    /// execute it.
    pub fn owes_late_write(&self) -> bool {
        let is_late = |it: &Exchange| it.owner == Owner::None && it.counted.class().may_write();
        self.fifo.iter().any(is_late)
    }

    /// Returns whether a connection must be opened for the requests that wait.
    pub fn wants_connection(&self, now: Time) -> bool {
        match self.state {
            LinkState::Idle => true,
            LinkState::Backoff { until } => now >= until,
            _ => false,
        }
    }

    /// Returns whether requests fail at once, because connecting failed a short time ago.
    #[inline]
    pub fn is_down(&self, now: Time) -> bool {
        matches!(self.state, LinkState::Backoff { until } if now < until)
    }

    /// Notes that a connection is being opened.
    pub fn on_connecting(&mut self, options: &LinkOptions, now: Time) {
        self.state = LinkState::Connecting { deadline: now + options.connect_timeout };
    }

    /// Returns whether the backend has answered a request on this connection. Until then it may be
    /// one that accepts and closes.
    pub fn has_answered(&self) -> bool {
        self.answered
    }

    /// Returns the buffer to which one request is appended. [`Link::enqueue`] must follow.
    #[inline]
    pub fn request_buf(&mut self) -> &mut Vec<u8> {
        self.output.buf()
    }

    /// Returns the slow request among those answered since the last call: the last one that was
    /// delivered as slow.
    pub fn take_slow(&mut self) -> Option<Slow> {
        self.trace.take_slow()
    }

    /// Appends an exchange for the request whose `len` bytes were just appended to
    /// [`Link::request_buf`].
    #[inline]
    pub fn enqueue(&mut self, owner: Owner, counted: Counted, len: usize, now: Time) {
        self.enqueue_batch(owner, counted, len, 0, now);
    }

    /// Appends a request that no client has sent. It consists of `words`.
    pub fn enqueue_own(&mut self, owner: Owner, words: &[&[u8]], now: Time) {
        let out = self.request_buf();
        let start = out.len();
        reply::array(out, words.len());
        words.iter().for_each(|word| reply::bulk(out, word));
        let len = out.len() - start;
        self.enqueue(owner, Counted::OWN, len, now);
    }

    /// Does the same as [`Link::enqueue`] for requests that stay together: all are sent on one connection or none. The
    /// owner gets the last one's reply, after `replies_before` others.
    #[inline]
    pub fn enqueue_batch(
        &mut self,
        owner: Owner,
        counted: Counted,
        len: usize,
        replies_before: u16,
        now: Time,
    ) {
        if self.fifo.is_empty() {
            self.progress = now;
            self.is_uneven = false;
        }
        self.is_uneven |= len >= TRANSFER_LEN;
        let (len, translation) = (len as u32, Translation::Nulls);
        let (started, is_slow, redirections) = (now, false, 0);
        self.fifo.push_back(Exchange {
            owner,
            started,
            len,
            waited: 0,
            counted,
            is_slow,
            translation,
            expect: Expect::One,
            replies_before,
            transaction: 0,
            redirections,
            sent_on_by: Exchange::NOBODY,
            may_repeat: false,
        });
    }

    /// Sets how the reply to the request that was enqueued last is translated, if necessary, on
    /// links with RESP3.
    pub fn set_translation(&mut self, translation: Translation) {
        if let Some(exchange) = self.fifo.back_mut() {
            exchange.translation = translation;
        }
    }

    /// Sets how the reply to the request that was enqueued last ends, on links to servers of
    /// memcached.
    #[inline]
    pub fn set_expect(&mut self, expect: Expect) {
        if let Some(exchange) = self.fifo.back_mut() {
            exchange.expect = expect;
        }
    }

    /// Returns what can be sent now.
    #[inline]
    pub fn unsent(&self) -> &[u8] {
        match self.state {
            LinkState::Ready => self.output.unsent(),
            LinkState::Handshaking { .. } => self.handshake.unsent(),
            _ => &[],
        }
    }

    /// Notes that the socket took `len` bytes of [`Link::unsent`].
    #[inline]
    pub fn advance(&mut self, len: usize) {
        match self.state {
            LinkState::Ready => {
                self.moved = self.last_moved();
                self.trace.on_sent(&self.output.unsent()[..len]);
                self.output.advance(len);
            }
            _ => self.handshake.advance(len),
        }
    }

    /// Handles bytes from the backend and passes each complete reply, with its exchange, to
    /// `deliver`. Late replies to abandoned exchanges are passed as well, with an owner of `None`.
    /// Requests whose `SELECT` was refused get the refusal as their reply.
    ///
    /// # Errors
    /// Returns an error if the backend violates the protocol or refuses the handshake. The
    /// connection must then be closed.
    pub fn handle_input(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        now: Time,
        mut deliver: impl FnMut(&Exchange, Kind, &[u8]),
    ) -> Result<(), BackendFault> {
        let silent_since = std::mem::replace(&mut self.progress, now);
        self.moved = self.last_moved();
        if self.state == LinkState::Ready {
            let oldest = self.fifo.front().map(|exchange| exchange.started);
            self.trace.on_bytes(now, silent_since, oldest);
        }
        self.trace.names_big = limits.big_values_from != 0;
        let outcome = self.frame_input(bytes, limits, &mut deliver);
        if outcome == Err(BackendFault::Protocol) && !self.answered {
            // The server may use another protocol. Its text then shows that.
            self.note_handshake_refusal(bytes);
        }
        if self.input.len() >= TRANSFER_LEN {
            self.note_large_reply();
        }
        self.trim();
        outcome
    }

    /// Frees the memory of an unusually long queue.
    fn trim(&mut self) {
        if self.fifo.is_empty() && self.fifo.capacity() > FIFO_KEPT_MAX {
            self.fifo = VecDeque::new();
        }
    }

    /// Returns the exchange to which a reply belongs.
    #[inline]
    fn take_answered(&mut self) -> Result<Exchange, BackendFault> {
        let mut exchange = self.fifo.pop_front().ok_or(BackendFault::Protocol)?;
        exchange.is_slow = self.trace.on_answered(exchange.len);
        self.abandoned = self.abandoned.saturating_sub(1);
        self.answered_count += 1;
        Ok(exchange)
    }

    /// Notes that the server answers, although with a reply that is too long. So it is worth
    /// reconnecting at once.
    #[cold]
    fn note_too_long(&mut self) {
        if self.state == LinkState::Ready {
            self.answered = true;
            self.failures = 0;
        }
    }

    /// Delivers the refusal of an earlier request in place of a reply.
    #[cold]
    fn deliver_refusal(
        &mut self,
        exchange: &Exchange,
        deliver: &mut impl FnMut(&Exchange, Kind, &[u8]),
    ) {
        deliver(exchange, Kind::Error, &self.refusal);
        if std::mem::take(&mut self.refuses_once) {
            self.refusal.clear();
        }
    }

    /// Notes that the server answers requests on this connection.
    #[cold]
    fn on_first_reply(&mut self, reply: &[u8]) -> Result<(), BackendFault> {
        self.check_room(reply)?;
        if !self.fifo.is_empty() {
            self.answered = true;
            self.failures = 0;
        }
        Ok(())
    }

    /// Distinguishes the answer to a request from the message of a full server, which it sends on a
    /// new connection before it closes it, without reading anything.
    fn check_room(&mut self, reply: &[u8]) -> Result<(), BackendFault> {
        if !reply.starts_with(NO_ROOM) {
            return Ok(());
        }
        self.note_handshake_refusal(reply);
        // It did not refuse HELLO.
        self.greeting = None;
        Err(BackendFault::Full)
    }

    fn note_handshake_refusal(&mut self, reply: &[u8]) {
        let line = &reply[..reply.len().min(REFUSAL_LEN_MAX)];
        self.handshake_refusal = line.trim_ascii_end().to_vec();
    }

    /// Delivers a reply of a server that does not support RESP3.
    #[cold]
    fn deliver_translated(
        &mut self,
        exchange: &Exchange,
        reply: &[u8],
        deliver: &mut impl FnMut(&Exchange, Kind, &[u8]),
    ) {
        let is_select = exchange.owner == Owner::Internal(Internal::Select);
        if !is_select && !self.refusal.is_empty() {
            return self.deliver_refusal(exchange, deliver);
        }
        self.translated.clear();
        exchange.translation.translate(reply, &mut self.translated);
        if let Some(kind) = Kind::of(&self.translated) {
            deliver(exchange, kind, &self.translated);
        }
        if self.translated.capacity() > framing::INPUT_KEPT_MAX {
            self.translated = Vec::new();
        }
    }

    #[cold]
    fn framing_fault(&mut self, fault: FramingFault) -> BackendFault {
        let bound = match fault {
            FramingFault::Protocol => return BackendFault::Protocol,
            FramingFault::TooLong => ReplyBound::Len,
            FramingFault::TooDeep => ReplyBound::Depth,
        };
        self.note_too_long();
        BackendFault::Reply(bound)
    }

    fn on_handshake_reply(
        &mut self,
        kind: Kind,
        reply: &[u8],
        left: u8,
        deadline: Time,
    ) -> Result<(), BackendFault> {
        self.check_room(reply)?;
        // An error may arrive before anything was asked, from a server that accepts no client. A
        // success for a request that was not sent completely would be one reply too many.
        let is_last = left == 1;
        let is_unasked = match is_last {
            true => !self.handshake.is_empty(),
            false => self.handshake.is_untouched(),
        };
        if kind != Kind::Error && is_unasked {
            return Err(BackendFault::Protocol);
        }
        let is_early = reply.starts_with(b"-BUSY") || reply.starts_with(b"-LOADING");
        let greeting = self.greeting.take();
        let is_about_greeting = !is_early && greeting.is_some();
        if let (true, Some(greeting)) = (is_about_greeting, greeting)
            && self.on_greeted(*greeting, kind, deadline)
        {
            return Ok(());
        }
        if kind != Kind::Simple || is_about_greeting {
            self.note_handshake_refusal(reply);
            return Err(if is_early { BackendFault::NotReady } else { BackendFault::Handshake });
        }
        self.state = match left - 1 {
            0 => LinkState::Ready,
            left => LinkState::Handshaking { left, deadline },
        };
        Ok(())
    }

    /// Returns what the backend sent when it refused the handshake of this connection, or what it
    /// sent before any reply and not in its protocol. It is empty if there was neither.
    pub fn handshake_refusal(&self) -> &[u8] {
        &self.handshake_refusal
    }
}

#[cfg(test)]
mod invariants;

#[cfg(test)]
mod tests;
