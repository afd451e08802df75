//! Replies of one client, completed in any order and sent in any pieces,
//! against a plain list, with what it is told of changed keys in between; and
//! replies to split requests joined into one.

use crate::Choices;
use crate::invariants::{one_reply, shown};
use keyway_base::{BackendFault, Block, Fault, Part, Sent};
use keyway_command::Join as Rule;
use keyway_proxy::tracking::{Held, is_invalidation, write_invalidation};
use keyway_proxy::{Join, Output, ReplyOrder};
use keyway_resp::{Framing, Kind, frame_reply, reply};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut client = Client::default();
    while !choices.is_over() {
        client.step(&mut choices);
        client.check();
    }
    client.finish();
}

/// A reply's place, and the reply once it is there.
struct Place {
    sequence: u32,
    reply: Option<Vec<u8>>,
}

#[derive(Default)]
struct Client {
    order: ReplyOrder,
    output: Output,
    held: Held,
    /// What `order` ought to hold.
    places: VecDeque<Place>,
    /// What `output` ought to hold.
    unsent: Vec<u8>,
    /// What `held` ought to hold: after how many replies, and what.
    pushes: VecDeque<(usize, Vec<u8>)>,
    reserved: usize,
    left: usize,
    replies: u32,
}

impl Client {
    fn step(&mut self, choices: &mut Choices) {
        match choices.below(9) {
            0 | 1 => {
                self.reserved += 1;
                let sequence = self.order.reserve();
                self.places.push_back(Place { sequence, reply: None });
            }
            2..=4 => {
                let waiting: Vec<_> =
                    (0..self.places.len()).filter(|&at| self.places[at].reply.is_none()).collect();
                if !waiting.is_empty() {
                    self.complete(choices.pick(&waiting), choices);
                }
            }
            5 => {
                let len = choices.below(1 << 16).min(self.output.len());
                self.output.advance(len);
                self.unsent.drain(..len);
            }
            6 => {
                // Written past the order, as a greeting or a refusal is.
                let bytes = choices.bytes(200);
                self.output.buf().extend_from_slice(bytes);
                self.unsent.extend_from_slice(bytes);
            }
            7 => self.push(choices),
            _ => join(choices),
        }
    }

    /// A server tells of a changed key: behind every reply that has come, none
    /// of which it may overtake, and behind what was told before.
    fn push(&mut self, choices: &mut Choices) {
        let mut push = Vec::new();
        write_invalidation(&mut push, [choices.bytes(8)].into_iter());
        assert!(is_invalidation(&push));
        let is_early = self.places.iter().any(|place| place.reply.is_some());
        assert_eq!(self.held.is_empty(), self.pushes.is_empty());
        if self.held.must_hold(&self.order) {
            self.held.hold(self.order.next_index(), &push);
        } else {
            self.output.buf().extend_from_slice(&push);
        }
        match is_early || !self.pushes.is_empty() {
            true => self.pushes.push_back((self.reserved, push)),
            false => self.unsent.extend_from_slice(&push),
        }
    }

    fn complete(&mut self, at: usize, choices: &mut Choices) {
        // Mostly small; at times what outgrows the buffers that are kept.
        let len = [3, 40, 500, 70_000][choices.below(4)];
        let filler = [b'a' + (self.replies % 26) as u8].repeat(choices.below(len));
        let reply = [self.replies.to_string().as_bytes(), &filler].concat();
        self.replies += 1;
        let sequence = self.places[at].sequence;
        if choices.flip() {
            let block: Block = reply.as_slice().into();
            let part = Part::of(&block, &block[..]).expect("it is all of it");
            self.order.complete_with(sequence, &mut self.output, part);
        } else {
            self.order.complete(sequence, &mut self.output, |out| out.extend_from_slice(&reply));
        }
        self.places[at].reply = Some(reply);
        while let Some(reply) = self.places.front_mut().and_then(|place| place.reply.take()) {
            self.unsent.extend_from_slice(&reply);
            self.places.pop_front();
            self.left += 1;
        }
        let order = &self.order;
        self.held.release(|place| order.has_passed(place), self.output.buf());
        while let Some((_, push)) = self.pushes.pop_front_if(|(after, _)| *after <= self.left) {
            self.unsent.extend_from_slice(&push);
        }
    }

