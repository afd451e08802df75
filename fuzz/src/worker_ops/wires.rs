//! The worker's [`Io`], in memory: sockets are pairs of buffers, and whatever
//! is left to the system's whim is decided by the input.

use crate::invariants::{shown, tell};
use keyway_base::{Block, Clock};
use keyway_net::{Accept, Address, Event, Io, ListenerIndex, Peer, Recv, Send, Socket, Token};
use std::collections::VecDeque;
use std::time::Duration;

/// How a peer ended its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It sends no more.
    Closed,
    /// It is gone.
    Reset,
}

/// One connection, as both of its ends see it.
#[derive(Debug)]
pub struct Wire {
    token: Option<Token>,
    /// On its way to the worker.
    pub to_worker: VecDeque<u8>,
    /// From the worker, for the peer to take.
    pub from_worker: Vec<u8>,
    /// Bytes the system still takes from the worker.
    pub room: usize,
    is_blocked: bool,
    pub end: Option<End>,
    /// The worker has not closed it.
    pub is_open: bool,
}

impl Wire {
    /// Whether the worker ever asked for its events, but to see it out: who is one client too many
    /// has a name that no client has.
    pub fn is_watched(&self) -> bool {
        self.token.is_some_and(|token| token.0 as u32 != u32::MAX)
    }
}

/// A connection that the worker asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub server: usize,
    token: Token,
}

/// All sockets of the worker, by number.
pub struct Wires {
    pub clock: Clock,
    pub wires: Vec<Wire>,
    pub connects: VecDeque<Asked>,
    /// Most bytes one read returns.
    pub read_len_max: usize,
    /// Whether reads say that they emptied the socket.
    pub tells_drained: bool,
    pub is_exhausted: bool,
    events: Vec<Event>,
    backlogs: [VecDeque<Socket>; 8],
    is_listening: bool,
    block: Option<Block>,
}

impl Wires {
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            wires: Vec::new(),
            connects: VecDeque::new(),
            read_len_max: 1 << 16,
            tells_drained: true,
            is_exhausted: false,
            events: Vec::new(),
            backlogs: Default::default(),
            is_listening: true,
            block: None,
        }
    }

    pub fn pass_time(&mut self, span: Duration) {
        self.clock.now = self.clock.now + span;
        self.clock.unix_micros += span.as_micros() as u64;
    }

    fn add(&mut self, room: usize) -> Socket {
        self.wires.push(Wire {
            token: None,
            to_worker: VecDeque::new(),
            from_worker: Vec::new(),
            room,
            is_blocked: false,
            end: None,
            is_open: true,
        });
        Socket(self.wires.len() as i32 - 1)
    }

    /// A client connects; `None` when nobody listens any more.
    pub fn dial(&mut self, listener: u16, room: usize) -> Option<usize> {
        if !self.is_listening {
            return None;
        }
        let socket = self.add(room);
        self.backlogs[usize::from(listener)].push_back(socket);
        self.events.push(Event::Incoming(ListenerIndex(listener)));
        Some(socket.0 as usize)
    }

    /// Decides the oldest connection asked for: the socket, if it stands.
    pub fn decide_connect(&mut self, at: usize, room: Option<usize>) -> Option<(usize, usize)> {
        let asked = self.connects.remove(at)?;
        let Some(room) = room else {
            let fault = keyway_net::ConnectFault::Refused;
            self.events.push(Event::ConnectFailed { token: asked.token, fault });
            return None;
        };
        let socket = self.add(room);
        self.wires[socket.0 as usize].token = Some(asked.token);
        self.events.push(Event::Connected { token: asked.token, socket });
        Some((asked.server, socket.0 as usize))
    }

    /// The peer sends `bytes`.
    pub fn send_to_worker(&mut self, wire: usize, bytes: &[u8]) {
        tell(|| format!("to the worker on {wire}: {}", shown(bytes)));
        self.wires[wire].to_worker.extend(bytes);
        self.tell(wire, true, false);
    }

    /// The peer ends its side.
    pub fn end(&mut self, wire: usize, end: End) {
        self.wires[wire].end.get_or_insert(end);
        self.tell(wire, true, false);
    }

    /// The peer takes what has arrived, and makes room for as much again.
    pub fn take_from_worker(&mut self, wire: usize, room: usize) -> Vec<u8> {
        let taken = std::mem::take(&mut self.wires[wire].from_worker);
        self.wires[wire].room = self.wires[wire].room.saturating_add(room);
        if self.wires[wire].is_blocked && self.wires[wire].room > 0 {
            self.wires[wire].is_blocked = false;
            self.tell(wire, false, true);
        }
        taken
    }

    /// An event, with a cause or without.
    pub fn tell(&mut self, wire: usize, readable: bool, writable: bool) {
        let Wire { token: Some(token), end, is_open: true, .. } = self.wires[wire] else { return };
        let hangup = end == Some(End::Reset);
        self.events.push(Event::Ready { token, readable, writable, hangup });
    }

    pub fn tell_mail(&mut self) {
        self.events.push(Event::Mail);
    }

    pub fn tell_incoming(&mut self) {
        for listener in 0..self.backlogs.len() {
            if !self.backlogs[listener].is_empty() {
                self.events.push(Event::Incoming(ListenerIndex(listener as u16)));
            }
        }
    }

    fn of(&mut self, socket: Socket) -> &mut Wire {
        let wire = &mut self.wires[socket.0 as usize];
        assert!(wire.is_open, "a socket is used after it was closed");
        wire
    }

    fn forget_events(&mut self, socket: Socket) {
        if let Some(gone) = self.of(socket).token {
            self.events
                .retain(|event| !matches!(event, Event::Ready { token, .. } if *token == gone));
        }
    }
}

