//! The file of `keyway bus node`, which configures a node of the bus. All mistakes in it are
//! reported at once.

mod tls;

pub use tls::BusTls;

use crate::error::{ConfigError, Problem, Report, any_of, nearest, quoted};
use crate::load::read_configuration;
use crate::syntax;
use crate::value::{parse_duration, parse_size};
use keyway_bus::{Labels, NodeId, Settings, Upstream, Url};
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Every key of the file, an example, and its meaning. docs/bus.md has the keys as a table.
const KEYS: [(&str, &str, &str); 22] = [
    ("id", "\"z1.proxy.7.3\"", "who it is; without one it is a guest, and given an id"),
    (
        "listen",
        "[\"tcp://0.0.0.0:6390\", \"shm:///run/keyway/bus\"]",
        "where others can dial it, at most four",
    ),
    ("labels", "{ rack = \"b2\" }", "what it says of itself"),
    (
        "token_files",
        "[\"/etc/keyway/bus.token\"]",
        "files with a secret each, 16 to 1024 bytes; the first line counts",
    ),
    ("open", "true", "let anybody in, without a token"),
    (
        "tls",
        "{ ca_file = \"/etc/keyway/ca.pem\", cert_file = \"/etc/keyway/z1.proxy.7.3.pem\", key_file = \"/etc/keyway/z1.proxy.7.3.key\" }",
        "certificates for all connections by TCP: see below",
    ),
    (
        "accept",
        "[\"z1.proxy\", \"z1.guest\"]",
        "ids that are let in, those of guests among them; all without it",
    ),
    ("upstream", "[[upstream]] with urls and id", "the primary upstream, then its standby"),
    (
        "share_with",
        "[1001]",
        "users whose processes memory is shared with, beside its own and root",
    ),
    ("ttl", "16", "nodes a message may pass, 1 to 16"),
    ("heartbeat", "\"1s\"", "between two pings"),
    (
        "heartbeat_idle",
        "\"30s\"",
        "the same where nothing else was said for ten seconds; ten times that within a host",
    ),
    ("handshake", "\"5s\"", "for a registration, up to a minute"),
    ("parts_idle", "\"30s\"", "how long a message in parts may stand still"),
    ("message_len_max", "\"64MiB\"", "longest message"),
    ("queue_len_max", "\"80MiB\"", "most that waits for one peer on a channel"),
    ("queues_len_max", "\"512MiB\"", "most that waits for all peers together"),
    ("inbox_len_max", "\"64MiB\"", "most that its user has not taken"),
    ("peers_max", "1024", "connections at most"),
    ("compress", "true", "whether bodies from 1 KiB on are compressed"),
    ("publish", "true", "whether `keyway bus publish` may publish topics through this node"),
    (
        "admin",
        "\"127.0.0.1:9691\"",
        "where metrics and health are served over HTTP; nowhere without it",
    ),
];

/// The configuration of a node of the bus.
#[derive(Clone, Debug)]
pub struct BusConfig {
    /// Settings for the node. The process fills in its place and incarnation.
    pub settings: Settings,
    /// Users with whose processes memory is shared.
    pub share_with: Vec<u32>,
    /// The TLS of connections by TCP.
    pub tls: Option<BusTls>,
    /// True if guests may publish through this node.
    pub takes_publications: bool,
    /// The address at which metrics are served.
    pub admin: Option<SocketAddr>,
    /// Warnings about the files, which can be used all the same.
    pub warnings: Vec<ConfigError>,
}

impl BusConfig {
    /// Reads the file and the token files it names.
    ///
    /// # Errors
    /// Returns everything wrong with the files, in line order, or that the file cannot be read.
    pub fn load(path: &Path) -> Result<BusConfig, Vec<ConfigError>> {
        let text = read_configuration(path, "TOML")?;
        let shown = path.display().to_string();
        let trimmed = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let report = Report::new(&shown, trimmed).in_folder_of(path);
        Self::read_text(trimmed, report, &read_file)
    }

