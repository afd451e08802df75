//! The differences between two configurations, as lines for the log. Secrets are never in them.

use keyway_config::{Config, PoolConfig, PoolKindConfig, UserConfig, describe};
use std::collections::BTreeMap;

/// Longest shown text of a value. A pool of many servers has a longer one.
const VALUE_LEN_MAX: usize = 300;

/// The keys of one table with their values.
type Keys = BTreeMap<String, String>;

/// Returns the differences between two configurations, in the order of their tables.
pub fn diff(old: &Config, new: &Config) -> Vec<String> {
    let (before, after) = (tables(old), tables(new));
    let (of_before, of_after) = (by_name(&before), by_name(&after));
    let mut lines = Vec::new();
    for (name, keys) in &before {
        match of_after.get(name.as_str()) {
            None => lines.push(format!("{name}: removed")),
            Some(others) => compare(name, keys, others, &mut lines),
        }
    }
    for (name, _) in &after {
        if !of_before.contains_key(name.as_str()) {
            lines.push(format!("{name}: added"));
        }
    }
    lines.extend(changed_secrets(old, new));
    lines
}

/// Returns the first table of each name.
fn by_name(tables: &[(String, Keys)]) -> BTreeMap<&str, &Keys> {
    tables.iter().rev().map(|(name, keys)| (name.as_str(), keys)).collect()
}

/// Returns the tables of a resolved configuration, each under a name that identifies it.
fn tables(config: &Config) -> Vec<(String, Keys)> {
    let mut tables: Vec<(String, Keys)> = Vec::new();
    let mut last = String::new();
    for line in describe(config).lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            tables.push((line.trim_matches(['[', ']']).replacen('.', " ", 1), Keys::new()));
            continue;
        }
        let Some((name, keys)) = tables.last_mut() else { continue };
        // The line goes on with a list from the line before.
        let goes_on = line.starts_with([' ', ']', '}']);
        match line.split_once(" = ").filter(|_| !goes_on) {
            Some((key, value)) => {
                let is_name = matches!(
                    (name.as_str(), key),
                    ("listener", "bind") | ("user" | "operator", "name")
                );
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
            Some(other) => lines.push(format!("{name}: {key} {}", changed(value, other))),
            None => lines.push(format!("{name}: {key} {} removed", cut(value))),
        }
    }
    for (key, value) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
        lines.push(format!("{name}: {key} {} added", cut(value)));
    }
}

/// Returns the change of a value. For lists too long to be shown whole, only the differing items.
fn changed(old: &str, new: &str) -> String {
    let is_long = |value: &str| value.chars().nth(VALUE_LEN_MAX).is_some();
    if !is_long(old) && !is_long(new) {
        return format!("{old} -> {new}");
    }
    if let (Some(before), Some(after)) = (items(old), items(new)) {
        let missing = |from: &[String], other: &[String]| -> Vec<String> {
            let mut other = other.to_vec();
            let mut is_new = |item: &&String| match other.iter().position(|it| it == *item) {
                Some(place) => {
                    other.swap_remove(place);
                    false
                }
                None => true,
            };
            from.iter().filter(&mut is_new).cloned().collect()
        };
        let (added, removed) = (missing(&after, &before), missing(&before, &after));
        let told = |what: &str, items: &[String]| {
            (!items.is_empty()).then(|| format!("{what} {}", cut(&items.join(", "))))
        };
        let both = [told("without", &removed), told("with", &added)];
        let both: Vec<String> = both.into_iter().flatten().collect();
        return match both.is_empty() {
            true => "in another order".to_owned(),
            false => both.join(", "),
        };
    }
    let is_same = |(old, new): &(char, char)| old == new;
    let shared = old.chars().zip(new.chars()).take_while(is_same).count();
    let tail = |value: &str| cut(&value.chars().skip(shared).collect::<String>());
    format!("...{} -> ...{}", tail(old), tail(new))
}

/// Returns the items of a list of texts, as they are written.
fn items(value: &str) -> Option<Vec<String>> {
    let inside = value.strip_prefix('[')?.strip_suffix(']')?;
    let (mut items, mut item) = (Vec::new(), String::new());
    let (mut is_text, mut is_escaped) = (false, false);
    for char in inside.chars() {
        if !is_text && matches!(char, '[' | '{') {
            return None;
        }
        if !is_text && char == ',' {
            items.push(std::mem::take(&mut item));
            continue;
        }
        if char == '"' && !is_escaped {
            is_text = !is_text;
        }
        is_escaped = is_text && char == '\\' && !is_escaped;
        if is_text || !char.is_whitespace() {
            item.push(char);
        }
    }
    if !item.is_empty() {
        items.push(item);
    }
    Some(items)
}

