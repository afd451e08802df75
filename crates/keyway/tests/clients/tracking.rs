//! Client-side caching through pools of one and four servers: to the byte what a bare redis-server
//! sends, and nothing is missed when a link is lost or a server leaves.

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Shared, Value, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(10);

/// The push that says that everything may have changed.
const EVERYTHING: &str = ">2\r\n$10\r\ninvalidate\r\n_\r\n";

struct Systems {
    keyway: Keyway,
    bare: RedisServer,
    _servers: [Vec<RedisServer>; 2],
}

static SYSTEMS: Shared<Systems> = Shared::new();

fn systems() -> std::sync::Arc<Systems> {
    SYSTEMS.get(|| {
        let (one, servers) = (RedisServer::start_many(1), RedisServer::start_many(4));
        let pools =
            vec![Pool::over("one", &one), Pool::over("four", &servers).with("hash_tag", "\"{}\"")];
        let config = KeywayConfig::new(pools).with_server("workers", "2");
        let keyway = Keyway::start(KEYWAY, config);
        Systems { keyway, bare: RedisServer::start(), _servers: [one, servers] }
    })
}

fn pool_of_four(change: impl FnOnce(Pool) -> Pool) -> (Keyway, Vec<RedisServer>) {
    let servers = RedisServer::start_many(4);
    let pool = change(Pool::over("main", &servers).with("hash_tag", "\"{}\""));
    (Keyway::start(KEYWAY, KeywayConfig::new(vec![pool])), servers)
}

fn resp3(mut client: Client) -> Client {
    assert!(matches!(client.command(&["HELLO", "3"]), Value::Map(_)));
    client
}

fn ok(client: &mut Client, line: &str) {
    assert_eq!(client.words(line), Value::simple("OK"), "{line}");
}

fn raw(client: &mut Client) -> String {
    String::from_utf8(client.raw_reply()).unwrap()
}

/// Returns the push that this key has changed.
fn changed(key: &str) -> String {
    format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n{key}\r\n", key.len())
}

fn id_of(client: &mut Client) -> String {
    let Value::Integer(id) = client.words("CLIENT ID") else { panic!("no id") };
    id.to_string()
}

/// Runs a script in which each client has a letter: `a GET k` sends a request and reads one reply;
/// `a +2` reads two more frames; `A` in a line stands for the id of `a`, and `B` for that of `b`.
fn play(connect: &mut dyn FnMut() -> Client, script: &str) -> Vec<String> {
    let mut clients: Vec<Client> = (0..3).map(|_| connect()).collect();
    let ids: Vec<String> = clients.iter_mut().map(id_of).collect();
    let mut heard = Vec::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (who, words) = line.split_once(' ').unwrap();
        let client = &mut clients[usize::from(who.as_bytes()[0] - b'a')];
        let mut frames = 1;
        if let Some(count) = words.strip_prefix('+') {
            frames = count.parse().unwrap();
        } else {
            let with_ids = |word: &str| match word {
                "A" => ids[0].clone(),
                "B" => ids[1].clone(),
                _ => word.to_owned(),
            };
            let words: Vec<String> = words.split(' ').map(with_ids).collect();
            client.send(&keyway_testkit::encode(&words));
        }
        for _ in 0..frames {
            let mut frame = raw(client);
            if words.starts_with("HELLO") {
                continue;
            }
            for (id, name) in ids.iter().zip(["A", "B", "C"]) {
                let told = format!("redirect\r\n:{id}\r\n");
                frame = frame.replace(&told, &format!("redirect\r\n:{name}\r\n"));
                if words.ends_with("GETREDIR") && frame == format!(":{id}\r\n") {
                    frame = format!(":{name}\r\n");
                }
            }
            heard.push(format!("{line} => {frame}"));
        }
    }
    heard
}

/// Runs a script against a bare server and both pools.
fn compare(script: &str) {
    let systems = systems();
    let expected = play(&mut || systems.bare.client(), script);
    for pool in 0..2 {
        let heard = play(&mut || systems.keyway.client(pool), script);
        assert_eq!(heard, expected, "pool {pool}");
    }
}

