//! An upgrade keeps the data of embedded stores, and their clients stay connected.
//!
//! Writers note what was acknowledged. After each upgrade all of it is there, no reply is an error,
//! and no connection is closed. Processes that are killed on the way lose nothing that a log has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keyway_testkit::certificates::CertificateFiles;
use keyway_testkit::{
    CheckedLoad, Client, LoadShape, MemcachedClient, Pool, RedisServer, Signal, Value, encode,
    encode_words, free_address, serving_process, wait_for, wait_until, watchdog,
};

use crate::tls_client::{TlsLogin, tls_table};
use crate::upgrading::{SOON, Upgrading};

fn pools(more: &[(&str, &str)]) -> Vec<Pool> {
    let with = |pool: Pool| more.iter().fold(pool, |pool, (key, value)| pool.with(key, value));
    let store = with(Pool::store("kept").with("memory_max", "\"256MiB\""));
    vec![store, Pool::store("kept").spoken_to_in("memcached")]
}

/// Threads that go on until they are stopped.
struct Crew {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    fn new() -> Self {
        Self { is_over: Arc::default(), threads: Vec::new() }
    }

    fn join(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("a thread without a fault"));
    }

    /// A memcached client that writes a pipeline of sixteen versions again and again, and reads.
    fn memcached(&mut self, mut client: MemcachedClient, number: usize) {
        let is_over = Arc::clone(&self.is_over);
        self.threads.push(std::thread::spawn(move || {
            let mut version = 0;
            while !is_over.load(Ordering::Relaxed) {
                let mut asked = String::new();
                for _ in 0..16 {
                    version += 1;
                    let value = version.to_string();
                    asked += &format!("set m{number} 77 0 {}\r\n{value}\r\n", value.len());
                }
                client.send(asked.as_bytes());
                (0..16).for_each(|_| assert_eq!(client.line(), "STORED"));
                client.send(format!("get m{number}\r\n").as_bytes());
                let value = version.to_string();
                assert_eq!(client.line(), format!("VALUE m{number} 77 {}", value.len()));
                assert_eq!((client.line(), client.line()), (value, "END".to_owned()));
            }
        }));
    }

    /// One that pushes numbers, and one that waits for them: each comes once, in its order.
    fn queue(&mut self, mut pusher: Client, mut taker: Client, number: usize) {
        let is_over = Arc::clone(&self.is_over);
        let pushed = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&pushed);
        self.threads.push(std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let next = told.load(Ordering::Relaxed) + 1;
                let line = format!("RPUSH queue:{number} {next}");
                assert!(pusher.words(&line).integer() > 0);
                told.store(next, Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_millis(3));
            }
        }));
        let is_over = Arc::clone(&self.is_over);
        self.threads.push(std::thread::spawn(move || {
            let mut taken = 0;
            while !is_over.load(Ordering::Relaxed) || taken < pushed.load(Ordering::Relaxed) {
                let reply = taker.words(&format!("BLPOP queue:{number} 1"));
                if reply != Value::NilArray {
                    taken += 1;
                    assert_eq!(reply.array()[1].text(), taken.to_string());
                }
            }
        }));
    }
}

fn load(it: &Upgrading) -> CheckedLoad {
    let shape = LoadShape { clients: 6, depth_max: 16, value_len: 100, ..LoadShape::default() };
    CheckedLoad::start(it.keyway.address(0), shape)
}

/// Waits until the process before has given all of its clients and ended.
fn await_end(it: &Upgrading, pid: u32) {
    wait_until("the process before has ended", SOON, || !it.is_alive(pid));
}

