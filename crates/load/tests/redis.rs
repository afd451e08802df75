//! The generator against real servers of Redis.
#![allow(clippy::disallowed_methods, reason = "tests wait and look at clocks")]

mod support;

use keyway_load::{
    CommandKind, Ended, Error, Flow, KeyForm, Pace, Pattern, Plan, Protocol, SUITE, Sizes, Until,
    Watch, Workload, parse_template, run, suite, ycsb,
};
use keyway_testkit::certificates::CertificateFiles;
use keyway_testkit::{
    RedisCluster, RedisServer, TempDir, cluster_slot, free_port, wait_until, watchdog,
};
use keyway_tls::{ClientSettings, ClientTls, MinVersion, Trust};
use std::time::{Duration, Instant};
use support::{expect_clean, fill, go, plan, target, workload};

/// How often the server has executed a command, as it says itself.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let info = server.client().words("INFO commandstats").text();
    let line =
        info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn the_server_has_seen_what_was_counted() {
    let server = RedisServer::start();
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let (to, load) = (target(server.address(), protocol), workload("set:1,get:3", 500));
        server.client().words("FLUSHALL");
        fill(&load, &to);
        assert_eq!(server.client().words("DBSIZE").integer(), 500);
        let (sets, gets) = (calls(&server, "set"), calls(&server, "get"));
        let outcome = go(&load, &to, &plan(20_000));
        expect_clean(&outcome, 20_000);
        let [set, get] = &outcome.classes[..] else { panic!("two classes") };
        assert_eq!(
            (set.requests, get.requests),
            (calls(&server, "set") - sets, calls(&server, "get") - gets)
        );
        let share = get.requests as f64 / 20_000.0;
        assert!((0.73..0.77).contains(&share), "{share}");
        assert_eq!((get.hits, get.misses), (get.requests, 0));
        assert!(outcome.totals.bytes_received > get.requests * 100);
        assert_eq!(server.client().words("DBSIZE").integer(), 500);
    }
}

#[test]
fn a_unix_socket_a_password_and_a_database_are_used() {
    let directory = TempDir::new();
    let path = directory.path().join("redis.sock");
    let arguments = ["--requirepass", "secret", "--unixsocket", path.to_str().unwrap()];
    let server = RedisServer::start_with(&arguments);
    let load = workload("set", 100);
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut to = target(server.address(), protocol);
        to.address = format!("unix://{}", path.display()).parse().unwrap();
        let refused = run(&load, &to, &plan(10), &[], &mut |_| Flow::Continue).unwrap_err();
        assert!(
            matches!(&refused, Error::Refused { reply, .. } if reply.starts_with("NOAUTH")),
            "{refused}"
        );
        to.password = Some("wrong".to_owned());
        let refused = run(&load, &to, &plan(10), &[], &mut |_| Flow::Continue).unwrap_err();
        assert!(
            matches!(&refused, Error::Refused { reply, .. } if reply.starts_with("WRONGPASS")),
            "{refused}"
        );
        (to.password, to.user) = (Some("secret".to_owned()), Some("default".to_owned()));
        to.database = 3;
        expect_clean(&go(&load, &to, &plan(1000)), 1000);
    }
    let mut client = server.client();
    client.words("AUTH secret");
    client.words("SELECT 3");
    assert!(client.words("DBSIZE").integer() > 90);
}

