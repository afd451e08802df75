//! One suite over all backends: files, etcd and ZooKeeper, with real servers.
//!
//! `laws.rs` has what each has to do, `history.rs` the random transactions and the one history that
//! must explain them; the others are what only one backend can suffer from.

#![allow(clippy::disallowed_methods, reason = "tests wait for servers and their leases")]

mod broken;
mod child;
mod etcd;
mod files;
mod history;
mod laws;
mod registry;
mod stage;
mod writer;
mod zookeeper;

use keyway_testkit::{Watchdog, watchdog};
use std::time::Duration;

/// Runs a test's future on a runtime of its own.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

/// No test waits for ever.
pub fn bounded() -> Watchdog {
    watchdog(Duration::from_secs(240), "a test of the coordinator")
}
