//! Writers in processes of their own are killed or stopped at any moment. Records that they have
//! published arrive once, in order and unchanged; others do not arrive.

#![allow(clippy::disallowed_methods, reason = "bounds of waits")]

use keyway_ring::{
    Bell, CAPACITY_MIN, Consumer, Ended, Mapping, Producer, RecordReader, Records, Segment, Spin,
    Tag, record_len,
};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The variable that tells a process started by these tests that it is a writer: its descriptor and
/// its seed.
const WRITER: &str = "KEYWAY_RING_TEST_WRITER";

/// Returns how often writers are killed, and stopped. It is more in a soak (`KEYWAY_RING_FAULTS`).
fn faults() -> usize {
    std::env::var("KEYWAY_RING_FAULTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1000)
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Makes the content of record number `nth` of a writer.
fn payload(seed: u64, nth: u64, into: &mut Vec<u8>) {
    let mut state = (seed ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
    let len = random(&mut state) as usize % 2000;
    into.clear();
    into.extend_from_slice(&nth.to_le_bytes());
    into.resize(8 + len, (state >> 16) as u8);
}

/// The writer, which is not a test of its own but is started by the others.
#[test]
fn writer() {
    let Ok(told) = std::env::var(WRITER) else { return };
    let (descriptor, seed) = told.split_once(' ').unwrap();
    let (descriptor, seed): (RawFd, u64) = (descriptor.parse().unwrap(), seed.parse().unwrap());
    // SAFETY: the descriptor is inherited from the test, for this process alone.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let ring = Segment::open(descriptor, &[CAPACITY_MIN]).unwrap().ring(0).unwrap();
    let mut records = Records::new(Producer::new(ring));
    let (mut spin, bell, mut state) = (Spin::never(), Bell::default(), seed | 1);
    let mut bytes = Vec::new();
    for nth in 0.. {
        payload(seed, nth, &mut bytes);
        while !records.push(Tag::default(), &bytes).unwrap() {
            let room = record_len(bytes.len());
            if records.end().wait_for_room(room, (&mut spin, &bell), None).is_err() {
                return;
            }
        }
        if random(&mut state).is_multiple_of(4) {
            records.end().flush(&bell);
        }
    }
}

struct Writer {
    child: Child,
    seed: u64,
    next: u64,
    reader: RecordReader<Arc<Mapping>>,
}

impl Writer {
    fn start(seed: u64) -> Writer {
        let segment = Segment::create(&[CAPACITY_MIN]).unwrap();
        let handed = rustix::io::fcntl_dupfd_cloexec(segment.descriptor(), 100).unwrap();
        rustix::io::fcntl_setfd(&handed, FdFlags::empty()).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer", "--test-threads=1"])
            .env(WRITER, format!("{} {seed}", handed.as_fd().as_raw_fd()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let consumer = Consumer::new(Arc::new(segment.ring(0).unwrap()));
        Writer { child, seed, next: 0, reader: RecordReader::new(consumer, CAPACITY_MIN) }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Reads for a while and checks every record. Returns their number.
    fn read(&mut self, length: Duration, bell: &Bell) -> u64 {
        let until = Instant::now() + length;
        let (mut got, mut expected, before) = (Vec::new(), Vec::new(), self.next);
        let mut spin = Spin::never();
        // All that is there is read also when the time is over at once.
        loop {
            while let Some(tag) = self.reader.next(&mut got).unwrap() {
                assert_eq!(tag, Tag::default());
                payload(self.seed, self.next, &mut expected);
                assert!(got == expected, "record {} of writer {}", self.next, self.seed);
                self.next += 1;
            }
            if Instant::now() >= until {
                break;
            }
            self.reader.end().wait((&mut spin, bell), Some(until)).unwrap();
        }
        self.next - before
    }
}

#[test]
fn of_a_writer_that_is_killed_everything_published_arrives_and_nothing_else() {
    if std::env::var(WRITER).is_ok() {
        return;
    }
    let (mut state, mut records, bell) = (11, 0, Bell::default());
    for kill in 0..faults() {
        let mut writer = Writer::start(random(&mut state));
        // The first record shows that it runs.
        let started = Instant::now();
        while writer.next == 0 {
            writer.read(Duration::from_micros(200), &bell);
            assert!(started.elapsed() < Duration::from_secs(20), "writer {kill} writes nothing");
        }
        writer.read(Duration::from_micros(random(&mut state) % 1500), &bell);
        writer.signal(Signal::KILL);
        writer.child.wait().unwrap();
        writer.read(Duration::from_micros(100), &bell);
        let mut rest = Vec::new();
        assert_eq!(writer.reader.next(&mut rest), Ok(None), "it is dead, and was read to its end");
        records += writer.next;
    }
    assert!(records > faults() as u64);
}

#[test]
fn a_writer_that_is_stopped_delays_its_own_ring_alone() {
    if std::env::var(WRITER).is_ok() {
        return;
    }
    let bell = Bell::default();
    let (mut one, mut other) = (Writer::start(21), Writer::start(22));
    let mut state = 5;
    for _ in 0..faults() {
        one.signal(Signal::STOP);
        other.read(Duration::from_micros(random(&mut state) % 1000), &bell);
        one.signal(Signal::CONT);
        one.read(Duration::from_micros(random(&mut state) % 1000), &bell);
    }
    assert!(one.next > 0 && other.next > 0);
    for mut writer in [one, other] {
        writer.reader.end().finish(&bell);
        // It learns that nothing is read any more, and ends by itself.
        assert!(writer.child.wait().unwrap().success());
    }
}

#[test]
fn whatever_is_scribbled_over_a_ring_is_refused_and_no_more() {
    if std::env::var(WRITER).is_ok() {
        return;
    }
    let (mut state, mut refused) = (3, 0);
    for _ in 0..100 {
        let segment = Segment::create(&[CAPACITY_MIN]).unwrap();
        let scribbler = segment.descriptor().try_clone_to_owned().unwrap();
        let seed = random(&mut state);
        let vandal = std::thread::spawn(move || {
            let mut state = seed | 1;
            for _ in 0..200 {
                // These are the words of the header's first lines, and the first records.
                let at = random(&mut state) % if seed.is_multiple_of(2) { 900 } else { 8000 };
                let word = match random(&mut state) % 4 {
                    0 => random(&mut state),
                    1 => u64::MAX,
                    2 => random(&mut state) % 70_000,
                    _ => 0,
                };
                rustix::io::pwrite(&scribbler, &word.to_le_bytes(), at).unwrap();
            }
        });
        let ring = || Arc::new(segment.ring(0).unwrap());
        let mut records = Records::new(Producer::new(ring()));
        let mut reader = RecordReader::new(Consumer::new(ring()), CAPACITY_MIN);
        let (mut into, mut ends) = (Vec::new(), 0);
        for nth in 0..2000 {
            payload(seed, nth, &mut into);
            let (bell, until) = (Bell::default(), Some(Instant::now() + Duration::from_micros(10)));
            let wrote = records
                .push(Tag::default(), &into)
                .and_then(|_| records.end().wait_for_room(1, (&mut Spin::never(), &bell), until));
            let read = reader
                .next(&mut into)
                .and_then(|_| reader.end().wait((&mut Spin::never(), &bell), until));
            ends += u32::from(wrote.is_err()) + u32::from(read.is_err());
            if matches!(read, Err(Ended::Broken)) && wrote.is_err() {
                break;
            }
        }
        vandal.join().unwrap();
        refused += ends;
    }
    assert!(refused > 0, "nothing that was scribbled was seen");
}
