//! The properties of a server, and whether slots can move between two.

use crate::access::{Access, Failure};
use crate::pace::unix_millis;
use crate::wire::Wire;
use keyway_rdb::Version;
use std::time::Duration;

/// A share of `maxmemory` above which a server has no room for slots.
const FULL_PERCENT: u64 = 95;

/// Milliseconds by which the clocks of two servers may differ.
const CLOCKS_APART_MAX: u64 = 1000;

/// A server at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its address.
    pub server: String,
    /// Its product and version, such as `redis 7.0.15`.
    pub product: String,
    /// The newest version of RDB that it reads.
    pub rdb: Version,
    /// True if it knows RESTORE with REPLACE and ABSTTL.
    pub restores: bool,
    /// Milliseconds by which its clock is before the one here; negative if it is behind. It is as wrong
    /// as half the time of an answer.
    pub clock_ahead_ms: i64,
    /// True if it is a replica.
    pub is_replica: bool,
    /// True if it is a replica whose connection to its primary is up.
    pub is_linked: bool,
    /// True if it loads its data.
    pub is_loading: bool,
    /// True if it is of a Redis Cluster.
    pub is_cluster: bool,
    /// True if it keeps an append-only file.
    pub has_log: bool,
    /// The id of its history.
    pub replication_id: String,
    /// The offset of its stream.
    pub offset: u64,
    /// Bytes that it uses.
    pub used_memory: u64,
    /// Bytes that it may use; 0 without a bound.
    pub maxmemory: u64,
    /// True if it evicts keys in place of refusing writes.
    pub evicts: bool,
    /// The names of its modules.
    pub modules: Vec<String>,
}

/// A reason against a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// The reason, for people.
    pub why: String,
    /// True if the move cannot begin. Others are worth a warning.
    pub is_fatal: bool,
}

/// Asks a server what it is.
///
/// # Errors
/// It is not reached, or is no server of this kind.
pub fn look(access: &Access, within: Duration) -> Result<Look, Failure> {
    let mut wire = Wire::connect(access, "keyway-look", within)?;
    let reply = wire.ask(&[b"INFO", b"everything"], within)?;
    if let Some(error) = reply.strip_prefix(b"-") {
        return Err(Failure::of_error(&access.endpoint, error));
    }
    let text = String::from_utf8_lossy(&reply);
    let mut look = parse(&access.endpoint.to_string(), &text)
        .ok_or_else(|| Failure::lasting(format!("{}: its INFO has no version", access.endpoint)))?;
    let before = unix_millis();
    let told = time_of(&wire.ask(&[b"TIME"], within)?);
    let here = before.midpoint(unix_millis());
    look.clock_ahead_ms = told.map_or(0, |told| told.saturating_sub(here as i64));
    Ok(look)
}

/// Reads the reply to TIME, in milliseconds since 1970.
fn time_of(reply: &[u8]) -> Option<i64> {
    let mut lines = reply.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let mut number = |nth| std::str::from_utf8(lines.nth(nth)?).ok()?.parse::<i64>().ok();
    let (seconds, micros) = (number(2)?, number(1)?);
    seconds.checked_mul(1000)?.checked_add(micros / 1000)
}

/// Returns the id of a primary's history and the offset of its stream.
///
/// # Errors
/// It is not reached, does not tell, or is a replica.
pub fn position(access: &Access, within: Duration) -> Result<(String, u64), Failure> {
    let mut wire = Wire::connect(access, "keyway-look", within)?;
    let text = replication(&mut wire, within)?;
    if field(&text, "role") == Some("slave") {
        return Err(Failure::passing(format!("{} is a replica now", access.endpoint)));
    }
    let id = field(&text, "master_replid").map(str::to_owned);
    id.zip(offset(&text)).ok_or_else(|| untold(&wire))
}

/// Returns the offset of the stream of a server at the other end of a connection.
pub(crate) fn offset_of(wire: &mut Wire, within: Duration) -> Result<u64, Failure> {
    let text = replication(wire, within)?;
    offset(&text).ok_or_else(|| untold(wire))
}

