use crate::{
    Channels, ErrorStats, Handouts, Invalidations, ListenerAccess, Mail, Monitors, Notices, Pause,
    PoolKind, PoolNotices, Redirects,
};
use keyway_base::{Limits, Time};
use keyway_net::Mailer;
use keyway_proxy::hot_keys::NotedKeys;
use keyway_proxy::local::{ClientRegistry, EmulatedCluster, Facts, Unblock};
use keyway_proxy::{QueueBudget, SlowLog};
use keyway_topology::{HealthBoard, ReadFrom, Topology};
use keyway_users::Users;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// What all workers of the process share: one version of the settings, and the few things
/// they meet in, which all versions have together.
pub struct Plan {
    /// Which version of the settings it is; 1 are those of the start.
    pub generation: u64,
    /// Pools of earlier versions that are here until what they have begun is over.
    pub retired: Vec<Retired>,
    /// How many workers have changed over to this version.
    pub followers: AtomicUsize,
    /// Every bound.
    pub limits: Limits,
    /// Listening sockets, in the order given to each worker's `Io`.
    pub listeners: Vec<ListenerPlan>,
    /// Which servers the reads of users go to that say so: [`keyway_users::User::reads`].
    pub user_reads: Vec<ReadFrom>,
    /// Pools, by their position in the topology.
    pub pools: Vec<Arc<PoolPlan>>,
    /// Pools and servers as configured.
    pub topology: Arc<Topology>,
    /// Which servers may be used; shared by all workers.
    pub health: Arc<HealthBoard>,
    /// Every client of the process.
    pub clients: Arc<ClientRegistry>,
    /// What the process knows about itself.
    pub facts: Arc<dyn Facts>,
    /// The next client's id.
    pub next_client_id: Arc<AtomicU64>,
    /// Mail to every worker, by index; filled as workers start.
    pub mailers: Arc<Mutex<Vec<Mailer<Mail>>>>,
    /// Asks workers to accept the clients of busy workers.
    pub relief: Arc<Relief>,
    /// How long a stopping worker waits for replies that are still to come.
    pub drain_timeout: Duration,
    /// How long a worker looks at shared memory before it sleeps.
    pub spin: Duration,
    /// Lines of the log of which there are few.
    pub notices: Arc<Notices>,
    /// What the commands may take that wait for `EXEC`.
    pub transactions: Arc<QueueBudget>,
    /// Who listens to the channels of the embedded stores.
    pub channels: Arc<Channels>,
    /// Who is to be told when keys of the embedded stores change.
    pub invalidations: Arc<Invalidations>,
    /// What is answered clients that waited on an embedded store.
    pub handouts: Arc<Handouts>,
    /// Who watches the requests.
    pub monitors: Arc<Monitors>,
    /// What is to be told clients of other workers about their keys.
    pub redirects: Arc<Redirects>,
}

/// A pool that is not among the settings any more, or has others there.
#[derive(Clone, Debug)]
pub struct Retired {
    /// Its position.
    pub pool: u16,
    /// The version that it is not in.
    pub generation: u64,
    /// Its name is another's now, to which its clients go.
    pub is_replaced: bool,
    /// When clients that have begun something in it are made to end it.
    pub until: Time,
    /// How many workers have still to end what it has begun.
    pub left: Arc<AtomicUsize>,
}

impl Retired {
    /// The name that a pool called `name` has once the version `generation` is without it. No pool
    /// of a file is called so: names have no such character.
    pub fn name_of(name: &str, generation: u64) -> String {
        format!("{name}~{generation}")
    }
}

/// Asks workers to accept the clients that wait at the sockets of busy workers.
#[derive(Debug, Default)]
pub struct Relief {
    /// Number of times that a worker was asked.
    turn: AtomicUsize,
    /// A bit for each worker that was asked and has not read it yet.
    asked: AtomicU64,
}

impl Relief {
    /// Returns the worker to ask next on behalf of `from`, out of `count`; none if that worker has
    /// not read an earlier one yet. Each call asks another worker: the last one may be busy too.
    fn next(&self, from: u16, count: usize) -> Option<usize> {
        let others = count.checked_sub(1).filter(|others| *others > 0)?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let worker = (usize::from(from) + 1 + turn % others) % count;
        let bit = 1 << (worker % 64);
        (self.asked.fetch_or(bit, Ordering::Relaxed) & bit == 0).then_some(worker)
    }

