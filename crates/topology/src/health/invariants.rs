//! Laws of the health board: it agrees with a naive model, and each change is told once.

use super::tests::{SECOND, at, board, ejection, in_threads, topology};
use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Advance(u64),
    /// A failure of a request that began `u64` milliseconds before.
    Failure(u32, FailureReason, u64),
    Success(u32),
    Claim(u32),
    ClaimDue,
    Rejoined(usize),
    RejoinFailed(usize, FailureReason),
    EndQuarantine,
    Restore(u32),
    Eject(u32),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let backend = 0..POLICIES.len() as u32;
    let reason = prop::sample::select(&FailureReason::ALL[..]);
    let op = prop_oneof![
        2 => (0u64..100_000).prop_map(Op::Advance),
        8 => (backend.clone(), reason.clone(), 0u64..3).prop_map(|(b, r, a)| Op::Failure(b, r, a * 40_000)),
        2 => backend.clone().prop_map(Op::Success),
        2 => backend.clone().prop_map(Op::Claim),
        4 => Just(Op::ClaimDue),
        2 => any::<usize>().prop_map(Op::Rejoined),
        1 => (any::<usize>(), reason).prop_map(|(i, r)| Op::RejoinFailed(i, r)),
        1 => Just(Op::EndQuarantine),
        1 => backend.clone().prop_map(Op::Restore),
        1 => backend.prop_map(Op::Eject),
    ];
    prop::collection::vec(op, 1..120)
}

const POLICIES: [Option<(u32, u64, Rejoin)>; 5] = [
    None,
    Some((1, 0, Rejoin::Serve)),
    Some((2, 30_000, Rejoin::Flush)),
    Some((3, 7, Rejoin::Quarantine(Some(Duration::from_millis(50_000))))),
    Some((2, 1_000, Rejoin::Quarantine(None))),
];

/// A backend without sharing, for comparison. Times are in whole milliseconds.
#[derive(Clone, Debug, Default)]
enum Model {
    #[default]
    Unknown,
    Up,
    Failing(u32),
    Ejected {
        due: u64,
    },
    Rejoining {
        claim: usize,
        due: u64,
    },
    Quarantined {
        due: Option<u64>,
    },
}

#[derive(Default)]
struct Models {
    states: [Model; 5],
    counted: [u64; 5],
    ejections: [u64; 5],
    rejoins: [u64; 5],
    now: u64,
    claims_made: usize,
}

impl Models {
    fn state(&self, backend: usize) -> HealthState {
        match self.states[backend] {
            Model::Unknown => HealthState::Unknown,
            Model::Up => HealthState::Up,
            Model::Failing(_) => HealthState::Failing,
            Model::Ejected { .. } => HealthState::Ejected,
            Model::Rejoining { .. } => HealthState::Rejoining,
            Model::Quarantined { .. } => HealthState::Quarantined,
        }
    }

    fn eject(&mut self, backend: usize) {
        let span = POLICIES[backend].unwrap().1.max(1);
        self.states[backend] = Model::Ejected { due: self.now + span };
    }

    fn is_held(&self, backend: usize) -> bool {
        matches!(self.states[backend], Model::Ejected { due: u64::MAX })
    }

    /// Ejects by an operator's command. Returns whether that changes anything.
    fn hold(&mut self, backend: usize) -> bool {
        let was_held = self.is_held(backend);
        let is_counted =
            !matches!(self.states[backend], Model::Ejected { .. } | Model::Rejoining { .. });
        self.ejections[backend] += u64::from(is_counted);
        self.states[backend] = Model::Ejected { due: u64::MAX };
        !was_held
    }

    fn fail(&mut self, backend: usize, began: u64) {
        let is_out =
            matches!(self.states[backend], Model::Ejected { .. } | Model::Rejoining { .. });
        if is_out || began < self.counted[backend] {
            return;
        }
        self.counted[backend] = self.now;
        let failures = match self.states[backend] {
            Model::Unknown | Model::Up => 1,
            Model::Failing(failures) => failures + 1,
            Model::Quarantined { .. } => u32::MAX,
            Model::Ejected { .. } | Model::Rejoining { .. } => return,
        };
        match POLICIES[backend] {
            Some((after_failures, ..)) if failures >= after_failures => {
                self.ejections[backend] += 1;
                self.eject(backend);
            }
            _ => self.states[backend] = Model::Failing(failures),
        }
    }

