use crate::broken;
use crate::laws::{self, key};
use crate::stage::{HASTE, How, Stage};
use crate::{block_on, bounded};
use keyway_coordinator::{
    Coordinator, Credentials, Etcd, EtcdSettings, Event, FaultKind, Prefix, Revision, Txn,
};
use keyway_testkit::certificates::{Authority, CertificateFiles};
use keyway_testkit::{EtcdCluster, TcpGate, etcd_post as post, has_etcd};
use keyway_tls::{ClientSettings, ClientTls, MinVersion, Trust};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

fn compact(address: SocketAddr, revision: Revision) {
    let body = format!(r#"{{"revision": "{revision}"}}"#);
    let answer = post(address, "/v3/kv/compaction", &body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn etcd_keeps_the_laws() {
    if !has_etcd("the conformance of etcd") {
        return;
    }
    let _bounded = bounded();
    let cluster = EtcdCluster::start(1);
    let addresses = cluster.addresses();
    block_on(async {
        let stage = Stage::etcd(&addresses, "etcd");
        laws::hold_everywhere(&stage, 2).await;
        let forget = |revision| async move { compact(addresses[0], revision) };
        laws::a_gap_is_told(&stage.named("gap"), forget).await;
    });
}

#[test]
fn etcd_behind_a_bad_connection_keeps_one_history() {
    if !has_etcd("etcd behind a bad connection") {
        return;
    }
    let _bounded = bounded();
    let cluster = EtcdCluster::start(1);
    block_on(broken::bad_connections_break_no_law(cluster.addresses()[0], 12, Stage::etcd));
}

fn leader(cluster: &EtcdCluster) -> usize {
    let field = |text: &str, name: &str| {
        let from = text.find(name).map_or(0, |at| at + name.len());
        text[from..].trim_start_matches(['"', ':']).split('"').next().unwrap_or("").to_owned()
    };
    for (index, address) in cluster.addresses().into_iter().enumerate() {
        if cluster.process(index).is_none() {
            continue;
        }
        let status = post(address, "/v3/maintenance/status", "{}");
        let leader = field(&status, "\"leader\"");
        if !leader.is_empty() && leader == field(&status, "\"member_id\"") {
            return index;
        }
    }
    panic!("no member leads");
}

#[test]
fn etcd_of_three_loses_its_leader_and_keeps_one_history() {
    if !has_etcd("etcd without its leader") {
        return;
    }
    let _bounded = bounded();
    let mut cluster = EtcdCluster::start(3);
    let stage = Stage::etcd(&cluster.addresses(), "three");
    block_on(async {
        broken::a_lost_leader_leaves_one_history(&stage, 31, || {
            let leader = leader(&cluster);
            cluster.kill(leader);
            leader
        })
        .await;
    });
    // All of them gone and back: what was there is there, and watches go on.
    let dead = (0..3).find(|index| cluster.process(*index).is_none()).expect("one was killed");
    cluster.restart(dead);
    block_on(async {
        let here = stage.open_hasty().await;
        let before = here.list(&Prefix::all()).await.expect("a listing");
        let mut watch = here.watch(&Prefix::all(), before.revision);
        let waiting = tokio::time::timeout(Duration::from_millis(300), watch.next()).await;
        assert!(waiting.is_err());
        (0..3).for_each(|index| cluster.kill(index));
        let fault = here.list(&Prefix::all()).await.expect_err("nobody is there");
        assert_eq!(fault.kind(), FaultKind::Unreachable);
        cluster.restart_all();
        laws::recovers(&here).await;
        let after = here.list(&Prefix::all()).await.expect("a listing");
        assert_eq!(after.entries, before.entries);
        let put = here.txn(Txn::new().put(&key("back"), b"back".to_vec())).await;
        let revision = put.expect("a put").done();
        assert_eq!(Some(laws::batch(&mut watch).await.revision), revision);
    });
}

#[test]
fn etcd_with_users_lets_nobody_else_in() {
    if !has_etcd("etcd with users") {
        return;
    }
    let _bounded = bounded();
    let mut cluster = EtcdCluster::start(1);
    let address = cluster.addresses()[0];
    let prefix_end = "L2t3L3VzZXJzMA=="; // "/kw/users0", the first name behind "/kw/users/".
    for (path, body) in [
        ("user/add", r#"{"name": "root", "password": "hunter1"}"#.to_owned()),
        ("user/add", r#"{"name": "kw", "password": "hunter2"}"#.to_owned()),
        ("role/add", r#"{"name": "root"}"#.to_owned()),
        ("role/add", r#"{"name": "kw"}"#.to_owned()),
        ("user/grant", r#"{"user": "root", "role": "root"}"#.to_owned()),
        ("user/grant", r#"{"user": "kw", "role": "kw"}"#.to_owned()),
        (
            "role/grant",
            format!(
                r#"{{"name": "kw", "perm": {{"permType": "READWRITE", "key": "L2t3L3VzZXJzLw==",
                    "range_end": "{prefix_end}"}}}}"#
            ),
        ),
        ("enable", "{}".to_owned()),
    ] {
        let answer = post(address, &format!("/v3/auth/{path}"), &body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    let stage = Stage::etcd(&[address], "users");
    let user =
        |password: &str| Some(Credentials { name: "kw".to_owned(), password: password.to_owned() });
    let how = |user| How { user, ..How::default() };
    block_on(async {
        for wrong in [user("hunter3"), None] {
            let fault = stage.open_as(how(wrong)).await.expect_err("refused");
            assert_eq!(fault.kind(), FaultKind::Denied, "{fault}");
            assert!(!format!("{fault} {fault:?}").contains("hunter3"));
        }
        let fault = stage.named("others").open_as(how(user("hunter2"))).await;
        assert_eq!(fault.expect_err("refused").kind(), FaultKind::Denied);
        let here = stage.open_as(how(user("hunter2"))).await.expect("the right password");
        assert!(!format!("{here:?}").contains("hunter2"));
        let put = |value: &[u8]| here.txn(Txn::new().put(&key("a"), value.to_vec()));
        let first = put(b"1").await.expect("a put").done().expect("done");
        let mut watch = here.watch(&Prefix::all(), first);
        let session = here.session(Duration::from_secs(2)).await.expect("a session");
        let second = put(b"2").await.expect("a put").done().expect("done");
        assert_eq!(laws::batch(&mut watch).await.revision, second);
        // Tokens do not survive a restart: everything logs in again.
        cluster.restart(0);
        laws::recovers(&here).await;
        let third = put(b"3").await.expect("a put").done().expect("done");
        assert_eq!(laws::batch(&mut watch).await.revision, third);
        session.end().await;
    });
}

#[test]
fn etcd_over_tls_is_checked() {
    if !has_etcd("etcd over TLS") {
        return;
    }
    let _bounded = bounded();
    let files = CertificateFiles::default();
    files.write("other.pem", &Authority::new("another").certificate);
    let cluster = EtcdCluster::start_with(1, Some(&files));
    let tls = |authority: &str| {
        let settings = ClientSettings {
            trust: Trust::Authorities(files.path(authority)),
            server_name: None,
            identity: None,
            min_version: MinVersion::V1_2,
        };
        let read = |path: &std::path::Path| {
            std::fs::read_to_string(path).map_err(|error| error.to_string())
        };
        ClientTls::load(&settings, &read).expect("certificates of ours").tls
    };
    let open = |tls| {
        let mut settings = EtcdSettings::new(&[], "tls");
        settings.endpoints = vec![cluster.addresses()[0].to_string()];
        settings.patience = HASTE;
        settings.tls = tls;
        Etcd::open(settings)
    };
    block_on(async {
        let here = open(Some(tls("ca.pem"))).await.expect("the right authority");
        let start = here.list(&Prefix::all()).await.expect("a listing").revision;
        let mut watch = here.watch(&Prefix::all(), start);
        let large = vec![7; 300 << 10];
        here.txn(Txn::new().put(&key("a"), large.clone())).await.expect("a put");
        assert_eq!(laws::batch(&mut watch).await.changes.len(), 1);
        let listing = here.list(&Prefix::all()).await.expect("a listing");
        assert_eq!(*listing.entries[0].value, *large);
        let fault = open(Some(tls("other.pem"))).await.expect_err("another authority");
        assert_eq!(fault.kind(), FaultKind::Unreachable);
        assert!(fault.to_string().contains("authority"), "{fault}");
        let fault = open(None).await.expect_err("plain");
        assert_eq!(fault.kind(), FaultKind::Unreachable, "{fault}");
    });
}

#[test]
fn what_is_no_etcd_is_a_fault() {
    let _bounded = bounded();
    // Whatever it answers, and however it ends.
    let answers: [&[u8]; 6] = [
        b"",
        b"-ERR unknown command\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{",
    ];
    for answer in answers {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten().take(400) {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer);
            }
        });
        block_on(async {
            let mut settings = EtcdSettings::new(&[], "c");
            settings.endpoints = vec![address.to_string()];
            settings.patience.call = Duration::from_millis(400);
            settings.patience.request = Duration::from_millis(200);
            let fault = Etcd::open(settings).await.expect_err("no etcd");
            let text = fault.to_string();
            assert!(text.contains(&address.to_string()), "{text}");
        });
    }
}

#[test]
fn nobody_there_is_a_fault_that_names_the_endpoint() {
    let _bounded = bounded();
    block_on(async {
        let address = keyway_testkit::free_address();
        let mut settings = EtcdSettings::new(&[], "c");
        settings.endpoints = vec![address.to_string()];
        settings.patience.call = Duration::from_millis(300);
        let fault = Etcd::open(settings).await.expect_err("nobody");
        assert_eq!(fault.kind(), FaultKind::Unreachable);
        let text = fault.to_string();
        assert!(text.contains(&address.to_string()) && text.contains("refused"), "{text}");
    });
}

#[test]
fn etcd_that_is_wiped_is_refused() {
    if !has_etcd("etcd that is wiped") {
        return;
    }
    let _bounded = bounded();
    block_on(async {
        let cluster = EtcdCluster::start(1);
        let gate = TcpGate::new(cluster.addresses()[0]);
        let here = Stage::etcd(&[gate.address()], "wiped").open().await;
        let revision = here.txn(Txn::new().put(&key("a"), b"1".to_vec())).await.expect("a put");
        let mut watch = here.watch(&Prefix::all(), Revision(1));
        assert!(matches!(watch.next().await, Ok(Event::Changes(_))));
        drop(cluster);
        // Another one, empty, where the old one was.
        let other = EtcdCluster::start(1);
        gate.lead_to(other.addresses()[0]);
        let fault = here.list(&Prefix::all()).await.expect_err("another cluster");
        assert_eq!(fault.kind(), FaultKind::RolledBack, "{fault}");
        assert_eq!(watch.next().await.expect_err("refused").kind(), FaultKind::RolledBack);
        let fault = here.txn(Txn::new().delete(&key("a"))).await.expect_err("refused");
        assert_eq!(fault.kind(), FaultKind::RolledBack);
        assert!(revision.done().is_some());
    });
}

#[test]
fn etcd_from_a_backup_is_refused() {
    if !has_etcd("etcd from a backup") {
        return;
    }
    let _bounded = bounded();
    let mut cluster = EtcdCluster::start(1);
    let stage = Stage::etcd(&cluster.addresses(), "backup");
    block_on(broken::a_backup_is_refused(&stage, |server| match server {
        broken::Server::BackUp => cluster.back_up(0),
        broken::Server::GoBack => cluster.go_back(0),
        broken::Server::Restart => cluster.restart(0),
    }));
}
