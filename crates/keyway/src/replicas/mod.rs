//! Embedded stores as replicas: which primary each follows, and the thread that changes roles.
//!
//! ```text
//!  replica_of, a reload ──┐
//!  REPLICAOF ─────────────┴─► the thread ─► Standby::follow, Standby::promote ─► the reply
//! ```
//! A role changes on this thread alone, because the end of a follower may take a moment. Ten times
//! a second the thread looks at the links, to log what has become of them and to refuse clients of
//! replicas that are not to show old data.

mod crowd;
mod failover;
mod link_log;
mod refusals;
mod role;
mod waits;

use crate::serve::wall_clock;
use keyway_config::{Config, PoolKindConfig, ReplicaConfig, ReplicationConfig};
use keyway_net::{FinalStore, Followed};
use keyway_replica::feed::FeedSettings;
use keyway_standby::{FeedConfig, Parts, Standby};
use keyway_store::{EffectLimits, Store};
use keyway_worker::{Failover, Plan, PoolKind, ReplicaLink, ReplicaWait, RoleReply, Wish};
pub use role::Copied;
use role::{Role, RoleHandle, Taken};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks at the links. More refuses clients later once a link is down.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Least memory for the stream of a store, in bytes.
const ROOM_MIN: u64 = 4 << 20;

/// An order to the thread.
enum Ask {
    /// A client wants a role.
    Change { role: Arc<Role>, wish: Wish, done: Box<dyn FnOnce(RoleReply) + Send> },
    /// A client becomes a replica.
    Attach { role: Arc<Role>, link: Box<ReplicaLink> },
    /// A client waits for replicas.
    Wait { role: Arc<Role>, wait: ReplicaWait },
    /// A client wants the store handed over.
    Failover { role: Arc<Role>, failover: Failover, done: Box<dyn FnOnce(RoleReply) + Send> },
    /// A replica has acknowledged a later offset.
    Acknowledged,
    /// A pool has come.
    Pool(Arc<Role>),
    /// The settings of a pool have changed.
    Settings { role: Arc<Role>, settings: Box<ReplicaConfig> },
    /// The process ends.
    End,
}

/// The roles of a process's stores.
pub struct Replicas {
    tell: Sender<Ask>,
    asked: Option<Receiver<Ask>>,
    roles: Vec<Arc<Role>>,
    thread: Option<JoinHandle<()>>,
}

impl Replicas {
    /// Gives each store its role. One with a primary takes no writes of clients from here on.
    pub fn prepare(plan: &Arc<Plan>, config: &Config) -> Self {
        let (tell, asked) = channel();
        let mut replicas = Self { tell, asked: Some(asked), roles: Vec::new(), thread: None };
        replicas.roles = replicas.new_roles(plan, config);
        replicas
    }

    /// The stores of a configuration that have no role yet.
    fn new_roles(&self, plan: &Arc<Plan>, config: &Config) -> Vec<Arc<Role>> {
        let mut roles = Vec::new();
        for (index, (pool, settings)) in plan.pools.iter().zip(&config.pools).enumerate() {
            let (PoolKind::Store(store), PoolKindConfig::Store(of_store)) =
                (&pool.kind, &settings.kind)
            else {
                continue;
            };
            if pool.role.get().is_some() {
                continue;
            }
            let cut_off = Arc::new(AtomicU64::new(0));
            let parts = Parts {
                store: Arc::clone(store),
                scripts: Arc::clone(&pool.scripts),
                audience: crowd::of(plan, index as u16, self.tell.clone(), Arc::clone(&cut_off)),
                clock: wall_clock,
            };
            let settings = of_store.replica.clone();
            let feed = feed_of(&settings.feed, store);
            let standby = Standby::with_feed(parts, settings.serves_stale, feed);
            store.set_replica(settings.primary.is_some());
            store.set_alone(settings.primary.is_none() && settings.feed.replicas_min > 0);
            let place = (Arc::clone(plan), index);
            let role = Arc::new(Role::new(&pool.name, standby, settings, place, cut_off));
            let handle = RoleHandle { role: Arc::clone(&role), tell: self.tell.clone() };
            pool.role.set(Arc::new(handle));
            roles.push(role);
        }
        roles
    }

