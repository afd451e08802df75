//! `keyway bench run` on the command line: against real servers, short, and interrupted. Whatever
//! happens, no process of it is left.
#![allow(clippy::disallowed_methods, reason = "a command that is interrupted after a while")]

use keyway_testkit::{RedisServer, TempDir, skipped_for_want_of, tool_is_installed, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Redis behind Keyway, beside Redis itself and beside a system that is not installed.
const FILE: &str = r#"
title = "mine"
baseline = "redis"
rounds = 1
seconds = 0.2
[[servers]]
name = "redis"
kind = "redis"
count = 2
[[system]]
name = "redis"
direct = "redis"
[[system]]
name = "keyway"
command = ["keyway", "serve", "{file.keyway.toml}"]
[system.files]
"keyway.toml" = """
[server]
workers = 1
admin = "tcp://127.0.0.1:{port.admin}"
[[listener]]
bind = "tcp://127.0.0.1:{port}"
pool = "all"
[pool.all]
kind = "sharded"
servers = [
  "{redis.address}:1",
]
"""
[[system]]
name = "absent"
command = ["no-such-proxy", "{port}"]
install = "write it"
[[item]]
id = "mixed"
mix = "set:1,get:1"
connections = [5, 10]
keys = 1000
fill = true
"#;

/// Systems that are installed, but do not start or do not serve.
const BROKEN: &str = r#"
[[system]]
name = "broken"
command = ["sh", "-c", "echo no room for {port}; exit 1"]
"#;
const WRONG: &str = r#"
[[system]]
name = "wrong"
command = ["redis-server", "--port", "{port}", "--save", "", "--requirepass", "x"]
"#;

/// A directory for everything that a run leaves behind.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(TempDir::new());
        std::fs::write(place.path("mine.toml"), FILE).unwrap();
        std::fs::create_dir(place.path("tmp")).unwrap();
        place
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyway"));
        command.args(["bench", "run"]).args(arguments).env("TMPDIR", self.path("tmp"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program that was built")
    }

    /// Runs it, which must measure everything that is installed. Returns its output and its JSON.
    fn measured(&self, arguments: &[&str]) -> (String, Value) {
        let file = self.path("run.json");
        let output = self.run(&[arguments, &["--json", &file]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let found = std::fs::read_to_string(file).unwrap_or_default();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{errors}\n{found}");
        self.is_clean();
        (text, serde_json::from_str(&found).unwrap())
    }

    /// Returns the number of processes that work in the run's directory.
    fn processes(&self) -> usize {
        let own = self.0.path().join("tmp");
        let works_there = |entry: &std::fs::DirEntry| {
            let directory = std::fs::read_link(entry.path().join("cwd"));
            directory.is_ok_and(|directory| directory.starts_with(&own))
        };
        std::fs::read_dir("/proc").unwrap().flatten().filter(works_there).count()
    }

    fn is_clean(&self) {
        assert_eq!(self.processes(), 0, "processes are left");
        assert_eq!(std::fs::read_dir(self.path("tmp")).unwrap().count(), 0, "files are left");
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

fn cell<'j>(json: &'j Value, system: &str, item: &str) -> Option<&'j Value> {
    let mut cells = json["cells"].as_array().unwrap().iter();
    cells.find(|cell| cell["system"] == system && cell["item"] == item)
}

#[test]
fn systems_are_measured_side_by_side_and_those_that_are_not_there_are_rows() {
    let place = Place::new();
    let (text, json) = place.measured(&[&place.path("mine.toml"), "--rounds", "2"]);
    for told in [
        "not measured: no-such-proxy is not installed (write it)",
        "Requests/CPU-s to redis's",
        "Behind the systems: redis, 2 servers.",
    ] {
        assert!(text.contains(told), "wanted {told}\n{text}");
    }
    assert_eq!((&json["baseline"], &json["interrupted"]), (&"redis".into(), &false.into()));
    for (system, roles) in
        [("redis", ["load", "tested"].as_slice()), ("keyway", &["backend", "load", "tested"])]
    {
        for item in ["mixed-c5", "mixed-c10"] {
            let rounds = cell(&json, system, item).unwrap()["rounds"].as_array().unwrap();
            assert_eq!(rounds.len(), 2, "{system} {item}");
            for round in rounds {
                let one = &round["measured"];
                assert!(one["seconds"].as_f64().unwrap() >= 0.19, "{one}");
                assert!(
                    one["requests"].as_u64().unwrap() > 100
                        && one["errors"] == Value::Object(Default::default()),
                    "{one}"
                );
                let processes = one["processes"].as_array().unwrap();
                let mut seen: Vec<&str> =
                    processes.iter().map(|one| one["role"].as_str().unwrap()).collect();
                seen.sort_unstable();
                assert_eq!(seen, roles, "{processes:?}");
                assert!(one["replies"]["hits"].as_u64().unwrap() > 10, "it was filled: {one}");
            }
        }
    }
    let compared = Command::new(env!("CARGO_BIN_EXE_keyway"))
        .args(["bench", "compare", &place.path("run.json"), &place.path("run.json")])
        .output()
        .unwrap();
    assert!(compared.status.success(), "{compared:?}");
}

#[test]
fn what_is_there_and_does_not_serve_is_a_row_and_a_failure() {
    let place = Place::new();
    for (system, told) in [
        (BROKEN, "not measured: broken ended at its start: no room for"),
        (WRONG, "not measured: it does not serve"),
    ] {
        let mine = place.path("broken.toml");
        std::fs::write(&mine, FILE.to_owned() + system).unwrap();
        let file = place.path("run.json");
        let output = place.run(&[&mine, "--json", &file]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.code() == Some(1) && text.contains(told), "{text}");
        let json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        assert!(cell(&json, "keyway", "mixed-c5").is_some(), "the others are measured");
        place.is_clean();
    }
}

#[test]
fn a_built_in_scenario_prints_its_reports_table() {
    let place = Place::new();
    if !tool_is_installed("nutcracker") {
        skipped_for_want_of("nutcracker", "a built-in scenario with it");
    }
    let (html, markdown) = (place.path("run.html"), place.path("run.md"));
    let short = ["codis-vs-twemproxy", "--rounds", "1", "--seconds", "0.2", "--quiet"];
    let files = ["--html", &html, "--markdown", &markdown];
    let (_, json) = place.measured(&[&short[..], &files].concat());
    assert_eq!(json["scenario"], "codis-vs-twemproxy");
    assert!(cell(&json, "keyway, 1 core", "pipelined-t1").is_some(), "{json}");
    let missing = |name: &str| {
        let systems = json["systems"].as_array().unwrap();
        systems.iter().find(|one| one["name"] == name).unwrap()["missing"].as_str()
    };
    assert!(missing("codis").unwrap().contains("--system codis=HOST:PORT"));
    if tool_is_installed("nutcracker") {
        assert_eq!(missing("twemproxy"), None);
        assert!(cell(&json, "twemproxy", "plain-t1").is_some(), "{json}");
    }
    let table = std::fs::read_to_string(markdown).unwrap();
    let head = "| System | NTHRD | Ops/sec | Latency (ms) | KB/sec | Proxy CPU | Bench CPU | Redis CPU | Total CPU | Requests/CPU-s |";
    assert!(table.contains(head) && table.contains("pipeline = Yes"), "{table}");
    assert!(std::fs::read_to_string(html).unwrap().contains("not measured"));
}

#[test]
fn memcached_the_bus_and_systems_of_the_users_own_are_measured() {
    let place = Place::new();
    let short = ["--rounds", "1", "--seconds", "0.2"];
    let (text, json) = place.measured(&[&["atbus"][..], &short].concat());
    assert!(text.contains("CPU send/receive") && text.contains("Packet length"), "{text}");
    assert!(json["parameters"]["warm-up"].is_null(), "messages have none: {json}");
    let rounds = &cell(&json, "shm", "messages-8-128").unwrap()["rounds"];
    assert!(rounds[0]["measured"]["requests"].as_u64().unwrap() > 1000, "{rounds}");

    if tool_is_installed("memcached") {
        let only = ["twemproxy-memcached", "--only", "memcached,keyway x 6"];
        let (text, json) = place.measured(&[&only[..], &short].concat());
        assert!(text.contains("Conn stddev ms") && text.contains("stored"), "{text}");
        let one = &cell(&json, "keyway x 6", "set-10-calls").unwrap()["rounds"][0]["measured"];
        let (count, requests) = (one["connects"]["count"].as_u64(), one["requests"].as_u64());
        let (count, requests) = (count.unwrap(), requests.unwrap());
        // The connections that the warm-up began, one in each turn, have fewer calls.
        assert!(count > 5 && (requests / 10).abs_diff(count) <= 12, "{one}");
    } else {
        skipped_for_want_of("memcached", "its scenario");
    }

    let server = RedisServer::start();
    let given = format!("theirs={}", server.address());
    let own = "mine=redis-server --port {port} --save ''";
    let systems = ["aerospike-cache", "--system", own, "--system", &given, "--only", "mine,theirs"];
    let (text, json) = place.measured(&[&systems[..], &short].concat());
    assert!(text.contains("% RT>1ms"), "{text}");
    for system in ["mine", "theirs"] {
        let cells = json["cells"].as_array().unwrap();
        let own = cells.iter().find(|cell| cell["system"] == system).unwrap();
        let processes = own["rounds"][0]["measured"]["processes"].as_array().unwrap();
        assert!(processes.iter().any(|one| one["role"] == "tested"), "{system}: {processes:?}");
    }
}

#[test]
fn an_interrupted_run_keeps_what_it_has_and_leaves_nothing() {
    let place = Place::new();
    let server = RedisServer::start();
    let (file, json) = (place.path("mine.toml"), place.path("run.json"));
    let last = format!("last={}", server.address());
    let arguments =
        [&file, "--system", &last, "--rounds", "100", "--seconds", "0.2", "--json", &json];
    let child = place.command(&arguments).spawn().unwrap();
    // The last system is measured with ten connections, so the first round is over.
    let clients = || server.client().words("INFO clients").text();
    wait_until("ten connections", PATIENCE, || clients().contains("connected_clients:11"));
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("The run was interrupted: this is what had been measured."), "{text}");
    let json: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(json["interrupted"], true);
    for system in ["redis", "keyway"] {
        for item in ["mixed-c5", "mixed-c10"] {
            let one = &cell(&json, system, item).unwrap()["rounds"][0]["measured"];
            assert!(one["requests"].as_u64().unwrap() > 100, "{system} {item}: {json}");
        }
    }
    place.is_clean();
}

#[test]
fn an_interrupted_run_of_messages_does_not_wait_for_those_that_are_sent() {
    let place = Place::new();
    let json = place.path("run.json");
    let arguments = ["atbus", "--only", "shm", "--rounds", "1", "--seconds", "3", "--json", &json];
    let child = place.command(&arguments).spawn().unwrap();
    wait_until("the second work", PATIENCE, || has_child(child.id(), r#""max":128"#));
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(json["interrupted"], true);
    let first = &cell(&json, "shm", "messages-8-16384").unwrap()["rounds"][0]["measured"];
    assert!(first["requests"].as_u64().unwrap() > 1000, "{json}");
    // If the run had waited for it, it would be there.
    assert!(cell(&json, "shm", "messages-8-128").is_none(), "{json}");
    place.is_clean();
}

/// Returns whether a process has a child with these words in its command line.
fn has_child(parent: u32, words: &str) -> bool {
    let is_it = |entry: &std::fs::DirEntry| {
        let read = |name: &str| std::fs::read_to_string(entry.path().join(name));
        let (stat, line) = (read("stat").unwrap_or_default(), read("cmdline").unwrap_or_default());
        // After the name come the state and the parent.
        let of = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        of == Some(&parent.to_string()) && line.contains(words)
    };
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| is_it(&entry))
}

#[test]
fn a_killed_run_takes_its_programs_along() {
    let place = Place::new();
    let mut child = place.command(&[&place.path("mine.toml"), "--seconds", "60"]).spawn().unwrap();
    wait_until("two servers and a proxy", PATIENCE, || place.processes() >= 3);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    wait_until("all are gone", PATIENCE, || place.processes() == 0);
}

#[test]
fn what_cannot_begin_is_told() {
    let place = Place::new();
    let wrong = place.path("wrong.toml");
    std::fs::write(&wrong, FILE.replace("seconds", "secconds")).unwrap();
    let mine = place.path("mine.toml");
    let no_file = Path::new("/no/such/directory/x.json").display().to_string();
    for (arguments, told) in [
        (vec!["atbuss"], "did you mean \"atbus\"?"),
        (
            vec![&wrong],
            "wrong.toml:5: unknown key \"secconds\" in the file; did you mean \"seconds\"?",
        ),
        (vec![&mine, "--only", "keyvay"], "did you mean \"keyway\"?"),
        (vec![&mine, "--json", &no_file], "cannot write"),
        (vec![&mine, "--system", "x"], "as NAME=HOST:PORT"),
        (
            vec![&mine, "--system", "x=y {port} {redis.port}"],
            "nothing stands for {redis.port} here",
        ),
    ] {
        let output = place.run(&arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(told), "{arguments:?}: {text}");
        place.is_clean();
    }
    // The files are checked before the run begins, and are not left behind if it does not begin.
    let (page, kept) = (place.path("run.html"), place.path("kept.md"));
    std::fs::write(&kept, "kept").unwrap();
    let files = ["--html", &page, "--markdown", &kept];
    let output = place.run(&[&[&mine, "--only", "keyvay"][..], &files].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(!Path::new(&page).exists() && std::fs::read(&kept).unwrap() == b"kept");
    let list = String::from_utf8(place.run(&["--list"]).stdout).unwrap();
    assert_eq!(list.lines().count(), 5, "{list}");
    let shown = String::from_utf8(place.run(&["--show", "atbus"]).stdout).unwrap();
    assert!(shown.contains("[[system]]"), "{shown}");
}
