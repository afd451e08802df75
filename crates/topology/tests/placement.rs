//! Every key lands where twemproxy puts it: keys are set through a real
//! nutcracker in front of real redis-servers, and each server must then hold
//! exactly the keys that [`ServerSet`] assigns to it.

#![allow(
    clippy::disallowed_methods,
    reason = "real processes: their sockets open without an event to wait for"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use keyway_topology::{Distribution, Endpoint, Hash, HashTag, Ring, Server, ServerSet};

const WATCHDOG: Duration = Duration::from_secs(20);
const KEY_COUNT: usize = 1_200;

/// A process that ends when it is dropped.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Process {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Process(child.spawn().unwrap_or_else(|error| panic!("{name} does not start: {error}")))
    }

    /// Waits until something listens at `port`. Returns false if the process ended.
    fn is_listening(&mut self, host: &str, port: u16) -> bool {
        let start = Instant::now();
        loop {
            if self.0.try_wait().unwrap().is_some() {
                return false;
            }
            if TcpStream::connect((host, port)).is_ok() {
                return true;
            }
            assert!(start.elapsed() < WATCHDOG, "nothing listens at {host}:{port}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that is removed when it is dropped.
struct Directory(PathBuf);

impl Directory {
    fn create() -> Directory {
        let path = std::env::temp_dir().join(format!("keyway-placement-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns ports that were free a moment ago, all different.
fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

/// A minimal client.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(host: &str, port: u16) -> Client {
        let stream = TcpStream::connect((host, port)).unwrap();
        stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(BufReader::new(stream))
    }

    fn send(&mut self, requests: &[&[&[u8]]]) {
        let mut bytes = Vec::new();
        for arguments in requests {
            write!(bytes, "*{}\r\n", arguments.len()).unwrap();
            for argument in *arguments {
                write!(bytes, "${}\r\n", argument.len()).unwrap();
                bytes.extend_from_slice(argument);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.0.get_mut().write_all(&bytes).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Returns every key of the database.
    fn keys(&mut self) -> BTreeSet<Vec<u8>> {
        self.send(&[&[b"KEYS", b"*"]]);
        let count: usize = self.line().strip_prefix('*').unwrap().parse().unwrap();
        (0..count)
            .map(|_| {
                let len: usize = self.line().strip_prefix('$').unwrap().parse().unwrap();
                let mut key = vec![0; len + 2];
                self.0.read_exact(&mut key).unwrap();
                key.truncate(len);
                key
            })
            .collect()
    }
}

/// A redis-server with its own port and unix socket.
struct Redis {
    _process: Process,
    client: Client,
    address: String,
    socket: PathBuf,
}

impl Redis {
    /// Starts at `port` of `host`. Returns `None` if it could not listen there.
    fn start(directory: &Path, host: &str, port: u16) -> Option<Redis> {
        let socket = directory.join(format!("{port}.sock"));
        let mut process = Process::start(
            Command::new("redis-server")
                .args(["--bind", host, "--port", &port.to_string()])
                .args(["--save", "", "--appendonly", "no", "--databases", "1"])
                .arg("--unixsocket")
                .arg(&socket)
                .arg("--dir")
                .arg(directory),
        );
        let listening = process.is_listening(host, port);
        listening.then(|| Redis {
            _process: process,
            client: Client::connect(host, port),
            address: format!("{host}:{port}"),
            socket,
        })
    }

    fn listens_at(&self, endpoint: &Endpoint) -> bool {
        [self.address.as_str(), self.socket.to_str().unwrap()]
            .into_iter()
            .any(|text| text.parse().as_ref() == Ok(endpoint))
    }

    /// Starts on any free port. Tries again, because another process may take the port.
    fn start_somewhere(directory: &Path) -> Redis {
        (0..10)
            .find_map(|_| Redis::start(directory, "127.0.0.1", free_ports(1)[0]))
            .expect("redis-server finds no port")
    }

    /// Starts on port 11211, which has a rule of its own. Any loopback address will do, so this
    /// hardly ever meets a memcached.
    fn start_at_11211(directory: &Path) -> Redis {
        let process_id = std::process::id();
        (0..10u8)
            .find_map(|attempt| {
                let [.., a, b] = process_id.to_be_bytes();
                let host = Ipv4Addr::new(127, 100 + attempt, a, b.clamp(1, 254)).to_string();
                Redis::start(directory, &host, 11211)
            })
            .expect("port 11211 is free on no loopback address")
    }
}

/// One pool, as Keyway and nutcracker know it.
struct Case {
    what: String,
    port: u16,
    pool: ServerSet,
    /// The server lines that nutcracker reads. `pool` is made from the same lines.
    lines: Vec<String>,
    /// The server at which no process listens.
    dead: Option<usize>,
}

impl Case {
    fn new(what: &str, hash: Hash, distribution: Distribution, lines: &[String]) -> Case {
        let servers = lines.iter().map(|line| Server::parse(line).unwrap()).collect();
        let mut pool = ServerSet::new(servers);
        pool.hash = hash;
        pool.distribution = distribution;
        let what = format!("{what}_{}_{}", hash.name(), distribution.name());
        Case { what, port: 0, pool, lines: lines.to_vec(), dead: None }
    }

    fn yaml(&self) -> String {
        let mut yaml = format!("{}:\n  listen: 127.0.0.1:{}\n", self.what, self.port);
        write!(yaml, "  redis: true\n  timeout: 10000\n  hash: {}\n", self.pool.hash.name())
            .unwrap();
        writeln!(yaml, "  distribution: {}", self.pool.distribution.name()).unwrap();
        if let Some(tag) = self.pool.hash_tag {
            writeln!(yaml, "  hash_tag: \"{tag}\"").unwrap();
        }
        if self.dead.is_some() {
            yaml.push_str("  auto_eject_hosts: true\n  server_failure_limit: 1\n");
            yaml.push_str("  server_retry_timeout: 600000\n");
        }
        yaml.push_str("  servers:\n");
        for line in &self.lines {
            writeln!(yaml, "   - {line}").unwrap();
        }
        yaml
    }

    fn ring(&self) -> Ring {
        self.pool.ring(|index| Some(index) != self.dead)
    }

    /// Lets nutcracker notice that a server is dead: asks for one of its keys until another server
    /// answers.
    fn have_dead_server_ejected(&self, client: &mut Client, keys: &BTreeSet<Vec<u8>>) {
        let Some(dead) = self.dead else { return };
        let ring = self.pool.ring(|_| true);
        let on_dead =
            |key: &&Vec<u8>| ring.pick(self.pool.hash_key(key), 0).map(usize::from) == Some(dead);
        let key = keys.iter().find(on_dead).expect("some key is on every server");
        let start = Instant::now();
        for attempt in 0.. {
            client.send(&[&[b"SET", key, b"value"]]);
            if client.line() == "+OK" {
                assert!(attempt > 0, "{}: the key was not on the dead server", self.what);
                return;
            }
            assert!(start.elapsed() < WATCHDOG, "{}: never ejected", self.what);
        }
    }

    /// Sets every key through nutcracker, and compares what each server holds then with the
    /// prediction. Returns the number of misplaced keys.
    fn misplaced(&self, redises: &mut [Redis], keys: &BTreeSet<Vec<u8>>) -> usize {
        let mut through = Client::connect("127.0.0.1", self.port);
        self.have_dead_server_ejected(&mut through, keys);
        let requests: Vec<[&[u8]; 3]> = keys.iter().map(|key| [&b"SET"[..], key, b"v"]).collect();
        let requests: Vec<&[&[u8]]> = requests.iter().map(|request| &request[..]).collect();
        through.send(&requests);
        for key in keys {
            assert_eq!(through.line(), "+OK", "{}: key {}", self.what, key.escape_ascii());
        }

        let ring = self.ring();
        let mut predicted = vec![BTreeSet::new(); self.lines.len()];
        for key in keys {
            let server = ring.pick(self.pool.hash_key(key), 0).unwrap();
            predicted[usize::from(server)].insert(key.clone());
        }
        let mut misplaced = 0;
        for (server, predicted) in self.pool.servers.iter().zip(&predicted) {
            let held = match redises.iter_mut().find(|redis| redis.listens_at(&server.endpoint)) {
                Some(redis) => redis.client.keys(),
                None => BTreeSet::new(),
            };
            misplaced += predicted.difference(&held).count();
        }
        for redis in redises {
            redis.client.send(&[&[b"FLUSHALL"]]);
            assert_eq!(redis.client.line(), "+OK");
        }
        misplaced
    }
}

/// Returns keys of 1 to 200 bytes: words, arbitrary bytes, high bytes, and tags that are whole,
/// empty or broken. All keys differ.
fn keys() -> BTreeSet<Vec<u8>> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |bound: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % bound
    };
    let mut keys = BTreeSet::new();
    for byte in 1..=255u8 {
        keys.insert(vec![byte]);
    }
    while keys.len() < KEY_COUNT {
        let shape = random(6);
        let len = 1 + random(200);
        let mut key: Vec<u8> = (0..len)
            .map(|_| match shape {
                0 => b"abcdefghijklmnopqrstuvwxyz0123456789:_-."[random(40)],
                1 => 0x80 | random(128) as u8,
                2 => b"ab{}"[random(4)],
                _ => random(256) as u8,
            })
            .collect();
        if shape == 5 {
            let tag = format!("{{{}}}", random(1000)).into_bytes();
            let place = random(key.len());
            key.splice(place..place, tag);
            key.truncate(200);
        }
        keys.insert(key);
    }
    keys
}

/// Returns cases for every hash with both distributions in four kinds of pool, and some that do not
/// depend on the hash.
fn cases(redises: &[Redis]) -> Vec<Case> {
    let lines = |tails: [&str; 4]| -> Vec<String> {
        redises.iter().zip(tails).map(|(redis, tail)| format!("{}:{tail}", redis.address)).collect()
    };
    let plain = lines(["1", "1", "1", "1"]);
    let weights = lines(["3", "1", "10", "7"]);
    let names = lines(["2 beta", "1 cache-3.example:6379", "5 d", "1 alpha"]);
    let mut cases = Vec::new();
    for distribution in [Distribution::Ketama, Distribution::Modula] {
        for hash in Hash::TWEMPROXY {
            cases.push(Case::new("plain", hash, distribution, &plain));
            cases.push(Case::new("weights", hash, distribution, &weights));
            cases.push(Case::new("names", hash, distribution, &names));
            let mut tag = Case::new("tag", hash, distribution, &plain);
            tag.pool.hash_tag = Some(HashTag::BRACES);
            cases.push(tag);
        }
        let mut odd_tag = Case::new("odd_tag", Hash::Fnv1a64, distribution, &weights);
        odd_tag.pool.hash_tag = HashTag::parse("aa");
        cases.push(odd_tag);

        let addresses = vec![
            format!("{}:1", redises[4].address),
            format!("{}:2", redises[0].socket.display()),
            format!("{}:1", redises[1].address.replace("127.0.0.1:", "127.0.0.1:0")),
            format!("{}:1", redises[2].address),
        ];
        cases.push(Case::new("addresses", Hash::Md5, distribution, &addresses));
        cases.push(Case::new("one", Hash::Md5, distribution, &plain[..1]));

        let mut with_dead = weights.clone();
        with_dead.insert(1, "127.0.0.1:1:4".to_owned());
        let mut ejected = Case::new("ejected", Hash::Murmur, distribution, &with_dead);
        ejected.dead = Some(1);
        cases.push(ejected);
    }
    cases
}

/// Starts nutcracker with every case. Tries again with other ports, because another process may
/// take one.
fn start_nutcracker(directory: &Path, cases: &mut [Case]) -> Process {
    let config = directory.join("nutcracker.yml");
    for _ in 0..10 {
        let ports = free_ports(cases.len() + 1);
        for (case, port) in cases.iter_mut().zip(&ports) {
            case.port = *port;
        }
        fs::write(&config, cases.iter().map(Case::yaml).collect::<String>()).unwrap();
        let mut process = Process::start(
            Command::new("nutcracker")
                .arg("-c")
                .arg(&config)
                .args(["-a", "127.0.0.1", "-s", &ports[cases.len()].to_string()])
                .arg("-o")
                .arg(directory.join("nutcracker.log")),
        );
        if cases.iter().all(|case| process.is_listening("127.0.0.1", case.port)) {
            return process;
        }
    }
    let log = fs::read_to_string(directory.join("nutcracker.log")).unwrap_or_default();
    panic!("nutcracker does not start: {log}");
}

#[test]
fn every_key_is_on_the_server_that_nutcracker_puts_it_on() {
    let directory = Directory::create();
    let mut redises: Vec<_> = (0..4).map(|_| Redis::start_somewhere(&directory.0)).collect();
    redises.push(Redis::start_at_11211(&directory.0));
    let mut cases = cases(&redises);
    let _nutcracker = start_nutcracker(&directory.0, &mut cases);
    let keys = keys();
    assert!(keys.len() >= 1_000);
    let mut wrong = Vec::new();
    for case in &cases {
        let misplaced = case.misplaced(&mut redises, &keys);
        if misplaced > 0 {
            wrong.push(format!("{}: {misplaced} of {}", case.what, keys.len()));
        }
    }
    println!("{} pools, {} keys each", cases.len(), keys.len());
    assert!(wrong.is_empty(), "misplaced keys: {wrong:#?}");
}
