//! Two threads, at full speed and with pauses: nothing is lost, doubled, out of order or changed,
//! and neither thread sleeps for ever.

#![allow(clippy::disallowed_methods, reason = "bounds of waits")]

use keyway_ring::{
    Bell, CAPACITY_MIN, Consumer, Doorbell, Ended, Heard, Inbox, Lane, Mapping, Producer,
    RecordReader, Records, Segment, Spin, Tag, record_len,
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

/// Makes the content of record number `nth`.
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

/// Writes records of its own into a lane, now and then after a pause.
fn write_lane(mut lane: Lane<Arc<Mapping>, Arc<Doorbell>>, seed: u64, records: u64) {
    let (mut spin, bell, mut state) = (Spin::never(), Bell::default(), seed + 1);
    let mut bytes = Vec::new();
    for nth in 0..records {
        payload(nth, &mut bytes);
        while !lane.push(Tag::default(), &bytes).unwrap() {
            let room = record_len(bytes.len());
            assert!(lane.wait_for_room(room, (&mut spin, &bell), None).unwrap());
        }
        let chance = random(&mut state) % 512;
        if chance < 100 {
            lane.flush(&bell);
        }
        if chance == 0 {
            thread::sleep(Duration::from_micros(random(&mut state) % 500));
        }
    }
    lane.finish(&bell);
}

#[test]
fn records_of_many_writers_arrive_in_the_order_of_each() {
    const WRITERS: usize = 16;
    const RECORDS: u64 = 8_000;
    let doorbell = Arc::new(Doorbell::default());
    let mut inbox = Inbox::new(Arc::clone(&doorbell));
    let writers: Vec<_> = (0..WRITERS)
        .map(|nth| {
            let (producer, consumer) = ends(CAPACITY_MIN);
            assert_eq!(inbox.add(consumer, 4096), Some(nth));
            let lane = Lane::new(producer, Arc::clone(&doorbell), nth);
            thread::spawn(move || write_lane(lane, nth as u64, RECORDS))
        })
        .collect();
    let (mut got, mut expected, mut spin) = (Vec::new(), Vec::new(), Spin::never());
    let (mut next, mut ended) = ([0; WRITERS], 0);
    let bell = Bell::default();
    while ended < WRITERS {
        match inbox.next(&mut got, |memory, how| bell.wake_writer(memory, how)) {
            Some(Heard::Record { lane, .. }) => {
                payload(next[lane], &mut expected);
                assert!(got == expected, "record {} of lane {lane}", next[lane]);
                next[lane] += 1;
            }
            Some(Heard::Ended { lane, why }) => {
                assert_eq!((why, next[lane]), (Ended::Closed, RECORDS));
                ended += 1;
            }
            None => {
                let until = Instant::now() + Duration::from_secs(20);
                assert!(inbox.wait(&mut spin, Some(until)), "nobody woke the reader: {next:?}");
            }
        }
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}
