use crate::cluster::{Speaker, ViewUpdate};
use crate::core::Core;
use crate::core::pools::FoundState;
use crate::core::tests::{client, core_of_kind, output, pass_to};
use keyway_base::{BackendFault, Key, Time};
use keyway_net::Socket;
use keyway_proxy::Session;
use keyway_resp::Protocol;
use keyway_topology::{
    ClusterPool, ClusterView, Discovery, Endpoint, PoolKind, ReadPolicy, SlotQuery, ViewSource,
};
use std::sync::Arc;
use std::time::Duration;

mod blocking;
mod groups;
mod map;
mod redirected;
mod sent_on;
mod waiting;

fn endpoint(port: u16) -> Endpoint {
    Endpoint::tcp("h", port).unwrap()
}

/// Returns a server's answer about a cluster in which these ports have these slots.
fn view(owners: &[(u16, u16, u16)]) -> ClusterView {
    let mut reply = format!("*{}\r\n", owners.len());
    for (first, last, port) in owners {
        reply += &format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n$1\r\nh\r\n:{port}\r\n");
    }
    ClusterView::from_slots(reply.as_bytes(), ViewSource::plainly(&endpoint(1))).unwrap()
}

/// A core that knows a cluster, with a connection to each of two servers.
fn core() -> Core {
    core_reading(ReadPolicy::default())
}

fn core_reading(reads: ReadPolicy) -> Core {
    let mut core = core_of(reads, None);
    learn(&mut core, &[(0, 8191, 1), (8192, 16383, 2)]);
    for port in [1, 2] {
        connect(&mut core, port);
    }
    core
}

/// A core that knows no cluster yet and has no connections.
fn core_of(reads: ReadPolicy, wait_for_primary: Option<Duration>) -> Core {
    core_of_kind(cluster_of(reads, wait_for_primary))
}

fn cluster_of(reads: ReadPolicy, wait_for_primary: Option<Duration>) -> PoolKind {
    let discovery = Discovery {
        refresh: Duration::from_secs(1),
        redirections_max: 3,
        wait_for_primary,
        reads,
        ..Discovery::new(vec![endpoint(1)], 3)
    };
    let pool = ClusterPool::new(SlotQuery::Slots, discovery);
    PoolKind::Cluster(pool)
}

fn connect(core: &mut Core, port: u16) {
    let index = link(core, port);
    core.on_connecting(core.links.key_at(index));
    core.on_connected(core.links.key_at(index), Socket(i32::from(port)));
}

fn learn(core: &mut Core, owners: &[(u16, u16, u16)]) {
    learn_at(core, owners, Time(1));
}

fn learn_at(core: &mut Core, owners: &[(u16, u16, u16)], now: Time) {
    let shared = Arc::clone(&core.plane.cluster_state(0).unwrap().shared);
    let update = shared.learn(&view(owners), Speaker::ALONE, now);
    assert!(matches!(update, ViewUpdate::New(_)));
    core.follow_clusters();
}

fn link(core: &Core, port: u16) -> usize {
    let FoundState { servers, cluster, .. } = core.plane.pools[0].found().expect("a cluster");
    let map = &cluster.map;
    servers.link(map.index_of(&endpoint(port)).unwrap(), 0, Protocol::Resp2).index()
}

fn send(core: &mut Core, port: u16) -> String {
    let index = link(core, port);
    let link = &mut core.links[index].link;
    let sent = link.unsent().escape_ascii().to_string();
    let len = link.unsent().len();
    link.advance(len);
    sent
}

fn hear(core: &mut Core, port: u16, reply: &str) {
    let index = link(core, port);
    core.on_backend_bytes(core.links.key_at(index), reply.as_bytes()).unwrap();
}

fn ask(core: &mut Core, client: Key<Session>, lines: &str) {
    core.on_client_bytes(client, lines.as_bytes());
}

fn totals(core: &Core) -> (u64, u64, u64) {
    let totals = &core.plane.cluster_state(0).unwrap().shared.totals;
    let read =
        |total: &std::sync::atomic::AtomicU64| total.load(std::sync::atomic::Ordering::Relaxed);
    (read(&totals.moved), read(&totals.asked), read(&totals.given_up))
}

fn index_of(core: &Core, port: u16) -> Option<u16> {
    core.plane.cluster_state(0).unwrap().map.index_of(&endpoint(port))
}
