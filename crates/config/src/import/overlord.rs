//! overlord 1.9's file of clusters.
//!
//! A key is converted by what overlord does with it. It reads `redis_auth` and `hash_distribution`
//! and never uses them, and takes an empty `hash_tag` as `{}`.

use super::Import;
use super::foreign::{Head, PoolNames, clamp, parse_bind, timeouts};
use crate::address::ListenAddr;
use crate::addresses::Addresses;
use crate::error::{ConfigError, Problem, Report, any_of, nearest, quoted};
use crate::toml_text::{key, string};
use crate::value::format_duration;
use keyway_topology::{Endpoint, Hash, HashTag, Server};
use std::fmt::Write;
use std::time::Duration;
use toml::de::{DeTable, DeValue};

const KEYS: [&str; 17] = [
    "name",
    "hash_method",
    "hash_distribution",
    "hash_tag",
    "cache_type",
    "listen_proto",
    "listen_addr",
    "redis_auth",
    "dial_timeout",
    "read_timeout",
    "write_timeout",
    "node_connections",
    "node_pipe_count",
    "ping_fail_limit",
    "ping_auto_eject",
    "slowlog_slower_than",
    "servers",
];

const TYPES: [&str; 4] = ["memcache", "memcache_binary", "redis", "redis_cluster"];

const NODE_CONNECTIONS_DEFAULT: u64 = 2;

/// Interval at which overlord checks an ejected server.
const EJECTED_FOR: &str = "5m";

/// Longest name by which overlord places a server. Longer names are cut.
const RING_NAME_LEN_MAX: usize = 60;

const METRICS: &str =
    "Instead of overlord's address of\n# statistics, Keyway serves /metrics on the admin address";

/// Converts a text.
pub(super) fn import(text: &str, path: &str) -> Result<Import, Vec<ConfigError>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut report = Report::new(path, text);
    let (document, errors) = DeTable::parse_recoverable(text);
    crate::syntax::report_all(text, &errors, &mut report);
    let mut importer = Importer {
        report,
        names: PoolNames::default(),
        tables: String::new(),
        notes: Vec::new(),
        listeners: Addresses::default(),
    };
    let clusters = document.get_ref().get("clusters");
    let clusters = clusters.and_then(|clusters| clusters.get_ref().as_array());
    match clusters.filter(|clusters| !clusters.is_empty()) {
        Some(clusters) => {
            for (number, cluster) in clusters.iter().enumerate() {
                importer.cluster(number, cluster.span().start, cluster.get_ref());
            }
        }
        None => importer.report.mistake(
            0,
            Problem::new(
                "no [[clusters]] is in the file",
                "give the file of clusters, that of overlord's option -cluster",
            ),
        ),
    }
    let Importer { report, tables, notes, listeners, .. } = importer;
    report.finish()?;
    let listeners = listeners.into_addresses();
    Head { path, of: "overlord", listeners: &listeners, metrics: METRICS }.finish(&tables, notes)
}

struct Importer<'r> {
    report: Report<'r>,
    names: PoolNames,
    tables: String,
    notes: Vec<String>,
    listeners: Addresses<usize>,
}

/// The keys of one `[[clusters]]`.
struct Cluster<'a> {
    at: usize,
    table: &'a DeTable<'a>,
}

impl Cluster<'_> {
    fn place(&self, name: &str) -> usize {
        self.table.get(name).map_or(self.at, |value| value.span().start)
    }

    fn text(&self, name: &str) -> &str {
        self.table.get(name).and_then(|value| value.get_ref().as_str()).unwrap_or_default()
    }

    fn number(&self, name: &str) -> u64 {
        let value = self.table.get(name).and_then(|value| value.get_ref().as_integer());
        value
            .and_then(|value| i64::from_str_radix(value.as_str(), value.radix()).ok())
            .map_or(0, |it| it.max(0).unsigned_abs())
    }

    fn bool(&self, name: &str) -> bool {
        self.table.get(name).and_then(|value| value.get_ref().as_bool()).unwrap_or(false)
    }

    fn millis(&self, name: &str) -> Duration {
        Duration::from_millis(self.number(name))
    }

    fn is_memcached(&self) -> bool {
        self.text("cache_type").starts_with("memcache")
    }

    fn is_cluster(&self) -> bool {
        self.text("cache_type") == "redis_cluster"
    }
}

