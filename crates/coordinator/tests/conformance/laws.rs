//! What every backend has to do, one law after another.

use crate::history::{Run, run};
use crate::stage::{How, Stage};
use keyway_coordinator::limits::{TXN_LEN_MAX, TXN_OPERATIONS_MAX, VALUE_LEN_MAX};
use keyway_coordinator::{
    Batch, Change, Compare, Coordinator, Event, FaultKind, Key, Mark, Outcome, Prefix, Revision,
    Txn, Watch,
};
use std::sync::Arc;
use std::time::Duration;

pub fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

/// Everything that needs nothing but the backend.
pub async fn hold_everywhere(stage: &Stage, seed: u64) {
    let [basics, bounds, watches, sessions, killed, marks] =
        ["basics", "bounds", "watches", "sessions", "killed", "marks"]
            .map(|name| stage.named(name));
    // Most of them wait for leases: together they take as long as the longest.
    tokio::join!(
        async {
            transactions_compare_and_change(&basics).await;
            bounds_are_refused(&bounds).await;
            watches_begin_anywhere(&watches).await;
            an_older_state_is_refused(&marks).await;
        },
        sessions_take_their_keys(&sessions),
        a_killed_process_loses_its_keys(&killed),
    );
    random_transactions_are_one_history(&stage.named("random"), seed).await;
}

async fn put(coordinator: &Arc<dyn Coordinator>, name: &str, value: &[u8]) -> Revision {
    let outcome = coordinator.txn(Txn::new().put(&key(name), value.to_vec())).await;
    outcome.expect("a put").done().expect("it compares nothing")
}

/// The next batch, in time.
pub async fn batch(watch: &mut Watch) -> Batch {
    match tokio::time::timeout(Duration::from_secs(15), watch.next()).await {
        Ok(Ok(Event::Changes(batch))) => batch,
        other => panic!("no batch: {other:?}"),
    }
}

async fn transactions_compare_and_change(stage: &Stage) {
    let here = stage.open().await;
    let there = stage.open().await;
    let (a, b) = (key("a"), key("folder/b"));
    let empty = here.list(&Prefix::all()).await.expect("a listing");
    assert!(empty.entries.is_empty());
    let made = put(&here, "a", b"1").await;
    assert!(made > empty.revision);
    // The other one sees it at once.
    let listing = there.list(&Prefix::all()).await.expect("a listing");
    assert_eq!(listing.entries.len(), 1);
    assert_eq!(*listing.entries[0].value, *b"1");
    assert_eq!((listing.entries[0].created, listing.entries[0].modified), (made, made));
    let binary: Vec<u8> = (0..=255).collect();
    let txn = Txn::new()
        .when(Compare::Exists(a.clone()))
        .when(Compare::Absent(b.clone()))
        .when(Compare::Modified(a.clone(), made))
        .when(Compare::Value(a.clone(), Arc::from(&b"1"[..])))
        .put(&a, Vec::new())
        .put(&b, binary.clone());
    let changed = there.txn(txn).await.expect("a transaction").done().expect("all hold");
    let listing = here.list(&Prefix::new("folder/").expect("a prefix")).await.expect("a listing");
    assert!(listing.revision >= changed);
    assert_eq!(listing.entries.len(), 1);
    assert_eq!(*listing.entries[0].value, *binary);
    for (compare, wrong) in [
        (Compare::Exists(key("absent")), "absent"),
        (Compare::Absent(a.clone()), "a"),
        (Compare::Modified(a.clone(), made), "a"),
        (Compare::Modified(key("absent"), made), "absent"),
        (Compare::Value(a.clone(), Arc::from(&b"1"[..])), "a"),
        (Compare::Value(key("absent"), Arc::from(&b""[..])), "absent"),
    ] {
        let txn = Txn::new().when(Compare::Exists(b.clone())).when(compare.clone()).delete(&b);
        let outcome = here.txn(txn).await.expect("an answer");
        let Outcome::Refused { revision, found } = outcome else { panic!("{compare:?} held") };
        assert!(revision >= changed);
        assert_eq!(found.len(), 1, "{compare:?}");
        assert_eq!(found[0].0.as_str(), wrong);
        let expected = (wrong == "a").then_some(changed);
        assert_eq!(found[0].1.as_ref().map(|entry| entry.modified), expected);
    }
    // Deleting nothing makes no revision. Those of etcd also grow with other clusters.
    let mut watch = here.watch(&Prefix::all(), changed);
    let nothing = here.txn(Txn::new().delete(&key("absent"))).await.expect("an answer");
    assert!(nothing.done().is_some_and(|revision| revision >= changed));
    let gone = here.txn(Txn::new().delete(&a).delete(&key("absent"))).await.expect("an answer");
    assert!(gone.done().is_some_and(|revision| revision > changed));
    let next = batch(&mut watch).await;
    assert_eq!(Some(next.revision), gone.done());
    assert_eq!(next.changes, [Change::Deleted(a.clone())]);
    // A key that is made again is another one.
    let again = put(&there, "a", b"2").await;
    let listing = here.list(&Prefix::new("a").expect("a prefix")).await.expect("a listing");
    assert_eq!(listing.entries[0].created, again);
}

