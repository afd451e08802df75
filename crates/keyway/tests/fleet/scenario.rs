//! Control nodes are killed, stopped and started again, and proxies are as well.

use crate::stage::{Coordinator, Fleet, SOON};
use keyway_testkit::{
    CheckedLoad, EtcdCluster, LoadShape, ZooKeeperEnsemble, has_etcd, has_zookeeper, wait_until,
    watchdog,
};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time in which nobody leads after a leader was killed.
const TAKE_OVER: Duration = Duration::from_secs(3);

/// The same after a leader was stopped in order: less than its lease, which another node would wait
/// for otherwise.
const HAND_OVER: Duration = Duration::from_secs(2);

#[test]
fn a_fleet_over_files_lives_through_everything() {
    let _watchdog = watchdog(Duration::from_secs(120), "the fleet over files");
    live_through_everything(Fleet::start(Coordinator::Files));
}

#[test]
fn a_fleet_over_etcd_lives_through_everything() {
    if !has_etcd("the fleet over etcd") {
        return;
    }
    let _watchdog = watchdog(Duration::from_secs(120), "the fleet over etcd");
    live_through_everything(Fleet::start(Coordinator::Etcd(EtcdCluster::start(1))));
}

#[test]
fn a_fleet_over_zookeeper_lives_through_everything() {
    if !has_zookeeper("the fleet over ZooKeeper") {
        return;
    }
    let _watchdog = watchdog(Duration::from_secs(180), "the fleet over ZooKeeper");
    let zookeeper = Coordinator::ZooKeeper(ZooKeeperEnsemble::start(1));
    live_through_everything(Fleet::start(zookeeper));
}

#[test]
fn a_fleet_with_certificates_lives_through_everything() {
    let _watchdog = watchdog(Duration::from_secs(120), "the fleet with certificates");
    live_through_everything(Fleet::start_with_certificates());
}

/// A proxy whose certificate is of another authority gets no document, and serves by its file.
#[test]
fn a_proxy_with_a_strange_certificate_is_not_let_in() {
    let _watchdog = watchdog(Duration::from_secs(120), "a strange certificate");
    let mut fleet = Fleet::start_with_certificates();
    fleet.wait_current(&[0, 1, 2], 0);
    fleet.proxies[2].stop();
    fleet.give_strange_certificate(2);
    fleet.proxies[2].start(&fleet.directory);
    fleet.store(&fleet.document("5s", ""), 0);
    fleet.wait_current(&[0, 1], 1);
    wait_until("it is told", SOON, || fleet.proxies[2].log().contains("cannot be reached"));
    assert!(fleet.proxies[2].config().contains("timeout = \"4s\""));
    assert_eq!(fleet.state(2).as_deref(), Some("silent"));
    let load = CheckedLoad::start(fleet.proxies[2].client, LoadShape::default());
    load.wait_replies(50);
    load.stop().assert_clean();
}

/// Certificates of the bus that end soon are events, those of proxies and those of control nodes.
#[test]
fn certificates_of_the_bus_that_end_soon_are_told_of() {
    let _watchdog = watchdog(Duration::from_secs(120), "certificates that end soon");
    let mut fleet = Fleet::start_with_certificates();
    fleet.wait_current(&[0, 1, 2], 0);
    let leader = fleet.leader();
    let of_control = fleet.give_ending_certificate(&format!("z1.control.0.{}", leader + 1));
    let mut process = fleet.controls[leader].process.take().expect("it runs");
    process.terminate();
    assert!(process.wait_exit(SOON).success(), "{}", process.log());
    fleet.controls[leader].start(&fleet.directory);
    // The node that led has taken its events with it, so the proxy has its own later.
    fleet.wait_current(&[0, 1, 2], 0);
    let of_proxy = fleet.give_ending_certificate(&fleet.proxies[1].id);
    fleet.proxies[1].stop();
    fleet.proxies[1].start(&fleet.directory);
    let tells = |control: usize, file: &str| {
        let told = fleet.controls[control].ctl(&["events", "--since", "1h"]).text;
        told.lines().any(|line| line.contains("certificate-expires") && line.contains(file))
    };
    wait_until("the node tells of its own", SOON, || tells(leader, &of_control));
    wait_until("the leader tells of a proxy's", SOON, || tells(fleet.leader(), &of_proxy));
}

/// The coordinator goes back to a backup: the older document is refused, and the next one counts.
#[test]
fn a_restored_backup_of_the_coordinator_is_refused_loudly() {
    let _watchdog = watchdog(Duration::from_secs(120), "a backup of the coordinator");
    let mut fleet = Fleet::start(Coordinator::Files);
    fleet.wait_current(&[0, 1, 2], 0);
    fleet.store(&fleet.document("5s", ""), 0);
    fleet.wait_current(&[0, 1, 2], 1);
    let of = |name: &str| fleet.directory.path().join(name);
    let (files, backup) = (of("coordinator"), of("backup"));
    copy(&files, &backup);
    fleet.store(&fleet.document("6s", ""), 1);
    fleet.wait_current(&[0, 1, 2], 2);
    let loads = loads(&fleet);
    for control in &mut fleet.controls {
        control.process.take().expect("it runs").kill();
    }
    std::fs::remove_dir_all(&files).expect("the files of the coordinator");
    copy(&backup, &files);
    for control in &mut fleet.controls {
        control.start(&fleet.directory);
    }
    wait_until("all are ahead", SOON, || {
        (0..3).all(|nth| fleet.state(nth).as_deref() == Some("ahead"))
    });
    assert!(fleet.proxies[0].config().contains("timeout = \"6s\""));
    // The document that is right is applied, and counts.
    fleet.store(&fleet.document("7s", ""), 1);
    wait_until("all serve by it", SOON, || {
        (0..3).all(|nth| fleet.proxies[nth].config().contains("timeout = \"7s\""))
    });
    loads.iter().for_each(|load| load.wait_replies(50));
    for load in loads {
        load.stop().assert_clean();
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), &to).expect("a copy")),
        }
    }
}

