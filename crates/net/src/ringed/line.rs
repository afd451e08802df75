//! A connection that uses shared memory, or may still do so.

use super::looking::{After, Looking, Lucks};
use super::terms::Door;
use crate::Token;
use keyway_base::Time;
use keyway_ring::{Bell, Consumer, Ended, HELLO_LEN, Hello, Mapping, Producer, Shared, Wait};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::sync::Arc;

/// Most rings that are polled in every poll. Polling more takes longer than it saves.
const HOT_MAX: usize = 64;

/// One connection.
pub(super) struct Line {
    /// The worker's token for it.
    pub(super) token: Token,
    /// Distinguishes it from earlier lines with the same number.
    pub(super) generation: u32,
    /// The socket by which both sides wake each other and notice each other's end.
    pub(super) socket: Arc<OwnedFd>,
    pub(super) stage: Stage,
    /// The settings of its listener; `None` for a connection that was made from here.
    pub(super) door: Option<Arc<Door>>,
    /// True if the other side has violated the rules.
    pub(super) is_broken: bool,
}

pub(super) enum Stage {
    /// The bytes so far may be the beginning of a hello.
    Greeting { said: [u8; HELLO_LEN], len: usize },
    /// It uses the socket. Bytes that came before this was known are still to be passed on.
    Plain { said: [u8; HELLO_LEN], len: usize },
    /// A hello was sent, and is not answered yet.
    Asking(Hello),
    /// It uses rings.
    Open(Rings),
}

/// The result of a connection's first bytes.
pub(super) enum Greeted {
    Open,
    Plain,
    Waiting,
    Ended,
    Failed,
}

impl Line {
    /// Reads a whole hello, or one that looks like another version's.
    pub(super) fn hear_hello(&mut self) -> Result<[u8; HELLO_LEN], Greeted> {
        loop {
            let Stage::Greeting { said, len } = &mut self.stage else {
                return Err(Greeted::Plain);
            };
            match rustix::net::recv(&self.socket, &mut said[*len..], RecvFlags::empty()) {
                Ok((0, _)) => return Err(Greeted::Ended),
                Ok((got, _)) => *len += got,
                Err(Errno::AGAIN | Errno::INTR) => return Err(Greeted::Waiting),
                Err(_) => return Err(Greeted::Failed),
            }
            let (said, len) = (*said, *len);
            if !Hello::may_begin(&said[..len]) {
                self.stage = Stage::Plain { said, len };
                return Err(Greeted::Plain);
            }
            if len == HELLO_LEN {
                self.stage = Stage::Greeting { said: [0; HELLO_LEN], len: 0 };
                return Ok(said);
            }
        }
    }
}

/// How the worker learns of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// It was told, and reads until there are no more.
    Told,
    /// The ring is polled in each poll.
    Hot,
    /// The other side wakes this one.
    Parked,
}

/// Both rings of a connection.
pub(super) struct Rings {
    producer: Producer<Mapping>,
    consumer: Consumer<Mapping>,
    bell: Bell,
    pub(super) reading: Reading,
    /// Time since which it waits for bytes.
    pub(super) since: Time,
    pub(super) luck: Lucks,
    /// True if it was written to while the worker was reading, so that the next bytes may be the
    /// answer.
    has_asked: bool,
    /// True if the worker waits for room, and the other side is to wake it.
    is_full: bool,
    /// Set when the other process is gone: the number of its bytes that are still to be read.
    left: Option<usize>,
    /// Time of its last use.
    pub(super) used: Time,
    /// True if it is listed for a check whether it is at rest.
    pub(super) is_cooling: bool,
}

impl Rings {
    /// Creates the rings of a connection over `socket`.
    pub(super) fn new(shared: Shared, socket: &Arc<OwnedFd>, now: Time) -> Rings {
        Rings {
            producer: Producer::new(shared.out),
            consumer: Consumer::new(shared.back),
            bell: Bell::new(Arc::clone(socket)),
            reading: Reading::Told,
            since: now,
            luck: Lucks::default(),
            has_asked: false,
            is_full: false,
            left: None,
            used: now,
            is_cooling: false,
        }
    }

    /// Reads the wake-ups of the other side. Returns whether it is still there.
    pub(super) fn hear(&self) -> bool {
        self.bell.hear()
    }

    /// Returns whether the other process is gone.
    pub(super) fn is_left(&self) -> bool {
        self.left.is_some()
    }

    /// Reads into `buf`. Returns 0 if there is nothing now, and an error also when the other
    /// process is gone and all was read.
    pub(super) fn take(&mut self, buf: &mut [u8]) -> Result<usize, Ended> {
        let len = match self.left {
            None => self.consumer.read(buf)?,
            Some(0) => return Err(Ended::Closed),
            Some(left) => {
                let len = left.min(buf.len());
                self.consumer.read(&mut buf[..len])?
            }
        };
        if len > 0 {
            self.consumer.give_back(&self.bell);
        }
        if let Some(left) = &mut self.left {
            // Bytes that are missing although the other side announced them never come.
            *left = if len == 0 { 0 } else { *left - len };
        }
        Ok(len)
    }