fn under_load(more: &[(&str, &str)], rounds: usize) -> Upgrading {
    let it = Upgrading::start(pools(more), &[("workers", "2")], "");
    let mut client = it.keyway.client(0);
    let value = "v".repeat(1000);
    for nth in 0..5000 {
        client.command(&["SET", &format!("still:{nth}"), &value]);
    }
    let load = load(&it);
    let mut crew = Crew::new();
    for number in 0..2 {
        crew.memcached(it.keyway.memcached_client(1), number);
        crew.queue(it.keyway.client(0), it.keyway.client(0), number);
    }
    load.wait_replies(2000);
    for _ in 0..rounds {
        let before = it.pid();
        it.upgrade();
        load.wait_replies(2000);
        await_end(&it, before);
    }
    crew.join();
    let report = load.stop();
    report.assert_clean();
    for nth in 0..5000 {
        assert_eq!(client.command(&["GET", &format!("still:{nth}")]), Value::bulk(&*value));
    }
    eprintln!("{rounds} upgrades: {report}");
    it
}

#[test]
fn several_upgrades_in_a_row_under_load_lose_refuse_and_close_nothing() {
    let _watch = watchdog(Duration::from_secs(240), "upgrades of a store under load");
    under_load(&[], 4);
}

/// Writes values of two MiB, each with its number in front, until it is stopped. Returns how many.
fn write_long(mut client: Client, number: usize, is_over: Arc<AtomicBool>) -> JoinHandle<u64> {
    let tail = "y".repeat(2 << 20);
    std::thread::spawn(move || {
        let mut written = 0;
        while !is_over.load(Ordering::Relaxed) {
            written += 1;
            let key = format!("long:{number}:{}", written % LONG_KEYS);
            let value = format!("{written}:{tail}");
            let reply = client.command(&["SET", &key, &value]);
            if reply != Value::simple("OK") {
                let told = ["memory", "replication", "persistence"];
                let told = told.map(|section| client.words(&format!("INFO {section}")).text());
                panic!("{reply:?} {}", told.concat());
            }
        }
        written
    })
}

const LONG_KEYS: u64 = 5;

/// Law: writes of any length slow an upgrade down and do not end it. Of a store of 128 MiB 16 MiB may
/// wait, of which one such write takes up to 8 MiB in its copies.
#[test]
fn upgrades_under_writes_of_megabytes_succeed_and_lose_nothing() {
    let _watch = watchdog(Duration::from_secs(240), "upgrades under long writes");
    let store = Pool::store("kept")
        .with("memory_max", "\"128MiB\"")
        .with("eviction", "\"noeviction\"")
        .with("replication", "{ backlog = \"8MiB\" }");
    let it = Upgrading::start(vec![store], &[("workers", "2")], "");
    let replica = RedisServer::start_with(&[
        "--replicaof",
        "127.0.0.1",
        &it.keyway.address(0).port().to_string(),
    ]);
    let mut at_replica = replica.client();
    wait_until("the replica follows", SOON, || {
        at_replica.words("INFO replication").text().contains("master_link_status:up")
    });
    let is_over: Arc<AtomicBool> = Arc::default();
    let start = |number| write_long(it.keyway.client(0), number, Arc::clone(&is_over));
    let writers: Vec<_> = (0..2).map(start).collect();
    for _ in 0..6 {
        let before = it.pid();
        it.upgrade();
        await_end(&it, before);
    }
    is_over.store(true, Ordering::Relaxed);
    let written = writers.into_iter().map(|writer| writer.join().expect("a writer"));
    let mut client = it.keyway.client(0);
    for (number, written) in written.enumerate() {
        for nth in (1..=written).rev().take(LONG_KEYS as usize) {
            let key = format!("long:{number}:{}", nth % LONG_KEYS);
            let start = client.words(&format!("GETRANGE {key} 0 {}", nth.to_string().len()));
            assert_eq!(start.text(), format!("{nth}:"), "{key} of {written}");
        }
    }
    assert_eq!(it.count("upgrade failed"), 0, "{}", it.log());
    assert_eq!(client.words("WAIT 1 20000"), Value::Integer(1), "the replica follows on");
}

