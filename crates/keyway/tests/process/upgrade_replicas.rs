//! An upgrade of stores that have replicas, and of stores that are some.
//!
//! Writers note what was acknowledged, before, during and after. All of it is there at the end, at
//! every server, and a replica that has missed nothing takes no second snapshot.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Signal, TempDir, Value, encode_words,
    wait_until, watchdog,
};

use crate::upgrading::{KEYWAY, SOON, Upgrading};

const DISKLESS: [&str; 4] = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];

fn pools(more: &[(&str, &str)]) -> Vec<Pool> {
    let store = Pool::store("kept").with("memory_max", "\"256MiB\"");
    vec![more.iter().fold(store, |pool, (key, value)| pool.with(key, value))]
}

fn start(more: &[(&str, &str)]) -> Upgrading {
    Upgrading::start(pools(more), &[("workers", "2")], "")
}

fn follower_of(address: SocketAddr) -> Keyway {
    let url = format!("\"redis://{address}\"");
    let config = KeywayConfig::new(pools(&[("replica_of", &url)])).with_server("workers", "2");
    Keyway::start(KEYWAY, config)
}

fn redis_of(address: SocketAddr) -> RedisServer {
    RedisServer::start_with(&["--replicaof", "127.0.0.1", &address.port().to_string()])
}

fn info(client: &mut Client, name: &str) -> String {
    let info = client.words("INFO replication").text();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

fn await_up(client: &mut Client) {
    wait_until("the link is up", SOON, || info(client, "master_link_status") == "up");
}

/// Waits until a replica has what its primary has. Nobody writes.
fn await_same(from: &mut Client, to: &mut Client) {
    wait_until("the replica has caught up", SOON, || {
        info(to, "master_link_status") == "up"
            && info(to, "master_replid") == info(from, "master_replid")
            && info(to, "slave_repl_offset") == info(from, "master_repl_offset")
    });
}

/// Threads that write counters until they are stopped.
struct Writers {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Writers {
    fn start(clients: Vec<Client>) -> Self {
        let is_over: Arc<AtomicBool> = Arc::default();
        let threads = (0..).zip(clients).map(|(number, mut client)| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                let mut written = 0;
                while !is_over.load(Ordering::Relaxed) {
                    written += 1;
                    let reply = client.words(&format!("INCR counter:{number}"));
                    assert_eq!(reply, Value::Integer(written as i64));
                    let line = format!("HSET all:{number} {} {written}", written % 997);
                    assert!(!client.words(&line).is_error());
                }
                written
            })
        });
        Self { threads: threads.collect(), is_over }
    }

    /// Returns what each has written.
    fn stop(self) -> Vec<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().expect("a writer")).collect()
    }
}

/// All that the writers have written is there.
fn has_all(client: &mut Client, written: &[u64]) {
    for (number, written) in written.iter().enumerate() {
        assert_eq!(
            client.words(&format!("GET counter:{number}")),
            Value::bulk(written.to_string())
        );
        let mut fields = client.words(&format!("HGETALL all:{number}")).array().to_vec();
        assert_eq!(fields.len() as u64, 2 * (*written).min(997));
        let values = fields.drain(..).map(|it| it.text().parse::<u64>().unwrap_or_default());
        let values: Vec<u64> = values.collect();
        for pair in values.chunks(2) {
            assert_eq!(pair[1] % 997, pair[0]);
            assert!(pair[1] + 997 > *written && pair[1] <= *written, "{pair:?} of {written}");
        }
    }
}

fn await_end(it: &Upgrading, pid: u32) {
    wait_until("the process before has ended", SOON, || !it.is_alive(pid));
}

/// Waits until a process that was killed has given its files up.
fn await_killed(pid: u32) {
    wait_until("it is gone", SOON, || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        // The files are open until the last of its threads has ended.
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        status.is_empty() || status.contains("State:\tZ") && threads <= 1
    });
}

