//! A real Redis Cluster.

mod make;
mod moving;
mod tables;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::apart::Apart;
use crate::client::Client;
use crate::process::Process;
use crate::redis::RedisServer;
use crate::replicated::{try_client, try_words};
use crate::value::Value;
use crate::watchdog::{try_until, wait_seldom_until};

pub use moving::SlotMove;
pub use tables::{CLUSTER_SLOTS, cluster_slot};
use tables::{Line, lines};

/// Far above a fail-over, which takes about three times the time after which
/// a node counts as failed.
const SETTLED_WITHIN: Duration = Duration::from_secs(40);

/// A replica gives up a fail-over by hand after five seconds.
const FAILOVER_GIVEN_UP_AFTER: Duration = Duration::from_millis(5500);

/// A redis-server 7 or later of each node, on free loopback ports, without
/// persistence. All processes end with the value.
///
/// Nodes are known by their index: primaries first, then the replicas of the
/// first, of the second and so on; those that are added come after. A node
/// that restarts keeps its identity, its slots and its primary, not its data.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Node>,
    arguments: Vec<String>,
    /// Where nodes listen.
    host: IpAddr,
    password: Option<String>,
    /// When a slot was last given to another node, by the clock of the day.
    moved_at_ms: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Node {
    server: RedisServer,
    bus_port: u16,
    id: String,
    status: ClusterStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClusterStatus {
    Running,
    Paused,
    Dead,
    /// Its process may run, outside the cluster.
    Forgotten,
}

/// How a replica takes over, as CLUSTER FAILOVER has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failover {
    /// Agreed with its primary, which waits for it: no write is lost.
    Agreed,
    /// Without its primary, by a vote of the others.
    Force,
    /// Without asking anybody.
    Takeover,
}

impl RedisCluster {
    /// As many nodes, still with `replicas_each` for each primary; the slots are
    /// shared evenly. Returns when all agree that the cluster is whole and the
    /// replicas are linked.
    ///
    /// # Panics
    /// When redis-server is missing or the cluster does not come up.
    pub fn start(primaries: usize, replicas_each: usize) -> RedisCluster {
        RedisCluster::start_with(primaries, replicas_each, &[], None)
    }

    /// The same with more arguments for every node, such as
    /// `["--cluster-node-timeout", "3000"]`, and with a password for clients
    /// and replicas.
    pub fn start_with(
        primaries: usize,
        replicas_each: usize,
        arguments: &[&str],
        password: Option<&str>,
    ) -> RedisCluster {
        make::start(primaries, replicas_each, arguments, password, None)
    }

    /// The same with the first node in a network apart.
    pub fn start_apart(
        primaries: usize,
        replicas_each: usize,
        arguments: &[&str],
        apart: &Apart,
    ) -> RedisCluster {
        let open = [arguments, &["--protected-mode", "no"]].concat();
        make::start(primaries, replicas_each, &open, None, Some(apart))
    }

