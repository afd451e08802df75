//! One connection: registration, frames, credit, heartbeat.
//!
//! [`Peer::accept_frame`] takes received frames, [`Peer::poll_output`] returns output. Pings,
//! credit and farewells are not queued but due, so they are sent before everything else and take no
//! room.

mod attempt;
mod handshake;
mod heartbeat;
mod inbox;
pub(crate) mod outbox;

pub(crate) use attempt::{Attempt, is_final};
pub use handshake::{Identity, Line, Relation, Vouch, certificate_name};
pub use outbox::Body;

use crate::fault::Reason;
use crate::frame::{
    self, CHANNELS, Channel, FRAGMENT_LEN, FRAME_BODY_MAX, Frame, Head, Kind, STRANGER_BODY_MAX,
};
use crate::id::NodeId;
use crate::push::Held;
use crate::settings::{Rest, Settings};
use crate::wire::{Reader, Writer};
use handshake::{Handshake, Progress};
pub(crate) use inbox::Sum;
use inbox::{Inbox, Part};
use keyway_base::{Key, Time};
use outbox::{Outbox, Remains, Version};
use std::collections::BTreeMap;
use std::time::Duration;

/// Least room for a node's own words in a queue that is full of others' frames.
const OWN_WORDS: usize = 128 << 10;

/// Names a connection.
pub type PeerKey = Key<Peer>;

/// The origin of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was dialled as the upstream with this index in the settings.
    Uplink(usize),
    /// It was dialled as a sibling.
    Direct(NodeId),
    /// It was accepted.
    Accepted,
}

/// The result of a frame for this connection.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing more to be done.
    Done,
    /// A dialler asks to be accepted: [`Peer::welcome`] or a close must follow.
    Asked(Box<Identity>),
    /// It is registered.
    Registered,
    /// The other side leaves.
    Leaves(Reason),
    /// The frame is complete by itself.
    Frame,
    /// A message was put together. For a command, `front` has everything before its last argument.
    Whole { head: Head, path: Vec<u8>, front: Vec<u8>, body: Vec<u8>, sum: Sum },
    /// A message in parts is refused.
    Refused(Reason),
}

/// Counts of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Received frames.
    pub frames_in: u64,
    /// Received bytes.
    pub bytes_in: u64,
    /// Sent bytes.
    pub bytes_out: u64,
    /// Answered pings.
    pub pongs: u64,
    /// The last round trip, in nanoseconds; 0 before the first.
    pub rtt_ns: u64,
    /// Round trips, smoothed by an eighth.
    pub rtt_smooth_ns: u64,
}

impl Traffic {
    /// Returns the sums of both.
    pub(crate) fn with(self, other: &Traffic) -> Traffic {
        Traffic {
            frames_in: self.frames_in + other.frames_in,
            bytes_in: self.bytes_in + other.bytes_in,
            bytes_out: self.bytes_out + other.bytes_out,
            pongs: self.pongs + other.pongs,
            rtt_ns: 0,
            rtt_smooth_ns: 0,
        }
    }
}

/// What is sent before every queue, at the next output.
#[derive(Default)]
struct Due {
    ping: bool,
    pong: Option<u64>,
    credit: [bool; CHANNELS],
    goaway: Option<Reason>,
    /// Whether to answer a farewell, which does not replace one.
    bye: bool,
}

/// Whether a node is cut off from the root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub is_off: bool,
    pub since: Time,
}

