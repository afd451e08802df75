//! The flow of requests to links, and of replies from them.

use super::link::{Framer, Role, Sent};
use super::plain::render;
use super::state::{Fault, State};
use crate::error::Error;
use crate::greeting;
use crate::program::{Judge, Stamps};
use crate::reply::{self, DEPTH_MAX, LIMITS, REPLY_LEN_MAX, Told};
use keyway_memcache::{Expect, Wire};
use keyway_resp::Kind;
use std::sync::atomic::Ordering;

impl State {
    /// Lets a client send: it has nothing in flight, or room for more.
    #[inline]
    pub(super) fn rest(&mut self, client: u32) {
        let one = &mut self.clients[client as usize];
        if self.pace.is_none() {
            if one.in_flight == 0 {
                self.idle.push(client);
            }
        } else if !one.is_ready && one.in_flight < self.setup.plan.pipeline {
            one.is_ready = true;
            self.ready.push_back(client);
        }
    }

    /// Sends the next batch of a client in a closed loop.
    #[inline]
    pub(super) fn start_batch(&mut self, client: u32, now: u64) {
        // It may be here twice: it rested, and its connection came back.
        if !self.is_sending || self.clients[client as usize].in_flight > 0 {
            return;
        }
        let room = self.room(client);
        if self.is_plain {
            return self.issue_plain(client, room, now);
        }
        for _ in 0..room {
            self.issue(client, now);
        }
    }

    /// Returns the number of requests that a client may send now.
    #[inline]
    fn room(&mut self, client: u32) -> u64 {
        let pipeline = self.setup.plan.pipeline as u64;
        if self.setup.plan.calls.is_none() {
            return pipeline.min(self.quota);
        }
        let link = self.link_to(client, 0) as usize;
        let is_open = self.links[link].socket.is_some();
        pipeline.min(self.quota).min(if is_open { self.links[link].calls_left } else { 0 })
    }

    /// Sends all requests that are due in an open loop, as far as clients have room.
    pub(super) fn issue_due(&mut self, now: u64) {
        while self.is_sending && self.quota > 0 {
            let Some(pace) = &mut self.pace else { return };
            let due = pace.due();
            if due > now {
                return;
            }
            let Some(client) = self.ready.pop_front() else { return };
            self.clients[client as usize].is_ready = false;
            if self.room(client) == 0 {
                // It comes back with its next connection.
                continue;
            }
            if let Some(pace) = &mut self.pace {
                pace.advance();
            }
            self.issue(client, due);
            self.rest(client);
        }
    }

    /// Sends one request of a client. `at` is the time at which it is sent, or was due.
    #[inline]
    fn issue(&mut self, client: u32, at: u64) {
        let program = &self.setup.program;
        let one = &mut self.clients[client as usize];
        let op = program.next_op(&mut one.random);
        let spec = &program.ops[usize::from(op)];
        // ORDER: a number that only grows; nothing else goes by it.
        let newest = &self.setup.newest;
        let key = if spec.inserts {
            newest.fetch_add(1, Ordering::Relaxed) + 1
        } else if spec.is_write {
            let key = one.writes.next(&mut one.random, newest.load(Ordering::Relaxed));
            program.own(key, one.owner)
        } else {
            one.reads.next(&mut one.random, newest.load(Ordering::Relaxed))
        };
        let seed = one.random.next();
        one.in_flight += 1;
        self.in_flight += 1;
        self.quota -= 1;
        let pieces = spec.pieces;
        let sent = Sent { at, seed, key, op, hops: 0, role: Role::Step(0), join: 0 };
        if pieces > 1 {
            return self.put_pieces(client, sent, pieces);
        }
        self.put(client, sent, None);
    }

    /// Renders a step of a request into its link. `to` is the server of a redirect. A redirected
    /// request keeps its versions, which are in `self.again`.
    #[inline]
    pub(super) fn put(&mut self, client: u32, sent: Sent, to: Option<u16>) {
        let Role::Step(number) = sent.role else { return };
        let node = match to {
            Some(node) => node,
            None if self.slots.is_empty() => 0,
            None => self.node_of(&sent, number),
        };
        let index = self.link_to(client, node);
        let State { setup, links, clients, again, dirty, .. } = self;
        let one = &clients[client as usize];
        let link = &mut links[index as usize];
        render(&setup.program, one, link, (&sent, number), again);
        link.sent.push_back(sent);
        link.calls_left = link.calls_left.saturating_sub(1);
        if !link.is_dirty {
            link.is_dirty = true;
            dirty.push(index);
        }
    }

