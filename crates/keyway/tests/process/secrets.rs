//! No secret is ever shown: all output of Keyway is searched for the secrets it was given.

use keyway_testkit::certificates::CertificateFiles;
use keyway_testkit::{
    Keyway, KeywayConfig, Pool, RedisServer, Signal, TempDir, encode_words, free_address, http_get,
    memcached_packet, run_keyway, run_tool, serving_process, wait_for, wait_until, watchdog,
};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const WITHIN: Duration = Duration::from_secs(20);

/// The mark of secrets. Each secret has another word after it.
const MARK: &str = "sesame-";

/// All output, and the secrets that must not be in it.
struct Search {
    said: Vec<(String, String)>,
    secrets: Vec<String>,
}

impl Search {
    fn note(&mut self, place: &str, said: impl Into<String>) {
        self.said.push((place.to_owned(), said.into()));
    }

    /// Panics if the output has a secret.
    fn finish(&self) {
        assert!(self.said.iter().map(|(_, said)| said.len()).sum::<usize>() > 20_000);
        for (place, said) in &self.said {
            for secret in &self.secrets {
                let at = said.find(secret);
                let shown = |at: usize| said.get(at.saturating_sub(300)..at).unwrap_or_default();
                assert_eq!(at, None, "{place} tells {secret}: {}", at.map_or("", shown));
            }
        }
    }
}

fn hash(arguments: &[&str], password: &str) -> String {
    let all: Vec<&str> = ["hash-password"].iter().chain(arguments).copied().collect();
    let output = run_tool(KEYWAY, &all, format!("{password}\n").as_bytes(), WITHIN);
    output.expect_success("keyway hash-password").stdout.trim().to_owned()
}

