//! Clients that speak RESP3 get, to the byte, the replies of a bare server: through pools of one,
//! four and very old servers, and beside clients that speak RESP2.

use std::time::Duration;

use keyway_testkit::{
    Action, Client, Keyway, KeywayConfig, Pool, RedisServer, ScriptedBackend, Value, encode,
    wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(10);
const STORE: usize = 0;
const ONE: usize = 1;
const FOUR: usize = 2;
const OLD: usize = 3;

struct Systems {
    keyway: Keyway,
    bare: RedisServer,
    _servers: Vec<Vec<RedisServer>>,
}

/// Servers that do not know HELLO.
fn old_servers(count: usize, more: &[&str]) -> Vec<RedisServer> {
    let arguments = [&["--rename-command", "HELLO", ""], more].concat();
    (0..count).map(|_| RedisServer::start_with(&arguments)).collect()
}

impl Systems {
    fn start() -> Systems {
        let servers =
            vec![RedisServer::start_many(1), RedisServer::start_many(4), old_servers(2, &[])];
        let mut pools = vec![Pool::store("local")];
        for (name, servers) in ["one", "four", "old"].into_iter().zip(&servers) {
            pools.push(Pool::over(name, servers));
        }
        let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
        Systems { keyway, bare: RedisServer::start(), _servers: servers }
    }
}

fn greet(mut client: Client, version: &str) -> Client {
    let reply = client.command(&["HELLO", version]);
    assert_eq!(matches!(reply, Value::Map(_)), version == "3", "{reply:?}");
    client
}

/// One script line each. Every key begins with `K`, which keeps them on one server.
const TYPES: &str = "
    HSET Kh f 1 g 2
    HGETALL Kh
    HGETALL Knone
    HGET Kh none
    HMGET Kh f none
    HRANDFIELD Kh 5 WITHVALUES
    HINCRBYFLOAT Kh f 0.5
    HSCAN Kh 0
    SADD Ks 1 2 3
    SADD Ks2 2
    SMEMBERS Ks
    SINTER Ks Ks2
    SUNION Ks Knone
    SDIFF Ks Ks2
    SMISMEMBER Ks 1 9
    SRANDMEMBER Knone
    SPOP Knone
    SPOP Ks2 5
    ZADD Kz 1 a 2.5 b inf c -1e30 d
    ZADD Kz INCR 1 a
    ZADD Kz NX INCR 1 a
    ZSCORE Kz b
    ZSCORE Kz none
    ZMSCORE Kz a none c
    ZINCRBY Kz 0.1 b
    ZRANGE Kz 0 -1
    ZRANGE Kz 0 -1 WITHSCORES
    ZRANGE Kz 0 -1 REV withscores
    ZREVRANGE Kz 0 -1 WITHSCORES
    ZRANGEBYSCORE Kz -inf inf WITHSCORES LIMIT 1 2
    ZUNION 2 Kz Knone WITHSCORES
    ZRANK Kz none
    ZSCAN Kz 0
    ZPOPMIN Kz
    ZPOPMAX Kz 2
    ZPOPMIN Knone
    ZMPOP 1 Kz MIN
    ZMPOP 1 Kz MIN
    GEOADD Kg 13.361389 38.115556 Palermo
    GEOPOS Kg Palermo none
    GEODIST Kg Palermo none
    GEODIST Kg Palermo Palermo
    GEOSEARCH Kg FROMMEMBER Palermo BYRADIUS 1 km WITHCOORD WITHDIST WITHHASH
    XADD Kx 1-1 f v g w
    XADD Kx 2-1 f v
    XADD Knone NOMKSTREAM * f v
    XGROUP CREATE Kx group 0
    XREADGROUP GROUP group me COUNT 1 STREAMS Kx >
    XREADGROUP GROUP group me STREAMS Kx 0
    XREAD STREAMS Kx 0
    XREAD STREAMS Kx 9
    XRANGE Kx - +
    XINFO STREAM Kx
    XINFO GROUPS Kx
    RPUSH Kl a b a
    LPOS Kl none
    LPOP Knone
    LPOP Knone 2
    LMPOP 2 Knone Kl LEFT
    LRANGE Kl 0 -1
    LINDEX Kl 9
    SORT Kl ALPHA
    EVAL return{1,false,'a',{false}} 1 K
    GET Kh
    HGET Kl f
    LCS Ka Kb IDX
    SET Ka mytext
    SET Kb text
    LCS Ka Kb IDX WITHMATCHLEN
    MGET Ka Knone Kb
    SET Ka x NX
    SET Ka x GET
    GETDEL Knone
    OBJECT ENCODING Knone
    MEMORY USAGE Knone
    BITFIELD Ka OVERFLOW FAIL INCRBY u2 0 9
    DUMP Knone
    TYPE Knone
    DEL Ka Kb Kh Ks Kz Kg Kx Kl
    CLIENT GETNAME
    CLIENT SETNAME n
    CLIENT GETNAME
    CONFIG GET nosuch
    CONFIG GET appendonly
    COMMAND INFO get nosuch
    COMMAND DOCS get
    COMMAND GETKEYSANDFLAGS SET a b
    LATENCY HISTOGRAM nosuch
    SLOWLOG GET 0
    PING
    PING text
    NOSUCH a
    GET
    HELLO 3 BAD
    RESET
    CLIENT GETNAME
    GET Knone
";

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// Sends the lines to both and compares the bytes.
fn compare(ours: &mut Client, bare: &mut Client, what: &str, text: &str) {
    for line in lines(text) {
        let words: Vec<String> = line
            .split(' ')
            .map(|word| match word.strip_prefix('K') {
                Some(rest) => format!("{{tag}}{rest}"),
                None => word.to_owned(),
            })
            .collect();
        let bytes = encode(&words);
        ours.send(&bytes);
        bare.send(&bytes);
        let (got, wanted) = (ours.raw_reply(), bare.raw_reply());
        let (got, wanted) = (got.escape_ascii().to_string(), wanted.escape_ascii().to_string());
        assert_eq!(got, wanted, "{what}: {line}");
    }
}

#[test]
fn every_reply_through_a_pool_is_the_bare_servers() {
    let _watch = watchdog(Duration::from_secs(60), "RESP3 through pools");
    let systems = Systems::start();
    for (pool, name) in [(ONE, "one server"), (FOUR, "four servers"), (OLD, "old servers")] {
        for version in ["3", "2"] {
            systems.bare.client().words("FLUSHALL");
            let mut ours = greet(systems.keyway.client(pool), version);
            let mut bare = greet(systems.bare.client(), version);
            compare(&mut ours, &mut bare, &format!("{name}, RESP{version}"), TYPES);
            if pool != OLD {
                // The script decides the reply; whether it uses RESP2 cannot be known.
                let script = "EVAL return{double=3.5} 1 K";
                compare(&mut ours, &mut bare, &format!("{name}, RESP{version}"), script);
            }
        }
    }
}

#[test]
fn every_reply_of_the_store_is_the_bare_servers() {
    let _watch = watchdog(Duration::from_secs(60), "RESP3 on the store");
    let systems = Systems::start();
    let text = "
        SET Ka mytext
        SET Kb text
        LCS Ka Kb IDX
        LCS Ka Kb IDX WITHMATCHLEN
        MGET Ka Knone Kb
        SET Ka x NX
        SET Ka x GET
        GETDEL Knone
        GETSET Knew 1
        OBJECT ENCODING Knone
        BITFIELD Ka OVERFLOW FAIL INCRBY u2 0 9
        FLUSHALL
        RANDOMKEY
        SCAN 0
        KEYS *
        CLIENT GETNAME
        CONFIG GET nosuch
        COMMAND INFO get nosuch
        SELECT 3
        RESET
        GET Knone
    ";
    for version in ["3", "2"] {
        systems.bare.client().words("FLUSHALL");
        let mut ours = greet(systems.keyway.client(STORE), version);
        let mut bare = greet(systems.bare.client(), version);
        compare(&mut ours, &mut bare, &format!("store, RESP{version}"), text);
    }
}

#[test]
fn a_split_request_is_joined_in_the_clients_protocol() {
    let _watch = watchdog(Duration::from_secs(60), "joins in RESP3");
    let systems = Systems::start();
    for pool in [STORE, FOUR, OLD] {
        let mut new = greet(systems.keyway.client(pool), "3");
        let mut old = systems.keyway.client(pool);
        let keys: Vec<String> = (0..40).map(|nth| format!("join:{nth}")).collect();
        let with_values: Vec<&str> =
            keys.iter().step_by(2).flat_map(|key| [key.as_str(), "value"]).collect();
        let mset = [&["MSET"], &with_values[..]].concat();
        assert_eq!(new.command(&mset), Value::simple("OK"));
        let words = |verb: &'static str| -> Vec<&str> {
            std::iter::once(verb).chain(keys.iter().map(String::as_str)).collect()
        };
        let is_there = |nth: usize| nth.is_multiple_of(2);
        let of = |null: Value| -> Vec<Value> {
            (0..40)
                .map(|nth| if is_there(nth) { Value::bulk("value") } else { null.clone() })
                .collect()
        };
        assert_eq!(new.command(&words("MGET")), Value::Array(of(Value::Null)), "pool {pool}");
        assert_eq!(old.command(&words("MGET")), Value::Array(of(Value::Nil)), "pool {pool}");
        assert_eq!(new.command(&words("EXISTS")), Value::Integer(20));
        assert_eq!(new.words("DBSIZE"), Value::Integer(20));
        assert_eq!(new.command(&words("DEL")), Value::Integer(20));
    }
}

