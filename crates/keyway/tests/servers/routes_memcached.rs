//! Pools that lead to others, for clients of memcached, over servers that are killed, stopped and
//! started again.
#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use keyway_testkit::{
    Keyway, KeywayConfig, MemcachedClient, MemcachedServer, Pool, has_memcached, wait_until,
    watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const WITHIN: Duration = Duration::from_secs(20);

fn routed(name: &str, kind: &str, settings: &[(&str, &str)]) -> Pool {
    let pool = Pool::of_kind(name, kind).spoken_to_in("memcached");
    settings.iter().fold(pool, |pool, (name, value)| pool.with(name, value))
}

/// Returns a pool with short timeouts.
fn pool(name: &str, servers: &[MemcachedServer]) -> Pool {
    Pool::memcached(name, servers)
        .with("hash", "\"md5\"")
        .with("timeout", "\"300ms\"")
        .with("connect_timeout", "\"300ms\"")
        .with("reconnect", "{ min = \"10ms\", max = \"100ms\" }")
}

fn start(pools: Vec<Pool>) -> Keyway {
    Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "2"))
}

fn is_missing() -> bool {
    !has_memcached("pools of memcached that lead to others")
}

fn metric(keyway: &Keyway, name: &str, pool: &str) -> f64 {
    keyway.metrics().sum(&format!("keyway_route_{name}_total"), &[&format!("pool=\"{pool}\"")])
}

/// Returns the seconds that a key has left on a server.
fn time_left(server: &MemcachedServer, key: &str) -> i64 {
    let told = server.client().say(&format!("mg {key} t\r\n"));
    let told = told.trim().strip_prefix("HD t").unwrap_or_else(|| panic!("{key}: {told}"));
    told.parse().expect("a number")
}

#[test]
fn the_longest_prefix_chooses_the_pool() {
    let _watch = watchdog(Duration::from_secs(60), "prefixes");
    if is_missing() {
        return;
    }
    let servers = MemcachedServer::start_many(2);
    let routes = "[{ prefix = \"u:\", pool = \"a\" }, { prefix = \"u:x:\", pool = \"local\" }, \
                  { prefix = \"b:\", pool = \"b\" }]";
    let keyway = start(vec![
        routed("strict", "prefix", &[("routes", routes)]),
        routed("all", "prefix", &[("routes", routes), ("default", "\"b\"")]),
        Pool::memcached("a", &servers[..1]),
        Pool::memcached("b", &servers[1..]),
        Pool::store("local").spoken_to_in("memcached"),
    ]);
    let (mut strict, mut all) = (keyway.memcached_client(0), keyway.memcached_client(1));
    for key in ["u:1", "u:x:1", "b:1"] {
        assert_eq!(strict.say(&format!("set {key} 3 0 2\r\nhi\r\n")), "STORED\r\n");
    }
    assert_eq!(all.say("set other 0 0 1\r\no\r\n"), "STORED\r\n");
    let hit = |key: &str| format!("VALUE {key} 3 2\r\nhi\r\n");
    assert_eq!(servers[0].client().say("get u:1 u:x:1 b:1\r\n"), format!("{}END\r\n", hit("u:1")));
    let there = servers[1].client().say("get u:1 u:x:1 b:1 other\r\n");
    assert_eq!(there, format!("{}VALUE other 0 1\r\no\r\nEND\r\n", hit("b:1")));
    let mut local = keyway.memcached_client(4);
    assert_eq!(local.say("get u:1 u:x:1\r\n"), format!("{}END\r\n", hit("u:x:1")));
    // The keys belong to three pools. The reply is in the order of the keys, pipelined after and
    // before others.
    let many = format!("{}{}{}END\r\n", hit("b:1"), hit("u:1"), hit("u:x:1"));
    assert_eq!(all.say("get b:1 nil u:1 u:x:1\r\n"), many);
    let stream = "set u:1 0 0 1\r\nN\r\nget b:1 u:1\r\nset u:1 0 0 1\r\nM\r\nget u:1\r\n";
    let expected = format!(
        "STORED\r\n{}VALUE u:1 0 1\r\nN\r\nEND\r\nSTORED\r\nVALUE u:1 0 1\r\nM\r\nEND\r\n",
        hit("b:1")
    );
    assert_eq!(all.say(stream), expected);
    let refused = strict.say("get other\r\nget u:1 other\r\nget b:1\r\n");
    let lines: Vec<&str> = refused.lines().collect();
    let no_route = "SERVER_ERROR no route: the key begins with none of the prefixes of \
                    [pool.strict], which has no default";
    assert_eq!(lines, [no_route, no_route, "VALUE b:1 3 2", "hi", "END"]);
    assert!(strict.say("flush_all\r\n").starts_with("CLIENT_ERROR flush_all is refused: [pool."));
    assert!(strict.say("stats\r\n").contains("STAT route_kind prefix\r\nSTAT route_children"));
    for word in ["items", "detail dump", "cachedump 1 10"] {
        assert_eq!(strict.say(&format!("stats {word}\r\n")), "END\r\n", "{word}");
    }
}