async fn bounds_are_refused(stage: &Stage) {
    let here = stage.open().await;
    let fault = |txn| {
        let here = Arc::clone(&here);
        async move { here.txn(txn).await.expect_err("it is refused").kind() }
    };
    assert_eq!(fault(Txn::new()).await, FaultKind::Invalid);
    let twice = Txn::new().put(&key("a"), b"1".to_vec()).delete(&key("a"));
    assert_eq!(fault(twice).await, FaultKind::Invalid);
    let never = Txn::new().when(Compare::Modified(key("a"), Revision(0))).delete(&key("a"));
    assert_eq!(fault(never).await, FaultKind::Invalid);
    let large = Txn::new().put(&key("a"), vec![7; VALUE_LEN_MAX + 1]);
    assert_eq!(fault(large).await, FaultKind::TooLarge);
    let half = vec![7; TXN_LEN_MAX / 2];
    let large = Txn::new().put(&key("a"), half.clone()).put(&key("b"), half);
    assert_eq!(fault(large).await, FaultKind::TooLarge);
    let many =
        (0..=TXN_OPERATIONS_MAX).fold(Txn::new(), |txn, n| txn.delete(&key(&format!("{n}"))));
    assert_eq!(fault(many).await, FaultKind::TooLarge);
    assert!(here.session(Duration::from_millis(1)).await.is_err());
    // What is just within is taken, and comes back over every road.
    let listing = here.list(&Prefix::all()).await.expect("a listing");
    let mut watch = here.watch(&Prefix::all(), listing.revision);
    let (most, rest) = (vec![7; VALUE_LEN_MAX], vec![9; TXN_LEN_MAX - VALUE_LEN_MAX - 1024]);
    let txn = Txn::new().put(&key("a"), most.clone()).put(&key("b"), rest.clone());
    assert!(here.txn(txn).await.expect("the largest transaction").done().is_some());
    let many = (0..TXN_OPERATIONS_MAX)
        .fold(Txn::new(), |txn, n| txn.put(&key(&format!("n/{n}")), vec![1]));
    assert!(here.txn(many).await.expect("the longest transaction").done().is_some());
    for _ in 0..6 {
        put(&here, "a", &most).await;
    }
    let listing = here.list(&Prefix::all()).await.expect("a listing");
    assert_eq!(listing.entries.len(), 2 + TXN_OPERATIONS_MAX);
    assert_eq!((&*listing.entries[0].value, &*listing.entries[1].value), (&*most, &*rest));
    assert_eq!(batch(&mut watch).await.changes.len(), 2);
    assert_eq!(batch(&mut watch).await.changes.len(), TXN_OPERATIONS_MAX);
    for _ in 0..6 {
        let batch = batch(&mut watch).await;
        let Change::Put(entry) = &batch.changes[0] else { panic!("{batch:?}") };
        assert_eq!(entry.value.len(), VALUE_LEN_MAX);
    }
}