    fn node_of(&mut self, sent: &Sent, step: u8) -> u16 {
        let step = &self.setup.program.ops[usize::from(sent.op)].steps[usize::from(step)];
        match self.setup.program.slot(step, sent.key, &mut self.scratch) {
            Some(slot) => self.slots[usize::from(slot)],
            None => (sent.seed % self.setup.nodes.len() as u64) as u16,
        }
    }

    /// Reads the input of a link.
    #[inline]
    pub(super) fn input(&mut self, index: u32, bytes: &[u8], now: u64) -> Result<(), Fault> {
        self.last_progress = now;
        self.record.bytes_received += bytes.len() as u64;
        let link = &mut self.links[index as usize];
        if link.input.is_empty() {
            let taken = self.feed(index, bytes, now)?;
            if taken < bytes.len() {
                self.links[index as usize].input.extend_from_slice(&bytes[taken..]);
            }
            return Ok(());
        }
        link.input.extend_from_slice(bytes);
        if link.input.len() < link.needed {
            return Ok(());
        }
        let mut input = std::mem::take(&mut link.input);
        let taken = self.feed(index, &input, now)?;
        input.drain(..taken);
        let link = &mut self.links[index as usize];
        link.input = input;
        link.tidy();
        Ok(())
    }

    /// Handles every complete reply in `bytes`. Returns the bytes of these replies.
    fn feed(&mut self, index: u32, bytes: &[u8], now: u64) -> Result<usize, Fault> {
        if self.has_plain_replies(index) {
            return self.feed_plain(index, bytes, now);
        }
        match greeting::wire(self.setup.target.protocol) {
            None => self.feed_redis(index, bytes, now),
            Some(wire) => self.feed_memcached(index, bytes, wire, now),
        }
    }

    fn feed_redis(&mut self, index: u32, bytes: &[u8], now: u64) -> Result<usize, Fault> {
        let mut at = 0;
        while at < bytes.len() {
            let link = &mut self.links[index as usize];
            let Framer::Redis(framer) = &mut link.framer else { return Err(Fault::Protocol) };
            match framer.frame(&bytes[at..], REPLY_LEN_MAX, DEPTH_MAX) {
                Ok(keyway_resp::Framing::Ready { len, kind }) => {
                    // A push answers nothing.
                    if kind != Kind::Push {
                        self.on_reply(index, &bytes[at..at + len], None, kind, now)?;
                    }
                    at += len;
                }
                Ok(keyway_resp::Framing::NeedMore { at_least }) => {
                    link.needed = at_least;
                    break;
                }
                Err(_) => return Err(Fault::Protocol),
            }
        }
        Ok(at)
    }

    fn feed_memcached(
        &mut self,
        index: u32,
        bytes: &[u8],
        wire: Wire,
        now: u64,
    ) -> Result<usize, Fault> {
        let mut at = 0;
        while at < bytes.len() {
            let link = &mut self.links[index as usize];
            let Some(sent) = link.sent.front() else { return Err(Fault::Protocol) };
            let expect = match sent.role {
                Role::Step(step) => {
                    self.setup.program.ops[usize::from(sent.op)].steps[usize::from(step)].expect
                }
                _ => Expect::One,
            };
            let Framer::Memcached(framer) = &mut link.framer else { return Err(Fault::Protocol) };
            let framer = framer.get_or_insert_with(|| keyway_memcache::Framer::new(wire, expect));
            match framer.frame(&bytes[at..], &LIMITS) {
                Ok(keyway_memcache::Framing::Ready { len }) => {
                    link.framer = Framer::Memcached(None);
                    self.on_reply(index, &bytes[at..at + len], Some(wire), Kind::Simple, now)?;
                    at += len;
                }
                Ok(keyway_memcache::Framing::NeedMore { at_least }) => {
                    link.needed = at_least;
                    break;
                }
                Err(_) => return Err(Fault::Protocol),
            }
        }
        Ok(at)
    }

