//! Usual clients of memcached, and libmemcached's test of servers: on the store and through pools
//! that ask servers in each of the protocols.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keyway_testkit::{
    Keyway, KeywayConfig, MemcachedServer, Pool, RedisServer, Shared, has_memcached, python,
    run_tool, skipped_for_want_of, tool_is_installed, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const PROTOCOLS: [&str; 3] = ["meta", "text", "binary"];

struct Setup {
    keyway: Keyway,
    bare: MemcachedServer,
    _servers: Vec<MemcachedServer>,
    _redis: Vec<RedisServer>,
}

/// Starts the store, and pools of three servers each; the last has servers of Redis.
fn start() -> Option<Setup> {
    if !has_memcached("stock clients of memcached") {
        return None;
    }
    let servers = MemcachedServer::start_many(3 * PROTOCOLS.len());
    let mut pools = vec![Pool::store("store").spoken_to_in("memcached")];
    for (servers, protocol) in servers.chunks(3).zip(PROTOCOLS) {
        let pool = Pool::memcached(protocol, servers).with("allow_flush", "true");
        pools.push(pool.with("server_protocol", &format!("{protocol:?}")));
    }
    let redis = RedisServer::start_many(3);
    let pool = Pool::over("redis", &redis).with("allow_flush", "true");
    pools.push(pool.spoken_to_in("memcached"));
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    Some(Setup { keyway, bare: MemcachedServer::start(), _servers: servers, _redis: redis })
}

/// Returns each system with its name. The bare server comes first, to show that the test is right.
fn systems(setup: &Setup) -> Vec<(&'static str, SocketAddr)> {
    let ours = ["store", "meta", "text", "binary", "redis"].into_iter().enumerate();
    let ours = ours.map(|(index, name)| (name, setup.keyway.address(index)));
    [("bare", setup.bare.address())].into_iter().chain(ours).collect()
}

static SETUP: Shared<Setup> = Shared::new();

#[test]
fn pymemcache_and_pylibmc_work_as_on_the_server_itself() {
    let _watch = watchdog(Duration::from_secs(300), "pymemcache and pylibmc");
    if !has_memcached("pymemcache and pylibmc") {
        return;
    }
    let setup: Arc<Setup> = SETUP.get(|| start().expect("memcached is there"));
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = root.join("tests/python/memcached_client.py").to_string_lossy().into_owned();
    let python = python();
    for (name, address) in systems(&setup) {
        let port = address.port().to_string();
        let output = run_tool(&python, &[&script, &port], b"", Duration::from_secs(60));
        let text = output.expect_success(&format!("the suite on {name}")).text;
        assert!(text.contains("\nOK"), "{name}: {text}");
    }
}

/// The test empties what it runs against, so it has a Keyway of its own.
#[test]
fn memccapable_finds_no_fault() {
    let _watch = watchdog(Duration::from_secs(300), "memccapable");
    if !tool_is_installed("memccapable") {
        return skipped_for_want_of("memccapable", "libmemcached's test of servers");
    }
    let Some(setup) = start() else { return };
    for (name, address) in systems(&setup) {
        for protocol in ["-a", "-b"] {
            // It needs the version number of the item it has set, which classic commands do not
            // return.
            if (name, protocol) == ("text", "-b") {
                continue;
            }
            let port = address.port().to_string();
            let arguments = ["-h", "127.0.0.1", "-p", &port, "-v", protocol];
            let output = run_tool("memccapable", &arguments, b"", Duration::from_secs(60));
            let failed: Vec<&str> =
                output.text.lines().filter(|line| line.contains("[FAIL]")).collect();
            assert!(failed.is_empty(), "{name} {protocol}: {failed:?}\n{}", output.text);
            let text = output.expect_success(&format!("{name} {protocol}")).text;
            assert!(text.contains("All tests passed"), "{name} {protocol}: {text}");
        }
    }
}
