use super::Inner;
use super::connection::Lost;
use crate::clock::Moment;
use crate::coordinator::{Answer, Follow};
use crate::limits::WATCH_IDLE;
use crate::{Batch, Change, Event, Fault, FaultKind, Prefix, Revision};
use std::collections::VecDeque;
use std::sync::Arc;

/// A watch: the log's nodes behind what was read. The servers only tell that there are more.
pub(super) struct ZooKeeperWatch {
    inner: Arc<Inner>,
    prefix: Prefix,
    /// All up to here was returned, is in `pending`, or is of other keys.
    read_to: u64,
    pending: VecDeque<Batch>,
    is_over: bool,
}

impl ZooKeeperWatch {
    pub(super) fn new(inner: Arc<Inner>, prefix: Prefix, after: Revision) -> ZooKeeperWatch {
        let pending = VecDeque::new();
        ZooKeeperWatch { inner, prefix, read_to: after.0, pending, is_over: false }
    }

    /// Reads what is there, or waits for a while until there may be more.
    async fn step(&mut self) -> Result<(), Fault> {
        let tried = "watch";
        let until = Moment::now().after(self.inner.patience.call);
        // Counts from before the look: what comes between is not missed.
        let connection = self.inner.connection(until).await?;
        let mut events = connection.events();
        events.mark_unchanged();
        let view = self.inner.view_watched(&[], true, tried, until).await?;
        let now = view.head.mark.revision.0;
        if now < self.read_to {
            let what = format!("the revision is {now}, below {}", self.read_to);
            let place = self.inner.dialer.all();
            return Err(Fault::new(FaultKind::RolledBack, place, tried, what));
        }
        if now == self.read_to {
            if Arc::ptr_eq(&connection, &view.connection) {
                drop((view, connection));
                // An error says that the connection is gone: then there is something to do, too.
                let _ = tokio::time::timeout(WATCH_IDLE, events.changed()).await;
            }
            return Ok(());
        }
        if view.head.compacted() > self.read_to {
            self.is_over = true;
            return Ok(());
        }
        let read = self.inner.read_log(&view.connection, self.read_to, now, tried, until).await;
        match read {
            Ok(Some(batches)) => batches.into_iter().for_each(|batch| self.take(batch)),
            Ok(None) => {}
            Err(Lost::Unsent(fault) | Lost::Maybe(fault)) => match fault.kind() {
                FaultKind::Unreachable | FaultKind::Busy => {}
                _ => return Err(fault),
            },
        }
        Ok(())
    }

    fn take(&mut self, batch: Batch) {
        self.read_to = batch.revision.0;
        let is_theirs = |change: &Change| self.prefix.holds(change.key());
        let changes: Vec<Change> = batch.changes.into_iter().filter(is_theirs).collect();
        if !changes.is_empty() {
            self.pending.push_back(Batch { revision: batch.revision, changes });
        }
    }
}

impl Follow for ZooKeeperWatch {
    fn next(&mut self) -> Answer<'_, Event> {
        Box::pin(async move {
            loop {
                if let Some(batch) = self.pending.pop_front() {
                    return Ok(Event::Changes(batch));
                }
                if self.is_over {
                    return Ok(Event::ListAgain);
                }
                self.step().await?;
            }
        })
    }
}
