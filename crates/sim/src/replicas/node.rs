//! A store with its role, and the thread that changes roles.

use super::history::Histories;
use super::links::Links;
use super::stage::{Stage, Virtual, clock};
use crate::random::Random;
use crate::wire::{Value, parse_value};
use keyway_base::ByteRange;
use keyway_command::{Args, Flags, Request};
use keyway_rdb::replication::Request as Psync;
use keyway_replica::feed::{Candidate, Stage as Fed};
use keyway_replica::{Cause, FollowerSettings, Stage as LinkStage, State, System};
use keyway_resp::Protocol;
use keyway_script::{Registry, ScriptLimits};
use keyway_standby::{Audience, FeedConfig, Parts, Primary, Standby};
use keyway_store::{Context, Footprint, Loading, Refused, Store, StoreConfig};
use keyway_topology::Endpoint;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The port of the first store.
const PORT: u16 = 7000;
/// Databases of a store.
pub(super) const DATABASES: u32 = 3;
/// Longest time for which a store hears a replica in front of its PSYNC.
const INTRODUCTION: Duration = Duration::from_secs(2);
/// Time between two rounds of upkeep.
const TICK: u64 = 100_000_000;
/// How long a store that is handed over waits with its writes refused.
const PATIENCE: Duration = Duration::from_millis(2500);

/// The settings of the stores of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeOptions {
    pub(super) feed: FeedConfig,
    pub(super) timeout: Duration,
    pub(super) pause_min: Duration,
    pub(super) pause_max: Duration,
}

/// An order to the thread of roles.
pub(super) enum Order {
    /// Follow another store.
    Follow(usize),
    /// Become a primary.
    Promote,
    /// Hand the store over to a replica that has everything.
    FailOver { until: u64 },
    /// Give up a hand-over.
    Abort,
    /// Lose everything, and begin anew as an empty primary.
    Restart,
    /// Feed a replica.
    Attach(Box<Candidate>),
    /// End.
    End,
}

/// A store from its start to its restart.
pub(super) struct Life {
    pub(super) store: Arc<Store>,
    pub(super) standby: Standby,
}

/// A place for a store.
pub(super) struct Node {
    pub(super) index: usize,
    stage: Arc<Stage>,
    system: Arc<dyn System>,
    options: NodeOptions,
    life: Mutex<Arc<Life>>,
    orders: Mutex<VecDeque<Order>>,
    failover: Mutex<Failover>,
    /// True while writes are held, as the store is handed over.
    pub(super) is_paused: AtomicBool,
    pub(super) histories: Arc<Histories>,
    /// Changes of role.
    pub(super) turns: AtomicU64,
}

#[derive(Clone, Copy)]
enum Failover {
    Idle,
    Waiting { until: u64 },
    Handing,
}

/// Nothing of the stream may fail.
struct Listener(Arc<Stage>, usize);

impl Audience for Listener {
    fn changed(&self) {}

    fn became_replica(&self, store: &Store) {
        if !store.is_replica() {
            self.0.fail(format!("store {} is told to be a replica, and is none", self.1));
        }
    }

    fn publish(&self, _is_sharded: bool, _channel: &[u8], _message: &[u8]) {}

    fn failed(&self, command: &str, error: &str) {
        self.0.fail(format!("store {}: {command} of the stream fails: {error}", self.1));
    }
}

pub(super) fn port_of(index: usize) -> u16 {
    PORT + index as u16
}

pub(super) fn index_of(port: u16) -> usize {
    usize::from(port.saturating_sub(PORT))
}

impl Life {
    fn begin(stage: &Arc<Stage>, system: &Arc<dyn System>, index: usize, feed: FeedConfig) -> Self {
        let config =
            StoreConfig { databases: DATABASES, shards: Some(1), ..StoreConfig::default() };
        let store = Arc::new(Store::new(config));
        let parts = Parts {
            store: Arc::clone(&store),
            scripts: Arc::new(Registry::new(ScriptLimits::default(), || clock().now)),
            audience: Arc::new(Listener(Arc::clone(stage), index)),
            clock,
        };
        let standby = Standby::on_system(Arc::clone(system), parts, true, feed);
        Self { store, standby }
    }

    /// Executes a command as a client's, if the store does not refuse it.
    pub(super) fn ask(&self, database: u32, words: &[&[u8]]) -> Result<Value, Refused> {
        let replies = self.ask_all(database, &[words])?;
        Ok(replies.into_iter().next().unwrap_or(Value::Null))
    }

