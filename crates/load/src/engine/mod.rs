//! One thread of the generator: many connections, one epoll.
//!
//! ```text
//!  connect all ─► wait for the others ─► warm-up ─► measure ─► drain ─► hand the record over
//! ```
//! A turn waits for events, reads each ready connection, and sends at once what its replies made
//! room for. In an open loop it sends what is due then.

mod flow;
mod joined;
mod link;
mod pacer;
mod plain;
mod redirect;
mod state;
mod verifying;

use crate::error::Error;
use crate::record::{Record, Slice};
use crate::setup::{Setup, nanos};
use crate::target::Target;
use keyway_net::{
    Address, ConnectFault, EpollIo, Event, Io, Mailbox, Recv, Ringed, Secured, Send, Token,
};
use state::{Fault, State};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

/// How long a turn waits at most: so late an interruption is seen.
const WAIT_MAX: u64 = 100_000_000;

/// How long rings in shared memory are looked at before the thread sleeps.
const SPIN: Duration = Duration::from_micros(20);

/// Connections of a thread that are being made at a time: a server's backlog is not long.
const CONNECTING_MAX: usize = 64;

/// What a thread tells.
#[derive(Debug)]
pub(crate) enum Report {
    /// All its connections stand.
    Ready,
    /// It cannot go on.
    Failed(Error),
    /// A second of the measured time has ended.
    Slice(Slice),
    /// It is done.
    Done(Box<Account>),
}

/// What a thread has found.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) record: Record,
    pub(crate) last_slice: Slice,
    /// When its measured time began and ended, in nanoseconds of the clock.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) is_silent: bool,
}

/// One thread.
pub(crate) struct Connections {
    io: Driver,
    events: Vec<Event>,
    state: State,
    reports: SyncSender<Report>,
}

/// Runs one thread to its end; `start` tells when to begin, and is dropped when nobody does.
pub(crate) fn work(
    setup: &Arc<Setup>,
    thread: usize,
    reports: &SyncSender<Report>,
    start: &Receiver<u64>,
) {
    let outcome = Connections::new(setup, thread, reports.clone()).and_then(|mut connections| {
        connections.connect_all()?;
        let _ = connections.reports.send(Report::Ready);
        match start.recv() {
            Ok(at) => connections.run(at).inspect(|()| {
                // What a thread has used is seen for as long as it is there.
                let _ = start.recv();
            }),
            Err(_) => Ok(()),
        }
    });
    if let Err(error) = outcome {
        let _ = reports.send(Report::Failed(error));
    }
}

impl Connections {
    fn new(
        setup: &Arc<Setup>,
        thread: usize,
        reports: SyncSender<Report>,
    ) -> Result<Connections, Error> {
        let io = driver()?;
        Ok(Connections { io, events: Vec::new(), state: State::new(setup, thread)?, reports })
    }

    /// Opens every connection and waits until each has been let in.
    fn connect_all(&mut self) -> Result<(), Error> {
        let count = self.state.links.len();
        let mut opened = 0;
        while opened < count || self.state.is_opening() {
            while opened < count && self.state.opening < CONNECTING_MAX {
                self.open(opened as u32);
                opened += 1;
            }
            self.turn(nanos() + WAIT_MAX)?;
            let limit = self.state.setup.target.patience.as_nanos() as u64;
            if nanos().saturating_sub(self.state.last_progress) > limit {
                return Err(self.state.silent_error());
            }
            if self.state.setup.is_stopped.load(Ordering::Relaxed) {
                return Err(Error::asked("interrupted while connecting"));
            }
        }
        Ok(())
    }

    fn run(&mut self, start: u64) -> Result<(), Error> {
        if self.state.pace.is_some() {
            // Wakes when a request is due, not up to 50 us later; refused is as before.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        }
        self.state.begin(start);
        self.send_idle(nanos());
        while !self.state.is_done() {
            let now = nanos();
            self.tick(now)?;
            self.turn(self.state.deadline(now))?;
        }
        self.state.record.settle();
        let last_slice = self.state.record.end_second(0)?;
        let record = std::mem::replace(&mut self.state.record, Record::new(0)?);
        let account = Account {
            record,
            last_slice,
            from: self.state.measured_from,
            to: self.state.ended_at(),
            is_silent: self.state.is_silent,
        };
        let _ = self.reports.send(Report::Done(Box::new(account)));
        Ok(())
    }

    /// What time brings: the end of the warm-up and of the run, seconds, what is due.
    fn tick(&mut self, now: u64) -> Result<(), Error> {
        self.state.pass_time(now)?;
        while let Some(slice) = self.state.ended_second(now)? {
            let _ = self.reports.send(Report::Slice(slice));
        }
        while let Some(link) = self.state.retry_due(now) {
            self.open(link);
        }
        self.state.issue_due(now);
        self.send_idle(now);
        Ok(())
    }

    /// Waits for events until `until` at most, and serves them.
    fn turn(&mut self, until: u64) -> Result<(), Error> {
        self.io.clock();
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let wait = Duration::from_nanos(until.saturating_sub(nanos()));
        self.io.poll(Some(wait), &mut events);
        for event in events.drain(..) {
            self.on_event(event);
            if let Some(error) = self.state.fatal.take() {
                return Err(error);
            }
        }
        self.events = events;
        self.state.tell_gauge();
        Ok(())
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Ready { token, readable, writable, hangup } => {
                let Some(link) = self.state.link_of(token) else { return };
                if writable && self.state.links[link as usize].has_output() {
                    self.flush(link);
                }
                if readable || hangup {
                    self.receive(link);
                }
            }
            Event::Connected { token, socket } => match self.state.link_of(token) {
                Some(link) => self.connected(link, socket),
                None => self.io.close(socket),
            },
            Event::ConnectFailed { token, fault } => {
                if let Some(link) = self.state.link_of(token) {
                    let why = self.state.explained(link, fault);
                    self.state.connect_failed(link, &why, nanos());
                }
            }
            Event::Incoming(_) | Event::Mail | Event::Resolved { .. } => {}
        }
    }

