//! The settings change while the workers serve.
//!
//! Beside the pools whose replies are checked there are others, the *neighbours*. They are added,
//! removed, changed and moved with every reload, and their servers flap all the time. So the index
//! of a pool or a server belongs to another one again and again. State that is kept by such an
//! index for too long shows as a panic, or as an error of a pool to which nothing has happened. At
//! the end the neighbours are removed, and nothing of them may be left.
//!
//! Pools whose replies are checked change as well, in settings that no client notices. Their
//! clients then move to the next pool, and must get no error and no reply out of order.

use super::holds::Holds;
use super::setup::{CLASSES, pool_plan};
use super::*;
use crate::network::{ConnectMode, MILLI};
use keyway_base::Time;
use keyway_metrics::{Layout, PoolLayout};
use keyway_topology::{
    Epoch, FailoverPool, HealthBoard, Password, Pool, PoolKind as TopologyKind, RoutedPool,
    Server as Listed, ServerSet, Topology,
};
use keyway_worker::{Follow, ListenerAccess, ListenerPlan, PoolPlan, Retired};
use std::sync::atomic::AtomicUsize;

/// Of a hundred seeds, the number that have reloads.
const SHARE: u64 = 30;
/// Names of neighbours. Any of them may exist.
const NAMES: [&str; 4] = ["near0", "near1", "near2", "near3"];
/// The neighbour that leads to other pools.
const LEADING: &str = "leading";
/// Number of servers that neighbours may have.
const SERVERS: usize = 7;
/// The password that the workers send to them first, so that their connections have worked.
const PASSWORD: &str = "near";
/// Number of versions of which pools may be ending, as in the process.
const GENERATIONS_MAX: usize = 4;

/// The reloads of a seed.
pub(super) struct Reloads {
    random: Random,
    /// The times of the reloads, the last first. The last one leaves no neighbour.
    steps: Vec<Nanos>,
    /// When a neighbour's server fails next.
    next_fault: Nanos,
    /// Indices of the scenario's pools.
    own: Vec<usize>,
    /// Indices of the pools that may change.
    changeable: Vec<usize>,
    /// The first server of the neighbours.
    first_server: usize,
    /// Mail that found no room, by worker.
    unsent: Vec<(usize, Mail)>,
    /// The servers that an operator ejects by hand, in a part of the seeds.
    pub(super) holds: Option<Holds>,
}

/// Pools with their indices.
struct Merged {
    pools: Vec<Pool>,
    /// The indices of the pools that were wanted.
    positions: Vec<usize>,
    /// For each pool, whether it is the same as before.
    is_same: Vec<bool>,
    /// For each pool, the index of the pool that it replaces.
    heir_of: Vec<Option<usize>>,
    retired: Vec<Retired>,
}

impl Reloads {
    /// Returns the index of a scenario's pool in the current settings.
    pub(super) fn position_of(&self, pool: usize) -> usize {
        self.own[pool]
    }

    /// Draws what `seed` decides, which is nothing for most seeds. The draws are from a sequence of
    /// their own: without reloads, everything else that a seed decides is unchanged.
    pub(super) fn draw(seed: u64, options: &Options, scenario: &Scenario) -> Option<Reloads> {
        let mut random = Random::new(seed ^ 0x7265_6c6f_6164);
        let is_drawn = random.percent(SHARE);
        if options.is_defective() || !options.reloads.unwrap_or(is_drawn) {
            return None;
        }
        let start = 2 * SECOND;
        let within = random.scaled(200 * MILLI, 4 * SECOND);
        let count = random.between(1, 14);
        let mut steps: Vec<Nanos> = (0..count).map(|_| start + random.below(within)).collect();
        // The first neighbours are there before the first client, and the last ones end after
        // everything else.
        steps.extend([start - SECOND / 2, start + within + SECOND / 10]);
        steps.sort_unstable_by(|a, b| b.cmp(a));
        Some(Reloads {
            random,
            steps,
            next_fault: start - SECOND / 4,
            own: (0..scenario.topology.pools().len()).collect(),
            changeable: changeable(scenario),
            first_server: 0,
            unsent: Vec::new(),
            holds: Holds::draw(seed, options, scenario),
        })
    }

