use keyway_base::Limits;
use keyway_net::Address;
use keyway_proxy::LinkOptions;
use keyway_proxy::local::{ClientRegistry, Facts};
use keyway_store::Store;
use keyway_topology::{HealthBoard, ShardedPool};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// What all workers of the process share: settings that do not change, and
/// the few things they meet in.
pub struct Plan {
    /// Every bound.
    pub limits: Limits,
    /// Listening sockets, in the order given to each worker's `Io`.
    pub listeners: Vec<ListenerPlan>,
    /// Pools, by position.
    pub pools: Vec<PoolPlan>,
    /// Every client of the process.
    pub clients: Arc<ClientRegistry>,
    /// What the process knows about itself.
    pub facts: Arc<dyn Facts>,
    /// The next client's id.
    pub next_client_id: AtomicU64,
    /// How long a stopping worker waits for replies that are still to come.
    pub drain_timeout: Duration,
}

/// A listening socket.
pub struct ListenerPlan {
    /// Position of the pool its clients talk to.
    pub pool: u16,
    /// Its address, as `CLIENT LIST` shows it.
    pub name: String,
    /// Password its clients must give, if any; else the pool's.
    pub password: Option<String>,
}

/// A pool.
pub struct PoolPlan {
    /// Its name in the configuration.
    pub name: String,
    /// Password clients must give, if any.
    pub password: Option<String>,
    /// Databases a client may select.
    pub databases: u32,
    /// Clients at once, over all workers; 0 for no bound but the process's.
    pub clients_max: u32,
    /// What serves it.
    pub kind: PoolKind,
}

/// What serves a pool.
pub enum PoolKind {
    /// The embedded store.
    Store(Arc<Store>),
    /// Servers that each hold a part of the keys.
    Sharded {
        /// Servers, hash and distribution.
        pool: ShardedPool,
        /// Address of each server.
        addresses: Vec<Address>,
        /// How links connect and wait.
        options: LinkOptions,
        /// Which servers may be used, shared by all workers.
        health: Arc<HealthBoard>,
    },
}
