//! Turns a seed into everything that is decided by chance before time starts.

mod bounds;
mod clusters;
mod mutes;
mod replicated;
mod routes;
mod steady;

pub use bounds::{Bound, MEMCACHED_ITEM_MAX};
pub use mutes::LEAVE_AT;
pub use replicated::NAME;

use crate::client::{Habits, Mix, Staleness};
use crate::cluster::ClusterPlan;
use crate::network::{MICRO, MILLI, Nanos, NetworkOptions, RingOptions, SECOND};
use crate::random::Random;
use crate::server::Defect;
use crate::world::{Fault, FaultKind};
use keyway_base::Limits;
use keyway_memcache::Dialect;
use keyway_topology::{
    Circuit, Distribution, Ejection, Epoch, Hash, HashTag, MemcachedPool, Password, Pool, PoolKind,
    Rejoin, Server, ServerSet, Topology, WarmUp,
};
use std::time::Duration;

/// Deliberate defects and other options of a test.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// True if the story of the run is recorded, to be shown with a violation.
    pub story: bool,
    /// The deliberate fault of the first server.
    pub defect: Option<Defect>,
    /// True if every pool has servers of memcached and clients use its protocol.
    pub memcached: bool,
    /// True if, in addition, one pool gets its missing items from another.
    pub warm_up: bool,
    /// True if the pools are of memcached, behind one that leads to them.
    pub routes: bool,
    /// True if the pool is a cluster.
    pub clusters: bool,
    /// True if the pool has primaries with replicas.
    pub replicated: bool,
    /// True if, in addition, groups of listed servers share slots.
    pub slots: bool,
    /// True if most clients do not read what they ask for.
    pub mutes: bool,
    /// The number of the readiness event that is never reported.
    pub dropped_edge: Option<u64>,
    /// How workers' sockets are driven. `None`: the seed decides.
    pub io: Option<Driver>,
    /// True if the settings are reloaded. `None`: the seed decides.
    pub reloads: Option<bool>,
    /// True if servers are ejected by hand between reloads. `None`: the seed decides.
    pub holds: Option<bool>,
    /// True if clients that do not read ask for other things than values. `None`: the seed decides.
    pub wide_mutes: Option<bool>,
    /// True if the memory of a store is bounded. `None`: the seed decides.
    pub bounds: Option<bool>,
}

impl Options {
    /// Returns the command-line words for the kind of seeds, each with a space before it.
    pub fn kind_words(&self) -> String {
        let words = [
            (self.warm_up, " --warm-up"),
            (self.routes, " --routes"),
            (self.memcached && !self.warm_up && !self.routes, " --memcached"),
            (self.clusters, " --clusters"),
            (self.replicated && !self.slots, " --replicated"),
            (self.slots, " --slots"),
            (self.mutes, " --mutes"),
        ];
        words.iter().filter(|(is_so, _)| *is_so).map(|(_, word)| *word).collect()
    }

    /// Returns whether a defect must be found.
    pub fn is_defective(&self) -> bool {
        self.defect.is_some() || self.dropped_edge.is_some()
    }
}

/// How workers' sockets are driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The driver reports readiness, and the worker reads.
    Epoll,
    /// The driver receives bytes before they are asked for.
    Ring,
}

impl Driver {
    /// Returns what `options` ask for, or else what `seed` decides, with equal chances.
    pub fn of(seed: u64, options: &Options) -> Self {
        let drawn = if driver_chance(seed).percent(50) { Driver::Ring } else { Driver::Epoll };
        options.io.unwrap_or(drawn)
    }
}

impl std::str::FromStr for Driver {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "epoll" => Ok(Driver::Epoll),
            "ring" => Ok(Driver::Ring),
            _ => Err(()),
        }
    }
}

impl std::fmt::Display for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Driver::Epoll => "epoll",
            Driver::Ring => "ring",
        })
    }
}

/// Returns a sequence of its own: everything else that a seed decides is the same with either
/// driver.
fn driver_chance(seed: u64) -> Random {
    Random::new(seed ^ 0x696f_5f75_7269_6e67)
}

