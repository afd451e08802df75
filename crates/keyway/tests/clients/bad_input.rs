//! Clients must not be able to break the process, take its memory, or disturb one another, whatever
//! bytes they send and however they leave.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, Random, RedisServer, ReplyFault, Shared, Signal, Value,
    cpu_seconds_over, encode, encode_words, fd_count, resident_bytes, resident_peak_bytes,
    serving_process, wait_for, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(30);

struct Setup {
    keyway: Keyway,
    _servers: Vec<RedisServer>,
}

static SETUP: Shared<Setup> = Shared::new();

/// Returns a store and a pool. They are shared by tests, so no test may check totals.
fn setup() -> std::sync::Arc<Setup> {
    SETUP.get(start)
}

fn start() -> Setup {
    let servers = RedisServer::start_many(2);
    let pools = vec![Pool::store("local"), Pool::over("main", &servers)];
    Setup { keyway: Keyway::start(KEYWAY, KeywayConfig::new(pools)), _servers: servers }
}

/// Frames that can never become a request, and the error that the client gets before its connection
/// is closed.
const BROKEN: &[(&[u8], &str)] = &[
    (b"*abc\r\n", "invalid multibulk length"),
    (b"*1x\r\n", "invalid multibulk length"),
    (b"*+\r\n", "invalid multibulk length"),
    (b"*+1\r\n$4\r\nPING\r\n", "invalid multibulk length"),
    (b"*01\r\n$4\r\nPING\r\n", "invalid multibulk length"),
    (b"*02\r\n$3\r\nGET\r\n$1\r\nk\r\n", "invalid multibulk length"),
    (b"*00\r\n", "invalid multibulk length"),
    (b"*-0\r\n", "invalid multibulk length"),
    (b"* 1\r\n", "invalid multibulk length"),
    (b"*99999999999999999999\r\n", "invalid multibulk length"),
    (b"*9223372036854775808\r\n", "invalid multibulk length"),
    (b"*2147483648\r\n", "invalid multibulk length"),
    (b"*1\r\n$-1\r\n", "invalid bulk length"),
    (b"*1\r\n$-2147483648\r\n", "invalid bulk length"),
    (b"*1\r\n$68719476736\r\n", "invalid bulk length"),
    (b"*1\r\n$536870913\r\n", "invalid bulk length"),
    (b"*1\r\n$99999999999999999999999\r\n", "invalid bulk length"),
    (b"*1\r\n$4294967300\r\nPING\r\n", "invalid bulk length"),
    (b"*1\r\n$4 \r\nPING\r\n", "invalid bulk length"),
    (b"*1\r\n$04\r\nPING\r\n", "invalid bulk length"),
    (b"*2\r\n$3\r\nGET\r\n$03\r\nkey\r\n", "invalid bulk length"),
    (b"*2\r\n$3\r\nGET\r\n$00\r\n\r\n", "invalid bulk length"),
    (b"*2\r\n$3\r\nGET\r\n$-0\r\n\r\n", "invalid bulk length"),
    (b"*2\r\n$3\r\nGET\r\n$+3\r\nkey\r\n", "invalid bulk length"),
    (b"*1\r\n$abc\r\n", "invalid bulk length"),
    (b"*1\r\n$\r\n", "invalid bulk length"),
    (b"*1\r\n:4\r\nPING\r\n", "expected '$', got ':'"),
    (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
    (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
    (b"*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*'"),
    (b"*2\r\n$4\r\nPING\r\n*1\r\n$1\r\nx\r\n", "expected '$', got '*'"),
    (b"ECHO \"open\r\n", "unbalanced quotes"),
    (b"ECHO 'open\r\n", "unbalanced quotes"),
    (b"ECHO \"a\"b\r\n", "unbalanced quotes"),
];

#[test]
fn a_broken_frame_gets_an_error_and_closes_only_its_connection() {
    let _watch = watchdog(Duration::from_secs(60), "broken frames");
    let setup = setup();
    for pool in [0, 1] {
        let mut bystander = setup.keyway.client(pool);
        for (bytes, wanted) in BROKEN {
            let mut client = setup.keyway.client(pool);
            let name = bytes.escape_ascii().to_string();
            client.send(b"PING\r\n");
            client.send(bytes);
            assert_eq!(client.reply(), Value::simple("PONG"), "{name}");
            let text = client.reply().error_text();
            assert!(text.starts_with("ERR Protocol error: "), "{name}: {text}");
            assert!(text.contains(wanted), "{name}: {text}");
            client.expect_closed();
            assert_eq!(bystander.words("PING"), Value::simple("PONG"));
        }
    }
}

/// A web page can make a browser post to any port: the body must not be executed.
#[test]
fn a_client_that_speaks_http_is_cut_off_and_nothing_behind_it_runs() {
    let _watch = watchdog(Duration::from_secs(60), "HTTP");
    let setup = start();
    let post =
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\nflushall\r\nset kept no\r\n";
    let get = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nset kept no\r\nflushall\r\n";
    for pool in [0, 1] {
        let mut bystander = setup.keyway.client(pool);
        assert_eq!(bystander.words("SET kept yes"), Value::simple("OK"));
        for (bytes, replies) in [
            (&post[..], 0),
            (b"post\r\nset kept no\r\n", 0),
            (b"HOST:\r\nset kept no\r\n", 0),
            (b"*1\r\n$4\r\nPoSt\r\nset kept no\r\n", 0),
            (&get[..], 1),
        ] {
            let mut client = setup.keyway.client(pool);
            client.send(bytes);
            for _ in 0..replies {
                assert!(client.reply().is_error());
            }
            client.expect_closed();
            assert_eq!(bystander.words("GET kept"), Value::bulk("yes"));
        }
    }
    let log = || setup.keyway.process().log();
    wait_until("the log tells", Duration::from_secs(10), || log().contains("spoke HTTP"));
    assert_eq!(log().matches("spoke HTTP").count(), 1, "once a minute at most:\n{}", log());
}

/// A broken frame costs the client its own connection. It costs no client the link that all share.
#[test]
fn a_broken_frame_never_reaches_a_server() {
    let _watch = watchdog(Duration::from_secs(60), "frames a server refuses");
    let server = RedisServer::start();
    let pool = Pool::over("main", std::slice::from_ref(&server));
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config);
    let mut bystander = keyway.client(0);
    assert_eq!(bystander.words("SET k 1"), Value::simple("OK"));
    let mut direct = server.client();
    let mut connections = || {
        let info = direct.words("INFO stats").text();
        let line = info.lines().find(|line| line.starts_with("total_connections_received:"));
        line.expect("a line of INFO").to_owned()
    };
    let before = connections();
    for (bytes, _) in BROKEN {
        let mut client = keyway.client(0);
        client.send(&[&encode(&["GET", "k"])[..], bytes].concat());
        assert_eq!(client.reply(), Value::bulk("1"));
        assert!(client.reply().is_error());
        assert_eq!(bystander.words("GET k"), Value::bulk("1"));
    }
    assert_eq!(connections(), before, "the link that all share is kept");
}

#[test]
fn a_truncated_frame_waits_and_costs_nothing_when_the_client_leaves() {
    let _watch = watchdog(Duration::from_secs(60), "truncated frames");
    let setup = setup();
    let whole = encode(&["SET", "truncated", "value"]);
    for pool in [0, 1] {
        for cut in 1..whole.len() {
            let mut client = setup.keyway.client(pool);
            client.send(&whole[..cut]);
            client.close_write();
            assert!(client.try_closed(), "cut at {cut}: closed without a reply");
        }
        assert_eq!(setup.keyway.client(pool).words("EXISTS truncated"), Value::Integer(0));
    }
}

/// Announcing a length takes no memory: only received bytes are held.
#[test]
fn announced_lengths_reserve_nothing() {
    let _watch = watchdog(Duration::from_secs(60), "announced lengths");
    let setup = start();
    let pid = setup.keyway.process().pid();
    for pool in [0, 1] {
        let before = resident_bytes(pid);
        let mut clients = Vec::new();
        for head in [
            "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n",
            "*1048576\r\n",
            "*1000000\r\n$3\r\nDEL\r\n",
        ] {
            for _ in 0..20 {
                let mut client = setup.keyway.client(pool);
                client.send(b"PING\r\n");
                client.send(head.as_bytes());
                assert_eq!(client.reply(), Value::simple("PONG"));
                clients.push(client);
            }
        }
        let mut witness = setup.keyway.client(pool);
        for _ in 0..100 {
            assert_eq!(witness.words("PING"), Value::simple("PONG"));
        }
        let grown = resident_bytes(pid).saturating_sub(before);
        assert!(grown < 8 << 20, "{} KB for 60 announcements", grown >> 10);
    }
}

#[test]
fn a_command_of_a_million_elements_is_served_or_refused_and_memory_comes_back() {
    const KEYS: usize = 1_000_000;
    let _watch = watchdog(Duration::from_secs(120), "a million elements");
    let setup = start();
    let pid = setup.keyway.process().pid();
    for pool in [0, 1] {
        let mut client = setup.keyway.client(pool);
        assert_eq!(client.words("SET million 1"), Value::simple("OK"));
        let before = resident_bytes(pid);
        let mut bytes = format!("*{}\r\n$3\r\nDEL\r\n", KEYS + 1).into_bytes();
        bytes.extend(b"$7\r\nmillion\r\n".repeat(KEYS));
        client.send(&bytes);
        assert_eq!(client.reply(), Value::Integer(1), "named a million times, deleted once");
        assert_eq!(client.words("PING"), Value::simple("PONG"));
        drop(client);
        wait_until("memory comes back", Duration::from_secs(20), || {
            resident_bytes(pid) < before + (16 << 20)
        });
    }
}

#[test]
fn more_elements_than_allowed_are_refused_before_they_are_sent() {
    let _watch = watchdog(Duration::from_secs(30), "too many elements");
    let setup = setup();
    for pool in [0, 1] {
        let mut client = setup.keyway.client(pool);
        client.send(b"*1048577\r\n");
        assert!(client.reply().is_error());
        client.expect_closed();
    }
}

#[test]
fn an_endless_inline_line_is_refused() {
    let _watch = watchdog(Duration::from_secs(30), "endless line");
    let setup = setup();
    for pool in [0, 1] {
        let mut client = setup.keyway.client(pool);
        // The server may answer and close the connection before everything is sent.
        let _ = client.try_send(&[b'a'; 100 << 10]);
        match client.try_reply() {
            Ok(reply) => {
                let text = reply.error_text();
                assert!(text.contains("too big inline request"), "{text}");
            }
            // Closing with unread bytes resets the connection, and the reset can overtake the
            // error.
            Err(fault) => assert_eq!(fault, ReplyFault::Closed),
        }
    }
}

/// Sends random bytes, and valid pipelines with a few bytes changed.
#[test]
fn garbage_never_harms_the_process_or_another_client() {
    let _watch = watchdog(Duration::from_secs(120), "garbage");
    let setup = setup();
    let good = good_pipeline();
    for pool in [0, 1] {
        let mut bystander = setup.keyway.client(pool);
        for seed in 0..1500 {
            let mut random = Random::new(seed);
            let bytes = garbage(&mut random, &good);
            let mut client = setup.keyway.client(pool);
            let _ = client.try_send(&bytes);
            client.close_write();
            // Replies, errors or nothing may come, and then the end.
            while let Ok(_reply) = client.try_reply() {}
            let nth = seed.to_string();
            assert_eq!(bystander.command(&["ECHO", &nth]), Value::bulk(&nth), "seed {seed}");
        }
    }
}

fn good_pipeline() -> Vec<u8> {
    let mut bytes = encode(&["SET", "garbage:a", "value"]);
    bytes.extend(encode(&["MGET", "garbage:a", "garbage:b", "garbage:c"]));
    bytes.extend(b"PING\r\nECHO \"a b\"\r\n");
    bytes.extend(encode(&["DEL", "garbage:a", "garbage:b"]));
    bytes
}

fn garbage(random: &mut Random, good: &[u8]) -> Vec<u8> {
    let length = 1 + random.below(2000);
    match random.below(4) {
        0 => random.bytes(length),
        1 => (0..length).map(|_| *random.pick(b"*$:+-0123456789\r\n \"'x")).collect(),
        _ => {
            let mut bytes = good.repeat(1 + random.below(3));
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                match random.below(3) {
                    0 => bytes[at] = (random.next_u64() & 0xFF) as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, *random.pick(b"*$-\r\n9")),
                }
            }
            bytes
        }
    }
}

