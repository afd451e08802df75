//! Blocking commands on the embedded store: the replies of a bare redis-server; first come, first
//! served, on any worker; nothing lost or doubled.

use std::collections::BTreeSet;
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, encode, encode_words, wait_until,
    watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(20);

/// A longer bound for tests with much work on a busy machine.
const BOUND_UNDER_LOAD: Duration = Duration::from_secs(150);

fn store(workers: &str) -> Keyway {
    let config = KeywayConfig::new(vec![Pool::store("local")]);
    Keyway::start(KEYWAY, config.with_server("workers", workers))
}

/// Returns the number of blocked clients, as INFO shows it.
fn blocked(client: &mut Client) -> i64 {
    let text = client.words("INFO clients").text();
    let field = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    field.expect("the field").trim().parse().expect("a number")
}

fn wait_for_blocked(client: &mut Client, count: i64) {
    wait_until(&format!("{count} blocked"), BOUND, || blocked(client) == count);
}

fn bytes_of(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| encode_words(line)).collect()
}

#[test]
fn a_client_that_leaves_with_much_behind_its_command_takes_nothing() {
    let _watch = watchdog(Duration::from_secs(60), "leaving");
    let keyway = store("2");
    let mut other = keyway.client(0);
    for blocking in
        ["BLPOP leave 0", "XREAD BLOCK 0 STREAMS leave $", "BLMOVE leave to LEFT LEFT 0"]
    {
        for len in [200_000, 4_000_000] {
            let mut client = keyway.client(0);
            client.send(&encode_words(blocking));
            wait_for_blocked(&mut other, 1);
            client.send(&encode(&[b"SET".as_slice(), b"other", &vec![b'x'; len]]));
            drop(client);
            wait_for_blocked(&mut other, 0);
        }
    }
    other.words("RPUSH leave v");
    assert_eq!(other.words("LPOP leave"), Value::bulk("v"));
}

/// A new client is not slowed down by many clients that wait for the same keys.
#[test]
fn many_who_wait_for_the_same_keys_hold_nobody_up() {
    let _watch = watchdog(Duration::from_secs(60), "many keys");
    let keyway = store("1");
    let mut other = keyway.client(0);
    let keys: Vec<String> = (0..5000).map(|nth| format!("k{nth}")).collect();
    let keys = keys.join(" ");
    let ids = vec!["$"; 5000].join(" ");
    let commands = [
        format!("BLPOP {keys} 0"),
        format!("BZPOPMIN {keys} 0"),
        format!("XREAD BLOCK 0 STREAMS {keys} {ids}"),
    ];
    for command in commands {
        let mut clients: Vec<Client> = (0..10).map(|_| keyway.client(0)).collect();
        clients.iter_mut().for_each(|client| client.send(&encode_words(&command)));
        other.set_reply_within(Duration::from_secs(3));
        wait_for_blocked(&mut other, 10);
        assert_eq!(other.words("PING"), Value::simple("PONG"));
        drop(clients);
        wait_for_blocked(&mut other, 0);
    }
}

#[test]
fn every_blocking_command_is_woken_and_times_out_as_on_a_bare_server() {
    let _watch = watchdog(Duration::from_secs(120), "every command");
    let (bare, keyway) = (RedisServer::start(), store("3"));
    let cases = [
        ("BLPOP a b 10", "RPUSH b v"),
        ("BRPOP a b 10", "RPUSH a v w"),
        ("BLPOP a 10", "LPUSH a v w"),
        ("BLPOP a 10", "RENAME other a"),
        ("BLPOP a 10", "COPY other a"),
        ("BLPOP a 10", "LMOVE other a LEFT LEFT"),
        ("BLPOP a 10", "SWAPDB 0 1"),
        ("BLMOVE a d LEFT RIGHT 10", "RPUSH a v"),
        ("BLMOVE a text LEFT RIGHT 10", "RPUSH a v"),
        ("BRPOPLPUSH a d 10", "RPUSH a v w"),
        ("BLMPOP 10 2 a b LEFT COUNT 2", "RPUSH b v w x"),
        ("BZPOPMIN z y 10", "ZADD y 1 m 2 n"),
        ("BZPOPMAX z y 10", "ZADD y 1 m 2 n"),
        ("BZPOPMAX z y 10", "ZUNIONSTORE y 1 scores"),
        ("BZMPOP 10 2 z y MAX COUNT 2", "ZADD z 1 m 2 n"),
    ];
    let prepare = |client: &mut Client| {
        let lines = ["FLUSHALL", "RPUSH other v w", "ZADD scores 1 m 2.5 n", "SET text x"];
        client.pipeline(&lines);
        client.pipeline(&["SELECT 1", "RPUSH a v", "SELECT 0"]);
    };
    for (blocking, waking) in cases {
        for hello in ["HELLO 2", "HELLO 3"] {
            let mut told = Vec::new();
            for [mut waiting, mut other] in
                [[bare.client(), bare.client()], [keyway.client(0), keyway.client(0)]]
            {
                prepare(&mut other);
                waiting.words(hello);
                waiting.send(&encode_words(blocking));
                wait_for_blocked(&mut other, 1);
                let mut all = vec![other.words(waking), waiting.reply()];
                all.push(other.words("LRANGE a 0 -1"));
                all.push(other.words("LRANGE d 0 -1"));
                all.push(other.words("ZRANGE y 0 -1 WITHSCORES"));
                // The command ends by its timeout, without being woken.
                prepare(&mut other);
                let brief = blocking.replace(" 10", " 0.02");
                all.push(waiting.words(&brief));
                all.push(waiting.words("PING"));
                wait_for_blocked(&mut other, 0);
                told.push(all);
            }
            assert_eq!(told[1], told[0], "{hello}: {blocking}, {waking}");
        }
    }
}

