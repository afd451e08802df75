//! Clients of memcached on a pool of Redis servers: compared with a real memcached, with Redis
//! clients of the same pool, and when a server fails.

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, MemcachedClient, MemcachedEar, MemcachedServer, MemcachedStep,
    Pool, Random, RedisServer, Value, any_memcached_binary, any_memcached_classic, encode,
    has_memcached, memcached_packet, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

struct Setup {
    keyway: Keyway,
    servers: Vec<RedisServer>,
}

impl Setup {
    fn new(count: usize, settings: &[(&str, &str)]) -> Setup {
        let servers = RedisServer::start_many(count);
        let mut pool = Pool::over("shared", &servers);
        for (name, value) in settings {
            pool = pool.with(name, value);
        }
        // One pool has two listeners.
        let pools = vec![pool.clone().spoken_to_in("memcached"), pool];
        Setup { keyway: Keyway::start(KEYWAY, KeywayConfig::new(pools)), servers }
    }

    fn memcached(&self) -> MemcachedClient {
        self.keyway.memcached_client(0)
    }

    fn redis(&self) -> Client {
        self.keyway.client(1)
    }
}

fn bytes(client: &mut Client, words: &[&[u8]]) -> Value {
    client.send(&encode(words));
    client.reply()
}

/// One side's replies. Version numbers are replaced so that equal numbers stay equal.
struct Side {
    client: MemcachedClient,
    binary: MemcachedClient,
    ear: MemcachedEar,
}

impl Side {
    fn new(connect: impl Fn() -> MemcachedClient) -> Side {
        Side { client: connect(), binary: connect(), ear: MemcachedEar::default() }
    }

    fn ask(&mut self, step: &MemcachedStep) -> String {
        let asked = step.bytes(&self.ear);
        let is_binary = asked[0] == 0x80;
        let client = if is_binary { &mut self.binary } else { &mut self.client };
        let said = client.ask(&asked);
        let told = self.ear.hear(&said, is_binary, step.key());
        let mut parts = told.split('#');
        let mut alike = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            alike += "#";
            alike += part.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        alike
    }
}

/// Returns whether both sides do the same by docs/memcached.md. Steps that depend on numbers padded
/// with blanks, or on equal values having different numbers, are left out.
fn is_alike(step: &MemcachedStep) -> bool {
    match step {
        MemcachedStep::Text(text) => {
            let differs = ["decr", "LAST", "12 ", "18446744073709551615"];
            !differs.iter().any(|word| text.contains(word))
        }
        MemcachedStep::Binary { opcode, with_cas, value, .. } => {
            let is_decr = matches!(opcode, 0x06 | 0x16);
            !is_decr && !with_cas && value != b"12 " && value != b"18446744073709551615"
        }
    }
}

#[test]
fn sequences_of_requests_are_answered_as_by_memcached() {
    let _watch = watchdog(Duration::from_secs(300), "sequences on Redis servers");
    if !has_memcached("sequences on Redis servers") {
        return;
    }
    let setup = Setup::new(2, &[("allow_flush", "true")]);
    let bare = MemcachedServer::start_with(&["-o", "no_lru_maintainer,no_lru_crawler"]);
    // Its version numbers are above those that clients give.
    bare.client().ask(&b"set k 0 0 1 noreply\r\nx\r\n".repeat(1000));
    for seed in 0..20 {
        let mut random = Random::new(4000 + seed);
        let mut ours = Side::new(|| setup.memcached());
        let mut theirs = Side::new(|| bare.client());
        for side in [&mut ours, &mut theirs] {
            assert_eq!(side.client.say("flush_all\r\n"), "OK\r\n");
        }
        let mut before = String::new();
        for nth in 0..250 {
            let step = match random.below(3) {
                0 => any_memcached_binary(&mut random),
                _ => MemcachedStep::Text(any_memcached_classic(&mut random)),
            };
            if !is_alike(&step) {
                continue;
            }
            let expected = theirs.ask(&step);
            let said = ours.ask(&step);
            before += &format!("{step:?} -> {expected}");
            let tail = &before[before.len().saturating_sub(1500)..];
            assert_eq!(said, expected, "seed {seed}, step {nth}, after\n{tail}");
        }
    }
}

