//! What a request costs the generator, beside what it costs redis-benchmark, against the same
//! redis-server: interleaved rounds, CPU time of the sender alone (user and system).
//!
//! `cargo run --release -p keyway-load --example cost [ROUNDS [REQUESTS]]`
#![allow(clippy::print_stdout, reason = "it prints what it measures")]

use keyway_load::{Flow, Plan, Protocol, Target, Until, run, suite};
use keyway_testkit::RedisServer;
use std::process::Command;

const KEYS: u64 = 100_000;

/// Seconds of CPU that this process (`false`) or its children that have ended (`true`) have used.
fn spent(is_of_children: bool) -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("this process is there");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    let first = if is_of_children { 13 } else { 11 };
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(first) + ticks(first + 1)) / 100.0
}

/// Microseconds of CPU a request, and requests a second.
fn ours(server: &RedisServer, test: &str, depth: usize, requests: u64) -> (f64, f64) {
    let address = server.address().to_string().parse().expect("an address");
    let target = Target::new(address, Protocol::Resp2);
    let load = &suite(&[test.to_owned()], KEYS, 100).expect("a test")[0];
    let plan = Plan { pipeline: depth, until: Until::Requests(requests), ..Plan::default() };
    let before = spent(false);
    let outcome = run(load, &target, &plan, &[], &mut |_| Flow::Continue).expect("a run");
    assert_eq!((outcome.totals.requests, outcome.totals.errors), (requests, 0));
    ((spent(false) - before) * 1e6 / requests as f64, outcome.totals.per_second)
}

fn theirs(server: &RedisServer, test: &str, depth: usize, requests: u64) -> (f64, f64) {
    let (port, before) = (server.port().to_string(), spent(true));
    let (depth, count) = (depth.to_string(), requests.to_string());
    let keys = KEYS.to_string();
    let arguments = [
        "-p", &port, "-t", test, "-n", &count, "-c", "50", "-P", &depth, "-r", &keys, "-d", "100",
        "--csv",
    ];
    let output = Command::new("redis-benchmark").args(arguments).output().expect("redis-benchmark");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = text.lines().last().unwrap_or_default();
    let rate = row.split(',').nth(1).and_then(|word| word.trim_matches('"').parse().ok());
    let rate: f64 = rate.unwrap_or_else(|| panic!("no figures in {text:?}"));
    ((spent(true) - before) * 1e6 / requests as f64, rate)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let (rounds, requests) = (numbers.next().unwrap_or(5), numbers.next().unwrap_or(200_000));
    let server = RedisServer::start();
    println!(
        "test depth | CPU us/request: ours, redis-benchmark, ratio (min-max) | requests/s ratio"
    );
    for (test, depth) in [("set", 1), ("get", 1), ("set", 16), ("get", 16)] {
        let requests = requests * if depth > 1 { 5 } else { 1 };
        let (mut own, mut other, mut ratios, mut rates) = (vec![], vec![], vec![], vec![]);
        for _ in 0..rounds {
            let (ours, theirs) =
                (ours(&server, test, depth, requests), theirs(&server, test, depth, requests));
            own.push(ours.0);
            other.push(theirs.0);
            ratios.push(ours.0 / theirs.0);
            rates.push(ours.1 / theirs.1);
        }
        let (least, most) = ratios
            .iter()
            .fold((f64::MAX, 0.0f64), |(least, most), &one| (least.min(one), most.max(one)));
        println!(
            "{test:>4} {depth:>5} | {:.2}, {:.2}, {:.2} ({least:.2}-{most:.2}) | {:.2}",
            median(own),
            median(other),
            median(ratios),
            median(rates)
        );
    }
}
