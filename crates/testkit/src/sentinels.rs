//! Real sentinels.

use std::fmt::Write;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use crate::client::Client;
use crate::ports::free_address;
use crate::process::Process;
use crate::redis::answers;
use crate::replicated::{Replicated, try_client, try_words};
use crate::temp::TempDir;
use crate::value::Value;
use crate::watchdog::{wait_seldom, wait_seldom_until};

const READY_WITHIN: Duration = Duration::from_secs(20);
const AGREED_WITHIN: Duration = Duration::from_secs(40);

/// After this a server that does not answer counts as down.
const DOWN_AFTER_MS: u32 = 500;

/// Sentinels do most things once in seconds; tests would wait for each. What
/// they know of a replica is good for five periods of pings, and is asked for
/// once a second in a fail-over: with shorter ones no replica is good enough.
const PERIODS: &str = "SENTINEL DEBUG info-period 500 ping-period 300 ask-period 100 \
    publish-period 200 election-timeout 2000";

/// A few sentinels (of redis-server 7 or later) on free loopback ports that
/// watch primaries. All processes end with the value.
#[derive(Debug)]
pub struct Sentinels {
    sentinels: Vec<Sentinel>,
    names: Vec<String>,
    password: Option<String>,
}

#[derive(Debug)]
struct Sentinel {
    process: Process,
    address: SocketAddr,
    directory: TempDir,
    is_running: bool,
}

/// A primary that sentinels watch.
struct Watched {
    name: String,
    at: SocketAddr,
    password: Option<String>,
    replicas: usize,
}

impl Sentinels {
    /// As many sentinels, of which `quorum` must agree that a primary is down.
    /// Each of `primaries` has a name and is the first server of its set.
    /// Returns when every sentinel knows all others and all replicas.
    pub fn start(count: usize, quorum: usize, primaries: &[(&str, &Replicated)]) -> Sentinels {
        Sentinels::start_with(count, quorum, primaries, None)
    }

    /// The same where clients, and the sentinels among themselves, have to say
    /// a password. The one of the servers, if any, is told to the sentinels.
    pub fn start_with(
        count: usize,
        quorum: usize,
        primaries: &[(&str, &Replicated)],
        password: Option<&str>,
    ) -> Sentinels {
        let watched: Vec<Watched> = primaries
            .iter()
            .map(|(name, replicated)| Watched {
                name: (*name).to_owned(),
                at: replicated.address(0),
                password: replicated.password().map(str::to_owned),
                replicas: replicated.server_count() - 1,
            })
            .collect();
        Sentinels::start_watching(count, quorum, &watched, password)
    }

    /// Sentinels that watch a server of another kind, which has so many replicas.
    pub fn watching(
        count: usize,
        quorum: usize,
        (name, at): (&str, SocketAddr),
        replicas: usize,
    ) -> Sentinels {
        let watched = Watched { name: name.to_owned(), at, password: None, replicas };
        Sentinels::start_watching(count, quorum, &[watched], None)
    }

    fn start_watching(
        count: usize,
        quorum: usize,
        all: &[Watched],
        password: Option<&str>,
    ) -> Sentinels {
        let mut watched = String::new();
        for Watched { name, at, password, .. } in all {
            let _ = writeln!(watched, "sentinel monitor {name} {} {} {quorum}", at.ip(), at.port());
            let _ = writeln!(watched, "sentinel down-after-milliseconds {name} {DOWN_AFTER_MS}");
            let _ = writeln!(watched, "sentinel failover-timeout {name} 3000");
            if let Some(password) = password {
                let _ = writeln!(watched, "sentinel auth-pass {name} {password}");
            }
        }
        if let Some(password) = password {
            let _ = writeln!(watched, "requirepass {password}\nsentinel sentinel-pass {password}");
        }
        let sentinels = (0..count).map(|_| Sentinel::start(&watched)).collect();
        let names = all.iter().map(|it| it.name.clone()).collect();
        let sentinels = Sentinels { sentinels, names, password: password.map(str::to_owned) };
        for sentinel in 0..count {
            sentinels.hasten(sentinel);
        }
        for Watched { name, replicas, .. } in all {
            sentinels.wait_known(name, *replicas);
        }
        sentinels
    }

