//! twemproxy 0.5's `nutcracker.yml`.
//!
//! A key is converted by what twemproxy does with it, which is not always what its documentation
//! says. `tcpkeepalive` applies to clients, and `client_connections` is read but never enforced.

use super::Import;
use super::foreign::{
    CONNECT_TIMEOUT_FOR_EVER, Head, PoolNames, TIMEOUT_FOR_EVER, TIMEOUT_MAX, clamp,
};
use super::yaml::{self, Content, Node, Place};
use crate::address::{ListenAddr, parse_listen, parse_server};
use crate::addresses::Addresses;
use crate::error::{ConfigError, Problem, any_of, nearest, quoted};
use crate::toml_text::{key, string};
use crate::value::format_duration;
use keyway_topology::{Distribution, Hash, HashTag, Server};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

/// The type of a key's value.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Number,
    Bool,
    Servers,
}

/// Every key twemproxy 0.5 knows, with `reuseport` of its later versions.
const KEYS: [(&str, Form); 18] = [
    ("listen", Form::Text),
    ("hash", Form::Text),
    ("hash_tag", Form::Text),
    ("distribution", Form::Text),
    ("timeout", Form::Number),
    ("backlog", Form::Number),
    ("client_connections", Form::Number),
    ("tcpkeepalive", Form::Bool),
    ("reuseport", Form::Bool),
    ("redis", Form::Bool),
    ("redis_auth", Form::Text),
    ("redis_db", Form::Number),
    ("preconnect", Form::Bool),
    ("auto_eject_hosts", Form::Bool),
    ("server_connections", Form::Number),
    ("server_retry_timeout", Form::Number),
    ("server_failure_limit", Form::Number),
    ("servers", Form::Servers),
];

const BACKLOG_DEFAULT: u64 = 512;
const SERVER_RETRY_TIMEOUT_DEFAULT: u64 = 30_000;
const SERVER_FAILURE_LIMIT_DEFAULT: u64 = 2;

/// Longest `for` of an ejection.
const EJECTION_MAX: Duration = Duration::from_secs(86_400);

/// A value as written.
enum Value {
    Text(String),
    Number(u64),
    Bool(bool),
    Bind(Bind),
    Servers(Vec<Server>),
}

/// One pool as twemproxy would read it.
struct Pool {
    name: String,
    place: Place,
    values: BTreeMap<&'static str, (Place, Value)>,
}

impl Pool {
    fn text(&self, name: &str) -> Option<&str> {
        match self.values.get(name) {
            Some((_, Value::Text(text))) => Some(text),
            _ => None,
        }
    }

    fn number(&self, name: &str) -> Option<u64> {
        match self.values.get(name) {
            Some((_, Value::Number(number))) => Some(*number),
            _ => None,
        }
    }

    fn bool(&self, name: &str) -> bool {
        matches!(self.values.get(name), Some((_, Value::Bool(true))))
    }

    /// Returns whether its clients and servers speak memcached. That is twemproxy's default.
    fn is_memcached(&self) -> bool {
        !self.bool("redis")
    }

    fn bind(&self) -> Option<&Bind> {
        match self.values.get("listen") {
            Some((_, Value::Bind(bind))) => Some(bind),
            _ => None,
        }
    }

    fn servers(&self) -> &[Server] {
        match self.values.get("servers") {
            Some((_, Value::Servers(servers))) => servers,
            _ => &[],
        }
    }
}

struct Importer<'p> {
    path: &'p str,
    errors: Vec<ConfigError>,
    notes: Vec<String>,
    /// The `[[listener]]` and `[pool.NAME]` tables written so far.
    tables: String,
    listeners: Addresses<Place>,
    names: PoolNames,
    /// The names of the pools in the original file, each with its line.
    originals: BTreeMap<String, usize>,
}

