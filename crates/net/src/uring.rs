//! [`Io`] over io_uring: the kernel receives into buffers given to it, and one call a turn reports
//! everything that has come.
//!
//! [`UringIo`] lies over [`EpollIo`], which still has everything but plain connections: unix
//! listeners, mail, names, connections being made, and sockets whose first bytes may bring
//! descriptors (`shm://`). The ring watches the epoll instance as it watches sockets. TCP listeners
//! have a standing order to accept (`accepts`), and each socket of the ring has one to receive:
//!
//! ```text
//!  watch ─► Armed ◄──────── read until empty ───────┐
//!             │  unread while buffers run out       │
//!             ├──────────────► Stopping ──────────► Idle: the worker reads for itself
//!             └── buffers ran out ──────────────────┘
//! ```
//! Bytes are sent by a call of their own: giving all sends to the kernel at once has brought
//! nothing (docs/adr/0030).

mod accepts;
mod buffers;
mod fallback;
mod inbox;
mod orders;
mod receiving;

use crate::epoll::READ_LEN;
use crate::moving::{self, Come, Outcome};
use crate::{Accept, Address, EpollIo, Event, Io, Listener, ListenerIndex, Mailbox, Recv, Send};
use crate::{Socket, Token};
use accepts::Accepts;
use buffers::{Buffers, Piece};
use inbox::{Conn, Pieces, Reading};
use io_uring::cqueue;
use keyway_base::Clock;
use orders::{Done, Kind, Orders};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Tokens with these two of the three topmost bits belong to sockets that stay with epoll: their
/// first bytes may bring descriptors, which the ring would drop.
const BY_EPOLL: u64 = 3 << 61;

/// Length from which received bytes are copied into a buffer whose parts may be held. Long replies
/// in it are then not copied again.
const LENT_LEN_MIN: usize = 12 << 10;

fn is_by_epoll(token: Token) -> bool {
    token.0 & 7 << 61 == BY_EPOLL
}

/// Bytes of a socket that wait unread, above which no more are received for it.
const WAITING_MAX: u32 = 64 << 10;

/// Number of waits for a socket that is handed over, a tenth of a second each.
const QUIET_WAITS: usize = 50;

/// A ring and the buffers given to it, for the thread that creates it. It is the only part of a
/// driver that the system may refuse after it has permitted one to this process.
pub struct Ring {
    // The order matters: the ring is dropped before its buffers.
    orders: Orders,
    buffers: Buffers,
}

impl Ring {
    /// Creates a ring for a worker.
    ///
    /// # Errors
    /// Returns an error if the system offers no io_uring (containers often forbid it, and kernels
    /// before 6.1 lack required features), or if no descriptor or memory is left.
    pub fn new() -> io::Result<Self> {
        Self::with(Buffers::register)
    }

    fn with(register: fn(&io_uring::IoUring) -> io::Result<Buffers>) -> io::Result<Self> {
        let orders = Orders::new()?;
        let buffers = register(orders.ring())?;
        Ok(Ring { orders, buffers })
    }
}

/// Real sockets from which the kernel receives in advance.
pub struct UringIo {
    // The order matters: the ring is dropped before its buffers.
    orders: Orders,
    buffers: Buffers,
    base: EpollIo,
    accepts: Accepts,
    /// Connections by descriptor.
    conns: Vec<Option<Conn>>,
    pieces: Pieces,
    /// The piece that the worker was given last.
    shared: Option<Piece>,
    /// The bytes that the worker was given last, if they were held.
    held_bytes: Vec<u8>,
    /// Descriptors of connections with unread bytes.
    unread: Vec<i32>,
    /// Receive orders of sockets that were closed meanwhile, by generation and descriptor.
    ending: BTreeSet<(u32, i32)>,
    generation: u32,
    /// Number of checks for completions.
    reaped: u32,
    /// Number of completions that were handled.
    reaped_len: u64,
    early: Vec<Event>,
    done: Vec<Done>,
    /// True if everything goes by the driver below: see `fallback`.
    has_fallen: bool,
    notice: Option<&'static str>,
}

impl UringIo {
    /// Creates a driver that accepts from `listeners` and wakes for `mailbox`, for the thread that
    /// creates it.
    ///
    /// # Errors
    /// Returns errors as [`Ring::new`] and [`EpollIo::new`] do.
    pub fn new<M>(listeners: Vec<Listener>, mailbox: &Mailbox<M>) -> io::Result<Self> {
        let ring = Ring::new()?;
        Ok(Self::over(EpollIo::new(listeners, mailbox)?, ring))
    }

