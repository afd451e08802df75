//! Describes pools of servers.

use super::out::{Out, secret, slow_log};
use crate::circuit::{circuit_text, outliers_text};
use crate::cluster::{failover_text, query_name, read_from_name};
use crate::model::{PoolConfig, ServersConfig};
use crate::schema::{self, Table};
use crate::secret::PASSWORD;
use crate::slots::ranges_text;
use crate::tls;
use crate::toml_text::string;
use crate::value::format_duration;
use keyway_memcache::Dialect;
use keyway_topology::{
    ClusterPool, Discovery, Ejection, FailoverPolicy, HashTag, HedgeAfter, HedgePolicy,
    MemcachedPool, PrimarySource, Rejoin, ReplicatedPool, ServerOptions, ServerSet, SlotsPool,
};

pub(super) fn sharded(set: &ServerSet, config: &ServersConfig, out: &mut Out) {
    let (table, options) = (&schema::SHARDED, &set.options);
    out.entry(table, "kind", &string("sharded"));
    servers(table, set.servers.iter().map(ToString::to_string), out);
    placed(set, table, out);
    connections(options, table, out);
    secret(table, PASSWORD, &options.password, &config.password_from, out);
    out.entry(table, "database", &options.database.to_string());
    out.entry(table, "databases", &options.databases_allowed.to_string());
    out.entry(table, "allow_flush", &options.allow_flush.to_string());
    slow_log(table, (options.slower_than, options.slow_log_len_max), out);
    bounds((options, config), table, out);
}

pub(super) fn memcached(pool: &MemcachedPool, config: &ServersConfig, out: &mut Out) {
    let (table, options) = (&schema::MEMCACHED, &pool.servers.options);
    out.entry(table, "kind", &string("memcached"));
    servers(table, pool.servers.servers.iter().map(ToString::to_string), out);
    out.entry(table, "server_protocol", &string(server_protocol(pool.dialect)));
    placed(&pool.servers, table, out);
    connections(options, table, out);
    if let Some(user) = &pool.user {
        out.entry(table, "user", &string(user));
    }
    secret(table, PASSWORD, &options.password, &config.password_from, out);
    out.entry(table, "allow_flush", &options.allow_flush.to_string());
    if let Some(warm_up) = &pool.warm_up {
        out.entry(table, "warm_from", &string(&warm_up.from));
        out.entry(table, "warm_ttl_max", &string(&format_duration(warm_up.ttl_max)));
        if let Some(lasts) = warm_up.lasts {
            out.entry(table, "warm_for", &string(&format_duration(lasts)));
        }
    }
    bounds((options, config), table, out);
}

pub(super) fn cluster(pool: &ClusterPool, config: &ServersConfig, out: &mut Out) {
    let (table, options) = (&schema::CLUSTER, &pool.servers.options);
    out.entry(table, "kind", &string("cluster"));
    servers(table, pool.discovery.seeds.iter().map(ToString::to_string), out);
    out.entry(table, "discovery", &string(query_name(pool.query)));
    found_out(&pool.discovery, table, true, out);
    connections(options, table, out);
    secret(table, PASSWORD, &options.password, &config.password_from, out);
    out.entry(table, "allow_flush", &options.allow_flush.to_string());
    slow_log(table, (options.slower_than, options.slow_log_len_max), out);
    bounds((options, config), table, out);
}

pub(super) fn replicated(
    pool: &ReplicatedPool,
    config: &ServersConfig,
    pools: &[PoolConfig],
    out: &mut Out,
) {
    let (table, options) = (&schema::REPLICATED, &pool.servers.options);
    out.entry(table, "kind", &string("replicated"));
    match &pool.source {
        PrimarySource::Servers | PrimarySource::Groups(_) => {
            servers(table, pool.discovery.seeds.iter().map(ToString::to_string), out);
        }
        PrimarySource::Sentinels { pool, primaries } => {
            sentinels((pool, primaries), config, pools, out);
        }
    }
    placed(&pool.servers, table, out);
    found_out(&pool.discovery, table, pool.source != PrimarySource::Servers, out);
    of_groups(pool.failover.as_ref(), (options, config), table, out);
}

