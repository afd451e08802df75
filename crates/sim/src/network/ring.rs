//! Workers' sockets as a driver by io_uring shows them.
//!
//! ```text
//!   pipe ──order──► pieces ──► worker        Armed: received before it is asked for
//!     │                 └────► held          withdrawn: copied out of the buffers
//!     └──────────────────────► worker        Idle: it reads for itself until nothing is left
//! ```
//! The states are those of `keyway_net::UringIo`. Chance decides when an order ends, how much one
//! reception brings and when no buffer is left. What is asked of the system is done in a poll, or
//! when a worker asks for bytes without an event.

use super::station::Read;
use super::{Conn, ConnId, Network, Party, Received, has_room};
use crate::random::Random;
use keyway_net::{Event, Socket, Token};
use std::collections::{BTreeSet, VecDeque};

/// The random choices about a driver by io_uring.
#[derive(Clone, Debug)]
pub struct RingOptions {
    /// Number of buffers of a worker, one for each reception.
    pub buffers: usize,
    /// Largest number of bytes of a reception.
    pub piece_max: usize,
    /// Receptions of at least this length arrive in a block of which parts may be held.
    pub block_min: usize,
    /// Number of bytes that wait for a worker that does not read them, above which no more are
    /// received.
    pub waiting_max: usize,
    /// How often a reception continues where the last one ended, in percent.
    pub joins: u64,
    /// How often a poll withdraws the order of a worker that does not read, in percent.
    pub withdrawals: u64,
    /// How often a withdrawn order has received once more, in percent.
    pub late: u64,
    /// How often a reception finds no buffer, in percent.
    pub shortages: u64,
    /// The seed of what is decided later.
    pub seed: u64,
}

impl RingOptions {
    /// Draws the options from `random`.
    pub fn draw(random: &mut Random) -> Self {
        let piece_max = random.scaled(16, 64 << 10) as usize;
        Self {
            buffers: random.scaled(2, 128).min((256 << 10) / piece_max as u64).max(2) as usize,
            piece_max,
            block_min: random.scaled(1, 16 << 10) as usize,
            waiting_max: random.scaled(64, 64 << 10) as usize,
            joins: random.pick(&[0, 50]),
            withdrawals: random.pick(&[0, 0, 5, 50]),
            late: random.pick(&[0, 50]),
            shortages: random.pick(&[0, 0, 1, 20]),
            seed: random.bits(),
        }
    }

    /// Returns the largest number of bytes that a worker gets at once, with pipes of that capacity:
    /// those that may wait, and those that arrive until that is noticed and until the order has
    /// ended.
    pub fn given_max(&self, capacity: usize) -> usize {
        self.waiting_max + 2 * capacity
    }
}

/// How often the special cases of a driver by io_uring have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingFigures {
    /// Number of orders that were withdrawn.
    pub withdrawn: u64,
    /// Number of receptions that found no buffer.
    pub short: u64,
    /// How often received bytes were copied out of the buffers.
    pub held: u64,
    /// Number of sockets that took received bytes to another worker.
    pub carried: u64,
}

impl RingFigures {
    /// Adds the figures of another run.
    pub fn add(&mut self, other: &Self) {
        self.withdrawn += other.withdrawn;
        self.short += other.short;
        self.held += other.held;
        self.carried += other.carried;
    }
}

/// The system's work for a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reading {
    #[default]
    Idle,
    Armed,
    Stopping,
}

/// How a socket's bytes have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    End,
    Failed,
}

/// The driver's state of a socket.
#[derive(Default)]
pub(super) struct Line {
    reading: Reading,
    pieces: VecDeque<Vec<u8>>,
    /// Bytes taken out of the buffers. They come first.
    held: Vec<u8>,
    outcome: Option<Outcome>,
    /// True if the worker has read everything while the order was being withdrawn.
    is_awaited: bool,
    polls_room: bool,
    polls_hangup: bool,
    is_listed: bool,
    /// When it was last reported.
    told_at: u64,
}

