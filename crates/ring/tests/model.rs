//! A ring is a bounded queue of bytes, or of records. Whatever is done to it, it behaves like such
//! a queue.

use keyway_ring::{
    CAPACITY_MIN, Consumer, Ended, Mapping, Producer, RECORD_HEAD_LEN, RecordReader, Records,
    Segment, Tag, record_len,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

fn ends() -> (Producer<Arc<Mapping>>, Consumer<Arc<Mapping>>) {
    let ring = Arc::new(Segment::create(&[CAPACITY_MIN]).unwrap().ring(0).unwrap());
    (Producer::new(Arc::clone(&ring)), Consumer::new(ring))
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Publish,
    Read(usize),
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![0usize..200, 0..CAPACITY_MIN, Just(CAPACITY_MIN), Just(CAPACITY_MIN + 9)];
    prop_oneof![
        3 => len.clone().prop_map(Step::Write),
        2 => Just(Step::Publish),
        3 => len.prop_map(Step::Read),
        2 => Just(Step::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn bytes_come_out_as_they_went_in(steps in proptest::collection::vec(step(), 1..60)) {
        let (mut producer, mut consumer) = ends();
        let (mut unseen, mut seen) = (VecDeque::new(), VecDeque::new());
        let (mut held, mut next) = (0, 0u8);
        for step in steps {
            match step {
                Step::Write(len) => {
                    let bytes: Vec<u8> = (0..len).map(|nth| next.wrapping_add(nth as u8)).collect();
                    let written = producer.write(&bytes).unwrap();
                    let room = CAPACITY_MIN - unseen.len() - seen.len() - held;
                    prop_assert_eq!(written, len.min(room));
                    next = next.wrapping_add(written as u8);
                    unseen.extend(&bytes[..written]);
                }
                Step::Publish => {
                    prop_assert_eq!(producer.publish(), None);
                    seen.append(&mut unseen);
                }
                Step::Read(len) => {
                    let mut into = vec![0; len];
                    let read = consumer.read(&mut into).unwrap();
                    prop_assert_eq!(read, len.min(seen.len()));
                    let expected: Vec<u8> = seen.drain(..read).collect();
                    prop_assert_eq!(&into[..read], &expected[..]);
                    held += read;
                }
                Step::Release => {
                    prop_assert_eq!(consumer.release(), None);
                    held = 0;
                }
            }
        }
        let _ = producer.close();
        seen.append(&mut unseen);
        let mut rest = vec![0; CAPACITY_MIN];
        match consumer.read(&mut rest) {
            Ok(len) => prop_assert_eq!(&rest[..len], &seen.drain(..).collect::<Vec<u8>>()[..]),
            Err(ended) => prop_assert_eq!((ended, seen.len()), (Ended::Closed, 0)),
        }
        prop_assert_eq!(consumer.read(&mut rest), Err(Ended::Closed));
    }

    #[test]
    fn records_come_out_as_they_went_in(lens in proptest::collection::vec(
        prop_oneof![0usize..20, 0usize..5000, Just(CAPACITY_MIN - RECORD_HEAD_LEN)], 1..200),
        reads in proptest::collection::vec(any::<bool>(), 400),
    ) {
        let (producer, consumer) = ends();
        let (mut records, mut reader) = (Records::new(producer), RecordReader::new(consumer, CAPACITY_MIN));
        let (mut queue, mut free, mut into) = (VecDeque::new(), CAPACITY_MIN, Vec::new());
        let mut reads = reads.into_iter().chain(std::iter::repeat(true));
        for (nth, len) in lens.into_iter().enumerate() {
            let payload: Vec<u8> = (0..len).map(|at| (at + nth) as u8).collect();
            let tag = Tag { kind: nth as u8, flags: (nth >> 8) as u8 };
            loop {
                let fits = records.push(tag, &payload).unwrap();
                prop_assert_eq!(fits, record_len(len) <= free);
                if fits {
                    free -= record_len(len);
                    let _ = records.end().publish();
                    queue.push_back((tag, payload));
                    break;
                }
                let Some((tag, expected)) = queue.pop_front() else { panic!("full of nothing") };
                prop_assert_eq!(reader.next(&mut into), Ok(Some(tag)));
                prop_assert_eq!(&into, &expected);
                let _ = reader.end().release();
                free += record_len(expected.len());
            }
            if reads.next() == Some(true) && let Some((tag, expected)) = queue.pop_front() {
                prop_assert_eq!(reader.next(&mut into), Ok(Some(tag)));
                prop_assert_eq!(&into, &expected);
                let _ = reader.end().release();
                free += record_len(expected.len());
            }
        }
        while let Some((tag, expected)) = queue.pop_front() {
            prop_assert_eq!(reader.next(&mut into), Ok(Some(tag)));
            prop_assert_eq!(&into, &expected);
        }
        prop_assert_eq!(reader.next(&mut into), Ok(None));
    }
}

#[test]
fn memory_that_could_be_taken_away_is_refused() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let plain = memfd_create(c"plain", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&plain, (4096 + CAPACITY_MIN) as u64).unwrap();
    let refused = Segment::open(plain, &[CAPACITY_MIN]).unwrap_err();
    assert!(refused.to_string().contains("not sealed"), "{refused}");
    let segment = Segment::create(&[CAPACITY_MIN]).unwrap();
    let again = || segment.descriptor().try_clone_to_owned().unwrap();
    assert!(Segment::open(again(), &[CAPACITY_MIN]).unwrap().ring(0).unwrap().is_ring());
    let refused = Segment::open(again(), &[CAPACITY_MIN * 2]).unwrap_err();
    assert!(refused.to_string().contains("another size"), "{refused}");
    assert!(ftruncate(again(), 0).is_err(), "whoever has it cannot truncate it");
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let refused = Segment::open(file.into(), &[CAPACITY_MIN]).unwrap_err();
    assert!(refused.to_string().contains("no shared memory"), "{refused}");
    for wrong in [0, 1, CAPACITY_MIN - 1, CAPACITY_MIN + 1, usize::MAX] {
        assert!(Segment::create(&[wrong]).is_err(), "{wrong}");
    }
}
