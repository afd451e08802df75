//! The metrics of a node of the bus, and their exposition. The node counts most of them itself, and
//! is asked at each scrape.

use crate::catalogue::{self, Metric};
use crate::exposition::family;
use crate::histogram::{Latency, LatencyHistogram, Snapshot};
use crate::process;
use keyway_base::Time;
use std::time::Duration;

/// Connections of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusLink {
    /// Value of the label `link`.
    pub kind: &'static str,
    /// Number of connections.
    pub count: u64,
    /// Bytes that are queued for them.
    pub queued_bytes: u64,
}

/// The figures of a node. The fields have the names of the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the catalogue says what each is")]
pub struct BusFigures {
    /// One entry for each kind.
    pub links: Vec<BusLink>,
    pub below_nodes: u64,
    pub is_rooted: bool,
    pub upstream_changes: u64,
    pub sent_messages: u64,
    pub delivered_messages: u64,
    pub relayed_frames: u64,
    pub full_pushes: u64,
    pub delta_pushes: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub inbox_bytes: u64,
    pub refused_messages: u64,
    pub untold_failures: u64,
    /// Counts by reason, with every reason that exists.
    pub failed_messages: Vec<(String, u64)>,
    /// Counts by reason, with every reason that exists.
    pub refused_links: Vec<(String, u64)>,
    /// Counts by reason, with every reason that exists.
    pub lost_links: Vec<(String, u64)>,
}

/// Metrics that are not among a node's own figures.
#[derive(Debug)]
pub struct BusMetrics {
    version: &'static str,
    start_unix_micros: u64,
    round_trips: LatencyHistogram,
}

impl BusMetrics {
    /// Creates the metrics of a process with this version and start time.
    pub fn new(version: &'static str, start_unix_micros: u64) -> Self {
        Self { version, start_unix_micros, round_trips: LatencyHistogram::new() }
    }

    /// Counts a round trip. Called by one thread only.
    pub fn note_round_trip(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.round_trips.add(Latency::between(Time(0), Time(nanos)), 1);
    }

    /// Appends all metrics in the Prometheus text format.
    pub fn write_prometheus(&self, figures: &BusFigures, out: &mut String) {
        self.write_bus(figures, out);
        self.process(out);
    }

    /// Appends the metrics of the bus, without those of the process.
    pub fn write_bus(&self, figures: &BusFigures, out: &mut String) {
        use catalogue::*;
        links(out, &BUS_LINKS, figures, |link| link.count);
        one(out, &BUS_BELOW, figures.below_nodes);
        one(out, &BUS_ROOTED, u64::from(figures.is_rooted));
        one(out, &BUS_CHANGES, figures.upstream_changes);
        one(out, &BUS_SENT, figures.sent_messages);
        one(out, &BUS_DELIVERED, figures.delivered_messages);
        one(out, &BUS_RELAYED, figures.relayed_frames);
        one(out, &BUS_FULL_PUSHES, figures.full_pushes);
        one(out, &BUS_DELTA_PUSHES, figures.delta_pushes);
        one(out, &BUS_RECEIVED_BYTES, figures.received_bytes);
        one(out, &BUS_SENT_BYTES, figures.sent_bytes);
        links(out, &BUS_QUEUED, figures, |link| link.queued_bytes);
        one(out, &BUS_INBOX, figures.inbox_bytes);
        reasons(out, &BUS_FAILED, &figures.failed_messages);
        one(out, &BUS_REFUSED, figures.refused_messages);
        one(out, &BUS_UNTOLD, figures.untold_failures);
        reasons(out, &BUS_REFUSED_LINKS, &figures.refused_links);
        reasons(out, &BUS_LOST_LINKS, &figures.lost_links);
        let snapshot = Snapshot::of_latencies(std::iter::once(&self.round_trips));
        family(out, &BUS_ROUND_TRIP).histogram(&[], &snapshot);
    }

    fn process(&self, out: &mut String) {
        use catalogue::*;
        family(out, &PROCESS_BUILD).sample(&[self.version], 1);
        family(out, &PROCESS_START).sample(&[], self.start_unix_micros as f64 / 1e6);
        if let Some(ticks) = process::process_cpu_ticks() {
            let seconds = ticks as f64 / process::TICKS_PER_SECOND as f64;
            family(out, &PROCESS_CPU).sample(&[], seconds);
        }
        if let Some(bytes) = process::resident_bytes() {
            one(out, &PROCESS_RESIDENT, bytes);
        }
        if let Some(fds) = process::open_fds() {
            one(out, &PROCESS_FDS, fds);
        }
    }
}

fn one(out: &mut String, metric: &'static Metric, value: u64) {
    family(out, metric).sample(&[], value);
}

fn links(
    out: &mut String,
    metric: &'static Metric,
    figures: &BusFigures,
    value: impl Fn(&BusLink) -> u64,
) {
    let mut family = family(out, metric);
    for link in &figures.links {
        family.sample(&[link.kind], value(link));
    }
}

fn reasons(out: &mut String, metric: &'static Metric, counts: &[(String, u64)]) {
    let mut family = family(out, metric);
    for (reason, count) in counts {
        family.sample(&[reason], count);
    }
}
