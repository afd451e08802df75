//! Clients and servers at the far ends of the worker's sockets.
//!
//! An honest client names itself, its database and the request in every key,
//! so that a server can tell whether a request arrived where it belongs, and
//! the client whether a reply is its own. Either may turn hostile and send
//! the input's own bytes instead.

use super::rich;
use super::wires::{End, Wires};
use crate::Choices;
use crate::invariants::{compose, shown};
use keyway_resp::{Framer, Framing, Kind, Protocol, reply};
use std::collections::{BTreeSet, VecDeque};

/// What all peers know of the run.
#[derive(Default)]
pub struct Ledger {
    next_request: u32,
    /// Requests that reached a server.
    executed: BTreeSet<u32>,
    /// Requests that a client was told were not sent.
    unsent: BTreeSet<u32>,
    /// Some client sent bytes of its own: keys prove nothing any more.
    pub has_hostile_clients: bool,
    /// Some server sent bytes of its own: replies prove nothing any more.
    pub has_hostile_servers: bool,
    /// Clients were killed, or the worker told to stop.
    pub may_close: bool,
}

impl Ledger {
    fn check(&self) {
        let lied: Vec<_> = self.executed.intersection(&self.unsent).collect();
        assert!(lied.is_empty(), "said not to be sent, and executed: {lied:?}");
    }
}

/// What an honest client expects for a request; an error will always do.
enum Expected {
    Bytes { reply: Vec<u8>, request: u32 },
    Anything,
}

pub struct Client {
    pub wire: usize,
    pool: usize,
    /// It may select these.
    databases: u32,
    number: usize,
    database: u32,
    expected: VecDeque<Expected>,
    received: Vec<u8>,
    /// What `CLIENT REPLY` was told: answered, not answered, next not answered.
    replies: [bool; 2],
    /// It has not given the password that is asked for.
    is_locked: bool,
    pub is_hostile: bool,
    /// It sends no more.
    pub has_ended: bool,
    quit: bool,
}

impl Client {
    pub fn new(wire: usize, (pool, databases): (usize, u32), number: usize) -> Self {
        Self {
            wire,
            pool,
            databases,
            number,
            database: 0,
            expected: VecDeque::new(),
            received: Vec::new(),
            replies: [true; 2],
            is_locked: false,
            is_hostile: false,
            has_ended: false,
            quit: false,
        }
    }

    /// Whether every request was answered.
    pub fn is_content(&self) -> bool {
        self.expected.is_empty()
    }

    /// Has a password asked for and does not give it.
    pub fn lock_out(&mut self) {
        self.is_locked = true;
    }

    /// Gives the password.
    pub fn log_in(&mut self, wires: &mut Wires) {
        self.expect(Expected::Anything);
        let line = [b"AUTH", super::PASSWORD.as_bytes()];
        wires.send_to_worker(self.wire, &compose(&line).0);
    }

    /// Sends some honest requests in one go.
    pub fn ask(&mut self, choices: &mut Choices, wires: &mut Wires, ledger: &mut Ledger) {
        let mut bytes = Vec::new();
        for _ in 0..=choices.below(6) {
            let line = self.line(choices, ledger);
            let words = line.join(&b' ');
            let may_be_inline = words.len() < 400 && line.iter().all(|word| !word.is_empty());
            if may_be_inline && choices.below(8) == 0 {
                bytes.extend([words, b"\r\n".to_vec()].concat());
            } else {
                bytes.extend(compose(&line).0);
            }
        }
        wires.send_to_worker(self.wire, &bytes);
    }

    fn key(&self, ledger: &Ledger) -> Vec<u8> {
        let Client { number, database, .. } = self;
        format!("c{number}:d{database}:{}", ledger.next_request).into_bytes()
    }

