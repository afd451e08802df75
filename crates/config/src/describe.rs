//! The resolved configuration as a file.

mod routes;
mod servers;

use crate::cluster::read_from_name;
use crate::entrance::{networks_text, tls_text};
use crate::model::{
    Config, EntranceConfig, ListenerConfig, LogFormat, LogLevel, PoolConfig, PoolKindConfig,
    Protocol, QuotaConfig, SecretSource, ServerConfig, StoreConfig, UserConfig, Workers,
};
use crate::schema::{self, Table};
use crate::secret::{MASK, PASSWORD};
use crate::toml_text::{key, string};
use crate::value::{format_duration, format_size};
use keyway_base::Limits;
use keyway_topology::{DEPTH_MAX, Endpoint, Password};
use std::fmt::Write;
use std::time::Duration;

/// The configuration as TOML with every default filled in, headed by the
/// memory it implies. Reading it gives the same configuration, except for
/// passwords, which are masked.
pub fn describe(config: &Config) -> String {
    let mut out = Out { text: String::new() };
    out.comment(&memory_comment(config));
    server(&config.server, &mut out);
    limits(&config.limits, &mut out);
    for item in &config.listeners {
        listener(item, &config.pool_of(item).name, &config.users, &mut out);
    }
    for item in &config.users {
        user(item, &config.pools, &mut out);
    }
    for item in &config.pools {
        pool(item, &config.pools, &mut out);
    }
    out.text
}

/// What a configuration can make the process hold, in bytes, besides the few
/// megabytes of the process itself and under 2 KiB per idle client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBound {
    /// Data in embedded stores whose `memory_max` is a size.
    pub store_bytes: u64,
    /// Embedded stores whose `memory_max` is `"auto"`: what they take is found
    /// out at start.
    pub stores_auto: usize,
    /// Keys that clients with CLIENT TRACKING have read, in all stores.
    pub tracking_bytes: u64,
    /// Lua for the scripts of all stores, per worker.
    pub script_bytes: u64,
    /// Connections to backends, per worker: as many for clients that speak RESP3
    /// as for the others. Those of watches and blocked commands come on top.
    pub links: usize,
    /// Unsent requests on all these connections, per worker.
    pub link_bytes: u64,
    /// What one busy client may pin, besides the one large request or reply
    /// being handled for it.
    pub session_bytes: u64,
    /// Commands that wait for EXEC, of all clients together.
    pub transaction_bytes: u64,
    /// Requests on their way through pools that lead to others, per worker.
    pub route_bytes: u64,
    /// Large replies that clients do not take, for each worker.
    pub unread_bytes: u64,
    /// Largest number of copies of a large request or reply that is kept until it is whole.
    pub copies: u64,
    /// Messages that one subscriber has not read; `None` for no bound.
    pub subscriber_bytes: Option<u64>,
}

/// Scripts and libraries that the clients of a pool loaded, and scripts seen in
/// EVAL, in bytes.
const SCRIPTS_LEN_MAX: u64 = (64 << 20) + (16 << 20) + 500 * (16 << 10);

/// What a link keeps of requests on their way, for SLOWLOG, in bytes.
const TRACE_LEN_MAX: u64 = 16 << 10;

/// What a worker counts of the keys of a pool that are asked for most, and those with the largest
/// values, in bytes.
const NOTED_KEYS_LEN_MAX: u64 = 48 << 10;

/// Messages of other workers' clients that wait for a worker, in bytes.
const INBOX_LEN_MAX: u64 = 64 << 20;

/// Connections that clients have for themselves, for each worker.
const PRIVATE_LINKS_MAX: u32 = 50_000;

/// Bytes unsent on each connection of a client that tracks keys.
const TRACKED_UNSENT_MAX: u64 = 256 << 10;

/// What a secured connection keeps at most of records that are not whole yet, or for
/// which the socket has no room, in bytes.
pub(crate) const SECURED_LEN_MAX: u64 = (64 << 10) + (36 << 10);

/// RESP2 and RESP3: the clients of each have links of their own.
const PROTOCOLS: usize = 2;

/// Requests that a worker holds while they go through pools of pools, and copies for
/// shadows, in bytes.
const ROUTES_LEN_MAX: u64 = (64 << 20) + (16 << 20);

/// What a worker keeps of requests that wait for full links, for each pool in a row that
/// asks others, in bytes.
const STALLED_LEN_MAX: u64 = 64 << 20;