/// One connection of a node.
pub struct Peer {
    pub(crate) origin: Origin,
    pub(crate) identity: Option<Box<Identity>>,
    pub(crate) relation: Relation,
    /// Bytes of an incomplete frame.
    pub(crate) partial: Vec<u8>,
    pub(crate) traffic: Traffic,
    /// Set if either side leaves: nothing new is sent there.
    pub(crate) is_leaving: bool,
    /// True if it is in the list of connections with output.
    pub(crate) is_listed: bool,
    /// True if the dialled node takes this one for a part of its tree: see `Attach`.
    pub(crate) is_attached: bool,
    pub(crate) used_at: Time,
    /// Time until which frames in flight are waited for, once this side has said farewell.
    pub(crate) retiring: Option<Time>,
    /// True if the peer has answered that.
    pub(crate) said_bye: bool,
    /// Time at which the connection is closed although the peer, which has said farewell, did not
    /// close it.
    pub(crate) left_by: Option<Time>,
    /// Set while it is checked whether the node that it claims to be is here already: that ends by
    /// itself.
    pub(crate) is_contested: bool,
    /// The reason for leaving.
    pub(crate) farewell: Option<Reason>,
    /// The id that it has proved, if it is not accepted all the same.
    pub(crate) proved_id: NodeId,
    /// Its address, until it is accepted.
    pub(crate) from: Option<Box<str>>,
    /// Time at which the last answered ping was sent.
    pub(crate) answered_at: Time,
    /// Bytes that it holds of all queues, as last counted, and how many of them are word.
    pub(crate) counted: usize,
    pub(crate) counted_words: usize,
    /// The versions of topics of a child that goes through this node.
    pub(crate) versions: Option<BTreeMap<String, Held>>,
    /// The addresses of a dial.
    pub(crate) attempt: Option<Box<Attempt>>,
    /// A round trip that the node has not taken.
    pub(crate) round_trip: Option<Duration>,
    /// An upstream's report whether it is cut off.
    pub(crate) cut: Cut,
    /// The last report of this node to it.
    tells_cut: bool,
    /// Time at which the node checks it; the end of time if never.
    pub(crate) timer: Time,
    our_id: NodeId,
    handshake: Option<Handshake>,
    opening: Vec<u8>,
    due: Due,
    outboxes: [Outbox; CHANNELS],
    inboxes: [Inbox; CHANNELS],
    /// True if the data channel goes before that of config at the next turn.
    data_first: bool,
    since: Time,
    heard_at: Time,
    ping_at: Time,
    /// Time since which a ping is unanswered, and nothing else was received.
    asked_at: Option<Time>,
    /// Time at which either side last sent something other than heartbeats.
    spoken_at: Time,
    /// True if both ends are on one host, so that a dead one is noticed without a ping: as the
    /// transport reports, and, from the registration on, the other side too.
    is_within_host: bool,
}

impl Peer {
    pub(crate) fn dialled(
        settings: &Settings,
        our_id: NodeId,
        origin: Origin,
        line: &Line,
        expected: NodeId,
        now: Time,
    ) -> Self {
        let relation = match origin {
            Origin::Direct(_) => Relation::Sibling,
            _ => Relation::Child,
        };
        let mut opening = Vec::new();
        let handshake = Handshake::dial(settings, our_id, line, expected, relation, &mut opening);
        let is_within_host = line.is_within_host;
        let new = Self::new(settings, our_id, origin, handshake, now);
        Self { opening, relation, is_within_host, ..new }
    }

    pub(crate) fn accepted(
        settings: &Settings,
        our_id: NodeId,
        line: &Line,
        guest_id: NodeId,
        now: Time,
    ) -> Self {
        let handshake = Handshake::accept(our_id, line, guest_id);
        let (is_within_host, from) = (line.is_within_host, line.from.clone());
        Self {
            is_within_host,
            from,
            ..Self::new(settings, our_id, Origin::Accepted, handshake, now)
        }
    }

    fn new(
        settings: &Settings,
        our_id: NodeId,
        origin: Origin,
        handshake: Handshake,
        now: Time,
    ) -> Self {
        Self {
            origin,
            identity: None,
            relation: Relation::Child,
            partial: Vec::new(),
            traffic: Traffic::default(),
            is_leaving: false,
            is_listed: false,
            is_attached: false,
            used_at: now,
            retiring: None,
            said_bye: false,
            left_by: None,
            is_contested: false,
            farewell: None,
            proved_id: NodeId::NONE,
            from: None,
            answered_at: Time(0),
            counted: 0,
            counted_words: 0,
            versions: None,
            attempt: None,
            round_trip: None,
            cut: Cut { is_off: false, since: now },
            tells_cut: false,
            timer: Time(u64::MAX),
            our_id,
            handshake: Some(handshake),
            opening: Vec::new(),
            due: Due::default(),
            outboxes: Default::default(),
            inboxes: settings.windows.map(Inbox::new),
            data_first: true,
            since: now,
            heard_at: now,
            ping_at: now,
            asked_at: None,
            spoken_at: now,
            is_within_host: false,
        }
    }

