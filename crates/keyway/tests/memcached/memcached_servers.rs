//! Pools of memcached servers that fail, come back, want passwords and are asked for statistics.

use std::collections::BTreeMap;
use std::time::Duration;

use keyway_testkit::{
    Keyway, KeywayConfig, MemcachedClient, MemcachedServer, Pool, TempDir, has_memcached,
    memcached_packet, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(20);
const PROTOCOLS: [&str; 3] = ["meta", "text", "binary"];

/// Returns a pool over the servers for each protocol in which they can be asked.
fn pools(servers: &[MemcachedServer], settings: &[(&str, &str)]) -> Vec<Pool> {
    let pool = |protocol: &&str| {
        let pool = Pool::memcached(protocol, servers);
        let pool = pool.with("server_protocol", &format!("{protocol:?}"));
        settings.iter().fold(pool, |pool, (setting, value)| pool.with(setting, value))
    };
    PROTOCOLS.iter().map(pool).collect()
}

/// Returns a key that lives on this server, written through `client`.
fn key_on(client: &mut MemcachedClient, server: &MemcachedServer) -> String {
    let mut direct = server.client();
    let found = (0..200).map(|nth| format!("{nth}:key")).find(|key| {
        assert_eq!(client.say(&format!("set {key} 0 0 3\r\nold\r\n")), "STORED\r\n");
        direct.say(&format!("mg {key}\r\n")) == "HD\r\n"
    });
    found.expect("one key in 200 lives there")
}

#[test]
fn a_server_that_is_killed_is_named_and_the_others_go_on() {
    let _watch = watchdog(Duration::from_secs(60), "a killed server");
    if !has_memcached("a killed server") {
        return;
    }
    let mut servers = MemcachedServer::start_many(3);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools(&servers, &[])));
    let lost = key_on(&mut keyway.memcached_client(0), &servers[0]);
    let kept = key_on(&mut keyway.memcached_client(0), &servers[1]);
    servers[0].kill();
    let name = servers[0].address().to_string();
    for (index, protocol) in PROTOCOLS.iter().enumerate() {
        let mut client = keyway.memcached_client(index);
        let lines = [
            format!("get {lost}\r\n"),
            format!("mg {lost} v\r\n"),
            format!("set {lost} 0 0 1\r\nx\r\n"),
            format!("get {kept} {lost}\r\n"),
            format!("delete {lost}\r\n"),
        ];
        for line in &lines {
            let told = client.say(line);
            assert!(
                told.starts_with("SERVER_ERROR ") && told.contains(&name),
                "{protocol}: {line} -> {told}"
            );
            assert_eq!(told.matches("\r\n").count(), 1, "{protocol}: {line} -> {told}");
        }
        assert_eq!(client.say(&format!("set {lost} 0 0 1 noreply\r\nx\r\n")), "", "{protocol}");
        let told = client.say(&format!("get {kept}\r\nget {lost}\r\nmg {kept} v\r\n"));
        let (before, after) = told.split_once("SERVER_ERROR").expect("one fails");
        assert_eq!(before, format!("VALUE {kept} 0 3\r\nold\r\nEND\r\n"), "{protocol}");
        assert!(after.ends_with("VA 3\r\nold\r\n"), "{protocol}: {after}");
        let mut binary = keyway.memcached_client(index);
        binary.send(&memcached_packet(0x00, 0, &[], lost.as_bytes(), &[]));
        let packet = binary.packet();
        assert_eq!((packet[1], packet[6]), (0x00, 0), "{protocol}");
        assert!(packet[7] >= 0x80, "{protocol}: status {}", packet[7]);
        assert!(packet[24..].escape_ascii().to_string().contains(&name), "{protocol}");
        binary.send(&memcached_packet(0x00, 0, &[], kept.as_bytes(), &[]));
        assert!(binary.packet().ends_with(b"old"), "{protocol}");
    }
    servers[0].restart();
    for index in 0..PROTOCOLS.len() {
        let mut client = keyway.memcached_client(index);
        wait_until("it is used again", SOON, || {
            client.say(&format!("get {lost}\r\n")) == "END\r\n"
        });
    }
}

