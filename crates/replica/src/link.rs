//! One link, from the first byte to the last.

use crate::fault::{Cause, Stage};
use crate::settings::FollowerSettings;
use crate::status::{Board, State};
use crate::target::{Origin, Position, Remains, Target};
use crate::unit::{UnitStep, Units};
use crate::wake::Wake;
use crate::wire::{Wire, Woken};
use keyway_rdb::replication::{
    Body, HandshakeEvent, HandshakeStep, ReplicaHandshake, ReplicationId, Transfer, TransferStep,
};
use keyway_rdb::{Event, Feed, FeedError};
use keyway_resp::{parse_integer, reply};
use std::time::{Duration, Instant};

/// Bytes by which an incomplete unit grows before the target is told again.
const PENDING_LEN: usize = 256 << 10;

/// How often the offset is acknowledged, and a primary that sends its snapshot
/// told that the replica is alive. Primaries and `WAIT` count on once a second.
const ACK_EVERY: Duration = Duration::from_secs(1);

/// How often a follower that is not counted says that it is alive. A primary closes the connection of one
/// that says nothing for its `repl-timeout`, which is 60 s by default.
const SIGN_EVERY: Duration = Duration::from_secs(20);

/// Units between two looks at the clock.
const UNITS_PER_LOOK: u32 = 64;

/// Why a link ended.
pub(crate) enum Ended {
    /// The follower stops.
    Stop,
    /// Something is wrong.
    Fault(Stage, Cause),
}

/// What a handshake came to.
enum Answer {
    /// The stream goes on from here, under another id if there is one.
    Continue(Position, Option<ReplicationId>),
    /// A snapshot comes.
    Full(Origin, Transfer),
}

/// What a link works on; all of it outlives the link.
pub(crate) struct Link<'a> {
    pub(crate) settings: &'a FollowerSettings,
    pub(crate) wake: &'a Wake,
    pub(crate) board: &'a Board,
    pub(crate) target: &'a mut dyn Target,
    /// The position of the target's data; `None` without such data.
    pub(crate) position: &'a mut Option<Position>,
    /// When the stream began, if it did.
    pub(crate) online_since: &'a mut Option<Instant>,
}

