//! A simulated client. It sends a random script in pieces, pipelines, reads slowly and cuts
//! connections off. It checks every reply against what it asked.

mod cached;
mod channels;
mod entries;
mod expected;
mod habits;
mod hoard;
mod mute;
mod reads;
mod stateful;
mod unread;
mod verdict;

use crate::large::is_part_of_large;
use crate::ledger::{Circumstances, Ledger};
use crate::model::{CounterModel, Fate, KeyModel};
use crate::network::{ConnId, INITIATOR, MICRO, Nanos, Network, Received, Sent};
use crate::random::Random;
use crate::server::key_name;
use crate::wire::{Value, clip, parse_value, write_request};
use crate::{memcached, value};
use cached::Cache;
use channels::Hearing;
use entries::Reading;
pub use entries::id_of;
use expected::{Ask, Expected};
pub use habits::{Habits, Hoard, Mix, Staleness};
pub use mute::{Mute, Wanted};
use stateful::Attempt;
use std::collections::VecDeque;
use unread::Unread;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// The client has announced that it sends no more, and reads what is left.
    HalfClosed,
    /// The proxy is about to close the connection, after QUIT or a broken frame.
    Leaving {
        may_lose: bool,
    },
    Resting,
    Done,
}

struct Keys {
    strings: Vec<KeyModel>,
    counters: Vec<CounterModel>,
}

/// One client.
pub struct Client {
    index: usize,
    habits: Habits,
    conn: Option<ConnId>,
    /// Counts connections. Also makes names of keys that were never used.
    generation: u32,
    connections_left: u32,
    requests_left: u32,
    cut_at: Option<u32>,
    phase: Phase,
    output: Vec<u8>,
    /// Number of bytes of the connection that the network has taken.
    written: u64,
    input: Vec<u8>,
    expected: VecDeque<Expected>,
    databases: Vec<Keys>,
    database: usize,
    /// True if what is asked now gets no reply.
    is_silent: bool,
    /// True if the client has sent a write on this connection.
    has_written: bool,
    /// True if a write of this connection was accepted.
    has_write_done: bool,
    /// The proxy's id of this connection.
    id: Option<i64>,
    /// The shared counter that the client is about to raise.
    attempt: Option<Attempt>,
    reading: Reading,
    hearing: Hearing,
    cache: Cache,
    /// True if a command was refused, of the transaction whose replies arrive now.
    is_refused: bool,
    /// True if a request of this connection may have been executed, or may still be.
    is_unsure: bool,
    /// The server on which the keys of the next requests should be.
    home_wanted: Option<usize>,
    /// The time since which the client waits for its next reply, and the time at which that was
    /// asked.
    front_since: Nanos,
    front_asked_at: Nanos,
    /// The time from which on some request has waited for its reply.
    busy_since: Nanos,
    /// The time at which the request that was answered last was asked.
    answered_asked_at: Nanos,
    read_from: Nanos,
    write_from: Nanos,
    last_progress: Nanos,
    unread: Unread,
    tags: u64,
    /// True if workers are being stopped. Then it is no violation if a connection is cut off.
    draining: bool,
    /// It was told that its requests are waited for no longer; its connection is closed next.
    is_given_up: bool,
    /// Number of replies that the client must still get although workers are being stopped.
    owed: usize,
    random: Random,
}

impl Client {
    /// Creates a client that has not connected yet.
    pub fn new(index: usize, habits: Habits, random: Random) -> Self {
        Self {
            index,
            connections_left: habits.connections,
            habits,
            conn: None,
            generation: 0,
            requests_left: 0,
            cut_at: None,
            phase: Phase::Running,
            output: Vec::new(),
            written: 0,
            input: Vec::new(),
            expected: VecDeque::new(),
            databases: Vec::new(),
            database: 0,
            is_silent: false,
            has_written: false,
            has_write_done: false,
            id: None,
            attempt: None,
            reading: Reading::default(),
            hearing: Hearing::default(),
            cache: Cache::default(),
            is_refused: false,
            is_unsure: false,
            home_wanted: None,
            front_since: 0,
            front_asked_at: 0,
            busy_since: 0,
            answered_asked_at: 0,
            read_from: 0,
            unread: Unread::default(),
            write_from: 0,
            last_progress: 0,
            tags: 0,
            draining: false,
            is_given_up: false,
            owed: 0,
            random,
        }
    }

