//! Pools of kind `"cluster"`.

use crate::error::{Problem, Report, quoted};
use crate::reader::Section;
use keyway_topology::{ClusterPool, Discovery, Server, ShardedPool};
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
    })
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
