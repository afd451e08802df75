//! What a scenario is: what its file says, checked, and not yet scaled to a machine.

use keyway_load::{Pattern, Protocol, Sizes};
use keyway_net::Address;

/// A benchmark: what is started, who is compared, and by which work.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The name it is run by.
    pub name: String,
    /// The same for people.
    pub title: String,
    /// Whose columns its table has: a published report's, or any other name.
    pub table: String,
    /// The system that ratios are to; the first that is there without one.
    pub baseline: Option<String>,
    /// The system that a digest compares with as well, where the baseline has no processor time of
    /// its own.
    pub peer: Option<String>,
    /// How long and how often, as a rule.
    pub usual: Timing,
    /// The same at the report's size.
    pub full: Timing,
    /// What readers should know.
    pub notes: Vec<String>,
    /// Servers that systems stand in front of.
    pub servers: Vec<Servers>,
    /// Who is compared.
    pub systems: Vec<System>,
    /// The work.
    pub items: Vec<Item>,
}

/// How long and how often is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Of each measurement.
    pub seconds: f64,
    /// Load before each, not counted.
    pub warm_up: f64,
    /// How often all systems take their turn.
    pub rounds: usize,
}

/// A number that may depend on the machine, and on whether the report's size is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scaled {
    /// As it is.
    pub usual: Option<u64>,
    /// For each core.
    pub per_core: Option<u64>,
    /// For each GiB of memory.
    pub per_gib: Option<u64>,
    /// At least.
    pub least: Option<u64>,
    /// At most.
    pub most: Option<u64>,
    /// At the report's size.
    pub full: Option<u64>,
}

impl From<u64> for Scaled {
    fn from(number: u64) -> Scaled {
        Scaled { usual: Some(number), ..Scaled::default() }
    }
}

/// Servers of one kind.
#[derive(Clone, Debug)]
pub struct Servers {
    /// What the file calls them.
    pub name: String,
    /// What they are.
    pub kind: ServerKind,
    /// How many, primaries only.
    pub count: Scaled,
    /// Replicas of each primary of a cluster.
    pub replicas: Scaled,
}

/// What servers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// redis-server, alone.
    Redis,
    /// redis-server, as one cluster.
    RedisCluster,
    /// memcached.
    Memcached,
}

impl ServerKind {
    /// All, by their names in files.
    pub const NAMES: [(&'static str, ServerKind); 3] = [
        ("redis", ServerKind::Redis),
        ("redis-cluster", ServerKind::RedisCluster),
        ("memcached", ServerKind::Memcached),
    ];
}

/// One of those that are compared.
#[derive(Clone, Debug)]
pub struct System {
    /// Its name in the table.
    pub name: String,
    /// What it is.
    pub kind: SystemKind,
    /// The protocol it is spoken to in.
    pub protocol: Protocol,
    /// How several of it share the work.
    pub share: Share,
    /// True if its processor time is the tested system's, or a backend's.
    pub is_backend: bool,
    /// How to get it.
    pub install: String,
}

/// Where a system comes from.
#[derive(Clone, Debug)]
pub enum SystemKind {
    /// It is started by a command.
    Command {
        /// Program and arguments, with places to fill in.
        words: Vec<String>,
        /// Files it reads, by name, with places to fill in.
        files: Vec<(String, String)>,
        /// What prints its version.
        version: Vec<String>,
        /// How many of it are started.
        instances: Scaled,
    },
    /// Somebody else has started it.
    Address(Vec<Address>),
    /// Servers of the scenario, without anything before them.
    Direct(String),
    /// A channel of the bus.
    Channel(keyway_bus_bench::Channel),
    /// This scenario cannot start it: a row that says how to have it measured.
    Unstarted,
}

/// How several instances of a system share the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// All at once, each with its part of the keys and of the connections.
    #[default]
    Keys,
    /// One after the other, each for its part of the time.
    Turns,
}

/// One work, or several that differ in a few numbers.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name, unique in the scenario.
    pub id: String,
    /// The same for people.
    pub title: String,
    /// Items of a group share a table.
    pub group: String,
    /// What is sent.
    pub work: Work,
    /// Threads of the load generator; a work for each.
    pub threads: Vec<Scaled>,
    /// Connections of each thread; a work for each.
    pub connections: Vec<Scaled>,
    /// Lengths of values; a work for each.
    pub sizes: Vec<Sizes>,
    /// Requests in flight on a connection.
    pub pipeline: u64,
    /// Keys.
    pub keys: Scaled,
    /// What keys begin with.
    pub key_prefix: String,
    /// Digits of a key's number.
    pub key_digits: u8,
    /// Which keys.
    pub pattern: Pattern,
    /// Seconds until values expire.
    pub expiry: Option<u64>,
    /// Calls of a connection.
    pub calls: Option<u64>,
    /// True if all keys are written before.
    pub is_filled: bool,
    /// Nodes of each system, for tables that say what one of them did.
    pub nodes: Option<u64>,
    /// Systems that cannot do it, each with the reason.
    pub leaves_out: Vec<(String, String)>,
}

/// What is sent.
#[derive(Clone, Debug)]
pub enum Work {
    /// Commands by name with their weights.
    Mix(String),
    /// One of redis-benchmark's tests.
    Suite(String),
    /// A command of any words.
    Template(String),
    /// Reads and writes; a work for each.
    ReadWrite(Vec<(u32, u32)>),
    /// Messages over a channel of the bus.
    Messages {
        /// Their lengths.
        sizes: keyway_bus_bench::Sizes,
        /// How many processes send.
        senders: usize,
    },
}
