//! The admin API and `keyway ctl`: what an operator can do to a running Keyway, and which clients
//! may not.

use keyway_testkit::certificates::{Authority, CertificateFiles};
use keyway_testkit::{
    Keyway, KeywayConfig, Pool, RedisServer, Replicated, ToolOutput, Value, http_get, http_post,
    run_keyway, wait_until, watchdog,
};
use serde_json::{Value as Json, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
pub(crate) const SOON: Duration = Duration::from_secs(20);
pub(crate) const WITHIN: Duration = Duration::from_secs(120);
pub(crate) const TOKEN: &str = "open-sesame-open-sesame";

/// Runs `keyway ctl` against a Keyway. Returns its exit status and all its output.
fn ctl(keyway: &Keyway, arguments: &[&str]) -> (i32, String) {
    let admin = keyway.admin().to_string();
    let all: Vec<&str> = ["ctl", "--admin", &admin].into_iter().chain(arguments.to_vec()).collect();
    outcome(run_keyway(KEYWAY, &all))
}

fn outcome(output: ToolOutput) -> (i32, String) {
    (output.status.code().expect("it ended by itself"), output.text)
}

/// Runs `keyway ctl`, which must succeed, and returns its output.
fn done(keyway: &Keyway, arguments: &[&str]) -> String {
    let (status, text) = ctl(keyway, arguments);
    assert_eq!(status, 0, "{arguments:?}: {text}");
    text
}

/// Sends a request as it is written, and returns the status and the body of the reply.
fn raw(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a live socket");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a whole reply");
    let status = reply.get(9..12).and_then(|code| code.parse().ok()).expect("a status");
    (status, reply.to_ascii_lowercase())
}

/// Sends a request with these header lines and a JSON body.
pub(crate) fn asked(keyway: &Keyway, line: &str, headers: &str, body: &str) -> (u16, String) {
    let len = body.len();
    let request = format!("{line} HTTP/1.1\r\n{headers}content-length: {len}\r\n\r\n{body}");
    raw(keyway.admin(), &request)
}

pub(crate) const HERE: &str = "host: 127.0.0.1\r\n";
pub(crate) const CHANGE: &str =
    "host: 127.0.0.1\r\nkeyway-change: 1\r\ncontent-type: application/json\r\n";

/// Returns a pool of two servers named `s0` and `s1`. Health checks eject them and take them back
/// at once.
fn two_servers(servers: &[RedisServer]) -> Pool {
    let named = |(nth, server): (usize, &RedisServer)| format!("{}:1 s{nth}", server.address());
    let lines: Vec<String> = servers.iter().enumerate().map(named).collect();
    let ejection = "{ after_failures = 1, for = \"50ms\", rejoin = \"serve\" }";
    Pool::sharded("main", &lines).with("ejection", ejection)
}