pub(super) fn import(text: &str, path: &str) -> Result<Import, Vec<ConfigError>> {
    let mut importer = Importer {
        path,
        errors: Vec::new(),
        notes: Vec::new(),
        tables: String::new(),
        listeners: Addresses::default(),
        names: PoolNames::default(),
        originals: BTreeMap::new(),
    };
    match yaml::parse(text.strip_prefix('\u{feff}').unwrap_or(text)) {
        Ok(document) => importer.document(&document),
        Err((place, problem)) => importer.error(place, problem),
    }
    importer.finish()
}

impl Importer<'_> {
    fn error(&mut self, place: Place, problem: Problem) {
        self.errors.push(ConfigError {
            path: self.path.to_owned(),
            line: place.line,
            column: place.column,
            what: problem.what,
            hint: problem.hint,
        });
    }

    fn document(&mut self, document: &Node) {
        let Content::Map(pairs) = &document.content else {
            let hint = "write \"NAME:\" and below it, indented, the pool's keys";
            return self.error(document.place, Problem::new("no pool is in the file", hint));
        };
        for (name, content) in pairs {
            if let Some(pool) = self.read_pool(name, content) {
                self.convert_pool(&pool);
            }
        }
    }

    /// Reads the pool's values. Returns `None`, after reporting errors, if any is wrong.
    fn read_pool(&mut self, name: &Node, content: &Node) -> Option<Pool> {
        let errors_before = self.errors.len();
        let Content::Scalar(pool_name) = &name.content else {
            let problem = Problem::new("a pool has no name", "write \"NAME:\"");
            self.error(name.place, problem);
            return None;
        };
        if let Some(line) = self.originals.insert(pool_name.clone(), name.place.line) {
            let what = format!("pool {} is there twice: line {line} has it", quoted(pool_name));
            self.error(name.place, Problem::new(what, "rename or remove one of the two"));
        }
        let Content::Map(pairs) = &content.content else {
            let what = format!("pool {} has no keys", quoted(pool_name));
            let hint = "write its keys below it, indented: listen, redis, servers";
            self.error(name.place, Problem::new(what, hint));
            return None;
        };
        let mut values = BTreeMap::new();
        for (key, value) in pairs {
            self.read_entry(key, value, pool_name, &mut values);
        }
        for required in ["listen", "servers"] {
            let is_there = |(key, _): &(Node, Node)| matches!(&key.content, Content::Scalar(name) if name == required);
            if !pairs.iter().any(is_there) {
                let what = format!("{required} is missing in pool {}", quoted(pool_name));
                self.error(name.place, Problem::new(what, format!("add \"{required}:\"")));
            }
        }
        let pool = Pool { name: pool_name.clone(), place: name.place, values };
        self.claim_listen(&pool);
        self.refuse_password_of_memcached(&pool);
        (self.errors.len() == errors_before).then_some(pool)
    }

    fn read_entry(
        &mut self,
        key: &Node,
        value: &Node,
        pool_name: &str,
        values: &mut BTreeMap<&'static str, (Place, Value)>,
    ) {
        let known = || KEYS.iter().map(|(name, _)| *name);
        let name = match &key.content {
            Content::Scalar(name) => name.as_str(),
            _ => "",
        };
        let Some((name, form)) = KEYS.iter().find(|(known, _)| *known == name) else {
            let what = format!("unknown key {} in pool {}", quoted(name), quoted(pool_name));
            let hint = match nearest(name, known()) {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => format!("twemproxy knows {}", known().collect::<Vec<_>>().join(", ")),
            };
            return self.error(key.place, Problem::new(what, hint));
        };
        let read = match form {
            Form::Servers => self.read_servers(value, pool_name),
            _ => read_scalar(name, *form, value),
        };
        match read {
            Ok(read) => {
                if values.insert(name, (value.place, read)).is_some() {
                    let what = format!("{name} is given twice in pool {}", quoted(pool_name));
                    self.error(key.place, Problem::new(what, "keep one of the two"));
                }
            }
            Err(mut problem) => {
                problem.what = format!("{name} in pool {}: {}", quoted(pool_name), problem.what);
                self.error(value.place, problem);
            }
        }
    }

    fn read_servers(&mut self, value: &Node, pool_name: &str) -> Result<Value, Problem> {
        let hint = "write \"- HOST:PORT:WEIGHT NAME\" lines below it";
        let Content::List(items) = &value.content else {
            return Err(Problem::new("this is not a list", hint));
        };
        if items.is_empty() {
            return Err(Problem::new("the list is empty", hint));
        }
        let mut servers = Vec::with_capacity(items.len());
        let mut names = BTreeSet::new();
        for item in items {
            let server = match &item.content {
                Content::Scalar(text) => parse_server(text),
                _ => Err(Problem::new("this is not a server", hint)),
            };
            let server = server.and_then(|server| {
                let name = server.ring_name().into_owned();
                let what = format!("{} is there twice", quoted(&name));
                let hint = "give every server a name or address of its own";
                if names.insert(name) { Ok(server) } else { Err(Problem::new(what, hint)) }
            });
            match server {
                Ok(server) => servers.push(server),
                Err(mut problem) => {
                    problem.what =
                        format!("servers in pool {}: {}", quoted(pool_name), problem.what);
                    self.error(item.place, problem);
                }
            }
        }
        Ok(Value::Servers(servers))
    }

    fn convert_pool(&mut self, pool: &Pool) {
        let mut notes = Vec::new();
        let name = self.names.claim(&pool.name, &mut notes);
        let Some(bind) = pool.bind() else { return };
        if bind.was_localhost {
            notes.push("localhost became 127.0.0.1".to_owned());
        }
        let tables =
            [listener_table(pool, &name, bind, &mut notes), pool_table(pool, &name, &mut notes)];
        self.write_pool(pool, &name, &notes, &tables.concat());
    }

    fn write_pool(&mut self, pool: &Pool, name: &str, notes: &[String], tables: &str) {
        let _ = writeln!(self.tables, "\n# --- pool {} (line {})", quoted(name), pool.place.line);
        for note in notes {
            let _ = writeln!(self.tables, "# Note: {note}.");
            self.notes.push(format!("pool {}: {note}", quoted(name)));
        }
        self.tables.push_str(tables);
    }

    /// Notes the address of the pool. Two pools cannot have the same address.
    fn claim_listen(&mut self, pool: &Pool) {
        let Some((place, Value::Bind(bind))) = pool.values.get("listen") else { return };
        if let Some((other, other_place)) = self.listeners.clash(&bind.addr) {
            let what = format!("{} is taken: line {} has {other}", bind.addr, other_place.line);
            self.error(*place, Problem::new(what, "give one of the two another port or path"));
        }
        self.listeners.add(bind.addr.clone(), *place);
    }

    /// Refuses a password of a memcached pool. twemproxy has none there, and does not start with
    /// such a file.
    fn refuse_password_of_memcached(&mut self, pool: &Pool) {
        if let Some((place, _)) = pool.values.get("redis_auth").filter(|_| pool.is_memcached()) {
            let what = format!(
                "redis_auth in pool {}: twemproxy takes it with \"redis: true\" only",
                quoted(&pool.name)
            );
            let hint = "remove it, or add \"redis: true\" if the servers are Redis";
            self.error(*place, Problem::new(what, hint));
        }
    }

    fn finish(mut self) -> Result<Import, Vec<ConfigError>> {
        if !self.errors.is_empty() {
            self.errors.sort_by_key(|error| (error.line, error.column));
            return Err(self.errors);
        }
        let listeners = self.listeners.into_addresses();
        Head {
            path: self.path,
            of: "twemproxy",
            listeners: &listeners,
            metrics: "Instead of twemproxy's statistics port,\n# Keyway serves /metrics on the admin address",
        }
        .finish(&self.tables, self.notes)
    }
}

