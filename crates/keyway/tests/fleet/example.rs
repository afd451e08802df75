//! `make run FILE=docs/examples/fleet.toml`: the script that it starts.

use crate::stage::{KEYWAY, SOON};
use keyway_testkit::{
    Client, Process, Signal, TempDir, Value, free_address, run_keyway, run_tool, wait_until,
    watchdog,
};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/fleet.sh");
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/fleet.toml");

#[test]
fn the_fleet_of_the_example_runs_until_it_is_interrupted() {
    let _watchdog = watchdog(Duration::from_secs(120), "the fleet of the example");
    let directory = TempDir::new();
    let addresses: Vec<SocketAddr> = (0..10).map(|_| free_address()).collect();
    let ports: Vec<String> = addresses.iter().map(|one| one.port().to_string()).collect();
    // A shell cannot catch what was ignored when it began, as SIGINT is by jobs in the background.
    let mut command = Command::new("env");
    let command = command.args(["--default-signal=INT", SCRIPT, KEYWAY, FILE]);
    let command = command.env("PORTS", ports.join(" ")).env("TMPDIR", directory.path());
    let mut script = Process::spawn("fleet", command, directory.path());
    wait_until("the fleet runs", Duration::from_secs(60), || {
        assert!(script.is_running(), "{}", script.log());
        script.log().contains("A fleet runs")
    });
    let (mut first, mut second) = (Client::connect(addresses[2]), Client::connect(addresses[4]));
    assert_eq!(first.words("SET greeting hello"), Value::simple("OK"));
    assert_eq!(second.words("GET greeting"), Value::bulk("hello"));
    let log = script.log();
    assert!(log.contains("stored and published as 1.1"), "{log}");
    // The commands that it tells have the addresses that there are.
    assert!(
        log.contains(&format!("fleet\n  keyway ctl --admin {} history", addresses[0])),
        "{log}"
    );

    // A second one would speak to the first.
    let ports = format!("PORTS={}", ports.join(" "));
    let again = run_tool("env", &[&*ports, SCRIPT, KEYWAY, FILE], b"", SOON);
    assert_eq!(again.status.code(), Some(2), "{}", again.text);
    assert!(again.text.contains("listens at these ports"), "{}", again.text);

    the_groups_fail_over(&script, addresses[0], [&mut first, &mut second]);

    // Processes that an upgrade has started end with the others. The ones before serve their clients first.
    drop((first, second));
    let admin = addresses[0].to_string();
    let upgrade = ["ctl", "--admin", &*admin, "--members", "all", "upgrade"];
    let _ = run_keyway(KEYWAY, &upgrade).expect_success("keyway ctl upgrade");
    for told in ["proxy-1 is process", "proxy-2 is process"] {
        wait_until("the script has noticed the upgrade", SOON, || script.log().contains(told));
    }

    script.signal(Signal::INT);
    assert_eq!(script.wait_exit(SOON).code(), Some(130), "{}", script.log());
    for address in addresses {
        wait_until("a process has ended", SOON, || TcpStream::connect(address).is_err());
    }
    let left = std::fs::read_dir(directory.path()).expect("the directory");
    let left: Vec<_> = left.filter_map(|one| one.ok().map(|one| one.file_name())).collect();
    assert!(!left.iter().any(|one| one.to_string_lossy().starts_with("keyway-fleet.")), "{left:?}");
}

#[test]
fn the_script_tells_at_once_what_it_lacks() {
    let lacks = |arguments: &[&str], told: &str| {
        let output = run_tool(SCRIPT, arguments, b"", SOON);
        assert_eq!(output.status.code(), Some(2), "{}", output.text);
        assert!(output.text.contains(told), "{}", output.text);
    };
    lacks(&[], "usage: scripts/fleet.sh KEYWAY FILE");
    lacks(&["/nonexistent/keyway", FILE], "is not a program");
    lacks(&["/bin/true", FILE], "is not Keyway");
    lacks(&[KEYWAY, "/nonexistent/fleet.toml"], "cannot be read");
}

/// The primary of one group is killed, as the script tells, and the other one changes its primary by
/// hand.
fn the_groups_fail_over(script: &Process, admin: SocketAddr, [first, second]: [&mut Client; 2]) {
    let admin = admin.to_string();
    let ctl = |words: &[&str]| run_keyway(KEYWAY, &[&["ctl", "--admin", &admin], words].concat());
    assert_eq!(first.words("SET b:greeting hi"), Value::simple("OK"));
    let _ = ctl(&["failover", "b"]).expect_success("keyway ctl failover");
    assert_eq!(second.words("GET b:greeting"), Value::bulk("hi"));
    let log = script.log();
    let pid = log.split_once("the primary of a (kill ").and_then(|(_, rest)| rest.split_once(')'));
    let pid: i32 = pid.and_then(|(pid, _)| pid.parse().ok()).expect("its number");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    let _ = rustix::process::kill_process(pid, Signal::KILL);
    // A request that was on its way may fail. Later ones wait for the next primary.
    second.set_reply_within(SOON);
    wait_until("another primary takes writes", SOON, || {
        second.words("SET greeting again") == Value::simple("OK")
    });
    assert_eq!(first.words("GET greeting"), Value::bulk("again"));
    let events = ctl(&["events"]).expect_success("keyway ctl events").stdout;
    assert!(events.contains("group-failover"), "{events}");
    let audit = ctl(&["audit", "--verify"]).expect_success("keyway ctl audit").stdout;
    assert!(audit.contains("entries 1 to 3 are whole"), "{audit}");
}