#[test]
fn a_half_closed_client_still_gets_every_reply() {
    let _watch = watchdog(Duration::from_secs(30), "half closed");
    let setup = setup();
    for pool in [0, 1] {
        let mut client = setup.keyway.client(pool);
        let bytes: Vec<u8> = (0..1000)
            .flat_map(|nth| encode(&["INCR", &format!("half:{pool}:{}", nth % 7)]))
            .collect();
        client.send(&bytes);
        client.close_write();
        let replies = client.replies(1000);
        assert_eq!(replies[999], Value::Integer(1000 / 7 + 1));
        client.expect_closed();
    }
}

#[test]
fn clients_that_reset_in_the_middle_leave_nothing_behind() {
    let _watch = watchdog(Duration::from_secs(60), "resets");
    let setup = start();
    let pid = setup.keyway.process().pid();
    for pool in [0, 1] {
        let mut bystander = setup.keyway.client(pool);
        assert_eq!(bystander.words("SET reset:kept 1"), Value::simple("OK"));
        let pipeline: Vec<u8> =
            (0..500).flat_map(|nth| encode_words(&format!("SET reset:{nth} {nth}"))).collect();
        // Every server of the pool has a connection before descriptors are counted.
        bystander.send(&pipeline);
        for _ in 0..500 {
            assert_eq!(bystander.reply(), Value::simple("OK"));
        }
        let before = fd_count(pid);
        for _ in 0..200 {
            let mut client = setup.keyway.client(pool);
            let _ = client.try_send(&pipeline);
            client.reset();
            assert_eq!(bystander.words("GET reset:kept"), Value::bulk("1"));
        }
        wait_until("descriptors are given back", Duration::from_secs(10), || {
            fd_count(pid) <= before
        });
        assert_eq!(bystander.words("GET reset:kept"), Value::bulk("1"));
    }
}

