//! A whole worker with clients of memcached at its sockets, in every protocol
//! and honest or not, on the store and through a pool whose servers answer
//! anything, and through pools that lead to the two: nothing panics, clients that keep to the protocol are never closed
//! and are answered to the end, and once the servers behave everything works.

use crate::Choices;
use crate::invariants::{NoFacts, shown, tell};
use crate::worker_ops::registry;
use crate::worker_ops::wires::{End, Wires};
use keyway_base::{Clock, Limits, Time};
use keyway_memcache::{
    Asker, Dialect, Item, Outcome, ParseLimits, Parsed, Request, Verb, Wire, parse_request,
    write_end, write_reply,
};
use keyway_net::{Mailbox, Mailer};
use keyway_proxy::local::ClientRegistry;
use keyway_proxy::{QueueBudget, SlowLog};
use keyway_store::{Store, StoreConfig};
use keyway_topology::{
    Distribution, Ejection, Epoch, FailoverPool, Gutter, HealthBoard, MemcachedPool, MirrorPool,
    MissThenPool, Password, Pool, PoolKind as TopologyKind, PrefixPool, RateLimitedPool, Rejoin,
    RoutedPool, Server as ServerName, ServerOptions, ServerSet, ShadowBy, ShadowPool, Topology,
    Wait,
};
use keyway_worker::{ListenerPlan, Mail, Pause, Plan, PoolKind, PoolPlan, Worker};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

const SERVERS: usize = 3;
const CLIENTS_MAX: usize = 12;
/// Each with a pool of its number: servers, a store, and pools that lead to others.
const LISTENERS: usize = 8;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
const HEALED_WITHIN: Duration = Duration::from_secs(30);
const HEALING_STEP: Duration = Duration::from_millis(100);
const ITEM_LEN_MAX: u32 = 2048;
/// What ends each batch of an honest client of text: always answered.
const LAST: &[u8] = b"mn\r\n";
const LAST_SAID: &[u8] = b"MN\r\n";

/// Whole requests in text, none of which closes.
const REQUESTS: &[&str] = &[
    "get a\r\n",
    "gets a b c d e\r\n",
    "get a b a b none\r\n",
    "gat 10 a b\r\n",
    "set a 1 0 1\r\nx\r\n",
    "set b 4294967295 100 3 noreply\r\na\r\n\r\n",
    "cas a 0 0 1 7\r\nx\r\n",
    "append a 0 0 1\r\nx\r\n",
    "set a 0 0 5000\r\n",
    "incr n 1\r\n",
    "decr n 5 noreply\r\n",
    "touch a 10\r\n",
    "delete a\r\n",
    "mg a v f t k c s O1\r\n",
    "mg a v q k\r\n",
    "mg YQ== b v k N30 t\r\n",
    "ms a 1 F1 T10 I\r\nx\r\n",
    "ms a 5000 q\r\n",
    "md a q\r\n",
    "ma n N0 J5 v\r\n",
    "me a\r\n",
    "stats\r\n",
    "stats servers\r\n",
    "flush_all\r\n",
    "version\r\n",
    "verbosity 1\r\n",
    "nonsense\r\n",
    "get\r\n",
    "set a x 0 1\r\n",
    "shutdown\r\n",
];

/// What servers say that are not honest.
const REPLIES: &[&[u8]] = &[
    b"END\r\n",
    b"STORED\r\n",
    b"VALUE a 0 1\r\nx\r\nEND\r\n",
    b"VALUE zz 0 1\r\nx\r\nEND\r\n",
    b"VALUE a 0 99999999999\r\n",
    b"VALUE a 0 3\r\nx\r\nEND\r\n",
    b"HD\r\n",
    b"VA 1 kzz c5 f1 t-1\r\nx\r\n",
    b"EN\r\n",
    b"NF\r\n",
    b"ME a exp=1\r\n",
    b"STAT a 1\r\nSTAT b\r\nEND\r\n",
    b"SERVER_ERROR out of memory\r\n",
    b"CLIENT_ERROR x\r\n",
    b"ERROR\r\n",
    b"ERROR Too many open connections\r\n",
    b"18446744073709551616\r\n",
    b"\r\n",
    b"\x81\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x05\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0x",
    b"\x81\x0d\x00\x01\x04\x00\x00\x01\x00\x00\x00\x05\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0a",
    b"\x81\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\x81\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\x81\x00\xff\xff\xff\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0",
];

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

