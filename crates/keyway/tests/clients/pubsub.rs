//! Publish and subscribe: replies, deliveries, counts, and clients that leave.

use std::time::{Duration, Instant};

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, ReplyFault, Shared, Value, encode,
    encode_words, run_tool, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const STORE: usize = 0;
const POOL: usize = 1;

struct Setup {
    keyway: Keyway,
    servers: Vec<RedisServer>,
    oracle: RedisServer,
}

static SETUP: Shared<Setup> = Shared::new();

/// Starts a store and a pool of four servers with two workers, and a bare server.
fn setup() -> std::sync::Arc<Setup> {
    SETUP.get(|| {
        let servers = RedisServer::start_many(4);
        let pools = vec![Pool::store("local"), Pool::over("main", &servers)];
        let config = KeywayConfig::new(pools).with_server("workers", "2");
        Setup { keyway: Keyway::start(KEYWAY, config), servers, oracle: RedisServer::start() }
    })
}

/// Returns everything that is answered to lines separated by `;`, up to the reply to a PING behind
/// them.
fn answers(client: &mut Client, line: &str) -> Vec<String> {
    line.split(';').for_each(|line| client.send(&encode_words(line)));
    client.send(&encode_words("PING end"));
    let mut answers = Vec::new();
    loop {
        let reply = client.raw_reply().escape_ascii().to_string();
        if reply == r"$3\r\nend\r\n" || reply == r"*2\r\n$4\r\npong\r\n$3\r\nend\r\n" {
            return answers;
        }
        answers.push(reply);
    }
}

fn message(kind: &str, parts: &[&str]) -> Value {
    Value::Array([kind].iter().chain(parts).map(Value::bulk).collect())
}

fn change(word: &str, name: &str, count: i64) -> Value {
    Value::Array(vec![Value::bulk(word), Value::bulk(name), Value::Integer(count)])
}

/// Connects clients of one pool until both workers have some. It takes several, because the kernel
/// chooses the worker.
fn clients(keyway: &Keyway, pool: usize, count: usize) -> Vec<Client> {
    (0..count).map(|_| keyway.client(pool)).collect()
}

#[test]
fn a_subscriber_is_answered_as_redis_answers() {
    let _watch = watchdog(Duration::from_secs(60), "words");
    let setup = setup();
    let lines = [
        "UNSUBSCRIBE",
        "PUNSUBSCRIBE w:x",
        "SUNSUBSCRIBE",
        "SUBSCRIBE",
        "SUBSCRIBE w:a w:b w:a",
        "GET w:x",
        "CONFIG GET save",
        "MULTI",
        "PING",
        "PING w:hi",
        "PING a b",
        "NOSUCH x",
        "GET",
        "PSUBSCRIBE w:p*",
        "SSUBSCRIBE w:s",
        "SUBSCRIBE w:a",
        "UNSUBSCRIBE w:none",
        "UNSUBSCRIBE w:a w:a",
        "UNSUBSCRIBE",
        "UNSUBSCRIBE",
        "PUBLISH w:a x",
        "PUNSUBSCRIBE",
        "HELLO 2",
        "SUNSUBSCRIBE",
        "SUNSUBSCRIBE",
        "GET w:x",
        "SUBSCRIBE w:a w:b",
        "RESET",
        "GET w:x",
        "UNSUBSCRIBE",
        "CLIENT REPLY OFF;SUBSCRIBE w:c;PING;UNSUBSCRIBE w:c;CLIENT REPLY ON",
        "CLIENT REPLY SKIP;SUBSCRIBE w:c",
        "RESET",
        "PUBLISH a",
        "PUBSUB",
        "PUBSUB NOSUCH",
        "PUBSUB CHANNELS w:* x",
        "PUBSUB NUMPAT x",
        "PUBSUB NUMSUB",
        "PUBSUB SHARDNUMSUB",
        "PUBSUB NUMSUB w:none w:none2",
        "PUBSUB HELP",
    ];
    let mut bare = setup.oracle.client();
    let mut all = [setup.keyway.client(STORE), setup.keyway.client(POOL)];
    for line in lines {
        let expected = answers(&mut bare, line);
        for (pool, client) in all.iter_mut().enumerate() {
            assert_eq!(answers(client, line), expected, "{line} of pool {pool}");
        }
    }
    for client in [&mut bare].into_iter().chain(&mut all) {
        assert_eq!(client.words("SUBSCRIBE w:z"), change("subscribe", "w:z", 1));
        assert_eq!(client.words("QUIT"), Value::simple("OK"));
        client.expect_closed();
    }
}