#[test]
fn what_is_not_there_or_speaks_otherwise_is_told() {
    let closed = target("127.0.0.1:1".parse().unwrap(), Protocol::Resp2);
    let load = workload("set", 100);
    let error = |to| run(&load, &to, &plan(10), &[], &mut |_| Flow::Continue).unwrap_err();
    assert!(matches!(error(closed), Error::Connect { why, .. } if why.contains("refused")));
    let server = RedisServer::start();
    let as_memcached = error(target(server.address(), Protocol::MemcachedText));
    assert!(matches!(as_memcached, Error::Protocol { .. }), "{as_memcached}");
    let mut binary = target(server.address(), Protocol::MemcachedBinary);
    binary.patience = Duration::from_millis(500);
    let as_binary = error(binary);
    assert!(matches!(as_binary, Error::Protocol { .. }), "{as_binary}");
    let plain = target(server.address(), Protocol::Resp2);
    let no_watch = run(&load, &plain, &plan(10), &[Watch::Port(1)], &mut |_| Flow::Continue);
    assert!(matches!(no_watch, Err(Error::Process(_))));
    let mut as_cluster = plain;
    as_cluster.is_cluster = true;
    assert!(matches!(error(as_cluster), Error::Refused { .. }));
}

#[test]
fn every_command_by_name_is_understood() {
    let server = RedisServer::start();
    let to = target(server.address(), Protocol::Resp2);
    let mix = "set:1,get:1,mset_10:1,mget_20:1,setex:1,del:1,touch:1";
    let mut load = workload(mix, 300);
    load.sizes = Sizes::Weighted(vec![(1, 1), (5000, 1)]);
    load.expiry = Some((100, 200));
    let outcome = go(&load, &to, &plan(7000));
    expect_clean(&outcome, 7000);
    let mget = outcome.classes.iter().find(|class| class.name == "mget_20").unwrap();
    assert_eq!(mget.hits + mget.misses, mget.requests * 20);
    let mut client = server.client();
    let keys: Vec<String> = client.words("KEYS *").array().iter().map(|key| key.text()).collect();
    let lens: Vec<i64> =
        keys.iter().map(|key| client.words(&format!("STRLEN {key}")).integer()).collect();
    assert!(
        lens.contains(&1) && lens.contains(&5000) && lens.iter().all(|len| [1, 5000].contains(len))
    );
    let mut incr = workload("incr", 10);
    incr.keys.prefix = "counter:".to_owned();
    expect_clean(&go(&incr, &to, &plan(1000)), 1000);
    let sum: i64 = (0..10)
        .map(|key| client.words(&format!("GET counter:{key:012}")).text().parse::<i64>().unwrap())
        .sum();
    assert_eq!(sum, 1000);
}

#[test]
fn expiries_are_drawn_from_their_range() {
    let server = RedisServer::start();
    let mut load = workload("set", 200);
    load.expiry = Some((1000, 1009));
    fill(&load, &target(server.address(), Protocol::Resp2));
    let mut client = server.client();
    let mut seen = std::collections::BTreeSet::new();
    for key in 0..200 {
        seen.insert(client.words(&format!("EXPIRETIME key:{key:012}")).integer());
    }
    assert!((8..=12).contains(&seen.len()), "{seen:?}");
    assert!(client.words("TTL key:000000000000").integer() > 980);
}

#[test]
fn templates_replace_what_they_name() {
    let server = RedisServer::start();
    let words = parse_template("HSET h:__key__ f:__rand__ pre-__data__ g __rand_int__").unwrap();
    let command = keyway_load::Command { name: "hset".to_owned(), kind: CommandKind::Words(words) };
    let mut load = Workload::new("hset", vec![(command, 1)]);
    load.keys.count = 4;
    (load.keys.prefix, load.keys.form) = ("k".to_owned(), KeyForm::Digits(0));
    load.sizes = Sizes::Fixed(10);
    expect_clean(&go(&load, &target(server.address(), Protocol::Resp2), &plan(400)), 400);
    let mut client = server.client();
    for key in 0..4 {
        assert_eq!(client.words(&format!("HLEN h:k{key}")).integer(), 5);
        assert_eq!(client.words(&format!("HSTRLEN h:k{key} f:2")).integer(), 14);
        let int = client.words(&format!("HGET h:k{key} g")).text();
        assert!(int.len() == 12 && int.parse::<u64>().unwrap() < 4, "{int}");
    }
}

