//! ```text
//!            handle_input            reserve / complete          poll output
//!  client ──► input (unparsed) ──► order (slots + stash) ──► output ──► client
//! ```
//! A session at rest owns no buffer: input, order and output are in a [`Busy`], which is borrowed
//! from the worker's [`BusyPool`] when bytes arrive. It is returned when the last reply has been
//! sent and no input is left. So an idle client takes less than 700 bytes.

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

/// Number of bytes of output above which it is useless to wait for more.
const OUTPUT_HELD_MAX: usize = 16 << 10;

/// A large reply that is sent to a client while it arrives.
#[derive(Debug)]
pub struct StreamedReply {
    /// The connection on which it arrives.
    pub link: ConnectionKey,
    /// Its index in the order of replies.
    pub sequence: u32,
    /// The time since which it is known that the rest will not arrive. The connection can then no
    /// longer be used.
    pub cut_at: Option<Time>,
}

/// A large request that is forwarded to its server, or written into a store, while it arrives.
#[derive(Debug, Default)]
pub struct Streaming {
    /// True if it is written into a store. The worker has what has arrived of it.
    pub lands: bool,
    /// The private link that sends it, or `None` if nothing takes it any more.
    pub link: Option<ConnectionKey>,
    /// Number of missing bytes of its value.
    pub left: usize,
    /// The arrived bytes of the arguments after the value, with a head of their own. Empty if there
    /// are none.
    pub tail: Vec<u8>,
    /// Number of its bytes from which parsing can succeed.
    pub tail_at_least: usize,
}

/// The event that a client waits for before its next request starts. The owner of the list that
/// contains the client wakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// Room on a connection to a server, or until the connection is established. The client is in
    /// the connection's list.
    Connection,
    /// Room among the requests that are led to other pools.
    Routes,
    /// Until a server is known for its keys.
    Owner,
    /// The end of a pause of its pool.
    Pause,
    /// The end of a hold of its pool: another process takes over. It is short, so that nothing more
    /// is read meanwhile.
    Hold,
    /// The verdict on its password.
    Login,
}

/// One client's connection.
#[derive(Debug)]
pub struct Session {
    /// Buffers, or `None` at rest.
    pub busy: Option<Box<Busy>>,
    /// Index of the pool that this client uses.
    pub pool: u16,
    /// Index of the listener through which it came.
    pub listener: u16,
    /// True if no more is read: the client ended its side, violated the protocol, or quit. The
    /// session ends when the last reply has been sent.
    pub closing: bool,
    /// True if the client sends no more. Its requests so far are still answered.
    pub ended: bool,
    /// True if the client violated the protocol, for the metrics.
    pub broken: bool,
    /// True if the socket took less than was offered, so that it must become writable first.
    pub send_blocked: bool,
    /// While `send_blocked`: the time since which the client has taken nothing.
    pub blocked_since: Time,
    /// True if the session must be ended, because its client takes none of its replies.
    pub is_cut: bool,
    /// True if the socket may have unread bytes: reading stopped before it was drained, and
    /// edge-triggered readiness is not reported again.
    pub unread: bool,
    /// True if it is in the worker's list of sessions whose socket is read without an event.
    pub is_reread: bool,
    /// True if unparsed input waits for room (in the pipeline, the output or a link).
    pub paused: bool,
    /// The event that its next request waits for.
    pub waits_for: Option<WaitFor>,
    /// Time since which its next request finds no room on a link.
    pub full_since: Option<Time>,
    /// Time since which the socket may hold requests behind one that finds no room on a link.
    pub unread_since: Option<Time>,
    /// True if replies to slow requests are being sent to it, and the time at which it has them is
    /// noted.
    pub has_unwritten: bool,
    /// True if it is in the worker's list of sessions with output or at their end.
    pub is_dirty: bool,
    /// Number of the ticket for which its output waits, until clients of other workers were told of
    /// its changes. 0: none.
    pub awaited: u64,
    /// See [`Session::fence`].
    is_fenced: bool,
    /// True if the worker has set that fence: the requests that it holds must not overtake earlier
    /// ones.
    keeps_order: bool,
    /// True if a read of many keys is led over other pools, and may be sent again to a server that
    /// has answered it. A write then waits until every reply has arrived.
    pub reads_many: bool,
    /// Number of requests in flight whose reply the client does not want. They have no index in the
    /// order. A fence waits for them like for others.
    pub unheard: u32,
    /// True if the client's side of the connection is known to be closed.
    pub hung_up: bool,
    /// A transaction, a watch or a blocking command, while there is one.
    pub stateful: Option<Box<Stateful>>,
    /// True if its MULTI was refused. Nothing is then executed before it ends the transaction that
    /// it meant to begin.
    pub is_multi_refused: bool,
    /// True if it is shown the requests of its pool.
    pub is_monitor: bool,
    /// True if `CLIENT LIST` shows state that it has begun.
    pub is_noted: bool,
    /// Its tracking of keys, if it asked for that.
    pub tracking: Option<Box<Tracking>>,
    /// The usual size of its replies.
    pub reply_size: ReplySize,
    /// A reply of which a part has been sent, and the rest has not arrived.
    pub streamed_reply: Option<Box<StreamedReply>>,
    /// A request of which a part has arrived, and was forwarded.
    pub streaming: Option<Box<Streaming>>,
    /// True if it is in the worker's list of sessions to parse again.
    pub is_resuming: bool,
    /// Set if it has no client: it makes one request to another pool.
    pub sub_request: Option<SubRequest>,
    /// Number of sub-requests for this client, or that contain copies of its requests.
    pub sub_requests: u32,
    /// Number of the connection to a server that its requests use, if there are several.
    pub lane: u32,
    /// True if one of its writes has timed out. Its server may still execute it.
    pub has_late_write: bool,
    /// Set if it is a client of memcached.
    pub memcached: Option<MemcachedClient>,
    /// Its subscriptions. `None` for nearly all clients.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// The identity of the client, and the settings of its connection.
    pub identity: Identity,
}