    fn is_claimable(&self, backend: usize) -> bool {
        match self.states[backend] {
            Model::Ejected { due } | Model::Rejoining { due, .. } => due <= self.now,
            _ => false,
        }
    }

    fn claim(&mut self, backend: usize) -> bool {
        let claimable = self.is_claimable(backend);
        if claimable {
            let due = self.now + 60_000;
            self.states[backend] = Model::Rejoining { claim: self.claims_made, due };
            self.claims_made += 1;
        }
        claimable
    }

    fn holds(&self, backend: usize, number: usize) -> bool {
        matches!(self.states[backend], Model::Rejoining { claim, .. } if claim == number)
    }

    fn put_back(&mut self, backend: usize) {
        if !self.state(backend).is_usable() {
            self.rejoins[backend] += 1;
        }
        self.states[backend] = Model::Up;
    }

    fn rejoin(&mut self, backend: usize, number: usize) {
        if !self.holds(backend, number) {
            return;
        }
        match POLICIES[backend].unwrap().2 {
            Rejoin::Serve | Rejoin::Flush => self.put_back(backend),
            Rejoin::Quarantine(span) => {
                let due = span.map(|span| self.now + span.as_millis() as u64);
                self.states[backend] = Model::Quarantined { due };
            }
        }
    }

    fn quarantine_over(&self) -> Option<usize> {
        (0..5).find(|&backend| {
            matches!(self.states[backend],
                    Model::Quarantined { due: Some(due) } if due <= self.now)
        })
    }
}

/// The board, the model, and the claims handed out, each with its number.
struct Pair {
    board: HealthBoard,
    models: Models,
    claims: Vec<(usize, RejoinClaim)>,
}

impl Pair {
    fn try_claim(&mut self, backend: BackendId, now: Time) {
        let number = self.models.claims_made;
        let claim = self.board.try_claim_rejoin(backend, now);
        assert_eq!(claim.is_some(), self.models.claim(backend.index()));
        self.claims.extend(claim.map(|claim| (number, claim)));
    }

    fn take_claim(&mut self, pick: usize) -> Option<(usize, RejoinClaim)> {
        let count = self.claims.len();
        (count > 0).then(|| self.claims.swap_remove(pick % count))
    }

