use std::time::Duration;

use crate::{
    Endpoint, Hash, HashTag, ReadPolicy, Ring, Server, ServerGroup, ServerSet, SlotOwners,
};

/// Settings of a pool that finds its servers while it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Servers to ask first, and again when no other answers.
    pub seeds: Vec<Endpoint>,
    /// Most servers at once. [`ServerSet::servers`] has a position for each.
    pub nodes_max: u16,
    /// Age at which a view is asked for again.
    pub refresh: Duration,
    /// How many times one request is sent to another server before its client gets the error.
    pub redirections_max: u8,
    /// Most requests that may be sent again, for each hundred requests of clients. `None`: any
    /// number.
    pub retry_percent: Option<u8>,
    /// Longest wait of an unsent request for a primary that is gone. `None`: it
    /// fails at once.
    pub wait_for_primary: Option<Duration>,
    /// Reads from replicas.
    pub reads: ReadPolicy,
}

/// A Redis Cluster, whose keys have slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterPool {
    /// Positions for its servers, and how Keyway connects to them.
    pub servers: ServerSet,
    /// The command that asks for the owners of slots.
    pub query: SlotQuery,
    /// How its servers are found.
    pub discovery: Discovery,
}

/// The command that asks a server of a cluster who owns which slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotQuery {
    /// `CLUSTER SLOTS`, which every version has.
    #[default]
    Slots,
    /// `CLUSTER SHARDS`, of Redis 7 and later. It tells the health of replicas.
    Shards,
    /// `CLUSTER NODES`. It tells epochs, by which an old view is recognised.
    Nodes,
}

/// One primary with its replicas, or several such groups that share the keys by hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicatedPool {
    /// Positions for its servers, how keys are placed on the primaries, and how Keyway
    /// connects to them.
    pub servers: ServerSet,
    /// The source that tells which servers are primaries.
    pub source: PrimarySource,
    /// How its servers are found.
    pub discovery: Discovery,
    /// How the control plane decides the primary. `None`: servers or sentinels tell it.
    pub failover: Option<FailoverPolicy>,
}

/// How the control plane decides the primary of listed servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverPolicy {
    /// Time without an answer after which a server is down for an observer.
    pub down_after: Duration,
    /// Observers for which a primary must be down. `None`: the majority of all.
    pub quorum: Option<u32>,
}

/// The source that tells which servers are primaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrimarySource {
    /// `INFO replication` of every server listed. One of them is the primary.
    Servers,
    /// Sentinels.
    Sentinels {
        /// The name of the pool of the sentinels.
        pool: String,
        /// Names of the primaries that keys are placed on, as Sentinel calls them.
        primaries: Vec<String>,
    },
    /// `INFO replication` of every server of these groups. Each has one primary.
    Groups(Vec<ServerGroup>),
}

impl PrimarySource {
    /// Names of the primaries that keys are placed on, 1 or more.
    pub fn primaries(&self) -> Vec<String> {
        match self {
            PrimarySource::Servers => vec!["primary".to_owned()],
            PrimarySource::Sentinels { primaries, .. } => primaries.clone(),
            PrimarySource::Groups(groups) => {
                groups.iter().map(|group| group.name.clone()).collect()
            }
        }
    }
}

impl ClusterPool {
    /// Returns a cluster with default options.
    pub fn new(query: SlotQuery, discovery: Discovery) -> ClusterPool {
        let mut servers = discovery.positions();
        servers.hash = Hash::Crc16Xmodem;
        servers.hash_tag = Some(HashTag::BRACES);
        ClusterPool { servers, query, discovery }
    }
}

impl ReplicatedPool {
    /// Primaries with replicas, with twemproxy's placement and default options.
    pub fn new(source: PrimarySource, discovery: Discovery) -> ReplicatedPool {
        ReplicatedPool { servers: discovery.positions(), source, discovery, failover: None }
    }

    /// Returns the ring over the names of the primaries.
    pub fn ring_of_primaries(&self) -> Ring {
        let named = |name: String| {
            let endpoint = Endpoint::Tcp { host: name.clone(), port: 1 };
            Server { endpoint, name: Some(name), weight: 1 }
        };
        let primaries: Vec<Server> = self.source.primaries().into_iter().map(named).collect();
        Ring::build(self.servers.distribution, self.servers.hash, &primaries, |_| true)
    }
}

impl Discovery {
    /// Creates a discovery from these seeds, with every other setting at its default.
    pub fn new(seeds: Vec<Endpoint>, nodes_max: u16) -> Discovery {
        Discovery {
            seeds,
            nodes_max,
            refresh: Duration::from_secs(10),
            redirections_max: 5,
            retry_percent: None,
            wait_for_primary: None,
            reads: ReadPolicy::default(),
        }
    }

    /// Returns a position for each server that may be found. A [`ClusterMap`](crate::ClusterMap)
    /// tells which of them are taken.
    pub(crate) fn positions(&self) -> ServerSet {
        // Seeds that have other names than the servers take no room from them. There are two
        // positions at least, because a pool of one server hashes no keys.
        let count = (usize::from(self.nodes_max) + self.seeds.len()).max(2);
        let count = count.min(usize::from(SlotOwners::NONE));
        let position = |number: usize| Server {
            endpoint: Endpoint::Tcp { host: "cluster.invalid".to_owned(), port: 1 },
            name: Some(format!("index-{number}")),
            weight: 1,
        };
        ServerSet::new((0..count).map(position).collect())
    }
}