fn cut(value: &str) -> String {
    match value.char_indices().nth(VALUE_LEN_MAX) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}...", &value[..end]),
    }
}

/// Returns whether a secret was replaced by another one. Its appearance or disappearance shows in
/// its key.
fn is_changed<T: PartialEq>(old: &Option<T>, new: &Option<T>) -> bool {
    old.is_some() && new.is_some() && old != new
}

/// Returns the secrets that have changed, by their owner.
fn changed_secrets(old: &Config, new: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let token = |config: &Config| config.server.admin_token.clone();
    if token(old).is_some() && token(new).is_some() && token(old) != token(new) {
        lines.push("server: the token of admin changed".to_owned());
    }
    for operator in &new.operators {
        let name = operator.operator.name();
        let before = old.operators.iter().find(|other| other.operator.name() == name);
        if before.is_some_and(|before| is_changed(&before.token, &operator.token)) {
            lines.push(format!("operator {name}: token changed"));
        }
    }
    for listener in &new.listeners {
        let before = old.listeners.iter().find(|other| other.bind == listener.bind);
        let is_other = |before: &keyway_config::ListenerConfig| {
            is_changed(&before.password, &listener.password)
        };
        if before.is_some_and(is_other) {
            lines.push(format!("listener {}: password changed", listener.bind));
        }
        let registry = |listener: &keyway_config::ListenerConfig| {
            listener.register.as_ref().and_then(|entry| entry.password.clone())
        };
        if before.is_some_and(|before| is_changed(&registry(before), &registry(listener))) {
            lines.push(format!("listener {}: password of register changed", listener.bind));
        }
    }
    let users: BTreeMap<&str, &UserConfig> =
        old.users.iter().rev().map(|user| (&**user.user.name(), user)).collect();
    for user in &new.users {
        let name = user.user.name();
        let before = users.get(&**name).copied();
        let is_same = |other: &UserConfig| {
            other.password == user.password && other.user.has_passwords_of(&user.user)
        };
        if before.is_some_and(|before| !is_same(before)) {
            lines.push(format!("user {name}: password changed"));
        }
    }
    let pools: BTreeMap<&str, &PoolConfig> =
        old.pools.iter().rev().map(|pool| (pool.name.as_str(), pool)).collect();
    for pool in &new.pools {
        let before = pools.get(pool.name.as_str()).copied();
        if let (Some(PoolKindConfig::Store(old)), PoolKindConfig::Store(new)) =
            (before.map(|before| &before.kind), &pool.kind)
            && is_changed(&old.replica.password, &new.replica.password)
        {
            lines.push(format!("pool {}: the password for its primary changed", pool.name));
        }
        if let Some((old, _)) = before.and_then(|before| before.kind.servers())
            && let Some((new, _)) = pool.kind.servers()
            && is_changed(&old.options.password, &new.options.password)
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

    #[test]
    fn of_long_lists_what_differs_is_told() {
        let list = |count: u32, weight: u32| {
            let server = |n: u32| {
                format!("\"127.0.0.{n}:6379:{} server{n}\"", if n == 40 { weight } else { 1 })
            };
            let servers: Vec<String> = (1..=count).map(server).collect();
            OLD.replace("\"127.0.0.1:1:1 alpha\"", &servers.join(", "))
        };
        let told = |old: &str, new: &str| diff(&config(old), &config(new)).join("\n");
        let text = told(&list(40, 1), &list(40, 7));
        assert!(text.contains("without") && text.contains("127.0.0.40:6379:7 server40"), "{text}");
        assert!(!text.contains("server39"), "{text}");
        let text = told(&list(40, 1), &list(41, 1));
        assert!(text.contains("with \"127.0.0.41:6379:1 server41\""), "{text}");
        assert!(!text.contains("without"), "{text}");
    }

    #[test]
    fn items_are_split_where_they_end() {
        let items = |value| items(value).expect("a list");
        assert_eq!(items("[]"), Vec::<String>::new());
        assert_eq!(items(r#"["a, b", "c\"d,", 7]"#), [r#""a, b""#, r#""c\"d,""#, "7"]);
        assert_eq!(super::items("[{ a = 1 }]"), None);
        assert_eq!(super::items("7"), None);
    }

    #[test]
    fn of_a_long_text_the_part_that_differs_is_told() {
        let (old, new) = (format!("\"{}1\"", "x".repeat(400)), format!("\"{}2\"", "x".repeat(400)));
        assert_eq!(changed(&old, &new), "...1\" -> ...2\"");
    }
}