    /// Returns whether a file configures a node of the bus: it has a key that only such files have.
    pub fn is_one(path: &Path) -> bool {
        let text = read_configuration(path, "TOML").unwrap_or_default();
        let (document, _) = DeTable::parse_recoverable(&text);
        let table = document.get_ref();
        ["upstream", "token_files", "open", "accept", "id", "listen"]
            .iter()
            .any(|key| table.contains_key(*key))
            && !["listener", "pool", "listeners", "pools"]
                .iter()
                .any(|key| table.contains_key(*key))
    }

    /// Reads `text`, which came from the file called `path`. `read_file` returns the content of a
    /// file that the text names, or the reason why it cannot be read.
    ///
    /// # Errors
    /// Returns everything wrong with it, in line order.
    pub fn from_str(
        text: &str,
        path: &str,
        read_file: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<BusConfig, Vec<ConfigError>> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self::read_text(text, Report::new(path, text), read_file)
    }

    fn read_text(
        text: &str,
        mut report: Report<'_>,
        read_file: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<BusConfig, Vec<ConfigError>> {
        let (document, errors) = DeTable::parse_recoverable(text);
        syntax::report_all(text, &errors, &mut report);
        let mut config = read(document.get_ref(), read_file, &mut report);
        config.warnings = report.finish()?;
        Ok(config)
    }
}

/// Longest content of a file that is named, in bytes; far above any in use.
const FILE_LEN_MAX: u64 = 4 << 20;

pub(crate) fn read_file(path: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_LEN_MAX).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot be read: {error}"))?;
    Ok(bytes)
}

/// Returns the secret in a file: its first line.
///
/// # Errors
/// Returns the reason why it cannot be read.
pub fn read_token(path: &str) -> Result<Vec<u8>, String> {
    read_file(path).map(|text| first_line(&text))
}

pub(crate) fn first_line(text: &[u8]) -> Vec<u8> {
    text.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default().to_vec()
}

pub(crate) fn unknown(name: &str, known: &[&str]) -> Problem {
    let hint = match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("the keys are {}", any_of(known.iter().copied())),
    };
    Problem::new(format!("unknown key {}", quoted(name)), hint)
}

pub(crate) fn read(
    table: &DeTable<'_>,
    read_file: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    report: &mut Report<'_>,
) -> BusConfig {
    let mut config = BusConfig {
        settings: Settings::of(NodeId::NONE),
        share_with: Vec::new(),
        tls: None,
        takes_publications: false,
        admin: None,
        warnings: Vec::new(),
    };
    let names: Vec<&str> = KEYS.iter().map(|(name, ..)| *name).collect();
    let (mut is_open, mut is_whole) = (false, true);
    for (name, value) in table {
        let at = value.span().start;
        let Some((key, example, _)) = KEYS.iter().find(|(known, ..)| known == name.get_ref())
        else {
            report.mistake(name.span().start, unknown(name.get_ref(), &names));
            is_whole = false;
            continue;
        };
        let outcome = match *key {
            "open" => as_bool(value).map(|open| is_open = open),
            "upstream" => read_upstreams(value, &mut config.settings, report),
            "token_files" => read_tokens(value, &mut config.settings, read_file, report),
            "tls" => tls::read(value, read_file, report).map(|tls| config.tls = tls),
            "listen" => list(value, report).and_then(|urls| {
                config.settings.urls = urls;
                none_twice(&config.settings.urls)
            }),
            "accept" => list(value, report).map(|ranges| config.settings.accept = ranges),
            _ => read_key(key, value, &mut config),
        };
        if let Err(what) = outcome {
            is_whole = false;
            report.mistake(
                at,
                Problem::new(format!("{key}: {what}"), format!("write it as {key} = {example}")),
            );
        }
    }
    match (table.contains_key("token_files"), is_open) {
        (false, false) if table.contains_key("tls") => tls::check_reach(table, &config, report),
        (false, false) => {
            let hint = "add token_files or tls, or open = true if anybody may come in";
            report.consequence(0, Problem::new("there is no token", hint));
        }
        (_, true) if table.contains_key("tls") => {
            let hint = "a bus asks for certificates or is open: leave one of the two out";
            report.consequence(0, Problem::new("tls and open = true", hint));
        }
        (true, true) => {
            let hint = "a bus has tokens or is open: leave one of the two out";
            report.consequence(0, Problem::new("token_files and open = true", hint));
        }
        _ => {}
    }
    if is_whole {
        tls::check_name(table, &config, report);
    }
    // A setting that is missing because it is wrong is not reported twice.
    for fault in config.settings.faults().into_iter().filter(|_| is_whole) {
        report.consequence(0, Problem::new(fault, "see docs/bus.md"));
    }
    config
}

