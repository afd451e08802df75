//! Draws sequences: the same seed, the same sequence.

use super::Reach;
use crate::random::Random;

/// A request: its words.
pub type Words = Vec<Vec<u8>>;

/// Requests that one connection sends in one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which connection, from 0.
    pub connection: usize,
    /// The requests. A word `CLIENT<n>` stands for the id of connection n, and
    /// one that is `walk` for a cursor: the player walks to the end.
    pub requests: Vec<Words>,
}

/// Connections of a sequence.
pub(super) const CONNECTIONS: usize = 3;

const TEMPLATES: &str = include_str!("templates.txt");

/// The digests of the two scripts that sequences load, and that of none.
const DIGESTS: [&str; 3] = [
    "07a09e43d38dbd624d42506ddd6439b6e8c5f3c1",
    "a79a73d4efb6d4d8861290b54f6770d6422c2144",
    "0000000000000000000000000000000000000000",
];

const LIBRARY: &str = "#!lua name=lib\n\
    redis.register_function('f', function(keys, args) return {keys[1], #args} end)\n\
    redis.register_function{function_name='g', callback=function(keys, args) \
    return redis.call('TYPE', keys[1]) end, flags={'no-writes'}}";

/// What a sequence is mostly about: families of templates, each as often as
/// it is named.
const FLAVOURS: &[&[&str]] = &[
    &["strings", "keys", "connection"],
    &["lists", "hashes", "keys", "servers"],
    &["sets", "zsets", "keys", "servers"],
    &["streams", "geo", "hyperloglogs"],
    &["transactions", "transactions", "strings", "lists", "hashes", "keys", "connection"],
    &["transactions", "transactions", "zsets", "scripts", "streams", "channels", "blocking"],
    &[
        "channels",
        "channels",
        "subscribing",
        "subscribing",
        "unsubscribing",
        "connection",
        "strings",
    ],
    &["channels", "subscribing", "transactions", "strings", "blocking", "lists"],
    &["blocking", "lists", "zsets", "lists", "waiting", "streams"],
    &["scripts", "scripts", "strings", "hashes", "connection"],
    &["walks", "strings", "keys", "hashes", "sets", "servers_walks", "flushes"],
    &["strings", "lists", "hashes", "sets", "zsets", "streams", "walks", "connection"],
];

const STORE_FLAVOURS: &[&[&str]] = &[
    &["strings", "keys", "connection"],
    &[
        "channels",
        "channels",
        "subscribing",
        "subscribing",
        "unsubscribing",
        "connection",
        "strings",
    ],
    &["walks", "strings", "keys", "flushes"],
    &["transactions", "transactions", "strings", "lists", "hashes", "keys", "connection"],
    &["transactions", "transactions", "zsets", "lists", "channels", "blocking", "flushes"],
    &["channels", "subscribing", "transactions", "strings", "blocking", "lists"],
    &["blocking", "lists", "zsets", "lists", "waiting"],
    &["strings", "keys", "walks", "channels", "subscribing", "unsubscribing", "connection"],
];

/// Verbs of which a changed argument would bring in chance or the clock.
const NEVER_CHANGED: &[&str] = &[
    "SPOP",
    "SRANDMEMBER",
    "RANDOMKEY",
    "HRANDFIELD",
    "ZRANDMEMBER",
    "SCAN",
    "HSCAN",
    "SSCAN",
    "ZSCAN",
    "EXPIRE",
    "EXPIREAT",
    "PEXPIREAT",
    "XADD",
    "SET",
    "GETEX",
    "CLIENT",
    "QUIT",
    "TTL",
    "DUMP",
    "XCLAIM",
    "XAUTOCLAIM",
    "XINFO",
    "COMMAND",
];

/// What the drawing knows of a connection; a guess, only to draw well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Guess {
    is_in_multi: bool,
    is_subscribed: bool,
    is_resp3: bool,
    is_watching: bool,
}

struct Draw {
    random: Random,
    guesses: [Guess; CONNECTIONS],
    /// Whether keys that may are on any server, rather than all on one.
    is_spread: bool,
    flavour: &'static [&'static str],
    reach: Reach,
}

/// Draws the sequence of a seed.
pub fn draw(seed: u64, reach: Reach) -> Vec<Step> {
    let mut random = Random::new(seed);
    let flavours = if reach == Reach::Store { STORE_FLAVOURS } else { FLAVOURS };
    let flavour = *random.pick(flavours);
    let is_spread = random.below(4) == 0;
    let mut draw = Draw { random, guesses: Default::default(), is_spread, flavour, reach };
    let mut steps = Vec::new();
    for connection in 0..CONNECTIONS {
        if draw.random.below(5) < 2 {
            steps.push(draw.lines(connection, &["HELLO 3"]));
            draw.guesses[connection].is_resp3 = true;
        }
    }
    let count = 20 + draw.random.below(60);
    for _ in 0..count {
        steps.push(draw.step());
    }
    steps
}