impl Config {
    /// Pools in a row that lead to others.
    fn routes_in_a_row(&self) -> usize {
        let mut rows = vec![0; self.pools.len()];
        for _ in 0..DEPTH_MAX {
            for (index, pool) in self.pools.iter().enumerate() {
                if let PoolKindConfig::Routed(routed) = &pool.kind {
                    let children = routed.pool.children();
                    let behind = children.iter().map(|&child| rows[usize::from(child)]).max();
                    rows[index] = (1 + behind.unwrap_or(0)).min(DEPTH_MAX);
                }
            }
        }
        rows.into_iter().max().unwrap_or(0)
    }

    /// What this configuration can make the process hold.
    pub fn memory_bound(&self) -> MemoryBound {
        let stores = || {
            self.pools.iter().filter_map(|pool| match &pool.kind {
                PoolKindConfig::Store(store) => Some(store),
                _ => None,
            })
        };
        let links = self.pools.iter().map(links_of).sum();
        let memory_max = || stores().map(|store| store.memory_max);
        let script_bytes = stores().map(|store| store.script_memory_max);
        let script_bytes = script_bytes.fold(0, u64::saturating_add);
        MemoryBound {
            store_bytes: memory_max().flatten().fold(0, u64::saturating_add),
            stores_auto: memory_max().filter(Option::is_none).count(),
            tracking_bytes: self.limits.tracking_bytes().saturating_mul(stores().count() as u64),
            links,
            script_bytes,
            link_bytes: self.limits.links_overhead_bytes(links),
            session_bytes: self.limits.session_overhead_bytes(),
            transaction_bytes: self.limits.transactions_len_max,
            route_bytes: match self.routes_in_a_row() {
                0 => 0,
                rows => ROUTES_LEN_MAX + rows as u64 * STALLED_LEN_MAX,
            },
            unread_bytes: self.limits.released_len_max(),
            copies: self.copies(),
            subscriber_bytes: match self.limits.pubsub_output_len_hard {
                0 => None,
                len => Some(len),
            },
        }
    }
}

/// Connections of a worker to the servers of a pool.
fn links_of(pool: &PoolConfig) -> usize {
    let Some((set, _)) = pool.kind.servers() else { return 0 };
    let connections = usize::from(set.options.server_connections);
    let protocols = match &pool.kind {
        PoolKindConfig::Memcached(..) => 1,
        PoolKindConfig::Sharded(..)
        | PoolKindConfig::Cluster(..)
        | PoolKindConfig::Replicated(..)
        | PoolKindConfig::Sentinels(..) => PROTOCOLS,
        PoolKindConfig::Store(_) | PoolKindConfig::Routed(_) => 0,
    };
    protocols * set.servers.len() * connections
}

/// Those of them that are secured.
fn secured_links(config: &Config) -> usize {
    let is_secured =
        |pool: &&PoolConfig| pool.kind.servers().is_some_and(|(_, config)| config.tls.is_some());
    config.pools.iter().filter(is_secured).map(links_of).sum()
}

/// Texts of scripts and libraries that the clients of an embedded store loaded,
/// and of scripts seen in EVAL, in bytes.
const STORE_TEXTS_LEN_MAX: u64 = (64 << 20) + (16 << 20) + (4 << 20);

/// What `bytes` per worker come to, where it is known how many there are at most.
fn of_all_workers(config: &Config, bytes: u64) -> String {
    match config.server.workers {
        Workers::Between { max, .. } if max > 1 => {
            let all = format_size(bytes.saturating_mul(max.into()));
            format!(" ({all} for all {max})")
        }
        _ => String::new(),
    }
}