#[test]
fn keys_that_were_read_are_told_of_once_whoever_writes_them() {
    let _watch = watchdog(Duration::from_secs(60), "default mode");
    compare(
        "
        a HELLO 3
        a CLIENT TRACKING ON
        a GET d1
        a MGET d2 d3 d4 d5
        b SET d1 x
        a +1
        b SET d1 y
        b SET d4 x
        a +1
        a SET d2 1
        a +1
        a GET d2
        a MSET d2 1
        a +1
        a HGETALL d6
        a STRLEN d6
        b HSET d6 f v
        a +1
        b SET d7 v PX 60
        a GET d7
        a +1
        a CLIENT TRACKING OFF
        a GET d1
        a SET d1 3
        a CLIENT TRACKINGINFO
        a GET d1
        ",
    );
}

#[test]
fn prefixes_are_told_of_read_or_not() {
    let _watch = watchdog(Duration::from_secs(60), "BCAST");
    compare(
        "
        a HELLO 3
        a CLIENT TRACKING ON BCAST PREFIX px: PREFIX py:
        a CLIENT TRACKINGINFO
        b SET px:1 v
        a +1
        b SET px:2 v
        a +1
        b SET pz:2 v
        b SET py:2 v
        a +1
        a SET py:3 v
        a +1
        a CLIENT TRACKING ON BCAST PREFIX px
        a CLIENT TRACKING OFF
        b SET px:3 v
        a CLIENT TRACKING ON BCAST NOLOOP PREFIX px:
        a SET px:4 v
        b SET px:5 v
        a +1
        ",
    );
}

#[test]
fn only_what_is_chosen_is_tracked() {
    let _watch = watchdog(Duration::from_secs(60), "OPTIN and OPTOUT");
    compare(
        "
        a HELLO 3
        a CLIENT TRACKING ON OPTIN
        a GET o1
        a CLIENT CACHING YES
        a CLIENT TRACKINGINFO
        a GET o2
        a GET o3
        a CLIENT TRACKINGINFO
        b SET o1 v
        b SET o3 v
        b SET o2 v
        a +1
        a CLIENT CACHING YES
        a MULTI
        a PTTL o4
        a GET o4
        a EXEC
        a GET o1
        b SET o1 v
        b SET o4 v
        a +1
        a CLIENT CACHING YES
        a PING
        a GET o5
        b SET o5 v
        a CLIENT CACHING YES
        a NOSUCH
        a GET o5
        b SET o5 v
        a CLIENT CACHING YES
        a WATCH o6
        a MULTI
        a GET o6
        a EXEC
        b SET o6 v
        a CLIENT CACHING YES
        a EVAL_RO return(redis.call('GET',KEYS[1])) 1 o7
        b SET o7 v
        a +1
        a CLIENT CACHING NO
        a CLIENT TRACKING OFF
        a CLIENT TRACKING ON OPTOUT NOLOOP
        a CLIENT CACHING NO
        a GET q1
        a GET q2
        b SET q1 v
        b SET q2 v
        a +1
        a GET q3
        a SET q3 v
        a GET q3
        a RESET
        a CLIENT TRACKINGINFO
        a GET q3
        b SET q3 v
        a PING
        ",
    );
}

#[test]
fn who_is_told_in_place_of_another_is_told_in_its_own_protocol() {
    let _watch = watchdog(Duration::from_secs(60), "REDIRECT");
    compare(
        "
        b SUBSCRIBE __redis__:invalidate
        a CLIENT TRACKING ON REDIRECT B
        a CLIENT TRACKINGINFO
        a CLIENT GETREDIR
        a GET r1
        a MGET r2 r3
        c SET r1 v
        b +1
        c SET r3 v
        b +1
        a SET r2 v
        b +1
        a CLIENT TRACKING OFF
        a CLIENT GETREDIR
        a CLIENT TRACKING ON BCAST PREFIX rp NOLOOP REDIRECT B
        a SET rp1 v
        c SET rp2 v
        b +1
        a CLIENT TRACKING OFF
        b UNSUBSCRIBE
        b HELLO 3
        a CLIENT TRACKING ON OPTIN REDIRECT B
        a GET r4
        a CLIENT CACHING YES
        a GET r5
        c SET r4 v
        c SET r5 v
        b +1
        a CLIENT TRACKING OFF
        a HELLO 3
        a CLIENT TRACKING ON REDIRECT B
        a GET r6
        c SET r6 v
        b +1
        a CLIENT TRACKING ON REDIRECT A
        a GET r7
        c SET r7 v
        a +1
        a CLIENT TRACKING ON REDIRECT B
        a GET r8
        b QUIT
        ",
    );
}