/// The state of the drivers of all workers.
pub(super) struct Rings {
    options: RingOptions,
    random: Random,
    workers: Vec<Ring>,
    /// The socket that has each number, or had it last.
    numbers: Vec<(ConnId, usize)>,
    free: BTreeSet<i32>,
    figures: RingFigures,
}

/// The state of the driver of a worker.
struct Ring {
    /// Number of buffers left.
    left: usize,
    /// True if the worker looks into one.
    is_lent: bool,
    /// Events that are known before the next poll.
    early: Vec<Event>,
    /// Sockets with unread bytes.
    unread: Vec<(ConnId, usize)>,
    polls: u64,
}

impl Rings {
    pub(super) fn new(options: RingOptions, workers: usize) -> Self {
        let ring = || Ring {
            left: options.buffers,
            is_lent: false,
            early: Vec::new(),
            unread: Vec::new(),
            polls: 0,
        };
        Self {
            random: Random::new(options.seed),
            workers: (0..workers).map(|_| ring()).collect(),
            options,
            numbers: Vec::new(),
            free: BTreeSet::new(),
            figures: RingFigures::default(),
        }
    }

    /// Returns a number for a socket: the lowest free one.
    fn number(&mut self, end: (ConnId, usize)) -> i32 {
        if let Some(number) = self.free.pop_first() {
            self.numbers[number as usize] = end;
            return number;
        }
        self.numbers.push(end);
        self.numbers.len() as i32 - 1
    }

    /// Returns the socket that has a number, or had it last.
    fn holder(&self, number: i32) -> (ConnId, usize) {
        self.numbers[number as usize]
    }

    pub(super) fn has_early(&self, worker: usize) -> bool {
        !self.workers[worker].early.is_empty()
    }

    fn take_back(&mut self, worker: usize) {
        let ring = &mut self.workers[worker];
        ring.left += usize::from(std::mem::take(&mut ring.is_lent));
    }
}

/// Where events of a socket go.
type Told<'a> = &'a mut Vec<Event>;

impl Network {
    /// Begins what [`Network::watch`] asks for.
    pub(super) fn own(&mut self, worker: usize, (conn, side): (ConnId, usize), token: Token) {
        let Some(rings) = &mut self.rings else { return };
        let line = &mut self.conns[conn].sides[side].line;
        let hangup = line.outcome.is_some();
        if hangup || line.polls_room || !line.held.is_empty() {
            let event = Event::Ready { token, readable: true, writable: false, hangup };
            rings.workers[worker].early.push(event);
        }
        self.arm(conn, side);
    }

    fn arm(&mut self, conn: ConnId, side: usize) {
        let entry = &mut self.conns[conn].sides[side];
        let (line, is_watched) = (&mut entry.line, entry.token.is_some());
        if is_watched && line.outcome.is_none() && line.reading == Reading::Idle {
            line.reading = Reading::Armed;
            self.trigger(conn, side);
        }
    }

    fn stop(&mut self, conn: ConnId, side: usize) {
        let line = &mut self.conns[conn].sides[side].line;
        if line.reading == Reading::Armed {
            line.reading = Reading::Stopping;
            if let Some(rings) = &mut self.rings {
                rings.figures.withdrawn += 1;
            }
            self.tell(|| format!("the order to receive for connection {conn} is withdrawn"));
            self.trigger(conn, side);
        }
    }

    /// Moves received bytes of a socket out of the buffers.
    fn hold(&mut self, worker: usize, conn: ConnId, side: usize) {
        let Some(rings) = &mut self.rings else { return };
        let line = &mut self.conns[conn].sides[side].line;
        rings.figures.held += u64::from(!line.pieces.is_empty());
        for piece in line.pieces.drain(..) {
            rings.workers[worker].left += 1;
            line.held.extend(piece);
        }
    }

