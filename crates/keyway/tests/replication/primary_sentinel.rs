//! Two Keyways behind stock sentinels: the primary is killed again and again, the other takes over,
//! and a pool of kind `replicated` follows.

use std::net::SocketAddr;
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, Sentinels, Signal, Value, encode_words, free_address,
    wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const BOUND: Duration = Duration::from_secs(40);
const ROUNDS: usize = 20;

/// A node at an address that it has again after a restart.
fn node(at: SocketAddr, primary: Option<SocketAddr>) -> Keyway {
    let replica_of =
        primary.map(|primary| format!("replica_of = \"redis://{primary}\"\n")).unwrap_or_default();
    let text = format!(
        "[[listener]]\nbind = \"tcp://{at}\"\npool = \"main\"\n\
         [pool.main]\nkind = \"store\"\nmemory_max = \"64MiB\"\n{replica_of}"
    );
    Keyway::start_text(KEYWAY, &text, vec![at])
}

/// A field of INFO replication; empty if the node does not answer. Each question has a connection
/// of its own, as sentinels disconnect the clients of a node whose role they change.
fn info(node: &Keyway, name: &str) -> String {
    let Ok(mut client) = Client::try_connect(node.address(0)) else { return String::new() };
    let request = encode_words("INFO replication");
    let Ok(reply) = client.try_send(&request).map(|()| client.try_reply()) else {
        return String::new();
    };
    let info = reply.map_or_else(|_| String::new(), |info| info.text());
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

fn proxy(sentinels: &Sentinels) -> Keyway {
    let listed: Vec<String> =
        sentinels.addresses().iter().map(|address| format!("\"{address}\"")).collect();
    let pool = Pool::of_kind("main", "replicated")
        .with("sentinels", &format!("[{}]", listed.join(", ")))
        .with("primaries", "[\"mymaster\"]")
        .with("refresh", "\"200ms\"")
        .with("timeout", "\"2s\"");
    Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]))
}

#[test]
fn sentinels_fail_over_between_two_keyways_that_are_killed_in_turn() {
    let _watchdog = watchdog(Duration::from_secs(590), "nodes that are killed in turn");
    let addresses = [free_address(), free_address()];
    let mut nodes = [node(addresses[0], None), node(addresses[1], Some(addresses[0]))];
    wait_until("a link", BOUND, || info(&nodes[1], "master_link_status") == "up");
    let sentinels = Sentinels::watching(3, 2, ("mymaster", addresses[0]), 1);
    let proxy = proxy(&sentinels);
    let mut writer = proxy.client(0);
    let mut primary = 0;
    for round in 0..ROUNDS {
        let key = format!("round:{round}");
        wait_until("a write through the proxy", BOUND, || {
            writer.command(&["SET", &key, "v"]) == Value::simple("OK")
        });
        let mut at_primary = nodes[primary].client(0);
        assert_eq!(at_primary.words("WAIT 1 20000"), Value::Integer(1), "round {round}");
        nodes[primary].process().signal(Signal::KILL);
        let successor = 1 - primary;
        sentinels.wait_primary("mymaster", |address| address == addresses[successor]);
        // It comes back as a primary without data, until the sentinels notice it.
        nodes[primary] = node(addresses[primary], None);
        wait_until("the old primary follows", BOUND, || {
            info(&nodes[primary], "master_port") == addresses[successor].port().to_string()
                && info(&nodes[primary], "master_link_status") == "up"
        });
        sentinels.wait_known("mymaster", 1);
        let mut at_old = nodes[primary].client(0);
        for before in 0..=round {
            let key = format!("round:{before}");
            assert_eq!(at_old.command(&["GET", &key]), Value::bulk("v"), "round {round}, {key}");
        }
        primary = successor;
    }
}
