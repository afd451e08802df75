//! A thread that keeps an entry in a registry, for callers without a runtime.

use crate::{Fault, Key, Registry};
use std::io;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Pauses between tries to register: the first, and the longest. Each is twice the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// How long an entry is left to the process that replaces it.
const LEFT_FOR: Duration = Duration::from_secs(5);

/// A change of an entry.
#[derive(Clone, Debug)]
pub enum Kept {
    /// It is there.
    Registered,
    /// It could not be put there. It is tried again.
    Failed(Fault),
    /// Its session was lost, perhaps for this reason. It is put there again.
    Lost(Option<Fault>),
    /// It was deleted, as its owner has ended it.
    Ended,
}

/// How an entry ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Delete,
    Leave,
}

/// An entry that is kept in a registry by a thread. The thread registers again whenever the
/// session is lost.
///
/// Dropping it ends it, and does not wait for that: see [`Keeper::wait`].
#[derive(Debug)]
pub struct Keeper {
    end: Option<oneshot::Sender<End>>,
    over: mpsc::Receiver<()>,
}

impl Keeper {
    /// Starts the thread, and does not wait for the registry. The thread tells each change to
    /// `tell`.
    ///
    /// # Errors
    /// Returns that the system gives no thread.
    pub fn start(
        registry: Registry,
        name: Key,
        value: Vec<u8>,
        ttl: Duration,
        tell: impl FnMut(Kept) + Send + 'static,
    ) -> io::Result<Keeper> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel();
        let (done, over) = mpsc::channel();
        let entry = Entry { registry, name, value, ttl };
        std::thread::Builder::new().name("keyway-registry".to_owned()).spawn(move || {
            runtime.block_on(entry.keep(ended, tell));
            drop(done);
        })?;
        Ok(Keeper { end: Some(end), over })
    }

    /// Has the entry deleted, and does not wait for that.
    pub fn end(&mut self) {
        self.tell(End::Delete);
    }

    /// Leaves the entry to another process, which replaces it. Some seconds later it is deleted if
    /// that process has not.
    pub fn leave(&mut self) {
        self.tell(End::Leave);
    }

    /// Waits until the thread has ended, for this long. Returns whether it has. The lease ends by
    /// itself otherwise.
    pub fn wait(&self, within: Duration) -> bool {
        // The other side says nothing: it is dropped.
        self.over.recv_timeout(within) == Err(mpsc::RecvTimeoutError::Disconnected)
    }

    fn tell(&mut self, how: End) {
        if let Some(end) = self.end.take() {
            // The thread may have ended.
            let _ = end.send(how);
        }
    }
}

struct Entry {
    registry: Registry,
    name: Key,
    value: Vec<u8>,
    ttl: Duration,
}

impl Entry {
    async fn keep(self, mut ended: oneshot::Receiver<End>, mut tell: impl FnMut(Kept)) {
        let mut pause = PAUSES.0;
        loop {
            // A request that was sent may be executed, so this ends by itself, within the patience.
            match self.registry.register(&self.name, &self.value, self.ttl).await {
                Ok(session) => {
                    tell(Kept::Registered);
                    let how = tokio::select! {
                        biased;
                        how = &mut ended => Some(how.unwrap_or(End::Delete)),
                        () = session.lost() => None,
                    };
                    match how {
                        None => tell(Kept::Lost(session.last_fault())),
                        Some(End::Leave) => {
                            tokio::time::sleep(LEFT_FOR).await;
                            return session.end().await;
                        }
                        Some(End::Delete) => {
                            session.end().await;
                            return tell(Kept::Ended);
                        }
                    }
                    pause = PAUSES.0;
                }
                Err(fault) => {
                    tell(Kept::Failed(fault));
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        _ = &mut ended => return,
                    }
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }
}
