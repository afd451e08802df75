//! Hot keys and keys with large values, as operators see them: by the admin API, `keyway ctl` and
//! HOTKEYS. Also the time for which slow requests wait for their clients.
#![allow(clippy::disallowed_methods, reason = "a test waits for a while to have passed")]

use keyway_testkit::{
    Client, Keyway, KeywayConfig, MemcachedServer, Pool, RedisServer, Signal, Value, encode,
    has_memcached, http_get, run_keyway, wait_for, wait_until, watchdog,
};
use serde_json::Value as Json;
use std::time::{Duration, Instant};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(20);
const WITHIN: Duration = Duration::from_secs(120);

fn told(keyway: &Keyway, path: &str) -> Json {
    let reply = http_get(keyway.admin(), path);
    assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    serde_json::from_str(&reply.body).expect("JSON")
}

/// Returns what the API tells of one pool.
fn of_pool(keyway: &Keyway, pool: &str) -> Json {
    let mut all = told(keyway, &format!("/v1/hot-keys?pool={pool}"));
    assert_eq!(all["pools"].as_array().map(Vec::len), Some(1), "{all}");
    assert_eq!(all["pools"][0]["pool"], pool);
    all["pools"][0].take()
}

fn names(keys: &Json) -> Vec<&str> {
    keys.as_array().expect("a list").iter().filter_map(|it| it["key"].as_str()).collect()
}

/// Sends a thousand reads, half of them for one key and a fifth for another, and writes that are
/// all for a third key.
fn ask(client: &mut Client, prefix: &str) {
    for nth in 0..1000 {
        let key = match nth % 10 {
            0..5 => format!("{prefix}hot"),
            5..7 => format!("{prefix}warm"),
            _ => format!("{prefix}cold:{nth}"),
        };
        client.send(&encode(&["GET", &key]));
        if nth % 10 == 9 {
            client.send(&encode(&["INCR", &format!("{prefix}written")]));
        }
    }
    client.replies(1100);
}

fn is_near(value: &Json, wanted: f64, error: &Json) -> bool {
    let (value, error) = (value.as_f64().expect("a number"), error.as_f64().expect("a number"));
    (value - wanted).abs() <= 2.0 * error
}

#[test]
fn hot_keys_are_told_with_shares_that_are_true_on_stores_and_pools_of_servers() {
    let _watch = watchdog(WITHIN, "hot keys");
    let servers = RedisServer::start_many(2);
    let pools = vec![Pool::store("store"), Pool::over("servers", &servers)];
    let config = KeywayConfig::new(pools)
        .with_server("workers", "2")
        .with_tables("[limits]\nhot_keys_every = 5\n");
    let keyway = Keyway::start(KEYWAY, config);
    for (place, pool) in [(0, "store"), (1, "servers")] {
        // There are several connections, so that several workers count.
        let mut clients: Vec<_> = (0..4).map(|_| keyway.client(place)).collect();
        for _ in 0..3 {
            clients.iter_mut().for_each(|client| ask(client, "a\x1b:"));
        }
        let keys = of_pool(&keyway, pool);
        let (reads, writes) = (&keys["reads"]["keys"], &keys["writes"]["keys"]);
        assert_eq!(names(reads)[..2], ["a\\x1b:hot", "a\\x1b:warm"], "{keys}");
        // A cold key may appear by chance, and then has its true share.
        let others = &reads.as_array().expect("a list")[2..];
        assert!(others.iter().all(|it| it["share"].as_f64() < Some(0.01)), "{keys}");
        assert!(is_near(&reads[0]["share"], 0.5, &reads[0]["share_error"]), "{keys}");
        assert!(is_near(&reads[1]["share"], 0.2, &reads[1]["share_error"]), "{keys}");
        assert!(reads[0]["share_error"].as_f64().is_some_and(|it| it < 0.1), "{keys}");
        assert!(reads[0]["rate"].as_f64().is_some_and(|it| it > 10.0), "{keys}");
        assert_eq!(names(writes), ["a\\x1b:written"], "{keys}");
        assert_eq!(writes[0]["share"].as_f64(), Some(1.0), "{keys}");
        let told = keyway.client(place).words("HOTKEYS GET COUNT 1");
        let rows: Vec<_> = told.array().iter().map(Value::array).collect();
        assert_eq!(rows.len(), 2, "{told:?}");
        assert_eq!((rows[0][0].text(), rows[0][1].text()), ("a\x1b:hot".into(), "read".into()));
        assert_eq!(
            (rows[1][0].text(), rows[1][1].text()),
            ("a\x1b:written".into(), "write".into())
        );
    }
    let admin = keyway.admin().to_string();
    let output = run_keyway(KEYWAY, &["ctl", "--admin", &admin, "hot-keys", "--pool", "servers"]);
    assert!(output.status.success() && output.text.contains("a\\x1b:hot"), "{}", output.text);
    assert!(output.text.contains("(no value was that large in the last hour)"), "{}", output.text);
    assert_eq!(http_get(keyway.admin(), "/v1/hot-keys?pool=none").status, 404);
    let mut client = keyway.client(0);
    for wrong in ["HOTKEYS GET COUNT", "HOTKEYS GET COUNT x", "HOTKEYS GET COUNT -1", "HOTKEYS x"] {
        assert!(client.words(wrong).is_error(), "{wrong}");
    }
    assert!(client.words("HOTKEYS HELP").array().len() > 5);
    assert_eq!(client.words("HOTKEYS RESET"), Value::simple("OK"));
    assert_eq!(names(&of_pool(&keyway, "store")["reads"]["keys"]), [""; 0]);
    let others = of_pool(&keyway, "servers");
    assert_eq!(names(&others["reads"]["keys"])[..2], ["a\\x1b:hot", "a\\x1b:warm"], "{others}");
}

