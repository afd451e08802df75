use crate::{Event, Fault, Listing, Mark, Outcome, Prefix, Revision, Session, Txn};
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

/// The answer of a backend, once it is there.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// One place that says what is. All processes that open the same cluster of the same backend see
/// one history of revisions.
///
/// Every call ends within [`Patience`], with an answer or a [`Fault`]. Calls need a tokio runtime
/// with I/O and time. A future that is dropped may leave a transaction or a session behind:
/// the transaction has an unknown outcome then, and the session ends with its lease.
pub trait Coordinator: Send + Sync + fmt::Debug {
    /// Returns the entries below a prefix, as they were together at one revision. The revision is
    /// not older than any whose transaction was answered before the call.
    fn list<'a>(&'a self, prefix: &'a Prefix) -> Answer<'a, Listing>;

    /// Returns a watch of the changes below a prefix with revisions after this one.
    fn watch(&self, prefix: &Prefix, after: Revision) -> Watch;

    /// Executes the operations of a transaction if its comparisons hold, all at one revision.
    ///
    /// A transaction is never executed twice. [`crate::FaultKind::Unknown`] says that it may have
    /// been executed, or may still be; every other fault says that it was not and will not be.
    fn txn(&self, txn: Txn) -> Answer<'_, Outcome>;

    /// Begins a session with a lease of this time. A backend may grant a longer one.
    fn session(&self, ttl: Duration) -> Answer<'_, Session>;

    /// Returns the newest state that was seen. A caller that keeps it and passes it on when it
    /// opens the backend again is told of a state that is older.
    fn mark(&self) -> Option<Mark>;
}

/// How long calls take at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For one request to one endpoint.
    pub request: Duration,
    /// For a call, over all endpoints and tries.
    pub call: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { request: Duration::from_secs(3), call: Duration::from_secs(10) }
    }
}

/// The changes below a prefix, in the order of their revisions, without a gap.
///
/// The watch reads from the backend when its caller asks, so it holds little. It reconnects by
/// itself. Dropping it ends it.
pub struct Watch(Box<dyn Follow>);

impl Watch {
    pub(crate) fn new(follow: impl Follow + 'static) -> Watch {
        Watch(Box::new(follow))
    }

    /// Waits for the next event. Dropping the future loses nothing.
    ///
    /// # Errors
    /// Returns a fault if the backend could not be reached for [`Patience::call`], or refuses. The
    /// caller may ask again: the watch goes on behind the last batch that it returned.
    pub async fn next(&mut self) -> Result<Event, Fault> {
        self.0.next().await
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// A backend's side of a watch.
pub(crate) trait Follow: Send {
    /// Waits for the next event. Dropping the future loses nothing.
    fn next(&mut self) -> Answer<'_, Event>;
}