#[test]
fn requests_keep_their_order_when_the_protocol_changes_among_them() {
    let _watch = watchdog(Duration::from_secs(60), "HELLO within a pipeline");
    let systems = Systems::start();
    let mut old = Vec::new();
    for pool in [STORE, ONE, FOUR, OLD] {
        let mut client = systems.keyway.client(pool);
        let mut sent = Vec::new();
        for nth in 0..50_i64 {
            let version = if nth % 2 == 0 { "3" } else { "2" };
            let value = nth.to_string();
            sent.extend(encode(&["SET", "k", &value]));
            sent.extend(encode(&["GET", "none"]));
            sent.extend(encode(&["HELLO", version]));
            sent.extend(encode(&["GET", "k"]));
            sent.extend(encode(&["GET", "none"]));
        }
        sent.extend(encode(&["HELLO", "3"]));
        sent.extend(encode(&["GET", "none"]));
        sent.extend(encode(&["RESET"]));
        sent.extend(encode(&["GET", "none"]));
        client.send(&sent);
        let mut null = Value::Nil;
        for nth in 0..50_i64 {
            let replies = client.replies(5);
            assert_eq!(replies[0], Value::simple("OK"));
            assert_eq!(replies[1], null, "pool {pool}, {nth}");
            null = if nth % 2 == 0 { Value::Null } else { Value::Nil };
            assert_eq!(matches!(replies[2], Value::Map(_)), nth % 2 == 0);
            assert_eq!(replies[3], Value::bulk(nth.to_string()), "pool {pool}: not what was set");
            assert_eq!(replies[4], null, "pool {pool}, {nth}");
        }
        let last = client.replies(4);
        assert_eq!((&last[1], &last[3]), (&Value::Null, &Value::Nil));
        old.push(client);
    }
}

