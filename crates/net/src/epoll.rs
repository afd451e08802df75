//! [`Io`] over epoll: edge-triggered, with each socket registered once for both directions, so that
//! no request costs an `epoll_ctl`.

use crate::address::canonical;
use crate::blocks::Blocks;
use crate::moving::{self, Come, Outcome};
use crate::resolver::{Answer, Resolver};
use crate::tune::{tune, watch_over};
use crate::{
    Accept, Address, ConnectFault, Door, Event, Io, Listener, ListenerIndex, Mailbox, Peer,
};
use crate::{Recv, Send, Socket, Token};
use keyway_base::{Block, Clock, Time};
use rustix::event::epoll;
use rustix::event::epoll::{EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType,
    sendmsg,
};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Most bytes of one `recv`. A smaller buffer costs more calls under deep pipelines; a larger one
/// only touches more memory.
pub(crate) const READ_LEN: usize = 64 << 10;

/// Most events of one `epoll_wait`. The rest come with the next one.
const EVENTS_MAX: usize = 512;

/// A poll that took at least this many nanoseconds has slept. With events at hand it takes one or
/// two microseconds; falling asleep and waking takes more.
const SLEPT_FROM: u64 = 5_000;

/// The topmost bits of a token mark the driver's own tokens.
const OWN: u64 = 1 << 63;
const OWN_LISTENER: u64 = OWN | 1 << 62;
const OWN_MAIL: u64 = OWN | 1;
const OWN_RESOLVER: u64 = OWN | 2;
/// Marks a socket that is still connecting. The low bits are an index of `connecting`.
const OWN_CONNECTING: u64 = OWN | 1 << 61;

struct Connecting {
    socket: OwnedFd,
    token: Token,
}

/// Most clients accepted from other workers' sockets at a time. The others keep waiting.
const BESIDE_MAX: usize = 64;

/// The driver of real sockets.
pub struct EpollIo {
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
    blocks: Blocks,
    /// Listeners by index; `None` for those that have ended.
    listeners: Vec<Option<Listener>>,
    /// For each listener, whether its waiting clients are not reported.
    held: Vec<bool>,
    is_paused: bool,
    connecting: Vec<Option<Connecting>>,
    /// Tokens whose host names are being resolved.
    resolving: Vec<Token>,
    resolver: Option<Resolver>,
    mail_fd: OwnedFd,
    /// Outcomes that were known already when `connect` returned. They are reported at the next
    /// poll.
    early: Vec<Event>,
    /// Clients accepted from other workers' sockets, with their listener.
    beside: VecDeque<(ListenerIndex, OwnedFd, Peer)>,
    /// Bytes that another worker's driver has received for sockets that this worker has now. They
    /// come first.
    come: BTreeMap<i32, (Token, Vec<u8>)>,
    /// The bytes of these that the worker was given last.
    held_bytes: Vec<u8>,
}

impl EpollIo {
    /// Creates a driver that accepts from `listeners` and wakes for `mailbox`.
    ///
    /// # Errors
    /// Returns an error if the system has no descriptor for an epoll instance left.
    pub fn new<M>(listeners: Vec<Listener>, mailbox: &Mailbox<M>) -> std::io::Result<Self> {
        Self::at((0..).zip(listeners).collect(), mailbox)
    }