#[test]
fn every_message_reaches_every_subscriber_in_order() {
    let _watch = watchdog(Duration::from_secs(60), "messages");
    let setup = setup();
    for pool in [STORE, POOL] {
        let mut subscribers = clients(&setup.keyway, pool, 12);
        for client in &mut subscribers {
            assert_eq!(client.words("SUBSCRIBE d:a"), change("subscribe", "d:a", 1));
            assert_eq!(client.words("PSUBSCRIBE d:?"), change("psubscribe", "d:?", 2));
            assert_eq!(client.words("SSUBSCRIBE d:a"), change("ssubscribe", "d:a", 1));
        }
        let mut publishers = clients(&setup.keyway, pool, 3);
        for (nth, publisher) in publishers.iter_mut().enumerate() {
            for count in 0..50 {
                let text = format!("{nth}:{count}");
                let receivers = publisher.command(&["PUBLISH", "d:a", &text]).integer();
                if pool == STORE {
                    assert_eq!(receivers, 24);
                } else {
                    // A worker has one subscription, and one pattern.
                    assert!((2..=4).contains(&receivers), "{receivers}");
                }
                assert!(publisher.command(&["SPUBLISH", "d:a", "s"]).integer() > 0);
            }
        }
        for client in &mut subscribers {
            for nth in 0..3 {
                for count in 0..50 {
                    let text = format!("{nth}:{count}");
                    assert_eq!(client.reply(), message("message", &["d:a", &text]));
                    assert_eq!(client.reply(), message("pmessage", &["d:?", "d:a", &text]));
                    assert_eq!(client.reply(), message("smessage", &["d:a", "s"]));
                }
            }
            assert_eq!(client.words("PING"), message("pong", &[""]), "nothing else came");
        }
    }
}

#[test]
fn the_store_counts_every_receiver_wherever_it_is() {
    let _watch = watchdog(Duration::from_secs(60), "counts");
    let setup = setup();
    let mut subscribers = clients(&setup.keyway, STORE, 10);
    let mut operator = setup.keyway.client(STORE);
    for (nth, client) in subscribers.iter_mut().enumerate() {
        client.words("SUBSCRIBE c:a");
        client.words("SUBSCRIBE c:a c:b");
        client.reply();
        let count = nth as i64 + 1;
        assert_eq!(operator.words("PUBLISH c:a x"), Value::Integer(count));
        assert_eq!(
            operator.words("PUBSUB NUMSUB c:a c:none").array(),
            [Value::bulk("c:a"), Value::Integer(count), Value::bulk("c:none"), Value::Integer(0)]
        );
    }
    let mut channels = operator.words("PUBSUB CHANNELS c:*").array().to_vec();
    channels.sort_by_key(|channel| channel.text());
    assert_eq!(channels, [Value::bulk("c:a"), Value::bulk("c:b")]);
    drop(subscribers.split_off(4));
    wait_until("those who left are not counted", Duration::from_secs(10), || {
        operator.words("PUBLISH c:b x") == Value::Integer(4)
    });
    for client in &mut subscribers {
        client.send(&encode_words("UNSUBSCRIBE c:a"));
    }
    wait_until("nor those who unsubscribed", Duration::from_secs(10), || {
        operator.words("PUBLISH c:a x") == Value::Integer(0)
    });
}

