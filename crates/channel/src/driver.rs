//! The driver's loop: waits for sockets, bells, dials and the node's next deadline, and carries
//! bytes.

use crate::dial::{self, Outcome, Unshared};
use crate::listen::{Came, Decided, Greeting, Listener};
use crate::secure::reason_of;
use crate::stream::Stream;
use keyway_base::{Key, Slab, Time};
use keyway_bus::{Action, DialKey, Event, Host, Line, Node, PeerKey, Place, Reason, Settings, Url};
use keyway_tls::PeerTls;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::OwnedFd;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Bytes read from a connection at once. With more, other connections wait longer.
const READ_LEN: usize = 64 << 10;
/// Most reads of one connection in a turn.
const READS_PER_TURN: usize = 4;
/// Bytes taken from the node ahead of a socket. A ping waits behind at most this many.
const AHEAD_LEN: usize = 64 << 10;
/// Most buffers kept for output. With fewer, buffers are made anew if many connections are written
/// to in turn.
const SPARE_MAX: usize = 16;
/// Most dials at once. Each has a thread.
const DIALS_MAX: usize = 32;
/// Longest time for sending the last words of a connection.
const LINGER: Duration = Duration::from_millis(500);
/// Pause in accepting after it has failed, mostly for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Most connections whose last words are being sent. Beyond that, the oldest are closed at once.
const CLOSING_MAX: usize = 256;

/// Kinds of descriptors, in the low bits of their word in epoll.
const STREAM: u64 = 0;
const LISTENER: u64 = 2;
const WAKE: u64 = 3;

/// Settings of a driver, besides those of its node.
#[derive(Clone, Debug, Default)]
pub struct DriverSettings {
    /// Users with whose processes memory is shared, besides this process's own and root.
    /// Connections of other users use the socket.
    pub share_with: Vec<u32>,
    /// TLS settings of all TCP connections, dialled and accepted. Other connections stay within the
    /// host.
    pub tls: Option<PeerTls>,
}

enum State {
    /// Its purpose is not known yet.
    Greeting(Option<Greeting>, Time),
    Open(PeerKey),
    /// The node is done with it: remaining bytes are written, and the end is awaited.
    Closing(Time),
}

struct Conn {
    stream: Option<Stream>,
    state: State,
    out: Vec<u8>,
    out_start: usize,
    waits_for_room: bool,
}

/// A node with its channels.
pub struct Driver {
    node: Node,
    settings: DriverSettings,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    paused_until: Option<Time>,
    /// The last failure of accepting, until it is asked for.
    not_accepted: Option<io::Error>,
    /// The last address that refused shared memory, until it is asked for.
    unshared: Option<Unshared>,
    conns: Slab<Conn>,
    by_peer: BTreeMap<u64, Key<Conn>>,
    /// Connections to be served before the next wait.
    again: Vec<Key<Conn>>,
    /// Connections that the node does not have yet, or no longer; each has a deadline.
    others: Vec<Key<Conn>>,
    dials: usize,
    outcomes: (Sender<Outcome>, Receiver<Outcome>),
    wake: Arc<OwnedFd>,
    ready: Vec<epoll::Event>,
    buf: Vec<u8>,
    /// Buffers for output. A connection without output owns none.
    spare: Vec<Vec<u8>>,
    uid: u32,
}

/// Returns the clock that nodes use.
pub fn clock() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Returns where this process runs, as far as the system tells.
pub fn here() -> Place {
    let mut host = [0; 16];
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    for (byte, pair) in host.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).unwrap_or_default();
        *byte = u8::from_str_radix(pair, 16).unwrap_or_default();
    }
    // Two processes may have the same number in two namespaces. Connecting tells whether it is this
    // one.
    Place { host, process: u64::from(std::process::id()) }
}