#[test]
fn a_log_that_is_on_disk_first_goes_on_over_upgrades_and_a_kill_loses_nothing() {
    let _watch = watchdog(Duration::from_secs(240), "upgrades of a store with a log");
    let folder = keyway_testkit::TempDir::new();
    let log = format!("{{ dir = {:?}, fsync = \"always\" }}", folder.path().display().to_string());
    let mut it = under_load(&[("log", &log)], 3);
    let mut client = it.keyway.client(0);
    assert_eq!(client.words("SET last 1"), Value::simple("OK"));
    let keys = client.words("DBSIZE");
    let pid = it.pid();
    it.signal(pid, Signal::KILL);
    wait_until("it is gone", SOON, || !it.is_alive(pid));
    // The first process ended when its clients had left.
    assert!(it.keyway.process_mut().wait_exit(SOON).success(), "{}", it.log());
    let again = Upgrading::start(pools(&[("log", &log)]), &[("workers", "2")], "");
    wait_until("the log is loaded", SOON, || !again.keyway.client(0).words("DBSIZE").is_error());
    let mut client = again.keyway.client(0);
    assert_eq!(client.words("DBSIZE"), keys);
    assert_eq!(client.words("GET last"), Value::bulk("1"));
    let mut memcached = again.keyway.memcached_client(1);
    assert!(memcached.say("get m0\r\n").starts_with("VALUE m0 77 "));
}

