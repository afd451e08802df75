//! The harness's own clusters: they come up, and do what they are told.

#![allow(clippy::disallowed_methods, reason = "says how long a cluster takes to come up")]

use keyway_testkit::{
    CLUSTER_SLOTS, Client, Failover, RedisCluster, Value, cluster_slot, wait_until, watchdog,
};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(90);

/// A key of `slot`, one of many.
fn key_in(slot: u16, nth: usize) -> String {
    let tag = (0..).map(|number| format!("t{number}"));
    let tag = tag.into_iter().find(|tag| cluster_slot(tag.as_bytes()) == slot).unwrap();
    format!("{{{tag}}}:{nth}")
}

fn set(client: &mut Client, key: &str, value: &str) -> Value {
    client.command(&["SET", key, value])
}

#[test]
fn three_primaries_with_a_replica_each_come_up_and_are_whole() {
    let _watchdog = watchdog(WITHIN, "a cluster comes up");
    let started = Instant::now();
    let cluster = RedisCluster::start(3, 1);
    println!("3 primaries and 3 replicas took {:.1} s", started.elapsed().as_secs_f32());
    assert_eq!(cluster.node_count(), 6);
    assert_eq!(cluster.addresses().iter().collect::<BTreeSet<_>>().len(), 6);
    assert_eq!(cluster.primaries(), [0, 1, 2]);
    let mut next = 0;
    for primary in 0..3 {
        assert_eq!(cluster.replicas_of(primary), [primary + 3]);
        let [(first, last)] = cluster.slots_of(primary)[..] else { panic!("one range") };
        assert_eq!(first, next);
        next = last + 1;
        for slot in [first, last] {
            assert_eq!(cluster.primary_of_slot(slot), Some(primary));
        }
        assert_eq!(cluster.node_at(cluster.address(primary)), Some(primary));
    }
    assert_eq!(next, CLUSTER_SLOTS);
    for key in ["", "a", "{b}c", "a{}b", "123456789"] {
        let slot = cluster.client(0).command(&["CLUSTER", "KEYSLOT", key]).integer();
        assert_eq!(slot, i64::from(cluster_slot(key.as_bytes())), "{key}");
    }
    // What a primary takes its replica has, and the others point to it.
    let owner = cluster.primary_of_slot(cluster_slot(b"a")).unwrap();
    assert_eq!(set(&mut cluster.client(owner), "a", "1"), Value::simple("OK"));
    let mut replica = cluster.client(owner + 3);
    assert_eq!(replica.words("READONLY"), Value::simple("OK"));
    wait_until("the replica has it", WITHIN, || replica.words("GET a") == Value::bulk("1"));
    let moved = cluster.ask((owner + 1) % 3, "GET a").error_text();
    let expected = format!("MOVED {} {}", cluster_slot(b"a"), cluster.address(owner));
    assert_eq!(moved, expected);
}

#[test]
fn a_dead_primary_is_replaced_and_comes_back_as_a_replica() {
    let _watchdog = watchdog(WITHIN, "a primary dies");
    let mut cluster = RedisCluster::start(3, 1);
    cluster.kill(1);
    cluster.wait_primary(4);
    cluster.wait_settled();
    assert_eq!(cluster.primary_of_slot(8000), Some(4));
    assert_eq!(cluster.primaries(), [0, 2, 4]);
    cluster.restart(1);
    wait_until("the old primary is a replica", WITHIN, || cluster.replicas_of(4) == [1]);
    cluster.wait_settled();
    // By hand, agreed: it is the primary again.
    cluster.failover(1);
    cluster.wait_settled();
    assert_eq!(cluster.primary_of_slot(8000), Some(1));
    // A stopped primary is not asked, and its replica takes over by itself.
    cluster.pause(1);
    cluster.failover_by(4, Failover::Takeover);
    assert_eq!(cluster.primary_of_slot(8000), Some(4));
    cluster.resume(1);
    wait_until("it has heard of it", WITHIN, || cluster.replicas_of(4) == [1]);
}

