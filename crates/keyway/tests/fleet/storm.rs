//! Twenty proxies, three control nodes and three processes of etcd, killed one after the other and all
//! together, with a checked load through every proxy all the time.

use crate::stage::{Coordinator, Fleet, SOON};
use keyway_testkit::{CheckedLoad, EtcdCluster, LoadShape, has_etcd, wait_until, watchdog};
use std::time::Duration;

const PROXIES: usize = 20;

/// The proxy that is killed. All others answer every request.
const KILLED: usize = 7;

fn loads(fleet: &Fleet) -> Vec<CheckedLoad> {
    let load = |(nth, proxy): (usize, &crate::stage::Proxy)| {
        let shape = LoadShape {
            clients: 1,
            keys_each: 20,
            prefix: format!("load{nth}:"),
            seed: nth as u64 + 1,
            ..LoadShape::default()
        };
        CheckedLoad::start(proxy.client, shape)
    };
    fleet.proxies.iter().enumerate().map(load).collect()
}

fn goes_on(loads: &[CheckedLoad]) {
    let others = loads.iter().enumerate().filter(|(nth, _)| *nth != KILLED);
    others.for_each(|(_, load)| load.wait_replies(100));
}

fn kill_controls(fleet: &mut Fleet, which: &[usize]) {
    for &nth in which {
        if let Some(mut process) = fleet.controls[nth].process.take() {
            process.kill();
        }
    }
}

fn start_controls(fleet: &mut Fleet) {
    for control in &mut fleet.controls {
        if control.process.is_none() {
            control.start(&fleet.directory);
        }
    }
}

#[test]
fn no_request_of_twenty_proxies_fails_whatever_is_killed_of_control() {
    if !has_etcd("a storm over etcd") {
        return;
    }
    let _watchdog = watchdog(Duration::from_secs(240), "a storm");
    let etcd = Coordinator::Etcd(EtcdCluster::start(3));
    let mut fleet = Fleet::start_many(etcd, 3, PROXIES);
    let all: Vec<usize> = (0..PROXIES).collect();
    fleet.wait_current(&all, 0);
    let loads = loads(&fleet);
    goes_on(&loads);
    fleet.store(&fleet.document("5s", ""), 0);
    fleet.wait_current(&all, 1);

    // A process of etcd, and the leader of control with it.
    let leader = fleet.leader();
    fleet.coordinator.kill_at(0);
    kill_controls(&mut fleet, &[leader]);
    goes_on(&loads);
    fleet.store(&fleet.document("6s", ""), 1);
    fleet.wait_current(&all, 2);
    fleet.coordinator.restart_at(0);
    start_controls(&mut fleet);

    // All of control, while a proxy is killed and starts by what is on its disk.
    kill_controls(&mut fleet, &[0, 1, 2]);
    goes_on(&loads);
    let mut killed = fleet.proxies[KILLED].process.take().expect("it runs");
    killed.kill();
    fleet.proxies[KILLED].start(&fleet.directory);
    let config = fleet.proxies[KILLED].config();
    assert!(config.contains("timeout = \"6s\""), "{config}");
    goes_on(&loads);

    // All of etcd too. Control nodes that come back meanwhile do not lead.
    for at in 0..3 {
        fleet.coordinator.kill_at(at);
    }
    start_controls(&mut fleet);
    goes_on(&loads);
    wait_until("control nodes answer", SOON, || {
        fleet.controls.iter().all(|control| control.fleet().is_some())
    });
    assert!(!fleet.controls.iter().any(|control| control.leads()));
    goes_on(&loads);
    fleet.coordinator.restart_all();
    fleet.wait_current(&all, 2);
    fleet.store(&fleet.document("7s", ""), 2);
    fleet.wait_current(&all, 3);
    goes_on(&loads);

    for (nth, load) in loads.into_iter().enumerate() {
        let report = load.stop();
        if nth == KILLED {
            // The kill owns these.
            report.assert_right();
        } else {
            report.assert_clean();
        }
    }
}