    /// Creates a driver with listeners at certain positions. Those that do not listen yet start to
    /// listen last of all.
    ///
    /// # Errors
    /// Returns an error if the system has no descriptor left, or refuses to listen.
    /// Returns an error if the system has no descriptor left, or refuses to listen.
    pub fn at<M>(listeners: Vec<(u16, Listener)>, mailbox: &Mailbox<M>) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mail_fd = mailbox.wake_fd().try_clone_to_owned()?;
        epoll::add(&epoll, &mail_fd, EventData::new_u64(OWN_MAIL), EventFlags::IN)?;
        let mut io = Self {
            epoll,
            ready: Vec::with_capacity(EVENTS_MAX),
            blocks: Blocks::new(READ_LEN),
            held: Vec::new(),
            is_paused: false,
            listeners: Vec::new(),
            connecting: Vec::new(),
            resolving: Vec::new(),
            resolver: None,
            mail_fd,
            early: Vec::new(),
            beside: VecDeque::new(),
            come: BTreeMap::new(),
            held_bytes: Vec::new(),
        };
        for (index, listener) in listeners {
            io.register(index, listener)?;
        }
        for listener in io.listeners.iter_mut().flatten() {
            listener.open()?;
        }
        Ok(io)
    }

    /// Registers a listener, so that its waiting clients are reported.
    fn register(&mut self, index: u16, listener: Listener) -> std::io::Result<()> {
        let position = usize::from(index);
        // It is level-triggered: after descriptors have run out, the waiting clients are reported
        // again.
        let data = EventData::new_u64(OWN_LISTENER | u64::from(index));
        epoll::add(&self.epoll, &listener, data, EventFlags::empty())?;
        if self.listeners.len() <= position {
            self.listeners.resize_with(position + 1, || None);
            self.held.resize(position + 1, false);
        }
        self.listeners[position] = Some(listener);
        self.held[position] = false;
        self.ask(position);
        Ok(())
    }

    /// Returns whether clients of a listener were accepted from other workers' sockets.
    #[inline]
    pub(crate) fn has_beside(&self, listener: ListenerIndex) -> bool {
        self.beside.iter().any(|(at, ..)| *at == listener)
    }

    #[inline]
    fn next_beside(&mut self, listener: ListenerIndex) -> Option<Accept> {
        let at = self.beside.iter().position(|(at, ..)| *at == listener)?;
        let (_, socket, peer) = self.beside.remove(at)?;
        Some(Accept::Client { socket: Socket(socket.into_raw_fd()), peer })
    }

    /// Returns the number of positions of listeners.
    pub(crate) fn listeners_len(&self) -> usize {
        self.listeners.len()
    }

    /// Returns the descriptor of a TCP listener that only this worker has.
    pub(crate) fn own_listener_fd(&self, index: usize) -> Option<i32> {
        let listener = self.listeners.get(index)?.as_ref().filter(|listener| listener.is_tcp())?;
        Some(listener.as_fd().as_raw_fd())
    }

    /// Gives a socket the bytes that were received for it before. They come first.
    pub(crate) fn bring(&mut self, socket: Socket, token: Token, held: Vec<u8>) {
        if !held.is_empty() {
            self.come.insert(socket.0, (token, held));
            self.early.push(Event::Ready { token, readable: true, writable: false, hangup: false });
        }
    }

    fn forget_come(&mut self, socket: Socket) -> Option<Vec<u8>> {
        if self.come.is_empty() {
            return None;
        }
        let (token, held) = self.come.remove(&socket.0)?;
        self.early.retain(|event| !matches!(event, Event::Ready { token: of, .. } if *of == token));
        Some(held)
    }

    #[cold]
    fn recv_come(&mut self, held: Vec<u8>) -> Recv<'_> {
        self.held_bytes = held;
        Recv::Data { bytes: &self.held_bytes, drained: false, block: None }
    }

    /// Returns the settings of shared memory, by listener.
    pub(crate) fn doors(&self) -> impl Iterator<Item = Option<&Door>> {
        self.listeners.iter().map(|listener| listener.as_ref()?.door())
    }

    /// Returns the buffer that `recv` reads into.
    pub(crate) fn read_buf(&mut self) -> &mut [u8] {
        self.blocks.buf()
    }

    /// Copies bytes into the buffer that `recv` reads into. Parts of it may be held.
    pub(crate) fn share(&mut self, bytes: &[u8]) -> &Block {
        self.blocks.buf()[..bytes.len()].copy_from_slice(bytes);
        self.blocks.block()
    }

    /// Frees buffers, now and then or when there is nothing to do (`has_rest`).
    #[inline]
    pub(crate) fn tidy_blocks(&mut self, has_rest: bool) {
        if self.blocks.has_shared() {
            self.blocks.note_poll(has_rest);
        }
    }

    /// Returns the buffer that was read into last.
    pub(crate) fn block(&self) -> &Block {
        self.blocks.block()
    }

    /// Returns a descriptor that is readable when something has happened.
    pub(crate) fn poll_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Appends outcomes that are known already.
    pub(crate) fn take_early(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.early);
    }

    /// Gives another token to a watched socket.
    pub(crate) fn rename(&self, socket: Socket, token: Token) -> bool {
        let data = EventData::new_u64(token.0);
        epoll::modify(&self.epoll, borrow(&socket), data, socket_events()).is_ok()
    }

    /// Turns the reports of clients that wait at a listener on or off.
    fn ask(&self, index: usize) {
        let Some(Some(listener)) = self.listeners.get(index) else { return };
        let is_asked = !self.is_paused && !self.held[index];
        let events = if is_asked { EventFlags::IN } else { EventFlags::empty() };
        let data = EventData::new_u64(OWN_LISTENER | index as u64);
        // This fails only for a descriptor that is not registered.
        let _ = epoll::modify(&self.epoll, listener, data, events);
    }

    fn start_resolving(&mut self, host: &str, port: u16, token: Token) -> bool {
        let asked = self.ask_resolver(host, port, token);
        if asked {
            self.resolving.push(token);
        }
        asked
    }

    fn ask_resolver(&mut self, host: &str, port: u16, token: Token) -> bool {
        if self.resolver.is_none() {
            let Ok(resolver) = Resolver::start() else { return false };
            let data = EventData::new_u64(OWN_RESOLVER);
            if epoll::add(&self.epoll, resolver.wake_fd(), data, EventFlags::IN).is_err() {
                return false;
            }
            self.resolver = Some(resolver);
        }
        self.resolver.as_ref().is_some_and(|resolver| resolver.ask(host, port, token))
    }

    fn start_connecting(&mut self, target: &Target, token: Token) {
        if let Err(error) = self.try_connect(target, token) {
            self.early.push(Event::ConnectFailed { token, fault: connect_fault(error) });
        }
    }

    fn try_connect(&mut self, target: &Target, token: Token) -> Result<(), Errno> {
        let family = match target {
            Target::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Target::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Target::Unix(_) => AddressFamily::UNIX,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let outcome = match target {
            Target::Tcp(addr) => {
                tune(&socket, *addr)?;
                watch_over(&socket)?;
                rustix::net::connect(&socket, addr)
            }
            Target::Unix(addr) => rustix::net::connect(&socket, addr),
        };
        match outcome {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let index = match self.connecting.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.connecting.push(None);
                self.connecting.len() - 1
            }
        };
        // It is level-triggered and one-shot: it reports the outcome even if that came before this
        // call.
        let data = EventData::new_u64(OWN_CONNECTING | index as u64);
        epoll::add(&self.epoll, &socket, data, EventFlags::OUT | EventFlags::ONESHOT)?;
        self.connecting[index] = Some(Connecting { socket, token });
        Ok(())
    }

    fn finish_connecting(&mut self, index: usize) -> Option<Event> {
        let Connecting { socket, token } = self.connecting.get_mut(index)?.take()?;
        let failed = |error| Some(Event::ConnectFailed { token, fault: connect_fault(error) });
        match rustix::net::sockopt::socket_error(&socket) {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => return failed(error),
        }
        let data = EventData::new_u64(token.0);
        match epoll::modify(&self.epoll, &socket, data, socket_events()) {
            Ok(()) => Some(Event::Connected { token, socket: Socket(socket.into_raw_fd()) }),
            Err(error) => failed(error),
        }
    }

    fn resolved(&mut self) {
        loop {
            let Some(resolver) = &self.resolver else { return };
            drain_eventfd(resolver.wake_fd());
            let Some(Answer { token, addr }) = resolver.take() else { return };
            // Tokens of connections are never the driver's own.
            if token.0 & OWN != 0 {
                let address = addr.map(|addr| addr.ip().to_canonical());
                self.early.push(Event::Resolved { number: token.0 as u32, address });
                continue;
            }
            let Some(position) = self.resolving.iter().position(|&waiting| waiting == token) else {
                // The connection was given up meanwhile.
                continue;
            };
            self.resolving.swap_remove(position);
            match addr {
                Some(addr) => self.start_connecting(&Target::Tcp(addr), token),
                None => {
                    let fault = ConnectFault::Resolve;
                    self.early.push(Event::ConnectFailed { token, fault });
                }
            }
        }
    }

    fn translate(&mut self, event: epoll::Event, events: &mut Vec<Event>) {
        let data = event.data.u64();
        let flags = event.flags;
        if data & OWN == 0 {
            events.push(Event::Ready {
                token: Token(data),
                readable: flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR),
                writable: flags.contains(EventFlags::OUT),
                hangup: flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR),
            });
        } else if data & OWN_LISTENER == OWN_LISTENER {
            events.push(Event::Incoming(ListenerIndex(data as u16)));
        } else if data & OWN_CONNECTING == OWN_CONNECTING {
            events.extend(self.finish_connecting(data as u32 as usize));
        } else if data == OWN_MAIL {
            drain_eventfd(self.mail_fd.as_fd());
            events.push(Event::Mail);
        } else {
            self.resolved();
        }
    }
}