    /// Returns the peer's id; [`NodeId::NONE`] before the registration.
    pub fn id(&self) -> NodeId {
        self.identity.as_ref().map_or(NodeId::NONE, |identity| identity.id)
    }

    /// Returns the own id on this connection.
    pub(crate) fn our_id(&self) -> NodeId {
        self.our_id
    }

    /// Returns whether messages may be sent to it.
    pub(crate) fn is_open(&self) -> bool {
        self.identity.is_some() && !self.is_leaving
    }

    pub(crate) fn body_len_max(&self) -> usize {
        if self.identity.is_some() { FRAME_BODY_MAX } else { STRANGER_BODY_MAX }
    }

    /// Handles a received frame. `memory` is what is left for messages in parts, over all
    /// connections.
    pub(crate) fn accept_frame(
        &mut self,
        frame: &Frame<'_>,
        settings: &Settings,
        memory: &mut usize,
        now: Time,
    ) -> Result<Step, Reason> {
        self.traffic.frames_in += 1;
        if self.identity.is_none() {
            return self.handle_stranger(frame, settings, now);
        }
        self.heard_at = now;
        self.asked_at = None;
        if frame.head.kind.is_urgent() {
            return self.handle_urgent(frame, now);
        }
        self.spoken_at = now;
        let len_max = match frame.head.kind {
            Kind::Message | Kind::Command | Kind::Result => settings.message_len_max,
            _ => frame::MESSAGE_LEN_MAX,
        };
        let channel = frame.head.channel() as usize;
        // A peer that begins endless messages takes no more than a share.
        let share =
            if frame.head.has(frame::flags::FIRST) { self.share(settings) } else { usize::MAX };
        let before = (*memory).min(share);
        let mut left = before;
        let part = self.inboxes[channel].accept(frame, self.our_id, len_max, &mut left, now)?;
        *memory = *memory - before + left;
        self.due.credit[channel] |=
            self.inboxes[channel].is_credit_due(self.is_leaving || self.retiring.is_some());
        Ok(match part {
            Part::Single => Step::Frame,
            Part::Kept => Step::Done,
            Part::Done { head, path, front, body, sum } => {
                Step::Whole { head, path, front, body, sum }
            }
            Part::Refused(reason) => Step::Refused(reason),
        })
    }

    /// Returns the memory that one more message in parts of this peer may take. An upstream, which
    /// the settings name, may take everything.
    fn share(&self, settings: &Settings) -> usize {
        match self.origin {
            Origin::Uplink(_) => usize::MAX,
            _ => settings
                .message_len_max
                .max(settings.assembly_len_max / 4)
                .saturating_sub(self.assembly_len()),
        }
    }

    fn handle_stranger(
        &mut self,
        frame: &Frame<'_>,
        settings: &Settings,
        now: Time,
    ) -> Result<Step, Reason> {
        let Some(handshake) = &mut self.handshake else { return Err(Reason::Unexpected) };
        match handshake.handle(frame, settings, &mut self.opening)? {
            Progress::Going => Ok(Step::Done),
            Progress::Asked(identity) => {
                self.relation = handshake.relation();
                Ok(Step::Asked(Box::new(identity)))
            }
            Progress::Welcome(identity) => {
                self.open(identity, settings, now);
                Ok(Step::Registered)
            }
        }
    }

