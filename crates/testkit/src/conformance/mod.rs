//! One suite over everything that claims to be Redis: the bare server, the
//! embedded store, a sharded pool.
//!
//! Most cases are text ([`script`](self): `cases/*.txt`), each line a command
//! and what must come back. Every case is played three times: one request at
//! a time, all requests in one write, and byte by byte with the server made
//! to look at each cut. What no line of text can say (big values, binary
//! keys, random operations compared with a real server) is code.
//!
//! A target names what it serves beyond the common ground in
//! [`Target::serves`]; cases that need more are skipped and counted.

mod differential;
mod expect;
mod script;
pub mod sequences;
mod whole;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub use differential::{Family, differential};
pub use whole::{half_gigabyte_value, whole};

use crate::client::{Client, ReplyFault};
use crate::value::Value;
use expect::Expect;
use script::{Case, Step, Stimulus};

/// The scripts, by topic.
const SCRIPTS: &[(&str, &str)] = &[
    ("strings", include_str!("cases/strings.txt")),
    ("keys", include_str!("cases/keys.txt")),
    ("expiry", include_str!("cases/expiry.txt")),
    ("protocol", include_str!("cases/protocol.txt")),
    ("server", include_str!("cases/server.txt")),
    ("keyspace", include_str!("cases/keyspace.txt")),
    ("types", include_str!("cases/types.txt")),
];

/// A system under test.
#[derive(Clone, Debug)]
pub struct Target {
    /// What messages call it.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// What it serves beyond strings, keys and expiry: `types` (lists, hashes,
    /// sets, sorted sets), `keyless` (DBSIZE, KEYS, SCAN, FLUSHALL),
    /// `databases` (SELECT of another one), `scripts` (EVAL), `redis` (is the
    /// real server), `keyway` (is not).
    pub serves: Vec<&'static str>,
    /// Where memory is shared, if its clients speak through that.
    pub shm: Option<PathBuf>,
    /// Whether its clients begin with `HELLO 3`.
    is_resp3: bool,
}

impl Target {
    /// A system at `address` that serves the common ground and `serves`.
    pub fn new(name: &str, address: SocketAddr, serves: &[&'static str]) -> Target {
        Target {
            name: name.to_owned(),
            address,
            serves: serves.to_vec(),
            shm: None,
            is_resp3: false,
        }
    }

    /// The same system, asked through memory that it shares at `path`.
    #[must_use]
    pub fn over_shm(&self, path: &Path) -> Target {
        let name = format!("{} over shm", self.name);
        Target { name, shm: Some(path.to_owned()), ..self.clone() }
    }

    /// The same system, asked by clients that speak RESP3. Expectations hold
    /// of the replies as RESP2 would have them.
    #[must_use]
    pub fn in_resp3(&self) -> Target {
        Target { name: format!("{} in RESP3", self.name), is_resp3: true, ..self.clone() }
    }

    /// A connection to it.
    ///
    /// # Panics
    /// When it does not speak what it should.
    pub fn client(&self) -> Client {
        let mut client = match &self.shm {
            None => Client::connect(self.address),
            Some(path) => Client::connect_shm(path),
        };
        if self.is_resp3 {
            let greeting = client.words("HELLO 3");
            assert!(matches!(greeting, Value::Map(_)), "{}: {greeting:?}", self.name);
        }
        client
    }
}

/// How the bytes of a case reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    OneByOne,
    Pipelined,
    ByteByByte,
}

/// What a run found.
#[derive(Debug, Default)]
pub struct Report {
    /// Cases played and passed, each manner counted.
    pub passed: usize,
    /// Cases skipped because the target does not serve what they need.
    pub skipped: usize,
    /// What failed: topic, case, line, what was expected and what came.
    pub failures: Vec<String>,
}

impl Report {
    /// Prints a line of figures and fails the test when anything failed.
    ///
    /// # Panics
    /// When a case failed, with all failures in the message.
    pub fn assert_clean(&self, target: &Target) {
        let (passed, skipped) = (self.passed, self.skipped);
        println!(
            "{}: {passed} passed, {} failed, {skipped} skipped",
            target.name,
            self.failures.len()
        );
        assert!(passed > 0, "nothing was played on {}", target.name);
        assert!(self.failures.is_empty(), "{}:\n{}", target.name, self.failures.join("\n"));
    }
}

/// Plays every scripted case the target serves. The target must be alone with
/// the run: some cases count or drop all keys.
pub fn run(target: &Target) -> Report {
    let mut report = Report::default();
    for (topic, text) in SCRIPTS {
        for case in script::parse(text) {
            if !case.needs.iter().all(|need| target.serves.contains(&need.as_str())) {
                report.skipped += 1;
                continue;
            }
            for manner in [Manner::OneByOne, Manner::Pipelined, Manner::ByteByByte] {
                match play(target, &case, manner) {
                    Ok(()) => report.passed += 1,
                    Err(what) => {
                        report.failures.push(format!("{topic}/{} {manner:?}: {what}", case.name));
                    }
                }
            }
        }
    }
    report
}

