//! What a process said at one time.

use crate::exposition::samples;
use crate::figures::{
    BUILD, FAULTS, FIGURES, Figure, Figures, HEALTH, POOL_LATENCY, SERVER_LATENCY, SLOW, SLOW_OVER,
    Scope, Source,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// A server of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Server {
    /// Its figures.
    pub figures: Figures,
    /// `up`, `ejected` and the like.
    pub state: String,
    /// Its latest failure since it was up, or nothing.
    pub reason: String,
    /// `primary` and the like, if the pool discovers its servers; else empty.
    pub role: String,
    /// Number of slots, in a cluster; else empty.
    pub slots: String,
}

/// What was counted as gone wrong: by pool (or listener, or server), what, and why.
pub type Faults = BTreeMap<(String, &'static str, String), f64>;

/// Everything that is shown of a process, as it was at one time.
#[derive(Clone, Debug)]
pub struct Reading {
    /// When it was read.
    pub at: Instant,
    /// Its version.
    pub version: String,
    /// Why it does not serve every pool; nothing when it does.
    pub not_ready: Vec<String>,
    /// Figures of the process.
    pub process: Figures,
    /// Its pools by name.
    pub pools: BTreeMap<String, Figures>,
    /// What kind each pool is of, as far as that is told.
    pub kinds: BTreeMap<String, String>,
    /// Its servers by pool and name.
    pub servers: BTreeMap<(String, String), Server>,
    /// What went wrong since its start; nothing that is zero.
    pub faults: Faults,
    /// Keys that are asked for most.
    pub hot_keys: Vec<HotKey>,
    /// Keys with the largest values.
    pub big_keys: Vec<BigKey>,
}

/// A key that is asked for often.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub key: String,
    /// `read` or `write`.
    pub access: &'static str,
    /// Its part of all such accesses to the pool, from 0 to 1.
    pub share: f64,
    /// How far that may be off.
    pub share_error: f64,
    /// Accesses a second.
    pub rate: f64,
}

/// A key with a large value.
#[derive(Clone, Debug, PartialEq)]
pub struct BigKey {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub key: String,
    /// Bytes that went by.
    pub bytes: f64,
    /// The command that had them.
    pub command: String,
    /// `request` or `reply`.
    pub direction: String,
    /// When, in seconds since the Unix epoch.
    pub at_unix_seconds: Option<f64>,
}

/// The bodies of what was asked for; `None` where there is no such page.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// `/metrics`.
    pub metrics: String,
    /// `/backends`.
    pub backends: Option<String>,
    /// `/readyz`, when it says no.
    pub not_ready: Option<String>,
    /// `/v1/hot-keys`.
    pub keys: Option<String>,
}

impl Reading {
    /// Reads the pages of one process; `None` when they are not Keyway's.
    pub fn new(pages: &Pages, at: Instant) -> Option<Reading> {
        let mut reading = Reading {
            at,
            version: String::new(),
            not_ready: Vec::new(),
            process: Figures::default(),
            pools: BTreeMap::new(),
            kinds: BTreeMap::new(),
            servers: BTreeMap::new(),
            faults: Faults::new(),
            hot_keys: Vec::new(),
            big_keys: Vec::new(),
        };
        reading.read_metrics(&pages.metrics);
        if let Some(Ok(backends)) = pages.backends.as_deref().map(serde_json::from_str) {
            reading.read_backends(backends);
        }
        if let Some(Ok(keys)) = pages.keys.as_deref().map(serde_json::from_str) {
            reading.read_keys(keys);
        }
        let reasons = pages.not_ready.iter().flat_map(|text| text.lines());
        reading.not_ready = reasons.take(REASONS_MAX).map(printable).collect();
        (!reading.version.is_empty()).then_some(reading)
    }

