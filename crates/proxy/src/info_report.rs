//! INFO about the servers of a sharded pool: which forms of the command ask the servers, and one
//! text from their replies.
//!
//! | form | what it shows |
//! | --- | --- |
//! | `INFO [section ...]` | Keyway itself; what concerns data is the sum over the servers |
//! | `INFO backends` | one line for each server |
//! | `INFO backend <name or address> [section ...]` | that server's own INFO, whole |

use keyway_command::Args;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The subject of an INFO, and the servers that it asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InfoAsks {
    /// Keyway alone.
    Keyway,
    /// All servers of the pool.
    Servers(InfoQuery),
    /// The server that argument 2 names. Its sections follow.
    Backend,
}

/// The contents of an INFO that asks every server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoQuery {
    /// Requested sections, in the words of the client.
    pub sections: Vec<String>,
    /// True if each server gets a line.
    pub lists_backends: bool,
    /// True if the replies are added up.
    pub sums: bool,
    /// True if the client is told of a cluster.
    pub is_cluster: bool,
}

/// The sections whose numbers come from the servers.
const SUMMED: [&str; 4] = ["memory", "stats", "replication", "keyspace"];

/// Words for several sections, which include those of the servers.
const MANY: [&str; 3] = ["default", "all", "everything"];

impl InfoAsks {
    /// Returns what the arguments of an INFO ask for.
    pub fn of(args: &Args) -> InfoAsks {
        let first = args.get(1).unwrap_or_default();
        if args.len() > 2 && first.eq_ignore_ascii_case(b"backend") {
            return InfoAsks::Backend;
        }
        let words = args.from(1).map(|word| String::from_utf8_lossy(word).into_owned());
        let mut sections: Vec<String> = words.collect();
        if sections.is_empty() {
            sections.push("default".to_owned());
        }
        let has = |words: &[&str]| {
            let is_one = |name: &String| words.iter().any(|word| name.eq_ignore_ascii_case(word));
            sections.iter().any(is_one)
        };
        let (lists_backends, sums) = (has(&["backends"]), has(&SUMMED) || has(&MANY));
        if lists_backends || sums {
            return InfoAsks::Servers(InfoQuery {
                sections,
                lists_backends,
                sums,
                is_cluster: false,
            });
        }
        InfoAsks::Keyway
    }
}

/// One server and its reply.
#[derive(Clone, Debug)]
pub struct BackendInfo<'a> {
    /// Its name, as in metrics and errors.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Its health.
    pub health: &'static str,
    /// Its role, its primary, and its slots, as fields, if servers are discovered. Otherwise empty.
    pub standing: String,
    /// Mean time of its replies so far, in microseconds. `None` before the first one.
    pub latency_micros: Option<f64>,
    /// Its INFO, or the reason why there is none.
    pub info: Result<&'a str, String>,
}

impl BackendInfo<'_> {
    fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.info.as_ref().ok()?.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.trim().parse().ok()
    }

    /// Returns the number of keys in all databases.
    fn keys(&self) -> u64 {
        let text = *self.info.as_ref().unwrap_or(&"");
        let keys = text.lines().filter_map(database_line).map(|(_, [keys, ..])| keys);
        keys.fold(0, u64::saturating_add)
    }
}

/// Parses a line of the section Keyspace: a database's number, and its keys, expiring keys and
/// average time to live.
fn database_line(line: &str) -> Option<(u32, [u64; 3])> {
    let (database, fields) = line.strip_prefix("db")?.split_once(':')?;
    let field = |name: &str| {
        let value = fields.trim().split(',').find_map(|field| field.strip_prefix(name));
        value.and_then(|value| value.strip_prefix('=')?.parse().ok()).unwrap_or(0)
    };
    Some((database.parse().ok()?, ["keys", "expires", "avg_ttl"].map(field)))
}

/// The rule by which a field of a section is computed from those of the servers.
#[derive(Clone, Copy)]
enum Rule {
    /// Their sum.
    Sum,
    /// The largest value, because all servers have nearly the same.
    Max,
    /// The sum, and once more for people under `name_human`.
    Size,
    /// A sum of limits, which is 0 for no limit if any of them is.
    Bound,
    /// The common value, or the word `mixed`.
    Same,
    /// Resident memory divided by the bytes in use.
    Fragmentation,
    /// The field is not shown, because it is meaningful only for a single machine.
    Hide,
}

