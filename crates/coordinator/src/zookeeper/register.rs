//! Ephemeral nodes whose data is as it was given, for clients of other systems.

use super::session::{Renewer, countable, fault_of};
use super::wire::{Acl, Granted, Request, Step, code};
use super::{Inner, ZooKeeperSettings};
use crate::clock::{Moment, draw};
use crate::session::check_ttl;
use crate::{Fault, Key, Session, SessionId};
use std::sync::Arc;
use std::time::Duration;

/// Tries to replace a node that others make and delete meanwhile.
const TRIES: usize = 4;

/// Makes the node `ROOT/CLUSTER/NAME` with these bytes, bound to a session of its own.
pub(crate) async fn register(
    settings: ZooKeeperSettings,
    name: &Key,
    value: &[u8],
    ttl: Duration,
) -> Result<Session, Fault> {
    check_ttl(ttl)?;
    let inner = Arc::new(Inner::new(settings)?);
    let until = Moment::now().after(inner.patience.call);
    let asked = Granted::ask(i32::try_from(ttl.as_millis()).unwrap_or(i32::MAX));
    let sent = Moment::now();
    let (_, connection) = inner.connect(&asked, until).await?;
    let node = format!("{}/{name}", inner.paths.base);
    // The connection's own session ends with it if this fails.
    let making = Making { inner: &inner, connection: &connection, until };
    making.parents().await?;
    making.node(&node, value).await?;
    let granted = connection.granted.clone();
    let ttl = countable(&granted);
    let connection = Some(connection);
    let renewer = Renewer { inner, node, has_keys: false, granted, connection };
    Session::keep(SessionId(draw()), sent, ttl, renewer)
}

struct Making<'m> {
    inner: &'m Inner,
    connection: &'m super::Connection,
    until: Moment,
}

impl Making<'_> {
    /// Makes the nodes above, which stay. Whoever may not make one has it made already, or hears so
    /// when the node itself is made.
    async fn parents(&self) -> Result<(), Fault> {
        let mut paths = self.inner.paths.parents();
        paths.push(self.inner.paths.base.clone());
        for path in paths {
            let acl = self.inner.readable();
            match self.ask(Request::Create { path, data: Vec::new(), acl }).await? {
                code::OK | code::NODE_EXISTS | code::NO_AUTH => {}
                error => return Err(self.inner.fault(error, TRIED)),
            }
        }
        Ok(())
    }

    /// Makes the node. A node of the same name is replaced: an earlier run of this process made it,
    /// or the process that this one replaces.
    async fn node(&self, path: &str, value: &[u8]) -> Result<(), Fault> {
        let mut last = code::NODE_EXISTS;
        for _ in 0..TRIES {
            let delete =
                (last == code::NODE_EXISTS).then(|| Step::Delete { path: path.to_owned() });
            let create = Step::Create {
                path: path.to_owned(),
                data: value.to_vec(),
                acl: self.inner.readable(),
                is_ephemeral: true,
            };
            let steps = delete.into_iter().chain([create]).collect();
            last = self.ask(Request::Multi(steps)).await?;
            match last {
                code::OK => return Ok(()),
                code::NODE_EXISTS | code::NO_NODE => {}
                _ => break,
            }
        }
        Err(self.inner.fault(last, TRIED))
    }

    /// Returns the error of the reply.
    async fn ask(&self, request: Request) -> Result<i32, Fault> {
        let is_multi = matches!(request, Request::Multi(_));
        let timeout = self.inner.patience.request.min(self.until.left());
        let asked = self.connection.ask(vec![request], TRIED, timeout).await;
        let replies = asked.map_err(fault_of)?;
        let reply = replies.first().ok_or_else(|| self.inner.damaged(TRIED))?;
        if !is_multi {
            return Ok(reply.code);
        }
        let failed = reply.failed_step().ok_or_else(|| self.inner.damaged(TRIED))?;
        Ok(failed.map_or(code::OK, |(_, error)| error))
    }
}

/// The attempt that faults name.
const TRIED: &str = "register";

impl Inner {
    /// Returns the rights on nodes that clients of other systems read.
    fn readable(&self) -> Acl {
        match self.acl() {
            Acl::Creator => Acl::CreatorAndReaders,
            acl => acl,
        }
    }
}
