//! Pools of kind `"cluster"` and `"replicated"`, which discover their servers.

use crate::commands::commands;
use crate::error::{Problem, Report, quoted};
use crate::kinds;
use crate::model::{PoolConfig, PoolKindConfig, ServersConfig};
use crate::secret::ReadFile;
use crate::section::{NamedPool, Section, Value};
use crate::tls;
use crate::value::format_duration;
use keyway_topology::{
    ClusterPool, Discovery, Endpoint, FailoverPolicy, PrimarySource, ReadFrom, ReadPolicy,
    ReplicatedPool, Server, ServerOptions, ServerSet, SlotQuery,
};
use std::time::Duration;

/// Reads a pool of kind `"cluster"`, of which `seeds` are listed.
pub(crate) fn resolve(section: &Section, seeds: &[Server], report: &mut Report<'_>) -> ClusterPool {
    if let Some(odd) = seeds.iter().find(|server| server.weight != 1 || server.name.is_some()) {
        let text = odd.to_string();
        let what = format!(
            "servers in {}: {} has a weight or a name, and a cluster shares its slots out itself",
            section.header,
            quoted(&text)
        );
        let hint = format!("write {}", quoted(&odd.endpoint.to_string()));
        report.consequence(section.place("servers"), Problem::new(what, hint));
    }
    let is_local = |seed: &&Server| !matches!(seed.endpoint, Endpoint::Tcp { .. });
    if let Some(odd) = seeds.iter().find(is_local) {
        let text = odd.endpoint.to_string();
        let what = format!(
            "servers in {}: {} is a unix socket, and servers of a cluster name each other by host \
             and port",
            section.header,
            quoted(&text)
        );
        report.consequence(section.place("servers"), Problem::new(what, "write \"HOST:PORT\""));
    }
    let nodes_max = section.number_u32("nodes_max") as u16;
    if nodes_max > 0 && seeds.len() > usize::from(nodes_max) {
        let what = format!(
            "servers in {}: {} are listed, more than nodes_max",
            section.header,
            seeds.len()
        );
        report.consequence(
            section.place("servers"),
            Problem::new(what, "list a few: the others are found"),
        );
    }
    ClusterPool::new(query(section.text("discovery")), discovery(section, seeds, report))
}

/// Reads a pool of kind `"replicated"`: one primary with replicas, or several. The sentinels have a
/// pool of their own, called [`sentinel_pool`].
pub(crate) fn replicated(
    name: &str,
    section: &Section,
    seeds: &[Server],
    report: &mut Report<'_>,
) -> ReplicatedPool {
    let has_sentinels = section.given("sentinels").is_some();
    let primaries: Vec<String> = match section.value("primaries") {
        Some(Value::Names(names)) => names.iter().map(|(_, name)| name.clone()).collect(),
        _ => Vec::new(),
    };
    let wrong = match (has_sentinels, section.given("servers"), section.given("primaries")) {
        (true, Some(at), _) => Some((
            at,
            "has sentinels and servers",
            "keep one of the two: sentinels tell the servers",
        )),
        (false, None, _) => Some((
            section.at,
            "has neither sentinels nor servers",
            "add sentinels and primaries, or servers",
        )),
        (true, None, None) => Some((
            section.at,
            "has sentinels and no primaries",
            "add primaries, as Sentinel calls them",
        )),
        (false, Some(_), Some(at)) => Some((
            at,
            "has primaries and no sentinels",
            "remove primaries: servers that are listed are one primary's",
        )),
        _ => None,
    };
    if let Some((at, what, hint)) = wrong {
        report.consequence(at, Problem::new(format!("{} {what}", section.header), hint));
    } else if has_sentinels && primaries.is_empty() {
        let what = format!("{} has sentinels and no primaries", section.header);
        report.consequence(section.place("primaries"), Problem::new(what, "name one or more"));
    }
    let mut known = std::collections::BTreeSet::new();
    if let Some(twice) = primaries.iter().find(|name| !known.insert(*name)) {
        let what = format!("primaries in {}: {} is there twice", section.header, quoted(twice));
        report.consequence(section.place("primaries"), Problem::new(what, "leave one of them"));
    }
    let mut discovery = discovery(section, seeds, report);
    let source = match has_sentinels {
        true => PrimarySource::Sentinels { pool: sentinel_pool(name), primaries },
        false => {
            // No other servers are discovered.
            discovery.nodes_max = seeds.len() as u16;
            PrimarySource::Servers
        }
    };
    let mut pool = ReplicatedPool::new(source, discovery);
    let placed = crate::servers::placed(section, Vec::new(), report);
    let (hash, distribution, hash_tag) = (placed.hash, placed.distribution, placed.hash_tag);
    pool.servers = ServerSet { hash, distribution, hash_tag, ..pool.servers };
    pool.failover = failover(section, Some(&pool.source), &pool.discovery, report);
    pool
}

