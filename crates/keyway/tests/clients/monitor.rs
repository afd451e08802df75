//! MONITOR: requests of a pool or the store are shown to clients that watch.

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

fn pools(servers: &[RedisServer]) -> KeywayConfig {
    KeywayConfig::new(vec![Pool::over("main", servers), Pool::store("cache")])
}

fn monitor(mut client: Client) -> Client {
    assert_eq!(client.words("MONITOR"), Value::simple("OK"));
    client
}

/// Returns a line without its time and the client's port.
fn shape(line: &Value) -> String {
    let text = line.text();
    let (time, rest) = text.split_once(" [").unwrap_or_else(|| panic!("no line: {text}"));
    let (seconds, micros) = time.split_once('.').expect("seconds and microseconds");
    assert!(seconds.len() == 10 && micros.len() == 6, "{text}");
    let (from, args) = rest.split_once("] ").expect("a client");
    let (database, addr) = from.split_once(' ').expect("a database and an address");
    format!("[{database} {}] {args}", addr.split(':').next().unwrap_or_default())
}

#[test]
fn requests_of_memcached_clients_are_shown_too() {
    let _watch = watchdog(Duration::from_secs(60), "monitor of memcached clients");
    let servers = RedisServer::start_many(2);
    let pools = vec![
        Pool::over("main", &servers),
        Pool::over("main", &servers).spoken_to_in("memcached"),
        Pool::store("cache"),
        Pool::store("cache").spoken_to_in("memcached"),
    ];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    for first in [0, 2] {
        let mut watching = monitor(keyway.client(first));
        let mut client = keyway.memcached_client(first + 1);
        client.say("set k 5 0 3\r\na\"b\r\nget k other\r\nincr k 1\r\ndelete k noreply\r\n");
        for expected in [
            r#"[0 127.0.0.1] "set" "k" "a\"b""#,
            r#"[0 127.0.0.1] "get" "k" "other""#,
            r#"[0 127.0.0.1] "incr" "k""#,
            r#"[0 127.0.0.1] "delete" "k""#,
            r#"[0 127.0.0.1] "noop""#,
        ] {
            assert_eq!(shape(&watching.reply()), expected);
        }
    }
}