#[test]
fn numbers_are_counted_as_memcached_counts_them() {
    let _watch = watchdog(Duration::from_secs(60), "numbers on Redis servers");
    let setup = Setup::new(1, &[]);
    let mut client = setup.memcached();
    let mut count = |flags: u32, value: &str, command: &str| {
        let asked = format!(
            "set n {flags} 0 {}\r\n{value}\r\n{} n {}\r\nget n\r\n",
            value.len(),
            &command[..4],
            &command[5..]
        );
        client.say(&asked).replace("\r\n", "|")
    };
    for (value, command, made) in [
        ("0", "incr 1", "1"),
        ("9", "incr 1", "10"),
        ("10", "decr 1", "9"),
        ("007", "incr 1", "8"),
        (" 12 x", "incr 1", "13"),
        ("5", "decr 6", "0"),
        ("9999999999", "incr 1", "10000000000"),
        ("10000000000", "decr 1", "9999999999"),
        ("18446744073709551615", "incr 1", "0"),
        ("18446744073709551615", "incr 18446744073709551615", "18446744073709551614"),
        ("18446744073709551615", "decr 1", "18446744073709551614"),
        ("9007199254740993", "incr 2", "9007199254740995"),
        ("18446744073709551614", "decr 18446744073709551613", "1"),
    ] {
        for flags in [0, 7] {
            let expected = format!("STORED|{made}|VALUE n {flags} {}|{made}|END|", made.len());
            assert_eq!(count(flags, value, command), expected, "{value} {command}");
        }
    }
    for value in ["", "x", "12x", "-1", "18446744073709551616", "123456789012345678901"] {
        let said = count(3, value, "incr 1");
        let len = value.len();
        let expected = format!(
            "STORED|CLIENT_ERROR cannot increment or decrement non-numeric value|\
             VALUE n 3 {len}|{value}|END|"
        );
        assert_eq!(said, expected);
    }
    assert_eq!(client.say("incr none 1\r\ndecr none 1\r\n"), "NOT_FOUND\r\nNOT_FOUND\r\n");
    let mut redis = setup.redis();
    assert_eq!(client.say("set n 0 100 2\r\n10\r\ndecr n 1\r\n"), "STORED\r\n9\r\n");
    assert_eq!(redis.words("INCRBY n 5"), Value::Integer(14), "no blank is in the way");
    assert!((90..=100).contains(&redis.words("TTL n").integer()), "the expiry is kept");
}

#[test]
fn values_without_flags_are_plain_and_others_in_an_envelope() {
    let _watch = watchdog(Duration::from_secs(60), "envelopes");
    let setup = Setup::new(3, &[]);
    let (mut client, mut redis) = (setup.memcached(), setup.redis());
    assert_eq!(client.say("set plain 0 0 3\r\nabc\r\n"), "STORED\r\n");
    assert_eq!(redis.words("GET plain"), Value::bulk("abc"));
    assert_eq!(client.say("set sealed 258 0 3\r\nabc\r\n"), "STORED\r\n");
    let sealed = b"\xc1mc\x01\0\0\x01\x02abc";
    assert_eq!(redis.words("GET sealed"), Value::Bulk(sealed.to_vec()));
    assert_eq!(bytes(&mut redis, &[b"SET", b"other", sealed]), Value::simple("OK"));
    assert_eq!(client.say("get other\r\n"), "VALUE other 258 3\r\nabc\r\nEND\r\n");
    assert_eq!(redis.words("SET other v EX 100"), Value::simple("OK"));
    assert_eq!(client.say("get other\r\n"), "VALUE other 0 1\r\nv\r\nEND\r\n");
    // A value that begins like an envelope is escaped; any other is stored as it is.
    client.send(b"set magic 0 0 5\r\n\xc1mc\x01x\r\n");
    assert_eq!(client.line(), "STORED");
    assert_eq!(client.ask(b"get magic\r\n"), b"VALUE magic 0 5\r\n\xc1mc\x01x\r\nEND\r\n");
    for raw in [&b"\xc1mc\x01\0\0\0"[..], b"\xc1mc\x02\0\0\0\0abc", b"\xc1m"] {
        bytes(&mut redis, &[b"SET", b"magic", raw]);
        let said = client.ask(b"get magic\r\n");
        let line = format!("VALUE magic 0 {}\r\n", raw.len());
        assert_eq!(said, [line.as_bytes(), raw, b"\r\nEND\r\n"].concat());
    }
    // The value is joined where it is stored, and escaped if joining makes it look like an
    // envelope.
    assert_eq!(client.say("append sealed 0 0 1\r\n>\r\n"), "STORED\r\n");
    assert_eq!(client.say("prepend sealed 0 0 1\r\n<\r\n"), "STORED\r\n");
    assert_eq!(client.say("get sealed\r\n"), "VALUE sealed 258 5\r\n<abc>\r\nEND\r\n");
    bytes(&mut redis, &[b"SET", b"short", b"\xc1m", b"EX", b"100"]);
    assert_eq!(client.say("append short 0 0 1\r\nc\r\n"), "STORED\r\n");
    assert_eq!(client.ask(b"get short\r\n"), b"VALUE short 0 3\r\n\xc1mc\r\nEND\r\n");
    assert!((90..=100).contains(&redis.words("TTL short").integer()));
    client.send(b"prepend plain 0 0 8\r\n\xc1mc\x01\0\0\0\x09\r\n");
    assert_eq!(client.line(), "STORED");
    let said = client.ask(b"get plain\r\n");
    assert_eq!(said, b"VALUE plain 0 11\r\n\xc1mc\x01\0\0\0\x09abc\r\nEND\r\n");
}

