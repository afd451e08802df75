//! Describes pools that lead to other pools.

use super::out::Out;
use crate::model::{PoolConfig, RoutedConfig};
use crate::schema::{self, Table};
use crate::toml_text::string;
use crate::value::format_duration;
use keyway_topology::{RoutedPool, ShadowBy, Wait};

pub(super) fn routed(config: &RoutedConfig, pools: &[PoolConfig], out: &mut Out) {
    let name = |pool: u16| string(&pools[usize::from(pool)].name);
    let list = |pools: &[u16]| {
        let names: Vec<String> = pools.iter().map(|pool| name(*pool)).collect();
        format!("[{}]", names.join(", "))
    };
    let table = table_of(&config.pool);
    out.entry(table, "kind", &string(config.pool.kind()));
    let mut entry = |name: &str, value: &str| out.entry(table, name, value);
    match &config.pool {
        RoutedPool::Prefix(pool) => {
            let routes = pool.routes().map(|(prefix, pool)| {
                let prefix = string(&String::from_utf8_lossy(prefix));
                format!("  {{ prefix = {prefix}, pool = {} }},\n", name(pool))
            });
            entry("routes", &format!("[\n{}]", routes.collect::<String>()));
            if let Some(default) = pool.default {
                entry("default", &name(default));
            }
        }
        RoutedPool::Failover(pool) => {
            entry("children", &list(&pool.children));
            if let Some(gutter) = pool.gutter {
                entry("gutter", &name(gutter.pool));
                entry("gutter_ttl_max", &string(&format_duration(gutter.ttl_max)));
            }
        }
        RoutedPool::Mirror(pool) => {
            entry("children", &list(&pool.children));
            let read_from = pool.children.get(usize::from(pool.read_from)).copied();
            entry("read_from", &name(read_from.unwrap_or_default()));
            let wait = match pool.wait {
                Wait::All => "all",
                Wait::First => "first",
            };
            entry("wait", &string(wait));
        }
        RoutedPool::Shadow(pool) => {
            entry("main", &name(pool.main));
            entry("shadow", &name(pool.shadow));
            entry("percent", &pool.percent.to_string());
            let by = match pool.by {
                ShadowBy::Key => "key",
                ShadowBy::Chance => "chance",
            };
            entry("by", &string(by));
            entry("in_flight_max", &pool.in_flight_max.to_string());
        }
        RoutedPool::MissThen(pool) => {
            entry("children", &list(&pool.children));
            entry("fill", &pool.fill_ttl_max.is_some().to_string());
            if let Some(ttl_max) = pool.fill_ttl_max {
                entry("fill_ttl_max", &string(&format_duration(ttl_max)));
            }
        }
        RoutedPool::RateLimited(pool) => {
            entry("child", &name(pool.child));
            entry("requests_per_second", &pool.requests_per_second.to_string());
            entry("burst", &pool.burst.to_string());
        }
        RoutedPool::ReadWriteSplit(pool) => {
            entry("write", &name(pool.write));
            entry("read", &name(pool.read));
            if let Some(pin) = pool.pin_after_write {
                entry("pin_after_write", &string(&format_duration(pin)));
            }
            entry("read_fallback", &pool.read_fallback.to_string());
            let commands: Vec<String> = pool.write_commands.iter().map(|it| string(it)).collect();
            entry("write_commands", &format!("[{}]", commands.join(", ")));
        }
    }
    entry("clients_max", &config.clients_max.to_string());
}

/// Returns the table of a kind of pool.
fn table_of(pool: &RoutedPool) -> &'static Table {
    match pool {
        RoutedPool::Prefix(_) => &schema::PREFIX,
        RoutedPool::Failover(_) => &schema::FAILOVER,
        RoutedPool::Mirror(_) => &schema::MIRROR,
        RoutedPool::Shadow(_) => &schema::SHADOW,
        RoutedPool::MissThen(_) => &schema::MISS_THEN,
        RoutedPool::RateLimited(_) => &schema::RATE_LIMITED,
        RoutedPool::ReadWriteSplit(_) => &schema::READ_WRITE_SPLIT,
    }
}
