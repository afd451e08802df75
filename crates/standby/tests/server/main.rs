//! A store that follows a real redis-server. The store must come to the same data, whatever
//! happens to the link, and its clients must be told of what changes.

mod chain;
#[path = "../../../store/tests/common/mod.rs"]
mod common;
#[path = "../../../replica/tests/server/cutter.rs"]
mod cutter;
#[path = "../../../store/tests/effects/digest.rs"]
mod digest;
mod feeds;
mod follows;
#[path = "../../../replica/tests/introduced/mod.rs"]
mod introduced;
mod logged;
mod others;
mod place;
mod roles;
#[path = "../../../replica/tests/server/valkey_server.rs"]
mod valkey_server;
/// The figures that `digest` asks for.
mod work {
    /// Databases of a server.
    pub const DATABASES: u32 = 16;
}
#[allow(dead_code, reason = "the tests of the follower use more of it")]
#[path = "../../../replica/tests/server/writer.rs"]
mod writer;