#[test]
fn a_value_is_replaced_only_while_it_is_what_was_read() {
    let _watch = watchdog(Duration::from_secs(60), "cas on Redis servers");
    let setup = Setup::new(2, &[]);
    let (mut client, mut redis) = (setup.memcached(), setup.redis());
    let number = |client: &mut MemcachedClient| {
        let said = client.say("gets k\r\n");
        let line = said.lines().next().unwrap_or_default().to_owned();
        line.rsplit(' ').next().and_then(|word| word.parse::<u64>().ok()).expect("a number")
    };
    assert_eq!(client.say("cas k 0 0 1 5\r\nx\r\n"), "NOT_FOUND\r\n");
    client.say("set k 9 0 1\r\na\r\n");
    let first = number(&mut client);
    assert_eq!(client.say(&format!("cas k 9 50 1 {first}\r\nb\r\n")), "STORED\r\n");
    assert_eq!(client.say(&format!("cas k 9 0 1 {first}\r\nc\r\n")), "EXISTS\r\n");
    assert!((40..=50).contains(&redis.words("TTL k").integer()));
    // A write of a Redis client changes the value too, and an equal value has an equal number.
    redis.words("SET k plain");
    let plain = number(&mut client);
    redis.words("SET k other");
    assert_eq!(client.say(&format!("cas k 0 0 1 {plain}\r\nc\r\n")), "EXISTS\r\n");
    redis.words("SET k plain");
    assert_eq!(client.say(&format!("cas k 0 0 1 {plain}\r\nc\r\n")), "STORED\r\n");
    // Meta and binary return the same number.
    let number = number(&mut client);
    assert_eq!(client.say("mg k c v\r\n"), format!("VA 1 c{number}\r\nc\r\n"));
    assert_eq!(client.say("ms k 1 c F3\r\nd\r\n").split(' ').count(), 2);
    assert_eq!(client.say(&format!("md k C{number}\r\n")), "EX\r\n");
    assert_eq!(client.say(&format!("ms k 1 C{number}\r\nd\r\n")), "EX\r\n");
    let mut binary = setup.memcached();
    let packet = binary.ask(&memcached_packet(0x00, 0, &[], b"k", b""));
    let cas = u64::from_be_bytes(packet[16..24].try_into().expect("a number"));
    assert_eq!((&packet[24..28], &packet[28..]), (&[0, 0, 0, 3][..], &b"d"[..]));
    let appended = binary.ask(&memcached_packet(0x0e, cas, &[], b"k", b"e"));
    let after = u64::from_be_bytes(appended[16..24].try_into().expect("a number"));
    assert_eq!(
        (appended[7], client.say("gets k\r\n")),
        (0, format!("VALUE k 3 2 {after}\r\nde\r\nEND\r\n"))
    );
    let refused = binary.ask(&memcached_packet(0x04, cas, &[], b"k", b""));
    assert_eq!(refused[7], 2, "it exists with another number");
    assert_eq!(binary.ask(&memcached_packet(0x04, after, &[], b"k", b""))[7], 0);
    assert_eq!(redis.words("EXISTS k"), Value::Integer(0));
}

