//! Warnings about settings that are allowed but seldom meant. They are printed by `keyway check`,
//! and at the start.

use crate::address::ListenAddr;
use crate::error::{Problem, Report, quoted};
use crate::kinds;
use crate::named::NamedPools;
use crate::secret::PASSWORD;
use crate::section::{NamedPool, Section, Value};
use crate::value::size_text;
use keyway_topology::{Endpoint, Rejoin, Server};
use std::collections::{BTreeMap, BTreeSet};

/// Size that is enough for replies to requests of Keyway's own, such as INFO, in bytes.
const OWN_REPLY_LEN: u64 = 64 << 10;

/// Warns of everything suspicious in the file.
pub(crate) fn warn(
    root: &Section,
    pools: &NamedPools<'_>,
    listeners: &[Section],
    report: &mut Report<'_>,
) {
    warn_of_unused(pools, listeners, root.sections("user"), report);
    let users = root.sections("user");
    listeners.iter().for_each(|listener| warn_of_open_listener(listener, pools, users, report));
    crate::emulate::warn_of_stores(listeners, pools, report);
    if let Some(limits) = root.section("limits") {
        warn_of_short_replies(limits, report);
    }
    for (_, pool) in sharded(pools) {
        warn_of_server_twice(pool, report);
        warn_of_flush_all(pool, report);
    }
    warn_of_shared_servers(pools, report);
    for pool in pools.iter() {
        if let Some(("store", section)) = &pool.section {
            warn_of_large_quotas(section, report);
            warn_of_logged_replica(section, report);
        }
    }
}

/// Warns of a replica with a log that is prepared for replicas of its own: it feeds none.
fn warn_of_logged_replica(pool: &Section, report: &mut Report<'_>) {
    let has = |key| pool.given(key).is_some();
    if let (true, true, Some(at)) = (has("replica_of"), has("log"), pool.given("replication")) {
        let what = format!(
            "{} has a log, and is a replica: it feeds no replicas of its own until it is a primary",
            pool.header
        );
        let hint = "let its replicas follow its primary, or use a snapshot in place of the log";
        report.warning(at, Problem::new(what, hint));
    }
}

/// Warns of quotas that cannot be reached before the store is full.
fn warn_of_large_quotas(pool: &Section, report: &mut Report<'_>) {
    let Some(memory_max) = pool.number("memory_max") else { return };
    let quotas = pool.sections("quotas");
    let bound = |quota: &Section| quota.number("memory_max");
    let all = size_text(memory_max);
    let mut is_told = false;
    for quota in quotas {
        let Some(len) = bound(quota).filter(|len| *len > memory_max) else { continue };
        let what = format!(
            "the quota of {} is {}, and {} has a memory_max of {all}: the store is full first, and \
             evicts the keys of others as well",
            quoted(quota.text("prefix").unwrap_or_default()),
            size_text(len),
            pool.header,
        );
        let hint = format!("write less than \"{all}\", or raise memory_max in {}", pool.header);
        report.warning(quota.place("memory_max"), Problem::new(what, hint));
        is_told = true;
    }
    let sum = quotas.iter().filter_map(bound).fold(0, u64::saturating_add);
    if sum > memory_max && !is_told {
        let what = format!(
            "the quotas in {} come to {} together, and its memory_max is {all}: the store may be full \
             before any of them is used up",
            pool.header,
            size_text(sum),
        );
        let hint = format!("lower some, or raise memory_max in {}", pool.header);
        report.warning(pool.place("quotas"), Problem::new(what, hint));
    }
}

/// Returns whether other machines may reach it.
pub(crate) fn is_open(addr: &ListenAddr) -> bool {
    match addr {
        ListenAddr::Tcp(addr) => !addr.ip().to_canonical().is_loopback(),
        ListenAddr::Unix(_) | ListenAddr::Shm(_) => false,
    }
}

