//! The cluster that clients see at a listener with an emulated cluster: every Keyway of a set is a
//! node, and the slots are divided among them in order.
//!
//! Any of them answers requests for any slot. So the owner of a slot only decides which node
//! clients use, and a client that uses another one is never redirected. Texts and shapes are those
//! of redis-server 7.0.

use super::{LocalContext, NOT_AN_INTEGER};
use keyway_command::{Args, Request, Verb};
use keyway_resp::{Protocol, parse_integer, reply};
use keyway_topology::{SLOT_COUNT, key_slot};
use sha1::{Digest as _, Sha1};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// The error for clients of Redis Cluster at a listener without an emulated cluster.
pub const DISABLED: &str = "ERR This instance has cluster support disabled; use a client without \
     cluster mode, or write cluster_mode = \"emulate\" in [[listener]]";
const NOT_BY_SLOT: &str = "ERR Keyway knows no keys by slot: the slots it tells of are no places \
     where keys are; ask the servers, or use SCAN";

/// Number of slots of a Redis Cluster.
const SLOTS: u16 = SLOT_COUNT as u16;

/// The text of CLUSTER HELP: what is answered here, in Redis's form.
const HELP: [&str; 33] = [
    "CLUSTER <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "COUNTKEYSINSLOT <slot>",
    "    Refused: Keyway knows no keys by slot.",
    "GETKEYSINSLOT <slot> <count>",
    "    Refused: Keyway knows no keys by slot.",
    "INFO",
    "    Return information about the cluster that Keyway poses as.",
    "KEYSLOT <key>",
    "    Return the hash slot for <key>.",
    "LINKS",
    "    Return an empty array: the nodes have no links among them.",
    "MYID",
    "    Return the node id.",
    "MYSHARDID",
    "    Return the id of the node's shard, in which it is alone.",
    "NODES",
    "    Return the Keyways that are its nodes. Output format:",
    "    <id> <ip:port> <flags> <master> <pings> <pongs> <epoch> <link> <slot> ...",
    "REPLICAS <node-id>",
    "    Return an empty array: no node has replicas.",
    "SHARDS",
    "    Return information about slot range mappings and the nodes associated with them.",
    "SLAVES <node-id>",
    "    As REPLICAS.",
    "SLOTS",
    "    Return information about slots range mappings. Each range is made of:",
    "    start, end, node's IP address, port and id",
    "READONLY, READWRITE and ASKING are answered with OK and change nothing: every node",
    "    answers for every slot.",
    "All other subcommands are about slots and nodes of a real cluster, and refused: run",
    "    them on its servers.",
    "HELP",
    "    Prints this help.",
];

/// The number that Redis adds to a port for the bus of its cluster. Keyway has no bus there.
const BUS_PORT: u16 = 10_000;

/// A set of Keyways that looks like a Redis Cluster to clients.
#[derive(Debug, Default)]
pub struct EmulatedCluster {
    /// All of them, in the order in which they divide the slots. Empty if this one is alone, at the
    /// address by which its clients reach it.
    nodes: Vec<Announced>,
    /// The index of this one, if a client's connection does not show it.
    own: usize,
}

/// One Keyway, as clients see it.
#[derive(Debug)]
struct Announced {
    host: String,
    port: u16,
    /// True if it was probed and did not answer.
    is_down: AtomicBool,
}

impl EmulatedCluster {
    /// Creates the cluster of the Keyways at these addresses. `own` is the index of this one, for
    /// clients that have reached it by none of the addresses.
    pub fn new(nodes: impl IntoIterator<Item = (String, u16)>, own: usize) -> Self {
        let announced = |(host, port)| Announced { host, port, is_down: AtomicBool::new(false) };
        EmulatedCluster { nodes: nodes.into_iter().map(announced).collect(), own }
    }

    /// Returns host and port of the Keyway with this index.
    pub fn address(&self, node_index: usize) -> Option<(&str, u16)> {
        self.nodes.get(node_index).map(|node| (node.host.as_str(), node.port))
    }

    /// Notes whether the Keyway with this index is down. While it is, the others have its slots.
    /// Returns whether that is a change.
    pub fn set_down(&self, node_index: usize, is_down: bool) -> bool {
        // Nothing else goes with it.
        let node = self.nodes.get(node_index);
        node.is_some_and(|node| node.is_down.swap(is_down, Ordering::Relaxed) != is_down)
    }

