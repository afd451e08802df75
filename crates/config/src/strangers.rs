//! Files that are not Keyway's: another proxy's, or not TOML at all. One error is then more helpful
//! than an error for each line.

use crate::error::ConfigError;
use toml::de::{DeTable, DeValue};

/// The tables of Keyway's own files.
const OURS: [&str; 6] = ["server", "limits", "listener", "pool", "user", "operator"];

/// The beginnings of lines in Keyway's own files, also where the rest of the file is spoilt.
const OUR_HEADERS: [&str; 8] =
    ["[[listener", "[listener", "[pool.", "[[pool.", "[[user", "[server", "[limits", "[pool "];

/// Words that begin lines in files of predixy alone: blocks, and keys with a number behind them.
const PREDIXY_BLOCKS: [&str; 3] =
    ["clusterserverpool", "standaloneserverpool", "sentinelserverpool"];
const PREDIXY_NUMBERS: [&str; 2] = ["workerthreads", "clienttimeout"];

/// Indented keys of the pools in twemproxy's files.
const TWEMPROXY: [&str; 6] =
    ["listen", "servers", "distribution", "auto_eject_hosts", "redis", "server_retry_timeout"];

/// Words that begin lines in the files of redis-server.
const REDIS: [&str; 18] = [
    "bind",
    "port",
    "protected-mode",
    "daemonize",
    "dbfilename",
    "dir",
    "appendonly",
    "appendfsync",
    "maxmemory",
    "maxmemory-policy",
    "maxclients",
    "requirepass",
    "masterauth",
    "replicaof",
    "save",
    "tcp-backlog",
    "tcp-keepalive",
    "cluster-enabled",
];

/// Another program whose file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stranger {
    Overlord,
    Predixy,
    Twemproxy,
    Mcrouter,
    Redis,
}

impl Stranger {
    /// Returns the program whose file the text looks like.
    fn of(text: &str) -> Option<Stranger> {
        let (document, syntax) = DeTable::parse_recoverable(text);
        match syntax.is_empty() {
            true if is_overlord(document.get_ref()) => Some(Stranger::Overlord),
            true => None,
            false if is_predixy(text) => Some(Stranger::Predixy),
            false if is_twemproxy(text) => Some(Stranger::Twemproxy),
            false if is_mcrouter(text) => Some(Stranger::Mcrouter),
            false if is_redis(text) => Some(Stranger::Redis),
            false => None,
        }
    }

    /// Returns its name for `keyway import`; `None` if there is no importer.
    fn kind(self) -> Option<&'static str> {
        match self {
            Stranger::Overlord => Some("overlord"),
            Stranger::Predixy => Some("predixy"),
            Stranger::Twemproxy => Some("twemproxy"),
            Stranger::Mcrouter | Stranger::Redis => None,
        }
    }

    fn whose(self) -> &'static str {
        match self {
            Stranger::Overlord => "overlord's",
            Stranger::Predixy => "predixy's",
            Stranger::Twemproxy => "twemproxy's, in YAML",
            Stranger::Mcrouter => "mcrouter's, in JSON",
            Stranger::Redis => "that of a redis-server (redis.conf)",
        }
    }

    /// Returns the advice for a user who has such a file.
    fn hint(self, path: &str) -> String {
        match (self, self.kind()) {
            (_, Some(kind)) => {
                format!("`keyway import {kind} {path} > keyway.toml` makes one of it")
            }
            (Stranger::Redis, _) => {
                "write a file of Keyway's own, with that server in `servers` of a \
                                     [pool.NAME]: docs/config.md"
                    .to_owned()
            }
            _ => {
                "docs/routes.md tells what its pools and routes are here (From mcrouter)".to_owned()
            }
        }
    }
}

/// Returns the only error of a file that is another program's.
fn once(path: &str, line: usize, what: String, hint: String) -> Vec<ConfigError> {
    vec![ConfigError { path: path.to_owned(), line, column: 1, what, hint }]
}

/// Replaces the errors by a single one if the file is another program's or not TOML.
pub(crate) fn explain(text: &str, path: &str, errors: Vec<ConfigError>) -> Vec<ConfigError> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let is_ours = |key: &str| OURS.contains(&key);
    if document.get_ref().keys().any(|key| is_ours(key.get_ref())) || has_our_header(text) {
        return if is_page(text, syntax.len()) { no_toml(path, &errors) } else { errors };
    }
    if let Some(stranger) = Stranger::of(text) {
        let what =
            format!("this is no configuration of Keyway; it looks like {}", stranger.whose());
        return once(path, 1, what, stranger.hint(path));
    }
    if !syntax.is_empty() && errors.len() > 1 { no_toml(path, &errors) } else { errors }
}

/// Fewest lines that are not TOML for which a file counts as something else than a file of Keyway
/// with mistakes.
const PAGE_ERRORS_MIN: usize = 10;

