//! A key is on the same server as with twemproxy. This is tested against a real one in both
//! directions: each reads what the other has written.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, MemcachedClient, MemcachedServer, Nutcracker, NutcrackerPool,
    Pool, Random, RedisServer, Value, encode, free_address, has_memcached, run_keyway, wait_for,
    wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const HASHES: &[&str] = &[
    "one_at_a_time",
    "md5",
    "crc16",
    "crc32",
    "crc32a",
    "fnv1_64",
    "fnv1a_64",
    "fnv1_32",
    "fnv1a_32",
    "hsieh",
    "murmur",
    "jenkins",
];
const DISTRIBUTIONS: &[&str] = &["ketama", "modula"];
const KEYS: usize = 1000;
const WEIGHTS: [u32; 4] = [1, 2, 5, 10];
const NAMES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Plain,
    Weights,
    Names,
    Tags,
}

const VARIANTS: &[Variant] = &[Variant::Plain, Variant::Weights, Variant::Names, Variant::Tags];

/// One pool, in the form for both proxies.
struct Ring {
    name: String,
    hash: &'static str,
    distribution: &'static str,
    variant: Variant,
}

fn rings() -> Vec<Ring> {
    let mut rings = Vec::new();
    for &hash in HASHES {
        for &distribution in DISTRIBUTIONS {
            for &variant in VARIANTS {
                let name = format!("{hash}-{distribution}-{variant:?}").to_lowercase();
                rings.push(Ring { name, hash, distribution, variant });
            }
        }
    }
    rings
}

impl Ring {
    fn server_lines(&self, servers: &[RedisServer]) -> Vec<String> {
        self.lines(servers.iter().map(RedisServer::address))
    }

    fn lines(&self, servers: impl Iterator<Item = SocketAddr>) -> Vec<String> {
        let line = |(nth, address)| match self.variant {
            Variant::Plain | Variant::Tags => format!("{address}:1"),
            Variant::Weights => format!("{address}:{}", WEIGHTS[nth]),
            Variant::Names => format!("{address}:{} {}", WEIGHTS[nth], NAMES[nth]),
        };
        servers.enumerate().map(line).collect()
    }

    fn nutcracker(&self, servers: &[RedisServer]) -> NutcrackerPool {
        self.placing(NutcrackerPool::new(&self.name, &self.server_lines(servers)))
    }

    fn nutcracker_of_memcached(&self, servers: &[MemcachedServer]) -> NutcrackerPool {
        let lines = self.lines(servers.iter().map(MemcachedServer::address));
        self.placing(NutcrackerPool::memcached(&self.name, &lines))
    }

    fn placing(&self, pool: NutcrackerPool) -> NutcrackerPool {
        let pool = pool.with("hash", self.hash).with("distribution", self.distribution);
        if self.variant == Variant::Tags { pool.with("hash_tag", "\"{}\"") } else { pool }
    }

    fn keyway(&self, servers: &[RedisServer]) -> Pool {
        let pool = Pool::sharded(&self.name, &self.server_lines(servers))
            .with("hash", &format!("{:?}", self.hash))
            .with("distribution", &format!("{:?}", self.distribution));
        if self.variant == Variant::Tags { pool.with("hash_tag", "\"{}\"") } else { pool }
    }

    /// Returns keys for this ring: plain, long, binary, and with braces in every position that a
    /// tag parser could get wrong.
    fn keys(&self, direction: &str) -> Vec<Vec<u8>> {
        let mut random = Random::new(self.name.len() as u64 + direction.len() as u64);
        let mine = format!("{}/{direction}/", self.name);
        (0..KEYS).map(|nth| key(&mine, nth, &mut random)).collect()
    }
}

