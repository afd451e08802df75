//! ```text
//!  want ──► SUBSCRIBE name ──► server ──► confirmed ──► active ──► messages
//!                    expected [ sub a | unsub b | sub c ]
//! ```
//! A server confirms subscriptions in the order in which it was asked, so a FIFO of the expected
//! confirmations is enough. Messages arrive in between. Each command names one channel, so an error
//! belongs to one name.
//!
//! Legal order: `Idle -> Connecting -> (Handshaking ->) Ready -> Idle`, or `-> Backoff ->
//! Connecting` after a failure. Names may be wanted in every state. All of them are subscribed once
//! the connection is established.

use super::wire::{Pushed, read_push};
use super::{Hashing, Name, SubscriptionKind};
use crate::link::NO_ROOM;
use crate::{LinkOptions, Output, Redirection};
use indexmap::IndexMap;
use keyway_base::{BackendFault, Limits, ReplyBound, Time};
use keyway_resp::{Framer, Framing, FramingFault, Kind, reply};
use std::collections::VecDeque;
use std::time::Duration;

/// Silence after which the server is pinged. If it were longer, a dead connection would be noticed
/// later. If it were shorter, there would be useless traffic.
const PING_AFTER: Duration = Duration::from_secs(15);

/// Longest time that the server may take to confirm or to answer PING. The connection is given up
/// after it.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// Capacity that the input keeps when it becomes empty, in bytes.
const INPUT_KEPT_MAX: usize = 64 << 10;

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriberState {
    /// Not connected.
    Idle,
    /// The system is connecting.
    Connecting {
        /// When it must be done, including the handshake.
        deadline: Time,
    },
    /// The link waits for the reply to AUTH.
    Handshaking {
        /// When it must have arrived.
        deadline: Time,
    },
    /// Subscriptions are sent and received.
    Ready,
    /// The last attempt failed. The next one is made after `until`.
    Backoff {
        /// When another attempt is allowed.
        until: Time,
    },
}

/// A message or reply that was received from the server.
#[derive(Debug)]
pub enum Heard<'a> {
    /// A message for the subscription to `name`. `frame` is the whole array.
    Message {
        /// The kind of the subscription.
        kind: SubscriptionKind,
        /// The subscribed channel or pattern.
        name: &'a [u8],
        /// The frame for a RESP2 client.
        frame: &'a [u8],
    },
    /// From here on every message for this name arrives.
    Confirmed {
        /// The kind of the subscription.
        kind: SubscriptionKind,
        /// The channel or pattern.
        name: &'a Name,
    },
    /// The server refuses the subscription. It is no longer wanted.
    Refused {
        /// The kind of the subscription.
        kind: SubscriptionKind,
        /// The channel or pattern.
        name: &'a Name,
        /// The complete error reply.
        reply: &'a [u8],
    },
    /// A server of a cluster does not have this name, or no longer. It is asked again if the name
    /// stays wanted here.
    Astray {
        /// The channel.
        name: &'a [u8],
        /// Its reply. If it is a redirection, another server has the name.
        said: &'a [u8],
    },
}

/// The state of a wanted name on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// To be sent once the connection is established, or again.
    Unsent,
    /// Sent with this ticket.
    Sent(u64),
    /// Confirmed.
    Active,
}

/// A confirmation that has not arrived.
#[derive(Debug)]
struct Expected {
    kind: SubscriptionKind,
    subscribes: bool,
    name: Name,
    ticket: u64,
    sent: Time,
}

/// A worker's only connection to a server, for all its subscriptions there.
#[derive(Debug)]
pub struct SubscriberLink {
    state: SubscriberState,
    /// By the number of the kind.
    wants: [IndexMap<Name, Want, Hashing>; 3],
    expected: VecDeque<Expected>,
    tickets: u64,
    output: Output,
    input: Vec<u8>,
    input_needed: usize,
    framer: Framer,
    heard: Time,
    pinged: Option<Time>,
    failures: u32,
    /// True if the server has confirmed a subscription on this connection.
    has_worked: bool,
    /// True if the server belongs to a cluster, so that its names may move to another one.
    follows: bool,
    /// True if names must be sent again.
    has_astray: bool,
    /// True if the socket took less than was offered.
    pub send_blocked: bool,
}

impl Default for SubscriberLink {
    fn default() -> Self {
        Self {
            state: SubscriberState::Idle,
            wants: Default::default(),
            expected: VecDeque::new(),
            tickets: 0,
            output: Output::default(),
            input: Vec::new(),
            input_needed: 0,
            framer: Framer::default(),
            heard: Time(0),
            pinged: None,
            failures: 0,
            has_worked: false,
            follows: false,
            has_astray: false,
            send_blocked: false,
        }
    }
}

