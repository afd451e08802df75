use super::*;
use crate::{ListenerPlan, PoolKind, PoolPlan};
use keyway_base::{BackendFault, Limits};
use keyway_metrics::{Layout, PoolLayout, Registry};
use keyway_proxy::local::{ClientRegistry, Facts};
use keyway_topology::{
    Epoch, HealthBoard, Pool, PoolKind as TopologyKind, Server, ShardedPool, Topology,
};
use parking_lot::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

struct NoFacts;

impl Facts for NoFacts {
    fn info(&self, _pool: u16, _sections: &[&str], _out: &mut String) {}
    fn settings(&self, _pool: u16) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// A core with one pool of one server, whose link stands.
fn connected_core() -> Core {
    let server = Server::parse("127.0.0.1:1:1 alpha").unwrap();
    let pool = ShardedPool::with_servers(vec![server]);
    let pools = vec![Pool { name: "pool".to_owned(), kind: TopologyKind::Sharded(pool.clone()) }];
    let topology = Arc::new(Topology::new(Epoch(1), pools));
    let registry = Registry::new(Layout {
        classes: &[""; keyway_command::Class::ALL.len()],
        pools: vec![PoolLayout { name: "pool".to_owned(), backends: vec!["alpha".to_owned()] }],
        workers_max: 1,
        version: "0",
        start_unix_micros: 0,
    });
    let plan = Plan {
        limits: Limits::default(),
        listeners: vec![ListenerPlan { pool: 0, name: String::new(), password: None }],
        pools: vec![PoolPlan {
            name: "pool".to_owned(),
            databases: 1,
            clients_max: 0,
            kind: PoolKind::sharded(pool),
        }],
        health: Arc::new(HealthBoard::new(&topology)),
        topology,
        clients: Arc::new(ClientRegistry::default()),
        facts: Arc::new(NoFacts),
        next_client_id: AtomicU64::new(1),
        mailers: Mutex::new(Vec::new()),
        drain_timeout: Duration::from_secs(1),
    };
    let mut core = Core::new(Arc::new(plan), registry.start_worker().unwrap(), 1);
    core.on_connecting(0);
    core.on_connected(0, Socket(1));
    core
}

fn client(core: &mut Core) -> Key<Session> {
    core.add_session(0, 0, Identity::new(1, true, Time(0)))
}

fn output(core: &Core, client: Key<Session>) -> String {
    let busy = core.session(client).and_then(|session| session.busy.as_ref());
    busy.map_or(String::new(), |busy| busy.output.unsent().escape_ascii().to_string())
}

#[test]
fn skip_leaves_out_one_reply_whoever_gives_it() {
    for (skipped, backend) in [("GET a", "$1\r\na\r\n"), ("ECHO a", ""), ("NONESUCH", "")] {
        let mut core = connected_core();
        let client = client(&mut core);
        // The second SKIP is about the request behind it, as the first was.
        let lines = format!("CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\n{skipped}\r\nGET b\r\n");
        core.on_client_bytes(client, lines.as_bytes());
        core.on_backend_bytes(0, format!("{backend}$1\r\nb\r\n").as_bytes()).unwrap();
        assert_eq!(output(&core, client), r"$1\r\nb\r\n", "{skipped}");
    }
}

#[test]
fn nothing_said_of_a_lost_connection_is_taken_for_its_successor() {
    let mut core = connected_core();
    core.on_link_lost(0, BackendFault::Closed);
    core.on_connecting(0);
    let given_up = core.links[0].generation;
    core.on_link_lost(0, BackendFault::Connect);
    assert_ne!(core.links[0].generation, given_up);
}
