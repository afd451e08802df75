//! Documents that are wrong, out of date, or wrong for one proxy.

use crate::stage::{Coordinator, Fleet, KEYWAY, SOON};
use keyway_testkit::{CheckedLoad, LoadShape, run_keyway, wait_until, watchdog};
use std::time::Duration;

#[test]
fn a_document_that_cannot_be_applied_changes_nothing_and_is_told() {
    let _watchdog = watchdog(Duration::from_secs(120), "documents");
    let mut fleet = Fleet::start(Coordinator::Files);
    fleet.wait_current(&[0, 1, 2], 0);
    let load = CheckedLoad::start(fleet.proxies[0].client, LoadShape::default());
    refused_by_control(&fleet);
    fleet.store(&fleet.document("5s", ""), 0);
    fleet.wait_current(&[0, 1, 2], 1);

    // Control cannot know that the file of the password is on no host.
    let wrong = fleet.document("6s", "password_file = \"nowhere\"\n");
    fleet.store(&wrong, 1);
    for nth in 0..3 {
        wait_until("it is refused", SOON, || fleet.state(nth).as_deref() == Some("refused"));
    }
    let leader = fleet.leader();
    let told = fleet.controls[leader].ctl(&["fleet"]).expect_success("keyway ctl");
    assert!(told.stdout.contains("nowhere"), "{}", told.text);
    assert!(fleet.proxies[0].config().contains("timeout = \"5s\""));
    load.wait_replies(50);
    load.stop().assert_clean();

    // It starts with the one before, as that is the latest that can be used.
    let proxy = &mut fleet.proxies[0];
    proxy.stop();
    proxy.start(&fleet.directory);
    assert!(proxy.config().contains("timeout = \"5s\""), "{}", proxy.log());
    wait_until("it is refused", SOON, || fleet.state(0).as_deref() == Some("refused"));

    fleet.store(&fleet.document("7s", ""), 2);
    fleet.wait_current(&[0, 1, 2], 3);
    let kept = fleet.controls[leader].ctl(&["documents"]).expect_success("keyway ctl");
    assert_eq!(kept.stdout.lines().count(), 3, "{}", kept.text);
    let first =
        fleet.controls[leader].ctl(&["documents", "--revision", "1"]).expect_success("keyway ctl");
    assert_eq!(first.stdout, fleet.document("5s", ""));
    let metrics = keyway_testkit::scrape(fleet.controls[leader].admin);
    assert_eq!(metrics.sum("keyway_fleet_members", &["state=\"current\""]), 3.0);
    assert_eq!(metrics.sum("keyway_fleet_document_revision_number", &[]), 3.0);
}

fn refused_by_control(fleet: &Fleet) {
    let wrong = fleet.apply("[pool.main]\nkind = \"shard\"\n", 0);
    assert_eq!(wrong.status.code(), Some(1), "{}", wrong.text);
    assert!(wrong.text.contains("document:2"), "{}", wrong.text);
    let stale = fleet.apply(&fleet.document("5s", ""), 7);
    assert_eq!(stale.status.code(), Some(1), "{}", stale.text);
    assert!(stale.text.contains("has revision 0"), "{}", stale.text);
    let leader = fleet.leader();
    let file = fleet.directory.write("dry.toml", fleet.document("5s", ""));
    let file = file.display().to_string();
    let dry =
        fleet.controls[leader].ctl(&["apply", &file, "--dry-run"]).expect_success("keyway ctl");
    assert!(dry.stdout.contains("pool main: added"), "{}", dry.text);
    assert!(dry.stdout.contains("--base 0"), "{}", dry.text);
    wait_until("the other one follows", SOON, || {
        fleet.controls[1 - leader].fleet().is_some_and(|seen| seen["leader"].is_object())
    });
    let other = fleet.controls[1 - leader].ctl(&["apply", &file, "--base", "0"]);
    assert_eq!(other.status.code(), Some(1), "{}", other.text);
    let admin = fleet.controls[leader].admin.to_string();
    assert!(other.text.contains(&admin), "{}", other.text);
    let files = ["control-1.toml", "control-2.toml", "proxy-1.toml"];
    for file in files.map(|file| fleet.directory.path().join(file).display().to_string()) {
        let _ = run_keyway(KEYWAY, &["check", &file]).expect_success("keyway ctl");
    }
}
