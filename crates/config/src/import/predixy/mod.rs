//! predixy 1.0.5's files.
//!
//! A key is converted by what predixy does with it. A file has one pool: a Redis Cluster, or groups
//! of servers on which it places keys itself.

mod convert;
mod parse;
mod values;

use super::Import;
use crate::error::{ConfigError, Problem, any_of, nearest, quoted};
use parse::{Node, ReadFile};

/// Keys of the file itself.
const GLOBAL: [&str; 21] = [
    "Name",
    "Bind",
    "LocalDC",
    "WorkerThreads",
    "MaxMemory",
    "ClientTimeout",
    "BufSize",
    "Log",
    "LogRotate",
    "AllowMissLog",
    "LogVerbSample",
    "LogDebugSample",
    "LogInfoSample",
    "LogNoticeSample",
    "LogWarnSample",
    "LogErrorSample",
    "LatencyMonitor",
    "Authority",
    "DataCenter",
    "CustomCommand",
    "Include",
];

/// The kinds of pools.
const POOLS: [&str; 3] = ["ClusterServerPool", "StandaloneServerPool", "SentinelServerPool"];

/// Keys of every pool, and keys of pools that place keys.
const OF_POOL: [&str; 10] = [
    "Password",
    "MasterReadPriority",
    "StaticSlaveReadPriority",
    "DynamicSlaveReadPriority",
    "RefreshInterval",
    "ServerTimeout",
    "ServerFailureLimit",
    "ServerRetryTimeout",
    "KeepAlive",
    "Databases",
];
const OF_GROUPS: [&str; 6] =
    ["RefreshMethod", "Distribution", "Hash", "HashTag", "Sentinels", "Group"];

/// Most unknown keys that are reported. A file with more of them is another program's.
const UNKNOWN_TOLD_MAX: usize = 5;

/// Converts a text. `read` reads the files that it includes.
pub(super) fn import(
    text: &str,
    path: &str,
    read: ReadFile<'_>,
) -> Result<Import, Vec<ConfigError>> {
    let nodes = parse::parse(text, path, read).map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let pool = check(&nodes, &mut errors);
    let count = errors.len();
    if count > UNKNOWN_TOLD_MAX {
        errors.truncate(UNKNOWN_TOLD_MAX);
        let more = count - UNKNOWN_TOLD_MAX;
        let what = format!("and {more} more mistakes of that kind");
        let hint = "is this predixy's file?".to_owned();
        let line = errors.last().map_or(1, |last| last.line);
        errors.push(ConfigError { path: path.to_owned(), line, column: 1, what, hint });
    }
    let Some(pool) = pool.filter(|_| errors.is_empty()) else {
        if errors.is_empty() {
            let what = "no pool is in the file".to_owned();
            let hint = format!("predixy wants {}", any_of(POOLS));
            errors.push(ConfigError { path: path.to_owned(), line: 1, column: 1, what, hint });
        }
        return Err(errors);
    };
    convert::convert(&nodes, pool, path)
}

/// Reports keys that predixy does not know, and finds the pool.
fn check<'n>(nodes: &'n [Node], errors: &mut Vec<ConfigError>) -> Option<&'n Node> {
    let mut found: Option<&Node> = None;
    for node in nodes {
        if POOLS.iter().any(|pool| node.is(pool)) {
            if let Some(other) = found {
                let what = format!(
                    "{} is a second pool: line {} has {}, and predixy has one",
                    node.key, other.at.line, other.key
                );
                errors.push(node.at.error(Problem::new(what, "give each pool a file of its own")));
            }
            let extra: &[&str] = match node.is(POOLS[0]) {
                true => &["Servers"],
                false => &OF_GROUPS,
            };
            for inner in node.inner() {
                check_key(inner, OF_POOL.iter().chain(extra).copied(), &node.key, errors);
            }
            found = Some(node);
        } else {
            check_key(node, GLOBAL.iter().chain(&POOLS).copied(), "the file", errors);
        }
    }
    found
}

fn check_key<'k>(
    node: &Node,
    known: impl Iterator<Item = &'k str> + Clone,
    place: &str,
    errors: &mut Vec<ConfigError>,
) {
    if known.clone().any(|key| node.is(key)) {
        return;
    }
    let hint = match nearest(&node.key, known.clone()) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        // The list of known keys of one place fills a screen, so it is shown once.
        None if errors.iter().any(|error| is_of(error, place)) => {
            "predixy does not know it".to_owned()
        }
        None => format!("{KNOWN} {}", known.collect::<Vec<_>>().join(", ")),
    };
    let what = format!("unknown key {} in {place}", quoted(&node.key));
    errors.push(node.at.error(Problem::new(what, hint)));
}

const KNOWN: &str = "predixy knows";

/// Returns whether an error lists the known keys of a place already.
fn is_of(error: &ConfigError, place: &str) -> bool {
    error.hint.starts_with(KNOWN) && error.what.ends_with(place)
}
