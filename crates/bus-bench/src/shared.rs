//! Messages as records in shared memory.

use crate::ends::{Account, Order, Receiving, Sending};
use crate::run::Fault;
use keyway_ring::{
    Bell, Consumer, Ended, Heard, Inbox, Lane, Mapping, Producer, RecordReader, Records, Segment,
    SharedDoorbell, Spin, Tag, record_len,
};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What is written is told after so many bytes, as a process does at the end of a turn.
const BATCH_LEN: usize = 16 << 10;

/// The room of what was read is given back after this part of a ring.
const GIVEN_BACK: usize = 4;

/// How long is looked before it is slept.
pub const SPIN: Duration = Duration::from_micros(50);

const FULL: Fault = Fault::Wrong("the receiver makes no room");

/// Memory of rings in the process that has made it.
fn descriptor(place: &Path) -> Result<rustix::fd::OwnedFd, Fault> {
    Ok(File::options().read(true).write(true).open(place)?.into())
}

fn ring(order: &Order, nth: usize) -> Result<Arc<Mapping>, Fault> {
    let segment = Segment::open(descriptor(&order.places[nth])?, &[order.ring_len])?;
    Ok(Arc::new(segment.ring(0)?))
}

/// The doorbell's place is behind those of the rings.
fn doorbell(order: &Order) -> Result<SharedDoorbell, Fault> {
    Ok(SharedDoorbell::open(descriptor(&order.places[order.case.senders])?)?)
}

pub fn send(order: &Order, sender: usize, spin: Spin) -> Result<Account, Fault> {
    let producer = Producer::new(ring(order, sender)?);
    match order.case.senders {
        1 => send_records(order, Records::new(producer), spin),
        _ => send_in_lane(order, sender, Lane::new(producer, doorbell(order)?, sender)),
    }
}

fn send_records(
    order: &Order,
    mut records: Records<Arc<Mapping>>,
    mut spin: Spin,
) -> Result<Account, Fault> {
    let bell = Bell::default();
    let mut sending = Sending::new(order, 0);
    let until = Some(sending.until());
    loop {
        let message = sending.source.fill();
        while !records.push(Tag::default(), message)? {
            let room = record_len(message.len());
            if !records.end().wait_for_room(room, (&mut spin, &bell), until)? {
                return Err(FULL);
            }
        }
        if records.end().unpublished() >= BATCH_LEN {
            records.end().flush(&bell);
        }
        let len = message.len();
        if !sending.sent(len) {
            records.end().finish(&bell);
            return Ok(sending.account());
        }
    }
}

fn send_in_lane(
    order: &Order,
    sender: usize,
    mut lane: Lane<Arc<Mapping>, SharedDoorbell>,
) -> Result<Account, Fault> {
    let (mut spin, bell) = (Spin::never(), Bell::default());
    let mut sending = Sending::new(order, sender);
    let until = Some(sending.until());
    loop {
        let message = sending.source.fill();
        while !lane.push(Tag::default(), message)? {
            let room = record_len(message.len());
            if !lane.wait_for_room(room, (&mut spin, &bell), until)? {
                return Err(FULL);
            }
        }
        if lane.records().end().unpublished() >= BATCH_LEN {
            lane.flush(&bell);
        }
        let len = message.len();
        if !sending.sent(len) {
            lane.finish(&bell);
            return Ok(sending.account());
        }
    }
}

pub fn receive(order: &Order, spin: Spin) -> Result<Account, Fault> {
    match order.case.senders {
        1 => receive_records(order, spin),
        _ => receive_from_lanes(order, spin),
    }
}

fn receive_records(order: &Order, mut spin: Spin) -> Result<Account, Fault> {
    let mut reader = RecordReader::new(Consumer::new(ring(order, 0)?), order.case.sizes.max);
    let bell = Bell::default();
    let (mut receiving, mut message) = (Receiving::new(order), Vec::new());
    loop {
        match reader.next(&mut message) {
            Ok(Some(_)) => {
                receiving.received(0, &message);
                if reader.end().unreleased() >= order.ring_len / GIVEN_BACK {
                    reader.end().give_back(&bell);
                }
            }
            Ok(None) => {
                // That it has ended is seen by the next look.
                let _ = reader.end().wait((&mut spin, &bell), None);
            }
            Err(Ended::Closed) => return Ok(receiving.account()),
            Err(why) => return Err(why.into()),
        }
    }
}

fn receive_from_lanes(order: &Order, mut spin: Spin) -> Result<Account, Fault> {
    let mut inbox = Inbox::new(doorbell(order)?);
    for sender in 0..order.case.senders {
        inbox.add(Consumer::new(ring(order, sender)?), order.case.sizes.max);
    }
    let bell = Bell::default();
    let (mut receiving, mut message) = (Receiving::new(order), Vec::new());
    let mut left = order.case.senders;
    while left > 0 {
        match inbox.next(&mut message, |ring, how| bell.wake_writer(ring, how)) {
            Some(Heard::Record { lane, .. }) => receiving.received(lane, &message),
            Some(Heard::Ended { why: Ended::Closed, .. }) => left -= 1,
            Some(Heard::Ended { why, .. }) => return Err(why.into()),
            None => {
                inbox.wait(&mut spin, None);
            }
        }
    }
    Ok(receiving.account())
}
