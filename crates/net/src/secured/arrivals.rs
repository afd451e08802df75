//! Clients that arrive at a listener with an [`AcceptFilter`]. They announce their address and do
//! the TLS handshake before a worker gets them.
//!
//! ```text
//!  accept ─► Arriving ─► Handshaking ─► Entered ─► accept again ─► watch ─► Open or Plain
//!                │             │
//!                └─────────────┴──► turned away ─► accept again
//! ```
//! A slow client does not delay others. Steps are taken a few at a time, between requests, and
//! clients that have had many steps wait behind others. Waiting clients are bounded in number and
//! in time. If there are too many, the oldest of them is closed to make room. If none may be
//! closed, the listener is not asked until one may.

use super::line::{Arrival, Line, Progress, Side, Stage};
use super::{SECURED_SOCKET, Secured};
use crate::{
    Accept, AcceptFilter, Announced, Away, Event, Header, Io, ListenerIndex, Peer, Recv, Socket,
    TlsFault, Token, parse_header,
};
use keyway_base::Time;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Most clients that are served a step in one poll. The first step of a handshake takes up to a
/// millisecond, so more of them would delay connected clients.
const STEPS_PER_POLL: usize = 4;

/// Number of clients waiting for their step above which no more are accepted, without those that
/// are [`Arrival::is_slow`]. With fewer there would be polls without a step.
const QUEUED_MAX: usize = 64;

/// Longest sleep of a poll while a listener is not asked: the time of a waiting client may be over
/// then.
const HELD_WAIT: Duration = Duration::from_millis(25);

/// Time after which a silent client may be closed to make room. Before that its bytes may still be
/// on their way.
const PATIENCE: Duration = Duration::from_millis(250);

/// Names of arriving lines are dropped when there are this many more than there may be clients.
const FORGOTTEN_MAX: usize = 1024;

/// A line's index, and its generation at that index.
type Name = (u32, u32);

/// Whether one more client may begin to arrive.
enum Room {
    Free,
    /// Yes, when this one, which has been waited for longest, is closed.
    InPlaceOf(u32),
    None,
}

/// The arriving clients.
pub(super) struct Arrivals {
    /// Filters by listener.
    filters: Vec<Option<Arc<AcceptFilter>>>,
    /// By listener, the arriving clients in order. Some have finished, or are gone.
    entering: Vec<VecDeque<Name>>,
    /// By listener, the number of those that have not.
    counts: Vec<usize>,
    /// By listener, whether it is not asked for clients now.
    held: Vec<bool>,
    /// Clients that have sent something.
    queue: VecDeque<Name>,
    /// Clients of these that send their bytes in many small pieces.
    slow_queue: VecDeque<Name>,
    /// Results that `accept` will return.
    told: VecDeque<(ListenerIndex, Accept)>,
    pub(super) is_paused: bool,
    /// The clock, as the worker has read it last.
    pub(super) now: Time,
}

impl Arrivals {
    pub(super) fn new(filters: Vec<Option<Arc<AcceptFilter>>>) -> Self {
        Arrivals {
            entering: filters.iter().map(|_| VecDeque::new()).collect(),
            counts: vec![0; filters.len()],
            held: vec![false; filters.len()],
            filters,
            queue: VecDeque::new(),
            slow_queue: VecDeque::new(),
            told: VecDeque::new(),
            is_paused: false,
            now: Time(0),
        }
    }

    #[inline]
    pub(super) fn filter(&self, listener: ListenerIndex) -> Option<Arc<AcceptFilter>> {
        self.filters.get(usize::from(listener.0))?.clone()
    }

    /// Applies another filter to new clients. Clients that are arriving keep the filter they met,
    /// except for the time it allows.
    pub(super) fn let_in_by(&mut self, listener: ListenerIndex, filter: Option<Arc<AcceptFilter>>) {
        let of = usize::from(listener.0);
        if self.filters.len() <= of {
            self.filters.resize(of + 1, None);
            self.entering.resize(of + 1, VecDeque::new());
            self.counts.resize(of + 1, 0);
            self.held.resize(of + 1, false);
        }
        self.filters[of] = filter;
    }

    /// Returns whether there is work without any event.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.awaits_step() || (!self.told.is_empty() && !self.is_paused)
    }

    #[inline]
    fn awaits_step(&self) -> bool {
        !self.queue.is_empty() || !self.slow_queue.is_empty()
    }

    /// Returns how long a poll may sleep, at most `wait`.
    #[inline]
    pub(super) fn bounded(&self, wait: Option<Duration>) -> Option<Duration> {
        match self.held.contains(&true) {
            true => Some(wait.map_or(HELD_WAIT, |wait| wait.min(HELD_WAIT))),
            false => wait,
        }
    }

    /// Returns whether any client is arriving.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        !self.told.is_empty() || self.awaits_step() || self.counts.iter().any(|count| *count > 0)
    }
}