    /// Handles sockets that are not read, and events from before the poll.
    pub(super) fn begin_poll(&mut self, worker: usize, events: Told) {
        let Some(rings) = &mut self.rings else { return };
        rings.take_back(worker);
        let ring = &mut rings.workers[worker];
        ring.polls += 1;
        let is_scarce = ring.left * 2 < rings.options.buffers;
        let unread = std::mem::take(&mut ring.unread);
        for (conn, side) in unread {
            self.look_at_unread(worker, (conn, side), is_scarce);
        }
        if let Some(rings) = &mut self.rings {
            events.append(&mut rings.workers[worker].early);
        }
    }

    fn look_at_unread(&mut self, worker: usize, (conn, side): (ConnId, usize), is_scarce: bool) {
        let Some(rings) = &mut self.rings else { return };
        let line = &mut self.conns[conn].sides[side].line;
        if line.pieces.is_empty() {
            line.is_listed = false;
            return;
        }
        let waiting: usize = line.pieces.iter().map(Vec::len).sum();
        let is_withdrawn = rings.random.percent(rings.options.withdrawals);
        let is_held = is_scarce || is_withdrawn && rings.random.percent(50);
        if is_held || is_withdrawn || waiting > rings.options.waiting_max {
            if is_held {
                self.hold(worker, conn, side);
            }
            self.stop(conn, side);
        }
        let line = &mut self.conns[conn].sides[side].line;
        line.is_listed = !line.pieces.is_empty();
        if line.is_listed
            && let Some(rings) = &mut self.rings
        {
            rings.workers[worker].unread.push((conn, side));
        }
    }

    /// Does the system's work for a socket at which something has changed.
    pub(super) fn work(&mut self, worker: usize, (conn, side): (ConnId, usize), events: Told) {
        let entry = &mut self.conns[conn].sides[side];
        if !std::mem::take(&mut entry.is_queued) {
            return;
        }
        let (Some(token), true) = (entry.token, entry.party == Party::Worker(worker)) else {
            return;
        };
        self.digest(token.0);
        self.look_for_room(conn, side, events);
        match self.conns[conn].sides[side].line.reading {
            Reading::Armed => self.receive(worker, (conn, side), events),
            Reading::Stopping => {
                if self.draws(|options| options.late) {
                    self.receive(worker, (conn, side), events);
                }
                self.end_order(worker, (conn, side), events);
            }
            Reading::Idle => {}
        }
        self.look_for_hangup(conn, side, events);
    }

    fn draws(&mut self, percent: impl Fn(&RingOptions) -> u64) -> bool {
        self.rings.as_mut().is_some_and(|rings| rings.random.percent(percent(&rings.options)))
    }

    fn look_for_room(&mut self, conn: ConnId, side: usize, events: Told) {
        let capacity = self.options.capacity;
        let Conn { pipes, sides } = &mut self.conns[conn];
        let entry = &mut sides[side];
        let (Some(token), true) = (entry.token, entry.line.polls_room) else { return };
        // The other side's end alone does not mean room.
        let ended = entry.reset;
        if !ended && !has_room(&pipes[side], capacity) {
            pipes[side].wants_room = true;
            return;
        }
        entry.line.polls_room = false;
        events.push(Event::Ready { token, readable: ended, writable: true, hangup: ended });
    }

    fn look_for_hangup(&mut self, conn: ConnId, side: usize, events: Told) {
        let Conn { pipes, sides } = &mut self.conns[conn];
        let entry = &mut sides[side];
        let ended = pipes[1 - side].ended || entry.reset;
        if let (Some(token), true) = (entry.token, entry.line.polls_hangup && ended) {
            entry.line.polls_hangup = false;
            events.push(Event::Ready { token, readable: true, writable: false, hangup: true });
        }
    }