#[test]
fn what_is_refused_is_refused_in_the_words_of_redis() {
    let _watch = watchdog(Duration::from_secs(60), "errors");
    compare(
        "
        a CLIENT TRACKINGINFO
        a CLIENT GETREDIR
        a CLIENT CACHING YES
        a CLIENT TRACKING maybe
        a CLIENT TRACKING ON FOO
        a CLIENT TRACKING ON PREFIX a
        a CLIENT TRACKING ON REDIRECT x
        a CLIENT TRACKING ON REDIRECT 999999
        a CLIENT TRACKING ON REDIRECT 0
        a CLIENT TRACKING ON REDIRECT B REDIRECT B
        a CLIENT TRACKING ON OPTIN OPTOUT
        a CLIENT TRACKING ON OPTIN BCAST
        a CLIENT TRACKING ON
        a CLIENT CACHING YES
        a CLIENT TRACKING ON BCAST
        a CLIENT TRACKING ON OPTIN
        a CLIENT TRACKING ON OPTOUT
        a CLIENT CACHING NO
        a CLIENT CACHING maybe
        a CLIENT TRACKING OFF
        a CLIENT TRACKING ON BCAST PREFIX aa PREFIX a
        a CLIENT TRACKING ON BCAST PREFIX b PREFIX a
        a CLIENT TRACKING ON BCAST PREFIX ab
        a CLIENT TRACKINGINFO
        ",
    );
}

#[test]
fn a_redirection_whose_client_has_left_is_told_as_broken() {
    let _watch = watchdog(Duration::from_secs(60), "tracking-redir-broken");
    let systems = systems();
    for pool in 0..2 {
        let mut tracked = resp3(systems.keyway.client(pool));
        let mut writer = systems.keyway.client(pool);
        let mut target = systems.keyway.client(pool);
        let id = id_of(&mut target);
        ok(&mut tracked, &format!("CLIENT TRACKING ON REDIRECT {id}"));
        let list = writer.words("CLIENT LIST").text();
        let line = list.lines().find(|line| line.contains(&format!(" redir={id} "))).unwrap();
        assert!(line.contains(" flags=t "), "{line}");
        target.words("QUIT");
        target.expect_closed();
        wait_until("it has left", SOON, || {
            writer.words(&format!("CLIENT LIST ID {id}")).text().is_empty()
        });
        tracked.words("GET broken");
        ok(&mut writer, "SET broken v");
        assert_eq!(raw(&mut tracked), format!(">2\r\n$21\r\ntracking-redir-broken\r\n:{id}\r\n"));
        assert!(writer.words("CLIENT LIST").text().contains(" flags=tR "));
        let info = tracked.words("CLIENT TRACKINGINFO");
        assert!(format!("{info:?}").contains("broken_redirect"), "{info:?}");
    }
}

/// There are many clients, so that the one that is told is on another worker than some.
#[test]
fn a_client_of_any_worker_is_told_in_place_of_others() {
    let _watch = watchdog(Duration::from_secs(60), "REDIRECT across workers");
    let systems = systems();
    let mut target = resp3(systems.keyway.client(1));
    let id = id_of(&mut target);
    let mut writer = systems.keyway.client(1);
    for nth in 0..12 {
        let mut tracked = systems.keyway.client(1);
        ok(&mut tracked, &format!("CLIENT TRACKING ON REDIRECT {id}"));
        let key = format!("across:{nth}");
        tracked.words(&format!("GET {key}"));
        ok(&mut writer, &format!("SET {key} v"));
        assert_eq!(raw(&mut target), changed(&key));
    }
}

/// Returns the tracked clients of a server.
fn tracked_at(server: &RedisServer) -> String {
    let info = server.client().words("INFO clients").text();
    let line = info.lines().find(|line| line.starts_with("tracking_clients:")).unwrap();
    line.rsplit(':').next().unwrap().trim().to_owned()
}