fn write(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

/// Requests of a client, whose replies are searched.
const LINES: &[&str] = &[
    "AUTH sesame-listener",
    "AUTH sesame-wrong",
    "AUTH app sesame-app",
    "AUTH sesame-app app",
    "AUTH app sesame-app x",
    "HELLO 2 AUTH app sesame-app",
    "HELLO 2 AUTH sesame-app app",
    "HELLO 9 AUTH app sesame-app",
    "HELLO 3 SETNAME a AUTH app sesame-app x",
    "HELLO 2 SETNAME a AUTH app sesame-app",
    "AUTH slow sesame-slow",
    "AUTH slow sesame-slo",
    "AUTH hash sesame-hash",
    "SET x 1",
    "FLUSHALL",
    "ACL LIST",
    "AUTH file sesame-file",
    "CONFIG SET requirepass sesame-set",
    "ACL SETUSER app >sesame-set",
    "ACL DRYRUN app AUTH app sesame-app",
    "ACL LIST",
    "ACL GETUSER app",
    "ACL GETUSER hash",
    "ACL GETUSER slow",
    "ACL LOG 100",
    "ACL USERS",
    "INFO everything",
    "CONFIG GET *",
    "CONFIG GET requirepass",
    "CLIENT LIST",
    "CLIENT INFO",
    "SLOWLOG GET 100",
    "HOTKEYS GET COUNT 100",
    "HOTKEYS BIG COUNT 100",
    "COMMAND COUNT",
    "GET x",
    "MIGRATE 127.0.0.1 1 k 0 10 AUTH2 app sesame-app",
    "MULTI",
    "AUTH app sesame-app",
    "EXEC",
    "AUTH file sesame-file",
    "SLOWLOG GET 100",
    "SET last 1",
];

/// Wrong files, with a secret in a wrong place or near the mistake.
const WRONG: &[&str] = &[
    "[[user]]\nname = \"a\"\nrules = \"+@all ~*\"\npasswort = \"sesame-key\"\n",
    "[[user]]\nname = \"a\"\nrules = \"+@all ~*\"\npassword = [\"sesame-list\"]\n",
    "[[user]]\nname = \"a\"\nrules = \"+@all ~*\"\npassword_env = \"sesame-env var\"\n",
    "[[user]]\nname = \"a\"\nrules = \"+@all ~*\"\npassword_hashes = [\"sesame-hash\"]\n",
    "[[user]]\nname = \"a\"\nrules = \"+@all ~*\"\npassword_hashes = [\"$argon2id$sesame-hash\"]\n",
    "[[user]]\nname = \"a\"\nrules = \"+@all ~* >sesame-rule\"\n",
    "[[user]]\nname = \"a\"\nrules = \"+@all ~*\"\npassword = \"sesame-one\"\npassword = \"sesame-two\"\n",
    "[[user]]\nname = \"a\"\nrules = \"+@all ~*\"\npassword = \"sesame-open\n",
    "[[user]]\nname = \"a\"\nrules = \"+@all ~*\"\npassword = \"\"\npassword_file = \"/none\"\n",
];

fn everything_said_to(keyway: &Keyway, place: usize, search: &mut Search) {
    let mut monitor = keyway.client(place);
    for line in ["AUTH file sesame-file", "MONITOR"] {
        monitor.send(&encode_words(line));
        search.note(line, String::from_utf8_lossy(&monitor.raw_reply()));
    }
    let mut client = keyway.client(place);
    for line in LINES {
        client.send(&encode_words(line));
        let reply = String::from_utf8_lossy(&client.raw_reply()).into_owned();
        search.note(&format!("the reply to {}", line.replace(MARK, "")), reply);
    }
    loop {
        let line = String::from_utf8_lossy(&monitor.raw_reply()).into_owned();
        let is_last = line.contains("last");
        search.note("MONITOR", line);
        if is_last {
            return;
        }
    }
}

fn check(path: &Path, search: &mut Search, place: &str) -> String {
    let checked = run_keyway(KEYWAY, &["check", path.to_str().expect("UTF-8")]);
    search.note(place, checked.text.clone());
    checked.text
}

/// Calls the admin API, by itself and by `keyway ctl`, and reloads that change secrets.
fn everything_of_the_api(keyway: &Keyway, (folder, text): (&TempDir, &str), search: &mut Search) {
    let admin = keyway.admin().to_string();
    for path in [
        "health",
        "ready",
        "status",
        "pools",
        "servers",
        "connections",
        "slow-log",
        "hot-keys",
        "log-level",
        "openapi.json",
        "none",
    ] {
        let reply = http_get(keyway.admin(), &format!("/v1/{path}"));
        search.note(path, format!("{} {}", reply.headers, reply.body));
    }
    let mut ctl = |more: &[&str]| {
        let all: Vec<&str> = ["ctl", "--admin", &admin].into_iter().chain(more.to_vec()).collect();
        let told = run_keyway(KEYWAY, &all).text;
        search.note(&format!("ctl {}", more[more.len() - 1]), told.clone());
        told
    };
    let token = write(folder, "admin", "sesame-of-the-operator\n");
    let (token, other) = (token.display(), write(folder, "other", "sesame-of-somebody-else"));
    let changed = text
        .replacen("[server]\n", &format!("[server]\nadmin_token_file = \"{token}\"\n"), 1)
        .replace("\"sesame-app\"", "\"sesame-app-2\"")
        .replace("\"sesame-listener\"", "\"sesame-listener-2\"")
        .replace("\"sesame-refused\"", "\"sesame-refused-2\"");
    let file = keyway.directory().join("keyway.toml");
    for wrong in WRONG {
        std::fs::write(&file, format!("{changed}{wrong}")).expect("its file");
        let told = ctl(&["reload"]);
        assert!(told.contains("the reload was refused"), "{told}");
    }
    std::fs::write(&file, changed).expect("its file");
    let told = ctl(&["reload"]);
    assert!(told.matches("password changed").count() == 3, "{told}");
    assert!(told.contains("admin_token_file"), "{told}");
    let (token, other) = (token.to_string(), other.display().to_string());
    std::fs::write(&token, "sesame-of-the-next-operator").expect("its file");
    assert!(ctl(&["reload"]).contains("asks for a token"), "it shows none");
    assert!(ctl(&["--token-file", &other, "status"]).contains("the token is wrong"));
    let before = write(folder, "before", "sesame-of-the-operator").display().to_string();
    assert!(ctl(&["--token-file", &before, "reload"]).contains("token of admin changed"));
    for what in
        ["status", "pools", "servers", "connections", "slow-log", "hot-keys", "log-level", "ready"]
    {
        drop(ctl(&["--token-file", &token, "--json", what]));
        drop(ctl(&["--token-file", &token, what]));
    }
    assert!(ctl(&["--token-file", &token, "eject", "servers", "none"]).contains("there are: "));
    let top = ["top", "--once", "--interval", "200ms", "--address", &admin, "--token-file", &token];
    search.note("top", run_keyway(KEYWAY, &top).text);
}

#[test]
fn a_secret_never_appears() {
    let _watch = watchdog(Duration::from_secs(90), "secrets");
    let folder = TempDir::new();
    let certificates = CertificateFiles::default();
    let (fast, slow) = (hash(&[], "sesame-hash"), hash(&["--slow"], "sesame-slow"));
    let mut secrets = vec![MARK.to_owned(), fast.trim_start_matches('#').to_owned()];
    // These are its salt and its hash.
    secrets.extend(slow.rsplit('$').take(2).map(str::to_owned));
    let key = std::fs::read_to_string(certificates.path("server.key")).expect("a key");
    secrets.extend(key.lines().filter(|line| !line.starts_with('-')).map(str::to_owned));
    assert!(secrets.len() >= 6 && secrets.iter().all(|secret| secret.len() > 5));
    let mut search = Search { said: Vec::new(), secrets };

    let of_file = write(&folder, "password", "sesame-file\n");
    let of_server = write(&folder, "server", "sesame-server\n");
    let user = |name: &str, more: &str| {
        format!("[[user]]\nname = {name:?}\nrules = \"+@all ~* &*\"\n{more}\n")
    };
    let tls_at = free_address();
    let tables = [
        "[[user]]\nname = \"app\"\nrules = \"+@read +@connection ~app:*\"\n\
         password = \"sesame-app\"\n"
            .to_owned(),
        user("file", &format!("password_file = {of_file:?}")),
        user("hash", &format!("password_hashes = [{fast:?}]")),
        user("slow", &format!("password_hashes = [{slow:?}]")),
        format!(
            "[[listener]]\nbind = \"tcp://{tls_at}\"\npool = \"store\"\n\
             password = \"sesame-listener\"\ntls = {{ cert_file = {:?}, key_file = {:?} }}\n",
            certificates.path("server.pem"),
            certificates.path("server.key"),
        ),
    ];
    let server = RedisServer::start_with(&["--requirepass", "sesame-server"]);
    let servers = [server];
    let slow_log = |pool: Pool| pool.with("slowlog_log_slower_than", "\"1us\"");
    let pools = vec![
        slow_log(Pool::store("store")),
        slow_log(Pool::over("servers", &servers)).with("password_file", &format!("{of_server:?}")),
        // Its server wants another password.
        slow_log(Pool::over("refused", &servers)).with("password", "\"sesame-refused\""),
    ];
    let config = KeywayConfig::new(pools)
        .with_server("log", "{ level = \"trace\" }")
        // With this setting every key is counted.
        .with_tables(&format!("[limits]\nhot_keys_every = 1\n\n{}", tables.concat()));
    let text = config.toml();
    let keyway = Keyway::start(KEYWAY, config);
    note_command_line(keyway.process().pid(), &mut search);
    for place in 0..3 {
        everything_said_to(&keyway, place, &mut search);
    }
    // These bytes are neither a request nor TLS.
    for noise in [
        &b"sesame-noise \r\n*1\r\n$x\r\nsesame-noise\r\n"[..],
        b"GET /sesame-path HTTP/1.1\r\n\r\n",
    ] {
        let mut client = keyway.client(0);
        client.send(noise);
        let _ = std::net::TcpStream::connect(tls_at)
            .and_then(|mut socket| std::io::Write::write_all(&mut socket, noise));
    }
    for path in
        ["/", "/metrics", "/healthz", "/readyz", "/backends", "/backends?format=text", "/none"]
    {
        let reply = http_get(keyway.admin(), path);
        search.note(path, format!("{:?} {}", reply.status, reply.body));
    }
    let at = keyway.address(0).to_string();
    for (user, password) in [("file", "sesame-file"), ("file", "sesame-bench")] {
        let words = ["bench", "load", &at, "--user", user, "--password", password, "-n", "200"];
        let output = run_tool(KEYWAY, &words, b"", WITHIN);
        search.note("bench", output.text.clone());
    }
    let told = check(&write(&folder, "keyway.toml", &text), &mut search, "check");
    assert!(told.contains("name = \"slow\""), "{told}");
    for wrong in WRONG {
        let plain = "[pool.p]\nkind = \"store\"\n[[listener]]\nbind = \"tcp://127.0.0.1:1\"\npool = \"p\"\n";
        let path = write(&folder, "wrong.toml", &format!("{plain}{wrong}"));
        let told = check(&path, &mut search, wrong);
        assert!(told.contains("wrong.toml"), "{wrong}: {told}");
    }
    let bus = format!(
        "token_files = [{:?}, {:?}]\nlisten = [\"tcp://127.0.0.1:0\", \"nothing\"]\n",
        write(&folder, "token", "sesame-token-of-the-bus\n"),
        write(&folder, "short", "sesame-s\n"),
    );
    let bus = write(&folder, "bus.toml", &bus);
    let output = run_tool(KEYWAY, &["bus", "node", bus.to_str().expect("UTF-8")], b"", WITHIN);
    assert!(!output.text.is_empty());
    search.note("bus", output.text.clone());
    everything_of_the_api(&keyway, (&folder, &text), &mut search);
    let (_, log) = keyway.stop(WITHIN);
    assert!(log.contains("a login failed") && log.contains(" DEBUG "), "{log}");
    search.note("the log", log);
    search.finish();
}

/// Notes what any user of the machine can read about a process.
fn note_command_line(pid: u32, search: &mut Search) {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).expect("it runs");
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    assert!(line.contains("serve"), "{line}");
    search.note("the command line", line);
}