fn read_scalar(name: &str, form: Form, value: &Node) -> Result<Value, Problem> {
    let text = match &value.content {
        Content::Scalar(text) => text,
        Content::Empty => {
            return Err(Problem::new("no value is given", "give one, or remove the key"));
        }
        _ => return Err(Problem::new("this is not a single value", "write it on the same line")),
    };
    // The only secret in the file is not shown.
    let shown = || if name == "redis_auth" { "the value".to_owned() } else { quoted(text) };
    match form {
        Form::Bool => match text.as_str() {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err(Problem::new(
                format!("{} is not a truth value", shown()),
                "write true or false",
            )),
        },
        Form::Number => {
            let digits = text.bytes().all(|b| b.is_ascii_digit());
            let number = text.parse::<i32>().ok().filter(|_| digits).ok_or_else(|| {
                let hint = format!("write digits only, up to {}", i32::MAX);
                Problem::new(format!("{} is not a number", shown()), hint)
            })?;
            match (name, number) {
                ("server_connections", 0) => Err(Problem::new("0 is too small", "write 1 or more")),
                ("redis_db", 65_536..) => {
                    Err(Problem::new(format!("{number} is too large"), "write at most 65535"))
                }
                _ => Ok(Value::Number(u64::from(number.unsigned_abs()))),
            }
        }
        Form::Text | Form::Servers => read_text(name, text),
    }
}

