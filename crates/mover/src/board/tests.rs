use super::*;

fn id(byte: u8) -> ReplicationId {
    ReplicationId::of_random([byte; 20])
}

/// Returns a board whose stream of the history 1 begins at offset 100.
fn board() -> Board {
    let board = Board::new(Pace::default()).unwrap();
    assert!(board.lock().begin_snapshot());
    assert!(!board.lock().begin_snapshot(), "one copy has one snapshot");
    board.lock().begin_stream(id(1), 100);
    board
}

fn push(board: &Board, count: u64, offset: u64) {
    let mut commands = Commands::default();
    (0..count).for_each(|_| commands.add(&[b"SET", b"a", b"1"]));
    board.push(&mut commands, Some(offset)).unwrap();
    assert!(commands.bytes.is_empty() && commands.count == 0);
}

fn answer(board: &Board, count: u64) {
    board.lock().note_answered(count, &mut Vec::new());
}

fn behind(board: &Board) -> Option<u64> {
    board.status().behind
}

#[test]
fn the_end_is_reached_with_the_last_answer_up_to_it() {
    let board = board();
    board.lock().note_known(400);
    push(&board, 2, 200);
    push(&board, 0, 250);
    push(&board, 1, 300);
    assert_eq!(behind(&board), Some(300));
    answer(&board, 1);
    assert_eq!(behind(&board), Some(300), "the other command of the first unit is missing");
    answer(&board, 1);
    assert_eq!(behind(&board), Some(150));
    board.lock().finish(&id(1).to_string(), 320);
    answer(&board, 1);
    assert_eq!(board.status().stage, Stage::Finishing);
    push(&board, 0, 340);
    assert_eq!(board.status().stage, Stage::Finished);
    assert!(board.push(&mut Commands::default(), Some(400)).is_err());
}

#[test]
fn nothing_behind_the_end_is_written() {
    let board = board();
    push(&board, 1, 200);
    board.lock().finish(&id(1).to_string(), 200);
    push(&board, 1, 300);
    let mut taken = VecDeque::new();
    board.lock().take_waiting(&mut taken, false);
    assert_eq!(taken.iter().map(|batch| batch.count).sum::<u64>(), 1);
    answer(&board, 1);
    assert_eq!(board.status().stage, Stage::Finished);
}

#[test]
fn an_end_in_another_history_is_refused() {
    let finished = |asked: ReplicationId, offset, is_renamed: bool| {
        let board = board();
        if is_renamed {
            board.lock().rename(id(2), 150);
        }
        push(&board, 0, 500);
        board.lock().finish(&asked.to_string(), offset);
        board.status().stage
    };
    assert_eq!(finished(id(1), 200, false), Stage::Finished);
    assert!(matches!(finished(id(2), 200, false), Stage::Failed(failure) if !failure.is_final));
    assert_eq!(finished(id(2), 200, true), Stage::Finished);
    assert_eq!(finished(id(1), 150, true), Stage::Finished);
    let lost = finished(id(1), 151, true);
    assert!(matches!(lost, Stage::Failed(_)), "the first history has gone on elsewhere");
    let board = Board::new(Pace::default()).unwrap();
    board.lock().finish(&id(1).to_string(), 0);
    assert!(matches!(board.status().stage, Stage::Failed(_)), "there is no copy yet");
}

/// The lock is taken once in each statement: a second guard would wait for the first.
#[test]
fn a_full_window_waits_for_the_target() {
    let board = board();
    let is_full = || board.lock().is_full();
    let mut pushed: usize = 0;
    let mut long = Commands::default();
    while !is_full() {
        long.add(&[b"SET", b"a", &[b'x'; 100_000]]);
        pushed += long.bytes.len();
        board.push(&mut long, None).unwrap();
    }
    assert!((HELD_MAX..HELD_MAX + 200_000).contains(&pushed), "{pushed}");
    let mut taken = VecDeque::new();
    board.lock().take_waiting(&mut taken, false);
    assert!(is_full(), "what is sent and not answered counts");
    let count = taken.len() as u64;
    let mut buffers = taken.into_iter().map(|batch| batch.bytes).collect();
    board.lock().note_answered(count, &mut buffers);
    assert!(!is_full());
    assert_eq!(board.lock().held, 0);
    while !is_full() {
        push(&board, 1000, 1);
    }
    let state = board.lock();
    assert!(state.commands - state.answered <= UNANSWERED_MAX + 1000);
}
