//! Subscriptions, messages, and the protocol that a client uses.

use super::verdict::{excusing_since, fate_of};
use super::*;
use crate::ledger::{ChannelKind, Subscription};
use std::collections::BTreeMap;

/// Number of channel names that the clients of a pool have in common.
const CHANNELS: usize = 4;

/// A request about channels, or about the connection as a whole.
pub(super) enum Told {
    /// Subscribes to one name or ends that. `None` ends all subscriptions of the kind.
    Change {
        kind: ChannelKind,
        subscribes: bool,
        name: Option<Vec<u8>>,
    },
    Publish {
        channel: Vec<u8>,
        number: u64,
    },
    Ping {
        tag: Vec<u8>,
    },
    /// A command that a subscriber with RESP2 must not send.
    Bound {
        key: Vec<u8>,
    },
    Hello {
        is_resp3: bool,
    },
    Reset,
}

/// A client's view of the state on which pushes depend.
#[derive(Default)]
pub(super) struct Hearing {
    /// The subscriptions, as of the replies read.
    subscriptions: BTreeMap<(ChannelKind, Vec<u8>), Subscription>,
    is_resp3: bool,
    /// True if the client may have subscriptions, as of what was asked.
    has_asked: bool,
    asks_resp3: bool,
}

impl Hearing {
    /// Returns whether the client uses RESP3, as of what was asked.
    pub(super) fn asks_resp3(&self) -> bool {
        self.asks_resp3
    }

    fn count_told(&self, kind: ChannelKind) -> usize {
        let is_shard = kind == ChannelKind::Shard;
        let kinds = self.subscriptions.keys();
        kinds.filter(|(other, _)| (*other == ChannelKind::Shard) == is_shard).count()
    }

    /// Returns whether a reply is in the protocol in use.
    fn is_spoken(&self, value: &Value) -> bool {
        match value {
            Value::Null | Value::Push(_) => self.is_resp3,
            Value::Map(items) => self.is_resp3 && items.iter().all(|item| self.is_spoken(item)),
            Value::Bulk(None) | Value::Array(None) => !self.is_resp3,
            Value::Array(Some(items)) => items.iter().all(|item| self.is_spoken(item)),
            _ => true,
        }
    }
}

/// Converts a reply to its form in RESP2, except for maps.
fn plain(value: Value, null: &Value) -> Value {
    match value {
        Value::Null => null.clone(),
        Value::Array(Some(items)) => {
            let items = items.into_iter().map(|item| plain(item, &Value::Bulk(None)));
            Value::Array(Some(items.collect()))
        }
        other => other,
    }
}

fn bulk(value: Option<&Value>) -> Option<&[u8]> {
    match value {
        Some(Value::Bulk(Some(bytes))) => Some(bytes),
        _ => None,
    }
}

impl Client {
    /// Resets the state for a new connection: no subscriptions, and RESP2.
    pub(super) fn forget_hearing(&mut self) {
        self.hearing = Hearing::default();
        self.cache.forget();
    }

    /// Returns whether the client may send almost no command, because it may be a subscriber with
    /// RESP2.
    pub(super) fn is_bound(&mut self) -> bool {
        let hearing = &mut self.hearing;
        if self.expected.is_empty() && hearing.subscriptions.is_empty() {
            hearing.has_asked = false;
        }
        hearing.has_asked && !hearing.asks_resp3
    }

    fn tell(&mut self, now: Nanos, told: Told) {
        self.expect(now, Ask::Told(told), Vec::new());
    }

    fn pick_channel(&mut self) -> Vec<u8> {
        let owner = format!("pool{}", self.habits.pool);
        key_name('m', 0, &owner, self.random.index(CHANNELS), false)
    }

    fn pick_name(&mut self, kind: ChannelKind) -> Vec<u8> {
        match kind {
            ChannelKind::Pattern => {
                let owner = format!("m0:pool{}:", self.habits.pool);
                let end = self.random.pick(&["*", "[01]", "?", "2"]);
                [owner.as_bytes(), end.as_bytes()].concat()
            }
            _ => self.pick_channel(),
        }
    }

    /// Asks one of the requests of this file, or none. Returns whether it did.
    pub(super) fn ask_of_state(&mut self, now: Nanos, ledger: &mut Ledger) -> bool {
        if self.is_silent {
            return false;
        }
        if self.habits.channels && self.random.percent(20) {
            self.ask_channels(now, ledger);
            return true;
        }
        if self.habits.greets && self.attempt.is_none() && self.random.percent(4) {
            self.ask_greeting(now);
            return true;
        }
        if self.habits.tracks && self.random.percent(25) {
            self.ask_cached(now, ledger);
            return true;
        }
        false
    }