fn memory_comment(config: &Config) -> String {
    let bound = config.memory_bound();
    let mut text = "Memory, at most:\n".to_owned();
    if bound.store_bytes > 0 {
        let _ = writeln!(text, "  data: {} in embedded stores", format_size(bound.store_bytes));
    }
    if bound.stores_auto > 0 {
        text.push_str("  data: a share of the machine's memory, worked out and printed at start\n");
    }
    if bound.tracking_bytes > 0 {
        let bytes = format_size(bound.tracking_bytes);
        let _ = writeln!(
            text,
            "  tracking: {bytes} of keys that clients have read, in embedded stores"
        );
    }
    if bound.script_bytes > 0 {
        let _ = writeln!(
            text,
            "  scripts: {} of Lua per worker{}, besides {} of texts for each embedded store",
            format_size(bound.script_bytes),
            of_all_workers(config, bound.script_bytes),
            format_size(STORE_TEXTS_LEN_MAX),
        );
    }
    if bound.links > 0 {
        let bytes = format_size(bound.link_bytes);
        let _ = writeln!(
            text,
            "  links: {bytes} of unsent requests per worker (connections: {})",
            bound.links
        );
        let _ = writeln!(
            text,
            "  transactions: {} of commands that wait for EXEC, of all clients together, up to {}\n    \
             of one of them",
            format_size(bound.transaction_bytes),
            format_size(bound.transaction_bytes.min(config.limits.link_output_len_max as u64 / 2)),
        );
        let _ = writeln!(
            text,
            "  besides: {} of scripts and functions for each pool of servers, {} for each connection to\n    \
             tell of slow requests, for each client that watches keys or blocks a connection of its\n    \
             own, and for each that tracks keys one to every server, or two, with {} of unsent\n    \
             requests each (at most {} of them all a worker)",
            format_size(SCRIPTS_LEN_MAX),
            format_size(TRACE_LEN_MAX),
            format_size(TRACKED_UNSENT_MAX),
            PRIVATE_LINKS_MAX,
        );
    }
    let secured = secured_links(config) as u64;
    if secured > 0 {
        let bytes = secured * SECURED_LEN_MAX;
        let _ = writeln!(
            text,
            "  tls: {} of records per worker{} (secured connections: {secured})",
            format_size(bytes),
            of_all_workers(config, bytes),
        );
    }
    crate::entrance::describe_memory(config, &mut text);
    crate::shm::describe_memory(config, &mut text);
    let _ = writeln!(
        text,
        "  clients: under 2KiB each when idle, {} each when busy. Besides, a client has one request\n    \
         of up to {} and, from each server that a request for many keys goes to, four replies of\n    \
         up to {}. A client whose unread replies come to {}, as they are far larger than those\n    \
         before them, is disconnected",
        format_size(bound.session_bytes),
        format_size(config.limits.request_len_max.into()),
        format_size(config.limits.reply_len_max.into()),
        format_size(config.limits.session_output_len_hard),
    );
    let _ = writeln!(
        text,
        "  copies: a request or reply that Keyway keeps until it is whole is in memory up to {} times{}",
        bound.copies,
        if bound.route_bytes > 0 { ", over pools of pools" } else { "" },
    );
    if bound.links > 0 {
        let _ = writeln!(
            text,
            "  unread: {} of large replies per worker{} for clients that take nothing, which are\n    \
             disconnected above that",
            format_size(bound.unread_bytes),
            of_all_workers(config, bound.unread_bytes),
        );
    }
    if bound.route_bytes > 0 {
        let _ = writeln!(
            text,
            "  routes: {} of requests on their way through pools of pools per worker{}, once for each\n    \
             child that is asked",
            format_size(bound.route_bytes),
            of_all_workers(config, bound.route_bytes),
        );
    }
    if config.limits.hot_keys_every > 0 {
        let bytes = NOTED_KEYS_LEN_MAX * config.pools.len() as u64;
        let _ = writeln!(
            text,
            "  hot keys: {} of counts per worker{}",
            format_size(bytes),
            of_all_workers(config, bytes),
        );
    }
    let subscriber = match bound.subscriber_bytes {
        Some(bytes) => format!("{} each of messages that they have not read", format_size(bytes)),
        None => "no bound on messages that they have not read (pubsub_output_len_hard)".to_owned(),
    };
    let _ = writeln!(text, "  subscribers: {subscriber}");
    if config.pools.iter().any(|pool| matches!(pool.kind, PoolKindConfig::Store(_))) {
        let bytes = format_size(INBOX_LEN_MAX);
        let _ = writeln!(
            text,
            "  messages of stores: {bytes} on their way to the subscribers of each worker"
        );
    }
    text
}

struct Out {
    text: String,
}

impl Out {
    fn comment(&mut self, lines: &str) {
        for line in lines.lines() {
            let _ = writeln!(self.text, "# {line}");
        }
    }

    fn header(&mut self, header: &str) {
        let _ = writeln!(self.text, "\n{header}");
    }

    fn entry(&mut self, table: &Table, name: &str, value: &str) {
        debug_assert!(table.key(name).is_some(), "{name} is not in {}", table.header);
        let _ = writeln!(self.text, "{name} = {value}");
    }
}