#[test]
fn clients_of_both_protocols_work_side_by_side() {
    const ROUNDS: usize = 300;
    let _watch = watchdog(Duration::from_secs(60), "RESP2 and RESP3 side by side");
    let systems = Systems::start();
    for pool in [STORE, FOUR, OLD] {
        std::thread::scope(|scope| {
            for thread in 0..8_usize {
                let systems = &systems;
                scope.spawn(move || {
                    let is_new = thread % 2 == 0;
                    let version = if is_new { "3" } else { "2" };
                    let mut client = greet(systems.keyway.client(pool), version);
                    let null = if is_new { Value::Null } else { Value::Nil };
                    for round in 0..ROUNDS {
                        let key = format!("side:{thread}:{round}");
                        let mut bytes = encode(&["SET", &key, &key]);
                        bytes.extend(encode(&["MGET", &key, "side:none", "side:other"]));
                        bytes.extend(encode(&["GET", "side:none"]));
                        client.send(&bytes);
                        let found = vec![Value::bulk(&key), null.clone(), null.clone()];
                        let wanted = [Value::simple("OK"), Value::Array(found), null.clone()];
                        assert_eq!(client.replies(3), wanted, "pool {pool}, RESP{version}");
                    }
                });
            }
        });
    }
    let log = systems.keyway.process().log();
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
fn a_servers_password_and_database_are_given_in_either_handshake() {
    let _watch = watchdog(Duration::from_secs(60), "RESP3 behind a password");
    let new = vec![RedisServer::start_with(&["--requirepass", "sesame"])];
    let old = old_servers(1, &["--requirepass", "sesame"]);
    for (servers, name) in [(&new, "a server"), (&old, "an old server")] {
        let pool = |password: &str| {
            Pool::over("main", servers)
                .with("password", &format!("{password:?}"))
                .with("database", "2")
                .with("databases", "3")
        };
        let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool("sesame")]));
        let mut client = greet(keyway.client(0), "3");
        assert_eq!(client.words("SET a 1"), Value::simple("OK"), "{name}");
        assert_eq!(client.words("HGETALL none"), Value::Map(vec![]), "{name}");
        assert_eq!(client.words("SELECT 1"), Value::simple("OK"));
        assert_eq!(client.words("GET a"), Value::Null, "{name}");
        let mut direct = servers[0].client();
        direct.words("AUTH sesame");
        direct.words("SELECT 2");
        assert_eq!(direct.words("GET a"), Value::bulk("1"), "{name}");
        let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool("aladdin")]));
        let mut client = greet(keyway.client(0), "3");
        assert!(client.words("GET a").error_text().contains("refused the password"), "{name}");
        wait_until("the log says why, in the server's words", SOON, || {
            let log = keyway.process().log();
            assert!(!log.contains("aladdin"), "a password in the log");
            log.contains("WRONGPASS invalid username-password pair")
        });
    }
}

