//! The configuration changes while clients are served.
//!
//! Servers are added and weights change under a load whose every reply is checked. All servers of
//! such a pool are one redis-server under several names, so a key is found wherever it is looked
//! for. The test is then whether the requests of a client keep their order on the way from one pool
//! to the next.

#![allow(clippy::disallowed_methods, reason = "servers and files change at a pace of their own")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyway_testkit::certificates::{CertificateFiles, Span};
use keyway_testkit::{
    Action, CheckedLoad, Client, Flood, Keyway, KeywayConfig, LoadShape, Pool, RedisCluster,
    RedisServer, Replicated, ReplyFault, ScriptedBackend, Signal, Value, encode, free_address,
    http_get, keyway_binary, run_keyway, run_tool, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(20);

/// A Keyway and the text of its file.
struct Changing {
    keyway: Keyway,
    text: String,
}

impl Changing {
    fn start(pools: Vec<Pool>) -> Changing {
        let config = KeywayConfig::new(pools)
            .with_server("drain_timeout", "\"1s\"")
            .with_server("workers", "2");
        let text = config.toml();
        Changing { keyway: Keyway::start(KEYWAY, config), text }
    }

    fn write(&self, text: &str) {
        std::fs::write(self.keyway.directory().join("keyway.toml"), text).expect("a file");
    }

    fn count(&self, words: &str) -> usize {
        self.keyway.process().log().matches(words).count()
    }

    /// Changes the file and reloads it. Waits until the log has the words once more.
    fn reload(&mut self, change: impl Fn(&str) -> String, words: &str) {
        let text = change(&self.text);
        self.write(&text);
        self.hang_up(words);
        self.text = text;
    }

    fn hang_up(&self, words: &str) {
        let before = self.count(words);
        self.keyway.process().signal(Signal::HUP);
        wait_until(words, SOON, || self.count(words) > before);
    }

    fn generation(&self) -> f64 {
        self.keyway.metrics().sum("keyway_config_generation_number", &[])
    }
}

const DONE: &str = " reloaded ";

/// Returns one redis-server as several servers, by several of its names.
fn aliases(server: &RedisServer, weights: &[u32]) -> String {
    let port = server.address().port();
    let hosts = ["127.0.0.1", "localhost", "LOCALHOST", "Localhost"];
    let lines = weights.iter().zip(hosts).enumerate();
    let lines: Vec<String> = lines
        .map(|(index, (weight, host))| format!("\"{host}:{port}:{weight} server{index}\""))
        .collect();
    format!("servers = [{}]", lines.join(", "))
}

fn replace_servers(text: &str, servers: &str) -> String {
    let lines = text.lines().map(|line| match line.starts_with("servers = ") {
        true => servers.to_owned(),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn pools_change_under_load_and_no_reply_is_lost_or_wrong() {
    let _watch = watchdog(Duration::from_secs(240), "reload under load");
    let redis = RedisServer::start();
    let pool = Pool::sharded("main", &[format!("127.0.0.1:{}:1 server0", redis.address().port())]);
    let mut changing = Changing::start(vec![pool]);
    let load = CheckedLoad::start(changing.keyway.address(0), LoadShape::default());
    load.wait_replies(500);
    let mut times = 1.0;
    for round in 0..5_u32 {
        let steps: [Vec<u32>; 4] = [vec![1, 1], vec![1, 3], vec![1 + round, 1, 2], vec![2]];
        for weights in steps {
            let servers = aliases(&redis, &weights);
            changing.reload(|text| replace_servers(text, &servers), DONE);
            times += 1.0;
            assert_eq!(changing.generation(), times);
            load.wait_replies(300);
        }
    }
    load.stop().assert_clean();
    // The replaced pools have ended, and are no longer shown.
    wait_until("every pool that was replaced has ended", SOON, || {
        changing.keyway.metrics().sum("keyway_config_ending_pools", &[]) == 0.0
    });
    let log = changing.keyway.process().log();
    assert!(log.contains("pool main: servers"), "{log}");
    assert!(!log.contains("panicked") && !log.contains("WARN"), "{log}");
}

/// Returns several redis-servers as the servers of a pool, with these weights.
fn weighted(servers: &[RedisServer], weights: &[u32]) -> String {
    let lines = servers.iter().zip(weights).enumerate().map(|(index, (server, weight))| {
        format!("\"{}:{weight} server{index}\"", server.address())
    });
    format!("servers = [{}]", lines.collect::<Vec<_>>().join(", "))
}

/// Returns which of these keys are on each server, by the current file.
fn located(changing: &Changing, keys: &[String], count: usize) -> Vec<Vec<String>> {
    let binary = keyway_binary(KEYWAY).to_string_lossy().into_owned();
    let file = changing.keyway.directory().join("keyway.toml").to_string_lossy().into_owned();
    let input = keys.join("\n");
    let output =
        run_tool(&binary, &["locate", "--pool", "main", &file, "-"], input.as_bytes(), SOON);
    let mut placed = vec![Vec::new(); count];
    for line in output.expect_success("keyway locate").stdout.lines() {
        let index = line.split("server").nth(1).and_then(|rest| rest.chars().next());
        let index = index.and_then(|digit| digit.to_digit(10)).expect("a server of ours") as usize;
        placed[index].push(line.split('\t').nth(1).expect("a key").to_owned());
    }
    placed
}

#[test]
fn after_a_reload_keys_are_on_the_servers_that_the_new_ring_names() {
    let _watch = watchdog(Duration::from_secs(240), "servers of their own");
    let servers = RedisServer::start_many(4);
    // The default hash puts names that differ in their last letters next to each other.
    let pool = Pool::sharded("main", &[format!("{}:1 server0", servers[0].address())])
        .with("hash", "\"md5\"");
    let mut changing = Changing::start(vec![pool]);
    // A key may be on its old server or its new one meanwhile, but is never mixed up with another.
    let shape = LoadShape { may_read_old: true, ..LoadShape::default() };
    let load = CheckedLoad::start(changing.keyway.address(0), shape);
    load.wait_replies(300);
    // This client stays over all reloads; either worker may have it.
    let mut stays = changing.keyway.client(0);
    let keys: Vec<String> = (0..600).map(|nth| format!("key:{nth}")).collect();
    let steps: [&[u32]; 6] = [&[1, 1], &[1, 4], &[1, 1, 2], &[4, 1, 1, 1], &[1, 1, 1, 9], &[2]];
    for weights in steps {
        let text = weighted(&servers, weights);
        changing.reload(|before| replace_servers(before, &text), DONE);
        let generation = changing.generation();
        wait_until("every worker has changed over", SOON, || {
            let pools = changing.keyway.metrics().sum("keyway_config_ending_pools", &[]);
            pools == 0.0
        });
        let placed = located(&changing, &keys, servers.len());
        let value = format!("of {generation}");
        let bytes: Vec<u8> = keys.iter().flat_map(|key| encode(&["SET", key, &value])).collect();
        for client in [&mut stays, &mut changing.keyway.client(0)] {
            client.send(&bytes);
            assert!(client.replies(keys.len()).iter().all(|reply| *reply == Value::simple("OK")));
        }
        for (index, server) in servers.iter().enumerate() {
            let mut direct = server.client();
            let there: Vec<&String> = keys
                .iter()
                .filter(|key| direct.command(&["GET", *key]) == Value::bulk(&value))
                .collect();
            assert_eq!(there, placed[index].iter().collect::<Vec<_>>(), "{weights:?}: {index}");
        }
        // The keys are shared by weight, with the error of a ring of few points.
        let sum: u32 = weights.iter().sum();
        for (weight, keys_there) in weights.iter().zip(&placed) {
            let fair = keys.len() as f64 * f64::from(*weight) / f64::from(sum);
            let count = keys_there.len() as f64;
            assert!(
                (fair * 0.25..=fair * 3.0).contains(&count),
                "{weights:?}: {count} for {weight}"
            );
        }
        load.wait_replies(300);
    }
    let report = load.stop();
    assert_eq!((report.error_count(), &report.wrong[..]), (0, &[][..]), "{report:?}");
    let log = changing.keyway.process().log();
    assert!(!log.contains("panicked") && !log.contains("WARN"), "{log}");
}

#[test]
fn limits_users_time_outs_and_the_log_level_change_under_load() {
    let _watch = watchdog(Duration::from_secs(120), "reload of settings");
    let servers = [RedisServer::start()];
    let mut changing = Changing::start(vec![Pool::over("main", &servers)]);
    let load = CheckedLoad::start(changing.keyway.address(0), LoadShape::default());
    load.wait_replies(300);
    changing.reload(
        |text| {
            text.replacen("[[listener]]", "[limits]\nsession_in_flight_max = 64\n\n[[listener]]", 1)
        },
        DONE,
    );
    load.wait_replies(300);
    changing.reload(|text| text.replace("kind = ", "timeout = \"3s\"\nkind = "), DONE);
    load.wait_replies(300);
    changing.reload(
        |text| {
            let user = "\n[[user]]\nname = \"reader\"\nrules = \"+@read ~*\"\npassword = \"reader-secret\"\n";
            format!(
                "{text}{user}\n[[user]]\nname = \"default\"\nrules = \"nopass +@all ~* &*\"\n"
            )
        },
        DONE,
    );
    let mut reader = changing.keyway.client(0);
    assert_eq!(reader.words("AUTH reader reader-secret"), Value::simple("OK"));
    assert_eq!(reader.words("GET nothing"), Value::Nil);
    let denied = reader.words("SET a 1");
    assert!(format!("{denied:?}").contains("NOPERM"), "{denied:?}");
    changing.reload(|text| text.replace("\"+@read ~*", "\"+@all ~*"), DONE);
    assert_eq!(reader.words("SET a 1"), Value::simple("OK"), "its rights are others at once");
    changing.reload(
        |text| text.replace("reader-secret", "another-secret"),
        "user reader: password changed",
    );
    assert_eq!(reader.words("GET a"), Value::bulk("1"), "who is in stays in");
    let mut late = changing.keyway.client(0);
    assert!(format!("{:?}", late.words("AUTH reader reader-secret")).contains("WRONGPASS"));
    assert_eq!(late.words("AUTH reader another-secret"), Value::simple("OK"));
    load.stop().assert_clean();
    let log = changing.keyway.process().log();
    assert!(!log.contains("reader-secret") && !log.contains("another-secret"), "{log}");
}

#[test]
fn a_file_that_is_wrong_or_gone_changes_nothing_and_says_why() {
    let _watch = watchdog(Duration::from_secs(60), "bad files");
    let servers = [RedisServer::start()];
    let mut changing = Changing::start(vec![Pool::over("main", &servers)]);
    let load = CheckedLoad::start(changing.keyway.address(0), LoadShape::default());
    load.wait_replies(200);
    let good = changing.text.clone();
    const REFUSED: &str = "nothing was changed";
    changing.reload(|text| text.replace("kind = ", "timeuot = \"3s\"\nkind = "), REFUSED);
    load.wait_replies(200);
    std::fs::remove_file(changing.keyway.directory().join("keyway.toml")).expect("it was there");
    changing.hang_up(REFUSED);
    load.wait_replies(200);
    changing.text.clone_from(&good);
    changing.reload(|text| text.replace("workers = 2", "workers = 1"), REFUSED);
    assert_eq!(changing.generation(), 1.0);
    let metrics = changing.keyway.metrics();
    let results =
        |result| metrics.sum("keyway_config_reloads_total", &[&format!("result=\"{result}\"")]);
    assert_eq!((results("invalid"), results("needs-restart"), results("done")), (2.0, 1.0, 0.0));
    let log = changing.keyway.process().log();
    for words in ["timeuot", "timeout", "cannot be read", "server.workers: cannot change"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    changing.text = good;
    changing.reload(|text| text.replace("kind = ", "timeout = \"3s\"\nkind = "), DONE);
    load.stop().assert_clean();
}

#[test]
fn reloads_that_come_while_one_goes_on_are_done_one_after_the_other() {
    let _watch = watchdog(Duration::from_secs(60), "reload during reload");
    let redis = RedisServer::start();
    let pool = Pool::sharded("main", &[format!("127.0.0.1:{}:1 server0", redis.address().port())]);
    let mut changing = Changing::start(vec![pool]);
    let load = CheckedLoad::start(changing.keyway.address(0), LoadShape::default());
    load.wait_replies(200);
    for weights in [&[1, 1][..], &[1], &[1, 2], &[1]] {
        let text = replace_servers(&changing.text, &aliases(&redis, weights));
        changing.write(&text);
        (0..3).for_each(|_| changing.keyway.process().signal(Signal::HUP));
        changing.text = text;
    }
    let end = aliases(&redis, &[2, 3]);
    changing.reload(|text| replace_servers(text, &end), DONE);
    wait_until("the last settings are in force", SOON, || {
        let metrics = changing.keyway.metrics();
        let backend = ["pool=\"main\"", "backend=\"server1\""];
        metrics.sum("keyway_backend_requests_total", &backend) > 0.0
    });
    load.stop().assert_clean();
}

#[test]
fn a_server_that_is_out_of_use_stays_so_when_its_pool_changes() {
    let _watch = watchdog(Duration::from_secs(120), "reload with a dead server");
    let redis = RedisServer::start();
    let dead = free_address();
    let servers =
        [format!("127.0.0.1:{}:1 well", redis.address().port()), format!("{dead}:1 dead")];
    let pool = Pool::sharded("main", &servers)
        .with("ejection", "{ after_failures = 1, for = \"10m\", rejoin = \"serve\" }");
    let mut changing = Changing::start(vec![pool]);
    let mut client = changing.keyway.client(0);
    wait_until("the dead server is out of use", SOON, || {
        let lines: Vec<String> = (0..200).map(|key| format!("GET key:{}", key * 7919)).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let replies = client.pipeline(&lines);
        changing.count("ejected") > 0 && replies.iter().all(|reply| *reply == Value::Nil)
    });
    let load = CheckedLoad::start(changing.keyway.address(0), LoadShape::default());
    load.wait_replies(200);
    changing.reload(|text| text.replace("kind = ", "timeout = \"3s\"\nkind = "), DONE);
    load.wait_replies(500);
    load.stop().assert_clean();
}

#[test]
fn clients_of_a_pool_that_is_removed_go_to_the_next_or_are_told() {
    let _watch = watchdog(Duration::from_secs(120), "a pool is removed");
    let (old, new) = ([RedisServer::start()], RedisServer::start());
    let second = format!(
        "\n[pool.second]\nkind = \"sharded\"\nservers = [\"127.0.0.1:{}:1\"]\n",
        new.address().port()
    );
    let mut changing = Changing::start(vec![Pool::over("first", &old)]);
    let keyway = &changing.keyway;
    let mut plain = keyway.client(0);
    let (mut blocked, mut subscribed, mut watching) =
        (keyway.client(0), keyway.client(0), keyway.client(0));
    assert_eq!(plain.words("SET where first"), Value::simple("OK"));
    assert_eq!(watching.words("WATCH where"), Value::simple("OK"));
    blocked.send(b"BLPOP list 0\r\n");
    drop(subscribed.words("SUBSCRIBE news"));
    wait_until("the client waits", SOON, || {
        format!("{:?}", plain.words("INFO clients")).contains("blocked_clients:1")
    });
    changing.reload(
        |text| {
            let first = text.find("[pool.first]").expect("it is there");
            text[..first].replace("pool = \"first\"", "pool = \"second\"") + &second
        },
        DONE,
    );
    assert_eq!(plain.words("GET where"), Value::Nil, "it is a client of the second");
    assert_eq!(plain.words("SET where second"), Value::simple("OK"));
    let told = blocked.reply();
    assert!(format!("{told:?}").contains("UNBLOCKED"), "{told:?}");
    assert_eq!(blocked.words("GET where"), Value::bulk("second"), "its connection stands");
    wait_until("the pool has ended", SOON, || {
        changing.keyway.metrics().sum("keyway_config_ending_pools", &[]) == 0.0
    });
    assert!(subscribed.try_reply().is_err(), "its channels are nowhere any more");
    let log = changing.keyway.process().log();
    assert!(log.contains("pool first: removed") && log.contains("pool second: added"), "{log}");
}

/// A client stays in a replaced pool while the server there still owes a reply to its write. The
/// pools that it leads to stay as long, even if a later version replaces them again.
#[test]
fn what_a_replaced_pool_leads_to_is_there_until_its_last_client_has_gone() {
    let _watch = watchdog(Duration::from_secs(120), "a pool that leads to replaced ones");
    let [main, copy, other] = [(); 3].map(|()| RedisServer::start());
    let over = |name: &str, server: &RedisServer| {
        Pool::over(name, std::slice::from_ref(server)).with("timeout", "\"300ms\"")
    };
    let top = Pool::of_kind("top", "shadow")
        .with("main", "\"main\"")
        .with("shadow", "\"copy\"")
        .with("percent", "100")
        .with("in_flight_max", "1000");
    let config = KeywayConfig::new(vec![top, over("main", &main), over("copy", &copy)])
        .with_server("drain_timeout", "\"60s\"")
        .with_server("workers", "1");
    let text = config.toml();
    let mut changing = Changing { keyway: Keyway::start(KEYWAY, config), text };
    let mut client = changing.keyway.client(0);
    assert_eq!(client.words("SET before 1"), Value::simple("OK"));
    main.process().pause();
    assert!(client.words("SET owed 1").error_text().contains("may have been executed"));
    changing.reload(|text| text.replace("in_flight_max = 1000", "in_flight_max = 1001"), DONE);
    changing.reload(
        |text| {
            let (before, copy) = text.split_once("[pool.copy]").expect("it is there");
            format!("{before}[pool.copy]{}", copy.replace("300ms", "301ms"))
        },
        DONE,
    );
    // Ten times a second, pools without clients are ended.
    std::thread::sleep(Duration::from_millis(500));
    let third =
        format!("\n[pool.third]\nkind = \"sharded\"\nservers = [\"{}:1\"]\n", other.address());
    changing.reload(|text| format!("{text}{third}"), DONE);
    assert!(client.words("SET later 1").error_text().contains("may have been executed"));
    wait_until("it is copied", SOON, || copy.client().words("GET later") == Value::bulk("1"));
    assert_eq!(other.client().words("DBSIZE"), Value::Integer(0));
    main.process().resume();
    wait_until("all that was replaced has ended", SOON, || {
        let _ = client.words("SET last 1");
        changing.keyway.metrics().sum("keyway_config_ending_pools", &[]) == 0.0
    });
}

/// A client whose write has timed out stays in the replaced pool. An operator's order about the
/// pool's servers applies to this client as to all others.
#[test]
fn an_operators_word_about_a_server_counts_for_clients_of_the_replaced_pool_too() {
    let _watch = watchdog(Duration::from_secs(120), "ejected for clients of a replaced pool");
    let servers = [RedisServer::start(), RedisServer::start()];
    let pool = Pool::over("main", &servers).with("timeout", "\"300ms\"");
    let config = KeywayConfig::new(vec![pool])
        .with_server("drain_timeout", "\"60s\"")
        .with_server("workers", "1");
    let text = config.toml();
    let mut changing = Changing { keyway: Keyway::start(KEYWAY, config), text };
    let mut client = changing.keyway.client(0);
    let keys: Vec<String> = (0..40).map(|nth| format!("key{nth}")).collect();
    for key in &keys {
        assert_eq!(client.words(&format!("SET {key} 1")), Value::simple("OK"));
    }
    let of = |server: usize| {
        let mut direct = servers[server].client();
        let mut there = keys.iter().filter(|key| direct.words(&format!("GET {key}")) != Value::Nil);
        there.next().expect("it has keys").clone()
    };
    let (owed, other) = (of(0), of(1));
    servers[0].process().pause();
    assert!(client.words(&format!("SET {owed} 2")).error_text().contains("may have been executed"));
    changing.reload(|text| text.replace("300ms", "301ms"), DONE);
    let address = servers[1].address().to_string();
    let read = format!("GET {other}");
    assert_eq!(client.words(&read), Value::bulk("1"));
    assert!(ctl(&changing.keyway, &["eject", "main", &address]).contains("ejected"));
    // It would go to the next pool once the connection that owes the write is given up.
    let soon = Duration::from_secs(3);
    wait_until("its keys are another's", soon, || client.words(&read).is_error());
    assert!(ctl(&changing.keyway, &["restore", "main", &address]).contains("in use again"));
    wait_until("they are its own again", soon, || client.words(&read) == Value::bulk("1"));
    assert!(changing.keyway.metrics().sum("keyway_config_ending_pools", &[]) > 0.0);
    servers[0].process().resume();
}

#[test]
fn listeners_come_and_go() {
    let _watch = watchdog(Duration::from_secs(60), "listeners");
    let mut changing = Changing::start(vec![Pool::store("local")]);
    let other = free_address();
    let table = format!("[[listener]]\nbind = \"tcp://{other}\"\npool = \"local\"\n\n");
    let mut first = changing.keyway.client(0);
    assert_eq!(first.words("SET a 1"), Value::simple("OK"));
    changing.reload(|text| text.replacen("[[listener]]", &format!("{table}[[listener]]"), 1), DONE);
    let mut second = Client::connect(other);
    assert_eq!(second.words("GET a"), Value::bulk("1"));
    changing.reload(|text| text.replace(&table, ""), DONE);
    assert!(second.try_reply().is_err(), "it was answered, and let go");
    wait_until("nobody listens there", SOON, || Client::try_connect(other).is_err());
    assert_eq!(first.words("GET a"), Value::bulk("1"), "the store is what it was");
}

#[test]
fn who_waits_in_a_command_is_let_go_with_its_listener() {
    let _watch = watchdog(Duration::from_secs(60), "a client that waits");
    let server = RedisServer::start();
    let pools = vec![Pool::store("local"), Pool::sharded("cache", &[server.address().to_string()])];
    let mut changing = Changing::start(pools);
    for (index, pool) in ["local", "cache"].into_iter().enumerate() {
        let other = free_address();
        let table = format!("[[listener]]\nbind = \"tcp://{other}\"\npool = \"{pool}\"\n\n");
        let add = |text: &str| text.replacen("[[listener]]", &format!("{table}[[listener]]"), 1);
        changing.reload(add, DONE);
        let mut waiting = Client::connect(other);
        waiting.send(b"BLPOP nothing 0\r\n");
        wait_until("it waits", SOON, || {
            let listed = changing.keyway.client(index).words("CLIENT LIST").text();
            listed.lines().any(|line| line.contains("flags=b"))
        });
        changing.reload(|text| text.replace(&table, ""), DONE);
        assert!(
            waiting.reply().error_text().starts_with("UNBLOCKED Keyway is stopping, or listens")
        );
        waiting.expect_closed();
    }
}

/// The listener is removed while its clients never stop sending.
#[test]
fn no_reply_is_lost_when_the_listener_of_a_client_goes() {
    let _watch = watchdog(Duration::from_secs(120), "a listener that goes");
    let server = RedisServer::start();
    let one = std::slice::from_ref(&server);
    let over = || Pool::over("main", one).with("timeout", "\"30s\"");
    // Each pool has a listener that is removed and one that stays.
    let pools = vec![over(), Pool::store("local"), over(), Pool::store("local")];
    let mut changing = Changing::start(pools);
    let flood = |place| Flood::start(changing.keyway.address(place), "flood", 5);
    let floods = [flood(2), flood(3)];
    floods.iter().for_each(|flood| flood.await_replies(5000));
    let tables = [(2, "main"), (3, "local")].map(|(place, pool)| {
        let at = changing.keyway.address(place);
        format!("[[listener]]\nbind = \"tcp://{at}\"\nprotocol = \"redis\"\npool = \"{pool}\"\n")
    });
    changing.reload(
        |text| tables.iter().fold(text.to_owned(), |text, table| text.replacen(table, "", 1)),
        DONE,
    );
    for (place, flood) in floods.into_iter().enumerate() {
        let mut staying = changing.keyway.client(place);
        for (key, replies) in flood.ended() {
            let kept = staying.command(&["GET", &key]);
            assert_eq!(kept, Value::bulk(replies.to_string()), "{key} at {place}");
        }
    }
}

fn ctl(keyway: &Keyway, arguments: &[&str]) -> String {
    let admin = keyway.admin().to_string();
    let all: Vec<&str> = ["ctl", "--admin", &admin].into_iter().chain(arguments.to_vec()).collect();
    run_keyway(KEYWAY, &all).text
}

fn user(name: &str, rules: &str) -> String {
    format!("[[user]]\nname = \"{name}\"\nrules = \"nopass {rules}\"\n\n")
}

/// Returns whether a connection ends, whatever comes on it before.
fn ends(client: &mut Client) -> bool {
    loop {
        match client.try_reply() {
            Ok(_) => {}
            Err(fault) => return fault == ReplyFault::Closed,
        }
    }
}

/// Connects clients of users who are to lose a right, by the listener at this position.
fn what_users_may_no_more_ends(changing: &mut Changing, place: usize, name: &str) {
    let come = |name: &str| {
        let mut client = changing.keyway.client(place);
        assert_eq!(client.command(&["AUTH", name, "x"]), Value::simple("OK"));
        client
    };
    let mut keep = come("keep");
    let (mut hears, mut lost, mut both) = (come("feed"), come("feed"), come("keep"));
    drop(hears.words("SUBSCRIBE news.a"));
    drop(lost.words("SUBSCRIBE other.a"));
    drop(both.words("PSUBSCRIBE *"));
    let mut watches = come("watch");
    assert_eq!(watches.words("MONITOR"), Value::simple("OK"));
    let (mut waits, mut goes_on) = (come("queue"), come("keep"));
    waits.send(b"BLPOP jobs:1 0\r\n");
    goes_on.send(b"BLPOP jobs:2 0\r\n");
    let mut caches = changing.keyway.client(place);
    assert!(!caches.words("HELLO 3 AUTH cache x").is_error());
    assert_eq!(caches.words("CLIENT TRACKING ON"), Value::simple("OK"));
    assert!(!caches.words("GET nothing").is_error());
    let (mut gone, mut off) = (come("gone"), come("off"));
    assert_eq!(gone.words("PING"), Value::simple("PONG"));
    wait_until("both wait", SOON, || {
        format!("{:?}", keep.words("INFO clients")).contains("blocked_clients:2")
    });
    changing.reload(
        |text| {
            text.replace(
                &user("feed", "+@all ~* &news.* &other.*"),
                &user("feed", "+@all ~* &news.*"),
            )
            .replace(&user("watch", "+@all ~* &*"), &user("watch", "+@all -monitor ~* &*"))
            .replace(&user("queue", "+@all ~jobs:*"), &user("queue", "+@all ~more:*"))
            .replace(&user("cache", "+@all ~*"), &user("cache", "+@all ~app:*"))
            .replace(&user("keep", "+@all ~* &*"), &user("keep", "+@all ~* &* (+get ~x)"))
            .replace(&user("gone", "+@all ~*"), "")
            .replace(&user("off", "+@all ~*"), &user("off", "off +@all ~*"))
        },
        DONE,
    );
    for (what, client) in
        [("channels", &mut lost), ("MONITOR", &mut watches), ("caching", &mut caches)]
    {
        assert!(ends(client), "{name}: {what}");
    }
    assert!(ends(&mut gone), "{name}: there is no such user");
    let told = waits.reply();
    assert!(told.is_error() && told.error_text().contains("rights of this user"), "{told:?}");
    assert!(waits.words("BLPOP jobs:1 1").error_text().contains("NOPERM"), "{name}");
    assert!(off.words("PING").error_text().contains("NOAUTH"), "{name}");
    // A user who has lost nothing goes on.
    assert!(!keep.words("PUBLISH news.a hi").is_error(), "{name}");
    let heard = format!("{:?}{:?}", hears.reply(), both.reply());
    assert!(heard.matches("news.a").count() == 2, "{name}: {heard}");
    assert_eq!(keep.words("RPUSH jobs:2 a"), Value::Integer(1));
    assert!(format!("{:?}", goes_on.reply()).contains("jobs:2"));
}

fn with_users(config: KeywayConfig) -> KeywayConfig {
    let users = [
        ("feed", "+@all ~* &news.* &other.*"),
        ("watch", "+@all ~* &*"),
        ("queue", "+@all ~jobs:*"),
        ("cache", "+@all ~*"),
        ("keep", "+@all ~* &*"),
        ("gone", "+@all ~*"),
        ("off", "+@all ~*"),
    ];
    let text: String = users.iter().map(|(name, rules)| user(name, rules)).collect();
    config.with_tables(&text)
}

#[test]
fn what_a_user_has_begun_ends_when_it_may_no_more() {
    let _watch = watchdog(Duration::from_secs(120), "rights that are lost");
    let servers = [RedisServer::start()];
    for (pool, name) in [(Pool::store("main"), "store"), (Pool::over("main", &servers), "servers")]
    {
        let config = with_users(KeywayConfig::new(vec![pool]).with_server("workers", "2"));
        let text = config.toml();
        let mut changing = Changing { keyway: Keyway::start(KEYWAY, config), text };
        what_users_may_no_more_ends(&mut changing, 0, name);
        let log = changing.keyway.process().log();
        assert!(
            log.contains("a reload has removed its user") && log.contains("user=\"gone\""),
            "{log}"
        );
    }
}

#[test]
fn who_is_kept_out_for_wrong_passwords_stays_so_when_users_change() {
    const TRIES: usize = 100;
    let _watch = watchdog(Duration::from_secs(60), "failed logins");
    let limits = format!("[limits]\nfailed_logins_max = {TRIES}\n");
    let app = "[[user]]\nname = \"app\"\nrules = \"+@all ~*\"\npassword = \"right\"\n";
    let config = KeywayConfig::new(vec![Pool::store("main")])
        .with_tables(&limits)
        .with_tables(app)
        .with_tables(&user("other", "+@all ~*"));
    let text = config.toml();
    let mut changing = Changing { keyway: Keyway::start(KEYWAY, config), text };
    let try_all = |keyway: &Keyway, word: &str| {
        let lines: Vec<String> = (0..TRIES).map(|nth| format!("AUTH app {word}{nth}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let replies = keyway.client(0).pipeline(&lines);
        replies.iter().filter(|it| it.error_text().starts_with("WRONGPASS")).count()
    };
    assert_eq!(try_all(&changing.keyway, "one"), TRIES);
    changing.reload(|text| text.replace(&user("other", "+@all ~*"), ""), DONE);
    // Each second one more is verified.
    let looked_at = try_all(&changing.keyway, "two");
    assert!(looked_at < TRIES / 2, "{looked_at}");
}

/// Connects one client to each of two workers.
fn one_of_each_worker(keyway: &Keyway, place: usize) -> [Client; 2] {
    let mut clients: Vec<(Client, i64)> = Vec::new();
    for _ in 0..24 {
        let mut client = keyway.client(place);
        let Value::Integer(id) = client.words("CLIENT ID") else { panic!("an id") };
        clients.push((client, id));
    }
    let told = http_get(keyway.admin(), "/v1/connections").body;
    let mut of = |worker: u32| {
        let is_its = |(_, id): &(Client, i64)| {
            let entry = told.split(&format!("\"id\":{id},")).nth(1).expect("it is told of");
            entry.split('}').next().is_some_and(|it| it.contains(&format!("\"worker\":{worker}")))
        };
        clients.swap_remove(clients.iter().position(is_its).expect("one of 24 is there")).0
    };
    [of(0), of(1)]
}

#[test]
fn what_an_operator_says_while_a_reload_goes_on_is_answered_and_goes_on() {
    let _watch = watchdog(Duration::from_secs(120), "an operator in a reload");
    let servers = RedisServer::start_many(2);
    let lines = [0, 1].map(|nth| format!("{}:1 s{nth}", servers[nth].address()));
    let local = Pool::store("local").with("script_time_max", "\"8s\"");
    let mut changing = Changing::start(vec![local, Pool::sharded("main", &lines)]);
    let keyway = &changing.keyway;
    let [mut busy, mut free] = one_of_each_worker(keyway, 0);
    let mut main = one_of_each_worker(keyway, 1).into_iter().nth(1).expect("of the second");
    let script = "redis.call('SET', 'a', '1') while true do end";
    busy.send(&keyway_testkit::encode(&["EVAL", script, "0"]));
    wait_until("it runs", SOON, || ctl(keyway, &["kill-script", "local"]).contains("has written"));
    let text = changing.text.replace("kind = \"sharded\"", "timeout = \"3s\"\nkind = \"sharded\"");
    changing.write(&text);
    changing.text = text;
    let keyway = &changing.keyway;
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| ctl(keyway, &["reload"]));
        wait_until("one worker has followed", SOON, || {
            main.words("INFO keyway").text().contains("keyway_config_generation:2")
        });
        assert_eq!(http_get(keyway.admin(), "/v1/health").status, 200);
        assert!(!reload.is_finished(), "it waits, and others are answered");
        let text = ctl(keyway, &["eject", "main", "s0"]);
        assert!(text.contains("is ejected"), "{text}");
        assert!(!reload.is_finished(), "it waits for the worker that runs a script");
        let text = reload.join().expect("it ends");
        assert!(text.contains("timeout"), "{text}");
    });
    busy.set_reply_within(SOON);
    assert!(busy.reply().is_error(), "its time is up");
    let told = ctl(keyway, &["servers", "--pool", "main", "--json"]);
    assert!(told.contains("\"by_hand\":true"), "{told}");
    assert_eq!(free.words("PING"), Value::simple("PONG"));
}

#[test]
fn a_server_ejected_by_hand_that_was_found_out_stays_so_when_its_pool_changes() {
    let _watch = watchdog(Duration::from_secs(120), "ejected by hand");
    let servers = Replicated::start(1);
    let replica = servers.addresses()[1].to_string();
    let cluster = RedisCluster::start(3, 0);
    let of = |addresses: &[std::net::SocketAddr]| {
        let quoted: Vec<String> = addresses.iter().map(|at| format!("\"{at}\"")).collect();
        format!("[{}]", quoted.join(", "))
    };
    let listed = Pool::of_kind("listed", "replicated").with("servers", &of(&servers.addresses()));
    let found = Pool::of_kind("found", "cluster").with("servers", &of(&cluster.addresses()[..1]));
    let mut changing = Changing::start(vec![listed, found]);
    let (mut first, mut second) = (changing.keyway.client(0), changing.keyway.client(1));
    let ask = |first: &mut Client, second: &mut Client| {
        drop((first.words("GET a"), second.words("GET a")));
    };
    let node = cluster.addresses()[2].to_string();
    let is_out = |keyway: &Keyway, pool: &str, address: &str| {
        let told = ctl(keyway, &["servers", "--pool", pool]);
        told.lines().any(|line| line.contains(address) && line.contains("operator"))
    };
    for (pool, address) in [("listed", &replica), ("found", &node)] {
        wait_until("it is found", SOON, || {
            ask(&mut first, &mut second);
            ctl(&changing.keyway, &["eject", pool, address]).contains("ejected")
        });
        assert!(is_out(&changing.keyway, pool, address));
    }
    for timeout in ["3s", "4s"] {
        let change = |text: &str| {
            let lines = text.lines().filter(|line| !line.starts_with("timeout"));
            let text = lines.collect::<Vec<_>>().join("\n") + "\n";
            text.replace("kind = ", &format!("timeout = \"{timeout}\"\nkind = "))
        };
        changing.reload(change, DONE);
        for (pool, address) in [("listed", &replica), ("found", &node)] {
            wait_until("it is found again, and out of use", SOON, || {
                ask(&mut first, &mut second);
                is_out(&changing.keyway, pool, address)
            });
        }
    }
    let text = ctl(&changing.keyway, &["restore", "found", &node]);
    assert!(text.contains("in use again"), "{text}");
    changing.reload(|text| text.replace("\"4s\"", "\"5s\""), DONE);
    wait_until("it is found again", SOON, || {
        ask(&mut first, &mut second);
        ctl(&changing.keyway, &["servers", "--pool", "found"]).contains(&node)
    });
    assert!(!is_out(&changing.keyway, "found", &node), "it was restored");
    assert!(is_out(&changing.keyway, "listed", &replica));
}

#[test]
fn a_reload_that_fails_at_its_end_changes_no_certificate_and_no_limit() {
    let _watch = watchdog(Duration::from_secs(60), "a late failure");
    let files = CertificateFiles::default();
    let tls = files.path("server.pem");
    let key = files.path("server.key");
    let secured = format!(
        "[limits]\ntransactions_len_max = \"4MiB\"\n\n[[listener]]\nbind = \"tcp://{}\"\npool = \"local\"\n\
         tls = {{ cert_file = {tls:?}, key_file = {key:?} }}\n\n",
        free_address()
    );
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("workers", "2");
    let config = config.with_tables(&secured);
    let text = config.toml();
    let mut changing = Changing { keyway: Keyway::start(KEYWAY, config), text };
    let gauge = |keyway: &Keyway| {
        let metrics = keyway.metrics();
        let of = |name: &str| metrics.sum(name, &[]);
        (of("keyway_tls_certificate_expiry_seconds"), of("keyway_transaction_limit_bytes"))
    };
    let before = gauge(&changing.keyway);
    assert_eq!(before.1, 4.0 * 1024.0 * 1024.0);
    files.add("server", &files.authority.issue_for(&["127.0.0.1"], Span::Future));
    // There is room for the sockets that one worker needs, but not for those of all.
    let pid = changing.keyway.process().pid();
    let limit = |soft: &str| {
        let (pid, limit) = (pid.to_string(), format!("--nofile={soft}:"));
        let _ = run_tool("prlimit", &["--pid", &pid, &limit], b"", SOON).expect_success("prlimit");
    };
    let listener =
        |_| format!("[[listener]]\nbind = \"tcp://{}\"\npool = \"local\"\n\n", free_address());
    let more: String = (0..20).map(listener).collect();
    let change = |text: &str| text.replacen("[limits]", &format!("{more}[limits]"), 1);
    let change = |text: &str| change(text).replace("4MiB", "8MiB");
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<usize>().ok());
    let taken: Vec<usize> = numbers.collect();
    let free = (0..).filter(|number| !taken.contains(number)).nth(30).expect("there are more");
    limit(&free.to_string());
    let good = changing.text.clone();
    changing.reload(change, "nothing was changed");
    let log = changing.keyway.process().log();
    assert!(log.contains("Too many open files"), "{log}");
    limit("1000");
    assert_eq!(gauge(&changing.keyway), before);
    changing.text = good;
    changing.reload(change, DONE);
    let after = gauge(&changing.keyway);
    assert!(after.0 > before.0 && after.1 == 8.0 * 1024.0 * 1024.0, "{after:?}");
}

#[test]
fn who_waits_for_room_on_a_pool_that_changes_waits_no_longer() {
    let _watch = watchdog(Duration::from_secs(90), "a full queue");
    let (silent, other) = (RedisServer::start(), RedisServer::start());
    let server = |server: &RedisServer| format!("127.0.0.1:{}:1 server0", server.address().port());
    let pool = Pool::sharded("main", &[server(&silent)])
        .with("queue_len_max", "16")
        .with("timeout", "\"60s\"");
    let config = KeywayConfig::new(vec![pool])
        .with_server("drain_timeout", "\"60s\"")
        .with_server("workers", "1");
    let text = config.toml();
    let mut changing = Changing { keyway: Keyway::start(KEYWAY, config), text };
    let (mut first, mut second) = (changing.keyway.client(0), changing.keyway.client(0));
    assert_eq!(first.words("GET a"), Value::Nil);
    silent.process().pause();
    first.send(&keyway_testkit::encode_words("GET a").repeat(100));
    let pauses = || changing.keyway.metrics().sum("keyway_client_pauses_total", &["pool=\"main\""]);
    wait_until("it is full", SOON, || pauses() >= 1.0);
    second.send(&keyway_testkit::encode_words("GET a"));
    wait_until("another waits for room", SOON, || pauses() >= 2.0);
    let next = server(&other);
    changing.reload(|text| replace_servers(text, &format!("servers = [\"{next}\"]")), DONE);
    second.set_reply_within(SOON);
    assert_eq!(second.reply(), Value::Nil, "it asks the server of now");
    silent.process().resume();
    first.replies(100).iter().for_each(|reply| assert_eq!(*reply, Value::Nil));
}

/// Returns the number of threads that check other Keyways.
fn peer_threads(keyway: &Keyway) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", keyway.process().pid()));
    let name = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let names = tasks.expect("it runs").flatten().map(|task| name(task.path().join("comm")));
    names.filter(|name| name.trim() == "keyway-peer").count()
}

#[test]
fn other_keyways_that_a_reload_names_are_looked_after_until_they_are_named_no_more() {
    let _watch = watchdog(Duration::from_secs(60), "peers");
    let mut changing = Changing::start(vec![Pool::store("local")]);
    let (own, other) = (free_address(), free_address());
    let table = format!(
        "[[listener]]\nbind = \"tcp://{own}\"\npool = \"local\"\ncluster_mode = \"emulate\"\n\
         cluster_announce = [\"{own}\", \"{other}\"]\n\n"
    );
    changing.reload(|text| text.replacen("[[listener]]", &format!("{table}[[listener]]"), 1), DONE);
    let mut client = Client::connect(own);
    wait_until("the other is not there", SOON, || {
        client.words("CLUSTER NODES").text().contains("fail")
    });
    assert_eq!(peer_threads(&changing.keyway), 1);
    changing.reload(|text| text.replace(&table, ""), DONE);
    wait_until("nobody looks for it", SOON, || peer_threads(&changing.keyway) == 0);
}

/// Returns the TLS settings with these files.
fn tls_by(files: &CertificateFiles, name: &str, more: &str) -> String {
    let file = |end: &str| files.path(&format!("{name}.{end}"));
    format!("{{ cert_file = {:?}, key_file = {:?}{more} }}", file("pem"), file("key"))
}

#[test]
fn the_certificates_of_admin_are_read_again_after_other_changes_too() {
    let _watch = watchdog(Duration::from_secs(60), "certificates of admin");
    let files = CertificateFiles::default();
    files.add("operator", &files.authority.issue(&["operator"]));
    let ca = format!(", ca_file = {:?}", files.path("ca.pem"));
    let tls = tls_by(&files, "server", &ca);
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("admin_tls", &tls);
    let mut changing = Changing { text: config.toml(), keyway: Keyway::start(KEYWAY, config) };
    let admin = format!("https://{}", changing.keyway.admin());
    let asks = |name: &str, ca: &str| {
        let path = |end: &str| files.path(&format!("{name}.{end}")).to_string_lossy().into_owned();
        let (cert, key) = (path("pem"), path("key"));
        let ca = files.path(ca).to_string_lossy().into_owned();
        let by = ["ctl", "--admin", &admin, "--ca-file", &ca, "--cert-file", &cert];
        run_keyway(KEYWAY, &[&by[..], &["--key-file", &key, "log-level"]].concat()).status.success()
    };
    assert!(asks("operator", "ca.pem"));
    let table = format!("[[listener]]\nbind = \"tcp://{}\"\npool = \"local\"\n\n", free_address());
    changing.reload(|text| text.replacen("[[listener]]", &format!("{table}[[listener]]"), 1), DONE);
    assert!(asks("operator", "ca.pem"));
    let other = keyway_testkit::certificates::Authority::new("its successor");
    files.write("old.pem", &files.authority.certificate);
    files.write("ca.pem", &other.certificate);
    files.add("server", &other.issue(&["127.0.0.1"]));
    files.add("newcomer", &other.issue(&["operator"]));
    changing.hang_up("certificates were read again");
    let log = changing.keyway.process().log();
    assert!(log.contains("server.pem holds other certificates now"), "{log}");
    assert!(
        !asks("operator", "old.pem") && !asks("operator", "ca.pem"),
        "whoever it was let in by"
    );
    assert!(asks("newcomer", "ca.pem"));
}

#[test]
fn a_certificate_of_which_a_listener_has_gone_is_told_of_as_it_is() {
    let _watch = watchdog(Duration::from_secs(60), "expiry");
    let files = CertificateFiles::default();
    let tls = tls_by(&files, "server", "");
    let table =
        |at| format!("[[listener]]\nbind = \"tcp://{at}\"\npool = \"local\"\ntls = {tls}\n\n");
    let (stays, goes) = (table(free_address()), table(free_address()));
    let config = KeywayConfig::new(vec![Pool::store("local")]);
    let config = config.with_tables(&format!("{stays}{goes}"));
    let mut changing = Changing { text: config.toml(), keyway: Keyway::start(KEYWAY, config) };
    let expiry =
        |keyway: &Keyway| keyway.metrics().sum("keyway_tls_certificate_expiry_seconds", &[]);
    let before = expiry(&changing.keyway);
    changing.reload(|text| text.replace(&goes, ""), DONE);
    files.add("server", &files.authority.issue_for(&["127.0.0.1"], Span::Future));
    changing.hang_up("certificates were read again");
    assert!(expiry(&changing.keyway) > before);
}

/// Asks a pool for keys until `is_over`, whatever the replies.
fn ask_on(at: std::net::SocketAddr, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut client) = Client::try_connect(at) else {
            // No process listens there for the moment.
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        for nth in 0..50 {
            let is_sent = client.try_send(&encode(&["GET", &format!("key:{nth}")])).is_ok();
            if !is_sent || client.try_reply().is_err() || is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    }
}

#[test]
fn reloads_that_renumber_servers_go_on_while_servers_flap() {
    let _watch = watchdog(Duration::from_secs(60), "reloads while servers flap");
    // Each server answers twice on a connection and closes it.
    let flapping: Vec<ScriptedBackend> = (0..8)
        .map(|_| {
            let mut asked = 0;
            ScriptedBackend::start(move |_| {
                asked += 1;
                match asked % 3 {
                    0 => Action::Close(Vec::new()),
                    _ => Action::Reply(b"$-1\r\n".to_vec()),
                }
            })
        })
        .collect();
    let addresses = |range: std::ops::Range<usize>| -> Vec<String> {
        flapping[range].iter().map(|server| format!("{}:1", server.address())).collect()
    };
    let fast = |name: &str, servers: &[String]| {
        Pool::sharded(name, servers)
            .with("reconnect", "{ min = \"1ms\", max = \"2ms\" }")
            .with("timeout", "\"1s\"")
    };
    let pools = vec![Pool::store("kept"), fast("first", &addresses(0..3))];
    let config = KeywayConfig::new(pools)
        .with_server("drain_timeout", "\"100ms\"")
        .with_server("workers", "1");
    let text = config.toml();
    let mut keyway = Keyway::start(KEYWAY, config);
    assert_eq!(keyway.client(0).words("SET here stays"), Value::simple("OK"));
    let (first_at, second_at) = (keyway.address(1), free_address());
    let second = |servers: &[String]| {
        format!(
            "[[listener]]\nbind = \"tcp://{second_at}\"\npool = \"second\"\n\
             [pool.second]\nkind = \"sharded\"\nreconnect = {{ min = \"1ms\", max = \"2ms\" }}\n\
             servers = {servers:?}\n"
        )
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for at in [first_at, first_at, second_at, second_at] {
            let is_over = &is_over;
            scope.spawn(move || ask_on(at, is_over));
        }
        // The second pool comes and goes with a changing number of servers. The first is replaced
        // each time.
        for round in 0..14_usize {
            let timeout = format!("timeout = \"{}ms\"", 1000 + round);
            let mut changed = text.replace("timeout = \"1s\"", &timeout);
            if round % 2 == 0 {
                changed.push_str(&second(&addresses(3..4 + round % 5)));
            }
            std::fs::write(keyway.directory().join("keyway.toml"), changed).expect("a file");
            keyway.process().signal(Signal::HUP);
            std::thread::sleep(Duration::from_millis(170));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let log = keyway.process().log();
    assert!(keyway.process_mut().is_running() && !log.contains("panicked"), "{log}");
    let reloads = log.matches(" reloaded ").count();
    assert!(reloads > 5, "{reloads} reloads: {log}");
    assert!(log.contains("left_out="), "no server has flapped: {log}");
    assert_eq!(keyway.client(0).words("GET here"), Value::bulk("stays"));
}
