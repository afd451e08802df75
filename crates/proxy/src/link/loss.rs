//! The end of a connection: what happens to its requests, and when the next connection is tried.

use super::database::Database;
use super::{Exchange, Link, LinkOptions, LinkState, Owner};
use keyway_base::{Sent, Time};
use std::time::Duration;

/// An exchange that will get no reply from the backend.
#[derive(Clone, Copy, Debug)]
pub struct Lost<'r> {
    /// The exchange.
    pub exchange: Exchange,
    /// Says whether the backend may have seen its request.
    pub sent: Sent,
    /// Its request, if it may go to another server because it is a read.
    pub read: Option<&'r [u8]>,
}

impl Link {
    /// Ends the connection. Each exchange is passed to `lost`, with whether its request may have
    /// reached the backend. With `keep_unsent`, completely unsent requests stay and are sent on the
    /// next connection.
    pub fn on_lost(&mut self, keep_unsent: bool, mut lost: impl FnMut(Lost<'_>)) {
        // The unsent requests are at the end of the output, so they are counted backwards. The kept
        // requests must be contiguous. So they end at the first one that must not be sent again: an
        // abandoned one, or a question of the worker about the lost connection.
        let (mut unsent_len, mut unsent, mut kept_len, mut kept) = (self.output.len(), 0, 0, 0);
        let mut keeps = keep_unsent;
        for (index, exchange) in self.fifo.iter().enumerate().rev() {
            let len = exchange.len as usize;
            if len > unsent_len {
                break;
            }
            unsent_len -= len;
            unsent += 1;
            let is_internal = matches!(exchange.owner, Owner::Internal(_));
            let is_over = index < self.abandoned || exchange.waited == Exchange::OVER;
            keeps &= !is_over && !is_internal;
            if keeps {
                kept += 1;
                kept_len += len;
            }
        }
        let (total, mut at) = (self.fifo.len(), 0);
        for (index, exchange) in self.fifo.drain(..total - kept).enumerate() {
            let sent = if index + unsent >= total { Sent::No } else { Sent::Maybe };
            let len = exchange.len as usize;
            let read = exchange.is_plain_read().then(|| self.output.held(at, len));
            at += len;
            lost(Lost { exchange, sent, read });
        }
        self.output.keep_last(kept_len);
        self.database = Database::Own;
        self.refusal = Vec::new();
        self.refuses_once = false;
        self.multi_refused = None;
        self.reads_replica = false;
        if let Some(aside) = &mut self.redirected {
            aside.restart();
        }
        self.trace.restart();
        self.abandoned = 0;
        self.is_uneven = !self.fifo.is_empty();
        self.served = None;
        self.stall.end(None);
        self.answered = false;
        self.was_lost_greeting = self.greeting.take().is_some() && self.handshake.is_empty();
        self.handshake.clear();
        self.handshake_refusal = Vec::new();
        self.input = Vec::new();
        self.input_needed = 0;
        self.framer.reset();
        self.memcached = None;
        self.streamed_reply = None;
        self.send_blocked = false;
        (self.is_blocking, self.stays_when_late) = (false, false);
        self.state = LinkState::Idle;
        self.trim();
    }

    /// Notes that connecting failed, and decides how long to wait before the next attempt. The time
    /// doubles, with `jitter` (any random number) so that many links do not reconnect at the same
    /// time. It must be called after [`Link::on_lost`].
    pub fn on_backoff(&mut self, options: &LinkOptions, now: Time, jitter: u64) {
        let doubled = options.backoff_min * 2u32.saturating_pow(self.failures.min(16));
        let pause = doubled.min(options.backoff_max).max(options.backoff_min);
        let half = pause / 2;
        let spread = half.as_nanos().max(1) as u64;
        self.failures = self.failures.saturating_add(1);
        self.state =
            LinkState::Backoff { until: now + half + Duration::from_nanos(jitter % spread) };
    }
}