/// All that a seed decides.
pub struct Scenario {
    /// The limits of the workers.
    pub limits: Limits,
    /// How the network behaves.
    pub network: NetworkOptions,
    /// Pools and servers.
    pub topology: Topology,
    /// By pool: whether its servers know `HELLO`.
    pub knows_hello: Vec<bool>,
    /// By pool: the password of its clients.
    pub passwords: Vec<Option<String>>,
    /// Number of workers.
    pub workers: usize,
    /// The main clients of the run.
    pub clients: Vec<Habits>,
    /// Number of clients that leave in the middle of a request.
    pub visitors: usize,
    /// Clients that check at the end that everything works again.
    pub last_clients: Vec<Habits>,
    /// When each client starts.
    pub starts: Vec<Nanos>,
    /// The faults.
    pub faults: Vec<Fault>,
    /// Longest service time of a server's request.
    pub service: Nanos,
    /// When the workers are told to stop, if that is before the end.
    pub drain_at: Option<Nanos>,
    /// When clients are handed over from one worker to another, the last first.
    pub handovers: Vec<Nanos>,
    /// The times from and until which workers have no descriptor left.
    pub exhaustions: Vec<(Nanos, Nanos)>,
    /// Length of the longest value that clients write.
    pub value_len_max: usize,
    /// The events of the cluster, if the pool is one.
    pub cluster: Option<ClusterPlan>,
    /// True if most clients do not read what they ask for.
    pub has_mutes: bool,
    /// Number of bytes of messages and other pushes that clients may leave unread, if some do.
    pub unread_max: usize,
    /// A store with a memory bound.
    pub bound: Option<Bound>,
}

/// Faults to pick from. The more likely ones are listed more than once.
const FAULTS: [FaultKind; 20] = [
    FaultKind::Hesitate,
    FaultKind::AcceptAndClose,
    FaultKind::Stall,
    FaultKind::Stall,
    FaultKind::Stall,
    FaultKind::Stall,
    FaultKind::Abandon,
    FaultKind::Drop,
    FaultKind::Refuse,
    FaultKind::Vanish,
    FaultKind::Unresolve,
    FaultKind::AcceptAndClose,
    FaultKind::Abandon,
    FaultKind::Loading,
    FaultKind::Full,
    FaultKind::Trickle,
    FaultKind::RefuseHandshake,
    FaultKind::Cut,
    FaultKind::Garble,
    FaultKind::Restart,
];

/// When clients start and faults may begin. Time does not start at zero.
pub(crate) const START: Nanos = 2 * SECOND;
/// Faults begin within this span.
const FAULTS_WITHIN: Nanos = 3 * SECOND;

impl Scenario {
    /// Draws what `seed` decides.
    pub fn new(seed: u64, options: &Options) -> Self {
        let mut random = Random::new(seed);
        let calm_percent =
            if options.routes || options.clusters || options.replicated { 40 } else { 15 };
        let calm = options.is_defective() || random.percent(calm_percent) || options.mutes;
        let mut network = network_options(&mut random, options);
        if Driver::of(seed, options) == Driver::Ring {
            network.ring = Some(RingOptions::draw(&mut driver_chance(seed).fork()));
        }
        let limits = limits(&mut random);
        let (pools, cluster) = draw_pools(&mut random, calm, &limits, options);
        let topology = Topology::new(Epoch(1), pools);
        let passwords = topology.pools().iter().map(password_of).collect();
        let knows = |random: &mut Random| options.is_defective() || random.percent(70);
        let knows_hello = topology.pools().iter().map(|_| knows(&mut random)).collect();
        let workers = if options.is_defective() || random.percent(70) { 1 } else { 2 };
        let mut scenario = Self {
            limits,
            network,
            topology,
            knows_hello,
            passwords,
            workers,
            clients: Vec::new(),
            visitors: 0,
            last_clients: Vec::new(),
            starts: Vec::new(),
            faults: Vec::new(),
            service: random.scaled(MICRO, 20 * MICRO),
            drain_at: None,
            handovers: Vec::new(),
            exhaustions: Vec::new(),
            value_len_max: 0,
            cluster,
            has_mutes: false,
            unread_max: 0,
            bound: None,
        };
        scenario.add_clients(&mut random, options);
        scenario.restrain_clients();
        // The draw has a sequence of its own: everything else is the same without visitors.
        let visitors = Random::new(seed ^ 0x766973).below(5) as usize;
        scenario.visitors = if options.is_defective() { 0 } else { visitors };
        if !calm {
            scenario.add_faults(&mut random, options);
        }
        scenario.add_events(&mut random, calm, options);
        if options.mutes {
            scenario.beside_mutes(&mut random);
            scenario.widen_mutes(seed, options);
        }
        scenario.bound_a_store(seed, options);
        scenario
    }