#[test]
fn what_clients_have_begun_goes_on() {
    let _watch = watchdog(Duration::from_secs(120), "states over an upgrade");
    let it = Upgrading::start(pools(&[]), &[("workers", "2")], "");
    let ok = Value::simple("OK");
    let mut plain = it.keyway.client(0);
    (0..500).for_each(|nth| drop(plain.words(&format!("SET scanned:{nth} v"))));
    plain.words("CLIENT SETNAME kept");
    plain.words("SELECT 2");
    let id = plain.words("CLIENT ID");
    let expiry = plain.words("SET ttl v PX 100000000");
    assert_eq!(expiry, ok);
    let expiry = plain.words("PEXPIRETIME ttl");
    assert_eq!(plain.words("HSET fields a 1 b 2"), Value::Integer(2));
    plain.words("HPEXPIRE fields 100000000 FIELDS 1 a");
    let field = plain.words("HPEXPIRETIME fields FIELDS 1 a");
    let digest = plain.command(&["SCRIPT", "LOAD", "return redis.call('GET', KEYS[1])"]).text();
    let library = "#!lua name=mylib\nredis.register_function('twice', function(keys, args) return 2 \
                   * args[1] end)";
    assert_eq!(plain.command(&["FUNCTION", "LOAD", library]), Value::bulk("mylib"));
    let mut scanner = it.keyway.client(0);
    let first = scanner.words("SCAN 0 COUNT 50");
    let cursor = first.array()[0].text();
    let mut multi = it.keyway.client(0);
    assert_eq!(multi.words("WATCH clean"), ok);
    multi.pipeline(&["MULTI", "SET clean 1", "INCR clean"]);
    let mut dirty = it.keyway.client(0);
    dirty.pipeline(&["WATCH soiled", "MULTI", "SET soiled mine"]);
    it.keyway.client(0).words("SET soiled theirs");
    let mut refused = it.keyway.client(0);
    refused.pipeline(&["MULTI", "NOSUCH", "SET refused 1"]);
    let mut subscriber = it.keyway.client(0);
    subscriber.send(&encode_words("SUBSCRIBE news other"));
    subscriber.replies(2);
    subscriber.send(&encode_words("PSUBSCRIBE n*"));
    subscriber.reply();
    let mut waiting = it.keyway.client(0);
    waiting.send(&encode_words("BLPOP late 60"));
    let mut timed = it.keyway.client(0);
    timed.send(&encode_words("BLPOP never 6"));
    let began = now();
    let mut reader = it.keyway.client(0);
    reader.send(&encode_words("XREAD BLOCK 0 STREAMS events $"));
    let mut caching = it.keyway.client(0);
    caching.words("HELLO 3");
    assert_eq!(caching.words("CLIENT TRACKING ON"), ok);
    caching.words("GET tracked");
    let mut cut = it.keyway.client(0);
    let bytes = encode(&["SET", "halved", "0123456789"]);
    cut.send(&bytes[..bytes.len() - 7]);
    let mut memcached = it.keyway.memcached_client(1);
    memcached.say("set item 42 0 5\r\nhello\r\n");
    memcached.say("flush_all 3600\r\n");
    memcached.send(b"set half 1 0 10\r\n01234");
    wait_until("all of them wait", SOON, || {
        it.keyway.client(0).words("CLIENT LIST").text().matches("cmd=blpop").count() == 2
    });

    let before = it.pid();
    it.upgrade();
    await_given(&it, before);

    assert_eq!(plain.words("CLIENT GETNAME"), Value::bulk("kept"));
    assert_eq!(plain.words("CLIENT ID"), id);
    assert_eq!(plain.words("PEXPIRETIME ttl"), expiry, "the database and the time are the same");
    assert_eq!(plain.words("HPEXPIRETIME fields FIELDS 1 a"), field);
    assert_eq!(plain.command(&["EVALSHA", &digest, "1", "ttl"]), Value::bulk("v"));
    assert_eq!(plain.words("FCALL twice 0 21"), Value::Integer(42));
    let mut found = first.array()[1].array().len();
    let mut cursor = cursor;
    while cursor != "0" {
        let next = scanner.words(&format!("SCAN {cursor} COUNT 50"));
        found += next.array()[1].array().len();
        cursor = next.array()[0].text();
    }
    assert!(found >= 500, "{found} of 500");
    assert_eq!(multi.words("EXEC").array(), [ok.clone(), Value::Integer(2)]);
    assert_eq!(dirty.words("EXEC"), Value::NilArray);
    assert!(refused.words("EXEC").error_text().starts_with("EXECABORT"));
    let mut publisher = it.keyway.client(0);
    assert_eq!(publisher.words("PUBLISH news hello"), Value::Integer(2));
    let told = subscriber.replies(2);
    assert!(told.iter().all(|it| it.array().last().is_some_and(|it| it.text() == "hello")));
    publisher.words("RPUSH late x");
    assert_eq!(waiting.reply().array()[1].text(), "x");
    publisher.words("XADD events 5-1 f v");
    assert_eq!(reader.reply().array().len(), 1);
    // All that it has cached is void, and it is told of the next change of what it reads.
    assert!(caching.reply().array().len() == 2);
    caching.send(&encode_words("GET tracked"));
    // It may be told so more than once.
    while caching.reply() != Value::Null {}
    publisher.words("SET tracked new");
    assert!(caching.reply().array().len() == 2);
    cut.send(&bytes[bytes.len() - 7..]);
    assert_eq!(cut.reply(), ok);
    assert_eq!(publisher.words("GET halved"), Value::bulk("0123456789"));
    memcached.send(b"56789\r\n");
    assert_eq!(memcached.line(), "STORED");
    assert_eq!(memcached.say("get item\r\n"), "VALUE item 42 5\r\nhello\r\nEND\r\n");
    assert_eq!(timed.reply(), Value::NilArray);
    let waited = now() - began;
    assert!(waited >= Duration::from_secs(6) && waited < Duration::from_secs(9), "{waited:?}");
}

/// A process that is killed, or hangs, before it serves changes nothing.
#[test]
fn the_process_goes_on_if_the_next_one_is_killed_or_hangs() {
    let _watch = watchdog(Duration::from_secs(240), "next processes that fail");
    let server = [("workers", "2"), ("upgrade_timeout", "\"3s\"")];
    let it = Upgrading::start(pools(&[]), &server, "");
    let pid = it.pid();
    let load = load(&it);
    load.wait_replies(500);
    let mut is_stopped = false;
    let mut may_serve = false;
    for delay in [0, 1, 2, 3, 5, 8] {
        let tries = it.count("to take over");
        it.signal(pid, Signal::USR2);
        let next = wait_for("it is started", SOON, || started(&it, tries));
        std::thread::park_timeout(Duration::from_millis(delay));
        if it.count("the store has its data") > 0 {
            // From here on it may serve at any moment.
            may_serve = true;
            break;
        }
        is_stopped = !is_stopped;
        it.signal(next, if is_stopped { Signal::STOP } else { Signal::KILL });
        wait_until("it is given up", SOON, || it.count("upgrade failed") == tries + 1);
        assert_eq!(it.pid(), pid);
        load.wait_replies(500);
    }
    load.stop().assert_clean();
    if may_serve {
        // While one process takes over from the other, either may answer.
        wait_until("the next process serves", SOON, || it.pid() != pid);
    } else {
        assert_ne!(it.upgrade(), pid);
    }
}