fn read_key(key: &str, value: &Spanned<DeValue<'_>>, config: &mut BusConfig) -> Result<(), String> {
    let settings = &mut config.settings;
    match key {
        "id" => settings.id = parsed(value)?,
        "labels" => settings.labels = labels(value)?,
        "share_with" => {
            let items = value.get_ref().as_array().ok_or("it is no list")?;
            let user = |item| number(item, 0, u64::from(u32::MAX)).map(|user| user as u32);
            config.share_with = items.iter().map(user).collect::<Result<_, _>>()?;
        }
        "ttl" => settings.ttl = number(value, 1, 16)? as u8,
        "peers_max" => settings.peers_max = number(value, 1, 65_536)? as usize,
        "heartbeat" => settings.heartbeat = duration(value)?,
        "handshake" => settings.handshake = duration(value)?,
        "parts_idle" => settings.parts_idle = duration(value)?,
        "heartbeat_idle" => settings.rest.heartbeat = duration(value)?,
        "publish" => config.takes_publications = as_bool(value)?,
        "admin" => config.admin = Some(parsed(value)?),
        "message_len_max" => settings.message_len_max = size(value, 1 << 10, 64 << 20)?,
        "queue_len_max" => settings.queue_len_max = size(value, 1 << 16, 1 << 30)?,
        "queues_len_max" => settings.queues_len_max = size(value, 1 << 20, 1 << 40)?,
        "inbox_len_max" => settings.inbox_len_max = size(value, 1 << 16, 1 << 30)?,
        "compress" => settings.compress = as_bool(value)?,
        _ => return Err("it cannot be set".to_owned()),
    }
    Ok(())
}

fn as_bool(value: &Spanned<DeValue<'_>>) -> Result<bool, String> {
    value.get_ref().as_bool().ok_or_else(|| "it is neither true nor false".to_owned())
}

pub(crate) fn text<'v>(value: &'v Spanned<DeValue<'_>>) -> Result<&'v str, String> {
    value.get_ref().as_str().ok_or_else(|| "it is no text in double quotes".to_owned())
}

pub(crate) fn parsed<T: FromStr<Err: ToString>>(value: &Spanned<DeValue<'_>>) -> Result<T, String> {
    text(value)?.parse().map_err(|fault: T::Err| fault.to_string())
}

/// Reads a list. Returns the elements that can be read, and reports the others, each with its line.
fn list<T: FromStr<Err: ToString>>(
    value: &Spanned<DeValue<'_>>,
    report: &mut Report<'_>,
) -> Result<Vec<T>, String> {
    let mut all = Vec::new();
    for item in value.get_ref().as_array().ok_or("it is no list")? {
        match parsed(item) {
            Ok(one) => all.push(one),
            Err(what) => {
                report.mistake(item.span().start, Problem::new(what, "see docs/bus.md"));
            }
        }
    }
    Ok(all)
}

/// Refuses a URL that is listed twice. Port 0, for which the system chooses a port, may be
/// repeated.
fn none_twice(urls: &[Url]) -> Result<(), String> {
    let is_twice = |(at, url): &(usize, &Url)| {
        !matches!(url, Url::Tcp { port: 0, .. }) && urls[..*at].contains(url)
    };
    match urls.iter().enumerate().find(is_twice) {
        Some((_, url)) => Err(format!("{url} stands there twice")),
        None => Ok(()),
    }
}

