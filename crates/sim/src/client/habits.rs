//! What kind of client one is.

use super::mute::Mute;
use crate::network::Nanos;

/// Which requests a client makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// All it knows.
    All,
    /// `GET` alone.
    Gets,
    /// `SET` alone.
    Sets,
    /// `MGET` alone.
    GetsMany,
    /// What memcached knows, in its words.
    Memcached,
    /// Mostly `SET`, of large values.
    Hoard,
}

/// Which reads may be of what a replica has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staleness {
    /// None.
    Never,
    /// Those before the first write of a connection.
    UntilWrite,
    /// All.
    Always,
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Habits {
    /// The pool it talks to.
    pub pool: usize,
    /// The listener that leads there.
    pub listener: u16,
    /// Whether the pool is the embedded store.
    pub is_store: bool,
    /// Which requests it makes.
    pub mix: Mix,
    /// Requests of one connection.
    pub requests: u32,
    /// Connections it makes, one after the other.
    pub connections: u32,
    /// Most requests in flight.
    pub depth: usize,
    /// Most requests asked at once.
    pub batch: usize,
    /// Longest pause between two looks at the world.
    pub pause: Nanos,
    /// Most bytes it reads at once.
    pub read_len: usize,
    /// Most bytes it writes at once.
    pub write_len: usize,
    /// Largest ordinary value.
    pub value_len: usize,
    /// Largest value at all, now and then.
    pub large_len: usize,
    /// Keys per database.
    pub keys: usize,
    /// Whether its keys have a hash tag in common.
    pub tagged: bool,
    /// Databases it may select.
    pub databases: u32,
    /// Password it gives first.
    pub password: Option<String>,
    /// How often, in percent, a connection is cut off in the middle.
    pub cut_percent: u64,
    /// Whether it uses the commands Keyway answers itself.
    pub local_commands: bool,
    /// Whether it may be handed from one worker to another.
    pub may_move: bool,
    /// Whether clients close each other's connections.
    pub may_be_killed: bool,
    /// Whether it sometimes asks not to be answered.
    pub silences: bool,
    /// Whether it runs transactions and waits in commands that block.
    pub stateful: bool,
    /// Whether it publishes and subscribes.
    pub channels: bool,
    /// Whether it changes the protocol, and begins anew.
    pub greets: bool,
    /// Whether it caches values and is told when they change.
    pub tracks: bool,
    /// Whether it pushes to lists and waits for elements.
    pub lists: bool,
    /// What replicas may answer.
    pub staleness: Staleness,
    /// Bytes of commands that one transaction may hold.
    pub transaction_len_max: usize,
    /// Whether its replies are large enough for it to be ended for want of memory when it takes
    /// nothing of them.
    pub may_be_ended: bool,
    /// Within what time it has each reply.
    pub prompt: Option<Nanos>,
    /// It does not read, or stops in the middle of what it sends.
    pub mute: Option<Mute>,
    /// It publishes large messages.
    pub is_loud: bool,
    /// It fills a store.
    pub hoard: Option<Hoard>,
}

/// How a client fills a store.
#[derive(Clone, Copy, Debug)]
pub struct Hoard {
    /// Half of its keys have an expiry.
    pub expires: bool,
}

impl Habits {
    /// Whether it comes once and leaves with all replies.
    pub fn stays(&self) -> bool {
        self.connections == 1 && self.cut_percent == 0 && !self.may_be_killed
    }

    /// Whether its requests may go another way than the ones before: what may
    /// still be executed then is in no order with them.
    pub(super) fn changes_links(&self) -> bool {
        self.may_move || self.greets
    }
}