/// A sequence written by hand: `1: GET a` is sent by connection 1, and `;`
/// separates requests sent in one write.
pub fn written(lines: &[&str]) -> Vec<Step> {
    let step = |line: &&str| {
        let (connection, text) = line.split_once(": ").expect("CONNECTION: REQUEST");
        let requests = text.split(';').map(words).collect();
        Step { connection: connection.parse().expect("a number"), requests }
    };
    lines.iter().map(step).collect()
}

/// A step in the form that [`written`] reads, as far as its bytes allow.
pub fn show(step: &Step) -> String {
    let request = |words: &Words| {
        let words = words.iter().map(|word| word.escape_ascii().to_string());
        words.collect::<Vec<_>>().join(" ")
    };
    let requests: Vec<String> = step.requests.iter().map(request).collect();
    format!("{}: {}", step.connection, requests.join(";"))
}

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.replace("\\s", " ").into_bytes()).collect()
}

fn templates(family: &str) -> Vec<&'static str> {
    let (_, rest) = TEMPLATES.split_once(&format!("[{family}]\n")).expect("a family");
    let lines = rest.split("\n[").next().unwrap_or_default().lines();
    lines.filter(|line| !line.is_empty()).collect()
}

impl Draw {
    fn lines(&mut self, connection: usize, lines: &[&str]) -> Step {
        Step { connection, requests: lines.iter().map(|line| self.fill(line)).collect() }
    }

    fn step(&mut self) -> Step {
        let connection = self.random.below(CONNECTIONS);
        match self.random.below(60) {
            0 => return self.switch(connection),
            1 => return self.silence(connection),
            2 => {
                let how = *self.random.pick(&["", " ERROR", " TIMEOUT"]);
                let line = format!("CLIENT UNBLOCK CLIENT{}{how}", self.random.below(CONNECTIONS));
                return self.lines(connection, &[&line]);
            }
            _ => {}
        }
        let depth = if self.random.below(4) == 0 { 2 + self.random.below(5) } else { 1 };
        let mut requests = Vec::new();
        for _ in 0..depth {
            let line = self.line(connection);
            // Walks and ends are alone in their step.
            if line.contains(" walk") || line.starts_with("QUIT") {
                if requests.is_empty() {
                    requests.push(self.request(connection, line));
                }
                break;
            }
            // Nor is anything known of when a wait behind another one begins.
            if !requests.is_empty() && is_waiting(line) && !line.starts_with("MULTI") {
                break;
            }
            // What is subscribed behind a PUBLISH is a known difference.
            let publishes = |words: &Words| words[0].ends_with(b"PUBLISH");
            if line.contains("SUBSCRIBE") && requests.iter().any(publishes) {
                break;
            }
            requests.push(self.request(connection, line));
        }
        Step { connection, requests }
    }

    /// Another protocol, or everything forgotten.
    fn switch(&mut self, connection: usize) -> Step {
        let line =
            *self.random.pick(&["HELLO 3", "HELLO 2", "RESET", "HELLO 3 SETNAME n", "HELLO"]);
        let guess = &mut self.guesses[connection];
        // A watch does not outlive a change of protocol: a known difference.
        let line = if guess.is_watching { "RESET" } else { line };
        match line {
            "RESET" => *guess = Guess::default(),
            _ if guess.is_in_multi => {}
            "HELLO 2" => guess.is_resp3 = false,
            "HELLO" => {}
            _ => guess.is_resp3 = true,
        }
        self.lines(connection, &[line])
    }

    /// Requests that are not answered, with one behind them that is.
    fn silence(&mut self, connection: usize) -> Step {
        let middle = self.line(connection);
        if middle.contains(" walk")
            || ["QUIT", "WATCH"].iter().any(|verb| middle.starts_with(verb))
            || is_waiting(middle)
        {
            return self.lines(connection, &["PING"]);
        }
        let middle = self.request(connection, middle);
        let around = match self.random.below(2) {
            0 => ["CLIENT REPLY OFF", "CLIENT REPLY ON"],
            _ => ["CLIENT REPLY SKIP", "PING"],
        };
        let mut step = self.lines(connection, &around);
        step.requests.insert(1, middle);
        step
    }

