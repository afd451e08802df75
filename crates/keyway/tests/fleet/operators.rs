//! Operators with roles, the audit log and events, with real processes.

use crate::stage::{KEYWAY, SOON};
use keyway_control::{Engine, OPENAPI, Seat, Told};
use keyway_coordinator::FilesSettings;
use keyway_fleet::{Fact, Ticket, Write, Written};
use keyway_testkit::{
    Process, RedisServer, Signal, TempDir, ToolOutput, free_address, run_keyway, wait_for,
    wait_until, watchdog,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A control node and one proxy.
struct Stage {
    control: SocketAddr,
    admin: SocketAddr,
    servers: Vec<RedisServer>,
    /// They end before the directory is removed.
    processes: Vec<Process>,
    directory: TempDir,
}

const OPERATORS: [(&str, &str, &str); 4] = [
    ("vic", "viewer", ""),
    ("ann", "operator", "pools = [\"main\"]\n"),
    ("bob", "operator", "pools = [\"other\"]\n"),
    ("eve", "admin", ""),
];

impl Stage {
    fn start() -> Stage {
        let directory = TempDir::new();
        directory.write("bus.token", "a token for these processes\n");
        let mut operators = String::new();
        for (name, role, more) in OPERATORS {
            directory.write(&format!("{name}.token"), format!("a-token-that-is-of-{name}\n"));
            operators += &format!(
                "[[operator]]\nname = \"{name}\"\nrole = \"{role}\"\ntoken_file = \
                 \"{name}.token\"\n{more}"
            );
        }
        let (control, admin, bus, client) =
            (free_address(), free_address(), free_address(), free_address());
        let text = format!(
            "cluster = \"test\"\nadmin = \"{control}\"\naudit_file = \"audit.log\"\nevents_file = \
             \"events.log\"\n{operators}[coordinator]\nkind = \"files\"\ndir = \"coordinator\"\n[bus]\nid = \
             \"z1.control.0.1\"\nlisten = [\"tcp://{bus}\"]\ntoken_files = [\"bus.token\"]\n"
        );
        directory.write("control.toml", text);
        let servers = RedisServer::start_many(2);
        let text = format!(
            "[server]\nworkers = 1\nadmin = \"tcp://{admin}\"\ndrain_timeout = \"1s\"\n\
             {operators}[control]\ncluster = \"test\"\nid = \"z1.proxy.0.1\"\nurls = \
             [\"tcp://{bus}\"]\ntoken_file = \"bus.token\"\nstate_file = \"state\"\npools = \
             [\"main\", \"other\"]\n[[listener]]\nbind = \"tcp://{client}\"\npool = \"main\"\n{}",
            document(&servers, "4s", "4s")
        );
        directory.write("proxy.toml", text);
        let mut stage = Stage { control, admin, servers, processes: Vec::new(), directory };
        stage.spawn("control", "control.toml");
        stage.spawn("serve", "proxy.toml");
        stage.wait_member();
        stage
    }

    fn spawn(&mut self, word: &str, file: &str) {
        let mut command = Command::new(KEYWAY);
        let command = command.arg(word).arg(self.directory.path().join(file));
        let name = if word == "serve" { "proxy" } else { "control" };
        self.processes.push(Process::spawn(name, command, self.directory.path()));
    }

    fn wait_member(&self) {
        wait_until("the proxy has joined", SOON, || {
            let told = self.ctl("eve", &["--json", "fleet"]);
            told.status.success() && told.stdout.contains("\"current\"")
        });
    }

    fn token(&self, name: &str) -> String {
        self.directory.path().join(format!("{name}.token")).display().to_string()
    }

    /// Runs keyway ctl for the control node with the token of an operator.
    fn ctl(&self, name: &str, arguments: &[&str]) -> ToolOutput {
        self.ctl_at(self.control, name, arguments)
    }

    fn ctl_at(&self, at: SocketAddr, name: &str, arguments: &[&str]) -> ToolOutput {
        let (at, token) = (at.to_string(), self.token(name));
        let first = ["ctl", "--admin", &at, "--token-file", &token];
        run_keyway(KEYWAY, &[&first, arguments].concat())
    }

    fn refused(&self, name: &str, arguments: &[&str], told: &str) {
        let output = self.ctl(name, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", output.text);
        assert!(output.text.contains(told), "{}", output.text);
    }

    fn document(&self, main: &str, other: &str) -> String {
        let text = document(&self.servers, main, other);
        self.directory.write("document.toml", text).display().to_string()
    }

    fn entries(&self) -> Vec<Value> {
        let told = self.ctl("vic", &["--json", "audit"]).expect_success("keyway ctl audit");
        let body: Value = serde_json::from_str(&told.stdout).expect("JSON");
        body["entries"].as_array().cloned().unwrap_or_default()
    }

    /// Waits for an entry of this author with this outcome. Returns it.
    fn entry(&self, by: &str, outcome: &str) -> Value {
        wait_for("an entry of the audit log", SOON, || {
            let is_it = |one: &Value| one["by"] == by && one["outcome"] == outcome;
            self.entries().into_iter().rev().find(is_it)
        })
    }

    fn audit_file(&self) -> PathBuf {
        self.directory.path().join("audit.log")
    }

    fn logs(&self) -> String {
        self.processes.iter().map(Process::log).collect()
    }
}

fn document(servers: &[RedisServer], main: &str, other: &str) -> String {
    let pool = |name: &str, server: &RedisServer, timeout: &str| {
        format!(
            "[pool.{name}]\nkind = \"sharded\"\nservers = [\"{}:1 {name}-1\"]\ntimeout = \
             \"{timeout}\"\n",
            server.address()
        )
    };
    pool("main", &servers[0], main) + &pool("other", &servers[1], other)
}

/// Sends a request with a token, and returns the status.
fn ask(at: SocketAddr, request: &str, token: Option<&str>, body: &str) -> u16 {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let request = format!(
        "{request} HTTP/1.1\r\nHost: {at}\r\nKeyway-Change: 1\r\n{}{kind}Content-Length: \
         {}\r\nConnection: close\r\n\r\n{body}",
        token.unwrap_or_default(),
        body.len()
    );
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a live socket");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a whole reply");
    reply.get(9..12).and_then(|code| code.parse().ok()).expect("a status")
}

#[test]
fn operators_change_what_their_role_and_pools_allow_and_each_change_has_an_entry() {
    let _watchdog = watchdog(Duration::from_secs(180), "operators");
    let mut stage = Stage::start();
    let first = stage.document("5s", "5s");
    stage.refused("vic", &["apply", &first, "--base", "0"], "this needs the role operator");
    stage.refused("ann", &["apply", &first, "--base", "0"], "this changes pool other");
    let _ = stage.ctl("eve", &["apply", &first, "--base", "0"]).expect_success("keyway ctl apply");
    let main = stage.document("6s", "5s");
    stage.refused("bob", &["apply", &main, "--base", "1"], "this changes pool main");
    let _ = stage.ctl("ann", &["apply", &main, "--base", "1"]).expect_success("keyway ctl apply");
    // Going back changes the same pool.
    stage.refused("bob", &["rollback", "1", "--base", "2"], "this changes pool main");
    stage.refused("ann", &["rollback", "1", "--base", "7"], "has revision 2");
    let _ = stage.ctl("ann", &["rollback", "1", "--base", "2"]).expect_success("keyway ctl");
    // A dry run changes nothing, and is free for every operator.
    let _ = stage.ctl("bob", &["apply", &main, "--dry-run"]).expect_success("keyway ctl");
    assert_eq!(ask(stage.control, "GET /v1/fleet", Some("a-token-that-is-of-nobody"), ""), 401);
    assert_eq!(ask(stage.control, "GET /v1/fleet", None, ""), 401);
    assert_eq!(ask(stage.control, "GET /v1/health", None, ""), 200);

    check_entries(&stage);
    check_proxy(&stage);
    let shown = stage.ctl("vic", &["documents"]).expect_success("keyway ctl documents");
    assert!(shown.stdout.contains("by ann, back to 1"), "{}", shown.text);
    let logs = stage.logs();
    assert!(!logs.contains("a-token-that-is-of"), "{logs}");
    check_files(&mut stage);
}

#[test]
fn a_document_is_refused_for_shared_servers_masks_and_its_length() {
    let _watchdog = watchdog(Duration::from_secs(120), "refused documents");
    let stage = Stage::start();
    let file = |name: &str, text: String| stage.directory.write(name, text).display().to_string();
    let base = document(&stage.servers, "5s", "5s");
    // Control makes every server of a group a replica of its primary.
    let group = |name: &str, servers: &str| {
        format!("[pool.{name}]\nkind = \"replicated\"\nservers = [{servers}]\nfailover = {{}}\n")
    };
    let (ours, its) = ("\"127.0.0.1:7\"", "\"localhost:7\"");
    let shared = file("shared.toml", group("main", ours) + &group("other", its));
    for words in [&["apply", &shared, "--dry-run"][..], &["apply", &shared, "--base", "0"]] {
        stage.refused("eve", words, "two pools with failover, \"main\" and \"other\"");
    }
    let taken = file("taken.toml", base.clone() + &group("third", ours));
    let _ = stage.ctl("eve", &["apply", &taken, "--base", "0"]).expect_success("apply");
    let (_, rest) = base.split_once("[pool.other]").expect("it has two pools");
    let main = group("main", "\"127.0.0.1:8\"") + "[pool.other]" + rest + &group("third", ours);
    let main = file("main.toml", main);
    stage.refused("ann", &["apply", &main, "--base", "1"], "an operator of all pools may do that");

    // A pool may have a password in it, and a server at any address.
    let secret = "[pool.hidden]\nkind = \"sharded\"\nservers = [\"127.0.0.1:1\"]\n\
                  password = \"hush-7\"\nclient_password = 'hush-8'\n";
    let hidden = file("hidden.toml", base + secret);
    let _ = stage.ctl("eve", &["apply", &hidden, "--base", "1"]).expect_success("apply");
    let masked = stage.ctl("vic", &["documents", "--revision", "2"]).expect_success("documents");
    assert!(masked.stdout.contains("[pool.hidden]"), "{}", masked.text);
    for words in [&["--json", "documents"][..], &["history"], &["audit"], &["events"]] {
        let told = stage.ctl("vic", words).expect_success("keyway ctl");
        assert!(!told.text.contains("hush"), "{words:?}: {}", told.text);
    }
    assert!(!masked.text.contains("hush"), "{}", masked.text);
    let masked = file("masked.toml", masked.stdout);
    stage.refused("eve", &["apply", &masked, "--base", "2"], "the document has a mask");

    let control = |words: &[&str], status: i32, told: &str| {
        let output = stage.ctl("eve", words);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {}", output.text);
        assert!(output.text.contains(told), "{words:?}: {}", output.text);
    };
    let long = file("long.toml", "#".repeat(10 << 20));
    control(&["apply", &long, "--dry-run"], 2, "has 10485760 bytes, and may have 262144");
    control(&["upgrade"], 2, "--zone NUMBER");
    control(&["drain"], 2, "--members");
    control(&["log-level"], 2, "ask a process itself");
    control(&["--members", "all", "log-level"], 2, "ask a process itself");
    control(&["proxies", "--pool", "nope"], 1, "no member of the fleet has a pool \"nope\"");
    let longer = format!("{{\"document\":\"{}\",\"dry_run\":true}}", "#".repeat(262_145));
    let eve = Some("a-token-that-is-of-eve");
    assert_eq!(ask(stage.control, "POST /v1/fleet/document", eve, &longer), 422);
}

/// Each change has one entry, and refused requests have some.
fn check_entries(stage: &Stage) {
    let refused = stage.entry("", "refused");
    assert!(refused["why"].as_str().is_some_and(|why| why.contains("token")), "{refused}");
    let entries = stage.entries();
    let of = |by: &str, outcome: &str| {
        let is_it = |one: &&Value| one["by"] == by && one["outcome"] == outcome;
        entries.iter().filter(is_it).collect::<Vec<_>>()
    };
    let done = of("ann", "done");
    assert_eq!(done.len(), 2, "{entries:#?}");
    assert_eq!((&done[0]["before"], &done[0]["after"]), (&1.into(), &2.into()));
    let changes = done[0]["changes"].as_array().expect("a list");
    let is_told = |line: &Value| line.as_str().is_some_and(|line| line.contains("timeout"));
    assert!(changes.iter().any(is_told), "{changes:?}");
    assert_eq!(done[1]["what"], "rollback to 1");
    let from = done[0]["from"].as_str().expect("an address");
    assert!(from.starts_with("127.0.0.1:"), "{from}");
    assert_eq!(of("eve", "done").len(), 1);
    assert_eq!((of("vic", "refused").len(), of("ann", "refused").len()), (1, 2), "{entries:#?}");
    assert_eq!(of("bob", "refused").len(), 2, "{entries:#?}");
    let shown = stage.ctl("vic", &["audit", "--since", "1h"]).expect_success("keyway ctl audit");
    assert!(shown.stdout.contains("ann rollback to 1, document 2 to 3"), "{}", shown.text);
}

/// The process of the proxy has the same operators, and an operator of a pool the servers of it.
fn check_proxy(stage: &Stage) {
    let server = stage.servers[0].address().to_string();
    let told = stage.ctl_at(stage.admin, "bob", &["eject", "main", &server]);
    assert!(told.text.contains("this changes pool main"), "{}", told.text);
    let _ = stage.ctl_at(stage.admin, "ann", &["eject", "main", &server]).expect_success("eject");
    let _ = stage.ctl_at(stage.admin, "ann", &["restore", "main", &server]).expect_success("it");
    let body = "{\"pool\":\"main\",\"server\":\"main-1\"}";
    let bob = Some("a-token-that-is-of-bob");
    for path in ["/v1/servers/eject", "/v1/servers/restore"] {
        assert_eq!(ask(stage.admin, &format!("POST {path}"), bob, body), 403, "{path}");
    }
    let script = ask(stage.admin, "POST /v1/scripts/kill", bob, "{\"pool\":\"main\"}");
    assert_eq!(script, 403);
    every_route(stage);
}

/// Every route of a control node and of a proxy refuses a viewer and a stranger what they may not.
fn every_route(stage: &Stage) {
    let description: Value = serde_json::from_str(OPENAPI).expect("JSON");
    for (path, methods) in description["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            let request = format!("{} {path}", method.to_uppercase());
            let is_probe = matches!(path.as_str(), "/v1/health" | "/v1/ready");
            for at in [stage.control, stage.admin] {
                let as_nobody = ask(at, &request, None, "");
                assert_eq!(as_nobody == 401, !is_probe, "{request}: {as_nobody}");
                let as_viewer = ask(at, &request, Some("a-token-that-is-of-vic"), "");
                assert_eq!(as_viewer == 403, method != "get", "{request}: {as_viewer}");
            }
        }
    }
}

