//! When a link has to act without received bytes, and what it then gives up.
//!
//! The timeout of a request counts from when its client asked, whatever the link does before it.
//! There are three exceptions, which count from the last movement:
//!
//! - the large reply that is coming;
//! - the next requests of the client that gets it;
//! - a large request that is being sent.
//!
//! While there is one of these, or a request that moved here from another link, the link is
//! *uneven*: it checks all exchanges, and not only the oldest one.

use super::{Exchange, Link, LinkOptions, LinkState, Owner, Redirected, TRANSFER_LEN};
use keyway_base::{BackendFault, Key, Time};
use std::time::Duration;

/// The age of the oldest outstanding request at which the connection counts as dead: this many
/// timeouts, and never less than [`STUCK_MIN`]. If it were shorter, one slow script would affect
/// all clients.
const STUCK_TIMEOUTS: u32 = 10;
/// See [`STUCK_TIMEOUTS`].
const STUCK_MIN: Duration = Duration::from_secs(10);
/// The age at which the connection counts as dead if requests have no timeout.
const STUCK_WITHOUT_TIMEOUT: Duration = Duration::from_secs(300);

impl Link {
    /// Returns the earliest time at which [`Link::handle_timeout`] has to act.
    pub fn deadline(&self, options: &LinkOptions) -> Option<Time> {
        // The worker's own requests may wait until the connection is established.
        let is_timed = |exchange: &&Exchange| {
            self.state == LinkState::Ready || !matches!(exchange.owner, Owner::Internal(_))
        };
        if self.is_blocking && self.state == LinkState::Ready {
            // A request that will be sent again is timed where it waits for that.
            return self.blocked_until(options).filter(|_| !self.fifo.is_empty());
        }
        let next = || match self.is_uneven {
            false => self.fifo.iter().skip(self.abandoned).find(is_timed).map(|it| it.started),
            true => self.first_due(),
        };
        let request = self.patience(options).and_then(|patience| Some(next()? + patience));
        let connection = match self.state {
            LinkState::Connecting { deadline } | LinkState::Handshaking { deadline, .. } => {
                Some(deadline)
            }
            LinkState::Ready if !self.fifo.is_empty() => Some(self.stuck_at(options)),
            _ => None,
        };
        match (request, connection) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Sets how long requests may wait for the connection. Their wait for replies stays the same:
    /// their time counts from [`Link::begin_held`] on.
    pub fn hold_unsent(&mut self, held_for: Option<Duration>) {
        self.held_for = held_for;
    }

    /// Notes that the connection is established: the time of held requests counts from now on. A
    /// request that prepares the connection may have been left here long ago, by one that went
    /// elsewhere. It gets the age of the request after it.
    pub fn begin_held(&mut self, now: Time) {
        let mut next = now;
        for exchange in self.fifo.iter_mut().rev() {
            if matches!(exchange.owner, Owner::Internal(_)) {
                exchange.started = next;
            } else if self.held_for.is_some() {
                exchange.begin_anew(now);
                self.held_until = Some(now);
            }
            next = exchange.started;
        }
    }

    /// Returns whether a request was enqueued after `at`. One that was held for the connection may
    /// have been enqueued at any time before that was established.
    pub fn was_enqueued_after(&self, exchange: &Exchange, at: Time) -> bool {
        exchange.started > at && self.held_until != Some(exchange.started)
    }

    /// Does the same for the request that was enqueued last, on an established connection.
    pub fn begin_last_anew(&mut self, now: Time) {
        if let Some(last) = self.fifo.back_mut() {
            last.begin_anew(now);
        }
    }

    /// Returns the longest wait of a request now: for its reply, or for the connection.
    fn patience(&self, options: &LinkOptions) -> Option<Duration> {
        let held_for = self.held_for.filter(|_| self.state != LinkState::Ready);
        held_for.or(options.timeout)
    }

    /// Returns the earliest time from which the timeout of any exchange counts.
    #[cold]
    fn first_due(&self) -> Option<Time> {
        let is_timed = |exchange: &Exchange| match self.state {
            LinkState::Ready => exchange.is_timed(),
            _ => !matches!(exchange.owner, Owner::Internal(_) | Owner::None),
        };
        let timed = self.fifo.iter().enumerate().filter(|(_, exchange)| is_timed(exchange));
        timed.map(|(index, exchange)| self.counts_from(index, exchange)).min()
    }

    /// Returns the time from which the timeout of the exchange at an index counts.
    pub(super) fn counts_from(&self, index: usize, exchange: &Exchange) -> Time {
        let asked = exchange.asked();
        if self.state != LinkState::Ready {
            return asked;
        }
        let is_coming = index == 0 && self.is_reply_large();
        if is_coming || self.is_served(exchange) {
            return asked.max(self.last_moved());
        }
        if exchange.len as usize >= TRANSFER_LEN { asked.max(self.sent) } else { asked }
    }

    /// Returns whether the exchange's client is the one that got the large reply before it.
    fn is_served(&self, exchange: &Exchange) -> bool {
        let session = match exchange.owner {
            Owner::Session { session, .. } => Some(session),
            _ => None,
        };
        session.is_some() && session == self.served
    }

    fn is_reply_large(&self) -> bool {
        self.is_streaming_reply() || self.input.len() >= TRANSFER_LEN
    }

    /// Notes that the reply to the oldest request is a large one.
    pub(super) fn note_large_reply(&mut self) {
        self.is_uneven = true;
        let served = match self.fifo.front().map(|exchange| exchange.owner) {
            Some(Owner::Session { session, .. }) => Some(session),
            _ => None,
        };
        // The timeout of the session that was served before counts from its request again, and may
        // be up.
        self.is_sooner |= self.served != served;
        self.served = served;
    }

    /// Returns whether a deadline may have become earlier since the last call.
    pub fn take_sooner(&mut self) -> bool {
        std::mem::take(&mut self.is_sooner)
    }

    /// Returns until when a blocking command may run: as long as it asked, and as long as the
    /// server accepts what it is sent.
    fn blocked_until(&self, options: &LinkOptions) -> Option<Time> {
        let grace = options.timeout.unwrap_or(STUCK_WITHOUT_TIMEOUT);
        let stalled = (!self.output.is_empty()).then(|| self.progress + grace);
        match (self.blocks_until, stalled) {
            // It counts from when the last part was taken.
            (Some(until), _) => Some(until.max(self.progress + grace)),
            (None, stalled) => stalled,
        }
    }

    /// Returns since when the server owes the oldest reply, if it owes any.
    pub fn owes_since(&self) -> Option<Time> {
        self.fifo.front().map(|oldest| self.since(oldest))
    }

    /// Returns since when the server has owed a reply without accepting or sending any bytes, if it
    /// owes any.
    pub fn silent_since(&self) -> Option<Time> {
        self.owes_since().map(|since| since.max(self.progress))
    }

    /// Returns whether a large transfer moved recently, or a client did not take it. A request
    /// whose time ended behind such a transfer did not wait for the server.
    pub fn is_at_work(&self, options: &LinkOptions, now: Time) -> bool {
        self.at_work_until(options).is_some_and(|until| now < until)
    }

    /// Returns until when a large transfer that no longer moves still counts as work.
    pub fn at_work_until(&self, options: &LinkOptions) -> Option<Time> {
        options.timeout.map(|timeout| self.last_moved() + timeout)
    }

    /// Returns whether someone other than the worker waits for a reply, or for the end of its
    /// request.
    pub fn is_waited_for(&self) -> bool {
        let is_nobodys = |owner| match owner {
            Owner::None | Owner::Internal(_) => true,
            Owner::Unheard(session) => session == Key::NONE,
            _ => false,
        };
        !self.fifo.iter().all(|exchange| is_nobodys(exchange.owner))
    }

    /// Returns when bytes of a large request or reply last moved, if one is in progress. Nothing
    /// times out while it moves, however long it takes.
    fn transferring(&self) -> Option<Time> {
        let is_large = self.input.len() >= TRANSFER_LEN
            || self.output.len() >= TRANSFER_LEN
            || self.is_streaming_reply();
        is_large.then_some(self.progress)
    }

    /// Returns the time since which the server owes the reply to an exchange. A large transfer that
    /// moved since then counts as work.
    fn since(&self, exchange: &Exchange) -> Time {
        exchange.started.max(self.last_moved())
    }

    pub(super) fn last_moved(&self) -> Time {
        self.transferring().map_or(self.moved, |moved| moved.max(self.moved))
    }

    /// Notes that the socket took a part of what was offered.
    pub fn note_progress(&mut self, now: Time) {
        self.progress = now;
        if self.output.len() >= TRANSFER_LEN {
            self.sent = now;
        }
    }

    /// Returns when the connection counts as dead. This depends on the age of the oldest request
    /// and not on silence: a backend that drops a request and answers the next would otherwise stay
    /// out of step for ever.
    fn stuck_at(&self, options: &LinkOptions) -> Time {
        self.fifo.front().map_or(self.progress, |oldest| self.since(oldest))
            + match options.timeout {
                Some(timeout) => (timeout * STUCK_TIMEOUTS).max(STUCK_MIN),
                None => STUCK_WITHOUT_TIMEOUT,
            }
    }

    /// Gives up the exchanges whose time is up and passes each to `expired`. Sent requests are
    /// abandoned. While the connection is not established, none was sent, and they are removed: a
    /// request that is reported as not sent is never executed.
    ///
    /// # Errors
    /// Returns an error if the whole connection is dead: connecting took too long, or the backend
    /// has been silent for many timeouts.
    pub fn handle_timeout(
        &mut self,
        options: &LinkOptions,
        now: Time,
        mut expired: impl FnMut(&Exchange),
    ) -> Result<(), BackendFault> {
        if self.is_blocking && self.state == LinkState::Ready {
            let is_over = self.blocked_until(options).is_some_and(|until| now >= until);
            if is_over && self.stays_when_late && self.output.is_empty() {
                self.give_up_whole(&mut expired);
                return Ok(());
            }
            return if is_over { Err(BackendFault::Timeout) } else { Ok(()) };
        }
        if let Some(timeout) = self.patience(options) {
            match self.state {
                LinkState::Ready if self.is_uneven => {
                    self.abandon_expired(timeout, now, &mut expired);
                }
                LinkState::Ready => {
                    while let Some(exchange) = self.fifo.get_mut(self.abandoned) {
                        if now < exchange.started + timeout {
                            break;
                        }
                        expired(exchange);
                        // The replies to some requests of the worker still matter: to the requests
                        // after them, or for as long as the connection exists.
                        if exchange.is_timed() {
                            exchange.owner = Owner::None;
                        }
                        self.abandoned += 1;
                    }
                }
                _ => self.take_back_expired(timeout, now, &mut expired),
            }
        }
        match self.state {
            LinkState::Connecting { deadline } | LinkState::Handshaking { deadline, .. }
                if now >= deadline =>
            {
                Err(BackendFault::Connect)
            }
            LinkState::Ready if !self.fifo.is_empty() && now >= self.stuck_at(options) => {
                Err(BackendFault::Timeout)
            }
            _ => Ok(()),
        }
    }

    /// Gives up a streamed request, and waits for replies that have no owner.
    #[cold]
    fn give_up_whole(&mut self, expired: &mut impl FnMut(&Exchange)) {
        for exchange in self.fifo.iter_mut().filter(|exchange| exchange.is_timed()) {
            expired(exchange);
            exchange.owner = Owner::None;
        }
        self.abandoned = self.fifo.len();
        (self.is_blocking, self.stays_when_late, self.blocks_until) = (false, false, None);
    }

    /// Gives up the exchanges whose time is up, anywhere in the FIFO.
    #[cold]
    fn abandon_expired(
        &mut self,
        timeout: Duration,
        now: Time,
        expired: &mut impl FnMut(&Exchange),
    ) {
        for index in 0..self.fifo.len() {
            let exchange = &self.fifo[index];
            if exchange.is_timed() && now >= self.counts_from(index, exchange) + timeout {
                let exchange = &mut self.fifo[index];
                expired(exchange);
                (exchange.owner, exchange.waited) = (Owner::None, Exchange::OVER);
                exchange.may_repeat = false;
            }
        }
        self.abandoned = self.fifo.iter().take_while(|exchange| !exchange.is_timed()).count();
        let is_uneven = |exchange: &Exchange| {
            exchange.waited > 0 || exchange.len as usize >= TRANSFER_LEN || self.is_served(exchange)
        };
        let is_even =
            !self.is_reply_large() && !self.fifo.iter().skip(self.abandoned).any(is_uneven);
        if is_even {
            (self.is_uneven, self.served) = (false, None);
        }
    }

    /// Counts the time of the requests that were enqueued `now` at the end, and that `is_its`
    /// accepts, from the earlier time `since`. Returns whether there are any.
    #[cold]
    pub fn backdate_last(
        &mut self,
        is_its: impl Fn(Owner) -> bool,
        since: Time,
        now: Time,
    ) -> bool {
        if self.held_for.is_some() && self.state != LinkState::Ready {
            // Its time counts from when it is sent.
            return false;
        }
        let waited = Exchange { started: since, ..Exchange::PUSH }.waited_until(now);
        let is_own = |owner: Owner| matches!(owner, Owner::Internal(_));
        let last = self.fifo.iter_mut().rev().take_while(|exchange| {
            exchange.started == now && (is_own(exchange.owner) || is_its(exchange.owner))
        });
        let its = last.filter(|exchange| !is_own(exchange.owner));
        let count = its.map(|exchange| exchange.waited = waited).count();
        self.is_uneven |= count > 0;
        count > 0
    }

    /// Gives up every exchange and passes each that has an owner to `given_up`. The connection must
    /// then be closed.
    pub fn abandon(&mut self, mut given_up: impl FnMut(&Exchange)) {
        for exchange in self.fifo.iter_mut().skip(self.abandoned) {
            given_up(exchange);
            exchange.owner = Owner::None;
        }
        self.abandoned = self.fifo.len();
    }

    /// Removes every request while the connection is not established, and passes each to `taken`.
    /// The worker's own stay.
    pub fn take_back(&mut self, mut taken: impl FnMut(&Exchange)) {
        if self.state != LinkState::Ready {
            self.take_back_those(|_| true, &mut |exchange, _| taken(exchange));
        }
    }

    /// Does the same for a link that follows redirections: unsent requests will go to another
    /// server.
    pub fn take_unsent(&mut self) -> Vec<Redirected> {
        let mut all = Vec::new();
        if self.state != LinkState::Ready {
            self.take_back_those(|_| true, &mut |exchange, request| {
                all.push(Redirected::unsent(exchange, request));
            });
        }
        all
    }

    /// Removes questions of the worker on which no later request relies, while the connection is
    /// not established.
    pub fn take_back_questions(&mut self, mut taken: impl FnMut(&Exchange)) {
        if self.state != LinkState::Ready {
            self.take_those(Exchange::is_question, &mut |exchange, _| taken(exchange));
        }
    }

    /// Removes the expired requests from the unsent output. The worker's own requests stay, because
    /// later ones may rely on them (`SELECT`).
    #[cold]
    fn take_back_expired(
        &mut self,
        timeout: Duration,
        now: Time,
        expired: &mut impl FnMut(&Exchange),
    ) {
        let is_expired = |exchange: &Exchange| now >= exchange.asked() + timeout;
        if self.is_uneven || self.fifo.front().is_some_and(is_expired) {
            self.take_back_those(is_expired, &mut |exchange, _| expired(exchange));
        }
    }

    fn take_back_those(
        &mut self,
        is_taken: impl Fn(&Exchange) -> bool,
        taken: &mut impl FnMut(&Exchange, &[u8]),
    ) {
        let is_one = |exchange: &Exchange| {
            is_taken(exchange) && !matches!(exchange.owner, Owner::Internal(_))
        };
        self.take_those(is_one, taken);
    }

    fn take_those(
        &mut self,
        is_one: impl Fn(&Exchange) -> bool,
        taken: &mut impl FnMut(&Exchange, &[u8]),
    ) {
        if !self.fifo.iter().any(&is_one) {
            return;
        }
        let unsent = self.output.unsent();
        let (mut position, mut kept_bytes) = (0, Vec::new());
        self.fifo.retain(|exchange| {
            let end = position + exchange.len as usize;
            let request = &unsent[position..end];
            position = end;
            match is_one(exchange) {
                true => taken(exchange, request),
                false => kept_bytes.extend_from_slice(request),
            }
            !is_one(exchange)
        });
        kept_bytes.extend_from_slice(&unsent[position..]);
        self.output.clear();
        *self.output.buf() = kept_bytes;
    }
}