#[test]
fn nothing_is_left_of_a_client_that_has_left_or_wants_no_more() {
    let _watch = watchdog(Duration::from_secs(60), "no leaks");
    let (keyway, servers) = pool_of_four(|pool| pool);
    let are_tracked = |count: &str| servers.iter().all(|server| tracked_at(server) == count);
    for round in ["QUIT", "CLIENT TRACKING OFF", "RESET", "CLIENT TRACKING OFF", "close"] {
        let mut target = keyway.client(0);
        let id = id_of(&mut target);
        let mut clients: Vec<Client> = (0..5).map(|_| keyway.client(0)).collect();
        for (nth, client) in clients.iter_mut().enumerate() {
            if nth % 2 == 0 {
                client.words("HELLO 3");
                ok(client, "CLIENT TRACKING ON BCAST");
            } else {
                ok(client, &format!("CLIENT TRACKING ON BCAST REDIRECT {id}"));
            }
        }
        wait_until("every server tracks them", SOON, || are_tracked("5"));
        if round == "close" {
            drop(clients);
        } else {
            clients.iter_mut().for_each(|client| drop(client.words(round)));
        }
        wait_until("no server tracks any", SOON, || are_tracked("0"));
    }
    let clients = |server: &RedisServer| {
        let list = server.client().words("CLIENT LIST").text();
        list.lines().filter(|line| !line.contains("cmd=client|list")).count()
    };
    // One shared link of each protocol is left.
    wait_until("their links are gone", SOON, || servers.iter().all(|server| clients(server) <= 2));
}

/// Returns a key of a pool that is on this server, with a value.
fn key_on(client: &mut Client, server: &RedisServer) -> String {
    let is_there = |key: &String| {
        ok(client, &format!("SET {key} old"));
        server.client().words(&format!("EXISTS {key}")) == Value::Integer(1)
    };
    (0..).map(|nth| format!("key{nth}")).find(is_there).unwrap()
}

/// Ends every connection to a server except the one that orders it.
fn cut(server: &RedisServer) {
    server.client().words("CLIENT KILL TYPE normal SKIPME yes");
}

#[test]
fn with_a_link_everything_is_forgotten_and_tracking_begins_anew() {
    let _watch = watchdog(Duration::from_secs(60), "link loss");
    let (keyway, servers) = pool_of_four(|pool| pool);
    let mut writer = keyway.client(0);
    for mode in ["", " BCAST", " OPTOUT"] {
        let mut tracked = resp3(keyway.client(0));
        ok(&mut tracked, &format!("CLIENT TRACKING ON{mode}"));
        tracked.words("MGET a b c d e f g h i j");
        servers.iter().for_each(cut);
        assert_eq!(raw(&mut tracked), EVERYTHING, "{mode}");
        // This takes until every connection stands again.
        wait_until("it is tracked again", SOON, || {
            tracked.set_reply_within(Duration::from_millis(100));
            while tracked.try_reply().is_ok() {}
            let read = tracked.words("GET a");
            let _ = writer.words("SET a v");
            let told = tracked.try_reply();
            !read.is_error() && matches!(told, Ok(Value::Push(_)))
        });
    }
}

#[test]
fn with_a_server_that_leaves_or_comes_back_everything_is_forgotten() {
    let _watch = watchdog(Duration::from_secs(90), "ejection");
    let mut servers = RedisServer::start_many(4);
    let ejection = "{ after_failures = 1, for = \"200ms\", rejoin = \"serve\" }";
    let pool = Pool::over("main", &servers).with("ejection", ejection);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let (mut tracked, mut other) = (resp3(keyway.client(0)), keyway.client(0));
    // The tracked client has no link to this server. Its loss is noticed by requests of another
    // client.
    let (key, away) = (key_on(&mut other, &servers[3]), key_on(&mut other, &servers[0]));
    ok(&mut tracked, "CLIENT TRACKING ON");
    assert_eq!(tracked.words(&format!("GET {key}")).text(), "old");
    servers[0].kill();
    wait_until("the server is ejected", SOON, || !other.words(&format!("SET {away} v")).is_error());
    assert_eq!(raw(&mut tracked), EVERYTHING);
    tracked.words(&format!("GET {away}"));
    servers[0].restart();
    assert_eq!(raw(&mut tracked), EVERYTHING, "its keys live elsewhere again");
    tracked.words(&format!("GET {away}"));
    ok(&mut other, &format!("SET {away} v"));
    assert_eq!(raw(&mut tracked), changed(&away));
}

