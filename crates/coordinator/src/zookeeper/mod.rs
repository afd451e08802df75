//! ZooKeeper from 3.6 on, by a client of its protocol with what is needed here.
//!
//! ZooKeeper has no transactions with comparisons of values, no listing of one moment and no
//! history. All three come from one node, `rev`, whose version every transaction checks and
//! changes: see `layout.rs`. Sessions are ephemeral nodes; the keys that are bound to one are
//! deleted by whoever looks next, with a revision of their own.

mod connection;
mod layout;
mod read;
mod register;
mod session;
mod tree;
mod txn;
mod watch;
mod wire;

use crate::clock::Moment;
use crate::coordinator::{Answer, Coordinator, Patience, Watch};
use crate::etcd::Credentials;
use crate::guard::Guard;
use crate::key::check_cluster;
use crate::limits::HISTORY_MAX;
use crate::net::Dialer;
use crate::{Fault, FaultKind, Listing, Mark, Outcome, Prefix, Revision, Session, Txn};
use connection::{Connection, Lost};
use keyway_tls::ClientTls;
use layout::Paths;
pub(crate) use register::register;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
pub(crate) use tree::read_tree;
use watch::ZooKeeperWatch;
use wire::{Acl, Granted, Reply, Request, code};

/// The timeout of the session that reads and transactions use. Nothing is bound to it.
const TIMEOUT_MS: i32 = 10_000;

/// Pause between two tries, so that a server that refuses at once is not flooded.
const PAUSE: Duration = Duration::from_millis(50);

/// Where ZooKeeper is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeperSettings {
    /// The servers, as `HOST:PORT` of their client ports.
    pub endpoints: Vec<String>,
    /// TLS to the servers' secure client ports.
    pub tls: Option<ClientTls>,
    /// Credentials of the scheme `digest`. With them, nobody else may read or write the nodes that
    /// are made.
    pub user: Option<Credentials>,
    /// The node above the clusters.
    pub root: String,
    /// The name of the cluster.
    pub cluster: String,
    /// How long calls take at most.
    pub patience: Patience,
    /// Transactions that are remembered for watches.
    pub history_max: usize,
    /// The newest state that the caller has seen earlier.
    pub mark: Option<Mark>,
}

impl ZooKeeperSettings {
    /// Returns the usual settings: plain, without credentials, below `/kw`.
    pub fn new(endpoints: &[&str], cluster: &str) -> ZooKeeperSettings {
        ZooKeeperSettings {
            endpoints: endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect(),
            tls: None,
            user: None,
            root: "/kw".to_owned(),
            cluster: cluster.to_owned(),
            patience: Patience::default(),
            history_max: HISTORY_MAX,
            mark: None,
        }
    }
}

/// A cluster in ZooKeeper.
#[derive(Clone, Debug)]
pub struct ZooKeeper(Arc<Inner>);

struct Inner {
    dialer: Dialer,
    paths: Paths,
    /// The credentials as ZooKeeper's scheme `digest` takes them.
    credentials: Option<String>,
    guard: Guard,
    patience: Patience,
    history_max: usize,
    connection: tokio::sync::Mutex<Option<(usize, Arc<Connection>)>>,
}

// The credentials stay inside.
impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("dialer", &self.dialer).finish_non_exhaustive()
    }
}

impl ZooKeeper {
    /// Opens a cluster, and makes its nodes if there are none.
    ///
    /// # Errors
    /// Returns a fault if no server answers, the credentials do not suffice, or the state is older
    /// than the mark says.
    pub async fn open(settings: ZooKeeperSettings) -> Result<ZooKeeper, Fault> {
        let inner = Arc::new(Inner::new(settings)?);
        let until = Moment::now().after(inner.patience.call);
        inner.view(&[], "open", until).await?;
        Ok(ZooKeeper(inner))
    }
}

impl Inner {
    /// Checks the settings. Nothing is asked of a server yet.
    fn new(settings: ZooKeeperSettings) -> Result<Inner, Fault> {
        check_cluster(&settings.cluster)?;
        let ZooKeeperSettings { endpoints, tls, user, root, cluster, patience, .. } = settings;
        let below = root.strip_prefix('/').unwrap_or_default();
        if !root.is_empty() && crate::Key::new(below).is_err() {
            return Err(Fault::invalid(format!("{root:?} is no path of a node")));
        }
        let dialer = Dialer::new("ZooKeeper", &endpoints, tls, patience.request)?;
        Ok(Inner {
            guard: Guard::new(dialer.all(), settings.mark),
            dialer,
            paths: Paths::new(&root, &cluster),
            credentials: user.map(|user| format!("{}:{}", user.name, user.password)),
            patience,
            history_max: settings.history_max,
            connection: tokio::sync::Mutex::new(None),
        })
    }

