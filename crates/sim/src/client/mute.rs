//! Clients that ask for much and do not read it, or stop in the middle of what they send.

use super::{Client, Phase};
use crate::ledger::Ledger;
use crate::network::{INITIATOR, MILLI, Nanos, Network, Sent};
use crate::server::key_name;
use crate::value;
use crate::wire::write_request;

/// What such a client does, once it has stored a value.
#[derive(Clone, Copy, Debug)]
pub struct Mute {
    /// Bytes of the value.
    pub value_len: usize,
    /// How often it asks for it.
    pub asks: usize,
    /// How many times at once, by one request.
    pub at_once: usize,
    /// It goes on to send half of another such value.
    pub stops_midway: bool,
    /// Bytes that it reads before it reads no more.
    pub reads: usize,
    /// When it leaves.
    pub until: Nanos,
    /// It speaks to servers of memcached.
    pub is_memcached: bool,
}

impl Client {
    /// Does what is due, of a client that does not read.
    pub(super) fn step_mute(&mut self, mute: Mute, network: &mut Network, ledger: &mut Ledger) {
        let Some(conn) = self.conn else { return self.begin_mute(mute, network, ledger) };
        if network.now >= mute.until {
            let reset = self.random.percent(50);
            return self.disconnect(network, reset);
        }
        // That nothing moves is its own fault.
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
        let value = value::compose(&name, ledger.new_write(), mute.value_len);
        mute.write_set(&mut self.output, &name, &value);
        for _ in 0..mute.asks {
            mute.write_get(&mut self.output, &name);
        }
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