    fn read_metrics(&mut self, page: &str) {
        for sample in samples(page) {
            let label = |name| sample.label(name);
            if let Some(source) = source(sample.name) {
                self.add(source, label("pool"), label("backend"), sample.value);
            } else if sample.name == SLOW && label("over").as_deref() == Some(SLOW_OVER) {
                self.pool(label("pool")).add(Figure::Slow, sample.value);
            } else if sample.name == BUILD {
                self.version = label("version").unwrap_or_default();
            } else if sample.name == HEALTH {
                let state = health(sample.value).to_owned();
                self.server(label("pool"), label("backend")).state = state;
            } else if let Some(of) = sample.name.strip_suffix("_bucket")
                && let Some(bound) = label("le").and_then(|bound| bound.parse().ok())
            {
                let figures = match of {
                    POOL_LATENCY => self.pool(label("pool")),
                    SERVER_LATENCY => &mut self.server(label("pool"), label("backend")).figures,
                    _ => continue,
                };
                figures.latency.add_bucket(bound, sample.value);
            }
            let told = FAULTS.iter().find(|(name, _)| *name == sample.name);
            if let Some((_, what)) = told.filter(|_| sample.value > 0.0) {
                let of = [label("pool").or(label("listener")), label("backend")];
                let of = of.into_iter().flatten().collect::<Vec<_>>().join(" ");
                let why = label("fault").unwrap_or_default();
                *self.faults.entry((of, what, why)).or_default() += sample.value;
            }
        }
    }

    fn add(&mut self, of: &Source, pool: Option<String>, server: Option<String>, value: f64) {
        let figures = match of.scope {
            Scope::Process => &mut self.process,
            Scope::Pool => self.pool(pool),
            Scope::Server => &mut self.server(pool, server).figures,
        };
        figures.add(of.figure, value);
    }

    fn pool(&mut self, name: Option<String>) -> &mut Figures {
        self.pools.entry(name.unwrap_or_default()).or_default()
    }

    fn server(&mut self, pool: Option<String>, name: Option<String>) -> &mut Server {
        self.servers.entry((pool.unwrap_or_default(), name.unwrap_or_default())).or_default()
    }

    /// States with their reasons, which the metrics do not have.
    fn read_backends(&mut self, told: Backends) {
        for pool in told.pools {
            let name = printable(&pool.pool);
            for one in pool.backends {
                let known = (name.clone(), printable(&one.backend));
                if let Some(server) = self.servers.get_mut(&known) {
                    server.state = printable(&one.state);
                    server.reason = one.reason.as_deref().map(printable).unwrap_or_default();
                    server.role = one.role.as_deref().map(printable).unwrap_or_default();
                    server.slots = one.slots.map(|slots| slots.to_string()).unwrap_or_default();
                }
            }
            self.kinds.insert(name, printable(&pool.kind));
        }
    }
}

impl Reading {
    fn read_keys(&mut self, told: KeyStats) {
        for pool in told.pools {
            let name = printable(&pool.pool);
            for (access, keys) in [("read", pool.reads.keys), ("write", pool.writes.keys)] {
                self.hot_keys.extend(keys.into_iter().map(|it| HotKey {
                    pool: name.clone(),
                    key: printable(&it.key),
                    access,
                    share: it.share,
                    share_error: it.share_error,
                    rate: it.rate,
                }));
            }
            self.big_keys.extend(pool.big.into_iter().map(|it| BigKey {
                pool: name.clone(),
                key: printable(&it.key),
                bytes: it.bytes,
                command: printable(&it.command),
                direction: printable(&it.direction),
                at_unix_seconds: unix_of(&it.at),
            }));
        }
    }
}

/// Seconds since the Unix epoch of a time such as `2026-01-31T21:05:09Z`.
fn unix_of(text: &str) -> Option<f64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, by: char| -> Option<Vec<i64>> {
        text.split(by).map(|word| word.parse().ok()).collect()
    };
    let (date, time) = (numbers(date, '-')?, numbers(time, ':')?);
    let (&[year, month, day], &[hour, minute, second]) = (&date[..], &time[..]) else {
        return None;
    };
    // Years that begin with March end with the day that some have and others do not.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * month + 2) / 5
        + day
        - 719_469;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) as f64)
}

/// Lines of `/readyz` that are kept.
const REASONS_MAX: usize = 32;

fn source(metric: &str) -> Option<&'static Source> {
    FIGURES.iter().find(|source| source.metric == metric)
}

/// What the numbers of [`HEALTH`] mean.
fn health(level: f64) -> &'static str {
    match level as i8 {
        -1 => "unknown",
        0 => "up",
        1 => "failing",
        2 => "ejected",
        3 => "quarantined",
        _ => "down",
    }
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[derive(Deserialize)]
struct Backends {
    pools: Vec<BackendsOfPool>,
}

#[derive(Deserialize)]
struct BackendsOfPool {
    pool: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    backends: Vec<Backend>,
}

#[derive(Deserialize)]
struct Backend {
    backend: String,
    #[serde(default)]
    state: String,
    reason: Option<String>,
    role: Option<String>,
    slots: Option<u64>,
}

