//! The log lines about a link to a primary.

use keyway_replica::State;
use keyway_standby::StandbyStatus;

/// The last line that was logged.
#[derive(Default)]
pub(super) struct LinkLog {
    is_up: bool,
    failures: u64,
    reason: String,
    resyncs: u64,
    has_stopped: bool,
}

impl LinkLog {
    /// Tells what has changed since the last look.
    pub(super) fn look(&mut self, pool: &str, status: Option<&StandbyStatus>) {
        let Some(status) = status else {
            *self = Self::default();
            return;
        };
        let (link, primary) = (&status.link, format!("{}", status.primary));
        if link.failures != self.failures {
            self.failures = link.failures;
            self.is_up = false;
            let reason = link.reason.as_ref().map(ToString::to_string).unwrap_or_default();
            // A link that is tried again and again tells a reason once.
            if reason != self.reason {
                tracing::warn!(pool, primary, "the link of the replica is down: {reason}");
                self.reason = reason;
            }
        }
        let resyncs = link.full_resyncs + link.partial_resyncs;
        if link.state == State::Online && (!self.is_up || resyncs != self.resyncs) {
            let offset = link.offset;
            tracing::info!(
                pool,
                primary,
                offset,
                full_resyncs = link.full_resyncs,
                "the link of the replica is up"
            );
            self.is_up = true;
            self.reason.clear();
            self.has_stopped = false;
        }
        self.resyncs = resyncs;
        if link.state == State::Stopped && !self.has_stopped {
            self.has_stopped = true;
            tracing::error!(
                pool,
                primary,
                "the replica has stopped: {}; repair that, then send REPLICAOF again",
                self.reason
            );
        }
    }
}
