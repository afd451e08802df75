//! Values in Redis's own form: what DUMP gives and RESTORE takes.
//!
//! Written is what Redis 7.0 writes with its default settings and
//! `rdbcompression no`, and of hashes whose fields expire what Redis 7.4 does;
//! read is every form that they read, but modules. `keyway_rdb` has
//! lengths, strings, blocks and the checksum, here are the types:
//!
//! ```text
//!  type            written as                 read as well
//!  string          string
//!  hash            listpack │ pairs           zipmap, ziplist
//!   whose fields   listpack │ triples         the same without the earliest time
//!   expire
//!  list            listpacks                  elements, ziplist, ziplists
//!  set             integers │ members         listpack (7.2)
//!  sorted set      listpack │ scores          scores as text, ziplist
//!  stream          blocks, groups             without counters; with times (7.2)
//! ```
//! The reader believes nothing that it reads. Everything that Redis checks with
//! `sanitize-dump-payload yes` is checked always, and scores must be numbers.

mod large;
mod read;
mod stream;
mod strings;
mod write;

pub(crate) use large::{Large, is_large};
pub(crate) use read::{Refusal, Value, read};
pub(crate) use stream::Builder as StreamBuilder;
pub(crate) use strings::Strings;
pub(crate) use write::write;