#[test]
fn no_more_requests_are_let_through_than_the_rate_allows() {
    let _watch = watchdog(Duration::from_secs(60), "a rate limit");
    if is_missing() {
        return;
    }
    let servers = MemcachedServer::start_many(1);
    let settings = [("child", "\"a\""), ("requests_per_second", "2000"), ("burst", "50")];
    let keyway =
        start(vec![routed("limited", "rate-limited", &settings), Pool::memcached("a", &servers)]);
    let began = Instant::now();
    let ask = |mut client: MemcachedClient| {
        let (mut served, mut refused) = (0u64, 0u64);
        while began.elapsed() < Duration::from_secs(3) {
            let said = client.say(&"get k\r\n".repeat(20));
            served += said.matches("END\r\n").count() as u64;
            refused += said.matches("SERVER_ERROR rate limited: ").count() as u64;
        }
        (served, refused)
    };
    // The clients are on both workers.
    let clients: Vec<_> = (0..4).map(|_| keyway.memcached_client(0)).collect();
    let (served, refused) = std::thread::scope(|scope| {
        let threads: Vec<_> =
            clients.into_iter().map(|client| scope.spawn(move || ask(client))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    });
    let expected = began.elapsed().as_secs_f64() * 2000.0 + 50.0;
    let share = served as f64 / expected;
    assert!((0.9..=1.1).contains(&share), "{served} of {expected} in {:?}", began.elapsed());
    assert!(refused > 0);
    assert_eq!(metric(&keyway, "rate_limited_requests", "limited"), refused as f64);
}

#[test]
fn what_a_dead_server_had_goes_to_the_gutter_for_a_short_time() {
    let _watch = watchdog(Duration::from_secs(120), "fail-over");
    if is_missing() {
        return;
    }
    let mut main = MemcachedServer::start_many(2);
    let gutter = MemcachedServer::start_many(1);
    let children =
        [("children", "[\"main\"]"), ("gutter", "\"gutter\""), ("gutter_ttl_max", "\"7s\"")];
    let keyway = start(vec![
        routed("cache", "failover", &children),
        pool("main", &main),
        pool("gutter", &gutter),
    ]);
    let mut client = keyway.memcached_client(0);
    let keys: Vec<String> = (0..40).map(|nth| format!("key{nth}")).collect();
    for key in &keys {
        assert_eq!(client.say(&format!("set {key} 5 100 1\r\nm\r\n")), "STORED\r\n");
    }
    assert_eq!(gutter[0].client().say("get key0 key1 key2\r\n"), "END\r\n");
    let (dead, alive): (Vec<&String>, Vec<&String>) =
        keys.iter().partition(|key| main[0].client().say(&format!("get {key}\r\n")) != "END\r\n");
    assert!(!dead.is_empty() && !alive.is_empty());
    main[0].kill();
    for (nth, key) in dead.iter().enumerate() {
        assert_eq!(client.say(&format!("get {key}\r\n")), "END\r\n");
        let expiry = [0, 3, 100][nth % 3];
        assert_eq!(client.say(&format!("set {key} 9 {expiry} 1\r\ng\r\n")), "STORED\r\n");
        assert_eq!(
            client.say(&format!("get {key}\r\n")),
            format!("VALUE {key} 9 1\r\ng\r\nEND\r\n")
        );
        let left = time_left(&gutter[0], key);
        let most = if expiry == 3 { 3 } else { 7 };
        assert!((most - 2..=most).contains(&left), "{key}: {left} of {most}");
    }
    // All protocols are tested, and quiet requests.
    let key = dead[0];
    assert_eq!(client.say(&format!("ms {key} 2 T0 O77\r\nhi\r\n")), "HD O77\r\n");
    assert!((5..=7).contains(&time_left(&gutter[0], key)));
    assert_eq!(
        client.say(&format!("ms {key} 2 q\r\nho\r\nmg {key} v k q\r\nmg gone-{key} v q\r\n")),
        format!("VA 2 k{key}\r\nho\r\n")
    );
    assert_eq!(
        client.say(&format!("set {key} 0 0 1 noreply\r\nq\r\nget {key}\r\n")),
        format!("VALUE {key} 0 1\r\nq\r\nEND\r\n")
    );
    assert_eq!(client.say(&format!("touch {key} 1000\r\n")), "TOUCHED\r\n");
    assert!((5..=7).contains(&time_left(&gutter[0], key)));
    // Nothing was sent, so the number may be changed in another pool.
    assert_eq!(client.say(&format!("set {key} 0 0 1\r\n5\r\nincr {key} 2\r\n")), "STORED\r\n7\r\n");
    // Of many keys only those of the dead server are looked up in the gutter.
    let request = format!("get {} {} {}\r\n", dead[1], alive[0], dead[2]);
    let expected = format!(
        "VALUE {} 9 1\r\ng\r\nVALUE {} 5 1\r\nm\r\nVALUE {} 9 1\r\ng\r\nEND\r\n",
        dead[1], alive[0], dead[2]
    );
    assert_eq!(client.say(&request), expected);
    assert_eq!(gutter[0].client().say(&format!("get {}\r\n", alive[0])), "END\r\n");
    assert!(metric(&keyway, "failovers", "cache") > dead.len() as f64);
    main[0].restart();
    wait_until("the server to be used again", WITHIN, || {
        client.say(&format!("get {}\r\n", dead[1])) == "END\r\n"
    });
}

#[test]
fn what_may_have_been_executed_is_repeated_only_where_that_does_no_harm() {
    let _watch = watchdog(Duration::from_secs(60), "a server that hangs");
    if is_missing() {
        return;
    }
    let (main, spare) = (MemcachedServer::start(), MemcachedServer::start());
    let children = [("children", "[\"main\", \"spare\"]")];
    let keyway = start(vec![
        routed("cache", "failover", &children),
        pool("main", std::slice::from_ref(&main)),
        pool("spare", std::slice::from_ref(&spare)),
    ]);
    let mut client = keyway.memcached_client(0);
    spare.client().say("set n 0 0 1\r\n1\r\nset a 0 0 1\r\n1\r\n");
    assert_eq!(client.say("set n 0 0 1\r\n5\r\n"), "STORED\r\n");
    main.process().pause();
    // In a pipeline each reply is in its place, whether its request failed or not.
    let said =
        client.say("set k 0 0 1\r\nx\r\nincr n 1\r\nget a\r\nappend a 0 0 1\r\nz\r\ndelete k\r\n");
    main.process().resume();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "STORED", "{said}");
    assert!(lines[1].starts_with("SERVER_ERROR backend "), "{said}");
    assert!(
        lines[1].ends_with("did not answer in time; the request may have been executed"),
        "{said}"
    );
    assert_eq!(lines[2..5], ["VALUE a 0 1", "1", "END"], "{said}");
    assert!(lines[5].starts_with("SERVER_ERROR backend "), "{said}");
    assert_eq!(lines[6], "DELETED", "{said}");
    assert_eq!(
        spare.client().say("get n a\r\n"),
        "VALUE n 0 1\r\n1\r\nVALUE a 0 1\r\n1\r\nEND\r\n"
    );
}

