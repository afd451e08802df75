//! The verification of replies.

use super::link::Sent;
use super::state::State;
use crate::outcome::Verification;
use crate::program::{Program, Stamps};
use crate::reply;
use crate::verify::{Check, Ledger};
use keyway_memcache::{Item, Outcome, Reply, Wire};

impl State {
    /// Verifies the reply to a step.
    pub(super) fn verify(
        &mut self,
        index: u32,
        (sent, number): (Sent, u8),
        bytes: &[u8],
        wire: Option<Wire>,
        is_error: bool,
    ) {
        let State { setup, links, record, scratch, .. } = self;
        let step = &setup.program.ops[usize::from(sent.op)].steps[usize::from(number)];
        let Some(ledger) = &setup.program.ledger else { return };
        let link = &mut links[index as usize];
        let keys = (step.verified_keys as usize).min(link.checks.len());
        let counts = &mut record.verification;
        if is_error {
            link.checks.drain(..keys);
        } else if step.stamps == Stamps::Write {
            link.checks.drain(..keys).for_each(|check| ledger.acknowledge(check));
        } else if let Some(wire) = wire {
            let checks = &link.checks.make_contiguous()[..keys];
            let mut reading = Reading { program: &setup.program, ledger, counts, scratch, checks };
            reading.elements(bytes, wire);
            link.checks.drain(..keys);
        } else {
            let mut checks = link.checks.drain(..keys);
            reply::values(bytes, |value| match checks.next() {
                Some(check) => ledger.count(value, check, counts),
                None => counts.wrong += 1,
            });
            checks.for_each(|_| counts.wrong += 1);
        }
    }
}

/// A reply of memcached that is being verified. It has no element for a missing key.
struct Reading<'a> {
    program: &'a Program,
    ledger: &'a Ledger,
    counts: &'a mut Verification,
    scratch: &'a mut Vec<u8>,
    checks: &'a [Check],
}

impl Reading<'_> {
    fn elements(&mut self, bytes: &[u8], wire: Wire) {
        let mut seen = 0;
        reply::elements(bytes, wire, |reply, element| {
            let Outcome::Hit(item) = &reply.outcome else { return };
            let Some(at) = self.place(reply, item, element, wire, seen) else {
                self.counts.checked += 1;
                self.counts.wrong += 1;
                return;
            };
            self.miss(seen, at);
            self.ledger.count(Some(item.value), self.checks[at], self.counts);
            seen = at + 1;
        });
        self.miss(seen, self.checks.len());
    }

    fn miss(&mut self, from: usize, to: usize) {
        for check in &self.checks[from..to] {
            self.ledger.count(None, *check, self.counts);
        }
    }

    /// Returns the index of the key of a hit. Hits come in the order of the keys. A packet or a
    /// meta command carries the index, and a classic reply carries the key.
    fn place(
        &mut self,
        reply: &Reply<'_>,
        item: &Item<'_>,
        element: &[u8],
        wire: Wire,
        seen: usize,
    ) -> Option<usize> {
        let place = match wire {
            Wire::Binary => reply.opaque as usize,
            Wire::Text if element.starts_with(b"VA ") => opaque(element)?,
            Wire::Text => {
                let Reading { program, scratch, checks, .. } = self;
                let is_it = |check: &Check| {
                    scratch.clear();
                    program.push_key(check.key, scratch);
                    scratch.as_slice() == item.key
                };
                seen + checks.get(seen..)?.iter().position(is_it)?
            }
        };
        (seen..self.checks.len()).contains(&place).then_some(place)
    }
}

/// Returns the flag O of a meta reply. Without the flag, the reply belongs to the first key.
fn opaque(element: &[u8]) -> Option<usize> {
    let line = element.split(|&byte| byte == b'\r').next()?;
    let flag = std::str::from_utf8(line).ok()?.split(' ').find_map(|flag| flag.strip_prefix('O'));
    flag.map_or(Some(0), |number| number.parse().ok())
}