impl Importer<'_> {
    fn cluster(&mut self, number: usize, at: usize, value: &DeValue<'_>) {
        let Some(table) = value.as_table() else {
            let problem = Problem::new("this is not a table", "write [[clusters]] above its keys");
            return self.report.mistake(at, problem);
        };
        let cluster = Cluster { at, table };
        let original = match cluster.text("name") {
            "" => format!("overlord-{}", number + 1),
            name => name.to_owned(),
        };
        let mut notes = self.check(&cluster, &original);
        let name = self.names.claim(&original, &mut notes);
        let bind = self.bind(&cluster, &original);
        let servers = self.servers(&cluster, &original);
        let (Some(bind), Some(servers)) = (bind, servers) else { return };
        let listener = listener_table(&cluster, &name, &bind, &mut notes);
        let pool = pool_table(&cluster, &name, &servers, &mut notes);
        let line = self.report.line_number(at);
        let _ = writeln!(self.tables, "\n# --- pool {} (line {line})", quoted(&original));
        for note in notes {
            let _ = writeln!(self.tables, "# Note: {note}.");
            self.notes.push(format!("pool {}: {note}", quoted(&original)));
        }
        self.tables.push_str(&listener);
        self.tables.push_str(&pool);
        self.listeners.add(bind, at);
    }

    /// Reports keys that overlord does not know, and values of the wrong form. Returns those that
    /// overlord ignores as well.
    fn check(&mut self, cluster: &Cluster<'_>, name: &str) -> Vec<String> {
        let mut passed_over = Vec::new();
        for (key, value) in cluster.table {
            let key_name: &str = key.get_ref();
            let at = key.span().start;
            if !KEYS.contains(&key_name) {
                let what = format!("unknown key {} in cluster {}", quoted(key_name), quoted(name));
                match nearest(key_name, KEYS) {
                    Some(meant) => {
                        let hint = format!("did you mean \"{meant}\"?");
                        self.report.mistake(at, Problem::new(what, hint));
                    }
                    None => passed_over.push(format!(
                        "{} is left out: overlord does not know it either",
                        quoted(key_name)
                    )),
                }
                continue;
            }
            let value = value.get_ref();
            let is_right = match key_name {
                "servers" => value.as_array().is_some(),
                "ping_auto_eject" => value.as_bool().is_some(),
                _ if KEYS[8..16].contains(&key_name) => value.as_integer().is_some(),
                _ => value.as_str().is_some(),
            };
            if !is_right {
                let what = format!("{key_name} in cluster {} is of the wrong type", quoted(name));
                let hint = match key_name {
                    "servers" => "write a list: [\"IP:PORT:WEIGHT ALIAS\"]".to_owned(),
                    "ping_auto_eject" => "write true or false".to_owned(),
                    _ if key_name.ends_with("_timeout") => {
                        format!("write a number of milliseconds: {key_name} = 1000")
                    }
                    _ if KEYS[8..16].contains(&key_name) => "write a number".to_owned(),
                    _ => "write text in quotes".to_owned(),
                };
                self.report.mistake(at, Problem::new(what, hint));
            }
        }
        let cache = cluster.text("cache_type");
        if !TYPES.contains(&cache) {
            let what =
                format!("cache_type in cluster {}: {} is not known", quoted(name), quoted(cache));
            let problem = Problem::new(what, format!("write {}", any_of(TYPES)));
            self.report.mistake(cluster.place("cache_type"), problem);
        }
        passed_over
    }

    fn bind(&mut self, cluster: &Cluster<'_>, name: &str) -> Option<ListenAddr> {
        let text = cluster.text("listen_addr");
        let text = match cluster.text("listen_proto") {
            "unix" => text.to_owned(),
            _ if !text.contains(':') && !text.is_empty() => format!("0.0.0.0:{text}"),
            _ => text.to_owned(),
        };
        let at = cluster.place("listen_addr");
        let read = parse_bind(&text).map_err(|problem| {
            let what = format!("listen_addr in cluster {}: {}", quoted(name), problem.what);
            self.report.mistake(at, Problem::new(what, problem.hint));
        });
        let bind = read.ok()?;
        if self.listeners.clash(&bind).is_some() {
            let what = format!("listen_addr in cluster {}: {bind} is taken", quoted(name));
            let hint = "give one of the two another port or path";
            self.report.mistake(at, Problem::new(what, hint));
            return None;
        }
        Some(bind)
    }

    /// Returns the servers, each with the name by which overlord places it.
    fn servers(&mut self, cluster: &Cluster<'_>, name: &str) -> Option<Vec<Server>> {
        let items = cluster.table.get("servers").and_then(|value| value.get_ref().as_array());
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            let what = format!("cluster {} has no servers", quoted(name));
            let problem = Problem::new(what, "add servers = [\"IP:PORT:WEIGHT ALIAS\"]");
            self.report.mistake(cluster.place("servers"), problem);
            return None;
        };
        let mut servers: Vec<Server> = Vec::with_capacity(items.len());
        for item in items {
            let text = item.get_ref().as_str().unwrap_or_default();
            match read_server(cluster, text) {
                Ok(server) => servers.push(server),
                Err(mut problem) => {
                    problem.what = format!("servers in cluster {}: {}", quoted(name), problem.what);
                    self.report.mistake(item.span().start, problem);
                }
            }
        }
        if let Some(odd) = uneven(&servers).filter(|_| !cluster.is_cluster()) {
            let what = format!(
                "servers in cluster {}: overlord rounds the share of {} of the ring otherwise than \
                 Keyway: some keys would not be found",
                quoted(name),
                quoted(&odd.ring_name()),
            );
            let hint = "give the servers equal weights, or weights that share evenly";
            self.report.mistake(cluster.place("servers"), Problem::new(what, hint));
        }
        Some(servers)
    }
}

