//! TLS between sockets and whoever reads and writes them.
//!
//! [`Secured`] is an [`Io`] over another: a connection asked for with
//! [`Io::connect_secured`] has its handshake here, and is told of when that is
//! over. From then on its [`Socket`] takes and gives plain bytes, as any other.
//!
//! ```text
//!  connect_secured ─► Connecting ─► Handshaking ─► Open ─► close
//!                         │              │           │
//!                   ConnectFailed   ConnectFailed   recv fails; tls_fault says why
//! ```
//! A plain socket pays for one test of a bit. A secured one is a number of our
//! own with that bit set, the position of its [`Line`]; so are its tokens below.
//!
//! Nothing is decrypted but what is asked for: a `recv` here is one below, and
//! what it brought is handed on whole. What was encrypted and found no room is
//! kept, at most [`Channel::ENCRYPT_LEN_MAX`] and the overhead of its records,
//! and until it is gone nothing more is taken.

use crate::{Accept, Address, ConnectFault, Event, Io, ListenerIndex, Recv, Send, Socket, Token};
use keyway_base::Clock;
use keyway_tls::{Channel, ClientTls, TlsFault};
use std::net::SocketAddr;
use std::time::Duration;

/// Set in the number of a secured socket. Descriptors are far below.
const SECURED_SOCKET: i32 = 1 << 30;

/// Set in the tokens that are ours below.
const SECURED_TOKEN: u64 = 1 << 61;

/// Bits of a token that no worker uses: ours and the driver's.
const RESERVED: u64 = 1 << 63 | SECURED_TOKEN;

/// Generations fit into a token beside a position and the bits of others.
const GENERATION_MAX: u32 = (1 << 29) - 1;

/// Reads that may bring nothing to hand on before others have their turn: records
/// without content, which nobody sends but to keep us busy.
const IDLE_READS_MAX: usize = 16;

/// The alert that says nothing but that the handshake has failed.
const HANDSHAKE_FAILURE: u8 = 40;

/// An [`Io`] whose connections may be secured.
pub struct Secured<I> {
    io: I,
    lines: Vec<Place>,
    free: Vec<u32>,
    /// What was read last.
    plain: Vec<u8>,
    /// What is being sent.
    cipher: Vec<u8>,
    /// Lines that are to be read on without being told of again.
    again: Vec<u32>,
    scratch: Vec<Event>,
}

#[derive(Default)]
struct Place {
    generation: u32,
    line: Option<Box<Line>>,
}

/// A secured connection.
struct Line {
    /// The worker's name for it.
    token: Token,
    tls: ClientTls,
    host: Box<str>,
    stage: Stage,
    /// Encrypted, and still to be sent.
    unsent: Vec<u8>,
    /// Said by the peer right behind its handshake.
    early: Vec<u8>,
    fault: Option<TlsFault>,
    /// Whether the peer has said anything since the handshake.
    was_heard: bool,
}

enum Stage {
    Connecting,
    Handshaking { socket: Socket, channel: Channel },
    Open { socket: Socket, channel: Channel },
}

impl Stage {
    fn socket(&self) -> Option<Socket> {
        match self {
            Stage::Connecting => None,
            Stage::Handshaking { socket, .. } | Stage::Open { socket, .. } => Some(*socket),
        }
    }
}

/// What came of driving a handshake.
enum Progress {
    Waiting,
    Done,
    Failed(TlsFault),
}

impl Line {
    /// Sends what is left over and what the channel has to say. `false` when the
    /// connection broke.
    fn flush<I: Io>(&mut self, io: &mut I, cipher: &mut Vec<u8>) -> bool {
        let (Stage::Handshaking { socket, channel } | Stage::Open { socket, channel }) =
            &mut self.stage
        else {
            return true;
        };
        if !send_unsent(io, *socket, &mut self.unsent) {
            return false;
        }
        if !self.unsent.is_empty() || !channel.wants_output() {
            return true;
        }
        cipher.clear();
        channel.take_output(cipher);
        match io.send(*socket, cipher) {
            Send::Taken(taken) => {
                self.unsent.extend_from_slice(&cipher[taken..]);
                true
            }
            Send::Failed => false,
        }
    }

    fn begin(&mut self, socket: Socket) -> Result<(), TlsFault> {
        let channel = self.tls.connect(&self.host)?;
        self.stage = Stage::Handshaking { socket, channel };
        Ok(())
    }

