//! Connections through shared memory, beside sockets: `shm://`.
//!
//! [`Ringed`] is an [`Io`] over [`Sockets`]. A client of a listener with a [`Door`] is a connection
//! over a unix socket until it sends a hello (`keyway_ring`, docs/protocol/ring.md). From then on
//! the same [`Socket`] reads and writes through rings. A connection to [`Address::Shm`] sends the
//! hello, and is connected when that is answered.
//!
//! ```text
//!  accept ─► Greeting ─► Open ─► close          connect ─► Asking ─► Open ─► close
//!               └─► Plain (no hello)                          └─► ConnectFailed
//! ```
//! A plain socket costs one test of a bit. The number of a socket with rings is its descriptor with
//! that bit set.
//!
//! Rings report nothing by themselves. If polling a ring was worth it lately, the ring is *hot*: it
//! is polled in every poll, and for a while before the worker sleeps. Otherwise it is *parked*: the
//! other side wakes this one through the socket. No worker sleeps with a hot ring.

mod connecting;
mod line;
mod looking;
mod terms;
mod transfer;

pub use terms::{Door, RingFault};

use crate::io::send_each;
use crate::{Accept, Address, Event, Io, ListenerIndex, Peer, Recv, Send, Socket};
use crate::{Sockets, Token};
use keyway_base::{Clock, Time};
use keyway_ring::HELLO_LEN;
use line::{Line, Reading, Rings, Stage};
use looking::Looking;
use parking_lot::Mutex;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

/// Set in the number of a socket with rings. Descriptors are far below.
const RINGED_SOCKET: i32 = 1 << 29;

/// Set in this driver's own tokens. Each bit alone belongs to another driver.
const RINGED_TOKEN: u64 = 3 << 61;
const TOKEN_MASK: u64 = 7 << 61;

/// What an own token is about.
const KIND_SHIFT: u32 = 59;
const SOCKET: u64 = 0;
const CONNECT: u64 = 1;

/// Largest generation, which fits into a token between its kind and the number.
const GENERATION_MAX: u32 = (1 << 27) - 1;

/// Polls of the rings between two reads of the clock.
const LOOKS_PER_CLOCK: u32 = 16;

/// Time between two polls of sockets while rings are polled.
const SOCKETS_EVERY: Duration = Duration::from_micros(4);

/// Longest time for which sockets may wait while rings always have bytes.
const SOCKETS_WAIT_MAX: Duration = Duration::from_micros(20);

/// Time without use after which a connection frees memory that it does not need.
const REST: Duration = Duration::from_secs(1);

/// Most connections whose memory is freed in one poll.
const COOLED_AT_ONCE: usize = 32;

/// Lines on their way between two workers. A descriptor belongs to the process.
static MOVING: Mutex<BTreeMap<i32, Box<Line>>> = Mutex::new(BTreeMap::new());

/// An [`Io`] with connections through shared memory.
pub struct Ringed {
    io: Sockets,
    /// Settings of shared memory, by listener.
    doors: Vec<Option<Arc<Door>>>,
    /// Lines by descriptor.
    lines: Vec<Option<Box<Line>>>,
    /// Number of lines.
    count: usize,
    generation: u32,
    /// Connections being made, by their number below, with the worker's token.
    connecting: Vec<(u32, Token)>,
    /// Descriptors of lines whose rings are polled.
    hot: Vec<i32>,
    /// Lines that were used, and the time of their next check.
    cooling: VecDeque<(i32, u32, Time)>,
    /// Events for the next poll.
    early: Vec<Event>,
    scratch: Vec<Event>,
    looking: Looking,
    /// Time of the last poll of sockets.
    sockets_at: Time,
    /// The clock, as the worker has read it last.
    now: Time,
    /// Time spent polling since it was last taken, in nanoseconds.
    looked: u64,
}

fn own_token(kind: u64, generation: u32, number: u32) -> Token {
    Token(RINGED_TOKEN | kind << KIND_SHIFT | u64::from(generation) << 32 | u64::from(number))
}

fn is_ringed(socket: Socket) -> bool {
    socket.0 & RINGED_SOCKET != 0
}

fn plain(line: &Line) -> Socket {
    Socket(line.socket.as_raw_fd())
}