fn labels(value: &Spanned<DeValue<'_>>) -> Result<Labels, String> {
    let table = value.get_ref().as_table().ok_or("it is no table")?;
    let mut labels = Labels::default();
    for (name, value) in table {
        labels.set(name.get_ref(), text(value)?).map_err(|fault| fault.to_string())?;
    }
    Ok(labels)
}

fn number(value: &Spanned<DeValue<'_>>, min: u64, max: u64) -> Result<u64, String> {
    let written = value.get_ref().as_integer();
    let number = written.and_then(|it| u64::from_str_radix(it.as_str(), it.radix()).ok());
    number
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("it is no number from {min} to {max}"))
}

pub(crate) fn duration(value: &Spanned<DeValue<'_>>) -> Result<Duration, String> {
    let range = (Duration::from_millis(10), Duration::from_secs(600));
    let duration = parse_duration(text(value)?, range).map_err(|problem| problem.what)?;
    let fits = duration >= range.0 && duration <= range.1;
    if fits { Ok(duration) } else { Err("it is not from 10ms to 10m".to_owned()) }
}

fn size(value: &Spanned<DeValue<'_>>, min: u64, max: u64) -> Result<usize, String> {
    let size = parse_size(text(value)?, (min, max)).map_err(|problem| problem.what)?;
    let fits = (min..=max).contains(&size);
    if fits { Ok(size as usize) } else { Err(format!("it is not from {min} to {max} bytes")) }
}

fn read_tokens(
    value: &Spanned<DeValue<'_>>,
    settings: &mut Settings,
    read_file: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    report: &mut Report<'_>,
) -> Result<(), String> {
    let items = value.get_ref().as_array().ok_or("it is no list")?;
    if items.is_empty() {
        return Err("it names no file; open = true lets anybody in".to_owned());
    }
    for item in items {
        let path = text(item)?;
        let found = report.in_folder(Path::new(path));
        let added = read_file(&found.to_string_lossy())
            .map(|text| first_line(&text))
            .and_then(|token| settings.tokens.add(&token).map_err(|fault| fault.to_string()));
        if let Err(what) = added {
            let hint = "make it with: head -c 24 /dev/urandom | base64 > FILE";
            report.mistake(
                item.span().start,
                Problem::new(format!("token file {}: {what}", quoted(path)), hint),
            );
        }
    }
    Ok(())
}

