//! A worker's place at the network: its actions, and the events for it.

use super::{ACCEPTOR, Conn, ConnId, INITIATOR, Nanos, Network, Party, Received, Sent, has_room};
use keyway_net::{Event, ListenerIndex, Socket, Token};
use std::collections::VecDeque;

/// The part of the network that one worker sees.
#[derive(Default)]
pub struct Station {
    pub(super) ready: VecDeque<(ConnId, usize)>,
    pub(super) told: VecDeque<Event>,
    pub(super) accepts: Vec<VecDeque<ConnId>>,
    pub(super) accept_paused: bool,
    /// True if it still accepts clients.
    pub listening: bool,
    /// Until this time it has no descriptor left for a client.
    pub exhausted_until: Nanos,
    /// True if mail was posted.
    pub mail: bool,
    /// How much it did in the current turn, for the busy-loop oracle.
    pub moved: u64,
    /// How often it read bytes in that turn.
    pub fed: u64,
}

/// The result of a read by a worker.
pub struct Read {
    /// The number of bytes, or why there are none.
    pub outcome: Received,
    /// True if these were all bytes there were.
    pub drained: bool,
    /// True if parts of it may be held.
    pub is_block: bool,
}

impl Read {
    /// Returns a result that is not known to be complete, and that cannot be held.
    pub(super) fn of(outcome: Received) -> Self {
        Self { outcome, drained: false, is_block: false }
    }
}

impl Network {
    /// Closes a worker's socket. Another socket may get its number from here on.
    pub fn close_socket(&mut self, worker: usize, socket: Socket) {
        let (conn, side) = self.end_of(socket);
        self.tell(|| format!("worker {worker} closes socket {conn}"));
        self.stations[worker].moved += 1;
        let was_closed = self.conns[conn].sides[side].closed;
        self.disown(worker, (conn, side), true);
        self.close(conn, side, false);
        if !was_closed {
            self.worker_sockets -= 1;
            self.give_back(socket);
        }
    }

    /// Ends a worker's direction of a socket. The worker still reads it.
    pub fn finish_socket(&mut self, worker: usize, socket: Socket) {
        let (conn, side) = self.end_of(socket);
        self.tell(|| format!("worker {worker} says no more on socket {conn}"));
        self.stations[worker].moved += 1;
        self.finish(conn, side);
    }

    /// Reads for a worker and appends to `into`.
    pub fn read(&mut self, worker: usize, socket: Socket, into: &mut Vec<u8>) -> Read {
        let (conn, side) = self.end_of(socket);
        let read = match self.rings {
            Some(_) => self.read_by_ring(worker, (conn, side), into),
            None => {
                let len_max = self.options.read_len;
                let outcome = self.recv(conn, side, len_max, into);
                Read { outcome, drained: into.len() < len_max, is_block: true }
            }
        };
        self.tell(|| format!("worker {worker} reads socket {conn}: {:?}", read.outcome));
        read
    }

    /// Writes for a worker.
    pub fn write(&mut self, worker: usize, socket: Socket, bytes: &[u8]) -> Sent {
        let (conn, side) = self.end_of(socket);
        let outcome = self.send(conn, side, bytes);
        let len = bytes.len();
        self.tell(|| format!("worker {worker} writes {len} to socket {conn}: {outcome:?}"));
        if matches!(outcome, Sent::Taken(taken) if taken < len) {
            self.await_room(conn, side);
        }
        outcome
    }

    /// Sets the token of a worker's socket. Its events start here.
    pub fn watch(&mut self, worker: usize, socket: Socket, token: Token) {
        let (conn, side) = self.end_of(socket);
        let entry = &mut self.conns[conn].sides[side];
        entry.party = Party::Worker(worker);
        entry.token = Some(token);
        entry.is_queued = false;
        self.own(worker, (conn, side), token);
        self.trigger(conn, side);
    }