impl Ringed {
    /// Creates a driver over `io`. `budget` is the time for which rings are polled before the
    /// worker sleeps.
    pub fn new(io: impl Into<Sockets>, budget: Duration) -> Self {
        let io = io.into();
        let doors = io.doors().map(|door| door.cloned().map(Arc::new)).collect();
        Ringed {
            io,
            doors,
            lines: Vec::new(),
            count: 0,
            generation: 0,
            connecting: Vec::new(),
            hot: Vec::new(),
            cooling: VecDeque::new(),
            early: Vec::new(),
            scratch: Vec::new(),
            looking: Looking::new(budget),
            sockets_at: Time(0),
            now: Time(0),
            looked: 0,
        }
    }

    fn line(&mut self, number: i32) -> Option<&mut Line> {
        self.lines.get_mut(number as usize)?.as_deref_mut()
    }

    fn next_generation(&mut self) -> u32 {
        self.generation = (self.generation + 1) & GENERATION_MAX;
        self.generation
    }

    fn put_line(&mut self, line: Box<Line>) {
        let index = line.socket.as_raw_fd();
        assert!(index < RINGED_SOCKET, "descriptors are lower numbers");
        let index = index as usize;
        if self.lines.len() <= index {
            self.lines.resize_with(index + 1, || None);
        }
        self.lines[index] = Some(line);
        self.count += 1;
    }

    /// Removes a line from all lists.
    fn take_line(&mut self, number: i32) -> Option<Box<Line>> {
        let line = self.lines.get_mut(number as usize)?.take()?;
        self.count -= 1;
        if matches!(&line.stage, Stage::Open(rings) if rings.reading == Reading::Hot) {
            self.hot.retain(|&hot| hot != number);
        }
        Some(line)
    }

    #[cold]
    fn add_line(&mut self, socket: OwnedFd, token: Token, stage: Stage, door: Option<Arc<Door>>) {
        let generation = self.next_generation();
        let socket = Arc::new(socket);
        let line = Line { token, generation, socket, stage, door, is_broken: false };
        self.put_line(Box::new(line));
    }

    /// Begins to report received bytes to the worker. Bytes that are there already are reported at
    /// the next poll.
    fn begin_reading(&mut self, number: i32) {
        let now = self.now;
        let Self { lines, hot, looking, early, .. } = self;
        let Some(Some(line)) = lines.get_mut(number as usize) else { return };
        let Stage::Open(rings) = &mut line.stage else { return };
        if !rings.wait_for_bytes((number, now), looking, hot) {
            let token = line.token;
            early.push(Event::Ready { token, readable: true, writable: false, hangup: false });
        }
    }

    /// Polls hot rings. Rings that have been polled for longer than is worth it are parked.
    fn look(&mut self, now: Time, events: &mut Vec<Event>) {
        let Self { lines, hot, looking, .. } = self;
        let budget = looking.budget;
        let mut at = 0;
        while at < hot.len() {
            let line = lines[hot[at] as usize].as_deref_mut();
            let Some(Line { stage: Stage::Open(rings), token, .. }) = line else {
                unreachable!("who is hot is open, and forgotten when it ends");
            };
            if rings.has_news() {
                rings.luck.found();
                rings.reading = Reading::Told;
            } else if now.since(rings.since) <= budget {
                at += 1;
                continue;
            } else {
                rings.luck.in_vain();
                rings.park();
            }
            if rings.reading == Reading::Told {
                let token = *token;
                events.push(Event::Ready { token, readable: true, writable: false, hangup: false });
            }
            hot.swap_remove(at);
        }
    }

    /// Parks every ring, before the worker sleeps.
    fn park_all(&mut self, events: &mut Vec<Event>) {
        while let Some(number) = self.hot.pop() {
            let Some(line) = self.line(number) else { continue };
            let token = line.token;
            let Stage::Open(rings) = &mut line.stage else { continue };
            if !rings.park() {
                events.push(Event::Ready { token, readable: true, writable: false, hangup: false });
            }
        }
    }

