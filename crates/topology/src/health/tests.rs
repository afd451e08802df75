use super::*;
use crate::{ClusterPool, Discovery, Epoch, Pool, PoolKind, Server, ServerSet, SlotQuery};
use std::sync::Barrier;
use std::thread;

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) fn ejection(after_failures: u32, rejoin: Rejoin) -> Option<Ejection> {
    Some(Ejection { after_failures, for_: 30 * SECOND, rejoin })
}

/// Creates a board with one pool of `count` servers for each ejection. All servers have answered.
pub(super) fn board(count: usize, ejections: &[Option<Ejection>]) -> HealthBoard {
    let board = HealthBoard::new(&topology(count, ejections));
    let up = board.backends().filter_map(|backend| board.note_success(backend)).count();
    assert_eq!((up, board.epoch()), (board.backend_count(), 0));
    board
}

/// Runs `work` in `count` threads at once and gathers what they return.
pub(super) fn in_threads<T: Send>(count: u64, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(count as usize);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|number| {
                let (start, work) = (&start, &work);
                scope.spawn(move || {
                    start.wait();
                    work(number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_backend_is_unknown_and_in_use_until_it_answers_or_fails() {
    let ejections = [None, ejection(1, Rejoin::Serve), ejection(2, Rejoin::Serve)];
    let board = HealthBoard::new(&topology(1, &ejections));
    let [none, once, twice] = [0, 1, 2].map(BackendId);
    for backend in [none, once, twice] {
        assert!(board.is_usable(backend) && board.state(backend) == HealthState::Unknown);
        assert_eq!((board.reason(backend), board.failures(backend)), (None, 0));
    }
    let change = board.note_reachable(none).unwrap();
    assert_eq!((change.from, change.to), (HealthState::Unknown, HealthState::Up));
    assert_eq!(board.unknown().collect::<Vec<_>>(), [once, twice]);
    let fail = |backend| board.note_failure(backend, FailureReason::Connect, at_once(1));
    assert_eq!(fail(once).unwrap().to, HealthState::Ejected);
    assert_eq!(fail(twice).unwrap().to, HealthState::Failing);
    assert_eq!(board.unknown().count(), 0);
    let change = board.restore(once).unwrap();
    assert_eq!((change.to, change.reason), (HealthState::Unknown, Some(FailureReason::Connect)));
    assert!(board.is_usable(once) && board.reason(once).is_none());
}

pub(super) fn topology(count: usize, ejections: &[Option<Ejection>]) -> Topology {
    let pools = ejections.iter().enumerate().map(|(pool, &ejection)| {
        let servers =
            (1..=count).map(|port| Server::parse(&format!("h:{port}")).unwrap()).collect();
        let mut sharded = ServerSet::new(servers);
        sharded.options.ejection = ejection;
        Pool { name: format!("pool{pool}"), kind: PoolKind::Sharded(sharded) }
    });
    Topology::new(Epoch(1), pools.collect())
}

#[test]
fn who_is_ejected_by_hand_stays_so_in_the_pool_that_follows() {
    let (old, new) = (topology(2, &[None]), topology(3, &[None]));
    let board = HealthBoard::new(&old);
    assert!(board.eject(BackendId(1)));
    board.note_failure(BackendId(0), FailureReason::Closed, at_once(1));
    let next = board.succeeded_by(&old, &new, |_| false, |_| Some(0));
    let states = [0, 1, 2].map(|id| next.state(BackendId(id)));
    assert_eq!(states, [HealthState::Failing, HealthState::Ejected, HealthState::Unknown]);
    assert!(next.is_held(BackendId(1)) && next.watches(BackendId(1)));
}

#[test]
fn questions_about_backends_of_another_board_are_counted_across_reloads() {
    let (old, new) = (topology(3, &[None]), topology(2, &[None]));
    let board = HealthBoard::new(&old);
    let kept = BackendId(2);
    board.state(kept);
    assert_eq!(board.strangers(), 0, "it is on this board");
    let next = board.succeeded_by(&old, &new, |_| false, |_| Some(0));
    let asks: [fn(&HealthBoard, BackendId); 3] = [
        |board, id| _ = board.state(id),
        |board, id| _ = board.circuits().is_closed(id),
        |board, id| _ = board.reads().has(id),
    ];
    for (ask, count) in asks.into_iter().zip(1..) {
        ask(&next, kept);
        assert_eq!((next.strangers(), board.strangers()), (count, count));
    }
}

#[test]
fn an_id_in_range_of_a_pool_that_is_gone_is_refused_and_counted() {
    let old = topology(2, &[None, ejection(1, Rejoin::Serve)]);
    let board = HealthBoard::new(&old);
    let pools = old.pools().to_vec();
    let new = old.succeeded_by(Epoch(2), pools, |index| index == 0);
    let next = board.succeeded_by(&old, &new, |index| index == 0, |_| None);
    for (kept, gone) in old.backend_ids(0).zip(old.backend_ids(1)) {
        let before = next.strangers();
        assert!(next.eject(kept) && next.is_held(kept) && board.is_held(kept));
        assert_eq!(next.strangers(), before, "its pool is the same");
        assert!(gone.index() < next.backend_count(), "another server has its index");
        assert!(next.note_failure(gone, FailureReason::Closed, at_once(1)).is_none());
        assert!(!next.eject(gone) && next.restore(gone).is_none());
        assert!(!next.circuits().has(gone) && !next.reads().has(gone));
        assert!(next.strangers() > before);
    }
    let states: Vec<_> = new.backend_ids(1).map(|id| next.state(id)).collect();
    assert_eq!(states, [HealthState::Unknown; 2], "nothing was said of who has come");
}

#[test]
fn a_backend_of_another_board_is_up_and_nothing_changes_it() {
    let board = board(3, &[ejection(1, Rejoin::Flush)]);
    for stranger in [BackendId(3), BackendId(u32::MAX)] {
        let times = at_once(1);
        assert_eq!(board.note_failure(stranger, FailureReason::Closed, times), None);
        assert_eq!(board.note_success(stranger), None);
        assert_eq!(board.note_reachable(stranger), None);
        assert!(board.try_claim_rejoin(stranger, at(99)).is_none());
        assert!(!board.eject(stranger) && board.restore(stranger).is_none());
        assert_eq!(board.state(stranger), HealthState::Up);
        assert!(board.is_usable(stranger) && !board.is_held(stranger));
        assert!(!board.is_unready(stranger, at(1)) && !board.watches(stranger));
        assert_eq!((board.reason(stranger), board.until(stranger)), (None, None));
        assert_eq!(
            (board.failures(stranger), board.ejections(stranger), board.rejoins(stranger)),
            (0, 0, 0)
        );
        assert_eq!(board.generation(stranger).remembered(), Default::default());
        let (circuits, reads) = (board.circuits(), board.reads());
        assert!(!circuits.has(stranger) && circuits.is_closed(stranger));
        assert!(!circuits.restart(stranger) && !reads.has(stranger));
    }
    assert_eq!((board.epoch(), board.pool_epoch(7)), (0, 0));
}

pub(super) fn at(seconds: u64) -> Time {
    Time(seconds * 1_000_000_000)
}

/// The times of a request that failed as soon as it had begun.
fn at_once(seconds: u64) -> FailureTimes {
    FailureTimes { began: at(seconds), now: at(seconds) }
}

const STATES: [HealthState; 6] = [
    HealthState::Up,
    HealthState::Failing,
    HealthState::Ejected,
    HealthState::Rejoining,
    HealthState::Quarantined,
    HealthState::Unknown,
];

#[test]
fn each_state_has_a_label_of_its_own() {
    for (index, state) in STATES.into_iter().enumerate() {
        let label = state.label();
        assert!(!label.is_empty() && label.bytes().all(|byte| byte.is_ascii_lowercase()));
        assert!(STATES[..index].iter().all(|other| other.label() != label), "{label}");
    }
}

/// Creates a board whose only backend has this word.
fn with_word(topology: &Topology, word: Word) -> HealthBoard {
    let board = HealthBoard::new(topology);
    board.cells[0].1.word.store(word.to_bits(), Relaxed);
    board
}

#[test]
fn the_pool_that_follows_goes_on_where_this_one_stood() {
    const DUE: u64 = 77_000;
    let word = |state| {
        let reason = Some(FailureReason::Timeout);
        let due_ms = if HealthState::is_usable(state) { 0 } else { DUE };
        Word { state, reason, failures: 3, due_ms }
    };
    let held = Word {
        reason: Some(FailureReason::Operator),
        due_ms: Word::NEVER,
        ..word(HealthState::Ejected)
    };
    let ejects = ejection(3, Rejoin::Serve);
    // The state before, the state in a pool that ejects, and the state in one that does not.
    let rows = STATES.map(|state| {
        let was = word(state);
        let failing = Word { state: HealthState::Failing, due_ms: 0, ..was };
        match state {
            // A probe that is under way is ignored, and is due again.
            HealthState::Rejoining => {
                (was, Word { state: HealthState::Ejected, due_ms: 0, ..was }, failing)
            }
            HealthState::Ejected | HealthState::Quarantined => (was, was, failing),
            _ => (was, was, was),
        }
    });
    for (was, where_ejected, where_not) in rows.into_iter().chain([(held, held, held)]) {
        for (new_ejection, expected) in [(ejects, where_ejected), (None, where_not)] {
            let (from, to) = (topology(1, &[ejects]), topology(1, &[new_ejection]));
            let board = with_word(&from, was);
            board.cells[0].1.ejections.store(5, Relaxed);
            board.cells[0].1.rejoins.store(4, Relaxed);
            let next = board.succeeded_by(&from, &to, |_| false, |_| Some(0));
            let backend = BackendId(0);
            assert_eq!(next.word(backend), expected, "after {was:?}");
            assert_eq!((next.ejections(backend), next.rejoins(backend)), (5, 4));
            let anew = board.succeeded_by(&from, &to, |_| false, |_| None);
            assert_eq!(anew.word(backend), Word::UNKNOWN, "it follows no pool");
        }
    }
}

#[test]
fn server_indices_of_a_cluster_are_nobodys_in_the_pool_that_follows() {
    let listed = topology(1, &[None]);
    let seeds = vec![listed.pools()[0].servers()[0].endpoint.clone()];
    let found = ClusterPool::new(SlotQuery::Slots, Discovery::new(seeds, 1));
    let pool = Pool { name: "pool0".into(), kind: PoolKind::Cluster(found) };
    let found = Topology::new(Epoch(2), vec![pool]);
    let failing = Word { state: HealthState::Failing, failures: 1, ..Word::default() };
    for (from, to, goes_on) in [
        (&listed, &listed, true),
        (&listed, &found, false),
        (&found, &listed, false),
        (&found, &found, false),
    ] {
        let board = with_word(from, failing);
        let next = board.succeeded_by(from, to, |_| false, |_| Some(0));
        let expected = if goes_on { failing } else { Word::UNKNOWN };
        assert_eq!(next.word(BackendId(0)), expected);
    }
}

#[test]
fn a_server_is_watched_for_any_of_what_may_refuse_it() {
    let circuit = crate::Circuit {
        failures_percent: 50,
        requests_min: 10,
        window: SECOND,
        open_for: SECOND,
        open_for_max: SECOND,
        probes: 1,
    };
    for (circuit, is_held) in [(None, false), (None, true), (Some(circuit), false)] {
        let plain = topology(1, &[None]);
        let mut pool = plain.pools()[0].clone();
        pool.kind.servers_mut().expect("it has servers").options.circuit = circuit;
        let board = HealthBoard::new(&Topology::new(Epoch(1), vec![pool]));
        if is_held {
            board.eject(BackendId(0));
        }
        assert_eq!(board.watches(BackendId(0)), circuit.is_some() || is_held);
    }
}

#[test]
fn a_server_is_unready_for_a_second_after_it_said_so() {
    for reason in FailureReason::ALL {
        let says_so = matches!(reason, FailureReason::Loading | FailureReason::MasterDown);
        let board = board(2, &[ejection(9, Rejoin::Serve)]);
        let (backend, other) = (BackendId(0), BackendId(1));
        assert!(!board.is_unready(backend, at(5)), "it has said nothing");
        board.note_failure(backend, reason, at_once(5));
        for (now, is_within) in
            [(at(5), true), (Time(at(6).0 - 1), true), (at(6), false), (at(7), false)]
        {
            assert_eq!(board.is_unready(backend, now), says_so && is_within, "{reason:?}");
            assert!(!board.is_unready(other, now));
        }
        board.note_success(backend);
        assert!(!board.is_unready(backend, at(5)), "it has answered since");
    }
}

#[test]
fn what_is_known_of_its_data_is_the_backends_own() {
    let board = board(2, &[None]);
    let (one, other) = (BackendId(0), BackendId(1));
    board.generation(one).note_seen(crate::Seen::Id(42));
    assert_eq!(board.generation(one).remembered().seen, crate::Seen::Id(42));
    assert_eq!(board.generation(other).remembered().seen, crate::Seen::Nothing);
}

#[test]
fn failures_hold_no_backend_as_an_operator_does() {
    for is_operator in [false, true] {
        let ages = Duration::from_secs(1 << 31);
        let ejection = Ejection { after_failures: 1, for_: ages, rejoin: Rejoin::Serve };
        let board = board(1, &[Some(ejection)]);
        let backend = BackendId(0);
        board.note_failure(backend, FailureReason::Timeout, at_once(1));
        assert_eq!((board.until(backend), board.is_held(backend)), (None, false));
        if is_operator {
            assert!(board.eject(backend), "it was not held");
        }
        assert_eq!(board.is_held(backend), is_operator);
    }
    let word = Word { state: HealthState::Ejected, ..Word::default() };
    let operator = Some(FailureReason::Operator);
    for (state, reason, due_ms, is_held) in [
        (HealthState::Ejected, operator, Word::NEVER, true),
        (HealthState::Ejected, operator, 7, false),
        (HealthState::Ejected, None, Word::NEVER, false),
        (HealthState::Quarantined, operator, Word::NEVER, false),
    ] {
        let word = Word { state, reason, due_ms, ..word };
        assert_eq!(HealthBoard::is_held_word(word), is_held, "{word:?}");
    }
}

#[test]
fn a_backend_that_is_reachable_is_up_and_its_row_of_failures_goes_on() {
    let board = board(1, &[ejection(3, Rejoin::Serve)]);
    let backend = BackendId(0);
    for nth in 1..3 {
        let began = at_once(nth);
        let change = board.note_failure(backend, FailureReason::Closed, began).unwrap();
        assert_eq!(change.to, HealthState::Failing);
        let change = board.note_reachable(backend).unwrap();
        assert_eq!((change.from, change.to), (HealthState::Failing, HealthState::Up));
        assert_eq!(change.reason, Some(FailureReason::Closed));
        assert_eq!((board.reason(backend), board.failures(backend)), (None, nth as u32));
        assert_eq!(board.note_reachable(backend), None, "once");
    }
    let change = board.note_failure(backend, FailureReason::Closed, at_once(3)).unwrap();
    assert_eq!((change.to, change.failures), (HealthState::Ejected, 3));
    assert_eq!(board.note_reachable(backend), None, "that is the probe's to say");
    let board = self::board(1, &[ejection(3, Rejoin::Serve)]);
    board.note_failure(backend, FailureReason::Closed, at_once(1));
    board.note_reachable(backend);
    assert_eq!(board.note_success(backend), None, "it was up already");
    assert_eq!(board.failures(backend), 0, "a request ends the row");
}

#[test]
fn word_survives_packing() {
    for state in STATES {
        for reason in FailureReason::ALL.map(Some).into_iter().chain([None]) {
            for (failures, due_ms) in [(0, 0), (3, 77), (Word::FAILURES_MAX, Word::NEVER)] {
                let word = Word { state, reason, failures, due_ms };
                assert_eq!(Word::from_bits(word.to_bits()), word);
            }
        }
    }
    assert_eq!(Word::default().to_bits(), 0);
}

#[test]
fn ejected_after_failures_in_a_row_and_not_before() {
    let board = board(2, &[ejection(3, Rejoin::Serve)]);
    let backend = BackendId(1);
    for _ in 0..5 {
        assert!(board.note_failure(backend, FailureReason::Timeout, at_once(1)).is_some());
        assert_eq!(board.note_failure(backend, FailureReason::Closed, at_once(1)), None);
        assert_eq!(board.failures(backend), 2);
        let change = board.note_success(backend).unwrap();
        assert_eq!((change.from, change.to), (HealthState::Failing, HealthState::Up));
        assert_eq!((change.reason, change.failures), (Some(FailureReason::Closed), 2));
        assert_eq!(board.note_success(backend), None);
    }
    assert_eq!(board.epoch(), 0);
    board.note_failure(backend, FailureReason::Timeout, at_once(1));
    board.note_failure(backend, FailureReason::Timeout, at_once(1));
    assert_eq!(
        board.note_failure(backend, FailureReason::Loading, at_once(2)),
        Some(StateChange {
            backend,
            from: HealthState::Failing,
            to: HealthState::Ejected,
            reason: Some(FailureReason::Loading),
            failures: 3,
            until: Some(at(32)),
        })
    );
    assert!(!board.is_usable(backend) && board.is_usable(BackendId(0)));
    assert_eq!((board.epoch(), board.pool_epoch(0), board.ejections(backend)), (1, 1, 1));
    assert_eq!(board.note_failure(backend, FailureReason::Timeout, at_once(3)), None);
    assert_eq!(board.note_success(backend), None);
    assert_eq!(board.next_due(), Some(at(32)));
}

#[test]
fn what_began_before_the_latest_failure_counts_no_more() {
    let board = board(1, &[ejection(3, Rejoin::Flush)]);
    let backend = BackendId(0);
    let fails = |began, now| {
        board.note_failure(
            backend,
            FailureReason::Timeout,
            FailureTimes { began: at(began), now: at(now) },
        );
        board.failures(backend)
    };
    assert_eq!(fails(1, 3), 1);
    for began in [0, 1, 2] {
        assert_eq!(fails(began, 4), 1, "the same stall");
    }
    assert_eq!(fails(3, 5), 2, "another try");
    assert_eq!(fails(4, 6), 2);
    board.note_success(backend);
    assert_eq!(fails(4, 7), 0, "an answer makes no old failure a new one");
    assert_eq!(fails(5, 8), 1);
    assert_eq!((fails(8, 9), fails(9, 10)), (2, 3));
    assert!(!board.is_usable(backend));
}

#[test]
fn one_event_that_hits_every_worker_counts_once() {
    let board = board(1, &[ejection(3, Rejoin::Flush)]);
    let backend = BackendId(0);
    for round in 1..=500 {
        in_threads(4, |thread| {
            for nth in 0..16 {
                let now = Time(at(round).0 + thread * 1_000 + nth + 1);
                board.note_failure(
                    backend,
                    FailureReason::Closed,
                    FailureTimes { began: at(round), now },
                );
            }
        });
        assert_eq!(board.failures(backend), 1);
        board.note_success(backend);
    }
}

#[test]
fn without_ejection_failures_are_only_recorded() {
    let board = board(1, &[None]);
    let backend = BackendId(0);
    let change = board.note_failure(backend, FailureReason::Connect, at_once(0)).unwrap();
    assert_eq!((change.to, change.until), (HealthState::Failing, None));
    for _ in 0..200_000 {
        assert_eq!(board.note_failure(backend, FailureReason::Protocol, at_once(0)), None);
    }
    assert_eq!(board.failures(backend), Word::FAILURES_MAX);
    assert_eq!(board.reason(backend), Some(FailureReason::Protocol));
    assert!(board.is_usable(backend));
    assert_eq!((board.epoch(), board.next_due()), (0, None));
    assert!(board.try_claim_rejoin(backend, at(1_000)).is_none());
}

#[test]
fn comes_back_by_a_probe_and_not_by_the_clock() {
    let board = board(1, &[ejection(1, Rejoin::Flush)]);
    let backend = BackendId(0);
    board.note_failure(backend, FailureReason::Connect, at_once(0));
    assert_eq!(board.due_for_rejoin(Time(29_999_999_999)).count(), 0);
    assert!(board.try_claim_rejoin(backend, Time(29_999_999_999)).is_none());
    assert_eq!(board.due_for_rejoin(at(30)).collect::<Vec<_>>(), [backend]);
    let claim = board.try_claim_rejoin(backend, at(30)).unwrap();
    assert_eq!((claim.backend(), claim.policy()), (backend, Rejoin::Flush));
    assert_eq!(board.due_for_rejoin(at(30)).count(), 0);
    assert_eq!(board.state(backend), HealthState::Rejoining);
    let change = board.rejoin_failed(claim, FailureReason::Timeout, at(31)).unwrap();
    assert_eq!((change.to, change.until), (HealthState::Ejected, Some(at(61))));
    assert_eq!((change.failures, board.epoch()), (2, 1));
    let claim = board.try_claim_rejoin(backend, at(61)).unwrap();
    let change = board.rejoined(claim, at(62)).unwrap();
    assert_eq!((change.from, change.to), (HealthState::Rejoining, HealthState::Up));
    assert_eq!(change.reason, Some(FailureReason::Timeout));
    assert_eq!((board.epoch(), board.rejoins(backend), board.failures(backend)), (2, 1, 0));
}

#[test]
fn lapsed_claim_passes_on_and_counts_no_more() {
    let board = board(1, &[ejection(1, Rejoin::Flush)]);
    let backend = BackendId(0);
    board.note_failure(backend, FailureReason::Connect, at_once(0));
    let lapsed = board.try_claim_rejoin(backend, at(30)).unwrap();
    assert!(board.try_claim_rejoin(backend, at(89)).is_none());
    let current = board.try_claim_rejoin(backend, at(90)).unwrap();
    assert_eq!(board.rejoined(lapsed, at(91)), None);
    assert_eq!(board.state(backend), HealthState::Rejoining);
    assert!(board.rejoined(current, at(92)).is_some());
}

#[test]
fn quarantine_ends_by_time_or_by_an_operator_and_failure_breaks_it() {
    let board = board(
        1,
        &[
            ejection(1, Rejoin::Quarantine(Some(600 * SECOND))),
            ejection(1, Rejoin::Quarantine(None)),
        ],
    );
    let (timed, endless) = (BackendId(0), BackendId(1));
    for backend in [timed, endless] {
        board.note_failure(backend, FailureReason::Closed, at_once(0));
        let claim = board.try_claim_rejoin(backend, at(30)).unwrap();
        let change = board.rejoined(claim, at(30)).unwrap();
        assert_eq!(change.to, HealthState::Quarantined);
        assert_eq!(change.until, (backend == timed).then_some(at(630)));
        assert!(!board.is_usable(backend));
    }
    assert_eq!(board.end_quarantine(at(629)), None);
    assert_eq!(board.end_quarantine(at(630)).map(|change| change.backend), Some(timed));
    assert_eq!(board.end_quarantine(at(1_000_000)), None);
    assert!(board.is_usable(timed) && !board.is_usable(endless));

    let change = board.note_failure(endless, FailureReason::Closed, at_once(700)).unwrap();
    assert_eq!((change.from, change.to), (HealthState::Quarantined, HealthState::Ejected));
    assert_eq!((change.until, board.ejections(endless)), (Some(at(730)), 2));
    let claim = board.try_claim_rejoin(endless, at(730)).unwrap();
    board.rejoined(claim, at(730));
    assert_eq!(board.restore(endless).map(|change| change.to), Some(HealthState::Unknown));
    assert_eq!(board.restore(endless), None);
    assert!(board.is_usable(endless));
    assert_eq!((board.rejoins(timed), board.rejoins(endless)), (1, 1));
}

#[test]
fn epoch_of_one_pool_says_nothing_of_another() {
    let board = board(2, &[ejection(1, Rejoin::Serve), ejection(1, Rejoin::Serve)]);
    board.note_failure(BackendId(3), FailureReason::Closed, at_once(0));
    assert_eq!((board.epoch(), board.pool_epoch(0), board.pool_epoch(1)), (1, 0, 1));
    assert_eq!(board.backend_count(), 4);
}
