//! A store as the replica of another server: whom it follows, and with which password.

use crate::error::{Problem, Report};
use crate::model::{ReplicaConfig, ReplicationConfig};
use crate::secret::{ReadFile, check_password, password};
use crate::section::{Section, Value};
use crate::tls;
use crate::value::format_size;
use keyway_topology::{Endpoint, Password};

/// The keys of the primary's password.
pub(crate) const PASSWORD: [&str; 3] =
    ["replica_password", "replica_password_file", "replica_password_env"];

/// The form of a primary's address.
pub(crate) const HINT: &str =
    "write \"redis://[USER:PASSWORD@]HOST:PORT\", or \"rediss://…\" for TLS";

/// The port of a primary that is written without one.
const PORT: u16 = 6379;

/// The backlog is this part of a store's memory at most: the stream takes twice as much.
const BACKLOG_PART: u64 = 8;

/// A primary as it is written.
#[derive(Clone)]
pub(crate) struct PrimaryUrl {
    endpoint: Endpoint,
    is_secured: bool,
    username: Option<String>,
    password: Option<Password>,
}

/// Reads the address of a primary. Messages do not repeat it: it may have a password in it.
pub(crate) fn parse(text: &str) -> Result<PrimaryUrl, Problem> {
    let wrong = |what: &str| Problem::new(what, HINT);
    let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
    let is_secured = match scheme {
        "redis" => false,
        "rediss" => true,
        _ => return Err(wrong("the scheme is neither redis:// nor rediss://")),
    };
    let (credentials, address) = match rest.rsplit_once('@') {
        Some((credentials, address)) => (Some(credentials), address),
        None => (None, rest),
    };
    let (mut username, mut secret) = (None, None);
    if let Some(credentials) = credentials {
        let (user, text) = credentials
            .split_once(':')
            .ok_or_else(|| wrong("there is a user and no password in front of the @"))?;
        let decode = |text| decoded(text).ok_or_else(|| wrong("a % is not followed by two digits"));
        username = Some(decode(user)?).filter(|user| !user.is_empty());
        secret = Some(check_password(&decode(text)?).map_err(|what| Problem::new(what, HINT))?);
    }
    let address = address.strip_suffix('/').unwrap_or(address);
    if address.contains('/') {
        return Err(Problem::new(
            "it names a database",
            "remove the number: a replica has all databases of its primary",
        ));
    }
    let (host, port) = split_port(address).ok_or_else(|| wrong("the port is no port"))?;
    let endpoint = Endpoint::tcp(host, port).map_err(|_| wrong("the host is no host"))?;
    Ok(PrimaryUrl { endpoint, is_secured, username, password: secret })
}

fn split_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => address.split_at(address.find(':').unwrap_or(address.len())),
    };
    match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0).map(|port| (host, port)),
        None if port.is_empty() => Some((host, PORT)),
        None => None,
    }
}

