//! The store and a real redis-server 7, fed the same random command lines,
//! must give the same replies, byte by byte.
//!
//! Left out of the comparison: the order of keys in KEYS and SCAN and their
//! cursors, which key RANDOMKEY picks, and what OBJECT IDLETIME and REFCOUNT
//! count. Remaining times may differ by what passes between the two.

mod common;

use common::redis::{Redis, unix_millis};
use common::{Random, Reply, clock_at, execute_in};
use keyway_resp::Protocol;
use keyway_store::{Context, Store, StoreConfig};

const COMMANDS: usize = 400_000;
const BATCH: usize = 200;
const DATABASES: u32 = 3;

/// Random command lines over few keys, some of them wrong.
struct Lines {
    random: Random,
}

const KEYS: [&str; 12] =
    ["a", "b", "c", "d", "counter", "f", "{tag}1", "", "k\r\nk", "long-key-long-key", "x", "y"];

const WORDS: [&str; 40] = [
    "0",
    "1",
    "-1",
    "2",
    "-2",
    "3",
    "7",
    "8",
    "10",
    "100",
    "-100",
    "1000",
    "4000",
    "5000",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "9223372036854775",
    "9223372036854776",
    "-4294967295",
    "4294967296",
    "1500",
    "-2147483649",
    "01",
    "+1",
    " 1",
    "1.5",
    "0.1",
    "-0.7",
    "1e3",
    "1e4931",
    "inf",
    "nan",
    "0x1p-3",
    "abc",
    "",
    "2500",
    "600",
    "3.0000000000000000001",
    "123456789.123456789",
];

/// Left out where BITFIELD SET takes a number: Redis's check overflows and
/// saturates the smallest to the largest.
const LEAST: &[u8] = b"-9223372036854775808";

/// Shapes of commands: capitals stand for a random word of a kind.
const SHAPES: [&str; 138] = [
    "get K",
    "get K",
    "set K V",
    "set K V",
    "set K N",
    "set K V OPT",
    "set K V OPT OPT",
    "set K N OPT OPT OPT",
    "set K V get",
    "set K V nx",
    "set K V xx get",
    "set K V ex SECS",
    "set K V px MILLIS",
    "set K V exat AT",
    "set K V pxat ATMS",
    "set K V keepttl",
    "append K V",
    "append K V",
    "append K N",
    "decr K",
    "decrby K N",
    "getdel K",
    "getex K",
    "getex K persist",
    "getex K ex SECS",
    "getex K px MILLIS",
    "getex K exat AT",
    "getex K OPT OPT",
    "getex K exat PAST",
    "getrange K N N",
    "getrange K R R",
    "substr K R R",
    "getset K V",
    "incr K",
    "incrby K N",
    "incrby K R",
    "incrbyfloat K N",
    "incrbyfloat K F",
    "incrbyfloat K F",
    "lcs L L",
    "lcs L L len",
    "lcs L L idx",
    "lcs L L idx minmatchlen R withmatchlen",
    "lcs L L idx len",
    "lcs L L N",
    "mget K K K",
    "mget K K K K K K",
    "mset K V K V",
    "mset K V K",
    "msetnx K V K V K N",
    "msetnx K V",
    "psetex K MILLIS V",
    "setex K SECS V",
    "setex K E V",
    "psetex K E V",
    "setnx K V",
    "setrange K R V",
    "setrange K N V",
    "strlen K",
    "getbit K R",
    "getbit K N",
    "setbit K R B",
    "setbit K N B",
    "setbit K R N",
    "bitcount K",
    "bitcount K R R",
    "bitcount K R R bit",
    "bitcount K R R byte",
    "bitcount K N N",
    "bitcount K R",
    "bitpos K B",
    "bitpos K B R",
    "bitpos K B R R",
    "bitpos K B R R bit",
    "bitpos K B R R byte",
    "bitpos K N N N",
    "bitop and K K K",
    "bitop or K K K K",
    "bitop xor K K K",
    "bitop not K K",
    "bitop not K K K",
    "bitop N K K",
    "bitfield K get T R",
    "bitfield K set T R M",
    "bitfield K overflow O incrby T R N get T R",
    "bitfield K incrby T #B N overflow O set T R M",
    "bitfield K",
    "set L S",
    "set L S",
    "set L S",
    "append L S",
    "bitfield K get T N",
    "bitfield_ro K get T R",
    "bitfield_ro K set T R M",
    "del K",
    "del K K K",
    "unlink K",
    "exists K K K",
    "exists K",
    "touch K K",
    "type K",
    "expire K SECS",
    "expire K SECS X",
    "expire K E X X",
    "expire K -1",
    "expireat K AT X",
    "pexpire K MILLIS X",
    "pexpireat K ATMS X",
    "pexpireat K ATMS",
    "expireat K PAST",
    "ttl K",
    "pttl K",
    "expiretime K",
    "pexpiretime K",
    "persist K",
    "rename K K",
    "renamenx K K",
    "copy K K",
    "copy K K replace",
    "copy K K db D",
    "copy K K db D replace",
    "move K D",
    "scan 0 count 100000",
    "scan 0 match G count 100000",
    "scan 0 type string count 100000",
    "scan 0 type list count 5",
    "scan N count N",
    "keys G",
    "keys *",
    "randomkey",
    "dbsize",
    "object encoding K",
    "object encoding K",
    "object refcount K",
    "object freq K",
    "object idletime K",
    "swapdb D D",
    "select D",
];