#[test]
fn a_user_sees_no_keys_but_those_that_it_may_read_and_what_was_refused_is_not_counted() {
    let _watch = watchdog(WITHIN, "who sees hot keys");
    let user = |name: &str, rules: &str| {
        format!("[[user]]\nname = {name:?}\nrules = {rules:?}\npassword = \"sesame-{name}\"\n")
    };
    let tables = "[limits]\nhot_keys_every = 1\n".to_owned()
        + &user("app", "+@all -@admin ~app:*")
        + &user("seer", "+hotkeys +get ~app:*")
        + &user("ops", "+@all ~* &*");
    let config = KeywayConfig::new(vec![Pool::store("store")]).with_tables(&tables);
    let keyway = Keyway::start(KEYWAY, config);
    let client = |name: &str| {
        let mut client = keyway.client(0);
        assert_eq!(client.words(&format!("AUTH {name} sesame-{name}")), Value::simple("OK"));
        client
    };
    let (mut app, mut ops, mut seer) = (client("app"), client("ops"), client("seer"));
    for _ in 0..100 {
        assert_eq!(app.words("GET app:1"), ops.words("GET own:1"));
        assert!(app.words("GET own:refused").is_error());
        assert!(keyway.client(0).words("GET own:stranger").is_error());
    }
    let seen = |client: &mut Client| -> Vec<String> {
        let told = client.words("HOTKEYS GET");
        let mut seen: Vec<_> = told.array().iter().map(|row| row.array()[0].text()).collect();
        seen.sort();
        seen
    };
    assert_eq!(seen(&mut ops), ["app:1", "own:1"]);
    assert_eq!(seen(&mut seer), ["app:1"]);
    assert!(app.words("HOTKEYS GET").error_text().starts_with("NOPERM"));
    assert!(keyway.client(0).words("HOTKEYS GET").error_text().starts_with("NOAUTH"));
    let value = "v".repeat(100 << 10);
    assert_eq!(app.command(&["SET", "app:big", &value]), Value::simple("OK"));
    assert_eq!(ops.command(&["SET", "own:big", &value]), Value::simple("OK"));
    assert!(app.command(&["SET", "own:refused", &value]).is_error());
    assert_eq!(ops.words("HOTKEYS BIG").array().len(), 2);
    let told = seer.words("HOTKEYS BIG");
    assert_eq!(told.array().len(), 1);
    let row = told.array()[0].array();
    assert_eq!((row[0].text(), row[1].integer()), ("app:big".into(), 100 << 10));
    assert_eq!((row[2].text(), row[3].text()), ("set".into(), "request".into()));
    let config = keyway.directory().join("keyway.toml");
    let text = std::fs::read_to_string(&config).expect("its file");
    let off = "hot_keys_every = 0\nbig_values_from = \"0B\"\n";
    std::fs::write(&config, text.replace("hot_keys_every = 1\n", off)).expect("a file");
    keyway.process().signal(Signal::HUP);
    wait_until("the reload", SOON, || keyway.process().log().contains(" reloaded "));
    assert_eq!(ops.words("HOTKEYS RESET"), Value::simple("OK"));
    (0..100).for_each(|_| assert_eq!(ops.words("GET own:1"), Value::Nil));
    assert_eq!(ops.command(&["SET", "own:big", &value]), Value::simple("OK"));
    assert_eq!(ops.words("HOTKEYS GET").array().len(), 0);
    assert_eq!(ops.words("HOTKEYS BIG").array().len(), 0);
    assert_eq!(told_settings(&keyway), (0, 0));
}

fn told_settings(keyway: &Keyway) -> (u64, u64) {
    let all = told(keyway, "/v1/hot-keys");
    let number = |name: &str| all[name].as_u64().expect("a number");
    (number("hot_keys_every"), number("big_values_from"))
}