/// Returns whether a text with so many mistakes is a page of documentation: it has lines of
/// Keyway's files, and many others.
fn is_page(text: &str, mistakes: usize) -> bool {
    let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
    mistakes >= PAGE_ERRORS_MIN && mistakes > lines / 3
}

fn no_toml(path: &str, errors: &[ConfigError]) -> Vec<ConfigError> {
    let Some(first) = errors.first() else { return Vec::new() };
    let hint = "write KEY = VALUE lines below [[listener]] and [pool.NAME], as in docs/config.md";
    once(path, first.line, format!("this is no TOML: {}", first.what), hint.to_owned())
}

/// Replaces the errors of an import by a single one if the file is not of the `kind` that was named.
pub(crate) fn explain_import(
    text: &str,
    (path, kind): (&str, &str),
    errors: Vec<ConfigError>,
) -> Vec<ConfigError> {
    if has_our_header(text) {
        let (_, syntax) = DeTable::parse_recoverable(text);
        if is_page(text, syntax.len()) {
            let what = format!("this is no file of {kind}; it looks like a page of documentation");
            return once(path, 1, what, format!("name the file that {kind} is started with"));
        }
        let what = format!("this is no file of {kind}; it looks like a configuration of Keyway");
        return once(path, 1, what, format!("`keyway check {path}` tells what it means"));
    }
    match Stranger::of(text) {
        Some(stranger) if stranger.kind() != Some(kind) => {
            let what = format!("this is no file of {kind}; it looks like {}", stranger.whose());
            once(path, 1, what, stranger.hint(path))
        }
        _ => errors,
    }
}

/// Returns whether the text has a line that only Keyway's files have.
fn has_our_header(text: &str) -> bool {
    let begins = |line: &str| OUR_HEADERS.iter().any(|header| line.starts_with(header));
    text.lines().any(|line| begins(line.trim_start()))
}

fn is_overlord(document: &DeTable<'_>) -> bool {
    let Some(DeValue::Array(clusters)) = document.get("clusters").map(|value| value.get_ref())
    else {
        return false;
    };
    clusters.iter().filter_map(|cluster| cluster.get_ref().as_table()).any(|cluster| {
        ["listen_addr", "cache_type", "hash_distribution"]
            .iter()
            .any(|key| cluster.contains_key(*key))
    })
}

/// Returns the first word of each line that is not empty or a comment, and whether the line is
/// indented.
fn first_words(text: &str) -> impl Iterator<Item = (bool, &str)> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.filter_map(|line| {
        let is_indented = line.starts_with([' ', '\t']);
        Some((is_indented, line.split_whitespace().next()?))
    })
}

fn is_predixy(text: &str) -> bool {
    text.lines().filter(|line| !line.starts_with([' ', '\t'])).any(|line| {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default().to_ascii_lowercase();
        let next = words.next().unwrap_or("{");
        let is_block = PREDIXY_BLOCKS.contains(&first.trim_end_matches('{')) && next == "{";
        is_block || (PREDIXY_NUMBERS.contains(&first.as_str()) && next.parse::<u64>().is_ok())
    })
}

/// Returns whether the text has at least two of Redis's own words with values behind them.
fn is_redis(text: &str) -> bool {
    let is_known = |line: &&str| {
        let mut words = line.split_whitespace();
        let first = words.next().is_some_and(|first| REDIS.contains(&first));
        first && words.next().is_some_and(|value| !value.starts_with(['=', ':']))
    };
    text.lines().filter(is_known).count() > 1
}

/// Returns whether the text is JSON, perhaps after comments, with the members that every file of
/// mcrouter has.
fn is_mcrouter(text: &str) -> bool {
    let has = |name: &str| text.contains(&format!("\"{name}\""));
    let mut lines = text.lines().map(str::trim_start);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with(['/', '*']));
    let is_json = first.is_some_and(|line| line.starts_with('{'));
    is_json && (has("route") || has("routes") || (has("pools") && has("servers")))
}

fn is_twemproxy(text: &str) -> bool {
    let known = |word: &str| word.strip_suffix(':').is_some_and(|key| TWEMPROXY.contains(&key));
    first_words(text).filter(|(is_indented, word)| *is_indented && known(word)).count() > 1
}

#[cfg(test)]
mod tests {
    use crate::model::Config;

    #[test]
    fn an_import_tells_a_page_from_a_configuration() {
        let example = "[[listener]]\nbind = \"127.0.0.1:1\"\n";
        let page = format!("{}{example}", "some words of a page\n".repeat(20));
        for (text, wanted) in
            [(example, "a configuration of Keyway"), (&page, "a page of documentation")]
        {
            let told = super::explain_import(text, ("file", "predixy"), Vec::new());
            assert!(told[0].to_string().contains(wanted), "{told:?}");
        }
    }

