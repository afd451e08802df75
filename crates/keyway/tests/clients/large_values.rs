//! Values of many megabytes, in both directions, and their effect on other clients.

#![allow(clippy::disallowed_methods, reason = "what others notice is timed from outside")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use keyway_testkit::large::{
    MB, ask, connect, expect, get, growth_during, read_value, set, set_head, write_value,
};
use keyway_testkit::{
    Action, Keyway, KeywayConfig, MemcachedServer, Pool, RedisServer, ScriptedBackend, Value,
    has_memcached, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
fn start(servers: &[RedisServer]) -> Keyway {
    let config = KeywayConfig::new(vec![Pool::over("main", servers).with("timeout", "\"10s\"")]);
    Keyway::start(KEYWAY, config.with_server("workers", "1"))
}

fn passes_both_ways(len: usize) {
    let _watch = watchdog(Duration::from_secs(170), "a large value both ways");
    let servers = RedisServer::start_many(2);
    let keyway = start(&servers);
    let pid = keyway.process().pid();
    let mut client = connect(keyway.address(0));
    for round in 0..2 {
        let written = growth_during(pid, || set(&mut client, "large", len));
        let read = growth_during(pid, || get(&mut client, "large", len));
        println!("{} MB, {round}: {written} bytes more to write, {read} to read", len / MB);
        assert!(written < 16 * MB && read < 16 * MB, "{written} and {read} bytes");
    }
    assert_eq!(keyway.client(0).words("STRLEN large"), Value::Integer(len as i64));
}

#[test]
fn a_large_value_passes_both_ways_in_little_memory() {
    passes_both_ways(64 * MB);
}

#[test]
#[ignore = "takes a gigabyte for the server; make soak runs it"]
fn the_largest_value_passes_both_ways_in_little_memory() {
    passes_both_ways(512 * MB);
}

/// Writes and reads small values of the same server. Returns how long each took, in ascending
/// order.
fn small_ones(keyway: &Keyway, count: usize) -> Vec<Duration> {
    let mut other = keyway.client(0);
    let mut took: Vec<Duration> = (0..count)
        .map(|number| {
            let began = Instant::now();
            assert_eq!(other.words(&format!("SET {{x}}{number} a")), Value::simple("OK"));
            assert_eq!(other.words(&format!("GET {{x}}{number}")), Value::bulk("a"));
            began.elapsed()
        })
        .collect();
    took.sort();
    took
}

#[test]
fn who_stops_in_the_middle_of_a_large_value_holds_nobody_up() {
    let _watch = watchdog(Duration::from_secs(120), "clients that stop");
    let servers = RedisServer::start_many(1);
    let keyway = start(&servers);
    let pid = keyway.process().pid();
    let (mut reader, mut writer) = (connect(keyway.address(0)), connect(keyway.address(0)));
    let len = 48 * MB;
    set(&mut writer, "{x}", len);
    // From the second one on, it has a connection that only large replies share.
    get(&mut reader, "{x}", len);
    let growth = growth_during(pid, || {
        ask(&mut reader, "{x}");
        expect(&mut reader, format!("${len}\r\n").as_bytes());
        writer.write_all(&set_head("{x}other", len, 3)).expect("taken");
        write_value(&mut writer, 0, len / 3);
        let took = small_ones(&keyway, 300);
        println!("beside both: median {:?}, slowest {:?}", took[150], took[299]);
    });
    println!("{growth} bytes more");
    assert!(growth < 16 * MB, "{growth} bytes for two who have stopped");
    read_value(&mut reader, len);
    expect(&mut reader, b"\r\n");
    write_value(&mut writer, len / 3, len);
    writer.write_all(b"\r\n").expect("taken");
    expect(&mut writer, b"+OK\r\n");
    get(&mut writer, "{x}other", len);
}

/// The first large reply comes by the shared connection, and the requests of others go around it.
/// If they waited behind it, Keyway would have to buffer what the client does not read.
#[test]
fn who_does_not_read_a_first_large_reply_holds_nobody_up() {
    let _watch = watchdog(Duration::from_secs(120), "a client that does not read");
    let servers = RedisServer::start_many(1);
    let keyway = start(&servers);
    let pid = keyway.process().pid();
    let len = 48 * MB;
    set(&mut connect(keyway.address(0)), "{x}", len);
    let mut reader = connect(keyway.address(0));
    let growth = growth_during(pid, || {
        ask(&mut reader, "{x}");
        expect(&mut reader, format!("${len}\r\n").as_bytes());
        for round in 0..3 {
            let took = small_ones(&keyway, 100);
            println!("{round}, beside it: median {:?}, slowest {:?}", took[50], took[99]);
        }
    });
    assert!(growth < 16 * MB, "{growth} bytes for one that does not read");
    read_value(&mut reader, len);
    expect(&mut reader, b"\r\n");
    // The reply is complete: the requests that went around it return to the shared connection.
    small_ones(&keyway, 100);
}

/// Opens connections of clients that ask for a value of a megabyte again and again, and read
/// nothing.
fn mutes(keyway: &Keyway, count: usize, (first, request): (&str, &str)) -> Vec<TcpStream> {
    let one = || {
        let mut mute = connect(keyway.address(0));
        let all = first.to_owned() + &request.repeat(20);
        mute.write_all(all.as_bytes()).expect("taken");
        mute
    };
    (0..count).map(|_| one()).collect()
}

/// Asks for a small value on a new connection each time. Returns the time of the slowest reply and
/// the number of errors.
fn asked_beside(count: usize, mut ask_one: impl FnMut() -> bool) -> (Duration, usize) {
    let (mut slowest, mut errors) = (Duration::ZERO, 0);
    for _ in 0..count {
        let began = Instant::now();
        errors += usize::from(!ask_one());
        slowest = slowest.max(began.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("beside them: slowest {slowest:?}, {errors} of {count} errors");
    (slowest, errors)
}

const TIMEOUT: Duration = Duration::from_secs(1);

/// The time that a request may take, and the extra time of a busy machine.
const IN_TIME: Duration = Duration::from_millis(1100 + 400);

/// Requests of other clients are answered. A client that reads nothing holds little memory: one whose
/// replies come one after the other holds one of them, and one that has more unread bytes than the
/// bound is disconnected. Which of both happens depends on how fast the replies come.
fn many_that_read_nothing_hold_nobody_up(greeting: &str) {
    let _watch = watchdog(Duration::from_secs(60), "clients that read nothing");
    let servers = RedisServer::start_many(1);
    let pool = Pool::over("main", &servers).with("timeout", &format!("\"{}s\"", TIMEOUT.as_secs()));
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config);
    set(&mut connect(keyway.address(0)), "{x}", MB);
    assert_eq!(keyway.client(0).words("SET {x}small a"), Value::simple("OK"));
    let pid = keyway.process().pid();
    let growth = growth_during(pid, || {
        let held = mutes(&keyway, 10, (greeting, "GET {x}\r\n"));
        let (slowest, errors) =
            asked_beside(30, || keyway.client(0).words("GET {x}small") == Value::bulk("a"));
        assert!(slowest < IN_TIME && errors < 25, "{slowest:?}, {errors} errors");
        let closed = "keyway_client_closed_connections_total";
        let ended = keyway.metrics().sum(closed, &["fault=\"limit\""]);
        println!("{ended} of 10 clients were disconnected");
        drop(held);
    });
    assert!(growth < 200 * MB, "{growth} bytes for ten that read nothing");
    wait_until("all are gone", Duration::from_secs(10), || {
        keyway.metrics().sum("keyway_client_connections", &[]) == 0.0
    });
}

#[test]
fn many_that_read_nothing_hold_nobody_up_in_resp2() {
    many_that_read_nothing_hold_nobody_up("");
}

#[test]
fn many_that_read_nothing_hold_nobody_up_in_resp3() {
    many_that_read_nothing_hold_nobody_up("HELLO 3\r\n");
}

#[test]
fn many_that_read_nothing_hold_nobody_up_at_memcached() {
    if !has_memcached("clients that read nothing") {
        return;
    }
    let _watch = watchdog(Duration::from_secs(60), "clients that read nothing");
    let servers = vec![MemcachedServer::start_with(&["-I", "2m", "-m", "64"])];
    let pool = Pool::memcached("main", &servers).with_listener("item_len_max", "\"2MiB\"");
    let pool = pool.with("timeout", "\"1s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "1"));
    let mut client = connect(keyway.address(0));
    client.write_all(format!("set large 0 0 {MB}\r\n").as_bytes()).expect("taken");
    write_value(&mut client, 0, MB);
    client.write_all(b"\r\nset small 0 0 1\r\nx\r\n").expect("taken");
    expect(&mut client, b"STORED\r\nSTORED\r\n");
    let held = mutes(&keyway, 10, ("", "get large\r\n"));
    let (slowest, errors) = asked_beside(20, || {
        let mut other = connect(keyway.address(0));
        other.write_all(b"get small\r\n").expect("taken");
        let mut got = [0; 5];
        other.read_exact(&mut got).expect("a reply");
        got == *b"VALUE"
    });
    assert!(slowest < IN_TIME && errors < 16, "{slowest:?}, {errors} errors");
    drop(held);
}

/// The server is silent and its link is full. A request that finds no room is refused in time, and
/// the next one of the same client waits no longer.
#[test]
fn clients_of_memcached_that_find_no_room_are_refused_in_time() {
    if !has_memcached("requests that find no room") {
        return;
    }
    let _watch = watchdog(Duration::from_secs(60), "requests that find no room");
    let servers = vec![MemcachedServer::start()];
    let pool = Pool::memcached("main", &servers).with("timeout", "\"1s\"");
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config.with_tables("[limits]\nlink_in_flight_max = 16\n"));
    let mut other = connect(keyway.address(0));
    other.write_all(b"set k 0 0 1\r\nx\r\n").expect("taken");
    expect(&mut other, b"STORED\r\n");
    servers[0].process().pause();
    let mut many = connect(keyway.address(0));
    many.write_all(&b"get k\r\n".repeat(100)).expect("taken");
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    other.write_all(b"get k\r\nset k 0 0 1\r\ny\r\n").expect("taken");
    for _ in 0..2 {
        let told = read_line(&mut other);
        assert!(told.starts_with("SERVER_ERROR"), "{told}");
        assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
    }
    servers[0].process().resume();
    wait_until("it answers", Duration::from_secs(20), || {
        let mut new = connect(keyway.address(0));
        new.write_all(b"get k\r\n").expect("taken");
        read_line(&mut new).starts_with("VALUE")
    });
}

fn read_line(client: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("a reply");
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).into_owned()
}

/// A client that reads slowly gets all of its values, however many such clients there are.
#[test]
fn who_reads_slowly_beside_others_has_all_of_it() {
    let _watch = watchdog(Duration::from_secs(60), "clients that read slowly");
    let servers = RedisServer::start_many(1);
    let keyway = start(&servers);
    set(&mut connect(keyway.address(0)), "{x}", MB);
    let held = mutes(&keyway, 5, ("", "GET {x}\r\n"));
    let readers: Vec<_> = (held.into_iter())
        .map(|mut reader| {
            std::thread::spawn(move || {
                for _ in 0..20 {
                    std::thread::sleep(Duration::from_millis(50));
                    expect(&mut reader, format!("${MB}\r\n").as_bytes());
                    read_value(&mut reader, MB);
                    expect(&mut reader, b"\r\n");
                }
            })
        })
        .collect();
    small_ones(&keyway, 20);
    readers.into_iter().for_each(|reader| reader.join().expect("all of it came"));
}

#[test]
fn large_and_small_ones_keep_their_order() {
    let _watch = watchdog(Duration::from_secs(120), "a pipeline");
    let servers = RedisServer::start_many(3);
    let keyway = start(&servers);
    let mut client = connect(keyway.address(0));
    let len = 3 * MB + 17;
    set(&mut client, "large", len);
    for round in 0..5 {
        let mut writer = client.try_clone().expect("another handle");
        let sending = std::thread::spawn(move || {
            ask(&mut writer, "large");
            for number in 0..20 {
                let line = format!("*3\r\n$3\r\nSET\r\n$2\r\n{:02}\r\n$1\r\nx\r\n", number);
                writer.write_all(line.as_bytes()).expect("taken");
            }
            ask(&mut writer, "large");
            // The request has options after the value, and is cut anywhere.
            writer.write_all(&set_head("large", len, 5)).expect("taken");
            write_value(&mut writer, 0, len);
            let tail = b"\r\n$2\r\nEX\r\n$3\r\n100\r\n*2\r\n$7\r\nPERSIST\r\n$5\r\nlarge\r\n";
            for piece in tail.chunks(3 + 4 * round) {
                writer.write_all(piece).expect("taken");
            }
            ask(&mut writer, "large");
            ask(&mut writer, "19");
        });
        for begins in [true, false] {
            expect(&mut client, format!("${len}\r\n").as_bytes());
            read_value(&mut client, len);
            expect(&mut client, b"\r\n");
            (0..20).filter(|_| begins).for_each(|_| expect(&mut client, b"+OK\r\n"));
        }
        expect(&mut client, b"+OK\r\n:1\r\n");
        expect(&mut client, format!("${len}\r\n").as_bytes());
        read_value(&mut client, len);
        expect(&mut client, b"\r\n$1\r\nx\r\n");
        sending.join().expect("all was sent");
    }
}

/// Returns a value of `len` bytes that differs for each number.
fn numbered(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 5) as u8 ^ (at >> 9) as u8 ^ (number * 37) as u8).collect()
}