/// However many clients subscribe, a server has one subscription per worker. It has none after the
/// last client has left in whatever way.
#[test]
fn a_server_is_subscribed_once_for_each_worker_and_not_after_the_last() {
    let _watch = watchdog(Duration::from_secs(60), "upstream");
    let setup = setup();
    let on_servers = |what: &str| -> i64 {
        let of = |server: &RedisServer| {
            let reply = server.client().words(what);
            match reply {
                Value::Integer(count) => count,
                other => other.array()[1].integer(),
            }
        };
        setup.servers.iter().map(of).sum()
    };
    let mut subscribers = clients(&setup.keyway, POOL, 20);
    for client in &mut subscribers {
        assert_eq!(client.words("SUBSCRIBE u:a"), change("subscribe", "u:a", 1));
        assert_eq!(client.words("PSUBSCRIBE u:p*"), change("psubscribe", "u:p*", 2));
    }
    assert!((1..=2).contains(&on_servers("PUBSUB NUMSUB u:a")));
    let mut operator = setup.keyway.client(POOL);
    let told = operator.words("PUBSUB NUMSUB u:a").array().to_vec();
    assert_eq!(told[1].integer(), on_servers("PUBSUB NUMSUB u:a"));
    assert_eq!(operator.words("PUBSUB CHANNELS u:*"), Value::Array(vec![Value::bulk("u:a")]));
    assert!(operator.words("PUBSUB NUMPAT").integer() >= 1);
    // The clients leave by closing, by a reset, by RESET, and by name.
    for (nth, mut client) in subscribers.into_iter().enumerate() {
        match nth % 4 {
            0 => drop(client),
            1 => client.reset(),
            2 => assert_eq!(client.words("RESET"), Value::simple("RESET")),
            _ => {
                assert_eq!(client.words("UNSUBSCRIBE"), change("unsubscribe", "u:a", 1));
                assert_eq!(client.words("PUNSUBSCRIBE"), change("punsubscribe", "u:p*", 0));
                assert_eq!(client.words("GET u:x"), Value::Nil);
            }
        }
    }
    wait_until("nothing is left on the servers", Duration::from_secs(10), || {
        on_servers("PUBSUB NUMSUB u:a") == 0
            && operator.words("PUBSUB CHANNELS u:*") == Value::Array(Vec::new())
    });
}

/// The store publishes the same as Redis for the same commands.
/// A subscriber that never reads is closed, logged and counted. The others and the publisher notice
/// nothing.
#[test]
fn a_subscriber_that_never_reads_is_dropped_and_the_others_are_not() {
    let _watch = watchdog(Duration::from_secs(90), "slow subscriber");
    let servers = RedisServer::start_many(1);
    let pools = vec![Pool::store("local"), Pool::over("main", &servers)];
    let config = KeywayConfig::new(pools).with_server("workers", "2").with_tables(
        "[limits]\npubsub_output_len_hard = \"1MiB\"\n\
             pubsub_output_len_soft = \"1MiB\"",
    );
    let keyway = Keyway::start(KEYWAY, config);
    for (pool, name) in [(STORE, "local"), (POOL, "main")] {
        let mut slow = keyway.client(pool);
        slow.shrink_receive_buffer(64 << 10);
        let mut quick = keyway.client(pool);
        for client in [&mut slow, &mut quick] {
            assert_eq!(client.words("SUBSCRIBE s:a"), change("subscribe", "s:a", 1));
        }
        let mut publisher = keyway.client(pool);
        let text = "x".repeat(100_000);
        let dropped = || {
            keyway
                .metrics()
                .sum("keyway_pubsub_dropped_clients_total", &[&format!("pool=\"{name}\"")])
        };
        let mut published = 0;
        while dropped() == 0.0 {
            publisher.command(&["PUBLISH", "s:a", &text]);
            published += 1;
            assert_eq!(quick.reply(), message("message", &["s:a", &text]));
            assert!(published < 1000, "never dropped");
        }
        assert!(keyway.process().log().contains("subscriber disconnected"));
        assert_eq!(quick.words("PING"), message("pong", &[""]));
        // Messages that were in flight may still be read, then the end comes.
        while let Ok(reply) = slow.try_reply() {
            assert_eq!(reply, message("message", &["s:a", &text]));
        }
        assert_eq!(slow.try_reply(), Err(ReplyFault::Closed));
    }
}