impl SubscriberLink {
    /// Creates a link to a server of a cluster.
    pub fn of_cluster() -> SubscriberLink {
        SubscriberLink { follows: true, ..SubscriberLink::default() }
    }

    /// Returns the state of the connection.
    pub fn state(&self) -> SubscriberState {
        self.state
    }

    /// Returns whether any name is wanted.
    pub fn is_needed(&self) -> bool {
        self.wants.iter().any(|wants| !wants.is_empty())
    }

    /// Returns whether it has a connection, or is opening one.
    pub fn is_standing(&self) -> bool {
        !matches!(self.state, SubscriberState::Idle | SubscriberState::Backoff { .. })
    }

    /// Returns the number of wanted names of all kinds.
    pub fn wanted(&self) -> usize {
        self.wants.iter().map(IndexMap::len).sum()
    }

    /// Returns whether this name is wanted here.
    pub fn wants(&self, kind: SubscriptionKind, name: &[u8]) -> bool {
        self.wants[kind as usize].contains_key(name)
    }

    /// Returns whether every message for this name arrives.
    pub fn is_active(&self, kind: SubscriptionKind, name: &[u8]) -> bool {
        self.wants[kind as usize].get(name) == Some(&Want::Active)
    }

    /// Returns whether connecting failed a short time ago.
    pub fn is_down(&self, now: Time) -> bool {
        matches!(self.state, SubscriberState::Backoff { until } if now < until)
    }

    /// Returns whether a connection must be opened.
    pub fn wants_connection(&self, now: Time) -> bool {
        self.is_needed()
            && match self.state {
                SubscriberState::Idle => true,
                SubscriberState::Backoff { until } => now >= until,
                _ => false,
            }
    }

    /// Subscribes to `name`, unless it is subscribed already.
    pub fn want(&mut self, kind: SubscriptionKind, name: &Name, now: Time) {
        if self.wants(kind, name) {
            return;
        }
        self.wants[kind as usize].insert(Name::clone(name), Want::Unsent);
        if self.state == SubscriberState::Ready {
            self.send(kind, name, true, now);
        }
    }

    /// Ends the subscription to `name`.
    pub fn unwant(&mut self, kind: SubscriptionKind, name: &Name, now: Time) {
        let want = self.wants[kind as usize].swap_remove(&**name);
        if self.state == SubscriberState::Ready && want.is_some_and(|want| want != Want::Unsent) {
            self.send(kind, name, false, now);
        }
    }

    fn send(&mut self, kind: SubscriptionKind, name: &Name, subscribes: bool, now: Time) {
        let out = self.output.buf();
        reply::array(out, 2);
        reply::bulk(out, kind.word(subscribes).as_bytes());
        reply::bulk(out, name);
        self.tickets += 1;
        let (name, ticket) = (Name::clone(name), self.tickets);
        if let Some(want) = self.wants[kind as usize].get_mut(&*name).filter(|_| subscribes) {
            *want = Want::Sent(ticket);
        }
        self.expected.push_back(Expected { kind, subscribes, name, ticket, sent: now });
    }

    /// Notes that a connection is being opened.
    pub fn on_connecting(&mut self, options: &LinkOptions, now: Time) {
        self.state = SubscriberState::Connecting { deadline: now + options.connect_timeout };
    }

    /// Notes that the connection is established.
    pub fn on_connected(&mut self, options: &LinkOptions, now: Time) {
        self.heard = now;
        self.pinged = None;
        self.has_worked = false;
        let Some(password) = &options.password else { return self.on_ready(now) };
        let out = self.output.buf();
        reply::array(out, 2);
        reply::bulk(out, b"AUTH");
        reply::bulk(out, password.as_bytes());
        self.state = SubscriberState::Handshaking { deadline: now + options.connect_timeout };
    }

    fn on_ready(&mut self, now: Time) {
        self.state = SubscriberState::Ready;
        for kind in SubscriptionKind::ALL {
            let names: Vec<Name> = self.wants[kind as usize].keys().cloned().collect();
            names.iter().for_each(|name| self.send(kind, name, true, now));
        }
    }