    /// Returns whether the client has nothing more to ask.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Resting)
    }

    /// Returns whether the client has a connection.
    pub fn is_connected(&self) -> bool {
        self.conn.is_some()
    }

    /// Returns the time since which nothing has moved although something should, or `None` if the
    /// client waits for nothing.
    pub fn waiting_since(&self) -> Option<Nanos> {
        let more = self.waits_for().unwrap_or(0);
        (self.conn.is_some() && !self.is_done()).then_some(self.last_progress + more)
    }

    /// Notes that workers are being stopped. Requests that have reached them by now must still be
    /// answered if there are at most `most` of them. Then nothing but the client's own reading can
    /// delay the replies.
    pub fn on_drain(&mut self, network: &Network, most: usize) {
        self.draining = true;
        let Some(conn) = self.conn else { return };
        let (under_way, is_taken) = network.under_way(conn, INITIATOR);
        if !is_taken || self.expected.len() > most {
            return;
        }
        let arrived = self.written - under_way as u64;
        let loud = self.expected.iter().filter(|expected| !expected.is_silent);
        self.owed = loud.filter(|expected| expected.end <= arrived).count();
    }

    /// Describes what the client waits for, for a report.
    pub fn describe(&self) -> String {
        format!(
            "client {} on {:?}, {:?}: {} replies missing, {} bytes unsent, {} requests to go",
            self.index,
            self.conn,
            self.phase,
            self.expected.len(),
            self.output.len(),
            self.requests_left
        )
    }

    /// Does what is due.
    pub fn step(&mut self, network: &mut Network, ledger: &mut Ledger) {
        if self.phase == Phase::Done {
            return;
        }
        if let Some(mute) = self.habits.mute {
            return self.step_mute(mute, network, ledger);
        }
        if self.conn.is_none() && !self.connect(network, ledger) {
            return;
        }
        if network.now >= self.read_from {
            self.read(network, ledger);
        }
        if self.conn.is_some() && network.now >= self.write_from {
            self.act(network, ledger);
        }
        self.leave_if_tired(network, ledger);
        if self.conn.is_none() && self.phase != Phase::Done {
            let pause = self.random.between(1, self.habits.pause.max(2));
            return network.wake_client(self.index, network.now + pause);
        }
        if self.read_from > network.now {
            network.wake_client(self.index, self.read_from);
        }
        if self.write_from > network.now {
            network.wake_client(self.index, self.write_from);
        }
    }

    /// Leaves if the client has waited for elements for long enough.
    fn leave_if_tired(&mut self, network: &mut Network, ledger: &mut Ledger) {
        let Some(at) = self.leaves_at().filter(|_| self.conn.is_some()) else { return };
        if at > network.now {
            return network.wake_client(self.index, at);
        }
        let reset = self.random.percent(50);
        self.leave(network, ledger, reset);
    }

    /// Leaves without a reason from outside.
    fn leave(&mut self, network: &mut Network, ledger: &mut Ledger, reset: bool) {
        self.note_departure(network.now, ledger);
        self.disconnect(network, reset);
    }

    fn connect(&mut self, network: &mut Network, ledger: &mut Ledger) -> bool {
        if self.connections_left == 0 {
            self.phase = Phase::Done;
            return false;
        }
        let worker = self.random.index(network.stations.len());
        let Some(conn) = network.connect_client(self.index, worker, self.habits.listener) else {
            self.phase = Phase::Done;
            return false;
        };
        network.tell(|| format!("client {} connects to worker {worker} as {conn}", self.index));
        self.connections_left -= 1;
        self.conn = Some(conn);
        self.phase = Phase::Running;
        self.requests_left = self.habits.requests;
        self.cut_at = (self.random.percent(self.habits.cut_percent))
            .then(|| self.random.below(u64::from(self.habits.requests).max(1)) as u32);
        self.database = 0;
        self.last_progress = network.now;
        self.written = 0;
        (self.has_written, self.has_write_done) = (false, false);
        self.output.clear();
        self.input.clear();
        let is_unsure = std::mem::take(&mut self.is_unsure);
        if !self.expected.is_empty() || self.databases.is_empty() || is_unsure {
            // Requests that were cut off may still be executed, in any order with the next ones. So
            // the client goes on with keys of new names.
            self.expected.clear();
            self.name_keys(ledger);
        }
        self.ask_auth(network.now);
        self.forget_hearing();
        self.attempt = None;
        self.reading.groups.clear();
        if self.habits.stateful {
            self.ask_id(network.now);
        }
        true
    }

    fn ask_auth(&mut self, now: Nanos) {
        if let Some(password) = self.habits.password.clone() {
            write_request(&mut self.output, &[b"AUTH", password.as_bytes()]);
            self.expect(now, Ask::Exactly(ok()), Vec::new());
        }
    }

    fn name_keys(&mut self, ledger: &mut Ledger) {
        self.generation += 1;
        let owner = format!("c{}g{}", self.index, self.generation);
        let habits = &self.habits;
        self.databases = (0..habits.databases)
            .map(|database| {
                let name = |kind, number| key_name(kind, database, &owner, number, habits.tagged);
                let expires = habits.hoard.is_some_and(|hoard| hoard.expires);
                let string = |number| {
                    let kind = if expires && number % 2 == 1 { hoard::EXPIRING } else { 'k' };
                    let name = name(kind, number);
                    let now = ledger.circumstances(habits.pool, &name);
                    KeyModel::new(name, habits.changes_links(), now)
                };
                let counter = |number| {
                    let name = name('n', number);
                    let now = ledger.circumstances(habits.pool, &name);
                    CounterModel::new(name, habits.changes_links(), now)
                };
                Keys {
                    strings: (0..habits.keys).map(string).collect(),
                    counters: (0..2).map(counter).collect(),
                }
            })
            .collect();
        if ledger.is_warmed_up(self.habits.pool) {
            self.inherit(ledger);
        }
    }

    /// Makes the old pool hold some of the client's keys from the beginning.
    fn inherit(&mut self, ledger: &mut Ledger) {
        let (pool, value_len) = (self.habits.pool, self.habits.value_len as u64);
        for keys in &mut self.databases {
            for key in &mut keys.strings {
                if self.random.percent(30) {
                    continue;
                }
                let write = ledger.new_write();
                let len = self.random.scaled(1, value_len) as usize;
                let bytes = value::compose(&key.name, write, len);
                if ledger.bequeath(pool, &key.name, bytes, write) {
                    key.inherit(write);
                }
            }
        }
    }

    fn expect(&mut self, now: Nanos, ask: Ask, circumstances: Vec<Circumstances>) {
        let database = self.database;
        let is_silent = self.is_silent;
        let end = self.written + self.output.len() as u64;
        if self.expected.is_empty() {
            self.front_since = now;
            self.front_asked_at = now;
            self.busy_since = now;
        }
        let may_be_stale = self.may_be_stale(&ask);
        let front_asked_at = self.expected.front().map_or(now, |front| front.asked_at);
        self.expected.push_back(Expected {
            ask,
            asked_at: now,
            front_asked_at,
            database,
            circumstances,
            is_silent,
            may_be_stale,
            end,
        });
    }

    fn read(&mut self, network: &mut Network, ledger: &mut Ledger) {
        let Some(conn) = self.conn else { return };
        let len = self.random.between(1, self.habits.read_len as u64) as usize;
        let outcome = network.recv(conn, INITIATOR, len, &mut self.input);
        self.unread.look(network.now);
        match outcome {
            Received::Data(len) => {
                self.unread.take(len, network.options().capacity, network.now);
                self.last_progress = network.now;
                self.take_replies(network, ledger);
                let pause = self.random.below(self.habits.pause / 4 + 1);
                self.read_from = network.now + pause;
                if pause == 0 {
                    network.wake_client(self.index, network.now);
                }
            }
            Received::Empty => self.unread.take(0, 0, network.now),
            Received::End | Received::Failed => {
                self.on_end(outcome == Received::Failed, network, ledger);
            }
        }
    }

    fn on_end(&mut self, is_reset: bool, network: &mut Network, ledger: &mut Ledger) {
        let is_missing = self.expected.iter().any(|expected| !expected.is_silent);
        let is_cut = is_part_of_large(&self.input);
        // The worker ended the connection to free memory, because more than allowed waits for
        // clients.
        let is_ended = self.unread.is_stalled() && self.habits.may_be_ended;
        let may_close =
            self.draining || self.is_given_up || self.habits.may_be_killed || is_cut || is_ended;
        let (is_due, may_lose) = match self.phase {
            Phase::Leaving { may_lose } => (true, may_lose),
            Phase::HalfClosed => (true, false),
            _ => (may_close, may_close),
        };
        if !is_due {
            let what = if is_reset { "reset" } else { "closed" };
            ledger.fail(|| format!("the connection was {what}: {}", self.describe()));
        } else if is_missing && !may_lose && !may_close {
            ledger.fail(|| format!("closed with replies missing: {}", self.describe()));
        } else if self.owed > 0 && !(self.habits.may_be_killed || is_cut || is_ended) {
            let owed = self.owed;
            ledger.fail(|| format!("stopped with {owed} replies owed: {}", self.describe()));
        }
        self.note_departure(network.now, ledger);
        self.disconnect(network, false);
    }

    fn disconnect(&mut self, network: &mut Network, reset: bool) {
        self.is_given_up = false;
        if let Some(conn) = self.conn.take() {
            network.tell(|| format!("client {} closes {conn}", self.index));
            network.close(conn, INITIATOR, reset);
        }
        self.phase =
            if self.connections_left == 0 || self.draining { Phase::Done } else { Phase::Running };
        self.write_from = network.now;
        self.read_from = network.now;
        self.unread.begin(network.now);
    }

    fn act(&mut self, network: &mut Network, ledger: &mut Ledger) {
        let Some(conn) = self.conn else { return };
        if self.phase == Phase::Running && self.cut_at.is_some_and(|at| self.requests_left <= at) {
            let reset = self.random.percent(50);
            return self.leave(network, ledger, reset);
        }
        if self.phase == Phase::Running {
            self.go_on_with_attempt(network.now, ledger);
        }
        if self.phase == Phase::Running && self.output.len() < self.habits.write_len * 4 {
            let room = self.habits.depth.saturating_sub(self.expected.len());
            let most = room.min(self.requests_left as usize).min(self.habits.batch);
            if most > 0 {
                let count = self.random.between(1, most as u64);
                for _ in 0..count {
                    let is_silent = self.habits.silences && self.random.percent(3);
                    match is_silent && !self.is_bound() {
                        true => self.ask_in_silence(network.now, ledger),
                        false => self.ask(network.now, ledger),
                    }
                    self.requests_left -= 1;
                }
                self.settle_silent(ledger);
            }
        }
        if !self.output.is_empty() {
            let len = self.random.between(1, self.habits.write_len as u64) as usize;
            let len = len.min(self.output.len());
            match network.send(conn, INITIATOR, &self.output[..len]) {
                Sent::Taken(0) => {}
                Sent::Taken(taken) => {
                    let bytes = &self.output[..taken];
                    network.tell(|| format!("client {} writes {}", self.index, clip(bytes)));
                    self.output.drain(..taken);
                    self.written += taken as u64;
                    self.last_progress = network.now;
                }
                // Reading will notice the end.
                Sent::Failed => self.output.clear(),
            }
        }
        let is_out = self.output.is_empty();
        let is_out_of_requests = self.requests_left == 0 && self.attempt.is_none();
        if self.phase == Phase::Running && is_out_of_requests && is_out {
            self.finish(network, ledger);
        }
        let idle = is_out && self.expected.len() >= self.habits.depth;
        if !self.output.is_empty() || (self.phase == Phase::Running && !idle) {
            self.write_from = network.now + self.random.scaled(MICRO, self.habits.pause);
        }
    }

    /// Ends the connection after its last request was sent.
    fn finish(&mut self, network: &mut Network, ledger: &mut Ledger) {
        let Some(conn) = self.conn else { return };
        // A client that caches stays, to receive invalidations.
        let stays = self.connections_left == 0 && self.habits.tracks && self.random.percent(60);
        let way = self.random.below(if self.habits.local_commands { 5 } else { 4 });
        let is_memcached = self.habits.mix == Mix::Memcached;
        match if stays || (is_memcached && way == 1) { 2 } else { way } {
            0 => {
                network.finish(conn, INITIATOR);
                // A client that waits for elements and ends its side counts as gone.
                self.phase = match self.waits_for_elements() {
                    true => Phase::Leaving { may_lose: true },
                    false => Phase::HalfClosed,
                };
            }
            1 => {
                // Each is so long that the parser can decide at once.
                const BROKEN: [&[u8]; 4] = [
                    b"*1\r\n$x\r\nand more\r\n",
                    b"*x\r\n",
                    b"*2\r\n$4\r\nECHO\r\n+no and more\r\n",
                    b"GET \"open\r\n",
                ];
                let frame = self.random.pick(&BROKEN);
                self.output.extend_from_slice(frame);
                self.expect(network.now, Ask::BrokenFrame, Vec::new());
                self.phase = Phase::Leaving { may_lose: true };
            }
            4 => {
                write_request(&mut self.output, &[b"QUIT"]);
                self.expect(network.now, Ask::Exactly(ok()), Vec::new());
                self.phase = Phase::Leaving { may_lose: false };
            }
            _ if self.expected.is_empty() && self.connections_left > 0 => {
                self.leave(network, ledger, false);
            }
            _ if self.expected.is_empty() => self.phase = Phase::Resting,
            _ => {}
        }
    }

    fn ask(&mut self, now: Nanos, ledger: &mut Ledger) {
        match self.habits.mix {
            Mix::All => {}
            Mix::Gets => return self.ask_get(now, ledger),
            Mix::Sets => return self.ask_set(now, ledger),
            Mix::GetsMany => return self.ask_many(now, ledger, "MGET"),
            Mix::Memcached => return self.ask_memcached(now, ledger),
            Mix::Hoard => return self.ask_hoard(now, ledger),
        }
        if self.habits.is_loud && self.random.percent(60) {
            return self.ask_loud(now, ledger);
        }
        if self.is_bound() {
            return self.ask_bound(now);
        }
        if self.ask_of_state(now, ledger) {
            return;
        }
        if self.habits.stateful && !self.is_silent && self.random.percent(20) {
            return self.ask_stateful(now, ledger);
        }
        match self.random.below(100) {
            0..25 => self.ask_get(now, ledger),
            25..50 => self.ask_set(now, ledger),
            50..58 => self.ask_increment(now, ledger),
            58..66 => self.ask_many(now, ledger, "MGET"),
            66..72 => self.ask_set_many(now, ledger),
            72..77 => self.ask_many(now, ledger, "DEL"),
            77..82 => self.ask_many(now, ledger, "EXISTS"),
            82..86 => self.ask_crossing(now, ledger),
            86..89 => {
                self.tags += 1;
                let tag = format!("unknown{}x{}", self.index, self.tags);
                write_request(&mut self.output, &[tag.as_bytes(), b"argument"]);
                self.expect(now, Ask::Refused { contains: tag.into_bytes() }, Vec::new());
            }
            _ if self.habits.local_commands => self.ask_local(now),
            _ => self.ask_get(now, ledger),
        }
    }

    /// Asks some requests that get no reply.
    fn ask_in_silence(&mut self, now: Nanos, ledger: &mut Ledger) {
        let is_one = self.random.percent(50);
        let mode: &[u8] = if is_one { b"SKIP" } else { b"OFF" };
        write_request(&mut self.output, &[b"CLIENT", b"REPLY", mode]);
        let count = if is_one { 1 } else { self.random.between(0, 5) };
        self.is_silent = true;
        for _ in 0..count {
            self.ask(now, ledger);
        }
        self.is_silent = false;
        if !is_one {
            write_request(&mut self.output, &[b"CLIENT", b"REPLY", b"ON"]);
            self.expect(now, Ask::Exactly(ok()), Vec::new());
        }
    }

    /// Notes that a request that was asked in silence may have been executed, once everything
    /// before it was answered.
    fn settle_silent(&mut self, ledger: &mut Ledger) {
        while self.expected.front().is_some_and(|expected| expected.is_silent) {
            if let Some(expected) = self.expected.pop_front() {
                self.settle(&expected, Fate::Maybe, ledger);
            }
        }
    }

    fn ask_local(&mut self, now: Nanos) {
        self.tags += 1;
        let tag = format!("tag-{}-{}", self.index, self.tags);
        let echo = Ask::Exactly(Value::Bulk(Some(tag.clone().into_bytes())));
        match self.random.below(if self.habits.may_be_killed { 6 } else { 5 }) {
            5 => {
                let id = self.random.between(1, 40).to_string();
                write_request(&mut self.output, &[b"CLIENT", b"KILL", b"ID", id.as_bytes()]);
                self.expect(now, Ask::AtMost(1), Vec::new());
            }
            0 => {
                write_request(&mut self.output, &[b"ECHO", tag.as_bytes()]);
                self.expect(now, echo, Vec::new());
            }
            1 => {
                write_request(&mut self.output, &[b"PING", tag.as_bytes()]);
                self.expect(now, echo, Vec::new());
            }
            2 => {
                self.output.extend_from_slice(b"PING\r\n");
                self.expect(now, Ask::Exactly(Value::Simple(b"PONG".to_vec())), Vec::new());
            }
            3 => {
                self.output.extend_from_slice(format!("ECHO \"{tag}\"\n").as_bytes());
                self.expect(now, echo, Vec::new());
            }
            _ if self.attempt.is_some() => {
                write_request(&mut self.output, &[b"ECHO", tag.as_bytes()]);
                self.expect(now, echo, Vec::new());
            }
            _ => {
                let database = self.random.index(self.databases.len());
                let name = database.to_string();
                write_request(&mut self.output, &[b"SELECT", name.as_bytes()]);
                self.expect(now, Ask::Exactly(ok()), Vec::new());
                self.database = database;
            }
        }
    }

    fn pick_key(&mut self) -> usize {
        self.random.index(self.habits.keys)
    }

    /// Picks a key, on the wanted server if one is found at once.
    fn pick_key_near(&mut self, ledger: &Ledger) -> usize {
        let wanted = self.home_wanted;
        for _ in 0..if wanted.is_some() { 8 } else { 0 } {
            let key = self.pick_key();
            if ledger.home(self.habits.pool, &self.name(key)) == wanted {
                return key;
            }
        }
        self.pick_key()
    }

    /// Picks some keys, each once.
    fn pick_keys(&mut self) -> Vec<usize> {
        let count = self.random.between(1, self.habits.keys.min(6) as u64);
        let mut keys: Vec<_> = (0..count).map(|_| self.pick_key()).collect();
        keys.sort_unstable();
        keys.dedup();
        if self.random.percent(50) {
            keys.reverse();
        }
        keys
    }

    fn name(&self, key: usize) -> Vec<u8> {
        self.databases[self.database].strings[key].name.clone()
    }

    fn circumstances(&self, ledger: &Ledger, keys: &[usize]) -> Vec<Circumstances> {
        let name = |&key: &usize| &self.databases[self.database].strings[key].name;
        let since = (!self.expected.is_empty()).then_some(self.busy_since);
        let circumstances = |key| ledger.circumstances_since(self.habits.pool, name(key), since);
        keys.iter().map(circumstances).collect()
    }

    fn ask_memcached(&mut self, now: Nanos, ledger: &mut Ledger) {
        let key = self.pick_key_near(ledger);
        match self.random.below(11) {
            10 => {
                let name = self.name(key);
                memcached::write_delete(&mut self.output, &name);
                let circumstances = self.circumstances(ledger, &[key]);
                self.expect(now, Ask::Delete { keys: vec![key] }, circumstances);
            }
            0..4 => {
                let circumstances = self.circumstances(ledger, &[key]);
                let (write, bytes) = self.new_value(key, ledger);
                let name = self.name(key);
                memcached::write_set(&mut self.output, &name, &bytes);
                self.expect(now, Ask::Set { key, write }, circumstances);
            }
            4..8 => {
                let name = self.name(key);
                memcached::write_get(&mut self.output, &[name]);
                let circumstances = self.circumstances(ledger, &[key]);
                self.expect(now, Ask::Get { key }, circumstances);
            }
            _ => {
                let keys = self.pick_keys();
                let names: Vec<_> = keys.iter().map(|&key| self.name(key)).collect();
                memcached::write_get(&mut self.output, &names);
                let circumstances = self.circumstances(ledger, &keys);
                self.expect(now, Ask::GetMany { keys }, circumstances);
            }
        }
    }

    fn value_len(&mut self) -> usize {
        if self.habits.hoard.is_some() {
            return self.hoarded_len();
        }
        match self.random.below(200) {
            0 => self.random.scaled(1, self.habits.large_len as u64) as usize,
            _ => self.random.scaled(1, self.habits.value_len as u64) as usize,
        }
    }

    fn new_value(&mut self, key: usize, ledger: &mut Ledger) -> (u64, Vec<u8>) {
        let write = ledger.new_write();
        let len = self.value_len();
        let model = &mut self.databases[self.database].strings[key];
        model.on_write(write);
        (write, value::compose(&model.name, write, len))
    }

    fn ask_set(&mut self, now: Nanos, ledger: &mut Ledger) {
        let key = self.pick_key_near(ledger);
        let circumstances = self.circumstances(ledger, &[key]);
        let (write, bytes) = self.new_value(key, ledger);
        let name = self.name(key);
        write_request(&mut self.output, &[b"SET", &name, &bytes]);
        self.expect(now, Ask::Set { key, write }, circumstances);
    }

    fn ask_increment(&mut self, now: Nanos, ledger: &Ledger) {
        let keys = &mut self.databases[self.database];
        let counter = self.random.index(keys.counters.len());
        keys.counters[counter].on_ask();
        let name = keys.counters[counter].name.clone();
        let since = (!self.expected.is_empty()).then_some(self.busy_since);
        let circumstances = vec![ledger.circumstances_since(self.habits.pool, &name, since)];
        write_request(&mut self.output, &[b"INCR", &name]);
        self.expect(now, Ask::Increment { counter }, circumstances);
    }

    fn ask_many(&mut self, now: Nanos, ledger: &Ledger, command: &str) {
        let keys = self.pick_keys();
        let names: Vec<_> = keys.iter().map(|&key| self.name(key)).collect();
        let mut args: Vec<&[u8]> = vec![command.as_bytes()];
        args.extend(names.iter().map(Vec::as_slice));
        write_request(&mut self.output, &args);
        let circumstances = self.circumstances(ledger, &keys);
        let ask = match command {
            "MGET" => Ask::GetMany { keys },
            "DEL" => Ask::Delete { keys },
            _ => Ask::Exists { keys },
        };
        self.expect(now, ask, circumstances);
    }

    fn ask_set_many(&mut self, now: Nanos, ledger: &mut Ledger) {
        let keys = self.pick_keys();
        let circumstances = self.circumstances(ledger, &keys);
        let mut args = vec![b"MSET".to_vec()];
        let mut writes = Vec::new();
        for &key in &keys {
            let (write, bytes) = self.new_value(key, ledger);
            args.push(self.name(key));
            args.push(bytes);
            writes.push(write);
        }
        let args: Vec<_> = args.iter().map(Vec::as_slice).collect();
        write_request(&mut self.output, &args);
        self.expect(now, Ask::SetMany { keys, writes }, circumstances);
    }

    fn ask_crossing(&mut self, now: Nanos, ledger: &Ledger) {
        if self.habits.is_store {
            return self.ask_get(now, ledger);
        }
        let keys = self.pick_keys();
        let names: Vec<_> = keys.iter().map(|&key| self.name(key)).collect();
        let mut args: Vec<&[u8]> = vec![b"SDIFF"];
        args.extend(names.iter().map(Vec::as_slice));
        write_request(&mut self.output, &args);
        self.expect(now, Ask::Crossing { keys }, Vec::new());
    }
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}