    /// Returns the cluster as a client sees it that has connected to `reached`.
    fn view(&self, reached: &str) -> View {
        let reached = reached.parse::<SocketAddr>().ok();
        if self.nodes.is_empty() {
            let (host, port) = reached.map_or_else(Default::default, |reached| {
                (reached.ip().to_canonical().to_string(), reached.port())
            });
            let alone = Node { id: id_of("", &host, port), host, port, is_down: false };
            return View { own: 0, shares: shares(&[false]), nodes: vec![alone] };
        }
        let nodes: Vec<Node> = self.nodes.iter().map(Announced::node).collect();
        let is_reached = |node: &Node| {
            reached.is_some_and(|reached| {
                node.port == reached.port()
                    && node.host.parse() == Ok::<IpAddr, _>(reached.ip().to_canonical())
            })
        };
        let own = nodes.iter().position(is_reached).unwrap_or(self.own);
        let mut nodes = nodes;
        // The node that answers is reachable.
        nodes[own].is_down = false;
        let down: Vec<bool> = nodes.iter().map(|node| node.is_down).collect();
        View { own, shares: shares(&down), nodes }
    }
}

impl Announced {
    fn node(&self) -> Node {
        Node {
            id: id_of("", &self.host, self.port),
            host: self.host.clone(),
            port: self.port,
            is_down: self.is_down.load(Ordering::Relaxed),
        }
    }
}

/// Returns 40 hexadecimal digits that are always the same for an address.
fn id_of(of: &str, host: &str, port: u16) -> String {
    let digest = Sha1::digest(format!("keyway {of}{host}:{port}"));
    digest.iter().fold(String::with_capacity(40), |mut id, byte| {
        let _ = write!(id, "{byte:02x}");
        id
    })
}

/// Returns the slots of each node, of which some are down: an equal part in order, and an equal
/// part of the slots of each node that is down.
fn shares(down: &[bool]) -> Vec<Vec<Range<u16>>> {
    let up: Vec<usize> = (0..down.len()).filter(|&node| !down[node]).collect();
    let mut shares = vec![Vec::<Range<u16>>::new(); down.len()];
    let mut give = |node: usize, part: Range<u16>| {
        if part.is_empty() {
            return;
        }
        match shares[node].last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ => shares[node].push(part),
        }
    };
    for (node, part) in parts(0..SLOTS, down.len()).enumerate() {
        match down[node] {
            false => give(node, part),
            true => parts(part, up.len()).zip(&up).for_each(|(part, &heir)| give(heir, part)),
        }
    }
    shares
}

/// Splits a range into `count` parts whose lengths differ by at most one slot.
fn parts(whole: Range<u16>, count: usize) -> impl Iterator<Item = Range<u16>> {
    let len = whole.len();
    let bound = move |nth: usize| whole.start + (len * nth / count) as u16;
    (0..count).map(move |nth| bound(nth)..bound(nth + 1))
}

struct Node {
    id: String,
    host: String,
    port: u16,
    is_down: bool,
}

impl Node {
    fn is_name(&self) -> bool {
        self.host.parse::<IpAddr>().is_err()
    }
}

/// The cluster at one time, for one client.
struct View {
    nodes: Vec<Node>,
    own: usize,
    /// The slots of each node.
    shares: Vec<Vec<Range<u16>>>,
}

/// Returns whether a command is one for Redis Cluster that is answered here.
pub fn is_about_cluster(verb: Verb) -> bool {
    matches!(
        verb,
        Verb::Asking
            | Verb::Readonly
            | Verb::Readwrite
            | Verb::ClusterCountkeysinslot
            | Verb::ClusterGetkeysinslot
            | Verb::ClusterHelp
            | Verb::ClusterInfo
            | Verb::ClusterKeyslot
            | Verb::ClusterLinks
            | Verb::ClusterMyid
            | Verb::ClusterMyshardid
            | Verb::ClusterNodes
            | Verb::ClusterReplicas
            | Verb::ClusterShards
            | Verb::ClusterSlaves
            | Verb::ClusterSlots
    )
}

