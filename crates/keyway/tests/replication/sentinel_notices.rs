//! Sentinels that announce a fail-over are asked at once, and only their answers are believed. The
//! pools here ask so rarely on their own that nothing else can have told them.
#![allow(clippy::disallowed_methods, reason = "what is told is timed from outside")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Replicated, Sentinels, Value, encode_words,
    wait_for, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(15);

fn through(sentinels: &[SocketAddr], names: &[&str]) -> Pool {
    let sentinels: Vec<String> = sentinels.iter().map(|one| format!("\"{one}\"")).collect();
    let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    Pool::of_kind("main", "replicated")
        .with("sentinels", &format!("[{}]", sentinels.join(", ")))
        .with("primaries", &format!("[{}]", names.join(", ")))
        .with("refresh", "\"1h\"")
}

fn start(pools: Vec<Pool>) -> Keyway {
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "2"));
    wait_until("the primary is known", SOON, || switches(&keyway) == 1);
    keyway
}

/// Returns how often another primary was found.
fn switches(keyway: &Keyway) -> usize {
    keyway.process().log().matches("a server is the primary now").count()
}

fn total(keyway: &Keyway, name: &str) -> f64 {
    keyway.metrics().sum(&format!("keyway_cluster_{name}_total"), &["pool=\"main\""])
}

/// Returns the number of connections that subscribe at a sentinel, or at its stand-in.
fn listeners(client: &mut Client) -> usize {
    client.words("CLIENT LIST").text().matches(" sub=5 ").count()
}

/// Makes another server the primary. Returns the time from the first sentinel's announcement until
/// Keyway knew.
fn fail_over(keyway: &Keyway, sentinels: &Sentinels, name: &str) -> Duration {
    // A fail-over may fail if the replica was not ready.
    for _ in 0..5 {
        let before = switches(keyway);
        let listeners: Vec<Client> = (0..sentinels.addresses().len())
            .map(|sentinel| {
                let mut client = sentinels.client(sentinel);
                client.send(&encode_words("SUBSCRIBE +switch-master"));
                client.reply();
                client.set_reply_within(Duration::from_secs(5));
                client
            })
            .collect();
        let words = format!("SENTINEL FAILOVER {name}");
        wait_until("a fail-over begins", SOON, || sentinels.ask(0, &words) == Value::simple("OK"));
        let (told, known) = std::thread::scope(|scope| {
            let listen = |client| scope.spawn(move || told_of(client, name));
            let listeners: Vec<_> = listeners.into_iter().map(listen).collect();
            let known = known_at(|| switches(keyway) > before);
            (listeners.into_iter().filter_map(|listener| listener.join().unwrap()).min(), known)
        });
        if let Some(told) = told {
            let late = known.expect("it is followed").saturating_duration_since(told);
            assert!(late < Duration::from_secs(5), "{late:?}");
            println!("{name} was followed {late:?} after it was told");
            return late;
        }
    }
    panic!("no fail-over comes about");
}

/// Returns the time at which `is_known` became true, if it did.
fn known_at(is_known: impl Fn() -> bool) -> Option<Instant> {
    let began = Instant::now();
    while !is_known() {
        if began.elapsed() > Duration::from_secs(10) {
            return None;
        }
        std::thread::yield_now();
    }
    Some(Instant::now())
}

/// Returns the time at which a sentinel announced another primary of this name, if it did.
fn told_of(mut client: Client, name: &str) -> Option<Instant> {
    loop {
        // It may announce others late.
        let notice = client.try_reply().ok()?;
        if format!("{notice:?}").contains(&format!("\"{name} ")) {
            return Some(Instant::now());
        }
    }
}

#[test]
fn a_fail_over_is_followed_as_soon_as_a_sentinel_tells() {
    let _watch = watchdog(Duration::from_secs(120), "fail-overs that are told");
    let servers = Replicated::start(2);
    let mut sentinels = Sentinels::start(3, 2, &[("mymaster", &servers)]);
    let keyway = start(vec![through(&sentinels.addresses(), &["mymaster"])]);
    for sentinel in 0..3 {
        let mut client = sentinels.client(sentinel);
        wait_until("it is listened to, once", SOON, || listeners(&mut client) == 1);
    }
    let mut fastest = fail_over(&keyway, &sentinels, "mymaster");
    assert!(total(&keyway, "sentinel_notices") >= 1.0);
    // Lost connections are made again.
    sentinels.restart_all();
    for sentinel in 0..3 {
        let mut client = sentinels.client(sentinel);
        wait_until("it is listened to again", SOON, || listeners(&mut client) == 1);
    }
    for _ in 0..2 {
        // Sentinels wait between two fail-overs, and on a busy machine they may begin one on their
        // own.
        let server = wait_for("the others follow it", 2 * SOON, || {
            let promoted = sentinels.wait_primary("mymaster", |_| true);
            let server = servers.server_at(promoted).expect("one of ours");
            (servers.primaries() == [server]).then_some(server)
        });
        servers.wait_linked(server);
        fastest = fastest.min(fail_over(&keyway, &sentinels, "mymaster"));
    }
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
    let promoted = sentinels.wait_primary("mymaster", |_| true);
    assert_eq!(keyway.client(0).words("SET k v"), Value::simple("OK"));
    let server = servers.server_at(promoted).expect("one of ours");
    assert_eq!(servers.client(server).words("GET k"), Value::bulk("v"));
}