fn key(mine: &str, nth: usize, random: &mut Random) -> Vec<u8> {
    let text = match nth % 10 {
        0 => format!("{mine}{nth}"),
        1 => format!("{{user{nth}}}{mine}"),
        2 => format!("{mine}{{user{nth}}}.following"),
        3 => format!("{{}}{mine}{nth}"),
        4 => format!("{mine}{{open{nth}"),
        5 => format!("{mine}}}{nth}{{"),
        6 => format!("{{{nth}}}{{other}}{mine}"),
        7 => format!("{mine}{{{{{nth}}}}}"),
        8 => {
            let mut bytes = mine.as_bytes().to_vec();
            let length = 1 + random.below(300);
            bytes.extend(random.bytes(length));
            return bytes;
        }
        _ => format!("{mine}{}", "x".repeat(nth)),
    };
    text.into_bytes()
}

fn write_all(client: &mut Client, keys: &[Vec<u8>], what: &str) {
    for chunk in keys.chunks(100) {
        let bytes: Vec<u8> =
            chunk.iter().flat_map(|key| encode(&[b"SET", &key[..], &value_of(key)])).collect();
        client.send(&bytes);
        for reply in client.replies(chunk.len()) {
            assert_eq!(reply, Value::simple("OK"), "{what}");
        }
    }
}

/// Returns the keys whose value is not where it should be.
fn misplaced(client: &mut Client, keys: &[Vec<u8>]) -> Vec<String> {
    let mut wrong = Vec::new();
    for chunk in keys.chunks(100) {
        let bytes: Vec<u8> = chunk.iter().flat_map(|key| encode(&[b"GET", &key[..]])).collect();
        client.send(&bytes);
        for (key, reply) in chunk.iter().zip(client.replies(chunk.len())) {
            if reply != Value::Bulk(value_of(key)) {
                wrong.push(format!("{} ({reply:?})", key.escape_ascii()));
            }
        }
    }
    wrong
}

fn value_of(key: &[u8]) -> Vec<u8> {
    [b"value of ", key].concat()
}

/// Compares both directions over one pool.
fn compare(name: &str, keys: [Vec<Vec<u8>>; 2], nutcracker: SocketAddr, keyway: SocketAddr) {
    let mut theirs = Client::connect(nutcracker);
    let mut ours = Client::connect(keyway);
    let [there_and_back, back_and_there] = keys;
    write_all(&mut theirs, &there_and_back, name);
    let wrong = misplaced(&mut ours, &there_and_back);
    assert!(wrong.is_empty(), "{name}: written by nutcracker, not found by Keyway: {wrong:#?}");
    write_all(&mut ours, &back_and_there, name);
    let wrong = misplaced(&mut theirs, &back_and_there);
    assert!(wrong.is_empty(), "{name}: written by Keyway, not found by nutcracker: {wrong:#?}");
}

/// Asserts that each key is stored once: a proxy that wrote to every server would pass the other
/// checks.
fn assert_stored_once(servers: &[RedisServer], keys: usize) {
    let stored: i64 = servers.iter().map(|server| server.client().words("DBSIZE").integer()).sum();
    assert_eq!(stored, keys as i64, "keys over all servers");
}

#[test]
fn every_hash_and_distribution_places_keys_as_twemproxy_does() {
    let _watch = watchdog(Duration::from_secs(180), "placement against nutcracker");
    let servers = RedisServer::start_many(4);
    let rings = rings();
    let nutcracker =
        Nutcracker::start(rings.iter().map(|ring| ring.nutcracker(&servers)).collect());
    let pools = rings.iter().map(|ring| ring.keyway(&servers)).collect();
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    for (nth, ring) in rings.iter().enumerate() {
        let keys = [ring.keys("to keyway"), ring.keys("to nutcracker")];
        compare(&ring.name, keys, nutcracker.pools()[nth].listen, keyway.address(nth));
    }
    assert_stored_once(&servers, rings.len() * 2 * KEYS);
}

/// `keyway import twemproxy` runs on nutcracker's file, with only the addresses changed.
#[test]
fn an_imported_file_places_keys_as_twemproxy_does() {
    let _watch = watchdog(Duration::from_secs(120), "placement after import");
    let servers = RedisServer::start_many(4);
    let rings: Vec<Ring> = rings().into_iter().step_by(5).collect();
    let nutcracker =
        Nutcracker::start(rings.iter().map(|ring| ring.nutcracker(&servers)).collect());
    let keyway = start_imported(&nutcracker);
    for (nth, ring) in rings.iter().enumerate() {
        let keys = [ring.keys("to keyway"), ring.keys("to nutcracker")];
        compare(&ring.name, keys, nutcracker.pools()[nth].listen, keyway.address(nth));
    }
    assert_stored_once(&servers, rings.len() * 2 * KEYS);
}