#[test]
fn an_invalidation_overtakes_no_reply_that_waits_for_an_earlier_one() {
    let _watch = watchdog(Duration::from_secs(60), "order");
    let (keyway, servers) = pool_of_four(|pool| pool.with("timeout", "\"20s\""));
    let mut writer = keyway.client(0);
    let (slow, fast) = (key_on(&mut writer, &servers[0]), key_on(&mut writer, &servers[1]));
    let mut tracked = resp3(keyway.client(0));
    let itself = format!(" REDIRECT {}", id_of(&mut tracked));
    for redirect in ["", "", "", &itself, &itself] {
        ok(&mut tracked, &format!("CLIENT TRACKING ON{redirect}"));
        tracked.words(&format!("MGET {slow} {fast}"));
        // The fast server has answered everything, and sent the change, long before the slow one
        // answers.
        ok(&mut servers[0].client(), "CLIENT PAUSE 300 ALL");
        let lines = [format!("GET {slow}"), format!("GET {fast}"), format!("SET {fast} new")];
        let words: Vec<Vec<u8>> =
            lines.iter().map(|line| keyway_testkit::encode_words(line)).collect();
        tracked.send(&words.concat());
        let heard: Vec<String> = (0..4).map(|_| raw(&mut tracked)).collect();
        assert!(heard[0].contains("old"), "{heard:?}");
        assert_eq!(heard[2..], ["+OK\r\n".to_owned(), changed(&fast)], "{heard:?}");
    }
}

#[test]
fn an_invalidation_overtakes_no_part_of_a_reply() {
    let _watch = watchdog(Duration::from_secs(60), "order of fragments");
    let (keyway, servers) = pool_of_four(|pool| pool.with("timeout", "\"20s\""));
    let mut writer = keyway.client(0);
    let (slow, fast) = (key_on(&mut writer, &servers[0]), key_on(&mut writer, &servers[1]));
    let mut tracked = resp3(keyway.client(0));
    ok(&mut tracked, "CLIENT TRACKING ON");
    tracked.words(&format!("GET {slow}"));
    ok(&mut servers[0].client(), "CLIENT PAUSE 500 ALL");
    tracked.send(&keyway_testkit::encode_words(&format!("MGET {slow} {fast}")));
    let mut at_fast = servers[1].client();
    wait_until("the fast server has answered its part", SOON, || {
        at_fast.words("INFO stats").text().contains("tracking_total_keys:1")
    });
    ok(&mut at_fast, &format!("SET {fast} new"));
    let read = raw(&mut tracked);
    assert!(read.starts_with("*2\r\n") && !read.contains("new"), "{read}");
    assert_eq!(raw(&mut tracked), changed(&fast));
}

#[test]
fn servers_that_know_too_little_are_named_in_an_error() {
    let _watch = watchdog(Duration::from_secs(60), "old servers");
    let server = RedisServer::start_with(&["--rename-command", "HELLO", ""]);
    let pools = vec![Pool::over("old", std::slice::from_ref(&server))];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let mut client = resp3(keyway.client(0));
    let text = client.words("CLIENT TRACKING ON BCAST").error_text();
    assert!(text.contains("CLIENT TRACKING") && text.contains("unknown command"), "{text}");
    // The push would go to another link, which is refused.
    let id = id_of(&mut client);
    let mut told_by_another = keyway.client(0);
    let line = format!("CLIENT TRACKING ON BCAST REDIRECT {id}");
    let text = told_by_another.words(&line).error_text();
    assert!(text.contains("CLIENT TRACKING") && text.contains("unknown command"), "{text}");
    ok(&mut client, "SET a 1");
    ok(&mut client, "CLIENT TRACKING ON");
    let text = client.words("GET a").error_text();
    assert!(text.contains("protocol that its connections begin with"), "{text}");
    ok(&mut client, "CLIENT TRACKING OFF");
    assert_eq!(client.words("GET a").text(), "1");
}

#[test]
fn what_is_watched_while_tracking_ends_guards_its_transaction() {
    let _watch = watchdog(Duration::from_secs(60), "WATCH and CLIENT TRACKING OFF");
    let systems = systems();
    let mut other = systems.keyway.client(1);
    for (nth, end) in ["CLIENT TRACKING OFF", "HELLO 2", "RESET"].into_iter().enumerate() {
        let mut client = resp3(systems.keyway.client(1));
        let key = format!("guarded:{nth}");
        ok(&mut client, "CLIENT TRACKING ON");
        ok(&mut client, &format!("WATCH {key}"));
        client.words(end);
        ok(&mut other, &format!("SET {key} theirs"));
        ok(&mut client, "MULTI");
        client.words(&format!("SET {key} mine"));
        client.words("EXEC");
        let expected = if end == "RESET" { "mine" } else { "theirs" };
        assert_eq!(other.words(&format!("GET {key}")).text(), expected, "{end}");
    }
}