    /// One request, and what is to come back.
    fn line(&mut self, choices: &mut Choices, ledger: &mut Ledger) -> Vec<Vec<u8>> {
        ledger.next_request += 1;
        let request = ledger.next_request;
        let key = self.key(ledger);
        let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
        let keys = |count: usize| (0..count).map(|at| [&key[..], &[b'a' + at as u8]].concat());
        let value = vec![b'v'; choices.below(300) & choices.below(300)];
        let count = 1 + choices.below(5);
        let mut wanted = Vec::new();
        let line = match choices.below(14) {
            0..=3 => {
                reply::bulk(&mut wanted, &key);
                words(&[b"GET", &key])
            }
            4 | 5 => {
                reply::simple(&mut wanted, "OK");
                words(&[b"SET", &key, &value])
            }
            6 => {
                reply::array(&mut wanted, count);
                keys(count).for_each(|key| reply::bulk(&mut wanted, &key));
                words(&[b"mget"]).into_iter().chain(keys(count)).collect()
            }
            7 => {
                reply::simple(&mut wanted, "OK");
                let pairs = keys(count).flat_map(|key| [key, value.clone()]);
                words(&[b"MSET"]).into_iter().chain(pairs).collect()
            }
            8 => {
                reply::integer(&mut wanted, count as i64);
                words(&[b"DEL"]).into_iter().chain(keys(count)).collect()
            }
            9 => {
                reply::bulk(&mut wanted, &key);
                words(&[b"ECHO", &key])
            }
            10 => return self.select(choices),
            11 => return self.client_reply(choices),
            12 if choices.below(8) == 0 => {
                self.quit = true;
                reply::simple(&mut wanted, "OK");
                words(&[b"QUIT"])
            }
            _ => {
                let index = choices.below(5);
                let lines: [&[&[u8]]; 5] = [
                    &[b"NONESUCH", b"x"],
                    &[b"RENAME", b"a", b"b"],
                    &[b"GET"],
                    &[b"CLIENT", b"LIST"],
                    &[b"EVAL", b"s", b"9", b"k"],
                ];
                words(lines[index])
            }
        };
        self.expect(match wanted.is_empty() || self.pool == 1 {
            true => Expected::Anything,
            false => Expected::Bytes { reply: wanted, request },
        });
        line
    }

    fn expect(&mut self, expected: Expected) {
        if self.replies == [true, true] {
            self.expected.push_back(expected);
        }
        self.replies[1] = true;
    }

    fn select(&mut self, choices: &mut Choices) -> Vec<Vec<u8>> {
        self.database = choices.below(self.databases as usize) as u32;
        self.expect(Expected::Anything);
        vec![b"SELECT".to_vec(), self.database.to_string().into_bytes()]
    }

    fn client_reply(&mut self, choices: &mut Choices) -> Vec<Vec<u8>> {
        let word = choices.pick(&["ON", "OFF", "SKIP", "ON"]);
        match word {
            _ if self.is_locked => self.expect(Expected::Anything),
            "ON" => {
                self.replies = [true, true];
                self.expect(Expected::Anything);
            }
            "OFF" => self.replies = [false, true],
            _ => self.replies[1] = false,
        }
        ["CLIENT", "REPLY", word].map(|word| word.as_bytes().to_vec()).to_vec()
    }

    /// Sends some requests of any kind; from here on nobody counts what comes
    /// back.
    pub fn ask_anything(&mut self, choices: &mut Choices, wires: &mut Wires) {
        self.is_hostile = true;
        let mut bytes = Vec::new();
        for _ in 0..=choices.below(8) {
            bytes.extend(compose(&rich::line(choices)).0);
        }
        wires.send_to_worker(self.wire, &bytes);
    }

    /// Sends the input's own bytes; nothing is expected of the replies but
    /// that they are replies.
    pub fn attack(&mut self, bytes: &[u8], wires: &mut Wires, ledger: &mut Ledger) {
        self.is_hostile = true;
        ledger.has_hostile_clients = true;
        wires.send_to_worker(self.wire, bytes);
    }

    /// Reads what came, and makes room for more.
    pub fn read(&mut self, room: usize, wires: &mut Wires, ledger: &mut Ledger) {
        self.received.extend(wires.take_from_worker(self.wire, room));
        let protocol = if self.is_hostile { Protocol::Resp3 } else { Protocol::Resp2 };
        let mut pos = 0;
        loop {
            let rest = &self.received[pos..];
            match Framer::new(protocol).frame(rest, u32::MAX, 16) {
                Ok(Framing::Ready { len, kind }) => {
                    let expected = self.expected.pop_front();
                    // One client too many is told so before it asks.
                    self.quit |= rest.starts_with(b"-ERR max number of clients");
                    let may_be_odd = self.is_hostile || self.quit;
                    judge(expected, may_be_odd, (kind, &rest[..len]), ledger);
                    pos += len;
                }
                Ok(Framing::NeedMore { .. }) => break,
                Err(fault) => panic!("{fault:?} sent to a client: {:?}", shown(rest)),
            }
        }
        self.received.drain(..pos);
        ledger.check();
        let wire = &wires.wires[self.wire];
        if !wire.is_open {
            // One client too many is never watched.
            let is_excused = wire.end == Some(End::Reset) || !wire.is_watched();
            self.on_closed(is_excused, ledger);
        }
    }