    /// Reads on in a handshake.
    fn shake<I: Io>(&mut self, io: &mut I, cipher: &mut Vec<u8>, hangup: bool) -> Progress {
        loop {
            let Stage::Handshaking { socket, channel } = &mut self.stage else {
                return Progress::Waiting;
            };
            let (outcome, drained) = match io.recv(*socket) {
                Recv::Data { bytes, drained } => {
                    (channel.handle_input(bytes, &mut self.early), drained)
                }
                Recv::Empty => return Progress::Waiting,
                Recv::End | Recv::Failed => return Progress::Failed(TlsFault::Closed),
            };
            let is_over = !channel.is_handshaking();
            // What is wrong is told the peer, too.
            let was_sent = self.flush(io, cipher);
            match outcome {
                Err(fault) => return Progress::Failed(fault),
                Ok(()) if !was_sent => return Progress::Failed(TlsFault::Closed),
                Ok(()) if is_over => return Progress::Done,
                Ok(()) if drained && !hangup => return Progress::Waiting,
                Ok(()) => {}
            }
        }
    }

    fn open(&mut self) {
        if let Stage::Handshaking { socket, channel } =
            std::mem::replace(&mut self.stage, Stage::Connecting)
        {
            self.stage = Stage::Open { socket, channel };
        }
    }
}

/// `false` when the connection broke.
fn send_unsent<I: Io>(io: &mut I, socket: Socket, unsent: &mut Vec<u8>) -> bool {
    if unsent.is_empty() {
        return true;
    }
    match io.send(socket, unsent) {
        Send::Taken(taken) if taken == unsent.len() => {
            // At rest a line keeps nothing.
            *unsent = Vec::new();
            true
        }
        Send::Taken(taken) => {
            unsent.drain(..taken);
            true
        }
        Send::Failed => false,
    }
}

