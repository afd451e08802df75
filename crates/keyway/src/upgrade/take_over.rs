//! The side of a process that was started to take another one's place.

use anyhow::{Context, Result, bail};
use keyway_config::{Config, ListenAddr};
use keyway_net::{FinalStore, Handed, HandedStore, Handover, Message, Parcels, Place};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

/// The environment variable that is set for a process that is to take over. Its standard input is
/// the connection to the serving process.
pub const VARIABLE: &str = "KEYWAY_TAKE_OVER";

/// Longest wait for an answer of the serving process. It has nothing else to do, and its end is
/// noticed at once.
const PATIENCE: Duration = Duration::from_secs(30);

/// The parts that the previous process hands over. Empty if there is no such process.
#[derive(Default)]
pub struct TakeOver {
    talk: Option<Handover>,
    handed: Vec<Handed>,
    kept: Vec<u16>,
    held: Vec<(String, String)>,
    unreplicated: Vec<(String, String)>,
    /// The number that decides which keys of a store lie together, if there are stores.
    seed: Option<u64>,
    parcels: Option<Parcels>,
    stores: Vec<(HandedStore, OwnedFd)>,
    finals: Vec<FinalStore>,
    /// The positions of listeners in the previous process, with what they are bound to here.
    places: Vec<(u16, String)>,
}

impl TakeOver {
    /// Finds out from the environment whether this process takes over.
    ///
    /// # Errors
    /// Returns an error if it was started to take over, and the other process is not there.
    #[allow(clippy::disallowed_methods, reason = "where a process tells the one that it starts")]
    pub fn from_environment() -> Result<TakeOver> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(TakeOver::default());
        }
        let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
        let talk = Handover::given(socket)
            .with_context(|| format!("{VARIABLE} is set, which no operator does: unset it"))?;
        // Standard input is closed, so that no other code uses the connection.
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        Ok(TakeOver { talk: Some(talk), ..TakeOver::default() })
    }

    /// Returns whether there is a previous process.
    pub fn is_one(&self) -> bool {
        self.talk.is_some()
    }

    /// Tells the serving process why it must go on.
    pub fn refuse(&mut self, reasons: Vec<String>) {
        if let Some(talk) = self.talk.take() {
            // If this cannot be sent, it notices the end of this process.
            let _ = talk.say(&Message::Refused { reasons }, PATIENCE);
        }
    }

    /// Asks for the sockets, after the configuration was checked.
    ///
    /// # Errors
    /// Returns an error if they do not come.
    pub fn receive(&mut self) -> Result<()> {
        let TakeOver { talk: Some(talk), handed: all, seed, parcels, stores, .. } = self else {
            return Ok(());
        };
        let gone = "the process that is to be replaced is gone, or cannot be understood";
        let hello =
            Message::Hello { takes_held: true, takes_unreplicated: true, takes_stores: true };
        talk.say(&hello, PATIENCE).context(gone)?;
        loop {
            match talk.hear(PATIENCE).context(gone)? {
                Message::Sockets(handed) => add(all, handed),
                Message::Origin { seed: number, clients } => {
                    (*seed, *parcels) = (Some(number), Some(Parcels::given(clients)));
                }
                Message::Store { store, socket } => stores.push((store, socket)),
                Message::AllSent => return Ok(()),
                other => bail!("{gone}: {other:?}"),
            }
        }
    }

    /// Returns the sockets for a listener; none if it must be opened anew.
    pub fn sockets(&mut self, bind: &ListenAddr) -> Vec<OwnedFd> {
        let position = match bind {
            ListenAddr::Tcp(addr) => {
                let text = bind.to_string();
                self.position(|it| it.bind == text || (it.addr == Some(*addr)), false)
            }
            // A path stands for one socket, whatever the scheme.
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
            self.places.push((index, bind.to_string()));
        }
        match bind {
            // No client could connect to a socket whose file is gone.
            ListenAddr::Unix(path) | ListenAddr::Shm(path)
                if !std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket()) =>
            {
                Vec::new()
            }
            _ => handed.sockets,
        }
    }

    /// Returns the socket of the admin address, if the address is unchanged.
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

    /// Returns the number of workers that gives each of the sockets handed over a worker. Closing
    /// one would reset the clients that wait in it.
    pub fn workers(sockets: &[Vec<keyway_net::Listener>]) -> usize {
        sockets.iter().map(Vec::len).max().unwrap_or_default()
    }

    /// Tells that this process is ready to serve, and waits until it may begin. Closes sockets that
    /// no listener wanted.
    ///
    /// # Errors
    /// Returns an error if it must not begin.
    pub fn await_begin(&mut self) -> Result<()> {
        let Some(talk) = &self.talk else { return Ok(()) };
        self.handed.clear();
        talk.say(&Message::Ready { kept: self.kept.clone() }, PATIENCE)?;
        loop {
            match talk.hear(PATIENCE).context("the process that is to be replaced serves on")? {
                Message::Held { servers } => self.held.extend(servers),
                Message::Unreplicated { primaries } => self.unreplicated.extend(primaries),
                Message::Final(store) => self.finals.push(store),
                Message::Begin => return Ok(()),
                other => bail!("{other:?} is not what it was to say now"),
            }
        }
    }

    /// Returns the servers that an operator has ejected: the pool and the address of each. They are
    /// known once this process may begin.
    pub fn held(&self) -> &[(String, String)] {
        &self.held
    }

    /// Returns the shards that have lost their replicas: the pool of each and the address of its
    /// primary. They are known once this process may begin.
    pub fn unreplicated(&self) -> &[(String, String)] {
        &self.unreplicated
    }

    /// Returns the number that decides which keys of a store lie together, if stores are taken over.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// Returns the names of the pools whose stores are taken over.
    pub fn pools(&self) -> Vec<String> {
        self.stores.iter().map(|(store, _)| store.pool.clone()).collect()
    }

    /// Takes the socket by which clients of stores come.
    pub fn take_parcels(&mut self) -> Option<Parcels> {
        self.parcels.take()
    }

    /// Takes the stores, with the sockets by which their data comes.
    pub fn take_stores(&mut self) -> Vec<(HandedStore, OwnedFd)> {
        std::mem::take(&mut self.stores)
    }

    /// Takes the stores as they were held. They are known once this process may begin.
    pub fn take_finals(&mut self) -> Vec<FinalStore> {
        std::mem::take(&mut self.finals)
    }

    /// Returns the positions of listeners in the previous process, with those in this one.
    pub fn places(&self, config: &Config) -> Vec<(u16, u16)> {
        let here = |bind: &String| {
            (0..).zip(&config.listeners).find(|(_, listener)| listener.bind.to_string() == *bind)
        };
        let both = |(before, bind): &(u16, String)| Some((*before, here(bind)?.0));
        self.places.iter().filter_map(both).collect()
    }

    /// Tells that this process serves, from which there is no way back: the previous one ends. This
    /// comes in front of the first request.
    ///
    /// # Errors
    /// The previous process is gone, or goes on: this one must not serve.
    pub fn commit(&mut self) -> Result<()> {
        let Some(talk) = self.talk.take() else { return Ok(()) };
        talk.say(&Message::Serving, PATIENCE).context("the process that is to be replaced goes on")
    }
}

fn add(all: &mut Vec<Handed>, handed: Handed) {
    match all.last_mut() {
        // These are further sockets of the same listener.
        Some(last) if last.place == handed.place => last.sockets.extend(handed.sockets),
        _ => all.push(handed),
    }
}