#[test]
fn a_mirror_serves_with_a_dead_server_and_counts_what_it_lacks() {
    let _watch = watchdog(Duration::from_secs(60), "a mirror");
    if is_missing() {
        return;
    }
    let (mut first, second) = (MemcachedServer::start(), MemcachedServer::start());
    let children =
        |wait| [("children", "[\"one\", \"two\"]"), ("read_from", "\"one\""), ("wait", wait)];
    let keyway = start(vec![
        routed("all", "mirror", &children("\"all\"")),
        routed("first", "mirror", &children("\"first\"")),
        pool("one", std::slice::from_ref(&first)),
        pool("two", std::slice::from_ref(&second)),
    ]);
    let (mut all, mut quick) = (keyway.memcached_client(0), keyway.memcached_client(1));
    assert_eq!(all.say("set k 1 0 1\r\na\r\n"), "STORED\r\n");
    assert_eq!(quick.say("set q 1 0 1\r\nb\r\n"), "STORED\r\n");
    for server in [&first, &second] {
        let both = "VALUE k 1 1\r\na\r\nVALUE q 1 1\r\nb\r\nEND\r\n";
        wait_until("both to have it", WITHIN, || server.client().say("get k q\r\n") == both);
    }
    second.client().say("set other 0 0 1\r\n2\r\n");
    assert_eq!(all.say("get other\r\n"), "END\r\n");
    first.kill();
    assert_eq!(all.say("get k other\r\n"), "VALUE k 1 1\r\na\r\nVALUE other 0 1\r\n2\r\nEND\r\n");
    assert_eq!(all.say("set k 1 0 1\r\nc\r\nincr other 3\r\n"), "STORED\r\n5\r\n");
    assert_eq!(quick.say("delete q\r\nget q\r\n"), "DELETED\r\nEND\r\n");
    assert!(metric(&keyway, "child_failures", "all") >= 3.0);
    assert!(keyway.process().log().contains("a child could not serve a request"));
    // A write does not wait for a server that hangs.
    first.restart();
    wait_until("the server to be used again", WITHIN, || all.say("get k\r\n") == "END\r\n");
    second.process().pause();
    // If it waited for that server, it would do so each time.
    wait_until("a write that does not wait", WITHIN, || {
        let began = Instant::now();
        let said = quick.say("set w 0 0 1\r\nx\r\nget w\r\n");
        said == "STORED\r\nVALUE w 0 1\r\nx\r\nEND\r\n"
            && began.elapsed() < Duration::from_millis(250)
    });
    let began = Instant::now();
    assert_eq!(all.say("set w 0 0 1\r\ny\r\n"), "STORED\r\n");
    assert!(began.elapsed() >= Duration::from_millis(250), "{:?}", began.elapsed());
    second.process().resume();
}