#[test]
fn the_whole_suite_runs_without_an_error() {
    let server = RedisServer::start();
    let to = target(server.address(), Protocol::Resp2);
    let names: Vec<String> = SUITE.iter().map(|(name, _)| (*name).to_owned()).collect();
    let tests = suite(&names, 100, 3).unwrap();
    assert!(tests.len() > SUITE.len());
    for test in tests {
        let outcome = go(&test, &to, &plan(1000));
        expect_clean(&outcome, 1000);
    }
    assert_eq!(calls(&server, "lrange"), 4000);
}

#[test]
fn ycsb_has_its_layout_and_finds_its_records() {
    let _watchdog = watchdog(Duration::from_secs(60), "ycsb");
    let server = RedisServer::start();
    let to = target(server.address(), Protocol::Resp2);
    fill(&ycsb('a', 300).unwrap(), &to);
    let mut client = server.client();
    assert_eq!(client.words("ZCARD _indices").integer(), 300);
    // YCSB's name of record 0.
    assert_eq!(client.words("HLEN user6284781860667377211").integer(), 10);
    assert_eq!(client.words("HSTRLEN user6284781860667377211 field9").integer(), 100);
    for letter in 'a'..='f' {
        let load = ycsb(letter, 300).unwrap();
        let outcome = go(&load, &to, &plan(1500));
        expect_clean(&outcome, 1500);
        let read = outcome.classes.iter().find(|class| class.name == "read");
        if letter != 'd' {
            assert_eq!(read.map_or(0, |class| class.misses), 0, "{letter}");
        }
        if letter == 'f' {
            assert!(outcome.classes[1].latency.mean_us > outcome.classes[0].latency.mean_us);
        }
    }
    assert!(client.words("ZCARD _indices").integer() > 300, "D and E insert");
    assert!(calls(&server, "zrangebyscore") > 1000);
}

#[test]
fn connections_are_closed_behind_their_calls() {
    let server = RedisServer::start();
    let to = target(server.address(), Protocol::Resp2);
    let plan = Plan { calls: Some(10), pipeline: 3, ..plan(2000) };
    let outcome = go(&workload("set", 100), &to, &plan);
    expect_clean(&outcome, 2000);
    let opened = outcome.connections.opened;
    assert!((200..=232).contains(&opened), "{opened}");
    assert_eq!(outcome.connections.connect.count, opened);
    assert!(outcome.connections.connect.max_us > 0.0 && outcome.connections.per_second > 0.0);
}

#[test]
fn an_open_loop_tells_of_a_stall_and_a_closed_one_hides_it() {
    let server = RedisServer::start();
    let to = target(server.address(), Protocol::Resp2);
    let stalled = |pace| {
        let plan = Plan {
            threads: 1,
            connections: 4,
            pipeline: 1,
            until: Until::Time(Duration::from_secs(2)),
            pace,
            ..Plan::default()
        };
        let began = Instant::now();
        let (mut is_paused, mut is_resumed) = (false, false);
        run(&workload("get", 10), &to, &plan, &[], &mut |_| {
            let elapsed = began.elapsed();
            if elapsed > Duration::from_millis(500) && !is_paused {
                server.process().pause();
                is_paused = true;
            } else if elapsed > Duration::from_millis(1100) && is_paused && !is_resumed {
                server.process().resume();
                is_resumed = true;
            }
            Flow::Continue
        })
        .unwrap()
    };
    let open = stalled(Pace::Even(1000.0));
    assert_eq!(open.totals.requests + open.totals.unsent, 2000);
    // 0.6 s of 2 s: a request due then waited for the rest of it.
    let share = open.latency.share_above(100_000.0);
    assert!((0.12..0.45).contains(&share), "{share}");
    let closed = stalled(Pace::Closed);
    assert!(closed.latency.share_above(100_000.0) < 0.01);
    let poisson = Pace::Poisson(2000.0);
    let plan =
        Plan { until: Until::Time(Duration::from_secs(1)), pace: poisson, ..Plan::default() };
    let outcome = go(&workload("get", 10), &to, &plan);
    assert!((1700..2300).contains(&outcome.totals.requests), "{}", outcome.totals.requests);
}

