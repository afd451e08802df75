use super::*;
use crate::core::tests::{client, connected_core};

/// Returns a server's reply to a subscription to one channel.
fn confirmed(name: &str) -> String {
    format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{name}\r\n:1\r\n", name.len())
}

#[test]
fn who_waits_for_a_subscription_is_noted_once_and_only_while_it_waits() {
    let mut core = connected_core();
    let (first, second) = (client(&mut core), client(&mut core));
    core.on_client_bytes(first, b"SUBSCRIBE n0\r\n");
    core.settle_upstream();
    core.on_subscriber_connecting(0);
    core.on_subscriber_connected(0, Socket(9));
    for round in 0..100 {
        let bytes = confirmed(&format!("n{round}"));
        core.on_subscriber_bytes(0, bytes.as_bytes()).unwrap();
        assert!(core.plane.pubsub.pending.is_empty(), "round {round}");
        let next = format!("SUBSCRIBE n{}\r\n", round + 1);
        core.on_client_bytes(first, next.as_bytes());
        assert_eq!(core.plane.pubsub.pending.len(), 1, "round {round}");
        let len = core.plane.pubsub.slots[0].link.unsent().len();
        core.plane.pubsub.slots[0].link.advance(len);
    }
    core.on_client_bytes(second, b"SUBSCRIBE n100 other\r\n");
    assert_eq!(core.plane.pubsub.pending.len(), 2);
    core.remove_session(first, None);
    assert_eq!(core.plane.pubsub.pending.len(), 1);
    core.remove_session(second, None);
    assert!(core.plane.pubsub.pending.is_empty());
}