/// With 100 descriptors and 300 clients, those inside are served, the process
/// neither dies nor spins, and it takes new clients when others leave.
#[test]
fn running_out_of_descriptors_refuses_clients_and_recovers() {
    let _watch = watchdog(Duration::from_secs(60), "descriptors used up");
    let servers = RedisServer::start_many(2);
    let config = KeywayConfig::new(vec![Pool::over("main", &servers)]).with_descriptors(100);
    let mut keyway = Keyway::start(KEYWAY, config);
    wait_until("the log tells", Duration::from_secs(5), || {
        keyway.process().log().contains("file descriptors for some")
    });
    let mut first = keyway.client(0);
    assert_eq!(first.words("SET a 1"), Value::simple("OK"));
    let mut clients: Vec<Client> =
        (0..300).filter_map(|_| Client::try_connect(keyway.address(0)).ok()).collect();
    for client in &mut clients {
        client.set_reply_within(Duration::from_millis(20));
    }
    let served = clients
        .iter_mut()
        .filter_map(|client| {
            client.try_send(b"PING\r\n").ok()?;
            client.try_reply().ok().filter(|reply| *reply == Value::simple("PONG"))
        })
        .count();
    assert!((40..100).contains(&served), "{served} served with 100 descriptors");
    for _ in 0..500 {
        assert_eq!(first.words("GET a"), Value::bulk("1"), "those inside are served");
    }
    let used = cpu_seconds_over(keyway.process().pid(), Duration::from_secs(2));
    assert!(used < 0.5, "spins: {used} s of CPU in 2 s with nothing to do");
    drop(clients);
    wait_until("new clients are served again", Duration::from_secs(10), || {
        let Ok(mut client) = Client::try_connect(keyway.address(0)) else { return false };
        client.try_send(b"PING\r\n").is_ok() && client.try_reply() == Ok(Value::simple("PONG"))
    });
    assert!(keyway.process_mut().is_running());
}

