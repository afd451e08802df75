//! Settings, wrong files, and other Keyways.

use super::*;

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
