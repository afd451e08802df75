//! The list of pools and backends, for programs and for people.

use serde::{Serialize, Serializer};
use std::fmt::Write;

/// A pool as `GET /backends` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// `store` or `sharded`.
    pub kind: &'static str,
    /// Its servers in the order of the configuration; none for a store.
    #[serde(rename = "servers")]
    pub backends: Vec<BackendStatus>,
}

/// The state of a server that an operator has ejected and that has left since. It will be ejected
/// when it comes back.
pub const AWAY: &str = "away";

/// A backend as `GET /backends` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackendStatus {
    /// Its name, or its address if it has none.
    pub name: String,
    /// Its address.
    pub address: String,
    /// `unknown`, `up`, `failing`, `ejected`, `rejoining` or `quarantined`. A server in use may
    /// also be `circuit-open`, `circuit-half-open` or `outlier`. [`AWAY`] if it is not there.
    pub state: &'static str,
    /// Its latest failure since it was last up.
    pub reason: Option<&'static str>,
    /// Start of that state, in seconds since the Unix epoch. For a server that was discovered
    /// later, it is not before its discovery.
    #[serde(rename = "since", serialize_with = "as_utc")]
    pub since_unix_seconds: u64,
    /// True if an operator has ejected it. Then it stays so until one restores it.
    pub by_hand: bool,
    /// Connections to it that take requests.
    pub links: u64,
    /// Requests that wait for its replies.
    pub in_flight: u64,
    /// Its role, if its pool discovers servers.
    #[serde(flatten)]
    pub status: Option<BackendRoleStatus>,
}

/// The role of a server in a cluster, or with Sentinel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackendRoleStatus {
    /// `primary`, `replica`, or `none` while it has no keys.
    pub role: &'static str,
    /// The address of the primary that it copies, or the name of its primary for Sentinel.
    pub of: Option<String>,
    /// Number of its slots, in a cluster.
    pub slots: Option<u16>,
    /// Its availability zone, if it is known.
    pub zone: Option<String>,
    /// Its lag behind its primary, in milliseconds, if it is measured.
    #[serde(rename = "lag_ms")]
    pub lag_millis: Option<u64>,
}

/// Serializes seconds since the Unix epoch as [`utc`] writes them.
pub(crate) fn as_utc<S: Serializer>(seconds: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&utc(*seconds))
}

/// Returns a server's name for people: its name in metrics, and its address if that differs. A
/// request may use either.
pub(crate) fn shown(pools: &[PoolStatus], pool: &str, server: &str) -> String {
    let of_pool = || pools.iter().filter(|one| one.name == pool).flat_map(|one| &one.backends);
    let named = of_pool().find(|one| one.name == server);
    match named.or_else(|| of_pool().find(|one| one.address == server)) {
        Some(one) if one.name != one.address => format!("{} ({})", one.name, one.address),
        Some(one) => one.name.clone(),
        None => server.to_owned(),
    }
}

/// Returns an object with the array `pools`, with a line for each backend.
pub(crate) fn as_json(pools: &[PoolStatus]) -> String {
    let mut text = "{\"pools\":[".to_owned();
    for (index, pool) in pools.iter().enumerate() {
        text.push_str(if index == 0 { "\n" } else { ",\n" });
        let (name, kind) = (json_string(&pool.name), json_string(pool.kind));
        let _ = write!(text, "{{\"pool\":{name},\"kind\":{kind},\"backends\":[");
        for (index, backend) in pool.backends.iter().enumerate() {
            text.push_str(if index == 0 { "\n  " } else { ",\n  " });
            let _ = write!(
                text,
                "{{\"backend\":{},\"address\":{},\"state\":{},\"reason\":{},\"since\":\"{}\"",
                json_string(&backend.name),
                json_string(&backend.address),
                json_string(backend.state),
                backend.reason.map_or("null".to_owned(), json_string),
                utc(backend.since_unix_seconds),
            );
            if let Some(status) = &backend.status {
                write_status(status, &mut text);
            }
            text.push('}');
        }
        text.push_str("]}");
    }
    text.push_str("\n]}\n");
    text
}

fn write_status(status: &BackendRoleStatus, text: &mut String) {
    let quoted = |value: &Option<String>| value.as_deref().map_or("null".to_owned(), json_string);
    let number = |value: Option<u64>| value.map_or("null".to_owned(), |value| value.to_string());
    let _ = write!(
        text,
        ",\"role\":{},\"of\":{},\"slots\":{},\"zone\":{},\"lag_ms\":{}",
        json_string(status.role),
        quoted(&status.of),
        number(status.slots.map(u64::from)),
        quoted(&status.zone),
        number(status.lag_millis),
    );
}

/// The columns of the table. Those from `role` on are shown if a pool has them.
const COLUMNS: [&str; 12] = [
    "pool", "kind", "backend", "address", "state", "reason", "since", "role", "of", "slots",
    "zone", "lag_ms",
];
const ROLE_COLUMN: usize = 7;

