//! A simulated Redis server with plain maps, one request at a time, and every way to misbehave.

mod channels;
mod cluster;
mod data;
mod groups;
mod memcached;
mod rolls;
mod stateful;
mod tracking;

use crate::ledger::Ledger;
use crate::network::{ACCEPTOR, ConnId, MICRO, MILLI, Nanos, Network, Received, Sent};
use crate::random::Random;
use crate::wire::{clip, parse_request, parse_value, write_bulk, write_resp3};
use channels::Heard;
use stateful::{Begun, Lists};
use std::collections::BTreeMap;
use tracking::Tracking;

/// A deliberate fault of a server, for the oracles to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Nothing: the scenario of a defect without the defect.
    None,
    /// Two replies in a row are swapped.
    SwappedReplies,
    /// A reply is left out.
    LostReply,
    /// A reply is sent twice.
    DoubledReply,
    /// A write is acknowledged and forgotten.
    ForgottenWrite,
    /// A read returns another key's value.
    WrongValue,
    /// A read returns an older value.
    OldValue,
    /// An error is sent for no reason.
    GroundlessError,
    /// A write is executed twice.
    DoubledWrite,
    /// The last command of a transaction is acknowledged and not executed.
    TornTransaction,
    /// A transaction is executed although a watched key was changed.
    BlindWatch,
    /// An element is popped and lost.
    LostElement,
    /// Messages are not sent.
    LostMessage,
    /// A message is sent twice.
    DoubledMessage,
    /// Messages overtake earlier ones.
    SwappedMessages,
    /// Connections that have cached a value are not told that it has changed.
    LostInvalidation,
}

impl Defect {
    /// Returns whether only transactions and lists show the defect.
    pub fn is_stateful(self) -> bool {
        matches!(self, Defect::TornTransaction | Defect::BlindWatch | Defect::LostElement)
    }

    /// Returns whether only channels show the defect.
    pub fn is_of_channels(self) -> bool {
        matches!(self, Defect::LostMessage | Defect::DoubledMessage | Defect::SwappedMessages)
    }

    /// Returns whether only clients that cache show the defect.
    pub fn is_of_caches(self) -> bool {
        self == Defect::LostInvalidation
    }
}

/// How a server behaves at the moment.
#[derive(Clone, Debug, Default)]
pub struct Mood {
    /// The server does nothing until this time.
    pub stalled_until: Nanos,
    /// True if slots have moved away from the server, or to it, meanwhile.
    pub has_overslept: bool,
    /// Requests that arrive by this time may have waited in a worker while the server slept and its
    /// slots moved away.
    pub backlog_until: Nanos,
    /// The server answers `-LOADING` until this time.
    pub loading_until: Nanos,
    /// The server answers `-OOM` to writes until this time.
    pub full_until: Nanos,
    /// The server answers a few bytes at a time until this time.
    pub trickling_until: Nanos,
    /// The server refuses passwords and databases until this time.
    pub refusing_until: Nanos,
    /// The first reply before this time is cut off in its middle, and the connection ends.
    pub cut_until: Nanos,
    /// The first reply before this time is garbage.
    pub garble_until: Nanos,
}

/// A worker keeps bytes that a full connection does not accept, and sends them within this time
/// once the server reads again. A link keeps at most half a megabyte, and a network transfers five
/// a second.
const BACKLOG: Nanos = 100 * MILLI;

struct ServerConn {
    conn: ConnId,
    input: Vec<u8>,
    /// Number of its bytes that were sent while the server slept and its slots moved away.
    late: usize,
    output: Vec<u8>,
    database: u32,
    authenticated: bool,
    /// True if it reads and never does anything.
    dead: bool,
    /// True if it does not even read.
    deaf: bool,
    /// True if the other side sends no more.
    ended: bool,
    /// True if the connection is closed when the output has left.
    closing: bool,
    broken: bool,
    held_back: Option<Vec<u8>>,
    /// A message that others will overtake.
    held_message: Option<Vec<u8>>,
    /// The reply to `CLIENT ID`.
    id: u64,
    begun: Begun,
    /// True if it has sent `HELLO 3`.
    is_resp3: bool,
    heard: Heard,
    tracking: Tracking,
    /// True if it has sent `ASKING`.
    is_asking: bool,
    /// True if it has sent `READONLY`.
    reads_copies: bool,
}