    /// Accepts the dialler.
    pub(crate) fn welcome(&mut self, identity: Identity, settings: &Settings, now: Time) {
        if let Some(handshake) = &mut self.handshake {
            handshake.welcome(settings, &mut self.opening);
        }
        self.open(identity, settings, now);
    }

    fn open(&mut self, identity: Identity, settings: &Settings, now: Time) {
        let Some(handshake) = self.handshake.take() else { return };
        self.our_id = handshake.our_id();
        for (outbox, window) in self.outboxes.iter_mut().zip(handshake.windows()) {
            outbox.set_credit(0, u64::from(window));
        }
        // A connection that is on this host by its address may be the near end of a tunnel.
        self.is_within_host &= identity.place.is_host_of(settings.place);
        self.identity = Some(Box::new(identity));
        self.from = None;
        self.heard_at = now;
        self.ping_at = now;
        self.spoken_at = now;
        self.used_at = now;
    }

    fn handle_urgent(&mut self, frame: &Frame<'_>, now: Time) -> Result<Step, Reason> {
        let mut from = Reader::new(frame.body);
        match frame.head.kind {
            Kind::Ping => {
                self.due.pong = Some(from.u64().ok_or(Reason::Malformed)?);
                self.note_cut(from.u8() == Some(1), now);
            }
            Kind::Pong => {
                // The time of sending is only the peer's word.
                let sent_at = Time(from.u64().ok_or(Reason::Malformed)?).min(now);
                self.answered_at = sent_at;
                self.note_rtt(now.since(sent_at));
            }
            Kind::Credit => {
                let credit = (|| Some((from.u8()?, from.u64()?, from.u64()?)))();
                let (channel, taken, limit) = credit.ok_or(Reason::Malformed)?;
                let outbox =
                    self.outboxes.get_mut(usize::from(channel)).ok_or(Reason::Malformed)?;
                if !outbox.set_credit(taken, limit) {
                    return Err(Reason::Credit);
                }
            }
            Kind::Goaway => {
                let code = from.u16().ok_or(Reason::Malformed)?;
                return Ok(Step::Leaves(Reason::of(code)));
            }
            _ => return Err(Reason::Unexpected),
        }
        Ok(Step::Done)
    }