#[test]
fn replicas_of_an_upgraded_store_go_on_without_a_snapshot_and_no_write_is_refused() {
    let _watch = watchdog(Duration::from_secs(240), "upgrades of a primary with replicas");
    let it = start(&[("replication", "{ min_replicas = 1, backlog = \"4MiB\" }")]);
    let server = redis_of(it.keyway.address(0));
    let other = follower_of(it.keyway.address(0));
    let chained = redis_of(other.address(0));
    let replicas = [&mut server.client(), &mut other.client(0), &mut chained.client()];
    replicas.into_iter().for_each(await_up);
    let mut client = it.keyway.client(0);
    wait_until("writes are served", SOON, || !client.words("SET first 1").is_error());
    let writers = Writers::start((0..4).map(|_| it.keyway.client(0)).collect());
    for round in 1..=3 {
        let before = it.pid();
        let mut waiting = it.keyway.client(0);
        waiting.send(&encode_words("WAIT 7 6000"));
        it.upgrade();
        assert_eq!(client.words("WAIT 2 20000"), Value::Integer(2), "round {round}");
        // Until its time is over it waits on.
        assert_eq!(waiting.reply(), Value::Integer(2), "round {round}");
        await_end(&it, before);
    }
    let written = writers.stop();
    let mut at = [server.client(), other.client(0), chained.client()];
    let [at_server, at_other, at_chained] = &mut at;
    await_same(&mut client, at_server);
    await_same(&mut client, at_other);
    await_same(at_other, at_chained);
    has_all(&mut client, &written);
    at.iter_mut().for_each(|client| has_all(client, &written));
    let log = server.process().log();
    assert_eq!(log.matches("Full resync from master").count(), 1, "{log}");
    let log = chained.process().log();
    assert_eq!(log.matches("Full resync from master").count(), 1, "{log}");
    let log = other.process().log();
    assert!(log.contains("full_resyncs=1") && !log.contains("full_resyncs=2"), "{log}");
}

/// Has the next process begin two seconds after it was started.
fn begin_late(it: &Upgrading) {
    let program = keyway_testkit::keyway_binary(KEYWAY);
    it.install_script("late", &format!("sleep 2\nexec {} \"$@\"", program.display()));
}

#[test]
fn while_an_upgrade_copies_a_store_its_data_is_not_replaced_but_it_may_become_a_primary() {
    let _watch = watchdog(Duration::from_secs(120), "roles while an upgrade goes on");
    let from = RedisServer::start_with(&DISKLESS);
    from.client().words("SET kept 1");
    let url = format!("\"redis://{}\"", from.address());
    let it = start(&[("replica_of", &url)]);
    let mut client = it.keyway.client(0);
    await_up(&mut client);
    begin_late(&it);
    let before = it.pid();
    it.signal(before, Signal::USR2);
    wait_until("it has started", SOON, || it.count("to take over") == 1);
    let refused = client.words("REPLICAOF 127.0.0.1 1").error_text();
    assert!(refused.starts_with("ERR REPLICAOF not allowed while an upgrade"), "{refused}");
    assert_eq!(client.words("REPLICAOF NO ONE"), Value::simple("OK"));
    assert_eq!(client.words("SET own 1"), Value::simple("OK"));
    let replica = redis_of(it.keyway.address(0));
    let mut at_replica = replica.client();
    await_up(&mut at_replica);
    let refused = client.words("FAILOVER").error_text();
    assert!(refused.starts_with("ERR FAILOVER not allowed while an upgrade"), "{refused}");
    wait_until("another process serves", SOON, || it.pid() != before);
    assert_eq!(info(&mut client, "role"), "master");
    assert_eq!(client.pipeline(&["GET kept", "GET own"]), [Value::bulk("1"), Value::bulk("1")]);
    assert_eq!(it.count("upgrade failed"), 0, "{}", it.log());
    // From then on the role may change again.
    await_same(&mut client, &mut at_replica);
    let (host, port) = (from.address().ip(), from.address().port());
    assert_eq!(client.words(&format!("REPLICAOF {host} {port}")), Value::simple("OK"));
    await_up(&mut client);
    assert_eq!(client.words("GET own"), Value::Nil);
}

#[test]
fn a_replica_in_the_middle_of_a_chain_is_upgraded_and_nobody_takes_a_snapshot() {
    let _watch = watchdog(Duration::from_secs(180), "upgrades in a chain");
    let from = RedisServer::start_with(&DISKLESS);
    let url = format!("\"redis://{}\"", from.address());
    let it = start(&[("replica_of", &url)]);
    let last = redis_of(it.keyway.address(0));
    let (mut at_middle, mut at_last) = (it.keyway.client(0), last.client());
    await_up(&mut at_middle);
    await_up(&mut at_last);
    let writers = Writers::start((0..2).map(|_| from.client()).collect());
    for _ in 0..3 {
        let before = it.pid();
        it.upgrade();
        await_up(&mut at_middle);
        await_up(&mut at_last);
        await_end(&it, before);
    }
    let written = writers.stop();
    let mut at_first = from.client();
    await_same(&mut at_first, &mut at_middle);
    await_same(&mut at_first, &mut at_last);
    has_all(&mut at_middle, &written);
    has_all(&mut at_last, &written);
    let stats = at_first.words("INFO stats").text();
    assert!(stats.contains("sync_full:1\r\n"), "{stats}");
    let log = last.process().log();
    assert_eq!(log.matches("Full resync from master").count(), 1, "{log}");
}

