//! The memory that a configuration implies.

use crate::access::SECURED_LEN_MAX;
use crate::model::{Config, PoolConfig, PoolKindConfig, StoreConfig, Workers};
use crate::value::format_size;
use keyway_base::{CopyBounds, REPLICA_UNSENT_LEN_MAX};
use keyway_topology::DEPTH_MAX;
use std::fmt::Write;

/// The memory that this configuration may use, in bytes, besides the few megabytes of the process
/// itself and under 2 KiB per idle client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBound {
    /// Data in embedded stores whose `memory_max` is a size.
    pub store_bytes: u64,
    /// Number of embedded stores whose `memory_max` is `"auto"`. Their size is determined at the
    /// start.
    pub stores_auto: usize,
    /// Memory that snapshots take above the data, in all stores.
    pub snapshot_bytes: u64,
    /// Memory of writes that wait for logs, and of compactions, in all stores.
    pub log_bytes: u64,
    /// Memory above the data for replicas of all stores: items that change while a snapshot is sent,
    /// and bytes that the system has not taken yet.
    pub feed_bytes: u64,
    /// Memory above the data while the next process of an upgrade takes all stores over.
    pub upgrade_bytes: u64,
    /// Table of keys that clients with CLIENT TRACKING have read, in all stores.
    pub tracking_bytes: u64,
    /// Memory of Lua for the scripts of all stores, per worker.
    pub script_bytes: u64,
    /// Connections to backends, per worker. Clients that speak RESP3 have as many connections as
    /// the others. Connections for WATCH and blocked commands come on top.
    pub links: usize,
    /// Unsent requests on all these connections, per worker.
    pub link_bytes: u64,
    /// Memory that one busy client may use, besides the one large request or reply being handled
    /// for it.
    pub session_bytes: u64,
    /// Commands queued for EXEC, of all clients together.
    pub transaction_bytes: u64,
    /// Requests in flight through pools that lead to others, per worker.
    pub route_bytes: u64,
    /// Large replies that clients have not read, per worker.
    pub unread_bytes: u64,
    /// Largest number of copies of a large request or reply that is kept until it is whole.
    pub copies: u64,
    /// Messages that one subscriber has not read; `None`: no bound.
    pub subscriber_bytes: Option<u64>,
}

/// RESP2 and RESP3: clients of each protocol have links of their own.
const PROTOCOLS: usize = 2;

/// Scripts and libraries loaded by the clients of a pool, and scripts seen in EVAL, in bytes.
const SCRIPTS_LEN_MAX: u64 = (64 << 20) + (16 << 20) + 500 * (16 << 10);

/// Memory in which a link remembers requests in flight, for SLOWLOG, in bytes.
const TRACE_LEN_MAX: u64 = 16 << 10;

/// Memory in which a worker counts the most requested keys and the keys with the largest values of
/// a pool, in bytes.
const KEY_STATS_LEN_MAX: u64 = 48 << 10;

/// Messages from other workers' clients that wait for one worker, in bytes.
const INBOX_LEN_MAX: u64 = 64 << 20;

/// Private links of clients, per worker.
const PRIVATE_LINKS_MAX: u32 = 50_000;

/// Unsent bytes on each private link of a client that tracks keys.
const TRACKED_UNSENT_MAX: u64 = 256 << 10;

/// Requests that a worker holds while they go through pools of pools, and copies for shadows, in
/// bytes.
const ROUTES_LEN_MAX: u64 = (64 << 20) + (16 << 20);

/// Memory in which a worker keeps requests that wait for full links, for each pool in a row that
/// asks others, in bytes.
const STALLED_LEN_MAX: u64 = 64 << 20;

impl Config {
    /// Returns the length of the longest chain of pools that lead to others.
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