#[test]
fn a_server_ejected_by_hand_stays_so_until_it_is_restored() {
    let _watch = watchdog(WITHIN, "eject and restore");
    let servers = RedisServer::start_many(2);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![two_servers(&servers)]));
    let mut client = keyway.client(0);
    let keys: Vec<String> = (0..50).map(|nth| format!("key:{nth}")).collect();
    keys.iter().for_each(|key| assert_eq!(client.command(&["SET", key, "1"]), Value::simple("OK")));
    let mut direct = servers[0].client();
    let calls = |direct: &mut keyway_testkit::Client| {
        let text = direct.words("INFO commandstats").text().to_owned();
        let line = text.lines().find(|line| line.starts_with("cmdstat_get:")).unwrap_or_default();
        let count = line.split("calls=").nth(1).and_then(|rest| rest.split(',').next());
        count.map_or(0, |count| count.parse::<u64>().expect("a number"))
    };
    assert!(done(&keyway, &["pools"]).contains("main  sharded  2        2       "));
    let text = done(&keyway, &["eject", "main", "s0"]);
    assert!(text.contains("is ejected, until it is restored"), "{text}");
    assert!(done(&keyway, &["eject", "main", "s0"]).contains("was ejected already"));
    wait_until("nothing goes there any more", SOON, || {
        let before = calls(&mut direct);
        keys.iter().for_each(|key| assert!(!client.command(&["GET", key]).is_error()));
        calls(&mut direct) == before
    });
    // This lasts many times as long as an ejection by health checks.
    let before = calls(&mut direct);
    for key in (0..100).flat_map(|_| &keys) {
        assert!(!client.command(&["GET", key]).is_error());
    }
    assert_eq!(calls(&mut direct), before, "{}", keyway.process().log());
    let text = done(&keyway, &["servers", "--pool", "main"]);
    let line = text.lines().find(|line| line.contains(" s0 ")).expect("its line");
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(fields[3..5], ["ejected", "operator"], "{text}");
    assert!(done(&keyway, &["servers", "--json"]).contains("\"by_hand\":true"));
    assert!(done(&keyway, &["pools"]).contains("main  sharded  2        1       "));
    // A server is found by its address as well as by its name.
    let address = servers[0].address().to_string();
    assert!(done(&keyway, &["restore", "main", &address]).contains("in use again"));
    assert!(done(&keyway, &["restore", "main", "s0"]).contains("in use already"));
    wait_until("it is asked again", SOON, || {
        let before = calls(&mut direct);
        keys.iter().for_each(|key| assert!(!client.command(&["GET", key]).is_error()));
        calls(&mut direct) > before
    });
    // Whichever way it was named, the reply has the name that metrics have.
    let text = done(&keyway, &["eject", "main", &address]);
    let told = format!("server s0 ({address}) of pool main is ejected, until it is restored");
    assert!(text.contains(&told), "{text}");
    let text = done(&keyway, &["restore", "main", &address]);
    assert!(text.contains(&format!("server s0 ({address}) of pool main is in use")), "{text}");
    let log = keyway.process().log();
    let fields = format!("backend=\"s0\" address=\"{address}\"");
    for what in ["ejected on an operator's word", "back in use on an operator's word"] {
        let lines: Vec<_> = log.lines().filter(|line| line.contains(what)).collect();
        assert!(lines.len() == 2 && lines.iter().all(|line| line.contains(&fields)), "{log}");
    }
    for wrong in [["eject", "main", "s2"], ["restore", "mian", "s0"]] {
        let (status, text) = ctl(&keyway, &wrong);
        assert!(status == 1 && text.contains("there are: ") && !text.contains("404"), "{text}");
    }
}

#[test]
fn the_page_the_api_and_ctl_tell_the_same_of_readiness() {
    let _watch = watchdog(WITHIN, "readiness");
    let mut servers = RedisServer::start_many(3);
    servers[1].kill();
    servers[2].kill();
    let pools = vec![Pool::over("half", &servers[..2]), Pool::over("down", &servers[2..])];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let page = || http_get(keyway.admin(), "/readyz");
    let half = "pool \"half\": 1 of 2 servers failing or out of use: ";
    wait_until("both are known", SOON, || {
        let page = page();
        page.status == 503 && page.body.contains(half) && !page.body.contains("not reached yet")
    });
    let lines: Vec<String> = page().body.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let api = http_get(keyway.admin(), "/v1/ready");
    assert_eq!(api.status, 503, "{}", api.body);
    let api: Json = serde_json::from_str(&api.body).expect("JSON");
    assert_eq!((&api["errors"], &api["failing"]), (&json!([lines[0]]), &json!([lines[1]])));
    assert!(api["unknown"].is_null(), "nothing is unknown: {api}");
    let (status, text) = ctl(&keyway, &["ready"]);
    let told: Vec<&str> = text.lines().map(str::trim).collect();
    assert_eq!((status, &told[1..]), (1, &[&*lines[0], &*lines[1]][..]), "{text}");
    servers[2].restart();
    wait_until("the other serves again", SOON, || page().status == 200);
    assert_eq!(done(&keyway, &["ready"]), page().body);
}

