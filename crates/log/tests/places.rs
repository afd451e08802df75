//! The place of a replica's data in the history of its primary: a log leads to the place that the
//! store had, whatever was done meanwhile.

mod common;

use common::{BOUND, Logged, contents, run_in, settings};
use keyway_log::Fsync;
use keyway_rdb::replication::ReplicationId;
use keyway_store::HistoryPlace;
use keyway_testkit::{Random, TempDir, wait_until};
use std::sync::Arc;

fn place(random: &mut Random) -> HistoryPlace {
    let id = ReplicationId::of_random([random.below(3) as u8; 20]);
    let database = [None, Some(0), Some(2)][random.below(3)];
    HistoryPlace { id, offset: random.next_u64(), database }
}

#[test]
fn a_restart_finds_the_last_place_through_compactions_and_replaced_data() {
    for seed in 0..6 {
        let folder = TempDir::new();
        let mut settings = settings(folder.path(), Fsync::EverySecond);
        settings.segment_len = 4 << 10;
        let mut random = Random::new(seed);
        let mut expected = None;
        for _ in 0..4 {
            let logged = Logged::open_as(settings.clone(), Arc::default(), true).unwrap();
            assert_eq!(logged.store.history_place(), expected, "seed {seed}");
            for nth in 0..200 {
                run_in(&logged.store, random.below(3) as u32, &format!("APPEND k{} x", nth % 9));
                match random.below(40) {
                    0 => {
                        logged.store.leave_history();
                        expected = None;
                    }
                    1 => logged.log.ask_compaction(),
                    2 => {
                        replace(&logged, place(&mut random));
                        expected = logged.store.history_place();
                    }
                    3..20 => {
                        let place = place(&mut random);
                        logged.store.set_history_place(place);
                        expected = Some(place);
                    }
                    _ => {}
                }
            }
            let held = logged.end();
            let again = Logged::open_as(settings.clone(), Arc::default(), true).unwrap();
            assert_eq!(contents(&again.store), held, "seed {seed}");
            again.end();
        }
        // A store that is a primary forgets the place, and so does its log.
        expected.get_or_insert_with(|| place(&mut random));
        Logged::open(settings.clone()).unwrap().end();
        let logged = Logged::open_as(settings, Arc::default(), true).unwrap();
        assert_eq!(logged.store.history_place(), None);
    }
}

/// Replaces all data, as a full resync does.
fn replace(logged: &Logged, place: HistoryPlace) {
    let log = logged.store.log().expect("a log");
    log.pause();
    let clock = common::now();
    logged.store.leave_history();
    logged.store.begin_loading(0, clock);
    logged.store.clear(clock);
    run_in_loading(logged);
    logged.store.set_history_place(place);
    logged.store.end_loading();
    log.begin_anew();
}

/// What is written while the log is paused is in its next base.
fn run_in_loading(logged: &Logged) {
    (0..20).for_each(|nth| _ = run_in(&logged.store, 0, &format!("SET new{nth} v")));
}

#[test]
fn a_pause_keeps_the_data_before_until_the_log_has_begun_anew() {
    for fsync in [Fsync::Always, Fsync::EverySecond, Fsync::No] {
        let folder = TempDir::new();
        let settings = settings(folder.path(), fsync);
        let logged = Logged::open(settings.clone()).unwrap();
        logged.run("SET old 1");
        logged.store.log().expect("a log").pause();
        assert_eq!(logged.store.refuses_writes(), fsync == Fsync::Always);
        logged.store.begin_loading(0, common::now());
        logged.store.clear(common::now());
        run_in_loading(&logged);
        // The end of the process, or a kill, is in the middle of the new data.
        logged.end();
        let logged = Logged::open(settings.clone()).unwrap();
        assert_eq!(contents(&logged.store).len(), 1, "{fsync:?}");
        let replaced = || {
            let notices = logged.notices.lock();
            notices.iter().filter(|notice| notice.starts_with("Replaced")).count()
        };
        for round in 1..4 {
            replace(&logged, place(&mut Random::new(round)));
            wait_until("the log has begun anew", BOUND, || replaced() == round as usize);
            assert!(!logged.store.refuses_writes());
            logged.run(&format!("SET behind{round} 1"));
        }
        let held = logged.end();
        let logged = Logged::open(settings).unwrap();
        assert_eq!(contents(&logged.store), held, "{fsync:?}");
        assert_eq!(held.len(), 21);
    }
}