fn started(it: &Upgrading, before: usize) -> Option<u32> {
    let log = it.log();
    let line = log.lines().filter(|line| line.contains("to take over")).nth(before)?;
    let digits = line.split("pid=").nth(1)?;
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Either process is killed at any moment of an upgrade. With a log that is on the disk first,
/// nothing that was acknowledged is lost.
#[test]
fn kills_of_either_process_at_any_moment_lose_nothing_that_was_acknowledged() {
    let _watch = watchdog(Duration::from_secs(420), "kills on the way");
    let folder = keyway_testkit::TempDir::new();
    let log = format!("{{ dir = {:?}, fsync = \"always\" }}", folder.path().display().to_string());
    let acknowledged = Arc::new(AtomicU64::new(0));
    let sent = Arc::new(AtomicU64::new(0));
    for round in 0..12_u64 {
        let mut it = Upgrading::start(pools(&[("log", &log)]), &[("workers", "2")], "");
        wait_until("it is loaded", SOON, || !it.keyway.client(0).words("DBSIZE").is_error());
        let held = it.keyway.client(0).words("GET counter").text().parse().unwrap_or(0_u64);
        let bounds = (acknowledged.load(Ordering::Relaxed), sent.load(Ordering::Relaxed));
        assert!((bounds.0..=bounds.1).contains(&held), "round {round}: {held} of {bounds:?}");
        acknowledged.store(held, Ordering::Relaxed);
        sent.store(held, Ordering::Relaxed);
        let mut client = it.keyway.client(0);
        let (said, done) = (Arc::clone(&sent), Arc::clone(&acknowledged));
        let writer = std::thread::spawn(move || {
            loop {
                said.fetch_add(1, Ordering::Relaxed);
                if client.try_send(&encode_words("INCR counter")).is_err() {
                    return;
                }
                let Ok(reply) = client.try_reply() else { return };
                done.store(reply.integer() as u64, Ordering::Relaxed);
            }
        });
        wait_until("it writes", SOON, || acknowledged.load(Ordering::Relaxed) > held + 20);
        let before = it.pid();
        it.signal(before, Signal::USR2);
        let next = wait_for("it is started", SOON, || started(&it, 0));
        wait_until("it is about to serve", SOON, || it.count("the store has its data") > 0);
        // Some microseconds, or some tens of milliseconds.
        std::thread::park_timeout(Duration::from_micros(200 << (round % 6)));
        let (first, second) = if round % 2 == 0 { (next, before) } else { (before, next) };
        it.signal(first, Signal::KILL);
        std::thread::park_timeout(Duration::from_millis(50));
        if it.is_alive(second) {
            it.signal(second, Signal::KILL);
        }
        writer.join().expect("a writer that ends with its connection");
        let _ = it.keyway.process_mut().wait_exit(SOON);
        wait_until("both are gone", SOON, || !it.is_alive(next) && !it.is_alive(before));
    }
}

#[test]
fn a_replica_goes_on_to_follow_its_primary_where_it_was() {
    let _watch = watchdog(Duration::from_secs(120), "an upgrade of a replica");
    let options = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
    let from = RedisServer::start_with(&options);
    let url = format!("\"redis://127.0.0.1:{}\"", from.port());
    let it = Upgrading::start(pools(&[("replica_of", &url)]), &[("workers", "2")], "");
    let mut server = from.client();
    server.words("SET before 1");
    let mut client = it.keyway.client(0);
    let is_up = |client: &mut Client| {
        client.words("INFO replication").text().contains("master_link_status:up")
    };
    wait_until("the link is up", SOON, || is_up(&mut client));
    let syncs = server.words("INFO stats").text();
    assert!(syncs.contains("sync_full:1"), "{syncs}");
    it.upgrade();
    server.words("SET after 1");
    wait_until("it follows on", SOON, || client.words("GET after") == Value::bulk("1"));
    assert_eq!(client.words("GET before"), Value::bulk("1"));
    assert!(client.words("SET own 1").error_text().starts_with("READONLY"));
    let syncs = server.words("INFO stats").text();
    assert!(syncs.contains("sync_full:1") && syncs.contains("sync_partial_ok:1"), "{syncs}");
}

/// Encrypted clients, and clients in shared memory, go on through the process before.
#[test]
fn clients_with_tls_and_in_shared_memory_stay_for_the_grace() {
    let _watch = watchdog(Duration::from_secs(120), "an upgrade with TLS and shared memory");
    let files = CertificateFiles::default();
    let secured = free_address();
    let tls = tls_table(&files, "server", "");
    let more = format!(
        "[[listener]]\nbind = \"tcp://{secured}\"\npool = \"kept\"\ntls = {tls}\n\
         [[listener]]\nbind = \"shm://{{}}/shm\"\npool = \"kept\"\n"
    );
    let server = [("workers", "2"), ("upgrade_grace", "\"4s\"")];
    let it = Upgrading::start(pools(&[]), &server, &more);
    let mut stays = TlsLogin::new(&files).connect(secured);
    assert_eq!(stays.ask("INCR counted\r\n", "\r\n"), ":1\r\n");
    let mut ring = Client::connect_shm(&it.path("shm"));
    assert_eq!(ring.words("INCR counted"), Value::Integer(2));
    let before = it.pid();
    it.upgrade();
    assert_eq!(stays.ask("INCR counted\r\n", "\r\n"), ":3\r\n");
    assert_eq!(ring.words("INCR counted"), Value::Integer(4));
    assert_eq!(it.keyway.client(0).words("INCR counted"), Value::Integer(5));
    let value = "x".repeat(3 << 20);
    assert_eq!(ring.command(&["SET", "long", &value]), Value::simple("OK"));
    assert_eq!(ring.words("GET long"), Value::bulk(&*value));
    assert_eq!(stays.ask("STRLEN long\r\n", "\r\n"), ":3145728\r\n");
    await_end(&it, before);
    assert_eq!(stays.ask("PING\r\n", "\r\n"), "", "its connection is closed in order");
    ring.expect_closed();
}

#[test]
fn what_would_lose_data_is_refused_in_words() {
    let _watch = watchdog(Duration::from_secs(120), "upgrades that are refused");
    let it = Upgrading::start(pools(&[]), &[("workers", "1")], "");
    let mut client = it.keyway.client(0);
    client.words("SET a 1");
    it.write(&it.text.replace("kept", "other"));
    let (status, text) = it.ctl(&["upgrade"]);
    assert!(status == 1 && text.contains("no pool kept of kind store any more"), "{text}");
    it.write(&it.text);
    assert_eq!(it.ctl(&["upgrade"]).0, 0);
    assert_eq!(client.words("GET a"), Value::bulk("1"));
    assert_eq!(it.ctl(&["upgrade", "--discard-store"]).0, 2, "there is no such option any more");
}

/// Waits until no client is with the process before.
fn await_given(it: &Upgrading, before: u32) {
    let is_over = || !it.is_alive(before) || it.count("embedded stores are with process") > 0;
    wait_until("clients were given", SOON, is_over);
}

#[allow(clippy::disallowed_methods, reason = "how long a client waits is measured")]
fn now() -> Instant {
    Instant::now()
}

#[allow(dead_code, reason = "for tests that look at who serves")]
fn serving(it: &Upgrading) -> Option<u32> {
    serving_process(it.keyway.admin())
}
