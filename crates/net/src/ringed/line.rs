//! A connection that is, was to be or may yet become one through shared memory.

use super::looking::{After, Looking, Lucks};
use super::terms::Door;
use crate::Token;
use keyway_base::Time;
use keyway_ring::{Bell, Consumer, Ended, HELLO_LEN, Hello, Mapping, Producer, Shared, Wait};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::sync::Arc;

/// Rings that are looked at in every poll; looking at more takes longer than it saves.
const HOT_MAX: usize = 64;

/// One connection.
pub(super) struct Line {
    /// The worker's name for it.
    pub(super) token: Token,
    /// Tells it from those that had its number before.
    pub(super) generation: u32,
    /// What the two ring at, and hear of each other's end by.
    pub(super) socket: Arc<OwnedFd>,
    pub(super) stage: Stage,
    /// What it came in by; `None` for one that was asked for here.
    pub(super) door: Option<Arc<Door>>,
    /// The other side has not kept to the rules.
    pub(super) is_broken: bool,
}

pub(super) enum Stage {
    /// What has come so far may be the beginning of a hello.
    Greeting { said: [u8; HELLO_LEN], len: usize },
    /// It speaks over the socket. What came while that was not known is still to be handed on.
    Plain { said: [u8; HELLO_LEN], len: usize },
    /// A hello was said, and is not answered yet.
    Asking(Hello),
    /// It speaks through rings.
    Open(Rings),
}

/// What came of a connection's first bytes.
pub(super) enum Greeted {
    Open,
    Plain,
    Waiting,
    Ended,
    Failed,
}

impl Line {
    /// A whole hello, or what looks like one of another version.
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

/// How the worker hears of bytes that come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// It was told, and reads until there are no more.
    Told,
    /// The ring is looked at in each poll.
    Hot,
    /// The other side rings.
    Parked,
}

/// Both rings of a connection.
pub(super) struct Rings {
    producer: Producer<Mapping>,
    consumer: Consumer<Mapping>,
    bell: Bell,
    pub(super) reading: Reading,
    /// Since when it waits for bytes.
    pub(super) since: Time,
    pub(super) luck: Lucks,
    /// It was written to while the worker was reading, and what comes next may be the answer.
    has_asked: bool,
    /// Whether the worker waits for room, and the other side is to ring.
    is_full: bool,
    /// The other process is gone, and so many bytes of what it had said are still to be read.
    left: Option<usize>,
    /// When it was last used.
    pub(super) used: Time,
    /// Whether it is to be looked at whether it rests.
    pub(super) is_cooling: bool,
}

impl Rings {
    /// Of a connection over `socket`.
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

    /// Takes what the other side has rung; whether it is still there.
    pub(super) fn hear(&self) -> bool {
        self.bell.hear()
    }

    /// Whether the other process is gone.
    pub(super) fn is_left(&self) -> bool {
        self.left.is_some()
    }

    /// Reads into `buf`; 0 when there is nothing now. Ended as well when the other process is gone
    /// and all was read.
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
            // What is not there in spite of the other's word never comes.
            *left = if len == 0 { 0 } else { *left - len };
        }
        Ok(len)
    }

    /// Whether reading would bring anything: bytes, or that there are no more.
    pub(super) fn has_news(&mut self) -> bool {
        self.consumer.available(1) != Ok(0)
    }

    /// Has the other side ring when bytes come; `false` when some have come by now.
    pub(super) fn park(&mut self) -> bool {
        let is_parked = matches!(self.consumer.park(Wait::Descriptor), Ok(Some(_)));
        self.reading = if is_parked { Reading::Parked } else { Reading::Told };
        is_parked
    }

    /// The worker reads from here on, however it heard that it should.
    pub(super) fn stop_waiting(&mut self) {
        if self.reading == Reading::Parked {
            self.consumer.unpark();
        }
        self.reading = Reading::Told;
    }

    /// The worker reads, told or not.
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

    /// Sees to it that the worker is told of bytes that come; `false` when some have come by now.
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

    /// Something was written: from here on the other side may answer, and not before. `false` when
    /// something has come by now that the worker is to be told of.
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

    /// Writes what there is room for. For less than all the other side rings when there is more.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<usize, Ended> {
        if self.is_left() {
            // As with a socket: what is said to one who has gone is lost, and reading tells it.
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

    /// The other side has rung: whether there is something to be read, and whether there is room
    /// that the worker waits for. It may ring for nothing.
    pub(super) fn on_bell(&mut self) -> (bool, bool) {
        let mut is_readable = false;
        if self.reading == Reading::Parked {
            self.stop_waiting();
            is_readable = self.has_news() || !self.park();
        }
        let mut is_writable = false;
        if self.is_full {
            self.producer.unpark();
            // None when there is room, and an error is for sending to tell.
            is_writable = !matches!(self.producer.park(Wait::Descriptor, 1), Ok(Some(_)));
            self.is_full = !is_writable;
        }
        (is_readable, is_writable)
    }

    /// The other process is gone. What it had said by now is still read; whether the worker waits
    /// for room, which is of no use any more.
    pub(super) fn leave(&mut self) -> bool {
        if self.left.is_none() {
            self.left = Some(self.consumer.available(usize::MAX).unwrap_or(0));
        }
        self.stop_waiting();
        std::mem::take(&mut self.is_full)
    }

    /// Gives back the memory of what was written, unless the other side has yet to read some of it.
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