#[test]
fn an_ejected_server_leaves_its_keys_to_the_others_and_comes_back() {
    let _watch = watchdog(Duration::from_secs(90), "ejection");
    if !has_memcached("ejection") {
        return;
    }
    let mut servers = MemcachedServer::start_many(3);
    let ejection = [("ejection", "{ after_failures = 2, for = \"200ms\" }")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools(&servers, &ejection)));
    let mut clients: Vec<_> =
        (0..PROTOCOLS.len()).map(|index| keyway.memcached_client(index)).collect();
    let lost = key_on(&mut clients[0], &servers[0]);
    servers[0].kill();
    for (client, protocol) in clients.iter_mut().zip(PROTOCOLS) {
        wait_until("its keys go to the others", SOON, || {
            client.say(&format!("set {lost} 0 0 3\r\nnew\r\n")) == "STORED\r\n"
        });
        let told = client.say(&format!("get {lost}\r\n"));
        assert_eq!(told, format!("VALUE {lost} 0 3\r\nnew\r\nEND\r\n"), "{protocol}");
    }
    servers[0].restart();
    for client in &mut clients {
        wait_until("it serves again", SOON, || client.say(&format!("get {lost}\r\n")) == "END\r\n");
    }
    let log = keyway.process().log();
    assert!(log.contains("ejected"), "the log tells of it:\n{log}");
}

#[test]
fn flush_all_empties_every_server_where_that_is_allowed() {
    let _watch = watchdog(Duration::from_secs(60), "flush_all");
    if !has_memcached("flush_all") {
        return;
    }
    let servers = MemcachedServer::start_many(3);
    let config = KeywayConfig::new(pools(&servers, &[("allow_flush", "true")]));
    let keyway = Keyway::start(KEYWAY, config);
    for (index, protocol) in PROTOCOLS.iter().enumerate() {
        let mut client = keyway.memcached_client(index);
        let keys: Vec<String> = servers.iter().map(|one| key_on(&mut client, one)).collect();
        assert_eq!(client.say("flush_all\r\n"), "OK\r\n", "{protocol}");
        assert_eq!(client.say(&format!("get {}\r\n", keys.join(" "))), "END\r\n", "{protocol}");
        assert_eq!(client.say("set k 0 0 1\r\nx\r\nflush_all noreply\r\n"), "STORED\r\n");
        assert_eq!(client.say("get k\r\n"), "END\r\n", "{protocol}");
        // The flush takes effect later, not now.
        assert_eq!(client.say("set k 0 0 1\r\nx\r\nflush_all 1000\r\n"), "STORED\r\nOK\r\n");
        assert_eq!(client.say("get k\r\n"), "VALUE k 0 1\r\nx\r\nEND\r\n", "{protocol}");
        client.say("flush_all\r\n");
        let mut binary = keyway.memcached_client(index);
        binary.send(&memcached_packet(0x08, 0, &[], &[], &[]));
        assert_eq!(binary.packet()[6..8], [0, 0], "{protocol}");
    }
}

fn stats(client: &mut MemcachedClient, asked: &str) -> BTreeMap<String, String> {
    let told = client.say(asked);
    assert!(told.ends_with("END\r\n"), "{told}");
    let stat = |line: &str| {
        let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
        Some((name.to_owned(), value.to_owned()))
    };
    told.lines().filter_map(stat).collect()
}

