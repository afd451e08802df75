//! Scripts answer with any error there is, also with those of servers. Such an error moves no slot,
//! sends no client elsewhere, and makes nothing execute twice.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use crate::cluster_setup::{KEYWAY, cluster_pool, key_of, warnings};
use keyway_testkit::{
    Action, Client, Keyway, KeywayConfig, Pool, RedisCluster, RedisServer, Replicated,
    ScriptedBackend, Value, cluster_slot, encode, wait_until, watchdog,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(120);

/// Errors that servers send about themselves, and that scripts may send as well.
const OF_SERVERS: [&str; 8] = [
    "TRYAGAIN later",
    "CLUSTERDOWN The cluster is down",
    "LOADING Redis is loading the dataset in memory",
    "MASTERDOWN Link with MASTER is down",
    "READONLY You can't write against a read only replica.",
    "UNBLOCKED force unblock from blocking operation",
    "ERR WAIT cannot be used with replica instances.",
    "TRYAGAIN",
];

fn eval(client: &mut Client, said: &str, keys: &[&str]) -> Value {
    let code =
        format!("if #KEYS > 0 then redis.call('INCR', KEYS[1]) end return {{err=\"{said}\"}}");
    let count = keys.len().to_string();
    let arguments: Vec<&str> =
        ["EVAL", &code, &count].into_iter().chain(keys.iter().copied()).collect();
    client.command(&arguments)
}

/// Runs a script that returns this error. Expects that it ran once and its client got the error.
fn expect_once(client: &mut Client, said: &str, key: &str) {
    assert_eq!(client.command(&["SET", key, "0"]), Value::simple("OK"));
    let reply = eval(client, said, &[key]);
    assert!(reply.is_error(), "{said}: {reply:?}");
    assert_eq!(client.command(&["GET", key]), Value::bulk("1"), "{said}");
    let lines = [
        vec!["MULTI".to_owned()],
        vec![
            "EVAL".to_owned(),
            format!("redis.call('INCR', KEYS[1]) return {{err=\"{said}\"}}"),
            "1".to_owned(),
            key.to_owned(),
        ],
        vec!["EXEC".to_owned()],
    ];
    for line in &lines {
        client.send(&encode(line));
    }
    let replies = client.replies(3);
    assert!(replies[2].array()[0].is_error(), "{said}: {replies:?}");
    assert_eq!(client.command(&["GET", key]), Value::bulk("2"), "{said}");
}

/// Starts a server that listens for a password.
fn stranger() -> ScriptedBackend {
    ScriptedBackend::start(|_| Action::Reply(b"+OK\r\n".to_vec()))
}

#[test]
fn a_script_that_names_a_stranger_leads_nobody_there() {
    let _watch = watchdog(WITHIN, "a stranger");
    let cluster = RedisCluster::start_with(3, 0, &[], Some("sesame"));
    let stranger = stranger();
    let pool = cluster_pool(&cluster.addresses()[..2]).with("password", "\"sesame\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let (mut client, mut other) = (keyway.client(0), keyway.client(0));
    assert_eq!(other.words("SET foo bar"), Value::simple("OK"));
    let (key, slot) = ("foo", cluster_slot(b"foo"));
    for kind in ["MOVED", "ASK"] {
        for slot in [slot, slot + 1] {
            let said = format!("{kind} {slot} {}", stranger.address());
            for keys in [&[][..], &["{foo}counter"]] {
                let reply = eval(&mut client, &said, keys).error_text();
                assert!(reply.starts_with(&said), "{reply}");
            }
            expect_once(&mut client, &said, "{foo}counter");
            // Many requests are sent at once, with others behind them.
            let code = format!("return {{err='{said}'}}");
            let one = encode(&["EVAL", &code, "1", key]);
            client.send(&[&one[..], &one, &encode(&["GET", key]), &one].concat());
            let replies = client.replies(4);
            assert_eq!(replies[2], Value::bulk("bar"));
            assert_eq!(replies.iter().filter(|reply| reply.is_error()).count(), 3);
            assert_eq!(other.words("GET foo"), Value::bulk("bar"));
        }
    }
    let metrics = keyway.metrics();
    assert_eq!(stranger.connections(), 0);
    assert_eq!(metrics.sum("keyway_cluster_moved_requests_total", &[]), 0.0);
    assert_eq!(metrics.sum("keyway_cluster_asked_requests_total", &[]), 0.0);
    assert_eq!(metrics.sum("keyway_cluster_served_slots", &[]), 16384.0);
    assert_eq!(other.words("DBSIZE"), Value::Integer(2));
    assert_eq!(warnings(&keyway), Vec::<String>::new());
}

#[test]
fn a_script_runs_once_whatever_it_returns() {
    let _watch = watchdog(WITHIN, "scripts that lie");
    let cluster = RedisCluster::start(3, 1);
    let keyway = crate::cluster_setup::serve(&cluster, &[("timeout", "\"2s\"")], 1);
    let mut client = keyway.client(0);
    for said in OF_SERVERS {
        expect_once(&mut client, said, "counter");
    }
    // The error names each server: the script's own, one with other slots, and replicas.
    let slot = cluster_slot(b"counter");
    for address in cluster.addresses() {
        for kind in ["MOVED", "ASK"] {
            expect_once(&mut client, &format!("{kind} {slot} {address}"), "counter");
        }
    }
    let metrics = keyway.metrics();
    assert_eq!(metrics.sum("keyway_cluster_retried_requests_total", &[]), 0.0);
    assert_eq!(warnings(&keyway), Vec::<String>::new());
}

#[test]
fn a_primary_with_replicas_sends_nobody_elsewhere() {
    let _watch = watchdog(WITHIN, "a primary and a replica");
    let servers = Replicated::start(1);
    let stranger = stranger();
    let list = format!("[\"{}\", \"{}\"]", servers.address(0), servers.address(1));
    let pool = Pool::of_kind("main", "replicated").with("servers", &list);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    for said in OF_SERVERS {
        expect_once(&mut client, said, "counter");
    }
    let slot = cluster_slot(b"counter");
    for kind in ["MOVED", "ASK"] {
        for address in [stranger.address(), servers.address(0), servers.address(1)] {
            expect_once(&mut client, &format!("{kind} {slot} {address}"), "counter");
        }
    }
    assert_eq!(client.words("DBSIZE"), Value::Integer(1));
    assert_eq!(stranger.connections(), 0);
    assert_eq!(warnings(&keyway), Vec::<String>::new());
}

#[test]
fn a_script_does_not_tell_of_its_servers_health() {
    let _watch = watchdog(WITHIN, "a server that is well");
    let servers = [RedisServer::start(), RedisServer::start()];
    let ejection = "{ after_failures = 2, for = \"5s\", rejoin = \"serve\" }";
    let named = |(nth, server): (usize, &RedisServer)| format!("{}:1 s{nth}", server.address());
    let lines: Vec<String> = servers.iter().enumerate().map(named).collect();
    let pool = Pool::sharded("main", &lines).with("ejection", ejection);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    for said in OF_SERVERS {
        for _ in 0..5 {
            assert!(eval(&mut client, said, &["counter"]).is_error());
        }
    }
    assert_eq!(client.words("GET counter"), Value::bulk((OF_SERVERS.len() * 5).to_string()));
    assert_eq!(warnings(&keyway), Vec::<String>::new());
}

/// Stops other threads even if this thread panics.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn slots_move_to_a_server_that_has_none_yet_while_scripts_run() {
    let _watch = watchdog(WITHIN, "a new server");
    let mut cluster = RedisCluster::start(3, 0);
    let keyway = crate::cluster_setup::serve(&cluster, &[("timeout", "\"5s\"")], 1);
    let mut client = keyway.client(0);
    let key = key_of(7, "one");
    assert_eq!(client.words(&format!("SET {key} 0")), Value::simple("OK"));
    let new = cluster.add_node();
    cluster.wait_settled();
    let from = 0;
    let (is_over, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
    let code = "return redis.call('INCR', KEYS[1])";
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|nth| {
                let (keyway, is_over, begun) = (&keyway, &is_over, &begun);
                scope.spawn(move || {
                    let mut client = keyway.client(0);
                    // The keys are in slots 0 to 39, all of which move.
                    let keys: Vec<String> =
                        (0..40).map(|slot| key_of(slot, &format!("of:{nth}"))).collect();
                    let mut rounds = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        rounds += 1;
                        let bytes: Vec<u8> = keys
                            .iter()
                            .flat_map(|key| {
                                let one = encode(&["EVAL", code, "1", key]);
                                [one, encode(&["INCR", key])].concat()
                            })
                            .collect();
                        client.send(&bytes);
                        for (at, reply) in client.replies(80).into_iter().enumerate() {
                            let expected = rounds * 2 - 1 + (at as i64 % 2);
                            assert_eq!(reply, Value::Integer(expected), "{}", keys[at / 2]);
                        }
                        if rounds == 1 {
                            begun.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    rounds
                })
            })
            .collect();
        let ending = Ending(&is_over);
        wait_until("all have begun", WITHIN, || begun.load(Ordering::Relaxed) == 4);
        cluster.move_slots(from, new, 0..40);
        drop(ending);
        for worker in workers {
            println!("{} rounds", worker.join().expect("a client"));
        }
    });
    assert_eq!(client.words(&format!("GET {key}")), Value::bulk("0"));
    assert!(keyway.metrics().sum("keyway_cluster_asked_requests_total", &[]) > 0.0);
    assert_eq!(keyway.metrics().sum("keyway_cluster_given_up_requests_total", &[]), 0.0);
    assert_eq!(warnings(&keyway), Vec::<String>::new());
}