impl<I: Io> Secured<I> {
    /// A driver over `io` that can also secure connections.
    pub fn new(io: I) -> Self {
        Secured {
            io,
            lines: Vec::new(),
            free: Vec::new(),
            plain: Vec::new(),
            cipher: Vec::new(),
            again: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// The driver below, for tests that steer it.
    pub fn inner_mut(&mut self) -> &mut I {
        &mut self.io
    }

    fn add(&mut self, line: Line) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.lines.push(Place::default());
            (self.lines.len() - 1) as u32
        });
        self.lines[index as usize].line = Some(Box::new(line));
        index
    }

    fn remove(&mut self, index: u32) -> Option<Box<Line>> {
        let place = self.lines.get_mut(index as usize)?;
        let line = place.line.take()?;
        // What is still told of it below is about the past.
        place.generation = (place.generation + 1) & GENERATION_MAX;
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
        let place = self.lines.get(index as usize)?;
        (place.line.is_some() && self.own_token(index) == token).then_some(index)
    }

    /// The line of a secured socket.
    fn line_of(&mut self, socket: Socket) -> Option<&mut Line> {
        let index = (socket.0 & !SECURED_SOCKET) as usize;
        self.lines.get_mut(index)?.line.as_deref_mut()
    }

    /// Puts what is about lines into the worker's terms, from `first` on.
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
                // Given up in the meantime.
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
        let is_whole = !writable || line.flush(&mut self.io, &mut self.cipher);
        if let Stage::Open { .. } = line.stage {
            events.push(Event::Ready {
                token: line.token,
                readable,
                // While something waits here nothing more is taken.
                writable: writable && line.unsent.is_empty(),
                // Reading tells that it broke.
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
                // What came behind the handshake is not told of again.
                events.push(Event::Ready { token, readable: true, writable: false, hangup });
            }
        }
    }

    /// The handshake came to nothing.
    fn fail(&mut self, index: u32, fault: TlsFault, events: &mut Vec<Event>) {
        let Some(line) = self.remove(index) else { return };
        if let Some(socket) = line.stage.socket() {
            self.io.close(socket);
        }
        // Who wants a certificate and gets none says so by version 1.3 alone.
        let is_vague = matches!(fault, TlsFault::Closed | TlsFault::Alert(HANDSHAKE_FAILURE));
        let is_asked = is_vague && line.tls.lacks_identity();
        let fault = if is_asked { TlsFault::NoIdentity } else { fault };
        events.push(Event::ConnectFailed { token: line.token, fault: ConnectFault::Tls(fault) });
    }

    // Apart, so that plain sockets do not pay for what it keeps on the stack.
    #[inline(never)]
    fn recv_secured(&mut self, socket: Socket) -> Recv<'_> {
        let Self { io, lines, plain, cipher, again, .. } = self;
        let index = (socket.0 & !SECURED_SOCKET) as u32;
        let place = lines.get_mut(index as usize);
        let Some(line) = place.and_then(|place| place.line.as_deref_mut()) else {
            return Recv::Failed;
        };
        plain.clear();
        if !line.early.is_empty() {
            line.was_heard = true;
            std::mem::swap(plain, &mut line.early);
            line.early = Vec::new();
            return Recv::Data { bytes: plain, drained: false };
        }
        for _ in 0..IDLE_READS_MAX {
            let Stage::Open { socket, channel } = &mut line.stage else { return Recv::Empty };
            if line.fault.is_some() {
                return Recv::Failed;
            }
            if channel.has_ended() {
                return Recv::End;
            }
            let (outcome, drained) = match io.recv(*socket) {
                Recv::Data { bytes, drained } => (channel.handle_input(bytes, plain), drained),
                Recv::Empty => return Recv::Empty,
                Recv::End => return Recv::End,
                Recv::Failed => return Recv::Failed,
            };
            let has_ended = channel.has_ended();
            line.fault = outcome.err();
            // Keys that change and alerts are answered.
            if channel.wants_output() && !line.flush(io, cipher) {
                return Recv::Failed;
            }
            if !plain.is_empty() {
                line.was_heard = true;
                // How it ends is for the next call to tell.
                let drained = drained && !has_ended && line.fault.is_none();
                return Recv::Data { bytes: plain, drained };
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
        let place = lines.get_mut(index);
        let Some(line) = place.and_then(|place| place.line.as_deref_mut()) else {
            return Send::Failed;
        };
        if line.fault.is_some() {
            return Send::Failed;
        }
        let mut taken = 0;
        loop {
            if !line.flush(io, cipher) {
                return Send::Failed;
            }
            let Stage::Open { channel, .. } = &mut line.stage else { return Send::Taken(0) };
            if taken == bytes.len() || !line.unsent.is_empty() {
                return Send::Taken(taken);
            }
            match channel.encrypt(&bytes[taken..]) {
                0 => return Send::Failed,
                len => taken += len,
            }
        }
    }

    #[cold]
    fn close_secured(&mut self, socket: Socket) {
        let Some(mut line) = self.remove((socket.0 & !SECURED_SOCKET) as u32) else { return };
        if let Stage::Open { channel, .. } = &mut line.stage {
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
    fn clock(&mut self) -> Clock {
        self.io.clock()
    }

    fn poll(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
        let first = events.len();
        let wait = if self.again.is_empty() { wait } else { Some(Duration::ZERO) };
        let slept = self.io.poll(wait, events);
        if !self.lines.is_empty() {
            self.translate(events, first);
        }
        slept
    }

    fn accept(&mut self, listener: ListenerIndex) -> Accept {
        self.io.accept(listener)
    }

    fn local_address(&self, socket: Socket) -> Option<SocketAddr> {
        self.io.local_address(socket)
    }

    fn resolve(&mut self, host: &str, number: u32) -> bool {
        self.io.resolve(host, number)
    }

    fn pause_accepting(&mut self, paused: bool) {
        self.io.pause_accepting(paused);
    }

    fn stop_listening(&mut self) {
        self.io.stop_listening();
    }

    fn watch(&mut self, socket: Socket, token: Token) -> bool {
        assert_eq!(token.0 & RESERVED, 0, "these bits of a token are the drivers'");
        self.io.watch(socket, token)
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
            tls: tls.clone(),
            host,
            stage: Stage::Connecting,
            unsent: Vec::new(),
            early: Vec::new(),
            fault: None,
            was_heard: false,
        });
        let own = self.own_token(index);
        self.io.connect(address, own);
    }

    fn tls_fault(&mut self, socket: Socket) -> Option<TlsFault> {
        if !is_secured(socket) {
            return None;
        }
        let line = self.line_of(socket)?;
        let is_unexplained = line.fault.is_none() && !line.was_heard && line.tls.lacks_identity();
        if is_unexplained { Some(TlsFault::NoIdentity) } else { line.fault }
    }

    fn cancel_connect(&mut self, token: Token) {
        let is_it = |place: &Place| {
            place.line.as_ref().is_some_and(|line| {
                line.token == token && !matches!(line.stage, Stage::Open { .. })
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

    fn has_lied(&mut self, socket: Socket) -> bool {
        !is_secured(socket) && self.io.has_lied(socket)
    }

    #[inline]
    fn take_looked(&mut self) -> u64 {
        self.io.take_looked()
    }

    fn release(&mut self, socket: Socket) {
        assert!(!is_secured(socket), "what is secured here cannot be handed over");
        self.io.release(socket);
    }

    fn close(&mut self, socket: Socket) {
        if is_secured(socket) { self.close_secured(socket) } else { self.io.close(socket) }
    }
}
