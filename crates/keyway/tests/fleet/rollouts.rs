//! Rollouts: a document goes to a share of the proxies first, and on to all or back.

use crate::stage::{Coordinator, Fleet, SOON};
use keyway_testkit::{
    CheckedLoad, LoadShape, TcpGate, free_address, wait_for, wait_until, watchdog,
};
use serde_json::Value;
use std::time::Duration;

/// Returns a load for each proxy.
fn loads(fleet: &Fleet) -> Vec<CheckedLoad> {
    let load = |(nth, proxy): (usize, &crate::stage::Proxy)| {
        let prefix = format!("load{nth}");
        let (seed, reply_within) = (nth as u64 + 1, Duration::from_secs(60));
        let shape = LoadShape { clients: 2, prefix, seed, reply_within, ..LoadShape::default() };
        CheckedLoad::start(proxy.client, shape)
    };
    fleet.proxies.iter().enumerate().map(load).collect()
}

/// Has a document go to a share first.
fn roll_out(fleet: &Fleet, text: &str, base: u64, watch: &str) {
    let file = fleet.directory.write("rollout.toml", text);
    let (file, base) = (file.display().to_string(), base.to_string());
    let words = ["apply", &file, "--base", &base, "--share", "10%", "--watch", watch];
    let told = fleet.controls[fleet.leader()].ctl(&words).expect_success("keyway ctl apply");
    assert!(told.stdout.contains("for a share first"), "{}", told.text);
}

fn rollout(fleet: &Fleet) -> Value {
    let told = fleet.controls[fleet.leader()].ctl(&["--json", "rollout"]);
    let told: Value =
        serde_json::from_str(&told.expect_success("keyway ctl").stdout).expect("JSON");
    told["rollout"].clone()
}

fn steer(fleet: &Fleet, action: &str) {
    let told = fleet.controls[fleet.leader()].ctl(&["rollout", action]);
    let _ = told.expect_success("keyway ctl rollout");
}

fn wait_phase(fleet: &Fleet, phase: &str) -> Value {
    wait_for("the rollout gets there", SOON, || {
        Some(rollout(fleet)).filter(|rollout| rollout["phase"] == phase)
    })
}

/// Returns the only proxy of the share, as soon as it serves by the document.
fn share(fleet: &Fleet) -> usize {
    wait_until("the share serves by it", SOON, || rollout(fleet)["share"]["serving"] == 1);
    let seen = fleet.controls[fleet.leader()].fleet().expect("it answers");
    let members = seen["members"].as_array().expect("members");
    let in_share = |id: &str| members.iter().any(|one| one["id"] == id && one["in_share"] == true);
    let of_share: Vec<usize> =
        (0..fleet.proxies.len()).filter(|nth| in_share(&fleet.proxies[*nth].id)).collect();
    assert_eq!(of_share.len(), 1, "{members:?}");
    of_share[0]
}

#[test]
fn a_document_with_a_dead_server_goes_back_and_the_rest_never_sees_it() {
    let _watchdog = watchdog(Duration::from_secs(120), "a rollout that goes back");
    let fleet = Fleet::start(Coordinator::Files);
    fleet.wait_current(&[0, 1, 2], 0);
    fleet.store(&fleet.document("5s", ""), 0);
    fleet.wait_current(&[0, 1, 2], 1);
    let loads = loads(&fleet);
    loads.iter().for_each(|load| load.wait_replies(50));
    let store = fleet.document("5s", "[pool.more]\nkind = \"store\"\nmemory_max = \"64MiB\"\n");
    let file = fleet.directory.write("store.toml", &store).display().to_string();
    let told =
        fleet.controls[fleet.leader()].ctl(&["apply", &file, "--base", "1", "--share", "10%"]);
    assert_eq!(told.status.code(), Some(1), "{}", told.text);
    assert!(told.text.contains("pool more: a rollout cannot take a new store back"));
    let dead = free_address();
    let wrong = format!("[pool.main]\nkind = \"sharded\"\nservers = [\"{dead}:1 dead\"]\n");
    roll_out(&fleet, &wrong, 1, "1h");
    let ended = wait_phase(&fleet, "went-back");
    assert!(ended["says"].as_str().is_some_and(|says| says.contains("more requests fail")));
    assert_eq!((&ended["revision"], &ended["end"]), (&2.into(), &3.into()));
    fleet.wait_current(&[0, 1, 2], 3);

    let saw = |nth: &usize| fleet.proxies[*nth].log().contains("before the others get it");
    let seen: Vec<usize> = (0..3).filter(saw).collect();
    let [of_share] = seen[..] else { panic!("{seen:?} were of the share") };
    for (nth, load) in loads.into_iter().enumerate() {
        // It serves again.
        load.wait_replies(50);
        let report = load.stop();
        if nth != of_share {
            report.assert_clean();
            assert!(!fleet.proxies[nth].log().contains(&dead.to_string()));
        }
        assert!(fleet.proxies[nth].config().contains("timeout = \"5s\""));
    }
    let metrics = keyway_testkit::scrape(fleet.controls[fleet.leader()].admin);
    let back = metrics.sum("keyway_fleet_rollouts_total", &["result=\"went-back\""]);
    assert_eq!(back, 1.0);
}