/// Returns a line for each backend, with its fields in columns.
pub(crate) fn as_text(pools: &[PoolStatus]) -> String {
    let none = || "-".to_owned();
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    let mut columns = ROLE_COLUMN;
    for pool in pools {
        let mut blank: [String; COLUMNS.len()] = std::array::from_fn(|_| none());
        (blank[0], blank[1]) = (pool.name.clone(), pool.kind.to_owned());
        if pool.backends.is_empty() {
            rows.push(blank.clone());
        }
        for backend in &pool.backends {
            let mut row = blank.clone();
            row[2..ROLE_COLUMN].clone_from_slice(&[
                backend.name.clone(),
                backend.address.clone(),
                backend.state.to_owned(),
                backend.reason.unwrap_or("-").to_owned(),
                utc(backend.since_unix_seconds),
            ]);
            if let Some(status) = &backend.status {
                columns = COLUMNS.len();
                row[ROLE_COLUMN..].clone_from_slice(&[
                    status.role.to_owned(),
                    status.of.clone().unwrap_or_else(none),
                    status.slots.map_or_else(none, |slots| slots.to_string()),
                    status.zone.clone().unwrap_or_else(none),
                    status.lag_millis.map_or_else(none, |millis| millis.to_string()),
                ]);
            }
            rows.push(row);
        }
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let line: Vec<String> =
            row.iter().zip(&widths).map(|(field, &width)| format!("{field:width$}")).collect();
        let _ = writeln!(text, "{}", line.join("  ").trim_end());
    }
    text
}

fn json_string(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a time such as `2026-01-31T23:59:59Z`, in the form of RFC 3339.
pub fn utc(unix_seconds: u64) -> String {
    let (days, of_day) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Years are counted from March, so that they end with the leap day.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools() -> Vec<PoolStatus> {
        let backend = |name: &str, state, reason| BackendStatus {
            name: name.into(),
            address: "10.0.0.1:6379".into(),
            state,
            reason,
            since_unix_seconds: 1_763_715_481,
            by_hand: false,
            links: 0,
            in_flight: 0,
            status: None,
        };
        let backends =
            vec![backend("alpha", "up", None), backend("b\"\u{1}", "ejected", Some("timeout"))];
        let sharded = PoolStatus { name: "sessions".into(), kind: "sharded", backends };
        vec![sharded, PoolStatus { name: "cache".into(), kind: "store", backends: Vec::new() }]
    }

    #[test]
    fn programs_get_one_object_with_every_backend() {
        let expected = concat!(
            "{\"pools\":[\n",
            "{\"pool\":\"sessions\",\"kind\":\"sharded\",\"backends\":[\n",
            "  {\"backend\":\"alpha\",\"address\":\"10.0.0.1:6379\",\"state\":\"up\",",
            "\"reason\":null,\"since\":\"2025-11-21T08:58:01Z\"},\n",
            "  {\"backend\":\"b\\\"\\u0001\",\"address\":\"10.0.0.1:6379\",\"state\":\"ejected\",",
            "\"reason\":\"timeout\",\"since\":\"2025-11-21T08:58:01Z\"}]},\n",
            "{\"pool\":\"cache\",\"kind\":\"store\",\"backends\":[]}\n]}\n",
        );
        assert_eq!(as_json(&pools()), expected);
        assert_eq!(as_json(&[]), "{\"pools\":[\n]}\n");
    }

    #[test]
    fn people_get_a_line_for_each_backend() {
        let text = as_text(&pools());
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["pool", "kind", "backend", "address", "state", "reason", "since"]);
        let first = ["alpha", "10.0.0.1:6379", "up", "-", "2025-11-21T08:58:01Z"];
        assert_eq!((&lines[1][..2], &lines[1][2..]), (&["sessions", "sharded"][..], &first[..]));
        assert_eq!(lines[3], ["cache", "store", "-", "-", "-", "-", "-"]);
    }

    #[test]
    fn what_a_server_does_is_told_where_that_is_found_out() {
        let mut pools = pools();
        pools[0].backends[1].status = Some(BackendRoleStatus {
            role: "replica",
            of: Some("users".into()),
            slots: None,
            zone: Some("eu-1".into()),
            lag_millis: Some(1000),
        });
        let expected = "\"role\":\"replica\",\"of\":\"users\",\"slots\":null,\"zone\":\"eu-1\",\
                        \"lag_ms\":1000}]}";
        assert!(as_json(&pools).contains(expected), "{}", as_json(&pools));
        let text = as_text(&pools);
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[0][7..], ["role", "of", "slots", "zone", "lag_ms"]);
        assert_eq!(lines[1][7..], ["-"; 5]);
        assert_eq!(lines[2][7..], ["replica", "users", "-", "eu-1", "1000"]);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_704_067_199, "2023-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
