//! What the process knows about itself: INFO and CONFIG GET.

use keyway_base::Clock;
use keyway_config::Config;
use keyway_metrics::Registry;
use keyway_net::Listener;
use keyway_proxy::local::{ClientRegistry, Facts};
use keyway_store::Store;
use keyway_worker::{PoolKind, PoolPlan};
use std::fmt::Write;
use std::sync::Arc;

/// Redis's version that our answers are compatible with.
const REDIS_VERSION: &str = "7.0.15";

struct PoolFacts {
    name: String,
    store: Option<Arc<Store>>,
    servers: usize,
    databases: u32,
}

/// The process, as INFO and CONFIG GET tell of it.
pub struct ProcessFacts {
    start: Clock,
    port: u16,
    clients_max: u32,
    bulk_len_max: u32,
    run_id: String,
    pools: Vec<PoolFacts>,
    registry: Arc<Registry>,
    clients: Arc<ClientRegistry>,
}

impl ProcessFacts {
    /// Facts about a process that starts now.
    pub fn new(
        config: &Config,
        pools: &[PoolPlan],
        listeners: &[Listener],
        registry: &Arc<Registry>,
        clients: &Arc<ClientRegistry>,
        start: Clock,
    ) -> Self {
        let facts = pools.iter().map(|pool| match &pool.kind {
            PoolKind::Store(store) => PoolFacts {
                name: pool.name.clone(),
                store: Some(Arc::clone(store)),
                servers: 0,
                databases: pool.databases,
            },
            PoolKind::Sharded { pool: sharded, .. } => PoolFacts {
                name: pool.name.clone(),
                store: None,
                servers: sharded.servers.len(),
                databases: pool.databases,
            },
        });
        let process = u64::from(std::process::id());
        Self {
            start,
            port: listeners.first().and_then(Listener::local_addr).map_or(0, |addr| addr.port()),
            clients_max: config.limits.clients_max,
            bulk_len_max: config.limits.bulk_len_max,
            run_id: format!("{:016x}{:08x}{:016x}", start.unix_micros, process, !start.unix_micros),
            pools: facts.collect(),
            registry: Arc::clone(registry),
            clients: Arc::clone(clients),
        }
    }

    fn server(&self, now: u64, out: &mut String) {
        let uptime = now.saturating_sub(self.start.unix_micros) / 1_000_000;
        let _ = write!(
            out,
            "redis_version:{REDIS_VERSION}\r\nkeyway_version:{}\r\nredis_mode:standalone\r\n\
             os:{}\r\narch_bits:{}\r\nprocess_id:{}\r\nrun_id:{}\r\ntcp_port:{}\r\n\
             uptime_in_seconds:{uptime}\r\nuptime_in_days:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            usize::BITS,
            std::process::id(),
            self.run_id,
            self.port,
            uptime / 86_400,
        );
    }

    fn memory(&self, pool: &PoolFacts, out: &mut String) {
        let resident = crate::memory::resident();
        let stats = pool.store.as_ref().map(|store| store.stats());
        let used = stats.as_ref().map_or(resident, |stats| stats.memory_used);
        let (max, policy) = memory_bound(pool);
        let _ = write!(
            out,
            "used_memory:{used}\r\nused_memory_human:{}\r\nused_memory_rss:{resident}\r\n\
             maxmemory:{max}\r\nmaxmemory_policy:{policy}\r\n",
            crate::memory::human(used),
        );
    }

    fn stats(&self, index: usize, pool: &PoolFacts, out: &mut String) {
        let totals = self.registry.pool_totals(index);
        let _ = write!(
            out,
            "total_connections_received:{}\r\ntotal_commands_processed:{}\r\n\
             total_net_input_bytes:{}\r\ntotal_net_output_bytes:{}\r\n\
             total_error_replies:{}\r\n",
            totals.clients_accepted,
            totals.requests,
            totals.received_bytes,
            totals.sent_bytes,
            totals.errors + totals.refused,
        );
        if let Some(store) = &pool.store {
            let stats = store.stats();
            let _ = write!(
                out,
                "keyspace_hits:{}\r\nkeyspace_misses:{}\r\nevicted_keys:{}\r\nexpired_keys:{}\r\n",
                stats.hits, stats.misses, stats.evicted, stats.expired
            );
        }
    }

    fn keyspace(pool: &PoolFacts, out: &mut String) {
        let Some(store) = &pool.store else { return };
        for (database, stats) in store.stats().databases.iter().enumerate() {
            if stats.items > 0 {
                let (keys, expires) = (stats.items, stats.volatile);
                let _ = write!(out, "db{database}:keys={keys},expires={expires},avg_ttl=0\r\n");
            }
        }
    }
}

fn memory_bound(pool: &PoolFacts) -> (u64, &'static str) {
    match &pool.store {
        Some(store) => (store.config().memory_max, store.config().policy.name()),
        None => (0, "noeviction"),
    }
}

impl Facts for ProcessFacts {
    fn info(&self, index: u16, sections: &[&str], out: &mut String) {
        const SECTIONS: [&str; 9] = [
            "Server",
            "Clients",
            "Memory",
            "Persistence",
            "Stats",
            "Replication",
            "CPU",
            "Keyspace",
            "Keyway",
        ];
        let pool = &self.pools[usize::from(index)];
        let all = sections.is_empty()
            || sections.iter().any(|name| matches!(*name, "default" | "all" | "everything"));
        let now = crate::serve::wall_clock().unix_micros;
        for section in SECTIONS {
            if !all && !sections.iter().any(|name| name.eq_ignore_ascii_case(section)) {
                continue;
            }
            if !out.is_empty() {
                out.push_str("\r\n");
            }
            let _ = write!(out, "# {section}\r\n");
            match section {
                "Server" => self.server(now, out),
                "Clients" => {
                    let (count, max) = (self.clients.len(), self.clients_max);
                    let _ = write!(
                        out,
                        "connected_clients:{count}\r\nmaxclients:{max}\r\nblocked_clients:0\r\n"
                    );
                }
                "Memory" => self.memory(pool, out),
                "Persistence" => out.push_str("loading:0\r\n"),
                "Stats" => self.stats(usize::from(index), pool, out),
                "Replication" => out.push_str("role:master\r\nconnected_slaves:0\r\n"),
                "CPU" => {
                    let (user, system) = crate::memory::cpu_seconds();
                    let _ = write!(out, "used_cpu_sys:{system:.6}\r\nused_cpu_user:{user:.6}\r\n");
                }
                "Keyspace" => Self::keyspace(pool, out),
                _ => {
                    let kind = if pool.store.is_some() { "store" } else { "sharded" };
                    let (name, servers) = (&pool.name, pool.servers);
                    let _ = write!(out, "pool:{name}\r\nkind:{kind}\r\nservers:{servers}\r\n");
                }
            }
        }
    }

    fn settings(&self, index: u16) -> Vec<(&'static str, String)> {
        let pool = &self.pools[usize::from(index)];
        let (max, policy) = memory_bound(pool);
        vec![
            ("appendonly", "no".to_owned()),
            ("databases", pool.databases.to_string()),
            ("maxclients", self.clients_max.to_string()),
            ("maxmemory", max.to_string()),
            ("maxmemory-policy", policy.to_owned()),
            ("port", self.port.to_string()),
            ("proto-max-bulk-len", self.bulk_len_max.to_string()),
            ("save", String::new()),
            ("timeout", "0".to_owned()),
        ]
    }
}