    /// Receives what there is, for as long as there are buffers.
    fn receive(&mut self, worker: usize, (conn, side): (ConnId, usize), events: Told) {
        while !self.conns[conn].pipes[1 - side].ready.is_empty() {
            let Some(rings) = &mut self.rings else { return };
            let ring = &mut rings.workers[worker];
            if ring.left == 0 || rings.random.percent(rings.options.shortages) {
                rings.figures.short += 1;
                self.tell(|| format!("no buffer is left for connection {conn}"));
                return self.end_order(worker, (conn, side), events);
            }
            ring.left -= 1;
            let len = rings.random.scaled(1, rings.options.piece_max as u64) as usize;
            let joins = rings.random.percent(rings.options.joins);
            if !std::mem::replace(&mut self.conns[conn].sides[side].line.is_listed, true) {
                ring.unread.push((conn, side));
            }
            let mut piece = Vec::new();
            self.take(conn, side, len, &mut piece);
            let pieces = &mut self.conns[conn].sides[side].line.pieces;
            match pieces.back_mut() {
                Some(last) if joins => {
                    last.extend(piece);
                    self.free_one(worker);
                }
                _ => pieces.push_back(piece),
            }
            self.on_news(worker, (conn, side), events);
        }
        let Conn { pipes, sides } = &mut self.conns[conn];
        let entry = &mut sides[side];
        entry.line.outcome = match (entry.reset, pipes[1 - side].ended) {
            (true, _) => Some(Outcome::Failed),
            (false, true) => Some(Outcome::End),
            (false, false) => return,
        };
        self.end_order(worker, (conn, side), events);
    }

    fn free_one(&mut self, worker: usize) {
        if let Some(rings) = &mut self.rings {
            rings.workers[worker].left += 1;
        }
    }

    /// Ends the order of a socket.
    fn end_order(&mut self, worker: usize, (conn, side): (ConnId, usize), events: Told) {
        let line = &mut self.conns[conn].sides[side].line;
        let was = std::mem::take(&mut line.reading);
        let is_awaited = std::mem::take(&mut line.is_awaited);
        line.polls_hangup |= line.outcome.is_none();
        let is_news = was == Reading::Armed || is_awaited || line.outcome.is_some();
        if was != Reading::Idle && is_news {
            self.on_news(worker, (conn, side), events);
        }
    }

    /// Reports a socket with unread bytes, once for each poll, and its end.
    fn on_news(&mut self, worker: usize, (conn, side): (ConnId, usize), events: Told) {
        let Some(rings) = &mut self.rings else { return };
        let polls = rings.workers[worker].polls;
        let entry = &mut self.conns[conn].sides[side];
        let hangup = entry.line.outcome.is_some();
        let is_told = std::mem::replace(&mut entry.line.told_at, polls) == polls;
        let Some(token) = entry.token.filter(|_| hangup || !is_told) else { return };
        self.edges += u64::from(!hangup);
        if !hangup && self.options.dropped_edge == Some(self.edges) {
            self.tell(|| format!("the event of connection {conn} is dropped"));
            return;
        }
        events.push(Event::Ready { token, readable: true, writable: false, hangup });
    }

    /// Does the same outside a poll. The next poll reports it.
    fn catch_up(&mut self, worker: usize) {
        let Some(rings) = &mut self.rings else { return };
        rings.workers[worker].polls += 1;
        let mut events = std::mem::take(&mut rings.workers[worker].early);
        while let Some(end) = self.stations[worker].ready.pop_front() {
            self.work(worker, end, &mut events);
        }
        if let Some(rings) = &mut self.rings {
            rings.workers[worker].early = events;
        }
    }

    /// Reads for a worker and appends to `into`.
    pub(super) fn read_by_ring(
        &mut self,
        worker: usize,
        end: (ConnId, usize),
        into: &mut Vec<u8>,
    ) -> Read {
        let (conn, side) = end;
        let Some(rings) = &mut self.rings else { return Read::of(Received::Failed) };
        rings.take_back(worker);
        if self.conns[conn].sides[side].closed {
            return self.read_directly(end, into);
        }
        let line = &mut self.conns[conn].sides[side].line;
        if !line.held.is_empty() {
            into.append(&mut line.held);
            return Read::of(Received::Data(into.len()));
        }
        if let Some(piece) = line.pieces.pop_front() {
            let is_all = line.pieces.is_empty() && line.outcome.is_none();
            let drained = is_all && line.reading == Reading::Armed;
            let is_block = piece.len() >= rings.options.block_min;
            rings.workers[worker].is_lent = true;
            into.extend(piece);
            self.digest(into.len() as u64);
            return Read { outcome: Received::Data(into.len()), drained, is_block };
        }
        match (line.outcome, line.reading) {
            (Some(outcome), _) => Read::of(outcome.received()),
            (None, Reading::Idle) => self.read_directly(end, into),
            (None, Reading::Armed | Reading::Stopping) => self.read_late(worker, end, into),
        }
    }