/// The fields that come from the servers, by section.
const RULES: [(&str, &[(&str, Rule)]); 3] = [
    (
        "Memory",
        &[
            ("used_memory", Rule::Size),
            ("used_memory_rss", Rule::Size),
            ("used_memory_peak", Rule::Size),
            ("used_memory_dataset", Rule::Sum),
            ("used_memory_lua", Rule::Sum),
            ("total_system_memory", Rule::Hide),
            ("total_system_memory_human", Rule::Hide),
            ("maxmemory", Rule::Bound),
            ("maxmemory_policy", Rule::Same),
            ("mem_fragmentation_ratio", Rule::Fragmentation),
            ("mem_allocator", Rule::Same),
        ],
    ),
    (
        "Stats",
        &[
            ("total_commands_processed", Rule::Sum),
            ("instantaneous_ops_per_sec", Rule::Sum),
            ("sync_full", Rule::Sum),
            ("sync_partial_ok", Rule::Sum),
            ("sync_partial_err", Rule::Sum),
            ("expired_keys", Rule::Sum),
            ("evicted_keys", Rule::Sum),
            ("keyspace_hits", Rule::Sum),
            ("keyspace_misses", Rule::Sum),
            // A channel is subscribed on one server, a pattern on all.
            ("pubsub_channels", Rule::Sum),
            ("pubsub_patterns", Rule::Max),
        ],
    ),
    ("Replication", &[("connected_slaves", Rule::Sum)]),
];

fn rules(section: &str) -> &'static [(&'static str, Rule)] {
    RULES.iter().find(|(name, _)| *name == section).map_or(&[], |(_, rules)| rules)
}

impl Rule {
    /// Writes the lines of a field, or none if no server has it.
    fn write(self, name: &str, servers: &[BackendInfo], out: &mut String) {
        let numbers = || servers.iter().filter_map(|server| server.number(name));
        let sum = numbers().fold(0, u64::saturating_add);
        let has_any = || servers.iter().any(|server| server.field(name).is_some());
        let _ = match self {
            Rule::Hide => Ok(()),
            _ if !has_any() => Ok(()),
            Rule::Sum => write!(out, "{name}:{sum}\r\n"),
            Rule::Max => write!(out, "{name}:{}\r\n", numbers().max().unwrap_or(0)),
            Rule::Size => write_size(name, sum, out),
            Rule::Bound if numbers().any(|bound| bound == 0) => write_size(name, 0, out),
            Rule::Bound => write_size(name, sum, out),
            Rule::Same => {
                let mut values = servers.iter().filter_map(|server| server.field(name));
                let first = values.next().unwrap_or_default();
                let value = if values.all(|value| value == first) { first } else { "mixed" };
                write!(out, "{name}:{value}\r\n")
            }
            Rule::Fragmentation => {
                let total = |name| {
                    let numbers = servers.iter().filter_map(|server| server.number(name));
                    numbers.fold(0, u64::saturating_add)
                };
                let (resident, used) = (total("used_memory_rss"), total("used_memory"));
                let ratio = if used == 0 { 0.0 } else { resident as f64 / used as f64 };
                write!(out, "{name}:{ratio:.2}\r\n")
            }
        };
    }
}

fn write_size(name: &str, bytes: u64, out: &mut String) -> std::fmt::Result {
    write!(out, "{name}:{bytes}\r\n{name}_human:{}\r\n", Human(bytes))
}

/// Formats a size like Redis for people: `0B`, `1.50K`, `12.00G`.
pub struct Human(pub u64);

impl std::fmt::Display for Human {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
        if self.0 < 1024 {
            return write!(f, "{}B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.2}{}", UNITS[unit])
    }
}

impl InfoQuery {
    /// Returns the whole text. `own` contains Keyway's own sections. `databases` are the databases
    /// of the servers that clients may select, in their order.
    pub fn text(
        &self,
        own: &str,
        databases: std::ops::Range<u32>,
        servers: &[BackendInfo],
    ) -> String {
        let mut out = String::new();
        if self.sums {
            for section in own.split("\r\n\r\n").filter(|section| !section.trim().is_empty()) {
                begin_section(&mut out);
                write_section(section.trim_end(), &databases, servers, &mut out);
            }
        } else {
            out.push_str(own);
        }
        if self.lists_backends {
            begin_section(&mut out);
            write_backends(servers, &mut out);
        } else if servers.iter().any(|server| server.info.is_err()) {
            begin_section(&mut out);
            write_missing(servers, &mut out);
        }
        out
    }
}

fn begin_section(out: &mut String) {
    if !out.is_empty() {
        out.push_str("\r\n");
    }
}

