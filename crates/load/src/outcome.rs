//! What a run has found, and its form as JSON.
//!
//! Times of latencies are in microseconds, with fractions; those of histograms in nanoseconds. A
//! field is added without a new [`SCHEMA`]; one that changes its meaning or goes makes a new one.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The version of the JSON form of [`Outcome`]. In version 1 rates and latencies included error
/// replies.
pub const SCHEMA: u32 = 2;

/// A file of outcomes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`], as of what wrote it.
    pub schema: u32,
    /// What was found, in the order of the runs.
    pub outcomes: Vec<Outcome>,
}

/// What a run has found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// [`SCHEMA`], as of what wrote it.
    pub schema: u32,
    /// The workload's name, such as `set:1,get:10` or `ycsb-a`.
    pub workload: String,
    /// What was put under load.
    pub target: TargetFacts,
    /// How.
    pub plan: PlanFacts,
    /// When the measured time began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long the measured time was: from the end of the warm-up to the last reply.
    pub seconds: f64,
    /// Why it is over.
    pub ended: Ended,
    /// Everything added up.
    pub totals: Totals,
    /// Latency of the requests that did not fail.
    pub latency: Latency,
    /// Latency of the requests that got an error reply.
    #[serde(default)]
    pub failed_latency: Latency,
    /// The same for each class of commands.
    pub classes: Vec<Class>,
    /// The errors that servers replied with, most frequent first.
    pub errors: Vec<ErrorCount>,
    /// Connections and how long they took.
    pub connections: Connections,
    /// What verification found; none if it was not asked for.
    pub verification: Option<Verification>,
    /// Second by second.
    pub series: Vec<Second>,
    /// What the processes under test used meanwhile.
    pub processes: Vec<ProcessUsage>,
    /// Requests by CPU-second of all those processes; none without any.
    pub requests_per_cpu_second: Option<f64>,
    /// What the generator itself used.
    pub generator: ProcessUsage,
}

/// What was put under load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TargetFacts {
    /// Where it listens.
    pub address: String,
    /// The protocol that was spoken.
    pub protocol: String,
    /// Primaries that were asked directly; 0 outside of a cluster.
    pub cluster_nodes: usize,
}

/// How the load was sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlanFacts {
    /// Threads.
    pub threads: usize,
    /// Connections of each thread.
    pub connections_per_thread: usize,
    /// Requests in flight on a connection.
    pub pipeline: usize,
    /// Requests a second that were due; none in a closed loop.
    pub rate: Option<f64>,
    /// Calls of a connection before it is closed.
    pub calls_per_connection: Option<u64>,
    /// Seconds of warm-up.
    pub warm_up_seconds: f64,
    /// Seconds asked for, if seconds were.
    pub seconds: Option<f64>,
    /// Requests asked for, if a number was.
    pub requests: Option<u64>,
    /// The seed.
    pub seed: u64,
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// As asked.
    Finished,
    /// It was interrupted: what was measured until then is here.
    Interrupted,
    /// The server answered nothing for too long.
    Silent,
}

/// Everything added up. What belongs to the warm-up is not in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Requests that were answered.
    pub requests: u64,
    /// Good replies per second.
    pub per_second: f64,
    /// Error replies, out of all replies.
    pub errors: u64,
    /// Values that were asked for and found.
    pub hits: u64,
    /// Values that were asked for and not found.
    pub misses: u64,
    /// Bytes of requests.
    pub bytes_sent: u64,
    /// Bytes of replies.
    pub bytes_received: u64,
    /// Requests that were sent and never answered: their connection was lost, or the run ended.
    pub unanswered: u64,
    /// Open loop: requests that were due and never sent, for no connection had room.
    pub unsent: u64,
    /// Requests that a cluster told to ask elsewhere, which was done.
    pub redirected: u64,
}

/// What was measured of one class of commands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Class {
    /// Its name: `get`, `set`, `mget_20`, a template's first word.
    pub name: String,
    /// Requests that were answered.
    pub requests: u64,
    /// Good replies per second.
    pub per_second: f64,
    /// Error replies, out of all replies.
    pub errors: u64,
    /// Values that were asked for and found.
    pub hits: u64,
    /// Values that were asked for and not found.
    pub misses: u64,
    /// Latency of good replies.
    pub latency: Latency,
    /// Latency of error replies.
    #[serde(default)]
    pub failed_latency: Latency,
}

/// A distribution of times, in microseconds, and its histogram.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Values in it.
    pub count: u64,
    /// Least.
    pub min_us: f64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Standard deviation.
    pub deviation_us: f64,
    /// The value that 25 of 100 are not above; and so on.
    pub p25_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 75 of 100.
    pub p75_us: f64,
    /// 90 of 100.
    pub p90_us: f64,
    /// 95 of 100.
    pub p95_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1000.
    pub p99_9_us: f64,
    /// 9999 of 10000.
    pub p99_99_us: f64,
    /// Greatest.
    pub max_us: f64,
    /// Buckets that hold anything, in order: the highest value of each in nanoseconds, and how
    /// many are in it. Values are told apart to three digits.
    pub histogram: Vec<(u64, u64)>,
}

