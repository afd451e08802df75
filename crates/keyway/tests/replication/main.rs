//! Primaries and replicas: the store as either, and pools of replicated servers.
//!
//! `make test` runs each module as a program of its own.

#[path = "../../../store/tests/common/mod.rs"]
mod common;
#[path = "../../../store/tests/effects/digest.rs"]
mod digest;
/// The figures that `digest` asks for.
mod work {
    /// Databases of a server.
    pub const DATABASES: u32 = 16;
}
mod primary;
mod primary_oracle;
mod primary_sentinel;
mod primary_tls;
mod read_write_split;
mod replica_of;
mod replicated;
mod replicated_failover;
mod sentinel_notices;
mod slots;
mod wait;
#[allow(dead_code, reason = "the tests of the follower use more of it")]
#[path = "../../../replica/tests/server/writer.rs"]
mod writer;
