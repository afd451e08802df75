//! Clients far ahead of their replies are slowed, never cut off, and get every reply in order.

use std::io::Write;
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, encode, resident_bytes,
    resident_peak_bytes, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

fn start() -> (Keyway, Vec<RedisServer>) {
    let servers = RedisServer::start_many(4);
    let pools = vec![Pool::store("local"), Pool::over("main", &servers)];
    (Keyway::start(KEYWAY, KeywayConfig::new(pools)), servers)
}

/// Returns one request of a long pipeline and its reply.
fn request(nth: usize) -> (Vec<u8>, Value) {
    let key = format!("key:{}", nth % 1000);
    match nth % 5 {
        0 => (encode(&["SET", &key, &nth.to_string()]), Value::simple("OK")),
        1 => (encode(&["ECHO", &nth.to_string()]), Value::bulk(nth.to_string())),
        2 => (encode(&["STRLEN", &format!("none:{nth}")]), Value::Integer(0)),
        3 => (
            encode(&[
                "MGET",
                &format!("no:{nth}"),
                &format!("no:{}", nth + 1),
                &format!("none:{nth}"),
            ]),
            Value::Array(vec![Value::Nil; 3]),
        ),
        _ => (encode(&["PING", &nth.to_string()]), Value::bulk(nth.to_string())),
    }
}

/// Sends 100,000 requests before the first reply is read.
fn run_ahead(keyway: &Keyway, pool: usize) {
    const REQUESTS: usize = 100_000;
    let mut client = keyway.client(pool);
    client.set_reply_within(Duration::from_secs(60));
    let bytes: Vec<u8> = (0..REQUESTS).flat_map(|nth| request(nth).0).collect();
    let mut writer = client.writer();
    let sending = std::thread::spawn(move || writer.write_all(&bytes));
    // Another client is served while this one does not read.
    let mut other = keyway.client(pool);
    for nth in 0..200 {
        let (bytes, wanted) = request(nth);
        other.send(&bytes);
        assert_eq!(other.reply(), wanted);
    }
    for nth in 0..REQUESTS {
        assert_eq!(client.reply(), request(nth).1, "reply {nth}");
    }
    sending.join().expect("the writer").expect("never cut off");
    assert_eq!(client.words("PING"), Value::simple("PONG"));
}

#[test]
fn a_client_100_000_requests_ahead_of_the_store_gets_every_reply_in_order() {
    let _watch = watchdog(Duration::from_secs(90), "100,000 ahead of the store");
    let (keyway, _servers) = start();
    run_ahead(&keyway, 0);
}

#[test]
fn a_client_100_000_requests_ahead_of_a_pool_gets_every_reply_in_order() {
    let _watch = watchdog(Duration::from_secs(90), "100,000 ahead of a pool");
    let (keyway, _servers) = start();
    run_ahead(&keyway, 1);
}

/// Four clients ask for far more than they read. The process holds what its limits allow and no
/// more, and serves others meanwhile.
#[test]
fn slow_readers_are_slowed_and_memory_stays_bounded() {
    const READERS: usize = 4;
    const REQUESTS: usize = 8_000;
    const VALUE: usize = 16 << 10;
    let _watch = watchdog(Duration::from_secs(120), "slow readers");
    let (keyway, _servers) = start();
    let pid = keyway.process().pid();
    let value = vec![b'v'; VALUE];
    for pool in [0, 1] {
        assert_eq!(keyway.client(pool).command(&[b"SET", b"big", &value[..]]), Value::simple("OK"));
        let before = resident_bytes(pid);
        let mut readers: Vec<Client> = (0..READERS).map(|_| keyway.client(pool)).collect();
        let mut sending = Vec::new();
        for reader in &readers {
            reader.shrink_receive_buffer(64 << 10);
            let mut writer = reader.writer();
            let bytes = encode(&["GET", "big"]).repeat(REQUESTS);
            sending.push(std::thread::spawn(move || writer.write_all(&bytes)));
        }
        // The client is served all the time. By the thousandth reply Keyway has long stopped
        // reading the readers' requests.
        let mut other = keyway.client(pool);
        for _ in 0..1000 {
            assert_eq!(other.words("STRLEN big"), Value::Integer(VALUE as i64));
        }
        // `keyway check` announces 5.25 MiB for a busy client. The allocator adds to buffers that
        // grow.
        let allowed = READERS as u64 * (12 << 20);
        let grown = resident_peak_bytes(pid).saturating_sub(before);
        assert!(grown < allowed, "pool {pool}: {} MB held", grown >> 20);
        for reader in &mut readers {
            for nth in 0..REQUESTS {
                assert!(reader.reply() == Value::Bulk(value.clone()), "reply {nth}");
            }
        }
        for one in sending {
            one.join().expect("the writer").expect("never cut off");
        }
        drop(readers);
        wait_until("memory is given back", Duration::from_secs(10), || {
            resident_bytes(pid) < before + (8 << 20)
        });
    }
}

/// All requests are sent at once, before a reply could tell how large they are.
#[test]
fn a_pipeline_of_large_values_slows_its_client_and_never_ends_it() {
    const REQUESTS: usize = 1000;
    let _watch = watchdog(Duration::from_secs(60), "large values");
    let servers = RedisServer::start_many(2);
    let config = KeywayConfig::new(vec![Pool::over("main", &servers)])
        .with_tables("[limits]\nsession_output_len_hard = \"96MiB\"\n");
    let keyway = Keyway::start(KEYWAY, config);
    let value = vec![b'v'; 1 << 20];
    let mut client = keyway.client(0);
    for key in ["one", "two", "three"] {
        assert_eq!(client.command(&[b"SET", key.as_bytes(), &value[..]]), Value::simple("OK"));
    }
    let mut client = keyway.client(0);
    client.shrink_receive_buffer(64 << 10);
    let keys = ["one", "two", "three"];
    client.send(&(0..REQUESTS).flat_map(|nth| encode(&["GET", keys[nth % 3]])).collect::<Vec<_>>());
    for nth in 0..REQUESTS {
        assert!(client.reply() == Value::Bulk(value.clone()), "reply {nth}");
    }
}

/// Replies of a slow shard do not overtake or hold up the order.
#[test]
fn order_is_kept_while_one_shard_is_paused() {
    let _watch = watchdog(Duration::from_secs(60), "order with a paused shard");
    let servers = RedisServer::start_many(4);
    let pool = Pool::over("main", &servers).with("timeout", "\"20s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    for nth in 0..500 {
        assert_eq!(
            client.command(&["SET", &format!("k{nth}"), &nth.to_string()]),
            Value::simple("OK")
        );
    }
    servers[1].process().pause();
    let bytes: Vec<u8> = (0..500).flat_map(|nth| encode(&["GET", &format!("k{nth}")])).collect();
    client.send(&bytes);
    client.send(&encode(&["PING"]));
    let mut other = keyway.client(0);
    assert_eq!(other.words("PING"), Value::simple("PONG"), "local requests are served");
    servers[1].process().resume();
    for nth in 0..500 {
        assert_eq!(client.reply(), Value::bulk(nth.to_string()));
    }
    assert_eq!(client.reply(), Value::simple("PONG"));
}
