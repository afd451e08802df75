//! Converts a file of predixy.

use super::parse::Node;
use super::values::{Place, duration, last, number, servers, wrong};
use crate::address::ListenAddr;
use crate::error::{ConfigError, Problem, quoted};
use crate::import::Import;
use crate::import::foreign::{Head, PoolNames, clamp_time, parse_bind, timeouts};
use crate::secret::check_password;
use crate::toml_text::{key, string};
use crate::value::format_duration;
use keyway_topology::HashTag;
use std::fmt::Write;
use std::time::Duration;

const METRICS: &str = "Beside INFO, Keyway serves /metrics on\n# the admin address";

const BIND_DEFAULT: &str = "0.0.0.0:7617";

/// Default interval at which predixy asks a cluster for its slots.
const REFRESH_DEFAULT: Duration = Duration::from_secs(1);
const REFRESH_BOUNDS: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(86_400));

const READ_PRIORITIES: [&str; 3] =
    ["MasterReadPriority", "StaticSlaveReadPriority", "DynamicSlaveReadPriority"];

/// Keys of the file that Keyway does not use, and the reason.
const LEFT_OUT: [(&str, &str); 15] = [
    (
        "WorkerThreads",
        "Keyway adds workers while all are busy, up to the number of cores: write workers in [server] to fix their number",
    ),
    (
        "MaxMemory",
        "every queue of Keyway is bounded by itself: `keyway check` tells what they come to",
    ),
    (
        "ClientTimeout",
        "Keyway closes no client for being idle; tcp_keepalive finds those that are gone",
    ),
    ("BufSize", "buffers are sized as they are needed"),
    ("Log", "the log goes to standard error"),
    ("LogRotate", "the log goes to standard error: whoever keeps it rotates it"),
    ("AllowMissLog", "no request is logged, and no line left out"),
    ("LogVerbSample", "write log = { level = … } in [server]"),
    ("LogDebugSample", "write log = { level = … } in [server]"),
    ("LogInfoSample", "write log = { level = … } in [server]"),
    ("LogNoticeSample", "write log = { level = … } in [server]"),
    ("LogWarnSample", "write log = { level = … } in [server]"),
    ("LogErrorSample", "write log = { level = … } in [server]"),
    (
        "LocalDC",
        "servers of other data centres are read like others: read_from = \"nearest\" takes the fastest",
    ),
    (
        "DataCenter",
        "servers of other data centres are read like others: read_from = \"nearest\" takes the fastest",
    ),
];

struct Converter<'n> {
    nodes: &'n [Node],
    pool: &'n Node,
    notes: Vec<String>,
    errors: Vec<ConfigError>,
}

/// Converts the whole file.
pub(super) fn convert(nodes: &[Node], pool: &Node, path: &str) -> Result<Import, Vec<ConfigError>> {
    let mut converter = Converter { nodes, pool, notes: Vec::new(), errors: Vec::new() };
    let name = last(nodes, "Name").map_or("predixy", |node| node.value.as_str());
    let name = if name.is_empty() { "predixy" } else { name };
    let taken = PoolNames::default().claim(name, &mut converter.notes);
    let (bind, listener) = converter.listener(&taken);
    converter.leave_out();
    let table = match pool.is("ClusterServerPool") {
        true => converter.cluster(&taken),
        false => converter.groups(&taken),
    };
    let Converter { notes, mut errors, .. } = converter;
    if !errors.is_empty() {
        errors.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
        return Err(errors);
    }
    let mut tables = format!("\n# --- pool {} (line {})\n", quoted(name), pool.at.line);
    for note in &notes {
        let _ = writeln!(tables, "# Note: {note}.");
    }
    tables.push_str(&listener);
    tables.push_str(&table);
    let listeners: Vec<ListenAddr> = bind.into_iter().collect();
    let told = notes.iter().map(|note| format!("pool {}: {note}", quoted(name))).collect();
    Head { path, of: "predixy", listeners: &listeners, metrics: METRICS }.finish(&tables, told)
}

