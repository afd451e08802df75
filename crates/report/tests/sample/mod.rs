//! Results as a run would write them, with figures that look like real ones and are the same
//! each time.
#![allow(dead_code, reason = "each test program uses some of it")]

use keyway_report::{
    Cell, Connects, FORMAT, Histogram, Item, Machine, Measured, Process, Role, Round, Run, Scalar,
    Second, System, VERSION,
};
use std::collections::BTreeMap;

/// Numbers that look drawn by chance.
pub struct Draws(pub u64);

impl Draws {
    fn share(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn around(&mut self, value: f64, spread: f64) -> f64 {
        value * (1.0 + spread * (self.share() + self.share() - 1.0))
    }
}

/// `count` latencies in buckets of 3 %, around `mean_ns`, with a long tail.
pub fn latencies(draws: &mut Draws, mean_ns: f64, count: u64) -> Histogram {
    let steps = 200;
    let mut buckets = BTreeMap::new();
    let mut sum_ns = 0.0;
    for nth in 0..steps {
        let share = (f64::from(nth) + draws.share()) / f64::from(steps);
        let tail = if share > 0.985 { 1.0 + 6.0 * (share - 0.985) / 0.015 } else { 1.0 };
        let ns = mean_ns * (0.4 + -(1.0 - share).ln() * 0.35) * tail;
        let bucket = 1.03_f64.powf(ns.ln().div_euclid(1.03_f64.ln()) + 1.0);
        let each = count / steps as u64;
        *buckets.entry(bucket.round() as u64).or_insert(0) += each;
        sum_ns += bucket.round() * each as f64;
    }
    // As a generator's buckets would, the last one holds the slowest by itself.
    let most = (mean_ns * draws.around(30.0, 0.3)) as u64;
    *buckets.entry(most).or_insert(0) += 1;
    sum_ns += most as f64;
    let buckets_ns: Vec<(u64, u64)> = buckets.into_iter().collect();
    Histogram { min_ns: buckets_ns[0].0, max_ns: most, buckets_ns, sum_ns }
}

fn process(name: &str, role: Role, cpu_seconds: f64) -> Process {
    Process {
        name: name.to_owned(),
        role,
        user_seconds: cpu_seconds * 0.4,
        system_seconds: cpu_seconds * 0.6,
        cpu_seconds: None,
        resident_bytes: 12_400_000,
        context_switches: (cpu_seconds * 9000.0) as u64,
    }
}

/// A measurement of `seconds` at about `rate` requests a second, each of which costs the tested
/// process `cpu_ns`.
pub fn measured(
    draws: &mut Draws,
    rate: f64,
    cpu_ns: f64,
    connections: f64,
    seconds: usize,
) -> Measured {
    let mut series = Vec::new();
    for nth in 0..seconds {
        let requests = draws.around(rate, 0.06) as u64;
        // A stall now and then, as a save to disk causes.
        let factor = if nth % 7 == 4 { 3.0 } else { 1.0 };
        let mean_ns = connections / rate * 1e9 * factor;
        let latency = latencies(draws, mean_ns, requests);
        series.push(Second { at: nth as f64 + 1.0, requests, errors: 0, latency });
    }
    let requests = series.iter().map(|one| one.requests).sum::<u64>();
    let cpu = draws.around(requests as f64 * cpu_ns / 1e9, 0.03);
    Measured {
        seconds: seconds as f64,
        requests,
        bytes_sent: requests * 130,
        bytes_received: requests * 55,
        latency: Histogram::merged(series.iter().map(|one| &one.latency)),
        processes: vec![
            process("proxy", Role::Tested, cpu),
            process("redis", Role::Backend, requests as f64 * 2.4e-6),
            process("load", Role::Load, requests as f64 * 1.3e-6),
        ],
        load_average: Some(1.84),
        replies: BTreeMap::from([("stored".to_owned(), requests)]),
        connects: Some(Connects { count: requests / 10, ..Connects::default() }),
        series,
        ..Measured::default()
    }
}

fn system(name: &str, version: &str, started_by: &str) -> System {
    let [name, version, started_by] = [name, version, started_by].map(str::to_owned);
    System { name, version, started_by, missing: None }
}

fn run(scenario: &str, title: &str) -> Run {
    Run {
        format: FORMAT.to_owned(),
        version: VERSION,
        scenario: scenario.to_owned(),
        title: title.to_owned(),
        command: format!("keyway bench run {scenario} --seconds 12"),
        started: "2026-11-22T18:00:00Z".to_owned(),
        machine: Machine {
            cpu: "Example processor at 2.9 GHz".to_owned(),
            cores: 2,
            memory_bytes: 25_270_000_000,
            kernel: "Linux 6.1.0".to_owned(),
        },
        parameters: BTreeMap::from([("seconds".to_owned(), Scalar::Number(12.0))]),
        ..Run::default()
    }
}

fn item(id: &str, group: &str, parameters: &[(&str, f64)]) -> Item {
    let parameters =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), Scalar::Number(*value)));
    Item {
        id: id.to_owned(),
        title: id.replace('-', ", "),
        group: group.to_owned(),
        parameters: parameters.collect(),
    }
}

