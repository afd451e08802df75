//! The short way of requests that need nothing special: one step each in a closed loop, to one server
//! of Redis, with nothing to verify. All that comes together is counted at once, and all that a
//! client sends next is drawn and rendered in one go. It sends and counts the same as the long way.

use super::link::{Framer, Link, Role, Sent, Stage};
use super::state::{Client, Fault, State};
use crate::plan::{Pace, Plan};
use crate::program::{Cursor, Judge, Program, Stamps};
use crate::random::Random;
use crate::reply::{self, DEPTH_MAX, REPLY_LEN_MAX};
use crate::setup::Setup;
use crate::verify::Check;
use keyway_resp::{Framing, Kind};
use std::sync::atomic::Ordering;

/// Returns whether all requests of a run can go the short way.
pub(super) fn is_plain(setup: &Setup) -> bool {
    let Plan { pace, calls, .. } = &setup.plan;
    let is_simple = |program: &Program| {
        program.ops.iter().all(|op| match op.steps.as_slice() {
            [step] => {
                op.pieces == 1
                    && !op.inserts
                    && step.stamps == Stamps::None
                    && step.judge == Judge::One
            }
            _ => false,
        })
    };
    setup.target.protocol.is_redis()
        && setup.slots.is_empty()
        && *pace == Pace::Closed
        && calls.is_none()
        && is_simple(&setup.program)
}

/// Renders a step of a request into its link.
#[inline]
pub(super) fn render(
    program: &Program,
    one: &Client,
    link: &mut Link,
    (sent, number): (&Sent, u8),
    again: &[Check],
) {
    let spec = &program.ops[usize::from(sent.op)];
    let step = &spec.steps[usize::from(number)];
    let random = Random::new(sent.seed.wrapping_add(u64::from(number)));
    if let Some(template) = &step.template {
        return program.cast(template, sent.key, random, &mut link.out);
    }
    let mut cursor = Cursor {
        key: sent.key,
        random,
        owner: one.owner,
        draw: if spec.is_write { &one.writes } else { &one.reads },
        checks: &mut link.checks,
        again,
    };
    program.render(step, &mut cursor, &mut link.out);
}

impl State {
    /// So many requests of a client at once.
    pub(super) fn issue_plain(&mut self, client: u32, count: u64, now: u64) {
        let index = self.link_to(client, 0);
        let State { setup, links, clients, dirty, .. } = self;
        let (program, link) = (&setup.program, &mut links[index as usize]);
        let one = &mut clients[client as usize];
        // ORDER: nothing is inserted on this way.
        let newest = setup.newest.load(Ordering::Relaxed);
        for _ in 0..count {
            let op = program.next_op(&mut one.random);
            let is_write = program.ops[usize::from(op)].is_write;
            let draw = if is_write { &mut one.writes } else { &mut one.reads };
            let key = draw.next(&mut one.random, newest);
            let seed = one.random.next();
            let sent = Sent { at: now, seed, key, op, hops: 0, role: Role::Step(0), join: 0 };
            render(program, one, link, (&sent, 0), &[]);
            link.sent.push_back(sent);
        }
        if count > 0 && !link.is_dirty {
            link.is_dirty = true;
            dirty.push(index);
        }
        one.in_flight += count as usize;
        self.in_flight += count;
        self.quota -= count;
    }

    /// Returns whether what comes on a link are replies to plain requests alone.
    #[inline]
    pub(super) fn has_plain_replies(&self, index: u32) -> bool {
        self.is_plain && self.links[index as usize].stage == Stage::Open
    }

    /// Counts every whole reply; how many bytes they are.
    pub(super) fn feed_plain(
        &mut self,
        index: u32,
        bytes: &[u8],
        now: u64,
    ) -> Result<usize, Fault> {
        let State { links, record, .. } = self;
        let link = &mut links[index as usize];
        let client = link.client;
        let Framer::Redis(framer) = &mut link.framer else { return Err(Fault::Protocol) };
        let (mut at, mut count, mut failed) = (0, 0, 0);
        let outcome = loop {
            if at == bytes.len() {
                break Ok(());
            }
            match framer.frame(&bytes[at..], REPLY_LEN_MAX, DEPTH_MAX) {
                Ok(Framing::Ready { len, kind }) => {
                    let reply = &bytes[at..at + len];
                    at += len;
                    if kind == Kind::Push {
                        continue;
                    }
                    let Some(sent) = link.sent.pop_front() else {
                        break Err(Some((at - len, kind)));
                    };
                    let told = reply::redis(reply, kind, Judge::One);
                    failed += u64::from(told.is_failed());
                    record.reply(sent.op, now.saturating_sub(sent.at), &told);
                    count += 1;
                }
                Ok(Framing::NeedMore { at_least }) => {
                    link.needed = at_least;
                    break Ok(());
                }
                Err(_) => break Err(None),
            }
        };
        self.answered += count;
        self.answered_badly += failed;
        self.in_flight -= count;
        let one = &mut self.clients[client as usize];
        one.in_flight -= count as usize;
        if count > 0 && one.in_flight == 0 {
            self.rest(client);
        }
        match outcome {
            Ok(()) => Ok(at),
            Err(Some((from, kind))) => Err(self.unasked(&bytes[from..at], kind)),
            Err(None) => Err(Fault::Protocol),
        }
    }
}