fn server(server: &ServerConfig, out: &mut Out) {
    let format = match server.log.format {
        LogFormat::Human => "human",
        LogFormat::Json => "json",
    };
    let level = match server.log.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let workers = match server.workers {
        Workers::Auto => "\"auto\"".to_owned(),
        Workers::Between { min, max } if min == max => min.to_string(),
        Workers::Between { min, max } => format!("{{ min = {min}, max = {max} }}"),
    };
    let admin = server.admin.as_ref().map_or("off".to_owned(), |addr| addr.to_string());
    let log = format!("{{ format = \"{format}\", level = \"{level}\" }}");
    out.header("[server]");
    out.entry(&schema::SERVER, "workers", &workers);
    out.entry(&schema::SERVER, "admin", &string(&admin));
    let keys = ["", "admin_token_file", "admin_token_env"];
    secret(&schema::SERVER, keys, &server.admin_token, &server.admin_token_from, out);
    if let Some(tls) = &server.admin_tls {
        out.entry(&schema::SERVER, "admin_tls", &tls_text(&tls.settings));
    }
    out.entry(&schema::SERVER, "log", &log);
    for (name, time) in [
        ("drain_timeout", server.drain_timeout),
        ("drain_notice", server.drain_notice),
        ("upgrade_timeout", server.upgrade_timeout),
        ("upgrade_grace", server.upgrade_grace),
    ] {
        out.entry(&schema::SERVER, name, &string(&format_duration(time)));
    }
    out.entry(&schema::SERVER, "io", &string(server.io.text()));
    let spin = match server.spin.is_zero() {
        true => "off".to_owned(),
        false => format_duration(server.spin),
    };
    out.entry(&schema::SERVER, "spin", &string(&spin));
}

fn limits(limits: &Limits, out: &mut Out) {
    out.header("[limits]");
    let mut count = |name, value: u32| {
        out.entry(&schema::LIMITS, name, &value.to_string());
    };
    count("clients_max", limits.clients_max);
    count("request_args_max", limits.request_args_max);
    count("reply_depth_max", limits.reply_depth_max);
    count("monitor_every", limits.monitor_every);
    count("hot_keys_every", limits.hot_keys_every);
    count("session_in_flight_max", limits.session_in_flight_max);
    count("link_in_flight_max", limits.link_in_flight_max);
    count("tracking_keys_max", limits.tracking_keys_max);
    count("failed_logins_max", limits.failed_logins_max);
    let mut size = |name, value: u64| {
        out.entry(&schema::LIMITS, name, &string(&format_size(value)));
    };
    size("big_values_from", limits.big_values_from.into());
    size("bulk_len_max", limits.bulk_len_max.into());
    size("request_len_max", limits.request_len_max.into());
    size("inline_len_max", limits.inline_len_max.into());
    size("reply_len_max", limits.reply_len_max.into());
    size("session_output_len_soft", limits.session_output_len_soft.into());
    size("session_output_len_hard", limits.session_output_len_hard);
    size("link_output_len_max", limits.link_output_len_max.into());
    size("transactions_len_max", limits.transactions_len_max);
    size("read_len_per_turn", limits.read_len_per_turn.into());
    let mut size_or_off = |name, value: u64| {
        let text = if value == 0 { "off".to_owned() } else { format_size(value) };
        out.entry(&schema::LIMITS, name, &string(&text));
    };
    size_or_off("pubsub_output_len_hard", limits.pubsub_output_len_hard);
    size_or_off("pubsub_output_len_soft", limits.pubsub_output_len_soft);
    let patience = std::time::Duration::from_secs(limits.pubsub_output_soft_secs.into());
    out.entry(&schema::LIMITS, "pubsub_output_soft_for", &string(&format_duration(patience)));
}