impl Converter<'_> {
    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Returns the value that was read, or keeps the error and returns `None`.
    fn read<T>(&mut self, read: Result<T, ConfigError>) -> Option<T> {
        read.map_err(|error| self.errors.push(error)).ok()
    }

    fn refuse(&mut self, node: &Node, what: impl Into<String>, hint: &str) {
        self.errors.push(node.at.error(Problem::new(what, hint)));
    }

    fn listener(&mut self, pool: &str) -> (Option<ListenAddr>, String) {
        let node = last(self.nodes, "Bind");
        let text = node.map_or(BIND_DEFAULT, |node| node.value.as_str());
        let bind = parse_bind(text).map_err(|problem| {
            let at = node.unwrap_or(self.pool);
            self.errors.push(at.at.error(problem));
        });
        let Ok(bind) = bind else { return (None, String::new()) };
        let mut text = format!(
            "[[listener]]\nbind = {}\npool = {}\n",
            string(&bind.to_string()),
            string(pool)
        );
        if let Some(password) = self.client_password() {
            let _ = writeln!(text, "password = {}", string(&password));
        }
        text.push('\n');
        (Some(bind), text)
    }

    /// Returns the password of clients. Keyway has one password for each listener, and a client
    /// that gives it may do everything. So a password with limited rights is not taken over.
    fn client_password(&mut self) -> Option<String> {
        let authority = last(self.nodes, "Authority")?;
        let is_whole = |node: &&Node| {
            let is_limit = |key: &Node| key.key.to_ascii_lowercase().ends_with("keyprefix");
            let mode = last(node.inner(), "Mode").map_or("read", |mode| mode.value.as_str());
            !mode.eq_ignore_ascii_case("read") && !node.inner().iter().any(is_limit)
        };
        let whole: Vec<&Node> = authority.inner().iter().filter(is_whole).collect();
        let open = whole.iter().find(|node| node.value.is_empty());
        let Some(chosen) = open.or(whole.first()) else {
            let what = "no Auth may read and write every key, and Keyway has no other clients";
            let hint = "give one of them \"Mode write\" without prefixes, and let the servers' own \
                        users limit the others";
            self.refuse(authority, what, hint);
            return None;
        };
        let others: Vec<String> = authority
            .inner()
            .iter()
            .filter(|node| !std::ptr::eq(*node, *chosen))
            .map(|node| format!("{}:{}", node.at.path, node.at.line))
            .collect();
        if !others.is_empty() {
            let who = match chosen.value.is_empty() {
                true => "that without a password; clients that send AUTH get an error".to_owned(),
                false => format!(
                    "that of {}:{}; clients without it are refused",
                    chosen.at.path, chosen.at.line
                ),
            };
            let others = others.join(", ");
            self.note(format!(
                "Keyway has one Auth for each listener, and no modes or prefixes of keys: it has \
                 {who}. Left out: {others}"
            ));
        }
        if chosen.value.is_empty() {
            return None;
        }
        self.note(
            "the password is in this file: keep it readable by Keyway alone, or move it to a file \
             named by password_file",
        );
        let checked = check_password(&chosen.value);
        let problem = |what| chosen.at.error(Problem::new(what, "choose another"));
        self.read(checked.map_err(problem))?;
        Some(chosen.value.clone())
    }

    /// Notes settings that have no equivalent.
    fn leave_out(&mut self) {
        for (name, why) in LEFT_OUT {
            if last(self.nodes, name).is_some() {
                self.note(format!("{name} is left out: {why}"));
            }
        }
        let monitors: Vec<String> = self
            .nodes
            .iter()
            .filter(|node| node.is("LatencyMonitor"))
            .map(|node| node.value.clone())
            .collect();
        if !monitors.is_empty() {
            self.note(format!(
                "LatencyMonitor {} is left out: Keyway times every request by class of commands, see \
                 INFO latencies, LATENCY HISTOGRAM and /metrics",
                monitors.join(", ")
            ));
        }
        for commands in self.nodes.iter().filter(|node| node.is("CustomCommand")) {
            let names: Vec<&str> = commands.inner().iter().map(|node| node.key.as_str()).collect();
            self.notes.push(format!(
                "CustomCommand is left out: Keyway refuses commands that are not Redis's own, here {}",
                names.join(", ")
            ));
        }
    }

    /// Writes the settings that both kinds of pools have.
    fn common(&mut self, places: &[&Place]) -> String {
        let pool = self.pool.inner();
        let mut text = String::new();
        let time = last(pool, "ServerTimeout").map(duration);
        let time = time.and_then(|read| self.read(read)).unwrap_or_default();
        let (timeout, connect) = timeouts("ServerTimeout", time, "predixy", &mut self.notes);
        let _ = writeln!(text, "timeout = {}", string(&format_duration(timeout)));
        let _ = writeln!(text, "connect_timeout = {}", string(&format_duration(connect)));
        if let Some(password) = self.server_password(places) {
            let _ = writeln!(text, "password = {}", string(&password));
        }
        for name in ["ServerFailureLimit", "ServerRetryTimeout"] {
            if last(pool, name).is_some() {
                self.note(format!(
                    "{name} is left out: Keyway connects again at once and then after pauses that \
                     grow, see reconnect"
                ));
            }
        }
        if last(pool, "KeepAlive").is_some_and(|node| node.value != "0") {
            self.note(
                "KeepAlive is left out: a server that does not answer within timeout is asked \
                 again on a new connection",
            );
        }
        text
    }

    /// Returns the password of the servers. All servers must have the same.
    fn server_password(&mut self, places: &[&Place]) -> Option<String> {
        let of_pool = last(self.pool.inner(), "Password").map(|node| node.value.clone());
        let of_pool = of_pool.filter(|password| !password.is_empty());
        let mut all = places.iter().map(|place| place.password.clone().or(of_pool.clone()));
        // Servers that Sentinel tells of have the pool's password.
        let first = all.next().unwrap_or(of_pool.clone());
        if all.any(|other| other != first) {
            let pool = self.pool;
            let what = "the servers have different passwords, and Keyway sends all the same";
            self.refuse(pool, what, "give them one password");
            return None;
        }
        let password = first?;
        let problem = |what| self.pool.at.error(Problem::new(what, "choose another"));
        let checked = check_password(&password).map_err(problem);
        self.read(checked)?;
        let told = "the password is in this file: keep it readable by Keyway alone, or move it to a \
                    file named by password_file";
        if !self.notes.iter().any(|note| note == told) {
            self.note(told);
        }
        Some(password)
    }

    fn cluster(&mut self, name: &str) -> String {
        let pool = self.pool.inner();
        let read = last(pool, "Servers").map_or(Ok(Vec::new()), servers);
        let places = self.read(read).unwrap_or_default();
        if places.is_empty() && self.errors.is_empty() {
            let node = self.pool;
            self.refuse(node, "ClusterServerPool has no server", "add \"Servers {\" and its lines");
        }
        let mut text = format!("[pool.{}]\nkind = \"cluster\"\n", key(name));
        let _ = writeln!(text, "servers = {}", endpoints(&places));
        let refresh = last(pool, "RefreshInterval").map(duration);
        let refresh = refresh.and_then(|read| self.read(read)).unwrap_or(REFRESH_DEFAULT);
        let refresh = clamp_time("RefreshInterval", refresh, REFRESH_BOUNDS, &mut self.notes);
        let _ = writeln!(text, "refresh = {}", string(&format_duration(refresh)));
        if let Some(from) = self.read_from() {
            let _ = writeln!(text, "read_from = \"{from}\"");
        }
        text + &self.common(&places.iter().collect::<Vec<_>>())
    }

    /// Returns the read priority of primaries, and the larger one of replicas.
    fn priorities(&mut self) -> (u64, u64) {
        let [primary, fixed, found] = READ_PRIORITIES.map(|name| {
            let node = last(self.pool.inner(), name).map(|node| number(node, (0, 100)));
            node.and_then(|read| self.read(read))
        });
        (primary.unwrap_or(50), fixed.unwrap_or(0).max(found.unwrap_or(0)))
    }

    /// Returns the value of `read_from` for a cluster, if it is not the default.
    fn read_from(&mut self) -> Option<&'static str> {
        let (primary, replica) = self.priorities();
        if primary == 0 && replica == 0 {
            self.note("all read priorities are 0, and predixy would read nothing: primaries are");
        }
        match (primary, replica) {
            (_, 0) => None,
            (0, _) => Some("replica"),
            _ if replica > primary => Some("prefer-replica"),
            _ if replica == primary => {
                self.note(
                    "the read priorities are equal, and predixy reads from primaries and replicas \
                     by chance: read_from = \"nearest\" is of whichever answers fastest",
                );
                Some("nearest")
            }
            _ => {
                self.note(
                    "predixy reads from replicas while a primary is gone, which Keyway does not: it \
                     reads from primaries, and from a new one once the cluster has it",
                );
                None
            }
        }
    }

    /// Writes a pool that places keys itself.
    fn groups(&mut self, name: &str) -> String {
        let pool = self.pool;
        let method = last(pool.inner(), "RefreshMethod");
        let is_sentinel = pool.is("SentinelServerPool")
            || method.is_some_and(|method| method.value.eq_ignore_ascii_case("sentinel"));
        if is_sentinel {
            return self.of_sentinels(name);
        }
        match method {
            Some(method) if method.value.eq_ignore_ascii_case("fixed") => {}
            Some(method) => {
                self.errors.push(wrong(method, "is not known", "write fixed or sentinel"));
            }
            None => self.refuse(pool, "RefreshMethod is missing", "add \"RefreshMethod fixed\""),
        }
        let groups: Vec<(&Node, Vec<Place>)> = pool
            .inner()
            .iter()
            .filter(|node| node.is("Group"))
            .filter_map(|node| Some((node, self.read(servers(node))?)))
            .collect();
        for (node, places) in &groups {
            if places.is_empty() {
                self.refuse(
                    node,
                    format!("group {} has no server", quoted(&node.value)),
                    "add \"+ IP:PORT\" below it",
                );
            }
        }
        if groups.is_empty() && self.errors.is_empty() {
            self.refuse(pool, "the pool has no group", "add \"Group NAME {\" and its servers");
        }
        if let [(_, places)] = groups.as_slice()
            && places.len() > 1
        {
            return self.one_group(name, places);
        }
        let mut text = format!("[pool.{}]\nkind = \"sharded\"\n", key(name));
        text.push_str(&server_lines(&groups));
        text.push_str(&self.placement(groups.len()));
        if let Some(databases) = last(pool.inner(), "Databases").map(|node| number(node, (1, 128)))
            && let Some(databases) = self.read(databases)
        {
            let _ = writeln!(text, "databases = {databases}");
        }
        let places: Vec<&Place> = groups.iter().filter_map(|(_, places)| places.first()).collect();
        text.push_str(&self.common(&places));
        self.tell_of_replicas(&groups);
        text
    }

    /// Writes a pool of groups whose servers Sentinel tells.
    fn of_sentinels(&mut self, name: &str) -> String {
        let pool = self.pool.inner();
        let node = last(pool, "Sentinels");
        let sentinels = node.map_or(Ok(Vec::new()), servers);
        let sentinels = self.read(sentinels).unwrap_or_default();
        let primaries: Vec<&Node> = pool.iter().filter(|node| node.is("Group")).collect();
        for (is_missing, what, hint) in [
            (
                sentinels.is_empty(),
                "the pool has no sentinels",
                "add \"Sentinels {\" and its lines",
            ),
            (
                primaries.is_empty(),
                "the pool has no group",
                "add \"Group NAME {\", as Sentinel calls it",
            ),
        ] {
            if is_missing && self.errors.is_empty() {
                let pool = self.pool;
                self.refuse(pool, what, hint);
            }
        }
        let of_all = node.map(|node| node.value.clone()).filter(|password| !password.is_empty());
        let password = |place: &Place| place.password.clone().or(of_all.clone());
        let first = sentinels.first().and_then(password);
        if sentinels.iter().any(|place| password(place) != first) {
            let pool = self.pool;
            let what = "the sentinels have different passwords, and Keyway sends all the same";
            self.refuse(pool, what, "give them one password");
        }
        let mut text = format!("[pool.{}]\nkind = \"replicated\"\n", key(name));
        let _ = writeln!(text, "sentinels = {}", endpoints(&sentinels));
        let names: Vec<String> = primaries.iter().map(|node| string(&node.value)).collect();
        let _ = writeln!(text, "primaries = [{}]", names.join(", "));
        if let Some(password) = first {
            let _ = writeln!(text, "sentinel_password = {}", string(&password));
        }
        text.push_str(&self.placement(primaries.len()));
        self.replicated(text, &[])
    }

    /// Writes a pool of one primary and its replicas, which are listed.
    fn one_group(&mut self, name: &str, places: &[Place]) -> String {
        let mut text = format!("[pool.{}]\nkind = \"replicated\"\n", key(name));
        let _ = writeln!(text, "servers = {}", endpoints(places));
        self.note(
            "which of the servers is the primary is asked of them, where predixy takes the first of \
             the list",
        );
        self.replicated(text, &places.iter().collect::<Vec<_>>())
    }

    /// Writes the settings that all pools of primaries and replicas have.
    fn replicated(&mut self, mut text: String, places: &[&Place]) -> String {
        let pool = self.pool.inner();
        let refresh = last(pool, "RefreshInterval").map(duration);
        let refresh = refresh.and_then(|read| self.read(read)).unwrap_or(REFRESH_DEFAULT);
        let bounds = (REFRESH_BOUNDS.0, Duration::from_secs(3600));
        let refresh = clamp_time("RefreshInterval", refresh, bounds, &mut self.notes);
        let _ = writeln!(text, "refresh = {}", string(&format_duration(refresh)));
        if let Some(from) = self.read_from() {
            let _ = writeln!(text, "read_from = \"{from}\"");
        }
        if last(pool, "Databases").is_some_and(|node| node.value != "1") {
            self.note("Databases is left out: pools of this kind have one database, 0");
        }
        text + &self.common(places)
    }

    fn tell_of_replicas(&mut self, groups: &[(&Node, Vec<Place>)]) {
        let replicas: Vec<String> = groups
            .iter()
            .flat_map(|(_, places)| places.iter().skip(1))
            .map(|place| place.endpoint.to_string())
            .collect();
        let (_, priority) = self.priorities();
        if replicas.is_empty() {
            return;
        }
        let why = match priority {
            0 => "predixy reads nothing from them either",
            _ => {
                "of several groups Keyway reads from the first servers, unless Sentinel tells of \
                  the others"
            }
        };
        self.note(format!("replicas are left out ({}): {why}", replicas.join(", ")));
    }

    /// Writes the placement of keys: the position of the group in the list decides.
    fn placement(&mut self, groups: usize) -> String {
        let mut text = String::new();
        let pool = self.pool.inner();
        let is_many = groups > 1;
        let random =
            last(pool, "Distribution").filter(|node| node.value.eq_ignore_ascii_case("random"));
        match (last(pool, "Distribution"), random) {
            (_, Some(_)) => text.push_str("hash = \"crc16_xmodem\"\ndistribution = \"random\"\n"),
            (Some(node), _) if !node.value.eq_ignore_ascii_case("modula") => {
                self.errors.push(wrong(node, "is not known", "write modula or random"));
            }
            (None, _) if is_many => {
                let pool = self.pool;
                self.refuse(pool, "Distribution is missing", "add \"Distribution modula\"");
            }
            _ => text.push_str("hash = \"crc16_xmodem\"\ndistribution = \"modula-libmemcached\"\n"),
        }
        if random.is_none() && is_many {
            self.check_hash();
        }
        if let Some(node) = last(pool, "HashTag").filter(|node| !node.value.is_empty()) {
            match HashTag::parse(&node.value).filter(|_| node.value.is_ascii()) {
                Some(_) => {
                    let _ = writeln!(text, "hash_tag = {}", string(&node.value));
                }
                None => self.errors.push(wrong(node, "is not two characters", "write \"{}\"")),
            }
        }
        text
    }

    fn check_hash(&mut self) {
        let pool = self.pool;
        match last(pool.inner(), "Hash") {
            Some(node) if node.value.eq_ignore_ascii_case("crc16") => {}
            Some(node) if node.value.eq_ignore_ascii_case("atol") => {
                let what = "Hash atol, which takes keys for numbers, is none that Keyway has: keys \
                            would not be found where they are";
                self.refuse(node, what, "move the data to a pool with Hash crc16 first");
            }
            Some(node) => self.errors.push(wrong(node, "is not known", "write crc16")),
            None => self.refuse(pool, "Hash is missing", "add \"Hash crc16\""),
        }
    }
}

/// Writes the first server of each group, under the group's name.
fn server_lines(groups: &[(&Node, Vec<Place>)]) -> String {
    let mut text = "servers = [\n".to_owned();
    for (node, places) in groups {
        let Some(place) = places.first() else { continue };
        let name = node.value.trim();
        let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
        let line = match is_name {
            true => format!("{}:1 {name}", place.endpoint),
            false => format!("{}:1", place.endpoint),
        };
        let _ = writeln!(text, "  {},", string(&line));
    }
    text.push_str("]\n");
    text
}

fn endpoints(places: &[Place]) -> String {
    let all: Vec<String> = places.iter().map(|place| string(&place.endpoint.to_string())).collect();
    format!("[{}]", all.join(", "))
}
