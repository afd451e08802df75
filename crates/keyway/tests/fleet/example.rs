//! `make run FILE=docs/examples/fleet.toml`: the script that it starts.

use crate::stage::{KEYWAY, SOON};
use keyway_testkit::{Client, Process, Signal, TempDir, Value, free_address, wait_until, watchdog};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

#[test]
fn the_fleet_of_the_example_runs_until_it_is_interrupted() {
    let _watchdog = watchdog(Duration::from_secs(120), "the fleet of the example");
    let directory = TempDir::new();
    let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let addresses: Vec<SocketAddr> = (0..10).map(|_| free_address()).collect();
    let ports: Vec<String> = addresses.iter().map(|one| one.port().to_string()).collect();
    // A shell cannot catch what was ignored when it began, as SIGINT is by jobs in the background.
    let mut command = Command::new("env");
    let command = command.arg("--default-signal=INT").arg(format!("{top}/scripts/fleet.sh"));
    let command = command.arg(KEYWAY).arg(format!("{top}/docs/examples/fleet.toml"));
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

    script.signal(Signal::INT);
    assert_eq!(script.wait_exit(SOON).code(), Some(130), "{}", script.log());
    for address in addresses {
        wait_until("a process has ended", SOON, || TcpStream::connect(address).is_err());
    }
    let left = std::fs::read_dir(directory.path()).expect("the directory");
    let left: Vec<_> = left.filter_map(|one| one.ok().map(|one| one.file_name())).collect();
    assert!(!left.iter().any(|one| one.to_string_lossy().starts_with("keyway-fleet.")), "{left:?}");
}
