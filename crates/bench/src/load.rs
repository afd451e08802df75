//! The load of a row, for `keyway-load`, and the answers that are expected.
//!
//! A connection sends a batch of requests, waits for all replies, and sends the next. Keys and
//! commands come from a fixed seed, so that every system of a round gets the same work.

use std::net::SocketAddr;

use keyway_load::{
    Command, CommandKind, Ended, Flow, KeyForm, Keys, Outcome, Pattern, Piece, Plan, Progress,
    Protocol, Sizes, Target, Until, Watch, Word, Workload, parse_template,
};
use keyway_tls::ClientTls;

use crate::error::Error;
use crate::interrupt;

/// The type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A string.
    String,
    /// A hash of one field, as YCSB writes it.
    Hash,
}

/// A set of keys and the size of their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// The beginning of every key. It distinguishes two sets.
    pub prefix: &'static str,
    /// Number of keys.
    pub keys: u32,
    /// Length of every value in bytes.
    pub value_bytes: u32,
    /// The type of the values.
    pub shape: Shape,
}

impl Dataset {
    /// 100,000 keys of 16 bytes with values of 100 bytes.
    pub const SMALL: Dataset = Dataset::strings("key:", 100_000, 100);
    /// 2,000 keys of 16 bytes with values of 16 KiB. They are few, so that the servers' memory
    /// stays small.
    pub const LARGE: Dataset = Dataset::strings("big:", 2_000, 16_384);
    /// 100,000 keys of 16 bytes with values of 64 bytes.
    pub const ITEMS: Dataset = Dataset::strings("itm:", 100_000, 64);
    /// 100,000 hashes of one field with 64 bytes.
    pub const RECORDS: Dataset =
        Dataset { shape: Shape::Hash, ..Dataset::strings("rec:", 100_000, 64) };

    /// Creates a set of strings.
    pub const fn strings(prefix: &'static str, keys: u32, value_bytes: u32) -> Dataset {
        Dataset { prefix, keys, value_bytes, shape: Shape::String }
    }

    /// Returns whether a server of this protocol can store it.
    pub fn fits(self, protocol: Protocol) -> bool {
        protocol.is_redis() || self.shape == Shape::String
    }

    /// Returns a workload that writes every key once, in order, on one connection.
    fn filling(self) -> Workload {
        Workload { write_pattern: Pattern::Sequential, ..Work::Set.on(self) }
    }
}

/// What one request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// GET of a random key, or HGETALL if it is a hash.
    Get,
    /// SET of a random key, or HMSET of its one field if it is a hash.
    Set,
    /// SET and GET, equally often.
    Mixed,
    /// MGET of this many random keys: one request, one reply.
    Mget(u32),
    /// MSET of this many random keys.
    Mset(u32),
    /// ZADD of a new member to one sorted set, members in no order.
    SortedLoad,
    /// EVAL of a script that gets a random key.
    Script,
    /// LRANGE of a list of 600 elements.
    Range,
}

/// Number of members that [`Work::SortedLoad`] adds to its sorted set.
pub const SORTED_MEMBERS: u32 = 1_000_000;
/// Number of elements of the list of [`Work::Range`].
const ELEMENTS: usize = 600;

impl Work {
    /// Returns whether a server of this protocol can do it.
    pub fn fits(self, protocol: Protocol) -> bool {
        let is_string = matches!(self, Work::Get | Work::Set | Work::Mixed | Work::Mget(_));
        protocol.is_redis() || is_string
    }