/// A server is killed and started again. Its subscriptions are made again, and a client that
/// subscribes meanwhile is told why it cannot.
#[test]
fn subscriptions_come_back_with_their_server() {
    let _watch = watchdog(Duration::from_secs(90), "restart");
    let mut servers = RedisServer::start_many(2);
    let config = KeywayConfig::new(vec![Pool::over("main", &servers)]);
    let keyway = Keyway::start(KEYWAY, config);
    let names: Vec<String> = (0..8).map(|nth| format!("r:{nth}")).collect();
    let mut subscribers: Vec<Client> = names
        .iter()
        .map(|name| {
            let mut client = keyway.client(0);
            assert_eq!(client.command(&["SUBSCRIBE", name]), change("subscribe", name, 1));
            client
        })
        .collect();
    let mut patterns = keyway.client(0);
    assert_eq!(patterns.words("PSUBSCRIBE r:*"), change("psubscribe", "r:*", 1));
    let mut publisher = keyway.client(0);
    for round in ["before", "after"] {
        for (name, client) in names.iter().zip(&mut subscribers) {
            wait_until("a publisher is heard", Duration::from_secs(20), || {
                let reply = publisher.command(&["PUBLISH", name, round]);
                !reply.is_error() && reply.integer() == 2
            });
            assert_eq!(client.reply(), message("message", &[name, round]));
            loop {
                let reply = patterns.reply();
                if reply == message("pmessage", &["r:*", name, round]) {
                    break;
                }
            }
        }
        if round == "before" {
            servers[0].kill();
            let mut late = keyway.client(0);
            wait_until("who asks is told", Duration::from_secs(20), || {
                late.words("PSUBSCRIBE other*").is_error()
            });
            servers[0].restart();
        }
    }
}

/// A client leaves while its subscription waits for a server that does not answer. It leaves
/// nothing behind.
#[test]
fn who_leaves_while_a_subscription_is_pending_leaves_nothing_behind() {
    let _watch = watchdog(Duration::from_secs(60), "pending");
    let servers = RedisServer::start_many(1);
    let config = KeywayConfig::new(vec![Pool::over("main", &servers)]);
    let keyway = Keyway::start(KEYWAY, config);
    let upstream = || keyway.metrics().sum("keyway_pubsub_upstream_subscriptions", &[]);
    let connected = || keyway.metrics().sum("keyway_client_connections", &[]);
    servers[0].process().pause();
    let mut told = keyway.client(0);
    for nth in 0..4 {
        let mut client = keyway.client(0);
        client.send(&encode_words(&format!("SUBSCRIBE p:{nth}")));
        wait_until("it is wanted", Duration::from_secs(10), || upstream() >= 1.0);
        if nth % 2 == 0 { drop(client) } else { client.reset() }
    }
    told.send(&encode_words("SUBSCRIBE p:x"));
    let text = told.reply().error_text();
    assert!(text.contains("did not answer in time"), "{text}");
    assert_eq!(told.words("PING"), Value::simple("PONG"), "it is no subscriber");
    servers[0].process().resume();
    wait_until("all is gone", Duration::from_secs(20), || upstream() == 0.0 && connected() <= 1.0);
    assert_eq!(told.words("SUBSCRIBE p:x"), change("subscribe", "p:x", 1));
}

