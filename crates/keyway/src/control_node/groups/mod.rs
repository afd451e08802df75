//! The servers of groups, as the control node that leads asks and orders them.
//!
//! Each group has a thread, so that a server that hangs holds up its own group alone. The thread asks
//! every server for its role, and carries out the orders of the leader's machine.

mod orders;
mod thread;
mod wire;

use keyway_config::{Config, PoolConfig};
use keyway_fleet::limits::GROUPS_MAX;
use keyway_fleet::{GroupOrder, GroupSeen, GroupSettings, SlotRanges, SlotsSettings};
use keyway_tls::ClientTls;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use thread::Watching;

/// Orders that wait for a thread. The machine gives one at a time.
const ORDERS_MAX: usize = 4;

/// Reports of all threads that wait for the node's thread. While there are more, threads wait.
const TOLD_MAX: usize = 4 * GROUPS_MAX;

/// A group and the way to its servers.
#[derive(Clone)]
pub struct Watched {
    pub settings: GroupSettings,
    pub password: Option<String>,
    pub tls: Option<ClientTls>,
}

impl PartialEq for Watched {
    fn eq(&self, other: &Watched) -> bool {
        self.settings.servers == other.settings.servers
            && self.settings.pool == other.settings.pool
            && self.password == other.password
            && self.tls == other.tls
    }
}

/// A report of a thread.
pub enum Told {
    Seen(GroupSeen),
    /// The outcome of an order.
    Done {
        pool: String,
        number: u64,
        outcome: Result<(), String>,
    },
}

/// The channel to the node's thread.
#[derive(Clone)]
struct Telling {
    told: SyncSender<Told>,
    wake: Arc<OwnedFd>,
}

impl Telling {
    /// Returns false if the node has ended.
    fn tell(&self, told: Told) -> bool {
        let is_heard = self.told.send(told).is_ok();
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        is_heard
    }
}

/// A thread. It ends by itself soon after this is dropped, and orders nothing more.
struct Thread {
    watched: Watched,
    orders: SyncSender<GroupOrder>,
    is_over: Arc<AtomicBool>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        // ORDER: the flag itself is the only data
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The threads of all groups.
pub struct Watchers {
    threads: BTreeMap<String, Thread>,
    telling: Telling,
    told: Receiver<Told>,
    /// The document whose groups are watched: the epoch of the leader, and the revision.
    of: Option<(u64, u64)>,
}

impl Watchers {
    /// Begins without groups. `wake` wakes the node's thread.
    pub fn new(wake: Arc<OwnedFd>) -> Watchers {
        let (tell, told) = sync_channel(TOLD_MAX);
        let telling = Telling { told: tell, wake };
        Watchers { threads: BTreeMap::new(), telling, told, of: None }
    }

    /// Returns whether these are the groups of another document, or of another leader.
    pub fn is_other(&self, of: (u64, u64)) -> bool {
        self.of != Some(of)
    }

    /// Watches these groups from now on.
    pub fn follow(&mut self, of: (u64, u64), groups: &[Watched]) {
        self.of = Some(of);
        let find = |pool: &str| groups.iter().find(|group| group.settings.pool == pool);
        self.threads.retain(|pool, thread| find(pool) == Some(&thread.watched));
        for group in groups {
            let pool = &group.settings.pool;
            if self.threads.contains_key(pool) {
                continue;
            }
            match self.start(group.clone()) {
                Ok(thread) => drop(self.threads.insert(pool.clone(), thread)),
                Err(error) => tracing::error!("pool {pool} is not watched: no thread: {error}"),
            }
        }
    }

    fn start(&self, watched: Watched) -> std::io::Result<Thread> {
        let (orders, ordered) = sync_channel(ORDERS_MAX);
        let is_over = Arc::new(AtomicBool::new(false));
        let watching =
            Watching::new(watched.clone(), ordered, self.telling.clone(), Arc::clone(&is_over));
        std::thread::Builder::new()
            .name("keyway-group".to_owned())
            .spawn(move || watching.run())?;
        Ok(Thread { watched, orders, is_over })
    }

    /// Watches nothing any more: this node leads no more.
    pub fn clear(&mut self) {
        self.threads.clear();
        self.of = None;
    }

    /// Has the servers of a group do something. Returns false if there is no thread or no room.
    pub fn order(&self, order: GroupOrder) -> bool {
        let thread = self.threads.get(&order.pool);
        thread.is_some_and(|thread| thread.orders.try_send(order).is_ok())
    }

    /// Returns what was told, if there is something.
    pub fn poll(&self) -> Option<Told> {
        self.told.try_recv().ok()
    }
}

/// The parts of a document that control decides and watches.
#[derive(Default)]
pub struct OfDocument {
    pub groups: Vec<Watched>,
    /// The pools whose slots may move.
    pub slots: Vec<SlotsSettings>,
}

/// Returns the groups of a document; `None` if it cannot be read, as by an older version. Passwords and
/// certificates in files are read on this host; the reasons why they cannot be are returned too.
pub fn of_document(text: &str) -> (Option<OfDocument>, Vec<String>) {
    if text.is_empty() {
        return (Some(OfDocument::default()), Vec::new());
    }
    let (config, faults) = match Config::load_document("document", text) {
        Ok(config) => (Some(config), Vec::new()),
        Err(errors) => {
            let faults = errors.iter().map(ToString::to_string).collect();
            (Config::check_document("document", text).ok(), faults)
        }
    };
    let Some(config) = config else { return (None, faults) };
    let groups = config.pools.iter().flat_map(PoolConfig::controlled_groups).map(|group| {
        let settings = GroupSettings {
            pool: group.name,
            servers: group.servers.iter().map(ToString::to_string).collect(),
            down_after: group.failover.down_after,
            quorum: group.failover.quorum,
        };
        let password = group.options.password.as_ref();
        let password = password.map(|password| password.expose().to_owned());
        let tls = group.tls.and_then(|tls| tls.loaded.clone());
        Watched { settings, password, tls }
    });
    let groups: Vec<Watched> = groups.collect();
    let slots = config.pools.iter().filter_map(PoolConfig::controlled_slots).map(|pool| {
        let owned = pool.groups.into_iter().map(|(name, own)| (name, SlotRanges::new(own)));
        SlotsSettings { count: pool.space.count(), groups: owned.collect(), pool: pool.pool }
    });
    let slots = slots.collect();
    // A document without groups does not need its files here.
    let faults = if groups.is_empty() { Vec::new() } else { faults };
    (Some(OfDocument { groups, slots }), faults)
}