fn read_server(cluster: &Cluster<'_>, text: &str) -> Result<Server, Problem> {
    let mut server = crate::address::parse_server(text)?;
    if cluster.is_cluster() {
        return Ok(Server { weight: 1, name: None, ..server });
    }
    if let (None, Endpoint::Tcp { host, port }) = (&server.name, &server.endpoint) {
        // Keyway leaves memcached's port out of the name that it hashes; overlord does not.
        server.name = Some(format!("{host}:{port}"));
    }
    if server.ring_name().len() > RING_NAME_LEN_MAX {
        let what = format!("{} is longer than overlord places it by", quoted(text));
        let hint = format!("give the server an alias of up to {RING_NAME_LEN_MAX} bytes");
        return Err(Problem::new(what, hint));
    }
    Ok(server)
}

/// Returns a server that has a different number of points on overlord's ring. overlord calculates
/// with 64 bits; twemproxy, and so Keyway, with 32.
fn uneven(servers: &[Server]) -> Option<&Server> {
    let total: u64 = servers.iter().map(|server| u64::from(server.weight)).sum();
    let count = servers.len();
    servers.iter().find(|server| {
        let wide = f64::from(server.weight) / total as f64 * 160.0 / 4.0 * count as f64;
        let wide = ((wide + 0.000_000_000_1) * 4.0) as u64 / 4;
        let narrow = server.weight as f32 / total as f32 * 160.0 / 4.0 * count as f32;
        let narrow = (f64::from(narrow) + 0.000_000_000_1) as f32 as u64;
        wide != narrow
    })
}

fn listener_table(
    cluster: &Cluster<'_>,
    name: &str,
    bind: &ListenAddr,
    notes: &mut Vec<String>,
) -> String {
    let mut text =
        format!("[[listener]]\nbind = {}\npool = {}\n", string(&bind.to_string()), string(name));
    if cluster.is_memcached() {
        text.push_str("protocol = \"memcached\"\n");
        notes.push(
            "items of more than 1 MiB are refused, which overlord leaves to the servers: give the \
             listener an item_len_max where they run with -I"
                .into(),
        );
    }
    if let (true, ListenAddr::Tcp(_)) = (cluster.is_cluster(), bind) {
        text.push_str("cluster_mode = \"emulate\"\n");
        notes.push(
            "clients of Redis Cluster take this listener for one, as they do overlord: name all \
             Keyways in cluster_announce where there are several"
                .into(),
        );
    }
    text.push('\n');
    text
}

fn pool_table(
    cluster: &Cluster<'_>,
    name: &str,
    servers: &[Server],
    notes: &mut Vec<String>,
) -> String {
    let kind = match cluster.text("cache_type") {
        "redis" => "sharded",
        "redis_cluster" => "cluster",
        _ => "memcached",
    };
    let mut text = format!("[pool.{}]\nkind = \"{kind}\"\nservers = [\n", key(name));
    for server in servers {
        let line = match cluster.is_cluster() {
            true => server.endpoint.to_string(),
            false => server.to_string(),
        };
        let _ = writeln!(text, "  {},", string(&line));
    }
    text.push_str("]\n");
    if !cluster.is_cluster() {
        placement(cluster, &mut text, notes);
    }
    let mut entry = |name: &str, value: &str| {
        let _ = writeln!(text, "{name} = {value}");
    };
    match cluster.text("cache_type") {
        "memcache" => entry("server_protocol", "\"text\""),
        "memcache_binary" => entry("server_protocol", "\"binary\""),
        _ => {}
    }
    let (timeout, connect) =
        timeouts("read_timeout", cluster.millis("read_timeout"), "overlord", notes);
    entry("timeout", &string(&format_duration(timeout)));
    let dial = cluster.millis("dial_timeout");
    let connect = if dial.is_zero() { connect } else { dial.min(Duration::from_secs(60)) };
    entry("connect_timeout", &string(&format_duration(connect)));
    let connections = match cluster.number("node_connections") {
        0 => NODE_CONNECTIONS_DEFAULT,
        count => clamp("node_connections", count, (1, 64), notes),
    };
    entry("server_connections", &connections.to_string());
    let slow = cluster.number("slowlog_slower_than");
    if slow > 0 && !cluster.is_memcached() {
        let time = Duration::from_micros(slow).max(Duration::from_millis(1));
        entry("slowlog_log_slower_than", &string(&format_duration(time)));
        notes.push(
            "requests slower than slowlog_slower_than are in SLOWLOG GET, not in a file".into(),
        );
    }
    if let Some(ejection) = ejection(cluster, notes) {
        entry("ejection", &ejection);
    }
    leave_out(cluster, notes);
    text
}

