//! TLS between sockets and the worker.
//!
//! [`Secured`] is an [`Io`] over another. A connection begun by [`Io::connect_secured`] has its
//! handshake here, and is reported when that is over. From then on its [`Socket`] reads and writes
//! plain bytes, like any other.
//!
//! ```text
//!  connect_secured ─► Connecting ─► Handshaking ─► Open ─► close
//!                         │              │           │
//!                   ConnectFailed   ConnectFailed   recv fails; tls_fault says why
//! ```
//! A plain socket costs one test of a bit. The number of a secured socket has that bit set, and is
//! the index of its [`Line`]. The same holds for its tokens below.
//!
//! Bytes are decrypted only on request: a `recv` here is one below, and all it returns is passed
//! on. Encrypted bytes without room are kept, at most 32 KiB and the overhead of their records.
//! Until they are sent no more bytes are accepted.
//!
//! Clients of a listener with an [`AcceptFilter`] arrive here, too ([`arrivals`]).

mod arrivals;
mod line;

use crate::io::send_each;
use crate::{
    Accept, AcceptFilter, Address, ConnectFault, Event, Io, ListenerIndex, Recv, Send, Socket,
};
use crate::{TlsFault, Token};
use arrivals::Arrivals;
use keyway_base::Clock;
use keyway_tls::ClientTls;
use line::{Line, Progress, Side, Stage};
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Set in the number of a secured socket. Descriptors are far below.
const SECURED_SOCKET: i32 = 1 << 30;

/// Set in this driver's own tokens.
const SECURED_TOKEN: u64 = 1 << 61;

/// Bits of a token that no worker uses: those of this driver and of the driver below.
const RESERVED: u64 = 1 << 63 | SECURED_TOKEN;

/// Largest generation, which fits into a token beside an index and the bits of others.
const GENERATION_MAX: u32 = (1 << 29) - 1;

/// Most reads without content before other connections have their turn. Empty records are sent only
/// to keep this process busy.
const IDLE_READS_MAX: usize = 16;

/// The alert that only says that the handshake has failed.
const HANDSHAKE_FAILURE: u8 = 40;

/// Lines on their way between two workers, by numbers of their own.
static MOVING: Mutex<BTreeMap<i32, Box<Line>>> = Mutex::new(BTreeMap::new());

/// An [`Io`] whose connections may be secured.
pub struct Secured<I> {
    io: I,
    lines: Vec<Entry>,
    free: Vec<u32>,
    /// Bytes that were read last.
    plain: Vec<u8>,
    /// Bytes that are being sent.
    cipher: Vec<u8>,
    /// Lines that are to be read on without another event.
    again: Vec<u32>,
    scratch: Vec<Event>,
    arrivals: Arrivals,
}

#[derive(Default)]
struct Entry {
    generation: u32,
    line: Option<Box<Line>>,
}

impl<I: Io> Secured<I> {
    /// Returns a driver over `io` that can also secure connections.
    pub fn new(io: I) -> Self {
        Self::with_filters(io, Vec::new())
    }

    /// Creates a driver that applies these filters to clients, by listener.
    pub fn with_filters(io: I, filters: Vec<Option<Arc<AcceptFilter>>>) -> Self {
        Secured {
            io,
            lines: Vec::new(),
            free: Vec::new(),
            plain: Vec::new(),
            cipher: Vec::new(),
            again: Vec::new(),
            scratch: Vec::new(),
            arrivals: Arrivals::new(filters),
        }
    }

    /// Returns the driver below, for tests that steer it.
    pub fn inner_mut(&mut self) -> &mut I {
        &mut self.io
    }

    fn add(&mut self, line: Line) -> u32 {
        self.put(Box::new(line))
    }

