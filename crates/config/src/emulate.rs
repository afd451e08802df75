//! Listeners that pose as a Redis Cluster to their clients.

use crate::address::ListenAddr;
use crate::error::{Problem, Report, quoted};
use crate::model::ClusterModeConfig;
use crate::named::NamedPools;
use crate::section::{Section, Value};
use keyway_topology::{Endpoint, Server};
use std::collections::BTreeMap;

/// Most Keyways of one set. Each of them monitors all the others.
const ANNOUNCED_MAX: usize = 64;

/// Reads the cluster as which a listener poses to its clients, if it does.
pub(crate) fn resolve(
    section: &Section,
    bind: &ListenAddr,
    report: &mut Report<'_>,
) -> Option<ClusterModeConfig> {
    let announced = announced(section, report);
    if section.text("cluster_mode") != Some("emulate") {
        // If `cluster_mode` is wrong and reported, it says nothing about the other key.
        if section.text("cluster_mode").is_some()
            && let Some(at) = section.given("cluster_announce")
        {
            let what = "cluster_announce in [[listener]] is for cluster_mode = \"emulate\" only";
            let hint = "add cluster_mode = \"emulate\", or remove it";
            report.consequence(at, Problem::new(what.to_owned(), hint));
        }
        return None;
    }
    let at = section.place("cluster_mode");
    if section.text("protocol") == Some("memcached") {
        let what =
            "cluster_mode in [[listener]] is for clients of Redis, and protocol says memcached";
        report.consequence(at, Problem::new(what.to_owned(), "remove one of the two"));
    }
    if let (ListenAddr::Unix(_) | ListenAddr::Shm(_), None) =
        (bind, section.given("cluster_announce"))
    {
        let what = "cluster_mode in [[listener]]: clients of a cluster connect to addresses, and a \
                    unix socket has none";
        let hint = "bind a TCP address, or give those of the others in cluster_announce";
        report.consequence(at, Problem::new(what.to_owned(), hint));
    }
    Some(ClusterModeConfig { announce: announced })
}

fn announced(section: &Section, report: &mut Report<'_>) -> Vec<(String, u16)> {
    let Some(Value::Servers(servers)) = section.value("cluster_announce") else {
        return Vec::new();
    };
    let mut announced: Vec<(String, u16)> = Vec::new();
    for (at, server) in servers {
        let text = match server {
            Server { endpoint, weight: 1, name: None } => endpoint.to_string(),
            _ => server.to_string(),
        };
        let mut refuse = |what: &str, hint: String| {
            let what = format!("cluster_announce in [[listener]]: {} {what}", quoted(&text));
            report.consequence(*at, Problem::new(what, hint));
        };
        match server {
            Server { endpoint: Endpoint::Tcp { host, port }, weight: 1, name: None } => {
                let address = (host.clone(), *port);
                match announced.contains(&address) {
                    true => refuse("is there twice", "name every Keyway once".to_owned()),
                    false => announced.push(address),
                }
            }
            Server { endpoint: endpoint @ Endpoint::Tcp { .. }, .. } => refuse(
                "has a weight or a name, and the slots are shared out evenly",
                format!("write {}", quoted(&endpoint.to_string())),
            ),
            Server { endpoint: Endpoint::Unix { .. } | Endpoint::Shm { .. }, .. } => refuse(
                "is no address that clients of a cluster connect to",
                "write \"HOST:PORT\"".to_owned(),
            ),
        }
    }
    if announced.len() > ANNOUNCED_MAX {
        let what = format!("cluster_announce in [[listener]] names {} Keyways", announced.len());
        let hint = format!("name up to {ANNOUNCED_MAX}");
        report.consequence(section.place("cluster_announce"), Problem::new(what, hint));
    }
    announced
}

/// Warns if Keyways of a set each have a store of their own: they would not find each other's keys.
pub(crate) fn warn_of_stores(
    listeners: &[Section],
    pools: &NamedPools<'_>,
    report: &mut Report<'_>,
) {
    let mut emulated: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for listener in listeners {
        if listener.text("cluster_mode") == Some("emulate") {
            *emulated.entry(listener.text("pool")).or_default() += 1;
        }
    }
    for listener in listeners {
        let name = listener.text("pool");
        let Some(Value::Servers(announced)) = listener.value("cluster_announce") else { continue };
        let own = emulated.get(&name).copied().unwrap_or(0);
        let is_store = matches!(name.and_then(|name| pools.section(name)), Some(("store", _)));
        if !is_store || announced.len() <= own {
            continue;
        }
        let what = format!(
            "cluster_announce in [[listener]] names {} Keyways, and pool {} keeps its keys in this \
             one: what a client stores through another is not found here",
            announced.len(),
            quoted(name.unwrap_or_default()),
        );
        let hint = "announce listeners of this process only, or use a pool of servers";
        report.warning(listener.place("cluster_announce"), Problem::new(what, hint));
    }
}
