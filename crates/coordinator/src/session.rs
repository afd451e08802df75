//! Sessions: leases that a task keeps alive, and that their owner gives up before anybody else
//! does.

use crate::clock::Moment;
use crate::limits::{TTL_MAX, TTL_MIN};
use crate::{Fault, FaultKind};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// Identifies a session among all that ever were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A lease that this process keeps. Keys that are bound to it are deleted when it ends.
///
/// The owner counts from when it *sent* the last renewal that was answered, by a clock that also
/// runs while the machine sleeps. It gives the session up a fifth of the lease before the backend
/// may: [`Session::is_alive`] never says yes when another process can already have the keys. A
/// session that is lost is lost for good.
///
/// Dropping it stops the renewals, so the keys stay for the rest of the lease.
/// [`Session::end`] deletes them at once.
#[derive(Debug)]
pub struct Session {
    lease: Arc<Lease>,
    end: Option<oneshot::Sender<()>>,
    keeper: JoinHandle<()>,
}

/// What a session and the transactions that bind keys to it share.
#[derive(Debug)]
pub(crate) struct Lease {
    id: SessionId,
    ttl: Duration,
    held: Mutex<Held>,
    ended: Notify,
}

#[derive(Debug)]
struct Held {
    until: Moment,
    is_lost: bool,
    /// The last failure of a renewal.
    last_fault: Option<Fault>,
}

impl Session {
    /// Returns what entries of this session are marked with.
    pub fn id(&self) -> SessionId {
        self.lease.id
    }

    /// Returns the lease that the backend has granted. It may be longer than what was asked for.
    pub fn ttl(&self) -> Duration {
        self.lease.ttl
    }

    /// Returns whether the session is certainly not over. Ask before each act that relies on it:
    /// the answer uses the clock, not the renewals alone.
    pub fn is_alive(&self) -> bool {
        self.lease.is_alive()
    }

    /// Waits until the session is lost.
    pub async fn lost(&self) {
        self.lease.lost().await;
    }

    /// Returns why the last renewal failed, if it did.
    pub fn last_fault(&self) -> Option<Fault> {
        self.lease.held.lock().last_fault.clone()
    }

    /// Ends the session: its keys are deleted at once, if the backend answers within the rest of
    /// the lease.
    pub async fn end(mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        let _ = (&mut self.keeper).await;
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Keeps a lease that was granted to a request of `sent`.
    pub(crate) fn keep(
        id: SessionId,
        sent: Moment,
        ttl: Duration,
        renewer: impl Renew,
    ) -> Result<Session, Fault> {
        let until = sent.after(usable(ttl));
        let held = Mutex::new(Held { until, is_lost: false, last_fault: None });
        let lease = Arc::new(Lease { id, ttl, held, ended: Notify::new() });
        if !lease.is_alive() {
            return Err(Fault::session_lost("coordinator", "begin a session"));
        }
        let (end, ended) = oneshot::channel();
        let keeper = tokio::spawn(renew_until(Arc::clone(&lease), renewer, ended));
        Ok(Session { lease, end: Some(end), keeper })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A session that ends in order has taken the sender, and its task ends by itself.
        if self.end.is_some() {
            self.keeper.abort();
        }
        self.lease.lose(None);
    }
}

impl Lease {
    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    pub(crate) fn is_alive(&self) -> bool {
        let mut held = self.held.lock();
        if !held.is_lost && held.until.has_passed() {
            held.is_lost = true;
            drop(held);
            self.ended.notify_waiters();
            return false;
        }
        !held.is_lost
    }

    async fn lost(&self) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // From here on no notice is missed.
            ended.as_mut().enable();
            if !self.is_alive() {
                return;
            }
            let left = self.held.lock().until.left();
            let _ = tokio::time::timeout(left, ended).await;
        }
    }

    /// Takes a renewal. Returns false if it came too late.
    fn extend(&self, until: Moment) -> bool {
        let is_alive = self.is_alive();
        if is_alive {
            let mut held = self.held.lock();
            held.until = held.until.max(until);
            held.last_fault = None;
        }
        is_alive
    }

    /// Its time is over, and no renewal was answered.
    fn run_out(&self) {
        let silence = || {
            let what = "no answer within the lease";
            Fault::new(FaultKind::Unreachable, "coordinator", "renew the session", what)
        };
        self.held.lock().last_fault.get_or_insert_with(silence);
        self.lose(None);
    }

    fn lose(&self, fault: Option<Fault>) {
        let mut held = self.held.lock();
        held.is_lost = true;
        held.last_fault = fault.or(held.last_fault.take());
        drop(held);
        self.ended.notify_waiters();
    }
}