#[test]
fn a_primary_ejected_by_hand_is_not_asked_as_no_other_has_its_keys() {
    let _watch = watchdog(WITHIN, "eject a primary");
    let servers = Replicated::start(1);
    let addresses: Vec<String> = servers.addresses().iter().map(ToString::to_string).collect();
    let listed: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    let pool = Pool::of_kind("main", "replicated")
        .with("servers", &format!("[{}]", listed.join(", ")))
        .with("read_from", "\"prefer-replica\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    wait_until("it serves", SOON, || client.words("SET a 1") == Value::simple("OK"));
    wait_until("the replica has it", SOON, || servers.ask(1, "GET a") == Value::bulk("1"));
    done(&keyway, &["eject", "main", &addresses[0]]);
    let mut text = String::new();
    wait_until("writes are refused", SOON, || {
        let reply = client.words("SET a 2");
        text = if reply.is_error() { reply.error_text().to_owned() } else { String::new() };
        !text.is_empty()
    });
    assert!(
        text.contains("is out of use on an operator's word; the request was not sent"),
        "{text}"
    );
    assert_eq!(client.words("GET a"), Value::bulk("1"), "the replica is read");
    assert_eq!(servers.ask(0, "GET a"), Value::bulk("1"), "it was not sent");
    let refused = keyway.metrics();
    assert!(refused.sum("keyway_backend_errors_total", &["fault=\"backend_ejected\""]) >= 1.0);
    done(&keyway, &["restore", "main", &addresses[0]]);
    wait_until("writes go there again", SOON, || client.words("SET a 3") == Value::simple("OK"));
    done(&keyway, &["eject", "main", &addresses[1]]);
    assert_eq!(client.words("GET a"), Value::bulk("3"), "the primary is read");
}

#[test]
fn what_pages_in_a_browser_can_send_changes_nothing() {
    let _watch = watchdog(WITHIN, "browsers");
    let servers = RedisServer::start_many(2);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![two_servers(&servers)]));
    let body = "{\"pool\":\"main\",\"server\":\"s0\"}";
    let eject = "POST /v1/servers/eject";
    for (line, headers, body, status) in [
        (eject, CHANGE, "", 400),
        (eject, CHANGE, "{\"pool\":\"main\",\"server\":\"s0\",\"force\":1}", 400),
        (eject, CHANGE, "{\"pool\":\"\",\"server\":\"s0\"}", 400),
        ("POST /v1/servers/eject?pool=main", CHANGE, body, 400),
        ("POST /v1/servers/eject", HERE, body, 403),
        (eject, "host: 127.0.0.1\r\ncontent-type: application/json\r\n", body, 403),
        (eject, &*CHANGE.replace("127.0.0.1", "evil.example"), body, 403),
        (eject, &format!("{CHANGE}origin: http://evil.example\r\n"), body, 403),
        (eject, &format!("{CHANGE}sec-fetch-site: same-site\r\n"), body, 403),
        (eject, &CHANGE.replace("application/json", "text/plain"), body, 415),
        (eject, CHANGE, &"x".repeat(100_000), 413),
        ("DELETE /v1/servers/eject", CHANGE, "", 405),
        ("OPTIONS /v1/servers/eject", CHANGE, "", 405),
        ("GET /v1/pools", "host: evil.example\r\n", "", 403),
        ("GET /v1/nothing", HERE, "", 404),
        ("GET /v1", HERE, "", 404),
        ("GET /v1/pools?x=1", HERE, "", 400),
        ("GET /v1/connections?limit=0", HERE, "", 400),
        ("GET /v1/connections?limit=+5", HERE, "", 400),
        ("GET /v1/connections?pool=none", HERE, "", 404),
    ] {
        let (answered, reply) = asked(&keyway, line, headers, body);
        assert_eq!(answered, status, "{line} {headers}: {reply}");
        assert!(reply.contains("application/problem+json"), "{reply}");
        assert!(!reply.contains("access-control"), "{reply}");
        assert!(reply.contains("cache-control: no-store") && reply.contains("nosniff"), "{reply}");
        assert!(status != 405 || reply.contains("allow: post"), "{reply}");
    }
    let old = "POST /backends/restore?pool=main&backend=s0";
    assert_eq!(asked(&keyway, old, HERE, "").0, 200);
    assert_eq!(asked(&keyway, old, &format!("{HERE}origin: null\r\n"), "").0, 403);
    assert_eq!(asked(&keyway, old, "host: evil.example\r\n", "").0, 403);
    assert!(!http_get(keyway.admin(), "/v1/pools").body.contains("operator"));
    assert_eq!(asked(&keyway, eject, CHANGE, body).0, 200);
    assert!(http_get(keyway.admin(), "/v1/pools").body.contains("operator"));
}