#[test]
fn a_stopped_shadow_slows_nobody() {
    let _watch = watchdog(Duration::from_secs(60), "a shadow");
    if is_missing() {
        return;
    }
    let (main, shadow) = (MemcachedServer::start(), MemcachedServer::start());
    let settings = |percent, max| {
        [("main", "\"main\""), ("shadow", "\"copy\""), ("percent", percent), ("in_flight_max", max)]
    };
    let keyway = start(vec![
        routed("half", "shadow", &settings("50", "1000")),
        routed("full", "shadow", &settings("100", "10")),
        pool("main", std::slice::from_ref(&main)),
        pool("copy", std::slice::from_ref(&shadow)).with("timeout", "\"5s\""),
    ]);
    let mut half = keyway.memcached_client(0);
    for nth in 0..400 {
        assert_eq!(half.say(&format!("set key{nth} 0 0 1\r\nx\r\n")), "STORED\r\n");
    }
    let copied = metric(&keyway, "shadowed_requests", "half");
    assert!((140.0..=260.0).contains(&copied), "{copied}");
    let count = || {
        let told = shadow.client().say("stats\r\n");
        let line = told.lines().find_map(|line| line.strip_prefix("STAT curr_items "));
        line.unwrap().parse::<f64>().unwrap()
    };
    wait_until("the shadow to have them", WITHIN, || count() == copied);
    shadow.process().pause();
    let mut full = keyway.memcached_client(1);
    let began = Instant::now();
    for nth in 0..300 {
        assert_eq!(full.say(&format!("set new{nth} 0 0 1\r\nx\r\n")), "STORED\r\n");
    }
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(metric(&keyway, "shadowed_requests", "full"), 10.0);
    assert_eq!(metric(&keyway, "shadow_dropped_requests", "full"), 290.0);
    shadow.process().resume();
    wait_until("copies to be taken again", WITHIN, || {
        full.say("get new0\r\n");
        metric(&keyway, "shadowed_requests", "full") > 20.0
    });
}

