//! Warnings about keys of pools with discovery that have no effect beside other keys.

use crate::address::ListenAddr;
use crate::cluster::parse_read_from;
use crate::error::{Problem, Report, quoted};
use crate::section::{NamedPool, Section, Value};
use keyway_command::{Class, lookup};
use keyway_topology::{Endpoint, ReadFrom};
use std::collections::BTreeMap;

/// Warns of all of them.
pub(crate) fn warn(pools: &[NamedPool], listeners: &[Section], report: &mut Report<'_>) {
    let mut by_pool: BTreeMap<&str, Vec<&Section>> = BTreeMap::new();
    for listener in listeners {
        if let Some(name) = listener.text("pool") {
            by_pool.entry(name).or_default().push(listener);
        }
    }
    for pool in pools {
        let Some((kind @ ("cluster" | "replicated" | "slots"), section)) = &pool.section else {
            continue;
        };
        let listeners = by_pool.get(pool.name.as_str()).map_or(&[][..], |all| all.as_slice());
        warn_of_reads(section, listeners, report);
        warn_of_zones(kind, section, listeners, report);
        warn_of_writes(section, report);
        if section.of_its_table("sentinels").is_none() && *kind == "replicated" {
            warn_of_one_primary(section, report);
        }
    }
    listeners.iter().for_each(|listener| warn_of_announced(listener, report));
}

fn reads_from(section: &Section) -> Option<ReadFrom> {
    parse_read_from(section.text("read_from")?).ok()
}

/// Warns of keys about reads, by the servers that the pool and its listeners may read.
fn warn_of_reads(pool: &Section, listeners: &[&Section], report: &mut Report<'_>) {
    let mut from: Vec<ReadFrom> = reads_from(pool).into_iter().collect();
    // A wrong value is reported elsewhere.
    if from.is_empty() {
        return;
    }
    from.extend(listeners.iter().filter_map(|listener| reads_from(listener)));
    let speaks_memcached = |listener: &&Section| listener.text("protocol") == Some("memcached");
    let is_for_memcached = !listeners.is_empty() && listeners.iter().all(speaks_memcached);
    if is_for_memcached && from[0] != ReadFrom::Primary {
        let what = format!(
            "read_from in {} has no effect: clients of memcached are served by primaries alone",
            pool.header
        );
        let hint = "remove it, or add a listener for Redis clients";
        report.warning(pool.place("read_from"), Problem::new(what, hint));
    }
    let reads_replicas = from.iter().any(|from| *from != ReadFrom::Primary);
    let by_weight = |from: &ReadFrom| !matches!(from, ReadFrom::Primary | ReadFrom::Nearest);
    let keys = ["pin_after_write", "replica_lag_max", "read_weights", "read_from_primary"];
    for key in keys {
        let Some(at) = pool.given(key) else { continue };
        let (why, hint) = if !reads_replicas {
            ("all reads go to primaries", "set read_from, or remove it")
        } else if key == "read_weights" && !from.iter().any(by_weight) {
            (
                "the nearest server is read, whatever its weight",
                "choose another read_from, or remove it",
            )
        } else {
            continue;
        };
        let what = format!("{key} in {} has no effect: {why}", pool.header);
        report.warning(at, Problem::new(what, hint));
    }
}

/// Warns of zones that no server tells.
fn warn_of_zones(kind: &str, pool: &Section, listeners: &[&Section], report: &mut Report<'_>) {
    let tells = kind == "cluster" && pool.text("discovery") == Some("shards");
    if tells {
        return;
    }
    for section in std::iter::once(&pool).chain(listeners) {
        if !matches!(reads_from(section), Some(ReadFrom::Zone(_))) {
            continue;
        }
        let what = format!(
            "read_from in {}: nobody tells the zones of the servers of {}, so it is as \
             \"prefer-replica\"",
            section.header, pool.header
        );
        let hint = match kind {
            "cluster" => "set discovery = \"shards\" in the pool, which Valkey answers with zones",
            _ => "write \"prefer-replica\" or \"nearest\"",
        };
        report.warning(section.place("read_from"), Problem::new(what, hint));
    }
}

/// Warns of listed commands that go to primaries anyway.
fn warn_of_writes(pool: &Section, report: &mut Report<'_>) {
    let Some(Value::Names(names)) = pool.value("read_from_primary") else { return };
    for (at, name) in names {
        let writes = |class: Class| matches!(class, Class::Write | Class::WriteMany);
        if lookup(name.as_bytes()).is_some_and(|command| writes(command.class)) {
            let what = format!(
                "read_from_primary in {}: {} writes, and goes to the primary anyway",
                pool.header,
                quoted(name)
            );
            report.warning(*at, Problem::new(what, "remove it"));
        }
    }
}

/// Warns of keys that concern sentinels or several primaries.
fn warn_of_one_primary(pool: &Section, report: &mut Report<'_>) {
    let secrets = ["sentinel_password", "sentinel_password_file", "sentinel_password_env"];
    for key in ["hash", "distribution"].into_iter().chain(secrets) {
        let Some(at) = pool.given(key) else { continue };
        let why = match key {
            "hash" | "distribution" => "the servers that are listed are one primary's",
            _ => "servers are listed, and no sentinels",
        };
        let what = format!("{key} in {} has no effect: {why}", pool.header);
        report.warning(at, Problem::new(what, "remove it, or list sentinels and primaries"));
    }
}

/// Warns of a set of Keyways that does not include this listener: its clients would take it for
/// another node.
fn warn_of_announced(listener: &Section, report: &mut Report<'_>) {
    let Some(Value::Listen(ListenAddr::Tcp(bind))) = listener.value("bind") else { return };
    let Some(Value::Servers(announced)) = listener.value("cluster_announce") else { return };
    let is_own = |host: &str, port: u16| {
        let ip: Option<std::net::IpAddr> = host.parse().ok();
        port == bind.port() && (bind.ip().is_unspecified() || ip.is_none_or(|ip| ip == bind.ip()))
    };
    let has_own = announced.iter().any(|(_, server)| match &server.endpoint {
        Endpoint::Tcp { host, port } => is_own(host, *port),
        Endpoint::Unix { .. } | Endpoint::Shm { .. } => false,
    });
    if bind.port() != 0 && !has_own && listener.text("cluster_mode") == Some("emulate") {
        let what = format!(
            "cluster_announce in [[listener]] names no address of this listener, which is bound to \
             {bind}: its clients are told that it is one of the others"
        );
        let hint = "name every Keyway, this one too, as clients reach it";
        report.warning(listener.place("cluster_announce"), Problem::new(what, hint));
    }
}
