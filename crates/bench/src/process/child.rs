use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::clock;
use crate::error::Error;

/// A program that does not listen after this time is taken as failed.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// A program that does not end after this time is killed.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// How much of a failed program's output is shown.
const OUTPUT_TAIL_BYTES: usize = 600;

/// A program and its arguments.
#[derive(Clone, Debug)]
pub struct CommandLine {
    program: PathBuf,
    args: Vec<OsString>,
}

impl CommandLine {
    /// `program` without arguments yet.
    pub fn new(program: impl Into<PathBuf>) -> CommandLine {
        CommandLine { program: program.into(), args: Vec::new() }
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> CommandLine {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> CommandLine {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// The same command run by `tool`, which takes it as its last arguments.
    pub fn under(self, tool: CommandLine) -> CommandLine {
        tool.arg(self.program).args(self.args)
    }

    fn program_name(&self) -> String {
        self.program.display().to_string()
    }
}

/// A process of this run. Dropping it kills it; should this process die
/// without dropping anything, the kernel does.
#[derive(Debug)]
pub struct Child {
    inner: std::process::Child,
    program: String,
    output: PathBuf,
}

impl Child {
    /// Starts `line` with its output going to `NAME.log` in `scratch`.
    ///
    /// # Errors
    /// [`Error::Start`] when the program cannot be run.
    pub fn start(line: &CommandLine, scratch: &Scratch, name: &str) -> Result<Child, Error> {
        let output = scratch.path(&format!("{name}.log"));
        let file = File::create(&output).map_err(Error::io(output.display().to_string()))?;
        let copy = file.try_clone().map_err(Error::io(output.display().to_string()))?;
        let inner = tied_to_this_process(line)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy)
            .spawn()
            .map_err(|why| Error::Start { program: line.program_name(), why: why.to_string() })?;
        Ok(Child { inner, program: line.program_name(), output })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// The file its output goes to.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// Waits until something accepts connections at `addr`.
    ///
    /// # Errors
    /// [`Error::Start`] when the process ends first or takes too long.
    pub fn wait_for_listener(&mut self, addr: SocketAddr) -> Result<(), Error> {
        let ready = clock::wait_until(START_PATIENCE, || match self.ended()? {
            Some(status) => Err(self.failed_to_start(&format!("ended with {status}"))),
            None => Ok(TcpStream::connect(addr).is_ok()),
        })?;
        match ready {
            true => Ok(()),
            false => Err(self.failed_to_start(&format!("does not listen on {addr}"))),
        }
    }

    fn failed_to_start(&self, what: &str) -> Error {
        let why = format!("{what}; it said: {}", self.output_tail());
        Error::Start { program: self.program.clone(), why }
    }

    /// The end of what the process printed.
    pub fn output_tail(&self) -> String {
        let output = std::fs::read(&self.output).unwrap_or_default();
        let tail = &output[output.len().saturating_sub(OUTPUT_TAIL_BYTES)..];
        String::from_utf8_lossy(tail).trim().to_owned()
    }

    /// How the process ended, if it has.
    ///
    /// # Errors
    /// [`Error::Io`] when the operating system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.inner.try_wait().map_err(Error::io(&self.program))
    }

    /// Sends `signal`; a process that has ended gets none.
    ///
    /// # Errors
    /// [`Error::Io`] when the signal cannot be sent.
    pub fn signal(&mut self, signal: Signal) -> Result<(), Error> {
        let is_running = self.ended()?.is_none();
        match Pid::from_raw(self.pid() as i32).filter(|_| is_running) {
            Some(pid) => {
                kill_process(pid, signal).map_err(|errno| Error::io(&self.program)(errno.into()))
            }
            None => Ok(()),
        }
    }

    /// Sends `signal`, waits for the end, and returns how it ended.
    ///
    /// # Errors
    /// [`Error::Ended`] when the process had to be killed.
    pub fn end_with(&mut self, signal: Signal) -> Result<ExitStatus, Error> {
        self.signal(signal)?;
        let mut status = None;
        clock::wait_until(END_PATIENCE, || {
            status = self.ended()?;
            Ok(status.is_some())
        })?;
        status.ok_or_else(|| Error::Ended {
            program: self.program.clone(),
            why: format!("not within {} s of {signal:?}", END_PATIENCE.as_secs()),
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The id cannot have been reused: the process is reaped only here or
        // in `ended`, after which `kill` does nothing.
        if self.inner.kill().is_ok() {
            drop(self.inner.wait());
        }
    }
}

/// Lets util-linux's `setpriv` ask the kernel to kill the program when this
/// process goes, however it goes; it execs, so the process id is the program's.
fn tied_to_this_process(line: &CommandLine) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    let mut command = if setpriv.exists() && find_program(&line.program).is_some() {
        let mut command = Command::new(setpriv);
        command.args(["--pdeathsig", "KILL"]).arg(&line.program);
        command
    } else {
        Command::new(&line.program)
    };
    command.args(&line.args);
    command
}

/// Where `program` is: itself if it is a path, else found in the search path
/// or in the directories Debian keeps servers in.
#[allow(clippy::disallowed_methods, reason = "finding a program is what PATH is for")]
pub(super) fn find_program(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let directories = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]);
    directories.map(|directory| Path::new(directory).join(program)).find(|path| path.is_file())
}

/// Runs `line` to its end, at most for `patience`, and returns what it printed
/// (both streams).
///
/// # Errors
/// [`Error::Start`] when it cannot be run or ends with an error or not at all.
pub fn run_to_end(
    line: &CommandLine,
    patience: Duration,
    scratch: &Scratch,
    name: &str,
) -> Result<String, Error> {
    let mut child = Child::start(line, scratch, name)?;
    let mut status = None;
    clock::wait_until(patience, || {
        status = child.ended()?;
        Ok(status.is_some())
    })?;
    match status {
        Some(status) if status.success() => std::fs::read_to_string(child.output())
            .map_err(Error::io(child.output().display().to_string())),
        Some(status) => Err(child.failed_to_start(&format!("ended with {status}"))),
        None => {
            let seconds = patience.as_secs();
            Err(child.failed_to_start(&format!("did not end within {seconds} s")))
        }
    }
}

/// The version in the first line `program FLAG` prints, on either stream, or
/// that line when it holds none; none when the program is not there or prints
/// nothing.
pub fn version_of(program: &Path, flag: &str) -> Option<String> {
    let program = find_program(program)?;
    let output = Command::new(program).arg(flag).stdin(Stdio::null()).output().ok()?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| version_in(line).unwrap_or(line).to_owned())
}

