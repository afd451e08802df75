//! Files that are not Keyway's: another proxy's, or no TOML at all. One error then says more than
//! an error for each line.

use crate::error::ConfigError;
use toml::de::{DeTable, DeValue};

/// The tables of Keyway's own files.
const OURS: [&str; 5] = ["server", "limits", "listener", "pool", "user"];

/// Words that begin lines in files of predixy alone.
const PREDIXY: [&str; 8] = [
    "clusterserverpool",
    "standaloneserverpool",
    "sentinelserverpool",
    "workerthreads",
    "clienttimeout",
    "authority",
    "bind",
    "include",
];

/// Indented keys of the pools in twemproxy's files.
const TWEMPROXY: [&str; 6] =
    ["listen", "servers", "distribution", "auto_eject_hosts", "redis", "server_retry_timeout"];

/// Replaces the errors by a single one if the file is another proxy's or no TOML.
pub(crate) fn explain(text: &str, path: &str, errors: Vec<ConfigError>) -> Vec<ConfigError> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let document = document.get_ref();
    if document.keys().any(|key| OURS.contains(&key.get_ref().as_ref())) {
        return errors;
    }
    let whose = match syntax.is_empty() {
        true if is_overlord(document) => Some(("overlord", "overlord's")),
        true => None,
        false if is_predixy(text) => Some(("predixy", "predixy's")),
        false if is_twemproxy(text) => Some(("twemproxy", "twemproxy's, in YAML")),
        false => None,
    };
    let once = |line: usize, what: String, hint: String| {
        vec![ConfigError { path: path.to_owned(), line, column: 1, what, hint }]
    };
    if let Some((name, whose)) = whose {
        return once(
            1,
            format!("this is no configuration of Keyway; it looks like {whose}"),
            format!("`keyway import {name} {path} > keyway.toml` makes one of it"),
        );
    }
    if !syntax.is_empty() && errors.len() > 1 {
        let first = &errors[0];
        return once(
            first.line,
            format!("this is no TOML: {}", first.what),
            "write KEY = VALUE lines below [[listener]] and [pool.NAME], as in docs/config.md"
                .to_owned(),
        );
    }
    errors
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

/// The first word of each line that is not empty or a comment, and whether the line is indented.
fn first_words(text: &str) -> impl Iterator<Item = (bool, &str)> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.filter_map(|line| {
        let is_indented = line.starts_with([' ', '\t']);
        Some((is_indented, line.split_whitespace().next()?))
    })
}

fn is_predixy(text: &str) -> bool {
    let known = |word: &str| PREDIXY.contains(&word.to_ascii_lowercase().as_str());
    first_words(text).filter(|(is_indented, word)| !is_indented && known(word)).count() > 0
}

fn is_twemproxy(text: &str) -> bool {
    let known = |word: &str| word.strip_suffix(':').is_some_and(|key| TWEMPROXY.contains(&key));
    first_words(text).filter(|(is_indented, word)| *is_indented && known(word)).count() > 1
}

#[cfg(test)]
mod tests {
    use crate::model::Config;

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
        let json = told("{\n  \"listener\": [1],\n  \"pool\": {}\n}\n");
        assert_eq!(json.len(), 1, "{json:?}");
        assert!(json[0].starts_with("file:1: this is no TOML: "), "{json:?}");
        let prose = told("once upon a time\nthere was a cache\nand it was full\n");
        assert_eq!(prose.len(), 1, "{prose:?}");
        let ours = told("[[listener]]\nbind: \"x\"\npool = \n[pool.default]\nkind = store\n");
        assert!(ours.iter().all(|line| line.starts_with("file:")), "{ours:?}");
        assert!(!ours[0].contains("this is no TOML"), "{ours:?}");
    }
}
