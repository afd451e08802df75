//! Tests of the exposition, which is read back as by a scraper.

mod text;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keyway_base::{BackendFault, Fault, Sent, Time};
use keyway_metrics::{
    AccessFigures, BackendRole, BusFigures, BusLink, BusMetrics, CATALOGUE, CloseReason,
    ClusterFigures, DatabaseFigures, FeedFigures, FleetFigures, FrontFigures, GroupFigures,
    HealthLevel, Kind, Layout, LogFigures, LoginFigures, PoolLayout, QuotaFigures, Registry,
    ReloadFigures, ReplicaFigures, RouteFigures, ScriptFigures, SnapshotFigures, StoreFigures,
    TransactionFigures, WarmUpFigures, WorkerCells, catalogue_markdown, write_fleet,
};
use text::{Family, Sample, parse};

const CLASSES: &[&str] = &["read", "write", "other"];
const COMMANDS: &[&str] = &["get", "set", "client|list"];

fn registry() -> Arc<Registry> {
    let registry = Registry::new(Layout {
        classes: CLASSES,
        commands: COMMANDS,
        pools: vec![
            PoolLayout { name: "cache".into(), backends: vec![], is_retired: false },
            PoolLayout {
                name: "sessions".into(),
                backends: vec!["alpha".into(), "beta".into()],
                is_retired: false,
            },
            PoolLayout {
                name: "cluster".into(),
                backends: vec!["0".into(), "1".into()],
                is_retired: false,
            },
        ],
        workers_max: 3,
        version: "1.2.3",
        start_unix_micros: 1_700_000_000_250_000,
    });
    let taken = registry.watch_store(0, || StoreFigures {
        databases: vec![
            DatabaseFigures { database: 0, items: 10, expiring_items: 4 },
            DatabaseFigures { database: 7, items: 2, expiring_items: 0 },
        ],
        memory_bytes: 4096,
        hits: 30,
        misses: 20,
        evictions: 3,
        expirations: 5,
        expired_fields: 6,
        quotas: vec![QuotaFigures {
            prefix: "session:".into(),
            memory_bytes: 2048,
            items: 4,
            evictions: 1,
            refusals: 2,
        }],
        scripts: ScriptFigures {
            runs: 8,
            errors: 3,
            ended: 1,
            seconds: 0.25,
            cached: 2,
            memory_bytes: 70_000,
        },
        feed: Some(FeedFigures {
            replicas: 2,
            good: 1,
            offset_bytes: 1234,
            lag_bytes: 56,
            stream_bytes: 70,
            unsent_bytes: 80,
            attached: 3,
            cut_off: 1,
        }),
        replica: Some(ReplicaFigures {
            is_up: 1,
            last_io_seconds: 7,
            offset_bytes: 123_456,
            full_resyncs: 2,
            partial_resyncs: 5,
            failures: 6,
            commands: 900,
            failed_commands: 3,
        }),
        snapshots: Some(SnapshotFigures {
            saved: 9,
            failures: 2,
            has_failed: 1,
            running: 1,
            saved_unix_seconds: 1_700_000_000,
            bytes: 123_456,
            seconds: 1.5,
            buffer_bytes: 4_321,
        }),
        log: Some(LogFigures {
            has_failed: 1,
            losses: 2,
            failed_attempts: 6,
            written_bytes: 98_765,
            bytes: 54_321,
            fsyncs: 77,
            fsync_seconds: 0.75,
            compactions: 3,
            compaction_failures: 4,
        }),
        loading: Some(0),
    });
    assert!(taken);
    let taken = registry.watch_transactions(|| TransactionFigures {
        held_bytes: 512,
        limit_bytes: 1024,
        refused_commands: 7,
    });
    assert!(taken);
    assert!(registry.watch_front(|| FrontFigures {
        listeners: vec![(
            "127.0.0.1:6380".to_owned(),
            AccessFigures { connected: 1, secured: 2, turned_away: vec![("not_tls", 3)] },
        )],
        certificates: vec![("/etc/keyway/server.pem".to_owned(), 1_900_000_000)],
    }));
    let taken = registry.watch_logins(|| {
        vec![LoginFigures { listener: "127.0.0.1:1".to_owned(), failures: vec![("user", 2)] }]
    });
    assert!(taken);
    let reloads = || ReloadFigures {
        generation: 3,
        last_unix_seconds: 1_900_000_000,
        ending_pools: 1,
        results: vec![("done", 2)],
    };
    assert!(registry.watch_reloads(reloads));
    let figures = WarmUpFigures { lookups: 3, is_active: true, ..WarmUpFigures::default() };
    assert!(registry.watch_warm_up(1, move || figures));
    let figures = RouteFigures { failovers: 4, ..RouteFigures::default() };
    assert!(registry.watch_routes(1, move || figures));
    // This cluster has an index without a server.
    let figures = ClusterFigures {
        backends: vec![Some("10.0.0.1:7000".to_owned()), None],
        moved: 5,
        roles: vec![Some(BackendRole { role: "replica", of: "10.0.0.2:7000".to_owned() }), None],
        slots: Some(16_384),
        reachable_slots: Some(10_000),
        reachable_primaries: 3,
        unreplicated_shards: 2,
        ..ClusterFigures::default()
    };
    assert!(registry.watch_cluster(2, move || figures.clone()));
    registry
}

