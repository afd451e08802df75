//! Runs redis-benchmark unchanged: its whole default suite through a pool, and the commands that
//! the store has on the store, without a single error.

use std::net::SocketAddr;
use std::time::Duration;

use keyway_testkit::{Keyway, KeywayConfig, Pool, RedisServer, run_tool, watchdog};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// Runs it and returns how many tests it reported.
fn benchmark(address: SocketAddr, arguments: &str) -> usize {
    let port = address.port().to_string();
    let all: Vec<&str> =
        ["-h", "127.0.0.1", "-p", &port].into_iter().chain(arguments.split_whitespace()).collect();
    let output = run_tool("redis-benchmark", &all, b"", Duration::from_secs(120));
    let text = output.expect_success(&format!("redis-benchmark {arguments}")).text;
    for bad in ["Error", "ERR", "WARNING", "closed", "rror from server"] {
        assert!(!text.contains(bad), "redis-benchmark {arguments}: {text}");
    }
    // Progress is overwritten with carriage returns; a result ends its line.
    text.split(['\r', '\n']).filter(|line| line.contains("requests per second")).count()
}

#[test]
fn the_whole_default_suite_runs_through_a_sharded_pool() {
    let _watch = watchdog(Duration::from_secs(240), "redis-benchmark through a pool");
    let servers = RedisServer::start_many(4);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::over("main", &servers)]));
    let tests = benchmark(keyway.address(0), "-q -n 3000 -c 50");
    assert!(tests >= 20, "{tests} tests reported");
    assert!(benchmark(keyway.address(0), "-q -n 10000 -c 50 -P 16 -r 100000") >= 20);
    let random_mset = benchmark(keyway.address(0), "-q -n 5000 -c 20 -r 100000 -t set,get,mset");
    assert_eq!(random_mset, 3);
    assert_eq!(benchmark(keyway.address(0), "-q -n 3000 -c 50 -d 16384 -t set,get"), 2);
}

#[test]
fn the_string_tests_run_on_the_store() {
    let _watch = watchdog(Duration::from_secs(120), "redis-benchmark on the store");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("local")]));
    // PING counts twice: as a line and as an array.
    for (arguments, results) in [
        ("-q -n 10000 -c 50 -t ping,set,get,incr,mset", 6),
        ("-q -n 50000 -c 50 -P 75 -r 100000 -t ping,set,get,incr,mset", 6),
        ("-q -n 3000 -c 50 -d 16384 -t set,get", 2),
        ("-q -n 20000 -c 500 -t set,get", 2),
    ] {
        assert_eq!(benchmark(keyway.address(0), arguments), results, "{arguments}");
    }
}
