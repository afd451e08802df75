//! Followers of a store: a second store, and perhaps a server.

use crate::common::memcached::{ask_in, context_at};
use crate::common::redis::{Redis, unix_millis};
use crate::common::{Reply, clock_at, execute, with_args};
use crate::digest::{Holder, digest};
use crate::work::DATABASES;
use keyway_resp::Protocol;
use keyway_store::{Context, EffectReader, MemcachedContext, Store};

pub struct Follower {
    reader: EffectReader,
    replica: Store,
    redis: Option<Redis>,
    database: u32,
    /// The latest effects, for a message.
    recent: Vec<String>,
    in_transaction: bool,
}

/// A store at a time.
struct At<'a>(&'a Store, u64);

impl Holder for At<'_> {
    fn ask(&mut self, database: u32, words: &[&[u8]]) -> Reply {
        let mut out = Vec::new();
        execute(self.0, database, clock_at(self.1), words, &mut out);
        Reply::read(&mut &out[..])
    }
}

impl Holder for Redis {
    fn ask(&mut self, database: u32, words: &[&[u8]]) -> Reply {
        let select = vec![b"select".to_vec(), database.to_string().into_bytes()];
        self.send(&[select, words.iter().map(|word| word.to_vec()).collect()]);
        let mut out = Vec::new();
        self.read_reply(&mut out);
        out.clear();
        self.read_reply(&mut out);
        Reply::read(&mut &out[..])
    }
}

impl Follower {
    pub fn new(reader: EffectReader, replica: Store, redis: Option<Redis>) -> Self {
        let (recent, in_transaction) = (Vec::new(), false);
        Self { reader, replica, redis, database: 0, recent, in_transaction }
    }

    /// Applies all effects that there are.
    pub fn follow(&mut self, history: &[String]) {
        let mut bytes = Vec::new();
        while self.reader.read(&mut bytes).expect("nothing is lost") > 0 {
            let mut rest = &bytes[..];
            let mut lines = Vec::new();
            while !rest.is_empty() {
                lines.push(Reply::read(&mut rest).strings());
            }
            for line in &lines {
                self.apply(line, history);
            }
            assert!(!self.in_transaction, "a unit is read whole");
            self.send(&lines, history);
            bytes.clear();
        }
    }

    fn apply(&mut self, line: &[Vec<u8>], history: &[String]) {
        if self.recent.len() > 400 {
            self.recent.drain(..200);
        }
        let shown: String = line.iter().map(|word| format!("{} ", word.escape_ascii())).collect();
        self.recent.push(shown.chars().take(300).collect());
        match &line[0][..] {
            b"SELECT" => {
                let number = String::from_utf8_lossy(&line[1]).parse();
                self.database = number.expect("the number of a database");
            }
            b"MULTI" => {
                assert!(!std::mem::replace(&mut self.in_transaction, true), "MULTI in MULTI");
            }
            b"EXEC" => {
                assert!(std::mem::replace(&mut self.in_transaction, false), "EXEC without MULTI");
            }
            _ => {
                let words: Vec<&[u8]> = line.iter().map(Vec::as_slice).collect();
                // However late it is.
                let clock = clock_at(unix_millis() * 3);
                let protocol = Protocol::Resp2;
                let context = Context { database: self.database, clock, protocol, worker: 0 };
                let mut out = Vec::new();
                let applied = with_args(&words, |args| self.replica.apply(args, context, &mut out));
                assert!(applied.is_ok(), "{shown} is no command");
                if out.first() == Some(&b'-') && !is_known_error(&words, &out) {
                    self.fail("our replica", &out, history);
                }
            }
        }
    }

    /// Has the server execute the same.
    fn send(&mut self, lines: &[Vec<Vec<u8>>], history: &[String]) {
        let Some(redis) = &mut self.redis else { return };
        let lines: Vec<Vec<Vec<u8>>> =
            lines.iter().filter(|line| is_known_to_redis(line)).cloned().collect();
        let mut failed = None;
        for some in lines.chunks(200) {
            redis.send(some);
            for line in some {
                let mut out = Vec::new();
                redis.read_reply(&mut out);
                let words: Vec<&[u8]> = line.iter().map(Vec::as_slice).collect();
                let is_error = match Reply::read(&mut &out[..]) {
                    Reply::Array(Some(replies)) if line[0] == b"EXEC" => replies
                        .iter()
                        .any(|reply| matches!(reply, Reply::Error(text) if !text.starts_with("INVALIDOBJ"))),
                    reply => matches!(reply, Reply::Error(_)),
                };
                if is_error && !is_known_error(&words, &out) && failed.is_none() {
                    failed = Some((line.clone(), out));
                }
            }
        }
        if let Some((line, out)) = failed {
            let line: String =
                line.iter().map(|word| format!("{} ", word.escape_ascii())).collect();
            self.recent.push(format!("the server refuses: {line}"));
            self.fail("the server", &out, history);
        }
    }

