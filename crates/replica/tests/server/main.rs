//! Real servers as primaries. What the follower hands over is replayed into a
//! second server, which must come to the same data.

mod cutter;
mod follows;
mod links;
mod replayer;
mod servers;
mod valkey;
mod valkey_server;
mod writer;