    /// Notes that the connection is lost, or could not be opened. Nothing is active any more.
    /// `jitter` shortens the pause before the next attempt randomly.
    pub fn on_lost(&mut self, options: &LinkOptions, now: Time, jitter: u64) {
        self.wants.iter_mut().flat_map(IndexMap::values_mut).for_each(|want| *want = Want::Unsent);
        self.expected.clear();
        self.output.clear();
        self.input = Vec::new();
        self.input_needed = 0;
        self.framer.reset();
        self.pinged = None;
        self.send_blocked = false;
        let was_idle = !self.is_needed();
        self.state = if was_idle || self.has_worked {
            SubscriberState::Idle
        } else {
            self.failures += 1;
            let doubled = options.backoff_min * (1 << (self.failures - 1).min(16));
            let longest = doubled.min(options.backoff_max);
            let share = 500_000 + (jitter % 500_000) as u32;
            SubscriberState::Backoff { until: now + longest * share / 1_000_000 }
        };
        self.has_worked = false;
        self.has_astray = false;
    }

    /// Asks again for the names that the server did not have, or no longer had.
    pub fn ask_again(&mut self, now: Time) {
        if self.state != SubscriberState::Ready || !std::mem::take(&mut self.has_astray) {
            return;
        }
        for kind in SubscriptionKind::ALL {
            let wants = self.wants[kind as usize].iter();
            let astray = wants.filter(|(_, want)| **want == Want::Unsent);
            let names: Vec<Name> = astray.map(|(name, _)| Name::clone(name)).collect();
            names.iter().for_each(|name| self.send(kind, name, true, now));
        }
    }

    /// Returns what can be sent now.
    pub fn unsent(&self) -> &[u8] {
        match self.state {
            SubscriberState::Ready | SubscriberState::Handshaking { .. } => self.output.unsent(),
            _ => &[],
        }
    }

    /// Notes that the socket took `len` bytes of [`SubscriberLink::unsent`].
    pub fn advance(&mut self, len: usize) {
        self.output.advance(len);
    }

