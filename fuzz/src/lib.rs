//! The fuzz targets, as plain functions from bytes to "did not panic".
//!
//! Each module holds one target: what it feeds to which machine, and the model
//! or law it checks. `targets/` wraps them for libFuzzer, `tests/replay.rs`
//! plays the checked-in seeds through them with any toolchain. An input is
//! read through [`Choices`], so that any bytes whatever mean something.

pub mod bus_frames;
pub mod bus_hello;
pub mod bus_url;
mod choices;
pub mod command_keys;
pub mod config_text;
pub mod hello;
mod invariants;
pub mod link_ops;
pub mod log_segment;
pub mod lua_limits;
pub mod memcache_reply;
pub mod memcache_request;
pub mod memcached_ops;
pub mod proxy_header;
pub mod rdb_reader;
pub mod replication_handshake;
pub mod replication_stream;
pub mod resp_reply;
pub mod resp_request;
pub mod restore;
pub mod session_ops;
pub mod shm_hello;
pub mod store_ops;
pub mod tls_channel;
pub mod topology_views;
pub mod translation;
pub mod worker_ops;

pub use choices::Choices;

/// A target: its name, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 28] = [
    ("bus_frames", bus_frames::run),
    ("bus_hello", bus_hello::run),
    ("bus_url", bus_url::run),
    ("command_keys", command_keys::run),
    ("config_text", config_text::run),
    ("hello", hello::run),
    ("link_ops", link_ops::run),
    ("log_segment", log_segment::run),
    ("lua_limits", lua_limits::run),
    ("memcache_binary", memcache_request::run_binary),
    ("memcache_meta", memcache_request::run_meta),
    ("memcache_reply", memcache_reply::run),
    ("memcache_text", memcache_request::run_text),
    ("memcached_ops", memcached_ops::run),
    ("proxy_header", proxy_header::run),
    ("rdb_reader", rdb_reader::run),
    ("replication_handshake", replication_handshake::run),
    ("replication_stream", replication_stream::run),
    ("resp_reply", resp_reply::run),
    ("resp_request", resp_request::run),
    ("restore", restore::run),
    ("session_ops", session_ops::run),
    ("shm_hello", shm_hello::run),
    ("store_ops", store_ops::run),
    ("tls_channel", tls_channel::run),
    ("topology_views", topology_views::run),
    ("translation", translation::run),
    ("worker_ops", worker_ops::run),
];