pub(super) fn slots(pool: &SlotsPool, config: &ServersConfig, out: &mut Out) {
    let (table, options) = (&schema::SLOTS, &pool.servers.options);
    out.entry(table, "kind", &string("slots"));
    out.entry(table, "slots", &pool.map.space().count().to_string());
    let groups = (0..).zip(&pool.groups).map(|(number, group)| {
        let servers: Vec<String> =
            group.servers.iter().map(|server| string(&server.to_string())).collect();
        let (name, slots) = (string(&group.name), string(&ranges_text(&pool.map, number)));
        let servers = servers.join(", ");
        format!("  {{ name = {name}, servers = [{servers}], slots = {slots} }},\n")
    });
    out.entry(table, "groups", &format!("[\n{}]", groups.collect::<String>()));
    found_out(&pool.discovery, table, false, out);
    of_groups(pool.failover.as_ref(), (options, config), table, out);
}

/// Writes what pools of primaries with replicas have in common.
fn of_groups(
    failover: Option<&FailoverPolicy>,
    (options, config): (&ServerOptions, &ServersConfig),
    table: &'static Table,
    out: &mut Out,
) {
    if let Some(failover) = failover {
        out.entry(table, "failover", &failover_text(failover));
    }
    connections(options, table, out);
    secret(table, PASSWORD, &options.password, &config.password_from, out);
    out.entry(table, "allow_flush", &options.allow_flush.to_string());
    slow_log(table, (options.slower_than, options.slow_log_len_max), out);
    bounds((options, config), table, out);
}

/// Writes the sentinels of a pool. They are a pool of their own, under a name made from this
/// pool's.
fn sentinels(
    (name, primaries): (&str, &[String]),
    config: &ServersConfig,
    pools: &[PoolConfig],
    out: &mut Out,
) {
    let table = &schema::REPLICATED;
    let list = |names: &[String]| {
        let names: Vec<String> = names.iter().map(|name| string(name)).collect();
        format!("[{}]", names.join(", "))
    };
    let asked = pools.iter().find(|pool| pool.name == name);
    let Some((asked, asked_config)) = asked.and_then(|pool| pool.kind.servers()) else { return };
    let servers = asked.servers.iter().map(|server| server.endpoint.to_string());
    out.entry(table, "sentinels", &list(&servers.collect::<Vec<_>>()));
    out.entry(table, "primaries", &list(primaries));
    let keys = ["sentinel_password", "sentinel_password_file", "sentinel_password_env"];
    secret(table, keys, &asked.options.password, &asked_config.password_from, out);
    let own = asked_config.tls.as_ref().map(|tls| tls::text(&tls.settings));
    if own != config.tls.as_ref().map(|tls| tls::text(&tls.settings)) {
        let own = own.unwrap_or_else(|| string("off"));
        out.entry(table, "sentinel_tls", &own);
    }
}

/// Writes the settings of connections to the servers of a pool.
fn connections(options: &ServerOptions, table: &'static Table, out: &mut Out) {
    out.entry(table, "timeout", &string(&format_duration(options.timeout)));
    out.entry(table, "connect_timeout", &string(&format_duration(options.connect_timeout)));
    out.entry(table, "server_connections", &options.server_connections.to_string());
    out.entry(table, "preconnect", &options.preconnect.to_string());
}

/// Writes ejection, circuit, TLS and the bounds of a pool of servers.
fn bounds(
    (options, config): (&ServerOptions, &ServersConfig),
    table: &'static Table,
    out: &mut Out,
) {
    if let Some(ejection) = &options.ejection {
        out.entry(table, "ejection", &ejection_text(ejection));
    }
    if let Some(circuit) = &options.circuit {
        out.entry(table, "circuit", &circuit_text(circuit));
    }
    if let Some(tls) = &config.tls {
        out.entry(table, "tls", &tls::text(&tls.settings));
    }
    let (min, max) =
        (format_duration(options.reconnect_min), format_duration(options.reconnect_max));
    out.entry(table, "reconnect", &format!("{{ min = \"{min}\", max = \"{max}\" }}"));
    out.entry(table, "clients_max", &config.clients_max.to_string());
    out.entry(table, "queue_len_max", &options.link_in_flight_max.to_string());
}

