//! When a link has something to do without a byte having come, and what it
//! gives up then.

use super::{Exchange, Internal, Link, LinkOptions, LinkState, Owner, Redirected, TRANSFER_LEN};
use keyway_base::{BackendFault, Key, Time};
use std::time::Duration;

/// How old the oldest outstanding request may grow before the connection counts
/// as dead: this many timeouts, and never less than
/// [`STUCK_MIN`]. Shorter would punish everybody for one slow script.
const STUCK_TIMEOUTS: u32 = 10;
/// See [`STUCK_TIMEOUTS`].
const STUCK_MIN: Duration = Duration::from_secs(10);
/// Age that counts as death where requests have no timeout.
const STUCK_WITHOUT_TIMEOUT: Duration = Duration::from_secs(300);

impl Link {
    /// When [`Link::handle_timeout`] has something to do at the earliest.
    pub fn deadline(&self, options: &LinkOptions) -> Option<Time> {
        // The worker's own requests may wait until the connection stands.
        let is_timed = |exchange: &&Exchange| {
            self.state == LinkState::Ready || !matches!(exchange.owner, Owner::Internal(_))
        };
        if self.is_blocking && self.state == LinkState::Ready {
            // One that is to be sent again is timed where it waits for that.
            return self.blocked_until(options).filter(|_| !self.fifo.is_empty());
        }
        let next = || self.fifo.iter().skip(self.abandoned).find(is_timed);
        let request = options.timeout.and_then(|timeout| Some(self.since(next()?) + timeout));
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

    /// Until when a command that blocks may go on: as long as was said, and as long as
    /// the server takes what it is sent.
    fn blocked_until(&self, options: &LinkOptions) -> Option<Time> {
        let grace = options.timeout.unwrap_or(STUCK_WITHOUT_TIMEOUT);
        let stalled = (!self.output.is_empty()).then(|| self.progress + grace);
        match (self.blocks_until, stalled) {
            // From when the last of it was taken.
            (Some(until), _) => Some(until.max(self.progress + grace)),
            (None, stalled) => stalled,
        }
    }

    /// Since when the server owes the oldest reply, if it owes any.
    pub fn owes_since(&self) -> Option<Time> {
        self.fifo.front().map(|oldest| self.since(oldest))
    }

    /// Whether somebody but the worker waits for a reply, or for its request to
    /// be over.
    pub fn is_waited_for(&self) -> bool {
        let is_nobodys = |owner| match owner {
            Owner::None | Owner::Internal(_) => true,
            Owner::Unheard(session) => session == Key::NONE,
            _ => false,
        };
        !self.fifo.iter().all(|exchange| is_nobodys(exchange.owner))
    }

    /// When bytes of a large request or reply last moved, if one is under way:
    /// nothing times out while it does, however long it takes.
    fn transferring(&self) -> Option<Time> {
        let is_large = self.input.len() >= TRANSFER_LEN
            || self.output.len() >= TRANSFER_LEN
            || self.is_passing();
        is_large.then_some(self.progress)
    }

    /// When the time of an exchange began: those that waited behind a large
    /// transfer count from its last movement when it is over too, so that no
    /// deadline becomes an earlier one than was told.
    fn since(&self, exchange: &Exchange) -> Time {
        exchange.started.max(self.last_moved())
    }

    pub(super) fn last_moved(&self) -> Time {
        self.transferring().map_or(self.moved, |moved| moved.max(self.moved))
    }

    /// Notes that the socket took a part of what was offered.
    pub fn note_progress(&mut self, now: Time) {
        self.progress = now;
    }

    /// By the age of the oldest request, not by silence: a backend that drops
    /// a request and answers the next would stay out of step for ever.
    fn stuck_at(&self, options: &LinkOptions) -> Time {
        self.fifo.front().map_or(self.progress, |oldest| self.since(oldest))
            + match options.timeout {
                Some(timeout) => (timeout * STUCK_TIMEOUTS).max(STUCK_MIN),
                None => STUCK_WITHOUT_TIMEOUT,
            }
    }

    /// Gives up the exchanges whose time is up and hands each to `expired`.
    /// Requests that were sent are abandoned; while the connection does not
    /// stand yet none was, and they are taken back: what a client is told was
    /// not sent is never executed.
    ///
    /// # Errors
    /// When the whole connection is dead: connecting took too long, or the
    /// backend has been silent for many timeouts.
    pub fn handle_timeout(
        &mut self,
        options: &LinkOptions,
        now: Time,
        mut expired: impl FnMut(&Exchange),
    ) -> Result<(), BackendFault> {
        if self.is_blocking && self.state == LinkState::Ready {
            let is_over = self.blocked_until(options).is_some_and(|until| now >= until);
            return if is_over { Err(BackendFault::Timeout) } else { Ok(()) };
        }
        let last_moved = self.last_moved();
        if let Some(timeout) = options.timeout {
            if self.state != LinkState::Ready {
                self.take_back_expired(timeout, now, &mut expired);
            } else {
                while let Some(exchange) = self.fifo.get_mut(self.abandoned) {
                    if now < exchange.started.max(last_moved) + timeout {
                        break;
                    }
                    expired(exchange);
                    // What these say still matters, to the requests behind them or
                    // for as long as the connection stands.
                    let is_heard = matches!(
                        exchange.owner,
                        Owner::Internal(
                            Internal::Select | Internal::Load | Internal::ClientId | Internal::Mode
                        )
                    );
                    if !is_heard {
                        exchange.owner = Owner::None;
                    }
                    self.abandoned += 1;
                }
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

    /// Gives up every exchange and hands each that somebody waits for to
    /// `given_up`: the connection is to be ended.
    pub fn abandon(&mut self, mut given_up: impl FnMut(&Exchange)) {
        for exchange in self.fifo.iter_mut().skip(self.abandoned) {
            given_up(exchange);
            exchange.owner = Owner::None;
        }
        self.abandoned = self.fifo.len();
    }

    /// Removes every request while the connection does not stand yet, and hands
    /// each to `taken`. The worker's own stay.
    pub fn take_back(&mut self, mut taken: impl FnMut(&Exchange)) {
        if self.state != LinkState::Ready {
            self.take_back_first(self.fifo.len(), &mut |exchange, _| taken(exchange));
        }
    }

    /// The same for a link that follows redirections: what it has not sent is to go to
    /// another server.
    pub fn take_unsent(&mut self) -> Vec<Redirected> {
        let mut all = Vec::new();
        if self.state != LinkState::Ready {
            self.take_back_first(self.fifo.len(), &mut |exchange, request| {
                all.push(Redirected::unsent(exchange, request));
            });
        }
        all
    }

    /// Removes the expired requests from the front of the unsent output. The
    /// worker's own stay, as those behind them may rely on them (`SELECT`).
    #[cold]
    fn take_back_expired(
        &mut self,
        timeout: Duration,
        now: Time,
        expired: &mut impl FnMut(&Exchange),
    ) {
        let is_expired = |exchange: &&Exchange| now >= exchange.started + timeout;
        let count = self.fifo.iter().take_while(is_expired).count();
        self.take_back_first(count, &mut |exchange, _| expired(exchange));
    }

    fn take_back_first(&mut self, count: usize, taken: &mut impl FnMut(&Exchange, &[u8])) {
        if count == 0 {
            return;
        }
        let unsent = self.output.unsent();
        let (mut position, mut kept, mut kept_bytes) = (0, Vec::new(), Vec::new());
        for exchange in self.fifo.drain(..count) {
            let end = position + exchange.len as usize;
            if matches!(exchange.owner, Owner::Internal(_)) {
                kept.push(exchange);
                kept_bytes.extend_from_slice(&unsent[position..end]);
            } else {
                taken(&exchange, &unsent[position..end]);
            }
            position = end;
        }
        kept_bytes.extend_from_slice(&unsent[position..]);
        for exchange in kept.into_iter().rev() {
            self.fifo.push_front(exchange);
        }
        self.output.clear();
        *self.output.buf() = kept_bytes;
    }
}
