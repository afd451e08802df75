//! A store with its role, and how it is compared with a server.

use crate::common::redis::unix_millis;
use crate::common::{Reply, clock_at, execute};
use crate::digest::{Digest, Holder, digest};
use keyway_base::Clock;
use keyway_replica::{FollowerSettings, State};
use keyway_script::{Registry, ScriptLimits};
use keyway_standby::{Audience, Parts, Primary, Standby, StandbyStatus};
use keyway_store::{Store, StoreConfig};
use keyway_testkit::{Client, RedisServer, encode, wait_for};
use keyway_topology::Endpoint;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub const BOUND: Duration = Duration::from_secs(20);

/// The news that clients were told.
#[derive(Default)]
pub struct Told {
    pub messages: Mutex<Vec<String>>,
    pub failures: Mutex<Vec<String>>,
}

impl Audience for Told {
    fn changed(&self) {}

    fn became_replica(&self, store: &Store) {
        assert!(store.is_replica());
    }

    fn publish(&self, is_sharded: bool, channel: &[u8], message: &[u8]) {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let line = format!("{is_sharded} {} {}", text(channel), text(message));
        self.messages.lock().push(line);
    }

    fn failed(&self, command: &str, error: &str) {
        self.failures.lock().push(format!("{command}: {error}"));
    }
}

pub fn clock() -> Clock {
    clock_at(unix_millis())
}

/// A store that may be a replica.
pub struct Place {
    pub store: Arc<Store>,
    pub scripts: Arc<Registry>,
    pub standby: Standby,
    pub told: Arc<Told>,
}

impl Place {
    pub fn new() -> Self {
        Self::with(StoreConfig::default())
    }

    pub fn with(config: StoreConfig) -> Self {
        let store = Arc::new(Store::new(config));
        let scripts = Arc::new(Registry::new(ScriptLimits::default(), || clock().now));
        let told = Arc::new(Told::default());
        let parts = Parts {
            store: Arc::clone(&store),
            scripts: Arc::clone(&scripts),
            audience: Arc::clone(&told) as Arc<dyn Audience>,
            clock,
        };
        Self { store, scripts, standby: Standby::new(parts, true), told }
    }

    pub fn follow(&self, address: SocketAddr) {
        let endpoint = Endpoint::tcp(&address.ip().to_string(), address.port());
        let settings = FollowerSettings {
            pause_min: Duration::from_millis(2),
            pause_max: Duration::from_millis(20),
            ..FollowerSettings::new(endpoint.expect("an address"))
        };
        let primary = Primary { host: address.ip().to_string(), port: address.port() };
        self.standby.follow(primary, settings).expect("a thread");
    }

    pub fn of(server: &RedisServer) -> Self {
        let place = Self::new();
        place.follow(server.address());
        place
    }

    pub fn status(&self) -> StandbyStatus {
        self.standby.status().expect("a replica")
    }

    /// The answer to a client in database 0.
    pub fn ask(&self, line: &str) -> Reply {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.ask_in(0, &words)
    }

    pub fn ask_in(&self, database: u32, words: &[&[u8]]) -> Reply {
        let mut out = Vec::new();
        execute(&self.store, database, clock(), words, &mut out);
        Reply::read(&mut &out[..])
    }

    /// Waits for a link that has failed for a reason with these words, after which the follower
    /// has stopped or not.
    pub fn await_reason(&self, text: &str, state: Option<State>) -> String {
        wait_for(&format!("a reason with {text:?}"), BOUND, || {
            let status = self.status();
            let reason = status.link.reason.map(|reason| reason.to_string())?;
            let is_state = state.is_none_or(|state| state == status.link.state);
            (reason.contains(text) && is_state).then_some(reason)
        })
    }

    /// Waits until the store has all that the server has.
    pub fn await_same_offset(&self, client: &mut Client) -> u64 {
        wait_for("the store has caught up", BOUND, || {
            let status = self.status();
            let link = &status.link;
            assert!(link.state != State::Stopped, "stopped: {:?}", link.reason);
            let is_same = link.state == State::Online
                && link.offset.to_string() == info(client, "master_repl_offset")
                && link.id.map(|id| id.to_string()) == Some(info(client, "master_replid"));
            is_same.then_some(link.offset)
        })
    }

    /// Compares the data with that of a replica at rest.
    pub fn assert_equal(&self, replica: &RedisServer) {
        let copied = without_idle(digest(&mut Server(&mut replica.client()), false));
        let expected = without_idle(digest(&mut Here(self), false));
        if expected != copied {
            differ(&copied, &expected);
        }
    }