fn loads(fleet: &Fleet) -> Vec<CheckedLoad> {
    let load = |(nth, proxy): (usize, &crate::stage::Proxy)| {
        let prefix = format!("load{nth}");
        let shape = LoadShape { clients: 2, prefix, seed: nth as u64 + 1, ..LoadShape::default() };
        CheckedLoad::start(proxy.client, shape)
    };
    fleet.proxies.iter().enumerate().map(load).collect()
}

fn live_through_everything(mut fleet: Fleet) {
    fleet.wait_current(&[0, 1, 2], 0);
    let owner = |words: &str| assert!(fleet.proxies[0].config().contains(words), "{words}");
    owner("The pool is from the file, until a document of control has it.");
    let loads = loads(&fleet);
    let applied = fleet.apply(&fleet.document("5s", ""), 0).expect_success("keyway ctl");
    assert!(applied.stdout.contains("main"), "{}", applied.text);
    fleet.wait_current(&[0, 1, 2], 1);
    assert!(fleet.proxies[0].config().contains("timeout = \"5s\""));
    owner("The pool is from document ");

    killed_leader(&mut fleet);
    stopped_leader(&mut fleet);
    paused_proxy(&fleet);
    coordinator_away(&mut fleet);
    loads.iter().for_each(|load| load.wait_replies(50));
    for load in loads {
        load.stop().assert_clean();
    }
    without_control(&mut fleet);
}

/// kill -9 of the leader: another one leads in time, and publishes.
fn killed_leader(fleet: &mut Fleet) {
    let leader = fleet.leader();
    let since = Instant::now();
    if let Some(mut process) = fleet.controls[leader].process.take() {
        process.kill();
    }
    assert_eq!(fleet.leader(), 1 - leader);
    let took = since.elapsed();
    assert!(took < TAKE_OVER, "the take-over took {took:?}");
    fleet.wait_current(&[0, 1, 2], 1);
    fleet.store(&fleet.document("6s", ""), 1);
    fleet.wait_current(&[0, 1, 2], 2);
    fleet.controls[leader].start(&fleet.directory);
    let id = format!("z1.control.0.{}", 2 - leader);
    wait_until("the other one follows", SOON, || {
        fleet.controls[leader].fleet().is_some_and(|seen| seen["leader"]["node"] == id.as_str())
    });
}

/// SIGTERM: the other one leads at once.
fn stopped_leader(fleet: &mut Fleet) {
    let leader = fleet.leader();
    let process = fleet.controls[leader].process.take();
    let since = Instant::now();
    process.as_ref().expect("it runs").terminate();
    assert_eq!(fleet.leader(), 1 - leader);
    let took = since.elapsed();
    assert!(took < HAND_OVER, "the hand-over took {took:?}");
    let mut process = process.expect("it runs");
    assert!(process.wait_exit(SOON).success(), "{}", process.log());
    fleet.wait_current(&[0, 1, 2], 2);
    fleet.controls[leader].start(&fleet.directory);
}

/// A proxy that hangs lags, is seen to lag, and blocks nobody.
fn paused_proxy(fleet: &Fleet) {
    let process = fleet.proxies[2].process.as_ref().expect("it runs");
    process.pause();
    fleet.store(&fleet.document("7s", ""), 2);
    fleet.wait_current(&[0, 1], 3);
    let state = fleet.state(2);
    assert!(matches!(state.as_deref(), Some("behind" | "silent")), "{state:?}");
    process.resume();
    fleet.wait_current(&[2], 3);
}

/// The coordinator is killed and comes back: nobody leads meanwhile, and all goes on.
fn coordinator_away(fleet: &mut Fleet) {
    if !fleet.coordinator.kill() {
        return;
    }
    wait_until("nobody leads", SOON, || !fleet.controls.iter().any(|one| one.leads()));
    fleet.coordinator.restart();
    fleet.wait_current(&[0, 1, 2], 3);
}

/// No control node is there: proxies start by what is on their disks.
fn without_control(fleet: &mut Fleet) {
    for control in &mut fleet.controls {
        if let Some(mut process) = control.process.take() {
            process.kill();
        }
    }
    let proxy = &mut fleet.proxies[0];
    proxy.stop();
    proxy.start(&fleet.directory);
    let words = "this process starts with document";
    wait_until("it says so", SOON, || proxy.log().contains(words));
    assert!(proxy.config().contains("timeout = \"7s\""), "{}", proxy.config());
    let load = CheckedLoad::start(proxy.client, LoadShape::default());
    load.wait_replies(50);
    // A control node comes back, with a change.
    fleet.controls[0].start(&fleet.directory);
    fleet.wait_current(&[0, 1, 2], 3);
    fleet.store(&fleet.document("8s", ""), 3);
    fleet.wait_current(&[0, 1, 2], 4);
    load.wait_replies(50);
    load.stop().assert_clean();
}
