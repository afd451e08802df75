//! A whole worker with clients and servers at its sockets, honest and hostile,
//! driven through any order of events: nothing panics, every request of an
//! honest client is answered once and in order, nothing is executed twice, on
//! the wrong database or after it was said not to be sent, and once the peers
//! behave everything comes to rest.

mod peers;
mod rich;
pub(crate) mod wires;

use crate::Choices;
use crate::invariants::{NoFacts, tell};
use keyway_base::{Clock, Limits, Time};
use keyway_command::Class;
use keyway_metrics::{Layout, PoolLayout, Registry};
use keyway_net::{Mailbox, Mailer};
use keyway_proxy::local::ClientRegistry;
use keyway_proxy::{QueueBudget, SlowLog};
use keyway_store::{EvictionPolicy, Store, StoreConfig};
use keyway_topology::{
    Distribution, Ejection, Epoch, HealthBoard, Password, Pool, PoolKind as TopologyKind,
    RateLimitedPool, ReadWriteSplitPool, Rejoin, RoutedPool, Server as ServerName, ServerOptions,
    ServerSet, Topology,
};
use keyway_worker::{ListenerPlan, Mail, Pause, Plan, PoolKind, PoolPlan, Worker};
use peers::{Client, Ledger, Server};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use wires::{End, Wires};

/// What clients of the store give, in some runs.
const PASSWORD: &str = "secret";
/// Databases of the pool of servers, where clients may select at all.
const DATABASES: u32 = 3;
const SERVERS: usize = 3;
/// A pool that writes to the servers, and reads from them by another pool.
const SPLIT: usize = 2;
const CLIENTS_MAX: usize = 6;
/// Connections to one server beside the shared ones: idle ones that are kept,
/// two for each client, and one for subscriptions.
const ALONE_MAX: usize = 32 + 3 * CLIENTS_MAX + 1;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
const EJECTED_FOR: Duration = Duration::from_secs(1);
/// Within this time everything works again after the last fault: a link that
/// is stuck is given up after ten seconds.
const HEALED_WITHIN: Duration = Duration::from_secs(30);
const HEALING_STEP: Duration = Duration::from_millis(100);

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut run = Run::new(&mut choices);
    while !choices.is_over() {
        run.step(&mut choices);
    }
    run.heal();
    run.drain();
}

struct Run {
    worker: Worker<Wires>,
    plan: Arc<Plan>,
    mailer: Mailer<Mail>,
    clients: Vec<Client>,
    servers: Vec<Server>,
    ledger: Ledger,
    links_per_server: usize,
    /// A quarantine that only an operator ends.
    quarantines: bool,
}

impl Run {
    fn new(choices: &mut Choices) -> Self {
        let pool = pool(choices);
        let (databases, links_per_server) =
            (pool.options.database, usize::from(pool.options.server_connections));
        let quarantines =
            pool.options.ejection.is_some_and(|it| it.rejoin == Rejoin::Quarantine(None));
        let plan = plan(pool, limits(choices), choices.flip().then_some(PASSWORD));
        let registry = registry(&plan.topology);
        let cells = registry.start_worker().expect("room for one worker");
        let mailbox = Mailbox::new(4).expect("a descriptor for the mailbox");
        let mailer = mailbox.mailer();
        plan.mailers.lock().push(mailer.clone());
        let clock = Clock { now: Time(1_000_000_000), unix_micros: 1_700_000_000_000_000 };
        Self {
            worker: Worker::new(Wires::new(clock), Arc::clone(&plan), cells, mailbox, 7),
            plan,
            mailer,
            clients: Vec::new(),
            servers: (0..SERVERS).map(|_| Server::new(databases, choices.flip())).collect(),
            ledger: Ledger::default(),
            links_per_server,
            quarantines,
        }
    }