#[test]
fn a_server_that_refuses_tracked_clients_serves_the_others() {
    let _watch = watchdog(Duration::from_secs(60), "refused and not ejected");
    let (old, guarded) =
        (RedisServer::start_with(&["--rename-command", "HELLO", ""]), RedisServer::start());
    ok(&mut guarded.client(), "ACL SETUSER default -client|tracking");
    for server in [old, guarded] {
        let ejection = "{ after_failures = 1, for = \"60s\", rejoin = \"serve\" }";
        let pool = Pool::over("main", std::slice::from_ref(&server)).with("ejection", ejection);
        let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
        let (mut tracked, mut other) = (resp3(keyway.client(0)), keyway.client(0));
        for mode in ["", " OPTIN", " BCAST"] {
            let said = tracked.words(&format!("CLIENT TRACKING ON{mode}"));
            assert_eq!(said.is_error(), mode == " BCAST", "{said:?}");
            for _ in 0..20 {
                // The request is refused by the server, or at once because the server has refused
                // an earlier one.
                assert_eq!(tracked.words("GET a").is_error(), mode != " BCAST");
                ok(&mut other, "SET a 1");
            }
            ok(&mut tracked, "CLIENT TRACKING OFF");
        }
    }
}

/// Returns how many times a server has executed `SET`.
fn sets(server: &RedisServer) -> usize {
    let text = server.client().words("INFO commandstats").text();
    let calls = text.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls="));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

#[test]
fn requests_without_a_reply_are_executed_in_their_order_and_to_the_last() {
    let _watch = watchdog(Duration::from_secs(60), "CLIENT REPLY OFF");
    let server = RedisServer::start();
    let pools = vec![Pool::over("main", std::slice::from_ref(&server))];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let mut other = keyway.client(0);
    let id = id_of(&mut other);
    let pipeline = |lines: &[&str]| {
        let mut client = keyway.client(0);
        let words = lines.iter().map(|line| keyway_testkit::encode_words(line));
        client.send(&words.collect::<Vec<_>>().concat());
        client
    };
    let redirected = format!("CLIENT TRACKING ON REDIRECT {id}");
    let modes = [["HELLO 3", "CLIENT TRACKING ON"], ["PING", &redirected]];
    let ends: [&[&str]; 2] = [&["CLIENT TRACKING OFF"], &["CLIENT TRACKING ON BCAST", "HELLO 3"]];
    let mut count = 0;
    for mode in modes {
        for end in ends {
            let silent = [&mode[..], &["CLIENT REPLY OFF", "SET a 1"], end, &["SET a 2"]].concat();
            let client = pipeline(&silent);
            count += 2;
            wait_until("both are executed", SOON, || sets(&server) == count);
            assert_eq!(other.words("GET a").text(), "2", "{silent:?}");
            drop(client);
        }
        drop(pipeline(&[&mode[..], &["CLIENT REPLY OFF", "SET a 3"]].concat()));
        count += 1;
        wait_until("it is executed", SOON, || sets(&server) == count);
        assert_eq!(other.words("GET a").text(), "3", "{mode:?}");
    }
}

#[test]
fn flushing_a_pool_is_told_once_by_each_server_that_was_read_from() {
    let _watch = watchdog(Duration::from_secs(60), "FLUSHALL");
    let (keyway, servers) = pool_of_four(|pool| pool.with("allow_flush", "true"));
    let mut other = keyway.client(0);
    let keys: Vec<String> = (0..200).map(|nth| format!("{}{nth}", nth * 7919)).collect();
    keys.iter().for_each(|key| ok(&mut other, &format!("SET {key} v")));
    let has_keys = |server: &RedisServer| server.client().words("DBSIZE") != Value::Integer(0);
    assert!(servers.iter().all(has_keys), "every server has some of the keys");
    let mut client = resp3(keyway.client(0));
    ok(&mut client, "CLIENT TRACKING ON");
    keys.iter().for_each(|key| assert_eq!(client.words(&format!("GET {key}")), Value::bulk("v")));
    ok(&mut other, "FLUSHALL");
    servers.iter().for_each(|_| assert_eq!(raw(&mut client), EVERYTHING));
    client.send(&keyway_testkit::encode(&["GET", &keys[0]]));
    assert_eq!(raw(&mut client), "_\r\n", "and no more often");
}