    /// Applies `op` to both sides. Returns the changes that the board returned.
    fn apply(&mut self, op: Op) -> Vec<StateChange> {
        let now = Time(self.models.now * 1_000_000);
        let mut changes = Vec::new();
        match op {
            Op::Advance(span) => self.models.now += span,
            Op::Failure(backend, reason, age) => {
                let began = self.models.now.saturating_sub(age);
                self.models.fail(backend as usize, began);
                let times = FailureTimes { began: Time(began * 1_000_000), now };
                changes.extend(self.board.note_failure(BackendId(backend), reason, times));
            }
            Op::Success(backend) => {
                if self.models.state(backend as usize).is_usable() {
                    self.models.states[backend as usize] = Model::Up;
                }
                changes.extend(self.board.note_success(BackendId(backend)));
            }
            Op::Claim(backend) => self.try_claim(BackendId(backend), now),
            Op::ClaimDue => {
                let due: Vec<_> = self.board.due_for_rejoin(now).collect();
                let expected = (0..5).filter(|&index| self.models.is_claimable(index));
                assert!(due.iter().map(|backend| backend.index()).eq(expected));
                if let Some(&backend) = due.first() {
                    self.try_claim(backend, now);
                }
            }
            Op::Rejoined(pick) => {
                if let Some((number, claim)) = self.take_claim(pick) {
                    self.models.rejoin(claim.backend().index(), number);
                    changes.extend(self.board.rejoined(claim, now));
                }
            }
            Op::RejoinFailed(pick, reason) => {
                if let Some((number, claim)) = self.take_claim(pick) {
                    let index = claim.backend().index();
                    if self.models.holds(index, number) {
                        self.models.eject(index);
                    }
                    changes.extend(self.board.rejoin_failed(claim, reason, now));
                }
            }
            Op::EndQuarantine => {
                let over = self.models.quarantine_over();
                over.into_iter().for_each(|index| self.models.put_back(index));
                changes.extend(self.board.end_quarantine(now));
            }
            Op::Restore(backend) => {
                self.models.put_back(backend as usize);
                self.models.states[backend as usize] = Model::Unknown;
                changes.extend(self.board.restore(BackendId(backend)));
            }
            Op::Eject(backend) => {
                let has_changed = self.models.hold(backend as usize);
                assert_eq!(self.board.eject(BackendId(backend)), has_changed);
            }
        }
        changes
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn board_agrees_with_a_naive_model(ops in ops()) {
        let ejections = POLICIES.map(|policy| {
            policy.map(|(after_failures, millis, rejoin)| Ejection {
                after_failures,
                for_: Duration::from_millis(millis),
                rejoin,
            })
        });
        let board = HealthBoard::new(&topology(1, &ejections));
        let mut pair = Pair { board, models: Models::default(), claims: Vec::new() };
        let mut epoch = 0;
        for op in ops {
            let before: Vec<_> = (0..5).map(|index| pair.models.state(index)).collect();
            let claiming = matches!(op, Op::Claim(_) | Op::ClaimDue | Op::Eject(_));
            let changes = pair.apply(op);
            let mut expected_changes = 0;
            for (index, &from) in before.iter().enumerate() {
                let (backend, to) = (BackendId(index as u32), pair.models.state(index));
                prop_assert_eq!(pair.board.state(backend), to);
                prop_assert_eq!(pair.board.is_held(backend), pair.models.is_held(index));
                prop_assert_eq!(pair.board.watches(backend), pair.models.is_held(index));
                prop_assert_eq!(pair.board.ejections(backend), pair.models.ejections[index]);
                prop_assert_eq!(pair.board.rejoins(backend), pair.models.rejoins[index]);
                prop_assert_eq!(pair.board.reason(backend).is_some(), !to.is_sound());
                epoch += u64::from(from.is_usable() != to.is_usable());
                if from != to && !claiming {
                    expected_changes += 1;
                    let told = changes.first().map(|told| (told.backend, told.from, told.to));
                    prop_assert_eq!(told, Some((backend, from, to)));
                }
            }
            prop_assert_eq!(changes.len(), expected_changes);
            prop_assert_eq!(pair.board.epoch(), epoch);
        }
    }
}

#[test]
fn exactly_one_worker_gets_the_claim() {
    let board = board(1, &[ejection(1, Rejoin::Serve)]);
    let backend = BackendId(0);
    for round in 0..300 {
        let now = at(round * 100);
        assert!(
            board
                .note_failure(backend, FailureReason::Closed, FailureTimes { began: now, now })
                .is_some()
        );
        let later = now + 30 * SECOND;
        let claims = in_threads(4, |_| board.try_claim_rejoin(backend, later));
        let mut claims: Vec<_> = claims.into_iter().flatten().collect();
        assert_eq!(claims.len(), 1);
        assert!(board.rejoined(claims.remove(0), later).is_some());
    }
    assert_eq!((board.ejections(backend), board.rejoins(backend)), (300, 300));
}

#[test]
fn every_change_is_told_to_exactly_one_worker() {
    let board = board(1, &[ejection(2, Rejoin::Serve)]);
    let backend = BackendId(0);
    let told = in_threads(4, |thread| {
        let mut random = thread + 1;
        let mut changes = Vec::new();
        for step in 0..20_000u64 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let now = at(step * 40);
            match random >> 61 {
                0 => changes.extend(board.note_success(backend)),
                1..=4 => {
                    changes.extend(board.note_failure(
                        backend,
                        FailureReason::Timeout,
                        FailureTimes { began: now, now },
                    ));
                }
                _ => {
                    let claim = board.try_claim_rejoin(backend, now);
                    changes.extend(claim.and_then(|claim| board.rejoined(claim, now)));
                }
            }
        }
        changes
    });
    let count = |to: HealthState| told.iter().flatten().filter(|told| told.to == to).count();
    let back = told.iter().flatten().filter(|told| told.from == HealthState::Rejoining).count();
    assert_eq!(count(HealthState::Ejected) as u64, board.ejections(backend));
    assert_eq!(back as u64, board.rejoins(backend));
    assert_eq!(board.epoch(), board.ejections(backend) + board.rejoins(backend));
    let out = u64::from(!board.is_usable(backend));
    assert_eq!(board.ejections(backend), board.rejoins(backend) + out);
    assert!(board.rejoins(backend) > 100);
}
