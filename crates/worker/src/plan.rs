use crate::handed::Heir;
use crate::handouts::Handout;
use crate::pool_kind::leads_to;
use crate::pool_worker::PoolWorker;
use crate::{
    Channels, ErrorStats, Handouts, Invalidations, ListenerAccess, Mail, Monitors, Notices, Pause,
    PoolKind, PoolNotices, Redirects, RoleDoor,
};
use keyway_base::{Limits, Time};
use keyway_net::Mailer;
use keyway_proxy::hot_keys::KeyStats;
use keyway_proxy::local::{ClientRegistry, EmulatedCluster, Facts, Unblock};
use keyway_proxy::pubsub::SubscriptionKind;
use keyway_proxy::{QueueBudget, SlowLog};
use keyway_store::{Store, Who};
use keyway_topology::{HealthBoard, PoolKind as TopologyKind, ReadFrom, Topology};
use keyway_users::Users;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::time::Duration;

/// The state that all workers of the process share: one version of the settings, and the structures
/// that all versions have in common.
pub struct Plan {
    /// The number of the version. The settings at the start are version 1.
    pub generation: u64,
    /// Pools of earlier versions that still exist until what they have begun is over.
    pub retired: Vec<Retired>,
    /// Number of workers that use this version.
    pub followers: AtomicUsize,
    /// All limits.
    pub limits: Limits,
    /// Listening sockets, in the order given to each worker's `Io`.
    pub listeners: Vec<ListenerPlan>,
    /// The read policies of users that have one: [`keyway_users::User::reads`].
    pub user_reads: Vec<ReadFrom>,
    /// Pools, by their index in the topology.
    pub pools: Vec<Arc<PoolPlan>>,
    /// Pools and servers as configured.
    pub topology: Arc<Topology>,
    /// Which servers may be used. All workers share it.
    pub health: Arc<HealthBoard>,
    /// Every client of the process.
    pub clients: Arc<ClientRegistry>,
    /// Facts about the process.
    pub facts: Arc<dyn Facts>,
    /// The next client's id.
    pub next_client_id: Arc<AtomicU64>,
    /// The mailer of each worker, by index. It is filled as workers start.
    pub mailers: Arc<Mutex<Vec<Mailer<Mail>>>>,
    /// Asks workers to accept the clients of busy workers.
    pub relief: Arc<Relief>,
    /// How long a stopping worker waits for missing replies.
    pub drain_timeout: Duration,
    /// How long a worker polls shared memory before it sleeps.
    pub spin: Duration,
    /// Log lines with a limited rate.
    pub notices: Arc<Notices>,
    /// The memory limit of commands that wait for `EXEC`.
    pub transactions: Arc<QueueBudget>,
    /// The subscribers of the channels of the embedded stores.
    pub channels: Arc<Channels>,
    /// The clients that must be told when keys of the embedded stores change.
    pub invalidations: Arc<Invalidations>,
    /// Replies to clients that waited on an embedded store.
    pub handouts: Arc<Handouts>,
    /// The monitors.
    pub monitors: Arc<Monitors>,
    /// Invalidations for clients of other workers.
    pub redirects: Arc<Redirects>,
}

/// A pool that is no longer in the settings, or has been replaced there.
#[derive(Clone, Debug)]
pub struct Retired {
    /// Its index.
    pub pool: u16,
    /// The first version without it.
    pub generation: u64,
    /// True if its name belongs to another pool now, to which its clients move.
    pub is_replaced: bool,
    /// When clients that have begun something in it are forced to end it.
    pub until: Time,
    /// Number of workers in which it has not ended yet.
    pub left: Arc<AtomicUsize>,
}

impl Retired {
    /// Returns the name that a pool called `name` has once the version `generation` is without it.
    /// No configured pool has such a name, because names cannot contain that character.
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
    /// Returns the worker to ask next for `from`, out of `count`, or `None` if that worker has not
    /// read an earlier request yet. Each call asks another worker: the last one may be busy too.
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
    /// Returns the pool at this index, if it is one of an earlier version.
    pub fn retired(&self, pool: u16) -> Option<&Retired> {
        self.retired.iter().find(|retired| retired.pool == pool)
    }

    /// Tells a worker that something waits in an inbox of its clients. If its mailbox is full, it
    /// wakes anyway, and checks the inboxes after it has read its mail.
    pub(crate) fn post_published(&self, worker: u16) {
        if let Some(mailer) = self.mailers.lock().get(usize::from(worker)) {
            let _ = mailer.post(Mail::Published);
        }
    }

    /// Answers the clients that wait for a snapshot of a store which has ended. To be called by
    /// whoever has written it.
    pub fn answer_saved(&self, store: &Store) {
        store.serve_saved(|waiter, reply| {
            let Who { client, worker, .. } = waiter.who;
            if self.handouts.post(worker, Handout { client, reply }) {
                self.post_published(worker);
            }
        });
    }

    /// Ends the waiting of clients that may write: their store has become a replica. Also waits
    /// until no worker is at a request that it began before, or for `patience`.
    pub fn settle_replica(&self, store: &Store, patience: Duration) {
        store.unblock_writers(|waiter, reply| {
            let Who { client, worker, .. } = waiter.who;
            if self.handouts.post(worker, Handout { client, reply }) {
                self.post_published(worker);
            }
        });
        self.settle(patience);
    }