/// Returns every big key of a pool: its name, its command, its direction, and its bytes.
fn big(keyway: &Keyway, pool: &str) -> Vec<(String, String, String, u64)> {
    let keys = of_pool(keyway, pool);
    let text = |it: &Json, name: &str| it[name].as_str().expect("text").to_owned();
    let one = |it: &Json| {
        let bytes = it["bytes"].as_u64().expect("a number");
        (text(it, "key"), text(it, "command"), text(it, "direction"), bytes)
    };
    keys["big"].as_array().expect("a list").iter().map(one).collect()
}

fn row(key: &str, command: &str, direction: &str, bytes: u64) -> (String, String, String, u64) {
    (key.into(), command.into(), direction.into(), bytes)
}

#[test]
fn large_values_are_told_whichever_way_they_went() {
    let _watch = watchdog(WITHIN, "big keys");
    let server = RedisServer::start();
    let pools = vec![
        Pool::over("servers", std::slice::from_ref(&server)),
        Pool::store("store"),
        Pool::store("items").spoken_to_in("memcached"),
    ];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let of = |kib: usize| "v".repeat(kib << 10);
    // No client has moved these values yet.
    let mut direct = server.client();
    for (key, kib) in [("read", 300), ("one", 10), ("other", 200), ("small", 60)] {
        assert_eq!(direct.command(&["SET", key, &of(kib)]), Value::simple("OK"));
    }
    let mut client = keyway.client(0);
    assert_eq!(client.command(&["SET", "small", &of(60)]), Value::simple("OK"));
    assert_eq!(client.words("GET small").bytes().len(), 60 << 10);
    assert_eq!(big(&keyway, "servers"), []);
    assert_eq!(client.command(&["GET", "read"]).bytes().len(), 300 << 10);
    client.command(&["MGET", "one", "absent", "other", "small"]);
    client.command(&["MSET", "a", &of(1), "b", &of(100), "c", &of(70)]);
    let head = "$307200\r\n\r\n".len() as u64;
    assert_eq!(
        big(&keyway, "servers"),
        [
            row("read", "get", "reply", (300 << 10) + head),
            row("other", "mget", "reply", 200 << 10),
            row("b", "mset", "request", 100 << 10),
            row("c", "mset", "request", 70 << 10),
        ]
    );
    // Values that pass through without being kept are noted as well.
    assert_eq!(client.command(&["SET", "passes", &of(3000)]), Value::simple("OK"));
    assert_eq!(big(&keyway, "servers")[0], row("passes", "set", "request", 3000 << 10));
    assert_eq!(client.command(&["GET", "passes"]).bytes().len(), 3000 << 10);
    let head = "$3072000\r\n\r\n".len() as u64;
    assert_eq!(big(&keyway, "servers")[0], row("passes", "get", "reply", (3000 << 10) + head));
    // The value has small elements, but is large as a whole.
    for _ in 0..20 {
        direct.command(&["RPUSH", "long", &of(10)]);
    }
    assert_eq!(client.words("LRANGE long 0 -1").array().len(), 20);
    let told = big(&keyway, "servers");
    let long = told.iter().find(|it| it.0 == "long").expect("it is large");
    assert_eq!((long.1.as_str(), long.2.as_str()), ("lrange", "reply"));
    assert!(long.3 > 200 << 10, "{told:?}");
    let mut client = keyway.client(1);
    for _ in 0..8 {
        client.command(&["RPUSH", "list", &of(10)]);
    }
    assert_eq!(big(&keyway, "store"), []);
    client.words("LRANGE list 0 -1");
    let told = big(&keyway, "store");
    assert_eq!((told.len(), told[0].0.as_str(), told[0].2.as_str()), (1, "list", "reply"));
    assert!(told[0].3 > 80 << 10, "{told:?}");
    let mut items = keyway.memcached_client(2);
    let line = format!("set item 0 0 {}\r\n{}\r\n", 90 << 10, of(90));
    assert_eq!(items.ask(line.as_bytes()), b"STORED\r\n");
    assert_eq!(big(&keyway, "items"), [row("item", "set", "request", 90 << 10)]);
    items.ask(b"get item\r\n");
    assert_eq!(big(&keyway, "items")[0].2, "reply", "with what frames it, it is larger");
}

