//! One suite for three systems: the bare server, the embedded store, and a sharded pool over four
//! servers.

use std::time::Duration;

use keyway_testkit::conformance::{Family, Target, differential, half_gigabyte_value, run, whole};
use keyway_testkit::{
    Keyway, KeywayConfig, Pool, RedisServer, memory_available_bytes, skipped, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// The store, and a pool over four servers, in one process.
struct Systems {
    keyway: Keyway,
    reference: RedisServer,
    _servers: Vec<RedisServer>,
}

impl Systems {
    fn start() -> Systems {
        let servers = RedisServer::start_many(4);
        // A value of 512 MB takes its time.
        let pool = Pool::over("main", &servers).with("timeout", "\"60s\"");
        let pools = vec![Pool::store("local"), pool];
        let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
        Systems { keyway, reference: RedisServer::start(), _servers: servers }
    }

    fn store(&self) -> Target {
        Target::new("store", self.keyway.address(0), &["types", "keyless", "databases", "keyway"])
    }

    fn sharded(&self) -> Target {
        Target::new(
            "sharded pool",
            self.keyway.address(1),
            &["types", "streams", "scripts", "keyway"],
        )
    }

    fn bare(&self) -> Target {
        Target::new("redis", self.reference.address(), &[])
    }
}

#[test]
fn the_store_answers_like_redis() {
    let _watch = watchdog(Duration::from_secs(120), "conformance of the store");
    let systems = Systems::start();
    run(&systems.store()).assert_clean(&systems.store());
    whole(&systems.store());
    for seed in 0..10 {
        differential(&systems.store(), &systems.bare(), Family::Strings, seed, 10_000);
    }
}

#[test]
fn clients_of_resp3_are_answered_like_redis() {
    let _watch = watchdog(Duration::from_secs(120), "conformance in RESP3");
    let systems = Systems::start();
    let bare = systems.bare().in_resp3();
    for target in [systems.store(), systems.sharded()] {
        let target = target.in_resp3();
        run(&target).assert_clean(&target);
        whole(&target);
        for seed in 200..203 {
            differential(&target, &bare, Family::Strings, seed, 10_000);
        }
    }
}

#[test]
fn a_sharded_pool_answers_like_redis() {
    let _watch = watchdog(Duration::from_secs(120), "conformance of a sharded pool");
    let systems = Systems::start();
    run(&systems.sharded()).assert_clean(&systems.sharded());
    whole(&systems.sharded());
    for seed in 100..104 {
        differential(&systems.sharded(), &systems.bare(), Family::Strings, seed, 10_000);
    }
}

#[test]
fn a_value_of_512_megabytes_passes_through_store_and_pool() {
    let _watch = watchdog(Duration::from_secs(240), "a value of 512 MB");
    if memory_available_bytes() < 6 << 30 {
        skipped("a value of 512 MB: less than 6 GiB of memory available");
        return;
    }
    let systems = Systems::start();
    half_gigabyte_value(&systems.sharded());
    half_gigabyte_value(&systems.store());
}