#[test]
fn requests_are_shown_as_by_redis() {
    let _watch = watchdog(Duration::from_secs(60), "monitor");
    let servers = RedisServer::start_many(2);
    let bare = RedisServer::start();
    let keyway = Keyway::start(KEYWAY, pools(&servers));
    let requests: &[&[&[u8]]] = &[
        &[b"SET", b"a \"b\"\r\n\\", b"\x00\x01\xff\x07\x08\tx"],
        &[b"get", b"k"],
        &[b"MSET", b"a", b"1", b"b", b"2", b"c", b"3"],
        &[b"NONESUCH", b"x"],
        &[b"GET"],
        &[b"HELLO", b"2", b"AUTH", b"default", b"secret"],
        &[b"HELLO", b"2", b"SETNAME", b"auth", b"AUTH", b"default", b"secret"],
        &[b"AUTH", b"secret"],
        &[b"AUTH", b"default", b"secret"],
        &[b"CONFIG", b"GET", b"save"],
        &[b"PING"],
        &[b"ECHO", b""],
        &[b"CLIENT", b"LIST"],
        &[b"EVAL", b"return 1", b"1", b"k"],
        &[b"EVAL", b"return 1"],
        &[b"EVAL_RO", b"return 1", b"0"],
        &[b"EVALSHA", b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db", b"1", b"k"],
        &[b"EVALSHA_RO", b"0000000000000000000000000000000000000000", b"1", b"k"],
        &[b"FCALL", b"nonesuch", b"1", b"k"],
        &[b"FCALL_RO", b"nonesuch", b"1", b"k", b"argument"],
        &[b"MULTI"],
        &[b"EVAL", b"return 2", b"1", b"k"],
        &[b"EVALSHA", b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db", b"1", b"k"],
        &[b"FCALL", b"nonesuch", b"1", b"k"],
        &[b"GET", b"k"],
        &[b"EXEC"],
        &[b"GET", b"the end"],
    ];
    let shown = |mut watching: Client, mut client: Client| -> Vec<String> {
        requests.iter().for_each(|request| drop(client.command(request)));
        let mut lines = Vec::new();
        while !lines.last().is_some_and(|line: &String| line.ends_with("\"the end\"")) {
            lines.push(shape(&watching.reply()));
        }
        lines
    };
    let expected = shown(monitor(bare.client()), bare.client());
    assert!(expected.len() >= 8 && expected.join("").contains("(redacted)"), "{expected:?}");
    for pool in 0..2 {
        assert_eq!(shown(monitor(keyway.client(pool)), keyway.client(pool)), expected, "{pool}");
    }
}

#[test]
fn calls_of_scripts_on_the_store_are_shown_as_by_redis() {
    let _watch = watchdog(Duration::from_secs(60), "monitor of scripts");
    let bare = RedisServer::start();
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("cache")]));
    let library = "#!lua name=l\nredis.register_function('f', function(keys) \
                   return redis.call('GET', keys[1]) end)";
    let script = "redis.call('set', KEYS[1], 'v') redis.pcall('get') redis.pcall('config', 'get', 'x') \
                  return redis.call('publish', 'c', 'm')";
    let shown = |mut watching: Client, mut client: Client| -> Vec<String> {
        client.command(&["FUNCTION", "LOAD", library]);
        client.command(&["EVAL", script, "1", "k"]);
        client.command(&["EVAL", "return 1", "0"]);
        client.command(&["FCALL", "f", "1", "k"]);
        client.command(&["GET", "the end"]);
        let mut lines = Vec::new();
        while !lines.last().is_some_and(|line: &String| line.ends_with("\"the end\"")) {
            lines.push(shape(&watching.reply()));
        }
        lines
    };
    let expected = shown(monitor(bare.client()), bare.client());
    assert!(expected.iter().filter(|line| line.contains(" lua]")).count() == 3, "{expected:?}");
    assert_eq!(shown(monitor(keyway.client(0)), keyway.client(0)), expected);
}

#[test]
fn a_monitor_sees_its_own_pool_through_all_workers_until_it_ends() {
    let _watch = watchdog(Duration::from_secs(60), "workers");
    let servers = RedisServer::start_many(2);
    let keyway = Keyway::start(KEYWAY, pools(&servers).with_server("workers", "2"));
    let mut watching: Vec<Client> = (0..4).map(|_| monitor(keyway.client(0))).collect();
    keyway.client(1).words("SET foreign 1");
    let mut clients: Vec<Client> = (0..20).map(|_| keyway.client(0)).collect();
    for (nth, client) in clients.iter_mut().enumerate() {
        let lines = [format!("SET k{nth} 1"), format!("MGET k{nth} a b c"), format!("GET k{nth}")];
        client.pipeline(&lines.each_ref().map(String::as_str));
    }
    for client in &mut watching {
        let mut lines: Vec<String> = (0..60).map(|_| shape(&client.reply())).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 60, "each request once: {lines:?}");
        assert!(!lines.join("").contains("foreign"));
    }
    assert_eq!(watching[0].words("RESET"), Value::simple("RESET"));
    assert_eq!(watching[1].words("QUIT"), Value::simple("OK"));
    watching[1].expect_closed();
    drop(watching.pop());
    clients[0].words("GET last");
    // RESET is shown to the others. The client that resets is shown nothing more.
    let next = |client: &mut Client| shape(&client.reply());
    let mut rest = vec![next(&mut watching[2])];
    while !rest.last().is_some_and(|line| line.contains("last")) {
        rest.push(next(&mut watching[2]));
    }
    assert_eq!(watching[0].words("GET mine"), Value::Nil, "nothing comes in between");
    drop(watching);
    // Without any watching client requests go on as before.
    clients.iter_mut().for_each(|client| assert_eq!(client.words("GET last"), Value::Nil));
}

