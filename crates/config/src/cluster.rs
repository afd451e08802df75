//! Pools of kind `"cluster"`.

use crate::error::{Problem, Report, quoted};
use crate::reader::{Section, Value};
use keyway_command::lookup;
use keyway_topology::{ClusterPool, Discovery, ReadFrom, ReadPolicy, Server, ShardedPool};
use std::time::Duration;

/// A pool that finds its servers out, of which `seeds` are known.
pub(crate) fn resolve(section: &Section, seeds: &[Server], report: &mut Report<'_>) -> ShardedPool {
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
    ShardedPool::of_cluster(ClusterPool {
        seeds: seeds.iter().map(|server| server.endpoint.clone()).collect(),
        nodes_max,
        discovery: discovery(section.text("discovery")),
        refresh: section.duration("refresh").unwrap_or(Duration::MAX),
        redirections_max: section.number_u32("redirections_max") as u8,
        reads: reads(section, report),
    })
}

/// What is read from replicas.
fn reads(section: &Section, report: &mut Report<'_>) -> ReadPolicy {
    let from = section.text("read_from").and_then(|text| parse_read_from(text).ok());
    let mut primary_commands: Vec<Box<str>> = Vec::new();
    let names = match section.value("read_from_primary") {
        Some(Value::Names(names)) => names.as_slice(),
        _ => &[],
    };
    for (at, name) in names {
        match lookup(name.as_bytes()) {
            Some(command) => primary_commands.push(command.name.into()),
            None => {
                let what = format!(
                    "read_from_primary in {}: no command is called {}",
                    section.header,
                    quoted(name)
                );
                report.consequence(*at, Problem::new(what, "write commands as Redis names them"));
            }
        }
    }
    let weights = match section.value("read_weights") {
        Some(Value::Servers(servers)) => {
            servers.iter().map(|(_, server)| (server.endpoint.clone(), server.weight)).collect()
        }
        _ => Vec::new(),
    };
    ReadPolicy {
        from: from.unwrap_or_default(),
        pin_after_write: section.duration("pin_after_write"),
        lag_max: section.duration("replica_lag_max"),
        weights,
        primary_commands,
    }
}

const READ_FROM_HINT: &str =
    "write \"primary\", \"prefer-replica\", \"replica\", \"nearest\" or \"zone:NAME\"";

/// Reads which servers are read.
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

/// The words for it in the file.
pub(crate) fn read_from_name(from: &ReadFrom) -> String {
    match from {
        ReadFrom::Primary => "primary".to_owned(),
        ReadFrom::PreferReplica => "prefer-replica".to_owned(),
        ReadFrom::Replica => "replica".to_owned(),
        ReadFrom::Nearest => "nearest".to_owned(),
        ReadFrom::Zone(zone) => format!("zone:{zone}"),
    }
}

fn discovery(word: Option<&str>) -> Discovery {
    match word {
        Some("shards") => Discovery::Shards,
        Some("nodes") => Discovery::Nodes,
        _ => Discovery::Slots,
    }
}

/// The word for it in the file.
pub(crate) fn discovery_name(discovery: Discovery) -> &'static str {
    match discovery {
        Discovery::Slots => "slots",
        Discovery::Shards => "shards",
        Discovery::Nodes => "nodes",
    }
}
