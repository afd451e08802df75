//! Running a program to its end: redis-cli, redis-benchmark, python.

use std::io::Write;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::process::Process;
use crate::temp::TempDir;

/// What a tool said and how it ended.
#[derive(Debug)]
pub struct ToolOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output and standard error, in the order they were written.
    pub text: String,
}

impl ToolOutput {
    /// The output, once sure that the tool ended well.
    ///
    /// # Panics
    /// When its exit status is not zero; the message carries its output.
    pub fn expect_success(self, what: &str) -> String {
        assert!(self.status.success(), "{what} ended with {}:\n{}", self.status, self.text);
        self.text
    }
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
    let mut command = Command::new("sh");
    command.args(["-c", r#"input=$1; shift; exec "$@" <"$input""#, "sh"]);
    command.arg(&input_path).arg(program).args(arguments);
    let mut process = Process::spawn("tool", &mut command, directory.path());
    let status = process.wait_exit(bound);
    ToolOutput { status, text: process.log() }
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
