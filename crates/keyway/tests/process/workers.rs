//! Several workers: clients are spread over them, and clients that are handed over to a worker
//! added under load notice nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use keyway_testkit::{
    Action, Client, Keyway, KeywayConfig, Pool, RedisServer, ScriptedBackend, Value, encode,
    handshake_reply, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(10);

/// The positions of the embedded store and of a pool over two servers.
const POOLS: [usize; 2] = [0, 1];

fn start(workers: &str) -> (Keyway, Vec<RedisServer>) {
    let servers = RedisServer::start_many(2);
    let main = Pool::over("main", &servers).with("timeout", "\"20s\"").with("databases", "4");
    let config = KeywayConfig::new(vec![Pool::store("local"), main]);
    (Keyway::start(KEYWAY, config.with_server("workers", workers)), servers)
}

/// Returns the workers that serve clients whose name starts with `prefix`, and the number of such
/// clients.
fn places(operator: &mut Client, prefix: &str) -> (BTreeSet<String>, usize) {
    let list = operator.words("CLIENT LIST").text();
    let named = format!(" name={prefix}");
    let lines: Vec<&str> = list.lines().filter(|line| line.contains(&named)).collect();
    let worker = |line: &&str| line.rsplit("worker=").next().map(|word| word.trim().to_owned());
    (lines.iter().filter_map(worker).collect(), lines.len())
}

/// Waits until both workers accept clients: on a busy machine one may start late.
fn wait_for_both(keyway: &Keyway, pool: usize) {
    let mut operator = keyway.client(pool);
    wait_until("clients on both workers", SOON, || {
        let _probes = connect_named(keyway, pool, "probe", 16);
        places(&mut operator, "probe:").0 == both()
    });
    wait_until("no probe is left", SOON, || places(&mut operator, "probe:").1 == 0);
}

/// Connects clients of a pool, named `<prefix>:<nth>`, enough to be on both workers.
fn named_clients(keyway: &Keyway, pool: usize, prefix: &str, count: usize) -> Vec<Client> {
    wait_for_both(keyway, pool);
    connect_named(keyway, pool, prefix, count)
}

fn connect_named(keyway: &Keyway, pool: usize, prefix: &str, count: usize) -> Vec<Client> {
    let connect = |nth: usize| {
        let mut client = keyway.client(pool);
        let named = client.command(&["CLIENT", "SETNAME", &format!("{prefix}:{nth}")]);
        assert_eq!(named, Value::simple("OK"));
        client
    };
    (0..count).map(connect).collect()
}

/// Sends one round of requests whose replies differ from each other: a lost, doubled or misplaced
/// one shows in this round or the next.
fn send_round(client: &mut Client, own: &str, round: usize) {
    let text = round.to_string();
    let value = format!("{own}:value");
    let requests = [
        encode(&["INCR", &format!("{own}:count")]),
        encode(&["SET", &value, &text]),
        encode(&["ECHO", &text]),
        encode(&["GET", &value]),
        encode(&["MGET", &value, "nobody's", &value]),
    ];
    client.send(&requests.concat());
}

fn check_round(client: &mut Client, own: &str, round: usize) {
    let text = || Value::bulk(round.to_string());
    let wanted = [
        Value::Integer(round as i64),
        Value::simple("OK"),
        text(),
        text(),
        Value::Array(vec![text(), Value::Nil, text()]),
    ];
    assert_eq!(client.replies(5), wanted, "{own}, round {round}");
}

#[test]
fn clients_on_two_workers_get_their_replies_in_order() {
    const CLIENTS: usize = 40;
    let _watch = watchdog(Duration::from_secs(90), "order on two workers");
    let (keyway, _servers) = start("2");
    for pool in POOLS {
        let mut clients = named_clients(&keyway, pool, "order", CLIENTS);
        let mut operator = keyway.client(pool);
        assert_eq!(places(&mut operator, "order:").0.len(), 2, "both workers have clients");
        // All clients send several rounds ahead of the replies at once.
        for first in (1..=40).step_by(8) {
            for round in first..first + 8 {
                for (nth, client) in clients.iter_mut().enumerate() {
                    send_round(client, &format!("own:{nth}"), round);
                }
            }
            for (nth, client) in clients.iter_mut().enumerate() {
                for round in first..first + 8 {
                    check_round(client, &format!("own:{nth}"), round);
                }
            }
        }
    }
}

