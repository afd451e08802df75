//! Another process takes over while clients are served.
//!
//! There are two kinds of clients: those that stay, whose every reply is checked over all upgrades,
//! and those that connect and leave all the time, none of which may be refused or reset.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keyway_testkit::certificates::CertificateFiles;
use keyway_testkit::{
    CheckedLoad, Client, Flood, LoadShape, MemcachedServer, Pool, Process, RedisCluster,
    RedisServer, Signal, TempDir, Value, encode_words, free_address, has_memcached, http_get,
    keyway_binary, wait_for, wait_until, watchdog,
};
use parking_lot::Mutex;

use crate::tls_client::{TlsLogin, tls_table};
use crate::upgrading::{KEYWAY, SOON, Upgrading, serving};

/// The addresses by which clients connect.
#[derive(Clone)]
enum Door {
    Tcp(SocketAddr),
    Unix(PathBuf),
    Tls(SocketAddr, Arc<CertificateFiles>),
    Memcached(SocketAddr),
}

trait Both: Read + Write {}
impl<T: Read + Write> Both for T {}

/// Clients that connect, ask, and leave.
struct Visitors {
    stop: Arc<AtomicBool>,
    visits: Arc<AtomicU64>,
    faults: Arc<Mutex<Vec<String>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Visitors {
    fn start(doors: &[Door]) -> Visitors {
        let mut visitors = Visitors {
            stop: Arc::default(),
            visits: Arc::default(),
            faults: Arc::default(),
            threads: Vec::new(),
        };
        for (number, door) in doors.iter().cloned().enumerate() {
            let (stop, visits, faults) = (
                Arc::clone(&visitors.stop),
                Arc::clone(&visitors.visits),
                Arc::clone(&visitors.faults),
            );
            visitors.threads.push(std::thread::spawn(move || {
                let mut turn = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    turn += 1;
                    match visit(&door, number, turn) {
                        Ok(()) => drop(visits.fetch_add(1, Ordering::Relaxed)),
                        Err(what) => faults.lock().push(what),
                    }
                }
            }));
        }
        visitors
    }

    fn wait(&self, more: u64) {
        let until = self.visits.load(Ordering::Relaxed) + more;
        wait_until("visitors come and go", SOON, || {
            self.visits.load(Ordering::Relaxed) >= until || !self.faults.lock().is_empty()
        });
    }

    fn assert_welcome(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
        let faults = self.faults.lock();
        assert!(faults.is_empty(), "{} faults, first {:?}", faults.len(), faults.first());
        self.visits.load(Ordering::Relaxed)
    }
}