    /// Polls rings, and sockets now and then, until bytes have come, or until `wait` or the
    /// worthwhile time is over.
    fn look_for_a_while(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) {
        let Some(_seat) = self.looking.seat() else { return };
        let start = self.io.clock().now;
        let budget = self.looking.budget;
        let until = start + wait.map_or(budget, |wait| wait.min(budget));
        let first = events.len();
        let mut now = start;
        while events.len() == first && now < until && !self.hot.is_empty() {
            for _ in 0..LOOKS_PER_CLOCK {
                self.look(now, events);
                if events.len() > first {
                    break;
                }
                std::hint::spin_loop();
            }
            now = self.io.clock().now;
            if events.len() == first && now.since(self.sockets_at) >= SOCKETS_EVERY {
                self.look_at_sockets(now, events);
            }
        }
        self.looked += now.since(start).as_nanos() as u64;
    }

    #[inline(never)]
    fn poll_sockets(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
        let first = events.len();
        let slept = self.io.poll(wait, events);
        self.translate(events, first);
        slept
    }

    fn look_at_sockets(&mut self, now: Time, events: &mut Vec<Event>) {
        self.sockets_at = now;
        self.poll_sockets(Some(Duration::ZERO), events);
    }

    // It is a function of its own, so that a worker without such connections does not pay for its
    // stack.
    #[inline(never)]
    fn poll_ringed(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
        let before = events.len();
        events.append(&mut self.early);
        self.look(self.now, events);
        let may_wait = wait != Some(Duration::ZERO);
        if events.len() == before && may_wait && !self.hot.is_empty() {
            self.look_for_a_while(wait, events);
        }
        self.cool();
        if events.len() > before && self.now.since(self.sockets_at) < SOCKETS_WAIT_MAX {
            return false;
        }
        if events.len() == before && may_wait {
            self.park_all(events);
        }
        let wait = if events.len() == before { wait } else { Some(Duration::ZERO) };
        self.sockets_at = self.now;
        self.poll_sockets(wait, events)
    }

    /// Frees memory of connections at rest.
    fn cool(&mut self) {
        for _ in 0..COOLED_AT_ONCE {
            let Some(&(number, generation, due)) = self.cooling.front() else { return };
            if due > self.now {
                return;
            }
            self.cooling.pop_front();
            let now = self.now;
            let Some(line) = self.line(number) else { continue };
            let Stage::Open(rings) = &mut line.stage else { continue };
            if line.generation != generation {
                continue;
            }
            rings.is_cooling = now.since(rings.used) < REST || !rings.discard();
            if rings.is_cooling {
                self.cooling.push_back((number, generation, now + REST));
            }
        }
    }

    /// Notes that a connection was used.
    fn note_use(
        rings: &mut Rings,
        now: Time,
        name: (i32, u32),
        cooling: &mut VecDeque<(i32, u32, Time)>,
    ) {
        rings.used = now;
        if !std::mem::replace(&mut rings.is_cooling, true) {
            cooling.push_back((name.0, name.1, now + REST));
        }
    }

    /// Translates events about lines for the worker, from `first` on.
    fn translate(&mut self, events: &mut Vec<Event>, first: usize) {
        let mut told = std::mem::take(&mut self.scratch);
        told.extend(events.drain(first..));
        for event in told.drain(..) {
            let token = match &event {
                Event::Ready { token, .. }
                | Event::Connected { token, .. }
                | Event::ConnectFailed { token, .. } => *token,
                Event::Incoming(_) | Event::Resolved { .. } | Event::Mail => Token(0),
            };
            if token.0 & TOKEN_MASK != RINGED_TOKEN {
                events.push(event);
                continue;
            }
            let kind = token.0 >> KIND_SHIFT & 3;
            if kind == CONNECT {
                self.on_connect(token.0 as u32, event, events);
                continue;
            }
            let number = token.0 as u32 as i32;
            let is_it = |line: &&mut Line| own_token(kind, line.generation, number as u32) == token;
            if self.line(number).as_ref().is_some_and(is_it) {
                self.on_ready(number, event, events);
            }
        }
        self.scratch = told;
        events.append(&mut self.early);
    }

