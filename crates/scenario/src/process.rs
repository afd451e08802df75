//! Processes that a scenario starts, the ports they listen on and the directory they write to.
//! Nothing of it is there any more when this is dropped.

use crate::convert::plain;
use crate::error::Error;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A program that does not listen after this time is taken as failed.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// A program that does not end after this time is killed.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// A program that is asked something and does not answer in this time is ended.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// How long the output of what was killed may take to end.
const ENDED_PATIENCE: Duration = Duration::from_millis(500);
/// How much of an answer is read.
const ANSWER_LEN_MAX: u64 = 1 << 20;
/// How often is looked.
const LOOK: Duration = Duration::from_millis(10);
/// How much of a failed program's output is told.
const TAIL_LEN: usize = 300;
/// Names for a directory that are tried: of others' runs, or of one that was killed, some may be there.
const DIRECTORY_TRIES: u32 = 1000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory for the files of a run and the output of its programs. It goes with this value.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
    /// This program and its arguments, behind which a program comes that must not outlive it.
    guard: Vec<String>,
    logs: AtomicU32,
}

impl Scratch {
    /// A new directory in the system's place for temporary files. `guard` is the command that starts
    /// this program as [`become_guarded`]; programs are started as they are without one.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn new(guard: &[String]) -> Result<Scratch, Error> {
        let directory = make_directory(&std::env::temp_dir())?;
        Ok(Scratch { directory, guard: guard.to_vec(), logs: AtomicU32::new(0) })
    }

    /// Where files go.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a file and returns its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.directory.join(name);
        let written = std::fs::write(&path, text);
        written.map_err(|why| Error::system(format!("cannot write {}", path.display()), why))?;
        Ok(path)
    }

    /// Starts a program, which is one of this machine's as [`find`] has it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, name: &str, program: &Path, words: &[String]) -> Result<Process, Error> {
        let number = self.logs.fetch_add(1, Ordering::Relaxed);
        let log = self.directory.join(format!("{number}.log"));
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
        Ok(Process { name: name.to_owned(), child, log, status: None })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A program that was started, with all that it has started. Dropping it kills them.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    status: Option<ExitStatus>,
}

