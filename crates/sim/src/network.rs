//! ```text
//!   client ──pipe──► worker ──pipe──► server        time: one heap of events
//!          ◄──pipe──        ◄──pipe──               pieces arrive late and split
//! ```
//! A connection is two pipes of bounded capacity. Written bytes leave in pieces that arrive in
//! order after a latency. Bytes that have arrived are read by the other side. Readiness is reported
//! to workers as with edge-triggered epoll: an edge puts the socket into the ready list once, and
//! the report contains the state when the list is read. Workers may have a driver by io_uring
//! instead (`ring.rs`). Then the list holds what the system has to do for sockets.

mod ring;
mod station;

pub use ring::{RingFigures, RingOptions};
pub use station::{Read, Station};

use crate::random::Random;
use keyway_net::{ConnectFault, Event, Token};
use ring::{Line, Rings};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt::Write;

/// Nanoseconds of virtual time.
pub type Nanos = u64;

/// One microsecond.
pub const MICRO: Nanos = 1_000;
/// One millisecond.
pub const MILLI: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// Index of a connection.
pub type ConnId = usize;

/// The side that connected.
pub const INITIATOR: usize = 0;
/// The side that accepted.
pub const ACCEPTOR: usize = 1;

/// The party that holds a side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// A simulated client.
    Client(usize),
    /// A simulated server.
    Server(usize),
    /// A worker under test.
    Worker(usize),
}

/// How the network behaves.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    /// Shortest and longest time that a piece is in flight.
    pub latency: (Nanos, Nanos),
    /// Number of bytes that a pipe holds, in flight and unread together.
    pub capacity: usize,
    /// Largest number of bytes that one read of a worker returns.
    pub read_len: usize,
    /// Largest number of readiness events that one poll returns.
    pub events_max: usize,
    /// How often a write is taken in part although there is room, in percent.
    pub short_writes: u64,
    /// How often a write is split into pieces, in percent.
    pub splits: u64,
    /// True if a reset discards what the receiver had not read.
    pub reset_discards: bool,
    /// The number of the readiness event that is never reported: a defect for the oracles to find.
    pub dropped_edge: Option<u64>,
    /// How workers' drivers by io_uring behave. `None`: the driver is epoll.
    pub ring: Option<RingOptions>,
}

impl NetworkOptions {
    /// Returns the largest number of bytes that one read returns.
    pub fn given_max(&self) -> usize {
        let ring = self.ring.as_ref().map_or(0, |ring| ring.given_max(self.capacity));
        self.read_len.max(ring)
    }
}

/// How a server answers a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectMode {
    /// The server accepts.
    Accept,
    /// The server refuses.
    Refuse,
    /// The server does not answer at all.
    Silent,
    /// The server's host name does not resolve.
    Unresolved,
    /// The server accepts and closes at once.
    AcceptAndClose,
    /// The server accepts after a while, which may be too late.
    Hesitate,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Number of bytes that were taken.
    Taken(usize),
    /// The connection is broken.
    Failed,
}

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Number of bytes that were appended.
    Data(usize),
    /// Nothing has arrived.
    Empty,
    /// The other side sends no more.
    End,
    /// The connection was reset.
    Failed,
}

enum Piece {
    Data(Vec<u8>),
    End,
    Reset,
}

#[derive(Default)]
struct Pipe {
    under_way: VecDeque<Piece>,
    ready: VecDeque<u8>,
    held: usize,
    /// True if the end has arrived.
    ended: bool,
    /// True if the writer has ended its side.
    finished: bool,
    /// True if the writer waits for room.
    wants_room: bool,
    last_arrival: Nanos,
}

struct Side {
    party: Party,
    token: Option<Token>,
    is_queued: bool,
    closed: bool,
    reset: bool,
    reset_told: bool,
    line: Line,
}

impl Side {
    fn new(party: Party) -> Self {
        Self {
            party,
            token: None,
            is_queued: false,
            closed: false,
            reset: false,
            reset_told: false,
            line: Line::default(),
        }
    }
}

struct Conn {
    pipes: [Pipe; 2],
    sides: [Side; 2],
}

