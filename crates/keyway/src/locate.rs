//! `keyway locate`: prints the server of each pool to which a key goes.
//!
//! It uses the same rings as the data plane, with every server in use; while a server is ejected,
//! its keys are elsewhere. For a pool that leads to others it prints every server to which a
//! request for the key may go, with the way.

use anyhow::{Context, Result, bail};
use keyway_config::{Config, PoolConfig, PoolKindConfig};
use keyway_topology::{
    Distribution, Endpoint, PrimarySource, Ring, RoutedPool, Server, ServerSet, ShadowBy,
    SlotsPool, key_slot,
};
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufWriter, Write};

/// The argument that stands for the keys on standard input.
const FROM_STANDARD_INPUT: &[u8] = b"-";

/// The question.
pub struct Question<'a> {
    /// The file, for messages.
    pub path: &'a str,
    /// The only pool to ask; `None`: all of them.
    pub pool: Option<&'a str>,
    /// Keys; `-` stands for the lines of standard input.
    pub keys: &'a [Vec<u8>],
    /// One JSON object per line instead of columns.
    pub is_json: bool,
}

/// Prints a line for every key and pool. A reader that closed the output is not an error.
///
/// # Errors
/// Returns an error if there is no such pool, or standard input cannot be read.
pub fn locate(config: &Config, question: &Question<'_>) -> Result<()> {
    let pools = pools(config, question)?;
    for note in pools.notes() {
        eprintln!("{note}");
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let answered = answer(&pools, question, &mut io::stdin().lock(), &mut out);
    match answered {
        Err(error) if error.is::<ReaderGone>() => Ok(()),
        result => result,
    }
}

fn unwritten(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => ReaderGone.into(),
        _ => anyhow::Error::new(error).context("cannot write to standard output"),
    }
}

/// The reader of the output has closed it, so there is no point in going on.
#[derive(Debug)]
struct ReaderGone;

impl std::fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reader of standard output went away")
    }
}

impl std::error::Error for ReaderGone {}