impl Lines {
    fn next(&mut self) -> Vec<Vec<u8>> {
        if self.random.once_in(2000) {
            let rare = [
                "flushall",
                "flushdb",
                "flushdb sync",
                "flushall async",
                "flushdb now",
                "object help",
                "object",
                "object nothing a",
                "swapdb a 0",
                "swapdb 0 b",
            ];
            return self
                .random
                .pick(&rare)
                .split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect();
        }
        let shape = *self.random.pick(&SHAPES);
        let mut words: Vec<Vec<u8>> = shape.split(' ').map(|word| self.word(word)).collect();
        if self.random.once_in(25) {
            self.mangle(&mut words);
        }
        words
    }

    fn mangle(&mut self, words: &mut Vec<Vec<u8>>) {
        let at = 1 + self.random.below(words.len());
        match self.random.below(3) {
            0 if words.len() > 1 => {
                words.remove(at.min(words.len() - 1));
            }
            1 if at < words.len() => words[at] = self.word("E"),
            _ => words.insert(at, self.word("OPT")),
        }
    }

    fn number(&mut self, from: u64, to: u64) -> Vec<u8> {
        (from + self.random.next() % (to - from)).to_string().into_bytes()
    }

    fn word(&mut self, kind: &str) -> Vec<u8> {
        let options = ["nx", "XX", "get", "keepttl", "persist", "ex", "px", "exat", "pxat"];
        let chosen = match kind {
            "K" => *self.random.pick(&KEYS),
            "N" => *self.random.pick(&WORDS),
            // For a time: one far off, or none at all. Soon would be a race.
            "E" => loop {
                let word = self.word("N");
                if lower(&word).parse::<u32>().is_err() && word != LEAST {
                    return word;
                }
            },
            "M" => loop {
                let word = self.word("N");
                if word != LEAST {
                    return word;
                }
            },
            "OPT" => *self.random.pick(&options),
            "B" => *self.random.pick(&["0", "1"]),
            "D" => {
                *self.random.pick(&["0", "1", "2", "0", "1", "2", "0", "1", "2", "3", "-1", "x"])
            }
            "O" => *self.random.pick(&["wrap", "sat", "FAIL", "wrap", "sat", "fail", "oops"]),
            "X" => *self.random.pick(&["nx", "xx", "gt", "lt", "GT", "oops"]),
            "G" => *self.random.pick(&["*", "?", "[a-c]", "*k*", "co?nter", "[^a]", "\\a", "{*"]),
            "PAST" => *self.random.pick(&["1", "1000000000"]),
            "#B" => *self.random.pick(&["#0", "#1", "#3", "#-1", "#x"]),
            "R" => return (self.random.below(120) as i64 - 40).to_string().into_bytes(),
            "F" => return self.float(),
            "T" => return self.field_type(),
            "SECS" => return self.number(10_000, 9_000_000),
            "MILLIS" => return self.number(10_000_000, 9_000_000_000),
            "AT" => return self.number(2_000_000_000, 9_000_000_000),
            "ATMS" => return self.number(2_000_000_000_000, 9_000_000_000_000),
            // Few and short: LCS takes the product of two lengths.
            "L" => *self.random.pick(&["one", "other", "none"]),
            "S" => return self.letters(),
            "V" => return self.value(),
            literal => return literal.as_bytes().to_vec(),
        };
        chosen.as_bytes().to_vec()
    }

    fn float(&mut self) -> Vec<u8> {
        let digits = self.random.next() as f64 / 1e9;
        let text = match self.random.below(4) {
            0 => format!("{digits:.2}"),
            1 => format!("-{digits}"),
            2 => format!("{digits:.15}"),
            _ => format!("{digits:.9}e{}", self.random.below(40) as i64 - 20),
        };
        text.into_bytes()
    }

    fn field_type(&mut self) -> Vec<u8> {
        let sign = self.random.pick(&["i", "u", "i", "u", "i", "u", "I", ""]);
        let bits = [1, 2, 4, 5, 7, 8, 8, 12, 16, 31, 32, 33, 63, 64, 65, 0];
        format!("{sign}{}", self.random.pick(&bits)).into_bytes()
    }

