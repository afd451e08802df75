//! Clients of pools that lead to a cluster, against servers that change indices, refuse,
//! answer late and are lost, as a seed has it. Whatever comes, the cluster executes what
//! one client sent in its order, everybody has an answer, and nothing stays behind.

use super::*;
use crate::cluster::Speaker;
use crate::core::Connection;
use crate::core::tests::{pass_to, plan_of};
use keyway_base::{BackendFault, Time};
use keyway_net::Socket;
use keyway_proxy::{Identity, LinkState};
use keyway_resp::Protocol;
use keyway_topology::{
    ClusterPool, ClusterView, Discovery, Endpoint, FailoverPool, MirrorPool, Pool,
    PoolKind as Kind, PrefixPool, RoutedPool, Server, ServerSet, ShadowBy, ShadowPool, SlotQuery,
    ViewSource, Wait,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Number of seeds. Some tens find every known fault.
const SEEDS: u64 = 200;

const CLUSTER: u16 = 0;
const OTHER: u16 = 1;

/// Pools that lead to the cluster, behind it and the other one.
fn leading() -> Vec<(&'static str, RoutedPool)> {
    let failover = |children: &[u16]| {
        RoutedPool::Failover(FailoverPool { children: children.to_vec(), gutter: None })
    };
    let mirror = |children: &[u16], wait| {
        RoutedPool::Mirror(MirrorPool { children: children.to_vec(), read_from: 0, wait })
    };
    vec![
        ("prefix", RoutedPool::Prefix(PrefixPool::new(Vec::new(), Some(CLUSTER)))),
        ("failover", failover(&[CLUSTER, OTHER])),
        ("mirror", mirror(&[OTHER, CLUSTER], Wait::All)),
        ("first", mirror(&[OTHER, CLUSTER], Wait::First)),
        ("nested", failover(&[2, OTHER])),
        ("deep", mirror(&[OTHER, 3], Wait::First)),
        ("shadow", {
            let (percent, in_flight_max) = (100, 1000);
            let by = ShadowBy::Key;
            RoutedPool::Shadow(ShadowPool {
                main: OTHER,
                shadow: CLUSTER,
                percent,
                by,
                in_flight_max,
            })
        }),
    ]
}

fn endpoint(port: u16) -> Endpoint {
    Endpoint::tcp("h", port).unwrap()
}

/// Numbers by chance, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = self.0;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (drawn ^ (drawn >> 31)) % bound
    }
}

/// A server: what it was sent, and its answers on their way.
#[derive(Default)]
struct Node {
    received: VecDeque<String>,
    replies: VecDeque<String>,
}

struct Client {
    key: Key<Session>,
    pool: u16,
    sent: u32,
    /// The last of its requests that the cluster has executed.
    executed: u32,
    has_left: bool,
}

struct World {
    core: Core,
    random: Random,
    now: u64,
    /// The other pool's server, then two of the cluster.
    nodes: [Node; 3],
    /// Which of these has the slots.
    owner: usize,
    /// True if requests time out before their servers answer.
    is_hasty: bool,
    /// Number of requests in a hundred that the owner refuses.
    refusals: u64,
    clients: Vec<Client>,
    sockets: i32,
    story: String,
}

