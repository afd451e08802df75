//! ```text
//!            handle_input            reserve / complete          poll output
//!  client ──► input (unparsed) ──► order (slots + stash) ──► output ──► client
//! ```
//! A session at rest owns no buffer: input, order and output live in a
//! [`Busy`], borrowed from the worker's [`BusyPool`] when bytes arrive and
//! given back when the last reply has been sent and nothing is left unparsed.
//! That is what keeps an idle client under 700 bytes.

mod busy;
mod hold;
mod identity;
mod live;
mod reply_size;
mod stateful;
mod transaction;
mod watched;

pub use busy::{Busy, BusyPool};
pub use hold::Hold;
pub use identity::{Identity, PinDue, ReplyMode};
pub use live::{ClientLive, ClientState};
pub use reply_size::ReplySize;
pub use stateful::{Stateful, Watch};
#[cfg(test)]
pub(crate) use transaction::QUEUED_MAX;
pub use transaction::{QueueBudget, QueueFault, Share, Transaction};
pub use watched::WatchedKeys;

use crate::ConnectionKey;
use crate::memcached::MemcachedClient;
use crate::pubsub::{SubscriptionKind, Subscriptions};
use crate::route_policy::SubRequest;
use crate::tracking::Tracking;
use keyway_base::{Fault, Limits, Time};

/// Output above which there is no gain in waiting for more, in bytes.
const OUTPUT_HELD_MAX: usize = 16 << 10;

/// A large reply that goes to a client as it comes.
#[derive(Debug)]
pub struct StreamedReply {
    /// The connection that it comes by.
    pub link: ConnectionKey,
    /// Its place.
    pub sequence: u32,
    /// Since when it is known that the rest will not come: the connection is of no more use.
    pub cut_at: Option<Time>,
}

/// A large request that goes to its server, or into a store, as it comes.
#[derive(Debug, Default)]
pub struct Streaming {
    /// It goes into a store: the worker has what has come of it.
    pub lands: bool,
    /// The private link that takes it; `None` when nobody takes it any more.
    pub link: Option<ConnectionKey>,
    /// Bytes still to come of its value.
    pub left: usize,
    /// What has come of the arguments behind that, with a head of its own; empty when
    /// there are none.
    pub tail: Vec<u8>,
    /// Before that has so many bytes there is no use in looking at it.
    pub tail_at_least: usize,
}

/// What a client waits for before its next request starts. Whoever holds the client in a list wakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// Room on a connection to a server, or that the connection stands. It is in the connection's list.
    Connection,
    /// Room among the requests on their way over other pools.
    Routes,
    /// That a server is known for its keys.
    Owner,
    /// The end of a pause of its pool.
    Pause,
    /// The verdict on its password.
    Login,
}