    /// Returns whether a read would return anything: bytes, or the end.
    pub(super) fn has_news(&mut self) -> bool {
        self.consumer.available(1) != Ok(0)
    }

    /// Makes the other side wake this one when bytes come. Returns `false` if some have come by
    /// now.
    pub(super) fn park(&mut self) -> bool {
        let is_parked = matches!(self.consumer.park(Wait::Descriptor), Ok(Some(_)));
        self.reading = if is_parked { Reading::Parked } else { Reading::Told };
        is_parked
    }

    /// Notes that the worker reads from now on, however it learnt that it should.
    pub(super) fn stop_waiting(&mut self) {
        if self.reading == Reading::Parked {
            self.consumer.unpark();
        }
        self.reading = Reading::Told;
    }

    /// Notes that the worker reads, whether it was told or not.
    pub(super) fn stop_being_told(&mut self, number: i32, hot: &mut Vec<i32>) {
        match self.reading {
            Reading::Told => {}
            Reading::Hot => {
                hot.retain(|&hot| hot != number);
                self.reading = Reading::Told;
            }
            Reading::Parked => self.stop_waiting(),
        }
    }

    /// Makes sure that the worker is told of bytes that come. Returns `false` if some have come by
    /// now.
    pub(super) fn wait_for_bytes(
        &mut self,
        (number, now): (i32, Time),
        looking: &Looking,
        hot: &mut Vec<i32>,
    ) -> bool {
        let after = match std::mem::take(&mut self.has_asked) {
            true => After::Writing,
            false => After::Reading,
        };
        self.since = now;
        if looking.is_off() || hot.len() >= HOT_MAX || !self.luck.is_good(after) {
            return self.park();
        }
        self.reading = Reading::Hot;
        hot.push(number);
        true
    }

    /// Notes that bytes were written: from now on the other side may answer. Returns `false` if
    /// bytes have come by now that the worker is to be told of.
    pub(super) fn wait_for_answer(
        &mut self,
        (number, now): (i32, Time),
        looking: &Looking,
        hot: &mut Vec<i32>,
    ) -> bool {
        if looking.is_off() || self.is_left() {
            return true;
        }
        match self.reading {
            Reading::Told => self.has_asked = true,
            Reading::Hot if self.luck.after() == After::Writing => self.since = now,
            Reading::Hot if self.luck.is_good(After::Writing) => self.since = now,
            Reading::Hot => {
                hot.retain(|&hot| hot != number);
                return self.park();
            }
            Reading::Parked if hot.len() < HOT_MAX && self.luck.is_good(After::Writing) => {
                self.consumer.unpark();
                (self.reading, self.since) = (Reading::Hot, now);
                hot.push(number);
            }
            Reading::Parked => {}
        }
        true
    }

    /// Writes as much as there is room for. If not all fits, the other side wakes this one when
    /// there is more room.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<usize, Ended> {
        if self.is_left() {
            // As with a socket, bytes for a peer that is gone are lost, and reading reports its
            // end.
            return Ok(bytes.len());
        }
        if std::mem::take(&mut self.is_full) {
            self.producer.unpark();
        }
        let mut taken = 0;
        loop {
            taken += self.producer.write(&bytes[taken..])?;
            self.producer.flush(&self.bell);
            if taken == bytes.len() {
                return Ok(taken);
            }
            if self.producer.park(Wait::Descriptor, 1)?.is_some() {
                self.is_full = true;
                return Ok(taken);
            }
        }
    }

    /// Handles a wake-up. Returns whether there is something to read, and whether there is the room
    /// that the worker waits for. A wake-up may come for nothing.
    pub(super) fn on_bell(&mut self) -> (bool, bool) {
        let mut is_readable = false;
        if self.reading == Reading::Parked {
            self.stop_waiting();
            is_readable = self.has_news() || !self.park();
        }
        let mut is_writable = false;
        if self.is_full {
            self.producer.unpark();
            // It is `None` if there is room. An error is reported by sending.
            is_writable = !matches!(self.producer.park(Wait::Descriptor, 1), Ok(Some(_)));
            self.is_full = !is_writable;
        }
        (is_readable, is_writable)
    }

    /// Notes that the other process is gone. What it had written by now can still be read. Returns
    /// whether the worker waits for room, which is of no use any more.
    pub(super) fn leave(&mut self) -> bool {
        if self.left.is_none() {
            self.left = Some(self.consumer.available(usize::MAX).unwrap_or(0));
        }
        self.stop_waiting();
        std::mem::take(&mut self.is_full)
    }

    /// Frees the memory of written bytes, unless the other side has yet to read some of them.
    pub(super) fn discard(&mut self) -> bool {
        self.producer.discard()
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        self.producer.finish(&self.bell);
        self.consumer.finish(&self.bell);
    }
}