impl Link<'_> {
    /// Follows until something ends it.
    pub(crate) fn run(&mut self, wire: &mut Wire) -> Ended {
        match self.follow(wire) {
            Ok(()) => Ended::Stop,
            Err(ended) => ended,
        }
    }

    /// `Ok` where the follower stops.
    fn follow(&mut self, wire: &mut Wire) -> Result<(), Ended> {
        self.board.set_state(State::Handshake);
        let (position, after_snapshot) = match self.handshake(wire)? {
            Answer::Full(origin, transfer) => (self.snapshot(wire, &origin, transfer)?, true),
            Answer::Continue(position, id) => (self.renamed(id, position), false),
        };
        self.set_position(Some(position));
        self.board.online(after_snapshot);
        *self.online_since = Some(self.wake.now());
        self.stream(wire, position)
    }

    fn set_position(&mut self, position: Option<Position>) {
        *self.position = position;
        self.board.position(position);
    }

    fn handshake(&mut self, wire: &mut Wire) -> Result<Answer, Ended> {
        let fault = |cause| Ended::Fault(Stage::Handshake, cause);
        // A server that has answered once has taken over.
        let hands_over = self.settings.hands_over && self.board.is_first();
        let settings = self.settings.handshake(*self.position, hands_over);
        let mut handshake = ReplicaHandshake::new(settings);
        let (mut out, mut full) = (Vec::new(), None);
        let unasked = || fault(Cause::Unasked);
        loop {
            out.clear();
            handshake.take_output(&mut out);
            wire.send(&out).map_err(fault)?;
            let step = handshake.read(wire.input());
            match step.map_err(|wrong| fault(Cause::Handshake(wrong)))? {
                HandshakeStep::More { consumed } => {
                    wire.consume(consumed);
                    out.clear();
                    handshake.take_output(&mut out);
                    wire.send(&out).map_err(fault)?;
                    self.await_answer(wire)?;
                }
                HandshakeStep::Event { consumed, event } => {
                    wire.consume(consumed);
                    match event {
                        HandshakeEvent::Alive => {}
                        HandshakeEvent::Continue { id, .. } => {
                            let position = self.position.ok_or_else(unasked)?;
                            return Ok(Answer::Continue(position, id));
                        }
                        HandshakeEvent::Full { id, offset } => full = Some((id, offset)),
                        HandshakeEvent::Snapshot(transfer) => {
                            let len = match transfer.body() {
                                Body::Length(len) => Some(len),
                                Body::Mark(_) => None,
                            };
                            let (id, offset) = full.ok_or_else(unasked)?;
                            return Ok(Answer::Full(Origin { id, offset, len }, transfer));
                        }
                    }
                }
            }
        }
    }

    /// Waits for an answer of the handshake. That of TLS lies in front of it, and
    /// a server that does not know TLS may just wait for more.
    fn await_answer(&mut self, wire: &mut Wire) -> Result<(), Ended> {
        let FollowerSettings { connect_timeout, timeout, .. } = *self.settings;
        let secures = wire.is_securing();
        let patience = if secures { connect_timeout } else { timeout };
        let until = self.wake.now() + patience;
        let woken = wire.wait(self.wake, until);
        match woken.map_err(|cause| Ended::Fault(Stage::Handshake, cause))? {
            Woken::Input => self.board.heard(self.wake.now()),
            Woken::Stop => return Err(Ended::Stop),
            // The answer itself has more time.
            Woken::Late if secures && !wire.is_securing() => {}
            Woken::Late => {
                let cause = match secures {
                    true => Cause::TlsTimeout(connect_timeout),
                    false => Cause::Timeout(timeout),
                };
                return Err(Ended::Fault(Stage::Handshake, cause));
            }
        }
        Ok(())
    }

    /// The primary's history may have another id from here on.
    fn renamed(&mut self, id: Option<ReplicationId>, before: Position) -> Position {
        let Some(id) = id else { return before };
        let position = Position { id, ..before };
        self.target.renamed(before.id, position);
        position
    }

    /// Takes a snapshot; the position behind it.
    fn snapshot(
        &mut self,
        wire: &mut Wire,
        origin: &Origin,
        transfer: Transfer,
    ) -> Result<Position, Ended> {
        let refused = |error| Ended::Fault(Stage::Snapshot, Cause::Target(error));
        self.target.begin_snapshot(origin).map_err(refused)?;
        let before = *self.position;
        self.set_position(None);
        self.board.transfer(origin.len);
        let taken = self.transfer(wire, transfer).and_then(|database| {
            let position = Position { id: origin.id, offset: origin.offset, database };
            self.target.end_snapshot(position).map_err(refused)?;
            Ok(position)
        });
        if taken.is_err() && self.target.abort_snapshot() == Remains::Before {
            self.set_position(before);
        }
        taken
    }

    /// Feeds the snapshot to the target; the database that the stream begins in,
    /// if the snapshot names one.
    fn transfer(&mut self, wire: &mut Wire, mut transfer: Transfer) -> Result<Option<u64>, Ended> {
        let fault = |cause| Ended::Fault(Stage::Snapshot, cause);
        let mut feed = Feed::new(self.settings.snapshot_limits);
        let mut database = None;
        let mut quiet_since = self.wake.now();
        let mut next_sign = quiet_since + ACK_EVERY;
        loop {
            match transfer.read(wire.input()) {
                TransferStep::Data { len } => {
                    let target = &mut *self.target;
                    let bytes = &wire.input()[..len];
                    let fed = feed.feed(bytes, &mut |event| {
                        if let Event::Aux { name: b"repl-stream-db", value } = event {
                            let number = parse_integer(value).unwrap_or(-1);
                            database = u64::try_from(number).ok();
                        }
                        target.take(event)
                    });
                    match fed {
                        Ok(fed) if fed == len => {}
                        Ok(_) => return Err(fault(Cause::SnapshotTail)),
                        Err(FeedError::Fault(wrong)) => return Err(fault(Cause::Snapshot(wrong))),
                        Err(FeedError::Visitor(error)) => return Err(fault(Cause::Target(error))),
                    }
                    wire.consume(len);
                    self.board.received(transfer.received());
                    quiet_since = self.wake.now();
                }
                TransferStep::End { consumed } => {
                    wire.consume(consumed);
                    feed.finish().map_err(|wrong| fault(Cause::Snapshot(wrong)))?;
                    return Ok(database);
                }
                TransferStep::More { .. } => {
                    let silent = quiet_since + self.settings.timeout;
                    match wire.wait(self.wake, silent.min(next_sign)).map_err(fault)? {
                        Woken::Input => {
                            quiet_since = self.wake.now();
                            self.board.heard(quiet_since);
                        }
                        Woken::Stop => return Err(Ended::Stop),
                        Woken::Late if self.wake.now() >= silent => {
                            return Err(fault(Cause::Timeout(self.settings.timeout)));
                        }
                        Woken::Late => {}
                    }
                }
            }
            if self.wake.now() >= next_sign {
                // The primary takes an empty line for a sign of life.
                wire.try_send(b"\n").map_err(fault)?;
                next_sign = self.wake.now() + ACK_EVERY;
            }
        }
    }

    /// Applies the stream until the link ends; `Ok` where the follower stops.
    fn stream(&mut self, wire: &mut Wire, position: Position) -> Result<(), Ended> {
        let fault = |cause| Ended::Fault(Stage::Stream, cause);
        let FollowerSettings { command_limits, transaction_len_max, timeout, .. } = *self.settings;
        let mut units = Units::new(position, command_limits, transaction_len_max);
        let mut wanted = 0;
        // Bytes of an incomplete unit that the target knows of.
        let mut pending = 0;
        let mut quiet_since = self.wake.now();
        // The first one tells that the snapshot was taken.
        let mut next_ack = quiet_since;
        let mut unlooked = 0;
        let mut is_asked = false;
        loop {
            if wire.input().len() >= wanted.max(1) {
                match units.read(wire.input()).map_err(fault)? {
                    UnitStep::Unit { len } => {
                        is_asked = self.apply(wire, &mut units, len)?;
                        (wanted, pending) = (0, 0);
                        unlooked += 1;
                    }
                    UnitStep::More { at_least } => {
                        wanted = at_least;
                        let len = wire.input().len();
                        if len >= pending + PENDING_LEN {
                            pending = len;
                            let told = self.target.pending(len);
                            told.map_err(|error| fault(Cause::Target(error)))?;
                        }
                    }
                }
            } else {
                let silent = quiet_since + timeout;
                match wire.wait(self.wake, silent.min(next_ack)).map_err(fault)? {
                    Woken::Input => {
                        quiet_since = self.wake.now();
                        self.board.heard(quiet_since);
                    }
                    Woken::Stop => return Ok(()),
                    Woken::Late if self.wake.now() >= silent => {
                        return Err(fault(Cause::Timeout(timeout)));
                    }
                    Woken::Late => {}
                }
                unlooked = UNITS_PER_LOOK;
            }
            if !is_asked && unlooked < UNITS_PER_LOOK {
                continue;
            }
            unlooked = 0;
            let now = self.wake.now();
            let is_counted = self.settings.is_counted;
            if (is_asked && is_counted) || now >= next_ack {
                let offset = if is_counted { units.position().offset } else { 0 };
                acknowledge(wire, offset).map_err(fault)?;
                next_ack = now + if is_counted { ACK_EVERY } else { SIGN_EVERY };
            }
            is_asked = false;
        }
    }

    /// Hands a unit of `len` bytes to the target; whether the primary wants an
    /// acknowledgement.
    fn apply(&mut self, wire: &mut Wire, units: &mut Units, len: usize) -> Result<bool, Ended> {
        if self.wake.is_stopping() {
            return Err(Ended::Stop);
        }
        let applied = self.target.apply(&units.unit(wire.input()));
        applied.map_err(|error| Ended::Fault(Stage::Stream, Cause::Target(error)))?;
        let wants_ack = units.finish();
        wire.consume(len);
        *self.position = Some(units.position());
        self.board.offset(units.position().offset);
        Ok(wants_ack)
    }
}

/// Tells the primary what was applied. One that does not read is told later.
fn acknowledge(wire: &mut Wire, offset: u64) -> Result<(), Cause> {
    let mut out = Vec::new();
    reply::array(&mut out, 3);
    for word in [&b"REPLCONF"[..], b"ACK", offset.to_string().as_bytes()] {
        reply::bulk(&mut out, word);
    }
    wire.try_send(&out).map(|_| ())
}