#[test]
fn a_replica_with_a_log_is_upgraded_while_its_primary_writes_and_a_kill_loses_nothing() {
    let _watch = watchdog(Duration::from_secs(240), "upgrades of a replica with a log");
    let from = RedisServer::start_with(&[&DISKLESS[..], &["--repl-backlog-size", "64mb"]].concat());
    let url = format!("\"redis://{}\"", from.address());
    let folder = TempDir::new();
    let log = format!("{{ dir = {:?}, fsync = \"always\" }}", folder.path().display().to_string());
    let options = [("replica_of", &*url), ("log", &*log)];
    let mut it = start(&options);
    await_up(&mut it.keyway.client(0));
    wait_until("its log has begun", SOON, || it.count("the log has the data") == 1);
    let writers = Writers::start((0..3).map(|_| from.client()).collect());
    for _ in 0..4 {
        let before = it.pid();
        it.upgrade();
        await_up(&mut it.keyway.client(0));
        await_end(&it, before);
    }
    let pid = it.pid();
    it.signal(pid, Signal::KILL);
    await_killed(pid);
    let _ = it.keyway.process_mut().wait_exit(SOON);
    let again = start(&options);
    wait_until("the log is loaded", SOON, || !again.keyway.client(0).words("DBSIZE").is_error());
    let mut client = again.keyway.client(0);
    await_up(&mut client);
    let before = again.pid();
    again.upgrade();
    await_end(&again, before);
    let written = writers.stop();
    let mut at_first = from.client();
    await_same(&mut at_first, &mut client);
    has_all(&mut client, &written);
    let stats = at_first.words("INFO stats").text();
    assert!(stats.contains("sync_full:1\r\n"), "{stats}");
    // A write that was not told to the log would be missing here.
    client.words("REPLICAOF NO ONE");
    assert_eq!(client.words("SET own 1"), Value::simple("OK"));
    let pid = again.pid();
    again.signal(pid, Signal::KILL);
    await_killed(pid);
    let last = start(&[("log", &log)]);
    wait_until("the log is loaded", SOON, || !last.keyway.client(0).words("DBSIZE").is_error());
    has_all(&mut last.keyway.client(0), &written);
    assert_eq!(last.keyway.client(0).words("GET own"), Value::bulk("1"));
}

#[test]
fn an_upgraded_store_with_a_log_keeps_its_replicas_and_hands_over() {
    let _watch = watchdog(Duration::from_secs(180), "an upgrade and a FAILOVER with a log");
    let folder = TempDir::new();
    let log = format!("{{ dir = {:?}, fsync = \"1s\" }}", folder.path().display().to_string());
    let it = start(&[("log", &log)]);
    let mut client = it.keyway.client(0);
    wait_until("it has begun", SOON, || !client.words("SET a 1").is_error());
    let server = redis_of(it.keyway.address(0));
    await_up(&mut server.client());
    let writers = Writers::start((0..2).map(|_| it.keyway.client(0)).collect());
    let before = it.pid();
    it.upgrade();
    assert_eq!(client.words("WAIT 1 20000"), Value::Integer(1));
    await_end(&it, before);
    let written = writers.stop();
    let log = server.process().log();
    assert_eq!(log.matches("Full resync from master").count(), 1, "{log}");
    let (host, port) = (server.address().ip(), server.port());
    let reply = client.words(&format!("FAILOVER TO {host} {port} TIMEOUT 20000"));
    assert_eq!(reply, Value::simple("OK"));
    wait_until("it has handed over", SOON, || info(&mut client, "role") == "slave");
    await_up(&mut client);
    let mut at_server = server.client();
    assert_eq!(info(&mut at_server, "role"), "master");
    assert_eq!(at_server.words("SET after 1"), Value::simple("OK"));
    await_same(&mut at_server, &mut client);
    has_all(&mut at_server, &written);
    has_all(&mut client, &written);
    assert_eq!(client.words("GET after"), Value::bulk("1"));
    let stats = at_server.words("INFO stats").text();
    assert!(stats.contains("sync_full:0\r\n"), "it goes on where it was: {stats}");
}
