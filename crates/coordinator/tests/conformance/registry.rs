//! Entries that clients of other systems read, as those systems' own clients see them.

use crate::stage::PATIENCE;
use crate::{block_on, bounded};
use keyway_coordinator::{
    Credentials, EtcdSettings, FaultKind, Key, Registry, Session, ZooKeeperSettings,
};
use keyway_testkit::{EtcdCluster, ZooKeeperEnsemble, has_etcd, has_zookeeper, wait_until};
use std::time::Duration;

const VALUE: &[u8] = br#"{"addr":"127.0.0.1:6379","state":"online"}"#;
const OTHER: &[u8] = br#"{"addr":"127.0.0.1:6380","state":"online"}"#;
const TTL: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(20);

fn name() -> Key {
    Key::new("proxy-127.0.0.1:6379").expect("a name")
}

/// Registers, lets others take the entry over, and ends. `read` is the entry as others see it.
async fn an_entry_goes_with_its_last_owner(
    registry: &Registry,
    read: impl Fn() -> Option<Vec<u8>>,
) {
    let register = |value: &'static [u8]| async move {
        registry.register(&name(), value, TTL).await.expect("an entry")
    };
    assert_eq!(read(), None);
    let first = register(VALUE).await;
    assert_eq!(read().as_deref(), Some(VALUE));
    // It outlives several leases.
    tokio::time::sleep(TTL * 3).await;
    assert!(first.is_alive());
    assert_eq!(read().as_deref(), Some(VALUE));
    // The next process takes it over. The end of the first one deletes nothing.
    let second = register(OTHER).await;
    assert_eq!(read().as_deref(), Some(OTHER));
    first.end().await;
    assert_eq!(read().as_deref(), Some(OTHER));
    second.end().await;
    assert_eq!(read(), None);
    // A process that is killed leaves it for the rest of its lease.
    drop(register(VALUE).await);
    wait_until("the lease ends", SOON, || read().is_none());
    let wrong = registry.register(&Key::new("a/b").expect("a key"), VALUE, TTL).await;
    assert_eq!(wrong.expect_err("no name").kind(), FaultKind::Invalid);
}

async fn is_lost(session: &Session) {
    tokio::time::timeout(SOON, session.lost()).await.expect("the session is lost");
}

#[test]
fn etcd_shows_an_entry_until_its_owner_ends() {
    if !has_etcd("entries for clients of etcd") {
        return;
    }
    let _bounded = bounded();
    let cluster = EtcdCluster::start(1);
    let address = cluster.addresses()[0];
    let settings = EtcdSettings {
        root: "/jodis".to_owned(),
        patience: PATIENCE,
        ..EtcdSettings::new(&[&address.to_string()], "demo")
    };
    let key = format!("/jodis/demo/{}", name());
    let read = || cluster.value(&key);
    let registry = Registry::Etcd(settings);
    block_on(an_entry_goes_with_its_last_owner(&registry, read));
    // An entry that somebody deletes is noticed, and so is one that another process has replaced.
    block_on(async {
        let session = registry.register(&name(), VALUE, TTL).await.expect("an entry");
        cluster.delete(&key);
        is_lost(&session).await;
        let session = registry.register(&name(), VALUE, TTL).await.expect("an entry");
        let other = registry.register(&name(), OTHER, TTL).await.expect("an entry");
        is_lost(&session).await;
        assert!(other.is_alive());
        other.end().await;
    });
}

#[test]
fn zookeeper_shows_an_entry_until_its_owner_ends() {
    if !has_zookeeper("entries for clients of ZooKeeper") {
        return;
    }
    let _bounded = bounded();
    let mut ensemble = ZooKeeperEnsemble::start(1);
    let settings = |user: Option<Credentials>, cluster: &str| ZooKeeperSettings {
        root: "/jodis".to_owned(),
        user,
        patience: PATIENCE,
        ..ZooKeeperSettings::new(&[&ensemble.addresses()[0].to_string()], cluster)
    };
    let read_of = |ensemble: &ZooKeeperEnsemble, cluster: &str| {
        let text = ensemble.ask(&["get", &format!("/jodis/{cluster}/{}", name())])?;
        Some(text.lines().find(|line| line.starts_with('{'))?.as_bytes().to_vec())
    };
    let plain = Registry::ZooKeeper(settings(None, "demo"));
    block_on(an_entry_goes_with_its_last_owner(&plain, || read_of(&ensemble, "demo")));

    // With credentials everybody may read, and nobody else may write.
    let user =
        |password: &str| Some(Credentials { name: "kw".to_owned(), password: password.to_owned() });
    let own = Registry::ZooKeeper(settings(user("hunter2"), "owned"));
    let others = Registry::ZooKeeper(settings(user("hunter3"), "owned"));
    block_on(async {
        let session = own.register(&name(), VALUE, TTL).await.expect("an entry");
        assert_eq!(read_of(&ensemble, "owned").as_deref(), Some(VALUE));
        let fault = others.register(&name(), OTHER, TTL).await.expect_err("refused");
        assert_eq!(fault.kind(), FaultKind::Denied, "{fault}");
        session.end().await;

        // An entry that somebody deletes is noticed, and so is a server that loses the session.
        let session = plain.register(&name(), VALUE, TTL).await.expect("an entry");
        let path = format!("/jodis/demo/{}", name());
        assert!(ensemble.ask(&["delete", &path]).is_some(), "the node is deleted");
        is_lost(&session).await;
        let session = plain.register(&name(), VALUE, TTL).await.expect("an entry");
        ensemble.kill(0);
        is_lost(&session).await;
        let fault = plain.register(&name(), VALUE, TTL).await.expect_err("nobody answers");
        assert_eq!(fault.kind(), FaultKind::Unreachable, "{fault}");
        ensemble.restart(0);
        let session = plain.register(&name(), OTHER, TTL).await.expect("an entry");
        assert_eq!(read_of(&ensemble, "demo").as_deref(), Some(OTHER));
        session.end().await;
    });
}