fn exposition(registry: &Registry) -> String {
    let mut text = String::new();
    registry.write_prometheus(&mut text);
    text
}

/// Returns the exposition of a node of the bus, which is another process.
fn bus_exposition() -> String {
    let metrics = BusMetrics::new("1.2.3", 1_700_000_000_250_000);
    metrics.note_round_trip(Duration::from_micros(300));
    let link = |kind, count| BusLink { kind, count, queued_bytes: 7 };
    let reasons = || vec![("unreachable".to_owned(), 3), ("timeout".to_owned(), 0)];
    let figures = BusFigures {
        links: vec![link("upstream", 1), link("below", 4)],
        is_rooted: true,
        failed_messages: reasons(),
        refused_links: reasons(),
        lost_links: reasons(),
        ..BusFigures::default()
    };
    let mut text = String::new();
    metrics.write_prometheus(&figures, &mut text);
    text
}

/// Returns what a control node adds to that of its node of the bus.
fn fleet_exposition() -> String {
    let group = GroupFigures {
        pool: "sessions".to_owned(),
        states: vec![("healthy", true)],
        ..GroupFigures::default()
    };
    let figures = FleetFigures {
        leads: true,
        members: vec![("current", 3)],
        groups: vec![group],
        ..FleetFigures::default()
    };
    let mut text = String::new();
    write_fleet(&figures, &mut text);
    text
}