/// The process that has taken over. It is ended with the test.
struct Heir(u32);

impl Drop for Heir {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0 as i32) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// Logs in as clients of memcached, with right and wrong passwords, in every protocol.
fn memcached_logins(at: SocketAddr, search: &mut Search) {
    let text = |login: &str| format!("set x 0 0 {}\r\n{login}\r\nget k\r\n", login.len());
    let sasl = |login: &str| memcached_packet(0x21, 0, &[], b"PLAIN", login.as_bytes());
    for bytes in [
        text("app sesame-memcached").into_bytes(),
        text("app sesame-mistaken").into_bytes(),
        text("sesame-alone").into_bytes(),
        b"ms x 10\r\nsesame-meta\r\n".to_vec(),
        b"get sesame-key\r\n".to_vec(),
        sasl("\0app\0sesame-memcached"),
        sasl("\0app\0sesame-mistaken"),
        sasl("sesame-broken"),
        memcached_packet(0x22, 0, &[], b"PLAIN", b"sesame-step"),
    ] {
        let mut socket = TcpStream::connect(at).expect("it listens");
        socket.set_read_timeout(Some(WITHIN)).expect("a live socket");
        socket.write_all(&bytes).expect("it reads");
        socket.shutdown(Shutdown::Write).expect("a live socket");
        let mut told = Vec::new();
        let _ = socket.read_to_end(&mut told);
        assert!(!told.is_empty(), "it is answered");
        search.note("memcached", String::from_utf8_lossy(&told));
    }
}