#[test]
fn expiries_are_those_of_redis() {
    let _watch = watchdog(Duration::from_secs(60), "expiries on Redis servers");
    let setup = Setup::new(1, &[]);
    let (mut client, mut redis) = (setup.memcached(), setup.redis());
    let now = bytes(&mut redis, &[b"EVAL", b"return redis.call('TIME')[1]", b"0"]);
    let later = now.text().parse::<u64>().expect("a date") + 3_000_000;
    let ttl = |redis: &mut Client| redis.words("TTL k").integer();
    assert_eq!(client.say("set k 0 0 1\r\nv\r\n"), "STORED\r\n");
    assert_eq!(ttl(&mut redis), -1);
    for (request, told, range) in [
        ("set k 0 100 1\r\nv\r\n".to_owned(), "STORED", 95..=100),
        (format!("set k 3 {later} 1\r\nv\r\n"), "STORED", 2_999_990..=3_000_000),
        ("touch k 200\r\n".to_owned(), "TOUCHED", 195..=200),
        ("touch k 0\r\n".to_owned(), "TOUCHED", -1..=-1),
        (format!("touch k {later}\r\n"), "TOUCHED", 2_999_990..=3_000_000),
        ("gat 0 k\r\n".to_owned(), "VALUE k 3 1", -1..=-1),
        ("gat 50 k k\r\n".to_owned(), "VALUE k 3 1", 45..=50),
        ("mg k T70\r\n".to_owned(), "HD", 65..=70),
        ("ma none N9 J4 T80\r\n".to_owned(), "HD", 65..=70),
        ("add k 0 9 1\r\nv\r\n".to_owned(), "NOT_STORED", 65..=70),
        ("replace k 0 0 1\r\nv\r\n".to_owned(), "STORED", -1..=-1),
        ("touch k -1\r\n".to_owned(), "TOUCHED", -2..=-2),
        ("touch k 0\r\n".to_owned(), "NOT_FOUND", -2..=-2),
        ("touch k 9\r\n".to_owned(), "NOT_FOUND", -2..=-2),
        ("set k 0 -1 1\r\nv\r\n".to_owned(), "STORED", -2..=-2),
        ("set k 0 2592001 1\r\nv\r\n".to_owned(), "STORED", -2..=-2),
        ("set k 0 0 1\r\nv\r\n".to_owned(), "STORED", -1..=-1),
        ("gat -1 k\r\n".to_owned(), "VALUE k 0 1", -2..=-2),
    ] {
        let said = client.say(&request);
        assert_eq!(said.lines().next(), Some(told), "{request}");
        let left = ttl(&mut redis);
        assert!(range.contains(&left), "{request}: {left}");
    }
    assert!((75..=80).contains(&redis.words("TTL none").integer()));
    assert_eq!(
        client.say("set k 7 100 1\r\nv\r\nmg k t f v\r\n"),
        "STORED\r\nVA 1 t100 f7\r\nv\r\n"
    );
    assert_eq!(
        client.say("set k 7 0 1\r\nv\r\nmg k t\r\nmg no t\r\n"),
        "STORED\r\nHD t-1\r\nEN\r\n"
    );
}