/// Writes the keys that decide the placement of keys.
fn placement(cluster: &Cluster<'_>, text: &mut String, notes: &mut Vec<String>) {
    let method = match cluster.text("hash_method") {
        "one_on_time" => Hash::OneAtATime,
        "jenkins" => Hash::Fnv1a64,
        name => {
            Hash::TWEMPROXY.into_iter().find(|hash| hash.name() == name).unwrap_or(Hash::Fnv1a64)
        }
    };
    let _ = writeln!(text, "hash = \"{}\"\ndistribution = \"ketama\"", method.name());
    let given = cluster.text("hash_method");
    if !["", "one_on_time", method.name()].contains(&given) {
        notes.push(format!(
            "hash_method {} is none that overlord has: it hashes with fnv1a_64, and so does this pool",
            quoted(given)
        ));
    }
    let is_signed =
        [Hash::OneAtATime, Hash::Fnv1a64, Hash::Fnv1_64, Hash::Fnv1a32, Hash::Fnv1_32, Hash::Hsieh];
    if is_signed.contains(&method) {
        notes.push(
            "keys with bytes outside ASCII are placed otherwise than by overlord, whose hash differs \
             for these from twemproxy's: they are missing at first where such keys are used"
                .into(),
        );
    }
    let tag = match cluster.text("hash_tag") {
        "" => "{}",
        tag => tag,
    };
    if HashTag::parse(tag).is_some() && tag.is_ascii() {
        let _ = writeln!(text, "hash_tag = {}", string(tag));
        notes.push(
            "of keys with an empty hash tag the whole key counts, and of overlord's nothing: these \
             are missing at first"
                .into(),
        );
        if cluster.text("hash_tag").is_empty() {
            notes.push("an empty hash_tag is \"{}\" to overlord, and is written out here".into());
        }
    }
}

fn ejection(cluster: &Cluster<'_>, notes: &mut Vec<String>) -> Option<String> {
    if !cluster.bool("ping_auto_eject") || cluster.is_cluster() {
        return None;
    }
    let failures = clamp("ping_fail_limit", cluster.number("ping_fail_limit"), (1, 100_000), notes);
    let (rejoin, what) = match cluster.is_memcached() {
        true => ("flush", "is emptied first, where overlord goes on serving what it held"),
        false => ("serve", "serves what it held before, stale or not, as with overlord"),
    };
    notes.push(format!(
        "Keyway counts failures of requests, not of pings, and looks again after {EJECTED_FOR} as \
         overlord does: lower that if you like; a server that comes back {what}"
    ));
    Some(format!(
        "{{ after_failures = {failures}, for = \"{EJECTED_FOR}\", rejoin = \"{rejoin}\" }}"
    ))
}

/// Notes settings that have no equivalent.
fn leave_out(cluster: &Cluster<'_>, notes: &mut Vec<String>) {
    if !cluster.text("redis_auth").is_empty() {
        notes.push(
            "redis_auth is left out: overlord reads it and sends nothing; write password to have it \
             sent"
                .into(),
        );
    }
    let (read, write) = (cluster.number("read_timeout"), cluster.number("write_timeout"));
    if write > 0 && write != read {
        notes.push(
            "write_timeout is left out: timeout covers writing a request and its reply".into(),
        );
    }
    if cluster.number("node_pipe_count") > 0 {
        notes.push("node_pipe_count is left out: all that waits is sent together".into());
    }
    if cluster.is_memcached() && cluster.number("slowlog_slower_than") > 0 {
        notes.push("slowlog_slower_than is left out: pools of memcached have no slow log".into());
    }
}