#[test]
fn warm_up_is_not_counted() {
    let server = RedisServer::start();
    let plan = Plan {
        warm_up: Duration::from_millis(300),
        threads: 1,
        connections: 1,
        pipeline: 1,
        ..plan(100)
    };
    let outcome = go(&workload("get", 10), &target(server.address(), Protocol::Resp2), &plan);
    assert!((100..=101).contains(&outcome.totals.requests));
    let seen = calls(&server, "get");
    assert!(seen > 200, "{seen}");
    assert!(outcome.seconds < 0.3, "{}", outcome.seconds);
}

#[test]
fn what_was_measured_until_an_interruption_is_kept() {
    let server = RedisServer::start();
    let plan = Plan { until: Until::Time(Duration::from_secs(60)), ..Plan::default() };
    let to = target(server.address(), Protocol::Resp2);
    let began = Instant::now();
    let mut told = 0;
    let outcome = run(&workload("set", 10), &to, &plan, &[], &mut |progress| {
        told += 1;
        assert!(progress.done <= 1.0);
        if began.elapsed() > Duration::from_millis(700) { Flow::Stop } else { Flow::Continue }
    })
    .unwrap();
    assert_eq!(outcome.ended, Ended::Interrupted);
    assert!(began.elapsed() < Duration::from_secs(10) && told > 1);
    assert!(outcome.totals.requests > 100 && outcome.seconds < 10.0);
}

#[test]
fn a_server_that_dies_is_told_of() {
    let mut server = RedisServer::start();
    let to = target(server.address(), Protocol::Resp2);
    let silence_max = Duration::from_millis(800);
    let plan = Plan { until: Until::Time(Duration::from_secs(60)), silence_max, ..Plan::default() };
    let began = Instant::now();
    let outcome = run(&workload("set", 10), &to, &plan, &[], &mut |_| {
        if began.elapsed() > Duration::from_millis(300) {
            server.kill();
        }
        Flow::Continue
    })
    .unwrap();
    assert_eq!(outcome.ended, Ended::Silent);
    assert!(outcome.connections.lost >= 50 && outcome.connections.failed > 0);
    assert!(outcome.totals.unanswered > 0 && outcome.totals.requests > 0);
}

#[test]
fn the_server_is_watched_and_an_outcome_is_read_back() {
    let server = RedisServer::start();
    let to = target(server.address(), Protocol::Resp2);
    let watches = [Watch::of(&to.address).unwrap(), Watch::Pid(server.process().pid())];
    let plan = Plan { until: Until::Time(Duration::from_millis(1500)), ..Plan::default() };
    let outcome = run(&workload("set:1,get:1", 10), &to, &plan, &watches, &mut |_| Flow::Continue);
    let outcome = outcome.unwrap();
    let [process] = &outcome.processes[..] else { panic!("one process: {:?}", outcome.processes) };
    assert_eq!(process.name, "redis-server");
    assert!(process.cpu_seconds > 0.01 && process.resident_bytes > 1 << 20, "{process:?}");
    assert!(outcome.requests_per_cpu_second.unwrap() > 1000.0);
    assert!(outcome.generator.cpu_seconds > 0.01);
    assert!(outcome.generator.voluntary_switches > 50, "{:?}", outcome.generator);
    assert!(outcome.series.len() == 2 && outcome.series[0].p99_us > 0.0);
    let text = serde_json::to_string(&outcome).unwrap();
    let back: keyway_load::Outcome = serde_json::from_str(&text).unwrap();
    assert_eq!(back.latency.histogram, outcome.latency.histogram);
    assert_eq!(back.series[0].heat, outcome.series[0].heat);
    assert_eq!((back.schema, back.totals.requests), (2, outcome.totals.requests));
    assert_eq!((back.ended, back.errors), (Ended::Finished, Vec::new()));
    let table = keyway_load::table(&outcome);
    assert!(table.contains("redis-server") && table.contains("per CPU-second"), "{table}");
}