    /// Returns the memory that this configuration may use.
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
            snapshot_bytes: stores()
                .filter_map(|store| store.snapshot.as_ref())
                .fold(0, |sum: u64, snapshot| sum.saturating_add(snapshot.buffer)),
            log_bytes: stores()
                .filter_map(|store| store.log.as_ref())
                .fold(0, |sum: u64, log| sum.saturating_add(2 * log.buffer)),
            feed_bytes: stores().map(feed_bytes_of).fold(0, u64::saturating_add),
            upgrade_bytes: stores().map(upgrade_bytes_of).fold(0, u64::saturating_add),
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

/// Returns the memory above the data for replicas of a store.
fn feed_bytes_of(store: &StoreConfig) -> u64 {
    let feed = &store.replica.feed;
    let changing = feed.buffer.min(store.memory_max.unwrap_or(u64::MAX) / 4);
    changing.saturating_add(u64::from(feed.replicas_max) * REPLICA_UNSENT_LEN_MAX as u64)
}

/// Returns the memory above the data of a store while an upgrade copies it: writes beside the store,
/// and items that change before the snapshot has them.
fn upgrade_bytes_of(store: &StoreConfig) -> u64 {
    let CopyBounds { spool, items, .. } = CopyBounds::of(store.memory_max);
    spool + items
}

/// Returns the number of connections of a worker to the servers of a pool.
fn links_of(pool: &PoolConfig) -> usize {
    let Some((set, _)) = pool.kind.servers() else { return 0 };
    let connections = usize::from(set.options.server_connections);
    // Servers of Redis are also connected to with RESP3.
    let is_memcached = matches!(pool.kind, PoolKindConfig::Memcached(..));
    let protocols = if is_memcached { 1 } else { PROTOCOLS };
    protocols * set.servers.len() * connections
}

/// Returns the number of connections of a worker to servers that are secured by TLS.
fn secured_links(config: &Config) -> usize {
    let is_secured =
        |pool: &&PoolConfig| pool.kind.servers().is_some_and(|(_, config)| config.tls.is_some());
    config.pools.iter().filter(is_secured).map(links_of).sum()
}

/// Texts of scripts and libraries loaded by the clients of an embedded store, and of scripts seen
/// in EVAL, in bytes.
const STORE_TEXTS_LEN_MAX: u64 = (64 << 20) + (16 << 20) + (4 << 20);

/// Returns the sum of `bytes` over all workers, as text, if the number of workers is bounded.
fn of_all_workers(config: &Config, bytes: u64) -> String {
    match config.server.workers {
        Workers::Between { max, .. } if max > 1 => {
            let all = format_size(bytes.saturating_mul(max.into()));
            format!(" ({all} for all {max})")
        }
        _ => String::new(),
    }
}

/// Returns the memory that the process takes at most, as a comment for people.
pub(super) fn memory_comment(config: &Config) -> String {
    let bound = config.memory_bound();
    let mut text = "Memory, at most:\n".to_owned();
    of_stores(config, &bound, &mut text);
    of_links(config, &bound, &mut text);
    crate::access::describe_memory(config, &mut text);
    crate::shm::describe_memory(config, &mut text);
    of_clients(config, &bound, &mut text);
    of_routes(config, &bound, &mut text);
    of_subscribers(config, &bound, &mut text);
    text
}

/// Writes the lines of the embedded stores: their data, tracking tables, and scripts.
fn of_stores(config: &Config, bound: &MemoryBound, text: &mut String) {
    if bound.store_bytes > 0 {
        let _ = writeln!(text, "  data: {} in embedded stores", format_size(bound.store_bytes));
    }
    if bound.stores_auto > 0 {
        text.push_str("  data: a share of the machine's memory, worked out and printed at start\n");
    }
    if bound.snapshot_bytes > 0 {
        let bytes = format_size(bound.snapshot_bytes);
        let _ = writeln!(text, "  snapshots: {bytes} above the data, while they are written");
    }
    if bound.log_bytes > 0 {
        let bytes = format_size(bound.log_bytes);
        let _ =
            writeln!(text, "  logs: {bytes} of writes that wait for the disk, and of compactions");
    }
    if bound.feed_bytes > 0 {
        let _ = writeln!(
            text,
            "  replicas: {} of what changes while a snapshot is sent and of what is on its way to\n    \
             them, and the longest command once for each replica",
            format_size(bound.feed_bytes),
        );
    }
    if bound.upgrade_bytes > 0 {
        let _ = writeln!(
            text,
            "  upgrades: {} of writes while the next process takes the data, which is in the memory of\n    \
             both then",
            format_size(bound.upgrade_bytes),
        );
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
}

/// Writes the lines of connections to servers.
fn of_links(config: &Config, bound: &MemoryBound, text: &mut String) {
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
}

/// Writes the lines of clients and their replies.
fn of_clients(config: &Config, bound: &MemoryBound, text: &mut String) {
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
}

/// Writes the lines of requests through pools of pools, and of key counts.
fn of_routes(config: &Config, bound: &MemoryBound, text: &mut String) {
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
        let bytes = KEY_STATS_LEN_MAX * config.pools.len() as u64;
        let _ = writeln!(
            text,
            "  hot keys: {} of counts per worker{}",
            format_size(bytes),
            of_all_workers(config, bytes),
        );
    }
}

/// Writes the lines of messages for subscribers.
fn of_subscribers(config: &Config, bound: &MemoryBound, text: &mut String) {
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
}