    fn acl(&self) -> Acl {
        if self.credentials.is_some() { Acl::Creator } else { Acl::Anyone }
    }

    /// Returns the connection, and makes one if there is none.
    async fn connection(&self, until: Moment) -> Result<Arc<Connection>, Fault> {
        let busy = || {
            let what = "no connection in time";
            Fault::new(FaultKind::Unreachable, self.dialer.all(), "connect", what)
        };
        let lock = tokio::time::timeout(until.left(), self.connection.lock()).await;
        let mut current = lock.map_err(|_| busy())?;
        if let Some((_, connection)) = current.as_ref().filter(|(_, one)| one.is_alive()) {
            return Ok(Arc::clone(connection));
        }
        *current = None;
        let (at, connection) = self.connect(&Granted::ask(TIMEOUT_MS), until).await?;
        let connection = Arc::new(connection);
        *current = Some((at, Arc::clone(&connection)));
        Ok(connection)
    }

    /// Connects to whichever server answers.
    async fn connect(&self, asked: &Granted, until: Moment) -> Result<(usize, Connection), Fault> {
        let credentials = self.credentials.as_deref();
        loop {
            let at = self.dialer.preferred();
            let timeout = self.patience.request.min(until.left());
            let fault = match Connection::open(&self.dialer, at, asked, credentials, timeout).await
            {
                Ok(connection) => return Ok((at, connection)),
                Err(fault) => fault,
            };
            self.dialer.leave(at);
            if fault.kind() != FaultKind::Unreachable || until.left() <= PAUSE {
                return Err(fault);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Gives a connection up that does not answer: the next is to another server.
    async fn leave(&self, connection: &Arc<Connection>) {
        let mut current = self.connection.lock().await;
        if let Some((at, _)) = current.take_if(|(_, one)| Arc::ptr_eq(one, connection)) {
            self.dialer.leave(at);
        }
    }

    /// Sends requests once, on this connection.
    async fn ask_on(
        &self,
        connection: &Arc<Connection>,
        requests: Vec<Request>,
        tried: &'static str,
        until: Moment,
    ) -> Result<Vec<Reply>, Lost> {
        let timeout = self.patience.request.min(until.left());
        let asked = connection.ask(requests, tried, timeout).await;
        if asked.is_err() {
            self.leave(connection).await;
        }
        asked
    }

    /// Sends what changes something, until it is sent.
    async fn change(
        &self,
        request: Request,
        tried: &'static str,
        until: Moment,
    ) -> Result<Reply, Fault> {
        loop {
            let connection = self.connection(until).await?;
            let asked = self.ask_on(&connection, vec![request.clone()], tried, until).await;
            match asked {
                Ok(mut replies) => match replies.pop() {
                    Some(reply) => return Ok(reply),
                    None => return Err(self.damaged(tried)),
                },
                Err(Lost::Maybe(fault)) if !request.is_harmless() => {
                    return Err(fault.with_kind(FaultKind::Unknown));
                }
                Err(Lost::Maybe(fault) | Lost::Unsent(fault)) if until.left() <= PAUSE => {
                    return Err(fault);
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn damaged(&self, tried: &'static str) -> Fault {
        let what = format!("the nodes below {} are not Keyway's", self.paths.base);
        Fault::new(FaultKind::Damaged, self.dialer.all(), tried, what)
    }

    /// The fault of an error of ZooKeeper.
    fn fault(&self, error: i32, tried: &'static str) -> Fault {
        let (kind, what) = match error {
            code::NO_AUTH => (FaultKind::Denied, "the nodes belong to other credentials".into()),
            code::AUTH_FAILED => (FaultKind::Denied, "the credentials are refused".into()),
            code::THROTTLED => (FaultKind::Busy, "the server is overloaded".into()),
            code::QUOTA_EXCEEDED => (FaultKind::Full, "a quota is used up".into()),
            code::SESSION_EXPIRED => {
                (FaultKind::Unreachable, "the session of the connection has ended".into())
            }
            error => (FaultKind::Damaged, format!("ZooKeeper answers with error {error}")),
        };
        Fault::new(kind, self.dialer.all(), tried, what)
    }
}

impl Coordinator for ZooKeeper {
    fn list<'a>(&'a self, prefix: &'a Prefix) -> Answer<'a, Listing> {
        Box::pin(self.0.list(prefix))
    }

    fn watch(&self, prefix: &Prefix, after: Revision) -> Watch {
        Watch::new(ZooKeeperWatch::new(Arc::clone(&self.0), prefix.clone(), after))
    }

    fn txn(&self, txn: Txn) -> Answer<'_, Outcome> {
        Box::pin(async move { self.0.txn(&txn).await })
    }

    fn session(&self, ttl: Duration) -> Answer<'_, Session> {
        Box::pin(self.0.begin(ttl))
    }

    fn mark(&self) -> Option<Mark> {
        self.0.guard.mark()
    }
}