struct Client {
    wire: usize,
    /// It sends whole requests in text, each batch with [`LAST`] behind it.
    is_honest: bool,
    asked: usize,
    told: Vec<u8>,
}

impl Client {
    fn is_content(&self) -> bool {
        let lines = self.told.windows(LAST_SAID.len()).filter(|bytes| *bytes == LAST_SAID);
        !self.is_honest || lines.count() >= self.asked
    }
}

/// One server's end of a connection.
struct Connection {
    wire: usize,
    received: Vec<u8>,
    is_hostile: bool,
}

struct Run {
    worker: Worker<Wires>,
    mailer: Mailer<Mail>,
    clients: Vec<Client>,
    connections: Vec<Connection>,
    has_password: bool,
    are_hostile: bool,
}

impl Run {
    fn new(choices: &mut Choices) -> Self {
        let has_password = choices.flip();
        let plan = plan(pool(choices), limits(choices), has_password.then_some("secret"));
        let cells = registry(&plan.topology).start_worker().expect("room for one worker");
        let mailbox = Mailbox::new(4).expect("a descriptor for the mailbox");
        let mailer = mailbox.mailer();
        plan.mailers.lock().push(mailer.clone());
        let clock = Clock { now: Time(1_000_000_000), unix_micros: 1_700_000_000_000_000 };
        Self {
            worker: Worker::new(Wires::new(clock), plan, cells, mailbox, 7),
            mailer,
            clients: Vec::new(),
            connections: Vec::new(),
            has_password,
            are_hostile: choices.flip(),
        }
    }

    fn step(&mut self, choices: &mut Choices) {
        let action = choices.byte();
        match action % 16 {
            0 | 1 => self.dial(choices.below(LISTENERS), choices.flip()),
            2..=6 => self.ask(choices),
            7 => self.read(choices),
            8..=10 => self.serve(choices),
            11 | 12 => {
                let room = choices.pick(&[Some(100_000), Some(20), None]);
                self.decide_connect(choices.below(4), room);
            }
            13 => {
                let span = choices.span();
                self.worker.io_mut().pass_time(span);
            }
            14 => self.hang_up(choices),
            _ => {
                let io = self.worker.io_mut();
                io.read_len_max = choices.pick(&[1 << 16, 1, 7, 100]);
                io.tells_drained = choices.flip();
            }
        }
        if action & 16 == 0 {
            self.turn();
        }
    }

    fn dial(&mut self, listener: usize, is_honest: bool) {
        if self.clients.len() >= CLIENTS_MAX {
            return;
        }
        let Some(wire) = self.worker.io_mut().dial(listener as u16, 100_000) else { return };
        if listener == 1 && self.has_password && is_honest {
            self.worker.io_mut().send_to_worker(wire, b"set u 0 0 8\r\nu secret\r\n");
        }
        self.clients.push(Client { wire, is_honest, asked: 0, told: Vec::new() });
    }

    fn ask(&mut self, choices: &mut Choices) {
        if self.clients.is_empty() {
            return;
        }
        let at = choices.below(self.clients.len());
        let mut bytes = Vec::new();
        if self.clients[at].is_honest {
            for _ in 0..=choices.below(4) {
                let request = choices.pick(REQUESTS);
                bytes.extend_from_slice(request.as_bytes());
                if request.contains(" 5000") {
                    bytes.extend_from_slice(&[b'v'; 5000]);
                    bytes.extend_from_slice(b"\r\n");
                }
            }
            bytes.extend_from_slice(LAST);
            self.clients[at].asked += 1;
        } else {
            match choices.below(3) {
                0 => bytes.extend_from_slice(choices.bytes(80)),
                1 => bytes.extend_from_slice(choices.pick(REQUESTS).as_bytes()),
                _ => add_packet(&mut bytes, choices),
            }
        }
        let wire = self.clients[at].wire;
        self.worker.io_mut().send_to_worker(wire, &bytes);
    }

