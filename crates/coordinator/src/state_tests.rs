use super::*;
use crate::limits::HISTORY_MAX;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Put(u8, Vec<u8>),
    Delete(u8),
    Both(u8, u8),
}

fn key(number: u8) -> Key {
    Key::new(&format!("names/{}", number % 12)).unwrap()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = proptest::collection::vec(any::<u8>(), 0..40);
    let step = prop_oneof![
        (any::<u8>(), value).prop_map(|(number, value)| Step::Put(number, value)),
        any::<u8>().prop_map(Step::Delete),
        (0u8..6, 6u8..12).prop_map(|(put, delete)| Step::Both(put, delete)),
    ];
    proptest::collection::vec(step, 0..40)
}

fn txn(step: &Step) -> Txn {
    match step {
        Step::Put(number, value) => Txn::new().put(&key(*number), value.clone()),
        Step::Delete(number) => Txn::new().delete(&key(*number)),
        Step::Both(put, delete) => Txn::new().put(&key(*put), vec![1]).delete(&key(*delete)),
    }
}

fn state_of(steps: &[Step], history_max: usize) -> State {
    let mut state = State::empty(7);
    for step in steps {
        state.apply(&txn(step), history_max).unwrap();
    }
    state
}

proptest! {
    #[test]
    fn a_state_survives_its_file(steps in steps()) {
        let state = state_of(&steps, 10);
        prop_assert_eq!(State::decode(&state.encode()), Some(state));
    }

    #[test]
    fn a_file_with_a_wrong_byte_is_refused(steps in steps(), at in any::<usize>(), bit in 0u8..8) {
        let mut bytes = state_of(&steps, 10).encode();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        prop_assert_eq!(State::decode(&bytes), None);
    }

    #[test]
    fn a_file_that_is_cut_off_is_refused(steps in steps(), at in any::<usize>()) {
        let bytes = state_of(&steps, 10).encode();
        prop_assert_eq!(State::decode(&bytes[..at % bytes.len()]), None);
    }

    /// Also where somebody has made the checksum right.
    #[test]
    fn no_bytes_make_the_reader_panic(steps in steps(), at in any::<usize>(), with in any::<[u8; 5]>()) {
        let mut body = state_of(&steps, 10).encode();
        let at = HEADER_LEN + at % (body.len() - HEADER_LEN);
        for (byte, with) in body[at..].iter_mut().zip(with) {
            *byte = with;
        }
        body.truncate(body.len() - 4);
        if let Some(state) = State::decode_body(&body) {
            prop_assert_eq!(State::decode(&state.encode()), Some(state));
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(State::decode(&bytes), None);
        let body = [&MAGIC[..], &bytes].concat();
        let _ = State::decode_body(&body);
    }

    /// The changes since any revision make the earlier state the current one.
    #[test]
    fn changes_lead_from_every_remembered_state_to_the_current_one(
        steps in steps(),
        history_max in 0usize..40,
    ) {
        let mut states = vec![State::empty(7)];
        for step in &steps {
            let mut next = states.last().unwrap().clone();
            if next.apply(&txn(step), history_max).unwrap() {
                states.push(next);
            }
        }
        let last = states.last().unwrap();
        for earlier in &states {
            let Some(batches) = last.since(earlier.mark.revision) else {
                let behind = last.mark.revision.0 - earlier.mark.revision.0;
                prop_assert!(behind > history_max as u64);
                continue;
            };
            let mut followed = earlier.clone();
            let mut revision = earlier.mark.revision;
            for batch in batches {
                prop_assert_eq!(batch.revision.0, revision.0 + 1);
                revision = batch.revision;
                batch.changes.iter().for_each(|change| followed.set(change));
            }
            prop_assert_eq!(revision, last.mark.revision);
            prop_assert_eq!(&followed.entries, &last.entries);
            prop_assert_eq!(followed.entries_len, last.entries_len);
        }
    }
}

#[test]
fn a_state_that_would_be_too_large_is_refused() {
    let mut state = State::empty(7);
    for number in 0..ENTRIES_MAX {
        let key = Key::new(&format!("n{number}")).unwrap();
        state.apply(&Txn::new().put(&key, vec![]), HISTORY_MAX).unwrap();
    }
    let key = Key::new("one-more").unwrap();
    assert_eq!(state.apply(&Txn::new().put(&key, vec![]), HISTORY_MAX), Err(Full));
}