#[test]
fn what_is_there_or_wrong_is_answered_at_once_as_by_a_bare_server() {
    let _watch = watchdog(Duration::from_secs(120), "at once");
    let (bare, keyway) = (RedisServer::start(), store("1"));
    let (mut theirs, mut ours) = (bare.client(), keyway.client(0));
    let lines = [
        "RPUSH l a b c d e f g",
        "ZADD z 1 a 2 b 3 c 4 d 5 e 6 f",
        "SET s x",
        "BLPOP none l 0",
        "BRPOP l none 0",
        "BLMOVE l d RIGHT LEFT 0",
        "BRPOPLPUSH l d 0",
        "BLMPOP 0 2 none l LEFT COUNT 9",
        "BZPOPMIN none z 0",
        "BZPOPMAX z 0",
        "BZMPOP 0 1 z MIN COUNT 2",
        "BLPOP s 0",
        "BLPOP none s 0",
        "BLPOP none -1",
        "BLPOP none x",
        "BLPOP none inf",
        "BLPOP none nan",
        "BLPOP none 1e18",
        "BLPOP none 0.001",
        "BLPOP none 0.0001",
        "BLPOP none 1e-3",
        "BLPOP none",
        "BLMOVE l d UP DOWN 0",
        "BLMOVE l d UP DOWN -1",
        "BLMOVE s d LEFT LEFT 0",
        "RPUSH l a",
        "BLMOVE l s LEFT LEFT 0",
        "BLMOVE none s LEFT LEFT 0.01",
        "BLMPOP x 1 l LEFT",
        "BLMPOP -1 0 l LEFT",
        "BLMPOP 0.01 0 l LEFT",
        "BLMPOP 0.01 2 l LEFT",
        "BLMPOP 0.01 1 l UP",
        "BLMPOP 0.01 1 l LEFT COUNT 0",
        "BLMPOP 0.01 1 l LEFT COUNT 1 COUNT 2",
        "BLMPOP 0.01 2 s l LEFT",
        "BZMPOP 0.01 1 z MED",
        "BZPOPMIN l 0",
        "MULTI",
        "BLPOP none 0",
        "BLMOVE none d LEFT LEFT 0",
        "BRPOPLPUSH none d 0",
        "BLMPOP 0 1 none LEFT",
        "BZPOPMIN none 0",
        "BZMPOP 0 1 none MIN",
        "BLPOP l x",
        "BLPOP l 0",
        "EXEC",
    ];
    for hello in ["HELLO 2", "HELLO 3"] {
        for client in [&mut theirs, &mut ours] {
            client.pipeline(&["FLUSHALL", hello]);
        }
        for line in lines {
            assert_eq!(ours.words(line), theirs.words(line), "{hello}: {line}");
        }
    }
}

#[test]
fn who_came_first_is_served_first_over_all_workers() {
    let _watch = watchdog(Duration::from_secs(120), "first");
    const WAITERS: usize = 24;
    let keyway = store("3");
    let mut other = keyway.client(0);
    let mut waiters: Vec<Client> = Vec::new();
    for nth in 0..WAITERS {
        let mut client = keyway.client(0);
        client.send(&encode_words("BLPOP q 0"));
        wait_for_blocked(&mut other, nth as i64 + 1);
        waiters.push(client);
    }
    let mut told = Vec::new();
    for round in 0..WAITERS / 2 {
        told.extend([format!("{round}a"), format!("{round}b")]);
        // The waiting client has it: nothing is left for the client that pushed.
        let replies = other.pipeline(&[
            &format!("RPUSH q {round}a {round}b"),
            "LLEN q",
            "LPOP q",
            "EXISTS q",
        ]);
        let expected = [Value::Integer(2), Value::Integer(0), Value::Nil, Value::Integer(0)];
        assert_eq!(replies, expected);
    }
    for (client, value) in waiters.iter_mut().zip(told) {
        let expected = Value::Array(vec![Value::bulk("q"), Value::bulk(value)]);
        assert_eq!(client.reply(), expected);
    }
    wait_for_blocked(&mut other, 0);
}

