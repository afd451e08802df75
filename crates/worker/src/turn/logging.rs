//! Replies that wait for the logs of embedded stores.

use super::Worker;
use keyway_metrics::CloseReason;
use keyway_net::Io;

impl<I: Io> Worker<I> {
    /// Waits until replies may be sent, see [`keyway_store::EffectLog::before_replies`]. All
    /// workers that wait share one fsync.
    #[cold]
    pub(super) fn settle_logs(&mut self) {
        if !self.core.plane.store.logs.settle() {
            self.close_unsure();
        }
    }

    /// Looks whether a log has lost writes since the last turn, in front of requests that know
    /// nothing of it.
    #[cold]
    pub(super) fn look_at_logs(&mut self) {
        if self.core.plane.store.logs.have_lost() {
            self.close_unsure();
        }
    }

    /// Closes clients of stores with a log that have replies to come: a log has lost writes, and
    /// a reply may be the acknowledgement of one of them.
    fn close_unsure(&mut self) {
        let mut count = 0;
        for key in self.core.client_keys() {
            let is_unsure = self.core.session(key).is_some_and(|session| {
                let kind = &self.plan.pools[usize::from(session.pool)].kind;
                let busy = session.busy.as_ref();
                kind.may_be_logged()
                    && busy.is_some_and(|busy| !busy.output.is_empty() || !busy.order.is_empty())
            });
            if is_unsure {
                self.close_client(key, CloseReason::Log);
                count += 1;
            }
        }
        if count == 0 {
            return;
        }
        tracing::warn!(
            worker = self.index,
            clients = count,
            "clients were closed without replies: nobody knows whether their last writes are in the \
             log of their pool"
        );
    }
}