/// Text in which `%40` stands for `@`, and so on.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        rest = others;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// Reads what a store is the replica of.
pub(crate) fn resolve(
    section: &Section,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> ReplicaConfig {
    let (mut secret, password_from) = password(section, PASSWORD, read_file, report);
    let mut username = section.text("replica_user").map(str::to_owned);
    let tls = tls::of_replica(section, read_file, report);
    let mut primary = None;
    if let Some(Value::Primary(url)) = section.value("replica_of") {
        let at = section.place("replica_of");
        let mut twice = |is_twice: bool, key: &str| {
            if is_twice {
                let what = format!("replica_of in {} has what {key} has", section.header);
                report.consequence(at, Problem::new(what, "keep one of them"));
            }
        };
        twice(url.password.is_some() && secret.is_some(), PASSWORD[0]);
        twice(url.username.is_some() && username.is_some(), "replica_user");
        secret = secret.or_else(|| url.password.clone());
        username = username.or_else(|| url.username.clone());
        let is_given = section.given("replica_tls").is_some();
        if url.is_secured != is_given {
            let what = format!("replica_of and replica_tls in {} contradict", section.header);
            let hint = match is_given {
                true => "write rediss:// in replica_of, or remove replica_tls",
                false => "add replica_tls = { ca_file = \"FILE\" }, or write redis://",
            };
            report.consequence(at, Problem::new(what, hint));
        }
        primary = Some(url.endpoint.clone());
    }
    if username.is_some() && secret.is_none() && password_from.is_none() {
        let what = format!("{} has a replica_user and no password", section.header);
        let hint = "add replica_password_file, or remove replica_user";
        report.consequence(section.place("replica_user"), Problem::new(what, hint));
    }
    let serves_stale = section.bool("replica_serve_stale_data");
    let of_feed = section.section("replication");
    if let Some(table) = of_feed {
        refuse_long_backlog(section, table, report);
    }
    let feed = of_feed.map_or(ReplicationConfig::DEFAULT, feed);
    ReplicaConfig { primary, username, password: secret, password_from, tls, serves_stale, feed }
}

/// Refuses a backlog that leaves too little of the memory to the data.
fn refuse_long_backlog(pool: &Section, table: &Section, report: &mut Report<'_>) {
    let (Some(at), Some(memory_max)) = (table.given("backlog"), pool.number("memory_max")) else {
        return;
    };
    let (backlog, most) = (table.number("backlog").unwrap_or_default(), memory_max / BACKLOG_PART);
    if backlog > most {
        let what = format!(
            "backlog is {} and counts towards memory_max, which is {}",
            format_size(backlog),
            format_size(memory_max)
        );
        let hint = format!(
            "lower backlog to {} (an eighth of memory_max) or less, or raise memory_max",
            format_size(most)
        );
        report.consequence(at, Problem::new(what, hint));
    }
}

/// Reads the bounds of a store as a primary.
fn feed(section: &Section) -> ReplicationConfig {
    let default = ReplicationConfig::DEFAULT;
    ReplicationConfig {
        backlog: section.number("backlog").unwrap_or(default.backlog),
        buffer: section.number("buffer").unwrap_or(default.buffer),
        replicas_max: section.number_u32("replicas_max"),
        timeout: section.duration("timeout").unwrap_or(default.timeout),
        ping_every: section.duration("ping_every").unwrap_or(default.ping_every),
        replicas_min: section.number_u32("min_replicas"),
        lag_max: section.duration("min_replicas_max_lag").unwrap_or(default.lag_max),
        priority: section.number_u32("priority"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_is_read_with_its_user_and_password() {
        let read = |text: &str| {
            let url = parse(text).unwrap_or_else(|problem| panic!("{text}: {}", problem.what));
            let password = url.password.map(|password| password.expose().to_owned());
            (url.endpoint.to_string(), url.is_secured, url.username, password)
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(read("redis://h"), ("h:6379".to_owned(), false, None, None));
        assert_eq!(read("rediss://[::1]:7/"), ("[::1]:7".to_owned(), true, None, None));
        assert_eq!(
            read("redis://:p%40:x@127.0.0.1:1"),
            ("127.0.0.1:1".to_owned(), false, None, text("p@:x"))
        );
        assert_eq!(read("redis://u:p@h:1"), ("h:1".to_owned(), false, text("u"), text("p")));
    }

    #[test]
    fn what_is_no_primary_is_refused_without_its_password() {
        for wrong in [
            "127.0.0.1:6379",
            "tcp://secret@h:1",
            "redis://secret@h:1",
            "redis://u:secret%4@h:1",
            "redis://u:secret@h:0",
            "redis://u:secret@h:1/0",
            "redis://u:secret@:1",
            "redis://u:@h:1",
        ] {
            let Err(problem) = parse(wrong) else { panic!("{wrong} is read") };
            assert!(!problem.what.contains("secret"), "{wrong}: {}", problem.what);
        }
    }
}
