//! Visitors: clients that leave in the middle of a request, at any byte, by a close, a reset or an
//! end of only their own side. They check no reply, unlike other clients. At the end of the run it
//! is checked whether they left anything behind.

use crate::ledger::Ledger;
use crate::network::{ConnId, INITIATOR, MICRO, MILLI, Nanos, Network, Received, SECOND, Sent};
use crate::random::Random;
use crate::wire::write_request;
use crate::{memcached, value};

/// The longest stay of a visitor that reads nothing and cannot send the rest. The other side may
/// not read either.
const STAYS_MAX: Nanos = 4 * SECOND;

/// The protocol of a pool's visitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tongue {
    /// Redis's protocol, to servers or to a store.
    Redis {
        /// True if the pool is the embedded store.
        is_store: bool,
        /// True if channels may be subscribed to. The ledgers of the servers support this only for
        /// pools that are no cluster.
        hears: bool,
        /// True if keys may be tracked.
        tracks: bool,
    },
    /// memcached's classic commands. With `all`, also the meta commands and packets.
    Memcached { all: bool },
}

/// Where a visitor goes.
#[derive(Clone, Debug)]
pub struct Place {
    /// The listener.
    pub listener: u16,
    /// The protocol there.
    pub tongue: Tongue,
    /// The password that it sends first.
    pub password: Option<String>,
    /// Length of the longest value that is written there.
    pub value_len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Close,
    Reset,
    /// Ends its own side and reads to the end.
    Finish,
}

/// One visitor.
pub struct Visitor {
    /// Its index in the network.
    index: usize,
    place: Place,
    visits_left: u32,
    visit: u32,
    conn: Option<ConnId>,
    output: Vec<u8>,
    way: Ending,
    reads: bool,
    write_from: Nanos,
    leave_at: Option<Nanos>,
    /// The time at which it leaves although it could not send everything.
    gives_up_at: Nanos,
    /// Since when it waits for the other side to end.
    finished_at: Option<Nanos>,
    random: Random,
}

impl Visitor {
    /// Creates a visitor that has not connected yet.
    pub fn new(index: usize, place: Place, mut random: Random) -> Self {
        Self {
            index,
            place,
            visits_left: random.between(1, 12) as u32,
            visit: 0,
            conn: None,
            output: Vec::new(),
            way: Ending::Close,
            reads: true,
            write_from: 0,
            leave_at: None,
            gives_up_at: Nanos::MAX,
            finished_at: None,
            random,
        }
    }

    /// Returns whether it will not connect again.
    pub fn is_done(&self) -> bool {
        self.visits_left == 0 && self.conn.is_none()
    }

    /// Returns the time since which it waits for its connection to end.
    pub fn waiting_since(&self) -> Option<Nanos> {
        self.finished_at
    }

    /// Ends its visits.
    pub fn leave_for_good(&mut self, network: &mut Network) {
        self.visits_left = 0;
        self.close(network, false);
    }

    /// Does what is due.
    pub fn step(&mut self, network: &mut Network, ledger: &mut Ledger) {
        let Some(conn) = self.conn else { return self.come(network, ledger) };
        if (self.reads || self.finished_at.is_some()) && self.has_ended(conn, network) {
            return self.close(network, false);
        }
        if self.finished_at.is_some() {
            return;
        }
        if network.now >= self.write_from && !self.output.is_empty() {
            self.write(conn, network);
        }
        if !self.reads && !self.output.is_empty() && network.now >= self.gives_up_at {
            self.output.clear();
        }
        if self.output.is_empty() {
            let now = network.now;
            let longest = self.random.pick(&[MICRO, 50 * MICRO, MILLI, 30 * MILLI, 2 * SECOND]);
            let at = *self.leave_at.get_or_insert_with(|| now + self.random.below(longest + 1));
            if at <= now {
                return self.leave(conn, network);
            }
            network.wake_client(self.index, at);
        } else if self.write_from > network.now {
            network.wake_client(self.index, self.write_from);
        } else if !self.reads {
            network.wake_client(self.index, self.gives_up_at);
        }
    }

