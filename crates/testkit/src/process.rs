//! A child process that never outlives its guard.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, kill_process};

use crate::watchdog::wait_for;

pub use rustix::process::Signal;

/// Every child alive, so that a watchdog can end them before it exits.
static CHILDREN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A running server or tool: its output goes to a file, and it is killed when
/// the value is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its standard output and error appended to
    /// `<name>.log` in `directory`.
    ///
    /// # Panics
    /// When the program cannot be started.
    pub fn spawn(name: &str, command: &mut Command, directory: &Path) -> Process {
        let log = directory.join(format!("{name}.log"));
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap_or_else(|error| panic!("cannot open {}: {error}", log.display()));
        let errors = output.try_clone().expect("a file handle can be cloned");
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        children().insert(child.id());
        Process { name: name.to_owned(), child, log }
    }

    /// Its process id. After `sh -c "...; exec program"` this is the
    /// program's.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it printed so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Sends it a signal. Sending to one that has ended is no error.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// SIGSTOP: it keeps its sockets and answers nothing.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        wait_for("the process stops", Duration::from_secs(5), || {
            (crate::proc::state(self.pid()) == Some('T')).then_some(())
        });
    }

    /// SIGCONT, after [`Process::pause`].
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGTERM: asks it to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        children().remove(&self.child.id());
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end and returns how it ended.
    ///
    /// # Panics
    /// When it still runs after `bound`; the message carries its output.
    pub fn wait_exit(&mut self, bound: Duration) -> ExitStatus {
        let what = format!("{} (pid {}) exits; its output:\n{}", self.name, self.pid(), self.log());
        let status = wait_for(&what, bound, || self.child.try_wait().expect("a child of ours"));
        children().remove(&self.child.id());
        status
    }

    /// Waits until `ready` holds.
    ///
    /// # Panics
    /// When the process ends first or `bound` passes; the message carries its
    /// output.
    pub fn wait_ready(&mut self, bound: Duration, mut ready: impl FnMut() -> bool) {
        let mut last = String::new();
        let ended = wait_for(&format!("{} is ready", self.name), bound, || {
            if ready() {
                return Some(None);
            }
            last = self.log();
            self.child.try_wait().expect("a child of ours").map(Some)
        });
        if let Some(status) = ended {
            panic!("{} ended before it was ready ({status}); its output:\n{last}", self.name);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(25).collect();
            eprintln!("-- last lines of {} (pid {}):", self.name, self.pid());
            for line in tail.iter().rev() {
                eprintln!("   {line}");
            }
        }
        self.kill();
    }
}

fn children() -> std::sync::MutexGuard<'static, BTreeSet<u32>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills every child that is still alive: for the watchdog, after which no
/// guard will be dropped.
pub(crate) fn kill_all() {
    for raw in children().iter() {
        if let Some(pid) = i32::try_from(*raw).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempDir;

    #[test]
    fn a_dropped_process_is_gone() {
        let directory = TempDir::new();
        let process =
            Process::spawn("sleeper", Command::new("sleep").arg("1000"), directory.path());
        let pid = process.pid();
        assert!(crate::proc::state(pid).is_some());
        drop(process);
        assert_eq!(crate::proc::state(pid), None);
    }

    #[test]
    fn output_and_exit_status_are_kept() {
        let directory = TempDir::new();
        let mut process = Process::spawn(
            "speaker",
            Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]),
            directory.path(),
        );
        assert_eq!(process.wait_exit(Duration::from_secs(5)).code(), Some(3));
        assert_eq!(process.log(), "out\nerr\n");
    }
}