fn draw<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut at = 0;
    while at < N {
        at += getrandom(&mut bytes[at..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

fn line(stream: &Stream) -> io::Result<Line> {
    let is_within_host = stream.is_within_host();
    Ok(Line {
        binding: stream.binding(),
        vouch: stream.vouch(),
        nonce: draw()?,
        is_within_host,
        from: stream.from(),
    })
}

/// Returns whether `other` is an IPv4 address on the port of `url`.
fn has_ipv4_of(url: &Url, other: &Url) -> bool {
    match (url, other) {
        (Url::Tcp { port, .. }, Url::Tcp { host: Host::Ip(ip), port: other }) => {
            ip.is_ipv4() && port == other && *port != 0
        }
        _ => false,
    }
}

impl Driver {
    /// Creates a node that listens on the addresses of its settings. It announces the ports that it
    /// was given.
    ///
    /// # Errors
    /// Returns an error that names the address on which the system refuses to listen.
    pub fn new(mut node: Settings, settings: DriverSettings) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        epoll::add(&epoll, &*wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let mut listeners = Vec::new();
        let all = node.urls.clone();
        for (at, url) in node.urls.iter_mut().enumerate() {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{url}: {error}"));
            let only_v6 = all.iter().any(|other| has_ipv4_of(url, other));
            let listener = Listener::bind(url, only_v6).map_err(named)?;
            *url = listener.url().clone();
            let data = EventData::new_u64((at as u64) << 2 | LISTENER);
            epoll::add(&epoll, listener.fd(), data, EventFlags::IN)?;
            listeners.push(listener);
        }
        let random = u64::from_le_bytes(draw()?);
        Ok(Self {
            node: Node::new(node, random, clock()),
            settings,
            epoll,
            listeners,
            paused_until: None,
            not_accepted: None,
            unshared: None,
            conns: Slab::new(),
            by_peer: BTreeMap::new(),
            again: Vec::new(),
            others: Vec::new(),
            dials: 0,
            outcomes: channel(),
            wake,
            ready: Vec::with_capacity(256),
            buf: vec![0; READ_LEN],
            spare: Vec::new(),
            uid: rustix::process::geteuid().as_raw(),
        })
    }

    /// Returns the node. Orders to the node are carried out by the next [`Driver::turn`].
    pub fn node(&mut self) -> &mut Node {
        &mut self.node
    }

    /// Returns the addresses on which it listens.
    pub fn urls(&self) -> Vec<Url> {
        self.listeners.iter().map(|listener| listener.url().clone()).collect()
    }

    /// Returns a descriptor to which another thread writes a u64, so that [`Driver::turn`] returns.
    pub fn waker(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.wake)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.node.poll_event()
    }

    /// Returns the failure of accepting since the last call, such as for lack of descriptors.
    /// Accepting is tried again.
    pub fn poll_not_accepted(&mut self) -> Option<io::Error> {
        self.not_accepted.take()
    }

    /// Returns the last address of shared memory that was dialled since the last call and whose
    /// connection uses the socket, because no memory is shared there.
    pub fn poll_unshared(&mut self) -> Option<Unshared> {
        self.unshared.take()
    }

    /// Waits, at most for `wait_max`, and does the work that is due. Does not wait while there are
    /// events: an order to the node between two turns may have its result at once, such as when a
    /// node without peers leaves.
    ///
    /// # Errors
    /// Returns an error of the system if waiting is impossible.
    pub fn turn(&mut self, wait_max: Duration) -> io::Result<()> {
        let now = clock();
        self.serve(now);
        self.wait(now, wait_max)?;
        let now = clock();
        let ready = std::mem::take(&mut self.ready);
        for event in &ready {
            self.on_ready(event.data.u64(), event.flags, now);
        }
        self.ready = ready;
        for key in std::mem::take(&mut self.again) {
            self.read(key, now);
        }
        self.finish_dials(now);
        self.expire(now);
        if now >= self.node.poll_deadline() {
            self.node.handle_timeout(now);
        }
        self.serve(now);
        Ok(())
    }

    fn wait(&mut self, now: Time, wait_max: Duration) -> io::Result<()> {
        let mut wait = wait_max.min(self.node.poll_deadline().since(now));
        if !self.again.is_empty() || self.node.has_event() {
            wait = Duration::ZERO;
        }
        let others = self.others.iter().filter_map(|key| self.conns.get(*key)?.until());
        if let Some(until) = others.chain(self.paused_until).min() {
            wait = wait.min(until.since(now));
        }
        let timeout = Timespec {
            tv_sec: wait.as_secs().min(3600) as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        self.ready.clear();
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut self.ready),
            Some(&timeout),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn on_ready(&mut self, word: u64, flags: EventFlags, now: Time) {
        let key = Key::from_bits(word >> 2);
        match word & 3 {
            LISTENER => self.accept((word >> 2) as usize, now),
            WAKE => drop(rustix::io::read(&*self.wake, &mut [0; 8])),
            _ => self.on_conn(key, flags, now),
        }
    }

    fn on_conn(&mut self, key: Key<Conn>, flags: EventFlags, now: Time) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if let Some(stream) = &mut conn.stream {
            let is_over = EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP;
            stream.on_socket(flags.intersects(is_over));
        }
        let is_rings = conn.stream.as_ref().is_some_and(Stream::is_rings);
        if is_rings || flags.contains(EventFlags::OUT) {
            self.write(key, now);
        }
        if is_rings
            || flags
                .intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP)
        {
            self.read(key, now);
        }
    }

    fn accept(&mut self, at: usize, now: Time) {
        for _ in 0..64 {
            match self.listeners[at].accept(self.settings.tls.as_ref()) {
                Ok(Came::Stream(stream)) => self.open_accepted(stream, &[], now),
                Ok(Came::Undecided(greeting)) => self.greet(greeting, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.not_accepted = Some(error);
                    return self.pause(now);
                }
            }
        }
    }

    fn pause(&mut self, now: Time) {
        self.paused_until = Some(now + PAUSE);
        for listener in &self.listeners {
            let _ = epoll::delete(&self.epoll, listener.fd());
        }
    }

    fn resume(&mut self) {
        self.paused_until = None;
        for (at, listener) in self.listeners.iter().enumerate() {
            let data = EventData::new_u64((at as u64) << 2 | LISTENER);
            let _ = epoll::add(&self.epoll, listener.fd(), data, EventFlags::IN);
        }
    }

    fn greet(&mut self, greeting: Greeting, now: Time) {
        // There may be as many as the node accepts strangers.
        let max = (self.node.settings().peers_max / 4).max(16);
        self.make_place(|state| matches!(state, State::Greeting(..)), max);
        let until = now + self.node.settings().handshake;
        let key = self.conns.insert(Conn::of(None, State::Greeting(None, until)));
        let data = EventData::new_u64(key.to_bits() << 2 | STREAM);
        if epoll::add(&self.epoll, greeting.fd(), data, EventFlags::IN).is_err() {
            self.conns.remove(key);
            return;
        }
        if let Some(conn) = self.conns.get_mut(key) {
            conn.state = State::Greeting(Some(greeting), until);
        }
        self.others.push(key);
    }

    /// Closes the oldest connection of a kind that the node does not have, if there are as many as
    /// may be.
    fn make_place(&mut self, is_kind: fn(&State) -> bool, max: usize) {
        if self.others.len() < max {
            return;
        }
        let conns = &self.conns;
        self.others.retain(|key| {
            conns.get(*key).is_some_and(|conn| !matches!(conn.state, State::Open(_)))
        });
        let of_kind = |key: &&Key<Conn>| conns.get(**key).is_some_and(|conn| is_kind(&conn.state));
        let oldest = self.others.iter().find(of_kind).copied();
        if self.others.iter().filter(of_kind).count() >= max
            && let Some(oldest) = oldest
        {
            self.conns.remove(oldest);
        }
    }

    fn go_on_greeting(&mut self, key: Key<Conn>, now: Time) {
        let Some(Conn { state: State::Greeting(greeting, _), .. }) = self.conns.get_mut(key) else {
            return;
        };
        let Some(taken) = greeting.take() else { return };
        // The resulting connection is registered anew.
        let (uid, share_with) = (self.uid, &self.settings.share_with);
        let may_share = |user: u32| user == uid || user == 0 || share_with.contains(&user);
        let fd_gone = epoll::delete(&self.epoll, taken.fd());
        match taken.go_on(may_share) {
            Ok(Decided::NotYet(same)) if fd_gone.is_ok() => {
                let data = EventData::new_u64(key.to_bits() << 2 | STREAM);
                let is_added = epoll::add(&self.epoll, same.fd(), data, EventFlags::IN).is_ok();
                *greeting = Some(same).filter(|_| is_added);
            }
            Ok(Decided::Stream(stream, said)) => {
                self.conns.remove(key);
                self.open_accepted(stream, &said, now);
            }
            Ok(Decided::Over(reason, stream, words)) => {
                self.conns.remove(key);
                self.turn_away(reason, stream, words, now);
            }
            _ => drop(self.conns.remove(key)),
        }
    }

    /// Tells a refused peer the reason, and reads the rest of what it sends: closing before that
    /// would discard the reason.
    fn turn_away(&mut self, reason: Reason, stream: Stream, words: Vec<u8>, now: Time) {
        self.node.handle_turned_away(stream.from(), reason, now);
        self.make_place(|state| matches!(state, State::Closing(_)), CLOSING_MAX);
        let key = self.conns.insert(Conn::of(None, State::Closing(now + LINGER)));
        let data = EventData::new_u64(key.to_bits() << 2 | STREAM);
        let wanted = EventFlags::IN | EventFlags::RDHUP;
        let is_added = epoll::add(&self.epoll, stream.fd(), data, wanted).is_ok();
        let Some(conn) = self.conns.get_mut(key).filter(|_| is_added) else {
            drop(self.conns.remove(key));
            return;
        };
        (conn.stream, conn.out) = (Some(stream), words);
        self.others.push(key);
        self.write(key, now);
    }

    fn open_accepted(&mut self, stream: Stream, said: &[u8], now: Time) {
        let Ok(line) = line(&stream) else { return };
        let Some(peer) = self.node.handle_accepted(&line, now) else { return };
        self.open(stream, peer, now);
        if !said.is_empty() {
            self.node.handle_input(peer, said, now);
        }
    }

    fn open(&mut self, stream: Stream, peer: PeerKey, now: Time) {
        let key = self.conns.insert(Conn::of(None, State::Open(peer)));
        let data = |tag: u64| EventData::new_u64(key.to_bits() << 2 | tag);
        let wanted = EventFlags::IN | EventFlags::RDHUP;
        let added = epoll::add(&self.epoll, stream.fd(), data(STREAM), wanted);
        if let Some(conn) = self.conns.get_mut(key) {
            conn.stream = Some(stream);
        }
        self.by_peer.insert(peer.to_bits(), key);
        if added.is_err() {
            return self.lose(key, None, now);
        }
        // A ring's bell rings only after the ring was announced as listened to, which the first
        // read does.
        self.again.push(key);
    }

    fn finish_dials(&mut self, now: Time) {
        while let Ok((dial, outcome, unshared)) = self.outcomes.1.try_recv() {
            self.dials -= 1;
            self.unshared = unshared.or(self.unshared.take());
            let ready = outcome.and_then(|dialled| {
                let made = dialled.into_stream().and_then(|stream| Ok((line(&stream)?, stream)));
                made.map_err(|_| Reason::DialFailed)
            });
            match ready {
                Ok((line, stream)) => {
                    if let Some(peer) = self.node.handle_connected(dial, &line, now) {
                        self.open(stream, peer, now);
                    }
                }
                Err(reason) => self.node.handle_dial_failed(dial, reason, now),
            }
        }
    }

    fn dial(&mut self, dial: DialKey, url: Url, now: Time) {
        let is_started = self.dials < DIALS_MAX
            && dial::start(
                dial,
                url,
                self.settings.tls.clone(),
                self.outcomes.0.clone(),
                Arc::clone(&self.wake),
            )
            .is_ok();
        match is_started {
            true => self.dials += 1,
            false => self.node.handle_dial_failed(dial, Reason::DialFailed, now),
        }
    }

    /// Carries out the node's orders, until there are none.
    fn serve(&mut self, now: Time) {
        loop {
            if let Some(action) = self.node.poll_action() {
                match action {
                    Action::Dial { dial, url } => self.dial(dial, url, now),
                    Action::Close { peer, last_words } => self.close(peer, &last_words, now),
                }
                continue;
            }
            let Some(peer) = self.node.poll_dirty() else { return };
            if let Some(key) = self.by_peer.get(&peer.to_bits()).copied() {
                self.write(key, now);
            }
        }
    }

    /// Closes a connection that the node is done with.
    fn close(&mut self, peer: PeerKey, last_words: &[u8], now: Time) {
        let Some(key) = self.by_peer.remove(&peer.to_bits()) else { return };
        self.make_place(|state| matches!(state, State::Closing(_)), CLOSING_MAX);
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.out.extend_from_slice(last_words);
        conn.state = State::Closing(now + LINGER);
        self.others.push(key);
        self.write(key, now);
    }

    fn read(&mut self, key: Key<Conn>, now: Time) {
        for _ in 0..READS_PER_TURN {
            let Some(conn) = self.conns.get_mut(key) else { return };
            let Some(stream) = &mut conn.stream else { return self.go_on_greeting(key, now) };
            match stream.read(&mut self.buf) {
                Ok(0) => return self.lose(key, None, now),
                Ok(len) => {
                    let is_empty = stream.is_empty_after(len < self.buf.len());
                    if let State::Open(peer) = conn.state {
                        self.node.handle_input(peer, &self.buf[..len], now);
                        self.serve(now);
                    }
                    if is_empty {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.lose(key, reason_of(&error), now),
            }
        }
        self.again.push(key);
    }

    /// Handles the end of a connection.
    fn lose(&mut self, key: Key<Conn>, why: Option<Reason>, now: Time) {
        let Some(conn) = self.conns.remove(key) else { return };
        if let State::Open(peer) = conn.state {
            self.by_peer.remove(&peer.to_bits());
            self.node.handle_closed(peer, why, now);
        }
    }

    fn write(&mut self, key: Key<Conn>, now: Time) {
        loop {
            let Some(conn) = self.conns.get_mut(key) else { return };
            let Some(stream) = &mut conn.stream else { return };
            if conn.out_start == conn.out.len() {
                conn.out.clear();
                conn.out_start = 0;
                if conn.out.capacity() == 0 {
                    conn.out = self.spare.pop().unwrap_or_default();
                }
                match conn.state {
                    State::Open(peer) => {
                        self.node.poll_output(peer, &mut conn.out, AHEAD_LEN, now);
                    }
                    State::Closing(_) => stream.finish(),
                    State::Greeting(..) => {}
                }
                if conn.out.is_empty() {
                    let room = std::mem::take(&mut conn.out);
                    if self.spare.len() < SPARE_MAX {
                        self.spare.push(room);
                    }
                    let is_wanted = stream.holds_back();
                    return self.want_room(key, is_wanted);
                }
            }
            match stream.write(&conn.out[conn.out_start..]) {
                Ok(len) => conn.out_start += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.want_room(key, true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    // Bytes that the other side sent before its end are read first.
                    conn.out.clear();
                    conn.out_start = 0;
                    return self.again.push(key);
                }
            }
        }
    }

    /// Asks to be told when there is room to write, or not. A ring tells in any case.
    fn want_room(&mut self, key: Key<Conn>, wanted: bool) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Some(stream) = &conn.stream else { return };
        if conn.waits_for_room == wanted || stream.is_rings() {
            return;
        }
        conn.waits_for_room = wanted;
        let mut flags = EventFlags::IN | EventFlags::RDHUP;
        flags.set(EventFlags::OUT, wanted);
        let data = EventData::new_u64(key.to_bits() << 2 | STREAM);
        let _ = epoll::modify(&self.epoll, stream.fd(), data, flags);
    }

    /// Ends connections whose time is over.
    fn expire(&mut self, now: Time) {
        if self.paused_until.is_some_and(|until| until <= now) {
            self.resume();
        }
        for key in std::mem::take(&mut self.others) {
            let Some(conn) = self.conns.get(key) else { continue };
            match conn.state {
                State::Open(_) => {}
                State::Greeting(_, until) | State::Closing(until) if until <= now => {
                    self.conns.remove(key);
                }
                _ => self.others.push(key),
            }
        }
    }
}

impl Conn {
    /// Returns the deadline of a connection that the node does not have.
    fn until(&self) -> Option<Time> {
        match self.state {
            State::Open(_) => None,
            State::Greeting(_, until) | State::Closing(until) => Some(until),
        }
    }

    fn of(stream: Option<Stream>, state: State) -> Self {
        Self { stream, state, out: Vec::new(), out_start: 0, waits_for_room: false }
    }
}