#[test]
fn producers_and_consumers_of_all_workers_lose_and_double_nothing() {
    let _watch = watchdog(Duration::from_secs(180), "queue");
    const PRODUCERS: usize = 4;
    const CONSUMERS: usize = 8;
    const EACH: usize = 500;
    let keyway = store("3");
    let taken: Vec<Vec<String>> = std::thread::scope(|scope| {
        let producers = (0..PRODUCERS).map(|producer| {
            let keyway = &keyway;
            scope.spawn(move || {
                let mut client = keyway.client(0);
                client.set_reply_within(BOUND_UNDER_LOAD);
                for nth in 0..EACH {
                    let queue = nth % 3;
                    match nth % 4 {
                        0 => drop(client.pipeline(&[
                            "MULTI",
                            &format!("RPUSH q{queue} {producer}:{nth}"),
                            "INCR pushed",
                            "EXEC",
                        ])),
                        _ => drop(client.words(&format!("RPUSH q{queue} {producer}:{nth}"))),
                    }
                }
            })
        });
        let producers: Vec<_> = producers.collect();
        let consumers = (0..CONSUMERS).map(|nth| {
            let keyway = &keyway;
            scope.spawn(move || {
                let mut client = keyway.client(0);
                client.set_reply_within(BOUND_UNDER_LOAD);
                let mut taken = Vec::new();
                loop {
                    // Timeouts happen while elements are pushed.
                    let line = match nth % 2 {
                        0 => "BLPOP q0 q1 q2 end 0.002",
                        _ => "BLPOP q2 q1 q0 end 0",
                    };
                    match client.words(line) {
                        Value::Array(pair) if pair[0] == Value::bulk("end") => return taken,
                        Value::Array(pair) => taken.push(pair[1].text()),
                        _ => {}
                    }
                }
            })
        });
        let consumers: Vec<_> = consumers.collect();
        producers.into_iter().for_each(|producer| producer.join().expect("a producer"));
        let mut client = keyway.client(0);
        assert_eq!(client.words("GET pushed"), Value::bulk((PRODUCERS * EACH / 4).to_string()));
        // All consumers wait or will check: there is no other event to wait for.
        wait_until("the queues are empty", BOUND_UNDER_LOAD, || {
            client.words("EXISTS q0 q1 q2") == Value::Integer(0)
        });
        let end = format!("RPUSH end{}", " x".repeat(CONSUMERS));
        client.words(&end);
        consumers.into_iter().map(|consumer| consumer.join().expect("a consumer")).collect()
    });
    let all: Vec<String> = taken.into_iter().flatten().collect();
    assert_eq!(all.len(), PRODUCERS * EACH);
    assert_eq!(BTreeSet::from_iter(all).len(), PRODUCERS * EACH);
    let mut client = keyway.client(0);
    wait_for_blocked(&mut client, 0);
}

#[test]
fn clients_of_workers_that_have_just_started_are_woken() {
    let _watch = watchdog(Duration::from_secs(180), "start");
    const CLIENTS: usize = 16;
    for round in 0..8 {
        let keyway = store("4");
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| keyway.client(0)).collect();
        clients.iter_mut().for_each(|client| client.send(&encode_words("BLPOP q 0")));
        // This holds from the first moment on, whether or not they wait by now.
        let mut other = keyway.client(0);
        for nth in 0..CLIENTS {
            other.words(&format!("RPUSH q {nth}"));
        }
        let taken: BTreeSet<String> =
            clients.iter_mut().map(|client| format!("{:?}", client.reply())).collect();
        assert_eq!(taken.len(), CLIENTS, "round {round}");
    }
}

#[test]
fn who_waits_for_another_type_leaves_what_is_there_to_who_comes() {
    let _watch = watchdog(Duration::from_secs(60), "types");
    let keyway = store("2");
    let (mut sorted, mut list, mut other) = (keyway.client(0), keyway.client(0), keyway.client(0));
    sorted.send(&encode_words("BZPOPMIN k 0"));
    wait_for_blocked(&mut other, 1);
    other.words("RPUSH k a b");
    let pair = |value: &str| Value::Array(vec![Value::bulk("k"), Value::bulk(value)]);
    assert_eq!(list.words("BLPOP k 0"), pair("a"), "behind one who cannot have it");
    assert_eq!(list.words("BLPOP k 0"), pair("b"));
    other.words("ZADD k 1 m");
    let expected = [Value::bulk("k"), Value::bulk("m"), Value::bulk("1")];
    assert_eq!(sorted.reply(), Value::Array(expected.to_vec()));
}