    fn ask_channels(&mut self, now: Nanos, ledger: &mut Ledger) {
        let may_subscribe = self.hearing.asks_resp3 || self.attempt.is_none();
        match self.random.below(100) {
            0..15 if may_subscribe => self.ask_change(now, true),
            15..25 if self.hearing.has_asked => self.ask_change(now, false),
            _ => self.ask_publish(now, ledger),
        }
    }

    fn ask_publish(&mut self, now: Nanos, ledger: &mut Ledger) {
        let kind = self.random.pick(&[ChannelKind::Channel, ChannelKind::Shard]);
        let command: &[u8] = match kind {
            ChannelKind::Shard => b"SPUBLISH",
            _ => b"PUBLISH",
        };
        let channel = self.pick_channel();
        let publisher = (self.index, self.connections_left);
        let number = ledger.new_message(self.habits.pool, (kind, &channel), publisher, now);
        let len = self.random.scaled(1, 200) as usize;
        let payload = value::compose(&channel, number, len);
        write_request(&mut self.output, &[command, &channel, &payload]);
        self.tell(now, Told::Publish { channel, number });
    }

    /// Publishes a large message. Only clients that do not read subscribe to its channel.
    pub(super) fn ask_loud(&mut self, now: Nanos, ledger: &mut Ledger) {
        let channel = super::mute::loud_channel(self.habits.pool);
        let publisher = (self.index, self.connections_left);
        let place = (ChannelKind::Channel, &channel[..]);
        let number = ledger.new_message(self.habits.pool, place, publisher, now);
        let len = self.value_len();
        let payload = value::compose(&channel, number, len);
        write_request(&mut self.output, &[b"PUBLISH", &channel, &payload]);
        self.tell(now, Told::Publish { channel, number });
    }

    /// Subscribes to some names, or ends some subscriptions.
    fn ask_change(&mut self, now: Nanos, subscribes: bool) {
        let kind = self.random.pick(&ChannelKind::ALL);
        let count = self.random.between(1, 3);
        let names: Vec<_> = (0..count).map(|_| self.pick_name(kind)).collect();
        let word = kind.word(subscribes);
        if !subscribes && self.expected.is_empty() && self.random.percent(40) {
            write_request(&mut self.output, &[word.as_bytes()]);
            let them = self.hearing.subscriptions.keys();
            let count = them.filter(|(other, _)| *other == kind).count().max(1);
            (0..count).for_each(|_| self.tell(now, Told::Change { kind, subscribes, name: None }));
            return;
        }
        let mut args = vec![word.as_bytes()];
        args.extend(names.iter().map(Vec::as_slice));
        write_request(&mut self.output, &args);
        self.hearing.has_asked |= subscribes;
        for name in names {
            self.tell(now, Told::Change { kind, subscribes, name: Some(name) });
        }
    }

    /// Asks what a subscriber with RESP2 may ask, or what it may not.
    pub(super) fn ask_bound(&mut self, now: Nanos) {
        match self.random.below(100) {
            0..30 => self.ask_change(now, true),
            30..70 => self.ask_change(now, false),
            70..85 => {
                self.tags += 1;
                let tag = format!("tag-{}-{}", self.index, self.tags).into_bytes();
                write_request(&mut self.output, &[b"PING", &tag]);
                self.tell(now, Told::Ping { tag });
            }
            85..95 => {
                let key = key_name('e', self.database as u32, "nobody", self.index, false);
                write_request(&mut self.output, &[b"EXISTS", &key]);
                self.tell(now, Told::Bound { key });
            }
            _ => self.ask_reset(now),
        }
    }

    /// Sends `HELLO` or `RESET`.
    fn ask_greeting(&mut self, now: Nanos) {
        let may_change = !self.hearing.has_asked;
        match self.random.below(100) {
            0..20 => self.ask_reset(now),
            20..80 => self.ask_hello(now, true),
            _ if may_change && !self.cache.asks_tracking() => self.ask_hello(now, false),
            _ => self.ask_hello(now, self.hearing.asks_resp3),
        }
    }

    pub(super) fn ask_hello(&mut self, now: Nanos, is_resp3: bool) {
        let version: &[u8] = if is_resp3 { b"3" } else { b"2" };
        write_request(&mut self.output, &[b"HELLO", version]);
        self.hearing.asks_resp3 = is_resp3;
        self.tell(now, Told::Hello { is_resp3 });
    }

    fn ask_reset(&mut self, now: Nanos) {
        write_request(&mut self.output, &[b"RESET"]);
        self.tell(now, Told::Reset);
        self.hearing.asks_resp3 = false;
        self.hearing.has_asked = false;
        self.cache.on_reset_asked();
        self.database = 0;
        self.ask_auth(now);
    }