fn family<'a>(families: &'a [Family], name: &str) -> &'a Family {
    families.iter().find(|family| family.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn matches(sample: &Sample, labels: &[(&str, &str)]) -> bool {
    labels.iter().all(|(name, value)| sample.labels.get(*name).is_some_and(|v| v == value))
}

/// Returns the one sample `name` of a registry's exposition that has these labels.
fn value(registry: &Registry, name: &str, labels: &[(&str, &str)]) -> f64 {
    let families = parse(&exposition(registry));
    let all = families.iter().flat_map(|family| &family.samples);
    let found: Vec<&Sample> =
        all.filter(|sample| sample.name == name && matches(sample, labels)).collect();
    assert_eq!(found.len(), 1, "{name}{labels:?} is not one sample");
    found[0].value
}

/// Counts one request of class `class`, sent to backend `backend` of the second pool.
fn serve(cells: &WorkerCells, class: usize, backend: usize, micros: u64) {
    let pool = cells.pool(1);
    let (start, end) = (Time(5_000), Time(5_000 + micros * 1_000));
    pool.requests(class, class).call();
    pool.requests(class, class).latency(start, end);
    pool.backend(backend).requests.add(1);
    pool.backend(backend).latency.record(start, end);
    cells.turns.add(1);
    cells.batch.record(1);
}

#[test]
fn every_declared_metric_is_exported_with_its_labels_and_nothing_else() {
    let registry = registry();
    let cells = registry.start_worker().expect("a free place");
    // A command has samples from its first request on.
    serve(&cells, 0, 0, 10);
    let mut families = parse(&exposition(&registry));
    let of_bus: Vec<Family> = parse(&bus_exposition());
    // Metrics of the process appear in both.
    let is_new = |family: &Family| !families.iter().any(|known| known.name == family.name);
    let of_bus: Vec<Family> = of_bus.into_iter().filter(is_new).collect();
    assert!(of_bus.iter().all(|family| family.name.starts_with("keyway_bus_")));
    families.extend(of_bus);
    let of_fleet = parse(&fleet_exposition());
    assert!(of_fleet.iter().all(|family| family.name.starts_with("keyway_fleet_")));
    families.extend(of_fleet);
    assert_eq!(families.len(), CATALOGUE.len());
    for metric in CATALOGUE {
        let family = family(&families, metric.name);
        assert_eq!(family.kind, metric.kind.as_str(), "{}", metric.name);
        assert!(family.help.starts_with(metric.measures), "{}", metric.name);
        assert!(family.help.ends_with(metric.leaves_out), "{}", metric.name);
        assert!(!family.samples.is_empty(), "{} has no sample", metric.name);
        for sample in &family.samples {
            let mut expected: Vec<&str> =
                metric.labels.iter().map(|label| label.as_str()).collect();
            if sample.name.ends_with("_bucket") {
                expected.push("le");
            }
            expected.sort_unstable();
            let found: Vec<&String> = sample.labels.keys().collect();
            assert_eq!(found, expected, "{}", sample.name);
        }
    }
}

#[test]
fn no_series_is_exported_twice() {
    let registry = registry();
    let _cells = registry.start_worker().expect("a free place");
    let families = parse(&exposition(&registry));
    let mut series: Vec<String> = families
        .iter()
        .flat_map(|family| &family.samples)
        .map(|sample| format!("{}{:?}", sample.name, sample.labels))
        .collect();
    let count = series.len();
    series.sort_unstable();
    series.dedup();
    assert_eq!(series.len(), count);
}

#[test]
fn histogram_buckets_grow_and_end_at_the_count() {
    let registry = registry();
    let cells = registry.start_worker().expect("a free place");
    [1, 63, 900, 1_000, 8_000, 70_000, 9_000_000, 20_000_000]
        .iter()
        .for_each(|&micros| serve(&cells, 0, 1, micros));
    let families = parse(&exposition(&registry));
    let families: Vec<Family> = families.into_iter().chain(parse(&bus_exposition())).collect();
    for metric in CATALOGUE.iter().filter(|metric| metric.kind == Kind::Histogram) {
        let family = family(&families, metric.name);
        let (mut last_bound, mut last_count) = (f64::MIN, 0.0);
        for sample in &family.samples {
            if sample.name.ends_with("_bucket") {
                let bound: f64 = sample.labels["le"].parse().expect("a number");
                assert!(bound > last_bound && sample.value >= last_count, "{sample:?}");
                (last_bound, last_count) = (bound, sample.value);
            } else if sample.name.ends_with("_count") {
                assert_eq!(last_bound, f64::INFINITY);
                assert_eq!(sample.value, last_count, "{sample:?}");
                (last_bound, last_count) = (f64::MIN, 0.0);
            }
        }
    }
    let bucket = |le| {
        let labels = [("pool", "sessions"), ("command", "read"), ("le", le)];
        value(&registry, "keyway_pool_reply_latency_seconds_bucket", &labels)
    };
    assert_eq!(bucket("0.0000625"), 1.0);
    assert_eq!(bucket("0.001"), 4.0);
    assert_eq!(bucket("0.008"), 5.0);
    assert_eq!(bucket("0.064"), 5.0);
    assert_eq!(bucket("8.192"), 6.0);
    assert_eq!(bucket("+Inf"), 8.0);
}

#[test]
fn values_are_summed_over_workers_and_health_is_the_worst() {
    let registry = registry();
    let first = registry.start_worker().expect("a free place");
    let second = registry.start_worker().expect("a free place");
    serve(&first, 1, 0, 100);
    serve(&second, 1, 0, 300);
    serve(&second, 2, 1, 300);
    for cells in [&first, &second] {
        let pool = cells.pool(1);
        pool.clients.connected.raise(2);
        pool.clients.closed.of(CloseReason::Killed).add(1);
        pool.backend(0).in_flight.raise(3);
        let fault = Fault::Backend { fault: BackendFault::Timeout, sent: Sent::Maybe };
        pool.requests(1, 1).fault(fault);
        pool.backend(0).errors.of(BackendFault::Timeout).add(1);
        pool.refused.of(Fault::Denied).add(4);
    }
    second.pool(1).backend(0).set_health(HealthLevel::Ejected);

    let write = [("pool", "sessions"), ("command", "write")];
    let alpha = [("pool", "sessions"), ("backend", "alpha")];
    assert_eq!(value(&registry, "keyway_pool_requests_total", &write), 2.0);
    assert_eq!(value(&registry, "keyway_pool_reply_latency_seconds_sum", &write), 0.0004);
    assert_eq!(value(&registry, "keyway_backend_requests_total", &alpha), 2.0);
    assert_eq!(value(&registry, "keyway_backend_in_flight_requests", &alpha), 6.0);
    assert_eq!(value(&registry, "keyway_backend_health_state", &alpha), 2.0);
    assert_eq!(value(&registry, "keyway_client_connections", &[("pool", "sessions")]), 4.0);
    assert_eq!(value(&registry, "keyway_worker_turns_total", &[("worker", "1")]), 2.0);
    assert_eq!(value(&registry, "keyway_process_workers", &[]), 2.0);
    let timeout = [("pool", "sessions"), ("fault", "backend_timeout")];
    let of_write = [timeout[0], timeout[1], ("command", "write")];
    assert_eq!(value(&registry, "keyway_pool_errors_total", &of_write), 2.0);
    let of_alpha = [timeout[0], timeout[1], ("backend", "alpha")];
    assert_eq!(value(&registry, "keyway_backend_errors_total", &of_alpha), 2.0);
    let idle = [("pool", "sessions"), ("fault", "killed")];
    assert_eq!(value(&registry, "keyway_client_closed_connections_total", &idle), 2.0);

    let totals = registry.pool_totals(1);
    assert_eq!((totals.requests, totals.errors, totals.refused), (3, 2, 8));
    assert_eq!(totals.clients_connected, 4);
    assert_eq!(totals.reply_latency.count(), 3);
    let median = totals.reply_latency.quantile(0.5).expect("three were recorded");
    assert!((0.0003..0.00034).contains(&median), "{median}");
}

#[test]
fn totals_of_commands_and_backends_are_sums_over_the_workers() {
    let registry = registry();
    let first = registry.start_worker().expect("a free place");
    let second = registry.start_worker().expect("a free place");
    assert_eq!(registry.workers_running(), 2);
    serve(&first, 0, 1, 1_000);
    serve(&second, 0, 1, 3_000);
    first.pool(1).backend(1).set_health(HealthLevel::Ejected);
    second.pool(1).backend(1).set_health(HealthLevel::Failing);
    second.pool(1).backend(1).errors.of(BackendFault::Timeout).add(5);
    first.pool(1).requests(0, 2).fault(Fault::Unrouted);
    second.pool(1).requests(0, 2).error_reply();
    second.pool(1).requests(0, 2).call();
    let [(0, get), (2, list)] = registry.command_totals(1)[..] else { panic!("not these two") };
    assert_eq!((get.calls, get.replies, get.errors), (2, 2, 0));
    assert!((0.0039..0.0041).contains(&get.reply_seconds));
    assert_eq!((list.calls, list.replies, list.errors), (1, 0, 2));
    assert_eq!(registry.pool_totals(1).errors, 1, "an error of ours");
    assert!(registry.command_totals(0).is_empty());
    let of_list = [("pool", "sessions"), ("command", "client|list")];
    assert_eq!(value(&registry, "keyway_pool_command_calls_total", &of_list), 1.0);
    assert_eq!(value(&registry, "keyway_pool_command_errors_total", &of_list), 2.0);
    let of_get = [("pool", "sessions"), ("command", "get")];
    assert_eq!(value(&registry, "keyway_pool_command_reply_seconds_total", &of_get), 0.004);
    let backends = registry.backend_totals(1);
    assert_eq!((backends[0].requests, backends[1].requests, backends[1].errors), (0, 2, 5));
    assert_eq!(backends[0].health, HealthLevel::Unknown);
    assert_eq!(backends[1].health, HealthLevel::Ejected, "the worst of them");
    drop(first);
    assert_eq!(registry.workers_running(), 1);
    assert_eq!(registry.backend_totals(1)[1].health, HealthLevel::Failing);
    assert!(registry.backend_totals(0).is_empty());
}

#[test]
fn store_figures_are_those_the_reader_gives() {
    let registry = registry();
    let cache = [("pool", "cache")];
    assert_eq!(value(&registry, "keyway_store_memory_bytes", &cache), 4096.0);
    assert_eq!(value(&registry, "keyway_store_hits_total", &cache), 30.0);
    let database = |n| [("pool", "cache"), ("database", n)];
    assert_eq!(value(&registry, "keyway_store_items", &database("7")), 2.0);
    assert_eq!(value(&registry, "keyway_store_expiring_items", &database("0")), 4.0);
    assert!(!registry.watch_store(0, StoreFigures::default), "a second reader is refused");
}

#[test]
fn counts_outlive_their_worker_and_levels_do_not() {
    let registry = registry();
    let cells = registry.start_worker().expect("a free place");
    serve(&cells, 0, 0, 10);
    cells.pool(1).backend(0).links_ready.raise(1);
    cells.pool(1).backend(0).set_health(HealthLevel::Quarantined);
    cells.pool(1).clients.connected.raise(5);
    drop(cells);
    let alpha = [("pool", "sessions"), ("backend", "alpha")];
    assert_eq!(value(&registry, "keyway_process_workers", &[]), 0.0);
    assert_eq!(value(&registry, "keyway_backend_requests_total", &alpha), 1.0);
    assert_eq!(value(&registry, "keyway_backend_ready_links", &alpha), 0.0);
    assert_eq!(value(&registry, "keyway_backend_health_state", &alpha), -1.0);
    assert_eq!(value(&registry, "keyway_client_connections", &[("pool", "sessions")]), 0.0);

    let next = registry.start_worker().expect("a free place");
    assert_eq!(next.index(), 0, "the lowest free number is used again");
    serve(&next, 0, 0, 10);
    assert_eq!(value(&registry, "keyway_backend_requests_total", &alpha), 2.0);
}

#[test]
fn workers_beyond_the_maximum_are_refused() {
    let registry = registry();
    let all: Vec<WorkerCells> = std::iter::from_fn(|| registry.start_worker()).collect();
    assert_eq!(all.iter().map(WorkerCells::index).collect::<Vec<_>>(), [0, 1, 2]);
    drop(all);
    assert!(registry.start_worker().is_some());
}

#[test]
fn awkward_names_survive_the_format() {
    let name = "a \"b\"\\c\nd{e},f=é";
    let registry = Registry::new(Layout {
        classes: CLASSES,
        commands: COMMANDS,
        pools: vec![PoolLayout {
            name: name.into(),
            backends: vec![name.into()],
            is_retired: false,
        }],
        workers_max: 1,
        version: "1",
        start_unix_micros: 0,
    });
    let labels = [("pool", name), ("backend", name)];
    assert_eq!(value(&registry, "keyway_backend_requests_total", &labels), 0.0);
}

#[allow(clippy::disallowed_methods, reason = "the watchdog reads the clock")]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "never came: {what}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn busy_time_grows_with_its_thread_and_never_falls() {
    let registry = registry();
    let busy = || value(&registry, "keyway_worker_busy_seconds_total", &[("worker", "0")]);
    let mut before = 0.0;
    for _ in 0..2 {
        let cells = registry.start_worker().expect("a free place");
        std::thread::scope(|scope| {
            let (cells, busy) = (cells, &busy);
            scope.spawn(move || {
                cells.attach_thread();
                until("10 ms of CPU time", || busy() > before);
            });
        });
        let after = busy();
        assert!(after > before);
        before = after;
    }
}