#[test]
fn requests_around_a_blocking_one_run_in_their_order() {
    let _watch = watchdog(Duration::from_secs(60), "order");
    let keyway = store("2");
    let (mut client, mut other) = (keyway.client(0), keyway.client(0));
    client.send(&bytes_of(&["SET k 1", "BLPOP w 0", "GET k", "BLPOP w 0", "PING"]));
    assert_eq!(client.reply(), Value::simple("OK"));
    wait_for_blocked(&mut other, 1);
    other.words("SET k 2");
    other.words("RPUSH w a");
    let pair = |value: &str| Value::Array(vec![Value::bulk("w"), Value::bulk(value)]);
    assert_eq!([client.reply(), client.reply()], [pair("a"), Value::bulk("2")]);
    wait_for_blocked(&mut other, 1);
    other.words("RPUSH w b");
    assert_eq!([client.reply(), client.reply()], [pair("b"), Value::simple("PONG")]);
}

#[test]
fn a_waiting_client_is_unblocked_killed_or_leaves_and_takes_nothing() {
    let _watch = watchdog(Duration::from_secs(60), "ends");
    let keyway = store("3");
    let mut other = keyway.client(0);
    for round in 0..12 {
        let mut client = keyway.client(0);
        let id = client.words("CLIENT ID").integer();
        client.send(&encode_words("BLPOP q r 0"));
        wait_for_blocked(&mut other, 1);
        match round % 4 {
            0 => {
                let unblock = format!("CLIENT UNBLOCK {id} ERROR");
                assert_eq!(other.words(&unblock), Value::Integer(1));
                let text = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
                assert_eq!(client.reply().error_text(), text);
                assert_eq!(other.words(&unblock), Value::Integer(0));
            }
            1 => {
                let unblock = format!("CLIENT UNBLOCK {id}");
                assert_eq!(other.words(&unblock), Value::Integer(1));
                assert_eq!(client.reply(), Value::NilArray);
            }
            2 => assert_eq!(other.words(&format!("CLIENT KILL ID {id}")), Value::Integer(1)),
            _ => drop(client),
        }
        wait_for_blocked(&mut other, 0);
        other.words("RPUSH q x");
        assert_eq!(other.words("LPOP q"), Value::bulk("x"), "round {round}");
    }
}

#[test]
fn a_process_that_stops_answers_who_waits() {
    let _watch = watchdog(Duration::from_secs(60), "stop");
    let keyway = store("2");
    let mut clients: Vec<Client> = (0..6).map(|_| keyway.client(0)).collect();
    clients.iter_mut().for_each(|client| client.send(&encode_words("BLPOP q 0")));
    wait_for_blocked(&mut keyway.client(0), 6);
    keyway.stop(BOUND);
    for client in &mut clients {
        assert!(client.reply().error_text().starts_with("UNBLOCKED Keyway is stopping"));
    }
}

#[test]
fn a_chain_of_moves_hands_an_element_on() {
    let _watch = watchdog(Duration::from_secs(60), "chain");
    let keyway = store("3");
    let mut other = keyway.client(0);
    let mut links: Vec<Client> = (0..5).map(|_| keyway.client(0)).collect();
    for (nth, client) in links.iter_mut().enumerate() {
        client.send(&encode_words(&format!("BLMOVE {nth} {} LEFT RIGHT 0", nth + 1)));
        wait_for_blocked(&mut other, nth as i64 + 1);
    }
    let replies = other.pipeline(&["RPUSH 0 x", "LRANGE 5 0 -1"]);
    assert_eq!(replies[1], Value::Array(vec![Value::bulk("x")]));
    links.iter_mut().for_each(|client| assert_eq!(client.reply(), Value::bulk("x")));
}

#[test]
fn events_and_caches_hear_of_what_is_served() {
    let _watch = watchdog(Duration::from_secs(60), "events");
    let pool = Pool::store("local").with("notify_keyspace_events", "\"KEA\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "2"));
    let (mut hearer, mut waiting) = (keyway.client(0), keyway.client(0));
    let (mut other, mut cache) = (keyway.client(0), keyway.client(0));
    hearer.words("PSUBSCRIBE __keyevent*");
    cache.pipeline(&["HELLO 3", "CLIENT TRACKING ON", "EXISTS d"]);
    waiting.send(&encode_words("BLMOVE q d LEFT LEFT 0"));
    wait_for_blocked(&mut other, 1);
    other.words("RPUSH q x");
    assert_eq!(waiting.reply(), Value::bulk("x"));
    let heard: Vec<String> = (0..4).map(|_| format!("{:?}", hearer.reply())).collect();
    for (message, name) in heard.iter().zip(["rpush", "lpush", "lpop", "del"]) {
        assert!(message.contains(&format!(":{name}")), "{heard:?}");
    }
    assert!(format!("{:?}", cache.reply()).contains("invalidate"));
}