async fn watches_begin_anywhere(stage: &Stage) {
    let here = stage.open().await;
    let start = here.list(&Prefix::all()).await.expect("a listing").revision;
    let mut revisions = vec![start];
    for number in 0..5u8 {
        revisions.push(put(&here, "w/a", &[number]).await);
        put(&here, "other", &[number]).await;
    }
    let prefix = Prefix::new("w/").expect("a prefix");
    for (from, revision) in revisions.iter().enumerate() {
        let mut watch = here.watch(&prefix, *revision);
        for expected in &revisions[from + 1..] {
            assert_eq!(batch(&mut watch).await.revision, *expected);
        }
    }
    // Futures that are dropped at any moment lose nothing.
    let mut watch = here.watch(&prefix, start);
    let mut seen = Vec::new();
    for number in 0..20u8 {
        revisions.push(put(&here, "w/b", &[number]).await);
        let wait = Duration::from_micros(u64::from(number) * 300);
        if let Ok(Ok(Event::Changes(batch))) = tokio::time::timeout(wait, watch.next()).await {
            seen.push(batch.revision);
        }
    }
    while seen.len() < revisions.len() - 1 {
        seen.push(batch(&mut watch).await.revision);
    }
    assert_eq!(seen, revisions[1..]);
}

async fn sessions_take_their_keys(stage: &Stage) {
    let here = stage.open().await;
    let there = stage.open().await;
    let session = here.session(Duration::from_secs(3)).await.expect("a session");
    let other = here.session(Duration::from_secs(3)).await.expect("another session");
    assert_ne!(session.id(), other.id());
    assert!(session.is_alive() && other.is_alive());
    let (leader, kept) = (key("leader"), key("kept"));
    let txn = Txn::new()
        .when(Compare::Absent(leader.clone()))
        .put_bound(&leader, b"here".to_vec(), &session)
        .put_bound(&kept, b"here".to_vec(), &session);
    assert!(here.txn(txn).await.expect("a transaction").done().is_some());
    let listing = there.list(&Prefix::all()).await.expect("a listing");
    assert!(listing.entries.iter().all(|entry| entry.session == Some(session.id())));
    // A key that is set without a session is bound no longer.
    let outcome = there.txn(Txn::new().put(&kept, b"there".to_vec())).await;
    assert!(outcome.expect("a put").done().is_some());
    let revision = there.list(&Prefix::all()).await.expect("a listing").revision;
    let mut watch = there.watch(&Prefix::all(), revision);
    // Renewals keep it for longer than its lease.
    tokio::time::sleep(session.ttl().mul_f32(1.3)).await;
    assert!(session.is_alive());
    session.end().await;
    assert_eq!(batch(&mut watch).await.changes, [Change::Deleted(leader.clone())]);
    let listing = there.list(&Prefix::all()).await.expect("a listing");
    assert_eq!(listing.entries.len(), 1);
    assert_eq!(listing.entries[0].key, kept);
    assert!(other.is_alive());
    // Somebody else's end, and then its own.
    let txn = Txn::new().put_bound(&leader, b"other".to_vec(), &other);
    assert!(here.txn(txn).await.expect("a transaction").done().is_some());
    let bound = Txn::new().put_bound(&key("late"), b"late".to_vec(), &other);
    other.end().await;
    let fault = here.txn(bound).await.expect_err("the session has ended");
    assert_eq!(fault.kind(), FaultKind::SessionLost);
    let txn = Txn::new().when(Compare::Absent(leader.clone())).put(&leader, b"free".to_vec());
    assert!(there.txn(txn).await.expect("a transaction").done().is_some());
}