impl Totals {
    /// Requests that were answered without an error.
    pub fn good(&self) -> u64 {
        self.requests.saturating_sub(self.errors)
    }
}

impl Outcome {
    /// Requests that failed: by an error reply, or by the loss of their connection before the
    /// reply. Requests that were in flight when a run was interrupted did not fail.
    pub fn failures(&self) -> u64 {
        let is_lost = self.ended != Ended::Interrupted && self.connections.lost > 0;
        self.totals.errors + if is_lost { self.totals.unanswered } else { 0 }
    }
}

impl Latency {
    /// Of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Latency {
        if histogram.is_empty() {
            return Latency::default();
        }
        // Once through all of its buckets: a short run would notice more.
        let seen: Vec<(u64, u64)> = histogram
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect();
        let middle = |value: u64| histogram.median_equivalent(value) as f64;
        let all = histogram.len() as f64;
        let sum: f64 = seen.iter().map(|&(value, count)| middle(value) * count as f64).sum();
        let mean = sum / all;
        let squares = seen.iter().map(|&(value, n)| (middle(value) - mean).powi(2) * n as f64);
        let deviation = (squares.sum::<f64>() / all).sqrt();
        let us = |nanos: u64| nanos as f64 / 1000.0;
        // A bucket's upper end may lie above the greatest value there was.
        let at = |quantile: f64| us(histogram.value_at_quantile(quantile).min(histogram.max()));
        Latency {
            count: histogram.len(),
            min_us: us(histogram.min()),
            mean_us: mean / 1000.0,
            deviation_us: deviation / 1000.0,
            p25_us: at(0.25),
            p50_us: at(0.5),
            p75_us: at(0.75),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            p99_99_us: at(0.9999),
            max_us: us(histogram.max()),
            histogram: seen
                .into_iter()
                .map(|(value, count)| (histogram.highest_equivalent(value), count))
                .collect(),
        }
    }

    /// Values above `limit_us`, as a share of all; as exact as the buckets are.
    pub fn share_above(&self, limit_us: f64) -> f64 {
        let above = self.histogram.iter().filter(|(upper, _)| *upper as f64 / 1000.0 > limit_us);
        let above: u64 = above.map(|(_, count)| count).sum();
        if self.count == 0 { 0.0 } else { above as f64 / self.count as f64 }
    }
}

/// Count of error replies of one shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCount {
    /// Its first word.
    pub kind: String,
    /// The error's words, with numbers, keys, addresses and quoted texts replaced by `*`.
    #[serde(default)]
    pub shape: String,
    /// The first such reply, cut short, with control characters escaped.
    pub example: String,
    /// How many there were.
    pub count: u64,
}

/// Connections over the measured time, and how long they took to stand.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Connections {
    /// Open at the same time.
    pub clients: usize,
    /// Opened, those of the beginning too.
    pub opened: u64,
    /// Opened by second, where connections are closed after a number of calls.
    pub per_second: f64,
    /// Lost: the server closed or reset them.
    pub lost: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// From the call that connects until it stands.
    pub connect: Latency,
    /// Of those that were closed behind all their calls while it was measured: from the call that
    /// connects to the close.
    #[serde(default)]
    pub lifetime: Latency,
}

/// What verification found. What it cannot know it does not count as wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// Values that were looked at.
    pub checked: u64,
    /// Broken, of another key, or never written.
    pub wrong: u64,
    /// Older than one whose write was acknowledged before it was asked for.
    pub stale: u64,
    /// Not there, though a write was acknowledged before; evicted or expired are these too.
    pub missing: u64,
    /// Right, and of an earlier run or another writer: whether it is stale cannot be told.
    pub foreign: u64,
}

impl Verification {
    /// Returns whether nothing was found that must not be.
    pub fn is_clean(&self) -> bool {
        self.wrong == 0 && self.stale == 0 && self.missing == 0
    }
}

/// One second of the measured time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Second {
    /// Which, from 0.
    pub second: u64,
    /// Replies.
    pub requests: u64,
    /// Error replies among them.
    pub errors: u64,
    /// Median latency of good replies, to two digits as the others here.
    pub p50_us: f64,
    /// 90 of 100.
    pub p90_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1000.
    pub p99_9_us: f64,
    /// Greatest.
    pub max_us: f64,
    /// For a heat map: counts by latency, eight buckets to an octave; the upper end of each in
    /// nanoseconds.
    pub heat: Vec<(u64, u64)>,
}

/// What a process used over the measured time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// Its id.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
    /// CPU time in user mode, in seconds; in steps of 10 ms.
    pub user_seconds: f64,
    /// CPU time in the kernel, in seconds; in steps of 10 ms.
    pub system_seconds: f64,
    /// Both, in nanoseconds' precision where the kernel tells.
    pub cpu_seconds: f64,
    /// The same in percent of one core.
    pub cpu_percent: f64,
    /// Times it waited of its own accord.
    pub voluntary_switches: u64,
    /// Times it was made to wait for others.
    pub involuntary_switches: u64,
    /// Resident memory at the end, in bytes.
    pub resident_bytes: u64,
    /// The most of it that was seen, once a second.
    pub resident_max_bytes: u64,
    /// True if it ended before the run did: what it used then is unknown.
    pub is_gone: bool,
}