/// Returns the warning about a listener that [`is_open`] and asks for no password.
pub(crate) fn open_listener(bind: &ListenAddr) -> Problem {
    Problem::new(
        format!("{bind} can be reached from other machines and asks for no password"),
        "set password_file or password, add a [[user]], or listen on 127.0.0.1",
    )
}

fn sharded(pools: &[NamedPool]) -> impl Iterator<Item = (&str, &Section)> {
    pools.iter().filter_map(|pool| match &pool.section {
        Some((kind, section)) if kinds::lists_servers(kind) => Some((pool.name.as_str(), section)),
        _ => None,
    })
}

fn servers(pool: &Section) -> &[(usize, Server)] {
    match pool.value("servers") {
        Some(Value::Servers(servers)) => servers,
        _ => &[],
    }
}

fn warn_of_unused(
    pools: &NamedPools<'_>,
    listeners: &[Section],
    users: &[Section],
    report: &mut Report<'_>,
) {
    let old = pools.iter().filter_map(|new| match &new.section {
        Some(("memcached", section)) => section.text("warm_from"),
        _ => None,
    });
    let named = (0..pools.len()).flat_map(|index| pools.named(index)).map(|named| named.name);
    let answering = listeners.iter().chain(users).filter_map(|section| section.text("pool"));
    let used: BTreeSet<&str> = old.chain(named).chain(answering).collect();
    for pool in pools.iter() {
        if !used.contains(pool.name.as_str()) {
            let what = format!("no listener uses pool \"{}\"", pool.name);
            let hint = format!("add a [[listener]] with pool = \"{}\", or remove it", pool.name);
            report.warning(pool.at, Problem::new(what, hint));
        }
    }
}

fn warn_of_open_listener(
    listener: &Section,
    pools: &NamedPools<'_>,
    users: &[Section],
    report: &mut Report<'_>,
) {
    let Some(Value::Listen(bind)) = listener.value("bind") else { return };
    let name = listener.text("pool");
    let of_pool = name.and_then(|name| pools.section(name));
    let of_pool = of_pool.filter(|(kind, _)| kinds::lists_servers(kind));
    // A client with a certificate of the operator's own authority is not a stranger.
    let tls = listener.section("tls");
    let is_known = tls.is_some_and(|tls| {
        tls.value("ca_file").is_some() && tls.text("client_certificates") != Some("optional")
    });
    let has_password = PASSWORD.iter().any(|key| listener.given(key).is_some())
        || of_pool.is_some_and(|(_, pool)| pool.given("client_password").is_some());
    let has_users = match listener.value("users") {
        Some(Value::Names(names)) => !names.is_empty(),
        _ => !users.is_empty(),
    };
    let is_known_here = |user: &Section| match listener.value("users") {
        Some(Value::Names(names)) => {
            user.text("name").is_some_and(|name| names.iter().any(|(_, other)| other == name))
        }
        _ => true,
    };
    let lets_in = |user: &Section| {
        let rules = user.text("rules").unwrap_or_default();
        user.text("name") == Some("default")
            && is_known_here(user)
            && rules.split_ascii_whitespace().any(|rule| rule.eq_ignore_ascii_case("nopass"))
    };
    let asks = has_password || (has_users && !users.iter().any(lets_in));
    if is_open(bind) && !asks && !is_known {
        report.warning(listener.place("bind"), open_listener(bind));
    }
}

fn warn_of_short_replies(limits: &Section, report: &mut Report<'_>) {
    if limits.number("reply_len_max").is_some_and(|len| len < OWN_REPLY_LEN) {
        let what = "reply_len_max in [limits] is below 64KiB: servers' replies to INFO, KEYS, SCAN \
                    and other requests may be longer, and each such reply closes the connection \
                    and fails what waits there";
        let hint = "write at least \"64KiB\"";
        report.warning(limits.place("reply_len_max"), Problem::new(what, hint));
    }
}

