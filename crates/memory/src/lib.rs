//! The memory of the embedded store, for items, tables and the nodes of collections.
//!
//! ```text
//!  Heap ── arenas of slots in pages (heap/)        up to 7 KiB, in size classes
//!   │      runs (runs.rs)                          up to 128 KiB, in regions
//!   │      the global allocator                    longer blocks
//!   ├── Region (mapping.rs): memory from the system
//!   └── Discarded (discarded.rs): what is freed in steps
//!  Nodes, Node, NodeBox (nodes.rs): vectors and boxes in one heap of the process
//!  Lines, Deque: structures that grow without being moved as a whole
//!  Lock: the one-word lock of arenas and shards
//! ```
//! The crate knows nothing of keys, values or commands. It has no thread and no clock. Read
//! first: [`Heap`], [`nodes`] and [`Lock`].
//!
//! Architecture invariant: [`Heap::page_bytes`], [`Heap::idle_bytes`] and the lengths that
//! allocating functions return account for every byte that the heap takes from the system.

pub mod nodes;

mod deque;
mod discarded;
mod heap;
mod lines;
mod lock;
mod malloc;
mod mapping;
mod runs;

pub use deque::Deque;
pub use discarded::{Discard, steps_of_block};
pub use heap::{
    Heap, Memory, SLOT_LEN_MAX, block_len, is_lent, is_mapped, large_bytes, large_capacity, lend,
    slot_capacity,
};
pub use lines::Lines;
pub use lock::{Guard, Holder, Lock, pause};
pub use malloc::{allocated, give_back_freed_memory};
