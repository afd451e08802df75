//! Clients of `shm://` behave like any others: their replies, their end, and what they leave
//! behind.

#![allow(clippy::disallowed_methods, reason = "children that are killed after a while")]

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keyway_ring::{CAPACITY_MIN, HELLO_LEN, HELLO_MAGIC, Hello, Pipe, Refusal, Spin, ask};
use keyway_testkit::conformance::{Family, Target, differential, run};
use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, Random, RedisServer, TempDir, Value, cpu_seconds_over,
    encode, encode_words, fd_count, resident_bytes, skipped, skipped_for_want_of,
    tool_is_installed, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// The variable that tells a test of this file, run again as a process of its own, where to
/// connect.
const CHILD: &str = "KEYWAY_TEST_SHM_CHILD";

/// Offsets of the words in the header of a ring.
const TAIL: u64 = 128;
const HEAD: u64 = 256;

/// Offset of the word that tells how its reader sleeps.
const READER: u64 = 384;

const SOON: Duration = Duration::from_secs(10);

/// A Keyway with a store at a TCP address and in shared memory.
struct Served {
    keyway: Keyway,
    path: PathBuf,
    _directory: TempDir,
}

fn start(settings: &str, tables: &str) -> Served {
    start_with("1", settings, tables)
}

fn start_with(workers: &str, settings: &str, tables: &str) -> Served {
    let directory = TempDir::new();
    let path = directory.path().join("keyway.shm");
    let listener = format!(
        "[[listener]]\nbind = \"shm://{}\"\npool = \"local\"\n{settings}\n\n{tables}",
        path.display()
    );
    let config = KeywayConfig::new(vec![Pool::store("local")])
        .with_server("workers", workers)
        .with_tables(&listener);
    Served { keyway: Keyway::start(KEYWAY, config), path, _directory: directory }
}

impl Served {
    fn client(&self) -> Client {
        Client::connect_shm(&self.path)
    }

    fn pid(&self) -> u32 {
        self.keyway.process().pid()
    }

    /// Returns the number of clients of the pool, from the metrics.
    fn connected(&self) -> f64 {
        self.keyway.metrics().sum("keyway_client_connections", &[])
    }

    fn closed(&self, fault: &str) -> f64 {
        let fault = format!("fault=\"{fault}\"");
        self.keyway.metrics().sum("keyway_client_closed_connections_total", &[&fault])
    }

    /// Returns the number of ranges in its address space.
    fn maps(&self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid()));
        maps.expect("it runs").lines().filter(|line| line.contains("keyway-ring")).count()
    }
}

fn ok() -> Value {
    Value::simple("OK")
}

fn pipe_of(socket: UnixStream, capacity: usize) -> Pipe {
    let shared = ask(&socket, &Hello::new(capacity, capacity)).unwrap().unwrap();
    Pipe::new(shared, socket, Spin::never())
}

#[test]
fn it_is_redis_over_shared_memory_too() {
    let _watch = watchdog(Duration::from_secs(120), "conformance over shm");
    let served = start("", "");
    let serves = ["types", "keyless", "databases", "keyway"];
    let target = Target::new("store", served.keyway.address(0), &serves).over_shm(&served.path);
    run(&target).assert_clean(&target);
    let reference = RedisServer::start();
    let bare = Target::new("redis", reference.address(), &[]);
    for seed in 0..3 {
        differential(&target, &bare, Family::Strings, seed, 10_000);
    }
    let target = target.in_resp3();
    run(&target).assert_clean(&target);
}

#[test]
fn a_client_is_listed_counted_and_bounded_like_others() {
    let _watch = watchdog(Duration::from_secs(60), "clients are listed");
    let served = start("", "[limits]\nclients_max = 4\n");
    let mut client = served.client();
    let list = client.words("CLIENT LIST").text();
    let laddr = format!("addr=shm:0 laddr=shm://{}", served.path.display());
    assert!(list.contains(&laddr), "{list}");
    let others: Vec<Client> = (0..3).map(|_| served.client()).collect();
    wait_until("all are counted", SOON, || served.connected() == 4.0);
    // The next client is refused in text, where it expects rings.
    let mut socket = UnixStream::connect(&served.path).unwrap();
    let mut told = String::new();
    socket.read_to_string(&mut told).unwrap();
    assert!(told.starts_with("-ERR max number of clients reached"), "{told}");
    drop(others);
    wait_until("they are gone", SOON, || served.connected() == 1.0);
    let mut other = served.client();
    let id = other.words("CLIENT ID").integer();
    assert_eq!(client.words(&format!("CLIENT KILL ID {id}")), Value::Integer(1));
    other.expect_closed();
    assert_eq!(client.words("PING"), Value::simple("PONG"));
}