    /// Handles bytes from the server and passes their content to `hear`.
    ///
    /// # Errors
    /// Returns an error if the server violates the protocol or refuses the handshake. The
    /// connection must then be closed.
    pub fn handle_input(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        now: Time,
        mut hear: impl FnMut(Heard<'_>),
    ) -> Result<(), BackendFault> {
        self.heard = now;
        self.pinged = None;
        if self.input.is_empty() {
            let consumed = self.take_frames(bytes, limits, now, &mut hear)?;
            self.input.extend_from_slice(&bytes[consumed..]);
            return Ok(());
        }
        self.input.extend_from_slice(bytes);
        if self.input.len() < self.input_needed {
            return Ok(());
        }
        let mut input = std::mem::take(&mut self.input);
        let consumed = self.take_frames(&input, limits, now, &mut hear)?;
        input.drain(..consumed);
        if !input.is_empty() || input.capacity() <= INPUT_KEPT_MAX {
            self.input = input;
        }
        Ok(())
    }

    fn take_frames(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        now: Time,
        hear: &mut impl FnMut(Heard<'_>),
    ) -> Result<usize, BackendFault> {
        let mut pos = 0;
        while pos < bytes.len() {
            let rest = &bytes[pos..];
            match self.framer.frame(rest, limits.reply_len_max, limits.reply_depth_max) {
                Ok(Framing::Ready { len, kind }) => {
                    pos += len;
                    self.take_frame(kind, &rest[..len], now, hear)?;
                }
                Ok(Framing::NeedMore { at_least }) => {
                    self.input_needed = at_least;
                    break;
                }
                Err(FramingFault::Protocol) => return Err(BackendFault::Protocol),
                Err(FramingFault::TooLong) => return Err(BackendFault::Reply(ReplyBound::Len)),
                Err(FramingFault::TooDeep) => return Err(BackendFault::Reply(ReplyBound::Depth)),
            }
        }
        Ok(pos)
    }

    #[inline]
    fn take_frame(
        &mut self,
        kind: Kind,
        frame: &[u8],
        now: Time,
        hear: &mut impl FnMut(Heard<'_>),
    ) -> Result<(), BackendFault> {
        if matches!(self.state, SubscriberState::Handshaking { .. }) {
            if kind != Kind::Simple {
                let is_full = frame.starts_with(NO_ROOM);
                return Err(if is_full { BackendFault::Full } else { BackendFault::Handshake });
            }
            self.on_ready(now);
            return Ok(());
        }
        match kind {
            Kind::Array => match read_push(frame) {
                Some(Pushed::Message { kind, name }) => {
                    hear(Heard::Message { kind, name, frame });
                    Ok(())
                }
                Some(Pushed::Changed { kind, subscribes, name }) => {
                    if self.follows && !self.is_expected(kind, subscribes, name) {
                        return self.take_end(kind, subscribes, name, frame, hear);
                    }
                    self.take_change(kind, subscribes, name, hear)
                }
                Some(Pushed::Pong) => Ok(()),
                None => Err(BackendFault::Protocol),
            },
            // The error concerns the connection, and not a name.
            Kind::Error if !self.has_worked && frame.starts_with(NO_ROOM) => {
                Err(BackendFault::Full)
            }
            Kind::Error => self.take_refusal(frame, hear),
            // This is the answer to PING while nothing is subscribed.
            Kind::Simple => Ok(()),
            _ => Err(BackendFault::Protocol),
        }
    }

    fn is_expected(&self, kind: SubscriptionKind, subscribes: bool, name: Option<&[u8]>) -> bool {
        self.expected.front().is_some_and(|expected| {
            expected.kind == kind
                && expected.subscribes == subscribes
                && name == Some(&expected.name)
        })
    }

    /// Handles that the slot of a shard channel has left the server, which then ends the
    /// subscriptions.
    #[cold]
    fn take_end(
        &mut self,
        kind: SubscriptionKind,
        subscribes: bool,
        name: Option<&[u8]>,
        frame: &[u8],
        hear: &mut impl FnMut(Heard<'_>),
    ) -> Result<(), BackendFault> {
        let Some(name) = name.filter(|_| kind == SubscriptionKind::Shard && !subscribes) else {
            return Err(BackendFault::Protocol);
        };
        let want = self.wants[kind as usize].get_mut(name);
        if let Some(want) = want.filter(|want| **want == Want::Active) {
            *want = Want::Unsent;
            self.has_astray = true;
            hear(Heard::Astray { name, said: frame });
        }
        Ok(())
    }

    fn take_change(
        &mut self,
        kind: SubscriptionKind,
        subscribes: bool,
        name: Option<&[u8]>,
        hear: &mut impl FnMut(Heard<'_>),
    ) -> Result<(), BackendFault> {
        let Some(expected) = self.expected.pop_front() else { return Err(BackendFault::Protocol) };
        let is_it = expected.kind == kind
            && expected.subscribes == subscribes
            && name == Some(&expected.name);
        if !is_it {
            return Err(BackendFault::Protocol);
        }
        let want = self.wants[kind as usize].get_mut(&*expected.name);
        if let Some(want) = want.filter(|want| **want == Want::Sent(expected.ticket)) {
            *want = Want::Active;
            self.has_worked = true;
            self.failures = 0;
            hear(Heard::Confirmed { kind, name: &expected.name });
        }
        Ok(())
    }

    fn take_refusal(
        &mut self,
        reply: &[u8],
        hear: &mut impl FnMut(Heard<'_>),
    ) -> Result<(), BackendFault> {
        let Some(expected) = self.expected.pop_front() else { return Err(BackendFault::Protocol) };
        let Expected { kind, subscribes, name, ticket, .. } = expected;
        if !subscribes {
            // A subscription that cannot be ended would continue unnoticed.
            return Err(BackendFault::Protocol);
        }
        if self.wants[kind as usize].get(&*name) == Some(&Want::Sent(ticket)) {
            if self.follows && Redirection::of(reply).is_some() {
                hear(Heard::Astray { name: &name, said: reply });
                self.wants[kind as usize].insert(name, Want::Unsent);
                self.has_astray = true;
                return Ok(());
            }
            self.wants[kind as usize].swap_remove(&*name);
            hear(Heard::Refused { kind, name: &name, reply });
        }
        Ok(())
    }

    /// Handles timeouts: pings a silent server.
    ///
    /// # Errors
    /// Returns an error if the connection is dead: it took too long to be established, or the
    /// server stays silent.
    pub fn handle_timeout(&mut self, now: Time) -> Result<(), BackendFault> {
        match self.state {
            SubscriberState::Connecting { deadline }
            | SubscriberState::Handshaking { deadline }
                if now >= deadline =>
            {
                Err(BackendFault::Connect)
            }
            SubscriberState::Ready => {
                let oldest = self.expected.front().map(|expected| expected.sent.max(self.heard));
                if oldest.or(self.pinged).is_some_and(|since| now >= since + SILENT_MAX) {
                    return Err(BackendFault::Timeout);
                }
                if self.pinged.is_none() && now >= self.heard + PING_AFTER {
                    self.pinged = Some(now);
                    let out = self.output.buf();
                    reply::array(out, 1);
                    reply::bulk(out, b"PING");
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
