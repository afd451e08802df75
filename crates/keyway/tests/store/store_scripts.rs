//! Scripts on the embedded store: their replies are those of redis-server 7.0, no client sees a
//! part of a script's changes, and no script holds the store up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, cpu_seconds, encode, wait_for,
    wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(30);

fn store(workers: usize) -> Keyway {
    store_with(workers, |pool| pool)
}

fn store_with(workers: usize, change: impl FnOnce(Pool) -> Pool) -> Keyway {
    let config = KeywayConfig::new(vec![change(Pool::store("main"))]);
    Keyway::start(KEYWAY, config.with_server("workers", &workers.to_string()))
}

fn eval(client: &mut Client, script: &str) -> Value {
    client.command(&["EVAL", script, "2", "key1", "key2", "arg1", "arg2"])
}

/// Returns the raw reply, for comparisons byte for byte.
fn raw(client: &mut Client, words: &[&str]) -> Vec<u8> {
    client.send(&encode(words));
    client.raw_reply()
}

/// Each line of these files is one script.
const SCRIPTS: &str = include_str!("store_scripts/scripts.txt");

#[test]
fn scripts_are_answered_byte_for_byte_as_by_redis_in_both_protocols() {
    let _watch = watchdog(Duration::from_secs(300), "the comparison");
    let (keyway, bare) = (store(1), RedisServer::start());
    for protocol in ["2", "3"] {
        let (mut ours, mut theirs) = (keyway.client(0), bare.client());
        ours.command(&["HELLO", protocol]);
        theirs.command(&["HELLO", protocol]);
        for script in SCRIPTS.lines().filter(|line| !line.is_empty()) {
            ours.command(&["FLUSHALL"]);
            theirs.command(&["FLUSHALL"]);
            let words = ["EVAL", script, "2", "key1", "key2", "arg1", "arg2"];
            let (ours, theirs) = (raw(&mut ours, &words), raw(&mut theirs, &words));
            let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(show(&ours), show(&theirs), "RESP{protocol}: {script}");
        }
    }
}

#[test]
fn commands_about_scripts_are_answered_as_by_redis() {
    let _watch = watchdog(Duration::from_secs(60), "the commands");
    let (keyway, bare) = (store(1), RedisServer::start());
    let (mut ours, mut theirs) = (keyway.client(0), bare.client());
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let upper = sha.to_ascii_uppercase();
    for words in [
        &["EVALSHA", sha, "0"][..],
        &["SCRIPT", "LOAD", "return 1"],
        &["SCRIPT", "EXISTS", sha, "x", &upper],
        &["EVALSHA", sha, "0"],
        &["EVALSHA", &upper, "0"],
        &["EVALSHA_RO", sha, "0"],
        &["SCRIPT", "FLUSH", "NOW"],
        &["SCRIPT", "FLUSH", "ASYNC"],
        &["SCRIPT", "EXISTS", sha],
        &["EVALSHA", sha, "0"],
        &["EVALSHA", "short", "0"],
        &["EVAL", "return 1"],
        &["EVAL", "return 1", "x"],
        &["EVAL", "return 1", "-1"],
        &["EVAL", "return 1", "2", "a"],
        &["EVAL_RO", "return redis.call('set', KEYS[1], 1)", "1", "k"],
        &["EVAL_RO", "return redis.call('publish', 'a', 'b')", "0"],
        &["EVAL_RO", "return redis.call('get', KEYS[1])", "1", "k"],
        &["EVAL", "#!lua flags=no-writes\nreturn redis.call('set', KEYS[1], 1)", "1", "k"],
        &["EVAL", "#!lua flags=no-writes,allow-stale,no-cluster,allow-oom\nreturn 7", "0"],
        &["EVAL", "#!lua\nreturn redis.call('set', KEYS[1], 1)", "1", "k"],
        &["EVAL_RO", "#!lua\nreturn 1", "0"],
        &["EVAL", "#!lua name=x\nreturn 1", "0"],
        &["EVAL", "#!lua flags=none\nreturn 1", "0"],
        &["EVAL", "#!python\nreturn 1", "0"],
        &["EVAL", "#!lua", "0"],
        &["EVAL", "#!lua\n\nreturn redis.call('nope')", "0"],
        &["SCRIPT", "LOAD", "return ="],
        &["SCRIPT", "KILL"],
        &["SCRIPT", "NOPE"],
        &["MULTI"],
        &["EVAL", "redis.call('set', 'a', 1) return redis.call('incr', KEYS[1])", "1", "n"],
        &["GET", "n"],
        &["SCRIPT", "LOAD", "return 1"],
        &["EVALSHA", sha, "0"],
        &["EVAL", "return redis.call('info') ~= ''", "0"],
        &["EVAL", "return redis.call('dbsize')", "0"],
        &["EXEC"],
        &["DBSIZE"],
    ] {
        let (ours, theirs) = (raw(&mut ours, words), raw(&mut theirs, words));
        let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(show(&ours), show(&theirs), "{words:?}");
    }
    assert!(ours.words("SCRIPT DEBUG YES").error_text().contains("refused"));
}

