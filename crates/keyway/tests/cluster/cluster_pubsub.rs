//! Subscribers on a cluster whose slots move and whose servers fail.

use crate::cluster_setup::{key_of, serve};
use keyway_testkit::{Client, Keyway, RedisCluster, Value, wait_until, watchdog};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);

/// Publishes numbers until `ear` receives one. Then publishes some more, each of which must be
/// received once and in order.
fn expect_heard_again(keyway: &Keyway, ear: &mut Client, publish: &str, from: u32) -> u32 {
    let mut client = keyway.client(0);
    let mut number = from;
    ear.set_reply_within(Duration::from_millis(100));
    let heard = |reply: &Value| reply.array().last().map(Value::text);
    wait_until("a message is heard", WITHIN, || {
        number += 1;
        let _ = client.words(&format!("{publish} {number}"));
        let mut last = None;
        while let Ok(reply) = ear.try_reply() {
            assert!(reply.array()[0].text().ends_with("message"), "{reply:?}");
            last = heard(&reply);
        }
        last == Some(number.to_string())
    });
    ear.set_reply_within(Duration::from_secs(10));
    for next in number + 1..number + 50 {
        assert!(!client.words(&format!("{publish} {next}")).is_error());
        assert_eq!(heard(&ear.reply()), Some(next.to_string()));
    }
    ear.set_reply_within(Duration::from_millis(100));
    assert!(ear.try_reply().is_err(), "nothing comes twice");
    number + 50
}

/// Expects that no message received meanwhile comes twice.
fn expect_in_order(ear: &mut Client) {
    ear.set_reply_within(Duration::from_millis(100));
    let mut before = 0_u32;
    while let Ok(reply) = ear.try_reply() {
        let heard = reply.array().last().map(Value::text).and_then(|text| text.parse().ok());
        assert!(heard > Some(before), "{reply:?} behind {before}");
        before = heard.unwrap_or(before);
    }
}

#[test]
fn subscribers_hear_again_when_slots_moved_and_when_a_primary_died() {
    let _watch = watchdog(WITHIN * 3, "subscribers");
    let mut cluster = RedisCluster::start(3, 1);
    let keyway = serve(&cluster, &[("timeout", "\"1s\""), ("refresh", "\"1s\"")], 1);
    let channel = key_of(5, "ch");
    let mut ears = [keyway.client(0), keyway.client(0), keyway.client(0)];
    ears[0].words(&format!("SSUBSCRIBE {channel}"));
    ears[1].words(&format!("SUBSCRIBE {channel}"));
    ears[2].words("PSUBSCRIBE *ch");
    let publish =
        [format!("SPUBLISH {channel}"), format!("PUBLISH {channel}"), format!("PUBLISH {channel}")];
    let mut number = 0;
    let mut expect_all = |ears: &mut [Client; 3]| {
        for (ear, publish) in ears.iter_mut().zip(&publish) {
            expect_in_order(ear);
            number = expect_heard_again(&keyway, ear, publish, number);
        }
    };
    expect_all(&mut ears);
    cluster.move_slots(0, 1, 0..20);
    expect_all(&mut ears);
    cluster.failover(4);
    cluster.wait_settled();
    expect_all(&mut ears);
    for node in [4, 2] {
        cluster.kill(node);
        let other = if node == 4 { 1 } else { 5 };
        cluster.wait_primary(other);
        cluster.wait_settled();
        expect_all(&mut ears);
    }
}

/// The slot of a channel moves back and forth while numbers are published to the channel. A
/// subscriber receives each of them once, as at any server of the cluster.
#[test]
fn nothing_is_lost_or_heard_twice_while_the_slot_of_a_channel_moves() {
    let _watch = watchdog(WITHIN * 2, "subscribers whose slot moves");
    let cluster = RedisCluster::start(3, 0);
    let keyway = serve(&cluster, &[("refresh", "\"200ms\"")], 1);
    let channel = key_of(5, "ch");
    let mut ears = [keyway.client(0), keyway.client(0)];
    ears[0].words(&format!("SUBSCRIBE {channel}"));
    ears[1].words("PSUBSCRIBE *ch");
    let mut client = keyway.client(0);
    let (mut number, mut told) = (0_u32, Vec::new());
    for round in 0..6 {
        let (from, to) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        cluster.move_slots(from, to, 0..20);
        // Requests for keys of the slot tell Keyway of the move.
        for _ in 0..200 {
            number += 1;
            assert!(!client.words(&format!("SET {} {number}", key_of(5, "key"))).is_error());
            assert!(!client.words(&format!("PUBLISH {channel} {number}")).is_error());
            told.push(number);
        }
    }
    for ear in &mut ears {
        ear.set_reply_within(Duration::from_secs(2));
        let mut heard: Vec<u32> = Vec::new();
        while heard.len() < told.len() {
            let Ok(reply) = ear.try_reply() else { break };
            heard.push(reply.array().last().unwrap().text().parse().unwrap());
        }
        ear.set_reply_within(Duration::from_millis(200));
        assert!(ear.try_reply().is_err(), "something came twice");
        // Two servers exchange their messages over connections of their own.
        heard.sort_unstable();
        assert_eq!(heard, told);
    }
}

#[test]
fn who_listens_at_a_server_that_dies_listens_at_another_at_once() {
    let _watch = watchdog(WITHIN * 2, "subscribers of a server that dies");
    // There are no replicas, so no server takes the slots over, and no map ever changes.
    let mut cluster = RedisCluster::start(3, 0);
    let keyway = serve(&cluster, &[("timeout", "\"1s\""), ("refresh", "\"60s\"")], 1);
    let mut ears = [keyway.client(0), keyway.client(0)];
    ears[0].words("SUBSCRIBE channel");
    ears[1].words("PSUBSCRIBE c*nel");
    let subscribers = |cluster: &RedisCluster, node| {
        let numbers = cluster.ask(node, "PUBSUB NUMSUB channel");
        (numbers.array()[1].clone(), cluster.ask(node, "PUBSUB NUMPAT"))
    };
    let one = Value::Integer(1);
    let at = |cluster: &RedisCluster, nodes: &[usize], channel: bool| {
        let has = |&node: &usize| {
            let (channels, patterns) = subscribers(cluster, node);
            if channel { channels == one } else { patterns == one }
        };
        nodes.iter().copied().find(has)
    };
    let soon = Duration::from_secs(4);
    let mut alive = vec![0, 1, 2];
    for is_channel in [true, false] {
        let dies = at(&cluster, &alive, is_channel).expect("one server is asked");
        cluster.kill(dies);
        alive.retain(|&node| node != dies);
        for is_channel in [true, false] {
            wait_until("another is asked", soon, || at(&cluster, &alive, is_channel).is_some());
        }
        let text = alive.len().to_string();
        assert!(!cluster.ask(alive[0], &format!("PUBLISH channel {text}")).is_error());
        for ear in &mut ears {
            assert_eq!(ear.reply().array().last(), Some(&Value::bulk(&text)));
            ear.set_reply_within(Duration::from_millis(100));
            assert!(ear.try_reply().is_err(), "{text} left: nothing comes twice");
            ear.set_reply_within(Duration::from_secs(10));
        }
        // A new subscriber is served by a server that is up.
        let mut late = keyway.client(0);
        assert_eq!(late.words("SUBSCRIBE channel").array()[2], Value::Integer(1));
    }
}