fn listener(listener: &ListenerConfig, pool_name: &str, users: &[UserConfig], out: &mut Out) {
    let table = &schema::LISTENER;
    let protocol = match listener.protocol {
        Protocol::Redis => "redis",
        Protocol::Memcached { .. } => "memcached",
    };
    out.header(table.header);
    out.entry(table, "bind", &string(&listener.bind.to_string()));
    out.entry(table, "protocol", &string(protocol));
    out.entry(table, "pool", &string(pool_name));
    out.entry(table, "backlog", &listener.backlog.to_string());
    secret(table, PASSWORD, &listener.password, &listener.password_from, out);
    if !users.is_empty() {
        let names = listener.users.iter().map(|&at| string(users[at].user.name()));
        out.entry(table, "users", &format!("[{}]", names.collect::<Vec<_>>().join(", ")));
    }
    if let Some(from) = &listener.read_from {
        out.entry(table, "read_from", &string(&read_from_name(from)));
    }
    if let Protocol::Memcached { item_len_max } = listener.protocol {
        out.entry(table, "item_len_max", &string(&format_size(item_len_max.into())));
    }
    if let Some(mode) = listener.mode {
        out.entry(table, "mode", &format!("\"{mode:04o}\""));
    }
    for (key, id) in [("owner", listener.owner.0), ("group", listener.owner.1)] {
        if let Some(id) = id {
            out.entry(table, key, &id.to_string());
        }
    }
    if let Some(shm) = &listener.shm {
        let uids: Vec<_> = shm.allow_uids.iter().map(u32::to_string).collect();
        out.entry(table, "allow_uids", &format!("[{}]", uids.join(", ")));
        out.entry(table, "ring_max", &string(&format_size(shm.ring_max)));
    }
    if let crate::ListenAddr::Tcp(_) = listener.bind {
        let keepalive = listener.tcp_keepalive.map_or("off".to_owned(), format_duration);
        out.entry(table, "tcp_keepalive", &string(&keepalive));
    }
    entrance(&listener.entrance, out);
    let Some(cluster) = &listener.cluster else { return };
    out.entry(table, "cluster_mode", "\"emulate\"");
    if !cluster.announce.is_empty() {
        let address = |(host, port): &(String, u16)| {
            let host = host.clone();
            string(&Endpoint::Tcp { host, port: *port }.to_string())
        };
        let all: Vec<String> = cluster.announce.iter().map(address).collect();
        out.entry(table, "cluster_announce", &format!("[{}]", all.join(", ")));
    }
}

fn entrance(entrance: &EntranceConfig, out: &mut Out) {
    let table = &schema::LISTENER;
    if let Some(tls) = &entrance.tls {
        out.entry(table, "tls", &tls_text(&tls.settings));
    }
    if let Some(proxies) = &entrance.proxies {
        out.entry(table, "proxy_protocol", "true");
        if !proxies.is_empty() {
            out.entry(table, "proxy_from", &networks_text(proxies));
        }
    }
    for (name, networks) in [("allow", &entrance.allow), ("deny", &entrance.deny)] {
        if !networks.is_empty() {
            out.entry(table, name, &networks_text(networks));
        }
    }
    if entrance.tls.is_some() || entrance.proxies.is_some() {
        let timeout = format_duration(entrance.handshake_timeout);
        out.entry(table, "handshake_timeout", &string(&timeout));
        out.entry(table, "handshakes_max", &entrance.handshakes_max.to_string());
    }
    if let Some(clients_max) = entrance.clients_max {
        out.entry(table, "clients_max", &clients_max.to_string());
    }
    let idle = entrance.idle_timeout.map_or("off".to_owned(), format_duration);
    out.entry(table, "idle_timeout", &string(&idle));
}

fn user(config: &UserConfig, pools: &[PoolConfig], out: &mut Out) {
    let table = &schema::USER;
    let user = &config.user;
    out.header(table.header);
    out.entry(table, "name", &string(user.name()));
    let rules: Vec<_> =
        user.rules().split(' ').filter(|rule| !rule.starts_with('#')).map(str::to_owned).collect();
    out.entry(table, "rules", &string(&rules.join(" ")));
    secret(table, PASSWORD, &config.password, &config.password_from, out);
    let hashes = user.passwords().len() - usize::from(config.password.is_some());
    if hashes > 0 {
        // Hashes of nothing that anybody knows: it is seen that there are some.
        let masks: Vec<_> = (0..hashes).map(|at| format!("\"#{at:064x}\"")).collect();
        out.entry(table, "password_hashes", &format!("[{}]", masks.join(", ")));
    }
    if let Some(index) = config.pool_index {
        out.entry(table, "pool", &string(&pools[index].name));
    }
    if let Some(from) = &config.read_from {
        out.entry(table, "read_from", &string(&read_from_name(from)));
    }
}

fn secret(
    table: &Table,
    [key, file_key, variable_key]: [&str; 3],
    password: &Option<Password>,
    source: &Option<SecretSource>,
    out: &mut Out,
) {
    match (password, source) {
        (_, Some(SecretSource::File(file))) => {
            out.entry(table, file_key, &string(&file.to_string_lossy()));
        }
        (_, Some(SecretSource::Variable(name))) => out.entry(table, variable_key, &string(name)),
        (Some(_), None) => out.entry(table, key, &string(MASK)),
        (None, None) => {}
    }
}