/// One server.
pub struct Server {
    index: usize,
    pool: usize,
    /// The database that is the clients' database 0. They count from there.
    base_database: u32,
    password: Option<Vec<u8>>,
    databases: BTreeMap<u32, BTreeMap<Vec<u8>, Vec<u8>>>,
    older: BTreeMap<Vec<u8>, Vec<u8>>,
    lists: Lists,
    /// Number of connections and waits so far.
    accepted: u64,
    blocked: u64,
    conns: Vec<ServerConn>,
    /// How it behaves.
    pub mood: Mood,
    busy_until: Nanos,
    /// Longest time of one request.
    service: Nanos,
    defect: Option<Defect>,
    defect_after: u64,
    served: u64,
    /// Set if the server is memcached.
    memcached: Option<memcached::Memcached>,
    /// True if it knows `HELLO`.
    knows_hello: bool,
    /// The connection whose request is executed.
    serving: usize,
    /// Its role in a cluster.
    node: Option<Box<cluster::Node>>,
    random: Random,
}

impl Server {
    /// Creates a server of a pool.
    pub fn new(
        (index, pool): (usize, usize),
        base_database: u32,
        password: Option<&str>,
        service: Nanos,
        (defect, knows_hello): (Option<Defect>, bool),
        random: Random,
    ) -> Self {
        Self {
            memcached: None,
            knows_hello,
            serving: 0,
            node: None,
            index,
            pool,
            base_database,
            password: password.map(|password| password.as_bytes().to_vec()),
            databases: BTreeMap::new(),
            older: BTreeMap::new(),
            lists: Lists::new(),
            accepted: 0,
            blocked: 0,
            conns: Vec::new(),
            mood: Mood::default(),
            busy_until: 0,
            service,
            defect,
            defect_after: 20,
            served: 0,
            random,
        }
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Returns the number of subscriptions of open connections, without those that Keyway itself
    /// has at sentinels.
    pub fn subscriptions(&self) -> usize {
        let is_of_clients = |name: &&Vec<u8>| !matches!(name.first(), Some(b'+' | b'-'));
        self.conns.iter().flat_map(|conn| conn.heard.iter().flatten()).filter(is_of_clients).count()
    }

    /// Discards all data.
    pub fn lose_everything(&mut self, ledger: &mut Ledger) {
        self.databases.clear();
        self.forget_reserved();
        self.lists.clear();
        self.touch_all();
        ledger.on_loss(self.pool);
    }

    /// Closes every connection.
    pub fn drop_connections(&mut self, network: &mut Network) {
        for conn in self.conns.drain(..) {
            let reset = self.random.percent(50);
            network.close(conn.conn, ACCEPTOR, reset);
        }
    }

    /// Leaves every connection open and never uses it again.
    pub fn abandon_connections(&mut self) {
        for conn in &mut self.conns {
            conn.dead = true;
            conn.deaf = self.random.percent(50);
        }
    }

    /// Does what is due.
    pub fn step(&mut self, network: &mut Network, ledger: &mut Ledger) {
        while let Some(conn) = network.arrivals[self.index].pop_front() {
            self.accepted += 1;
            self.conns.push(ServerConn {
                conn,
                input: Vec::new(),
                late: 0,
                output: Vec::new(),
                database: 0,
                authenticated: self.password.is_none(),
                dead: false,
                deaf: false,
                ended: false,
                closing: false,
                broken: false,
                held_back: None,
                held_message: None,
                id: self.accepted,
                begun: Begun::default(),
                is_resp3: false,
                heard: Heard::default(),
                tracking: Tracking::default(),
                is_asking: false,
                reads_copies: false,
            });
        }
        if network.now < self.mood.stalled_until {
            return network.wake_server(self.index, self.mood.stalled_until);
        }
        self.apply_copies(network.now, network);
        for position in 0..self.conns.len() {
            self.read(position, network);
        }
        if std::mem::take(&mut self.mood.has_overslept) {
            self.mood.backlog_until = network.now + BACKLOG;
        }
        if network.now < self.mood.backlog_until {
            self.conns.iter_mut().for_each(|conn| conn.late = conn.input.len());
        }
        self.serve(network, ledger);
        self.end_waits(network);
        for position in 0..self.conns.len() {
            self.write(position, network);
        }
        self.conns.retain(|conn| {
            let over = conn.broken || (conn.closing && conn.output.is_empty());
            if over {
                network.close(conn.conn, ACCEPTOR, false);
            }
            !over
        });
    }

    fn read(&mut self, position: usize, network: &mut Network) {
        const READ_LEN: usize = 16 << 10;
        let conn = &mut self.conns[position];
        if conn.deaf {
            return;
        }
        loop {
            match network.recv(conn.conn, ACCEPTOR, READ_LEN, &mut conn.input) {
                Received::Data(_) if conn.dead => conn.input.clear(),
                Received::Data(_) => {}
                Received::Empty => return,
                Received::End => {
                    conn.ended = true;
                    return;
                }
                Received::Failed => {
                    conn.broken = true;
                    return;
                }
            }
        }
    }

    /// Answers requests of all connections in turns, until it has worked for a while.
    fn serve(&mut self, network: &mut Network, ledger: &mut Ledger) {
        if network.now < self.busy_until {
            return network.wake_server(self.index, self.busy_until);
        }
        let mut spent = 0;
        let mut idle = 0;
        let count = self.conns.len();
        let mut position = if count == 0 { 0 } else { self.random.index(count) };
        while idle < count && spent < 200 * MICRO {
            position = (position + 1) % count;
            if self.conns[position].dead || self.conns[position].closing {
                idle += 1;
                continue;
            }
            if self.conns[position].begun.blocked.is_some() {
                let conn = &mut self.conns[position];
                if conn.ended {
                    conn.closing = true;
                    conn.begun.blocked = None;
                }
                idle += 1;
                continue;
            }
            let input = &self.conns[position].input;
            let parsed = match self.memcached {
                Some(_) => crate::memcached::parse_request(input),
                None => parse_request(input, 0),
            };
            match parsed {
                Ok(Some((args, len))) => {
                    self.conns[position].input.drain(..len);
                    self.note_late(position, &args, len, ledger);
                    self.answer(position, &args, network, ledger);
                    self.release_pushes();
                    spent += self.random.between(1, self.service);
                    idle = 0;
                }
                Ok(None) => {
                    idle += 1;
                    self.conns[position].closing |= self.conns[position].ended;
                }
                Err(fault) => {
                    ledger.fail(|| format!("a server was sent what is no request: {fault}"));
                    return;
                }
            }
        }
        if spent > 0 {
            self.busy_until = network.now + spent;
            network.wake_server(self.index, self.busy_until);
        }
    }

    fn write(&mut self, position: usize, network: &mut Network) {
        let trickling = network.now < self.mood.trickling_until;
        let conn = &mut self.conns[position];
        if conn.output.is_empty() || conn.broken || conn.dead {
            return;
        }
        let len = match trickling {
            true => self.random.between(1, 7).min(conn.output.len() as u64) as usize,
            false => conn.output.len(),
        };
        match network.send(conn.conn, ACCEPTOR, &conn.output[..len]) {
            Sent::Taken(taken) => {
                conn.output.drain(..taken);
            }
            Sent::Failed => conn.broken = true,
        }
        if trickling && !conn.output.is_empty() {
            let pause = self.random.between(10 * MICRO, MILLI);
            network.wake_server(self.index, network.now + pause);
        }
    }

    fn answer(
        &mut self,
        position: usize,
        args: &[Vec<u8>],
        network: &mut Network,
        ledger: &mut Ledger,
    ) {
        let mut reply = Vec::new();
        let conn = self.conns[position].conn;
        let is_straggler = network.peer_closed(conn, ACCEPTOR);
        self.served += 1;
        self.serving = position;
        if self.memcached.is_some() {
            let is_data = !matches!(&args[0][..], b"version" | b"mn");
            let is_own = args.get(1).is_some_and(|key| key.starts_with(crate::memcached::RESERVED));
            if is_data && !is_own && !is_straggler {
                ledger.check_asked(self.index, network.now);
            }
            self.execute_memcached(args, (network.now, is_straggler), ledger, &mut reply);
        } else {
            self.execute(position, args, (network.now, is_straggler), ledger, &mut reply);
            self.translate(position, &mut reply);
            self.end_caching(position, args);
        }
        ledger.end_request();
        self.serve_blocked(network, ledger);
        network.tell(|| {
            let words: Vec<_> = args.iter().map(|arg| clip(arg)).collect();
            format!("server {} on {conn}: {} -> {}", self.index, words.join(" "), clip(&reply))
        });
        if reply.is_empty() {
            // The client waits.
            return;
        }
        if network.now < self.mood.garble_until {
            self.mood.garble_until = 0;
            const GARBAGE: [&[u8]; 7] = [
                b"HTTP/1.1 400 Bad Request\r\n\r\n",
                b"$3\r\nabcdef\r\n",
                b"$-7\r\n",
                b"*-9\r\n",
                b":12a\r\n",
                b"$99999999999999\r\n",
                b"\0\xff\x80",
            ];
            reply = self.random.pick(&GARBAGE).to_vec();
        }
        if network.now < self.mood.cut_until && reply.len() > 1 {
            self.mood.cut_until = 0;
            reply.truncate(self.random.index(reply.len()));
            self.conns[position].closing = true;
        }
        let output = &mut self.conns[position];
        let is_defect_due = self.served >= self.defect_after;
        match self.defect {
            Some(Defect::SwappedReplies) if is_defect_due => match output.held_back.take() {
                None => output.held_back = Some(reply),
                Some(first) => {
                    output.output.extend_from_slice(&reply);
                    output.output.extend_from_slice(&first);
                    self.defect = None;
                }
            },
            Some(Defect::LostReply) if is_defect_due => self.defect = None,
            Some(Defect::DoubledReply) if is_defect_due => {
                output.output.extend_from_slice(&reply);
                output.output.extend_from_slice(&reply);
                self.defect = None;
            }
            _ => output.output.extend_from_slice(&reply),
        }
    }

    fn execute(
        &mut self,
        position: usize,
        args: &[Vec<u8>],
        (now, is_straggler): (Nanos, bool),
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) {
        let name = args.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
        if name == b"HELLO" {
            return self.greet(position, args, now, reply);
        }
        if self.answer_connection(position, &name, args, now, reply) {
            return;
        }
        if !self.conns[position].authenticated {
            return reply.extend_from_slice(b"-NOAUTH Authentication required.\r\n");
        }
        if self.answer_channels(position, &name, args, (now, is_straggler), ledger, reply)
            || self.answer_tracking(position, args, ledger, reply)
        {
            return;
        }
        if self.answer_cluster(position, &name, args, (now, is_straggler), ledger, reply) {
            return;
        }
        if self.answer_stateful(position, &name, args, is_straggler, ledger, reply) {
            return;
        }
        let first_key = args.get(1).map(Vec::as_slice).unwrap_or_default();
        if now < self.mood.loading_until {
            self.conns[position].begun.is_refused = true;
            reply.extend_from_slice(b"-LOADING for ");
            reply.extend_from_slice(first_key);
            return reply.extend_from_slice(b"\r\n");
        }
        let is_write = matches!(&name[..], b"SET" | b"MSET" | b"INCR" | b"RPUSH" | b"XADD");
        if is_write && now < self.mood.full_until {
            self.conns[position].begun.is_refused = true;
            reply.extend_from_slice(b"-OOM no room for ");
            reply.extend_from_slice(first_key);
            return reply.extend_from_slice(b"\r\n");
        }
        if self.defect == Some(Defect::GroundlessError) && self.served >= self.defect_after {
            self.defect = None;
            return reply.extend_from_slice(b"-ERR I do not feel like it\r\n");
        }
        if let Some(queued) = &mut self.conns[position].begun.queued {
            queued.push(args.to_vec());
            return reply.extend_from_slice(b"+QUEUED\r\n");
        }
        if !is_straggler {
            ledger.check_asked(self.index, now);
        }
        if name == b"BLPOP" {
            return self.pop_or_block(position, args, (now, is_straggler), ledger, reply);
        }
        self.execute_data(position, &name, args, is_straggler, ledger, reply);
    }

    /// Answers a request about the connection. Returns whether it was one.
    fn answer_connection(
        &mut self,
        position: usize,
        name: &[u8],
        args: &[Vec<u8>],
        now: Nanos,
        reply: &mut Vec<u8>,
    ) -> bool {
        let conn = &mut self.conns[position];
        let refusing = now < self.mood.refusing_until;
        let is_subscriber = !conn.is_resp3 && conn.heard.iter().any(|names| !names.is_empty());
        match name {
            b"PING" if is_subscriber => {
                reply.extend_from_slice(b"*2\r\n$4\r\npong\r\n$0\r\n\r\n");
            }
            b"AUTH" if refusing || self.password.as_ref() != args.get(1) => {
                reply.extend_from_slice(b"-WRONGPASS invalid password\r\n");
            }
            b"AUTH" => {
                conn.authenticated = true;
                reply.extend_from_slice(b"+OK\r\n");
            }
            b"SELECT" if !conn.authenticated => {
                reply.extend_from_slice(b"-NOAUTH Authentication required.\r\n");
            }
            b"SELECT" if refusing => {
                reply.extend_from_slice(b"-ERR DB index is out of range\r\n");
            }
            b"SELECT" => {
                let text = String::from_utf8_lossy(&args[1]);
                conn.database = text.parse().expect("a database is a number");
                reply.extend_from_slice(b"+OK\r\n");
            }
            b"PING" if conn.authenticated && now >= self.mood.loading_until => {
                reply.extend_from_slice(b"+PONG\r\n");
            }
            b"PING" if conn.authenticated => reply.extend_from_slice(b"-LOADING\r\n"),
            _ => return false,
        }
        true
    }

    /// Checks that the key is in the right place: its name contains the database, and its hash
    /// decides the server.
    fn check_place(&self, database: u32, key: &[u8], ledger: &mut Ledger) {
        let meant = self.base_database + key_database(key);
        if meant != database {
            ledger.fail(|| format!("{} was used in database {database}", clip(key)));
        }
        if self.pool >= ledger.pools.len() {
            let index = self.index;
            ledger.fail(|| format!("{} was sent to server {index} of a neighbour", clip(key)));
            return;
        }
        // Servers of a cluster check themselves whether they have the slot.
        let Some(known) = ledger.pools[self.pool].as_ref().filter(|_| self.node.is_none()) else {
            return;
        };
        if known.is_static && ledger.home(self.pool, key) != Some(self.index) {
            ledger.fail(|| format!("{} was sent to server {}", clip(key), self.index));
        }
    }
}

/// Returns the name of a key. It contains the key's database and owner. With a tag, all keys of one
/// client and database are on the same server.
pub fn key_name(kind: char, database: u32, owner: &str, number: usize, tagged: bool) -> Vec<u8> {
    match tagged {
        true => format!("{kind}{database}:{{{owner}}}:{number}"),
        false => format!("{kind}{database}:{owner}:{number}"),
    }
    .into_bytes()
}

/// Returns the database in a key's name.
fn key_database(key: &[u8]) -> u32 {
    let digits = key.iter().skip(1).take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
}