impl Process {
    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file its output goes to.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.status = self.status.or_else(|| self.child.try_wait().ok().flatten());
        self.status
    }

    /// Waits until it listens on a port of the loopback address.
    ///
    /// # Errors
    /// When it ends, or does not listen in time, or the run is stopped.
    pub fn wait_for(&mut self, port: u16, is_stopped: &AtomicBool) -> Result<(), Error> {
        let until = Instant::now() + START_PATIENCE;
        let name = self.name.clone();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if self.ended().is_some() {
                return Err(Error::system(format!("{name} ended at its start"), self.last_words()));
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

    /// Sends a signal to it and to what it has started.
    pub fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Sends a signal, waits for the end, and returns how it ended.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn end_with(&mut self, signal: Signal) -> Result<ExitStatus, Error> {
        self.signal(signal);
        let until = Instant::now() + END_PATIENCE;
        loop {
            match self.ended() {
                Some(status) => return Ok(status),
                None if Instant::now() > until => {
                    let why = format!("{signal:?} did not end it in {} s", END_PATIENCE.as_secs());
                    return Err(Error::system(&self.name, why));
                }
                None => std::thread::sleep(LOOK),
            }
        }
    }

    /// The end of what it said.
    pub fn last_words(&self) -> String {
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

impl Drop for Process {
    fn drop(&mut self) {
        // Of its group there may be one left, though it has ended itself.
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Where a scenario's files and processes are.
#[derive(Debug)]
pub struct Site {
    processes: Vec<Process>,
    scratch: Scratch,
}

impl Site {
    /// A directory of its own, and no process yet.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn new(guard: &[String]) -> Result<Site, Error> {
        Ok(Site { processes: Vec::new(), scratch: Scratch::new(guard)? })
    }

    /// Where files go.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Starts a program, waits until it listens on `port`, and returns its process id.
    ///
    /// # Errors
    /// When it cannot be started or does not listen.
    pub fn start(
        &mut self,
        name: &str,
        (program, words): (&Path, &[String]),
        port: u16,
        is_stopped: &AtomicBool,
    ) -> Result<u32, Error> {
        let mut process = self.scratch.start(name, program, words)?;
        let pid = process.pid();
        let outcome = process.wait_for(port, is_stopped);
        self.processes.push(process);
        outcome.map(|()| pid)
    }

    /// What the process said before its end, if it has ended.
    pub fn end_of(&mut self, pid: u32) -> Option<String> {
        let process = self.processes.iter_mut().find(|one| one.pid() == pid)?;
        process.ended()?;
        Some(format!("{} has ended: {}", process.name, process.last_words()))
    }
}

impl Drop for Site {
    /// Asks all processes to end; those that do not are killed.
    fn drop(&mut self) {
        for process in &self.processes {
            process.signal(Signal::TERM);
        }
        let until = Instant::now() + END_PATIENCE;
        while !self.processes.iter_mut().all(|one| one.ended().is_some()) && Instant::now() < until
        {
            std::thread::sleep(LOOK);
        }
    }
}

/// A directory that nobody else has: another run may have the same process id, in a container that
/// shares the place, or may have been killed.
fn make_directory(place: &Path) -> Result<PathBuf, Error> {
    for _ in 0..DIRECTORY_TRIES {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("keyway-scenario-{}-{number}", std::process::id());
        let directory = place.join(name);
        match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => return Ok(directory),
            Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(why) => {
                return Err(Error::system(format!("cannot make {}", directory.display()), why));
            }
        }
    }
    let why = "others' directories have all the names";
    Err(Error::system(format!("cannot make a directory in {}", place.display()), why))
}

/// Where a program is: as it is given where it has a slash, else on the path.
pub fn find(program: impl AsRef<Path>) -> Option<PathBuf> {
    let program = program.as_ref();
    let is_program = |path: &PathBuf| path.is_file();
    if program.components().count() > 1 {
        return Some(program.to_owned()).filter(is_program);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian has some servers where only root's path leads.
    let more = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|dir| dir.join(program)).find(is_program)
}

/// What a command said before its end.
#[derive(Debug)]
pub struct Answer {
    /// True if it ended without an error.
    pub is_success: bool,
    /// What it wrote to its output, and behind that what it wrote about errors.
    pub text: String,
}

/// Runs a command to its end, which comes within `patience`: then it and what it has started are
/// ended.
///
/// # Errors
/// When it cannot be started, or does not end by itself, or the run is stopped.
pub fn ask(
    program: &Path,
    words: &[String],
    patience: Duration,
    is_stopped: &AtomicBool,
) -> Result<Answer, Error> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.process_group(0).spawn();
    let mut child = child.map_err(|why| Error::system(format!("cannot start {name}"), why))?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let readers = [output.map(listen), errors.map(listen)];
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let until = Instant::now() + patience;
    let is_heard = |readers: &[Option<Reader>]| readers.iter().flatten().all(Reader::is_finished);
    let mut ended = None;
    // Who holds its output may outlive it.
    while ended.is_none() || !is_heard(&readers) {
        if Instant::now() > until || is_stopped.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(LOOK);
        ended = ended.or(child.try_wait().ok().flatten());
    }
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    let until = Instant::now() + ENDED_PATIENCE;
    while !is_heard(&readers) && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
    let Some(status) = ended else {
        let why = format!("no answer in {} s", patience.as_secs());
        return Err(Error::system(name, why));
    };
    // One that still reads has an output that somebody outside of the group holds open.
    let readers = readers.into_iter().flatten().filter(Reader::is_finished);
    let heard = readers.map(|one| one.join().unwrap_or_default());
    let text = String::from_utf8_lossy(&heard.collect::<Vec<_>>().concat()).into_owned();
    Ok(Answer { is_success: status.success(), text })
}

type Reader = std::thread::JoinHandle<Vec<u8>>;

/// Reads to the end, and keeps the beginning.
fn listen(mut from: impl Read + Send + 'static) -> Reader {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.by_ref().take(ANSWER_LEN_MAX).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut from, &mut std::io::sink());
        bytes
    })
}

