//! Prints the resolved configuration as a file.

mod memory;
mod out;
mod owners;
mod routes;
mod servers;

pub use memory::MemoryBound;

use crate::access::{networks_text, tls_text};
use crate::cluster::read_from_name;
use crate::model::{
    AccessConfig, Config, ControlConfig, ListenerConfig, LogFormat, LogLevel, PoolConfig,
    PoolKindConfig, Protocol, QuotaConfig, ReplicaConfig, ReplicationConfig, SecretSource,
    ServerConfig, SnapshotConfig, StoreConfig, StoreLogConfig, UserConfig, Workers,
};
use crate::operators::OperatorConfig;
use crate::register::RegisterConfig;
use crate::schema;
use crate::secret::{MASK, PASSWORD};
use crate::toml_text::{key, string};
use crate::value::{counted, format_duration, format_size};
use keyway_topology::{Endpoint, PrimarySource};
use memory::memory_comment;
use out::{Out, secret, slow_log};

/// Returns the configuration as TOML with every default filled in, headed by the memory it implies.
/// Reading it gives the same configuration, except for passwords, which are masked.
pub fn describe(config: &Config) -> String {
    let mut out = Out { text: String::new() };
    out.comment(&memory_comment(config));
    server(&config.server, &mut out);
    limits(config, &mut out);
    if let Some(item) = &config.control {
        control(item, &mut out);
    }
    for item in &config.operators {
        operator(item, &mut out);
    }
    for item in &config.listeners {
        listener(item, &config.pool_of(item).name, &config.users, &mut out);
    }
    for item in &config.users {
        user(item, config, &mut out);
    }
    for item in &config.pools {
        pool(item, config, &mut out);
    }
    out.text
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

fn limits(config: &Config, out: &mut Out) {
    let limits = &config.limits;
    out.header("[limits]");
    owners::of_limits(config, out);
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

fn control(control: &ControlConfig, out: &mut Out) {
    let table = &schema::CONTROL;
    let path = |path: &std::path::Path| string(&path.display().to_string());
    let list = |items: Vec<String>| {
        format!("[{}]", items.iter().map(|item| string(item)).collect::<Vec<_>>().join(", "))
    };
    out.header(table.header);
    out.entry(table, "cluster", &string(&control.cluster));
    out.entry(table, "id", &string(&control.id.to_string()));
    if !control.urls.is_empty() {
        out.entry(table, "urls", &list(control.urls.iter().map(ToString::to_string).collect()));
    }
    if let Some(inside) = &control.inside {
        let (dir, lease) = (path(&inside.dir), string(&format_duration(inside.lease)));
        let text = format!("{{ kind = \"files\", dir = {dir}, lease = {lease} }}");
        out.entry(table, "coordinator", &text);
        out.entry(table, "node", &string(&inside.id.to_string()));
        if !inside.listen.is_empty() {
            let urls = inside.listen.iter().map(ToString::to_string).collect();
            out.entry(table, "listen", &list(urls));
        }
    }
    if let Some(file) = &control.token_file {
        out.entry(table, "token_file", &path(file));
    }
    if let Some(tls) = &control.tls {
        let [ca, cert, key] =
            [&tls.ca_file, &tls.identity.cert_file, &tls.identity.key_file].map(|file| path(file));
        let text = format!("{{ ca_file = {ca}, cert_file = {cert}, key_file = {key} }}");
        out.entry(table, "tls", &text);
    }
    out.entry(table, "state_file", &path(&control.state_file));
    if let Some(host) = &control.host {
        out.entry(table, "host", &string(host));
    }
    if !control.pools.is_empty() {
        out.entry(table, "pools", &list(control.pools.clone()));
    }
    out.entry(table, "users", &control.users.to_string());
    out.entry(table, "limits", &control.limits.to_string());
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
    access(&listener.access, out);
    if let Some(entry) = &listener.register {
        out.entry(table, "register", &register(entry));
    }
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

fn register(entry: &RegisterConfig) -> String {
    let endpoints: Vec<_> = entry.endpoints.iter().map(|endpoint| string(endpoint)).collect();
    let mut text = format!(
        "{{ kind = {}, endpoints = [{}], path = {}, name = {}, address = {}, lease = {}",
        string(entry.kind.text()),
        endpoints.join(", "),
        string(&entry.path),
        string(&entry.name),
        string(&entry.address),
        string(&format_duration(entry.lease)),
    );
    let mut add = |key: &str, value: &str| text += &format!(", {key} = {}", string(value));
    if let Some(user) = &entry.user {
        add("user", user);
    }
    match &entry.password_from {
        Some(SecretSource::File(file)) => add("password_file", &file.display().to_string()),
        Some(SecretSource::Variable(name)) => add("password_env", name),
        None if entry.password.is_some() => add("password", MASK),
        None => {}
    }
    if let Some(file) = &entry.ca_file {
        add("ca_file", &file.display().to_string());
    }
    text + " }"
}

fn access(access: &AccessConfig, out: &mut Out) {
    let table = &schema::LISTENER;
    if let Some(tls) = &access.tls {
        out.entry(table, "tls", &tls_text(&tls.settings));
    }
    if let Some(proxies) = &access.proxies {
        out.entry(table, "proxy_protocol", "true");
        if !proxies.is_empty() {
            out.entry(table, "proxy_from", &networks_text(proxies));
        }
    }
    for (name, networks) in [("allow", &access.allow), ("deny", &access.deny)] {
        if !networks.is_empty() {
            out.entry(table, name, &networks_text(networks));
        }
    }
    if access.tls.is_some() || access.proxies.is_some() {
        let timeout = format_duration(access.handshake_timeout);
        out.entry(table, "handshake_timeout", &string(&timeout));
        out.entry(table, "handshakes_max", &access.handshakes_max.to_string());
    }
    if let Some(clients_max) = access.clients_max {
        out.entry(table, "clients_max", &clients_max.to_string());
    }
    let idle = access.idle_timeout.map_or("off".to_owned(), format_duration);
    out.entry(table, "idle_timeout", &string(&idle));
}

fn operator(config: &OperatorConfig, out: &mut Out) {
    let table = &schema::OPERATOR;
    out.header(table.header);
    out.entry(table, "name", &string(config.operator.name()));
    out.entry(table, "role", &string(config.operator.role().text()));
    secret(table, ["", "token_file", "token_env"], &config.token, &config.token_from, out);
    if let Some(name) = &config.certificate {
        out.entry(table, "certificate", &string(name));
    }
    if let Some(pools) = config.operator.pools() {
        let names: Vec<String> = pools.iter().map(|pool| string(pool)).collect();
        out.entry(table, "pools", &format!("[{}]", names.join(", ")));
    }
}

fn user(config: &UserConfig, all: &Config, out: &mut Out) {
    let table = &schema::USER;
    let user = &config.user;
    out.header(table.header);
    owners::of_user(all, out);
    out.entry(table, "name", &string(user.name()));
    let rules: Vec<_> =
        user.rules().split(' ').filter(|rule| !rule.starts_with('#')).map(str::to_owned).collect();
    out.entry(table, "rules", &string(&rules.join(" ")));
    secret(table, PASSWORD, &config.password, &config.password_from, out);
    let hashes = user.passwords().len() - usize::from(config.password.is_some());
    if hashes > 0 {
        // Each hash is replaced by one of no known password, so that their number is shown.
        let masks: Vec<_> = (0..hashes).map(|at| format!("\"#{at:064x}\"")).collect();
        out.entry(table, "password_hashes", &format!("[{}]", masks.join(", ")));
    }
    if let Some(index) = config.pool_index {
        out.entry(table, "pool", &string(&all.pools[index].name));
    }
    if let Some(from) = &config.read_from {
        out.entry(table, "read_from", &string(&read_from_name(from)));
    }
}

/// Returns a text about the servers of a pool, such as `sharded over 3 servers`.
pub fn kind_text(kind: &PoolKindConfig) -> String {
    match kind {
        PoolKindConfig::Store(_) => "embedded store".to_owned(),
        PoolKindConfig::Sharded(set, _) => {
            format!("sharded over {}", counted(set.servers.len(), "server"))
        }
        PoolKindConfig::Memcached(pool, _) => {
            format!("memcached over {}", counted(pool.servers.servers.len(), "server"))
        }
        PoolKindConfig::Cluster(pool, _) => {
            format!("cluster over {}", counted(pool.discovery.seeds.len(), "known server"))
        }
        PoolKindConfig::Replicated(pool, _) => match &pool.source {
            PrimarySource::Servers | PrimarySource::Groups(_) => {
                let seeds = counted(pool.discovery.seeds.len(), "known server");
                format!("replicated over {seeds}")
            }
            PrimarySource::Sentinels { primaries, .. } => {
                let names = counted(primaries.len(), "name");
                format!("replicated over {names} that sentinels know")
            }
        },
        PoolKindConfig::Slots(pool, _) => {
            let slots = pool.map.space().count();
            format!("{slots} slots over {}", counted(pool.groups.len(), "group"))
        }
        PoolKindConfig::Sentinels(set, _) => counted(set.servers.len(), "sentinel"),
        PoolKindConfig::Routed(routed) => {
            let children = counted(routed.pool.children().len(), "other pool");
            format!("{} over {children}", routed.pool.kind())
        }
    }
}

fn pool(pool: &PoolConfig, config: &Config, out: &mut Out) {
    let pools = &config.pools;
    if matches!(pool.kind, PoolKindConfig::Sentinels(..)) {
        // The sentinels are described with the pool that uses them.
        return;
    }
    out.header(&format!("[pool.{}]", key(&pool.name)));
    owners::of_pool(config, &pool.name, out);
    match &pool.kind {
        PoolKindConfig::Store(config) => store(config, out),
        PoolKindConfig::Sharded(set, config) => servers::sharded(set, config, out),
        PoolKindConfig::Memcached(pool, config) => servers::memcached(pool, config, out),
        PoolKindConfig::Cluster(pool, config) => servers::cluster(pool, config, out),
        PoolKindConfig::Replicated(pool, config) => servers::replicated(pool, config, pools, out),
        PoolKindConfig::Slots(pool, config) => servers::slots(pool, config, out),
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
    if let Some(snapshot) = &store.snapshot {
        out.entry(table, "snapshot", &snapshot_text(snapshot));
    }
    if let Some(log) = &store.log {
        out.entry(table, "log", &log_text(log));
    }
    replica(&store.replica, out);
    if !store.quotas.is_empty() {
        let quotas = store.quotas.iter().map(|quota| format!("  {},\n", quota_text(quota)));
        out.entry(table, "quotas", &format!("[\n{}]", quotas.collect::<String>()));
    }
}

fn replica(replica: &ReplicaConfig, out: &mut Out) {
    let table = &schema::STORE;
    let scheme = if replica.tls.is_some() { "rediss" } else { "redis" };
    if let Some(primary) = &replica.primary {
        out.entry(table, "replica_of", &string(&format!("{scheme}://{primary}")));
    }
    if let Some(username) = &replica.username {
        out.entry(table, "replica_user", &string(username));
    }
    secret(table, crate::replica::PASSWORD, &replica.password, &replica.password_from, out);
    if let Some(tls) = &replica.tls {
        out.entry(table, "replica_tls", &crate::tls::text(&tls.settings));
    }
    out.entry(table, "replica_serve_stale_data", &replica.serves_stale.to_string());
    out.entry(table, "replication", &replication_text(&replica.feed));
}

fn snapshot_text(snapshot: &SnapshotConfig) -> String {
    let every = snapshot.every.map_or("off".to_owned(), format_duration);
    let rate_max = snapshot.rate_max.map_or("off".to_owned(), format_size);
    format!(
        "{{ file = {}, every = {}, on_shutdown = {}, rate_max = {}, buffer = {} }}",
        string(&snapshot.file.to_string_lossy()),
        string(&every),
        snapshot.on_shutdown,
        string(&rate_max),
        string(&format_size(snapshot.buffer)),
    )
}

fn replication_text(feed: &ReplicationConfig) -> String {
    let time = |time| string(&format_duration(time));
    format!(
        "{{ backlog = {}, buffer = {}, replicas_max = {}, timeout = {}, ping_every = {}, \
         min_replicas = {}, min_replicas_max_lag = {}, priority = {} }}",
        string(&format_size(feed.backlog)),
        string(&format_size(feed.buffer)),
        feed.replicas_max,
        time(feed.timeout),
        time(feed.ping_every),
        feed.replicas_min,
        time(feed.lag_max),
        feed.priority,
    )
}

fn log_text(log: &StoreLogConfig) -> String {
    format!(
        "{{ dir = {}, fsync = {}, buffer = {} }}",
        string(&log.dir.to_string_lossy()),
        string(log.fsync.name()),
        string(&format_size(log.buffer)),
    )
}

fn quota_text(quota: &QuotaConfig) -> String {
    let memory_max =
        quota.memory_max.map(|bytes| format!("memory_max = {}", string(&format_size(bytes))));
    let items_max = quota.items_max.map(|count| format!("items_max = {count}"));
    let parts = [Some(format!("prefix = {}", string(&quota.prefix))), memory_max, items_max];
    format!("{{ {} }}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::memory::MemoryBound;

    #[test]
    fn every_key_of_the_schema_is_described() {
        let everything = include_str!("../tests/good/everything.toml");
        // Keys that exclude others of that file.
        let inside = include_str!("../tests/good/control_inside.toml");
        let described = |text: &str| describe(&Config::from_str(text, "keyway.toml").unwrap());
        let text = described(everything) + &described(inside);
        for table in schema::TABLES {
            for key in table.keys {
                // These keys are described elsewhere: `client_password` as the password of each
                // listener of the pool, and a secret comes from one source.
                let elsewhere = matches!(
                    key.name,
                    "client_password"
                        | "admin_token_env"
                        | "token_env"
                        | "replica_password"
                        | "replica_password_env"
                );
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
                store_bytes: (1536 + 512) << 20,
                stores_auto: 0,
                snapshot_bytes: 64 << 20,
                log_bytes: 64 << 20,
                feed_bytes: (256 + 16 + 64 + 2) << 20,
                upgrade_bytes: (2 * 192 + 256 + 2 * 64 + 256) << 20,
                tracking_bytes: 2 * 5000 * 256,
                script_bytes: 2 * (64 << 20),
                links: 2 * (4 * 2 + 2)
                    + 2
                    + 1
                    + 2 * (15 * 2)
                    + 2 * (20 + 4)
                    + 2 * 2
                    + 2 * 4
                    + 4 * (3 + 1),
                link_bytes: 159 * (4 << 20),
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