    fn check(&self) {
        let mut pieces = vec![IoSlice::new(b""); 2 * self.output.parts_count() + 1];
        for len_max in [self.unsent.len() / 2, usize::MAX] {
            let count = self.output.pieces(&mut pieces, len_max);
            let unsent: Vec<u8> = pieces[..count].iter().flat_map(|piece| piece.to_vec()).collect();
            let wanted = &self.unsent[..self.unsent.len().min(len_max)];
            assert!(unsent == wanted, "replies left out of order");
        }
        assert_eq!(self.output.len(), self.unsent.len());
        assert_eq!(self.order.len(), self.places.len());
        let early: usize = self.places.iter().flat_map(|place| &place.reply).map(Vec::len).sum();
        assert!(self.order.stash_len() >= early);
        if early == 0 && self.places.iter().all(|place| place.reply.is_none()) {
            assert_eq!(self.order.stash_len(), 0, "the stash is not emptied");
        }
    }

    /// Once every reply has come, everything leaves.
    fn finish(&mut self) {
        while let Some(at) = self.places.iter().rposition(|place| place.reply.is_none()) {
            self.complete(at, &mut Choices::new(&[]));
        }
        self.check();
        assert!(self.order.is_empty() && self.held.is_empty());
    }
}

/// One split request: fragments answered in any order, well or ill.
fn join(choices: &mut Choices) {
    let rule = choices.pick(&[Rule::Sum, Rule::AllOk, Rule::Array]);
    let mut join = Join::default();
    join.restart(rule);
    join.command = "mget";
    let fragments = 1 + choices.below(4);
    let owners: Vec<usize> = (0..choices.below(12)).map(|_| choices.below(fragments)).collect();
    for fragment in 0..fragments {
        let keys = owners.iter().filter(|&&owner| owner == fragment).count();
        assert_eq!(usize::from(join.add_fragment(fragment as u16, keys as u32)), fragment);
    }
    owners.iter().for_each(|&owner| join.add_owner(owner as u16));

    let mut is_good = true;
    let mut left: Vec<usize> = (0..fragments).collect();
    while !left.is_empty() {
        let fragment = left.swap_remove(choices.below(left.len()));
        let last = match choices.below(4) {
            0 => {
                is_good = false;
                let fault = Fault::Backend { fault: BackendFault::Closed, sent: Sent::Maybe };
                join.on_fault(fragment as u16, fault)
            }
            1 => {
                is_good = false;
                let (kind, bytes) = any_reply(choices);
                join.on_reply(fragment as u16, kind, &bytes)
            }
            _ => {
                let (kind, bytes) = good_reply(rule, fragment, &owners);
                join.on_reply(fragment as u16, kind, &bytes)
            }
        };
        assert_eq!(last, left.is_empty(), "the last fragment is the last");
    }
    let mut out = Vec::new();
    join.write_reply(&mut out, |_| "name", |_, fault| fault.label().to_owned());
    one_reply(&out);
    if is_good {
        assert_eq!(shown(&out), shown(&joined(rule, &owners)));
    }
}

/// A whole reply of whatever shape: the input's own bytes, if they are one.
fn any_reply(choices: &mut Choices) -> (Kind, Vec<u8>) {
    let mut bytes = choices.bytes(60).to_vec();
    bytes.extend_from_slice(b"\r\n");
    match frame_reply(&bytes, u32::MAX, 16) {
        Ok(Framing::Ready { len, kind }) => (kind, bytes[..len].to_vec()),
        _ => (Kind::Array, b"*1\r\n*1\r\n*1\r\n$-1\r\n".to_vec()),
    }
}

fn good_reply(rule: Rule, fragment: usize, owners: &[usize]) -> (Kind, Vec<u8>) {
    let mut out = Vec::new();
    let own = || owners.iter().enumerate().filter(|(_, owner)| **owner == fragment);
    match rule {
        Rule::Sum => reply::integer(&mut out, own().count() as i64),
        Rule::AllOk => reply::simple(&mut out, "OK"),
        Rule::Array => {
            reply::array(&mut out, own().count());
            own().for_each(|(key, _)| reply::bulk(&mut out, format!("value {key}").as_bytes()));
        }
        // The rules of commands without keys; no request here follows them.
        _ => reply::integer(&mut out, 1),
    }
    match rule {
        Rule::Sum => (Kind::Integer, out),
        Rule::AllOk => (Kind::Simple, out),
        Rule::Array => (Kind::Array, out),
        _ => (Kind::Integer, out),
    }
}

/// What an unsplit request would have been answered with.
fn joined(rule: Rule, owners: &[usize]) -> Vec<u8> {
    let all: Vec<usize> = owners.iter().map(|_| 0).collect();
    good_reply(rule, 0, &all).1
}