static PLAYED: AtomicU32 = AtomicU32::new(0);

/// Keys of no other play: they never meet, on whatever server.
fn fresh_tag() -> String {
    format!("t{}-{}", std::process::id(), PLAYED.fetch_add(1, Ordering::Relaxed))
}

fn play(target: &Target, case: &Case, manner: Manner) -> Result<(), String> {
    let tag = fresh_tag();
    let mut client = target.client();
    let mut witness = target.client();
    let mut waiting: Vec<&Step> = Vec::new();
    for step in &case.steps {
        let bytes = step.stimulus.bytes(&tag);
        match manner {
            Manner::Pipelined if !step.eventually && !step.closes() => {
                waiting.push(step);
                continue;
            }
            Manner::ByteByByte => send_byte_by_byte(&mut client, &mut witness, &bytes)?,
            _ => {
                flush(&mut client, &mut waiting, &tag)?;
                let _ = client.try_send(&bytes);
            }
        }
        check_step(&mut client, step, &tag)?;
    }
    flush(&mut client, &mut waiting, &tag)
}

/// Sends all steps waiting in one write, then checks their replies.
fn flush(client: &mut Client, waiting: &mut Vec<&Step>, tag: &str) -> Result<(), String> {
    let bytes: Vec<u8> = waiting.iter().flat_map(|step| step.stimulus.bytes(tag)).collect();
    let _ = client.try_send(&bytes);
    for step in waiting.drain(..) {
        check_replies(client, step, tag)?;
    }
    Ok(())
}

/// After each byte another client has a request answered: the server has been
/// through its loop and has seen the cut.
fn send_byte_by_byte(
    client: &mut Client,
    witness: &mut Client,
    bytes: &[u8],
) -> Result<(), String> {
    for byte in bytes {
        if client.try_send(&[*byte]).is_err() {
            return Ok(());
        }
        let pong = witness.words("PING");
        if pong != Value::simple("PONG") {
            return Err(format!("another client's PING got {pong:?}"));
        }
    }
    Ok(())
}

fn check_step(client: &mut Client, step: &Step, tag: &str) -> Result<(), String> {
    if !step.eventually {
        return check_replies(client, step, tag);
    }
    // A time-dependent reply: ask again until it is right.
    let bytes = step.stimulus.bytes(tag);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        match check_replies(client, step, tag) {
            Ok(()) => return Ok(()),
            Err(what) if std::time::Instant::now() > end => return Err(what),
            Err(_) => {
                std::thread::sleep(std::time::Duration::from_millis(5));
                client.send(&bytes);
            }
        }
    }
}

fn check_replies(client: &mut Client, step: &Step, tag: &str) -> Result<(), String> {
    for expect in &step.expects {
        let got = client.try_reply();
        let matches = match (&got, expect) {
            (Err(ReplyFault::Closed), Expect::Closed) => true,
            (Ok(value), expect) => expect.matches(&value.clone().plain(), tag),
            _ => false,
        };
        if !matches {
            return Err(format!("line {}: {}: got {}", step.line, step.text, show(&got)));
        }
    }
    Ok(())
}

fn show(got: &Result<Value, ReplyFault>) -> String {
    match got {
        Ok(value) => format!("{value:?}"),
        Err(fault) => fault.to_string(),
    }
}

impl Stimulus {
    fn bytes(&self, tag: &str) -> Vec<u8> {
        match self {
            Stimulus::Raw(bytes) => bytes.clone(),
            Stimulus::Command(words) => {
                let words: Vec<Vec<u8>> = words.iter().map(|word| word.bytes(tag)).collect();
                crate::client::encode(&words)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisServer;

    #[test]
    fn the_real_server_passes_every_scripted_case() {
        let server = RedisServer::start();
        let target = Target::new(
            "redis",
            server.address(),
            &["types", "streams", "keyless", "databases", "scripts", "redis"],
        );
        run(&target).assert_clean(&target);
        let target = target.in_resp3();
        run(&target).assert_clean(&target);
    }

    #[test]
    fn a_wrong_reply_is_noticed_in_every_manner() {
        let backend = crate::ScriptedBackend::start(|arguments| match arguments.first() {
            Some(verb) if verb == b"PING" => crate::Action::Reply(b"+PONG\r\n".to_vec()),
            _ => crate::Action::Reply(b"+NO\r\n".to_vec()),
        });
        let target = Target::new("liar", backend.address(), &[]);
        let case = &script::parse("== one\nSET @a 1 -> +OK\n")[0];
        for manner in [Manner::OneByOne, Manner::Pipelined, Manner::ByteByByte] {
            let what = play(&target, case, manner).expect_err("a lie");
            assert!(what.ends_with("SET @a 1 -> +OK: got +NO"), "{what}");
        }
    }
}