    /// Draws when workers stop, hand clients over and run out of descriptors, and which clients may
    /// be killed.
    fn add_events(&mut self, random: &mut Random, calm: bool, options: &Options) {
        let within = |random: &mut Random| START + random.below(FAULTS_WITHIN);
        let drains = if calm { 40 } else { 10 };
        if !options.is_defective() && random.percent(drains) {
            self.drain_at = Some(within(random));
        }
        if self.workers > 1 {
            let count = random.below(8);
            self.handovers = (0..count).map(|_| within(random)).collect();
            let moves = count > 0;
            self.clients.iter_mut().for_each(|habits| habits.may_move = moves);
            self.handovers.sort_unstable_by(|a, b| b.cmp(a));
        }
        if !options.is_defective() && random.percent(10) {
            self.clients.iter_mut().for_each(|habits| habits.may_be_killed = true);
        }
        if !calm && random.percent(20) {
            let from = within(random);
            self.exhaustions.push((from, from + random.scaled(MILLI, SECOND)));
        }
    }

    fn add_clients(&mut self, random: &mut Random, options: &Options) {
        let large = (self.network.capacity * 20).min(300_000);
        let count = match options {
            // The client must be alone and ask one request at a time. Otherwise the next edge makes
            // up for the lost one.
            Options { dropped_edge: Some(_), .. } => 1,
            Options { defect: Some(_), .. } => 3,
            // This is more than the private links that are kept for a server.
            _ if random.percent(3) => random.between(40, 70),
            _ => random.between(1, 14),
        };
        // Then the contents of mirrors can be compared.
        let is_orderly = options.routes && random.percent(50);
        let shows_stateful = options.defect.is_some_and(Defect::is_stateful);
        for _ in 0..count {
            let pool = match options.is_defective() {
                true => 0,
                // Most clients use the pool that leads to the others.
                false if options.routes && (is_orderly || random.percent(85)) => {
                    self.topology.pools().len() - 1
                }
                // Only the workers use sentinels.
                false if self.cluster.is_some() => 0,
                false => random.index(self.topology.pools().len()),
            };
            let mut habits = self.habits(random, pool, large);
            if options.is_defective() {
                habits.requests = 200;
                habits.depth = if count == 1 { 1 } else { habits.depth.max(8) };
                habits.cut_percent = 0;
                habits.stateful = shows_stateful;
                habits.show(options.defect);
            }
            if is_orderly {
                (habits.connections, habits.cut_percent) = (1, 0);
            }
            self.clients.push(habits);
            self.starts.push(START + random.below(2 * SECOND));
        }
        let first = if options.routes { self.topology.pools().len() - 1 } else { 0 };
        let is_asked = |pool: &Pool| !matches!(pool.kind, PoolKind::Sentinels(_));
        let count = self.topology.pools().iter().take_while(|pool| is_asked(pool)).count();
        for pool in first..count {
            let mut habits = self.habits(random, pool, large);
            (habits.requests, habits.connections, habits.cut_percent) = (40, 1, 0);
            habits.stateful &= !options.is_defective() || shows_stateful;
            // Values that were cached before are changed once more.
            habits.tracks = habits.is_store || self.knows_hello[pool];
            habits.greets |= habits.tracks;
            if options.is_defective() {
                habits.show(options.defect);
            }
            self.last_clients.push(habits);
        }
        if options.memcached {
            let all = self.clients.iter_mut().chain(&mut self.last_clients);
            all.for_each(Habits::speak_memcached);
        }
        self.value_len_max = large.max(4096) + 128;
    }

