//! The messages of a simulated server to subscribers, and the protocol of its connections.

use super::*;
use crate::ledger::ChannelKind;
use crate::wire::Value;
use std::collections::BTreeSet;

/// The subscriptions of a connection, by the number of the kind.
pub(super) type Heard = [BTreeSet<Vec<u8>>; 3];

impl Server {
    /// Answers `HELLO`.
    pub(super) fn greet(
        &mut self,
        position: usize,
        args: &[Vec<u8>],
        now: Nanos,
        reply: &mut Vec<u8>,
    ) {
        let conn = &mut self.conns[position];
        let is_known = self.password.is_none() || self.password.as_ref() == args.get(4);
        let text: &[u8] = match () {
            () if !self.knows_hello => b"-ERR unknown command 'HELLO'\r\n",
            () if !is_known || now < self.mood.refusing_until => b"-WRONGPASS invalid password\r\n",
            () => {
                conn.is_resp3 = true;
                conn.authenticated = true;
                b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"
            }
        };
        reply.extend_from_slice(text);
    }

    /// Rewrites a reply if the connection uses RESP3.
    pub(super) fn translate(&self, position: usize, reply: &mut Vec<u8>) {
        if !self.conns[position].is_resp3 {
            return;
        }
        let mut written = Vec::new();
        let mut at = 0;
        while let Ok(Some((value, next))) = parse_value(reply, at) {
            write_resp3(&mut written, &value);
            at = next;
        }
        *reply = written;
    }

    /// Answers a request about channels. Returns whether it did.
    pub(super) fn answer_channels(
        &mut self,
        position: usize,
        name: &[u8],
        args: &[Vec<u8>],
        (now, is_straggler): (Nanos, bool),
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) -> bool {
        let conn = &self.conns[position];
        let is_subscriber = !conn.is_resp3 && conn.heard.iter().any(|names| !names.is_empty());
        let change = ChannelKind::of(name);
        if is_subscriber && change.is_none() {
            ledger.fail(|| format!("a server was sent {} by a subscriber", clip(name)));
        }
        if let Some((kind, subscribes)) = change {
            for channel in &args[1..] {
                self.change((kind, subscribes), position, channel, ledger, reply);
            }
            return true;
        }
        let kind = match name {
            b"PUBLISH" => ChannelKind::Channel,
            b"SPUBLISH" => ChannelKind::Shard,
            _ => return false,
        };
        let (channel, payload) = (&args[1], &args[2]);
        self.check_channel(channel, ledger);
        ledger.on_published((kind, channel), payload, self.index, now, is_straggler);
        let count = self.tell_all(kind, channel, payload);
        reply.extend_from_slice(format!(":{count}\r\n").as_bytes());
        true
    }

    fn change(
        &mut self,
        (kind, subscribes): (ChannelKind, bool),
        position: usize,
        channel: &[u8],
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) {
        if kind != ChannelKind::Pattern && subscribes {
            self.check_channel(channel, ledger);
        }
        let heard = &mut self.conns[position].heard;
        let has_changed = match subscribes {
            true => heard[kind as usize].insert(channel.to_vec()),
            false => heard[kind as usize].remove(channel),
        };
        if !has_changed {
            let what = if subscribes { "begun twice" } else { "ended twice" };
            ledger.fail(|| format!("the subscription to {} is {what}", clip(channel)));
        }
        let count = heard.iter().map(BTreeSet::len).sum::<usize>();
        let word = kind.word(subscribes).as_bytes().to_vec();
        let items = [Value::Bulk(Some(word)), Value::Bulk(Some(channel.to_vec()))];
        reply.extend_from_slice(b"*3\r\n");
        items.iter().for_each(|item| write_resp3(reply, item));
        reply.extend_from_slice(format!(":{count}\r\n").as_bytes());
    }

    /// Sends a message to every subscribed connection. Returns how often.
    fn tell_all(&mut self, kind: ChannelKind, channel: &[u8], payload: &[u8]) -> u64 {
        let mut count = 0;
        let is_due = self.served >= self.defect_after;
        let is_there = |conn: &&mut ServerConn| !conn.dead && !conn.closing && !conn.broken;
        for conn in self.conns.iter_mut().filter(is_there) {
            let mut parts: Vec<Vec<&[u8]>> = Vec::new();
            if conn.heard[kind as usize].contains(channel) {
                parts.push(vec![kind.message_word().as_bytes(), channel, payload]);
            }
            if kind == ChannelKind::Channel {
                let patterns = conn.heard[ChannelKind::Pattern as usize].iter();
                let fitting =
                    patterns.filter(|pattern| keyway_base::glob::matches(pattern, channel));
                parts.extend(
                    fitting.map(|pattern| vec![&b"pmessage"[..], pattern, channel, payload]),
                );
            }
            let frames: Vec<_> = parts
                .iter()
                .map(|part| {
                    let mut frame = format!("*{}\r\n", part.len()).into_bytes();
                    part.iter().for_each(|bytes| write_bulk(&mut frame, bytes));
                    frame
                })
                .collect();
            count += frames.len() as u64;
            for frame in frames {
                let defect = if is_due { &mut self.defect } else { &mut None };
                send(conn, frame, defect);
            }
        }
        count
    }

    /// Checks that a channel is on the server where a key of its name would be.
    fn check_channel(&self, channel: &[u8], ledger: &mut Ledger) {
        let Some(known) = &ledger.pools[self.pool] else { return };
        // Messages of sentinels are for Keyway itself.
        let is_of_clients = known.is_static && !known.is_of_sentinels;
        if is_of_clients && ledger.home(self.pool, channel) != Some(self.index) {
            ledger.fail(|| format!("{} was looked for on server {}", clip(channel), self.index));
        }
    }
}

/// Sends a message, or does with it what the defect demands.
fn send(conn: &mut ServerConn, frame: Vec<u8>, defect: &mut Option<Defect>) {
    let output = &mut conn.output;
    match *defect {
        Some(Defect::LostMessage) => {}
        Some(Defect::DoubledMessage) => {
            *defect = None;
            output.extend_from_slice(&frame);
            output.extend_from_slice(&frame);
        }
        Some(Defect::SwappedMessages) => match conn.held_message.take() {
            None => conn.held_message = Some(frame),
            Some(first) => {
                output.extend_from_slice(&frame);
                output.extend_from_slice(&first);
            }
        },
        _ => output.extend_from_slice(&frame),
    }
}