    /// Waits until every worker has passed the request that it is at, or for `patience`: every
    /// request that was begun before is over then. Returns whether all have.
    pub fn settle(&self, patience: Duration) -> bool {
        let (tell, told) = std::sync::mpsc::channel();
        let mut have_all = true;
        for mailer in &*self.mailers.lock() {
            // A worker whose mailbox is full is not waited for.
            have_all &= mailer.post(Mail::Pass(tell.clone())).is_ok();
        }
        drop(tell);
        // The channel ends when the last worker has dropped its mail.
        let ended = told.recv_timeout(patience);
        have_all && ended == Err(RecvTimeoutError::Disconnected)
    }

    /// Returns the indices of pools whose requests may reach an embedded store.
    pub fn pools_on_stores(&self) -> Vec<usize> {
        let pools = self.topology.pools();
        let is_store = |kind: &TopologyKind| matches!(kind, TopologyKind::Store);
        let reaches = |index: &usize| match &self.pools[*index].kind {
            PoolKind::Store(_) => true,
            PoolKind::Routed(routes) => leads_to(&routes.pool, pools, is_store),
            _ => false,
        };
        (0..self.pools.len()).filter(reaches).collect()
    }

    /// Holds every request that may reach an embedded store, or no longer.
    pub fn hold_stores(&self, is_held: bool) {
        self.pools_on_stores().iter().for_each(|at| self.pools[*at].pause.set_held(is_held));
    }

    /// Has the workers give the clients of embedded stores to another process. `done` is dropped
    /// by each worker once it has given those that were ready; the others follow.
    pub fn hand_on(&self, heir: &Arc<dyn Heir>, done: &Sender<()>) {
        // A worker may wait for the list itself.
        let mailers = self.mailers.lock().clone();
        for mailer in &mailers {
            let mut mail = Mail::HandOn { heir: Arc::clone(heir), done: done.clone() };
            while let Err(unsent) = mailer.post(mail) {
                // It reads its mail in a moment.
                mail = unsent;
                std::thread::yield_now();
            }
        }
    }

    /// Has a worker tell clients of what was changed in a pool's store by no worker. `is_asked`
    /// says whether the worker has yet to read an earlier mail.
    pub fn post_changed(&self, pool: u16, is_asked: &Arc<AtomicBool>) {
        // ORDER: AcqRel pairs with the worker that clears it before it looks.
        if is_asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let mail = Mail::Changed { pool, is_asked: Arc::clone(is_asked) };
        if self.mailers.lock().first().is_none_or(|mailer| mailer.post(mail).is_err()) {
            // A worker that reads none looks ten times a second.
            is_asked.store(false, Ordering::Release);
        }
    }

    /// Publishes a message of no worker to the subscribers of a pool's store.
    pub fn publish(&self, pool: u16, is_sharded: bool, channel: &[u8], message: &[u8]) {
        let kind = match is_sharded {
            true => SubscriptionKind::Shard,
            false => SubscriptionKind::Channel,
        };
        let of = PoolWorker { pool, worker: u16::MAX };
        let receivers = self.channels.publish(of, kind, channel, message);
        receivers.wake.iter().for_each(|worker| self.post_published(*worker));
    }

    /// Wakes every worker, as when a pool has another primary. A worker whose mailbox is full is
    /// awake.
    pub fn wake_workers(&self) {
        for mailer in self.mailers.lock().iter() {
            // Nobody waits for the word that it has woken.
            let (done, _) = std::sync::mpsc::channel();
            let _ = mailer.post(Mail::Pass(done));
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

    /// Asks every worker except `from` to end a client's blocking command. A full mailbox misses
    /// it.
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
    /// True if it has ended: its clients are answered and leave.
    pub is_ended: bool,
    /// Index of the pool of its clients.
    pub pool: u16,
    /// Its address, as `CLIENT LIST` shows it.
    pub name: Arc<str>,
    /// Its users.
    pub users: Arc<Users>,
    /// Set if its clients use memcached: the largest length of items, in bytes.
    pub memcached: Option<u32>,
    /// The cluster that its clients see.
    pub cluster: Option<Arc<EmulatedCluster>>,
    /// The read policy of its clients, if that is not the pool's.
    pub read_from: Option<ReadFrom>,
    /// How its clients are accepted.
    pub access: ListenerAccess,
}

/// A pool.
pub struct PoolPlan {
    /// Its name in the configuration.
    pub name: String,
    /// Number of databases that a client may select.
    pub databases: u32,
    /// Largest number of clients at once, over all workers. 0: no limit but
    /// [`Limits::clients_max`].
    pub clients_max: u32,
    /// The state of `CLIENT PAUSE`.
    pub pause: Pause,
    /// Error replies to its clients.
    pub errors: Arc<ErrorStats>,
    /// Its most requested keys, and those with the largest values.
    pub key_stats: Arc<KeyStats>,
    /// Requests for which its servers, or the store, took long.
    pub slow_log: Arc<SlowLog>,
    /// The scripts that its clients have loaded, if it is a store.
    pub scripts: Arc<keyway_script::Registry>,
    /// The log lines about this pool that are limited in rate.
    pub notices: PoolNotices,
    /// The role of its store.
    pub role: RoleDoor,
    /// The store, servers or pools that serve it.
    pub kind: PoolKind,
}

impl PoolPlan {
    /// Takes over the notices of `old`, the pool that this one replaces, for servers at the same
    /// addresses.
    pub fn inherit_notices(&mut self, old: &PoolPlan) {
        // The indices of discovered servers have no meaning in another pool.
        let (Some(new), Some(was)) = (self.kind.listed(), old.kind.listed()) else { return };
        let heir_of = |server: u16| {
            let endpoint = &was.servers.get(usize::from(server))?.endpoint;
            let at = new.servers.iter().position(|server| server.endpoint == *endpoint)?;
            Some(at as u16)
        };
        self.notices.health.inherit(&old.notices.health, heir_of);
    }
}