    /// Creates a driver that behaves as on kernels before 6.12, for tests.
    #[doc(hidden)]
    pub fn with_short_buffers<M>(
        listeners: Vec<Listener>,
        mailbox: &Mailbox<M>,
    ) -> io::Result<Self> {
        let ring = Ring::with(Buffers::lend_short)?;
        Ok(Self::over(EpollIo::new(listeners, mailbox)?, ring))
    }

    /// Checks whether the system permits this process what [`Ring::new`] makes.
    ///
    /// # Errors
    /// Returns what is missing.
    pub fn probe() -> io::Result<()> {
        let Ring { mut orders, buffers } = Ring::new()?;
        let outcome = orders.try_one();
        orders.end_buffers();
        drop(buffers);
        outcome
    }

    /// Puts a ring over a driver that has everything so far.
    pub fn over(base: EpollIo, ring: Ring) -> Self {
        let Ring { orders, buffers } = ring;
        let mut io = UringIo {
            orders,
            buffers,
            base,
            accepts: Accepts::default(),
            conns: Vec::new(),
            pieces: Pieces::default(),
            shared: None,
            held_bytes: Vec::new(),
            unread: Vec::new(),
            ending: BTreeSet::new(),
            generation: 0,
            reaped: 0,
            reaped_len: 0,
            early: Vec::new(),
            done: Vec::new(),
            has_fallen: false,
            notice: None,
        };
        io.watch_base();
        (0..io.base.listeners_len()).for_each(|index| io.take_listener(index));
        io
    }

    /// Returns the driver that has everything but plain connections.
    pub(crate) fn base(&self) -> &EpollIo {
        &self.base
    }

    /// Returns the driver below, to be changed.
    pub(crate) fn base_mut(&mut self) -> &mut EpollIo {
        &mut self.base
    }

    fn watch_base(&mut self) {
        if self.has_fallen {
            return;
        }
        let fd = self.base.poll_fd().as_raw_fd();
        self.orders.poll((Kind::Base, 0, fd), PollFlags::IN);
    }

    #[inline]
    fn conn(&mut self, socket: Socket) -> Option<&mut Conn> {
        self.conns.get_mut(socket.0 as usize)?.as_mut()
    }

    fn next_generation(&mut self) -> u32 {
        // 0 means "none".
        self.generation = self.generation % orders::GENERATION_MAX + 1;
        self.generation
    }

    /// Takes over a socket, and orders the kernel to receive for it.
    fn own(&mut self, socket: Socket, token: Token) {
        let index = socket.0 as usize;
        if self.conns.len() <= index {
            self.conns.resize_with(index + 1, || None);
        }
        let mut conn = Conn::new(token, self.next_generation());
        if let Some(come) = moving::take(socket.0) {
            conn.hold(&come.held);
            conn.outcome = come.outcome;
            conn.polls_room = come.awaits_room;
            if conn.polls_room {
                self.orders.poll((Kind::Room, conn.generation, socket.0), PollFlags::OUT);
            }
            let hangup = conn.outcome.is_some();
            self.early.push(Event::Ready { token, readable: true, writable: false, hangup });
        }
        arm(&mut self.orders, socket.0, &mut conn);
        self.conns[index] = Some(conn);
    }

    /// Frees the bytes that the worker was given; they may be overwritten.
    #[inline]
    fn take_back(&mut self) {
        if let Some(piece) = self.shared.take() {
            self.buffers.release(piece);
        } else if !self.held_bytes.is_empty() {
            self.held_bytes = Vec::new();
        }
    }

    /// Frees buffers for other sockets that are taken by sockets which are not read.
    fn hold_unread(&mut self) {
        if self.unread.is_empty() {
            return;
        }
        let is_scarce = self.buffers.are_scarce();
        let Self { unread, conns, pieces, buffers, orders, .. } = self;
        unread.retain(|&number| {
            let Some(Some(conn)) = conns.get_mut(number as usize) else { return false };
            // A socket whose bytes were all read waits for new ones.
            if is_scarce && conn.has_pieces() {
                hold(conn, pieces, buffers);
                stop(orders, number, conn);
            } else if conn.waiting > WAITING_MAX {
                stop(orders, number, conn);
            }
            conn.is_listed = conn.has_pieces();
            conn.is_listed
        });
    }