    /// Returns the workload on a set of keys.
    pub fn on(self, dataset: Dataset) -> Workload {
        let get = || match dataset.shape {
            Shape::String => CommandKind::Get,
            Shape::Hash => words("HGETALL __key__"),
        };
        let set = || match dataset.shape {
            Shape::String => CommandKind::Set,
            Shape::Hash => words("HMSET __key__ field0 __data__"),
        };
        let kinds = match self {
            Work::Get => vec![get()],
            Work::Set => vec![set()],
            Work::Mixed => vec![set(), get()],
            Work::Mget(keys) => vec![CommandKind::Mget(keys)],
            Work::Mset(keys) => vec![CommandKind::Mset(keys)],
            Work::Script => vec![words("EVAL \"return redis.call('get', KEYS[1])\" 1 __key__")],
            Work::Range => vec![words("LRANGE measured-list 0 599")],
            Work::SortedLoad => {
                let (text, of) = (Word::text, Word::of);
                let (score, member) = (of(Piece::YcsbScore), of(Piece::Key));
                vec![CommandKind::Words(vec![text("ZADD"), text("_indices"), score, member])]
            }
        };
        let commands = kinds.into_iter().map(|kind| (Command { name: "row".into(), kind }, 1));
        let mut workload = Workload::new("row", commands.collect());
        workload.keys = Keys { prefix: dataset.prefix.into(), ..Keys::new(dataset.keys.into()) };
        workload.sizes = Sizes::Fixed(dataset.value_bytes);
        if self == Work::SortedLoad {
            let (prefix, count) = ("user".into(), SORTED_MEMBERS.into());
            workload.keys = Keys { prefix, first: 0, count, form: KeyForm::Ycsb };
            workload.read_pattern = Pattern::Sequential;
        }
        workload
    }
}

fn words(template: &str) -> CommandKind {
    CommandKind::Words(parse_template(template).unwrap_or_default())
}

/// Creates the plan of a closed loop with one thread.
pub fn plan(connections: usize, depth: usize, until: Until) -> Plan {
    Plan { connections, pipeline: depth, until, ..Plan::default() }
}

/// What is put under load: its address, its protocol, and the process whose CPU time counts.
#[derive(Clone, Debug)]
pub struct Served {
    /// Its address.
    pub addr: SocketAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The process.
    pub pid: u32,
    /// Secures the connections.
    pub tls: Option<ClientTls>,
}

impl Served {
    /// Puts it under load until the plan is over, or until `look` ends it.
    ///
    /// # Errors
    /// Returns [`Error::Load`] if the load cannot begin, and [`Error::Interrupted`].
    pub fn run(
        &self,
        workload: &Workload,
        plan: &Plan,
        look: &mut dyn FnMut(&Progress) -> Flow,
    ) -> Result<Outcome, Error> {
        let address = self.addr.to_string();
        let address = address.parse().map_err(|_| Error::parse("an address", &address))?;
        let target = Target { tls: self.tls.clone(), ..Target::new(address, self.protocol) };
        let watches = [Watch::Pid(self.pid)];
        let outcome = keyway_load::run(workload, &target, plan, &watches, &mut |progress| {
            match interrupt::check() {
                Ok(()) => look(progress),
                Err(_) => Flow::Stop,
            }
        });
        interrupt::check()?;
        outcome.map_err(|why| Error::Load(why.to_string()))
    }

    /// Like [`Served::run`], and also checks the answers. Every key exists, so an error or a
    /// missing key means that something else was measured.
    ///
    /// # Errors
    /// Returns [`Error::Answers`] for wrong answers, [`Error::Load`] for lost connections and
    /// timeouts, and the errors of [`Served::run`].
    pub fn load(
        &self,
        workload: &Workload,
        plan: &Plan,
        look: &mut dyn FnMut(&Progress) -> Flow,
    ) -> Result<Outcome, Error> {
        let outcome = self.run(workload, plan, look)?;
        check(&outcome).map(|()| outcome)
    }

    /// Like [`Served::load`], to the end of the plan.
    ///
    /// # Errors
    /// Returns the errors of [`Served::load`].
    pub fn load_all(&self, workload: &Workload, plan: &Plan) -> Result<Outcome, Error> {
        self.load(workload, plan, &mut |_| Flow::Continue)
    }

    /// Sends one command once.
    ///
    /// # Errors
    /// Returns the errors of [`Served::load`].
    pub fn once(&self, command: &str) -> Result<(), Error> {
        let command = Command { name: "once".into(), kind: words(command) };
        let workload = Workload::new("once", vec![(command, 1)]);
        self.load_all(&workload, &plan(1, 1, Until::Requests(1))).map(drop)
    }