    /// Where they listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(|sentinel| sentinel.address).collect()
    }

    /// What they call the primaries they watch.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// A sentinel's process.
    pub fn process(&self, sentinel: usize) -> &Process {
        &self.sentinels[sentinel].process
    }

    /// A connection to a sentinel; with the password said where there is one.
    pub fn client(&self, sentinel: usize) -> Client {
        let address = self.sentinels[sentinel].address;
        let client = try_client(address, self.password.as_deref());
        client.unwrap_or_else(|| panic!("sentinel {address} does not answer"))
    }

    /// What a sentinel answers to a command.
    pub fn ask(&self, sentinel: usize, words: &str) -> Value {
        self.client(sentinel).words(words)
    }

    /// Where the primary called `name` is, by the account of one sentinel; none
    /// where it does not answer.
    pub fn primary_seen_by(&self, sentinel: usize, name: &str) -> Option<SocketAddr> {
        let words = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {name}");
        let Value::Array(parts) = self.try_ask(sentinel, &words)? else { return None };
        let [host, port] = &parts[..] else { return None };
        Some(SocketAddr::new(host.text().parse().ok()?, port.text().parse().ok()?))
    }

    /// Waits until all sentinels that run say the same of the primary called
    /// `name`, and that `accept` takes it.
    pub fn wait_primary(&self, name: &str, accept: impl Fn(SocketAddr) -> bool) -> SocketAddr {
        wait_seldom("the sentinels agree on a primary", AGREED_WITHIN, || {
            let mut seen = self.running().map(|sentinel| self.primary_seen_by(sentinel, name));
            let first = seen.next()??;
            (accept(first) && seen.all(|other| other == Some(first))).then_some(first)
        })
    }

    /// Has another server made the primary, though there is one, and waits
    /// until all sentinels say so. Returns where it is.
    ///
    /// # Panics
    /// When it is refused or does not come about.
    pub fn failover(&self, name: &str) -> SocketAddr {
        let before = self.wait_primary(name, |_| true);
        let words = format!("SENTINEL FAILOVER {name}");
        // Refused while the sentinels have not heard of all replicas, or the
        // last one is not over.
        wait_seldom_until("a fail-over begins", AGREED_WITHIN, || {
            let first = self.running().next().expect("a sentinel that runs");
            self.ask(first, &words) == Value::simple("OK")
        });
        self.wait_primary(name, |address| address != before)
    }

    /// kill -9. [`Sentinels::restart`] brings it back.
    pub fn kill(&mut self, sentinel: usize) {
        self.sentinels[sentinel].process.kill();
        self.sentinels[sentinel].is_running = false;
    }

    /// Starts a sentinel again; it remembers what it knew.
    pub fn restart(&mut self, sentinel: usize) {
        let one = &mut self.sentinels[sentinel];
        one.process.kill();
        one.process = spawn(&one.directory, one.address);
        one.is_running = true;
        self.hasten(sentinel);
    }

    /// Kills all of them, and starts them again: for a moment there is none.
    pub fn restart_all(&mut self) {
        let all = 0..self.sentinels.len();
        all.clone().for_each(|sentinel| self.kill(sentinel));
        all.for_each(|sentinel| self.restart(sentinel));
    }

    /// SIGSTOP: it keeps its sockets and answers nothing.
    pub fn pause(&mut self, sentinel: usize) {
        self.sentinels[sentinel].process.pause();
        self.sentinels[sentinel].is_running = false;
    }

    /// SIGCONT, after [`Sentinels::pause`].
    pub fn resume(&mut self, sentinel: usize) {
        self.sentinels[sentinel].process.resume();
        self.sentinels[sentinel].is_running = true;
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.sentinels.len()).filter(|&sentinel| self.sentinels[sentinel].is_running)
    }

    fn try_ask(&self, sentinel: usize, words: &str) -> Option<Value> {
        try_words(self.sentinels[sentinel].address, self.password.as_deref(), words)
    }

    fn hasten(&self, sentinel: usize) {
        assert_eq!(self.ask(sentinel, PERIODS), Value::simple("OK"));
    }

    /// Waits until every sentinel knows all others and this many replicas.
    pub fn wait_known(&self, name: &str, replicas: usize) {
        let sentinels = self.sentinels.len() - 1;
        wait_seldom_until("the sentinels know each other and all replicas", AGREED_WITHIN, || {
            self.running().all(|sentinel| {
                let Some(reply) = self.try_ask(sentinel, &format!("SENTINEL MASTER {name}")) else {
                    return false;
                };
                field(&reply, "num-slaves") == replicas.to_string()
                    && field(&reply, "num-other-sentinels") == sentinels.to_string()
                    && field(&reply, "flags") == "master"
            })
        });
        wait_seldom_until("the sentinels find all replicas linked", AGREED_WITHIN, || {
            self.running().all(|sentinel| {
                let words = format!("SENTINEL REPLICAS {name}");
                let Some(Value::Array(all)) = self.try_ask(sentinel, &words) else { return false };
                all.iter().all(|replica| field(replica, "master-link-status") == "ok")
            })
        });
    }
}

/// A field of what a sentinel says of an instance; empty where it is missing.
fn field(reply: &Value, name: &str) -> String {
    let Value::Array(words) = reply else { return String::new() };
    let pair = words.chunks(2).find(|pair| pair[0].text() == name);
    pair.map(|pair| pair[1].text()).unwrap_or_default()
}

impl Sentinel {
    fn start(watched: &str) -> Sentinel {
        let (directory, address) = (TempDir::new(), free_address());
        let path = directory.path();
        let text = format!(
            "port {}\nbind {}\ndir {}\n{watched}",
            address.port(),
            address.ip(),
            path.display()
        );
        std::fs::write(path.join("sentinel.conf"), text).expect("a file in a fresh directory");
        let process = spawn(&directory, address);
        Sentinel { process, address, directory, is_running: true }
    }
}

fn spawn(directory: &TempDir, address: SocketAddr) -> Process {
    let mut command = Command::new("redis-server");
    command.arg(directory.path().join("sentinel.conf")).arg("--sentinel");
    let mut process = Process::spawn("redis-sentinel", &mut command, directory.path());
    process.wait_ready(READY_WITHIN, || answers(address));
    process
}
