//! Users: which users may log in, what each may do, and that no password is ever shown.

use std::time::Duration;

use keyway_testkit::{
    Keyway, KeywayConfig, Pool, RedisServer, TempDir, Value, encode_words, http_get, python,
    run_keyway, run_tool, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const APP_RULES: &str = "+@read +set +mset +del +eval +publish +subscribe +psubscribe +@transaction \
                         +@connection -strlen +config|get +sort ~app:* %R~ro:* &news.* \
                         (+incr ~tmp:*)";

fn user(name: &str, rules: &str, password: &str, more: &str) -> String {
    format!("[[user]]\nname = {name:?}\nrules = {rules:?}\npassword = {password:?}\n{more}\n")
}

fn app() -> String {
    user("app", APP_RULES, "sesame-app", "")
}

fn ops() -> String {
    user("ops", "+@all ~* &*", "sesame-ops", "")
}

/// Starts a redis-server that has the same user.
fn redis_with_app() -> RedisServer {
    let redis = RedisServer::start();
    let mut admin = redis.client();
    let rules = APP_RULES.split_once(" (").expect("there is a selector");
    let mut words = vec!["ACL", "SETUSER", "app", "on", ">sesame-app"];
    words.extend(rules.0.split(' ').filter(|word| !word.is_empty()));
    let selector = format!("({}", rules.1);
    words.push(&selector);
    assert_eq!(admin.command(&words), Value::simple("OK"));
    redis
}

/// Requests that both get, in one connection each.
const CONVERSATIONS: &[&[&str]] = &[
    &["GET app:1", "SET app:1 a", "GET app:1", "GET x", "SET x 1", "SET ro:1 x", "GET ro:1"],
    &["MGET app:1 ro:1", "MGET app:1 x", "MSET app:1 1 app:2 2", "MSET app:1 1 ro:2 2"],
    &["DEL app:1 app:2", "DEL app:1 other", "STRLEN app:1", "FLUSHALL", "KEYS *", "CONFIG SET a b"],
    &["INCR tmp:1", "INCR app:1", "INCR other", "GET tmp:1", "SET app:1 x GET", "SET ro:1 x GET"],
    &["PUBLISH news.1 x", "PUBLISH other x", "SUBSCRIBE other", "PSUBSCRIBE news.*"],
    &["PSUBSCRIBE news.1*", "SUBSCRIBE news.1 other"],
    &["MULTI", "SET app:1 1", "SET x 1", "EXEC", "GET app:1", "MULTI", "SET app:9 1", "EXEC"],
    &["WATCH x", "WATCH app:1", "UNWATCH", "SORT app:l BY nosort", "SORT app:l BY w_*"],
    &["SORT app:l BY app:* GET x", "SORT app:l STORE app:m BY ro:*", "SORT app:l GET #"],
    &["SORT app:l GET x_*", "SORT app:l LIMIT 0 1", "EVAL x -1 app:1", "EVAL x 1", "EVAL x 1 y"],
    &[
        "AUTH app wrong",
        "AUTH nobody x",
        "AUTH app",
        "ACL WHOAMI",
        "SELECT 0",
        "DEBUG OBJECT app:1",
    ],
    &["EXISTS x", "TOUCH x", "OBJECT ENCODING x", "TYPE x", "DUMP x", "EXPIRE app:1 1", "nothing"],
    &["COPY app:1 app:2", "RENAME app:1 app:2", "XADD app:s * a b", "BLPOP app:l 0", "HELLO 9"],
];

#[test]
fn a_user_may_do_what_it_may_on_redis_and_is_told_so_in_the_same_words() {
    let _watch = watchdog(Duration::from_secs(60), "users beside those of redis");
    let redis = redis_with_app();
    let servers = RedisServer::start_many(2);
    let pools = vec![Pool::store("store"), Pool::over("servers", &servers)];
    let config = KeywayConfig::new(pools).with_tables(&(app() + &ops()));
    let keyway = Keyway::start(KEYWAY, config);
    let mut refused = 0;
    for place in [0, 1] {
        for conversation in CONVERSATIONS {
            let (mut ours, mut theirs) = (keyway.client(place), redis.client());
            for line in ["GET x", "AUTH app sesame-app"].iter().chain(*conversation) {
                let (our, their) = (ours.words(line), theirs.words(line));
                refused += usize::from(their.is_error());
                let (our_text, their_text) = (format!("{our:?}"), format!("{their:?}"));
                let is_about_rights = |reply: &Value| {
                    let text = reply.error_text();
                    text.starts_with("NO") || text.contains("insufficient ACL permissions")
                };
                match their.is_error() && is_about_rights(&their) {
                    true => assert_eq!(our, their, "{place}: {line}"),
                    false => {
                        let is_refused = ["NOPERM", "insufficient ACL permissions"]
                            .iter()
                            .any(|words| our_text.contains(words));
                        assert!(!is_refused, "{line}: {our_text}, {their_text}")
                    }
                }
            }
        }
        keyway.client(place).pipeline(&["AUTH ops sesame-ops", "FLUSHALL"]);
        redis.client().words("FLUSHALL");
    }
    assert!(refused > 60, "{refused}");
}

#[test]
fn reading_some_keys_and_writing_all_is_not_reading_all() {
    let _watch = watchdog(Duration::from_secs(30), "sorts by patterns");
    let some = user("some", "+@all %W~* %R~app:* &*", "sesame-some", "");
    let all = user("all", "+@all %W~app:* %R~* &*", "sesame-all", "");
    let config = KeywayConfig::new(vec![Pool::store("store")]).with_tables(&(some + &all + &ops()));
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.client(0);
    client.pipeline(&["AUTH ops sesame-ops", "RPUSH app:l 1 2", "MSET secret:1 2 secret:2 1"]);
    for (line, option) in
        [("SORT app:l BY secret:*", "BY"), ("SORT app:l BY nosort GET secret:*", "GET")]
    {
        client.words("AUTH some sesame-some");
        let denied =
            format!("ERR {option} option of SORT denied due to insufficient ACL permissions.");
        assert_eq!(client.words(line).error_text(), denied);
        client.words("AUTH all sesame-all");
        assert!(!client.words(line).is_error(), "{line}");
    }
    client.words("AUTH some sesame-some");
    assert_eq!(client.words("SORT app:l BY nosort LIMIT 0 1"), client.words("LRANGE app:l 0 0"));
}

#[test]
fn a_user_whose_passwords_are_reset_is_let_in_by_none_of_them() {
    let _watch = watchdog(Duration::from_secs(30), "passwords that are reset");
    // This is the SHA-256 of "old".
    let old = "#cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4";
    let resets = ["nopass resetpass", "OLD resetpass", "OLD nopass resetpass", "nopass reset on"];
    let directory = TempDir::new();
    let file = directory.path().join("keyway.toml");
    let mut tables = ops();
    let names = ["default", "app1", "app2", "app3"];
    for (name, reset) in names.into_iter().zip(resets) {
        let rules = format!("{} ~* +@all", reset.replace("OLD", old));
        tables += &user(name, &rules, "sesame-new", "");
        // Only another password lets such a user in.
        let text = format!(
            "[[listener]]\nbind = \"tcp://127.0.0.1:6390\"\npool = \"store\"\n\
             [pool.store]\nkind = \"store\"\n[[user]]\nname = {name:?}\nrules = {rules:?}\n"
        );
        std::fs::write(&file, text).expect("a file");
        let checked = run_keyway(KEYWAY, &["check", &file.to_string_lossy()]);
        assert!(!checked.status.success(), "{reset}: {}", checked.text);
        assert!(checked.text.contains("has no password"), "{reset}: {}", checked.text);
    }
    let config = KeywayConfig::new(vec![Pool::store("store")]).with_tables(&tables);
    let keyway = Keyway::start(KEYWAY, config);
    assert!(keyway.client(0).words("GET k").error_text().starts_with("NOAUTH "));
    for name in names {
        let mut client = keyway.client(0);
        for wrong in ["old", "any"] {
            let text = client.words(&format!("AUTH {name} {wrong}")).error_text();
            assert!(text.starts_with("WRONGPASS "), "{name}: {text}");
        }
        assert_eq!(client.words(&format!("AUTH {name} sesame-new")), Value::simple("OK"));
    }
}

#[test]
fn a_script_on_the_store_may_do_what_its_user_may() {
    let _watch = watchdog(Duration::from_secs(30), "scripts of users");
    let redis = redis_with_app();
    let config = KeywayConfig::new(vec![Pool::store("store")]).with_tables(&app());
    let keyway = Keyway::start(KEYWAY, config);
    let (mut ours, mut theirs) = (keyway.client(0), redis.client());
    ours.words("AUTH app sesame-app");
    theirs.words("AUTH app sesame-app");
    for script in [
        "return redis.call('set', 'app:1', 'x')",
        "return redis.call('set', 'x', 'x')",
        "return redis.call('strlen', 'app:1')",
        "return redis.call('publish', 'x', 'x')",
        "return redis.pcall('get', 'x')",
        "return redis.call('get', 'app:1')",
    ] {
        let line = ["EVAL", script, "0"];
        assert_eq!(ours.command(&line), theirs.command(&line), "{script}");
    }
}

#[test]
fn a_user_may_have_a_pool_of_its_own() {
    let _watch = watchdog(Duration::from_secs(30), "pools of users");
    let servers = RedisServer::start_many(1);
    let tables = ops()
        + &user("one", "+@all ~* &*", "sesame-1", "pool = \"one\"")
        + &user("two", "+@all ~* &*", "sesame-2", "pool = \"two\"");
    let pools = vec![Pool::store("main"), Pool::store("one"), Pool::over("two", &servers)];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_tables(&tables));
    let mut client = keyway.client(0);
    for (name, password) in [("ops", "ops"), ("one", "1"), ("two", "2")] {
        let login = format!("AUTH {name} sesame-{password}");
        let replies = client.pipeline(&[&login, &format!("SET k {name}"), "GET k", "DBSIZE"]);
        assert_eq!(replies[2], Value::bulk(name), "{replies:?}");
        assert_eq!(replies[3], Value::Integer(1), "{replies:?}");
    }
    assert_eq!(servers[0].client().words("GET k"), Value::bulk("two"));
    for (name, password) in [("ops", "ops"), ("one", "1"), ("two", "2"), ("one", "1")] {
        client.words(&format!("AUTH {name} sesame-{password}"));
        assert_eq!(client.words("GET k"), Value::bulk(name));
    }
    client.words("MULTI");
    assert!(client.words("AUTH two sesame-2").error_text().contains("another pool"));
    client.words("DISCARD");
    assert_eq!(client.words("AUTH two sesame-2"), Value::simple("OK"));
    assert_eq!(client.words("RESET"), Value::simple("RESET"));
    assert!(client.words("GET k").error_text().starts_with("NOAUTH "));
    let text = keyway.client(0).words("HELLO 2 AUTH one sesame-1");
    assert!(!text.is_error(), "{text:?}");
}

