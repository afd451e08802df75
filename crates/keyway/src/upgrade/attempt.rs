//! One attempt to have another process take over, on a thread that waits for it.

use super::Reasons;
use super::giving::{Feeding, GivenClients, Giving};
use super::take_over::VARIABLE;
use crate::reload::Wake;
use keyway_net::{HANDED_AT_ONCE, HELD_AT_ONCE, Handed, Handover, Message};
use keyway_worker::Plan;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time from the order to begin until the next process says that it serves. It only has to
/// wake its threads.
const BEGIN_PATIENCE: Duration = Duration::from_secs(10);

/// Time between two looks at the feeds of stores while the next process gets ready.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Longest time for a process that has given up to end. After that it is killed.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// The order for an attempt.
pub struct Order {
    pub sockets: Vec<Handed>,
    /// The settings, with the servers that an operator has ejected.
    pub plan: Arc<Plan>,
    /// The embedded stores.
    pub giving: Giving,
    /// Longest time until the next process can serve.
    pub timeout: Duration,
    /// The channel for the outcome.
    pub wake: Sender<Wake>,
}

/// The process that serves now.
pub struct Successor {
    /// Its process id.
    pub pid: u32,
    /// The positions of the listeners that it has taken over.
    pub kept: Vec<u16>,
    /// The way there for clients of embedded stores, if there are such stores.
    pub heir: Option<Arc<GivenClients>>,
}

/// The process that took over has ended unexpectedly.
#[derive(Debug)]
pub struct SuccessorFailed;

impl Successor {
    /// Checks that it still serves, or was told to end. It is not reaped: its id stays valid until
    /// this process ends.
    pub fn check(&self) -> Result<(), SuccessorFailed> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let ended = pid.and_then(|pid| waitid(WaitId::Pid(pid), options).ok().flatten());
        match ended.is_some_and(|how| how.exit_status() != Some(0)) {
            true => Err(SuccessorFailed),
            false => Ok(()),
        }
    }
}

/// The thread that starts the next process.
pub struct Attempt {
    thread: JoinHandle<()>,
    /// A handle that cuts the connection to it.
    talk: Handover,
}

impl Attempt {
    /// Starts the next process.
    pub fn start(order: Order) -> Result<Attempt, Reasons> {
        let failed = |what: &str, error: Error| vec![format!("{what}: {error}")];
        let (talk, other) =
            Handover::pair().map_err(|error| failed("no file descriptor left", error))?;
        let twin = talk.try_clone().map_err(|error| failed("no file descriptor left", error))?;
        let (mut command, program) = next_command();
        command.env(VARIABLE, std::process::id().to_string()).stdin(Stdio::from(other));
        let child = command
            .spawn()
            .map_err(|error| failed(&format!("cannot start {}", program.display()), error))?;
        // From here on only that process has the other end.
        drop(command);
        let pid = child.id();
        tracing::info!(
            target: "keyway::event::upgrade-begun",
            pid,
            "upgrade: started {} to take over",
            program.display()
        );
        let mut next = Next { child, talk: twin };
        let (give, given) = channel::<Next>();
        let thread = std::thread::Builder::new().name("keyway-upgrade".into()).spawn(move || {
            let Ok(mut next) = given.recv() else { return };
            let wake = order.wake.clone();
            let outcome = next.bring_up(order);
            // The process is gone before this one goes on with what it has held.
            let outcome = outcome.map_err(|reasons| next.end(reasons));
            // No thread waits for it if this process is ending.
            let _ = wake.send(Wake::Upgraded(outcome));
        });
        match thread {
            Ok(thread) => {
                give.send(next).expect("the thread takes it first of all");
                Ok(Attempt { thread, talk })
            }
            Err(error) => {
                next.kill();
                Err(failed("cannot start a thread", error))
            }
        }
    }

    /// Waits for the thread, whose outcome was received.
    pub fn join(self) {
        let _ = self.thread.join();
    }

    /// Cuts the connection to the process. The thread ends, and the process with it.
    pub fn cut(&self) {
        self.talk.cut();
    }

