//! A store and its log: what is there after a restart, what a compaction leaves, and what is said
//! of directories that are wrong.

mod common;

use common::{BOUND, Logged, Noted, contents, now, run_in, settings};
use keyway_base::Time;
use keyway_log::{Fsync, LogFault, LogState};
use keyway_testkit::{TempDir, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut all: Vec<(u64, PathBuf)> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            Some((name.strip_prefix("log.")?.parse().ok()?, path.clone()))
        })
        .collect();
    all.sort();
    all.into_iter().map(|(_, path)| path).collect()
}

fn fill(logged: &Logged) {
    for nth in 0..300 {
        logged.run(&format!("RPUSH list e{nth} f{nth}"));
        logged.run(&format!("SADD set m{nth}"));
        logged.run(&format!("HSET hash f{nth} v{nth}"));
        logged.run(&format!("ZADD zset {} m{nth}", nth * 7 % 50));
        logged.run(&format!("XADD stream * f {nth}"));
        run_in(&logged.store, 2, &format!("SET k{nth} v PX 1000000"));
    }
    for line in ["SET a 1", "INCR a", "APPEND a x", "LPOP list 5", "SPOP set 3", "DEL hash"] {
        logged.run(line);
    }
    logged.settle();
}

#[test]
fn all_is_there_after_a_restart_and_after_another() {
    for fsync in [Fsync::Always, Fsync::EverySecond, Fsync::No] {
        let folder = TempDir::new();
        let mut settings = settings(folder.path(), fsync);
        settings.segment_len = 8 << 10;
        let logged = Logged::open(settings.clone()).unwrap();
        fill(&logged);
        let held = logged.end();
        assert!(held.len() > 300);
        assert!(fsync != Fsync::Always || segments(folder.path()).len() > 4);
        let logged = Logged::open(settings.clone()).unwrap();
        assert_eq!(contents(&logged.store), held, "{fsync:?}");
        assert!(!logged.noticed("TornTail"), "{:?}", logged.notices.lock());
        logged.run("SET more 1");
        run_in(&logged.store, 1, "SET other 1");
        let held = logged.end();
        let logged = Logged::open(settings).unwrap();
        assert_eq!(contents(&logged.store), held);
        assert_eq!(logged.log.status().state, LogState::Open);
    }
}

#[test]
fn a_compaction_under_load_leaves_what_the_store_holds_and_fewer_bytes() {
    let folder = TempDir::new();
    let mut settings = settings(folder.path(), Fsync::EverySecond);
    (settings.segment_len, settings.compact_from) = (64 << 10, 256 << 10);
    let logged = Logged::open(settings.clone()).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (logged, is_done) = (&logged, &is_done);
            scope.spawn(move || {
                let mut nth = 0;
                while !is_done.load(Ordering::Relaxed) {
                    nth += 1;
                    run_in(&logged.store, thread, &format!("SET key:{} {nth}", nth % 50));
                    run_in(&logged.store, thread, &format!("RPUSH list:{} {nth}", nth % 7));
                    run_in(&logged.store, thread, &format!("LTRIM list:{} -20 -1", nth % 7));
                    logged.settle();
                }
            });
        }
        wait_until("compactions", BOUND, || logged.log.status().compactions >= 6);
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(logged.noticed("Compacted"), "{:?}", logged.notices.lock());
    let status = logged.log.status();
    assert!(status.segments_len < status.written, "{status:?}");
    let held = logged.end();
    let len: u64 = segments(folder.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(len < status.written, "{len} of {status:?}");
    let logged = Logged::open(settings).unwrap();
    assert_eq!(contents(&logged.store), held);
}