#[test]
fn a_cluster_is_asked_directly_and_followed() {
    let _watchdog = watchdog(Duration::from_secs(120), "a cluster");
    let cluster = RedisCluster::start(3, 0);
    let mut to = target(cluster.address(0), Protocol::Resp2);
    to.is_cluster = true;
    let mut load = workload("set:1,get:1", 3000);
    load.is_verified = true;
    let outcome = go(&load, &to, &plan(20_000));
    expect_clean(&outcome, 20_000);
    assert_eq!((outcome.totals.redirected, outcome.target.cluster_nodes), (0, 3));
    assert!(outcome.verification.unwrap().is_clean());
    let keys: i64 = (0..3).map(|node| cluster.ask(node, "DBSIZE").integer()).sum();
    assert!(keys > 2700, "{keys}");

    // Slots move while it runs, one of them half-way for all of it.
    let half = cluster_slot(b"key:000000000007");
    let from = cluster.primary_of_slot(half).unwrap();
    let mut moving = cluster.begin_move(from, (from + 1) % 3, half);
    moving.move_keys(100);
    let moved: Vec<u16> =
        (0..60).map(|key: u32| cluster_slot(format!("key:{key:012}").as_bytes())).collect();
    let moved: Vec<u16> = moved.into_iter().filter(|slot| *slot != half).collect();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let plan = Plan { until: Until::Time(Duration::from_secs(3)), ..plan(1) };
            go(&load, &to, &plan)
        });
        for slot in moved {
            let from = cluster.primary_of_slot(slot).unwrap();
            cluster.move_slots(from, (from + 1) % 3, [slot]);
        }
        let outcome = running.join().unwrap();
        assert_eq!(outcome.totals.errors, 0, "{:?}", outcome.errors);
        assert!(outcome.totals.redirected > 10, "{}", outcome.totals.redirected);
        assert!(outcome.verification.unwrap().is_clean(), "{:?}", outcome.verification);
    });
    moving.finish();

    let mut tagged = workload("mget_5", 100);
    tagged.keys.prefix = "{load}:".to_owned();
    expect_clean(&go(&tagged, &to, &plan(500)), 500);
}

/// How often all servers of a cluster have executed a command.
fn all_calls(cluster: &RedisCluster, name: &str) -> i64 {
    let of = |node| {
        let info = cluster.ask(node, "INFO commandstats").text();
        let head = format!("cmdstat_{name}:calls=");
        let line = info.lines().find_map(|line| line.strip_prefix(&head)?.split(',').next());
        line.map_or(0, |calls| calls.parse::<i64>().unwrap())
    };
    (0..3).map(of).sum()
}