fn read_text(name: &str, text: &str) -> Result<Value, Problem> {
    let known = |names: Vec<&'static str>| {
        let hint = match nearest(text, names.iter().copied()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("write {}", any_of(names.iter().copied())),
        };
        if names.contains(&text) {
            Ok(())
        } else {
            Err(Problem::new(format!("{} is not known", quoted(text)), hint))
        }
    };
    match name {
        "listen" => return parse_bind(text).map(Value::Bind),
        "hash" => known(Hash::TWEMPROXY.iter().map(|hash| hash.name()).collect())?,
        "distribution" => known(Distribution::TWEMPROXY.iter().map(|d| d.name()).collect())?,
        "hash_tag" if !text.is_empty() => {
            let ascii = text.bytes().all(|b| b.is_ascii_graphic());
            if HashTag::parse(text).is_none() || !ascii {
                let what = format!("{} is not two ASCII characters", quoted(text));
                return Err(Problem::new(what, "write two, such as \"{}\""));
            }
        }
        "redis_auth" => {
            crate::secret::check_password(text)
                .map_err(|what| Problem::new(what, "write another, or remove the key"))?;
        }
        _ => {}
    }
    Ok(Value::Text(text.to_owned()))
}

/// The address of a pool, and its permissions.
struct Bind {
    addr: ListenAddr,
    mode: Option<u32>,
    was_localhost: bool,
}

/// Reads `HOST:PORT`, `/PATH` or `/PATH MODE`.
fn parse_bind(text: &str) -> Result<Bind, Problem> {
    if text.starts_with('/') {
        let (path, mode) = match text.rsplit_once(' ') {
            None => (text, None),
            Some((path, mode)) => (path, Some(parse_mode(mode)?)),
        };
        return Ok(Bind {
            addr: parse_listen(&format!("unix://{path}"))?,
            mode,
            was_localhost: false,
        });
    }
    let hint = "write \"IP:PORT\" or \"/PATH\"";
    let (host, port) = text
        .rsplit_once(':')
        .ok_or_else(|| Problem::new(format!("{} has no port", quoted(text)), hint))?;
    if port == "0" {
        return Err(Problem::new(format!("{} has port 0", quoted(text)), hint));
    }
    let listen = if host.parse::<std::net::Ipv6Addr>().is_ok() {
        format!("tcp://[{host}]:{port}")
    } else {
        format!("tcp://{host}:{port}")
    };
    Ok(Bind { addr: parse_listen(&listen)?, mode: None, was_localhost: host == "localhost" })
}