#[derive(Deserialize)]
struct KeyStats {
    pools: Vec<KeyStatsOfPool>,
}

#[derive(Deserialize)]
struct KeyStatsOfPool {
    pool: String,
    #[serde(default)]
    reads: HotKeys,
    #[serde(default)]
    writes: HotKeys,
    #[serde(default)]
    big: Vec<ToldBigKey>,
}

#[derive(Default, Deserialize)]
struct HotKeys {
    keys: Vec<ToldHotKey>,
}

#[derive(Deserialize)]
struct ToldHotKey {
    key: String,
    share: f64,
    share_error: f64,
    rate: f64,
}

#[derive(Deserialize)]
struct ToldBigKey {
    key: String,
    bytes: f64,
    command: String,
    direction: String,
    at: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(metrics: &str) -> Pages {
        Pages { metrics: metrics.into(), ..Pages::default() }
    }

    const PAGE: &str = concat!(
        "keyway_process_build_info{version=\"1.2\"} 1\n",
        "keyway_pool_requests_total{pool=\"p\",command=\"read\"} 3\n",
        "keyway_pool_requests_total{pool=\"p\",command=\"write\"} 4\n",
        "keyway_pool_slow_requests_total{pool=\"p\",command=\"read\",over=\"1ms\"} 9\n",
        "keyway_pool_slow_requests_total{pool=\"p\",command=\"read\",over=\"8ms\"} 2\n",
        "keyway_pool_errors_total{pool=\"p\",command=\"read\",fault=\"timeout\"} 1\n",
        "keyway_pool_errors_total{pool=\"p\",command=\"write\",fault=\"timeout\"} 1\n",
        "keyway_pool_errors_total{pool=\"p\",command=\"write\",fault=\"closed\"} 0\n",
        "keyway_backend_health_state{pool=\"p\",backend=\"a\"} 2\n",
        "keyway_backend_latency_seconds_bucket{pool=\"p\",backend=\"a\",le=\"0.001\"} 5\n",
        "keyway_backend_latency_seconds_bucket{pool=\"p\",backend=\"a\",le=\"+Inf\"} 6\n",
        "keyway_process_workers 2\n",
    );

    #[test]
    fn samples_are_added_up_by_pool_and_server() {
        let reading = Reading::new(&pages(PAGE), Instant::now()).expect("it says who it is");
        let pool = &reading.pools["p"];
        assert_eq!((pool.get(Figure::Requests), pool.get(Figure::Slow)), (7.0, 2.0));
        assert_eq!(pool.get(Figure::Errors), 2.0);
        let server = &reading.servers[&("p".into(), "a".into())];
        assert_eq!((server.state.as_str(), server.figures.latency.count), ("ejected", 6.0));
        assert_eq!(reading.process.get(Figure::Workers), 2.0);
        let faults: Vec<_> = reading.faults.into_iter().collect();
        assert_eq!(faults, [(("p".into(), "errors answered", "timeout".into()), 2.0)]);
    }

    #[test]
    fn states_of_the_list_of_servers_come_with_reasons() {
        let backends = r#"{"pools":[{"pool":"p","kind":"sharded","backends":[{"backend":"a",
            "address":"x","state":"ejec\u001bted","reason":"timeout","since":"y","new":1}]}]}"#;
        let mut pages = pages(PAGE);
        pages.backends = Some(backends.into());
        pages.not_ready = Some("pool p: none\nmore\n".into());
        let reading = Reading::new(&pages, Instant::now()).expect("it says who it is");
        let server = &reading.servers[&("p".into(), "a".into())];
        assert_eq!((server.state.as_str(), server.reason.as_str()), ("ejec?ted", "timeout"));
        assert_eq!(reading.kinds["p"], "sharded");
        assert_eq!(reading.not_ready, ["pool p: none", "more"]);
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0.0)),
            ("2000-02-29T12:34:56Z", Some(951_827_696.0)),
            ("2026-03-01T00:00:00Z", Some(1_772_323_200.0)),
            ("yesterday", None),
        ] {
            assert_eq!(unix_of(text), seconds, "{text}");
        }
    }

    #[test]
    fn pages_of_others_are_none() {
        assert!(Reading::new(&pages("go_goroutines 3\n"), Instant::now()).is_none());
        let mut broken = pages(PAGE);
        broken.backends = Some("{\"pools\":7}".into());
        assert!(Reading::new(&broken, Instant::now()).is_some());
    }
}