    fn reap(&mut self, events: &mut Vec<Event>) {
        // A worker that was told before may have read everything since.
        self.reaped = self.reaped.wrapping_add(1);
        let mut done = std::mem::take(&mut self.done);
        self.orders.take_done(&mut done);
        self.reaped_len += done.len() as u64;
        for one in done.drain(..) {
            match one.kind {
                Kind::Receive => self.on_received(one, events),
                Kind::Room | Kind::Hangup => self.on_polled(one, events),
                Kind::Base => self.poll_base(events),
                Kind::Accept => self.on_accepted(one),
                Kind::Cancel => self.on_cancelled(one),
            }
        }
        self.done = done;
    }

    #[inline]
    fn on_received(&mut self, one: Done, events: &mut Vec<Event>) {
        let Self { conns, pieces, buffers, orders, unread, reaped, ending, has_fallen, .. } = self;
        let piece = match cqueue::buffer_select(one.flags) {
            Some(buffer) if one.result >= 0 => {
                buffers.fill(buffer, one.result as u32, cqueue::buffer_more(one.flags))
            }
            _ => None,
        };
        let conn = conns.get_mut(one.number as usize).and_then(Option::as_mut);
        let has_more = cqueue::more(one.flags);
        let Some(conn) = conn.filter(|conn| conn.generation == one.generation) else {
            if !has_more {
                ending.remove(&(one.generation, one.number));
            }
            return piece.into_iter().for_each(|piece| buffers.release(piece));
        };
        let mut is_news = true;
        match (one.result, piece) {
            (1.., Some(piece)) => {
                if pieces.push(conn, piece) {
                    buffers.note_joined(piece);
                }
                if !std::mem::replace(&mut conn.is_listed, true) {
                    unread.push(one.number);
                }
            }
            (0, piece) => {
                piece.into_iter().for_each(|piece| buffers.release(piece));
                conn.outcome = Some(Outcome::End);
            }
            (result, _) => match Errno::from_raw_os_error(-result) {
                Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN if !has_more => {
                    is_news = conn.reading == Reading::Armed || conn.is_awaited;
                }
                _ => conn.outcome = Some(Outcome::Failed),
            },
        }
        if !has_more {
            conn.reading = Reading::Idle;
            conn.is_awaited = false;
            if conn.outcome.is_none() && !*has_fallen {
                // This reports the end of a socket that is not read.
                look_for_hangup(orders, one.number, conn);
            }
        }
        let hangup = conn.outcome.is_some();
        if is_news && (hangup || conn.told_at != *reaped) {
            conn.told_at = *reaped;
            events.push(Event::Ready {
                token: conn.token,
                readable: true,
                writable: false,
                hangup,
            });
        }
    }

    /// Handles the result of ending a receive order. An order that the kernel was executing was not
    /// found: it is cancelled again until it has ended.
    fn on_cancelled(&mut self, one: Done) {
        let name = (Kind::Receive, one.generation, one.number);
        if one.result >= 0 || one.generation == 0 {
            return;
        }
        if self.accepts.is_stopping(one.generation) {
            return self.orders.cancel((Kind::Accept, one.generation, one.number));
        }
        let is_stopping = self.conn(Socket(one.number)).is_some_and(|conn| {
            conn.generation == one.generation && conn.reading == Reading::Stopping
        });
        if is_stopping || self.ending.contains(&(one.generation, one.number)) {
            self.orders.cancel(name);
        }
    }

