//! The figures that are read of a process, a pool or a server, and where in `/metrics` they are.

use std::ops::AddAssign;

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "FIGURES names the metric of each, which is documented")]
pub enum Figure {
    Requests,
    Errors,
    Refused,
    Clients,
    Accepted,
    Received,
    Sent,
    Pauses,
    Slow,
    Items,
    Memory,
    Hits,
    Misses,
    Evictions,
    Expirations,
    ServerRequests,
    ServerErrors,
    ErrorReplies,
    InFlight,
    Unsent,
    Links,
    Reconnects,
    Ejections,
    Workers,
    StartTime,
    Cpu,
    Resident,
    Descriptors,
}

const COUNT: usize = Figure::Descriptors as usize + 1;

/// Whose figure it is, which is told by its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The process: no label.
    Process,
    /// A pool: `pool`.
    Pool,
    /// A server: `pool` and `backend`.
    Server,
}

/// Where a figure is found.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The metric.
    pub metric: &'static str,
    /// What it becomes.
    pub figure: Figure,
    /// Whose it is.
    pub scope: Scope,
    /// True if it only grows, so that its growth over time is what matters.
    pub is_counter: bool,
}

macro_rules! sources {
    ($($metric:literal is $figure:ident of $scope:ident $kind:ident;)*) => {
        /// Every figure but latencies. Samples that differ in other labels are added up.
        pub const FIGURES: &[Source] = &[$(Source {
            metric: $metric,
            figure: Figure::$figure,
            scope: Scope::$scope,
            is_counter: sources!(@ $kind),
        }),*];
    };
    (@ counted) => { true };
    (@ now) => { false };
}

sources! {
    "keyway_pool_requests_total" is Requests of Pool counted;
    "keyway_pool_errors_total" is Errors of Pool counted;
    "keyway_pool_refused_requests_total" is Refused of Pool counted;
    "keyway_client_connections" is Clients of Pool now;
    "keyway_client_accepted_connections_total" is Accepted of Pool counted;
    "keyway_client_received_bytes_total" is Received of Pool counted;
    "keyway_client_sent_bytes_total" is Sent of Pool counted;
    "keyway_client_pauses_total" is Pauses of Pool counted;
    "keyway_store_items" is Items of Pool now;
    "keyway_store_memory_bytes" is Memory of Pool now;
    "keyway_store_hits_total" is Hits of Pool counted;
    "keyway_store_misses_total" is Misses of Pool counted;
    "keyway_store_evictions_total" is Evictions of Pool counted;
    "keyway_store_expirations_total" is Expirations of Pool counted;
    "keyway_backend_requests_total" is ServerRequests of Server counted;
    "keyway_backend_errors_total" is ServerErrors of Server counted;
    "keyway_backend_error_replies_total" is ErrorReplies of Server counted;
    "keyway_backend_in_flight_requests" is InFlight of Server now;
    "keyway_backend_unsent_bytes" is Unsent of Server now;
    "keyway_backend_ready_links" is Links of Server now;
    "keyway_backend_reconnects_total" is Reconnects of Server counted;
    "keyway_backend_ejections_total" is Ejections of Server counted;
    "keyway_process_workers" is Workers of Process now;
    "keyway_process_start_time_seconds" is StartTime of Process now;
    "keyway_process_cpu_seconds_total" is Cpu of Process counted;
    "keyway_process_resident_memory_bytes" is Resident of Process now;
    "keyway_process_open_fds" is Descriptors of Process now;
}

/// The metric with a pool's latencies: a histogram.
pub const POOL_LATENCY: &str = "keyway_pool_reply_latency_seconds";
/// The metric with a server's latencies: a histogram.
pub const SERVER_LATENCY: &str = "keyway_backend_latency_seconds";
/// The metric whose label says what version runs.
pub const BUILD: &str = "keyway_process_build_info";
/// Requests above a latency; of its bounds the middle one is shown.
pub const SLOW: &str = "keyway_pool_slow_requests_total";
/// The bound of [`SLOW`] that is shown.
pub const SLOW_OVER: &str = "8ms";
/// What is counted by `fault`, and how it is called.
pub const FAULTS: &[(&str, &str)] = &[
    ("keyway_pool_errors_total", "errors answered"),
    ("keyway_pool_refused_requests_total", "refused"),
    ("keyway_backend_errors_total", "server failed"),
    ("keyway_backend_error_replies_total", "server's errors"),
    ("keyway_listener_refused_connections_total", "turned away"),
    ("keyway_login_failures_total", "logins failed"),
];
/// Health by number where `/backends` tells nothing.
pub const HEALTH: &str = "keyway_backend_health_state";

/// Bounds of the histograms there can be. Ours have 18.
pub const BOUNDS_MAX: usize = 64;

/// Counts up to each bound, and all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Upper bounds in seconds, rising, and how many values are at or below each.
    pub buckets: Vec<(f64, f64)>,
    /// How many values there are.
    pub count: f64,
}

impl Histogram {
    /// Adds values to the bucket of a bound; a bound that is not met before gets a bucket.
    pub fn add_bucket(&mut self, bound: f64, count: f64) {
        if bound.is_infinite() {
            self.count += count;
            return;
        }
        match self.buckets.binary_search_by(|(known, _)| known.total_cmp(&bound)) {
            Ok(index) => self.buckets[index].1 += count,
            Err(index) if self.buckets.len() < BOUNDS_MAX => {
                self.buckets.insert(index, (bound, count));
            }
            Err(_) => {}
        }
    }