/// A process that is killed loses its keys, and another one that waits for them is told.
async fn a_killed_process_loses_its_keys(stage: &Stage) {
    let here = stage.open().await;
    let start = here.list(&Prefix::all()).await.expect("a listing").revision;
    let mut watch = here.watch(&Prefix::all(), start);
    let mut child = crate::child::spawn(stage);
    let made = batch(&mut watch).await;
    let Change::Put(entry) = &made.changes[0] else { panic!("{made:?}") };
    assert_eq!(entry.key, key("child"));
    assert!(entry.session.is_some());
    // It is alive for longer than its lease.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let txn = Txn::new().when(Compare::Absent(key("child"))).put(&key("child"), b"mine".to_vec());
    let outcome = here.txn(txn).await.expect("an answer");
    assert!(outcome.done().is_none(), "the child's key is there");
    child.kill();
    assert_eq!(batch(&mut watch).await.changes, [Change::Deleted(key("child"))]);
    let txn = Txn::new().when(Compare::Absent(key("child"))).put(&key("child"), b"mine".to_vec());
    assert!(here.txn(txn).await.expect("an answer").done().is_some());
}

async fn an_older_state_is_refused(stage: &Stage) {
    let here = stage.open().await;
    let revision = put(&here, "a", b"1").await;
    let mark = here.mark().expect("a mark");
    assert_eq!(mark.revision, revision);
    let open = |mark| stage.open_as(How { mark: Some(mark), ..How::default() });
    assert!(open(mark).await.is_ok());
    let older = Mark { revision: Revision(revision.0 + 100_000), ..mark };
    assert_eq!(open(older).await.expect_err("refused").kind(), FaultKind::RolledBack);
    let another = Mark { cluster: mark.cluster ^ 1, ..mark };
    assert_eq!(open(another).await.expect_err("refused").kind(), FaultKind::RolledBack);
    // A watch from a revision that is not there yet is of another history.
    let mut watch = here.watch(&Prefix::all(), Revision(revision.0 + 100_000));
    let event = watch.next().await;
    assert_eq!(event.expect_err("refused").kind(), FaultKind::RolledBack);
}

async fn random_transactions_are_one_history(stage: &Stage, seed: u64) {
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(stage.open().await);
    }
    tasks.push(Arc::clone(&tasks[0]));
    let observer = stage.open().await;
    let tally = run(Run { seed, tasks, observer, steps: 40, may_fail: false }).await;
    println!("{}: {tally:?}", stage.to_text());
    assert!(tally.done > 30, "{tally:?}");
    assert_eq!(tally.unknown + tally.unreachable, 0);
}

/// A watch from before what is remembered is told, and not given less. `forget` makes the backend
/// forget what is older than a revision.
pub async fn a_gap_is_told<F: Future<Output = ()>>(
    stage: &Stage,
    forget: impl FnOnce(Revision) -> F,
) {
    let how = How { history_max: Some(8), ..How::default() };
    let here = stage.open_as(how).await.expect("the backend can be opened");
    let start = here.list(&Prefix::all()).await.expect("a listing").revision;
    let mut last = start;
    for number in 0..20u8 {
        last = put(&here, "a", &[number]).await;
    }
    forget(last).await;
    let mut watch = here.watch(&Prefix::all(), start);
    let told = tokio::time::timeout(Duration::from_secs(15), watch.next()).await;
    assert_eq!(told.expect("in time"), Ok(Event::ListAgain));
    assert_eq!(watch.next().await, Ok(Event::ListAgain));
    let listing = here.list(&Prefix::all()).await.expect("a listing");
    let mut watch = here.watch(&Prefix::all(), listing.revision);
    let next = put(&here, "a", b"next").await;
    assert_eq!(batch(&mut watch).await.revision, next);
}

/// Waits until a coordinator that had failed answers again.
pub async fn recovers(coordinator: &Arc<dyn Coordinator>) {
    for _ in 0..4 {
        if coordinator.list(&Prefix::all()).await.is_ok() {
            return;
        }
    }
    let last = coordinator.list(&Prefix::all()).await;
    panic!("it does not answer again: {last:?}");
}