    fn on_closed(&mut self, is_excused: bool, ledger: &Ledger) {
        // Without its password a client may not send as much as others.
        let is_suspect = self.is_hostile || self.is_locked;
        let gave_reason = is_suspect || self.quit || ledger.may_close || is_excused;
        let is_done = self.has_ended && self.is_content();
        assert!(gave_reason || is_done, "client {} was closed for no reason", self.number);
        self.expected.clear();
    }
}

fn judge(expected: Option<Expected>, may_be_odd: bool, got: (Kind, &[u8]), ledger: &mut Ledger) {
    let (kind, bytes) = got;
    match expected {
        None => assert!(may_be_odd, "a reply to no request: {:?}", shown(bytes)),
        Some(Expected::Bytes { request, .. }) if kind == Kind::Error => {
            let text = bytes.escape_ascii().to_string();
            // Of a split request some parts may have been sent.
            let is_whole = !text.contains("of the keys");
            // Who asked for anything does not know which request it is about.
            if !may_be_odd && is_whole && text.contains("the request was not sent") {
                ledger.unsent.insert(request);
            }
        }
        Some(Expected::Bytes { reply, .. }) if !may_be_odd && !ledger.has_hostile_servers => {
            assert_eq!(shown(&reply), shown(bytes), "another's reply");
        }
        Some(_) => {}
    }
}

pub struct Server {
    /// Its connections to the worker, oldest first.
    pub connections: Vec<Connection>,
    database: u32,
    knows_hello: bool,
}

pub struct Connection {
    pub wire: usize,
    received: Vec<u8>,
    database: u32,
    state: rich::State,
    /// It sent what is no reply, or replies to nothing.
    is_tainted: bool,
}

impl Server {
    pub fn new(database: u32, knows_hello: bool) -> Self {
        Self { connections: Vec::new(), database, knows_hello }
    }

    pub fn on_connected(&mut self, wire: usize) {
        let (received, state) = (Vec::new(), rich::State::default());
        self.connections.push(Connection { wire, received, database: 0, state, is_tainted: false });
    }

    /// Answers up to `count` requests of each connection.
    pub fn work(&mut self, count: usize, room: usize, wires: &mut Wires, ledger: &mut Ledger) {
        let place = (self.database, self.knows_hello);
        self.connections.retain(|connection| wires.wires[connection.wire].is_open);
        for connection in &mut self.connections {
            connection.work((count, room), place, wires, ledger);
        }
    }

    /// Sends the input's own bytes on one connection.
    pub fn attack(&mut self, choices: &mut Choices, wires: &mut Wires, ledger: &mut Ledger) {
        self.send(choices.bytes(60), choices, wires, ledger);
    }

    /// Pushes something on one connection.
    pub fn push(&mut self, choices: &mut Choices, wires: &mut Wires, ledger: &mut Ledger) {
        self.send(&rich::push(choices), choices, wires, ledger);
    }

    fn send(
        &mut self,
        bytes: &[u8],
        choices: &mut Choices,
        wires: &mut Wires,
        ledger: &mut Ledger,
    ) {
        if self.connections.is_empty() || bytes.is_empty() {
            return;
        }
        let at = choices.below(self.connections.len());
        self.connections[at].is_tainted = true;
        ledger.has_hostile_servers = true;
        wires.send_to_worker(self.connections[at].wire, bytes);
    }

    /// Closes or resets one connection.
    pub fn hang_up(&mut self, choices: &mut Choices, wires: &mut Wires) {
        if self.connections.is_empty() {
            return;
        }
        let at = choices.below(self.connections.len());
        wires.end(self.connections[at].wire, choices.pick(&[End::Closed, End::Reset]));
    }

    /// Closes the connections on which nobody can tell any more which reply
    /// is whose.
    pub fn repent(&mut self, wires: &mut Wires) {
        for connection in self.connections.iter().filter(|connection| connection.is_tainted) {
            wires.end(connection.wire, End::Closed);
        }
    }
}

