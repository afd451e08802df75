use super::{Inner, locked};
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
    file: Arc<File>,
}

/// The same with the cluster that it belongs to.
pub(super) struct Renewer {
    lease: FileLease,
    inner: Arc<Inner>,
}

impl FileLease {
    pub(super) fn new(id: SessionId, ttl: Duration, file: File) -> FileLease {
        FileLease { id, ttl, file: Arc::new(file) }
    }

    pub(super) fn of(self, inner: Arc<Inner>) -> Renewer {
        Renewer { lease: self, inner }
    }
}

impl Renew for Renewer {
    async fn renew(&mut self) -> Renewed {
        let FileLease { id, ttl, .. } = self.lease;
        let file = Arc::clone(&self.lease.file);
        let until = Moment::now().after(ttl);
        let renewed = locked(&self.inner, "renew the session", move |inner| {
            inner.disk.renew_session(id, &file, until)
        });
        match renewed.await {
            Ok(true) => Renewed::For(ttl),
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
