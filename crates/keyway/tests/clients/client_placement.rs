//! Clients that hash keys themselves, Keyway, and `keyway locate` agree on the server of every key.
//! This is tested with pylibmc and with PHP's extensions memcached and memcache over real memcached
//! servers, in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use keyway_testkit::{
    Keyway, Process, Random, TempDir, free_address, free_port, keyway_binary, python, run_tool,
    skipped_for_want_of, watchdog,
};
use serde_json::{Value, json};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const KEYS: usize = 1000;
const CLIENT_WITHIN: Duration = Duration::from_secs(120);

/// The program that places the keys, with its settings.
#[derive(Clone, Copy)]
enum Client {
    /// Behaviors as JSON, and whether they are set after the servers.
    Pylibmc(&'static str, bool),
    /// Options of PHP's extension memcached, as JSON.
    PhpMemcached(&'static str),
    /// Settings of PHP's extension memcache, as JSON.
    PhpMemcache(&'static str),
}

/// A client's placement, as keys of a configuration file.
struct Case {
    client: Client,
    /// `distribution` and, if it is not the distribution's default, `hash`.
    settings: &'static [(&'static str, &'static str)],
    servers: Vec<Listed>,
}

/// A server of a pool.
#[derive(Clone)]
struct Listed {
    /// `None` for a unix socket, whose path is in `host`.
    port: Option<u16>,
    host: String,
    weight: u32,
}

impl Listed {
    fn line(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}:{}", self.host, self.weight),
            None => format!("{}:{}", self.host, self.weight),
        }
    }

    /// Returns the address as `keyway locate` prints it.
    fn address(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => format!("unix://{}", self.host),
        }
    }
}

/// A client and its placement.
struct Known {
    client: Client,
    settings: &'static [(&'static str, &'static str)],
    /// True if it ignores weights.
    ignores_weights: bool,
}

/// Returns a client that respects weights.
const fn known(client: Client, settings: &'static [(&'static str, &'static str)]) -> Known {
    Known { client, settings, ignores_weights: false }
}

impl Known {
    const fn without_weights(self) -> Known {
        Known { ignores_weights: true, ..self }
    }
}

const KETAMA: (&str, &str) = ("distribution", "ketama-libmemcached");
const WEIGHTED: (&str, &str) = ("distribution", "ketama-weighted-libmemcached");
const MODULA: (&str, &str) = ("distribution", "modula-libmemcached");
const STANDARD: (&str, &str) = ("distribution", "php-memcache-standard");
const CONSISTENT: (&str, &str) = ("distribution", "php-memcache-consistent");

/// pylibmc with these behaviors, given to its constructor.
const fn pylibmc(behaviors: &'static str) -> Client {
    Client::Pylibmc(behaviors, false)
}