    /// Reads for a worker that asks without an event.
    fn read_late(&mut self, worker: usize, end: (ConnId, usize), into: &mut Vec<u8>) -> Read {
        self.catch_up(worker);
        let line = &mut self.conns[end.0].sides[end.1].line;
        match (line.pieces.pop_front(), line.outcome) {
            (Some(piece), _) => {
                into.extend(piece);
                self.free_one(worker);
                Read::of(Received::Data(into.len()))
            }
            (None, Some(outcome)) => Read::of(outcome.received()),
            (None, None) => {
                line.is_awaited = line.reading == Reading::Stopping;
                self.read_directly(end, into)
            }
        }
    }

    /// Reads for the worker itself. If that shows that nothing is left, the system receives again.
    fn read_directly(&mut self, (conn, side): (ConnId, usize), into: &mut Vec<u8>) -> Read {
        let len_max = self.options.read_len;
        let outcome = self.recv(conn, side, len_max, into);
        let drained = match outcome {
            Received::Data(len) => len < len_max,
            Received::Empty => true,
            Received::End | Received::Failed => false,
        };
        if drained {
            self.arm(conn, side);
        }
        Read { outcome, drained, is_block: true }
    }

    /// Requests a report of room, because there was none for everything written.
    pub(super) fn await_room(&mut self, conn: ConnId, side: usize) {
        if self.rings.is_some() {
            self.conns[conn].sides[side].line.polls_room = true;
            self.trigger(conn, side);
        }
    }

    /// Takes a socket from its worker, with its received bytes unless it is `closed`.
    pub(super) fn disown(&mut self, worker: usize, (conn, side): (ConnId, usize), closed: bool) {
        if self.rings.is_none() {
            return;
        }
        if !closed {
            self.stop(conn, side);
            self.catch_up(worker);
        }
        self.hold(worker, conn, side);
        let entry = &mut self.conns[conn].sides[side];
        let Line { held, outcome, polls_room, .. } = std::mem::take(&mut entry.line);
        if !closed {
            if let Some(rings) = &mut self.rings {
                rings.figures.carried += u64::from(!held.is_empty());
            }
            entry.line = Line { held, outcome, polls_room, ..Line::default() };
        }
        let (Some(rings), Some(token)) = (&mut self.rings, entry.token) else { return };
        let ring = &mut rings.workers[worker];
        ring.early
            .retain(|event| !matches!(event, Event::Ready { token: its, .. } if *its == token));
        ring.unread.retain(|end| *end != (conn, side));
    }

    /// Returns how often the special cases of drivers by io_uring have happened.
    pub fn ring_figures(&self) -> RingFigures {
        self.rings.as_ref().map(|rings| rings.figures).unwrap_or_default()
    }

    /// Returns the side of a connection to which a worker's handle belongs.
    pub fn end_of(&self, socket: Socket) -> (ConnId, usize) {
        match &self.rings {
            Some(rings) => rings.holder(socket.0),
            None => (socket.0 as usize / 2, socket.0 as usize % 2),
        }
    }

    /// Frees a handle that is no longer in use.
    pub(super) fn give_back(&mut self, socket: Socket) {
        if let Some(rings) = &mut self.rings {
            rings.free.insert(socket.0);
        }
    }

    /// Returns a handle for one side of a connection.
    pub(super) fn socket(&mut self, conn: ConnId, side: usize) -> Socket {
        match &mut self.rings {
            Some(rings) => Socket(rings.number((conn, side))),
            None => Socket((conn * 2 + side) as i32),
        }
    }
}

impl Outcome {
    fn received(self) -> Received {
        match self {
            Outcome::End => Received::End,
            Outcome::Failed => Received::Failed,
        }
    }
}