/// `NOSCRIPT` comes from a server that lacks a script, and from a script that returns such an
/// error.
#[test]
fn a_script_that_says_that_it_is_missing_runs_once() {
    let _watch = watchdog(WITHIN, "NOSCRIPT");
    let cluster = RedisCluster::start(3, 0);
    let servers = RedisServer::start_many(2);
    let sharded = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::over("main", &servers)]));
    for keyway in [crate::cluster_setup::serve(&cluster, &[], 1), sharded] {
        let mut client = keyway.client(0);
        for said in ["NOSCRIPT No matching script. Please use EVAL.", "NOSCRIPT mine"] {
            let code = format!("redis.call('INCR', KEYS[1]) return redis.error_reply('{said}')");
            let digest = client.command(&["SCRIPT", "LOAD", &code]).text();
            assert_eq!(client.words("SET k 0"), Value::simple("OK"));
            for times in 1..=3 {
                let told = client.command(&["EVALSHA", &digest, "1", "k"]);
                assert_eq!(told.error_text(), said);
                assert_eq!(client.words("GET k"), Value::bulk(times.to_string()), "{said}");
            }
            // A script that is really missing is loaded, and runs once too.
            for node in 0..3 {
                cluster.ask(node, "SCRIPT FLUSH");
            }
            servers.iter().for_each(|server| drop(server.client().words("SCRIPT FLUSH")));
            assert_eq!(client.command(&["EVALSHA", &digest, "1", "k"]).error_text(), said);
            assert_eq!(client.words("GET k"), Value::bulk("4"), "{said}");
        }
    }
}