/// Clients of both workers increment one key. Each increment happens once, and each client sees its
/// own in order.
#[test]
fn a_request_is_executed_once_whichever_worker_takes_it() {
    const CLIENTS: usize = 40;
    const EACH: usize = 250;
    let _watch = watchdog(Duration::from_secs(90), "shared counter");
    let (keyway, _servers) = start("2");
    for pool in POOLS {
        let mut clients = named_clients(&keyway, pool, "count", CLIENTS);
        for client in &mut clients {
            client.send(&encode(&["INCR", "shared"]).repeat(EACH));
        }
        let mut seen = BTreeSet::new();
        for client in &mut clients {
            let mut last = 0;
            for reply in client.replies(EACH) {
                let now = reply.integer();
                assert!(now > last, "{now} after {last}");
                assert!(seen.insert(now), "{now} was given twice");
                last = now;
            }
        }
        assert_eq!(seen.last(), Some(&((CLIENTS * EACH) as i64)));
        assert_eq!(places(&mut clients[0], "count:"), (both(), CLIENTS));
    }
}

fn both() -> BTreeSet<String> {
    ["0", "1"].map(str::to_owned).into()
}

#[test]
fn clients_are_listed_and_killed_whichever_worker_has_them() {
    const CLIENTS: usize = 40;
    let _watch = watchdog(Duration::from_secs(60), "list and kill over workers");
    let (keyway, _servers) = start("2");
    let mut bystanders: Vec<Client> =
        POOLS.into_iter().flat_map(|pool| named_clients(&keyway, pool, "by", 4)).collect();
    for pool in POOLS {
        let mut operator = keyway.client(pool);
        let mut victims = named_clients(&keyway, pool, "victim", CLIENTS);
        assert_eq!(places(&mut operator, "victim:"), (both(), CLIENTS));
        for victim in &mut victims {
            let id = victim.words("CLIENT ID").integer();
            assert_eq!(operator.words(&format!("CLIENT KILL ID {id}")), Value::Integer(1));
            victim.expect_closed();
            assert_eq!(operator.words(&format!("CLIENT KILL ID {id}")), Value::Integer(0));
        }
        for bystander in &mut bystanders {
            assert_eq!(bystander.words("PING"), Value::simple("PONG"));
        }
    }
    // The command closes the clients of its pool on both workers, and spares the client that sent
    // it.
    let mut operator = keyway.client(0);
    let mut victims = named_clients(&keyway, 0, "victim", CLIENTS);
    let killed = operator.words("CLIENT KILL TYPE normal").integer();
    assert_eq!(killed, (CLIENTS + 4) as i64);
    victims.iter_mut().for_each(Client::expect_closed);
    let (local, main) = bystanders.split_at_mut(4);
    local.iter_mut().for_each(Client::expect_closed);
    assert!(main.iter_mut().all(|client| client.words("PING") == Value::simple("PONG")));
    assert_eq!(operator.words("PING"), Value::simple("PONG"));
}

#[test]
fn every_worker_answers_what_is_in_flight_before_the_process_ends() {
    const CLIENTS: usize = 40;
    const EACH: usize = 20;
    let _watch = watchdog(Duration::from_secs(60), "drain of two workers");
    let gate = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&gate);
    let backend = ScriptedBackend::start(move |arguments| {
        if handshake_reply(arguments).is_none() {
            wait_until("the gate opens", Duration::from_secs(20), || opened.load(Ordering::SeqCst));
        }
        Action::echo_key(arguments)
    });
    let pool =
        Pool::sharded("main", &[format!("{}:1", backend.address())]).with("timeout", "\"20s\"");
    let config = KeywayConfig::new(vec![pool, Pool::store("local")]).with_server("workers", "2");
    let mut keyway = Keyway::start(KEYWAY, config);
    let address = keyway.address(0);
    let mut clients = named_clients(&keyway, 0, "drain", CLIENTS);
    let mut idle = named_clients(&keyway, 1, "idle", CLIENTS);
    assert_eq!(places(&mut clients[0], "drain:").0, both());
    for (nth, client) in clients.iter_mut().enumerate() {
        let requests = (0..EACH).map(|one| encode(&["GET", &format!("{nth}:{one}")]));
        client.send(&requests.collect::<Vec<_>>().concat());
    }
    wait_until("requests are at the backend", SOON, || backend.requests() > 0);
    keyway.process().terminate();
    wait_until("nobody is accepted any more", SOON, || Client::try_connect(address).is_err());
    idle.iter_mut().for_each(Client::expect_closed);
    gate.store(true, Ordering::SeqCst);
    for (nth, client) in clients.iter_mut().enumerate() {
        for one in 0..EACH {
            assert_eq!(client.reply(), Value::bulk(format!("{nth}:{one}")));
        }
        client.expect_closed();
    }
    let status = keyway.process_mut().wait_exit(Duration::from_secs(15));
    assert_eq!(status.code(), Some(0), "{}", keyway.process().log());
}

