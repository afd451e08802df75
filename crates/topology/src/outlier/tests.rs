use super::*;
use crate::{ClusterPool, Discovery, Epoch, Pool, PoolKind, ReadFrom, ReadPolicy, SlotQuery};
use proptest::prelude::*;

const OUTLIERS: Outliers = Outliers {
    times_slower: 5,
    failures_percent: 50,
    after_periods: 3,
    out_for: Duration::from_secs(10),
    out_for_max: Duration::from_secs(60),
    out_percent: 50,
};

fn at(millis: u64) -> Time {
    Time(millis * 1_000_000)
}

fn board_of(outliers: Option<Outliers>, nodes_max: u16) -> (ReadBoard, Vec<BackendId>) {
    let reads = ReadPolicy { from: ReadFrom::Nearest, outliers, ..ReadPolicy::default() };
    let discovery = Discovery { reads, ..Discovery::new(Vec::new(), nodes_max) };
    let kind = PoolKind::Cluster(ClusterPool::new(SlotQuery::Slots, discovery));
    let topology = Topology::new(Epoch(1), vec![Pool { name: "a".to_owned(), kind }]);
    let ids = (0..u32::from(nodes_max)).map(BackendId).collect();
    (ReadBoard::new(&topology), ids)
}

/// Notes a second in which each server has the given number of replies of the given microseconds.
fn second(board: &ReadBoard, replies: &[(u32, u64)], end: Time) {
    for (server, &(count, micros)) in replies.iter().enumerate() {
        let id = BackendId(server as u32);
        for _ in 0..count {
            board.note_latency(id, micros, end);
        }
        board.note_answers(id, count);
    }
}

fn judge_all(board: &ReadBoard, ids: &[BackendId], now: Time) -> Vec<OutlierChange> {
    board.judge(0, ids, |_| true, now)
}

#[test]
fn an_estimate_rises_at_once_and_falls_with_time() {
    let (board, ids) = board_of(None, 3);
    let id = ids[0];
    assert_eq!(board.estimate_micros(id), 0);
    board.note_latency(id, 200, at(1000));
    assert_eq!(board.estimate_micros(id), 200);
    board.note_latency(id, 50_000, at(1001));
    assert_eq!(board.estimate_micros(id), 50_000);
    board.note_latency(id, 200, at(1251));
    assert!((25_000..26_000).contains(&board.estimate_micros(id)));
    // Whether it is asked often or seldom, the estimate has come down after two seconds.
    for step in [1, 20, 100] {
        let (board, ids) = board_of(None, 3);
        board.note_latency(ids[0], 50_000, at(0));
        (0..=2500 / step).for_each(|nth| board.note_latency(ids[0], 200, at(nth * step)));
        let estimate = board.estimate_micros(ids[0]);
        assert!((200..450).contains(&estimate), "{estimate} by steps of {step} ms");
    }
    // The result does not depend on how many replies come within a microsecond.
    let (board, ids) = board_of(None, 3);
    board.note_latency(ids[0], 300, at(0));
    (0..3_000_000u64).for_each(|nth| board.note_latency(ids[0], 200, Time(nth * 500)));
    assert!((200..205).contains(&board.estimate_micros(ids[0])));
    assert!(board.cost(ids[0], 100) > board.cost(ids[0], 0) && board.cost(ids[1], 0) > 0);
}

#[test]
fn a_request_that_gets_no_reply_counts_as_slow() {
    let (board, ids) = board_of(None, 3);
    board.note_latency(ids[0], 200, at(1000));
    board.note_failures(ids[0], 4, FailureTimes { began: at(1000), now: at(1400) });
    assert_eq!(board.estimate_micros(ids[0]), 400_000);
}

#[test]
fn a_server_that_is_not_read_is_tried_by_one_at_a_time() {
    let (board, ids) = board_of(None, 3);
    board.note_latency(ids[0], 200, at(1000));
    assert!(!board.claim_try(ids[0], at(1050)));
    assert!(board.claim_try(ids[0], at(1100)) && !board.claim_try(ids[0], at(1100)));
    assert!(!board.claim_try(ids[0], at(1199)) && board.claim_try(ids[0], at(1200)));
}

#[test]
fn a_slow_server_is_left_out_comes_back_and_stays_out_longer_each_time() {
    let (board, ids) = board_of(Some(OUTLIERS), 3);
    let slow = [(100, 300), (100, 350), (20, 20_000)];
    let mut now = 0;
    for out_for in [10, 20, 40, 60, 60] {
        for nth in 1..=3 {
            now += 1000;
            second(&board, &slow, at(now));
            let changes = judge_all(&board, &ids, at(now));
            assert_eq!(changes.len(), usize::from(nth == 3), "{nth}");
            for change in changes {
                let out = Some((Duration::from_secs(out_for), OutlierReason::Slow));
                assert_eq!((change.backend, change.out), (ids[2], out));
                assert_eq!((change.others_micros, change.period.mean_micros), (Some(350), 20_000));
            }
        }
        assert!(board.is_out(ids[2], at(now)) && board.reason(ids[2]).is_some());
        now += out_for * 1000;
        assert!(board.is_out(ids[2], at(now - 1)) && !board.is_out(ids[2], at(now)));
        second(&board, &slow[..2], at(now));
        let changes = judge_all(&board, &ids, at(now));
        assert_eq!((changes.len(), changes[0].out), (1, None));
    }
    assert_eq!(board.outs(ids[2]), 5);
    // A server that was good for long starts anew.
    now += 100_000;
    for _ in 0..3 {
        now += 1000;
        second(&board, &slow, at(now));
        let changes = judge_all(&board, &ids, at(now));
        changes.iter().for_each(|change| assert_eq!(change.out.unwrap().0, OUTLIERS.out_for));
    }
    assert_eq!(board.outs(ids[2]), 6);
}