    /// Returns the pools of the next version, with those of the scenario first.
    fn wanted(&mut self, topology: &Topology) -> Vec<Pool> {
        let mut pools: Vec<Pool> =
            self.own.iter().map(|&position| topology.pools()[position].clone()).collect();
        if self.steps.is_empty() {
            return pools;
        }
        for &pool in &self.changeable {
            if !self.random.percent(30) {
                continue;
            }
            let kind = &mut pools[pool].kind;
            if let Some(set) = kind.servers_mut() {
                set.options.connect_timeout += Duration::from_millis(1);
            } else if let TopologyKind::Routed(RoutedPool::Shadow(shadow)) = kind {
                // A mirror is new if a child is new. Most have nothing else that may change.
                shadow.in_flight_max += 1;
            }
        }
        pools.extend(self.neighbours(topology));
        pools.extend(self.leading_neighbour());
        pools
    }

    /// Returns, at times, a neighbour that leads to pools of the scenario.
    fn leading_neighbour(&mut self) -> Option<Pool> {
        if self.own.len() < 2 || !self.random.percent(50) {
            return None;
        }
        let mut children: Vec<u16> = self.own.iter().map(|&position| position as u16).collect();
        let first = self.random.index(children.len());
        children.swap(0, first);
        children.truncate(2);
        let kind = RoutedPool::Failover(FailoverPool { children, gutter: None });
        Some(Pool { name: LEADING.to_owned(), kind: TopologyKind::Routed(kind) })
    }

    /// Returns the neighbours of the next version. Some of them are unchanged.
    fn neighbours(&mut self, topology: &Topology) -> Vec<Pool> {
        let random = &mut self.random;
        let mut pools = Vec::new();
        for name in NAMES {
            let there = topology.pools().iter().find(|pool| pool.name == name);
            match there {
                Some(pool) if random.percent(40) => {
                    pools.push(pool.clone());
                    continue;
                }
                _ if random.percent(45) => continue,
                _ => {}
            }
            let mut hosts: Vec<usize> = (0..SERVERS).collect();
            let count = random.between(1, SERVERS as u64) as usize;
            let servers = (0..count).map(|_| {
                let host = hosts.swap_remove(random.index(hosts.len()));
                Listed::parse(&address(host)).expect("a server line")
            });
            let mut set = ServerSet::new(servers.collect());
            let pool = &mut set.options;
            let millis = Duration::from_millis;
            pool.timeout = millis(random.pick(&[200, 500, 1000]));
            pool.connect_timeout = millis(random.pick(&[50, 300]));
            (pool.reconnect_min, pool.reconnect_max) = (millis(1), millis(random.pick(&[2, 20])));
            pool.preconnect = true;
            pool.password = Some(Password::new(PASSWORD));
            if random.percent(40) {
                pool.ejection = Some(keyway_topology::Ejection {
                    after_failures: random.between(1, 3) as u32,
                    for_: millis(random.between(10, 300)),
                    rejoin: Rejoin::Serve,
                });
            }
            pools.push(Pool { name: name.to_owned(), kind: TopologyKind::Sharded(set) });
        }
        pools
    }
}

