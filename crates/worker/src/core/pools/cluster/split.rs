//! A cluster takes the keys of one slot together and no others. So a request becomes one fragment
//! for each slot, even where one server has several of the slots.

use super::state::NO_KEY;
use crate::Upstream;
use crate::core::pools::SharedLinks;
use crate::core::pools::cluster::replicas::Reader;
use crate::core::pools::cluster::state::Scratch;
use crate::core::request::RequestContext;
use crate::core::request::Step;
use crate::core::upstream::bypass::late_apart;
use crate::core::{Connections, Plane};
use keyway_command::Split;
use keyway_proxy::{Join, Owner};
use keyway_resp::reply;
use keyway_topology::SLOT_COUNT;

impl Plane {
    /// Splits a request over the slots of its keys.
    pub(in crate::core) fn split_by_slot(
        &mut self,
        links: &mut Connections,
        incoming: &mut RequestContext,
        split: Split,
    ) -> Step {
        let mut scratch = std::mem::take(&mut self.cluster.split);
        scratch.clear();
        scratch.reads = false;
        let mut placed = self.place_slots(&mut scratch, incoming, usize::from(split.args_per_key));
        if let Some(shared) = placed
            && self.has_readers(incoming.session.pool)
            && !self.place_readers(&mut scratch, links, incoming, &shared)
        {
            placed = None;
        }
        let step = match placed {
            Some(shared) => self.send_by_slot(&scratch, links, incoming, split, &shared),
            None if self.awaits_owner(incoming) => Step::Wait,
            None => self.answer_unrouted(incoming),
        };
        self.cluster.split = scratch;
        step
    }

    /// Finds the slot and server of each key. Returns the links that clients share to the servers,
    /// or `None` if a key has no server.
    fn place_slots(
        &self,
        scratch: &mut Scratch,
        incoming: &RequestContext,
        stride: usize,
    ) -> Option<SharedLinks> {
        let pool = usize::from(incoming.session.pool);
        let Upstream { servers: sharded, .. } = self.plan.pools[pool].kind.upstream()?;
        let state = self.pools[pool].servers()?;
        // Servers that form no cluster take any keys together.
        let has_slots = self.has_slots(incoming.session.pool);
        for index in (1..incoming.request.args.len()).step_by(stride) {
            let hash = sharded.hash_key(&incoming.request.args[index]);
            let server = state.ring().pick(hash, 0)?;
            let slot = (hash as usize % SLOT_COUNT) as u16;
            scratch.add(if has_slots { slot } else { server }, server);
        }
        Some(*state.shared())
    }

    /// Chooses servers to read from in place of the primaries. Returns whether each fragment has a
    /// server.
    #[cold]
    fn place_readers(
        &mut self,
        scratch: &mut Scratch,
        links: &mut Connections,
        incoming: &mut RequestContext,
        shared: &SharedLinks,
    ) -> bool {
        let reads = self.reads_replicas(incoming);
        scratch.reads = reads;
        for fragment in &mut scratch.fragments {
            let primary = fragment.server;
            match reads.then(|| self.reader_of(links, incoming.session, primary)) {
                None | Some(Reader::Primary) => {}
                Some(Reader::At(server)) => fragment.server = server,
                Some(Reader::None) => return false,
            }
            let link = self.link_of(shared, incoming.session, fragment.server);
            self.set_reading(links, link, fragment.server != primary);
        }
        true
    }

    /// Returns whether replicas of the session's pool are read.
    fn has_readers(&self, pool: u16) -> bool {
        self.pools[usize::from(pool)].readers().is_some()
    }

    /// Sends each fragment to its server, if all of the links have room.
    fn send_by_slot(
        &mut self,
        scratch: &Scratch,
        links: &mut Connections,
        incoming: &mut RequestContext,
        split: Split,
        shared: &SharedLinks,
    ) -> Step {
        if let [fragment] = &scratch.fragments[..] {
            let link = self.link_of(shared, incoming.session, fragment.server);
            let before = links[link].link.in_flight();
            let step = self.forward(links, incoming, link);
            if scratch.reads && links[link].link.in_flight() > before {
                self.note_read(&mut links[link]);
            }
            return step;
        }
        for fragment in &scratch.fragments {
            let link = self.link_of(shared, incoming.session, fragment.server);
            if self.is_full(&links[link]) {
                return Step::Full(link);
            }
            if let Some(late) = late_apart(links, incoming, link) {
                return Step::Full(late);
            }
        }
        let (to, mut join) = self.begin_join(incoming, split.join);
        let RequestContext { session, busy, request, .. } = incoming;
        for fragment in &scratch.fragments {
            join.add_fragment(fragment.server, fragment.keys);
        }
        scratch.of_key.iter().for_each(|&fragment| join.add_owner(fragment));
        let operation = self.pending.begin(to, join);
        for (number, fragment) in scratch.fragments.iter().enumerate() {
            let index = self.link_of(shared, session, fragment.server);
            let connection = &mut links[index];
            if let Some(fault) = self.refused(connection) {
                let waiting = self.pending.get_mut::<Join>(operation);
                if waiting.is_some_and(|join| join.on_fault(number as u16, fault)) {
                    self.finish_join_now(operation, session, busy);
                }
                continue;
            }
            self.prepare_link(index, connection, session.identity.database);
            let out = connection.link.request_buf();
            let start = out.len();
            let stride = usize::from(split.args_per_key);
            reply::array(out, 1 + fragment.keys as usize * stride);
            reply::bulk(out, request.command.name.as_bytes());
            let (ranges, buf) = (request.args.ranges(), request.args.buf());
            let mut at = fragment.first;
            while at != NO_KEY {
                let first = 1 + at as usize * stride;
                // The range starts behind the previous argument's line end and ends behind this
                // argument's.
                let from = ranges[first - 1].end as usize + 2;
                let to = ranges[first + stride - 1].end as usize + 2;
                out.extend_from_slice(&buf[from..to]);
                at = scratch.next[at as usize];
            }
            let len = out.len() - start;
            let owner = Owner::Operation { operation, part: number as u32 };
            connection.link.enqueue(owner, request.command.counted(), len, self.clock.now);
            if scratch.reads {
                self.note_read(connection);
            }
            self.note_unsent(index, connection);
        }
        Step::Started
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::{Fragment, NO_FRAGMENT};
    use super::*;

    #[test]
    fn keys_of_a_slot_are_together_in_their_order_and_nothing_stays_behind() {
        let mut scratch = Scratch::default();
        for _ in 0..2 {
            scratch.clear();
            for (slot, server) in [(5, 0), (16_383, 1), (5, 0), (7, 0), (5, 0)] {
                scratch.add(slot, server);
            }
            let keys = |fragment: &Fragment| {
                let mut keys = vec![fragment.first];
                while scratch.next[*keys.last().unwrap() as usize] != NO_KEY {
                    keys.push(scratch.next[*keys.last().unwrap() as usize]);
                }
                assert_eq!(
                    (fragment.keys as usize, fragment.last),
                    (keys.len(), keys[keys.len() - 1])
                );
                keys
            };
            let all: Vec<_> = scratch.fragments.iter().map(keys).collect();
            assert_eq!(all, [vec![0, 2, 4], vec![1], vec![3]]);
            assert_eq!(scratch.of_key, [0, 1, 0, 2, 0]);
        }
        scratch.clear();
        assert!(scratch.of_slot.iter().all(|&fragment| fragment == NO_FRAGMENT));
    }
}