/// A pool that is ready to be asked.
struct Places<'a> {
    pool: &'a str,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Store,
    /// Several servers, chosen at random.
    Random,
    Servers(&'a ServerSet, Ring),
    /// A cluster, of which these servers are known.
    Slots(&'a [Endpoint]),
    /// Primaries that are found by these names, and the ring over the names.
    Primaries(&'a ServerSet, &'a [String], Ring),
    /// Servers of which one is the primary.
    OnePrimary(&'a [Endpoint]),
    /// Groups of servers that share slots.
    Groups(&'a SlotsPool),
    Routed(&'a RoutedPool),
}

/// The destination of a key.
enum Place<'a> {
    Store,
    Any,
    Server(&'a Server),
    /// The server that is this primary; sentinels tell which it is.
    Primary(&'a str),
    /// The primary among the listed servers; the servers tell which it is.
    OnePrimary,
    /// The server of this slot; the cluster tells which it is.
    Slot(u16),
    /// The primary of the group that has this slot; its servers tell which it is.
    Group(u16, &'a str),
    /// There is none: the pool leads the key to no other pool.
    Nowhere,
}

/// A destination, and the pools on the way to it. For each pool, its role in the one before, and
/// its name.
struct Found<'a> {
    way: Vec<(String, &'a str)>,
    place: Place<'a>,
}

/// All pools, and the positions of those that are asked.
struct Pools<'a> {
    all: Vec<Places<'a>>,
    wanted: Vec<usize>,
}

fn pools<'a>(config: &'a Config, question: &Question<'_>) -> Result<Pools<'a>> {
    // Sentinels have no keys, and no pool of the file has their name.
    let has_keys = |pool: &PoolConfig| !matches!(pool.kind, PoolKindConfig::Sentinels(..));
    let is_wanted =
        |pool: &PoolConfig| has_keys(pool) && question.pool.is_none_or(|name| pool.name == name);
    let wanted: Vec<usize> =
        (0..config.pools.len()).filter(|&index| is_wanted(&config.pools[index])).collect();
    let all = config.pools.iter().map(Places::of).collect();
    if let (Some(name), []) = (question.pool, wanted.as_slice()) {
        let known: Vec<&str> = config
            .pools
            .iter()
            .filter(|pool| has_keys(pool))
            .map(|pool| pool.name.as_str())
            .collect();
        bail!("{} has no pool {name:?}; its pools are {}", question.path, known.join(", "));
    }
    Ok(Pools { all, wanted })
}

impl<'a> Pools<'a> {
    /// Returns every destination of requests for a key from a pool.
    fn find(&self, pool: usize, key: &[u8]) -> Vec<Found<'_>> {
        let mut found = Vec::new();
        self.follow(pool, key, Vec::new(), &mut found);
        found
    }

    /// Returns advice on how to learn the current server of a key, for pools that discover their
    /// servers. It goes to standard error, so that programs can read the output.
    fn notes(&self) -> Vec<String> {
        let of_pool = |&index: &usize| {
            let pool = &self.all[index];
            let how = match &pool.kind {
                Kind::Slots(seeds) => format!(
                    "slots move between servers; {} CLUSTER SLOTS tells who has which",
                    ask(seeds.first()?)
                ),
                Kind::Groups(pool) => format!(
                    "the primary of a group changes; {} INFO replication at its servers tells which it is",
                    ask(pool.groups.first()?.servers.first()?)
                ),
                Kind::Primaries(_, names, _) => format!(
                    "primaries change; SENTINEL GET-MASTER-ADDR-BY-NAME {} at a sentinel tells who it is",
                    names.first()?
                ),
                Kind::OnePrimary(servers) => format!(
                    "who is the primary changes; {} ROLE tells what a server is",
                    ask(servers.first()?)
                ),
                Kind::Store | Kind::Random | Kind::Servers(..) | Kind::Routed(_) => return None,
            };
            Some(format!("note: no server was asked about pool {:?}: {how}", pool.pool))
        };
        self.reached().iter().filter_map(of_pool).collect()
    }

    /// Returns the pools that are asked, and those that they lead to.
    fn reached(&self) -> Vec<usize> {
        let mut reached = self.wanted.clone();
        let mut next = 0;
        while let Some(&pool) = reached.get(next) {
            if let Kind::Routed(routed) = &self.all[pool].kind {
                for child in routed.children().into_iter().map(usize::from) {
                    if !reached.contains(&child) {
                        reached.push(child);
                    }
                }
            }
            next += 1;
        }
        reached
    }

    fn follow<'p>(
        &'p self,
        pool: usize,
        key: &[u8],
        way: Vec<(String, &'p str)>,
        found: &mut Vec<Found<'p>>,
    ) {
        let Kind::Routed(routed) = &self.all[pool].kind else {
            return found.push(Found { way, place: self.all[pool].place(key) });
        };
        let steps = steps(routed, key);
        if steps.is_empty() {
            return found.push(Found { way, place: Place::Nowhere });
        }
        for (role, child) in steps {
            let child = usize::from(child);
            let mut longer = way.clone();
            longer.push((role, self.all[child].pool));
            self.follow(child, key, longer, found);
        }
    }
}

/// Returns a command with which a person can ask an endpoint.
fn ask(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Tcp { host, port } => format!("redis-cli -h {host} -p {port}"),
        Endpoint::Unix { .. } | Endpoint::Shm { .. } => format!("redis-cli at {endpoint}"),
    }
}

/// Returns the children to which requests for a key may go, each with its role.
fn steps(routed: &RoutedPool, key: &[u8]) -> Vec<(String, u16)> {
    let numbered = |children: &[u16]| -> Vec<(String, u16)> {
        let numbers = 1..=children.len();
        numbers.zip(children).map(|(number, child)| (format!("child {number}"), *child)).collect()
    };
    match routed {
        RoutedPool::Prefix(pool) => {
            let of_prefix = pool.routes().find(|(prefix, _)| key.starts_with(prefix));
            let of_prefix =
                of_prefix.map(|(prefix, child)| (format!("prefix \"{}\"", shown(prefix)), child));
            let default = pool.default.map(|child| ("default".to_owned(), child));
            of_prefix.or(default).into_iter().collect()
        }
        RoutedPool::Failover(pool) => {
            let mut steps = numbered(&pool.children);
            steps.extend(pool.gutter.map(|gutter| ("gutter".to_owned(), gutter.pool)));
            steps
        }
        RoutedPool::Mirror(pool) => {
            let mut steps = numbered(&pool.children);
            if let Some((role, _)) = steps.get_mut(usize::from(pool.read_from)) {
                role.push_str(", read");
            }
            steps
        }
        RoutedPool::Shadow(pool) => {
            let mut steps = vec![("main".to_owned(), pool.main)];
            if pool.by == ShadowBy::Chance && pool.percent > 0 {
                steps.push((format!("shadow, {} % by chance", pool.percent), pool.shadow));
            } else if pool.takes(key, 0) && pool.by == ShadowBy::Key {
                steps.push(("shadow".to_owned(), pool.shadow));
            }
            steps
        }
        RoutedPool::MissThen(pool) => numbered(&pool.children),
        RoutedPool::RateLimited(pool) => vec![("rate-limited".to_owned(), pool.child)],
        RoutedPool::ReadWriteSplit(pool) => {
            let read = if pool.read_fallback { "read, or else write" } else { "read" };
            vec![("write".to_owned(), pool.write), (read.to_owned(), pool.read)]
        }
    }
}

impl<'a> Places<'a> {
    fn of(pool: &'a PoolConfig) -> Places<'a> {
        let kind = match &pool.kind {
            PoolKindConfig::Store(_) => Kind::Store,
            PoolKindConfig::Sharded(set, _) | PoolKindConfig::Sentinels(set, _) => Kind::over(set),
            PoolKindConfig::Memcached(pool, _) => Kind::over(&pool.servers),
            PoolKindConfig::Cluster(pool, _) => Kind::Slots(&pool.discovery.seeds),
            PoolKindConfig::Replicated(pool, _) => match &pool.source {
                PrimarySource::Servers | PrimarySource::Groups(_) => {
                    Kind::OnePrimary(&pool.discovery.seeds)
                }
                PrimarySource::Sentinels { primaries, .. } => {
                    Kind::Primaries(&pool.servers, primaries, pool.ring_of_primaries())
                }
            },
            PoolKindConfig::Slots(pool, _) => Kind::Groups(pool),
            PoolKindConfig::Routed(routed) => Kind::Routed(&routed.pool),
        };
        Places { pool: &pool.name, kind }
    }

    fn place(&self, key: &[u8]) -> Place<'a> {
        match &self.kind {
            Kind::Store => Place::Store,
            Kind::Routed(_) => Place::Nowhere,
            Kind::Slots(_) => Place::Slot(key_slot(key)),
            Kind::Random => Place::Any,
            Kind::OnePrimary(_) => Place::OnePrimary,
            Kind::Groups(pool) => {
                let slot = pool.map.space().slot_of(key);
                let group = pool.map.group_of(slot).and_then(|at| pool.groups.get(usize::from(at)));
                group.map_or(Place::Slot(slot), |group| Place::Group(slot, &group.name))
            }
            Kind::Primaries(pool, names, ring) => match ring.pick(pool.hash_key(key), 0) {
                Some(index) => Place::Primary(&names[usize::from(index)]),
                None => Place::Any,
            },
            Kind::Servers(pool, ring) => match ring.pick(pool.hash_key(key), 0) {
                Some(index) => Place::Server(&pool.servers[usize::from(index)]),
                None => Place::Any,
            },
        }
    }
}

impl<'a> Kind<'a> {
    fn over(pool: &'a ServerSet) -> Kind<'a> {
        match pool.distribution {
            Distribution::Random if pool.servers.len() > 1 => Kind::Random,
            _ => Kind::Servers(pool, pool.ring(|_| true)),
        }
    }
}

fn answer(
    pools: &Pools<'_>,
    question: &Question<'_>,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<()> {
    let mut line = String::new();
    let mut tell = |key: &[u8]| {
        for &pool in &pools.wanted {
            let name = pools.all[pool].pool;
            for found in pools.find(pool, key) {
                line.clear();
                if question.is_json {
                    let _ = writeln!(line, "{}", object(name, key, &found));
                } else {
                    columns(&mut line, name, key, &found);
                }
                out.write_all(line.as_bytes()).map_err(unwritten)?;
            }
        }
        Ok::<(), anyhow::Error>(())
    };
    for key in question.keys {
        if key != FROM_STANDARD_INPUT {
            tell(key)?;
            continue;
        }
        let mut bytes = Vec::new();
        while input.read_until(b'\n', &mut bytes).context("cannot read keys from standard input")?
            > 0
        {
            let key = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            if !key.is_empty() {
                tell(key)?;
            }
            bytes.clear();
        }
    }
    out.flush().map_err(unwritten)
}

/// Writes pool, key, server and, if it has one, its name, with tabs between. For a pool that leads
/// to others the way is added, after a name that may be empty.
fn columns(line: &mut String, pool: &str, key: &[u8], found: &Found<'_>) {
    let _ = write!(line, "{pool}\t{}\t", shown(key));
    let mut name = None;
    let _ = match found.place {
        Place::Store => write!(line, "the embedded store"),
        Place::Any => write!(line, "any server"),
        Place::Nowhere => write!(line, "no pool"),
        Place::Primary(name) => write!(line, "the primary {name}"),
        Place::OnePrimary => write!(line, "the primary"),
        Place::Slot(slot) => write!(line, "the server of slot {slot}"),
        Place::Group(slot, name) => write!(line, "the primary of group {name}, slot {slot}"),
        Place::Server(server) => {
            name = server.name.as_deref();
            write!(line, "{}", server.endpoint)
        }
    };
    if name.is_some() || !found.way.is_empty() {
        let _ = write!(line, "\t{}", name.unwrap_or_default());
    }
    for (index, (role, child)) in found.way.iter().enumerate() {
        let _ = write!(line, "{}{role}: {child}", if index == 0 { "\t" } else { " > " });
    }
    line.push('\n');
}

/// Returns `pool`, `key` (`key_hex` if it is not UTF-8) and the destination. The destination is
/// `server`, with its `address` and, if it has one, `name`; `slot` of a cluster, and where groups
/// share slots the name of its `group`; `primary`, with
/// its name if sentinels know it by one; `store`; `any`; or `none`. `way` has the pools on the way
/// through a pool that leads to others.
fn object(pool: &str, key: &[u8], found: &Found<'_>) -> serde_json::Value {
    let mut object = json!({ "pool": pool });
    match std::str::from_utf8(key) {
        Ok(key) => object["key"] = json!(key),
        Err(_) => {
            let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            object["key_hex"] = json!(hex);
        }
    }
    if !found.way.is_empty() {
        let step = |(role, pool): &(String, &str)| json!({ "as": role, "pool": pool });
        object["way"] = found.way.iter().map(step).collect();
    }
    match &found.place {
        Place::Nowhere => object["place"] = json!("none"),
        Place::Store => object["place"] = json!("store"),
        Place::Any => object["place"] = json!("any"),
        Place::Primary(name) => {
            object["place"] = json!("primary");
            object["primary"] = json!(name);
        }
        Place::OnePrimary => object["place"] = json!("primary"),
        Place::Slot(slot) => {
            object["place"] = json!("slot");
            object["slot"] = json!(slot);
        }
        Place::Group(slot, name) => {
            object["place"] = json!("slot");
            object["slot"] = json!(slot);
            object["group"] = json!(name);
        }
        Place::Server(server) => {
            object["place"] = json!("server");
            object["address"] = json!(server.endpoint.to_string());
            if let Some(name) = &server.name {
                object["name"] = json!(name);
            }
        }
    }
    object
}

/// Returns a key as one word of text. Characters that are not printable, and the backslash, are
/// written as escapes of C.
fn shown(key: &[u8]) -> String {
    let mut text = String::new();
    for chunk in key.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' | '\t' | '\n' | '\r' => text.extend(character.escape_default()),
                character if character.is_control() => {
                    let mut bytes = [0; 4];
                    for byte in character.encode_utf8(&mut bytes).bytes() {
                        let _ = write!(text, "\\x{byte:02x}");
                    }
                }
                character => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[server]
admin = "off"
[[listener]]
bind = "tcp://127.0.0.1:1"
pool = "tagged"
[[listener]]
bind = "tcp://127.0.0.1:2"
pool = "local"
[[listener]]
bind = "tcp://127.0.0.1:3"
pool = "chance"
[pool.tagged]
kind = "sharded"
hash_tag = "{}"
hash = "md5"
servers = ["10.0.0.1:6379 alpha", "10.0.0.2:6379", "unix:///run/c.sock"]
[pool.local]
kind = "store"
[pool.chance]
kind = "sharded"
distribution = "random"
servers = ["10.0.0.1:6379", "10.0.0.2:6379"]
"#;

    fn told(pool: Option<&str>, keys: &[&[u8]], input: &[u8], is_json: bool) -> Result<String> {
        let config = Config::from_str(FILE, "f.toml").unwrap();
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
        let question = Question { path: "f.toml", pool, keys: &keys, is_json };
        let mut out = Vec::new();
        answer(&pools(&config, &question)?, &question, &mut &input[..], &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn every_pool_answers_in_its_own_way() {
        let text = told(None, &[b"user:{42}:name"], b"", false).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("tagged\tuser:{42}:name\t"), "{text}");
        assert_eq!(lines[1], "local\tuser:{42}:name\tthe embedded store");
        assert_eq!(lines[2], "chance\tuser:{42}:name\tany server");
    }

    #[test]
    fn keys_of_one_tag_share_a_server() {
        let server = |key: &[u8]| {
            let text = told(Some("tagged"), &[key], b"", false).unwrap();
            text.trim_end().splitn(3, '\t').nth(2).unwrap().to_owned()
        };
        assert_eq!(server(b"user:{42}:name"), server(b"{42}"));
        let servers: std::collections::BTreeSet<String> =
            (0..50).map(|nth| server(format!("k{nth}").as_bytes())).collect();
        let all = ["10.0.0.1:6379\talpha", "10.0.0.2:6379", "unix:///run/c.sock"];
        assert_eq!(servers, all.map(str::to_owned).into());
    }

    #[test]
    fn dash_stands_for_the_lines_of_standard_input() {
        let text = told(Some("local"), &[b"a", b"-", b"z"], b"b c\n\nd\xff\t\\\nlast", false);
        let keys: Vec<String> =
            text.unwrap().lines().map(|line| line.split('\t').nth(1).unwrap().to_owned()).collect();
        assert_eq!(keys, ["a", "b c", "d\\xff\\t\\\\", "last", "z"]);
    }

    #[test]
    fn json_tells_the_same() {
        let text = told(None, &[b"k\xff"], b"", true).unwrap();
        let objects: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects[0]["place"], "server");
        assert!(objects[0]["address"].is_string(), "{text}");
        let store = json!({ "pool": "local", "key_hex": "6bff", "place": "store" });
        assert_eq!(objects[1], store);
        assert_eq!(objects[2]["place"], "any");
        let plain = told(Some("local"), &[b"a\"b"], b"", true).unwrap();
        let expected = json!({ "pool": "local", "key": "a\"b", "place": "store" });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&plain).unwrap(), expected);
    }

    #[test]
    fn pools_of_pools_tell_every_server_and_the_way() {
        const ROUTES: &str = r#"
[server]
admin = "off"
[[listener]]
bind = "tcp://127.0.0.1:1"
pool = "all"
[pool.all]
kind = "prefix"
routes = [{ prefix = "user:", pool = "users" }, { prefix = "a", pool = "local" }]
[pool.users]
kind = "failover"
children = ["twins"]
gutter = "spare"
[pool.twins]
kind = "mirror"
children = ["one", "local"]
read_from = "local"
[pool.one]
kind = "sharded"
servers = ["10.0.0.1:6379 alpha"]
[pool.spare]
kind = "sharded"
servers = ["10.0.0.2:6379"]
[pool.local]
kind = "store"
"#;
        let config = Config::from_str(ROUTES, "f.toml").unwrap();
        let told = |is_json| {
            let keys = [b"user:1".to_vec(), b"b".to_vec()];
            let question = Question { path: "f.toml", pool: Some("all"), keys: &keys, is_json };
            let mut out = Vec::new();
            answer(&pools(&config, &question).unwrap(), &question, &mut &b""[..], &mut out)
                .unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            told(false),
            "all\tuser:1\t10.0.0.1:6379\talpha\tprefix \"user:\": users > child 1: twins > child 1: one\n\
             all\tuser:1\tthe embedded store\t\tprefix \"user:\": users > child 1: twins > child 2, read: local\n\
             all\tuser:1\t10.0.0.2:6379\t\tprefix \"user:\": users > gutter: spare\n\
             all\tb\tno pool\n"
        );
        let objects = told(true);
        let last: Vec<serde_json::Value> =
            objects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(last[2]["way"][1], json!({ "as": "gutter", "pool": "spare" }));
        assert_eq!(last[3], json!({ "pool": "all", "key": "b", "place": "none" }));
    }

    #[test]
    fn primaries_are_named_and_their_sentinels_are_not() {
        const PRIMARIES: &str = r#"
[server]
admin = "off"
[[listener]]
bind = "tcp://127.0.0.1:1"
pool = "users"
[[listener]]
bind = "tcp://127.0.0.1:2"
pool = "listed"
[pool.users]
kind = "replicated"
sentinels = ["10.0.0.1:26379"]
primaries = ["users-a", "users-b"]
[pool.listed]
kind = "replicated"
servers = ["10.0.0.1:6379", "10.0.0.2:6379"]
"#;
        let config = Config::from_str(PRIMARIES, "f.toml").unwrap();
        let keys: Vec<Vec<u8>> = (0..20).map(|nth| format!("u{nth}").into_bytes()).collect();
        let told = |is_json| {
            let question = Question { path: "f.toml", pool: None, keys: &keys, is_json };
            let mut out = Vec::new();
            answer(&pools(&config, &question).unwrap(), &question, &mut &b""[..], &mut out)
                .unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = told(false);
        assert_eq!(text.lines().count(), 40, "{text}");
        for name in ["users-a", "users-b"] {
            let is_of = |line: &str| line.starts_with("users\tu") && line.ends_with(name);
            assert!(text.lines().any(is_of), "{text}");
        }
        assert!(text.contains("listed\tu0\tthe primary\n") && !text.contains("slot"), "{text}");
        assert!(text.contains("users\tu0\tthe primary users-"), "{text}");
        let first: serde_json::Value =
            serde_json::from_str(told(true).lines().next().unwrap()).unwrap();
        assert_eq!(first["place"], "primary");
        assert!(first["primary"].as_str().unwrap().starts_with("users-"), "{first}");
        let sentinels =
            Question { path: "f.toml", pool: Some("users/sentinels"), keys: &keys, is_json: false };
        let error = pools(&config, &sentinels).err().unwrap().to_string();
        assert_eq!(error, "f.toml has no pool \"users/sentinels\"; its pools are users, listed");
    }

    #[test]
    fn of_servers_that_are_found_out_it_is_told_how_to_learn_who_they_are() {
        const FOUND_OUT: &str = r#"
[server]
admin = "off"
[[listener]]
bind = "tcp://127.0.0.1:1"
pool = "all"
[pool.all]
kind = "prefix"
routes = [{ prefix = "s", pool = "sessions" }, { prefix = "u", pool = "users" }]
default = "local"
[pool.sessions]
kind = "cluster"
servers = ["10.0.0.1:7000"]
[pool.users]
kind = "replicated"
sentinels = ["10.0.0.1:26379"]
primaries = ["users-a"]
[pool.local]
kind = "store"
"#;
        let config = Config::from_str(FOUND_OUT, "f.toml").unwrap();
        let keys = [b"s1".to_vec(), b"u1".to_vec()];
        let told = |pool| {
            let question =
                Question { path: "f.toml", pool: Some(pool), keys: &keys, is_json: false };
            let pools = pools(&config, &question).unwrap();
            let mut out = Vec::new();
            answer(&pools, &question, &mut &b""[..], &mut out).unwrap();
            (String::from_utf8(out).unwrap(), pools.notes())
        };
        let (text, notes) = told("all");
        assert!(text.contains("all\ts1\tthe server of slot "), "{text}");
        assert!(text.contains("all\tu1\tthe primary users-a\t"), "{text}");
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("redis-cli -h 10.0.0.1 -p 7000 CLUSTER SLOTS"), "{notes:?}");
        assert!(notes[1].contains("SENTINEL GET-MASTER-ADDR-BY-NAME users-a"), "{notes:?}");
        assert_eq!(told("sessions").1.len(), 1);
        assert_eq!(told("local").1, Vec::<String>::new());
    }

    #[test]
    fn unknown_pool_is_told_with_those_there_are() {
        let error = told(Some("tags"), &[b"k"], b"", false).unwrap_err().to_string();
        assert_eq!(error, "f.toml has no pool \"tags\"; its pools are tagged, local, chance");
    }
}
