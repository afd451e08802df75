//! Laws for what is broken on the way to a backend with servers.

use crate::history::{Run, run};
use crate::laws::{batch, key, recovers};
use crate::stage::{HASTE, How, Stage};
use keyway_coordinator::{Change, FaultKind, Prefix, Txn};
use keyway_testkit::TcpGate;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Everything that a gate in front of a server can do to a client.
pub async fn bad_connections_break_no_law(
    server: SocketAddr,
    seed: u64,
    stage: impl Fn(&[SocketAddr], &str) -> Stage,
) {
    let pair = |name| {
        let gate = TcpGate::new(server);
        (stage(&[gate.address()], name), stage(&[server], name), gate)
    };
    let (cuts, held, lost) = (pair("cuts"), pair("held"), pair("lost"));
    // They wait for one thing or another most of the time.
    tokio::join!(
        cuts_leave_one_history(&cuts.0, &cuts.1, &cuts.2, seed),
        silence_ends_in_time(&held.0, &held.1, &held.2),
        a_session_without_its_backend_is_lost_first(&lost.0, &lost.1, &lost.2),
    );
}

/// Connections are cut again and again while transactions run. What was answered holds, what was
/// not is in the history once or never, and watches miss nothing.
async fn cuts_leave_one_history(gated: &Stage, direct: &Stage, gate: &TcpGate, seed: u64) {
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(gated.open_hasty().await);
    }
    let observer = direct.open().await;
    let is_over = AtomicBool::new(false);
    let cutting = async {
        let mut cuts = 0;
        while !is_over.load(Ordering::SeqCst) {
            // Between the parts of a request, too.
            tokio::time::sleep(Duration::from_millis(60 + cuts * 37 % 140)).await;
            gate.cut_once();
            cuts += 1;
        }
        cuts
    };
    let running = async {
        let tally = run(Run { seed, tasks, observer, steps: 40, may_fail: true }).await;
        is_over.store(true, Ordering::SeqCst);
        tally
    };
    let (tally, cuts) = tokio::join!(running, cutting);
    println!("{}: {tally:?} through {cuts} cuts", direct.to_text());
    assert!(tally.done > 15 && cuts > 3, "{tally:?}, {cuts} cuts");
}

/// Slow answers are answers. Silence ends in a fault, in time, and is over when it is over.
async fn silence_ends_in_time(gated: &Stage, direct: &Stage, gate: &TcpGate) {
    let here = gated.open_hasty().await;
    let there = direct.open().await;
    gate.slow_down(Duration::from_millis(60));
    let put = |value: &[u8]| Txn::new().put(&key("a"), value.to_vec());
    let slow = here.txn(put(b"slow")).await.expect("a slow answer").done().expect("done");
    let mut watch = here.watch(&Prefix::all(), slow);
    gate.slow_down(Duration::ZERO);
    gate.hold();
    let began = Instant::now();
    let fault = here.list(&Prefix::all()).await.expect_err("no answer");
    assert_eq!(fault.kind(), FaultKind::Unreachable, "{fault}");
    let fault = here.txn(put(b"held")).await.expect_err("no answer");
    let is_fine = matches!(fault.kind(), FaultKind::Unknown | FaultKind::Unreachable);
    assert!(is_fine, "{fault}");
    assert!(began.elapsed() < 2 * HASTE.call + 4 * HASTE.request, "{:?}", began.elapsed());
    // A watch says that it hears nothing, and goes on afterwards from where it was.
    let fault = watch.next().await.expect_err("nothing is heard");
    assert_eq!(fault.kind(), FaultKind::Unreachable, "{fault}");
    let missed = there.txn(put(b"missed")).await.expect("a put").done().expect("done");
    gate.open();
    loop {
        let event = batch(&mut watch).await;
        if event.revision == missed {
            break;
        }
        assert!(event.revision < missed);
    }
    recovers(&here).await;
}

