//! Client-side caching on the embedded store: the store sends what a bare server sends, to the
//! byte, and no cache stays stale.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use keyway_testkit::large::connect;
use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, ReplyFault, Value, encode, encode_words,
    wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
pub(crate) const SOON: Duration = Duration::from_secs(20);

struct Setup {
    keyway: Keyway,
    bare: RedisServer,
}

/// Starts a bare server, and a store with one worker, which sends every push before it reads on,
/// like a bare server.
fn setup() -> Setup {
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("workers", "1");
    let setup = Setup { keyway: Keyway::start(KEYWAY, config), bare: RedisServer::start() };
    // From here on no client's id equals a number in a reply.
    for _ in 0..100 {
        setup.keyway.client(0).words("PING");
        setup.bare.client().words("PING");
    }
    setup
}

/// A client, and whether it has sent CLIENT REPLY OFF.
struct Player {
    client: Client,
    id: i64,
    is_silent: bool,
}

impl Player {
    fn new(mut client: Client) -> Player {
        let id = client.words("CLIENT ID").integer();
        Player { client, id, is_silent: false }
    }

    /// Sends lines separated by `;` in one write. Returns everything received until all were
    /// answered.
    fn play(&mut self, lines: &str) -> String {
        let mut bytes = Vec::new();
        for line in lines.split(';').filter(|line| !line.is_empty()) {
            bytes.extend(encode_words(line));
            self.is_silent &= line != "CLIENT REPLY ON";
            self.is_silent |= line == "CLIENT REPLY OFF";
        }
        if !self.is_silent {
            bytes.extend(encode_words("PING end"));
        }
        self.client.send(&bytes);
        let mut told = String::new();
        while !self.is_silent {
            let reply = self.client.raw_reply().escape_ascii().to_string();
            if reply == r"$3\r\nend\r\n" || reply == r"*2\r\n$4\r\npong\r\n$3\r\nend\r\n" {
                break;
            }
            // The reply to HELLO describes the server.
            if !reply.starts_with("%7") && !reply.starts_with("*14") {
                told.push_str(&reply);
            }
        }
        told
    }
}

/// Runs a scene. In each line `name: commands` there is a client per name. `@name` stands for a
/// client's id, and after a line `name!` the client leaves. Returns what each client received after
/// each line, with ids made the same.
fn act(connect: impl Fn() -> Client, scene: &str) -> Vec<String> {
    let mut players: BTreeMap<String, Player> = BTreeMap::new();
    let mut ids: Vec<(String, i64)> = Vec::new();
    let mut told = Vec::new();
    for line in scene.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, mut lines) = match line.strip_suffix('!') {
            Some(name) => (name, String::new()),
            None => line.split_once(": ").map(|(name, rest)| (name, rest.to_owned())).unwrap(),
        };
        if line.ends_with('!') {
            players.remove(name).unwrap();
            // It is gone once the list does not show it.
            let gone = format!("id={} ", ids.iter().find(|(of, _)| of == name).unwrap().1);
            let mut other = connect();
            wait_until("a client has left", SOON, || {
                !other.words("CLIENT LIST").text().lines().any(|line| line.starts_with(&gone))
            });
            continue;
        }
        if !players.contains_key(name) {
            let player = Player::new(connect());
            ids.push((name.to_owned(), player.id));
            players.insert(name.to_owned(), player);
        }
        for (of, id) in &ids {
            lines = lines.replace(&format!("@{of}"), &id.to_string());
        }
        let reply = players.get_mut(name).unwrap().play(&lines);
        let mut all = format!("{line} => {reply}");
        for (other, player) in players.iter_mut().filter(|(other, _)| *other != name) {
            let pushes = player.play("");
            if !pushes.is_empty() {
                all.push_str(&format!(" | {other}: {pushes}"));
            }
        }
        for (of, id) in &ids {
            all = all.replace(&format!(r":{id}\r\n"), &format!(r":@{of}\r\n"));
        }
        told.push(all);
    }
    told
}

/// Runs a scene on both.
fn compare(setup: &Setup, scene: &str) {
    let expected = act(|| setup.bare.client(), scene);
    let told = act(|| setup.keyway.client(0), scene);
    for (told, expected) in told.iter().zip(&expected) {
        assert_eq!(told, expected);
    }
    assert_eq!(told.len(), expected.len());
}

