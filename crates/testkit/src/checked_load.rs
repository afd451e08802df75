//! Load whose every reply is checked, through any address that speaks Redis.
//!
//! Every key has one writer, which writes versions one after the other; all
//! clients read all keys. So what a read may show is known without a search: no
//! version older than the last one acknowledged before it was sent, none newer
//! than the last one sent before its reply. Counters find what is executed
//! twice. (Where keys have several writers, [`crate::is_linearizable`] is for
//! it.)

mod client;
mod ledger;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::watchdog::wait_until;
use client::LoadClient;
use ledger::Ledger;

/// How long the last reads may take to find the servers well.
const WELL_WITHIN: Duration = Duration::from_secs(30);

/// What the clients of a [`CheckedLoad`] do.
#[derive(Clone, Debug)]
pub struct LoadShape {
    /// How many there are.
    pub clients: usize,
    /// Keys that each of them writes.
    pub keys_each: usize,
    /// Most requests in one pipeline; each has one or more, by chance.
    pub depth_max: usize,
    /// Most keys in one MGET or MSET; with 1 there are none of either.
    pub batch_max: usize,
    /// Bytes of each value, beside its name and version.
    pub value_len: usize,
    /// A reply that takes longer counts as an error, and the connection is
    /// made anew.
    pub reply_within: Duration,
    /// Whether reads may be old, as those of replicas are. They are still not
    /// to be of another key or of the future.
    pub may_read_old: bool,
    /// The start of every key: two loads at once need two.
    pub prefix: String,
    /// Said on every new connection.
    pub password: Option<String>,
    /// Decides what is asked in which order.
    pub seed: u64,
}

impl Default for LoadShape {
    fn default() -> Self {
        LoadShape {
            clients: 4,
            keys_each: 32,
            depth_max: 4,
            batch_max: 5,
            value_len: 20,
            reply_within: Duration::from_secs(10),
            may_read_old: false,
            prefix: "load".to_owned(),
            password: None,
            seed: 1,
        }
    }
}

/// What came of a [`CheckedLoad`].
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Writes that were acknowledged.
    pub writes: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Error replies by their code, those of ERR by their first words;
    /// `(closed)`, `(late)` and `(refused)` are the connection's.
    pub errors: BTreeMap<String, u64>,
    /// Keys whose last acknowledged write was gone at the end.
    pub lost: Vec<String>,
    /// Reads of an older version than one acknowledged before.
    pub stale: Vec<String>,
    /// Replies that cannot be: of another key, of a version nobody wrote, of
    /// another kind.
    pub wrong: Vec<String>,
    /// Increments that were executed more often than they were sent.
    pub doubled: Vec<String>,
    /// Reads of a write that had failed and came into effect after a later one:
    /// a server may do so where the two came by two connections.
    pub late: u64,
    /// The longest that any client was without a reply that is no error.
    pub longest_pause: Duration,
}

impl LoadReport {
    /// How many error replies and failed connections there were.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// # Panics
    /// When a reply was wrong or stale, or something was lost or doubled.
    pub fn assert_right(&self) {
        let is_right = self.wrong.is_empty() && self.doubled.is_empty();
        assert!(is_right && self.lost.is_empty() && self.stale.is_empty(), "{self}");
    }

    /// # Panics
    /// When a client has seen an error too.
    pub fn assert_clean(&self) {
        self.assert_right();
        assert!(self.errors.is_empty(), "{self}");
    }

    fn add(&mut self, other: LoadReport) {
        self.writes += other.writes;
        self.reads += other.reads;
        for (text, count) in other.errors {
            *self.errors.entry(text).or_default() += count;
        }
        self.lost.extend(other.lost);
        self.stale.extend(other.stale);
        self.wrong.extend(other.wrong);
        self.doubled.extend(other.doubled);
        self.late += other.late;
        self.longest_pause = self.longest_pause.max(other.longest_pause);
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{} writes, {} reads, {} late, longest pause {:.2} s; errors {:?}",
            self.writes,
            self.reads,
            self.late,
            self.longest_pause.as_secs_f32(),
            self.errors
        )?;
        for (what, found) in [
            ("lost", &self.lost),
            ("stale", &self.stale),
            ("wrong", &self.wrong),
            ("doubled", &self.doubled),
        ] {
            writeln!(formatter, "{what}: {}", found.len())?;
            for line in found.iter().take(5) {
                writeln!(formatter, "  {line}")?;
            }
        }
        Ok(())
    }
}

/// Clients that write, read and check until they are told to stop.
#[derive(Debug)]
pub struct CheckedLoad {
    address: SocketAddr,
    shape: LoadShape,
    ledger: Arc<Ledger>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<LoadReport>>,
}

impl CheckedLoad {
    /// Starts it. The keys must not exist yet.
    pub fn start(address: SocketAddr, shape: LoadShape) -> CheckedLoad {
        let ledger = Arc::new(Ledger::new(&shape));
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = (0..shape.clients)
            .map(|number| {
                let client = LoadClient::new(address, &shape, number, Arc::clone(&ledger));
                let is_over = Arc::clone(&is_over);
                std::thread::spawn(move || client.run(&is_over))
            })
            .collect();
        CheckedLoad { address, shape, ledger, is_over, threads }
    }

    /// Replies that were no errors so far, of all clients.
    pub fn reply_count(&self) -> u64 {
        self.ledger.reply_count()
    }

    /// Error replies and failed connections so far, of all clients.
    pub fn error_count(&self) -> u64 {
        self.ledger.error_count()
    }

    /// Waits until there have been as many more of them: to see that the load
    /// goes on after something has happened.
    pub fn wait_replies(&self, more: u64) {
        let goal = self.reply_count() + more;
        wait_until("the load goes on", WELL_WITHIN, || self.reply_count() >= goal);
    }

    /// Ends the load, reads every key once more, and says what came of it.
    pub fn stop(mut self) -> LoadReport {
        self.is_over.store(true, Ordering::Relaxed);
        let mut report = LoadReport::default();
        for thread in self.threads.drain(..) {
            report.add(thread.join().expect("a client of the load that does not panic"));
        }
        let mut client = LoadClient::new(self.address, &self.shape, 0, Arc::clone(&self.ledger));
        report.add(client.read_all(WELL_WITHIN));
        report
    }
}

impl Drop for CheckedLoad {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