    fn read(&mut self, choices: &mut Choices) {
        if !self.clients.is_empty() {
            let at = choices.below(self.clients.len());
            let room = choices.pick(&[0, 10, 100_000]);
            let client = &mut self.clients[at];
            client.told.extend(self.worker.io_mut().take_from_worker(client.wire, room));
        }
    }

    fn decide_connect(&mut self, at: usize, room: Option<usize>) {
        if let Some((_, wire)) = self.worker.io_mut().decide_connect(at, room) {
            let is_hostile = self.are_hostile;
            self.connections.push(Connection { wire, received: Vec::new(), is_hostile });
        }
    }

    /// A server says something, if it is one of those that say anything.
    fn serve(&mut self, choices: &mut Choices) {
        if self.connections.is_empty() {
            return;
        }
        let at = choices.below(self.connections.len());
        let connection = &mut self.connections[at];
        let io = self.worker.io_mut();
        if !io.wires[connection.wire].is_open {
            return;
        }
        if !connection.is_hostile || choices.flip() {
            return connection.work(io);
        }
        match choices.flip() {
            true => io.send_to_worker(connection.wire, choices.pick(REPLIES)),
            false => io.send_to_worker(connection.wire, choices.bytes(40)),
        }
    }

    fn hang_up(&mut self, choices: &mut Choices) {
        let end = choices.pick(&[End::Closed, End::Reset]);
        let io = self.worker.io_mut();
        match choices.flip() {
            true if !self.connections.is_empty() => {
                let at = choices.below(self.connections.len());
                io.end(self.connections[at].wire, end);
            }
            false if !self.clients.is_empty() => {
                let client = self.clients.remove(choices.below(self.clients.len()));
                io.end(client.wire, end);
            }
            _ => {}
        }
    }

    fn turn(&mut self) -> bool {
        let goes_on = self.worker.turn(false);
        self.worker.io_mut().tell_mail();
        goes_on
    }

    /// From here on everybody behaves.
    fn heal(&mut self) {
        let io = self.worker.io_mut();
        (io.read_len_max, io.tells_drained) = (1 << 16, true);
        self.are_hostile = false;
        for connection in &mut self.connections {
            if connection.is_hostile {
                io.end(connection.wire, End::Reset);
            }
            connection.is_hostile = false;
        }
        self.clients.retain(|client| client.is_honest);
        self.clients.truncate(CLIENTS_MAX - LISTENERS);
        for listener in 0..LISTENERS {
            self.dial(listener, true);
            let Some(client) = self.clients.last_mut() else { continue };
            client.asked += 1;
            let wire = client.wire;
            self.worker.io_mut().send_to_worker(wire, b"get a b c d\r\nmn\r\n");
        }
        let rounds = HEALED_WITHIN.as_millis() / HEALING_STEP.as_millis();
        for _ in 0..rounds {
            self.be_good();
            self.turn();
            self.worker.io_mut().tell_incoming();
            self.be_good();
            if self.clients.iter().all(Client::is_content) {
                return;
            }
            self.worker.io_mut().pass_time(HEALING_STEP);
        }
        let waiting = self.clients.iter().find(|client| !client.is_content()).expect("one waits");
        panic!(
            "after {HEALED_WITHIN:?} a client waits for {} ends and was told {}",
            waiting.asked,
            shown(&waiting.told)
        );
    }

    fn be_good(&mut self) {
        while !self.worker.io_mut().connects.is_empty() {
            self.decide_connect(0, Some(1 << 30));
        }
        let io = self.worker.io_mut();
        for connection in &mut self.connections {
            if io.wires[connection.wire].is_open && io.wires[connection.wire].end.is_none() {
                connection.work(io);
            }
        }
        for client in &mut self.clients {
            client.told.extend(io.take_from_worker(client.wire, 1 << 30));
            assert!(
                io.wires[client.wire].is_open || !client.is_honest,
                "an honest client is closed, who was told {}",
                shown(&client.told)
            );
        }
    }

