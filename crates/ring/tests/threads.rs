//! Two threads, at full speed and with pauses: nothing is lost, twice there, out of order or
//! changed, and nobody sleeps for ever.

#![allow(clippy::disallowed_methods, reason = "bounds of waits")]

use keyway_ring::{
    Bell, CAPACITY_MIN, Consumer, Ended, Mapping, Producer, RecordReader, Records, Segment, Spin,
    Tag, record_len,
};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

fn ends(capacity: usize) -> (Producer<Arc<Mapping>>, Consumer<Arc<Mapping>>) {
    let ring = Arc::new(Segment::create(&[capacity]).unwrap().ring(0).unwrap());
    (Producer::new(Arc::clone(&ring)), Consumer::new(ring))
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// What record number `nth` holds.
fn payload(nth: u64, into: &mut Vec<u8>) {
    let mut state = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let len = random(&mut state) as usize % 600;
    into.clear();
    into.extend_from_slice(&nth.to_le_bytes());
    into.resize(8 + len, (state >> 8) as u8);
}

fn run(records: u64, pauses: bool, spin: fn() -> Spin) {
    let (producer, consumer) = ends(CAPACITY_MIN);
    let writer = thread::spawn(move || {
        let (mut records_end, mut spin, bell) = (Records::new(producer), spin(), Bell::default());
        let (mut bytes, mut state) = (Vec::new(), 1);
        for nth in 0..records {
            payload(nth, &mut bytes);
            while !records_end.push(Tag::default(), &bytes).unwrap() {
                let room = record_len(bytes.len());
                assert!(records_end.end().wait_for_room(room, (&mut spin, &bell), None).unwrap());
            }
            let chance = random(&mut state) % 64;
            if chance < 8 {
                records_end.end().flush(&bell);
            }
            if pauses && chance == 0 {
                thread::sleep(Duration::from_micros(random(&mut state) % 300));
            }
        }
        records_end.end().finish(&bell);
    });
    let (mut reader, mut spin, bell) = (RecordReader::new(consumer, 4096), spin(), Bell::default());
    let (mut got, mut expected, mut state, mut nth) = (Vec::new(), Vec::new(), 7, 0);
    loop {
        match reader.next(&mut got) {
            Ok(Some(_)) => {
                payload(nth, &mut expected);
                assert_eq!(got, expected, "record {nth}");
                nth += 1;
                if random(&mut state).is_multiple_of(16) {
                    reader.end().give_back(&bell);
                }
                if pauses && random(&mut state).is_multiple_of(64) {
                    thread::sleep(Duration::from_micros(random(&mut state) % 300));
                }
            }
            Ok(None) => {
                let until = Instant::now() + Duration::from_secs(20);
                match reader.end().wait((&mut spin, &bell), Some(until)) {
                    Ok(there) => assert!(there, "nobody woke the reader at record {nth}"),
                    Err(ended) => assert_eq!(ended, Ended::Closed),
                }
            }
            Err(ended) => {
                assert_eq!((ended, nth), (Ended::Closed, records));
                break;
            }
        }
    }
    writer.join().unwrap();
}

#[test]
fn records_arrive_whole_and_in_order_at_full_speed() {
    run(400_000, false, || Spin::adaptive(Duration::from_micros(20)));
}

#[test]
fn records_arrive_where_both_sleep_again_and_again() {
    run(20_000, true, Spin::never);
}

#[test]
fn a_wait_ends_when_its_time_is_over() {
    let (mut producer, mut consumer) = ends(CAPACITY_MIN);
    let (mut spin, bell) = (Spin::never(), Bell::default());
    let until = || Some(Instant::now() + Duration::from_millis(20));
    assert_eq!(consumer.wait((&mut spin, &bell), until()), Ok(false));
    assert_eq!(producer.write(&vec![0; CAPACITY_MIN]), Ok(CAPACITY_MIN));
    assert_eq!(producer.wait_for_room(1, (&mut spin, &bell), until()), Ok(false));
    assert_eq!(consumer.wait((&mut spin, &bell), None), Ok(true));
    consumer.finish(&bell);
    assert_eq!(producer.wait_for_room(1, (&mut spin, &bell), None), Err(Ended::Closed));
}