#[test]
fn a_monitor_that_does_not_read_misses_lines_and_is_told_how_many() {
    let _watch = watchdog(Duration::from_secs(120), "slow monitor");
    let servers = RedisServer::start_many(1);
    let keyway = Keyway::start(KEYWAY, pools(&servers));
    let watching = keyway.client(0);
    watching.shrink_receive_buffer(256 << 10);
    let mut watching = monitor(watching);
    let mut client = keyway.client(0);
    let line = format!("SET k {}", "v".repeat(100));
    let lines = vec![line.as_str(); 1000];
    // This is more than sockets and bounds hold together.
    const COUNT: usize = 60_000;
    for _ in 0..COUNT / 1000 {
        assert!(client.pipeline(&lines).iter().all(|reply| *reply == Value::simple("OK")));
    }
    let (mut shown, mut lost) = (0, 0);
    watching.set_reply_within(Duration::from_millis(100));
    while shown + lost < COUNT {
        let Ok(line) = watching.try_reply() else {
            // A client that has read is told so with the next request.
            client.words("GET k");
            continue;
        };
        let text = line.text();
        match text.split_once("[0 keyway] \"LOST\" \"") {
            Some((_, rest)) => {
                let count = rest.split('"').next().and_then(|count| count.parse::<usize>().ok());
                lost += count.expect("a number");
            }
            None if text.contains("\"GET\"") => {}
            None => shown += 1,
        }
    }
    assert_eq!(shown + lost, COUNT);
    assert!(lost > 0 && shown > 1000, "{shown} shown, {lost} lost");
}

#[test]
fn requests_that_wait_are_shown_once_and_blocking_ones_when_they_begin() {
    let _watch = watchdog(Duration::from_secs(60), "waiting requests");
    let servers = RedisServer::start_many(2);
    let keyway = Keyway::start(KEYWAY, pools(&servers));
    let mut watching = monitor(keyway.client(0));
    let mut client = keyway.client(0);
    let lines: Vec<String> = (0..200)
        .flat_map(|nth| {
            [format!("RPUSH q{nth} v"), format!("BLPOP q{nth} 0"), format!("GET x{nth}")]
        })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(client.pipeline(&lines).len(), 600);
    client.words("GET end");
    let mut shown = Vec::new();
    while !shown.last().is_some_and(|line: &String| line.ends_with("\"end\"")) {
        shown.push(shape(&watching.reply()));
    }
    assert_eq!(shown.len(), 601);
    assert_eq!(shown[1], "[0 127.0.0.1] \"BLPOP\" \"q0\" \"0\"");
}

#[test]
fn the_file_may_ask_for_a_sample_or_refuse() {
    let _watch = watchdog(Duration::from_secs(60), "sample");
    let servers = RedisServer::start_many(1);
    let keyway = Keyway::start(KEYWAY, pools(&servers).with_tables("[limits]\nmonitor_every = 10"));
    let mut watching = monitor(keyway.client(0));
    let mut client = keyway.client(0);
    let lines = vec!["GET k"; 1000];
    client.pipeline(&lines);
    let mut shown = 0;
    wait_until("a sample is shown", Duration::from_secs(20), || {
        watching.set_reply_within(Duration::from_millis(200));
        while watching.try_reply().is_ok() {
            shown += 1;
        }
        shown > 0
    });
    assert!((40..=200).contains(&shown), "{shown} of 1000");
    let config = pools(&servers).with_tables("[limits]\nmonitor_every = 0");
    let refusing = Keyway::start(KEYWAY, config);
    for pool in 0..2 {
        let text = refusing.client(pool).words("MONITOR").error_text();
        assert!(text.starts_with("ERR 'monitor' is refused: monitor_every = 0"), "{text}");
    }
}

