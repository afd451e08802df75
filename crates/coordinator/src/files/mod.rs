//! Files of one host: the default where all processes are on it.
//!
//! ```text
//! DIR/CLUSTER/lock            held by flock while somebody writes; has the process id
//!             state           the whole state; replaced by renaming state.new over it
//!             sessions/ID     held by flock by the session's process; has the end of its lease
//! ```
//! A process that is killed at any point leaves the old state or the new one, and its sessions
//! end at once, for the kernel lets go of its locks. A process that hangs loses its sessions by
//! their leases. Whoever looks next deletes the keys of ended sessions.

mod disk;
mod sessions;

use crate::clock::{Moment, draw};
use crate::coordinator::{Answer, Coordinator, Follow, Patience, Watch};
use crate::guard::Guard;
use crate::key::check_cluster;
use crate::limits::{HISTORY_MAX, PENDING_MAX, SESSIONS_MAX};
use crate::session::check_ttl;
use crate::state::State;
use crate::{
    Batch, Event, Fault, FaultKind, Listing, Mark, Outcome, Prefix, Revision, Session, SessionId,
    Txn,
};
use disk::Disk;
use sessions::FileLease;
use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often a watch looks whether there is another state. Shorter costs three system calls each
/// time, longer delays every change.
const LOOK_EVERY: Duration = Duration::from_millis(15);

/// How often a watch looks whether a session has ended.
const PEEK_EVERY: Duration = Duration::from_millis(100);

/// How often the lock is tried.
const TRY_EVERY: Duration = Duration::from_millis(1);

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesSettings {
    /// The directory of all clusters. It must be on a disk of this host.
    pub dir: PathBuf,
    /// The name of the cluster.
    pub cluster: String,
    /// How long calls take at most.
    pub patience: Patience,
    /// Transactions that are remembered for watches.
    pub history_max: usize,
    /// The newest state that the caller has seen earlier.
    pub mark: Option<Mark>,
}

impl FilesSettings {
    /// Returns the usual settings.
    pub fn new(dir: impl Into<PathBuf>, cluster: &str) -> FilesSettings {
        FilesSettings {
            dir: dir.into(),
            cluster: cluster.to_owned(),
            patience: Patience::default(),
            history_max: HISTORY_MAX,
            mark: None,
        }
    }
}

/// A cluster in files of this host.
#[derive(Clone, Debug)]
pub struct Files(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    disk: Disk,
    guard: Guard,
    patience: Patience,
    history_max: usize,
}

impl Files {
    /// Opens a cluster, and makes it if there is none.
    ///
    /// # Errors
    /// Returns a fault if the directory cannot be used, or has an older state than the mark says.
    pub async fn open(settings: FilesSettings) -> Result<Files, Fault> {
        check_cluster(&settings.cluster)?;
        let disk = Disk::new(settings.dir.join(&settings.cluster));
        let guard = Guard::new(disk.place(), settings.mark);
        let FilesSettings { patience, history_max, .. } = settings;
        let inner = Arc::new(Inner { disk, guard, patience, history_max });
        blocking(&inner, |inner| inner.disk.make_directories()).await?;
        locked(&inner, "open", |inner| {
            if inner.guard.mark().is_none() && !inner.disk.has_state()? {
                inner.disk.write(&State::empty(draw()))?;
            }
            inner.current().map(drop)
        })
        .await?;
        Ok(Files(inner))
    }
}

impl Inner {
    /// Returns the current state, and refuses an older one.
    fn current(&self) -> Result<Arc<State>, Fault> {
        let floor = self.guard.floor()?;
        let state = self.disk.read().inspect_err(|fault| {
            // Somebody has removed what was there.
            if fault.kind() == FaultKind::RolledBack {
                self.guard.refuse(fault);
            }
        })?;
        self.guard.see(floor, state.mark)?;
        Ok(state)
    }

    /// Replaces the state. The lock is held.
    fn replace(&self, state: State) -> Result<Arc<State>, Fault> {
        let floor = self.guard.floor()?;
        let state = self.disk.write(&state)?;
        self.guard.see(floor, state.mark)?;
        Ok(state)
    }

    /// Returns the current state without keys of sessions that have ended. The lock is held.
    fn settled(&self) -> Result<Arc<State>, Fault> {
        let state = self.current()?;
        let dead = self.disk.dead_sessions(&state)?;
        if dead.is_empty() {
            return Ok(state);
        }
        let mut next = State::clone(&state);
        let keys = state.keys_of(&dead);
        let state = if next.delete(keys, self.history_max) { self.replace(next)? } else { state };
        // Their files go last: without them nobody would look for the keys.
        self.disk.remove_sessions(&dead);
        Ok(state)
    }

    fn execute(&self, txn: &Txn) -> Result<Outcome, Fault> {
        let state = self.settled()?;
        let found = txn.false_for(|key| state.entry(key));
        if !found.is_empty() {
            return Ok(Outcome::Refused { revision: state.mark.revision, found });
        }
        for id in txn.operations().iter().filter_map(|operation| operation.session()) {
            if !self.disk.is_alive(id) {
                return Err(Fault::session_lost(self.disk.place(), "transaction"));
            }
        }
        let mut next = State::clone(&state);
        match next.apply(txn, self.history_max) {
            Ok(true) => Ok(Outcome::Done { revision: self.replace(next)?.mark.revision }),
            Ok(false) => Ok(Outcome::Done { revision: state.mark.revision }),
            Err(full) => Err(self.disk.full(full)),
        }
    }