const READERS: &[&str] = &[
    "GET R",
    "EXISTS R",
    "TTL R",
    "PTTL R",
    "EXPIRETIME R",
    "TYPE R",
    "STRLEN R",
    "TOUCH R",
    "OBJECT ENCODING R",
    "GETRANGE R 0 1",
    "SUBSTR R 0 0",
    "GETBIT R 0",
    "BITCOUNT R",
    "BITPOS R 1",
    "BITFIELD_RO R GET u8 0",
    "LCS R R",
    "MGET x R R y",
    "GETEX R",
    "GET",
    "DBSIZE",
    "BITFIELD R GET u8 0",
    "SCAN 0 MATCH none",
    "KEYS none*",
    "GETRANGE R a b",
];

/// A value, and a command that may change the key `W`.
const WRITERS: &[(&str, &str)] = &[
    ("SET W 1", "SET W 2"),
    ("SET W 1", "SET W 1"),
    ("SET W 1", "SET W 1 NX"),
    ("SET W 1", "SET W 2 GET"),
    ("SET W 1", "SET W 2 EX 100"),
    ("SET W 1", "SET W 2 KEEPTTL"),
    ("SET W 1", "SET W 1 PXAT 1"),
    ("DEL W", "SET W 1 XX"),
    ("DEL W", "SET W 1"),
    ("DEL W", "DEL W"),
    ("SET W 1", "DEL W"),
    ("SET W 1", "UNLINK W"),
    ("SET W 1", "SETNX W 2"),
    ("DEL W", "SETNX W 2"),
    ("SET W 1", "SETEX W 100 2"),
    ("SET W 1", "PSETEX W 100000 2"),
    ("SET W 1", "GETSET W 2"),
    ("SET W 1", "GETDEL W"),
    ("DEL W", "GETDEL W"),
    ("SET W 1", "GETEX W"),
    ("SET W 1", "GETEX W EX 100"),
    ("SET W 1", "GETEX W EXAT 1"),
    ("SET W 1", "GETEX W PERSIST"),
    ("SET W 1 EX 100", "GETEX W PERSIST"),
    ("SET W 1", "APPEND W x"),
    ("SET W 1", "APPEND W \u{20}"),
    ("SET W 1", "SETRANGE W 1 x"),
    ("SET W 1", "SETBIT W 7 1"),
    ("SET W 1", "SETBIT W 6 1"),
    ("SET W 1", "SETBIT W 16 0"),
    ("SET W 1", "BITFIELD W SET u8 0 49"),
    ("SET W 1", "BITFIELD W SET u8 0 50"),
    ("SET W 1", "BITFIELD W SET u8 8 0"),
    ("SET W 1", "BITFIELD W GET u8 0"),
    ("SET W 1", "BITFIELD W INCRBY u8 0 0"),
    ("SET W 1", "BITFIELD W OVERFLOW FAIL INCRBY u8 0 255"),
    ("SET W 1", "BITOP NOT W W"),
    ("SET W 1", "BITOP OR W x"),
    ("DEL W x", "BITOP OR W x"),
    ("SET W 1", "BITOP AND x W"),
    ("SET W 1", "INCR W"),
    ("SET W 1", "DECRBY W 3"),
    ("SET W 1", "INCRBYFLOAT W 0.5"),
    ("SET W a", "INCR W"),
    ("SET W 1", "MSET x 1 W 2 y 3"),
    ("SET W 1", "MSETNX W 2 other 2"),
    ("DEL W other", "MSETNX W 2 other 2"),
    ("SET W 1", "EXPIRE W 100"),
    ("SET W 1", "EXPIRE W -1"),
    ("SET W 1", "EXPIRE W 100 XX"),
    ("SET W 1", "PEXPIREAT W 1"),
    ("SET W 1", "PERSIST W"),
    ("SET W 1 EX 100", "PERSIST W"),
    ("SET W 1", "RENAME W V"),
    ("MSET V 1 W 1", "RENAME V W"),
    ("MSET V 1 W 1", "RENAMENX V W"),
    ("SET W 1", "RENAME W W"),
    ("DEL W", "RENAME W V"),
    ("MSET V 1 W 1", "COPY V W"),
    ("MSET V 1 W 1", "COPY V W REPLACE"),
    ("MSET V 1 W 1", "COPY W V REPLACE"),
    ("SET W 1", "MOVE W 5"),
    ("SET W 1", "TOUCH W"),
    ("SET W 1", "GET W"),
    ("SET W 1", "FLUSHDB"),
    ("SET W 1", "FLUSHDB maybe"),
    ("SET W 1", "FLUSHALL ASYNC"),
];

