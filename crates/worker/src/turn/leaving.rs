//! Another process has taken over: new clients go there, and ours leave.

use super::Worker;
use crate::turn::departures::Leaving;
use keyway_base::Time;
use keyway_net::Io;
use std::time::Duration;

/// How long a worker without a client stays: another worker may be handing some over.
const LINGER: Duration = Duration::from_secs(1);

impl<I: Io> Worker<I> {
    /// Stops accepting, except for clients that are being accepted. The sockets stay open in the
    /// other process, which accepts the waiting clients.
    #[cold]
    pub(super) fn leave(&mut self, grace: Duration) {
        if self.drain_deadline.is_some() || self.leaving.is_some() {
            return;
        }
        let now = self.core.clock().now;
        self.io.leave_listening();
        self.leaving = Some(Leaving { idle_from: now + LINGER.min(grace), until: now + grace });
        self.tend_leaving(now);
    }

    /// Drains when the time is over, or no client is left.
    pub(super) fn tend_leaving(&mut self, now: Time) {
        let Some(leaving) = self.leaving.filter(|_| self.drain_deadline.is_none()) else { return };
        let has_clients =
            self.core.has_clients() || self.io.has_arrivals() || !self.relays.is_empty();
        let is_idle = leaving.idle_from <= now && !has_clients;
        if is_idle || leaving.until <= now {
            self.drain();
        }
    }
}