impl Drop for Visitors {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn told(what: &'static str) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{what}: {error}")
}

/// Connects, sends a few requests in pieces, reads the replies, and leaves.
fn visit(door: &Door, number: usize, turn: u64) -> Result<(), String> {
    let mut socket: Box<dyn Both> = match door {
        Door::Tls(addr, files) => return visit_by_tls((*addr, files), number, turn),
        Door::Tcp(addr) | Door::Memcached(addr) => {
            let socket = TcpStream::connect(addr).map_err(told("connect"))?;
            socket.set_read_timeout(Some(SOON)).map_err(told("timeout"))?;
            Box::new(socket)
        }
        Door::Unix(path) => {
            let socket = UnixStream::connect(path).map_err(told("connect (unix)"))?;
            socket.set_read_timeout(Some(SOON)).map_err(told("timeout"))?;
            Box::new(socket)
        }
    };
    for step in 0..3 {
        let (key, value) = (format!("visit:{number}"), format!("{turn}:{step}"));
        let (len, is_memcached) = (value.len(), matches!(door, Door::Memcached(_)));
        let (request, expected) = match is_memcached {
            false => (
                format!("SET {key} {value}\r\nGET {key}\r\n"),
                format!("+OK\r\n${len}\r\n{value}\r\n"),
            ),
            true => (
                format!("set {key} 0 0 {len}\r\n{value}\r\nget {key}\r\n"),
                format!("STORED\r\nVALUE {key} 0 {len}\r\n{value}\r\nEND\r\n"),
            ),
        };
        socket.write_all(request.as_bytes()).map_err(told("write"))?;
        let mut reply = vec![0; expected.len()];
        socket.read_exact(&mut reply).map_err(told("read"))?;
        if reply != expected.as_bytes() {
            return Err(format!("{:?} is not {expected:?}", String::from_utf8_lossy(&reply)));
        }
    }
    Ok(())
}

fn visit_by_tls(
    (addr, files): (SocketAddr, &CertificateFiles),
    number: usize,
    turn: u64,
) -> Result<(), String> {
    let mut client = TlsLogin::new(files).connect(addr);
    for step in 0..3 {
        let value = format!("{turn}:{step}");
        let request = format!("SET visit:{number} {value}\r\nGET visit:{number}\r\n");
        let expected = format!("+OK\r\n${}\r\n{value}\r\n", value.len());
        let reply = client.ask(&request, &expected);
        if reply != expected {
            return Err(format!("{reply:?} by TLS is not {expected:?}"));
        }
    }
    Ok(())
}

fn unix_listener(name: &str) -> String {
    format!("[[listener]]\nbind = \"unix://{{}}/{name}\"\npool = \"main\"\nmode = \"0660\"\n")
}

#[test]
fn nobody_is_refused_reset_or_lost_by_five_upgrades_in_a_row() {
    let _watch = watchdog(Duration::from_secs(240), "five upgrades");
    let servers = [RedisServer::start()];
    let server = [("workers", "3"), ("upgrade_grace", "\"10m\"")];
    let mut one =
        Upgrading::start(vec![Pool::over("main", &servers)], &server, &unix_listener("k.sock"));
    let (tcp, unix) = (Door::Tcp(one.keyway.address(0)), Door::Unix(one.path("k.sock")));
    let file = || std::fs::metadata(one.path("k.sock")).map(|it| (it.ino(), it.mode())).unwrap();
    let first_file = file();
    let load = CheckedLoad::start(one.keyway.address(0), LoadShape::default());
    let visitors =
        Visitors::start(&[tcp.clone(), tcp.clone(), tcp.clone(), tcp, unix.clone(), unix]);
    load.wait_replies(200);
    visitors.wait(200);
    let mut pids = vec![one.pid()];
    for round in 0..5 {
        let pid = match round % 2 {
            0 => one.upgrade(),
            _ => {
                let (status, text) = one.ctl(&["upgrade"]);
                assert_eq!(status, 0, "{text}");
                let pid = one.pid();
                assert!(text.contains(&format!("process {pid} of version")), "{text}");
                pid
            }
        };
        assert!(!pids.contains(&pid));
        pids.push(pid);
        load.wait_replies(200);
        visitors.wait(200);
    }
    assert_eq!(file(), first_file, "the socket's file is the one it was");
    load.stop().assert_clean();
    assert!(visitors.assert_welcome() > 1000);
    // No client is left there.
    let (last, before) = pids.split_last().unwrap();
    assert!(one.keyway.process_mut().wait_exit(SOON).success());
    wait_until("those before end", SOON, || before.iter().all(|pid| !one.is_alive(*pid)));
    assert_eq!(visit(&Door::Unix(one.path("k.sock")), 0, 0), Ok(()), "its file has stayed");
    assert_eq!(one.pid(), *last);
    let log = one.log();
    assert!(!log.contains("panicked") && !log.contains("WARN"), "{log}");
    one.signal(*last, Signal::TERM);
    wait_until("the last one ends", SOON, || !one.is_alive(*last));
    assert!(!one.path("k.sock").exists(), "who listens last removes it");
}

/// TLS and memcached listeners, and an admin listener that asks for a token.
#[test]
fn other_doors_stay_open_and_the_token_goes_on_to_count() {
    let _watch = watchdog(Duration::from_secs(240), "upgrades with other doors");
    if !has_memcached("upgrades with clients of memcached") {
        return;
    }
    let (servers, of_memcached) = ([RedisServer::start()], [MemcachedServer::start()]);
    let files = Arc::new(CertificateFiles::default());
    let secured = free_address();
    let tls = tls_table(&files, "server", "");
    let more = format!("[[listener]]\nbind = \"tcp://{secured}\"\npool = \"main\"\ntls = {tls}\n");
    let token = files.write("token", "a-token-that-is-long-enough").display().to_string();
    let other = files.write("other", "another-that-is-long-enough").display().to_string();
    let pools = vec![Pool::over("main", &servers), Pool::memcached("items", &of_memcached)];
    let quoted = format!("{token:?}");
    let server = [("workers", "2"), ("upgrade_grace", "\"10m\""), ("admin_token_file", &quoted)];
    let one = Upgrading::start(pools, &server, &more);
    let pid = || {
        let (status, text) = one.ctl(&["--token-file", &token, "--json", "status"]);
        assert_eq!(status, 0, "{text}");
        let rest = text.split("\"pid\":").nth(1).expect("the process").trim_start().to_owned();
        rest.split(|it: char| !it.is_ascii_digit()).next().and_then(|it| it.parse().ok())
    };
    let by_tls = Door::Tls(secured, Arc::clone(&files));
    let items = Door::Memcached(one.keyway.address(1));
    let visitors = Visitors::start(&[by_tls.clone(), by_tls, items.clone(), items]);
    // Some clients stay through all of it.
    let mut stays = TlsLogin::new(&files).connect(secured);
    let mut talks = one.keyway.memcached_client(1);
    let mut pids: Vec<Option<u32>> = vec![pid()];
    for round in 0..3 {
        visitors.wait(60);
        for (file, word) in [(None, "asks for a token"), (Some(&other), "the token is wrong")] {
            let with: Vec<&str> = file.iter().flat_map(|file| ["--token-file", file]).collect();
            let (status, text) = one.ctl(&[&with[..], &["upgrade"]].concat());
            assert!(status != 0 && text.contains(word), "{text}");
        }
        assert_eq!(pid(), pids[round], "nobody else may");
        let (status, text) = one.ctl(&["--token-file", &token, "upgrade"]);
        assert_eq!(status, 0, "{text}");
        pids.push(pid());
        assert_ne!(pids[round], pids[round + 1]);
        assert!(stays.ping(), "who stays is served by who was there");
        talks.send(b"mn\r\n");
        assert_eq!(talks.line(), "MN");
    }
    visitors.wait(60);
    assert!(visitors.assert_welcome() > 200);
    let log = one.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn what_does_not_come_up_leaves_the_process_as_it_was() {
    let _watch = watchdog(Duration::from_secs(180), "upgrades that fail");
    let servers = [RedisServer::start()];
    let server = [("workers", "2"), ("upgrade_timeout", "\"3s\"")];
    let one =
        Upgrading::start(vec![Pool::over("main", &servers)], &server, &unix_listener("k.sock"));
    let doors = [Door::Tcp(one.keyway.address(0)), Door::Unix(one.path("k.sock"))];
    let visitors = Visitors::start(&doors);
    let load = CheckedLoad::start(one.keyway.address(0), LoadShape::default());
    visitors.wait(50);
    let pid = one.pid();
    let fails = |reason: &str| {
        let (status, text) = one.ctl(&["upgrade"]);
        assert_eq!(status, 1, "{text}");
        assert!(text.contains("serves on") && text.contains(reason), "{text}");
        assert!(one.log().contains("upgrade failed: this process serves on as before"));
        assert_eq!(one.pid(), pid);
        visitors.wait(20);
    };
    one.write(&one.text.replace("kind = \"sharded\"", "kind = \"shardet\""));
    fails("shardet");
    // The file is right, but the address belongs to another process.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let more = format!("[[listener]]\nbind = \"tcp://{address}\"\npool = \"main\"\n\n[pool.main]");
    one.write(&one.text.replace("[pool.main]", &more));
    fails("another process has it");
    one.write(&one.text);
    one.install_script("dies", "exit 7");
    fails("exit status: 7");
    one.install(Path::new("/nowhere/keyway"));
    let (status, text) = one.ctl(&["upgrade"]);
    assert!(status == 1 && text.contains("cannot start"), "{text}");
    one.install_script("hangs", "exec sleep 1000");
    one.signal(pid, Signal::USR2);
    wait_until("it is started", SOON, || one.count("upgrade: started") == 4);
    // There is one upgrade at a time, and no reload meanwhile.
    let (status, text) = one.ctl(&["upgrade"]);
    assert!(status == 1 && text.contains("another upgrade is going on"), "{text}");
    let (status, text) = one.ctl(&["reload"]);
    assert!(status == 1 && text.contains("an upgrade is going on"), "{text}");
    wait_until("it is given up", SOON, || one.log().contains("upgrade_timeout (3s)"));
    wait_until("it is killed", SOON, || one.count("was killed") == 1);
    assert_eq!(one.pid(), pid);
    visitors.wait(50);
    // The next upgrade is not affected.
    one.repair();
    assert_ne!(one.upgrade(), pid);
    visitors.wait(50);
    load.stop().assert_clean();
    visitors.assert_welcome();
    assert!(!one.log().contains("panicked"));
}

#[test]
fn sigterm_ends_an_upgrade_that_is_going_on() {
    let _watch = watchdog(Duration::from_secs(60), "SIGTERM during an upgrade");
    let servers = [RedisServer::start()];
    let mut one = Upgrading::start(vec![Pool::over("main", &servers)], &[], "");
    one.install_script("hangs", "exec sleep 1000");
    one.signal(one.pid(), Signal::USR2);
    wait_until("it is started", SOON, || one.count("upgrade: started") == 1);
    one.keyway.process().terminate();
    assert!(one.keyway.process_mut().wait_exit(SOON).success());
    assert!(one.log().contains("the upgrade that was going on is given up"), "{}", one.log());
    assert!(TcpStream::connect(one.keyway.address(0)).is_err(), "nobody listens");
}

#[test]
fn listeners_and_workers_differ_between_the_two() {
    let _watch = watchdog(Duration::from_secs(120), "other listeners");
    let servers = [RedisServer::start()];
    let pools = vec![Pool::over("main", &servers), Pool::over("other", &servers)];
    let more = unix_listener("stays")
        + &unix_listener("goes")
        + "[[listener]]\n"
        + "bind = \"shm://{}/shm\"\npool = \"main\"\n";
    let mut one = Upgrading::start(pools, &[("workers", "3")], &more);
    let (stays, goes) = (one.keyway.address(0), one.keyway.address(1));
    let doors = [
        Door::Tcp(stays),
        Door::Tcp(stays),
        Door::Unix(one.path("stays")),
        Door::Unix(one.path("shm")),
    ];
    let visitors = Visitors::start(&doors);
    visitors.wait(50);
    // Shared memory stays between the client and the process that have it.
    let mut ring = Client::connect_shm(&one.path("shm"));
    assert_eq!(ring.words("SET ring 1"), Value::simple("OK"));
    let comes = free_address();
    let text = one.text.replace(&format!("tcp://{goes}"), &format!("tcp://{comes}"));
    let text = text.replace("/goes\"", "/comes\"").replace("workers = 3", "workers = 1");
    let text = text.replace("0660", "0600");
    one.write(&text);
    one.upgrade();
    visitors.wait(200);
    for door in [Door::Tcp(comes), Door::Unix(one.path("comes"))] {
        assert_eq!(visit(&door, 9, 1), Ok(()));
    }
    assert_eq!(ring.words("GET ring"), Value::bulk("1"));
    drop(ring);
    let mut ring = Client::connect_shm(&one.path("shm"));
    assert_eq!(ring.words("GET ring"), Value::bulk("1"), "the next process shares memory as well");
    assert!(one.keyway.process_mut().wait_exit(SOON).success());
    assert!(TcpStream::connect(goes).is_err());
    assert!(!one.path("goes").exists());
    let mode = std::fs::metadata(one.path("stays")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600, "as the file says now");
    let log = one.log();
    assert!(log.contains("more workers than `workers` says"), "{log}");
    visitors.wait(100);
    visitors.assert_welcome();
}

#[test]
fn a_server_ejected_by_hand_stays_so_in_the_next_process() {
    let _watch = watchdog(Duration::from_secs(90), "an upgrade with an ejected server");
    let servers = RedisServer::start_many(3);
    let it = Upgrading::start(vec![Pool::over("main", &servers)], &[], "");
    let address = |at: usize| servers[at].address().to_string();
    for at in [0, 2] {
        assert_eq!(it.ctl(&["eject", "main", &address(at)]).0, 0);
    }
    assert_eq!(it.ctl(&["restore", "main", &address(2)]).0, 0);
    let next = it.upgrade();
    assert_ne!(next, it.keyway.process().pid());
    let (_, shown) = it.ctl(&["servers"]);
    let states = (0..3).map(|at| {
        let line = shown.lines().find(|line| line.contains(&address(at))).expect("a line");
        line.contains(" ejected ") && line.contains(" operator ")
    });
    assert_eq!(states.collect::<Vec<_>>(), [true, false, false], "{shown}");
    assert_eq!(it.count("stays ejected on an operator's word"), 1, "{}", it.log());
    assert_eq!(it.ctl(&["restore", "main", &address(0)]).0, 0);
}

#[test]
fn a_shard_that_has_lost_its_replica_is_known_to_the_next_process() {
    let _watch = watchdog(Duration::from_secs(180), "an upgrade beside a lost replica");
    let mut cluster = RedisCluster::start(3, 1);
    let seeds: Vec<String> = cluster.addresses().iter().map(|it| format!("\"{it}\"")).collect();
    let pool = Pool::of_kind("main", "cluster").with("servers", &format!("[{}]", seeds.join(", ")));
    let it = Upgrading::start(vec![pool], &[], "");
    let unreplicated = |shown: &str| shown.matches("no-replica").count();
    wait_until("all is known", SOON, || it.ctl(&["servers"]).1.matches("replica").count() >= 3);
    // All replicas are killed, so that no other shard tells the next process that there were any.
    (3..6).for_each(|node| cluster.kill(node));
    let all_lost = || unreplicated(&it.ctl(&["servers"]).1) == 3;
    wait_until("no shard has a replica left", Duration::from_secs(60), all_lost);
    let told = it.count("shard has no replica left");
    assert_eq!(told, 3, "{}", it.log());
    it.upgrade();
    wait_until("the next process knows", Duration::from_secs(60), all_lost);
    assert_eq!(it.count("shard has no replica left"), told + 3, "{}", it.log());
}

#[test]
fn clients_that_stay_are_left_when_the_grace_is_over() {
    let _watch = watchdog(Duration::from_secs(60), "the end of the grace");
    let servers = [RedisServer::start()];
    let server = [("upgrade_grace", "\"2s\"")];
    let mut one = Upgrading::start(vec![Pool::over("main", &servers)], &server, "");
    let (mut idle, mut blocked) = (one.keyway.client(0), one.keyway.client(0));
    assert_eq!(idle.words("PING"), Value::simple("PONG"));
    blocked.send(&encode_words("BLPOP nothing 0"));
    wait_until("it waits", SOON, || {
        one.keyway.client(0).words("CLIENT LIST").text().contains("cmd=blpop")
    });
    let before = one.pid();
    one.upgrade();
    assert_eq!(idle.words("SET a 1"), Value::simple("OK"), "it is served on");
    one.signal(before, Signal::USR2);
    wait_until("it says who serves", SOON, || one.log().contains("signal ignored"));
    assert!(blocked.reply().error_text().contains("UNBLOCKED"));
    assert!(one.keyway.process_mut().wait_exit(SOON).success());
    idle.expect_closed();
    assert!(one.log().contains("stopped"));
}

#[test]
fn no_reply_is_lost_at_the_end_of_the_grace() {
    let _watch = watchdog(Duration::from_secs(120), "floods at the end of the grace");
    let servers = [RedisServer::start()];
    let server = [("upgrade_grace", "\"1s\""), ("drain_timeout", "\"30s\""), ("workers", "2")];
    let pool = Pool::over("main", &servers).with("timeout", "\"30s\"");
    let mut one = Upgrading::start(vec![pool], &server, "");
    let flood = Flood::start(one.keyway.address(0), "flood", 6);
    flood.await_replies(5000);
    one.upgrade();
    let mut behind = servers[0].client();
    for (key, replies) in flood.ended() {
        assert_eq!(behind.command(&["GET", &key]), Value::bulk(replies.to_string()), "{key}");
    }
    assert!(one.keyway.process_mut().wait_exit(SOON).success());
    assert!(!one.log().contains("drain_timeout was over"), "{}", one.log());
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a while is to pass")]
fn who_has_begun_to_come_in_does_so_still() {
    let _watch = watchdog(Duration::from_secs(60), "a client at the door");
    let servers = [RedisServer::start()];
    let door = "[[listener]]\nbind = \"unix://{}/door\"\npool = \"main\"\n\
                proxy_protocol = true\nhandshake_timeout = \"30s\"\n";
    let workers = [("workers", "1")];
    let one = Upgrading::start(vec![Pool::over("main", &servers)], &workers, door);
    let mut old = one.keyway.client(0);
    let mut entering = UnixStream::connect(one.path("door")).unwrap();
    entering.write_all(b"PROXY TCP4 192.0.2.1").unwrap();
    (0..3).for_each(|_| assert_eq!(old.words("PING"), Value::simple("PONG")));
    one.upgrade();
    wait_until("it is left", SOON, || one.count("upgraded: process") == 1);
    (0..3).for_each(|_| assert_eq!(old.words("PING"), Value::simple("PONG")));
    drop(old);
    // By then a worker without clients has ended.
    let since = Instant::now();
    wait_until("a while", SOON, || since.elapsed() > Duration::from_millis(1500));
    entering.write_all(b" 192.0.2.2 1 2\r\nPING\r\n").unwrap();
    let mut reply = [0; 7];
    entering.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

#[test]
fn a_process_that_fails_after_it_has_taken_over_is_missed() {
    let _watch = watchdog(Duration::from_secs(60), "the end of an heir");
    let servers = [RedisServer::start()];
    let grace = [("upgrade_grace", "\"1h\"")];
    let local = unix_listener("local");
    let mut one = Upgrading::start(vec![Pool::over("main", &servers)], &grace, &local);
    let mut idle = one.keyway.client(0);
    assert_eq!(idle.words("PING"), Value::simple("PONG"));
    let heir = one.upgrade();
    wait_until("it is left", SOON, || one.count("upgraded: process") == 1);
    assert_eq!(idle.words("PING"), Value::simple("PONG"), "it is served on");
    one.signal(heir, Signal::KILL);
    assert!(!one.keyway.process_mut().wait_exit(SOON).success());
    assert!(one.log().contains("which had taken over, has failed"));
    idle.expect_closed();
}

#[test]
fn systemd_the_pid_file_and_descriptors_are_as_after_a_start() {
    let _watch = watchdog(Duration::from_secs(60), "systemd");
    let folder = TempDir::new();
    let manager = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    manager.set_read_timeout(Some(SOON)).unwrap();
    let hear = || {
        let mut bytes = [0; 64];
        let len = manager.recv(&mut bytes).expect("it is told");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let (redis, address, admin) = (RedisServer::start(), free_address(), free_address());
    let text = format!(
        "[server]\nadmin = \"tcp://{admin}\"\nworkers = 2\n[[listener]]\nbind = \"tcp://{address}\"\n\
         pool = \"main\"\n[pool.main]\nkind = \"sharded\"\nservers = [\"{}:1\"]\npreconnect = true\n",
        redis.address()
    );
    let file = folder.write("keyway.toml", &text);
    let pid_file = folder.path().join("keyway.pid");
    let mut command = Command::new(keyway_binary(KEYWAY));
    command.arg("serve").arg(&file).arg("--pid-file").arg(&pid_file);
    command.env("NOTIFY_SOCKET", folder.path().join("notify"));
    let mut first = Process::spawn("first", &mut command, folder.path());
    assert_eq!(hear(), "READY=1\n");
    let written = || std::fs::read_to_string(&pid_file).unwrap().trim().parse::<u32>().unwrap();
    assert_eq!(written(), first.pid());
    let descriptors = |pid: u32| {
        let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let links = links.filter_map(|it| std::fs::read_link(it.ok()?.path()).ok());
        let kind = |link: PathBuf| link.to_string_lossy().split(':').next().unwrap().to_owned();
        let mut kinds: Vec<String> = links.map(kind).collect();
        kinds.sort();
        kinds
    };
    // Connections of clients that have just asked are closed a moment later.
    let settled = |pid: u32| {
        let mut seen = (Vec::new(), 0);
        wait_for("the descriptors stay as they are", SOON, || {
            let now = descriptors(pid);
            seen = if now == seen.0 { (now, seen.1 + 1) } else { (now, 0) };
            (seen.1 == 20).then(|| seen.0.clone())
        })
    };
    let expected = settled(first.pid());
    first.signal(Signal::USR2);
    let told = hear();
    let pid: u32 = told.trim().strip_prefix("MAINPID=").expect(&told).parse().unwrap();
    // The previous process may answer clients that had connected before it let go.
    wait_until("the next one answers", SOON, || serving(admin) == pid);
    wait_until("it has written its file", SOON, || written() == pid);
    assert!(first.wait_exit(SOON).success());
    assert_eq!(written(), pid, "it is the next one's");
    assert_eq!(settled(pid), expected, "nothing is left open");
    assert_eq!(Client::connect(address).words("PING"), Value::simple("PONG"));
    assert_eq!(http_get(admin, "/v1/health").status, 200);
    let raw = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(raw, Signal::TERM).unwrap();
    wait_until("it ends", SOON, || !pid_file.exists());
}
