//! Examples for the messages about missing and misplaced keys.

use crate::schema::{self, Key, Table};

/// The kinds of pools that lead to no others.
pub(crate) const KIND_EXAMPLE: &str = "kind = \"store\", \"sharded\", \"cluster\", \"replicated\", \"slots\" or \
     \"memcached\"; or, of one that leads to other pools, as docs/config.md says";

/// Returns an example of a key that is missing in a table.
pub(crate) fn example_within(key: &Key, table: &Table) -> &'static str {
    match key.name {
        // Only servers that share keys by hash have weights and names.
        "servers" if std::ptr::eq(table, &schema::CLUSTER) => {
            "servers = [\"127.0.0.1:7001\", \"127.0.0.1:7002\"]"
        }
        "servers" if std::ptr::eq(table, &schema::SLOT_GROUP) => {
            "servers = [\"127.0.0.1:7001\", \"127.0.0.1:7002\"]"
        }
        "slots" if std::ptr::eq(table, &schema::SLOT_GROUP) => "slots = \"0-511\"",
        _ if key.is_pools() => example("pools"),
        name => example(name),
    }
}

/// Returns the example of a key that does not depend on its table.
pub(crate) fn example(name: &str) -> &'static str {
    match name {
        "bind" => "bind = \"tcp://127.0.0.1:6380\"",
        "pool" => "pool = \"NAME\" and a table [pool.NAME]",
        "kind" => KIND_EXAMPLE,
        "servers" => "servers = [\"127.0.0.1:7001:1 alpha\", \"127.0.0.1:7002:1 beta\"]",
        "listener" => "[[listener]] with bind and pool",
        "pools" => {
            "[pool.NAME] with kind = \"store\", \"sharded\", \"cluster\", \"replicated\", \"slots\" or \"memcached\""
        }
        "slots" => "slots = 1024 or slots = 16384",
        "groups" => {
            "groups = [{ name = \"a\", servers = [\"127.0.0.1:7001\"], slots = \"0-1023\" }]"
        }
        "prefix" => "prefix = \"session:\"",
        "children" => "children = [\"NAME\", \"NAME\"] and a table [pool.NAME] for each",
        "routes" => "routes = [{ prefix = \"user:\", pool = \"NAME\" }]",
        "main" => "main = \"NAME\" and a table [pool.NAME]",
        "shadow" => "shadow = \"NAME\" and a table [pool.NAME]",
        "child" => "child = \"NAME\" and a table [pool.NAME]",
        "requests_per_second" => "requests_per_second = 1000",
        "min" => "min = 1",
        "max" => "max = 8",
        _ => "it",
    }
}

/// Returns the tables that have a key, the first few of them.
pub(crate) fn homes_text(homes: &[&str]) -> String {
    const SHOWN_MAX: usize = 3;
    let shown = &homes[..homes.len().min(SHOWN_MAX)];
    let rest = if homes.len() > SHOWN_MAX { ", among others" } else { "" };
    let of_kind = "[pool.NAME] of kind ";
    let mut text = String::new();
    for (index, home) in shown.iter().enumerate() {
        let is_again = index > 0 && shown[index - 1].starts_with(of_kind);
        let home = home.strip_prefix(of_kind).filter(|_| is_again).unwrap_or(home);
        let separator = match index {
            0 => "",
            _ if index + 1 == shown.len() && rest.is_empty() => " or ",
            _ => ", ",
        };
        text.push_str(separator);
        text.push_str(home);
    }
    text + rest
}
