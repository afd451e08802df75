use crate::history::{Run, run};
use crate::laws::{self, key};
use crate::stage::{How, Stage};
use crate::{block_on, bounded};
use keyway_coordinator::{FaultKind, Prefix, Txn};
use keyway_testkit::TempDir;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn stage(directory: &TempDir) -> Stage {
    Stage::Files { dir: directory.path().to_owned(), cluster: "files".to_owned() }
}

#[test]
fn files_keep_the_laws() {
    let _bounded = bounded();
    let directory = TempDir::new();
    block_on(async {
        laws::hold_everywhere(&stage(&directory), 1).await;
        laws::a_gap_is_told(&stage(&directory).named("gap"), |_| async {}).await;
    });
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("a file of ours");
}

#[test]
fn files_from_a_backup_are_refused_while_they_are_used() {
    let _bounded = bounded();
    let directory = TempDir::new();
    block_on(async {
        let here = stage(&directory).open().await;
        let put = |value: &[u8]| here.txn(Txn::new().put(&key("a"), value.to_vec()));
        put(b"1").await.expect("a put");
        let (state, backup) =
            (directory.path().join("files/state"), directory.path().join("backup"));
        copy(&state, &backup);
        put(b"2").await.expect("a put");
        copy(&backup, &directory.path().join("files/other"));
        std::fs::rename(directory.path().join("files/other"), &state).expect("a file of ours");
        let refused = here.list(&Prefix::all()).await.expect_err("an older state");
        assert_eq!(refused.kind(), FaultKind::RolledBack);
        // Also when the old state has gone on.
        let other = stage(&directory).open().await;
        for _ in 0..5 {
            other.txn(Txn::new().put(&key("a"), b"3".to_vec())).await.expect("a put");
        }
        assert_eq!(put(b"4").await.expect_err("refused").kind(), FaultKind::RolledBack);
        // And when there is nothing any more.
        std::fs::remove_file(&state).expect("a file of ours");
        let fault = other.list(&Prefix::all()).await.expect_err("no state");
        assert_eq!(fault.kind(), FaultKind::RolledBack);
    });
}

#[test]
fn damaged_files_are_refused_and_left_alone() {
    let _bounded = bounded();
    let directory = TempDir::new();
    block_on(async {
        let here = stage(&directory).open().await;
        here.txn(Txn::new().put(&key("secret"), b"hunter2".to_vec())).await.expect("a put");
        let state = directory.path().join("files/state");
        let mode = std::fs::metadata(&state).expect("a file of ours").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others cannot read it");
        let mut bytes = std::fs::read(&state).expect("a file of ours");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&state, &bytes).expect("a file of ours");
        let fault = stage(&directory).open_as(How::default()).await.expect_err("damaged");
        assert_eq!(fault.kind(), FaultKind::Damaged);
        assert!(fault.to_string().contains("files/state"), "{fault}");
        assert_eq!(std::fs::read(&state).expect("a file of ours"), bytes);
    });
}

/// A child writes without end and is killed: what is there afterwards is whole, and goes on.
#[test]
fn a_writer_that_is_killed_leaves_a_whole_state() {
    let _bounded = bounded();
    let directory = TempDir::new();
    let stage = stage(&directory);
    block_on(async {
        let here = stage.open().await;
        let mut before = here.list(&Prefix::all()).await.expect("a listing").revision;
        for round in 0..25u64 {
            let mut child = crate::writer::spawn(&stage);
            let mut watch = here.watch(&Prefix::all(), before);
            laws::batch(&mut watch).await;
            tokio::time::sleep(Duration::from_millis(round % 7)).await;
            child.kill();
            let listing = here.list(&Prefix::all()).await.expect("a whole state");
            assert!(listing.revision > before);
            // Both keys of the writer are of one transaction.
            let values: Vec<_> = listing.entries.iter().map(|entry| &entry.value).collect();
            assert_eq!(values[0], values[1]);
            before = listing.revision;
        }
        let done = here.txn(Txn::new().put(&key("end"), b"end".to_vec())).await;
        assert_eq!(done.expect("a put").done().map(|one| one.0), Some(before.0 + 1));
    });
}