    /// Writes every key of a dataset, and overwrites existing ones.
    ///
    /// # Errors
    /// Returns the errors of [`Served::load`].
    pub fn fill(&self, dataset: Dataset) -> Result<(), Error> {
        let plan = plan(1, 50, Until::Requests(dataset.keys.into()));
        self.load_all(&dataset.filling(), &plan).map(drop)
    }

    /// Writes the list of [`Work::Range`] again.
    ///
    /// # Errors
    /// Returns the errors of [`Served::load`].
    pub fn fill_list(&self) -> Result<(), Error> {
        let elements: String = (0..ELEMENTS).map(|nth| format!(" {nth:03}")).collect();
        self.once("DEL measured-list")?;
        self.once(&format!("RPUSH measured-list{elements}"))
    }
}

fn check(outcome: &Outcome) -> Result<(), Error> {
    let (totals, connections) = (&outcome.totals, &outcome.connections);
    let of = totals.requests;
    if totals.errors > 0 {
        let first = outcome.errors.first().map_or("", |error| &error.example);
        let what = format!("{} errors in {of} replies, first: {first}", totals.errors);
        return Err(Error::Answers(what));
    }
    if totals.misses > 0 {
        return Err(Error::Answers(format!("{} keys not found in {of} requests", totals.misses)));
    }
    if outcome.ended == Ended::Silent {
        return Err(Error::Load("it fell silent".into()));
    }
    if connections.lost + connections.failed + totals.unanswered > 0 {
        return Err(Error::Load(format!("{} connections were lost", connections.lost)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Starts a server that answers every GET with `reply`.
    fn serve(reply: &'static [u8]) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let answer = move |mut stream: TcpStream| {
            let (mut input, mut buf) = (Vec::new(), [0; 4096]);
            while let Ok(len @ 1..) = stream.read(&mut buf) {
                input.extend_from_slice(&buf[..len]);
                while let Some(at) = input.windows(2).position(|two| two == b"\r\n") {
                    let line: Vec<u8> = input.drain(..at + 2).collect();
                    let answer = match &line[..] {
                        b"GET\r\n" => reply,
                        b"PING\r\n" => b"+PONG\r\n",
                        _ => b"",
                    };
                    let _ = stream.write_all(answer);
                }
            }
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                std::thread::spawn(move || answer(stream));
            }
        });
        Served { addr, protocol: Protocol::Resp2, pid: std::process::id(), tls: None }
    }

    #[test]
    fn errors_missing_keys_and_replies_nobody_asked_for_fail() {
        let (get, plan) = (Work::Get.on(Dataset::SMALL), plan(7, 3, Until::Requests(300)));
        let outcome = serve(b"$2\r\nhi\r\n").load_all(&get, &plan).unwrap();
        assert_eq!((outcome.totals.requests, outcome.totals.hits), (300, 300));
        for reply in [&b"-ERR no\r\n"[..], b"$-1\r\n"] {
            let wrong = serve(reply).load_all(&get, &plan);
            assert!(matches!(wrong, Err(Error::Answers(_))));
        }
        let wrong = serve(b"+OK\r\n+OK\r\n").load_all(&get, &plan);
        assert!(matches!(wrong, Err(Error::Load(_))), "{wrong:?}");
    }

    #[test]
    fn hashes_and_memcached_have_their_own_words() {
        let hashes = Dataset { shape: Shape::Hash, ..Dataset::SMALL };
        let memcached = Protocol::MemcachedText;
        assert!(!hashes.fits(memcached) && Dataset::SMALL.fits(memcached));
        assert!(!Work::SortedLoad.fits(memcached) && !Work::Script.fits(memcached));
        for work in [Work::Get, Work::Set, Work::Script, Work::Range, Work::SortedLoad] {
            work.on(hashes).check().unwrap();
            assert!(!work.on(hashes).mix.iter().any(|(command, _)| {
                matches!(&command.kind, CommandKind::Words(words) if words.is_empty())
            }));
        }
    }
}
