//! Ends clients after their received requests are answered.
//!
//! ```text
//!  end_soon ─► nothing of it waits: its socket is read to the end, it is answered, and closed
//!           └► a request waits for room or for its reply: the same when that is over
//! ```

use super::Worker;
use crate::core::Core;
use crate::turn::departures::LINGER;
use keyway_base::Key;
use keyway_net::Io;
use keyway_proxy::Session;

impl<I: Io> Worker<I> {
    /// Answers what a client has sent by now, and then ends it.
    pub(super) fn end_client(&mut self, key: Key<Session>) {
        self.read_client(key, true);
        self.core.on_client_end(key);
    }

    /// Does the same once no request of it waits any more, and lets none wait without limit.
    pub(super) fn end_soon(&mut self, key: Key<Session>) {
        if self.core.session(key).is_some_and(|session| session.paused) {
            if self.ending.keys.is_empty() {
                let patience = LINGER.min(self.plan.drain_timeout / 2);
                self.ending.until = self.core.clock().now + patience;
            }
            self.ending.keys.push(key);
        } else {
            self.end_client(key);
        }
        self.core.let_go(key);
    }

    /// Ends the clients of which no request waits any more.
    #[inline]
    pub(super) fn tend_ending(&mut self) {
        if !self.ending.keys.is_empty() {
            self.end_those_ready();
        }
    }

    #[cold]
    fn end_those_ready(&mut self) {
        let is_due = self.ending.until <= self.core.clock().now;
        for key in std::mem::take(&mut self.ending.keys) {
            let waits = |core: &Core| core.session(key).is_some_and(|session| session.paused);
            if !waits(&self.core) {
                // A request after those that waited may wait as well.
                self.read_client(key, true);
            }
            match waits(&self.core) && !is_due {
                true => self.ending.keys.push(key),
                false => self.core.on_client_end(key),
            }
            self.core.let_go(key);
        }
    }
}
