//! An inbox with many writers and one reader. Each writer has a lane, so that no writer waits for
//! the steps of another. A doorbell tells the reader which lanes to check.
//!
//! A lane is hot while the reader checks it by itself, and its writer touches no shared data but
//! its own ring. When the lane runs empty, the reader announces on it that it is cold. The writer
//! that publishes there next takes that back, sets the lane's bit at the doorbell and wakes the
//! reader if it sleeps. Each of these steps is an exchange of one word, as in [`crate::park`].

use crate::ends::{Consumer, Ended, Producer};
use crate::layout::Apart;
use crate::memory::Memory;
use crate::park::{Parking, Wait};
use crate::record::{RecordReader, Records, Tag, record_len};
use crate::sync::{AtomicU64, Ordering};
use std::ops::Deref;

/// Most lanes of one doorbell.
pub const LANES_MAX: usize = u64::BITS as usize;

/// Bytes that a lane may give before the next one has its turn.
const QUANTUM: usize = 64 << 10;

/// The data that the writers of an inbox and its reader share besides the lanes. A writer that
/// stores false values here delays others' records until the reader checks all lanes, which it does
/// before each sleep.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Doorbell {
    /// Lanes that are not cold any more.
    ready: Apart<AtomicU64>,
    pub(crate) reader: Apart<Parking>,
}

/// A writer's end of an inbox.
#[derive(Debug)]
pub struct Lane<M, D> {
    records: Records<M>,
    doorbell: D,
    bit: u64,
}

impl<M: Memory, D: Deref<Target = Doorbell>> Lane<M, D> {
    /// Creates lane number `index` of the inbox over the end of a new ring.
    ///
    /// # Panics
    /// Panics if there is no such lane.
    pub fn new(end: Producer<M>, doorbell: D, index: usize) -> Self {
        assert!(index < LANES_MAX);
        Self { records: Records::new(end), doorbell, bit: 1 << index }
    }

    /// Writes a record like [`Records::push`].
    ///
    /// # Errors
    /// Returns errors as [`Producer::free`] does.
    pub fn push(&mut self, tag: Tag, payload: &[u8]) -> Result<bool, Ended> {
        self.records.push(tag, payload)
    }

    /// Publishes the written records. Returns how to wake the reader, if it sleeps.
    #[must_use = "the reader may sleep"]
    pub fn publish(&mut self) -> Option<Wait> {
        self.records.end().publish()?;
        self.tell()
    }

    /// Publishes the written records and tells that there will be no more. Returns how to wake the
    /// reader, if it sleeps.
    #[must_use = "the reader may sleep"]
    pub fn close(&mut self) -> Option<Wait> {
        self.records.end().close()?;
        self.tell()
    }

    fn tell(&self) -> Option<Wait> {
        self.doorbell.ready.0.fetch_or(self.bit, Ordering::AcqRel);
        self.doorbell.reader.0.wake()
    }

    /// Returns the end for records, to wait for room.
    pub fn records(&mut self) -> &mut Records<M> {
        &mut self.records
    }

    /// Returns the doorbell.
    pub fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }
}

/// The result of [`Inbox::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A record.
    Record {
        /// Its lane.
        lane: usize,
        /// Its tag.
        tag: Tag,
    },
    /// A lane has ended, and is removed.
    Ended {
        /// Its number.
        lane: usize,
        /// The reason.
        why: Ended,
    },
}

/// The reader's end. Lanes take turns by bytes.
#[derive(Debug)]
pub struct Inbox<M, D> {
    doorbell: D,
    lanes: Vec<Option<RecordReader<M>>>,
    /// Lanes to check: a bit for each.
    hot: u64,
    /// The lane whose turn it is, and how many bytes it may still give.
    turn: usize,
    left: usize,
}

impl<M: Memory, D: Deref<Target = Doorbell>> Inbox<M, D> {
    /// Creates an inbox without lanes.
    pub fn new(doorbell: D) -> Self {
        Self { doorbell, lanes: Vec::new(), hot: 0, turn: 0, left: QUANTUM }
    }