#[test]
fn what_is_read_is_tracked_as_redis_tracks_it() {
    let _watch = watchdog(Duration::from_secs(60), "reads");
    let mut scene = "w: SET R 1\na: HELLO 3;CLIENT TRACKING ON\n".to_owned();
    for line in READERS {
        scene.push_str(&format!("a: {line}\nw: SET R 1\nw: SET R 2\n"));
    }
    compare(&setup(), &scene);
}

#[test]
fn what_changes_a_key_is_told_as_redis_tells_it() {
    let _watch = watchdog(Duration::from_secs(60), "writes");
    let setup = setup();
    for mode in ["", " NOLOOP"] {
        let mut scene = format!("a: HELLO 3;CLIENT TRACKING ON{mode}\n");
        for (before, line) in WRITERS {
            // The change is made by another client, by the client itself, and in another database.
            for who in ["w: ", "a: ", "w: SELECT 2;"] {
                let after = if who.len() > 3 { ";SELECT 0" } else { "" };
                scene.push_str(&format!("w: {before}\na: GET W\n{who}{line}{after}\n"));
                scene.push_str("w: SELECT 2;DEL W V x y;SELECT 0;DEL W V x y\n");
            }
        }
        compare(&setup, &scene);
    }
}

#[test]
fn prefixes_are_told_as_redis_tells_them() {
    let _watch = watchdog(Duration::from_secs(60), "prefixes");
    let setup = setup();
    for (_, line) in WRITERS {
        compare(
            &setup,
            &format!(
                "w: FLUSHALL;MSET W 1 V 2
             a: HELLO 3;CLIENT TRACKING ON BCAST
             b: HELLO 3;CLIENT TRACKING ON BCAST NOLOOP PREFIX W PREFIX x
             w: {line}
             b: SET W 9;SET x1 1;SET x0 2;{line}"
            ),
        );
    }
    compare(
        &setup,
        "a: HELLO 3;CLIENT TRACKING ON BCAST PREFIX x PREFIX y
         a: SET x2 1;SET x1 1;SET y1 1;SET z 1;PING;SET x2 1
         w: SET x2 1;SET x1 1;SET y1 1;SET z 1;DEL none;FLUSHALL;SET x9 1
         a: CLIENT TRACKING ON BCAST PREFIX q
         w: SET q1 1;SET x1 2
         a: CLIENT TRACKING ON BCAST PREFIX xy
         a: CLIENT TRACKING ON
         a: CLIENT TRACKINGINFO
         b: HELLO 3;CLIENT TRACKING ON BCAST NOLOOP
         b: SET x1 1;SET other 1
         w: MSET x1 1 other 1
         a: CLIENT TRACKING OFF
         w: SET x1 1
         a: CLIENT TRACKING ON
         a: GET x1
         b: SET x1 1
         b: RESET
         w: SET x1 1
         a: CLIENT TRACKINGINFO",
    );
    // A key that was read before is invalidated once, by its prefix.
    compare(
        &setup,
        "a: HELLO 3;CLIENT TRACKING ON;GET n;GET m;CLIENT TRACKING OFF;CLIENT TRACKING ON BCAST
         b: HELLO 3;CLIENT TRACKING ON;GET n;CLIENT TRACKING OFF;CLIENT TRACKING ON BCAST PREFIX m
         w: INCR n
         w: INCR n;INCR m
         a: GET n;CLIENT TRACKING OFF;CLIENT TRACKING ON
         w: INCR n;INCR m
         a: GET n
         w: INCR n;FLUSHALL",
    );
}

/// Returns whether the client has received anything yet.
fn has_something(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let has = match stream.read(&mut [0; 4096]) {
        Ok(count) => count > 0,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            false
        }
    };
    stream.set_nonblocking(false).expect("a socket");
    has
}

