//! RDB, Redis's own format of values and snapshots, and the stream of commands for replicas,
//! without I/O.
//!
//! ```text
//!  bytes ──► Reader ──► Event: key, part of its value, … ──► Writer ──► bytes
//!                         ▲
//!  DUMP's payload ──► ValueReader
//! ```
//! The crate never does I/O and never reads a clock. No input makes it panic, and no announced
//! length makes it reserve memory before the bytes have arrived. It never holds a whole collection:
//! the longest piece in memory is a string or a block, bounded by [`ReadLimits`]. A damaged file
//! results in a [`Fault`] with its offset. Read first: [`Event`], [`Reader`], [`Writer`] and the
//! module [`replication`].
//!
//! Sources of the format: `src/rdb.h`, `rdb.c` and `t_stream.c` of Redis 7.0 to 7.4 and of Valkey
//! 9.
#![forbid(unsafe_code)]

mod block;
mod crc64;
mod element;
mod event;
mod fault;
pub mod format;
pub mod integers;
pub mod kind;
pub mod listpack;
pub mod lzf;
pub mod payload;
pub mod pieces;
mod reader;
pub mod replication;
mod value;
mod version;
mod writer;
mod ziplist;
mod zipmap;

pub use crc64::{Crc64, checksum};
pub use event::{Event, History, Id, Key, Kind, Opened, Part, StreamBlock, Totals};
pub use fault::{Fault, Form, ModuleName, StreamPart, What};
pub use reader::{Feed, FeedError, Reader, Step};
pub use value::{ReadLimits, ValueReader};
pub use version::Version;
pub use writer::{ValueWriter, WriteFault, Writer};