#[test]
fn clients_of_memcached_are_the_same_users() {
    let _watch = watchdog(Duration::from_secs(30), "users of memcached");
    let pool = Pool::store("pages").spoken_to_in("memcached");
    let config = KeywayConfig::new(vec![pool]).with_tables(&(app() + &ops()));
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.memcached_client(0);
    let mut say = |stream: &str| {
        client.send(stream.as_bytes());
        client.line()
    };
    assert_eq!(say("get app:1\r\n"), "CLIENT_ERROR unauthenticated");
    assert_eq!(say("set auth 0 0 10\r\napp wrong.\r\n"), "CLIENT_ERROR authentication failure");
    assert_eq!(say("set auth 0 0 14\r\nops sesame-app\r\n"), "CLIENT_ERROR authentication failure");
    assert_eq!(say("set auth 0 0 14\r\napp sesame-app\r\n"), "STORED");
    assert_eq!(say("set app:1 0 0 1\r\nx\r\n"), "STORED");
    assert_eq!(say("delete app:1\r\n"), "DELETED");
    for denied in [
        "get x\r\n",
        "get app:1 x\r\n",
        "set x 0 0 1\r\nx\r\n",
        "set ro:1 0 0 1\r\nx\r\n",
        "append app:1 0 0 1\r\nx\r\n",
        "incr app:1 1\r\n",
        "touch app:1 1\r\n",
        "flush_all\r\n",
        "stats\r\n",
        "mg app:1 N30 v\r\n",
    ] {
        let line = say(denied);
        assert!(line.starts_with("CLIENT_ERROR NOPERM this user"), "{denied}: {line}");
    }
    assert_eq!(say("get ro:1\r\n"), "END");
    assert!(say("version\r\n").starts_with("VERSION "));
}