/// The servers of the new document are the same ones, behind a gate that delays: no request fails, and
/// the share is slower than the rest.
#[test]
fn a_document_that_makes_the_share_slower_goes_back() {
    let _watchdog = watchdog(Duration::from_secs(120), "a slower share");
    let fleet = Fleet::start(Coordinator::Files);
    fleet.wait_current(&[0, 1, 2], 0);
    fleet.store(&fleet.document("5s", ""), 0);
    fleet.wait_current(&[0, 1, 2], 1);
    let loads = loads(&fleet);
    loads.iter().for_each(|load| load.wait_replies(200));
    let mut text = fleet.document("5s", "");
    let gates: Vec<TcpGate> =
        fleet.servers.iter().map(|server| TcpGate::new(server.address())).collect();
    for (server, gate) in fleet.servers.iter().zip(&gates) {
        gate.slow_down(Duration::from_millis(40));
        text = text.replace(&server.address().to_string(), &gate.address().to_string());
    }
    roll_out(&fleet, &text, 1, "4s");
    let ended = wait_phase(&fleet, "went-back");
    assert!(ended["says"].as_str().is_some_and(|says| says.contains("take longer")), "{ended}");
    fleet.wait_current(&[0, 1, 2], 3);
    loads.iter().for_each(|load| load.wait_replies(50));
    for load in loads {
        load.stop().assert_clean();
    }
}

#[test]
fn a_sound_document_goes_on_to_all_whoever_leads() {
    let _watchdog = watchdog(Duration::from_secs(180), "a rollout that goes on");
    let mut fleet = Fleet::start(Coordinator::Files);
    fleet.wait_current(&[0, 1, 2], 0);
    fleet.store(&fleet.document("5s", ""), 0);
    fleet.wait_current(&[0, 1, 2], 1);
    let loads = loads(&fleet);
    loads.iter().for_each(|load| load.wait_replies(50));

    roll_out(&fleet, &fleet.document("6s", ""), 1, "2s");
    let ended = wait_phase(&fleet, "went-on");
    assert_eq!((&ended["revision"], &ended["end"]), (&2.into(), &3.into()));
    fleet.wait_current(&[0, 1, 2], 3);
    assert!(fleet.proxies.iter().all(|one| one.config().contains("timeout = \"6s\"")));

    steered_by_hand(&fleet);
    leader_changes(&mut fleet);
    silent_share(&fleet);
    loads.iter().for_each(|load| load.wait_replies(50));
    for load in loads {
        load.stop().assert_clean();
    }
}

/// An operator pauses, resumes, aborts and finishes. No other document is stored meanwhile.
fn steered_by_hand(fleet: &Fleet) {
    roll_out(fleet, &fleet.document("7s", ""), 3, "1s");
    steer(fleet, "pause");
    let of_share = share(fleet);
    assert!(fleet.proxies[of_share].config().contains("timeout = \"7s\""));
    let refused = fleet.apply(&fleet.document("9s", ""), 3);
    assert!(refused.text.contains("a rollout of revision 4 is going on"), "{}", refused.text);
    assert_eq!(rollout(fleet)["phase"], "paused");
    steer(fleet, "abort");
    fleet.wait_current(&[0, 1, 2], 5);
    assert!(fleet.proxies[of_share].config().contains("timeout = \"6s\""));
    let none = fleet.controls[fleet.leader()].ctl(&["rollout", "pause"]);
    assert!(none.text.contains("no rollout is going on"), "{}", none.text);

    roll_out(fleet, &fleet.document("7s", ""), 5, "1h");
    steer(fleet, "finish");
    fleet.wait_current(&[0, 1, 2], 7);
    let control = &fleet.controls[fleet.leader()];
    let history = control.ctl(&["history"]).expect_success("keyway ctl history");
    assert_eq!(history.stdout.matches("bytes by").count(), 7, "{}", history.text);
    assert!(history.stdout.contains("timeout"), "{}", history.text);
    let diff = control.ctl(&["diff", "5", "7"]).expect_success("keyway ctl diff");
    assert!(diff.stdout.contains("6s") && diff.stdout.contains("7s"), "{}", diff.text);
    let _ = control.ctl(&["rollback", "5", "--base", "7"]).expect_success("keyway ctl rollback");
    fleet.wait_current(&[0, 1, 2], 8);
    assert!(fleet.proxies[0].config().contains("timeout = \"6s\""));
    let stale = control.ctl(&["rollback", "7", "--base", "7"]);
    assert!(stale.text.contains("has revision 8"), "{}", stale.text);
}

/// kill -9 of the leader: the next one carries the rollout on, and ends it once.
fn leader_changes(fleet: &mut Fleet) {
    roll_out(fleet, &fleet.document("8s", ""), 8, "5s");
    let of_share = share(fleet);
    let leader = fleet.leader();
    if let Some(mut process) = fleet.controls[leader].process.take() {
        process.kill();
    }
    assert_eq!(fleet.leader(), 1 - leader);
    let carried = wait_phase(fleet, "watching");
    assert_eq!(carried["revision"], 9);
    assert!(fleet.proxies[of_share].config().contains("timeout = \"8s\""));
    fleet.controls[leader].start(&fleet.directory);
    let ended = wait_phase(fleet, "went-on");
    assert_eq!(ended["end"], 10);
    fleet.wait_current(&[0, 1, 2], 10);
}

/// A share that hangs blocks nobody: its document goes back.
fn silent_share(fleet: &Fleet) {
    roll_out(fleet, &fleet.document("9s", ""), 10, "3s");
    let of_share = share(fleet);
    let process = fleet.proxies[of_share].process.as_ref().expect("it runs");
    process.pause();
    let ended = wait_phase(fleet, "went-back");
    assert!(ended["says"].as_str().is_some_and(|says| says.contains("0 of 1 members")), "{ended}");
    let others: Vec<usize> = (0..3).filter(|nth| *nth != of_share).collect();
    fleet.wait_current(&others, 12);
    process.resume();
    fleet.wait_current(&[of_share], 12);
    assert!(fleet.proxies[of_share].config().contains("timeout = \"8s\""));
}