    fn put(&mut self, line: Box<Line>) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.lines.push(Entry::default());
            (self.lines.len() - 1) as u32
        });
        self.lines[index as usize].line = Some(line);
        index
    }

    fn remove(&mut self, index: u32) -> Option<Box<Line>> {
        let entry = self.lines.get_mut(index as usize)?;
        let line = entry.line.take()?;
        // Later events about it from below are outdated.
        entry.generation = (entry.generation + 1) & GENERATION_MAX;
        self.free.push(index);
        self.again.retain(|&again| again != index);
        Some(line)
    }

    fn own_token(&self, index: u32) -> Token {
        let generation = self.lines[index as usize].generation;
        Token(SECURED_TOKEN | u64::from(generation) << 32 | u64::from(index))
    }

    fn index_of(&self, token: Token) -> Option<u32> {
        let index = token.0 as u32;
        let entry = self.lines.get(index as usize)?;
        (entry.line.is_some() && self.own_token(index) == token).then_some(index)
    }

    /// Returns the line of a secured socket.
    fn line_of(&mut self, socket: Socket) -> Option<&mut Line> {
        let index = (socket.0 & !SECURED_SOCKET) as usize;
        self.lines.get_mut(index)?.line.as_deref_mut()
    }

    /// Translates events about lines for the worker, from `first` on.
    fn translate(&mut self, events: &mut Vec<Event>, first: usize) {
        let mut told = std::mem::take(&mut self.scratch);
        told.extend(events.drain(first..));
        let again = std::mem::take(&mut self.again);
        for event in told.drain(..) {
            let token = match &event {
                Event::Ready { token, .. }
                | Event::Connected { token, .. }
                | Event::ConnectFailed { token, .. } => *token,
                Event::Incoming(_) | Event::Resolved { .. } | Event::Mail => Token(0),
            };
            if token.0 & RESERVED != SECURED_TOKEN {
                events.push(event);
            } else if let Some(index) = self.index_of(token) {
                self.on_event(index, event, events);
            } else if let Event::Connected { socket, .. } = event {
                // The connection was given up meanwhile.
                self.io.close(socket);
            }
        }
        self.scratch = told;
        for index in again {
            if let Some(line) = &self.lines[index as usize].line {
                let token = line.token;
                events.push(Event::Ready { token, readable: true, writable: false, hangup: false });
            }
        }
    }

    fn on_event(&mut self, index: u32, event: Event, events: &mut Vec<Event>) {
        match event {
            Event::Connected { socket, .. } => self.begin(index, socket, events),
            Event::ConnectFailed { fault, .. } => {
                let Some(line) = self.remove(index) else { return };
                events.push(Event::ConnectFailed { token: line.token, fault });
            }
            Event::Ready { readable, writable, hangup, .. } => {
                self.on_ready(index, (readable, writable, hangup), events);
            }
            Event::Incoming(_) | Event::Resolved { .. } | Event::Mail => {}
        }
    }

    fn begin(&mut self, index: u32, socket: Socket, events: &mut Vec<Event>) {
        assert!(socket.0 < SECURED_SOCKET, "sockets below have lower numbers");
        let Some(line) = self.lines[index as usize].line.as_deref_mut() else { return };
        match line.begin(socket) {
            Ok(()) if line.flush(&mut self.io, &mut self.cipher) => {}
            Ok(()) => self.fail(index, TlsFault::Closed, events),
            Err(fault) => {
                self.io.close(socket);
                self.fail(index, fault, events);
            }
        }
    }

    fn on_ready(
        &mut self,
        index: u32,
        (readable, writable, hangup): (bool, bool, bool),
        events: &mut Vec<Event>,
    ) {
        let Some(line) = self.lines[index as usize].line.as_deref_mut() else { return };
        if let Side::Theirs(_) = line.side
            && !matches!(line.stage, Stage::Open { .. } | Stage::Plain { .. })
        {
            return self.on_arrival_ready(index);
        }
        let is_whole = !writable || line.flush(&mut self.io, &mut self.cipher);
        if writable && line.is_finishing {
            line.finish_below(&mut self.io);
        }
        if let Stage::Open { .. } | Stage::Plain { .. } = line.stage {
            events.push(Event::Ready {
                token: line.token,
                readable,
                // While bytes wait here no more are accepted.
                writable: writable && line.unsent.is_empty(),
                // Reading reports that it broke.
                hangup: hangup || !is_whole,
            });
            return;
        }
        if !is_whole {
            return self.fail(index, TlsFault::Closed, events);
        }
        if !readable && !hangup {
            return;
        }
        match line.shake(&mut self.io, &mut self.cipher, hangup) {
            Progress::Waiting => {}
            Progress::Failed(fault) => self.fail(index, fault, events),
            Progress::Done => {
                line.open();
                let token = line.token;
                let socket = Socket(SECURED_SOCKET | index as i32);
                events.push(Event::Connected { token, socket });
                // Bytes after the handshake are not reported again.
                events.push(Event::Ready { token, readable: true, writable: false, hangup });
            }
        }
    }

    /// Ends a failed handshake.
    fn fail(&mut self, index: u32, fault: TlsFault, events: &mut Vec<Event>) {
        let Some(line) = self.remove(index) else { return };
        if let Some(socket) = line.stage.socket() {
            self.io.close(socket);
        }
        // A server that demands a certificate and gets none says so only with version 1.3.
        let is_vague = matches!(fault, TlsFault::Closed | TlsFault::Alert(HANDSHAKE_FAILURE));
        let is_asked = is_vague && line.lacks_identity();
        let fault = if is_asked { TlsFault::NoIdentity } else { fault };
        events.push(Event::ConnectFailed { token: line.token, fault: ConnectFault::Tls(fault) });
    }

    // It is a function of its own, so that plain sockets do not pay for its stack.
    #[inline(never)]
    fn recv_secured(&mut self, socket: Socket) -> Recv<'_> {
        let Self { io, lines, plain, cipher, again, .. } = self;
        let index = (socket.0 & !SECURED_SOCKET) as u32;
        let entry = lines.get_mut(index as usize);
        let Some(line) = entry.and_then(|entry| entry.line.as_deref_mut()) else {
            return Recv::Failed;
        };
        plain.clear();
        if !line.early.is_empty() {
            line.was_heard = true;
            std::mem::swap(plain, &mut line.early);
            line.early = Vec::new();
            return Recv::Data { bytes: plain, drained: false, block: None };
        }
        for _ in 0..IDLE_READS_MAX {
            if let Stage::Plain { socket } = line.stage {
                return io.recv(socket);
            }
            let Stage::Open { socket, channel } = &mut line.stage else { return Recv::Empty };
            if line.fault.is_some() {
                return Recv::Failed;
            }
            if channel.has_ended() {
                return Recv::End;
            }
            let (outcome, drained) = match io.recv(*socket) {
                Recv::Data { bytes, drained, .. } => (channel.handle_input(bytes, plain), drained),
                Recv::Empty => return Recv::Empty,
                Recv::End => return Recv::End,
                Recv::Failed => return Recv::Failed,
            };
            let has_ended = channel.has_ended();
            line.fault = outcome.err();
            // Key updates and alerts are answered.
            if !line.is_finishing && channel.wants_output() && !line.flush(io, cipher) {
                return Recv::Failed;
            }
            if !plain.is_empty() {
                line.was_heard = true;
                // The next call reports the end.
                let drained = drained && !has_ended && line.fault.is_none();
                return Recv::Data { bytes: plain, drained, block: None };
            }
            if drained && !has_ended && line.fault.is_none() {
                return Recv::Empty;
            }
        }
        again.push(index);
        Recv::Empty
    }

    #[inline(never)]
    fn send_secured(&mut self, socket: Socket, bytes: &[u8]) -> Send {
        let Self { io, lines, cipher, .. } = self;
        let index = (socket.0 & !SECURED_SOCKET) as usize;
        let entry = lines.get_mut(index);
        let Some(line) = entry.and_then(|entry| entry.line.as_deref_mut()) else {
            return Send::Failed;
        };
        if let Stage::Entered { .. } = line.stage {
            // The peer is told why it is refused.
            line.open();
        }
        match line.stage {
            _ if line.fault.is_some() => Send::Failed,
            Stage::Plain { socket } => io.send(socket, bytes),
            _ => line.send(io, cipher, bytes),
        }
    }

    #[cold]
    fn finish_secured(&mut self, socket: Socket) -> bool {
        let Self { io, lines, cipher, .. } = self;
        let entry = lines.get_mut((socket.0 & !SECURED_SOCKET) as usize);
        match entry.and_then(|entry| entry.line.as_deref_mut()) {
            Some(line) => line.finish(io, cipher),
            None => false,
        }
    }

    #[cold]
    fn close_secured(&mut self, socket: Socket) {
        let Some(mut line) = self.remove((socket.0 & !SECURED_SOCKET) as u32) else { return };
        if let (Stage::Open { channel, .. }, false) = (&mut line.stage, line.is_finishing) {
            channel.end();
            line.flush(&mut self.io, &mut self.cipher);
        }
        if let Some(socket) = line.stage.socket() {
            self.io.close(socket);
        }
    }
}