#[test]
fn a_value_that_is_too_long_replaces_what_its_client_may_set_though_it_may_not_delete() {
    let _watch = watchdog(Duration::from_secs(30), "values that are too long");
    let writer = user("writer", "+set ~app:*", "sesame", "");
    let pool = Pool::store("pages").spoken_to_in("memcached");
    let config = KeywayConfig::new(vec![pool]).with_tables(&(writer + &ops()));
    let keyway = Keyway::start(KEYWAY, config);
    let mut ops = keyway.memcached_client(0);
    let mut writer = keyway.memcached_client(0);
    ops.send(b"set auth 0 0 14\r\nops sesame-ops\r\n");
    assert_eq!(ops.line(), "STORED");
    writer.send(b"set auth 0 0 13\r\nwriter sesame\r\n");
    assert_eq!(writer.line(), "STORED");
    for key in ["app:1", "other"] {
        ops.send(format!("set {key} 0 0 3\r\nold\r\n").as_bytes());
        assert_eq!(ops.line(), "STORED");
        let len = 2 << 20;
        writer.send(format!("set {key} 0 0 {len}\r\n").as_bytes());
        writer.send(&vec![b'x'; len]);
        writer.send(b"\r\n");
        assert_eq!(writer.line(), "SERVER_ERROR object too large for cache");
    }
    writer.send(b"delete app:1\r\n");
    assert!(writer.line().starts_with("CLIENT_ERROR NOPERM"));
    ops.send(b"get app:1\r\n");
    assert_eq!(ops.line(), "END", "nobody reads what was to be replaced");
    ops.send(b"get other\r\n");
    assert_eq!(ops.line(), "VALUE other 0 3", "it may not be written");
}

