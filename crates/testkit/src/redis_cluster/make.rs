//! Putting a cluster together, over connections of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::{CLUSTER_SLOTS, ClusterStatus, Node, RedisCluster, SETTLED_WITHIN};
use crate::apart::Apart;
use crate::ports::free_port;
use crate::redis::RedisServer;
use crate::value::Value;
use crate::watchdog::wait_seldom_until;

/// After this a node that does not answer counts as failed. Shorter, and a busy
/// machine makes fail-overs of its own.
const NODE_TIMEOUT: Duration = Duration::from_millis(1000);

pub(super) fn start(
    primaries: usize,
    replicas_each: usize,
    arguments: &[&str],
    password: Option<&str>,
    apart: Option<&Apart>,
) -> RedisCluster {
    let count = primaries * (1 + replicas_each);
    let mut cluster = RedisCluster {
        nodes: Vec::new(),
        arguments: arguments.iter().map(|&text| text.to_owned()).collect(),
        password: password.map(str::to_owned),
        host: apart.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), Apart::host),
        moved_at_ms: Arc::default(),
    };
    let inside: Vec<(RedisServer, u16)> =
        apart.into_iter().map(|apart| start_server(&cluster, Some(apart))).collect();
    let others = start_servers(&cluster, count - inside.len());
    let servers = inside.into_iter().chain(others);
    for (server, bus_port) in servers {
        admit(&mut cluster, server, bus_port);
    }
    share_slots(&cluster, primaries);
    // Everyone meets everyone: hearsay takes seconds more.
    for node in 1..count {
        for earlier in 0..node {
            meet(&cluster, node, earlier);
        }
    }
    for replica in primaries..count {
        replicate(&cluster, replica, (replica - primaries) / replicas_each);
    }
    cluster.wait_settled();
    cluster
}

/// Starts another node and has it meet all others.
pub(super) fn add_node(cluster: &mut RedisCluster) -> usize {
    let (server, bus_port) = start_servers(cluster, 1).pop().expect("one was asked for");
    let others: Vec<usize> = cluster.in_use().collect();
    let node = admit(cluster, server, bus_port);
    for other in others {
        meet(cluster, other, node);
    }
    node
}

/// Makes `node` a replica of `primary`, as soon as it knows it.
pub(super) fn replicate(cluster: &RedisCluster, node: usize, primary: usize) {
    let words = format!("CLUSTER REPLICATE {}", cluster.id(primary));
    wait_seldom_until("a node becomes a replica", SETTLED_WITHIN, || {
        cluster.ask(node, &words) == Value::simple("OK")
    });
}

/// Starts servers side by side, each with the port of its bus.
fn start_servers(cluster: &RedisCluster, count: usize) -> Vec<(RedisServer, u16)> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..count).map(|_| scope.spawn(|| start_server(cluster, None))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a server starts")).collect()
    })
}

fn start_server(cluster: &RedisCluster, apart: Option<&Apart>) -> (RedisServer, u16) {
    let bus_port = free_port();
    let (bus, timeout) = (bus_port.to_string(), NODE_TIMEOUT.as_millis().to_string());
    let mut arguments = vec!["--cluster-enabled", "yes", "--cluster-port", &bus];
    arguments.extend(["--cluster-node-timeout", &timeout]);
    // A replica takes over however long it has been without its primary.
    arguments.extend(["--cluster-replica-validity-factor", "0"]);
    // The first copy is sent at once and needs no file.
    arguments.extend(["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]);
    arguments.extend(["--repl-ping-replica-period", "1"]);
    if let Some(password) = &cluster.password {
        arguments.extend(["--requirepass", password, "--masterauth", password]);
    }
    arguments.extend(cluster.arguments.iter().map(String::as_str));
    let host = apart.map_or(cluster.host, Apart::inside);
    let wrapper = apart.map(Apart::command).unwrap_or_default();
    let address = SocketAddr::new(host, free_port());
    (RedisServer::start_by(wrapper, address, &arguments), bus_port)
}

fn admit(cluster: &mut RedisCluster, server: RedisServer, bus_port: u16) -> usize {
    let node = cluster.nodes.len();
    let status = ClusterStatus::Running;
    cluster.nodes.push(Node { server, bus_port, id: String::new(), status });
    cluster.nodes[node].id = cluster.ask(node, "CLUSTER MYID").text();
    node
}

fn share_slots(cluster: &RedisCluster, primaries: usize) {
    let bound = |nth: usize| usize::from(CLUSTER_SLOTS) * nth / primaries;
    for node in 0..primaries {
        let (first, last) = (bound(node), bound(node + 1) - 1);
        let reply = cluster.ask(node, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        assert_eq!(reply, Value::simple("OK"), "slots of node {node}");
        // Of their own each: nodes of the same epoch settle that first.
        let reply = cluster.ask(node, &format!("CLUSTER SET-CONFIG-EPOCH {}", node + 1));
        assert_eq!(reply, Value::simple("OK"), "epoch of node {node}");
    }
}

fn meet(cluster: &RedisCluster, node: usize, other: usize) {
    let (address, bus) = (cluster.address(other), cluster.nodes[other].bus_port);
    let words = format!("CLUSTER MEET {} {} {bus}", address.ip(), address.port());
    assert_eq!(cluster.ask(node, &words), Value::simple("OK"), "{words} at node {node}");
}