/// Writes one section of Keyway, with the servers' values in place of its own.
fn write_section(
    section: &str,
    databases: &std::ops::Range<u32>,
    servers: &[BackendInfo],
    out: &mut String,
) {
    let mut lines = section.lines();
    let head = lines.next().unwrap_or_default();
    let _ = write!(out, "{head}\r\n");
    let title = head.trim_start_matches("# ");
    let rules = rules(title);
    rules.iter().for_each(|(name, rule)| rule.write(name, servers, out));
    let is_theirs = |name: &str| {
        let plain = name.strip_suffix("_human").unwrap_or(name);
        rules.iter().any(|(theirs, _)| *theirs == plain)
    };
    for line in lines {
        if !is_theirs(line.split(':').next().unwrap_or_default()) {
            let _ = write!(out, "{line}\r\n");
        }
    }
    if title == "Keyspace" {
        write_keyspace(databases, servers, out);
    }
}

/// Writes each database with the sums over all servers. The time to live is the mean over the keys
/// that have one.
fn write_keyspace(databases: &std::ops::Range<u32>, servers: &[BackendInfo], out: &mut String) {
    let mut sums: BTreeMap<u32, [u64; 3]> = BTreeMap::new();
    let texts = servers.iter().filter_map(|server| server.info.as_ref().ok());
    for (number, [keys, expires, ttl]) in
        texts.flat_map(|text| text.lines()).filter_map(database_line)
    {
        if databases.contains(&number) {
            let sum = sums.entry(number - databases.start).or_default();
            sum[0] = sum[0].saturating_add(keys);
            sum[1] = sum[1].saturating_add(expires);
            sum[2] = sum[2].saturating_add(ttl.saturating_mul(expires));
        }
    }
    for (database, [keys, expires, ttl]) in sums {
        let ttl = ttl / expires.max(1);
        let _ = write!(out, "db{database}:keys={keys},expires={expires},avg_ttl={ttl}\r\n");
    }
}

fn write_backends(servers: &[BackendInfo], out: &mut String) {
    out.push_str("# Backends\r\n");
    for (index, server) in servers.iter().enumerate() {
        let BackendInfo { name, address, health, standing, .. } = server;
        let _ =
            write!(out, "server{index}:name={name},address={address},health={health}{standing}");
        if let Some(micros) = server.latency_micros {
            let _ = write!(out, ",latency_usec={micros:.0}");
        }
        if let Err(reason) = &server.info {
            let _ = write!(out, ",answered=no,reason={reason}\r\n");
            continue;
        }
        let text = |name| server.field(name).unwrap_or("").trim();
        let number = |name| server.number(name).unwrap_or(0);
        let _ = write!(
            out,
            ",answered=yes,role={},version={},uptime_in_seconds={},used_memory={},keys={},\
             ops_per_sec={},connected_clients={},connected_slaves={}\r\n",
            text("role"),
            text("redis_version"),
            number("uptime_in_seconds"),
            number("used_memory"),
            server.keys(),
            number("instantaneous_ops_per_sec"),
            number("connected_clients"),
            number("connected_slaves"),
        );
    }
}