impl World {
    fn new(seed: u64, is_hasty: bool) -> World {
        let mut random = Random(seed);
        let discovery = Discovery {
            refresh: Duration::from_secs(100),
            redirections_max: 3 + random.below(8) as u8,
            ..Discovery::new(vec![endpoint(1)], 3)
        };
        let mut cluster = ClusterPool::new(SlotQuery::Slots, discovery);
        // Links that are full as well.
        if random.below(3) == 0 {
            cluster.servers.options.link_in_flight_max = 2;
        }
        let mut other = ServerSet::new(vec![Server::parse("127.0.0.1:9:1 it").unwrap()]);
        if is_hasty {
            cluster.servers.options.timeout = Duration::from_millis(40);
            other.options.timeout = Duration::from_millis(40);
        }
        let kinds = [("cluster", Kind::Cluster(cluster)), ("other", Kind::Sharded(other))];
        let leading = leading().into_iter().map(|(name, pool)| (name, Kind::Routed(pool)));
        let pools = kinds.into_iter().chain(leading);
        let pools: Vec<Pool> =
            pools.map(|(name, kind)| Pool { name: name.to_owned(), kind }).collect();
        let leading = 2..pools.len() as u16;
        let (plan, cells) = plan_of(pools);
        let core = Core::new(plan, cells, seed);
        let refusals = random.below(4) * 20;
        let mut world = World {
            core,
            random,
            now: 1,
            nodes: Default::default(),
            owner: 1,
            is_hasty,
            refusals,
            clients: Vec::new(),
            sockets: 0,
            story: format!("seed {seed}\n"),
        };
        for _ in 0..4 {
            let pool = leading.start + world.random.below(leading.len() as u64 + 1) as u16;
            world.join(if leading.contains(&pool) { pool } else { CLUSTER });
        }
        world.learn();
        world.turn();
        world
    }

    /// A client comes to a pool.
    fn join(&mut self, pool: u16) {
        let identity = Identity::new(self.clients.len() as u64, true, Time(0));
        let key = self.core.add_session(pool, 0, identity);
        self.clients.push(Client { key, pool, sent: 0, executed: 0, has_left: false });
    }

    fn tell(&mut self, what: std::fmt::Arguments) {
        use std::fmt::Write;
        let _ = writeln!(self.story, "{:4} ms: {what}", self.now);
    }

    /// The worker hears who has the slots.
    fn learn(&mut self) {
        let (owner, other) = if self.owner == 1 { (1, 2) } else { (2, 1) };
        let node = |port: u16| format!("*2\r\n$1\r\nh\r\n:{port}\r\n");
        let slots = format!("*1\r\n*4\r\n:0\r\n:16383\r\n{}{}", node(owner), node(other));
        let told_by = endpoint(owner);
        let view =
            ClusterView::from_slots(slots.as_bytes(), ViewSource::plainly(&told_by)).unwrap();
        let shared = Arc::clone(&self.core.plane.cluster_state(CLUSTER).unwrap().shared);
        let _ = shared.learn(&view, Speaker::ALONE, Time(self.now * 1_000_000));
    }

    fn link(&self, node: usize) -> Option<usize> {
        let pool = if node == 0 { OTHER } else { CLUSTER };
        let Some(state) = self.core.plane.pools[usize::from(pool)].servers() else {
            panic!("servers")
        };
        let server = match node {
            0 => 0,
            _ => self
                .core
                .plane
                .cluster_state(CLUSTER)
                .unwrap()
                .map
                .index_of(&endpoint(node as u16))?,
        };
        Some(state.link(server, 0, Protocol::Resp2).index())
    }

    /// A turn of the worker.
    fn turn(&mut self) {
        let core = &mut self.core;
        core.follow_clusters();
        core.resume_sessions(&mut Vec::new());
        let stuck = pass_to(core, self.now);
        core.send_retries();
        if core.plane.routes.has_steps() {
            core.continue_routes();
        }
        for (index, _) in stuck {
            let node = (0..3).find(|node| self.link(*node) == Some(index.index()));
            node.into_iter().for_each(|node| self.lose(node));
        }
        self.flush();
    }

    /// Delivers the output of links to their servers.
    fn flush(&mut self) {
        while let Some(index) = self.core.plane.upstream.connects.pop() {
            self.sockets += 1;
            self.core.on_connecting(index);
            self.core.on_connected(index, Socket(self.sockets));
        }
        for node in 0..3 {
            let Some(index) = self.link(node) else { continue };
            let link = &mut self.core.links[index].link;
            let text = String::from_utf8(link.unsent().to_vec()).unwrap();
            link.advance(text.len());
            self.nodes[node].received.extend(requests(&text));
        }
    }