impl Connection {
    fn work(
        &mut self,
        (count, room): (usize, usize),
        (base, knows_hello): (u32, bool),
        wires: &mut Wires,
        ledger: &mut Ledger,
    ) {
        self.received.extend(wires.take_from_worker(self.wire, room));
        if wires.wires[self.wire].end.is_some() {
            return;
        }
        let mut out = Vec::new();
        let mut pos = 0;
        for _ in 0..count {
            let Some((words, next)) = read_request(&self.received, pos) else { break };
            if self.state.is_blocked {
                break;
            }
            if !self.state.answer(&words, knows_hello, &mut out) {
                answer(&words, (&mut self.database, base), &mut out, ledger);
            }
            pos = next;
        }
        self.received.drain(..pos);
        if !out.is_empty() {
            wires.send_to_worker(self.wire, &out);
        }
    }
}

/// The request at `at` and where the next one starts; `None` while it is not
/// whole. As strict as a server: what it would close its connection for must
/// never be sent to it.
fn read_request(buf: &[u8], at: usize) -> Option<(Vec<&[u8]>, usize)> {
    let (count, mut at) = read_length(buf, at, b'*')?;
    assert!(count > 0, "a request of nothing sent to a server");
    let mut words = Vec::new();
    for _ in 0..count {
        let (len, start) = read_length(buf, at, b'$')?;
        let end = start + len;
        let line_end = buf.get(end..end + 2)?;
        assert_eq!(line_end, b"\r\n", "sent to a server: {:?}", shown(buf));
        words.push(&buf[start..end]);
        at = end + 2;
    }
    Some((words, at))
}

/// A length line: the mark, then the one way to write the number.
fn read_length(buf: &[u8], at: usize, mark: u8) -> Option<(usize, usize)> {
    assert_eq!(*buf.get(at)?, mark, "sent to a server: {:?}", shown(&buf[at..]));
    let len = buf[at + 1..].windows(2).position(|pair| pair == b"\r\n")?;
    let text = std::str::from_utf8(&buf[at + 1..at + 1 + len]).unwrap_or("?");
    let number: usize = text.parse().unwrap_or(usize::MAX);
    assert_eq!(number.to_string(), text, "a length sent to a server: {:?}", shown(&buf[at..]));
    assert!(number <= 512 << 20, "a length sent to a server: {text}");
    Some((number, at + 1 + len + 2))
}

/// What a server that holds every key under its own name answers.
fn answer(
    words: &[&[u8]],
    (database, base): (&mut u32, u32),
    out: &mut Vec<u8>,
    ledger: &mut Ledger,
) {
    let is = |name: &[u8]| words[0].eq_ignore_ascii_case(name);
    let key = words.get(1).copied().unwrap_or_default();
    if is(b"SELECT") {
        let number = std::str::from_utf8(key).ok().and_then(|text| text.parse().ok());
        *database = number.expect("the proxy selects by number");
        return reply::simple(out, "OK");
    }
    if !ledger.has_hostile_clients {
        note_execution(words, (*database, base), ledger);
    }
    match () {
        () if is(b"GET") => reply::bulk(out, key),
        () if is(b"MGET") => {
            reply::array(out, words.len() - 1);
            words[1..].iter().for_each(|key| reply::bulk(out, key));
        }
        () if is(b"DEL") => reply::integer(out, words.len() as i64 - 1),
        () if is(b"PING") => reply::simple(out, "PONG"),
        () => reply::simple(out, "OK"),
    }
}

/// Checks that the request is where it belongs and has not been here before.
fn note_execution(words: &[&[u8]], (database, base): (u32, u32), ledger: &mut Ledger) {
    let Some((wanted, request)) = words.get(1).and_then(|key| read_key(key)) else { return };
    assert_eq!(database, base + wanted, "executed on the wrong database: {:?}", shown(words[1]));
    if let Some(request) = request {
        assert!(ledger.executed.insert(request), "request {request} was executed twice");
        ledger.check();
    }
}

/// The database and, unless the request may have been split, the number in an
/// honest client's key.
fn read_key(key: &[u8]) -> Option<(u32, Option<u32>)> {
    let text = std::str::from_utf8(key.strip_prefix(b"c")?).ok()?;
    let mut parts = text.split(':');
    let (_, database, request) = (parts.next()?, parts.next()?, parts.next()?);
    Some((database.strip_prefix('d')?.parse().ok()?, request.parse().ok()))
}