#[test]
fn libraries_and_functions_are_those_of_redis() {
    const LIBRARY: &str = "#!lua name=mylib\n
        local function put(keys, args) return redis.call('set', keys[1], args[1]) end
        redis.register_function('put', put)
        redis.register_function{function_name = 'look', description = 'looks', flags = {'no-writes'},
          callback = function(keys, args) return redis.call('get', keys[1]) end}";
    let _watch = watchdog(Duration::from_secs(60), "the functions");
    let (keyway, bare) = (store(1), RedisServer::start());
    let (mut ours, mut theirs) = (keyway.client(0), bare.client());
    let dump = {
        theirs.command(&["FUNCTION", "LOAD", LIBRARY]);
        let dump = theirs.command(&["FUNCTION", "DUMP"]);
        theirs.command(&["FUNCTION", "FLUSH"]);
        dump.bytes().to_vec()
    };
    let text = |words: &[&str]| words.iter().map(|it| it.as_bytes().to_vec()).collect::<Vec<_>>();
    let load = |code: &str| text(&["FUNCTION", "LOAD", code]);
    let line = |line: &str| line.split(' ').map(|it| it.as_bytes().to_vec()).collect::<Vec<_>>();
    let restore = |policy: &str| {
        let mut words = text(&["FUNCTION", "RESTORE"]);
        words.push(dump.clone());
        words.push(policy.into());
        words
    };
    for words in [
        line("FCALL put 1 k v"),
        load(LIBRARY),
        load(LIBRARY),
        text(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]),
        text(&["FUNCTION", "LOAD", "NOPE", LIBRARY]),
        line("FCALL put 1 k v"),
        line("FCALL look 1 k"),
        line("FCALL_RO look 1 k"),
        line("FCALL_RO put 1 k v"),
        line("FCALL put 1"),
        line("FCALL put x"),
        line("FCALL put -1"),
        line("FUNCTION STATS"),
        line("FUNCTION LIST LIBRARYNAME other"),
        line("FUNCTION LIST NOPE"),
        restore("APPEND"),
        restore("REPLACE"),
        restore("FLUSH"),
        restore("NOPE"),
        text(&["FUNCTION", "RESTORE", "payload"]),
        line("FCALL put 1 k v2"),
        line("FUNCTION KILL"),
        line("FUNCTION DELETE nope"),
        line("FUNCTION DELETE mylib"),
        line("FUNCTION FLUSH NOPE"),
        line("FUNCTION FLUSH SYNC"),
        line("FUNCTION LIST"),
        load("return 1"),
        load("#!lua name=x"),
        load("#!lua name=a-b\nreturn 1"),
        load("#!lua\nreturn 1"),
        load("#!js name=x\nreturn 1"),
        load("#!lua name=x\nreturn 1"),
        load("#!lua name=x\nreturn ="),
        load("#!lua name=x\nredis.register_function('a b', function() end)"),
        load("#!lua name=x\nredis.register_function('a')"),
        load("#!lua name=x\nredis.register_function('a', 1)"),
        load("#!lua name=x\nredis.register_function{function_name = 'a'}"),
        load(
            "#!lua name=x\nredis.register_function('f', function() return redis.call('nope') end)",
        ),
        line("FCALL f 0"),
        load("#!lua name=y\nredis.register_function('f', function() return 1 end)"),
        load(
            "#!lua name=y\nredis.register_function('g', function(keys, args) return {#keys, #args, args[2]} end)",
        ),
        line("FCALL g 1 a b c"),
        line("FCALL G 1 a b c"),
        line("FCALL_RO G 0"),
        load("#!lua name=w\nredis.register_function('G', function() return 1 end)"),
        load("#!lua name=Y\nredis.register_function('g2', function() return 1 end)"),
        load(
            "#!lua name=w\nredis.register_function{function_name = 'Y', callback = function() return 5 end}",
        ),
        line("FCALL y 0"),
        line("FUNCTION LIST LIBRARYNAME W"),
        line("FUNCTION DELETE W"),
        line("FUNCTION DELETE Y"),
        line("FUNCTION DELETE w"),
        line("FUNCTION LIST LIBRARYNAME y* WITHCODE"),
        load("#!lua name=z\nredis.register_function('h', function() return KEYS end)"),
        line("FCALL h 0"),
    ] {
        let raw = |client: &mut Client| {
            client.send(&encode(&words));
            String::from_utf8_lossy(&client.raw_reply()).into_owned()
        };
        let shown: Vec<_> = words.iter().map(|it| String::from_utf8_lossy(it)).collect();
        assert_eq!(raw(&mut ours), raw(&mut theirs), "{shown:?}");
    }
    // A dump of one is accepted by the other.
    ours.command(&["FUNCTION", "FLUSH"]);
    ours.command(&["FUNCTION", "LOAD", LIBRARY]);
    let dump = ours.command(&["FUNCTION", "DUMP"]).bytes().to_vec();
    let words: [&[u8]; 4] = [b"FUNCTION", b"RESTORE", &dump, b"FLUSH"];
    assert_eq!(theirs.command(&words), Value::simple("OK"));
    assert_eq!(theirs.words("FCALL put 1 k v"), Value::simple("OK"));
    // Every worker has them.
    let keyway = store(2);
    keyway.client(0).command(&["FUNCTION", "LOAD", LIBRARY]);
    for nth in 0..20 {
        let mut client = keyway.client(0);
        let value = nth.to_string();
        let put = client.command(&["FCALL", "put", "1", "k", &value]);
        assert_eq!(put, Value::simple("OK"));
        assert_eq!(client.words("FCALL_RO look 1 k"), Value::bulk(&value));
    }
}