    fn drain(&mut self) {
        let _ = self.mailer.post(Mail::Drain);
        self.worker.io_mut().tell_mail();
        for _ in 0..10 {
            if !self.turn() {
                return;
            }
            self.worker.io_mut().pass_time(DRAIN_TIMEOUT / 4);
        }
        panic!("the worker does not stop");
    }
}

impl Connection {
    /// Answers all whole requests as a server with one item.
    fn work(&mut self, io: &mut Wires) {
        self.received.extend(io.take_from_worker(self.wire, 1 << 30));
        let limits = ParseLimits::of(&Limits::default(), 1 << 20);
        let mut request = Request::default();
        let (mut at, mut said) = (0, Vec::new());
        while let Some(&first) = self.received.get(at) {
            let rest = &self.received[at..];
            match parse_request(rest, Wire::of(first), &limits, &mut request) {
                Parsed::Ready { consumed } => {
                    answer(&request, rest, &mut said);
                    at += consumed;
                }
                Parsed::NeedMore { .. } => break,
                // Who answers what was not asked yet may be told anything.
                Parsed::Refused { .. } if self.is_hostile => at = self.received.len(),
                Parsed::Refused { fault, .. } => {
                    panic!("a server is sent what is no request, {fault:?}: {}", shown(rest))
                }
            }
        }
        self.received.drain(..at);
        if !said.is_empty() {
            tell(|| format!("the server on {} answers", self.wire));
            io.send_to_worker(self.wire, &said);
        }
    }
}

fn answer(request: &Request, bytes: &[u8], said: &mut Vec<u8>) {
    let (head, meta) = (&request.head, request.meta.of(bytes));
    if head.verb.reads() {
        for key in request.keys(bytes) {
            let item = Item { key, value: b"v", cas: Some(5), ttl: Some(-1), ..Item::default() };
            let outcome = if key == b"a" { Outcome::Hit(item) } else { Outcome::NotFound };
            write_reply(said, &Asker { head, key, meta }, &outcome);
        }
        return write_end(said, head);
    }
    let outcome = match head.verb {
        Verb::Version => Outcome::Text(b"1.6.18"),
        Verb::Noop => Outcome::Noop,
        Verb::Incr | Verb::Decr | Verb::Debug => Outcome::NotFound,
        Verb::Stats => return write_end(said, head),
        _ => Outcome::Done(Item::default()),
    };
    let key = if request.keys.is_empty() { b"" } else { request.key(bytes, 0) };
    write_reply(said, &Asker { head, key, meta }, &outcome);
}

/// Adds a packet, mostly with lengths that fit.
fn add_packet(bytes: &mut Vec<u8>, choices: &mut Choices) {
    let opcode = choices.byte() % 0x26;
    let extras = choices.pick(&[0usize, 0, 4, 8, 20]);
    let key = choices.bytes(8);
    let value = choices.pick(&[0usize, 0, 1, 5000]);
    let body = (extras + key.len() + value) as u32;
    bytes.extend_from_slice(&[0x80, opcode, 0, key.len() as u8, extras as u8, 0, 0, 0]);
    bytes.extend_from_slice(&body.to_be_bytes());
    bytes.extend_from_slice(&[7; 4]);
    bytes.extend_from_slice(&u64::from(choices.flip()).to_be_bytes());
    bytes.extend(std::iter::repeat_n(0, extras));
    bytes.extend_from_slice(key);
    bytes.extend(std::iter::repeat_n(b'v', value));
}

fn limits(choices: &mut Choices) -> Limits {
    let default = Limits::default();
    match choices.flip() {
        false => default,
        true => Limits {
            session_in_flight_max: 3,
            session_output_len_soft: 64,
            link_in_flight_max: 4,
            link_output_len_max: 200,
            read_len_per_turn: 50,
            reply_len_max: 200,
            ..default
        },
    }
}