#[test]
fn what_misses_is_looked_up_further_and_filled_in() {
    let _watch = watchdog(Duration::from_secs(60), "fills");
    if is_missing() {
        return;
    }
    let (near, far) = (MemcachedServer::start(), MemcachedServer::start());
    let children = ("children", "[\"near\", \"far\"]");
    let filling = [children, ("fill", "true"), ("fill_ttl_max", "\"50s\"")];
    let keyway = start(vec![
        routed("plain", "miss-then", &[children]),
        routed("filling", "miss-then", &filling),
        pool("near", std::slice::from_ref(&near)),
        pool("far", std::slice::from_ref(&far)),
    ]);
    far.client().say("set a 7 0 1\r\n1\r\nset b 8 20 1\r\n2\r\nset c 9 500 1\r\n3\r\n");
    let mut plain = keyway.memcached_client(0);
    let mut filling = keyway.memcached_client(1);
    let items = "VALUE a 7 1\r\n1\r\nVALUE b 8 1\r\n2\r\nVALUE c 9 1\r\n3\r\nEND\r\n";
    assert_eq!(plain.say("get a no b c\r\n"), items);
    assert_eq!(near.client().say("get a b c\r\n"), "END\r\n");
    assert_eq!(filling.say("get a\r\n"), "VALUE a 7 1\r\n1\r\nEND\r\n");
    assert_eq!(filling.say("get a no b c\r\n"), items);
    wait_until("them to be filled in", WITHIN, || near.client().say("get a b c\r\n") == items);
    for (key, most) in [("a", 50), ("b", 20), ("c", 50)] {
        let left = time_left(&near, key);
        assert!((most - 5..=most).contains(&left), "{key}: {left}");
    }
    // The server has an item before its reply arrives.
    wait_until("all are counted", WITHIN, || metric(&keyway, "stored_fills", "filling") == 3.0);
    // Only missing items are looked up further on.
    near.client().say("set b 0 0 1\r\nn\r\n");
    assert_eq!(plain.say("get c b\r\n"), "VALUE c 9 1\r\n3\r\nVALUE b 0 1\r\nn\r\nEND\r\n");
    // Writes go to both pools, and a delete removes the item everywhere.
    assert_eq!(
        filling.say("set d 0 0 1\r\n4\r\ndelete a\r\nget a\r\n"),
        "STORED\r\nDELETED\r\nEND\r\n"
    );
    assert_eq!(far.client().say("get a d\r\n"), "VALUE d 0 1\r\n4\r\nEND\r\n");
    // Packets return version numbers.
    far.client().say("set p 33 0 3\r\nabc\r\n");
    let get = keyway_testkit::memcached_packet(0x00, 0, b"", b"p", b"");
    let said = keyway.memcached_client(1).ask(&get);
    assert!(said.ends_with(b"\0\0\0\x21abc"), "{}", said.escape_ascii());
    let there = "VALUE p 33 3\r\nabc\r\nEND\r\n";
    wait_until("it to be filled in", WITHIN, || near.client().say("get p\r\n") == there);
    // A dead server is like one without items.
    drop(far);
    assert_eq!(plain.say("get p no\r\n"), there);
    drop(near);
    assert!(plain.say("get p\r\n").starts_with("SERVER_ERROR backend "));
}