    fn told(text: &str) -> Vec<String> {
        let errors = Config::from_str(text, "file").expect_err("it is no file of ours");
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_of_another_proxy_is_told_as_that_once() {
        let twemproxy =
            "alpha:\n  listen: 127.0.0.1:22121\n  redis: true\n  servers:\n   - 127.0.0.1:7001:1\n";
        let predixy = "Name a\nBind 127.0.0.1:7617\nClusterServerPool {\n    Servers {\n        + 127.0.0.1:7001\n    }\n}\n";
        let overlord = "[[clusters]]\nname = \"a\"\ncache_type = \"redis\"\nlisten_addr = \"127.0.0.1:7000\"\n";
        for (text, name) in [(twemproxy, "twemproxy"), (predixy, "predixy"), (overlord, "overlord")]
        {
            let told = told(text);
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].starts_with("file:1: this is no configuration of Keyway"), "{told:?}");
            assert!(told[0].contains(&format!("`keyway import {name} file > ")), "{told:?}");
        }
    }

    #[test]
    fn what_is_no_toml_is_told_once_and_a_file_of_ours_line_by_line() {
        let mcrouter = told(
            "{\n  \"pools\": {\"A\": {\"servers\": [\"127.0.0.1:1\"]}},\n  \"route\": \"PoolRoute|A\"\n}\n",
        );
        assert_eq!(mcrouter.len(), 1, "{mcrouter:?}");
        assert!(mcrouter[0].contains("mcrouter's, in JSON; docs/routes.md"), "{mcrouter:?}");
        let redis = told("# mine\nbind 127.0.0.1\nport 6379\n");
        assert_eq!(redis.len(), 1, "{redis:?}");
        assert!(redis[0].contains("redis.conf") && !redis[0].contains("import"), "{redis:?}");
        let json = told("{\n  \"listener\": [1],\n  \"pool\": {}\n}\n");
        assert_eq!(json.len(), 1, "{json:?}");
        assert!(json[0].starts_with("file:1: this is no TOML: "), "{json:?}");
        let prose = told("once upon a time\nthere was a cache\nand it was full\n");
        assert_eq!(prose.len(), 1, "{prose:?}");
        let ours = told("[[listener]]\nbind: \"x\"\npool = \n[pool.default]\nkind = store\n");
        assert!(ours.iter().all(|line| line.starts_with("file:")), "{ours:?}");
        assert!(!ours[0].contains("this is no TOML"), "{ours:?}");
    }

    #[test]
    fn a_spoilt_file_of_ours_or_a_page_is_not_predixys() {
        let ours = "[[listener]]\nbind = \"tcp://127.0.0.1:0\"\npool = \"s\"\n[pool.s]\nkind = \"store\"\n";
        for first in
            ["Keyway configuration", "include other.toml", "; comment", "<<<<<<< HEAD", "bind x"]
        {
            let told = told(&format!("{first}\n{ours}"));
            assert!(told.iter().all(|line| !line.contains("predixy")), "{told:?}");
            assert!(told[0].starts_with("file:1: ") && !told[0].contains("no TOML"), "{told:?}");
        }
        let open = told("bind 1\n[[listener\nbind = \"x\"\n");
        assert!(open.iter().all(|line| !line.contains("looks like")), "{open:?}");
        let readme = include_str!("../../../README.md");
        let once = told(readme);
        assert!(once.len() == 1 && once[0].contains("this is no TOML"), "{once:?}");
        let page = "# Keyway\n\ninclude what you use\nAuthority is given\nbind it\n";
        let told = told(page);
        assert!(told.iter().all(|line| !line.contains("looks like")), "{told:?}");
    }

    #[test]
    fn an_import_of_another_kind_names_the_kind_and_the_command() {
        use crate::import;
        let twemproxy =
            "alpha:\n  listen: 127.0.0.1:22121\n  redis: true\n  servers:\n   - 127.0.0.1:7001:1\n";
        let predixy = "Name a\nBind 127.0.0.1:7617\nClusterServerPool {\n    Servers {\n        + 127.0.0.1:7001\n    }\n}\n";
        let overlord = "[[clusters]]\nname = \"a\"\ncache_type = \"redis\"\nlisten_addr = \"127.0.0.1:7000\"\n";
        let files = [("twemproxy", twemproxy), ("predixy", predixy), ("overlord", overlord)];
        let run = |kind: &str, text: &str| {
            let none = |_: &std::path::Path| Err("cannot be read".to_owned());
            let imported = match kind {
                "twemproxy" => import::twemproxy(text, "file"),
                "predixy" => import::predixy(text, "file", &none),
                _ => import::overlord(text, "file"),
            };
            let errors = imported.expect_err("it is of another kind");
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for (kind, _) in files {
            for (other, text) in files.iter().filter(|(other, _)| *other != kind) {
                let told = run(kind, text);
                assert_eq!(told.len(), 1, "{told:?}");
                let wanted = format!("this is no file of {kind}; it looks like {other}'s");
                assert!(told[0].contains(&wanted), "{told:?}");
                assert!(told[0].contains(&format!("`keyway import {other} file > ")), "{told:?}");
            }
            let told = run(kind, "[[listener]]\nbind = \"x\"\n");
            assert!(told[0].contains("`keyway check file`"), "{told:?}");
        }
    }
}
