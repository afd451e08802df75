//! Checks whether the other Keyways that clients of a cluster are told of are up.
//!
//! Each of them gets a PING now and then, on a connection that stays open. The content of the
//! answer does not matter. If two Keyways disagree, neither is wrong: any of them answers for every
//! slot.

use keyway_proxy::local::EmulatedCluster;
use keyway_worker::Plan;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Time between two checks. Clients that look for a node that is gone search for longer.
const EVERY: Duration = Duration::from_millis(300);

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Stack of a thread that sends and receives a few bytes.
const STACK_LEN: usize = 128 << 10;

/// Checks the other Keyways from now on, except those that have been checked since `before`. Each
/// has a thread, which ends when no listener names it any more.
///
/// # Errors
/// Returns an error if a thread cannot be started.
pub fn watch(plan: &Plan, before: Option<&Plan>) -> std::io::Result<()> {
    let known = |cluster: &Arc<EmulatedCluster>| {
        let mut all = before.iter().flat_map(|plan| &plan.listeners);
        all.any(|it| it.cluster.as_ref().is_some_and(|other| Arc::ptr_eq(other, cluster)))
    };
    for listener in plan.listeners.iter().filter(|listener| !listener.is_ended) {
        let Some(cluster) = &listener.cluster else { continue };
        if known(cluster) {
            continue;
        }
        let others = (0..).map_while(|index| cluster.address(index).map(|it| (index, it)));
        for (index, (host, port)) in others {
            let address = format!("{host}:{port}");
            if address == *listener.name || cluster.address(1).is_none() {
                continue;
            }
            let peer = Peer { host: host.to_owned(), port, connection: None };
            let cluster = Arc::downgrade(cluster);
            std::thread::Builder::new()
                .name("keyway-peer".into())
                .stack_size(STACK_LEN)
                .spawn(move || look_after(peer, index, &cluster))?;
        }
    }
    Ok(())
}

fn look_after(mut peer: Peer, index: usize, cluster: &Weak<EmulatedCluster>) {
    loop {
        let answers = peer.answers();
        let Some(cluster) = cluster.upgrade() else { return };
        if cluster.set_down(index, !answers) {
            let address = format!("{}:{}", peer.host, peer.port);
            if answers {
                tracing::info!(address, "this Keyway of the announced cluster is back");
            } else {
                tracing::warn!(
                    address,
                    "this Keyway of the announced cluster does not answer; clients are told that \
                     the others have its slots"
                );
            }
        }
        drop(cluster);
        std::thread::park_timeout(EVERY);
    }
}

struct Peer {
    host: String,
    port: u16,
    connection: Option<TcpStream>,
}

impl Peer {
    /// Returns whether it answers, on a new connection if the old one is gone.
    fn answers(&mut self) -> bool {
        if let Some(connection) = &mut self.connection
            && answers(connection)
        {
            return true;
        }
        self.connection = self.connect().filter(|mut connection| answers(&mut connection));
        self.connection.is_some()
    }

    fn connect(&self) -> Option<TcpStream> {
        let addresses = (self.host.as_str(), self.port).to_socket_addrs().ok()?;
        let connect = |address| TcpStream::connect_timeout(&address, PATIENCE).ok();
        let connection = addresses.into_iter().find_map(connect)?;
        connection.set_read_timeout(Some(PATIENCE)).ok()?;
        connection.set_write_timeout(Some(PATIENCE)).ok()?;
        Some(connection)
    }
}

/// Returns whether anything comes back.
fn answers(mut connection: impl Read + Write) -> bool {
    let mut heard = [0; 512];
    connection.write_all(b"*1\r\n$4\r\nPING\r\n").is_ok()
        && connection.read(&mut heard).is_ok_and(|len| len > 0)
}
