//! Messages: which client published them, which server got them, and which clients must have
//! received them.

use super::*;
use crate::network::SECOND;
use keyway_base::glob;
use std::collections::BTreeSet;

/// How long a message may be in flight while nothing is wrong.
const UNDER_WAY_MAX: Nanos = SECOND / 5;
/// How long names may move after a change of the ring.
const MOVING_MAX: Nanos = SECOND / 2;

/// The kind of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChannelKind {
    /// `SUBSCRIBE`
    Channel,
    /// `PSUBSCRIBE`
    Pattern,
    /// `SSUBSCRIBE`
    Shard,
}

impl ChannelKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];

    /// Returns the kind of subscription that a command begins or ends, and whether it begins it.
    pub fn of(command: &[u8]) -> Option<(Self, bool)> {
        let command = String::from_utf8_lossy(command).to_ascii_lowercase();
        let both = Self::ALL.into_iter().flat_map(|kind| [(kind, true), (kind, false)]);
        both.into_iter().find(|(kind, subscribes)| kind.word(*subscribes) == command)
    }

    /// Returns the command, which is also the first word of its confirmation.
    pub fn word(self, subscribes: bool) -> &'static str {
        match (self, subscribes) {
            (Self::Channel, true) => "subscribe",
            (Self::Channel, false) => "unsubscribe",
            (Self::Pattern, true) => "psubscribe",
            (Self::Pattern, false) => "punsubscribe",
            (Self::Shard, true) => "ssubscribe",
            (Self::Shard, false) => "sunsubscribe",
        }
    }

    /// Returns the first word of a message.
    pub fn message_word(self) -> &'static str {
        match self {
            Self::Channel => "message",
            Self::Pattern => "pmessage",
            Self::Shard => "smessage",
        }
    }

    /// Returns whether a client with this kind of subscription to `name` receives a message of
    /// `kind` on `channel`.
    fn fits(self, name: &[u8], kind: ChannelKind, channel: &[u8]) -> bool {
        match self {
            Self::Pattern => kind == Self::Channel && glob::matches(name, channel),
            _ => kind == self && name == channel,
        }
    }
}

/// A publishing connection: the client, and which of its connections.
pub type Publisher = (usize, u32);

pub(super) struct Message {
    pool: usize,
    kind: ChannelKind,
    channel: Vec<u8>,
    publisher: Publisher,
    asked_at: Nanos,
    /// The server that got it, when, and how many others it got before.
    executed: Option<(usize, Nanos, u64)>,
    /// When its publisher got the reply.
    acknowledged_at: Option<Nanos>,
    is_denied: bool,
}

/// A client's view of one of its subscriptions.
#[derive(Debug)]
pub struct Subscription {
    /// When the client read the confirmation.
    confirmed_at: Nanos,
    seen: BTreeSet<u64>,
    /// The last message received, by server, or by publisher on the store.
    last: BTreeMap<(usize, u32, Vec<u8>), u64>,
}

impl Subscription {
    /// Creates a subscription whose confirmation is read now.
    pub fn new(confirmed_at: Nanos) -> Self {
        Self { confirmed_at, seen: BTreeSet::new(), last: BTreeMap::new() }
    }
}

/// Messages, and everything else that the laws about them need.
#[derive(Default)]
pub(super) struct Messages {
    all: Vec<Message>,
    executed: u64,
    told: u64,
    /// The last message that was received, by server, publisher and channel.
    last: BTreeMap<(usize, Publisher, ChannelKind, Vec<u8>), u64>,
    /// Publishers of which a message may still be in flight.
    unsure: BTreeSet<Publisher>,
    /// By pool: the number of the ring's last change, and when it changed.
    ring_changes: Vec<(u64, Vec<Nanos>)>,
}

impl Ledger {
    /// Returns the number of messages that clients have received so far.
    pub fn messages_told(&self) -> u64 {
        self.messages.told
    }

    /// Returns the number of messages, and of changes of values that may be cached, so far.
    pub fn tellable(&self) -> (usize, usize) {
        (self.messages.all.len(), self.copies.values().map(Vec::len).sum())
    }

    /// Returns a number for a message that is about to be published.
    pub fn new_message(
        &mut self,
        pool: usize,
        (kind, channel): (ChannelKind, &[u8]),
        publisher: Publisher,
        now: Nanos,
    ) -> u64 {
        self.messages.all.push(Message {
            pool,
            kind,
            channel: channel.to_vec(),
            publisher,
            asked_at: now,
            executed: None,
            acknowledged_at: None,
            is_denied: false,
        });
        self.messages.all.len() as u64 - 1
    }