    fn letters(&mut self) -> Vec<u8> {
        (0..self.random.below(20)).map(|_| b'a' + self.random.below(4) as u8).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.below(10) {
            0 => Vec::new(),
            1 => self.random.next().to_string().into_bytes(),
            2 => (self.random.below(30_000) as i64 - 10_000).to_string().into_bytes(),
            3 => {
                let len = [44, 45, 255, 256, 300, 1000, 2000][self.random.below(7)];
                vec![b'a' + self.random.below(3) as u8; len]
            }
            4 => (0..self.random.below(40)).map(|_| self.random.next() as u8).collect(),
            5 => vec![0xff; self.random.below(12)],
            6 => self.float(),
            _ => self.letters(),
        }
    }
}

/// Sorted, as a set of keys.
fn sorted(reply: &Reply) -> Vec<Vec<u8>> {
    let mut keys = reply.strings();
    keys.sort();
    keys
}

/// Returns whether two replies to a command of this name agree.
fn agree(name: &str, subcommand: &str, ours: &[u8], theirs: &[u8]) -> bool {
    if ours == theirs {
        return true;
    }
    let (ours, theirs) = (Reply::read(&mut &ours[..]), Reply::read(&mut &theirs[..]));
    match (name, ours, theirs) {
        ("ttl" | "expiretime", Reply::Integer(one), Reply::Integer(other)) => {
            one > 0 && other > 0 && one.abs_diff(other) <= 10
        }
        ("pttl" | "pexpiretime", Reply::Integer(one), Reply::Integer(other)) => {
            one > 0 && other > 0 && one.abs_diff(other) <= 10_000
        }
        ("keys", ours @ Reply::Array(_), theirs @ Reply::Array(_)) => {
            sorted(&ours) == sorted(&theirs)
        }
        ("scan", Reply::Array(Some(ours)), Reply::Array(Some(theirs))) => {
            // Comparable if both have seen all keys.
            subcommand != "0" || ours[0] != theirs[0] || sorted(&ours[1]) == sorted(&theirs[1])
        }
        ("randomkey", Reply::Bulk(Some(_)), Reply::Bulk(Some(_))) => true,
        ("object", Reply::Integer(_), Reply::Integer(_)) => {
            matches!(subcommand, "idletime" | "refcount")
        }
        _ => false,
    }
}

fn lower(word: &[u8]) -> String {
    String::from_utf8_lossy(word).to_ascii_lowercase()
}

fn show(words: &[Vec<u8>]) -> String {
    words.iter().map(|word| format!("{:?} ", String::from_utf8_lossy(word))).collect()
}

fn show_reply(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned()
}

#[test]
fn replies_are_those_of_redis() {
    // One after the other: two servers at once might find the same free port.
    compare(Protocol::Resp2, 20_260_101, COMMANDS);
    compare(Protocol::Resp3, 20_260_301, COMMANDS / 4);
}

fn compare(protocol: Protocol, seed: u64, commands: usize) {
    let mut lines = Lines { random: Random::new(seed) };
    let mut redis = Redis::start(DATABASES);
    redis.send(&[vec![b"hello".to_vec(), protocol.number().to_string().into_bytes()]]);
    redis.read_reply(&mut Vec::new());
    let store =
        Store::new(StoreConfig { databases: DATABASES, shards: Some(4), ..StoreConfig::default() });
    let mut database = 0;
    let mut history: Vec<String> = Vec::new();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..commands / BATCH {
        let mut batch: Vec<Vec<Vec<u8>>> = Vec::new();
        for _ in 0..BATCH {
            let line = lines.next();
            if lower(&line[0]) == "dbsize" {
                // Makes both drop what has expired.
                let keys = KEYS.iter().map(|key| key.as_bytes().to_vec());
                batch.push(std::iter::once(b"exists".to_vec()).chain(keys).collect());
            }
            batch.push(line);
        }
        redis.send(&batch);
        for words in &batch {
            theirs.clear();
            redis.read_reply(&mut theirs);
            let name = lower(&words[0]);
            if name == "select" {
                if theirs == b"+OK\r\n" {
                    database = lower(&words[1]).parse().expect("the number of a database");
                }
                continue;
            }
            let refs: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            ours.clear();
            let context = Context { database, clock: clock_at(unix_millis()), protocol, worker: 0 };
            execute_in(&store, context, &refs, &mut ours);
            history.push(format!("[{database}] {}", show(words)));
            let subcommand = words.get(1).map_or(String::new(), |word| lower(word));
            if !agree(&name, &subcommand, &ours, &theirs) {
                let key = format!("{:?} ", subcommand);
                let about = |line: &&String| line.contains(&key) || line.contains("flush");
                let about: Vec<&String> = history.iter().rev().filter(about).take(25).collect();
                let recent: Vec<&str> = about.iter().rev().map(|line| line.as_str()).collect();
                let recent = recent.join("\n");
                let (ours, theirs) = (show_reply(&ours), show_reply(&theirs));
                panic!(
                    "after {} commands\n{recent}\nours:   {ours}\ntheirs: {theirs}",
                    history.len()
                );
            }
        }
    }
}