    fn note_rtt(&mut self, rtt: Duration) {
        self.round_trip = Some(rtt);
        let rtt = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX).max(1);
        let traffic = &mut self.traffic;
        traffic.pongs += 1;
        traffic.rtt_ns = rtt;
        traffic.rtt_smooth_ns = match traffic.rtt_smooth_ns {
            0 => rtt,
            smooth => smooth - smooth / 8 + rtt / 8,
        };
    }

    /// Queues a frame, if there is room for it.
    pub(crate) fn push(
        &mut self,
        head: &Head,
        path: &[u8],
        body: &[u8],
        settings: &Settings,
    ) -> Result<(), Reason> {
        let outbox = &mut self.outboxes[head.channel() as usize];
        let len_max = match head.kind.is_routed() {
            true => settings.queue_len_max,
            false => settings.queue_len_max + OWN_WORDS.max(settings.queue_len_max / 8),
        };
        if outbox.own_len() > 0 && outbox.own_len() + body.len() > len_max {
            return Err(Reason::Full);
        }
        outbox.push(head, path, body);
        Ok(())
    }

    /// Queues a frame whose body may be long.
    pub(crate) fn push_large(
        &mut self,
        head: &Head,
        path: &[u8],
        body: Body,
        settings: &Settings,
    ) -> Result<(), Reason> {
        let in_parts = if body.len() > FRAGMENT_LEN { frame::flags::FRAGMENT } else { 0 };
        let placed = Head { flags: head.flags | in_parts, ..*head };
        let outbox = &mut self.outboxes[placed.channel() as usize];
        if outbox.own_len() > 0 && outbox.own_len() + body.len() > settings.queue_len_max {
            return Err(Reason::Full);
        }
        outbox.push_large(head, path, body);
        Ok(())
    }

    /// Queues a version of a topic, with a few bytes after its body. There is always room: the body
    /// is shared, and one version of each topic waits.
    pub(crate) fn push_version(
        &mut self,
        head: &Head,
        version: Version,
        body: Body,
        tail: Vec<u8>,
    ) {
        self.outboxes[Channel::Config as usize].push_version(head, version, body, tail);
    }

    /// Returns whether a version of a topic waits, or is being sent.
    pub(crate) fn has_topic(&self, name: &str) -> bool {
        self.outboxes[Channel::Config as usize].has_topic(name)
    }

    /// Takes back a version of a topic that does not have that number, unless it was begun. Returns
    /// whether it did.
    pub(crate) fn take_back(&mut self, name: &str, number: u64) -> bool {
        self.outboxes[Channel::Config as usize].take_back(name, number)
    }

    /// Takes back all versions of topics that were not begun.
    pub(crate) fn take_back_all(&mut self) {
        self.outboxes[Channel::Config as usize].take_back_all();
    }

    /// Returns the version of a topic that is being sent, and its body.
    pub(crate) fn begun_version(&self) -> Option<(&Version, &Body)> {
        self.outboxes[Channel::Config as usize].begun_version()
    }

    /// Sends a ping at the next output, even if one was sent recently.
    pub(crate) fn ask_alive(&mut self) {
        self.due.ping = true;
    }

    /// Says farewell at the next output.
    pub(crate) fn say_goaway(&mut self, reason: Reason) {
        self.due.goaway = Some(reason);
    }

    /// Answers a farewell at the next output.
    pub(crate) fn say_bye(&mut self) {
        self.due.bye = true;
    }

    /// Reports credit for everything that was taken, also of the data channel once it is not held
    /// any more.
    pub(crate) fn tell_credit(&mut self) {
        for (due, inbox) in self.due.credit.iter_mut().zip(&self.inboxes) {
            *due |= inbox.is_credit_due(true);
        }
    }

    /// Returns whether everything that was queued was sent and taken.
    pub(crate) fn is_done(&self) -> bool {
        self.due.goaway.is_none() && !self.due.bye && self.outboxes.iter().all(Outbox::is_done)
    }

    /// Returns whether [`Peer::poll_output`] has output.
    pub(crate) fn has_output(&self) -> bool {
        let due = &self.due;
        let is_open = self.identity.is_some();
        !self.opening.is_empty()
            || (is_open
                && (due.ping
                    || due.pong.is_some()
                    || due.goaway.is_some()
                    || due.bye
                    || due.credit.contains(&true)))
            || (is_open && self.outboxes.iter().any(Outbox::is_ready))
    }

    /// Appends output until `out` is `len_max` bytes long, or a frame longer. The other side gets
    /// no more credit for channels that are `held`.
    pub(crate) fn poll_output(
        &mut self,
        out: &mut Vec<u8>,
        len_max: usize,
        held: [bool; CHANNELS],
        rest: Rest,
        now: Time,
    ) {
        let start = out.len();
        out.append(&mut self.opening);
        if self.identity.is_some() {
            self.wake_up(rest, now);
            self.poll_due(out, held, now);
            self.outboxes[Channel::Control as usize].poll(out, len_max);
            self.poll_bodies(out, len_max);
        }
        self.traffic.bytes_out += (out.len() - start) as u64;
    }

    /// Config and data alternate by fragments.
    fn poll_bodies(&mut self, out: &mut Vec<u8>, len_max: usize) {
        while out.len() < len_max {
            let order = [Channel::Config, Channel::Data];
            let ready = order.map(|channel| self.outboxes[channel as usize].is_ready());
            let channel = match ready {
                [false, false] => return,
                [true, false] => Channel::Config,
                [false, true] => Channel::Data,
                [true, true] if self.data_first => Channel::Data,
                [true, true] => Channel::Config,
            };
            self.data_first = channel == Channel::Config;
            let turn_end = len_max.min(out.len() + FRAGMENT_LEN);
            self.outboxes[channel as usize].poll(out, turn_end);
        }
    }

    fn poll_due(&mut self, out: &mut Vec<u8>, held: [bool; CHANNELS], now: Time) {
        let due = std::mem::take(&mut self.due);
        let mut body = Vec::with_capacity(24);
        if let Some(echo) = due.pong {
            Writer::new(&mut body).u64(echo);
            self.say(Kind::Pong, &body, out);
        }
        if due.ping {
            body.clear();
            Writer::new(&mut body).u64(now.0);
            Writer::new(&mut body).u8(u8::from(self.tells_cut));
            self.say(Kind::Ping, &body, out);
        }
        for (channel, _) in due.credit.iter().enumerate().filter(|(_, due)| **due) {
            let (taken, limit) = self.inboxes[channel].credit(held[channel]);
            body.clear();
            let mut writer = Writer::new(&mut body);
            writer.u8(channel as u8);
            writer.u64(taken);
            writer.u64(limit);
            self.say(Kind::Credit, &body, out);
        }
        for reason in due.goaway.into_iter().chain(due.bye.then_some(Reason::Bye)) {
            body.clear();
            Writer::new(&mut body).u16(reason as u16);
            self.say(Kind::Goaway, &body, out);
        }
    }

    fn say(&self, kind: Kind, body: &[u8], out: &mut Vec<u8>) {
        frame::append(out, &Head::plain(kind, self.our_id, self.id()), &[], [body, &[]]);
    }

    /// Returns the last words for a peer that is not accepted; empty for one that is.
    pub(crate) fn last_words(&self, reason: Reason) -> Vec<u8> {
        let mut out = self.opening.clone();
        let mut body = Vec::new();
        Writer::new(&mut body).u16(reason as u16);
        Writer::new(&mut body).text(reason.text());
        match (self.identity.is_some(), self.origin) {
            (true, _) => self.say(Kind::Goaway, &body, &mut out),
            (false, Origin::Accepted) => self.say(Kind::Reject, &body, &mut out),
            (false, _) => {}
        }
        out
    }

    /// Gives up messages in parts that do not go on. Returns the head and the path of each.
    pub(crate) fn give_up_idle(
        &mut self,
        settings: &Settings,
        memory: &mut usize,
        now: Time,
    ) -> [Option<(Head, Vec<u8>)>; CHANNELS] {
        self.inboxes.each_mut().map(|inbox| inbox.give_up_idle(settings.parts_idle, memory, now))
    }

    /// Takes frames for other nodes out of the queues of a connection that is gone.
    pub(crate) fn take_remains(&mut self) -> Remains {
        let mut remains = Remains::default();
        self.outboxes.iter_mut().for_each(|outbox| outbox.take_remains(&mut remains));
        remains
    }

    /// Takes unsent frames for other nodes out of the queues of a peer that is leaving.
    pub(crate) fn take_unsent(&mut self) -> Remains {
        let mut remains = Remains::default();
        self.outboxes.iter_mut().for_each(|outbox| outbox.take_unsent(&mut remains));
        remains
    }

    /// Returns the memory of its messages in parts.
    pub(crate) fn assembly_len(&self) -> usize {
        self.inboxes.iter().map(Inbox::assembly_len).sum()
    }

    /// Returns the bytes that wait to be sent on one channel.
    pub(crate) fn queued_on(&self, channel: Channel) -> usize {
        self.outboxes[channel as usize].queued_len()
    }

    /// Returns the bytes that it holds of all queues: waiting ones, and what is remembered of sent
    /// ones.
    pub(crate) fn held_len(&self) -> usize {
        self.outboxes.iter().map(Outbox::held_len).sum()
    }

    /// Returns how many of these are word that senders wait for.
    pub(crate) fn words_len(&self) -> usize {
        self.outboxes.iter().map(Outbox::words_len).sum()
    }

    /// Returns the bytes that wait to be sent.
    pub(crate) fn queued_len(&self) -> usize {
        self.outboxes.iter().map(Outbox::queued_len).sum()
    }
}