    /// Executes commands as a transaction of a client.
    pub(super) fn ask_all(&self, db: u32, all: &[&[&[u8]]]) -> Result<Vec<Value>, Refused> {
        let context =
            Context { database: db, clock: clock(), protocol: Protocol::Resp2, worker: 0 };
        let frames: Vec<_> = all.iter().map(|words| frame(words)).collect();
        let resolve = |(buf, ranges)| Request::resolve(Args::new(buf, ranges));
        let requests: Vec<Request<'_>> = frames
            .iter()
            .map(|(buf, ranges)| resolve((buf, ranges)).expect("a command there is"))
            .collect();
        for request in &requests {
            if self.store.is_restricted()
                && let Some(refused) = self.store.refusal(request.command.flags)
            {
                return Err(refused);
            }
        }
        let mut out = Vec::new();
        if let [request] = &requests[..] {
            self.store.execute(request, context, &mut out);
        } else {
            let mut footprint = Footprint::default();
            requests.iter().for_each(|request| footprint.add(&self.store, request));
            let held = self.store.hold(footprint, context)?;
            requests.iter().for_each(|request| held.execute(request, context, &mut out));
        }
        let writes = requests.iter().any(|it| it.command.flags.contains(Flags::WRITE));
        assert!(!writes || !self.store.is_replica(), "a replica executes a write of a client");
        let (mut replies, mut at) = (Vec::new(), 0);
        while let Ok(Some((value, next))) = parse_value(&out, at) {
            replies.push(value);
            at = next;
        }
        assert_eq!((replies.len(), at), (requests.len(), out.len()), "a reply for each command");
        Ok(replies)
    }

    /// The index of the store that this one follows.
    pub(super) fn follows(&self) -> Option<usize> {
        self.standby.status().map(|status| index_of(status.primary.port))
    }
}

fn frame(words: &[&[u8]]) -> (Vec<u8>, Vec<ByteRange>) {
    let (mut buf, mut ranges) = (Vec::new(), Vec::new());
    for word in words {
        ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
        buf.extend_from_slice(word);
    }
    (buf, ranges)
}

impl Node {
    pub(super) fn new(
        stage: &Arc<Stage>,
        index: usize,
        options: NodeOptions,
        histories: &Arc<Histories>,
    ) -> Arc<Self> {
        let system: Arc<dyn System> = Arc::new(Virtual(Arc::clone(stage)));
        let life = Life::begin(stage, &system, index, options.feed);
        histories.note(&life);
        Arc::new(Self {
            index,
            stage: Arc::clone(stage),
            system,
            options,
            life: Mutex::new(Arc::new(life)),
            orders: Mutex::default(),
            failover: Mutex::new(Failover::Idle),
            is_paused: AtomicBool::new(false),
            histories: Arc::clone(histories),
            turns: AtomicU64::new(0),
        })
    }

    /// Starts the thread of roles.
    pub(super) fn start(self: &Arc<Self>, random: Random) {
        let node = Arc::clone(self);
        let work = Box::new(move || node.run(random));
        let thread = self.system.spawn(format!("roles-{}", self.index), work);
        drop(thread.expect("a thread"));
    }

    pub(super) fn life(&self) -> Arc<Life> {
        Arc::clone(&self.life.lock())
    }

    pub(super) fn order(&self, order: Order) {
        self.orders.lock().push_back(order);
    }

    fn run(self: Arc<Self>, mut random: Random) {
        let mut tick_at = 0;
        loop {
            loop {
                let next = self.orders.lock().pop_front();
                match next {
                    None => break,
                    Some(Order::End) => return self.life().standby.end(),
                    Some(order) => self.obey(order),
                }
            }
            while let Some(socket) = self.stage.with_links(|links, _| links.accept(self.index)) {
                self.introduce(socket);
            }
            let life = self.life();
            life.standby.look();
            self.step_failover(&life);
            if self.stage.nanos() >= tick_at {
                tick_at = self.stage.nanos() + TICK;
                while life.store.tick(clock()) {}
            }
            drop(life);
            self.system.sleep(Duration::from_micros(random.between(1000, 8000)));
        }
    }

    /// Hears a replica up to its PSYNC.
    fn introduce(self: &Arc<Self>, socket: OwnedFd) {
        let node = Arc::clone(self);
        let work = move || {
            let heard = Candidate::introduced_in(&node.system, socket, "a store", INTRODUCTION);
            if let Ok(candidate) = heard {
                node.order(Order::Attach(Box::new(candidate)));
            }
        };
        let thread = self.system.spawn(format!("introduces-{}", self.index), Box::new(work));
        drop(thread.expect("a thread"));
    }

    fn obey(&self, order: Order) {
        let life = self.life();
        let is_idle = matches!(*self.failover.lock(), Failover::Idle);
        match order {
            Order::Attach(candidate) => self.attach(&life, *candidate),
            Order::Follow(to) if is_idle => self.follow(&life, to),
            Order::Abort if !is_idle => self.give_up(&life),
            Order::Promote if is_idle => self.promote(&life),
            Order::Restart if is_idle => self.restart(&life),
            Order::FailOver { until } if is_idle => self.fail_over(&life, until),
            _ => {}
        }
    }

    fn fail_over(&self, life: &Life, until: u64) {
        if life.store.is_replica() || life.standby.feed_status().replicas.is_empty() {
            return;
        }
        self.is_paused.store(true, Ordering::Relaxed);
        *self.failover.lock() = Failover::Waiting { until };
        life.standby.ask_for_offsets();
    }