/// Reads the table `failover`. `source` tells the primary of a pool that lists no groups.
pub(crate) fn failover(
    section: &Section,
    source: Option<&PrimarySource>,
    discovery: &Discovery,
    report: &mut Report<'_>,
) -> Option<FailoverPolicy> {
    let table = section.section("failover")?;
    let down_after = table.duration("down_after");
    let is_often = |time| discovery.refresh.saturating_mul(2) <= time;
    let is_tcp = |server: &Endpoint| matches!(server, Endpoint::Tcp { .. });
    let wrong = if source.is_some_and(|source| *source != PrimarySource::Servers) {
        Some((
            "sentinels fail over, and the pool follows them".to_owned(),
            "remove failover, or list servers in place of sentinels",
        ))
    } else if !discovery.seeds.iter().all(is_tcp) {
        Some((
            "a server is told its primary by host and port, and one of these has none".to_owned(),
            "write every server as \"HOST:PORT\"",
        ))
    } else if down_after.is_some_and(|time| !is_often(time)) {
        Some((
            "servers are asked every `refresh`, which is more than half of `down_after`".to_owned(),
            "set refresh lower, or down_after higher",
        ))
    } else {
        None
    };
    if let Some((what, hint)) = wrong {
        let what = format!("failover in {}: {what}", section.header);
        report.consequence(section.place("failover"), Problem::new(what, hint));
    }
    let quorum = table.number("quorum").and_then(|quorum| u32::try_from(quorum).ok());
    // A wrong time has its own error, and no configuration comes of it.
    Some(FailoverPolicy { down_after: down_after.unwrap_or_default(), quorum })
}

/// Returns the table `failover` as it stands in a file.
pub(crate) fn failover_text(failover: &FailoverPolicy) -> String {
    let down_after = format_duration(failover.down_after);
    match failover.quorum {
        Some(quorum) => format!("{{ down_after = \"{down_after}\", quorum = {quorum} }}"),
        None => format!("{{ down_after = \"{down_after}\" }}"),
    }
}

/// Returns the name of the pool of a pool's sentinels. No pool of a file can have this name.
pub(crate) fn sentinel_pool(name: &str) -> String {
    format!("{name}/sentinels")
}

