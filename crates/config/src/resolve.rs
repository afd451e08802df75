//! From values that are right each by itself to a configuration that is right
//! as a whole.

use crate::address::ListenAddr;
use crate::addresses::Addresses;
use crate::error::{Problem, Report, quoted};
use crate::model::{
    Config, Eviction, IoDriver, ListenerConfig, LogConfig, LogFormat, LogLevel, PoolConfig,
    PoolKindConfig, Protocol, QuotaConfig, RoutedConfig, ServerConfig, ServersConfig, StoreConfig,
    UserConfig, Workers,
};
use crate::named::NamedPools;
use crate::placement;
use crate::secret::ReadFile;
use crate::secret::{PASSWORD, password};
use crate::section::{Section, Value};
use crate::{cluster, emulate, routes, tls, warnings};
use keyway_base::{KeyspaceEvents, Limits};
use keyway_memcache::Dialect;
use keyway_topology::{
    Ejection, MemcachedPool, Password, Rejoin, Server, ServerOptions, ServerSet, WarmUp,
};
use std::time::Duration;

/// Passwords stay in their files when `read_file` is `None`. The result is of
/// use only when `report` holds no error.
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
    let server = match root.section("server") {
        Some(section) => server(section, read_file, report),
        None => server_defaults(),
    };
    let is_wrong = |key: &str| root.given(key).is_some() && root.value(key).is_none();
    if is_wrong("pool") || is_wrong("user") {
        // What others say of them cannot be looked at.
        let (listeners, users, pools) = Default::default();
        return Config { server, limits, listeners, users, pools, warnings: Vec::new() };
    }
    let pools = named.iter().map(|pool| PoolConfig {
        name: pool.name.clone(),
        kind: match &pool.section {
            Some(("sharded", section)) => {
                let servers = servers(section, report);
                let (mut options, config) =
                    server_options(section, &servers, &limits, read_file, report);
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
                    server_options(section, &servers, &limits, read_file, report);
                options.ejection = ejection(section, &servers, report);
                // Requests to servers of memcached are in no slow log.
                (options.slower_than, options.slow_log_len_max) = (Duration::MAX, 0);
                let set = placed(section, servers, report);
                let set = ServerSet { options, ..set };
                PoolKindConfig::Memcached(memcached(section, set, named, report), config)
            }
            Some(("cluster", section)) => {
                let seeds = servers(section, report);
                let (mut options, config) =
                    server_options(section, &seeds, &limits, read_file, report);
                slow_log(section, &mut options);
                let mut cluster = cluster::resolve(section, &seeds, report);
                cluster.servers.options = options;
                PoolKindConfig::Cluster(cluster, config)
            }
            Some(("replicated", section)) => {
                let seeds = servers(section, report);
                let (mut options, config) =
                    server_options(section, &seeds, &limits, read_file, report);
                slow_log(section, &mut options);
                let mut replicated = cluster::replicated(&pool.name, section, &seeds, report);
                replicated.servers.options = options;
                PoolKindConfig::Replicated(replicated, config)
            }
            Some((kind, section)) if routes::KINDS.contains(kind) => {
                PoolKindConfig::Routed(RoutedConfig {
                    pool: routes::resolve(kind, section, named, report),
                    clients_max: clients_max(section, &limits, report),
                })
            }
            Some((_, section)) => PoolKindConfig::Store(store(section, report)),
            None => PoolKindConfig::Store(STORE_PLACEHOLDER),
        },
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
    refuse_own_listeners(named, sections, report);
    warnings::warn(root, named, sections, report);
    crate::without_effect::warn(named, sections, report);
    Config { server, limits, listeners, users, pools, warnings: Vec::new() }
}

/// Largest number of pools in a file: pools and their sentinels have 16-bit numbers.
const POOLS_MAX: usize = 32_767;

/// Stands for a pool that was refused, so that indices stay right.
const STORE_PLACEHOLDER: StoreConfig = StoreConfig {
    memory_max: None,
    eviction: Eviction::AllKeysS3Fifo,
    databases: 1,
    notify_keyspace_events: KeyspaceEvents::NONE,
    script_time_max: Duration::from_secs(5),
    script_busy_after: Duration::from_secs(1),
    script_memory_max: 64 << 20,
    slower_than: Duration::from_millis(10),
    slow_log_len_max: 128,
    expire_after_read: None,
    expire_after_read_percent: 50,
    quotas: Vec::new(),
};

fn server_defaults() -> ServerConfig {
    ServerConfig {
        workers: Workers::Auto,
        admin: None,
        admin_token: None,
        admin_token_from: None,
        admin_tls: None,
        log: LogConfig { format: LogFormat::Human, level: LogLevel::Info },
        drain_timeout: Duration::ZERO,
        drain_notice: Duration::ZERO,
        io: IoDriver::Epoll,
        upgrade_timeout: Duration::ZERO,
        upgrade_grace: Duration::ZERO,
        spin: Duration::ZERO,
    }
}

fn server(
    section: &Section,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> ServerConfig {
    let workers = match section.value("workers") {
        Some(Value::Workers(workers)) => *workers,
        _ => Workers::Auto,
    };
    let admin = match section.value("admin") {
        Some(Value::Listen(addr)) => Some(addr.clone()),
        _ => None,
    };
    let admin = crate::admin::resolve(section, admin, read_file, report);
    let log = section.section("log");
    let format = match log.and_then(|log| log.text("format")) {
        Some("json") => LogFormat::Json,
        _ => LogFormat::Human,
    };
    let level = match log.and_then(|log| log.text("level")) {
        Some("error") => LogLevel::Error,
        Some("warn") => LogLevel::Warn,
        Some("debug") => LogLevel::Debug,
        Some("trace") => LogLevel::Trace,
        _ => LogLevel::Info,
    };
    ServerConfig {
        workers,
        admin: admin.bind,
        admin_token: admin.token,
        admin_token_from: admin.token_from,
        admin_tls: admin.tls,
        log: LogConfig { format, level },
        drain_timeout: section.duration("drain_timeout").unwrap_or_default(),
        drain_notice: section.duration("drain_notice").unwrap_or_default(),
        io: match section.text("io") {
            Some("io_uring") => IoDriver::IoUring,
            Some("auto") => IoDriver::Auto,
            _ => IoDriver::Epoll,
        },
        upgrade_timeout: section.duration("upgrade_timeout").unwrap_or_default(),
        upgrade_grace: section.duration("upgrade_grace").unwrap_or_default(),
        spin: section.duration("spin").unwrap_or_default(),
    }
}

fn limits(section: &Section, report: &mut Report<'_>) -> Limits {
    let limits = Limits {
        clients_max: section.number_u32("clients_max"),
        bulk_len_max: section.number_u32("bulk_len_max"),
        request_args_max: section.number_u32("request_args_max"),
        request_len_max: section.number_u32("request_len_max"),
        inline_len_max: section.number_u32("inline_len_max"),
        reply_len_max: section.number_u32("reply_len_max"),
        monitor_every: section.number_u32("monitor_every"),
        hot_keys_every: section.number_u32("hot_keys_every"),
        big_values_from: section.number_u32("big_values_from"),
        reply_depth_max: section.number_u32("reply_depth_max"),
        session_in_flight_max: section.number_u32("session_in_flight_max"),
        session_output_len_soft: section.number_u32("session_output_len_soft"),
        session_output_len_hard: section.number("session_output_len_hard").unwrap_or_default(),
        link_in_flight_max: section.number_u32("link_in_flight_max"),
        link_output_len_max: section.number_u32("link_output_len_max"),
        transactions_len_max: section.number("transactions_len_max").unwrap_or_default(),
        read_len_per_turn: section.number_u32("read_len_per_turn"),
        pubsub_output_len_hard: section.number("pubsub_output_len_hard").unwrap_or_default(),
        pubsub_output_len_soft: section.number("pubsub_output_len_soft").unwrap_or_default(),
        pubsub_output_soft_secs: section
            .duration("pubsub_output_soft_for")
            .map_or(0, |time| time.as_secs() as u32),
        tracking_keys_max: section.number_u32("tracking_keys_max"),
        failed_logins_max: section.number_u32("failed_logins_max"),
        refer_len: Limits::default().refer_len,
    };
    let mut at_least = |larger: &str, smaller: &str, why: &str| {
        let (Some(large), Some(small)) = (section.number(larger), section.number(smaller)) else {
            return;
        };
        if large < small {
            let at = section.given(larger).or(section.given(smaller)).unwrap_or(section.at);
            let what = format!("{larger} in [limits] is below {smaller}: {why}");
            report
                .consequence(at, Problem::new(what, format!("raise {larger} or lower {smaller}")));
        }
    };
    at_least("request_len_max", "bulk_len_max", "the longest argument would never fit");
    at_least(
        "session_output_len_hard",
        "session_output_len_soft",
        "clients would be cut off before they are slowed",
    );
    at_least(
        "pubsub_output_len_hard",
        "pubsub_output_len_soft",
        "subscribers would be cut off before they get the time of pubsub_output_soft_for",
    );
    limits
}

fn store(section: &Section, report: &mut Report<'_>) -> StoreConfig {
    let name = section.text("eviction").unwrap_or_default();
    let eviction = Eviction::ALL.into_iter().find(|eviction| eviction.name() == name);
    StoreConfig {
        memory_max: section.number("memory_max"),
        eviction: eviction.unwrap_or(Eviction::AllKeysS3Fifo),
        databases: section.number_u32("databases"),
        notify_keyspace_events: match section.value("notify_keyspace_events") {
            Some(Value::KeyspaceEvents(events)) => *events,
            _ => KeyspaceEvents::NONE,
        },
        script_time_max: section.duration("script_time_max").unwrap_or(Duration::MAX),
        script_busy_after: section.duration("script_busy_after").unwrap_or(Duration::MAX),
        script_memory_max: section.number("script_memory_max").unwrap_or(u64::MAX),
        slower_than: slower_than(section),
        slow_log_len_max: section.number_u32(SLOW_LOG_LEN),
        expire_after_read: section.duration("expire_after_read"),
        expire_after_read_percent: section.number("expire_after_read_percent").unwrap_or(50) as u8,
        quotas: quotas(section, report),
    }
}

/// Most quotas of a store: as many as it takes.
const QUOTAS_MAX: usize = 64;

fn quotas(store: &Section, report: &mut Report<'_>) -> Vec<QuotaConfig> {
    let sections = store.sections("quotas");
    if let Some(beyond) = sections.get(QUOTAS_MAX) {
        let what = format!("{} has {} quotas", store.header, sections.len());
        report.consequence(beyond.at, Problem::new(what, format!("write up to {QUOTAS_MAX}")));
    }
    let mut quotas: Vec<QuotaConfig> = Vec::new();
    for section in sections.iter().take(QUOTAS_MAX) {
        let Some(prefix) = section.text("prefix") else { continue };
        let is_wrong = ["memory_max", "items_max"]
            .iter()
            .any(|bound| section.given(bound).is_some() && section.number(bound).is_none());
        let (memory_max, items_max) = (section.number("memory_max"), section.number("items_max"));
        if memory_max.is_none() && items_max.is_none() && !is_wrong {
            let what = format!("the quota of {} in {} has no bound", quoted(prefix), store.header);
            report.consequence(section.at, Problem::new(what, "write memory_max or items_max"));
        }
        if quotas.iter().any(|other| other.prefix == prefix) {
            let what = format!("quotas in {}: {} is there twice", store.header, quoted(prefix));
            let hint = "leave one of them: of keys with the same prefix all count together";
            report.consequence(section.place("prefix"), Problem::new(what, hint));
        }
        quotas.push(QuotaConfig { prefix: prefix.to_owned(), memory_max, items_max });
    }
    quotas
}

/// The settings of connections to the servers of a pool, of which `servers` are listed.
fn server_options(
    section: &Section,
    servers: &[Server],
    limits: &Limits,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> (ServerOptions, ServersConfig) {
    let (reconnect_min, reconnect_max) = reconnect(section, report);
    let (password, password_from) = password(section, PASSWORD, read_file, report);
    let tls = tls::of_pool(section, servers, read_file, report);
    let options = ServerOptions {
        timeout: section.duration("timeout").unwrap_or_default(),
        connect_timeout: section.duration("connect_timeout").unwrap_or_default(),
        server_connections: section.number_u32("server_connections") as u16,
        preconnect: section.bool("preconnect"),
        password,
        allow_flush: section.bool("allow_flush"),
        circuit: crate::circuit::circuit(section, report),
        reconnect_min,
        reconnect_max,
        link_in_flight_max: at_most_the_limit(
            section,
            "queue_len_max",
            ("link_in_flight_max", limits.link_in_flight_max),
            report,
        ),
        link_output_len_max: limits.link_output_len_max,
        ..ServerOptions::default()
    };
    let clients_max = clients_max(section, limits, report);
    (options, ServersConfig { password_from, clients_max, tls })
}

/// The settings of ejection of listed servers.
fn ejection(section: &Section, servers: &[Server], report: &mut Report<'_>) -> Option<Ejection> {
    let ejection = section.section("ejection").map(ejection_of);
    if let (Some(_), Some(at), [_]) = (ejection, section.given("ejection"), servers) {
        let what = format!("{} ejects its only server", section.header);
        let hint = "while it is out every request fails: remove ejection, or add servers";
        report.warning(at, Problem::new(what, hint));
    }
    ejection
}

/// A pool of servers that are placed here.
pub(crate) fn placed(
    section: &Section,
    servers: Vec<Server>,
    report: &mut Report<'_>,
) -> ServerSet {
    let (hash, distribution) = placement::resolve(section, &servers, report);
    let hash_tag = match section.value("hash_tag") {
        Some(Value::HashTag(tag)) => *tag,
        _ => None,
    };
    ServerSet { hash, distribution, hash_tag, ..ServerSet::new(servers) }
}

fn slow_log(section: &Section, options: &mut ServerOptions) {
    options.slower_than = slower_than(section);
    options.slow_log_len_max = section.number_u32(SLOW_LOG_LEN);
}

const SLOW_LOG_LEN: &str = "slowlog_max_len";

fn slower_than(section: &Section) -> Duration {
    section.duration("slowlog_log_slower_than").unwrap_or(Duration::MAX)
}

/// What only a pool of memcached servers has.
fn memcached(
    section: &Section,
    servers: ServerSet,
    named: &NamedPools<'_>,
    report: &mut Report<'_>,
) -> MemcachedPool {
    let dialect = match section.text("server_protocol") {
        Some("text") => Dialect::Text,
        Some("binary") => Dialect::Binary,
        _ => Dialect::Meta,
    };
    let is_cut = |password: &Password| password.expose().contains(char::is_whitespace);
    if dialect != Dialect::Binary && servers.options.password.as_ref().is_some_and(is_cut) {
        let what = format!(
            "the password of {} has a blank in it, where servers with --auth-file cut what they are sent",
            section.header
        );
        let hint = "give the servers a password without blanks";
        let at = PASSWORD.iter().find_map(|key| section.given(key)).unwrap_or(section.at);
        report.warning(at, Problem::new(what, hint));
    }
    let user = section.text("user").map(str::to_owned);
    let warm_up = warm_up(section, named, report);
    MemcachedPool { servers, dialect, user, warm_up }
}

/// Where a pool of memcached servers gets what it has not yet.
fn warm_up(section: &Section, named: &NamedPools<'_>, report: &mut Report<'_>) -> Option<WarmUp> {
    let Some(from) = section.text("warm_from") else {
        for stray in ["warm_ttl_max", "warm_for"] {
            if let Some(at) = section.given(stray) {
                let what = format!("{stray} in {} is for pools with warm_from", section.header);
                report.consequence(at, Problem::new(what, format!("remove {stray}")));
            }
        }
        return None;
    };
    let at = section.place("warm_from");
    let mut refuse = |what: String, hint: &str| {
        report.consequence(
            at,
            Problem::new(format!("warm_from in {}: {what}", section.header), hint),
        );
    };
    let is_itself = format!("[pool.{from}]") == section.header;
    match named.of_name(from).map(|pool| &pool.section) {
        _ if is_itself => refuse("this is the pool itself".to_owned(), "name the old pool"),
        None => refuse(
            format!("there is no pool {}", quoted(from)),
            "add a table [pool.NAME] with the old servers",
        ),
        Some(Some(("memcached", old))) if old.text("distribution") == Some("random") => refuse(
            format!("pool {} places keys by chance, so nothing is found there", quoted(from)),
            "give it the distribution that its keys were placed with",
        ),
        Some(Some(("memcached", _)) | None) => {}
        Some(Some(_)) => refuse(
            format!("pool {} is not of memcached servers", quoted(from)),
            "name a pool of kind \"memcached\"",
        ),
    }
    Some(WarmUp {
        from: from.to_owned(),
        ttl_max: section.duration("warm_ttl_max").unwrap_or_default(),
        lasts: section.duration("warm_for"),
    })
}

fn servers(section: &Section, report: &mut Report<'_>) -> Vec<Server> {
    let Some(Value::Servers(placed)) = section.value("servers") else { return Vec::new() };
    let mut by_name = std::collections::BTreeMap::new();
    for (at, server) in placed {
        let name = server.ring_name().into_owned();
        if by_name.insert(name.clone(), ()).is_some() {
            let what = format!("servers in {}: {} is there twice", section.header, quoted(&name));
            // Where servers are found out they have neither names nor weights.
            let hint = match section.text("kind") {
                Some("cluster" | "replicated") => "list each once",
                _ => "give every server a name or address of its own, or raise the weight of one",
            };
            report.consequence(*at, Problem::new(what, hint));
        }
    }
    placed.iter().map(|(_, server)| server.clone()).collect()
}

fn ejection_of(section: &Section) -> Ejection {
    let rejoin = match section.value("rejoin") {
        Some(Value::Rejoin(rejoin)) => *rejoin,
        _ => Rejoin::Serve,
    };
    Ejection {
        after_failures: section.number_u32("after_failures"),
        for_: section.duration("for").unwrap_or_default(),
        rejoin,
    }
}

fn reconnect(section: &Section, report: &mut Report<'_>) -> (Duration, Duration) {
    let Some(reconnect) = section.section("reconnect") else { return Default::default() };
    let (Some(min), Some(max)) = (reconnect.duration("min"), reconnect.duration("max")) else {
        return Default::default();
    };
    if min > max {
        let what = format!("min is above max in {}", reconnect.header);
        let problem = Problem::new(what, "lower min, or raise max to at least min");
        report.consequence(section.place("reconnect"), problem);
    }
    (min, max)
}

fn clients_max(section: &Section, limits: &Limits, report: &mut Report<'_>) -> u32 {
    at_most_the_limit(section, "clients_max", ("clients_max", limits.clients_max), report)
}

/// A pool's own bound, which may only be tighter than that of `[limits]`; that
/// is 0 when it is wrong and already reported.
pub(crate) fn at_most_the_limit(
    section: &Section,
    name: &str,
    (limit_name, limit): (&str, u32),
    report: &mut Report<'_>,
) -> u32 {
    let own = section.number(name).map(|own| own as u32);
    if limit > 0 && own.is_some_and(|own| own > limit) {
        let what =
            format!("{name} in {} is above {limit_name} in [limits] ({limit})", section.header);
        let hint = format!("write at most {limit}, or raise {limit_name} in [limits]");
        report.consequence(section.place(name), Problem::new(what, hint));
    }
    own.unwrap_or(limit)
}

fn listener(
    section: &Section,
    named: &NamedPools<'_>,
    (limits, users): (&Limits, (&[Section], &[UserConfig])),
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Option<ListenerConfig> {
    let pool_index = section.text("pool").and_then(|name| {
        let index = named.position(name);
        if index.is_none() {
            report.consequence(section.place("pool"), unknown_pool(name, named));
        }
        index
    });
    let (mut password, password_from) = password(section, PASSWORD, read_file, report);
    let pool_section = pool_index.and_then(|index| named[index].section.as_ref());
    if let Some(("sharded" | "memcached" | "cluster" | "replicated", pool)) = pool_section
        && let Some(Value::Secret(of_pool)) = pool.value("client_password")
    {
        let own = PASSWORD.iter().find_map(|key| section.given(key));
        if let Some(at) = own {
            let what = format!(
                "[[listener]] has a password, and {} has a client_password for it",
                pool.header
            );
            report.consequence(at, Problem::new(what, "keep one of them"));
        }
        password = Some(of_pool.clone());
    }
    let Some(Value::Listen(bind)) = section.value("bind") else {
        if let Some(text) = section.wrong_address("bind") {
            let scheme = match text {
                _ if text.starts_with("shm:") => "shm",
                _ if text.starts_with("unix:") || text.starts_with(['/', '.']) => "unix",
                _ => "tcp",
            };
            crate::shm::refuse_stray_keys(section, scheme, report);
        }
        return None;
    };
    crate::shm::refuse_stray_keys(section, bind.scheme(), report);
    let has_password = password.is_some() || password_from.is_some();
    let known = (named, has_password);
    Some(ListenerConfig {
        bind: bind.clone(),
        protocol: listener_protocol(section, pool_section, named, report),
        pool_index: pool_index?,
        backlog: section.number_u32("backlog"),
        password,
        password_from,
        users: crate::users::of_listener(section, users.0, users.1, known, report),
        mode: section.number("mode").map(|mode| mode as u32),
        owner: (
            section.number("owner").map(|id| id as u32),
            section.number("group").map(|id| id as u32),
        ),
        tcp_keepalive: match bind {
            ListenAddr::Tcp(_) => section.duration("tcp_keepalive"),
            ListenAddr::Unix(_) | ListenAddr::Shm(_) => None,
        },
        shm: crate::shm::of_listener(section, bind),
        cluster: emulate::resolve(section, bind, report),
        read_from: cluster::read_from_of_listener(section, pool_section, report),
        entrance: crate::entrance::resolve(section, bind, limits, read_file, report),
    })
}

/// What clients speak, which the pool must be able to answer.
fn listener_protocol(
    section: &Section,
    pool: Option<&(&'static str, Section)>,
    named: &NamedPools<'_>,
    report: &mut Report<'_>,
) -> Protocol {
    // A word that is wrong and told of already says nothing about the pool.
    let Some(word) = section.text("protocol") else { return Protocol::Redis };
    let speaks_memcached = word == "memcached";
    let spoken = named.speaks(section.text("pool").unwrap_or_default());
    let refusal = match pool {
        Some(("memcached", pool)) if !speaks_memcached => Some((
            format!(
                "clients of Redis cannot be served by {}, which is of memcached servers",
                pool.header
            ),
            "write protocol = \"memcached\" in the listener, or give it a pool of kind \"sharded\" or \"store\"",
        )),
        // Where both are spoken that is what is wrong.
        Some((kind, pool))
            if !matches!(*kind, "sharded" | "cluster" | "replicated")
                && speaks_memcached
                && spoken.redis
                && !spoken.memcached =>
        {
            Some((
                format!(
                    "clients of memcached cannot be served by {}, which leads to Redis servers",
                    pool.header
                ),
                "give the listener a pool that leads to pools of kind \"memcached\" or \"store\"",
            ))
        }
        Some((_, pool)) if !speaks_memcached && spoken.memcached && !spoken.redis => Some((
            format!(
                "clients of Redis cannot be served by {}, which leads to memcached servers",
                pool.header
            ),
            "write protocol = \"memcached\" in the listener, or give it a pool that leads to pools of kind \"sharded\" or \"store\"",
        )),
        _ => None,
    };
    if let Some((what, hint)) = refusal {
        report.consequence(section.place("protocol"), Problem::new(what, hint));
    }
    let given = section.given("item_len_max");
    match given {
        Some(at) if !speaks_memcached => {
            let what = "item_len_max in [[listener]] is for protocol = \"memcached\" only";
            let hint = "remove it; the longest value of Redis clients is bulk_len_max in [limits]";
            report.consequence(at, Problem::new(what.to_owned(), hint));
        }
        _ => {}
    }
    match speaks_memcached {
        true => {
            let len = section.number("item_len_max").unwrap_or(MEMCACHED_VALUE_LEN);
            Protocol::Memcached { item_len_max: len as u32 }
        }
        false => Protocol::Redis,
    }
}

/// Longest value memcached itself takes unless told otherwise, in bytes.
const MEMCACHED_VALUE_LEN: u64 = 1 << 20;

fn unknown_pool(name: &str, named: &NamedPools<'_>) -> Problem {
    let hint = match named.suggest(name) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None if named.is_empty() => "add a table [pool.NAME]".to_owned(),
        None => format!("pools are {}", named.listed()),
    };
    Problem::new(format!("pool in [[listener]]: there is no pool {}", quoted(name)), hint)
}

/// No two sockets of ours on one address.
fn refuse_clashes(root: &Section, listeners: &[Section], report: &mut Report<'_>) {
    let admin = root.section("server").map(|server| (server, "admin"));
    let binds = listeners.iter().map(|listener| (listener, "bind"));
    let mut taken = Addresses::default();
    for (section, name) in binds.chain(admin) {
        let Some(Value::Listen(addr)) = section.value(name) else { continue };
        let at = section.place(name);
        if let Some((other, other_at)) = taken.clash(addr) {
            // The admin address may be a default, written nowhere.
            let (late, early) = match section.given(name) {
                Some(_) => (at.max(*other_at), at.min(*other_at)),
                None => (*other_at, at),
            };
            let what = match section.given(name) {
                Some(_) => format!(
                    "{addr} is taken: line {} listens on {other} already",
                    report.line_number(early)
                ),
                None => format!("{other} is taken: admin in [server] is {addr} unless given"),
            };
            report
                .consequence(late, Problem::new(what, "give one of the two another port or path"));
        }
        taken.add(addr.clone(), at);
    }
}

/// No pool has a listener of ours for a server: a request would come back to
/// where it went out from, for ever.
fn refuse_own_listeners(named: &NamedPools<'_>, listeners: &[Section], report: &mut Report<'_>) {
    let sharded = named.iter().filter_map(|pool| match &pool.section {
        Some(("sharded" | "memcached" | "cluster" | "replicated", section)) => Some(section),
        _ => None,
    });
    let mut own = Addresses::default();
    for listener in listeners {
        if let Some(Value::Listen(bind)) = listener.value("bind") {
            own.add(bind.clone(), listener);
        }
    }
    for pool in sharded {
        let Some(Value::Servers(servers)) = pool.value("servers") else { continue };
        for (at, server) in servers {
            let Some(own) = own.reached(&server.endpoint) else { continue };
            let what = format!(
                "servers in {}: {} is Keyway itself, which listens there by line {}: requests \
                 would go round in circles",
                pool.header,
                server.endpoint,
                report.line_number(own.place("bind"))
            );
            let hint = "write the address of the server itself, or give the listener another port";
            report.consequence(*at, Problem::new(what, hint));
        }
    }
}