fn parse_mode(text: &str) -> Result<u32, Problem> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.filter(|_| text.bytes().all(|b| b.is_ascii_digit())).ok_or_else(|| {
        Problem::new(format!("{} is not a file mode", quoted(text)), "write octal digits: 0660")
    })
}

/// Returns a time in milliseconds from a file of twemproxy, kept within 1 ms and `max`.
fn clamp_millis(name: &str, millis: u64, max: Duration, notes: &mut Vec<String>) -> Duration {
    let taken = Duration::from_millis(millis.max(1)).min(max);
    if taken != Duration::from_millis(millis) {
        let text = format_duration(taken);
        notes.push(format!("{name} was {millis} ms, which Keyway does not take: now {text}"));
    }
    taken
}

fn listener_table(pool: &Pool, name: &str, bind: &Bind, notes: &mut Vec<String>) -> String {
    let backlog = pool.number("backlog").unwrap_or(BACKLOG_DEFAULT);
    let backlog = clamp("backlog", backlog, (1, 65_535), notes);
    let mut text = "[[listener]]\n".to_owned();
    let mut entry = |name: &str, value: &str| {
        let _ = writeln!(text, "{name} = {value}");
    };
    entry("bind", &string(&bind.addr.to_string()));
    entry("pool", &string(name));
    if pool.is_memcached() {
        entry("protocol", "\"memcached\"");
        notes.push(
            "items of more than 1 MiB are refused, which twemproxy leaves to the servers: give \
             the listener an item_len_max where they run with -I"
                .into(),
        );
    }
    entry("backlog", &backlog.to_string());
    if let Some(mode) = bind.mode {
        entry("mode", &format!("\"{mode:04o}\""));
    }
    if let ListenAddr::Tcp(_) = bind.addr {
        let keepalive = pool.bool("tcpkeepalive");
        entry("tcp_keepalive", if keepalive { "\"300s\"" } else { "\"off\"" });
        if keepalive {
            let note = "tcpkeepalive probes after 300s of silence, not the system's 2 hours";
            notes.push(note.to_owned());
        }
    }
    if pool.bool("reuseport") {
        notes.push("reuseport has no counterpart: workers of one process share the port".into());
    }
    text.push('\n');
    text
}

fn pool_table(pool: &Pool, name: &str, notes: &mut Vec<String>) -> String {
    let kind = if pool.is_memcached() { "memcached" } else { "sharded" };
    let mut text = format!("[pool.{}]\nkind = \"{kind}\"\n", key(name));
    placement(pool, &mut text);
    let mut entry = |name: &str, value: &str| {
        let _ = writeln!(text, "{name} = {value}");
    };
    if pool.is_memcached() {
        entry("server_protocol", "\"text\"");
        notes.push(
            "the servers are asked in classic commands, as by twemproxy: server_protocol = \
             \"meta\" serves clients of the meta and binary protocols in full where every server is \
             memcached 1.6 or later"
                .into(),
        );
    }
    let (timeout, connect_timeout) = timeouts(pool, notes);
    entry("timeout", &string(&format_duration(timeout)));
    entry("connect_timeout", &string(&format_duration(connect_timeout)));
    if let Some(count) = pool.number("server_connections") {
        let count = clamp("server_connections", count, (1, 64), notes);
        entry("server_connections", &count.to_string());
    }
    if pool.bool("preconnect") {
        entry("preconnect", "true");
    }
    if let Some(password) = pool.text("redis_auth") {
        entry("password", &string(password));
        entry("client_password", &string(password));
        notes.push(
            "the password is in this file: keep it readable by Keyway alone, or move it to a \
             file named by password_file"
                .into(),
        );
    }
    match pool.number("redis_db") {
        Some(_) if pool.is_memcached() => {
            notes.push("redis_db does nothing without \"redis: true\": left out".into());
        }
        Some(database) => entry("database", &database.to_string()),
        None => {}
    }
    if let Some(ejection) = ejection(pool, notes) {
        entry("ejection", &ejection);
    }
    if let Some(clients) = pool.number("client_connections").filter(|clients| *clients > 0) {
        entry("# clients_max", &clients.to_string());
        notes.push(
            "twemproxy reads client_connections but never enforces it: uncomment clients_max to \
             have that bound, over all workers"
                .into(),
        );
    }
    text
}

