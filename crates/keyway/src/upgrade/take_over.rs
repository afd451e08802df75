//! What a process does that another has started to take its place.

use anyhow::{Context, Result, bail};
use keyway_config::ListenAddr;
use keyway_net::{Handed, Handover, Message, Place};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

/// Set for a process that is to take over: its standard input is the way to the one that serves.
pub const VARIABLE: &str = "KEYWAY_TAKE_OVER";

/// How long the one that serves may take for an answer. It has nothing else to do, and when it
/// ends that is heard at once.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the process before hands over; nothing, where there is none before.
#[derive(Default)]
pub struct TakeOver {
    talk: Option<Handover>,
    handed: Vec<Handed>,
    kept: Vec<u16>,
    held: Vec<(String, String)>,
    unreplicated: Vec<(String, String)>,
}

impl TakeOver {
    /// As this process was started.
    ///
    /// # Errors
    /// When it was started to take over, and nobody is there.
    #[allow(clippy::disallowed_methods, reason = "where a process tells the one that it starts")]
    pub fn from_environment() -> Result<TakeOver> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(TakeOver::default());
        }
        let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
        let talk = Handover::given(socket)
            .with_context(|| format!("{VARIABLE} is set, which no operator does: unset it"))?;
        // The descriptor of that name is nobody's any more.
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        Ok(TakeOver { talk: Some(talk), ..TakeOver::default() })
    }

    /// Whether there is a process before.
    pub fn is_one(&self) -> bool {
        self.talk.is_some()
    }

    /// Tells the one that serves why it is to go on.
    pub fn refuse(&mut self, reasons: Vec<String>) {
        if let Some(talk) = self.talk.take() {
            // It hears of our end otherwise.
            let _ = talk.say(&Message::Refused { reasons }, PATIENCE);
        }
    }

    /// The configuration is right: asks for the sockets.
    ///
    /// # Errors
    /// When they do not come.
    pub fn receive(&mut self) -> Result<()> {
        let TakeOver { talk: Some(talk), handed: all, .. } = self else { return Ok(()) };
        let gone = "the process that is to be replaced is gone, or cannot be understood";
        let hello = Message::Hello { takes_held: true, takes_unreplicated: true };
        talk.say(&hello, PATIENCE).context(gone)?;
        loop {
            match talk.hear(PATIENCE).context(gone)? {
                Message::Sockets(handed) => add(all, handed),
                Message::AllSent => return Ok(()),
                other => bail!("{gone}: {other:?}"),
            }
        }
    }

    /// The sockets that are there for a listener; none if it is to listen anew.
    pub fn sockets(&mut self, bind: &ListenAddr) -> Vec<OwnedFd> {
        let position = match bind {
            ListenAddr::Tcp(addr) => {
                let text = bind.to_string();
                self.position(|it| it.bind == text || (it.addr == Some(*addr)), false)
            }
            // One path is one socket, whatever is said there.
            ListenAddr::Unix(path) | ListenAddr::Shm(path) => {
                let path = path.display().to_string();
                let of = |bind: &str| bind.split_once("://").map(|(_, path)| path.to_owned());
                self.position(|it| it.addr.is_none() && of(&it.bind).as_ref() == Some(&path), false)
            }
        };
        let Some(position) = position else { return Vec::new() };
        let handed = self.handed.remove(position);
        if let Place::Listener(index) = handed.place {
            self.kept.push(index);
        }
        match bind {
            // Nobody could come to a socket whose file is gone.
            ListenAddr::Unix(path) | ListenAddr::Shm(path)
                if !std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket()) =>
            {
                Vec::new()
            }
            _ => handed.sockets,
        }
    }

    /// The socket of the admin address, if it is the one it was.
    pub fn admin(&mut self, bind: &ListenAddr) -> Option<OwnedFd> {
        let text = bind.to_string();
        let addr: Option<SocketAddr> = match bind {
            ListenAddr::Tcp(addr) => Some(*addr),
            _ => None,
        };
        let position = self.position(|it| it.bind == text || it.addr == addr, true)?;
        self.handed.remove(position).sockets.pop()
    }

    fn position(&self, is_it: impl Fn(&Handed) -> bool, of_admin: bool) -> Option<usize> {
        let is_right = |it: &Handed| (it.place == Place::Admin) == of_admin;
        self.handed.iter().position(|it| is_right(it) && is_it(it))
    }

    /// How many workers there are to be so that each of the sockets handed over has its own: one
    /// that was closed would reset whoever waits in it.
    pub fn workers(sockets: &[Vec<keyway_net::Listener>]) -> usize {
        sockets.iter().map(Vec::len).max().unwrap_or_default()
    }

    /// Lacks nothing to serve: tells so, and waits until it is to begin. Sockets that no listener
    /// wanted are closed.
    ///
    /// # Errors
    /// When it is not to.
    pub fn await_begin(&mut self) -> Result<()> {
        let Some(talk) = &self.talk else { return Ok(()) };
        self.handed.clear();
        talk.say(&Message::Ready { kept: self.kept.clone() }, PATIENCE)?;
        loop {
            match talk.hear(PATIENCE).context("the process that is to be replaced serves on")? {
                Message::Held { servers } => self.held.extend(servers),
                Message::Unreplicated { primaries } => self.unreplicated.extend(primaries),
                Message::Begin => return Ok(()),
                other => bail!("{other:?} is not what it was to say now"),
            }
        }
    }

    /// The servers that an operator has ejected: the pool and the address of each. Known when this
    /// process is to begin.
    pub fn held(&self) -> &[(String, String)] {
        &self.held
    }

    /// The shards that have lost their replicas: the pool of each and the address of its primary.
    /// Known when this process is to begin.
    pub fn unreplicated(&self) -> &[(String, String)] {
        &self.unreplicated
    }

    /// Serves: the process before need not any more.
    pub fn end(&mut self) {
        if let Some(talk) = self.talk.take() {
            let _ = talk.say(&Message::Serving, PATIENCE);
        }
    }
}

fn add(all: &mut Vec<Handed>, handed: Handed) {
    match all.last_mut() {
        // The rest of them.
        Some(last) if last.place == handed.place => last.sockets.extend(handed.sockets),
        _ => all.push(handed),
    }
}