    /// Handles what the proxy sent: a push, or the next reply. Replies are converted to RESP2.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub(super) fn hear(
        &mut self,
        value: Value,
        ledger: &mut Ledger,
    ) -> Result<Option<Value>, String> {
        let (Value::Push(items) | Value::Array(Some(items))) = &value else {
            return self.hear_reply(value).map(Some);
        };
        let is_push = matches!(value, Value::Push(_));
        let word = bulk(items.first()).unwrap_or_default();
        let kind = ChannelKind::ALL.into_iter().find(|kind| kind.message_word().as_bytes() == word);
        if let Some(kind) = kind {
            if is_push != self.hearing.is_resp3 {
                return Err("a message in the wrong protocol".into());
            }
            return self.hear_message(kind, items, ledger).map(|()| None);
        }
        if is_push && word == b"invalidate" {
            return self.hear_invalidation(items.get(1), ledger).map(|()| None);
        }
        self.hear_reply(value).map(Some)
    }

    fn hear_reply(&mut self, value: Value) -> Result<Value, String> {
        let front = self.expected.front().map(|expected| &expected.ask);
        if let Some(Ask::Told(Told::Hello { is_resp3 })) = front {
            self.hearing.is_resp3 = *is_resp3;
        }
        if !self.hearing.is_spoken(&value) {
            return Err("a reply in the wrong protocol".into());
        }
        let is_change = matches!(front, Some(Ask::Told(Told::Change { .. })));
        let null = front.map_or(Value::Bulk(None), Ask::null);
        match value {
            Value::Push(items) if is_change => Ok(plain(Value::Array(Some(items)), &null)),
            Value::Push(_) => Err("a push that nobody asked for".into()),
            Value::Array(Some(_)) if is_change && self.hearing.is_resp3 => {
                Err("a confirmation that is no push".into())
            }
            other => Ok(plain(other, &null)),
        }
    }

    fn hear_message(
        &mut self,
        kind: ChannelKind,
        items: &[Value],
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let rest: Vec<_> = items[1..].iter().map(|item| bulk(Some(item))).collect();
        let (name, channel, payload) = match (kind, &rest[..]) {
            (ChannelKind::Pattern, [Some(name), Some(channel), Some(payload)]) => {
                (*name, *channel, *payload)
            }
            (ChannelKind::Channel | ChannelKind::Shard, [Some(channel), Some(payload)]) => {
                (*channel, *channel, *payload)
            }
            _ => return Err("a message of another form".into()),
        };
        let subscription = self.hearing.subscriptions.get_mut(&(kind, name.to_vec()));
        let Some(subscription) = subscription else {
            return Err(format!("a message to who has not subscribed to {}", clip(name)));
        };
        ledger.on_told((kind, name), subscription, channel, payload)
    }

    pub(super) fn check_told(
        &mut self,
        expected: &Expected,
        told: &Told,
        value: &Value,
        now: Nanos,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let is_subscriber = !self.hearing.subscriptions.is_empty();
        match (told, value) {
            (Told::Bound { .. }, Value::Error(text)) if is_subscriber => {
                let text = String::from_utf8_lossy(text);
                let fine = text.starts_with("ERR Can't execute 'exists'");
                fine.then_some(()).ok_or_else(|| "not the refusal wanted".into())
            }
            (Told::Bound { .. }, Value::Integer(0)) if !is_subscriber => Ok(()),
            (_, Value::Error(text)) => {
                let text = String::from_utf8_lossy(text).into_owned();
                self.check_told_error(expected, told, &text, now, ledger)
            }
            (Told::Change { kind, subscribes, name }, Value::Array(Some(items))) => {
                let change = (*kind, *subscribes, name.as_deref());
                self.check_change(change, items, (expected.asked_at, now), ledger)
            }
            (Told::Publish { number, .. }, Value::Integer(0..)) => {
                ledger.on_publish_acknowledged(*number, now);
                Ok(())
            }
            (Told::Ping { tag }, value) => {
                let tag = Value::Bulk(Some(tag.clone()));
                let wanted = match is_subscriber {
                    true => Value::Array(Some(vec![Value::Bulk(Some(b"pong".to_vec())), tag])),
                    false => tag,
                };
                (*value == wanted).then_some(()).ok_or_else(|| format!("not {}", wanted.show()))
            }
            (Told::Hello { is_resp3 }, Value::Map(items) | Value::Array(Some(items))) => {
                let is_map = matches!(value, Value::Map(_));
                let version = Value::Integer(if *is_resp3 { 3 } else { 2 });
                let place = items.iter().position(|item| bulk(Some(item)) == Some(b"proto"));
                let told = place.and_then(|place| items.get(place + 1));
                let fine = is_map == *is_resp3 && told == Some(&version);
                fine.then_some(()).ok_or_else(|| "another protocol than wanted".into())
            }
            (Told::Reset, Value::Simple(text)) if text == b"RESET" => {
                let ended = std::mem::take(&mut self.hearing.subscriptions);
                self.hearing.is_resp3 = false;
                self.cache.on_reset();
                let pool = self.habits.pool;
                ended.iter().try_for_each(|((kind, name), subscription)| {
                    ledger.check_subscription(pool, (*kind, name), subscription, expected.asked_at)
                })
            }
            _ => Err("an answer of another kind than wanted".into()),
        }
    }

    fn check_change(
        &mut self,
        (kind, subscribes, wanted): (ChannelKind, bool, Option<&[u8]>),
        items: &[Value],
        (asked_at, now): (Nanos, Nanos),
        ledger: &Ledger,
    ) -> Result<(), String> {
        let [Value::Bulk(Some(word)), name, Value::Integer(count)] = items else {
            return Err("a confirmation of another form".into());
        };
        let name = bulk(Some(name));
        let them = &mut self.hearing.subscriptions;
        let is_it = match (wanted, name) {
            (Some(wanted), name) => name == Some(wanted),
            (None, Some(name)) => them.contains_key(&(kind, name.to_vec())),
            (None, None) => them.keys().all(|(other, _)| *other != kind),
        };
        if word != kind.word(subscribes).as_bytes() || !is_it {
            return Err("a confirmation of something else".into());
        }
        if let Some(name) = name {
            let place = (kind, name.to_vec());
            if subscribes {
                them.entry(place).or_insert_with(|| Subscription::new(now));
            } else if let Some(ended) = them.remove(&place) {
                ledger.check_subscription(self.habits.pool, (kind, name), &ended, asked_at)?;
            }
        }
        let wanted = self.hearing.count_told(kind);
        let fine = usize::try_from(*count) == Ok(wanted);
        fine.then_some(()).ok_or_else(|| format!("but it has {wanted} subscriptions"))
    }

    fn check_told_error(
        &mut self,
        expected: &Expected,
        told: &Told,
        text: &str,
        now: Nanos,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let pool = self.habits.pool;
        let (servers, names) = match told {
            Told::Change { kind: ChannelKind::Pattern, subscribes: true, .. } => {
                (ledger.servers_of(pool), Vec::new())
            }
            Told::Change { subscribes: true, name: Some(name), .. } => {
                (ledger.possible_homes(pool, name), vec![name.clone()])
            }
            Told::Publish { channel, .. } => {
                (ledger.possible_homes(pool, channel), vec![channel.clone()])
            }
            Told::Bound { key } => (ledger.possible_homes(pool, key), vec![key.clone()]),
            _ => return Err("an error for no reason".into()),
        };
        let fate = fate_of(text, &names)?;
        if !ledger.is_excused(&servers, excusing_since(text, expected.asked_at), now) {
            return Err("an error for no reason".into());
        }
        ledger.excused += 1;
        match told {
            Told::Publish { number, .. } => ledger.on_publish_failed(*number, fate),
            Told::Change { kind, name: Some(name), .. } => {
                let place = (*kind, name.clone());
                if self.hearing.subscriptions.contains_key(&place) {
                    return Err("although it has subscribed".into());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks, when everything has settled, that the client received all messages that it must
    /// have.
    ///
    /// # Errors
    /// Returns what it did not receive.
    pub fn check_told_all(&self, ledger: &Ledger, now: Nanos) -> Result<(), String> {
        if !self.is_connected() {
            return Ok(());
        }
        let pool = self.habits.pool;
        for ((kind, name), subscription) in &self.hearing.subscriptions {
            let outcome = ledger.check_subscription(pool, (*kind, name), subscription, now);
            outcome.map_err(|fault| format!("client {}: {fault}", self.index))?;
        }
        self.check_cache(ledger, now).map_err(|fault| format!("client {}: {fault}", self.index))
    }

    /// Returns whether something may arrive that the client has not asked for.
    pub(super) fn may_be_told(&self) -> bool {
        self.hearing.is_resp3 || !self.hearing.subscriptions.is_empty()
    }

    /// Leaves for the last time.
    pub fn leave_for_good(&mut self, network: &mut Network, ledger: &mut Ledger) {
        self.connections_left = 0;
        self.leave(network, ledger, false);
    }
}

impl Told {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Told::Change { kind, subscribes, .. } => kind.word(*subscribes),
            Told::Publish { .. } => "PUBLISH",
            Told::Ping { .. } => "PING",
            Told::Bound { .. } => "EXISTS",
            Told::Hello { .. } => "HELLO",
            Told::Reset => "RESET",
        }
    }
}
