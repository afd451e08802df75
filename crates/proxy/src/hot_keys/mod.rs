//! Keys of a pool that stand out: those that are asked for most, and those with the largest
//! values. Both are bounded, and cost next to nothing on a request's path: the first are
//! estimated from one request in many, the second are looked at where something is large.

mod big;
mod hot;
mod name;
mod sketch;

pub use big::{BigKey, BigKeys, BigSight, Direction};
pub use hot::{Access, HotKey, HotKeys, Hottest};
pub use name::{KEY_LEN_MAX, shown_key};

/// What was noted of the keys of one pool, by all workers.
#[derive(Debug, Default)]
pub struct NotedKeys {
    /// Those that are asked for most.
    pub hot: HotKeys,
    /// Those with the largest values.
    pub big: BigKeys,
}

impl NotedKeys {
    /// What it may take of memory, with so many workers.
    pub fn bytes_max(workers: usize) -> usize {
        HotKeys::bytes_max(workers) + BigKeys::BYTES_MAX
    }
}
