//! The log of an embedded store: every write on disk, and the store loaded from it again.
//!
//! ```text
//!  Store ── effects ──► Log (a thread) ──► DIR/log.8, log.9 …     records of whole units
//!        ── snapshot ─► a second thread ─► DIR/base.7.rdb         what was there before them
//!                                          DIR/manifest           which files count
//! ```
//! A *base* is a snapshot at a cut of the effects, so that the records from the cut's offset on
//! fit it exactly. *Compaction* is a new base: the files before its cut are removed. The
//! manifest names the base and the *segments* in their order. It is replaced by a rename, and a
//! file that it does not name does not count.
//!
//! Read first: [`Log`], `record.rs` (the format), `segment.rs` (what is a torn tail, and what is
//! damage) and `engine.rs` (the thread).
//!
//! Architecture invariants: with [`Fsync::Always`] a worker is let go only when what it has told is
//! on the disk. Nothing in a file is trusted before its checksum was seen. Every buffer has a
//! bound: a unit is as long as the store's effects allow, all else is counted in kilobytes.
//! Without it nothing that is written waits for the disk, but where files change.

#![forbid(unsafe_code)]

mod base;
mod directory;
mod disk;
mod engine;
mod fault;
mod gate;
mod load;
mod log;
mod manifest;
mod record;
mod retries;
mod segment;
mod settings;
mod syncer;
mod syncing;
mod writer;

pub use fault::LogFault;
pub use keyway_store::{Compaction, LogState, LogStatus};
pub use log::Log;
pub use segment::{Cut, read_segment};
pub use settings::{Fsync, Functions, Notice, Settings};