enum Target {
    Tcp(SocketAddr),
    Unix(rustix::net::SocketAddrUnix),
}

fn socket_events() -> EventFlags {
    EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
}

fn drain_eventfd(fd: BorrowedFd<'_>) {
    let mut count = [0u8; 8];
    let _ = rustix::io::read(fd, &mut count);
}

fn connect_fault(error: Errno) -> ConnectFault {
    match error {
        // A full backlog of a unix socket means that the server is not there.
        Errno::CONNREFUSED | Errno::AGAIN => ConnectFault::Refused,
        Errno::NOENT | Errno::NOTDIR => ConnectFault::NoSocket,
        Errno::ACCESS => ConnectFault::Denied,
        Errno::NETUNREACH | Errno::HOSTUNREACH => ConnectFault::Unreachable,
        Errno::TIMEDOUT => ConnectFault::TimedOut,
        Errno::MFILE | Errno::NFILE | Errno::ADDRNOTAVAIL | Errno::NOBUFS | Errno::NOMEM => {
            ConnectFault::Exhausted
        }
        _ => ConnectFault::Other,
    }
}

fn nanos(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns whether a call that began at `start` has slept.
pub(crate) fn has_slept(start: Timespec) -> bool {
    nanos(clock_gettime(ClockId::Monotonic)).saturating_sub(nanos(start)) >= SLEPT_FROM
}

/// Returns the descriptor behind a handle, for one call.
fn borrow(socket: &Socket) -> BorrowedFd<'_> {
    // SAFETY: a `Socket` of this driver is an open descriptor from the moment
    // it is handed out by `accept` or `Connected` until `close`, `release` or
    // the end of the worker; the worker removes its handle in the same step.
    unsafe { BorrowedFd::borrow_raw(socket.0) }
}

