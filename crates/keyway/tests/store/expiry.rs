//! Keys that expire, as clients see them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keyway_testkit::{Keyway, KeywayConfig, Pool, Value, encode, wait_until, watchdog};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

#[allow(clippy::disallowed_methods, reason = "the expiry is a moment of the wall clock")]
fn unix_millis() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is past 1970").as_millis()
}

/// Keys that no client asks for are removed within moments, however many expire at once. Clients
/// are served meanwhile.
#[test]
fn many_keys_that_expire_together_are_reclaimed_soon() {
    const KEYS: usize = 300_000;
    const LIFE_MILLIS: u128 = 8_000;
    let _watch = watchdog(Duration::from_secs(90), "mass expiry");
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.client(0);
    let used = || keyway.metrics().sum("keyway_store_memory_bytes", &[]);
    let end = unix_millis() + LIFE_MILLIS;
    for batch in 0..KEYS / 1000 {
        let mut bytes = Vec::new();
        for nth in 0..1000 {
            let key = format!("key:{batch}:{nth}");
            bytes.extend(encode(&["SET", &key, "value", "PXAT", &end.to_string()]));
        }
        client.send(&bytes);
        client.replies(1000);
    }
    let full = used();
    if unix_millis() < end {
        assert_eq!(client.words("DBSIZE"), Value::Integer(KEYS as i64));
    }
    wait_until("the keys expire", Duration::from_secs(60), || unix_millis() >= end);
    // This is two seconds, and one more for a machine that is busy with other tests.
    wait_until("all are reclaimed", Duration::from_secs(3), || {
        assert_eq!(client.words("GET key:0:0"), Value::Nil);
        client.words("DBSIZE") == Value::Integer(0)
    });
    let after = used();
    assert!(after < full - KEYS as f64 * 16.0, "{full} before, {after} after");
}