    /// A template for the connection as it is.
    fn line(&mut self, connection: usize) -> &'static str {
        let guess = self.guesses[connection];
        let family = match self.random.below(10) {
            0..=1 if guess.is_in_multi => "transactions",
            0..=6 if guess.is_subscribed && !guess.is_resp3 => {
                *self.random.pick(&["subscribing", "unsubscribing", "unsubscribing", "connection"])
            }
            _ => *self.random.pick(self.flavour),
        };
        let family =
            if family == "blocking" && self.random.below(3) > 0 { "lists" } else { family };
        let mut all = templates(family);
        if self.reach == Reach::Store {
            all.retain(|line| !line.starts_with('X'));
        }
        self.random.pick::<&'static str>(&all)
    }

    fn request(&mut self, connection: usize, line: &str) -> Words {
        let verb = line.split(' ').next().unwrap_or_default();
        let guess = &mut self.guesses[connection];
        match verb {
            "MULTI" => guess.is_in_multi = true,
            "EXEC" | "DISCARD" => (guess.is_in_multi, guess.is_watching) = (false, false),
            "WATCH" => guess.is_watching = true,
            "UNWATCH" if !guess.is_in_multi => guess.is_watching = false,
            "SUBSCRIBE" | "PSUBSCRIBE" | "SSUBSCRIBE" if !guess.is_in_multi => {
                guess.is_subscribed = true;
            }
            "UNSUBSCRIBE" | "PUNSUBSCRIBE" | "SUNSUBSCRIBE" if !line.contains(' ') => {
                guess.is_subscribed = false;
            }
            "QUIT" => *guess = Guess::default(),
            _ => {}
        }
        let mut words = self.fill(line);
        if self.random.below(25) == 0 && !NEVER_CHANGED.contains(&verb) {
            self.change(&mut words);
        }
        words
    }

    /// One word fewer, more or other.
    fn change(&mut self, words: &mut Words) {
        match self.random.below(3) {
            0 => drop(words.pop().filter(|_| words.len() > 1)),
            1 => words.push(b"more".to_vec()),
            _ if words.len() > 1 => {
                let at = 1 + self.random.below(words.len() - 1);
                words[at] = b"odd".to_vec();
            }
            _ => {}
        }
        if words.is_empty() {
            words.push(b"PING".to_vec());
        }
    }

    fn fill(&mut self, line: &str) -> Words {
        let keys = line.split(' ').filter(|word| is_key(word)).count();
        let splits = ["MSET", "MGET", "DEL", "UNLINK", "EXISTS", "TOUCH"];
        let may_spread = keys == 1 || splits.iter().any(|verb| line.starts_with(verb));
        let is_tagged = !(self.is_spread && may_spread && !line.starts_with("WATCH"))
            || self.guesses.iter().any(|guess| guess.is_in_multi);
        line.split(' ').map(|word| self.word(word, is_tagged)).collect()
    }

    fn word(&mut self, word: &str, is_tagged: bool) -> Vec<u8> {
        let random = &mut self.random;
        match word {
            word if is_key(word) => {
                let kind = if word == "A" || random.below(12) == 0 {
                    *random.pick(&["s", "s", "l", "h", "z", "e", "x"])
                } else {
                    &word.to_lowercase()
                };
                let tag = if is_tagged { "{t}" } else { "" };
                format!("{tag}{kind}{}", random.below(3)).into_bytes()
            }
            "V" => value(random),
            "N" => number(random).to_string().into_bytes(),
            "I" => (random.below(8) as i64 - 2).to_string().into_bytes(),
            "F" => (*random.pick(&["0.5", "-1.25", "3", "1e3", "0.1", "x", "-2.5e-3", ""])).into(),
            "W" => (*random.pick(&["1", "2.5", "-3", "0", "inf", "1e17", "(1", "nan"])).into(),
            "B" => random.below(80).to_string().into_bytes(),
            "M" => (*random.pick(&["a", "b", "c", "d", "mem", "7"])).into(),
            "D" => (*random.pick(&["f", "g", "h", "i"])).into(),
            "C" => (*random.pick(&["c0", "c1", "c2", "{t}c", ""])).into(),
            "Q" => (*random.pick(&["c*", "*", "c[01]", "nothing*"])).into(),
            "DIGEST" => (*random.pick(&DIGESTS)).into(),
            "LIBRARY" => LIBRARY.into(),
            "T" | "T000" | "T123" => {
                let digits = &word[1..];
                format!("{}{digits}", 4_102_444_800_u64 + random.below(1000) as u64).into_bytes()
            }
            _ => word.replace("\\s", " ").into_bytes(),
        }
    }
}

/// What is not put between requests that are not answered: it may wait, or
/// change what becomes of them.
fn is_waiting(line: &str) -> bool {
    line.starts_with('B')
        || line.contains("BLOCK")
        || line.starts_with("MULTI")
        || line.contains("SUBSCRIBE")
}

fn is_key(word: &str) -> bool {
    word.len() == 1 && "SLHZEXGPA".contains(word)
}

fn number(random: &mut Random) -> i64 {
    match random.below(8) {
        0 => i64::MAX - random.below(3) as i64,
        1 => i64::MIN + random.below(3) as i64,
        _ => random.below(200) as i64 - 100,
    }
}

/// Short, so that Redis keeps hashes in the order they were filled.
fn value(random: &mut Random) -> Vec<u8> {
    match random.below(6) {
        0 => number(random).to_string().into_bytes(),
        1 => Vec::new(),
        2 => {
            let length = 1 + random.below(40);
            random.bytes(length)
        }
        3 => b"mytextandyours"[random.below(10)..].to_vec(),
        _ => format!("v{}", random.below(1000)).into_bytes(),
    }
}