fn untold(wire: &Wire) -> Failure {
    Failure::passing(format!("{} does not tell where its stream is", wire.server()))
}

fn replication(wire: &mut Wire, within: Duration) -> Result<String, Failure> {
    let reply = wire.ask(&[b"INFO", b"replication"], within)?;
    match reply.strip_prefix(b"-") {
        Some(error) => Err(Failure::of_error(wire.server(), error)),
        None => Ok(String::from_utf8_lossy(&reply).into_owned()),
    }
}

fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(str::trim)
}

fn number(text: &str, name: &str) -> u64 {
    field(text, name).and_then(|value| value.parse().ok()).unwrap_or_default()
}

/// A replica's own count is that of its primary's stream too, as far as it has applied it.
fn offset(text: &str) -> Option<u64> {
    let name = match field(text, "role") {
        Some("slave") => "slave_repl_offset",
        _ => "master_repl_offset",
    };
    field(text, name)?.parse().ok()
}

fn parse(server: &str, text: &str) -> Option<Look> {
    let redis = field(text, "redis_version")?;
    let (product, version) = match (field(text, "keyway_version"), field(text, "valkey_version")) {
        (Some(version), _) => ("keyway", version),
        (None, Some(version)) => ("valkey", version),
        (None, None) => ("redis", redis),
    };
    let modules = text.lines().filter_map(|line| line.strip_prefix("module:name="));
    let modules = modules.filter_map(|line| line.split(',').next()).map(str::to_owned).collect();
    let policy = field(text, "maxmemory_policy");
    Some(Look {
        server: server.to_owned(),
        product: format!("{product} {version}"),
        rdb: rdb_of(product, version, redis),
        restores: parts(redis).0 >= 5,
        clock_ahead_ms: 0,
        is_replica: field(text, "role") == Some("slave"),
        is_linked: field(text, "master_link_status") == Some("up"),
        is_loading: field(text, "loading") == Some("1"),
        is_cluster: field(text, "cluster_enabled") == Some("1"),
        has_log: field(text, "aof_enabled") == Some("1"),
        replication_id: field(text, "master_replid").unwrap_or_default().to_owned(),
        offset: offset(text).unwrap_or_default(),
        used_memory: number(text, "used_memory"),
        maxmemory: number(text, "maxmemory"),
        evicts: policy.is_some_and(|policy| policy != "noeviction"),
        modules,
    })
}