/// The first word with a digit and a dot, from its first digit on; a word with
/// a slash is a path.
fn version_in(line: &str) -> Option<&str> {
    let words = line.split_whitespace().filter(|word| !word.contains('/') && word.contains('.'));
    words.filter_map(|word| Some(&word[word.find(|c: char| c.is_ascii_digit())?..])).next()
}

/// A loopback port nobody listens on. Another process may take it before it is
/// used; the start then fails and says so.
///
/// # Errors
/// [`Error::Io`] when there is none.
pub fn free_port() -> Result<u16, Error> {
    // Below the range that outgoing connections get theirs from: one that is tried until there is a
    // listener would else be connected to itself now and then.
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % u32::from(COUNT)) as u16;
    let candidate = |_| {
        let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
        FIRST + (start.wrapping_add(taken)) % COUNT
    };
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let none = || std::io::Error::from(std::io::ErrorKind::AddrInUse);
    (0..COUNT)
        .map(candidate)
        .find(is_free)
        .ok_or_else(none)
        .map_err(Error::io("finding a free port"))
}

/// A directory for configuration files and output, removed in the end.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
}

impl Scratch {
    /// A new directory in the system's place for temporary files.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be made.
    pub fn new() -> Result<Scratch, Error> {
        let name = format!("keyway-bench-{}", std::process::id());
        let parent = std::env::temp_dir();
        let mut directory = parent.join(&name);
        let mut attempt = 0;
        while let Err(why) = std::fs::create_dir(&directory) {
            attempt += 1;
            if attempt > 100 || why.kind() != std::io::ErrorKind::AlreadyExists {
                return Err(Error::Io { what: directory.display().to_string(), why });
            }
            directory = parent.join(format!("{name}-{attempt}"));
        }
        Ok(Scratch { directory })
    }

    /// The path of the file called `name`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a file and returns its path.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.path(name);
        std::fs::write(&path, text).map_err(Error::io(path.display().to_string()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

#[cfg(test)]
mod tests {
    use super::super::is_running;
    use super::*;

    fn sleeper(scratch: &Scratch) -> Child {
        Child::start(&CommandLine::new("sleep").arg("600"), scratch, "sleeper").unwrap()
    }

    #[test]
    fn dropping_a_child_ends_its_process() {
        let scratch = Scratch::new().unwrap();
        let child = sleeper(&scratch);
        let pid = child.pid();
        assert!(is_running(pid));
        drop(child);
        assert!(!is_running(pid));
    }

    #[test]
    fn a_signal_ends_a_child_and_says_how() {
        let scratch = Scratch::new().unwrap();
        let mut child = sleeper(&scratch);
        // setpriv may not have reached the program yet: the signal ends either.
        let status = child.end_with(Signal::TERM).unwrap();
        assert!(!status.success());
        assert!(child.ended().unwrap().is_some());
    }

    #[test]
    fn a_program_that_ends_early_fails_with_its_own_words() {
        let scratch = Scratch::new().unwrap();
        let line = CommandLine::new("sh").args(["-c", "echo the disk is full >&2; exit 3"]);
        let mut child = Child::start(&line, &scratch, "early").unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
        let error = child.wait_for_listener(addr).unwrap_err().to_string();
        assert!(error.contains("the disk is full"), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_fails_to_start() {
        let scratch = Scratch::new().unwrap();
        let error = Child::start(&CommandLine::new("/no/such/program"), &scratch, "none");
        assert!(matches!(error, Err(Error::Start { .. })));
        assert_eq!(version_of(Path::new("no-such-program"), "--version"), None);
    }

    #[test]
    fn versions_are_read_as_their_programs_print_them() {
        for (line, version) in [
            ("This is nutcracker-0.5.0", Some("0.5.0")),
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0", Some("7.0.15")),
            ("/opt/x-1.2/predixy predixy-1.0.5", Some("1.0.5")),
            ("keyway 0.1.0 (abc)", Some("0.1.0")),
            ("unknown", None),
        ] {
            assert_eq!(version_in(line), version, "{line}");
        }
    }

    #[test]
    fn the_scratch_directory_goes_with_its_guard() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.write("a.conf", "x").unwrap();
        assert!(path.exists());
        drop(scratch);
        assert!(!path.exists());
    }
}