/// Tests redis-py as it is usually used: `get_message`, handlers in a thread, patterns.
#[test]
fn redis_py_subscribes_and_is_told() {
    let _watch = watchdog(Duration::from_secs(300), "redis-py");
    let setup = setup();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = std::process::Command::new(root.join("scripts/python_venv.sh"))
        .env("CARGO_TARGET_DIR", std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(".."))
        .output()
        .expect("scripts/python_venv.sh can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let python = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let script = root.join("tests/python/pubsub_client.py").to_string_lossy().into_owned();
    for (pool, kind) in [(STORE, "store"), (POOL, "sharded")] {
        let port = setup.keyway.address(pool).port().to_string();
        let output = run_tool(&python, &[&script, &port, kind], b"", Duration::from_secs(60));
        let text = output.expect_success("the redis-py suite").text;
        assert!(text.contains("\nOK"), "{text}");
    }
}

/// A transaction may publish, but it cannot subscribe.
#[test]
fn a_transaction_of_a_pool_may_publish() {
    let _watch = watchdog(Duration::from_secs(30), "transaction");
    let setup = setup();
    let mut subscriber = setup.keyway.client(POOL);
    assert_eq!(subscriber.words("SUBSCRIBE {t}:a"), change("subscribe", "{t}:a", 1));
    let mut client = setup.keyway.client(POOL);
    assert_eq!(client.words("MULTI"), Value::simple("OK"));
    assert_eq!(client.words("SET {t}:k 1"), Value::simple("QUEUED"));
    assert_eq!(client.words("PUBLISH {t}:a x"), Value::simple("QUEUED"));
    assert_eq!(client.words("EXEC"), Value::Array(vec![Value::simple("OK"), Value::Integer(1)]));
    assert_eq!(subscriber.reply(), message("message", &["{t}:a", "x"]));
    assert_eq!(client.words("MULTI"), Value::simple("OK"));
    assert!(client.words("SUBSCRIBE {t}:b").error_text().contains("inside MULTI"));
    assert!(client.words("EXEC").error_text().starts_with("EXECABORT"));
    assert_eq!(client.words("PING"), Value::simple("PONG"));
}

/// The channels of an ejected server move to the others, and those of a returning server move back.
/// No client needs to subscribe again.
#[test]
fn channels_move_with_the_ring() {
    let _watch = watchdog(Duration::from_secs(90), "moving");
    let mut servers = RedisServer::start_many(2);
    let pool = Pool::over("main", &servers)
        .with("ejection", "{ after_failures = 2, for = \"1s\" }")
        .with("timeout", "\"300ms\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let names: Vec<String> = (0..8).map(|nth| format!("m:{nth}")).collect();
    let mut subscriber = keyway.client(0);
    for (nth, name) in names.iter().enumerate() {
        let told = subscriber.command(&["SUBSCRIBE", name]);
        assert_eq!(told, change("subscribe", name, nth as i64 + 1));
    }
    let mut publisher = keyway.client(0);
    let mut all_are_heard = |text: &str| {
        for name in &names {
            wait_until("a subscriber is there", Duration::from_secs(30), || {
                publisher.command(&["PUBLISH", name, text]) == Value::Integer(1)
            });
            assert_eq!(subscriber.reply(), message("message", &[name, text]));
        }
    };
    let homes = |servers: &[RedisServer]| {
        let channels =
            |server: &RedisServer| server.client().words("PUBSUB CHANNELS m:*").array().len();
        servers.iter().map(channels).collect::<Vec<_>>()
    };
    all_are_heard("before");
    let before = homes(&servers);
    assert!(before.iter().all(|count| *count > 0), "{before:?}");
    servers[0].kill();
    all_are_heard("without it");
    assert_eq!(homes(&servers[1..]), [8]);
    servers[0].restart();
    wait_until("they are back", Duration::from_secs(30), || homes(&servers) == before);
    all_are_heard("after");
}

/// In RESP3 messages are pushes, and a subscriber may send any request.
#[test]
fn a_subscriber_that_speaks_resp3_is_answered_as_redis_answers() {
    let _watch = watchdog(Duration::from_secs(60), "resp3");
    let setup = setup();
    let lines = [
        "SUBSCRIBE v:a v:b",
        "GET v:x",
        "PING",
        "PING hi",
        "PSUBSCRIBE v:p*",
        "SSUBSCRIBE v:s",
        "UNSUBSCRIBE v:none v:b",
        // One is left: if there are several, Redis chooses by chance which comes first.
        "UNSUBSCRIBE",
        "UNSUBSCRIBE",
        "PUNSUBSCRIBE",
        "PUNSUBSCRIBE",
        "PUBSUB NUMSUB v:none",
        "CLIENT REPLY OFF;SUBSCRIBE v:c;PING;UNSUBSCRIBE v:c;CLIENT REPLY ON",
        "SUNSUBSCRIBE",
    ];
    let mut bare = setup.oracle.client();
    let mut all = [setup.keyway.client(STORE), setup.keyway.client(POOL)];
    for client in [&mut bare].into_iter().chain(&mut all) {
        client.words("HELLO 3");
    }
    for line in lines {
        let expected = answers(&mut bare, line);
        for (pool, client) in all.iter_mut().enumerate() {
            assert_eq!(answers(client, line), expected, "{line} of pool {pool}");
        }
    }
    for client in [&mut bare].into_iter().chain(&mut all) {
        client.words("SUBSCRIBE v:a");
        client.send(&encode_words("PUBLISH v:a x"));
        let replies = client.replies(2);
        let parts = ["message", "v:a", "x"].map(Value::bulk);
        assert!(replies.contains(&Value::Push(parts.to_vec())), "{replies:?}");
        assert!(replies.contains(&Value::Integer(1)), "{replies:?}");
    }
}

/// All subscribers receive the messages of a channel in the same order, whoever publishes and
/// whichever workers serve them.
#[test]
fn all_subscribers_of_the_store_hear_one_order() {
    const PUBLISHERS: usize = 8;
    const SUBSCRIBERS: usize = 10;
    const EACH: usize = 500;
    let _watch = watchdog(Duration::from_secs(90), "one order");
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("workers", "2");
    let keyway = Keyway::start(KEYWAY, config);
    let mut subscribers = clients(&keyway, STORE, SUBSCRIBERS);
    for client in &mut subscribers {
        assert_eq!(client.words("SUBSCRIBE o:a"), change("subscribe", "o:a", 1));
    }
    let heard: Vec<Vec<Value>> = std::thread::scope(|scope| {
        for number in 0..PUBLISHERS {
            let mut client = keyway.client(STORE);
            scope.spawn(move || {
                for count in 0..EACH {
                    let reply = client.words(&format!("PUBLISH o:a {number}-{count}"));
                    assert_eq!(reply, Value::Integer(SUBSCRIBERS as i64));
                }
            });
        }
        let hear = |client: &mut Client| (0..PUBLISHERS * EACH).map(|_| client.reply()).collect();
        let threads: Vec<_> = subscribers
            .iter_mut()
            .map(|client| scope.spawn(move || -> Vec<Value> { hear(client) }))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("heard all")).collect()
    });
    assert!(heard.iter().all(|one| *one == heard[0]), "there are several orders");
}

/// An answer is never received before the message it answers, whichever workers its author and its
/// audience are on.
#[test]
fn an_answer_is_heard_behind_what_it_answers() {
    let _watch = watchdog(Duration::from_secs(90), "cause and effect");
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("workers", "2");
    let keyway = Keyway::start(KEYWAY, config);
    let mut audience = clients(&keyway, STORE, 8);
    for client in &mut audience {
        client.words("PSUBSCRIBE c:*");
    }
    let mut asking = keyway.client(STORE);
    let mut answering: Vec<_> =
        clients(&keyway, STORE, 6).into_iter().map(|ear| (ear, keyway.client(STORE))).collect();
    for (ear, _) in &mut answering {
        ear.words("SUBSCRIBE c:question");
    }
    for round in 0..300 {
        let round = round.to_string();
        asking.send(&encode_words(&format!("PUBLISH c:question {round}")));
        for (ear, mouth) in &mut answering {
            assert_eq!(ear.reply(), message("message", &["c:question", &round]));
            mouth.send(&encode_words(&format!("PUBLISH c:answer {round}")));
        }
        asking.reply();
        for (_, mouth) in &mut answering {
            mouth.reply();
        }
        for client in &mut audience {
            let question = message("pmessage", &["c:*", "c:question", &round]);
            assert_eq!(client.reply(), question, "first");
            for _ in 0..6 {
                let answer = message("pmessage", &["c:*", "c:answer", &round]);
                assert_eq!(client.reply(), answer);
            }
        }
    }
}

/// One message larger than an inbox reaches its subscribers, and does not affect other clients.
#[test]
fn a_message_of_any_size_closes_no_subscriber_of_another_channel() {
    let _watch = watchdog(Duration::from_secs(90), "a large message");
    let limits = "[limits]\npubsub_output_len_hard = \"off\"\npubsub_output_len_soft = \"off\"";
    let config = KeywayConfig::new(vec![Pool::store("local")])
        .with_server("workers", "2")
        .with_tables(limits);
    let keyway = Keyway::start(KEYWAY, config);
    let mut large = clients(&keyway, STORE, 4);
    let mut others = clients(&keyway, STORE, 8);
    large.iter_mut().for_each(|client| drop(client.words("SUBSCRIBE l:big")));
    others.iter_mut().for_each(|client| drop(client.words("SUBSCRIBE l:other")));
    let text = "x".repeat(65 << 20);
    let mut publisher = keyway.client(STORE);
    publisher.send(&encode(&["PUBLISH", "l:big", &text]));
    for client in &mut large {
        let Value::Array(parts) = client.reply() else { panic!("no message") };
        assert!(parts[2] == Value::bulk(&text));
    }
    assert_eq!(publisher.reply(), Value::Integer(4));
    assert_eq!(publisher.words("PUBLISH l:other x"), Value::Integer(8));
    for client in &mut others {
        assert_eq!(client.reply(), message("message", &["l:other", "x"]));
    }
    assert_eq!(keyway.metrics().sum("keyway_pubsub_dropped_clients_total", &[]), 0.0);
}

/// The error of a server without room for the connection of subscribers is passed on to a client
/// that subscribes. Earlier subscribers receive messages again once there is room.
#[test]
fn a_server_without_room_closes_no_subscriber() {
    let _watch = watchdog(Duration::from_secs(60), "maxclients");
    let servers = RedisServer::start_many(1);
    let config = KeywayConfig::new(vec![Pool::over("main", &servers)]);
    let keyway = Keyway::start(KEYWAY, config.with_server("workers", "1"));
    let mut publisher = keyway.client(0);
    assert_eq!(publisher.words("PUBLISH f:a x"), Value::Integer(0));
    let mut early = keyway.client(0);
    assert_eq!(early.words("SUBSCRIBE f:a"), change("subscribe", "f:a", 1));
    let mut inside = servers[0].client();
    assert_eq!(inside.words("CONFIG SET maxclients 1"), Value::simple("OK"));
    assert_eq!(inside.words("CLIENT KILL TYPE pubsub"), Value::Integer(1));
    let mut late = keyway.client(0);
    // Between two attempts to connect, the error is that the server cannot be reached.
    wait_until("it is quoted", Duration::from_secs(20), || {
        let text = late.words("SUBSCRIBE f:b").error_text();
        text.contains("ERR max number of clients reached")
    });
    assert_eq!(publisher.words("PUBLISH f:a unheard"), Value::Integer(0));
    assert_eq!(inside.words("CONFIG SET maxclients 1000"), Value::simple("OK"));
    wait_until("it is heard again", Duration::from_secs(20), || {
        publisher.words("PUBLISH f:a heard") == Value::Integer(1)
    });
    assert_eq!(early.reply(), message("message", &["f:a", "heard"]));
    assert_eq!(keyway.metrics().sum("keyway_pubsub_dropped_clients_total", &[]), 0.0);
}

/// A script runs on one server. It reaches the channels and keys of that server, which include
/// those with the hash tag of its keys, and patterns.
#[test]
fn a_script_reaches_channels_and_keys_with_its_own_hash_tag() {
    let _watch = watchdog(Duration::from_secs(60), "scripts that publish");
    let servers = RedisServer::start_many(4);
    let pool = Pool::over("main", &servers).with("hash_tag", "\"{}\"").with("hash", "\"murmur\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut subscribers = clients(&keyway, 0, 3);
    for client in &mut subscribers {
        assert_eq!(client.words("SUBSCRIBE {s}:c"), change("subscribe", "{s}:c", 1));
    }
    let mut patterns = keyway.client(0);
    assert_eq!(patterns.words("PSUBSCRIBE *"), change("psubscribe", "*", 1));
    let mut client = keyway.client(0);
    let publish = "return redis.call('PUBLISH',ARGV[1],'x')";
    for channel in ["{s}:c", "a", "b", "c", "d", "e", "f"] {
        client.command(&["EVAL", publish, "1", "{s}:k", channel]);
        assert_eq!(patterns.reply(), message("pmessage", &["*", channel, "x"]));
    }
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.reply(), message("message", &["{s}:c", "x"]));
    }
    let read = "return redis.call('EXISTS',ARGV[1])";
    let mut seen = |key: &str| {
        client.command(&["SET", key, "1"]);
        client.command(&["EVAL", read, "1", "{s}:k", key]) == Value::Integer(1)
    };
    assert!(seen("{s}:other"));
    let untagged = (0..100).filter(|nth| seen(&format!("key:{nth}"))).count();
    assert!((1..80).contains(&untagged), "{untagged} of 100 by chance");
}