/// An event at a scheduled time.
#[derive(Clone, Copy, Debug)]
pub enum Occurrence {
    /// The next piece from this side arrives.
    Arrive(ConnId, usize),
    /// This side may have room again.
    Room(ConnId, usize),
    /// A client's connection reaches a worker's listener.
    Incoming(ConnId, u16),
    /// A worker's attempt to connect reaches a server.
    Attempt(usize, Token, usize),
    /// The outcome of an attempt reaches the worker.
    Outcome(usize, Token, Result<ConnId, ConnectFault>),
    /// A client has something to do.
    Client(usize),
    /// A server has something to do.
    Server(usize),
    /// A fault of the scenario begins.
    Fault(usize),
    /// A step of the cluster is due.
    Cluster(usize),
}

struct Scheduled {
    at: Nanos,
    order: u64,
    what: Occurrence,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// The network and its clock.
pub struct Network {
    /// The virtual time.
    pub now: Nanos,
    /// The stations, one for each worker.
    pub stations: Vec<Station>,
    /// How each server answers connection attempts.
    pub modes: Vec<ConnectMode>,
    /// By server: largest number of connection attempts within a second.
    pub attempts_max: Vec<usize>,
    /// By server: connections that it has not taken yet.
    pub arrivals: Vec<VecDeque<ConnId>>,
    /// Servers by address.
    pub names: BTreeMap<String, usize>,
    /// Number of readiness events so far that reported bytes.
    pub edges: u64,
    /// Number of sockets that the workers hold.
    pub worker_sockets: usize,
    /// A misuse of the interface by a worker.
    pub misuse: Option<String>,
    /// The last lines of the story, if one is recorded.
    pub story: Option<VecDeque<String>>,
    /// A digest of everything that happened, to compare two runs.
    pub digest: u64,
    options: NetworkOptions,
    conns: Vec<Conn>,
    attempts: Vec<VecDeque<Nanos>>,
    heap: BinaryHeap<Scheduled>,
    order: u64,
    client_wakes: Vec<Nanos>,
    server_wakes: Vec<Nanos>,
    random: Random,
    rings: Option<Rings>,
}

/// Number of lines of the story that are kept for a report.
const STORY_LEN: usize = 4000;

impl Network {
    /// Creates an empty network for this many parties.
    pub fn new(
        options: NetworkOptions,
        (workers, listeners): (usize, usize),
        clients: usize,
        servers: usize,
        random: Random,
    ) -> Self {
        let station = || Station {
            accepts: (0..listeners).map(|_| VecDeque::new()).collect(),
            listening: true,
            ..Station::default()
        };
        let rings = options.ring.clone().map(|options| Rings::new(options, workers));
        Self {
            now: SECOND,
            stations: (0..workers).map(|_| station()).collect(),
            modes: vec![ConnectMode::Accept; servers],
            attempts_max: vec![usize::MAX; servers],
            attempts: vec![VecDeque::new(); servers],
            arrivals: (0..servers).map(|_| VecDeque::new()).collect(),
            names: BTreeMap::new(),
            edges: 0,
            worker_sockets: 0,
            misuse: None,
            story: None,
            digest: 0xcbf2_9ce4_8422_2325,
            options,
            conns: Vec::new(),
            heap: BinaryHeap::new(),
            order: 0,
            client_wakes: vec![Nanos::MAX; clients],
            server_wakes: vec![Nanos::MAX; servers],
            random,
            rings,
        }
    }

    /// Adds a server at an address. Returns its index.
    pub fn add_server(&mut self, address: String) -> usize {
        let index = self.modes.len();
        self.modes.push(ConnectMode::Accept);
        self.attempts_max.push(usize::MAX);
        self.attempts.push(VecDeque::new());
        self.arrivals.push(VecDeque::new());
        self.server_wakes.push(Nanos::MAX);
        self.names.insert(address, index);
        index
    }

    /// Returns how the network behaves.
    pub fn options(&self) -> &NetworkOptions {
        &self.options
    }