    /// Notes that a server got a request to publish.
    pub fn on_published(
        &mut self,
        (kind, channel): (ChannelKind, &[u8]),
        payload: &[u8],
        server: usize,
        now: Nanos,
        is_straggler: bool,
    ) {
        let number = match crate::value::check(channel, payload) {
            Ok(number) => number,
            Err(fault) => return self.fail(|| format!("a server was told to publish: {fault}")),
        };
        self.messages.executed += 1;
        let order = self.messages.executed;
        let Some(message) = self.messages.all.get_mut(number as usize) else {
            return self.fail(|| format!("message {number} was never asked for"));
        };
        let before = message.executed.replace((server, now, order));
        let is_denied = message.is_denied;
        let is_own = message.kind == kind && message.channel == channel;
        let publisher = message.publisher;
        if before.is_some() || is_denied || !is_own {
            return self.fail(|| {
                format!(
                    "message {number} on {} was published {}",
                    clip(channel),
                    if before.is_some() { "twice" } else { "although that was denied" }
                )
            });
        }
        if is_straggler || self.messages.unsure.contains(&publisher) {
            return;
        }
        let place = (server, publisher, kind, channel.to_vec());
        let last = self.messages.last.insert(place, number).unwrap_or_default();
        if last > number {
            self.fail(|| format!("message {number} on {} comes after {last}", clip(channel)));
        }
    }

    /// Notes that a publisher was told that its message was published.
    pub fn on_publish_acknowledged(&mut self, number: u64, now: Nanos) {
        let message = &mut self.messages.all[number as usize];
        message.acknowledged_at = Some(now);
        let is_lost = message.executed.is_none() && self.pools[message.pool].is_some();
        if is_lost {
            self.fail(|| format!("message {number} was acknowledged and never published"));
        }
    }

    /// Notes that a publisher was told that its message was not, or perhaps not, published.
    pub fn on_publish_failed(&mut self, number: u64, fate: crate::model::Fate) {
        let message = &mut self.messages.all[number as usize];
        if fate != crate::model::Fate::NotDone {
            self.messages.unsure.insert(message.publisher);
            return;
        }
        message.is_denied = true;
        if message.executed.is_some() {
            self.fail(|| format!("message {number} was published, yet it is said that it was not"));
        }
    }

    /// Notes that a client received a message through its subscription to `name`.
    ///
    /// # Errors
    /// Returns what is wrong about that.
    pub fn on_told(
        &mut self,
        (kind, name): (ChannelKind, &[u8]),
        subscription: &mut Subscription,
        channel: &[u8],
        payload: &[u8],
    ) -> Result<(), String> {
        let number = crate::value::check(channel, payload)?;
        let Some(message) = self.messages.all.get(number as usize) else {
            return Err(format!("message {number} was never published"));
        };
        if message.channel != channel || !kind.fits(name, message.kind, channel) {
            return Err(format!("message {number} is on another channel"));
        }
        if !subscription.seen.insert(number) {
            return Err(format!("message {number} was told before"));
        }
        let (place, order) = match (&self.pools[message.pool], message.executed) {
            (Some(_), None) => return Err(format!("message {number} was never published")),
            (Some(_), Some((server, _, order))) => ((server, 0, Vec::new()), order),
            (None, _) => ((message.publisher.0, message.publisher.1, channel.to_vec()), number),
        };
        let last = subscription.last.insert(place, order).unwrap_or_default();
        if last > order {
            return Err(format!("message {number} was overtaken"));
        }
        self.messages.told += 1;
        Ok(())
    }

    /// Checks that a subscription that ended with a request asked at `until` has missed no message
    /// that it must have received.
    ///
    /// # Errors
    /// Returns which message was missed.
    pub fn check_subscription(
        &self,
        pool: usize,
        (kind, name): (ChannelKind, &[u8]),
        subscription: &Subscription,
        until: Nanos,
    ) -> Result<(), String> {
        let is_fitting = |message: &Message| {
            message.pool == pool
                && message.asked_at > subscription.confirmed_at
                && kind.fits(name, message.kind, &message.channel)
        };
        let all = self.messages.all.iter().enumerate();
        for (number, message) in all.filter(|(_, message)| is_fitting(message)) {
            let published = message.executed.map(|(_, at, _)| at).or(message.acknowledged_at);
            let Some(told_by) = published.map(|at| at + UNDER_WAY_MAX) else { continue };
            let from = message.asked_at;
            if told_by >= until || subscription.seen.contains(&(number as u64)) {
                continue;
            }
            let servers: Vec<_> = message.executed.iter().map(|&(server, ..)| server).collect();
            let changes = self.messages.ring_changes.get(pool).map_or(&[][..], |(_, at)| at);
            let has_moved = changes.iter().any(|&at| at + MOVING_MAX >= from && at <= told_by);
            if !has_moved && !self.is_excused(&servers, from, told_by) {
                return Err(format!("message {number} on {} was missed", clip(&message.channel)));
            }
        }
        Ok(())
    }

    /// Notes which rings have changed.
    pub fn note_rings(&mut self, now: Nanos) {
        let rings = &mut self.messages.ring_changes;
        rings.resize_with(self.pools.len(), || (0, Vec::new()));
        for (pool, (epoch, changes)) in rings.iter_mut().enumerate() {
            let current = self.health.pool_epoch(pool);
            if std::mem::replace(epoch, current) != current {
                changes.push(now);
            }
        }
    }
}