/// docs/admin.md states which changes need the header and a JSON body.
#[test]
fn a_change_needs_what_its_path_asks_for_and_no_page_behind_it() {
    let _watch = watchdog(WITHIN, "headers of changes");
    let servers = RedisServer::start_many(1);
    let pools = vec![two_servers(&servers), Pool::store("local")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let marked = format!("{HERE}keyway-change: 1\r\n");
    let restore = "POST /servers/restore?pool=main&server=s0";
    let old_name = "POST /backends/restore?pool=main&backend=s0";
    let kill = "POST /scripts/kill?pool=local";
    for (line, headers, body, status) in [
        ("POST /v1/reload", &*marked, "no JSON", 200),
        ("POST /v1/reload", HERE, "", 403),
        ("POST /v1/servers/eject", &marked, "{\"pool\":\"main\",\"server\":\"s0\"}", 415),
        (restore, HERE, "", 200),
        (old_name, HERE, "", 200),
        (kill, HERE, "", 200),
    ] {
        let (answered, reply) = asked(&keyway, line, headers, body);
        assert_eq!(answered, status, "{line} {headers}: {reply}");
        let of_page = format!("{CHANGE}origin: http://127.0.0.1\r\n");
        assert_eq!(asked(&keyway, line, &of_page, body).0, 403, "{line} of a page");
    }
}

#[test]
fn with_a_token_nobody_changes_or_reads_anything_without_it() {
    let _watch = watchdog(WITHIN, "tokens");
    let files = CertificateFiles::default();
    let token = files.write("token", &format!("{TOKEN}\n"));
    let wrong = files.write("wrong", "open-sesame-open-sesamf");
    let config = KeywayConfig::new(vec![Pool::store("local")])
        .with_server("admin_token_file", &format!("{token:?}"));
    let keyway = Keyway::start(KEYWAY, config);
    for probe in ["/healthz", "/readyz", "/v1/health", "/v1/ready"] {
        assert_eq!(http_get(keyway.admin(), probe).status, 200, "{probe}");
    }
    for path in ["/metrics", "/backends", "/v1/pools", "/v1/openapi.json", "/v1/nothing"] {
        let reply = http_get(keyway.admin(), path);
        assert_eq!(reply.status, 401, "{path}");
        assert!(reply.headers.to_lowercase().contains("www-authenticate: bearer"), "{path}");
    }
    assert_eq!(http_post(keyway.admin(), "/scripts/kill?pool=local").status, 401);
    let (status, text) = ctl(&keyway, &["drain"]);
    assert!(status == 1 && text.contains("asks for a token"), "{text}");
    let (status, text) = ctl(&keyway, &["--token-file", &wrong.to_string_lossy(), "drain"]);
    assert!(status == 1 && text.contains("the token is wrong"), "{text}");
    assert!(done(&keyway, &["health"]).contains("ok"), "it does not drain");
    let text = done(&keyway, &["--token-file", &token.to_string_lossy(), "status"]);
    assert!(text.contains("version:") && text.contains("uptime_seconds:"), "{text}");
    let with = format!("authorization: Bearer {TOKEN}\r\nhost: keyway.example\r\n");
    assert_eq!(asked(&keyway, "GET /metrics", &with, "").0, 200);
    assert!(asked(&keyway, "GET /v1/openapi.json", &with, "").1.contains("\"openapi\": \"3.1.0\""));
    let all = keyway.process().log() + &run_keyway(KEYWAY, &["check", &config_of(&keyway)]).text;
    assert!(!all.contains("open-sesame"), "{all}");
}

fn config_of(keyway: &Keyway) -> String {
    keyway.directory().join("keyway.toml").to_string_lossy().into_owned()
}

#[test]
fn another_token_is_asked_for_after_a_reload() {
    let _watch = watchdog(WITHIN, "another token");
    let files = CertificateFiles::default();
    let token = files.write("token", TOKEN);
    let old = files.write("old", TOKEN).to_string_lossy().into_owned();
    let config = KeywayConfig::new(vec![Pool::store("local")])
        .with_server("admin_token_file", &format!("{token:?}"));
    let keyway = Keyway::start(KEYWAY, config);
    files.write("token", "open-barley-open-barley\n");
    let text = done(&keyway, &["--token-file", &old, "reload"]);
    assert!(text.contains("the token of admin changed"), "{text}");
    let (status, text) = ctl(&keyway, &["--token-file", &old, "status"]);
    assert!(status == 1 && text.contains("the token is wrong"), "{text}");
    let token = token.to_string_lossy().into_owned();
    assert!(done(&keyway, &["--token-file", &token, "reload"]).contains("nothing changed"));
    // A file that has no valid token is refused, and the token before stays valid.
    files.write("token", "short");
    let new = files.write("new", "open-barley-open-barley").to_string_lossy().into_owned();
    let (status, text) = ctl(&keyway, &["--token-file", &new, "reload"]);
    assert!(status == 1 && text.contains("less than 16 characters"), "{text}");
    done(&keyway, &["--token-file", &new, "status"]);
    // Requests of another machine, or without a host, are refused if only this machine is allowed.
    let path = keyway.directory().join("keyway.toml");
    let file = std::fs::read_to_string(&path).expect("its file");
    let without: Vec<&str> = file.lines().filter(|line| !line.contains("token_file")).collect();
    std::fs::write(&path, without.join("\n") + "\n").expect("its file");
    let text = done(&keyway, &["--token-file", &new, "reload"]);
    assert!(text.contains("admin_token_file"), "{text}");
    done(&keyway, &["status"]);
    assert!(!keyway.process().log().contains("open-"), "{}", keyway.process().log());
}

#[test]
fn an_address_that_others_reach_needs_a_token_or_certificates() {
    let files = CertificateFiles::default();
    let short = files.write("short", "open sesame");
    let check = |settings: &str| {
        let text = format!(
            "[server]\nadmin = \"tcp://0.0.0.0:9380\"\n{settings}\n[[listener]]\n\
             bind = \"tcp://127.0.0.1:6390\"\npool = \"local\"\n[pool.local]\nkind = \"store\"\n"
        );
        let file = files.write("keyway.toml", &text).to_string_lossy().into_owned();
        outcome(run_keyway(KEYWAY, &["check", &file]))
    };
    let (status, text) = check("");
    assert!(status == 2 && text.contains("can be reached from other machines"), "{text}");
    let (status, text) = check(&format!("admin_token_file = {short:?}"));
    assert!(status == 2 && text.contains("less than 16 characters"), "{text}");
    let token = files.write("token", TOKEN);
    let (status, text) = check(&format!("admin_token_file = {token:?}"));
    assert!(status == 0 && text.contains("sees the token"), "{text}");
}

#[test]
fn by_tls_only_who_has_a_certificate_is_answered() {
    let _watch = watchdog(WITHIN, "certificates");
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let files = CertificateFiles::default();
    files.add("server", &ours.issue(&["127.0.0.1"]));
    files.add("operator", &ours.issue(&["operator"]));
    files.add("stranger", &theirs.issue(&["operator"]));
    let ca = files.write("ca.pem", &ours.certificate);
    let path = |name: &str| files.path(name).to_string_lossy().into_owned();
    let tls = format!(
        "{{ cert_file = {:?}, key_file = {:?}, ca_file = {ca:?} }}",
        path("server.pem"),
        path("server.key")
    );
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("admin_tls", &tls);
    let keyway = Keyway::start(KEYWAY, config);
    let admin = format!("https://{}", keyway.admin());
    let ca = ca.to_string_lossy().into_owned();
    let ask = |more: &[&str]| {
        let all = ["ctl", "--admin", &admin, "--ca-file", &ca].into_iter().chain(more.to_vec());
        outcome(run_keyway(KEYWAY, &all.collect::<Vec<_>>()))
    };
    let shown = |name: &str| [path(&format!("{name}.pem")), path(&format!("{name}.key"))];
    let [cert, key] = shown("operator");
    let (status, text) = ask(&["--cert-file", &cert, "--key-file", &key, "log-level", "debug"]);
    assert!(status == 0 && text.contains("debug"), "{text}\n{}", keyway.process().log());
    let (status, text) = ask(&["--cert-file", &cert, "--key-file", &key, "reload"]);
    assert!(status == 0 && text.contains("nothing changed"), "{text}");
    let [cert, key] = shown("stranger");
    let (status, text) = ask(&["--cert-file", &cert, "--key-file", &key, "log-level", "error"]);
    assert_eq!(status, 3, "{text}");
    let (status, text) = ask(&["log-level", "error"]);
    assert_eq!(status, 3, "{text}");
    let (status, text) = ctl(&keyway, &["log-level", "error"]);
    assert_eq!(status, 3, "plain HTTP: {text}");
    let [cert, key] = shown("operator");
    let (_, text) = ask(&["--cert-file", &cert, "--key-file", &key, "log-level"]);
    assert_eq!(text, "debug\n", "nobody else has changed it");
    // As many silent connections as are served at once lose their places in time.
    let connect = |_| TcpStream::connect(keyway.admin()).expect("it listens");
    let _silent: Vec<TcpStream> = (0..64).map(connect).collect();
    let (status, text) = ask(&["--cert-file", &cert, "--key-file", &key, "connections"]);
    assert!(status == 0 && text.starts_with("id "), "{text}");
}

#[test]
fn a_drain_answers_what_is_in_flight_and_then_waits_or_ends() {
    let _watch = watchdog(WITHIN, "drain");
    let mut keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("local")]));
    let mut client = keyway.client(0);
    assert_eq!(client.words("CLIENT SETNAME worker-7"), Value::simple("OK"));
    let text = done(&keyway, &["connections"]);
    assert!(text.contains("worker-7") && text.contains("local"), "{text}");
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n");
    assert!(done(&keyway, &["drain", "--wait"]).contains("it waits"));
    assert_eq!(client.reply(), Value::simple("OK"));
    client.expect_closed();
    let (status, text) = ctl(&keyway, &["ready"]);
    assert!(status == 1 && text.contains("draining"), "{text}");
    let (status, text) = ctl(&keyway, &["health"]);
    assert!(status == 1 && text.contains("draining"), "{text}");
    wait_until("it waits", SOON, || keyway.process().log().contains("drained: waiting"));
    let address = keyway.address(0);
    assert!(TcpStream::connect(address).is_err(), "nobody is let in");
    assert!(done(&keyway, &["status", "--json"]).contains("\"draining\":true"));
    assert!(keyway.process_mut().is_running());
    assert!(done(&keyway, &["drain"]).contains("it ends"));
    assert!(keyway.process_mut().wait_exit(SOON).success());
    let (status, text) = ctl(&keyway, &["status"]);
    assert!(status == 3 && text.contains("no answer from"), "{text}");
}