fn warn_of_server_twice(pool: &Section, report: &mut Report<'_>) {
    let mut seen: BTreeMap<&Endpoint, &Server> = BTreeMap::new();
    for (at, server) in servers(pool) {
        let Some(first) = seen.insert(&server.endpoint, server) else { continue };
        let counts = match pool.text("kind") {
            Some("memcached") => "stats counts its items",
            _ => "DBSIZE, KEYS, SCAN and INFO count its keys",
        };
        let what = format!(
            "servers in {}: {} is there as {} and as {}: {counts} twice",
            pool.header,
            server.endpoint,
            first.label(),
            server.label()
        );
        let hint = "keep one of them, and raise its weight for a larger share";
        report.warning(*at, Problem::new(what, hint));
    }
}

/// Returns whether the pool empties a server that comes back.
fn flushes(pool: &Section) -> bool {
    let rejoin = pool.section("ejection").and_then(|ejection| ejection.value("rejoin"));
    matches!(rejoin, Some(Value::Rejoin(Rejoin::Flush)))
}

fn databases(pool: &Section) -> std::ops::Range<u64> {
    if pool.text("kind") == Some("memcached") {
        return 0..1;
    }
    let first = pool.number("database").unwrap_or(0);
    first..first + pool.number("databases").unwrap_or(1).max(1)
}

fn warn_of_flush_all(pool: &Section, report: &mut Report<'_>) {
    let databases = databases(pool);
    if flushes(pool) && databases.end - databases.start > 1 {
        let what = format!(
            "{} has rejoin = \"flush\" and several databases: a server that comes back is emptied \
             with FLUSHALL, of every database it has",
            pool.header
        );
        let hint = "keep these servers for this pool alone, or write databases = 1";
        report.warning(pool.place("ejection"), Problem::new(what, hint));
    }
}

/// Returns whether the new pool warms up from the old one. A server of both that comes back is
/// meant to be emptied of all its data.
fn warms_up((old, _): (&str, &Section), (_, new): (&str, &Section)) -> bool {
    new.of_its_table("warm_from")
        .is_some_and(|from| matches!(from, Value::Text(from) if from == old))
}

/// Most other pools of the same servers that the warning about a pool that flushes names.
const SHARED_TOLD_MAX: usize = 16;

/// Warns of a pool that flushes a server which another pool uses as well.
fn warn_of_shared_servers(pools: &[NamedPool], report: &mut Report<'_>) {
    let sharded: Vec<(&str, &Section)> = sharded(pools).collect();
    let mut by_server: BTreeMap<&Endpoint, Vec<usize>> = BTreeMap::new();
    for (index, (_, pool)) in sharded.iter().enumerate() {
        for (_, server) in servers(pool) {
            let known = by_server.entry(&server.endpoint).or_default();
            if known.last() != Some(&index) {
                known.push(index);
            }
        }
    }
    for &(name, pool) in sharded.iter().filter(|(_, pool)| flushes(pool)) {
        let own = databases(pool);
        let empties = |other: &Section| {
            let theirs = databases(other);
            own.end - own.start > 1 || (own.start < theirs.end && theirs.start < own.end)
        };
        let is_meant = |known: &str, other: &Section| {
            warms_up((name, pool), (known, other)) || warms_up((known, other), (name, pool))
        };
        let mut shared: BTreeMap<usize, &Server> = BTreeMap::new();
        for (_, server) in servers(pool) {
            for &other in &by_server[&server.endpoint] {
                shared.entry(other).or_insert(server);
            }
        }
        let others = shared.iter().map(|(&other, &server)| (sharded[other], server)).filter(
            |((known, other), _)| *known != name && empties(other) && !is_meant(known, other),
        );
        for ((_, other), server) in others.take(SHARED_TOLD_MAX) {
            let what = format!(
                "{} has rejoin = \"flush\" and empties {} of the data of {} as well",
                pool.header, server.endpoint, other.header
            );
            let hint = match pool.text("kind") {
                Some("memcached") => "give each pool servers of its own, or choose another rejoin",
                _ => "give each pool a database or servers of its own, or choose another rejoin",
            };
            report.warning(pool.place("ejection"), Problem::new(what, hint));
        }
    }
}