#[test]
fn another_type_and_what_redis_has_not_are_refused_clearly() {
    let _watch = watchdog(Duration::from_secs(60), "refusals on Redis servers");
    let setup = Setup::new(1, &[]);
    let (mut client, mut redis) = (setup.memcached(), setup.redis());
    redis.words("RPUSH l a b");
    let wrong = "SERVER_ERROR key holds another type of Redis: use Redis commands for it, or set it anew\r\n";
    for request in [
        "get l\r\n",
        "gat 50 l\r\n",
        "incr l 1\r\n",
        "append l 0 0 1\r\nx\r\n",
        "prepend l 0 0 1\r\nx\r\n",
        "cas l 0 0 1 5\r\nx\r\n",
        "mg l t\r\n",
    ] {
        assert_eq!(client.say(request), wrong, "{request}");
    }
    client.say("set other 0 0 1\r\nv\r\n");
    assert_eq!(client.say("get l other\r\n"), "VALUE other 0 1\r\nv\r\nEND\r\n");
    assert_eq!(client.say("gats 0 other l\r\n").lines().count(), 3);
    assert_eq!(client.say("touch l 100\r\ntouch l 0\r\n"), "TOUCHED\r\nTOUCHED\r\n");
    assert_eq!(client.say("add l 0 0 1\r\nv\r\nset l 0 0 1\r\nv\r\n"), "NOT_STORED\r\nSTORED\r\n");
    for request in [
        "mg other h\r\n",
        "mg other l\r\n",
        "mg other u\r\n",
        "mg other N30\r\n",
        "mg other R30\r\n",
        "mg other t T30\r\n",
        "ms other 1 I\r\nx\r\n",
        "ms other 1 E5\r\nx\r\n",
        "md other I\r\n",
        "md other x\r\n",
        "ma other t\r\n",
        "me other\r\n",
    ] {
        let said = client.say(request);
        assert!(said.starts_with("CLIENT_ERROR the") && said.ends_with("\r\n"), "{request}: {said}")
    }
    let said = client.say("flush_all\r\n");
    assert!(said.contains("allow_flush = true in [pool.shared]"), "{said}");
    let said = client.say("stats\r\n");
    assert!(said.contains("STAT servers 1\r\n") && said.ends_with("END\r\n"), "{said}");
    assert!(said.contains("STAT curr_items 2\r\n"), "{said}");
    for word in ["items", "detail dump", "cachedump 1 10"] {
        assert_eq!(client.say(&format!("stats {word}\r\n")), "END\r\n", "{word}");
    }
    assert_eq!(client.say("stats other\r\n").split(' ').next(), Some("CLIENT_ERROR"));
    assert_eq!(client.say("verbosity 1\r\nmn\r\n"), "OK\r\nMN\r\n");
    assert!(client.say("version\r\n").starts_with("VERSION "));
    assert_eq!(client.say("get other\r\n"), "VALUE other 0 1\r\nv\r\nEND\r\n");
    let long = format!("set other 0 0 1048577\r\n{}\r\n", "x".repeat(1_048_577));
    assert_eq!(client.say(&long), "SERVER_ERROR object too large for cache\r\n");
    assert_eq!(redis.words("EXISTS other"), Value::Integer(0), "nobody reads what is out of date");
}

#[test]
fn items_of_many_servers_come_in_the_order_of_the_keys() {
    let _watch = watchdog(Duration::from_secs(60), "many items on Redis servers");
    let setup = Setup::new(3, &[("allow_flush", "true")]);
    let mut client = setup.memcached();
    let (mut sets, mut gets, mut items) = (String::new(), String::new(), String::new());
    for nth in 0..200 {
        gets += &format!(" key{nth}");
        if nth % 5 != 0 {
            sets += &format!("set key{nth} {} 0 3 noreply\r\n{nth:03}\r\n", nth % 3);
            items += &format!("VALUE key{nth} {} 3\r\n{nth:03}\r\n", nth % 3);
        }
    }
    assert_eq!(client.say(&sets), "");
    assert_eq!(client.say(&format!("get{gets}\r\n")), format!("{items}END\r\n"));
    assert_eq!(client.say(&format!("gat 100{gets}\r\n")), format!("{items}END\r\n"));
    for server in &setup.servers {
        assert!(server.client().words("DBSIZE").integer() > 10, "each has its share");
    }
    assert_eq!(client.say("flush_all 10\r\n").split(' ').next(), Some("CLIENT_ERROR"));
    assert_eq!(client.say("flush_all\r\n"), "OK\r\n");
    assert_eq!(client.say(&format!("get{gets}\r\n")), "END\r\n");
}

#[test]
fn a_server_that_fails_answers_with_an_error_and_is_ejected() {
    let _watch = watchdog(Duration::from_secs(60), "failing Redis servers");
    let mut setup = Setup::new(
        2,
        &[
            ("timeout", "\"300ms\""),
            ("ejection", "{ after_failures = 3, for = \"2s\", rejoin = \"serve\" }"),
        ],
    );
    let (mut client, mut binary) = (setup.memcached(), setup.memcached());
    for nth in 0..20 {
        assert_eq!(client.say(&format!("set k{nth} 1 0 1\r\nv\r\n")), "STORED\r\n");
    }
    setup.servers[0].process().pause();
    let mut late = 0;
    for nth in 0..20 {
        let said = client.say(&format!("get k{nth}\r\n"));
        let is_late = said.starts_with("SERVER_ERROR") && said.contains("in time");
        late += usize::from(is_late);
        assert!(is_late || said.ends_with("END\r\n"), "{said}");
        if late == 1 {
            break;
        }
    }
    assert_eq!(late, 1);
    setup.servers[0].process().resume();
    setup.servers[0].kill();
    wait_until("the server is ejected", Duration::from_secs(20), || {
        (0..20).all(|nth| client.say(&format!("get k{nth}\r\n")).ends_with("END\r\n"))
    });
    let said = client.say("get k1 k2 k3 k4 k5 k6\r\n");
    assert!(said.ends_with("END\r\n"), "{said}");
    assert!(client.say("stats\r\n").contains("STAT servers 1\r\n"));
    assert!(binary.ask(&memcached_packet(0x00, 0, &[], b"k0", b"")).len() > 24);
    setup.servers[0].restart();
    wait_until("the server is used again", Duration::from_secs(20), || {
        client.say("stats\r\n").contains("STAT servers 2\r\n")
    });
    for nth in 0..20 {
        assert_eq!(
            client.say(&format!("set k{nth} 1 0 1\r\n7\r\nincr k{nth} 1\r\n")),
            "STORED\r\n8\r\n"
        );
    }
}