/// Returns the first two numbers of a version.
fn parts(text: &str) -> (u32, u32) {
    let mut parts = text.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// Returns the newest version of RDB that a server reads.
fn rdb_of(product: &str, version: &str, redis: &str) -> Version {
    match product {
        "valkey" if parts(version) >= (9, 2) => Version::Valkey81,
        "valkey" if parts(version) >= (9, 0) => Version::Valkey80,
        "valkey" => Version::Redis11,
        _ => match parts(redis) {
            (0..=6, _) => Version::Redis9,
            (7, 0 | 1) => Version::Redis10,
            (7, 2 | 3) => Version::Redis11,
            _ => Version::Redis12,
        },
    }
}

/// Returns what speaks against a move. `bytes` is about how much memory the keys need, if it is known.
pub fn objections(source: &Look, target: &Look, bytes: Option<u64>) -> Vec<Objection> {
    let mut all = Vec::new();
    let mut object = |is_fatal: bool, why: String| all.push(Objection { why, is_fatal });
    for one in [source, target] {
        let server = &one.server;
        if one.is_loading {
            object(true, format!("{server} loads its data: try again when it has"));
        }
        if one.is_cluster {
            object(
                true,
                format!("{server} is of a Redis Cluster, which moves its slots by itself"),
            );
        }
    }
    if target.is_replica {
        object(true, format!("{} is a replica, and takes no writes", target.server));
    }
    if target.rdb < source.rdb && !(source.rdb.is_of_valkey() && target.rdb >= Version::Redis11) {
        object(
            true,
            format!(
                "{} is {}, which is older than {} of {}: it would not know all that is copied; \
                 upgrade it first",
                target.server, target.product, source.product, source.server
            ),
        );
    }
    if !source.modules.is_empty() && source.modules != target.modules {
        object(
            false,
            format!(
                "{} has modules ({}): a key with a value of a module would end the move",
                source.server,
                source.modules.join(", ")
            ),
        );
    }
    let apart = source.clock_ahead_ms.abs_diff(target.clock_ahead_ms);
    if apart > CLOCKS_APART_MAX {
        object(
            false,
            format!(
                "the clocks of {} and {} are {apart} ms apart, so keys expire at other times after \
                 the move: set the clocks",
                source.server, target.server
            ),
        );
    }
    let left = target.maxmemory.saturating_sub(target.used_memory);
    let is_full = target.used_memory >= target.maxmemory / 100 * FULL_PERCENT;
    if target.maxmemory > 0 && (is_full || bytes.is_some_and(|bytes| bytes > left)) {
        let needs =
            bytes.map(|bytes| format!(", and about {bytes} are needed")).unwrap_or_default();
        object(
            true,
            format!(
                "{} has {left} bytes left of its maxmemory{needs}: raise it, or move fewer slots",
                target.server
            ),
        );
    }
    if target.maxmemory > 0 && target.evicts {
        object(false, format!("{} evicts keys when it is full, copied ones too", target.server));
    }
    if source.has_log && !target.has_log {
        object(
            false,
            format!(
                "{} keeps an append-only file, and {} does not: a restart of it may lose what has \
                 moved there",
                source.server, target.server
            ),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nloading:0\r\nrole:master\r\n\
                        master_replid:abc\r\nmaster_repl_offset:77\r\nused_memory:1000\r\n\
                        maxmemory:2000\r\nmaxmemory_policy:noeviction\r\naof_enabled:0\r\n\
                        cluster_enabled:0\r\nmodule:name=ReJSON,ver=1\r\n";

    fn seen(text: &str) -> Look {
        parse("a:1", text).unwrap()
    }

    fn fatal(source: &Look, target: &Look, bytes: Option<u64>) -> Vec<String> {
        let all = objections(source, target, bytes).into_iter();
        all.filter(|one| one.is_fatal).map(|one| one.why).collect()
    }

    #[test]
    fn what_a_server_tells_is_understood() {
        let look = seen(INFO);
        assert_eq!((&*look.product, look.rdb, look.offset), ("redis 7.0.15", Version::Redis10, 77));
        assert_eq!(look.modules, ["ReJSON"]);
        assert!(!look.is_replica && !look.evicts && parse("a:1", "# nothing").is_none());
        let valkey = seen(&INFO.replace("loading:0", "valkey_version:9.0.1"));
        assert_eq!((&*valkey.product, valkey.rdb), ("valkey 9.0.1", Version::Valkey80));
    }

    #[test]
    fn clocks_that_differ_are_told() {
        assert_eq!(
            time_of(b"*2\r\n$10\r\n1700000000\r\n$6\r\n123456\r\n"),
            Some(1_700_000_000_123)
        );
        assert_eq!(time_of(b"-ERR\r\n"), None);
        let (one, mut other) = (seen(INFO), seen(INFO));
        other.clock_ahead_ms = -1500;
        let all = objections(&one, &other, None);
        assert!(all.iter().any(|one| !one.is_fatal && one.why.contains("are 1500 ms apart")));
    }

    #[test]
    fn a_move_that_cannot_work_is_objected_to() {
        let look = seen(INFO);
        assert!(fatal(&look, &look, Some(900)).is_empty());
        let told = |text: &str, bytes| fatal(&look, &seen(text), bytes).join("; ");
        assert!(told(INFO, Some(1100)).contains("has 1000 bytes left of its maxmemory"));
        let full = INFO.replace("used_memory:1000", "used_memory:1950");
        assert!(told(&full, None).contains("raise it, or move fewer slots"));
        let old = INFO.replace("7.0.15", "6.2.1");
        assert!(told(&old, None).contains("older than redis 7.0.15"));
        assert!(told(&INFO.replace("role:master", "role:slave"), None).contains("is a replica"));
        assert!(
            told(&INFO.replace("cluster_enabled:0", "cluster_enabled:1"), None).contains("Cluster")
        );
    }
}