#[test]
fn what_is_over_stands_in_no_login_s_way() {
    let _watch = watchdog(Duration::from_secs(30), "logins behind what is over");
    let servers = RedisServer::start_many(2);
    let tables = ops() + &user("one", "+@all ~* &*", "sesame-1", "pool = \"one\"");
    let split =
        Pool::of_kind("main", "read-write-split").with("write", "\"w\"").with("read", "\"r\"");
    let pools = vec![
        split,
        Pool::over("w", &servers[..1]),
        Pool::over("r", &servers[1..]),
        Pool::store("one"),
    ];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_tables(&tables));
    let mut client = keyway.client(0);
    for (begin, end) in [("WATCH k", "UNWATCH"), ("MULTI", "DISCARD")] {
        assert_eq!(client.words("AUTH ops sesame-ops"), Value::simple("OK"));
        assert_eq!(client.words(begin), Value::simple("OK"));
        assert!(client.words("AUTH one sesame-1").error_text().contains("another pool"), "{begin}");
        assert_eq!(client.words(end), Value::simple("OK"));
        assert_eq!(client.words("AUTH one sesame-1"), Value::simple("OK"), "{begin}");
        client.words("SET k of-one");
        assert_eq!(client.words("DBSIZE"), Value::Integer(1), "{begin}");
    }
    // Each pool has as many clients as were connected.
    let clients = |pool: &str| {
        keyway.metrics().sum("keyway_client_connections", &[&format!("pool=\"{pool}\"")])
    };
    assert!((clients("one") - 1.0).abs() < 0.1 && clients("main") < 0.1 && clients("w") < 0.1);
    assert_eq!(servers[0].client().words("DBSIZE"), Value::Integer(0));
}