#[test]
fn a_server_that_fails_is_left_out_though_its_replies_are_fast() {
    let (board, ids) = board_of(Some(OUTLIERS), 3);
    for nth in 1..=3 {
        second(&board, &[(100, 300), (10, 100), (100, 300)], at(nth * 1000));
        board.note_failures(
            ids[1],
            10,
            FailureTimes { began: at(nth * 1000), now: at(nth * 1000) },
        );
        let changes = judge_all(&board, &ids, at(nth * 1000));
        assert_eq!(changes.len(), usize::from(nth == 3));
        for change in changes {
            assert_eq!(change.out, Some((OUTLIERS.out_for, OutlierReason::Failures)));
        }
    }
}

#[test]
fn nobody_is_left_out_for_little() {
    // (the periods of the servers, the difference)
    for (seconds, why) in [
        (vec![[(100, 100), (100, 100), (100, 1050)]; 9], "less than a millisecond more"),
        (vec![[(100, 3000), (100, 3000), (100, 14_000)]; 9], "less than so many times"),
        (vec![[(100, 300), (100, 300), (4, 90_000)]; 9], "too few replies"),
        (vec![[(0, 0), (0, 0), (100, 90_000)]; 9], "nobody to compare with"),
        (
            [[(9, 300), (9, 300), (9, 90_000)], [(9, 300), (9, 300), (9, 300)]].repeat(9),
            "now and then",
        ),
    ] {
        let (board, ids) = board_of(Some(OUTLIERS), 3);
        for (nth, second) in seconds.iter().enumerate() {
            let now = at(1000 * (nth as u64 + 1));
            self::second(&board, second, now);
            assert_eq!(judge_all(&board, &ids, now), [], "{why}");
        }
    }
}

#[test]
fn a_period_is_judged_once_and_only_where_outliers_are_left_out() {
    let (board, _) = board_of(Some(OUTLIERS), 3);
    assert!(board.claim_period(0, at(5000)) && !board.claim_period(0, at(5999)));
    assert!(board.claim_period(0, at(6000)));
    let (board, ids) = board_of(None, 3);
    assert!(!board.claim_period(0, at(5000)));
    assert_eq!(judge_all(&board, &ids, at(6000)), []);
}

#[test]
fn another_server_at_its_index_is_unknown() {
    let (board, ids) = board_of(Some(OUTLIERS), 3);
    for nth in 1..=3 {
        second(&board, &[(9, 300), (9, 300), (9, 90_000)], at(nth * 1000));
        judge_all(&board, &ids, at(nth * 1000));
    }
    assert!(board.is_out(ids[2], at(3500)));
    board.restart(ids[2]);
    assert!(!board.is_out(ids[2], at(3500)));
    assert_eq!(board.estimate_micros(ids[2]), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// At most the permitted share of servers is left out at once. A server that is fit for use
    /// while others are left out is never left out itself.
    #[test]
    fn never_more_are_left_out_than_may_be(
        count in 1u16..8,
        out_percent in 1u8..100,
        after_periods in 1u8..4,
        seconds in prop::collection::vec(
            (prop::collection::vec((0u32..30, 100u64..100_000, 0u32..30, any::<bool>()), 8), 500u64..20_000),
            1..60,
        ),
    ) {
        let outliers = Outliers { out_percent, after_periods, ..OUTLIERS };
        let (board, ids) = board_of(Some(outliers), count);
        let most = usize::from(count) * usize::from(out_percent) / 100;
        let mut now = 0;
        for (servers, millis) in seconds {
            now += millis;
            for (&id, &(replies, micros, failures, _)) in ids.iter().zip(&servers) {
                second_of(&board, id, (replies, micros, failures), at(now));
            }
            let is_fit = |id: BackendId| servers[id.index()].3;
            let changes = board.judge(0, &ids, is_fit, at(now));
            let out = ids.iter().filter(|&&id| board.is_out(id, at(now))).count();
            prop_assert!(out <= most, "{} of {}", out, count);
            prop_assert!(out < usize::from(count));
            if let Some(left) = changes.iter().rfind(|change| change.out.is_some()) {
                let others = ids.iter().filter(|&&id| is_fit(id) && !board.is_out(id, at(now)));
                prop_assert!(others.count() > 0, "{:?} was the last", left);
            }
        }
    }
}

fn second_of(
    board: &ReadBoard,
    id: BackendId,
    (replies, micros, failures): (u32, u64, u32),
    now: Time,
) {
    (0..replies).for_each(|_| board.note_latency(id, micros, now));
    board.note_answers(id, replies);
    board.note_failures(id, failures, FailureTimes { began: now, now });
}