#[test]
fn keys_of_servers_of_memcached_stand_out_as_well() {
    let _watch = watchdog(WITHIN, "keys of memcached");
    if !has_memcached("hot keys of memcached") {
        return;
    }
    let servers = MemcachedServer::start_many(2);
    let pool = Pool::memcached("items", &servers).spoken_to_in("memcached");
    let config = KeywayConfig::new(vec![pool]).with_tables("[limits]\nhot_keys_every = 2\n");
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.memcached_client(0);
    let line = format!("set page 0 0 {}\r\n{}\r\n", 90 << 10, "v".repeat(90 << 10));
    assert_eq!(client.ask(line.as_bytes()), b"STORED\r\n");
    for nth in 0..400 {
        let key = if nth % 2 == 0 { "popular".to_owned() } else { format!("rare:{nth}") };
        client.ask(format!("get {key}\r\n").as_bytes());
    }
    let keys = of_pool(&keyway, "items");
    assert_eq!(names(&keys["reads"]["keys"]), ["popular"], "{keys}");
    assert_eq!(big(&keyway, "items"), [row("page", "set", "request", 90 << 10)]);
    client.ask(b"get page\r\n");
    let told = big(&keyway, "items");
    assert_eq!(
        (told[0].0.as_str(), told[0].1.as_str(), told[0].2.as_str()),
        ("page", "get", "reply")
    );
}

/// Returns the latest slow request.
fn slow(keyway: &Keyway) -> Option<Json> {
    let mut all = told(keyway, "/v1/slow-log?limit=1");
    all["requests"].get_mut(0).map(Json::take)
}

fn micros(request: &Json, hop: &str) -> u64 {
    request[hop].as_u64().unwrap_or_else(|| panic!("{hop} in {request}"))
}

#[test]
fn the_time_until_a_client_has_its_reply_is_told_apart_from_that_of_its_server() {
    const LONG: u64 = 400_000;
    let _watch = watchdog(WITHIN, "hops of a slow request");
    let server = RedisServer::start();
    let pool = Pool::over("servers", std::slice::from_ref(&server))
        .with("slowlog_log_slower_than", "\"100ms\"")
        .with("timeout", "\"20s\"");
    let config = KeywayConfig::new(vec![pool]).with_server("log", "{ level = \"debug\" }");
    let keyway = Keyway::start(KEYWAY, config);
    let script = "local s = redis.call('TIME') local b = s[1] * 1000000 + s[2] repeat \
                  local t = redis.call('TIME') until t[1] * 1000000 + t[2] - b > 400000 \
                  return string.rep('x', tonumber(ARGV[1]))";
    let mut client = keyway.client(0);
    assert_eq!(client.command(&["EVAL", script, "1", "k", "1"]), Value::bulk("x"));
    let is_whole = || slow(&keyway).filter(|it| it["write_us"].is_u64());
    let request = wait_for("a slow server", SOON, is_whole);
    assert!(micros(&request, "server_us") >= LONG, "{request}");
    assert!(micros(&request, "write_us") < LONG / 2, "{request}");
    adds_up(&request);
    // The reply is longer than sockets hold, and the client does not read for a while. A string
    // would be streamed, and would not be whole before it is read. An array is kept.
    let kept = script.replace("return string", "return {string") + "}";
    let len = 48 << 20;
    client.send(&encode(&["EVAL", &kept, "1", "k", &len.to_string()]));
    let is_unwritten = || slow(&keyway).filter(|it| it["write_us"].is_null());
    let request = wait_for("a reply that is not read", SOON, is_unwritten);
    assert!(micros(&request, "server_us") >= LONG, "{request}");
    let (since, trace) = (Instant::now(), request["trace"].clone());
    wait_until("a while", SOON, || since.elapsed() > Duration::from_micros(LONG));
    assert!(is_unwritten().is_some(), "it is told of as long as it lasts");
    assert_eq!(client.reply().array()[0].bytes().len(), len);
    let request = wait_for("the end", SOON, is_whole);
    assert_eq!(request["trace"], trace);
    assert!(micros(&request, "write_us") >= LONG, "{request}");
    adds_up(&request);
    let trace = format!("trace=\"{}\"", trace.as_str().expect("text"));
    let log = keyway.process().log();
    let line = log.lines().find(|line| line.contains(&trace)).expect("a line of the log");
    assert!(line.contains(&format!("write_us={}", micros(&request, "write_us"))), "{line}");
    // A request whose client leaves without reading is logged without that time.
    client.send(&encode(&["EVAL", &kept, "1", "k", &len.to_string()]));
    wait_for("another", SOON, || is_unwritten().filter(|it| it["trace"] != request["trace"]));
    client.reset();
    wait_until("it has left", SOON, || told(&keyway, "/v1/status")["clients"] == 0);
    assert!(is_unwritten().is_some());
    assert_eq!(keyway.client(0).words("PING"), Value::simple("PONG"));
}

fn adds_up(request: &Json) {
    let hops = ["queue_us", "server_us", "receive_us", "write_us"];
    let sum: u64 = hops.into_iter().map(|hop| micros(request, hop)).sum();
    assert_eq!(sum, micros(request, "total_us"), "{request}");
}