/// The owner of the lock hangs: others are told who it is, and go on when it is gone.
#[test]
fn a_lock_that_is_held_is_a_fault_with_a_name() {
    let _bounded = bounded();
    let directory = TempDir::new();
    block_on(async {
        let here = stage(&directory).open_hasty().await;
        let lock = std::fs::File::open(directory.path().join("files/lock")).expect("the lock");
        lock.lock().expect("a lock of ours");
        let fault = here.txn(Txn::new().delete(&key("a"))).await.expect_err("held");
        assert_eq!(fault.kind(), FaultKind::Busy);
        assert!(fault.to_string().contains(&format!("process {}", std::process::id())), "{fault}");
        // Reading needs no lock.
        assert!(here.list(&Prefix::all()).await.is_ok());
        drop(lock);
        here.txn(Txn::new().delete(&key("a"))).await.expect("an answer");
    });
}

/// A disk that is slow keeps the lock held for as long as it writes. Sessions go on meanwhile.
#[test]
fn a_session_outlives_a_lock_that_is_held_for_longer_than_its_lease() {
    let _bounded = bounded();
    let directory = TempDir::new();
    block_on(async {
        let here = stage(&directory).open().await;
        let session = here.session(Duration::from_secs(1)).await.expect("a session");
        let lock = std::fs::File::open(directory.path().join("files/lock")).expect("the lock");
        lock.lock().expect("a lock of ours");
        let lost = tokio::time::timeout(session.ttl() * 3, session.lost()).await;
        assert!(lost.is_err(), "{:?}", session.last_fault());
        drop(lock);
        let bound = Txn::new().put_bound(&key("late"), b"late".to_vec(), &session);
        assert!(here.txn(bound).await.expect("an answer").done().is_some());
        // Its file is what others go by: without it, it is over.
        let sessions = directory.path().join("files/sessions");
        std::fs::remove_file(sessions.join(session.id().to_string())).expect("its file");
        let lost = tokio::time::timeout(session.ttl() * 3, session.lost()).await;
        assert!(lost.is_ok(), "a session goes on without its file");
    });
}

#[test]
fn a_session_whose_process_hangs_is_over_by_its_lease() {
    let _bounded = bounded();
    let directory = TempDir::new();
    let stage = stage(&directory);
    block_on(async {
        let here = stage.open().await;
        let start = here.list(&Prefix::all()).await.expect("a listing").revision;
        let mut watch = here.watch(&Prefix::all(), start);
        let child = crate::child::spawn(&stage);
        laws::batch(&mut watch).await;
        // It must not hang with the lock held: nobody could write then.
        let lock = std::fs::File::open(directory.path().join("files/lock")).expect("the lock");
        lock.lock().expect("a lock of ours");
        child.pause();
        drop(lock);
        let gone = laws::batch(&mut watch).await;
        assert_eq!(gone.changes, [keyway_coordinator::Change::Deleted(key("child"))]);
    });
}

#[test]
fn more_seeds_of_files_are_one_history_each() {
    let _bounded = bounded();
    let directory = TempDir::new();
    block_on(async {
        for seed in 100..110 {
            let stage = stage(&directory).named(&format!("seed{seed}"));
            let mut tasks = Vec::new();
            for _ in 0..4 {
                tasks.push(stage.open().await);
            }
            let observer = stage.open().await;
            run(Run { seed, tasks, observer, steps: 25, may_fail: false }).await;
        }
    });
}

#[test]
fn a_directory_that_cannot_be_made_is_a_fault() {
    let _bounded = bounded();
    block_on(async {
        let stage = Stage::Files { dir: PathBuf::from("/proc/nowhere"), cluster: "c".to_owned() };
        let fault = stage.open_as(How::default()).await.expect_err("nothing can be made there");
        assert!(fault.to_string().contains("/proc/nowhere"), "{fault}");
    });
}