/// Keeps its worker busy until told to stop, by long commands that cost the client nothing.
fn burn(mut client: Client, stop: &AtomicBool) {
    client.set_reply_within(Duration::from_secs(60));
    let requests = encode(&["BITCOUNT", "long"]).repeat(8);
    while !stop.load(Ordering::SeqCst) {
        client.send(&requests);
        for reply in client.replies(8) {
            assert!(!reply.is_error(), "{reply:?}");
        }
    }
}

/// Runs rounds of ordered requests by a group of clients until told to stop. Returns the clients
/// and the last round.
fn play(
    mut clients: Vec<Client>,
    pool: usize,
    stop: &AtomicBool,
    rounds: &AtomicUsize,
) -> (Vec<Client>, usize) {
    let mut round = 0;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        for (nth, client) in clients.iter_mut().enumerate() {
            send_round(client, &format!("play:{pool}:{nth}"), round);
        }
        for (nth, client) in clients.iter_mut().enumerate() {
            check_round(client, &format!("play:{pool}:{nth}"), round);
        }
        rounds.fetch_add(1, Ordering::SeqCst);
    }
    (clients, round)
}

/// Connects over and over. Each connection must be accepted and served.
fn knock(keyway: &Keyway, stop: &AtomicBool) -> usize {
    let mut count = 0;
    while !stop.load(Ordering::SeqCst) {
        for pool in POOLS {
            let mut client = keyway.client(pool);
            client.set_reply_within(Duration::from_secs(60));
            assert_eq!(client.words("PING"), Value::simple("PONG"), "connection {count}");
            count += 1;
        }
    }
    count
}

#[test]
fn a_worker_added_under_load_takes_over_clients_that_notice_nothing() {
    const CLIENTS: usize = 12;
    let _watch = watchdog(Duration::from_secs(180), "a worker is added");
    let (keyway, _servers) = start("{ min = 1, max = 2 }");
    let mut operators: Vec<Client> = POOLS.into_iter().map(|pool| keyway.client(pool)).collect();
    let long = vec![0xA5_u8; 4 << 20];
    assert_eq!(operators[0].command(&[&b"SET"[..], b"long", &long]), Value::simple("OK"));
    // The clients are at rest, each with a state of its own that is handed over with it.
    let mut resting = POOLS.map(|pool| connect_named(&keyway, pool, "rest", CLIENTS));
    for client in resting.iter_mut().flatten() {
        assert_eq!(client.words("SELECT 3"), Value::simple("OK"));
        assert_eq!(client.words("SET where three"), Value::simple("OK"));
    }
    assert_eq!(places(&mut operators[0], "rest:").0.len(), 1, "one worker at first");
    let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let played = std::thread::scope(|scope| {
        for _ in 0..4 {
            let client = keyway.client(0);
            scope.spawn(|| burn(client, &stop));
        }
        let playing = POOLS.map(|pool| {
            let clients = connect_named(&keyway, pool, "play", CLIENTS);
            let (stop, rounds) = (&stop, &rounds);
            scope.spawn(move || play(clients, pool, stop, rounds))
        });
        let knocking = scope.spawn(|| knock(&keyway, &stop));
        wait_until("a worker is added", Duration::from_secs(90), || {
            keyway.process().log().contains("added one")
        });
        let before = rounds.load(Ordering::SeqCst);
        wait_until("rounds go on with two workers", Duration::from_secs(60), || {
            rounds.load(Ordering::SeqCst) >= before + 20
        });
        stop.store(true, Ordering::SeqCst);
        assert!(knocking.join().expect("every connection is accepted") > 0);
        playing.map(|thread| thread.join().expect("every reply in its place"))
    });
    for (pool, (mut clients, round)) in played.into_iter().enumerate() {
        for (nth, client) in clients.iter_mut().enumerate() {
            send_round(client, &format!("play:{pool}:{nth}"), round + 1);
            check_round(client, &format!("play:{pool}:{nth}"), round + 1);
            assert_eq!(client.words("CLIENT GETNAME"), Value::bulk(format!("play:{nth}")));
        }
    }
    let mut moved = 0;
    for (pool, clients) in resting.iter_mut().enumerate() {
        for (nth, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.words("GET where"), Value::bulk("three"), "its database");
            let info = client.words("CLIENT INFO").text();
            assert!(info.contains(&format!(" name=rest:{nth} ")), "{info}");
            moved += usize::from(info.contains("worker=1"));
            // The worker that has the client now is the one that can close it.
            let id = client.words("CLIENT ID").integer();
            let killed = operators[pool].words(&format!("CLIENT KILL ID {id}"));
            assert_eq!(killed, Value::Integer(1));
            client.expect_closed();
        }
    }
    assert!(moved > 0, "clients at rest were handed over");
    assert_eq!(keyway.metrics().count("keyway_worker_turns_total", &[]), 2);
    let (status, log) = keyway.stop(Duration::from_secs(30));
    assert_eq!(status.code(), Some(0), "{log}");
}