    fn open(&mut self, link: u32) {
        let (token, node) = self.state.open(link, nanos());
        connect(&mut self.io, &self.state.setup.target, &self.state.nodes[node], token);
    }

    fn connected(&mut self, link: u32, socket: keyway_net::Socket) {
        let now = nanos();
        self.state.connected(link, socket, now);
        self.flush(link);
        // Without a handshake it can be used at once.
        self.send_idle(now);
    }

    fn receive(&mut self, link: u32) {
        loop {
            let Some(socket) = self.state.links[link as usize].socket else { return };
            let (outcome, drained) = match self.io.recv(socket) {
                Recv::Data { bytes, drained, .. } => {
                    let now = nanos();
                    (self.state.input(link, bytes, now).map(|()| now), drained)
                }
                Recv::Empty => return,
                Recv::End | Recv::Failed => (Err(Fault::Lost), true),
            };
            match outcome {
                Ok(now) => {
                    self.send_idle(now);
                    self.recycle();
                }
                Err(fault) => return self.lose(link, fault),
            }
            if drained {
                return;
            }
        }
    }

    /// Starts the next batch of every client whose last one is answered, and sends all there is.
    #[inline]
    fn send_idle(&mut self, now: u64) {
        while let Some(client) = self.state.idle.pop() {
            self.state.start_batch(client, now);
        }
        self.flush_dirty();
    }

    #[inline]
    fn flush_dirty(&mut self) {
        while let Some(link) = self.state.dirty.pop() {
            if self.state.wants_opening(link) {
                self.open(link);
            }
            self.flush(link);
        }
    }

    #[inline]
    fn flush(&mut self, index: u32) {
        let link = &mut self.state.links[index as usize];
        link.is_dirty = false;
        let Some(socket) = link.socket else { return };
        if !link.has_output() {
            return;
        }
        match self.io.send(socket, link.output()) {
            Send::Taken(len) => {
                link.sent(len);
                self.state.record.bytes_sent += len as u64;
            }
            Send::Failed => self.lose(index, Fault::Lost),
        }
    }

    /// Closes connections that have had all their calls, and opens others in their place.
    fn recycle(&mut self) {
        while let Some(link) = self.state.spent.pop() {
            if let Some(socket) = self.state.links[link as usize].socket.take() {
                self.io.close(socket);
            }
            self.state.lived(link, nanos());
            self.open(link);
        }
    }

    #[cold]
    fn lose(&mut self, link: u32, fault: Fault) {
        if let Some(socket) = self.state.links[link as usize].socket.take() {
            self.io.close(socket);
        }
        self.state.lost(link, fault, nanos());
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        for link in &mut self.state.links {
            if let Some(socket) = link.socket.take() {
                self.io.close(socket);
            }
        }
    }
}

/// Sockets, plain and secured, and rings.
pub(crate) type Driver = Secured<Ringed>;

/// Begins a connection to one of the target's servers.
pub(crate) fn connect(io: &mut Driver, target: &Target, address: &Address, token: Token) {
    match &target.tls {
        Some(tls) => io.connect_secured(address, tls, token),
        None => io.connect(address, token),
    }
}

/// Why a connection to one of the target's servers was not made.
pub(crate) fn explain(target: &Target, address: &Address, fault: ConnectFault) -> String {
    match (fault, &target.tls, address) {
        (ConnectFault::Tls(fault), Some(tls), Address::Tcp { host, .. }) => {
            tls.explain(fault, host)
        }
        _ => fault.text().to_owned(),
    }
}

/// Without listeners.
pub(crate) fn driver() -> Result<Driver, Error> {
    let mailbox = Mailbox::<()>::new(1).map_err(|error| Error::system("an eventfd", error))?;
    let io = EpollIo::new(Vec::new(), &mailbox)
        .map_err(|error| Error::system("an epoll instance", error))?;
    Ok(Secured::new(Ringed::new(io, SPIN)))
}