    fn give_up(&self, life: &Life) {
        if matches!(*self.failover.lock(), Failover::Handing) {
            self.promote(life);
        }
        *self.failover.lock() = Failover::Idle;
        self.is_paused.store(false, Ordering::Relaxed);
    }

    fn settings(&self, to: usize) -> (Primary, FollowerSettings) {
        let primary = Primary { host: "sim".to_owned(), port: port_of(to) };
        let endpoint = Endpoint::unix(&Links::path(to)).expect("a path");
        let NodeOptions { timeout, pause_min, pause_max, .. } = self.options;
        let settings = FollowerSettings {
            listening_port: Some(port_of(self.index)),
            connect_timeout: timeout,
            timeout,
            pause_min,
            pause_max,
            snapshot_limits: Loading::limits(),
            ..FollowerSettings::new(endpoint)
        };
        (primary, settings)
    }

    fn follow(&self, life: &Life, to: usize) {
        let is_same = |state| life.follows() == Some(to) && state != State::Stopped;
        if life.standby.status().is_some_and(|status| is_same(status.link.state)) {
            return;
        }
        self.turns.fetch_add(1, Ordering::Relaxed);
        let (primary, settings) = self.settings(to);
        life.standby.follow(primary, settings).expect("a thread");
    }

    fn promote(&self, life: &Life) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        if life.standby.promote() {
            self.histories.note(life);
        }
    }

    fn restart(&self, life: &Arc<Life>) {
        life.standby.end();
        life.store.set_replica(true);
        let next = Life::begin(&self.stage, &self.system, self.index, self.options.feed);
        self.histories.note(&next);
        *self.life.lock() = Arc::new(next);
    }

    /// Feeds a replica. A refusal is sent to it.
    fn attach(&self, life: &Life, candidate: Candidate) {
        let kept = candidate.socket.try_clone();
        let taken = self.taken_over(life, &candidate.request);
        let taken = taken.and_then(|()| life.standby.attach(candidate, Vec::new()));
        if let (Err(text), Ok(socket)) = (taken, kept) {
            let text = format!("-{text}\r\n");
            let flags = rustix::net::SendFlags::NOSIGNAL;
            let _ = rustix::net::send(&socket, text.as_bytes(), flags);
        }
    }

    /// Becomes the primary if the one before asks for it.
    fn taken_over(&self, life: &Life, request: &Psync) -> Result<(), String> {
        if !request.takes_over() {
            return Ok(());
        }
        if !life.store.is_replica() {
            return Err("ERR PSYNC FAILOVER can't be sent to a master.".to_owned());
        }
        let id = request.resume().map(|(id, _)| id);
        if id != Some(life.standby.replication_id()) {
            return Err("ERR PSYNC FAILOVER replid must match my replid.".to_owned());
        }
        self.promote(life);
        Ok(())
    }

    fn step_failover(&self, life: &Life) {
        let state = *self.failover.lock();
        let next = match state {
            Failover::Idle => return,
            Failover::Waiting { .. } if life.store.is_replica() => Failover::Idle,
            Failover::Waiting { until } => match self.successor(life) {
                Some(to) if self.hand_over(life, to) => Failover::Handing,
                _ if self.stage.nanos() >= until => Failover::Idle,
                _ => state,
            },
            Failover::Handing => self.look_at_successor(life),
        };
        self.is_paused.store(!matches!(next, Failover::Idle), Ordering::Relaxed);
        *self.failover.lock() = next;
    }

    /// A replica that has everything.
    fn successor(&self, life: &Life) -> Option<usize> {
        let status = life.standby.feed_status();
        let mut replicas = status.replicas.iter();
        let found = replicas.find(|it| {
            it.stage == Fed::Online && it.acknowledged >= status.offset && it.port.is_some()
        });
        found.and_then(|it| it.port).map(index_of)
    }

    fn hand_over(&self, life: &Life, to: usize) -> bool {
        self.turns.fetch_add(1, Ordering::Relaxed);
        let (primary, settings) = self.settings(to);
        let acknowledged = || {
            let replicas = life.standby.feed_status().replicas;
            let found = replicas.iter().find(|it| it.port == Some(port_of(to)));
            found.map_or(0, |it| it.acknowledged)
        };
        let begun = life.standby.hand_over(primary, settings, &acknowledged, PATIENCE);
        begun.expect("a thread")
    }

    fn look_at_successor(&self, life: &Life) -> Failover {
        let Some(status) = life.standby.status() else { return Failover::Idle };
        if status.link.state == State::Online {
            self.histories.hand_overs.fetch_add(1, Ordering::Relaxed);
            return Failover::Idle;
        }
        let is_refused = status.link.reason.as_ref().is_some_and(|reason| {
            reason.stage() == LinkStage::Handshake && matches!(reason.cause(), Cause::Handshake(_))
        });
        if is_refused || status.link.state == State::Stopped {
            self.promote(life);
            return Failover::Idle;
        }
        Failover::Handing
    }
}
