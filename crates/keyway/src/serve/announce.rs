//! The log lines at the start of a process.

use super::first_command;
use crate::{driver, memory};
use keyway_config::{Config, PoolKindConfig, Protocol, kind_text, size_text};
use keyway_control::AdminHandle;
use keyway_worker::{Plan, PoolKind};
use std::path::Path;

/// Descriptors of a worker besides those of its listeners and links, and of the process besides
/// those of its workers (docs/operations.md).
const DESCRIPTORS_OF_WORKER: usize = 4;

const DESCRIPTORS_OF_PROCESS: u64 = 16;

/// A number of clients that is below nearly every descriptor limit. A lower one means that the
/// limit was forgotten.
const FEW_CLIENTS: u64 = 4000;

/// Logs what was started and what to type next. A field has the same type in every line, and sizes
/// are numbers of bytes. Text for people is in the message.
pub(super) fn announce(
    config: &Config,
    plan: &Plan,
    names: &[String],
    (count, count_max): (usize, usize),
    admin: Option<&AdminHandle>,
    file: Option<&Path>,
) {
    let from =
        file.map_or_else(|| "no file: defaults".to_owned(), |file| file.display().to_string());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = from,
        io = driver::name(),
        "keyway is starting"
    );
    for (listener, name) in config.listeners.iter().zip(names) {
        let pool = &config.pools[listener.pool_index];
        let kind = kind_text(&pool.kind);
        let clients = if listener.protocol == Protocol::Redis { "Redis" } else { "memcached" };
        let by = if listener.access.tls.is_some() { " by TLS" } else { "" };
        tracing::info!(
            listener = name,
            pool = pool.name,
            kind,
            "listening for {clients} clients{by}"
        );
    }
    for (pool, settings) in plan.pools.iter().zip(&config.pools) {
        if let (PoolKind::Store(store), PoolKindConfig::Store(settings)) =
            (&pool.kind, &settings.kind)
        {
            // The size is shown as it was written, because a share of the machine's memory is
            // rarely round.
            let memory_max = store.config().memory_max;
            let bound = settings.memory_max.map_or_else(|| memory::human(memory_max), size_text);
            let eviction = settings.eviction.name();
            tracing::info!(pool = pool.name, memory_max, eviction, "store of at most {bound}");
        }
    }
    announce_memory(config, count_max);
    tell_of_descriptors(config, count_max);
    if let Some(admin) = admin {
        let addr = admin.local_addr();
        let scheme = if config.server.admin_tls.is_some() { "https" } else { "http" };
        tracing::info!(
            "metrics at {scheme}://{addr}/metrics, health at {scheme}://{addr}/healthz; keyway ctl \
             --admin {scheme}://{addr} status tells more"
        );
    } else if config.server.admin.is_none() {
        tracing::info!("no admin address: no metrics, no health checks, no keyway ctl");
    }
    tracing::info!(workers = count, workers_max = count_max, "ready");
    if let Some(command) = first_command::of(config, names) {
        tracing::info!("try: {command}");
    }
}

/// Logs how much memory `[limits]` lets clients and servers use.
fn announce_memory(config: &Config, workers_max: usize) {
    let bound = config.memory_bound();
    if bound.links > 0 {
        let unsent = bound.link_bytes.saturating_mul(workers_max as u64);
        tracing::info!(
            memory_max = unsent,
            "memory bound of requests not yet sent to servers, all together: {}",
            memory::human(unsent)
        );
    }
    tracing::info!(
        memory_max = bound.session_bytes,
        request_max = config.limits.request_len_max,
        reply_max = config.limits.reply_len_max,
        copies_max = bound.copies,
        "memory bound of each client, besides one request and one reply in the making, of which \
         there are {} copies if they do not pass on as they come: {}",
        bound.copies,
        memory::human(bound.session_bytes)
    );
}

/// Warns if clients will have to wait for file descriptors before `clients_max` is reached.
fn tell_of_descriptors(config: &Config, workers_max: usize) {
    use rustix::process::{Resource, getrlimit};
    // `None` means that only the system bounds them.
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
    let of_worker = config.memory_bound().links + config.listeners.len() + DESCRIPTORS_OF_WORKER;
    let own = (of_worker * workers_max) as u64 + DESCRIPTORS_OF_PROCESS;
    let (left, wanted) = (limit.saturating_sub(own), u64::from(config.limits.clients_max));
    if left >= wanted {
        return;
    }
    let what = format!(
        "file descriptors for some {left} clients, fewer than clients_max ({wanted}): raise \
         `ulimit -Hn`, which is {limit}, or lower clients_max"
    );
    if left < FEW_CLIENTS {
        tracing::warn!("{what}");
    } else {
        tracing::info!("{what}");
    }
}