/// Writes the placement of the keys of a pool.
fn placed(set: &ServerSet, table: &'static Table, out: &mut Out) {
    out.entry(table, "hash", &string(set.hash.name()));
    out.entry(table, "distribution", &string(set.distribution.name()));
    let hash_tag = set.hash_tag.as_ref().map_or(String::new(), HashTag::to_string);
    out.entry(table, "hash_tag", &string(&hash_tag));
}

/// Writes the settings of discovery. `finds_others` is false if all servers are listed: their
/// number then has no bound.
fn found_out(pool: &Discovery, table: &'static Table, finds_others: bool, out: &mut Out) {
    out.entry(table, "refresh", &string(&format_duration(pool.refresh)));
    if finds_others {
        out.entry(table, "nodes_max", &pool.nodes_max.to_string());
    }
    out.entry(table, "redirections_max", &pool.redirections_max.to_string());
    let reads = &pool.reads;
    out.entry(table, "read_from", &string(&read_from_name(&reads.from)));
    if let Some(pin) = reads.pin_after_write {
        out.entry(table, "pin_after_write", &string(&format_duration(pin)));
    }
    if let Some(lag) = reads.lag_max {
        out.entry(table, "replica_lag_max", &string(&format_duration(lag)));
    }
    if !reads.weights.is_empty() {
        let weights = reads.weights.iter().map(|(endpoint, weight)| format!("{endpoint}:{weight}"));
        let quoted: Vec<String> = weights.map(|weight| string(&weight)).collect();
        out.entry(table, "read_weights", &format!("[{}]", quoted.join(", ")));
    }
    let commands: Vec<String> = reads.primary_commands.iter().map(|name| string(name)).collect();
    out.entry(table, "read_from_primary", &format!("[{}]", commands.join(", ")));
    if let Some(outliers) = &reads.outliers {
        out.entry(table, "outliers", &outliers_text(outliers));
    }
    if let Some(hedge) = &reads.hedge {
        hedged(hedge, table, out);
    }
    if let Some(percent) = pool.retry_percent {
        out.entry(table, "retry_budget", &string(&format!("{percent}%")));
    }
    if let Some(wait) = pool.wait_for_primary {
        out.entry(table, "wait_for_primary", &string(&format_duration(wait)));
    }
}

fn hedged(hedge: &HedgePolicy, table: &'static Table, out: &mut Out) {
    match hedge.after {
        HedgeAfter::Fixed(after) => {
            out.entry(table, "hedge_after", &string(&format_duration(after)));
        }
        HedgeAfter::P99 { min, max } => {
            out.entry(table, "hedge_after", &string("p99"));
            out.entry(table, "hedge_after_min", &string(&format_duration(min)));
            out.entry(table, "hedge_after_max", &string(&format_duration(max)));
        }
    }
    out.entry(table, "hedge_budget", &string(&format!("{}%", hedge.budget_percent)));
}

fn servers(table: &'static Table, servers: impl Iterator<Item = String>, out: &mut Out) {
    let lines = servers.map(|server| format!("  {},\n", string(&server)));
    out.entry(table, "servers", &format!("[\n{}]", lines.collect::<String>()));
}

/// Returns the name of the protocol in which memcached servers are asked.
fn server_protocol(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Text => "text",
        Dialect::Meta => "meta",
        Dialect::Binary => "binary",
    }
}

fn ejection_text(ejection: &Ejection) -> String {
    let rejoin = match ejection.rejoin {
        Rejoin::Serve => "serve".to_owned(),
        Rejoin::Flush => "flush".to_owned(),
        Rejoin::Quarantine(None) => "quarantine".to_owned(),
        Rejoin::Quarantine(Some(time)) => format!("quarantine {}", format_duration(time)),
    };
    format!(
        "{{ after_failures = {}, for = \"{}\", rejoin = \"{rejoin}\" }}",
        ejection.after_failures,
        format_duration(ejection.for_)
    )
}