impl<I: Io> Secured<I> {
    pub(super) fn accept_by(&mut self, filter: &AcceptFilter, listener: ListenerIndex) -> Accept {
        let told = &mut self.arrivals.told;
        if let Some(position) = told.iter().position(|(of, _)| *of == listener)
            && let Some((_, accept)) = told.remove(position)
        {
            return accept;
        }
        let displaced = match filter.asks().then(|| self.room(filter, listener)) {
            None | Some(Room::Free) => None,
            Some(Room::InPlaceOf(index)) => Some(index),
            Some(Room::None) => {
                self.hold(listener, true);
                return Accept::Empty;
            }
        };
        let (socket, peer) = match self.io.accept(listener) {
            Accept::Client { socket, peer } => (socket, peer),
            other => return other,
        };
        let away = match &filter.proxies {
            Some(_) => (!filter.believes(&peer)).then_some(Away::NotProxy),
            None => (!filter.admits(&peer)).then_some(Away::NotAllowed),
        };
        match away {
            Some(away) => {
                self.io.close(socket);
                Accept::Turned { peer, away }
            }
            None if filter.asks() => {
                if let Some(index) = displaced {
                    self.turn_away(index, Away::Crowded);
                }
                self.begin_arrival(listener, socket, peer)
            }
            None => Accept::Client { socket, peer },
        }
    }

    /// Returns whether one more client may begin to arrive.
    fn room(&mut self, filter: &AcceptFilter, listener: ListenerIndex) -> Room {
        if self.arrivals.queue.len() >= QUEUED_MAX {
            return Room::None;
        }
        let of = usize::from(listener.0);
        if self.arrivals.counts[of] < filter.arrivals_max {
            return Room::Free;
        }
        self.forget_gone(of);
        let now = self.arrivals.now;
        for at in 0..self.arrivals.entering[of].len() {
            let (index, generation) = self.arrivals.entering[of][at];
            let Some(arrival) = self.arrival(index, generation) else { continue };
            // Its bytes may be on their way, and so may those of later clients.
            if now.since(arrival.since) < PATIENCE {
                return Room::None;
            }
            // Otherwise it waits for this worker.
            if !arrival.is_queued || arrival.is_slow() {
                return Room::InPlaceOf(index);
            }
        }
        Room::None
    }

    /// Drops the names of the first clients that have finished or are gone.
    fn forget_gone(&mut self, of: usize) {
        while let Some(&(index, generation)) = self.arrivals.entering[of].front()
            && self.arrival(index, generation).is_none()
        {
            self.arrivals.entering[of].pop_front();
        }
    }

    /// Stops or resumes asking a listener for clients.
    fn hold(&mut self, listener: ListenerIndex, held: bool) {
        let was_held = &mut self.arrivals.held[usize::from(listener.0)];
        if std::mem::replace(was_held, held) != held {
            self.io.hold_listener(listener, held);
        }
    }

    /// Asks listeners again for which there is room now.
    fn ask_again(&mut self) {
        for of in 0..self.arrivals.held.len() {
            let listener = ListenerIndex(of as u16);
            if self.arrivals.held[of]
                && let Some(filter) = self.arrivals.filter(listener)
                && !matches!(self.room(&filter, listener), Room::None)
            {
                self.hold(listener, false);
            }
        }
    }

    /// Returns a client that is still arriving.
    fn arrival(&mut self, index: u32, generation: u32) -> Option<&mut Arrival> {
        let entry = self.lines.get_mut(index as usize)?;
        let line = entry.line.as_deref_mut().filter(|_| entry.generation == generation)?;
        match (&mut line.side, &line.stage) {
            (Side::Theirs(arrival), Stage::Arriving { .. } | Stage::Handshaking { .. }) => {
                Some(arrival)
            }
            _ => None,
        }
    }

    fn begin_arrival(&mut self, listener: ListenerIndex, socket: Socket, peer: Peer) -> Accept {
        assert!(socket.0 < SECURED_SOCKET, "sockets below have lower numbers");
        let since = self.arrivals.now;
        let arrival = Arrival { listener, peer, since, is_queued: false, steps: 0, said: 0 };
        let index = self.add(Line {
            token: Token(0),
            side: Side::Theirs(arrival),
            stage: Stage::Arriving { socket, said: Vec::new() },
            unsent: Vec::new(),
            held: 0,
            early: Vec::new(),
            fault: None,
            was_heard: false,
            is_finishing: false,
        });
        let own = self.own_token(index);
        if !self.io.watch(socket, own) {
            self.remove(index);
            self.io.close(socket);
            return Accept::Turned { peer, away: Away::Unwatched };
        }
        let generation = self.lines[index as usize].generation;
        let of = usize::from(listener.0);
        self.arrivals.counts[of] += 1;
        self.arrivals.entering[of].push_back((index, generation));
        if self.arrivals.entering[of].len() > 2 * self.arrivals.counts[of] + FORGOTTEN_MAX {
            let mut names = std::mem::take(&mut self.arrivals.entering[of]);
            names.retain(|&(index, generation)| self.arrival(index, generation).is_some());
            self.arrivals.entering[of] = names;
        }
        Accept::Entering
    }