/// How a renewal ended.
pub(crate) enum Renewed {
    /// The lease counts anew, from when the renewal was sent.
    For(Duration),
    /// The backend does not know the session any more.
    Gone,
    /// No answer. The renewal is tried again.
    Failed(Fault),
}

/// What a backend does for a session.
pub(crate) trait Renew: Send + 'static {
    /// Asks for the lease to count anew.
    fn renew(&mut self) -> impl Future<Output = Renewed> + Send;
    /// Ends the session at the backend.
    fn end(&mut self) -> impl Future<Output = ()> + Send;
}

/// Returns how long of a lease its owner counts on it.
fn usable(ttl: Duration) -> Duration {
    ttl - ttl / 5
}

async fn renew_until(lease: Arc<Lease>, mut renewer: impl Renew, mut ended: oneshot::Receiver<()>) {
    let mut wait = lease.ttl / 4;
    loop {
        tokio::select! {
            _ = &mut ended => {
                let left = lease.held.lock().until.left();
                lease.lose(None);
                let _ = tokio::time::timeout(left, renewer.end()).await;
                return;
            }
            () = tokio::time::sleep(wait) => {}
        }
        let sent = Moment::now();
        let left = lease.held.lock().until.left();
        let renewed = tokio::select! {
            renewed = tokio::time::timeout(left, renewer.renew()) => renewed,
            () = lease.lost() => return lease.run_out(),
        };
        match renewed {
            Ok(Renewed::For(ttl)) => {
                wait = ttl.min(lease.ttl) / 4;
                if !lease.extend(sent.after(usable(ttl))) {
                    return;
                }
            }
            Ok(Renewed::Gone) => {
                return lease.lose(Some(Fault::session_lost("coordinator", "renew the session")));
            }
            Ok(Renewed::Failed(fault)) => {
                lease.held.lock().last_fault = Some(fault);
                wait = lease.ttl / 16;
            }
            // The time of the lease is over.
            Err(_) => return lease.run_out(),
        }
        if !lease.is_alive() {
            return;
        }
    }
}

/// Checks what a caller asks for.
pub(crate) fn check_ttl(ttl: Duration) -> Result<(), Fault> {
    if (TTL_MIN..=TTL_MAX).contains(&ttl) {
        return Ok(());
    }
    let [min, max] = [TTL_MIN, TTL_MAX].map(|bound| bound.as_secs());
    Err(Fault::new(
        FaultKind::Invalid,
        "coordinator",
        "begin a session",
        format!("a lease is of {min} to {max} s"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers with what is told, one after another, and then never.
    struct Told(Vec<Renewed>);

    impl Renew for Told {
        async fn renew(&mut self) -> Renewed {
            match self.0.pop() {
                Some(renewed) => renewed,
                None => std::future::pending().await,
            }
        }

        async fn end(&mut self) {}
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn a_session_without_an_answer_is_lost_before_its_lease_is_over() {
        block_on(async {
            let ttl = Duration::from_millis(300);
            let sent = Moment::now();
            let session = Session::keep(SessionId(1), sent, ttl, Told(Vec::new())).unwrap();
            assert!(session.is_alive());
            session.lost().await;
            assert!(!session.is_alive());
            // Its task says so a moment later.
            while session.last_fault().is_none() {
                tokio::task::yield_now().await;
            }
            assert!(!sent.after(ttl).has_passed() || sent.after(ttl).left().is_zero());
        });
    }

    #[test]
    fn a_renewal_that_comes_too_late_does_not_revive() {
        let held = Held { until: Moment::now(), is_lost: false, last_fault: None };
        let lease =
            Lease { id: SessionId(1), ttl: TTL_MIN, held: Mutex::new(held), ended: Notify::new() };
        assert!(!lease.extend(Moment::now().after(TTL_MAX)));
        assert!(!lease.is_alive());
    }

    #[test]
    fn a_session_that_the_backend_does_not_know_is_lost_at_once() {
        block_on(async {
            let told = Told(vec![Renewed::Gone, Renewed::For(Duration::from_secs(1))]);
            let ttl = Duration::from_secs(1);
            let session = Session::keep(SessionId(1), Moment::now(), ttl, told).unwrap();
            session.lost().await;
            assert_eq!(session.last_fault().unwrap().kind(), FaultKind::SessionLost);
        });
    }
}