    fn habits(&self, random: &mut Random, pool: usize, large_len: usize) -> Habits {
        let is_slow = random.percent(10);
        let read_len = match is_slow {
            true => random.between(large_len as u64 / 500 + 1, large_len as u64 / 200 + 32),
            false => random.scaled(64, 64 << 10),
        };
        let servers = self.topology.pools()[pool].kind.servers();
        let databases = servers.map_or(4, |set| set.options.databases_allowed);
        let requests = random.scaled(5, 300) as u32;
        let depth = random.scaled(1, 200);
        let batch = random.scaled(1, depth);
        // With these pauses a connection lasts about that long.
        let lasts = random.scaled(10 * MILLI, 5 * SECOND);
        let steps = u64::from(requests) * 2 / (batch + 1) + 1;
        let pause = (lasts / steps * 6).clamp(2 * MICRO, SECOND / 2);
        let is_store = matches!(self.topology.pools()[pool].kind, PoolKind::Store);
        let greets = random.percent(40);
        Habits {
            pool,
            listener: pool as u16,
            is_store,
            mix: Mix::All,
            requests,
            connections: random.between(1, 3) as u32,
            depth: depth as usize,
            batch: batch as usize,
            pause,
            read_len: read_len as usize,
            write_len: random.scaled(1, 64 << 10).max(large_len as u64 / 500) as usize,
            value_len: random.scaled(1, 4096) as usize,
            large_len,
            keys: random.between(1, 20) as usize,
            tagged: random.percent(40),
            databases,
            password: self.passwords[pool].clone(),
            cut_percent: random.pick(&[0, 0, 30]),
            local_commands: true,
            may_move: false,
            may_be_killed: false,
            silences: random.percent(20),
            // For stores this is not drawn by chance, so that seeds draw the same for servers as
            // before.
            stateful: if is_store { requests.is_multiple_of(2) } else { random.percent(50) },
            channels: random.percent(40),
            greets,
            tracks: greets && (is_store || self.knows_hello[pool]) && random.percent(60),
            lists: true,
            staleness: Staleness::Never,
            transaction_len_max: self.limits.link_output_len_max as usize / 2,
            prompt: None,
            may_be_ended: large_len >= self.limits.pass_len(),
            mute: None,
            is_loud: false,
            hoard: None,
        }
    }

    fn add_faults(&mut self, random: &mut Random, options: &Options) {
        let backends = self.server_count();
        if backends == 0 {
            return;
        }
        for _ in 0..random.between(1, 12) {
            let server = random.index(backends);
            let kind = random.pick(&FAULTS);
            let Some(pool) = self.pool_of(server) else { continue };
            if self.cluster.is_some() && kind == FaultKind::Restart {
                continue;
            }
            let at = START + random.below(FAULTS_WITHIN);
            let longest = if random.percent(10) { 15 * SECOND } else { 2 * SECOND };
            let lasts = match kind {
                FaultKind::Drop | FaultKind::Restart => MILLI,
                _ => random.scaled(20 * MILLI, longest),
            };
            let mut aftermath = aftermath(&pool.kind);
            if kind == FaultKind::Garble && options.routes {
                // An incomplete line stays on a link that is not in use, until the link has been
                // silent for too long or is used again.
                aftermath += 10 * SECOND;
            }
            self.faults.push(Fault { at, lasts, server, kind, aftermath });
        }
    }

    /// Returns the largest number of requests of one client that never wait for anything but their
    /// servers, or 0 if faults may occur.
    pub fn unhindered_max(&self, habits: &Habits) -> usize {
        if !self.faults.is_empty() || self.large_takes(habits) > SECOND {
            return 0;
        }
        let reply_len = 6 * (habits.value_len + 100);
        let limits = &self.limits;
        let output = limits.session_output_len_soft as usize / 2 / reply_len;
        let input = limits.read_len_per_turn as usize / 2 / reply_len;
        let shared = limits.link_in_flight_max as usize / 2 / self.clients.len().max(1);
        let unsent =
            limits.link_output_len_max as usize / 2 / self.clients.len().max(1) / reply_len;
        let own = limits.session_in_flight_max as usize / 2;
        output.min(input).min(shared).min(unsent).min(own)
    }