#[test]
fn kinds_nest_and_clients_may_leave_at_any_time() {
    let _watch = watchdog(Duration::from_secs(120), "nested pools");
    if is_missing() {
        return;
    }
    let mut servers = MemcachedServer::start_many(4);
    let keyway = start(vec![
        routed(
            "top",
            "rate-limited",
            &[("child", "\"shadowed\""), ("requests_per_second", "1000000")],
        ),
        routed("shadowed", "shadow", &[("main", "\"by-prefix\""), ("shadow", "\"d\"")]),
        routed(
            "by-prefix",
            "prefix",
            &[("routes", "[{ prefix = \"m:\", pool = \"twins\" }]"), ("default", "\"spared\"")],
        ),
        routed("spared", "failover", &[("children", "[\"twins\"]"), ("gutter", "\"c\"")]),
        routed("twins", "mirror", &[("children", "[\"a\", \"b\"]")]),
        pool("a", &servers[..1]),
        pool("b", &servers[1..2]),
        pool("c", &servers[2..3]),
        pool("d", &servers[3..]),
    ]);
    let mut client = keyway.memcached_client(0);
    assert_eq!(client.say("set m:1 0 0 1\r\n1\r\nset x 0 0 1\r\n2\r\n"), "STORED\r\nSTORED\r\n");
    let both = "VALUE m:1 0 1\r\n1\r\nVALUE x 0 1\r\n2\r\nEND\r\n";
    for server in [0, 1, 3] {
        wait_until("all to have it", WITHIN, || {
            servers[server].client().say("get m:1 x\r\n") == both
        });
    }
    servers[0].kill();
    assert_eq!(client.say("get m:1 x\r\n"), both);
    servers[1].kill();
    assert_eq!(
        client.say("set x 0 0 1\r\n3\r\nget x\r\n"),
        "STORED\r\nVALUE x 0 1\r\n3\r\nEND\r\n"
    );
    assert!((1..=10).contains(&time_left(&servers[2], "x")));
    let said = client.say("get m:1\r\n");
    assert!(said.starts_with("SERVER_ERROR backend 127.0.0.1"), "{said}");
    // Clients that leave while they wait cost nothing later.
    servers[2].process().pause();
    for _ in 0..50 {
        keyway.memcached_client(0).send(b"get x\r\nset x 0 0 1\r\n9\r\nget x m:1 y\r\n");
    }
    servers[2].process().resume();
    servers[0].restart();
    servers[1].restart();
    wait_until("the servers to be used again", WITHIN, || {
        client.say("set z 0 0 1\r\n1\r\n") == "STORED\r\n"
            && servers[1].client().say("get z\r\n") != "END\r\n"
    });
    let (status, log) = keyway.stop(WITHIN);
    assert!(status.success(), "{log}");
}