    /// One thing happens; often the worker takes a turn after it.
    fn step(&mut self, choices: &mut Choices) {
        let action = choices.byte();
        tell(|| {
            format!("action {}, {}", action % 16, if action & 16 == 0 { "turn" } else { "no turn" })
        });
        match action % 16 {
            0 | 1 => self.dial(choices),
            2..=4 => {
                self.with_client(choices, |client, choices, wires, ledger| match client.has_ended {
                    true => {}
                    // Who has asked for anything may be in another database by now.
                    false if client.is_hostile || choices.below(3) == 0 => {
                        client.ask_anything(choices, wires)
                    }
                    false => client.ask(choices, wires, ledger),
                })
            }
            5 | 6 => self.with_client(choices, |client, choices, wires, ledger| {
                client.read(choices.pick(&[0, 10, 300, 100_000]), wires, ledger);
            }),
            7 => self.with_client(choices, |client, choices, wires, ledger| {
                if choices.flip() && !client.has_ended {
                    return client.attack(choices.bytes(80), wires, ledger);
                }
                client.has_ended = true;
                wires.end(client.wire, choices.pick(&[End::Closed, End::Closed, End::Reset]));
            }),
            8..=10 => {
                let (server, count) = (choices.below(SERVERS), 1 + choices.below(20));
                let room = choices.pick(&[0, 100, 100_000]);
                let Run { worker, servers, ledger, .. } = self;
                servers[server].work(count, room, worker.io_mut(), ledger);
            }
            11 => {
                let Run { worker, servers, ledger, .. } = self;
                let server = &mut servers[choices.below(SERVERS)];
                match choices.below(3) {
                    0 => server.attack(choices, worker.io_mut(), ledger),
                    1 => server.push(choices, worker.io_mut(), ledger),
                    _ => server.hang_up(choices, worker.io_mut()),
                }
            }
            12 | 13 => {
                let room = choices.pick(&[Some(100_000), Some(20), None, Some(100_000)]);
                self.decide_connect(choices.below(4), room);
            }
            14 => {
                let span = choices.span();
                self.worker.io_mut().pass_time(span);
            }
            _ => self.disturb(choices),
        }
        if action & 16 == 0 {
            self.turn();
        }
    }

    fn dial(&mut self, choices: &mut Choices) {
        if self.clients.len() >= CLIENTS_MAX {
            return;
        }
        let listener = match choices.below(8) {
            3 => 1,
            7 => SPLIT,
            _ => 0,
        };
        let room = choices.pick(&[100_000, 0, 40]);
        if let Some(wire) = self.worker.io_mut().dial(listener as u16, room) {
            let databases = self.plan.pools[listener].databases;
            // Reads and writes meet again at the servers.
            let pool = if listener == SPLIT { 0 } else { listener };
            let mut client = Client::new(wire, (pool, databases), self.clients.len());
            if self.plan.listeners[listener].users.newcomer().is_none() {
                match choices.below(4) {
                    0 => client.lock_out(),
                    _ => client.log_in(self.worker.io_mut()),
                }
            }
            self.clients.push(client);
        }
    }

    fn with_client(
        &mut self,
        choices: &mut Choices,
        work: impl FnOnce(&mut Client, &mut Choices, &mut Wires, &mut Ledger),
    ) {
        let Run { worker, clients, ledger, .. } = self;
        if !clients.is_empty() {
            let at = choices.below(clients.len());
            work(&mut clients[at], choices, worker.io_mut(), ledger);
        }
    }

    fn decide_connect(&mut self, at: usize, room: Option<usize>) {
        let Some((server, wire)) = self.worker.io_mut().decide_connect(at, room) else { return };
        self.servers[server].on_connected(wire);
    }