#[test]
fn requests_of_several_keys_are_sent_apart_in_a_cluster() {
    let _watchdog = watchdog(Duration::from_secs(120), "a cluster");
    let mut cluster = RedisCluster::start(3, 0);
    let mut to = target(cluster.address(0), Protocol::Resp2);
    to.is_cluster = true;
    let mut load = workload("mset_4:1,mget_5:1", 500);
    load.is_verified = true;
    let outcome = go(&load, &to, &plan(4000));
    expect_clean(&outcome, 4000);
    let [mset, mget] = &outcome.classes[..] else { panic!("two classes") };
    assert_eq!(
        (all_calls(&cluster, "set"), all_calls(&cluster, "get")),
        (mset.requests as i64 * 4, mget.requests as i64 * 5)
    );
    assert_eq!(mget.hits + mget.misses, mget.requests * 5);
    let found = outcome.verification.unwrap();
    assert!(found.is_clean() && found.checked == mget.requests * 5, "{found:?}");

    for letter in ['d', 'e'] {
        let load = ycsb(letter, 300).unwrap();
        fill(&load, &to);
        let outcome = go(&load, &to, &plan(1000));
        expect_clean(&outcome, 1000);
        let inserted = outcome.classes.iter().find(|class| class.name == "insert").unwrap();
        // What is newest is read, though it may not be acknowledged.
        assert!(outcome.totals.misses <= inserted.requests && outcome.totals.redirected == 0);
        let index = cluster_slot(b"_indices");
        let owner = cluster.primary_of_slot(index).unwrap();
        let known = cluster.ask(owner, "ZCARD _indices").integer();
        assert_eq!(known, 300 + inserted.requests as i64, "{letter}");
        (0..3).for_each(|node| _ = cluster.ask(node, "FLUSHALL"));
    }

    // A server that is lost takes pieces of many requests along: each is told of once.
    let load = workload("mget_5", 500);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let plan = Plan { until: Until::Time(Duration::from_secs(2)), ..plan(1) };
            go(&load, &to, &plan)
        });
        let before = all_calls(&cluster, "get");
        wait_until("requests", Duration::from_secs(20), || {
            all_calls(&cluster, "get") > before + 5000
        });
        cluster.kill(2);
        let outcome = running.join().unwrap();
        assert!(outcome.connections.lost > 0 && outcome.totals.unanswered > 0, "{outcome:?}");
        assert_eq!(outcome.ended, Ended::Finished);
        let classes = outcome.classes.iter().map(|class| class.requests).sum::<u64>();
        let timed = outcome.latency.count + outcome.failed_latency.count;
        assert_eq!((outcome.totals.requests, timed), (classes, classes));
    });
}

#[test]
fn a_secured_server_is_measured_by_who_believes_it() {
    let files = CertificateFiles::default();
    let port = free_port();
    let options = files.redis_options(port, "server");
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = RedisServer::start_with(&options);
    let mut to = target(server.address(), Protocol::Resp2);
    to.address = format!("127.0.0.1:{port}").parse().unwrap();
    to.patience = Duration::from_secs(2);
    let load = workload("set:1,get:1", 200);
    let error = |to: &keyway_load::Target| {
        run(&load, to, &plan(10), &[], &mut |_| Flow::Continue).unwrap_err().to_string()
    };
    error(&to);
    let settings = |trust| ClientSettings {
        trust,
        server_name: None,
        identity: None,
        min_version: MinVersion::default(),
    };
    let read =
        |path: &std::path::Path| std::fs::read_to_string(path).map_err(|why| why.to_string());
    let tls = |trust| Some(ClientTls::load(&settings(trust), &read).unwrap().tls);
    to.tls = tls(Trust::Authorities(files.path("ca.pem")));
    expect_clean(&go(&load, &to, &plan(5000)), 5000);
    let mut large = workload("set:1,get:1", 10);
    large.sizes = Sizes::Fixed(300_000);
    expect_clean(&go(&large, &to, &plan(300)), 300);
    let other = CertificateFiles::default();
    to.tls = tls(Trust::Authorities(other.path("ca.pem")));
    assert!(error(&to).starts_with("cannot connect to 127.0.0.1"), "{}", error(&to));
    to.tls = tls(Trust::Anybody);
    expect_clean(&go(&load, &to, &plan(100)), 100);
    to.address = "unix:///nowhere".parse().unwrap();
    assert!(error(&to).contains("only connections over TCP"), "{}", error(&to));
}

#[test]
fn patterns_reach_the_keys_they_should() {
    let server = RedisServer::start();
    let to = target(server.address(), Protocol::Resp2);
    let mut load = workload("set", 160);
    load.write_pattern = Pattern::Parallel;
    // Sixteen connections with ten keys each.
    expect_clean(&go(&load, &to, &Plan { pipeline: 10, ..plan(160) }), 160);
    assert_eq!(server.client().words("DBSIZE").integer(), 160);
}