#[test]
fn a_compaction_is_made_when_asked_for_and_takes_what_is_in_flight_along() {
    let folder = TempDir::new();
    let settings = settings(folder.path(), Fsync::Always);
    let logged = Logged::open(settings.clone()).unwrap();
    fill(&logged);
    let before = logged.log.status();
    logged.log.ask_compaction();
    wait_until("a compaction", BOUND, || {
        logged.run("INCR during");
        logged.log.status().compactions > before.compactions
    });
    wait_until("its figures", BOUND, || {
        let status = logged.log.status();
        status.segments_len < before.segments_len && status.base_len > before.base_len
    });
    let held = logged.end();
    let logged = Logged::open(settings).unwrap();
    assert_eq!(contents(&logged.store), held);
    assert!(run_in(&logged.store, 0, "GET during").starts_with('$'));
}

#[test]
fn a_key_that_persisted_after_the_base_is_there_though_the_base_says_it_has_expired() {
    let folder = TempDir::new();
    let settings = settings(folder.path(), Fsync::Always);
    let logged = Logged::open(settings.clone()).unwrap();
    let at = now().unix_millis() + 300;
    for key in ["kept", "gone"] {
        logged.run(&format!("RPUSH {key} a b"));
        logged.run(&format!("PEXPIREAT {key} {at}"));
    }
    let before = logged.log.status().compactions;
    logged.log.ask_compaction();
    wait_until("a base", BOUND, || logged.log.status().compactions > before);
    assert_eq!(logged.run("PERSIST kept"), ":1\r\n");
    wait_until("the time", BOUND, || now().unix_millis() > at);
    // It expires by this, and begins anew.
    assert_eq!(logged.run("RPUSH gone c"), ":1\r\n");
    let held = logged.end();
    let logged = Logged::open(settings).unwrap();
    assert_eq!(run_in(&logged.store, 0, "LLEN kept"), ":2\r\n");
    assert_eq!(run_in(&logged.store, 0, "LRANGE gone 0 -1"), "*1\r\n$1\r\nc\r\n");
    assert_eq!(contents(&logged.store), held);
}

#[test]
fn functions_are_in_the_base_and_told_behind_it() {
    let folder = TempDir::new();
    let settings = settings(folder.path(), Fsync::Always);
    let functions: Arc<Noted> = Arc::default();
    functions.libraries.lock().push(b"first".as_slice().into());
    let logged = Logged::open_with(settings.clone(), functions).unwrap();
    logged.store.tell_beside(&[b"FUNCTION", b"LOAD", b"second"], || true);
    logged.settle();
    logged.end();
    let logged = Logged::open(settings).unwrap();
    assert_eq!(*logged.functions.told.lock(), ["load first", "FUNCTION LOAD second"]);
}

#[test]
fn a_torn_tail_is_cut_and_told_and_the_log_goes_on() {
    let folder = TempDir::new();
    let settings = settings(folder.path(), Fsync::Always);
    let logged = Logged::open(settings.clone()).unwrap();
    logged.run("SET a 1");
    logged.run("SET b 1");
    logged.end();
    // A part of a record, as a process leaves that is killed while it writes.
    let last = segments(folder.path()).pop().unwrap();
    let mut bytes = fs::read(&last).unwrap();
    let len = bytes.len() as u64;
    bytes.extend_from_slice(&[7; 20]);
    fs::write(&last, bytes).unwrap();
    let logged = Logged::open(settings.clone()).unwrap();
    assert!(logged.noticed("TornTail"), "{:?}", logged.notices.lock());
    assert_eq!(last.metadata().unwrap().len(), len);
    assert_eq!(contents(&logged.store).len(), 2);
    logged.run("SET c 1");
    let held = logged.end();
    let logged = Logged::open(settings).unwrap();
    assert!(!logged.noticed("TornTail"));
    assert_eq!(contents(&logged.store), held);
}