/// A client may subscribe to thousands of channels of a sharded pool, count their subscribers and
/// leave them without holding others up: the time is in proportion to the names.
#[test]
#[allow(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
fn thousands_of_channels_hold_nobody_up() {
    let _watch = watchdog(Duration::from_secs(120), "thousands of channels");
    let servers = RedisServer::start_many(2);
    let config = KeywayConfig::new(vec![Pool::over("main", &servers)]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config);
    let (mut client, mut other) = (keyway.client(0), keyway.client(0));
    let (count, began) = (60_000, Instant::now());
    let names: Vec<String> = (0..count).map(|nth| format!("channel:{nth}")).collect();
    let names = names.join(" ");
    client.set_reply_within(Duration::from_secs(60));
    other.set_reply_within(Duration::from_secs(2));
    for word in ["SUBSCRIBE", "UNSUBSCRIBE"] {
        client.send(&encode_words(&format!("{word} {names}")));
        for nth in 0..count {
            let left = if word == "SUBSCRIBE" { nth + 1 } else { count - 1 - nth };
            let name = format!("channel:{nth}");
            assert_eq!(client.reply(), change(&word.to_lowercase(), &name, left));
            if nth % 1000 == 0 {
                assert_eq!(other.words("PING"), Value::simple("PONG"));
            }
        }
        let mut third = keyway.client(0);
        third.set_reply_within(Duration::from_secs(60));
        third.send(&encode_words(&format!("PUBSUB NUMSUB {names}")));
        assert_eq!(other.words("PING"), Value::simple("PONG"));
        let Value::Array(counts) = third.reply() else { panic!("no list") };
        let each = i64::from(word == "SUBSCRIBE");
        assert_eq!(counts.len(), 2 * count as usize);
        assert!(counts.iter().skip(1).step_by(2).all(|it| *it == Value::Integer(each)));
    }
    // It takes half a second, or more than half a minute if each name is searched among all.
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
}