#[test]
fn primaries_share_what_listens_and_others_are_none_of_ours() {
    let _watch = watchdog(Duration::from_secs(60), "several primaries and one sentinel");
    let groups = [Replicated::start(1), Replicated::start(1), Replicated::start(1)];
    let names = ["alpha", "beta", "foreign"];
    let watched: Vec<(&str, &Replicated)> = names.into_iter().zip(&groups).collect();
    let sentinels = Sentinels::start(1, 1, &watched);
    let pool = through(&sentinels.addresses(), &names[..2]);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "2"));
    wait_until("both are known", SOON, || switches(&keyway) == 2);
    let mut client = sentinels.client(0);
    wait_until("it is listened to", SOON, || listeners(&mut client) == 1);
    sentinels.failover("foreign");
    assert_eq!(switches(&keyway), 2);
    let heard = total(&keyway, "sentinel_notices");
    fail_over(&keyway, &sentinels, "beta");
    assert!(total(&keyway, "sentinel_notices") > heard);
    assert_eq!(listeners(&mut client), 1);
    // Without subscribed clients nothing is logged about channels.
    let subscribed = keyway.metrics().sum("keyway_pubsub_subscribed_clients", &["pool=\"main\""]);
    assert_eq!(subscribed, 0.0);
    let (status, log) = keyway.stop(SOON);
    assert!(status.success(), "{log}");
}

#[test]
fn who_tells_lies_has_the_others_asked_and_not_too_often() {
    let _watch = watchdog(Duration::from_secs(60), "a sentinel that lies");
    let servers = Replicated::start(1);
    let sentinels = Sentinels::start(1, 1, &[("mymaster", &servers)]);
    // Any client may publish there, and the server knows nothing of primaries.
    let liar = RedisServer::start();
    let stranger = RedisServer::start();
    let addresses = [sentinels.addresses()[0], liar.address()];
    let keyway = start(vec![through(&addresses, &["mymaster"])]);
    let mut there = liar.client();
    wait_until("it is listened to", SOON, || listeners(&mut there) == 1);
    let asked = || total(&keyway, "told_views");
    let old = servers.address(0);
    let lies: Vec<String> = [
        format!("mymaster {} {} 127.0.0.1 {}", old.ip(), old.port(), stranger.address().port()),
        "mymaster".to_owned(),
        "others 127.0.0.1 1 127.0.0.1 2".to_owned(),
        "mymasters mymaste".to_owned(),
        String::new(),
        "\u{0} mymaster \u{ff}".to_owned(),
    ]
    .to_vec();
    let (before, heard) = (asked(), total(&keyway, "sentinel_notices"));
    let began = Instant::now();
    let mut told = 0u32;
    while began.elapsed() < Duration::from_secs(2) {
        for lie in &lies {
            there.command(&["PUBLISH", "+switch-master", lie]);
        }
        told += 1;
    }
    wait_until("all was heard", SOON, || {
        total(&keyway, "sentinel_notices") - heard >= f64::from(told) * 3.0
    });
    assert_eq!(total(&keyway, "sentinel_notices") - heard, f64::from(told) * 3.0);
    let questions = asked() - before;
    let most = began.elapsed().as_secs_f64() * 10.0 + 2.0;
    assert!((2.0..=most).contains(&questions), "{questions} of {most} for {told} lies");
    assert_eq!(switches(&keyway), 1);
    assert_eq!(keyway.client(0).words("SET k v"), Value::simple("OK"));
    assert_eq!(servers.client(0).words("GET k"), Value::bulk("v"));
    assert_eq!(stranger.client().words("DBSIZE"), Value::Integer(0));
    // This is not a payload at all.
    there.words("PUBLISH +sdown x");
    assert_eq!(keyway.client(0).words("PING"), Value::simple("PONG"));
    fail_over(&keyway, &sentinels, "mymaster");
}
