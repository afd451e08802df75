//! Replicas that feed replicas, and roles that change: everybody goes on where it was.

use crate::common::Reply;
use crate::introduced::introduced;
use crate::place::{BOUND, Place, info};
use crate::valkey_server::{Valkey, program};
use crate::writer::Writer;
use keyway_replica::State;
use keyway_replica::feed::Stage;
use keyway_testkit::{Random, RedisServer, wait_until, watchdog};
use parking_lot::Mutex;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A store that replicas can come to, by a port of its own.
struct Node {
    place: Arc<Place>,
    address: SocketAddr,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Node {
    fn start() -> Self {
        let place = Arc::new(Place::new());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (fed, kept) = (Arc::downgrade(&place), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("a connection");
                kept.lock().push(stream.try_clone().expect("a descriptor"));
                let Some(candidate) = introduced(stream) else { continue };
                let Some(place) = fed.upgrade() else { return };
                // One that is refused comes again.
                let _ = place.standby.attach(candidate, Vec::new());
            }
        });
        Self { place, address, connections }
    }

    fn cut(&self) {
        for connection in self.connections.lock().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn await_online(&self) {
        wait_until("a link", BOUND, || self.place.status().link.state == State::Online);
    }

    /// Waits until so many replicas follow and have everything that was executed so far.
    fn await_caught_up(&self, count: usize) {
        wait_until("replicas that follow", BOUND, || {
            let replicas = self.place.standby.feed_status().replicas;
            replicas.iter().filter(|it| it.stage == Stage::Online).count() == count
        });
        let offset = self.place.store.effects_offset();
        self.place.standby.ask_for_offsets();
        wait_until("acknowledgements", BOUND, || self.place.standby.acknowledged(offset) == count);
    }

    fn resyncs(&self) -> (u64, u64) {
        let link = self.place.status().link;
        (link.full_resyncs, link.partial_resyncs)
    }

    fn write(&self, random: &mut Random, count: usize) {
        for _ in 0..count {
            let (key, number) = (random.below(40), random.below(1000));
            let line = match random.below(9) {
                0 => format!("SET s{key} {number} PX 50000"),
                1 => format!("APPEND s{key} x"),
                2 => format!("RPUSH l{key} {number}"),
                3 => format!("SPOP m{key}"),
                4 => format!("SADD m{key} {number} a b"),
                5 => format!("ZADD z{key} {number} m"),
                6 => format!("HINCRBYFLOAT h{key} f 1.5"),
                7 => format!("XADD x{key} MAXLEN 20 * f {number}"),
                _ => format!("DEL s{key} m{number}"),
            };
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            self.place.ask_in(random.below(3) as u32, &words);
        }
    }
}

fn replica_of(address: SocketAddr) -> RedisServer {
    RedisServer::start_with(&["--replicaof", "127.0.0.1", &address.port().to_string()])
}

fn full_resyncs(server: &RedisServer) -> usize {
    server.process().log().matches("Full resync from master").count()
}

/// Waits until a server has the id and the offset of a store.
fn await_same(node: &Node, server: &RedisServer) {
    wait_until("the server has caught up", BOUND, || {
        let status = node.place.standby.feed_status();
        let mut client = server.client();
        info(&mut client, "master_link_status") == "up"
            && info(&mut client, "master_replid") == status.id.to_string()
            && info(&mut client, "master_repl_offset") == status.offset.to_string()
    });
}

/// A redis-server, a store that follows it, and a store and a redis-server that follow that.
fn chain() -> (RedisServer, Node, Node, RedisServer) {
    let from = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let (middle, last) = (Node::start(), Node::start());
    middle.place.follow(from.address());
    middle.await_online();
    last.place.follow(middle.address);
    let server = replica_of(middle.address);
    last.await_online();
    middle.await_caught_up(2);
    (from, middle, last, server)
}

#[test]
fn replicas_of_a_replica_have_the_offsets_of_its_primary_and_go_on_after_cuts() {
    let _watchdog = watchdog(Duration::from_secs(180), "a chain of replicas");
    let (from, middle, last, server) = chain();
    let before = full_resyncs(&server);
    let writer = Writer::start(from.address(), 3000, || {});
    for round in 1..=5 {
        let applied = middle.place.status().applied;
        wait_until("writes", BOUND, || middle.place.status().applied > applied + 200);
        middle.cut();
        wait_until("a link again", BOUND, || last.resyncs().1 >= round);
    }
    writer.end();
    // How much of a stream a group has read is not in the stream of Redis: its replicas know less
    // of that than it does, and all the same.
    middle.place.await_same_offset(&mut from.client());
    last.place.await_same_offset(&mut from.client());
    await_same(&middle, &server);
    last.place.assert_like(&middle.place);
    last.place.assert_equal(&server);
    assert_eq!(last.resyncs().0, 1, "what was missed is kept");
    assert_eq!(full_resyncs(&server), before, "what was missed is kept");
}