    /// Gives up a worker's socket without closing it.
    pub fn release(&mut self, worker: usize, socket: Socket) {
        let (conn, side) = self.end_of(socket);
        self.disown(worker, (conn, side), false);
        self.conns[conn].sides[side].token = None;
        self.conns[conn].sides[side].is_queued = false;
    }

    /// Accepts the next client of a listener. Returns its socket and its index.
    pub fn accept(&mut self, worker: usize, listener: ListenerIndex) -> Option<(Socket, usize)> {
        let conn = self.stations[worker].accepts[usize::from(listener.0)].pop_front()?;
        let Party::Client(client) = self.conns[conn].sides[INITIATOR].party else { return None };
        self.worker_sockets += 1;
        Some((self.socket(conn, ACCEPTOR), client))
    }

    /// Returns whether a client waits at a listener of this worker.
    pub fn has_waiting(&self, worker: usize) -> bool {
        self.stations[worker].accepts.iter().any(|queue| !queue.is_empty())
    }

    /// Stops or starts reports of waiting clients.
    pub fn pause_accepting(&mut self, worker: usize, paused: bool) {
        self.stations[worker].accept_paused = paused;
    }

    /// Refuses clients from here on, including those that wait.
    pub fn stop_listening(&mut self, worker: usize) {
        self.stations[worker].listening = false;
        for listener in 0..self.stations[worker].accepts.len() {
            while let Some(conn) = self.stations[worker].accepts[listener].pop_front() {
                self.close(conn, ACCEPTOR, true);
            }
        }
    }

    /// Returns whether a poll of this worker would return something.
    pub fn has_events(&self, worker: usize) -> bool {
        let station = &self.stations[worker];
        let incoming = !station.accept_paused && station.accepts.iter().any(|q| !q.is_empty());
        let has_early = self.rings.as_ref().is_some_and(|rings| rings.has_early(worker));
        incoming
            || station.mail
            || has_early
            || !station.told.is_empty()
            || !station.ready.is_empty()
    }

    /// Polls for a worker.
    pub fn poll(&mut self, worker: usize, events: &mut Vec<Event>) {
        self.begin_poll(worker, events);
        let station = &mut self.stations[worker];
        if !station.accept_paused {
            for (listener, queue) in station.accepts.iter().enumerate() {
                if !queue.is_empty() {
                    events.push(Event::Incoming(ListenerIndex(listener as u16)));
                }
            }
        }
        if std::mem::take(&mut station.mail) {
            events.push(Event::Mail);
        }
        for _ in 0..self.options.events_max {
            let Some((conn, side)) = self.stations[worker].ready.pop_front() else { break };
            match self.rings {
                Some(_) => self.work(worker, (conn, side), events),
                None => events.extend(self.readiness(worker, conn, side)),
            }
        }
        while let Some(event) = self.stations[worker].told.pop_front() {
            if let Event::Connected { token, socket } = event {
                self.worker_sockets += 1;
                self.watch(worker, socket, token);
            }
            events.push(event);
        }
    }

    /// Returns the state of a socket that had an edge, or `None` if it is gone or there is nothing
    /// to report.
    fn readiness(&mut self, worker: usize, conn: ConnId, side: usize) -> Option<Event> {
        let capacity = self.options.capacity;
        let Conn { pipes, sides } = &mut self.conns[conn];
        let entry = &mut sides[side];
        if !std::mem::take(&mut entry.is_queued) || entry.party != Party::Worker(worker) {
            return None;
        }
        let token = entry.token?;
        let input = &pipes[1 - side];
        let hangup = input.ended || entry.reset;
        let readable = !input.ready.is_empty() || hangup;
        let writable = has_room(&pipes[side], capacity) || entry.reset;
        // As in the kernel, a look while there is no room orders an edge.
        pipes[side].wants_room |= !writable;
        self.edges += u64::from(readable && !hangup);
        if readable && self.options.dropped_edge == Some(self.edges) {
            self.tell(|| format!("the edge of socket {conn} is dropped"));
            return None;
        }
        self.digest(token.0);
        (readable || writable).then_some(Event::Ready { token, readable, writable, hangup })
    }
}
