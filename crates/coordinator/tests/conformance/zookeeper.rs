use crate::broken;
use crate::laws::{self, key};
use crate::stage::{How, Stage};
use crate::{block_on, bounded};
use keyway_coordinator::{Credentials, FaultKind, Prefix, Txn, ZooKeeper, ZooKeeperSettings};
use keyway_testkit::{TcpGate, ZooKeeperEnsemble, has_zookeeper};
use std::io::{Read, Write};
use std::time::Duration;

#[test]
fn zookeeper_keeps_the_laws() {
    if !has_zookeeper("the conformance of ZooKeeper") {
        return;
    }
    let _bounded = bounded();
    let mut ensemble = ZooKeeperEnsemble::start(1);
    let stage = Stage::zookeeper(&ensemble.addresses(), "zookeeper");
    block_on(async {
        laws::hold_everywhere(&stage, 3).await;
        laws::a_gap_is_told(&stage.named("gap"), |_| async {}).await;
        credentials_let_nobody_else_in(&stage.named("users")).await;
        // A restart: what was there is there, and watches go on.
        let here = stage.named("restart").open().await;
        let put = |value: &[u8]| here.txn(Txn::new().put(&key("a"), value.to_vec()));
        let first = put(b"1").await.expect("a put").done().expect("done");
        let mut watch = here.watch(&Prefix::all(), first);
        ensemble.restart(0);
        laws::recovers(&here).await;
        let second = put(b"2").await.expect("a put").done().expect("done");
        assert_eq!(laws::batch(&mut watch).await.revision, second);
        assert_eq!(second.0, first.0 + 1);
    });
}

#[test]
fn zookeeper_from_a_backup_is_refused() {
    if !has_zookeeper("ZooKeeper from a backup") {
        return;
    }
    let _bounded = bounded();
    let mut ensemble = ZooKeeperEnsemble::start(1);
    let stage = Stage::zookeeper(&ensemble.addresses(), "backup");
    block_on(broken::a_backup_is_refused(&stage, |server| match server {
        broken::Server::BackUp => ensemble.back_up(0),
        broken::Server::GoBack => ensemble.go_back(0),
        broken::Server::Restart => ensemble.restart(0),
    }));
}

async fn credentials_let_nobody_else_in(stage: &Stage) {
    let user = |password: &str| How {
        user: Some(Credentials { name: "kw".to_owned(), password: password.to_owned() }),
        ..How::default()
    };
    let here = stage.open_as(user("hunter2")).await.expect("whoever makes the nodes");
    here.txn(Txn::new().put(&key("a"), b"1".to_vec())).await.expect("a put");
    assert!(!format!("{here:?}").contains("hunter2"));
    for wrong in [user("hunter3"), How::default()] {
        let fault = stage.open_as(wrong).await.expect_err("refused");
        assert_eq!(fault.kind(), FaultKind::Denied, "{fault}");
        assert!(!format!("{fault} {fault:?}").contains("hunter3"));
    }
    let again = stage.open_as(user("hunter2")).await.expect("the right password");
    assert_eq!(again.list(&Prefix::all()).await.expect("a listing").entries.len(), 1);
    let session = again.session(Duration::from_secs(2)).await.expect("a session");
    session.end().await;
}

#[test]
fn zookeeper_behind_a_bad_connection_keeps_one_history() {
    if !has_zookeeper("ZooKeeper behind a bad connection") {
        return;
    }
    let _bounded = bounded();
    let ensemble = ZooKeeperEnsemble::start(1);
    let server = ensemble.addresses()[0];
    let gate = TcpGate::new(server);
    let gated = Stage::zookeeper(&[gate.address()], "wiped");
    block_on(async {
        broken::bad_connections_break_no_law(server, 13, Stage::zookeeper).await;
        // Another one, empty, where the old one was.
        let here = gated.open_hasty().await;
        here.txn(Txn::new().put(&key("a"), b"1".to_vec())).await.expect("a put");
        drop(ensemble);
        let other = ZooKeeperEnsemble::start(1);
        gate.lead_to(other.addresses()[0]);
        let fault = here.list(&Prefix::all()).await.expect_err("an empty one");
        assert_eq!(fault.kind(), FaultKind::RolledBack, "{fault}");
        let fault = here.txn(Txn::new().delete(&key("a"))).await.expect_err("refused");
        assert_eq!(fault.kind(), FaultKind::RolledBack, "{fault}");
    });
}

#[test]
fn zookeeper_of_three_loses_its_leader_and_keeps_one_history() {
    if !has_zookeeper("ZooKeeper without its leader") {
        return;
    }
    let _bounded = bounded();
    let mut ensemble = ZooKeeperEnsemble::start(3);
    let stage = Stage::zookeeper(&ensemble.addresses(), "three");
    block_on(broken::a_lost_leader_leaves_one_history(&stage, 32, || {
        let leader = ensemble.leader().expect("a leader");
        ensemble.kill(leader);
        leader
    }));
}

#[test]
fn what_is_no_zookeeper_is_a_fault() {
    let _bounded = bounded();
    let huge = i32::MAX.to_be_bytes();
    let negative = (-7i32).to_be_bytes();
    let answers: [Vec<u8>; 5] = [
        Vec::new(),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        huge.to_vec(),
        negative.to_vec(),
        // A session, and then a reply to nothing.
        [
            &36i32.to_be_bytes()[..],
            &0i32.to_be_bytes(),
            &4000i32.to_be_bytes(),
            &7i64.to_be_bytes(),
            &16i32.to_be_bytes(),
            &[1; 16],
            &16i32.to_be_bytes(),
            &[0; 16],
        ]
        .concat(),
    ];
    for answer in answers {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten().take(400) {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(&answer);
            }
        });
        block_on(async {
            let mut settings = ZooKeeperSettings::new(&[], "c");
            settings.endpoints = vec![address.to_string()];
            settings.patience.call = Duration::from_millis(400);
            settings.patience.request = Duration::from_millis(200);
            let fault = ZooKeeper::open(settings).await.expect_err("no ZooKeeper");
            assert_eq!(fault.kind(), FaultKind::Unreachable, "{fault}");
            assert!(fault.to_string().contains(&address.to_string()), "{fault}");
        });
    }
}