/// Accepts the next client that waits at a socket.
fn accept_from(listener: impl AsFd, is_tcp: bool) -> Result<(OwnedFd, Peer), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        let (socket, peer) = match rustix::net::acceptfrom_with(&listener, flags) {
            Ok(accepted) => accepted,
            // The last three report a connection that broke while it waited.
            Err(
                Errno::INTR
                | Errno::CONNABORTED
                | Errno::PROTO
                | Errno::NETUNREACH
                | Errno::HOSTUNREACH,
            ) => continue,
            Err(error) => return Err(error),
        };
        let peer = match peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
            Some(addr) if is_tcp => Peer::Tcp(canonical(addr)),
            _ => Peer::Unix,
        };
        return Ok((socket, peer));
    }
}

impl Io for EpollIo {
    fn clock(&mut self) -> Clock {
        Clock {
            now: Time(nanos(clock_gettime(ClockId::Monotonic))),
            unix_micros: nanos(clock_gettime(ClockId::Realtime)) / 1_000,
        }
    }

    // It is inlined into its one caller where only sockets are polled.
    #[inline(always)]
    fn poll(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
        events.append(&mut self.early);
        let wait = if events.is_empty() { wait } else { Some(Duration::ZERO) };
        let timeout = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs().min(1 << 30) as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        let start = (wait != Some(Duration::ZERO)).then(|| clock_gettime(ClockId::Monotonic));
        self.ready.clear();
        let spare = rustix::buffer::spare_capacity(&mut self.ready);
        match epoll::wait(&self.epoll, spare, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Any other error means that one of the driver's descriptors is not what it should be.
            Err(error) => panic!("epoll_wait failed: {error}"),
        }
        // The kernel does not tell whether the call slept.
        let slept = start.is_some_and(has_slept);
        let mut ready = std::mem::take(&mut self.ready);
        for event in ready.drain(..) {
            self.translate(event, events);
        }
        self.ready = ready;
        events.append(&mut self.early);
        self.tidy_blocks(slept && events.is_empty());
        slept
    }