    fn come(&mut self, network: &mut Network, ledger: &mut Ledger) {
        let Some(left) = self.visits_left.checked_sub(1) else { return };
        let worker = self.random.index(network.stations.len());
        let Some(conn) = network.connect_client(self.index, worker, self.place.listener) else {
            self.visits_left = 0;
            return;
        };
        network.tell(|| format!("visitor {} connects to worker {worker} as {conn}", self.index));
        (self.visits_left, self.visit) = (left, self.visit + 1);
        self.conn = Some(conn);
        self.output.clear();
        if let Some(password) = &self.place.password {
            write_request(&mut self.output, &[b"AUTH", password.as_bytes()]);
        }
        match self.place.tongue {
            Tongue::Redis { is_store, .. } => self.ask_redis(is_store, ledger),
            Tongue::Memcached { all } => self.ask_memcached(all, ledger),
        }
        if self.random.percent(30) {
            let len = self.random.between(0, self.output.len() as u64) as usize;
            self.output.truncate(len);
        }
        self.way = self.random.pick(&[Ending::Close, Ending::Close, Ending::Reset, Ending::Finish]);
        self.reads = self.random.percent(70);
        (self.leave_at, self.finished_at) = (None, None);
        self.write_from = network.now;
        self.gives_up_at = network.now + STAYS_MAX;
        network.wake_client(self.index, network.now);
    }

    /// Reads what has arrived. Returns whether the other side has ended.
    fn has_ended(&mut self, conn: ConnId, network: &mut Network) -> bool {
        let mut thrown = Vec::new();
        loop {
            match network.recv(conn, INITIATOR, 64 << 10, &mut thrown) {
                Received::Data(_) => thrown.clear(),
                Received::Empty => return false,
                Received::End | Received::Failed => return true,
            }
        }
    }

    fn write(&mut self, conn: ConnId, network: &mut Network) {
        let most = self.random.pick(&[3, 100, 1 << 20]);
        let len = self.random.between(1, most).min(self.output.len() as u64) as usize;
        match network.send(conn, INITIATOR, &self.output[..len]) {
            Sent::Taken(taken) => {
                self.output.drain(..taken);
            }
            Sent::Failed => self.output.clear(),
        }
        self.write_from = network.now + self.random.scaled(MICRO, MILLI);
    }

    fn leave(&mut self, conn: ConnId, network: &mut Network) {
        let way = self.way;
        network.tell(|| format!("visitor {} leaves {conn}: {way:?}", self.index));
        match way {
            Ending::Close => self.close(network, false),
            Ending::Reset => self.close(network, true),
            Ending::Finish => {
                network.finish(conn, INITIATOR);
                self.finished_at = Some(network.now);
                if self.has_ended(conn, network) {
                    self.close(network, false);
                }
            }
        }
    }

    fn close(&mut self, network: &mut Network, reset: bool) {
        if let Some(conn) = self.conn.take() {
            network.close(conn, INITIATOR, reset);
        }
        self.finished_at = None;
        if self.visits_left > 0 {
            let pause = self.random.scaled(10 * MICRO, SECOND);
            network.wake_client(self.index, network.now + pause);
        }
    }

