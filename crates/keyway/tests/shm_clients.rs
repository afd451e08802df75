//! Clients of `shm://` as any others: what they are answered, how they end, and what they leave.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use keyway_ring::{CAPACITY_MIN, Hello, Refusal, Side, ask};
use keyway_testkit::conformance::{Family, Target, differential, run, whole};
use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, encode, skipped, skipped_for_want_of,
    wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// A Keyway with a store at a TCP address and in shared memory.
struct Served {
    keyway: Keyway,
    path: PathBuf,
    _directory: keyway_testkit::TempDir,
}

fn start(settings: &str, tables: &str) -> Served {
    let directory = keyway_testkit::TempDir::new();
    let path = directory.path().join("keyway.shm");
    let listener = format!(
        "[[listener]]\nbind = \"shm://{}\"\npool = \"local\"\n{settings}\n\n{tables}",
        path.display()
    );
    let config = KeywayConfig::new(vec![Pool::store("local")])
        .with_server("workers", "1")
        .with_tables(&listener);
    Served { keyway: Keyway::start(KEYWAY, config), path, _directory: directory }
}

impl Served {
    fn client(&self) -> Client {
        Client::connect_shm(&self.path)
    }

    /// Clients of the pool, as the metrics have it.
    fn connected(&self) -> f64 {
        self.keyway.metrics().value("keyway_client_connected", &[("pool", "local")]).unwrap_or(0.0)
    }

    fn descriptors(&self) -> usize {
        let pid = self.keyway.process().id();
        std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count()
    }

    fn closed(&self, fault: &str) -> f64 {
        let labels = [("pool", "local"), ("fault", fault)];
        self.keyway
            .metrics()
            .value("keyway_client_closed_connections_total", &labels)
            .unwrap_or(0.0)
    }
}

#[test]
fn it_is_redis_over_shared_memory_too() {
    let _watch = watchdog(Duration::from_secs(120), "conformance over shm");
    let served = start("", "");
    let serves = ["types", "keyless", "databases", "keyway"];
    let target = Target::new("store", served.keyway.address(0), &serves).over_shm(&served.path);
    run(&target).assert_clean(&target);
    whole(&target);
    let reference = RedisServer::start();
    let bare = Target::new("redis", reference.address(), &[]);
    for seed in 0..3 {
        differential(&target, &bare, Family::Strings, seed, 10_000);
    }
    let target = target.in_resp3();
    run(&target).assert_clean(&target);
}