/// Appends the reply to a command about the cluster.
pub(super) fn answer(request: &Request, context: &LocalContext, out: &mut Vec<u8>) {
    let Some(cluster) = context.cluster else { return reply::error(out, DISABLED) };
    let args = &request.args;
    let protocol = context.identity.protocol;
    let view = || {
        let reached = context.clients.get(context.identity.id).map(|entry| entry.laddr);
        cluster.view(&reached.unwrap_or_default())
    };
    match request.command.verb {
        Verb::ClusterKeyslot => reply::integer(out, i64::from(key_slot(&args[2]))),
        Verb::ClusterCountkeysinslot | Verb::ClusterGetkeysinslot => not_by_slot(args, out),
        Verb::ClusterHelp => {
            reply::array(out, HELP.len());
            HELP.iter().for_each(|line| reply::simple(out, line));
        }
        Verb::ClusterLinks => reply::array(out, 0),
        Verb::ClusterMyid => reply::bulk(out, view().own().id.as_bytes()),
        Verb::ClusterMyshardid => {
            let view = view();
            let Node { host, port, .. } = view.own();
            reply::bulk(out, id_of("shard ", host, *port).as_bytes());
        }
        Verb::ClusterInfo => protocol.text(out, view().info().as_bytes()),
        Verb::ClusterNodes => {
            protocol.text(out, view().lines(context.clock.unix_micros).as_bytes());
        }
        Verb::ClusterReplicas | Verb::ClusterSlaves => view().replicas(&args[2], out),
        Verb::ClusterSlots => view().slots(protocol, out),
        Verb::ClusterShards => view().shards(protocol, out),
        // READONLY, READWRITE and ASKING change nothing: every slot is served to all clients.
        _ => reply::simple(out, "OK"),
    }
}

/// Refuses a command about the keys of a slot, with Redis's error if the arguments are wrong.
fn not_by_slot(args: &Args, out: &mut Vec<u8>) {
    let numbers: Option<Vec<i64>> = args.from(2).map(parse_integer).collect();
    let text = match numbers.as_deref() {
        None => NOT_AN_INTEGER,
        Some([slot]) if !(0..i64::from(SLOTS)).contains(slot) => "ERR Invalid slot",
        Some([slot, count]) if !(0..i64::from(SLOTS)).contains(slot) || *count < 0 => {
            "ERR Invalid slot or number of keys"
        }
        Some(_) => NOT_BY_SLOT,
    };
    reply::error(out, text);
}

impl View {
    fn own(&self) -> &Node {
        &self.nodes[self.own]
    }

    /// Writes the reply to `CLUSTER SLOTS`: the ends of each range and the node that has it.
    fn slots(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let mut ranges: Vec<(&Range<u16>, &Node)> = Vec::new();
        for (node, share) in self.nodes.iter().zip(&self.shares) {
            ranges.extend(share.iter().map(|range| (range, node)));
        }
        ranges.sort_by_key(|(range, _)| range.start);
        reply::array(out, ranges.len());
        for (range, node) in ranges {
            reply::array(out, 3);
            reply::integer(out, i64::from(range.start));
            reply::integer(out, i64::from(range.end - 1));
            reply::array(out, 4);
            reply::bulk(out, node.host.as_bytes());
            reply::integer(out, i64::from(node.port));
            reply::bulk(out, node.id.as_bytes());
            protocol.map(out, 0);
        }
    }

    /// Writes the reply to `CLUSTER SHARDS`: each node is a shard of its own.
    fn shards(&self, protocol: Protocol, out: &mut Vec<u8>) {
        reply::array(out, self.nodes.len());
        for (node, share) in self.nodes.iter().zip(&self.shares) {
            protocol.map(out, 2);
            reply::bulk(out, b"slots");
            reply::array(out, share.len() * 2);
            for range in share {
                reply::integer(out, i64::from(range.start));
                reply::integer(out, i64::from(range.end - 1));
            }
            reply::bulk(out, b"nodes");
            reply::array(out, 1);
            node.write(protocol, out);
        }
    }