/// The file of the control node has what the coordinator has, also after a restart.
fn check_files(stage: &mut Stage) {
    let file = stage.audit_file().display().to_string();
    let count = || std::fs::read_to_string(stage.audit_file()).unwrap_or_default().lines().count();
    wait_until("every entry is in the file", SOON, || count() == stage.entries().len());
    let whole = stage.ctl("vic", &["audit", "--verify"]).expect_success("keyway ctl audit");
    assert!(whole.stdout.contains("are whole"), "{}", whole.text);
    let of_file =
        stage.ctl("vic", &["audit", "--verify", "--file", &file]).expect_success("keyway ctl");
    let hash = |text: &str| text.split("hash ").nth(1).map(str::to_owned);
    assert_eq!(hash(&whole.stdout), hash(&of_file.stdout), "{}", of_file.text);

    let mut control = stage.processes.remove(0);
    control.kill();
    // The process was killed within a line.
    let mut text = std::fs::read_to_string(stage.audit_file()).expect("the file");
    let len = text.len();
    text += "{\"number\":";
    std::fs::write(stage.audit_file(), &text).expect("it can be written");
    stage.spawn("control", "control.toml");
    stage.wait_member();
    let text = std::fs::read_to_string(stage.audit_file()).expect("the file");
    assert!(text.len() >= len && !text.ends_with("\"number\":"), "{text}");
    let other = stage.document("5s", "7s");
    let _ = stage.ctl("bob", &["apply", &other, "--base", "3"]).expect_success("keyway ctl apply");
    let count = || std::fs::read_to_string(stage.audit_file()).unwrap_or_default().lines().count();
    wait_until("every entry is in the file", SOON, || count() == stage.entries().len());
    let _ = stage.ctl("vic", &["audit", "--verify", "--file", &file]).expect_success("keyway ctl");
    // A line of the middle is gone.
    let text = std::fs::read_to_string(stage.audit_file()).expect("the file");
    let cut: Vec<&str> =
        text.lines().enumerate().filter(|(at, _)| *at != 2).map(|(_, line)| line).collect();
    let cut = stage.directory.write("cut.log", cut.join("\n") + "\n").display().to_string();
    stage.refused("vic", &["audit", "--verify", "--file", &cut], "entry 3");
    // The file is moved, and the next entry begins a new one.
    let moved = stage.directory.path().join("audit.1");
    std::fs::rename(stage.audit_file(), &moved).expect("the file");
    let other = stage.document("5s", "8s");
    let _ = stage.ctl("bob", &["apply", &other, "--base", "4"]).expect_success("keyway ctl apply");
    wait_until("a new file begins", SOON, || written(&stage.audit_file()).contains("timeout"));
    assert_eq!(written(&moved), text);
    let first = text.lines().count() + 1;
    let checked =
        stage.ctl("vic", &["audit", "--verify", "--file", &file]).expect_success("keyway ctl");
    assert!(checked.text.contains(&format!("entries {first} to")), "{}", checked.text);
}