    fn on_ready(&mut self, number: i32, event: Event, events: &mut Vec<Event>) {
        let Event::Ready { readable, writable, hangup, .. } = event else { return };
        let Some(line) = self.line(number) else { return };
        let token = line.token;
        match &mut line.stage {
            Stage::Greeting { .. } | Stage::Plain { .. } => {
                events.push(Event::Ready { token, readable, writable, hangup });
            }
            Stage::Asking(hello) if readable || hangup => {
                let hello = *hello;
                self.on_answer(number, hello, events);
            }
            Stage::Asking(_) => {}
            Stage::Open(_) if readable || hangup => self.on_socket(number, hangup, events),
            Stage::Open(_) => {}
        }
    }

    /// Handles a wake-up through the socket of a connection with rings, or its end.
    fn on_socket(&mut self, number: i32, hangup: bool, events: &mut Vec<Event>) {
        let Some(line) = self.line(number) else { return };
        let token = line.token;
        let Stage::Open(rings) = &mut line.stage else { return };
        // Bytes that are not read from the socket now are read with the next wake-up.
        if hangup || !rings.hear() {
            return self.on_end(number, events);
        }
        let (readable, writable) = rings.on_bell();
        if readable || writable {
            events.push(Event::Ready { token, readable, writable, hangup: false });
        }
    }

    /// Handles the end of the other process of a connection with rings.
    #[cold]
    fn on_end(&mut self, number: i32, events: &mut Vec<Event>) {
        let Some(line) = self.line(number) else { return };
        let token = line.token;
        let Stage::Open(rings) = &mut line.stage else { return };
        let was_hot = rings.reading == Reading::Hot;
        let writable = rings.leave();
        if was_hot {
            self.hot.retain(|&hot| hot != number);
        }
        events.push(Event::Ready { token, readable: true, writable, hangup: true });
    }
}

impl Io for Ringed {
    #[inline]
    fn clock(&mut self) -> Clock {
        let clock = self.io.clock();
        self.now = clock.now;
        clock
    }

    #[inline]
    fn poll(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
        if self.count == 0 && self.connecting.is_empty() && self.early.is_empty() {
            return self.io.poll(wait, events);
        }
        self.poll_ringed(wait, events)
    }

    fn accept(&mut self, listener: ListenerIndex) -> Accept {
        let accepted = self.io.accept(listener);
        let door = self.doors.get(usize::from(listener.0)).and_then(Option::as_ref);
        let (Accept::Client { socket, .. }, Some(door)) = (&accepted, door) else {
            return accepted;
        };
        // SAFETY: `Client` hands the descriptor over, and no other owner has it.
        let owned = unsafe { OwnedFd::from_raw_fd(socket.0) };
        let number = socket.0;
        let stage = Stage::Greeting { said: [0; HELLO_LEN], len: 0 };
        self.add_line(owned, Token(0), stage, Some(Arc::clone(door)));
        Accept::Client { socket: Socket(RINGED_SOCKET | number), peer: Peer::Shm }
    }

    fn accept_beside(&mut self, listener: ListenerIndex) -> bool {
        self.io.accept_beside(listener)
    }

    fn local_address(&self, socket: Socket) -> Option<std::net::SocketAddr> {
        if is_ringed(socket) { None } else { self.io.local_address(socket) }
    }

    fn resolve(&mut self, host: &str, number: u32) -> bool {
        self.io.resolve(host, number)
    }

    fn pause_accepting(&mut self, paused: bool) {
        self.io.pause_accepting(paused);
    }

    fn hold_listener(&mut self, listener: ListenerIndex, held: bool) {
        self.io.hold_listener(listener, held);
    }

    fn stop_listening(&mut self) {
        self.io.stop_listening();
    }

    fn leave_listening(&mut self) {
        self.io.leave_listening();
    }

    fn has_arrivals(&self) -> bool {
        self.io.has_arrivals()
    }

