//! The file of `keyway control`, which configures a control node. All mistakes in it are reported at
//! once. docs/control.md has the keys as a table.

use crate::bus::{self, BusConfig, duration, first_line, parsed, text, unknown};
use crate::error::{ConfigError, Problem, Report, any_of, quoted};
use crate::load::read_configuration;
use crate::model::{ListenerTlsConfig, LogConfig, LogFormat, LogLevel};
use crate::operators::{self, OperatorConfig};
use crate::reader::read_table;
use crate::secret::ReadFile;
use crate::{schema, syntax};
use keyway_bus::{Host, NodeId, Url};
use keyway_topology::Password;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Every key at the top of the file.
const KEYS: [&str; 10] = [
    "cluster",
    "admin",
    "admin_token_file",
    "admin_tls",
    "audit_file",
    "events_file",
    "log",
    "operator",
    "coordinator",
    "bus",
];
/// Keys that only files of processes that serve have.
pub(crate) const OF_SERVE: [&str; 4] = ["server", "listener", "pool", "control"];
/// Every key of `[coordinator]`.
const COORDINATOR_KEYS: [&str; 8] =
    ["kind", "lease", "dir", "endpoints", "root", "user", "password_file", "ca_file"];
/// Keys of a node of the bus that control decides itself, and why.
const OF_CONTROL: [(&str, &str); 3] = [
    ("upstream", "a control node is below the leader, which the coordinator tells"),
    ("publish", "control publishes its own topic only"),
    ("admin", "write `admin` at the top of the file"),
];

/// The lease without `lease`. etcd's shortest one with its default election timeout.
const LEASE: Duration = Duration::from_secs(2);
/// The range of leases. A shorter one is lost on a busy host, a longer one delays the next leader.
const LEASE_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Most endpoints of a coordinator.
const ENDPOINTS_MAX: usize = 16;
/// Shortest token of the admin address, in characters.
const TOKEN_LEN_MIN: usize = 16;

/// The configuration of a control node.
#[derive(Clone, Debug)]
pub struct ControlNodeConfig {
    /// The name of the cluster.
    pub cluster: String,
    /// The address of the admin listener.
    pub admin: SocketAddr,
    /// The token that the admin listener asks for.
    pub admin_token: Option<Password>,
    /// TLS settings of the admin address.
    pub admin_tls: Option<ListenerTlsConfig>,
    /// Every `[[operator]]`, in file order.
    pub operators: Vec<OperatorConfig>,
    /// The file to which every entry of the audit log is appended.
    pub audit_file: Option<PathBuf>,
    /// The file to which every event is appended.
    pub events_file: Option<PathBuf>,
    /// The log's level and format.
    pub log: LogConfig,
    /// The coordinator.
    pub coordinator: CoordinatorConfig,
    /// The lease of this node's session there.
    pub lease: Duration,
    /// Its node of the bus.
    pub bus: BusConfig,
    /// Warnings about the files, which can be used all the same.
    pub warnings: Vec<ConfigError>,
}

/// `[coordinator]`.
#[derive(Clone, Debug)]
pub enum CoordinatorConfig {
    /// Files of this host, in this directory.
    Files(PathBuf),
    /// etcd.
    Etcd(EngineConfig),
    /// ZooKeeper.
    ZooKeeper(EngineConfig),
}

/// The address of an engine that other processes run.
#[derive(Clone, Debug, Default)]
pub struct EngineConfig {
    /// The members, as `HOST:PORT`.
    pub endpoints: Vec<String>,
    /// The prefix of all keys.
    pub root: Option<String>,
    /// The user and its password.
    pub user: Option<(String, Password)>,
    /// The authorities of the members' certificates; without them there is no TLS.
    pub ca_file: Option<PathBuf>,
}

impl ControlNodeConfig {
    /// Reads the file and the files it names.
    ///
    /// # Errors
    /// Returns everything wrong with the files, in line order, or that the file cannot be read.
    pub fn load(path: &Path) -> Result<ControlNodeConfig, Vec<ConfigError>> {
        let text = read_configuration(path, "TOML")?;
        let shown = path.display().to_string();
        let trimmed = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let report = Report::new(&shown, trimmed).in_folder_of(path);
        Self::read_text(trimmed, report, &bus::read_file)
    }