    /// Asks another worker to accept the clients that wait at the sockets of the busy worker
    /// `from`.
    pub(crate) fn ask(&self, from: u16, mailers: &Mutex<Vec<Mailer<Mail>>>) {
        let mailers = mailers.lock();
        if let Some(worker) = self.next(from, mailers.len())
            && mailers[worker].post(Mail::Relieve).is_err()
        {
            self.note_read(worker as u16);
        }
    }

    /// Notes that a worker has read the mail that asks it.
    pub(crate) fn note_read(&self, worker: u16) {
        self.asked.fetch_and(!(1 << (worker % 64)), Ordering::Relaxed);
    }
}

impl Plan {
    /// The pool at this position, where it is one of an earlier version.
    pub fn retired(&self, pool: u16) -> Option<&Retired> {
        self.retired.iter().find(|retired| retired.pool == pool)
    }

    /// Tells a worker that something waits in an inbox of its clients. Where its mailbox
    /// is full it wakes anyway, and looks after reading its mail.
    pub(crate) fn post_published(&self, worker: u16) {
        if let Some(mailer) = self.mailers.lock().get(usize::from(worker)) {
            let _ = mailer.post(Mail::Published);
        }
    }

    /// Asks every worker but `from` to close these clients. A mailbox that is
    /// full misses it: `CLIENT KILL` is best effort across workers then.
    pub(crate) fn post_kill(&self, from: u16, ids: &[u64]) {
        for (index, mailer) in self.mailers.lock().iter().enumerate() {
            if index != usize::from(from) {
                let _ = mailer.post(Mail::Kill(ids.to_vec()));
            }
        }
    }

    /// Asks every worker but `from` to end a client's blocking command. A
    /// mailbox that is full misses it.
    pub(crate) fn post_unblock(&self, from: u16, unblock: Unblock) {
        for (index, mailer) in self.mailers.lock().iter().enumerate() {
            if index != usize::from(from) {
                let _ = mailer.post(Mail::Unblock(unblock));
            }
        }
    }
}

/// A listening socket.
pub struct ListenerPlan {
    /// Nobody listens there any more: its clients are answered and leave.
    pub is_ended: bool,
    /// Position of the pool its clients talk to.
    pub pool: u16,
    /// Its address, as `CLIENT LIST` shows it.
    pub name: Arc<str>,
    /// Who may come in.
    pub users: Arc<Users>,
    /// Its clients are those of memcached, and store items of so many bytes at
    /// most.
    pub memcached: Option<u32>,
    /// The cluster that its clients are told of.
    pub cluster: Option<Arc<EmulatedCluster>>,
    /// Which servers its clients read from, where that is not as the pool says.
    pub read_from: Option<ReadFrom>,
    /// How its clients come in.
    pub entrance: ListenerAccess,
}

/// A pool.
pub struct PoolPlan {
    /// Its name in the configuration.
    pub name: String,
    /// Databases a client may select.
    pub databases: u32,
    /// Clients at once, over all workers; 0 for no bound but [`Limits::clients_max`].
    pub clients_max: u32,
    /// Set by `CLIENT PAUSE`.
    pub pause: Pause,
    /// Error replies to its clients.
    pub errors: Arc<ErrorStats>,
    /// Its keys that are asked for most, and those with the largest values.
    pub noted: Arc<NotedKeys>,
    /// What its servers, or the store, took long for.
    pub slow_log: Arc<SlowLog>,
    /// What its clients have loaded, where it is a store.
    pub scripts: Arc<keyway_script::Registry>,
    /// The log lines about this pool that are limited in rate.
    pub notices: PoolNotices,
    /// What serves it.
    pub kind: PoolKind,
}

/// A worker's part in a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolWorker {
    /// Position of the pool.
    pub(crate) pool: u16,
    /// The worker's number.
    pub(crate) worker: u16,
}

impl PoolPlan {
    /// Takes over the notices of `old`, the pool that this one replaces, for servers at the same
    /// addresses.
    pub fn inherit_notices(&mut self, old: &PoolPlan) {
        // The positions of discovered servers have no meaning in another pool.
        let (Some(new), Some(was)) = (self.kind.listed(), old.kind.listed()) else { return };
        let heir_of = |server: u16| {
            let endpoint = &was.servers.get(usize::from(server))?.endpoint;
            let at = new.servers.iter().position(|server| server.endpoint == *endpoint)?;
            Some(at as u16)
        };
        self.notices.health.inherit(&old.notices.health, heir_of);
    }
}