    /// Whims of the system, and mail.
    fn disturb(&mut self, choices: &mut Choices) {
        let io = self.worker.io_mut();
        match choices.below(8) {
            0 => io.read_len_max = choices.pick(&[1 << 16, 1, 7, 100]),
            1 => io.tells_drained = !io.tells_drained,
            2 => io.is_exhausted = !io.is_exhausted,
            3 | 4 if !io.wires.is_empty() => {
                let wire = choices.below(io.wires.len());
                io.tell(wire, choices.flip(), choices.flip());
            }
            5 => io.tell_incoming(),
            6 => {
                let to = self.mailer.clone();
                self.post(Mail::GiveAway { count: choices.below(4), to });
            }
            7 if choices.below(4) == 0 => {
                self.ledger.may_close = true;
                match choices.below(3) {
                    0 => self.post(Mail::Kill(vec![choices.below(CLIENTS_MAX) as u64])),
                    1 => self.post(Mail::Drain),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn post(&mut self, mail: Mail) {
        let _ = self.mailer.post(mail);
        self.worker.io_mut().tell_mail();
    }

    fn turn(&mut self) -> bool {
        let goes_on = self.worker.turn(false);
        // Mail the worker sent itself.
        self.worker.io_mut().tell_mail();
        self.check_sockets();
        goes_on
    }

    /// The worker holds no more sockets than it has links, each with its twin
    /// for another protocol, and what a client may have for itself.
    fn check_sockets(&mut self) {
        let (links_max, Run { worker, servers, .. }) = (self.links_per_server, self);
        let wires = &worker.io_mut().wires;
        for server in servers {
            let open = server.connections.iter().filter(|it| wires[it.wire].is_open);
            assert!(open.count() <= links_max * 2 + ALONE_MAX, "connections are never closed");
        }
    }

    /// Everybody behaves from here on, and before long nobody waits.
    fn heal(&mut self) {
        let io = self.worker.io_mut();
        (io.read_len_max, io.tells_drained, io.is_exhausted) = (1 << 16, true, false);
        for server in &mut self.servers {
            server.repent(io);
        }
        let rounds = HEALED_WITHIN.as_millis() / HEALING_STEP.as_millis();
        for _ in 0..rounds {
            self.be_good();
            self.turn();
            self.worker.io_mut().tell_incoming();
            self.be_good();
            if self.is_healed() {
                return;
            }
            self.worker.io_mut().pass_time(HEALING_STEP);
        }
        let waiting = self.clients.iter().filter(|client| !client.is_content()).count();
        let board = &self.plan.health;
        let states: Vec<_> = self.plan.topology.backend_ids(0).map(|id| board.state(id)).collect();
        panic!("after {HEALED_WITHIN:?} {waiting} clients wait; servers are {states:?}");
    }

    fn be_good(&mut self) {
        while !self.worker.io_mut().connects.is_empty() {
            self.decide_connect(0, Some(1 << 30));
        }
        let Run { worker, clients, servers, ledger, .. } = self;
        let io = worker.io_mut();
        for server in servers {
            server.work(usize::MAX, 1 << 30, io, ledger);
        }
        for client in clients {
            client.read(1 << 30, io, ledger);
        }
    }

    fn is_healed(&mut self) -> bool {
        let board = &self.plan.health;
        let mut backends = self.plan.topology.backend_ids(0);
        let usable = self.quarantines || backends.all(|id| board.is_usable(id));
        usable && self.clients.iter().all(|client| client.is_hostile || client.is_content())
    }

    /// Told to stop, the worker closes every client and ends.
    fn drain(&mut self) {
        self.ledger.may_close = true;
        self.post(Mail::Drain);
        for _ in 0..10 {
            self.be_good();
            if !self.turn() {
                self.be_good();
                let wires = &self.worker.io_mut().wires;
                assert!(self.clients.iter().all(|client| !wires[client.wire].is_open));
                return;
            }
            self.worker.io_mut().pass_time(DRAIN_TIMEOUT / 4);
        }
        panic!("the worker does not stop");
    }
}

fn limits(choices: &mut Choices) -> Limits {
    let default = Limits::default();
    match choices.below(3) {
        0 => default,
        1 => Limits {
            session_in_flight_max: 3,
            session_output_len_soft: 64,
            refer_len: 20,
            link_in_flight_max: 4,
            link_output_len_max: 200,
            read_len_per_turn: 50,
            reply_len_max: 200,
            reply_depth_max: 2,
            ..default
        },
        _ => Limits {
            clients_max: 3,
            request_len_max: 4000,
            bulk_len_max: 2000,
            request_args_max: 64,
            inline_len_max: 500,
            ..default
        },
    }
}

fn pool(choices: &mut Choices) -> ServerSet {
    let servers = (1..=SERVERS)
        .map(|port| ServerName::parse(&format!("h:{port}:1 s{port}")).expect("a valid server"));
    let switches = choices.byte();
    let on = |bit: u8| switches >> bit & 1 == 1;
    let rejoin = choices.pick(&[
        Rejoin::Serve,
        Rejoin::Flush,
        Rejoin::Quarantine(Some(Duration::from_secs(2))),
        Rejoin::Quarantine(None),
    ]);
    let ejection = Ejection { after_failures: 2, for_: EJECTED_FOR, rejoin };
    let options = ServerOptions {
        timeout: if on(1) { Duration::MAX } else { Duration::from_millis(400) },
        server_connections: if on(2) { 2 } else { 1 },
        preconnect: on(3),
        password: on(4).then(|| Password::new("secret")),
        database: if on(5) { 5 } else { 0 },
        databases_allowed: if on(6) { DATABASES } else { 1 },
        ejection: on(7).then_some(ejection),
        ..ServerOptions::default()
    };
    let distribution = if on(0) { Distribution::Random } else { Distribution::Modula };
    ServerSet { distribution, options, ..ServerSet::new(servers.collect()) }
}

fn routed(routed: RoutedPool) -> Pool {
    Pool { name: "led".to_owned(), kind: TopologyKind::Routed(routed) }
}

fn plan(mut pool: ServerSet, limits: Limits, password: Option<&str>) -> Arc<Plan> {
    pool.options.link_in_flight_max = limits.link_in_flight_max;
    pool.options.link_output_len_max = limits.link_output_len_max;
    let databases_allowed = pool.options.databases_allowed;
    let store = Store::new(StoreConfig {
        memory_max: 1 << 20,
        policy: EvictionPolicy::default(),
        databases: DATABASES,
        shards: Some(2),
        seed: 7,
        ..StoreConfig::default()
    });
    let pools = vec![
        Pool { name: "servers".to_owned(), kind: TopologyKind::Sharded(pool) },
        Pool { name: "store".to_owned(), kind: TopologyKind::Store },
        routed(RoutedPool::ReadWriteSplit(ReadWriteSplitPool {
            write: 0,
            read: 3,
            pin_after_write: None,
            read_fallback: false,
            write_commands: Vec::new(),
        })),
        routed(RoutedPool::RateLimited(RateLimitedPool {
            child: 0,
            requests_per_second: 1 << 30,
            burst: 1 << 30,
        })),
    ];
    let store = Arc::new(store);
    let plan_of =
        |pool: &Pool| PoolKind::new(&pool.kind, &pools, Time(0), None, || Arc::clone(&store));
    let [servers, store, led @ ..] = [0, 1, 2, 3].map(|index: usize| plan_of(&pools[index]));
    let led: [PoolKind; 2] = led;
    let topology = Arc::new(Topology::new(Epoch(1), pools));
    let pool_plan = |name: &str, databases, kind| PoolPlan {
        name: name.to_owned(),
        databases,
        clients_max: 0,
        pause: Pause::default(),
        scripts: Arc::default(),
        role: Default::default(),
        errors: Arc::default(),
        notices: Default::default(),
        key_stats: Arc::default(),
        // Every request of the store is slow.
        slow_log: Arc::new(SlowLog::timed(Duration::ZERO, 8, || Time(0))),
        kind,
    };
    let listener = |pool, password: Option<&str>| ListenerPlan {
        is_ended: false,
        cluster: None,
        read_from: None,
        access: keyway_worker::ListenerAccess::default(),
        memcached: None,
        pool,
        name: "unix:0".into(),
        users: Arc::new(keyway_users::Users::plain(password)),
    };
    Arc::new(Plan {
        generation: 1,
        retired: Vec::new(),
        followers: Default::default(),
        limits,
        listeners: vec![listener(0, None), listener(1, password), listener(SPLIT as u16, None)],
        user_reads: Vec::new(),
        pools: [
            pool_plan("servers", databases_allowed, servers),
            pool_plan("store", DATABASES, store),
        ]
        .into_iter()
        .chain(led.map(|kind| pool_plan("led", 1, kind)))
        .map(Arc::new)
        .collect(),
        health: Arc::new(HealthBoard::new(&topology)),
        topology,
        clients: Arc::new(ClientRegistry::default()),
        facts: Arc::new(NoFacts),
        next_client_id: Arc::new(AtomicU64::new(1)),
        mailers: Arc::default(),
        drain_timeout: DRAIN_TIMEOUT,
        spin: std::time::Duration::ZERO,
        notices: Arc::default(),
        transactions: Arc::new(QueueBudget::new(limits.transactions_len_max)),
        channels: Arc::default(),
        handouts: Arc::default(),
        invalidations: Arc::default(),
        monitors: Arc::default(),
        redirects: Arc::default(),
        relief: Arc::default(),
    })
}

pub(crate) fn registry(topology: &Topology) -> Arc<Registry> {
    const CLASSES: [&str; Class::ALL.len()] = [""; Class::ALL.len()];
    let pools = topology.pools().iter().map(|pool| PoolLayout {
        is_retired: false,
        name: pool.name.clone(),
        backends: pool.servers().iter().map(|server| server.label().into_owned()).collect(),
    });
    Registry::new(Layout {
        classes: &CLASSES,
        commands: &keyway_command::COUNTED_NAMES,
        pools: pools.collect(),
        workers_max: 1,
        version: "0",
        start_unix_micros: 0,
    })
}