/// Returns a pool of sentinels for each pool that has some.
pub(crate) fn sentinel_pools(
    named: &[NamedPool],
    pools: &[PoolConfig],
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Vec<PoolConfig> {
    let mut of_pool = |(named, pool): (&NamedPool, &PoolConfig)| {
        let Some(("replicated", section)) = &named.section else { return None };
        let PoolKindConfig::Replicated(asked_about, config) = &pool.kind else { return None };
        let tls = tls::of_sentinels(section, config.tls.as_ref(), read_file, report);
        let Some(Value::Servers(servers)) = section.value("sentinels") else { return None };
        let data = &asked_about.servers.options;
        let servers = servers.iter().map(|(_, server)| server.clone()).collect();
        let keys = ["sentinel_password", "sentinel_password_file", "sentinel_password_env"];
        let (password, password_from) = crate::secret::password(section, keys, read_file, report);
        let options = ServerOptions {
            password,
            timeout: data.timeout.min(SENTINEL_TIMEOUT_MAX),
            connect_timeout: data.connect_timeout,
            reconnect_min: data.reconnect_min,
            reconnect_max: data.reconnect_max.min(SENTINEL_TIMEOUT_MAX),
            slower_than: Duration::MAX,
            slow_log_len_max: 0,
            ..ServerOptions::default()
        };
        let set = ServerSet { options, ..ServerSet::new(servers) };
        let config = ServersConfig { password_from, clients_max: config.clients_max, tls };
        let kind = PoolKindConfig::Sentinels(set, config);
        Some(PoolConfig { name: sentinel_pool(&named.name), kind })
    };
    named.iter().zip(pools).filter_map(&mut of_pool).collect()
}

/// Longest wait for a sentinel. After that another one is asked.
const SENTINEL_TIMEOUT_MAX: Duration = Duration::from_secs(1);

/// Reads how a pool finds its servers. A pool that lists all of its servers sets `nodes_max` itself.
pub(crate) fn discovery(section: &Section, seeds: &[Server], report: &mut Report<'_>) -> Discovery {
    let nodes_max = match section.of_its_table("nodes_max") {
        Some(Value::Number(number)) => u16::try_from(*number).unwrap_or(u16::MAX),
        _ => 0,
    };
    Discovery {
        seeds: seeds.iter().map(|server| server.endpoint.clone()).collect(),
        nodes_max,
        refresh: section.duration("refresh").unwrap_or(Duration::MAX),
        redirections_max: section.number_u32("redirections_max") as u8,
        retry_percent: crate::hedge::share(section, "retry_budget"),
        wait_for_primary: section.duration("wait_for_primary"),
        reads: reads(section, report),
    }
}

/// Reads the policy of reads from replicas.
fn reads(section: &Section, report: &mut Report<'_>) -> ReadPolicy {
    let from = section.text("read_from").and_then(|text| parse_read_from(text).ok());
    let weights = match section.value("read_weights") {
        Some(Value::Servers(servers)) => {
            servers.iter().map(|(_, server)| (server.endpoint.clone(), server.weight)).collect()
        }
        _ => Vec::new(),
    };
    let from = from.unwrap_or_default();
    let outliers = crate::circuit::outliers(section, &from, report);
    ReadPolicy {
        from,
        pin_after_write: section.duration("pin_after_write"),
        lag_max: section.duration("replica_lag_max"),
        weights,
        primary_commands: commands(section, "read_from_primary", report),
        outliers,
        hedge: crate::hedge::resolve(section, report),
        // The listeners are considered when a topology is made.
        is_nearest_for_some: false,
    }
}

/// Reads from which servers clients of a listener read, if the listener sets that. Its pool must
/// have replicas.
pub(crate) fn read_from_of_listener(
    section: &Section,
    pool: Option<&(&'static str, Section)>,
    report: &mut Report<'_>,
) -> Option<ReadFrom> {
    let from = parse_read_from(section.text("read_from")?).ok()?;
    let refusal = match pool {
        _ if section.text("protocol") == Some("memcached") => {
            Some("is for clients of Redis, and protocol says memcached".to_owned())
        }
        Some(("replicated", pool)) if is_one(pool) => {
            Some(format!("{} lists one server, which has no replicas", pool.header))
        }
        None => None,
        Some((kind, _)) if kinds::discovers(kind) => None,
        Some((kind, pool)) => {
            Some(format!("{} is of kind \"{kind}\" and has no replicas to read", pool.header))
        }
    };
    if let Some(why) = refusal {
        let what = format!("read_from in [[listener]]: {why}");
        let hint = "remove it, or name a pool of kind \"cluster\", \"replicated\" or \"slots\"";
        report.consequence(section.place("read_from"), Problem::new(what, hint));
    }
    Some(from)
}

/// Returns whether there is one server and no source that tells of others.
fn is_one(pool: &Section) -> bool {
    matches!(pool.value("servers"), Some(Value::Servers(servers)) if servers.len() == 1)
}

const READ_FROM_HINT: &str =
    "write \"primary\", \"prefer-replica\", \"replica\", \"nearest\" or \"zone:NAME\"";

/// Reads the value of `read_from`.
pub(crate) fn parse_read_from(text: &str) -> Result<ReadFrom, Problem> {
    match text {
        "primary" => Ok(ReadFrom::Primary),
        "prefer-replica" => Ok(ReadFrom::PreferReplica),
        "replica" => Ok(ReadFrom::Replica),
        "nearest" => Ok(ReadFrom::Nearest),
        _ => match text.strip_prefix("zone:") {
            Some(zone) if !zone.is_empty() => Ok(ReadFrom::Zone(zone.into())),
            _ => Err(Problem::new(format!("{} is not known", quoted(text)), READ_FROM_HINT)),
        },
    }
}

/// Returns the value of `read_from` in the file.
pub(crate) fn read_from_name(from: &ReadFrom) -> String {
    match from {
        ReadFrom::Primary => "primary".to_owned(),
        ReadFrom::PreferReplica => "prefer-replica".to_owned(),
        ReadFrom::Replica => "replica".to_owned(),
        ReadFrom::Nearest => "nearest".to_owned(),
        ReadFrom::Zone(zone) => format!("zone:{zone}"),
    }
}

fn query(word: Option<&str>) -> SlotQuery {
    match word {
        Some("shards") => SlotQuery::Shards,
        Some("nodes") => SlotQuery::Nodes,
        _ => SlotQuery::Slots,
    }
}

/// Returns the word for the query in the file.
pub(crate) fn query_name(query: SlotQuery) -> &'static str {
    match query {
        SlotQuery::Slots => "slots",
        SlotQuery::Shards => "shards",
        SlotQuery::Nodes => "nodes",
    }
}