    /// Starts the thread, if there is a store.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn start(&mut self) -> io::Result<()> {
        if self.roles.is_empty() {
            return Ok(());
        }
        let Some(asked) = self.asked.take() else { return Ok(()) };
        let roles = self.roles.clone();
        let thread = std::thread::Builder::new().name("keyway-roles".into());
        self.thread = Some(thread.spawn(move || run(&asked, roles))?);
        Ok(())
    }

    /// Follows a reload. A store whose settings are what they were keeps the role that it has.
    pub fn follow(&mut self, plan: &Arc<Plan>, config: &Config) {
        for settings in &config.pools {
            let PoolKindConfig::Store(of_store) = &settings.kind else { continue };
            let role = self.roles.iter().find(|role| role.name() == settings.name);
            if let Some(role) = role.filter(|role| role.settings() != of_store.replica) {
                let role = Arc::clone(role);
                let settings = Box::new(of_store.replica.clone());
                // The thread ends only with the process.
                let _ = self.tell.send(Ask::Settings { role, settings });
            }
        }
        for role in self.new_roles(plan, config) {
            self.roles.push(Arc::clone(&role));
            let _ = self.tell.send(Ask::Pool(role));
        }
        if let Err(error) = self.start() {
            tracing::error!("no roles of new pools: {error}");
        }
    }

    /// Has a store take over the data of the process before, which comes by a socket.
    ///
    /// # Errors
    /// The system has no thread or descriptor for it.
    pub fn take_over(&self, pool: &str, socket: OwnedFd) -> io::Result<()> {
        self.role(pool).map_or(Ok(()), |role| role.take_over(socket))
    }

    /// Returns up to which offset a store has the data of the process before; `None` while its
    /// snapshot is on its way.
    ///
    /// # Errors
    /// Why nothing comes any more.
    pub fn taken(&self, pool: &str) -> Result<Option<u64>, String> {
        match self.role(pool).map(|role| role.taken()) {
            Some(Taken::Begun) => Ok(None),
            Some(Taken::UpTo(offset)) => Ok(Some(offset)),
            Some(Taken::Failed(why)) => Err(why),
            None => Err("there is no such store".to_owned()),
        }
    }

    /// Has the stream of a store that has taken over go on: see [`Role::succeed`].
    pub fn succeed(&self, last: &FinalStore, configured_before: &str) {
        if let Some(role) = self.role(&last.pool) {
            role.succeed(last, configured_before);
        }
    }

    /// Notes what the next process is to know of a store's replicas.
    pub fn note_replicas(&self, last: &mut FinalStore) {
        if let Some(role) = self.role(&last.pool) {
            last.history = role.history();
            last.replicas = role.following() as u64;
        }
    }

    /// Gives a store that has taken over its role: see [`Role::begin_as`].
    pub fn begin_as(&self, pool: &str, before: Option<&Followed>, configured_before: &str) {
        if let Some(role) = self.role(pool) {
            role.begin_as(before, configured_before);
        }
    }

    /// Ends the links of all replicas for a while. Returns how each store goes on.
    pub fn rest(&self) -> Vec<Option<Followed>> {
        self.roles.iter().map(|role| role.rest()).collect()
    }

    /// Goes on where [`Replicas::rest`] has ended.
    pub fn go_on(&self, followed: &[Option<Followed>]) {
        self.roles.iter().zip(followed).for_each(|(role, followed)| role.go_on(followed));
    }

    /// The stores, with the names of their pools and the primaries that the configuration names.
    pub fn stores(&self) -> Vec<(String, String, Arc<Store>)> {
        let of = |role: &Arc<Role>| {
            (role.name().to_owned(), role.configured(), Arc::clone(role.store()))
        };
        self.roles.iter().map(of).collect()
    }

    /// The bytes that an upgrade keeps beside a store, for whoever counts them.
    pub fn spooled(&self, pool: &str) -> Arc<AtomicU64> {
        self.role(pool).map(|role| role.spooled()).unwrap_or_default()
    }

    /// Notes that an upgrade copies a store, until what is returned is dropped. Its data is not
    /// replaced meanwhile.
    pub fn copied(&self, pool: &str) -> Option<Copied> {
        self.role(pool).map(|role| role.copied())
    }

    /// Returns the pool whose store is being handed over to a replica, by FAILOVER.
    pub fn failing_over(&self) -> Option<&str> {
        self.roles.iter().find(|role| role.is_failing_over()).map(|role| role.name())
    }

    fn role(&self, pool: &str) -> Option<&Arc<Role>> {
        self.roles.iter().find(|role| role.name() == pool)
    }

    /// Ends the thread and all links. Stores keep their data and their roles.
    pub fn end(&mut self) {
        let _ = self.tell.send(Ask::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The port at which clients reach a pool, which a primary shows in INFO.
fn port_of(plan: &Plan, pool: usize) -> Option<u16> {
    let of_pool = |listener: &&keyway_worker::ListenerPlan| usize::from(listener.pool) == pool;
    let mut listeners = plan.listeners.iter().filter(of_pool);
    listeners.find_map(|listener| listener.name.rsplit_once(':')?.1.parse().ok())
}

/// Bounds of a store as a primary.
fn feed_of(config: &ReplicationConfig, store: &Store) -> FeedConfig {
    let limits = limits_of(config, store);
    FeedConfig {
        limits,
        snapshot_buffer: limits.room as u64,
        feed: FeedSettings {
            replicas_max: config.replicas_max as usize,
            timeout: config.timeout,
            ping_period: config.ping_every,
            ..FeedSettings::default()
        },
    }
}

/// Bounds of a store's stream. It counts towards the memory of the data, and is to leave most of
/// that to them.
fn limits_of(config: &ReplicationConfig, store: &Store) -> EffectLimits {
    let memory_max = match store.stats().memory_max {
        0 => u64::MAX,
        max => max,
    };
    let history = config.backlog.min(memory_max / 8);
    let room = config.buffer.min(memory_max / 4).max(2 * history).max(ROOM_MIN);
    EffectLimits { room: room as usize, history: history as usize }
}

#[allow(clippy::disallowed_methods, reason = "the thread that changes roles has no turns")]
fn now() -> Instant {
    Instant::now()
}

fn run(asked: &Receiver<Ask>, mut roles: Vec<Arc<Role>>) {
    loop {
        let deadline = roles.iter().filter_map(|role| role.deadline()).min();
        let until = deadline.map_or(LOOK_EVERY, |at| at.saturating_duration_since(now()));
        match asked.recv_timeout(LOOK_EVERY.min(until)) {
            Ok(Ask::Change { role, wish, done }) => done(role.change(&wish)),
            Ok(Ask::Attach { role, link }) => role.attach(*link),
            Ok(Ask::Wait { role, wait }) => role.wait(wait),
            Ok(Ask::Failover { role, failover, done }) => done(role.fail_over(failover)),
            Ok(Ask::Acknowledged) => {}
            Ok(Ask::Pool(role)) => roles.push(role),
            Ok(Ask::Settings { role, settings }) => role.follow_settings(*settings),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Ask::End) | Err(RecvTimeoutError::Disconnected) => {
                roles.iter().for_each(|role| role.end());
                return;
            }
        }
        roles.iter().for_each(|role| role.look());
    }
}