#[test]
fn logins_that_fail_are_counted_and_bounded() {
    let _watch = watchdog(Duration::from_secs(30), "failed logins");
    let tables = app() + &ops() + "[limits]\nfailed_logins_max = 3\n";
    let keyway =
        Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("store")]).with_tables(&tables));
    let mut client = keyway.client(0);
    let mut said = Vec::new();
    for _ in 0..20 {
        let text = client.words("AUTH app old").error_text();
        assert!(text.starts_with("WRONGPASS "), "the same again tells nobody anything: {text}");
    }
    for number in 0..6 {
        said.push(client.words(&format!("AUTH app wrong{number}")).error_text());
    }
    assert!(said[..2].iter().all(|text| text.starts_with("WRONGPASS ")), "{said:?}");
    assert!(said.iter().any(|text| text.starts_with("ERR too many logins")), "{said:?}");
    assert_eq!(client.words("AUTH ops sesame-ops"), Value::simple("OK"), "another user");
    // An unknown user gets the same error.
    let mut of_nobody: Vec<String> = Vec::new();
    for number in 0..6 {
        of_nobody.push(client.words(&format!("AUTH nobody wrong{number}")).error_text());
    }
    assert_eq!(of_nobody[..3], [said[0].as_str(); 3]);
    assert_eq!(of_nobody[4..], said[4..]);
    let metrics = http_get(keyway.admin(), "/metrics").body;
    for (fault, count) in [("user", "3"), ("disabled", "0")] {
        let line = format!("fault=\"{fault}\"}} {count}");
        let found = metrics.lines().any(|it| {
            it.starts_with("keyway_login_failures_total{listener=") && it.ends_with(&line)
        });
        assert!(found, "{line}");
    }
    let log = format!("{:?}", client.words("ACL LOG"));
    assert!(log.contains("(unknown)") && log.contains("\"app\""), "{log}");
}

fn slow_hash(password: &str) -> String {
    let line = format!("{password}\n");
    let hash =
        run_tool(KEYWAY, &["hash-password", "--slow"], line.as_bytes(), Duration::from_secs(10));
    hash.expect_success("keyway hash-password").stdout.trim().to_owned()
}