/// Connects clients until the process has no descriptor left.
fn use_up(keyway: &Keyway) -> Vec<Client> {
    let clients = (0..300).filter_map(|_| Client::try_connect(keyway.address(0)).ok()).collect();
    wait_until("all descriptors are in use", SOON, || fd_count(keyway.process().pid()) >= 99);
    clients
}

/// Tells other threads to stop when it is dropped.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A worker for which there is no descriptor is added once there is one. Connected clients are
/// served meanwhile.
#[test]
fn a_worker_that_finds_no_descriptor_is_added_later() {
    let _watch = watchdog(Duration::from_secs(120), "a worker without descriptors");
    let config = KeywayConfig::new(vec![Pool::store("local")])
        .with_server("workers", "{ min = 1, max = 2 }")
        .with_descriptors(100);
    let mut keyway = Keyway::start(KEYWAY, config);
    let mut first = keyway.client(0);
    assert_eq!(first.words("SETBIT long 67108863 1"), Value::Integer(0));
    let mut busy: Vec<Client> = (0..4).map(|_| keyway.client(0)).collect();
    busy.iter_mut().for_each(|busy| assert_eq!(busy.words("PING"), Value::simple("PONG")));
    let clients = use_up(&keyway);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The threads are told to stop even if something fails here: the scope waits for them.
        let _stop = StopAtEnd(&stop);
        for mut busy in busy {
            let stop = &stop;
            scope.spawn(move || {
                let request = encode_words("BITCOUNT long").repeat(20);
                busy.set_reply_within(SOON);
                while !stop.load(Ordering::SeqCst) {
                    busy.send(&request);
                    assert!(busy.replies(20).iter().all(|reply| *reply == Value::Integer(1)));
                }
            });
        }
        first.set_reply_within(SOON);
        let log = |words: &str| keyway.process().log().contains(words);
        // This lasts longer than adding a worker takes. Without a descriptor it is also impossible
        // to read how busy others are.
        for _ in 0..20 {
            let told = first.words("BITCOUNT long");
            assert_eq!(told, Value::Integer(1), "those inside are served");
        }
        assert!(!log("added one") && !log("panicked"));
        drop(clients);
        wait_until("a worker is added", Duration::from_secs(60), || log("added one"));
    });
    assert_eq!(keyway.client(0).words("STRLEN long"), Value::Integer(8 << 20));
    assert_eq!(first.words("STRLEN long"), Value::Integer(8 << 20));
    assert!(keyway.process_mut().is_running());
}