    /// Handles a complete reply.
    #[inline]
    fn on_reply(
        &mut self,
        index: u32,
        bytes: &[u8],
        wire: Option<Wire>,
        kind: Kind,
        now: u64,
    ) -> Result<(), Fault> {
        let link = &mut self.links[index as usize];
        let Some(sent) = link.sent.pop_front() else { return Err(self.unasked(bytes, kind)) };
        let client = link.client;
        let Role::Step(number) = sent.role else {
            self.on_other_reply(index, sent, (bytes, wire), kind, now);
            return Ok(());
        };
        let spec = &self.setup.program.ops[usize::from(sent.op)];
        let step = &spec.steps[usize::from(number)];
        let (judge, stamps) = (step.judge, step.stamps);
        let is_last = usize::from(number) + 1 == spec.steps.len();
        let is_piece = spec.pieces > 1;
        let told = match wire {
            None => reply::redis(bytes, kind, judge),
            Some(wire) => reply::memcached(bytes, wire, judge),
        };
        let is_failed = told.error.is_some();
        if let Some(text) = told.error
            && !self.slots.is_empty()
            && self.redirect(index, sent, text)
        {
            return Ok(());
        }
        if stamps != Stamps::None {
            self.verify(index, (sent, number), bytes, wire, is_failed);
        }
        if !is_last && !is_failed {
            let next = Sent { role: Role::Step(number + 1), hops: 0, ..sent };
            self.put(client, next, None);
            return Ok(());
        }
        if judge == Judge::Scan && !is_failed && self.read_found(index, sent, bytes) {
            return Ok(());
        }
        if is_piece {
            self.complete_piece((client, index), sent, now, &told);
            return Ok(());
        }
        self.complete(client, index, sent, now, &told);
        Ok(())
    }

    /// Handles a reply without a request, such as the error about too many clients.
    #[cold]
    pub(super) fn unasked(&mut self, bytes: &[u8], kind: Kind) -> Fault {
        if kind == Kind::Error && !self.is_started {
            let reply = keyway_base::printable(bytes.trim_ascii());
            let address = self.setup.target.address.to_string();
            self.fatal = Some(Error::Refused { address, reply });
        }
        Fault::Protocol
    }

    /// Notes that a request is answered.
    #[inline]
    pub(super) fn complete(
        &mut self,
        client: u32,
        index: u32,
        sent: Sent,
        now: u64,
        told: &Told<'_>,
    ) {
        self.answered += 1;
        self.answered_badly += u64::from(told.is_failed());
        self.record.reply(sent.op, now.saturating_sub(sent.at), told);
        self.in_flight -= 1;
        let one = &mut self.clients[client as usize];
        one.in_flight -= 1;
        let is_idle = one.in_flight == 0;
        if is_idle && self.links[index as usize].calls_left == 0 {
            if self.is_sending {
                self.links[index as usize].clear();
                self.spent.push(index);
            }
            return;
        }
        if is_idle || self.pace.is_some() {
            self.rest(client);
        }
    }

    /// Handles a reply that belongs to no step of a request.
    #[cold]
    fn on_other_reply(
        &mut self,
        index: u32,
        sent: Sent,
        (bytes, wire): (&[u8], Option<Wire>),
        kind: Kind,
        now: u64,
    ) {
        let told = match wire {
            None => reply::redis(bytes, kind, Judge::Record),
            Some(wire) => reply::memcached(bytes, wire, Judge::One),
        };
        match sent.role {
            Role::Apart => self.on_record(index, sent, (bytes, kind), now),
            Role::Handshake { is_last } => {
                if let Some(text) = told.error {
                    let reply = keyway_base::printable(text);
                    let address = self.setup.target.address.to_string();
                    self.fatal = Some(Error::Refused { address, reply });
                } else if is_last {
                    self.let_in(index);
                }
            }
            Role::Found { is_last: true } => {
                let client = self.links[index as usize].client;
                self.complete(client, index, sent, now, &told);
            }
            _ => {}
        }
    }

    /// Asks for the records that a scan found. Returns whether there are any.
    fn read_found(&mut self, index: u32, sent: Sent, bytes: &[u8]) -> bool {
        let link = &mut self.links[index as usize];
        if !self.slots.is_empty() {
            let client = link.client;
            return self.read_apart(client, sent, bytes);
        }
        let before = link.sent.len();
        reply::values(bytes, |key| {
            let Some(key) = key else { return };
            link.ask_for_record(key, Sent { role: Role::Found { is_last: false }, ..sent });
        });
        if link.sent.len() == before {
            return false;
        }
        if let Some(last) = link.sent.back_mut() {
            last.role = Role::Found { is_last: true };
        }
        if !link.is_dirty {
            link.is_dirty = true;
            self.dirty.push(index);
        }
        true
    }
}