/// Malformed libraries. Of several faults in a library one is reported.
const MALFORMED: &str = include_str!("store_scripts/malformed_libraries.txt");

#[test]
fn malformed_libraries_are_refused_for_the_reason_that_redis_gives() {
    let _watch = watchdog(Duration::from_secs(120), "malformed libraries");
    let (keyway, bare) = (store(1), RedisServer::start());
    let (mut ours, mut theirs) = (keyway.client(0), bare.client());
    let known = "#!lua name=known\nredis.register_function('known', function() return 1 end)";
    for client in [&mut ours, &mut theirs] {
        client.command(&["FUNCTION", "LOAD", known]);
    }
    let mut differing = Vec::new();
    for line in MALFORMED.lines().filter(|line| !line.is_empty()) {
        let code = line.replace("\\n", "\n").replace("\\0", "\0").replace("\\t", "\t");
        for words in [&["FUNCTION", "LOAD", &code][..], &["FUNCTION", "LOAD", "REPLACE", &code]] {
            for client in [&mut ours, &mut theirs] {
                client.words("FUNCTION DELETE x");
            }
            let (ours, theirs) = (raw(&mut ours, words), raw(&mut theirs, words));
            if ours != theirs {
                let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
                differing.push(format!("{line}\n  {}\n  {}", show(&ours), show(&theirs)));
            }
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn what_scripts_come_to_is_in_the_metrics() {
    let _watch = watchdog(Duration::from_secs(60), "the metrics");
    let keyway = store_with(1, |pool| pool.with("script_time_max", "\"100ms\""));
    let mut client = keyway.client(0);
    eval(&mut client, "return 1");
    eval(&mut client, "return redis.call('nope')");
    eval(&mut client, "while true do end");
    let metrics = keyway.metrics();
    let value = |name: &str| metrics.sum(&format!("keyway_script_{name}"), &[]);
    assert_eq!(value("runs_total"), 3.0);
    assert_eq!(value("errors_total"), 2.0);
    assert_eq!(value("ended_runs_total"), 1.0);
    assert_eq!(value("cached_scripts"), 3.0);
    assert!((0.1..30.0).contains(&value("run_seconds_total")));
    assert!((10_000.0..4e6).contains(&value("memory_bytes")));
}

/// Runs `work` on as many threads, each with a client, until `done`.
fn beside(
    keyway: &Keyway,
    count: usize,
    work: impl Fn(usize, &mut Client) + Sync,
    done: impl FnOnce(),
) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for nth in 0..count {
            let (is_done, work) = (&is_done, &work);
            scope.spawn(move || {
                let mut client = keyway.client(0);
                while !is_done.load(Ordering::Relaxed) {
                    work(nth, &mut client);
                }
            });
        }
        done();
        is_done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn scripts_that_touch_keys_in_any_order_neither_wait_in_a_circle_nor_lose_an_increment() {
    const RUNS: i64 = 400;
    let _watch = watchdog(Duration::from_secs(180), "keys in opposite orders");
    let keyway = store(2);
    let walk = |order: &str| {
        format!(
            "local sum = 0 for i = {order} do sum = sum + redis.call('incr', 'n' .. i) end \
             return sum"
        )
    };
    let (up, down) = (walk("1, 20"), walk("20, 1, -1"));
    beside(
        &keyway,
        4,
        |nth, client| match nth {
            0 => drop(client.words("MSET a 1 n-a 2 n-b 3 n-c 4 n-d 5")),
            1 => drop(client.words("RENAME a b")),
            2 => {
                for line in ["MULTI", "INCR n1", "INCRBY n1 -1", "SET n-a 2", "EXEC"] {
                    client.words(line);
                }
            }
            _ => {
                client.words("SUNION x y z n-x n-y");
                client.command(&["EVAL", "return redis.call('dbsize')", "0"]);
                client.words("DBSIZE");
                client.words("SWAPDB 3 4");
            }
        },
        || {
            std::thread::scope(|scope| {
                for script in [&up, &down, &up, &down] {
                    let keyway = &keyway;
                    scope.spawn(move || {
                        let mut client = keyway.client(0);
                        for _ in 0..RUNS {
                            let sum = client.command(&["EVAL", script, "0"]);
                            // All counters are equal whenever a script begins.
                            let Value::Integer(sum) = sum else { panic!("{sum:?}") };
                            assert_eq!(sum % 20, 0);
                        }
                    });
                }
            });
        },
    );
    let mut client = keyway.client(0);
    for nth in 1..=20 {
        assert_eq!(client.words(&format!("GET n{nth}")), Value::bulk((4 * RUNS).to_string()));
    }
}

#[test]
fn what_runs_too_long_is_ended_and_says_what_became_of_it() {
    let _watch = watchdog(Duration::from_secs(120), "scripts without end");
    let keyway = store_with(1, |pool| {
        pool.with("script_time_max", "\"100ms\"").with("script_memory_max", "\"4MiB\"")
    });
    let mut client = keyway.client(0);
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() while true do xpcall(f, f) end end f()",
        "while true do coroutine.wrap(function() while true do end end)() end",
        "while true do pcall(redis.call, 'get', 'x') end",
        "return string.find(string.rep('a', 30000), string.rep('a*', 20) .. 'b')",
        "local t = {} for i = 1, 100 do t = {t, t} end return t",
        "local t = {} for i = 1, 100 do t = {t, t} end return cjson.encode(t)",
        "while true do collectgarbage() end",
        "local s = string.rep('x', 1e6) local t = {} for i = 1, 5000 do t[i] = s end table.sort(t)",
    ] {
        // Processor time is measured, because other processes may use the processor meanwhile.
        let before = cpu_seconds(keyway.process().pid());
        let text = eval(&mut client, script).error_text();
        let taken = cpu_seconds(keyway.process().pid()) - before;
        // On a machine whose processors are shared the same work takes more time, and an error that
        // unwinds a deep stack or frees much is not cut short.
        assert!(taken < 5.0, "{script}: {taken} s of 0.1 s");
        let is_ended = text.contains("script_time_max (100ms)") && text.contains("written nothing");
        assert!(is_ended || text.contains("script_memory_max (4 MiB)"), "{script}: {text}");
    }
    let text = eval(&mut client, "redis.call('set', 'w', 1) while true do end");
    assert!(text.error_text().contains("it had written, and what it wrote stays"), "{text:?}");
    assert_eq!(client.words("GET w"), Value::bulk("1"));
    drop(client);
    let keyway = store_with(1, |pool| {
        pool.with("script_time_max", "\"20s\"").with("script_memory_max", "\"4MiB\"")
    });
    let mut client = keyway.client(0);
    for script in [
        "local t = {} while true do t[#t + 1] = tostring(#t) end",
        "local s = 'x' while true do s = s .. s end",
        "local s = 'x' while true do pcall(function() s = s .. s end) end",
    ] {
        let text = eval(&mut client, script).error_text();
        assert!(text.contains("script_memory_max (4 MiB)"), "{script}: {text}");
        assert_eq!(eval(&mut client, "return 1"), Value::Integer(1), "a new state");
    }
}

#[test]
fn hostile_scripts_harm_nobody() {
    let _watch = watchdog(Duration::from_secs(120), "hostile scripts");
    let keyway = store_with(1, |pool| pool.with("script_time_max", "\"300ms\""));
    let mut client = keyway.client(0);
    for script in include_str!("store_scripts/hostile.txt").lines().filter(|it| !it.is_empty()) {
        eval(&mut client, script);
        assert_eq!(eval(&mut client, "return #redis.sha1hex('x')"), Value::Integer(40), "{script}");
        let shared =
            "return type(string.rep) .. type(redis.call) .. type(getmetatable('').__index)";
        assert_eq!(eval(&mut client, shared), Value::bulk("functionfunctiontable"), "{script}");
    }
}

#[test]
fn a_script_is_killed_from_elsewhere_unless_it_has_written() {
    let _watch = watchdog(Duration::from_secs(120), "kills");
    let keyway = store_with(2, |pool| pool.with("script_time_max", "\"20s\""));
    let kill = |expected: &str| {
        // Clients of the busy worker are answered once it is free.
        wait_until("the script is found", BOUND, || {
            let mut client = keyway.client(0);
            client.set_reply_within(Duration::from_secs(25));
            let reply = client.words("SCRIPT KILL");
            match &reply {
                Value::Error(_) => reply.error_text().starts_with(expected),
                _ => expected == "OK",
            }
        });
    };
    assert!(keyway.client(0).words("SCRIPT KILL").error_text().starts_with("NOTBUSY"));
    let begin = |script: &str| {
        let mut client = keyway.client(0);
        client.set_reply_within(Duration::from_secs(60));
        client.send(&encode(&["EVAL", script, "0"]));
        client
    };
    // The kernel decides whether the other client is on the busy worker. If it is, the script's
    // time is over first.
    let mut busy = begin("while true do end");
    let ended = std::thread::scope(|scope| {
        let reply = scope.spawn(move || busy.reply().error_text());
        let is_over = AtomicBool::new(false);
        while !reply.is_finished() && !is_over.load(Ordering::Relaxed) {
            let mut client = keyway.client(0);
            client.set_reply_within(Duration::from_secs(25));
            let killed = client.words("SCRIPT KILL") == Value::simple("OK");
            is_over.store(killed, Ordering::Relaxed);
        }
        reply.join().expect("a reply")
    });
    let is_killed = ended.contains("Script killed by user with SCRIPT KILL.");
    assert!(is_killed || ended.contains("script_time_max"), "{ended}");
    kill("NOTBUSY");
}

#[test]
fn who_waits_watches_tracks_or_listens_is_told_what_a_script_did() {
    let _watch = watchdog(Duration::from_secs(60), "what is told");
    let keyway = store_with(2, |pool| pool.with("notify_keyspace_events", "\"KEA\""));
    let mut client = keyway.client(0);
    // A blocked client is served after the script.
    let mut waiting = keyway.client(0);
    waiting.send(&encode(&["BLPOP", "queue", "0"]));
    wait_until("it waits", BOUND, || {
        keyway.client(0).words("INFO clients").text().contains("blocked_clients:1")
    });
    eval(&mut client, "redis.call('rpush', 'queue', 'a') redis.call('rpush', 'queue', 'b')");
    assert_eq!(waiting.reply(), Value::Array(vec![Value::bulk("queue"), Value::bulk("a")]));
    // WATCH sees the script's change.
    let mut watching = keyway.client(0);
    watching.words("WATCH w");
    eval(&mut client, "redis.call('set', 'w', 1)");
    watching.words("MULTI");
    watching.words("PING");
    assert_eq!(watching.words("EXEC"), Value::NilArray);
    // Keyspace events and messages are sent.
    let mut listening = keyway.client(0);
    listening.words("SUBSCRIBE __keyspace@0__:e news");
    listening.reply();
    assert_eq!(
        eval(&mut client, "redis.call('set', 'e', 1) return redis.call('publish', 'news', 'x')"),
        Value::Integer(1)
    );
    let mut heard = [format!("{:?}", listening.reply()), format!("{:?}", listening.reply())];
    heard.sort();
    assert!(heard[0].contains("set") && heard[1].contains("news"), "{heard:?}");
    // Tracking covers keys read in a script, and keys written in one.
    let mut tracking = keyway.client(0);
    tracking.words("HELLO 3");
    tracking.words("CLIENT TRACKING ON");
    tracking.command(&["EVAL", "return redis.call('get', 'e')", "0"]);
    eval(&mut client, "redis.call('set', 'e', 2)");
    let told = wait_for("an invalidation", BOUND, || tracking.try_reply().ok());
    assert!(format!("{told:?}").contains("invalidate"), "{told:?}");
}

#[test]
fn info_counts_scripts_and_functions() {
    let keyway = store(1);
    let mut client = keyway.client(0);
    client.words("EVAL return+1 0");
    client.command(&["SCRIPT", "LOAD", "return 2"]);
    let library = "#!lua name=l\nredis.register_function('f', function() return 1 end)";
    client.command(&["FUNCTION", "LOAD", library]);
    let text = client.words("INFO memory").text();
    for field in [
        "number_of_cached_scripts:1\r",
        "number_of_functions:1\r",
        "number_of_libraries:1\r",
        "used_memory_scripts:",
    ] {
        assert!(text.contains(field), "{field} in {text}");
    }
}

#[test]
fn a_queue_in_the_manner_of_bullmq_works() {
    let _watch = watchdog(Duration::from_secs(60), "the queue");
    let keyway = store(2);
    let add = "
        local args = cmsgpack.unpack(ARGV[1])
        local prefix, name, opts = args[1], args[2], cmsgpack.unpack(ARGV[2])
        local id = redis.call('INCR', prefix .. 'id')
        local job = prefix .. id
        redis.call('HMSET', job, 'name', name, 'data', ARGV[3], 'opts', cjson.encode(opts))
        if opts.delay and opts.delay > 0 then
          redis.call('ZADD', KEYS[2], opts.delay * 0x1000 + bit.band(id, 0xfff), id)
        else
          redis.call('LPUSH', KEYS[1], id)
        end
        redis.call('XADD', prefix .. 'events', '*', 'event', 'added', 'jobId', id)
        return id .. ''";
    let take = "
        local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[2])
        if not id then return {0, 0} end
        return {redis.call('HGETALL', ARGV[1] .. id), id}";
    let mut client = keyway.client(0);
    // {"bull:", "mail"} and {delay = 0}, as MessagePack.
    let args = [&b"\x92\xa5bull:\xa4mail"[..], b"\x81\xa5delay\x00"];
    let words: [&[u8]; 8] =
        [b"EVAL", add.as_bytes(), b"2", b"bull:wait", b"bull:late", args[0], args[1], b"{}"];
    assert_eq!(client.command(&words), Value::bulk("1"));
    let sha = client.command(&["SCRIPT", "LOAD", take]).text();
    let taken = client.command(&["EVALSHA", &sha, "2", "bull:wait", "bull:active", "bull:"]);
    let taken = format!("{taken:?}");
    assert!(taken.contains("mail") && taken.contains("delay"), "{taken}");
    let nothing = client.command(&["EVALSHA", &sha, "2", "bull:wait", "bull:active", "bull:"]);
    assert_eq!(nothing, Value::Array(vec![Value::Integer(0), Value::Integer(0)]));
}

#[test]
fn without_room_a_script_that_writes_is_refused_before_it_has() {
    let _watch = watchdog(Duration::from_secs(60), "a full store");
    let keyway = store_with(1, |pool| {
        pool.with("memory_max", "\"4MiB\"").with("eviction", "\"noeviction\"")
    });
    let mut client = keyway.client(0);
    let value = "x".repeat(100_000);
    let is_full = |client: &mut Client, nth: usize| {
        let reply = client.command(&["SET", &format!("k{nth}"), &value]);
        matches!(reply, Value::Error(_))
    };
    assert!((0..100).any(|nth| is_full(&mut client, nth)), "it is full at some time");
    let write = "return redis.call('set', 'x', ARGV[1])";
    let refused = client.command(&["EVAL", write, "0", &value]);
    assert!(refused.error_text().starts_with("OOM command not allowed"), "{refused:?}");
    let declared = client.command(&["EVAL", &format!("#!lua\n{write}"), "0", &value]);
    assert!(declared.error_text().starts_with("OOM allow-oom flag is not set"), "{declared:?}");
    assert_eq!(
        client.command(&["EVAL", "return redis.call('dbsize') > 0", "0"]),
        Value::Integer(1)
    );
}

#[test]
fn scripts_keep_to_quotas_until_they_have_written_and_others_are_evicted_for_them_then() {
    let _watch = watchdog(Duration::from_secs(60), "quotas");
    let quotas = "[{ prefix = \"session:\", memory_max = \"100KiB\" }, \
                  { prefix = \"page:\", items_max = 20 }]";
    let keyway = store_with(1, |pool| pool.with("quotas", quotas).with("memory_max", "\"64MiB\""));
    let mut client = keyway.client(0);
    let write = "return redis.call('set', 'session:large', string.rep('x', 200000))";
    let refused = eval(&mut client, write).error_text();
    let words = "OOM command not allowed when the quota of keys 'session:*' is used up.";
    assert!(refused.starts_with(words), "{refused}");
    let first = format!("redis.call('set', 'free', 1) {write}");
    assert_eq!(eval(&mut client, &first), Value::simple("OK"), "it is not left half done");
    assert_eq!(client.words("EXISTS free session:large"), Value::Integer(1), "it is evicted");
    eval(&mut client, "for i = 1, 300 do redis.call('set', 'page:' .. i, i) end");
    assert_eq!(client.words("DBSIZE"), Value::Integer(21));
    // The reply is as outside, so also within a transaction.
    client.words("MULTI");
    client.command(&["EVAL", write, "0"]);
    let replies = client.words("EXEC");
    assert!(replies.array()[0].text().starts_with(words), "{replies:?}");
}

#[test]
fn what_a_script_leaves_to_be_told_is_bounded_by_its_memory() {
    let _watch = watchdog(Duration::from_secs(120), "what is told");
    let keyway = store_with(1, |pool| {
        pool.with("notify_keyspace_events", "\"KEA\"")
            .with("script_memory_max", "\"4MiB\"")
            .with("script_time_max", "\"60s\"")
    });
    let mut client = keyway.client(0);
    let words = "what is to be told of it takes more than script_memory_max (4 MiB); it had \
                 written, and what it wrote stays";
    let text = eval(&mut client, "while true do redis.call('set', 'k', 1) end").error_text();
    assert!(text.contains(words), "{text}");
    let mut listening = keyway.client(0);
    listening.words("SUBSCRIBE news");
    let publish = "while true do redis.call('publish', 'news', string.rep('x', 1000)) end";
    let text = eval(&mut client, publish).error_text();
    assert!(text.contains("what is to be told of it takes more"), "{text}");
    assert_eq!(client.words("GET k"), Value::bulk("1"));
    // A key that is read many times is invalidated once.
    let mut tracking = keyway.client(0);
    tracking.words("HELLO 3");
    tracking.words("CLIENT TRACKING ON");
    let read = "for i = 1, 200000 do redis.call('get', 'k') end return 1";
    assert_eq!(eval(&mut tracking, read), Value::Integer(1));
    let read = "for i = 1, 200000 do redis.call('get', 'k' .. i) end return 1";
    let text = eval(&mut tracking, read).error_text();
    assert!(text.contains("what is to be told of it takes more"), "{text}");
}
