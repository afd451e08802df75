//! The black-box harness: starts real servers on free loopback ports, speaks
//! to them as a client would, and says whether they behaved.
//!
//! A dev-dependency only. It never links a line of Keyway's data plane: its
//! parser, its hashes and its expectations are its own, so that a fault in
//! Keyway cannot hide in the harness. Nothing here sleeps for a fixed time: a
//! test waits for a condition ([`wait_until`]) under a [`watchdog`].
//!
//! Read first: [`Process`] (how a server is started, watched and ended),
//! [`Client`] (raw bytes in, one [`Value`] out, under a deadline) and
//! [`conformance`] (one suite over every system that claims to be Redis).

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a harness reads clocks and waits for processes; nothing here runs inside a server"
)]

pub mod certificates;
pub mod conformance;
pub mod large;

mod apart;
mod checked_load;
mod client;
mod etcd;
mod flood;
mod gate;
mod http;
mod kept;
mod keyway;
mod left;
mod linear;
mod memcached;
mod memcached_steps;
mod nutcracker;
mod ports;
mod proc;
mod process;
mod random;
mod redis;
mod redis_cluster;
mod replicated;
mod scripted;
mod sentinels;
mod shared;
mod skip;
mod temp;
mod tool;
mod value;
mod watchdog;
mod zookeeper;

pub use apart::{Apart, Cut};
pub use checked_load::{CheckedLoad, LoadReport, LoadShape};
pub use client::{Client, ReplyFault, encode, encode_words};
pub use etcd::{EtcdCluster, etcd_post, etcd_put_v2, has_etcd};
pub use flood::Flood;
pub use gate::TcpGate;
pub use http::{HttpReply, Metrics, http_get, http_get_with, http_post, scrape, serving_process};
pub use keyway::{Keyway, KeywayConfig, Pool, keyway_binary, run_keyway};
pub use linear::{Event, HISTORY_MAX, Sequential, is_linearizable};
pub use memcached::{MemcachedClient, MemcachedServer, has_memcached, memcached_packet};
pub use memcached_steps::{
    MEMCACHED_CAS_MIN, MEMCACHED_CLASSIC, MEMCACHED_META, MEMCACHED_META_RECENT, MemcachedEar,
    MemcachedStep, any_memcached_binary, any_memcached_classic, any_memcached_meta,
};
pub use nutcracker::{Nutcracker, NutcrackerPool};
pub use ports::{free_address, free_port};
pub use proc::{
    anonymous_bytes, cpu_seconds, cpu_seconds_over, fd_count, memory_available_bytes,
    raise_descriptor_limit, resident_bytes, resident_peak_bytes, thread_count,
};
pub use process::{Process, Signal};
pub use random::Random;
pub use redis::RedisServer;
pub use redis_cluster::{CLUSTER_SLOTS, Failover, RedisCluster, SlotMove, cluster_slot};
pub use replicated::Replicated;
pub use scripted::{Action, ScriptedBackend, handshake_reply};
pub use sentinels::Sentinels;
pub use shared::Shared;
pub use skip::{skipped, skipped_for_want_of};
pub use temp::TempDir;
pub use tool::{
    ToolOutput, python, python_with, redis_of_package, run_tool, schemathesis, tool_is_installed,
};
pub use value::Value;
pub use watchdog::{Watchdog, wait_for, wait_until, watchdog};
pub use zookeeper::{ZooKeeperEnsemble, has_zookeeper};