    /// Returns how long the largest value may be in flight to a client that reads `read_len` bytes
    /// at a time. A third of a connection's buffer must be free before more is sent.
    fn large_takes(&self, habits: &Habits) -> Nanos {
        let network = &self.network;
        let round_len = (network.capacity / 3).min(habits.read_len / 2).max(1);
        let rounds = habits.large_len.max(habits.value_len).div_ceil(round_len);
        rounds as Nanos * 2 * network.latency.1
    }

    /// Returns the largest number of attempts to connect to a server of a pool within a second
    /// while all links fail. Each waits at least half the shortest pause.
    pub fn attempts_max(&self, pool: &ServerSet) -> usize {
        // There are links for each protocol, for large values, for subscriptions, and for tracked
        // clients.
        let tracked = self.clients.iter().filter(|habits| habits.tracks).count();
        let links =
            (2 * (usize::from(pool.options.server_connections) + 1) + 1) * self.workers + tracked;
        links * (2 * SECOND / nanos(pool.options.reconnect_min) + 30) as usize
    }

    /// Returns the largest number of probe requests that wait on a silent link: two each time one
    /// is due, until silence counts as death.
    pub fn probes_max(&self) -> usize {
        let pools = self.topology.pools().iter().filter_map(Pool::ejection);
        let probes = pools.map(|ejection| 2 * (20 * SECOND / nanos(ejection.for_) + 1));
        probes.max().unwrap_or(0) as usize
    }

    /// Returns the number of requests for items from another pool that a link accepts although it
    /// is full, and of requests that have waited for them. These are 64 and 128, plus what was in
    /// flight when they were reached. The pool from which the items come has room for more of its
    /// own.
    pub fn unasked_max(&self) -> usize {
        let brings = |pool: &&Pool| match &pool.kind {
            PoolKind::Memcached(pool) => pool.warm_up.is_some(),
            _ => false,
        };
        let in_flight = self.limits.link_in_flight_max as usize;
        let pools = self.topology.pools();
        let own = pools.iter().filter_map(|pool| pool.kind.servers());
        let own = own.map(|set| set.options.link_in_flight_max as usize).max().unwrap_or(0);
        let more = own.saturating_sub(in_flight);
        let most = |pool: &Pool| 64 + 128 + pool.servers().len() * 2 * in_flight + more;
        pools.iter().find(brings).map_or(0, most)
    }

    /// Returns the number of servers whose marker is checked once a second.
    pub fn servers_looked_at(&self) -> u64 {
        let is_flushed = |pool: &Pool| pool.ejection().is_some_and(|it| it.rejoin == Rejoin::Flush);
        let count = |pool: &Pool| match &pool.kind {
            PoolKind::Memcached(_) if is_flushed(pool) => pool.servers().len() as u64,
            _ => 0,
        };
        self.topology.pools().iter().map(count).sum()
    }

    /// Returns how long after the last fault everything must work again.
    pub fn recovery(&self) -> Nanos {
        let longest =
            self.topology.pools().iter().map(|pool| aftermath(&pool.kind)).max().unwrap_or(0);
        longest + self.cluster_recovery()
    }
}

/// Draws the pools, and the events of the cluster if one of them is a cluster.
fn draw_pools(
    random: &mut Random,
    calm: bool,
    limits: &Limits,
    options: &Options,
) -> (Vec<Pool>, Option<ClusterPlan>) {
    let mut cluster = None;
    let mut pools = match options.routes {
        _ if options.clusters => {
            let (pool, plan) = clusters::cluster(random, calm, options);
            cluster = Some(plan);
            vec![pool]
        }
        _ if options.replicated => {
            let (pools, plan) = replicated::replicated(random, calm, options);
            cluster = Some(plan);
            pools
        }
        true => routes::routed(random, calm, options),
        false => pools(random, calm, options),
    };
    for pool in &mut pools {
        if let Some(ServerSet { options: settings, .. }) = pool.kind.servers_mut() {
            settings.link_in_flight_max = limits.link_in_flight_max;
            settings.link_output_len_max = limits.link_output_len_max;
            if options.mutes {
                settings.timeout = Duration::from_millis(random.scaled(60, 1500));
            }
        }
    }
    if options.memcached && !options.routes {
        pools.iter_mut().for_each(|pool| speak_memcached(pool, random));
    }
    if options.warm_up {
        pools = warmed_up(pools, random, options);
    }
    (pools, cluster)
}