#[test]
fn damage_is_told_with_file_and_place_and_nothing_is_changed() {
    let folder = TempDir::new();
    let mut settings = settings(folder.path(), Fsync::Always);
    settings.segment_len = 4 << 10;
    let logged = Logged::open(settings.clone()).unwrap();
    fill(&logged);
    logged.end();
    let all = segments(folder.path());
    assert!(all.len() > 3);
    for (path, at) in [(&all[0], 100), (&all[1], 2000), (all.last().unwrap(), 60)] {
        let bytes = fs::read(path).unwrap();
        let mut wrong = bytes.clone();
        wrong[at] ^= 1;
        fs::write(path, &wrong).unwrap();
        let fault = Logged::open(settings.clone()).err().expect("damage");
        let text = fault.to_string();
        assert!(matches!(fault, LogFault::Damaged { .. }), "{text}");
        assert!(text.contains(path.to_str().unwrap()) && text.contains("at byte"), "{text}");
        assert_eq!(fs::read(path).unwrap(), wrong);
        fs::write(path, bytes).unwrap();
    }
    let away = folder.path().join("away");
    fs::rename(&all[1], &away).unwrap();
    assert!(
        matches!(Logged::open(settings.clone()), Err(LogFault::Missing(path)) if path == all[1])
    );
    fs::rename(&away, &all[1]).unwrap();
    let manifest = folder.path().join("manifest");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("base", "bass")).unwrap();
    assert!(matches!(Logged::open(settings.clone()), Err(LogFault::Manifest { .. })));
    fs::remove_file(&manifest).unwrap();
    assert!(matches!(Logged::open(settings.clone()), Err(LogFault::NoManifest(_))));
    fs::write(&manifest, &text).unwrap();
    let logged = Logged::open(settings.clone()).unwrap();
    assert!(matches!(Logged::open(settings.clone()), Err(LogFault::InUse(_))));
    drop(logged);
    let none = common::settings(&folder.path().join("none"), Fsync::No);
    assert!(matches!(Logged::open(none), Err(LogFault::NoDirectory(_))));
}

#[test]
fn a_log_that_cannot_be_written_refuses_writes_and_begins_anew_when_the_disk_is_well() {
    let folder = TempDir::new();
    let (directory, away) = (folder.path().join("log"), folder.path().join("away"));
    fs::create_dir(&directory).unwrap();
    let mut settings = settings(&directory, Fsync::Always);
    settings.segment_len = 1 << 10;
    let logged = Logged::open(settings.clone()).unwrap();
    logged.run("SET before 1");
    fs::rename(&directory, &away).unwrap();
    let mut sent = 0;
    while logged.settle() == 0 {
        sent += 1;
        run_in(&logged.store, 0, &format!("SET key:{sent} {}", "v".repeat(200)));
        assert!(sent < 1000, "no loss is told");
    }
    assert!(logged.store.refuses_writes());
    assert!(logged.noticed("Failed"), "{:?}", logged.notices.lock());
    let status = logged.log.status();
    assert_eq!((status.state, status.losses), (LogState::Lost, 1));
    assert!(status.last_fault.contains("cannot create"), "{}", status.last_fault);
    // Nobody waits for it, and who reads is served.
    run_in(&logged.store, 0, "GET before");
    assert_eq!(logged.settle(), 1);
    fs::rename(&away, &directory).unwrap();
    wait_until("healed", BOUND, || !logged.store.refuses_writes());
    assert!(logged.noticed("Healed"), "{:?}", logged.notices.lock());
    logged.run("SET after 1");
    let held = logged.end();
    assert!(held.len() > 2);
    let logged = Logged::open(settings).unwrap();
    assert_eq!(contents(&logged.store), held);
}

/// Ten times as fast as the clock of the system.
fn fast() -> Time {
    static BEGAN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    #[allow(clippy::disallowed_methods, reason = "the clock of a log is an argument")]
    let began = BEGAN.get_or_init(std::time::Instant::now);
    Time(10 * began.elapsed().as_nanos() as u64)
}

