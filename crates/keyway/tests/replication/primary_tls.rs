//! Replicas that come to a pool over TLS, and through rings in shared memory.

use std::time::Duration;

use keyway_testkit::certificates::CertificateFiles;
use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, TempDir, Value, encode_words, free_address,
    free_port, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const BOUND: Duration = Duration::from_secs(30);

fn info(client: &mut Client, name: &str) -> String {
    let info = client.words("INFO replication").text();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

fn await_same(from: &mut Client, to: &mut Client) {
    wait_until("the replica has caught up", BOUND, || {
        info(to, "master_link_status") == "up"
            && info(to, "master_replid") == info(from, "master_replid")
            && info(to, "master_repl_offset") == info(from, "master_repl_offset")
    });
}

/// A redis-server that follows a port over TLS.
fn redis_of(port: u16, files: &CertificateFiles) -> RedisServer {
    let mut options = files.redis_options(free_port(), "server");
    let follows = ["--tls-replication", "yes", "--replicaof", "127.0.0.1", &port.to_string()];
    options.extend(follows.map(str::to_owned));
    RedisServer::start_with(&options.iter().map(String::as_str).collect::<Vec<_>>())
}

fn write(client: &mut Client, from: usize) {
    for nth in from..from + 2000 {
        let value = format!("{nth}:{}", "v".repeat(nth % 700));
        assert_eq!(client.command(&["SET", &format!("k{nth}"), &value]), Value::simple("OK"));
    }
    let long = "x".repeat(3 << 20);
    assert_eq!(client.command(&["SET", &format!("long{from}"), &long]), Value::simple("OK"));
}

fn has_all(client: &mut Client, to: usize) {
    for nth in 0..to {
        let value = format!("{nth}:{}", "v".repeat(nth % 700));
        assert_eq!(client.words(&format!("GET k{nth}")), Value::bulk(value));
    }
    for from in (0..to).step_by(2000) {
        assert_eq!(client.words(&format!("STRLEN long{from}")), Value::Integer(3 << 20));
    }
}

#[test]
fn replicas_follow_a_pool_over_tls_through_cuts_and_a_stop() {
    let _watchdog = watchdog(Duration::from_secs(150), "replicas over TLS");
    let (files, folder, secured) = (CertificateFiles::default(), TempDir::new(), free_address());
    let file = |kind| files.path(&format!("server.{kind}"));
    let ring = folder.path().join("shm");
    let listeners = format!(
        "[[listener]]\nbind = \"tcp://{secured}\"\npool = \"main\"\n\
         tls = {{ cert_file = {:?}, key_file = {:?} }}\n\
         [[listener]]\nbind = \"shm://{}\"\npool = \"main\"\n",
        file("pem"),
        file("key"),
        ring.display()
    );
    let pool = || Pool::store("main").with("memory_max", "\"256MiB\"");
    let config = KeywayConfig::new(vec![pool()]).with_server("workers", "2");
    let keyway = Keyway::start(KEYWAY, config.with_tables(&listeners));
    let mut client = keyway.client(0);
    write(&mut client, 0);
    let server = redis_of(secured.port(), &files);
    let follower = pool()
        .with("replica_of", &format!("\"rediss://{secured}\""))
        .with("replica_tls", &format!("{{ ca_file = {:?} }}", files.path("ca.pem")));
    let other = Keyway::start(KEYWAY, KeywayConfig::new(vec![follower]));
    let (mut at_server, mut at_other) = (server.client(), other.client(0));
    await_same(&mut client, &mut at_server);
    await_same(&mut client, &mut at_other);
    write(&mut client, 2000);
    assert_eq!(client.words("WAIT 2 20000"), Value::Integer(2));
    has_all(&mut at_server, 4000);
    has_all(&mut at_other, 4000);
    // A cut: the replica goes on where it was.
    assert_eq!(client.words("CLIENT LIST").text().lines().count(), 1, "they are no clients");
    at_other.words("REPLICAOF NO ONE");
    wait_until("one is left", BOUND, || info(&mut client, "connected_slaves") == "1");
    at_other.words(&format!("REPLICAOF {} {}", secured.ip(), secured.port()));
    await_same(&mut client, &mut at_other);
    // Rings in shared memory lead to the feed as well.
    let mut by_ring = Client::connect_shm(&ring);
    by_ring.send(&encode_words("PSYNC ? -1"));
    wait_until("a third one", BOUND, || info(&mut client, "connected_slaves") == "3");
    drop(by_ring);
    wait_until("it has left", BOUND, || info(&mut client, "connected_slaves") == "2");
    drop(server);
    wait_until("one is left", BOUND, || info(&mut client, "connected_slaves") == "1");
    drop(client);
    keyway.stop(BOUND);
    wait_until("the link is down", BOUND, || info(&mut at_other, "master_link_status") == "down");
    has_all(&mut at_other, 4000);
}