#[test]
fn passwords_may_be_hashed_so_that_it_takes_long() {
    let _watch = watchdog(Duration::from_secs(60), "slow hashes");
    let slow = format!(
        "[[user]]\nname = \"slow\"\nrules = \"+@all ~* &*\"\npassword_hashes = [{:?}, {:?}]\n",
        slow_hash("sesame-slow"),
        slow_hash("sesame-other"),
    );
    let pools = vec![Pool::store("store"), Pool::store("pages").spoken_to_in("memcached")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_tables(&(ops() + &slow)));
    let mut client = keyway.client(0);
    for line in ["AUTH slow sesame-slow", "AUTH slow sesame-other", "AUTH ops sesame-ops"] {
        assert_eq!(client.words(line), Value::simple("OK"), "{line}");
    }
    assert_eq!(client.words("ACL WHOAMI"), Value::bulk("ops"));
    for line in ["AUTH slow sesame-ops", "AUTH nobody sesame-slow", "AUTH slow wrong"] {
        assert!(client.words(line).error_text().starts_with("WRONGPASS "), "{line}");
    }
    // Requests after a login wait for it, and are answered in their place.
    let replies = keyway.client(0).pipeline(&[
        "PING",
        "HELLO 2 AUTH slow sesame-slow",
        "ACL WHOAMI",
        "AUTH slow sesame-wrong",
        "ACL WHOAMI",
    ]);
    assert!(replies[0].is_error() && !replies[1].is_error(), "{replies:?}");
    assert!(replies[3].error_text().starts_with("WRONGPASS "), "{replies:?}");
    assert_eq!((&replies[2], &replies[4]), (&Value::bulk("slow"), &Value::bulk("slow")));
    let mut client = keyway.memcached_client(1);
    client.send(b"set auth 0 0 9\r\nslow nono\r\nset auth 0 0 16\r\nslow sesame-slow\r\nget a\r\n");
    let lines: Vec<String> = (0..3).map(|_| client.line()).collect();
    assert_eq!(lines, ["CLIENT_ERROR authentication failure", "STORED", "END"]);
    // Many clients log in at once, and one leaves before its login is decided.
    keyway.client(0).send(&encode_words("AUTH slow sesame-goes"));
    let mut crowd: Vec<_> = (0..50).map(|_| keyway.client(0)).collect();
    for client in &mut crowd {
        client.send(&encode_words("AUTH slow sesame-slow"));
    }
    for client in &mut crowd {
        assert_eq!(client.reply(), Value::simple("OK"));
    }
}

#[test]
fn who_tries_passwords_that_take_long_harms_no_others() {
    let _watch = watchdog(Duration::from_secs(60), "logins that take long");
    let slow = format!(
        "[[user]]\nname = \"slow\"\nrules = \"+@all ~* &*\"\npassword_hashes = [{:?}]\n",
        slow_hash("sesame-slow"),
    );
    let config = KeywayConfig::new(vec![Pool::store("store")]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config.with_tables(&(ops() + &slow)));
    let mut crowd: Vec<_> = (0..40).map(|_| keyway.client(0)).collect();
    for (number, client) in crowd.iter_mut().enumerate() {
        client.send(&encode_words(&format!("AUTH nobody{number} sesame-{number}")));
    }
    // Requests of others are answered in between, by the only worker.
    let mut ops = keyway.client(0);
    assert_eq!(ops.words("AUTH ops sesame-ops"), Value::simple("OK"));
    assert_eq!(ops.words("SET a 1"), Value::simple("OK"));
    let texts: Vec<String> = crowd.iter_mut().map(|client| client.reply().error_text()).collect();
    let is_refused = |text: &&String| text.starts_with("ERR too many logins");
    assert!(texts.iter().all(|text| text.starts_with("WRONGPASS ") || is_refused(&text)));
    assert!(texts.iter().filter(is_refused).count() >= 20, "{texts:?}");
}

#[test]
fn stock_clients_of_memcached_log_in_as_users() {
    let _watch = watchdog(Duration::from_secs(60), "SASL and pymemcache");
    let pool = Pool::store("pages").spoken_to_in("memcached");
    let keyway =
        Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_tables(&(app() + &ops())));
    let script = r#"
import pymemcache, socket, struct, sys
at = ("127.0.0.1", int(sys.argv[1]))

def refused(call):
    try:
        return call() is None
    except Exception:
        return True

client = pymemcache.Client(at, default_noreply=False)
assert client.set("auth", "app sesame-app")
assert client.set("app:1", b"x") and client.get("app:1") == b"x"
assert refused(lambda: client.get("x"))
client = pymemcache.Client(at, default_noreply=False)
assert refused(lambda: client.set("auth", "ops sesame-app"))