    fn take_notice(&mut self) -> Option<&'static str> {
        self.io.take_notice()
    }

    fn listen(&mut self, index: ListenerIndex, listener: crate::Listener) -> bool {
        self.io.listen(index, listener)
    }

    fn empty_listener(&mut self, index: ListenerIndex) {
        self.io.empty_listener(index);
    }

    fn end_listening(&mut self, index: ListenerIndex) {
        self.io.end_listening(index);
    }

    fn watch(&mut self, socket: Socket, token: Token) -> bool {
        if !is_ringed(socket) {
            return self.io.watch(socket, token);
        }
        let number = socket.0 & !RINGED_SOCKET;
        let now = self.now;
        if let Some(mut line) = MOVING.lock().remove(&number) {
            line.generation = self.next_generation();
            if let Stage::Open(rings) = &mut line.stage {
                Self::note_use(rings, now, (number, line.generation), &mut self.cooling);
            }
            self.put_line(line);
        }
        let Some(line) = self.line(number) else { return false };
        line.token = token;
        let own = own_token(SOCKET, line.generation, number as u32);
        self.io.watch(Socket(number), own)
    }

    fn connect(&mut self, address: &Address, token: Token) {
        let Address::Shm(_) = address else { return self.io.connect(address, token) };
        // The generation in the number distinguishes it from attempts that were given up.
        let number = self.next_generation();
        self.connecting.push((number, token));
        self.io.connect(address, own_token(CONNECT, 0, number));
    }

    fn cancel_connect(&mut self, token: Token) {
        if let Some(position) = self.connecting.iter().position(|&(_, it)| it == token) {
            let (number, _) = self.connecting.swap_remove(position);
            return self.io.cancel_connect(own_token(CONNECT, 0, number));
        }
        let is_it = |line: &Option<Box<Line>>| {
            let line = line.as_deref();
            line.is_some_and(|it| it.token == token && matches!(it.stage, Stage::Asking(_)))
        };
        match self.lines.iter().position(is_it) {
            Some(number) => drop(self.take_line(number as i32)),
            None => self.io.cancel_connect(token),
        }
    }

    #[inline]
    fn recv(&mut self, socket: Socket) -> Recv<'_> {
        if is_ringed(socket) { self.recv_ringed(socket) } else { self.io.recv(socket) }
    }

    #[inline]
    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Send {
        if is_ringed(socket) {
            self.send_ringed(socket, bytes)
        } else {
            self.io.send(socket, bytes)
        }
    }

    fn send_pieces(&mut self, socket: Socket, pieces: &[IoSlice<'_>]) -> Send {
        if !is_ringed(socket) {
            return self.io.send_pieces(socket, pieces);
        }
        send_each(self, socket, pieces)
    }

    fn has_broken_rules(&mut self, socket: Socket) -> bool {
        is_ringed(socket) && self.line(socket.0 & !RINGED_SOCKET).is_some_and(|line| line.is_broken)
    }

    fn take_looked(&mut self) -> u64 {
        std::mem::take(&mut self.looked)
    }

    fn release(&mut self, socket: Socket) -> Socket {
        if !is_ringed(socket) {
            return self.io.release(socket);
        }
        let number = socket.0 & !RINGED_SOCKET;
        self.io.release(Socket(number));
        let Some(mut line) = self.take_line(number) else { return socket };
        if let Stage::Open(rings) = &mut line.stage {
            // The worker that takes it over reads first.
            rings.stop_waiting();
            rings.is_cooling = false;
        }
        MOVING.lock().insert(number, line);
        socket
    }

    fn give_up(&mut self, socket: Socket) -> Option<(OwnedFd, Vec<u8>)> {
        if is_ringed(socket) { None } else { self.io.give_up(socket) }
    }

    fn take_over(&mut self, descriptor: OwnedFd, unread: Vec<u8>) -> Option<Socket> {
        self.io.take_over(descriptor, unread)
    }

    fn finish(&mut self, socket: Socket) -> bool {
        if !is_ringed(socket) {
            return self.io.finish(socket);
        }
        let Some(line) = self.line(socket.0 & !RINGED_SOCKET) else { return false };
        match line.stage {
            // Bytes in a ring are read even after this side is gone.
            Stage::Open(_) => false,
            _ => {
                let below = plain(line);
                self.io.finish(below)
            }
        }
    }

    fn close(&mut self, socket: Socket) {
        match is_ringed(socket) {
            true => {
                let number = socket.0 & !RINGED_SOCKET;
                // A socket that was handed over and is not wanted here was never watched.
                drop(self.take_line(number).or_else(|| MOVING.lock().remove(&number)));
            }
            false => self.io.close(socket),
        }
    }
}