/// Keys that a script names but does not use, uses but does not name, or counts wrongly.
#[test]
fn scripts_and_functions_that_name_wrong_keys_are_refused_and_led_nowhere() {
    let _watch = watchdog(WITHIN, "wrong keys");
    let cluster = RedisCluster::start(3, 0);
    let keyway = crate::cluster_setup::serve(&cluster, &[], 1);
    let mut client = keyway.client(0);
    let code = "#!lua name=wrong\nredis.register_function('put', function(keys, args) \
                redis.call('INCR', keys[1]) return redis.call('SET', args[1], 'x') end)";
    assert_eq!(client.command(&["FUNCTION", "LOAD", code]), Value::bulk("wrong"));
    let (here, there) = (key_of(0, "k"), key_of(16_000, "k"));
    // The script uses a key of another server that is not named.
    let told = client.command(&["FCALL", "put", "1", &here, &there]).error_text();
    assert!(told.contains("non local key"), "{told}");
    assert_eq!(client.command(&["GET", &here]), Value::bulk("1"), "it ran once");
    assert_eq!(client.command(&["EXISTS", &there]), Value::Integer(0));
    let read = "return redis.call('GET', ARGV[1])";
    let told = client.command(&["EVAL_RO", read, "1", &here, &there]).error_text();
    assert!(told.contains("non local key"), "{told}");
    // A script that only reads may not write.
    let told = client.command(&["EVAL_RO", "return redis.call('SET', KEYS[1], 1)", "1", &here]);
    assert!(told.error_text().contains("Write commands are not allowed"), "{told:?}");
    // The calls have keys of two slots, more keys than there are, no keys, or no number.
    for call in [["FCALL", "put"], ["EVAL_RO", read]] {
        let mut told = |rest: &[&str]| {
            client.command(&call.iter().chain(rest).copied().collect::<Vec<_>>()).error_text()
        };
        assert!(told(&["2", &here, &there]).starts_with("CROSSSLOT"));
        assert!(told(&["3", &here]).contains("Number of keys can't be greater"), "{call:?}");
        assert!(told(&["-1", &here]).contains("Number of keys can't be negative"), "{call:?}");
        assert!(!told(&["x", &here]).is_empty(), "{call:?}");
    }
    assert_eq!(client.command(&["GET", &here]), Value::bulk("1"));
    let metrics = keyway.metrics();
    assert_eq!(metrics.sum("keyway_cluster_moved_requests_total", &[]), 0.0);
    assert_eq!(metrics.sum("keyway_cluster_retried_requests_total", &[]), 0.0);
    assert_eq!(warnings(&keyway), Vec::<String>::new());
}
