//! Nodes of another system, as they are.

use super::session::fault_of;
use super::wire::{Granted, Request, code};
use super::{Connection, Inner, TIMEOUT_MS, ZooKeeperSettings};
use crate::clock::Moment;
use crate::limits::LIST_LEN_MAX;
use crate::{Fault, FaultKind};

/// The attempt that faults name.
const TRIED: &str = "read";

/// Nodes that are asked for together. More would fill buffers on both sides.
const GROUP: usize = 128;

/// Largest number of nodes. More belong to something else than what was asked for.
const NODES_MAX: usize = 100_000;

/// Returns the nodes below `ROOT/CLUSTER` that have data.
pub(crate) async fn read_tree(
    settings: ZooKeeperSettings,
) -> Result<Vec<(String, Vec<u8>)>, Fault> {
    let inner = Inner::new(settings)?;
    let until = Moment::now().after(inner.patience.call);
    let (_, connection) = inner.connect(&Granted::ask(TIMEOUT_MS), until).await?;
    let reading = Reading { inner: &inner, connection: &connection, until };
    let mut found = Vec::new();
    let mut len = 0;
    // Names relative to the base, which are still to be asked for.
    let mut asked = reading.children("").await?;
    while !asked.is_empty() {
        let group = asked.split_off(asked.len().saturating_sub(GROUP));
        for (name, data, children) in reading.nodes(group).await? {
            asked.extend(children.into_iter().map(|child| format!("{name}/{child}")));
            len += data.len() + name.len();
            if !data.is_empty() {
                found.push((name, data));
            }
        }
        if len > LIST_LEN_MAX || found.len() + asked.len() > NODES_MAX {
            let what = "more than can be read";
            return Err(Fault::new(FaultKind::TooLarge, inner.dialer.all(), TRIED, what));
        }
    }
    found.sort();
    Ok(found)
}

struct Reading<'r> {
    inner: &'r Inner,
    connection: &'r Connection,
    until: Moment,
}

impl Reading<'_> {
    fn path(&self, name: &str) -> String {
        let base = &self.inner.paths.base;
        if name.is_empty() { base.clone() } else { format!("{base}/{name}") }
    }

    /// Returns the names of the children of a node; none if it does not exist.
    async fn children(&self, name: &str) -> Result<Vec<String>, Fault> {
        let request = Request::GetChildren { path: self.path(name), watch: false };
        let replies = self.ask(vec![request]).await?;
        let reply = replies.first().ok_or_else(|| self.damaged())?;
        match reply.code {
            code::OK => reply.names().ok_or_else(|| self.damaged()),
            code::NO_NODE => Ok(Vec::new()),
            error => Err(self.inner.fault(error, TRIED)),
        }
    }

    /// Returns the data and the children of nodes. Nodes that are gone are left out.
    async fn nodes(
        &self,
        names: Vec<String>,
    ) -> Result<Vec<(String, Vec<u8>, Vec<String>)>, Fault> {
        let of_node = |name: &String| {
            let path = self.path(name);
            let data = Request::GetData { path: path.clone(), watch: false };
            [data, Request::GetChildren { path, watch: false }]
        };
        let replies = self.ask(names.iter().flat_map(of_node).collect()).await?;
        let damaged = || self.damaged();
        let mut found = Vec::new();
        for (name, replies) in names.into_iter().zip(replies.chunks(2)) {
            let [data, children] = replies else { return Err(damaged()) };
            match (data.code, children.code) {
                (code::OK, code::OK) => {
                    let (data, _) = data.data().ok_or_else(damaged)?;
                    found.push((name, data.to_vec(), children.names().ok_or_else(damaged)?));
                }
                (code::OK | code::NO_NODE, code::OK | code::NO_NODE) => {}
                (code::OK | code::NO_NODE, error) | (error, _) => {
                    return Err(self.inner.fault(error, TRIED));
                }
            }
        }
        Ok(found)
    }

    fn damaged(&self) -> Fault {
        let what = "the answer cannot be read";
        Fault::new(FaultKind::Damaged, self.inner.dialer.all(), TRIED, what)
    }

    async fn ask(&self, requests: Vec<Request>) -> Result<Vec<super::wire::Reply>, Fault> {
        let timeout = self.inner.patience.request.min(self.until.left());
        self.connection.ask(requests, TRIED, timeout).await.map_err(fault_of)
    }
}
