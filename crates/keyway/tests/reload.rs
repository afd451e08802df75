//! The configuration changes while clients are served.
//!
//! Servers are added and weights change under load whose every reply is checked. So that a
//! key is there wherever it is looked for, the servers of such a pool are one redis-server
//! under several names; that requests of a client keep their order on the way from one pool
//! to the next is what is at stake then.

use std::time::Duration;

use keyway_testkit::{
    CheckedLoad, Keyway, KeywayConfig, LoadShape, Pool, RedisServer, Signal, Value, free_address,
    wait_until, watchdog,
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

    /// Changes the file and has it read again; waits until the log has the words once more.
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

/// One redis-server as several: `count` of its names.
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
    // What was replaced has ended, and is told of no more.
    wait_until("every pool that was replaced has ended", SOON, || {
        changing.keyway.metrics().sum("keyway_config_ending_pools", &[]) == 0.0
    });
    let log = changing.keyway.process().log();
    assert!(log.contains("pool main: servers"), "{log}");
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

#[test]
fn listeners_come_and_go() {
    let _watch = watchdog(Duration::from_secs(60), "listeners");
    let mut changing = Changing::start(vec![Pool::store("local")]);
    let other = free_address();
    let table = format!("[[listener]]\nbind = \"tcp://{other}\"\npool = \"local\"\n\n");
    let mut first = changing.keyway.client(0);
    assert_eq!(first.words("SET a 1"), Value::simple("OK"));
    changing.reload(|text| text.replacen("[[listener]]", &format!("{table}[[listener]]"), 1), DONE);
    let mut second = keyway_testkit::Client::connect(other);
    assert_eq!(second.words("GET a"), Value::bulk("1"));
    changing.reload(|text| text.replace(&table, ""), DONE);
    assert!(second.try_reply().is_err(), "it was answered, and let go");
    wait_until("nobody listens there", SOON, || {
        keyway_testkit::Client::try_connect(other).is_err()
    });
    assert_eq!(first.words("GET a"), Value::bulk("1"), "the store is what it was");
}