#[test]
fn who_has_written_has_its_reply_after_who_caches_was_told() {
    let _watch = watchdog(Duration::from_secs(60), "an order");
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("workers", "3");
    let keyway = Keyway::start(KEYWAY, config);
    for (mode, rounds) in [("", 250), (" BCAST", 250)] {
        let mut readers: Vec<_> = (0..9)
            .map(|_| {
                let mut stream = connect(keyway.address(0));
                stream.write_all(&encode_words("HELLO 3")).expect("taken");
                let line = format!("CLIENT TRACKING ON{mode}");
                stream.write_all(&encode_words(&line)).expect("taken");
                stream.write_all(&encode_words("ECHO begun")).expect("taken");
                read_until(&mut stream, b"begun\r\n");
                stream
            })
            .collect();
        let mut writers: Vec<_> = (0..4).map(|_| keyway.client(0)).collect();
        for round in 0..rounds {
            for reader in &mut readers {
                reader.write_all(&encode_words("GET k")).expect("taken");
                reader.write_all(&encode_words("ECHO read")).expect("taken");
                read_until(reader, b"read\r\n");
            }
            let line = match round % 10 {
                0 => "FLUSHALL",
                1 => "EVAL return(redis.call('incr','k')) 0",
                _ => "INCR k",
            };
            let reply = writers[round % 4].words(line);
            assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
            for (nth, reader) in readers.iter_mut().enumerate() {
                assert!(has_something(reader), "{mode}: {line}, round {round}, reader {nth}");
            }
        }
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a worker that runs a script tells nobody so")]
fn who_caches_is_told_before_a_writer_of_the_same_worker_has_its_reply() {
    let _watch = watchdog(Duration::from_secs(60), "an order");
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config);
    // The writer connects first.
    let mut writer = connect(keyway.address(0));
    let mut reader = connect(keyway.address(0));
    reader.write_all(&encode_words("HELLO 3")).expect("taken");
    reader.write_all(&encode_words("CLIENT TRACKING ON")).expect("taken");
    // While a script runs the worker reads nothing. Then it handles everything that was sent
    // meanwhile in one turn: the writer is first, and the replies to others take their time.
    let mut busy = connect(keyway.address(0));
    let mut others: Vec<TcpStream> = (0..300).map(|_| connect(keyway.address(0))).collect();
    let long = "local sum = 0 for i = 1, 1000000 do sum = sum + i end return sum";
    for (round, line) in
        ["SET k v", "INCR n", "DEL k", "MSET k 1 n 2"].iter().cycle().take(20).enumerate()
    {
        let lines = ["SET k 1", "GET k", "GET n", "ECHO read"];
        lines.iter().for_each(|line| reader.write_all(&encode_words(line)).expect("taken"));
        read_until(&mut reader, b"read\r\n");
        // These are messages about its own changes.
        while has_something(&mut reader) {}
        busy.write_all(&encode(&["EVAL", long, "0"])).expect("taken");
        std::thread::sleep(Duration::from_millis(3));
        writer.write_all(&encode_words(line)).expect("taken");
        others.iter_mut().for_each(|other| other.write_all(b"PING\r\n").expect("taken"));
        while !has_something(&mut writer) {}
        assert!(has_something(&mut reader), "{line}, round {round}");
        others.iter_mut().for_each(|other| read_until(other, b"+PONG\r\n"));
        read_until(&mut busy, b":500000500000\r\n");
    }
}

fn read_until(stream: &mut TcpStream, end: &[u8]) {
    let (mut all, mut buf) = (Vec::new(), [0; 4096]);
    while !all.ends_with(end) {
        let count = stream.read(&mut buf).expect("a reply");
        assert!(count > 0, "closed: {}", all.escape_ascii());
        all.extend_from_slice(&buf[..count]);
    }
}

#[test]
fn a_writer_does_not_wait_long_for_a_worker_that_is_busy() {
    let _watch = watchdog(Duration::from_secs(60), "a busy worker");
    let pool = Pool::store("local").with("script_time_max", "\"3s\"");
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "2");
    let keyway = Keyway::start(KEYWAY, config);
    let mut readers: Vec<_> = (0..8).map(|_| keyway.client(0)).collect();
    for reader in &mut readers {
        reader.words("HELLO 3");
        reader.words("CLIENT TRACKING ON");
        reader.words("GET k");
    }
    let mut writers: Vec<_> = (0..8).map(|_| keyway.client(0)).collect();
    writers.iter_mut().for_each(|writer| drop(writer.words("PING")));
    let mut busy = keyway.client(0);
    busy.set_reply_within(SOON);
    let script = "redis.log(redis.LOG_NOTICE, 'it runs') while true do end";
    busy.send(&encode(&["EVAL", script, "0"]));
    wait_until("it runs", SOON, || keyway.process().log().contains("it runs"));
    // Clients of the other worker are answered while the script runs.
    writers.iter_mut().for_each(|writer| writer.send(&encode_words("SET k 1")));
    wait_until("a writer is answered", Duration::from_secs(2), || {
        writers.iter_mut().any(|writer| {
            writer.set_reply_within(Duration::from_millis(5));
            writer.try_reply().is_ok()
        })
    });
    assert!(matches!(busy.reply(), Value::Error(_)), "it was ended");
}

