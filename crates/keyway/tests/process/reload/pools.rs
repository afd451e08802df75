//! Pools change, come and go, and their clients with them.

use super::*;

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