    /// Notes that an arriving client has sent something, or can be sent something.
    pub(super) fn on_arrival_ready(&mut self, index: u32) {
        let generation = self.lines[index as usize].generation;
        let Some(arrival) = self.arrival(index, generation) else { return };
        if std::mem::replace(&mut arrival.is_queued, true) {
            return;
        }
        let queue = match arrival.is_slow() {
            true => &mut self.arrivals.slow_queue,
            false => &mut self.arrivals.queue,
        };
        queue.push_back((index, generation));
    }

    /// Returns the next client to serve. In each poll one of them is a slow one.
    fn next_queued(&mut self, step: usize) -> Option<Name> {
        let Arrivals { queue, slow_queue, .. } = &mut self.arrivals;
        match step {
            0 => slow_queue.pop_front().or_else(|| queue.pop_front()),
            _ => queue.pop_front().or_else(|| slow_queue.pop_front()),
        }
    }

    /// Serves some clients a step, refuses those that take too long, and reports the results.
    #[inline(never)]
    pub(super) fn tend_arrivals(&mut self, events: &mut Vec<Event>) {
        for step in 0..STEPS_PER_POLL {
            let Some((index, generation)) = self.next_queued(step) else { break };
            let Some(arrival) = self.arrival(index, generation) else { continue };
            arrival.is_queued = false;
            arrival.steps = arrival.steps.saturating_add(1);
            self.advance(index);
            self.turn_away_if_late(index, generation);
        }
        for listener in 0..self.arrivals.filters.len() {
            self.turn_away_late(listener);
        }
        self.ask_again();
        if self.arrivals.is_paused {
            return;
        }
        for listener in 0..self.arrivals.filters.len() {
            let listener = ListenerIndex(listener as u16);
            if self.arrivals.told.iter().any(|(of, _)| *of == listener) {
                events.push(Event::Incoming(listener));
            }
        }
    }

    fn turn_away_late(&mut self, of: usize) {
        let Some(filter) = self.arrivals.filters[of].clone() else { return };
        let now = self.arrivals.now;
        while let Some(&(index, generation)) = self.arrivals.entering[of].front() {
            match self.arrival(index, generation) {
                Some(arrival) if now.since(arrival.since) <= filter.timeout => return,
                Some(arrival) if !arrival.is_queued => self.turn_away(index, Away::Late),
                // It waits for this worker, and is judged after its step.
                _ => {
                    self.arrivals.entering[of].pop_front();
                }
            }
        }
    }

    /// Refuses a client that has had its step, is still arriving, and whose time is over.
    fn turn_away_if_late(&mut self, index: u32, generation: u32) {
        let now = self.arrivals.now;
        let Some(arrival) = self.arrival(index, generation) else { return };
        let (listener, since) = (arrival.listener, arrival.since);
        let filter = self.arrivals.filter(listener);
        if filter.is_some_and(|filter| now.since(since) > filter.timeout) {
            self.turn_away(index, Away::Late);
        }
    }

    /// Reads what a client has sent, as far as it has come.
    fn advance(&mut self, index: u32) {
        let Some(line) = self.lines[index as usize].line.as_deref_mut() else { return };
        let Side::Theirs(arrival) = &line.side else { return };
        let Some(filter) = self.arrivals.filter(arrival.listener) else { return };
        if let Stage::Arriving { .. } = line.stage {
            match self.hear_header(index, &filter) {
                Ok(true) => {}
                Ok(false) => return,
                Err(away) => return self.turn_away(index, away),
            }
        }
        let Some(line) = self.lines[index as usize].line.as_deref_mut() else { return };
        if let Stage::Entered { .. } = line.stage {
            return self.let_in(index);
        }
        if !line.flush(&mut self.io, &mut self.cipher) {
            return self.turn_away(index, Away::Tls(TlsFault::Closed));
        }
        // The end may have been reported together with bytes that were read: check for it.
        match line.shake(&mut self.io, &mut self.cipher, true) {
            Progress::Waiting => {}
            Progress::Failed(fault) => self.turn_away(index, Away::Tls(fault)),
            Progress::Done => self.let_in(index),
        }
    }