#[test]
fn a_lost_link_fails_its_requests_and_the_next_works_again() {
    let _watch = watchdog(Duration::from_secs(60), "a lost RESP3 link");
    let mut servers = RedisServer::start_many(2);
    let pool = Pool::over("main", &servers).with("reconnect", "{ min = \"10ms\", max = \"50ms\" }");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut new = greet(keyway.client(0), "3");
    let mut old = keyway.client(0);
    for client in [&mut new, &mut old] {
        (0..20).for_each(|nth| assert!(!client.words(&format!("SET k{nth} 1")).is_error()));
    }
    servers.iter_mut().for_each(RedisServer::kill);
    wait_until("requests fail with an error of the same kind", SOON, || {
        new.words("GET k1").is_error() && old.words("GET k1").is_error()
    });
    assert!(new.words("MGET k1 k2 k3 k4 k5").is_error());
    servers.iter_mut().for_each(RedisServer::restart);
    wait_until("both work again", SOON, || {
        !new.words("GET k1").is_error() && !old.words("GET k1").is_error()
    });
    wait_until("every server is back", SOON, || {
        let keys = "MGET k1 k2 k3 k4 k5 k6 k7 k8";
        let (new, old) = (new.words(keys), old.words(keys));
        new == Value::Array(vec![Value::Null; 8]) && old == Value::Array(vec![Value::Nil; 8])
    });
}

#[test]
fn transactions_and_blocking_commands_answer_in_the_clients_protocol() {
    let _watch = watchdog(Duration::from_secs(60), "transactions in RESP3");
    let systems = Systems::start();
    let text = "
        MULTI
        HSET Kh f 1
        GET Knone
        EXEC
        WATCH Kh
        MULTI
        HLEN Kh
        EXEC
        MULTI
        DISCARD
        EXEC
        BLPOP Knone 0.01
        BRPOPLPUSH Knone Knone2 0.01
        BLMOVE Knone Knone2 LEFT LEFT 0.01
        BZPOPMIN Knone 0.01
        BZMPOP 0.01 1 Knone MIN
        XREAD BLOCK 10 STREAMS Knone 0
        ZADD Kz 1.5 a 2 b
        BZPOPMIN Kz 0
        BZMPOP 0 1 Kz MIN COUNT 5
        XADD Kx 1-1 f v
        XREAD BLOCK 0 STREAMS Kx 0
        GET Knone
        DEL Kh Kx
    ";
    for (pool, name) in [(ONE, "one server"), (FOUR, "four servers"), (OLD, "old servers")] {
        for version in ["3", "2"] {
            systems.bare.client().words("FLUSHALL");
            let mut ours = greet(systems.keyway.client(pool), version);
            let mut bare = greet(systems.bare.client(), version);
            let what = format!("{name}, RESP{version}");
            compare(&mut ours, &mut bare, &what, text);
            if pool != OLD {
                let text = "
                    HSET Kh f 1
                    MULTI
                    HGETALL Kh
                    ZADD Kz INCR 1 a
                    EXEC
                    DEL Kh Kz
                ";
                compare(&mut ours, &mut bare, &what, text);
            }
        }
    }
}

#[test]
fn a_watch_does_not_outlive_a_change_of_protocol() {
    let _watch = watchdog(Duration::from_secs(60), "WATCH, HELLO, EXEC");
    let systems = Systems::start();
    let mut client = systems.keyway.client(FOUR);
    let lines = ["WATCH a", "HELLO 3", "MULTI", "SET a 1", "EXEC", "GET a", "EXEC"];
    let replies = client.pipeline(&lines);
    assert_eq!(replies[4], Value::Null, "as if the key had been changed");
    assert_eq!(replies[5], Value::Null);
    assert!(replies[6].is_error());
    let replies = client.pipeline(&["WATCH a", "HELLO 3", "MULTI", "SET a 1", "EXEC", "GET a"]);
    assert_eq!(replies[4], Value::Array(vec![Value::simple("OK")]), "it has not changed here");
    assert_eq!(replies[5], Value::bulk("1"));
}