#[test]
fn statistics_are_added_up_and_told_of_each_server() {
    let _watch = watchdog(Duration::from_secs(60), "stats");
    if !has_memcached("stats") {
        return;
    }
    let mut servers = MemcachedServer::start_many(3);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools(&servers, &[])));
    let mut client = keyway.memcached_client(0);
    let sets: String = (0..60).map(|nth| format!("set {nth}:stat 0 0 1\r\nx\r\n")).collect();
    client.say(&sets);
    for (index, protocol) in PROTOCOLS.iter().enumerate() {
        let mut client = keyway.memcached_client(index);
        let sums = stats(&mut client, "stats\r\n");
        assert_eq!(sums["servers"], "3", "{protocol}");
        assert_eq!(sums["servers_failed"], "0", "{protocol}");
        assert_eq!(sums["curr_items"], "60", "{protocol}");
        assert_eq!(sums["cmd_set"], "60", "{protocol}");
        assert!(!sums.contains_key("pid"), "{protocol}: a sum of pids");
        let each = stats(&mut client, "stats servers\r\n");
        let items = |server: &MemcachedServer| {
            let name = format!("{}:curr_items", server.address());
            let found = each.iter().find(|(key, _)| key.ends_with(&name));
            let found = found.unwrap_or_else(|| panic!("{protocol}: no {name} in {each:?}"));
            found.1.parse::<u32>().unwrap()
        };
        assert_eq!(servers.iter().map(items).sum::<u32>(), 60, "{protocol}");
        assert!(servers.iter().all(|server| items(server) > 0), "{protocol}");
        let settings = stats(&mut client, "stats settings\r\n");
        let ports = settings.keys().filter(|name| name.ends_with(":tcpport"));
        assert_eq!(ports.count(), 3, "{protocol}: {settings:?}");
        assert_eq!(client.say("stats nonsense\r\n"), "ERROR\r\n", "{protocol}");
        assert_eq!(client.say("stats detail on\r\n"), "OK\r\n", "{protocol}");
        client.say("get a:1\r\n");
        let detail = client.say("stats detail dump\r\n");
        assert!(detail.ends_with("END\r\n"), "{protocol}: {detail}");
        assert_eq!(client.say("stats detail off\r\n"), "OK\r\n", "{protocol}");
        let inside = client.say("stats sizes_enable\r\n");
        assert!(inside.starts_with("CLIENT_ERROR "), "{protocol}: {inside}");
        let mut binary = keyway.memcached_client(index);
        binary.send(&memcached_packet(0x10, 0, &[], &[], &[]));
        let mut names = Vec::new();
        loop {
            let packet = binary.packet();
            let len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            if len == 0 {
                break;
            }
            names.push(String::from_utf8_lossy(&packet[24..24 + len]).into_owned());
        }
        assert!(names.contains(&"curr_items".to_owned()), "{protocol}: {names:?}");
    }
    for index in 0..PROTOCOLS.len() {
        let mut client = keyway.memcached_client(index);
        assert_eq!(client.say("stats reset\r\n"), "RESET\r\n");
        assert_eq!(stats(&mut client, "stats\r\n")["cmd_set"], "0");
        let mut binary = keyway.memcached_client(index);
        binary.send(&memcached_packet(0x10, 0, &[], b"reset", &[]));
        assert_eq!(binary.packet()[1..8], [0x10, 0, 0, 0, 0, 0, 0]);
    }
    servers[2].kill();
    let mut client = keyway.memcached_client(0);
    wait_until("the failed one is counted", SOON, || {
        stats(&mut client, "stats\r\n")["servers_failed"] == "1"
    });
    let each = stats(&mut client, "stats servers\r\n");
    assert!(each.keys().any(|name| name.ends_with(":error")), "{each:?}");
}