#[test]
fn what_slow_children_hold_is_bounded_and_nothing_is_lost() {
    let _watch = watchdog(Duration::from_secs(120), "a bound on what is held");
    if is_missing() {
        return;
    }
    let (one, two) = (MemcachedServer::start(), MemcachedServer::start());
    let slow = |name, server| pool(name, std::slice::from_ref(server)).with("timeout", "\"60s\"");
    let keyway = start(vec![
        routed("both", "mirror", &[("children", "[\"one\", \"two\"]")]),
        slow("one", &one),
        slow("two", &two),
    ]);
    two.process().pause();
    let value = "v".repeat(700_000);
    let stream: String =
        (0..60).map(|nth| format!("set key{} 0 0 700000\r\n{value}\r\n", nth % 7)).collect();
    let clients: Vec<MemcachedClient> = (0..4).map(|_| keyway.memcached_client(0)).collect();
    std::thread::scope(|scope| {
        for mut client in clients {
            let stream = &stream;
            scope.spawn(move || {
                client.set_reply_within(Duration::from_secs(60));
                assert_eq!(client.say(stream), "STORED\r\n".repeat(60));
            });
        }
        // By then a worker holds as much as it may.
        wait_until("clients to be left unread", WITHIN, || {
            keyway.metrics().sum("keyway_client_pauses_total", &["pool=\"both\""]) > 0.0
        });
        two.process().resume();
    });
    for key in 0..7 {
        let get = format!("get key{key}\r\n");
        assert_eq!(one.client().say(&get), two.client().say(&get));
    }
}

/// Length of a value that is one byte too long for memcached's own default.
const TOO_LONG: usize = (1 << 20) + 1;

fn too_long(key: &str) -> Vec<u8> {
    [format!("set {key} 0 0 {TOO_LONG}\r\n").into_bytes(), vec![b'v'; TOO_LONG], b"\r\n".to_vec()]
        .concat()
}

#[test]
fn a_value_that_is_refused_for_its_length_is_forgotten_by_a_shadow_too() {
    let _watch = watchdog(Duration::from_secs(60), "refused values and shadows");
    if is_missing() {
        return;
    }
    let (main, shadow) = (MemcachedServer::start(), MemcachedServer::start());
    let settings =
        [("main", "\"main\""), ("shadow", "\"copy\""), ("percent", "100"), ("in_flight_max", "1")];
    let keyway = start(vec![
        routed("watched", "shadow", &settings),
        pool("main", std::slice::from_ref(&main)),
        pool("copy", std::slice::from_ref(&shadow)),
    ]);
    let mut client = keyway.memcached_client(0);
    let is_there = |key: &str| shadow.client().say(&format!("get {key}\r\n")) != "END\r\n";
    assert_eq!(client.say("set k 0 0 1\r\n1\r\n"), "STORED\r\n");
    wait_until("the copy", WITHIN, || is_there("k"));
    // Keyway may notice the end of a copy later than this test, and drops what comes before.
    wait_until("the shadow to forget it", WITHIN, || {
        client.send(&too_long("k"));
        assert_eq!(client.line(), "SERVER_ERROR object too large for cache");
        !is_there("k")
    });
    assert_eq!(main.client().say("get k\r\n"), "END\r\n");
    wait_until("the next copy", WITHIN, || {
        assert_eq!(client.say("set k2 0 0 1\r\n2\r\n"), "STORED\r\n");
        is_there("k2")
    });
}

#[test]
fn a_binary_value_that_is_refused_for_its_length_is_forgotten_by_all_children() {
    let _watch = watchdog(Duration::from_secs(60), "refused binary values");
    if is_missing() {
        return;
    }
    let servers = MemcachedServer::start_many(2);
    let keyway = start(vec![
        routed("twins", "mirror", &[("children", "[\"a\", \"b\"]")]),
        pool("a", &servers[..1]),
        pool("b", &servers[1..]),
    ]);
    for server in &servers {
        assert_eq!(server.client().say("set k 0 0 1\r\n1\r\n"), "STORED\r\n");
    }
    let mut client = keyway.memcached_client(0);
    let body_len = (8 + 1 + TOO_LONG) as u32;
    let head = [&[0x80, 1, 0, 1, 8, 0, 0, 0][..], &body_len.to_be_bytes()].concat();
    client.send(&[&head[..], &[0; 12], &[0; 8], b"k", &vec![b'v'; TOO_LONG]].concat());
    let noop = [&[0x80, 10][..], &[0; 22]].concat();
    client.send(&noop);
    let reply = client.packet();
    assert_eq!((reply[1], reply[7]), (1, 3), "{}", reply.escape_ascii());
    let reply = client.packet();
    assert_eq!((reply[1], reply[7]), (10, 0), "{}", reply.escape_ascii());
    for server in &servers {
        assert_eq!(server.client().say("get k\r\n"), "END\r\n");
    }
}