fn start_imported(nutcracker: &Nutcracker) -> Keyway {
    let file = nutcracker.file();
    let output = run_keyway(KEYWAY, &["import", "twemproxy", &file.to_string_lossy()]);
    let mut text = output.expect_success("keyway import twemproxy").stdout;
    let mut addresses = Vec::new();
    for pool in nutcracker.pools() {
        let ours = free_address();
        let replaced = text.replace(&pool.listen.to_string(), &ours.to_string());
        assert_ne!(replaced, text, "the listener of {} is in the file", pool.name);
        text = replaced;
        addresses.push(ours);
    }
    Keyway::start_text(KEYWAY, &text, addresses)
}

/// The same for pools that speak memcached, which accept fewer keys than Redis.
#[test]
fn an_imported_file_places_keys_of_memcached_as_twemproxy_does() {
    if !has_memcached("placement of an imported memcached pool") {
        return;
    }
    let _watch = watchdog(Duration::from_secs(120), "placement of memcached after import");
    let servers = MemcachedServer::start_many(4);
    let rings: Vec<Ring> = rings().into_iter().step_by(5).collect();
    let pools = rings.iter().map(|ring| {
        // No server fails here. The imported ejection must not move a key.
        ring.nutcracker_of_memcached(&servers).with("auto_eject_hosts", "true")
    });
    let nutcracker = Nutcracker::start(pools.collect());
    let keyway = start_imported(&nutcracker);
    let mut stored = 0;
    for (nth, ring) in rings.iter().enumerate() {
        let mut theirs = MemcachedClient::connect(nutcracker.pools()[nth].listen);
        let mut ours = MemcachedClient::connect(keyway.address(nth));
        // After the first direction the two change places.
        for direction in ["to-keyway", "to-nutcracker"] {
            let mut keys = ring.keys(direction);
            keys.retain(|key| key.len() <= 250 && key.iter().all(u8::is_ascii_graphic));
            assert!(keys.len() > KEYS / 2, "{}: few keys are memcached's", ring.name);
            store_items(&mut theirs, &keys);
            let wrong = missing_items(&mut ours, &keys);
            assert!(wrong.is_empty(), "{} {direction}: not found: {wrong:#?}", ring.name);
            stored += keys.len();
            std::mem::swap(&mut theirs, &mut ours);
        }
    }
    let held = |server: &MemcachedServer| -> usize {
        let stats = server.client().say("stats\r\n");
        let items = stats.lines().find_map(|line| line.strip_prefix("STAT curr_items "));
        items.and_then(|number| number.trim().parse().ok()).expect("a number of items")
    };
    // Besides the clients' items there is at most one marker of each pool on each server.
    let markers = rings.len() * servers.len();
    let items: usize = servers.iter().map(held).sum();
    assert!((stored..=stored + markers).contains(&items), "{items} items of {stored}");
}

fn store_items(client: &mut MemcachedClient, keys: &[Vec<u8>]) {
    for chunk in keys.chunks(100) {
        let request = |key: &Vec<u8>| {
            let value = value_of(key);
            let line = format!("set {} 7 0 {}\r\n", String::from_utf8_lossy(key), value.len());
            [line.as_bytes(), &value, b"\r\n"].concat()
        };
        client.send(&chunk.iter().flat_map(request).collect::<Vec<u8>>());
        chunk.iter().for_each(|_| assert_eq!(client.line(), "STORED"));
    }
}

/// Returns the keys whose item is not found, or is not what was stored.
fn missing_items(client: &mut MemcachedClient, keys: &[Vec<u8>]) -> Vec<String> {
    let mut missing = Vec::new();
    for key in keys {
        let name = String::from_utf8_lossy(key);
        client.send(format!("get {name}\r\n").as_bytes());
        let value = value_of(key);
        let line = client.line();
        if line != format!("VALUE {name} 7 {}", value.len()) {
            missing.push(format!("{name} ({line})"));
            continue;
        }
        assert_eq!(client.exactly(value.len() + 2), [&value[..], b"\r\n"].concat());
        assert_eq!(client.line(), "END");
    }
    missing
}

