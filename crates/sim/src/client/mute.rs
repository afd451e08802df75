//! Clients that ask for much and do not read it, or stop in the middle of a request.

use super::{Client, Phase};
use crate::ledger::Ledger;
use crate::network::{INITIATOR, MILLI, Nanos, Network, Sent};
use crate::server::key_name;
use crate::value;
use crate::wire::write_request;

/// Number of elements of a list or a stream.
const PARTS: usize = 12;
/// Number of `SCAN` requests that replace one request for a value. The keys take a few hundred
/// bytes.
const SCANS: usize = 20;
/// Number of other clients' keys that a tracked client reads.
const READ_OF_OTHERS: usize = 40;

/// The replies that such a client asks for and does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The value that it has stored.
    Values,
    /// The messages of a channel, or of all channels of a pattern.
    Messages {
        /// True if it subscribes by a pattern.
        by_pattern: bool,
    },
    /// The requests of all clients of its pool.
    Requests,
    /// Changes of keys: of the keys that it has read, or of all that begin with `k`.
    Changes {
        /// True if it is told of all changes, also of keys that it has not read.
        is_broadcast: bool,
    },
    /// All keys.
    Keys,
    /// A list that it has pushed.
    List,
    /// A stream to which it has added entries.
    Stream,
}

/// The actions of such a client after it has stored a value.
#[derive(Clone, Copy, Debug)]
pub struct Mute {
    /// The value that it asks for.
    pub wanted: Wanted,
    /// Length of the value in bytes.
    pub value_len: usize,
    /// How often it asks for it.
    pub asks: usize,
    /// How many times one request asks for it.
    pub at_once: usize,
    /// True if it then sends half of another such value.
    pub stops_midway: bool,
    /// Number of bytes that it reads before it stops reading.
    pub reads: usize,
    /// When it leaves.
    pub until: Nanos,
    /// True if it uses servers of memcached.
    pub is_memcached: bool,
}

impl Client {
    /// Does what is due, for a client that does not read.
    pub(super) fn step_mute(&mut self, mute: Mute, network: &mut Network, ledger: &mut Ledger) {
        let Some(conn) = self.conn else { return self.begin_mute(mute, network, ledger) };
        if network.now >= mute.until {
            let reset = self.random.percent(50);
            return self.disconnect(network, reset);
        }
        // It is the client's own fault that nothing moves.
        self.last_progress = network.now;
        if !self.output.is_empty() {
            let len = self.output.len().min(self.habits.write_len);
            match network.send(conn, INITIATOR, &self.output[..len]) {
                Sent::Taken(taken) => drop(self.output.drain(..taken)),
                Sent::Failed => self.output.clear(),
            }
        }
        let left = mute.reads.saturating_sub(self.input.len());
        if left > 0 {
            let len = left.min(self.habits.read_len);
            let _ = network.recv(conn, INITIATOR, len, &mut self.input);
        }
        let pause = self.random.scaled(MILLI / 10, 20 * MILLI);
        network.wake_client(self.index, mute.until.min(network.now + pause));
    }

    fn begin_mute(&mut self, mute: Mute, network: &mut Network, ledger: &mut Ledger) {
        let worker = self.random.index(network.stations.len());
        self.connections_left = 0;
        self.conn = network.connect_client(self.index, worker, self.habits.listener);
        if self.conn.is_none() {
            self.phase = Phase::Done;
            return;
        }
        self.last_progress = network.now;
        if let Some(password) = self.habits.password.clone() {
            write_request(&mut self.output, &[b"AUTH", password.as_bytes()]);
        }
        let name = key_name('k', 0, &format!("mute{}", self.index), 0, false);
        self.write_wish(mute, &name, ledger);
        if mute.stops_midway {
            let mut whole = Vec::new();
            let value = value::compose(&name, ledger.new_write(), mute.value_len);
            mute.write_set(&mut whole, &name, &value);
            let half = self.random.index(whole.len());
            self.output.extend_from_slice(&whole[..half]);
        }
        network.wake_client(self.index, network.now + MILLI);
    }
}

