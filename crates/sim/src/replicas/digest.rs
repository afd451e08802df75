//! All that a store holds, in one order.

use super::node::{DATABASES, Life};
use crate::wire::Value;

/// A line for each key: its database, name, type, value and expiry. None if the store is being
/// loaded.
pub(super) fn digest(life: &Life) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    for database in 0..DATABASES {
        let Ok(Value::Array(Some(keys))) = life.ask(database, &[b"KEYS", b"*"]) else {
            return None;
        };
        let bytes = |value| match value {
            Value::Bulk(Some(bytes)) => Some(bytes),
            _ => None,
        };
        for key in keys.into_iter().filter_map(bytes) {
            let ask = |words: &[&[u8]]| life.ask(database, words).unwrap_or(Value::Null);
            let kind = match ask(&[b"TYPE", &key]) {
                Value::Simple(kind) => String::from_utf8_lossy(&kind).into_owned(),
                other => other.show(),
            };
            let value = match kind.as_str() {
                "none" => continue,
                "string" => vec![ask(&[b"GET", &key])],
                "list" => items(ask(&[b"LRANGE", &key, b"0", b"-1"])),
                "hash" => sorted(pairs(ask(&[b"HGETALL", &key]))),
                "set" => sorted(items(ask(&[b"SMEMBERS", &key]))),
                "zset" => items(ask(&[b"ZRANGE", &key, b"0", b"-1", b"WITHSCORES"])),
                _ => items(ask(&[b"XRANGE", &key, b"-", b"+"])),
            };
            let expiry = ask(&[b"PEXPIRETIME", &key]);
            let key = String::from_utf8_lossy(&key).into_owned();
            lines.push(format!("{database} {key} {kind} {value:?} @{}", expiry.show()));
        }
    }
    lines.sort();
    Some(lines)
}

/// The first lines that only one of two digests has.
pub(super) fn difference(one: &[String], other: &[String]) -> String {
    let only = |of: &[String], other: &[String]| {
        let lines = of.iter().filter(|line| other.binary_search(line).is_err());
        let short = |line: &String| line.chars().take(300).collect::<String>();
        lines.take(3).map(short).collect::<Vec<_>>()
    };
    format!("{:#?} in place of {:#?}", only(one, other), only(other, one))
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(Some(items)) => items,
        other => vec![other],
    }
}

fn pairs(value: Value) -> Vec<Value> {
    let items = items(value);
    items.chunks(2).map(|pair| Value::Array(Some(pair.to_vec()))).collect()
}

fn sorted(mut values: Vec<Value>) -> Vec<Value> {
    values.sort_by_key(Value::show);
    values
}