#[test]
fn a_server_that_was_made_to_forget_scripts_is_given_them_again() {
    let _watch = watchdog(Duration::from_secs(60), "forgotten scripts");
    let setup = Setup::new(1, &[]);
    let mut client = setup.memcached();
    assert_eq!(client.say("set n 5 0 1\r\n1\r\nincr n 1\r\n"), "STORED\r\n2\r\n");
    // This goes through the pool, so Keyway knows of it.
    assert_eq!(setup.redis().words("SCRIPT FLUSH"), Value::simple("OK"));
    assert_eq!(client.say("incr n 1\r\n"), "3\r\n");
    // This happens without Keyway's knowledge. The client is told, and nothing was executed.
    assert_eq!(setup.servers[0].client().words("SCRIPT FLUSH"), Value::simple("OK"));
    let said = client.say("incr n 1\r\n");
    assert!(said.starts_with("SERVER_ERROR") && said.contains("ask again"), "{said}");
    assert_eq!(client.say("incr n 1\r\n"), "4\r\n");
}

#[test]
fn the_slow_log_names_the_client_of_memcached() {
    let _watch = watchdog(Duration::from_secs(60), "the slow log");
    let setup = Setup::new(1, &[("slowlog_log_slower_than", "\"30ms\"")]);
    let (mut client, mut redis) = (setup.memcached(), setup.redis());
    let mut direct = setup.servers[0].client();
    wait_until("a request finds the server busy", Duration::from_secs(20), || {
        direct.send(&encode(&["DEBUG", "SLEEP", "0.1"]));
        assert_eq!(client.say("get slow\r\n"), "END\r\n");
        direct.reply();
        redis.words("SLOWLOG LEN").integer() > 0
    });
    let log = redis.words("SLOWLOG GET");
    let entry = log.array()[0].array();
    let args: Vec<_> = entry[3].array().iter().map(Value::text).collect();
    assert_eq!(args, ["GET", "slow"]);
    assert!(entry[4].text().starts_with("127.0.0.1:"), "{entry:?}");
}

#[test]
fn a_full_server_says_so() {
    let _watch = watchdog(Duration::from_secs(60), "a full Redis server");
    let server = RedisServer::start_with(&["--maxmemory", "1500kb"]);
    let pool = Pool::over("full", std::slice::from_ref(&server)).spoken_to_in("memcached");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.memcached_client(0);
    let value = "x".repeat(100_000);
    let told: Vec<String> =
        (0..20).map(|nth| client.say(&format!("set k{nth} 0 0 100000\r\n{value}\r\n"))).collect();
    let full = "SERVER_ERROR out of memory storing object\r\n";
    assert!(told.iter().any(|said| said == full), "{told:?}");
    assert_eq!(client.say("append k0 0 0 1\r\nx\r\n"), full);
}

#[test]
fn a_password_is_asked_for_and_keys_of_another_database_are_not_seen() {
    let _watch = watchdog(Duration::from_secs(60), "passwords before Redis servers");
    let setup = Setup::new(1, &[("client_password", "\"secret\""), ("database", "3")]);
    let mut client = setup.memcached();
    client.send(b"get k\r\n");
    assert_eq!(client.line(), "CLIENT_ERROR unauthenticated");
    assert_eq!(client.say("set auth 0 0 9\r\nme secret\r\n"), "STORED\r\n");
    assert_eq!(client.say("set k 0 0 1\r\nv\r\n"), "STORED\r\n");
    let mut server = setup.servers[0].client();
    assert_eq!(server.words("EXISTS k"), Value::Integer(0));
    server.words("SELECT 3");
    assert_eq!(server.words("GET k"), Value::bulk("v"));
}
