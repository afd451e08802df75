//! A store with a log and its content, for all tests of the log.
#![allow(dead_code, reason = "each test uses its part")]

use keyway_base::{ByteRange, Clock, Time};
use keyway_command::{Args, Request};
use keyway_log::{Fsync, Functions, Log, LogFault, Notice, Settings};
use keyway_resp::Protocol;
use keyway_store::{Context, Store, StoreConfig};
use keyway_testkit::wait_until;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub const BOUND: Duration = Duration::from_secs(30);

/// Functions that only note what they are told.
#[derive(Default)]
pub struct Noted {
    pub libraries: Mutex<Vec<Arc<[u8]>>>,
    pub told: Mutex<Vec<String>>,
}

impl Functions for Noted {
    fn libraries(&self) -> Vec<Arc<[u8]>> {
        self.libraries.lock().clone()
    }

    fn load(&self, code: &[u8]) -> Result<(), String> {
        self.told.lock().push(format!("load {}", code.escape_ascii()));
        Ok(())
    }

    fn execute(&self, words: &[&[u8]]) {
        let words: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        self.told.lock().push(words.join(" "));
    }
}

/// A store with its log.
pub struct Logged {
    pub store: Arc<Store>,
    pub log: Log,
    pub functions: Arc<Noted>,
    pub notices: Arc<Mutex<Vec<String>>>,
}

pub fn settings(directory: &Path, fsync: Fsync) -> Settings {
    Settings::new(directory.into(), fsync, Arc::new(Noted::default()))
}

impl Logged {
    /// Opens a log and loads what it has.
    pub fn open(settings: Settings) -> Result<Self, LogFault> {
        Self::open_with(settings, Arc::default())
    }

    pub fn open_with(settings: Settings, functions: Arc<Noted>) -> Result<Self, LogFault> {
        Self::open_as(settings, functions, false)
    }

    /// The same, of a store that is a replica or none.
    pub fn open_as(
        mut settings: Settings,
        functions: Arc<Noted>,
        is_replica: bool,
    ) -> Result<Self, LogFault> {
        let config = StoreConfig { databases: 3, shards: Some(16), ..StoreConfig::default() };
        let store = Arc::new(Store::new(config));
        store.set_replica(is_replica);
        let notices: Arc<Mutex<Vec<String>>> = Arc::default();
        let (told, failed) = (Arc::clone(&notices), Arc::new(Mutex::new(None)));
        let fault = Arc::clone(&failed);
        settings.functions = Arc::clone(&functions) as Arc<dyn Functions>;
        settings.notify = Arc::new(move |notice| {
            told.lock().push(format!("{notice:?}"));
            if let Notice::CannotLoad(why) = notice {
                *fault.lock() = Some(why);
            }
        });
        let mut log = Log::open(&store, settings)?;
        log.begin()?;
        log.start().expect("a thread");
        wait_until("loaded", BOUND, || !store.is_loading() || failed.lock().is_some());
        match failed.lock().take() {
            Some(fault) => Err(fault),
            None => Ok(Self { store, log, functions, notices }),
        }
    }

    /// The reply to a line, cut at blanks; once it may be sent.
    pub fn run(&self, line: &str) -> String {
        let reply = run_in(&self.store, 0, line);
        self.settle();
        reply
    }

    /// Waits as a worker does before it sends replies; how often writes were lost.
    pub fn settle(&self) -> u64 {
        let log = self.store.log().expect("a log");
        log.await_room(&|| self.store.effects_are_full());
        log.before_replies(self.store.told())
    }

    pub fn noticed(&self, what: &str) -> bool {
        self.notices.lock().iter().any(|notice| notice.starts_with(what))
    }

    /// Ends in order; what the store held.
    pub fn end(mut self) -> Vec<String> {
        let held = contents(&self.store);
        self.log.end();
        held
    }
}

pub fn now() -> Clock {
    #[allow(clippy::disallowed_methods, reason = "a test is its own driver")]
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Clock { now: Time(unix.as_nanos() as u64), unix_micros: unix.as_micros() as u64 }
}

pub fn run_in(store: &Store, database: u32, line: &str) -> String {
    let (mut buf, mut ranges) = (Vec::new(), Vec::new());
    for word in line.split(' ') {
        ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
        buf.extend_from_slice(word.as_bytes());
    }
    let args = Args::new(&buf, &ranges);
    let request = Request::resolve(args).unwrap_or_else(|_| panic!("no command: {line}"));
    let context = Context { database, clock: now(), protocol: Protocol::Resp2, worker: 0 };
    let mut out = Vec::new();
    store.execute(&request, context, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// All that a store holds, in a form that does not depend on how it is stored.
pub fn contents(store: &Store) -> Vec<String> {
    let mut all = Vec::new();
    for database in 0..3 {
        let run = |line: &str| run_in(store, database, line);
        let keys = run("KEYS *");
        for key in keys.split("\r\n").skip(2).step_by(2).filter(|key| !key.is_empty()) {
            let kind = run(&format!("TYPE {key}"));
            let (value, is_sorted) = match kind.trim() {
                "+string" => (run(&format!("GET {key}")), true),
                "+list" => (run(&format!("LRANGE {key} 0 -1")), true),
                "+zset" => (run(&format!("ZRANGE {key} 0 -1 WITHSCORES")), true),
                "+stream" => (run(&format!("XRANGE {key} - +")), true),
                "+set" => (run(&format!("SMEMBERS {key}")), false),
                "+hash" => (run(&format!("HGETALL {key}")), false),
                other => panic!("{key} is {other}"),
            };
            let mut parts: Vec<&str> = value.split("\r\n").collect();
            if !is_sorted {
                parts.sort_unstable();
            }
            let expiry = run(&format!("PEXPIRETIME {key}"));
            all.push(format!("{database} {key} {} {} {parts:?}", kind.trim(), expiry.trim()));
        }
    }
    all.sort();
    all
}