impl Io for Wires {
    fn clock(&mut self) -> Clock {
        self.clock
    }

    fn poll(&mut self, _wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
        events.append(&mut self.events);
        false
    }

    fn accept(&mut self, listener: ListenerIndex) -> Accept {
        match self.backlogs[usize::from(listener.0)].pop_front() {
            Some(socket) if self.is_exhausted => {
                self.backlogs[usize::from(listener.0)].push_front(socket);
                Accept::Exhausted
            }
            Some(socket) => Accept::Client { socket, peer: Peer::Unix },
            None => Accept::Empty,
        }
    }

    fn pause_accepting(&mut self, paused: bool) {
        if !paused {
            self.tell_incoming();
        }
    }

    fn stop_listening(&mut self) {
        self.is_listening = false;
        for socket in self.backlogs.iter_mut().flat_map(|backlog| backlog.drain(..)) {
            self.wires[socket.0 as usize].is_open = false;
        }
    }

    fn watch(&mut self, socket: Socket, token: Token) -> bool {
        let wire = self.of(socket);
        wire.token = Some(token);
        let readable = !wire.to_worker.is_empty() || wire.end.is_some();
        self.tell(socket.0 as usize, readable, true);
        true
    }

    fn connect(&mut self, address: &Address, token: Token) {
        let Address::Tcp { port, .. } = address else { panic!("servers have ports") };
        self.connects.push_back(Asked { server: usize::from(*port) - 1, token });
    }

    fn cancel_connect(&mut self, token: Token) {
        self.connects.retain(|asked| asked.token != token);
    }

    fn recv(&mut self, socket: Socket) -> Recv<'_> {
        let (read_len_max, tells_drained) = (self.read_len_max, self.tells_drained);
        let wire = self.of(socket);
        if wire.end == Some(End::Reset) {
            return Recv::Failed;
        }
        let len = wire.to_worker.len().min(read_len_max);
        if len == 0 {
            return if wire.end.is_some() { Recv::End } else { Recv::Empty };
        }
        let bytes: Vec<u8> = wire.to_worker.drain(..len).collect();
        let drained = wire.to_worker.is_empty() && wire.end.is_none() && tells_drained;
        let block = self.block.insert(bytes.into());
        Recv::Data { bytes: block, drained, block: Some(block) }
    }

    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Send {
        let wire = self.of(socket);
        if wire.end == Some(End::Reset) {
            return Send::Failed;
        }
        let taken = bytes.len().min(wire.room);
        wire.room -= taken;
        wire.is_blocked = taken < bytes.len();
        wire.from_worker.extend_from_slice(&bytes[..taken]);
        tell(|| format!("worker on {}: {}", socket.0, shown(&bytes[..taken])));
        Send::Taken(taken)
    }

    fn release(&mut self, socket: Socket) -> Socket {
        self.forget_events(socket);
        self.of(socket).token = None;
        socket
    }

    fn close(&mut self, socket: Socket) {
        self.forget_events(socket);
        tell(|| format!("worker closes {}", socket.0));
        self.of(socket).is_open = false;
    }
}