    /// Returns the text of `CLUSTER NODES`, with one line for each node.
    fn lines(&self, unix_micros: u64) -> String {
        let mut text = String::new();
        for (node_index, (node, share)) in self.nodes.iter().zip(&self.shares).enumerate() {
            let Node { id, host, port, is_down } = node;
            let bus = port.checked_add(BUS_PORT).unwrap_or(0);
            let _ = write!(text, "{id} {host}:{port}@{bus}");
            if node.is_name() {
                let _ = write!(text, ",{host}");
            }
            let flags = match (node_index == self.own, is_down) {
                (true, _) => "myself,master",
                (false, false) => "master",
                (false, true) => "master,fail",
            };
            let heard = unix_micros / 1000;
            let link = if *is_down { "disconnected" } else { "connected" };
            let _ = write!(text, " {flags} - 0 {heard} {} {link}", node_index + 1);
            for range in share {
                let _ = match range.len() {
                    1 => write!(text, " {}", range.start),
                    _ => write!(text, " {}-{}", range.start, range.end - 1),
                };
            }
            text.push('\n');
        }
        text
    }

    /// Returns the text of `CLUSTER INFO`.
    fn info(&self) -> String {
        let size = self.shares.iter().filter(|share| !share.is_empty()).count();
        let fields = [
            ("cluster_slots_assigned", SLOT_COUNT),
            ("cluster_slots_ok", SLOT_COUNT),
            ("cluster_slots_pfail", 0),
            ("cluster_slots_fail", 0),
            ("cluster_known_nodes", self.nodes.len()),
            ("cluster_size", size),
            ("cluster_current_epoch", self.nodes.len()),
            ("cluster_my_epoch", self.own + 1),
            ("cluster_stats_messages_sent", 0),
            ("cluster_stats_messages_received", 0),
            ("total_cluster_links_buffer_limit_exceeded", 0),
        ];
        let state = "cluster_state:ok\r\n".to_owned();
        fields.into_iter().fold(state, |mut text, (name, value)| {
            let _ = write!(text, "{name}:{value}\r\n");
            text
        })
    }

    /// Writes the reply to `CLUSTER REPLICAS id`, which is empty for an existing node.
    fn replicas(&self, id: &[u8], out: &mut Vec<u8>) {
        match self.nodes.iter().any(|node| node.id.as_bytes() == id) {
            true => reply::array(out, 0),
            false => {
                let text = format!("ERR Unknown node {}", String::from_utf8_lossy(id));
                reply::error(out, &text);
            }
        }
    }
}