/// Proxies before Redis: the first report's work, with a peer that is not there.
pub fn proxies(rounds: usize) -> Run {
    let mut run = run("codis-vs-twemproxy", "Proxies before sixteen Redis servers");
    run.systems = vec![
        system("twemproxy", "0.5.0", "nutcracker -c twemproxy.yml"),
        system("keyway", "0.1.0", "keyway serve proxy.toml"),
        System {
            missing: Some("codis-proxy is not installed".to_owned()),
            ..system("codis", "", "")
        },
    ];
    run.notes = vec!["Scaled down from 100,000 requests for each of 50 connections.".to_owned()];
    let mut draws = Draws(42);
    for (pipeline, group, base) in
        [(75.0, "pipeline = Yes", 260_000.0), (1.0, "pipeline = No", 70_000.0)]
    {
        for threads in [1.0, 2.0, 4.0, 8.0_f64] {
            let id = format!("pipeline {pipeline}-threads {threads}");
            let parameters =
                [("threads", threads), ("connections", threads * 50.0), ("pipeline", pipeline)];
            run.items.push(item(&id, group, &parameters));
            for (name, factor, cpu_ns) in [("twemproxy", 1.0, 1.0), ("keyway", 1.38, 0.78)] {
                let rate = base * factor * (1.0 - 0.04 * threads);
                let cpu_ns = cpu_ns * 0.95e9 / base;
                let depth = threads * 50.0 * pipeline;
                let one = |_| {
                    let rate = draws.around(rate, 0.08);
                    Round::Measured(Box::new(measured(&mut draws, rate, cpu_ns, depth, 12)))
                };
                let rounds = (0..rounds).map(one).collect();
                run.cells.push(Cell { system: name.to_owned(), item: id.clone(), rounds });
            }
        }
    }
    run
}

/// One of each other scenario, small.
pub fn others() -> Vec<Run> {
    let mut draws = Draws(7);
    let mut all = Vec::new();
    for scenario in ["twemproxy-memcached", "cluster-proxies", "aerospike-cache", "atbus", "my-own"]
    {
        let mut one = run(scenario, &format!("{scenario}, in small"));
        one.systems = vec![
            system("direct", "1.0", "127.0.0.1:7000"),
            system("keyway", "0.1.0", "keyway serve"),
        ];
        let mut items =
            vec![item("get-1", "", &[("connections", 1.0), ("value_bytes", 64.0), ("nodes", 2.0)])];
        items[0].parameters.insert("read_write".to_owned(), Scalar::Text("1:1".to_owned()));
        items[0].parameters.insert("packet_len".to_owned(), Scalar::Text("8-128".to_owned()));
        items[0].parameters.insert("command".to_owned(), Scalar::Text("get".to_owned()));
        if scenario == "cluster-proxies" {
            items.push(item("MSET (10 keys)", "redis-benchmark", &[]));
        }
        for item in &items {
            for system in &one.systems {
                let mut round = measured(&mut draws, 50_000.0, 12_000.0, 50.0, 3);
                if scenario == "atbus" {
                    round.processes[0].name = "sender".to_owned();
                    round.processes[1].name = "receiver".to_owned();
                }
                one.cells.push(Cell {
                    system: system.name.clone(),
                    item: item.id.clone(),
                    rounds: vec![Round::Measured(Box::new(round)); 2],
                });
            }
        }
        one.items = items;
        all.push(one);
    }
    all
}
