//! All that a store or a server holds, in one order.

use crate::common::Reply;
use crate::work::DATABASES;

/// A server that answers commands.
pub trait Holder {
    fn ask(&mut self, database: u32, words: &[&[u8]]) -> Reply;
}

/// One key with its value, as text.
pub type Digest = Vec<String>;

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn show(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(Some(bytes)) => text(bytes),
        Reply::Array(Some(elements)) => {
            let elements: Vec<String> = elements.iter().map(show).collect();
            format!("[{}]", elements.join(" "))
        }
        other => format!("{other:?}"),
    }
}

/// The named fields of a flat list of names and values.
fn fields(reply: &Reply, names: &[&str]) -> String {
    let Reply::Array(Some(elements)) = reply else { return show(reply) };
    let pairs = elements.chunks(2).filter(|pair| names.contains(&show(&pair[0]).as_str()));
    pairs.map(|pair| format!("{}={} ", show(&pair[0]), show(&pair[1]))).collect()
}

fn pairs(reply: &Reply) -> String {
    let strings = reply.strings();
    let mut pairs: Vec<String> =
        strings.chunks(2).map(|pair| format!("{}={}", text(&pair[0]), text(&pair[1]))).collect();
    pairs.sort();
    pairs.join(" ")
}

fn elements(reply: &Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(Some(elements)) => elements.clone(),
        _ => Vec::new(),
    }
}

/// A stream with its groups. With `times` also when entries were delivered.
fn stream(holder: &mut impl Holder, database: u32, key: &[u8], times: bool) -> String {
    let info = holder.ask(database, &[b"xinfo", b"stream", key]);
    let names = ["length", "last-generated-id", "max-deleted-entry-id", "entries-added"];
    let mut digest = fields(&info, &names);
    digest += &show(&holder.ask(database, &[b"xrange", key, b"-", b"+"]));
    let mut groups = elements(&holder.ask(database, &[b"xinfo", b"groups", key]));
    groups.sort();
    for group in &groups {
        let names = ["name", "consumers", "pending", "last-delivered-id", "entries-read", "lag"];
        digest += &fields(group, &names);
        let name = group.strings_of("name");
        let mut consumers: Vec<String> =
            elements(&holder.ask(database, &[b"xinfo", b"consumers", key, &name]))
                .iter()
                .map(|consumer| fields(consumer, &["name", "pending"]))
                .collect();
        consumers.sort();
        digest += &consumers.concat();
        let pending = holder.ask(database, &[b"xpending", key, &name, b"-", b"+", b"100000"]);
        for delivery in elements(&pending) {
            let Reply::Array(Some(mut parts)) = delivery else { continue };
            if !times {
                parts[2] = Reply::Null;
            }
            digest += &show(&Reply::Array(Some(parts)));
        }
    }
    digest
}

impl Reply {
    /// The value of a name in a flat list, of strings.
    fn strings_of(&self, name: &str) -> Vec<u8> {
        let elements = elements(self);
        let found = elements.chunks(2).find(|pair| show(&pair[0]) == name);
        match found.map(|pair| &pair[1]) {
            Some(Reply::Bulk(Some(bytes))) => bytes.clone(),
            _ => Vec::new(),
        }
    }
}

/// Returns a digest of all that a holder holds. With `all`, it includes state that Redis 7.0 does
/// not know, or counts by its own clock.
pub fn digest(holder: &mut impl Holder, all: bool) -> Digest {
    let mut digest = Vec::new();
    for database in 0..DATABASES {
        let mut keys = holder.ask(database, &[b"keys", b"*"]).strings();
        keys.sort();
        for key in keys {
            let Reply::Simple(kind) = holder.ask(database, &[b"type", &key]) else { continue };
            let mut ask = |words: &[&[u8]]| holder.ask(database, words);
            let value = match kind.as_str() {
                "none" => continue,
                "string" => show(&ask(&[b"get", &key])),
                "list" => show(&ask(&[b"lrange", &key, b"0", b"-1"])),
                "hash" => pairs(&ask(&[b"hgetall", &key])),
                "set" => {
                    let mut members = ask(&[b"smembers", &key]).strings();
                    members.sort();
                    members.iter().map(|member| text(member) + " ").collect()
                }
                "zset" => show(&ask(&[b"zrange", &key, b"0", b"-1", b"withscores"])),
                _ => stream(holder, database, &key, all),
            };
            let mut ask = |words: &[&[u8]]| holder.ask(database, words);
            let expiry = show(&ask(&[b"pexpiretime", &key]));
            let mut ends = String::new();
            if all && kind == "hash" {
                let mut names = ask(&[b"hkeys", &key]).strings();
                names.sort();
                let count = names.len().to_string();
                let mut words: Vec<&[u8]> =
                    vec![b"hpexpiretime", &key, b"fields", count.as_bytes()];
                words.extend(names.iter().map(Vec::as_slice));
                ends = show(&ask(&words));
            }
            digest.push(format!("{database} {} {kind} {value} @{expiry} {ends}", text(&key)));
        }
    }
    digest
}