#[test]
fn what_waits_for_a_full_link_is_not_overtaken_by_what_its_client_sends_later() {
    let _watch = watchdog(Duration::from_secs(60), "a full link");
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = format!("[\"{}:1\"]", server.local_addr().unwrap());
    let slow = Pool::of_kind("slow", "memcached").spoken_to_in("memcached");
    let slow = slow.with("servers", &servers);
    let pools = vec![
        routed("twins", "mirror", &[("children", "[\"slow\", \"local\"]")]),
        slow.with("timeout", "\"30s\""),
        Pool::store("local").spoken_to_in("memcached"),
    ];
    let config = KeywayConfig::new(pools).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config.with_tables("[limits]\nlink_in_flight_max = 16\n"));
    let (mut client, mut filler) = (keyway.memcached_client(0), keyway.memcached_client(1));
    filler.send(&b"get f\r\n".repeat(16));
    let (stream, _) = server.accept().unwrap();
    let (mut lines, mut answers) = (BufReader::new(stream.try_clone().unwrap()), stream);
    let mut line = || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(line(), "version\r\n");
    answers.write_all(b"VERSION 1.6.38\r\n").unwrap();
    (0..16).for_each(|_| assert_eq!(line(), "get f\r\n"));
    let (first, second) = (b"set k 0 0 1\r\n1\r\n", b"set k 0 0 1\r\n2\r\n");
    let is_taken = |bytes: usize| {
        let name = "keyway_client_received_bytes_total";
        keyway.metrics().sum(name, &["pool=\"twins\""]) >= bytes as f64
    };
    client.send(first);
    wait_until("the first to be taken", WITHIN, || is_taken(first.len()));
    // There is room, but not enough for the waiting clients to go on.
    answers.write_all(b"END\r\n").unwrap();
    assert_eq!(filler.line(), "END");
    client.send(second);
    wait_until("the second to be taken", WITHIN, || is_taken(first.len() + second.len()));
    let mut stored = Vec::new();
    answers.write_all(&b"END\r\n".repeat(15)).unwrap();
    while stored.len() < 2 {
        let is_set = line().starts_with("set k ");
        if is_set {
            stored.push(line().trim().to_owned());
        }
        answers.write_all(if is_set { b"STORED\r\n" } else { b"END\r\n" }).unwrap();
    }
    assert_eq!(stored, ["1", "2"]);
}

#[test]
fn a_delete_is_not_overtaken_by_a_fill_further_down() {
    let _watch = watchdog(Duration::from_secs(60), "fills further down");
    if is_missing() {
        return;
    }
    let servers = MemcachedServer::start_many(3);
    let children = ("children", "[\"near\", \"far\"]");
    let keyway = start(vec![
        routed("top", "failover", &[("children", "[\"layers\", \"spare\"]")]),
        routed("layers", "miss-then", &[children, ("fill", "true")]),
        pool("near", &servers[..1]),
        pool("far", &servers[1..2]).with("server_protocol", "\"text\""),
        pool("spare", &servers[2..]),
    ]);
    let mut client = keyway.memcached_client(0);
    for round in 0..20 {
        let key = format!("k{round}");
        servers[1].client().say(&format!("set {key} 0 0 1\r\n1\r\n"));
        let told = client.say(&format!("get {key}\r\ndelete {key}\r\n"));
        assert_eq!(told, format!("VALUE {key} 0 1\r\n1\r\nEND\r\nDELETED\r\n"));
        assert_eq!(client.say(&format!("get {key}\r\n")), "END\r\n");
    }
}