#[test]
fn a_scrape_beside_a_busy_worker_never_sees_a_count_fall() {
    let registry = registry();
    let cells = registry.start_worker().expect("a free place");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (done, cells) = (&done, cells);
            while !done.load(Ordering::Relaxed) {
                serve(&cells, 0, 0, 100);
            }
        });
        let mut last = 0;
        until("counts that grow", || {
            let totals = registry.pool_totals(1);
            assert!(totals.requests >= last);
            last = totals.requests;
            last > 100_000
        });
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_page_of_metrics_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == catalogue_markdown(),
        "docs/metrics.md is stale; run: cargo run -q -p keyway-metrics --example catalogue > docs/metrics.md"
    );
}

/// Returns a python3 that has the reference parser: the system's, or one with the module installed
/// below the target folder.
fn python_with_reference_parser() -> Command {
    let modules = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prometheus_client");
    let candidate = |python: &str| {
        let mut command = Command::new(python);
        command.env("PYTHONPATH", &modules);
        command
    };
    let has_parser = |python: &&str| {
        let probe = candidate(python).args(["-c", "import prometheus_client.parser"]).output();
        probe.is_ok_and(|output| output.status.success())
    };
    let pythons = ["python3", "/usr/bin/python3"];
    if let Some(python) = pythons.iter().find(|python| has_parser(python)) {
        return candidate(python);
    }
    let pip = candidate("python3")
        .args(["-m", "pip", "install", "-q", "--target"])
        .arg(&modules)
        .arg("prometheus-client==0.22.1")
        .output();
    let hint = "the reference parser is missing: apt-get install python3-prometheus-client";
    assert!(pip.is_ok_and(|output| output.status.success()), "{hint}");
    candidate("python3")
}

#[test]
fn the_reference_parser_reads_what_we_read() {
    let registry = registry();
    let cells = registry.start_worker().expect("a free place");
    [3, 70, 4_000, 20_000_000].iter().for_each(|&micros| serve(&cells, 1, 0, micros));
    let text = exposition(&registry);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference_parser.py");
    let mut python = python_with_reference_parser()
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut input = python.stdin.take().expect("stdin is piped");
    let writer = std::thread::spawn({
        let text = text.clone();
        move || input.write_all(text.as_bytes())
    });
    let output = python.wait_with_output().expect("python3 ends");
    writer.join().expect("the writer ends").expect("python3 reads all of it");
    assert!(output.status.success(), "the reference parser refuses the text");
    let theirs = String::from_utf8(output.stdout).expect("UTF-8");
    let ours: Vec<String> = parse(&text)
        .iter()
        .flat_map(|family| family.samples.iter().map(|sample| sample.canonical(&family.kind)))
        .collect();
    assert_eq!(theirs.lines().collect::<Vec<_>>(), ours);
}