    fn accept(&mut self, listener: ListenerIndex) -> Accept {
        if let Some(client) = self.next_beside(listener) {
            return client;
        }
        let Some(Some(listener)) = self.listeners.get(listener.0 as usize) else {
            return Accept::Empty;
        };
        match accept_from(listener, listener.is_tcp()) {
            Ok((socket, peer)) => Accept::Client { socket: Socket(socket.into_raw_fd()), peer },
            Err(Errno::AGAIN) => Accept::Empty,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Accept::Exhausted,
            Err(error) => Accept::Failed(error.to_string()),
        }
    }

    fn accept_beside(&mut self, index: ListenerIndex) -> bool {
        let Some(Some(listener)) = self.listeners.get(usize::from(index.0)) else { return false };
        if !listener.is_tcp() || self.is_paused {
            return false;
        }
        for socket in listener.others() {
            while self.beside.len() < BESIDE_MAX
                && let Ok((client, peer)) = accept_from(&*socket, true)
            {
                self.beside.push_back((index, client, peer));
            }
        }
        self.has_beside(index)
    }

    fn local_address(&self, socket: Socket) -> Option<SocketAddr> {
        let name = rustix::net::getsockname(borrow(&socket)).ok()?;
        SocketAddr::try_from(name).ok().map(canonical)
    }

    fn resolve(&mut self, host: &str, number: u32) -> bool {
        self.ask_resolver(host, 0, Token(OWN | u64::from(number)))
    }

    fn pause_accepting(&mut self, paused: bool) {
        self.is_paused = paused;
        (0..self.listeners.len()).for_each(|index| self.ask(index));
    }

    fn hold_listener(&mut self, listener: ListenerIndex, held: bool) {
        let index = usize::from(listener.0);
        if let Some(is_held) = self.held.get_mut(index) {
            *is_held = held;
            self.ask(index);
        }
    }

    fn stop_listening(&mut self) {
        for listener in self.listeners.drain(..).flatten() {
            let _ = epoll::delete(&self.epoll, &listener);
        }
    }

    fn listen(&mut self, index: ListenerIndex, listener: Listener) -> bool {
        if self.register(index.0, listener).is_err() {
            return false;
        }
        let listener = self.listeners[usize::from(index.0)].as_mut();
        let is_open = listener.is_some_and(|listener| listener.open().is_ok());
        if !is_open {
            self.end_listening(index);
        }
        is_open
    }

    fn end_listening(&mut self, index: ListenerIndex) {
        let listener = self.listeners.get_mut(usize::from(index.0));
        if let Some(listener) = listener.and_then(Option::take) {
            let _ = epoll::delete(&self.epoll, &listener);
        }
    }