impl Habits {
    /// Makes the client use only what memcached supports.
    fn speak_memcached(&mut self) {
        self.mix = Mix::Memcached;
        self.databases = 1;
        (self.local_commands, self.silences, self.stateful) = (false, false, false);
        (self.channels, self.greets, self.tracks) = (false, false, false);
    }

    /// Makes the client do what shows a defect, and nothing that hides it.
    fn show(&mut self, defect: Option<Defect>) {
        self.channels = defect.is_some_and(Defect::is_of_channels);
        self.tracks = defect.is_some_and(Defect::is_of_caches);
        self.greets = self.tracks || self.channels;
    }
}

fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos() as Nanos
}

/// Returns how long a pool may feel a fault that is over. Requests that were queued meanwhile time
/// out, links wait before they connect again, and ejected servers wait for their probe, which may
/// have failed just before the end.
fn aftermath(kind: &PoolKind) -> Nanos {
    let Some(ServerSet { options: pool, .. }) = kind.servers() else { return 0 };
    let timeout = if pool.timeout == Duration::MAX { 0 } else { nanos(pool.timeout) };
    let connection = nanos(pool.connect_timeout) + nanos(pool.reconnect_max);
    let ejection = pool.ejection.map_or(0, |ejection| {
        let quarantine = match ejection.rejoin {
            Rejoin::Quarantine(Some(span)) => nanos(span),
            Rejoin::Quarantine(None) | Rejoin::Serve | Rejoin::Flush => 0,
        };
        2 * nanos(ejection.for_) + quarantine
    });
    let wait = kind.discovery().and_then(|discovery| discovery.wait_for_primary);
    2 * timeout + 2 * connection + ejection + 2 * wait.map_or(0, nanos) + SECOND
}

fn network_options(random: &mut Random, options: &Options) -> NetworkOptions {
    let low = random.scaled(MICRO, 100 * MICRO);
    let high = low + random.scaled(MICRO, 400 * MICRO);
    // At least 5 MB/s, so that queued bytes never explain a timeout.
    let capacity_min = (2 * high * 5 / 1000).max(256);
    NetworkOptions {
        latency: (low, high),
        capacity: random.scaled(capacity_min, 64 << 10) as usize,
        read_len: random.scaled(64, 64 << 10) as usize,
        events_max: random.scaled(1, 256) as usize,
        short_writes: random.pick(&[0, 0, 5, 50]),
        splits: random.pick(&[0, 10, 80]),
        reset_discards: random.percent(50),
        dropped_edge: options.dropped_edge,
        ring: None,
    }
}

fn limits(random: &mut Random) -> Limits {
    let session_in_flight_max = random.scaled(4, 512) as u32;
    let session_output_len_soft = random.scaled(1 << 10, 128 << 10) as u32;
    Limits {
        session_in_flight_max,
        session_output_len_soft,
        refer_len: session_output_len_soft / 64,
        link_in_flight_max: random.scaled(8, 2048) as u32,
        link_output_len_max: random.scaled(1 << 10, 512 << 10) as u32,
        read_len_per_turn: random.scaled(64, 256 << 10) as u32,
        ..Limits::default()
    }
}

fn pools(random: &mut Random, calm: bool, options: &Options) -> Vec<Pool> {
    let count = if options.is_defective() { 1 } else { random.between(1, 3) };
    (0..count)
        .map(|index| {
            let is_store = !options.is_defective() && !options.memcached && random.percent(25);
            let kind = match is_store {
                true => PoolKind::Store,
                false => PoolKind::Sharded(sharded(random, index, calm, options)),
            };
            Pool { name: format!("pool{index}"), kind }
        })
        .collect()
}