    /// Compares the data with that of another replica of the same primary, at rest. Both may have
    /// counted times from when a command came: these may differ by a few seconds.
    pub fn assert_near(&self, replica: &RedisServer) {
        let theirs = without_idle(digest(&mut Server(&mut replica.client()), false));
        let own = without_idle(digest(&mut Here(self), false));
        let is_near = |(one, other): (&String, &String)| {
            let (one, other) = (apart(one), apart(other));
            one.0 == other.0 && one.1.abs_diff(other.1) < 5000
        };
        if theirs.len() != own.len() || !theirs.iter().zip(&own).all(is_near) {
            differ(&theirs, &own);
        }
    }

    /// Compares the data with that of another store at rest.
    pub fn assert_like(&self, other: &Place) {
        let copied = without_idle(digest(&mut Here(self), false));
        let expected = without_idle(digest(&mut Here(other), false));
        if expected != copied {
            differ(&expected, &copied);
        }
    }

    /// Waits until all is applied, and compares.
    pub fn assert_same(&self, server: &RedisServer) {
        let mut client = server.client();
        let mut last = None;
        // Requests of clients that have left may still be executed, and keys may expire
        // between the two looks.
        for _ in 0..20 {
            let before = self.await_same_offset(&mut client);
            let expected = as_told(digest(&mut Server(&mut client), false));
            let copied = as_told(digest(&mut Here(self), false));
            let is_at_rest = info(&mut client, "master_repl_offset") == before.to_string();
            if is_at_rest && expected == copied {
                return;
            }
            last = is_at_rest.then_some((expected, copied)).or(last);
        }
        let (expected, copied) = last.expect("the server comes to rest");
        differ(&expected, &copied);
    }
}

/// A line of a digest without its time, and the time.
fn apart(line: &str) -> (String, i64) {
    const MARK: &str = "@Integer(";
    let found = line.rfind(MARK).and_then(|at| {
        let (text, rest) = (&line[..at], &line[at + MARK.len()..]);
        let (time, rest) = rest.split_once(')')?;
        Some((format!("{text}{rest}"), time.parse().ok()?))
    });
    found.unwrap_or_else(|| (line.to_owned(), 0))
}

/// Leaves out consumers of streams that have nothing. Redis tells its replicas of a consumer with
/// the first entry that it has. Valkey writes large scores with all their digits.
fn without_idle(digest: Digest) -> Digest {
    let number = |word: &str| {
        let (score, end) = word.strip_suffix(']').map_or((word, ""), |score| (score, "]"));
        score.parse().map_or(word.to_owned(), |score: f64| format!("{score}{end}"))
    };
    let shown = |line: String| {
        if line.contains(" zset ") {
            return line.split(' ').map(number).collect::<Vec<_>>().join(" ");
        }
        if !line.contains(" stream ") {
            return line;
        }
        let mut parts = line.split("name=");
        let mut kept = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            match part.split_once("consumers=") {
                Some((name, rest)) => {
                    let rest = rest.split_once(' ').map_or("", |(_, rest)| rest);
                    kept.extend(["name=", name, rest]);
                }
                None => match part.split_once(" pending=Integer(0) ") {
                    Some((_, rest)) => kept.push_str(rest),
                    None => kept.extend(["name=", part]),
                },
            }
        }
        kept
    };
    digest.into_iter().map(shown).collect()
}

/// Leaves out what Redis 7.0 does not tell its replicas: how many entries a group has read, and
/// that a consumer has read its pending entries again.
fn as_told(digest: Digest) -> Digest {
    let shown = |line: String| {
        if !line.contains(" stream ") {
            return line;
        }
        let is_told = |word: &&str| !word.starts_with("entries-read=") && !word.starts_with("lag=");
        let words: Vec<&str> = line.split(' ').filter(is_told).collect();
        let mut parts = words.iter().enumerate().map(|(nth, word)| {
            let is_count = nth > 0 && words[nth - 1] == "Null" && word.starts_with("Integer(");
            if is_count { word.split_once(')').map_or(*word, |(_, rest)| rest) } else { word }
        });
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |line, word| line + " " + word)
    };
    without_idle(digest).into_iter().map(shown).collect()
}

fn differ(expected: &Digest, copied: &Digest) -> ! {
    let only = |of: &Digest, other: &Digest| -> Vec<String> {
        of.iter().filter(|line| !other.contains(line)).take(4).cloned().collect()
    };
    panic!(
        "the server has {:#?}\nthe store has {:#?}",
        only(expected, copied),
        only(copied, expected)
    );
}

pub fn info(client: &mut Client, name: &str) -> String {
    let info = client.words("INFO replication").text();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

struct Here<'p>(&'p Place);

impl Holder for Here<'_> {
    fn ask(&mut self, database: u32, words: &[&[u8]]) -> Reply {
        self.0.ask_in(database, words)
    }
}

struct Server<'c>(&'c mut Client);

impl Holder for Server<'_> {
    fn ask(&mut self, database: u32, words: &[&[u8]]) -> Reply {
        self.0.command(&["SELECT", &database.to_string()]);
        self.0.send(&encode(words));
        let reply = self.0.raw_reply();
        Reply::read(&mut &reply[..])
    }
}