/// An idle client takes its session and about 250 bytes more. A field that few sessions need
/// belongs into a box, like [`Session::stateful`].
const _: () = assert!(size_of::<Session>() <= 280, "a session is larger than 280 bytes");

impl Session {
    /// Creates the session of a new connection, at rest.
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

    /// Returns whether undelivered replies are above the hard limit, or the session must be ended
    /// because its client takes nothing.
    pub fn is_overgrown(&self, limits: &Limits) -> bool {
        let hard = limits.session_output_len_hard;
        self.is_cut || self.busy.as_ref().is_some_and(|busy| busy.undelivered() as u64 > hard)
    }

    /// Returns until when output should wait for missing replies, or `None` to send at once. In a
    /// deep pipeline over several servers, the replies of every server would otherwise be sent in a
    /// segment of their own.
    #[inline]
    pub fn held_until(&mut self, now: Time) -> Option<Time> {
        let busy = self.busy.as_mut()?;
        let may_wait = !busy.order.is_empty() && busy.output.len() < OUTPUT_HELD_MAX;
        if !may_wait || self.send_blocked || self.closing {
            return None;
        }
        busy.hold.until(now)
    }

    /// Returns whether requests of this session may need other handling than most: it has
    /// [`Session::stateful`] or [`Session::tracking`].
    #[inline]
    pub fn is_special(&self) -> bool {
        self.stateful.is_some() | self.tracking.is_some()
    }

    /// Returns whether every request is over, including those without a reply.
    #[inline]
    pub fn is_quiet(&self, busy: &Busy) -> bool {
        busy.order.is_empty() && self.unheard == 0
    }

    /// Returns whether a blocking command waits, on private links or on the embedded store.
    pub fn is_blocked(&self) -> bool {
        self.stateful.as_deref().is_some_and(Stateful::is_blocked)
    }

    /// Returns whether the client waits for others: in a blocking command, or for the end of a
    /// pause.
    pub fn awaits_others(&self) -> bool {
        self.is_blocked() || self.waits_for == Some(WaitFor::Pause)
    }

    /// Updates what `CLIENT LIST` shows of it.
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

    /// If this is a sub-request, notes that its reply reports a failure.
    #[cold]
    pub fn note_fault(&mut self, fault: Fault) {
        if let Some(sub_request) = &mut self.sub_request {
            sub_request.fault = Some(fault);
        }
    }

    /// Takes the state that the client has begun, which is over for the session. A session that is
    /// lent to a pool stays lent.
    pub fn take_stateful(&mut self) -> Option<Box<Stateful>> {
        let taken = self.stateful.take()?;
        if taken.home.is_some() {
            self.stateful = Some(Box::new(Stateful { home: taken.home, ..Stateful::default() }));
        }
        Some(taken)
    }

    /// Returns it to the pool of its listener, if it was lent to another.
    pub fn go_home(&mut self) {
        if let Some(home) = self.stateful.as_mut().and_then(|stateful| stateful.home.take()) {
            self.pool = home;
            self.tidy();
        }
    }

    /// Removes state of which nothing is left.
    pub fn tidy(&mut self) {
        if self.stateful.as_ref().is_some_and(|stateful| stateful.is_over()) {
            self.stateful = None;
        }
    }

    /// Returns whether nothing is in flight, unparsed or unsent.
    pub fn is_at_rest(&self) -> bool {
        self.busy.as_ref().is_none_or(|busy| busy.is_empty())
    }

    /// Returns whether every reply has been sent. Input may be left over, which a session at its
    /// end drops.
    pub fn has_delivered(&self) -> bool {
        self.busy.as_ref().is_none_or(|busy| busy.order.is_empty() && busy.output.is_empty())
    }

    /// Starts no further request before every earlier reply has arrived: the one just started takes
    /// another path to its server than the earlier ones.
    #[inline]
    pub fn fence(&mut self) {
        self.is_fenced = true;
    }

    /// Like [`Session::fence`], but set by the worker: the next requests go elsewhere, and must not
    /// overtake earlier ones.
    pub fn keep_order(&mut self) {
        (self.is_fenced, self.keeps_order) = (true, true);
    }

    /// Returns whether the worker has set the fence, and not the client's own state.
    pub fn keeps_order(&self) -> bool {
        self.keeps_order
    }

    /// Allows the next request to start.
    #[inline]
    pub fn lift_fence(&mut self) {
        (self.is_fenced, self.keeps_order) = (false, false);
    }

    /// Returns whether a fence holds the next request back. A fence that does not is lifted.
    #[inline]
    pub fn is_held_by_fence(&mut self, busy: &Busy) -> bool {
        if !self.is_fenced {
            return false;
        }
        let is_held = !self.is_quiet(busy);
        if !is_held {
            self.lift_fence();
        }
        is_held
    }

    /// Returns whether a fence holds the next request back.
    #[inline]
    pub fn is_fenced(&self, busy: &Busy) -> bool {
        self.is_fenced && !self.is_quiet(busy)
    }

    /// Returns whether a paused session has room of its own again.
    pub fn is_waiting_for_itself(&self, limits: &Limits) -> bool {
        let may_go_on =
            |busy: &Busy| !self.is_fenced(busy) && busy.has_room(limits, self.reply_size);
        self.busy.as_ref().is_some_and(|busy| may_go_on(busy))
    }
}

#[cfg(test)]
mod invariants;
