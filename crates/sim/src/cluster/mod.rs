//! A simulated cluster, and the events that change it: slots move, primaries fail and are replaced,
//! servers join and leave. Each server hears of an event at its own time.
//!
//! ```text
//!   events ─► the cluster as it is ─► views, late ─► servers ─► MOVED, ASK, ...
//!   writes at a primary ─► copies, late ─► its replicas
//! ```

mod events;
mod view;

use crate::ledger::Ledger;
use crate::network::{ConnectMode, MILLI, Nanos, Network, Occurrence, SECOND};
use crate::random::Random;
use crate::server::Server;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
pub use view::{Member, Moves, NOBODY, SLOTS, View, slot_of};

/// An event of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Some slots move key by key.
    Move,
    /// Many slots move at once.
    Storm,
    /// A replica takes over from its primary, with all data.
    Switch,
    /// A new server takes slots.
    Join,
    /// A server gives its slots away and is forgotten.
    Leave,
    /// A server dies. If it has a replica, the replica is elected.
    Die,
    /// A replica takes over although its primary works. The primary is told later.
    Usurp,
    /// A server redirects requests to a server that does not exist.
    Mislead,
    /// A sentinel restarts with its first state.
    Relapse,
    /// All sentinels restart.
    RestartAll,
}

/// The choices of a seed about a cluster.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// Its servers. Those that are no members yet join later or never.
    pub members: Vec<Member>,
    /// The events and their times.
    pub events: Vec<(Nanos, EventKind)>,
    /// By this time all events are over, and every server knows of them.
    pub ends_at: Nanos,
    /// How long a server takes to hear of a change: shortest and longest time.
    pub gossip: (Nanos, Nanos),
    /// A server that takes longer, and its longest time.
    pub laggard: Option<(u16, Nanos)>,
    /// How long a replica takes to copy a change: shortest and longest time.
    pub lag: (Nanos, Nanos),
    /// True if the cluster serves no slot while one slot has no working owner.
    pub is_strict: bool,
    /// How long the effects of a failure may last.
    pub aftermath: Nanos,
    /// How many servers the clients of the cluster can know at once.
    pub indices: usize,
    /// How many servers may have an index.
    pub nodes_max: u16,
    /// How long a server takes to leave after it has given its slots away.
    pub leaves_after: Nanos,
    /// Number of primaries with replicas, if this is no cluster. A slot belongs to the primary
    /// whose number is its remainder. 0 in a cluster.
    pub groups: usize,
    /// Number of sentinels. They are servers after the members.
    pub sentinels: usize,
    /// True if a sentinel that makes a primary a replica ends the connections of its clients.
    pub kills_clients: bool,
    /// True if these primaries share slots, so that keys of several slots are refused.
    pub shares_slots: bool,
}

/// For this long a slot that has moved back does not turn again, and a slot that moves back does
/// not arrive. This is longer than any redirected request takes to arrive.
const TURNS_AGAIN: Nanos = 250 * MILLI;

/// How long a server that has left may keep its index: while servers still report it, and then
/// while it is absent.
pub(crate) const INDEX_KEPT: Nanos = 31 * SECOND;

/// How long after that no other server gets the index. A server that has none, because there were
/// more servers than indices, waits for it.
pub(crate) const INDEX_EMPTY: Nanos = 61 * SECOND;

/// An action at a scheduled time.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Begin(EventKind),
    Adopt(u16, Rc<View>),
    Migrate(u16),
    Detect(u16),
    Elect(u16, u16),
    Return(u16),
    Demote(u16, u16),
    Correct(u16),
    Forget(u16),
    Retire(u16),
    Reopen(u16),
}

/// A moving slot.
#[derive(Clone, Copy, Debug)]
struct Moving {
    from: u16,
    to: u16,
    pause: Nanos,
}

/// A running cluster.
pub struct ClusterSim {
    plan: ClusterPlan,
    /// The actual state.
    view: View,
    is_alive: Vec<bool>,
    /// By server: the version of the cluster when the server last came back from the dead. It is
    /// told of no earlier version: messages to it were lost.
    back_since: Vec<u64>,
    /// The servers that take part in an event now.
    busy: BTreeSet<u16>,
    moving: BTreeMap<u16, Moving>,
    /// When a slot that had just moved began to move back.
    turned: BTreeMap<u16, Nanos>,
    /// By slot: which server owned it before its owner, and until when.
    had: Vec<(u16, Nanos)>,
    /// Servers that have left, and servers that never join.
    gone: BTreeSet<u16>,
    disputed: Vec<u16>,
    /// The primaries one after the other, for each primary outside a cluster.
    reigns: Vec<Vec<u16>>,
    /// The first state.
    first: Rc<View>,
    /// For each primary outside a cluster, whether a sentinel has restarted with an old state while
    /// so few had heard of the latest primary that most reported an earlier one. It is right to
    /// believe them.
    forgotten: Vec<bool>,
    /// Servers that have joined, in their order.
    joined: Vec<u16>,
    /// True if there were more servers than indices, including those that have left.
    was_crowded: bool,
    steps: Vec<Step>,
    random: Random,
}