    /// How many nodes there are, those that are dead or forgotten too.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Where the nodes listen, those that are dead or forgotten too.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.server.address()).collect()
    }

    /// Where a node listens.
    pub fn address(&self, node: usize) -> SocketAddr {
        self.nodes[node].server.address()
    }

    /// The node that listens at `address`.
    pub fn node_at(&self, address: SocketAddr) -> Option<usize> {
        self.nodes.iter().position(|node| node.server.address() == address)
    }

    /// A node's identity, 40 hex digits.
    pub fn id(&self, node: usize) -> &str {
        &self.nodes[node].id
    }

    /// A node's process.
    pub fn process(&self, node: usize) -> &Process {
        self.nodes[node].server.process()
    }

    /// A connection to a node, past everything in between; with the password
    /// said where there is one.
    pub fn client(&self, node: usize) -> Client {
        self.try_client(node).unwrap_or_else(|| panic!("node {node} takes no connection"))
    }

    /// What a node answers to a command.
    pub fn ask(&self, node: usize, words: &str) -> Value {
        self.client(node).words(words)
    }

    /// The primary that owns `slot` by its own account: the one of the latest
    /// epoch, where a node that was cut off still believes to be another.
    /// None while nobody does.
    pub fn primary_of_slot(&self, slot: u16) -> Option<usize> {
        let own = self.own_lines();
        let owners = own.iter().filter(|(_, line)| line.is_primary && line.owns(slot));
        owners.max_by_key(|(_, line)| line.epoch).map(|(node, _)| *node)
    }

    /// The nodes in use that call themselves primaries.
    pub fn primaries(&self) -> Vec<usize> {
        let own = self.own_lines();
        own.into_iter().filter(|(_, line)| line.is_primary).map(|(node, _)| node).collect()
    }

    /// The nodes in use that call themselves replicas of `primary`.
    pub fn replicas_of(&self, primary: usize) -> Vec<usize> {
        let id = self.id(primary);
        let own = self.own_lines();
        own.into_iter().filter(|(_, line)| line.primary == id).map(|(node, _)| node).collect()
    }

    /// The slots that a node owns by its own account, as first and last.
    pub fn slots_of(&self, node: usize) -> Vec<(u16, u16)> {
        self.own_line(node).map(|line| line.slots).unwrap_or_default()
    }

    /// kill -9. [`RedisCluster::restart`] brings it back.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].server.kill();
        self.nodes[node].status = ClusterStatus::Dead;
    }

    /// Starts a node again, on its ports and with its identity, empty. Returns
    /// when it answers: the others may not know of it yet.
    pub fn restart(&mut self, node: usize) {
        self.nodes[node].server.restart();
        self.nodes[node].status = ClusterStatus::Running;
    }

    /// SIGSTOP: it keeps its sockets and answers nothing.
    pub fn pause(&mut self, node: usize) {
        self.nodes[node].server.process().pause();
        self.nodes[node].status = ClusterStatus::Paused;
    }

    /// SIGCONT, after [`RedisCluster::pause`].
    pub fn resume(&mut self, node: usize) {
        self.nodes[node].server.process().resume();
        self.nodes[node].status = ClusterStatus::Running;
    }

    /// Makes `replica` the primary of its shard, agreed with the one there is,
    /// and waits until it is.
    pub fn failover(&self, replica: usize) {
        self.failover_by(replica, Failover::Agreed);
    }

    /// The same in one of three ways. It is asked for again where nothing comes
    /// of it: primaries do not vote twice on a shard within two node timeouts.
    ///
    /// # Panics
    /// When it is refused or does not come about.
    pub fn failover_by(&self, replica: usize, how: Failover) {
        let words = match how {
            Failover::Agreed => "CLUSTER FAILOVER",
            Failover::Force => "CLUSTER FAILOVER FORCE",
            Failover::Takeover => "CLUSTER FAILOVER TAKEOVER",
        };
        let end = Instant::now() + SETTLED_WITHIN;
        while Instant::now() < end {
            let reply = self.ask(replica, words).error_text();
            // It has become one since it was last looked at.
            assert!(reply.is_empty() || reply.contains("to a replica"), "{words}: {reply}");
            if try_until(FAILOVER_GIVEN_UP_AFTER, || self.is_primary(replica)) {
                return;
            }
        }
        panic!("node {replica} does not become a primary by {words}");
    }

    /// Waits until `node` calls itself a primary with slots.
    pub fn wait_primary(&self, node: usize) {
        wait_seldom_until(&format!("node {node} is a primary"), SETTLED_WITHIN, || {
            self.is_primary(node)
        });
    }

    /// Waits until every node in use says that the cluster is whole, all tell
    /// the same owners, and their replicas are linked.
    pub fn wait_settled(&self) {
        wait_seldom_until("the nodes agree that the cluster is whole", SETTLED_WITHIN, || {
            let nodes: Vec<usize> = self.in_use().collect();
            let Some((&first, rest)) = nodes.split_first() else { return false };
            let Some(owners) = self.owners_seen_by(first) else { return false };
            nodes.iter().all(|&node| self.is_well(node))
                && rest.iter().all(|&node| self.owners_seen_by(node).as_ref() == Some(&owners))
        });
    }

    /// Moves slots and their keys from one primary to another, as `redis-cli
    /// --cluster reshard` does: one by one, while clients use them. Waits first
    /// until the nodes have heard of the last move, half a second at most.
    pub fn move_slots(&self, from: usize, to: usize, slots: impl IntoIterator<Item = u16>) {
        let mut moves = self.mover(from, to);
        for slot in slots {
            moves.begin(slot);
            while moves.move_keys(100) > 0 {}
            moves.finish();
        }
    }

    /// Puts a slot on its way and leaves it there: `from` answers ASK for keys
    /// that it has not. The move goes on by the returned value.
    pub fn begin_move(&self, from: usize, to: usize, slot: u16) -> SlotMove {
        let mut moves = self.mover(from, to);
        moves.begin(slot);
        moves
    }

    /// Starts a node, makes it part of the cluster as a primary without slots,
    /// and returns its index once all know it.
    pub fn add_node(&mut self) -> usize {
        let node = make::add_node(self);
        self.wait_known(node);
        node
    }

    /// The same as a replica of `primary`; once it is linked.
    pub fn add_replica(&mut self, primary: usize) -> usize {
        let node = self.add_node();
        make::replicate(self, node, primary);
        wait_seldom_until("the new replica is linked", SETTLED_WITHIN, || self.is_well(node));
        node
    }

    /// Takes a node out of the cluster: all others forget it, and it them. It
    /// must own no slots, or be dead. Its process, if any, still runs.
    pub fn forget(&mut self, node: usize) {
        let id = self.id(node).to_owned();
        let was_running = self.nodes[node].status == ClusterStatus::Running;
        self.nodes[node].status = ClusterStatus::Forgotten;
        // One that has forgotten hears of it again from one that has not: they
        // do not listen for a minute.
        for other in self.in_use() {
            let reply = self.ask(other, &format!("CLUSTER FORGET {id}"));
            let is_known = !reply.error_text().starts_with("ERR Unknown node");
            assert!(reply == Value::simple("OK") || !is_known, "node {other}: {reply:?}");
        }
        if was_running {
            assert_eq!(self.ask(node, "CLUSTER RESET SOFT"), Value::simple("OK"));
        }
    }

    /// Indices of the nodes that run and are of the cluster.
    fn in_use(&self) -> impl Iterator<Item = usize> {
        let is_in_use = |node: &Node| node.status == ClusterStatus::Running;
        self.nodes.iter().enumerate().filter(move |(_, node)| is_in_use(node)).map(|(at, _)| at)
    }

    fn try_client(&self, node: usize) -> Option<Client> {
        try_client(self.address(node), self.password.as_deref())
    }

    /// The text that a node answers, none where it does not.
    fn try_text(&self, node: usize, words: &str) -> Option<String> {
        match try_words(self.address(node), self.password.as_deref(), words)? {
            Value::Bulk(text) => Some(String::from_utf8_lossy(&text).into_owned()),
            _ => None,
        }
    }

    /// What a node says of all nodes.
    fn lines_of(&self, node: usize) -> Option<Vec<Line>> {
        self.try_text(node, "CLUSTER NODES").map(|text| lines(&text))
    }

    /// What a node says of itself.
    fn own_line(&self, node: usize) -> Option<Line> {
        self.lines_of(node)?.into_iter().find(|line| line.is_myself)
    }

    fn own_lines(&self) -> Vec<(usize, Line)> {
        self.in_use().filter_map(|node| Some((node, self.own_line(node)?))).collect()
    }

    /// Whether a node calls itself a primary with slots.
    fn is_primary(&self, node: usize) -> bool {
        self.own_line(node).is_some_and(|line| line.is_primary && !line.slots.is_empty())
    }

    /// Whether a node says that the cluster is whole, and is linked where it
    /// is a replica.
    fn is_well(&self, node: usize) -> bool {
        let has = |words, line| self.try_text(node, words).is_some_and(|text| text.contains(line));
        has("CLUSTER INFO", "cluster_state:ok")
            && (has("INFO replication", "role:master")
                || has("INFO replication", "master_link_status:up"))
    }

    /// Slots with the identities of their owners; none while one has no owner.
    fn owners_seen_by(&self, node: usize) -> Option<Vec<((u16, u16), String)>> {
        let mut owners: Vec<_> = self
            .lines_of(node)?
            .into_iter()
            .flat_map(|line| line.slots.into_iter().map(move |range| (range, line.id.clone())))
            .collect();
        owners.sort();
        let count: usize =
            owners.iter().map(|((first, last), _)| usize::from(last - first) + 1).sum();
        (count == usize::from(CLUSTER_SLOTS)).then_some(owners)
    }

    /// Waits until all nodes in use know `node` and it knows them.
    fn wait_known(&self, node: usize) {
        let ids: Vec<&str> = self.in_use().map(|node| self.id(node)).collect();
        wait_seldom_until("all nodes know the new one", SETTLED_WITHIN, || {
            self.in_use().all(|other| {
                let Some(lines) = self.lines_of(other) else { return false };
                let knows = |id: &str| lines.iter().any(|line| line.id == id && line.is_linked);
                knows(self.id(node)) && (other != node || ids.iter().all(|id| knows(id)))
            })
        });
    }

    /// Waits until every node in use has heard from every other since the last
    /// slot was moved, and all tell the same epochs and owners, twice in a row.
    ///
    /// What a node says of its slots may be under way while they are moved, and
    /// is believed when it arrives where the same slot has gone to and fro
    /// meanwhile. And a node that takes a slot gives itself the latest epoch it
    /// knows of and one: one that has not heard of another's would lose the slot.
    fn wait_heard(&self) {
        let since = self.moved_at_ms.load(Ordering::Relaxed);
        let mut told_before = BTreeSet::new();
        wait_seldom_until("the nodes have heard from each other", SETTLED_WITHIN, || {
            let ids: Vec<&str> = self.in_use().map(|node| self.id(node)).collect();
            let mut told = BTreeSet::new();
            for node in self.in_use() {
                let Some(lines) = self.lines_of(node) else { return false };
                let others = lines.iter().filter(|line| ids.contains(&&line.id[..]));
                if !others.clone().all(|line| line.is_myself || line.pong_ms > since) {
                    return false;
                }
                let of_line = |line: &Line| (line.id.clone(), line.epoch, line.slots.clone());
                told.insert(others.map(of_line).collect::<BTreeSet<_>>());
            }
            let is_same = told.len() == 1 && told == told_before;
            told_before = told;
            is_same
        });
    }

    fn mover(&self, from: usize, to: usize) -> SlotMove {
        self.wait_heard();
        let others = self.primaries().into_iter().filter(|&node| node != from && node != to);
        SlotMove::new(
            (self.client(from), self.id(from).to_owned()),
            (self.client(to), self.id(to).to_owned(), self.address(to)),
            others.map(|node| self.client(node)).collect(),
            self.password.clone(),
            Arc::clone(&self.moved_at_ms),
        )
    }
}