    /// Reads the address of the admin listener and its TLS settings, and no file that they name, for
    /// callers that may not be allowed to read secrets. Other mistakes in the file are no errors.
    ///
    /// # Errors
    /// Returns what is wrong with the two, in line order, or that the file cannot be read.
    pub fn load_admin(
        path: &Path,
    ) -> Result<(SocketAddr, Option<ListenerTlsConfig>), Vec<ConfigError>> {
        let text = read_configuration(path, "TOML")?;
        let shown = path.display().to_string();
        let trimmed = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let mut report = Report::new(&shown, trimmed).in_folder_of(path);
        let (document, errors) = DeTable::parse_recoverable(trimmed);
        syntax::report_all(trimmed, &errors, &mut report);
        let table = document.get_ref();
        let mut reading = Reading { read_file: &bus::read_file, report: &mut report };
        let admin = reading.admin(table);
        let tls = reading.admin_tls(table.get("admin_tls"), false);
        report.finish()?;
        // Without an address there was an error.
        admin.map(|admin| (admin, tls)).ok_or_else(|| vec![incomplete()])
    }

    /// Returns whether a file configures a control node: it has keys that only such files have. It may
    /// lack others.
    pub fn is_one(path: &Path) -> bool {
        let text = read_configuration(path, "TOML").unwrap_or_default();
        let (document, _) = DeTable::parse_recoverable(&text);
        let table = document.get_ref();
        let is_text = |key: &str| {
            let text = table.get(key).and_then(|value| value.get_ref().as_str());
            text.is_some_and(|text| !text.is_empty())
        };
        let is_table = |key: &str| table.get(key).is_some_and(|value| value.get_ref().is_table());
        table.contains_key("coordinator")
            || (["cluster", "audit_file", "events_file"].into_iter().any(is_text)
                || is_table("bus"))
                && !OF_SERVE.iter().any(|key| table.contains_key(*key))
    }

    fn read_text(
        text: &str,
        mut report: Report<'_>,
        read_file: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<ControlNodeConfig, Vec<ConfigError>> {
        let (document, errors) = DeTable::parse_recoverable(text);
        syntax::report_all(text, &errors, &mut report);
        let config = Reading { read_file, report: &mut report }.file(document.get_ref());
        let warnings = report.finish()?;
        // Whatever is missing was reported.
        config
            .map(|config| ControlNodeConfig { warnings, ..config })
            .ok_or_else(|| vec![incomplete()])
    }
}

fn incomplete() -> ConfigError {
    ConfigError {
        path: String::new(),
        line: 0,
        column: 0,
        what: "the file is incomplete".to_owned(),
        hint: "see docs/control.md".to_owned(),
    }
}

struct Reading<'r, 't> {
    read_file: &'r dyn Fn(&str) -> Result<Vec<u8>, String>,
    report: &'r mut Report<'t>,
}

type Given<'v, 'd> = Option<&'v Spanned<DeValue<'d>>>;

impl Reading<'_, '_> {
    fn file(&mut self, table: &DeTable<'_>) -> Option<ControlNodeConfig> {
        self.refuse_unknown(table, &KEYS);
        let cluster = self.needed(table, "cluster", "cluster = \"prod\"", |value| {
            let name = text(value)?;
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:@".contains(&byte);
            match (1..=64).contains(&name.len()) && name.bytes().all(fits) {
                true => Ok(name.to_owned()),
                false => Err("it is not 1 to 64 of A-Z a-z 0-9 . _ - : @".to_owned()),
            }
        });
        let admin = self.admin(table);
        let admin_token = self.secret(table.get("admin_token_file"), "admin_token_file");
        let admin_tls = self.admin_tls(table.get("admin_tls"), true);
        let operators = self.operators(table, admin_tls.as_ref(), admin_token.as_ref());
        if let Some(admin) = admin {
            self.check_admin(table, admin, admin_token.as_ref());
        }
        let [audit_file, events_file] =
            [("audit_file", "audit"), ("events_file", "events")].map(|(key, name)| {
                let example = format!("{key} = \"/var/log/keyway/{name}.log\"");
                let read = |value: &Spanned<DeValue<'_>>| Ok(text(value)?.to_owned());
                let file = self.value(key, &example, table.get(key)?, read)?;
                Some(self.report.in_folder(Path::new(&file)))
            });
        let log = self.log(table.get("log"));
        let coordinator = self.table(table, "coordinator").and_then(|it| self.coordinator(it));
        let bus = self.table(table, "bus").map(|table| self.bus(table));
        let (coordinator, lease) = coordinator?;
        let (cluster, admin, bus, warnings) = (cluster?, admin?, bus?, Vec::new());
        Some(ControlNodeConfig {
            cluster,
            admin,
            admin_token,
            admin_tls,
            operators,
            audit_file,
            events_file,
            log,
            coordinator,
            lease,
            bus,
            warnings,
        })
    }