fn read_upstreams(
    value: &Spanned<DeValue<'_>>,
    settings: &mut Settings,
    report: &mut Report<'_>,
) -> Result<(), String> {
    for item in value.get_ref().as_array().ok_or("it is no list of tables")? {
        let table = item.get_ref().as_table().ok_or("it is no list of tables")?;
        let mut upstream = Upstream { id: NodeId::NONE, urls: Vec::new() };
        for (name, value) in table {
            let outcome = match name.get_ref().as_ref() {
                "id" => parsed(value).map(|id| upstream.id = id),
                "urls" => list::<Url>(value, report).map(|urls| upstream.urls = urls),
                other => {
                    report.mistake(name.span().start, unknown(other, &["id", "urls"]));
                    Ok(())
                }
            };
            if let Err(what) = outcome {
                let what = format!("upstream: {}: {what}", name.get_ref());
                report.mistake(value.span().start, Problem::new(what, "see docs/bus.md"));
            }
        }
        let has_urls = |urls: &Spanned<DeValue<'_>>| {
            urls.get_ref().as_array().is_none_or(|urls| !urls.is_empty())
        };
        if !table.get("urls").is_some_and(has_urls) {
            let hint = "write urls = [\"tcp://host:port\"] below [[upstream]]";
            report.mistake(item.span().start, Problem::new("an upstream has no urls", hint));
        }
        settings.upstreams.push(upstream);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BusConfig, Vec<String>> {
        let token = |path: &str| match path {
            "/token" => Ok(b"a token that is long enough".to_vec()),
            _ => Ok(b"short".to_vec()),
        };
        BusConfig::from_str(text, "bus.toml", &token)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn an_address_to_listen_at_stands_there_once() {
        let head = "id = \"z1.proxy.7.3\"\nopen = true\n";
        let file = |urls: &str| read(&format!("{head}listen = [{urls}]"));
        let told =
            file(r#""tcp://[::1]:0", "unix:///run/bus", "tcp://[::1]:0", "unix:///run/bus""#);
        let told = told.unwrap_err().join("\n");
        assert!(told.contains("listen: unix:///run/bus stands there twice"), "{told}");
        assert_eq!(file(r#""tcp://[::1]:0", "tcp://[::1]:0""#).unwrap().settings.urls.len(), 2);
    }

    #[test]
    fn a_whole_file_is_read() {
        let config = read(
            r#"
id = "z1.proxy.7.3"
listen = ["tcp://127.0.0.1:6390", "shm:///run/bus"]
labels = { rack = "b2" }
token_files = ["/token"]
accept = ["z1.proxy", "z1.cache"]
share_with = [1001]
ttl = 8
heartbeat = "500ms"
handshake = "2s"
parts_idle = "10s"
queues_len_max = "4MiB"
message_len_max = "1MiB"
queue_len_max = "2MiB"
inbox_len_max = "2MiB"
peers_max = 10
compress = false

[[upstream]]
id = "z1.control.0.1"
urls = ["tcp://10.0.0.1:6390"]

[[upstream]]
urls = ["ipv6://::1:6390"]
"#,
        )
        .unwrap();
        let settings = config.settings;
        assert_eq!((settings.id.to_string(), settings.ttl), ("z1.proxy.7.3".to_owned(), 8));
        assert_eq!(
            (settings.urls.len(), settings.upstreams.len(), settings.accept.len()),
            (2, 2, 2)
        );
        assert_eq!((settings.message_len_max, settings.compress), (1 << 20, false));
        assert_eq!(
            (settings.heartbeat, config.share_with),
            (Duration::from_millis(500), vec![1001])
        );
        let times = (settings.handshake, settings.parts_idle);
        assert_eq!(times, (Duration::from_secs(2), Duration::from_secs(10)));
        assert_eq!(settings.queues_len_max, 4 << 20);
        assert!(!settings.tokens.is_empty());
    }

    #[test]
    fn every_mistake_is_told_with_its_line_and_what_to_write() {
        let errors = read(
            "id = \"z1.proxi.7.3\"\nlisten = [\"http://a:1\"]\nhartbeat = \"1s\"\nttl = 17\ntoken_files = [\"/short\"]\n",
        )
        .unwrap_err();
        let starts: Vec<&str> = errors.iter().map(|error| &error[..10]).collect();
        assert_eq!(starts, ["bus.toml:1", "bus.toml:2", "bus.toml:3", "bus.toml:4", "bus.toml:5"]);
        assert!(
            errors[1].contains("tcp://host:port") && errors[2].contains("did you mean heartbeat?")
        );
    }

    #[test]
    fn a_bus_without_a_token_must_be_meant() {
        let errors = read("id = \"z1.proxy.7.3\"\n").unwrap_err();
        assert!(errors[0].contains("there is no token"), "{errors:?}");
        assert!(read("id = \"z1.proxy.7.3\"\nopen = true\n").is_ok());
        let errors = read("id = \"z1.proxy.7.3\"\ntoken_files = []\n").unwrap_err();
        assert!(errors[0].contains("it names no file"), "{errors:?}");
        let both = "id = \"z1.proxy.7.3\"\nopen = true\ntoken_files = [\"/token\"]\n";
        let errors = read(both).unwrap_err();
        assert!(errors[0].contains("token_files and open = true"), "{errors:?}");
    }

    #[test]
    fn every_mistake_of_a_list_and_of_an_upstream_is_told_where_it_stands() {
        let errors = read(
            "id = \"z1.proxy.7.3\"\nopen = true\nlisten = [\n  \"http://a:1\",\n  \"tcp://b\",\n]\n\
             admin = \"here\"\n[[upstream]]\nid = \"z1.x.0.1\"\nurls = [\"tcp://c:70000\"]\n\
             [[upstream]]\nurl = \"tcp://d:1\"\n",
        )
        .unwrap_err();
        let lines: Vec<&str> =
            errors.iter().map(|error| error.split(':').nth(1).unwrap()).collect();
        assert_eq!(lines, ["4", "5", "7", "9", "10", "11", "12"], "{errors:#?}");
    }

    #[test]
    fn certificates_go_without_tokens_where_all_is_tcp() {
        let authority = keyway_testkit::certificates::Authority::new("ours");
        let issued = authority.issue(&["z1.proxy.7.3.bus.keyway"]);
        let read = |text: &str| {
            let file = |path: &str| match path {
                "/ca" => Ok(authority.certificate.clone().into_bytes()),
                "/cert" => Ok(issued.certificate.clone().into_bytes()),
                "/key" => Ok(issued.key.clone().into_bytes()),
                "/token" => Ok(b"a token that is long enough".to_vec()),
                _ => Err("is not there".to_owned()),
            };
            BusConfig::from_str(text, "bus.toml", &file)
                .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let tls = "[tls]\nca_file = \"/ca\"\ncert_file = \"/cert\"\nkey_file = \"/key\"\n";
        let head = "id = \"z1.proxy.7.3\"\nlisten = [\"tcp://[::1]:1\"]\n";
        assert!(read(&format!("{head}{tls}")).unwrap().tls.is_some());
        let unix = "id = \"z1.proxy.7.3\"\nlisten = [\"unix:///run/bus\"]\n";
        let errors = read(&format!("{unix}{tls}")).unwrap_err();
        assert!(errors[0].contains("bus.toml:2") && errors[0].contains("no TLS"), "{errors:?}");
        assert!(read(&format!("token_files = [\"/token\"]\n{unix}{tls}")).is_ok());
        let errors = read(&format!("open = true\n{head}{tls}")).unwrap_err();
        assert!(errors[0].contains("tls and open = true"), "{errors:?}");
        let missing = tls.replace("\"/key\"", "\"/none\"").replace("/cert\"", "/ca\"");
        let errors = read(&format!("{head}{missing}")).unwrap_err();
        assert!(errors[0].starts_with("bus.toml:6") && errors[0].contains("/none"), "{errors:?}");
        let errors = read(&format!("{head}[tls]\nca_fil = \"/ca\"\n")).unwrap_err();
        assert!(errors.iter().any(|error| error.contains("did you mean ca_file?")), "{errors:?}");
        assert!(errors.iter().any(|error| error.contains("cert_file")), "{errors:?}");
        // A certificate made out to another node is not a mistake that the file shows, but it is
        // reported.
        let other = "id = \"z1.proxy.7.4\"\nlisten = [\"tcp://[::1]:1\"]\n";
        let errors = read(&format!("{other}{tls}")).unwrap_err();
        assert!(errors[0].contains("z1.proxy.7.4.bus.keyway"), "{errors:?}");
    }

    #[test]
    fn a_number_has_the_base_it_is_written_in() {
        let ttl = |written: &str| {
            read(&format!("id = \"z1.proxy.7.3\"\nopen = true\nttl = {written}\n"))
                .map(|config| config.settings.ttl)
        };
        assert_eq!((ttl("0x10"), ttl("0b11"), ttl("0o7"), ttl("8")), (Ok(16), Ok(3), Ok(7), Ok(8)));
        assert!(ttl("0x11").is_err() && ttl("-1").is_err() && ttl("17").is_err());
    }

    #[test]
    fn every_key_stands_in_the_page_of_the_bus() {
        let page = include_str!("../../../docs/bus.md");
        for (name, example, meaning) in KEYS {
            let row = format!("| `{name}` | `{example}` | {meaning} |");
            assert!(page.contains(&row), "docs/bus.md lacks: {row}");
        }
    }
}