fn pool(pool: &PoolConfig, pools: &[PoolConfig], out: &mut Out) {
    if matches!(pool.kind, PoolKindConfig::Sentinels(..)) {
        // It is told with the pool that they are asked about.
        return;
    }
    out.header(&format!("[pool.{}]", key(&pool.name)));
    match &pool.kind {
        PoolKindConfig::Store(config) => store(config, out),
        PoolKindConfig::Sharded(set, config) => servers::sharded(set, config, out),
        PoolKindConfig::Memcached(pool, config) => servers::memcached(pool, config, out),
        PoolKindConfig::Cluster(pool, config) => servers::cluster(pool, config, out),
        PoolKindConfig::Replicated(pool, config) => servers::replicated(pool, config, pools, out),
        PoolKindConfig::Sentinels(..) => {}
        PoolKindConfig::Routed(config) => routes::routed(config, pools, out),
    }
}

fn store(store: &StoreConfig, out: &mut Out) {
    let table = &schema::STORE;
    out.entry(table, "kind", "\"store\"");
    let memory_max = store.memory_max.map_or("auto".to_owned(), format_size);
    out.entry(table, "memory_max", &string(&memory_max));
    out.entry(table, "eviction", &string(store.eviction.name()));
    out.entry(table, "databases", &store.databases.to_string());
    let events = store.notify_keyspace_events.to_string();
    out.entry(table, "notify_keyspace_events", &string(&events));
    let time_max = format_duration(store.script_time_max);
    out.entry(table, "script_time_max", &string(&time_max));
    let busy_after = format_duration(store.script_busy_after);
    out.entry(table, "script_busy_after", &string(&busy_after));
    out.entry(table, "script_memory_max", &string(&format_size(store.script_memory_max)));
    slow_log(table, (store.slower_than, store.slow_log_len_max), out);
    let after_read = store.expire_after_read.map_or("off".to_owned(), format_duration);
    out.entry(table, "expire_after_read", &string(&after_read));
    let percent = store.expire_after_read_percent;
    out.entry(table, "expire_after_read_percent", &percent.to_string());
    if !store.quotas.is_empty() {
        let quotas = store.quotas.iter().map(|quota| format!("  {},\n", quota_text(quota)));
        out.entry(table, "quotas", &format!("[\n{}]", quotas.collect::<String>()));
    }
}

fn quota_text(quota: &QuotaConfig) -> String {
    let memory_max =
        quota.memory_max.map(|bytes| format!("memory_max = {}", string(&format_size(bytes))));
    let items_max = quota.items_max.map(|count| format!("items_max = {count}"));
    let parts = [Some(format!("prefix = {}", string(&quota.prefix))), memory_max, items_max];
    format!("{{ {} }}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn slow_log(table: &Table, (slower_than, len_max): (Duration, u32), out: &mut Out) {
    let slower_than = match slower_than {
        Duration::MAX => "off".to_owned(),
        slower_than => format_duration(slower_than),
    };
    out.entry(table, "slowlog_log_slower_than", &string(&slower_than));
    out.entry(table, "slowlog_max_len", &len_max.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_schema_is_described() {
        let everything = include_str!("../tests/good/everything.toml");
        let config = Config::from_str(everything, "everything.toml").unwrap();
        let text = describe(&config);
        for table in schema::TABLES {
            for key in table.keys {
                // It is described as the password of each listener it is for; and a token
                // comes from one place.
                let elsewhere = matches!(key.name, "client_password" | "admin_token_env");
                assert!(elsewhere || text.contains(&format!("{} = ", key.name)), "{}", key.name);
            }
        }
    }

    #[test]
    fn the_memory_bound_counts_stores_and_links() {
        let everything = include_str!("../tests/good/everything.toml");
        let config = Config::from_str(everything, "everything.toml").unwrap();
        assert_eq!(
            config.memory_bound(),
            MemoryBound {
                store_bytes: 1536 << 20,
                stores_auto: 0,
                tracking_bytes: 5000 * 256,
                script_bytes: 64 << 20,
                links: 2 * (4 * 2 + 2) + 2 + 1 + 2 * (15 * 2) + 2 * (20 + 4) + 2 * 2 + 4 * (3 + 1),
                link_bytes: 151 * (4 << 20),
                session_bytes: 6 * (64 << 10) + (64 << 10),
                transaction_bytes: 3 << 20,
                route_bytes: (80 + 4 * 64) << 20,
                unread_bytes: 64 * (64 << 10),
                copies: 16,
                subscriber_bytes: None,
            }
        );
        assert_eq!(Config::default_store().memory_bound().stores_auto, 1);
    }
}