    /// A server answers its oldest request.
    fn execute(&mut self, node: usize) {
        let Some(request) = self.nodes[node].received.pop_front() else { return };
        let refuses = self.random.below(100) < self.refusals;
        let reply = match request.split(' ').collect::<Vec<_>>()[..] {
            ["SET", _, value] if node > 0 && node == self.owner => {
                if refuses {
                    "-TRYAGAIN it".to_owned()
                } else {
                    self.executed(value)
                }
            }
            ["SET", _, _] if node > 0 => format!("-MOVED 15495 h:{}", self.owner),
            ["PING"] => "+PONG".to_owned(),
            _ => "+OK".to_owned(),
        };
        self.tell(format_args!("{node} answers {request} with {reply}"));
        self.nodes[node].replies.push_back(reply);
    }

    fn executed(&mut self, value: &str) -> String {
        let (client, nth) = value.split_once(':').unwrap();
        let nth: u32 = nth.parse().unwrap();
        let client = &mut self.clients[client.parse::<usize>().unwrap()];
        let before = std::mem::replace(&mut client.executed, nth);
        assert!(before < nth, "{value} behind {before}\n{}", self.story);
        "+OK".to_owned()
    }

    /// An answer arrives.
    fn deliver(&mut self, node: usize) {
        let (Some(reply), Some(index)) = (self.nodes[node].replies.pop_front(), self.link(node))
        else {
            return;
        };
        let heard = self
            .core
            .on_backend_bytes(self.core.links.key_at(index), format!("{reply}\r\n").as_bytes());
        assert!(heard.is_ok(), "{node} said {reply}: {heard:?}\n{}", self.story);
    }

    /// A connection is lost, and with it what its server has not answered.
    fn lose(&mut self, node: usize) {
        let Some(index) = self.link(node) else { return };
        if self.core.links[index].link.state() == LinkState::Ready {
            self.tell(format_args!("{node} is lost"));
            self.nodes[node] = Node::default();
            self.core.on_link_lost(self.core.links.key_at(index), BackendFault::Closed);
        }
    }

    /// The other server has all slots from now on. What it was sent when it had them
    /// before is answered first: of requests that meet them there nobody could keep the order.
    fn move_slots(&mut self) {
        let owner = 3 - self.owner;
        let is_idle = |index: usize| self.core.links[index].link.in_flight() == 0;
        if self.link(owner).is_none_or(is_idle) {
            self.owner = owner;
            self.tell(format_args!("{owner} has all slots"));
        }
    }

    /// A client of those that are here.
    fn someone(&mut self) -> usize {
        let here: Vec<usize> =
            (0..self.clients.len()).filter(|at| !self.clients[*at].has_left).collect();
        here[self.random.below(here.len() as u64) as usize]
    }

    /// A client leaves, and another comes to the same pool.
    fn leave(&mut self) {
        let at = self.someone();
        self.clients[at].has_left = true;
        self.tell(format_args!("client {at} leaves"));
        self.core.remove_session(self.clients[at].key, None);
        self.join(self.clients[at].pool);
    }

    /// A client sends one more request.
    fn ask(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.sent += 1;
        let (value, pool) = (format!("{at}:{}", client.sent), client.pool);
        let line = format!("SET a {value}\r\n");
        self.tell(format_args!("{value} is sent to pool {pool}"));
        self.core.on_client_bytes(self.clients[at].key, line.as_bytes());
    }

    fn step(&mut self) {
        let node = self.random.below(3) as usize;
        match self.random.below(100) {
            0..25 => {
                let at = self.someone();
                (0..=self.random.below(3)).for_each(|_| self.ask(at));
            }
            25..55 => self.execute(node),
            55..80 => self.deliver(node),
            80..92 => self.now += self.random.below(12),
            // Nobody could keep the order of requests that a server sends elsewhere late.
            92..95 if self.is_hasty => {}
            92..95 => self.move_slots(),
            95..98 => {
                self.learn();
                self.tell(format_args!("the worker knows"));
            }
            98 => self.lose(node),
            _ => self.leave(),
        }
        if self.random.below(3) > 0 {
            self.turn();
            self.check_connections();
        }
    }