#[test]
fn slots_move_with_their_keys_and_stop_half_way() {
    let _watchdog = watchdog(WITHIN, "slots move");
    let cluster = RedisCluster::start(3, 0);
    let slot = 7;
    let mut source = cluster.client(0);
    for nth in 0..10 {
        assert_eq!(set(&mut source, &key_in(slot, nth), "v"), Value::simple("OK"));
    }
    let mut on_the_way = cluster.begin_move(0, 2, slot);
    assert_eq!((on_the_way.slot(), on_the_way.move_keys(4)), (slot, 4));
    let counted = format!("CLUSTER COUNTKEYSINSLOT {slot}");
    assert_eq!(
        (cluster.ask(0, &counted), cluster.ask(2, &counted)),
        (Value::Integer(6), Value::Integer(4))
    );
    let asked = source.command(&["GET", &key_in(slot, 99)]).error_text();
    assert_eq!(asked, format!("ASK {slot} {}", cluster.address(2)));
    assert_eq!(cluster.primary_of_slot(slot), Some(0));
    // Keys of both nodes at once have to wait.
    let keys: Vec<String> = (0..10).map(|nth| key_in(slot, nth)).collect();
    let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
    let both = source.command(&words).error_text();
    assert!(both.starts_with("TRYAGAIN"), "{both}");
    while on_the_way.move_keys(4) > 0 {}
    on_the_way.finish();
    assert_eq!(cluster.primary_of_slot(slot), Some(2));
    let mut target = cluster.client(2);
    assert_eq!(target.command(&words).array().len(), 10);
    cluster.move_slots(0, 2, 100..300);
    cluster.wait_settled();
    assert_eq!(cluster.slots_of(0), [(0, 6), (8, 99), (300, 5460)]);
    cluster.begin_move(1, 0, 6000).cancel();
    assert_eq!(cluster.primary_of_slot(6000), Some(1));
}

#[test]
fn slots_move_while_they_are_written() {
    let _watchdog = watchdog(WITHIN, "slots move under load");
    let cluster = RedisCluster::start(3, 0);
    let keys: Vec<String> =
        (0..20).flat_map(|slot| (0..5).map(move |nth| key_in(slot, nth))).collect();
    let addresses = cluster.addresses();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut clients: Vec<Client> =
                addresses.iter().map(|at| Client::connect(*at)).collect();
            let mut rounds = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) || rounds == 0 {
                rounds += 1;
                for key in &keys {
                    write_through(&mut clients, &addresses, key, &rounds.to_string());
                }
            }
            rounds
        });
        for _ in 0..3 {
            cluster.move_slots(0, 1, 0..20);
            cluster.move_slots(1, 0, 0..20);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let rounds = writer.join().unwrap();
        for key in &keys {
            assert_eq!(cluster.client(0).command(&["GET", key]), Value::bulk(rounds.to_string()));
        }
    });
}

/// A write as a cluster client does it: follows MOVED and ASK.
fn write_through(
    clients: &mut [Client],
    addresses: &[std::net::SocketAddr],
    key: &str,
    value: &str,
) {
    let (mut node, mut is_asking) = (0, false);
    for _ in 0..1000 {
        if is_asking {
            assert_eq!(clients[node].words("ASKING"), Value::simple("OK"));
        }
        let reply = clients[node].command(&["SET", key, value]);
        if reply == Value::simple("OK") {
            return;
        }
        let text = reply.error_text();
        let place = text.rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{text}"));
        node = addresses.iter().position(|address| *address == place).unwrap();
        is_asking = text.starts_with("ASK ");
    }
    panic!("{key} is sent around in circles");
}

#[test]
fn nodes_are_added_and_forgotten() {
    let _watchdog = watchdog(WITHIN, "nodes come and go");
    let mut cluster = RedisCluster::start(3, 0);
    let added = cluster.add_node();
    assert_eq!(cluster.primaries(), [0, 1, 2, added]);
    cluster.move_slots(0, added, 0..50);
    cluster.wait_settled();
    assert_eq!(cluster.slots_of(added), [(0, 49)]);
    let replica = cluster.add_replica(added);
    assert_eq!(cluster.replicas_of(added), [replica]);
    cluster.failover(replica);
    cluster.wait_settled();
    cluster.forget(added);
    cluster.wait_settled();
    assert_eq!(cluster.primaries(), [0, 1, 2, replica]);
    assert_eq!(cluster.primary_of_slot(7), Some(replica));
    let known = cluster.ask(added, "CLUSTER NODES").text();
    assert_eq!(known.lines().count(), 1, "{known}");
    // A dead one is forgotten too.
    let dead = cluster.add_node();
    cluster.kill(dead);
    cluster.forget(dead);
    let known = cluster.ask(0, "CLUSTER NODES").text();
    assert_eq!(known.lines().count(), 4, "{known}");
}

#[test]
fn a_password_is_said_everywhere() {
    let _watchdog = watchdog(WITHIN, "a cluster with a password");
    let cluster = RedisCluster::start_with(3, 1, &[], Some("s3cret"));
    let refused = Client::connect(cluster.address(0)).words("GET a").error_text();
    assert!(refused.starts_with("NOAUTH"), "{refused}");
    let key = key_in(3, 0);
    assert_eq!(set(&mut cluster.client(0), &key, "v"), Value::simple("OK"));
    cluster.move_slots(0, 1, [3]);
    assert_eq!(cluster.client(1).command(&["GET", &key]), Value::bulk("v"));
}
