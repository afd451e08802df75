use super::Inner;
use super::connection::{Connection, Lost};
use super::wire::{Granted, Request, Step, code};
use crate::clock::{Moment, draw};
use crate::limits::SESSIONS_MAX;
use crate::session::{Renew, Renewed, check_ttl};
use crate::{Fault, FaultKind, Session, SessionId};
use std::sync::Arc;
use std::time::Duration;

impl Inner {
    /// Begins a session of ZooKeeper of its own, with a connection of its own, for each of ours.
    pub(super) async fn begin(self: &Arc<Self>, ttl: Duration) -> Result<Session, Fault> {
        let tried = "begin a session";
        check_ttl(ttl)?;
        let until = Moment::now().after(self.patience.call);
        let view = self.view(&[], tried, until).await?;
        if view.sessions >= SESSIONS_MAX {
            let what = format!("there are {SESSIONS_MAX} sessions");
            return Err(Fault::new(FaultKind::Full, self.dialer.all(), tried, what));
        }
        let asked = Granted::ask(i32::try_from(ttl.as_millis()).unwrap_or(i32::MAX));
        let sent = Moment::now();
        let (_, connection) = self.connect(&asked, until).await?;
        let id = SessionId(draw());
        let [begun, lasting] = self.paths.session(id);
        let node = |path, is_ephemeral| Step::Create {
            path,
            data: Vec::new(),
            acl: self.acl(),
            is_ephemeral,
        };
        let multi = Request::Multi(vec![node(begun, false), node(lasting, true)]);
        let timeout = self.patience.request.min(until.left());
        let replies = connection.ask(vec![multi], tried, timeout).await.map_err(fault_of)?;
        let reply = replies.first().ok_or_else(|| self.damaged(tried))?;
        if let Some((_, error)) = reply.failed_step().ok_or_else(|| self.damaged(tried))? {
            return Err(self.fault(error, tried));
        }
        let granted = connection.granted.clone();
        let ttl = countable(&granted);
        let [_, node] = self.paths.session(id);
        let renewer = Renewer {
            inner: Arc::clone(self),
            node,
            has_keys: true,
            granted,
            connection: Some(connection),
        };
        Session::keep(id, sent, ttl, renewer)
    }
}

/// Returns how long of ZooKeeper's timeout a session can be counted on after a request.
///
/// A follower tells the leader of a session's requests twice in a tick. The timeout has at least
/// two ticks. So a leader that hears no more of the follower may count from a quarter of the
/// timeout earlier.
pub(super) fn countable(granted: &Granted) -> Duration {
    Duration::from_millis(u64::try_from(granted.timeout_ms).unwrap_or(0)) * 3 / 4
}

pub(super) fn fault_of(lost: Lost) -> Fault {
    match lost {
        Lost::Unsent(fault) | Lost::Maybe(fault) => fault,
    }
}

/// Keeps a session of ZooKeeper, as long as an ephemeral node is there.
pub(super) struct Renewer {
    pub(super) inner: Arc<Inner>,
    /// The ephemeral node.
    pub(super) node: String,
    /// True if keys are bound to the session, which are deleted by looking at them.
    pub(super) has_keys: bool,
    pub(super) granted: Granted,
    pub(super) connection: Option<Connection>,
}

impl Renewer {
    /// Returns the connection, and continues the session on another if it was lost.
    async fn connection(&mut self) -> Result<&Connection, Fault> {
        let kept = self.connection.take().filter(Connection::is_alive);
        let connection = match kept {
            Some(connection) => connection,
            None => {
                let until = Moment::now().after(self.inner.patience.call);
                let (_, connection) = self.inner.connect(&self.granted, until).await?;
                self.granted = connection.granted.clone();
                connection
            }
        };
        Ok(self.connection.insert(connection))
    }

    async fn ask(
        &mut self,
        requests: Vec<Request>,
        tried: &'static str,
    ) -> Result<Option<i32>, Fault> {
        // A server that hangs must not use up the lease: another is asked in time.
        let timeout = self.inner.patience.request.min(countable(&self.granted) / 4);
        let connection = self.connection().await?;
        match connection.ask(requests, tried, timeout).await {
            Ok(replies) => {
                Ok(replies.iter().map(|reply| reply.code).find(|error| *error != code::OK))
            }
            Err(lost) => {
                self.connection = None;
                let at = self.inner.dialer.preferred();
                self.inner.dialer.leave(at);
                Err(fault_of(lost))
            }
        }
    }
}

impl Renew for Renewer {
    async fn renew(&mut self) -> Renewed {
        let tried = "renew the session";
        let path = self.node.clone();
        // Behind the leader, for a server that lags may not have the node yet.
        let requests = vec![Request::Sync(path.clone()), Request::GetData { path, watch: false }];
        match self.ask(requests, tried).await {
            Ok(None) => Renewed::For(countable(&self.granted)),
            Ok(Some(code::NO_NODE | code::SESSION_EXPIRED)) => Renewed::Gone,
            Ok(Some(error)) => Renewed::Failed(self.inner.fault(error, tried)),
            Err(fault) if fault.kind() == FaultKind::SessionLost => Renewed::Gone,
            Err(fault) => Renewed::Failed(fault),
        }
    }

    async fn end(&mut self) {
        let tried = "end the session";
        let _ = self.ask(vec![Request::Close], tried).await;
        self.connection = None;
        if !self.has_keys {
            return;
        }
        // Looking deletes the keys.
        let until = Moment::now().after(self.inner.patience.call);
        let _ = self.inner.view(&[], tried, until).await;
    }
}