    fn begin(&self, ttl: Duration) -> Result<(SessionId, Moment, FileLease), Fault> {
        self.settled()?;
        if self.disk.count_sessions()? >= SESSIONS_MAX {
            let what = format!("there are {SESSIONS_MAX} sessions");
            return Err(Fault::new(FaultKind::Full, self.disk.place(), "begin a session", what));
        }
        let id = SessionId(draw());
        let sent = Moment::now();
        let until = sent.after(ttl);
        let file = self.disk.make_session(id, until)?;
        Ok((id, sent, FileLease::new(id, ttl, until, file)))
    }
}

impl Coordinator for Files {
    fn list<'a>(&'a self, prefix: &'a Prefix) -> Answer<'a, Listing> {
        Box::pin(async move {
            let state = blocking(&self.0, |inner| {
                let state = inner.current()?;
                Ok(inner.disk.dead_sessions(&state)?.is_empty().then_some(state))
            })
            .await?;
            let state = match state {
                Some(state) => state,
                None => locked(&self.0, "list", |inner| inner.settled()).await?,
            };
            Ok(Listing { revision: state.mark.revision, entries: state.below(prefix) })
        })
    }

    fn watch(&self, prefix: &Prefix, after: Revision) -> Watch {
        Watch::new(FilesWatch {
            inner: Arc::clone(&self.0),
            prefix: prefix.clone(),
            read_to: after,
            pending: VecDeque::new(),
            is_over: false,
            peek_at: Moment::now(),
        })
    }

    fn txn(&self, txn: Txn) -> Answer<'_, Outcome> {
        Box::pin(async move {
            txn.check(&self.0.disk.place())?;
            locked(&self.0, "transaction", move |inner| inner.execute(&txn)).await
        })
    }

    fn session(&self, ttl: Duration) -> Answer<'_, Session> {
        Box::pin(async move {
            check_ttl(ttl)?;
            let begin = move |inner: &Inner| inner.begin(ttl);
            let (id, sent, lease) = locked(&self.0, "begin a session", begin).await?;
            Session::keep(id, sent, ttl, lease.of(Arc::clone(&self.0)))
        })
    }

    fn mark(&self) -> Option<Mark> {
        self.0.guard.mark()
    }
}

struct FilesWatch {
    inner: Arc<Inner>,
    prefix: Prefix,
    /// Up to here all is in `pending`, returned, or of other keys.
    read_to: Revision,
    pending: VecDeque<Batch>,
    is_over: bool,
    peek_at: Moment,
}

impl FilesWatch {
    /// Takes what is new. Returns whether there is anything.
    fn take(&mut self, state: &State) {
        let Some(batches) = state.since(self.read_to) else {
            self.is_over = true;
            return;
        };
        for batch in batches {
            self.read_to = batch.revision;
            let is_theirs = |change: &&crate::Change| self.prefix.holds(change.key());
            let changes: Vec<_> = batch.changes.iter().filter(is_theirs).cloned().collect();
            if !changes.is_empty() {
                self.pending.push_back(Batch { revision: batch.revision, changes });
            }
            if self.pending.len() >= PENDING_MAX {
                return;
            }
        }
    }

    async fn look(&mut self) -> Result<(), Fault> {
        let read_to = self.read_to;
        let state = blocking(&self.inner, move |inner| {
            let is_same = inner.disk.mark()?.revision == read_to;
            if is_same { Ok(None) } else { inner.current().map(Some) }
        })
        .await?;
        if let Some(state) = state {
            if state.mark.revision < read_to {
                let what = format!("the revision is {}, below {read_to}", state.mark.revision);
                return Err(Fault::new(
                    FaultKind::RolledBack,
                    self.inner.disk.place(),
                    "watch",
                    what,
                ));
            }
            self.take(&state);
        }
        if self.pending.is_empty() && self.peek_at.has_passed() {
            self.peek_at = Moment::now().after(PEEK_EVERY);
            let has_dead = blocking(&self.inner, |inner| {
                Ok(!inner.disk.dead_sessions(&*inner.current()?)?.is_empty())
            })
            .await?;
            if has_dead {
                locked(&self.inner, "watch", |inner| inner.settled()).await?;
            }
        }
        Ok(())
    }
}

impl Follow for FilesWatch {
    fn next(&mut self) -> Answer<'_, Event> {
        Box::pin(async move {
            loop {
                if let Some(batch) = self.pending.pop_front() {
                    return Ok(Event::Changes(batch));
                }
                if self.is_over {
                    return Ok(Event::ListAgain);
                }
                self.look().await?;
                if self.pending.is_empty() && !self.is_over {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
        })
    }
}

/// Runs what reads and writes files where it blocks nobody.
async fn blocking<T: Send + 'static>(
    inner: &Arc<Inner>,
    act: impl FnOnce(&Inner) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let shared = Arc::clone(inner);
    match tokio::task::spawn_blocking(move || act(&shared)).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let what = "the runtime is shutting down";
            Err(Fault::new(FaultKind::Unknown, inner.disk.place(), "use files", what))
        }
    }
}

/// The same with the lock of all writers held, also if the caller goes away.
async fn locked<T: Send + 'static>(
    inner: &Arc<Inner>,
    tried: &'static str,
    act: impl FnOnce(&Inner) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let until = Moment::now().after(inner.patience.call);
    let lock: File = loop {
        match blocking(inner, |inner| inner.disk.try_lock()).await? {
            Some(lock) => break lock,
            None if until.has_passed() => {
                let what = match inner.disk.lock_owner() {
                    Some(owner) => format!("process {owner} holds the lock"),
                    None => "another process holds the lock".to_owned(),
                };
                return Err(Fault::new(FaultKind::Busy, inner.disk.place(), tried, what));
            }
            None => tokio::time::sleep(TRY_EVERY).await,
        }
    };
    blocking(inner, move |inner| {
        let outcome = act(inner);
        drop(lock);
        outcome
    })
    .await
}
