//! ```text
//!   enqueue ──► output ──► backend ──► input ──► front of the FIFO ──► owner
//!                            FIFO  [ abandoned | abandoned | live | live ]
//! ```
//! A backend answers in the order it was asked, so the FIFO of exchanges is
//! all the bookkeeping there is. A request whose time is up is answered with
//! an error and its exchange stays in the FIFO, abandoned: the late reply is
//! recognised by its place and skipped, and nobody else notices. Exchanges of
//! one link have one timeout, so the abandoned ones are in front, unless the link is *uneven*: the
//! timeout of a large transfer counts from its last movement.
//!
//! Legal order: `Idle -> Connecting -> (Handshaking ->) Ready -> Idle`, or
//! `-> Backoff -> Connecting` after a failure. Requests may be enqueued while
//! connecting; they are held until the handshake is over.

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
use keyway_resp::{Framer, FramingFault, Kind, Protocol};
use std::collections::VecDeque;
use std::time::Duration;
use trace::Trace;

/// What a link needs to know of its pool.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// Password given to the backend.
    pub password: Option<String>,
    /// What the backend is asked in, where it is one of memcached.
    pub memcached: Option<MemcachedOptions>,
    /// Database selected after connecting.
    pub database: u32,
    /// How many databases clients may select, from that one on. With more than
    /// one the handshake makes sure that the last exists: a request must never
    /// run on another database because its `SELECT` was refused.
    pub databases: u32,
    /// How long a request may wait for its reply; `None`: for ever.
    pub timeout: Option<Duration>,
    /// How long connecting and the handshake may take.
    pub connect_timeout: Duration,
    /// First pause after a failed connection.
    pub backoff_min: Duration,
    /// Longest pause after failed connections.
    pub backoff_max: Duration,
    /// Requests in flight from which a link takes no other.
    pub in_flight_max: u32,
    /// Unsent bytes from which a link takes no other request.
    pub output_len_max: u32,
    /// Silence of a server that makes the request it is about slow;
    /// `Duration::MAX`: none is.
    pub slower_than: Duration,
}

/// How a link speaks to a server of memcached.
#[derive(Clone, Debug)]
pub struct MemcachedOptions {
    /// In which of its protocols.
    pub dialect: Dialect,
    /// Who it says it is, with the password.
    pub user: String,
}

/// Where a link is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Not connected; connects when first needed.
    Idle,
    /// The system is connecting.
    Connecting {
        /// When it must be done, handshake included.
        deadline: Time,
    },
    /// Connected; the handshake's replies are awaited.
    Handshaking {
        /// Replies still to come.
        left: u8,
        /// When it must be done.
        deadline: Time,
    },
    /// Requests flow.
    Ready,
    /// The last attempt failed; none is made before `until`.
    Backoff {
        /// When another attempt is allowed.
        until: Time,
    },
}

/// One connection to a backend.
#[derive(Debug)]
pub struct Link {
    state: LinkState,
    /// What its replies are in.
    protocol: Protocol,
    /// They are not what the server speaks.
    translates: bool,
    /// Room for a reply that is translated.
    translated: Vec<u8>,
    /// What is said behind the handshake on a connection that one client has
    /// for itself; pushes are handed over then.
    announcement: Option<Announcement>,
    /// What follows the reply to `HELLO`, until it comes.
    greeting: Option<Box<greeting::Greeting>>,
    /// The last connection ended in place of that reply: this server may be
    /// one that closes at a command it does not know.
    was_lost_greeting: bool,
    fifo: VecDeque<Exchange>,
    /// Exchanges that were answered, on all connections.
    answered_count: u64,
    /// Exchanges at the front of the FIFO that were answered with a timeout.
    abandoned: usize,
    /// Timeouts may end in another order than that of the FIFO: see `time.rs`.
    is_uneven: bool,
    /// The session that got the latest large reply. Its next requests have waited for that reply.
    served: Option<Key<Session>>,
    /// A deadline may have become earlier since the last call of `take_sooner`.
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
    /// The same for a server of memcached.
    memcached: Option<memcached::Framing>,
    /// A large reply of which a part has come, and was handed on.
    streamed_reply: Option<Box<streamed_reply::Streaming>>,
    /// Database that the last request in `output` runs on.
    database: Database,
    /// The error that answers the requests on their way, because the `SELECT`
    /// before them was refused; empty when it was not.
    refusal: Vec<u8>,
    /// It is about one request: it is empty again once that is answered.
    refuses_once: bool,
    /// What the server said to `MULTI`, if it refused the last.
    multi_refused: Option<Box<[u8]>>,
    /// The server of a cluster was told that replicas are to be read on it.
    reads_replica: bool,
    /// What sends requests elsewhere, where that is followed.
    redirected: Option<Box<redirected::Aside>>,
    trace: Trace,
    /// The largest of the replies that came last, where it is large.
    big: Option<Box<BigReply>>,
    /// When bytes last came, or the first request was sent after silence.
    progress: Time,
    /// When bytes of a large transfer last moved.
    moved: Time,
    /// Longest wait of a request for the connection. `None`: as long as for its reply.
    held_for: Option<Duration>,
    /// When the time of requests that were held for the connection began to count.
    held_until: Option<Time>,
    /// Attempts to connect since the backend last answered a request.
    failures: u32,
    /// The backend has answered a request on this connection.
    answered: bool,
    /// The socket took less than was offered.
    pub send_blocked: bool,
    /// In the worker's list of links with output.
    pub is_dirty: bool,
    /// Its one request may wait as long as it asked to, once it was sent.
    pub is_blocking: bool,
    /// What was sent as it came is whole: the connection stays when its time is up, so that what its
    /// client sends next can wait until the server has executed it.
    pub stays_when_late: bool,
    /// When the server must have answered a blocking command with a timeout.
    pub blocks_until: Option<Time>,
}