/// Changes entries of the coordinator's files, as somebody with access to the disk can.
struct Forger {
    seat: Seat,
    written: u64,
}

impl Forger {
    fn new(stage: &Stage) -> Forger {
        let settings = FilesSettings::new(stage.directory.path().join("coordinator"), "test");
        let lease = Duration::from_secs(10);
        let seat = Seat::start(Engine::Files(settings), lease, || {}).expect("a thread");
        Forger { seat, written: 0 }
    }

    fn wait<T>(&mut self, take: impl Fn(Told) -> Option<T>) -> T {
        wait_for("the coordinator answers", SOON, || self.seat.poll().and_then(&take))
    }

    fn all(&mut self) -> BTreeMap<String, Fact> {
        self.seat.list();
        self.wait(|told| match told {
            Told::Listed(_, facts) => Some(facts),
            _ => None,
        })
    }

    fn write(&mut self, put: &[(&str, &[u8])], delete: &[&str]) {
        let put = put.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec())).collect();
        let delete = delete.iter().map(|key| (*key).to_owned()).collect();
        self.written += 1;
        let ticket = Ticket(self.written);
        let write = Write { put, delete, ..Write::default() };
        assert!(self.seat.write(ticket, write));
        let written = self.wait(|told| match told {
            Told::Written(of, written) if of == ticket => Some(written),
            _ => None,
        });
        assert!(matches!(written, Written::Done(_)), "{written:?}");
    }
}