#[test]
fn pipelines_of_values_of_all_lengths_come_whole_and_in_order() {
    const LENS: [usize; 9] =
        [3, 11_000, 12_288, 16_384, 16_385, 65_530, 65_536, 200_000, 1_300_000];
    let _watch = watchdog(Duration::from_secs(120), "pipelines");
    let servers = RedisServer::start_many(3);
    let keyway = start(&servers);
    let mut client = connect(keyway.address(0));
    for (number, len) in LENS.into_iter().enumerate() {
        client.write_all(&set_head(&format!("k{number}"), len, 3)).expect("taken");
        client.write_all(&numbered(number, len)).and_then(|()| client.write_all(b"\r\n")).unwrap();
        expect(&mut client, b"+OK\r\n");
    }
    let readers: Vec<_> = (0..6_usize)
        .map(|reader| {
            let mut client = connect(keyway.address(0));
            std::thread::spawn(move || {
                let mut random = 0x9e37_79b9_u64 + reader as u64;
                for _ in 0..30 {
                    let mut numbers = Vec::new();
                    for _ in 0..24 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        // The longest values are asked for seldom: they go another way.
                        numbers.push((random >> 33) as usize % if reader < 4 { 7 } else { 9 });
                    }
                    for number in &numbers {
                        ask(&mut client, &format!("k{number}"));
                    }
                    if reader % 2 == 0 {
                        // Its replies have to wait meanwhile.
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    for number in numbers {
                        let len = LENS[number];
                        let mut got = vec![0; len + 2];
                        expect(&mut client, format!("${len}\r\n").as_bytes());
                        client.read_exact(&mut got).expect("the value");
                        assert!(got[len..] == *b"\r\n" && got[..len] == numbered(number, len));
                    }
                }
            })
        })
        .collect();
    readers.into_iter().for_each(|reader| reader.join().expect("all was right"));
}

