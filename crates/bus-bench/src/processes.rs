//! The processes of a measurement, watched while they are listened to: one that ends before its
//! time ends the measurement, whatever the others wait for.

use crate::run::{Fault, Options};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{ErrorKind, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How much longer than it measures anything may take. A machine with few cores and many senders
/// needs some of it to start and to end.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long the others are given to fail when one has failed: it may have failed because of them,
/// and be seen first.
const AFTERMATH: Duration = Duration::from_millis(500);

/// How long is waited before it is looked whether to go on: who has interrupted a measurement is not
/// to wait for it.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes of output read at once.
const READ_LEN: usize = 4096;

/// When a measurement is not waited for any longer.
pub struct End<'a> {
    /// It is over at this time at the latest.
    pub until: Instant,
    /// Somebody has ended it before.
    // ORDER: a flag that tells nothing but itself.
    pub is_stopped: &'a AtomicBool,
}

/// A process. It does not outlive this.
pub struct Process {
    what: &'static str,
    child: Child,
    output: ChildStdout,
    /// What it has told that was not heard.
    told: Vec<u8>,
    has_ended: bool,
    /// How it has failed, and whether a signal has killed it.
    failure: Option<(String, bool)>,
}

impl Process {
    pub fn start(
        what: &'static str,
        options: &Options,
        task: &impl Serialize,
    ) -> Result<Process, Fault> {
        let (program, arguments) =
            options.again.split_first().ok_or(Fault::Wrong("nothing to start"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .arg(serde_json::to_string(task)?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or(Fault::Wrong("a process without output"))?;
        Ok(Process { what, child, output, told: Vec::new(), has_ended: false, failure: None })
    }

    /// The next line, if it is there.
    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.told.iter().position(|&byte| byte == b'\n')?;
        let rest = self.told.split_off(end + 1);
        Some(std::mem::replace(&mut self.told, rest))
    }

    /// Reads what it tells, which there is, or its end.
    fn read(&mut self) -> Result<(), Fault> {
        let mut bytes = [0; READ_LEN];
        let len = match self.output.read(&mut bytes) {
            Err(why) if why.kind() == ErrorKind::Interrupted => return Ok(()),
            other => other?,
        };
        self.told.extend_from_slice(&bytes[..len]);
        if len > 0 {
            return Ok(());
        }
        self.has_ended = true;
        let status = self.child.wait()?;
        if !status.success() {
            self.failure = Some((status.to_string(), status.signal().is_some()));
        }
        Ok(())
    }

    fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    fn is_killed(&self) -> bool {
        matches!(self.failure, Some((_, true)))
    }

    fn fault(&self) -> Fault {
        let how = self.failure.as_ref().map_or("it has told nothing", |(how, _)| how);
        Fault::Process(self.what, how.to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Has ended already, as a rule.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next line of each of the processes from number `first` on. All are watched meanwhile.
///
/// # Errors
/// When one of the processes fails, or not all have told by `end`.
pub fn hear<T: DeserializeOwned>(
    processes: &mut [Process],
    first: usize,
    end: &End,
) -> Result<Vec<T>, Fault> {
    let mut lines: Vec<Option<Vec<u8>>> = processes.iter().map(|_| None).collect();
    loop {
        let mut awaited = None;
        for (process, line) in processes.iter_mut().zip(&mut lines).skip(first) {
            if line.is_none() {
                *line = process.line();
            }
            match line {
                None if process.has_ended => return Err(process.fault()),
                None => awaited = Some(process.what),
                Some(_) => {}
            }
        }
        let Some(awaited) = awaited else { break };
        if !watch(processes, end)? {
            return Err(Fault::Late(awaited));
        }
    }
    lines.iter().flatten().map(|line| Ok(serde_json::from_slice(line)?)).collect()
}

/// Waits a while for one of the processes to tell something or end, and hears it; whether there is time left.
fn watch(processes: &mut [Process], end: &End) -> Result<bool, Fault> {
    let left = end.until.saturating_duration_since(Instant::now());
    let told = ready(processes, left.min(LOOK))?;
    if end.is_stopped.load(Ordering::Relaxed) {
        return Err(Fault::Interrupted);
    }
    for number in told {
        processes[number].read()?;
    }
    match processes.iter().any(Process::has_failed) {
        true => Err(cause(processes)?),
        false => Ok(!left.is_zero()),
    }
}

/// Why it failed, when one of the processes has: because of one that was killed, whose end the others
/// have seen; else because of the first, to which all are connected, if it has failed.
fn cause(processes: &mut [Process]) -> Result<Fault, Fault> {
    let end = Instant::now() + AFTERMATH;
    loop {
        if let Some(killed) = processes.iter().find(|process| process.is_killed()) {
            return Ok(killed.fault());
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let failed = processes.iter().find(|process| process.has_failed());
            return Ok(failed.map_or(Fault::Wrong("none has failed"), Process::fault));
        }
        for number in ready(processes, left)? {
            processes[number].read()?;
        }
    }
}

/// Numbers of those that have told something or ended.
fn ready(processes: &[Process], most: Duration) -> Result<Vec<usize>, Fault> {
    let numbers: Vec<usize> =
        (0..processes.len()).filter(|&number| !processes[number].has_ended).collect();
    let mut all: Vec<PollFd<'_>> = numbers
        .iter()
        .map(|&number| PollFd::new(&processes[number].output, PollFlags::IN))
        .collect();
    let most = Timespec {
        tv_sec: most.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: most.subsec_nanos().into(),
    };
    match poll(&mut all, Some(&most)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(why) => return Err(why.into()),
    }
    let is_ready = |one: &PollFd<'_>| !one.revents().is_empty();
    Ok(numbers.into_iter().zip(&all).filter(|(_, one)| is_ready(one)).map(|(n, _)| n).collect())
}