/// Both proxies eject the dead server and agree on the new servers of its keys.
#[test]
fn keys_of_an_ejected_server_move_as_with_twemproxy() {
    let _watch = watchdog(Duration::from_secs(120), "placement after ejection");
    for distribution in DISTRIBUTIONS {
        let mut servers = RedisServer::start_many(4);
        let ring = Ring {
            name: format!("ejecting-{distribution}"),
            hash: "fnv1a_64",
            distribution,
            variant: Variant::Weights,
        };
        let nutcracker = Nutcracker::start(vec![
            ring.nutcracker(&servers)
                .with("auto_eject_hosts", "true")
                .with("server_failure_limit", "1")
                .with("server_retry_timeout", "600000")
                .with("timeout", "1000"),
        ]);
        let pool = ring
            .keyway(&servers)
            .with("timeout", "\"1s\"")
            .with("ejection", "{ after_failures = 1, for = \"10m\", rejoin = \"serve\" }");
        let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
        servers[2].kill();
        for address in [nutcracker.pools()[0].listen, keyway.address(0)] {
            wait_until("the dead server is ejected", Duration::from_secs(20), || {
                ejected(address, &ring.keys("probe"))
            });
        }
        let keys = [ring.keys("to keyway"), ring.keys("to nutcracker")];
        compare(&ring.name, keys, nutcracker.pools()[0].listen, keyway.address(0));
    }
}

/// Returns whether no key fails any more.
fn ejected(address: SocketAddr, keys: &[Vec<u8>]) -> bool {
    let mut client = Client::connect(address);
    keys.iter().all(|key| {
        client.try_send(&encode(&[b"GET", &key[..]])).is_ok()
            && client.try_reply().is_ok_and(|reply| !reply.is_error())
    })
}

#[test]
fn random_distribution_spreads_evenly() {
    let _watch = watchdog(Duration::from_secs(60), "random distribution");
    let servers = RedisServer::start_many(4);
    let lines: Vec<String> = servers.iter().map(|one| format!("{}:1", one.address())).collect();
    let pool = Pool::sharded("random", &lines).with("distribution", "\"random\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let keys: Vec<Vec<u8>> = (0..8000).map(|nth| format!("key:{nth}").into_bytes()).collect();
    write_all(&mut keyway.client(0), &keys, "random");
    let counts: Vec<i64> =
        servers.iter().map(|server| server.client().words("DBSIZE").integer()).collect();
    // The mean is 2000; six standard deviations are 232.
    assert!(counts.iter().all(|count| (1768..2232).contains(count)), "{counts:?}");
    assert_stored_once(&servers, keys.len());
}

/// A name resolved to an address is not part of a ring: servers are placed by the text of the file.
#[test]
fn host_names_place_by_their_text() {
    let _watch = watchdog(Duration::from_secs(60), "host names");
    let servers = RedisServer::start_many(3);
    let mut lines = Vec::new();
    for server in &servers {
        let mut line = String::new();
        let _ = write!(line, "localhost:{}:1", server.port());
        lines.push(line);
    }
    let theirs = NutcrackerPool::new("names", &lines).with("hash", "murmur");
    let nutcracker = Nutcracker::start(vec![theirs]);
    let pool = Pool::sharded("names", &lines).with("hash", "\"murmur\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let ring = Ring {
        name: "names".into(),
        hash: "murmur",
        distribution: "ketama",
        variant: Variant::Plain,
    };
    let keys = [ring.keys("to keyway"), ring.keys("to nutcracker")];
    // nutcracker resolves names in the background of its first requests.
    wait_for("nutcracker reaches its servers", Duration::from_secs(10), || {
        ejected(nutcracker.pools()[0].listen, &ring.keys("probe")).then_some(())
    });
    compare("names", keys, nutcracker.pools()[0].listen, keyway.address(0));
}