#[test]
fn who_leaves_in_the_middle_leaves_nothing_behind() {
    let _watch = watchdog(Duration::from_secs(120), "clients that leave");
    let servers = RedisServer::start_many(1);
    let keyway = start(&servers);
    let mut client = connect(keyway.address(0));
    let len = 16 * MB;
    set(&mut client, "{x}", len);
    for _ in 0..3 {
        let (mut reader, mut writer) = (connect(keyway.address(0)), connect(keyway.address(0)));
        ask(&mut reader, "{x}");
        expect(&mut reader, format!("${len}\r\n").as_bytes());
        writer.write_all(&set_head("{x}", len, 3)).expect("taken");
        write_value(&mut writer, 0, len / 2);
    }
    let mut other = keyway.client(0);
    wait_until("only those who stay are there", Duration::from_secs(20), || {
        let list = servers[0].client().words("CLIENT LIST").text();
        // These are the shared link, the link around it, and the one that asks.
        list.lines().filter(|line| line.contains(" addr=")).count() <= 3
    });
    assert_eq!(other.words("STRLEN {x}"), Value::Integer(len as i64));
    get(&mut client, "{x}", len);
}

#[test]
fn a_reply_cut_off_by_its_server_ends_its_client_and_nobody_else() {
    let _watch = watchdog(Duration::from_secs(60), "a server that closes");
    let backend = ScriptedBackend::start(|request| match request[1] == b"bad" {
        true => {
            let mut part = b"$9000000\r\n".to_vec();
            part.resize(3 * MB, b'x');
            Action::Close(part)
        }
        false => Action::Reply(b"$2\r\nok\r\n".to_vec()),
    });
    let pool = Pool::sharded("main", &[format!("{}:1", backend.address())]);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let (mut client, mut other) = (connect(keyway.address(0)), keyway.client(0));
    assert_eq!(other.words("GET a"), Value::bulk("ok"));
    ask(&mut client, "bad");
    let mut got = Vec::new();
    let _ = client.read_to_end(&mut got);
    let head = b"$9000000\r\n";
    assert!(
        got.starts_with(head) && got.len() > 100 && got[head.len()..].iter().all(|&b| b == b'x')
    );
    assert_eq!(other.words("GET a"), Value::bulk("ok"));
    wait_until("it is counted", Duration::from_secs(10), || {
        let labels = ["fault=\"backend\""];
        keyway.metrics().sum("keyway_client_closed_connections_total", &labels) == 1.0
    });
}