    /// Adds a lane over the end of a new ring, with records whose payloads have up to `payload_max`
    /// bytes. Returns its number, or `None` if there are as many lanes as may be.
    pub fn add(&mut self, end: Consumer<M>, payload_max: usize) -> Option<usize> {
        let free = self.lanes.iter().position(Option::is_none);
        let lane = free.unwrap_or(self.lanes.len());
        if lane == LANES_MAX {
            return None;
        }
        if free.is_none() {
            self.lanes.push(None);
        }
        self.lanes[lane] = Some(RecordReader::new(end, payload_max));
        self.hot |= 1 << lane;
        Some(lane)
    }

    /// Reads the next record of any lane, its payload into `into`. Returns `None` if there is none
    /// in any lane; all lanes are cold then. The room of read records goes back to a lane's writer
    /// when its turn ends. `wake` gets the lane's memory if that writer sleeps.
    pub fn next(&mut self, into: &mut Vec<u8>, mut wake: impl FnMut(&M, Wait)) -> Option<Heard> {
        loop {
            if self.hot == 0 {
                self.hot = self.doorbell.ready.0.swap(0, Ordering::AcqRel) & self.all();
                if self.hot == 0 {
                    return None;
                }
            }
            self.turn_to_hot(&mut wake);
            let lane = self.turn;
            let Some(reader) = &mut self.lanes[lane] else {
                self.hot &= !(1 << lane);
                continue;
            };
            match reader.next(into) {
                Ok(Some(tag)) => {
                    let len = record_len(into.len());
                    self.left = self.left.saturating_sub(len);
                    return Some(Heard::Record { lane, tag });
                }
                Ok(None) => {
                    if let Some(how) = reader.end().release() {
                        wake(reader.end().memory(), how);
                    }
                    // The writer that publishes next sets the lane's bit. A lane whose writer has
                    // published meanwhile is checked again.
                    if matches!(reader.end().park(Wait::Futex), Ok(Some(_))) {
                        self.hot &= !(1 << lane);
                    }
                    self.left = 0;
                }
                Err(why) => {
                    if let Some(how) = reader.end().close() {
                        wake(reader.end().memory(), how);
                    }
                    self.lanes[lane] = None;
                    self.hot &= !(1 << lane);
                    return Some(Heard::Ended { lane, why });
                }
            }
        }
    }

    /// Goes on with the lane whose turn it is, or the next hot one.
    fn turn_to_hot(&mut self, wake: &mut impl FnMut(&M, Wait)) {
        if self.left > 0 && self.hot & (1 << self.turn) != 0 {
            return;
        }
        if let Some(Some(reader)) = self.lanes.get_mut(self.turn)
            && let Some(how) = reader.end().release()
        {
            wake(reader.end().memory(), how);
        }
        // It takes bits above the current lane, and then from the lowest on.
        let above = self.hot & (u64::MAX << self.turn << 1);
        let from = if above != 0 { above } else { self.hot };
        self.turn = from.trailing_zeros() as usize;
        self.left = QUANTUM;
    }

    fn all(&self) -> u64 {
        match self.lanes.len() {
            LANES_MAX => u64::MAX,
            count => (1 << count) - 1,
        }
    }

    /// Announces that the reader is about to sleep, after [`Inbox::next`] has found nothing.
    /// Returns the futex word, or `None` if there is something by now.
    pub fn park(&mut self, how: Wait) -> Option<u32> {
        let sequence = self.doorbell.reader.0.announce(how);
        if self.is_told() || self.is_any_behind() {
            self.doorbell.reader.0.cancel();
            return None;
        }
        Some(sequence)
    }

    /// Returns whether a cold lane is cold no more, by the doorbell.
    pub(crate) fn is_told(&self) -> bool {
        self.doorbell.ready.0.load(Ordering::Acquire) & self.all() != 0
    }

    /// Checks every lane, whatever the doorbell says.
    fn is_any_behind(&mut self) -> bool {
        for (lane, reader) in self.lanes.iter_mut().enumerate() {
            if let Some(reader) = reader
                && reader.end().available(1) != Ok(0)
            {
                self.hot |= 1 << lane;
            }
        }
        self.hot != 0
    }

    /// Notes that it is awake, whatever has woken it.
    pub fn unpark(&mut self) {
        self.doorbell.reader.0.cancel();
    }

    /// Returns the doorbell.
    pub fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }
}