#[test]
fn megabytes_go_both_ways_at_once_through_small_rings() {
    const EACH: usize = 100_000;
    const COUNT: usize = 200;
    let _watch = watchdog(Duration::from_secs(60), "megabytes through rings");
    let served = start("", "");
    let mut pipe = pipe_of(UnixStream::connect(&served.path).unwrap(), CAPACITY_MIN);
    pipe.set_timeout(Some(Duration::from_millis(1)));
    let values: Vec<Vec<u8>> =
        (0..COUNT).map(|nth| (0..EACH).map(|at| (at * 7 + nth * 13) as u8).collect()).collect();
    let asked: Vec<u8> =
        values.iter().flat_map(|value| encode(&[b"ECHO".as_slice(), value])).collect();
    let expected: Vec<u8> = values
        .iter()
        .flat_map(|value| [format!("${EACH}\r\n").as_bytes(), value, b"\r\n"].concat())
        .collect();
    let (mut sent, mut got, mut chunk) = (0, Vec::new(), vec![0; 100_000]);
    let mut was_full = false;
    while got.len() < expected.len() {
        if sent < asked.len() {
            match pipe.write(&asked[sent..]) {
                Ok(len) => sent += len,
                Err(error) if error.kind() == ErrorKind::TimedOut => was_full = true,
                Err(error) => panic!("{error}"),
            }
            pipe.flush().unwrap();
            // The client does not read before it must, so that the server has to wait.
            if !was_full && sent < asked.len() {
                continue;
            }
        }
        match pipe.read(&mut chunk) {
            Ok(0) => panic!("it has ended"),
            Ok(len) => got.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(got == expected, "other bytes than were sent");
    assert!(was_full, "the rings were never full: nothing was tried");
}

#[test]
fn what_was_sent_is_answered_after_the_client_has_ended_its_half() {
    let _watch = watchdog(Duration::from_secs(60), "half closed");
    let served = start("", "");
    let mut client = served.client();
    let asked: Vec<u8> = (0..1_000).flat_map(|_| encode_words("INCR n")).collect();
    client.send(&asked);
    client.finish();
    for nth in 1..=1_000 {
        assert_eq!(client.reply(), Value::Integer(nth));
    }
    client.expect_closed();
    // Requests of a client that leaves without a word are still executed.
    let mut client = served.client();
    client.send(&asked);
    drop(client);
    let mut other = served.client();
    wait_until("all was done", SOON, || other.words("GET n") == Value::bulk("2000"));
    wait_until("it is gone", SOON, || served.connected() == 1.0);
    assert_eq!(served.closed("client"), 0.0);
}

#[test]
fn who_says_no_hello_is_served_over_the_socket() {
    let _watch = watchdog(Duration::from_secs(60), "plain clients");
    let served = start("", "");
    let mut plain = Client::try_connect_unix(&served.path).unwrap();
    assert_eq!(plain.words("SET a 1"), ok());
    let value = "v".repeat(3 << 20);
    assert_eq!(plain.command(&["SET", "b", &value]), ok());
    assert_eq!(plain.words("GET b").text().len(), value.len());
    assert_eq!(served.client().words("GET a"), Value::bulk("1"));
    // Half a hello may be the beginning of a whole one. A client that leaves then is gone.
    let mut socket = UnixStream::connect(&served.path).unwrap();
    socket.write_all(&HELLO_MAGIC[..5]).unwrap();
    wait_until("it is counted", SOON, || served.connected() == 2.0);
    drop(socket);
    wait_until("it is gone", SOON, || served.connected() == 1.0);
}

#[test]
fn a_hello_that_is_refused_leaves_the_socket_as_it_was() {
    let _watch = watchdog(Duration::from_secs(60), "refusals");
    let served = start("ring_max = \"128KiB\"", "");
    let mut socket = UnixStream::connect(&served.path).unwrap();
    let refused = ask(&socket, &Hello::new(1 << 20, 1 << 20)).unwrap();
    assert_eq!(refused.err(), Some(Refusal::Capacity));
    // The hello has a version that does not exist yet.
    let mut hello = Hello::new(0, 0).encode();
    hello[6] = b'2';
    socket.write_all(&hello).unwrap();
    let mut answer = [0; HELLO_LEN];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!((&answer[..8], answer[8]), (b"\0KWSHM1!".as_slice(), 5));
    // The client goes on over the socket, or asks again.
    let second = socket.try_clone().unwrap();
    let mut pipe = pipe_of(second, 128 << 10);
    pipe.write_all(b"PING\r\n").unwrap();
    pipe.flush().unwrap();
    let mut reply = [0; 7];
    pipe.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");

    let mut socket = UnixStream::connect(&served.path).unwrap();
    assert!(ask(&socket, &Hello::new(1 << 20, 1 << 20)).unwrap().is_err());
    socket.write_all(b"PING\r\n").unwrap();
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    // A client that asks without end is not served.
    let refusals: Vec<u8> = (0..100).flat_map(|_| hello).collect();
    let mut greedy = UnixStream::connect(&served.path).unwrap();
    let _ = greedy.write_all(&refusals);
    let mut answers = Vec::new();
    let _ = greedy.read_to_end(&mut answers);
    assert!(answers.len() < refusals.len());
}

/// The shared memory of a connection, for doing what a client must not do.
struct Memory {
    socket: UnixStream,
    memory: File,
    pipe: Pipe,
}

impl Memory {
    fn at(path: &Path) -> Memory {
        let socket = UnixStream::connect(path).unwrap();
        let shared = ask(&socket, &Hello::new(0, 0)).unwrap().unwrap();
        let memory = File::from(shared.segment.descriptor().try_clone_to_owned().unwrap());
        socket.set_nonblocking(true).unwrap();
        let second = socket.try_clone().unwrap();
        let pipe = Pipe::new(shared, second, Spin::never());
        Memory { socket, memory, pipe }
    }

    /// Gets served once, and leaves the server waiting.
    fn ping(&mut self) {
        self.pipe.write_all(b"PING\r\n").unwrap();
        self.pipe.flush().unwrap();
        self.pipe.read_exact(&mut [0; 7]).unwrap();
    }

    /// Wakes the server, which may have closed the connection or ignore it.
    fn ring(&mut self) {
        let _ = self.socket.write(b"!");
    }

    fn write(&self, value: u64, at: u64) {
        self.memory.write_all_at(&value.to_le_bytes(), at).unwrap();
    }
}

#[test]
fn a_client_that_lies_is_closed_and_harms_nobody_else() {
    let _watch = watchdog(Duration::from_secs(60), "lying clients");
    let served = start("", "");
    let mut other = served.client();
    assert_eq!(other.words("SET a 1"), ok());
    let mut before = served.closed("client");
    let mut expect_closed = |what: &str| {
        before += 1.0;
        wait_until(what, SOON, || served.closed("client") == before);
        assert_eq!(other.words("GET a"), Value::bulk("1"));
    };
    // The header says that more was written than the ring holds, or that less was written than was
    // read.
    for tail in [u64::MAX, 1 << 40, 0] {
        let mut liar = Memory::at(&served.path);
        liar.ping();
        liar.write(tail, TAIL);
        liar.ring();
        expect_closed("a lie about what was written");
    }
    // The header says that more was read than was written. The server notices when the ring is
    // full.
    let mut liar = Memory::at(&served.path);
    liar.ping();
    liar.write(1 << 40, 4096 + CAPACITY_MIN as u64 + HEAD);
    let _ = liar.pipe.write_all(&encode_words("GET a").repeat(20_000));
    let _ = liar.pipe.flush();
    expect_closed("a lie about what was read");
    let log = served.keyway.process().log();
    assert!(log.contains("broken the rules of shared memory"), "{log}");
    assert!(log.contains("protocol"), "{log}");
    wait_until("all are gone", SOON, || served.connected() == 1.0);
}

/// The server never waits for a client to take its rings.
#[test]
fn a_client_that_never_hears_its_bell_stops_nobody() {
    let _watch = watchdog(Duration::from_secs(60), "a client that does not hear");
    let served = start("", "");
    let mut other = served.client();
    let mut deaf = Memory::at(&served.path);
    deaf.pipe.set_timeout(Some(Duration::ZERO));
    // There are more rings of the bell than any socket holds: the client says that it sleeps
    // whenever it sends a request.
    let sleeping = 4096 + CAPACITY_MIN as u64 + READER;
    let (mut got, mut answered) = (vec![0; 4096], 0);
    for _ in 0..3000 {
        deaf.memory.write_all_at(&2_u32.to_le_bytes(), sleeping).unwrap();
        let _ = deaf.pipe.write(b"PING\r\n");
        let _ = deaf.pipe.flush();
        deaf.ring();
        assert_eq!(other.words("PING"), Value::simple("PONG"));
        answered += deaf.pipe.read(&mut got).unwrap_or(0);
    }
    wait_until("it is answered all the same", SOON, || {
        answered += deaf.pipe.read(&mut got).unwrap_or(0);
        answered == 3000 * 7
    });
    // The server does not handle endless rings of the bell either.
    for _ in 0..20_000 {
        deaf.ring();
    }
    assert_eq!(other.words("PING"), Value::simple("PONG"));
    drop(deaf);
    wait_until("it is gone", SOON, || served.connected() == 1.0);
}

#[test]
fn whatever_is_scribbled_over_the_memory_others_are_served() {
    let _watch = watchdog(Duration::from_secs(60), "scribbling");
    let served = start("", "");
    let mut other = served.client();
    assert_eq!(other.words("SET a 1"), ok());
    let mut random = Random::new(7);
    let len = 2 * (4096 + CAPACITY_MIN);
    for _ in 0..200 {
        let Memory { mut socket, memory, mut pipe } = Memory::at(&served.path);
        pipe.set_timeout(Some(Duration::from_millis(1)));
        for _ in 0..8 {
            let _ = pipe.write(&encode_words("GET a").repeat(20));
            let _ = pipe.flush();
            // These are mostly words of the headers of both rings.
            let at = match random.below(4) {
                0 => random.below(len - 64),
                1 => random.below(900),
                _ => 4096 + CAPACITY_MIN + random.below(900),
            };
            let len = random.below(64);
            memory.write_all_at(&random.bytes(len), at as u64).unwrap();
            let _ = socket.write(b"!");
            let _ = pipe.read(&mut [0; 4096]);
        }
        assert_eq!(other.words("GET a"), Value::bulk("1"));
        drop((pipe, socket));
    }
    wait_until("all are gone", SOON, || served.connected() == 1.0);
    wait_until("their memory is", SOON, || served.maps() <= 4);
}

#[test]
fn the_memory_cannot_be_taken_away() {
    let served = start("", "");
    let Memory { memory, .. } = &Memory::at(&served.path);
    assert_eq!(memory.set_len(0).unwrap_err().kind(), ErrorKind::PermissionDenied);
    let more = memory.metadata().unwrap().len() * 2;
    assert_eq!(memory.set_len(more).unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[test]
fn ten_thousand_connections_leave_nothing() {
    let _watch = watchdog(Duration::from_secs(120), "ten thousand connections");
    let served = start("", "");
    let mut stays = served.client();
    assert_eq!(stays.words("PING"), Value::simple("PONG"));
    wait_until("it is counted", SOON, || served.connected() == 1.0);
    let (descriptors, maps) = (fd_count(served.pid()), served.maps());
    let mut before = 0;
    for nth in 0..10_000 {
        if nth == 1_000 {
            // Memory that the process takes only once does not count.
            before = resident_bytes(served.pid());
        }
        let socket = UnixStream::connect(&served.path).unwrap();
        let shared = ask(&socket, &Hello::new(0, 0)).unwrap().unwrap();
        if nth % 100 == 0 {
            let mut pipe = Pipe::new(shared, socket, Spin::never());
            pipe.write_all(b"PING\r\n").unwrap();
            pipe.flush().unwrap();
            pipe.read_exact(&mut [0; 7]).unwrap();
        }
    }
    wait_until("all are gone", SOON, || served.connected() == 1.0);
    wait_until("their descriptors are", SOON, || fd_count(served.pid()) <= descriptors);
    wait_until("their memory is", SOON, || served.maps() <= maps);
    let grown = resident_bytes(served.pid()).saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes more are resident");
    assert_eq!(stays.words("PING"), Value::simple("PONG"));
}

/// Starts a test of this module as a process of its own that connects to `path`.
fn spawn_self(test: &str, path: &Path) -> Child {
    let test = format!("shm_clients::{test}");
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The process that the next test kills. As a test of its own it does nothing.
#[test]
fn a_process_that_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let mut client = Client::connect_shm(Path::new(&path));
    let value = "v".repeat(1_000);
    let name = format!("child:{}", std::process::id());
    loop {
        let asked = [encode(&["SET", &name, &value]), encode(&["GET", &name])].concat();
        client.send(&asked.repeat(30));
        for reply in client.replies(60) {
            assert!(matches!(reply, Value::Simple(_) | Value::Bulk(_)), "{reply:?}");
        }
    }
}

#[test]
fn clients_that_are_killed_under_load_leave_nothing_and_harm_nobody() {
    let _watch = watchdog(Duration::from_secs(120), "killed clients");
    let served = start("", "");
    let mut other = served.client();
    assert_eq!(other.words("SET n 0"), ok());
    wait_until("it is counted", SOON, || served.connected() == 1.0);
    let descriptors = fd_count(served.pid());
    let mut count = 0;
    for _ in 0..10 {
        let mut children: Vec<Child> =
            (0..4).map(|_| spawn_self("a_process_that_is_killed", &served.path)).collect();
        wait_until("they are here", SOON, || served.connected() == 5.0);
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until {
            count += 1;
            assert_eq!(other.words("INCR n"), Value::Integer(count));
        }
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        wait_until("they are gone", SOON, || served.connected() == 1.0);
    }
    wait_until("nothing is left", SOON, || fd_count(served.pid()) <= descriptors);
    assert_eq!(served.closed("client"), 0.0);
    assert!(other.words("DBSIZE").integer() > 1, "they did nothing");
}

/// A program that asks for rings. It prints the code of the answer, and the reply to PING over the
/// socket.
const ASKER: &str = r#"
import socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"\0KWSHM1\n" + bytes(8) + struct.pack("<QQ", 65536, 65536))
code = struct.unpack("<H", s.recv(32)[8:10])[0]
print("code", code)
if code:
    s.sendall(b"PING\r\n")
    print(s.recv(100))
"#;

#[test]
fn processes_of_other_users_get_no_memory_unless_they_are_named() {
    const USER: &str = "12345";
    // The system's Python is used: another user cannot run a program in this user's home.
    const PYTHON: &str = "/usr/bin/python3";
    let _watch = watchdog(Duration::from_secs(60), "other users");
    if std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).ok()
        != Some(0)
    {
        return skipped("other users' processes: only root can start them");
    }
    if !tool_is_installed("setpriv") || !Path::new(PYTHON).exists() {
        return skipped_for_want_of("setpriv or python3", "other users' processes");
    }
    for (settings, expected) in [
        ("mode = \"0666\"".to_owned(), "code 1\nb'+PONG\\r\\n'\n"),
        (format!("mode = \"0666\"\nallow_uids = [1, {USER}]"), "code 0\n"),
    ] {
        let served = start(&settings, "");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(served.path.parent().unwrap(), open).unwrap();
        let output = Command::new("setpriv")
            .args(["--reuid", USER, "--clear-groups", PYTHON, "-c", ASKER])
            .arg(&served.path)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(told, expected, "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn what_has_come_before_the_end_is_answered() {
    let _watch = watchdog(Duration::from_secs(60), "draining");
    let served = start("", "");
    let mut idle = served.client();
    let mut busy = served.client();
    assert_eq!(busy.words("PING"), Value::simple("PONG"));
    busy.send(&encode_words("INCR n").repeat(1_000));
    served.keyway.process().terminate();
    for nth in 1..=1_000 {
        assert_eq!(busy.reply(), Value::Integer(nth));
    }
    busy.expect_closed();
    idle.expect_closed();
    let Served { keyway, path, _directory } = served;
    let (status, log) = keyway.stop(SOON);
    assert!(status.success(), "{log}");
    assert!(!path.exists(), "its socket is removed");
}

#[test]
fn clients_at_rest_cost_little() {
    const CLIENTS: u64 = 200;
    let _watch = watchdog(Duration::from_secs(60), "clients at rest");
    let served = start("", "");
    let value = "v".repeat(1_000);
    let asked = [encode(&["SET", "a", &value]), encode(&["GET", "a"])].concat().repeat(30);
    let load = |client: &mut Client| {
        for _ in 0..40 {
            client.send(&asked);
            client.replies(60);
        }
    };
    // Memory that the process takes only once does not count.
    load(&mut served.client());
    let before = resident_bytes(served.pid());
    let hello = Hello::new(1 << 20, 1 << 20);
    let mut clients: Vec<Client> =
        (0..CLIENTS).map(|_| Client::try_connect_shm(&served.path, &hello).unwrap()).collect();
    clients.iter_mut().for_each(load);
    let used = resident_bytes(served.pid()) - before;
    assert!(used > CLIENTS * (1 << 20), "{used} bytes: the rings were not filled");
    // Each side gives back the memory it writes to after a second; clients do it while they wait.
    let waiting: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            client.set_reply_within(Duration::from_secs(20));
            std::thread::spawn(move || drop(client.try_reply()))
        })
        .collect();
    wait_until("it is given back", SOON, || {
        resident_bytes(served.pid()).saturating_sub(before) < CLIENTS * (64 << 10)
    });
    let wakeups = || served.keyway.metrics().sum("keyway_worker_wakeups_total", &[]);
    let wakeups_before = wakeups();
    let share = cpu_seconds_over(served.pid(), Duration::from_secs(1));
    assert!(share < 0.1, "{share} s of CPU in a second, with nothing to do");
    let each = resident_bytes(served.pid()).saturating_sub(before) / CLIENTS;
    println!("{each} bytes for each client at rest");
    // It runs its upkeep ten times a second, with or without clients.
    let woken = wakeups() - wakeups_before;
    assert!(woken < 30.0, "woken {woken} times in a second, with nothing to do");
    served.keyway.process().terminate();
    waiting.into_iter().for_each(|client| client.join().unwrap());
}

/// Keeps its worker busy until told to stop.
fn burn(mut client: Client, stop: &AtomicBool) {
    client.set_reply_within(Duration::from_secs(60));
    let requests = encode(&["BITCOUNT", "long"]).repeat(8);
    while !stop.load(Ordering::SeqCst) {
        client.send(&requests);
        client.replies(8);
    }
}

#[test]
fn clients_are_handed_over_to_a_worker_that_is_added() {
    const CLIENTS: usize = 12;
    let _watch = watchdog(Duration::from_secs(180), "a worker is added");
    let served = start_with("{ min = 1, max = 2 }", "", "");
    let mut operator = served.keyway.client(0);
    assert_eq!(operator.command(&[&b"SET"[..], b"long", &vec![0xA5; 4 << 20]]), ok());
    let mut resting: Vec<Client> = (0..CLIENTS).map(|_| served.client()).collect();
    // This client has not sent a hello yet.
    let mut silent = Client::try_connect_unix(&served.path).unwrap();
    for client in &mut resting {
        assert_eq!(client.words("SELECT 3"), ok());
        assert_eq!(client.words("SET where three"), ok());
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let client = served.keyway.client(0);
            scope.spawn(|| burn(client, &stop));
        }
        wait_until("a worker is added", Duration::from_secs(90), || {
            served.keyway.process().log().contains("added one")
        });
        let has_moved =
            |client: &mut Client| client.words("CLIENT INFO").text().contains("worker=1");
        wait_until("some have moved", SOON, || resting.iter_mut().any(has_moved));
        stop.store(true, Ordering::SeqCst);
    });
    let value = "v".repeat(1 << 20);
    for client in &mut resting {
        assert_eq!(client.words("GET where"), Value::bulk("three"), "its database");
        assert_eq!(client.command(&["SET", "large", &value]), ok());
        assert_eq!(client.words("GET large"), Value::bulk(&value));
    }
    assert_eq!(silent.words("PING"), Value::simple("PONG"));
    drop((resting, silent));
    wait_until("they are gone", SOON, || served.connected() == 1.0);
    wait_until("their memory is", SOON, || served.maps() == 0);
}