#[test]
fn a_server_that_is_not_there_is_told_when_the_value_was_sent() {
    let _watch = watchdog(Duration::from_secs(60), "no server");
    let mut servers = RedisServer::start_many(1);
    let keyway = start(&servers);
    servers[0].kill();
    let mut client = connect(keyway.address(0));
    let len = 4 * MB;
    client.write_all(&set_head("a", len, 3)).expect("taken");
    write_value(&mut client, 0, len);
    client.write_all(b"\r\n*1\r\n$4\r\nPING\r\n").expect("taken");
    let mut got = [0; 5];
    client.read_exact(&mut got).expect("an error");
    assert_eq!(&got, b"-ERR ");
    let mut rest = Vec::new();
    while !rest.ends_with(b"\r\n+PONG\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("the rest");
        rest.push(byte[0]);
    }
}

#[test]
fn large_items_of_memcached_pass_in_little_memory() {
    if !has_memcached("large items") {
        return;
    }
    let _watch = watchdog(Duration::from_secs(120), "large items");
    let servers = vec![MemcachedServer::start_with(&["-I", "64m", "-m", "256"])];
    let pool = Pool::memcached("main", &servers).with_listener("item_len_max", "\"64MiB\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool.with("timeout", "\"10s\"")]));
    let mut client = connect(keyway.address(0));
    let len = 40 * MB;
    client.write_all(format!("set large 0 0 {len}\r\n").as_bytes()).expect("taken");
    write_value(&mut client, 0, len);
    client.write_all(b"\r\nset small 0 0 1\r\nx\r\n").expect("taken");
    expect(&mut client, b"STORED\r\nSTORED\r\n");
    for (asked, head) in
        [("get large", format!("VALUE large 0 {len}")), ("mg large v", format!("VA {len}"))]
    {
        let growth = growth_during(keyway.process().pid(), || {
            client.write_all(format!("{asked}\r\nget small\r\n").as_bytes()).expect("taken");
            expect(&mut client, format!("{head}\r\n").as_bytes());
            read_value(&mut client, len);
        });
        expect(&mut client, if asked.starts_with("get") { b"\r\nEND\r\n" } else { b"\r\n" });
        expect(&mut client, b"VALUE small 0 1\r\nx\r\nEND\r\n");
        assert!(growth < 16 * MB, "{growth} bytes for {asked}");
    }
    // The large value is among others of one request.
    client.write_all(b"get small large small\r\n").expect("taken");
    expect(&mut client, format!("VALUE small 0 1\r\nx\r\nVALUE large 0 {len}\r\n").as_bytes());
    read_value(&mut client, len);
    expect(&mut client, b"\r\nVALUE small 0 1\r\nx\r\nEND\r\n");
}