/// Returns the pools that may be replaced at any time without notice to a client: none of their
/// keys ever moves, and no client has begun something that ends with its pool. A pool that leads to
/// one of them, or is warmed up from it, is replaced with it.
fn changeable(scenario: &Scenario) -> Vec<usize> {
    let pools = scenario.topology.pools().iter().enumerate();
    let is_bound = |pool: usize| {
        let mut habits = scenario.clients.iter().chain(&scenario.last_clients);
        habits.any(|it| it.pool == pool && (it.stateful || it.channels || it.tracks))
    };
    // Which servers are out of use is known only of the first board.
    let ejecting = scenario.topology.pools().iter().filter(|pool| pool.ejection().is_some());
    let follows_old = |pool: &Pool| match &pool.kind {
        TopologyKind::Memcached(it) => it.warm_up.as_ref().map(|it| it.from.clone()),
        _ => None,
    };
    let bound_by: Vec<String> = ejecting.filter_map(follows_old).collect();
    let pools = pools.filter(|(_, pool)| !bound_by.contains(&pool.name));
    let is_changeable = |(at, pool): &(usize, &Pool)| match &pool.kind {
        // Sentinels are replaced with the pool that asks them, and never alone.
        TopologyKind::Sharded(_)
        | TopologyKind::Memcached(_)
        | TopologyKind::Cluster(_)
        | TopologyKind::Replicated(_)
        | TopologyKind::Slots(_) => pool.ejection().is_none() && !is_bound(*at),
        TopologyKind::Routed(_) => true,
        TopologyKind::Store | TopologyKind::Sentinels(_) => false,
    };
    pools.filter(is_changeable).map(|(at, _)| at).collect()
}

fn address(host: usize) -> String {
    format!("127.0.8.{host}:6379:1")
}

impl Sim {
    /// Prepares the servers of neighbours, if the seed has reloads.
    pub(super) fn begin_reloads(&mut self, seed: u64, options: &Options) {
        let Some(mut reloads) = Reloads::draw(seed, options, &self.scenario) else { return };
        let World { network, servers, ledger, .. } = &mut *self.world.borrow_mut();
        let moving = reloads.holds.iter().flat_map(Holds::pools);
        moving.for_each(|&pool| ledger.know_moving(pool));
        reloads.first_server = servers.len();
        for host in 0..SERVERS {
            let index = network.add_server(address(host).trim_end_matches(":1").to_owned());
            let place = (index, reloads.own.len());
            let wishes = (None, reloads.random.percent(70));
            let (service, random) = (20 * MICRO, reloads.random.fork());
            servers.push(Server::new(place, 0, Some(PASSWORD), service, wishes, random));
        }
        // Any server of a cluster may have any index in its pool.
        let of_pool = |&pool: &usize| self.scenario.topology.backend_ids(pool);
        let changed: Vec<usize> = match self.scenario.cluster {
            Some(_) if !reloads.changeable.is_empty() => (0..reloads.first_server).collect(),
            Some(_) => Vec::new(),
            None => reloads.changeable.iter().flat_map(of_pool).map(|id| id.index()).collect(),
        };
        for server in changed {
            // This many versions of the pool connect at the same time.
            network.attempts_max[server] *= GENERATIONS_MAX + 1;
        }
        let last = reloads.steps.first().copied().unwrap_or(0);
        self.calm_from = self.calm_from.max(last + 2 * SECOND);
        self.reloads = Some(Box::new(reloads));
    }

    /// Ends the reloads, because the workers stop.
    pub(super) fn end_reloads(&mut self) {
        if let Some(reloads) = &mut self.reloads {
            (reloads.steps, reloads.next_fault) = (Vec::new(), Nanos::MAX);
            reloads.holds = None;
        }
    }

    /// Reloads and makes neighbours flap, if it is time.
    pub(super) fn interfere_by_reloads(&mut self, now: Nanos) {
        let Some(mut reloads) = self.reloads.take() else { return };
        self.post_unsent(&mut reloads);
        if now >= reloads.next_fault {
            self.trouble_neighbours(&mut reloads, now);
        }
        if let Some(mut holds) = reloads.holds.take() {
            self.hold_servers((&mut holds, &reloads.own), reloads.steps.is_empty());
            reloads.holds = Some(holds);
        }
        let is_due = reloads.steps.last().is_some_and(|&at| at <= now);
        let ending: std::collections::BTreeSet<u64> = {
            let left = |it: &&Retired| it.left.load(Ordering::Acquire) > 0;
            self.plan.retired.iter().filter(left).map(|it| it.generation).collect()
        };
        if is_due && reloads.unsent.is_empty() && ending.len() < GENERATIONS_MAX {
            reloads.steps.pop();
            self.reload(&mut reloads, now);
        }
        self.reloads = Some(reloads);
    }