    /// Adds a line to the story, if one is recorded.
    pub fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            if story.len() == STORY_LEN {
                story.pop_front();
            }
            let mut text = String::new();
            let _ = write!(text, "{:>12.6} {}", self.now as f64 / SECOND as f64, line());
            story.push_back(text);
        }
    }

    fn digest(&mut self, word: u64) {
        self.digest = (self.digest ^ word ^ self.now).wrapping_mul(0x0100_0000_01b3);
    }

    /// Schedules an occurrence.
    pub fn schedule(&mut self, at: Nanos, what: Occurrence) {
        self.order += 1;
        self.heap.push(Scheduled { at, order: self.order, what });
    }

    /// Returns the time of the next occurrence.
    pub fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|scheduled| scheduled.at)
    }

    /// Schedules a step of a client at `at`, unless an earlier one is planned.
    pub fn wake_client(&mut self, client: usize, at: Nanos) {
        if at < self.client_wakes[client] {
            self.client_wakes[client] = at;
            self.schedule(at, Occurrence::Client(client));
        }
    }

    /// Schedules a step of a server at `at`, unless an earlier one is planned.
    pub fn wake_server(&mut self, server: usize, at: Nanos) {
        if at < self.server_wakes[server] {
            self.server_wakes[server] = at;
            self.schedule(at, Occurrence::Server(server));
        }
    }

    /// Takes the next occurrence that is due. Those of the network itself are handled here. Those
    /// of clients, servers or faults are returned.
    pub fn take_due(&mut self) -> Option<Occurrence> {
        while self.heap.peek().is_some_and(|scheduled| scheduled.at <= self.now) {
            let Scheduled { at, what, .. } = self.heap.pop()?;
            match what {
                Occurrence::Arrive(conn, from) => self.arrive(conn, from),
                Occurrence::Room(conn, side) => self.trigger(conn, side),
                Occurrence::Incoming(conn, listener) => self.incoming(conn, listener),
                Occurrence::Attempt(worker, token, server) => self.attempt(worker, token, server),
                Occurrence::Outcome(worker, token, outcome) => self.outcome(worker, token, outcome),
                Occurrence::Client(client) if self.client_wakes[client] == at => {
                    self.client_wakes[client] = Nanos::MAX;
                    return Some(what);
                }
                Occurrence::Server(server) if self.server_wakes[server] == at => {
                    self.server_wakes[server] = Nanos::MAX;
                    return Some(what);
                }
                // An earlier step has replaced it.
                Occurrence::Client(_) | Occurrence::Server(_) => {}
                Occurrence::Fault(_) | Occurrence::Cluster(_) => return Some(what),
            }
        }
        None
    }

    fn latency(&mut self) -> Nanos {
        let (low, high) = self.options.latency;
        self.random.between(low, high)
    }

    fn push_piece(&mut self, conn: ConnId, from: usize, piece: Piece) {
        let latency = self.latency();
        let pipe = &mut self.conns[conn].pipes[from];
        pipe.last_arrival = pipe.last_arrival.max(self.now + latency);
        pipe.under_way.push_back(piece);
        let at = pipe.last_arrival;
        self.schedule(at, Occurrence::Arrive(conn, from));
    }

    fn arrive(&mut self, conn: ConnId, from: usize) {
        let to = 1 - from;
        let Some(piece) = self.conns[conn].pipes[from].under_way.pop_front() else { return };
        let Conn { pipes, sides } = &mut self.conns[conn];
        match piece {
            Piece::Data(bytes) if sides[to].closed => {
                pipes[from].held -= bytes.len();
                if !sides[from].closed && !sides[from].reset {
                    self.push_piece(conn, to, Piece::Reset);
                }
            }
            Piece::Data(bytes) => {
                pipes[from].ready.extend(bytes);
                self.trigger(conn, to);
            }
            Piece::End => {
                pipes[from].ended = true;
                self.trigger(conn, to);
            }
            Piece::Reset => {
                sides[to].reset = true;
                if self.options.reset_discards {
                    pipes[from].held -= pipes[from].ready.len();
                    pipes[from].ready.clear();
                }
                self.trigger(conn, to);
            }
        }
    }

    /// Reports a change to this side, as an edge.
    fn trigger(&mut self, conn: ConnId, side: usize) {
        let now = self.now;
        let entry = &mut self.conns[conn].sides[side];
        if entry.closed {
            return;
        }
        match entry.party {
            Party::Client(client) => self.wake_client(client, now),
            Party::Server(server) => self.wake_server(server, now),
            Party::Worker(worker) => {
                if entry.token.is_some() && !entry.is_queued {
                    entry.is_queued = true;
                    self.stations[worker].ready.push_back((conn, side));
                }
            }
        }
    }

    fn incoming(&mut self, conn: ConnId, listener: u16) {
        let Party::Worker(worker) = self.conns[conn].sides[ACCEPTOR].party else { return };
        if self.stations[worker].listening {
            self.stations[worker].accepts[usize::from(listener)].push_back(conn);
        } else {
            self.conns[conn].sides[ACCEPTOR].closed = true;
            self.push_piece(conn, ACCEPTOR, Piece::Reset);
        }
    }

    fn attempt(&mut self, worker: usize, token: Token, server: usize) {
        let attempts = &mut self.attempts[server];
        attempts.push_back(self.now);
        while attempts.front().is_some_and(|&at| at + SECOND < self.now) {
            attempts.pop_front();
        }
        if attempts.len() > self.attempts_max[server] {
            let count = attempts.len();
            self.misuse.get_or_insert_with(|| {
                format!("server {server} is connected to {count} times in a second")
            });
        }
        let latency = match self.modes[server] {
            ConnectMode::Hesitate => self.random.below(3 * SECOND),
            _ => self.latency(),
        };
        let at = self.now + latency;
        let refused = Occurrence::Outcome(worker, token, Err(ConnectFault::Refused));
        match self.modes[server] {
            ConnectMode::Refuse => self.schedule(at, refused),
            ConnectMode::Silent => {
                let outcome = Occurrence::Outcome(worker, token, Err(ConnectFault::TimedOut));
                self.schedule(self.now + 127 * SECOND, outcome);
            }
            ConnectMode::Unresolved => {
                let outcome = Occurrence::Outcome(worker, token, Err(ConnectFault::Resolve));
                self.schedule(at, outcome);
            }
            mode => {
                let conn = self.add_conn(Party::Worker(worker), Party::Server(server));
                self.schedule(at, Occurrence::Outcome(worker, token, Ok(conn)));
                if mode == ConnectMode::AcceptAndClose {
                    self.close(conn, ACCEPTOR, false);
                } else {
                    self.arrivals[server].push_back(conn);
                    self.wake_server(server, self.now);
                }
            }
        }
    }

    fn outcome(&mut self, worker: usize, token: Token, outcome: Result<ConnId, ConnectFault>) {
        let event = match outcome {
            Ok(conn) => Event::Connected { token, socket: self.socket(conn, INITIATOR) },
            Err(fault) => Event::ConnectFailed { token, fault },
        };
        self.stations[worker].told.push_back(event);
    }

    fn add_conn(&mut self, initiator: Party, acceptor: Party) -> ConnId {
        let sides = [Side::new(initiator), Side::new(acceptor)];
        self.conns.push(Conn { pipes: Default::default(), sides });
        self.conns.len() - 1
    }

    /// Connects a client to a worker's listener. Returns `None` if it is refused.
    pub fn connect_client(
        &mut self,
        client: usize,
        worker: usize,
        listener: u16,
    ) -> Option<ConnId> {
        if !self.stations[worker].listening {
            return None;
        }
        let conn = self.add_conn(Party::Client(client), Party::Worker(worker));
        let at = self.now + self.latency();
        // Bytes that a client sends must not arrive before its connection.
        self.conns[conn].pipes[INITIATOR].last_arrival = at;
        self.schedule(at, Occurrence::Incoming(conn, listener));
        Some(conn)
    }

    /// Connects a worker to a server.
    pub fn connect_worker(&mut self, worker: usize, token: Token, address: &str) {
        self.digest(token.0);
        match self.names.get(address) {
            Some(&server) => {
                let at = self.now + self.latency();
                self.schedule(at, Occurrence::Attempt(worker, token, server));
            }
            None => {
                let fault = ConnectFault::Resolve;
                self.schedule(self.now, Occurrence::Outcome(worker, token, Err(fault)));
            }
        }
    }

    /// Writes bytes to a side.
    pub fn send(&mut self, conn: ConnId, side: usize, bytes: &[u8]) -> Sent {
        let entry = &self.conns[conn].sides[side];
        if entry.closed || self.conns[conn].pipes[side].finished {
            self.misuse.get_or_insert_with(|| format!("a write to the closed socket {conn}"));
            return Sent::Failed;
        }
        if entry.reset {
            return Sent::Failed;
        }
        let room = self.options.capacity.saturating_sub(self.conns[conn].pipes[side].held);
        let mut taken = room.min(bytes.len());
        if taken > 1 && self.random.percent(self.options.short_writes) {
            taken = self.random.between(1, taken as u64) as usize;
            if taken < bytes.len() {
                let at = self.now + self.latency();
                self.schedule(at, Occurrence::Room(conn, side));
            }
        }
        let pipe = &mut self.conns[conn].pipes[side];
        pipe.held += taken;
        pipe.wants_room |= taken < bytes.len();
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let len = match self.random.percent(self.options.splits) {
                true => self.random.scaled(1, rest.len() as u64) as usize,
                false => rest.len(),
            };
            self.push_piece(conn, side, Piece::Data(rest[..len].to_vec()));
            rest = &rest[len..];
        }
        self.digest((conn * 2 + side) as u64 ^ (taken as u64) << 32);
        Sent::Taken(taken)
    }

    /// Reads up to `len_max` bytes and appends them to `into`.
    pub fn recv(
        &mut self,
        conn: ConnId,
        side: usize,
        len_max: usize,
        into: &mut Vec<u8>,
    ) -> Received {
        let Conn { pipes, sides } = &mut self.conns[conn];
        if sides[side].closed {
            self.misuse.get_or_insert_with(|| format!("a read of the closed socket {conn}"));
            return Received::Failed;
        }
        let pipe = &mut pipes[1 - side];
        let len = pipe.ready.len().min(len_max);
        if len > 0 {
            self.take(conn, side, len, into);
            return Received::Data(len);
        }
        if sides[side].reset && !sides[side].reset_told {
            sides[side].reset_told = true;
            return Received::Failed;
        }
        if sides[side].reset || pipe.ended { Received::End } else { Received::Empty }
    }

    /// Moves up to `len_max` bytes that have arrived.
    fn take(&mut self, conn: ConnId, side: usize, len_max: usize, into: &mut Vec<u8>) {
        let from = 1 - side;
        let pipe = &mut self.conns[conn].pipes[from];
        let len = pipe.ready.len().min(len_max);
        into.extend(pipe.ready.drain(..len));
        pipe.held -= len;
        if pipe.wants_room && has_room(pipe, self.options.capacity) {
            pipe.wants_room = false;
            let at = self.now + self.latency();
            self.schedule(at, Occurrence::Room(conn, from));
        }
        self.digest((conn * 2 + side) as u64 ^ (len as u64) << 40);
    }

    /// Ends this side's direction. It may still read.
    pub fn finish(&mut self, conn: ConnId, side: usize) {
        if !self.conns[conn].pipes[side].finished {
            self.conns[conn].pipes[side].finished = true;
            self.push_piece(conn, side, Piece::End);
        }
    }

    /// Closes a side. The other side gets an end, or a reset if that is asked for or if bytes were
    /// left unread, as in a real system.
    pub fn close(&mut self, conn: ConnId, side: usize, reset: bool) {
        let Conn { pipes, sides } = &mut self.conns[conn];
        if sides[side].closed {
            self.misuse.get_or_insert_with(|| format!("the socket {conn} is closed twice"));
            return;
        }
        sides[side].closed = true;
        sides[side].token = None;
        let unread = &mut pipes[1 - side];
        let was_unread = !unread.ready.is_empty();
        unread.held -= unread.ready.len();
        unread.ready = VecDeque::new();
        if sides[side].reset {
            return;
        }
        if reset || was_unread {
            self.push_piece(conn, side, Piece::Reset);
        } else {
            self.finish(conn, side);
        }
    }

    /// Returns whether the other side has closed for good.
    pub fn peer_closed(&self, conn: ConnId, side: usize) -> bool {
        self.conns[conn].sides[1 - side].closed
    }

    /// Returns a connection whose end has arrived at a worker that has not closed it.
    pub fn unnoticed_end(&self) -> Option<ConnId> {
        let is_unnoticed = |conn: &Conn| {
            [INITIATOR, ACCEPTOR].into_iter().any(|side| {
                let Side { party, token, closed, reset, .. } = &conn.sides[side];
                let has_ended = *reset || conn.pipes[1 - side].ended;
                matches!(party, Party::Worker(_)) && token.is_some() && !closed && has_ended
            })
        };
        self.conns.iter().position(is_unnoticed)
    }

    /// Returns the number of bytes that this side has written and that have not reached the other,
    /// and whether the other side is a worker that has taken the connection.
    pub fn under_way(&self, conn: ConnId, side: usize) -> (usize, bool) {
        let Conn { pipes, sides } = &self.conns[conn];
        let pieces = pipes[side].under_way.iter().map(|piece| match piece {
            Piece::Data(bytes) => bytes.len(),
            Piece::End | Piece::Reset => 0,
        });
        (pieces.sum(), sides[1 - side].token.is_some())
    }
}

/// Returns whether a socket counts as writable: a third of its buffer is free.
fn has_room(pipe: &Pipe, capacity: usize) -> bool {
    capacity.saturating_sub(pipe.held) * 3 >= capacity
}