fn audit_key(number: u64) -> String {
    format!("audit/{number:020}")
}

#[test]
fn tampering_with_the_audit_log_is_found() {
    let _watchdog = watchdog(Duration::from_secs(180), "tampering");
    let stage = Stage::start();
    for revision in 0..6 {
        let text = stage.document(&format!("{}s", revision + 1), "4s");
        let base = revision.to_string();
        let _ = stage.ctl("eve", &["apply", &text, "--base", &base]).expect_success("keyway ctl");
    }
    let mut forger = Forger::new(&stage);
    let facts = forger.all();
    let keys: Vec<String> = (0..=6).map(audit_key).collect();
    let kept = |number: usize| &*facts[&keys[number]].value;
    let key = |number: usize| keys[number].as_str();
    let verify = |told: &str| {
        wait_until("the audit log is looked at", SOON, || {
            let output = stage.ctl("vic", &["audit", "--verify"]);
            output.status.code() == Some(1) && output.text.contains(told)
        });
    };
    let whole = || {
        wait_until("the audit log is whole again", SOON, || {
            stage.ctl("vic", &["audit", "--verify"]).status.success()
        });
    };
    let changed = String::from_utf8_lossy(kept(3)).replace("eve", "bob");
    forger.write(&[(key(3), changed.as_bytes())], &[]);
    verify("entry 4");
    forger.write(&[(key(3), kept(3))], &[]);
    whole();
    forger.write(&[], &[key(4)]);
    verify("entry 4");
    forger.write(&[(key(4), kept(4))], &[]);
    forger.write(&[(key(2), kept(5)), (key(5), kept(2))], &[]);
    verify("entry 2");
    forger.write(&[(key(2), kept(2)), (key(5), kept(5))], &[]);
    whole();
    forger.write(&[], &[key(6)]);
    verify("entry 6");
    // The head without the last entry fits the chain: the control node remembers it, and its file.
    let mut head: Value = serde_json::from_slice(&facts["audit-head"].value).expect("JSON");
    let last: Value = serde_json::from_slice(kept(6)).expect("JSON");
    (head["number"], head["hash"]) = (5.into(), last["previous"].clone());
    forger.write(&[("audit-head", head.to_string().as_bytes())], &[]);
    whole();
    wait_until("the control node tells of it", SOON, || {
        let events = stage.ctl("vic", &["events"]).text;
        events.contains("audit-tampered") && events.contains("this node has seen it")
    });
    let log = stage.logs();
    assert!(log.contains("the audit log was changed past control"), "{log}");
    let lines = std::fs::read_to_string(stage.audit_file()).expect("the file");
    assert!(lines.lines().count() >= 6, "{lines}");
}