    /// Returns whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Returns the command by which this process was started. The name is looked up again, so a file
/// that has been replaced is the new one.
fn next_command() -> (Command, OsString) {
    let mut arguments = std::env::args_os();
    let program = arguments.next().filter(|name| !name.is_empty());
    let program = program.unwrap_or_else(|| "keyway".into());
    let mut command = Command::new(&program);
    command.args(arguments);
    (command, program)
}

/// The next process, and the connection to it.
struct Next {
    child: Child,
    talk: Handover,
}

impl Next {
    fn bring_up(&mut self, order: Order) -> Result<Successor, Reasons> {
        let Order { sockets, plan, giving, timeout, wake } = order;
        let deadline = now() + timeout;
        let left = || deadline.saturating_duration_since(now());
        let failed = |error| self.talk_failed(&error, timeout);
        let takes = match self.talk.hear(left()).map_err(failed)? {
            Message::Hello { takes_held, takes_unreplicated, takes_stores } => {
                (takes_held, takes_unreplicated, takes_stores)
            }
            Message::Refused { reasons } => return Err(reasons),
            other => return Err(unexpected(&other)),
        };
        let (takes_held, takes_unreplicated, takes_stores) = takes;
        if !takes_stores && giving.has_any() {
            let why = "it is of a version that does not take over the data of embedded stores; \
                       restart Keyway to go to that version";
            return Err(vec![why.to_owned()]);
        }
        self.give_sockets(sockets, left()).map_err(failed)?;
        let mut feeding = giving.begin(&self.talk, &plan, timeout).map_err(failed)?;
        self.talk.say(&Message::AllSent, left()).map_err(failed)?;
        let kept = self.await_ready(feeding.as_ref(), timeout)?;
        // This is read as late as possible, because an operator may have ejected or restored a
        // server meanwhile.
        let held = plan.held_servers();
        if takes_held {
            for servers in held.chunks(HELD_AT_ONCE) {
                let message = Message::Held { servers: servers.to_vec() };
                self.talk.say(&message, timeout).map_err(failed)?;
            }
        }
        if takes_unreplicated {
            for primaries in plan.unreplicated_shards().chunks(HELD_AT_ONCE) {
                let message = Message::Unreplicated { primaries: primaries.to_vec() };
                self.talk.say(&message, timeout).map_err(failed)?;
            }
        }
        if let Some(feeding) = &mut feeding {
            feeding.change_over(&self.talk, &wake)?;
        }
        self.talk.say(&Message::Begin, timeout).map_err(failed)?;
        self.await_serving(timeout)?;
        for (pool, backend) in held.iter().filter(|_| !takes_held) {
            tracing::warn!(
                pool,
                backend,
                "upgrade: the next process is of a version that does not take over ejections by \
                 hand: this server is in use there"
            );
        }
        let heir = feeding.map(Feeding::into_heir);
        Ok(Successor { pid: self.child.id(), kept, heir })
    }

    fn give_sockets(&self, sockets: Vec<Handed>, within: Duration) -> Result<(), Error> {
        for handed in sockets {
            let Handed { place, bind, addr, mut sockets } = handed;
            loop {
                let rest = sockets.split_off(sockets.len().min(HANDED_AT_ONCE));
                let part = Handed { place, bind: bind.clone(), addr, sockets };
                self.talk.say(&Message::Sockets(part), within)?;
                if rest.is_empty() {
                    break;
                }
                sockets = rest;
            }
        }
        Ok(())
    }

    /// Waits until the process is ready. While it takes snapshots of stores, its time does not run:
    /// the feeds end if it takes nothing for so long.
    fn await_ready(
        &self,
        feeding: Option<&Feeding>,
        timeout: Duration,
    ) -> Result<Vec<u16>, Reasons> {
        let mut deadline = now() + timeout;
        loop {
            if feeding.is_some_and(Feeding::is_sending) {
                deadline = now() + timeout;
            }
            let left = deadline.saturating_duration_since(now());
            match self.talk.hear(left.min(LOOK_EVERY)) {
                Ok(Message::Ready { kept }) => return Ok(kept),
                Ok(Message::Refused { reasons }) => return Err(reasons),
                Ok(other) => return Err(unexpected(&other)),
                Err(error) if is_silence(&error) && now() < deadline => {}
                Err(error) => return Err(self.talk_failed(&error, timeout)),
            }
        }
    }

    /// Waits for the word after which there is no way back. If it does not come, it will not: the
    /// connection is cut first, so that the process cannot say it any more.
    fn await_serving(&self, timeout: Duration) -> Result<(), Reasons> {
        let failed = match self.talk.hear(BEGIN_PATIENCE) {
            Ok(Message::Serving) => return Ok(()),
            Ok(Message::Refused { reasons }) => reasons,
            Ok(other) => unexpected(&other),
            Err(error) => self.talk_failed(&error, timeout),
        };
        self.talk.cut();
        match self.talk.hear(Duration::ZERO) {
            Ok(Message::Serving) => Ok(()),
            _ => Err(failed),
        }
    }

    fn talk_failed(&self, error: &Error, timeout: Duration) -> Reasons {
        vec![match error.kind() {
            _ if is_silence(error) => {
                format!("it was not ready within upgrade_timeout ({timeout:?})")
            }
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                "it ended before it was ready; what it has printed may say why".to_owned()
            }
            _ => format!("talking with it failed: {error}"),
        }]
    }

    /// Ends the process, which may be ending already. Adds its exit status to the reasons.
    fn end(&mut self, mut reasons: Reasons) -> Reasons {
        self.talk.cut();
        let pid = self.child.id();
        match self.await_end() {
            Some(status) => reasons.push(format!("process {pid} has ended ({status})")),
            None => {
                self.kill();
                reasons.push(format!("process {pid} was killed"));
            }
        }
        reasons
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn await_end(&mut self) -> Option<ExitStatus> {
        let deadline = now() + END_PATIENCE;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if now() < deadline => pause(),
                _ => return None,
            }
        }
    }
}

fn is_silence(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn unexpected(message: &Message) -> Reasons {
    vec![format!("it said what it was not to say now: {message:?}")]
}

#[allow(clippy::disallowed_methods, reason = "the binary is where clocks are read")]
fn now() -> Instant {
    Instant::now()
}

fn pause() {
    std::thread::park_timeout(Duration::from_millis(10));
}