/// An upgrade for which there is no descriptor is refused, and has no other effect.
#[test]
fn an_upgrade_without_descriptors_fails_and_a_later_one_does_not() {
    let _watch = watchdog(Duration::from_secs(120), "an upgrade without descriptors");
    let servers = RedisServer::start_many(2);
    let config = KeywayConfig::new(vec![Pool::over("main", &servers)])
        .with_server("upgrade_grace", "\"1s\"")
        .with_descriptors(100);
    let mut keyway = Keyway::start(KEYWAY, config);
    let before = keyway.process().pid();
    let mut first = keyway.client(0);
    assert_eq!(first.words("SET a 1"), Value::simple("OK"));
    let clients = use_up(&keyway);
    keyway.process().signal(Signal::USR2);
    wait_until("it is refused", SOON, || keyway.process().log().contains("ERROR"));
    for _ in 0..100 {
        assert_eq!(first.words("GET a"), Value::bulk("1"), "those inside are served");
    }
    let log = keyway.process().log();
    let told = log.contains("upgrade refused") || log.contains("upgrade failed");
    assert!(told && !log.contains("panicked"), "{log}");
    assert!(keyway.process_mut().is_running());
    drop(clients);
    let serving = || serving_process(keyway.admin());
    wait_until("there are descriptors", SOON, || fd_count(before) < 50);
    assert_eq!(serving(), Some(before));
    keyway.process().signal(Signal::USR2);
    let heir = wait_for("another process serves", SOON, || serving().filter(|pid| *pid != before));
    let served = Client::try_connect(keyway.address(0)).map(|mut client| client.words("GET a"));
    let heir = rustix::process::Pid::from_raw(heir as i32).expect("a process");
    rustix::process::kill_process(heir, Signal::KILL).expect("it runs");
    assert_eq!(served.expect("it listens"), Value::bulk("1"));
}