#[test]
fn a_log_level_and_a_reload_are_told_in_the_log() {
    let _watch = watchdog(WITHIN, "log level");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("local")]));
    assert_eq!(done(&keyway, &["log-level"]), "info\n");
    assert_eq!(done(&keyway, &["log-level", "error"]), "error\n");
    wait_until("the change is told", SOON, || {
        keyway.process().log().contains("log level changed on an operator's word")
    });
    assert!(done(&keyway, &["reload"]).contains("nothing changed"));
    assert!(!keyway.process().log().contains("reloaded"), "it is said at level info");
    assert_eq!(done(&keyway, &["log-level", "info"]), "info\n");
    assert!(done(&keyway, &["reload"]).contains("nothing changed"));
    assert!(keyway.process().log().contains("reloaded: the configuration says what it said"));
    assert_eq!(done(&keyway, &["log-level"]), "info\n", "a reload that changes nothing keeps it");
    let (status, text) = ctl(&keyway, &["kill-script", "main"]);
    assert!(status == 1 && text.contains("no embedded store"), "{text}");
    assert_eq!(ctl(&keyway, &["log-level", "loud"]).0, 2);
    assert_eq!(ctl(&keyway, &["--admin", "ftp://x:1", "status"]).0, 2);
}

#[test]
fn a_slow_request_is_told_hop_by_hop_under_the_name_it_has_in_the_log() {
    let _watch = watchdog(WITHIN, "slow log");
    let servers = RedisServer::start_many(2);
    let pool = two_servers(&servers)
        .with("slowlog_log_slower_than", "\"20ms\"")
        .with("timeout", "\"20s\"");
    let config =
        KeywayConfig::new(vec![pool, Pool::store("local").with("script_time_max", "\"60s\"")])
            .with_server("log", "{ level = \"debug\" }");
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.client(0);
    assert_eq!(client.words("CLIENT SETNAME worker-7"), Value::simple("OK"));
    let spin = "local s = redis.call('TIME') local b = s[1] * 1000000 + s[2] repeat \
                local t = redis.call('TIME') until t[1] * 1000000 + t[2] - b > 1000000 return 1";
    let call = keyway_testkit::encode(&["EVAL", spin, "1", "a-key"]);
    client.send(&call);
    wait_until("the server has it", SOON, || {
        http_get(keyway.admin(), "/v1/servers").body.contains("\"in_flight\":1")
    });
    // The request waits for its turn on the same connection.
    let mut other = keyway.client(0);
    other.send(&call);
    assert_eq!(client.reply(), Value::Integer(1));
    assert_eq!(other.reply(), Value::Integer(1));
    let mut text = String::new();
    wait_until("both are told", SOON, || {
        text = done(&keyway, &["slow-log", "--pool", "main"]);
        text.lines().count() == 3
    });
    let rows: Vec<Vec<&str>> =
        text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let micros = |row: usize, column: usize| rows[row][column].parse::<u64>().expect("a number");
    assert!((0..2).all(|row| (900_000..10_000_000).contains(&micros(row, 5))), "server: {text}");
    assert!((0..2).any(|row| micros(row, 4) >= 50_000), "queue: {text}");
    assert!(rows.iter().all(|row| row[10] == "EVAL" && row[3].starts_with('s')), "{text}");
    let log = keyway.process().log();
    assert!(rows.iter().all(|row| log.contains(&format!("trace=\"{}\"", row[1]))), "{log}");
    assert!(!log.contains("a-key"), "no key is in the log: {log}");
    assert!(done(&keyway, &["slow-log", "--pool", "local"]).lines().count() == 1);
    // A store has notes of its own.
    let long = "local n = 0 for i = 1, 20000000 do n = n + i end return 1";
    let mut local = keyway.client(1);
    local.set_reply_within(WITHIN);
    assert_eq!(local.command(&["EVAL", long, "0"]), Value::Integer(1));
    let text = done(&keyway, &["slow-log", "--pool", "local"]);
    let words: Vec<&str> = text.lines().nth(1).expect("one").split_whitespace().collect();
    assert_eq!((words[2..4].to_vec(), words[10]), (vec!["local", "-"], "EVAL"), "{text}");
}