#[test]
fn client_list_tells_what_clients_of_all_workers_have_begun() {
    let _watch = watchdog(Duration::from_secs(60), "client list");
    let servers = RedisServer::start_many(2);
    let keyway = Keyway::start(KEYWAY, pools(&servers).with_server("workers", "2"));
    let mut asking = keyway.client(0);
    let mut others: Vec<Client> = (0..6).map(|_| keyway.client(0)).collect();
    let ids: Vec<i64> =
        others.iter_mut().map(|client| client.words("CLIENT ID").integer()).collect();
    others[0].send(&keyway_testkit::encode_words("SUBSCRIBE a b"));
    others[0].send(&keyway_testkit::encode_words("PSUBSCRIBE p*"));
    others[0].send(&keyway_testkit::encode_words("SSUBSCRIBE s"));
    others[0].replies(4);
    others[1].pipeline(&["WATCH k", "MULTI", "GET k", "GET k"]);
    let _watching = monitor(keyway.client(0));
    others[4].send(&keyway_testkit::encode_words("BLPOP q 0"));
    let line = |asking: &mut Client, id: i64| asking.words(&format!("CLIENT LIST ID {id}")).text();
    for (nth, fields) in [
        (0, " flags=P db=0 sub=2 psub=1 ssub=1 multi=-1 watch=0 "),
        (1, " flags=x db=0 sub=0 psub=0 ssub=0 multi=2 watch=1 "),
        (5, " flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 watch=0 "),
    ] {
        wait_until(fields, Duration::from_secs(20), || {
            line(&mut asking, ids[nth]).contains(fields)
        });
    }
    let list = |asking: &mut Client| asking.words("CLIENT LIST").text();
    for flag in [" flags=O ", " flags=b "] {
        wait_until(flag, Duration::from_secs(20), || list(&mut asking).contains(flag));
    }
    assert!(asking.words("CLIENT INFO").text().contains(" flags=N "));
    let of_type = |asking: &mut Client, name: &str| {
        asking.words(&format!("CLIENT LIST TYPE {name}")).text().lines().count()
    };
    assert_eq!((of_type(&mut asking, "pubsub"), of_type(&mut asking, "replica")), (1, 0));
    others[1].words("DISCARD");
    wait_until("it has ended", Duration::from_secs(20), || {
        line(&mut asking, ids[1]).contains(" flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 watch=0 ")
    });
    assert_eq!(asking.words("CLIENT KILL TYPE pubsub"), Value::Integer(1));
    assert_eq!(asking.words("CLIENT KILL TYPE master"), Value::Integer(0));
    others[0].expect_closed();
}

#[test]
fn client_list_tells_what_clients_of_all_workers_asked_last() {
    let _watch = watchdog(Duration::from_secs(60), "last commands");
    let servers = RedisServer::start_many(2);
    let keyway = Keyway::start(KEYWAY, pools(&servers).with_server("workers", "2"));
    for pool in 0..2 {
        let mut asking = keyway.client(pool);
        let line =
            |asking: &mut Client, id: i64| asking.words(&format!("CLIENT LIST ID {id}")).text();
        for _ in 0..4 {
            let mut other = keyway.client(pool);
            let id = other.words("CLIENT ID").integer();
            wait_until("its first", Duration::from_secs(20), || {
                line(&mut asking, id).contains(" cmd=client|id ")
            });
            other.pipeline(&["SET k v", "MGET k a b", "GET k"]);
            wait_until("its last", Duration::from_secs(20), || {
                line(&mut asking, id).contains(" cmd=get ")
            });
            wait_until("it to be idle", Duration::from_secs(20), || {
                line(&mut asking, id).contains(" idle=1 ")
            });
            other.words("GET k");
            wait_until("it to be busy", Duration::from_secs(20), || {
                line(&mut asking, id).contains(" idle=0 ")
            });
        }
    }
}
