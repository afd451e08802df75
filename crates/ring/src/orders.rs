//! Tests the possible orders of the ends' steps, up to a number of preemptions, with loom: `make
//! loom`.

use crate::layout::Header;
use crate::memory::Memory;
use crate::{Consumer, Doorbell, Ended, Heard, Inbox, Lane, Producer, Tag, Wait};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Notify};
use loom::thread;

/// Returns the model. The number of preemptions bounds a run; more take minutes.
fn model() -> loom::model::Builder {
    let depth = std::env::var("KEYWAY_LOOM_DEPTH").ok().and_then(|text| text.parse().ok());
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(depth.unwrap_or(1));
    model
}

/// The places where the two ends sleep, with the kernel's semantics: a wake-up that comes before
/// the sleep ends it.
#[derive(Clone)]
struct Beds {
    reader: Arc<Notify>,
    writer: Arc<Notify>,
}

/// Memory whose every use loom checks: reading a byte during its write fails the test.
struct Watched {
    header: Header,
    bytes: Vec<UnsafeCell<u8>>,
}

// SAFETY: loom refuses every use that is out of order.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

// SAFETY: indices are taken modulo the capacity, and loom checks the rest.
unsafe impl Memory for Shared {
    fn header(&self) -> &Header {
        &self.0.header
    }

    fn capacity(&self) -> usize {
        self.0.bytes.len()
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            let cell = &self.0.bytes[(at + index) % self.0.bytes.len()];
            // SAFETY: loom fails the test if another thread uses it.
            cell.with_mut(|place| unsafe { *place = *byte });
        }
    }

    fn copy_out(&self, at: usize, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            let cell = &self.0.bytes[(at + index) % self.0.bytes.len()];
            // SAFETY: as above.
            *byte = cell.with(|place| unsafe { *place });
        }
    }
}

#[derive(Clone)]
struct Shared(Arc<Watched>);

fn ring(capacity: usize) -> (Producer<Shared>, Consumer<Shared>, Beds) {
    let bytes = (0..capacity).map(|_| UnsafeCell::new(0)).collect();
    let shared = Shared(Arc::new(Watched { header: Header::default(), bytes }));
    let beds = Beds { reader: Arc::new(Notify::new()), writer: Arc::new(Notify::new()) };
    (Producer::new(shared.clone()), Consumer::new(shared), beds)
}

fn wake(bed: &Notify, how: Option<Wait>) {
    if how.is_some() {
        bed.notify();
    }
}

fn write_all(producer: &mut Producer<Shared>, beds: &Beds, mut bytes: &[u8]) -> Result<(), Ended> {
    while !bytes.is_empty() {
        let len = producer.write(bytes)?;
        bytes = &bytes[len..];
        wake(&beds.reader, producer.publish());
        if !bytes.is_empty() && producer.park(Wait::Futex, 1)?.is_some() {
            beds.writer.wait();
            producer.unpark();
        }
    }
    Ok(())
}

fn read_all(consumer: &mut Consumer<Shared>, beds: &Beds) -> Vec<u8> {
    let mut got = Vec::new();
    loop {
        let mut some = [0; 2];
        match consumer.read(&mut some) {
            Ok(0) => {}
            Ok(len) => {
                got.extend_from_slice(&some[..len]);
                wake(&beds.writer, consumer.release());
                continue;
            }
            Err(ended) => {
                assert_eq!(ended, Ended::Closed);
                return got;
            }
        }
        if let Ok(Some(_)) = consumer.park(Wait::Futex) {
            beds.reader.wait();
            consumer.unpark();
        }
    }
}

#[test]
fn what_is_written_is_read_in_order_and_nobody_sleeps_for_ever() {
    model().check(|| {
        let (mut producer, mut consumer, beds) = ring(2);
        let own = beds.clone();
        let writer = thread::spawn(move || {
            write_all(&mut producer, &own, &[1, 2, 3]).unwrap();
            wake(&own.reader, producer.close());
        });
        assert_eq!(read_all(&mut consumer, &beds), [1, 2, 3]);
        writer.join().unwrap();
    });
}

#[test]
fn a_writer_that_waits_for_room_hears_of_the_readers_end() {
    model().check(|| {
        let (mut producer, mut consumer, beds) = ring(2);
        let own = beds.clone();
        let writer = thread::spawn(move || write_all(&mut producer, &own, &[1, 2, 3, 4]));
        let mut some = [0; 1];
        let _ = consumer.read(&mut some);
        wake(&beds.writer, consumer.release());
        wake(&beds.writer, consumer.close());
        let _ = writer.join().unwrap();
    });
}

#[test]
fn a_reader_that_waits_hears_of_the_writers_end() {
    model().check(|| {
        let (mut producer, mut consumer, beds) = ring(2);
        let own = beds.clone();
        let writer = thread::spawn(move || {
            wake(&own.reader, producer.close());
        });
        assert_eq!(read_all(&mut consumer, &beds), []);
        writer.join().unwrap();
    });
}

#[test]
fn records_of_two_writers_arrive_and_nobody_sleeps_for_ever() {
    model().check(|| {
        let doorbell = Arc::new(Doorbell::default());
        let bed = Arc::new(Notify::new());
        let mut inbox = Inbox::new(Arc::clone(&doorbell));
        let writers: Vec<_> = (0..2)
            .map(|index| {
                let (producer, consumer, _) = ring(16);
                assert_eq!(inbox.add(consumer, 8), Some(index));
                let mut lane = Lane::new(producer, Arc::clone(&doorbell), index);
                let bed = Arc::clone(&bed);
                thread::spawn(move || {
                    assert_eq!(lane.push(Tag::default(), &[index as u8]), Ok(true));
                    wake(&bed, lane.publish());
                    wake(&bed, lane.close());
                })
            })
            .collect();
        let (mut into, mut got, mut ended) = (Vec::new(), Vec::new(), 0);
        while ended < 2 {
            match inbox.next(&mut into, |_, _| ()) {
                Some(Heard::Record { lane, .. }) => {
                    assert_eq!(into, [lane as u8]);
                    got.push(lane);
                }
                Some(Heard::Ended { why, .. }) => {
                    assert_eq!(why, Ended::Closed);
                    ended += 1;
                }
                None => {
                    if inbox.park(Wait::Futex).is_some() {
                        bed.wait();
                        inbox.unpark();
                    }
                }
            }
        }
        got.sort_unstable();
        assert_eq!(got, [0, 1]);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}