#[test]
fn servers_that_want_a_password_get_it() {
    let _watch = watchdog(Duration::from_secs(60), "passwords of servers");
    if !has_memcached("passwords of servers") {
        return;
    }
    let directory = TempDir::new();
    let file = directory.write("auth", "keyway:sesame\nother:thing\n");
    let arguments = ["-Y", &file.to_string_lossy()];
    let servers: Vec<_> = (0..2).map(|_| MemcachedServer::start_with(&arguments)).collect();
    let mut stranger = servers[0].client();
    stranger.send(b"get k\r\n");
    assert_eq!(stranger.line(), "CLIENT_ERROR unauthenticated");
    let mut all = pools(&servers, &[("password", "\"sesame\"")])[..2].to_vec();
    let named = Pool::memcached("named", &servers);
    all.push(named.with("user", "\"other\"").with("password", "\"thing\""));
    all.push(Pool::memcached("wrong", &servers).with("password", "\"wrong\""));
    all.push(Pool::memcached("none", &servers));
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(all));
    for index in 0..3 {
        let mut client = keyway.memcached_client(index);
        let sets: String = (0..20).map(|nth| format!("set k{nth} 0 0 1\r\nx\r\n")).collect();
        assert_eq!(client.say(&sets), "STORED\r\n".repeat(20));
        assert_eq!(client.say("get k1 none\r\n"), "VALUE k1 0 1\r\nx\r\nEND\r\n");
    }
    for index in 3..5 {
        let told = keyway.memcached_client(index).say("get k1\r\n");
        let is_refused = told.starts_with("SERVER_ERROR ");
        assert!(is_refused && told.matches("\r\n").count() == 1, "{index}: {told}");
    }
    assert_refusal_is_told(&keyway, 3);
    // A line that would log in as a first `set` does not log in here.
    let mut client = keyway.memcached_client(4);
    for _ in 0..20 {
        let told = client.say("set k 0 0 13\r\nkeyway sesame\r\nget k1\r\n");
        assert_eq!(told.matches("SERVER_ERROR ").count(), 2, "{told}");
    }
    let log = keyway.process().log();
    assert!(log.contains("wants a password: write password, and user,"), "{log}");
    assert!(log.contains("CLIENT_ERROR unauthenticated"), "{log}");
}

/// Checks that the log and the clients are told that the password is wrong, in words about
/// memcached.
fn assert_refusal_is_told(keyway: &Keyway, pool: usize) {
    let mut client = keyway.memcached_client(pool);
    wait_until("clients are told of the password", Duration::from_secs(20), || {
        let told = client.say("get k1\r\n");
        assert!(!told.contains("HELLO") && !told.contains("RESP"), "{told}");
        told.contains("refused the password of this pool")
    });
    let log = keyway.process().log();
    assert!(log.contains("connection lost: the backend refused the password"), "{log}");
    assert!(!log.contains("client-side caching"), "{log}");
}