impl Client {
    /// Writes the request for what it wants.
    fn write_wish(&mut self, mute: Mute, name: &[u8], ledger: &mut Ledger) {
        let roll = |kind| key_name(kind, 0, &format!("mute{}", self.index), 0, false);
        let part = vec![b'r'; mute.value_len.div_ceil(PARTS)];
        let out = &mut self.output;
        match mute.wanted {
            Wanted::Messages { by_pattern: false } => {
                return write_request(out, &[b"SUBSCRIBE", &loud_channel(self.habits.pool)]);
            }
            Wanted::Messages { by_pattern: true } => {
                return write_request(out, &[b"PSUBSCRIBE", b"m0:loud*"]);
            }
            Wanted::Requests => return write_request(out, &[b"MONITOR"]),
            Wanted::Changes { is_broadcast } => {
                write_request(out, &[b"HELLO", b"3"]);
                let mut words: Vec<&[u8]> = vec![b"CLIENT", b"TRACKING", b"ON"];
                words.extend_from_slice(if is_broadcast {
                    &[b"BCAST", b"PREFIX", b"k"]
                } else {
                    &[]
                });
                write_request(out, &words);
            }
            Wanted::List => {
                let name = roll('r');
                let mut words: Vec<&[u8]> = vec![b"RPUSH", &name];
                words.extend(std::iter::repeat_n(&part[..], PARTS));
                write_request(out, &words);
                for _ in 0..mute.asks {
                    write_request(out, &[b"LRANGE", &name, b"0", b"-1"]);
                }
                return;
            }
            Wanted::Stream => {
                let name = roll('q');
                for _ in 0..PARTS {
                    write_request(out, &[b"XADD", &name, b"*", b"f", &part]);
                }
                for _ in 0..mute.asks {
                    write_request(out, &[b"XRANGE", &name, b"-", b"+"]);
                }
                return;
            }
            Wanted::Values | Wanted::Keys => {}
        }
        let value = value::compose(name, ledger.new_write(), mute.value_len);
        mute.write_set(out, name, &value);
        for _ in 0..mute.asks {
            match mute.wanted {
                Wanted::Keys => {
                    for _ in 0..SCANS {
                        write_request(out, &[b"SCAN", b"0", b"COUNT", b"1000"]);
                    }
                }
                _ => mute.write_get(out, name),
            }
        }
        if mute.wanted == (Wanted::Changes { is_broadcast: false }) {
            // The other clients change these keys.
            for number in 0..READ_OF_OTHERS {
                let other = key_name('k', 0, &format!("c{}g1", number % 4), number / 4, false);
                write_request(out, &[b"GET", &other]);
            }
        }
    }
}

/// Returns the channel on which the clients of a pool publish large messages.
pub(super) fn loud_channel(pool: usize) -> Vec<u8> {
    key_name('m', 0, &format!("loud{pool}"), 0, false)
}

impl Mute {
    fn write_set(&self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        if !self.is_memcached {
            return write_request(out, &[b"SET", name, value]);
        }
        out.extend_from_slice(b"set ");
        out.extend_from_slice(name);
        out.extend_from_slice(format!(" 0 0 {}\r\n", value.len()).as_bytes());
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }

    fn write_get(&self, out: &mut Vec<u8>, name: &[u8]) {
        let names = std::iter::repeat_n(name, self.at_once);
        if !self.is_memcached {
            let word: &[u8] = if self.at_once > 1 { b"MGET" } else { b"GET" };
            let words: Vec<&[u8]> = std::iter::once(word).chain(names).collect();
            return write_request(out, &words);
        }
        out.extend_from_slice(b"get");
        for name in names {
            out.push(b' ');
            out.extend_from_slice(name);
        }
        out.extend_from_slice(b"\r\n");
    }
}