static CLIENTS: &[Known] = &[
    known(pylibmc("{}"), &[MODULA]).without_weights(),
    known(pylibmc(r#"{"hash": "md5"}"#), &[MODULA, ("hash", "md5")]).without_weights(),
    known(pylibmc(r#"{"ketama": true}"#), &[KETAMA]),
    known(Client::Pylibmc(r#"{"ketama": true}"#, true), &[KETAMA]).without_weights(),
    known(pylibmc(r#"{"ketama": true, "hash": "md5"}"#), &[KETAMA, ("hash", "md5")]),
    known(pylibmc(r#"{"ketama": true, "hash": "crc"}"#), &[KETAMA, ("hash", "crc32")]),
    known(pylibmc(r#"{"ketama": true, "hash": "fnv1_32"}"#), &[KETAMA, ("hash", "fnv1_32")]),
    known(pylibmc(r#"{"ketama": true, "hash": "fnv1a_32"}"#), &[KETAMA, ("hash", "fnv1a_32")]),
    known(pylibmc(r#"{"ketama": true, "hash": "fnv1_64"}"#), &[KETAMA, ("hash", "fnv1_64")]),
    known(pylibmc(r#"{"ketama": true, "hash": "fnv1a_64"}"#), &[KETAMA, ("hash", "fnv1a_64")]),
    known(pylibmc(r#"{"ketama": true, "hash": "jenkins"}"#), &[KETAMA, ("hash", "jenkins")]),
    known(
        pylibmc(r#"{"distribution": "consistent", "hash": "murmur"}"#),
        &[KETAMA, ("hash", "murmur")],
    ),
    known(pylibmc(r#"{"ketama_weighted": true}"#), &[WEIGHTED]),
    known(Client::Pylibmc(r#"{"ketama_weighted": true}"#, true), &[WEIGHTED]),
    known(Client::PhpMemcached("{}"), &[MODULA]).without_weights(),
    known(Client::PhpMemcached(r#"{"OPT_LIBKETAMA_COMPATIBLE": true}"#), &[WEIGHTED]),
    known(Client::PhpMemcached(r#"{"OPT_DISTRIBUTION": "DISTRIBUTION_CONSISTENT"}"#), &[KETAMA]),
    known(
        Client::PhpMemcached(
            r#"{"OPT_HASH": "HASH_FNV1A_64", "OPT_DISTRIBUTION": "DISTRIBUTION_CONSISTENT"}"#,
        ),
        &[KETAMA, ("hash", "fnv1a_64")],
    ),
    known(
        Client::PhpMemcache(
            r#"{"memcache.hash_strategy": "standard", "memcache.hash_function": "crc32"}"#,
        ),
        &[STANDARD],
    ),
    known(
        Client::PhpMemcache(
            r#"{"memcache.hash_strategy": "standard", "memcache.hash_function": "fnv"}"#,
        ),
        &[STANDARD, ("hash", "fnv1a_32")],
    ),
    known(
        Client::PhpMemcache(
            r#"{"memcache.hash_strategy": "consistent", "memcache.hash_function": "crc32"}"#,
        ),
        &[CONSISTENT],
    ),
    known(
        Client::PhpMemcache(
            r#"{"memcache.hash_strategy": "consistent", "memcache.hash_function": "fnv"}"#,
        ),
        &[CONSISTENT, ("hash", "fnv1a_32")],
    ),
];

impl Case {
    /// Returns the keys of its pool that decide the placement.
    fn placement(&self) -> String {
        let servers: Vec<String> =
            self.servers.iter().map(|server| format!("{:?}", server.line())).collect();
        let settings: String =
            self.settings.iter().map(|(name, value)| format!("{name} = {value:?}\n")).collect();
        format!("servers = [{}]\n{settings}", servers.join(", "))
    }

    fn toml(&self) -> String {
        format!(
            "[server]\nadmin = \"off\"\n[[listener]]\nbind = \"tcp://127.0.0.1:1\"\n\
             protocol = \"memcached\"\npool = \"p\"\n[pool.p]\nkind = \"memcached\"\n{}",
            self.placement()
        )
    }

    fn what(&self) -> String {
        let client = match self.client {
            Client::Pylibmc(options, late) => format!("pylibmc {options} late {late}"),
            Client::PhpMemcached(options) => format!("PHP memcached {options}"),
            Client::PhpMemcache(options) => format!("PHP memcache {options}"),
        };
        let lines: Vec<String> = self.servers.iter().map(Listed::line).collect();
        format!("{client} over {}", lines.join(", "))
    }

    fn is_php(&self) -> bool {
        !matches!(self.client, Client::Pylibmc(..))
    }

    /// Returns the work of its client.
    fn work(&self, keys: &[String]) -> Value {
        let options = |text: &str| -> Value { serde_json::from_str(text).expect("JSON") };
        match self.client {
            Client::Pylibmc(behaviors, late) => {
                let spec = |server: &Listed| match server.port {
                    Some(_) => server.line(),
                    None => server.host.clone(),
                };
                let servers: Vec<String> = self.servers.iter().map(spec).collect();
                json!({ "servers": servers, "behaviors": options(behaviors), "late": late, "keys": keys })
            }
            Client::PhpMemcached(settings) | Client::PhpMemcache(settings) => {
                let is_memcache = matches!(self.client, Client::PhpMemcache(_));
                let triple = |server: &Listed| {
                    let scheme = if is_memcache && server.port.is_none() { "unix://" } else { "" };
                    let host = format!("{scheme}{}", server.host);
                    json!([host, server.port.unwrap_or(0), server.weight])
                };
                let servers: Vec<Value> = self.servers.iter().map(triple).collect();
                let extension = if is_memcache { "memcache" } else { "memcached" };
                json!({
                    "extension": extension, "options": options(settings), "servers": servers, "keys": keys
                })
            }
        }
    }

    /// Returns the index of each key's server, as `keyway locate` prints it.
    fn located(&self, directory: &TempDir, keys: &[String]) -> Vec<usize> {
        let file = directory.write("locate.toml", self.toml());
        let binary = keyway_binary(KEYWAY);
        let (binary, file) = (binary.to_string_lossy(), file.to_string_lossy());
        let input = keys.join("\n");
        let arguments = ["locate", "--pool", "p", &file, "-"];
        let output = run_tool(&binary, &arguments, input.as_bytes(), Duration::from_secs(30));
        let text = output.expect_success("keyway locate").stdout;
        let addresses: Vec<String> = self.servers.iter().map(Listed::address).collect();
        let places: Vec<usize> = text
            .lines()
            .zip(keys)
            .map(|(line, key)| {
                let columns: Vec<&str> = line.split('\t').collect();
                assert_eq!(columns[..2], ["p", key], "{line}");
                addresses.iter().position(|known| known == columns[2]).expect("one of its servers")
            })
            .collect();
        assert_eq!(places.len(), keys.len());
        places
    }
}

/// Runs the clients of all cases at once, one process per language. Returns a list for each case.
fn run_clients(mode: &str, cases: &[(&Case, Vec<String>)]) -> Vec<Vec<Value>> {
    let mut answers = vec![Vec::new(); cases.len()];
    for is_php in [false, true] {
        let chosen: Vec<usize> =
            (0..cases.len()).filter(|&nth| cases[nth].0.is_php() == is_php).collect();
        if chosen.is_empty() {
            continue;
        }
        let work: Vec<Value> = chosen.iter().map(|&nth| cases[nth].0.work(&cases[nth].1)).collect();
        let input = json!({ "mode": mode, "cases": work }).to_string();
        let (program, script) = if is_php {
            ("php".to_owned(), root().join("tests/placement/client.php"))
        } else {
            (python(), root().join("tests/placement/client.py"))
        };
        let script = script.to_string_lossy();
        let output = run_tool(&program, &[&script], input.as_bytes(), CLIENT_WITHIN);
        let text = output.expect_success(&script).stdout;
        let lists: Vec<Vec<Value>> = serde_json::from_str(&text).expect("what the script prints");
        assert_eq!(lists.len(), chosen.len());
        for (nth, list) in chosen.into_iter().zip(lists) {
            answers[nth] = list;
        }
    }
    answers
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns whether PHP and both of its extensions are installed.
fn has_php() -> bool {
    let probe = r#"exit(extension_loaded("memcache") && extension_loaded("memcached") ? 0 : 1);"#;
    Command::new("php").args(["-r", probe]).status().is_ok_and(|status| status.success())
}

/// Returns the clients that can run on this machine.
fn clients() -> impl Iterator<Item = &'static Known> {
    let with_php = has_php();
    if !with_php {
        skipped_for_want_of("php with memcache and memcached", "placement against PHP's clients");
    }
    CLIENTS.iter().filter(move |known| with_php || matches!(known.client, Client::Pylibmc(..)))
}

/// Returns the keys of one case: words, numbers, long ones, and ones with bytes above 0x7f, except
/// for PHP's memcached, which refuses those. No two cases share a key.
fn keys(nth_case: usize, case: &Case, direction: &str) -> Vec<String> {
    let mut random = Random::new(nth_case as u64);
    let word = if matches!(case.client, Client::PhpMemcached(_)) { "key" } else { "ключ/é" };
    let case = nth_case;
    let key = |nth: usize| match nth % 5 {
        0 => format!("{direction}{case}:{nth}"),
        1 => format!("user:{{{nth}}}:{direction}{case}"),
        2 => format!("{direction}{case}/{word}/{nth}"),
        3 => format!("{direction}{case}.{:x}{:x}", random.next_u64(), random.next_u64()),
        _ => format!("{direction}{case}-{nth}-{}", "x".repeat(nth % 200)),
    };
    (0..KEYS).map(key).collect()
}

/// A memcached server.
struct Memcached {
    _process: Process,
    _directory: TempDir,
    host: String,
    /// `None` if it listens on a unix socket, whose path is `host`.
    port: Option<u16>,
}

impl Memcached {
    /// Starts at an address that was free. Returns `None` if another process took it.
    fn try_start(host: &str, port: Option<u16>) -> Option<Memcached> {
        let directory = TempDir::new();
        let mut command = Command::new("memcached");
        command.args(["-u", "root", "-m", "64", "-t", "1", "-U", "0"]);
        let host = match port {
            Some(port) => {
                command.args(["-l", host, "-p", &port.to_string()]);
                host.to_owned()
            }
            None => {
                let path = directory.path().join("memcached.sock").to_string_lossy().into_owned();
                command.args(["-s", &path]);
                path
            }
        };
        let mut process = Process::spawn("memcached", &mut command, directory.path());
        let mut is_running = true;
        keyway_testkit::wait_until("memcached listens", Duration::from_secs(20), || {
            is_running = process.is_running();
            !is_running || connect(&host, port).is_some()
        });
        is_running.then_some(Memcached { _process: process, _directory: directory, host, port })
    }

    fn start() -> Memcached {
        (0..10)
            .find_map(|_| Memcached::try_start("127.0.0.1", Some(free_port())))
            .expect("memcached finds a port")
    }

    /// Starts on the port that libmemcached leaves out of names. Any loopback address will do, so
    /// this hardly ever meets another memcached.
    fn start_at_11211() -> Memcached {
        let [.., a, b] = std::process::id().to_be_bytes();
        (0..10)
            .find_map(|attempt| {
                let host = format!("127.{}.{a}.{}", 120 + attempt, b.clamp(1, 254));
                Memcached::try_start(&host, Some(11211))
            })
            .expect("port 11211 is free on no loopback address")
    }

    fn listed(&self, weight: u32) -> Listed {
        Listed { port: self.port, host: self.host.clone(), weight }
    }

    fn is(&self, listed: &Listed) -> bool {
        self.host == listed.host && self.port == listed.port
    }
}

/// Returns those of `keys` that the server has, with their values.
fn held(host: &str, port: Option<u16>, keys: &[String]) -> BTreeMap<String, Vec<u8>> {
    let mut stream = connect(host, port).expect("it listens");
    let mut held = BTreeMap::new();
    for keys in keys.chunks(50) {
        stream.get_mut().write_all(format!("get {}\r\n", keys.join(" ")).as_bytes()).unwrap();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            let words: Vec<&str> = line.trim_end().split(' ').collect();
            if words == ["END"] {
                break;
            }
            assert_eq!(words[0], "VALUE", "{line}");
            let mut value = vec![0; words[3].parse::<usize>().unwrap() + 2];
            stream.read_exact(&mut value).unwrap();
            value.truncate(value.len() - 2);
            assert_eq!(value, words[1].as_bytes(), "a key is its own value");
            held.insert(words[1].to_owned(), value);
        }
    }
    held
}

/// Sets each key to its own bytes.
fn fill(host: &str, port: Option<u16>, keys: &[String]) {
    let mut stream = connect(host, port).expect("it listens");
    for keys in keys.chunks(50) {
        let requests: String =
            keys.iter().map(|key| format!("set {key} 0 0 {}\r\n{key}\r\n", key.len())).collect();
        stream.get_mut().write_all(requests.as_bytes()).unwrap();
        for key in keys {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            assert_eq!(line, "STORED\r\n", "{key}");
        }
    }
}

trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

fn connect(host: &str, port: Option<u16>) -> Option<BufReader<Box<dyn Wire>>> {
    let wire: Box<dyn Wire> = match port {
        Some(port) => {
            let address = SocketAddr::new(host.parse().expect("an address"), port);
            let stream = TcpStream::connect(address).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
            Box::new(stream)
        }
        None => {
            let stream = UnixStream::connect(host).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
            Box::new(stream)
        }
    };
    Some(BufReader::new(wire))
}

/// Returns pools over these servers for every client: of several sizes, with and without weights,
/// and over unix sockets.
fn cases(servers: &[Memcached], sockets: &[Memcached]) -> Vec<Case> {
    let listed = |indexes: &[usize], weights: &[u32]| -> Vec<Listed> {
        indexes.iter().zip(weights).map(|(&nth, &weight)| servers[nth].listed(weight)).collect()
    };
    let mut cases = Vec::new();
    for &Known { client, settings, ignores_weights } in clients() {
        let mut pools = vec![listed(&[4, 1, 0], &[1; 3]), listed(&[0, 1, 2, 3, 4], &[1; 5])];
        if !ignores_weights {
            pools.push(listed(&[3, 0], &[7, 2]));
            pools.push(listed(&[2, 4, 1, 3, 0], &[1, 2, 5, 10, 3]));
        }
        pools.push(sockets.iter().map(|server| server.listed(1)).collect());
        cases.extend(pools.into_iter().map(|servers| Case { client, settings, servers }));
    }
    cases
}

/// Starts one Keyway with the pools of all cases for clients of memcached. Returns it and the
/// address of each pool.
fn keyway_over(cases: &[Case]) -> (Keyway, Vec<SocketAddr>) {
    let addresses: Vec<SocketAddr> = cases.iter().map(|_| free_address()).collect();
    let mut text = String::new();
    for (nth, (case, address)) in cases.iter().zip(&addresses).enumerate() {
        text += &format!(
            "[[listener]]\nbind = \"tcp://{address}\"\nprotocol = \"memcached\"\npool = \"case{nth}\"\n\
             [pool.case{nth}]\nkind = \"memcached\"\n{}",
            case.placement()
        );
    }
    // This store is served last, and answers the check whether Keyway is up.
    let store = free_address();
    text += &format!(
        "[[listener]]\nbind = \"tcp://{store}\"\npool = \"s\"\n[pool.s]\nkind = \"store\"\n"
    );
    (Keyway::start_text(KEYWAY, &text, vec![store]), addresses)
}

/// Returns the number of keys that are not on exactly the server that `keyway locate` prints.
fn misplaced(case: &Case, keys: &[String], directory: &TempDir, servers: &[&Memcached]) -> usize {
    let places = case.located(directory, keys);
    let differences = case.servers.iter().enumerate().map(|(index, listed)| {
        let due = keys.iter().zip(&places).filter(|&(_, &place)| place == index);
        let due: BTreeSet<&String> = due.map(|(key, _)| key).collect();
        let server = servers.iter().find(|server| server.is(listed)).expect("a server");
        let held = held(&server.host, server.port, keys);
        due.symmetric_difference(&held.keys().collect()).count()
    });
    differences.sum()
}

/// A key that a client placed itself is on the server that `keyway locate` prints, and is found
/// through Keyway; and the other way round. No key of any case is on another server.
#[test]
fn what_a_client_placed_is_found_and_what_it_seeks_is_there() {
    let _watch = watchdog(Duration::from_secs(400), "placement against clients");
    let mut servers: Vec<Memcached> = (0..4).map(|_| Memcached::start()).collect();
    servers.push(Memcached::start_at_11211());
    let sockets: Vec<Memcached> =
        (0..2).map(|_| Memcached::try_start("", None).expect("a socket")).collect();
    let cases = cases(&servers, &sockets);
    let all: Vec<&Memcached> = servers.iter().chain(&sockets).collect();
    let (_keyway, addresses) = keyway_over(&cases);
    let address = |nth: usize| (addresses[nth].ip().to_string(), Some(addresses[nth].port()));
    let directory = TempDir::new();

    let work: Vec<(&Case, Vec<String>)> =
        cases.iter().enumerate().map(|(nth, case)| (case, keys(nth, case, "theirs"))).collect();
    for ((case, _), failed) in work.iter().zip(run_clients("set", &work)) {
        assert!(failed.is_empty(), "{}: cannot set {failed:?}", case.what());
    }
    let mut wrong = Vec::new();
    for (nth, (case, keys)) in work.iter().enumerate() {
        let (host, port) = address(nth);
        let lost = keys.len() - held(&host, port, keys).len();
        let misplaced = misplaced(case, keys, &directory, &all);
        if misplaced + lost > 0 {
            wrong.push(format!("{}: {misplaced} misplaced, {lost} not found", case.what()));
        }
    }
    assert!(wrong.is_empty(), "written by a client: {wrong:#?}");

    let work: Vec<(&Case, Vec<String>)> =
        cases.iter().enumerate().map(|(nth, case)| (case, keys(nth, case, "ours"))).collect();
    for (nth, (_, keys)) in work.iter().enumerate() {
        let (host, port) = address(nth);
        fill(&host, port, keys);
    }
    for ((case, keys), failed) in work.iter().zip(run_clients("get", &work)) {
        let (misplaced, lost) = (misplaced(case, keys, &directory, &all), failed.len());
        if misplaced + lost > 0 {
            wrong.push(format!("{}: {misplaced} misplaced, {lost} not found", case.what()));
        }
    }
    assert!(wrong.is_empty(), "written through Keyway: {wrong:#?}");
    println!("{} pools, {KEYS} keys each way", cases.len());
}

/// Pools of many sizes, weights and kinds of names. They need no servers: the clients tell where
/// they would send keys.
#[test]
fn clients_of_libmemcached_would_go_where_locate_says() {
    let _watch = watchdog(Duration::from_secs(300), "placement of large pools");
    let mut random = Random::new(20_261_122);
    let mut cases = Vec::new();
    for &Known { client, settings, ignores_weights } in clients() {
        if matches!(client, Client::PhpMemcache(_)) {
            continue;
        }
        for size in [2usize, 3, 7, 16, 50] {
            let mut pool = |weight_max: usize| -> Vec<Listed> {
                (0..size)
                    .map(|nth| {
                        let host = match random.below(3) {
                            0 => format!("10.0.{nth}.{}", random.below(256)),
                            1 => format!("cache-{nth}.example.com"),
                            _ => format!("mc{nth}"),
                        };
                        let ports = [11211, 11212, 1, 65_535];
                        let port = ports[random.below(4)];
                        let weight = 1 + random.below(weight_max) as u32;
                        Listed { port: Some(port), host, weight }
                    })
                    .collect()
            };
            cases.push(Case { client, settings, servers: pool(1) });
            if !ignores_weights {
                for weight_max in [3, 100, 60_000] {
                    let mut servers = pool(weight_max);
                    // libmemcached 1.0 writes beyond its memory if a late server's weight turns a
                    // large continuum into a weighted one.
                    servers[0].weight = servers[0].weight.max(2);
                    cases.push(Case { client, settings, servers });
                }
            }
        }
    }
    let directory = TempDir::new();
    let work: Vec<(&Case, Vec<String>)> =
        cases.iter().enumerate().map(|(nth, case)| (case, keys(nth, case, "any"))).collect();
    let mut wrong = Vec::new();
    for ((case, keys), theirs) in work.iter().zip(run_clients("place", &work)) {
        let ours = case.located(&directory, keys);
        let theirs: Vec<usize> =
            theirs.iter().map(|index| index.as_u64().expect("an index") as usize).collect();
        let differ = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours != theirs).count();
        if differ > 0 || ours.len() != theirs.len() {
            wrong.push(format!("{}: {differ} of {}", case.what(), ours.len()));
        }
    }
    assert!(wrong.is_empty(), "located elsewhere than the client goes: {wrong:#?}");
    println!("{} pools, {KEYS} keys each", cases.len());
}
