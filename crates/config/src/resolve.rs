//! Makes a configuration out of values that are each valid, and checks that they fit together.

use crate::error::{Problem, Report};
use crate::kinds;
use crate::limits::{clients_max, limits};
use crate::listener::{listener, refuse_clashes, refuse_own_listeners};
use crate::model::{Config, ListenerConfig, PoolConfig, PoolKindConfig, RoutedConfig};
use crate::named::NamedPools;
use crate::secret::ReadFile;
use crate::section::{NamedPool, Section, Value};
use crate::server_config::{server, server_defaults};
use crate::servers::{ejection, memcached, placed, server_options, servers, slow_log};
use crate::store::{STORE_PLACEHOLDER, store};
use crate::{cluster, routes, slots, warnings};
use keyway_base::Limits;
use keyway_topology::ServerSet;
use std::time::Duration;

/// Makes the configuration. If `read_file` is `None`, password files are not read. The result may
/// be used only if `report` has no error.
pub(crate) fn resolve(
    root: &Section,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Config {
    let named = match root.value("pool") {
        Some(Value::Pools(pools)) => pools.as_slice(),
        _ => &[],
    };
    let named = &NamedPools::new(named);
    if named.len() > POOLS_MAX {
        let what = format!("the file has {} pools", named.len());
        let hint = format!("split it over several processes: one has {POOLS_MAX} pools at most");
        report.consequence(named[POOLS_MAX].at, Problem::new(what, hint));
    }
    let sections = match root.value("listener") {
        Some(Value::List(sections)) => sections.as_slice(),
        _ => &[],
    };
    let limits = root.section("limits").map_or_else(Limits::default, |s| limits(s, report));
    let operators = root.sections("operator");
    let server = match root.section("server") {
        Some(section) => server(section, !operators.is_empty(), read_file, report),
        None => server_defaults(),
    };
    let of_admin = (server.admin_tls.as_ref(), server.admin_token.as_ref());
    let operators = crate::operators::resolve(operators, of_admin, read_file, report);
    let is_wrong = |key: &str| root.given(key).is_some() && root.value(key).is_none();
    if is_wrong("pool") || is_wrong("user") {
        // References to them cannot be checked.
        let (listeners, users, pools) = Default::default();
        let (control, document, warnings) = (None, None, Vec::new());
        return Config {
            server,
            operators,
            limits,
            control,
            listeners,
            users,
            pools,
            document,
            warnings,
        };
    }
    let pools = named.iter().map(|pool| PoolConfig {
        name: pool.name.clone(),
        kind: pool_kind(pool, named, &limits, read_file, report),
    });
    let mut pools: Vec<PoolConfig> = pools.collect();
    let sentinels = cluster::sentinel_pools(named, &pools, read_file, report);
    pools.extend(sentinels);
    let user_sections = root.sections("user");
    let users = crate::users::resolve(user_sections, named, read_file, report);
    let of_users = (user_sections, users.as_slice());
    let listeners: Vec<ListenerConfig> = sections
        .iter()
        .filter_map(|section| listener(section, named, (&limits, of_users), read_file, report))
        .collect();
    routes::check(named, report);
    refuse_clashes(root, sections, report);
    crate::register::check_together(sections, &listeners, report);
    crate::store::refuse_shared_files(named, report);
    refuse_own_listeners(named, sections, report);
    warnings::warn(root, named, sections, report);
    crate::without_effect::warn(named, sections, report);
    let control = root.section("control").and_then(|section| {
        let has_admin = server.admin.is_some();
        crate::control::resolve(section, (named, has_admin), read_file, report)
    });
    let (document, warnings) = (None, Vec::new());
    Config { server, operators, limits, control, listeners, users, pools, document, warnings }
}

/// Most pools in a file: pools and their sentinels have 16-bit numbers.
const POOLS_MAX: usize = 32_767;

/// Reads one pool by its kind. A pool that is wrong and reported counts as a store.
fn pool_kind(
    pool: &NamedPool,
    named: &NamedPools<'_>,
    limits: &Limits,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> PoolKindConfig {
    match &pool.section {
        Some(("sharded", section)) => {
            let servers = servers(section, report);
            let (mut options, config) =
                server_options(section, &servers, limits, read_file, report);
            slow_log(section, &mut options);
            options.ejection = ejection(section, &servers, report);
            options.database = section.number_u32("database");
            options.databases_allowed = section.number_u32("databases");
            let set = placed(section, servers, report);
            PoolKindConfig::Sharded(ServerSet { options, ..set }, config)
        }
        Some(("memcached", section)) => {
            let servers = servers(section, report);
            let (mut options, config) =
                server_options(section, &servers, limits, read_file, report);
            options.ejection = ejection(section, &servers, report);
            // Requests to memcached servers are not in a slow log.
            (options.slower_than, options.slow_log_len_max) = (Duration::MAX, 0);
            let set = placed(section, servers, report);
            let set = ServerSet { options, ..set };
            PoolKindConfig::Memcached(memcached(section, set, named, report), config)
        }
        Some(("cluster", section)) => {
            let seeds = servers(section, report);
            let (mut options, config) = server_options(section, &seeds, limits, read_file, report);
            slow_log(section, &mut options);
            let mut cluster = cluster::resolve(section, &seeds, report);
            cluster.servers.options = options;
            PoolKindConfig::Cluster(cluster, config)
        }
        Some(("replicated", section)) => {
            let seeds = servers(section, report);
            let (mut options, config) = server_options(section, &seeds, limits, read_file, report);
            slow_log(section, &mut options);
            let mut replicated = cluster::replicated(&pool.name, section, &seeds, report);
            replicated.servers.options = options;
            PoolKindConfig::Replicated(replicated, config)
        }
        Some(("slots", section)) => {
            let mut pool = slots::resolve(section, report);
            let servers = slots::all_servers(&pool);
            let (mut options, config) =
                server_options(section, &servers, limits, read_file, report);
            slow_log(section, &mut options);
            pool.servers.options = options;
            PoolKindConfig::Slots(pool, config)
        }
        Some((kind, section)) if kinds::leads_to_pools(kind) => {
            PoolKindConfig::Routed(RoutedConfig {
                pool: routes::resolve(kind, section, named, report),
                clients_max: clients_max(section, limits, report),
            })
        }
        Some((_, section)) => PoolKindConfig::Store(store(section, read_file, report)),
        None => PoolKindConfig::Store(STORE_PLACEHOLDER),
    }
}