/// Writes the servers that are in none of the sums.
fn write_missing(servers: &[BackendInfo], out: &mut String) {
    out.push_str("# Missing\r\n");
    for (index, server) in servers.iter().enumerate() {
        if let Err(reason) = &server.info {
            let BackendInfo { name, address, health, .. } = server;
            let _ = write!(
                out,
                "missing{index}:name={name},address={address},health={health},reason={reason}\r\n"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::ByteRange;

    fn asks(line: &str) -> InfoAsks {
        let mut ranges = Vec::new();
        let mut start = 0;
        for word in line.split(' ') {
            ranges.push(ByteRange::new(start, start + word.len()));
            start += word.len() + 1;
        }
        InfoAsks::of(&Args::new(line.as_bytes(), &ranges))
    }

    fn server<'a>(name: &str, info: Result<&'a str, &str>) -> BackendInfo<'a> {
        BackendInfo {
            name: name.to_owned(),
            address: format!("{name}:1"),
            health: "up",
            standing: String::new(),
            latency_micros: Some(250.4),
            info: info.map_err(str::to_owned),
        }
    }

    const ALPHA: &str = "# Server\r\nredis_version:7.0.15\r\n\r\n# Memory\r\nused_memory:1024\r\n\
                         used_memory_rss:2048\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n\r\n\
                         # Stats\r\nkeyspace_hits:3\r\npubsub_channels:2\r\n\
                         pubsub_patterns:3\r\n\r\n# Keyspace\r\n\
                         db2:keys=3,expires=1,avg_ttl=100\r\ndb3:keys=1,expires=0,avg_ttl=0\r\n";
    const BETA: &str = "used_memory:512\r\nused_memory_rss:512\r\nmaxmemory:99\r\n\
                        maxmemory_policy:allkeys-lru\r\nkeyspace_hits:4\r\n\
                        pubsub_channels:1\r\npubsub_patterns:4\r\n\
                        db2:keys=5,expires=3,avg_ttl=500\r\ndb9:keys=7,expires=0,avg_ttl=0\r\n";
    const OWN: &str = "# Server\r\nredis_version:7.0.15\r\nused_memory:1\r\n\r\n# Memory\r\n\
                       used_memory:9\r\nused_memory_human:9B\r\nown:1\r\n\r\n# Stats\r\n\
                       keyspace_hits:0\r\n\r\n# Keyspace\r\n";

    #[test]
    fn only_what_is_the_servers_asks_them() {
        for line in ["info server", "info clients cpu", "info keyway", "info backend", "info none"]
        {
            assert_eq!(asks(line), InfoAsks::Keyway, "{line}");
        }
        for line in ["info", "info ALL", "info server keyspace", "info memory"] {
            let InfoAsks::Servers(query) = asks(line) else { panic!("{line}") };
            assert!(query.sums && !query.lists_backends, "{line}");
        }
        let InfoAsks::Servers(query) = asks("info backends") else { panic!("the servers") };
        assert!(query.lists_backends && !query.sums);
        assert_eq!(asks("info backend alpha"), InfoAsks::Backend);
        assert_eq!(asks("INFO BACKEND 10.0.0.1:6379 memory"), InfoAsks::Backend);
    }

    #[test]
    fn what_concerns_data_is_added_up_and_the_rest_is_keyways() {
        let InfoAsks::Servers(query) = asks("info") else { panic!("the servers") };
        let text = query.text(OWN, 2..4, &[server("alpha", Ok(ALPHA)), server("beta", Ok(BETA))]);
        assert_eq!(
            text,
            "# Server\r\nredis_version:7.0.15\r\nused_memory:1\r\n\r\n# Memory\r\n\
             used_memory:1536\r\nused_memory_human:1.50K\r\nused_memory_rss:2560\r\n\
             used_memory_rss_human:2.50K\r\nmaxmemory:0\r\nmaxmemory_human:0B\r\n\
             maxmemory_policy:mixed\r\nown:1\r\n\r\n# Stats\r\nkeyspace_hits:7\r\n\
             pubsub_channels:3\r\npubsub_patterns:4\r\n\r\n\
             # Keyspace\r\ndb0:keys=8,expires=4,avg_ttl=400\r\ndb1:keys=1,expires=0,avg_ttl=0\r\n"
        );
    }

    #[test]
    fn a_server_that_does_not_answer_is_named_and_missing_in_the_sums() {
        let InfoAsks::Servers(query) = asks("info stats keyspace") else { panic!("the servers") };
        let servers = [server("alpha", Ok(ALPHA)), server("beta", Err("timed out"))];
        let text = query.text("# Stats\r\nown:1\r\n\r\n# Keyspace\r\n", 2..3, &servers);
        assert!(text.contains("keyspace_hits:3\r\n"), "{text}");
        assert!(text.contains("db0:keys=3,expires=1,avg_ttl=100\r\n"), "{text}");
        let missing =
            "# Missing\r\nmissing1:name=beta,address=beta:1,health=up,reason=timed out\r\n";
        assert!(text.ends_with(missing), "{text}");
    }

    #[test]
    fn whatever_numbers_servers_tell_there_is_a_sum() {
        let most = format!(
            "used_memory_rss:{max}\r\nused_memory:{max}\r\nmem_fragmentation_ratio:1.00\r\n\
             db0:keys={max},expires={max},avg_ttl={max}\r\ndb1:keys={max}\r\n",
            max = u64::MAX
        );
        let servers = [server("alpha", Ok(&most)), server("beta", Ok(&most))];
        for line in ["info memory keyspace", "info backends"] {
            let InfoAsks::Servers(query) = asks(line) else { panic!("the servers") };
            let text = query.text("# Memory\r\n\r\n# Keyspace\r\n", 0..2, &servers);
            assert!(text.contains(&format!("={},", u64::MAX)), "{text}");
        }
    }

    #[test]
    fn a_list_has_a_line_for_each_server() {
        let InfoAsks::Servers(query) = asks("info backends") else { panic!("the servers") };
        let text =
            query.text("", 0..1, &[server("alpha", Ok(ALPHA)), server("beta", Err("refused"))]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].starts_with("server0:name=alpha,address=alpha:1,health=up,"), "{text}");
        assert!(lines[1].contains(",version=7.0.15,") && lines[1].contains(",keys=4,"), "{text}");
        assert!(lines[1].contains(",latency_usec=250,"), "{text}");
        assert!(lines[2].ends_with(",answered=no,reason=refused"), "{text}");
    }
}