#[test]
fn a_change_of_ones_own_hides_none_of_others_in_the_same_turn() {
    let _watch = watchdog(Duration::from_secs(60), "a turn");
    let keyway = setup().keyway;
    let mut pauser = keyway.client(0);
    for own_first in [false, true] {
        let (mut own, mut other) = (keyway.client(0), keyway.client(0));
        own.words("HELLO 3");
        own.words("CLIENT TRACKING ON BCAST NOLOOP");
        pauser.words("CLIENT PAUSE 60000 WRITE");
        let (first, second) =
            if own_first { (&mut own, &mut other) } else { (&mut other, &mut own) };
        first.send(&encode_words("SET k 1"));
        pauser.words("PING");
        second.send(&encode_words("SET k 2"));
        pauser.words("PING");
        // Both go on in one turn.
        pauser.words("CLIENT UNPAUSE");
        assert_eq!(own.reply(), Value::simple("OK"));
        let told = invalidated(&own.reply()).expect("an invalidation");
        assert_eq!(told, Some(vec![b"k".to_vec()]));
        assert_eq!(other.reply(), Value::simple("OK"));
    }
}

#[test]
fn who_caches_is_told_when_databases_change_places() {
    let _watch = watchdog(Duration::from_secs(60), "a swap");
    let config = KeywayConfig::new(vec![Pool::store("local").with("databases", "2")]);
    let keyway = Keyway::start(KEYWAY, config);
    let (mut cache, mut other) = (keyway.client(0), keyway.client(0));
    cache.words("HELLO 3");
    cache.words("CLIENT TRACKING ON");
    cache.words("GET k");
    assert!(matches!(other.words("SWAPDB 0 9"), Value::Error(_)));
    other.words("SWAPDB 0 1");
    assert_eq!(invalidated(&cache.reply()), Some(None));
    // The change is told once: nothing was told about the refused one.
    assert_eq!(cache.words("SWAPDB 0 1"), Value::simple("OK"));
    assert_eq!(invalidated(&cache.reply()), Some(None));
    assert_eq!(cache.words("PING"), Value::simple("PONG"));
}

#[test]
fn everything_is_told_once_a_turn() {
    let _watch = watchdog(Duration::from_secs(60), "many flushes");
    let keyway = setup().keyway;
    let (mut cache, mut other) = (keyway.client(0), keyway.client(0));
    cache.words("HELLO 3");
    cache.words("CLIENT TRACKING ON BCAST");
    let mut lines = vec!["FLUSHALL"; 1000];
    lines.push("SET k 1");
    other.pipeline(&lines);
    let pushes = std::iter::from_fn(|| invalidated(&cache.reply()));
    let nulls = pushes.take_while(Option::is_none).count();
    assert!((1..100).contains(&nulls), "{nulls}");
}

#[test]
fn who_says_what_is_cached_is_told_of_that_alone() {
    let _watch = watchdog(Duration::from_secs(60), "options");
    let mut scene = String::new();
    for (mode, lines) in [
        ("OPTIN", "GET k"),
        ("OPTIN", "CLIENT CACHING YES;GET k"),
        ("OPTIN", "CLIENT CACHING YES;PING;GET k"),
        ("OPTIN", "CLIENT CACHING YES;CLIENT ID;GET k"),
        ("OPTIN", "CLIENT CACHING YES;NOSUCH;GET k"),
        ("OPTIN", "CLIENT CACHING YES;GET;GET k"),
        ("OPTIN", "CLIENT CACHING YES;CLIENT NOSUCH;GET k"),
        ("OPTIN", "CLIENT CACHING YES;GET k;GET j"),
        ("OPTIN", "CLIENT CACHING YES;SET k 1;GET k"),
        ("OPTIN", "CLIENT CACHING NO;GET k"),
        ("OPTIN", "CLIENT CACHING YES;CLIENT TRACKINGINFO"),
        ("OPTOUT", "GET k"),
        ("OPTOUT", "CLIENT CACHING NO;GET k"),
        ("OPTOUT", "CLIENT CACHING NO;GET j;GET k"),
        ("OPTOUT", "CLIENT CACHING YES"),
        ("", "CLIENT CACHING YES"),
    ] {
        scene.push_str(&format!(
            "a: HELLO 3;CLIENT TRACKING OFF;CLIENT TRACKING ON {mode}\n\
             a: {lines}\nw: SET k 1\nw: SET j 1\n"
        ));
    }
    let setup = setup();
    compare(&setup, &scene.replace("ON \n", "ON\n"));
    compare(
        &setup,
        "a: HELLO 3;CLIENT TRACKING ON
         w: SET k 1
         a: GET k;CLIENT TRACKING OFF;CLIENT TRACKING ON
         w: SET k 2
         a: GET k;CLIENT TRACKING OFF
         w: SET k 3
         a: CLIENT TRACKING ON
         w: SET k 4
         a: GET k;SET k 5;PING;GET k;DEL k none;PING
         a: MGET k j i;MSET i 1 k 2 j 3;PING
         a: MGET k j i;FLUSHALL;PING
         a: GET k;CLIENT REPLY OFF
         w: SET k 6
         a: GET k;SET k 7
         a: CLIENT REPLY ON
         a: GET k;CLIENT REPLY SKIP;SET k 8;PING
         b: CLIENT TRACKING ON
         b: GET k
         w: SET k 9
         b: GET k
         b: HELLO 3
         w: SET k 9",
    );
}