fn sharded(random: &mut Random, index: u64, calm: bool, options: &Options) -> ServerSet {
    let named = random.percent(50);
    let hosted = random.percent(30);
    let count = random.between(1, 5);
    let servers = (0..count).map(|server| {
        let host = match hosted {
            true => format!("redis-{index}-{server}.sim"),
            false => format!("10.0.{index}.{server}"),
        };
        let weight = random.between(1, 3);
        let name = if named { format!(" alpha{server}") } else { String::new() };
        Server::parse(&format!("{host}:6379:{weight}{name}")).expect("a server line")
    });
    let millis = Duration::from_millis;
    let mut set = ServerSet::new(servers.collect());
    set.hash = random.pick(&Hash::ALL);
    set.distribution = random.pick(&[Distribution::Ketama, Distribution::Modula]);
    set.hash_tag = random.percent(50).then_some(HashTag::BRACES);
    let pool = &mut set.options;
    pool.timeout = match calm {
        true => random.pick(&[millis(10_000), Duration::MAX]),
        false if random.percent(10) => Duration::MAX,
        false => millis(random.scaled(100, 1000)),
    };
    pool.connect_timeout = millis(random.scaled(100, 1000));
    pool.server_connections = random.pick(&[1, 1, 2]);
    pool.preconnect = random.percent(30);
    pool.reconnect_min = millis(random.scaled(5, 100));
    pool.reconnect_max = millis(random.scaled(100, 1000));
    pool.databases_allowed = random.pick(&[1, 1, 4]);
    pool.database = random.pick(&[0, 0, 5]);
    if random.percent(25) {
        pool.password = Some(Password::new("open sesame"));
    }
    if !options.is_defective() && random.percent(50) {
        pool.ejection = Some(Ejection {
            after_failures: random.between(1, 4) as u32,
            for_: millis(random.scaled(100, 3000)),
            rejoin: random.pick(&[
                Rejoin::Serve,
                Rejoin::Flush,
                Rejoin::Quarantine(Some(millis(1500))),
            ]),
        });
    }
    if !options.is_defective() && random.percent(30) {
        pool.circuit = Some(circuit(random));
    }
    set
}

fn circuit(random: &mut Random) -> Circuit {
    let open_for = random.scaled(20, 1000);
    Circuit {
        failures_percent: random.between(5, 100) as u8,
        requests_min: random.scaled(1, 100) as u32,
        window: Duration::from_millis(random.scaled(1000, 10_000)),
        open_for: Duration::from_millis(open_for),
        open_for_max: Duration::from_millis(open_for + random.scaled(1, 1000)),
        probes: random.between(1, 5) as u8,
    }
}

fn speak_memcached(pool: &mut Pool, random: &mut Random) {
    let Some(mut servers) = pool.kind.servers().cloned() else { return };
    let dialect = random.pick(&[Dialect::Text, Dialect::Meta]);
    let options = &mut servers.options;
    (options.database, options.databases_allowed, options.password) = (0, 1, None);
    if let Some(ejection) = &mut options.ejection
        && random.percent(70)
    {
        ejection.rejoin = Rejoin::Flush;
    }
    pool.kind = PoolKind::Memcached(MemcachedPool { servers, dialect, user: None, warm_up: None });
}

/// Returns the first of the pools, and another from which it gets its missing items.
fn warmed_up(mut pools: Vec<Pool>, random: &mut Random, options: &Options) -> Vec<Pool> {
    let mut old = sharded(random, pools.len() as u64, options.memcached, options);
    let settings = &mut old.options;
    (settings.link_in_flight_max, settings.link_output_len_max) = (256, 256 << 10);
    settings.timeout = Duration::from_millis(random.scaled(100, 1000));
    // With an ejection or a circuit, items of a server that is given up may be missed.
    (settings.ejection, settings.circuit) = (None, None);
    pools.truncate(1);
    pools.push(Pool { name: "old".to_owned(), kind: PoolKind::Sharded(old) });
    for pool in &mut pools {
        speak_memcached(pool, random);
        let PoolKind::Memcached(memcached) = &mut pool.kind else { continue };
        memcached.dialect = Dialect::Text;
        if pool.name != "old" {
            let (from, ttl_max) = ("old".to_owned(), Duration::from_secs(3600));
            memcached.warm_up = Some(WarmUp { from, ttl_max, lasts: None });
        }
    }
    pools
}

fn password_of(pool: &Pool) -> Option<String> {
    let password = pool.kind.servers()?.options.password.as_ref();
    password.map(|password| password.expose().to_owned())
}