#[test]
fn binary_servers_that_want_a_password_get_it_with_sasl() {
    let _watch = watchdog(Duration::from_secs(60), "passwords of SASL");
    if !has_memcached("passwords of servers that speak SASL") {
        return;
    }
    let Some(server) = MemcachedServer::start_with_sasl("keyway", "sesame") else { return };
    let servers = [server];
    let mut stranger = servers[0].client();
    stranger.send(&memcached_packet(0x00, 0, &[], b"k", &[]));
    assert_eq!(stranger.packet()[6..8], [0, 0x20], "authentication is wanted");
    let pool = |name, password| {
        let pool = Pool::memcached(name, &servers).with("server_protocol", "\"binary\"");
        pool.with("password", password)
    };
    let pools = vec![pool("right", "\"sesame\""), pool("mistaken", "\"sesames\"")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let mut client = keyway.memcached_client(0);
    assert_eq!(client.say("set k1 7 0 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(client.say("get k1 none\r\n"), "VALUE k1 7 1\r\nx\r\nEND\r\n");
    assert_refusal_is_told(&keyway, 1);
}

#[test]
fn clients_say_the_password_first() {
    let _watch = watchdog(Duration::from_secs(60), "passwords of clients");
    if !has_memcached("passwords of clients") {
        return;
    }
    let servers = MemcachedServer::start_many(1);
    let pools = vec![
        Pool::store("store").spoken_to_in("memcached").with_listener("password", "\"secret\""),
        Pool::memcached("pool", &servers).with("client_password", "\"secret\""),
    ];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    for index in [0, 1] {
        let mut client = keyway.memcached_client(index);
        client.send(b"get k\r\nset k 0 0 8\r\nme wrong\r\nget k\r\nset k 0 0 9\r\nme secret\r\n");
        let told: Vec<String> = (0..4).map(|_| client.line()).collect();
        assert_eq!(told[0], "CLIENT_ERROR unauthenticated");
        assert_eq!(told[1], "CLIENT_ERROR authentication failure");
        assert_eq!(told[2], "CLIENT_ERROR unauthenticated");
        assert_eq!(told[3], "STORED");
        assert_eq!(client.say("get k\r\n"), "END\r\n", "the password is no item");
        assert_eq!(
            client.say("set k 0 0 1\r\nx\r\nget k\r\n"),
            "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n"
        );
        let mut binary = keyway.memcached_client(index);
        let mut status = |opcode, key: &[u8], value: &[u8]| {
            binary.send(&memcached_packet(opcode, 0, &[], key, value));
            let packet = binary.packet();
            u16::from_be_bytes([packet[6], packet[7]])
        };
        assert_eq!(status(0x00, b"k", b""), 0x20);
        assert_eq!(status(0x20, b"", b""), 0, "mechanisms");
        assert_eq!(status(0x21, b"PLAIN", b"\0me\0wrong"), 0x20);
        assert_eq!(status(0x21, b"CRAM-MD5", b"\0me\0secret"), 0x20);
        assert_eq!(status(0x00, b"k", b""), 0x20);
        assert_eq!(status(0x21, b"PLAIN", b"\0me\0secret"), 0);
        assert_eq!(status(0x00, b"k", b""), 0);
        // A client without the password gets no memory.
        let mut stranger = keyway.memcached_client(index);
        let large = format!("set k 0 0 {}\r\n{}\r\nget k\r\n", 100_000, "x".repeat(100_000));
        stranger.send(large.as_bytes());
        assert_eq!(stranger.line(), "SERVER_ERROR object too large for cache");
        assert_eq!(stranger.line(), "CLIENT_ERROR unauthenticated");
        assert_eq!(client.say("get k\r\n"), "VALUE k 0 1\r\nx\r\nEND\r\n", "it deletes nothing");
    }
}

#[test]
fn a_client_too_many_is_told_so_in_memcacheds_words() {
    let _watch = watchdog(Duration::from_secs(60), "clients_max");
    if !has_memcached("clients_max") {
        return;
    }
    let servers = MemcachedServer::start_many(1);
    let pools = vec![Pool::memcached("pool", &servers).with("clients_max", "2")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let mut held = Vec::new();
    wait_until("there are two", SOON, || {
        let mut client = keyway.memcached_client(0);
        client.send(b"mn\r\n");
        if client.try_line().is_some_and(|line| line == b"MN") {
            held.push(client);
        }
        held.len() == 2
    });
    let told = keyway.memcached_client(0).until_closed();
    assert_eq!(told.escape_ascii().to_string(), r"ERROR Too many open connections\r\n");
    assert_eq!(held[0].say("get k\r\n"), "END\r\n");
    held.pop();
    wait_until("there is room again", SOON, || {
        let mut client = keyway.memcached_client(0);
        client.send(b"mn\r\n");
        client.try_line().is_some_and(|line| line == b"MN")
    });
}

#[test]
fn a_server_that_stops_answering_times_out_and_no_reply_is_taken_for_another() {
    let _watch = watchdog(Duration::from_secs(60), "timeouts");
    if !has_memcached("timeouts") {
        return;
    }
    let servers = MemcachedServer::start_many(1);
    let settings = [("timeout", "\"100ms\"")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools(&servers, &settings)));
    for (index, protocol) in PROTOCOLS.iter().enumerate() {
        let mut client = keyway.memcached_client(index);
        client.say("set a 0 0 1\r\na\r\nset b 0 0 1\r\nb\r\n");
        servers[0].process().pause();
        client.send(b"get a\r\n");
        let told = client.line();
        assert!(told.starts_with("SERVER_ERROR "), "{protocol}: {told}");
        servers[0].process().resume();
        let mut told = String::new();
        wait_until("it answers", SOON, || {
            told = client.say("get b\r\n");
            !told.starts_with("SERVER_ERROR ")
        });
        assert_eq!(told, "VALUE b 0 1\r\nb\r\nEND\r\n", "{protocol}");
    }
}