/// A process that cannot reach its backend has given its session up before others can have its
/// keys.
async fn a_session_without_its_backend_is_lost_first(
    gated: &Stage,
    direct: &Stage,
    gate: &TcpGate,
) {
    let here = gated.open_hasty().await;
    let there = direct.open().await;
    let session = here.session(Duration::from_secs(3)).await.expect("a session");
    let txn = Txn::new().put_bound(&key("leader"), b"here".to_vec(), &session);
    here.txn(txn).await.expect("a put");
    let listing = there.list(&Prefix::all()).await.expect("a listing");
    let mut watch = there.watch(&Prefix::all(), listing.revision);
    gate.hold();
    let gone = batch(&mut watch).await;
    assert!(!session.is_alive(), "the owner knew first");
    assert_eq!(gone.changes, [Change::Deleted(key("leader"))]);
    session.lost().await;
    gate.open();
    recovers(&here).await;
    assert!(!session.is_alive(), "lost for good");
    let bound = Txn::new().put_bound(&key("leader"), b"here".to_vec(), &session);
    let fault = here.txn(bound).await.expect_err("the session is over");
    assert_eq!(fault.kind(), FaultKind::SessionLost);
    let again = here.session(Duration::from_secs(3)).await.expect("another session");
    let txn = Txn::new().put_bound(&key("leader"), b"again".to_vec(), &again);
    assert!(here.txn(txn).await.expect("a put").done().is_some());
}

/// The leader is killed while transactions run on all members.
pub async fn a_lost_leader_leaves_one_history(
    stage: &Stage,
    seed: u64,
    kill_leader: impl FnOnce() -> usize,
) {
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(stage.open_hasty().await);
    }
    let observer = stage.open().await;
    let session = observer.session(Duration::from_secs(20)).await.expect("a session");
    let bound = Txn::new().put_bound(&key("bound"), b"bound".to_vec(), &session);
    observer.txn(bound).await.expect("a put");
    let tasks_of_run = tasks.iter().map(Arc::clone).collect();
    let running = tokio::spawn(run(Run {
        seed,
        tasks: tasks_of_run,
        observer: Arc::clone(&observer),
        steps: 60,
        may_fail: true,
    }));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let killed = kill_leader();
    let tally = running.await.expect("the run holds");
    println!("{}: {tally:?} without {killed}", stage.to_text());
    assert!(tally.done > 20, "{tally:?}");
    // A session survives another leader.
    assert!(session.is_alive(), "{:?}", session.last_fault());
    for task in &tasks {
        recovers(task).await;
    }
    session.end().await;
    let listing = observer.list(&Prefix::all()).await.expect("a listing");
    assert!(listing.entries.iter().all(|entry| entry.key != key("bound")));
}

/// What has to be done to servers so that they have an older state.
pub enum Server {
    BackUp,
    GoBack,
    Restart,
}

/// Servers whose disk is from a backup are refused, also when they have gone on since.
pub async fn a_backup_is_refused(stage: &Stage, mut server: impl FnMut(Server)) {
    let here = stage.open_hasty().await;
    let put = |value: &'static [u8]| here.txn(Txn::new().put(&key("a"), value.to_vec()));
    put(b"1").await.expect("a put");
    server(Server::BackUp);
    server(Server::Restart);
    recovers(&here).await;
    let last = put(b"2").await.expect("a put").done().expect("done");
    let mut watch = here.watch(&Prefix::all(), last);
    let kept = here.mark();
    server(Server::GoBack);
    server(Server::Restart);
    let mut refused = here.list(&Prefix::all()).await;
    while refused.as_ref().is_err_and(|fault| fault.kind() == FaultKind::Unreachable) {
        refused = here.list(&Prefix::all()).await;
    }
    assert_eq!(refused.expect_err("an older state").kind(), FaultKind::RolledBack);
    assert_eq!(watch.next().await.expect_err("refused").kind(), FaultKind::RolledBack);
    assert_eq!(put(b"3").await.expect_err("refused").kind(), FaultKind::RolledBack);
    // A process that starts and remembers is told; one that does not goes on from there.
    let how = |mark| How { mark, is_hasty: true, ..How::default() };
    let fault = stage.open_as(how(kept)).await.expect_err("refused");
    assert_eq!(fault.kind(), FaultKind::RolledBack);
    let other = stage.open_as(how(None)).await.expect("accepted");
    let listing = other.list(&Prefix::all()).await.expect("a listing");
    assert_eq!(*listing.entries[0].value, *b"1");
}
