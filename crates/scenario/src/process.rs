//! Processes that a scenario starts, the ports they listen on and the directory they write to.
//! Nothing of it is there any more when this is dropped.

use crate::convert::plain;
use crate::error::Error;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A program that does not listen after this time is taken as failed.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// A program that does not end after this time is killed.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(10);
/// How much of a failed program's output is told.
const TAIL_LEN: usize = 300;
/// Free ports are looked for so often before it is given up.
const PORT_TRIES: usize = 100;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Where a scenario's files and processes are.
#[derive(Debug)]
pub struct Site {
    directory: PathBuf,
    processes: Vec<Process>,
    ports: BTreeSet<u16>,
    /// This program and its arguments, behind which a program comes that must not outlive it.
    guard: Vec<String>,
}

#[derive(Debug)]
struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    has_ended: bool,
}

impl Site {
    /// A directory of its own, and no process yet.
    pub fn new(guard: &[String]) -> Result<Site, Error> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("keyway-scenario-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let made = std::fs::create_dir(&directory);
        made.map_err(|why| Error::system(format!("cannot make {}", directory.display()), why))?;
        let (processes, ports) = (Vec::new(), BTreeSet::new());
        Ok(Site { directory, processes, ports, guard: guard.to_vec() })
    }

    /// Where files go.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a file, and tells where it is.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.directory.join(name);
        let written = std::fs::write(&path, text);
        written.map_err(|why| Error::system(format!("cannot write {}", path.display()), why))?;
        Ok(path)
    }

    /// A port of the loopback address that nobody listens on, another one each time.
    pub fn free_port(&mut self) -> Result<u16, Error> {
        for _ in 0..PORT_TRIES {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
                .and_then(|listener| listener.local_addr())
                .map_err(|why| Error::system("cannot find a free port", why))?
                .port();
            if self.ports.insert(port) {
                return Ok(port);
            }
        }
        Err(Error::system("cannot find a free port", "none is left"))
    }

    /// Starts a program, which is one of this machine's as [`find`] has it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self, name: &str, program: &Path, words: &[String]) -> Result<u32, Error> {
        let log = self.directory.join(format!("{}.log", self.processes.len()));
        let failed = |why| Error::system(format!("cannot start {name}"), why);
        let output = File::create(&log).map_err(failed)?;
        let mut command = match self.guard.split_first() {
            Some((guard, first)) => {
                let mut command = Command::new(guard);
                command.args(first).arg(program);
                command
            }
            None => Command::new(program),
        };
        command
            .args(words)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output)
            // Ctrl-C is for this program, which ends the others when it has what it wants.
            .process_group(0);
        let child = command.spawn().map_err(failed)?;
        let pid = child.id();
        self.processes.push(Process { name: name.to_owned(), child, log, has_ended: false });
        Ok(pid)
    }

    /// Waits until the last process that was started listens.
    ///
    /// # Errors
    /// When it ends, or does not listen in time, or the run is stopped.
    pub fn wait_for(&mut self, port: u16, is_stopped: &AtomicBool) -> Result<(), Error> {
        let until = Instant::now() + START_PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let Some(process) = self.processes.last_mut() else { break };
            let name = process.name.clone();
            if process.is_over() {
                let what = format!("{name} ended at its start");
                return Err(Error::system(what, process.last_words()));
            }
            if Instant::now() > until {
                let why = format!("port {port}, in {} s", START_PATIENCE.as_secs());
                return Err(Error::system(format!("{name} does not listen"), why));
            }
            if is_stopped.load(Ordering::Relaxed) {
                return Err(Error::system(format!("{name} was not waited for"), "interrupted"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// What the process said before its end, if it has ended.
    pub fn end_of(&mut self, pid: u32) -> Option<String> {
        let process = self.processes.iter_mut().find(|one| one.child.id() == pid)?;
        process.is_over().then(|| format!("{} has ended: {}", process.name, process.last_words()))
    }

    /// Ends all processes.
    pub fn end(&mut self) {
        for process in &self.processes {
            process.signal(Signal::TERM);
        }
        let until = Instant::now() + END_PATIENCE;
        while !self.processes.iter_mut().all(Process::is_over) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        for process in &mut self.processes {
            // Of its group there may be one left, though it has ended itself.
            process.signal(Signal::KILL);
            let _ = process.child.wait();
        }
        self.processes.clear();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.end();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Process {
    fn is_over(&mut self) -> bool {
        self.has_ended |= matches!(self.child.try_wait(), Ok(Some(_)));
        self.has_ended
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, signal);
        }
    }

    fn last_words(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_LEN)..]);
        let lines: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match lines.as_slice() {
            [] => "it said nothing".to_owned(),
            lines => plain(&lines.join(" / ")),
        }
    }
}

/// Where a program is: as it is given where it has a slash, else on the path.
pub fn find(program: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| path.is_file();
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian has some servers where only root's path leads.
    let more = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|dir| dir.join(program)).find(is_program)
}

/// The first line that a command prints.
pub fn first_line(program: &Path, words: &[String]) -> String {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let Ok(output) = output else { return String::new() };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    plain(text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default())
}

/// Becomes a program with its arguments, `words`, which ends when the process `run` does, who has
/// started this one.
///
/// # Errors
/// When it cannot be started; else it does not return.
pub fn become_guarded(run: u32, words: &[String]) -> Result<std::convert::Infallible, Error> {
    let [program, words @ ..] = words else {
        return Err(Error::Asked("there is nothing to start".to_owned()));
    };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|why| Error::system("cannot be tied to its parent", why))?;
    // It may have ended before that, and then there is no signal.
    if std::os::unix::process::parent_id() != run {
        return Err(Error::Asked("the run has ended".to_owned()));
    }
    let why = Command::new(program).args(words).exec();
    Err(Error::system(format!("cannot start {program}"), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_a_site() {
        let mut site = Site::new(&[]).unwrap();
        let directory = site.directory().to_owned();
        site.write("a", "b").unwrap();
        let sleep = find("sleep").unwrap();
        let pid = site.start("sleep", &sleep, &["1000".to_owned()]).unwrap();
        let shell = find("sh").unwrap();
        // It does not end when it is asked to, and has a child.
        let stubborn = "trap '' TERM; sleep 1000 & wait; wait".to_owned();
        let other = site.start("sh", &shell, &["-c".to_owned(), stubborn]).unwrap();
        let there = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
        assert!(there(pid) && there(other) && directory.exists());
        drop(site);
        assert!(!there(pid) && !there(other) && !directory.exists());
    }

    #[test]
    fn what_a_program_said_is_told_when_it_ends_early() {
        let mut site = Site::new(&[]).unwrap();
        let (port, stop) = (site.free_port().unwrap(), AtomicBool::new(false));
        let words = ["-c".to_owned(), "echo no room; exit 3".to_owned()];
        site.start("a server", &find("sh").unwrap(), &words).unwrap();
        let why = site.wait_for(port, &stop).unwrap_err().to_string();
        assert_eq!(why, "a server ended at its start: no room");
        assert!(find("no-such-program-anywhere").is_none() && find("/bin").is_none());
    }
}