#[test]
fn a_duplicate_of_the_memory_does_not_keep_a_connection() {
    let _watch = watchdog(Duration::from_secs(60), "memory that outlives its process");
    let served = start("", "");
    let mut client = Memory::at(&served.path);
    client.ping();
    let Memory { socket, memory, pipe } = client;
    drop((socket, pipe));
    wait_until("it is gone", SOON, || served.connected() == 0.0);
    wait_until("its memory is unmapped", SOON, || served.maps() == 0);
    drop(memory);
}

/// Returns the time that its workers have polled rings, in seconds.
fn looked(served: &Served) -> f64 {
    served.keyway.metrics().sum("keyway_worker_spin_seconds_total", &[])
}

#[test]
fn many_clients_that_are_looked_at_in_vain_take_little_time() {
    const CLIENTS: usize = 16;
    let _watch = watchdog(Duration::from_secs(60), "looking in vain");
    let served = start("", "");
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| served.client()).collect();
    let (before, begun) = (looked(&served), Instant::now());
    for _ in 0..300 {
        for client in &mut clients {
            assert_eq!(client.words("PING"), Value::simple("PONG"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let share = (looked(&served) - before) / begun.elapsed().as_secs_f64();
    println!("{:.2} % of a core was spent looking", share * 100.0);
    assert!(share < 0.1, "{share} of a core is spent looking");
}

#[test]
fn clients_that_look_all_the_time_keep_nobody_from_being_served() {
    const CLIENTS: usize = 8;
    let _watch = watchdog(Duration::from_secs(60), "clients that look");
    let served = start("", "");
    let mut other = served.keyway.client(0);
    let stop = AtomicBool::new(false);
    let asked = std::thread::scope(|scope| {
        let lookers: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let socket = UnixStream::connect(&served.path).unwrap();
                    let shared = ask(&socket, &Hello::new(0, 0)).unwrap().unwrap();
                    let spin = Spin::adaptive(Duration::from_micros(20));
                    let mut pipe = Pipe::new(shared, socket, spin);
                    let mut count = 0_u64;
                    while !stop.load(Ordering::SeqCst) {
                        pipe.write_all(b"PING\r\n").unwrap();
                        pipe.flush().unwrap();
                        pipe.read_exact(&mut [0; 7]).unwrap();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        for nth in 1..=500 {
            assert_eq!(other.words("INCR n"), Value::Integer(nth));
        }
        stop.store(true, Ordering::SeqCst);
        lookers.into_iter().map(|looker| looker.join().unwrap()).collect::<Vec<u64>>()
    });
    println!("while another asked 500 times the clients asked {asked:?} times");
    // A client may have slept through most of it, but none was left out.
    assert!(asked.iter().all(|count| *count > 0), "{asked:?}");
}

#[test]
fn a_process_that_dies_is_missed_within_fifty_milliseconds() {
    let _watch = watchdog(Duration::from_secs(60), "deaths of processes");
    let served = start("", "");
    let mut other = served.client();
    let mut took: Vec<Duration> = (0..7)
        .map(|_| {
            let mut child = spawn_self("a_process_that_is_killed", &served.path);
            wait_until("it is here", SOON, || {
                other.words("CLIENT LIST").text().lines().count() == 2
            });
            let begun = Instant::now();
            child.kill().unwrap();
            while other.words("CLIENT LIST").text().lines().count() == 2 {
                assert!(begun.elapsed() < SOON, "it is still there");
            }
            let took = begun.elapsed();
            child.wait().unwrap();
            took
        })
        .collect();
    took.sort();
    println!("missed after {took:?}");
    assert!(took[took.len() / 2] < Duration::from_millis(50), "{took:?}");
}

/// A client overwrites its memory all the time and stays. Its connection is closed, and it neither
/// keeps the server busy nor makes others wait.
#[test]
fn whoever_scribbles_over_his_memory_and_stays_keeps_no_processor_busy() {
    let _watch = watchdog(Duration::from_secs(60), "scribbling without end");
    let served = start("", "");
    let mut other = served.client();
    assert_eq!(other.words("SET a 1"), ok());
    let mut random = Random::new(11);
    // The headers get the values of some traffic first, and then anything at any time.
    let vandals: Vec<Memory> = (0..30)
        .map(|_| {
            let mut vandal = Memory::at(&served.path);
            vandal.ping();
            for _ in 0..20 {
                let ring = random.below(2) * (4096 + CAPACITY_MIN);
                let at = (ring + 128 * (1 + random.below(6)) + 4 * random.below(2)) as u64;
                let value = [0, 1, 2, 3, 7, 1 << 40, u64::MAX][random.below(7)];
                vandal.memory.write_all_at(&value.to_le_bytes()[..4], at).unwrap();
                vandal.ring();
            }
            vandal
        })
        .collect();
    for _ in 0..100 {
        assert_eq!(other.words("GET a"), Value::bulk("1"));
    }
    let share = cpu_seconds_over(served.pid(), Duration::from_secs(1));
    println!("{share} s of CPU in a second beside {} of them", vandals.len());
    assert!(share < 0.1, "{share} s of CPU in a second, with nothing to do");
    assert_eq!(other.words("GET a"), Value::bulk("1"));
    drop(vandals);
    wait_until("all are gone", SOON, || served.connected() == 1.0);
}