#[test]
fn a_server_that_closes_at_hello_is_used_all_the_same() {
    let _watch = watchdog(Duration::from_secs(60), "a server that closes at HELLO");
    let backend = ScriptedBackend::start(|arguments| match arguments[0].as_slice() {
        b"HELLO" => Action::Close(Vec::new()),
        b"HGETALL" => Action::Reply(b"*2\r\n$1\r\nf\r\n$-1\r\n".to_vec()),
        _ => Action::echo_key(arguments),
    });
    let pool = Pool::sharded("main", &[format!("{}:1", backend.address())])
        .with("reconnect", "{ min = \"10ms\", max = \"50ms\" }");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = greet(keyway.client(0), "3");
    wait_until("it is spoken to without HELLO", SOON, || !client.words("GET a").is_error());
    assert_eq!(client.words("GET a"), Value::bulk("a"));
    let field = (Value::bulk("f"), Value::Null);
    assert_eq!(client.words("HGETALL a"), Value::Map(vec![field]));
}

#[test]
fn a_server_that_breaks_resp3_loses_its_link_and_nothing_else() {
    let _watch = watchdog(Duration::from_secs(60), "broken RESP3");
    let backend = ScriptedBackend::start(|arguments| match arguments {
        [verb, ..] if verb == b"HELLO" => Action::Reply(b"%1\r\n+proto\r\n:3\r\n".to_vec()),
        [_, key] if key == b"broken" => Action::Reply(b"#maybe\r\n".to_vec()),
        [_, key] if key == b"pushed" => Action::Reply(b">1\r\n+x\r\n#t\r\n".to_vec()),
        _ => Action::echo_key(arguments),
    });
    let pool = Pool::sharded("main", &[format!("{}:1", backend.address())])
        .with("reconnect", "{ min = \"10ms\", max = \"50ms\" }");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let (mut new, mut old) = (greet(keyway.client(0), "3"), keyway.client(0));
    assert_eq!(new.words("GET pushed"), Value::Boolean(true));
    assert_eq!(old.words("GET fine"), Value::bulk("fine"));
    assert!(new.words("GET broken").is_error());
    assert_eq!(old.words("GET fine"), Value::bulk("fine"));
    wait_until("it is connected to again", SOON, || new.words("GET fine") == Value::bulk("fine"));
    // A RESP2 client is never sent what it does not understand.
    assert!(old.words("GET pushed").is_error());
}

#[test]
fn links_of_resp3_are_made_when_the_first_client_needs_them() {
    let _watch = watchdog(Duration::from_secs(60), "lazy links");
    let servers = RedisServer::start_many(1);
    let pool = Pool::over("main", &servers).with("preconnect", "true");
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config);
    let links = |version: &str| {
        let list = servers[0].client().words("CLIENT LIST").text();
        // This test's own connection speaks RESP2 and runs CLIENT.
        let is_link = |line: &&str| line.contains(version) && !line.contains("cmd=client|list");
        list.lines().filter(is_link).count()
    };
    let mut old = keyway.client(0);
    assert_eq!(old.words("SET a 1"), Value::simple("OK"));
    assert_eq!((links("resp=2"), links("resp=3")), (1, 0));
    let mut new = greet(keyway.client(0), "3");
    assert_eq!(links("resp=3"), 0, "a greeting asks no server");
    assert_eq!(new.words("GET a"), Value::bulk("1"));
    assert_eq!((links("resp=2"), links("resp=3")), (1, 1));
}

#[test]
fn a_server_that_learns_resp3_is_asked_again_on_its_next_connection() {
    let _watch = watchdog(Duration::from_secs(60), "an upgraded server");
    let mut old = old_servers(1, &[]).remove(0);
    let address = old.address();
    let pool = Pool::sharded("main", &[format!("{address}:1")])
        .with("reconnect", "{ min = \"10ms\", max = \"50ms\" }");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = greet(keyway.client(0), "3");
    assert_eq!(client.words("HGETALL none"), Value::Map(vec![]));
    old.kill();
    let upgraded = RedisServer::start_at(address, &[]);
    wait_until("it is reached again", SOON, || !client.words("GET none").is_error());
    let list = upgraded.client().words("CLIENT LIST").text();
    assert!(list.lines().any(|line| line.contains(" resp=3")), "{list}");
}