    fn on_polled(&mut self, one: Done, events: &mut Vec<Event>) {
        let Some(conn) = self.conn(Socket(one.number)) else { return };
        if conn.generation != one.generation {
            return;
        }
        let told = PollFlags::from_bits_retain(one.result.max(0) as u16);
        let ended = told.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR);
        match one.kind {
            Kind::Room => conn.polls_room = false,
            _ => conn.polls_hangup = false,
        }
        let is_room = one.kind == Kind::Room;
        events.push(Event::Ready {
            token: conn.token,
            readable: ended,
            writable: is_room,
            hangup: ended,
        });
    }

    /// Asks the driver below for its events.
    fn poll_base(&mut self, events: &mut Vec<Event>) {
        let first = events.len();
        self.base.poll(Some(Duration::ZERO), events);
        self.watch_base();
        for event in &events[first..] {
            if let Event::Connected { token, socket } = *event
                && !(is_by_epoll(token) || self.has_fallen)
            {
                let socket = self.base.release(socket);
                self.own(socket, token);
            }
        }
    }

    /// Removes a socket from all lists.
    fn disown(&mut self, number: i32) -> Option<Conn> {
        let mut conn = self.conns.get_mut(number as usize)?.take()?;
        while let Some(piece) = self.pieces.pop(&mut conn) {
            self.buffers.release(piece);
        }
        // Known events about it are of no more use.
        self.early
            .retain(|event| !matches!(event, Event::Ready { token, .. } if *token == conn.token));
        if conn.ordered_at == self.orders.submitted() {
            // Orders name the descriptor, whose number another socket may have soon.
            self.orders.submit();
        }
        let armed = conn.reading == Reading::Armed;
        if conn.reading != Reading::Idle {
            self.ending.insert((conn.generation, number));
        }
        let orders = [
            (armed, Kind::Receive),
            (conn.polls_room, Kind::Room),
            (conn.polls_hangup, Kind::Hangup),
        ];
        for (_, kind) in orders.into_iter().filter(|(stands, _)| *stands) {
            self.orders.cancel((kind, conn.generation, number));
        }
        Some(conn)
    }

    /// Waits until the kernel receives nothing more for a socket.
    fn quiesce(&mut self, number: i32) {
        let Self { conns, orders, .. } = self;
        let Some(Some(conn)) = conns.get_mut(number as usize) else { return };
        stop(orders, number, conn);
        for _ in 0..QUIET_WAITS {
            let Some(conn) = self.conn(Socket(number)) else { return };
            if conn.reading == Reading::Idle {
                return;
            }
            if self.orders.is_lost() {
                break;
            }
            self.orders.enter(Some(Duration::from_millis(100)));
            let mut events = std::mem::take(&mut self.early);
            self.reap(&mut events);
            self.early = events;
        }
        // The kernel does not report its end, so no worker may read from it any more.
        if let Some(conn) = self.conn(Socket(number)) {
            conn.outcome = Some(Outcome::Failed);
        }
    }
}

/// Orders the kernel to receive for a socket, unless it has ended.
fn arm(orders: &mut Orders, number: i32, conn: &mut Conn) {
    if conn.outcome.is_none() && conn.reading == Reading::Idle {
        orders.receive((Kind::Receive, conn.generation, number));
        conn.ordered_at = orders.submitted();
        conn.reading = Reading::Armed;
    }
}

fn stop(orders: &mut Orders, number: i32, conn: &mut Conn) {
    if conn.reading == Reading::Armed {
        orders.cancel((Kind::Receive, conn.generation, number));
        conn.reading = Reading::Stopping;
    }
}

/// Moves the received bytes of a socket out of the buffers.
fn hold(conn: &mut Conn, pieces: &mut Pieces, buffers: &mut Buffers) {
    while let Some(piece) = pieces.pop(conn) {
        conn.hold(buffers.bytes(piece));
        buffers.release(piece);
    }
}

fn look_for_hangup(orders: &mut Orders, number: i32, conn: &mut Conn) {
    if !std::mem::replace(&mut conn.polls_hangup, true) {
        orders.poll((Kind::Hangup, conn.generation, number), PollFlags::RDHUP);
        conn.ordered_at = orders.submitted();
    }
}

impl Io for UringIo {
    fn clock(&mut self) -> Clock {
        self.base.clock()
    }

    fn poll(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
        self.take_back();
        self.hold_unread();
        if self.orders.is_lost() && !self.has_fallen {
            self.fall_back();
        }
        self.tend_accepts();
        events.append(&mut self.early);
        let is_idle = events.is_empty() && !self.accepts.has_news();
        let wait = if is_idle { wait } else { Some(Duration::ZERO) };
        if self.has_fallen {
            let slept = self.base.poll(wait, events);
            self.accepts.tell(events);
            return slept;
        }
        let slept = self.orders.enter(wait);
        self.reap(events);
        self.accepts.tell(events);
        self.base.tidy_blocks(slept && events.is_empty());
        slept
    }

    fn accept(&mut self, listener: ListenerIndex) -> Accept {
        self.accept_next(listener)
    }

    fn local_address(&self, socket: Socket) -> Option<std::net::SocketAddr> {
        self.base.local_address(socket)
    }

    fn resolve(&mut self, host: &str, number: u32) -> bool {
        self.base.resolve(host, number)
    }

    fn pause_accepting(&mut self, paused: bool) {
        self.base.pause_accepting(paused);
        self.pause_accepts(paused);
    }

    fn accept_beside(&mut self, listener: ListenerIndex) -> bool {
        self.base.accept_beside(listener)
    }

    fn hold_listener(&mut self, listener: ListenerIndex, held: bool) {
        if !self.hold_accepts(listener, held) {
            self.base.hold_listener(listener, held);
        }
    }