/// Everything except the cluster itself.
pub(crate) struct Scene<'a> {
    pub(crate) network: &'a mut Network,
    pub(crate) servers: &'a mut Vec<Server>,
    pub(crate) ledger: &'a mut Ledger,
}

impl ClusterPlan {
    /// Returns how long it takes until every server has heard of a change.
    pub fn longest_gossip(&self) -> Nanos {
        self.gossip.1.max(self.laggard.map_or(0, |(_, longest)| longest))
    }
}

impl ClusterSim {
    /// Creates the cluster of a scenario, before any event.
    pub fn new(
        plan: ClusterPlan,
        servers: &mut [Server],
        network: &mut Network,
        mut random: Random,
    ) -> Self {
        let members = plan.members.clone();
        let is_primary = |node: &u16| {
            let member = &members[usize::from(*node)];
            member.is_member && member.replica_of.is_none()
        };
        let primaries: Vec<u16> = (0..members.len() as u16).filter(is_primary).collect();
        let mut owners = Vec::with_capacity(SLOTS);
        for (number, &primary) in primaries.iter().enumerate() {
            let until = SLOTS * (number + 1) / primaries.len();
            owners.resize(until, primary);
        }
        if plan.groups > 0 {
            owners = (0..SLOTS).map(|slot| primaries[slot % plan.groups]).collect();
        }
        // Here and there a slot has another owner, as after many moves.
        let strays = if plan.groups > 0 { 0 } else { random.below(40) };
        for _ in 0..strays {
            let slot = random.index(SLOTS);
            owners[slot] = primaries[random.index(primaries.len())];
        }
        let view = View { version: 1, groups: plan.groups, owners, members, is_down: false };
        let shared = Rc::new(view.clone());
        let reigns = view.owners[..plan.groups].iter().map(|&primary| vec![primary]).collect();
        for (index, server) in servers.iter_mut().enumerate() {
            server.join_cluster(index as u16, Rc::clone(&shared));
            if view.members.get(index).is_some_and(|member| !member.is_member) {
                network.modes[index] = ConnectMode::Refuse;
            }
        }
        let sentinels = std::iter::repeat_n(true, plan.sentinels);
        let is_alive = view.members.iter().map(|member| member.is_member).chain(sentinels);
        let is_alive: Vec<bool> = is_alive.collect();
        let groups = plan.groups;
        let mut cluster = Self {
            plan,
            view,
            back_since: vec![0; is_alive.len()],
            is_alive,
            busy: BTreeSet::new(),
            moving: BTreeMap::new(),
            turned: BTreeMap::new(),
            had: vec![(NOBODY, 0); SLOTS],
            gone: BTreeSet::new(),
            disputed: Vec::new(),
            reigns,
            first: shared,
            forgotten: vec![false; groups],
            joined: Vec::new(),
            was_crowded: false,
            steps: Vec::new(),
            random,
        };
        for (at, kind) in cluster.plan.events.clone() {
            cluster.at(network, at, Step::Begin(kind));
        }
        cluster
    }

    fn at(&mut self, network: &mut Network, at: Nanos, step: Step) {
        network.schedule(at, Occurrence::Cluster(self.steps.len()));
        self.steps.push(step);
    }

    /// Schedules a step at a random time within the bounds, and before the end of all events.
    fn within(&mut self, network: &mut Network, (low, high): (Nanos, Nanos), step: Step) {
        let at = network.now + self.random.scaled(low.max(1), high.max(2));
        let at = at.min(self.plan.ends_at).max(network.now);
        self.at(network, at, step);
    }

    /// Performs a step that is due.
    pub(crate) fn on_step(&mut self, step: usize, scene: &mut Scene) {
        let step = self.steps[step].clone();
        let now = scene.network.now;
        match &step {
            Step::Adopt(..) | Step::Migrate(_) => {}
            step => scene.network.tell(|| format!("cluster: {step:?}")),
        }
        match step {
            Step::Begin(_) if now >= self.plan.ends_at => {}
            Step::Begin(kind) => self.begin(kind, scene),
            Step::Adopt(node, view) => {
                let index = usize::from(node);
                let is_lost = !self.is_alive[index] || view.version < self.back_since[index];
                if !is_lost && !self.gone.contains(&node) {
                    scene.servers[index].adopt(view, scene.network, scene.ledger);
                }
            }
            Step::Migrate(slot) => self.migrate(slot, scene),
            Step::Detect(node) => {
                self.view.members[usize::from(node)].has_failed = true;
                let has_slots = self.view.owners.contains(&node);
                self.view.is_down |= has_slots && self.plan.is_strict;
                self.publish(&[], scene);
            }
            Step::Elect(node, heir) => self.elect(node, heir, scene),
            Step::Return(node) => self.come_back(node, scene),
            Step::Demote(node, heir) => self.step_down(node, heir, scene),
            Step::Correct(node) => {
                self.view.version += 1;
                let view = Rc::new(self.view.clone());
                scene.servers[usize::from(node)].adopt(view, scene.network, scene.ledger);
                self.busy.remove(&node);
            }
            Step::Forget(node) => self.forget(node, scene),
            Step::Reopen(node) => scene.network.modes[usize::from(node)] = ConnectMode::Accept,
            Step::Retire(node) => {
                // While all others are dead or busy, none can take its slots.
                if self.leave(Some(node), scene).is_none() {
                    self.at(scene.network, now + 20 * MILLI, Step::Retire(node));
                }
            }
        }
        self.note_forgotten(scene);
    }

