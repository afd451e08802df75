//! Settings that all pools of servers have: their servers, connections, ejection and placement.

use crate::error::{Problem, Report, quoted};
use crate::kinds;
use crate::limits::{at_most_the_limit, clients_max};
use crate::model::ServersConfig;
use crate::named::NamedPools;
use crate::secret::{PASSWORD, ReadFile, password};
use crate::section::{Section, Value};
use crate::{placement, tls};
use keyway_base::Limits;
use keyway_memcache::Dialect;
use keyway_topology::{
    Ejection, MemcachedPool, Password, Rejoin, Server, ServerOptions, ServerSet, WarmUp,
};
use std::time::Duration;

pub(crate) fn servers(section: &Section, report: &mut Report<'_>) -> Vec<Server> {
    let Some(Value::Servers(placed)) = section.value("servers") else { return Vec::new() };
    let mut by_name = std::collections::BTreeMap::new();
    for (at, server) in placed {
        let name = server.ring_name().into_owned();
        if by_name.insert(name.clone(), ()).is_some() {
            let what = format!("servers in {}: {} is there twice", section.header, quoted(&name));
            // Servers of pools with discovery have neither names nor weights.
            let hint = match section.text("kind") {
                Some(kind) if kinds::discovers(kind) => "list each once",
                _ => "give every server a name or address of its own, or raise the weight of one",
            };
            report.consequence(*at, Problem::new(what, hint));
        }
    }
    placed.iter().map(|(_, server)| server.clone()).collect()
}

/// Reads the settings of connections to the servers of a pool, of which `servers` are listed.
pub(crate) fn server_options(
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

/// Reads the settings of ejection of listed servers.
pub(crate) fn ejection(
    section: &Section,
    servers: &[Server],
    report: &mut Report<'_>,
) -> Option<Ejection> {
    let ejection = section.section("ejection").map(ejection_of);
    if let (Some(_), Some(at), [_]) = (ejection, section.given("ejection"), servers) {
        let what = format!("{} ejects its only server", section.header);
        let hint = "while it is out every request fails: remove ejection, or add servers";
        report.warning(at, Problem::new(what, hint));
    }
    ejection
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

/// Reads a pool that places keys on servers.
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

pub(crate) const SLOW_LOG_LEN: &str = "slowlog_max_len";

/// Reads the settings of the slow log.
pub(crate) fn slow_log(section: &Section, options: &mut ServerOptions) {
    options.slower_than = slower_than(section);
    options.slow_log_len_max = section.number_u32(SLOW_LOG_LEN);
}

/// Reads the time from which a request is slow.
pub(crate) fn slower_than(section: &Section) -> Duration {
    section.duration("slowlog_log_slower_than").unwrap_or(Duration::MAX)
}

/// Reads the settings that only a pool of memcached servers has.
pub(crate) fn memcached(
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

/// Reads from where a pool of memcached servers gets items that it does not have yet.
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