/// Writes the keys that decide the placement of keys.
fn placement(pool: &Pool, text: &mut String) {
    let distribution = pool.text("distribution").unwrap_or(Distribution::Ketama.name());
    text.push_str("servers = [\n");
    for server in pool.servers() {
        let _ = writeln!(text, "  {},", string(&server.to_string()));
    }
    let _ = writeln!(text, "]");
    let hash = pool.text("hash").unwrap_or(Hash::Fnv1a64.name());
    let _ = writeln!(text, "hash = \"{hash}\"\ndistribution = \"{distribution}\"");
    if let Some(tag) = pool.text("hash_tag").filter(|tag| !tag.is_empty()) {
        let _ = writeln!(text, "hash_tag = {}", string(tag));
    }
}

/// Returns the timeouts of requests and of connecting.
fn timeouts(pool: &Pool, notes: &mut Vec<String>) -> (Duration, Duration) {
    match pool.number("timeout").unwrap_or(0) {
        0 => {
            notes.push(format!(
                "twemproxy without a timeout waits for ever, which Keyway does not: a request \
                 fails after {}, alone; lower it to what clients wait",
                format_duration(TIMEOUT_FOR_EVER)
            ));
            (TIMEOUT_FOR_EVER, CONNECT_TIMEOUT_FOR_EVER)
        }
        millis => {
            let timeout = clamp_millis("timeout", millis, TIMEOUT_MAX, notes);
            if timeout > CONNECT_TIMEOUT_FOR_EVER {
                notes.push(format!(
                    "twemproxy's timeout bounds connecting as well: connect_timeout is {}, so \
                     that a server that is gone is noticed",
                    format_duration(CONNECT_TIMEOUT_FOR_EVER)
                ));
            }
            (timeout, timeout.min(CONNECT_TIMEOUT_FOR_EVER))
        }
    }
}

fn ejection(pool: &Pool, notes: &mut Vec<String>) -> Option<String> {
    let retry = pool.number("server_retry_timeout");
    let failures = pool.number("server_failure_limit");
    if !pool.bool("auto_eject_hosts") {
        if retry.is_some() || failures.is_some() {
            notes.push(
                "server_retry_timeout and server_failure_limit do nothing without \
                 auto_eject_hosts: left out"
                    .into(),
            );
        }
        return None;
    }
    let failures = failures.unwrap_or(SERVER_FAILURE_LIMIT_DEFAULT);
    let failures = clamp("server_failure_limit", failures, (1, 100_000), notes);
    let retry = retry.unwrap_or(SERVER_RETRY_TIMEOUT_DEFAULT);
    let retry = clamp_millis("server_retry_timeout", retry, EJECTION_MAX, notes);
    let (rejoin, note) = rejoin(pool);
    notes.push(note.into());
    let time = format_duration(retry);
    Some(format!("{{ after_failures = {failures}, for = \"{time}\", rejoin = \"{rejoin}\" }}"))
}

/// Returns the value of `rejoin`, which decides about the data of a server that comes back, and a
/// note about it. memcached's data are a cache; Redis's may be the only copy.
fn rejoin(pool: &Pool) -> (&'static str, &'static str) {
    if pool.is_memcached() {
        return (
            "flush",
            "a server that comes back is emptied first, once between all proxies that give the \
             pool this name, where twemproxy goes on serving what it held, stale or not: write \
             rejoin = \"serve\" for that",
        );
    }
    (
        "serve",
        "a server that comes back serves what it held before, stale or not, as with twemproxy; \
         rejoin = \"flush\" is safer where it is only a cache",
    )
}