    fn post_unsent(&mut self, reloads: &mut Reloads) {
        for (worker, mail) in std::mem::take(&mut reloads.unsent) {
            if let Err(mail) = self.seats[worker].mailer.post(mail) {
                reloads.unsent.push((worker, mail));
            }
        }
    }

    /// Makes a neighbour's server fail, or end all failures at the end.
    fn trouble_neighbours(&mut self, reloads: &mut Reloads, now: Nanos) {
        let World { network, servers, .. } = &mut *self.world.borrow_mut();
        let random = &mut reloads.random;
        if reloads.steps.is_empty() {
            reloads.next_fault = Nanos::MAX;
            network.modes[reloads.first_server..].fill(ConnectMode::Accept);
            return;
        }
        reloads.next_fault = now + random.scaled(MILLI, 60 * MILLI);
        let server = reloads.first_server + random.index(SERVERS);
        network.modes[server] = random.pick(&[
            ConnectMode::Accept,
            ConnectMode::Accept,
            ConnectMode::Accept,
            ConnectMode::Refuse,
            ConnectMode::AcceptAndClose,
            ConnectMode::Hesitate,
            ConnectMode::Silent,
            ConnectMode::Unresolved,
        ]);
        network.tell(|| format!("server {server}: a neighbour's, it closes its connections"));
        servers[server].drop_connections(network);
    }

    /// Sends the next version of the settings to all workers.
    fn reload(&mut self, reloads: &mut Reloads, now: Nanos) {
        let wanted = reloads.wanted(&self.plan.topology);
        let workers = self.seats.len();
        let merged = merge(&self.plan, wanted, (workers, now));
        reloads.own = merged.positions[..reloads.own.len()].to_vec();
        let second = self.scenario.second_listener().map(|pool| reloads.own[pool]);
        let listening: Vec<usize> = reloads.own.iter().copied().chain(second).collect();
        let (plan, registry) =
            next_version(&self.plan, &self.registry, (merged, &listening), workers);
        {
            let network = &mut self.world.borrow_mut().network;
            let names: Vec<&String> = plan.topology.pools().iter().map(|pool| &pool.name).collect();
            network.tell(|| format!("reload: version {} has {names:?}", plan.generation));
        }
        for worker in (0..workers).filter(|&worker| self.seats[worker].worker.is_some()) {
            let (plan, registry) = (Arc::clone(&plan), Arc::clone(&registry));
            let follow = Mail::Follow(Box::new(Follow { plan, registry, listeners: Vec::new() }));
            reloads.unsent.push((worker, follow));
        }
        self.post_unsent(reloads);
        if let Some(holds) = &mut reloads.holds {
            holds.follow(&plan);
        }
        (self.plan, self.registry) = (plan, registry);
    }

    /// Returns the number of reloads so far.
    pub(super) fn reloads_done(&self) -> u64 {
        self.plan.generation - 1
    }

    /// Returns the current indices of the scenario's pools.
    pub(super) fn own_positions(&self) -> Vec<usize> {
        let as_ever = || (0..self.scenario.topology.pools().len()).collect();
        self.reloads.as_ref().map_or_else(as_ever, |reloads| reloads.own.clone())
    }

    /// Checks that every worker uses the last version, and that nothing is left of the old pools.
    pub(super) fn check_reloads(&self) -> Result<(), String> {
        let Some(reloads) = &self.reloads else { return Ok(()) };
        let (followers, workers) = (self.plan.followers.load(Ordering::Acquire), self.seats.len());
        if followers != workers || !reloads.steps.is_empty() {
            return Err(format!("{followers} of {workers} workers go by the last settings"));
        }
        for retired in &self.plan.retired {
            let left = retired.left.load(Ordering::Acquire);
            if left > 0 {
                let pool = &self.plan.topology.pools()[usize::from(retired.pool)].name;
                return Err(format!("pool {pool} is gone and has not ended in {left} workers"));
            }
        }
        let world = self.world.borrow();
        let neighbours = &world.servers[reloads.first_server..];
        match neighbours.iter().map(Server::connections).sum() {
            0usize => Ok(()),
            count => Err(format!("{count} connections to servers of pools that are gone")),
        }
    }
}

