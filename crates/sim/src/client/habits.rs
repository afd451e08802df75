//! The habits of a client.

use super::mute::Mute;
use crate::network::Nanos;

/// The requests that a client makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// All that the client knows.
    All,
    /// Only `GET`.
    Gets,
    /// Only `SET`.
    Sets,
    /// Only `MGET`.
    GetsMany,
    /// The commands that memcached supports, in its protocol.
    Memcached,
    /// Mostly `SET`, of large values.
    Hoard,
}

/// The reads that a replica may answer with stale values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staleness {
    /// None.
    Never,
    /// The reads before the first write of a connection.
    UntilWrite,
    /// All reads.
    Always,
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Habits {
    /// The pool that it uses.
    pub pool: usize,
    /// The listener of that pool.
    pub listener: u16,
    /// True if the pool is the embedded store.
    pub is_store: bool,
    /// The requests that it makes.
    pub mix: Mix,
    /// Number of requests on one connection.
    pub requests: u32,
    /// Number of connections, one after the other.
    pub connections: u32,
    /// Largest number of requests in flight.
    pub depth: usize,
    /// Largest number of requests that are asked at once.
    pub batch: usize,
    /// Longest pause between two steps.
    pub pause: Nanos,
    /// Largest number of bytes that it reads at once.
    pub read_len: usize,
    /// Largest number of bytes that it writes at once.
    pub write_len: usize,
    /// Length of the largest ordinary value.
    pub value_len: usize,
    /// Length of the largest value of all, which is rare.
    pub large_len: usize,
    /// Number of keys in each database.
    pub keys: usize,
    /// True if its keys share a hash tag.
    pub tagged: bool,
    /// Number of databases that it may select.
    pub databases: u32,
    /// The password that it sends first.
    pub password: Option<String>,
    /// How often a connection is cut off in the middle, in percent.
    pub cut_percent: u64,
    /// True if it uses the commands that Keyway answers itself.
    pub local_commands: bool,
    /// True if it may be handed over from one worker to another.
    pub may_move: bool,
    /// True if clients close each other's connections.
    pub may_be_killed: bool,
    /// True if it sometimes asks for no replies.
    pub silences: bool,
    /// True if it uses transactions and blocking commands.
    pub stateful: bool,
    /// True if it publishes and subscribes.
    pub channels: bool,
    /// True if it changes the protocol and resets its connection.
    pub greets: bool,
    /// True if it caches values and is notified when they change.
    pub tracks: bool,
    /// True if it pushes to lists and waits for elements.
    pub lists: bool,
    /// The reads that replicas may answer.
    pub staleness: Staleness,
    /// Largest number of bytes of the commands of one transaction.
    pub transaction_len_max: usize,
    /// True if its replies are so large that the worker may end it to free memory when it takes
    /// none of them.
    pub may_be_ended: bool,
    /// The time within which it gets each reply.
    pub prompt: Option<Nanos>,
    /// Set for a client that does not read, or stops in the middle of a request.
    pub mute: Option<Mute>,
    /// True if it publishes large messages.
    pub is_loud: bool,
    /// Set for a client that fills a store.
    pub hoard: Option<Hoard>,
}

/// How a client fills a store.
#[derive(Clone, Copy, Debug)]
pub struct Hoard {
    /// True if half of its keys have an expiry.
    pub expires: bool,
}

impl Habits {
    /// Returns whether it connects once and leaves with all replies.
    pub fn stays(&self) -> bool {
        self.connections == 1 && self.cut_percent == 0 && !self.may_be_killed
    }

    /// Returns whether its requests may take another path than the requests before. Then requests
    /// that may still be executed have no order with them.
    pub(super) fn changes_links(&self) -> bool {
        self.may_move || self.greets
    }
}
