//! Conspicuous keys of a pool: the most requested ones, and those with the largest values. Both
//! lists are bounded, and cost almost nothing on a request's path: the first are estimated from one
//! request in many, and the second are checked only if something is large.

mod big;
mod hot;
mod name;
mod sketch;

pub use big::{BigKey, BigKeys, BigSight, Direction};
pub use hot::{Access, HotKey, HotKeys, Hottest};
pub use name::{KEY_LEN_MAX, shown_key};

/// The notes of all workers about the keys of one pool.
#[derive(Debug, Default)]
pub struct KeyStats {
    /// The most requested keys.
    pub hot: HotKeys,
    /// The keys with the largest values.
    pub big: BigKeys,
}

impl KeyStats {
    /// Returns its largest memory, with this number of workers.
    pub fn bytes_max(workers: usize) -> usize {
        HotKeys::bytes_max(workers) + BigKeys::BYTES_MAX
    }
}
