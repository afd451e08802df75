//! Whether the other Keyways are there that clients of a cluster are told of.
//!
//! Each is asked for a PING now and then, on a connection that is kept. What it
//! answers does not matter, and who is right neither where two Keyways differ:
//! any of them answers for every slot.

use keyway_proxy::local::EmulatedCluster;
use keyway_worker::Plan;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Between two questions. Clients that look for a node that is gone have looked
/// around for longer.
const EVERY: Duration = Duration::from_millis(300);

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// It says and hears a few bytes.
const STACK_LEN: usize = 128 << 10;

/// Looks after the others from here on, but for those that are looked after since `before`; each
/// on a thread that ends when its listener has none of them any more.
///
/// # Errors
/// That a thread cannot be started.
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
        let others = (0..).map_while(|place| cluster.address(place).map(|it| (place, it)));
        for (place, (host, port)) in others {
            let address = format!("{host}:{port}");
            if address == *listener.name || cluster.address(1).is_none() {
                continue;
            }
            let peer = Peer { host: host.to_owned(), port, connection: None };
            let cluster = Arc::downgrade(cluster);
            std::thread::Builder::new()
                .name("keyway-peer".into())
                .stack_size(STACK_LEN)
                .spawn(move || look_after(peer, place, &cluster))?;
        }
    }
    Ok(())
}

fn look_after(mut peer: Peer, place: usize, cluster: &Weak<EmulatedCluster>) {
    loop {
        let answers = peer.answers();
        let Some(cluster) = cluster.upgrade() else { return };
        if cluster.set_down(place, !answers) {
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
    /// Whether it answers, on a new connection where the old one is gone.
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

/// Whether anything comes back.
fn answers(mut connection: impl Read + Write) -> bool {
    let mut heard = [0; 512];
    connection.write_all(b"*1\r\n$4\r\nPING\r\n").is_ok()
        && connection.read(&mut heard).is_ok_and(|len| len > 0)
}