#[test]
fn logins_of_memcached_passwords_of_sentinels_and_upgrades_tell_none() {
    let _watch = watchdog(Duration::from_secs(120), "secrets of more kinds");
    let folder = TempDir::new();
    let mut search = Search { said: Vec::new(), secrets: vec![MARK.to_owned()] };
    // One server wants another password, and one does not know what sentinels are asked.
    let mistaken = RedisServer::start_with(&["--requirepass", "sesame-other"]);
    let plain = RedisServer::start_with(&["--requirepass", "sesame-sentinel"]);
    let sentinels = [&mistaken, &plain].map(|server| format!("\"{}\"", server.address()));
    let server = format!("[\"{}:1\"]", plain.address());
    let pools = vec![
        Pool::store("store").with("slowlog_log_slower_than", "\"0ms\""),
        Pool::store("store")
            .with("slowlog_log_slower_than", "\"0ms\"")
            .spoken_to_in("memcached")
            .with_listener("password", "\"sesame-memcached\""),
        Pool::of_kind("found", "replicated")
            .with("sentinels", &format!("[{}]", sentinels.join(", ")))
            .with("primaries", "[\"mymaster\"]")
            .with("sentinel_password", "\"sesame-sentinel\"")
            .with("password", "\"sesame-primary\""),
        Pool::of_kind("away", "memcached")
            .with("servers", &server)
            .with("server_protocol", "\"binary\"")
            .with("user", "\"app\"")
            .with("password", "\"sesame-away\"")
            .spoken_to_in("memcached"),
    ];
    let config = KeywayConfig::new(pools)
        .with_server("log", "{ level = \"trace\" }")
        .with_tables("[limits]\nhot_keys_every = 1\n");
    let text = config.toml();
    let keyway = Keyway::start(KEYWAY, config);
    let before = keyway.process().pid();
    note_command_line(before, &mut search);
    memcached_logins(keyway.address(1), &mut search);
    for line in ["GET k", "INFO everything", "CONFIG GET *", "SLOWLOG GET 100", "HOTKEYS GET"] {
        for place in [0, 2] {
            let mut client = keyway.client(place);
            client.send(&encode_words(line));
            search.note(line, String::from_utf8_lossy(&client.raw_reply()));
        }
    }
    let told = keyway.memcached_client(3).say("get k\r\n");
    search.note("a pool of memcached", told);
    check(&write(&folder, "keyway.toml", &text), &mut search, "check");
    wait_until("a sentinel has refused its password", WITHIN, || {
        keyway.process().log().contains("WRONGPASS")
    });
    let admin = keyway.admin().to_string();
    let mut ctl = |more: &[&str]| {
        let all: Vec<&str> = ["ctl", "--admin", &admin].into_iter().chain(more.to_vec()).collect();
        let told = run_keyway(KEYWAY, &all).text;
        search.note(&format!("ctl {}", more[0]), told.clone());
        told
    };
    for what in ["status", "pools", "servers", "connections", "slow-log", "hot-keys"] {
        drop((ctl(&[what]), ctl(&[what, "--json"])));
    }
    // Each upgrade is refused with its reasons by the next process, which reads the file.
    let file = keyway.directory().join("keyway.toml");
    for wrong in WRONG {
        std::fs::write(&file, format!("{text}{wrong}")).expect("its file");
        let told = ctl(&["upgrade"]);
        assert!(told.contains("keyway.toml"), "the reason: {told}");
        drop(ctl(&["status", "--json"]));
    }
    std::fs::write(&file, &text).expect("its file");
    drop(ctl(&["upgrade"]));
    let heir = wait_for("another process serves", WITHIN, || {
        serving_process(keyway.admin()).filter(|pid| *pid != before).map(Heir)
    });
    note_command_line(heir.0, &mut search);
    memcached_logins(keyway.address(1), &mut search);
    for path in ["/v1/status", "/v1/hot-keys", "/v1/slow-log", "/v1/servers", "/metrics"] {
        let reply = http_get(keyway.admin(), path);
        search.note(path, format!("{} {}", reply.headers, reply.body));
    }
    // The next process logs to the same place.
    let log = keyway.process().log();
    assert!(log.matches("WRONGPASS").count() > 0 && log.contains("a login failed"), "{log}");
    search.note("the log of both", log);
    drop(heir);
    search.finish();
}
