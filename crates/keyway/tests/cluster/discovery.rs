//! Which servers are asked about a pool, and which answers Keyway believes: from servers that are
//! silent, that know too little, or that tell an earlier epoch than is known.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use crate::cluster_setup::{KEYWAY, cluster_pool};
use keyway_testkit::{
    Action, Client, Keyway, KeywayConfig, Pool, Replicated, ScriptedBackend, Sentinels, Value,
    encode, free_address, handshake_reply, http_get, wait_until, watchdog,
};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(90);
const SOON: Duration = Duration::from_secs(15);

fn list(addresses: &[SocketAddr]) -> String {
    let quoted: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

fn through(sentinels: &[SocketAddr], names: &str) -> Pool {
    Pool::of_kind("main", "replicated")
        .with("sentinels", &list(sentinels))
        .with("primaries", names)
        .with("refresh", "\"200ms\"")
}

fn start(pool: Pool) -> Keyway {
    Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]))
}

fn set(client: &mut Client, key: &str) -> bool {
    client.command(&["SET", key, "v"]) == Value::simple("OK")
}

fn has(servers: &Replicated, server: usize, key: &str) -> bool {
    servers.client(server).command(&["GET", key]) == Value::bulk("v")
}

/// Starts a sentinel that tells of this primary and its replica, in this epoch.
fn sentinel(
    primary: SocketAddr,
    replica: &[(&'static str, String)],
    epoch: &Arc<AtomicU64>,
) -> ScriptedBackend {
    sentinel_that(primary, replica, epoch, "master")
}

/// Starts such a sentinel, with other flags of the primary.
fn sentinel_that(
    primary: SocketAddr,
    replica: &[(&'static str, String)],
    epoch: &Arc<AtomicU64>,
    flags: &'static str,
) -> ScriptedBackend {
    let epoch = Arc::clone(epoch);
    let replica: Vec<String> =
        replica.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]).collect();
    ScriptedBackend::start(move |request| {
        let word = request.get(1).map(|word| word.to_ascii_uppercase()).unwrap_or_default();
        let (ip, port) = (primary.ip().to_string(), primary.port().to_string());
        let epoch = epoch.load(Ordering::Relaxed).to_string();
        let told = ["name", "mymaster", "ip", &ip, "port", &port, "flags", flags];
        match (handshake_reply(request), &word[..]) {
            (Some(reply), _) => Action::Reply(reply),
            (None, b"GET-MASTER-ADDR-BY-NAME") => Action::Reply(encode(&[&ip, &port])),
            (None, b"MASTER") => {
                Action::Reply(encode(&[&told[..], &["config-epoch", &epoch]].concat()))
            }
            (None, b"SLAVES") if replica.is_empty() => Action::Reply(b"*0\r\n".to_vec()),
            (None, b"SLAVES") => {
                let words: Vec<&str> = replica.iter().map(String::as_str).collect();
                Action::Reply([&b"*1\r\n"[..], &encode(&words)].concat())
            }
            (None, _) => Action::Reply(b"+PONG\r\n".to_vec()),
        }
    })
}

#[test]
fn a_replica_that_has_never_copied_its_primary_costs_nothing() {
    let _watch = watchdog(WITHIN, "a replica that has not synced");
    let servers = Replicated::start(0);
    let at = free_address();
    let replica = [
        ("name", at.to_string()),
        ("ip", at.ip().to_string()),
        ("port", at.port().to_string()),
        ("flags", "slave".to_owned()),
        ("master-link-down-time", "-1000".to_owned()),
        ("master-link-status", "err".to_owned()),
    ];
    let sentinel = sentinel(servers.address(0), &replica, &Arc::default());
    let keyway = start(through(&[sentinel.address()], "[\"mymaster\"]"));
    assert!(set(&mut keyway.client(0), "a"));
    assert!(has(&servers, 0, "a"));
}

#[test]
fn a_name_that_no_sentinel_knows_costs_no_other_and_is_told() {
    let _watch = watchdog(WITHIN, "an unknown name");
    let servers = Replicated::start(1);
    let sentinels = Sentinels::start(1, 1, &[("mymaster", &servers)]);
    let keyway = start(through(&sentinels.addresses(), "[\"ghost\", \"mymaster\"]"));
    let mut client = keyway.client(0);
    let mut told = [0, 0];
    for nth in 0..300_u64 {
        let key = format!("{}:{nth}", nth.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        match client.command(&["SET", &key, "v"]) {
            Value::Error(text) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                assert!(text.contains("no sentinel knows \"ghost\"; check primaries"), "{text}");
                told[0] += 1;
            }
            reply => {
                assert_eq!(reply, Value::simple("OK"));
                told[1] += 1;
            }
        }
    }
    assert!(told.iter().all(|&count| count > 20), "{told:?}");
    let log = keyway.process().log();
    assert_eq!(log.matches("no sentinel knows").count(), 1, "{log}");
}

#[test]
fn a_server_in_place_of_a_sentinel_is_named_with_what_it_says() {
    let _watch = watchdog(WITHIN, "a server that is no sentinel");
    let servers = Replicated::start(0);
    let keyway = start(through(&servers.addresses(), "[\"mymaster\"]"));
    let mut client = keyway.client(0);
    wait_until("it is told", SOON, || {
        let text = client.words("GET a").error_text();
        text.contains("unknown command") && text.contains(&servers.address(0).to_string())
    });
}

#[test]
fn a_primary_that_is_watched_anew_is_followed() {
    let _watch = watchdog(WITHIN, "a primary is watched anew");
    let (old, new) = (Replicated::start(0), Replicated::start(0));
    let sentinels = Sentinels::start(3, 2, &[("mymaster", &old)]);
    let keyway = start(through(&sentinels.addresses(), "[\"mymaster\"]"));
    let mut client = keyway.client(0);
    assert!(set(&mut client, "before"));
    for sentinel in 0..3 {
        // The sentinel is set up as after a fail-over or two, and then with another primary of that
        // name.
        let _ = sentinels.ask(sentinel, "SENTINEL REMOVE mymaster");
        let at = new.address(0);
        let watch = format!("SENTINEL MONITOR mymaster {} {} 2", at.ip(), at.port());
        assert_eq!(sentinels.ask(sentinel, &watch), Value::simple("OK"));
    }
    wait_until("it is followed", SOON, || set(&mut client, "after") && has(&new, 0, "after"));
}

#[test]
fn most_sentinels_are_believed_although_their_epoch_is_an_earlier_one() {
    let _watch = watchdog(WITHIN, "an earlier epoch");
    let (old, new) = (Replicated::start(0), Replicated::start(0));
    let epochs = [Arc::new(AtomicU64::new(7)), Arc::new(AtomicU64::new(u64::MAX))];
    let liar = sentinel(old.address(0), &[], &epochs[1]);
    let others = [0, 1].map(|_| sentinel(new.address(0), &[], &epochs[0]));
    let all = [liar.address(), others[0].address(), others[1].address()];
    let keyway = start(through(&all, "[\"mymaster\"]"));
    let mut client = keyway.client(0);
    // The others may be heard before the liar, and then once more.
    wait_until("most are believed", SOON, || {
        keyway.process().log().contains("an earlier epoch than was known: believed")
    });
    wait_until("they are followed", SOON, || set(&mut client, "a") && has(&new, 0, "a"));
    // A sentinel that was outvoted is not believed when it tells the same again.
    let before = liar.requests();
    wait_until("it is asked again", SOON, || liar.requests() > before + 15);
    for nth in 0..100 {
        let key = format!("k{nth}");
        assert!(set(&mut client, &key) && has(&new, 0, &key), "the {nth}th");
    }
    epochs[0].store(2, Ordering::Relaxed);
    wait_until("an earlier one still", SOON, || {
        keyway.process().log().matches("an earlier epoch than was known: believed").count() == 2
    });
    assert!(keyway.metrics().sum("keyway_cluster_stale_views_total", &[]) > 5.0);
}

/// A sentinel is asked for the address just before it promotes another server, and for the epoch
/// just after.
#[test]
fn the_epoch_of_a_fail_over_does_not_make_the_old_primary_the_new_one() {
    let _watch = watchdog(WITHIN, "a torn answer");
    let (old, new) = (Replicated::start(0), Replicated::start(0));
    let epoch = Arc::new(AtomicU64::new(7));
    let torn = sentinel_that(old.address(0), &[], &epoch, "master,failover_in_progress");
    let right = sentinel(new.address(0), &[], &epoch);
    let keyway = start(through(&[torn.address(), right.address()], "[\"mymaster\"]"));
    let mut client = keyway.client(0);
    wait_until("the new one is found", SOON, || set(&mut client, "a") && has(&new, 0, "a"));
    let before = torn.requests();
    for nth in 0.. {
        let key = format!("k{nth}");
        assert!(set(&mut client, &key) && has(&new, 0, &key), "the {nth}th");
        if nth >= 100 && torn.requests() > before + 15 {
            break;
        }
    }
}

#[test]
fn a_sentinel_that_hangs_delays_nothing() {
    let _watch = watchdog(WITHIN, "a sentinel that hangs");
    let servers = Replicated::start(2);
    let mut sentinels = Sentinels::start(3, 2, &[("mymaster", &servers)]);
    let pool = through(&sentinels.addresses(), "[\"mymaster\"]").with("timeout", "\"30s\"");
    let keyway = start(pool);
    let mut client = keyway.client(0);
    assert!(set(&mut client, "before"));
    sentinels.pause(0);
    std::thread::sleep(Duration::from_millis(500));
    let reply = sentinels.ask(1, "SENTINEL FAILOVER mymaster");
    assert_eq!(reply, Value::simple("OK"));
    wait_until("another is the primary", SOON, || {
        sentinels.primary_seen_by(1, "mymaster").is_some_and(|at| at != servers.address(0))
    });
    let promoted = sentinels.primary_seen_by(1, "mymaster").expect("just seen");
    let new = servers.server_at(promoted).expect("one of ours");
    let began = Instant::now();
    wait_until("it is followed", SOON, || set(&mut client, "after") && has(&servers, new, "after"));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    sentinels.resume(0);
}

/// Returns the reply to `CLUSTER SLOTS` of a server that has the slots up to this one.
fn slots_up_to(last: u16, owner: SocketAddr) -> Vec<u8> {
    let host = owner.ip().to_string();
    let node = format!("*2\r\n${}\r\n{host}\r\n:{}\r\n", host.len(), owner.port());
    format!("*1\r\n*3\r\n:0\r\n:{last}\r\n{node}").into_bytes()
}

#[test]
fn one_answer_that_leaves_slots_out_is_not_believed() {
    let _watch = watchdog(WITHIN, "an answer that is not whole");
    let asked = Arc::new(AtomicUsize::new(0));
    let (address, count) = (free_address(), Arc::clone(&asked));
    let _server = ScriptedBackend::start_at(address, move |request| {
        if request[0] == b"CLUSTER" {
            let nth = count.fetch_add(1, Ordering::Relaxed);
            let last = if nth % 4 == 2 { 5460 } else { 16383 };
            return Action::Reply(slots_up_to(last, address));
        }
        Action::Reply(handshake_reply(request).unwrap_or_else(|| b"$1\r\nv\r\n".to_vec()))
    });
    let keyway = start(cluster_pool(&[address]).with("refresh", "\"100ms\""));
    let mut client = keyway.client(0);
    while asked.load(Ordering::Relaxed) < 24 {
        // These are the slots 15495 and 3300.
        assert_eq!(client.words("GET a"), Value::bulk("v"));
        assert_eq!(client.words("GET b"), Value::bulk("v"));
    }
    let log = keyway.process().log();
    assert!(!log.contains("slots have no server"), "{log}");
}

#[test]
fn slots_that_get_a_server_are_found_soon_although_the_refresh_is_far_off() {
    let _watch = watchdog(WITHIN, "a cluster that is being made");
    let asked = Arc::new(AtomicUsize::new(0));
    let (address, count) = (free_address(), Arc::clone(&asked));
    let _server = ScriptedBackend::start_at(address, move |request| {
        if request[0] == b"CLUSTER" {
            let is_made = count.fetch_add(1, Ordering::Relaxed) >= 3;
            return Action::Reply(slots_up_to(if is_made { 16383 } else { 5460 }, address));
        }
        Action::Reply(handshake_reply(request).unwrap_or_else(|| b"$1\r\nv\r\n".to_vec()))
    });
    let keyway = start(cluster_pool(&[address]).with("refresh", "\"60s\""));
    let mut client = keyway.client(0);
    wait_until("all slots are served", Duration::from_secs(4), || {
        client.words("GET a") == Value::bulk("v")
    });
    let log = keyway.process().log();
    assert!(log.contains("slots have a server again"), "{log}");
}

/// The server has the first third of the slots until it is told otherwise.
#[test]
fn a_request_for_a_slot_that_nobody_has_waits_and_no_longer_than_its_time() {
    let _watch = watchdog(WITHIN, "a hole in the map");
    let is_whole = Arc::new(AtomicBool::new(false));
    let (address, whole) = (free_address(), Arc::clone(&is_whole));
    let _server = ScriptedBackend::start_at(address, move |request| {
        if request[0] == b"CLUSTER" {
            let last = if whole.load(Ordering::Relaxed) { 16383 } else { 5460 };
            return Action::Reply(slots_up_to(last, address));
        }
        Action::Reply(handshake_reply(request).unwrap_or_else(|| b"$1\r\nv\r\n".to_vec()))
    });
    let settings = [("refresh", "\"60s\""), ("timeout", "\"2s\"")];
    let pool = settings
        .iter()
        .fold(cluster_pool(&[address]), |pool, (name, value)| pool.with(name, value));
    let pools = vec![pool.clone(), pool.spoken_to_in("memcached")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let mut client = keyway.client(0);
    assert_eq!(client.words("GET b"), Value::bulk("v"), "slot 3300");
    let began = Instant::now();
    let told = keyway.memcached_client(1).say("get a\r\n");
    assert_eq!(told, "SERVER_ERROR Hash slot not served\r\n");
    assert!(began.elapsed() > Duration::from_millis(1900), "{:?}", began.elapsed());
    let began = Instant::now();
    // A pipeline waits once, and requests for slots that are served are answered.
    let told = client.pipeline(&["GET a", "GET b", "SET a 1", "EXISTS a b"]);
    let took = began.elapsed();
    assert!(took > Duration::from_millis(1900) && took < Duration::from_secs(4), "{took:?}");
    for nth in [0, 2, 3] {
        assert!(told[nth].error_text().starts_with("CLUSTERDOWN"), "{told:?}");
    }
    assert_eq!(told[1], Value::bulk("v"));
    // The pause is long enough that the request does not count as of the same pipeline.
    std::thread::sleep(Duration::from_millis(300));
    client.send(&encode(&["GET", "a"]));
    std::thread::sleep(Duration::from_millis(700));
    is_whole.store(true, Ordering::Relaxed);
    assert_eq!(client.replies(1)[0], Value::bulk("v"));
    assert!(keyway.metrics().sum("keyway_cluster_retried_requests_total", &[]) >= 2.0);
}

#[test]
fn a_cluster_that_announces_what_nobody_reaches_is_told_of() {
    let _watch = watchdog(WITHIN, "announced addresses");
    let (address, nowhere) = (free_address(), free_address());
    let _server = ScriptedBackend::start_at(address, move |request| {
        if request[0] == b"CLUSTER" {
            return Action::Reply(slots_up_to(16383, nowhere));
        }
        Action::Reply(handshake_reply(request).unwrap_or_else(|| b"+OK\r\n".to_vec()))
    });
    let keyway = start(cluster_pool(&[address]).with("refresh", "\"100ms\""));
    let log = || keyway.process().log();
    wait_until("it is told of", SOON, || {
        log().contains("the cluster announces addresses of which none answers")
    });
    let line = log().lines().find(|line| line.contains("none answers")).map(str::to_owned);
    let line = line.unwrap_or_default();
    assert!(line.contains("WARN") && line.contains("see cluster-announce-ip"), "{line}");
    let names = [format!("backend=\"{address}\""), format!("announced=\"{nowhere}\"")];
    let plain = [format!("backend={address}"), format!("announced={nowhere}")];
    let has = |nth: usize| line.contains(&names[nth]) || line.contains(&plain[nth]);
    assert!(has(0) && has(1), "{line}");
    assert_eq!(log().matches("none answers").count(), 1, "once a minute");
}

/// Like a server with TLS, this one closes connections without TLS unanswered.
#[test]
fn a_server_that_cuts_off_who_speaks_plainly_has_tls_named() {
    let _watch = watchdog(WITHIN, "a port of TLS");
    let tls = || ScriptedBackend::start(|_| Action::Close(Vec::new()));
    let (server, sentinel) = (tls(), tls());
    let cluster = start(cluster_pool(&[server.address()]));
    let replicated = start(through(&[sentinel.address()], "[\"mymaster\"]"));
    for (keyway, key) in
        [(&cluster, "set tls in [pool.main]"), (&replicated, "set sentinel_tls in [pool.main]")]
    {
        let mut client = keyway.client(0);
        wait_until("the hint is given", SOON, || {
            let told = client.words("GET a").error_text();
            told.contains("if it speaks TLS on this port") && told.contains(key)
        });
    }
}

/// A server that dies behaves so if a connection was in its backlog.
#[test]
fn a_server_that_ends_one_connection_and_is_gone_has_no_tls_named() {
    let _watch = watchdog(WITHIN, "a server that was killed");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let once = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        drop(listener);
        connection.read(&mut [0; 64]).unwrap()
    });
    let keyway = start(cluster_pool(&[address]));
    let mut client = keyway.client(0);
    let mut told = String::new();
    wait_until("it is refused", SOON, || {
        told = client.words("GET a").error_text();
        assert!(!told.contains("TLS"), "{told}");
        told.contains("cannot be reached: connection refused")
    });
    assert!(once.join().unwrap() > 0, "it was asked");
    let log = keyway.process().log();
    assert!(log.contains("closed the connection") && !log.contains("TLS"), "{log}");
}

#[test]
fn a_silent_server_does_not_hide_that_another_cannot_be_reached() {
    let _watch = watchdog(WITHIN, "one refuses and one is silent");
    let silent = ScriptedBackend::start(|_| Action::Silence);
    let refusing = free_address();
    let pool = cluster_pool(&[refusing, silent.address()]).with("timeout", "\"200ms\"");
    let keyway = start(pool);
    let ready = || http_get(keyway.admin(), "/readyz").body;
    let cause = format!("{refusing} cannot be reached: connection refused");
    wait_until("the cause is told", SOON, || ready().contains(&cause));
    let begun = Instant::now();
    let unanswered = || keyway.metrics().sum("keyway_cluster_unanswered_questions_total", &[]);
    let before = unanswered();
    wait_until("it stays so", SOON, || {
        let told = ready();
        assert!(told.contains(&cause), "{told}");
        begun.elapsed() > Duration::from_secs(3) && unanswered() > before + 3.0
    });
}

#[test]
fn a_redis_server_in_the_place_of_a_sentinel_is_told_to_be_none() {
    let _watch = watchdog(WITHIN, "no sentinel");
    let servers = Replicated::start(0);
    let keyway = start(through(&servers.addresses(), "[\"mymaster\"]"));
    let mut client = keyway.client(0);
    let hint = "answers, but is no sentinel";
    wait_until("clients are told", SOON, || {
        let told = client.words("GET a").error_text();
        told.contains(hint) && told.contains("check sentinels in [pool.main]")
    });
    assert!(http_get(keyway.admin(), "/readyz").body.contains(hint));
    let log = keyway.process().log();
    let line = log.lines().find(|line| line.contains(hint)).unwrap_or_default();
    assert!(line.contains("WARN") && line.contains("unknown command"), "{log}");
}

#[test]
fn what_is_refused_is_refused_in_words_that_fit_the_pool() {
    let _watch = watchdog(WITHIN, "refusals");
    let servers = Replicated::start(0);
    let pool = Pool::of_kind("main", "replicated").with("servers", &list(&servers.addresses()));
    let keyway = start(pool);
    let mut client = keyway.client(0);
    wait_until("it is known", SOON, || set(&mut client, "a"));
    for words in ["LASTSAVE", "SAVE", "SWAPDB 0 1", "SCRIPT KILL", "COPY a b DB 1", "XREAD STREAMS"]
    {
        let told = client.words(words).error_text();
        assert!(!told.contains("sharded"), "{words}: {told}");
    }
    let told = client.words("CLIENT TRACKING ON").error_text();
    assert!(told.contains("not for pools of kind \"replicated\""), "{told}");
}
