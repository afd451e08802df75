//! What differs between two configurations, as lines for the log: no secret is ever in them.

use keyway_config::{Config, PoolKindConfig, describe};
use std::collections::BTreeMap;

/// Longest text of a value; a pool of many servers has a longer one.
const VALUE_LEN_MAX: usize = 300;

/// The keys of one table with their values.
type Keys = BTreeMap<String, String>;

/// What differs between two configurations, in the order of their tables.
pub fn diff(old: &Config, new: &Config) -> Vec<String> {
    let (before, after) = (tables(old), tables(new));
    let mut lines = Vec::new();
    for (name, keys) in &before {
        match after.iter().find(|(other, _)| other == name) {
            None => lines.push(format!("{name}: removed")),
            Some((_, others)) => compare(name, keys, others, &mut lines),
        }
    }
    for (name, _) in &after {
        if !before.iter().any(|(other, _)| other == name) {
            lines.push(format!("{name}: added"));
        }
    }
    lines.extend(changed_secrets(old, new));
    lines
}

/// The tables of the configuration as it is resolved, by what tells them apart.
fn tables(config: &Config) -> Vec<(String, Keys)> {
    let mut tables: Vec<(String, Keys)> = Vec::new();
    let mut last = String::new();
    for line in describe(config).lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            tables.push((line.trim_matches(['[', ']']).replacen('.', " ", 1), Keys::new()));
            continue;
        }
        let Some((name, keys)) = tables.last_mut() else { continue };
        // Of a list that goes on from the line before there is more.
        let goes_on = line.starts_with([' ', ']', '}']);
        match line.split_once(" = ").filter(|_| !goes_on) {
            Some((key, value)) => {
                let is_name =
                    matches!((name.as_str(), key), ("listener", "bind") | ("user", "name"));
                if is_name {
                    *name = format!("{name} {}", value.trim_matches('"'));
                } else {
                    keys.insert(key.to_owned(), value.to_owned());
                    key.clone_into(&mut last);
                }
            }
            None => {
                if let Some(value) = keys.get_mut(&last) {
                    if line.starts_with(']') && value.ends_with(',') {
                        value.pop();
                    } else if !value.ends_with('[') {
                        value.push(' ');
                    }
                    value.push_str(line.trim());
                }
            }
        }
    }
    tables
}

fn compare(name: &str, old: &Keys, new: &Keys, lines: &mut Vec<String>) {
    for (key, value) in old {
        match new.get(key) {
            Some(other) if other == value => {}
            Some(other) => lines.push(format!("{name}: {key} {} -> {}", cut(value), cut(other))),
            None => lines.push(format!("{name}: {key} {} removed", cut(value))),
        }
    }
    for (key, value) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
        lines.push(format!("{name}: {key} {} added", cut(value)));
    }
}

fn cut(value: &str) -> String {
    match value.char_indices().nth(VALUE_LEN_MAX) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}...", &value[..end]),
    }
}

/// Secrets that are others now, by whose they are.
fn changed_secrets(old: &Config, new: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let token = |config: &Config| config.server.admin_token.clone();
    if token(old).is_some() && token(new).is_some() && token(old) != token(new) {
        lines.push("server: the token of admin changed".to_owned());
    }
    for listener in &new.listeners {
        let before = old.listeners.iter().find(|other| other.bind == listener.bind);
        if before.is_some_and(|before| before.password != listener.password) {
            lines.push(format!("listener {}: password changed", listener.bind));
        }
    }
    for user in &new.users {
        let name = user.user.name();
        let before = old.users.iter().find(|other| other.user.name() == name);
        let is_same = |other: &keyway_config::UserConfig| {
            other.password == user.password && other.user.has_passwords_of(&user.user)
        };
        if before.is_some_and(|before| !is_same(before)) {
            lines.push(format!("user {name}: password changed"));
        }
    }
    for pool in &new.pools {
        let before = old.pools.iter().find(|other| other.name == pool.name);
        if let Some(PoolKindConfig::Sharded(old)) = before.map(|before| &before.kind)
            && let PoolKindConfig::Sharded(new) = &pool.kind
            && old.pool.password != new.pool.password
        {
            lines.push(format!("pool {}: password changed", pool.name));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::from_str(text, "test").expect("a configuration")
    }

    const OLD: &str = "
[[listener]]
bind = \"tcp://127.0.0.1:7001\"
pool = \"cache\"
password = \"hush-hush-1\"

[pool.cache]
kind = \"sharded\"
servers = [\"127.0.0.1:1:1 alpha\"]
password = \"hush-hush-2\"
";

    #[test]
    fn every_difference_is_told_and_no_secret() {
        let new = OLD
            .replace("hush-hush-1", "hush-hush-3")
            .replace("hush-hush-2", "hush-hush-4")
            .replace("127.0.0.1:1:1 alpha\"", "127.0.0.1:1:1 alpha\", \"127.0.0.1:2:1 beta\"")
            + "timeout = \"3s\"\n\n[pool.more]\nkind = \"store\"\n";
        let lines = diff(&config(OLD), &config(&new));
        let text = lines.join("\n");
        for part in
            ["pool cache: servers", "beta", "pool cache: timeout", "\"3s\"", "pool more: added"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("listener tcp://127.0.0.1:7001: password changed"), "{text}");
        assert!(text.contains("pool cache: password changed"), "{text}");
        assert!(!text.contains("hush"), "{text}");
        let back = diff(&config(&new), &config(OLD)).join("\n");
        assert!(back.contains("pool more: removed"), "{back}");
    }

    #[test]
    fn the_same_is_no_difference() {
        assert_eq!(diff(&config(OLD), &config(OLD)), Vec::<String>::new());
    }
}