#[test]
fn a_log_that_was_lost_for_long_begins_within_seconds_once_the_disk_is_well() {
    let folder = TempDir::new();
    let (directory, away) = (folder.path().join("log"), folder.path().join("away"));
    fs::create_dir(&directory).unwrap();
    let mut settings = settings(&directory, Fsync::EverySecond);
    (settings.segment_len, settings.monotonic) = (1 << 10, fast);
    let logged = Logged::open(settings.clone()).unwrap();
    fs::rename(&directory, &away).unwrap();
    logged.run(&format!("SET long {}", "v".repeat(2 << 10)));
    wait_until("a minute", BOUND, || logged.noticed("NotBegun"));
    let attempts = || logged.log.status().failed_attempts;
    let before = attempts();
    assert!((10..40).contains(&before), "{before} attempts in a minute");
    wait_until("one more attempt", BOUND, || attempts() > before);
    fs::rename(&away, &directory).unwrap();
    let since = fast();
    wait_until("healed", BOUND, || logged.noticed("Healed"));
    let took = fast().since(since);
    assert!(took < Duration::from_secs(12), "it took {took:?}");
    let status = logged.log.status();
    assert_eq!((status.losses, status.state), (1, LogState::Open));
    let held = logged.end();
    let logged = Logged::open(settings).unwrap();
    assert_eq!(contents(&logged.store), held);
}

#[test]
fn with_always_a_write_that_is_longer_than_the_room_is_acknowledged_once_it_is_in_a_file() {
    let folder = TempDir::new();
    let mut settings = settings(folder.path(), Fsync::Always);
    settings.effects_room = 1 << 20;
    let logged = Logged::open(settings).unwrap();
    run_in(&logged.store, 0, &format!("SET long {}", "v".repeat(5 << 20)));
    assert_eq!(logged.settle(), 0, "nothing is lost");
    let len: u64 = segments(folder.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(len > 5 << 20, "{len} bytes are in files");
}

#[test]
fn without_always_a_log_that_fails_lets_writes_go_on_and_begins_anew() {
    let folder = TempDir::new();
    let (directory, away) = (folder.path().join("log"), folder.path().join("away"));
    fs::create_dir(&directory).unwrap();
    let mut settings = settings(&directory, Fsync::EverySecond);
    settings.segment_len = 1 << 10;
    let logged = Logged::open(settings.clone()).unwrap();
    fs::rename(&directory, &away).unwrap();
    logged.run(&format!("SET long {}", "v".repeat(2 << 10)));
    wait_until("a loss", BOUND, || logged.log.status().losses == 1);
    assert!(!logged.store.refuses_writes());
    fs::rename(&away, &directory).unwrap();
    wait_until("healed", BOUND, || logged.noticed("Healed"));
    logged.run("SET after 1");
    let held = logged.end();
    let logged = Logged::open(settings).unwrap();
    assert_eq!(contents(&logged.store), held);
}

/// Laws: a writer that waits for room goes on, and a log is never lost to its own bound.
#[test]
fn values_of_any_length_are_logged_and_no_writer_hangs() {
    for fsync in [Fsync::EverySecond, Fsync::Always] {
        let folder = TempDir::new();
        let mut settings = settings(folder.path(), fsync);
        (settings.effects_room, settings.segment_len) = (1 << 20, 4 << 20);
        let logged = Logged::open(settings.clone()).unwrap();
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (logged, done) = (&logged, &done);
                scope.spawn(move || {
                    for nth in 0..60u64 {
                        // From a byte to 8 MiB, eight times the room.
                        let len = 1usize << ((nth * 7 + thread * 5) % 24);
                        let value = "x".repeat(len);
                        logged.run(&format!("SET key:{thread}:{} {value}", nth % 9));
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
            wait_until("no writer hangs", BOUND, || done.load(Ordering::Relaxed) == 3);
        });
        assert!(logged.store.effects_beyond() > 0, "no value was longer than the room");
        wait_until("all is free again", BOUND, || !logged.store.effects_are_full());
        let status = logged.log.status();
        assert_eq!((status.losses, status.state), (0, LogState::Open), "{fsync:?}");
        let held = logged.end();
        let logged = Logged::open(settings).unwrap();
        assert_eq!(contents(&logged.store), held, "{fsync:?}");
    }
}