#[test]
fn events_of_control_and_of_proxies_are_kept_and_followed() {
    let _watchdog = watchdog(Duration::from_secs(120), "events");
    let stage = Stage::start();
    let follower = std::thread::spawn({
        let (at, token) = (stage.control.to_string(), stage.token("vic"));
        move || {
            // It ends with the process that it follows.
            let first = ["ctl", "--admin", &at, "--token-file", &token];
            run_keyway(KEYWAY, &[&first[..], &["events", "--follow"]].concat()).text
        }
    });
    let server = stage.servers[0].address().to_string();
    let _ = stage.ctl_at(stage.admin, "ann", &["eject", "main", &server]).expect_success("eject");
    let document = stage.document("5s", "4s");
    let _ = stage.ctl("eve", &["apply", &document, "--base", "0"]).expect_success("keyway ctl");
    let file = stage.directory.path().join("events.log");
    wait_until("it is in the file", SOON, || {
        written(&file).contains("eve: apply, document 0 to 1")
    });
    stage.processes[0].signal(Signal::USR2);
    wait_until("SIGUSR2 is told", SOON, || {
        stage.processes[0].log().contains("SIGUSR2 is ignored: a control node has no upgrade")
    });
    let moved = stage.directory.path().join("events.1");
    std::fs::rename(&file, &moved).expect("the file");
    let _ = stage.ctl_at(stage.admin, "eve", &["reload"]).expect_success("keyway ctl reload");
    for expected in [
        "leader-changed",
        "member-joined",
        "document-published",
        "change",
        "eve: apply, document 0 to 1",
        "reloaded",
        "operator-request",
        "z1.proxy.0.1",
        "z1.control.0.1",
    ] {
        wait_until(expected, SOON, || {
            stage.ctl("vic", &["events", "--since", "1h"]).text.contains(expected)
        });
    }
    let is_last = |text: &str| text.contains("operator-request") && text.contains("eve");
    wait_until("a new file begins", SOON, || is_last(&written(&file)));
    check_written(&(written(&moved) + &written(&file)));
    let mut stage = stage;
    stage.processes.iter_mut().for_each(Process::kill);
    let followed = follower.join().expect("it has ended");
    assert!(followed.contains("eve: apply, document 0 to 1"), "{followed}");
    assert_eq!(followed.matches("eve: apply, document 0 to 1").count(), 1, "{followed}");
}

fn written(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// Every event is there once, as the API has it.
fn check_written(text: &str) {
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
    let events: Vec<Value> = events.collect();
    let number = |event: &Value| event["number"].as_u64().expect("a number");
    assert!(events.windows(2).all(|two| number(&two[0]) + 1 == number(&two[1])), "{text}");
    for kind in ["leader-changed", "member-joined", "document-published", "change"] {
        assert!(events.iter().any(|event| event["kind"] == kind), "{kind}: {text}");
    }
}