/// The first line that a command prints; nothing if it does not end.
pub fn first_line(program: &Path, words: &[String], is_stopped: &AtomicBool) -> String {
    let Ok(answer) = ask(program, words, ANSWER_PATIENCE, is_stopped) else { return String::new() };
    let line = answer.text.lines().map(str::trim).find(|line| !line.is_empty());
    let line = line.unwrap_or_default();
    // Some tell by what path they were called.
    let path = program.display().to_string();
    plain(line.strip_prefix(&path).map_or(line, str::trim_start))
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
        let scratch = Scratch::new(&[]).unwrap();
        let directory = scratch.directory().to_owned();
        scratch.write("a", "b").unwrap();
        let sleep = find("sleep").unwrap();
        let polite = scratch.start("sleep", &sleep, &["1000".to_owned()]).unwrap();
        let shell = find("sh").unwrap();
        // It does not end when it is asked to, and has a child.
        let stubborn = "trap '' TERM; sleep 1000 & wait; wait".to_owned();
        let shell = scratch.start("sh", &shell, &["-c".to_owned(), stubborn]).unwrap();
        let there = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
        let (pid, other) = (polite.pid(), shell.pid());
        assert!(there(pid) && there(other) && directory.exists());
        drop(Site { processes: vec![polite, shell], scratch });
        assert!(!there(pid) && !there(other) && !directory.exists());
    }

    #[test]
    fn a_signal_ends_a_process_and_says_how() {
        let scratch = Scratch::new(&[]).unwrap();
        let sleep = find("sleep").unwrap();
        let mut process = scratch.start("sleep", &sleep, &["1000".to_owned()]).unwrap();
        assert!(!process.end_with(Signal::TERM).unwrap().success());
        assert!(process.ended().is_some());
    }

    #[test]
    fn who_is_asked_and_says_nothing_is_ended() {
        let (shell, stop) = (find("sh").unwrap(), AtomicBool::new(false));
        let of = |text: &str| ["-c".to_owned(), text.to_owned()];
        let patience = Duration::from_millis(200);
        let said = ask(&shell, &of("echo one; echo two >&2; exit 3"), END_PATIENCE, &stop).unwrap();
        assert_eq!((said.is_success, said.text.as_str()), (false, "one\ntwo\n"));
        // The first is there itself, of the second a child that holds its output.
        for silent in ["echo one; sleep 1000", "sleep 1000 & exit 0"] {
            let begun = Instant::now();
            let _ = ask(&shell, &of(silent), patience, &stop);
            assert!(begun.elapsed() < END_PATIENCE, "{silent}");
        }
        let why = ask(&shell, &of("sleep 1000"), patience, &stop).unwrap_err().to_string();
        assert_eq!(why, "sh: no answer in 0 s");
        let told = format!("echo; echo {} tool-1.2 fast", shell.display());
        assert_eq!(first_line(&shell, &of(&told), &stop), "tool-1.2 fast");
        stop.store(true, Ordering::Relaxed);
        assert_eq!(first_line(&shell, &of("sleep 1000"), &stop), "");
    }

    #[test]
    fn a_directory_of_another_run_is_left_alone() {
        let place = Scratch::new(&[]).unwrap();
        let name = |number: u32| format!("keyway-scenario-{}-{number}", std::process::id());
        let next = NEXT.load(Ordering::Relaxed);
        (next..next + 50).for_each(|number| {
            std::fs::create_dir(place.directory().join(name(number))).unwrap();
        });
        let made = make_directory(place.directory()).unwrap();
        assert!((next + 50..next + 100).any(|number| made.ends_with(name(number))), "{made:?}");
    }

    #[test]
    fn what_a_program_said_is_told_when_it_ends_early() {
        let mut site = Site::new(&[]).unwrap();
        let (port, stop) = (crate::ports::free_port().unwrap(), AtomicBool::new(false));
        let words = ["-c".to_owned(), "echo no room; exit 3".to_owned()];
        let shell = find("sh").unwrap();
        let why = site.start("a server", (&shell, &words), port, &stop).unwrap_err().to_string();
        assert_eq!(why, "a server ended at its start: no room");
        assert!(find("no-such-program-anywhere").is_none() && find("/bin").is_none());
    }
}