impl Node {
    /// Writes the node as in CLUSTER SHARDS.
    fn write(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let is_name = self.is_name();
        protocol.map(out, 7 + usize::from(is_name));
        let mut words = |name: &str, value: &str| {
            reply::bulk(out, name.as_bytes());
            reply::bulk(out, value.as_bytes());
        };
        words("id", &self.id);
        reply::bulk(out, b"port");
        reply::integer(out, i64::from(self.port));
        let mut words = |name: &str, value: &str| {
            reply::bulk(out, name.as_bytes());
            reply::bulk(out, value.as_bytes());
        };
        words("ip", &self.host);
        words("endpoint", &self.host);
        if is_name {
            words("hostname", &self.host);
        }
        words("role", "master");
        reply::bulk(out, b"replication-offset");
        reply::integer(out, 0);
        reply::bulk(out, b"health");
        reply::bulk(out, if self.is_down { b"fail" } else { b"online" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::bench::Bench;
    use proptest::prelude::*;

    fn bench(nodes: &[(&str, u16)], own: usize) -> Bench {
        let nodes = nodes.iter().map(|(host, port)| ((*host).to_owned(), *port));
        let mut bench = Bench::new();
        bench.cluster = Some(EmulatedCluster::new(nodes, own));
        bench
    }

    #[test]
    fn without_it_there_is_no_cluster() {
        for line in ["CLUSTER SLOTS", "CLUSTER KEYSLOT a", "READONLY", "READWRITE", "ASKING"] {
            let text = Bench::new().ask(line);
            assert!(text.starts_with("-ERR This instance has cluster support disabled"), "{text}");
        }
    }

    #[test]
    fn whoever_is_alone_has_all_slots_at_the_address_that_is_used() {
        let mut bench = bench(&[], 0);
        let id = id_of("", "127.0.0.1", 6380);
        assert_eq!(id.len(), 40);
        assert_eq!(bench.ask("CLUSTER MYID"), format!("$40\r\n{id}\r\n"));
        let slots = format!(
            "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$9\r\n127.0.0.1\r\n:6380\r\n$40\r\n{id}\r\n*0\r\n"
        );
        assert_eq!(bench.ask("CLUSTER SLOTS"), slots);
        assert!(bench.ask("CLUSTER INFO").contains("cluster_state:ok\r\n"));
        assert_eq!(bench.ask("CLUSTER KEYSLOT 123456789"), ":12739\r\n");
        assert_eq!(bench.ask(&format!("CLUSTER REPLICAS {id}")), "*0\r\n");
        assert_eq!(bench.ask("CLUSTER REPLICAS x"), "-ERR Unknown node x\r\n");
        assert_eq!(bench.ask("CLUSTER COUNTKEYSINSLOT 16384"), "-ERR Invalid slot\r\n");
        assert!(bench.ask("CLUSTER COUNTKEYSINSLOT 7").starts_with("-ERR Keyway knows no keys"));
        for line in ["READONLY", "READWRITE", "ASKING"] {
            assert_eq!(bench.ask(line), "+OK\r\n");
        }
    }

    #[test]
    fn a_set_shares_the_slots_in_order_and_each_knows_itself() {
        let nodes = [("10.0.0.1", 6380), ("keyway.example", 7000), ("127.0.0.1", 6380)];
        let mut bench = bench(&nodes, 1);
        let text = bench.ask("CLUSTER NODES");
        let ids = nodes.map(|(host, port)| id_of("", host, port));
        let lines: Vec<&str> = text.lines().skip(1).filter(|line| !line.is_empty()).collect();
        assert_eq!(
            lines[0].split(' ').skip(1).collect::<Vec<_>>().join(" "),
            format!(
                "10.0.0.1:6380@16380 master - 0 {} 1 connected 0-5460",
                bench.clock.unix_micros / 1000
            )
        );
        assert!(lines[1].contains(" keyway.example:7000@17000,keyway.example master - "));
        assert!(lines[1].ends_with(" connected 5461-10921"), "{text}");
        // This is the address to which the client has connected.
        assert_eq!(
            lines[2],
            format!(
                "{} 127.0.0.1:6380@16380 myself,master - 0 1000000 3 connected 10922-16383",
                ids[2]
            )
        );
    }

    #[test]
    fn what_one_has_that_is_down_the_others_have() {
        let mut bench = bench(&[("10.0.0.1", 1), ("127.0.0.1", 6380), ("10.0.0.3", 3)], 1);
        let cluster = bench.cluster.as_ref().expect("set");
        assert!(cluster.set_down(0, true) && !cluster.set_down(0, true));
        let text = bench.ask("CLUSTER NODES");
        assert!(text.contains(" 10.0.0.1:1@10001 master,fail - "), "{text}");
        assert!(text.contains(" 2 connected 0-2729 5461-10921\n"), "{text}");
        assert!(text.contains(" 3 connected 2730-5460 10922-16383\n"), "{text}");
        assert!(!bench.ask("CLUSTER SLOTS").contains("10.0.0.1"));
        bench.cluster.as_ref().expect("set").set_down(1, true);
        assert!(bench.ask("CLUSTER NODES").contains("myself,master - 0 1000000 2 connected"));
    }

    #[test]
    fn a_client_is_told_of_a_cluster_in_its_greeting() {
        let mut bench = bench(&[], 0);
        assert!(bench.ask("HELLO 3").contains("$4\r\nmode\r\n$7\r\ncluster\r\n"));
        assert!(bench.ask("CLUSTER INFO").starts_with("=")); // A text of its own kind.
        assert!(bench.ask("CLUSTER SHARDS").starts_with("*1\r\n%2\r\n$5\r\nslots\r\n*2\r\n:0\r\n"));
        assert!(bench.ask("CLUSTER SLOTS").ends_with("%0\r\n"));
    }

    proptest! {
        #[test]
        fn every_slot_has_one_node_that_is_up(down in proptest::collection::vec(any::<bool>(), 1..40)) {
            prop_assume!(down.contains(&false));
            let mut seen = vec![0_u8; SLOT_COUNT];
            for (node, share) in shares(&down).into_iter().enumerate() {
                prop_assert!(share.is_empty() || !down[node]);
                share.into_iter().flatten().for_each(|slot| seen[usize::from(slot)] += 1);
            }
            prop_assert!(seen.iter().all(|&count| count == 1));
        }
    }
}