/// What a server at its `maxclients` says to the one client more.
pub(crate) const NO_ROOM: &[u8] = b"-ERR max number of clients";

/// Bytes kept of what a server says when it refuses us.
const REFUSAL_LEN_MAX: usize = 512;

/// Bytes of a request or reply under way from which the time its transfer takes
/// is not counted as waiting.
const TRANSFER_LEN: usize = 64 << 10;

/// Exchanges whose room the FIFO keeps when it runs empty.
const FIFO_KEPT_MAX: usize = 4096;

/// Capacity kept by an output that was sent, in bytes: a turn's requests of
/// many clients share it, with values of 16 KiB among them.
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
    /// Where the link is in its life.
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// Exchanges waiting for a reply, late ones included.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.fifo.len()
    }

    /// Whether the connection stands and somebody waits for a reply that is
    /// not overdue yet. If not, the next request may need a connection, and
    /// has the earliest timeout: also behind what only prepares the connection for it.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        let first = self.fifo.get(self.abandoned);
        first.is_some_and(Exchange::is_timed) && self.state == LinkState::Ready && !self.is_uneven
    }

    /// Number of exchanges whose reply somebody other than the worker waits for.
    pub fn owned(&self) -> usize {
        let is_owned = |owner: Owner| !matches!(owner, Owner::None | Owner::Internal(_));
        self.fifo.iter().filter(|one| is_owned(one.owner)).count()
    }

    /// Exchanges whose reply somebody still waits for.
    pub fn live(&self) -> usize {
        match self.is_uneven {
            false => self.fifo.len() - self.abandoned,
            true => self.fifo.iter().filter(|exchange| exchange.owner != Owner::None).count(),
        }
    }

    /// Bytes not sent yet.
    #[inline]
    pub fn unsent_len(&self) -> usize {
        self.output.len()
    }

    /// Gives back the memory that an empty output keeps.
    pub fn give_back_memory(&mut self) {
        if self.output.held_len() == 0 {
            self.output.clear();
        }
    }

    /// Bytes of a reply that is not whole yet.
    pub fn input_len(&self) -> usize {
        self.input.len()
    }

    /// Whether it takes another request; if not, clients that need it wait.
    #[inline]
    pub fn has_room(&self, options: &LinkOptions) -> bool {
        self.fifo.len() < options.in_flight_max as usize
            && self.output.held_len() < options.output_len_max as usize
    }

    /// Returns whether the server has yet to answer a question of the worker's own, or a request
    /// whose time was up: a further question would only add to those. Looks at every exchange:
    /// for questions that are asked a few times a second at most.
    pub fn owes(&self, which: Internal) -> bool {
        let is_owed =
            |owner: Owner| matches!(owner, Owner::None) || owner == Owner::Internal(which);
        self.fifo.iter().any(|exchange| is_owed(exchange.owner))
    }

    /// Number of replies that have come, ever.
    pub fn answered_count(&self) -> u64 {
        self.answered_count
    }

    /// The value of [`Link::answered_count`] once the server has answered all writes that have timed
    /// out so far.
    pub fn late_writes_end(&self) -> u64 {
        let is_late = |it: &Exchange| it.owner == Owner::None && it.counted.class().may_write();
        let last = self.fifo.iter().rposition(is_late);
        self.answered_count + last.map_or(0, |index| index as u64 + 1)
    }

    /// Returns whether the server has yet to answer a write whose time is up, and may still execute
    /// it.
    pub fn owes_late_write(&self) -> bool {
        let is_late = |it: &Exchange| it.owner == Owner::None && it.counted.class().may_write();
        self.fifo.iter().any(is_late)
    }

    /// Whether a connection must be made for the requests that wait.
    pub fn wants_connection(&self, now: Time) -> bool {
        match self.state {
            LinkState::Idle => true,
            LinkState::Backoff { until } => now >= until,
            _ => false,
        }
    }

    /// Whether requests fail at once, because connecting failed moments ago.
    #[inline]
    pub fn is_down(&self, now: Time) -> bool {
        matches!(self.state, LinkState::Backoff { until } if now < until)
    }

    /// Notes that a connection is being made.
    pub fn on_connecting(&mut self, options: &LinkOptions, now: Time) {
        self.state = LinkState::Connecting { deadline: now + options.connect_timeout };
    }

    /// Whether the backend has answered a request on this connection: until
    /// then it may be one that accepts and closes.
    pub fn has_answered(&self) -> bool {
        self.answered
    }

    /// Buffer to append one request to; follow with [`Link::enqueue`].
    #[inline]
    pub fn request_buf(&mut self) -> &mut Vec<u8> {
        self.output.buf()
    }

    /// The slow request among those answered since the last call: the last that
    /// was handed on as such.
    pub fn take_slow(&mut self) -> Option<Slow> {
        self.trace.take_slow()
    }

    /// Puts an exchange behind the others, for the request whose `len` bytes
    /// were just appended to [`Link::request_buf`].
    #[inline]
    pub fn enqueue(&mut self, owner: Owner, counted: Counted, len: usize, now: Time) {
        self.enqueue_batch(owner, counted, (len, 0), now);
    }

    /// The same for requests that stay together: all are sent on one
    /// connection or none, and the last one's reply is the owner's, after
    /// `replies_before` others.
    #[inline]
    pub fn enqueue_batch(
        &mut self,
        owner: Owner,
        counted: Counted,
        (len, replies_before): (usize, u16),
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

    /// Tells how the reply to the request that was enqueued last is translated,
    /// should that be necessary: on links of RESP3.
    pub fn set_translation(&mut self, translation: Translation) {
        if let Some(exchange) = self.fifo.back_mut() {
            exchange.translation = translation;
        }
    }

    /// Tells how the reply to the request ends that was enqueued last: on links
    /// to servers of memcached.
    #[inline]
    pub fn set_expect(&mut self, expect: Expect) {
        if let Some(exchange) = self.fifo.back_mut() {
            exchange.expect = expect;
        }
    }

    /// What can be sent now.
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

    /// Takes bytes from the backend and hands each whole reply, with the
    /// exchange it belongs to, to `deliver`. Late replies to abandoned
    /// exchanges are handed over as well, with an owner of `None`. Requests
    /// whose `SELECT` was refused get the refusal for their reply.
    ///
    /// # Errors
    /// When the backend breaks the protocol or refuses the handshake: lose the
    /// connection.
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
            // It may speak another protocol, which its words tell.
            self.note_handshake_refusal(bytes);
        }
        if self.input.len() >= TRANSFER_LEN {
            self.note_large_reply();
        }
        self.trim();
        outcome
    }

    /// Gives back the room that an unusually deep queue took.
    fn trim(&mut self) {
        if self.fifo.is_empty() && self.fifo.capacity() > FIFO_KEPT_MAX {
            self.fifo = VecDeque::new();
        }
    }

    /// The exchange that a reply is for.
    #[inline]
    fn take_answered(&mut self) -> Result<Exchange, BackendFault> {
        let mut exchange = self.fifo.pop_front().ok_or(BackendFault::Protocol)?;
        exchange.is_slow = self.trace.on_answered(exchange.len);
        self.abandoned = self.abandoned.saturating_sub(1);
        self.answered_count += 1;
        Ok(exchange)
    }

    /// Notes that the server answers, if at too great a length: it is worth
    /// connecting to again at once.
    #[cold]
    fn note_too_long(&mut self) {
        if self.state == LinkState::Ready {
            self.answered = true;
            self.failures = 0;
        }
    }

    /// Hands over the refusal of what came before, in place of a reply.
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

    /// Tells the answer to a request from what a server without room says on a
    /// new connection before it closes that, having read nothing.
    fn check_room(&mut self, reply: &[u8]) -> Result<(), BackendFault> {
        if !reply.starts_with(NO_ROOM) {
            return Ok(());
        }
        self.note_handshake_refusal(reply);
        // It was not HELLO that it refused.
        self.greeting = None;
        Err(BackendFault::Full)
    }

    fn note_handshake_refusal(&mut self, reply: &[u8]) {
        let line = &reply[..reply.len().min(REFUSAL_LEN_MAX)];
        self.handshake_refusal = line.trim_ascii_end().to_vec();
    }

    /// Hands over a reply of a server that does not speak RESP3.
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
        (left, deadline): (u8, Time),
    ) -> Result<(), BackendFault> {
        self.check_room(reply)?;
        // An error may come before anything was asked: from a server that lets nobody in. What
        // agrees to what was not asked whole would leave a reply too many.
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

    /// What the backend said when it refused the handshake of this connection, or that is not of
    /// its protocol and came before any reply; empty when it said neither.
    pub fn handshake_refusal(&self) -> &[u8] {
        &self.handshake_refusal
    }
}

#[cfg(test)]
mod invariants;

#[cfg(test)]
mod tests;
