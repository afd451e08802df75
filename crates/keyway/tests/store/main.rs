//! The embedded store, as clients see it.
//!
//! `make test` runs each module as a program of its own.

mod across_shards;
mod expiry;
mod large_store;
mod snapshots;
mod store_blocking;
mod store_busy;
mod store_logs;
mod store_migrate;
mod store_scripts;
mod store_slow_log;
mod store_stream_blocking;
mod store_transactions;
mod tracking_caches;
mod tracking_store;