    fn fail(&self, who: &str, out: &[u8], history: &[String]) -> ! {
        let last = |lines: &[String]| lines[lines.len().saturating_sub(25)..].join("\n");
        panic!(
            "{who}: {}\neffects:\n{}\ncommands:\n{}",
            out.escape_ascii(),
            last(&self.recent),
            last(history)
        );
    }

    /// Compares all of them.
    pub fn check(&mut self, store: &Store, millis: u64, history: &[String]) {
        self.follow(history);
        // The server's clock is behind: what has expired is to be gone.
        for database in 0..DATABASES {
            let keys = At(&self.replica, 0).ask(database, &[b"keys", b"*"]).strings();
            for key in keys {
                At(store, millis).ask(database, &[b"exists", &key]);
            }
        }
        self.follow(history);
        let ours = digest(&mut At(store, millis), true);
        // Reading may end keys.
        self.follow(history);
        let theirs = digest(&mut At(&self.replica, millis), true);
        self.compare("our replica", &ours, &theirs, history);
        self.compare_flags(store, millis, history);
        if let Some(mut redis) = self.redis.take() {
            let ours = digest(&mut At(store, millis), false);
            let theirs = digest(&mut redis, false);
            self.compare("the server", &ours, &theirs, history);
            let select = vec![b"select".to_vec(), self.database.to_string().into_bytes()];
            redis.send(&[select]);
            redis.read_reply(&mut Vec::new());
            self.redis = Some(redis);
        }
    }

    fn compare(&self, who: &str, ours: &[String], theirs: &[String], history: &[String]) {
        if ours == theirs {
            return;
        }
        let missing = |from: &[String], in_other: &[String]| -> Vec<String> {
            let lines = from.iter().filter(|line| !in_other.contains(line)).take(3);
            lines.map(|line| line.chars().take(1500).collect()).collect()
        };
        let key = missing(ours, theirs)
            .iter()
            .chain(&missing(theirs, ours))
            .next()
            .and_then(|line| line.split(' ').nth(1).map(str::to_owned))
            .unwrap_or_default();
        let about = |lines: &[String]| -> String {
            let of_key = lines.iter().filter(|line| line.split(' ').any(|word| word == key));
            let all: Vec<&str> = of_key.map(String::as_str).collect();
            all[all.len().saturating_sub(25)..].join("\n")
        };
        panic!(
            "{who} differs\nours:   {}\ntheirs: {}\neffects:\n{}\ncommands:\n{}",
            missing(ours, theirs).join("\n        "),
            missing(theirs, ours).join("\n        "),
            about(&self.recent),
            about(history),
        );
    }

    /// Compares what memcached clients are told, with flags and times.
    fn compare_flags(&self, store: &Store, millis: u64, history: &[String]) {
        for database in 0..DATABASES {
            let keys = At(store, millis).ask(database, &[b"keys", b"*"]).strings();
            let keys = keys.iter().filter(|key| key.iter().all(u8::is_ascii_alphanumeric));
            for key in keys.filter(|key| !key.is_empty()) {
                let context = MemcachedContext { database, ..context_at(millis) };
                let line = format!("mg {} v f t W\r\n", String::from_utf8_lossy(key));
                let line = line.replace(" W", "");
                let ours = ask_in(store, context, line.as_bytes());
                let theirs = ask_in(&self.replica, context, line.as_bytes());
                let show = |bytes: &[u8]| vec![bytes.escape_ascii().to_string()];
                self.compare("mg of our replica", &show(&ours), &show(&theirs), history);
            }
        }
    }
}

/// Redis does not know our own command.
fn is_known_to_redis(line: &[Vec<u8>]) -> bool {
    line[0] != b"KEYWAY.FLAGS"
}

/// PFADD of what is no sketch fails half way here as there.
fn is_known_error(words: &[&[u8]], out: &[u8]) -> bool {
    words[0].eq_ignore_ascii_case(b"pfadd") && out.starts_with(b"-INVALIDOBJ")
}