# The binary protocol as it is written down: opcode, key, value to status and value.
class Binary:
    def __init__(self):
        self.socket = socket.create_connection(at)
        self.file = self.socket.makefile("rb")
    def ask(self, opcode, key=b"", value=b"", extras=b""):
        total = len(extras) + len(key) + len(value)
        head = struct.pack("!BBHBBHIIQ", 0x80, opcode, len(key), len(extras), 0, 0, total, 7, 0)
        self.socket.sendall(head + extras + key + value)
        magic, _, key, extras, _, status, total, opaque, _ = struct.unpack("!BBHBBHIIQ", self.file.read(24))
        assert magic == 0x81 and opaque == 7
        return status, self.file.read(total)[key + extras:]

GET, SET, LIST, AUTH, STEP = 0, 1, 0x20, 0x21, 0x22
b = Binary()
assert b.ask(LIST) == (0, b"PLAIN"), b.ask(LIST)
assert b.ask(GET, b"app:1")[0] == 0x20
for wrong in (b"\0app\0wrong", b"\0ops\0sesame-app", b"app\0sesame-app", b"", b"\0\0\0\0"):
    assert b.ask(AUTH, b"PLAIN", wrong)[0] == 0x20, wrong
assert b.ask(AUTH, b"CRAM-MD5", b"\0app\0sesame-app")[0] == 0x20
assert b.ask(STEP, b"PLAIN", b"\0app\0wrong")[0] == 0x20
assert b.ask(AUTH, b"PLAIN", b"\0app\0sesame-app")[0] == 0
assert b.ask(GET, b"app:1") == (0, b"x")
assert b.ask(SET, b"app:2", b"y", b"\0" * 8)[0] == 0
status, text = b.ask(GET, b"other")
assert status not in (0, 1), (status, text)
# One who is somebody else from now on, and stays so when that fails.
assert b.ask(AUTH, b"PLAIN", b"\0ops\0sesame-ops")[0] == 0
assert b.ask(GET, b"other")[0] == 1
assert b.ask(AUTH, b"PLAIN", b"\0app\0wrong")[0] == 0x20
assert b.ask(GET, b"other")[0] == 1
"#;
    let port = keyway.address(0).port().to_string();
    let _ = run_tool(&python(), &["-c", script, &port], b"", Duration::from_secs(30))
        .expect_success("clients of memcached");
}

#[test]
fn stock_clients_log_in_as_users() {
    let _watch = watchdog(Duration::from_secs(60), "redis-py");
    let config = KeywayConfig::new(vec![Pool::store("store")]).with_tables(&(app() + &ops()));
    let keyway = Keyway::start(KEYWAY, config);
    let script = r#"
import redis, sys
port = int(sys.argv[1])
def client(user, password, **more):
    return redis.Redis(port=port, username=user, password=password, decode_responses=True, **more)
for protocol in (2, 3):
    app = client("app", "sesame-app", protocol=protocol)
    ops = client("ops", "sesame-ops", protocol=protocol)
    assert ops.acl_whoami() == "ops"
    assert ops.acl_users() == ["app", "default", "ops"], ops.acl_users()
    found = ops.acl_getuser("app")
    assert "on" in found["flags"] and found["passwords"], found
    assert "get" in ops.acl_cat("read")
    assert app.set("app:1", "x") and app.get("app:1") == "x"
    for call in (lambda: app.get("x"), lambda: app.flushall(), lambda: app.publish("other", "x")):
        try:
            call()
        except redis.exceptions.NoPermissionError:
            continue
        raise SystemExit("allowed")
    try:
        client("app", "wrong", protocol=protocol).ping()
        raise SystemExit("let in")
    except redis.exceptions.AuthenticationError:
        pass
    try:
        redis.Redis(port=port, protocol=protocol).get("app:1")
        raise SystemExit("let in without a name")
    except (redis.exceptions.AuthenticationError, redis.exceptions.ResponseError):
        pass
    assert ops.acl_log()[0]["reason"] in ("auth", "channel"), ops.acl_log()
"#;
    let port = keyway.address(0).port().to_string();
    let _ = run_tool(&python(), &["-c", script, &port], b"", Duration::from_secs(30))
        .expect_success("redis-py");
}