/// The store is full, and clients ask for fifty times what they may hold and read none of it.
/// Well-behaved clients are served, memory stays within its bounds, and is freed.
#[test]
fn running_out_of_memory_refuses_writes_and_recovers() {
    const STORE: u64 = 64 << 20;
    const GREEDY: u64 = 60;
    const VALUE: usize = 100_000;
    const ADDRESS_SPACE: u64 = 1 << 30;
    let _watch = watchdog(Duration::from_secs(90), "memory used up");
    let pool =
        Pool::store("main").with("memory_max", "\"64MiB\"").with("eviction", "\"noeviction\"");
    // The greedy clients ask for three times of the memory that the system gives the process.
    let config = KeywayConfig::new(vec![pool]).with_address_space(ADDRESS_SPACE);
    let mut keyway = Keyway::start(KEYWAY, config);
    let pid = keyway.process().pid();
    let mut client = keyway.client(0);
    let value = "v".repeat(VALUE);
    let mut set = |nth: usize| client.command(&["SET", &format!("big:{nth}"), &value]);
    let full = (0..2000).map(&mut set).take_while(|reply| !reply.is_error()).count();
    let refused = set(full);
    assert!(refused.is_error() && refused.error_text().starts_with("OOM "), "{refused:?}");
    assert!((300..700).contains(&full), "{full} values of 100 kB in 64 MiB");
    let greedy = |_| {
        let mut greedy = keyway.client(0);
        greedy.shrink_receive_buffer(4096);
        let requests = encode(&["GET", "big:0"]).repeat(500);
        greedy.send(&requests);
        greedy
    };
    let greedy: Vec<Client> = (0..GREEDY).map(greedy).collect();
    for _ in 0..300 {
        assert_eq!(client.words("GET big:1"), Value::bulk(&value), "who reads is served");
        assert!(client.command(&["SET", "more", &value]).error_text().starts_with("OOM "));
    }
    // Each client may have 1 MiB undelivered, and the reply that exceeds it.
    let bound = STORE + GREEDY * (2 << 20) + (64 << 20);
    let peak = resident_peak_bytes(pid);
    assert!(peak < bound, "{peak} bytes at most, {bound} allowed");
    drop(greedy);
    assert_eq!(client.words("DEL big:2 big:3 big:4"), Value::Integer(3));
    assert_eq!(client.command(&["SET", "more", &value]), Value::simple("OK"));
    wait_until("memory comes back", Duration::from_secs(20), || {
        resident_bytes(pid) < STORE + (64 << 20)
    });
    assert!(keyway.process_mut().is_running());
}