    fn admin(&mut self, table: &DeTable<'_>) -> Option<SocketAddr> {
        self.needed(table, "admin", "admin = \"127.0.0.1:9390\"", parsed::<SocketAddr>)
    }

    fn refuse_unknown(&mut self, table: &DeTable<'_>, known: &[&str]) {
        for name in table.keys().filter(|name| !known.contains(&name.get_ref().as_ref())) {
            self.report.mistake(name.span().start, unknown(name.get_ref(), known));
        }
    }

    /// Reads a key that has to be there.
    fn needed<T>(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        example: &str,
        read: impl Fn(&Spanned<DeValue<'_>>) -> Result<T, String>,
    ) -> Option<T> {
        match table.get(key) {
            Some(value) => self.value(key, example, value, read),
            None => {
                let what = format!("{key} is missing");
                self.report.consequence(0, Problem::new(what, format!("add {example}")));
                None
            }
        }
    }

    fn value<T>(
        &mut self,
        key: &str,
        example: &str,
        value: &Spanned<DeValue<'_>>,
        read: impl Fn(&Spanned<DeValue<'_>>) -> Result<T, String>,
    ) -> Option<T> {
        read(value)
            .map_err(|what| {
                let problem = Problem::new(format!("{key}: {what}"), format!("write {example}"));
                self.report.mistake(value.span().start, problem);
            })
            .ok()
    }

    fn table<'v, 'd>(&mut self, table: &'v DeTable<'d>, key: &str) -> Option<&'v DeTable<'d>> {
        let found = table.get(key).and_then(|value| value.get_ref().as_table());
        if found.is_none() {
            let at = table.get(key).map_or(0, |value| value.span().start);
            let what = format!("[{key}] is missing");
            let hint = format!("write [{key}] on a line of its own, and its keys below");
            self.report.consequence(at, Problem::new(what, hint));
        }
        found
    }

    /// Reads the secret in the first line of a file.
    fn secret(&mut self, value: Given<'_, '_>, key: &str) -> Option<Password> {
        let value = value?;
        let path = self.value(key, &format!("{key} = \"/etc/keyway/{key}\""), value, |value| {
            text(value).map(str::to_owned)
        })?;
        let found = self.report.in_folder(Path::new(&path));
        let read = (self.read_file)(&found.to_string_lossy()).and_then(|bytes| {
            String::from_utf8(first_line(&bytes)).map_err(|_| "is no text".to_owned())
        });
        match read.and_then(|text| match text.is_empty() {
            true => Err("has an empty first line".to_owned()),
            false => Ok(Password::new(&text)),
        }) {
            Ok(password) => Some(password),
            Err(what) => {
                let what = format!("{key} {}: {what}", quoted(&path));
                let hint = "make one with: openssl rand -hex 32 > FILE";
                self.report.mistake(value.span().start, Problem::new(what, hint));
                None
            }
        }
    }

    fn check_admin(&mut self, table: &DeTable<'_>, admin: SocketAddr, token: Option<&Password>) {
        let at = |key: &str| table.get(key).map_or(0, |value| value.span().start);
        let is_sendable = |text: &str| {
            text.len() >= TOKEN_LEN_MIN && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if let Some(token) = token.filter(|token| !is_sendable(token.expose())) {
            let _ = token;
            let what =
                format!("the token for admin is not {TOKEN_LEN_MIN} or more plain characters");
            let hint = "make one with: openssl rand -hex 32 > FILE";
            self.report.consequence(at("admin_token_file"), Problem::new(what, hint));
        }
        let has = |key: &str| table.contains_key(key);
        if !admin.ip().is_loopback() && !has("admin_token_file") && !has("operator") {
            let what = format!(
                "admin {admin} can be reached from other machines, and whoever does may change what \
                 all proxies do"
            );
            let hint = "add [[operator]] or admin_token_file, or listen on 127.0.0.1";
            self.report.consequence(at("admin"), Problem::new(what, hint));
        }
    }

    /// Reads `admin_tls`, which has the keys of that in `[server]` of a process that serves.
    /// With `reads_files` the files that it names are read.
    fn admin_tls(&mut self, value: Given<'_, '_>, reads_files: bool) -> Option<ListenerTlsConfig> {
        let value = value?;
        let at = value.span().start;
        let Some(table) = value.get_ref().as_table() else {
            let example = "admin_tls = { cert_file = \"admin.pem\", key_file = \"admin.key\" }";
            let problem = Problem::new("admin_tls is no table", format!("write {example}"));
            self.report.mistake(at, problem);
            return None;
        };
        let header = "admin_tls".to_owned();
        let section = read_table(&schema::ADMIN_TLS, table, at, header, self.report);
        let read_file = self.read_file;
        let read = |path: &Path| as_text(read_file, path);
        let read: Option<ReadFile<'_>> = if reads_files { Some(&read) } else { None };
        Some(crate::access::tls(&section, read, self.report))
    }

    /// Reads every `[[operator]]`, which has the keys of that of a process that serves.
    fn operators(
        &mut self,
        table: &DeTable<'_>,
        tls: Option<&ListenerTlsConfig>,
        token: Option<&Password>,
    ) -> Vec<OperatorConfig> {
        let Some(value) = table.get("operator") else { return Vec::new() };
        let tables = value.get_ref().as_array().map(|all| all.iter()).into_iter().flatten();
        let mut sections = Vec::new();
        for one in tables {
            let at = one.span().start;
            let Some(table) = one.get_ref().as_table() else {
                self.report.mistake(at, Problem::new("operator is no table", WRITE_OPERATOR));
                continue;
            };
            let header = schema::OPERATOR.header.to_owned();
            sections.push(read_table(&schema::OPERATOR, table, at, header, self.report));
        }
        if sections.is_empty() {
            let problem = Problem::new("operator has no tables", WRITE_OPERATOR);
            self.report.consequence(value.span().start, problem);
        }
        let read_file = self.read_file;
        let read = |path: &Path| as_text(read_file, path);
        operators::resolve(&sections, (tls, token), Some(&read), self.report)
    }

    fn log(&mut self, value: Given<'_, '_>) -> LogConfig {
        let mut log = LogConfig { format: LogFormat::Human, level: LogLevel::Info };
        let Some(value) = value else { return log };
        let example = "log = { format = \"human\", level = \"info\" }";
        let Some(table) = value.get_ref().as_table() else {
            let problem = Problem::new("log is no table", format!("write {example}"));
            self.report.mistake(value.span().start, problem);
            return log;
        };
        self.refuse_unknown(table, &["format", "level"]);
        if let Some(format) = table.get("format") {
            let words = [("human", LogFormat::Human), ("json", LogFormat::Json)];
            let read = |value: &Spanned<DeValue<'_>>| word(value, &words);
            log.format = self.value("log.format", example, format, read).unwrap_or(log.format);
        }
        if let Some(level) = table.get("level") {
            let words = [
                ("error", LogLevel::Error),
                ("warn", LogLevel::Warn),
                ("info", LogLevel::Info),
                ("debug", LogLevel::Debug),
                ("trace", LogLevel::Trace),
            ];
            let read = |value: &Spanned<DeValue<'_>>| word(value, &words);
            log.level = self.value("log.level", example, level, read).unwrap_or(log.level);
        }
        log
    }

    fn coordinator(&mut self, table: &DeTable<'_>) -> Option<(CoordinatorConfig, Duration)> {
        self.refuse_unknown(table, &COORDINATOR_KEYS);
        let kinds = [("files", 0), ("etcd", 1), ("zookeeper", 2)];
        let kind = self.needed(table, "kind", "kind = \"files\"", |value| word(value, &kinds))?;
        let lease = table.get("lease").map_or(Some(LEASE), |value| {
            self.value("lease", "lease = \"2s\"", value, |value| {
                let lease = duration(value)?;
                let (min, max) = LEASE_RANGE;
                match (min..=max).contains(&lease) {
                    true => Ok(lease),
                    false => Err("it is not from 1s to 1m".to_owned()),
                }
            })
        });
        let unused: &[&str] = match kind {
            0 => &["endpoints", "root", "user", "password_file", "ca_file"],
            _ => &["dir"],
        };
        for key in unused.iter().filter(|key| table.contains_key(**key)) {
            let at = table.get(*key).map_or(0, |value| value.span().start);
            let what = format!("{key} has no meaning for this kind of coordinator");
            self.report.consequence(at, Problem::new(what, "remove it"));
        }
        let coordinator = match kind {
            0 => {
                let example = "dir = \"/var/lib/keyway/control\"";
                let dir =
                    self.needed(table, "dir", example, |value| Ok(text(value)?.to_owned()))?;
                CoordinatorConfig::Files(self.report.in_folder(Path::new(&dir)))
            }
            1 => CoordinatorConfig::Etcd(self.engine(table)?),
            _ => CoordinatorConfig::ZooKeeper(self.engine(table)?),
        };
        Some((coordinator, lease?))
    }

    fn engine(&mut self, table: &DeTable<'_>) -> Option<EngineConfig> {
        let example = "endpoints = [\"10.0.0.1:2379\"]";
        let endpoints = self.needed(table, "endpoints", example, |value| {
            let items = value.get_ref().as_array().ok_or("it is no list")?;
            if items.is_empty() || items.len() > ENDPOINTS_MAX {
                return Err(format!("it has not 1 to {ENDPOINTS_MAX} addresses"));
            }
            items.iter().map(|item| Ok(text(item)?.to_owned())).collect::<Result<Vec<_>, String>>()
        })?;
        let mut word_of = |key: &str, example: &str| {
            let value = table.get(key)?;
            self.value(key, example, value, |value| Ok(text(value)?.to_owned()))
        };
        let root = word_of("root", "root = \"/kw\"");
        let user = word_of("user", "user = \"keyway\"");
        let ca_file = word_of("ca_file", "ca_file = \"/etc/keyway/ca.pem\"");
        let ca_file = ca_file.map(|file| self.report.in_folder(Path::new(&file)));
        let password = self.secret(table.get("password_file"), "password_file");
        let has = |key: &str| table.contains_key(key);
        if has("user") != has("password_file") {
            let hint = "a user needs both";
            let problem = Problem::new("user and password_file: one of both is missing", hint);
            self.report.consequence(0, problem);
        }
        Some(EngineConfig { endpoints, root, user: user.zip(password), ca_file })
    }

    fn bus(&mut self, table: &DeTable<'_>) -> BusConfig {
        let mut plain = table.clone();
        for (key, why) in OF_CONTROL {
            if let Some(value) = plain.remove(key) {
                let what = format!("{key} in [bus]: {why}");
                self.report.mistake(value.span().start, Problem::new(what, "remove it"));
            }
        }
        let config = bus::read(&plain, self.read_file, self.report);
        if config.settings.id == NodeId::NONE && plain.get("id").is_none() {
            let problem = Problem::new("id is missing in [bus]", "add id = \"z1.control.0.1\"");
            self.report.consequence(0, problem);
        }
        let id = config.settings.id;
        if id != NodeId::NONE && id != id.as_control() {
            let at = plain.get("id").map_or(0, |value| value.span().start);
            let what = format!("id in [bus]: {id} is not the id of a control node");
            let hint = format!("write id = \"{}\"", id.as_control());
            self.report.mistake(at, Problem::new(what, hint));
        }
        if config.settings.urls.is_empty() && plain.get("listen").is_none() {
            let hint = "add listen = [\"tcp://127.0.0.1:6390\"]: proxies come there";
            self.report.consequence(0, Problem::new("listen is missing in [bus]", hint));
        }
        let is_of_all = |url: &&Url| match url {
            Url::Tcp { host: Host::Ip(ip), .. } => ip.to_canonical().is_unspecified(),
            _ => false,
        };
        if let Some(url) = config.settings.urls.iter().find(is_of_all) {
            let at = plain.get("listen").map_or(0, |value| value.span().start);
            let what = format!(
                "listen in [bus]: other control nodes are told to connect to {url}, which is no \
                 address of this host"
            );
            let hint = "write the address at which other hosts reach this one";
            self.report.warning(at, Problem::new(what, hint));
        }
        config
    }
}

const WRITE_OPERATOR: &str = "write [[operator]] on a line of its own, and its keys below";

/// Reads a file that is text.
fn as_text(
    read_file: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    path: &Path,
) -> Result<String, String> {
    let bytes = read_file(&path.to_string_lossy())?;
    String::from_utf8(bytes).map_err(|_| "it is no text".to_owned())
}

fn word<T: Copy>(value: &Spanned<DeValue<'_>>, words: &[(&str, T)]) -> Result<T, String> {
    let written = text(value)?;
    let found = words.iter().find(|(word, _)| *word == written);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        format!("{} is not {}", quoted(written), any_of(words.iter().map(|(word, _)| *word)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "cluster = \"prod\"\nadmin = \"127.0.0.1:9390\"\n\
        [coordinator]\nkind = \"files\"\ndir = \"state\"\n\
        [bus]\nid = \"z1.control.0.1\"\nlisten = [\"tcp://127.0.0.1:6390\"]\n\
        token_files = [\"/token\"]\n";

    fn read(text: &str) -> Result<ControlNodeConfig, Vec<String>> {
        let token = |_: &str| Ok(b"a-token-that-is-long-enough\n".to_vec());
        let report = Report::new("control.toml", text).in_folder_of(Path::new("/etc/control.toml"));
        ControlNodeConfig::read_text(text, report, &token)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_file_is_read_with_its_defaults() {
        let config = read(FILE).unwrap();
        assert_eq!(config.lease, LEASE);
        assert!(matches!(config.coordinator, CoordinatorConfig::Files(dir)
            if dir == Path::new("/etc/state")));
        let etcd = FILE.replace("\"files\"", "\"etcd\"").replace(
            "dir = \"state\"",
            "endpoints = [\"127.0.0.1:2379\"]\nuser = \"u\"\npassword_file = \"p\"\nlease = \"5s\"",
        );
        let config = read(&etcd).unwrap();
        assert_eq!(config.lease, Duration::from_secs(5));
        let CoordinatorConfig::Etcd(engine) = config.coordinator else { panic!("it is etcd") };
        assert_eq!((engine.endpoints.len(), engine.user.is_some()), (1, true));
    }

    #[test]
    fn operators_have_roles_tokens_and_pools() {
        let one = |more: &str| format!("{FILE}[[operator]]\nname = \"ann\"\n{more}");
        let good = "role = \"operator\"\ntoken_file = \"ann\"\npools = [\"a\"]\n";
        // The address may be reached from other machines: each of them shows a token.
        let open = one(good).replacen("127.0.0.1:9390", "0.0.0.0:9390", 1);
        let config = read(&open).unwrap();
        let ann = &config.operators[0];
        assert!(ann.operator.may_change("a") && !ann.operator.may_change("b"));
        assert!(ann.token.is_some() && ann.certificate.is_none());
        let twice = good.to_owned() + "[[operator]]\nname = \"bob\"\n" + good;
        for (more, told) in [
            ("role = \"boss\"\ntoken_file = \"t\"\n", "boss"),
            ("role = \"viewer\"\n", "neither a token nor a certificate"),
            ("token_file = \"t\"\n", "role"),
            ("role = \"viewer\"\ntoken_file = \"t\"\npools = [\"a\"]\n", "has no pools"),
            ("role = \"viewer\"\ncertificate = \"ann.example\"\n", "asks for none"),
            (&twice, "same token"),
        ] {
            let errors = read(&one(more)).unwrap_err();
            assert!(errors.iter().any(|error| error.contains(told)), "{more}: {errors:?}");
        }
    }

    #[test]
    fn a_file_that_lacks_something_is_told_as_one_of_control() {
        let folder = keyway_testkit::TempDir::new();
        let is_one = |text: &str| ControlNodeConfig::is_one(&folder.write("f.toml", text));
        assert!(is_one(FILE));
        let (top, bus) = FILE.split_once("[coordinator]").unwrap();
        assert!(is_one(top) && is_one("audit_file = \"a\"\n"));
        assert!(is_one(&format!("[bus]{}", bus.split_once("[bus]").unwrap().1)));
        for other in ["[pool.a]\nkind = \"store\"\n", "[server]\n", "[[listener]]\n"] {
            assert!(!is_one(&format!("{top}{other}")), "{other}");
        }
        assert!(!is_one("") && !is_one("id = \"z1.relay.0.1\"\nlisten = []\n"));
    }

    #[test]
    fn the_admin_listener_is_read_without_the_files_that_are_named() {
        let folder = keyway_testkit::TempDir::new();
        let load = |text: &str| ControlNodeConfig::load_admin(&folder.write("f.toml", text));
        // Other mistakes do not matter, and the token is not there.
        let (address, tls) = load(&FILE.replacen("cluster", "clustre", 1)).unwrap();
        assert!(address.to_string() == "127.0.0.1:9390" && tls.is_none());
        let tls =
            "admin_tls = { cert_file = \"/none\", key_file = \"/none\", ca_file = \"/none\" }\n";
        let (_, tls) = load(&format!("{tls}{FILE}")).unwrap();
        assert!(tls.unwrap().loaded.is_none());
        let lacking = load(&FILE.replacen("admin", "admim", 1)).unwrap_err();
        assert!(lacking[0].to_string().contains("admin is missing"), "{lacking:?}");
    }

    #[test]
    fn an_address_that_other_nodes_cannot_dial_is_a_warning() {
        let told = |text: &str| {
            let report = Report::new("control.toml", text);
            let token = |_: &str| Ok(b"a-token-that-is-long-enough\n".to_vec());
            let config = ControlNodeConfig::read_text(text, report, &token).unwrap();
            config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told(FILE), Vec::<String>::new());
        for all in ["0.0.0.0", "[::]"] {
            let [told] = &told(&FILE.replacen("127.0.0.1:6390", &format!("{all}:6390"), 1))[..]
            else {
                panic!("{all} has no warning of its own");
            };
            assert!(told.contains(&format!("connect to tcp://{all}:6390, which is no")), "{told}");
        }
    }

    #[test]
    fn every_mistake_is_told() {
        for (from, to, told) in [
            ("cluster = \"prod\"\n", "", "cluster is missing"),
            ("cluster = \"prod\"", "clustre = \"prod\"", "did you mean cluster?"),
            ("127.0.0.1:9390", "0.0.0.0:9390", "can be reached from other machines"),
            ("\"files\"", "\"consul\"", "is not \"files\", \"etcd\" or \"zookeeper\""),
            ("\"files\"", "\"etcd\"", "endpoints is missing"),
            ("dir = \"state\"", "dir = \"state\"\nlease = \"1ms\"", "lease"),
            ("id = \"z1.control.0.1\"\n", "", "id is missing in [bus]"),
            ("token_files = [\"/token\"]", "", "there is no token"),
            ("[bus]\n", "[bus]\npublish = true\n", "publish in [bus]"),
            ("z1.control.0.1", "z1.proxy.0.1", "write id = \"z1.control.0.1\""),
        ] {
            let errors = read(&FILE.replacen(from, to, 1)).unwrap_err();
            assert!(errors.iter().any(|error| error.contains(told)), "{to}: {errors:?}");
        }
    }
}