    /// Reads the header. Returns `false` if more bytes are needed.
    fn hear_header(&mut self, index: u32, filter: &AcceptFilter) -> Result<bool, Away> {
        let Self { io, lines, .. } = self;
        let Some(line) = lines[index as usize].line.as_deref_mut() else { return Ok(false) };
        let (Stage::Arriving { socket, said }, Side::Theirs(arrival)) =
            (&mut line.stage, &mut line.side)
        else {
            return Ok(false);
        };
        let socket = *socket;
        let len = loop {
            match io.recv(socket) {
                Recv::Data { bytes, .. } => said.extend_from_slice(bytes),
                Recv::Empty => return Ok(false),
                Recv::End | Recv::Failed if said.is_empty() => return Err(Away::Gone),
                Recv::End | Recv::Failed => return Err(Away::Tls(TlsFault::Closed)),
            }
            if filter.proxies.is_none() {
                break 0;
            }
            // It is bounded by the length of a header, and one read.
            if let Header::Whole { announced, len } = parse_header(said).map_err(Away::Header)? {
                let is_own = announced == Announced::Own;
                match announced {
                    Announced::Client(addr) => arrival.peer = Peer::Tcp(addr),
                    Announced::Local => arrival.peer = Peer::Unix,
                    // The address is the proxy's own.
                    Announced::Own | Announced::Unknown => {}
                }
                if !is_own && !filter.admits(&arrival.peer) {
                    return Err(Away::NotAllowed);
                }
                break len;
            }
        };
        let rest = said.split_off(len);
        let Some(tls) = &filter.tls else {
            line.early = rest;
            line.stage = Stage::Entered { socket, channel: None };
            return Ok(true);
        };
        let mut channel = tls.accept().map_err(Away::Tls)?;
        arrival.said = rest.len();
        let outcome = channel.handle_input(&rest, &mut line.early);
        line.stage = Stage::Handshaking { socket, channel };
        // The client is told of the fault, too.
        line.flush(io, &mut self.cipher);
        outcome.map(|()| true).map_err(Away::Tls)
    }

    fn let_in(&mut self, index: u32) {
        let Some(line) = self.lines[index as usize].line.as_deref_mut() else { return };
        line.stage = match std::mem::replace(&mut line.stage, Stage::Connecting) {
            Stage::Handshaking { socket, channel } => {
                Stage::Entered { socket, channel: Some(channel) }
            }
            stage => stage,
        };
        let Side::Theirs(arrival) = &line.side else { return };
        let socket = Socket(SECURED_SOCKET | index as i32);
        let accept = Accept::Client { socket, peer: arrival.peer };
        let listener = arrival.listener;
        self.arrivals.counts[usize::from(listener.0)] -= 1;
        self.arrivals.told.push_back((listener, accept));
    }

    #[cold]
    fn turn_away(&mut self, index: u32, away: Away) {
        let Some(line) = self.remove(index) else { return };
        let Side::Theirs(Arrival { listener, peer, .. }) = line.side else { return };
        if let Some(socket) = line.stage.socket() {
            self.io.close(socket);
        }
        self.arrivals.counts[usize::from(listener.0)] -= 1;
        self.arrivals.told.push_back((listener, Accept::Turned { peer, away }));
    }

    /// Closes arriving clients, at one listener or at all, because listening has ended.
    pub(super) fn turn_all_away(&mut self, at: Option<ListenerIndex>) {
        let is_there = |listener: ListenerIndex| at.is_none_or(|at| at == listener);
        for index in 0..self.lines.len() as u32 {
            let line = self.lines[index as usize].line.as_deref();
            let is_outside = |stage: &Stage| {
                matches!(
                    stage,
                    Stage::Arriving { .. } | Stage::Handshaking { .. } | Stage::Entered { .. }
                )
            };
            let is_it = |line: &Line| {
                matches!(&line.side, Side::Theirs(arrival) if is_there(arrival.listener))
                    && is_outside(&line.stage)
            };
            if line.is_some_and(is_it)
                && let Some(socket) = self.remove(index).and_then(|line| line.stage.socket())
            {
                self.io.close(socket);
            }
        }
        // Names in the queues of clients that are gone are skipped.
        let Arrivals { entering, counts, held, told, .. } = &mut self.arrivals;
        for of in (0..counts.len()).filter(|&of| is_there(ListenerIndex(of as u16))) {
            entering[of].clear();
            counts[of] = 0;
            held[of] = false;
        }
        // A refused client in this list has no socket any more.
        told.retain(|(of, _)| !is_there(*of));
    }
}