fn pool(choices: &mut Choices) -> MemcachedPool {
    let servers = (1..=SERVERS)
        .map(|port| ServerName::parse(&format!("h:{port}:1 s{port}")).expect("a valid server"));
    let dialect = choices.pick(&[Dialect::Meta, Dialect::Text, Dialect::Binary]);
    let rejoin = choices.pick(&[Rejoin::Serve, Rejoin::Flush]);
    let ejection = Ejection { after_failures: 2, for_: Duration::from_secs(1), rejoin };
    let options = ServerOptions {
        timeout: Duration::from_millis(400),
        server_connections: if choices.flip() { 2 } else { 1 },
        password: choices.flip().then(|| Password::new("secret")),
        ejection: choices.flip().then_some(ejection),
        allow_flush: choices.flip(),
        ..ServerOptions::default()
    };
    let distribution = Distribution::Modula;
    let servers = ServerSet { distribution, options, ..ServerSet::new(servers.collect()) };
    MemcachedPool { servers, dialect, user: None, warm_up: None }
}

/// Pools 2 to 7, which lead to the servers, the store and each other.
fn routed_pools() -> Vec<RoutedPool> {
    let second = Duration::from_secs(1);
    let prefixes = [(&b"a"[..], 4), (b"b", 6)];
    let prefixes = prefixes.map(|(prefix, pool)| (prefix.into(), pool)).to_vec();
    vec![
        RoutedPool::Failover(FailoverPool {
            children: vec![0],
            gutter: Some(Gutter { pool: 1, ttl_max: second }),
        }),
        RoutedPool::Mirror(MirrorPool { children: vec![0, 1], read_from: 1, wait: Wait::First }),
        RoutedPool::MissThen(MissThenPool {
            children: vec![1, 0],
            fill_ttl_max: Some(10 * second),
        }),
        RoutedPool::Shadow(ShadowPool {
            main: 2,
            shadow: 3,
            percent: 50,
            by: ShadowBy::Chance,
            in_flight_max: 4,
        }),
        RoutedPool::RateLimited(RateLimitedPool { child: 5, requests_per_second: 1000, burst: 20 }),
        RoutedPool::Prefix(PrefixPool::new(prefixes, Some(3))),
    ]
}

fn plan(mut pool: MemcachedPool, limits: Limits, password: Option<&str>) -> Arc<Plan> {
    let options = &mut pool.servers.options;
    options.link_in_flight_max = limits.link_in_flight_max;
    options.link_output_len_max = limits.link_output_len_max;
    let store = Arc::new(Store::new(StoreConfig {
        memory_max: 1 << 20,
        shards: Some(2),
        seed: 7,
        ..StoreConfig::default()
    }));
    let pools = vec![
        Pool { name: "servers".to_owned(), kind: TopologyKind::Memcached(pool) },
        Pool { name: "store".to_owned(), kind: TopologyKind::Store },
    ];
    let named = |routed: RoutedPool| {
        let name = routed.kind().to_owned();
        Pool { name, kind: TopologyKind::Routed(routed) }
    };
    let pools = pools.into_iter().chain(routed_pools().into_iter().map(named)).collect();
    let topology = Arc::new(Topology::new(Epoch(1), pools));
    let pool_plan = |name: &str, kind| PoolPlan {
        name: name.to_owned(),
        databases: 1,
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
        memcached: Some(ITEM_LEN_MAX),
        pool,
        name: "unix:0".into(),
        users: Arc::new(keyway_users::Users::plain(password)),
    };
    Arc::new(Plan {
        generation: 1,
        retired: Vec::new(),
        followers: Default::default(),
        limits,
        listeners: (0..LISTENERS as u16)
            .map(|pool| listener(pool, password.filter(|_| pool == 1)))
            .collect(),
        user_reads: Vec::new(),
        pools: topology
            .pools()
            .iter()
            .map(|pool| {
                let (pools, begins) = (topology.pools(), Time(1_000_000_000));
                let kind = PoolKind::new(&pool.kind, pools, begins, None, || Arc::clone(&store));
                Arc::new(pool_plan(&pool.name, kind))
            })
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
