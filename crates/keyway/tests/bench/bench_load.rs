//! `keyway bench load` on the command line: against Keyway over TCP, unix sockets and shared
//! memory, against Redis, and its messages when it fails.
#![allow(clippy::disallowed_methods, reason = "a command that is interrupted after a while")]

use keyway_testkit::certificates::CertificateFiles;
use keyway_testkit::{Keyway, KeywayConfig, Pool, RedisServer, TempDir, free_port, wait_until};
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

fn load(arguments: &[&str]) -> Output {
    let mut command = Command::new(KEYWAY);
    command.args(["bench", "load"]).args(arguments).output().expect("the program that was built")
}

/// Runs it, which must succeed. Returns its output and its JSON.
fn measured(arguments: &[&str]) -> (String, Value) {
    let directory = TempDir::new();
    let file = directory.path().join("load.json");
    let output = load(&[arguments, &["--json", file.to_str().unwrap()]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    (text, serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap())
}

#[test]
fn keyway_is_measured_over_every_transport_and_protocol() {
    let directory = TempDir::new();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let listener = |bind: &str, protocol: &str| {
        format!("[[listener]]\nbind = \"{bind}\"\nprotocol = \"{protocol}\"\npool = \"local\"\n\n")
    };
    let (shm, unix) = (format!("shm://{}", path("shm")), format!("unix://{}", path("unix")));
    let memcached = format!("unix://{}", path("memcached"));
    let memcached_shm = format!("shm://{}", path("memcached.shm"));
    let tables = [
        listener(&shm, "redis"),
        listener(&unix, "redis"),
        listener(&memcached, "memcached"),
        listener(&memcached_shm, "memcached"),
    ];
    let config = KeywayConfig::new(vec![Pool::store("local")])
        .with_server("workers", "1")
        .with_tables(&tables.concat());
    let keyway = Keyway::start(KEYWAY, config);
    let tcp = keyway.address(0).to_string();
    for (address, protocol) in [
        (tcp.as_str(), "resp2"),
        (&unix, "resp3"),
        (&shm, "resp2"),
        (&shm, "resp3"),
        (&memcached, "memcached-text"),
        (&memcached, "memcached-meta"),
        (&memcached, "memcached-binary"),
        (&memcached_shm, "memcached-text"),
    ] {
        let prefix = format!("{protocol}{}:", address.len());
        let arguments = [
            address,
            "--protocol",
            protocol,
            "--mix",
            "set:1,get:2,mget_5:1",
            "--requests",
            "5000",
            "--keys",
            "500",
            "--verify",
            "--connections",
            "5",
            "--pipeline",
            "3",
            "--key-prefix",
            &prefix,
        ];
        let (text, json) = measured(&arguments);
        let outcome = &json["outcomes"][0];
        assert_eq!((&json["schema"], &outcome["schema"]), (&2.into(), &2.into()));
        assert_eq!(outcome["totals"]["requests"], 5000, "{text}");
        assert_eq!(outcome["totals"]["errors"], 0, "{text}");
        assert!(outcome["verification"]["checked"].as_u64() > Some(3000), "{text}");
        let process = &outcome["processes"][0];
        assert_eq!(process["pid"], keyway.process().pid(), "{address}: {text}");
        assert_eq!(process["name"], "keyway");
        assert!(text.contains("mget_5") && text.contains("0 wrong, 0 stale, 0 missing"), "{text}");
    }
}

#[test]
fn suites_and_fills_are_run_in_turn() {
    let server = RedisServer::start();
    let address = server.address().to_string();
    let (text, json) =
        measured(&[&address, "--suite", "set,lrange_600", "--requests", "2000", "--pipeline", "4"]);
    let names: Vec<&str> = json["outcomes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["workload"].as_str())
        .collect();
    assert_eq!(names, ["set", "lrange_list", "lrange_600"], "{text}");
    let filled = [&address[..], "--ratio", "0:1", "--keys", "300", "--fill", "--requests", "2000"];
    let (_, json) = measured(&filled);
    assert_eq!(json["outcomes"][0]["totals"]["misses"], 0);
    let (_, json) = measured(&[
        &address,
        "--command",
        "HSET h __key__ __data__",
        "--command",
        "HGET h __key__",
        "--command-weight",
        "1",
        "--command-weight",
        "3",
        "--requests",
        "4000",
        "--keys",
        "10",
        "--rate",
        "20000",
    ]);
    let classes = json["outcomes"][0]["classes"].as_array().unwrap();
    assert!(classes[1]["requests"].as_u64() > classes[0]["requests"].as_u64().map(|sets| sets * 2));
    let (text, _) =
        measured(&[&address, "--ycsb", "b", "--keys", "200", "--fill", "--requests", "1000"]);
    assert!(text.contains("update"), "{text}");
}

#[test]
fn the_status_is_1_above_errors_max_and_0_up_to_it() {
    let server = RedisServer::start();
    let address = server.address().to_string();
    assert_eq!(server.client().words("SET text v").text(), "OK");
    let run = |requests: &str, command: &str, bound: &[&str]| {
        let arguments = [&address[..], "--requests", requests, "--command", command];
        let output = load(&[&arguments[..], bound].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (command, bound, status) in [
        ("INCR text", &[][..], 1),
        ("INCR text", &["--errors-max", "299"], 1),
        ("INCR text", &["--errors-max", "300"], 0),
        ("INCR text", &["--errors-max", "99%"], 1),
        ("INCR text", &["--errors-max", "100%"], 0),
        ("INCR number", &[], 0),
        ("INCR number", &["--errors-max", "0%"], 0),
    ] {
        let (code, told) = run("300", command, bound);
        assert_eq!(code, Some(status), "{command}, {bound:?}: {told}");
        let why = "300 of 300 requests failed, more than --errors-max";
        assert_eq!(told.contains(why), status == 1, "{command}, {bound:?}: {told}");
    }
}

#[test]
fn an_interrupted_run_prints_what_it_has() {
    let server = RedisServer::start();
    let address = server.address().to_string();
    let mut command = Command::new(KEYWAY);
    let child = command
        .args(["bench", "load", &address, "--duration", "10m"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let clients = || server.client().words("INFO clients").text();
    wait_until("all connections", Duration::from_secs(20), || {
        clients().contains("connected_clients:51")
    });
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("INTERRUPTED"), "{text}");
    assert!(output.stderr.is_empty(), "no progress line where no terminal is");
}

#[test]
fn a_run_that_is_ended_before_it_measures_says_so() {
    let server = RedisServer::start();
    let address = server.address().to_string();
    let directory = TempDir::new();
    let file = directory.path().join("run.json");
    let connected = || server.client().words("INFO clients").text();
    for (arguments, clients) in
        [(["--fill", "--keys", "100000000"], 2), (["--warm-up", "10m", "--verify"], 51)]
    {
        let mut command = Command::new(KEYWAY);
        command.args(["bench", "load", &address, "--json"]).arg(&file).args(arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let wanted = format!("connected_clients:{clients}\r");
        wait_until("its connections", Duration::from_secs(20), || connected().contains(&wanted));
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        // The server knows of a connection before the client does.
        let says_so = text.contains("interrupted before anything was measured")
            || text.contains("interrupted while connecting");
        assert!(says_so, "{arguments:?}: {text}");
        assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{output:?}");
        assert!(!file.exists(), "no result is left that says nothing");
        wait_until("its end", Duration::from_secs(20), || {
            connected().contains("connected_clients:1\r")
        });
    }
}

#[test]
fn what_cannot_be_done_is_told_before_anything_is_sent() {
    let server = RedisServer::start_with(&["--requirepass", "secret"]);
    let address = server.address().to_string();
    for (arguments, told) in [
        (&["127.0.0.1:1"][..], "connection refused"),
        (
            &["unix:///nonexistent.sock"],
            "unix:///nonexistent.sock: there is no socket at this path",
        ),
        (&["nowhere"], "is no address"),
        (&["shm:///nowhere/at.all"], "there is no socket at this path"),
        (&["shm:///k?spin=0"], "has options behind its path"),
        (&[&address], "NOAUTH"),
        (&[&address, "--password", "wrong"], "WRONGPASS"),
        (&[&address, "--password-file", "/nonexistent"], "cannot read"),
        (&[&address, "--protocol", "memcached-text"], "--protocol says"),
        (&[&address, "--protocol", "http"], "is no protocol"),
        (&[&address, "--mix", "got"], "no command by name"),
        (&[&address, "--suite", "sett"], "none of the suite"),
        (&[&address, "--ycsb", "g"], "no workload"),
        (&[&address, "--command", "GET __kay__"], "nothing stands for __kay__"),
        (&[&address, "--size", "8-"], "is no number of bytes"),
        (&[&address, "--size", "9-8"], "a range from the smaller"),
        (&[&address, "--key-pattern", "q"], "is no pattern"),
        (&[&address, "--duration", "0s"], "longer than nothing"),
        (&[&address, "--threads", "0"], "from 1 to"),
        (&[&address, "--rate=-5"], "a rate is above 0"),
        (&[&address, "--verify", "--size", "10"], "at least 48 bytes"),
        (&[&address, "--verify", "--mix", "incr"], "cannot be verified"),
        (&[&address, "--json", "/nonexistent/x.json"], "cannot write"),
        (
            &[&address, "--password", "secret", "--process", "no such program"],
            "no process is called",
        ),
        (&[&address, "--password", "secret", "--cluster"], "cluster support disabled"),
    ] {
        let output = load(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(told), "{arguments:?}: {text}");
    }
}

#[test]
fn passwords_and_certificates_are_taken_as_redis_cli_takes_them() {
    let files = CertificateFiles::default();
    let port = free_port();
    let options = files.redis_options(port, "server");
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    options.extend(["--requirepass", "secret"]);
    let server = RedisServer::start_with(&options);
    let secured = format!("localhost:{port}");
    let (plain, authority) = (server.address().to_string(), files.path("ca.pem"));
    let secret = files.write("secret", "secret\nmore\n").display().to_string();
    let run = |arguments: &[&str], variable: &str| {
        let mut command = Command::new(KEYWAY);
        command.args(["bench", "load"]).args(arguments).args(["-n", "500", "--keys", "100"]);
        let output = command.env(variable, "secret").output().expect("the program that was built");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let tls = [&secured[..], "--tls", "--cacert", authority.to_str().unwrap()];
    let with = |more: &[&'static str]| [&tls[..], more].concat();
    for (arguments, variable) in [
        (vec![&plain[..]], "REDISCLI_AUTH"),
        (vec![&plain, "--password-env", "MINE"], "MINE"),
        (vec![&plain, "--user", "default", "--password-file", &secret], "NONE"),
        (with(&[]), "REDISCLI_AUTH"),
        (with(&["--sni", "127.0.0.1"]), "REDISCLI_AUTH"),
        (vec![&secured, "--tls", "--insecure"], "REDISCLI_AUTH"),
    ] {
        let (status, told) = run(&arguments, variable);
        assert_eq!(status, Some(0), "{arguments:?}: {told}");
    }
    for (arguments, wanted) in [
        (vec![&plain[..]], "NOAUTH"),
        (vec![&secured], "--tls speaks"),
        (vec![&plain, "--password-env", "NOT_THERE"], "no password in NOT_THERE"),
        (vec![&plain, "--user", "default"], "a user has a password"),
        (vec![&secured, "--tls"], "cannot connect"),
        (with(&["--sni", "other.example"]), "other.example"),
        (vec![&secured, "--tls", "--cacert", "/nonexistent"], "/nonexistent"),
        (vec![&secured, "--insecure"], "--tls"),
        (vec!["unix:///run/x", "--tls", "--insecure"], "only connections over TCP"),
    ] {
        let (status, told) = run(&arguments, "NONE");
        assert!(status == Some(2) && told.contains(wanted), "{arguments:?}: {told}");
    }
}