    fn watch(&mut self, socket: Socket, token: Token) -> bool {
        assert_eq!(token.0 & OWN, 0, "the topmost bit of a token is the driver's");
        if let Some(come) = moving::take(socket.0) {
            if come.outcome == Some(Outcome::Failed) {
                // Bytes of it may be lost, and the system does not know that.
                return false;
            }
            // The system reports its end again.
            self.bring(socket, token, come.held);
        }
        let data = EventData::new_u64(token.0);
        epoll::add(&self.epoll, borrow(&socket), data, socket_events()).is_ok()
    }

    fn connect(&mut self, address: &Address, token: Token) {
        assert_eq!(token.0 & OWN, 0, "the topmost bit of a token is the driver's");
        if let Some(addr) = address.literal() {
            return self.start_connecting(&Target::Tcp(addr), token);
        }
        let fault = match address {
            Address::Tcp { host, port } if self.start_resolving(host, *port, token) => return,
            Address::Tcp { .. } => ConnectFault::Exhausted,
            Address::Unix(path) | Address::Shm(path) => {
                match rustix::net::SocketAddrUnix::new(path) {
                    Ok(addr) => return self.start_connecting(&Target::Unix(addr), token),
                    Err(_) => ConnectFault::Other,
                }
            }
        };
        self.early.push(Event::ConnectFailed { token, fault });
    }

    fn cancel_connect(&mut self, token: Token) {
        self.resolving.retain(|&waiting| waiting != token);
        for entry in &mut self.connecting {
            if entry.as_ref().is_some_and(|connecting| connecting.token == token) {
                // This closes its socket.
                *entry = None;
            }
        }
    }

    #[inline]
    fn recv(&mut self, socket: Socket) -> Recv<'_> {
        if !self.come.is_empty()
            && let Some((_, held)) = self.come.remove(&socket.0)
        {
            return self.recv_come(held);
        }
        loop {
            return match rustix::net::recv(borrow(&socket), self.blocks.buf(), RecvFlags::empty()) {
                Ok((0, _)) => Recv::End,
                Ok((len, _)) => {
                    let block = self.blocks.block();
                    Recv::Data { bytes: &block[..len], drained: len < READ_LEN, block: Some(block) }
                }
                Err(Errno::AGAIN) => Recv::Empty,
                Err(Errno::INTR) => continue,
                Err(_) => Recv::Failed,
            };
        }
    }

    #[inline]
    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Send {
        loop {
            return match rustix::net::send(borrow(&socket), bytes, SendFlags::NOSIGNAL) {
                Ok(len) => Send::Taken(len),
                Err(Errno::AGAIN) => Send::Taken(0),
                Err(Errno::INTR) => continue,
                Err(_) => Send::Failed,
            };
        }
    }

    fn send_pieces(&mut self, socket: Socket, pieces: &[IoSlice<'_>]) -> Send {
        loop {
            let mut control = SendAncillaryBuffer::default();
            let sent = sendmsg(borrow(&socket), pieces, &mut control, SendFlags::NOSIGNAL);
            return match sent {
                Ok(len) => Send::Taken(len),
                Err(Errno::AGAIN) => Send::Taken(0),
                Err(Errno::INTR) => continue,
                Err(_) => Send::Failed,
            };
        }
    }

    fn release(&mut self, socket: Socket) -> Socket {
        let _ = epoll::delete(&self.epoll, borrow(&socket));
        if let Some(held) = self.forget_come(socket) {
            moving::leave(socket.0, Come { held, outcome: None, awaits_room: false });
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
        rustix::net::shutdown(borrow(&socket), Shutdown::Write).is_ok()
    }

    fn close(&mut self, socket: Socket) {
        drop(self.forget_come(socket));
        // This socket was handed over, and never watched.
        drop(moving::take(socket.0));
        // SAFETY: the handle owns its descriptor (see `borrow`) and the caller
        // gives it up here.
        drop(unsafe { OwnedFd::from_raw_fd(socket.0) });
    }
}

#[cfg(test)]
mod tests;