/// One client's connection.
#[derive(Debug)]
pub struct Session {
    /// Buffers; none while at rest.
    pub busy: Option<Box<Busy>>,
    /// Position of the pool this client talks to.
    pub pool: u16,
    /// Position of the listener it came through.
    pub listener: u16,
    /// No more is read: the client half-closed, broke the protocol, or quit.
    /// The session ends when the last reply has left.
    pub closing: bool,
    /// The client sends no more; what it has sent is still answered.
    pub ended: bool,
    /// The client broke the protocol; told apart for the metrics.
    pub broken: bool,
    /// The socket took less than was offered; wait until it is writable.
    pub send_blocked: bool,
    /// While `send_blocked`: the time since which the client has taken nothing.
    pub blocked_since: Time,
    /// The session is to be ended, because its client takes none of its replies.
    pub is_cut: bool,
    /// The socket may hold unread bytes: reading stopped before it was
    /// drained, and edge-triggered readiness is not told again.
    pub unread: bool,
    /// In the worker's list of sessions whose socket is read without being told to.
    pub is_reread: bool,
    /// Unparsed input waits for room (own pipeline, own output or a link).
    pub paused: bool,
    /// What its next request waits for.
    pub waits_for: Option<WaitFor>,
    /// Time since which its next request finds no room on a link.
    pub full_since: Option<Time>,
    /// Time since which the socket may hold requests behind one that finds no room on a link.
    pub unread_since: Option<Time>,
    /// Replies to slow requests are on their way to it, and it is noted when it has them.
    pub has_unwritten: bool,
    /// In the worker's list of sessions with output or at their end.
    pub is_dirty: bool,
    /// Number of the ticket that its output waits for, until clients of other workers were told of
    /// its changes. 0: none.
    pub awaited: u64,
    /// See [`Session::fence`].
    is_fenced: bool,
    /// The worker has set that fence: what it holds is not to overtake what was sent before.
    keeps_order: bool,
    /// A read of many keys is on its way over other pools, and may be asked again of a
    /// server that has answered it: a write waits until every reply is here.
    pub reads_many: bool,
    /// Requests on their way whose reply the client does not want: they have no
    /// place in the order, and are waited for at a fence like the others.
    pub unheard: u32,
    /// The client's side of the connection is known to be closed.
    pub hung_up: bool,
    /// A transaction, a watch or a blocking command, while there is one.
    pub stateful: Option<Box<Stateful>>,
    /// Its MULTI was refused, and nothing is executed before it ends what it meant to begin.
    pub is_multi_refused: bool,
    /// It is shown the requests of its pool.
    pub is_monitor: bool,
    /// `CLIENT LIST` tells of something it has begun.
    pub is_noted: bool,
    /// What it is told of keys that change, if it asked for that.
    pub tracking: Option<Box<Tracking>>,
    /// How large its replies are.
    pub reply_size: ReplySize,
    /// A reply of which a part has left, and the rest is still to come.
    pub streamed_reply: Option<Box<StreamedReply>>,
    /// A request of which a part has come, and was sent on.
    pub streaming: Option<Box<Streaming>>,
    /// In the worker's list of sessions to parse again.
    pub is_resuming: bool,
    /// It has no client: it brings one request to another pool.
    pub sub_request: Option<SubRequest>,
    /// Sub-requests that ask on behalf of this client, or bring copies of what it sent.
    pub sub_requests: u32,
    /// Which of several connections to a server its requests take.
    pub lane: u32,
    /// A write of it has timed out. Its server may still execute it.
    pub has_late_write: bool,
    /// It is a client of memcached.
    pub memcached: Option<MemcachedClient>,
    /// What it has subscribed to; none for nearly all.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// Who the client is, and what it has set on its connection.
    pub identity: Identity,
}

/// An idle client costs its session and some 250 bytes more. A field that few sessions need belongs
/// into a box, as [`Session::stateful`] is.
const _: () = assert!(size_of::<Session>() <= 280, "a session is larger than 280 bytes");

impl Session {
    /// A new connection, at rest.
    pub fn new(pool: u16, listener: u16, identity: Identity) -> Self {
        Self {
            busy: None,
            pool,
            listener,
            closing: false,
            ended: false,
            broken: false,
            send_blocked: false,
            blocked_since: Time(0),
            is_cut: false,
            unread: false,
            is_reread: false,
            paused: false,
            waits_for: None,
            full_since: None,
            unread_since: None,
            has_unwritten: false,
            is_dirty: false,
            awaited: 0,
            is_fenced: false,
            keeps_order: false,
            reads_many: false,
            unheard: 0,
            hung_up: false,
            stateful: None,
            is_multi_refused: false,
            is_monitor: false,
            is_noted: false,
            tracking: None,
            reply_size: ReplySize::default(),
            streamed_reply: None,
            streaming: None,
            is_resuming: false,
            sub_request: None,
            sub_requests: 0,
            lane: 0,
            has_late_write: false,
            memcached: None,
            subscriptions: None,
            identity,
        }
    }

    /// Returns whether undelivered replies are above the hard bound, or the session is to be cut
    /// because it takes nothing.
    pub fn is_overgrown(&self, limits: &Limits) -> bool {
        let hard = limits.session_output_len_hard;
        self.is_cut || self.busy.as_ref().is_some_and(|busy| busy.undelivered() as u64 > hard)
    }

    /// Until when output should wait for the replies that are still to come:
    /// in a deep pipeline over several servers the replies of every server
    /// would otherwise go in a segment of their own. `None` to send at once.
    #[inline]
    pub fn held_until(&mut self, now: Time) -> Option<Time> {
        let busy = self.busy.as_mut()?;
        let may_wait = !busy.order.is_empty() && busy.output.len() < OUTPUT_HELD_MAX;
        if !may_wait || self.send_blocked || self.closing {
            return None;
        }
        busy.hold.until(now)
    }

    /// Whether requests of this session may need another way than those of
    /// most: it has [`Session::stateful`] or [`Session::tracking`].
    #[inline]
    pub fn is_special(&self) -> bool {
        self.stateful.is_some() | self.tracking.is_some()
    }

    /// Whether every request is over, one without a reply as well.
    #[inline]
    pub fn is_quiet(&self, busy: &Busy) -> bool {
        busy.order.is_empty() && self.unheard == 0
    }

