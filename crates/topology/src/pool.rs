use std::time::Duration;

use keyway_memcache::Dialect;

use crate::{
    Circuit, ClusterPool, Discovery, Ejection, ReadFrom, ReadPolicy, ReplicatedPool, RoutedPool,
    Server, ServerSet, SlotsPool,
};

/// Servers of memcached that share the keys by hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemcachedPool {
    /// The servers.
    pub servers: ServerSet,
    /// The protocol of the servers.
    pub dialect: Dialect,
    /// The user name sent with the password, if the servers want one.
    pub user: Option<String>,
    /// The source of missing items.
    pub warm_up: Option<WarmUp>,
}

/// The pool from which a pool of memcached gets items that it does not have yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmUp {
    /// The name of the pool that has them.
    pub from: String,
    /// Expiry of items whose remaining time the old servers cannot tell.
    pub ttl_max: Duration,
    /// How long after the start it goes on; `None`: without end.
    pub lasts: Option<Duration>,
}

/// The kind of a pool, with its settings.
#[allow(clippy::large_enum_variant, reason = "there are a few, made once at the start")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// The embedded store of this process.
    Store,
    /// Servers of Redis that share the keys by hash.
    Sharded(ServerSet),
    /// Servers of memcached that share the keys by hash.
    Memcached(MemcachedPool),
    /// A Redis Cluster.
    Cluster(ClusterPool),
    /// Primaries with their replicas.
    Replicated(ReplicatedPool),
    /// Groups of servers that share slots.
    Slots(SlotsPool),
    /// Sentinels, which only Keyway itself asks.
    Sentinels(ServerSet),
    /// Other pools.
    Routed(RoutedPool),
}

impl PoolKind {
    /// Returns the word for it in configuration files.
    pub fn name(&self) -> &'static str {
        match self {
            PoolKind::Store => "store",
            PoolKind::Sharded(_) => "sharded",
            PoolKind::Memcached(_) => "memcached",
            PoolKind::Cluster(_) => "cluster",
            PoolKind::Replicated(_) => "replicated",
            PoolKind::Slots(_) => "slots",
            PoolKind::Sentinels(_) => "sentinels",
            PoolKind::Routed(routed) => routed.kind(),
        }
    }

    /// Returns the servers, if the kind has servers of its own.
    pub fn servers(&self) -> Option<&ServerSet> {
        match self {
            PoolKind::Store | PoolKind::Routed(_) => None,
            PoolKind::Sharded(servers) | PoolKind::Sentinels(servers) => Some(servers),
            PoolKind::Memcached(pool) => Some(&pool.servers),
            PoolKind::Cluster(pool) => Some(&pool.servers),
            PoolKind::Replicated(pool) => Some(&pool.servers),
            PoolKind::Slots(pool) => Some(&pool.servers),
        }
    }

    /// Returns the servers, to be changed.
    pub fn servers_mut(&mut self) -> Option<&mut ServerSet> {
        match self {
            PoolKind::Store | PoolKind::Routed(_) => None,
            PoolKind::Sharded(servers) | PoolKind::Sentinels(servers) => Some(servers),
            PoolKind::Memcached(pool) => Some(&mut pool.servers),
            PoolKind::Cluster(pool) => Some(&mut pool.servers),
            PoolKind::Replicated(pool) => Some(&mut pool.servers),
            PoolKind::Slots(pool) => Some(&mut pool.servers),
        }
    }

    /// Returns the settings of discovery, if the kind discovers its servers.
    pub fn discovery(&self) -> Option<&Discovery> {
        match self {
            PoolKind::Cluster(pool) => Some(&pool.discovery),
            PoolKind::Replicated(pool) => Some(&pool.discovery),
            PoolKind::Slots(pool) => Some(&pool.discovery),
            PoolKind::Store
            | PoolKind::Sharded(_)
            | PoolKind::Memcached(_)
            | PoolKind::Sentinels(_)
            | PoolKind::Routed(_) => None,
        }
    }

    /// Returns the settings of discovery, to be changed.
    pub fn discovery_mut(&mut self) -> Option<&mut Discovery> {
        match self {
            PoolKind::Cluster(pool) => Some(&mut pool.discovery),
            PoolKind::Replicated(pool) => Some(&mut pool.discovery),
            PoolKind::Slots(pool) => Some(&mut pool.discovery),
            PoolKind::Store
            | PoolKind::Sharded(_)
            | PoolKind::Memcached(_)
            | PoolKind::Sentinels(_)
            | PoolKind::Routed(_) => None,
        }
    }
}

/// A set of backends under one routing policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The configured name: the label of metrics, and the name in logs and listeners.
    pub name: String,
    /// How requests are routed.
    pub kind: PoolKind,
}

impl Pool {
    /// Returns the servers of the pool itself; empty for the embedded store and for pools of pools.
    pub fn servers(&self) -> &[Server] {
        self.kind.servers().map_or(&[], |set| &set.servers)
    }

    /// Returns the settings of circuits, if the pool has circuits.
    pub fn circuit(&self) -> Option<Circuit> {
        self.kind.servers()?.options.circuit
    }

    /// Returns the settings of ejection, if the pool ejects servers.
    pub fn ejection(&self) -> Option<Ejection> {
        self.kind.servers()?.options.ejection
    }

    /// Returns the policy of reads from replicas, if there are any.
    pub fn reads(&self) -> Option<&ReadPolicy> {
        let reads = &self.kind.discovery()?.reads;
        (reads.from != ReadFrom::Primary).then_some(reads)
    }
}