    /// The value that a share of the values is at or below, read between bounds as if values
    /// lay evenly there; infinite above the last bound, `None` without values.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        if self.count <= 0.0 {
            return None;
        }
        let rank = share * self.count;
        let (mut below, mut counted) = (0.0, 0.0);
        for &(bound, count) in &self.buckets {
            if count >= rank && count > counted {
                return Some(below + (bound - below) * (rank - counted) / (count - counted));
            }
            (below, counted) = (bound, count);
        }
        Some(f64::INFINITY)
    }

    fn minus(&self, earlier: &Histogram) -> Histogram {
        let mut left = self.clone();
        for bucket in &mut left.buckets {
            let before = earlier.buckets.iter().find(|(bound, _)| *bound == bucket.0);
            bucket.1 -= before.map_or(0.0, |(_, count)| *count);
        }
        left.count -= earlier.count;
        left
    }
}

/// The figures of one process, pool or server: levels, and counts since its start or, in what
/// [`Figures::since`] returns, by second.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    values: [f64; COUNT],
    /// Latencies of its requests.
    pub latency: Histogram,
}

impl Default for Figures {
    fn default() -> Self {
        Self { values: [0.0; COUNT], latency: Histogram::default() }
    }
}

impl Figures {
    /// One of them.
    pub fn get(&self, figure: Figure) -> f64 {
        self.values[figure as usize]
    }

    /// Adds to one of them.
    pub fn add(&mut self, figure: Figure, value: f64) {
        self.values[figure as usize] += value;
    }

    /// Levels as they are now; counters by second, over the time since an earlier reading.
    pub fn since(&self, earlier: &Figures, seconds: f64) -> Figures {
        let mut rates = self.clone();
        rates.latency = self.latency.minus(&earlier.latency);
        let counters = FIGURES.iter().filter(|source| source.is_counter);
        for figure in counters.map(|source| source.figure).chain([Figure::Slow]) {
            let grown = self.get(figure) - earlier.get(figure);
            rates.values[figure as usize] = grown.max(0.0) / seconds;
        }
        rates
    }
}

impl AddAssign<&Figures> for Figures {
    fn add_assign(&mut self, other: &Figures) {
        for (value, more) in self.values.iter_mut().zip(other.values) {
            *value += more;
        }
        for &(bound, count) in &other.latency.buckets {
            self.latency.add_bucket(bound, count);
        }
        self.latency.count += other.latency.count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_metrics::{CATALOGUE, Kind, Label};

    fn metric(name: &str) -> &'static keyway_metrics::Metric {
        CATALOGUE.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn every_figure_is_a_metric_of_the_catalogue_with_the_labels_it_needs() {
        for source in FIGURES {
            let metric = metric(source.metric);
            assert_eq!(metric.kind == Kind::Counter, source.is_counter, "{}", source.metric);
            let of = |label| metric.labels.contains(&label);
            let scope = match (of(Label::Pool), of(Label::Backend)) {
                (true, true) => Scope::Server,
                (true, false) => Scope::Pool,
                _ => Scope::Process,
            };
            assert_eq!(scope, source.scope, "{}", source.metric);
        }
        for name in [POOL_LATENCY, SERVER_LATENCY] {
            assert_eq!(metric(name).kind, Kind::Histogram);
        }
        assert_eq!(metric(BUILD).labels, [Label::Version]);
        assert!(metric(SLOW).labels.contains(&Label::Over));
        assert_eq!(metric(HEALTH).kind, Kind::Gauge);
        for (name, _) in FAULTS {
            assert_eq!(metric(name).kind, Kind::Counter);
        }
    }

    #[test]
    fn each_figure_has_one_source() {
        for (index, source) in FIGURES.iter().enumerate() {
            assert!(FIGURES[..index].iter().all(|other| other.figure != source.figure));
        }
        // Slow is read by its label.
        assert_eq!(FIGURES.len(), COUNT - 1);
    }

    #[test]
    fn quantiles_lie_between_their_bounds() {
        let mut latency = Histogram::default();
        assert_eq!(latency.quantile(0.5), None);
        for (bound, count) in [(0.001, 50.0), (0.002, 90.0), (0.004, 99.0), (f64::INFINITY, 100.0)]
        {
            latency.add_bucket(bound, count);
        }
        assert_eq!(latency.quantile(0.5), Some(0.001));
        assert_eq!(latency.quantile(0.25), Some(0.0005));
        assert_eq!(latency.quantile(0.7), Some(0.0015));
        assert_eq!(latency.quantile(0.99), Some(0.004));
        assert_eq!(latency.quantile(0.999), Some(f64::INFINITY));
    }

    #[test]
    fn counters_become_rates_and_levels_stay() {
        let (mut before, mut now) = (Figures::default(), Figures::default());
        before.add(Figure::Requests, 100.0);
        before.latency.add_bucket(0.001, 60.0);
        before.latency.add_bucket(f64::INFINITY, 100.0);
        now.add(Figure::Requests, 300.0);
        now.add(Figure::Clients, 7.0);
        now.latency.add_bucket(0.001, 160.0);
        now.latency.add_bucket(f64::INFINITY, 300.0);
        let rates = now.since(&before, 2.0);
        assert_eq!(rates.get(Figure::Requests), 100.0);
        assert_eq!(rates.get(Figure::Clients), 7.0);
        assert_eq!((rates.latency.buckets[0].1, rates.latency.count), (100.0, 200.0));
    }
}
