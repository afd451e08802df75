//! Ways around a large reply: while one comes by a connection that clients share, they send their
//! requests by another, beside it ([`DETOUR`]), and come back when it is through.
//!
//! A client changes over when it waits for nothing, so that its requests keep their order. What was
//! sent before the large reply began to come waits for it: a server answers in order. A client stays
//! while the server owes the reply to a write of it that has timed out: by another connection its
//! next write could be executed before that one, which would then overwrite it.

use super::pools::{BULK, DETOUR};
use super::{Core, LinkIndex, LinkSlot, Plane};
use keyway_base::{Key, Slab};
use keyway_proxy::{Busy, Exchange, Session};

impl Plane {
    /// Chooses by which connections the next requests of a session go.
    #[inline]
    pub(super) fn choose_lane(
        &mut self,
        links: &[LinkSlot],
        (key, session): (Key<Session>, &mut Session),
        busy: &Busy,
    ) {
        if !self.obstructed.is_empty() || session.lane == DETOUR {
            self.look_for_way(links, (key, session), busy);
        }
    }

    #[cold]
    fn look_for_way(
        &mut self,
        links: &[LinkSlot],
        (key, session): (Key<Session>, &mut Session),
        busy: &Busy,
    ) {
        let len_min = self.plan.limits.pass_len();
        self.obstructed.retain(|&index| links[index].is_obstructed(len_min));
        // The rest of a request that is sent as it comes is not to wait for its own reply.
        let is_at_work = session.streaming.is_some() || session.is_special();
        if session.lane == BULK || is_at_work || session.relay.is_some() {
            return;
        }
        let count = |is_detour: bool| {
            let is_such = |slot: &LinkSlot| {
                let is_spoken = slot.link.protocol() == session.identity.protocol;
                slot.pool == session.pool && slot.is_detour == is_detour && is_spoken
            };
            self.obstructed.iter().filter(|&&index| is_such(&links[index])).count()
        };
        // Of two that are obstructed one is as good as the other.
        let lane = match session.lane {
            DETOUR if count(true) <= count(false) && count(false) > 0 => DETOUR,
            _ if count(false) > count(true) => DETOUR,
            _ => key.index(),
        };
        if lane == session.lane {
            return;
        }
        if owes_late_write(links, session) {
            return;
        }
        match session.is_quiet(busy) {
            true => session.lane = lane,
            false => session.keep_order(),
        }
    }

    /// Notes that the time of a request is up which its server may still execute.
    #[cold]
    pub(super) fn note_late(&self, sessions: &mut Slab<Session>, exchange: &Exchange) {
        if exchange.counted.class().may_write()
            && let Some(session) = self.session_of(exchange.owner)
            && let Some(session) = sessions.get_mut(session)
        {
            session.has_late_write = true;
        }
    }

    /// Notes that a large reply comes by a link, if others use it.
    #[cold]
    pub(super) fn note_obstructed(&mut self, index: LinkIndex, slot: &LinkSlot) {
        let is_shared = !slot.is_private && !slot.is_bulk;
        let is_obstructed = is_shared && slot.is_obstructed(self.plan.limits.pass_len());
        if is_obstructed && !self.obstructed.contains(&index) {
            self.obstructed.push(index);
        }
    }
}

impl Core {
    /// The connection for a question of the worker's own that would go by `index`. While a large
    /// reply comes there that its client does not take, it is another to the same server that is
    /// clear. If none is, the question waits there: until the reply is through, or its client was
    /// cut off ([`passing`](super::passing)).
    pub(super) fn clear_link(&self, index: LinkIndex) -> LinkIndex {
        let (slot, len_min) = (&self.links[index], self.plane.plan.limits.pass_len());
        let is_shared = !slot.is_private && !slot.is_beside();
        if !is_shared || !slot.is_obstructed(len_min) {
            return index;
        }
        let Some(state) = self.plane.pools[usize::from(slot.pool)].servers() else {
            return index;
        };
        let lanes = [DETOUR, BULK].into_iter().chain(0..state.connections() as u32);
        let mut others = lanes.map(|lane| state.link(slot.backend, lane, slot.link.protocol()));
        others.find(|&other| !self.links[other].is_obstructed(len_min)).unwrap_or(index)
    }
}

impl LinkSlot {
    fn is_obstructed(&self, len_min: usize) -> bool {
        self.link.is_passing() || self.link.has_part_of(len_min)
    }
}

/// Returns whether a connection that clients share owes the reply to a write that has timed out, where
/// a write of this client has.
#[cold]
pub(super) fn owes_late_write(links: &[LinkSlot], session: &mut Session) -> bool {
    let is_owed = |slot: &LinkSlot| !slot.is_private && slot.link.owes_late_write();
    session.has_late_write = session.has_late_write && links.iter().any(is_owed);
    session.has_late_write
}

/// Returns the connection that clients share to `server` (its pool and place) which owes the reply to a
/// write that has timed out, where a write of this client has. A request that is sent by a connection of
/// its own waits for that reply: else it could be executed before the write.
#[cold]
pub(super) fn late_link(
    links: &[LinkSlot],
    session: &mut Session,
    server: (u16, u16),
) -> Option<LinkIndex> {
    if !owes_late_write(links, session) {
        return None;
    }
    let is_such = |slot: &LinkSlot| {
        !slot.is_private && (slot.pool, slot.backend) == server && slot.link.owes_late_write()
    };
    links.iter().position(is_such)
}