    /// Notes which primaries most sentinels have forgotten, or not heard of, while one restarts
    /// with an old state. Sentinels that are only late go on, and are not believed.
    fn note_forgotten(&mut self, scene: &mut Scene) {
        if !self.sentinels().any(|sentinel| self.busy.contains(&sentinel)) {
            return;
        }
        for group in 0..self.forgotten.len() {
            let now = self.view.owners[group];
            let is_behind = |&sentinel: &u16| {
                scene.servers[usize::from(sentinel)].node().view.owners[group] != now
            };
            let behind = self.sentinels().filter(is_behind).count();
            self.forgotten[group] |= behind * 2 > self.plan.sentinels;
        }
    }

    /// Tells every server the actual state: some at once, the others when they hear of it.
    fn publish(&mut self, first: &[u16], scene: &mut Scene) {
        self.view.version += 1;
        let view = Rc::new(self.view.clone());
        for &node in first {
            scene.servers[usize::from(node)].adopt(Rc::clone(&view), scene.network, scene.ledger);
        }
        for node in 0..self.view.members.len() as u16 {
            if !first.contains(&node) && self.view.members[usize::from(node)].is_member {
                self.hears(node, &view, scene);
            }
        }
        self.tell_sentinels(&view, scene);
    }

    /// Tells the sentinels the actual state.
    fn tell_sentinels(&mut self, view: &Rc<View>, scene: &mut Scene) {
        for sentinel in self.sentinels() {
            self.hears(sentinel, view, scene);
        }
    }

    /// Schedules that a server hears of a change.
    fn hears(&mut self, node: u16, view: &Rc<View>, scene: &mut Scene) {
        let (low, mut high) = self.plan.gossip;
        if let Some((laggard, longest)) = self.plan.laggard
            && laggard == node
        {
            high = longest;
        }
        self.within(scene.network, (low, high), Step::Adopt(node, Rc::clone(view)));
    }

    fn sentinels(&self) -> std::ops::Range<u16> {
        let first = self.view.members.len() as u16;
        first..first + self.plan.sentinels as u16
    }

    /// Copies the changes of a primary to its replicas.
    pub(crate) fn replicate(&mut self, node: usize, scene: &mut Scene) {
        let copied = scene.servers[node].take_changes();
        if copied.is_empty() {
            return;
        }
        let address = self.view.address(node as u16);
        copied.iter().for_each(|copied| scene.ledger.check_followed(copied.key(), &address));
        let copies = |&index: &usize| {
            self.view.members[index].is_member && scene.servers[index].copies() == Some(node as u16)
        };
        let replicas: Vec<usize> = (0..self.view.members.len()).filter(copies).collect();
        for index in replicas.into_iter().filter(|&index| self.is_alive[index]) {
            let (low, high) = self.plan.lag;
            let at = scene.network.now + self.random.scaled(low, high);
            scene.servers[index].receive(copied.clone(), at, scene.network);
        }
    }

    /// Returns whether there were ever more servers than indices, including those that have left.
    pub fn was_crowded(&self) -> bool {
        self.was_crowded
    }

    /// Returns whether a server is alive.
    pub fn is_alive(&self, server: usize) -> bool {
        self.is_alive[server]
    }

    /// Returns the owner of each slot.
    pub fn owners(&self) -> &[u16] {
        &self.view.owners
    }

    /// Returns the addresses of its members. With `only_serving`, only those with slots, and copies
    /// of those.
    pub fn addresses(&self, only_serving: bool) -> BTreeSet<String> {
        let serves = |node: u16| {
            let member = &self.view.members[usize::from(node)];
            let owner = member.replica_of.unwrap_or(node);
            member.is_member && (!only_serving || self.view.owners.contains(&owner))
        };
        let members = (0..self.view.members.len() as u16).filter(|&node| serves(node));
        members.map(|node| self.view.address(node)).collect()
    }

    /// Returns the primaries one after the other, for each primary outside a cluster.
    pub fn reigns(&self) -> &[Vec<u16>] {
        &self.reigns
    }

    /// Returns whether the other sentinels outvote one that restarts with an old state. A single
    /// sentinel, or one of two, is believed once it has repeated its report for a while, and so is
    /// a majority.
    pub fn outvotes_relapses(&self, group: usize) -> bool {
        self.plan.sentinels >= 3 && !self.forgotten[group]
    }

    /// Returns the address of a server.
    pub fn address(&self, node: u16) -> String {
        self.view.address(node)
    }

    /// Returns the servers that have left.
    pub fn gone(&self) -> impl Iterator<Item = usize> {
        self.gone.iter().map(|&node| usize::from(node))
    }
}