/// Gives every pool its index, as the process does. A pool with unchanged settings keeps its index.
fn merge(before: &Plan, wanted: Vec<Pool>, (workers, now): (usize, Nanos)) -> Merged {
    let generation = before.generation + 1;
    let mut pools = before.topology.pools().to_vec();
    let (mut is_same, mut heir_of) = (vec![true; pools.len()], vec![None; pools.len()]);
    let is_live = |position: &usize| before.retired(*position as u16).is_none();
    let live: Vec<usize> = (0..pools.len()).filter(is_live).collect();
    let old_of =
        |wanted: &Pool| live.iter().copied().find(|&position| pools[position].name == wanted.name);
    let found: Vec<Option<usize>> = wanted.iter().map(old_of).collect();
    let staying: Vec<bool> =
        (0..wanted.len()).map(|at| stays(at, (&wanted, &pools), &found)).collect();
    let mut retired = before.retired.clone();
    let is_over = |it: &&Retired| it.left.load(Ordering::Acquire) == 0;
    let free: Vec<usize> = retired.iter().filter(is_over).map(|it| usize::from(it.pool)).collect();
    let mut free = free.into_iter();
    for &position in &live {
        let heir = found.iter().position(|found| *found == Some(position));
        if heir.is_some_and(|at| staying[at]) {
            continue;
        }
        retired.push(Retired {
            pool: position as u16,
            generation,
            is_replaced: heir.is_some(),
            until: Time(now) + DRAIN_TIMEOUT,
            left: Arc::new(AtomicUsize::new(workers)),
        });
        pools[position].name = Retired::name_of(&pools[position].name, generation);
    }
    let mut positions: Vec<usize> = Vec::new();
    let were = found.clone();
    for ((mut pool, found), stays) in wanted.into_iter().zip(found).zip(staying) {
        if let (Some(position), true) = (found, stays) {
            positions.push(position);
            continue;
        }
        if let TopologyKind::Routed(routed) = &mut pool.kind {
            // The pools to which it leads come before it.
            let here = |child: u16| {
                let at = were.iter().position(|was| *was == Some(usize::from(child)));
                at.and_then(|at| positions.get(at)).map_or(child, |&position| position as u16)
            };
            *routed = routed.with_children(here);
        }
        let position = free.next().unwrap_or(pools.len());
        positions.push(position);
        retired.retain(|it| usize::from(it.pool) != position);
        if position == pools.len() {
            pools.push(pool);
            is_same.push(false);
            heir_of.push(found);
        } else {
            (pools[position], is_same[position], heir_of[position]) = (pool, false, found);
        }
    }
    Merged { pools, positions, is_same, heir_of, retired }
}

/// Returns whether a wanted pool has unchanged settings, as have all to which it leads or from
/// which it is warmed up.
fn stays(at: usize, (wanted, before): (&[Pool], &[Pool]), found: &[Option<usize>]) -> bool {
    let is_same = found[at].is_some_and(|position| wanted[at] == before[position]);
    let led_to: Vec<usize> = match &wanted[at].kind {
        TopologyKind::Routed(routed) => {
            let children = routed.children().into_iter().map(usize::from);
            let at = |child| found.iter().position(|found| *found == Some(child));
            children.filter_map(at).collect()
        }
        TopologyKind::Memcached(pool) => {
            let from = pool.warm_up.iter().map(|warm_up| &warm_up.from);
            from.filter_map(|from| wanted.iter().position(|it| it.name == *from)).collect()
        }
        TopologyKind::Store
        | TopologyKind::Sharded(_)
        | TopologyKind::Cluster(_)
        | TopologyKind::Replicated(_)
        | TopologyKind::Slots(_)
        | TopologyKind::Sentinels(_) => Vec::new(),
    };
    is_same && led_to.into_iter().all(|at| stays(at, (wanted, before), found))
}

