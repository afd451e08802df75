//! The listeners: checks of each one, and of all together.

use crate::address::ListenAddr;
use crate::addresses::Addresses;
use crate::error::{Problem, Report, quoted};
use crate::kinds;
use crate::model::{ListenerConfig, Protocol, UserConfig};
use crate::named::NamedPools;
use crate::secret::{PASSWORD, ReadFile, password};
use crate::section::{Section, Value};
use crate::{cluster, emulate};
use keyway_base::Limits;

/// Reads one listener. Returns `None` if its address or pool is wrong, after reporting that.
pub(crate) fn listener(
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
    if let Some((kind, pool)) = pool_section
        && kinds::has_servers(kind)
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
        access: crate::access::resolve(section, bind, limits, read_file, report),
        register: crate::register::resolve(section, bind, read_file, report),
    })
}

/// Reads the protocol of the clients. The pool must be able to answer it.
fn listener_protocol(
    section: &Section,
    pool: Option<&(&'static str, Section)>,
    named: &NamedPools<'_>,
    report: &mut Report<'_>,
) -> Protocol {
    // If the protocol is wrong and reported, it says nothing about the pool.
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
        // If the servers speak both protocols, that is the mistake to report.
        Some((kind, pool))
            if !kinds::has_redis_servers(kind)
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

/// Default of memcached itself for the longest value, in bytes.
const MEMCACHED_VALUE_LEN: u64 = 1 << 20;

pub(crate) fn unknown_pool(name: &str, named: &NamedPools<'_>) -> Problem {
    let hint = match named.suggest(name) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None if named.is_empty() => "add a table [pool.NAME]".to_owned(),
        None => format!("pools are {}", named.listed()),
    };
    Problem::new(format!("pool in [[listener]]: there is no pool {}", quoted(name)), hint)
}

/// Refuses two listeners that clash.
pub(crate) fn refuse_clashes(root: &Section, listeners: &[Section], report: &mut Report<'_>) {
    let admin = root.section("server").map(|server| (server, "admin"));
    let binds = listeners.iter().map(|listener| (listener, "bind"));
    let mut taken = Addresses::default();
    for (section, name) in binds.chain(admin) {
        let Some(Value::Listen(addr)) = section.value(name) else { continue };
        let at = section.place(name);
        if let Some((other, other_at)) = taken.clash(addr) {
            // The admin address may be a default, which is not in the file.
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

/// Refuses a pool whose server is one of this file's own listeners: a request would return to it
/// for ever.
pub(crate) fn refuse_own_listeners(
    named: &NamedPools<'_>,
    listeners: &[Section],
    report: &mut Report<'_>,
) {
    let sharded = named.iter().filter_map(|pool| match &pool.section {
        Some((kind, section)) if kinds::has_servers(kind) => Some(section),
        _ => None,
    });
    let mut own = Addresses::default();
    for listener in listeners {
        if let Some(Value::Listen(bind)) = listener.value("bind") {
            own.add(bind.clone(), listener);
        }
    }
    for pool in sharded {
        for (at, server) in pool.listed_servers() {
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