fn is_secured(socket: Socket) -> bool {
    socket.0 & SECURED_SOCKET != 0
}

impl<I: Io> Io for Secured<I> {
    #[inline]
    fn clock(&mut self) -> Clock {
        let clock = self.io.clock();
        self.arrivals.now = clock.now;
        clock
    }

    fn poll(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
        let first = events.len();
        let has_work = !self.again.is_empty() || self.arrivals.has_work();
        let wait = if has_work { Some(Duration::ZERO) } else { self.arrivals.bounded(wait) };
        let slept = self.io.poll(wait, events);
        if !self.lines.is_empty() {
            self.translate(events, first);
            if self.arrivals.is_busy() {
                self.tend_arrivals(events);
            }
        }
        slept
    }

    fn accept(&mut self, listener: ListenerIndex) -> Accept {
        match self.arrivals.filter(listener) {
            None => self.io.accept(listener),
            Some(filter) => self.accept_by(&filter, listener),
        }
    }

    fn accept_beside(&mut self, listener: ListenerIndex) -> bool {
        self.io.accept_beside(listener)
    }

    fn local_address(&self, socket: Socket) -> Option<SocketAddr> {
        if !is_secured(socket) {
            return self.io.local_address(socket);
        }
        let entry = self.lines.get((socket.0 & !SECURED_SOCKET) as usize)?;
        self.io.local_address(entry.line.as_ref()?.stage.socket()?)
    }