/// Creates the next version, as the process does.
fn next_version(
    before: &Plan,
    registry: &Registry,
    (merged, listening): (Merged, &[usize]),
    workers: usize,
) -> (Arc<Plan>, Arc<Registry>) {
    let Merged { pools, is_same, heir_of, retired, .. } = merged;
    let generation = before.generation + 1;
    let topology = before.topology.succeeded_by(Epoch(generation), pools, |index| is_same[index]);
    let health: HealthBoard = before.health.succeeded_by(
        &before.topology,
        &topology,
        |index| is_same[index],
        |index| heir_of[index],
    );
    let plan_of = |index: usize| {
        if is_same[index] {
            return Arc::clone(&before.pools[index]);
        }
        let mut pool: PoolPlan = pool_plan(&topology.pools()[index], topology.pools(), (0, None));
        if let Some(old) = heir_of[index].map(|old| &before.pools[old]) {
            (pool.errors, pool.key_stats) = (Arc::clone(&old.errors), Arc::clone(&old.key_stats));
            pool.kind.inherit(&old.kind);
            pool.inherit_notices(old);
        }
        Arc::new(pool)
    };
    let plans = (0..topology.pools().len()).map(plan_of).collect();
    let layout = topology.pools().iter().zip(0u16..).map(|(pool, at)| PoolLayout {
        name: pool.name.clone(),
        backends: pool.servers().iter().map(|server| server.label().into_owned()).collect(),
        is_retired: retired.iter().any(|retired| retired.pool == at),
    });
    let layout = Layout {
        classes: &CLASSES,
        commands: &keyway_command::COUNTED_NAMES,
        pools: layout.collect(),
        workers_max: workers,
        version: "sim",
        start_unix_micros: 0,
    };
    let lineage = |index: usize| if is_same[index] { Some(index) } else { heir_of[index] };
    let registry = registry.succeeded_by(layout, lineage);
    let plan = Plan {
        generation,
        retired,
        followers: AtomicUsize::default(),
        limits: before.limits,
        listeners: before.listeners.iter().zip(listening).map(listener_of).collect(),
        user_reads: before.user_reads.clone(),
        pools: plans,
        health: Arc::new(health),
        topology: Arc::new(topology),
        clients: Arc::clone(&before.clients),
        facts: Arc::clone(&before.facts),
        next_client_id: Arc::clone(&before.next_client_id),
        mailers: Arc::clone(&before.mailers),
        drain_timeout: before.drain_timeout,
        spin: before.spin,
        notices: Arc::clone(&before.notices),
        transactions: Arc::clone(&before.transactions),
        channels: Arc::clone(&before.channels),
        handouts: Arc::clone(&before.handouts),
        invalidations: Arc::clone(&before.invalidations),
        monitors: Arc::clone(&before.monitors),
        relief: Arc::clone(&before.relief),
        redirects: Arc::clone(&before.redirects),
    };
    plan.follow_maps(before, |index| heir_of[index]);
    plan.follow_holds(before, |index| heir_of[index]);
    (Arc::new(plan), registry)
}

/// Returns a listener whose pool has the given index now.
fn listener_of((old, &position): (&ListenerPlan, &usize)) -> ListenerPlan {
    ListenerPlan {
        is_ended: old.is_ended,
        pool: position as u16,
        name: old.name.clone(),
        users: Arc::clone(&old.users),
        memcached: old.memcached,
        cluster: old.cluster.clone(),
        read_from: old.read_from.clone(),
        access: ListenerAccess {
            tally: Arc::clone(&old.access.tally),
            ..ListenerAccess::default()
        },
    }
}