#[test]
fn who_is_told_in_place_of_another_is_told_as_redis_tells_it() {
    let _watch = watchdog(Duration::from_secs(60), "redirection");
    compare(
        &setup(),
        "b: SET k 1
         a: HELLO 3
         a: CLIENT TRACKING ON REDIRECT @b
         a: GET k
         w: SET k 2
         b: SUBSCRIBE foo
         a: GET k
         w: SET k 3
         a: GET k;SET k 4;PING
         a: CLIENT GETREDIR;CLIENT TRACKINGINFO
         a: GET k
         b: UNSUBSCRIBE
         w: SET k 5
         b: HELLO 3
         a: GET k
         w: SET k 6
         a: GET k;FLUSHALL;SET k 7;GET k
         a: CLIENT TRACKING OFF;CLIENT TRACKING ON REDIRECT @b BCAST
         a: SET k 8;SET j 9
         w: SET k 9
         a: CLIENT TRACKING OFF;CLIENT TRACKING ON REDIRECT @b
         a: GET k
         b!
         w: SET k 10
         a: CLIENT TRACKINGINFO
         a: GET k
         w: SET k 11
         a: CLIENT TRACKING ON REDIRECT @b
         a: CLIENT TRACKING ON
         a: GET k
         w: SET k 12
         a: RESET
         a: CLIENT TRACKINGINFO
         a: CLIENT GETREDIR",
    );
}

/// Returns the keys of an invalidation, `None` for all keys.
pub(crate) fn invalidated(value: &Value) -> Option<Option<Vec<Vec<u8>>>> {
    let Value::Push(parts) = value else { return None };
    assert_eq!(parts[0], Value::bulk("invalidate"));
    Some(match &parts[1] {
        Value::Null => None,
        keys => Some(keys.array().iter().map(|key| key.bytes().to_vec()).collect()),
    })
}

#[test]
fn a_key_that_expires_is_told() {
    let _watch = watchdog(Duration::from_secs(60), "expiry");
    let setup = setup();
    let push =
        Value::Push(vec![Value::bulk("invalidate"), Value::Array(vec![Value::bulk("expiring")])]);
    for client in [setup.bare.client(), setup.keyway.client(0)] {
        let mut client = client;
        client.words("HELLO 3");
        client.words("CLIENT TRACKING ON");
        // The key expires by upkeep.
        client.pipeline(&["SET expiring 1 PX 20", "GET expiring"]);
        assert_eq!(client.reply(), push);
        // The key expires by the client's own read, if upkeep does not come first.
        client.pipeline(&["SET expiring 1 PX 20", "GET expiring"]);
        wait_until("a key has expired", SOON, || {
            client.send(&encode_words("GET expiring"));
            let (one, other) = (client.reply(), client.try_push());
            one == push || other.is_some_and(|other| other == push)
        });
    }
}

/// The methods of a client that the test's own cache needs.
trait Cached {
    fn try_push(&mut self) -> Option<Value>;
}

impl Cached for Client {
    /// Returns a push that has arrived already.
    fn try_push(&mut self) -> Option<Value> {
        self.set_reply_within(Duration::from_millis(5));
        let got = match self.try_reply() {
            Ok(value) => Some(value),
            Err(ReplyFault::Late) => None,
            Err(fault) => panic!("{fault}"),
        };
        self.set_reply_within(SOON);
        got
    }
}