#[test]
fn a_replica_that_becomes_a_primary_keeps_its_fellows_and_its_old_primary_comes_to_it() {
    let _watchdog = watchdog(Duration::from_secs(180), "a replica that is promoted");
    let (from, middle, last, server) = chain();
    from.client().pipeline(&["SELECT 2", "SET before v", "RPUSH list a b"]);
    middle.place.await_same_offset(&mut from.client());
    let before = full_resyncs(&server);
    let old = middle.place.standby.replication_id();
    assert!(middle.place.standby.promote());
    let status = middle.place.standby.feed_status();
    assert_eq!(status.second.map(|(id, _)| id), Some(old));
    let mut random = Random::new(5);
    middle.write(&mut random, 500);
    middle.await_caught_up(2);
    // The old primary has nothing that the new one lacks.
    let port = middle.address.port().to_string();
    from.client().words(&format!("REPLICAOF 127.0.0.1 {port}"));
    middle.await_caught_up(3);
    middle.write(&mut random, 500);
    middle.await_caught_up(3);
    await_same(&middle, &server);
    await_same(&middle, &from);
    middle.place.assert_equal(&server);
    middle.place.assert_equal(&from);
    last.place.assert_equal(&from);
    assert_eq!(last.resyncs().0, 1, "the fellow goes on");
    assert_eq!(full_resyncs(&server), before, "the fellow goes on");
    assert!(from.process().log().contains("Successful partial resynchronization"));
}

#[test]
fn valkey_follows_a_store_goes_on_after_a_cut_and_takes_over() {
    // Making the environment takes long the first time.
    let _watchdog = watchdog(Duration::from_secs(240), "Valkey as a replica");
    let program = program();
    let node = Node::start();
    let mut random = Random::new(3);
    node.write(&mut random, 500);
    let port = node.address.port().to_string();
    let valkey = Valkey::start(&program, &["--replicaof", "127.0.0.1", &port]);
    node.await_caught_up(1);
    node.cut();
    node.write(&mut random, 500);
    node.await_caught_up(1);
    assert!(valkey.log().contains("Successful partial resynchronization"), "{}", valkey.log());
    valkey.client().words("REPLICAOF NO ONE");
    node.place.follow(valkey.address);
    node.await_online();
    assert_eq!(node.resyncs(), (0, 1), "it goes on where it was");
    wait_until("the same keys", BOUND, || {
        let keys = valkey.client().words("DBSIZE").integer();
        node.place.ask("DBSIZE") == Reply::Integer(keys)
    });
}

#[test]
fn a_primary_becomes_the_replica_of_its_replica_without_a_snapshot() {
    let _watchdog = watchdog(Duration::from_secs(120), "a primary that is demoted");
    let node = Node::start();
    let mut random = Random::new(7);
    node.write(&mut random, 300);
    let server = replica_of(node.address);
    node.await_caught_up(1);
    node.write(&mut random, 300);
    node.await_caught_up(1);
    // The question for its offset is a part of the stream, and may come behind the answer.
    await_same(&node, &server);
    server.client().words("REPLICAOF NO ONE");
    node.place.follow(server.address());
    node.await_online();
    assert_eq!(node.resyncs(), (0, 1), "it goes on where it was");
    server.client().words("SET after v");
    node.place.assert_same(&server);
    assert!(node.place.store.is_replica());
}

#[test]
fn a_primary_that_wrote_more_than_its_successor_has_takes_a_snapshot() {
    let _watchdog = watchdog(Duration::from_secs(120), "a primary with writes of its own");
    let (one, other) = (Node::start(), Node::start());
    let mut random = Random::new(9);
    one.write(&mut random, 300);
    other.place.follow(one.address);
    other.await_online();
    one.await_caught_up(1);
    other.place.standby.promote();
    one.write(&mut random, 50);
    other.write(&mut random, 50);
    one.place.follow(other.address);
    one.await_online();
    assert_eq!(one.resyncs(), (1, 0));
    other.await_caught_up(1);
    one.place.assert_like(&other.place);
}

#[test]
fn roles_that_change_by_chance_lose_nothing_that_was_acknowledged() {
    const ROUNDS: usize = 30;
    let _watchdog = watchdog(Duration::from_secs(300), "roles that change");
    let nodes = [Node::start(), Node::start(), Node::start()];
    let mut random = Random::new(11);
    let mut primary = 0;
    let mut snapshots = 0;
    for round in 0..ROUNDS {
        for (index, node) in nodes.iter().enumerate().filter(|(index, _)| *index != primary) {
            let is_linked = round > 0 && node.place.standby.status().is_some();
            // Some follow a replica.
            let other = (0..nodes.len()).find(|other| *other != index && *other != primary);
            let is_chained = random.below(3) == 0 && index == 2;
            let to = if is_chained { other.unwrap_or(primary) } else { primary };
            if to != primary {
                nodes[to].place.follow(nodes[primary].address);
            }
            if !is_linked || random.below(2) == 0 {
                node.place.follow(nodes[to].address);
            }
        }
        nodes[primary].write(&mut random, 200);
        if random.below(3) == 0 {
            nodes[random.below(3)].cut();
        }
        nodes[primary].write(&mut random, 100);
        let offset = nodes[primary].place.store.effects_offset();
        for node in nodes.iter().filter(|node| node.place.store.is_replica()) {
            wait_until("a replica has everything", BOUND, || {
                let status = node.place.standby.feed_status();
                let id = nodes[primary].place.standby.replication_id();
                status.id == id && status.offset >= offset
            });
        }
        for node in nodes.iter().filter(|node| node.place.store.is_replica()) {
            node.place.assert_like(&nodes[primary].place);
        }
        snapshots = nodes.iter().map(Node::snapshots).sum();
        let next = random.below(nodes.len());
        if next != primary {
            assert!(nodes[next].place.standby.promote());
            let place = &nodes[primary].place;
            place.follow(nodes[next].address);
            primary = next;
            // Who followed the old primary finds it there as a replica, at the same offsets.
        }
    }
    assert!(snapshots <= 4, "{snapshots} snapshots, and two are needed at the start");
}

impl Node {
    fn snapshots(&self) -> u64 {
        self.place.standby.status().map_or(0, |status| status.link.full_resyncs)
    }
}
