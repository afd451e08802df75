//! What the tests of the generator share.
#![allow(dead_code, reason = "each test program uses a part")]

use keyway_load::{Flow, Outcome, Plan, Protocol, Target, Until, Workload, parse_mix, run};
use std::net::SocketAddr;
use std::time::Duration;

pub fn target(address: SocketAddr, protocol: Protocol) -> Target {
    Target::new(address.to_string().parse().unwrap(), protocol)
}

/// Two threads with eight connections each, pipelines of four.
pub fn plan(requests: u64) -> Plan {
    Plan {
        threads: 2,
        connections: 8,
        pipeline: 4,
        until: Until::Requests(requests),
        silence_max: Duration::from_secs(20),
        ..Plan::default()
    }
}

pub fn workload(mix: &str, keys: u64) -> Workload {
    let mut workload = Workload::new(mix, parse_mix(mix).unwrap());
    workload.keys.count = keys;
    workload
}

pub fn go(workload: &Workload, target: &Target, plan: &Plan) -> Outcome {
    run(workload, target, plan, &[], &mut |_| Flow::Continue).unwrap()
}

/// Writes every key once.
pub fn fill(workload: &Workload, target: &Target) {
    let filling = workload.filling();
    let plan = Plan { threads: 1, connections: 1, ..plan(workload.keys.count) };
    let outcome = go(&filling, target, &plan);
    assert_eq!(outcome.totals.requests, workload.keys.count);
    assert_eq!(outcome.totals.errors, 0, "{:?}", outcome.errors);
}

/// Replies to all, none of them an error.
pub fn expect_clean(outcome: &Outcome, requests: u64) {
    assert_eq!(outcome.totals.requests, requests);
    assert_eq!(outcome.totals.errors, 0, "{:?}", outcome.errors);
    assert_eq!((outcome.totals.unanswered, outcome.connections.lost), (0, 0));
    assert_eq!(outcome.latency.count, requests);
    assert_eq!(outcome.classes.iter().map(|class| class.requests).sum::<u64>(), requests);
    assert_eq!(outcome.series.iter().map(|second| second.requests).sum::<u64>(), requests);
}