    /// Returns a key of this visit. Requests of earlier visits that are still in flight do not use
    /// it.
    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(4);
        format!("z0:visitor{}x{}:{number}", self.index, self.visit).into_bytes()
    }

    /// Returns a key, and the next value that is written to it.
    fn item(&mut self, ledger: &mut Ledger) -> (Vec<u8>, Vec<u8>) {
        let key = self.key();
        let longest = if self.random.percent(10) { self.place.value_len } else { 100 };
        let len = self.random.scaled(1, longest.clamp(2, self.place.value_len.max(2)) as u64);
        let value = value::compose(&key, ledger.new_write(), len as usize);
        (key, value)
    }

    fn say(&mut self, words: &[&[u8]]) {
        write_request(&mut self.output, words);
    }

    fn ask_redis(&mut self, is_store: bool, ledger: &mut Ledger) {
        let (hears, tracks) = match self.place.tongue {
            Tongue::Redis { hears, tracks, .. } => (hears, tracks),
            Tongue::Memcached { .. } => (false, false),
        };
        for _ in 0..self.random.between(1, 5) {
            self.ask_redis_once(is_store, ledger);
        }
        let (key, other) = (self.key(), self.key());
        match self.random.below(14) {
            0 => self.say(&[b"BLPOP", b"z0:none", b"0"]),
            1 => self.say(&[b"BLPOP", b"z0:none", b"0.05"]),
            2 => {
                self.say(&[b"MULTI"]);
                self.say(&[b"INCR", b"z0:visits"]);
            }
            3 => {
                self.say(&[b"WATCH", &key]);
                self.say(&[b"MULTI"]);
                self.say(&[b"INCR", b"z0:visits"]);
                self.say(&[b"EXEC"]);
            }
            4 => self.say(&[b"WATCH", &key]),
            5 if hears => {
                self.say(&[b"SUBSCRIBE", b"z0:news"]);
                self.say(&[b"PSUBSCRIBE", b"z0:*"]);
            }
            6 if hears => self.say(&[b"SSUBSCRIBE", b"z0:news"]),
            7 if tracks => {
                self.say(&[b"HELLO", b"3"]);
                self.say(&[b"CLIENT", b"TRACKING", b"ON"]);
                self.say(&[b"GET", &key]);
            }
            8 => {
                self.say(&[b"CLIENT", b"REPLY", b"OFF"]);
                self.say(&[b"GET", &key]);
                self.say(&[b"MGET", &key, &other]);
            }
            9 => {
                self.say(&[b"CLIENT", b"REPLY", b"SKIP"]);
                self.say(&[b"INCR", b"z0:visits"]);
            }
            10 if is_store => self.say(&[b"XREAD", b"BLOCK", b"0", b"STREAMS", b"z0:none", b"$"]),
            11 if is_store => {
                self.say(&[b"EVAL", b"return redis.call('get', KEYS[1])", b"1", &key])
            }
            12 => self.say(&[b"QUIT"]),
            13 => self.output.extend_from_slice(b"*1\r\n$x\r\n"),
            _ => self.ask_redis_once(is_store, ledger),
        }
    }

    fn ask_redis_once(&mut self, is_store: bool, ledger: &mut Ledger) {
        let (key, other) = (self.key(), self.key());
        match self.random.below(11) {
            0 => self.say(&[b"GET", &key]),
            1 => self.say(&[b"MGET", &key, &other]),
            2 | 3 => {
                let (key, value) = self.item(ledger);
                self.say(&[b"SET", &key, &value]);
            }
            4 => {
                let (key, value) = self.item(ledger);
                self.say(&[b"MSET", &key, &value]);
            }
            5 => self.say(&[b"INCR", b"z0:visits"]),
            6 => self.say(&[b"DEL", &key, &other]),
            7 => self.say(&[b"EXISTS", &key, &other]),
            8 => self.say(&[b"PING"]),
            9 => self.say(&[b"NOSUCHCOMMAND", &key]),
            _ if is_store => self.say(&[b"DBSIZE"]),
            _ => self.say(&[b"SDIFF", &key, &other]),
        }
    }

    fn ask_memcached(&mut self, all: bool, ledger: &mut Ledger) {
        let speaks_packets = all && self.random.percent(40);
        for _ in 0..self.random.between(1, 5) {
            match speaks_packets {
                true => self.ask_in_packets(ledger),
                false => self.ask_in_lines(all, ledger),
            }
        }
    }

    fn ask_in_lines(&mut self, all: bool, ledger: &mut Ledger) {
        let (key, other) = (self.key(), self.key());
        let name = String::from_utf8_lossy(&key).into_owned();
        let line = match self.random.below(if all { 11 } else { 6 }) {
            0 => return memcached::write_get(&mut self.output, &[key, other]),
            1 => return memcached::write_get(&mut self.output, &[key]),
            2 => {
                let (key, value) = self.item(ledger);
                return memcached::write_set(&mut self.output, &key, &value);
            }
            3 | 4 => {
                let (key, value) = self.item(ledger);
                let name = String::from_utf8_lossy(&key).into_owned();
                return self.store(&format!("set {name} 0 0 {} noreply", value.len()), &value);
            }
            5 => format!("delete {name} noreply"),
            6 => format!("mg {name} v q"),
            7 => {
                let (key, value) = self.item(ledger);
                let name = String::from_utf8_lossy(&key).into_owned();
                return self.store(&format!("ms {name} {} q", value.len()), &value);
            }
            8 => format!("md {name} q"),
            9 => format!("mg {name} v"),
            _ => "mn".to_owned(),
        };
        self.output.extend_from_slice(line.as_bytes());
        self.output.extend_from_slice(b"\r\n");
    }

    fn store(&mut self, line: &str, value: &[u8]) {
        for part in [line.as_bytes(), b"\r\n", value, b"\r\n"] {
            self.output.extend_from_slice(part);
        }
    }

    fn ask_in_packets(&mut self, ledger: &mut Ledger) {
        let key = self.key();
        match self.random.below(6) {
            0 => self.packet(0x09, &[], &key, &[]),
            1 => self.packet(0x0d, &[], &key, &[]),
            2 => self.packet(0x14, &[], &key, &[]),
            3 => self.packet(0x00, &[], &key, &[]),
            4 => self.packet(0x0a, &[], &[], &[]),
            _ => {
                let (key, value) = self.item(ledger);
                self.packet(0x11, &[0; 8], &key, &value);
            }
        }
    }

    fn packet(&mut self, opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) {
        let body = (extras.len() + key.len() + value.len()) as u32;
        let out = &mut self.output;
        out.extend_from_slice(&[0x80, opcode]);
        out.extend_from_slice(&(key.len() as u16).to_be_bytes());
        out.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
        out.extend_from_slice(&body.to_be_bytes());
        out.extend_from_slice(&[0; 12]);
        [extras, key, value].iter().for_each(|part| out.extend_from_slice(part));
    }
}