#[test]
fn who_is_refused_or_sends_no_body_keeps_no_place_for_long() {
    let _watch = watchdog(WITHIN, "bodies that do not come");
    let files = CertificateFiles::default();
    let token = files.write("token", TOKEN);
    let config = KeywayConfig::new(vec![Pool::store("local")])
        .with_server("admin_token_file", &format!("{token:?}"));
    let keyway = Keyway::start(KEYWAY, config);
    let heads = [
        "POST /v1/drain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n",
    ];
    // The replies come within half of the time of an exchange.
    assert_eq!(heads.map(|head| raw(keyway.admin(), head).0), [401, 408]);
}

/// The longest time for a probe: many monitors wait for one second.
const PROBE_TIME: Duration = Duration::from_secs(1);

/// Opens connections that hold places without a whole request: silent ones, and ones that stop in
/// the head or in the body.
fn half_requests(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let halves = [
        "",
        "GET /healthz HTT",
        "POST /v1/drain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf",
        // This begins like a TLS handshake: a record that does not end.
        "\u{16}\u{3}\u{1}\u{2}",
    ];
    let half = |nth: usize| {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(halves[nth % halves.len()].as_bytes()).expect("the system takes it");
        stream
    };
    (0..count).map(half).collect()
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the wait is timed from outside")]
fn a_probe_is_answered_behind_hundreds_of_requests_that_are_not_complete() {
    let _watch = watchdog(WITHIN, "half requests");
    // With more than the places and the system's queue together, later clients could not even
    // connect.
    const HALVES: usize = 180;
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("local")]));
    let _held = half_requests(keyway.admin(), HALVES);
    for path in ["/healthz", "/readyz", "/v1/health", "/metrics"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        let since = std::time::Instant::now();
        assert_eq!(raw(keyway.admin(), &request).0, 200, "{path}");
        assert!(since.elapsed() < PROBE_TIME, "{path}: {:?}", since.elapsed());
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the wait is timed from outside")]
fn a_probe_by_tls_is_answered_behind_handshakes_that_are_not_complete() {
    let _watch = watchdog(WITHIN, "half handshakes");
    let authority = Authority::new("ours");
    let files = CertificateFiles::default();
    files.add("server", &authority.issue(&["127.0.0.1"]));
    let ca = files.write("ca.pem", &authority.certificate);
    let path = |name: &str| files.path(name).to_string_lossy().into_owned();
    let tls =
        format!("{{ cert_file = {:?}, key_file = {:?} }}", path("server.pem"), path("server.key"));
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("admin_tls", &tls);
    let keyway = Keyway::start(KEYWAY, config);
    let _held = half_requests(keyway.admin(), 180);
    let (admin, ca) = (format!("https://{}", keyway.admin()), ca.to_string_lossy().into_owned());
    let since = std::time::Instant::now();
    let (status, text) =
        outcome(run_keyway(KEYWAY, &["ctl", "--admin", &admin, "--ca-file", &ca, "health"]));
    assert!(status == 0 && text == "ok\n", "{text}");
    assert!(since.elapsed() < PROBE_TIME, "{:?}", since.elapsed());
}

#[test]
fn the_settings_in_force_are_told_without_secrets() {
    let _watch = watchdog(WITHIN, "settings");
    let files = CertificateFiles::default();
    let token = files.write("token", TOKEN);
    let pool = Pool::sharded("main", &["127.0.0.1:1:1 alpha".to_owned()])
        .with("password", "\"sesame-of-the-server\"")
        .with("timeout", "\"1250ms\"");
    let config = KeywayConfig::new(vec![pool, Pool::store("local")])
        .with_server("admin_token_file", &format!("{token:?}"));
    let keyway = Keyway::start(KEYWAY, config);
    let (admin, token) = (keyway.admin().to_string(), token.display().to_string());
    let ask = |words: &[&str]| {
        let all = [&["ctl", "--admin", &admin, "--token-file", &token][..], words].concat();
        outcome(run_keyway(KEYWAY, &all))
    };
    assert_eq!(ask(&["log-level", "debug"]).0, 0);
    let (status, told) = ask(&["config"]);
    assert_eq!(status, 0, "{told}");
    let file = keyway.directory().join("keyway.toml");
    for wanted in [
        &format!("# {}\n", file.display()),
        "timeout = \"1250ms\"",
        "level = \"debug\"",
        "connect_timeout = ",
        "[limits]",
        "password = \"********\"",
        "admin_token_file = ",
    ] {
        assert!(told.contains(wanted), "{wanted:?} is missing in:\n{told}");
    }
    assert!(!told.contains("sesame"), "{told}");
    assert_eq!(ctl(&keyway, &["config"]).0, 1, "not without the token");
    // The settings follow a reload.
    let changed = std::fs::read_to_string(&file).expect("its file").replace("1250ms", "1350ms");
    std::fs::write(&file, changed).expect("its file");
    assert_eq!(ask(&["reload"]).0, 0);
    assert!(ask(&["config"]).1.contains("timeout = \"1350ms\""));
}

#[test]
fn a_port_for_clients_and_a_wrong_name_are_told_in_the_words_of_the_operator() {
    let _watch = watchdog(WITHIN, "words");
    let servers = RedisServer::start_many(1);
    let pools = vec![Pool::over("main", &servers), Pool::store("local")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    for port in [servers[0].address(), keyway.address(1)] {
        for words in [
            &["ctl", "--admin", &port.to_string(), "servers"][..],
            &["ctl", "--admin", &port.to_string(), "eject", "main", "127.0.0.1:1"],
        ] {
            let (status, text) = outcome(run_keyway(KEYWAY, words));
            assert_eq!(status, 3, "{text}");
            assert!(text.contains("speaks RESP") && text.contains("server.admin"), "{text}");
        }
        let words = ["top", "--once", "-a", &port.to_string()];
        let (_, text) = outcome(run_keyway(KEYWAY, &words));
        assert!(text.contains("speaks RESP"), "{text}");
    }
    for words in [&["eject", "main", "127.0.0.1:1"][..], &["restore", "local", "127.0.0.1:1"]] {
        let (status, text) = ctl(&keyway, words);
        assert!(status == 1 && text.contains("server"), "{text}");
        assert!(!text.contains("HTTP") && !text.contains("backend"), "{text}");
    }
    let (status, listed) = raw(keyway.admin(), "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    assert_eq!(status, 200);
    for path in ["/metrics", "/backends/restore", "/v1/servers/eject", "/v1/openapi.json"] {
        assert!(listed.contains(path), "{listed}");
    }
}
