//! Requests in pieces. Each piece goes to the server of its key. Requests of several keys are sent
//! so to targets that do not accept them as a whole, and so are reads of the records that a scan
//! found in a cluster. A request is answered when the last of its pieces is.

use super::link::{Role, Sent};
use super::state::State;
use crate::program::Judge;
use crate::random::Random;
use crate::reply::{self, Told};
use keyway_resp::Kind;

/// The requests in pieces that a client has in flight. Their number is at most the depth of the
/// pipeline.
#[derive(Debug, Default)]
pub(super) struct Joins {
    all: Vec<Join>,
    free: Vec<u16>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Join {
    /// Number of pieces that are not answered yet.
    left: u32,
    hits: u32,
    misses: u32,
    /// True if the reply to a piece was an error.
    is_failed: bool,
    /// True if a piece was lost.
    is_lost: bool,
}

impl Joins {
    fn open(&mut self, pieces: u32) -> u16 {
        let join = Join { left: pieces, ..Join::default() };
        match self.free.pop() {
            Some(free) => {
                self.all[usize::from(free)] = join;
                free
            }
            None => {
                self.all.push(join);
                (self.all.len() - 1) as u16
            }
        }
    }

    /// Notes that a piece is over. Returns the request if it was the last piece.
    fn close(&mut self, join: u16) -> Option<Join> {
        let one = &mut self.all[usize::from(join)];
        one.left -= 1;
        if one.left > 0 {
            return None;
        }
        self.free.push(join);
        Some(*one)
    }

    /// Notes that a piece was lost. Returns whether the request is over.
    pub(super) fn lose(&mut self, join: u16) -> bool {
        self.all[usize::from(join)].is_lost = true;
        self.close(join).is_some()
    }
}

impl State {
    /// Sends a request of several keys, piece by piece.
    #[inline(never)]
    pub(super) fn put_pieces(&mut self, client: u32, mut sent: Sent, pieces: u32) {
        let mut random = Random::new(sent.seed);
        sent.join = self.clients[client as usize].joins.open(pieces);
        for piece in 0..pieces {
            if piece > 0 {
                let program = &self.setup.program;
                let one = &self.clients[client as usize];
                let is_write = program.ops[usize::from(sent.op)].is_write;
                let draw = if is_write { &one.writes } else { &one.reads };
                sent.key = draw.beside(sent.key, &mut random);
                if is_write {
                    sent.key = program.own(sent.key, one.owner);
                }
                sent.seed = random.next();
            }
            self.put(client, sent, None);
        }
    }

    /// Handles the reply to a piece, which may complete its request.
    #[inline(never)]
    pub(super) fn complete_piece(
        &mut self,
        (client, index): (u32, u32),
        sent: Sent,
        now: u64,
        told: &Told<'_>,
    ) {
        let joins = &mut self.clients[client as usize].joins;
        let join = &mut joins.all[usize::from(sent.join)];
        join.hits += told.hits;
        join.misses += told.misses;
        if let Some(text) = told.error
            && !std::mem::replace(&mut join.is_failed, true)
        {
            self.record.note(text);
        }
        let Some(join) = joins.close(sent.join) else { return };
        if join.is_lost {
            return self.abandon(client);
        }
        let told = Told {
            hits: join.hits,
            misses: join.misses,
            error: None,
            has_failed_piece: join.is_failed,
        };
        self.complete(client, index, sent, now, &told);
    }

    /// Ends a request that lost a piece.
    #[cold]
    fn abandon(&mut self, client: u32) {
        self.record.unanswered += 1;
        self.in_flight -= 1;
        let one = &mut self.clients[client as usize];
        one.in_flight -= 1;
        if one.in_flight == 0 || self.pace.is_some() {
            self.rest(client);
        }
    }

    /// Asks each server of a cluster for the records of a scan that it holds.
    #[cold]
    pub(super) fn read_apart(&mut self, client: u32, sent: Sent, bytes: &[u8]) -> bool {
        let mut pieces = 0;
        reply::values(bytes, |key| pieces += u32::from(key.is_some()));
        if pieces == 0 {
            return false;
        }
        let join = self.clients[client as usize].joins.open(pieces);
        let sent = Sent { role: Role::Apart, join, ..sent };
        reply::values(bytes, |key| {
            let Some(key) = key else { return };
            let node = self.slots[usize::from(keyway_topology::key_slot(key))];
            let index = self.link_to(client, node);
            let link = &mut self.links[index as usize];
            link.ask_for_record(key, sent);
            if !link.is_dirty {
                link.is_dirty = true;
                self.dirty.push(index);
            }
        });
        true
    }

    /// Handles the reply to the read of a record that a scan found in a cluster. If its slot has
    /// moved, the read counts as one error, and the new owner is noted.
    pub(super) fn on_record(
        &mut self,
        index: u32,
        sent: Sent,
        (bytes, kind): (&[u8], Kind),
        now: u64,
    ) {
        let told = reply::redis(bytes, kind, Judge::Record);
        if let Some(text) = told.error {
            self.note_moved(index, text);
        }
        let client = self.links[index as usize].client;
        self.complete_piece((client, index), sent, now, &told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_over_with_the_last_of_its_pieces() {
        let mut joins = Joins::default();
        let (first, second) = (joins.open(2), joins.open(1));
        assert!(joins.close(first).is_none());
        assert!(joins.lose(second));
        let third = joins.open(3);
        assert_eq!(third, second, "its place is taken again");
        assert!(!joins.lose(third) && joins.close(third).is_none());
        assert!(joins.close(first).is_some_and(|join| !join.is_lost));
        assert!(joins.close(third).is_some_and(|join| join.is_lost && !join.is_failed));
        assert_eq!(joins.all.len(), 2);
    }
}