    /// Whether a blocking command waits, on private links or on the embedded
    /// store.
    pub fn is_blocked(&self) -> bool {
        self.stateful.as_deref().is_some_and(Stateful::is_blocked)
    }

    /// Returns whether the client waits for others: in a blocking command, or for the end of a pause.
    pub fn awaits_others(&self) -> bool {
        self.is_blocked() || self.waits_for == Some(WaitFor::Pause)
    }

    /// Brings what `CLIENT LIST` tells of it up to date.
    #[inline]
    pub fn note_state(&mut self) {
        let has_begun = self.stateful.is_some() || self.subscriptions.is_some() || self.is_monitor;
        if has_begun || self.is_noted {
            self.is_noted = has_begun;
            self.identity.live.set(&self.state());
        }
    }

    #[cold]
    fn state(&self) -> ClientState {
        let stateful = self.stateful.as_ref();
        let transaction = stateful.and_then(|stateful| stateful.transaction.as_ref());
        let watch = stateful.and_then(|stateful| stateful.watch);
        let watched = stateful.and_then(|stateful| stateful.watched.as_deref());
        let subscriptions = self.subscriptions.as_ref();
        let count = |kind| subscriptions.map_or(0, |them| them.names(kind).len() as u32);
        use SubscriptionKind::{Channel, Pattern, Shard};
        ClientState {
            subscriptions: [Channel, Pattern, Shard].map(count),
            multi: transaction.map(|transaction| transaction.queued().into()),
            is_watching: watch.is_some() || watched.is_some(),
            is_dirty: watch.is_some_and(|watch| watch.link.is_none())
                || watched.is_some_and(|watched| watched.has_changed()),
            is_monitor: self.is_monitor,
        }
    }

    /// Tells whoever sent a request by this session, if it is a sub-request, that its reply is
    /// of a failure.
    #[cold]
    pub fn note_fault(&mut self, fault: Fault) {
        if let Some(sub_request) = &mut self.sub_request {
            sub_request.fault = Some(fault);
        }
    }

    /// What the client has begun, which is over for the session. Where it is lent to a
    /// pool it stays so.
    pub fn take_stateful(&mut self) -> Option<Box<Stateful>> {
        let taken = self.stateful.take()?;
        if taken.home.is_some() {
            self.stateful = Some(Box::new(Stateful { home: taken.home, ..Stateful::default() }));
        }
        Some(taken)
    }

    /// It is of the pool of its listener again, if it was lent to another.
    pub fn go_home(&mut self) {
        if let Some(home) = self.stateful.as_mut().and_then(|stateful| stateful.home.take()) {
            self.pool = home;
            self.tidy();
        }
    }

    /// Forgets state of which nothing is left.
    pub fn tidy(&mut self) {
        if self.stateful.as_ref().is_some_and(|stateful| stateful.is_over()) {
            self.stateful = None;
        }
    }

    /// Whether nothing is in flight, unparsed or unsent.
    pub fn is_at_rest(&self) -> bool {
        self.busy.as_ref().is_none_or(|busy| busy.is_empty())
    }

    /// Whether every reply has left; input may be left over, which a session
    /// at its end drops.
    pub fn has_delivered(&self) -> bool {
        self.busy.as_ref().is_none_or(|busy| busy.order.is_empty() && busy.output.is_empty())
    }

    /// Starts no further request before every reply to those before it is here: the one just
    /// started takes another way to its server than they took.
    #[inline]
    pub fn fence(&mut self) {
        self.is_fenced = true;
    }

    /// As [`Session::fence`], on the worker's account: the next requests go elsewhere, and are not
    /// to overtake those before them.
    pub fn keep_order(&mut self) {
        (self.is_fenced, self.keeps_order) = (true, true);
    }

    /// Returns whether the worker has set the fence, and not something that the client has begun.
    pub fn keeps_order(&self) -> bool {
        self.keeps_order
    }

    /// Lets the next request start.
    #[inline]
    pub fn lift_fence(&mut self) {
        (self.is_fenced, self.keeps_order) = (false, false);
    }

    /// Returns whether a fence holds the next request back.
    #[inline]
    pub fn is_fenced(&self, busy: &Busy) -> bool {
        self.is_fenced && !self.is_quiet(busy)
    }

    /// Whether a paused session has room of its own again.
    pub fn is_waiting_for_itself(&self, limits: &Limits) -> bool {
        let may_go_on =
            |busy: &Busy| !self.is_fenced(busy) && busy.has_room(limits, self.reply_size);
        self.busy.as_ref().is_some_and(|busy| may_go_on(busy))
    }
}

#[cfg(test)]
mod invariants;