    fn resolve(&mut self, host: &str, number: u32) -> bool {
        self.io.resolve(host, number)
    }

    fn pause_accepting(&mut self, paused: bool) {
        self.arrivals.is_paused = paused;
        self.io.pause_accepting(paused);
    }

    fn listen(&mut self, index: ListenerIndex, listener: crate::Listener) -> bool {
        self.io.listen(index, listener)
    }

    fn empty_listener(&mut self, index: ListenerIndex) {
        self.io.empty_listener(index);
    }

    fn end_listening(&mut self, index: ListenerIndex) {
        self.turn_all_away(Some(index));
        self.io.end_listening(index);
    }

    fn let_in_by(&mut self, index: ListenerIndex, filter: Option<Arc<AcceptFilter>>) {
        self.arrivals.let_in_by(index, filter);
    }

    fn stop_listening(&mut self) {
        self.turn_all_away(None);
        self.io.stop_listening();
    }

    fn leave_listening(&mut self) {
        self.io.leave_listening();
    }

    fn has_arrivals(&self) -> bool {
        self.arrivals.is_busy() || self.io.has_arrivals()
    }

    fn take_notice(&mut self) -> Option<&'static str> {
        self.io.take_notice()
    }

    fn watch(&mut self, socket: Socket, token: Token) -> bool {
        assert_eq!(token.0 & RESERVED, 0, "these bits of a token are the drivers'");
        if !is_secured(socket) {
            return self.io.watch(socket, token);
        }
        let index = (socket.0 & !SECURED_SOCKET) as u32;
        let own = self.own_token(index);
        let Some(line) = self.line_of(socket) else { return false };
        line.token = token;
        let was_watched = matches!(line.stage, Stage::Entered { .. });
        line.open();
        let below = line.stage.socket();
        was_watched || below.is_some_and(|below| self.io.watch(below, own))
    }

    fn connect(&mut self, address: &Address, token: Token) {
        assert_eq!(token.0 & RESERVED, 0, "these bits of a token are the drivers'");
        self.io.connect(address, token);
    }

    fn connect_secured(&mut self, address: &Address, tls: &ClientTls, token: Token) {
        assert_eq!(token.0 & RESERVED, 0, "these bits of a token are the drivers'");
        let host = match address {
            Address::Tcp { host, .. } => host.as_str().into(),
            Address::Unix(_) | Address::Shm(_) => Box::default(),
        };
        let index = self.add(Line {
            token,
            side: Side::Ours { tls: tls.clone(), host },
            stage: Stage::Connecting,
            unsent: Vec::new(),
            held: 0,
            early: Vec::new(),
            fault: None,
            was_heard: false,
            is_finishing: false,
        });
        let own = self.own_token(index);
        self.io.connect(address, own);
    }

    fn tls_fault(&mut self, socket: Socket) -> Option<TlsFault> {
        if !is_secured(socket) {
            return None;
        }
        let line = self.line_of(socket)?;
        let is_unexplained = line.fault.is_none() && !line.was_heard && line.lacks_identity();
        if is_unexplained { Some(TlsFault::NoIdentity) } else { line.fault }
    }

    fn cancel_connect(&mut self, token: Token) {
        let is_it = |entry: &Entry| {
            entry.line.as_ref().is_some_and(|line| {
                line.token == token
                    && matches!(line.stage, Stage::Connecting | Stage::Handshaking { .. })
            })
        };
        let Some(index) = self.lines.iter().position(is_it) else {
            return self.io.cancel_connect(token);
        };
        let own = self.own_token(index as u32);
        match self.remove(index as u32).and_then(|line| line.stage.socket()) {
            Some(socket) => self.io.close(socket),
            None => self.io.cancel_connect(own),
        }
    }

    #[inline]
    fn recv(&mut self, socket: Socket) -> Recv<'_> {
        if is_secured(socket) { self.recv_secured(socket) } else { self.io.recv(socket) }
    }

    #[inline]
    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Send {
        if is_secured(socket) {
            self.send_secured(socket, bytes)
        } else {
            self.io.send(socket, bytes)
        }
    }

    fn send_pieces(&mut self, socket: Socket, pieces: &[IoSlice<'_>]) -> Send {
        if !is_secured(socket) {
            return self.io.send_pieces(socket, pieces);
        }
        send_each(self, socket, pieces)
    }

    fn has_broken_rules(&mut self, socket: Socket) -> bool {
        !is_secured(socket) && self.io.has_broken_rules(socket)
    }

    #[inline]
    fn take_looked(&mut self) -> u64 {
        self.io.take_looked()
    }

    fn release(&mut self, socket: Socket) -> Socket {
        if !is_secured(socket) {
            return self.io.release(socket);
        }
        let line = self.remove((socket.0 & !SECURED_SOCKET) as u32).expect("it is a client's");
        assert!(matches!(line.side, Side::Theirs(_)), "only clients are handed over");
        let below = line.stage.socket().expect("it is open");
        assert_eq!(self.io.release(below), below, "sockets below keep their numbers");
        let mut moving = MOVING.lock();
        let number = moving.last_key_value().map_or(0, |(number, _)| number + 1);
        moving.insert(number, line);
        Socket(SECURED_SOCKET | number)
    }

    fn adopt(&mut self, socket: Socket) -> Socket {
        if !is_secured(socket) {
            return self.io.adopt(socket);
        }
        let line = MOVING.lock().remove(&(socket.0 & !SECURED_SOCKET));
        let line = line.expect("what was released is adopted once");
        Socket(SECURED_SOCKET | self.put(line) as i32)
    }

    fn give_up(&mut self, socket: Socket) -> Option<(OwnedFd, Vec<u8>)> {
        if is_secured(socket) { None } else { self.io.give_up(socket) }
    }

    fn take_over(&mut self, descriptor: OwnedFd, unread: Vec<u8>) -> Option<Socket> {
        self.io.take_over(descriptor, unread)
    }

    fn finish(&mut self, socket: Socket) -> bool {
        if is_secured(socket) { self.finish_secured(socket) } else { self.io.finish(socket) }
    }

    fn close(&mut self, socket: Socket) {
        if is_secured(socket) { self.close_secured(socket) } else { self.io.close(socket) }
    }
}
