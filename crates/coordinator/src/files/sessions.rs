use super::{Inner, blocking, locked};
use crate::SessionId;
use crate::clock::Moment;
use crate::session::{Renew, Renewed};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

/// The file of a session, held for as long as the session lasts.
pub(super) struct FileLease {
    id: SessionId,
    ttl: Duration,
    /// The end of the lease that the file has.
    until: Moment,
    file: Arc<File>,
}

/// The same with the cluster that it belongs to.
pub(super) struct Renewer {
    lease: FileLease,
    inner: Arc<Inner>,
}

impl FileLease {
    pub(super) fn new(id: SessionId, ttl: Duration, until: Moment, file: File) -> FileLease {
        FileLease { id, ttl, until, file: Arc::new(file) }
    }

    pub(super) fn of(self, inner: Arc<Inner>) -> Renewer {
        Renewer { lease: self, inner }
    }
}

impl Renew for Renewer {
    async fn renew(&mut self) -> Renewed {
        let FileLease { id, ttl, until: held, .. } = self.lease;
        let until = Moment::now().after(ttl);
        let file = Arc::clone(&self.lease.file);
        // A writer of the state holds the lock for as long as the disk takes.
        let extended =
            blocking(&self.inner, move |inner| inner.disk.extend_session(id, &file, held, until));
        let renewed = match extended.await {
            Ok(false) => {
                let file = Arc::clone(&self.lease.file);
                let renew = move |inner: &Inner| inner.disk.renew_session(id, &file, until);
                locked(&self.inner, "renew the session", renew).await
            }
            outcome => outcome,
        };
        match renewed {
            Ok(true) => {
                self.lease.until = until;
                Renewed::For(ttl)
            }
            Ok(false) => Renewed::Gone,
            Err(fault) => Renewed::Failed(fault),
        }
    }

    async fn end(&mut self) {
        let FileLease { id, .. } = self.lease;
        let file = Arc::clone(&self.lease.file);
        let _ = locked(&self.inner, "end the session", move |inner| {
            // A lease that is over makes this process, too, see the session as ended.
            inner.disk.renew_session(id, &file, Moment::from_nanos(0))?;
            inner.settled().map(drop)
        })
        .await;
    }
}