    fn listen(&mut self, index: ListenerIndex, listener: Listener) -> bool {
        let is_listening = self.base.listen(index, listener);
        if is_listening {
            self.take_listener(usize::from(index.0));
        }
        is_listening
    }

    fn empty_listener(&mut self, index: ListenerIndex) {
        self.empty_accepts(index);
    }

    fn end_listening(&mut self, index: ListenerIndex) {
        self.end_accepts(Some(index));
        self.base.end_listening(index);
    }

    fn stop_listening(&mut self) {
        self.end_accepts(None);
        self.base.stop_listening();
    }

    fn leave_listening(&mut self) {
        self.leave_accepts();
        self.base.stop_listening();
    }

    fn has_arrivals(&self) -> bool {
        self.accepts.has_come()
    }

    fn take_notice(&mut self) -> Option<&'static str> {
        self.notice.take()
    }

    fn watch(&mut self, socket: Socket, token: Token) -> bool {
        if self.has_fallen || is_by_epoll(token) {
            return self.base.watch(socket, token);
        }
        self.own(socket, token);
        true
    }

    fn connect(&mut self, address: &Address, token: Token) {
        self.base.connect(address, token);
        self.base.take_early(&mut self.early);
    }

    fn cancel_connect(&mut self, token: Token) {
        self.base.cancel_connect(token);
    }

    #[inline]
    fn recv(&mut self, socket: Socket) -> Recv<'_> {
        self.take_back();
        let Some(Some(conn)) = self.conns.get_mut(socket.0 as usize) else {
            return self.base.recv(socket);
        };
        if conn.has_held() {
            return self.recv_held(socket);
        }
        if let Some(piece) = self.pieces.pop(conn) {
            let is_all = !conn.has_pieces() && conn.outcome.is_none();
            let drained = is_all && conn.reading == Reading::Armed;
            self.shared = Some(piece);
            let bytes = self.buffers.bytes(piece);
            if (LENT_LEN_MIN..=READ_LEN).contains(&bytes.len()) {
                let block = self.base.share(bytes);
                return Recv::Data { bytes: &block[..bytes.len()], drained, block: Some(block) };
            }
            return Recv::Data { bytes, drained, block: None };
        }
        match (conn.outcome, conn.reading) {
            (Some(Outcome::End), _) => Recv::End,
            (Some(Outcome::Failed), _) => Recv::Failed,
            (None, Reading::Armed | Reading::Stopping) => self.recv_late(socket),
            (None, Reading::Idle) => self.recv_direct(socket),
        }
    }

    #[inline]
    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Send {
        let sent = self.base.send(socket, bytes);
        if let Send::Taken(len) = sent
            && len < bytes.len()
        {
            self.await_room(socket);
        }
        sent
    }

    fn send_pieces(&mut self, socket: Socket, pieces: &[IoSlice<'_>]) -> Send {
        let sent = self.base.send_pieces(socket, pieces);
        if let Send::Taken(len) = sent
            && len < pieces.iter().map(|piece| piece.len()).sum()
        {
            self.await_room(socket);
        }
        sent
    }

    fn release(&mut self, socket: Socket) -> Socket {
        if self.conn(socket).is_none() {
            return self.base.release(socket);
        }
        self.take_back();
        self.quiesce(socket.0);
        let Self { conns, pieces, buffers, .. } = self;
        if let Some(Some(conn)) = conns.get_mut(socket.0 as usize) {
            hold(conn, pieces, buffers);
        }
        if let Some(mut conn) = self.disown(socket.0)
            && (conn.has_held() || conn.outcome.is_some() || conn.polls_room)
        {
            let held = conn.take_held();
            let Conn { outcome, polls_room: awaits_room, .. } = conn;
            moving::leave(socket.0, Come { held, outcome, awaits_room });
        }
        socket
    }

    fn give_up(&mut self, socket: Socket) -> Option<(OwnedFd, Vec<u8>)> {
        self.release(socket);
        Some(moving::give_up(socket))
    }

    fn take_over(&mut self, descriptor: OwnedFd, unread: Vec<u8>) -> Option<Socket> {
        Some(moving::take_over(descriptor, unread))
    }

    fn finish(&mut self, socket: Socket) -> bool {
        self.base.finish(socket)
    }

    fn close(&mut self, socket: Socket) {
        self.disown(socket.0);
        self.base.close(socket);
    }
}

impl Drop for UringIo {
    fn drop(&mut self) {
        // A standing order keeps its listener open until the kernel ends it.
        if !std::thread::panicking() {
            self.end_accepts(None);
        }
        // From here on the kernel writes to no buffer.
        self.orders.end_buffers();
    }
}
