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

    /// Closes clients that have replies to come: a log has lost writes, and a reply may be the
    /// acknowledgement of one of them.
    fn close_unsure(&mut self) {
        let mut count = 0;
        for key in self.core.client_keys() {
            let session = self.core.session(key);
            let busy = session.and_then(|session| session.busy.as_ref());
            if busy.is_some_and(|busy| busy.output.len() > 0) {
                self.close_client(key, CloseReason::Log);
                count += 1;
            }
        }
        tracing::warn!(
            worker = self.index,
            clients = count,
            "clients were closed without replies: nobody knows whether their last writes are in the \
             log of their pool"
        );
    }
}