    /// A client whose requests may go by other connections from now on has none that a server may still
    /// execute. Copies that a shadow pool takes may come in any order.
    fn check_connections(&mut self) {
        for at in 0..self.clients.len() {
            let client = &self.clients[at];
            let is_shadow = leading()
                .get(usize::from(client.pool).wrapping_sub(2))
                .is_some_and(|(name, _)| *name == "shadow");
            if client.has_left || is_shadow || !self.core.may_change_links(client.key) {
                continue;
            }
            let its = format!("SET a {at}:");
            for node in &self.nodes {
                let left = node.received.iter().find(|request| request.starts_with(&its));
                assert_eq!(left, None, "client {at} may leave\n{}", self.story);
            }
        }
    }

    /// Lets all come to an end.
    fn settle(&mut self) {
        self.refusals = 0;
        self.learn();
        for _ in 0..400 {
            for node in 0..3 {
                self.execute(node);
                self.deliver(node);
            }
            self.now += 5;
            self.turn();
        }
    }

    fn answers(&self, at: usize) -> u32 {
        let busy = self.core.session(self.clients[at].key).and_then(|it| it.busy.as_ref());
        let is_line = |bytes: &&[u8]| *bytes == b"\r\n";
        busy.map_or(0, |busy| busy.output.unsent().windows(2).filter(is_line).count() as u32)
    }
}

/// The words of each request.
fn requests(text: &str) -> Vec<String> {
    let mut lines = text.split_terminator("\r\n");
    let mut all = Vec::new();
    while let Some(head) = lines.next() {
        let count: usize = head.strip_prefix('*').unwrap().parse().unwrap();
        let words: Vec<&str> = (0..count).filter_map(|_| lines.nth(1)).collect();
        all.push(words.join(" "));
    }
    all
}

fn play(seed: u64, is_hasty: bool) {
    let mut world = World::new(seed, is_hasty);
    for _ in 0..400 {
        world.step();
    }
    world.settle();
    for at in (0..world.clients.len()).filter(|at| !world.clients[*at].has_left) {
        let (answers, client) = (world.answers(at), &world.clients[at]);
        let told = (answers, client.sent);
        assert_eq!(told.0, told.1, "client {at} of pool {}\n{}", client.pool, world.story);
        let session = world.core.session(client.key).unwrap();
        assert_eq!(session.sub_requests, 0, "of client {at}\n{}", world.story);
    }
    let routes = &world.core.plane.routes;
    let on_their_way = world.core.plane.pending.operations() + routes.sub_requests();
    assert_eq!((on_their_way, routes.held, routes.has_steps()), (0, 0, false), "seed {seed}");
    assert_eq!(routes.queues.len(), 0, "seed {seed}");
    let busy = |connection: &Connection| connection.link.in_flight() > 0;
    assert!(!world.core.links.iter().any(busy), "seed {seed}");
}

#[test]
fn what_one_client_sends_is_executed_in_its_order_and_all_comes_to_an_end() {
    (0..SEEDS).for_each(|seed| play(seed, false));
}

#[test]
fn who_may_change_connections_has_no_request_that_may_still_be_executed() {
    (0..SEEDS).for_each(|seed| play(seed, true));
}

#[test]
fn what_is_tried_again_is_not_given_up_because_of_what_waits_behind_it() {
    for (index, (name, _)) in leading().iter().enumerate() {
        let mut world = World::new(0, false);
        world.clients.clear();
        world.join(index as u16 + 2);
        world.ask(0);
        world.refusals = 100;
        for round in 0..4 {
            world.turn();
            world.execute(0);
            world.deliver(0);
            world.execute(1);
            world.deliver(1);
            world.turn();
            if round == 0 {
                world.ask(0);
            }
            world.now += 100;
        }
        world.refusals = 0;
        world.settle();
        assert_eq!(world.answers(0), 2, "{name}\n{}", world.story);
        let taken = |value: &str| format!("1 answers SET a {value} with +OK");
        let at = |value: &str| world.story.find(&taken(value));
        assert!(at("0:1").is_some() && at("0:1") < at("0:2"), "{name}\n{}", world.story);
    }
}
