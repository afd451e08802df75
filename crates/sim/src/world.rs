use crate::client::Client;
use crate::cluster::{ClusterSim, Scene};
use crate::ledger::Ledger;
use crate::network::{ConnectMode, Nanos, Network, Occurrence};
use crate::server::Server;
use crate::visitor::Visitor;

/// The kinds of faults of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The server stops working. Sockets stay open.
    Stall,
    /// The server closes every connection.
    Drop,
    /// The server closes every connection and refuses new ones.
    Refuse,
    /// The server closes every connection and does not answer new ones.
    Vanish,
    /// The server closes every connection, and its name does not resolve.
    Unresolve,
    /// The server closes every connection, and new ones as soon as they are established.
    AcceptAndClose,
    /// The server closes every connection, and delays new ones.
    Hesitate,
    /// The server's connections stay open and are dead.
    Abandon,
    /// The server answers `-LOADING`.
    Loading,
    /// The server answers `-OOM` to writes.
    Full,
    /// The server answers a few bytes at a time.
    Trickle,
    /// The server closes every connection and refuses the handshake of new ones.
    RefuseHandshake,
    /// The server closes a connection in the middle of a reply.
    Cut,
    /// The server answers with garbage.
    Garble,
    /// The server closes every connection and discards its data.
    Restart,
}

/// One fault of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// When it begins.
    pub at: Nanos,
    /// How long it lasts.
    pub lasts: Nanos,
    /// The server.
    pub server: usize,
    /// The kind of fault.
    pub kind: FaultKind,
    /// How long after its end it may still cause errors.
    pub aftermath: Nanos,
}

/// Everything except the workers.
pub struct World {
    /// The network and the clock.
    pub network: Network,
    /// Clients.
    pub clients: Vec<Client>,
    /// Clients that leave in the middle of a request. Their indices follow those of the other
    /// clients.
    pub visitors: Vec<Visitor>,
    /// Servers.
    pub servers: Vec<Server>,
    /// The record of what really happened.
    pub ledger: Ledger,
    /// The faults. Each entry occurs twice, at its beginning and its end.
    pub faults: Vec<Fault>,
    /// The cluster of the servers, if they form one.
    pub cluster: Option<Box<ClusterSim>>,
}

impl World {
    /// Lets everything happen that is due.
    pub fn settle(&mut self) {
        while let Some(what) = self.network.take_due() {
            self.ledger.now = self.network.now;
            match what {
                Occurrence::Client(index) => match index.checked_sub(self.clients.len()) {
                    None => self.clients[index].step(&mut self.network, &mut self.ledger),
                    Some(nth) => self.visitors[nth].step(&mut self.network, &mut self.ledger),
                },
                Occurrence::Server(index) => {
                    self.servers[index].step(&mut self.network, &mut self.ledger);
                    self.with_cluster(|cluster, scene| cluster.replicate(index, scene));
                }
                Occurrence::Fault(index) => self.on_fault(index),
                Occurrence::Cluster(step) => {
                    self.with_cluster(|cluster, scene| cluster.on_step(step, scene));
                }
                _ => {}
            }
            if self.ledger.violation.is_some() {
                return;
            }
        }
    }

    fn with_cluster(&mut self, act: impl FnOnce(&mut ClusterSim, &mut Scene)) {
        let World { network, servers, ledger, cluster: Some(cluster), .. } = self else { return };
        act(cluster, &mut Scene { network, servers, ledger });
    }

    fn on_fault(&mut self, index: usize) {
        let Fault { at, lasts, server, kind, aftermath } = self.faults[index];
        // A server that is not alive can do nothing wrong.
        if self.cluster.as_ref().is_some_and(|cluster| !cluster.is_alive(server)) {
            return;
        }
        let begins = self.network.now < at + lasts;
        let what = if begins { "begins" } else { "ends" };
        self.network.tell(|| format!("server {server}: {kind:?} {what}"));
        let Server { mood, .. } = &mut self.servers[server];
        if !begins {
            self.network.modes[server] = ConnectMode::Accept;
            if kind == FaultKind::Abandon {
                self.servers[server].drop_connections(&mut self.network);
            }
            return self.network.wake_server(server, self.network.now);
        }
        let until = at + lasts;
        self.ledger.on_trouble(server, at, until + aftermath);
        self.network.schedule(until, Occurrence::Fault(index));
        let drops = match kind {
            FaultKind::Stall => {
                mood.stalled_until = until;
                None
            }
            FaultKind::Abandon => {
                self.servers[server].abandon_connections();
                None
            }
            FaultKind::Loading => {
                mood.loading_until = until;
                None
            }
            FaultKind::Full => {
                mood.full_until = until;
                None
            }
            FaultKind::Trickle => {
                mood.trickling_until = until;
                None
            }
            FaultKind::Cut => {
                mood.cut_until = until;
                None
            }
            FaultKind::Garble => {
                mood.garble_until = until;
                None
            }
            FaultKind::RefuseHandshake => {
                mood.refusing_until = until;
                Some(ConnectMode::Accept)
            }
            FaultKind::Drop => Some(ConnectMode::Accept),
            FaultKind::Refuse => Some(ConnectMode::Refuse),
            FaultKind::Vanish => Some(ConnectMode::Silent),
            FaultKind::Unresolve => Some(ConnectMode::Unresolved),
            FaultKind::AcceptAndClose => Some(ConnectMode::AcceptAndClose),
            FaultKind::Hesitate => Some(ConnectMode::Hesitate),
            FaultKind::Restart => {
                self.servers[server].lose_everything(&mut self.ledger);
                Some(ConnectMode::Accept)
            }
        };
        if let Some(mode) = drops {
            self.network.modes[server] = mode;
            self.servers[server].drop_connections(&mut self.network);
        }
        self.network.wake_server(server, self.network.now);
    }
}
